//! `c02`. The power of C0.2 is calibrated to the package power of the claim. hackbench runs under menu and
//! teo, each with C0.2 and without, and with POLL or C0.2 as the only state, so that the mechanism (power
//! budget, SMT sibling) can be told from what a governor makes of it.
//!
//! hackbench is simulated on a quarter of the claim's machine with a quarter of its groups: one package of 28
//! cores. Groups share nothing but CPUs and power, and the whole machine gives the same gains.

use crate::error::Result;
use crate::inputs::Origin::{Assumed, Calibrated, Documented};
use crate::inputs::{Alternative, Changes, Together, inputs};
use crate::trial::{Shelf, Sweep, Trial, spans, sweep};
use idlewise_machine::Machine;
use idlewise_sim::simulate::{Hardware, Quantiles, Report};
use idlewise_sim::workload::{BurstThenIdle, Hackbench, Periodic};

/// A deadline of UMWAIT that one variant has.
pub const SHORT_DEADLINE_NS: u64 = 5_000;
/// The claim is of 6.5, whose menu is nearer to 6.1's than to 6.12's.
pub const MENU: &str = "menu-6.1";
const TEO: &str = "teo-6.1";
/// Never in POLL for long where C0.2 is enabled.
const DEADLINE_GOVERNOR: &str = "menu-6.12";
const POLL: &str = "fixed=POLL";
const C02: &str = "fixed=C0.2";
/// The claim's machine has so many times the cores that hackbench is simulated on.
pub const MACHINE_DIVISOR: u64 = 4;
const CORE_COUNT: u64 = 28;
/// How long hackbench runs before it is measured.
pub const WARM_UP_NS: u64 = 1_000_000;
/// How long it is measured: so many works of a message, but not less than the time.
const MEASURED_WORK_COUNT: u64 = 2_000;
const MEASURED_MIN_NS: u64 = 2_000_000;
/// The whole machine, which few runs simulate, runs longer by this factor.
pub const WHOLE_FACTOR: u64 = 5;
/// Replicates are added until the standard error of their median is below this share, or until they are as
/// many as this.
pub const ERROR_RATIO_MAX: f64 = 0.004;
pub const RUN_COUNT_MAX: u64 = 6;
const RUN_COUNT_MIN: u64 = 3;

inputs! {
    /// Inputs of `c02`.
    pub struct Inputs {
        work_ns: 1000.0, 300.0..=2500.0, "ns", Assumed,
            "work of a message, for sender and receiver each", "about what hackbench reports; the claim gives no rate";
        work_spread: 1.0, 0.5..=1.0, "", Assumed,
            "largest deviation of a message's work from its mean", "with less, all groups run in step";
        capacity: 8.0, 8.0..=277.0, "", Assumed,
            "messages that a receiver's socket holds", "277 of 768 bytes fit into Linux's default buffer; with few, tasks wait often";
        declared_ns: 200.0, 100.0..=200.0, "ns", Documented,
            "declared exit latency and target residency of C0.2",
            "v3 and v4 of the patch (Message-Id 20230710093100.918337-5-dedekind1@gmail.com); v1 and v2 have 100";
        exit_ns: 200.0, 50.0..=200.0, "ns", Assumed,
            "real exit latency of C0.2", "as declared, which is a worst case";
        entry_ns: 400.0, 250.0..=1000.0, "ns", Assumed,
            "median interrupt latency under POLL", "not published";
        latency_spread: 2.0, 1.2..=4.0, "", Assumed,
            "99th percentile of that latency over its median", "not published; a constant addition needs 2";
        rapl_percent: -18.0, -19.0..=-17.0, "%", Calibrated(&["power of the packages (RAPL)"]),
            "package power with C0.2, against POLL", "the claim's; the power of C0.2 is fitted to it";
        running_w: 4.0, 3.0..=5.0, "W", Documented,
            "power of a running core at nominal frequency", "Skylake's C0 in AgileWatts (Yahya et al., 2022)";
        poll_power: 1.0, 0.5..=1.0, "", Assumed,
            "power of POLL, relative to a running core's", "POLL pauses; not published";
        uncore_w: 100.0, 50.0..=150.0, "W", Assumed,
            "power of a package besides its cores", "about a server's uncore";
        rest_w: 250.0, 150.0..=400.0, "W", Assumed,
            "power of the server besides its packages", "memory, fans and power supplies of a two-socket server";
        tdp_w: 350.0, 350.0..=350.0, "W", Documented,
            "power limit of a package", "Intel's for parts with 56 cores";
        exponent: 2.5, 2.0..=3.0, "", Assumed,
            "exponent of running power over frequency", "between constant and proportional voltage";
        turbo: 1.9, 1.5..=2.0, "", Assumed,
            "highest frequency over the nominal one", "3.8 over 2.0 GHz";
        second_thread: 0.62, 0.5..=0.75, "", Assumed,
            "speed of each of two running threads of a core", "usual SMT yield";
        poll_sibling: 0.9, 0.62..=1.0, "", Assumed,
            "speed of a thread whose sibling is in POLL", "PAUSE leaves most of the core; not published";
        c02_sibling: 1.0, 0.95..=1.0, "", Assumed,
            "speed of a thread whose sibling is in C0.2", "Intel's manual: C0.2 improves the sibling's performance";
    }
}

