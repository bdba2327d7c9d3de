//! `ipi-less`. What a function call costs its sender is calibrated, with an IPI and without; what that
//! does to a system is predicted.

use super::{
    Grid, Origin, Plot, Published, Role, Shelf, Study, StudyError, Trial, figure, fitted, input,
    mean_ns, short,
};
use crate::Machine;
use crate::simulate::{Hardware, Report};

const GHZ: f64 = 2.93;
const GOVERNOR: &str = "menu-6.1";

fn ns(cycles: f64) -> u64 {
    (cycles / GHZ).round() as u64
}

/// A Westmere server of two packages: the published sender's costs, the rest assumed.
fn westmere(hardware: Hardware, ipi_less: bool) -> Hardware {
    Hardware {
        package_count: 2,
        core_count: 6,
        thread_count: 2,
        ipi_send_ns: ns(1_600.0),
        ipi_send_remote_ns: ns(2_000.0),
        store_ns: ns(1_200.0),
        store_remote_ns: ns(1_800.0),
        ring_check_ns: ns(100.0),
        ipi_receive_ns: ns(1_200.0),
        ipi_delivery_ns: 300,
        store_delivery_ns: 100,
        idle_loop_ns: ns(4_000.0),
        hz: 1_000,
        ipi_less,
        ..hardware
    }
}

/// Time that cores' clocks run: what `turbostat` and cycle counters call C0. Leaving a state is not
/// part of it: clocks start at its end.
fn non_idle_ns(report: &Report) -> f64 {
    (report.busy_ns - report.exit_ns) as f64
}

fn calls<'a>(
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    ipi_less: bool,
    interval_ns: u64,
    busy_ratio: f64,
) -> Trial<'a> {
    let mut trial = Trial::new(shelf, machine, GOVERNOR, "async-calls")
        .set("interval_ns", interval_ns)
        .set("busy_ratio", busy_ratio)
        .set("call_work_ns", ns(800.0));
    trial.hardware = westmere(trial.hardware, ipi_less);
    trial.duration_ns = 200_000_000;
    trial
}

/// The sender's mean cost of a call, in cycles.
fn sender_cycles(report: &Report) -> f64 {
    mean_ns(report, "sender_ns") * GHZ
}

fn two_cpus<'a>(
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    ipi_less: bool,
    is_remote: bool,
) -> Trial<'a> {
    let mut trial = calls(shelf, machine, ipi_less, 1_000_000, 0.0);
    trial.hardware = Hardware {
        package_count: if is_remote { 2 } else { 1 },
        core_count: if is_remote { 1 } else { 2 },
        thread_count: 1,
        ..trial.hardware
    };
    trial
}

/// What a CPU of the nearly idle system does.
#[derive(Clone, Copy)]
struct NearlyIdle {
    interval_ns: f64,
    work_ns: f64,
}

/// C0, what is neither C0 nor C6, and C6, in per cent.
fn mostly_idle(
    shelf: &Shelf<'_>,
    machine: &Machine,
    ipi_less: bool,
    load: NearlyIdle,
) -> Result<[f64; 3], StudyError> {
    let mut trial = Trial::new(shelf, machine, GOVERNOR, "nearly-idle")
        .set("interval_ns", load.interval_ns as u64)
        .set("work_ns", load.work_ns as u64)
        .set("wake_ratio", 1);
    trial.hardware = westmere(trial.hardware, ipi_less);
    trial.duration_ns = 10_000_000_000;
    let report = trial.run()?;
    let all_ns = (report.cpu_count * report.duration_ns) as f64;
    let c0 = non_idle_ns(&report) / all_ns * 100.0;
    let deepest = machine.states.len() - 1;
    let c6 = report.idle.states[deepest].stay_ns as f64 / all_ns * 100.0;
    Ok([c0, 100.0 - c0 - c6, c6])
}

/// The load under which C0 and C6 are the published ones as long as IPIs are sent.
fn fit_load(shelf: &Shelf<'_>, machine: &Machine) -> Result<NearlyIdle, StudyError> {
    let [c0_wanted, c1_wanted] = [mean(&BEFORE, 0), mean(&BEFORE, 1)];
    let mut load = NearlyIdle { interval_ns: 40_000_000.0, work_ns: 500_000.0 };
    for _ in 0..FIT_ROUND_COUNT {
        let [c0, c1, _] = mostly_idle(shelf, machine, false, load)?;
        let active_ns = c0 / 100.0 * load.interval_ns;
        // Both are nearly inverse to the interval; what is active besides the work stays.
        load.interval_ns = (load.interval_ns * c1 / c1_wanted).clamp(1e6, 1e9);
        let active_wanted_ns = c0_wanted / 100.0 * load.interval_ns;
        load.work_ns = (load.work_ns + active_wanted_ns - active_ns).max(1.0);
    }
    Ok(load)
}

