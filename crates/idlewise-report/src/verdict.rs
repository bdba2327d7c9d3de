//! The verdict: what the best governor would change against the one in use, in plain units. Regret and λ follow in a
//! sentence of their own.
//!
//! What is compared: p99 and mean of the delays, and energy. A governor that is no better than the one in use in any of
//! them is no alternative; of the others it is the one that costs least at the middle price of delay. If even that one
//! costs more than the governor in use, the verdict says so.

use idlewise_sim::contest::{Price, Role};
use idlewise_sim::replay::{Delays, Tally};
use idlewise_sim::{Basis, CostModel, UJ_PER_MW_NS};
use serde::Serialize;

use crate::replay::{Outcome, groups, machine_words, reference_price, span_words, words};
use crate::{Statement, counted};

/// With fewer gaps, each of them decides a percent or more of what is said of governors, and the longest alone decides
/// the 99th percentile.
pub const FEW_GAP_COUNT: u64 = 100;

/// What a verdict on few gaps adds.
pub(crate) fn few_gaps(gap_count: u64) -> String {
    match gap_count {
        ..FEW_GAP_COUNT => format!(" But {}: too few to judge by.", counted(gap_count, "gap")),
        _ => String::new(),
    }
}

/// The governor in use while logs were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InUse {
    /// Its name, without a kernel's version.
    pub name: String,
    /// The name of the port that decides as that kernel does.
    pub exact: String,
    /// Whether the name alone stands for that port, as `menu` does for `menu-6.12`.
    pub is_named_port: bool,
    /// Whether the recordings say it. Otherwise it is the kernel's default.
    pub is_recorded: bool,
}

impl Default for InUse {
    fn default() -> Self {
        let name = || "menu".to_owned();
        InUse { name: name(), exact: name(), is_named_port: true, is_recorded: false }
    }
}

impl InUse {
    /// The governor of a replay that is this one, or nearest to it.
    fn among<'o, 'a>(&self, governors: &[&'o Outcome<'a>]) -> Option<&'o Outcome<'a>> {
        let nearest = self.nearest(governors.iter().map(|outcome| &*outcome.governor))?;
        governors.iter().copied().find(|outcome| outcome.governor == nearest)
    }

    /// The name that is this one's, or nearest to it.
    pub fn nearest<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> Option<&'n str> {
        let find = |is_it: &dyn Fn(&str) -> bool| names.clone().find(|name| is_it(name));
        let is_version = |name: &str| {
            let version = name.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
            version.is_some_and(|version| !version.contains('+'))
        };
        find(&|name| name == self.exact)
            .or_else(|| find(&|name| name == self.name))
            .or_else(|| find(&is_version))
    }

    /// A sentence for a recorded one that is not among these names.
    pub fn absent<'n>(&self, names: impl Iterator<Item = &'n str> + Clone) -> String {
        let is_absent = self.is_recorded && self.nearest(names).is_none();
        if is_absent { self.not_replayed() } else { String::new() }
    }

    fn not_replayed(&self) -> String {
        let port = if self.is_named_port { &self.name } else { &self.exact };
        format!(" {port} was in use, but was not replayed: add --governor {port}.")
    }

    /// What it is, in words.
    pub fn role(&self) -> &'static str {
        if self.is_recorded { "in use" } else { "the kernel's default" }
    }

    /// What a governor is that stands for it, in words: another version is not the one that was in use.
    pub fn role_of(&self, governor: &str) -> String {
        let is_it = governor == self.exact || self.is_named_port && governor == self.name;
        match self.is_recorded && !is_it {
            true => format!("{} was in use", self.exact),
            false => self.role().to_owned(),
        }
    }
}

/// What a governor came to, in plain units.
pub(crate) struct Plain {
    delays: Delays,
    own: Consumed,
    /// The same under each other power that the machine may have.
    others: Vec<Consumed>,
}

/// What a governor consumed.
#[derive(Clone, Copy)]
struct Consumed {
    energy_uj: f64,
    /// The mean power of its stays, without entering and leaving states.
    idle_mw: f64,
}

