//! `menu-min`. The latency after the change is calibrated (the wire takes what is missing to it); what it
//! was before follows from the model, once for each placement of the network card's interrupt.

use idlewise_core::DisabledMask;
use idlewise_trace::IdleGap;

use crate::error::Result;
use crate::inputs::Origin::{Assumed, Calibrated, Documented};
use crate::inputs::{Alternative, Changes, Together, inputs, ms_ns, us_ns};
use crate::trial::{Shelf, Sweep, Trial, mean_ns, sweep};
use idlewise_machine::Machine;
use idlewise_sim::Exits;
use idlewise_sim::simulate::Hardware;
use idlewise_sim::workload::{BurstThenIdle, NearlyIdle, TcpLat};

pub const MENU: &str = "menu-6.12";
pub const MIN: &str = "menu-6.12+min";
pub const SAFE_RANGE: &str = "menu-6.12+safe-range";
/// The kernel that has safe-range.
pub const NEWEST: &str = "menu-7.2";
/// What the claim's first version did, and the claim on the newest kernel.
pub const MARGIN: &str = "menu-6.12+margin";
pub const NEWEST_MIN: &str = "menu-7.2+min";
const GOVERNORS: [&str; 8] =
    ["menu-6.1", MENU, MIN, MARGIN, SAFE_RANGE, NEWEST, NEWEST_MIN, "teo-6.12"];
/// Cores of the mixed load.
pub const MIXED_CORE_COUNT: u64 = 32;
/// Where the fit of the wire begins.
const WIRE_GUESS_NS: u64 = 18_000;
/// tcp-lat's client and server are on packages of their own, like on two hosts.
const SERVER_PACKAGE: usize = 1;

inputs! {
    /// Inputs of `menu-min`.
    pub struct Inputs {
        after_us: 30.0, 27.0..=33.0, "us", Calibrated(&["after (+min)"]),
            "latency after the change", "the claim's \"~30us\"; the time on the wire is fitted to it";
        exit_us: 190.0, 150.0..=190.0, "us", Calibrated(&[]),
            "exit latency of package C6", "the claim's \"150-190us\"";
        package_share: 0.345, 0.0..=0.98, "", Assumed,
            "the package's share of that exit",
            "intel_idle lowers C6's latency from 290 to 190 us where package C6 is disabled";
        timer_ms: 10.0, 4.0..=1000.0, "ms", Assumed,
            "period of a kernel timer on each CPU", "the claim's example of \"a 10ms timer\"";
        hz: 250.0, 100.0..=1000.0, "Hz", Assumed,
            "the kernel's CONFIG_HZ", "Debian's; the claim does not say";
        residency_us: 800.0, 600.0..=800.0, "us", Documented,
            "target residency of package C6", "C6's in drivers/idle/intel_idle.c";
        irq_us: 3.0, 1.0..=6.0, "us", Assumed,
            "interrupt handler and softirq of a message", "its sum with the wire is fitted";
        call_us: 4.0, 2.0..=8.0, "us", Assumed,
            "receive call's end and send call", "its sum with the wire is fitted";
        think_us: 0.0, 0.0..=500.0, "us", Documented,
            "pause between an answer and the next request", "qperf's tcp_lat has none; the claim's example is a packet after 500 us";
        shallow_power: 1.0, 0.5..=1.5, "", Assumed,
            "power of C1 and C1E, relative to the default shape", "machines/README.md";
        package_w: 100.0, 50.0..=150.0, "W", Assumed,
            "power of an awake package, besides its cores", "about a server's uncore";
        package_idle_w: 50.0, 15.0..=80.0, "W", Assumed,
            "power of a package in package C6, besides its cores", "not published";
        mixed_interval_ms: 4.0, 1.0..=20.0, "ms", Assumed,
            "time between two wake-ups of a CPU's task in the mixed load", "the claim only says \"mixed workloads\"";
        mixed_work_us: 20.0, 5.0..=200.0, "us", Assumed,
            "its work at each of them", "the same";
    }
}

