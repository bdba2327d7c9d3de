//! Which timers are armed on which CPU, rebuilt from start, cancel and expire events.
//!
//! A binary heap per CPU holds expiries, and a map holds what is true now: an entry of the heap
//! that the map doesn't confirm is stale and is dropped when it comes to the top. Re-arming, the
//! commonest operation by far, is then one push.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

/// `TIMER_DEFERRABLE` in `include/linux/timer.h`: the kernel does not wake an idle CPU for these.
const FLAG_DEFERRABLE: u32 = 0x0008_0000;
/// `TIMER_CPUMASK`: the CPU whose wheel holds the timer.
const FLAG_CPU_MASK: u32 = 0x0003_ffff;
/// Heaps smaller than this are never compacted.
const COMPACT_MIN: usize = 1_024;
/// A timer overdue by this much is gone. A CPU that goes idle has just had its interrupts on, so it
/// misses an expiry by microseconds at most.
const OVERDUE_MAX_NS: i64 = 20_000;
/// Beyond this many distinct timers we stop telling old ones from new ones.
const SEEN_MAX: usize = 1 << 20;

/// A timer's identity: the address of the kernel's object, and which kind of object it is. Memory
/// is reused, so the same address may be both within one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TimerId {
    Hrtimer(u64),
    Wheel(u64),
}

#[derive(Clone, Copy)]
struct Armed {
    cpu: u16,
    /// `None` for a timer that doesn't wake its CPU: a deferrable one, or on a clock that we can't
    /// place.
    wakes_at_ns: Option<i64>,
}

#[derive(Clone, Copy)]
struct Cancelled {
    cpu: u16,
    id: TimerId,
    armed: Option<Armed>,
    /// The cancellation was the timer's first appearance.
    is_new: bool,
}

/// What is known of a timer when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// We saw it armed, for this time.
    At { expires_at_ns: i64 },
    /// We saw it armed, and it wakes no CPU: it ran because something else did.
    WithAnother,
    /// Its first appearance: it was armed before the trace began.
    ArmedBeforeTrace,
    /// Seen before, but not armed: its start is missing from the trace.
    Unknown,
}

#[derive(Default)]
pub(crate) struct Timers {
    armed: HashMap<TimerId, Armed, BuildHasherDefault<FxHasher>>,
    queues: Vec<BinaryHeap<Reverse<(i64, TimerId)>>>,
    armed_counts: Vec<usize>,
    seen: HashSet<TimerId, BuildHasherDefault<FxHasher>>,
    /// Timers that are known to wake nobody before the trace says so.
    deferrable: HashSet<TimerId, BuildHasherDefault<FxHasher>>,
    /// The last cancellation and its CPU. The kernel takes a timer off its queue before it runs
    /// it, and many versions trace that as a cancellation of its own.
    cancelled: Option<Cancelled>,
    /// Timers that expired on another CPU than the one they were armed on.
    pub(crate) migrated_count: u64,
    /// Timers that were due and neither expired nor were cancelled in the trace.
    pub(crate) vanished_count: u64,
}

/// The CPU that a timer-wheel timer is queued on, and whether the kernel wakes that CPU for it.
pub(crate) fn wheel_target(flags: u32) -> (u16, bool) {
    let cpu = (flags & FLAG_CPU_MASK) as u16;
    (cpu, flags & FLAG_DEFERRABLE == 0)
}

