//! Reads results of [wult](https://github.com/intel/wult), which measures how long CPUs take to leave idle states: `info.yml`
//! and `datapoints.csv`, in formats 1.2 and 1.3. Times are in microseconds.
//!
//! A sample counts if the CPU reached the state that was requested, as far as the residency columns (`CC6%`) say, and if no
//! SMI or NMI came. Percentiles are those of wult's own report: linear between samples.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

/// The longest line that is read: wult's have a few hundred bytes.
const LINE_BYTE_COUNT_MAX: usize = 1 << 16;

/// What a wult result holds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WultResult {
    /// Its name.
    pub report: String,
    /// wult's version.
    pub version: String,
    /// What woke the CPU.
    pub device: String,
    /// The states that were requested, in the order of their first samples.
    pub states: Vec<WultState>,
}

/// The samples of a state.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WultState {
    /// Its name in Linux.
    pub name: String,
    /// How long the CPU was silent before each wake-up, and how long the wake-up took, in microseconds. Ascending by the latter.
    pub samples_us: Vec<[f64; 2]>,
    /// Samples in which the CPU was not in the state at all.
    pub unreached_count: u64,
    /// Samples with an SMI or NMI, or with a time below 0 or above a minute.
    pub disturbed_count: u64,
    /// Whether a residency column says if the state was reached.
    pub has_residency: bool,
    /// Whether SMIs were counted.
    pub has_interruptions: bool,
}

/// Why a result cannot be read: the file's name, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WultError {
    /// `info.yml` or `datapoints.csv`.
    pub file: &'static str,
    /// The line, beginning at 1, if it is one.
    pub line: Option<u64>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for WultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        write!(f, "{}: {line}{}", self.file, self.message)
    }
}

impl std::error::Error for WultError {}

/// Linux has ten states at most. Each row looks its state up.
const STATE_COUNT_MAX: usize = 32;
/// No exit takes a minute.
const LATENCY_MAX_US: f64 = 60e6;

/// Where a row has what.
struct Columns {
    count: usize,
    wake: usize,
    state: usize,
    silent: Option<usize>,
    interrupt: Option<usize>,
    is_off: Option<usize>,
    disturbances: Vec<usize>,
    /// Columns of residency by name, without the percent sign: `CC6`.
    residencies: BTreeMap<String, usize>,
}

impl Columns {
    fn of(header: &str) -> Result<Self, String> {
        let names: Vec<&str> = values_of(header).collect();
        let place = |name: &str| names.iter().position(|it| *it == name);
        let required = |name: &str| {
            place(name)
                .ok_or_else(|| format!("no column {name}; wult writes one, ndl and others do not"))
        };
        let residencies = names.iter().enumerate();
        let residencies = residencies
            .filter_map(|(index, name)| Some((name.strip_suffix('%')?.to_owned(), index)));
        Ok(Columns {
            count: names.len(),
            wake: required("WakeLatency")?,
            state: required("ReqCState")?,
            silent: place("SilentTime"),
            interrupt: place("IntrLatency"),
            is_off: place("IntrOff"),
            disturbances: ["SMICnt", "NMICnt"].into_iter().filter_map(place).collect(),
            residencies: residencies.collect(),
        })
    }

    /// The column that says whether a state was reached, as wult itself filters: ACPI's C2 and C3 are C6 and C7, C6S is
    /// a module's state and C6P a package's, and cores count all that is deeper than C7 as C7.
    fn of_state(&self, name: &str) -> Option<usize> {
        let name = name.to_uppercase();
        let name = name.strip_suffix("_ACPI").unwrap_or(&name);
        let digits: String =
            name.strip_prefix('C')?.chars().take_while(char::is_ascii_digit).collect();
        // Old drivers add the processor: C3-HSW is no state of ACPI.
        let kind = &name[1 + digits.len()..];
        let wanted: &[&str] = match (digits.parse::<u32>().ok()?, kind) {
            (1, _) => &["CC1", "CC1Derived"],
            (2, "") => &["CC6"],
            (3, "") => &["CC7", "CC3"],
            (3, _) => &["CC3"],
            (6, "P" | "SP") => &["PC6"],
            (6, "S") => &["MC6"],
            (6, _) => &["CC6"],
            (level, _) if level > 6 => &["CC7"],
            _ => &[],
        };
        wanted.iter().find_map(|name| self.residencies.get(*name)).copied()
    }
}

