//! Checks that an idle log must pass before its numbers are trusted. Logs are shared, and other
//! versions and programs write them. A replay of a wrong log looks like any other.
//!
//! Files that cannot be read at all (not Parquet, a newer version, damaged pages, values that a
//! column cannot hold) are rejected earlier, while reading. The checks here find what can be wrong
//! with a readable log. Memory does not grow with the gaps.

use std::collections::BTreeMap;

use idlewise_core::{STATE_COUNT_MAX, tick_period_ns, words};

use super::{IdleLog, LogError, LogMetadata};
use crate::{CpuSummary, IdleGap, WakeReason};

/// Of the gaps that a timer ended, this share may have been ended by a timer that an interrupt or
/// another CPU armed within the gap. A larger share is reason to doubt the rebuilt timers.
const TIMER_ARMED_LATER_RATIO: f64 = 0.2;
/// This share of gaps may outlast their next timer because another CPU took the timer over, or
/// because an interrupt came just before it and was recorded after it.
const TIMER_OUTLASTED_RATIO: f64 = 0.02;
/// An interrupt that coincides with a timer may be recorded this much later.
const TIMER_OUTLASTED_NS: u64 = 20_000;

/// A check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// All columns are present.
    Columns,
    /// Rows are sorted by CPU, then by time.
    Order,
    /// A gap ends before the next one on its CPU begins.
    Overlap,
    /// Gaps are between the first and the last event of their CPU.
    Span,
    /// No time is negative; the next tick is at most one period away.
    Range,
    /// The recorded machine can be read, and has the recorded states.
    States,
    /// Next ticks are on one grid for each CPU, with period 1/HZ and the phase in the metadata.
    TickGrid,
    /// A timer that ended a gap was known when the gap began.
    TimerKnown,
    /// No gap outlasts its next timer.
    TimerOutlasted,
    /// Columns that the metadata calls empty are empty.
    UnknownColumns,
    /// Stays are joined into a gap only if the recorded events can show that no event ended them.
    Joined,
    /// The metadata and the rows agree on the number of gaps of each CPU.
    Counts,
    /// No events were lost.
    Lost,
    /// The importer had no doubts.
    Doubts,
}

/// Every check, in the order of [`Check`], with its name in results and its rule.
const RULES: [(Check, &str, &str); 14] = [
    (Check::Columns, "columns", "all columns are there"),
    (Check::Order, "order", "rows go by CPU, then by time"),
    (Check::Overlap, "overlap", "a gap ends before the CPU's next one"),
    (Check::Span, "span", "gaps lie between the CPU's first and last event"),
    (Check::Range, "range", "no time is negative, no tick further than 1/HZ"),
    (Check::States, "states", "the recorded machine has the recorded states"),
    (Check::TickGrid, "tick grid", "each CPU's next ticks lie on one grid of 1/HZ"),
    (Check::TimerKnown, "timer known", "a timer that ended a gap was known at its start"),
    (Check::TimerOutlasted, "timer outlasted", "no gap outlasts its next timer"),
    (Check::UnknownColumns, "unknown columns", "columns said to hold nothing do"),
    (Check::Joined, "joined", "stays are joined only where tasks and interrupts are known"),
    (Check::Counts, "counts", "metadata counts the gaps that there are"),
    (Check::Lost, "lost events", "the recorder lost no events"),
    (Check::Doubts, "doubts", "the importer had no doubts"),
];

impl Check {
    /// Returns the check's name in results.
    pub const fn name(self) -> &'static str {
        RULES[self as usize].1
    }

    /// Returns the rule as a sentence.
    pub const fn rule(self) -> &'static str {
        RULES[self as usize].2
    }

    /// Whether a single violation contradicts the log. Otherwise it is a reason for doubt.
    const fn is_fatal(self) -> bool {
        !matches!(
            self,
            Check::Columns
                | Check::TimerKnown
                | Check::TimerOutlasted
                | Check::Lost
                | Check::Doubts
        )
    }

    /// The share of violations that is normal.
    const fn allowed_ratio(self) -> f64 {
        match self {
            Check::TimerKnown => TIMER_ARMED_LATER_RATIO,
            Check::TimerOutlasted => TIMER_OUTLASTED_RATIO,
            _ => 0.0,
        }
    }
}

words! {
    name;
    /// The result of a check.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum CheckResult {
        /// The log has nothing that could be checked.
        Unchecked = "unchecked",
        /// The rule holds.
        Ok = "ok",
        /// There is reason to be careful.
        Doubt = "doubt",
        /// The log contradicts itself.
        Wrong = "wrong",
    }
}

