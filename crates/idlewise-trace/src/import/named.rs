//! Events whose fields come by name instead of at a place: those of texts and of Perfetto's
//! messages. `EVENTS` lists every tracepoint that we read so; `tracepoint.rs` has the same list for
//! binary records.

use crate::Doubt;
use crate::event::{Event, EventKind, Tracepoints};
use crate::tracepoint::{
    Decoded, STATE_RUNNING, Width, interrupt_by_name, wheel_flags_without_cpu, wheel_start,
};

/// A field that we read, by the kernel's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    State,
    CpuId,
    Hrtimer,
    Timer,
    Function,
    Expires,
    SoftExpires,
    Now,
    /// What texts have instead of `now`: how far `expires` lies after it.
    Timeout,
    BucketExpiry,
    Cpu,
    Flags,
    Deferrable,
    Success,
    Vec,
    NextPid,
    TargetCpu,
}

const FIELD_COUNT: usize = 17;

impl Field {
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"state" => Self::State,
            b"cpu_id" => Self::CpuId,
            b"hrtimer" => Self::Hrtimer,
            b"timer" => Self::Timer,
            b"function" => Self::Function,
            b"expires" => Self::Expires,
            b"softexpires" => Self::SoftExpires,
            b"now" => Self::Now,
            b"timeout" => Self::Timeout,
            b"bucket_expiry" => Self::BucketExpiry,
            b"cpu" => Self::Cpu,
            b"flags" => Self::Flags,
            b"deferrable" => Self::Deferrable,
            b"success" => Self::Success,
            b"vec" => Self::Vec,
            b"next_pid" => Self::NextPid,
            b"target_cpu" => Self::TargetCpu,
            _ => return None,
        })
    }
}

/// The fields of one event.
#[derive(Clone, Copy, Default)]
pub(super) struct Fields<'a> {
    values: [u64; FIELD_COUNT],
    present: u32,
    /// An interrupt's name, or an IPI's reason.
    pub(super) name: &'a [u8],
}

impl Fields<'_> {
    /// Takes all fields out.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.present = 0;
        self.name = &[];
    }

    /// Sets a field; one that comes twice has its last value.
    #[inline]
    pub(super) fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = value;
        self.present |= 1 << field as u32;
    }

    #[inline]
    pub(super) fn get(&self, field: Field) -> Option<u64> {
        (self.present & 1 << field as u32 != 0).then_some(self.values[field as usize])
    }
}

/// A tracepoint that we read.
pub(super) struct NamedEvent {
    pub(super) name: &'static str,
    /// What a trace that has it can tell.
    pub(super) provides: Tracepoints,
    reading: Reading,
}

#[derive(Clone, Copy, Debug)]
enum Reading {
    CpuIdle,
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
    Wakeup(Field),
    /// That the event is there says all.
    Same(EventKind),
}

/// Every tracepoint that we read by its fields' names.
const EVENTS: &[NamedEvent] = &[
    row("sched_switch", Tracepoints::SCHED_SWITCH, Reading::SchedSwitch),
    row("cpu_idle", Tracepoints::CPU_IDLE, Reading::CpuIdle),
    row("sched_wakeup", Tracepoints::WAKEUP, Reading::Wakeup(Field::TargetCpu)),
    row("sched_wakeup_new", Tracepoints::EMPTY, Reading::Wakeup(Field::TargetCpu)),
    row("sched_wake_idle_without_ipi", Tracepoints::EMPTY, Reading::Wakeup(Field::Cpu)),
    row("hrtimer_start", Tracepoints::HRTIMER_START, Reading::HrtimerStart),
    row("hrtimer_cancel", Tracepoints::HRTIMER_CANCEL, Reading::HrtimerCancel),
    row("hrtimer_expire_entry", Tracepoints::HRTIMER_EXPIRE, Reading::HrtimerExpire),
    row("timer_start", Tracepoints::WHEEL_START, Reading::WheelStart),
    row("timer_cancel", Tracepoints::WHEEL_CANCEL, Reading::WheelCancel),
    row("timer_expire_entry", Tracepoints::WHEEL_EXPIRE, Reading::WheelExpire),
    row("tick_stop", Tracepoints::TICK_STOP, Reading::TickStop),
    row("irq_handler_entry", Tracepoints::IRQ_HANDLER, Reading::IrqHandler),
    row("ipi_entry", Tracepoints::IPI_ENTRY, Reading::IpiEntry),
    row("softirq_entry", Tracepoints::SOFTIRQ, Reading::Softirq),
    same("local_timer_entry", Tracepoints::LOCAL_TIMER, EventKind::TimerInterrupt),
    same("reschedule_entry", Tracepoints::RESCHEDULE, EventKind::RescheduleInterrupt),
    same("call_function_entry", Tracepoints::CALL_FUNCTION, EventKind::IpiInterrupt),
    same("call_function_single_entry", Tracepoints::CALL_FUNCTION_SINGLE, EventKind::IpiInterrupt),
    same("irq_work_entry", Tracepoints::IRQ_WORK, EventKind::IpiInterrupt),
    same("x86_platform_ipi_entry", Tracepoints::OTHER_VECTOR, EventKind::IpiInterrupt),
    same("timer_interrupt_entry", Tracepoints::POWER_TIMER, EventKind::TimerInterrupt),
    same("doorbell_entry", Tracepoints::POWER_DOORBELL, EventKind::IpiInterrupt),
    OTHER_VECTOR,
];

