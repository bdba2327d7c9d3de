//! Reasons to distrust a log. Each kind is listed once, with the text that logs and tables show.
//!
//! A log holds the texts, so that other programs and later versions can show them. When we read a
//! log we recognise our own texts, and can then rank them.

use std::fmt;
use std::str::FromStr;

pub use idlewise_machine::Rank;
use serde::{Deserialize, Serialize};

use crate::tracepoint::TracepointName;

macro_rules! doubts {
    ($($(#[$doc:meta])* $kind:ident $({ $($field:ident: $type:ty),* })? = $text:literal / $brief:literal;)*) => {
        /// A reason to distrust a log and the results that rest on it.
        ///
        /// A doubt is major ([`Rank`]) unless the documentation of its kind gives a reason why it
        /// is minor.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "the text of each kind is its documentation")]
        pub enum Doubt {
            $(#[doc = concat!("\"", $text, "\"")] #[doc = ""] $(#[$doc])* $kind $({ $($field: $type),* })?,)*
            /// A text from another version of idlewise, or from another program.
            Other(String),
        }

        impl fmt::Display for Doubt {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$kind $({ $($field),* })? => write!(f, $text),)*
                    Self::Other(text) => f.write_str(text),
                }
            }
        }

        impl Doubt {
            /// Returns the doubt in a few words, for a line that lists all doubts of a result.
            #[allow(unused_variables, unreachable_patterns, clippy::useless_format, reason = "not every field is worth a word")]
            pub fn brief(&self) -> String {
                match self {
                    Self::UnobservedCpus { cpus } => match cpus.0.len() {
                        1 => "1 CPU unobserved".to_owned(),
                        count => format!("{count} CPUs unobserved"),
                    },
                    $(Self::$kind $({ $($field),* })? => format!($brief),)*
                    Self::Other(text) => text.clone(),
                }
            }

            /// Returns every kind that the text could be.
            fn readings(text: &str) -> impl Iterator<Item = Self> {
                let mut readings = Vec::new();
                $(
                    #[allow(unused_mut, unused_variables, reason = "not every kind has fields")]
                    readings.extend(holes($text, text).and_then(|holes| {
                        let mut holes = holes.into_iter();
                        Some(Self::$kind $({ $($field: holes.next()?.parse().ok()?),* })?)
                    }));
                )*
                readings.into_iter()
            }
        }
    };
}

