//! Decodes events whose fields have names instead of offsets: those of texts and of Perfetto.

use crate::Doubt;
use crate::event::{Event, EventKind, NonZeroTask, TaskName, Tracepoints};
use crate::tracepoint::{
    Decoded, FieldName, Purpose, Reading, STATE_RUNNING, TRACEPOINTS, Tracepoint, Width, context,
    interrupt_by_name, leaving, task, wheel_flags_without_cpu, wheel_start,
};

/// The fields of one event.
#[derive(Clone, Copy, Default)]
pub(super) struct Fields<'a> {
    values: [u64; FieldName::COUNT],
    present: u32,
    /// An interrupt's name, an IPI's reason, or the name of the task that is switched to.
    pub(super) name: &'a [u8],
}

impl Fields<'_> {
    /// Removes all fields.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.present = 0;
        self.name = &[];
    }

    /// Sets a field. If it is set twice, the last value counts.
    #[inline]
    pub(super) fn set(&mut self, field: FieldName, value: u64) {
        self.values[field as usize] = value;
        self.present |= 1 << field as u32;
    }

    #[inline]
    pub(super) fn get(&self, field: FieldName) -> Option<u64> {
        (self.present & 1 << field as u32 != 0).then_some(self.values[field as usize])
    }
}

/// The number of tracepoints. What [`find`] returns is below it.
pub(super) const EVENT_COUNT: usize = TRACEPOINTS.len();

/// The tracepoint's number by name, without its system; `None` if it is not needed for that purpose.
#[inline]
pub(super) fn find(name: &[u8], purpose: Purpose) -> Option<usize> {
    let is_it = |row: &Tracepoint| row.name.as_bytes() == name && row.serves(purpose);
    TRACEPOINTS.iter().position(is_it)
}

/// The number for an x86 interrupt that has no row of its own. Its only field is `vector`.
pub(super) fn find_vector(name: &[u8], purpose: Purpose) -> Option<usize> {
    if name.ends_with(b"_entry") {
        return find(b"*_entry", purpose);
    }
    name.ends_with(b"_exit").then(|| find(b"*_exit", purpose))?
}

/// The tracepoint with that number.
pub(super) fn event(number: usize) -> &'static Tracepoint {
    &TRACEPOINTS[number]
}

/// Doubts about kinds of events that occurred only after the part that was surveyed.
pub(super) fn late_doubts(
    seen: impl Iterator<Item = &'static Tracepoint>,
    expected: Tracepoints,
) -> Vec<Doubt> {
    // No gap rests on stores, and a fork is a rare event.
    let expected = expected.union(Tracepoints::STORE_SENT).union(Tracepoints::FORK);
    let late = seen.filter(|event| !expected.contains(event.provides));
    late.map(|event| Doubt::LateTracepoint { tracepoint: event.name.to_owned() }).collect()
}

impl Tracepoint {
    /// Decodes what happened on `cpu`.
    pub(in crate::import) fn decode(
        &self,
        fields: &Fields<'_>,
        cpu: u16,
        purpose: Purpose,
    ) -> Decoded {
        let mut event = Event { at_ns: 0, cpu, kind: EventKind::IdleExit };
        match self.decode_into(fields, &mut event, purpose) {
            Some(true) => Decoded::Event { cpu: event.cpu, kind: event.kind },
            Some(false) => Decoded::Nothing,
            None => Decoded::Malformed,
        }
    }