/// The values of a row. wult quotes none, but a spreadsheet may.
fn values_of(row: &str) -> impl Iterator<Item = &str> {
    row.split(',').map(|value| value.trim().trim_matches('"'))
}

impl WultResult {
    /// Reads a result from the text of `info.yml` and the rows of `datapoints.csv`.
    ///
    /// # Errors
    /// Says which file cannot be read, where, and why.
    pub fn read(info: &str, datapoints: impl BufRead) -> Result<Self, WultError> {
        let info = info_of(info)?;
        let mut lines = Lines { from: datapoints, line: 0, bytes: Vec::new() };
        let Some(header) = lines.next()? else { return Err(lines.fault("it is empty")) };
        let columns = Columns::of(header).map_err(|message| lines.fault(message))?;
        let mut states: Vec<WultState> = Vec::new();
        while let Some(row) = lines.next()? {
            let row = row.to_owned();
            let values: Vec<&str> = values_of(&row).collect();
            if values.len() != columns.count {
                let message = format!(
                    "{} values, where the first line names {}; copy it again",
                    values.len(),
                    columns.count
                );
                return Err(lines.fault(message));
            }
            take_row(&columns, &values, &mut states).map_err(|message| lines.fault(message))?;
        }
        if states.is_empty() {
            return Err(lines.fault("no samples"));
        }
        for state in &mut states {
            state.samples_us.sort_by(|a, b| a[1].total_cmp(&b[1]));
        }
        let text = |key: &str| info.get(key).cloned().unwrap_or_else(|| "unknown".to_owned());
        let (report, version, device) = (text("reportid"), text("toolver"), text("devdescr"));
        Ok(WultResult { report, version, device, states })
    }
}

fn take_row(columns: &Columns, values: &[&str], states: &mut Vec<WultState>) -> Result<(), String> {
    let number = |index: usize| -> Result<f64, String> {
        let found = values[index].parse::<f64>().ok().filter(|number| number.is_finite());
        found.ok_or_else(|| format!("{:?} in column {} is no number", values[index], index + 1))
    };
    let name = values[columns.state];
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("{name:?} is no state"));
    }
    let place = match states.iter().position(|state| state.name.eq_ignore_ascii_case(name)) {
        Some(place) => place,
        None if states.len() == STATE_COUNT_MAX => {
            return Err(format!("more than {STATE_COUNT_MAX} states; is {name:?} one?"));
        }
        None => {
            let has_residency = columns.of_state(name).is_some();
            let has_interruptions = !columns.disturbances.is_empty();
            let name = name.to_owned();
            states.push(WultState {
                name,
                has_residency,
                has_interruptions,
                ..WultState::default()
            });
            states.len() - 1
        }
    };
    let state = &mut states[place];
    // Where interrupts were on, their handler ran before the next instruction.
    let is_on = columns.is_off.is_some_and(|index| matches!(values[index], "0" | "False"));
    let latency = columns.interrupt.filter(|_| is_on).unwrap_or(columns.wake);
    let (latency_us, silent_us) =
        (number(latency)?, columns.silent.map(number).transpose()?.unwrap_or(0.0));
    let is_reached = match columns.of_state(name) {
        Some(residency) => number(residency)? > 0.0,
        None => true,
    };
    let mut disturbance_count = 0.0;
    for &index in &columns.disturbances {
        disturbance_count += number(index)?;
    }
    if !is_reached {
        state.unreached_count += 1;
    } else if disturbance_count > 0.0 || !(0.0..=LATENCY_MAX_US).contains(&latency_us) {
        state.disturbed_count += 1;
    } else {
        state.samples_us.push([silent_us, latency_us]);
    }
    Ok(())
}

