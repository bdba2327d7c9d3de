//! The result of `idlewise log validate`, check by check.

use idlewise_trace::validate::Finding;

use crate::{Column, Table};

type C = Column<Finding>;

/// Returns the columns of `idlewise log validate`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("check", "check", |row| row.check.name().into()).means("What is checked.").key(),
        C::text("result", "result", |row| row.result().name().into())
            .means(
                "`ok`, `doubt` (be careful), `wrong` (the log contradicts itself) or `unchecked` \
                 (the log has nothing to check).",
            )
            .key(),
        C::count("found_count", "found", |row| row.found_count.into())
            .means("How many of them break the rule, or the number of lost events or doubts."),
        C::count("checked_count", "of", |row| row.checked_count.into())
            .means("How many rows, CPUs or events were looked at."),
        C::count("first_cpu", "first CPU", |row| {
            row.first.and_then(|place| place.cpu).map(u64::from).into()
        })
        .means("The CPU where the rule is broken first."),
        C::count("first_row", "first row", |row| row.first.and_then(|place| place.row).into())
            .means("The file's row, from 0, where the rule is broken first."),
        C::text("rule", "what must hold", |row| row.check.rule().into()).means("The rule."),
    ]
}

/// Returns a line for each check.
pub fn validate_table(findings: &[Finding]) -> Table {
    Table::new("", &columns(), findings)
}
