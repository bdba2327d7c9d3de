//! What `idlewise advise` says: candidates judged on a recording, what each would change, and which of
//! them pays.
//!
//! A recording is cut into slices of time. Every candidate and the settings as they are were replayed over
//! the same gaps, or the same tasks were played under them, so slices are drawn in pairs: a resample draws slices with replacement and computes both
//! sides from the same ones (percentile bootstrap, `statistics.rs`). A candidate is recommended only if its
//! whole interval is on the good side, by 1 % or more in the estimate.
//!
//! **Without a limit on delay**, nobody has said which delay may pay for which power. So a candidate is recommended
//! only if it is better or equal in both the power and the tail of the delays, and costs less: energy, plus
//! delay at a price. The tail is the 99th percentile and, beyond it, p99.9; with too few events for p99.9 it
//! is the longest delay. *Better or equal* means that no estimate is worse, and that the interval of no difference
//! reaches further than 1 % to the bad side. A candidate that is surely better in one and not so in the other is a
//! trade: it is shown as a choice, with what it gains and what it costs, and never recommended.
//!
//! **With a limit**, delay is a constraint and the gain is in power.
//!
//! Where several gain nearly as much, the least drastic is recommended.

use idlewise_core::words;
use idlewise_sim::UJ_PER_MW_NS;
use idlewise_sim::replay::Delays;
use serde_json::json;

use crate::notes::wrap;
use crate::statistics::{Draw, RESAMPLE_COUNT, RUN_COUNT_MIN, middle};
use crate::{Column, Notes, Table, TextStyle, Value, counted};

/// A smaller gain is not worth a change. Intervals that reach no further to the bad side count as equal.
const GAIN_MIN: f64 = 0.01;
/// A percentile is judged only if so many events are expected beyond it.
const BEYOND_COUNT_MIN: f64 = 5.0;
const P99: f64 = 0.99;
const P999: f64 = 0.999;
/// The longest delay.
const WORST: f64 = 1.0;
/// So many trades are spelled out as choices. The table shows all.
const CHOICE_COUNT_MAX: usize = 3;
/// The least drastic candidate that gains this share of the most is recommended.
const NEARLY: f64 = 0.9;
/// So many candidates fit on a screen.
const ROW_COUNT_MAX: usize = 12;
/// With more distinct delays, those for intervals are rounded ...
const DISTINCT_MAX: usize = 4_096;
/// ... to so many leading bits, which is 0.2 %.
const KEPT_BITS: u32 = 10;

words! {
    /// How drastic a change is, the mildest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Step {
        /// A latency limit of some CPUs, which anybody can lift.
        LatencyLimit = "latency-limit",
        /// Another governor for the whole machine.
        Governor = "governor",
        /// A state that nobody can enter any more.
        StateOff = "state-off",
        /// A parameter of the kernel, which needs a reboot.
        Boot = "boot-parameter",
    }
}

/// What happened in each slice of a replay.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// The energy of all CPUs while idle.
    pub energy_uj: Vec<f64>,
    /// The delays of the events of the CPUs that matter.
    pub delays: Vec<Delays>,
}

impl Slices {
    /// Makes empty slices.
    pub fn new(count: usize) -> Self {
        Slices { energy_uj: vec![0.0; count], delays: vec![Delays::default(); count] }
    }

    /// Adds those of another CPU. Its delays count only if it is one that matters.
    pub fn add(&mut self, other: &Slices, with_delays: bool) {
        for (sum, energy_uj) in self.energy_uj.iter_mut().zip(&other.energy_uj) {
            *sum += energy_uj;
        }
        if with_delays {
            for (sum, delays) in self.delays.iter_mut().zip(&other.delays) {
                sum.merge(delays);
            }
        }
    }
}

/// A change that was replayed.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its text form, such as `latency=2us@4-7`.
    pub setting: String,
    /// How drastic it is.
    pub step: Step,
    /// What it would do.
    pub slices: Slices,
}

/// A limit of delay: `p99=50us`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    /// The share of events, 0 to 1.
    pub ratio: f64,
    /// Their longest delay.
    pub limit_ns: u64,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Limits of delay. Without one, delay has a price, and nothing is traded for it.
    pub slos: Vec<Slo>,
    /// At most this much power more than now.
    pub power_max_mw: Option<f64>,
    /// The price of delay.
    pub lambda_mw: f64,
}

/// A figure with its 95 % interval, if there were enough slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// From all slices.
    pub value: f64,
    /// By drawing slices again and again.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    fn low(&self) -> Option<f64> {
        self.interval.map(|[low, _]| low)
    }

    fn high(&self) -> Option<f64> {
        self.interval.map(|[_, high]| high)
    }
}

/// How a candidate compares with the settings as they are, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    /// Better for sure, by enough to matter.
    Better,
    /// Not worse.
    Equal,
    /// Perhaps worse.
    Unsure,
    /// Worse for sure.
    Worse,
}

