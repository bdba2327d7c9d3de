//! Compiles a tracepoint's description into the offsets of the fields that we read.

use super::format::{EventFormat, Int, UnreadableTracepoint, bytes_at, string_at};
use super::wheel::{wheel_flags_without_cpu, wheel_start};
use super::{
    Decoded, FieldName, Purpose, Reading, STATE_RUNNING, TRACEPOINTS, context, interrupt_by_name,
    leaving, task,
};
use crate::byte_order::ByteOrder;
use crate::event::{EventKind, NonZeroTask, TaskName, Tracepoints};

/// Reads the records of one tracepoint.
#[derive(Clone, Debug)]
pub struct Decoder {
    order: ByteOrder,
    provides: Tracepoints,
    plan: FieldPlan,
}

impl Decoder {
    /// Compiles the description of `system:format.name`; `None` if the event is not needed for that purpose.
    ///
    /// # Errors
    /// Fails if the description lacks a field that we need.
    pub fn compile(
        system: &str,
        format: &EventFormat,
        order: ByteOrder,
        purpose: Purpose,
    ) -> Result<Option<Self>, UnreadableTracepoint> {
        let known = TRACEPOINTS.iter().find(|known| known.matches(system, &format.name));
        let Some(known) = known.filter(|known| known.serves(purpose)) else { return Ok(None) };
        let plan = FieldPlan::compile(known.reading, format, purpose)?;
        Ok(Some(Self { order, provides: known.provides, plan }))
    }

    /// Returns the tracepoints that a trace with this one provides.
    pub fn provides(&self) -> Tracepoints {
        self.provides
    }

    /// Reads one record, which begins with its common fields and was recorded on `cpu`.
    #[inline]
    pub fn decode(&self, record: &[u8], cpu: u16) -> Decoded {
        match self.plan.decode(record, self.order, cpu) {
            Some(decoded) => decoded,
            None => Decoded::Malformed,
        }
    }
}

/// Where the fields of a tracepoint are that we read.
#[derive(Clone, Copy, Debug)]
enum FieldPlan {
    CpuIdle {
        state: Int,
        cpu: Option<Int>,
    },
    CpuFrequency {
        khz: Int,
        cpu: Int,
    },
    HrtimerStart {
        timer: Int,
        function: Int,
        expires: Int,
        soft_expires: Option<Int>,
    },
    HrtimerCancel {
        timer: Int,
    },
    HrtimerExpire {
        timer: Int,
        function: Int,
        now: Int,
    },
    WheelStart {
        timer: Int,
        expires: Int,
        bucket: Option<Int>,
        now: Int,
        flags: WheelFlags,
    },
    WheelCancel {
        timer: Int,
    },
    WheelExpire {
        timer: Int,
        now: Int,
    },
    TickStop {
        success: Int,
    },
    IrqHandler {
        name: Option<Int>,
    },
    Softirq {
        vector: Int,
    },
    SchedSwitch {
        next_pid: Int,
    },
    /// The same with both tasks.
    Switch {
        prev_pid: Int,
        prev_state: Int,
        next_pid: Int,
        next_comm: Option<usize>,
    },
    Wakeup {
        target_cpu: Int,
    },
    Waking {
        pid: Int,
        common_flags: Option<Int>,
    },
    Fork {
        pid: Int,
    },
    StoreSent {
        target_cpu: Int,
    },
    IpiSent {
        target_cpu: Int,
    },
    IpiSentToMany {
        cpumask: Int,
    },
    DriverWake {
        reason: Int,
    },
    /// The event has no fields that matter.
    Same(EventKind),
}

/// Where a timer's flags are. Before Linux 4.2 there are at best some of them.
#[derive(Clone, Copy, Debug)]
enum WheelFlags {
    Whole(Int),
    Deferrable(Int),
    Absent,
}

