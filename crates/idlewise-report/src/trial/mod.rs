//! The output of `idlewise try`: rounds of a command under two settings, and whether they differ.
//!
//! `sequential.rs` decides. The ratio of the medians with its bootstrap interval, and the Mann-Whitney test, are
//! printed beside it, because many readers know them. They are computed as if the number of rounds
//! had been fixed in advance, and they decide nothing.

mod rank_sum;
mod sequential;

use std::time::Duration;

use idlewise_core::words;
use serde_json::{Value as Json, json};

use crate::saved::{BetterValue, Block, SavedSeries, Statistic};
use crate::statistics::{estimate, median};
use crate::{Column, Table, Value, counted, wrap};

pub use rank_sum::{RankSum, rank_sum};
use sequential::splitmix;
pub use sequential::{BLOCK_ROUND_COUNT, Budget, Sequential, Verdict};

words! {
    name;
    /// One of the two settings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Which {
        /// What B is compared with.
        A = "A",
        /// What is tried.
        B = "B",
    }
}

impl Which {
    /// Both.
    pub const BOTH: [Which; 2] = [Which::A, Which::B];
}

/// Returns the order of a block's rounds: A B B A or B A A B, by the toss of a coin.
pub fn block_order(seed: u64, block: usize) -> [Which; BLOCK_ROUND_COUNT] {
    use Which::{A, B};
    match splitmix(seed ^ (block as u64).rotate_left(32)) & 1 {
        0 => [A, B, B, A],
        _ => [B, A, A, B],
    }
}

/// One run of the command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Under which setting.
    pub which: Which,
    /// From its start to its end.
    pub wall_ns: u64,
    /// The number that it printed, if one was asked for.
    pub metric: Option<f64>,
    /// The energy of the packages meanwhile, if it can be read.
    pub energy_uj: Option<f64>,
}

/// What is tried, and how.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// The settings A and B in words.
    pub settings: [String; 2],
    /// The command in words.
    pub command: String,
    /// What is compared: the pattern of a number that the command prints, or else the wall time.
    pub metric: Option<String>,
    /// Which values are better, if that is known.
    pub better: Option<BetterValue>,
    /// What the result may cost in errors and rounds.
    pub budget: Budget,
    /// The smallest difference that matters, as a share.
    pub least_ratio: f64,
    /// What determines the orders.
    pub seed: u64,
}

/// Why a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialEnd {
    /// It was decided.
    Decided,
    /// All rounds were run.
    Rounds,
    /// The time was over.
    Time,
    /// It was interrupted.
    Signal,
}

impl TrialEnd {
    const fn name(self) -> &'static str {
        match self {
            TrialEnd::Decided => "decided",
            TrialEnd::Rounds => "rounds",
            TrialEnd::Time => "time",
            TrialEnd::Signal => "signal",
        }
    }
}

/// A trial, block by block.
#[derive(Clone, Debug)]
pub struct Trial {
    plan: TrialPlan,
    rounds: Vec<Round>,
    /// What they took, with changing settings and waiting.
    elapsed: Duration,
    sequential: Sequential,
}

