//! `c02`. The power of C0.2 is calibrated (it is the claim's own figure). Whether hackbench gains is
//! predicted twice: with the governors as they are, and with what POLL and C0.2 alone would give, so that
//! the mechanism (power budget, SMT sibling) can be told from what a governor makes of it.

use super::{
    Grid, Origin, Plot, Published, Role, Shelf, Study, StudyError, Trial, figure, fitted, input,
    mean_ns, percent, short,
};
use crate::Machine;
use crate::simulate::{Hardware, Report};

/// The claim is of 6.5, whose menu is nearer to 6.1's than to 6.12's.
const GOVERNOR: &str = "menu-6.1";
/// Never in POLL for long where C0.2 is enabled.
const DEADLINE_GOVERNOR: &str = "menu-6.12";
const C02: usize = 1;
/// UMWAIT's default deadline: 100,000 TSC cycles at 2 GHz.
const MAX_TIME_NS: u64 = 50_000;
/// Share of a server's power that its packages take, when they are what draws power. Assumed.
const PACKAGE_SHARE: f64 = 0.7;

/// Two Xeons of 56 cores with two threads each, limited to 350 W a package, 100 W of it uncore.
fn xeon(hardware: Hardware) -> Hardware {
    Hardware {
        package_count: 2,
        core_count: 56,
        thread_count: 2,
        tdp_mw: Some(350_000.0),
        package_mw: 100_000.0,
        turbo_ratio: 1.9,
        budget_period_ns: 100_000,
        umwait_max_ns: Some(MAX_TIME_NS),
        ..hardware
    }
}

/// Every replicate's messages a second, and their mean frequency.
struct Score {
    rates: Vec<f64>,
    frequency: f64,
}

fn score(trial: &Trial<'_>) -> Result<Score, StudyError> {
    let reports = trial.runs()?;
    let frequencies = reports.iter().map(|report| report.cores.mean_frequency_ratio());
    let frequency = frequencies.sum::<f64>() / reports.len() as f64;
    Ok(Score { rates: reports.iter().map(Report::operations_per_s).collect(), frequency })
}

/// A gain and its standard error, as ratios.
#[derive(Clone, Copy)]
struct Gain {
    ratio: f64,
    error: f64,
}

impl Gain {
    /// Replicates of the same seed are compared with each other.
    fn of(score: &Score, base: &Score) -> Self {
        let pairs = score.rates.iter().zip(&base.rates);
        let gains: Vec<f64> = pairs.map(|(rate, base)| rate / base - 1.0).collect();
        let count = gains.len() as f64;
        let ratio = gains.iter().sum::<f64>() / count;
        let squares = gains.iter().map(|gain| (gain - ratio).powi(2)).sum::<f64>();
        Gain { ratio, error: (squares / (count - 1.0).max(1.0) / count).sqrt() }
    }

    fn is_noise(self) -> bool {
        self.ratio.abs() <= 2.0 * self.error
    }
}

impl std::fmt::Display for Gain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.1} ± {:.1} %", self.ratio * 100.0, self.error * 100.0)
    }
}

fn hackbench<'a>(
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    governor: &'a str,
    group_count: u64,
) -> Trial<'a> {
    let mut trial =
        Trial::new(shelf, machine, governor, "hackbench").set("group_count", group_count);
    trial.hardware = xeon(trial.hardware);
    trial.duration_ns = 3_000_000;
    trial.run_count = 4;
    trial
}

/// Only POLL, or only POLL and C0.2, and one CPU's timer interrupts.
fn latency<'a>(shelf: &'a Shelf<'a>, machine: &'a Machine, state: &'a str) -> Trial<'a> {
    let mut trial = Trial::new(shelf, machine, state, "periodic")
        .set("work_ns", 1_000)
        .set("timer_slack_ns", 0)
        .set("jitter_ns", 100_000)
        .set("switch_ns", 0);
    trial.hardware.core_count = 1;
    trial
}

/// C0.2 requests that the platform turns into C0.1: less saved, no clearly shorter exit.
fn with_c01(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    machine.states[C02].power_mw = Some(machine.running_power().mw * 0.9);
    machine
}

