//! `c02`: C0.2 between POLL and C1.

mod model;

use idlewise_sim::simulate::Hardware;

use crate::figure::Published::{Exactly, Nothing};
use crate::figure::*;
use crate::inputs::Origin;
use crate::inputs::Origin::Documented;
use crate::trial::At;
use model::{
    ALTERNATIVES, ERROR_RATIO_MAX, Findings, Gain, Groups, Headline, INPUTS, Latency,
    MACHINE_DIVISOR, RUN_COUNT_MAX, SHORT_DEADLINE_NS, Score, Variants, WARM_UP_NS, WHOLE_FACTOR,
    headline, run,
};

pub(crate) const STUDY: Study = Study {
    name: "c02",
    claim: "C0.2 between POLL and C1: interrupt latency +24 % (median) and +12 % (99th percentile) over \
            POLL, power -13 % (AC) and -18 % (RAPL); hackbench +4 % with 4 groups and +0.6 % with 8.",
    source: "Artem Bityutskiy, Sapphire Rapids C0.x idle states support, v4, 10 July 2023",
    inputs: INPUTS,
    alternatives: ALTERNATIVES,
    figures: |shelf, changes| Ok(figures(&headline(shelf, changes)?)),
    body: |shelf, changes| Ok(body(&run(shelf, changes)?)),
};

/// Published: interrupt latency, median and 99th percentile.
const LATENCY_PERCENT: f64 = 24.0;
const LATENCY_P99_PERCENT: f64 = 12.0;
/// Power by RAPL, and at the wall.
const RAPL_PERCENT: f64 = -18.0;
const WALL_PERCENT: f64 = -13.0;
/// hackbench's gains.
const HACKBENCH_PERCENT: Groups<f64> = Groups { four: 4.0, eight: 0.6 };
/// C0.2's exit latency as v4 declares it.
const DECLARED_NS: f64 = 200.0;

/// The share of a latency that C0.2 adds.
fn added(of: &Headline, quantile: fn(&Latency) -> f64) -> f64 {
    quantile(&of.c02_latency) / quantile(&of.poll_latency) - 1.0
}

fn packages_ratio(of: &Headline) -> f64 {
    of.c02_power.packages_mw / of.poll_power.packages_mw - 1.0
}

fn cores_ratio(of: &Headline) -> f64 {
    of.c02_power.cores_mw / of.poll_power.cores_mw - 1.0
}

fn wall_ratio(of: &Headline) -> f64 {
    (of.c02_power.packages_mw + of.rest_mw) / (of.poll_power.packages_mw + of.rest_mw) - 1.0
}

/// The packages' share of the power at the wall, under POLL.
fn packages_share(of: &Headline) -> f64 {
    of.poll_power.packages_mw / (of.poll_power.packages_mw + of.rest_mw)
}

/// hackbench's gains by C0.2: menu, teo, and as the only state.
fn gains(of: &Variants) -> [Groups<Gain>; 3] {
    [
        of.menu.gain_over(&of.menu_without),
        of.teo.gain_over(&of.teo_without),
        of.c02.gain_over(&of.poll),
    ]
}