impl Trial {
    /// Begins a trial.
    pub fn new(plan: TrialPlan) -> Self {
        let sequential = Sequential::new(plan.budget, plan.least_ratio, plan.seed);
        Trial { plan, rounds: Vec::new(), elapsed: Duration::ZERO, sequential }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &TrialPlan {
        &self.plan
    }

    /// Returns the order of the next block.
    pub fn next_order(&self) -> [Which; BLOCK_ROUND_COUNT] {
        block_order(self.plan.seed, self.sequential.block_count())
    }

    /// Adds the next block. All blocks so far took `elapsed`.
    pub fn add(&mut self, block: [Round; BLOCK_ROUND_COUNT], elapsed: Duration) {
        self.elapsed = elapsed;
        let mean = |which: Which| {
            let of = block.iter().filter(|round| round.which == which);
            let logs: Vec<f64> = of.map(|round| self.value(round).ln()).collect();
            logs.iter().sum::<f64>() / logs.len() as f64
        };
        self.sequential.add(mean(Which::B) - mean(Which::A));
        self.rounds.extend(block);
    }

    /// Returns the rounds of whole blocks so far.
    pub fn round_count(&self) -> usize {
        self.rounds.len()
    }

    /// Returns what has been shown so far.
    pub fn verdict(&self) -> Verdict {
        self.sequential.verdict()
    }

    /// Returns why to stop now, if there is a reason.
    pub fn end(&self) -> Option<TrialEnd> {
        if self.verdict() != Verdict::Undecided {
            return Some(TrialEnd::Decided);
        }
        let is_over = self.sequential.block_count() >= self.plan.budget.block_count_max;
        is_over.then_some(TrialEnd::Rounds)
    }

    /// What is compared.
    fn value(&self, round: &Round) -> f64 {
        round.metric.unwrap_or(round.wall_ns as f64)
    }

    fn values(&self, which: Which) -> Vec<f64> {
        let of = self.rounds.iter().filter(|round| round.which == which);
        of.map(|round| self.value(round)).collect()
    }

    /// B / A of the medians, with the 95 % interval from drawing whole blocks.
    fn ratio_of_medians(&self) -> Option<(f64, Option<[f64; 2]>)> {
        let block_count = self.sequential.block_count();
        if block_count == 0 {
            return None;
        }
        let values = Which::BOTH.map(|which| self.values(which));
        // Both values of a block are drawn together.
        let median_of = |values: &[f64], drawn: &[usize]| {
            let both = drawn.iter().flat_map(|&block| [values[2 * block], values[2 * block + 1]]);
            median(both).unwrap_or(f64::NAN)
        };
        let [a, b] = &values;
        Some(estimate(block_count, |drawn| median_of(b, drawn) / median_of(a, drawn)))
    }

    /// How many rounds would probably decide, judging by how much the blocks differ: those that a
    /// normal distribution needs for showing at 80 % that the difference is below the least, and a
    /// tenth more, since ranks are compared again and again.
    fn round_count_needed(&self) -> Option<usize> {
        let values = self.sequential.blocks();
        let count = values.len() as f64;
        if values.len() < 3 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count;
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        const QUANTILES: f64 = 1.96 + 1.28;
        let blocks = variance * (QUANTILES / self.plan.least_ratio.ln_1p()).powi(2) * 1.1;
        let rounds = (blocks.ceil() * BLOCK_ROUND_COUNT as f64).min(1e9);
        Some(rounds as usize)
    }

    /// Returns the median wall time of all rounds.
    pub fn wall_median_ns(&self) -> Option<f64> {
        median(self.rounds.iter().map(|round| round.wall_ns as f64))
    }

    /// Whether the estimate probably overstates the difference. A trial ends when a difference has been found, so of
    /// those that could easily have missed it the lucky ones are seen. That is so where the interval reaches
    /// from the estimate more than half of the way to no difference.
    pub fn is_overstated(&self) -> bool {
        if self.verdict() != Verdict::Different {
            return false;
        }
        let ends = self.sequential.ratio().zip(self.sequential.interval());
        ends.is_some_and(|(ratio, [low, high])| {
            let near = if ratio >= 1.0 { low } else { high };
            near.ln() / ratio.ln() < 0.5
        })
    }

    /// What is compared, in words.
    fn what(&self) -> &'static str {
        if self.plan.metric.is_some() { "number" } else { "wall time" }
    }

    /// Returns the result as a sentence or two.
    pub fn sentence(&self, end: TrialEnd) -> String {
        let rounds = counted(self.rounds.len(), "round");
        let (Some(ratio), what) = (self.sequential.ratio(), self.what()) else {
            return format!("Undecided: no block of {BLOCK_ROUND_COUNT} rounds was finished");
        };
        let error = self.plan.budget.error_ratio;
        let interval = match self.sequential.interval() {
            Some([low, high]) => format!(
                " ({} % interval {} to {})",
                number(100.0 * (1.0 - error)),
                signed_percent(low),
                signed_percent(high)
            ),
            None => String::new(),
        };
        let side = if ratio >= 1.0 { "above" } else { "below" };
        let apart = format!("{:.2} % {side} A's", 100.0 * (ratio - 1.0).abs());
        let least = number(100.0 * self.plan.least_ratio);
        match self.verdict() {
            Verdict::Different => {
                let judged = match self.plan.better {
                    None => "they differ",
                    Some(better) if (better == BetterValue::Lower) == (ratio < 1.0) => {
                        "B is better"
                    }
                    Some(_) => "B is worse",
                };
                let by = match self.sequential.is_least_shown() {
                    true => format!("by {least} % or more"),
                    false => format!("but perhaps by less than {least} %"),
                };
                let overstated = match self.is_overstated() {
                    true => {
                        " The difference is probably smaller than the estimate: tries that find one with so wide an \
                         interval overstate it. Repeat the try for an estimate that was not selected."
                    }
                    false => "",
                };
                format!(
                    "B's {what} is {apart}{interval}: {judged}, {by}. Decided after {rounds}.{overstated}"
                )
            }
            Verdict::NoDifference => format!(
                "No difference larger than {least} %: B's {what} is {apart}{interval}. Decided after \
                 {rounds}."
            ),
            Verdict::Undecided => {
                let why = match end {
                    TrialEnd::Time => ", when the time was over",
                    TrialEnd::Signal => ", when it was interrupted",
                    TrialEnd::Rounds | TrialEnd::Decided => "",
                };
                let found = match self.sequential.is_one_rejected() {
                    true => format!(
                        "there is a difference, but perhaps less than {least} %: B's {what} is {apart}"
                    ),
                    false => format!("B's {what} is {apart}"),
                };
                let next = match self.round_count_needed() {
                    Some(needed) if needed > self.rounds.len() => format!(
                        " By how much blocks differ, about {needed} rounds would decide at {least} %, which take \
                         about {}: --rounds {needed}, a longer command, or a quieter machine.",
                        duration(
                            self.elapsed.as_secs_f64() * needed as f64 / self.rounds.len() as f64
                        ),
                    ),
                    Some(_) => " More rounds may decide: --rounds.".to_owned(),
                    None => String::new(),
                };
                format!("Undecided after {rounds}{why}; {found}{interval}.{next}")
            }
        }
    }