impl Side {
    /// Judges a change of something of which less is better, as a share of `before`.
    fn of(change: Estimate, before: f64) -> Self {
        let Some([low, high]) = change.interval else { return Side::Unsure };
        let noticed = GAIN_MIN * before;
        match () {
            () if low > 0.0 => Side::Worse,
            () if change.value > 0.0 || high > noticed => Side::Unsure,
            () if high < 0.0 && -change.value >= noticed => Side::Better,
            () => Side::Equal,
        }
    }

    fn is_no_worse(self) -> bool {
        self <= Side::Equal
    }
}

/// A quantile of the delays beyond which few events wait longer.
#[derive(Clone, Copy, Debug)]
struct Tail {
    ratio: f64,
    ns: u64,
    before_ns: u64,
    /// From before to after, in the same slices.
    change_ns: Estimate,
}

impl Tail {
    fn name(self) -> &'static str {
        match self.ratio {
            P99 => "p99",
            P999 => "p99.9",
            _ => "worst",
        }
    }

    /// A tail that may be longer by less than is printed is not worse.
    fn side(self) -> Side {
        match Side::of(self.change_ns, self.before_ns as f64) {
            Side::Unsure if self.is_printed_alike() => Side::Equal,
            side => side,
        }
    }

    /// Whether it and the longest that it may be are printed as what it was.
    fn is_printed_alike(self) -> bool {
        let before = time(self.before_ns as f64);
        let has_most = self.change_ns.high().is_some();
        has_most && time(self.ns as f64) == before && time(self.most_ns()) == before
    }

    /// The longest that it may be.
    fn most_ns(self) -> f64 {
        self.before_ns as f64 + self.change_ns.high().unwrap_or(0.0)
    }

    /// `p99 1 us → 290 us`.
    fn text(self) -> String {
        let mut text =
            format!("{} {} → {}", self.name(), time(self.before_ns as f64), time(self.ns as f64));
        let most = time(self.most_ns());
        if self.side() == Side::Unsure && most != time(self.ns as f64) {
            text += &format!(" (or up to {most})");
        }
        text
    }
}

/// A candidate, or the settings as they are, judged.
#[derive(Clone, Debug)]
pub struct Judgement {
    setting: String,
    /// `None`: as it is.
    step: Option<Step>,
    event_count: u64,
    p50_ns: Option<u64>,
    p99: Option<Estimate>,
    max_ns: Option<u64>,
    /// The 99th percentile, and what is beyond it.
    tails: Vec<Tail>,
    power_mw: f64,
    power_change_mw: Option<Estimate>,
    cost_change: Option<Estimate>,
    /// For each limit of delay: the delay.
    slo_delays: Vec<Estimate>,
    verdict: &'static str,
}

words! {
    /// How candidates were judged.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum JudgedBy {
        /// The recorded idle periods were replayed; their times stay as they were.
        Replay = "replay",
        /// The recorded tasks were played; times follow from the settings.
        Predict = "predict",
    }
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The candidate with this index pays.
    Change(usize),
    /// Nothing pays.
    LeaveAlone,
    /// No candidate, nor the settings as they are, meets the limits. This one comes nearest.
    Infeasible(Option<usize>),
}

/// Everything that `idlewise advise` found out.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The log's name.
    pub log: String,
    /// The machine's title.
    pub machine: String,
    /// The governor as it is.
    pub governor: String,
    /// The CPUs that matter, as a list.
    pub cpus: String,
    wishes: Wishes,
    slice_count: usize,
    span_ns: u64,
    judged_by: JudgedBy,
    /// The first is as it is; then the candidates in their order.
    rows: Vec<Judgement>,
    outcome: Outcome,
    /// Bases and doubts.
    pub notes: Notes,
}

/// Delays of both sides by slice, under common values.
struct Counted {
    values_ns: Vec<u64>,
    /// `[slice][value]`.
    counts: Vec<Vec<u64>>,
}

impl Counted {
    fn new(slices: &Slices) -> Self {
        let distinct = |kept: fn(u64) -> u64| {
            let delays = slices.delays.iter().flat_map(Delays::iter);
            let mut values_ns: Vec<u64> = delays.map(|(ns, _)| kept(ns)).collect();
            values_ns.sort_unstable();
            values_ns.dedup();
            values_ns
        };
        let mut rounded: fn(u64) -> u64 = |ns| ns;
        let mut values_ns = distinct(rounded);
        if values_ns.len() > DISTINCT_MAX {
            rounded = rounded_up;
            values_ns = distinct(rounded);
        }
        let count = |delays: &Delays| {
            let mut counts = vec![0; values_ns.len()];
            for (ns, count) in delays.iter() {
                if let Ok(at) = values_ns.binary_search(&rounded(ns)) {
                    counts[at] += count;
                }
            }
            counts
        };
        let counts = slices.delays.iter().map(count).collect();
        Counted { values_ns, counts }
    }

