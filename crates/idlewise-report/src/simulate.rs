//! What a simulated run says: its columns and tables.

use idlewise_sim::simulate::Report;

use crate::columns::{Better, Column, Priority, STATE, Unit};
use crate::replay::GOVERNOR;
use crate::{Row, Table, Value};

static OPERATIONS: Column = Column::number(
    "operations_per_s",
    "operations",
    Unit::PerSecond,
    "Completed operations of the workload a second of simulated time.",
)
.better(Better::Higher);
static POWER: Column = Column::number(
    "power_mw",
    "power",
    Unit::Milliwatts,
    "Mean power of all cores and packages of the simulated machine.",
)
.better(Better::Lower);
static BUSY: Column =
    Column::number("busy_ratio", "busy", Unit::Ratio, "Share of CPU time outside idle states.");
static IRQ: Column = Column::number(
    "irq_ratio",
    "in irq",
    Unit::Ratio,
    "Share of CPU time in interrupts and what they led to.",
)
.priority(Priority::Detail);
static EXIT: Column = Column::number(
    "exit_ratio",
    "leaving idle",
    Unit::Ratio,
    "Share of CPU time spent leaving idle states.",
)
.priority(Priority::Detail);
static FREQUENCY: Column = Column::number(
    "frequency_ratio",
    "frequency",
    Unit::Ratio,
    "Mean frequency of running cores over the nominal one.",
)
.priority(Priority::Detail);
static SENT: Column = Column::number(
    "ipi_sent_count",
    "IPIs sent",
    Unit::Count,
    "Interrupts sent from one CPU to another.",
);
static ELIDED: Column = Column::number(
    "ipi_elided_count",
    "IPIs elided",
    Unit::Count,
    "Wishes met by a store to a monitored line, or that found the CPU being woken already.",
);
static FREE_RIDES: Column = Column::number(
    "free_ride_count",
    "free rides",
    Unit::Count,
    "Those of the elided that found the CPU being woken already.",
)
.priority(Priority::Detail);
static BATCHED: Column = Column::number(
    "ipi_batched_count",
    "batched",
    Unit::Count,
    "Wishes that joined a queue whose IPI was under way.",
)
.priority(Priority::Detail);
static SENDER: Column = Column::number(
    "sender_mean_ns",
    "sender mean",
    Unit::Nanoseconds,
    "Mean cost of such a wish to the CPU that has it.",
)
.priority(Priority::Detail);
static TICKS: Column = Column::number(
    "tick_wake_count",
    "ticks",
    Unit::Count,
    "Idle stays that the scheduler tick ended.",
);
static PROMOTIONS: Column = Column::number(
    "auto_promotion_count",
    "promotions",
    Unit::Count,
    "Idle stays that the promotion timer ended.",
);
static PACKAGE_IDLE: Column = Column::number(
    "package_idle_ratio",
    "package idle",
    Unit::Ratio,
    "Share of time that packages were in their package state.",
)
.priority(Priority::Detail);
static EVENTS: Column =
    Column::number("event_count", "events", Unit::Count, "Events that were simulated.")
        .priority(Priority::Detail);

/// Columns of the table of runs.
pub static RUNS: [&Column; 16] = [
    &GOVERNOR,
    &OPERATIONS,
    &POWER,
    &BUSY,
    &SENT,
    &ELIDED,
    &TICKS,
    &PROMOTIONS,
    &FREE_RIDES,
    &BATCHED,
    &SENDER,
    &IRQ,
    &EXIT,
    &FREQUENCY,
    &PACKAGE_IDLE,
    &EVENTS,
];

static SPAN: Column = Column::text(
    "span",
    "span",
    "What was timed; `idlewise simulate --list` says which workload notes what.",
)
.priority(Priority::Key);
static COUNT: Column = Column::number("count", "count", Unit::Count, "How many.");
static MEAN: Column = Column::number("mean_ns", "mean", Unit::Nanoseconds, "Their mean.");
static P50: Column = Column::number("p50_ns", "p50", Unit::Nanoseconds, "Their median.");
static P90: Column = Column::number("p90_ns", "p90", Unit::Nanoseconds, "90th percentile.");
static P99: Column = Column::number("p99_ns", "p99", Unit::Nanoseconds, "99th percentile.");
static P999: Column = Column::number("p999_ns", "p99.9", Unit::Nanoseconds, "99.9th percentile.");
static MAX: Column = Column::number("max_ns", "max", Unit::Nanoseconds, "The longest.");