fn figures(of: &Headline) -> Vec<Figure> {
    let Groups { four, eight } = HACKBENCH_PERCENT;
    let variants = &of.variants;
    let [menu, teo, alone] = gains(variants);
    let frequency = variants.c02.frequency_gain(&variants.poll);
    figures! {
        "interrupt latency, C0.2 against POLL, median", "%", Exactly(LATENCY_PERCENT), Model,
            added(of, |latency| latency.median_ns) * 100.0;
        "interrupt latency, C0.2 against POLL, 99th percentile", "%", Exactly(LATENCY_P99_PERCENT), Model,
            added(of, |latency| latency.p99_ns) * 100.0;
        format!("POLL's latency of which {DECLARED_NS} ns are {LATENCY_PERCENT} %"), "ns", Nothing, Arithmetic,
            DECLARED_NS / (LATENCY_PERCENT / 100.0);
        "power of the packages (RAPL)", "%", Exactly(RAPL_PERCENT), Model, packages_ratio(of) * 100.0;
        "power of the cores alone", "%", Nothing, Model, cores_ratio(of) * 100.0;
        "power at the wall (AC)", "%", Exactly(WALL_PERCENT), Model, wall_ratio(of) * 100.0;
        format!("share of the wall's power that packages draw, from {WALL_PERCENT} and {RAPL_PERCENT} %"), "%",
            Nothing, Arithmetic, WALL_PERCENT / RAPL_PERCENT * 100.0;
        "hackbench, 4 groups, teo", "%", Exactly(four), Model, teo.four.ratio * 100.0;
        "hackbench, 8 groups, teo", "%", Exactly(eight), Model, teo.eight.ratio * 100.0;
        "hackbench, 4 groups, menu", "%", Exactly(four), Model, menu.four.ratio * 100.0;
        "hackbench, 8 groups, menu", "%", Exactly(eight), Model, menu.eight.ratio * 100.0;
        "hackbench, 4 groups, C0.2 only against POLL only", "%", Nothing, Model, alone.four.ratio * 100.0;
        "hackbench, 8 groups, C0.2 only against POLL only", "%", Nothing, Model, alone.eight.ratio * 100.0;
        "frequency, 4 groups, C0.2 only against POLL only", "%", Nothing, Model, frequency.four * 100.0;
        "frequency, 8 groups, C0.2 only against POLL only", "%", Nothing, Model, frequency.eight * 100.0;
        "idle time in C0.2, 8 groups, teo", "%", Nothing, Model, variants.teo.eight.c02_ratio * 100.0;
        "idle time in C0.2, 8 groups, menu", "%", Nothing, Model, variants.menu.eight.c02_ratio * 100.0;
    }
}

