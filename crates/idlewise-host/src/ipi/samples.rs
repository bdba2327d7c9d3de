//! The contents of the module's `samples`, `state_samples` and `timer_samples`:
//!
//! ```text
//! # tsc_khz 2100000, given up 0 (the target did not go idle)
//! wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles
//! 4120,4120,1430,310,1502
//! ```
//!
//! ```text
//! # tsc_khz 2100000, given up 0 (the target did not go idle)
//! wake_cycles,send_cycles,state
//! 4120,1430,2
//! ```
//!
//! ```text
//! # given up 0 (the target was not idle)
//! interrupt_ns
//! 1893
//! ```

/// One wake, in cycles of the TSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// From just before a call was sent to the target's first instruction after its idle state.
    pub wake_cycles: u64,
    /// From just before it was sent to the call's first instruction on the target. A store ends the
    /// state first and the call follows at the end of the idle loop; an interrupt makes it at once.
    pub call_cycles: u64,
    /// How long the sender took to send it.
    pub idle_cycles: u32,
    /// How long the sender took for a second call right after the first, while the target wakes up.
    pub waking_cycles: u32,
    /// How long the sender took while the target runs a loop.
    pub busy_cycles: u32,
}

/// The wakes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// The TSC's frequency, not 0.
    pub tsc_khz: u32,
    /// Wakes that were not measured because the target did not go idle.
    pub given_up_count: u64,
    /// The samples, in order of time.
    pub samples: Vec<Sample>,
}

/// A wake out of a known state, in cycles of the TSC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSample {
    /// From just before a call was sent to the target's first instruction after its idle state.
    pub wake_cycles: u64,
    /// How long the sender took to send it.
    pub send_cycles: u32,
    /// The state that the governor had selected, by index.
    pub state: u32,
}

/// The wakes of one request out of known states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSamples {
    /// The TSC's frequency, not 0.
    pub tsc_khz: u32,
    /// Wakes that were not measured because the target was not idle.
    pub given_up_count: u64,
    /// The samples, in order of time.
    pub samples: Vec<StateSample>,
}

/// The timers of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerSamples {
    /// Timers that were not measured because the target was not idle when they expired.
    pub given_up_count: u64,
    /// Interrupt latencies in order of time: from the timer's expiry to its handler.
    pub interrupts_ns: Vec<u64>,
}

/// Wakes that were measured from user space, without the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySamples {
    /// Wakes that were not measured because the target's thread did not sleep.
    pub given_up_count: u64,
    /// From the wake or the timer's expiry to the thread's next instruction, in order of time.
    pub latencies_ns: Vec<u64>,
    /// How long the calls that woke took; empty if timers did.
    pub sends_ns: Vec<u64>,
}

/// What is wrong with a text of samples. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplesError {
    /// The first line is not as expected.
    #[error(
        "line 1: expected `{expected}`, found '{found}'; load the module of this idlewise's version"
    )]
    Head {
        /// The expected line.
        expected: &'static str,
        /// The line found.
        found: String,
    },
    /// The TSC has no frequency.
    #[error("line 1: a TSC of 0 kHz; the kernel could not calibrate it, so cycles are no time")]
    NoFrequency,
    /// The second line does not have the columns' names.
    #[error(
        "line 2: expected '{expected}', found '{found}'; load the module of this idlewise's version"
    )]
    Columns {
        /// The expected line.
        expected: &'static str,
        /// The line found.
        found: String,
    },
    /// A line of samples has too few or too many fields.
    #[error("line {line}: expected {expected}, found '{found}'; the text was cut or edited")]
    FieldCount {
        /// The line.
        line: usize,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A field is not a number, or is too large for its column.
    #[error("line {line}, column '{column}': '{found}' is no count of cycles")]
    Number {
        /// The line.
        line: usize,
        /// The column.
        column: &'static str,
        /// What is there.
        found: String,
    },
    /// A state has no number.
    #[error("line {line}, column 'state': '{found}' is no number of an idle state")]
    State {
        /// The line.
        line: usize,
        /// What is there.
        found: String,
    },
    /// A timer's line is not a duration.
    #[error("line {line}: '{found}' is no number of nanoseconds; the text was cut or edited")]
    Span {
        /// The line.
        line: usize,
        /// What is there.
        found: String,
    },
    /// The call arrived before it was sent.
    #[error(
        "line {line}: the call arrived before it was sent: the CPUs' TSCs don't agree, and spans \
         between them can't be measured on this machine"
    )]
    Backwards {
        /// The line.
        line: usize,
    },
}

