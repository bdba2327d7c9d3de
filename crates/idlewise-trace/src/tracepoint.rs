//! The kernel's descriptions of its trace events, and what we read with them.
//!
//! Each tracepoint has a `format` file (`/sys/kernel/tracing/events/SYSTEM/NAME/format`) that says
//! at which byte each field lies; a recorder copies those it used into its trace. Fields move
//! between kernels, so an event is read by the names in the trace's own description and never at
//! fixed places: [`EventFormat`] is a description, [`Decoder`] what it compiles to.
//!
//! `TRACEPOINTS` lists every tracepoint that we know. Not in here: files and clocks (`import/`).

use std::fmt;

use crate::byte_order::ByteOrder;
use crate::event::{EventKind, Tracepoints};

/// A kernel has about fifteen fields in its largest event; a description with more than this is
/// cut there, so that a hostile one cannot make us hold millions.
const MAX_FIELD_COUNT: usize = 512;

/// The description of one tracepoint's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The tracepoint's name, without its system.
    pub name: String,
    /// The number that `perf_event_attr.config` and `common_type` give this tracepoint.
    pub id: u64,
    /// Its fields, the common ones included, in the description's order.
    pub fields: Vec<Field>,
}

/// One field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, without type and array bounds.
    pub name: String,
    /// Where it begins, in bytes from the record's beginning.
    pub offset: usize,
    /// How many bytes it has.
    pub byte_count: usize,
    /// Whether it is a signed integer.
    pub is_signed: bool,
    /// Whether it holds offset and length of data that lie elsewhere in the record.
    pub is_data_loc: bool,
}

impl EventFormat {
    /// Reads the text of a `format` file. Lines that it does not know are passed over, and so is a
    /// field that it cannot read; `None` if the text has no name or no ID.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name.get_or_insert_with(|| rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = id.or(rest.trim().parse().ok());
            } else if line.starts_with("field") && fields.len() < MAX_FIELD_COUNT {
                fields.extend(Field::parse(line));
            }
        }
        Some(Self { name: name?, id: id?, fields })
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// An integer field that our reading of the event rests on.
    fn int(&self, name: &'static str) -> Result<Int, UnreadableTracepoint> {
        self.optional_int(name)
            .ok_or_else(|| UnreadableTracepoint { tracepoint: self.name.clone(), field: name })
    }

    /// An integer field that some kernels lack.
    fn optional_int(&self, name: &str) -> Option<Int> {
        let field = self.field(name)?;
        let width = match field.byte_count {
            1 => Width::One,
            2 => Width::Two,
            4 => Width::Four,
            8 => Width::Eight,
            _ => return None,
        };
        Some(Int { offset: field.offset, width, is_signed: field.is_signed })
    }
}

impl Field {
    /// Reads a line as `field:__data_loc char[] name;	offset:12;	size:4;	signed:0;`.
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(';').map(str::trim);
        let (_, declaration) = parts.next()?.split_once(':')?;
        let (mut offset, mut byte_count, mut is_signed) = (None, None, false);
        for part in parts {
            let Some((key, value)) = part.split_once(':') else { continue };
            match key.trim() {
                "offset" => offset = value.trim().parse::<u16>().ok(),
                "size" => byte_count = value.trim().parse::<u16>().ok(),
                "signed" => is_signed = value.trim() == "1",
                _ => {}
            }
        }
        let mut declared = declaration.trim();
        while let Some((before, _)) = declared.strip_suffix(']').and_then(|d| d.rsplit_once('[')) {
            declared = before.trim_end();
        }
        let name = declared.rsplit(|c: char| c.is_whitespace() || c == '*').next()?;
        Some(Self {
            name: name.to_owned(),
            offset: offset?.into(),
            byte_count: byte_count?.into(),
            is_signed,
            is_data_loc: declaration.trim_start().starts_with("__data_loc"),
        })
    }
}

/// A tracepoint that we know, but whose description in this trace lacks a field that we read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableTracepoint {
    /// The tracepoint's name.
    pub tracepoint: String,
    /// The field that is missing or is no integer.
    pub field: &'static str,
}

impl fmt::Display for UnreadableTracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracepoint, field } = self;
        write!(f, "the format of {tracepoint} has no integer field `{field}`")
    }
}

/// What a record of a known tracepoint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An event, and the CPU it happened on.
    Event {
        /// The CPU.
        cpu: u16,
        /// What happened.
        kind: EventKind,
    },
    /// Nothing that an idle log needs, such as a `tick_stop` that failed.
    Nothing,
    /// The record is shorter than its description says, or a field is out of its range.
    Malformed,
}