/// C6 of Sapphire Rapids in intel_idle's table.
pub const ALTERNATIVES: &[Alternative] = &[[
    Together {
        values: &[("exit_us", 190.0), ("residency_us", 600.0)],
        source: "intel_idle's table where package C6 is disabled",
    },
    Together {
        values: &[("exit_us", 290.0), ("residency_us", 800.0)],
        source: "intel_idle's table",
    },
]];

/// Where a card's interrupts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// To the task's own CPU.
    TaskCpu,
    /// The same, with `nohz_full`: the tick is stopped while the task is alone there.
    TaskCpuNohzFull,
    /// To a CPU without a task.
    OtherCpu,
}

/// tcp-lat under a governor.
#[derive(Clone, Debug)]
pub struct Placement {
    pub governor: &'static str,
    pub interrupts: Interrupts,
    pub latency_ns: f64,
    /// Share of selects on the card's CPUs at which the tick was stopped.
    pub stopped_ratio: f64,
    /// Share of wakes from the deepest state.
    pub deepest_ratio: f64,
    pub power_mw: f64,
}

/// Interrupts that no task serves, then long silence.
#[derive(Clone, Debug)]
pub struct Stuck {
    /// Share of the time in the deepest state.
    pub deepest_ratio: f64,
    pub power_mw: f64,
    /// Mean delay of an interrupt.
    pub delay_ns: Option<f64>,
}

/// The study's figures.
#[derive(Clone, Debug)]
pub struct Headline {
    /// The wire that was fitted.
    pub wire_ns: u64,
    /// Latencies with interrupts on another CPU.
    pub before_ns: f64,
    pub after_ns: f64,
    /// Only the client's host has package C6.
    pub one_end_before_ns: f64,
    /// Latencies with interrupts on the task's CPU.
    pub before_task_cpu_ns: f64,
    pub after_task_cpu_ns: f64,
    /// The same with `nohz_full`.
    pub before_nohz_full_ns: f64,
    pub after_nohz_full_ns: f64,
    /// Power under +min above that under menu: of a nearly idle system, and of tcp-lat's hosts.
    pub mixed_power_ratio: f64,
    pub tcp_power_ratio: f64,
    /// Latencies on the claim's other platform.
    pub gap_before_ns: f64,
    pub gap_after_ns: f64,
    /// The same with `nohz_full` and interrupts on the task's CPU.
    pub gap_before_nohz_full_ns: f64,
    pub gap_after_nohz_full_ns: f64,
}

/// What menu makes of a share of the package's in the exit; interrupts on another CPU.
#[derive(Clone, Debug)]
pub struct ByShare {
    pub before_ns: f64,
    pub one_end_before_ns: f64,
    pub power_mw: f64,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub inputs: Inputs,
    pub headline: Headline,
    /// The claim's other platform.
    pub gap_machine: Machine,
    pub tcp_lat: TcpLat,
    pub placements: Vec<Placement>,
    /// Latencies, by how often the kernel's own timer expires.
    pub by_timer_ns: Sweep<u64, Sweep<&'static str, f64>>,
    /// Latencies, by the pause between an answer and the next request.
    pub by_pause_ns: Sweep<u64, Sweep<&'static str, f64>>,
    pub by_share: Sweep<f64, ByShare>,
    pub stuck_load: BurstThenIdle,
    pub stuck: Sweep<&'static str, Stuck>,
    /// Latencies, by the exit latency of package C6.
    pub by_exit_ns: Sweep<u64, Sweep<&'static str, f64>>,
}

impl Findings {
    /// tcp-lat under that governor.
    ///
    /// # Panics
    /// If the study does not run that governor.
    pub fn placement(&self, governor: &str, interrupts: Interrupts) -> &Placement {
        let mut placements = self.placements.iter();
        let found = placements.find(|p| p.governor == governor && p.interrupts == interrupts);
        found.expect("every governor ran with each placement")
    }

    /// Power under a governor above menu's where a short forecast is wrong.
    pub fn stuck_power_ratio(&self, governor: &str) -> f64 {
        let of = |governor| {
            let found = self.stuck.iter().find(|row| row.at == governor);
            found.map_or(f64::NAN, |row| row.found.power_mw)
        };
        of(governor) / of(MENU) - 1.0
    }

