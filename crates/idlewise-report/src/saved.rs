//! Saved measurements: what every `idlewise measure … --json` document has in common, so that
//! `idlewise lab compare` can read any of them.
//!
//! A measurement consists of series. A series holds one figure (such as the wake latency) of one
//! case (such as CPU 2 woken out of C6), in blocks: groups of values that were measured in a row.
//! Neighbouring values depend on each other, because an interruption delays several of them.
//! Blocks hardly do, so intervals are computed by drawing whole blocks.
//!
//! A block is saved as one line of text, each value once, ascending, with how often it occurred:
//! `1400x12 1410 1500x3`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::statistics::RUN_COUNT_MIN;

/// Into how many blocks a long series is divided.
const BLOCK_COUNT: usize = 50;

/// A value and how often it occurred.
pub(crate) type Counted = (f64, u64);

/// Values that were measured in a row, ascending, each with how often it occurred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Block(pub(crate) Vec<Counted>);

impl Block {
    /// Makes a block of times, rounded to four digits.
    pub fn of_times(times_ns: &mut [u64]) -> Self {
        times_ns.sort_unstable();
        let mut block = Block::default();
        for &ns in times_ns.iter() {
            block.push(four_digits(ns) as f64, 1);
        }
        block
    }

    /// Makes a block of a single value.
    pub fn of(value: f64) -> Self {
        Block(vec![(six_digits(value), 1)])
    }

    /// Divides times in their order into 50 blocks of equal length.
    pub fn divided(times_ns: &[u64]) -> Vec<Self> {
        let length = times_ns.len().div_ceil(BLOCK_COUNT).max(1);
        times_ns.chunks(length).map(|chunk| Block::of_times(&mut chunk.to_vec())).collect()
    }

    /// Adds a value that is not less than the last.
    fn push(&mut self, value: f64, count: u64) {
        match self.0.last_mut() {
            Some((last, sum)) if *last == value => *sum += count,
            _ => self.0.push((value, count)),
        }
    }

    /// Makes one block of several.
    fn merged(blocks: &[Block]) -> Self {
        let mut values: Vec<Counted> = blocks.iter().flat_map(|block| &block.0).copied().collect();
        values.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut merged = Block::default();
        for (value, count) in values {
            merged.push(value, count);
        }
        merged
    }

    fn parse(line: &str) -> Option<Self> {
        let counted = |word: &str| {
            let (value, count) = word.split_once('x').unwrap_or((word, "1"));
            let (value, count) = (value.parse::<f64>().ok()?, count.parse::<u64>().ok()?);
            (value.is_finite() && count > 0 && count <= COUNT_MAX).then_some((value, count))
        };
        let values: Vec<Counted> = line.split_whitespace().map(counted).collect::<Option<_>>()?;
        values.is_sorted_by(|one, other| one.0 < other.0).then_some(Block(values))
    }
}

impl From<Block> for String {
    fn from(block: Block) -> String {
        let mut line = String::new();
        for (value, count) in &block.0 {
            let space = if line.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = match count {
                1 => write!(line, "{space}{value}"),
                count => write!(line, "{space}{value}x{count}"),
            };
        }
        line
    }
}

impl TryFrom<String> for Block {
    type Error = String;

    fn try_from(line: String) -> Result<Self, String> {
        Block::parse(&line).ok_or_else(|| {
            let start: String = line.chars().take(40).collect();
            format!("no block of values: '{start}'")
        })
    }
}

/// A file may claim any count. More than this nobody measured, and sums of fewer cannot overflow.
const COUNT_MAX: u64 = 1 << 28;

fn four_digits(ns: u64) -> u64 {
    let mut step = 1;
    while ns / step >= 10_000 {
        step *= 10;
    }
    // At most 19 digits, so that the sum does not overflow for any time that a machine measures.
    ns.saturating_add(step / 2) / step * step
}

fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The unit of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeriesUnit {
    /// Time.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// A rate.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Power.
    #[serde(rename = "mW")]
    Milliwatts,
    /// A share, 0 to 1.
    #[serde(rename = "ratio")]
    Ratio,
}

/// What sums a series up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Percentiles of all values.
    Percentiles,
    /// The mean of all values.
    Mean,
    /// The median of all values.
    Median,
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BetterValue {
    /// Lower ones.
    Lower,
    /// Higher ones.
    Higher,
}

/// A figure of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedSeries {
    /// What was measured, such as `wake latency`.
    pub figure: String,
    /// Where, such as `CPU 2 (SMT sibling)`.
    pub place: String,
    /// Under which setting, such as the idle state; empty if there is none.
    pub setting: String,
    /// The unit of the values.
    pub unit: SeriesUnit,
    /// What sums them up.
    pub statistic: Statistic,
    /// Which are better, if that can be said.
    pub better: Option<BetterValue>,
    /// The values.
    pub blocks: Vec<Block>,
}