impl FieldPlan {
    fn compile(
        reading: Reading,
        format: &EventFormat,
        purpose: Purpose,
    ) -> Result<Self, UnreadableTracepoint> {
        use FieldName as Name;
        let int = |field| format.int(field);
        let optional = |field: Name| format.optional_int(field.name());
        Ok(match reading {
            Reading::CpuIdle => {
                Self::CpuIdle { state: int(Name::State)?, cpu: optional(Name::CpuId) }
            }
            Reading::CpuFrequency => {
                Self::CpuFrequency { khz: int(Name::State)?, cpu: int(Name::CpuId)? }
            }
            Reading::HrtimerStart => Self::HrtimerStart {
                timer: int(Name::Hrtimer)?,
                function: int(Name::Function)?,
                expires: int(Name::Expires)?,
                soft_expires: optional(Name::SoftExpires),
            },
            Reading::HrtimerCancel => Self::HrtimerCancel { timer: int(Name::Hrtimer)? },
            Reading::HrtimerExpire => Self::HrtimerExpire {
                timer: int(Name::Hrtimer)?,
                function: int(Name::Function)?,
                now: int(Name::Now)?,
            },
            Reading::WheelStart => Self::WheelStart {
                timer: int(Name::Timer)?,
                expires: int(Name::Expires)?,
                bucket: optional(Name::BucketExpiry),
                now: int(Name::Now)?,
                flags: match (optional(Name::Flags), optional(Name::Deferrable)) {
                    (Some(whole), _) => WheelFlags::Whole(whole),
                    (None, Some(deferrable)) => WheelFlags::Deferrable(deferrable),
                    (None, None) => WheelFlags::Absent,
                },
            },
            Reading::WheelCancel => Self::WheelCancel { timer: int(Name::Timer)? },
            Reading::WheelExpire => {
                Self::WheelExpire { timer: int(Name::Timer)?, now: int(Name::Now)? }
            }
            Reading::TickStop => Self::TickStop { success: int(Name::Success)? },
            Reading::IrqHandler => {
                let name = format.field("name").filter(|field| field.is_data_loc);
                Self::IrqHandler { name: name.and_then(|_| format.optional_int("name")) }
            }
            // The reason is a pointer into the kernel, so a reschedule IPI looks like any other.
            Reading::IpiEntry => Self::Same(EventKind::IpiInterrupt),
            Reading::Softirq => Self::Softirq { vector: int(Name::Vec)? },
            Reading::SchedSwitch if purpose.needs_tasks() => Self::Switch {
                prev_pid: int(Name::PrevPid)?,
                prev_state: int(Name::PrevState)?,
                next_pid: int(Name::NextPid)?,
                next_comm: format.field("next_comm").map(|field| field.offset),
            },
            Reading::SchedSwitch => Self::SchedSwitch { next_pid: int(Name::NextPid)? },
            Reading::WakeupNew if purpose == Purpose::Causes => Self::Fork { pid: int(Name::Pid)? },
            Reading::WakeupNew => Self::Wakeup { target_cpu: int(Name::TargetCpu)? },
            Reading::Wakeup(target) => Self::Wakeup { target_cpu: int(target)? },
            Reading::Waking => {
                Self::Waking { pid: int(Name::Pid)?, common_flags: optional(Name::CommonFlags) }
            }
            Reading::InterruptExit => Self::Same(EventKind::InterruptExit),
            Reading::SoftirqExit => Self::Same(EventKind::SoftirqExit),
            Reading::StoreSent => Self::StoreSent { target_cpu: int(Name::Cpu)? },
            Reading::IpiSent => Self::IpiSent { target_cpu: int(Name::Cpu)? },
            Reading::IpiSentToMany => Self::IpiSentToMany { cpumask: int(Name::Cpumask)? },
            Reading::DriverWake => Self::DriverWake { reason: int(Name::Reason)? },
            Reading::Same(kind) => Self::Same(kind),
        })
    }