    /// The smallest delays that these shares of the events in the drawn slices do not exceed. The shares ascend.
    fn quantiles_ns(&self, weights: &[u64], ratios: &[f64]) -> Vec<f64> {
        let slices = || self.counts.iter().zip(weights).filter(|(_, weight)| **weight > 0);
        let all: u64 = slices().map(|(counts, weight)| weight * counts.iter().sum::<u64>()).sum();
        let mut ranks =
            ratios.iter().map(|ratio| (ratio * all as f64).ceil().max(1.0) as u64).peekable();
        let mut found = Vec::with_capacity(ratios.len());
        let mut seen = 0;
        for (at, value_ns) in self.values_ns.iter().enumerate() {
            seen += slices().map(|(counts, weight)| weight * counts[at]).sum::<u64>();
            while ranks.next_if(|rank| seen >= *rank).is_some() {
                found.push(*value_ns as f64);
            }
            if found.len() == ratios.len() {
                break;
            }
        }
        found.resize(ratios.len(), 0.0);
        found
    }
}

/// Whether enough events are expected beyond a percentile to judge it.
fn is_judged(event_count: u64, ratio: f64) -> bool {
    event_count as f64 * (1.0 - ratio) >= BEYOND_COUNT_MIN - 1e-6
}

/// The quantiles by which tails are compared.
fn tail_ratios(event_count: u64) -> [f64; 2] {
    [P99, if is_judged(event_count, P999) { P999 } else { WORST }]
}

/// Rounds up, so that a limit is never met by rounding.
fn rounded_up(ns: u64) -> u64 {
    let dropped = (u64::BITS - ns.leading_zeros()).saturating_sub(KEPT_BITS);
    ns.div_ceil(1 << dropped) << dropped
}

/// One draw of slices for every statistic.
fn resamples(slice_count: usize) -> Vec<Vec<u64>> {
    if slice_count < RUN_COUNT_MIN {
        return Vec::new();
    }
    let [mut draw, _] = Draw::pair();
    let mut weights = vec![0; slice_count];
    (0..RESAMPLE_COUNT)
        .map(|_| {
            draw.weights(&mut weights);
            weights.clone()
        })
        .collect()
}

/// What all candidates are judged with.
struct Judge<'a> {
    wishes: &'a Wishes,
    before: &'a Slices,
    resamples: Vec<Vec<u64>>,
    slice_s: f64,
    tail_ratios: [f64; 2],
    /// The tails as they are, of each resample.
    tails_before_ns: Vec<Vec<f64>>,
}

impl<'a> Judge<'a> {
    fn new(wishes: &'a Wishes, before: &'a Slices, span_ns: u64) -> Self {
        let slice_count = before.energy_uj.len();
        let mut judge = Judge {
            wishes,
            before,
            resamples: resamples(slice_count),
            slice_s: span_ns as f64 / 1e9 / slice_count.max(1) as f64,
            tail_ratios: tail_ratios(before.delays.iter().map(Delays::count).sum()),
            tails_before_ns: Vec::new(),
        };
        judge.tails_before_ns = judge.drawn_tails_ns(&Counted::new(before));
        judge
    }

    fn drawn_tails_ns(&self, counted: &Counted) -> Vec<Vec<f64>> {
        let tails = |weights: &Vec<u64>| counted.quantiles_ns(weights, &self.tail_ratios);
        self.resamples.iter().map(tails).collect()
    }

    /// The tails after a change, and those of each resample.
    fn tails(&self, after: &Delays, drawn_ns: &[Vec<f64>]) -> Vec<Tail> {
        let before = merged(self.before);
        let tail = |(place, ratio): (usize, &f64)| {
            let (ns, before_ns) = (after.quantile_ns(*ratio)?, before.quantile_ns(*ratio)?);
            let both = drawn_ns.iter().zip(&self.tails_before_ns);
            let changes: Vec<f64> =
                both.map(|(after, before)| after[place] - before[place]).collect();
            let change_ns = Estimate {
                value: ns as f64 - before_ns as f64,
                interval: (!changes.is_empty()).then(|| middle(changes)),
            };
            Some(Tail { ratio: *ratio, ns, before_ns, change_ns })
        };
        self.tail_ratios.iter().enumerate().filter_map(tail).collect()
    }

    fn estimate(&self, slice_count: usize, statistic: impl Fn(&[u64]) -> f64) -> Estimate {
        let value = statistic(&vec![1; slice_count]);
        let drawn: Vec<f64> = self.resamples.iter().map(|weights| statistic(weights)).collect();
        let interval = (!drawn.is_empty()).then(|| middle(drawn));
        Estimate { value, interval }
    }

