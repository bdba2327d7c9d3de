//! Who woke idle CPUs, and how: by a store to the word that an idle CPU monitors or polls, by an IPI, or not
//! at all, because the CPU was being woken already (a free ride).
//!
//! ```text
//!            idle entry                            idle exit        task, or the next entry
//!   woken ───┤─────────────── asleep ──────────────┤──── leaving ───┤ the stay is judged
//!   waker ───────────── store or IPI ─ store: a free ride ─ store: a free ride
//! ```
//!
//! A stay is judged when the CPU runs a task or goes idle again:
//!
//! 1. If our cpuidle driver's tracepoint told what ended the stay, that counts.
//! 2. Otherwise it is what came first: a store or IPI that another CPU sent while this one was asleep
//!    (`sched:sched_wake_idle_without_ipi`, `ipi:ipi_send_*`), or the CPU's own interrupt (`irq_vectors:*`,
//!    `irq:irq_handler_entry`). An interrupt whose handler runs only after the CPU has left its state, as with
//!    MWAIT, may have come before the store. So if a store and another interrupt meet in one stay, what woke
//!    the CPU is unknown.
//! 3. An interrupt by another CPU whose sender is not recorded has an unknown waker. Kernels before 6.4 have
//!    no events of senders.
//! 4. A stay without any of these ended for an unknown reason. So did every stay if the trace does not show
//!    the CPUs' own interrupts: one of those may have come before the store or the IPI.
//!
//! A store may wake a CPU for a function call instead of a task, so a stay needs no task at its end.
//!
//! So a kernel that lacks events has fewer known wake-ups, and no wrong ones. Memory does not grow with the
//! trace, only with the pairs of CPUs, of which a damaged or hostile one cannot make too many.

use std::collections::BTreeMap;

use idlewise_machine::Arch;

use crate::event::{Event, EventKind, Tracepoints};

/// The most pairs of CPUs that are kept apart: those of a thousand CPUs. In further ones the waker counts as
/// unknown.
const PAIR_COUNT_MAX: usize = 1 << 20;

/// What ended a stay in an idle state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeCause {
    /// Another CPU's store, without an interrupt.
    Store,
    /// Another CPU's interrupt: a request to reschedule or a function call.
    Ipi,
    /// The CPU's own timer, including the tick and promotion timers.
    Timer,
    /// A device's interrupt, and any other that no CPU sends.
    Device,
    /// A limit of the state: the deadline of UMWAIT.
    Deadline,
    /// Not recorded, or not to be told.
    Unknown,
}

impl WakeCause {
    /// Every cause, in the order of the enum.
    pub const ALL: [Self; 6] =
        [Self::Store, Self::Ipi, Self::Timer, Self::Device, Self::Deadline, Self::Unknown];
}

/// What one CPU did to wake another. Each wish to wake is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairCounts {
    /// Stays that its store ended.
    pub store_count: u64,
    /// Stays that its IPI ended.
    pub ipi_count: u64,
    /// Stores that found the other CPU being woken already.
    pub free_ride_count: u64,
    /// Stores that found the other CPU awake, in its idle loop but in no idle state.
    pub awake_count: u64,
    /// IPIs that found the other CPU being woken already.
    pub late_ipi_count: u64,
    /// Stores and IPIs sent to a sleeping CPU of which nobody can tell whether they woke it, and those sent
    /// to a CPU of whose idle task nothing was recorded.
    pub unknown_count: u64,
}

/// How a CPU's stays ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WokenCounts {
    /// Stays by their cause, in the order of [`WakeCause::ALL`].
    pub causes: [u64; WakeCause::ALL.len()],
}

impl WokenCounts {
    /// Returns the number of stays.
    pub fn stay_count(&self) -> u64 {
        self.causes.iter().sum()
    }

    /// Returns the number of stays with that cause.
    pub fn of(&self, cause: WakeCause) -> u64 {
        self.causes[cause as usize]
    }
}

/// The wake-ups of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeCounts {
    /// By waker (`None` if it is unknown) and woken CPU.
    pub pairs: BTreeMap<(Option<u16>, u16), PairCounts>,
    /// By woken CPU, for each of which idle entries were recorded.
    pub woken: BTreeMap<u16, WokenCounts>,
    /// How many events the kernel dropped.
    pub lost_event_count: u64,
}

impl WakeCounts {
    /// The counts of a pair.
    fn pair(&mut self, waker: Option<u16>, woken: u16) -> &mut PairCounts {
        let is_kept = self.pairs.len() < PAIR_COUNT_MAX || self.pairs.contains_key(&(waker, woken));
        self.pairs.entry((waker.filter(|_| is_kept), woken)).or_default()
    }

