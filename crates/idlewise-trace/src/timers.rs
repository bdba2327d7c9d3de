//! Tracks which timers are armed on which CPU, using start, cancel and expire events.
//!
//! A binary heap for each CPU holds expiries, and a map holds the current state. A heap entry that
//! the map does not confirm is stale, and is dropped when it reaches the top. That makes re-arming,
//! by far the most frequent operation, a single push.

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
/// A timer that is overdue by this much is considered gone, unless it does expire. A CPU that goes
/// idle has just had interrupts enabled, so it misses an expiry by microseconds at most; a virtual
/// CPU, by as long as its host delays it.
const OVERDUE_MAX_NS: i64 = 20_000;
/// Beyond this many distinct timers, new ones are no longer told from old ones.
const SEEN_MAX: usize = 1 << 20;

/// A timer's identity: the address and kind of the kernel's object. Memory is reused, so an address
/// may be of both kinds within a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum TimerId {
    Hrtimer(u64),
    Wheel(u64),
}

#[derive(Clone, Copy)]
struct Armed {
    cpu: u16,
    /// `None` for a timer that does not wake its CPU because it is deferrable, or whose clock's
    /// offset is unknown.
    wakes_at_ns: Option<i64>,
    /// The tick that should have run the timer did not.
    is_late: bool,
}

/// What is known about when a CPU next checks its timer wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextLook {
    /// The tick runs and checks it.
    Tick(WheelLook),
    /// The tick is stopped or its grid is unknown, so nothing checks before the timer is due.
    None,
    /// The trace does not show whether the tick runs, or whether it has checked already.
    Unknown { period_ns: u32 },
}

/// The next timer of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTimer {
    At(i64),
    /// No timer is armed.
    None,
    /// A timer is overdue, and the trace does not show when it runs.
    Unknown,
}

/// The next tick, which checks the timer wheel, of a CPU whose tick runs.
///
/// One CPU advances the jiffies. Another CPU that ticks at the same moment may check its wheel just
/// before that. It then runs timers one tick late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WheelLook {
    pub(crate) at_ns: i64,
    pub(crate) period_ns: u32,
    /// The CPU's last timer interrupt.
    pub(crate) last_at_ns: Option<i64>,
}

impl WheelLook {
    /// Whether only one earlier tick checked a timer that was due at `due_at_ns`.
    fn is_second_for(self, due_at_ns: i64) -> bool {
        due_at_ns >= self.at_ns.saturating_sub(self.period_ns.into())
            && self.last_at_ns.is_some_and(|last_at_ns| due_at_ns <= last_at_ns)
    }
}

#[derive(Clone, Copy)]
struct Cancelled {
    cpu: u16,
    id: TimerId,
    armed: Option<Armed>,
    /// Whether the cancellation was the timer's first appearance.
    is_new: bool,
}

/// What is known about a timer when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// It was armed in the trace for this time.
    At { expires_at_ns: i64 },
    /// It was armed in the trace and wakes no CPU. It ran because the CPU was awake anyway.
    WithAnother,
    /// Its first appearance: it was armed before the trace began.
    ArmedBeforeTrace,
    /// It was seen before but not armed: its start is missing from the trace.
    Unknown,
}

#[derive(Default)]
pub(crate) struct Timers {
    armed: HashMap<TimerId, Armed, BuildHasherDefault<FxHasher>>,
    queues: Vec<BinaryHeap<Reverse<(i64, TimerId)>>>,
    armed_counts: Vec<usize>,
    seen: HashSet<TimerId, BuildHasherDefault<FxHasher>>,
    /// Timers known in advance to wake no CPU.
    deferrable: HashSet<TimerId, BuildHasherDefault<FxHasher>>,
    /// hrtimers considered gone, with their expiries. Some of them expire late.
    overdue: HashMap<TimerId, i64, BuildHasherDefault<FxHasher>>,
    /// The last cancellation and its CPU. The kernel dequeues a timer before it runs it, and many
    /// versions trace that as a cancellation.
    cancelled: Option<Cancelled>,
    /// Timers that expired on a CPU other than the one they were armed on.
    pub(crate) migrated_count: u64,
    /// Timers that were due and neither expired nor were cancelled in the trace.
    pub(crate) vanished_count: u64,
}

/// The CPU that a timer-wheel timer is queued on, and whether the timer wakes that CPU.
pub(crate) fn wheel_target(flags: u32) -> (u16, bool) {
    let cpu = (flags & FLAG_CPU_MASK) as u16;
    (cpu, flags & FLAG_DEFERRABLE == 0)
}