    /// Returns `None` for a malformed record.
    #[inline]
    fn decode(&self, record: &[u8], order: ByteOrder, sample_cpu: u16) -> Option<Decoded> {
        let mut cpu = sample_cpu;
        let kind = match *self {
            Self::CpuIdle { state, cpu: cpu_id } => {
                if let Some(cpu_id) = cpu_id {
                    cpu = u16::try_from(cpu_id.read(record, order)?).ok()?;
                }
                match state.read(record, order)? as u32 {
                    STATE_RUNNING => EventKind::IdleExit,
                    state => EventKind::IdleEntry { state },
                }
            }
            Self::CpuFrequency { khz, cpu: cpu_id } => {
                // It is set from any CPU.
                cpu = u16::try_from(cpu_id.read(record, order)?).ok()?;
                EventKind::Frequency { khz: u32::try_from(khz.read(record, order)?).ok()? }
            }
            Self::HrtimerStart { timer, function, expires, soft_expires } => {
                let expires_at_ns = expires.read(record, order)? as i64;
                let has_slack = match soft_expires {
                    Some(soft) => (soft.read(record, order)? as i64) < expires_at_ns,
                    None => false,
                };
                EventKind::HrtimerStart {
                    timer: timer.read(record, order)?,
                    function: function.read(record, order)?,
                    expires_at_ns,
                    has_slack,
                }
            }
            Self::HrtimerCancel { timer } => {
                EventKind::HrtimerCancel { timer: timer.read(record, order)? }
            }
            Self::HrtimerExpire { timer, function, now } => EventKind::HrtimerExpire {
                timer: timer.read(record, order)?,
                function: function.read(record, order)?,
                now_ns: now.read(record, order)? as i64,
            },
            Self::WheelStart { timer, expires, bucket, now, flags } => {
                let bucket_expiry = match bucket {
                    Some(bucket) => Some(bucket.read(record, order)?),
                    None => None,
                };
                wheel_start(
                    timer.read(record, order)?,
                    now.read(record, order)?,
                    expires.read(record, order)?,
                    bucket_expiry,
                    flags.read(record, order, sample_cpu)?,
                    now.width,
                )
            }
            Self::WheelCancel { timer } => {
                EventKind::WheelCancel { timer: timer.read(record, order)? }
            }
            Self::WheelExpire { timer, now } => EventKind::WheelExpire {
                timer: timer.read(record, order)?,
                now_jiffies: now.read(record, order)?,
            },
            Self::TickStop { success } => match success.read(record, order)? {
                0 => return Some(Decoded::Nothing),
                _ => EventKind::TickStop,
            },
            Self::IrqHandler { name } => match name {
                Some(name) => interrupt_by_name(string_at(name.read(record, order)?, record)?),
                None => EventKind::DeviceInterrupt,
            },
            Self::Softirq { vector } => {
                EventKind::Softirq { vector: u8::try_from(vector.read(record, order)?).ok()? }
            }
            Self::SchedSwitch { next_pid } => match next_pid.read(record, order)? {
                0 => EventKind::SwitchToIdle,
                _ => EventKind::SwitchToTask,
            },
            Self::Switch { prev_pid, prev_state, next_pid, next_comm } => EventKind::Switch {
                prev: NonZeroTask::new(task(prev_pid.read(record, order)?)?),
                next: task(next_pid.read(record, order)?)?,
                leaves: leaving(prev_state.read(record, order)?),
                next_name: next_comm.map_or_else(TaskName::default, |offset| {
                    TaskName::new(record.get(offset..).unwrap_or_default())
                }),
            },
            Self::Waking { pid, common_flags } => EventKind::Waking {
                task: task(pid.read(record, order)?)?,
                context: context(match common_flags {
                    Some(flags) => Some(flags.read(record, order)?),
                    None => None,
                }),
            },
            Self::Fork { pid } => EventKind::Fork { task: task(pid.read(record, order)?)? },
            Self::Wakeup { target_cpu } => EventKind::Wakeup {
                target_cpu: u16::try_from(target_cpu.read(record, order)?).ok()?,
            },
            Self::StoreSent { target_cpu } => EventKind::StoreSent {
                target_cpu: u16::try_from(target_cpu.read(record, order)?).ok()?,
            },
            Self::IpiSent { target_cpu } => EventKind::IpiSent {
                target_cpu: u16::try_from(target_cpu.read(record, order)?).ok()?,
            },
            Self::IpiSentToMany { cpumask } => {
                let mask = bytes_at(cpumask.read(record, order)?, record)?;
                // The mask is an array of `long`, which has 4 bytes on 32-bit kernels: 32 CPUs are
                // enough for those.
                let (targets, rest) = match mask.len() {
                    ..8 => (order.u32_at(mask, 0)?.into(), mask.get(4..)?),
                    _ => (order.u64_at(mask, 0)?, mask.get(8..)?),
                };
                EventKind::IpiSentToMany { targets, is_cut: rest.iter().any(|&byte| byte != 0) }
            }
            Self::DriverWake { reason } => {
                EventKind::DriverWake { reason: u8::try_from(reason.read(record, order)?).ok()? }
            }
            Self::Same(kind) => kind,
        };
        Some(Decoded::Event { cpu, kind })
    }
}