fn body(found: &Findings) -> Body {
    let Findings { machine, hardware, headline, more, inputs, .. } = found;
    let variants = &headline.variants;
    let [menu, teo, alone] = gains(variants);
    let c01 = more.c01.gain_over(&variants.poll);
    let unlimited = more.c02_unlimited.gain_over(&more.poll_unlimited);
    let frequency = variants.c02.frequency_gain(&variants.poll);
    let c1 = state(machine, "C1");
    let c1_us = us(c1.exit_latency_ns);
    let states = machine.states.iter().map(|state| match &*state.name {
        "C1" => format!("C1 {c1_us}/{} us", us(c1.target_residency_ns)),
        name => name.to_owned(),
    });
    let states = states.collect::<Vec<_>>().join(", ");
    let Hardware { package_count, core_count, thread_count, .. } = hardware;
    let cpu_count = package_count * core_count * thread_count;
    let part_count = cpu_count / MACHINE_DIVISOR;
    let Groups { four, eight } = HACKBENCH_PERCENT;
    let short_deadline = format!("C0.2 only, max_time {}", span(SHORT_DEADLINE_NS));
    let quiet = span(found.deadline_load.quiet_ns);
    let (warm_up, measured) = (span(WARM_UP_NS), span(found.measured_ns));
    let work = span(inputs.work_ns as u64);
    let short_work = found.by_work_ns.first().map_or(0, |row| row.at);
    let short = found.by_work_ns.first().map(|row| (gains(&row.found), &row.found));
    let at_short = |text: &dyn Fn(&[Groups<Gain>; 3], &Variants) -> String| {
        short.as_ref().map_or_else(String::new, |(gains, of)| text(gains, of))
    };
    let [whole_c02, whole_poll] = &found.whole;
    let whole = whole_c02.gain_over(whole_poll);
    let late = &headline.poll_latency;
    let poll_mw = inputs.running_w * inputs.poll_power * 1e3;
    Body {
        figures: figures(headline),
        facts: facts! {
            "power of C0.2", format!("{:.2} W a core, {:.2} of POLL", found.c02_mw / 1e3, found.c02_mw / poll_mw),
                Origin::Calibrated(&["power of the packages (RAPL)"]),
                "fitted to the packages' power, at nominal frequency";
            "UMWAIT deadline", or_dash(hardware.umwait_max_ns, span), Documented,
                "the kernel's 100,000 TSC cycles (arch/x86/kernel/cpu/umwait.c)";
            "two Xeons", format!("{package_count} × {core_count} × {thread_count} CPUs"), Documented,
                "the claim's CPUs";
            "states and governors", format!("{states}; Linux 6.1.192"), Documented,
                "drivers/idle/intel_idle.c with the series; our ports, bit-exact";
        },
        grids: vec![
            table! {
                "hackbench by the work of a message (change of messages a second by C0.2, then the share of idle time in C0.2)";
                &found.by_work_ns, |At { at, found }|
                "work" => span(*at);
                "teo, 4 groups" => gain(gains(found)[1].four);
                "teo, 8" => gain(gains(found)[1].eight);
                "menu, 4" => gain(gains(found)[0].four);
                "menu, 8" => gain(gains(found)[0].eight);
                "C0.2 only, 4" => gain(gains(found)[2].four);
                "C0.2 only, 8" => gain(gains(found)[2].eight);
                "in C0.2: teo, 8" => share(found.teo.eight.c02_ratio);
                "menu, 8" => share(found.menu.eight.c02_ratio);
                "idle ns, teo, 8" => format!("{:.0}", found.teo_without.eight.idle_ns);
            },
            table! {
                "hackbench at the power limit (messages of {work}; change of messages a second from the base row above, ± the standard error of the median)";
                [
                    ("menu, C0.2 disabled", &variants.menu_without, None),
                    ("menu, C0.2", &variants.menu, Some(&variants.menu_without)),
                    ("teo, C0.2 disabled", &variants.teo_without, None),
                    ("teo, C0.2", &variants.teo, Some(&variants.teo_without)),
                    ("POLL only", &variants.poll, None),
                    ("C0.2 only", &variants.c02, Some(&variants.poll)),
                    ("C0.2 only, enable_c02=0: C0.1", &more.c01, Some(&variants.poll)),
                    (&short_deadline, &more.short_deadline, Some(&variants.poll)),
                    ("C1 only", &more.c1, Some(&variants.poll)),
                    ("POLL only, no power limit", &more.poll_unlimited, None),
                    ("C0.2 only, no power limit", &more.c02_unlimited, Some(&more.poll_unlimited)),
                ], |(name, score, base)|
                "variant" => name;
                "4 groups" => base.map_or("base".to_owned(), |base| gain(score.four.gain_over(&base.four)));
                "frequency" => format!("{:.3}", score.four.frequency);
                "power W" => power(&score.four);
                "8 groups" => base.map_or("base".to_owned(), |base| gain(score.eight.gain_over(&base.eight)));
                "frequency" => format!("{:.3}", score.eight.frequency);
                "power W" => power(&score.eight);
                "runs" => format!("{}, {}", score.four.rates.len(), score.eight.rates.len());
            },
            table! {
                "max_time with only POLL and C0.2 enabled: bursts, then {quiet} of nothing (1 CPU)";
                &found.by_deadline_ns, |At { at, found }|
                "max_time us" => at.map_or("none".to_owned(), |ns| us(ns).to_string());
                "power of POLL alone" => format!("{:.1} %", found.power_ratio * 100.0);
                "deadlines a second" => crate::figure::short(found.deadlines_per_s);
            }
            .detail(),
        ],
        judgement: sentences! {
            "Interrupt latency: C0.2's exit takes {} ns (v4 of the patch declares {DECLARED_NS} ns) and the handler under POLL \
             {} ns (assumed), which gives {}. {DECLARED_NS} ns are +{LATENCY_PERCENT} % of {:.0} ns under POLL. A constant \
             addition is +{LATENCY_P99_PERCENT} % at the 99th percentile if POLL's own is {} times its median there. \
             POLL's latency was not published, so the claim is neither confirmed nor contradicted.",
                inputs.exit_ns, crate::figure::short(late.median_ns), percent(added(headline, |of| of.median_ns)),
                DECLARED_NS / (LATENCY_PERCENT / 100.0), LATENCY_PERCENT / LATENCY_P99_PERCENT;
            "Power: RAPL's {RAPL_PERCENT} % for the package went into the model. With {} W outside the cores, the cores alone draw {:.0} % less. At the wall that is {}, because the packages draw {} of the server's power.",
                inputs.uncore_w, -cores_ratio(headline) * 100.0, percent(wall_ratio(headline)),
                share(packages_share(headline));
            "hackbench with teo, 4 and 8 groups: {} if a message takes {work}, and {} if it takes {}. Published: +{four} % and +{eight} %.",
                judged(teo), at_short(&|gains, _| judged(gains[1])), span(short_work);
            "How often teo chooses C0.2 depends on the work of a message: with {} it spends {} of its idle time there (8 groups), with {work} {}. The mean stay is then {:.0} ns, and C1 takes {c1_us} us.",
                span(short_work), at_short(&|_, of| share(of.teo.eight.c02_ratio)),
                share(variants.teo.eight.c02_ratio), variants.teo.eight.idle_ns;
            "menu predicts whole microseconds: 0 means POLL and {c1_us} means C1, so C0.2 gets {} of its idle time with 8 groups. Its gain is {}.",
                share(variants.menu.eight.c02_ratio), judged(menu);
            "C0.2 alone instead of POLL alone: {} with 4 and 8 groups, at {} and {} higher frequency. C0.1: {}. C0.2 without a power limit: {}.",
                judged(alone), percent(frequency.four), percent(frequency.eight), judged(c01), judged(unlimited);
            "hackbench was simulated on {part_count} of {cpu_count} CPUs, with one group for each {MACHINE_DIVISOR} and {} of the power: {warm_up} of warm-up, {measured} measured, repeated until the standard error of the median is below {:.1} %, at most {RUN_COUNT_MAX} times. As a check, C0.2 alone gives {} with 4 groups on all {cpu_count} CPUs and {WHOLE_FACTOR} times the duration.",
                share(1.0 / MACHINE_DIVISOR as f64), ERROR_RATIO_MAX * 100.0, gain(whole);
            "Rates are medians, because in some runs all senders of a group queue at one receiver and hardly anything gets through. The simulated scheduler does not balance queues, so 8 groups scatter.";
            "The author later found C0.2 not worth it on released parts. Nothing here contradicts that: next to a C1 of {c1_us} us, its gain in hackbench depends on unpublished inputs.";
        },
        plot: Plot {
            title: "hackbench with C0.2, against without",
            x_label: "log10 of the work of a message in ns",
            y_label: "%",
            lines: lines(found),
        },
    }
}

fn lines(found: &Findings) -> Vec<Line> {
    type Pick = fn(&Variants) -> Gain;
    let picks: [(&str, Pick); 6] = [
        ("teo, 4 groups", |of| gains(of)[1].four),
        ("teo, 8 groups", |of| gains(of)[1].eight),
        ("menu, 4 groups", |of| gains(of)[0].four),
        ("menu, 8 groups", |of| gains(of)[0].eight),
        ("C0.2 only, 4 groups", |of| gains(of)[2].four),
        ("C0.2 only, 8 groups", |of| gains(of)[2].eight),
    ];
    let line = |(name, pick): (&str, Pick)| {
        let point =
            |row: &At<u64, Variants>| ((row.at as f64).log10(), pick(&row.found).ratio * 100.0);
        Line { name: name.to_owned(), points: found.by_work_ns.iter().map(point).collect() }
    };
    picks.map(line).into()
}

fn power(score: &Score) -> String {
    format!("{:.1}", score.power_mw / 1e3)
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