const FIT_ROUND_COUNT: usize = 6;

/// Published C0, C1, C6 in per cent, three runs each.
const BEFORE: [[f64; 3]; 3] = [[1.51, 2.93, 95.55], [1.48, 2.86, 95.65], [1.46, 2.78, 95.74]];
const AFTER: [[f64; 3]; 3] = [[1.35, 2.63, 96.00], [1.46, 2.78, 95.74], [1.37, 2.63, 95.98]];

fn mean(runs: &[[f64; 3]; 3], column: usize) -> f64 {
    runs.iter().map(|run| run[column]).sum::<f64>() / 3.0
}

/// Welch's t of the difference of the C0 columns.
fn welch_t() -> f64 {
    let variance = |runs: &[[f64; 3]; 3]| {
        let mean = mean(runs, 0);
        runs.iter().map(|run| (run[0] - mean).powi(2)).sum::<f64>() / 2.0
    };
    (mean(&BEFORE, 0) - mean(&AFTER, 0)) / ((variance(&BEFORE) + variance(&AFTER)) / 3.0).sqrt()
}

/// 5 % two-sided, for the 2.7 degrees of freedom of Welch's approximation to those runs.
const T_CRITICAL: f64 = 3.4;

pub(super) fn run(shelf: &Shelf<'_>) -> Result<Study, StudyError> {
    let machine = shelf.machine("nhm-table")?;
    let mut figures = Vec::new();
    for (is_remote, place, with_ipi, without) in
        [(false, "local", 1_600.0, 1_200.0), (true, "remote", 2_000.0, 1_800.0)]
    {
        for (ipi_less, published) in [(false, with_ipi), (true, without)] {
            let report = two_cpus(shelf, &machine, ipi_less, is_remote).run()?;
            let how = if ipi_less { "store" } else { "IPI" };
            figures.push(figure(
                format!("sender's cost, {place} socket, {how}"),
                "cycles",
                Published::Exactly(published),
                sender_cycles(&report),
                Role::Calibrated,
            ));
        }
    }
    let change = |interval_ns, busy_ratio, loop_cycles: f64| -> Result<f64, StudyError> {
        let mut sums = [0.0; 2];
        for (sum, ipi_less) in sums.iter_mut().zip([false, true]) {
            let mut trial = calls(shelf, &machine, ipi_less, interval_ns, busy_ratio);
            trial.hardware.idle_loop_ns = ns(loop_cycles);
            *sum = non_idle_ns(&trial.run()?);
        }
        Ok((sums[1] / sums[0] - 1.0) * 100.0)
    };
    let predicted = change(200_000, 0.0, 4_000.0)?;
    figures.push(figure(
        "non-idle cycles, one CPU calling all others, mostly idle",
        "%",
        Published::Exactly(-10.0),
        predicted,
        Role::Simulated,
    ));

    let load = fit_load(shelf, &machine)?;
    let before = mostly_idle(shelf, &machine, false, load)?;
    let after = mostly_idle(shelf, &machine, true, load)?;
    for (index, name) in ["C0", "C1", "C6"].into_iter().enumerate() {
        let exactly = |runs| Published::Exactly(mean(runs, index));
        figures.push(figure(
            format!("{name} before, mean of 3 runs"),
            "%",
            exactly(&BEFORE),
            before[index],
            Role::Calibrated,
        ));
        figures.push(figure(
            format!("{name} after, mean of 3 runs"),
            "%",
            exactly(&AFTER),
            after[index],
            Role::Simulated,
        ));
    }
    for (index, name) in ["C0", "C1", "C6"].into_iter().enumerate() {
        figures.push(figure(
            format!("change of {name}"),
            "points",
            Published::Exactly(mean(&AFTER, index) - mean(&BEFORE, index)),
            after[index] - before[index],
            Role::Simulated,
        ));
    }
    let mut runs = Grid::new(
        "The nearly idle system, run by run, per cent (ours is one long run: nothing in the model varies \
         from run to run)",
        &["run", "C0", "ours", "C1", "ours", "C6", "ours"],
    );
    for (when, published, ours) in [("before", &BEFORE, before), ("after", &AFTER, after)] {
        for (index, run) in published.iter().enumerate() {
            let mut row = vec![format!("{when}, run {}", index + 1)];
            for (published, ours) in run.iter().zip(ours) {
                row.extend([format!("{published:.2}"), format!("{ours:.2}")]);
            }
            runs.rows.push(row);
        }
    }

    let mut rides = Grid::new(
        "The free ride: a third CPU wants a CPU that is being woken from C6 (published: it takes 50 to \
         100 us)",
        &[
            "exit us",
            "third comes within us",
            "free rides",
            "IPIs a round with",
            "without ipi_less",
        ],
    );
    let mut free_at_100 = 0.0;
    for exit_us in [50.0, 100.0, 200.0] {
        for window_us in [50_u64, 100] {
            let with = |ipi_less| -> Result<Report, StudyError> {
                let mut trial = Trial::new(shelf, &machine, GOVERNOR, "third-cpu")
                    .set("window_ns", window_us * 1_000);
                trial.hardware = westmere(trial.hardware, ipi_less);
                trial.hardware.thread_count = 1;
                trial.hardware.exit_ratio = exit_us / 200.0;
                trial.run()
            };
            let (report, old) = (with(true)?, with(false)?);
            let rounds = report.metrics.operation_count.max(1) as f64;
            let free = report.ipis.free_ride_count as f64 / rounds;
            if exit_us == 100.0 && window_us == 100 {
                free_at_100 = free;
            }
            rides.rows.push(vec![
                short(exit_us),
                window_us.to_string(),
                format!("{:.0} %", free * 100.0),
                short(report.ipis.sent_count as f64 / rounds),
                short(old.ipis.sent_count as f64 / old.metrics.operation_count.max(1) as f64),
            ]);
        }
    }

    let mut crossover = Grid::new(
        "The busier the targets, the less a store helps; with a busy one, looking first costs 100 cycles \
         (assumed) on top of the IPI",
        &["targets busy", "sender, IPI", "sender, ipi_less", "saved cycles"],
    );
    let mut points = Vec::new();
    for busy in [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97] {
        let cost = |ipi_less| -> Result<f64, StudyError> {
            Ok(sender_cycles(&calls(shelf, &machine, ipi_less, 200_000, busy).run()?))
        };
        let (ipi, store) = (cost(false)?, cost(true)?);
        points.push((busy, ipi - store));
        crossover.rows.push(vec![
            format!("{:.0} %", busy * 100.0),
            short(ipi),
            short(store),
            short(ipi - store),
        ]);
    }
    let pair = points.windows(2).find(|pair| pair[0].1 > 0.0 && pair[1].1 <= 0.0);
    let crossing = pair.map(|pair| {
        let ((a, high), (b, low)) = (pair[0], pair[1]);
        a + (b - a) * high / (high - low)
    });
    let mut checks = Grid::new(
        "Sensitivity of the crossover: the busy share from which a store doesn't pay, by what looking first \
         costs and by what a store saves (mean of local and remote, cycles)",
        &["looking first", "saves 150", "saves 300", "saves 600"],
    );
    for check in [25.0, 50.0, 100.0, 200.0] {
        let mut row = vec![format!("{check:.0} cycles")];
        // Saved while idle: `saves`; lost while busy: `check`.
        let shares = [150.0, 300.0, 600.0].map(|saves: f64| saves / (saves + check) * 100.0);
        row.extend(shares.map(|share| format!("{share:.0} %")));
        checks.rows.push(row);
    }

    let mut kick = Grid::new(
        "Extension to the nohz kick: a busy CPU that has one idle CPU balance for it, at each of its \
         1000 ticks a second",
        &["kick by", "sender us/s", "all non-idle us/s"],
    );
    let mut kick_saved = 0.0;
    for ipi_less in [false, true] {
        let report = two_cpus(shelf, &machine, ipi_less, false).run()?;
        let per_s = 1e9 / report.duration_ns as f64 / 1e3;
        let sender_us = report.ipis.sender_ns as f64 * per_s;
        kick_saved += if ipi_less { -sender_us } else { sender_us };
        kick.rows.push(vec![
            if ipi_less { "store" } else { "IPI" }.to_owned(),
            short(sender_us),
            short(non_idle_ns(&report) * per_s),
        ]);
    }

    let mut sensitivity = Grid::new(
        "Sensitivity of the change in non-idle cycles: how often it calls, and what the idle loop itself \
         takes (both assumed)",
        &["round every", "loop 1000 cycles", "loop 4000 cycles", "loop 16000 cycles"],
    );
    let (mut least, mut most) = (f64::NEG_INFINITY, f64::INFINITY);
    for interval_ns in [100_000, 200_000, 1_000_000] {
        let mut row = vec![format!("{} us", interval_ns / 1_000)];
        for cycles in [1_000.0, 4_000.0, 16_000.0] {
            let found = change(interval_ns, 0.0, cycles)?;
            (least, most) = (least.max(found), most.min(found));
            row.push(format!("{found:+.1} %"));
        }
        sensitivity.rows.push(row);
    }
    let t = welch_t();
    let is_significant = t >= T_CRITICAL;
    let judgement = vec![
        format!(
            "Fewer non-idle cycles follow from the sender's and the receiver's savings: {predicted:+.1} % \
             here, about -10 % published; the size rests on what the idle loop around a stay takes: by \
             the table it is {least:+.1} to {most:+.1} %. Cache references are not modelled."
        ),
        format!(
            "On the nearly idle system C0 changes by {:+.3} points here, {:+.3} published: with a call a CPU \
             every {:.1} ms, which fits C0 and C6, it would take {:.0} times as many calls. The published runs \
             scatter nearly as much as they differ (t = {t:.1}, {} at 5 %): \"tiny\" is right, its sign is {}.",
            after[0] - before[0],
            mean(&AFTER, 0) - mean(&BEFORE, 0),
            load.interval_ns / 1e6,
            (mean(&AFTER, 0) - mean(&BEFORE, 0)) / (after[0] - before[0]),
            if is_significant { "significant" } else { "not significant" },
            if is_significant { "proven" } else { "not proven by them" }
        ),
        format!(
            "C6 changes by {:+.3} points here, {:+.3} published: {}",
            after[2] - before[2],
            mean(&AFTER, 2) - mean(&BEFORE, 2),
            if after[2] > before[2] {
                "the same sign, as shorter visits to C0 leave more of the time to C6."
            } else {
                "it does not follow; what the visits to C0 leave goes to C1."
            }
        ),
        format!(
            "The free ride is real: {:.0} % of a third CPU's calls cost no IPI if waking takes 100 us and \
             they come within 100 us. With one queue for tasks and calls, as since 5.8, the IPI-only kernel \
             would share some too.",
            free_at_100 * 100.0
        ),
        match crossing {
            Some(busy) => format!(
                "The crossover is at targets busy {:.0} % of the time: beyond, looking first (assumed: 100 \
                 cycles) costs the sender more than the stores save.",
                busy * 100.0
            ),
            None => {
                "No crossover up to 97 % busy: looking first costs too little to matter.".to_owned()
            }
        },
        format!(
            "The nohz kick gains what any call does: its target idles by definition, so there is no \
             crossover; {kick_saved:.0} us of the sender's time a second at 1000 kicks a second."
        ),
    ];
    Ok(Study {
        name: "ipi-less",
        claim: "A CPU idling in MWAIT can be woken by a store: function calls cost their sender 1200 \
                instead of 1600 cycles (local) and 1800 instead of 2000 (remote); 10 % fewer non-idle \
                cycles; a tiny decrease of C0; a third CPU's wake-up is free.",
        source: "Venkatesh Pallipadi, [RFC] Extend mwait idle to optimize away IPIs when possible, \
                 6 February 2012",
        figures,
        inputs: vec![
            fitted(
                "sender's costs",
                "1600, 1200, 2000, 1800 cycles",
                "the claim's measurements on Westmere",
                &["sender's cost"],
            ),
            fitted(
                "the nearly idle system",
                format!(
                    "each CPU's task every {:.1} ms for {:.0} us, then a call to the next CPU",
                    load.interval_ns / 1e6,
                    load.work_ns / 1e3
                ),
                "so that C0 and C6 before, and with them C1, are the published means",
                &["C0 before", "C1 before", "C6 before"],
            ),
            input("states", "Westmere's table", Origin::Documented, "drivers/idle/intel_idle.c"),
            input(
                "frequency",
                format!("{GHZ} GHz"),
                Origin::Documented,
                "Xeon X5670; only cycles matter",
            ),
            input("receiver's interrupt", "1200 cycles", Origin::Assumed, "entry, EOI and exit"),
            input("idle loop around a stay", "4000 cycles", Origin::Assumed, "varied below"),
            input(
                "looking whether the target monitors",
                "100 cycles",
                Origin::Assumed,
                "a remote line",
            ),
            input(
                "how often one CPU calls all others",
                "every 200 us",
                Origin::Assumed,
                "varied below",
            ),
        ],
        grids: vec![runs, rides, crossover, kick, sensitivity, checks],
        judgement,
        plot: Plot {
            title: "Cycles that a call without IPI saves its sender".to_owned(),
            x_label: "share of time that targets are busy".to_owned(),
            y_label: "cycles a call".to_owned(),
            series: vec![("one CPU calling 23 others".to_owned(), points)],
        },
    })
}