impl Consumed {
    fn new(costs: &CostModel, tally: &Tally) -> Self {
        let states = tally.states.iter().take(costs.states().len());
        let idle_ns: u64 = states.map(|it| it.stay_ns).sum();
        let idle_mw = match idle_ns {
            0 => 0.0,
            idle_ns => costs.idle_uj(tally) / (idle_ns as f64 * UJ_PER_MW_NS),
        };
        Consumed { energy_uj: costs.energy_uj(tally), idle_mw }
    }
}

impl Plain {
    pub(crate) fn new(delays: Delays, costs: &CostModel, tally: &Tally) -> Self {
        let others = costs.corners().iter().map(|costs| Consumed::new(costs, tally)).collect();
        Plain { delays, own: Consumed::new(costs, tally), others }
    }

    fn of(outcome: &Outcome<'_>) -> Self {
        Plain::new(outcome.delays(), outcome.costs, &outcome.tally)
    }

    fn p99_ns(&self) -> u64 {
        self.delays.quantile_ns(0.99).unwrap_or(0)
    }

    fn mean_ns(&self) -> f64 {
        self.delays.sum_ns() as f64 / self.delays.count().max(1) as f64
    }

    /// Whether it is better than another in something.
    fn has_more(&self, other: &Plain) -> bool {
        self.p99_ns() < other.p99_ns()
            || is_less(self.mean_ns(), other.mean_ns())
            || is_less(self.own.energy_uj, other.own.energy_uj)
    }

    /// What changes with this one in the place of another.
    pub(crate) fn instead_of(&self, other: &Plain, powers: Basis) -> String {
        let p99 = match (other.p99_ns(), self.p99_ns()) {
            (before, after) if before == after => "same p99".to_owned(),
            (before, after) => {
                format!("p99 {} instead of {}", delay_words(after), delay_words(before))
            }
        };
        let delay = change("mean delay", other.mean_ns(), self.mean_ns(), &rounded_span);
        let energy = change("energy", other.own.energy_uj, self.own.energy_uj, &energy_words);
        let shifted = self.energy_with_freed_time(other);
        format!("{p99}, {delay}, {energy}{shifted} ({} power)", powers.as_str())
    }

    /// What the energy is if exits that take less time leave more of it idle, where that says something else: a replay
    /// keeps the times at which the recorded stays began, and [`crate::advise`] does not.
    fn energy_with_freed_time(&self, other: &Plain) -> String {
        let Some(percent) = self.percent_with_freed_time(other) else { return String::new() };
        let why = match self.freed_ns(other) > 0.0 {
            true => "the time that shorter exits save is idle",
            false => "longer exits leave less time idle",
        };
        format!(", or {percent:+.1} % if {why}")
    }

    fn percent_with_freed_time(&self, other: &Plain) -> Option<f64> {
        const TELLING_PERCENT: f64 = 1.0;
        let [kept, freed] = percents_of_energy(&self.own, &other.own, self.freed_ns(other));
        let is_telling = (freed - kept).is_finite() && (freed - kept).abs() >= TELLING_PERCENT;
        (is_telling && freed >= -100.0).then_some(freed)
    }

    fn freed_ns(&self, other: &Plain) -> f64 {
        other.delays.sum_ns() as f64 - self.delays.sum_ns() as f64
    }

    /// By how much this one's energy is above another's under all powers that the machine may have. `None` if they are
    /// known.
    fn percents_under_all_powers(&self, other: &Plain) -> Option<PercentRange> {
        let freed_ns = self.percent_with_freed_time(other).map_or(0.0, |_| self.freed_ns(other));
        let both = self.others.iter().zip(&other.others).chain([(&self.own, &other.own)]);
        let percents = both.flat_map(|(mine, theirs)| percents_of_energy(mine, theirs, freed_ns));
        PercentRange::of(percents).filter(|_| !self.others.is_empty())
    }