/// What versions of the patch declare for C0.2.
pub const ALTERNATIVES: &[Alternative] = &[[
    Together { values: &[("declared_ns", 100.0)], source: "v1 and v2 of the patch" },
    Together { values: &[("declared_ns", 200.0)], source: "v3 and v4 of the patch" },
]];

/// Replicates of hackbench.
#[derive(Clone, Debug)]
pub struct Score {
    /// Messages a second of each.
    pub rates: Vec<f64>,
    /// Mean frequency over the nominal one.
    pub frequency: f64,
    /// Share of idle time in C0.2.
    pub c02_ratio: f64,
    /// Mean length of an idle.
    pub idle_ns: f64,
    /// Power of the package.
    pub power_mw: f64,
}

/// A gain and its standard error.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    pub ratio: f64,
    pub error_ratio: f64,
}

impl Gain {
    /// Less than two standard errors.
    pub fn is_noise(self) -> bool {
        self.ratio.abs() <= 2.0 * self.error_ratio
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    match count {
        0 => f64::NAN,
        _ => f64::midpoint(values[(count - 1) / 2], values[count / 2]),
    }
}

/// The standard error of the median, over it: from the median distance to it, as a normal distribution has it.
/// A run that all tasks spend queueing at one receiver, which happens, moves neither.
fn error_ratio(values: &[f64]) -> f64 {
    const DEVIATION_OF_DISTANCE: f64 = 1.4826;
    const ERROR_OF_MEDIAN: f64 = 1.2533;
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let deviation = DEVIATION_OF_DISTANCE * median(&distances);
    ERROR_OF_MEDIAN * deviation / (values.len() as f64).sqrt() / middle
}

impl Score {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }

    pub fn gain_over(&self, base: &Score) -> Gain {
        let errors = error_ratio(&self.rates).hypot(error_ratio(&base.rates));
        let error_ratio = if self.rates == base.rates { 0.0 } else { errors };
        Gain { ratio: self.rate() / base.rate() - 1.0, error_ratio }
    }
}

/// Something of hackbench with 4 groups and with 8.
#[derive(Clone, Copy, Debug)]
pub struct Groups<T> {
    pub four: T,
    pub eight: T,
}

impl<T> Groups<T> {
    fn run(with: impl Fn(u64) -> Result<T>) -> Result<Self> {
        Ok(Groups { four: with(4)?, eight: with(8)? })
    }
}

impl Groups<Score> {
    /// The gains over another variant.
    pub fn gain_over(&self, base: &Self) -> Groups<Gain> {
        let (four, eight) = (self.four.gain_over(&base.four), self.eight.gain_over(&base.eight));
        Groups { four, eight }
    }

    /// The gains of mean frequency.
    pub fn frequency_gain(&self, base: &Self) -> Groups<f64> {
        let gain = |of: &Score, base: &Score| of.frequency / base.frequency - 1.0;
        Groups { four: gain(&self.four, &base.four), eight: gain(&self.eight, &base.eight) }
    }
}

