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
    pub(crate) fn optional_int(&self, name: &str) -> Option<Int> {
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
    /// Reads a line as `field:__data_loc char[] name; offset:12; size:4; signed:0;`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
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
    row("irq_vectors", "local_timer_entry", Tracepoints::LOCAL_TIMER, Plan::timer_interrupt),
    row("irq_vectors", "reschedule_entry", Tracepoints::RESCHEDULE, Plan::reschedule_interrupt),
    row("irq_vectors", "call_function_entry", Tracepoints::CALL_FUNCTION, Plan::ipi),
    row("irq_vectors", "call_function_single_entry", Tracepoints::CALL_FUNCTION_SINGLE, Plan::ipi),
    row("irq_vectors", "irq_work_entry", Tracepoints::IRQ_WORK, Plan::ipi),
    row("irq_vectors", "x86_platform_ipi_entry", Tracepoints::OTHER_VECTOR, Plan::ipi),
    row("irq_vectors", "*_entry", Tracepoints::OTHER_VECTOR, Plan::device_interrupt),
    // Arm: the reason is a pointer into the kernel, so an IPI to reschedule looks like any other.
    row("ipi", "ipi_entry", Tracepoints::IPI_ENTRY, Plan::ipi),
    row("powerpc", "timer_interrupt_entry", Tracepoints::POWER_TIMER, Plan::timer_interrupt),
    row("powerpc", "doorbell_entry", Tracepoints::POWER_DOORBELL, Plan::ipi),
    row("irq", "irq_handler_entry", Tracepoints::IRQ_HANDLER, Plan::irq_handler),
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
pub(crate) const TIMER_DEFERRABLE: u32 = 1 << 19;

/// `cpu_idle`'s state where a CPU leaves idle.
pub(crate) const STATE_RUNNING: u32 = u32::MAX;

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
            Self::Deferrable(deferrable) => {
                wheel_flags_without_cpu(deferrable.read(record, order)? != 0, sample_cpu)
            }
            Self::Absent => wheel_flags_without_cpu(false, sample_cpu),
        })
    }
}

/// The flags of a timer whose event does not say on which CPU it is queued: taken to be the one
/// that started it.
pub(crate) fn wheel_flags_without_cpu(is_deferrable: bool, cpu: u16) -> u32 {
    if is_deferrable { TIMER_DEFERRABLE | u32::from(cpu) } else { cpu.into() }
}

/// The string that a `__data_loc` points to (length in the high half, place in the low one);
/// `None` if it lies outside of the record.
fn string_at(data_loc: u64, record: &[u8]) -> Option<&[u8]> {
    let start = (data_loc & 0xffff) as usize;
    let byte_count = (data_loc >> 16 & 0xffff) as usize;
    let name = record.get(start..start.checked_add(byte_count)?)?;
    name.split(|&byte| byte == 0).next()
}

/// What an interrupt is by the name that its driver gave it. Where the processor has no vectors,
/// timers and IPIs come this way too.
pub(crate) fn interrupt_by_name(name: &[u8]) -> EventKind {
    match name {
        // Arm's architected timer and the one before it, RISC-V's, Exynos's.
        b"arch_timer" | b"twd" | b"riscv-timer" | b"MCT" => EventKind::TimerInterrupt,
        name if name.starts_with(b"mct_tick") => EventKind::TimerInterrupt,
        // Arm since Linux 5.11; POWER numbers them by node: `IPI-0`.
        b"IPI" => EventKind::IpiInterrupt,
        name if name.starts_with(b"IPI-") => EventKind::IpiInterrupt,
        _ => EventKind::DeviceInterrupt,
    }
}