    /// Returns the usual statistics in a sentence.
    pub fn other_statistics(&self) -> Option<String> {
        let (ratio, interval) = self.ratio_of_medians()?;
        let interval = match interval {
            Some([low, high]) => format!("95 % bootstrap interval {low:.4} to {high:.4}"),
            None => "too few blocks for an interval".to_owned(),
        };
        let [a, b] = Which::BOTH.map(|which| self.values(which));
        let p = rank_sum(&a, &b).map_or(String::new(), |test| match test.p < 1e-4 {
            true => "; Mann-Whitney p < 0.0001".to_owned(),
            false => format!("; Mann-Whitney p = {:.4}", test.p),
        });
        Some(format!(
            "Ratio of medians B / A: {ratio:.4} ({interval}){p}. These two figures assume that {} had been \
             planned from the start; the verdict above does not use them.",
            counted(self.rounds.len(), "round")
        ))
    }

    /// Returns a line for each setting.
    pub fn settings_table(&self, title: &str) -> Table {
        let side = |which: Which| Side {
            which,
            settings: self.plan.settings[which as usize].clone(),
            rounds: self.rounds.iter().filter(|round| round.which == which).copied().collect(),
        };
        Table::new(title, &side_columns(), Which::BOTH.map(side)).unranked()
    }

    /// Returns a line for each round.
    pub fn rounds_table(&self) -> Table {
        let lines =
            self.rounds.iter().enumerate().map(|(place, round)| Line { place, round: *round });
        Table::new("", &round_columns(), lines).unranked()
    }

    /// Returns the result for programs.
    pub fn result_json(&self, end: TrialEnd) -> Json {
        let medians = self.ratio_of_medians();
        let [a, b] = Which::BOTH.map(|which| self.values(which));
        let test = rank_sum(&a, &b);
        json!({
            "verdict": self.verdict().name(),
            "is_least_shown": self.sequential.is_least_shown(),
            "is_overstated": self.is_overstated(),
            "finding": self.sentence(end),
            "ended_by": end.name(),
            "round_count": self.rounds.len(),
            "ratio": self.sequential.ratio(),
            "ratio_interval": self.sequential.interval(),
            "ratio_of_medians": medians.map(|(ratio, _)| ratio),
            "ratio_of_medians_interval": medians.and_then(|(_, interval)| interval),
            "mann_whitney_u": test.map(|test| test.u),
            "mann_whitney_p": test.map(|test| test.p),
        })
    }

    /// Returns the wall times in the form in which measurements are saved.
    pub fn series(&self) -> Vec<SavedSeries> {
        let series = |which: Which| {
            let of = self.rounds.iter().filter(|round| round.which == which);
            let times: Vec<u64> = of.map(|round| round.wall_ns).collect();
            let blocks = times.chunks(2).map(|both| Block::of_times(&mut both.to_vec())).collect();
            let setting = self.plan.settings[which as usize].as_str();
            SavedSeries {
                statistic: Statistic::Median,
                ..SavedSeries::times("wall time", self.plan.command.as_str(), setting, blocks)
            }
        };
        Which::BOTH.map(series).into()
    }