/// Reads the records of one tracepoint.
#[derive(Clone, Debug)]
pub struct Decoder {
    order: ByteOrder,
    provides: Tracepoints,
    plan: Plan,
}

impl Decoder {
    /// Compiles the description of `system:format.name`; `None` if no idle log needs that event.
    ///
    /// # Errors
    /// Fails if the description lacks a field that we need.
    pub fn compile(
        system: &str,
        format: &EventFormat,
        order: ByteOrder,
    ) -> Result<Option<Self>, UnreadableTracepoint> {
        let known = TRACEPOINTS.iter().find(|known| {
            known.system == system
                && match known.name.strip_prefix('*') {
                    Some(suffix) => format.name.ends_with(suffix),
                    None => format.name == known.name,
                }
        });
        let Some(known) = known else { return Ok(None) };
        Ok(Some(Self { order, provides: known.provides, plan: (known.plan)(format)? }))
    }

    /// What a trace that has this tracepoint can tell.
    pub fn provides(&self) -> Tracepoints {
        self.provides
    }

    /// Reads one record, beginning with its common fields, that was recorded on `cpu`.
    #[inline]
    pub fn decode(&self, record: &[u8], cpu: u16) -> Decoded {
        match self.plan.decode(record, self.order, cpu) {
            Some(decoded) => decoded,
            None => Decoded::Malformed,
        }
    }
}

struct Known {
    system: &'static str,
    /// The tracepoint's name; with a star in front, the end of its name.
    name: &'static str,
    provides: Tracepoints,
    plan: fn(&EventFormat) -> Result<Plan, UnreadableTracepoint>,
}