doubts! {
    LatencyLimitChanged = "a PM QoS latency limit changed while recording, so no gap has one in \
        this log"
        / "latency limits changed";
    SeveralTables { count: usize, cpu_count: usize, cpu: u16 } = "the machine's CPUs have {count} \
        kinds of idle states; the log's machine is that of the {cpu_count} CPUs like CPU {cpu}"
        / "several kinds of CPUs";
    LateState { cpu: u16, state: u32 } = "CPU {cpu} enters state {state}, which its idle driver \
        didn't have when the recording began; its exit latency is taken as 0"
        / "an idle state came late";
    OtherHz { found: u32, noted: u32 } = "the tick was found at {found} Hz, but the kernel was \
        configured with HZ={noted}"
        / "HZ contradicts itself";
    UnreadableNote = "the recorder's note about the machine's idle states can't be read and is left \
        out"
        / "unreadable note of the recorder";
    GovernorChanged { governor: String } = "the cpuidle governor was changed while recording, to \
        {governor}"
        / "governor changed";
    ImpossibleState { cpu: u16, state: u32, at_ns: i64 } = "CPU {cpu} enters state {state} at \
        {at_ns} ns, which no idle driver has: the recording is damaged there, and such states are \
        unknown"
        / "damaged idle states";
    UnobservedCpus { cpus: List<u16> } = "CPU {cpus}: unobserved: the recording has events of it \
        but none of its idle task, so nothing is known of its idle time"
        / "unobserved CPUs";
    LostEvents { count: u64 } = "{count} events were lost while recording; gaps around them were \
        given up; record with larger buffers (perf record -m, trace-cmd record -b)"
        / "lost events: {count}";
    Truncated { reason: TruncationReason, at_byte: u64, lost_byte_count: u64 } = "{reason} at byte \
        {at_byte}; {lost_byte_count} bytes from there on were not read"
        / "{reason}";
    Undecodable { count: u64 } = "{count} records could not be decoded and were left out"
        / "undecodable records: {count}";
    OutOfOrder { count: u64 } = "{count} events came out of order (the clock stepped back, or the \
        CPUs' clocks differ) and were moved to the time of the one before; record with perf's -k \
        CLOCK_MONOTONIC or trace-cmd's -C mono"
        / "events out of order: {count}";
    ForeignFormats = "the event formats are those of another recording, for this one has none: \
        events are right only if both were recorded on the same kernel"
        / "event formats of another recording";
    UnreadableTracepoint { reason: String } = "recorded but unreadable: {reason}"
        / "unreadable events";
    SampledTracepoint { tracepoint: String } = "{tracepoint} was recorded only now and then; record \
        with a period of 1 (-c 1)"
        / "{tracepoint} was sampled";
    TickGridUnknown = "the tick was not found, so the tick grid is assumed in a replay"
        / "tick assumed";
    TickUnknown = "the tick was not found, so HZ and the tick grid are assumed in a replay; record \
        timer:hrtimer_start and timer:hrtimer_expire_entry too"
        / "tick and HZ assumed";
    ImpossibleGaps { count: u64 } = "{count} gaps of more than 104 days were given up: the clock \
        jumped, or the recording is damaged there"
        / "impossible gaps: {count}";
    /// Major: the next timers of some gaps are unknown.
    TimersWithoutStart { percent: u64 } = "{percent} % of the timers that expired have no start in \
        the recording"
        / "{percent} % of timers without start";
    /// Minor up to 5 %: a few next timers are too early. This moves no governor's cost by more than
    /// one percent of the oracle's (tested in `tests/cli/doubts.rs` of idlewise-cli).
    TimersMigrated { percent: u64 } = "{percent} % of the timers expired on another CPU than the \
        one that armed them; until then they counted for the CPU that did"
        / "{percent} % of timers on another CPU";
    /// Major: the events of some CPUs are missing.
    TimersVanished { percent: u64 } = "{percent} % as many timers as expired were due but show \
        neither expiry nor cancellation: CPUs that were not recorded took care of them"
        / "{percent} % of timers vanished";
    StrayExits { count: u64 } = "{count} idle exits had no entry before them and were left out"
        / "idle exits without entry: {count}";

    NoSwitches = "not recorded: sched:sched_switch; whether a task ran between two stays is \
        unknown, and so are wake reasons; a replay restarts the tick after each gap"
        / "task switches not recorded";
    NoInterrupts { tracepoints: List<TracepointName> } = "not recorded: {tracepoints}; such an \
        interrupt may have ended any stay, so wake reasons are unknown"
        / "interrupts not recorded";
    NoKnownInterrupts = "not recorded: some or all interrupts that end idle (their events differ between \
        architectures, and the recording does not name its own); such an interrupt may have ended any stay, so \
        wake reasons are unknown"
        / "interrupts not recorded";
    UnseenInterrupts { tracepoints: List<TracepointName> } = "not seen: {tracepoints}; the trace \
        does not list what was recorded, so stays without any interrupt have an unknown wake reason"
        / "some interrupts not seen";
    NoTimers { tracepoints: List<TracepointName> } = "not recorded: {tracepoints}; next timers are \
        unknown, governors that read them see none, and wake-ups by timers are not told from others"
        / "timers not recorded";
    NoTickStops = "not recorded: timer:tick_stop; whether the tick was stopped is unknown"
        / "stops of the tick not recorded";
    UnjoinedStays { count: u64 } = "{count} stays may have been ended by the tick alone, but what \
        was not recorded leaves that open: each is a gap of its own, and the gaps are shorter than \
        the workload's"
        / "stays perhaps split by the tick: {count}";

    /// Minor: rounding gaps to microseconds does not change the order of the governors (tested in
    /// `tests/cli/doubts.rs` of idlewise-cli).
    Microseconds = "the text has times to the microsecond, so gaps are right to one at each end \
        (the expiries of timers are exact); trace.dat and `trace-cmd report -t` have nanoseconds"
        / "times in microseconds";
    AllDeferrable = "the text says of each timer that it is deferrable, which trace-cmd's text does \
        by mistake; all are taken as not deferrable; import the trace.dat instead"
        / "deferrable timers unknown";
    /// Minor: it is computed as the kernel does, and is exact except where the wheel's clock lags.
    BucketComputed = "timer_start has no bucket_expiry (Linux before 6.8): when a timer's bucket \
        expires is computed from its expiry"
        / "timer buckets computed";
    TimersWithoutCpu = "timer_start has no CPU (Linux before 4.2): timers are taken to be queued on \
        the CPU that started them"
        / "CPUs of timers assumed";
    Overwritten { count: u64 } = "the buffer was full, and {count} older events were overwritten: \
        the CPUs' recordings begin at different times"
        / "overwritten events: {count}";
    LateTracepoint { tracepoint: String } = "{tracepoint} is not among the first events, so what \
        rests on it is taken as unknown"
        / "{tracepoint} came late";

    NoClockSnapshot = "the trace has no snapshot of its clocks: how far timers' clock is from it is \
        taken from their expiries"
        / "clocks not compared";
    NumberedTimers = "perfetto wrote numbers in place of the timers' addresses, and gives them anew \
        each time it reads the kernel's buffers: which timer was armed or cancelled is not known, so \
        next timers are unknown; record with trace-cmd or `idlewise record`"
        / "timers without identity";
    SeveralClocks = "the trace has events of several clocks and not always says how far they are \
        apart, so some may be at the wrong time"
        / "several clocks";
    Suspended { count: u64 } = "the machine was suspended {count} times: gaps over a suspend contain \
        it"
        / "suspended: {count} times";
    LostPackets { count: u64 } = "packets of events were lost {count} times: the trace's buffer was \
        too small"
        / "lost packets of events";
    /// Minor: the log is of one machine, so events of other machines are not missing from it.
    ForeignPackets { count: u64 } = "{count} packets of other machines were left out"
        / "packets of other machines";

    BuffersLeftOut { clock: String, buffers: String } = "the file's buffers are on several clocks: \
        only those on `{clock}` were imported, and {buffers} left out; record all with trace-cmd's \
        -C mono"
        / "buffers left out";
    DoubtfulClock { clock: String, reason: String } = "the clock `{clock}` is {reason}; record with \
        trace-cmd's -C mono"
        / "clock `{clock}`";

    SimulatedThreads { count: u64 } = "simulated with {count} threads a core: beside a running \
        sibling a CPU leaves its state sooner than the machine's table says, and where the tick \
        ended a stay the log does not hold how soon; a replay takes the table's figure, and may \
        decide otherwise from there on"
        / "simulated with {count} threads a core";
    SimulatedCosts { parameters: String } = "simulated with {parameters}: stays end at other times \
        than the machine's table says; a replay takes the table's figures, and may decide otherwise"
        / "simulated with other costs";
    SimulatedTickWork { work_ns: u64 } = "simulated with tick_work_ns={work_ns}: replay it with \
        --tick-work-ns {work_ns}"
        / "simulated with tick_work_ns={work_ns}";
    SimulatedDisabled { options: String } = "simulated with states switched off: replay it with \
        {options}"
        / "simulated with states off";
    Window = "a window of a longer log: governors know nothing of what came before it, and joined \
        stays and lost events are counted for the whole"
        / "a window of a longer log";

    /// Major: any of the dropped doubts may have been major.
    Anonymized { count: usize } = "anonymized: {count} doubts were dropped"
        / "anonymized";
}