/// hackbench at the power limit; `poll` and `c02` are the only state.
#[derive(Clone, Debug)]
pub struct Variants {
    pub menu_without: Groups<Score>,
    pub menu: Groups<Score>,
    pub teo_without: Groups<Score>,
    pub teo: Groups<Score>,
    pub poll: Groups<Score>,
    pub c02: Groups<Score>,
}

/// Variants that are no figures.
#[derive(Clone, Debug)]
pub struct MoreVariants {
    /// C0.1 alone.
    pub c01: Groups<Score>,
    /// C0.2 alone with [`SHORT_DEADLINE_NS`].
    pub short_deadline: Groups<Score>,
    pub poll_unlimited: Groups<Score>,
    pub c02_unlimited: Groups<Score>,
    pub c1: Groups<Score>,
}

/// Bursts, then idling, with POLL and C0.2 only.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// Of the power with POLL alone.
    pub power_ratio: f64,
    pub deadlines_per_s: f64,
}

/// A timer interrupt's latency.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub median_ns: f64,
    pub p99_ns: f64,
}

/// Power of the idle machine with one state alone.
#[derive(Clone, Copy, Debug)]
pub struct IdlePower {
    pub packages_mw: f64,
    pub cores_mw: f64,
}

/// The study's figures.
#[derive(Clone, Debug)]
pub struct Headline {
    pub poll_latency: Latency,
    pub c02_latency: Latency,
    pub poll_power: IdlePower,
    pub c02_power: IdlePower,
    /// Power of the server besides its packages.
    pub rest_mw: f64,
    pub variants: Variants,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub inputs: Inputs,
    pub headline: Headline,
    pub machine: Machine,
    /// The whole machine.
    pub hardware: Hardware,
    /// Power of C0.2 of one core.
    pub c02_mw: f64,
    /// How long hackbench is measured.
    pub measured_ns: u64,
    pub more: MoreVariants,
    /// By the work of a message.
    pub by_work_ns: Sweep<u64, Variants>,
    /// C0.2 alone and POLL alone on the whole machine, with 4 groups.
    pub whole: [Score; 2],
    /// By UMWAIT's deadline; the last has none.
    pub by_deadline_ns: Sweep<Option<u64>, Deadlines>,
    pub deadline_load: BurstThenIdle,
}

impl Inputs {
    /// The same for runs with POLL alone. What they do not depend on is as by default, so that runs are
    /// recognised as the same.
    fn of_poll(self) -> Self {
        let default = Inputs::with(&[]);
        Inputs {
            declared_ns: default.declared_ns,
            rapl_percent: default.rapl_percent,
            ..self.without_c02()
        }
    }

    /// The same for runs with C0.2 disabled. Governors still see the state, and C1's transition energy depends
    /// on its power.
    fn without_c02(self) -> Self {
        let default = Inputs::with(&[]);
        Inputs { exit_ns: default.exit_ns, c02_sibling: default.c02_sibling, ..self }
    }
}

#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    inputs: Inputs,
}

/// Power of C0.2 of one core: with it, an idle package's falls by what the claim says.
fn c02_mw(inputs: &Inputs) -> f64 {
    let core_count = (2 * CORE_COUNT) as f64;
    let (uncore_mw, poll_mw) = (inputs.uncore_w * 1e3, inputs.running_w * inputs.poll_power * 1e3);
    let package_mw = core_count.mul_add(poll_mw, uncore_mw);
    ((package_mw * (1.0 + inputs.rapl_percent / 100.0) - uncore_mw) / core_count).max(1.0)
}

fn machine(shelf: &Shelf<'_>, inputs: &Inputs) -> Result<Machine> {
    let mut machine = shelf.machine("spr-c02")?;
    machine.running_power_mw = Some(inputs.running_w * 1e3);
    let (poll, c02) = (machine.state_index("POLL")?, machine.state_index("C0.2")?);
    machine.states[poll].power_mw = Some(inputs.running_w * inputs.poll_power * 1e3);
    let state = &mut machine.states[c02];
    state.power_mw = Some(c02_mw(inputs));
    state.exit_latency_ns = inputs.declared_ns as u64;
    state.target_residency_ns = inputs.declared_ns as u64;
    Ok(machine)
}

