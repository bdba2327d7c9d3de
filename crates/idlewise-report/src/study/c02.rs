//! `c02`: C0.2 between POLL and C1.

use idlewise_sim::simulate::Hardware;
use idlewise_sim::study::c02::{
    Assumption, C01_POWER_RATIO, Deadlines, Findings, Gain, Groups, SHORT_DEADLINE_NS, Score, run,
};

use super::Origin::{Assumed, Calibrated, Documented};
use super::Published::{Exactly, Nothing};
use super::*;

pub(super) const STUDY: Study = Study {
    name: "c02",
    claim: "C0.2 between POLL and C1: interrupt latency +24 % (median) and +12 % (99th percentile) over \
            POLL, power -13 % (AC) and -18 % (RAPL); hackbench +4 % with 4 groups and +0.6 % with 8.",
    source: "Artem Bityutskiy, Sapphire Rapids C0.x idle states support, v4, 10 July 2023",
    inputs: &[],
    figures: |shelf, _| Ok(body(&run(shelf)?).figures),
    body: |shelf, _| Ok(body(&run(shelf)?)),
};

/// Published: interrupt latency, median and 99th percentile.
const LATENCY_PERCENT: f64 = 24.0;
const LATENCY_P99_PERCENT: f64 = 12.0;
/// Power by RAPL, and at the wall.
const RAPL_PERCENT: f64 = -18.0;
const WALL_PERCENT: f64 = -13.0;
/// hackbench's gains.
const HACKBENCH_PERCENT: Groups<f64> = Groups { four: 4.0, eight: 0.6 };
/// Share of a server's power that its packages take, when they are what draws power. Assumed.
const PACKAGE_SHARE: f64 = 0.7;

