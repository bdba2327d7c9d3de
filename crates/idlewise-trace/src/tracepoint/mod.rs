//! The tracepoints that we read, and how to read them. `TRACEPOINTS` lists each once.
//!
//! | file | holds |
//! | --- | --- |
//! | `format.rs` | [`EventFormat`]: where each field of a record is, according to the kernel |
//! | `name.rs` | [`TracepointName`]: a tracepoint as doubts name it |
//! | `plan.rs` | [`Decoder`]: a description compiled into the fields that we read |
//! | `wheel.rs` | the jiffy in which the timer wheel fires a timer |
//!
//! Each tracepoint has a `format` file (`/sys/kernel/tracing/events/SYSTEM/NAME/format`) with the
//! offset of each field, and a recorder copies the files it used into its trace. Fields move
//! between kernels, so an event is read by field name using the trace's own description, never at
//! fixed offsets. In texts and Perfetto's messages fields have names instead of offsets: see
//! `import/named.rs`.
//!
//! Files and clocks are not handled here, but in `import/`.

mod format;
mod name;
mod plan;
mod wheel;

use crate::event::{EventKind, Leaving, Tracepoints, WakeContext};

pub use format::{EventFormat, Field, UnreadableTracepoint};
pub(crate) use format::{Int, Width};
pub use name::TracepointName;
pub use plan::Decoder;
pub(crate) use wheel::{TIMER_DEFERRABLE, TIMER_PINNED, wheel_flags_without_cpu, wheel_start};

/// A tracepoint that we read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tracepoint {
    pub(crate) system: &'static str,
    /// Its name. A star in front means that only the end of the name is given.
    pub(crate) name: &'static str,
    /// The tracepoints that a trace with it provides.
    pub(crate) provides: Tracepoints,
    pub(crate) reading: Reading,
    recorded: Recorded,
}

/// How to interpret an event's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    CpuIdle,
    CpuFrequency,
    HrtimerStart,
    HrtimerCancel,
    HrtimerExpire,
    WheelStart,
    WheelCancel,
    WheelExpire,
    TickStop,
    IrqHandler,
    IpiEntry,
    Softirq,
    SchedSwitch,
    /// The field contains the CPU.
    Wakeup(FieldName),
    WakeupNew,
    Waking,
    InterruptExit,
    SoftirqExit,
    StoreSent,
    IpiSent,
    IpiSentToMany,
    DriverWake,
    /// The event has no fields that matter.
    Same(EventKind),
}

const TIMER: Reading = Reading::Same(EventKind::TimerInterrupt);
const RESCHEDULE: Reading = Reading::Same(EventKind::RescheduleInterrupt);
const IPI: Reading = Reading::Same(EventKind::IpiInterrupt);
const DEVICE: Reading = Reading::Same(EventKind::DeviceInterrupt);

/// Whether a recorder should ask the kernel for an event, and with which filter. The filter drops
/// what the gap builder would not use.
///
/// Between two idle entries of a CPU the builder needs the first interrupt, the timers that fired,
/// and whether a task ran. While it looks for them the idle task is running, so an interrupt during
/// a task is of no use to it. Neither is a switch between tasks, or to the idle task, which goes
/// idle next and has an event for that. Timers are armed and cancelled anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// We read it if others recorded it.
    Never,
    Always,
    /// Recorded with this filter, in the kernel's syntax. It changes no gap.
    Where(&'static str),
}

use Recorded::{Always, Never, Where};

const IN_IDLE_TASK: Recorded = Where("common_pid == 0");