impl Timers {
    /// Arms a timer on `cpu`, which it wakes at `wakes_at_ns`, if it does.
    pub(crate) fn start(&mut self, id: TimerId, cpu: u16, wakes_at_ns: Option<i64>) {
        self.note(id);
        self.disarm(id);
        self.armed.insert(id, Armed { cpu, wakes_at_ns });
        let Some(at_ns) = wakes_at_ns else { return };
        let index = usize::from(cpu);
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, BinaryHeap::new);
            self.armed_counts.resize(index + 1, 0);
        }
        self.armed_counts[index] += 1;
        self.queues[index].push(Reverse((at_ns, id)));
        self.compact(index);
    }

    /// Tells in advance that a timer is deferrable: one that was armed before the trace shows it
    /// only when it is armed again, after it has run.
    pub(crate) fn know_deferrable(&mut self, id: TimerId) {
        self.deferrable.insert(id);
    }

    pub(crate) fn cancel(&mut self, id: TimerId, cpu: u16) {
        let is_new = self.note(id);
        let armed = self.disarm(id);
        self.cancelled = Some(Cancelled { cpu, id, armed, is_new });
    }

    pub(crate) fn expire(&mut self, id: TimerId, cpu: u16) -> Expired {
        let mut is_new = self.note(id);
        let mut armed = self.disarm(id);
        if let Some(cancelled) = self.cancelled.take_if(|c| (c.cpu, c.id) == (cpu, id)) {
            is_new |= cancelled.is_new;
            armed = armed.or(cancelled.armed);
        }
        match armed {
            Some(Armed { wakes_at_ns: None, .. }) => Expired::WithAnother,
            Some(Armed { cpu: armed_on, wakes_at_ns: Some(expires_at_ns) }) => {
                self.migrated_count += u64::from(armed_on != cpu);
                Expired::At { expires_at_ns }
            }
            None if is_new && self.deferrable.contains(&id) => Expired::WithAnother,
            None if is_new => Expired::ArmedBeforeTrace,
            None => Expired::Unknown,
        }
    }

    /// The earliest expiry on `cpu` that is still to come at `now_ns`. One that is overdue by more
    /// than the CPU could have missed was taken care of elsewhere, by a CPU that wasn't recorded.
    pub(crate) fn next_at_ns(&mut self, cpu: u16, now_ns: i64) -> Option<i64> {
        loop {
            let &Reverse((at_ns, id)) = self.queues.get_mut(usize::from(cpu))?.peek()?;
            let is_current =
                self.armed.get(&id).is_some_and(|a| a.cpu == cpu && a.wakes_at_ns == Some(at_ns));
            if is_current && at_ns >= now_ns.saturating_sub(OVERDUE_MAX_NS) {
                return Some(at_ns);
            }
            if is_current {
                self.vanished_count += 1;
                self.disarm(id);
            }
            self.queues[usize::from(cpu)].pop();
        }
    }

    fn disarm(&mut self, id: TimerId) -> Option<Armed> {
        let armed = self.armed.remove(&id)?;
        if armed.wakes_at_ns.is_some() {
            self.armed_counts[usize::from(armed.cpu)] -= 1;
        }
        Some(armed)
    }

    /// Forgets the timers of a CPU whose events were lost: what we know of them may be wrong.
    pub(crate) fn forget_cpu(&mut self, cpu: u16) {
        self.armed.retain(|_, armed| armed.cpu != cpu);
        if let Some(queue) = self.queues.get_mut(usize::from(cpu)) {
            queue.clear();
            self.armed_counts[usize::from(cpu)] = 0;
        }
    }

    /// Whether this is the first time the trace names the timer.
    fn note(&mut self, id: TimerId) -> bool {
        self.seen.len() < SEEN_MAX && self.seen.insert(id)
    }

    /// Keeps a heap within twice the timers that are really armed.
    fn compact(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        if queue.len() < COMPACT_MIN || queue.len() < 2 * self.armed_counts[index] {
            return;
        }
        let cpu = index as u16;
        let mut entries = std::mem::take(queue).into_vec();
        entries.retain(|&Reverse((at_ns, id))| {
            self.armed.get(&id).is_some_and(|a| a.cpu == cpu && a.wakes_at_ns == Some(at_ns))
        });
        // A timer armed twice for the same time stands in the heap twice.
        entries.sort_unstable();
        entries.dedup();
        *queue = entries.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TimerId = TimerId::Hrtimer(0x10);
    const B: TimerId = TimerId::Wheel(0x10);

    #[test]
    fn gives_the_earliest_armed_timer() {
        let mut timers = Timers::default();
        timers.start(A, 0, Some(500));
        timers.start(B, 0, Some(300));
        assert_eq!(timers.next_at_ns(0, 0), Some(300));
        timers.cancel(B, 0);
        assert_eq!(timers.next_at_ns(0, 0), Some(500));
        timers.start(A, 0, Some(900));
        assert_eq!(timers.next_at_ns(0, 0), Some(900));
        assert_eq!(timers.expire(A, 0), Expired::At { expires_at_ns: 900 });
        assert_eq!(timers.next_at_ns(0, 0), None);
    }

    #[test]
    fn tells_old_timers_from_unknown_ones() {
        let mut timers = Timers::default();
        assert_eq!(timers.expire(A, 0), Expired::ArmedBeforeTrace);
        assert_eq!(timers.expire(A, 0), Expired::Unknown);
    }

    #[test]
    fn moves_a_timer_that_is_armed_on_another_cpu() {
        let mut timers = Timers::default();
        timers.start(A, 0, Some(500));
        timers.start(A, 3, Some(600));
        assert_eq!((timers.next_at_ns(0, 0), timers.next_at_ns(3, 0)), (None, Some(600)));
        timers.expire(A, 1);
        assert_eq!(timers.migrated_count, 1);
    }

    #[test]
    fn stays_small_when_one_timer_is_armed_again_and_again() {
        let mut timers = Timers::default();
        for i in 0..100_000 {
            timers.start(A, 0, Some(1_000_000 + i));
        }
        assert!(timers.queues[0].len() <= COMPACT_MIN);
        assert_eq!(timers.next_at_ns(0, 0), Some(1_099_999));
    }

    #[test]
    fn takes_a_cancellation_just_before_the_expiry_as_part_of_it() {
        let mut timers = Timers::default();
        timers.start(B, 0, Some(500));
        timers.cancel(B, 0);
        assert_eq!(timers.expire(B, 0), Expired::At { expires_at_ns: 500 });
        assert_eq!(timers.expire(B, 0), Expired::Unknown);
        timers.cancel(A, 0);
        assert_eq!(timers.expire(A, 0), Expired::ArmedBeforeTrace);
    }

    #[test]
    fn drops_a_timer_that_is_long_overdue() {
        let mut timers = Timers::default();
        timers.start(A, 0, Some(500));
        timers.start(B, 0, Some(900_000));
        assert_eq!(timers.next_at_ns(0, 20_500), Some(500));
        assert_eq!(timers.next_at_ns(0, 20_501), Some(900_000));
        assert_eq!(timers.vanished_count, 1);
    }

    #[test]
    fn knows_a_deferrable_timer_when_it_runs_with_another() {
        let mut timers = Timers::default();
        timers.start(B, 0, None);
        assert_eq!(timers.next_at_ns(0, 0), None);
        assert_eq!(timers.expire(B, 0), Expired::WithAnother);
        let armed_before = TimerId::Wheel(0x20);
        timers.know_deferrable(armed_before);
        assert_eq!(timers.expire(armed_before, 0), Expired::WithAnother);
    }

    #[test]
    fn leaves_out_deferrable_timers() {
        assert_eq!(wheel_target(FLAG_DEFERRABLE | 3), (3, false));
        assert_eq!(wheel_target(0x0030_0002), (2, true));
    }
}
