//! Finds out what a text shows but does not state: its events, its clock, and its dialect. No
//! header lists them, so the first part of the file is read.

use std::collections::HashSet;

use super::body::{self, Dialect};
use super::line::{EventLine, Line, number};
use crate::Doubt;
use crate::event::{EventKind, Tracepoints};
use crate::import::TraceInfo;
use crate::import::named::{self, EVENT_COUNT};
use crate::tracepoint::{Decoded, Purpose};

/// Two clocks are the same if their readings in one event never differ by more than this.
const SAME_CLOCK_NS: u64 = 1_000_000;

/// Kernels have about two thousand tracepoints. Further names, as in random bytes, are not counted.
const MAX_NAME_COUNT: usize = 1 << 12;

#[derive(Default)]
pub(super) struct Survey {
    purpose: Purpose,
    names: HashSet<Vec<u8>>,
    is_seen: [bool; EVENT_COUNT],
    is_timeless: bool,
    /// The fewest digits after the point.
    digit_count: Option<u8>,
    /// The smallest difference between a timer's clock and the event's.
    clock_distance_ns: Option<u64>,
    wheel: WheelStarts,
    /// How many events the kernel wrote over older ones, so that they are not in the file.
    overwritten_count: u64,
    cpu_count: Option<u32>,
}

/// What `timer_start` lines have in common.
#[derive(Default)]
struct WheelStarts {
    count: u64,
    without_bucket_count: u64,
    without_cpu_count: u64,
    /// Those that have every flag set.
    all_flags_count: u64,
    max_hexadecimal: Option<u64>,
}

impl Survey {
    /// A survey of what is needed for a purpose.
    pub(super) fn new(purpose: Purpose) -> Self {
        Self { purpose, ..Self::default() }
    }

    pub(super) fn push(&mut self, line: &[u8]) {
        match Line::parse(line) {
            Line::Event(event) => self.push_event(&event),
            Line::Lost { .. } => {}
            Line::Other => self.push_header(line),
        }
    }

    fn push_event(&mut self, event: &EventLine<'_>) {
        let EventLine { cpu, time, name, body, .. } = *event;
        if self.names.len() < MAX_NAME_COUNT && !self.names.contains(name) {
            self.names.insert(name.to_vec());
        }
        self.is_timeless |= time.digit_count == 0;
        self.digit_count =
            Some(self.digit_count.map_or(time.digit_count, |count| count.min(time.digit_count)));
        let Some(number) = find(name, body, self.purpose) else { return };
        self.is_seen[number] = true;
        match name {
            b"timer_start" => self.wheel.push(body),
            b"hrtimer_expire_entry" => {
                let fields = body::fields(event, Dialect::default(), self.purpose);
                if let Decoded::Event { kind: EventKind::HrtimerExpire { now_ns, .. }, .. } =
                    named::event(number).decode(&fields, cpu, self.purpose)
                {
                    let distance_ns = time.at_ns.abs_diff(now_ns);
                    let least_ns = self.clock_distance_ns.unwrap_or(u64::MAX);
                    self.clock_distance_ns = Some(least_ns.min(distance_ns));
                }
            }
            _ => {}
        }
    }

    /// `# entries-in-buffer/entries-written: 44484/50000   #P:2` of tracefs, `cpus=2` of trace-cmd.
    fn push_header(&mut self, line: &[u8]) {
        let Ok(line) = std::str::from_utf8(line) else { return };
        if let Some(counts) = line.strip_prefix("# entries-in-buffer/entries-written:") {
            let mut words = counts.split_whitespace();
            if let Some((inside, written)) = words.next().and_then(|word| word.split_once('/'))
                && let (Ok(inside), Ok(written)) = (inside.parse::<u64>(), written.parse::<u64>())
            {
                self.overwritten_count = written.saturating_sub(inside);
            }
            let cpus = words.next().and_then(|word| word.strip_prefix("#P:"));
            self.cpu_count = cpus.and_then(|cpus| cpus.parse().ok()).or(self.cpu_count);
        } else if let Some(cpus) = line.strip_prefix("cpus=") {
            self.cpu_count = number(cpus.as_bytes()).and_then(|(cpus, _)| cpus.try_into().ok());
        }
    }

    /// How many different event names there are.
    pub(super) fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Whether the clock does not count time.
    pub(super) fn is_timeless(&self) -> bool {
        self.is_timeless
    }

    pub(super) fn tracepoints(&self) -> Tracepoints {
        let seen = self.is_seen.iter().enumerate().filter(|(_, is_seen)| **is_seen);
        seen.fold(Tracepoints::ONLY_SEEN, |all, (number, _)| {
            all.union(named::event(number).provides)
        })
    }

    pub(super) fn dialect(&self) -> Dialect {
        let wheel = &self.wheel;
        Dialect {
            // Few timers have three flags at once. If all have, the flags are false.
            has_false_flags: wheel.all_flags_count > 0 && wheel.all_flags_count == wheel.count,
            // Newer flags have the bucket in bits 22 and up.
            has_old_flags: wheel.max_hexadecimal.is_some_and(|max| max >> 22 == 0),
        }
    }

    /// What the text shows about itself, and doubts about what it cannot show.
    pub(super) fn info(&self, file_byte_count: u64) -> TraceInfo {
        let is_monotonic = self.clock_distance_ns.is_some_and(|distance| distance < SAME_CLOCK_NS);
        TraceInfo {
            cpu_count: self.cpu_count,
            clock: is_monotonic.then(|| "CLOCK_MONOTONIC".to_owned()),
            tracepoints: self.tracepoints(),
            doubts: self.doubts(),
            file_byte_count,
            ..TraceInfo::default()
        }
    }

    fn doubts(&self) -> Vec<Doubt> {
        let Self { wheel, digit_count, overwritten_count, .. } = self;
        let has_microseconds = digit_count.is_some_and(|count| count < 9);
        let doubts = [
            (has_microseconds, Doubt::Microseconds),
            (self.dialect().has_false_flags, Doubt::AllDeferrable),
            (wheel.without_bucket_count > 0, Doubt::BucketComputed),
            (wheel.without_cpu_count > 0, Doubt::TimersWithoutCpu),
            (*overwritten_count > 0, Doubt::Overwritten { count: *overwritten_count }),
        ];
        doubts.into_iter().filter_map(|(is_so, doubt)| is_so.then_some(doubt)).collect()
    }
}

impl WheelStarts {
    fn push(&mut self, body: &[u8]) {
        let value = |key: &str| {
            let at = memchr::memmem::rfind(body, key.as_bytes())? + key.len();
            body.get(at..)
        };
        self.count += 1;
        self.without_bucket_count += u64::from(value(" bucket_expiry=").is_none());
        let flags = value(" flags=").unwrap_or_default();
        self.without_cpu_count += u64::from(value(" cpu=").is_none() && flags.is_empty());
        self.all_flags_count += u64::from(flags == b"D|P|I");
        let digits = flags.strip_prefix(b"0x").and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(flags) = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            self.max_hexadecimal = Some(self.max_hexadecimal.unwrap_or(0).max(flags));
        }
    }
}

/// The number of an event, if we read it.
#[inline]
pub(super) fn find(name: &[u8], body: &[u8], purpose: Purpose) -> Option<usize> {
    let vector = || body.starts_with(b"vector=").then(|| named::find_vector(name, purpose))?;
    named::find(name, purpose).or_else(vector)
}
