//! The output of a simulated run: its columns and tables.

use idlewise_sim::replay::{Delays, StateTally};
use idlewise_sim::simulate::Report;

use crate::columns::{GOVERNOR, STATE};
use crate::{Column, Table, Value};

/// The run of a governor.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    governor: &'a str,
    report: &'a Report,
}

/// A time span that a workload measured in a run.
pub struct Span<'a> {
    name: &'a str,
    governor: &'a str,
    spans: &'a Delays,
}

/// A state in a run.
pub struct State<'a> {
    run: Run<'a>,
    index: usize,
    name: &'a str,
}

impl State<'_> {
    fn state(&self) -> &StateTally {
        &self.run.report.idle.states[self.index]
    }

    fn core_residency_ratio(&self) -> f64 {
        let Report { core_count, duration_ns, cores, .. } = self.run.report;
        cores.residency_ns[self.index] as f64 / (core_count * duration_ns).max(1) as f64
    }
}

fn runs(runs: &[(String, Report)]) -> impl Iterator<Item = Run<'_>> {
    runs.iter().map(|(governor, report)| Run { governor, report })
}

/// A time as a share of the time of all CPUs.
fn of_cpus(report: &Report, ns: u64) -> Value {
    (ns as f64 / (report.cpu_count * report.duration_ns).max(1) as f64).into()
}

fn sender_mean_ns(report: &Report) -> Option<f64> {
    let ipis = &report.ipis;
    (ipis.requested_count > 0).then(|| ipis.sender_ns as f64 / ipis.requested_count as f64)
}

/// Returns the columns of the table of runs.
pub fn run_columns<'a>() -> Vec<Column<Run<'a>>> {
    type C<'a> = Column<Run<'a>>;
    vec![
        C::new(GOVERNOR, |row| row.governor.into()),
        C::per_s("operations_per_s", "operations", |row| row.report.operations_per_s().into())
            .means("Completed operations of the workload a second of simulated time.")
            .higher_is_better(),
        C::mw("power_mw", "power", |row| row.report.power_mw().into())
            .means("Mean power of all cores and packages of the simulated machine.")
            .lower_is_better(),
        C::ratio("busy_ratio", "busy", |row| of_cpus(row.report, row.report.busy_ns))
            .means("Share of CPU time outside idle states."),
        C::count("ipi_sent_count", "IPIs sent", |row| row.report.ipis.sent_count.into())
            .means("Interrupts sent from one CPU to another."),
        C::count("ipi_elided_count", "IPIs elided", |row| row.report.ipis.elided_count().into())
            .means(
                "Wake-ups that needed no IPI: a store to a monitored line was enough, or the CPU \
                 was being woken already.",
            ),
        C::count("tick_wake_count", "ticks", |row| row.report.idle.tick_wake_count.into())
            .means("Idle stays that the scheduler tick ended."),
        C::count("auto_promotion_count", "promotions", |row| {
            row.report.idle.auto_promotion_count.into()
        })
        .means("Idle stays that the promotion timer ended."),
        C::count("free_ride_count", "free rides", |row| row.report.ipis.free_ride_count.into())
            .means("Of these, the wake-ups that found the CPU being woken already.")
            .detail(),
        C::count("ipi_batched_count", "batched", |row| row.report.ipis.batched_count.into())
            .means("Wake-ups that joined a queue whose IPI was under way.")
            .detail(),
        C::ns("sender_mean_ns", "sender mean", |row| sender_mean_ns(row.report).into())
            .means("Mean cost of a wake-up to the CPU that sends it.")
            .detail(),
        C::ratio("irq_ratio", "in irq", |row| of_cpus(row.report, row.report.irq_ns))
            .means("Share of CPU time in interrupts and the work that they started.")
            .detail(),
        C::ratio("exit_ratio", "leaving idle", |row| of_cpus(row.report, row.report.exit_ns))
            .means("Share of CPU time spent leaving idle states.")
            .detail(),
        C::ratio("frequency_ratio", "frequency", |row| {
            row.report.cores.mean_frequency_ratio().into()
        })
        .means("Mean frequency of running cores over the nominal one.")
        .detail(),
        C::ratio("package_idle_ratio", "package idle", |row| {
            (row.report.cores.package_idle_ns as f64 / row.report.duration_ns as f64).into()
        })
        .means("Share of time that packages were in their package state.")
        .detail(),
        C::count("event_count", "events", |row| row.report.event_count.into())
            .means("Events that were simulated.")
            .detail(),
    ]
}

