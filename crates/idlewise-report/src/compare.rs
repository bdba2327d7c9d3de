//! The output of `idlewise compare`: two saved measurements of the same kind side by side, in the
//! form in which patches for idle states are mailed: percentiles of both, and the improvement.
//!
//! **Improvement** is how many times better B is than A, less one: A / B − 1 where lower values are
//! better, B / A − 1 where higher ones are. A wake latency that falls from 2800 to 2300 ns is an
//! improvement of 21.74 %, and 280504 instead of 192844 context switches a second one of 45.46 %
//! (Karny, 2022, who computed both in this way). The **change** is B / A − 1 in any case.
//!
//! **Intervals** are percentile bootstraps as in `statistics.rs`: blocks of A and of B are drawn
//! with replacement, independently, and the statistic is computed from all values of the drawn
//! blocks. With few blocks, or few values beyond a percentile, there is no interval. The blocks of one
//! run know nothing of what changes from run to run (where memory lies, what else the host does), so
//! with enough runs whole runs are drawn instead, and with fewer a doubt says so.

use idlewise_sim::Basis;

use crate::saved::{BetterValue, Saved, SavedSeries, SeriesUnit, Statistic};
use crate::statistics::{Draw, RESAMPLE_COUNT, RUN_COUNT_MIN, median, middle};
use crate::{Column, Notes, Table, TextStyle, wrap};

/// A percentile has an interval only if so many values are beyond it. Resampling fewer gives the
/// same few values again and again.
const BEYOND_COUNT_MIN: u64 = 5;
/// Far more than a measurement has: values of a series times its blocks, and blocks.
const CELL_COUNT_MAX: usize = 1 << 25;
const BLOCK_COUNT_MAX: usize = 1 << 16;

/// The percentiles of Karny's table, in hundredths of a percent.
const PERCENTILES: [u64; 10] = [2500, 5000, 7500, 9000, 9500, 9900, 9950, 9990, 9995, 9999];

const MEDIAN: u64 = 5_000;
const P99: u64 = 9_900;
/// Of more figures only the most important percentiles are printed.
const PAIR_COUNT_MAX: usize = 5;

/// What is compared: a percentile, or another statistic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Least,
    Hundredths(u64),
    Greatest,
    Mean,
    Median,
}

impl Rank {
    fn name(self) -> String {
        match self {
            Rank::Least => "least".to_owned(),
            Rank::Hundredths(hundredths) => format!("{}", hundredths as f64 / 100.0),
            Rank::Greatest => "greatest".to_owned(),
            Rank::Mean => "mean".to_owned(),
            Rank::Median => "median".to_owned(),
        }
    }

    fn is_main(self) -> bool {
        matches!(self, Rank::Hundredths(MEDIAN | P99))
    }
}

/// A series in a form of which statistics of drawn blocks are quickly computed.
struct Sample {
    /// All values, ascending.
    values: Vec<f64>,
    block_count: usize,
    /// For each value a row: how many values of each block are not greater.
    cumulated: Vec<u64>,
    /// The sum and the number of the values of each block.
    sums: Vec<(f64, u64)>,
}

impl Sample {
    fn new(series: &SavedSeries) -> Result<Self, String> {
        let block_count = series.blocks.len();
        let mut values: Vec<f64> =
            series.blocks.iter().flat_map(|block| &block.0).map(|(value, _)| *value).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        if values.len().saturating_mul(block_count) > CELL_COUNT_MAX
            || block_count > BLOCK_COUNT_MAX
        {
            return Err(format!(
                "{} of {} has {} values in {block_count} blocks, more than a measurement saves",
                series.figure,
                series.place,
                values.len()
            ));
        }
        let mut cumulated = vec![0; values.len() * block_count];
        for (place, block) in series.blocks.iter().enumerate() {
            let (mut next, mut count) = (0, 0);
            for (row, value) in values.iter().enumerate() {
                while let Some(&(_, more)) = block.0.get(next).filter(|(v, _)| v <= value) {
                    count += more;
                    next += 1;
                }
                cumulated[row * block_count + place] = count;
            }
        }
        let sum = |block: &crate::saved::Block| {
            let weighted = block.0.iter().map(|&(value, count)| value * count as f64);
            (weighted.sum(), block.0.iter().map(|(_, count)| count).sum())
        };
        let sums = series.blocks.iter().map(sum).collect();
        Ok(Sample { values, block_count, cumulated, sums })
    }

    /// How many values of the drawn blocks are not greater than the one of a row.
    fn up_to(&self, row: usize, weights: &[u64]) -> u64 {
        let row = &self.cumulated[row * self.block_count..][..self.block_count];
        row.iter().zip(weights).map(|(count, weight)| count * weight).sum()
    }

    fn count(&self, weights: &[u64]) -> u64 {
        self.sums.iter().zip(weights).map(|((_, count), weight)| count * weight).sum()
    }