/// Up to this share of timers that expired on another CPU, the doubt is minor.
const MIGRATED_MINOR_PERCENT: u64 = 5;

impl Doubt {
    /// Returns whether the doubt can change a verdict.
    pub fn rank(&self) -> Rank {
        match *self {
            Self::Microseconds | Self::BucketComputed | Self::ForeignPackets { .. } => Rank::Minor,
            Self::TimersMigrated { percent } if percent <= MIGRATED_MINOR_PERCENT => Rank::Minor,
            _ => Rank::Major,
        }
    }

    /// Whether the doubt identifies nobody: it has no name, no path, no time, no place in a file.
    pub(crate) fn is_nameless(&self) -> bool {
        matches!(
            self,
            Self::UnobservedCpus { .. }
                | Self::LostEvents { .. }
                | Self::Undecodable { .. }
                | Self::OutOfOrder { .. }
                | Self::TickUnknown
                | Self::NoSwitches
                | Self::NoInterrupts { .. }
                | Self::NoKnownInterrupts
                | Self::UnseenInterrupts { .. }
                | Self::NoTimers { .. }
                | Self::NoTickStops
                | Self::UnjoinedStays { .. }
                | Self::ImpossibleGaps { .. }
                | Self::UnreadableNote
                | Self::TimersWithoutStart { .. }
                | Self::TimersMigrated { .. }
                | Self::TimersVanished { .. }
                | Self::StrayExits { .. }
                | Self::Microseconds
                | Self::AllDeferrable
                | Self::Suspended { .. }
                | Self::LostPackets { .. }
                | Self::Window
                | Self::Anonymized { .. }
        )
    }
}

impl From<String> for Doubt {
    /// Finds the kind with exactly this text.
    fn from(text: String) -> Self {
        let known = Self::readings(&text).find(|doubt| doubt.to_string() == text);
        known.unwrap_or(Self::Other(text))
    }
}

