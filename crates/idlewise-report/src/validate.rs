//! The result of `idlewise validate`, check by check.

use idlewise_trace::validate::Finding;

use crate::{Column, Table};

type C = Column<Finding>;

/// Returns the columns of `idlewise validate`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("check", "check", "What is checked.", |row| row.check.name().into()).key(),
        C::text(
            "result",
            "result",
            "`ok`, `doubt` (be careful), `wrong` (the log contradicts itself) or `unchecked` (the \
             log has nothing to check).",
            |row| row.result().name().into(),
        )
        .key(),
        C::count(
            "found_count",
            "found",
            "How many of them break the rule, or the number of lost events or doubts.",
            |row| row.found_count.into(),
        ),
        C::count("checked_count", "of", "How many rows, CPUs or events were looked at.", |row| {
            row.checked_count.into()
        }),
        C::count("first_cpu", "first CPU", "The CPU where the rule is broken first.", |row| {
            row.first.and_then(|place| place.cpu).map(u64::from).into()
        }),
        C::count(
            "first_row",
            "first row",
            "The file's row, from 0, where the rule is broken first.",
            |row| row.first.and_then(|place| place.row).into(),
        ),
        C::text("rule", "what must hold", "The rule.", |row| row.check.rule().into()),
    ]
}

/// Returns a line for each check.
pub fn validate_table(findings: &[Finding]) -> Table {
    Table::new("", &columns(), findings)
}
