//! The columns of the table.

use super::judgement::{Judgement, P999};
use crate::{Column, Value};

/// Returns the columns.
pub fn columns() -> Vec<Column<Judgement>> {
    type C = Column<Judgement>;
    vec![
        C::text("setting", "setting", |row| row.setting.as_str().into())
            .means("The setting; `as it is` for the recording's own.")
            .key(),
        C::text("step", "step", |row| row.step.map_or(Value::Absent, |step| step.as_str().into()))
            .means("How drastic the change is.")
            .detail(),
        C::ns("delay_p50_ns", "delay p50", |row| row.p50_ns.into()).means(
            "Median wait of the wake events: for the exit if judged by replay, until a task runs \
             if by predict; simulated.",
        ),
        C::ns("delay_p99_ns", "delay p99", |row| row.p99.map(|p99| p99.value).into())
            .means("99th percentile of that wait."),
        C::ns("delay_p99_low_ns", "from", |row| row.p99.and_then(|p99| p99.low()).into())
            .means(
                "Ends of its 95 % bootstrap interval over slices of time; absent with fewer than \
                 seven.",
            )
            .detail(),
        C::ns("delay_p99_high_ns", "to", |row| row.p99.and_then(|p99| p99.high()).into())
            .means("Its upper end.")
            .detail(),
        C::ns("delay_p999_ns", "p99.9", |row| {
            row.tails.iter().find(|tail| tail.ratio == P999).map(|tail| tail.ns).into()
        })
        .means("99.9th percentile; absent with fewer than 5,000 events.")
        .detail(),
        C::ns("delay_max_ns", "worst", |row| row.max_ns.into())
            .means("The longest delay.")
            .detail(),
        C::mw("power_mw", "power", |row| row.power_mw.into())
            .means("Mean power of all idle CPUs, simulated."),
        C::mw("power_change_mw", "change", |row| {
            row.power_change_mw.map(|change| change.value).into()
        })
        .means("Change of the power.")
        .detail(),
        C::mw("power_change_low_mw", "from", |row| {
            row.power_change_mw.and_then(|change| change.low()).into()
        })
        .means("Lower end of its 95 % interval.")
        .detail(),
        C::mw("power_change_high_mw", "to", |row| {
            row.power_change_mw.and_then(|change| change.high()).into()
        })
        .means("Its upper end.")
        .detail(),
        C::ratio("power_change_least_ratio", "least", |row| {
            row.power_range.map(|range| range.low / 100.0).into()
        })
        .means(
            "The least change of the power, as a share, under all plausible powers of the states; absent where they are \
             known, and where delays are predicted.",
        )
        .detail(),
        C::ratio("power_change_most_ratio", "most", |row| {
            row.power_range.map(|range| range.high / 100.0).into()
        })
        .means("The largest.")
        .detail(),
        C::ratio("cost_change_ratio", "cost", |row| {
            row.cost_change.map(|change| change.value).into()
        })
        .means("Change of energy and priced delay, as a share of the present cost."),
        C::ratio("cost_change_low_ratio", "from", |row| {
            row.cost_change.and_then(|change| change.low()).into()
        })
        .means("Lower end of its 95 % interval."),
        C::ratio("cost_change_high_ratio", "to", |row| {
            row.cost_change.and_then(|change| change.high()).into()
        })
        .means("Its upper end."),
        C::text("verdict", "verdict", |row| match row.verdict {
            "" => Value::Absent,
            verdict => verdict.into(),
        })
        .means(
            "The verdict. A trade is better in power or tail delay, and may be worse in the other.",
        )
        .key(),
    ]
}