impl From<Doubt> for String {
    fn from(doubt: Doubt) -> Self {
        doubt.to_string()
    }
}

/// Returns what fills a template's placeholders in a text; `None` if the text does not fit.
fn holes<'t>(template: &str, text: &'t str) -> Option<Vec<&'t str>> {
    let mut parts = template.split('{');
    let mut rest = text.strip_prefix(parts.next()?)?;
    let mut holes = Vec::new();
    for part in parts {
        let (_, literal) = part.split_once('}')?;
        let (hole, after) = if literal.is_empty() { (rest, "") } else { rest.split_once(literal)? };
        holes.push(hole);
        rest = after;
    }
    rest.is_empty().then_some(holes)
}

/// A list of values, written with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T: fmt::Display> fmt::Display for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            item.fmt(f)?;
        }
        Ok(())
    }
}

impl<T: FromStr> FromStr for List<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        text.split(", ").map(str::parse).collect::<Result<_, _>>().map(List)
    }
}

/// Why a trace could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationReason {
    /// The file ends in the middle of a record, or before the stated end of its records.
    CutShort,
    /// A record's length is impossible, so the next record cannot be found.
    BrokenRecord,
    /// A compressed block cannot be decompressed.
    BrokenCompression,
}

impl TruncationReason {
    const ALL: [Self; 3] = [Self::CutShort, Self::BrokenRecord, Self::BrokenCompression];
}

impl fmt::Display for TruncationReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the file is cut short",
            Self::BrokenRecord => "a record is broken",
            Self::BrokenCompression => "a compressed block is broken",
        })
    }
}

impl FromStr for TruncationReason {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|reason| reason.to_string() == text).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn read(text: &str) -> Doubt {
        let doubt = Doubt::from(text.to_owned());
        assert_eq!(doubt.to_string(), text);
        doubt
    }

    #[test]
    fn recognises_its_texts_and_keeps_others() {
        let unobserved = "CPU 1, 12, 3: unobserved: the recording has events of it but none of its \
                          idle task, so nothing is known of its idle time";
        assert_eq!(read(unobserved), Doubt::UnobservedCpus { cpus: List(vec![1, 12, 3]) });
        assert_eq!(
            read("a record is broken at byte 12; 3 bytes from there on were not read"),
            Doubt::Truncated {
                reason: TruncationReason::BrokenRecord,
                at_byte: 12,
                lost_byte_count: 3
            }
        );
        assert_eq!(
            read("simulated with tick_work_ns=5: replay it with --tick-work-ns 5"),
            Doubt::SimulatedTickWork { work_ns: 5 }
        );
        for other in [
            "",
            "simulated with tick_work_ns=5: replay it with --tick-work-ns 6",
            "007 packets of other machines were left out",
            "-1 packets of other machines were left out",
            "CPU 1, : unobserved: the recording has events of it but none of its idle task, so \
             nothing is known of its idle time",
            "not recorded: acme:secret; such an interrupt may have ended any stay, so wake reasons \
             are unknown",
        ] {
            assert_eq!(read(other), Doubt::Other(other.to_owned()));
        }
    }

    #[test]
    fn a_doubt_in_a_few_words_fits_on_a_line_with_others() {
        let briefs = [
            Doubt::UnobservedCpus { cpus: List(vec![1]) },
            Doubt::UnobservedCpus { cpus: List(vec![1, 12, 3]) },
            Doubt::LostEvents { count: 7 },
        ];
        let briefs = briefs.map(|doubt| doubt.brief());
        assert_eq!(briefs, ["1 CPU unobserved", "3 CPUs unobserved", "lost events: 7"]);
    }

    #[test]
    fn only_what_changes_no_verdict_is_minor() {
        let migrated = |percent| Doubt::TimersMigrated { percent }.rank();
        assert_eq!((migrated(5), migrated(6)), (Rank::Minor, Rank::Major));
        assert_eq!(Doubt::LostEvents { count: 1 }.rank(), Rank::Major);
        assert_eq!(read("who knows").rank(), Rank::Major);
    }

    #[test]
    fn tells_doubts_with_names_from_doubts_with_numbers() {
        assert!(read("12 records could not be decoded and were left out").is_nameless());
        for named in [
            "recorded but unreadable: kprobes:acme_secret has no field `state`",
            "12 records could not be decoded and were left out by acme",
            "the file is cut short at byte 12; 3 bytes from there on were not read",
        ] {
            assert!(!read(named).is_nameless(), "{named}");
        }
    }
}
