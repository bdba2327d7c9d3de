//! The table of `idlewise info`: the CPUs of a log.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use idlewise_trace::log::LogMetadata;
use idlewise_trace::{CpuSummary, IdleGap, WakeReason};

use crate::table::Row;
use crate::{Column, Table, Value};

/// What is known about a CPU.
pub struct LogCpu<'a> {
    metadata: &'a CpuSummary,
    counts: &'a Counts,
    knows_tasks: bool,
}

impl LogCpu<'_> {
    fn gap_count(&self) -> u64 {
        self.counts.gaps.len()
    }

    fn is_observed(&self) -> bool {
        self.metadata.observed || self.gap_count() > 0
    }

    fn if_observed(&self, count: u64) -> Value {
        Some(count).filter(|_| self.is_observed()).into()
    }

    fn share(&self, count: u64) -> Option<f64> {
        (self.gap_count() > 0).then(|| count as f64 / self.gap_count() as f64)
    }

    fn quantile_ns(&self, q: f64) -> Option<u64> {
        (self.gap_count() > 0).then(|| self.counts.gaps.value_at_quantile(q))
    }

    fn span_ns(&self) -> Option<u64> {
        let span_ns = self.metadata.last_at_ns.saturating_sub(self.metadata.first_at_ns);
        u64::try_from(span_ns).ok().filter(|&ns| ns > 0)
    }

    fn idle_ratio(&self) -> Option<f64> {
        let ratio = self.counts.gap_sum_ns as f64 / self.span_ns()? as f64;
        // A CPU that went idle, and did so in no finished gap, may have been idle throughout.
        let is_known = self.gap_count() > 0 || self.metadata.idle_entry_count == 0;
        (self.is_observed() && is_known).then_some(ratio)
    }

    fn timer_proven_ratio(&self) -> Option<f64> {
        let timer_wake_count = *self.counts.reasons.get(&WakeReason::Timer)?;
        Some(self.counts.timer_proven_count as f64 / timer_wake_count as f64)
    }

    fn woken_by(&self) -> Option<String> {
        let mut reasons: Vec<_> = self.counts.reasons.iter().collect();
        reasons.sort_by_key(|&(reason, count)| (std::cmp::Reverse(count), reason));
        let words = reasons.iter().map(|&(reason, &count)| {
            format!("{reason} {:.1}", 100.0 * count as f64 / self.gap_count() as f64)
        });
        (self.gap_count() > 0).then(|| words.collect::<Vec<_>>().join(", "))
    }
}

type C<'a> = Column<LogCpu<'a>>;

/// Returns the columns of `idlewise info`.
pub fn columns<'a>() -> Vec<C<'a>> {
    vec![
        C::count("cpu", "CPU", |row| u64::from(row.metadata.cpu).into()).means("The CPU.").key(),
        C::text("observed", "idle task", |row| {
            if row.is_observed() { "recorded" } else { "unobserved" }.into()
        })
        .means("Whether the CPU's idle task was recorded; if not, its idle time is unknown."),
        C::count("gap_count", "gaps", |row| row.if_observed(row.gap_count()))
            .means("Finished idle gaps."),
        C::ratio("idle_ratio", "idle", |row| row.idle_ratio().into())
            .means("Time in gaps, as a share of the time from the CPU's first to its last event."),
        C::ns("gap_p10_ns", "gap p10", |row| row.quantile_ns(0.1).into())
            .means("10th percentile of the gaps.")
            .detail(),
        C::ns("gap_p50_ns", "gap p50", |row| row.quantile_ns(0.5).into()).means("Median gap."),
        C::ns("gap_p90_ns", "gap p90", |row| row.quantile_ns(0.9).into())
            .means("90th percentile of the gaps."),
        C::ns("gap_p99_ns", "gap p99", |row| row.quantile_ns(0.99).into())
            .means("99th percentile of the gaps."),
        C::ns("gap_max_ns", "gap max", |row| row.counts.gap_max_ns.into())
            .means("The longest gap.")
            .detail(),
        C::ns("span_ns", "span", |row| row.span_ns().into())
            .means("From the CPU's first to its last event.")
            .detail(),
        C::count("joined_wake_count", "joined ticks", |row| {
            row.if_observed(row.metadata.joined_wake_count)
        })
        .means(
            "Wake-ups by the tick alone, or by an idle state's own time limit, that were joined \
             into gaps.",
        ),
        C::ratio("no_task_ratio", "no task before", |row| {
            row.share(row.counts.no_task_count).filter(|_| row.knows_tasks).into()
        })
        .means("Share of gaps before which no task ran, so that a stopped tick stays stopped."),
        C::ratio("timer_known_ratio", "timer known", |row| {
            row.share(row.counts.timer_known_count).into()
        })
        .means("Share of gaps whose next timer is known."),
        C::ratio("timer_proven_ratio", "timer proven", |row| row.timer_proven_ratio().into())
            .means(
                "Of the gaps that a timer ended, the share whose reconstructed sleep length ends \
                 at that timer's expiry.",
            ),
        C::count("lost_event_count", "lost events", |row| row.metadata.lost_event_count.into())
            .means("Events of the CPU that the recorder lost."),
        C::count("broken_gap_count", "broken gaps", |row| row.metadata.broken_gap_count.into())
            .means("Gaps given up because events were lost in them.")
            .detail(),
        C::text("woken_by", "woken by", |row| row.woken_by().into())
            .means("What ended the gaps, most common first, in percent of the gaps."),
    ]
}

