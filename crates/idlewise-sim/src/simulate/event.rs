//! The event queue. Simultaneous events are ordered by class, then by the order in which they were
//! scheduled, so nothing depends on the heap's internals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A scheduled event. If it is obsolete by the time it is due, it has an old `generation` and is
/// ignored. That is cheaper than searching the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A source outside the CPUs fires.
    Source { source: u32 },
    /// A device's interrupt arrives.
    Interrupt { cpu: u32, slot: u32 },
    /// An IPI arrives.
    Ipi { cpu: u32 },
    /// The cache line that a CPU monitors is written.
    Store { cpu: u32 },
    /// A high-resolution timer reaches its hard expiry.
    Timer { cpu: u32 },
    /// A recorded wake event.
    Recorded { cpu: u32 },
    /// The tick.
    Tick { cpu: u32, generation: u32 },
    /// The polling limit or the promotion timer.
    IdleLimit { cpu: u32, generation: u32 },
    /// A CPU has left its idle state.
    Awake { cpu: u32, generation: u32 },
    /// A CPU has finished a piece of work.
    Done { cpu: u32, generation: u32 },
    /// Packages adjust their frequency to the power limit.
    Budget,
}

impl Event {
    /// Among simultaneous events, those from outside come before the tick, the tick before the
    /// CPU's own limits, and internal progress comes last, as in a replay.
    const fn class(self) -> u64 {
        match self {
            Event::Tick { .. } => 1,
            Event::IdleLimit { .. } => 2,
            Event::Awake { .. } | Event::Done { .. } | Event::Budget => 3,
            _ => 0,
        }
    }
}

/// The class is in the two bits above a counter.
const CLASS_SHIFT: u32 = 62;

/// Pending events.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    count: u64,
}

impl Queue {
    /// Schedules an event.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        let order = event.class() << CLASS_SHIFT | self.count;
        self.count += 1;
        self.heap.push(Reverse((at_ns, order, event)));
    }

    /// Removes the next event if it is before `end_ns`.
    #[inline]
    pub(crate) fn pop_before(&mut self, end_ns: u64) -> Option<(u64, Event)> {
        let Reverse((at_ns, ..)) = self.heap.peek()?;
        if *at_ns >= end_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ns, _, event))| (at_ns, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_moment_goes_by_class_then_by_order() {
        let mut queue = Queue::default();
        queue.push(5, Event::Done { cpu: 0, generation: 0 });
        queue.push(5, Event::Tick { cpu: 0, generation: 0 });
        queue.push(5, Event::Timer { cpu: 1 });
        queue.push(5, Event::Timer { cpu: 0 });
        queue.push(4, Event::Budget);
        let order: Vec<Event> =
            std::iter::from_fn(|| queue.pop_before(6)).map(|(_, event)| event).collect();
        assert_eq!(
            order,
            [
                Event::Budget,
                Event::Timer { cpu: 1 },
                Event::Timer { cpu: 0 },
                Event::Tick { cpu: 0, generation: 0 },
                Event::Done { cpu: 0, generation: 0 },
            ]
        );
        assert!(queue.pop_before(u64::MAX).is_none());
    }
}
