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
/// A timer overdue by this much is gone, unless it expires after all. A CPU that goes idle has just
/// had its interrupts on, so it misses an expiry by microseconds at most; a virtual one by as long as
/// its host lets it wait.
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
    /// The tick that should have served it didn't.
    is_late: bool,
}

/// What is known of a CPU's next look at its timer wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NextLook {
    /// The tick runs, and looks.
    Tick(WheelLook),
    /// The tick is stopped, or its grid is not known: nothing looks before the timer is due.
    None,
    /// The trace does not tell whether the tick runs, or whether it has looked.
    Unknown { period_ns: u32 },
}

/// The next timer of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTimer {
    At(i64),
    /// None is armed.
    None,
    /// One is overdue, and the trace does not tell when it is served.
    Unknown,
}

/// The next tick of a CPU whose tick runs: it looks at the timer wheel.
///
/// The jiffies are advanced by one CPU. Another that ticks at the same moment may look at its wheel
/// just before that; then it serves what was due one tick late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WheelLook {
    pub(crate) at_ns: i64,
    pub(crate) period_ns: u32,
    /// The CPU's last timer interrupt.
    pub(crate) last_at_ns: Option<i64>,
}

impl WheelLook {
    /// Whether what was due at `due_at_ns` was looked at only once before.
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
    /// hrtimers taken to have vanished, with their expiries; some expire late.
    overdue: HashMap<TimerId, i64, BuildHasherDefault<FxHasher>>,
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

    /// Tells in advance that a timer is deferrable: one that was armed before the trace shows it
    /// only when it is armed again, after it has run.
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

    /// The earliest expiry on `cpu` that is still to come at `now_ns`. One that is overdue by more
    /// than the CPU could have missed was taken care of elsewhere, by a CPU that wasn't recorded;
    /// except that a tick that runs looks at the wheel again.
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
                // It is late by two ticks at most.
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

    /// A timer that had not vanished after all.
    fn take_overdue(&mut self, id: TimerId, cpu: u16) -> Option<Armed> {
        let at_ns = self.overdue.remove(&id)?;
        self.vanished_count -= 1;
        Some(Armed { cpu, wakes_at_ns: Some(at_ns), is_late: false })
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
        // The tick had looked twice, or does not run at all: somebody else took it.
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 8_100_000, look(12_000_000)), NextTimer::None);
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_100_000, NextLook::None), NextTimer::None);
        // Missed by less than what counts as overdue, but the tick had looked.
        timers.start(B, 0, Some(4_000_000));
        assert_eq!(timers.next_at_ns(0, 4_002_000, look(8_000_000)), NextTimer::At(8_000_000));
        timers.cancel(B, 0);
        // The interrupt is still to come.
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