    fn judge(&self, setting: &str, step: Option<Step>, after: &Slices) -> Judgement {
        let slice_count = self.before.energy_uj.len();
        let wall_s = self.slice_s * slice_count as f64;
        let weighted = |values: &dyn Fn(usize) -> f64, weights: &[u64]| -> f64 {
            weights.iter().enumerate().map(|(at, &weight)| weight as f64 * values(at)).sum()
        };
        let energy_change = |at: usize| after.energy_uj[at] - self.before.energy_uj[at];
        let price = |slices: &Slices, at: usize| {
            let delay_ns = slices.delays[at].sum_ns() as f64;
            self.wishes.lambda_mw * delay_ns * UJ_PER_MW_NS
        };
        let cost = |slices: &Slices, at: usize| slices.energy_uj[at] + price(slices, at);
        // Every resample has as many slices, so it covers as much time.
        let power_change = |weights: &[u64]| weighted(&energy_change, weights) / wall_s / 1e3;
        let cost_change = |weights: &[u64]| {
            let before = weighted(&|at| cost(self.before, at), weights);
            let after = weighted(&|at| cost(after, at), weights);
            if before > 0.0 { after / before - 1.0 } else { 0.0 }
        };
        let counted = Counted::new(after);
        let all = merged(after);
        let quantile = |ratio: f64| {
            self.estimate(slice_count, |weights| counted.quantiles_ns(weights, &[ratio])[0])
        };
        let drawn_ns = self.drawn_tails_ns(&counted);
        let p99 = all.quantile_ns(P99).map(|ns| Estimate {
            value: ns as f64,
            interval: (!drawn_ns.is_empty())
                .then(|| middle(drawn_ns.iter().map(|tails| tails[0]).collect())),
        });
        let is_candidate = step.is_some();
        Judgement {
            setting: setting.to_owned(),
            step,
            event_count: all.count(),
            p50_ns: all.quantile_ns(0.5),
            p99,
            max_ns: all.max_ns(),
            tails: self.tails(&all, &drawn_ns),
            power_mw: after.energy_uj.iter().sum::<f64>() / wall_s / 1e3,
            power_change_mw: is_candidate.then(|| self.estimate(slice_count, power_change)),
            cost_change: is_candidate.then(|| self.estimate(slice_count, cost_change)),
            slo_delays: self.wishes.slos.iter().map(|slo| quantile(slo.ratio)).collect(),
            verdict: "",
        }
    }
}

/// The delays of all slices.
fn merged(slices: &Slices) -> Delays {
    let mut all = Delays::default();
    slices.delays.iter().for_each(|delays| all.merge(delays));
    all
}

impl Judgement {
    /// How its power compares with what it is now.
    fn power_side(&self) -> Side {
        match self.power_change_mw {
            Some(change) => Side::of(change, self.power_mw - change.value),
            None => Side::Equal,
        }
    }

    /// How the tail of its delays does: better if some part is and none may be worse.
    fn tail_side(&self) -> Side {
        let sides = || self.tails.iter().map(|tail| tail.side());
        match sides().max() {
            Some(Side::Equal) => sides().min().unwrap_or(Side::Equal),
            Some(worst) => worst,
            None => Side::Equal,
        }
    }

    /// Whether it is surely better in power or in some tail, and may be worse elsewhere.
    fn is_trade(&self) -> bool {
        let mut sides = vec![self.power_side()];
        sides.extend(self.tails.iter().map(|tail| tail.side()));
        sides.contains(&Side::Better) && !sides.into_iter().all(Side::is_no_worse)
    }

    /// Whether another one is as good in power and in all tails. Of two alike, the first is kept.
    fn is_beaten_by(&self, other: &Judgement, other_is_first: bool) -> bool {
        let sides = |row: &Judgement| -> Vec<f64> {
            std::iter::once(row.power_mw)
                .chain(row.tails.iter().map(|tail| tail.ns as f64))
                .collect()
        };
        let (own, other) = (sides(self), sides(other));
        own.iter().zip(&other).all(|(own, other)| other <= own) && (own != other || other_is_first)
    }

    /// The change of some of its tails in words: of p99, and of what is beyond it if that changes.
    fn tail_text(&self, is_asked: impl Fn(&Tail) -> bool) -> String {
        let shown =
            self.tails.iter().enumerate().filter(|(place, tail)| {
                (*place == 0 || tail.ns != tail.before_ns) && is_asked(tail)
            });
        let words: Vec<String> = shown.map(|(_, tail)| tail.text()).collect();
        words.join(", ")
    }

    /// A trade in a sentence, with both prices.
    fn choice(&self) -> String {
        let change = self.power_change_mw.map_or(String::new(), |change| {
            format!("power {} ({})", power(change.value), interval(change, power))
        });
        let power_side = self.power_side();
        let in_words = |is_gain: bool| {
            let delay = self.tail_text(|tail| match is_gain {
                true => tail.side() == Side::Better,
                false => !tail.side().is_no_worse(),
            });
            let delay = (!delay.is_empty()).then(|| format!("delay {delay}"));
            // The same power is worth a word only where nothing else is on that side.
            let is_shown = (power_side == Side::Better) == is_gain
                && !(power_side == Side::Equal && delay.is_some() || change.is_empty());
            let parts: Vec<String> =
                is_shown.then(|| change.clone()).into_iter().chain(delay).collect();
            parts.join(" and ")
        };
        format!("{}: {}, at the price of {}", self.setting, in_words(true), in_words(false))
    }