    /// The value of a rank among the values of the drawn blocks; `None` if there is none, or if less
    /// than half a value is expected beyond a percentile.
    fn statistic(&self, rank: Rank, weights: &[u64]) -> Option<f64> {
        let count = self.count(weights);
        if count == 0 {
            return None;
        }
        let nth = match rank {
            Rank::Mean => {
                let sum = self.sums.iter().zip(weights).map(|((sum, _), w)| sum * *w as f64);
                return Some(sum.sum::<f64>() / count as f64);
            }
            Rank::Median => {
                let of_block = |((sum, count), weight): (&(f64, u64), &u64)| {
                    std::iter::repeat_n(sum / *count as f64, *weight as usize)
                };
                return median(self.sums.iter().zip(weights).flat_map(of_block));
            }
            Rank::Least => 1,
            Rank::Greatest => count,
            Rank::Hundredths(hundredths) => {
                if beyond(count, hundredths) < 5_000 {
                    return None;
                }
                let nth = (u128::from(count) * u128::from(hundredths)).div_ceil(10_000);
                (nth as u64).max(1)
            }
        };
        let (mut low, mut high) = (0, self.values.len() - 1);
        while low < high {
            let row = usize::midpoint(low, high);
            match self.up_to(row, weights) >= nth {
                true => high = row,
                false => low = row + 1,
            }
        }
        Some(self.values[low])
    }

    /// Whether an interval of this statistic says anything.
    fn has_interval(&self, rank: Rank) -> bool {
        let count = self.count(&vec![1; self.block_count]);
        self.block_count >= RUN_COUNT_MIN
            && match rank {
                Rank::Least | Rank::Greatest => false,
                Rank::Mean | Rank::Median => true,
                Rank::Hundredths(hundredths) => {
                    let before = beyond(count, 10_000 - hundredths);
                    beyond(count, hundredths).min(before) >= u128::from(BEYOND_COUNT_MIN) * 10_000
                }
            }
    }
}

/// How many values are expected beyond a percentile, times 10,000.
fn beyond(count: u64, hundredths: u64) -> u128 {
    u128::from(count) * u128::from(10_000 - hundredths)
}

/// A statistic of a figure in both measurements.
#[derive(Clone, Debug)]
pub struct CompareLine {
    figure: String,
    place: String,
    setting: String,
    rank: Rank,
    unit: SeriesUnit,
    better: Option<BetterValue>,
    a: Option<f64>,
    b: Option<f64>,
    /// Of the improvement, or of the change where no values are better.
    interval: Option<[f64; 2]>,
}

impl CompareLine {
    /// B / A − 1.
    fn change(&self) -> Option<f64> {
        ratio(self.b, self.a)
    }

    fn improvement(&self) -> Option<f64> {
        improvement(self.better?, self.a, self.b)
    }

    /// The column that says nothing more: the change where there is an improvement, and otherwise
    /// the improvement.
    fn unused(&self) -> &'static str {
        if self.better.is_some() { "change_ratio" } else { "improvement_ratio" }
    }

    fn value(&self, unit: SeriesUnit, value: Option<f64>) -> crate::Value {
        value.filter(|_| self.unit == unit).into()
    }
}

fn ratio(dividend: Option<f64>, divisor: Option<f64>) -> Option<f64> {
    Some(dividend? / divisor.filter(|number| *number != 0.0)? - 1.0)
}

fn improvement(better: BetterValue, a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match better {
        BetterValue::Lower => ratio(a, b),
        BetterValue::Higher => ratio(b, a),
    }
}

type C = Column<CompareLine>;