/// x86's interrupts that are none of the above.
const OTHER_VECTOR: NamedEvent =
    same("*_entry", Tracepoints::OTHER_VECTOR, EventKind::DeviceInterrupt);

const fn row(name: &'static str, provides: Tracepoints, reading: Reading) -> NamedEvent {
    NamedEvent { name, provides, reading }
}

const fn same(name: &'static str, provides: Tracepoints, kind: EventKind) -> NamedEvent {
    row(name, provides, Reading::Same(kind))
}

/// How many tracepoints there are; below it lies what [`find`] gives.
pub(super) const EVENT_COUNT: usize = EVENTS.len();

/// The number of the tracepoint of that name, without its system; `None` if no idle log needs it.
#[inline]
pub(super) fn find(name: &[u8]) -> Option<usize> {
    EVENTS.iter().position(|event| event.name.as_bytes() == name)
}

/// The number for an interrupt of x86 that has no row of its own; its only field is `vector`.
pub(super) fn find_vector(name: &[u8]) -> Option<usize> {
    name.ends_with(b"_entry").then_some(EVENT_COUNT - 1)
}

/// The tracepoint of that number.
pub(super) fn event(number: usize) -> &'static NamedEvent {
    &EVENTS[number]
}

/// What to say of events that only came after those that showed what the trace has.
pub(super) fn late_doubts(
    seen: impl Iterator<Item = &'static NamedEvent>,
    expected: Tracepoints,
) -> Vec<Doubt> {
    let late = seen.filter(|event| !expected.contains(event.provides));
    late.map(|event| Doubt::LateTracepoint { tracepoint: event.name.to_owned() }).collect()
}

impl NamedEvent {
    /// What the event says that happened on `cpu`.
    pub(super) fn decode(&self, fields: &Fields<'_>, cpu: u16) -> Decoded {
        let mut event = Event { at_ns: 0, cpu, kind: EventKind::IdleExit };
        match self.decode_into(fields, &mut event) {
            Some(true) => Decoded::Event { cpu: event.cpu, kind: event.kind },
            Some(false) => Decoded::Nothing,
            None => Decoded::Malformed,
        }
    }

