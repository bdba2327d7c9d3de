//! `amd-mwait`: MWAIT instead of HALT where no driver is loaded.

mod model;

use idlewise_machine::boot::IdleRoutine;
use idlewise_sim::replay::Delays;

use crate::figure::Published::{Exactly, Nothing};
use crate::figure::*;
use crate::inputs::Origin::{Calibrated, Documented};
use model::{
    Findings, Headline, INPUTS, Percentile, SWITCHES, SWITCHES_MEDIAN, WAKES, WAKES_MEDIAN,
    WAKES_P99, headline, run,
};

pub(crate) const STUDY: Study = Study {
    name: "amd-mwait",
    claim: "Without a cpuidle driver, MWAIT C1 as default idle wakes faster than HALT on AMD Zen: \
            21.74 % at the 99th percentile of 10K wake-ups, 45.46 % more context switches.",
    source: "Wyes Karny, x86: Prefer MWAIT over HALT on AMD processors, v2, 5 May 2022",
    inputs: INPUTS,
    alternatives: &[],
    figures: |shelf, changes| Ok(figures(&headline(shelf, changes)?)),
    body: |shelf, changes| Ok(body(&run(shelf, changes)?)),
};

/// Published.
const WAKES_IMPROVEMENT_PERCENT: f64 = 21.74;
const SWITCHES_IMPROVEMENT_PERCENT: f64 = 45.46;
/// Less is no difference.
const DIFFERENCE_RATIO_MIN: f64 = 0.005;
/// Samples of a run.
const HALT_SAMPLES: f64 = 9_999.0;
const MWAIT_SAMPLES: f64 = 9_997.0;

fn figures(of: &Headline) -> Vec<Figure> {
    let exit_only_ratio = of.exit_only_per_s / of.halt_per_s - 1.0;
    let gain_ratio = of.mwait_per_s / of.halt_per_s - 1.0;
    let p99_ratio = WAKES_P99.halt as f64 / WAKES_P99.mwait as f64;
    let samples = |wakes: &Delays| (wakes.count() / of.run_count) as f64;
    let wake_us =
        |wakes: &Delays, row: Percentile<u64>| wakes.quantile_ns(row.ratio).map(|ns| ns as f64);
    figures! {
        "10K wakes, HALT, median", "ns", Exactly(WAKES_MEDIAN.halt as f64), Model,
            wake_us(&of.halt_wakes, WAKES_MEDIAN);
        "10K wakes, MWAIT, median", "ns", Exactly(WAKES_MEDIAN.mwait as f64), Model,
            wake_us(&of.mwait_wakes, WAKES_MEDIAN);
        "10K wakes, HALT, 99th percentile", "ns", Exactly(WAKES_P99.halt as f64), Model,
            wake_us(&of.halt_wakes, WAKES_P99);
        "10K wakes, MWAIT, 99th percentile", "ns", Exactly(WAKES_P99.mwait as f64), Model,
            wake_us(&of.mwait_wakes, WAKES_P99);
        "10K wakes, HALT, samples of a run", "", Exactly(HALT_SAMPLES), Model, samples(&of.halt_wakes);
        "10K wakes, MWAIT, samples of a run", "", Exactly(MWAIT_SAMPLES), Model, samples(&of.mwait_wakes);
        "\"Improvement (99th percentile)\": (HALT - MWAIT) / MWAIT", "%", Exactly(WAKES_IMPROVEMENT_PERCENT),
            Arithmetic, (p99_ratio - 1.0) * 100.0;
        "the same as a share of HALT: what is saved", "%", Nothing, Arithmetic, saved_ratio(WAKES_P99) * 100.0;
        "context_switch2, HALT, median", "1/s", Exactly(SWITCHES_MEDIAN.halt), Model, of.halt_per_s;
        "context_switch2, MWAIT, median: and no IPI", "1/s", Exactly(SWITCHES_MEDIAN.mwait), Model, of.mwait_per_s;
        "context_switch2, improvement: exit latency alone", "%", Exactly(SWITCHES_IMPROVEMENT_PERCENT), Model,
            exit_only_ratio * 100.0;
        "context_switch2, improvement: and no IPI", "%", Exactly(SWITCHES_IMPROVEMENT_PERCENT), Model,
            gain_ratio * 100.0;
    }
}

