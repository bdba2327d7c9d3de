//! `promotion`: a timer that gets a CPU out of a shallow state.

mod model;

use crate::figure::Published::{Above, Between, Exactly, Nothing};
use crate::figure::*;
use crate::inputs::Origin::Documented;
use crate::trial::At;
use model::{BURST_COUNT, Escape, Findings, Headline, INPUTS, headline, run};

pub(crate) const STUDY: Study = Study {
    name: "promotion",
    claim: "A CPU mispredicted into stop0_lite stays there for more than a second; with the tick kept, 4 \
            to 12 ms; with a timer at the next state's residency + 2 × its latency, 144 to 192 us in 6 \
            to 8 rounds, 960 us to stop2.",
    source: "Abhishek Goel, Auto-promotion logic for cpuidle states, v2, 5 April 2019",
    inputs: INPUTS,
    alternatives: &[],
    figures: |shelf, changes| Ok(figures(&headline(shelf, changes)?)),
    body: |shelf, changes| Ok(body(&run(shelf, changes)?)),
};

const KEPT_MIN_MS: f64 = 4.0;
const KEPT_MAX_MS: f64 = 12.0;
/// His tick, whatever the HZ that is studied.
const KEPT_TICK_MS: f64 = 4.0;
const TIMER_MIN_US: f64 = 144.0;
const TIMER_MAX_US: f64 = 192.0;
const TO_STOP2_US: f64 = 960.0;
/// How many rounds the author expected.
const ROUND_COUNT: f64 = 8.0;
/// Measured: kernel/tests/judge, Linux 6.12.117 of Debian in QEMU, menu, sleeps of 20 ms after 12 short ones.
const REAL: &str = "the kernel module's test (Linux 6.12 in QEMU, 250 Hz, `make test-kernel`) measures 7 to 13 ms, 9 ms on \
                    average";

fn ms(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e6)
}

fn figures(of: &Headline) -> Vec<Figure> {
    let Headline { stopped, kept, timer, to_stop1, to_stop2, .. } = of;
    let p99 = |found: &Escape| found.out.quantile_ns(0.99);
    let mean_us = |found: &Escape| found.out.mean_ns().map(|ns| ns / 1e3);
    figures! {
        "tick stopped: longest time in lite after a burst", "ms", Above(1_000.0), Model, ms(stopped.stuck_ns);
        "tick kept: min", "ms", Exactly(KEPT_MIN_MS), Model, ms(kept.out.min_ns());
        "tick kept: max", "ms", Exactly(KEPT_MAX_MS), Model, ms(kept.out.max_ns());
        "tick kept: 99th percentile", "ms", Exactly(KEPT_MIN_MS), Model, ms(p99(kept));
        "timer: min", "us", Exactly(TIMER_MIN_US), Model, timer.out.min_ns().map(us);
        "timer: max", "us", Exactly(TIMER_MAX_US), Model, timer.out.max_ns().map(us);
        "timer: 99th percentile", "us", Exactly(TIMER_MIN_US), Model, p99(timer).map(us);
        "timer: rounds, at most", "", Between(6.0, 7.0), Model, timer.rounds.as_ref().map(|r| *r.end() as f64);
        "timer, to stop1", "us", Nothing, Model, mean_us(to_stop1);
        "timer, to stop2", "us", Exactly(TO_STOP2_US), Model, mean_us(to_stop2);
        "one computing sibling: promotion against stuck", "%", Nothing, Model,
            given_back_ratio(of) * 100.0;
        "timer's length: residency + 2 × latency, stop0 next", "us", Exactly(24.0), Arithmetic, us(of.timer_ns);
        "8 rounds of it", "us", Exactly(TIMER_MAX_US), Arithmetic, ROUND_COUNT * us(of.timer_ns);
        "8 rounds of it, stop1 next", "us", Nothing, Arithmetic, ROUND_COUNT * us(of.timer_to_stop1_ns);
        "8 rounds of it, stop2 next", "us", Exactly(TO_STOP2_US), Arithmetic,
            ROUND_COUNT * us(of.timer_to_stop2_ns);
    }
}

fn given_back_ratio(of: &Headline) -> f64 {
    of.timer_siblings.one / of.stopped_siblings.one - 1.0
}