/// Returns the columns of `idlewise compare`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("figure", "figure", "What was measured.", |row| row.figure.as_str().into()),
        C::text(
            "place",
            "place",
            "Where: the CPU, the distance of two CPUs, or the workload; `A → B` if they differ.",
            |row| row.place.as_str().into(),
        ),
        C::text(
            "setting",
            "setting",
            "The idle state or the way to wait; `A → B` if they differ.",
            |row| row.setting.as_str().into(),
        ),
        C::text(
            "statistic",
            "percentile",
            "The percentile, by nearest rank, or another statistic of all values. Figures are \
             absent for percentiles beyond which less than half a value is expected.",
            |row| row.rank.name().into(),
        )
        .key(),
        C::ns("a_ns", "A", "The value in A, if it is a time.", |row| {
            row.value(SeriesUnit::Nanoseconds, row.a)
        })
        .detail(),
        C::ns("b_ns", "B", "The value in B, if it is a time.", |row| {
            row.value(SeriesUnit::Nanoseconds, row.b)
        })
        .detail(),
        C::per_s("a_per_s", "A", "The value in A, if it is a rate.", |row| {
            row.value(SeriesUnit::PerSecond, row.a)
        })
        .detail(),
        C::per_s("b_per_s", "B", "The value in B, if it is a rate.", |row| {
            row.value(SeriesUnit::PerSecond, row.b)
        })
        .detail(),
        C::mw("a_mw", "A", "The value in A, if it is a power.", |row| {
            row.value(SeriesUnit::Milliwatts, row.a)
        })
        .detail(),
        C::mw("b_mw", "B", "The value in B, if it is a power.", |row| {
            row.value(SeriesUnit::Milliwatts, row.b)
        })
        .detail(),
        C::ratio("a_ratio", "A", "The value in A, if it is a share.", |row| {
            row.value(SeriesUnit::Ratio, row.a)
        })
        .detail(),
        C::ratio("b_ratio", "B", "The value in B, if it is a share.", |row| {
            row.value(SeriesUnit::Ratio, row.b)
        })
        .detail(),
        C::ratio(
            "improvement_ratio",
            "improvement",
            "How many times better B is than A, less one: A / B - 1 where lower values are better, \
             B / A - 1 where higher ones are. Absent where neither is.",
            |row| row.improvement().into(),
        ),
        C::ratio("change_ratio", "change", "B / A - 1.", |row| row.change().into()),
        C::ratio(
            "interval_low_ratio",
            "interval from",
            "Lower end of the 95 % bootstrap interval of the improvement, or of the change where \
             there is no improvement. Absent with fewer than 7 blocks, or fewer than 5 values beyond \
             the percentile.",
            |row| row.interval.map(|[low, _]| low).into(),
        ),
        C::ratio("interval_high_ratio", "interval to", "Upper end of that interval.", |row| {
            row.interval.map(|[_, high]| high).into()
        }),
    ]
}

/// A figure of both measurements.
#[derive(Clone, Debug)]
struct Pair {
    lines: Vec<CompareLine>,
    /// How many values and blocks both have.
    amounts: [(u64, usize); 2],
}

/// Two measurements side by side.
#[derive(Clone, Debug)]
pub struct Comparison {
    pairs: Vec<Pair>,
    notes: Notes,
}

impl Comparison {
    /// Compares two measurements.
    ///
    /// # Errors
    /// Returns a sentence that says why they cannot be compared.
    pub fn new(a: &Saved, b: &Saved) -> Result<Self, String> {
        Comparison::drawn(a, b, false)
    }

    /// Compares two measurements that took turns: the blocks of a turn are drawn together, so that a
    /// slow change of the machine meets both.
    ///
    /// # Errors
    /// Returns a sentence that says why they cannot be compared.
    pub fn in_turns(a: &Saved, b: &Saved) -> Result<Self, String> {
        Comparison::drawn(a, b, true)
    }

    fn drawn(a: &Saved, b: &Saved, in_turns: bool) -> Result<Self, String> {
        if a.measurement != b.measurement {
            return Err(format!(
                "A is a measurement of {}, B one of {}: compare two of the same kind",
                a.measurement, b.measurement
            ));
        }
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "values of A and B");
        doubt_machines(a, b, &mut notes);
        if !in_turns && a.run_count.min(b.run_count) < RUN_COUNT_MIN {
            notes.doubt(format!(
                "intervals say how values vary within {} of A and {} of B, and nothing of other runs, \
                 which may differ by more: save {RUN_COUNT_MIN} runs of each (--more-a, --more-b)",
                runs(a.run_count),
                runs(b.run_count)
            ));
        }
        let pairs = matched(&a.series, &b.series, &mut notes);
        if pairs.is_empty() {
            return Err(format!(
                "A and B have no case in common: A has {}; B has {}",
                cases(&a.series),
                cases(&b.series)
            ));
        }
        let pairs =
            pairs.into_iter().map(|(a, b)| Pair::new(a, b, in_turns)).collect::<Result<_, _>>()?;
        let comparison = Comparison { pairs, notes };
        Ok(comparison.doubting_blocks())
    }

    /// Says where a file holds too little for an interval.
    fn doubting_blocks(mut self) -> Self {
        for (name, index) in [("A", 0), ("B", 1)] {
            let few: Vec<usize> = self.pairs.iter().map(|pair| pair.amounts[index].1).collect();
            if let Some(least) = few.into_iter().filter(|count| *count < RUN_COUNT_MIN).min() {
                self.notes.doubt(format!(
                    "{name} has as few as {least} blocks of values, too few for an interval, which \
                     needs {RUN_COUNT_MIN}: measure longer"
                ));
            }
        }
        self
    }

    /// Returns a line for each statistic of each figure.
    pub fn table(&self, title: &str) -> Table {
        Table::new(title, &columns(), self.pairs.iter().flat_map(|pair| &pair.lines)).unranked()
    }

    /// Returns reasons to distrust the comparison.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Returns the comparison for people: the percentiles of each figure, or of many figures only
    /// the median and the 99th percentile unless `all_percentiles`; and the improvements in sentences.
    pub fn to_text(&self, style: &TextStyle, all_percentiles: bool) -> String {
        let mut text = String::new();
        let (percentiles, others): (Vec<&Pair>, Vec<&Pair>) =
            self.pairs.iter().partition(|pair| pair.has_percentiles());
        let is_short = percentiles.len() > PAIR_COUNT_MAX && !all_percentiles;
        for pair in percentiles.iter().filter(|_| !is_short) {
            let [(a, a_blocks), (b, b_blocks)] = pair.amounts;
            let title =
                format!("{}: A {a} values in {a_blocks} blocks, B {b} in {b_blocks}", pair.title());
            let table = Table::new(title, &columns(), &pair.lines).unranked();
            let known = ["figure", "place", "setting", pair.lines[0].unused()];
            text.push_str(&table.without(&known).to_text(style));
            for sentence in pair.lines.iter().filter_map(CompareLine::sentence) {
                text.push_str(&wrap(&sentence, style.width, 2));
                text.push('\n');
            }
            text.push('\n');
        }
        let main = percentiles.into_iter().filter(|_| is_short).flat_map(|pair| &pair.lines);
        let main: Vec<&CompareLine> = main.filter(|line| line.rank.is_main()).collect();
        let others: Vec<&CompareLine> = others.into_iter().flat_map(|pair| &pair.lines).collect();
        for (title, lines) in [
            ("Medians and 99th percentiles (--percentiles prints all)", main),
            ("Means, or medians of runs", others),
        ] {
            text.push_str(&by_unit(title, &lines, &[], style));
        }
        text + &self.notes.to_text(style.width)
    }

    /// Returns the means of two settings that were measured in turns, for people.
    pub fn turns_text(&self, title: &str, style: &TextStyle) -> String {
        let lines: Vec<&CompareLine> = self.pairs.iter().flat_map(|pair| &pair.lines).collect();
        by_unit(title, &lines, &["setting", "statistic"], style)
    }
}