impl Timers {
    /// Arms a timer on `cpu`. `wakes_at_ns` is when it wakes that CPU, if it does.
    pub(crate) fn start(&mut self, id: TimerId, cpu: u16, wakes_at_ns: Option<i64>) {
        self.note(id);
        self.disarm(id);
        self.overdue.remove(&id);
        self.arm(id, Armed { cpu, wakes_at_ns, is_late: false });
    }

    fn arm(&mut self, id: TimerId, armed: Armed) {
        let Armed { cpu, wakes_at_ns, .. } = armed;
        self.armed.insert(id, armed);
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

    /// Marks a timer as deferrable in advance. A timer armed before the trace shows that only when
    /// it is armed again after it has run.
    pub(crate) fn know_deferrable(&mut self, id: TimerId) {
        self.deferrable.insert(id);
    }

    pub(crate) fn cancel(&mut self, id: TimerId, cpu: u16) {
        let is_new = self.note(id);
        let armed = self.disarm(id).or_else(|| self.take_overdue(id, cpu));
        self.cancelled = Some(Cancelled { cpu, id, armed, is_new });
    }

    pub(crate) fn expire(&mut self, id: TimerId, cpu: u16) -> Expired {
        let mut is_new = self.note(id);
        let mut armed = self.disarm(id).or_else(|| self.take_overdue(id, cpu));
        if let Some(cancelled) = self.cancelled.take_if(|c| (c.cpu, c.id) == (cpu, id)) {
            is_new |= cancelled.is_new;
            armed = armed.or(cancelled.armed);
        }
        match armed {
            Some(Armed { wakes_at_ns: None, .. }) => Expired::WithAnother,
            Some(Armed { cpu: armed_on, wakes_at_ns: Some(expires_at_ns), .. }) => {
                self.migrated_count += u64::from(armed_on != cpu);
                Expired::At { expires_at_ns }
            }
            None if is_new && self.deferrable.contains(&id) => Expired::WithAnother,
            None if is_new => Expired::ArmedBeforeTrace,
            None => Expired::Unknown,
        }
    }

    /// The earliest expiry on `cpu` after `now_ns`. A timer that is overdue by more than the CPU
    /// could have missed was run elsewhere, by a CPU that was not recorded. The exception is a
    /// running tick, which checks the wheel again.
    pub(crate) fn next_at_ns(&mut self, cpu: u16, now_ns: i64, next_look: NextLook) -> NextTimer {
        loop {
            let queue = self.queues.get(usize::from(cpu));
            let Some(&Reverse((at_ns, id))) = queue.and_then(BinaryHeap::peek) else {
                return NextTimer::None;
            };
            let armed = self.armed.get(&id).copied();
            let current = armed.filter(|a| a.cpu == cpu && a.wakes_at_ns == Some(at_ns));
            let may_wait =
                matches!(id, TimerId::Wheel(_)) && current.is_some_and(|armed| !armed.is_late);
            let waits_for = match next_look {
                NextLook::Tick(look) => {
                    Some(look).filter(|look| may_wait && look.is_second_for(at_ns))
                }
                // It is at most two ticks late.
                NextLook::Unknown { period_ns } => {
                    let earliest_ns = now_ns.saturating_sub(2 * i64::from(period_ns));
                    if may_wait && (earliest_ns..now_ns).contains(&at_ns) {
                        return NextTimer::Unknown;
                    }
                    None
                }
                NextLook::None => None,
            };
            let is_due = at_ns >= now_ns.saturating_sub(OVERDUE_MAX_NS);
            if current.is_some() && is_due && waits_for.is_none() {
                return NextTimer::At(at_ns);
            }
            self.queues[usize::from(cpu)].pop();
            let Some(armed) = current else { continue };
            self.disarm(id);
            match waits_for {
                Some(look) => {
                    let wakes_at_ns = Some(look.at_ns);
                    self.arm(id, Armed { wakes_at_ns, is_late: true, ..armed });
                }
                None => {
                    self.vanished_count += 1;
                    if matches!(id, TimerId::Hrtimer(_)) && self.overdue.len() < SEEN_MAX {
                        self.overdue.insert(id, at_ns);
                    }
                }
            }
        }
    }

    fn disarm(&mut self, id: TimerId) -> Option<Armed> {
        let armed = self.armed.remove(&id)?;
        if armed.wakes_at_ns.is_some() {
            self.armed_counts[usize::from(armed.cpu)] -= 1;
        }
        Some(armed)
    }

    /// Takes a timer that had not gone after all.
    fn take_overdue(&mut self, id: TimerId, cpu: u16) -> Option<Armed> {
        let at_ns = self.overdue.remove(&id)?;
        self.vanished_count -= 1;
        Some(Armed { cpu, wakes_at_ns: Some(at_ns), is_late: false })
    }

    /// Forgets the timers of a CPU that lost events, because they may have changed.
    pub(crate) fn forget_cpu(&mut self, cpu: u16) {
        self.armed.retain(|_, armed| armed.cpu != cpu);
        if let Some(queue) = self.queues.get_mut(usize::from(cpu)) {
            queue.clear();
            self.armed_counts[usize::from(cpu)] = 0;
        }
    }

    /// Returns whether this is the first time that the trace mentions the timer.
    fn note(&mut self, id: TimerId) -> bool {
        self.seen.len() < SEEN_MAX && self.seen.insert(id)
    }

    /// Keeps a heap below twice the number of armed timers.
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
        // A timer armed twice for the same time is in the heap twice.
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
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::At(300));
        timers.cancel(B, 0);
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::At(500));
        timers.start(A, 0, Some(900));
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::At(900));
        assert_eq!(timers.expire(A, 0), Expired::At { expires_at_ns: 900 });
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::None);
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
        assert_eq!(
            (timers.next_at_ns(0, 0, NextLook::None), timers.next_at_ns(3, 0, NextLook::None)),
            (NextTimer::None, NextTimer::At(600))
        );
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
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::At(1_099_999));
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
        assert_eq!(timers.next_at_ns(0, 20_500, NextLook::None), NextTimer::At(500));
        assert_eq!(timers.next_at_ns(0, 20_501, NextLook::None), NextTimer::At(900_000));
        assert_eq!(timers.vanished_count, 1);
        assert_eq!(timers.expire(A, 0), Expired::At { expires_at_ns: 500 });
        assert_eq!((timers.vanished_count, timers.expire(A, 0)), (0, Expired::Unknown));
    }

    #[test]
    fn expects_an_overdue_wheel_timer_at_the_next_tick_once() {
        let mut timers = Timers::default();
        let look = |at_ns| {
            let last_at_ns = Some(at_ns - 3_999_000);
            NextLook::Tick(WheelLook { at_ns, period_ns: 4_000_000, last_at_ns })
        };
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_100_000, look(8_000_000)), NextTimer::At(8_000_000));
        assert_eq!(timers.next_at_ns(0, 5_000_000, look(8_000_000)), NextTimer::At(8_000_000));
        assert_eq!(timers.next_at_ns(0, 8_100_000, look(12_000_000)), NextTimer::None);
        assert_eq!(timers.vanished_count, 1);
        timers.start(B, 0, Some(4_000_000));
        timers.next_at_ns(0, 4_100_000, look(8_000_000));
        assert_eq!(timers.expire(B, 0), Expired::At { expires_at_ns: 8_000_000 });
        // The tick checked twice, or does not run: another CPU took the timer.
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 8_100_000, look(12_000_000)), NextTimer::None);
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_100_000, NextLook::None), NextTimer::None);
        // Missed by less than counts as overdue, but the tick had checked.
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_002_000, look(8_000_000)), NextTimer::At(8_000_000));
        timers.cancel(B, 0);
        // The interrupt has not come yet.
        timers.start(B, 0, Some(4_000_000));
        let pending = WheelLook { at_ns: 8_000_000, period_ns: 4_000_000, last_at_ns: None };
        let pending = NextLook::Tick(pending);
        assert_eq!(timers.next_at_ns(0, 4_002_000, pending), NextTimer::At(4_000_000));
    }

    #[test]
    fn says_nothing_of_an_overdue_wheel_timer_when_the_tick_is_not_known() {
        let mut timers = Timers::default();
        let unknown = NextLook::Unknown { period_ns: 4_000_000 };
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 3_999_999, unknown), NextTimer::At(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_100_000, unknown), NextTimer::Unknown);
        assert_eq!(timers.next_at_ns(0, 12_000_000, unknown), NextTimer::Unknown);
        assert_eq!(timers.next_at_ns(0, 12_000_001, unknown), NextTimer::None);
        timers.start(A, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_000_001, unknown), NextTimer::At(4_000_000));
    }

    #[test]
    fn knows_a_deferrable_timer_when_it_runs_with_another() {
        let mut timers = Timers::default();
        timers.start(B, 0, None);
        assert_eq!(timers.next_at_ns(0, 0, NextLook::None), NextTimer::None);
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