/// Every tracepoint that we read. The first row that matches an event counts. A kernel has only
/// some of them, because interrupt events differ between architectures.
#[rustfmt::skip]
pub(crate) const TRACEPOINTS: &[Tracepoint] = &[
    row("power", "cpu_idle", Tracepoints::CPU_IDLE, Reading::CpuIdle, Always),
    row("power", "cpu_frequency", Tracepoints::CPU_FREQUENCY, Reading::CpuFrequency, Never),
    row("sched", "sched_switch", Tracepoints::SCHED_SWITCH, Reading::SchedSwitch, Where("prev_pid == 0")),
    row("sched", "sched_wakeup", Tracepoints::WAKEUP, Reading::Wakeup(FieldName::TargetCpu), Never),
    row("sched", "sched_wakeup_new", Tracepoints::FORK, Reading::WakeupNew, Never),
    row("sched", "sched_waking", Tracepoints::WAKING, Reading::Waking, Never),
    row("sched", "sched_wake_idle_without_ipi", Tracepoints::STORE_SENT, Reading::StoreSent, Never),
    row("timer", "hrtimer_start", Tracepoints::HRTIMER_START, Reading::HrtimerStart, Always),
    row("timer", "hrtimer_cancel", Tracepoints::HRTIMER_CANCEL, Reading::HrtimerCancel, Always),
    row("timer", "hrtimer_expire_entry", Tracepoints::HRTIMER_EXPIRE, Reading::HrtimerExpire, Always),
    row("timer", "timer_start", Tracepoints::WHEEL_START, Reading::WheelStart, Always),
    row("timer", "timer_cancel", Tracepoints::WHEEL_CANCEL, Reading::WheelCancel, Always),
    row("timer", "timer_expire_entry", Tracepoints::WHEEL_EXPIRE, Reading::WheelExpire, Always),
    row("timer", "tick_stop", Tracepoints::TICK_STOP, Reading::TickStop, Where("success != 0")),
    row("irq_vectors", "local_timer_entry", Tracepoints::LOCAL_TIMER, TIMER, IN_IDLE_TASK),
    row("irq_vectors", "reschedule_entry", Tracepoints::RESCHEDULE, RESCHEDULE, IN_IDLE_TASK),
    row("irq_vectors", "call_function_entry", Tracepoints::CALL_FUNCTION, IPI, IN_IDLE_TASK),
    row("irq_vectors", "call_function_single_entry", Tracepoints::CALL_FUNCTION_SINGLE, IPI, IN_IDLE_TASK),
    row("irq_vectors", "irq_work_entry", Tracepoints::IRQ_WORK, IPI, IN_IDLE_TASK),
    row("irq_vectors", "x86_platform_ipi_entry", Tracepoints::OTHER_VECTOR, IPI, IN_IDLE_TASK),
    row("irq_vectors", "*_entry", Tracepoints::OTHER_VECTOR, DEVICE, IN_IDLE_TASK),
    row("irq_vectors", "*_exit", Tracepoints::VECTOR_EXIT, Reading::InterruptExit, Never),
    row("ipi", "ipi_send_cpu", Tracepoints::IPI_SENT, Reading::IpiSent, Never),
    row("ipi", "ipi_send_cpumask", Tracepoints::IPI_SENT_TO_MANY, Reading::IpiSentToMany, Never),
    row("ipi", "ipi_entry", Tracepoints::IPI_ENTRY, Reading::IpiEntry, IN_IDLE_TASK),
    row("powerpc", "timer_interrupt_entry", Tracepoints::POWER_TIMER, TIMER, IN_IDLE_TASK),
    row("powerpc", "doorbell_entry", Tracepoints::POWER_DOORBELL, IPI, IN_IDLE_TASK),
    row("irq", "irq_handler_entry", Tracepoints::IRQ_HANDLER, Reading::IrqHandler, IN_IDLE_TASK),
    row("irq", "irq_handler_exit", Tracepoints::IRQ_HANDLER_EXIT, Reading::InterruptExit, Never),
    row("idlewise", "idlewise_wake", Tracepoints::DRIVER_WAKE, Reading::DriverWake, Always),
    row("irq", "softirq_entry", Tracepoints::SOFTIRQ, Reading::Softirq, Never),
    row("irq", "softirq_exit", Tracepoints::SOFTIRQ_EXIT, Reading::SoftirqExit, Never),
];

const fn row(
    system: &'static str,
    name: &'static str,
    provides: Tracepoints,
    reading: Reading,
    recorded: Recorded,
) -> Tracepoint {
    Tracepoint { system, name, provides, reading, recorded }
}