/// Two Xeons of 56 cores with two threads each.
fn xeons(hardware: Hardware, inputs: &Inputs) -> Hardware {
    Hardware {
        package_count: 2,
        core_count: 2 * CORE_COUNT,
        thread_count: 2,
        tdp_mw: Some(inputs.tdp_w * 1e3),
        package_mw: inputs.uncore_w * 1e3,
        turbo_ratio: inputs.turbo,
        power_exponent: inputs.exponent,
        smt2_speed: inputs.second_thread,
        smt_poll_speed: Some(inputs.poll_sibling),
        smt_umwait_speed: inputs.c02_sibling,
        budget_period_ns: 100_000,
        // The kernel's 100,000 TSC cycles at 2 GHz.
        umwait_max_ns: Some(50_000),
        ..hardware
    }
}

/// Half a package, and half of what it may draw.
fn quarter(hardware: Hardware) -> Hardware {
    Hardware {
        package_count: 1,
        core_count: CORE_COUNT,
        tdp_mw: hardware.tdp_mw.map(|mw| mw / 2.0),
        package_mw: hardware.package_mw / 2.0,
        ..hardware
    }
}

impl<'a> Model<'a> {
    fn exit(&self) -> Result<(usize, Quantiles)> {
        let ns = self.inputs.exit_ns as u64;
        let constant = Quantiles::new(&[(0.0, ns), (1.0, ns)]).expect("two points ascend");
        Ok((self.machine.state_index("C0.2")?, constant))
    }

    /// hackbench on the whole machine.
    fn hackbench(&self, governor: &'a str, group_count: u64) -> Result<Trial<'a>> {
        let work_ns = self.inputs.work_ns as u64;
        let load = Hackbench {
            group_count,
            send_work_ns: work_ns,
            receive_work_ns: work_ns,
            work_spread: self.inputs.work_spread,
            capacity: self.inputs.capacity as u64,
            ..Hackbench::default()
        };
        let mut trial = Trial::new(self.shelf, self.machine, governor, load);
        trial.hardware = xeons(trial.hardware, &self.inputs);
        trial.quantiles = [self.exit()?].into();
        trial.warm_up_ns = WARM_UP_NS;
        trial.duration_ns = measured_ns(work_ns);
        trial.run_count = RUN_COUNT_MIN;
        trial.ignores_spans = true;
        Ok(trial)
    }

    /// hackbench on a quarter of it.
    fn groups(&self, governor: &'a str, change: impl Fn(&mut Trial<'_>)) -> Result<Groups<Score>> {
        let c02 = self.machine.state_index("C0.2")?;
        Groups::run(|group_count| {
            let mut trial = self.hackbench(governor, group_count / MACHINE_DIVISOR)?;
            trial.hardware = quarter(trial.hardware);
            change(&mut trial);
            score(&trial, c02)
        })
    }

    fn variants(&self) -> Result<Variants> {
        let c02 = self.machine.state_index("C0.2")?;
        let nothing = |_: &mut Trial<'_>| {};
        let disable = |trial: &mut Trial<'_>| trial.disabled = trial.disabled.with(c02);
        let without = Model { inputs: self.inputs.without_c02(), ..*self };
        let inputs = self.inputs.of_poll();
        let machine = &machine(self.shelf, &inputs)?;
        let poll = Model { machine, inputs, shelf: self.shelf };
        Ok(Variants {
            menu_without: without.groups(MENU, disable)?,
            menu: self.groups(MENU, nothing)?,
            teo_without: without.groups(TEO, disable)?,
            teo: self.groups(TEO, nothing)?,
            poll: poll.groups(POLL, nothing)?,
            c02: self.groups(C02, nothing)?,
        })
    }

    fn more_variants(&self) -> Result<MoreVariants> {
        let c01 = &self.with_c01()?;
        let unlimited = |trial: &mut Trial<'_>| trial.hardware.tdp_mw = None;
        let short = |trial: &mut Trial<'_>| trial.hardware.umwait_max_ns = Some(SHORT_DEADLINE_NS);
        // Only C0.2 is documented to leave the sibling more of the core.
        let poll_sibling = self.inputs.poll_sibling;
        let shared = |trial: &mut Trial<'_>| trial.hardware.smt_umwait_speed = poll_sibling;
        Ok(MoreVariants {
            c01: Model { machine: c01, shelf: self.shelf, inputs: self.inputs }
                .groups(C02, shared)?,
            short_deadline: self.groups(C02, short)?,
            poll_unlimited: self.groups(POLL, unlimited)?,
            c02_unlimited: self.groups(C02, unlimited)?,
            c1: self.groups("fixed=C1", |_| {})?,
        })
    }