    /// Whether safe-range has +min's latency with every timer that is so near.
    pub fn near_timers_are_safe(&self, within_ns: u64) -> bool {
        let near = self.by_timer_ns.iter().filter(|row| row.at <= within_ns);
        near.flat_map(|row| {
            let of = |governor| row.found.iter().find(|of| of.at == governor).map(|of| of.found);
            of(SAFE_RANGE).zip(of(MIN))
        })
        .all(|(safe_range_ns, min_ns)| safe_range_ns <= min_ns * 1.05)
    }
}

/// tcp-lat on a machine.
#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    inputs: Inputs,
    wire_ns: u64,
}

impl<'a> Model<'a> {
    fn load(self, interrupts: Interrupts) -> TcpLat {
        TcpLat {
            irq_offset: match interrupts {
                Interrupts::TaskCpu | Interrupts::TaskCpuNohzFull => 0,
                Interrupts::OtherCpu => 1,
            },
            wire_ns: self.wire_ns,
            irq_work_ns: us_ns(self.inputs.irq_us),
            send_work_ns: us_ns(self.inputs.call_us),
            think_ns: us_ns(self.inputs.think_us),
            ..TcpLat::default()
        }
    }

    fn trial(self, governor: &'a str, interrupts: Interrupts) -> Trial<'a> {
        let mut trial = Trial::new(self.shelf, self.machine, governor, self.load(interrupts));
        // Two hosts of two CPUs: client and server.
        trial.hardware = Hardware {
            package_count: 2,
            core_count: 2,
            nohz_full: interrupts == Interrupts::TaskCpuNohzFull,
            ..hardware(trial.hardware, &self.inputs)
        };
        trial
    }

    /// The mean latency with interrupts on another CPU, if `change` is made.
    fn latency_ns(self, governor: &'a str, change: impl Fn(&mut Trial<'_>)) -> Result<f64> {
        let mut trial = self.trial(governor, Interrupts::OtherCpu);
        change(&mut trial);
        mean_ns(&trial.run()?, "latency_ns")
    }