/// What the events of a trace are read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// For an idle log. What only says who sends wakes is left out.
    #[default]
    Gaps,
    /// For wake-ups of idle CPUs ([`crate::wakes`]). Timers are left out.
    Wakes,
    /// For a workload log ([`crate::causes`]): which task woke which, and what each of them ran.
    Causes,
    /// For what ran when, and how fast ([`crate::running`]).
    Running,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [Self::Gaps, Self::Wakes, Self::Causes, Self::Running];

    /// Whether a switch is read with both tasks.
    pub(crate) fn needs_tasks(self) -> bool {
        matches!(self, Self::Causes | Self::Running)
    }
}

impl Tracepoint {
    /// Whether this row is read for that purpose.
    pub(crate) fn serves(&self, purpose: Purpose) -> bool {
        match self.reading {
            Reading::CpuIdle | Reading::SchedSwitch => true,
            Reading::CpuFrequency => purpose == Purpose::Running,
            _ if purpose == Purpose::Running => false,
            Reading::IpiSent | Reading::IpiSentToMany | Reading::DriverWake => {
                purpose == Purpose::Wakes
            }
            Reading::IrqHandler | Reading::IpiEntry | Reading::Same(_) => true,
            Reading::StoreSent => purpose != Purpose::Causes,
            Reading::HrtimerStart
            | Reading::HrtimerCancel
            | Reading::HrtimerExpire
            | Reading::WheelStart
            | Reading::WheelCancel
            | Reading::WheelExpire
            | Reading::Softirq
            | Reading::WakeupNew => purpose != Purpose::Wakes,
            Reading::TickStop | Reading::Wakeup(_) => purpose == Purpose::Gaps,
            Reading::Waking | Reading::InterruptExit | Reading::SoftirqExit => {
                purpose == Purpose::Causes
            }
        }
    }

    /// Whether this row describes `system:name`.
    pub(crate) fn matches(&self, system: &str, name: &str) -> bool {
        self.system == system
            && match self.name.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix),
                None => name == self.name,
            }
    }
}

/// An event to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedEvent {
    row: &'static Tracepoint,
    /// The filter, in the kernel's syntax. It changes no gap.
    pub filter: Option<&'static str>,
}

impl WantedEvent {
    /// Its system, as tracefs names it.
    pub fn system(&self) -> &'static str {
        self.row.system
    }

    /// Its name; `*` stands for any beginning.
    pub fn name(&self) -> &'static str {
        self.row.name
    }

    /// Returns whether this is the event `system:name`. One value may stand for several events.
    pub fn matches(&self, system: &str, name: &str) -> bool {
        self.row.matches(system, name)
    }
}

/// Returns every event that the gap builder uses, each once, and our driver's. A kernel has only some of
/// them.
pub fn wanted_events() -> impl Iterator<Item = WantedEvent> {
    rows().filter(|wanted| wanted.row.recorded != Never)
}

/// Returns every event from which wake-ups of idle CPUs follow ([`crate::wakes`]), each once. A kernel has
/// only some of them.
pub fn wake_events() -> impl Iterator<Item = WantedEvent> {
    rows().filter(|wanted| wanted.row.serves(Purpose::Wakes))
}

/// Returns the events of [`wanted_events`] and those that causes follow from, each once. No filter drops
/// what either of the two uses.
pub fn cause_events() -> impl Iterator<Item = WantedEvent> {
    let is_wanted = |row: &Tracepoint| row.recorded != Never || row.serves(Purpose::Causes);
    rows().filter(move |wanted| is_wanted(wanted.row)).map(|wanted| {
        let filter = wanted.filter.filter(|_| !wanted.row.serves(Purpose::Causes));
        WantedEvent { filter, ..wanted }
    })
}

/// The rows with their filters, without those that a wider one covers.
fn rows() -> impl Iterator<Item = WantedEvent> {
    let is_covered = |row: &Tracepoint| {
        TRACEPOINTS.iter().any(|other| other != row && other.matches(row.system, row.name))
    };
    TRACEPOINTS.iter().filter(move |row| !is_covered(row)).map(|row| {
        let filter = match row.recorded {
            Never | Always => None,
            Where(filter) => Some(filter),
        };
        WantedEvent { row, filter }
    })
}

