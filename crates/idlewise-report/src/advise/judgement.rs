//! A candidate judged: its delays, power and cost against the settings as they are, with intervals.

use idlewise_sim::UJ_PER_MW_NS;
use idlewise_sim::replay::Delays;

use super::{GAIN_MIN, Slices, Step, WORST, Wishes};
use crate::statistics::{Draw, RESAMPLE_COUNT, RUN_COUNT_MIN, middle};
use crate::text::shorten_middle;
use crate::verdict::{PercentRange, PowerOrder, percent_change};

/// A percentile is judged only if so many events are expected beyond it.
pub(super) const BEYOND_COUNT_MIN: f64 = 5.0;
pub(super) const P99: f64 = 0.99;
pub(super) const P999: f64 = 0.999;
/// A longer text form of a setting is shortened.
const SETTING_WIDTH_MAX: usize = 60;
/// With more distinct delays, those for intervals are rounded ...
const DISTINCT_MAX: usize = 4_096;
/// ... to so many leading bits, which is 0.2 %.
const KEPT_BITS: u32 = 10;

/// A figure with its 95 % interval, if there were enough slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// From all slices.
    pub value: f64,
    /// By drawing slices again and again.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    pub(super) fn low(&self) -> Option<f64> {
        self.interval.map(|[low, _]| low)
    }

    pub(super) fn high(&self) -> Option<f64> {
        self.interval.map(|[_, high]| high)
    }
}

/// How a candidate compares with the settings as they are, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
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

    pub(super) fn is_no_worse(self) -> bool {
        self <= Side::Equal
    }
}

/// A quantile of the delays beyond which few events wait longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) ratio: f64,
    pub(super) ns: u64,
    pub(super) before_ns: u64,
    /// From before to after, in the same slices.
    change_ns: Estimate,
}

impl Tail {
    pub(super) fn name(self) -> String {
        quantile_name(self.ratio)
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

    /// `p99 1 µs → 290 µs`.
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
    pub(super) setting: String,
    /// `None`: as it is.
    pub(super) step: Option<Step>,
    pub(super) event_count: u64,
    pub(super) p50_ns: Option<u64>,
    pub(super) p99: Option<Estimate>,
    pub(super) max_ns: Option<u64>,
    /// The 99th percentile, and what is beyond it.
    pub(super) tails: Vec<Tail>,
    pub(super) power_mw: f64,
    pub(super) power_change_mw: Option<Estimate>,
    /// The least and the largest change of the power in percent, under all powers that the machine may have. `None`
    /// where they are known.
    pub(super) power_range: Option<PercentRange>,
    pub(super) cost_change: Option<Estimate>,
    /// For each limit of delay: the delay.
    pub(super) slo_delays: Vec<Estimate>,
    pub(super) verdict: &'static str,
}

/// Delays of both sides by slice, under common values.
struct Counted {
    values_ns: Vec<u64>,
    /// `[value * slice_count + slice]`, because quantiles are drawn thousands of times and go through it in this order.
    counts: Vec<u64>,
    /// Of each slice.
    totals: Vec<u64>,
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
        let slice_count = slices.delays.len();
        let mut counts = vec![0; values_ns.len() * slice_count];
        let mut totals = vec![0; slice_count];
        for (slice, delays) in slices.delays.iter().enumerate() {
            for (ns, count) in delays.iter() {
                if let Ok(at) = values_ns.binary_search(&rounded(ns)) {
                    counts[at * slice_count + slice] += count;
                    totals[slice] += count;
                }
            }
        }
        Counted { values_ns, counts, totals }
    }

