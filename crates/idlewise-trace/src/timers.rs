//! Tracks which timers are armed on which CPU, using start, cancel and expire events.
//!
//! Binary heaps hold expiries, and a map holds the current state. A heap entry that the map does not
//! confirm is stale, and is dropped when it reaches the top. That makes re-arming, by far the most
//! frequent operation, a push or two.
//!
//! # Timers that migrate
//!
//! Since Linux 6.9, a CPU that is awake runs the timers of the wheel of CPUs that sleep, unless they are
//! pinned (kernel/time/timer_migration.c). So such a timer is in its CPU's sleep length only if
//!
//! * it is due within a jiffy, because then the CPU does not hand it over; or
//! * no other CPU is awake. Then those of all CPUs are.
//!
//! A CPU is awake as long as its tick runs. With the tick stopped it has handed its timers over, and takes back all of them
//! only if it was the last one to stop its tick. The kernel arranges CPUs in groups of groups, which gives the same answers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

/// `TIMER_DEFERRABLE` in `include/linux/timer.h`: the kernel does not wake an idle CPU for these.
const FLAG_DEFERRABLE: u32 = 0x0008_0000;
/// `TIMER_PINNED`: no other CPU runs the timer.
const FLAG_PINNED: u32 = 0x0010_0000;
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

/// An armed timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    /// The CPU it is queued on.
    cpu: u16,
    /// When it wakes a CPU. `None` if it does not because it is deferrable, or if its clock's offset is
    /// unknown.
    wakes_at_ns: Option<i64>,
    /// Another CPU may run it.
    migrates: bool,
    /// The tick that should have run the timer did not.
    is_late: bool,
}

impl Armed {
    /// A timer that no other CPU runs.
    pub(crate) fn new(cpu: u16, wakes_at_ns: Option<i64>) -> Self {
        Armed { cpu, wakes_at_ns, migrates: false, is_late: false }
    }

    /// A timer that another CPU runs while its own sleeps.
    pub(crate) fn migrating(cpu: u16, wakes_at_ns: Option<i64>) -> Self {
        Armed { migrates: true, ..Armed::new(cpu, wakes_at_ns) }
    }

    /// Whether this is the timer that one of `cpu`'s queues has with this expiry.
    fn is_queued(&self, cpu: u16, at_ns: i64, migrates: bool) -> bool {
        (self.cpu, self.wakes_at_ns, self.migrates) == (cpu, Some(at_ns), migrates)
    }

    fn migrates_at(&self, at_ns: i64) -> bool {
        self.migrates && self.wakes_at_ns == Some(at_ns)
    }
}

/// Which CPU wakes up for timers that migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migration {
    /// The one that goes idle, for those of all CPUs: all others sleep.
    Here,
    /// Another one, which is awake, or was the last to go to sleep.
    Elsewhere,
    /// It is not known whether another CPU is awake, because the idle task of one is not recorded. Each CPU is taken
    /// to keep its own timers.
    Kept,
    /// The recording lacks the events that show which CPUs are awake.
    Unknown,
}

/// Whether a CPU is awake as far as timers are concerned: whether its tick runs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wakefulness {
    Awake,
    #[default]
    Asleep,
    /// It is idle, and its idle task is not recorded.
    Unseen,
}

/// Which CPUs are awake.
#[derive(Default)]
pub(crate) struct AwakeCpus {
    cpus: Vec<Wakefulness>,
    awake_count: usize,
    unseen_count: usize,
    /// The last CPU that stopped its tick, if none has been awake since.
    last: Option<u16>,
}

impl AwakeCpus {
    /// A task runs on `cpu`.
    pub(crate) fn wake(&mut self, cpu: u16) {
        self.set(cpu, Wakefulness::Awake);
        self.last = None;
    }