    fn latencies(
        self,
        governors: &[&'static str],
        change: impl Fn(&mut Trial<'_>),
    ) -> Result<Sweep<&'static str, f64>> {
        sweep(governors.iter().copied(), |governor| self.latency_ns(governor, &change))
    }

    /// The same, if only the client's host has package C6.
    fn one_end_ns(self, governor: &'a str) -> Result<f64> {
        let deepest = DisabledMask::NONE.with(self.machine.table()?.deepest());
        self.latency_ns(governor, |trial| {
            trial.disabled_by_package = vec![(SERVER_PACKAGE, deepest)];
        })
    }

    /// With the wire that makes +min's latency what was published.
    fn calibrated(mut self) -> Result<Self> {
        for _ in 0..3 {
            let missing_ns = self.inputs.after_us * 1e3 - self.latency_ns(MIN, |_| {})?;
            self.wire_ns = (self.wire_ns as f64 + missing_ns).max(0.0) as u64;
        }
        Ok(self)
    }

    fn placement(self, governor: &'static str, interrupts: Interrupts) -> Result<Placement> {
        let trial = Trial { keeps_gaps: true, ..self.trial(governor, interrupts) };
        let report = trial.run()?;
        // Tasks are on CPUs 0 and 2.
        let is_card =
            |gap: &&IdleGap| gap.cpu.is_multiple_of(2) == (interrupts != Interrupts::OtherCpu);
        let gap_count = report.gaps.iter().filter(is_card).count();
        let stopped_count =
            report.gaps.iter().filter(is_card).filter(|gap| gap.tick_stopped).count();
        let deepest = self.machine.table()?.deepest();
        let deepest_count = report.idle.states[deepest].wake_count;
        Ok(Placement {
            governor,
            interrupts,
            latency_ns: mean_ns(&report, "latency_ns")?,
            stopped_ratio: stopped_count as f64 / gap_count.max(1) as f64,
            deepest_ratio: deepest_count as f64 / report.idle.gap_count.max(1) as f64,
            power_mw: report.power_mw(),
        })
    }

    fn by_share(self, package_share: f64) -> Result<ByShare> {
        let model = Model { inputs: Inputs { package_share, ..self.inputs }, ..self };
        Ok(ByShare {
            before_ns: model.latency_ns(MENU, |_| {})?,
            one_end_before_ns: model.one_end_ns(MENU)?,
            power_mw: model.trial(MENU, Interrupts::OtherCpu).run()?.power_mw(),
        })
    }
}

/// The claim's machine: package C6 is a state of the package that its cores' deepest state allows. The
/// state table, which governors see, has the whole of its exit.
fn machine(shelf: &Shelf<'_>, inputs: &Inputs) -> Result<Machine> {
    let mut machine = shelf.machine("spr-pc6-claim")?;
    let powers = machine.powers();
    let deepest = machine.table()?.deepest();
    for (index, state) in machine.states.iter_mut().enumerate() {
        if index == deepest {
            state.exit_latency_ns = us_ns(inputs.exit_us);
            state.target_residency_ns = us_ns(inputs.residency_us);
        } else if index > 0 {
            let mw = powers[index].mw * inputs.shallow_power;
            state.power_mw = Some(mw.min(powers[0].mw));
        }
    }
    Ok(machine)
}

fn hardware(hardware: Hardware, inputs: &Inputs) -> Hardware {
    Hardware {
        hz: inputs.hz as u64,
        housekeeping_ns: Some(ms_ns(inputs.timer_ms)),
        exit_ratio: 1.0 - inputs.package_share,
        package_exit_ns: us_ns(inputs.exit_us * inputs.package_share),
        package_mw: inputs.package_w * 1e3,
        package_idle_mw: inputs.package_idle_w.min(inputs.package_w) * 1e3,
        ..hardware
    }
}

/// Bursts of interrupts that no task serves, then long silence: where a short forecast is wrong.
fn stuck_load() -> BurstThenIdle {
    BurstThenIdle {
        wakes_task: false,
        burst_gap_ns: 30_000,
        burst_count: 200,
        quiet_ns: 300_000_000,
        ..BurstThenIdle::default()
    }
}

fn stuck(shelf: &Shelf<'_>, machine: &Machine, governor: &str) -> Result<Stuck> {
    let mut trial = Trial::new(shelf, machine, governor, stuck_load());
    trial.hardware.core_count = 1;
    trial.duration_ns = 4_000_000_000;
    let report = trial.run()?;
    let states = machine.table()?;
    let deep_ns = report.idle.states[states.deepest()].stay_ns;
    Ok(Stuck {
        deepest_ratio: deep_ns as f64 / report.duration_ns as f64,
        power_mw: report.power_mw(),
        delay_ns: report.idle.delays(&Exits::declared(&states)).mean_ns(),
    })
}

/// Power of a mixed, nearly idle load of 32 cores.
fn mixed_mw(shelf: &Shelf<'_>, machine: &Machine, inputs: &Inputs, governor: &str) -> Result<f64> {
    let load = NearlyIdle {
        interval_ns: ms_ns(inputs.mixed_interval_ms),
        work_ns: us_ns(inputs.mixed_work_us),
        ..NearlyIdle::default()
    };
    let mut trial = Trial::new(shelf, machine, governor, load);
    trial.hardware = Hardware { core_count: MIXED_CORE_COUNT, ..hardware(trial.hardware, inputs) };
    Ok(trial.run()?.power_mw())
}

/// The study's figures for these inputs.
pub fn headline(shelf: &Shelf<'_>, changes: &Changes) -> Result<Headline> {
    use Interrupts::{OtherCpu, TaskCpu, TaskCpuNohzFull};
    let inputs = Inputs::with(changes);
    let (machine, gap_machine) = (machine(shelf, &inputs)?, shelf.machine("amd-acpi-gap")?);
    let start = Model { shelf, machine: &machine, inputs, wire_ns: WIRE_GUESS_NS };
    let model = start.calibrated()?;
    // Its states are cores' states.
    let gap_inputs = Inputs { package_share: 0.0, ..inputs };
    let on_gap = Model { machine: &gap_machine, inputs: gap_inputs, ..model };
    let run = |governor, interrupts| model.trial(governor, interrupts).run();
    let (menu, min) = (run(MENU, OtherCpu)?, run(MIN, OtherCpu)?);
    let latency_ns = |report| mean_ns(report, "latency_ns");
    let mixed_mw = |governor| mixed_mw(shelf, &machine, &inputs, governor);
    Ok(Headline {
        wire_ns: model.wire_ns,
        before_ns: latency_ns(&menu)?,
        after_ns: latency_ns(&min)?,
        one_end_before_ns: model.one_end_ns(MENU)?,
        before_task_cpu_ns: latency_ns(&run(MENU, TaskCpu)?)?,
        after_task_cpu_ns: latency_ns(&run(MIN, TaskCpu)?)?,
        before_nohz_full_ns: latency_ns(&run(MENU, TaskCpuNohzFull)?)?,
        after_nohz_full_ns: latency_ns(&run(MIN, TaskCpuNohzFull)?)?,
        mixed_power_ratio: mixed_mw(MIN)? / mixed_mw(MENU)? - 1.0,
        tcp_power_ratio: min.power_mw() / menu.power_mw() - 1.0,
        gap_before_ns: on_gap.latency_ns(MENU, |_| {})?,
        gap_after_ns: on_gap.latency_ns(MIN, |_| {})?,
        gap_before_nohz_full_ns: latency_ns(&on_gap.trial(MENU, TaskCpuNohzFull).run()?)?,
        gap_after_nohz_full_ns: latency_ns(&on_gap.trial(MIN, TaskCpuNohzFull).run()?)?,
    })
}

/// Everything that the page shows.
pub fn run(shelf: &Shelf<'_>, changes: &Changes) -> Result<Findings> {
    let inputs = Inputs::with(changes);
    let headline = headline(shelf, changes)?;
    let (machine, gap_machine) = (machine(shelf, &inputs)?, shelf.machine("amd-acpi-gap")?);
    let model = Model { shelf, machine: &machine, inputs, wire_ns: headline.wire_ns };
    let mut placements = Vec::new();
    for governor in GOVERNORS {
        for interrupts in [Interrupts::TaskCpu, Interrupts::TaskCpuNohzFull, Interrupts::OtherCpu] {
            placements.push(model.placement(governor, interrupts)?);
        }
    }
    let exits_ns = [50.0, 100.0, 150.0, 190.0, 290.0].map(us_ns);
    Ok(Findings {
        tcp_lat: model.load(Interrupts::OtherCpu),
        placements,
        by_timer_ns: sweep([4, 7, 10, 100, 1_000].map(|ms| ms * 1_000_000), |timer_ns| {
            model.latencies(&GOVERNORS[1..], |trial| {
                trial.hardware.housekeeping_ns = Some(timer_ns);
            })
        })?,
        by_pause_ns: sweep([0, 100, 250, 500, 1_000].map(|us| us * 1_000), |pause_ns| {
            let inputs = Inputs { think_us: pause_ns as f64 / 1e3, ..inputs };
            Model { inputs, ..model }.latencies(&[MENU, MIN, MARGIN, NEWEST, NEWEST_MIN], |_| {})
        })?,
        by_share: sweep([0.0, 0.25, 0.5, 0.75, 0.9, 0.98], |share| model.by_share(share))?,
        stuck_load: stuck_load(),
        stuck: sweep(GOVERNORS, |governor| stuck(shelf, &machine, governor))?,
        by_exit_ns: sweep(exits_ns, |exit_ns| {
            let ratio = exit_ns as f64 / us_ns(inputs.exit_us) as f64;
            model.latencies(&GOVERNORS, |trial| {
                trial.hardware.exit_ratio *= ratio;
                let package_ns = trial.hardware.package_exit_ns as f64;
                trial.hardware.package_exit_ns = (package_ns * ratio) as u64;
                trial.duration_ns = 300_000_000;
            })
        })?,
        inputs,
        headline,
        gap_machine: gap_machine.clone(),
    })
}