impl WheelFlags {
    /// The flags in today's layout. If the record does not name a CPU, the timer is assumed to be
    /// queued on the one that started it.
    fn read(self, record: &[u8], order: ByteOrder, sample_cpu: u16) -> Option<u32> {
        Some(match self {
            Self::Whole(flags) => flags.read(record, order)? as u32,
            Self::Deferrable(deferrable) => {
                wheel_flags_without_cpu(deferrable.read(record, order)? != 0, sample_cpu)
            }
            Self::Absent => wheel_flags_without_cpu(false, sample_cpu),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Leaving, WakeContext};
    use crate::tracepoint::wheel::{TIMER_DEFERRABLE, TIMER_PINNED};

    const CPU: u16 = 3;

    fn decoder(system: &str, text: &str, order: ByteOrder) -> Decoder {
        let format = EventFormat::parse(text.as_bytes()).unwrap();
        let purposes = Purpose::ALL;
        let compile = |purpose| Decoder::compile(system, &format, order, purpose).unwrap();
        purposes.into_iter().find_map(compile).unwrap()
    }

    fn decode(system: &str, text: &str, record: &[u8]) -> Decoded {
        decoder(system, text, ByteOrder::Little).decode(record, CPU)
    }

    fn event(kind: EventKind) -> Decoded {
        Decoded::Event { cpu: CPU, kind }
    }

    /// A record of eight bytes that we don't read, then words.
    fn record(words: &[u64]) -> Vec<u8> {
        std::iter::once(&0).chain(words).flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn missing_field_is_named() {
        let format = EventFormat::parse(b"name: tick_stop\nID: 1\n").unwrap();
        let unreadable =
            Decoder::compile("timer", &format, ByteOrder::Little, Purpose::Gaps).unwrap_err();
        assert_eq!(
            unreadable.to_string(),
            "the format of tick_stop has no integer field `success`"
        );
    }

    #[test]
    fn unknown_tracepoint_has_no_decoder() {
        let format = EventFormat::parse(b"name: timer_init\nID: 1\n").unwrap();
        assert!(
            Decoder::compile("timer", &format, ByteOrder::Little, Purpose::Gaps).unwrap().is_none()
        );
        let format = EventFormat::parse(b"name: cpu_idle\nID: 1\n").unwrap();
        assert!(
            Decoder::compile("other", &format, ByteOrder::Little, Purpose::Gaps).unwrap().is_none()
        );
    }

    #[test]
    fn fields_are_read_where_the_format_says_in_both_byte_orders() {
        let text = "name: cpu_idle\nID: 1\nfield:u32 cpu_id; offset:3; size:2; signed:0;\n\
            field:u32 state; offset:9; size:4; signed:0;";
        let little = [0, 0, 0, 7, 0, 0, 0, 0, 0, 2, 0, 0, 0];
        let big = [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2];
        let expected = Decoded::Event { cpu: 7, kind: EventKind::IdleEntry { state: 2 } };
        assert_eq!(decoder("power", text, ByteOrder::Little).decode(&little, CPU), expected);
        assert_eq!(decoder("power", text, ByteOrder::Big).decode(&big, CPU), expected);
        let cut = &little[..12];
        assert_eq!(decode("power", text, cut), Decoded::Malformed);
    }

    #[test]
    fn cpu_idle_without_cpu_is_on_the_samples_cpu() {
        let text = "name: cpu_idle\nID: 1\nfield:u32 state; offset:8; size:4; signed:0;";
        assert_eq!(decode("power", text, &record(&[0xffff_ffff])), event(EventKind::IdleExit));
    }

    #[test]
    fn hrtimer_has_slack_only_where_its_expiries_differ() {
        let text = "name: hrtimer_start\nID: 1\nfield:void * hrtimer; offset:8; size:8;\n\
            field:void * function; offset:16; size:8;\nfield:s64 expires; offset:24; size:8;\n";
        let newer = format!("{text}field:s64 softexpires; offset:32; size:8; signed:1;");
        let start = |has_slack| {
            event(EventKind::HrtimerStart { timer: 1, function: 2, expires_at_ns: 50, has_slack })
        };
        assert_eq!(decode("timer", text, &record(&[1, 2, 50])), start(false));
        assert_eq!(decode("timer", &newer, &record(&[1, 2, 50, 50])), start(false));
        assert_eq!(decode("timer", &newer, &record(&[1, 2, 50, 49])), start(true));
    }

    const OLD_TIMER_START: &str = "name: timer_start\nID: 1\nfield:void * timer; offset:8; size:8;\n\
        field:unsigned long expires; offset:16; size:8;\n\
        field:unsigned long now; offset:24; size:8;\n";

    #[test]
    fn wheel_timer_of_an_old_kernel_gets_bucket_and_flags() {
        let start = |bucket_jiffies, ahead_jiffies, flags| {
            event(EventKind::WheelStart { timer: 1, bucket_jiffies, ahead_jiffies, flags })
        };
        let fields = record(&[1, 1_100, 1_000, 1]);
        let flags = TIMER_PINNED | u32::from(CPU);
        assert_eq!(decode("timer", OLD_TIMER_START, &fields), start(1_104, 104, flags));
        let with_flags = format!("{OLD_TIMER_START}field:unsigned int flags; offset:32; size:4;");
        assert_eq!(decode("timer", &with_flags, &fields), start(1_104, 104, TIMER_PINNED | 1));
        let older = format!("{OLD_TIMER_START}field:int deferrable; offset:32; size:4;");
        let flags = TIMER_PINNED | TIMER_DEFERRABLE | u32::from(CPU);
        assert_eq!(decode("timer", &older, &fields), start(1_104, 104, flags));
    }

    #[test]
    fn wheel_timer_of_a_new_kernel_has_its_bucket() {
        let text =
            format!("{OLD_TIMER_START}field:unsigned long bucket_expiry; offset:32; size:8;\n");
        let kind = EventKind::WheelStart {
            timer: 1,
            bucket_jiffies: 990,
            ahead_jiffies: -10,
            flags: CPU.into(),
        };
        assert_eq!(decode("timer", &text, &record(&[1, 980, 1_000, 990])), event(kind));
    }

    #[test]
    fn jiffies_of_a_32_bit_kernel_wrap_around() {
        let text = "name: timer_start\nID: 1\nfield:void * timer; offset:8; size:4;\n\
            field:unsigned long expires; offset:12; size:4;\n\
            field:unsigned long now; offset:16; size:4;\n\
            field:unsigned int flags; offset:20; size:4;";
        let mut fields = vec![0; 8];
        for word in [1u32, 5, u32::MAX - 4, 0] {
            fields.extend(word.to_le_bytes());
        }
        let (bucket_jiffies, ahead_jiffies) = (6, 11);
        let flags = TIMER_PINNED;
        let kind = EventKind::WheelStart { timer: 1, bucket_jiffies, ahead_jiffies, flags };
        assert_eq!(decode("timer", text, &fields), event(kind));
    }

    #[test]
    fn interrupts_are_told_by_event_and_by_name() {
        let plain = |name: &str| format!("name: {name}\nID: 1\n");
        for (system, name, kind) in [
            ("irq_vectors", "local_timer_entry", EventKind::TimerInterrupt),
            ("irq_vectors", "reschedule_entry", EventKind::RescheduleInterrupt),
            ("irq_vectors", "call_function_single_entry", EventKind::IpiInterrupt),
            ("irq_vectors", "irq_work_entry", EventKind::IpiInterrupt),
            ("irq_vectors", "thermal_apic_entry", EventKind::DeviceInterrupt),
            ("ipi", "ipi_entry", EventKind::IpiInterrupt),
            ("powerpc", "timer_interrupt_entry", EventKind::TimerInterrupt),
        ] {
            assert_eq!(decode(system, &plain(name), &record(&[])), event(kind), "{name}");
        }
        let format = EventFormat::parse(plain("local_timer_exit").as_bytes()).unwrap();
        assert!(
            Decoder::compile("irq_vectors", &format, ByteOrder::Little, Purpose::Gaps)
                .unwrap()
                .is_none()
        );

        let handler = "name: irq_handler_entry\nID: 1\n\
            field:__data_loc char[] name; offset:8; size:4; signed:0;";
        let named = |name: &[u8]| {
            let data_loc = (name.len() as u64) << 16 | 16;
            let bytes = [record(&[data_loc]), name.to_vec()].concat();
            decode("irq", handler, &bytes)
        };
        assert_eq!(named(b"arch_timer\0"), event(EventKind::TimerInterrupt));
        assert_eq!(named(b"nvme0q1\0"), event(EventKind::DeviceInterrupt));
        assert_eq!(named(b""), event(EventKind::DeviceInterrupt));
        assert_eq!(decode("irq", handler, &record(&[0xffff_0010])), Decoded::Malformed);
    }

    #[test]
    fn scheduler_and_softirq_events_are_read() {
        let text = "name: sched_switch\nID: 1\nfield:pid_t next_pid; offset:8; size:4; signed:1;";
        assert_eq!(decode("sched", text, &record(&[0])), event(EventKind::SwitchToIdle));
        assert_eq!(decode("sched", text, &record(&[9])), event(EventKind::SwitchToTask));

        let text = "name: sched_wakeup\nID: 1\nfield:int target_cpu; offset:8; size:4; signed:1;";
        let wakeup = event(EventKind::Wakeup { target_cpu: 5 });
        assert_eq!(decode("sched", text, &record(&[5])), wakeup);
        // CPU -1 does not exist.
        assert_eq!(decode("sched", text, &record(&[0xffff_ffff])), Decoded::Malformed);

        let text =
            "name: softirq_entry\nID: 1\nfield:unsigned int vec; offset:8; size:4; signed:0;";
        assert_eq!(decode("irq", text, &record(&[1])), event(EventKind::Softirq { vector: 1 }));
    }

    #[test]
    fn senders_of_wakes_are_read() {
        let one = "name: NAME\nID: 1\nfield:unsigned int cpu; offset:8; size:4; signed:0;";
        let one = |name: &str| one.replace("NAME", name);
        let store = decode("sched", &one("sched_wake_idle_without_ipi"), &record(&[6]));
        assert_eq!(store, event(EventKind::StoreSent { target_cpu: 6 }));
        let ipi = decode("ipi", &one("ipi_send_cpu"), &record(&[6]));
        assert_eq!(ipi, event(EventKind::IpiSent { target_cpu: 6 }));
        let many = "name: ipi_send_cpumask\nID: 1\n\
            field:__data_loc cpumask_t cpumask; offset:8; size:4; signed:0;";
        let masked = |words: &[u64]| {
            let data_loc = (words.len() as u64 * 8) << 16 | 16;
            decode("ipi", many, &record(&[&[data_loc], words].concat()))
        };
        let to = |targets, is_cut| event(EventKind::IpiSentToMany { targets, is_cut });
        assert_eq!(masked(&[0b101]), to(0b101, false));
        assert_eq!(masked(&[1 << 63, 0]), to(1 << 63, false));
        assert_eq!(masked(&[0, 1]), to(0, true));
        assert_eq!(masked(&[]), Decoded::Malformed);
        let text = "name: idlewise_wake\nID: 1\nfield:u32 reason; offset:8; size:4; signed:0;";
        assert_eq!(
            decode("idlewise", text, &record(&[1])),
            event(EventKind::DriverWake { reason: 1 })
        );
    }

    #[test]
    fn a_frequency_is_that_of_the_cpu_in_the_event() {
        // The kernel's format file (include/trace/events/power.h, class cpu).
        let text = "name: cpu_frequency\nID: 1\n\
            field:u32 state; offset:8; size:4; signed:0;\n\
            field:u32 cpu_id; offset:12; size:4; signed:0;";
        let format = EventFormat::parse(text.as_bytes()).unwrap();
        let compile =
            |purpose| Decoder::compile("power", &format, ByteOrder::Little, purpose).unwrap();
        let decoder = compile(Purpose::Running).unwrap();
        let kind = EventKind::Frequency { khz: 1_800_000 };
        let found = decoder.decode(&record(&[5 << 32 | 1_800_000]), CPU);
        assert_eq!(found, Decoded::Event { cpu: 5, kind });
        assert_eq!(decoder.decode(&record(&[]), CPU), Decoded::Malformed);
        for purpose in [Purpose::Gaps, Purpose::Wakes, Purpose::Causes] {
            assert!(compile(purpose).is_none(), "{purpose:?}");
        }
    }

    #[test]
    fn causes_are_read() {
        let compile = |system: &str, text: &str| {
            let format = EventFormat::parse(text.as_bytes()).unwrap();
            let decoder =
                Decoder::compile(system, &format, ByteOrder::Little, Purpose::Causes).unwrap();
            move |record: &[u8]| decoder.as_ref().unwrap().decode(record, CPU)
        };
        let switch = compile(
            "sched",
            "name: sched_switch\nID: 1\n\
             field:char next_comm[16]; offset:8; size:16; signed:0;\n\
             field:pid_t prev_pid; offset:24; size:4; signed:1;\n\
             field:pid_t next_pid; offset:28; size:4; signed:1;\n\
             field:long prev_state; offset:32; size:8; signed:1;",
        );
        let mut bytes = vec![0; 8];
        bytes.extend(*b"a b=1\0rest of it");
        bytes.resize(24, 0);
        for number in [7_u32, 0, 1, 0] {
            bytes.extend(number.to_le_bytes());
        }
        let kind = EventKind::Switch {
            prev: NonZeroTask::new(7),
            next: 0,
            leaves: Leaving::Waits,
            next_name: TaskName::new(b"a b=1"),
        };
        assert_eq!(switch(&bytes), event(kind));
        assert_eq!(TaskName::new(b"a b=1\0rest").text(), "a b=1");
        bytes[27] = 0x80;
        assert_eq!(switch(&bytes), Decoded::Malformed, "no task has a negative number");

        let waking = compile(
            "sched",
            "name: sched_waking\nID: 1\n\
             field:unsigned char common_flags; offset:2; size:1; signed:0;\n\
             field:pid_t pid; offset:8; size:4; signed:1;",
        );
        for (flags, context) in [
            (0, WakeContext::Task),
            (0x10, WakeContext::Softirq),
            (0x18, WakeContext::Interrupt),
            (0x09, WakeContext::Interrupt),
        ] {
            let mut bytes = record(&[9]);
            bytes[2] = flags;
            assert_eq!(waking(&bytes), event(EventKind::Waking { task: 9, context }), "{flags}");
        }
        let new = compile(
            "sched",
            "name: sched_wakeup_new\nID: 1\nfield:pid_t pid; offset:8; size:4; signed:1;",
        );
        assert_eq!(new(&record(&[9])), event(EventKind::Fork { task: 9 }));
        for (system, name, kind) in [
            ("irq_vectors", "local_timer_exit", EventKind::InterruptExit),
            ("irq", "irq_handler_exit", EventKind::InterruptExit),
            ("irq", "softirq_exit", EventKind::SoftirqExit),
        ] {
            let exit = compile(system, &format!("name: {name}\nID: 1\n"));
            assert_eq!(exit(&record(&[])), event(kind), "{name}");
        }
    }

    #[test]
    fn failed_tick_stop_is_nothing() {
        let text = "name: tick_stop\nID: 1\nfield:int success; offset:8; size:4; signed:1;";
        assert_eq!(decode("timer", text, &record(&[0])), Decoded::Nothing);
        assert_eq!(decode("timer", text, &record(&[1])), event(EventKind::TickStop));
    }
}
