//! `amd-mwait`: MWAIT instead of HALT where no driver is loaded.

use idlewise_core::boot::IdleParameter;
use idlewise_sim::replay::Delays;
use idlewise_sim::study::amd_mwait::{
    Findings, IPI, Percentile, SWITCHES, SWITCHES_MEDIAN, WAKES, WAKES_MEDIAN, WAKES_P99, run,
};

use super::Origin::{Assumed, Calibrated, Documented};
use super::Published::{Exactly, Nothing};
use super::*;

pub(super) const STUDY: Study = Study {
    name: "amd-mwait",
    claim: "Without a cpuidle driver, MWAIT C1 as default idle wakes faster than HALT on AMD Zen: \
            21.74 % at the 99th percentile of 10K wake-ups, 45.46 % more context switches.",
    source: "Wyes Karny, x86: Prefer MWAIT over HALT on AMD processors, v2, 5 May 2022",
    page: |shelf| Ok(page(&run(shelf)?)),
};

/// Published.
const WAKES_IMPROVEMENT_PERCENT: f64 = 21.74;
const SWITCHES_IMPROVEMENT_PERCENT: f64 = 45.46;
/// Samples of a run.
const HALT_SAMPLES: f64 = 9_999.0;
const MWAIT_SAMPLES: f64 = 9_997.0;