    /// `cpu` stops its tick.
    pub(crate) fn sleep(&mut self, cpu: u16) {
        if self.is(cpu, Wakefulness::Awake) {
            self.last = (self.awake_count == 1).then_some(cpu);
        }
        self.set(cpu, Wakefulness::Asleep);
    }

    /// `cpu` is idle, and nothing shows when it stops its tick.
    pub(crate) fn go_out_of_sight(&mut self, cpu: u16) {
        self.set(cpu, Wakefulness::Unseen);
    }

    /// Which CPU wakes up for timers that migrate if `cpu`, whose tick runs or is stopped, goes idle.
    pub(crate) fn migration(&self, cpu: u16, tick_is_stopped: bool) -> Migration {
        let others = |count: usize, kind| count - usize::from(self.is(cpu, kind));
        if others(self.awake_count, Wakefulness::Awake) > 0 {
            Migration::Elsewhere
        } else if others(self.unseen_count, Wakefulness::Unseen) > 0 {
            Migration::Kept
        } else if tick_is_stopped && self.last != Some(cpu) {
            Migration::Elsewhere
        } else {
            Migration::Here
        }
    }

    fn is(&self, cpu: u16, wakefulness: Wakefulness) -> bool {
        self.cpus.get(usize::from(cpu)).copied().unwrap_or_default() == wakefulness
    }

    fn set(&mut self, cpu: u16, wakefulness: Wakefulness) {
        let index = usize::from(cpu);
        if self.cpus.len() <= index {
            self.cpus.resize(index + 1, Wakefulness::Asleep);
        }
        let before = std::mem::replace(&mut self.cpus[index], wakefulness);
        let change = |count: &mut usize, kind| {
            *count = *count + usize::from(wakefulness == kind) - usize::from(before == kind);
        };
        change(&mut self.awake_count, Wakefulness::Awake);
        change(&mut self.unseen_count, Wakefulness::Unseen);
    }
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
    /// The trace does not show when an overdue timer runs, or which CPU runs one.
    Unknown,
}

impl NextTimer {
    fn or_earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.min(b)),
            (Self::None, only) | (only, Self::None) => only,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
        }
    }
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

type ArmedTimers = HashMap<TimerId, Armed, BuildHasherDefault<FxHasher>>;

/// Expiries, some of which are stale.
#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<(i64, TimerId)>>,
    /// How many of them are armed timers.
    armed_count: usize,
}

#[derive(Default)]
pub(crate) struct Timers {
    armed: ArmedTimers,
    /// Each CPU's timers that do not migrate.
    pinned: Vec<Queue>,
    /// Each CPU's timers that migrate.
    migrating: Vec<Queue>,
    /// The timers of all CPUs that migrate.
    all_migrating: Queue,
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

/// What a timer-wheel timer's flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WheelFlags {
    /// The CPU that the timer is queued on.
    pub(crate) cpu: u16,
    /// It wakes an idle CPU.
    pub(crate) wakes: bool,
    /// No other CPU runs it.
    pub(crate) is_pinned: bool,
}

impl From<u32> for WheelFlags {
    fn from(flags: u32) -> Self {
        WheelFlags {
            cpu: (flags & FLAG_CPU_MASK) as u16,
            wakes: flags & FLAG_DEFERRABLE == 0,
            is_pinned: flags & FLAG_PINNED != 0,
        }
    }
}

impl Timers {
    /// Arms a timer.
    pub(crate) fn start(&mut self, id: TimerId, armed: Armed) {
        self.note(id);
        self.disarm(id);
        self.overdue.remove(&id);
        self.arm(id, armed);
    }