/// An integer field's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int {
    offset: usize,
    width: Width,
    is_signed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Int {
    /// The field's value, sign-extended if it is signed; `None` past the record's end.
    #[inline]
    pub(crate) fn read(self, record: &[u8], order: ByteOrder) -> Option<u64> {
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

/// The start of a timer-wheel timer: times in jiffies, of the kernel's `long`.
pub(crate) fn wheel_start(
    timer: u64,
    now: u64,
    expires: u64,
    bucket_expiry: Option<u64>,
    flags: u32,
    width: Width,
) -> EventKind {
    let bucket_jiffies = bucket_expiry.unwrap_or_else(|| wheel_bucket(expires, now, width));
    let ahead = jiffies_between(now, bucket_jiffies, width);
    let ahead_jiffies = ahead.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies, flags }
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

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: u16 = 3;

    fn decoder(system: &str, text: &str, order: ByteOrder) -> Decoder {
        let format = EventFormat::parse(text.as_bytes()).unwrap();
        Decoder::compile(system, &format, order).unwrap().unwrap()
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
    fn format_text_is_read_as_the_kernel_writes_it() {
        let text = b"name: sched_switch\nID: 372\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
            \tfield:const char * reason;\toffset:28;\tsize:8;\tsigned:0;\n\
            \tfield:void *timer;\toffset:36;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long args[6 * 2];\toffset:44;\tsize:96;\tsigned:0;\n\
            \tfield:long prev_state;\toffset:140;\tsize:8;\tsigned:1;\n\
            \tfield:int broken;\toffset:x;\tsize:4;\tsigned:1;\n\
            something else\n\nprint fmt: \"field:int a; offset:1; size:4;\", REC->a\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("sched_switch", 372));
        let names: Vec<_> = format.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            names,
            ["common_type", "prev_comm", "name", "reason", "timer", "args", "prev_state"]
        );
        let name = format.field("name").unwrap();
        assert_eq!((name.offset, name.byte_count, name.is_data_loc), (24, 4, true));
        assert!(format.field("prev_state").unwrap().is_signed);
        assert!(format.optional_int("args").is_none());
    }

    #[test]
    fn format_without_name_or_id_is_none() {
        assert_eq!(EventFormat::parse(b"name: a\n"), None);
        assert_eq!(EventFormat::parse(b"ID: 1\n"), None);
        assert_eq!(EventFormat::parse(b"\xff\xfe\n\0"), None);
    }

    #[test]
    fn missing_field_is_named() {
        let format = EventFormat::parse(b"name: tick_stop\nID: 1\n").unwrap();
        let unreadable = Decoder::compile("timer", &format, ByteOrder::Little).unwrap_err();
        assert_eq!(
            unreadable.to_string(),
            "the format of tick_stop has no integer field `success`"
        );
    }

    #[test]
    fn unknown_tracepoint_has_no_decoder() {
        let format = EventFormat::parse(b"name: timer_init\nID: 1\n").unwrap();
        assert!(Decoder::compile("timer", &format, ByteOrder::Little).unwrap().is_none());
        let format = EventFormat::parse(b"name: cpu_idle\nID: 1\n").unwrap();
        assert!(Decoder::compile("other", &format, ByteOrder::Little).unwrap().is_none());
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
        assert_eq!(decode("timer", OLD_TIMER_START, &fields), start(1_104, 104, CPU.into()));
        let with_flags = format!("{OLD_TIMER_START}field:unsigned int flags; offset:32; size:4;");
        assert_eq!(decode("timer", &with_flags, &fields), start(1_104, 104, 1));
        let older = format!("{OLD_TIMER_START}field:int deferrable; offset:32; size:4;");
        let flags = TIMER_DEFERRABLE | u32::from(CPU);
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
        let kind = EventKind::WheelStart { timer: 1, bucket_jiffies, ahead_jiffies, flags: 0 };
        assert_eq!(decode("timer", text, &fields), event(kind));
    }

    /// `timer_start` events of Linux 6.18, which says the bucket itself: traces/a-idle and b-redis.
    #[test]
    fn wheel_bucket_is_the_kernels() {
        for (expires, now, bucket) in [
            (4_295_416_609, 4_295_416_608, 4_295_416_610),
            (4_295_416_618, 4_295_416_608, 4_295_416_619),
            (4_295_416_845, 4_295_416_720, 4_295_416_848),
            (4_295_416_853, 4_295_416_728, 4_295_416_856),
            (4_295_418_750, 4_295_417_536, 4_295_418_752),
            (4_295_418_850, 4_295_417_600, 4_295_418_880),
            (4_295_442_233, 4_295_440_983, 4_295_442_240),
            (4_295_842_407, 4_295_827_407, 4_295_842_816),
            (4_295_517_432, 4_295_442_432, 4_295_520_256),
        ] {
            assert_eq!(wheel_bucket(expires, now, Width::Eight), bucket);
            assert_eq!(wheel_bucket(expires, now, Width::Four), bucket & 0xffff_ffff);
        }
        // Overdue: at once. Beyond the last level: its last bucket, 48 days ahead at 250 Hz.
        assert_eq!(wheel_bucket(900, 1_000, Width::Eight), 1_000);
        assert_eq!(wheel_bucket(1 << 40, 0, Width::Eight), 63 << 24);
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
        assert!(Decoder::compile("irq_vectors", &format, ByteOrder::Little).unwrap().is_none());

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
        // Minus one is no CPU.
        assert_eq!(decode("sched", text, &record(&[0xffff_ffff])), Decoded::Malformed);

        let text =
            "name: softirq_entry\nID: 1\nfield:unsigned int vec; offset:8; size:4; signed:0;";
        assert_eq!(decode("irq", text, &record(&[1])), event(EventKind::Softirq { vector: 1 }));
    }

    #[test]
    fn failed_tick_stop_is_nothing() {
        let text = "name: tick_stop\nID: 1\nfield:int success; offset:8; size:4; signed:1;";
        assert_eq!(decode("timer", text, &record(&[0])), Decoded::Nothing);
        assert_eq!(decode("timer", text, &record(&[1])), event(EventKind::TickStop));
    }
}
