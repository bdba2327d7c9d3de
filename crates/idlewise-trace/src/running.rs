//! What ran on which CPU, and how fast: tables beside a recording's gaps.
//!
//! A run lasts from the switch to a task until the switch away from it. Recordings made for gaps alone have only the
//! switches from the idle task. They say which task ran first after each gap, but not for how long.

use std::collections::BTreeMap;

use crate::event::{Event, EventKind, Leaving, TaskName};

/// A task on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The CPU.
    pub cpu: u16,
    /// When the CPU switched to the task, on the trace's clock.
    pub start_ns: i64,
    /// How long it ran, interrupts included; `None` if the recording does not say when it left.
    pub run_ns: Option<u64>,
    /// The task's number (its pid).
    pub task: u32,
    /// Its name.
    pub name: TaskName,
    /// Why it left; `None` like `run_ns`.
    pub leaves: Option<Leaving>,
}

/// A CPU's frequency was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrequencyChange {
    /// The CPU.
    pub cpu: u16,
    /// When, on the trace's clock.
    pub at_ns: i64,
    /// The frequency.
    pub khz: u32,
}

/// Turns a time-ordered stream of events, read for [`crate::tracepoint::Purpose::Running`], into runs and frequencies.
/// Both are in order of time for each CPU.
#[derive(Debug, Default)]
pub struct RunningBuilder {
    /// The task that each CPU runs now. When it will leave is not known yet.
    open: BTreeMap<u16, Run>,
    runs: Vec<Run>,
    frequencies: Vec<FrequencyChange>,
}

impl RunningBuilder {
    /// Takes the next events.
    pub fn push(&mut self, events: &[Event]) {
        for &Event { at_ns, cpu, kind } in events {
            match kind {
                EventKind::Switch { prev, next, leaves, next_name } => {
                    if let Some(mut run) = self.open.remove(&cpu) {
                        // Where somebody else leaves, a switch in between was not recorded.
                        if prev.is_none_or(|prev| prev.number() == run.task) {
                            run.run_ns = u64::try_from(at_ns.saturating_sub(run.start_ns)).ok();
                            run.leaves = Some(leaves);
                        }
                        self.runs.push(run);
                    }
                    if next != 0 {
                        let (run_ns, leaves) = (None, None);
                        let start_ns = at_ns;
                        let run =
                            Run { cpu, start_ns, run_ns, task: next, name: next_name, leaves };
                        self.open.insert(cpu, run);
                    }
                }
                EventKind::Frequency { khz } => {
                    self.frequencies.push(FrequencyChange { cpu, at_ns, khz });
                }
                EventKind::Lost { event_count } if event_count > 0 => {
                    self.runs.extend(self.open.remove(&cpu));
                }
                _ => {}
            }
        }
    }

    /// How many rows there are so far.
    pub fn row_count(&self) -> usize {
        self.runs.len() + self.frequencies.len()
    }

    /// Returns the runs and the frequencies. Runs that the recording's end cut have no length.
    pub fn finish(mut self) -> (Vec<Run>, Vec<FrequencyChange>) {
        self.runs.extend(std::mem::take(&mut self.open).into_values());
        self.runs.sort_by_key(|run| (run.cpu, run.start_ns));
        self.frequencies.sort_by_key(|change| (change.cpu, change.at_ns));
        (self.runs, self.frequencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NonZeroTask;

    fn switch(at_ns: i64, prev: Option<u32>, next: u32) -> Event {
        let kind = EventKind::Switch {
            prev: prev.and_then(NonZeroTask::new),
            next,
            leaves: Leaving::Waits,
            next_name: TaskName::new(b"worker"),
        };
        Event { at_ns, cpu: 3, kind }
    }

    fn lengths(events: &[Event]) -> Vec<(u32, Option<u64>)> {
        let mut builder = RunningBuilder::default();
        builder.push(events);
        builder.finish().0.iter().map(|run| (run.task, run.run_ns)).collect()
    }

    #[test]
    fn a_run_ends_where_its_task_leaves() {
        let events = [switch(10, Some(0), 7), switch(15, Some(7), 8), switch(18, Some(8), 0)];
        assert_eq!(lengths(&events), [(7, Some(5)), (8, Some(3))]);
    }

    #[test]
    fn switches_from_idle_alone_tell_no_length() {
        let events = [switch(10, Some(0), 7), switch(30, Some(0), 8)];
        assert_eq!(lengths(&events), [(7, None), (8, None)]);
    }

    #[test]
    fn a_text_that_names_only_the_next_task_tells_lengths() {
        assert_eq!(lengths(&[switch(10, None, 7), switch(15, None, 0)]), [(7, Some(5))]);
    }

    #[test]
    fn lost_events_end_what_is_known() {
        let lost = Event { at_ns: 12, cpu: 3, kind: EventKind::Lost { event_count: 4 } };
        assert_eq!(lengths(&[switch(10, Some(0), 7), lost, switch(15, Some(7), 0)]), [(7, None)]);
    }
}
