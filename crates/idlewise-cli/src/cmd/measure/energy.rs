//! `idlewise measure residency` and `measure power`: what idle states draw, and how long a stay must last to
//! pay, by the machine's own energy counters.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use idlewise_host::Root;
use idlewise_host::energy::{EnergyDomain, EnergyKind, EnergyMeter};
use idlewise_host::ipi::IpiError;
use idlewise_host::states::{
    EnergyPlan, EnergySlice, EnergyWishes, StatesError, Worked, Workers, measure_energy,
};
use idlewise_machine::Machine;
use idlewise_probe::{allowed_cpus, pin_to, sleep_periodically};
use idlewise_report::residency::{
    Figure, PowerFigures, ResidencyFigures, Slice, SweptState, power_table, powers, residencies,
    residency_table,
};
use idlewise_report::saved::{BetterValue, Block, SavedSeries, SeriesUnit, Statistic};
use idlewise_report::{Notes, Table, TextStyle, counted, wrap};
use idlewise_sim::Basis;
use idlewise_trace::cpus_in_words;
use serde_json::{Value, json};

use super::forced::{
    Follow, ForcedArguments, SCHEMA, STATUS_STOPPED, files_words, machine_text, measured_machine,
    owner,
};
use super::saving::{Pair, machine_facts, saved};
use crate::bundled;
use crate::error::{Failure, Result};
use crate::output;
use crate::program::today;
use crate::progress::Progress;
use crate::screen::{self, say};
use crate::signals::Signals;

const RESIDENCY_EXAMPLES: &str = "\
Examples:
  # From which stay on each state pays, against the next shallower one (ten minutes)
  sudo idlewise measure residency

  # Into a machine file, on top of measured exit latencies
  sudo idlewise measure states -o my-machine.toml
  sudo idlewise measure residency --machine ./my-machine.toml -o my-machine.toml --force

  # Two states, other intervals; what would be done
  sudo idlewise measure residency --state C1E,C6 --interval-us 100,300,1000,3000
  idlewise measure residency --dry-run

All CPUs with the same table are held in one state after another and woken at each interval, in \
rounds, while the energy of their packages is counted (RAPL, or a battery that discharges). A line \
through the energy of a wake-up period gives the power and what a wake-up costs; where the lines \
of two states cross is the shortest stay that saves energy. States are held and put back as by \
`measure states`. Everything else should rest meanwhile.

Exit status: 0; 130 if a signal ended it; 2 if nothing could be measured.";

const POWER_EXAMPLES: &str = "\
Examples:
  # Watts with all CPUs in each state in turn
  sudo idlewise measure power

  # Powers into a machine file
  sudo idlewise measure power --machine ./my-machine.toml -o my-machine.toml --force

  # What would be done
  idlewise measure power --dry-run

All CPUs with the same table are held in one state after another, and left alone, while the energy \
of their packages is counted (RAPL, or a battery that discharges). States are held and put back as \
by `measure states`. Everything else should rest meanwhile.

Exit status: 0; 130 if a signal ended it; 2 if nothing could be measured.";

/// Measure how long a stay in each idle state must last to save energy: its target residency
///
/// Wakes all CPUs periodically out of each state, counts the energy, and prints the break-even against the next
/// shallower state with a 95 % interval, beside the target residency in the kernel's table. Needs root and
/// energy counters.
#[derive(clap::Args)]
#[command(after_help = RESIDENCY_EXAMPLES)]
pub struct Residency {
    /// Intervals between wake-ups, in microseconds [default: from a third to three times each target residency]
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(20..=10_000_000))]
    interval_us: Vec<u64>,

    #[command(flatten)]
    common: Common,
}

/// Measure what CPUs draw in each idle state
///
/// Prints the packages' power with all CPUs in the state, and what a core saves against the next shallower one,
/// with 95 % intervals. Needs root and energy counters.
#[derive(clap::Args)]
#[command(after_help = POWER_EXAMPLES)]
pub struct Power {
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// How long each setting is measured in a round, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    slice_ms: u64,

    /// How often the settings take turns; intervals need at least 7
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,