    /// Whether it surely keeps all limits.
    fn keeps(&self, wishes: &Wishes) -> bool {
        self.excess(wishes) <= 0.0
    }

    /// Whether it keeps all limits in the estimate, if not for sure.
    fn seems_to_keep(&self, wishes: &Wishes) -> bool {
        let estimated = |estimate: &Estimate| Estimate { interval: None, ..*estimate };
        let row = Judgement {
            slo_delays: self.slo_delays.iter().map(estimated).collect(),
            power_change_mw: self.power_change_mw.as_ref().map(estimated),
            ..self.clone()
        };
        row.keeps(wishes)
    }

    /// By which share it exceeds the limit that it exceeds most; 0 or less if it keeps all.
    fn excess(&self, wishes: &Wishes) -> f64 {
        let slos = self.slo_delays.iter().zip(&wishes.slos).map(|(delay, slo)| {
            let most_ns = delay.high().unwrap_or(delay.value);
            most_ns / (slo.limit_ns as f64).max(1.0) - 1.0
        });
        let power = match (wishes.power_max_mw, &self.power_change_mw) {
            (Some(most_mw), Some(change)) => {
                let change_mw = change.high().unwrap_or(change.value);
                // Of what it is now, because a limit may be 0 W.
                (change_mw - most_mw) / (self.power_mw - change.value).max(1e-9)
            }
            _ => f64::NEG_INFINITY,
        };
        slos.fold(power, f64::max)
    }

    /// The gain as a share, if it is certain: less cost, or less power where delay is limited.
    fn gain(&self, wishes: &Wishes, before_mw: f64) -> Option<f64> {
        if !wishes.slos.is_empty() {
            let change = self.power_change_mw?;
            let scale = before_mw.max(1e-9);
            let gain = -change.value / scale;
            return (change.high()? < 0.0 && gain >= GAIN_MIN).then_some(gain);
        }
        // Nobody has asked for a trade.
        if !self.power_side().is_no_worse() || !self.tail_side().is_no_worse() {
            return None;
        }
        let change = self.cost_change?;
        let is_worth_it = -change.value >= GAIN_MIN || self.tail_side() == Side::Better;
        (change.high()? < 0.0 && is_worth_it).then_some(-change.value)
    }
}

impl Advice {
    /// Judges candidates against the settings as they are. `span_ns` is the recording's length.
    pub fn new(
        before: &Slices,
        candidates: &[Candidate],
        wishes: Wishes,
        span_ns: u64,
        judged_by: JudgedBy,
        mut notes: Notes,
    ) -> Self {
        let judge = Judge::new(&wishes, before, span_ns);
        let mut rows = vec![judge.judge("as it is", None, before)];
        for candidate in candidates {
            rows.push(judge.judge(&candidate.setting, Some(candidate.step), &candidate.slices));
        }
        let outcome = outcome(&mut rows, &wishes);
        let few = wishes
            .slos
            .iter()
            .find(|slo| slo.ratio < WORST && !is_judged(rows[0].event_count, slo.ratio));
        if let Some(slo) = few {
            notes.doubt(format!(
                "with {} wake events, fewer than {BEYOND_COUNT_MIN} are expected beyond p{}, so a longer recording may \
                 show longer delays",
                rows[0].event_count,
                // 99.9 rather than 99.90000000000001.
                (slo.ratio * 1e8).round() / 1e6
            ));
        }
        Advice {
            log: String::new(),
            machine: String::new(),
            governor: String::new(),
            cpus: String::new(),
            wishes,
            slice_count: before.energy_uj.len(),
            span_ns,
            judged_by,
            rows,
            outcome,
            notes,
        }
    }

    /// Returns what comes of it.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Returns what is recommended, in a sentence.
    pub fn sentence(&self) -> String {
        match self.outcome {
            Outcome::Change(index) => {
                let row = &self.rows[index + 1];
                format!("Recommended: {}. {}", row.setting, self.effect(row))
            }
            Outcome::LeaveAlone if self.rows[0].event_count == 0 => {
                "Leave it alone: the recording has no events on these CPUs.".to_owned()
            }
            Outcome::LeaveAlone if self.slice_count < RUN_COUNT_MIN => format!(
                "Leave it alone: the recording is too short to tell a gain from chance ({} slices of \
                 time, {RUN_COUNT_MIN} are needed).",
                self.slice_count
            ),
            Outcome::LeaveAlone if !self.wishes.slos.is_empty() => {
                "Leave it alone: nothing that was tried surely saves 1 % of the power, and the limits are kept."
                    .to_owned()
            }
            Outcome::LeaveAlone if !is_judged(self.rows[0].event_count, P99) => format!(
                "Leave it alone: with {} wake events, the recording is too short to judge the longest 1 % of the \
                 delays ({:.0} are needed).",
                self.rows[0].event_count,
                BEYOND_COUNT_MIN / (1.0 - P99)
            ),
            Outcome::LeaveAlone => "Leave it alone: nothing that was tried is surely better without costing power or \
                                    longer tail delays."
                .to_owned(),
            Outcome::Infeasible(nearest) => {
                let nearest = match nearest {
                    Some(index) => {
                        let row = &self.rows[index + 1];
                        format!("{} comes nearest. {}", row.setting, self.effect(row))
                    }
                    None => "The settings as they are come nearest.".to_owned(),
                };
                format!("Nothing that was tried surely keeps all limits. {nearest}")
            }
        }
    }

