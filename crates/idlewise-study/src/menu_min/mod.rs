//! `menu-min`: menu believes its short forecast though the tick is stopped.

mod model;

use idlewise_sim::workload::BurstThenIdle;

use crate::figure::Published::{Below, Exactly, Nothing};
use crate::figure::*;
use crate::inputs::{Origin, ms_ns, us_ns};
use crate::trial::At;
use model::{
    ALTERNATIVES, Findings, Headline, INPUTS, Interrupts, MARGIN, MENU, MIN, MIXED_CORE_COUNT,
    NEWEST, NEWEST_MIN, SAFE_RANGE, headline, run,
};

pub(crate) const STUDY: Study = Study {
    name: "menu-min",
    claim: "With the tick stopped, menu should take the shorter of forecast and next timer: qperf \
            tcp_lat on Sapphire Rapids falls from 151 us to about 30 us, package power changes by \
            less than 1 %.",
    source: "Ionut Nechita, cpuidle: menu: Use min() to prevent deep C-states when tick is stopped, \
             v2, 22 January 2026",
    inputs: INPUTS,
    alternatives: ALTERNATIVES,
    figures: |shelf, changes| Ok(figures(&headline(shelf, changes)?)),
    body: |shelf, changes| Ok(body(&run(shelf, changes)?)),
};

const BEFORE_US: f64 = 151.0;
const AFTER_US: f64 = 30.0;
/// The claim's "a network packet arrives after 500us", of the pauses that are tried.
const PAUSE: usize = 3;
const IMPROVEMENT_RATIO: f64 = 5.0;
/// The power's change is below.
const POWER_PERCENT: f64 = 1.0;

fn figures(of: &Headline) -> Vec<Figure> {
    figures! {
        "after (+min), interrupts on another CPU", "us", Exactly(AFTER_US), Model, of.after_ns / 1e3;
        "before (menu), interrupts on another CPU", "us", Exactly(BEFORE_US), Model, of.before_ns / 1e3;
        "before, if only the client's host has package C6", "us", Exactly(BEFORE_US), Model,
            of.one_end_before_ns / 1e3;
        "before (menu), interrupts on the task's CPU", "us", Exactly(BEFORE_US), Model,
            of.before_task_cpu_ns / 1e3;
        "before (menu), task's CPU with nohz_full", "us", Exactly(BEFORE_US), Model,
            of.before_nohz_full_ns / 1e3;
        "improvement, interrupts on another CPU", "times", Exactly(IMPROVEMENT_RATIO), Model,
            of.before_ns / of.after_ns;
        "improvement, interrupts on the task's CPU", "times", Exactly(IMPROVEMENT_RATIO), Model,
            of.before_task_cpu_ns / of.after_task_cpu_ns;
        "improvement, task's CPU with nohz_full", "times", Exactly(IMPROVEMENT_RATIO), Model,
            of.before_nohz_full_ns / of.after_nohz_full_ns;
        "power, mixed load, +min against menu", "%", Below(POWER_PERCENT), Model, of.mixed_power_ratio * 100.0;
        "power, tcp_lat alone, +min against menu", "%", Nothing, Model, of.tcp_power_ratio * 100.0;
        "C2/C3 platform: before", "us", Nothing, Model, of.gap_before_ns / 1e3;
        "C2/C3 platform: improvement", "times", Nothing, Model, of.gap_before_ns / of.gap_after_ns;
        "C2/C3 platform: improvement, task's CPU with nohz_full", "times", Nothing, Model,
            of.gap_before_nohz_full_ns / of.gap_after_nohz_full_ns;
    }
}