    /// Adds the counts of another span.
    pub fn merge(&mut self, other: &WakeCounts) {
        for (&(waker, woken), counts) in &other.pairs {
            let sum = self.pair(waker, woken);
            sum.store_count += counts.store_count;
            sum.ipi_count += counts.ipi_count;
            sum.free_ride_count += counts.free_ride_count;
            sum.awake_count += counts.awake_count;
            sum.late_ipi_count += counts.late_ipi_count;
            sum.unknown_count += counts.unknown_count;
        }
        for (&cpu, counts) in &other.woken {
            let sum = self.woken.entry(cpu).or_default();
            sum.causes.iter_mut().zip(counts.causes).for_each(|(sum, count)| *sum += count);
        }
        self.lost_event_count += other.lost_event_count;
    }
}

/// Where a CPU is in its idle loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing of its idle task has been recorded yet.
    #[default]
    Unseen,
    /// In a task, or in the idle loop outside of a state.
    Awake,
    /// In an idle state.
    Asleep,
    /// Out of the state, but nothing has told why yet.
    Leaving,
}

/// A wish of another CPU to wake this one.
#[derive(Clone, Copy, Debug)]
struct Wish {
    waker: u16,
    is_store: bool,
}

/// A CPU of which events were recorded.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    phase: Phase,
    /// The first wish of the stay.
    wish: Option<Wish>,
    /// The first interrupt of the stay.
    interrupt: Option<WakeCause>,
    /// The interrupt was handled within the state, before any wish.
    is_interrupt_first: bool,
    /// What our driver says.
    told: Option<WakeCause>,
}

/// Counts wake-ups while the events of all CPUs pass by, in order of time.
#[derive(Clone, Debug)]
pub struct WakeCounter {
    sees_interrupts: bool,
    cpus: BTreeMap<u16, Cpu>,
    counts: WakeCounts,
}

impl WakeCounter {
    /// Makes a counter for a trace with these tracepoints, of a machine of this architecture (as
    /// `uname -m` prints it), if that is known.
    pub fn new(tracepoints: Tracepoints, arch: Option<&str>) -> Self {
        WakeCounter {
            sees_interrupts: sees_interrupts(tracepoints, arch),
            cpus: BTreeMap::new(),
            counts: WakeCounts::default(),
        }
    }