    /// Which of the two uses less energy under all powers that the machine may have, in a sentence. `None` if they are
    /// known, or if both use the same. `decisive` is whose power decides most: a state's, or a running core's. A second
    /// figure that is shown must agree.
    pub(crate) fn under_all_powers(
        &self,
        other: &Plain,
        [mine, theirs]: [&str; 2],
        decisive: Option<&str>,
    ) -> Option<String> {
        let range = self.percents_under_all_powers(other)?;
        let shown = range.in_words(percent_words);
        let Some(order) = range.order_words() else {
            let PowerOrder::Open = range.order() else { return None };
            let whose = match decisive {
                Some(state) => format!("{state}'s power, which `idlewise measure power` finds"),
                None => "the power of a running core, which is assumed".to_owned(),
            };
            return Some(format!(
                "Which one uses less energy depends on {whose}: {shown} is plausible."
            ));
        };
        Some(format!(
            "{mine} uses {order} energy than {theirs} under all plausible powers ({shown})."
        ))
    }
}

/// The least and the largest change in percent under all powers that a machine may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PercentRange {
    pub low: f64,
    pub high: f64,
}

/// What holds under all of these powers.
pub(crate) enum PowerOrder {
    Same,
    Less,
    NoMore,
    More,
    NoLess,
    /// It depends on the powers.
    Open,
}

impl PercentRange {
    /// `None` of none. What has no value, because both are 0, is left out.
    pub fn of(percents: impl Iterator<Item = f64>) -> Option<Self> {
        percents.filter(|percent| !percent.is_nan()).fold(None, |range, it| {
            let PercentRange { low, high } = range.unwrap_or(PercentRange { low: it, high: it });
            Some(PercentRange { low: low.min(it), high: high.max(it) })
        })
    }

    pub fn order(self) -> PowerOrder {
        match (self.low > -SAME_PERCENT, self.high < SAME_PERCENT) {
            (true, true) => PowerOrder::Same,
            (false, false) => PowerOrder::Open,
            (false, true) if self.high <= -SAME_PERCENT => PowerOrder::Less,
            (false, true) => PowerOrder::NoMore,
            (true, false) if self.low >= SAME_PERCENT => PowerOrder::More,
            (true, false) => PowerOrder::NoLess,
        }
    }

    /// `less`, or what else holds; `None` if nothing changes, or if it depends on the powers.
    fn order_words(self) -> Option<&'static str> {
        match self.order() {
            PowerOrder::Same | PowerOrder::Open => None,
            PowerOrder::Less => Some("less"),
            PowerOrder::NoMore => Some("no more"),
            PowerOrder::More => Some("more"),
            PowerOrder::NoLess => Some("no less"),
        }
    }

    /// A sentence about a change from what is known; `None` if nothing changes.
    pub fn change_in_words(self) -> Option<String> {
        let shown = self.in_words(percent_words);
        match (self.order(), self.order_words()) {
            (PowerOrder::Open, _) => Some(format!(
                "Whether that takes less energy depends on the powers: {shown} is plausible"
            )),
            (_, order) => {
                Some(format!("That takes {} energy under all plausible powers ({shown})", order?))
            }
        }
    }

    /// Both ends, or one if they look the same.
    pub fn in_words(self, show: fn(f64) -> String) -> String {
        match [self.low, self.high].map(show) {
            [low, high] if low == high => low,
            [low, high] => format!("{low} to {high}"),
        }
    }
}

/// By how many percent one consumed more than another: as it was replayed, and with so much more time idle.
fn percents_of_energy(mine: &Consumed, theirs: &Consumed, freed_ns: f64) -> [f64; 2] {
    let freed_uj = freed_ns * mine.idle_mw * UJ_PER_MW_NS;
    [mine.energy_uj, mine.energy_uj + freed_uj].map(|uj| percent_change(theirs.energy_uj, uj))
}

/// With a sign, and as few digits as say it.
fn percent_words(percent: f64) -> String {
    match percent {
        percent if percent.abs() < SAME_PERCENT => "0 %".to_owned(),
        percent if percent.is_infinite() => "any multiple".to_owned(),
        percent if percent >= 1_000.0 => format!("{:.0} times as much", percent / 100.0 + 1.0),
        percent if percent.abs() >= 9.95 => format!("{percent:+.0} %"),
        percent => format!("{percent:+.1} %"),
    }
}

/// What is less by so little is shown as the same.
fn is_less(a: f64, b: f64) -> bool {
    a < b && percent_change(b, a) != 0.0
}

/// Less than this is shown as no change.
const SAME_PERCENT: f64 = 0.05;