macro_rules! field_names {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// A field that we read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum FieldName {
            $($(#[$doc])* $field,)*
        }

        impl FieldName {
            pub(crate) const COUNT: usize = [$(Self::$field),*].len();

            /// The kernel's name for it.
            pub(crate) fn name(self) -> &'static str {
                let name: &[u8] = match self {
                    $(Self::$field => $name,)*
                };
                std::str::from_utf8(name).unwrap_or_default()
            }

            #[inline]
            pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
                match name {
                    $($name => Some(Self::$field),)*
                    _ => None,
                }
            }
        }
    };
}

field_names! {
    State = b"state",
    CpuId = b"cpu_id",
    Hrtimer = b"hrtimer",
    Timer = b"timer",
    Function = b"function",
    Expires = b"expires",
    SoftExpires = b"softexpires",
    Now = b"now",
    /// What texts have instead of `now`: how far in the future `expires` is.
    Timeout = b"timeout",
    BucketExpiry = b"bucket_expiry",
    Cpu = b"cpu",
    Flags = b"flags",
    Deferrable = b"deferrable",
    Success = b"success",
    Vec = b"vec",
    NextPid = b"next_pid",
    PrevPid = b"prev_pid",
    /// The state of the task that leaves, as the kernel's bits.
    PrevState = b"prev_state",
    Pid = b"pid",
    /// What ran when the event happened: [`FLAG_INTERRUPT`] and [`FLAG_SOFTIRQ`].
    CommonFlags = b"common_flags",
    TargetCpu = b"target_cpu",
    Cpumask = b"cpumask",
    Reason = b"reason",
}

/// The content of a record of a known tracepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An event, and the CPU on which it happened.
    Event {
        /// The CPU.
        cpu: u16,
        /// What happened.
        kind: EventKind,
    },
    /// Something that no idle log needs, such as a `tick_stop` that failed.
    Nothing,
    /// The record is shorter than its description says, or a field is out of range.
    Malformed,
}

/// The state in a `cpu_idle` event when a CPU leaves idle.
pub(crate) const STATE_RUNNING: u32 = u32::MAX;

/// Bits of an event's common flags (`include/linux/trace_events.h`).
const FLAG_INTERRUPT: u64 = 0x08;
const FLAG_SOFTIRQ: u64 = 0x10;
/// Bits of a task's state as `sched_switch` has them: those that tell what the task waits for, and
/// `EXIT_DEAD` with `EXIT_ZOMBIE`. A task without any of them could go on.
const STATE_WAITS: u64 = 0xff;
const STATE_ENDED: u64 = 0x30;

/// Where something was done, by the event's common flags.
pub(crate) fn context(common_flags: Option<u64>) -> WakeContext {
    match common_flags {
        None => WakeContext::Unknown,
        Some(flags) if flags & FLAG_INTERRUPT != 0 => WakeContext::Interrupt,
        Some(flags) if flags & FLAG_SOFTIRQ != 0 => WakeContext::Softirq,
        Some(_) => WakeContext::Task,
    }
}

/// A task's number, which the kernel counts with 31 bits.
pub(crate) fn task(pid: u64) -> Option<u32> {
    i32::try_from(pid).ok().and_then(|pid| u32::try_from(pid).ok())
}

/// Why a task leaves, by its state.
pub(crate) fn leaving(prev_state: u64) -> Leaving {
    match prev_state {
        state if state & STATE_WAITS == 0 => Leaving::Runnable,
        state if state & STATE_ENDED != 0 => Leaving::Ends,
        _ => Leaving::Waits,
    }
}