    /// Counts the next events.
    pub fn push(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.event(event));
    }

    /// Returns the counts since the last call. A stay counts when it has been judged.
    pub fn take(&mut self) -> WakeCounts {
        std::mem::take(&mut self.counts)
    }

    fn event(&mut self, event: &Event) {
        let cpu = event.cpu;
        match event.kind {
            EventKind::IdleEntry { .. } => {
                self.judge(cpu);
                let fresh = Cpu { phase: Phase::Asleep, ..Cpu::default() };
                self.cpus.insert(cpu, fresh);
            }
            EventKind::IdleExit => {
                let cpu = self.cpus.entry(cpu).or_default();
                if cpu.phase == Phase::Asleep {
                    cpu.phase = Phase::Leaving;
                } else {
                    // Its entry was not recorded.
                    *cpu = Cpu { phase: Phase::Awake, ..Cpu::default() };
                }
            }
            EventKind::SwitchToTask => {
                self.judge(cpu);
                self.cpus.insert(cpu, Cpu { phase: Phase::Awake, ..Cpu::default() });
            }
            EventKind::TimerInterrupt => self.interrupt(cpu, WakeCause::Timer),
            EventKind::RescheduleInterrupt | EventKind::IpiInterrupt => {
                self.interrupt(cpu, WakeCause::Ipi);
            }
            EventKind::DeviceInterrupt => self.interrupt(cpu, WakeCause::Device),
            EventKind::DriverWake { reason } => {
                let told = match reason {
                    0 => WakeCause::Store,
                    1 => WakeCause::Ipi,
                    // A promotion's timer.
                    2 => WakeCause::Timer,
                    3 => WakeCause::Deadline,
                    // Any other interrupt: what it was follows from the other events.
                    _ => return,
                };
                self.cpus.entry(cpu).or_default().told = Some(told);
            }
            EventKind::StoreSent { target_cpu } => {
                self.wish(target_cpu, Wish { waker: cpu, is_store: true });
            }
            EventKind::IpiSent { target_cpu } => {
                self.wish(target_cpu, Wish { waker: cpu, is_store: false });
            }
            EventKind::IpiSentToMany { targets, .. } => {
                for target_cpu in (0..64_u16).filter(|&target| targets >> target & 1 != 0) {
                    self.wish(target_cpu, Wish { waker: cpu, is_store: false });
                }
            }
            EventKind::Lost { event_count } => {
                self.counts.lost_event_count =
                    self.counts.lost_event_count.saturating_add(event_count);
                // Nothing of the stays in progress can be told.
                for cpu in self.cpus.values_mut() {
                    *cpu = Cpu::default();
                }
            }
            _ => {}
        }
    }

    fn interrupt(&mut self, cpu: u16, cause: WakeCause) {
        let cpu = self.cpus.entry(cpu).or_default();
        if cpu.interrupt.is_none() && matches!(cpu.phase, Phase::Asleep | Phase::Leaving) {
            cpu.interrupt = Some(cause);
            cpu.is_interrupt_first = cpu.phase == Phase::Asleep && cpu.wish.is_none();
        }
    }

    fn wish(&mut self, target_cpu: u16, wish: Wish) {
        let cpu = self.cpus.entry(target_cpu).or_default();
        let Wish { waker, is_store } = wish;
        let is_woken = cpu.wish.is_some() || cpu.interrupt.is_some();
        let phase = cpu.phase;
        if phase == Phase::Asleep && !is_woken {
            cpu.wish = Some(wish);
            return;
        }
        // An IPI to a CPU that runs is no attempt to wake it.
        if phase == Phase::Awake && !is_store {
            return;
        }
        let has_wish = cpu.wish.is_some();
        let pair = self.counts.pair(Some(waker), target_cpu);
        match (phase, is_store) {
            (Phase::Unseen, _) => pair.unknown_count += 1,
            (Phase::Awake, _) => pair.awake_count += 1,
            (Phase::Asleep | Phase::Leaving, true) if has_wish => pair.free_ride_count += 1,
            // It is on its way out for a reason of its own.
            (Phase::Asleep | Phase::Leaving, true) => pair.awake_count += 1,
            (Phase::Asleep | Phase::Leaving, false) => pair.late_ipi_count += 1,
        }
    }

    /// Judges a CPU's stay, if one is in progress.
    fn judge(&mut self, number: u16) {
        let Some(cpu) = self.cpus.get(&number) else { return };
        if !matches!(cpu.phase, Phase::Asleep | Phase::Leaving) {
            return;
        }
        let cause = cpu.cause(self.sees_interrupts);
        let wish = cpu.wish;
        self.counts.woken.entry(number).or_default().causes[cause as usize] += 1;
        let mut count = |waker: Option<u16>, add: fn(&mut PairCounts)| {
            add(self.counts.pair(waker, number));
        };
        match (cause, wish) {
            (WakeCause::Store, Some(Wish { waker, is_store: true })) => {
                count(Some(waker), |pair| pair.store_count += 1);
            }
            (WakeCause::Ipi, Some(Wish { waker, is_store: false })) => {
                count(Some(waker), |pair| pair.ipi_count += 1);
            }
            (WakeCause::Store, other) => {
                count(None, |pair| pair.store_count += 1);
                if let Some(Wish { waker, .. }) = other {
                    count(Some(waker), |pair| pair.late_ipi_count += 1);
                }
            }
            (WakeCause::Ipi, other) => {
                count(None, |pair| pair.ipi_count += 1);
                if let Some(Wish { waker, .. }) = other {
                    count(Some(waker), |pair| pair.free_ride_count += 1);
                }
            }
            (_, Some(Wish { waker, .. })) => count(Some(waker), |pair| pair.unknown_count += 1),
            (_, None) => {}
        }
    }
}

/// Returns whether a trace with these tracepoints shows every interrupt that commonly ends a stay.
pub fn sees_interrupts(tracepoints: Tracepoints, arch: Option<&str>) -> bool {
    let sees = |needed: Tracepoints| tracepoints.contains(needed);
    let x86 = Tracepoints::X86_LOCAL.union(Tracepoints::X86_IPIS);
    match arch.map(Arch::of_uname) {
        Some(Arch::X86) | None => sees(x86),
        Some(Arch::Power) => sees(Tracepoints::POWER_TIMER.union(Tracepoints::IRQ_HANDLER)),
        Some(_) => sees(Tracepoints::IRQ_HANDLER),
    }
}