/// In percent, as it is shown: with one digit.
pub(crate) fn percent_change(before: f64, after: f64) -> f64 {
    let percent = (after / before - 1.0) * 100.0;
    if percent.abs() < SAME_PERCENT { 0.0 } else { percent }
}

pub(crate) fn energy_words(uj: f64) -> String {
    match uj {
        uj if uj >= 9.95e6 => format!("{:.0} J", uj / 1e6),
        uj if uj >= 0.995e6 => format!("{:.1} J", uj / 1e6),
        uj if uj >= 0.995e3 => format!("{:.0} mJ", uj / 1e3),
        uj => format!("{uj:.0} µJ"),
    }
}

fn delay_words(ns: u64) -> String {
    if ns == 0 { "none".to_owned() } else { span_words(ns) }
}

/// A length in three digits.
fn rounded_span(ns: f64) -> String {
    let step = 10_f64.powi((ns.max(1.0).log10().floor() as i32 - 2).max(0));
    span_words(((ns / step).round() * step) as u64)
}

fn change(what: &str, before: f64, after: f64, unit: &dyn Fn(f64) -> String) -> String {
    const TIMES_MIN: f64 = 10.0;
    if before == after {
        return format!("same {what}");
    }
    if before == 0.0 {
        return format!("{what} {} instead of none", unit(after));
    }
    match percent_change(before, after) {
        0.0 => format!("same {what}"),
        _ if after >= TIMES_MIN * before => format!("{what} {:.0} times as much", after / before),
        percent => format!("{what} {percent:+.1} %"),
    }
}

/// Percentages with as few digits as tell them apart.
fn percents(ratios: &[f64]) -> Vec<String> {
    let with = |digits: usize| -> Vec<String> {
        ratios.iter().map(|ratio| format!("{:.digits$} %", ratio * 100.0)).collect()
    };
    let mut shown = with(0);
    for digits in 1..=2 {
        let is_blurred = |i: usize| ratios[i] != ratios[i + 1] && shown[i] == shown[i + 1];
        if (0..ratios.len().saturating_sub(1)).any(is_blurred) {
            shown = with(digits);
        }
    }
    shown
}

/// The governor in use and the best in its place, on one machine.
pub(crate) struct Judged<'o, 'a> {
    /// The one in use, or else the one that was named first.
    pub base: &'o Outcome<'a>,
    /// The best of the others, if there are any.
    pub other: Option<&'o Outcome<'a>>,
    pub is_in_use: bool,
    /// Whether the one in use was replayed at all.
    was_replayed: bool,
    /// Whether the other costs no less than the base, and whether it is better in anything.
    is_least: bool,
    is_better: bool,
}