/// The lines of a file, each with its number.
struct Lines<R> {
    from: R,
    line: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not empty.
    fn next(&mut self) -> Result<Option<&str>, WultError> {
        loop {
            self.bytes.clear();
            self.line += 1;
            let limit = LINE_BYTE_COUNT_MAX as u64 + 1;
            let read =
                std::io::Read::take(&mut self.from, limit).read_until(b'\n', &mut self.bytes);
            match read {
                Err(error) => return Err(self.fault(error)),
                Ok(0) => return Ok(None),
                Ok(_) if self.bytes.len() > LINE_BYTE_COUNT_MAX => {
                    return Err(self.fault("no line of text; wult's have a few hundred bytes"));
                }
                Ok(_) if self.bytes.iter().all(u8::is_ascii_whitespace) => {}
                Ok(_) => break,
            }
        }
        match str::from_utf8(&self.bytes) {
            Ok(line) => Ok(Some(without_mark(line).trim_end_matches(['\n', '\r']))),
            Err(_) => Err(self.fault("not text")),
        }
    }

    fn fault(&self, message: impl ToString) -> WultError {
        let line = Some(self.line).filter(|line| *line > 0);
        WultError { file: "datapoints.csv", line, message: message.to_string() }
    }
}

/// Without the mark at a text's beginning that some editors write.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// What `info.yml` says: a value for each key. It is YAML without nesting, whose long values go on in the next lines.
fn info_of(text: &str) -> Result<BTreeMap<String, String>, WultError> {
    let fault = |message: String| WultError { file: "info.yml", line: None, message };
    let mut raw: Vec<(String, String)> = Vec::new();
    for line in without_mark(text).lines() {
        let line = line.split(" #").next().unwrap_or(line);
        match (line.starts_with([' ', '\t']), line.split_once(':'), raw.last_mut()) {
            (true, _, Some((_, value))) => {
                *value =
                    format!("{value} {}", line.trim()).trim_start_matches(['|', '>', ' ']).into();
            }
            (false, Some((key, value)), _) if !line.starts_with(['#', '-']) => {
                raw.push((key.trim().to_owned(), value.trim().to_owned()));
            }
            _ => {}
        }
    }
    let plain = |value: &str| {
        let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        match (quoted('\''), quoted('"')) {
            (Some(text), _) => text.replace("''", "'"),
            (None, Some(text)) => text.to_owned(),
            (None, None) => value.to_owned(),
        }
    };
    let info: BTreeMap<String, String> =
        raw.iter().map(|(key, value)| (key.clone(), plain(value))).collect();
    match info.get("toolname").map(String::as_str) {
        Some("wult") => {}
        Some(other) => {
            return Err(fault(format!("a result of {other:?}; only those of wult are read")));
        }
        None => return Err(fault("it names no tool (toolname: wult)".to_owned())),
    }
    match info.get("format_version").map(String::as_str) {
        Some("1.2" | "1.3") => Ok(info),
        found => Err(fault(format!(
            "format {}, and 1.2 and 1.3 are known, whose times are in microseconds",
            found.unwrap_or("unknown")
        ))),
    }
}

impl WultState {
    /// Returns the latency that this share of all samples does not exceed; `None` without samples.
    pub fn quantile_us(&self, ratio: f64) -> Option<f64> {
        quantile(self.samples_us.len(), ratio, |index| self.samples_us[index][1])
    }

    /// Returns the median of the quarters with the shortest and the longest silent times.
    pub fn by_silence_us(&self) -> Option<[f64; 2]> {
        let quarter = self.samples_us.len() / 4;
        let mut samples = self.samples_us.clone();
        samples.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let median = |part: &[[f64; 2]]| {
            let mut latencies: Vec<f64> = part.iter().map(|sample| sample[1]).collect();
            latencies.sort_by(f64::total_cmp);
            quantile(latencies.len(), 0.5, |index| latencies[index])
        };
        let longest = samples.len().checked_sub(quarter)?;
        Some([median(&samples[..quarter])?, median(&samples[longest..])?])
    }

    /// Returns percentiles for a machine file: the least and the greatest, and what lies between as far as there are samples
    /// for it. In tenths of a nanosecond.
    pub fn percentiles_us(&self) -> Vec<[f64; 2]> {
        const PERCENTS: [f64; 11] =
            [0.0, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 100.0];
        let count = self.samples_us.len() as f64;
        // One sample must be beyond it.
        let is_known = |percent: &f64| {
            matches!(*percent, 0.0 | 50.0 | 100.0) || count * percent.min(100.0 - percent) >= 99.99
        };
        let known = PERCENTS.into_iter().filter(is_known);
        let pairs = known.filter_map(|percent| {
            let us = self.quantile_us(percent / 100.0)?;
            Some([percent, (us * 1e4).round() / 1e4])
        });
        pairs.collect()
    }
}