/// A table for each unit. In one table, A and B would have two columns for each.
fn by_unit(title: &str, lines: &[&CompareLine], known: &[&str], style: &TextStyle) -> String {
    let mut text = String::new();
    for (unit, of) in [
        (SeriesUnit::Nanoseconds, "times"),
        (SeriesUnit::PerSecond, "rates"),
        (SeriesUnit::Ratio, "shares"),
        (SeriesUnit::Milliwatts, "powers"),
    ] {
        let lines: Vec<&CompareLine> =
            lines.iter().copied().filter(|line| line.unit == unit).collect();
        let Some(first) = lines.first() else { continue };
        let known = [known, &[first.unused()]].concat();
        let table = Table::new(format!("{title}: {of}"), &columns(), lines).unranked();
        text.push_str(&table.without(&known).to_text(style));
        text.push('\n');
    }
    text
}

impl CompareLine {
    /// The improvement of the median or of the 99th percentile, as a sentence.
    fn sentence(&self) -> Option<String> {
        let name = match self.rank {
            Rank::Hundredths(MEDIAN) => "median",
            Rank::Hundredths(P99) => "99th percentile",
            _ => return None,
        };
        let percent = 100.0 * self.improvement()?;
        let interval = match self.interval {
            None => "no interval".to_owned(),
            Some([low, high]) => {
                let undecided = if low <= 0.0 && high >= 0.0 { ": undecided" } else { "" };
                format!("95 % interval {:.2} to {:.2} %{undecided}", 100.0 * low, 100.0 * high)
            }
        };
        Some(format!("Improvement ({name}): {percent:.2} % ({interval})"))
    }
}

impl Pair {
    fn new(a: &SavedSeries, b: &SavedSeries, in_turns: bool) -> Result<Self, String> {
        let samples = [Sample::new(a)?, Sample::new(b)?];
        let ranks: Vec<Rank> = match a.statistic {
            Statistic::Mean => vec![Rank::Mean],
            Statistic::Median => vec![Rank::Median],
            Statistic::Percentiles => std::iter::once(Rank::Least)
                .chain(PERCENTILES.map(Rank::Hundredths))
                .chain([Rank::Greatest])
                .collect(),
        };
        let better = a.better.filter(|_| a.better == b.better);
        let compared = |[a, b]: [Option<f64>; 2]| match better {
            Some(better) => improvement(better, a, b),
            None => ratio(b, a),
        };
        let resampled = resampled(&samples, &ranks, in_turns, compared);
        let [all_a, all_b] = samples.each_ref().map(|sample| vec![1; sample.block_count]);
        let lines = ranks.iter().zip(resampled).map(|(&rank, interval)| CompareLine {
            figure: a.figure.clone(),
            place: both(&a.place, &b.place),
            setting: both(&a.setting, &b.setting),
            rank,
            unit: a.unit,
            better,
            a: samples[0].statistic(rank, &all_a),
            b: samples[1].statistic(rank, &all_b),
            interval,
        });
        let amounts = [
            (samples[0].count(&all_a), samples[0].block_count),
            (samples[1].count(&all_b), samples[1].block_count),
        ];
        let lines = lines.filter(|line| line.a.is_some() || line.b.is_some()).collect();
        Ok(Pair { lines, amounts })
    }

