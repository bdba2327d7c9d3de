//! What a recording's events prove: which claims a log may make, and which doubts to report for the
//! others. `builder.rs` has the table.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use rustc_hash::FxHasher;

use idlewise_machine::Arch;

use crate::doubt::List;
use crate::tracepoint::TracepointName;
use crate::{Doubt, Event, EventKind, Tracepoints};

/// The interrupts of an idle POWER CPU. IPIs from other cores are device interrupts there.
const POWER_INTERRUPTS: Tracepoints =
    Tracepoints::POWER_TIMER.union(Tracepoints::POWER_DOORBELL).union(Tracepoints::IRQ_HANDLER);

/// How much the recorded interrupts prove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Interrupts {
    /// A kind that ends idle is missing, and may have come before any interrupt that was recorded.
    #[default]
    Incomplete,
    /// The trace does not list what was recorded, and some vector never occurs in it, most likely
    /// because no such interrupt came. The first interrupt of a stay is what ended it. A stay
    /// without an interrupt may still have been ended by one of that vector.
    Common,
    /// All kinds were recorded. A stay without an interrupt had none.
    Complete,
}

/// What a recording's events prove.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    tracepoints: Tracepoints,
    interrupts: Interrupts,
    /// `None`: which there should be is not known, because the recording does not say what machine it is of.
    missing_interrupts: Option<Vec<TracepointName>>,
    has_timer_interrupt: bool,
}

impl Evidence {
    /// Determines what a trace with these tracepoints proves. `first` are its first events, which
    /// show the interrupts that have no tracepoint of their own. Only tracepoints that the architecture has are
    /// missing. If it is not told, the events tell it.
    pub(crate) fn new(tracepoints: Tracepoints, arch: Option<Arch>, first: &[Event]) -> Self {
        let has = |wanted| tracepoints.contains(wanted);
        let missing = |wanted: Tracepoints| TracepointName::all_of(wanted.without(tracepoints));
        // On x86 no device has the name of a timer or an IPI. If such an interrupt occurs without
        // the x86 vectors, the architecture is another one.
        let occurs = |wanted: fn(EventKind) -> bool| first.iter().any(|event| wanted(event.kind));
        let has_timer = occurs(|kind| kind == EventKind::TimerInterrupt);
        let has_ipi = has(Tracepoints::IPI_ENTRY)
            || occurs(|kind| {
                matches!(kind, EventKind::IpiInterrupt | EventKind::RescheduleInterrupt)
            });
        let power = Tracepoints::POWER_TIMER.union(Tracepoints::POWER_DOORBELL);
        let arch = if tracepoints.intersects(Tracepoints::X86_VECTORS) {
            Some(Arch::X86)
        } else if tracepoints.intersects(power) {
            Some(Arch::Power)
        } else if arch.is_none() && (has_timer || has_ipi) {
            Some(Arch::Arm)
        } else {
            arch
        };
        let missing_interrupts = match arch {
            Some(Arch::X86) => Some(missing(Tracepoints::X86_INTERRUPTS)),
            Some(Arch::Power) => Some(missing(POWER_INTERRUPTS)),
            Some(Arch::Arm) => {
                let handler = missing(Tracepoints::IRQ_HANDLER);
                let timer = TracepointName::all_of(Tracepoints::IRQ_HANDLER).into_iter();
                let timer = timer.map(TracepointName::of_the_timer);
                let timer = timer.filter(|_| handler.is_empty() && !has_timer).collect();
                let ipi = if has_ipi { Vec::new() } else { missing(Tracepoints::IPI_ENTRY) };
                Some([handler, timer, ipi].concat())
            }
            Some(Arch::Other) if has_timer && has_ipi && has(Tracepoints::IRQ_HANDLER) => {
                Some(Vec::new())
            }
            _ => None,
        };
        let interrupts = if missing_interrupts.as_ref().is_some_and(Vec::is_empty) {
            Interrupts::Complete
        } else if has(Tracepoints::ONLY_SEEN.union(Tracepoints::X86_LOCAL))
            && (has(Tracepoints::X86_IPIS)
                || tracepoints.intersects(Tracepoints::X86_IPIS) && !wakes_silently(first))
        {
            Interrupts::Common
        } else {
            Interrupts::Incomplete
        };
        let has_timer_interrupt = has_timer || has(Tracepoints::LOCAL_TIMER);
        Evidence { tracepoints, interrupts, missing_interrupts, has_timer_interrupt }
    }