fn body(found: &Findings) -> Body {
    let Headline { halt_wakes, mwait_wakes, halt_per_s, mwait_per_s, exit_only_per_s, .. } =
        &found.headline;
    let by_store = &found.by_store;
    // Where context_switch2's time for one way goes.
    let published_ns = 1e9 / SWITCHES_MEDIAN.halt - 1e9 / SWITCHES_MEDIAN.mwait;
    let exit_ns = 1e9 / halt_per_s - 1e9 / exit_only_per_s;
    let ipi_ns = 1e9 / exit_only_per_s - 1e9 / mwait_per_s;
    let left_ns = published_ns - exit_ns - ipi_ns;
    let part = |ns: f64| share(ns / published_ns);
    let exit_only_ratio = exit_only_per_s / halt_per_s - 1.0;
    let gain_ratio = mwait_per_s / halt_per_s - 1.0;
    let captured = || found.decisions.iter().filter(|row| row.is_captured);
    let named = || captured().filter(|row| row.claimed.is_some());
    let others = || named().filter(|row| row.claimed != row.routine);
    let is_mwait = |routine| routine == Some(IdleRoutine::Mwait);
    Body {
        figures: figures(&found.headline),
        facts: facts! {
            "wake-up latencies of HALT and MWAIT, and their count", "the published percentiles",
                Calibrated(&["10K wakes"]),
                "the claim's table, uniform between two percentiles; ten runs of 10,000, so the figures beyond 99.9 % are chance";
            "context_switch2's work", format!("{} ns each way", found.headline.work_ns),
                Calibrated(&["context_switch2, HALT, median"]),
                "fitted to the published median under HALT";
            "one count of context_switch2 is one way", "1 wake-up", Documented,
                "the benchmark's source: it adds two for each round";
            "which idle routine is woken without an IPI", "MWAIT, but not HALT", Documented,
                "mwait_idle sets the polling flag, default_idle with HLT doesn't (arch/x86/kernel/process.c)";
        },
        grids: vec![
            table! {
                "10K wakes, all published rows (in ns; these went into the model, so they must agree)";
                WAKES, |row|
                "percentile" => row.name;
                "HALT" => row.halt;
                "ours" => or_dash(halt_wakes.quantile_ns(row.ratio), |ns| ns.to_string());
                "MWAIT" => row.mwait;
                "ours" => or_dash(mwait_wakes.quantile_ns(row.ratio), |ns| ns.to_string());
            }
            .detail(),
            table! {
                "Where context_switch2's time for one way goes (medians)";
                [
                    ("published difference of HALT and MWAIT", published_ns),
                    ("shorter exit latency", exit_ns),
                    ("no IPI: sending, delivery, interrupt at the receiver", ipi_ns),
                    ("unexplained", left_ns),
                ], |(name, ns)|
                "part" => name;
                "ns" => short(ns);
                "share of MWAIT's saving" => part(ns);
            },
            table! {
                "context_switch2, all published rows; ours is one rate, since nothing in the model varies from second to \
                 second";
                SWITCHES, |row|
                "percentile" => row.name;
                "HALT" => row.halt;
                "ours" => format!("{halt_per_s:.0}");
                "MWAIT" => row.mwait;
                "ours" => format!("{mwait_per_s:.0}");
                "published gain" => percent(row.mwait / row.halt - 1.0);
                "ours" => percent(gain_ratio);
            }
            .detail(),
            table! {
                "The decision tree without a driver, on machines of which there is a CPUID dump; claimed: HALT before \
                 family 17h, MWAIT from it on";
                &found.decisions, |row|
                "machine" => row.processor;
                "from" => if row.is_captured { "a dump" } else { "constructed" };
                "claimed" => or_dash(row.claimed, |routine| routine.to_string());
                "5.18" => row.in_5_18;
                "6.1" => row.in_6_1;
                "6.12, 7.2" => row.in_6_12;
                "why, in 6.12" => row.reason;
            },
        ],
        judgement: sentences! {
            "The published {WAKES_IMPROVEMENT_PERCENT} % is HALT over MWAIT: MWAIT saves {:.1} % of HALT's own 99th percentile and {} of its median.",
                saved_ratio(WAKES_P99) * 100.0, share(saved_ratio(WAKES_MEDIAN));
            "For context_switch2 the exit latency alone predicts {}, {} of the measured gain. That a polling idle task needs no IPI adds {} of it; {} stays unexplained.",
                percent(exit_only_ratio), part(exit_ns), part(ipi_ns), part(left_ns);
            "{}",
                if found.is_by_store {
                    "This assumes that stores caused the published wake-ups from MWAIT, as function calls to a polling CPU do since 5.8.".to_owned()
                } else {
                    format!("This assumes that IPIs caused the published wake-ups from MWAIT. If stores did, as for function calls to a polling CPU since 5.8, exit latency alone gives {}, and {} with the store.",
                        percent(by_store.exit_only_per_s / by_store.halt_per_s - 1.0),
                        percent(by_store.mwait_per_s / by_store.halt_per_s - 1.0))
                };
            "{} ({} here, {} measured at the median){}. The IPI's share rests on assumed costs.",
                if gain_ratio >= DIFFERENCE_RATIO_MIN {
                    "The claim's direction follows"
                } else if gain_ratio > -DIFFERENCE_RATIO_MIN {
                    "The claim does not follow: there is no difference"
                } else {
                    "The opposite of the claim follows"
                },
                percent(gain_ratio), percent(SWITCHES_MEDIAN.mwait / SWITCHES_MEDIAN.halt - 1.0),
                if gain_ratio < DIFFERENCE_RATIO_MIN {
                    ""
                } else if exit_ns < published_ns / 2.0 {
                    ", but \"the impact of improved wakeup latency\" gives exit latency too much: most of the gain must come from elsewhere, the IPI first"
                } else {
                    ", and most of it comes from the exit latency"
                };
            "Of {} captured machines, {} belong to families that the claim names; Linux 6.12 decides as claimed on {} of those. The exceptions: {}.",
                captured().count(), named().count(), named().count() - others().count(),
                others().map(|row| format!("{}, because {}", row.processor, row.reason)).collect::<Vec<_>>().join("; ");
            "With idle=nomwait, {} of the {} machines use MWAIT; the claim says none.",
                found.decisions.iter().filter(|row| is_mwait(row.without_mwait)).count(), found.decisions.len();
            "Other things decide too: erratum 400 (6.1 only), MONITOR errata, a CPUID that ends before leaf 5, TDX and Xen. `idlewise lab boot` explains each.";
        },
        plot: Plot {
            title: "Wake-up latency: calibrated, so lines must meet",
            x_label: "ns",
            y_label: "% of wake-ups",
            lines: [
                wake_lines("HALT", halt_wakes, |row| row.halt),
                wake_lines("MWAIT", mwait_wakes, |row| row.mwait),
            ]
            .concat(),
        },
    }
}

