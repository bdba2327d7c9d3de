//! The output of `idlewise lab compare`: two saved measurements of the same kind side by side, in the
//! form in which patches for idle states are mailed: percentiles of both, and the improvement.
//!
//! **Improvement** is how many times better B is than A, less one: A / B − 1 where lower values are
//! better, B / A − 1 where higher ones are. A wake latency that falls from 2800 to 2300 ns is an
//! improvement of 21.74 %, and 280504 instead of 192844 context switches a second one of 45.46 %
//! (Karny, 2022, who computed both in this way). The **change** is B / A − 1 in any case.
//!
//! **Intervals** come from how runs vary. The values of one run know nothing of what changes from run to run (where
//! memory lies, what else the machine does), so with fewer than seven runs of each there is no interval. Runs of A
//! and of B are drawn with replacement, independently, and the statistic is computed from all values of the drawn
//! runs (percentile bootstrap as in `statistics.rs`, with `Tails` for few runs). Where few values are beyond a
//! percentile there is no interval either, nor where all runs of A or of B have exactly the same value: so have copies
//! of one run, and runs with a clock that is too coarse to show how they vary.
//!
//! **Drift.** A machine that slowly changes makes any two measurements differ that were made one after the other. If
//! the files say that the runs of A and B took turns, a drift meets both, and the interval holds. If
//! not, the interval is widened: it reaches at least three times as far as A or B changed from the first
//! half of its runs to the second. A linear drift changes twice as much from A to B; three leaves room for one that
//! is not linear. `tests.rs` compares A with A under five kinds of drift.

pub(crate) mod sample;

use idlewise_sim::Basis;

use crate::saved::{BetterValue, Conditions, Saved, SavedSeries, SeriesUnit, Statistic};
use crate::statistics::{Draw, RESAMPLE_COUNT, RUN_COUNT_MIN, middle_of_few};
use crate::{Column, Notes, Table, TextStyle, wrap};
use sample::{MEDIAN, P99, Rank, Sample};

/// How much further than from one half of the runs to the other a drift may reach from A to B.
const DRIFT_REACH: f64 = 3.0;
/// With more than this share of the CPU time taken by others, what was measured may be their doing ...
const OTHERS_RATIO_MAX: f64 = 0.1;
/// ... or by the host.
const STOLEN_RATIO_MAX: f64 = 0.02;

/// The percentiles of Karny's table, in hundredths of a percent.
const PERCENTILES: [u64; 10] = [2500, 5000, 7500, 9000, 9500, 9900, 9950, 9990, 9995, 9999];

/// Of more figures only the most important percentiles are printed.
const PAIR_COUNT_MAX: usize = 5;

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

/// The columns of A and B. A table has values in one pair of them, which share a unit.
const VALUES: [&str; 8] =
    ["a_ns", "b_ns", "a_per_s", "b_per_s", "a_mw", "b_mw", "a_ratio", "b_ratio"];

type C = Column<CompareLine>;

/// Returns the columns of `idlewise lab compare`.
pub fn columns() -> Vec<C> {
    vec![
        C::text("figure", "figure", |row| row.figure.as_str().into()).means("What was measured."),
        C::text("place", "place", |row| row.place.as_str().into()).means(
            "Where: the CPU, the distance of two CPUs, or the workload; `A → B` if they differ.",
        ),
        C::text("setting", "setting", |row| row.setting.as_str().into())
            .means("The idle state or the way to wait; `A → B` if they differ."),
        C::text("statistic", "percentile", |row| row.rank.name().into())
            .means(
                "The percentile, by nearest rank, or another statistic; absent if less than half a \
                 value is expected beyond the percentile.",
            )
            .key(),
        C::ns("a_ns", "A", |row| row.value(SeriesUnit::Nanoseconds, row.a))
            .means("The value in A, if it is a time.")
            .detail(),
        C::ns("b_ns", "B", |row| row.value(SeriesUnit::Nanoseconds, row.b))
            .means("The value in B, if it is a time.")
            .detail(),
        C::per_s("a_per_s", "A", |row| row.value(SeriesUnit::PerSecond, row.a))
            .means("The value in A, if it is a rate.")
            .detail(),
        C::per_s("b_per_s", "B", |row| row.value(SeriesUnit::PerSecond, row.b))
            .means("The value in B, if it is a rate.")
            .detail(),
        C::mw("a_mw", "A", |row| row.value(SeriesUnit::Milliwatts, row.a))
            .means("The value in A, if it is a power.")
            .detail(),
        C::mw("b_mw", "B", |row| row.value(SeriesUnit::Milliwatts, row.b))
            .means("The value in B, if it is a power.")
            .detail(),
        C::ratio("a_ratio", "A", |row| row.value(SeriesUnit::Ratio, row.a))
            .means("The value in A, if it is a share.")
            .detail(),
        C::ratio("b_ratio", "B", |row| row.value(SeriesUnit::Ratio, row.b))
            .means("The value in B, if it is a share.")
            .detail(),
        C::ratio("improvement_ratio", "improvement", |row| row.improvement().into()).means(
            "How much better B is than A: A / B - 1 if lower is better, B / A - 1 if higher is. \
             Absent if neither is.",
        ),
        C::ratio("change_ratio", "change", |row| row.change().into()).means("B / A - 1."),
        C::ratio("interval_low_ratio", "interval from", |row| {
            row.interval.map(|[low, _]| low).into()
        })
        .means(
            "Ends of the 95 % bootstrap interval of the improvement, or else of the change. Absent \
             with fewer than 7 runs of each, fewer than 5 values beyond the percentile, or runs that do not vary at all.",
        ),
        C::ratio("interval_high_ratio", "interval to", |row| {
            row.interval.map(|[_, high]| high).into()
        })
        .means("Upper end of that interval."),
    ]
}

