//! One line of a trace's text: task, CPU, time, event.
//!
//! ```text
//!           <idle>-0     [001]  2953.853578: reschedule_entry:     vector=253
//!     kworker/u4:1-77  (   77) [000] d.h1.  2982.553136451: cpu_idle: state=1 cpu_id=0
//!     ── task, which may ──── ─CPU─ flags ──── time ─────── name ─── body ────────────
//!        have any letters
//! ```
//!
//! Columns differ between kernels, recorders and options, and a task's name can look like anything.
//! A line is therefore recognised by what all have in common: a CPU's number in brackets, then at
//! most a few words that we ignore, then a time and a name that both end with a colon.

use memchr::memchr;

/// How many words may come between CPU and time: flags, and what options add.
const MAX_WORD_COUNT: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Event(EventLine<'a>),
    /// The kernel or the recorder dropped events of this CPU before this line.
    Lost {
        cpu: u16,
        /// `None` if the text does not say how many.
        event_count: Option<u64>,
    },
    /// A comment, a stack, a line of something else.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventLine<'a> {
    pub(super) cpu: u16,
    /// What ran: `dNh2`. Empty if the recorder left it out.
    pub(super) flags: &'a [u8],
    pub(super) time: Time,
    pub(super) name: &'a [u8],
    pub(super) body: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    pub(super) at_ns: i64,
    /// How many digits it has after the point; 0 for a clock that does not count time.
    pub(super) digit_count: u8,
}

impl<'a> Line<'a> {
    #[inline]
    pub(super) fn parse(line: &'a [u8]) -> Self {
        match line.first() {
            Some(b'#') | None => return Self::Other,
            Some(b'C') => {
                if let Some(lost) = lost(line) {
                    return lost;
                }
            }
            _ => {}
        }
        let mut rest = line;
        while let Some(at) = memchr(b'[', rest) {
            rest = rest.get(at + 1..).unwrap_or_default();
            if let Some(event) = after_bracket(rest) {
                return Self::Event(event);
            }
        }
        Self::Other
    }
}

/// `CPU:1 [LOST 12 EVENTS]` of the kernel, `CPU:1 [12 EVENTS DROPPED]` of trace-cmd; either may
/// omit the count.
fn lost(line: &[u8]) -> Option<Line<'_>> {
    let (cpu, rest) = number(line.strip_prefix(b"CPU:")?)?;
    let words = rest.strip_prefix(b" [")?;
    let words = words.strip_prefix(b"LOST ").unwrap_or(words);
    let (event_count, words) = match number(words) {
        Some((event_count, words)) => (Some(event_count), words.strip_prefix(b" ")?),
        None => (None, words),
    };
    if !words.starts_with(b"EVENTS") {
        return None;
    }
    Some(Line::Lost { cpu: u16::try_from(cpu).ok()?, event_count })
}

/// Parses an event's line after an opening bracket; `None` if that does not enclose the CPU.
#[inline]
fn after_bracket(rest: &[u8]) -> Option<EventLine<'_>> {
    let (cpu, rest) = number(rest)?;
    let mut rest = rest.strip_prefix(b"] ")?;
    let cpu = u16::try_from(cpu).ok()?;
    let mut flags: &[u8] = b"";
    for index in 0..=MAX_WORD_COUNT {
        rest = rest.trim_ascii_start();
        let end = memchr(b' ', rest)?;
        let (word, after) = rest.split_at_checked(end)?;
        rest = after;
        if let Some(time) = word.strip_suffix(b":").and_then(time) {
            let rest = rest.trim_ascii_start();
            let end = memchr(b':', rest)?;
            let (name, body) = rest.split_at_checked(end)?;
            let is_name = !name.is_empty() && !name.contains(&b' ');
            let body = body.get(1..)?.trim_ascii();
            return is_name.then_some(EventLine { cpu, flags, time, name, body });
        }
        // The CPU is in the last brackets before the time.
        if word.starts_with(b"[") {
            return None;
        }
        if index == 0 {
            flags = word;
        }
    }
    None
}

fn time(word: &[u8]) -> Option<Time> {
    let (whole, rest) = number(word)?;
    let whole = i64::try_from(whole).ok()?;
    if rest.is_empty() {
        return Some(Time { at_ns: whole, digit_count: 0 });
    }
    let digits = rest.strip_prefix(b".")?;
    let (mut fraction, rest) = number(digits)?;
    if !rest.is_empty() || digits.len() > 9 {
        return None;
    }
    for _ in digits.len()..9 {
        fraction *= 10;
    }
    let at_ns = whole.checked_mul(1_000_000_000)?.checked_add_unsigned(fraction)?;
    Some(Time { at_ns, digit_count: digits.len() as u8 })
}