    /// Sets what the event says that happened, and on which CPU where that is not the one whose
    /// buffer it came from. False if no idle log needs it, `None` if a field is missing or out of
    /// its range. The event is made where it stays: to move it at once would cost more than to read
    /// it, for the CPU can't load in one piece what it has just stored in several.
    #[inline(always)]
    pub(super) fn decode_into(&self, fields: &Fields<'_>, event: &mut Event) -> Option<bool> {
        let get = |field| fields.get(field);
        match self.reading {
            Reading::CpuIdle => {
                if let Some(cpu_id) = get(Field::CpuId) {
                    event.cpu = u16::try_from(cpu_id).ok()?;
                }
                // The exit's -1 is printed with or without a sign.
                event.kind = match get(Field::State)? as u32 {
                    STATE_RUNNING => EventKind::IdleExit,
                    state => EventKind::IdleEntry { state },
                };
            }
            Reading::HrtimerStart => {
                let expires_at_ns = get(Field::Expires)? as i64;
                let soft_ns = get(Field::SoftExpires);
                event.kind = EventKind::HrtimerStart {
                    timer: get(Field::Hrtimer)?,
                    function: get(Field::Function)?,
                    expires_at_ns,
                    has_slack: soft_ns.is_some_and(|soft_ns| (soft_ns as i64) < expires_at_ns),
                };
            }
            Reading::HrtimerCancel => {
                event.kind = EventKind::HrtimerCancel { timer: get(Field::Hrtimer)? };
            }
            Reading::HrtimerExpire => {
                event.kind = EventKind::HrtimerExpire {
                    timer: get(Field::Hrtimer)?,
                    function: get(Field::Function)?,
                    now_ns: get(Field::Now)? as i64,
                };
            }
            Reading::WheelStart => {
                let expires = get(Field::Expires)?;
                let now = match get(Field::Now) {
                    Some(now) => now,
                    None => expires.wrapping_sub(get(Field::Timeout)?),
                };
                let flags = match get(Field::Flags) {
                    Some(flags) => flags as u32,
                    None => wheel_flags_without_cpu(get(Field::Deferrable) > Some(0), event.cpu),
                };
                let timer = get(Field::Timer)?;
                let bucket = get(Field::BucketExpiry);
                event.kind = wheel_start(timer, now, expires, bucket, flags, Width::Eight);
            }
            Reading::WheelCancel => {
                event.kind = EventKind::WheelCancel { timer: get(Field::Timer)? };
            }
            Reading::WheelExpire => {
                let (timer, now_jiffies) = (get(Field::Timer)?, get(Field::Now)?);
                event.kind = EventKind::WheelExpire { timer, now_jiffies };
            }
            Reading::TickStop => match get(Field::Success)? {
                0 => return Some(false),
                _ => event.kind = EventKind::TickStop,
            },
            Reading::IrqHandler => event.kind = interrupt_by_name(fields.name),
            Reading::IpiEntry => event.kind = ipi_by_reason(fields.name),
            Reading::Softirq => {
                let vector = u8::try_from(get(Field::Vec)?).ok()?;
                event.kind = EventKind::Softirq { vector };
            }
            Reading::SchedSwitch => {
                event.kind = match get(Field::NextPid)? {
                    0 => EventKind::SwitchToIdle,
                    _ => EventKind::SwitchToTask,
                };
            }
            Reading::Wakeup(target) => {
                let target_cpu = u16::try_from(get(target)?).ok()?;
                event.kind = EventKind::Wakeup { target_cpu };
            }
            Reading::Same(kind) => event.kind = kind,
        }
        Some(true)
    }
}

/// Arm's IPIs by what their `ipi_entry` gives as the reason (arch/arm64/kernel/smp.c).
fn ipi_by_reason(reason: &[u8]) -> EventKind {
    match reason {
        b"Rescheduling interrupts" => EventKind::RescheduleInterrupt,
        b"Timer broadcast interrupts" => EventKind::TimerInterrupt,
        _ => EventKind::IpiInterrupt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(name: &str, fields: &[(Field, u64)]) -> Decoded {
        let mut set = Fields::default();
        for &(field, value) in fields {
            set.set(field, value);
        }
        event(find(name.as_bytes()).unwrap()).decode(&set, 3)
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for (number, row) in EVENTS.iter().enumerate() {
            assert_eq!(find(row.name.as_bytes()), Some(number), "{}", row.name);
        }
    }

    #[test]
    fn idle_exit_is_minus_one_of_any_width() {
        for state in [u64::from(u32::MAX), u64::MAX] {
            let decoded = decode("cpu_idle", &[(Field::State, state), (Field::CpuId, 1)]);
            assert_eq!(decoded, Decoded::Event { cpu: 1, kind: EventKind::IdleExit });
        }
    }

    #[test]
    fn a_timer_without_bucket_now_and_flags_is_still_a_timer() {
        // A text of Linux 3.10; the wheel puts 250 jiffies ahead into a bucket 8 wide.
        let decoded = decode(
            "timer_start",
            &[(Field::Timer, 0xd0), (Field::Expires, 1_250), (Field::Timeout, 250)],
        );
        let EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies, flags } = (match decoded {
            Decoded::Event { kind, .. } => kind,
            other => panic!("{other:?}"),
        }) else {
            panic!("{decoded:?}")
        };
        assert_eq!((timer, bucket_jiffies, ahead_jiffies, flags), (0xd0, 1_256, 256, 3));
    }

    #[test]
    fn what_lacks_a_field_is_malformed() {
        for name in ["cpu_idle", "hrtimer_start", "timer_start", "sched_switch", "sched_wakeup"] {
            assert_eq!(decode(name, &[]), Decoded::Malformed, "{name}");
        }
        let far = [(Field::State, 0), (Field::CpuId, 1 << 16)];
        assert_eq!(decode("cpu_idle", &far), Decoded::Malformed);
    }
}