fn body(found: &Findings) -> Body {
    let Findings { machine, hardware, hackbench, variants, latency, run_count, .. } = found;
    let entry_ns = hardware.irq_entry_ns;
    let c02_ns = state(machine, "C0.2").exit_latency_ns;
    let poll_ns = latency.poll_ns;
    let added_ns = latency.c02_ns - poll_ns;
    let p99_ratio = LATENCY_PERCENT / LATENCY_P99_PERCENT;
    let poll_of_claim_ns = c02_ns as f64 / (LATENCY_PERCENT / 100.0);
    let package_share = WALL_PERCENT / RAPL_PERCENT;
    let at_the_wall = |share: f64| found.c02_power_ratio.mul_add(share, 1.0 - share) - 1.0;
    let menu = variants.menu.gain_over(&variants.menu_without);
    let teo = variants.teo.gain_over(&variants.teo_without);
    let alone = variants.c02.gain_over(&variants.poll);
    let c01 = variants.c01.gain_over(&variants.poll);
    let unlimited = variants.c02_unlimited.gain_over(&variants.poll_unlimited);
    let frequency = |of: fn(&Groups<Score>) -> &Score| {
        of(&variants.c02).frequency / of(&variants.poll).frequency - 1.0
    };
    let frequency = Groups { four: frequency(|s| &s.four), eight: frequency(|s| &s.eight) };
    let c1 = state(machine, "C1");
    let c1_us = us(c1.exit_latency_ns);
    let states = machine.states.iter().map(|state| match &*state.name {
        "C1" => format!("C1 {c1_us}/{} us", us(c1.target_residency_ns)),
        name => name.to_owned(),
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let Hardware { package_count, core_count, thread_count, .. } = hardware;
    let cpu_count = package_count * core_count * thread_count;
    let Groups { four, eight } = HACKBENCH_PERCENT;
    let short_deadline = format!("C0.2 only, max_time {}", span(SHORT_DEADLINE_NS));
    let quiet = span(found.deadline_load.quiet_ns);
    let point = |row: &At<Option<u64>, Deadlines>| {
        Some((us(row.at?).log10(), row.found.power_ratio * 100.0))
    };
    let points = found.by_deadline_ns.iter().filter_map(point);
    Body {
        figures: figures! {
            "interrupt latency, C0.2 against POLL, median", "%", Exactly(LATENCY_PERCENT), Model,
                added_ns / poll_ns * 100.0;
            format!("POLL's latency of which {c02_ns} ns are {LATENCY_PERCENT} %"), "ns", Nothing, Arithmetic,
                poll_of_claim_ns;
            "99th percentile over median under POLL, if C0.2 adds a constant", "times", Nothing, Arithmetic, p99_ratio;
            "interrupt latency, 99th percentile, with that", "%", Exactly(LATENCY_P99_PERCENT), Model,
                added_ns / (p99_ratio * poll_ns) * 100.0;
            "power of the cores (RAPL)", "%", Exactly(RAPL_PERCENT), Model, found.core_power_ratio * 100.0;
            format!("share of the wall's power that packages draw, from {WALL_PERCENT} and {RAPL_PERCENT} %"), "%",
                Nothing, Arithmetic, package_share * 100.0;
            format!("power at the wall (AC), if packages draw {} of it", share(PACKAGE_SHARE)), "%",
                Exactly(WALL_PERCENT), Model, at_the_wall(PACKAGE_SHARE) * 100.0;
            "hackbench, 4 groups, menu", "%", Exactly(four), Model, menu.four.ratio * 100.0;
            "hackbench, 8 groups, menu", "%", Exactly(eight), Model, menu.eight.ratio * 100.0;
            "hackbench, 4 groups, teo", "%", Exactly(four), Model, teo.four.ratio * 100.0;
            "hackbench, 8 groups, teo", "%", Exactly(eight), Model, teo.eight.ratio * 100.0;
            "frequency by the power budget, 4 groups, C0.2 only against POLL only", "%", Nothing, Model,
                frequency.four * 100.0;
            "frequency by the power budget, 8 groups, C0.2 only against POLL only", "%", Nothing, Model,
                frequency.eight * 100.0;
            "hackbench, 4 groups, C0.2 only against POLL only", "%", Nothing, Model, alone.four.ratio * 100.0;
            "hackbench, 8 groups, C0.2 only against POLL only", "%", Nothing, Model, alone.eight.ratio * 100.0;
            "hackbench, 4 groups, C0.1 only (enable_c02=0) against POLL only", "%", Nothing, Model,
                c01.four.ratio * 100.0;
        },
        facts: facts! {
            "power of C0.2", format!("{:.2} of POLL", found.c02_power_ratio), Calibrated(&["power of the cores (RAPL)"]),
                "the claim's RAPL figure";
            "POLL's 99th percentile", "twice its median", Calibrated(&["interrupt latency, 99th percentile"]),
                format!("{LATENCY_PERCENT} over {LATENCY_P99_PERCENT} %: what a constant addition needs");
            "exit latency of C0.2", span(c02_ns), Calibrated(&[]), "the series' own table";
            "UMWAIT deadline", or_dash(hardware.umwait_max_ns, span), Documented,
                "the kernel's 100,000 TSC cycles (arch/x86/kernel/cpu/umwait.c)";
            "two Xeons",
                format!(
                    "{package_count} × {core_count} × {thread_count} CPUs, {} W a package",
                    or_dash(hardware.tdp_mw, watts)
                ),
                Documented, format!("the claim's {cpu_count} CPUs; the power limit of such parts");
            "states and governors", format!("{states}; Linux 6.1.192"), Documented,
                "drivers/idle/intel_idle.c with the series; our ports, bit-exact";
            "power of C0.1", format!("{C01_POWER_RATIO} of POLL"), Assumed, "\"C0.2 saves more power\"";
            "interrupt entry under POLL", format!("{entry_ns} ns"), Assumed, "varied below";
            "share of the wall's power that packages draw", share(PACKAGE_SHARE), Assumed, "a two-socket server";
            "uncore, running core, exponent, turbo",
                format!(
                    "{} W, {} W, {}, {}",
                    watts(hardware.package_mw), watts(machine.running_power().mw), hardware.power_exponent,
                    hardware.turbo_ratio
                ),
                Assumed, "varied below";
            "second thread of a core", format!("each at {}", hardware.smt2_speed), Assumed,
                format!("usual SMT yield of {}", share(2.0 * hardware.smt2_speed - 1.0));
            "work of a message", format!("{} us each side", us(hackbench.send_work_ns)), Assumed, "varied below";
        },
        grids: vec![
            table! {
                "hackbench on {cpu_count} CPUs at the power limit (messages a second against the row above without \
                 C0.2; ± is the standard error of {run_count} runs)";
                [
                    ("menu, C0.2 disabled", &variants.menu_without, None),
                    ("menu, C0.2", &variants.menu, Some(&variants.menu_without)),
                    ("teo, C0.2 disabled", &variants.teo_without, None),
                    ("teo, C0.2", &variants.teo, Some(&variants.teo_without)),
                    ("POLL only", &variants.poll, None),
                    ("C0.2 only", &variants.c02, Some(&variants.poll)),
                    ("C0.2 only, enable_c02=0: C0.1", &variants.c01, Some(&variants.poll)),
                    (&short_deadline, &variants.short_deadline, Some(&variants.poll)),
                    ("POLL only, no power limit", &variants.poll_unlimited, None),
                    ("C0.2 only, no power limit", &variants.c02_unlimited, Some(&variants.poll_unlimited)),
                    ("C1 only", &variants.c1, Some(&variants.poll)),
                ], |(name, score, base)|
                "variant" => name;
                "4 groups" => base.map_or("base".to_owned(), |base| gain(score.four.gain_over(&base.four)));
                "frequency" => format!("{:.3}", score.four.frequency);
                "8 groups" => base.map_or("base".to_owned(), |base| gain(score.eight.gain_over(&base.eight)));
                "frequency" => format!("{:.3}", score.eight.frequency);
            },
            table! {
                "max_time with only POLL and C0.2 enabled: bursts, then {quiet} of nothing (1 CPU)";
                &found.by_deadline_ns, |At { at, found }|
                "max_time us" => at.map_or("none".to_owned(), |ns| us(ns).to_string());
                "power of POLL alone" => format!("{:.1} %", found.power_ratio * 100.0);
                "deadlines a second" => short(found.deadlines_per_s);
            },
            table! {
                "Sensitivity of C0.2 only against POLL only to what is assumed: uncore, exponent, SMT, work";
                &found.by_assumption, |At { at, found }|
                "assumption" => match at {
                    Assumption::AsAbove => "as above".to_owned(),
                    Assumption::UncoreMw(mw) => format!("uncore {} W", watts(*mw)),
                    Assumption::Exponent(exponent) => format!("exponent {exponent}"),
                    Assumption::SecondThread(speed) => format!("second thread at {speed}"),
                    Assumption::HalfWork => "messages of half the work".to_owned(),
                };
                "4 groups" => gain(found.four);
                "8 groups" => gain(found.eight);
            },
            table! {
                "Sensitivity of the interrupt latency to what POLL itself takes (assumed: {entry_ns} ns)";
                &found.by_entry_ns, |At { at, found }|
                "interrupt entry under POLL" => format!("{at} ns");
                "C0.2, median" => percent(found.added_ratio());
            },
        ],
        judgement: sentences! {
            "Interrupt latency: the driver's table gives C0.2 {c02_ns} ns; with {} ns of interrupt entry under POLL \
             (assumed) that is {}. +{LATENCY_PERCENT} % of {c02_ns} ns means {poll_of_claim_ns:.0} ns under POLL, and \
             +{LATENCY_P99_PERCENT} % at the 99th percentile the same {c02_ns} ns there, if POLL's 99th percentile is twice \
             its median. One constant explains both; whether it is {c02_ns} ns only POLL's own latency could tell, which was \
             not published.",
                short(poll_ns), percent(added_ns / poll_ns);
            "Power: {RAPL_PERCENT} % (RAPL) went in and proves nothing. {WALL_PERCENT} % at the wall says that packages draw {} of \
             its power; with 60 to 80 % it would be {} to {}.",
                share(package_share), percent(at_the_wall(0.6)), percent(at_the_wall(0.8));
            "hackbench's gain with the governors as they are does not follow: menu {}, teo {} with 4 and 8 groups, \
             published +{four} % and +{eight} %. menu forecasts whole microseconds: 0 is POLL, 1 is already C1, so that \
             it hardly ever asks for C0.2 beside C1 of {c1_us} us.",
                judged(menu), judged(teo);
            "The mechanism is there, and small: C0.2 alone instead of POLL alone leaves power for {} and {} more \
             frequency with 4 and 8 groups. Messages a second change by {}, without a power limit by {}; {}",
                percent(frequency.four), percent(frequency.eight), judged(alone), judged(unlimited),
                if alone.eight.is_noise() || unlimited.eight.is_noise() {
                    "runs scatter too much to tell the budget from the SMT sibling that no longer competes with a \
                     polling thread."
                } else if unlimited.eight.ratio < alone.eight.ratio / 2.0 {
                    "the power budget is most of it."
                } else {
                    "so more of it is the SMT sibling that no longer competes with a polling thread."
                };
            "By frequency the order of 4 and 8 groups {} as published; {four} % is not reached: hackbench's tasks would \
             have to poll longer than here, which its real pipes decide.",
                if frequency.four > frequency.eight { "is" } else { "is not" };
            "The author later found it not worth it on released parts; nothing here contradicts that: beside C1 of \
             {c1_us} us there is hardly an idle for it.";
        },
        plot: Plot {
            title: "Power of bursts and 3 ms idles with POLL and C0.2 only",
            x_label: "log10 of max_time in us",
            y_label: "% of POLL alone",
            lines: vec![Line { name: "with C0.2".to_owned(), points: points.collect() }],
        },
    }
}

fn gain(gain: Gain) -> String {
    format!("{:+.1} ± {:.1} %", gain.ratio * 100.0, gain.error_ratio * 100.0)
}

/// Both gains, and what to think of them.
fn judged(gains: Groups<Gain>) -> String {
    let judged = |of: Gain| {
        let verdict = match (of.ratio == 0.0, of.is_noise()) {
            (true, _) => " (the very same course)",
            (false, true) => " (noise)",
            (false, false) => "",
        };
        format!("{}{verdict}", gain(of))
    };
    format!("{} and {}", judged(gains.four), judged(gains.eight))
}

fn watts(mw: f64) -> String {
    (mw / 1e3).to_string()
}