    /// Whether task switches are known. They tell which events happened in the idle task, and
    /// whether a task ran before a gap.
    pub(crate) fn tells_tasks(&self) -> bool {
        self.tracepoints.contains(Tracepoints::SCHED_SWITCH)
    }

    /// Whether all timer events are known.
    pub(crate) fn tells_timers(&self) -> bool {
        self.tracepoints.contains(Tracepoints::TIMERS)
    }

    /// Whether it is known when the tick was stopped and restarted.
    pub(crate) fn tells_tick_stops(&self) -> bool {
        self.tells_tasks() && self.tracepoints.contains(Tracepoints::TICK_STOP)
    }

    /// Whether it is known when the tick ran.
    pub(crate) fn tells_ticks(&self) -> bool {
        self.tells_tick_stops() && self.has_timer_interrupt
    }

    /// Whether the first interrupt seen in a stay is what ended it.
    pub(crate) fn tells_interrupts(&self) -> bool {
        self.tells_tasks() && self.interrupts != Interrupts::Incomplete
    }

    /// Whether a stay without a recorded interrupt really had none.
    pub(crate) fn tells_silence(&self) -> bool {
        self.tells_tasks() && self.interrupts == Interrupts::Complete
    }

    /// Lists what was not recorded, and which claims are not made for that reason. `unjoined_count`
    /// is the number of stays that the tick alone may have ended.
    pub(crate) fn doubts(&self, unjoined_count: u64) -> Vec<Doubt> {
        let has = |tracepoint| self.tracepoints.contains(tracepoint);
        let interrupts = match (self.interrupts, self.missing_interrupts.clone().map(List)) {
            (Interrupts::Complete, _) => None,
            (_, None) => Some(Doubt::NoKnownInterrupts),
            (Interrupts::Incomplete, Some(tracepoints)) => {
                Some(Doubt::NoInterrupts { tracepoints })
            }
            (Interrupts::Common, Some(tracepoints)) => {
                Some(Doubt::UnseenInterrupts { tracepoints })
            }
        };
        let timers = Tracepoints::TIMERS.without(self.tracepoints);
        let tracepoints = List(TracepointName::all_of(timers));
        let doubts = [
            (!self.tells_tasks()).then_some(Doubt::NoSwitches),
            interrupts,
            (!self.tells_timers()).then_some(Doubt::NoTimers { tracepoints }),
            (!has(Tracepoints::TICK_STOP)).then_some(Doubt::NoTickStops),
            (unjoined_count > 0).then_some(Doubt::UnjoinedStays { count: unjoined_count }),
        ];
        doubts.into_iter().flatten().collect()
    }
}

/// Whether a task ran after idle although no interrupt was seen. That happens if CPUs wake each
/// other without interrupts, or if some interrupts were not recorded.
fn wakes_silently(events: &[Event]) -> bool {
    // CPUs that are idle, or were until now, and have had no interrupt since the entry.
    let mut silent: HashSet<u16, BuildHasherDefault<FxHasher>> = HashSet::default();
    events.iter().any(|event| match event.kind {
        EventKind::IdleEntry { .. } => {
            silent.insert(event.cpu);
            false
        }
        EventKind::TimerInterrupt
        | EventKind::RescheduleInterrupt
        | EventKind::IpiInterrupt
        | EventKind::DeviceInterrupt
        | EventKind::Lost { .. } => {
            silent.remove(&event.cpu);
            false
        }
        EventKind::Switch { next: 0, .. } => false,
        EventKind::SwitchToTask | EventKind::Switch { .. } => silent.contains(&event.cpu),
        _ => false,
    })
}