    /// C0.2 requests that the platform turns into C0.1: half is saved, the exit is no shorter.
    fn with_c01(&self) -> Result<Machine> {
        let mut machine = self.machine.clone();
        let (poll, c02) = (machine.state_index("POLL")?, machine.state_index("C0.2")?);
        let powers = machine.powers();
        machine.states[c02].power_mw = Some(f64::midpoint(powers[poll].mw, powers[c02].mw));
        Ok(machine)
    }

    /// One CPU's timer interrupts with one state alone, which adds `exit_ns`. Half of them take `entry_ns`; the
    /// others are later, as `latency_spread` says.
    fn latency(&self, governor: &'a str, exit_ns: f64) -> Result<Latency> {
        let Inputs { entry_ns, latency_spread, .. } = self.inputs;
        let late_ns = (latency_spread - 1.0) * entry_ns;
        let points = [(0.0, 0.0), (0.5, 0.0), (0.99, late_ns), (1.0, 2.0 * late_ns)];
        let points = points.map(|(ratio, ns)| (ratio, (ns + exit_ns) as u64));
        let quantiles = Quantiles::new(&points).expect("points ascend");
        // A period that the tick's is no multiple of: otherwise both would collide too often.
        let load = Periodic { period_ns: 970_000, jitter_ns: 100_000, work_ns: 1_000 };
        let mut trial = Trial::new(self.shelf, self.machine, governor, load);
        trial.hardware = Hardware {
            core_count: 1,
            timer_slack_ns: 0,
            switch_ns: 0,
            irq_entry_ns: entry_ns as u64,
            ..trial.hardware
        };
        let states = 0..self.machine.states.len();
        trial.quantiles = states.map(|state| (state, quantiles.clone())).collect();
        trial.duration_ns = 20_000_000_000;
        let report = trial.run()?;
        let late = spans(&report, "late_ns")?;
        let at = |ratio| late.quantile_ns(ratio).map_or(f64::NAN, |ns| ns as f64);
        Ok(Latency { median_ns: at(0.5), p99_ns: at(0.99) })
    }

    /// The idle machine at nominal frequency.
    fn idle_power(&self, governor: &'a str) -> Result<IdlePower> {
        let load = Periodic { work_ns: 1_000, period_ns: 10_000_000, ..Periodic::default() };
        let mut trial = Trial::new(self.shelf, self.machine, governor, load);
        trial.hardware = Hardware { tdp_mw: None, ..xeons(trial.hardware, &self.inputs) };
        trial.duration_ns = 50_000_000;
        let report = trial.run()?;
        let uncore_mw = report.cores.package_uj / report.duration_ns as f64 * 1e6;
        let packages_mw = report.power_mw();
        Ok(IdlePower { packages_mw, cores_mw: packages_mw - uncore_mw })
    }

    fn deadlines(&self, max_ns: Option<u64>) -> Result<Deadlines> {
        let c02 = self.machine.state_index("C0.2")?;
        let load = deadline_load();
        let mut trial = Trial::new(self.shelf, self.machine, DEADLINE_GOVERNOR, load);
        trial.hardware.umwait_max_ns = max_ns;
        trial.hardware.core_count = 1;
        for state in c02 + 1..self.machine.states.len() {
            trial.disabled = trial.disabled.with(state);
        }
        let both = trial.run()?;
        let poll = Trial { disabled: trial.disabled.with(c02), ..trial }.run()?;
        let others = both.idle.gap_count + both.idle.tick_wake_count;
        let deadline_count = both.idle.states[c02].entry_count.saturating_sub(others);
        Ok(Deadlines {
            power_ratio: both.power_mw() / poll.power_mw(),
            deadlines_per_s: deadline_count as f64 * 1e9 / both.duration_ns as f64,
        })
    }
}

/// Runs replicates until they agree.
fn score(trial: &Trial<'_>, c02: usize) -> Result<Score> {
    trial.shelf.once(trial.description(), || new_score(trial.clone(), c02))
}