/// The decimal number that the text begins with, and what follows it.
#[inline]
pub(super) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digit_count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digit_count)?;
    let (first, others) = digits.split_first()?;
    let mut value = u64::from(first - b'0');
    for digit in others {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(line: &str) -> (u16, i64, u8, &str, &str) {
        let Line::Event(event) = Line::parse(line.as_bytes()) else { panic!("no event: {line}") };
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let Time { at_ns, digit_count } = event.time;
        (event.cpu, at_ns, digit_count, text(event.name), text(event.body))
    }

    #[test]
    fn columns_of_all_recorders_are_read() {
        for line in [
            // trace-cmd report, without and with flags.
            "           sleep-25707 [012]     2.853565: cpu_idle:             state=1 cpu_id=12",
            "           sleep-25707 [012] d..2.     2.853565: cpu_idle:             state=1 cpu_id=12",
            // tracefs of kernels without and with flags, and with the option record-tgid.
            "          <idle>-0     [012]     2.853565: cpu_idle: state=1 cpu_id=12",
            "          <idle>-0     [012] dNh2     2.853565: cpu_idle: state=1 cpu_id=12",
            "  surfaceflinger-512   (  512) [012] d..2     2.853565: cpu_idle: state=1 cpu_id=12",
            "          <idle>-0     (-----) [012] d..2     2.853565: cpu_idle: state=1 cpu_id=12",
            // Task names that look like columns.
            "     a [003] b: c-25707 [012] ..... 2.853565: cpu_idle: state=1 cpu_id=12",
            "        [x] - [7]-25707 [012] 2.853565: cpu_idle: state=1 cpu_id=12",
            " Thread-5 [9] 1.5-25707 [012] 2.853565: cpu_idle: state=1 cpu_id=12",
            "guest:  <idle>-0 [012] 2.853565: cpu_idle: state=1 cpu_id=12",
        ] {
            let expected = (12, 2_853_565_000, 6, "cpu_idle", "state=1 cpu_id=12");
            assert_eq!(event(line), expected, "{line}");
        }
    }

    #[test]
    fn nanoseconds_are_read() {
        let line = "<idle>-0 [000] 2.853565123: cpu_idle: state=4294967295 cpu_id=0";
        assert_eq!(event(line).1, 2_853_565_123);
        assert_eq!(event("<idle>-0 [000] 77: cpu_idle: state=0").2, 0);
    }

    #[test]
    fn other_lines_are_none_of_ours() {
        for line in [
            "",
            "# tracer: nop",
            "##### CPU 1 buffer started ####",
            "cpus=2",
            "CPU 1 is empty",
            " => do_idle",
            "<idle>-0 [000] 2.853565: do_idle <-cpu_startup_entry",
            "<idle>-0 [000] 2.8535651234: cpu_idle: state=1",
            "<idle>-0 [99999] 2.853565: cpu_idle: state=1",
            "<idle>-0 [000] a b c d 2.853565: cpu_idle: state=1",
            "<idle>-0 [000] 2.853565:",
            "<idle>-0 [000] 99999999999999999999.853565: cpu_idle: state=1",
        ] {
            assert_eq!(Line::parse(line.as_bytes()), Line::Other, "{line}");
        }
    }

    #[test]
    fn lost_events_are_told_by_both_recorders() {
        let lost = |cpu, event_count| Line::Lost { cpu, event_count };
        assert_eq!(Line::parse(b"CPU:2 [LOST 136 EVENTS]"), lost(2, Some(136)));
        assert_eq!(Line::parse(b"CPU:2 [LOST EVENTS]"), lost(2, None));
        assert_eq!(Line::parse(b"CPU:12 [136 EVENTS DROPPED]"), lost(12, Some(136)));
        assert_eq!(Line::parse(b"CPU:12 [EVENTS DROPPED]"), lost(12, None));
        // A task may have such a name.
        let line = b"CPU:1 [2]-77 [003] 2.853565: cpu_idle: state=1";
        assert!(matches!(Line::parse(line), Line::Event(_)));
    }
}
