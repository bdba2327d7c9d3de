//! Parses the fields in an event's line after its name, as the kernel (tracefs) or libtraceevent
//! (trace-cmd) prints them.

use std::hash::Hasher;

use memchr::{memchr, memmem};
use rustc_hash::FxHasher;

use super::line::{EventLine, number};
use crate::import::named::Fields;
use crate::tracepoint::{
    FieldName, Purpose, TIMER_DEFERRABLE, TIMER_PINNED, wheel_flags_without_cpu,
};

/// Differences between recorders and kernels that only many lines together show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Timers' flags are printed wrong and must not be read.
    pub(super) has_false_flags: bool,
    /// Timers' flags in hexadecimal have the layout of Linux 4.2 to 4.7.
    pub(super) has_old_flags: bool,
}

/// `TIMER_DEFERRABLE` and `TIMER_CPUMASK` of Linux 4.2 to 4.7.
const OLD_TIMER_DEFERRABLE: u32 = 1 << 20;
const OLD_TIMER_CPU_MASK: u32 = (1 << 19) - 1;

/// Parses a line's fields. Unreadable fields are left out, and the event is then found incomplete.
#[inline]
pub(super) fn fields<'a>(line: &EventLine<'a>, dialect: Dialect, purpose: Purpose) -> Fields<'a> {
    let EventLine { cpu, name, body, flags, .. } = *line;
    let mut fields = Fields::default();
    match name {
        b"sched_switch" if purpose.needs_tasks() => read_switch(body, &mut fields),
        b"sched_waking" | b"sched_wakeup_new" if purpose == Purpose::Causes => {
            set(&mut fields, FieldName::Pid, woken_pid(body));
            set(&mut fields, FieldName::CommonFlags, common_flags(flags));
        }
        b"sched_switch" => set(&mut fields, FieldName::NextPid, next_pid(body)),
        b"sched_wakeup" | b"sched_wakeup_new" => {
            set(&mut fields, FieldName::TargetCpu, target_cpu(body));
        }
        b"ipi_entry" => {
            let reason = body.strip_prefix(b"(").unwrap_or(body);
            fields.name = reason.strip_suffix(b")").unwrap_or(reason);
        }
        b"irq_handler_entry" => fields.name = after_last(body, b" name=").unwrap_or_default(),
        _ => read_pairs(body, cpu, dialect, &mut fields),
    }
    fields
}

/// Reads all `key=value` pairs that we know.
#[inline]
fn read_pairs(body: &[u8], cpu: u16, dialect: Dialect, fields: &mut Fields<'_>) {
    let mut rest = body;
    while let Some(at) = memchr(b'=', rest) {
        let (before, after) = rest.split_at_checked(at).unwrap_or_default();
        let after = after.get(1..).unwrap_or_default();
        let key_start = before.iter().rposition(|byte| matches!(byte, b' ' | b'[' | b','));
        let key = before.get(key_start.map_or(0, |at| at + 1)..).unwrap_or_default();
        let end = after.iter().position(|byte| matches!(byte, b' ' | b']' | b','));
        let (value, after) = after.split_at_checked(end.unwrap_or(after.len())).unwrap_or_default();
        rest = after;
        let Some(field) = FieldName::from_name(key) else { continue };
        let value = match field {
            FieldName::Hrtimer | FieldName::Timer => address(value),
            FieldName::Function => Some(symbol_hash(value)),
            FieldName::Flags if dialect.has_false_flags => None,
            FieldName::Flags => {
                // If the CPU is given, it comes before the flags.
                let cpu = fields.get(FieldName::Cpu).map_or(cpu, |cpu| cpu as u16);
                timer_flags(value, cpu, dialect)
            }
            FieldName::Success if value == b"yes" => Some(1),
            FieldName::Success if value == b"no" => Some(0),
            _ => integer(value),
        };
        set(fields, field, value);
    }
    if dialect.has_false_flags
        && let Some(cpu) = fields.get(FieldName::Cpu)
    {
        fields.set(FieldName::Flags, wheel_flags_without_cpu(false, cpu as u16).into());
    }
}