fn page(found: &Findings) -> Page {
    let Findings { hardware, halt_wakes, mwait_wakes, halt_per_s, mwait_per_s, .. } = found;
    // Where context_switch2's time for one way goes.
    let published_ns = 1e9 / SWITCHES_MEDIAN.halt - 1e9 / SWITCHES_MEDIAN.mwait;
    let exit_ns = 1e9 / halt_per_s - 1e9 / found.exit_only_per_s;
    let ipi_ns = 1e9 / found.exit_only_per_s - 1e9 / mwait_per_s;
    let left_ns = published_ns - exit_ns - ipi_ns;
    let part = |ns: f64| share(ns / published_ns);
    let exit_only_ratio = found.exit_only_per_s / halt_per_s - 1.0;
    let gain_ratio = mwait_per_s / halt_per_s - 1.0;
    let p99_ratio = WAKES_P99.halt as f64 / WAKES_P99.mwait as f64;
    let p99_saved_ratio = saved_ratio(WAKES_P99);
    let named = || found.decisions.iter().filter(|row| row.claimed.is_some());
    let samples = |wakes: &Delays| (wakes.count() / found.run_count) as f64;
    let figures = figures! {
        "10K wakes, HALT, samples of a run", "", Exactly(HALT_SAMPLES), Calibrated, samples(halt_wakes);
        "10K wakes, MWAIT, samples of a run", "", Exactly(MWAIT_SAMPLES), Calibrated, samples(mwait_wakes);
        "\"Improvement (99th percentile)\": (HALT - MWAIT) / MWAIT", "%", Exactly(WAKES_IMPROVEMENT_PERCENT),
            Arithmetic, (p99_ratio - 1.0) * 100.0;
        "the same as a share of HALT: what is saved", "%", Nothing, Arithmetic, p99_saved_ratio * 100.0;
        "context_switch2, HALT, median", "1/s", Exactly(SWITCHES_MEDIAN.halt), Calibrated, *halt_per_s;
        "context_switch2, MWAIT, median: exit latency alone", "1/s", Exactly(SWITCHES_MEDIAN.mwait), Predicted,
            found.exit_only_per_s;
        "context_switch2, MWAIT, median: and no IPI", "1/s", Exactly(SWITCHES_MEDIAN.mwait), Simulated, *mwait_per_s;
        "context_switch2, improvement: exit latency alone", "%", Exactly(SWITCHES_IMPROVEMENT_PERCENT), Predicted,
            exit_only_ratio * 100.0;
        "context_switch2, improvement: and no IPI", "%", Exactly(SWITCHES_IMPROVEMENT_PERCENT), Simulated,
            gain_ratio * 100.0;
    };
    let wakes = wake_figures("HALT", halt_wakes, |row| row.halt);
    let wakes = wakes.chain(wake_figures("MWAIT", mwait_wakes, |row| row.mwait));
    Page {
        figures: wakes.chain(figures).collect(),
        inputs: inputs! {
            "wake-up latencies of HALT and MWAIT, and their count", "the published percentiles",
                Calibrated(&["10K wakes"]),
                "the claim's table; uniform between two percentiles; ten runs of 10,000, of which each has ten or fewer \
                 beyond 99.9 %: what differs there is chance";
            "context_switch2's work", format!("{} ns each way", found.work_ns),
                Calibrated(&["context_switch2, HALT, median"]),
                "what the published median under HALT leaves beside the wake-up";
            "one count of context_switch2 is one way", "1 wake-up", Documented,
                "the benchmark's source: it adds two for each round";
            "who needs no IPI", "MWAIT, not HALT", Documented,
                "mwait_idle sets the polling flag, default_idle with HLT doesn't (arch/x86/kernel/process.c)";
            "IPI: send, delivery, receive", format!("{} + {} + {} ns", IPI.send_ns, IPI.delivery_ns, IPI.receive_ns),
                Assumed, "order of published x2APIC measurements; the sensitivity table varies it";
            "store to the monitored line", format!("{} + {} ns", hardware.store_ns, hardware.store_delivery_ns), Assumed,
                "a cache line's way";
        },
        grids: vec![
            table! {
                "Where context_switch2's time for one way goes (median; published: what has to be explained)";
                [
                    ("published difference of HALT and MWAIT", published_ns, "arithmetic"),
                    ("shorter exit latency", exit_ns, "predicted"),
                    (
                        "no IPI: sending, delivery, interrupt at the receiver",
                        ipi_ns,
                        "simulated, from assumed IPI costs",
                    ),
                    ("unexplained", left_ns, "rest"),
                ], |(name, ns, role)|
                "part" => name;
                "ns" => short(ns);
                "share of what MWAIT saved" => part(ns);
                "role" => role;
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
            },
            table! {
                "The decision tree without a driver, by CPUID; claimed: HALT before family 17h, MWAIT from it on, HALT \
                 with idle=nomwait, a driver's own states if there is one";
                &found.decisions, |row|
                "processor" => row.processor;
                "command line" => if row.parameter == IdleParameter::NoMwait { "idle=nomwait" } else { "-" };
                "claimed" => or_dash(row.claimed, |routine| routine.to_string());
                "ours" => row.routine;
                "why" => row.reason;
            },
            matrix(
                "Sensitivity of the gain to what an IPI costs (assumed; HALT is calibrated anew)",
                "sending",
                &found.by_send_and_receive_ns,
                |send_ns| format!("{send_ns} ns"),
                |receive_ns| format!("receiver {receive_ns} ns"),
                |gain_ratio| percent(*gain_ratio),
            ),
        ],
        judgement: sentences! {
            "The {WAKES_IMPROVEMENT_PERCENT} % is HALT over MWAIT; of HALT's own 99th percentile {:.1} % are saved. The \
             median falls by {}.",
                p99_saved_ratio * 100.0, share(saved_ratio(WAKES_MEDIAN));
            "Exit latency alone predicts {} for context_switch2, {} of what was measured; that a polling idle task needs \
             no IPI adds {} of it; {} stays unexplained.",
                percent(exit_only_ratio), part(exit_ns), part(ipi_ns), part(left_ns);
            "So the claim's direction follows ({} here, {} measured at the median), but calling it \"the impact of \
             improved wakeup latency\" gives exit latency {}. The IPI's share rests on assumed costs: by them the whole \
             gain ranges over the sensitivity table.",
                percent(gain_ratio), percent(SWITCHES_MEDIAN.mwait / SWITCHES_MEDIAN.halt - 1.0),
                if exit_ns < published_ns / 2.0 {
                    "too much: most of the gain must come from elsewhere, the IPI first"
                } else {
                    "its due"
                };
            "The decision tree follows: {} of the {} cases that the claim names decide as claimed.",
                named().filter(|row| row.claimed == Some(row.routine)).count(), named().count();
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

fn wake_figures(
    name: &str,
    wakes: &Delays,
    published_ns: fn(&Percentile<u64>) -> u64,
) -> impl Iterator<Item = Figure> {
    WAKES.iter().flat_map(move |row| {
        let ours_ns = wakes.quantile_ns(row.ratio).map(|ns| ns as f64);
        figures! {
            format!("10K wakes, {name}, {}", row.name), "ns", Exactly(published_ns(row) as f64), Calibrated, ours_ns;
        }
    })
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