const COLUMNS: &str = "wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles";
const STATE_COLUMNS: &str = "wake_cycles,send_cycles,state";
const HEAD: &str = "# tsc_khz N, given up N …";
const TIMER_COLUMNS: &str = "interrupt_ns";
const TIMER_HEAD: &str = "# given up N …";
/// How much of an invalid field a message shows.
const SHOWN_CHARS_MAX: usize = 40;

impl Samples {
    /// Parses the module's text. Memory is proportional to its length.
    ///
    /// # Errors
    /// Fails with the line number if it is not the module's text.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let mut lines = text.lines();
        let (tsc_khz, given_up_count) = head(lines.next().unwrap_or_default())?;
        check_columns(COLUMNS, lines.next())?;
        let samples = lines.enumerate().map(|(index, text)| sample(index + 3, text));
        Ok(Samples { tsc_khz, given_up_count, samples: samples.collect::<Result<_, _>>()? })
    }
}

impl StateSamples {
    /// Parses the module's text. Memory is proportional to its length.
    ///
    /// # Errors
    /// Fails with the line number if it is not the module's text.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let mut lines = text.lines();
        let (tsc_khz, given_up_count) = head(lines.next().unwrap_or_default())?;
        check_columns(STATE_COLUMNS, lines.next())?;
        let samples = lines.enumerate().map(|(index, text)| state_sample(index + 3, text));
        Ok(StateSamples { tsc_khz, given_up_count, samples: samples.collect::<Result<_, _>>()? })
    }

    /// Converts cycles to nanoseconds.
    pub(crate) fn ns(&self, cycles: u64) -> u64 {
        // The frequency is not 0.
        (u128::from(cycles) * 1_000_000 / u128::from(self.tsc_khz)) as u64
    }
}

impl TimerSamples {
    /// Parses the module's text. Memory is proportional to its length.
    ///
    /// # Errors
    /// Fails with the line number if it is not the module's text.
    pub fn parse(text: &str) -> Result<Self, SamplesError> {
        let mut lines = text.lines();
        let head = lines.next().unwrap_or_default();
        let given_up_count = head
            .strip_prefix("# given up ")
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .ok_or_else(|| SamplesError::Head { expected: TIMER_HEAD, found: shown(head) })?;
        check_columns(TIMER_COLUMNS, lines.next())?;
        let interrupt_ns = |(index, text): (usize, &str)| {
            text.parse().map_err(|_| SamplesError::Span { line: index + 3, found: shown(text) })
        };
        let interrupts_ns = lines.enumerate().map(interrupt_ns).collect::<Result<_, _>>()?;
        Ok(TimerSamples { given_up_count, interrupts_ns })
    }
}

fn check_columns(expected: &'static str, found: Option<&str>) -> Result<(), SamplesError> {
    match found.unwrap_or_default() {
        found if found == expected => Ok(()),
        found => Err(SamplesError::Columns { expected, found: shown(found) }),
    }
}

/// The TSC's frequency and the number of wakes that were given up.
fn head(line: &str) -> Result<(u32, u64), SamplesError> {
    match head_numbers(line) {
        None => Err(SamplesError::Head { expected: HEAD, found: shown(line) }),
        Some((0, _)) => Err(SamplesError::NoFrequency),
        Some(numbers) => Ok(numbers),
    }
}

fn head_numbers(head: &str) -> Option<(u32, u64)> {
    let (tsc_khz, rest) = head.strip_prefix("# tsc_khz ")?.split_once(", given up ")?;
    let given_up_count = rest.split(' ').next()?;
    Some((tsc_khz.parse().ok()?, given_up_count.parse().ok()?))
}

fn sample(line: usize, text: &str) -> Result<Sample, SamplesError> {
    let mut fields = text.split(',');
    let five = [(); 5].map(|()| fields.next());
    let ([Some(wake), Some(call), Some(idle), Some(waking), Some(busy)], None) =
        (five, fields.next())
    else {
        let expected = "5 counts of cycles";
        return Err(SamplesError::FieldCount { line, expected, found: shown(text) });
    };
    let wrong = |column, field| move |_| SamplesError::Number { line, column, found: shown(field) };
    let wake_cycles: u64 = wake.parse().map_err(wrong("wake_cycles", wake))?;
    let call_cycles: u64 = call.parse().map_err(wrong("call_cycles", call))?;
    // The kernel subtracts unsigned numbers.
    if wake_cycles.cast_signed() < 0 || call_cycles.cast_signed() < 0 {
        return Err(SamplesError::Backwards { line });
    }
    Ok(Sample {
        wake_cycles,
        call_cycles,
        idle_cycles: idle.parse().map_err(wrong("idle_cycles", idle))?,
        waking_cycles: waking.parse().map_err(wrong("waking_cycles", waking))?,
        busy_cycles: busy.parse().map_err(wrong("busy_cycles", busy))?,
    })
}