    /// Returns the settings, the sentences and the table for people.
    pub fn to_text(&self, end: TrialEnd, style: &crate::TextStyle) -> String {
        let mut text = String::new();
        let blocks = self.sequential.block_count();
        let title = format!(
            "{}, in {} of four (A B B A or B A A B, chosen at random with seed {}):",
            counted(self.rounds.len(), "round"),
            counted(blocks, "block"),
            self.plan.seed
        );
        let table = self.settings_table(&title);
        let has = |value: fn(&Round) -> bool| self.rounds.iter().any(value);
        let mut unused = Vec::new();
        if !has(|round| round.metric.is_some()) {
            unused.extend(["metric_median", "metric_min", "metric_max"]);
        }
        if !has(|round| round.energy_uj.is_some()) {
            unused.push("energy_median_uj");
        }
        let walls = ["wall_median_ns", "wall_min_ns", "wall_max_ns"];
        text.push_str(&table.without(&unused).one_unit(&walls).to_text(style));
        text.push('\n');
        text.push_str(&wrap(&self.sentence(end), style.width, 0));
        text.push('\n');
        if let Some(others) = self.other_statistics() {
            text.push_str(&wrap(&others, style.width, 0));
            text.push('\n');
        }
        text
    }
}

/// 5 rather than 5.000.
fn number(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    rounded.to_string()
}

/// A long time, in the largest unit of which it has at least two.
fn duration(seconds: f64) -> String {
    let units = [("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)];
    match units.into_iter().find(|(_, each)| seconds >= 2.0 * each) {
        Some((unit, each)) => format!("{:.0} {unit}", seconds / each),
        None => format!("{seconds:.0} s"),
    }
}

fn signed_percent(ratio: f64) -> String {
    format!("{:+.2} %", 100.0 * (ratio - 1.0))
}

/// The rounds of a setting.
#[derive(Clone, Debug)]
pub struct Side {
    which: Which,
    settings: String,
    rounds: Vec<Round>,
}

impl Side {
    fn wall_ns(&self, of: impl Fn(Vec<f64>) -> Option<f64>) -> Value {
        of(self.rounds.iter().map(|round| round.wall_ns as f64).collect()).into()
    }

    fn metric(&self, of: impl Fn(Vec<f64>) -> Option<f64>) -> Value {
        of(self.rounds.iter().filter_map(|round| round.metric).collect()).into()
    }
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().min_by(f64::total_cmp)
}

fn greatest(values: Vec<f64>) -> Option<f64> {
    values.into_iter().max_by(f64::total_cmp)
}

/// Returns the columns of `idlewise try`.
pub fn side_columns() -> Vec<Column<Side>> {
    type C = Column<Side>;
    vec![
        C::text("setting", "", |row| row.which.name().into())
            .means("`A`, the baseline, or `B`, the setting that is tried.")
            .key(),
        C::text("settings", "settings", |row| row.settings.as_str().into())
            .means("The settings that were in force.")
            .key(),
        C::count("round_count", "rounds", |row| (row.rounds.len() as u64).into())
            .means("Rounds in whole blocks."),
        C::ns("wall_median_ns", "wall time median", |row| row.wall_ns(median))
            .means("Median wall time of a round."),
        C::ns("wall_min_ns", "least", |row| row.wall_ns(least))
            .means("The shortest round.")
            .detail(),
        C::ns("wall_max_ns", "most", |row| row.wall_ns(greatest))
            .means("The longest round.")
            .detail(),
        C::number("metric_median", "printed median", |row| row.metric(median))
            .means("Median of the number that the command printed, in the command's unit."),
        C::number("metric_min", "least", |row| row.metric(least))
            .means("The least number printed.")
            .detail(),
        C::number("metric_max", "most", |row| row.metric(greatest))
            .means("The greatest number printed.")
            .detail(),
        C::uj("energy_median_uj", "energy median", |row| {
            median(row.rounds.iter().filter_map(|round| round.energy_uj)).into()
        })
        .means("Median energy of the packages during a round. Absent if it cannot be read."),
    ]
}

/// A round with its place.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    place: usize,
    round: Round,
}

/// Returns the columns of the rounds of `idlewise try`.
pub fn round_columns() -> Vec<Column<Line>> {
    type C = Column<Line>;
    vec![
        C::count("round", "round", |row| (row.place as u64 + 1).into())
            .means("The round, from 1, in the order in which they ran.")
            .key(),
        C::count("block", "block", |row| ((row.place / BLOCK_ROUND_COUNT) as u64 + 1).into())
            .means("Its block of four, from 1."),
        C::text("setting", "setting", |row| row.round.which.name().into()).means("`A` or `B`."),
        C::ns("wall_ns", "wall time", |row| row.round.wall_ns.into())
            .means("From the start of the command to its end."),
        C::number("metric", "printed", |row| row.round.metric.into())
            .means("The number that it printed, in its unit."),
        C::uj("energy_uj", "energy", |row| row.round.energy_uj.into())
            .means("Energy of the packages meanwhile."),
    ]
}

#[cfg(test)]
mod tests;