    /// The smallest delays that these shares of the events in the drawn slices do not exceed. The shares ascend.
    fn quantiles_ns(&self, weights: &[u64], ratios: &[f64]) -> Vec<f64> {
        let drawn = |counts: &[u64]| -> u64 {
            counts.iter().zip(weights).map(|(count, weight)| count * weight).sum()
        };
        let all = drawn(&self.totals);
        let mut ranks =
            ratios.iter().map(|ratio| (ratio * all as f64).ceil().max(1.0) as u64).peekable();
        let mut found = Vec::with_capacity(ratios.len());
        let mut seen = 0;
        let rows = self.counts.chunks_exact(self.totals.len().max(1));
        for (value_ns, counts) in self.values_ns.iter().zip(rows) {
            seen += drawn(counts);
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

/// `p99`, `p99.9`, or `worst`.
pub(super) fn quantile_name(ratio: f64) -> String {
    if ratio == WORST { "worst".to_owned() } else { format!("p{}", per_cent(ratio)) }
}

/// 99.9 rather than 99.90000000000001.
pub(super) fn per_cent(ratio: f64) -> f64 {
    (ratio * 1e8).round() / 1e6
}

/// Whether enough events are expected beyond a percentile to judge it.
pub(super) fn is_judged(event_count: u64, ratio: f64) -> bool {
    event_count as f64 * (1.0 - ratio) >= BEYOND_COUNT_MIN - 1e-6
}

/// The quantiles by which tails are compared.
fn tail_ratios(event_count: u64) -> [f64; 2] {
    [P99, if is_judged(event_count, P999) { P999 } else { WORST }]
}

/// Rounds up, so that a limit is never met by rounding.
pub(super) fn rounded_up(ns: u64) -> u64 {
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
pub(super) struct Judge<'a> {
    wishes: &'a Wishes,
    before: &'a Slices,
    resamples: Vec<Vec<u64>>,
    slice_s: f64,
    tail_ratios: [f64; 2],
    /// The tails as they are, of each resample.
    tails_before_ns: Vec<Vec<f64>>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(wishes: &'a Wishes, before: &'a Slices, span_ns: u64) -> Self {
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

    fn power_range(&self, after: &Slices) -> Option<PercentRange> {
        let before = self.before;
        let sum_uj = |slices: &Slices| slices.energy_uj.iter().sum::<f64>();
        let corners = before.corner_uj.iter().copied().zip(after.corner_uj.iter().copied());
        let percents = corners
            .chain([(sum_uj(before), sum_uj(after))])
            .map(|(before_uj, after_uj)| percent_change(before_uj, after_uj));
        PercentRange::of(percents).filter(|_| !before.corner_uj.is_empty())
    }

    pub(super) fn judge(&self, setting: &str, step: Option<Step>, after: &Slices) -> Judgement {
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
            power_range: self.power_range(after).filter(|_| is_candidate),
            cost_change: is_candidate.then(|| self.estimate(slice_count, cost_change)),
            slo_delays: self.wishes.slos.iter().map(|slo| quantile(slo.ratio)).collect(),
            verdict: "",
        }
    }
}

/// The delays of all slices.
pub(super) fn merged(slices: &Slices) -> Delays {
    let mut all = Delays::default();
    slices.delays.iter().for_each(|delays| all.merge(delays));
    all
}

impl Judgement {
    /// Its text form for a sentence: one that names many CPUs one by one would fill lines.
    pub(super) fn shown_setting(&self) -> String {
        let short = shorten_middle(&self.setting, SETTING_WIDTH_MAX);
        if short == self.setting { short } else { short + " (--json has it whole)" }
    }

    /// How its power compares with what it is now.
    pub(super) fn power_side(&self) -> Side {
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
    pub(super) fn is_trade(&self) -> bool {
        let mut sides = vec![self.power_side()];
        sides.extend(self.tails.iter().map(|tail| tail.side()));
        sides.contains(&Side::Better) && !sides.into_iter().all(Side::is_no_worse)
    }

    /// Whether another one is as good in power and in all tails. Of two alike, the first is kept.
    pub(super) fn is_beaten_by(&self, other: &Judgement, other_is_first: bool) -> bool {
        let sides = |row: &Judgement| -> Vec<f64> {
            std::iter::once(row.power_mw)
                .chain(row.tails.iter().map(|tail| tail.ns as f64))
                .collect()
        };
        let (own, other) = (sides(self), sides(other));
        own.iter().zip(&other).all(|(own, other)| other <= own) && (own != other || other_is_first)
    }

    /// The tails that sentences name: p99, and what is beyond it if that changes or may.
    pub(super) fn shown_tails(&self) -> impl Iterator<Item = &Tail> {
        self.tails.iter().enumerate().filter_map(|(place, tail)| {
            let changes = tail.ns != tail.before_ns || tail.side() == Side::Unsure;
            (place == 0 || changes).then_some(tail)
        })
    }

    /// The change of some of its tails in words.
    pub(super) fn tail_text(&self, is_asked: impl Fn(&Tail) -> bool) -> String {
        let shown = self.shown_tails().filter(|tail| is_asked(tail));
        let words: Vec<String> = shown.map(|tail| tail.text()).collect();
        words.join(", ")
    }

    /// Whether its power rests on powers that are assumed, in a sentence with a space before it; empty if they are known.
    pub(super) fn under_all_powers(&self) -> String {
        let Some(range) = self.power_range else { return String::new() };
        let shown = range.in_words(|it| percent(it / 100.0));
        let verb = match range.order() {
            PowerOrder::Same => {
                return " Its power is the same under all plausible powers of the states."
                    .to_owned();
            }
            PowerOrder::Less => "saves power",
            PowerOrder::NoMore => "takes no more power",
            PowerOrder::More => "costs power",
            PowerOrder::NoLess => "takes no less power",
            PowerOrder::Open => {
                return format!(
                    " Whether it saves power depends on the states' powers, which are assumed: {shown} is plausible, and \
                     `idlewise measure power` finds them."
                );
            }
        };
        format!(" It {verb} under all plausible powers of the states ({shown}).")
    }

    /// A trade in a sentence, with both prices.
    pub(super) fn choice(&self) -> String {
        let power_side = self.power_side();
        let change = self.power_change_mw.map_or(String::new(), |change| match power_side {
            // An estimate of less is no price, but what it may be is.
            Side::Unsure if change.value <= 0.0 => {
                format!("power perhaps higher ({})", interval(change, power))
            }
            _ => format!("power {} ({})", power(change.value), interval(change, power)),
        });
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
        format!("{}: {}, but {}", self.shown_setting(), in_words(true), in_words(false))
    }

    /// Whether it surely keeps all limits.
    pub(super) fn keeps(&self, wishes: &Wishes) -> bool {
        self.excess(wishes) <= 0.0
    }

    /// Whether it keeps all limits in the estimate, if not for sure.
    pub(super) fn seems_to_keep(&self, wishes: &Wishes) -> bool {
        self.likely_distance(wishes) <= 0.0
    }

    /// How far it is from the limits that it exceeds, together, by the estimates, whatever their intervals; 0 if it keeps all.
    pub(super) fn likely_distance(&self, wishes: &Wishes) -> f64 {
        let estimated = |estimate: &Estimate| Estimate { interval: None, ..*estimate };
        let row = Judgement {
            slo_delays: self.slo_delays.iter().map(estimated).collect(),
            power_change_mw: self.power_change_mw.as_ref().map(estimated),
            ..self.clone()
        };
        row.excesses(wishes).map(|excess| excess.max(0.0)).sum()
    }

    /// Whether its figures have intervals, without which nothing is certain.
    pub(super) fn has_intervals(&self) -> bool {
        self.power_change_mw.is_some_and(|change| change.interval.is_some())
    }

    /// By which share it may exceed the limit that it exceeds most; 0 or less if it surely keeps all.
    pub(super) fn excess(&self, wishes: &Wishes) -> f64 {
        self.excesses(wishes).fold(f64::NEG_INFINITY, f64::max)
    }

    /// By which share it may exceed each limit.
    fn excesses(&self, wishes: &Wishes) -> impl Iterator<Item = f64> {
        let slos = self.slo_delays.iter().zip(&wishes.slos).map(|(delay, slo)| {
            let most_ns = delay.high().unwrap_or(delay.value);
            most_ns / (slo.limit_ns as f64).max(1.0) - 1.0
        });
        let power = match (wishes.power_max_mw, &self.power_change_mw) {
            (Some(most_mw), Some(change)) => {
                let change_mw = change.high().unwrap_or(change.value);
                // Of what it is now, because a limit may be 0 W.
                Some((change_mw - most_mw) / (self.power_mw - change.value).max(1e-9))
            }
            _ => None,
        };
        slos.chain(power)
    }

    /// The gain as a share, if it is certain: less cost, or less power where delay is limited.
    pub(super) fn gain(&self, wishes: &Wishes, before_mw: f64) -> Option<f64> {
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

pub(super) fn interval(estimate: Estimate, show: fn(f64) -> String) -> String {
    match estimate.interval {
        Some([low, high]) => format!("{} to {}", show(low), show(high)),
        None => "no interval".to_owned(),
    }
}

fn sign(number: f64) -> char {
    if number < 0.0 { '−' } else { '+' }
}

pub(super) fn percent(share: f64) -> String {
    format!("{}{:.1} %", sign(share), share.abs() * 100.0)
}

pub(super) fn power(power_mw: f64) -> String {
    let (sign, mw) = (sign(power_mw), power_mw.abs());
    if mw < 1_000.0 { format!("{sign}{mw:.0} mW") } else { format!("{sign}{:.2} W", mw / 1e3) }
}

pub(super) fn time(ns: f64) -> String {
    if ns < 1e6 {
        format!("{} µs", (ns / 100.0).round() / 10.0)
    } else {
        format!("{:.1} ms", ns / 1e6)
    }
}