fn state_sample(line: usize, text: &str) -> Result<StateSample, SamplesError> {
    let mut fields = text.split(',');
    let three = [(); 3].map(|()| fields.next());
    let ([Some(wake), Some(send), Some(state)], None) = (three, fields.next()) else {
        let expected = "2 counts of cycles and a state";
        return Err(SamplesError::FieldCount { line, expected, found: shown(text) });
    };
    let wrong = |column, field| move |_| SamplesError::Number { line, column, found: shown(field) };
    let wake_cycles: u64 = wake.parse().map_err(wrong("wake_cycles", wake))?;
    // The kernel subtracts unsigned numbers.
    if wake_cycles.cast_signed() < 0 {
        return Err(SamplesError::Backwards { line });
    }
    let send_cycles = send.parse().map_err(wrong("send_cycles", send))?;
    let state = state.parse().map_err(|_| SamplesError::State { line, found: shown(state) })?;
    Ok(StateSample { wake_cycles, send_cycles, state })
}

/// The beginning of a text, as one line.
fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown: String =
        chars.by_ref().take(SHOWN_CHARS_MAX).flat_map(char::escape_default).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_module_writes() {
        let text = "# tsc_khz 2100000, given up 2 (the target did not go idle)\n\
                    wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles\n\
                    4120,5130,1430,310,1502\n9223372036854775807,0,0,0,4294967295\n";
        let samples = Samples::parse(text).unwrap();
        assert_eq!((samples.tsc_khz, samples.given_up_count), (2_100_000, 2));
        let [one, other] = samples.samples[..] else { panic!("two wakes") };
        assert_eq!((one.wake_cycles, one.call_cycles), (4120, 5130));
        assert_eq!((one.idle_cycles, one.waking_cycles, one.busy_cycles), (1430, 310, 1502));
        assert_eq!(other.busy_cycles, u32::MAX);
    }

    #[test]
    fn reads_wakes_out_of_known_states() {
        let text = "# tsc_khz 2000000, given up 1 (the target did not go idle)\n\
                    wake_cycles,send_cycles,state\n4120,1430,2\n";
        let samples = StateSamples::parse(text).unwrap();
        assert_eq!((samples.tsc_khz, samples.given_up_count), (2_000_000, 1));
        let expected = StateSample { wake_cycles: 4120, send_cycles: 1430, state: 2 };
        assert_eq!((&samples.samples[..], samples.ns(4120)), (&[expected][..], 2060));
        let head = "# tsc_khz 1, given up 0 (…)\nwake_cycles,send_cycles,state\n";
        for (lines, expected) in [
            ("1,2\n", "line 3: expected 2 counts of cycles and a state, found '1,2'"),
            (
                "1,2,3\n1,2,3,4\n",
                "line 4: expected 2 counts of cycles and a state, found '1,2,3,4'",
            ),
            ("-1,2,3\n", "line 3, column 'wake_cycles': '-1' is no count of cycles"),
            ("1,4294967296,3\n", "line 3, column 'send_cycles': '4294967296' is no count"),
            ("1,2,C6\n", "line 3, column 'state': 'C6' is no number of an idle state"),
            ("18446744073709551615,2,3\n", "line 3: the call arrived before it was sent"),
        ] {
            let message = StateSamples::parse(&format!("{head}{lines}")).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn reads_timers() {
        let text = "# given up 2 (the target was not idle)\ninterrupt_ns\n0\n1893\n";
        let expected = TimerSamples { given_up_count: 2, interrupts_ns: vec![0, 1893] };
        assert_eq!(TimerSamples::parse(text), Ok(expected));
        for (text, expected) in [
            ("", "line 1: expected `# given up N …`, found ''"),
            ("# given up x\ninterrupt_ns\n", "line 1: expected `# given up N …`, found '# given"),
            ("# given up 0\nwake_cycles\n", "line 2: expected 'interrupt_ns', found 'wake_cycles'"),
            ("# given up 0\ninterrupt_ns\n5\n-1\n", "line 4: '-1' is no number of nanoseconds"),
            ("# given up 0\ninterrupt_ns\n\n", "line 3: '' is no number of nanoseconds"),
        ] {
            let message = TimerSamples::parse(text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }

    #[test]
    fn a_run_without_wakes_is_no_error() {
        let text = format!("# tsc_khz 1, given up 7 (the target did not go idle)\n{COLUMNS}\n");
        assert_eq!(Samples::parse(&text).unwrap().samples, []);
    }
}
