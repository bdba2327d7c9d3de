//! What a recording's events prove: which claims a log may make of it, and what to say of those that
//! it may not. `builder.rs` has the table.

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasherDefault;
use std::str::FromStr;

use rustc_hash::FxHasher;

use crate::doubt::List;
use crate::{Doubt, Event, EventKind, Tracepoints};

/// A tracepoint that a claim rests on.
struct Kind {
    tracepoint: Tracepoints,
    name: &'static str,
}

const fn kind(tracepoint: Tracepoints, name: &'static str) -> Kind {
    Kind { tracepoint, name }
}

/// Next timers, and which timer ended a stay.
const TIMERS: &[Kind] = &[
    kind(Tracepoints::HRTIMER_START, "timer:hrtimer_start"),
    kind(Tracepoints::HRTIMER_CANCEL, "timer:hrtimer_cancel"),
    kind(Tracepoints::HRTIMER_EXPIRE, "timer:hrtimer_expire_entry"),
    kind(Tracepoints::WHEEL_START, "timer:timer_start"),
    kind(Tracepoints::WHEEL_CANCEL, "timer:timer_cancel"),
    kind(Tracepoints::WHEEL_EXPIRE, "timer:timer_expire_entry"),
];

/// What interrupts an idle x86 CPU, but for vectors that report faults.
const X86_INTERRUPTS: &[Kind] = &[
    kind(Tracepoints::LOCAL_TIMER, "irq_vectors:local_timer_entry"),
    kind(Tracepoints::RESCHEDULE, "irq_vectors:reschedule_entry"),
    kind(Tracepoints::CALL_FUNCTION, "irq_vectors:call_function_entry"),
    kind(Tracepoints::CALL_FUNCTION_SINGLE, "irq_vectors:call_function_single_entry"),
    kind(Tracepoints::IRQ_WORK, "irq_vectors:irq_work_entry"),
    kind(Tracepoints::IRQ_HANDLER, "irq:irq_handler_entry"),
];

/// What interrupts an idle POWER CPU; IPIs of other cores are devices' there.
const POWER_INTERRUPTS: &[Kind] = &[
    kind(Tracepoints::POWER_TIMER, "powerpc:timer_interrupt_entry"),
    kind(Tracepoints::POWER_DOORBELL, "powerpc:doorbell_entry"),
    kind(Tracepoints::IRQ_HANDLER, "irq:irq_handler_entry"),
];

/// What Arm's timer and its IPIs are, as far as anything is recorded of them.
const ARM_TIMER: &str = "the timer's irq:irq_handler_entry";
const ARM_IPI: &str = "ipi:ipi_entry";

/// How much the recorded interrupts tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Interrupts {
    /// A kind that ends idle is missing: it may have come before any that was recorded.
    #[default]
    Incomplete,
    /// The trace has no list of what was recorded, and of some vector no interrupt occurs in it; but
    /// by all signs because none came. The first interrupt of a stay ended it; where none is, one of
    /// that vector may have been.
    Common,
    /// All are there. Where there is none, none was.
    Complete,
}

/// What a recording's events prove.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    tracepoints: Tracepoints,
    interrupts: Interrupts,
    missing_interrupts: Vec<TracepointName>,
    has_timer_interrupt: bool,
}

impl Evidence {
    /// What a trace with these tracepoints proves; `first` are its first events, which show the
    /// interrupts that have no tracepoint of their own.
    pub(crate) fn new(tracepoints: Tracepoints, first: &[Event]) -> Self {
        let has = |wanted| tracepoints.contains(wanted);
        let missing = |kinds: &[Kind]| {
            let missing = kinds.iter().filter(|kind| !has(kind.tracepoint));
            missing.map(|kind| TracepointName(kind.name)).collect::<Vec<_>>()
        };
        // On x86 no device is called like a timer or an IPI, so what occurs without its vectors
        // is another architecture's.
        let occurs = |wanted: fn(EventKind) -> bool| first.iter().any(|event| wanted(event.kind));
        let has_timer = occurs(|kind| kind == EventKind::TimerInterrupt);
        let has_ipi = has(Tracepoints::IPI_ENTRY)
            || occurs(|kind| {
                matches!(kind, EventKind::IpiInterrupt | EventKind::RescheduleInterrupt)
            });
        let power = Tracepoints::POWER_TIMER.union(Tracepoints::POWER_DOORBELL);
        let missing_interrupts = if tracepoints.intersects(Tracepoints::X86_VECTORS) {
            missing(X86_INTERRUPTS)
        } else if tracepoints.intersects(power) {
            missing(POWER_INTERRUPTS)
        } else if has_timer || has_ipi {
            let arm = [
                (has(Tracepoints::IRQ_HANDLER), "irq:irq_handler_entry"),
                (has_timer, ARM_TIMER),
                (has_ipi, ARM_IPI),
            ];
            let missing = arm.into_iter().filter(|(is_there, _)| !is_there);
            missing.map(|(_, name)| TracepointName(name)).collect()
        } else {
            missing(X86_INTERRUPTS)
        };
        let interrupts = if missing_interrupts.is_empty() {
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

    /// Whether the switches between tasks are known: which events happened in the idle task, and
    /// whether a task ran before a gap.
    pub(crate) fn tells_tasks(&self) -> bool {
        self.tracepoints.contains(Tracepoints::SCHED_SWITCH)
    }

    /// Whether all events of timers are known.
    pub(crate) fn tells_timers(&self) -> bool {
        self.tracepoints.contains(Tracepoints::TIMERS)
    }

    /// Whether it is known when the tick was stopped, and when it was started again.
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

    /// Whether a stay without any interrupt had none.
    pub(crate) fn tells_silence(&self) -> bool {
        self.tells_tasks() && self.interrupts == Interrupts::Complete
    }

    /// What was not recorded, and what is not claimed for it. `unjoined_count` is how many stays may
    /// have been ended by the tick alone, for all that is known.
    pub(crate) fn doubts(&self, unjoined_count: u64) -> Vec<Doubt> {
        let has = |tracepoint| self.tracepoints.contains(tracepoint);
        let tracepoints = || List(self.missing_interrupts.clone());
        let interrupts = match self.interrupts {
            Interrupts::Incomplete => Some(Doubt::NoInterrupts { tracepoints: tracepoints() }),
            Interrupts::Common => Some(Doubt::UnseenInterrupts { tracepoints: tracepoints() }),
            Interrupts::Complete => None,
        };
        let timers = TIMERS.iter().filter(|kind| !has(kind.tracepoint));
        let tracepoints = List(timers.map(|kind| TracepointName(kind.name)).collect());
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

/// The name of a tracepoint that a claim rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracepointName(&'static str);

impl fmt::Display for TracepointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl FromStr for TracepointName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let kinds = [X86_INTERRUPTS, POWER_INTERRUPTS, TIMERS].into_iter().flatten();
        let names = kinds.map(|kind| kind.name).chain([ARM_TIMER, ARM_IPI]);
        names.map(TracepointName).find(|name| name.0 == text).ok_or(())
    }
}

/// Whether a task ran after idle although no interrupt was seen: where CPUs wake each other without
/// interrupts, or where some of them were not recorded.
fn wakes_silently(events: &[Event]) -> bool {
    // CPUs that are idle, or were until now, and have had no interrupt since.
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
        EventKind::SwitchToTask => silent.contains(&event.cpu),
        _ => false,
    })
}