pub(super) fn run(shelf: &Shelf<'_>) -> Result<Study, StudyError> {
    let machine = shelf.machine("spr-c02")?;
    let c01 = with_c01(&machine);
    let poll = latency(shelf, &machine, "fixed=0").run()?;
    let c02 = latency(shelf, &machine, "fixed=1").run()?;
    let poll_ns = mean_ns(&poll, "late_ns");
    let added_ns = mean_ns(&c02, "late_ns") - poll_ns;
    let idle_power = |governor| -> Result<f64, StudyError> {
        let mut trial = Trial::new(shelf, &machine, governor, "periodic").set("work_ns", 1_000);
        trial.duration_ns = 100_000_000;
        Ok(trial.run()?.power_mw())
    };
    let core_ratio = idle_power("fixed=1")? / idle_power("fixed=0")? - 1.0;

    let mut variants = Grid::new(
        "hackbench on 224 CPUs at the power limit (messages a second against the row above without C0.2; ± is \
         the standard error of 4 runs)",
        &["variant", "4 groups", "frequency", "8 groups", "frequency"],
    );
    type Change = fn(&mut Trial<'_>);
    let nothing: Change = |_| {};
    let without: Change = |trial| trial.disabled = trial.disabled.with(C02);
    let unlimited: Change = |trial| trial.hardware.tdp_mw = None;
    // Each with the row that it is compared with.
    let cases: [(&str, usize, &str, &Machine, Change); 11] = [
        ("menu, C0.2 disabled", 0, GOVERNOR, &machine, without),
        ("menu, C0.2", 0, GOVERNOR, &machine, nothing),
        ("teo, C0.2 disabled", 2, "teo-6.1", &machine, without),
        ("teo, C0.2", 2, "teo-6.1", &machine, nothing),
        ("POLL only", 4, "fixed=0", &machine, nothing),
        ("C0.2 only", 4, "fixed=1", &machine, nothing),
        ("C0.2 only, enable_c02=0: C0.1", 4, "fixed=1", &c01, nothing),
        ("C0.2 only, max_time 5 us", 4, "fixed=1", &machine, |trial| {
            trial.hardware.umwait_max_ns = Some(5_000);
        }),
        ("POLL only, no power limit", 8, "fixed=0", &machine, unlimited),
        ("C0.2 only, no power limit", 8, "fixed=1", &machine, unlimited),
        ("C1 only", 4, "fixed=2", &machine, nothing),
    ];
    let mut scores: Vec<[Score; 2]> = Vec::new();
    let mut gains: Vec<[Gain; 2]> = Vec::new();
    for (name, base, governor, machine, change) in cases {
        let run = |group_count| -> Result<Score, StudyError> {
            let mut trial = hackbench(shelf, machine, governor, group_count);
            change(&mut trial);
            score(&trial)
        };
        scores.push([run(4)?, run(8)?]);
        let of = |groups: usize| Gain::of(&scores[scores.len() - 1][groups], &scores[base][groups]);
        let gain = [of(0), of(1)];
        let mut row = vec![name.to_owned()];
        for (gain, score) in gain.iter().zip(&scores[scores.len() - 1]) {
            let is_base = base + 1 == scores.len();
            row.push(if is_base { "base".to_owned() } else { gain.to_string() });
            row.push(format!("{:.3}", score.frequency));
        }
        gains.push(gain);
        variants.rows.push(row);
    }
    let [menu, teo, alone, unlimited_alone] = [gains[1], gains[3], gains[5], gains[9]];
    let frequency_gain =
        [0, 1].map(|groups: usize| scores[5][groups].frequency / scores[4][groups].frequency - 1.0);

    let mut deadline = Grid::new(
        "max_time with only POLL and C0.2 enabled: bursts, then 3 ms of nothing (1 CPU)",
        &["max_time us", "power of POLL alone", "deadlines a second"],
    );
    let mut points = Vec::new();
    for max_us in [1_u64, 2, 5, 10, 50, 500, 0] {
        let with = |disabled_c02: bool| -> Result<Report, StudyError> {
            let mut trial = Trial::new(shelf, &machine, DEADLINE_GOVERNOR, "burst-then-idle")
                .set("quiet_ns", 3_000_000)
                .set("umwait_max_ns", max_us * 1_000);
            trial.hardware.core_count = 1;
            for state in 2..machine.states.len() {
                trial.disabled = trial.disabled.with(state);
            }
            if disabled_c02 {
                trial.disabled = trial.disabled.with(C02);
            }
            trial.run()
        };
        let (on, off) = (with(false)?, with(true)?);
        let ratio = on.power_mw() / off.power_mw();
        let name = if max_us == 0 { "none".to_owned() } else { max_us.to_string() };
        let others = on.idle.gap_count + on.idle.tick_wake_count;
        let entries = on.idle.states[C02].entry_count;
        deadline.rows.push(vec![
            name,
            format!("{:.1} %", ratio * 100.0),
            short(entries.saturating_sub(others) as f64 * 1e9 / on.duration_ns as f64),
        ]);
        if max_us > 0 {
            points.push(((max_us as f64).log10(), ratio * 100.0));
        }
    }

    let mut sensitivity = Grid::new(
        "Sensitivity of C0.2 only against POLL only to what is assumed: uncore, exponent, SMT, work",
        &["assumption", "4 groups", "8 groups"],
    );
    let changes: [(&str, Change); 6] = [
        ("as above", nothing),
        ("uncore 50 W", |trial| trial.hardware.package_mw = 50_000.0),
        ("uncore 150 W", |trial| trial.hardware.package_mw = 150_000.0),
        ("exponent 3", |trial| trial.hardware.power_exponent = 3.0),
        ("second thread at 0.5", |trial| trial.hardware.smt2_speed = 0.5),
        ("messages of half the work", |trial| {
            trial.sets.push(("send_work_ns", "1250".to_owned()));
            trial.sets.push(("receive_work_ns", "1250".to_owned()));
        }),
    ];
    for (name, change) in changes {
        let mut row = vec![name.to_owned()];
        for group_count in [4, 8] {
            let run = |state: &str| -> Result<Score, StudyError> {
                let mut trial = hackbench(shelf, &machine, state, group_count);
                trial.run_count = 3;
                trial.duration_ns = 2_000_000;
                change(&mut trial);
                score(&trial)
            };
            row.push(Gain::of(&run("fixed=1")?, &run("fixed=0")?).to_string());
        }
        sensitivity.rows.push(row);
    }

    let mut latencies = Grid::new(
        "Sensitivity of the interrupt latency to what POLL itself takes (assumed: 400 ns)",
        &["interrupt entry under POLL", "C0.2, median"],
    );
    for entry_ns in [250, 400, 600, 1_000] {
        let with = |state| -> Result<f64, StudyError> {
            let mut trial = latency(shelf, &machine, state);
            trial.hardware.irq_entry_ns = entry_ns;
            Ok(mean_ns(&trial.run()?, "late_ns"))
        };
        let (poll, c02) = (with("fixed=0")?, with("fixed=1")?);
        latencies.rows.push(vec![format!("{entry_ns} ns"), percent(c02 / poll - 1.0)]);
    }

    let at_the_wall = |share: f64| 0.82_f64.mul_add(share, 1.0 - share) - 1.0;
    let ac_ratio = at_the_wall(PACKAGE_SHARE);
    let verdict = |gain: Gain| match (gain.ratio == 0.0, gain.is_noise()) {
        (true, _) => " (the very same course)",
        (false, true) => " (noise)",
        (false, false) => "",
    };
    let judgement = vec![
        format!(
            "Interrupt latency: the driver's table gives C0.2 100 ns; with {} ns of interrupt entry under POLL \
             (assumed) that is {}. +24 % of 100 ns means 417 ns under POLL, and +12 % at the 99th percentile the \
             same 100 ns there, if POLL's 99th percentile is twice its median. One constant explains both; \
             whether it is 100 ns only POLL's own latency could tell, which was not published.",
            short(poll_ns),
            percent(added_ns / poll_ns)
        ),
        format!(
            "Power: -18 % (RAPL) went in and proves nothing. -13 % at the wall says that packages draw {:.0} % of \
             its power; with 60 to 80 % it would be {} to {}.",
            13.0 / 18.0 * 100.0,
            percent(at_the_wall(0.6)),
            percent(at_the_wall(0.8)),
        ),
        format!(
            "hackbench's gain with the governors as they are does not follow: menu {}{} and {}{}, teo {}{} and {}{} with \
             4 and 8 groups, published +4 % and +0.6 %. menu forecasts whole microseconds: 0 is POLL, 1 is \
             already C1, so that it hardly ever asks for C0.2 beside C1 of 1 us.",
            menu[0], verdict(menu[0]), menu[1], verdict(menu[1]),
            teo[0], verdict(teo[0]), teo[1], verdict(teo[1]),
        ),
        format!(
            "The mechanism is there, and small: C0.2 alone instead of POLL alone leaves power for {} and {} more \
             frequency with 4 and 8 groups. Messages a second change by {}{} and {}{}, without a power limit by {}{} \
             and {}{}; {}",
            percent(frequency_gain[0]),
            percent(frequency_gain[1]),
            alone[0], verdict(alone[0]), alone[1], verdict(alone[1]),
            unlimited_alone[0], verdict(unlimited_alone[0]), unlimited_alone[1], verdict(unlimited_alone[1]),
            if alone[1].is_noise() || unlimited_alone[1].is_noise() {
                "runs scatter too much to tell the budget from the SMT sibling that no longer competes with a \
                 polling thread."
            } else if unlimited_alone[1].ratio < alone[1].ratio / 2.0 {
                "the power budget is most of it."
            } else {
                "so more of it is the SMT sibling that no longer competes with a polling thread."
            }
        ),
        format!(
            "By frequency the order of 4 and 8 groups {} as published; 4 % is not reached: hackbench's tasks \
             would have to poll longer than here, which its real pipes decide.",
            if frequency_gain[0] > frequency_gain[1] { "is" } else { "is not" },
        ),
        "The author later found it not worth it on released parts; nothing here contradicts that: beside C1 of \
         1 us there is hardly an idle for it."
            .to_owned(),
    ];
    Ok(Study {
        name: "c02",
        claim: "C0.2 between POLL and C1: interrupt latency +24 % (median) and +12 % (99th percentile) over \
                POLL, power -13 % (AC) and -18 % (RAPL); hackbench +4 % with 4 groups and +0.6 % with 8.",
        source: "Artem Bityutskiy, Sapphire Rapids C0.x idle states support, v4, 10 July 2023",
        figures: vec![
            figure(
                "interrupt latency, C0.2 against POLL, median",
                "%",
                Published::Exactly(24.0),
                added_ns / poll_ns * 100.0,
                Role::Simulated,
            ),
            figure(
                "POLL's latency of which 100 ns are 24 %",
                "ns",
                Published::Nothing,
                100.0 / 0.24,
                Role::Arithmetic,
            ),
            figure(
                "99th percentile over median under POLL, if C0.2 adds a constant",
                "times",
                Published::Nothing,
                24.0 / 12.0,
                Role::Arithmetic,
            ),
            figure(
                "interrupt latency, 99th percentile, with that",
                "%",
                Published::Exactly(12.0),
                added_ns / (2.0 * poll_ns) * 100.0,
                Role::Calibrated,
            ),
            figure(
                "power of the cores (RAPL)",
                "%",
                Published::Exactly(-18.0),
                core_ratio * 100.0,
                Role::Calibrated,
            ),
            figure(
                "share of the wall's power that packages draw, from -13 and -18 %",
                "%",
                Published::Nothing,
                13.0 / 18.0 * 100.0,
                Role::Arithmetic,
            ),
            figure(
                "power at the wall (AC), if packages draw 70 % of it",
                "%",
                Published::Exactly(-13.0),
                ac_ratio * 100.0,
                Role::Simulated,
            ),
            figure(
                "hackbench, 4 groups, menu",
                "%",
                Published::Exactly(4.0),
                menu[0].ratio * 100.0,
                Role::Predicted,
            ),
            figure(
                "hackbench, 8 groups, menu",
                "%",
                Published::Exactly(0.6),
                menu[1].ratio * 100.0,
                Role::Predicted,
            ),
            figure(
                "hackbench, 4 groups, teo",
                "%",
                Published::Exactly(4.0),
                teo[0].ratio * 100.0,
                Role::Simulated,
            ),
            figure(
                "hackbench, 8 groups, teo",
                "%",
                Published::Exactly(0.6),
                teo[1].ratio * 100.0,
                Role::Simulated,
            ),
            figure(
                "frequency by the power budget, 4 groups, C0.2 only against POLL only",
                "%",
                Published::Nothing,
                frequency_gain[0] * 100.0,
                Role::Simulated,
            ),
            figure(
                "frequency by the power budget, 8 groups, C0.2 only against POLL only",
                "%",
                Published::Nothing,
                frequency_gain[1] * 100.0,
                Role::Simulated,
            ),
            figure(
                "hackbench, 4 groups, C0.2 only against POLL only",
                "%",
                Published::Nothing,
                alone[0].ratio * 100.0,
                Role::Simulated,
            ),
            figure(
                "hackbench, 8 groups, C0.2 only against POLL only",
                "%",
                Published::Nothing,
                alone[1].ratio * 100.0,
                Role::Simulated,
            ),
            figure(
                "hackbench, 4 groups, C0.1 only (enable_c02=0) against POLL only",
                "%",
                Published::Nothing,
                gains[6][0].ratio * 100.0,
                Role::Simulated,
            ),
        ],
        inputs: vec![
            fitted(
                "power of C0.2",
                "0.82 of POLL",
                "the claim's RAPL figure",
                &["power of the cores (RAPL)"],
            ),
            fitted(
                "POLL's 99th percentile",
                "twice its median",
                "24 over 12 %: what a constant addition needs",
                &["interrupt latency, 99th percentile"],
            ),
            fitted("exit latency of C0.2", "100 ns", "the series' own table", &[]),
            input(
                "UMWAIT deadline",
                "50 us",
                Origin::Documented,
                "the kernel's 100,000 TSC cycles (arch/x86/kernel/cpu/umwait.c)",
            ),
            input(
                "two Xeons",
                "2 × 56 × 2 CPUs, 350 W a package",
                Origin::Documented,
                "the claim's 224 CPUs; the power limit of such parts",
            ),
            input(
                "states and governors",
                "POLL, C0.2, C1 1/1 us, C1E, C6; Linux 6.1.192",
                Origin::Documented,
                "drivers/idle/intel_idle.c with the series; our ports, bit-exact",
            ),
            input("power of C0.1", "0.9 of POLL", Origin::Assumed, "\"C0.2 saves more power\""),
            input("interrupt entry under POLL", "400 ns", Origin::Assumed, "varied below"),
            input(
                "share of the wall's power that packages draw",
                "70 %",
                Origin::Assumed,
                "a two-socket server",
            ),
            input(
                "uncore, running core, exponent, turbo",
                "100 W, 4 W, 2.5, 1.9",
                Origin::Assumed,
                "varied below",
            ),
            input(
                "second thread of a core",
                "each at 0.62",
                Origin::Assumed,
                "usual SMT yield of 24 %",
            ),
            input("work of a message", "2.5 us each side", Origin::Assumed, "varied below"),
        ],
        grids: vec![variants, deadline, sensitivity, latencies],
        judgement,
        plot: Plot {
            title: "Power of bursts and 3 ms idles with POLL and C0.2 only".to_owned(),
            x_label: "log10 of max_time in us".to_owned(),
            y_label: "% of POLL alone".to_owned(),
            series: vec![("with C0.2".to_owned(), points)],
        },
    })
}
