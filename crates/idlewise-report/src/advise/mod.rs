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
use idlewise_sim::replay::Delays;
use serde_json::json;

pub use self::columns::columns;
use self::judgement::{
    BEYOND_COUNT_MIN, Judge, P99, Side, interval, is_judged, per_cent, percent, power,
    quantile_name, time,
};
pub use self::judgement::{Estimate, Judgement};
use crate::notes::wrap;
use crate::statistics::RUN_COUNT_MIN;
use crate::{Notes, Table, TextStyle, counted};

mod columns;
mod judgement;

/// A smaller gain is not worth a change. Intervals that reach no further to the bad side count as equal.
const GAIN_MIN: f64 = 0.01;
/// The longest delay.
const WORST: f64 = 1.0;
/// Better in one thing for sure, perhaps worse in another, and no other trade is better than it in all.
const TRADE: &str = "trade";
/// So many trades are spelled out as choices. The table shows all.
const CHOICE_COUNT_MAX: usize = 3;
/// The least drastic candidate that gains this share of the most is recommended.
const NEARLY: f64 = 0.9;
/// So many candidates fit on a screen.
const ROW_COUNT_MAX: usize = 12;

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
    /// Its sum under each other power that the machine may have ([`CostModel::corners`](idlewise_sim::CostModel::corners)); empty
    /// where that is not known.
    pub corner_uj: Vec<f64>,
    /// The delays of the events of the CPUs that matter.
    pub delays: Vec<Delays>,
}

impl Slices {
    /// Makes empty slices.
    pub fn new(count: usize) -> Self {
        Slices {
            energy_uj: vec![0.0; count],
            corner_uj: Vec::new(),
            delays: vec![Delays::default(); count],
        }
    }