impl<'o, 'a> Judged<'o, 'a> {
    /// Judges the governors of a group; `None` if it has none, or no gaps.
    pub fn of(group: &'o [Outcome<'a>], in_use: &InUse, prices: &[Price]) -> Option<Self> {
        let is_governor =
            |outcome: &&Outcome<'_>| outcome.role == Role::Governor && outcome.tally.gap_count > 0;
        let all: Vec<&Outcome<'_>> = group.iter().filter(is_governor).collect();
        // Who breaks the rules is neither an alternative nor what others are compared with, unless all do.
        let mut others: Vec<&Outcome<'_>> =
            all.iter().copied().filter(|it| it.is_eligible()).collect();
        let found = in_use.among(&others);
        let base = found.or_else(|| others.first().copied()).or_else(|| all.first().copied())?;
        others.retain(|it| !std::ptr::eq(*it, base));
        let index = reference_price(prices);
        let regret = |it: &Outcome<'_>| it.regret(index, prices).unwrap_or(f64::MAX);
        others.sort_by(|a, b| regret(a).total_cmp(&regret(b)));
        let plain = Plain::of(base);
        let better = others.iter().find(|other| Plain::of(other).has_more(&plain));
        let other = better.or(others.first()).copied();
        // One that costs less may be no better in anything by as much as is shown.
        let is_least = other.is_none_or(|other| regret(base) <= regret(other));
        Some(Judged {
            base,
            other,
            is_in_use: found.is_some(),
            was_replayed: in_use.among(&group.iter().collect::<Vec<_>>()).is_some(),
            is_least,
            is_better: better.is_some(),
        })
    }

    /// What the other would change, in a sentence or two.
    pub fn sentence(&self, in_use: &InUse) -> String {
        let Judged { base, other, .. } = self;
        let on = machine_words(&base.machine);
        let name = match self.is_in_use {
            true => format!("{} ({})", base.governor, in_use.role_of(&base.governor)),
            false => base.governor.clone(),
        };
        let mine = Plain::of(base);
        let powers = base.power_basis;
        let mut text = match other {
            None if !base.is_eligible() => format!(
                "On {on}, every governor enters states that are disabled or beyond the latency limit."
            ),
            None => format!(
                "On {on}, {name}: p99 {}, mean delay {}, energy {} ({} power). There is no other governor \
                 to compare it with.",
                span_words(mine.p99_ns()),
                rounded_span(mine.mean_ns()),
                energy_words(mine.own.energy_uj),
                powers.as_str()
            ),
            Some(other) => {
                let theirs = Plain::of(other);
                let (governor, changes) = (&other.governor, theirs.instead_of(&mine, powers));
                match (self.is_better, mine.has_more(&theirs)) {
                    (true, true) if self.is_least => {
                        format!("On {on}, {name} costs least. With {governor} instead: {changes}.")
                    }
                    (true, _) => format!("On {on}, {governor} instead of {name}: {changes}."),
                    (false, false) => {
                        format!(
                            "On {on}, nothing is better than {name}. With {governor} instead: same delays, \
                             same energy."
                        )
                    }
                    (false, true) => format!(
                        "On {on}, nothing is better than {name}. The nearest is {governor}: {changes}."
                    ),
                }
            }
        };
        text += &few_gaps(base.tally.gap_count);
        if !self.was_replayed && in_use.is_recorded {
            text += &in_use.not_replayed();
        }
        text
    }

    /// The state whose power decides most about which of the two uses less energy; `None`: a running core.
    fn decisive(&self, other: &Outcome<'_>) -> Option<&'o str> {
        let state = self.base.costs.decisive_state(&self.base.tally, &other.tally)?;
        self.base.state_names.get(state).map(String::as_str)
    }

    /// Which of the two uses less energy whatever the powers are, where they are assumed.
    pub fn under_all_powers(&self) -> Option<String> {
        let (base, other) = (self.base, self.other?);
        let decisive = self.decisive(other);
        let names = [&*other.governor, &*base.governor];
        Plain::of(other).under_all_powers(&Plain::of(base), names, decisive)
    }

    /// By how much both cost more than the best possible.
    pub fn regret(&self, prices: &[Price]) -> Option<String> {
        let index = reference_price(prices);
        let both: Vec<&Outcome<'_>> = self.other.into_iter().chain([self.base]).collect();
        let ratios: Option<Vec<f64>> = both.iter().map(|it| it.regret(index, prices)).collect();
        let shown = percents(&ratios?);
        let shown: Vec<String> = both
            .iter()
            .zip(shown)
            .map(|(it, percent)| format!("{} {percent}", it.governor))
            .collect();
        Some(format!(
            "On {}, regret (cost above the best possible) {}: {}.",
            machine_words(&self.base.machine),
            words(prices[index]),
            shown.join(", ")
        ))
    }
}

/// By how much the energy of one governor is above another's under all plausible powers, for programs.
#[derive(Clone, Debug, Serialize)]
pub struct EnergyRange<'a> {
    log: &'a str,
    machine: &'a str,
    governor: &'a str,
    instead_of: &'a str,
    /// Ratios. Without a value where the other one may use nothing.
    energy_change_low_ratio: f64,
    energy_change_high_ratio: f64,
    /// Whose power decides most; null: a running core's.
    decisive_state: Option<&'a str>,
}

