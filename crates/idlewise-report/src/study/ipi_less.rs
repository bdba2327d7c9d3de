//! `ipi-less`: a store instead of an IPI.

use idlewise_sim::study::ipi_less::{
    AFTER, BEFORE, CHECK_CYCLES, Findings, GHZ, INTERVAL_NS, KICKS_PER_S, LOCAL, LOOP_CYCLES,
    RECEIVE_CYCLES, REMOTE, is_significant, mean, run, welch_t,
};

use super::Origin::{Assumed, Calibrated, Documented};
use super::Published::Exactly;
use super::*;

pub(super) const STUDY: Study = Study {
    name: "ipi-less",
    claim: "A CPU idling in MWAIT can be woken by a store: function calls cost their sender 1200 \
            instead of 1600 cycles (local) and 1800 instead of 2000 (remote); 10 % fewer non-idle \
            cycles; a tiny decrease of C0; a third CPU's wake-up is free.",
    source: "Venkatesh Pallipadi, [RFC] Extend mwait idle to optimize away IPIs when possible, \
             6 February 2012",
    inputs: &[],
    figures: |shelf, _| Ok(body(&run(shelf)?).figures),
    body: |shelf, _| Ok(body(&run(shelf)?)),
};

/// Published: non-idle cycles.
const CHANGE_PERCENT: f64 = -10.0;
/// The row of the free rides that a sentence is about.
const RIDE_NS: u64 = 100_000;