/// Where a violation was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapPlace {
    /// The CPU, if it concerns one.
    pub cpu: Option<u16>,
    /// The row in the file, from 0, if it concerns one.
    pub row: Option<u64>,
}

/// What one check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// How many rows, CPUs or columns were checked.
    pub checked_count: u64,
    /// How many of them violate the rule, or how many lost events or doubts there are.
    pub found_count: u64,
    /// The first of them.
    pub first: Option<GapPlace>,
}

impl Finding {
    /// Returns what the finding means.
    pub fn result(&self) -> CheckResult {
        let allowed_count = self.checked_count as f64 * self.check.allowed_ratio();
        match self.found_count {
            _ if self.checked_count == 0 => CheckResult::Unchecked,
            found_count if found_count as f64 <= allowed_count => CheckResult::Ok,
            _ if self.check.is_fatal() => CheckResult::Wrong,
            _ => CheckResult::Doubt,
        }
    }

    fn see(&mut self, holds: bool, place: GapPlace) {
        self.checked_count += 1;
        if !holds {
            self.found_count += 1;
            self.first.get_or_insert(place);
        }
    }
}

/// Checks a log row by row.
///
/// # Errors
/// Fails if the log cannot be read to its end.
pub fn validate(log: &IdleLog, progress: &dyn Fn(u64)) -> Result<Vec<Finding>, LogError> {
    let mut validator = Validator::new(&log.metadata);
    let missing = log.missing_columns();
    validator.finding(Check::Columns).checked_count = 1;
    validator.finding(Check::Columns).found_count = missing.len() as u64;
    log.each_group_unordered(&mut |group, gaps| {
        for (row, gap) in (group.first_row..).zip(gaps) {
            validator.gap(row, gap);
        }
        progress(group.rows().end);
    })?;
    Ok(validator.finish())
}

struct Validator<'a> {
    metadata: &'a LogMetadata,
    state_count: usize,
    period_ns: Option<u32>,
    knows_sleep_length: bool,
    /// Finds values in columns that the metadata calls empty.
    is_filled: Vec<IsFilled>,
    findings: [Finding; RULES.len()],
    cpus: BTreeMap<u16, Cpu<'a>>,
    previous: Option<(u16, i64)>,
}

type IsFilled = fn(&IdleGap) -> bool;

/// The columns that a recording may lack, and whether they hold something.
const FILLED: [(&str, IsFilled); 7] = [
    ("sleep_length_ns", |gap| gap.sleep_length_ns.is_some()),
    ("next_tick_ns", |gap| gap.next_tick_ns.is_some()),
    ("tick_stopped", |gap| gap.tick_stopped),
    ("ran_task", |gap| !gap.ran_task),
    ("wake_reason", |gap| gap.wake_reason != WakeReason::Unknown),
    ("latency_limit_ns", |gap| gap.latency_limit_ns.is_some()),
    ("recorded_state", |gap| gap.recorded_state.is_some()),
];

#[derive(Default)]
struct Cpu<'a> {
    summary: Option<&'a CpuSummary>,
    row_count: u64,
    first_row: Option<u64>,
    last_end_ns: Option<i64>,
    phase_ns: Option<i64>,
}

