//! `ipi-less`: a store instead of an IPI.

mod model;

use crate::figure::Published::{Exactly, Nothing};
use crate::figure::*;
use crate::inputs::Origin;
use crate::inputs::Origin::Documented;
use crate::trial::At;
use model::{
    AFTER, BEFORE, Findings, GHZ, Headline, INPUTS, NEARLY_IDLE_NS, UNUSED_STATE, headline,
    is_significant, mean, run, welch_t,
};

pub(crate) const STUDY: Study = Study {
    name: "ipi-less",
    claim: "A CPU idling in MWAIT can be woken by a store: function calls cost their sender 1200 \
            instead of 1600 cycles (local) and 1800 instead of 2000 (remote); 10 % fewer non-idle \
            cycles and cache references; a tiny decrease of C0; a third CPU's wake-up is free.",
    source: "Venkatesh Pallipadi, [RFC] Extend mwait idle to optimize away IPIs when possible, \
             6 February 2012",
    inputs: INPUTS,
    alternatives: &[],
    figures: |shelf, changes| Ok(figures(&headline(shelf, changes)?)),
    body: |shelf, changes| Ok(body(&run(shelf, changes)?)),
};

/// Published: non-idle cycles.
const CHANGE_PERCENT: f64 = -10.0;

fn figures(of: &Headline) -> Vec<Figure> {
    let (published_before, published_after) = (mean(&BEFORE), mean(&AFTER));
    let published_c0_change = published_after.c0 - published_before.c0;
    let (before, after) = (&of.before, &of.after);
    figures! {
        "sender's cost, local socket, IPI", "cycles", Exactly(1_600.0), Model, of.local.ipi_cycles;
        "sender's cost, local socket, store", "cycles", Exactly(1_200.0), Model, of.local.store_cycles;
        "sender's cost, remote socket, IPI", "cycles", Exactly(2_000.0), Model, of.remote.ipi_cycles;
        "sender's cost, remote socket, store", "cycles", Exactly(1_800.0), Model, of.remote.store_cycles;
        "non-idle cycles, one CPU calling all others, mostly idle", "%", Exactly(CHANGE_PERCENT), Model,
            of.rounds.change_ratio * 100.0;
        "C0 before, mean of 3 runs", "%", Exactly(published_before.c0), Model, before.c0;
        "C0 after, mean of 3 runs", "%", Exactly(published_after.c0), Model, after.c0;
        "C1 before, mean of 3 runs", "%", Exactly(published_before.c1), Model, before.c1;
        "C1 after, mean of 3 runs", "%", Exactly(published_after.c1), Model, after.c1;
        "C6 before, mean of 3 runs", "%", Exactly(published_before.c6), Model, before.c6;
        "C6 after, mean of 3 runs", "%", Exactly(published_after.c6), Model, after.c6;
        "change of C0", "points", Exactly(published_c0_change), Model, after.c0 - before.c0;
        "free rides of a third CPU that calls within the chosen window", "%", Nothing, Model,
            of.ride.free_ratio * 100.0;
        "free rides in the nearly idle system", "%", Nothing, Model, of.nearly_idle_free_ratio * 100.0;
        "ICR writes saved, targets partly busy", "%", Nothing, Model, of.elided_ratio() * 100.0;
        "targets busy from which a store saves its sender nothing", "%", Nothing, Model,
            of.crossing_busy_ratio().map(|busy| busy * 100.0);
        "cycles of a nohz kick and the balancing that it triggers", "%", Nothing, Model,
            of.kick_change_ratio * 100.0;
    }
}