impl Cpu {
    fn cause(&self, sees_interrupts: bool) -> WakeCause {
        if let Some(told) = self.told {
            return told;
        }
        if !sees_interrupts {
            return WakeCause::Unknown;
        }
        match (self.wish, self.interrupt) {
            (_, Some(interrupt)) if self.is_interrupt_first => interrupt,
            (Some(Wish { is_store: false, .. }), None | Some(WakeCause::Ipi)) => WakeCause::Ipi,
            (Some(Wish { is_store: true, .. }), None) => WakeCause::Store,
            // Which of the two came first is not recorded.
            (Some(_), _) => WakeCause::Unknown,
            (None, Some(interrupt)) => interrupt,
            (None, None) => WakeCause::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Tracepoints = Tracepoints::COMPLETE;

    fn counted(events: &[(u16, EventKind)]) -> WakeCounts {
        counted_with(ALL, events)
    }

    fn counted_with(tracepoints: Tracepoints, events: &[(u16, EventKind)]) -> WakeCounts {
        let mut counter = WakeCounter::new(tracepoints, Some("x86_64"));
        for (at_ns, &(cpu, kind)) in (0_i64..).zip(events) {
            counter.push(&[Event { at_ns, cpu, kind }]);
        }
        counter.take()
    }

    const SLEEP: EventKind = EventKind::IdleEntry { state: 1 };
    const EXIT: EventKind = EventKind::IdleExit;
    const TASK: EventKind = EventKind::SwitchToTask;
    const TIMER: EventKind = EventKind::TimerInterrupt;
    const RESCHEDULE: EventKind = EventKind::RescheduleInterrupt;

    fn store(target_cpu: u16) -> EventKind {
        EventKind::StoreSent { target_cpu }
    }

    fn ipi(target_cpu: u16) -> EventKind {
        EventKind::IpiSent { target_cpu }
    }

    fn pair(counts: &WakeCounts, waker: Option<u16>, woken: u16) -> PairCounts {
        counts.pairs.get(&(waker, woken)).copied().unwrap_or_default()
    }

    fn cause(events: &[(u16, EventKind)]) -> (WakeCause, WakeCounts) {
        let counts = counted(events);
        let woken = counts.woken[&1];
        assert_eq!(woken.stay_count(), 1, "{counts:?}");
        (*WakeCause::ALL.iter().find(|&&cause| woken.of(cause) == 1).unwrap(), counts)
    }

    #[test]
    fn a_store_wakes_and_later_ones_ride_for_free() {
        let events = [
            (1, SLEEP),
            (0, store(1)),
            (2, store(1)),
            (1, EXIT),
            (3, store(1)),
            (1, TASK),
            (0, store(1)),
        ];
        let (cause, counts) = cause(&events);
        assert_eq!(cause, WakeCause::Store);
        let of = |waker| pair(&counts, Some(waker), 1);
        let one = PairCounts::default();
        assert_eq!(of(0), PairCounts { store_count: 1, awake_count: 1, ..one });
        assert_eq!(of(2), PairCounts { free_ride_count: 1, ..one });
        assert_eq!(of(3), PairCounts { free_ride_count: 1, ..one });
    }

    #[test]
    fn an_ipi_has_its_sender_or_none() {
        // HLT: handled within the state. MWAIT: after it.
        for order in [[RESCHEDULE, EXIT], [EXIT, RESCHEDULE]] {
            let events = [(1, SLEEP), (0, ipi(1)), (1, order[0]), (1, order[1]), (1, TASK)];
            let (told, counts) = cause(&events);
            assert_eq!(told, WakeCause::Ipi, "{order:?}");
            assert_eq!(pair(&counts, Some(0), 1).ipi_count, 1);
            // A kernel without events of senders.
            let events = [(1, SLEEP), (1, order[0]), (1, order[1]), (1, TASK)];
            let (told, counts) = cause(&events);
            assert_eq!(told, WakeCause::Ipi, "{order:?}");
            assert_eq!(pair(&counts, None, 1).ipi_count, 1);
        }
        // To several CPUs, of which one is asleep.
        let many = EventKind::IpiSentToMany { targets: 0b110, is_cut: false };
        let (told, counts) = cause(&[
            (2, TASK),
            (1, SLEEP),
            (0, many),
            (1, EXIT),
            (1, EventKind::IpiInterrupt),
            (1, TASK),
        ]);
        assert_eq!(told, WakeCause::Ipi);
        assert_eq!(counts.pairs.len(), 1, "the other one ran: {counts:?}");
    }

    #[test]
    fn what_came_first_is_not_guessed() {
        // A timer whose handler ran after the exit may have come before the store.
        let (told, counts) = cause(&[(1, SLEEP), (0, store(1)), (1, EXIT), (1, TIMER), (1, TASK)]);
        assert_eq!(told, WakeCause::Unknown);
        assert_eq!(pair(&counts, Some(0), 1).unknown_count, 1);
        // Handled before the store was sent: the store found the CPU on its way out.
        let (told, counts) = cause(&[(1, SLEEP), (1, TIMER), (0, store(1)), (1, EXIT), (1, TASK)]);
        assert_eq!(told, WakeCause::Timer);
        assert_eq!(pair(&counts, Some(0), 1).awake_count, 1);
        // Nothing tells.
        assert_eq!(cause(&[(1, SLEEP), (1, EXIT), (1, TASK)]).0, WakeCause::Unknown);
        // A function call by store runs no task.
        assert_eq!(cause(&[(1, SLEEP), (0, store(1)), (1, EXIT), (1, SLEEP)]).0, WakeCause::Store);
    }

    #[test]
    fn without_interrupts_in_the_trace_nothing_is_told() {
        let stays = [(1, SLEEP), (0, store(1)), (1, EXIT), (1, TASK)];
        let blind = Tracepoints::CPU_IDLE.union(Tracepoints::STORE_SENT);
        let counts = counted_with(blind, &stays);
        assert_eq!(counts.woken[&1].of(WakeCause::Unknown), 1);
        assert_eq!(pair(&counts, Some(0), 1).unknown_count, 1);
        let arm = blind.union(Tracepoints::IRQ_HANDLER);
        assert!(sees_interrupts(arm, Some("aarch64")) && !sees_interrupts(arm, Some("x86_64")));
        assert!(!sees_interrupts(arm, Some("ppc64le")) && !sees_interrupts(arm, None));
    }

    #[test]
    fn the_driver_knows_better() {
        let told = |reason| EventKind::DriverWake { reason };
        for (reason, expected) in [
            (0, WakeCause::Store),
            (1, WakeCause::Ipi),
            (2, WakeCause::Timer),
            (3, WakeCause::Deadline),
        ] {
            let events =
                [(1, SLEEP), (0, store(1)), (1, told(reason)), (1, EXIT), (1, TIMER), (1, TASK)];
            let (found, counts) = cause(&events);
            assert_eq!(found, expected);
            let pair = pair(&counts, Some(0), 1);
            let expected = match expected {
                WakeCause::Store => (1, 0, 0),
                // An IPI of an unknown sender was first.
                WakeCause::Ipi => (0, 1, 0),
                _ => (0, 0, 1),
            };
            let found = (pair.store_count, pair.free_ride_count, pair.unknown_count);
            assert_eq!(found, expected, "{reason}");
        }
        // Any other interrupt: the other events say which.
        let (found, _) = cause(&[(1, SLEEP), (1, told(4)), (1, EXIT), (1, TIMER), (1, TASK)]);
        assert_eq!(found, WakeCause::Timer);
    }

    #[test]
    fn nothing_is_claimed_of_a_cpu_whose_idle_task_is_not_recorded() {
        let counts = counted(&[(0, store(1)), (0, ipi(1)), (0, ipi(2))]);
        assert!(counts.woken.is_empty());
        assert_eq!(
            pair(&counts, Some(0), 1),
            PairCounts { unknown_count: 2, ..PairCounts::default() }
        );
    }

    #[test]
    fn lost_events_break_off_the_stays_in_progress() {
        let lost = (0, EventKind::Lost { event_count: 5 });
        let counts =
            counted(&[(1, SLEEP), (0, ipi(1)), lost, (1, EXIT), (1, RESCHEDULE), (1, TASK)]);
        assert_eq!((counts.lost_event_count, counts.woken.len()), (5, 0), "{counts:?}");
    }

    #[test]
    fn spans_add_up() {
        let mut counter = WakeCounter::new(ALL, Some("x86_64"));
        let mut sum = WakeCounts::default();
        let kinds = [(1, SLEEP), (0, ipi(1)), (1, EXIT), (1, RESCHEDULE), (1, TASK)];
        for round in 0..3 {
            for (place, &(cpu, kind)) in (0_i64..).zip(&kinds) {
                counter.push(&[Event { at_ns: round * 10 + place, cpu, kind }]);
                sum.merge(&counter.take());
            }
        }
        assert_eq!(sum.woken[&1].of(WakeCause::Ipi), 3);
        assert_eq!(pair(&sum, Some(0), 1).ipi_count, 3);
        assert_eq!(counter.take(), WakeCounts::default());
    }
}
