//! What `idlewise info` says of each CPU of a log.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use idlewise_trace::log::LogMetadata;
use idlewise_trace::{CpuSummary, IdleGap, WakeReason};

use crate::columns::{Column, Priority, Unit};
use crate::{Row, Table, Value};

static CPU: Column = Column::number("cpu", "CPU", Unit::Count, "The CPU.").priority(Priority::Key);
static OBSERVED: Column = Column::text(
    "observed",
    "idle task",
    "Whether the CPU's idle task was recorded. If not, nothing is known of its idle time.",
);
static GAP_COUNT: Column = Column::number("gap_count", "gaps", Unit::Count, "Finished idle gaps.");
static IDLE: Column = Column::number(
    "idle_ratio",
    "idle",
    Unit::Ratio,
    "Time in gaps, as a share of the time from the CPU's first to its last event.",
);
static GAP_P10: Column =
    Column::number("gap_p10_ns", "gap p10", Unit::Nanoseconds, "10th percentile of the gaps.")
        .priority(Priority::Detail);
static GAP_P50: Column = Column::number("gap_p50_ns", "gap p50", Unit::Nanoseconds, "Median gap.");
static GAP_P90: Column =
    Column::number("gap_p90_ns", "gap p90", Unit::Nanoseconds, "90th percentile of the gaps.");
static GAP_P99: Column =
    Column::number("gap_p99_ns", "gap p99", Unit::Nanoseconds, "99th percentile of the gaps.");
static GAP_MAX: Column =
    Column::number("gap_max_ns", "gap max", Unit::Nanoseconds, "The longest gap.")
        .priority(Priority::Detail);
static SPAN: Column =
    Column::number("span_ns", "span", Unit::Nanoseconds, "From the CPU's first to its last event.")
        .priority(Priority::Detail);
static JOINED: Column = Column::number(
    "joined_wake_count",
    "joined ticks",
    Unit::Count,
    "Wake-ups by the tick alone, or by a limit of the idle state, that were joined into gaps.",
);
static NO_TASK: Column = Column::number(
    "no_task_ratio",
    "no task before",
    Unit::Ratio,
    "Share of gaps before which no task ran, so that a stopped tick stays stopped.",
);
static TIMER_KNOWN: Column = Column::number(
    "timer_known_ratio",
    "timer known",
    Unit::Ratio,
    "Share of gaps whose next timer is known.",
);
static TIMER_PROVEN: Column = Column::number(
    "timer_proven_ratio",
    "timer proven",
    Unit::Ratio,
    "Of the gaps that a timer ended, the share whose sleep length, rebuilt when the gap began, is \
     that timer's expiry.",
);
static WOKEN_BY: Column = Column::text(
    "woken_by",
    "woken by",
    "What ended the gaps, the commonest first, in percent of the gaps.",
);
static LOST: Column = Column::number(
    "lost_event_count",
    "lost events",
    Unit::Count,
    "Events of the CPU that the recorder lost.",
);
static BROKEN: Column = Column::number(
    "broken_gap_count",
    "broken gaps",
    Unit::Count,
    "Gaps given up because events were lost in them.",
)
.priority(Priority::Detail);

/// The columns of `idlewise info`.
pub static INFO: [&Column; 17] = [
    &CPU,
    &OBSERVED,
    &GAP_COUNT,
    &IDLE,
    &GAP_P10,
    &GAP_P50,
    &GAP_P90,
    &GAP_P99,
    &GAP_MAX,
    &SPAN,
    &JOINED,
    &NO_TASK,
    &TIMER_KNOWN,
    &TIMER_PROVEN,
    &LOST,
    &BROKEN,
    &WOKEN_BY,
];

/// The table of `idlewise info`, made while a log is read. Memory does not grow with the gaps, and
/// by one row for each CPU: what is counted gap by gap is one CPU's at a time, as a log's order is.
pub struct InfoTable<'a> {
    summaries: BTreeMap<u16, &'a CpuSummary>,
    knows_tasks: bool,
    rows: BTreeMap<u16, Row>,
    cpu: Option<u16>,
    counts: Counts,
}

impl<'a> InfoTable<'a> {
    /// A table of the CPUs that a log's metadata names, and of those that it has gaps of.
    pub fn new(metadata: &'a LogMetadata) -> Self {
        InfoTable {
            knows_tasks: !metadata.is_unknown("ran_task"),
            summaries: metadata.cpus.iter().map(|summary| (summary.cpu, summary)).collect(),
            rows: BTreeMap::new(),
            cpu: None,
            counts: Counts::new(),
        }
    }

    /// Adds the next gap in the order of a log: by CPU, then by time.
    pub fn add(&mut self, gap: &IdleGap) {
        if self.cpu != Some(gap.cpu) {
            self.end_cpu();
            self.cpu = Some(gap.cpu);
        }
        self.counts.add(gap);
    }

    /// A row for each CPU.
    pub fn finish(mut self) -> Table {
        self.end_cpu();
        for (&cpu, summary) in &self.summaries {
            self.rows.entry(cpu).or_insert_with(|| self.counts.row(summary, self.knows_tasks));
        }
        let mut table = Table::new("", &INFO);
        for row in self.rows.into_values() {
            table.push(row);
        }
        table
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

/// What is counted of one CPU's gaps.
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

    /// Forgets all gaps, and keeps the histogram's memory.
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
        let gap_count = self.gaps.len();
        let is_observed = metadata.observed || gap_count > 0;
        let share = |count: u64| (gap_count > 0).then(|| count as f64 / gap_count as f64);
        let quantile_ns = |q: f64| (gap_count > 0).then(|| self.gaps.value_at_quantile(q));
        let span_ns = metadata.last_at_ns.saturating_sub(metadata.first_at_ns);
        let span_ns = u64::try_from(span_ns).ok().filter(|&ns| ns > 0);
        let idle = span_ns.map(|ns| self.gap_sum_ns as f64 / ns as f64).filter(|_| is_observed);
        let timer_wake_count = self.reasons.get(&WakeReason::Timer);
        let timer_proven =
            timer_wake_count.map(|&count| self.timer_proven_count as f64 / count as f64);
        Row::new([
            Value::Count(u64::from(metadata.cpu)),
            if is_observed { "recorded" } else { "unobserved" }.into(),
            Some(gap_count).filter(|_| is_observed).into(),
            idle.into(),
            quantile_ns(0.1).into(),
            quantile_ns(0.5).into(),
            quantile_ns(0.9).into(),
            quantile_ns(0.99).into(),
            self.gap_max_ns.into(),
            span_ns.into(),
            Some(metadata.joined_wake_count).filter(|_| is_observed).into(),
            share(self.no_task_count).filter(|_| knows_tasks).into(),
            share(self.timer_known_count).into(),
            timer_proven.into(),
            metadata.lost_event_count.into(),
            metadata.broken_gap_count.into(),
            self.woken_by(gap_count).into(),
        ])
    }

    fn woken_by(&self, gap_count: u64) -> Option<String> {
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|&(reason, count)| (std::cmp::Reverse(count), reason));
        let words = reasons.iter().map(|&(reason, &count)| {
            format!("{reason} {:.1}", 100.0 * count as f64 / gap_count as f64)
        });
        (gap_count > 0).then(|| words.collect::<Vec<_>>().join(", "))
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