    /// Write a machine file with the measured figures
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The machine file to begin with, such as that of `measure states` [default: the kernel's table]
    #[arg(long, value_name = "FILE", requires = "output")]
    machine: Option<PathBuf>,

    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    forced: ForcedArguments,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Residency,
    Power,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Residency => "residency",
            What::Power => "power",
        }
    }
}

impl Residency {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let intervals_ns: Vec<u64> = self.interval_us.iter().map(|us| us * 1_000).collect();
        if intervals_ns.len() == 1 {
            return Err(Failure::new(
                "--interval-us: one interval makes no line; name two or more",
            ));
        }
        self.common.run(What::Residency, intervals_ns)
    }
}

impl Power {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        self.common.run(What::Power, Vec::new())
    }
}

/// What was measured.
enum Figures {
    Residency(Vec<ResidencyFigures>),
    Power(Vec<PowerFigures>),
}

impl Figures {
    fn table(&self, title: &str) -> Table {
        match self {
            Figures::Residency(all) => residency_table(title, all),
            Figures::Power(all) => power_table(title, all),
        }
    }
}

impl Common {
    fn run(self, what: What, intervals_ns: Vec<u64>) -> Result<ExitCode> {
        let (root, form) = (self.forced.root()?, self.forced.form());
        let states = self.forced.forced_states()?;
        let base = self.machine.as_deref().map(machine_file).transpose()?;
        let mut wishes = EnergyWishes {
            states,
            intervals_ns: vec![None],
            slice_ns: self.slice_ms * 1_000_000,
            round_count: self.rounds,
        };
        let mut plan = EnergyPlan::new(&root, &wishes).map_err(Failure::new)?;
        if what == What::Residency {
            let intervals_ns = match intervals_ns.is_empty() {
                true => default_intervals_ns(&plan),
                false => intervals_ns,
            };
            wishes.intervals_ns = intervals_ns.into_iter().map(Some).collect();
            plan = EnergyPlan::new(&root, &wishes).map_err(Failure::new)?;
        }
        if let Some(base) = &base {
            check_base(base, &plan, self.machine.as_deref())?;
        }
        if self.dry_run {
            return self.print_plan(what, &plan);
        }
        // Before anything is created or changed.
        drop(EnergyMeter::open(&root).map_err(StatesError::from).map_err(Failure::new)?);
        let output = self.output.as_deref().map(|path| self.forced.create(path)).transpose()?;
        let watch =
            Follow::new(Progress::slices("measuring", plan.slice_count()), Signals::catch()?);
        let outcome = measure_energy(&root, &plan, &owner(what.word()), &mut Sleepers, &watch);
        watch.bar.finish();
        let (domains, slices) = match outcome {
            Err(StatesError::Ipi(error @ IpiError::Stopped)) => {
                say(format_args!("idlewise: {error}"));
                return Ok(ExitCode::from(STATUS_STOPPED));
            }
            outcome => outcome.map_err(Failure::new)?,
        };
        let is_counted = which_count(&domains);
        let slices = report_slices(&plan, &slices, &is_counted);
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "energy, powers and break-evens");
        for doubt in &plan.doubts {
            notes.doubt(doubt);
        }
        if slices.iter().all(|slice| slice.energy_uj == 0) {
            return Err(Failure::new(
                "the energy counters did not move, as in some virtual machines: nothing can be measured by them",
            ));
        }
        let names: Vec<String> =
            plan.held.iter().map(|&index| plan.table[index].name.clone()).collect();
        let figures = match what {
            What::Residency => Figures::Residency(residencies(&swept(&plan), &slices)),
            What::Power => {
                let cores = core_count(&root, &plan.cpus);
                Figures::Power(powers(&names, &slices, plan.cpus.len(), cores))
            }
        };
        doubt_figures(&figures, &mut notes);
        let machine = with_figures(&root, &plan, base, &figures);
        let written = match output {
            Some(output) => {
                let path = output.path().to_owned();
                machine_text(&machine, what.word())
                    .map_err(|error| error.within(&path))
                    .and_then(|text| output::write(output, text))
            }
            None => Ok(()),
        };
        let document = || {
            let cpu = plan.cpus.first().copied().unwrap_or_default();
            let facts = machine_facts(&root, Pair { waker_cpu: cpu, waiter_cpu: cpu });
            let document = json!({
                "plan": plan_json(&plan),
                "domains": domains_json(&domains, &is_counted),
                "all": figures.table(""),
                "own_machine": machine,
            });
            saved(what.word(), &facts, series(&plan, &slices), &notes, document)
        };
        form.print(&notes, &|title| figures.table(title), document, |out, style| {
            let title = title(what, &plan, &domains, &is_counted);
            writeln!(out, "{}", figures.table(&title).to_text(style))?;
            match &self.output {
                Some(path) => writeln!(out, "Written: {}", screen::name(path)),
                None => Ok(()),
            }
        })?;
        written.map(|()| ExitCode::SUCCESS)
    }

    fn print_plan(&self, what: What, plan: &EnergyPlan) -> Result<ExitCode> {
        if self.forced.form().json {
            let mut document = plan_json(plan);
            document["files"] = json!(plan.files());
            screen::stdout().json(SCHEMA, &json!({ "plan": document }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let names: Vec<&str> =
            plan.held.iter().map(|&index| plan.table[index].name.as_str()).collect();
        let intervals: Vec<String> =
            plan.intervals_ns.iter().flatten().map(|ns| (ns / 1_000).to_string()).collect();
        let woken = match what {
            What::Residency => format!("woken every {} us", intervals.join(", ")),
            What::Power => "left alone".to_owned(),
        };
        let text = format!(
            "Would hold {} in {} in turn, {woken}, {} ms each in {}: about {} s; nothing was changed.",
            cpus_in_words(&plan.cpus),
            names.join(", "),
            plan.slice_ns / 1_000_000,
            counted(plan.round_count, "round"),
            plan.about_ns().div_ceil(1_000_000_000)
        );
        let mut out = screen::stdout();
        let width = TextStyle::for_stdout().width;
        writeln!(out, "{}", wrap(&text, width, 2))?;
        writeln!(out, "{}", wrap(&files_words(&plan.files()), width, 2))?;
        for doubt in &plan.doubts {
            writeln!(out, "{}", wrap(&format!("- {doubt}"), width, 2))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A machine file by its path.
fn machine_file(path: &Path) -> Result<Machine> {
    bundled::machine(&path.display().to_string())
}

fn check_base(base: &Machine, plan: &EnergyPlan, path: Option<&Path>) -> Result<()> {
    let names = |states: &[idlewise_machine::MachineState]| {
        states.iter().map(|state| state.name.clone()).collect::<Vec<_>>().join(", ")
    };
    let (found, expected) = (names(&base.states), names(&plan.table));
    match found == expected {
        true => Ok(()),
        false => Err(Failure::new(format_args!(
            "{}: its states are {found}, those of this machine {expected}; leave out --machine",
            path.map(screen::name).unwrap_or_default()
        ))),
    }
}

/// From a third of the shortest to three times the longest target residency, in steps of about three.
fn default_intervals_ns(plan: &EnergyPlan) -> Vec<u64> {
    const SHORTEST_NS: u64 = 50_000;
    const LONGEST_NS: u64 = 30_000_000;
    let held = || plan.held.iter().map(|&index| plan.table[index].target_residency_ns);
    let first = (held().filter(|&ns| ns > 0).min().unwrap_or(0) / 3).clamp(SHORTEST_NS, LONGEST_NS);
    let last = (held().max().unwrap_or(0) * 3).clamp(first * 9, LONGEST_NS * 3);
    let mut intervals_ns = vec![first];
    while let Some(&ns) = intervals_ns.last().filter(|&&ns| ns < last) {
        intervals_ns.push((ns * 3).min(last));
    }
    intervals_ns
}

fn swept(plan: &EnergyPlan) -> Vec<SweptState> {
    let state = |&index: &usize| SweptState {
        name: plan.table[index].name.clone(),
        target_residency_ns: plan.table[index].target_residency_ns,
    };
    plan.held.iter().map(state).collect()
}

/// Which domains are added up: packages or, where there are none, whatever counts the whole machine.
fn which_count(domains: &[EnergyDomain]) -> Vec<bool> {
    let best = [EnergyKind::Package, EnergyKind::Machine, EnergyKind::Platform];
    let kind = best.into_iter().find(|kind| domains.iter().any(|domain| domain.kind == *kind));
    domains.iter().map(|domain| Some(domain.kind) == kind).collect()
}

fn report_slices(plan: &EnergyPlan, slices: &[EnergySlice], counted: &[bool]) -> Vec<Slice> {
    let slice = |slice: &EnergySlice| {
        let energies_uj =
            slice.energy_uj.iter().zip(counted).filter(|(_, is_counted)| **is_counted);
        let place = |value, all: &[_]| all.iter().position(|one| *one == value).unwrap_or(0);
        Slice {
            round: slice.round,
            state: plan.held.iter().position(|index| *index == slice.state).unwrap_or(0),
            interval: place(slice.interval_ns, &plan.intervals_ns),
            elapsed_ns: slice.worked.elapsed_ns,
            energy_uj: energies_uj.map(|(uj, _)| uj).sum(),
            wake_count: slice.worked.wake_count,
            entry_count: slice.entry_count,
            other_count: slice.other_count,
            in_state_ns: slice.in_state_ns,
        }
    };
    slices.iter().map(slice).collect()
}

/// The cores of some CPUs.
fn core_count(root: &Root, cpus: &[u16]) -> usize {
    let siblings = |cpu: &u16| {
        let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        root.text(&file).unwrap_or_else(|| cpu.to_string())
    };
    cpus.iter().map(siblings).collect::<std::collections::BTreeSet<_>>().len()
}

fn title(what: What, plan: &EnergyPlan, domains: &[EnergyDomain], is_counted: &[bool]) -> String {
    let names: Vec<&str> = domains
        .iter()
        .zip(is_counted)
        .filter(|(_, is_counted)| **is_counted)
        .map(|(domain, _)| domain.name.as_str())
        .collect();
    let measured = match what {
        What::Residency => "What stays in idle states pay from",
        What::Power => "What idle states draw",
    };
    format!(
        "{measured}: {} in each state in turn, by {}, measured",
        counted(plan.cpus.len(), "CPU"),
        names.join(", ")
    )
}

fn doubt_figures(figures: &Figures, notes: &mut Notes) {
    match figures {
        Figures::Residency(all) => {
            for one in all {
                if one.dropped_count > 0 {
                    notes.doubt(format!(
                        "{}: {} left out, for the CPUs entered other states",
                        one.state,
                        counted(one.dropped_count, "slice")
                    ));
                }
                if let (Some(shallower), None) = (&one.shallower, one.break_even_ns.value) {
                    notes.doubt(format!(
                        "{}: no stay pays against {shallower}, as far as these counters show: it draws no less",
                        one.state
                    ));
                }
            }
        }
        Figures::Power(all) => {
            notes.doubt(
                "a core's own power in the deepest state cannot be told from the rest of its package: only \
                 differences are a core's",
            );
            for one in all.iter().filter(|one| one.power_mw.value.is_none()) {
                notes.doubt(format!(
                    "{}: not measured in all rounds, for the CPUs entered other states",
                    one.state
                ));
            }
        }
    }
}

/// The machine's file with the measured figures in it.
fn with_figures(
    root: &Root,
    plan: &EnergyPlan,
    base: Option<Machine>,
    figures: &Figures,
) -> Machine {
    let mut machine = base.unwrap_or_else(|| {
        let first = plan.cpus.first().copied().unwrap_or_default();
        let mut machine = measured_machine(root, first, &plan.table);
        machine.source_ref =
            Some(format!("idlewise measure, {}; the rest is the kernel's table", today()));
        machine
    });
    match figures {
        Figures::Residency(all) => {
            for (one, &index) in all.iter().zip(&plan.held) {
                let Some(ns) = one.break_even_ns.value else { continue };
                let state = &mut machine.states[index];
                machine.quirks.push(format!(
                    "{}: target residency {:.1} us measured{}, the table declares {:.1} us",
                    one.state,
                    ns / 1e3,
                    interval_words(one.break_even_ns),
                    one.declared_target_residency_ns as f64 / 1e3
                ));
                state.target_residency_ns = ns.round() as u64;
            }
            // Governors want a table in order.
            let mut least_ns = 0;
            for state in &mut machine.states {
                state.target_residency_ns = state.target_residency_ns.max(least_ns);
                least_ns = state.target_residency_ns;
            }
        }
        Figures::Power(all) => {
            for (one, &index) in all.iter().zip(&plan.held) {
                let Some(mw) = one.above_deepest_mw.value else { continue };
                let state = &mut machine.states[index];
                state.power_mw = Some((mw.max(0.0) * 10.0).round() / 10.0);
                state.power_kind = Some("measured".to_owned());
                state.power_source = Some(format!("idlewise measure power, {}", today()));
            }
            machine.quirks.push(
                "powers are a core's above those of the deepest measured state, whose own cannot be measured"
                    .to_owned(),
            );
        }
    }
    machine
}

fn interval_words(figure: Figure) -> String {
    let words = |[low, high]: [f64; 2]| format!(" (95 %: {:.1} to {:.1})", low / 1e3, high / 1e3);
    figure.interval.map(words).unwrap_or_default()
}

fn plan_json(plan: &EnergyPlan) -> Value {
    let names: Vec<&str> = plan.held.iter().map(|&index| plan.table[index].name.as_str()).collect();
    json!({
        "cpus": plan.cpus,
        "states": names,
        "intervals_ns": plan.intervals_ns.iter().flatten().collect::<Vec<_>>(),
        "slice_ns": plan.slice_ns,
        "round_count": plan.round_count,
        "about_ns": plan.about_ns(),
        "doubts": plan.doubts,
    })
}

fn domains_json(domains: &[EnergyDomain], counted: &[bool]) -> Value {
    let domain = |(domain, is_counted): (&EnergyDomain, &bool)| json!({ "name": domain.name, "zone": domain.zone, "is_counted": is_counted });
    domains.iter().zip(counted).map(domain).collect()
}

/// The power of each slice, for `lab compare`.
fn series(plan: &EnergyPlan, slices: &[Slice]) -> Vec<SavedSeries> {
    let mut series = Vec::new();
    for (state, &index) in plan.held.iter().enumerate() {
        for (interval, interval_ns) in plan.intervals_ns.iter().enumerate() {
            let of =
                slices.iter().filter(|slice| (slice.state, slice.interval) == (state, interval));
            let mw = of.map(|slice| slice.energy_uj as f64 / slice.elapsed_ns.max(1) as f64 * 1e6);
            series.push(SavedSeries {
                figure: "power".to_owned(),
                place: match interval_ns {
                    Some(ns) => format!("woken every {} us", ns / 1_000),
                    None => "left alone".to_owned(),
                },
                setting: plan.table[index].name.clone(),
                unit: SeriesUnit::Milliwatts,
                statistic: Statistic::Median,
                better: Some(BetterValue::Lower),
                blocks: mw.map(Block::of).collect(),
            });
        }
    }
    series
}

/// Threads that sleep, one on each CPU.
struct Sleepers;

impl Workers for Sleepers {
    fn work(&mut self, cpus: &[u16], interval_ns: Option<u64>, slice_ns: u64) -> Worked {
        let allowed = allowed_cpus();
        let wake_count = AtomicU64::new(0);
        let start = Instant::now();
        // Without an interval each thread wakes up once, at the end.
        let interval = Duration::from_nanos(interval_ns.unwrap_or(slice_ns));
        let end = start + Duration::from_nanos(slice_ns);
        thread::scope(|scope| {
            for &cpu in cpus {
                let (wake_count, allowed) = (&wake_count, &allowed);
                scope.spawn(move || {
                    if allowed.contains(&usize::from(cpu)) {
                        pin_to(usize::from(cpu));
                    }
                    let count = sleep_periodically(interval, end);
                    wake_count.fetch_add(count, Ordering::Relaxed);
                });
            }
        });
        Worked {
            elapsed_ns: start.elapsed().as_nanos() as u64,
            wake_count: wake_count.load(Ordering::Relaxed),
        }
    }
}