/// Makes the table of `idlewise info` while a log is read. Memory does not grow with the gaps, only
/// by one row for each CPU, because a log is sorted by CPU and one CPU is counted at a time.
pub struct InfoTable<'a> {
    summaries: BTreeMap<u16, &'a CpuSummary>,
    knows_tasks: bool,
    rows: BTreeMap<u16, Row>,
    cpu: Option<u16>,
    counts: Counts,
}

impl<'a> InfoTable<'a> {
    /// Makes a table of the CPUs that a log's metadata lists, and of those with gaps.
    pub fn new(metadata: &'a LogMetadata) -> Self {
        InfoTable {
            knows_tasks: !metadata.is_unknown("ran_task"),
            summaries: metadata.cpus.iter().map(|summary| (summary.cpu, summary)).collect(),
            rows: BTreeMap::new(),
            cpu: None,
            counts: Counts::new(),
        }
    }

    /// Adds the next gap in the log's order: by CPU, then by time.
    pub fn add(&mut self, gap: &IdleGap) {
        if self.cpu != Some(gap.cpu) {
            self.end_cpu();
            self.cpu = Some(gap.cpu);
        }
        self.counts.add(gap);
    }

    /// Returns the table, with a row for each CPU.
    pub fn finish(mut self) -> Table {
        self.end_cpu();
        for (&cpu, summary) in &self.summaries {
            self.rows.entry(cpu).or_insert_with(|| self.counts.row(summary, self.knows_tasks));
        }
        Table::of_rows("", &columns(), self.rows.into_values())
    }

    fn end_cpu(&mut self) {
        if let Some(cpu) = self.cpu.take() {
            let unnamed = CpuSummary { cpu, ..CpuSummary::default() };
            let summary = self.summaries.get(&cpu).copied().unwrap_or(&unnamed);
            self.rows.insert(cpu, self.counts.row(summary, self.knows_tasks));
            self.counts.clear();
        }
    }
}

/// The counts of one CPU's gaps.
struct Counts {
    gaps: Histogram<u64>,
    gap_sum_ns: u64,
    gap_max_ns: Option<u64>,
    no_task_count: u64,
    timer_known_count: u64,
    timer_proven_count: u64,
    reasons: BTreeMap<WakeReason, u64>,
}

impl Counts {
    fn new() -> Self {
        let mut gaps = Histogram::new(3).expect("three digits are in range");
        gaps.auto(true);
        Counts {
            gaps,
            gap_sum_ns: 0,
            gap_max_ns: None,
            no_task_count: 0,
            timer_known_count: 0,
            timer_proven_count: 0,
            reasons: BTreeMap::new(),
        }
    }

    /// Clears the counts, but keeps the histogram's memory.
    fn clear(&mut self) {
        let mut gaps = std::mem::replace(self, Counts::new()).gaps;
        gaps.reset();
        self.gaps = gaps;
    }

    fn add(&mut self, gap: &IdleGap) {
        self.gaps.record(gap.gap_ns).expect("the histogram grows");
        self.gap_sum_ns = self.gap_sum_ns.saturating_add(gap.gap_ns);
        self.gap_max_ns = self.gap_max_ns.max(Some(gap.gap_ns));
        self.no_task_count += u64::from(!gap.ran_task);
        self.timer_known_count += u64::from(gap.sleep_length_ns.is_some());
        self.timer_proven_count += u64::from(gap.ended_by_known_timer());
        *self.reasons.entry(gap.wake_reason).or_default() += 1;
    }

    fn row(&self, metadata: &CpuSummary, knows_tasks: bool) -> Row {
        Row::of(&columns(), &LogCpu { metadata, counts: self, knows_tasks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_gaps() {
        let gap = |gap_ns| IdleGap {
            cpu: 0,
            start_ns: 0,
            gap_ns,
            sleep_length_ns: None,
            next_tick_ns: None,
            tick_stopped: false,
            ran_task: true,
            wake_reason: WakeReason::Irq,
            latency_limit_ns: None,
            recorded_state: None,
            recorded_idle_ns: None,
        };
        let metadata = LogMetadata::default();
        let mut info = InfoTable::new(&metadata);
        for gap_ns in 1..=1_000 {
            info.add(&gap(gap_ns * 1_000));
        }
        let csv = info.finish().to_csv();
        let row: Vec<&str> = csv.lines().nth(1).unwrap().split(',').collect();
        let p50_ns: u64 = row[5].parse().unwrap();
        assert!((499_000..=501_000).contains(&p50_ns), "{csv}");
        assert_eq!(row[8], "1000000");
    }
}