/// Columns of the table of spans.
pub static SPANS: [&Column; 9] = [&SPAN, &GOVERNOR, &COUNT, &MEAN, &P50, &P90, &P99, &P999, &MAX];

static RESIDENCY: Column = Column::number(
    "residency_ratio",
    "residency",
    Unit::Ratio,
    "Share of all CPU time that CPUs asked for the state.",
);
static CORE_RESIDENCY: Column = Column::number(
    "core_residency_ratio",
    "core residency",
    Unit::Ratio,
    "Share of all core time that cores were in it: a core is as deep as its shallowest thread.",
);
static ENTRIES: Column =
    Column::number("entry_count", "entries", Unit::Count, "Stays in the state.");
static TOO_DEEP: Column = Column::number(
    "too_deep_count",
    "too deep",
    Unit::Count,
    "Stays shorter than the target residency while a shallower state was enabled.",
);
static TOO_SHALLOW: Column = Column::number(
    "too_shallow_count",
    "too shallow",
    Unit::Count,
    "Stays long enough for the next deeper enabled state.",
);

/// Columns of the table of states.
pub static STATES: [&Column; 7] =
    [&GOVERNOR, &STATE, &RESIDENCY, &CORE_RESIDENCY, &ENTRIES, &TOO_DEEP, &TOO_SHALLOW];

/// One row for each governor's run.
pub fn run_table(title: &str, runs: &[(String, Report)]) -> Table {
    let mut table = Table::new(title, &RUNS);
    for (governor, report) in runs {
        let cpu_ns = (report.cpu_count * report.duration_ns).max(1) as f64;
        let of_cpu = |ns: u64| Value::Real(ns as f64 / cpu_ns);
        let ipis = &report.ipis;
        let has_ipis = ipis.requested_count > 0;
        let sender_ns = has_ipis.then(|| ipis.sender_ns as f64 / ipis.requested_count as f64);
        table.push(Row::new([
            governor.as_str().into(),
            report.operations_per_s().into(),
            report.power_mw().into(),
            of_cpu(report.busy_ns),
            ipis.sent_count.into(),
            ipis.elided_count().into(),
            report.idle.tick_wake_count.into(),
            report.idle.auto_promotion_count.into(),
            ipis.free_ride_count.into(),
            ipis.batched_count.into(),
            sender_ns.into(),
            of_cpu(report.irq_ns),
            of_cpu(report.exit_ns),
            report.cores.mean_frequency_ratio().into(),
            (report.cores.package_idle_ns as f64 / report.duration_ns as f64).into(),
            report.event_count.into(),
        ]));
    }
    table
}

/// Percentiles of what the workload timed; spans first, so that governors stand side by side.
pub fn span_table(runs: &[(String, Report)]) -> Table {
    let mut table = Table::new("", &SPANS);
    let names = runs.iter().flat_map(|(_, report)| report.metrics.all_spans());
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names.into_iter().filter(|name| name.ends_with("_ns")) {
        for (governor, report) in runs {
            let Some(spans) = report.metrics.spans(name) else { continue };
            table.push(Row::unranked([
                name.trim_end_matches("_ns").into(),
                governor.as_str().into(),
                spans.count().into(),
                spans.mean_ns().into(),
                spans.quantile_ns(0.5).into(),
                spans.quantile_ns(0.9).into(),
                spans.quantile_ns(0.99).into(),
                spans.quantile_ns(0.999).into(),
                spans.max_ns().into(),
            ]));
        }
    }
    table
}

/// What became of each state.
pub fn state_table(state_names: &[String], runs: &[(String, Report)]) -> Table {
    let mut table = Table::new("", &STATES);
    for (governor, report) in runs {
        let cpu_ns = (report.cpu_count * report.duration_ns).max(1) as f64;
        let core_ns = (report.core_count * report.duration_ns).max(1) as f64;
        for (index, name) in state_names.iter().enumerate() {
            let state = &report.idle.states[index];
            table.push(Row::unranked([
                governor.as_str().into(),
                name.as_str().into(),
                (state.stay_ns as f64 / cpu_ns).into(),
                (report.cores.residency_ns[index] as f64 / core_ns).into(),
                state.entry_count.into(),
                state.too_deep_count.into(),
                state.too_shallow_count.into(),
            ]));
        }
    }
    table
}