/// Every tracepoint that we read; the first row that fits an event counts.
const TRACEPOINTS: &[Known] = &[
    row("power", "cpu_idle", Tracepoints::CPU_IDLE, Plan::cpu_idle),
    row("timer", "hrtimer_start", Tracepoints::HRTIMER_START, Plan::hrtimer_start),
    row("timer", "hrtimer_cancel", Tracepoints::HRTIMER_CANCEL, Plan::hrtimer_cancel),
    row("timer", "hrtimer_expire_entry", Tracepoints::HRTIMER_EXPIRE, Plan::hrtimer_expire),
    row("timer", "timer_start", Tracepoints::WHEEL_START, Plan::wheel_start),
    row("timer", "timer_cancel", Tracepoints::WHEEL_CANCEL, Plan::wheel_cancel),
    row("timer", "timer_expire_entry", Tracepoints::WHEEL_EXPIRE, Plan::wheel_expire),
    row("timer", "tick_stop", Tracepoints::TICK_STOP, Plan::tick_stop),
    row("irq_vectors", "local_timer_entry", Tracepoints::INTERRUPTS, Plan::timer_interrupt),
    row("irq_vectors", "reschedule_entry", Tracepoints::INTERRUPTS, Plan::reschedule_interrupt),
    row("irq_vectors", "call_function_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("irq_vectors", "call_function_single_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("irq_vectors", "irq_work_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("irq_vectors", "x86_platform_ipi_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("irq_vectors", "*_entry", Tracepoints::INTERRUPTS, Plan::device_interrupt),
    // Arm: the reason is a pointer into the kernel, so an IPI to reschedule looks like any other.
    row("ipi", "ipi_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("powerpc", "timer_interrupt_entry", Tracepoints::INTERRUPTS, Plan::timer_interrupt),
    row("powerpc", "doorbell_entry", Tracepoints::INTERRUPTS, Plan::ipi),
    row("irq", "irq_handler_entry", Tracepoints::INTERRUPTS, Plan::irq_handler),
    row("irq", "softirq_entry", Tracepoints::SOFTIRQ, Plan::softirq),
    row("sched", "sched_switch", Tracepoints::SCHED_SWITCH, Plan::sched_switch),
    row("sched", "sched_wakeup", Tracepoints::WAKEUP, Plan::sched_wakeup),
    row("sched", "sched_wakeup_new", Tracepoints::EMPTY, Plan::sched_wakeup),
    row("sched", "sched_wake_idle_without_ipi", Tracepoints::EMPTY, Plan::wake_without_ipi),
];

const fn row(
    system: &'static str,
    name: &'static str,
    provides: Tracepoints,
    plan: fn(&EventFormat) -> Result<Plan, UnreadableTracepoint>,
) -> Known {
    Known { system, name, provides, plan }
}

/// Where the fields lie that we read of one tracepoint.
#[derive(Clone, Copy, Debug)]
enum Plan {
    CpuIdle {
        state: Int,
        cpu: Option<Int>,
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
    Wakeup {
        target_cpu: Int,
    },
    /// That the event is there says all.
    Same(EventKind),
}

/// Where a timer's flags are; before Linux 4.2 there are at best some of them.
#[derive(Clone, Copy, Debug)]
enum WheelFlags {
    Whole(Int),
    Deferrable(Int),
    Absent,
}

/// `TIMER_DEFERRABLE` of include/linux/timer.h since Linux 4.8. From 4.2 to 4.7 the bits lie one
/// place higher, which the description does not tell; we read them as if they did not.
const TIMER_DEFERRABLE: u32 = 1 << 19;

/// `cpu_idle`'s state where a CPU leaves idle.
const STATE_RUNNING: u32 = u32::MAX;

/// The names that architectures without a vector for it give their timer's interrupt.
const TIMER_INTERRUPT_NAMES: [&[u8]; 2] = [b"arch_timer", b"riscv-timer"];

impl Plan {
    fn cpu_idle(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::CpuIdle { state: format.int("state")?, cpu: format.optional_int("cpu_id") })
    }

    fn hrtimer_start(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::HrtimerStart {
            timer: format.int("hrtimer")?,
            function: format.int("function")?,
            expires: format.int("expires")?,
            soft_expires: format.optional_int("softexpires"),
        })
    }

    fn hrtimer_cancel(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::HrtimerCancel { timer: format.int("hrtimer")? })
    }

    fn hrtimer_expire(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::HrtimerExpire {
            timer: format.int("hrtimer")?,
            function: format.int("function")?,
            now: format.int("now")?,
        })
    }

    fn wheel_start(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        let flags = if let Some(whole) = format.optional_int("flags") {
            WheelFlags::Whole(whole)
        } else if let Some(deferrable) = format.optional_int("deferrable") {
            WheelFlags::Deferrable(deferrable)
        } else {
            WheelFlags::Absent
        };
        Ok(Self::WheelStart {
            timer: format.int("timer")?,
            expires: format.int("expires")?,
            bucket: format.optional_int("bucket_expiry"),
            now: format.int("now")?,
            flags,
        })
    }

    fn wheel_cancel(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::WheelCancel { timer: format.int("timer")? })
    }

    fn wheel_expire(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::WheelExpire { timer: format.int("timer")?, now: format.int("now")? })
    }

    fn tick_stop(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::TickStop { success: format.int("success")? })
    }

    fn irq_handler(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        let name = format.field("name").filter(|field| field.is_data_loc);
        Ok(Self::IrqHandler { name: name.and_then(|_| format.optional_int("name")) })
    }

    fn softirq(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Softirq { vector: format.int("vec")? })
    }

    fn sched_switch(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::SchedSwitch { next_pid: format.int("next_pid")? })
    }

    fn sched_wakeup(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Wakeup { target_cpu: format.int("target_cpu")? })
    }

    fn wake_without_ipi(format: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Wakeup { target_cpu: format.int("cpu")? })
    }

    fn timer_interrupt(_: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Same(EventKind::TimerInterrupt))
    }

    fn reschedule_interrupt(_: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Same(EventKind::RescheduleInterrupt))
    }

    fn ipi(_: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Same(EventKind::IpiInterrupt))
    }

    fn device_interrupt(_: &EventFormat) -> Result<Self, UnreadableTracepoint> {
        Ok(Self::Same(EventKind::DeviceInterrupt))
    }

    /// `None` for a malformed record.
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
                let now_jiffies = now.read(record, order)?;
                let bucket_jiffies = match bucket {
                    Some(bucket) => bucket.read(record, order)?,
                    None => wheel_bucket(expires.read(record, order)?, now_jiffies, now.width),
                };
                let ahead = jiffies_between(now_jiffies, bucket_jiffies, now.width);
                EventKind::WheelStart {
                    timer: timer.read(record, order)?,
                    bucket_jiffies,
                    ahead_jiffies: ahead.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
                    flags: flags.read(record, order, sample_cpu)?,
                }
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
                Some(name) if is_timer_interrupt(name.read(record, order)?, record)? => {
                    EventKind::TimerInterrupt
                }
                _ => EventKind::DeviceInterrupt,
            },
            Self::Softirq { vector } => {
                EventKind::Softirq { vector: u8::try_from(vector.read(record, order)?).ok()? }
            }
            Self::SchedSwitch { next_pid } => match next_pid.read(record, order)? {
                0 => EventKind::SwitchToIdle,
                _ => EventKind::SwitchToTask,
            },
            Self::Wakeup { target_cpu } => EventKind::Wakeup {
                target_cpu: u16::try_from(target_cpu.read(record, order)?).ok()?,
            },
            Self::Same(kind) => kind,
        };
        Some(Decoded::Event { cpu, kind })
    }
}