    fn has_percentiles(&self) -> bool {
        !matches!(self.lines.first().map(|line| line.rank), None | Some(Rank::Mean | Rank::Median))
    }

    fn title(&self) -> String {
        let Some(line) = self.lines.first() else { return String::new() };
        let words = [line.figure.as_str(), &line.place, &line.setting];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }
}

/// The interval of each rank's comparison.
fn resampled(
    samples: &[Sample; 2],
    ranks: &[Rank],
    in_turns: bool,
    compared: impl Fn([Option<f64>; 2]) -> Option<f64>,
) -> Vec<Option<[f64; 2]>> {
    let has_interval = |rank: &Rank| samples.iter().all(|sample| sample.has_interval(*rank));
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); ranks.len()];
    if !ranks.iter().any(has_interval) {
        return vec![None; ranks.len()];
    }
    let mut weights = samples.each_ref().map(|sample| vec![0; sample.block_count]);
    let mut draws = Draw::pair();
    let is_together = in_turns && samples[0].block_count == samples[1].block_count;
    for _ in 0..RESAMPLE_COUNT {
        for (draw, weights) in draws.iter_mut().zip(&mut weights) {
            draw.weights(weights);
        }
        if is_together {
            let [a, b] = &mut weights;
            b.clone_from(a);
        }
        for (rank, found) in ranks.iter().zip(&mut found).filter(|(rank, _)| has_interval(rank)) {
            let [a, b] = [0, 1].map(|index| samples[index].statistic(*rank, &weights[index]));
            found.extend(compared([a, b]));
        }
    }
    // A resample without the statistic says nothing of its interval.
    let interval = |found: Vec<f64>| (found.len() == RESAMPLE_COUNT).then(|| middle(found));
    found.into_iter().map(interval).collect()
}

fn runs(count: usize) -> String {
    if count == 1 { "one run".to_owned() } else { format!("{count} runs") }
}

fn both(a: &str, b: &str) -> String {
    if a == b { a.to_owned() } else { format!("{a} → {b}") }
}

fn cases(series: &[SavedSeries]) -> String {
    let mut names: Vec<String> =
        series.iter().map(|one| format!("{} {}", one.place, one.setting)).collect();
    names.dedup();
    names.truncate(6);
    names.join(", ")
}

/// Finds the series of A and B that belong together: those with the same place and setting. If
/// there is none, two settings of a place, or a setting of two places, or whatever leaves no choice.
fn matched<'a>(
    a: &'a [SavedSeries],
    b: &'a [SavedSeries],
    notes: &mut Notes,
) -> Vec<(&'a SavedSeries, &'a SavedSeries)> {
    type Alike = fn(&SavedSeries, &SavedSeries) -> bool;
    const RULES: [Alike; 4] = [
        |a, b| a.place == b.place && a.setting == b.setting,
        |a, b| a.place == b.place,
        |a, b| a.setting == b.setting,
        |_, _| true,
    ];
    fn only(mut found: impl Iterator<Item = usize>) -> Option<usize> {
        found.next().filter(|_| found.next().is_none())
    }
    let pairs_by = |rule: Alike| -> Vec<(usize, usize)> {
        let alike = |i: usize, j: usize| {
            let key = |one: &'a SavedSeries| (&one.figure, one.unit, one.statistic);
            key(&a[i]) == key(&b[j]) && rule(&a[i], &b[j])
        };
        let partner = |i: usize| {
            let j = only((0..b.len()).filter(|&j| alike(i, j)))?;
            only((0..a.len()).filter(|&i| alike(i, j))).map(|i| (i, j))
        };
        (0..a.len()).filter_map(partner).collect()
    };
    let pairs = RULES.into_iter().map(pairs_by).find(|pairs| !pairs.is_empty()).unwrap_or_default();
    for (name, series, other) in [("A", a, 0), ("B", b, 1)] {
        for (index, one) in series.iter().enumerate() {
            if !pairs.iter().any(|pair| [pair.0, pair.1][other] == index) {
                notes.doubt(format!(
                    "only {name} has {} of {}{}{}",
                    one.figure,
                    one.place,
                    if one.setting.is_empty() { "" } else { ", " },
                    one.setting
                ));
            }
        }
    }
    pairs.into_iter().map(|(i, j)| (&a[i], &b[j])).collect()
}