fn new_score(mut trial: Trial<'_>, c02: usize) -> Result<Score> {
    let (mut rates, mut sum) = (Vec::new(), Report::default());
    loop {
        for report in trial.runs()? {
            rates.push(report.operations_per_s());
            sum.merge(&report);
        }
        trial.skipped_run_count += trial.run_count;
        if error_ratio(&rates) <= ERROR_RATIO_MAX || trial.skipped_run_count >= RUN_COUNT_MAX {
            break;
        }
    }
    let idle_ns: u64 = sum.idle.states.iter().map(|state| state.stay_ns).sum();
    Ok(Score {
        rates,
        frequency: sum.cores.mean_frequency_ratio(),
        c02_ratio: sum.idle.states[c02].stay_ns as f64 / idle_ns.max(1) as f64,
        idle_ns: sum.idle_ns as f64 / sum.idle.gap_count.max(1) as f64,
        power_mw: sum.power_mw(),
    })
}

fn measured_ns(work_ns: u64) -> u64 {
    (MEASURED_WORK_COUNT * work_ns).max(MEASURED_MIN_NS)
}

fn deadline_load() -> BurstThenIdle {
    BurstThenIdle { quiet_ns: 3_000_000, ..BurstThenIdle::default() }
}

/// The study's figures for these inputs.
pub fn headline(shelf: &Shelf<'_>, changes: &Changes) -> Result<Headline> {
    let inputs = Inputs::with(changes);
    let machine = machine(shelf, &inputs)?;
    let model = Model { shelf, machine: &machine, inputs };
    Ok(Headline {
        poll_latency: model.latency(POLL, 0.0)?,
        c02_latency: model.latency(C02, inputs.exit_ns)?,
        poll_power: model.idle_power(POLL)?,
        c02_power: model.idle_power(C02)?,
        rest_mw: inputs.rest_w * 1e3,
        variants: model.variants()?,
    })
}