/// Linear between the two nearest.
fn quantile(count: usize, ratio: f64, at: impl Fn(usize) -> f64) -> Option<f64> {
    let last = count.checked_sub(1)?;
    let position = ratio * last as f64;
    let low = position.floor() as usize;
    let (below, above) = (at(low), at((low + 1).min(last)));
    Some(below + (above - below) * (position - low as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "cpu: 0\ndevdescr: TSC deadline timer\nformat_version: '1.2'\n\
                        reportid: mine\ntoolname: wult\ntoolver: 1.9.8\n";
    const HEAD: &str =
        "WakeLatency,SilentTime,IntrLatency,IntrOff,ReqCState,CC1Derived%,CC1%,CC6%,SMICnt,NMICnt";

    fn read(rows: &[&str]) -> Result<WultResult, String> {
        let text = format!("{HEAD}\n{}\n", rows.join("\n"));
        WultResult::read(INFO, text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn samples_that_do_not_count_are_counted() {
        let result = read(&[
            "5,100,9,1,C6,0,1,90,0,0",
            "7,200,9,1,C6,0,1,90,0,0",
            "6,300,9,1,C6,0,1,48,0,0",
            // In C1 all the time, then with an SMI, and before the event.
            "1,100,9,1,C6,0,99,0.00,0,0",
            "90,100,99,1,C6,0,1,90,1,0",
            "-1,100,99,1,C6,0,1,90,0,0",
            "1e11,100,99,1,C6,0,1,90,0,0",
            // Its handler ran first.
            "4,100,2,0,C1E,99,98,0,0,0",
        ])
        .unwrap();
        assert_eq!((&*result.report, &*result.version), ("mine", "1.9.8"));
        let [c6, c1e] = &result.states[..] else { panic!("{result:?}") };
        assert_eq!(c6.samples_us, [[100.0, 5.0], [300.0, 6.0], [200.0, 7.0]]);
        assert_eq!((c6.unreached_count, c6.disturbed_count, c6.has_residency), (1, 3, true));
        assert_eq!(c1e.samples_us, [[100.0, 2.0]]);
        assert_eq!(c6.percentiles_us(), [[0.0, 5.0], [50.0, 6.0], [100.0, 7.0]]);
    }

    #[test]
    fn percentiles_are_linear_and_ask_for_samples() {
        let rows: Vec<String> =
            (0..1000).map(|i| format!("{},{},0,1,C6,0,0,9,0,0", 100 + i, 2000 - i)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let state = &read(&rows).unwrap().states[0];
        // numpy.percentile(range(100, 1100), [1, 50, 99])
        assert_eq!(state.quantile_us(0.01), Some(109.99));
        assert_eq!(state.quantile_us(0.5), Some(599.5));
        assert_eq!(state.quantile_us(0.99), Some(1089.01));
        let percents: Vec<f64> = state.percentiles_us().iter().map(|pair| pair[0]).collect();
        assert_eq!(percents, [0.0, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 100.0]);
        // The shortest silent times have the longest latencies here.
        assert_eq!(state.by_silence_us(), Some([974.5, 224.5]));
        assert_eq!(WultState::default().by_silence_us(), None);
    }

    #[test]
    fn a_residency_of_c7_is_that_of_all_deeper_states() {
        let text = "\u{feff}WakeLatency,\"ReqCState\",CC1%,CC1Derived%,CC3%,CC6%,CC7%,MC6%,PC6%\n";
        // Each reached and not, as wult's own filters have it.
        for (state, reached) in [
            ("C1", "1,0,0,0,0,0,0"),
            ("C1_ACPI", "1,0,0,0,0,0,0"),
            ("C1E-IVB", "1,0,0,0,0,0,0"),
            ("C2", "0,0,0,1,0,0,0"),
            ("C2_ACPI", "0,0,0,1,0,0,0"),
            ("C3_ACPI", "0,0,0,0,1,0,0"),
            ("C3", "0,0,0,0,1,0,0"),
            ("C3-HSW", "0,0,1,0,0,0,0"),
            ("C6", "0,0,0,1,0,0,0"),
            ("C6A", "0,0,0,1,0,0,0"),
            ("C6S", "0,0,0,0,0,1,0"),
            ("C6P", "0,0,0,0,0,0,1"),
            ("C6SP", "0,0,0,0,0,0,1"),
            ("C8", "0,0,0,0,1,0,0"),
            ("C10", "0,0,0,0,1,0,0"),
        ] {
            let not: String = reached
                .chars()
                .map(|c| {
                    if c == '0' {
                        '1'
                    } else if c == '1' {
                        '0'
                    } else {
                        c
                    }
                })
                .collect();
            let rows = format!("{text}\"5\",{state},{reached}\n7,{},{not}\n", state.to_lowercase());
            let states = WultResult::read(INFO, rows.as_bytes()).unwrap().states;
            assert_eq!(states.len(), 1, "{state}");
            let found = (&states[0].samples_us[..], states[0].unreached_count);
            assert_eq!(found, (&[[0.0, 5.0]][..], 1), "{state}");
            assert!(states[0].has_residency && !states[0].has_interruptions);
        }
        let poll = format!("{text}7,POLL,0,0,0,0,0,0,0\n");
        assert!(!WultResult::read(INFO, poll.as_bytes()).unwrap().states[0].has_residency);
    }

    #[test]
    fn long_values_go_on_in_the_next_line() {
        let info = "\u{feff}devdescr: Intel I210 with a\n  long name # it is\nformat_version: 1.3 \nreportid: 'it''s'\n\
                    toolname: \"wult\"\ntoolver: |\n  1.12\n";
        let result = WultResult::read(info, &b"WakeLatency,ReqCState\n1,C6\n"[..]).unwrap();
        let found = (&*result.device, &*result.report, &*result.version);
        assert_eq!(found, ("Intel I210 with a long name", "it's", "1.12"));
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        let many: Vec<String> = (100..200).map(|i| format!("5,1,9,1,C{i},0,1,90,0,0")).collect();
        for (rows, said) in [
            (
                vec!["5,1,9,1,C6,0,1,90,0"],
                "datapoints.csv: line 2: 9 values, where the first line names 10",
            ),
            (vec!["5,1,9,1,C6,0,1,90,0,0", "5,1,9,1,C6,0,1,90,0,0,7"], "line 3: 11 values"),
            (vec!["x,1,9,1,C6,0,1,90,0,0"], "line 2: \"x\" in column 1 is no number"),
            (vec!["nan,1,9,1,C6,0,1,90,0,0"], "line 2: \"nan\" in column 1 is no number"),
            (vec!["5,1,9,1,,0,1,90,0,0"], "line 2: \"\" is no state"),
            (vec![""], "no samples"),
            (
                many.iter().map(String::as_str).collect(),
                "line 34: more than 32 states; is \"C132\" one?",
            ),
        ] {
            let error = read(&rows).unwrap_err();
            assert!(error.contains(said) && error.lines().count() == 1, "{error}");
        }
        let error =
            |info: &str, bytes: &[u8]| WultResult::read(info, bytes).unwrap_err().to_string();
        let info = |from: &str, to: &str| INFO.replace(from, to);
        for (text, said) in [
            (info("wult", "ndl"), "info.yml: a result of \"ndl\"; only those of wult are read"),
            (info("toolname", "name"), "info.yml: it names no tool"),
            (info("'1.2'", "'1.0'"), "info.yml: format 1.0, and 1.2 and 1.3 are known"),
            (String::new(), "info.yml: it names no tool"),
        ] {
            assert!(error(&text, b"").starts_with(said), "{}", error(&text, b""));
        }
        assert_eq!(error(INFO, b""), "datapoints.csv: line 1: it is empty");
        assert_eq!(error(INFO, b"\xff\xfe\n"), "datapoints.csv: line 1: not text");
        assert!(error(INFO, &[b'x'; 100_000]).contains("line 1: no line of text"));
        assert!(
            error(INFO, b"RTD,LDist\n1,2\n")
                .contains("line 1: no column WakeLatency; wult writes one")
        );
    }
}
