//! The event queue. Simultaneous events are ordered by class, then by the order in which they were
//! scheduled, so nothing depends on the heap's internals.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A scheduled event. If it is obsolete by the time it is due, it has an old `generation` and is
/// ignored. That is cheaper than searching the heap, if it is due soon. [`Queue::push_limit`] is for what is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// An event in the heap, whose greatest entry is the next one.
struct Entry {
    /// The moment, and below it the order among simultaneous events. No two entries have the same, and one comparison
    /// of whole numbers is what most of the heap's time goes into.
    due: u128,
    event: Event,
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.due.cmp(&self.due)
    }
}

impl PartialOrd for Entry {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Entry {}

/// When a CPU's limit is due, as in [`Entry`].
#[derive(Clone, Copy)]
struct Limit {
    due: u128,
    generation: u32,
    /// The first of this CPU's limits in the heap. It is the limit, or an obsolete one before it.
    first_in_heap: u128,
}

const NEVER: u128 = u128::MAX;

/// Pending events.
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
    limits: Vec<Limit>,
}

impl Queue {
    pub(crate) fn new(cpu_count: usize) -> Self {
        let none = Limit { due: NEVER, generation: 0, first_in_heap: NEVER };
        Queue { heap: BinaryHeap::new(), count: 0, limits: vec![none; cpu_count] }
    }

    /// Schedules an event.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        let due = self.due(at_ns, event);
        self.heap.push(Entry { due, event });
    }

    /// Schedules the limit of a CPU's stay. It takes the place of the one before. Stays are short and limits are long, so
    /// most limits are never reached, and with all of them the heap would be a hundred times as large.
    #[inline]
    pub(crate) fn push_limit(&mut self, at_ns: u64, cpu: u32, generation: u32) {
        let event = Event::IdleLimit { cpu, generation };
        let due = self.due(at_ns, event);
        let limit = &mut self.limits[cpu as usize];
        (limit.due, limit.generation) = (due, generation);
        if due < limit.first_in_heap {
            limit.first_in_heap = due;
            self.heap.push(Entry { due, event });
        }
    }

    fn due(&mut self, at_ns: u64, event: Event) -> u128 {
        let order = event.class() << CLASS_SHIFT | self.count;
        self.count += 1;
        u128::from(at_ns) << 64 | u128::from(order)
    }

    /// Removes the next event if it is before `end_ns`.
    #[inline]
    pub(crate) fn pop_before(&mut self, end_ns: u64) -> Option<(u64, Event)> {
        loop {
            let at_ns = (self.heap.peek()?.due >> 64) as u64;
            if at_ns >= end_ns {
                return None;
            }
            let Entry { due, event } = self.heap.pop()?;
            let Event::IdleLimit { cpu, .. } = event else { return Some((at_ns, event)) };
            let limit = &mut self.limits[cpu as usize];
            if due != limit.first_in_heap {
                continue;
            }
            if due == limit.due {
                limit.first_in_heap = NEVER;
                return Some((at_ns, event));
            }
            limit.first_in_heap = limit.due;
            let event = Event::IdleLimit { cpu, generation: limit.generation };
            self.heap.push(Entry { due: limit.due, event });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_moment_goes_by_class_then_by_order() {
        let mut queue = Queue::new(0);
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
    /// As if all events were kept in order, and a limit took the one of its CPU out that was there before.
    #[test]
    fn the_latest_limit_of_a_cpu_is_due_in_its_turn() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut queue, mut expected) = (Queue::new(3), Vec::<(u64, u64, u64, Event)>::new());
        let mut now_ns = 0;
        for count in 0..20_000 {
            let (at_ns, cpu) = (now_ns + rng.u64(..40), rng.u32(..3));
            let event = match rng.bool() {
                true => Event::IdleLimit { cpu, generation: count },
                false => Event::Done { cpu, generation: count },
            };
            if let Event::IdleLimit { generation, .. } = event {
                let is_replaced = |other: &(u64, u64, u64, Event)| matches!(other.3, Event::IdleLimit { cpu: of, .. } if of == cpu);
                expected.retain(|other| !is_replaced(other));
                queue.push_limit(at_ns, cpu, generation);
            } else {
                queue.push(at_ns, event);
            }
            expected.push((at_ns, event.class(), count.into(), event));
            expected.sort_by_key(|(at_ns, class, order, _)| (*at_ns, *class, *order));
            let end_ns = now_ns + rng.u64(..30);
            while let Some((at_ns, event)) = queue.pop_before(end_ns) {
                let (first_ns, _, _, first) = expected.remove(0);
                assert_eq!((at_ns, event), (first_ns, first));
                now_ns = at_ns;
            }
            assert!(expected.first().is_none_or(|first| first.0 >= end_ns));
            assert!(queue.heap.len() < 200, "obsolete limits pile up");
        }
    }
}