/// Everything that the page shows.
pub fn run(shelf: &Shelf<'_>, changes: &Changes) -> Result<Findings> {
    let inputs = Inputs::with(changes);
    let headline = headline(shelf, changes)?;
    let machine = machine(shelf, &inputs)?;
    let model = Model { shelf, machine: &machine, inputs };
    let deadlines_ns = [1, 2, 5, 10, 50, 500].map(|us| Some(us * 1_000)).into_iter().chain([None]);
    let c02 = machine.state_index("C0.2")?;
    let whole = |governor| {
        let mut trial = model.hackbench(governor, 4)?;
        trial.warm_up_ns *= WHOLE_FACTOR;
        trial.duration_ns *= WHOLE_FACTOR;
        score(&trial, c02)
    };
    Ok(Findings {
        more: model.more_variants()?,
        by_work_ns: sweep([300, 600, 1_000, 2_500], |work_ns| {
            if work_ns as f64 == inputs.work_ns {
                return Ok(headline.variants.clone());
            }
            let inputs = Inputs { work_ns: work_ns as f64, ..inputs };
            Model { inputs, ..model }.variants()
        })?,
        whole: [whole(C02)?, whole(POLL)?],
        by_deadline_ns: sweep(deadlines_ns, |max_ns| model.deadlines(max_ns))?,
        deadline_load: deadline_load(),
        hardware: model.hackbench(POLL, 4)?.hardware,
        c02_mw: c02_mw(&inputs),
        measured_ns: measured_ns(inputs.work_ns as u64),
        inputs,
        headline,
        machine: machine.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use idlewise_core::Fixed;

    static SHELF: Shelf<'_> = Shelf::new(&|_, _| Some(Box::new(Fixed::Shallowest)));

    fn model_of<T>(with: impl FnOnce(Model<'_>) -> T) -> T {
        let inputs = Inputs::with(&[]);
        let machine = machine(&SHELF, &inputs).unwrap();
        with(Model { shelf: &SHELF, machine: &machine, inputs })
    }

    #[test]
    fn a_median_is_no_mean() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[9.0, 1.0, 2.0, 3.0]), 2.5);
        // One run that went wrong changes neither.
        let rates = [100.0, 101.0, 99.0, 100.0, 1.0];
        assert_eq!(median(&rates), 100.0);
        assert!(error_ratio(&rates) < 0.01);
    }

    #[test]
    fn latencies_are_quantiles_of_a_distribution() {
        let (poll, c02) =
            model_of(|m| (m.latency(POLL, 0.0).unwrap(), m.latency(C02, 200.0).unwrap()));
        // The tick, too, makes an interrupt late now and then.
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.05;
        assert!(near(poll.median_ns, 400.0) && near(poll.p99_ns, 800.0), "{poll:?}");
        assert!(near(c02.median_ns, 600.0) && near(c02.p99_ns, 1_000.0), "{c02:?}");
    }

    #[test]
    fn the_package_falls_by_what_was_published_and_its_cores_by_more() {
        let (poll, c02) = model_of(|m| (m.idle_power(POLL).unwrap(), m.idle_power(C02).unwrap()));
        let package = c02.packages_mw / poll.packages_mw - 1.0;
        let cores = c02.cores_mw / poll.cores_mw - 1.0;
        // Deadlines of UMWAIT cost and save a little.
        assert!((package + 0.18).abs() < 0.004, "{package}");
        assert!((cores + 0.26).abs() < 0.005, "{cores}");
    }

    #[test]
    fn a_warm_machine_keeps_its_power_limit() {
        let score = model_of(|m| m.groups(POLL, |trial| trial.run_count = 1).unwrap());
        for score in [score.four, score.eight] {
            assert!((score.power_mw / 175_000.0 - 1.0).abs() < 0.005, "{}", score.power_mw);
        }
    }

    #[test]
    fn runs_do_not_depend_on_what_is_left_out_of_them() {
        let default = Inputs::with(&[]);
        let changed = Inputs {
            declared_ns: 100.0,
            exit_ns: 50.0,
            rapl_percent: -19.0,
            c02_sibling: 0.95,
            ..default
        };
        let score = |inputs: Inputs, governor, is_disabled: bool| {
            let machine = machine(&SHELF, &inputs).unwrap();
            let model = Model { shelf: &SHELF, machine: &machine, inputs };
            let mut trial = model.hackbench(governor, 1).unwrap();
            trial.hardware = quarter(trial.hardware);
            let c02 = machine.state_index("C0.2").unwrap();
            if is_disabled {
                trial.disabled = trial.disabled.with(c02);
            }
            trial.duration_ns = 200_000;
            trial.warm_up_ns = 100_000;
            trial.run_count = 1;
            format!("{:?}", new_score(trial, c02).unwrap())
        };
        assert_eq!(score(changed, POLL, false), score(changed.of_poll(), POLL, false));
        assert_eq!(
            score(changed, "fixed=C1", true),
            score(changed.without_c02(), "fixed=C1", true)
        );
        // What matters would be found.
        assert_ne!(score(changed, "fixed=C1", true), score(changed.of_poll(), "fixed=C1", true));
        assert_ne!(score(changed, C02, false), score(changed.without_c02(), C02, false));
    }

    #[test]
    fn the_same_run_is_made_once() {
        let inputs = Inputs::with(&[]);
        let counted = AtomicU32::new(0);
        let governor: &crate::trial::GovernorById<'_> = &|_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(Fixed::Shallowest))
        };
        let shelf = Shelf::new(governor);
        let made = |inputs: Inputs, exit_ns: f64| {
            let inputs = Inputs { exit_ns, ..inputs };
            let machine = machine(&shelf, &inputs).unwrap();
            let model = Model { shelf: &shelf, machine: &machine, inputs };
            let before = counted.load(Ordering::Relaxed);
            let shorten = |trial: &mut Trial<'_>| {
                trial.run_count = 1;
                trial.duration_ns = 50_000;
                trial.warm_up_ns = 0;
            };
            model.groups("any", shorten).unwrap();
            counted.load(Ordering::Relaxed) > before
        };
        assert!(made(inputs, 200.0));
        assert!(!made(Inputs { entry_ns: 999.0, rest_w: 1.0, ..inputs }, 200.0));
        assert!(made(inputs, 100.0), "another exit is another run");
        assert!(made(Inputs { uncore_w: 50.0, ..inputs }, 200.0));
    }
}