fn body(found: &Findings) -> Body {
    let Findings { inputs, headline, machine, .. } = found;
    let Headline { stopped, kept, timer, to_stop1, to_stop2, .. } = headline;
    let Headline { stopped_siblings, kept_siblings, timer_siblings, .. } = headline;
    let quiet = format!("{} ms", inputs.sibling_quiet_ms);
    let cost_us = us(headline.promotion_cost_ns);
    let lite = state(machine, "stop0_lite");
    let by_gap = found.by_governor_and_gap_ns.first().map_or(&[][..], |row| &row.found[..]);
    Body {
        figures: figures(headline),
        facts: facts! {
            "stop0_lite", format!("{}/{} us", us(lite.exit_latency_ns), us(lite.target_residency_ns)), Documented,
                "skiboot's hw/slw.c";
            "timer", "next residency + 2 × next latency", Documented, "the claim's formula";
            "governor", "menu of Linux 6.1.192", Documented,
                "our port, bit-exact; the claim is of 5.0, whose history logic is the same";
        },
        grids: vec![
            table! {
                "How long CPU 0 stays in stop0_lite after a burst ({BURST_COUNT} bursts)";
                [
                    ("tick stopped, no promotion", stopped),
                    ("tick kept", kept),
                    ("promotion timer", timer),
                    ("promotion timer, stop0 disabled", to_stop1),
                    ("promotion timer, stop0 and stop1 disabled", to_stop2),
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
                "What the siblings compute while CPU 0 is mostly idle (bursts {quiet} apart; against the promotion timer)";
                [
                    ("tick stopped, no promotion", stopped_siblings),
                    ("tick kept", kept_siblings),
                    ("promotion timer", timer_siblings),
                ], |(name, siblings)|
                "case" => name;
                "1 sibling" => percent(siblings.one / timer_siblings.one - 1.0);
                "2 siblings" => percent(siblings.two / timer_siblings.two - 1.0);
                "3 siblings" => percent(siblings.three / timer_siblings.three - 1.0);
            }
            .detail(),
            matrix(
                "Time to get out by the promotion timer (by governor, and by the time between the burst's interrupts; -: never in stop0_lite, or never out)",
                "governor",
                &found.by_governor_and_gap_ns,
                |governor| governor.to_string(),
                |gap_ns| format!("{} bursts", span(*gap_ns)),
                |escape| match (escape.out.mean_ns(), &escape.rounds) {
                    (Some(ns), Some(rounds)) => {
                        format!("{} us, {} rounds", short(ns / 1e3), rounds.end())
                    }
                    _ => "-".to_owned(),
                },
            ),
            table! {
                "Time to get out if the burst is less regular (each gap longer by a random time)";
                &found.by_jitter_ns, |At { at, found }|
                "up to us" => us(*at);
                "tick kept: min to max ms" => range(&found.kept, 1e6);
                "ticks" => rounds(&found.kept);
                "timer: min to max us" => range(&found.timer, 1e3);
                "rounds" => rounds(&found.timer);
            },
        ],
        judgement: sentences! {
            "{}",
                stopped_text(stopped, inputs.quiet_ms);
            "With the tick kept, {}. The author expected {ROUND_COUNT} ticks and measured {KEPT_MIN_MS} to {KEPT_MAX_MS} ms ({} to {} ticks): {}. For comparison, {REAL}. In the simulation only the tick replaces the stays that menu remembers from the burst; how many it must replace depends on how regular the burst was (table). A 99th percentile of {KEPT_MIN_MS} ms is impossible for {BURST_COUNT} samples whose maximum is {KEPT_MAX_MS} ms.",
                way_out(kept, |kept| format!("menu needs {} ticks here, {} ms", rounds(kept), range(kept, 1e6))),
                KEPT_MIN_MS / KEPT_TICK_MS, KEPT_MAX_MS / KEPT_TICK_MS, against_measured(kept);
            "With the promotion timer {}; {TIMER_MIN_US} to {TIMER_MAX_US} us and 6 to 7 rounds were published. The burst decides: the stays that menu remembers from it count in its mean until the timer's {} us outweigh them. {}",
                way_out(timer, |timer| format!("it takes {} us and {} rounds", range(timer, 1e3), rounds(timer))),
                us(headline.timer_ns), by_gap_text(by_gap);
            "To stop1 {}, and to stop2 {} ({} us and {ROUND_COUNT} rounds by the claim's formula).",
                way_out(to_stop1, |to| format!("it takes {} us in {} rounds", mean(to), rounds(to))),
                way_out(to_stop2, |to| format!("{} us in {}", mean(to), rounds(to))),
                ROUND_COUNT * us(headline.timer_to_stop2_ns);
            "{} Three siblings gain {}, because a core with three threads is assumed to run as slowly as one with four. The timers cost the idle CPU {} us a burst, at {} us each.",
                folding_text(given_back_ratio(headline), 1.0 / inputs.smt2_speed - 1.0, &quiet),
                percent(timer_siblings.three / stopped_siblings.three - 1.0),
                short(timer.promotions_a_burst * cost_us), short(cost_us);
        },
        plot: plot(found),
    }
}

/// A CPU is caught if it stays through most of the pause that follows a burst.
fn stopped_text(stopped: &Escape, quiet_ms: f64) -> String {
    let longest = ms(stopped.stuck_ns);
    match longest.filter(|longest_ms| *longest_ms > quiet_ms / 2.0) {
        Some(longest_ms) => format!(
            "With the tick stopped and no promotion the CPU stays in stop0_lite until its next event: {} ms with bursts at least {} ms apart. So \"more than even a second\" says how long the author's system was quiet.",
            short(longest_ms),
            short(quiet_ms)
        ),
        None => format!(
            "With the tick stopped and no promotion these bursts do not catch the CPU in stop0_lite{}, so there is nothing to get out of.",
            longest.map_or_else(String::new, |ms| format!(
                ": its longest stay there is {} ms",
                short(ms)
            ))
        ),
    }
}

/// How a CPU gets out, if any burst ever caught it and it did.
fn way_out(escape: &Escape, text: impl FnOnce(&Escape) -> String) -> String {
    match escape.out.min_ns() {
        Some(_) => text(escape),
        None => "no burst is followed by a way out".to_owned(),
    }
}

/// `whole_ratio` is what a thread gains that has its core alone.
fn folding_text(given_back_ratio: f64, whole_ratio: f64, quiet: &str) -> String {
    match given_back_ratio {
        ratio if ratio.abs() < 0.000_5 => {
            format!("One computing sibling gains nothing (bursts {quiet} apart).")
        }
        ratio if (ratio - whole_ratio).abs() > 0.05 => format!(
            "SMT folding gives one computing sibling {} (bursts {quiet} apart), and not the {} of a thread that has its core alone: the CPU is not stuck after all bursts.",
            percent(ratio),
            percent(whole_ratio)
        ),
        _ => format!(
            "SMT folding gives one computing sibling {} over the stuck case, which is the assumed speed of two threads and nothing else (bursts {quiet} apart).",
            percent(given_back_ratio)
        ),
    }
}

/// What of our times is within those that the author measured.
fn against_measured(kept: &Escape) -> &'static str {
    let ends = ms(kept.out.min_ns()).zip(ms(kept.out.max_ns()));
    match ends {
        None => "here there is none to compare",
        Some((least, _)) if least > KEPT_MAX_MS => "all of ours are longer than what he measured",
        Some((_, most)) if most < KEPT_MIN_MS => "all of ours are shorter than what he measured",
        Some((least, most)) if least >= KEPT_MIN_MS && most <= KEPT_MAX_MS => {
            "all of ours are within what he measured"
        }
        Some(_) => "some of ours are within what he measured, and some are not",
    }
}