fn set(fields: &mut Fields<'_>, field: FieldName, value: Option<u64>) {
    if let Some(value) = value {
        fields.set(field, value);
    }
}

/// `prev_comm=a … ==> next_comm=b next_pid=7 next_prio=120` with or without the arrow, or
/// `a:3 [120] S ==> b:7 [120]`.
fn next_pid(body: &[u8]) -> Option<u64> {
    if let Some(pid) = after_last(body, b" next_pid=") {
        return number(pid).map(|(pid, _)| pid);
    }
    let next = after_last(body, b"==> ")?;
    let name_and_pid = next.get(..memmem::rfind(next, b" [")?)?;
    number(after_last(name_and_pid, b":")?).map(|(pid, _)| pid)
}

/// The same with both tasks, for causes.
fn read_switch<'a>(body: &'a [u8], fields: &mut Fields<'a>) {
    let (prev, next) = match memmem::rfind(body, b"==> ").or(memmem::rfind(body, b" next_comm=")) {
        Some(at) => body.split_at_checked(at).unwrap_or_default(),
        None => return,
    };
    set(fields, FieldName::NextPid, next_pid(body));
    if let Some(pid) = after_last(prev, b" prev_pid=") {
        set(fields, FieldName::PrevPid, number(pid).map(|(pid, _)| pid));
        set(fields, FieldName::PrevState, after_last(prev, b" prev_state=").and_then(task_state));
        let name = after_last(next, b"next_comm=").unwrap_or_default();
        fields.name =
            memmem::rfind(name, b" next_pid=").and_then(|end| name.get(..end)).unwrap_or(name);
        return;
    }
    // `a:3 [120] S ==> b:7 [120]`
    let before = memmem::rfind(prev, b" [").and_then(|at| prev.split_at_checked(at));
    let Some((name_and_pid, rest)) = before else { return };
    let pid = after_last(name_and_pid, b":").and_then(number);
    set(fields, FieldName::PrevPid, pid.map(|(pid, _)| pid));
    set(fields, FieldName::PrevState, after_last(rest, b"] ").and_then(task_state));
    let next = next.strip_prefix(b"==> ").unwrap_or(next);
    let end = memmem::rfind(next, b" [").and_then(|end| next.get(..end)).unwrap_or(next);
    fields.name =
        memmem::rfind(end, b":").and_then(|end_of_name| end.get(..end_of_name)).unwrap_or(end);
}

/// A task's state as letters such as `S`, `D|K` or `R+`, or as the kernel's bits, into those bits.
fn task_state(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let text = text.strip_prefix(b"(").unwrap_or(text);
    match text.first()? {
        b'0'..=b'9' => number(text).map(|(bits, _)| bits),
        b'R' => Some(0),
        b'X' | b'x' | b'Z' => Some(0x10),
        // It waits for something; what, does not matter.
        _ => Some(1),
    }
}

/// `comm=a pid=7 prio=120 target_cpu=001`, or `a:7 [120] CPU:001`.
fn woken_pid(body: &[u8]) -> Option<u64> {
    if let Some(pid) = after_last(body, b" pid=") {
        return number(pid).map(|(pid, _)| pid);
    }
    let name_and_pid = body.get(..memmem::rfind(body, b" [")?)?;
    number(after_last(name_and_pid, b":")?).map(|(pid, _)| pid)
}

/// The flags that tell what ran, from the column of letters: the third one is `h` or `H` in an interrupt,
/// `s` in a softirq, `.` in a task. `None` if there is no such column.
fn common_flags(flags: &[u8]) -> Option<u64> {
    let is_column =
        (4..=6).contains(&flags.len()) && matches!(flags.first(), Some(b'd' | b'D' | b'b' | b'.'));
    match flags.get(2).filter(|_| is_column)? {
        b'h' | b'z' | b'Z' => Some(0x08),
        b'H' => Some(0x18),
        b's' => Some(0x10),
        b'.' => Some(0),
        _ => None,
    }
}