    fn effect(&self, row: &Judgement) -> String {
        let mut text = match row.tails.is_empty() {
            true => "Delay p99 - → -".to_owned(),
            false => format!("Delay {}", row.tail_text(|_| true)),
        };
        if let Some(change) = row.power_change_mw {
            text += &format!(", power {} ({})", power(change.value), interval(change, power));
        }
        if let Some(change) = row.cost_change.filter(|_| self.wishes.slos.is_empty()) {
            text += &format!(", cost {} ({})", percent(change.value), interval(change, percent));
        }
        text + "."
    }

    /// Returns the indices of the trades that nobody asked for: none is beaten by another in both power and delay.
    /// The cheapest at the price of delay come first.
    pub fn choices(&self) -> Vec<usize> {
        if !self.wishes.slos.is_empty() || !is_judged(self.rows[0].event_count, P99) {
            return Vec::new();
        }
        let trades: Vec<usize> = (1..self.rows.len())
            .filter(|&at| self.rows[at].keeps(&self.wishes) && self.rows[at].is_trade())
            .collect();
        let is_beaten = |at: usize| {
            let others = trades.iter().filter(|other| **other != at);
            others.copied().any(|other| self.rows[at].is_beaten_by(&self.rows[other], other < at))
        };
        let mut kept: Vec<usize> = trades.iter().copied().filter(|at| !is_beaten(*at)).collect();
        let cost = |at: &usize| self.rows[*at].cost_change.map_or(0.0, |change| change.value);
        kept.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        kept.iter().map(|at| at - 1).collect()
    }