/// Which bursts the timer gets out of soonest, and of which there is nothing to get out.
fn by_gap_text(by_gap: &[At<u64, Escape>]) -> String {
    let out = |row: &&At<u64, Escape>| row.found.out.mean_ns();
    let left = by_gap.iter().filter(|row| out(row).is_some());
    let fastest = left.min_by(|a, b| out(a).unwrap_or(0.0).total_cmp(&out(b).unwrap_or(0.0)));
    let never = by_gap.iter().filter(|row| out(row).is_none());
    let never: Vec<String> = never.map(|row| span(row.at)).collect();
    let fastest = fastest.map(|row| {
        format!("bursts of {} end soonest, after {} rounds", span(row.at), rounds(&row.found))
    });
    let never = (!never.is_empty()).then(|| {
        format!(
            "bursts of {} never make menu choose stop0_lite, or never let it out",
            never.join(", ")
        )
    });
    let both: Vec<String> = fastest.into_iter().chain(never).collect();
    format!("In the table, {}.", both.join(", and "))
}

fn time(ns: Option<u64>) -> String {
    or_dash(ns, |ns| format!("{} us", short(us(ns))))
}

fn mean(escape: &Escape) -> String {
    or_dash(escape.out.mean_ns(), |ns| short(ns / 1e3))
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