impl SavedSeries {
    /// Makes a series of times, of which short ones are better.
    pub fn times(
        figure: &str,
        place: impl Into<String>,
        setting: impl Into<String>,
        blocks: Vec<Block>,
    ) -> Self {
        SavedSeries {
            figure: figure.to_owned(),
            place: place.into(),
            setting: setting.into(),
            unit: SeriesUnit::Nanoseconds,
            statistic: Statistic::Percentiles,
            better: Some(BetterValue::Lower),
            blocks,
        }
    }
}

/// When a run was measured, and what else the machine did meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// When it began, in seconds since 1970.
    pub at_s: Option<u64>,
    /// The share of the CPU time that other processes took.
    pub others_ratio: Option<f64>,
    /// The share of the CPU time that the host took.
    pub stolen_ratio: Option<f64>,
}

/// A fact about the machine that can affect waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFact {
    /// The fact's name.
    pub fact: String,
    /// Its value; `None` if the machine does not show it.
    pub value: Option<String>,
}

/// A saved measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// What was measured: the name of a `measure` command, and `proxy` if it was measured in place
    /// of what the command is about.
    pub measurement: String,
    /// The program that measured, with its version.
    pub program: String,
    /// The day in UTC.
    pub date: String,
    /// Facts about the machine.
    pub machine: Vec<MachineFact>,
    /// The figures.
    pub series: Vec<SavedSeries>,
    /// How many doubts it had.
    pub doubt_count: usize,
    /// How many runs it consists of. If they are enough for an interval, each is a block.
    pub run_count: usize,
    /// Those of each file.
    pub conditions: Vec<Conditions>,
    /// What is wrong with the runs as a whole.
    pub doubts: Vec<String>,
}

