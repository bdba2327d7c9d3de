//! What `idlewise validate` found, check by check.

use idlewise_trace::validate::Finding;

use crate::columns::{Column, Priority, Unit};
use crate::{Row, Table, Value};

static CHECK: Column = Column::text("check", "check", "What is checked.").priority(Priority::Key);
static RESULT: Column = Column::text(
    "result",
    "result",
    "`ok`; `doubt`: reason to be careful; `wrong`: the log contradicts itself; `unchecked`: the \
     log has nothing to check.",
)
.priority(Priority::Key);
static FOUND: Column = Column::number(
    "found_count",
    "found",
    Unit::Count,
    "In how many of them the rule does not hold; of lost events and doubts, how many there are.",
);
static CHECKED: Column = Column::number(
    "checked_count",
    "of",
    Unit::Count,
    "How many rows, CPUs or events were looked at.",
);
static FIRST_CPU: Column = Column::number(
    "first_cpu",
    "first CPU",
    Unit::Count,
    "The CPU where the rule is broken first.",
);
static FIRST_ROW: Column = Column::number(
    "first_row",
    "first row",
    Unit::Count,
    "The file's row, from 0, where the rule is broken first.",
);
static RULE: Column = Column::text("rule", "what must hold", "The rule.");

/// The columns of `idlewise validate`.
pub static VALIDATE: [&Column; 7] =
    [&CHECK, &RESULT, &FOUND, &CHECKED, &FIRST_CPU, &FIRST_ROW, &RULE];

/// A line for each check.
pub fn validate_table(findings: &[Finding]) -> Table {
    let mut table = Table::new("", &VALIDATE);
    for finding in findings {
        let first = finding.first;
        table.push(Row::new([
            finding.check.name().into(),
            finding.result().name().into(),
            Value::Count(finding.found_count),
            Value::Count(finding.checked_count),
            first.and_then(|place| place.cpu).map(u64::from).into(),
            first.and_then(|place| place.row).into(),
            finding.check.rule().into(),
        ]));
    }
    table
}
