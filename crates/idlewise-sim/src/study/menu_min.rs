//! `menu-min`. The latency after the change is calibrated (the wire takes what is missing to 30 µs); what
//! it was before is predicted, once for each placement of the network card's interrupt.

use std::ops::RangeInclusive;

use idlewise_trace::IdleGap;

use super::{Result, Shelf, Sweep, Trial, mean_ns, sweep};
use crate::Machine;
use crate::simulate::Hardware;
use crate::workload::{BurstThenIdle, NearlyIdle, TcpLat};

pub const MENU: &str = "menu-6.12";
pub const MIN: &str = "menu-6.12+min";
pub const SAFE_RANGE: &str = "menu-6.12+safe-range";
/// The kernel that has safe-range.
pub const NEWEST: &str = "menu-7.2";
const GOVERNORS: [&str; 6] = ["menu-6.1", MENU, MIN, SAFE_RANGE, NEWEST, "teo-6.12"];
/// Published: latency after the change. The wire is fitted to it.
pub const AFTER_NS: f64 = 30_000.0;
/// The claim's "10ms timer", on each CPU.
const TIMER_NS: u64 = 10_000_000;
/// Where the fit of the wire begins.
const WIRE_GUESS_NS: u64 = 18_000;
/// Published: package C6 takes from this to what the machine has.
pub const LEAST_EXIT_NS: u64 = 150_000;

/// Where a card's interrupts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// To the task's own CPU.
    TaskCpu,
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

/// Latencies of tcp-lat for an exit latency of the deepest state; interrupts on another CPU.
#[derive(Clone, Debug)]
pub struct ByExit {
    pub menu_ns: f64,
    /// Half of the exit is the package's.
    pub half_package_ns: f64,
    /// And only one end is such a machine.
    pub one_end_ns: f64,
    /// 50 us more wire.
    pub longer_wire_ns: f64,
    /// 500 us between two requests.
    pub thinking_ns: f64,
    pub by_governor: Sweep<&'static str, f64>,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Findings {
    pub machine: Machine,
    /// The claim's other platform.
    pub gap_machine: Machine,
    pub hardware: Hardware,
    /// With the wire that was fitted.
    pub tcp_lat: TcpLat,
    pub placements: Vec<Placement>,
    /// Latencies, by how often the kernel's own timer expires.
    pub by_timer_ns: Sweep<u64, Sweep<&'static str, f64>>,
    pub stuck_load: BurstThenIdle,
    pub stuck: Sweep<&'static str, Stuck>,
    pub by_exit_ns: Sweep<u64, ByExit>,
    /// menu's latency for the exit latencies that the claim gives, whether one or both ends are such
    /// machines.
    pub before_ns: RangeInclusive<f64>,
    /// Power of a nearly idle system under +min, above that under menu.
    pub mixed_power_ratio: f64,
    /// Latencies on the other platform.
    pub gap_menu_ns: f64,
    pub gap_min_ns: f64,
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

    /// Power under +min above menu's where a short forecast is wrong.
    pub fn stuck_power_ratio(&self) -> f64 {
        let of = |governor| {
            let found = self.stuck.iter().find(|row| row.at == governor);
            found.map_or(f64::NAN, |row| row.found.power_mw)
        };
        of(MIN) / of(MENU) - 1.0
    }
}

/// tcp-lat on a machine.
#[derive(Clone, Copy)]
struct Model<'a> {
    shelf: &'a Shelf<'a>,
    machine: &'a Machine,
    wire_ns: u64,
}

impl<'a> Model<'a> {
    fn load(self, interrupts: Interrupts) -> TcpLat {
        let irq_offset = match interrupts {
            Interrupts::TaskCpu => 0,
            Interrupts::OtherCpu => 1,
        };
        TcpLat { irq_offset, wire_ns: self.wire_ns, ..TcpLat::default() }
    }