impl Saved {
    /// Reads a document that a `measure` command printed with `--json`.
    ///
    /// # Errors
    /// Returns a sentence that says what is wrong if it is not one.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let document: Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let word = |name: &str| document.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(measurement) = word("measurement") else {
            return Err(
                "not a saved measurement; save one: idlewise measure … --json > FILE".into()
            );
        };
        let machine = document.get("machine").cloned().unwrap_or_default();
        let machine: Vec<MachineFact> =
            serde_json::from_value(machine).map_err(|error| format!("machine: {error}"))?;
        let Some(series) = document.get("series").and_then(Value::as_array) else {
            return Err(format!("a measurement of {measurement} without series; it was edited"));
        };
        let series = series.iter().enumerate().map(|(index, series)| {
            SavedSeries::deserialize(series)
                .map_err(|error| format!("series {}: {error}", index + 1))
        });
        Ok(Saved {
            measurement,
            program: word("program").unwrap_or_default(),
            date: word("date").unwrap_or_default(),
            machine,
            series: series.collect::<Result<_, String>>()?,
            doubt_count: document.get("doubts").and_then(Value::as_array).map_or(0, Vec::len),
            run_count: document
                .get("run_count")
                .and_then(Value::as_u64)
                .map_or(1, |count| count.max(1) as usize),
            // Files of older programs have none.
            conditions: vec![
                document
                    .get("conditions")
                    .and_then(|value| Conditions::deserialize(value).ok())
                    .unwrap_or_default(),
            ],
            doubts: Vec::new(),
        })
    }

    /// Joins this run and others of the same measurement, in the order in which they were measured if that is known.
    /// Runs differ by more than the blocks of one do, so with enough runs each becomes a block; with fewer, the
    /// blocks of all are kept. Runs with the same values are copies of one, and count once.
    ///
    /// # Errors
    /// Returns a sentence that says which of the others is of another kind.
    pub fn joined(mut self, others: &[Saved]) -> Result<Self, String> {
        for (index, other) in others.iter().enumerate() {
            if other.measurement != self.measurement {
                return Err(format!(
                    "run 1 is a measurement of {}, run {} one of {}",
                    self.measurement,
                    index + 2,
                    other.measurement
                ));
            }
            for fact in &self.machine {
                let is_other =
                    |one: &&MachineFact| one.fact == fact.fact && one.value != fact.value;
                if let Some(differing) = other.machine.iter().find(is_other) {
                    let [one, other] = [fact, differing]
                        .map(|fact| fact.value.as_deref().unwrap_or("not shown").to_owned());
                    let doubt = format!("its runs differ in {}: {one}; {other}", fact.fact);
                    if !self.doubts.contains(&doubt) {
                        self.doubts.push(doubt);
                    }
                }
            }
        }
        let mut known = vec![&self.series];
        let mut runs: Vec<Saved> = Vec::new();
        for other in others {
            if !known.contains(&&other.series) {
                known.push(&other.series);
                runs.push(other.clone());
            }
        }
        let copy_count = others.len() - runs.len();
        if copy_count > 0 {
            self.doubts.push(format!(
                "{copy_count} of its {} files have the same values as another one; copies count once",
                others.len() + 1
            ));
        }
        let mut others = runs;
        self.doubt_count += others.iter().map(|other| other.doubt_count).sum::<usize>();
        let at_s = |saved: &Saved| saved.conditions.first().and_then(|run| run.at_s);
        if others.iter().chain([&self]).all(|saved| at_s(saved).is_some()) {
            others.sort_by_key(at_s);
            // The earliest becomes the one that the others are added to.
            if let Some(first) = others.first_mut().filter(|first| at_s(first) < at_s(&self)) {
                std::mem::swap(&mut self.series, &mut first.series);
                std::mem::swap(&mut self.run_count, &mut first.run_count);
                std::mem::swap(&mut self.conditions, &mut first.conditions);
                others.sort_by_key(at_s);
            }
        }
        self.conditions.extend(others.iter().flat_map(|other| &other.conditions));
        self.run_count += others.iter().map(|other| other.run_count).sum::<usize>();
        let is_enough = self.run_count >= RUN_COUNT_MIN;
        let own = std::mem::take(&mut self.series);
        for mut series in own {
            let key = |one: &SavedSeries| {
                (one.figure.clone(), one.place.clone(), one.setting.clone(), one.unit)
            };
            let same = |other: &'_ Saved| -> Option<Vec<Block>> {
                let found = other.series.iter().find(|one| key(one) == key(&series))?;
                Some(found.blocks.clone())
            };
            let Some(more) = others.iter().map(same).collect::<Option<Vec<_>>>() else {
                self.doubts
                    .push(format!("not all runs have {} of {}", series.figure, series.place));
                continue;
            };
            let runs = std::iter::once(std::mem::take(&mut series.blocks)).chain(more);
            series.blocks = match is_enough && !others.is_empty() {
                true => runs.map(|blocks| Block::merged(&blocks)).collect(),
                false => runs.flatten().collect(),
            };
            self.series.push(series);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let block = Block::of_times(&mut [1_500, 1_400, 1_500, 123_456, 1_500]);
        assert_eq!(String::from(block.clone()), "1400 1500x3 123500");
        assert_eq!(Block::parse("1400 1500x3 123500"), Some(block));
        assert_eq!(Block::parse(&String::from(Block::of(0.125))), Some(Block::of(0.125)));
        assert_eq!(Block::parse(""), Some(Block::default()));
        for line in ["1x0", "x", "1x", "a", "NaN", "inf", "1x99999999999999", "-", "2 1", "1 1"] {
            assert_eq!(Block::parse(line), None, "{line}");
        }
    }

    #[test]
    fn times_keep_four_digits() {
        let kept = [0, 7, 9_999, 10_004, 10_006, 99_996, u64::MAX].map(four_digits);
        assert_eq!(&kept[..6], [0, 7, 9_999, 10_000, 10_010, 100_000]);
        assert!(kept[6] > u64::MAX / 10 * 9);
    }

    #[test]
    fn all_values_are_in_blocks_of_equal_length() {
        for count in [0_usize, 1, 49, 50, 51, 10_000] {
            let times: Vec<u64> = (0..count as u64).collect();
            let blocks = Block::divided(&times);
            assert!(blocks.len() <= BLOCK_COUNT, "{count}");
            let counts = blocks.iter().flat_map(|block| &block.0).map(|(_, count)| count);
            assert_eq!(counts.sum::<u64>(), count as u64);
        }
    }

    #[test]
    fn what_is_no_measurement_is_refused_by_name() {
        for (text, part) in [
            ("{", "no JSON"),
            ("{}", "not a saved measurement; save one"),
            ("[]", "not a saved measurement"),
            (r#"{"measurement": "ipi", "machine": []}"#, "without series"),
            (r#"{"measurement": "ipi", "machine": [], "series": [{}]}"#, "series 1: missing field"),
            (r#"{"measurement": "ipi", "machine": [1], "series": []}"#, "machine: "),
        ] {
            let error = Saved::from_json(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_series_is_read_as_it_was_written() {
        let series =
            SavedSeries::times("wake latency", "CPU 1", "C6", Block::divided(&[5, 5, 1_000]));
        assert_eq!(SavedSeries::deserialize(serde_json::json!(series)).unwrap(), series);
    }
}