impl<'a> Validator<'a> {
    fn new(metadata: &'a LogMetadata) -> Self {
        let unknown = FILLED.into_iter().filter(|(name, _)| metadata.is_unknown(name));
        let finding = |(check, ..): (Check, &str, &str)| Finding {
            check,
            checked_count: 0,
            found_count: 0,
            first: None,
        };
        let cpu = |summary: &'a CpuSummary| {
            let cpu =
                Cpu { summary: Some(summary), phase_ns: summary.tick_phase_ns, ..Cpu::default() };
            (summary.cpu, cpu)
        };
        Validator {
            metadata,
            state_count: metadata.machine.as_ref().map_or(STATE_COUNT_MAX, |m| m.states.len()),
            // An HZ of 0 then shows as a tick that is never on the grid.
            period_ns: metadata.hz.map(|hz| tick_period_ns(hz.max(1))),
            knows_sleep_length: !metadata.is_unknown("sleep_length_ns"),
            is_filled: unknown.map(|(_, is_filled)| is_filled).collect(),
            findings: RULES.map(finding),
            cpus: metadata.cpus.iter().map(cpu).collect(),
            previous: None,
        }
    }

    fn finding(&mut self, check: Check) -> &mut Finding {
        &mut self.findings[check as usize]
    }

    fn gap(&mut self, row: u64, gap: &IdleGap) {
        let place = GapPlace { cpu: Some(gap.cpu), row: Some(row) };
        let is_in_order = self.previous.is_none_or(|previous| previous <= (gap.cpu, gap.start_ns));
        self.previous = Some((gap.cpu, gap.start_ns));
        self.finding(Check::Order).see(is_in_order, place);

        let end_ns = gap.start_ns.saturating_add_unsigned(gap.gap_ns);
        let cpu = self.cpus.entry(gap.cpu).or_default();
        cpu.row_count += 1;
        cpu.first_row.get_or_insert(row);
        let is_apart = cpu.last_end_ns.is_none_or(|last_end_ns| last_end_ns <= gap.start_ns);
        cpu.last_end_ns = Some(end_ns);
        let is_in_span = cpu
            .summary
            .map(|summary| gap.start_ns >= summary.first_at_ns && end_ns <= summary.last_at_ns);
        let is_on_grid = match (self.period_ns, gap.next_tick_ns) {
            (Some(period_ns), Some(next_tick_ns)) => {
                let period_ns = i64::from(period_ns);
                let into_ns = gap.start_ns.rem_euclid(period_ns) + i64::from(next_tick_ns);
                let phase_ns = into_ns.rem_euclid(period_ns);
                Some(*cpu.phase_ns.get_or_insert(phase_ns) == phase_ns)
            }
            _ => None,
        };
        self.finding(Check::Overlap).see(is_apart, place);
        if let Some(is_in_span) = is_in_span {
            self.finding(Check::Span).see(is_in_span, place);
        }
        if let Some(is_on_grid) = is_on_grid {
            self.finding(Check::TickGrid).see(is_on_grid, place);
        }
        self.ranges(gap, place);
        self.timers(gap, place);
    }

    fn ranges(&mut self, gap: &IdleGap, place: GapPlace) {
        let period_ns = self.period_ns.unwrap_or(u32::MAX);
        let is_in_range =
            gap.impossible_column().is_none() && gap.next_tick_ns.is_none_or(|ns| ns <= period_ns);
        self.finding(Check::Range).see(is_in_range, place);

        if let Some(state) = gap.recorded_state {
            let is_known = usize::from(state) < self.state_count;
            self.finding(Check::States).see(is_known, place);
        }

        let is_filled = self.is_filled.iter().any(|is_filled| is_filled(gap));
        if !self.metadata.unknown_columns.is_empty() {
            self.finding(Check::UnknownColumns).see(!is_filled, place);
        }
    }

    fn timers(&mut self, gap: &IdleGap, place: GapPlace) {
        if !self.knows_sleep_length {
            return;
        }
        if gap.wake_reason == WakeReason::Timer {
            let is_known = gap.ended_by_known_timer();
            self.finding(Check::TimerKnown).see(is_known, place);
        }
        let Some(sleep_length_ns) = gap.sleep_length_ns else { return };
        let is_outlasted = gap.gap_ns > sleep_length_ns.saturating_add(TIMER_OUTLASTED_NS);
        self.finding(Check::TimerOutlasted).see(!is_outlasted, place);
    }

    fn finish(mut self) -> Vec<Finding> {
        let metadata = self.metadata;
        let mut summary_counts: BTreeMap<u16, u64> = BTreeMap::new();
        for summary in &metadata.cpus {
            *summary_counts.entry(summary.cpu).or_default() += 1;
        }
        for (id, cpu) in std::mem::take(&mut self.cpus) {
            let is_listed_once = summary_counts.get(&id) == Some(&1);
            let is_as_counted = cpu.summary.is_some_and(|summary| {
                summary.gap_count == cpu.row_count && (summary.observed || cpu.row_count == 0)
            });
            let place = GapPlace { cpu: Some(id), row: cpu.first_row };
            self.finding(Check::Counts).see(is_listed_once && is_as_counted, place);
            if let Some(summary) = cpu.summary {
                let tells_ends =
                    !metadata.is_unknown("ran_task") && !metadata.is_unknown("wake_reason");
                self.finding(Check::Joined)
                    .see(tells_ends || summary.joined_wake_count == 0, place);
            }
        }
        let lost = self.finding(Check::Lost);
        lost.checked_count = metadata.source.event_count.max(1);
        for summary in metadata.cpus.iter().filter(|summary| summary.lost_event_count > 0) {
            lost.found_count = lost.found_count.saturating_add(summary.lost_event_count);
            lost.first.get_or_insert(GapPlace { cpu: Some(summary.cpu), row: None });
        }
        let doubts = self.finding(Check::Doubts);
        doubts.checked_count = 1;
        doubts.found_count = metadata.doubts.len() as u64;
        self.findings.to_vec()
    }
}