/// `comm=a pid=7 prio=120 target_cpu=001`, or `a:7 [120] CPU:001`.
fn target_cpu(body: &[u8]) -> Option<u64> {
    let cpu = after_last(body, b" target_cpu=").or_else(|| after_last(body, b" CPU:"))?;
    number(cpu).map(|(cpu, _)| cpu)
}

fn after_last<'a>(text: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    text.get(memmem::rfind(text, mark)? + mark.len()..)
}

/// Decimal, or hexadecimal with `0x`. Negative numbers become what the kernel stores.
fn integer(text: &[u8]) -> Option<u64> {
    if let Some(digits) = text.strip_prefix(b"0x") {
        return hexadecimal(digits);
    }
    if let Some(digits) = text.strip_prefix(b"-") {
        return match number(digits)? {
            (value, []) => Some(value.wrapping_neg()),
            _ => None,
        };
    }
    match number(text)? {
        (value, []) => Some(value),
        _ => None,
    }
}

/// An address, or the hash that the kernel prints instead.
fn address(text: &[u8]) -> Option<u64> {
    hexadecimal(text.strip_prefix(b"0x").unwrap_or(text))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// A hash of a function's name. Recorders append `/0x0`, `+0x0/0x10` or nothing.
fn symbol_hash(text: &[u8]) -> u64 {
    let end = text.iter().position(|byte| matches!(byte, b'/' | b'+')).unwrap_or(text.len());
    let mut hasher = FxHasher::default();
    hasher.write(text.get(..end).unwrap_or_default());
    hasher.finish()
}

/// A timer's flags, including its CPU, in today's layout (`include/linux/timer.h`). The text may be
/// letters such as `D|P|I`, empty, or a number.
fn timer_flags(text: &[u8], cpu: u16, dialect: Dialect) -> Option<u64> {
    if text.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'|')) {
        let pinned = if text.contains(&b'P') { TIMER_PINNED } else { 0 };
        return Some((wheel_flags_without_cpu(text.contains(&b'D'), cpu) | pinned).into());
    }
    let flags = integer(text)?;
    if !dialect.has_old_flags {
        return Some(flags);
    }
    let flags = u32::try_from(flags).ok()?;
    let deferrable = if flags & OLD_TIMER_DEFERRABLE == 0 { 0 } else { TIMER_DEFERRABLE };
    Some((flags & OLD_TIMER_CPU_MASK | deferrable).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;
    use crate::event::{Leaving, NonZeroTask, TaskName, WakeContext};
    use crate::import::named;
    use crate::import::text::line::Time;
    use crate::tracepoint::Decoded;

    fn kind(name: &str, body: &str) -> EventKind {
        kind_in(Dialect::default(), name, body)
    }

    fn line<'a>(flags: &'a str, name: &'a str, body: &'a str) -> EventLine<'a> {
        let [flags, name, body] = [flags, name, body].map(str::as_bytes);
        EventLine { cpu: 3, flags, time: Time { at_ns: 0, digit_count: 9 }, name, body }
    }

    fn kind_in(dialect: Dialect, name: &str, body: &str) -> EventKind {
        let fields = fields(&line("", name, body), dialect, Purpose::Gaps);
        let event = named::event(named::find(name.as_bytes(), Purpose::Gaps).unwrap());
        match event.decode(&fields, 3, Purpose::Gaps) {
            Decoded::Event { kind, .. } => kind,
            other => panic!("{name}: {body}: {other:?}"),
        }
    }

    #[test]
    fn both_dialects_of_sched_switch_are_read() {
        for (body, kind_expected) in [
            (
                "prev_comm=a prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120",
                EventKind::SwitchToIdle,
            ),
            (
                "prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=b ==> next_pid=0 next_pid=7 next_prio=120",
                EventKind::SwitchToTask,
            ),
            (
                "prev_comm=a prev_pid=7 prev_state=64 next_comm=swapper/6 next_pid=0 next_prio=120",
                EventKind::SwitchToIdle,
            ),
            ("a:7 [120] S ==> swapper/0:0 [120]", EventKind::SwitchToIdle),
            ("swapper/0:0 [120] R ==> kworker/0:1H:77 [100]", EventKind::SwitchToTask),
            ("task a:7 [120] (1) ==> x [0]:0:8 [120]", EventKind::SwitchToTask),
        ] {
            assert_eq!(kind("sched_switch", body), kind_expected, "{body}");
        }
        assert_eq!(
            kind("sched_wakeup", "comm=a CPU:9 pid=1 prio=120 target_cpu=002"),
            EventKind::Wakeup { target_cpu: 2 }
        );
        assert_eq!(
            kind("sched_wakeup", "a=b:7 [120] success=1 CPU:011"),
            EventKind::Wakeup { target_cpu: 11 }
        );
    }

    fn cause(flags: &str, name: &str, body: &str) -> EventKind {
        let fields = fields(&line(flags, name, body), Dialect::default(), Purpose::Causes);
        let event = named::event(named::find(name.as_bytes(), Purpose::Causes).unwrap());
        match event.decode(&fields, 3, Purpose::Causes) {
            Decoded::Event { kind, .. } => kind,
            other => panic!("{name}: {body}: {other:?}"),
        }
    }

    #[test]
    fn causes_are_read_from_all_dialects() {
        for (body, leaves, next, name) in [
            (
                "prev_comm=x prev_pid=1 prev_comm=a prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=b c next_pid=8 next_prio=120",
                Leaving::Waits,
                8,
                "b c",
            ),
            (
                "prev_comm=a prev_pid=7 prev_prio=120 prev_state=R+ ==> next_comm=swapper/0 next_pid=0 next_prio=120",
                Leaving::Runnable,
                0,
                "swapper/0",
            ),
            (
                "prev_comm=a prev_pid=7 prev_state=16 next_comm=swapper/6 next_pid=0 next_prio=120",
                Leaving::Ends,
                0,
                "swapper/6",
            ),
            ("a:7 [120] D ==> k/0:1H:77 [100]", Leaving::Waits, 77, "k/0:1H"),
            ("t [x]:7 [120] R ==> b:8 [120]", Leaving::Runnable, 8, "b"),
            ("t a:7 [120] (1) ==> b:8 [120]", Leaving::Waits, 8, "b"),
        ] {
            let expected = EventKind::Switch {
                prev: NonZeroTask::new(7),
                next,
                leaves,
                next_name: TaskName::new(name.as_bytes()),
            };
            assert_eq!(cause("", "sched_switch", body), expected, "{body}");
        }
        for (flags, context) in [
            ("d..2.", WakeContext::Task),
            ("dNh2", WakeContext::Interrupt),
            ("d.s1.", WakeContext::Softirq),
            ("", WakeContext::Unknown),
            ("x", WakeContext::Unknown),
        ] {
            let expected = EventKind::Waking { task: 7, context };
            for body in ["comm=a pid=1 pid=7 prio=120 target_cpu=001", "a:7 [120] CPU:001"] {
                assert_eq!(cause(flags, "sched_waking", body), expected, "{flags} {body}");
            }
        }
        let fork = cause("", "sched_wakeup_new", "comm=a pid=7 prio=120 target_cpu=001");
        assert_eq!(fork, EventKind::Fork { task: 7 });
        assert_eq!(cause("", "softirq_exit", "vec=1 [action=TIMER]"), EventKind::SoftirqExit);
        assert_eq!(cause("", "irq_handler_exit", "irq=1 ret=handled"), EventKind::InterruptExit);
    }

    #[test]
    fn hrtimers_have_names_for_functions() {
        let start = |body| match kind("hrtimer_start", body) {
            EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack } => {
                (timer, function, expires_at_ns, has_slack)
            }
            other => panic!("{other:?}"),
        };
        let plain = start(
            "hrtimer=0000000000a3b963 function=tick_sched_timer expires=900 softexpires=900 mode=ABS|PINNED",
        );
        let old = start(
            "hrtimer=ffffffc0a3b963 function=tick_sched_timer+0x0/0x12c expires=900 softexpires=850",
        );
        let plugin = start(
            "hrtimer=0xffffc0a3b963 function=tick_sched_timer/0x0 expires=900 softexpires=900",
        );
        assert_eq!((plain.0, plain.2, plain.3), (0xa3_b963, 900, false));
        assert!(old.3);
        assert_eq!((plain.1, plain.1), (old.1, plugin.1));
        let other = start("hrtimer=0x1 function=hrtimer_wakeup expires=900 softexpires=900");
        assert_ne!(plain.1, other.1);
    }

    #[test]
    fn timer_flags_of_all_kernels_are_read() {
        let flags = |dialect, body: &str| match kind_in(dialect, "timer_start", body) {
            EventKind::WheelStart { flags, .. } => flags,
            other => panic!("{other:?}"),
        };
        let new = Dialect::default();
        let old_times = "timer=1 function=f expires=100 [timeout=10]";
        assert_eq!(flags(new, old_times), TIMER_PINNED | 3);
        let times = &format!("{old_times} bucket_expiry=104");
        assert_eq!(flags(new, &format!("{times} cpu=1 idx=2 flags=")), 1);
        assert_eq!(flags(new, &format!("{times} cpu=1 idx=2 flags=D|I")), TIMER_DEFERRABLE | 1);
        assert_eq!(flags(new, &format!("{times} cpu=1 idx=2 flags=P|I")), TIMER_PINNED | 1);
        assert_eq!(flags(new, times), 3);
        assert_eq!(flags(new, &format!("{times} flags=0x04080002")), 0x0408_0002);
        let old = Dialect { has_old_flags: true, ..new };
        assert_eq!(flags(old, &format!("{times} flags=0x00100002")), TIMER_DEFERRABLE | 2);
        let wrong = Dialect { has_false_flags: true, ..new };
        assert_eq!(flags(wrong, &format!("{times} cpu=1 idx=2 flags=D|P|I")), 1);
        // trace-cmd report -R
        let raw = "timer=0x1 function=0xff expires=0x64 now=90 bucket_expiry=104 flags=524290";
        assert_eq!(flags(new, raw), TIMER_DEFERRABLE | 2);
    }

    #[test]
    fn ticks_and_interrupts_are_read() {
        for body in ["success=1 dependency=NONE", "success=yes msg= "] {
            assert_eq!(kind("tick_stop", body), EventKind::TickStop);
        }
        let line = line("", "tick_stop", "success=no msg=more than 1 task in runqueue");
        let no = fields(&line, Dialect::default(), Purpose::Gaps);
        assert_eq!(no.get(FieldName::Success), Some(0));
        assert_eq!(kind("irq_handler_entry", "irq=3 name=arch_timer"), EventKind::TimerInterrupt);
        assert_eq!(kind("irq_handler_entry", "irq=7 name=a b"), EventKind::DeviceInterrupt);
        assert_eq!(kind("ipi_entry", "(Rescheduling interrupts)"), EventKind::RescheduleInterrupt);
        assert_eq!(kind("softirq_entry", "vec=1 [action=TIMER]"), EventKind::Softirq { vector: 1 });
        assert_eq!(kind("timer_interrupt_entry", "pt_regs=0xc0"), EventKind::TimerInterrupt);
    }
}