/// The kind of an interrupt, by the name that its driver gave it. On processors without vectors
/// this includes timers and IPIs.
pub(crate) fn interrupt_by_name(name: &[u8]) -> EventKind {
    match name {
        // Arm's architected timer and its predecessor, RISC-V's, Exynos's.
        b"arch_timer" | b"twd" | b"riscv-timer" | b"MCT" => EventKind::TimerInterrupt,
        name if name.starts_with(b"mct_tick") => EventKind::TimerInterrupt,
        // Arm since Linux 5.11; POWER numbers them by node: `IPI-0`.
        b"IPI" => EventKind::IpiInterrupt,
        name if name.starts_with(b"IPI-") => EventKind::IpiInterrupt,
        _ => EventKind::DeviceInterrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_with_a_row_of_its_own_is_wanted_once() {
        let of =
            |name| wanted_events().filter(|wanted| wanted.matches("irq_vectors", name)).count();
        assert_eq!(
            (of("reschedule_entry"), of("thermal_apic_entry"), of("reschedule_exit")),
            (1, 1, 0)
        );
        assert!(wanted_events().all(|wanted| !wanted.matches("sched", "sched_wakeup")));
    }

    #[test]
    fn who_sends_wakes_is_wanted_for_wakes_alone() {
        for (system, name) in [
            ("sched", "sched_wake_idle_without_ipi"),
            ("ipi", "ipi_send_cpu"),
            ("ipi", "ipi_send_cpumask"),
        ] {
            assert!(wanted_events().all(|wanted| !wanted.matches(system, name)), "{name}");
            assert_eq!(wake_events().filter(|wanted| wanted.matches(system, name)).count(), 1);
        }
        // What the driver knows is taken along in recordings too.
        let is_driver = |wanted: &WantedEvent| wanted.matches("idlewise", "idlewise_wake");
        assert!(wanted_events().any(|wanted| is_driver(&wanted)));
        assert!(wake_events().any(|wanted| is_driver(&wanted)));
        assert!(wake_events().all(|wanted| !wanted.matches("timer", "hrtimer_start")));
    }

    #[test]
    fn causes_need_events_whole_that_gaps_do_not_need() {
        let filter_of = |system: &str, name: &str| {
            let mut wanted = cause_events().filter(|wanted| wanted.matches(system, name));
            let filter = wanted.next().map(|wanted| wanted.filter);
            assert!(wanted.next().is_none(), "{name} is wanted twice");
            filter
        };
        for (system, name) in [
            ("sched", "sched_waking"),
            ("sched", "sched_wakeup_new"),
            ("irq", "softirq_exit"),
            ("irq", "irq_handler_exit"),
            ("irq_vectors", "local_timer_exit"),
        ] {
            assert_eq!(filter_of(system, name), Some(None), "{name}");
            assert!(wanted_events().all(|wanted| !wanted.matches(system, name)), "{name}");
        }
        for (system, name) in [
            ("sched", "sched_switch"),
            ("irq_vectors", "local_timer_entry"),
            ("timer", "hrtimer_start"),
        ] {
            assert_eq!(filter_of(system, name), Some(None), "{name}");
        }
        // Nothing that neither gaps nor causes are made of.
        assert_eq!(filter_of("sched", "sched_wakeup"), None);
        assert_eq!(filter_of("sched", "sched_wake_idle_without_ipi"), None);
        assert_eq!(filter_of("timer", "tick_stop"), Some(Some("success != 0")));
        // An idle log can be made of the same recording.
        for wanted in wanted_events() {
            assert!(cause_events().any(|other| other.row == wanted.row), "{wanted:?}");
        }
    }

    #[test]
    fn a_task_leaves_to_wait_or_because_another_one_is_to_run() {
        for (state, expected) in [
            (0, Leaving::Runnable),
            // TASK_REPORT_MAX marks a task that was preempted.
            (0x100, Leaving::Runnable),
            (1, Leaving::Waits),
            (2, Leaving::Waits),
            (0x80, Leaving::Waits),
            (0x10, Leaving::Ends),
            (0x20, Leaving::Ends),
        ] {
            assert_eq!(leaving(state), expected, "{state}");
        }
    }

    #[test]
    fn every_field_has_a_name_of_its_own() {
        assert_eq!(FieldName::from_name(b"vec"), Some(FieldName::Vec));
        assert_eq!(
            FieldName::from_name(FieldName::Expires.name().as_bytes()),
            Some(FieldName::Expires)
        );
        assert_eq!(FieldName::Reason as usize + 1, FieldName::COUNT);
    }
}