    fn trial(self, governor: &'a str, interrupts: Interrupts) -> Trial<'a> {
        let mut trial = Trial::new(self.shelf, self.machine, governor, self.load(interrupts));
        // Two hosts of two CPUs: client and server.
        trial.hardware = Hardware {
            package_count: 2,
            core_count: 2,
            housekeeping_ns: Some(TIMER_NS),
            ..trial.hardware
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

    /// With the wire that makes +min's latency the published one.
    fn calibrated(mut self) -> Result<Self> {
        for _ in 0..3 {
            let found_ns = self.latency_ns(MIN, |_| {})?;
            self.wire_ns = (self.wire_ns as f64 + AFTER_NS - found_ns).max(0.0) as u64;
        }
        Ok(self)
    }

    fn placement(self, governor: &'static str, interrupts: Interrupts) -> Result<Placement> {
        let trial = Trial { keeps_gaps: true, ..self.trial(governor, interrupts) };
        let report = trial.run()?;
        // Tasks are on CPUs 0 and 2.
        let is_card =
            |gap: &&IdleGap| gap.cpu.is_multiple_of(2) == (interrupts == Interrupts::TaskCpu);
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

    /// With another exit latency of the deepest state.
    fn by_exit(self, exit_ns: u64, machine_exit_ns: u64) -> Result<ByExit> {
        let ratio = exit_ns as f64 / machine_exit_ns as f64;
        let quick = |trial: &mut Trial<'_>| {
            trial.hardware.exit_ratio = ratio;
            trial.duration_ns = 300_000_000;
        };
        let with = |load: TcpLat| {
            self.latency_ns(MENU, |trial| {
                quick(trial);
                trial.workload = load.clone().into();
            })
        };
        let half_package_ns = self.latency_ns(MENU, |trial| {
            quick(trial);
            trial.hardware.exit_ratio /= 2.0;
            trial.hardware.package_exit_ns = exit_ns / 2;
        })?;
        let load = self.load(Interrupts::OtherCpu);
        Ok(ByExit {
            menu_ns: self.latency_ns(MENU, quick)?,
            half_package_ns,
            one_end_ns: (half_package_ns + AFTER_NS) / 2.0,
            longer_wire_ns: with(TcpLat { wire_ns: load.wire_ns + 50_000, ..load.clone() })?,
            thinking_ns: with(TcpLat { think_ns: 500_000, ..load.clone() })?,
            by_governor: self.latencies(&GOVERNORS, quick)?,
        })
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
        delay_ns: report.idle.delays(&states).mean_ns(),
    })
}

/// Power of a mixed, nearly idle load of 32 cores.
fn mixed_mw(shelf: &Shelf<'_>, machine: &Machine, governor: &str) -> Result<f64> {
    let mut trial = Trial::new(shelf, machine, governor, NearlyIdle::default());
    trial.hardware.core_count = 32;
    Ok(trial.run()?.power_mw())
}

pub fn run(shelf: &Shelf<'_>) -> Result<Findings> {
    let machine = shelf.machine("spr-pc6-claim")?;
    let gap_machine = shelf.machine("amd-acpi-gap")?;
    let model = Model { shelf, machine: &machine, wire_ns: WIRE_GUESS_NS }.calibrated()?;
    let mut placements = Vec::new();
    for governor in GOVERNORS {
        for interrupts in [Interrupts::TaskCpu, Interrupts::OtherCpu] {
            placements.push(model.placement(governor, interrupts)?);
        }
    }
    let table = machine.table()?;
    let exit_ns = table.get(table.deepest()).exit_latency_ns;
    let exits_ns = [50_000, 100_000, LEAST_EXIT_NS, exit_ns, 290_000];
    let by_exit_ns = sweep(exits_ns, |ns| model.by_exit(ns, exit_ns))?;
    let claimed = by_exit_ns.iter().filter(|row| (LEAST_EXIT_NS..=exit_ns).contains(&row.at));
    let ends = || claimed.clone().flat_map(|row| [row.found.one_end_ns, row.found.menu_ns]);
    let before_ns = ends().fold(f64::INFINITY, f64::min)..=ends().fold(0.0, f64::max);
    let on_gap = Model { machine: &gap_machine, ..model };
    Ok(Findings {
        hardware: model.trial(MENU, Interrupts::OtherCpu).hardware,
        tcp_lat: model.load(Interrupts::OtherCpu),
        placements,
        by_timer_ns: sweep([4, 7, 10, 100, 1_000].map(|ms| ms * 1_000_000), |timer_ns| {
            model.latencies(&GOVERNORS[1..], |trial| {
                trial.hardware.housekeeping_ns = Some(timer_ns);
            })
        })?,
        stuck_load: stuck_load(),
        stuck: sweep(GOVERNORS, |governor| stuck(shelf, &machine, governor))?,
        by_exit_ns,
        before_ns,
        mixed_power_ratio: mixed_mw(shelf, &machine, MIN)? / mixed_mw(shelf, &machine, MENU)? - 1.0,
        gap_menu_ns: on_gap.latency_ns(MENU, |_| {})?,
        gap_min_ns: on_gap.latency_ns(MIN, |_| {})?,
        machine: machine.clone(),
        gap_machine: gap_machine.clone(),
    })
}