    fn arm(&mut self, id: TimerId, armed: Armed) {
        let Armed { cpu, wakes_at_ns, migrates, .. } = armed;
        self.armed.insert(id, armed);
        let Some(at_ns) = wakes_at_ns else { return };
        let index = usize::from(cpu);
        let queues = if migrates { &mut self.migrating } else { &mut self.pinned };
        if queues.len() <= index {
            queues.resize_with(index + 1, Queue::default);
        }
        let armed = &self.armed;
        let has = |id: TimerId, is: &dyn Fn(&Armed) -> bool| armed.get(&id).is_some_and(is);
        queues[index].push(at_ns, id, |id, at_ns| has(id, &|a| a.is_queued(cpu, at_ns, migrates)));
        if migrates {
            self.all_migrating.push(at_ns, id, |id, at_ns| has(id, &|a| a.migrates_at(at_ns)));
        }
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

    /// The earliest timer after `now_ns` that would wake `cpu` if it went idle. It keeps those that
    /// migrate but are due within `jiffy_ns`.
    pub(crate) fn next_at_ns(
        &mut self,
        cpu: u16,
        now_ns: i64,
        next_look: NextLook,
        migration: Migration,
        jiffy_ns: i64,
    ) -> NextTimer {
        let pinned = self.first_at_ns(cpu, false, now_ns, next_look);
        let migrating = self.first_at_ns(cpu, true, now_ns, next_look);
        let is_kept = match migrating {
            NextTimer::At(at_ns) => at_ns.saturating_sub(now_ns) <= jiffy_ns,
            NextTimer::Unknown => true,
            NextTimer::None => false,
        };
        if is_kept {
            return pinned.or_earlier(migrating);
        }
        match migration {
            Migration::Elsewhere => pinned,
            Migration::Here => pinned.or_earlier(self.first_migrating_at_ns(now_ns)),
            Migration::Kept => pinned.or_earlier(migrating),
            Migration::Unknown => match (pinned, self.first_migrating_at_ns(now_ns)) {
                (NextTimer::At(pinned_ns), NextTimer::At(at_ns)) if at_ns < pinned_ns => {
                    NextTimer::Unknown
                }
                (NextTimer::None, NextTimer::At(_)) => NextTimer::Unknown,
                _ => pinned,
            },
        }
    }

    /// The earliest timer of all CPUs that migrates.
    fn first_migrating_at_ns(&mut self, now_ns: i64) -> NextTimer {
        let heap = &mut self.all_migrating.heap;
        while let Some(&Reverse((at_ns, id))) = heap.peek() {
            let armed = self.armed.get(&id);
            if armed.is_some_and(|armed| armed.migrates_at(at_ns)) && !is_overdue(at_ns, now_ns) {
                return NextTimer::At(at_ns);
            }
            heap.pop();
        }
        NextTimer::None
    }

    /// The earliest expiry on `cpu` after `now_ns`, of the timers that migrate or of the others. A
    /// timer that is overdue by more than the CPU could have missed was run elsewhere, by a CPU that
    /// was not recorded. The exception is a running tick, which checks the wheel again.
    fn first_at_ns(
        &mut self,
        cpu: u16,
        migrates: bool,
        now_ns: i64,
        next_look: NextLook,
    ) -> NextTimer {
        let index = usize::from(cpu);
        loop {
            let queues = if migrates { &mut self.migrating } else { &mut self.pinned };
            let Some(heap) = queues.get_mut(index).map(|queue| &mut queue.heap) else {
                return NextTimer::None;
            };
            let Some(&Reverse((at_ns, id))) = heap.peek() else { return NextTimer::None };
            let armed = self.armed.get(&id).copied();
            let current = armed.filter(|armed| armed.is_queued(cpu, at_ns, migrates));
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
            if current.is_some() && !is_overdue(at_ns, now_ns) && waits_for.is_none() {
                return NextTimer::At(at_ns);
            }
            heap.pop();
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
            let index = usize::from(armed.cpu);
            if armed.migrates {
                self.migrating[index].armed_count -= 1;
                self.all_migrating.armed_count -= 1;
            } else {
                self.pinned[index].armed_count -= 1;
            }
        }
        Some(armed)
    }

    /// Takes a timer that had not gone after all.
    fn take_overdue(&mut self, id: TimerId, cpu: u16) -> Option<Armed> {
        let at_ns = self.overdue.remove(&id)?;
        self.vanished_count -= 1;
        Some(Armed::new(cpu, Some(at_ns)))
    }

    /// Forgets the timers of a CPU that lost events, because they may have changed.
    pub(crate) fn forget_cpu(&mut self, cpu: u16) {
        self.armed.retain(|_, armed| armed.cpu != cpu);
        for queue in [&mut self.pinned, &mut self.migrating] {
            if let Some(queue) = queue.get_mut(usize::from(cpu)) {
                *queue = Queue::default();
            }
        }
        self.all_migrating.armed_count = self.migrating.iter().map(|queue| queue.armed_count).sum();
    }

    /// Returns whether this is the first time that the trace mentions the timer.
    fn note(&mut self, id: TimerId) -> bool {
        self.seen.len() < SEEN_MAX && self.seen.insert(id)
    }
}

impl Queue {
    /// Adds a timer, and keeps the heap below twice the number of armed timers.
    fn push(&mut self, at_ns: i64, id: TimerId, is_current: impl Fn(TimerId, i64) -> bool) {
        self.armed_count += 1;
        self.heap.push(Reverse((at_ns, id)));
        if self.heap.len() < COMPACT_MIN || self.heap.len() < 2 * self.armed_count {
            return;
        }
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.retain(|&Reverse((at_ns, id))| is_current(id, at_ns));
        // A timer armed twice for the same time is in the heap twice.
        entries.sort_unstable();
        entries.dedup();
        self.heap = entries.into();
    }
}

/// Whether a timer that was due at `at_ns` should have run by now.
fn is_overdue(at_ns: i64, now_ns: i64) -> bool {
    at_ns < now_ns.saturating_sub(OVERDUE_MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TimerId = TimerId::Hrtimer(0x10);
    const B: TimerId = TimerId::Wheel(0x10);

    /// The next timer where none migrates.
    fn next(timers: &mut Timers, cpu: u16, now_ns: i64, next_look: NextLook) -> NextTimer {
        timers.next_at_ns(cpu, now_ns, next_look, Migration::Elsewhere, 0)
    }

    #[test]
    fn gives_the_earliest_armed_timer() {
        let mut timers = Timers::default();
        timers.start(A, Armed::new(0, Some(500)));
        timers.start(B, Armed::new(0, Some(300)));
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::At(300));
        timers.cancel(B, 0);
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::At(500));
        timers.start(A, Armed::new(0, Some(900)));
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::At(900));
        assert_eq!(timers.expire(A, 0), Expired::At { expires_at_ns: 900 });
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::None);
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
        timers.start(A, Armed::new(0, Some(500)));
        timers.start(A, Armed::new(3, Some(600)));
        assert_eq!(
            (next(&mut timers, 0, 0, NextLook::None), next(&mut timers, 3, 0, NextLook::None)),
            (NextTimer::None, NextTimer::At(600))
        );
        timers.expire(A, 1);
        assert_eq!(timers.migrated_count, 1);
    }

    #[test]
    fn stays_small_when_one_timer_is_armed_again_and_again() {
        let mut timers = Timers::default();
        for i in 0..100_000 {
            timers.start(A, Armed::new(0, Some(1_000_000 + i)));
        }
        assert!(timers.pinned[0].heap.len() <= COMPACT_MIN);
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::At(1_099_999));
    }

    #[test]
    fn takes_a_cancellation_just_before_the_expiry_as_part_of_it() {
        let mut timers = Timers::default();
        timers.start(B, Armed::new(0, Some(500)));
        timers.cancel(B, 0);
        assert_eq!(timers.expire(B, 0), Expired::At { expires_at_ns: 500 });
        assert_eq!(timers.expire(B, 0), Expired::Unknown);
        timers.cancel(A, 0);
        assert_eq!(timers.expire(A, 0), Expired::ArmedBeforeTrace);
    }

    #[test]
    fn drops_a_timer_that_is_long_overdue() {
        let mut timers = Timers::default();
        timers.start(A, Armed::new(0, Some(500)));
        timers.start(B, Armed::new(0, Some(900_000)));
        assert_eq!(next(&mut timers, 0, 20_500, NextLook::None), NextTimer::At(500));
        assert_eq!(next(&mut timers, 0, 20_501, NextLook::None), NextTimer::At(900_000));
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
        timers.start(B, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 4_100_000, look(8_000_000)), NextTimer::At(8_000_000));
        assert_eq!(next(&mut timers, 0, 5_000_000, look(8_000_000)), NextTimer::At(8_000_000));
        assert_eq!(next(&mut timers, 0, 8_100_000, look(12_000_000)), NextTimer::None);
        assert_eq!(timers.vanished_count, 1);
        timers.start(B, Armed::new(0, Some(4_000_000)));
        next(&mut timers, 0, 4_100_000, look(8_000_000));
        assert_eq!(timers.expire(B, 0), Expired::At { expires_at_ns: 8_000_000 });
        // The tick checked twice, or does not run: another CPU took the timer.
        timers.start(B, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 8_100_000, look(12_000_000)), NextTimer::None);
        timers.start(B, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 4_100_000, NextLook::None), NextTimer::None);
        // Missed by less than counts as overdue, but the tick had checked.
        timers.start(B, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 4_002_000, look(8_000_000)), NextTimer::At(8_000_000));
        timers.cancel(B, 0);
        // The interrupt has not come yet.
        timers.start(B, Armed::new(0, Some(4_000_000)));
        let pending = WheelLook { at_ns: 8_000_000, period_ns: 4_000_000, last_at_ns: None };
        let pending = NextLook::Tick(pending);
        assert_eq!(next(&mut timers, 0, 4_002_000, pending), NextTimer::At(4_000_000));
    }

    #[test]
    fn says_nothing_of_an_overdue_wheel_timer_when_the_tick_is_not_known() {
        let mut timers = Timers::default();
        let unknown = NextLook::Unknown { period_ns: 4_000_000 };
        timers.start(B, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 3_999_999, unknown), NextTimer::At(4_000_000));
        assert_eq!(next(&mut timers, 0, 4_100_000, unknown), NextTimer::Unknown);
        assert_eq!(next(&mut timers, 0, 12_000_000, unknown), NextTimer::Unknown);
        assert_eq!(next(&mut timers, 0, 12_000_001, unknown), NextTimer::None);
        timers.start(A, Armed::new(0, Some(4_000_000)));
        assert_eq!(next(&mut timers, 0, 4_000_001, unknown), NextTimer::At(4_000_000));
    }

    #[test]
    fn knows_a_deferrable_timer_when_it_runs_with_another() {
        let mut timers = Timers::default();
        timers.start(B, Armed::new(0, None));
        assert_eq!(next(&mut timers, 0, 0, NextLook::None), NextTimer::None);
        assert_eq!(timers.expire(B, 0), Expired::WithAnother);
        let armed_before = TimerId::Wheel(0x20);
        timers.know_deferrable(armed_before);
        assert_eq!(timers.expire(armed_before, 0), Expired::WithAnother);
    }

    #[test]
    fn leaves_out_deferrable_timers() {
        let flags = WheelFlags { cpu: 3, wakes: false, is_pinned: false };
        assert_eq!(WheelFlags::from(FLAG_DEFERRABLE | 3), flags);
        let flags = WheelFlags { cpu: 2, wakes: true, is_pinned: true };
        assert_eq!(WheelFlags::from(0x0030_0002), flags);
    }

    #[test]
    fn a_timer_that_migrates_wakes_the_last_cpu_that_goes_to_sleep() {
        let mut timers = Timers::default();
        timers.start(A, Armed::new(0, Some(90_000)));
        timers.start(B, Armed::migrating(0, Some(50_000)));
        timers.start(TimerId::Wheel(0x20), Armed::migrating(1, Some(30_000)));
        let mut next = |cpu, now_ns, migration| {
            timers.next_at_ns(cpu, now_ns, NextLook::None, migration, 4_000)
        };
        assert_eq!(next(0, 0, Migration::Elsewhere), NextTimer::At(90_000));
        assert_eq!(next(1, 0, Migration::Elsewhere), NextTimer::None);
        assert_eq!(next(0, 0, Migration::Here), NextTimer::At(30_000));
        assert_eq!(next(1, 0, Migration::Here), NextTimer::At(30_000));
        assert_eq!(next(0, 0, Migration::Kept), NextTimer::At(50_000));
        assert_eq!(next(1, 0, Migration::Kept), NextTimer::At(30_000));
        assert_eq!(next(0, 0, Migration::Unknown), NextTimer::Unknown);
        // Within a jiffy, the CPU that has the timer keeps it.
        assert_eq!(next(0, 45_999, Migration::Elsewhere), NextTimer::At(90_000));
        assert_eq!(next(0, 46_000, Migration::Elsewhere), NextTimer::At(50_000));
        assert_eq!(timers.expire(B, 1), Expired::At { expires_at_ns: 50_000 });
        assert_eq!(timers.migrated_count, 1);
    }

    #[test]
    fn which_timer_wakes_a_cpu_is_unknown_only_if_it_matters() {
        let mut timers = Timers::default();
        timers.start(A, Armed::new(0, Some(90_000)));
        timers.start(B, Armed::migrating(1, Some(95_000)));
        let next = timers.next_at_ns(0, 0, NextLook::None, Migration::Unknown, 0);
        assert_eq!(next, NextTimer::At(90_000));
        timers.start(B, Armed::migrating(1, Some(85_000)));
        let next = timers.next_at_ns(0, 0, NextLook::None, Migration::Unknown, 0);
        assert_eq!(next, NextTimer::Unknown);
        timers.forget_cpu(1);
        let next = timers.next_at_ns(0, 0, NextLook::None, Migration::Unknown, 0);
        assert_eq!(next, NextTimer::At(90_000));
    }

    #[test]
    fn a_timer_that_migrates_again_and_again_stays_one() {
        let mut timers = Timers::default();
        for i in 0..100_000 {
            timers.start(B, Armed::migrating((i % 3) as u16, Some(1_000_000 + i)));
        }
        let lengths = timers.migrating.iter().chain([&timers.all_migrating]);
        assert!(lengths.map(|queue| queue.heap.len()).all(|length| length <= COMPACT_MIN));
        assert_eq!(timers.all_migrating.armed_count, 1);
        assert_eq!(timers.first_migrating_at_ns(0), NextTimer::At(1_099_999));
    }

    #[test]
    fn the_last_cpu_that_stopped_its_tick_takes_the_timers() {
        let mut awake = AwakeCpus::default();
        awake.wake(0);
        awake.wake(5);
        assert_eq!(awake.migration(0, false), Migration::Elsewhere);
        awake.sleep(0);
        assert_eq!(awake.migration(0, true), Migration::Elsewhere);
        assert_eq!(awake.migration(5, false), Migration::Here);
        awake.sleep(5);
        assert_eq!(awake.migration(5, true), Migration::Here);
        assert_eq!(awake.migration(0, true), Migration::Elsewhere);
        awake.wake(0);
        assert_eq!(awake.migration(5, true), Migration::Elsewhere);
        assert_eq!(awake.migration(0, false), Migration::Here);
        awake.wake(5);
        awake.go_out_of_sight(5);
        assert_eq!(awake.migration(0, false), Migration::Kept);
        awake.sleep(0);
        assert_eq!(awake.migration(0, true), Migration::Kept);
        awake.wake(5);
        assert_eq!(awake.migration(0, true), Migration::Elsewhere);
    }
}