    /// Adds those of another CPU. Its delays count only if it is one that matters.
    pub fn add(&mut self, other: &Slices, with_delays: bool) {
        for (sum, energy_uj) in self.energy_uj.iter_mut().zip(&other.energy_uj) {
            *sum += energy_uj;
        }
        self.corner_uj.resize(self.corner_uj.len().max(other.corner_uj.len()), 0.0);
        for (sum, corner_uj) in self.corner_uj.iter_mut().zip(&other.corner_uj) {
            *sum += corner_uj;
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
    /// Of a limit that too few events are beyond to be sure of it.
    few: Option<String>,
    /// Bases and doubts.
    pub notes: Notes,
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
        let event_count = rows[0].event_count;
        let few = wishes.slos.iter().find(|slo| !is_judged(event_count, slo.ratio)).map(|slo| {
            format!(
                "with {}, fewer than {BEYOND_COUNT_MIN} are expected beyond p{}, so a longer recording may show longer \
                 delays",
                counted(event_count, "wake event"),
                per_cent(slo.ratio)
            )
        });
        few.iter().for_each(|few| notes.doubt(few));
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
            few,
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
                let few = self.few.as_ref().map_or(String::new(), |few| format!(" But {few}."));
                let now = match self.rows[0].verdict {
                    "" => String::new(),
                    verdict => format!(" As it is, the machine {verdict}."),
                };
                let powers = row.under_all_powers();
                format!("Recommended: {}. {}{powers}{now}{few}", row.shown_setting(), self.effect(row))
            }
            Outcome::LeaveAlone if self.rows[0].event_count == 0 => {
                "Leave it alone: the recording has no events on these CPUs.".to_owned()
            }
            Outcome::LeaveAlone if self.slice_count < RUN_COUNT_MIN => format!(
                "Leave it alone: the recording is too short to tell a gain from chance ({}).",
                self.too_few_slices()
            ),
            Outcome::LeaveAlone if !self.wishes.slos.is_empty() => {
                "Leave it alone: nothing that was tried clearly saves 1 % of the power, and the limits are kept."
                    .to_owned()
            }
            Outcome::LeaveAlone if !is_judged(self.rows[0].event_count, P99) => format!(
                "Leave it alone: with {} wake events, the recording is too short to judge the longest 1 % of the \
                 delays ({:.0} are needed).",
                self.rows[0].event_count,
                BEYOND_COUNT_MIN / (1.0 - P99)
            ),
            Outcome::LeaveAlone => "Leave it alone: nothing that was tried is sure to help without more power or longer \
                                    tail delays."
                .to_owned(),
            Outcome::Infeasible(nearest) => {
                let row = &self.rows[nearest.map_or(0, |index| index + 1)];
                let nearest = match nearest {
                    Some(_) => format!("{} comes nearest. {}", row.shown_setting(), self.effect(row)),
                    None => "The settings as they are come nearest.".to_owned(),
                };
                let why = match self.slice_count < RUN_COUNT_MIN {
                    true => format!(", because the recording is too short ({})", self.too_few_slices()),
                    false => String::new(),
                };
                let limits = self.limits_kept_by(row).map_or(String::new(), |limits| {
                    format!(" With {limits}, it would keep them.")
                });
                format!("Nothing that was tried clearly keeps all limits{why}. {nearest}{limits}")
            }
        }
    }

    /// The options that a row clearly keeps: the limits as they were given, or as wide as it needs them.
    fn limits_kept_by(&self, row: &Judgement) -> Option<String> {
        let rounded_up = |value: f64| {
            let step = 10_f64.powi((value.max(1.0).log10().floor() as i32 - 1).max(0));
            (value / step).ceil() * step
        };
        let slos = self.wishes.slos.iter().zip(&row.slo_delays);
        let slos: Option<Vec<String>> = slos
            .map(|(slo, delay)| {
                let us = (slo.limit_ns as f64 / 1e3).max(rounded_up(delay.high()? / 1e3));
                Some(format!("p{}={us:.0}us", (slo.ratio * 1e8).round() / 1e6))
            })
            .collect();
        let watts = match (self.wishes.power_max_mw, row.power_change_mw) {
            (Some(most_mw), Some(change)) => {
                format!(" --max-watts {}", most_mw.max(rounded_up(change.high()?)) / 1e3)
            }
            (Some(most_mw), None) => format!(" --max-watts {}", most_mw / 1e3),
            (None, _) => String::new(),
        };
        Some(format!("--slo {}{watts}", slos?.join(",")))
    }

    fn too_few_slices(&self) -> String {
        format!("{} of time, {RUN_COUNT_MIN} are needed", counted(self.slice_count, "slice"))
    }

    fn effect(&self, row: &Judgement) -> String {
        let mut text = match row.tails.is_empty() {
            true => "Delay p99 - → -".to_owned(),
            false => format!("Delay {}{}", self.limited_text(row), row.tail_text(|_| true)),
        };
        if let Some(change) = row.power_change_mw {
            text += &format!(", power {} ({})", power(change.value), interval(change, power));
        }
        if let Some(change) = row.cost_change.filter(|_| self.wishes.slos.is_empty()) {
            text += &format!(", cost {} ({})", percent(change.value), interval(change, percent));
        }
        text + "."
    }

    /// The delay of each limit in each row, with its 95 % interval, which decides whether the row keeps it.
    fn limited_delays(&self) -> serde_json::Value {
        let of_row = |row: &Judgement| -> Vec<_> {
            let delays = self.wishes.slos.iter().zip(&row.slo_delays);
            let delay = |(slo, delay): (&Slo, &Estimate)| {
                json!({
                    "setting": row.setting, "event_ratio": slo.ratio, "limit_ns": slo.limit_ns,
                    "delay_ns": delay.value, "low_ns": delay.low(), "high_ns": delay.high(),
                })
            };
            delays.map(delay).collect()
        };
        self.rows.iter().flat_map(of_row).collect::<Vec<_>>().into()
    }

    /// What has a limit and is no tail: `p50 2 µs → 3 µs, `.
    fn limited_text(&self, row: &Judgement) -> String {
        let delays = self.rows[0].slo_delays.iter().zip(&row.slo_delays);
        let limited = self.wishes.slos.iter().zip(delays);
        let is_shown = |ratio: f64| row.shown_tails().any(|tail| tail.ratio == ratio);
        limited
            .filter(|(slo, _)| !is_shown(slo.ratio))
            .map(|(slo, (before, after))| {
                let name = quantile_name(slo.ratio);
                format!("{name} {} → {}, ", time(before.value), time(after.value))
            })
            .collect()
    }

    /// Returns the indices of the trades that nobody asked for: none is beaten by another in both power and delay.
    /// The cheapest at the price of delay come first.
    pub fn choices(&self) -> Vec<usize> {
        let mut kept: Vec<usize> =
            (1..self.rows.len()).filter(|&at| self.rows[at].verdict == TRADE).collect();
        let cost = |at: &usize| self.rows[*at].cost_change.map_or(0.0, |change| change.value);
        kept.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        kept.iter().map(|at| at - 1).collect()
    }

    /// What would change the verdict.
    pub fn doubters(&self) -> Vec<String> {
        let mut texts = Vec::new();
        if !self.choices().is_empty() {
            texts.push("a limit on delay, such as --slo p99=50us".to_owned());
        }
        let Outcome::Change(index) = self.outcome else { return texts };
        let row = &self.rows[index + 1];
        let limited = self.wishes.slos.iter().map(|slo| slo.ratio).fold(0.0, f64::max);
        let beyond =
            row.tails.iter().filter(|tail| tail.ratio > limited && tail.ns > tail.before_ns);
        if let Some(tail) = beyond.min_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
            texts.push(format!(
                "a limit on the tail, which your limits leave open and which gets longer: --slo {}=50us",
                if tail.ratio == WORST { "p100".to_owned() } else { tail.name() }
            ));
        }
        texts.push(
            match self.judged_by {
                JudgedBy::Replay => {
                    "a workload that does something else once its delays change, which a replay cannot show; test the \
                     setting on your own benchmark: `idlewise try`"
                }
                JudgedBy::Predict => {
                    "waits that did not happen in the recording, timeouts, and tasks that run at another speed; test the \
                     setting on your own benchmark: `idlewise try`"
                }
            }
            .to_owned(),
        );
        texts.push(
            "exit latencies other than those of the machine file; measure them (`idlewise measure states`) and pass the file \
             with --machine"
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
            "{}, {:.1} s in {}, {} {}: {} under {}; judged by {}",
            self.log,
            self.span_ns as f64 / 1e9,
            counted(self.slice_count, "slice"),
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
        // The answer first, then what it rests on.
        let mut text = wrap(&self.sentence(), style.width, 2) + "\n";
        text += &self.choices_text(style.width);
        text += &format!("\n{}\n\n{}", wrap(&title, style.width, 0), table.to_text(style));
        if hidden_count > 0 {
            text += &format!(
                "Left out for gaining less: {}; --json has all.\n",
                counted(hidden_count, "candidate")
            );
        }
        let doubters = self.doubters();
        text += if doubters.is_empty() { "" } else { "\nWhat would change this verdict:\n" };
        for doubter in doubters {
            text += &wrap(&format!("- {doubter}"), style.width, 2);
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
        let head = "Trade-offs that you may choose; none is recommended:";
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
            "limited_delays": self.limited_delays(),
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
    let is_limited = !wishes.slos.is_empty() || wishes.power_max_mw.is_some();
    for (index, row) in rows.iter_mut().enumerate() {
        row.verdict = match (row.keeps(wishes), row.gain(wishes, before_mw)) {
            (false, _) if row.seems_to_keep(wishes) => "may exceed a limit",
            (false, _) => "exceeds a limit",
            _ if index == 0 => "",
            (true, _) if wishes.slos.is_empty() && row.is_trade() => {
                if is_judged(row.event_count, P99) { TRADE } else { "too few events to judge" }
            }
            (true, _) if is_limited && !row.has_intervals() => "perhaps keeps limits",
            (true, Some(_)) if is_limited => "keeps limits, saves power",
            (true, Some(_)) => "pays",
            (true, None) if !keeps_now => "keeps limits",
            (true, None) if wishes.slos.is_empty() && row.power_side() == Side::Worse => {
                "costs power"
            }
            (true, None) => "no certain gain",
        };
    }
    let trades: Vec<usize> = (0..rows.len()).filter(|&at| rows[at].verdict == TRADE).collect();
    let is_beaten = |at: usize| {
        let others = trades.iter().filter(|other| **other != at);
        others.copied().any(|other| rows[at].is_beaten_by(&rows[other], other < at))
    };
    let beaten: Vec<usize> = trades.iter().copied().filter(|at| is_beaten(*at)).collect();
    beaten.into_iter().for_each(|at| rows[at].verdict = "trade, another is better");
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
        Some(index) if rows[index + 1].has_intervals() => {
            rows[index + 1].verdict = "recommended";
            Outcome::Change(index)
        }
        _ if keeps_now => Outcome::LeaveAlone,
        _ => {
            // By the estimates, which is what the table shows: intervals of a short recording can be wider than all that
            // is between them. The cheapest, if several keep the limits or exceed them alike.
            let distance = |row: &Judgement| row.likely_distance(wishes);
            let nearest = (0..rows.len()).min_by(|&a, &b| {
                let [a, b] = [a, b].map(|index| &rows[index]);
                distance(a).total_cmp(&distance(b)).then(a.power_mw.total_cmp(&b.power_mw))
            });
            let nearest = nearest.and_then(|index| index.checked_sub(1));
            if let Some(index) = nearest {
                rows[index + 1].verdict = "nearest";
            }
            Outcome::Infeasible(nearest)
        }
    }
}

#[cfg(test)]
mod tests;