/// A figure of both measurements.
#[derive(Clone, Debug)]
struct Pair {
    lines: Vec<CompareLine>,
    /// How many values and blocks both have.
    amounts: [(u64, usize); 2],
    /// Whether all runs of A, or all of B, have the same value of a statistic that would have an interval otherwise.
    is_same_in_all: [bool; 2],
}

/// How the blocks of A and B were measured, which decides how they are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Block by block in turns within one measurement: the blocks of a turn are drawn together.
    Turns,
    /// Run by run in turns.
    RunsInTurns,
    /// One after the other, or nobody knows.
    Runs,
    /// So few runs that they do not show how runs vary.
    FewRuns,
}

impl Order {
    /// Whether each block is a run, and an interval is of how these vary.
    fn is_by_run(self) -> bool {
        matches!(self, Order::Runs | Order::RunsInTurns)
    }

    fn of(a: &Saved, b: &Saved) -> Self {
        match a.run_count.min(b.run_count) {
            ..RUN_COUNT_MIN => Order::FewRuns,
            _ if took_turns(a, b) == Some(true) => Order::RunsInTurns,
            _ => Order::Runs,
        }
    }
}

/// Whether the runs of A and B alternated; `None` if the files do not say when they were measured.
fn took_turns(a: &Saved, b: &Saved) -> Option<bool> {
    let times = |saved: &Saved, is_b: bool| -> Option<Vec<(u64, bool)>> {
        let times = saved.conditions.iter().map(|run| Some((run.at_s?, is_b)));
        times.collect::<Option<Vec<_>>>().filter(|times| !times.is_empty())
    };
    let (a, b) = (times(a, false)?, times(b, true)?);
    let turn_count = a.len().min(b.len());
    let mut all = [a, b].concat();
    all.sort_unstable();
    let switch_count = all.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    // A B B A has half as many switches as A B A B, and is as good.
    Some(turn_count > 0 && switch_count >= turn_count)
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
        Comparison::drawn(a, b, Order::of(a, b))
    }

    /// Compares two measurements that took turns: the blocks of a turn are drawn together, so that a
    /// slow change of the machine meets both.
    ///
    /// # Errors
    /// Returns a sentence that says why they cannot be compared.
    pub fn in_turns(a: &Saved, b: &Saved) -> Result<Self, String> {
        Comparison::drawn(a, b, Order::Turns)
    }

    fn drawn(a: &Saved, b: &Saved, order: Order) -> Result<Self, String> {
        if a.measurement != b.measurement {
            return Err(format!(
                "A is a measurement of {}, B one of {}: compare two of the same kind",
                a.measurement, b.measurement
            ));
        }
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "values of A and B");
        doubt_machines(a, b, &mut notes);
        doubt_order(a, b, order, &mut notes);
        if a.series == b.series {
            notes.doubt("A and B have the same values: this compares a measurement with itself");
        }
        let pairs = matched(&a.series, &b.series, &mut notes);
        if pairs.is_empty() {
            return Err(format!(
                "A and B have no case in common: A has {}; B has {}",
                cases(&a.series),
                cases(&b.series)
            ));
        }
        let pairs: Vec<Pair> =
            pairs.into_iter().map(|(a, b)| Pair::new(a, b, order)).collect::<Result<_, _>>()?;
        for (name, index) in [("A", 0), ("B", 1)] {
            if pairs.iter().any(|pair: &Pair| pair.is_same_in_all[index]) {
                notes.doubt(format!(
                    "some figures have exactly the same value in all runs of {name}, and no interval for that: the runs \
                     are copies, or the clock is too coarse to show how they differ"
                ));
            }
        }
        let comparison = Comparison { pairs, notes };
        Ok(if order == Order::Turns { comparison.doubting_blocks() } else { comparison })
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
            text.push_str(&table.without(&known).one_unit(&VALUES).to_text(style));
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
        text.push_str(&table.without(&known).one_unit(&VALUES).to_text(style));
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
    fn new(a: &SavedSeries, b: &SavedSeries, order: Order) -> Result<Self, String> {
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
        let resampled = resampled(&samples, &ranks, order, compared);
        let is_doubted = |sample: &Sample, rank: Rank| {
            order.is_by_run() && sample.has_interval(rank) && sample.is_same_in_all(rank)
        };
        let is_same_in_all =
            samples.each_ref().map(|sample| ranks.iter().any(|rank| is_doubted(sample, *rank)));
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
        Ok(Pair { lines, amounts, is_same_in_all })
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
    order: Order,
    compared: impl Fn([Option<f64>; 2]) -> Option<f64>,
) -> Vec<Option<[f64; 2]>> {
    let has_interval = |rank: &Rank| {
        let is_varying = |sample: &Sample| !order.is_by_run() || !sample.is_same_in_all(*rank);
        order != Order::FewRuns
            && samples.iter().all(|sample| sample.has_interval(*rank) && is_varying(sample))
    };
    let with_interval: Vec<bool> = ranks.iter().map(has_interval).collect();
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); ranks.len()];
    if !with_interval.contains(&true) {
        return vec![None; ranks.len()];
    }
    let mut weights = samples.each_ref().map(|sample| vec![0; sample.block_count]);
    let mut draws = Draw::pair();
    let is_together = order == Order::Turns && samples[0].block_count == samples[1].block_count;
    for _ in 0..RESAMPLE_COUNT {
        for (draw, weights) in draws.iter_mut().zip(&mut weights) {
            draw.weights(weights);
        }
        if is_together {
            let [a, b] = &mut weights;
            b.clone_from(a);
        }
        let with_interval = ranks.iter().zip(&mut found).zip(&with_interval);
        for ((rank, found), _) in with_interval.filter(|(_, has_interval)| **has_interval) {
            let [a, b] = [0, 1].map(|index| samples[index].statistic(*rank, &weights[index]));
            found.extend(compared([a, b]));
        }
    }
    let few = samples.iter().map(|sample| sample.block_count).min().unwrap_or(0);
    let interval = |(found, rank): (Vec<f64>, &Rank)| {
        // A resample without the statistic says nothing of its interval.
        let ends = (found.len() == RESAMPLE_COUNT).then(|| middle_of_few(found, few))?;
        match order {
            Order::Runs => {
                let all = samples
                    .each_ref()
                    .map(|sample| sample.statistic(*rank, &vec![1; sample.block_count]));
                widened(ends, compared(all)?, drift(samples, *rank)?)
            }
            Order::Turns | Order::RunsInTurns | Order::FewRuns => Some(ends),
        }
    };
    found.into_iter().zip(ranks).map(interval).collect()
}