/// Returns that range for each machine whose powers are not all known, of the governors of its verdict.
pub fn energy_ranges<'o>(
    pooled: &'o [Outcome<'_>],
    prices: &[Price],
    in_use: &dyn Fn(&str) -> InUse,
) -> Vec<EnergyRange<'o>> {
    let range = |group: &'o [Outcome<'_>]| {
        let judged = Judged::of(group, &in_use(&group[0].machine), prices)?;
        let (base, other) = (judged.base, judged.other?);
        let range = Plain::of(other).percents_under_all_powers(&Plain::of(base))?;
        Some(EnergyRange {
            log: &base.log,
            machine: &base.machine,
            governor: &other.governor,
            instead_of: &base.governor,
            energy_change_low_ratio: range.low / 100.0,
            energy_change_high_ratio: range.high / 100.0,
            decisive_state: judged.decisive(other),
        })
    };
    groups(pooled).filter_map(range).collect()
}

/// Returns the verdict for each machine, and its regret. `pooled` has the sums over all logs; `in_use` gives the
/// governor in use on a machine's logs.
pub fn verdicts(
    pooled: &[Outcome<'_>],
    prices: &[Price],
    in_use: &dyn Fn(&str) -> InUse,
) -> (Vec<Statement>, Vec<Statement>) {
    let (mut verdicts, mut regrets) = (Vec::new(), Vec::new());
    for group in groups(pooled) {
        let in_use = in_use(&group[0].machine);
        let Some(judged) = Judged::of(group, &in_use, prices) else { continue };
        let Outcome { log, machine, .. } = judged.base;
        let powers = judged.under_all_powers();
        let sentences = std::iter::once(judged.sentence(&in_use)).chain(powers);
        let text = sentences.collect::<Vec<_>>().join(" ");
        verdicts.push(Statement::about(log, machine, text));
        let regret = judged.regret(prices);
        regrets.extend(regret.map(|text| Statement::about(log, machine, text)));
    }
    (verdicts, regrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(delays: &[(u64, u64)], energy_uj: f64) -> Plain {
        let mut all = Delays::default();
        for &(ns, count) in delays {
            (0..count).for_each(|_| all.record(ns));
        }
        Plain { delays: all, own: Consumed { energy_uj, idle_mw: 0.0 }, others: Vec::new() }
    }

    #[test]
    fn energy_is_shown_twice_where_idle_time_decides_it() {
        let menu = plain(&[(290_000, 100)], 1_000.0);
        let idling = |ns, energy_uj, idle_mw| {
            let mut run = plain(&[(ns, 100)], energy_uj);
            run.own.idle_mw = idle_mw;
            run.instead_of(&menu, Basis::Assumed)
        };
        // By hand: 100 exits free 288 us each, 28.8 ms in all; at 10 mW that is 288 uJ.
        let text = idling(2_000, 800.0, 10.0);
        let expected =
            "energy -20.0 %, or +8.8 % if the time that shorter exits save is idle (assumed power)";
        assert!(text.ends_with(expected), "{text}");
        let text = idling(390_000, 900.0, 10.0);
        assert!(
            text.contains("-10.0 %, or -20.0 % if longer exits leave less time idle"),
            "{text}"
        );
        let text = idling(2_000, 800.0, 0.3);
        assert!(text.ends_with("energy -20.0 % (assumed power)"), "{text}");
    }

    #[test]
    fn what_is_said_of_all_powers_holds_under_each() {
        let text = "id = \"toy\"\ntitle = \"Toy\"\narch = \"x86\"\nsource = \"invented\"\n\
                    [[states]]\nname = \"POLL\"\nexit_latency_us = 0\ntarget_residency_us = 0\nflags = [\"polling\"]\n\
                    [[states]]\nname = \"C1\"\nexit_latency_us = 1\ntarget_residency_us = 2\n\
                    [[states]]\nname = \"C6\"\nexit_latency_us = 100\ntarget_residency_us = 600\n";
        let machine = idlewise_sim::Machine::from_toml(text).unwrap();
        let costs = CostModel::of(&machine).unwrap();
        // Count and sum of the stays in each state.
        let run = |stays: [(u64, u64); 3]| {
            let mut tally = Tally::default();
            for (state, (count, sum_us)) in stays.into_iter().enumerate() {
                (tally.states[state].entry_count, tally.states[state].stay_ns) =
                    (count, sum_us * 1_000);
            }
            Plain::new(Delays::default(), &costs, &tally)
        };
        let sleeper = run([(0, 0), (0, 0), (10, 1_000)]);
        let text = |one: &Plain, other: &Plain| {
            one.under_all_powers(other, ["teo", "menu"], Some("C6")).unwrap_or_default()
        };
        // By hand, with stays of 100 us. If only C1 saves, all of it: 2 us of polling each. If only C6 does, C1
        // draws 0.9967 of polling and costs 0.0067 us of it, 99.67 us in all, against 598 us for each exit.
        assert_eq!(
            text(&run([(0, 0), (10, 1_000), (0, 0)]), &sleeper),
            "teo uses no more energy than menu under all plausible powers (-83 % to 0 %)."
        );
        assert_eq!(
            text(&sleeper, &run([(0, 0), (10, 1_000), (0, 0)])),
            "teo uses no less energy than menu under all plausible powers (0 % to +500 %)."
        );
        // Ten stays of 1 ms. If only C1 saves, both cost the same; if only C6 does, it saves 40 %.
        let mixed = run([(1, 100), (9, 9_900), (0, 0)]);
        assert_eq!(
            text(&mixed, &run([(0, 0), (0, 0), (10, 10_000)])),
            "teo uses no less energy than menu under all plausible powers (0 % to +490 %)."
        );
        assert_eq!(
            text(&run([(1, 100), (9, 900), (0, 0)]), &sleeper),
            "Which one uses less energy depends on C6's power, which `idlewise measure power` finds: -83 % to +490 % is \
             plausible."
        );
        assert_eq!(text(&mixed, &mixed), "");
        // Published powers leave nothing open.
        let known = CostModel::of(&idlewise_machine::bundled("skx").unwrap()).unwrap();
        let run = |stay_ns| {
            let mut tally = Tally::default();
            tally.states[1].stay_ns = stay_ns;
            Plain::new(Delays::default(), &known, &tally)
        };
        assert_eq!(text(&run(1_000), &run(2_000)), "");
    }

    #[test]
    fn changes_are_in_plain_units() {
        let menu = plain(&[(2_000, 50), (290_000, 50)], 1_000.0);
        let words = |other: &Plain| other.instead_of(&menu, Basis::Assumed);
        assert_eq!(
            words(&plain(&[(2_000, 48), (290_000, 52)], 993.0)),
            "same p99, mean delay +3.9 %, energy -0.7 % (assumed power)"
        );
        assert_eq!(
            words(&plain(&[(2_000, 100)], 20_000.0)),
            "p99 2 µs instead of 290 µs, mean delay -98.6 %, energy 20 times as much (assumed power)"
        );
        // What would be shown as +0.0 % is the same.
        let near = plain(&[(2_000, 50), (290_000, 50)], 1_000.1);
        assert!(words(&near).contains("same energy") && !menu.has_more(&near), "{}", words(&near));
        let none = plain(&[(0, 3)], 1.0);
        let some = plain(&[(3_000, 3)], 1.0).instead_of(&none, Basis::Measured);
        assert!(
            some.contains("mean delay 3 µs instead of none") && some.ends_with("(measured power)"),
            "{some}"
        );
    }

    #[test]
    fn another_version_is_not_the_one_that_was_in_use() {
        let of = |exact: &str, is_named_port| InUse {
            exact: exact.to_owned(),
            is_named_port,
            is_recorded: true,
            ..InUse::default()
        };
        assert_eq!(of("menu-6.12", true).role_of("menu"), "in use");
        assert_eq!(of("menu-7.2", false).role_of("menu-7.2"), "in use");
        assert_eq!(of("menu-7.2", false).role_of("menu"), "menu-7.2 was in use");
        assert_eq!(InUse::default().role_of("menu-7.2"), "the kernel's default");
    }

    #[test]
    fn percentages_are_told_apart() {
        assert_eq!(percents(&[0.19, 0.72]), ["19 %", "72 %"]);
        assert_eq!(percents(&[0.213, 0.2149]), ["21.3 %", "21.5 %"]);
        assert_eq!(percents(&[0.213, 0.21301]), ["21.30 %", "21.30 %"]);
        assert_eq!(percents(&[0.213, 0.213]), ["21 %", "21 %"]);
    }
}