    /// Decodes into `event`: what happened, and on which CPU if that is not the one whose buffer it
    /// came from. Returns false if no idle log needs it, `None` if a field is missing or out of
    /// range. The event is built in its final place. Moving it right away would cost more than
    /// reading it, because a CPU cannot load in one piece what it has just stored in several.
    #[inline(always)]
    pub(in crate::import) fn decode_into(
        &self,
        fields: &Fields<'_>,
        event: &mut Event,
        purpose: Purpose,
    ) -> Option<bool> {
        let get = |field| fields.get(field);
        match self.reading {
            Reading::CpuIdle => {
                if let Some(cpu_id) = get(FieldName::CpuId) {
                    event.cpu = u16::try_from(cpu_id).ok()?;
                }
                // The exit's -1 may be printed as signed or unsigned.
                event.kind = match get(FieldName::State)? as u32 {
                    STATE_RUNNING => EventKind::IdleExit,
                    state => EventKind::IdleEntry { state },
                };
            }
            Reading::CpuFrequency => {
                event.cpu = u16::try_from(get(FieldName::CpuId)?).ok()?;
                let khz = u32::try_from(get(FieldName::State)?).ok()?;
                event.kind = EventKind::Frequency { khz };
            }
            Reading::HrtimerStart => {
                let expires_at_ns = get(FieldName::Expires)? as i64;
                let soft_ns = get(FieldName::SoftExpires);
                event.kind = EventKind::HrtimerStart {
                    timer: get(FieldName::Hrtimer)?,
                    function: get(FieldName::Function)?,
                    expires_at_ns,
                    has_slack: soft_ns.is_some_and(|soft_ns| (soft_ns as i64) < expires_at_ns),
                };
            }
            Reading::HrtimerCancel => {
                event.kind = EventKind::HrtimerCancel { timer: get(FieldName::Hrtimer)? };
            }
            Reading::HrtimerExpire => {
                event.kind = EventKind::HrtimerExpire {
                    timer: get(FieldName::Hrtimer)?,
                    function: get(FieldName::Function)?,
                    now_ns: get(FieldName::Now)? as i64,
                };
            }
            Reading::WheelStart => {
                let expires = get(FieldName::Expires)?;
                let now = match get(FieldName::Now) {
                    Some(now) => now,
                    None => expires.wrapping_sub(get(FieldName::Timeout)?),
                };
                let flags = match get(FieldName::Flags) {
                    Some(flags) => flags as u32,
                    None => {
                        wheel_flags_without_cpu(get(FieldName::Deferrable) > Some(0), event.cpu)
                    }
                };
                let timer = get(FieldName::Timer)?;
                let bucket = get(FieldName::BucketExpiry);
                event.kind = wheel_start(timer, now, expires, bucket, flags, Width::Eight);
            }
            Reading::WheelCancel => {
                event.kind = EventKind::WheelCancel { timer: get(FieldName::Timer)? };
            }
            Reading::WheelExpire => {
                let (timer, now_jiffies) = (get(FieldName::Timer)?, get(FieldName::Now)?);
                event.kind = EventKind::WheelExpire { timer, now_jiffies };
            }
            Reading::TickStop => match get(FieldName::Success)? {
                0 => return Some(false),
                _ => event.kind = EventKind::TickStop,
            },
            Reading::IrqHandler => event.kind = interrupt_by_name(fields.name),
            Reading::IpiEntry => event.kind = ipi_by_reason(fields.name),
            Reading::Softirq => {
                let vector = u8::try_from(get(FieldName::Vec)?).ok()?;
                event.kind = EventKind::Softirq { vector };
            }
            Reading::SchedSwitch if purpose.needs_tasks() => {
                event.kind = EventKind::Switch {
                    prev: NonZeroTask::new(task(get(FieldName::PrevPid)?)?),
                    next: task(get(FieldName::NextPid)?)?,
                    leaves: leaving(get(FieldName::PrevState)?),
                    next_name: TaskName::new(fields.name),
                };
            }
            Reading::SchedSwitch => {
                event.kind = match get(FieldName::NextPid)? {
                    0 => EventKind::SwitchToIdle,
                    _ => EventKind::SwitchToTask,
                };
            }
            Reading::WakeupNew if purpose == Purpose::Causes => {
                event.kind = EventKind::Fork { task: task(get(FieldName::Pid)?)? };
            }
            Reading::WakeupNew => {
                let target_cpu = u16::try_from(get(FieldName::TargetCpu)?).ok()?;
                event.kind = EventKind::Wakeup { target_cpu };
            }
            Reading::Wakeup(target) => {
                let target_cpu = u16::try_from(get(target)?).ok()?;
                event.kind = EventKind::Wakeup { target_cpu };
            }
            Reading::Waking => {
                let context = context(get(FieldName::CommonFlags));
                event.kind = EventKind::Waking { task: task(get(FieldName::Pid)?)?, context };
            }
            Reading::InterruptExit => event.kind = EventKind::InterruptExit,
            Reading::SoftirqExit => event.kind = EventKind::SoftirqExit,
            Reading::StoreSent => {
                let target_cpu = u16::try_from(get(FieldName::Cpu)?).ok()?;
                event.kind = EventKind::StoreSent { target_cpu };
            }
            // They are not read from texts and Perfetto's messages.
            Reading::IpiSent | Reading::IpiSentToMany | Reading::DriverWake => return Some(false),
            Reading::Same(kind) => event.kind = kind,
        }
        Some(true)
    }
}

/// Arm's IPIs, by the reason that `ipi_entry` gives (arch/arm64/kernel/smp.c).
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
    use crate::tracepoint::TIMER_PINNED;

    fn decode(name: &str, fields: &[(FieldName, u64)]) -> Decoded {
        let mut set = Fields::default();
        for &(field, value) in fields {
            set.set(field, value);
        }
        event(find(name.as_bytes(), Purpose::Gaps).unwrap()).decode(&set, 3, Purpose::Gaps)
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        for (number, row) in TRACEPOINTS.iter().enumerate() {
            for purpose in Purpose::ALL {
                let expected = row.serves(purpose).then_some(number);
                assert_eq!(find(row.name.as_bytes(), purpose), expected, "{}", row.name);
            }
        }
    }

    #[test]
    fn idle_exit_is_minus_one_of_any_width() {
        for state in [u64::from(u32::MAX), u64::MAX] {
            let decoded = decode("cpu_idle", &[(FieldName::State, state), (FieldName::CpuId, 1)]);
            assert_eq!(decoded, Decoded::Event { cpu: 1, kind: EventKind::IdleExit });
        }
    }

    #[test]
    fn a_timer_without_bucket_now_and_flags_is_still_a_timer() {
        // From a text of Linux 3.10. The wheel puts 250 jiffies ahead into a bucket 8 wide.
        let decoded = decode(
            "timer_start",
            &[(FieldName::Timer, 0xd0), (FieldName::Expires, 1_250), (FieldName::Timeout, 250)],
        );
        let EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies, flags } = (match decoded {
            Decoded::Event { kind, .. } => kind,
            other => panic!("{other:?}"),
        }) else {
            panic!("{decoded:?}")
        };
        assert_eq!((timer, bucket_jiffies, ahead_jiffies), (0xd0, 1_256, 256));
        assert_eq!(flags, TIMER_PINNED | 3);
    }

    #[test]
    fn what_lacks_a_field_is_malformed() {
        for name in ["cpu_idle", "hrtimer_start", "timer_start", "sched_switch", "sched_wakeup"] {
            assert_eq!(decode(name, &[]), Decoded::Malformed, "{name}");
        }
        let far = [(FieldName::State, 0), (FieldName::CpuId, 1 << 16)];
        assert_eq!(decode("cpu_idle", &far), Decoded::Malformed);
    }
}