    /// What would change the verdict.
    pub fn doubters(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if !self.choices().is_empty() {
            texts.push(
                "a limit of delay, which says how long a wake-up may wait: --slo p99=50us"
                    .to_owned(),
            );
        }
        let Outcome::Change(index) = self.outcome else { return texts };
        let row = &self.rows[index + 1];
        let limited = self.wishes.slos.iter().map(|slo| slo.ratio).fold(0.0, f64::max);
        let beyond =
            row.tails.iter().filter(|tail| tail.ratio > limited && tail.ns > tail.before_ns);
        if let Some(tail) = beyond.min_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
            texts.push(format!(
                "a limit of the tail, which your limits leave open and which gets longer: --slo {}=50us",
                tail.name()
            ));
        }
        texts.push(
            match self.judged_by {
                JudgedBy::Replay => {
                    "a workload that does something else next because delays are shorter, which a replay does not \
                     follow: try it on your own benchmark"
                }
                JudgedBy::Predict => {
                    "waits that did not happen in the recording, timeouts, and tasks that run at another speed: try \
                     it on your own benchmark"
                }
            }
            .to_owned(),
        );
        texts.push(
            "exit latencies that differ from the table's: measure them, and pass the file by --machine"
                .to_owned(),
        );
        if row.step == Some(Step::Governor) {
            texts.push(
                "a kernel without that governor: see \
                 /sys/devices/system/cpu/cpuidle/available_governors"
                    .to_owned(),
            );
        }
        texts
    }

    /// Returns the text.
    pub fn to_text(&self, style: &TextStyle) -> String {
        let title = format!(
            "{}, {:.1} s in {} slices, {} {}: {} under {}; judged by {}",
            self.log,
            self.span_ns as f64 / 1e9,
            self.slice_count,
            if self.cpus.contains(['-', ',']) { "CPUs" } else { "CPU" },
            self.cpus,
            self.machine,
            self.governor,
            self.judged_by.as_str()
        );
        let mut shown: Vec<usize> = (0..self.rows.len()).collect();
        let is_kept = |index: usize| match self.outcome {
            _ if index == 0 => true,
            Outcome::Change(best) | Outcome::Infeasible(Some(best)) => index == best + 1,
            _ => false,
        };
        let rank = |index: usize| {
            let row = &self.rows[index];
            let change = if self.wishes.slos.is_empty() {
                row.cost_change.map(|change| change.value)
            } else {
                Some(row.excess(&self.wishes))
            };
            change.unwrap_or(0.0)
        };
        shown.sort_by(|&a, &b| {
            is_kept(b).cmp(&is_kept(a)).then(rank(a).total_cmp(&rank(b))).then(a.cmp(&b))
        });
        shown.truncate(ROW_COUNT_MAX);
        shown.sort_unstable();
        let hidden_count = self.rows.len() - shown.len();
        let table = Table::new("", &columns(), shown.into_iter().map(|index| &self.rows[index]));
        let mut text = wrap(&title, style.width, 0) + "\n\n" + &table.to_text(style);
        if hidden_count > 0 {
            text += &format!(
                "Left out for gaining less: {}; --json has all.\n",
                counted(hidden_count, "candidate")
            );
        }
        text += "\n";
        text += &wrap(&self.sentence(), style.width, 2);
        text += "\n";
        text += &self.choices_text(style.width);
        for doubter in self.doubters() {
            text += &wrap(&format!("What would change this verdict: {doubter}."), style.width, 2);
            text += "\n";
        }
        text += "\n";
        text + &self.notes.to_text(style.width)
    }

    /// The trades, each on a line with both prices.
    fn choices_text(&self, width: usize) -> String {
        let choices = self.choices();
        if choices.is_empty() {
            return String::new();
        }
        let head = "Choices, none of them recommended, because each gains in one thing and costs in another:";
        let mut text = wrap(head, width, 0) + "\n";
        for &index in choices.iter().take(CHOICE_COUNT_MAX) {
            text += &wrap(&format!("- {}", self.rows[index + 1].choice()), width, 2);
            text += "\n";
        }
        if let Some(more) = choices.len().checked_sub(CHOICE_COUNT_MAX).filter(|more| *more > 0) {
            text += &format!("- {more} more; --json has all.\n");
        }
        text
    }

    /// Returns everything for JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let slos = self.wishes.slos.iter();
        let name = |index: usize| self.rows[index + 1].setting.clone();
        let (outcome, setting) = match self.outcome {
            Outcome::Change(index) => ("change", Some(name(index))),
            Outcome::LeaveAlone => ("leave-alone", None),
            Outcome::Infeasible(nearest) => ("infeasible", nearest.map(name)),
        };
        json!({
            "log": self.log,
            "machine": self.machine,
            "governor": self.governor,
            "cpus": self.cpus,
            "judged_by": self.judged_by.as_str(),
            "span_ns": self.span_ns,
            "slice_count": self.slice_count,
            "lambda_mw": self.wishes.lambda_mw,
            "slos": slos.map(|slo| json!({"event_ratio": slo.ratio, "limit_ns": slo.limit_ns}))
                .collect::<Vec<_>>(),
            "power_max_mw": self.wishes.power_max_mw,
            "outcome": outcome,
            "setting": setting,
            "sentence": self.sentence(),
            "choices": self.choices().into_iter().map(name).collect::<Vec<_>>(),
            "would_change_verdict": self.doubters(),
            "rows": Table::new("", &columns(), self.rows.iter()),
            "bases": self.notes.bases_json(),
            "doubts": self.notes.counted_doubts(),
        })
    }
}

/// Chooses, and says of each row why it is not chosen.
fn outcome(rows: &mut [Judgement], wishes: &Wishes) -> Outcome {
    let before_mw = rows[0].power_mw;
    let has_events = rows[0].event_count > 0;
    let keeps_now = rows[0].keeps(wishes);
    for (index, row) in rows.iter_mut().enumerate() {
        row.verdict = match (row.keeps(wishes), row.gain(wishes, before_mw)) {
            (false, _) if row.seems_to_keep(wishes) => "may exceed a limit",
            (false, _) => "exceeds a limit",
            _ if index == 0 => "",
            (true, _) if wishes.slos.is_empty() && row.is_trade() => "trade",
            (true, Some(_)) => "pays",
            (true, None) if !keeps_now => "keeps the limits",
            (true, None) if wishes.slos.is_empty() && row.power_side() == Side::Worse => {
                "costs power, tail no better"
            }
            (true, None) => "nothing gained for sure",
        };
    }
    // Too few events have no tail to judge, and only a limit says that it does not matter.
    let is_tail_unknown =
        wishes.slos.is_empty() && keeps_now && !is_judged(rows[0].event_count, P99);
    if !has_events || is_tail_unknown {
        return Outcome::LeaveAlone;
    }
    // If the limits are exceeded now, what keeps them is a gain, whatever it costs within them.
    let value = |row: &Judgement| match (row.keeps(wishes), keeps_now) {
        (false, _) => None,
        (true, true) => row.gain(wishes, before_mw),
        (true, false) => row.power_change_mw.map(|change| -change.value / before_mw.max(1e-9)),
    };
    let paying: Vec<(usize, f64)> = rows[1..]
        .iter()
        .enumerate()
        .filter_map(|(index, row)| Some((index, value(row)?)))
        .collect();
    let best = paying.iter().map(|(_, gain)| *gain).fold(f64::NEG_INFINITY, f64::max);
    let nearly = best - best.abs() * (1.0 - NEARLY);
    let chosen = paying
        .iter()
        .filter(|(_, gain)| *gain >= nearly)
        .min_by(|(a, gain_a), (b, gain_b)| {
            rows[a + 1].step.cmp(&rows[b + 1].step).then(gain_b.total_cmp(gain_a))
        })
        .map(|(index, _)| *index);
    match chosen {
        // Without intervals nothing is certain.
        Some(index) if rows[index + 1].power_change_mw.is_some_and(|c| c.interval.is_some()) => {
            rows[index + 1].verdict = "recommended";
            Outcome::Change(index)
        }
        _ if keeps_now => Outcome::LeaveAlone,
        _ => {
            let nearest = (0..rows.len())
                .min_by(|&a, &b| rows[a].excess(wishes).total_cmp(&rows[b].excess(wishes)));
            let nearest = nearest.and_then(|index| index.checked_sub(1));
            if let Some(index) = nearest {
                rows[index + 1].verdict = "nearest";
            }
            Outcome::Infeasible(nearest)
        }
    }
}