fn body(found: &Findings) -> Body {
    let Findings { local, remote, before, after, load, .. } = found;
    let (published_before, published_after) = (mean(&BEFORE), mean(&AFTER));
    let c0_change = after.c0 - before.c0;
    let c6_change = after.c6 - before.c6;
    let published_c0_change = published_after.c0 - published_before.c0;
    let published_c6_change = published_after.c6 - published_before.c6;
    let interval_ms = load.interval_ns / 1e6;
    let (ipi, store) = (&found.kicks_by_ipi, &found.kicks_by_store);
    let by_loop = || found.by_interval_ns_and_cycles.iter().flat_map(|row| &row.found);
    let changes = || by_loop().map(|row| row.found);
    let runs = [("before", &BEFORE, before), ("after", &AFTER, after)];
    let runs = runs.into_iter().flat_map(|(when, runs, ours)| {
        runs.iter().enumerate().map(move |(index, run)| (when, index + 1, run, ours))
    });
    Body {
        figures: figures! {
            "sender's cost, local socket, IPI", "cycles", Exactly(LOCAL.ipi_cycles), Model, local.ipi_cycles;
            "sender's cost, local socket, store", "cycles", Exactly(LOCAL.store_cycles), Model, local.store_cycles;
            "sender's cost, remote socket, IPI", "cycles", Exactly(REMOTE.ipi_cycles), Model, remote.ipi_cycles;
            "sender's cost, remote socket, store", "cycles", Exactly(REMOTE.store_cycles), Model,
                remote.store_cycles;
            "non-idle cycles, one CPU calling all others, mostly idle", "%", Exactly(CHANGE_PERCENT), Model,
                found.change_ratio * 100.0;
            "C0 before, mean of 3 runs", "%", Exactly(published_before.c0), Model, before.c0;
            "C0 after, mean of 3 runs", "%", Exactly(published_after.c0), Model, after.c0;
            "C1 before, mean of 3 runs", "%", Exactly(published_before.c1), Model, before.c1;
            "C1 after, mean of 3 runs", "%", Exactly(published_after.c1), Model, after.c1;
            "C6 before, mean of 3 runs", "%", Exactly(published_before.c6), Model, before.c6;
            "C6 after, mean of 3 runs", "%", Exactly(published_after.c6), Model, after.c6;
            "change of C0", "points", Exactly(published_c0_change), Model, c0_change;
            "change of C1", "points", Exactly(published_after.c1 - published_before.c1), Model, after.c1 - before.c1;
            "change of C6", "points", Exactly(published_c6_change), Model, c6_change;
        },
        facts: facts! {
            "sender's costs",
                format!(
                    "{}, {}, {}, {} cycles",
                    LOCAL.ipi_cycles, LOCAL.store_cycles, REMOTE.ipi_cycles, REMOTE.store_cycles
                ),
                Calibrated(&["sender's cost"]), "the claim's measurements on Westmere";
            "the nearly idle system",
                format!(
                    "each CPU's task every {interval_ms:.1} ms for {:.0} us, then a call to the next CPU",
                    load.work_ns / 1e3
                ),
                Calibrated(&["C0 before", "C1 before", "C6 before"]),
                "so that C0 and C6 before, and with them C1, are the published means";
            "states", "Westmere's table", Documented, "drivers/idle/intel_idle.c";
            "frequency", format!("{GHZ} GHz"), Documented, "Xeon X5670; only cycles matter";
            "receiver's interrupt", format!("{RECEIVE_CYCLES} cycles"), Assumed, "entry, EOI and exit";
            "idle loop around a stay", format!("{LOOP_CYCLES} cycles"), Assumed, "varied below";
            "looking whether the target monitors", format!("{CHECK_CYCLES} cycles"), Assumed, "a remote line";
            "how often one CPU calls all others", format!("every {}", span(INTERVAL_NS)), Assumed, "varied below";
        },
        grids: vec![
            table! {
                "The nearly idle system, run by run, per cent (ours is one long run: nothing in the model varies from \
                 run to run)";
                runs, |(when, number, run, ours)|
                "run" => format!("{when}, run {number}");
                "C0" => format!("{:.2}", run.c0);
                "ours" => format!("{:.2}", ours.c0);
                "C1" => format!("{:.2}", run.c1);
                "ours" => format!("{:.2}", ours.c1);
                "C6" => format!("{:.2}", run.c6);
                "ours" => format!("{:.2}", ours.c6);
            },
            table! {
                "The free ride: a third CPU wants a CPU that is being woken from C6 (published: it takes 50 to 100 us)";
                &found.rides, |row|
                "exit us" => short(us(row.exit_ns));
                "third comes within us" => us(row.window_ns);
                "free rides" => share(row.free_ratio);
                "IPIs a round with" => short(row.ipis_a_round);
                "without ipi_less" => short(row.ipis_a_round_before);
            },
            table! {
                "The busier the targets, the less a store helps; with a busy one, looking first costs \
                 {CHECK_CYCLES} cycles (assumed) on top of the IPI";
                &found.by_busy_ratio, |At { at, found }|
                "targets busy" => share(*at);
                "sender, IPI" => short(found.ipi_cycles);
                "sender, ipi_less" => short(found.store_cycles);
                "saved cycles" => short(found.saved_cycles());
            },
            table! {
                "Extension to the nohz kick: a busy CPU that has one idle CPU balance for it, at each of its \
                 {KICKS_PER_S} ticks a second";
                [("IPI", ipi), ("store", store)], |(name, kicks)|
                "kick by" => name;
                "sender us/s" => short(kicks.sender_us_per_s);
                "all non-idle us/s" => short(kicks.non_idle_us_per_s);
            },
            matrix(
                "Sensitivity of the change in non-idle cycles: how often it calls, and what the idle loop itself takes \
                 (both assumed)",
                "round every",
                &found.by_interval_ns_and_cycles,
                |interval_ns| format!("{} us", us(*interval_ns)),
                |cycles| format!("loop {cycles} cycles"),
                |change_ratio| percent(*change_ratio),
            ),
            matrix(
                "Sensitivity of the crossover: the busy share from which a store doesn't pay, by what looking first \
                 costs and by what a store saves (mean of local and remote, cycles)",
                "looking first",
                &found.by_check_and_saved_cycles,
                |check| format!("{check} cycles"),
                |saved| format!("saves {saved}"),
                |busy_ratio| share(*busy_ratio),
            ),
        ],
        judgement: sentences! {
            "Fewer non-idle cycles follow from the sender's and the receiver's savings: {} here, about {CHANGE_PERCENT} % \
             published; the size rests on what the idle loop around a stay takes: by the table it is {:+.1} to {}. Cache \
             references are not modelled.",
                percent(found.change_ratio), changes().fold(f64::NEG_INFINITY, f64::max) * 100.0,
                percent(changes().fold(f64::INFINITY, f64::min));
            "On the nearly idle system C0 changes by {c0_change:+.3} points here, {published_c0_change:+.3} published: \
             with a call a CPU every {interval_ms:.1} ms, which fits C0 and C6, it would take {:.0} times as many calls. \
             The published runs scatter nearly as much as they differ (t = {:.1}, {} at 5 %): \"tiny\" is right, its sign \
             is {}.",
                published_c0_change / c0_change, welch_t(),
                if is_significant() { "significant" } else { "not significant" },
                if is_significant() { "proven" } else { "not proven by them" };
            "C6 changes by {c6_change:+.3} points here, {published_c6_change:+.3} published: {}",
                if c6_change > 0.0 {
                    "the same sign, as shorter visits to C0 leave more of the time to C6."
                } else {
                    "it does not follow; what the visits to C0 leave goes to C1."
                };
            "The free ride is real: {} of a third CPU's calls cost no IPI if waking takes {} us and they come within {1} \
             us. With one queue for tasks and calls, as since 5.8, the IPI-only kernel would share some too.",
                or_dash(found.ride(RIDE_NS, RIDE_NS), |row| share(row.free_ratio)), us(RIDE_NS);
            "{}",
                match found.crossing_busy_ratio() {
                    Some(busy) => format!(
                        "The crossover is at targets busy {} of the time: beyond, looking first (assumed: \
                         {CHECK_CYCLES} cycles) costs the sender more than the stores save.",
                        share(busy)
                    ),
                    None => format!(
                        "No crossover up to {} busy: looking first costs too little to matter.",
                        or_dash(found.by_busy_ratio.last(), |row| share(row.at))
                    ),
                };
            "The nohz kick gains what any call does: its target idles by definition, so there is no crossover; {:.0} us \
             of the sender's time a second at {KICKS_PER_S} kicks a second.",
                ipi.sender_us_per_s - store.sender_us_per_s;
        },
        plot: Plot {
            title: "Cycles that a call without IPI saves its sender",
            x_label: "share of time that targets are busy",
            y_label: "cycles a call",
            lines: vec![Line {
                name: "one CPU calling 23 others".to_owned(),
                points: found
                    .by_busy_ratio
                    .iter()
                    .map(|row| (row.at, row.found.saved_cycles()))
                    .collect(),
            }],
        },
    }
}