/// Returns the columns of the table of spans.
pub fn span_columns<'a>() -> Vec<Column<Span<'a>>> {
    type C<'a> = Column<Span<'a>>;
    vec![
        C::text("span", "span", |row| row.name.trim_end_matches("_ns").into())
            .means(
                "What was timed; `idlewise lab simulate --list` lists the spans of each workload.",
            )
            .key(),
        C::new(GOVERNOR, |row| row.governor.into()),
        C::count("count", "count", |row| row.spans.count().into()).means("How many."),
        C::ns("mean_ns", "mean", |row| row.spans.mean_ns().into()).means("Their mean."),
        C::ns("p50_ns", "p50", |row| row.spans.quantile_ns(0.5).into()).means("Their median."),
        C::ns("p90_ns", "p90", |row| row.spans.quantile_ns(0.9).into()).means("90th percentile."),
        C::ns("p99_ns", "p99", |row| row.spans.quantile_ns(0.99).into()).means("99th percentile."),
        C::ns("p999_ns", "p99.9", |row| row.spans.quantile_ns(0.999).into())
            .means("99.9th percentile."),
        C::ns("max_ns", "max", |row| row.spans.max_ns().into()).means("The longest."),
    ]
}

/// Returns the columns of the table of states.
pub fn state_columns<'a>() -> Vec<Column<State<'a>>> {
    type C<'a> = Column<State<'a>>;
    vec![
        C::new(GOVERNOR, |row| row.run.governor.into()),
        C::new(STATE, |row| row.name.into()),
        C::ratio("residency_ratio", "residency", |row| {
            of_cpus(row.run.report, row.state().stay_ns)
        })
        .means("Share of all CPU time for which CPUs had requested the state."),
        C::ratio("core_residency_ratio", "core residency", |row| row.core_residency_ratio().into())
            .means(
                "Share of all core time in the state: a core is as deep as its shallowest thread.",
            ),
        C::count("entry_count", "entries", |row| row.state().entry_count.into())
            .means("Stays in the state."),
        C::count("too_deep_count", "too deep", |row| row.state().too_deep_count.into())
            .means("Stays shorter than the target residency while a shallower state was enabled."),
        C::count("too_shallow_count", "too shallow", |row| row.state().too_shallow_count.into())
            .means("Stays long enough for the next deeper enabled state."),
    ]
}

/// Returns one row for each governor's run.
pub fn run_table(title: &str, reports: &[(String, Report)]) -> Table {
    Table::new(title, &run_columns(), runs(reports))
}

/// Returns percentiles of the workload's spans, sorted by span so that governors are adjacent.
pub fn span_table(reports: &[(String, Report)]) -> Table {
    let names = reports.iter().flat_map(|(_, report)| report.metrics.all_spans());
    let mut names: Vec<&str> = names.map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let timed = names.into_iter().filter(|name| name.ends_with("_ns"));
    let spans = timed.flat_map(|name| {
        runs(reports).filter_map(move |Run { governor, report }| {
            Some(Span { name, governor, spans: report.metrics.spans(name)? })
        })
    });
    Table::new("", &span_columns(), spans)
}

/// Returns a row for each state.
pub fn state_table(state_names: &[String], reports: &[(String, Report)]) -> Table {
    let states = runs(reports).flat_map(|run| {
        let names = state_names.iter().enumerate();
        names.map(move |(index, name)| State { run, index, name })
    });
    Table::new("", &state_columns(), states)
}