fn body(found: &Findings) -> Body {
    let Findings { inputs, headline, .. } = found;
    let Headline { rounds, load, ride, .. } = headline;
    let (before, after) = (&headline.before, &headline.after);
    let (published_before, published_after) = (mean(&BEFORE), mean(&AFTER));
    let c0_change = after.c0 - before.c0;
    let published_c0_change = published_after.c0 - published_before.c0;
    let published_c6_change = published_after.c6 - published_before.c6;
    let interval_ms = load.interval_ns / 1e6;
    let runs = [("before", &BEFORE, &found.before_runs), ("after", &AFTER, &found.after_runs)];
    let runs = runs.into_iter().flat_map(|(when, published, ours)| {
        let pairs = published.iter().zip(ours).enumerate();
        pairs.map(move |(index, (run, ours))| (when, index + 1, run, ours))
    });
    let step = |part| {
        let (mean, error) = found.change(part);
        format!("{mean:+.3} ± {error:.3}")
    };
    let (c1_change, c1_error) = found.change(|run| run.c1);
    Body {
        figures: figures(headline),
        facts: facts! {
            "a CPU of the nearly idle system",
                format!("a task every {interval_ms:.1} ms for {:.0} us, then calls", load.work_ns / 1e3),
                Origin::Calibrated(&["C0", "C1", "C6"]), "fitted to C0 and C1 before";
            "states", format!("Westmere's table without {UNUSED_STATE}"), Documented,
                "drivers/idle/intel_idle.c; C0, C1 and C6 of the claim leave no time for another";
            "CPUs", "2 packages of 6 cores of 2 threads", Documented, "Xeon X5670";
            "frequency", format!("{GHZ} GHz"), Documented, "Xeon X5670; only cycles matter";
            "governor", "menu of Linux 6.1.192", Documented, "our port, bit-exact; the oldest that we have";
        },
        grids: vec![
            table! {
                "The nearly idle system, run by run, per cent (our runs use the same random numbers before and after; the published ones took 10 minutes each)";
                runs, |(when, number, run, ours)|
                "run" => format!("{when}, run {number}");
                "C0" => format!("{:.2}", run.c0);
                "ours" => format!("{:.2}", ours.c0);
                "C1" => format!("{:.2}", run.c1);
                "ours" => format!("{:.2}", ours.c1);
                "C6" => format!("{:.2}", run.c6);
                "ours" => format!("{:.2}", ours.c6);
            }
            .detail(),
            table! {
                "One CPU calling 23 others, by how busy those are (simulated; sender's cycles a call)";
                &headline.by_busy_ratio, |At { at, found }|
                "targets busy" => share(*at);
                "sender, IPI" => short(found.cost.ipi_cycles);
                "sender, ipi_less" => short(found.cost.store_cycles);
                "saved cycles" => short(found.cost.saved_cycles());
                "ICR writes a call, IPI" => short(found.ipis_a_call_before);
                "ICR writes a call, ipi_less" => short(found.ipis_a_call);
                "non-idle cycles" => percent(found.change_ratio);
            },
        ],
        judgement: sentences! {
            "{} follow from what sender and receiver save: {} here, about {CHANGE_PERCENT} % published. The size {} other work, the idle loop and the called function are not saved by a store, and the claim says nothing about them.",
                if rounds.change_ratio < 0.0 { "Fewer non-idle cycles" } else { "No fewer non-idle cycles" },
                percent(rounds.change_ratio),
                match Exactly(CHANGE_PERCENT).agrees(rounds.change_ratio * 100.0) {
                    Some(true) => "agrees with these inputs, and depends on them:",
                    _ => "does not follow:",
                };
            "On the nearly idle system C0 changes by {c0_change:+.3} points here, {published_c0_change:+.3} published. A task every {interval_ms:.1} ms on each CPU reproduces C0 and C1; with {} calls each, {}.",
                number_text(inputs.calls_per_wake),
                match published_c0_change / c0_change {
                    times if times > 0.0 => {
                        format!("a decrease as published would take about {times:.0} times as many calls")
                    }
                    _ => "no number of calls gives a decrease as published".to_owned(),
                };
            "The published runs scatter nearly as much as they differ (t = {:.1}, {} at 5 %), and the third run before equals the second after in all columns. \"Tiny\" is right; the sign is {}. Their C1 falls by {:.1} % and their C0 by {:.1} %, as fewer wake-ups would cause. Cheaper wake-ups lower C0; their effect on C1 is {}.",
                welch_t(), if is_significant() { "significant" } else { "not significant" },
                if is_significant() { "proven" } else { "not proven by them" },
                (1.0 - published_after.c1 / published_before.c1) * 100.0,
                (1.0 - published_after.c0 / published_before.c0) * 100.0,
                if c1_change.abs() < 2.0 * c1_error { "lost in the scatter here" } else { "small here" };
            "C6 changes by {} points here, {published_c6_change:+.3} published; C0 and C1 by {} and {} (mean and standard error of {} runs of {}). Of the published gain, {} comes from C1.",
                step(|run| run.c6), step(|run| run.c0), step(|run| run.c1), found.before_runs.len(),
                span(NEARLY_IDLE_NS), share((published_before.c1 - published_after.c1) / published_c6_change);
            "The free ride is built into the model: a call gets one if another CPU has already woken its target ({} IPIs a round instead of {}). Its {} is only the chance that a call comes before the exit of {} us ends, in a window of {} us that we chose. In the nearly idle system {:.2} % of the calls ride free. A kernel with IPIs alone, but one queue for tasks and calls (5.8 and later), would share some too.",
                short(ride.ipis_a_round), short(ride.ipis_a_round_before),
                share(ride.free_ratio), number_text(inputs.exit_us), number_text(inputs.window_us),
                headline.nearly_idle_free_ratio * 100.0;
            "\"When it is busy we will still send IPI as before\" has a price: the check. {}",
                match headline.crossing_busy_ratio() {
                    Some(busy) => format!(
                        "At {} cycles, the sender loses once the targets are busy for more than {} of the time.",
                        number_text(inputs.check_cycles), share(busy)
                    ),
                    None => format!(
                        "At {} cycles, the sender still gains with targets that are busy for {} of the time.",
                        number_text(inputs.check_cycles),
                        or_dash(headline.by_busy_ratio.last(), |row| share(row.at))
                    ),
                };
            "The extension to nohz_kick, which the claim only names, changes the cost of a kick by {}, including the balancing for all idle CPUs ({} us, assumed). Its target is always idle, so there is no crossover.",
                percent(headline.kick_change_ratio), number_text(inputs.balance_us);
            "Not simulated: cache references (the CPUs have no caches), and the time in find_next_bit and default_send_IPI_mask_sequence_phys, the claim's hot spots (no kernel code runs). Of the ICR writes behind them, {} are saved where targets are busy for {} of the time.",
                share(headline.elided_ratio()), share(inputs.partly_busy);
        },
        plot: Plot {
            title: "Cycles that a call without IPI saves its sender",
            x_label: "share of time that targets are busy",
            y_label: "cycles a call",
            lines: vec![Line {
                name: "one CPU calling 23 others".to_owned(),
                points: headline
                    .by_busy_ratio
                    .iter()
                    .map(|row| (row.at, row.found.cost.saved_cycles()))
                    .collect(),
            }],
        },
    }
}