fn body(found: &Findings) -> Body {
    use Interrupts::{OtherCpu, TaskCpu, TaskCpuNohzFull};
    let Findings { inputs, headline, gap_machine, tcp_lat, stuck_load, .. } = found;
    let at = |governor, interrupts| found.placement(governor, interrupts);
    let latency_us = |governor, interrupts| at(governor, interrupts).latency_ns / 1e3;
    let (before_us, one_end_us) = (headline.before_ns / 1e3, headline.one_end_before_ns / 1e3);
    let same_us = headline.before_task_cpu_ns / 1e3;
    let improvement = headline.before_ns / headline.after_ns;
    let gap_improvement = headline.gap_before_ns / headline.gap_after_ns;
    let c2_us = us(state(gap_machine, "C2").target_residency_ns);
    let c3 = state(gap_machine, "C3");
    let (c3_us, c3_exit_us) = (us(c3.target_residency_ns), us(c3.exit_latency_ns));
    let pause_us = |governor| {
        let of = found.by_pause_ns[PAUSE].found.iter().find(|row| row.at == governor);
        of.map_or(f64::NAN, |row| row.found)
    };
    let pause_gain = pause_us(MENU) / pause_us(MIN);
    let residency_us = inputs.residency_us;
    let two_ticks_ms = 2_000.0 / inputs.hz;
    let timer = format!("{} ms", inputs.timer_ms);
    let BurstThenIdle { burst_count, burst_gap_ns, quiet_ns, .. } = stuck_load;
    let (burst_gap, quiet_s) = (span(*burst_gap_ns), *quiet_ns as f64 / 1e9);
    let powers_mw = found.stuck.iter().map(|row| row.found.power_mw);
    let best_stuck_mw = powers_mw.fold(f64::INFINITY, f64::min);
    Body {
        figures: figures(headline),
        facts: facts! {
            "time on the wire", format!("{} ns", tcp_lat.wire_ns), Origin::Calibrated(&["after (+min)"]),
                "fitted to the latency after the change";
            "C2 and C3 of the other platform", format!("{c2_us} and {c3_us}/{c3_exit_us} us"), Origin::Documented,
                "the claim";
            "governors", "Linux 6.1.192, 6.12.117 and 7.2.13", Origin::Documented, "our ports, bit-exact";
        },
        grids: vec![
            table! {
                "tcp-lat by governor and by the CPU that the card interrupts (tick stopped: share of selects on that CPU)";
                &found.placements, |row|
                "governor" => row.governor;
                "interrupts" => match row.interrupts {
                    TaskCpu => "task's CPU",
                    TaskCpuNohzFull => "the same, nohz_full",
                    OtherCpu => "another CPU",
                };
                "latency us" => short(row.latency_ns / 1e3);
                "tick stopped" => share(row.stopped_ratio);
                "wakes from PC6" => share(row.deepest_ratio);
                "power mW" => short(row.power_mw);
            },
            matrix(
                format!(
                    "The rules by how far the next timer is (tcp-lat, us, interrupts on another CPU; 2 ticks are \
                 {two_ticks_ms} ms)"
                ),
                "timer every",
                &found.by_timer_ns,
                |timer_ns| format!("{} ms", *timer_ns as f64 / 1e6),
                |governor| governor.to_string(),
                |latency_ns| short(latency_ns / 1e3),
            ),
            matrix(
                "The rules by the pause between an answer and the next request (tcp-lat, us, interrupts on another CPU)",
                "pause",
                &found.by_pause_ns,
                |pause_ns| format!("{} us", *pause_ns / 1_000),
                |governor| governor.to_string(),
                |latency_ns| short(latency_ns / 1e3),
            ),
            table! {
                "menu by how much of the exit is the package's (tcp-lat, interrupts on another CPU)";
                &found.by_share, |At { at, found }|
                "package's share" => share(*at);
                "latency us" => short(found.before_ns / 1e3);
                "one end only, us" => short(found.one_end_before_ns / 1e3);
                "power mW" => short(found.power_mw);
            }
            .detail(),
            table! {
                "Where min() loses ({burst_count} interrupts {burst_gap} apart without a task, then {quiet_s} s of nothing but a timer a second away)";
                &found.stuck, |At { at, found }|
                "governor" => at;
                "time in PC6" => format!("{:.1} %", found.deepest_ratio * 100.0);
                "power mW" => short(found.power_mw);
                "of the best" => percent(found.power_mw / best_stuck_mw - 1.0);
                "irq delay us (mean)" => or_dash(found.delay_ns, |ns| short(ns / 1e3));
            },
        ],
        judgement: sentences! {
            "The mechanism {} if the card interrupts a CPU of its own. There the tick is stopped at {} of selects, {}",
                if helps(improvement) { "follows" } else { "does not show" },
                share(at(MENU, OtherCpu).stopped_ratio),
                if helps(improvement) {
                    format!("menu replaces its short prediction by the timer {timer} away, and each message pays for PC6's exit. min() prevents that.")
                } else {
                    "and min() makes no difference.".to_owned()
                };
            "The size {}: {} us before the change, or {} us if only the client's host has package C6, and {BEFORE_US} us published. The claim gives neither HZ, nor the distance of the next timer, nor the package's share of the exit, which is paid only while all CPUs of the package are in C6.",
                match Exactly(BEFORE_US).agrees(before_us) {
                    Some(true) => "agrees with these inputs",
                    _ => "does not follow",
                },
                short(before_us), short(one_end_us);
            "With interrupts on the task's own CPU min() changes the latency of {} us by {}: each wake-up runs the task, which restarts the tick, and the changed line needs a stopped tick ({} of selects).",
                short(same_us), percent(headline.after_task_cpu_ns / headline.before_task_cpu_ns - 1.0),
                share(at(MENU, TaskCpu).stopped_ratio);
            "With nohz_full, which only the claim's first version names, a task that is alone on its CPU does not restart the tick. There the tick is stopped at {} of selects, and min() is {} times faster ({} to {} us). {}",
                share(at(MENU, TaskCpuNohzFull).stopped_ratio),
                short(headline.before_nohz_full_ns / headline.after_nohz_full_ns),
                short(headline.before_nohz_full_ns / 1e3), short(headline.after_nohz_full_ns / 1e3),
                match (helps(improvement), helps(headline.before_nohz_full_ns / headline.after_nohz_full_ns)) {
                    (true, true) => "So the claim can hold for a CPU without a task, or with nohz_full.",
                    (true, false) => "So the claim can hold for a CPU without a task.",
                    (false, true) => "So the claim can hold with nohz_full.",
                    (false, false) => "So the claim holds nowhere here.",
                };
            "With a pause of {} us before the next request, as in the claim's example, min() is {} times faster: {}.",
                found.by_pause_ns[PAUSE].at / 1_000, short(pause_gain),
                if found.by_pause_ns[PAUSE].at == us_ns(inputs.think_us) {
                    "it is the pause of all these figures".to_owned()
                } else if helps(improvement / pause_gain) {
                    format!("pause and exit bring stays nearer to PC6's {residency_us} us, where PC6 is right")
                } else {
                    "no less than without it".to_owned()
                };
            "On the platform with C2 at {c2_us} us and C3 at {c3_us}/{c3_exit_us} us min() is {} times faster ({} to {} us): {}.",
                short(gap_improvement), short(headline.gap_before_ns / 1e3), short(headline.gap_after_ns / 1e3),
                if gap_improvement < 2.0 && 2.0 * headline.gap_before_ns / 1e3 < c3_us {
                    "\"similar improvements\" do not show".to_owned()
                } else if gap_improvement < 2.0 {
                    format!(
                        "\"similar improvements\" do not follow, because C3's own delay makes the stays of this closed loop longer than {c3_us} us, so the prediction is no longer short"
                    )
                } else {
                    "similar improvements, as claimed".to_owned()
                };
            "With nohz_full and interrupts on the task's CPU it is {} times faster there ({} to {} us).",
                short(headline.gap_before_nohz_full_ns / headline.gap_after_nohz_full_ns),
                short(headline.gap_before_nohz_full_ns / 1e3), short(headline.gap_after_nohz_full_ns / 1e3);
            "Mainline's rules: looking at the timers whenever the tick is stopped (6.1 and 6.12) does not help by itself. safe-range (7.2: believe the timer only if it is more than two ticks away) gives {} us with a timer every {timer} at {} Hz, and is {} min() while the timer is within {two_ticks_ms} ms. 7.2's whole menu gives {} us, and {} us with min() instead. The claim's first version, with a margin of a quarter, gives {} us.",
                short(latency_us(SAFE_RANGE, OtherCpu)), inputs.hz,
                if found.near_timers_are_safe(ms_ns(two_ticks_ms)) { "as good as" } else { "not always as good as" },
                short(latency_us(NEWEST, OtherCpu)),
                short(latency_us(NEWEST_MIN, OtherCpu)), short(latency_us(MARGIN, OtherCpu));
            "Power (assumed): {} in a mixed, nearly idle load of {MIXED_CORE_COUNT} cores (claimed: less than {POWER_PERCENT} %), and {} for the hosts of tcp-lat, which then do {} times as many round trips.",
                percent(headline.mixed_power_ratio), percent(headline.tcp_power_ratio), short(improvement);
            "If the short prediction is wrong, {} keeps the CPU in a shallow state until the next timer: {} power against menu in a case made for it. safe-range {} that.",
                MIN, percent(found.stuck_power_ratio(MIN)),
                if helps(1.0 + found.stuck_power_ratio(SAFE_RANGE)) { "does not avoid" } else { "avoids" };
        },
        plot: Plot {
            title: "tcp-lat with interrupts on another CPU",
            x_label: "exit latency of package C6, us",
            y_label: "latency, us",
            lines: lines(found),
        },
    }
}

/// A ratio that is more than the noise of a simulation.
fn helps(ratio: f64) -> bool {
    ratio > 1.01
}

fn lines(found: &Findings) -> Vec<Line> {
    let governors = found.by_exit_ns.iter().take(1).flat_map(|row| &row.found);
    let lines = governors.map(|of| {
        let points = found.by_exit_ns.iter().flat_map(|row| {
            let here = row.found.iter().filter(|latency| latency.at == of.at);
            here.map(|latency| (us(row.at), latency.found / 1e3))
        });
        Line { name: of.at.to_owned(), points: points.collect() }
    });
    lines.collect()
}