/// Returns the columns.
pub fn columns() -> Vec<Column<Judgement>> {
    type C = Column<Judgement>;
    vec![
        C::text("setting", "setting", |row| row.setting.as_str().into())
            .means("The setting; `as it is` for the recording's own.")
            .key(),
        C::text("step", "step", |row| row.step.map_or(Value::Absent, |step| step.as_str().into()))
            .means("How drastic the change is.")
            .detail(),
        C::ns("delay_p50_ns", "delay p50", |row| row.p50_ns.into()).means(
            "Median wait of the wake events: for the exit if judged by replay, until a task runs \
             if by predict; simulated.",
        ),
        C::ns("delay_p99_ns", "delay p99", |row| row.p99.map(|p99| p99.value).into())
            .means("99th percentile of that wait."),
        C::ns("delay_p99_low_ns", "from", |row| row.p99.and_then(|p99| p99.low()).into())
            .means(
                "Ends of its 95 % bootstrap interval over slices of time; absent with fewer than \
                 seven.",
            )
            .detail(),
        C::ns("delay_p99_high_ns", "to", |row| row.p99.and_then(|p99| p99.high()).into())
            .means("Its upper end.")
            .detail(),
        C::ns("delay_p999_ns", "p99.9", |row| {
            row.tails.iter().find(|tail| tail.ratio == P999).map(|tail| tail.ns).into()
        })
        .means("99.9th percentile; absent with fewer than 5,000 events.")
        .detail(),
        C::ns("delay_max_ns", "worst", |row| row.max_ns.into())
            .means("The longest delay.")
            .detail(),
        C::mw("power_mw", "power", |row| row.power_mw.into())
            .means("Mean power of all idle CPUs, simulated."),
        C::mw("power_change_mw", "change", |row| {
            row.power_change_mw.map(|change| change.value).into()
        })
        .means("Change of the power.")
        .detail(),
        C::mw("power_change_low_mw", "from", |row| {
            row.power_change_mw.and_then(|change| change.low()).into()
        })
        .means("Lower end of its 95 % interval.")
        .detail(),
        C::mw("power_change_high_mw", "to", |row| {
            row.power_change_mw.and_then(|change| change.high()).into()
        })
        .means("Its upper end.")
        .detail(),
        C::ratio("cost_change_ratio", "cost", |row| {
            row.cost_change.map(|change| change.value).into()
        })
        .means("Change of energy and priced delay, as a share of the present cost."),
        C::ratio("cost_change_low_ratio", "from", |row| {
            row.cost_change.and_then(|change| change.low()).into()
        })
        .means("Lower end of its 95 % interval."),
        C::ratio("cost_change_high_ratio", "to", |row| {
            row.cost_change.and_then(|change| change.high()).into()
        })
        .means("Its upper end."),
        C::text("verdict", "verdict", |row| match row.verdict {
            "" => Value::Absent,
            verdict => verdict.into(),
        })
        .means(
            "The verdict. A trade is better in power or tail delay, and may be worse in the other.",
        )
        .key(),
    ]
}

fn interval(estimate: Estimate, show: fn(f64) -> String) -> String {
    match estimate.interval {
        Some([low, high]) => format!("{} to {}", show(low), show(high)),
        None => "no interval".to_owned(),
    }
}

fn sign(number: f64) -> char {
    if number < 0.0 { '−' } else { '+' }
}

fn percent(share: f64) -> String {
    format!("{}{:.1} %", sign(share), share.abs() * 100.0)
}

fn power(power_mw: f64) -> String {
    let (sign, mw) = (sign(power_mw), power_mw.abs());
    if mw < 1_000.0 { format!("{sign}{mw:.0} mW") } else { format!("{sign}{:.2} W", mw / 1e3) }
}

fn time(ns: f64) -> String {
    if ns < 1e7 {
        format!("{} us", (ns / 100.0).round() / 10.0)
    } else {
        format!("{:.1} ms", ns / 1e6)
    }
}

#[cfg(test)]
mod tests;
