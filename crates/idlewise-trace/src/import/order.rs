//! Puts events in order of time.
//!
//! perf copies the CPUs' buffers into its file one after the other, again and again, and marks the
//! end of each such round:
//!
//! ```text
//!   round 1           | round 2           | round 3
//!   cpu 0 ──► cpu 1 ─►| cpu 0 ──► cpu 1 ─►| cpu 0 ──► ...
//!   latest: 70        | latest: 95        |
//!                     at this mark all up to 70 is in order
//! ```
//!
//! Round 2's events of CPU 1 were recorded after round 1 left CPU 1, but perhaps before the latest
//! event of round 1. Everything in round 3 is later than that event. So at the end of a round, all
//! events up to the latest event of the previous round can be passed on. perf orders its own output
//! in the same way. The parts of a round are sorted runs, which a stable sort merges.
//!
//! If each CPU's events can be read separately, `merge.rs` merges them instead. In either case the
//! events finally pass through [`InOrder`], which counts those that are still out of order.

use super::{LateEvent, ReadSummary};
use crate::event::Event;

/// The most events held back before the first round ends. A file without rounds, whose writer has
/// sorted it roughly, is sorted within this many events.
const MAX_PENDING_BEFORE_ROUNDS: usize = 1 << 20;

/// The most events in a round: the buffers of a hundred CPUs, a megabyte and a half each. Beyond
/// that, saving memory matters more than the order of a recording that has already dropped events.
const MAX_PENDING_IN_ROUND: usize = 1 << 23;

/// Counts the events that go to the sink, and ensures that none is earlier than the one before it.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    pub(super) event_count: u64,
    pub(super) out_of_order_count: u64,
    first_late: Option<LateEvent>,
    first_at_ns: Option<i64>,
    last_at_ns: Option<i64>,
}

impl InOrder {
    /// Takes the next events. An event that is earlier than the one before gets that one's time: if
    /// it were left out, the CPU could seem idle when it is not. `convert` limits their number.
    #[inline]
    pub(super) fn admit(&mut self, events: &mut [Event]) {
        let Some(first) = events.first() else { return };
        let mut last_at_ns = self.last_at_ns.unwrap_or(first.at_ns);
        for event in &mut *events {
            if event.at_ns < last_at_ns {
                self.out_of_order_count += 1;
                let Event { at_ns, cpu, .. } = *event;
                self.first_late.get_or_insert(LateEvent { cpu, at_ns, after_ns: last_at_ns });
                event.at_ns = last_at_ns;
            }
            last_at_ns = event.at_ns;
        }
        self.first_at_ns = self.first_at_ns.or(events.first().map(|event| event.at_ns));
        self.last_at_ns = Some(last_at_ns);
        self.event_count += events.len() as u64;
    }

    /// A summary with the events and their order filled in, and nothing else.
    pub(super) fn summary(&self) -> ReadSummary {
        ReadSummary {
            event_count: self.event_count,
            out_of_order_count: self.out_of_order_count,
            first_late: self.first_late,
            first_at_ns: self.first_at_ns,
            last_at_ns: self.last_at_ns,
            ..ReadSummary::default()
        }
    }
}

/// Sorts events within the bounds given by the rounds.
#[derive(Default)]
pub(super) struct Orderer {
    pending: Vec<Event>,
    /// How many events at the beginning of `pending` are sorted.
    sorted_count: usize,
    /// The time of the latest event of all previous rounds.
    previous_round_latest_ns: Option<i64>,
    latest_ns: Option<i64>,
    pub(super) order: InOrder,
}

impl Orderer {
    /// Takes events of one round, in the order of the file.
    pub(super) fn push(&mut self, events: &[Event], sink: &mut dyn FnMut(&[Event])) {
        self.latest_ns = self.latest_ns.max(events.iter().map(|event| event.at_ns).max());
        self.pending.extend_from_slice(events);
        let limit = match self.previous_round_latest_ns {
            None => MAX_PENDING_BEFORE_ROUNDS,
            Some(_) => MAX_PENDING_IN_ROUND,
        };
        if self.pending.len() > limit {
            self.sort();
            self.emit(self.pending.len() / 2, sink);
        }
    }

    /// Ends a round, and passes on the events that no later record can precede.
    pub(super) fn end_round(&mut self, sink: &mut dyn FnMut(&[Event])) {
        if let Some(bound) = self.previous_round_latest_ns {
            self.sort();
            let ready_count = self.pending.partition_point(|event| event.at_ns <= bound);
            self.emit(ready_count, sink);
        }
        self.previous_round_latest_ns = self.latest_ns;
    }

    /// Passes on all that is left.
    pub(super) fn finish(&mut self, sink: &mut dyn FnMut(&[Event])) {
        self.sort();
        self.emit(self.pending.len(), sink);
    }

    /// The time of the latest event so far.
    pub(super) fn latest_ns(&self) -> Option<i64> {
        self.latest_ns
    }

    fn sort(&mut self) {
        if self.sorted_count < self.pending.len() {
            self.pending.sort_by_key(|event| event.at_ns);
            self.sorted_count = self.pending.len();
        }
    }

    /// Passes on the first `ready_count` of the sorted events.
    fn emit(&mut self, ready_count: usize, sink: &mut dyn FnMut(&[Event])) {
        let Some(ready) = self.pending.get_mut(..ready_count) else { return };
        if ready.is_empty() {
            return;
        }
        self.order.admit(ready);
        sink(ready);
        self.pending.drain(..ready_count);
        self.sorted_count -= ready_count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    fn event(at_ns: i64) -> Event {
        Event { at_ns, cpu: 0, kind: EventKind::IdleExit }
    }

    #[test]
    fn a_round_waits_for_the_next_ones_end() {
        let seen = std::cell::RefCell::new(Vec::new());
        let sink = &mut |events: &[Event]| {
            seen.borrow_mut().extend(events.iter().map(|event| event.at_ns));
        };
        let mut orderer = Orderer::default();
        orderer.push(&[event(50), event(70), event(10)], sink);
        orderer.end_round(sink);
        assert!(seen.borrow().is_empty());
        orderer.push(&[event(95), event(60)], sink);
        orderer.end_round(sink);
        assert_eq!(*seen.borrow(), [10, 50, 60, 70]);
        orderer.finish(sink);
        assert_eq!(*seen.borrow(), [10, 50, 60, 70, 95]);
        assert_eq!((orderer.order.event_count, orderer.order.out_of_order_count), (5, 0));
    }

    #[test]
    fn a_file_without_rounds_is_sorted_within_a_bound() {
        let pending_count = (MAX_PENDING_BEFORE_ROUNDS / 2) as i64;
        let mut last_at_ns = 0;
        let mut event_count = 0;
        let sink = &mut |events: &[Event]| {
            for event in events {
                assert!(event.at_ns >= last_at_ns);
                last_at_ns = event.at_ns;
                event_count += 1;
            }
        };
        let mut orderer = Orderer::default();
        // Each thousand is in descending order.
        for start in (0..3 * pending_count).step_by(1_000) {
            let events: Vec<Event> = (start..start + 1_000).rev().map(event).collect();
            orderer.push(&events, sink);
            assert!(orderer.pending.len() <= MAX_PENDING_BEFORE_ROUNDS);
        }
        // An event that is older than all that were passed on.
        orderer.push(&[event(1)], sink);
        orderer.finish(sink);
        assert_eq!(orderer.order.out_of_order_count, 1);
        assert_eq!(event_count, orderer.order.event_count);
        assert_eq!(
            orderer.order.event_count,
            (3 * pending_count as u64).next_multiple_of(1_000) + 1
        );
    }
}
