//! `promotion`: a timer that gets a CPU out of a shallow state.

use idlewise_sim::study::promotion::{BURST_COUNT, Escape, Findings, SIBLING_QUIET_NS, run};

use super::Origin::{Assumed, Calibrated, Documented};
use super::Published::{Above, Between, Exactly, Nothing};
use super::*;

pub(super) const STUDY: Study = Study {
    name: "promotion",
    claim: "A CPU mispredicted into stop0_lite stays there for more than a second; with the tick kept, 4 \
            to 12 ms; with a timer at the next state's residency + 2 × its latency, 144 to 192 us in 6 \
            to 8 rounds, 960 us to stop2.",
    source: "Abhishek Goel, Auto-promotion logic for cpuidle states, v2, 5 April 2019",
    page: |shelf| Ok(page(&run(shelf)?)),
};

const KEPT_MIN_MS: f64 = 4.0;
const KEPT_MAX_MS: f64 = 12.0;
const TIMER_MIN_US: f64 = 144.0;
const TIMER_MAX_US: f64 = 192.0;
const TO_STOP2_US: f64 = 960.0;
/// How many rounds the author expected.
const ROUND_COUNT: f64 = 8.0;

fn page(found: &Findings) -> Page {
    let Findings { machine, hardware, bursts, stopped, kept, timer, to_stop2, .. } = found;
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    let p99 = |found: &Escape| found.out.quantile_ns(0.99);
    let latencies = |name| {
        let state = state(machine, name);
        format!("{}/{}", us(state.exit_latency_ns), us(state.target_residency_ns))
    };
    let Findings { stopped_siblings, kept_siblings, timer_siblings, .. } = found;
    let given_back_ratio = 1.0 / (stopped_siblings.one / timer_siblings.one) - 1.0;
    let quiet = span(SIBLING_QUIET_NS);
    let tick_ms = 1e3 / hardware.hz as f64;
    let cost_us = us(found.promotion_cost_ns);
    Page {
        figures: figures! {
            "tick stopped: longest time in lite after a burst", "ms", Above(1_000.0), Predicted, ms(stopped.stuck_ns);
            "tick kept: min", "ms", Exactly(KEPT_MIN_MS), Predicted, ms(kept.out.min_ns());
            "tick kept: max", "ms", Exactly(KEPT_MAX_MS), Predicted, ms(kept.out.max_ns());
            "tick kept: 99th percentile", "ms", Exactly(KEPT_MIN_MS), Predicted, ms(p99(kept));
            "timer: min", "us", Exactly(TIMER_MIN_US), Predicted, timer.out.min_ns().map(us);
            "timer: max", "us", Exactly(TIMER_MAX_US), Predicted, timer.out.max_ns().map(us);
            "timer: 99th percentile", "us", Exactly(TIMER_MIN_US), Predicted, p99(timer).map(us);
            "timer: rounds", "", Between(6.0, ROUND_COUNT), Predicted, timer.rounds.as_ref().map(|r| *r.end() as f64);
            "timer, to stop2", "us", Exactly(TO_STOP2_US), Predicted, to_stop2.out.mean_ns().map(|ns| ns / 1e3);
            "throughput of one computing sibling, promotion against stuck", "%", Nothing, Simulated,
                given_back_ratio * 100.0;
            "timer's length: residency + 2 × latency, stop0 next", "us", Exactly(24.0), Arithmetic, us(found.timer_ns);
            format!("{ROUND_COUNT} rounds of it"), "us", Exactly(TIMER_MAX_US), Arithmetic,
                ROUND_COUNT * us(found.timer_ns);
            format!("{ROUND_COUNT} rounds of it, stop2 next"), "us", Exactly(TO_STOP2_US), Arithmetic,
                ROUND_COUNT * us(found.timer_to_stop2_ns);
        },
        inputs: inputs! {
            "stop0, stop2", format!("{}, {} us", latencies("stop0"), latencies("stop2")), Calibrated(&[]),
                "the claim's example; nothing was fitted";
            "stop0_lite", format!("{} us", latencies("stop0_lite")), Documented, "skiboot's hw/slw.c";
            "timer", "next residency + 2 × next latency", Calibrated(&[]), "the claim's formula";
            "governor", "menu of Linux 6.1.192", Documented,
                "our port, bit-exact; the claim is of 5.0, whose history logic is the same";
            "HZ", hardware.hz, Calibrated(&[]), "the claim";
            "the burst", format!("{} interrupts {} apart", bursts.burst_count, span(bursts.burst_gap_ns)), Assumed,
                "so that idles are lite's length (10 to 20 us), else lite is not chosen; varied below";
            "time between bursts", format!("{} and more", span(bursts.quiet_ns)), Assumed, "long enough to be stuck";
            "the kernel's own timer", or_dash(hardware.housekeeping_ns, |ns| format!("every {}", span(ns))), Documented,
                "the soft lockup watchdog's";
            "SMT: 2, 3 and 4 threads", format!("{}, {}, {1}", hardware.smt2_speed, hardware.smt4_speed), Assumed,
                "of a thread alone";
            "timer interrupt", format!("{} us", us(hardware.irq_entry_ns)), Assumed,
                "on top of stop0_lite's exit, for the timers' cost";
        },
        grids: vec![
            table! {
                "How long CPU 0 stays in stop0_lite after a burst ({BURST_COUNT} bursts)";
                [
                    ("tick stopped, no promotion", stopped),
                    ("tick kept", kept),
                    ("promotion timer", timer),
                    ("promotion timer, stop0 disabled", to_stop2),
                ], |(name, escape)|
                "case" => name;
                "min" => time(escape.out.min_ns());
                "mean" => or_dash(escape.out.mean_ns(), |ns| format!("{} us", short(ns / 1e3)));
                "max" => time(escape.out.max_ns());
                "rounds" => rounds(escape);
                "promotions a burst" => short(escape.promotions_a_burst);
                "longest without getting out" => time(escape.stuck_ns);
                "power mW" => short(escape.power_mw);
            },
            table! {
                "What the siblings compute while CPU 0 idles, mostly (bursts {quiet} apart; of: promotion timer)";
                [
                    ("tick stopped, no promotion", stopped_siblings),
                    ("tick kept", kept_siblings),
                    ("promotion timer", timer_siblings),
                ], |(name, siblings)|
                "case" => name;
                "1 sibling" => percent(siblings.one / timer_siblings.one - 1.0);
                "2 siblings" => percent(siblings.two / timer_siblings.two - 1.0);
                "3 siblings" => percent(siblings.three / timer_siblings.three - 1.0);
            },
            matrix(
                "Sensitivity: time to get out by the promotion timer, by governor and by what the burst was like",
                "governor",
                &found.by_governor_and_gap_ns,
                |governor| governor.to_string(),
                |gap_ns| format!("{} bursts", span(*gap_ns)),
                |escape| match (escape.out.mean_ns(), &escape.rounds) {
                    (Some(ns), Some(rounds)) => {
                        format!("{} us, {} rounds", short(ns / 1e3), rounds.end())
                    }
                    _ => "never in lite, or never out".to_owned(),
                },
            ),
            table! {
                "Sensitivity: time to get out if the burst is less regular (each of its gaps longer by up to so much)";
                &found.by_jitter_ns, |At { at, found }|
                "up to us" => us(*at);
                "tick kept: min to max ms" => range(&found.kept, 1e6);
                "ticks" => rounds(&found.kept);
                "timer: min to max us" => range(&found.timer, 1e3);
                "rounds" => rounds(&found.timer);
            },
        ],
        judgement: sentences! {
            "Without tick and without promotion the CPU stays until its next event: {} ms where bursts are at least \
             {} ms apart. \"More than a second\" follows; it lasts as long as nothing happens.",
                or_dash(ms(stopped.stuck_ns), short), short(bursts.quiet_ns as f64 / 1e6);
            "With the tick kept menu needs {} ticks, {} ms: what the author expected ({ROUND_COUNT}), not what he \
             measured ({KEPT_MIN_MS} to {KEPT_MAX_MS} ms, so {} to {} ticks). Stays that a tick ended all count 45 ms, \
             and menu drops equal outliers together, so nearly all {ROUND_COUNT} must be replaced. Less regular bursts \
             shorten it (table): the measured system must have had other wake-ups in between. Its 99th percentile of \
             {KEPT_MIN_MS} ms can't stand beside a maximum of {KEPT_MAX_MS} ms in {BURST_COUNT} samples.",
                rounds(kept), range(kept, 1e6), KEPT_MIN_MS / tick_ms, KEPT_MAX_MS / tick_ms;
            "With the promotion timer {} us in {} rounds follow from menu's history alone; published are \
             {TIMER_MIN_US} to {TIMER_MAX_US} us, and 6 to 7 rounds seen of {ROUND_COUNT} expected. Stays of {} us \
             among shorter ones are no outliers: once there are enough of them, the mean is over stop0's {} us.",
                range(timer, 1e3), rounds(timer), us(found.timer_ns), us(state(machine, "stop0").target_residency_ns);
            "To stop2 it is {} us in {} rounds ({TO_STOP2_US} us by the claim's formula): there the {ROUND_COUNT} rounds \
             are real, because stays of {} us are outliers that menu drops together.",
                or_dash(to_stop2.out.mean_ns(), |ns| short(ns / 1e3)), rounds(to_stop2), us(found.timer_to_stop2_ns);
            "One computing sibling gains {} over the stuck case from SMT folding, by assumed SMT speeds (bursts {quiet} \
             apart); with three nothing is gained, since a core of three threads runs as slowly as one of four. The \
             timers cost {} us of the idle CPU a burst, at {} us a piece.",
                percent(given_back_ratio), short(timer.promotions_a_burst * cost_us), short(cost_us);
        },
        plot: plot(found),
    }
}

fn time(ns: Option<u64>) -> String {
    or_dash(ns, |ns| format!("{} us", short(us(ns))))
}

fn rounds(escape: &Escape) -> String {
    or_dash(escape.rounds.as_ref(), |rounds| format!("{} to {}", rounds.start(), rounds.end()))
}

fn range(escape: &Escape, unit_ns: f64) -> String {
    let text = |ns| short(ns as f64 / unit_ns);
    or_dash(escape.out.min_ns().zip(escape.out.max_ns()), |(least_ns, most_ns)| {
        format!("{} to {}", text(least_ns), text(most_ns))
    })
}

fn plot(found: &Findings) -> Plot {
    let lines = found.by_governor_and_gap_ns.iter().map(|At { at, found }| {
        let points =
            found.iter().filter_map(|row| Some((us(row.at), row.found.out.mean_ns()? / 1e3)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { name: at.to_string(), points }
    });
    Plot {
        title: "Time in stop0_lite with the promotion timer",
        x_label: "time between interrupts of the burst, us",
        y_label: "us until deeper",
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}