/// How much A or B changed from the first half of its runs to the second, whichever changed more, as a logarithm.
fn drift(samples: &[Sample; 2], rank: Rank) -> Option<f64> {
    let of = |sample: &Sample| {
        let count = sample.block_count;
        let half = |is_in: &dyn Fn(usize) -> bool| {
            let weights: Vec<u64> = (0..count).map(|place| u64::from(is_in(place))).collect();
            sample.statistic(rank, &weights)
        };
        let (first, last) =
            (half(&|place| place < count / 2)?, half(&|place| place >= count.div_ceil(2))?);
        let change = (last / first).ln().abs();
        change.is_finite().then_some(change)
    };
    Some(of(&samples[0])?.max(of(&samples[1])?))
}

/// Makes an interval reach as far as a drift may.
fn widened([low, high]: [f64; 2], measured: f64, drift: f64) -> Option<[f64; 2]> {
    let reach = (DRIFT_REACH * drift).exp();
    let ends = [low.min((1.0 + measured) / reach - 1.0), high.max((1.0 + measured) * reach - 1.0)];
    ends.iter().all(|end| end.is_finite()).then_some(ends)
}

/// Says what the number of runs, their order and the load take away.
fn doubt_order(a: &Saved, b: &Saved, order: Order, notes: &mut Notes) {
    match order {
        Order::FewRuns => notes.doubt(format!(
            "{} of A and {} of B do not show how much runs differ, so there are no intervals: save {RUN_COUNT_MIN} runs \
             of each, in turns (--more-a, --more-b)",
            runs(a.run_count),
            runs(b.run_count)
        )),
        Order::Runs => {
            let why = match took_turns(a, b) {
                Some(_) => "the runs of A and B did not take turns",
                None => "the files do not say whether the runs of A and B took turns",
            };
            notes.doubt(format!(
                "{why}: a machine that slowly changes would look like a difference, so intervals are widened by \
                 three times the change from the first half of the runs to the second"
            ));
        }
        Order::Turns | Order::RunsInTurns => {}
    }
    for (name, saved) in [("A", a), ("B", b)] {
        let most = |value: fn(&Conditions) -> Option<f64>| {
            saved.conditions.iter().filter_map(value).fold(0.0, f64::max)
        };
        let (others, stolen) = (most(|run| run.others_ratio), most(|run| run.stolen_ratio));
        if others > OTHERS_RATIO_MAX || stolen > STOLEN_RATIO_MAX {
            notes.doubt(format!(
                "{name} was measured on a loaded machine: other processes took {:.0} % of the CPU time, the host {:.0} %; \
                 measure again when it is idle",
                100.0 * others,
                100.0 * stolen
            ));
        }
    }
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
mod tests;