/// What MWAIT saves, of HALT's.
fn saved_ratio(row: Percentile<u64>) -> f64 {
    1.0 - row.mwait as f64 / row.halt as f64
}

fn wake_lines(name: &str, wakes: &Delays, published_ns: fn(&Percentile<u64>) -> u64) -> [Line; 2] {
    let ours = WAKES.iter().filter_map(|row| Some((wakes.quantile_ns(row.ratio)?, row.ratio)));
    let published = WAKES.iter().map(|row| (published_ns(row), row.ratio));
    let point = |(ns, ratio): (u64, f64)| (ns as f64, ratio * 100.0);
    [
        Line { name: format!("{name}, simulated"), points: ours.map(point).collect() },
        Line { name: format!("{name}, published"), points: published.map(point).collect() },
    ]
}

#[cfg(test)]
mod tests {
    use idlewise_core::Fixed;

    use super::*;
    use crate::inputs::{Input, Origin};
    use crate::sensitivity::{Label, examine};
    use crate::trial::Shelf;

    /// How many figures are simulated and how many predicted, if the inputs' origins were these.
    fn counts(inputs: &'static [Input]) -> (usize, usize) {
        // The machine has one state, so any governor does.
        let shelf = Shelf::new(&|_, _| Some(Box::new(Fixed::Deepest)));
        let body = (STUDY.body)(&shelf, &[]).unwrap();
        let study = Study { inputs, ..STUDY };
        let examined =
            examine(&study, &body.figures, &body.facts, &shelf, &Given::default()).unwrap();
        let count = |label| examined.iter().filter(|examined| examined.label == label).count();
        (count(Label::Simulated), count(Label::Predicted))
    }

    #[test]
    fn who_plants_an_assumption_as_documented_gets_other_labels() {
        let (simulated, predicted) = counts(INPUTS);
        assert!(simulated > 0);
        let planted = |input: &Input| match input.origin {
            Origin::Assumed => Input { origin: Documented, ..input.clone() },
            _ => input.clone(),
        };
        let planted: Vec<Input> = INPUTS.iter().map(planted).collect();
        assert_eq!(counts(planted.leak()), (0, simulated + predicted));
    }
}