impl WheelFlags {
    /// The flags as Linux has them today. Where the record does not name a CPU, the timer is taken
    /// to be queued on the one that started it.
    fn read(self, record: &[u8], order: ByteOrder, sample_cpu: u16) -> Option<u32> {
        Some(match self {
            Self::Whole(flags) => flags.read(record, order)? as u32,
            Self::Deferrable(deferrable) if deferrable.read(record, order)? != 0 => {
                TIMER_DEFERRABLE | u32::from(sample_cpu)
            }
            Self::Deferrable(_) | Self::Absent => sample_cpu.into(),
        })
    }
}

/// Whether the string that a `__data_loc` points to (length in the high half, place in the low
/// one) is the name of a timer's interrupt; `None` if it lies outside of the record.
fn is_timer_interrupt(data_loc: u64, record: &[u8]) -> Option<bool> {
    let start = (data_loc & 0xffff) as usize;
    let byte_count = (data_loc >> 16 & 0xffff) as usize;
    let name = record.get(start..start.checked_add(byte_count)?)?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(TIMER_INTERRUPT_NAMES.contains(&name))
}

/// An integer field's place.
#[derive(Clone, Copy, Debug)]
struct Int {
    offset: usize,
    width: Width,
    is_signed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Int {
    /// The field's value, sign-extended if it is signed; `None` past the record's end.
    #[inline]
    fn read(self, record: &[u8], order: ByteOrder) -> Option<u64> {
        let Self { offset, width, is_signed } = self;
        Some(match (width, is_signed) {
            (Width::Eight, _) => order.u64_at(record, offset)?,
            (Width::Four, false) => order.u32_at(record, offset)?.into(),
            (Width::Four, true) => order.u32_at(record, offset)? as i32 as u64,
            (Width::Two, false) => order.u16_at(record, offset)?.into(),
            (Width::Two, true) => order.u16_at(record, offset)? as i16 as u64,
            (Width::One, false) => u64::from(*record.get(offset)?),
            (Width::One, true) => *record.get(offset)? as i8 as u64,
        })
    }
}

/// How many buckets each level of the timer wheel has.
const WHEEL_LEVEL_BUCKET_COUNT: u64 = 64;
/// Each level's buckets are two to the power of this as wide as those of the level below.
const WHEEL_LEVEL_SHIFT: u32 = 3;
/// How many levels the wheel has where HZ is above 100. With HZ=100 there is one fewer, which
/// changes only timers that are fifteen days away.
const WHEEL_LEVEL_COUNT: u32 = 9;

/// When the timer wheel fires a timer that was set at `now` for `expires`, in jiffies.
///
/// The wheel keeps no exact expiry. Its level n has 64 buckets of 8^n jiffies; a timer goes to the
/// lowest level that reaches that far, into the first bucket that begins after its expiry, so that
/// it is never early (not even if the jiffy it was set in was nearly over). Beyond the last level
/// it waits in the last bucket. Linux since 4.8 (kernel/time/timer.c); since 6.9 the event says it.
/// Linux counts from the wheel's own clock, which can lag behind `now`; we have only `now`.
fn wheel_bucket(expires: u64, now: u64, width: Width) -> u64 {
    let ahead = jiffies_between(now, expires, width);
    let Ok(ahead) = u64::try_from(ahead) else { return now };
    let reach = |level: u32| (WHEEL_LEVEL_BUCKET_COUNT - 1) << (level * WHEEL_LEVEL_SHIFT);
    let last = WHEEL_LEVEL_COUNT - 1;
    let level = (0..last).find(|&level| ahead < reach(level)).unwrap_or(last);
    let furthest = reach(last) - (1 << (last * WHEEL_LEVEL_SHIFT));
    let ahead = if ahead < reach(last) { ahead } else { furthest };
    let shift = level * WHEEL_LEVEL_SHIFT;
    let bucket = ((now.wrapping_add(ahead) >> shift).wrapping_add(1)) << shift;
    match width {
        Width::Eight => bucket,
        _ => bucket & u64::from(u32::MAX),
    }
}

/// How far `later` lies after `now`; jiffies wrap around at the kernel's long.
fn jiffies_between(now: u64, later: u64, width: Width) -> i64 {
    let distance = later.wrapping_sub(now);
    match width {
        Width::Eight => distance as i64,
        _ => i64::from(distance as i32),
    }
}