/// Says in what the machines differ, and whether a file had doubts of its own.
fn doubt_machines(a: &Saved, b: &Saved, notes: &mut Notes) {
    if a.machine.is_empty() || b.machine.is_empty() {
        notes.doubt("a file does not say on which machine it was measured");
    }
    for fact in &a.machine {
        let Some(other) = b.machine.iter().find(|other| other.fact == fact.fact) else { continue };
        if fact.value != other.value {
            let [a, b] =
                [fact, other].map(|fact| fact.value.as_deref().unwrap_or("not shown").to_owned());
            notes.doubt(format!("A and B differ in {}: {a}; {b}", fact.fact));
        }
    }
    if a.program != b.program {
        notes.doubt(format!("{} measured A, {} B", a.program, b.program));
    }
    for (name, saved) in [("A", a), ("B", b)] {
        for doubt in &saved.doubts {
            notes.doubt(format!("{name}: {doubt}"));
        }
        if saved.doubt_count > 0 {
            notes.doubt(format!(
                "{name} has doubts of its own ({}): see the file",
                saved.doubt_count
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::park::MachineFact;
    use crate::saved::Block;

    fn fact(fact: &str, value: &str) -> MachineFact {
        MachineFact { fact: fact.to_owned(), value: Some(value.to_owned()) }
    }

    fn saved(measurement: &str, series: Vec<SavedSeries>) -> Saved {
        Saved {
            measurement: measurement.to_owned(),
            program: "idlewise 0.1.0".to_owned(),
            date: "2026-11-22".to_owned(),
            machine: vec![fact("kernel", "6.12.1")],
            series,
            doubt_count: 0,
            run_count: RUN_COUNT_MIN,
            doubts: Vec::new(),
        }
    }

    /// Values whose percentiles are the given ones: `count` values, dealt out to 50 blocks.
    fn series_with(percentiles: &[(u64, f64)], count: u64) -> SavedSeries {
        let mut blocks = vec![Block::default(); 50];
        for nth in 1..=count {
            let value = percentiles.iter().find(|(hundredths, _)| {
                let rank = (u128::from(count) * u128::from(*hundredths)).div_ceil(10_000);
                u128::from(nth) <= rank
            });
            let value = value.map_or(percentiles[percentiles.len() - 1].1, |(_, value)| *value);
            let block = &mut blocks[(nth % 50) as usize];
            match block.0.last_mut() {
                Some((last, count)) if *last == value => *count += 1,
                _ => block.0.push((value, 1)),
            }
        }
        SavedSeries::times("wake latency", "another core", "HALT", blocks)
    }

    /// The table of the mail that proposed MWAIT instead of HALT on AMD.
    fn published() -> [SavedSeries; 2] {
        let hundredths = [1, 2500, 5000, 7500, 9000, 9500, 9900, 9950, 9990, 9995, 9999, 10_000];
        let halt =
            [1700., 1900., 2000., 2300., 2500., 2600., 2800., 3000., 3400., 3600., 5900., 5900.];
        let mwait =
            [1200., 1400., 1500., 1700., 1800., 1900., 2300., 2500., 3200., 3500., 4600., 4600.];
        let with = |values: [f64; 12], count| {
            let percentiles: Vec<(u64, f64)> = hundredths.into_iter().zip(values).collect();
            series_with(&percentiles, count)
        };
        let [a, mut b] = [with(halt, 9_999), with(mwait, 9_997)];
        b.setting = "MWAIT".to_owned();
        [a, b]
    }

    #[test]
    fn computes_the_published_improvement() {
        let [a, b] = published();
        let comparison = Comparison::new(&saved("ipi", vec![a]), &saved("ipi", vec![b])).unwrap();
        let text = comparison.to_text(&TextStyle::default(), false);
        assert!(text.contains("wake latency, another core, HALT → MWAIT: A 9999 values"), "{text}");
        assert!(text.contains("Improvement (99th percentile): 21.74 % (95 % interval "), "{text}");
        assert!(text.contains("Improvement (median): 33.33 % (95 % interval "), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let csv = comparison.table("").to_csv();
        let row = csv.lines().find(|line| line.contains(",99,")).unwrap();
        assert!(row.starts_with("wake latency,another core,HALT → MWAIT,99,2800,2300,"), "{row}");
    }

    #[test]
    fn more_is_better_for_rates() {
        let of = |value: f64| {
            let mut series = SavedSeries::times(
                "context switches",
                "same CPU",
                "yield",
                (0..100).map(|_| Block::of(value)).collect(),
            );
            series.unit = SeriesUnit::PerSecond;
            series.better = Some(BetterValue::Higher);
            saved("switch", vec![series])
        };
        let comparison = Comparison::new(&of(192_844.0), &of(280_504.0)).unwrap();
        let text = comparison.to_text(&TextStyle::default(), false);
        // One value in a hundred is beyond it.
        assert!(text.contains("Improvement (99th percentile): 45.46 % (no interval)"), "{text}");
        assert!(text.contains("Improvement (median): 45.46 % (95 % interval 45.46 to 45.46 %)"));
    }

    /// 40 blocks of one value each: 1 to 40. The standard error of their mean is 1.82 (with the
    /// population's variance of 133.25), so that 95 % of the resampled means are within 3.57 of 20.5.
    #[test]
    fn an_interval_of_a_mean_has_the_width_of_its_standard_error() {
        let of = |add: f64| {
            let blocks = (1..=40).map(|i| Block::of(f64::from(i) + add)).collect();
            let mut series = SavedSeries::times("power", "package 0", "", blocks);
            series.statistic = Statistic::Mean;
            series.better = None;
            saved("counters", vec![series])
        };
        // A's values hardly vary beside their size, so the interval is B's.
        let mut a = of(0.0);
        a.series[0].blocks = vec![Block::of(20.5); 40];
        let comparison = Comparison::new(&a, &of(0.0)).unwrap();
        let line = &comparison.pairs[0].lines[0];
        assert_eq!((line.a, line.b), (Some(20.5), Some(20.5)));
        assert_eq!((line.change(), line.improvement()), (Some(0.0), None));
        let [low, high] = line.interval.unwrap().map(|ratio| 20.5 * ratio);
        assert!((low + 3.57).abs() < 0.4 && (high - 3.57).abs() < 0.4, "{low} {high}");
    }

    /// An independent implementation: expands all values and sorts them.
    #[test]
    fn percentiles_of_drawn_blocks_are_those_of_their_values() {
        let [a, _] = published();
        let sample = Sample::new(&a).unwrap();
        let mut draw = Draw::pair();
        for round in 0..20 {
            let mut weights = vec![1; 50];
            if round > 0 {
                draw[0].weights(&mut weights);
            }
            assert_eq!(weights.iter().sum::<u64>(), 50);
            let mut values: Vec<f64> = Vec::new();
            for (block, weight) in a.blocks.iter().zip(&weights) {
                for (value, count) in &block.0 {
                    values.extend(std::iter::repeat_n(*value, (count * weight) as usize));
                }
            }
            values.sort_unstable_by(f64::total_cmp);
            for hundredths in PERCENTILES {
                let nth = (values.len() as u64 * hundredths).div_ceil(10_000).max(1);
                let expected = values.get(nth as usize - 1).copied();
                assert_eq!(sample.statistic(Rank::Hundredths(hundredths), &weights), expected);
            }
            let sum: f64 = values.iter().sum();
            let mean = sample.statistic(Rank::Mean, &weights).unwrap();
            assert!((mean - sum / values.len() as f64).abs() < 1e-6);
        }
    }

    /// Six figures, some of them rates: each table has one column of A and one of B.
    #[test]
    fn many_figures_are_shown_by_unit() {
        let mut series = Vec::new();
        for place in ["one", "another", "a third"] {
            let times = published()[0].blocks.clone();
            series.push(SavedSeries::times("round trip", place, "futex", times));
            let rates = (1..=50).map(|i| Block::of(f64::from(i) * 1e4)).collect();
            let mut rates = SavedSeries::times("context switches", place, "futex", rates);
            (rates.unit, rates.better) = (SeriesUnit::PerSecond, Some(BetterValue::Higher));
            series.push(rates);
        }
        let all = saved("switch", series);
        let text = Comparison::new(&all, &all).unwrap().to_text(&TextStyle::default(), false);
        for title in ["prints all): times", "prints all): rates"] {
            let table = text.split(title).nth(1).unwrap_or_else(|| panic!("no {title}: {text}"));
            let heading = table.lines().find(|line| line.starts_with("figure")).unwrap();
            assert!(heading.contains("us ") || heading.contains("k/s "), "{text}");
        }
        assert!(!text.contains("Not shown"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn unlike_kinds_and_nothing_in_common_are_refused() {
        let [a, b] = published();
        let error =
            Comparison::new(&saved("ipi", vec![a.clone()]), &saved("timer", vec![b.clone()]));
        let error = error.unwrap_err();
        assert_eq!(
            error,
            "A is a measurement of ipi, B one of timer: compare two of the same kind"
        );
        let mut other = b;
        other.figure = "send cost".to_owned();
        let error = Comparison::new(&saved("ipi", vec![a]), &saved("ipi", vec![other]));
        assert!(error.unwrap_err().starts_with("A and B have no case in common: A has another"));
    }

    #[test]
    fn says_in_what_the_machines_differ_and_what_only_one_has() {
        let [one, other] = published();
        let mut more = one.clone();
        more.place = "SMT sibling".to_owned();
        let a = saved("ipi", vec![one.clone(), more]);
        let mut b = saved("ipi", vec![one, other]);
        b.machine = vec![fact("kernel", "6.1.0"), fact("CPU", "another")];
        b.doubt_count = 2;
        let comparison = Comparison::new(&a, &b).unwrap();
        let doubts: Vec<&str> = comparison.notes().doubts().map(|(doubt, _)| doubt).collect();
        assert_eq!(
            doubts,
            [
                "A and B differ in kernel: 6.12.1; 6.1.0",
                "B has doubts of its own (2): see the file",
                "only A has wake latency of SMT sibling, HALT",
                "only B has wake latency of another core, MWAIT",
            ]
        );
        assert_eq!(comparison.pairs.len(), 1);
        let alone = Comparison::new(&a, &saved("ipi", vec![published()[0].clone()])).unwrap();
        let doubts: Vec<&str> = alone.notes().doubts().map(|(doubt, _)| doubt).collect();
        assert_eq!(doubts, ["only A has wake latency of SMT sibling, HALT"]);
    }

    /// Runs of one setting, whose values all differ from run to run: 1000 to 1009, 1010 to 1019, ...
    fn run(nth: u64) -> Saved {
        let times: Vec<u64> = (0..1_000).map(|i| 1_000 + 10 * nth + i % 10).collect();
        let series = SavedSeries::times("wake latency", "CPU 1", "C1", Block::divided(&times));
        Saved { run_count: 1, ..saved("ipi", vec![series]) }
    }

    /// Two runs of the same setting differ, and the blocks of one know nothing of that.
    #[test]
    fn only_several_runs_show_how_runs_differ() {
        let alone = Comparison::new(&run(3), &run(7)).unwrap();
        let median = |comparison: &Comparison| {
            let lines = &comparison.pairs[0].lines;
            lines.iter().find(|line| line.rank == Rank::Hundredths(MEDIAN)).unwrap().clone()
        };
        let [low, high] = median(&alone).interval.unwrap();
        assert!(low < 0.0 && high < 0.0, "decided within these two runs: {low} {high}");
        let (doubt, _) = alone.notes().doubts().next().unwrap();
        assert!(doubt.contains("within one run of A and one run of B"), "{doubt}");

        // Two sets of ten runs, dealt out in turns.
        let set = |first: u64| {
            let more: Vec<Saved> = (1..10).map(|nth| run(2 * nth + first)).collect();
            run(first).joined(&more).unwrap()
        };
        let several = Comparison::new(&set(0), &set(1)).unwrap();
        assert_eq!(several.pairs[0].amounts, [(10_000, 10); 2], "a block for each run");
        let [low, high] = median(&several).interval.unwrap();
        assert!(low < 0.0 && high > 0.0, "undecided: {low} {high}");
        assert_eq!(several.notes().doubts().count(), 0);

        let few = run(0).joined(&[run(1)]).unwrap();
        assert_eq!(few.series[0].blocks.len(), 100, "all blocks of both");
        let mut other = run(1);
        other.machine = vec![fact("kernel", "6.1.0")];
        assert_eq!(
            run(0).joined(&[other.clone()]).unwrap().doubts,
            ["its runs differ in kernel: 6.12.1; 6.1.0"]
        );
        other.measurement = "timer".to_owned();
        let error = run(0).joined(&[other]).unwrap_err();
        assert_eq!(error, "run 1 is a measurement of ipi, run 2 one of timer");
    }

    /// Files may be damaged or made up.
    #[test]
    fn a_damaged_file_is_refused_or_compared() {
        let [a, _] = published();
        let document = serde_json::json!({
            "measurement": "ipi",
            "machine": [{ "fact": "kernel", "value": "6.12.1" }],
            "series": [a.to_json()],
        });
        let text = document.to_string();
        let whole = Saved::from_json(&text).unwrap();
        let mut number: u64 = 1;
        let mut below = |count: usize| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (number >> 33) as usize % count
        };
        let mut compared_count = 0;
        for _ in 0..30 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=below(3) {
                let at = below(bytes.len());
                bytes[at] = b"0123456789x. \"-e"[below(16)];
            }
            let damaged = Saved::from_json(&String::from_utf8_lossy(&bytes));
            if let Ok(damaged) = damaged
                && let Ok(comparison) = Comparison::new(&whole, &damaged)
            {
                comparison.to_text(&TextStyle::default(), false);
                compared_count += 1;
            }
        }
        assert!((1..30).contains(&compared_count), "{compared_count}");
    }

    #[test]
    fn few_blocks_have_no_interval() {
        let [a, mut b] = published();
        b.blocks.truncate(RUN_COUNT_MIN - 1);
        let comparison = Comparison::new(&saved("ipi", vec![a]), &saved("ipi", vec![b])).unwrap();
        assert!(comparison.pairs[0].lines.iter().all(|line| line.interval.is_none()));
        let (doubt, _) = comparison.notes().doubts().next().unwrap();
        assert!(doubt.starts_with("B has as few as 6 blocks of values, too few for an interval"));
    }
}
