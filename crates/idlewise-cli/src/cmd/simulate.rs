//! `idlewise lab simulate`: runs a workload on a simulated machine.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::{DisabledMask, NO_LATENCY_LIMIT_NS, tick_period_ns};
use idlewise_lab::notes::{add_governors, add_machine};
use idlewise_lab::target::{disabled, promoted};
use idlewise_report::replay::broken_rules;
use idlewise_report::simulate::{run_table, span_table, state_table};
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_sim::replay::GroupReader;
use idlewise_sim::simulate::{Hardware, ParameterInfo, Report, Setup, Shape, simulate_replicates};
use idlewise_sim::workload::{Recorded, WORKLOADS, Workload};
use idlewise_sim::{Basis, Machine};
use idlewise_trace::{CpuGroups, Doubt, IdleGap};
use serde_json::{Map, Value, json};

use super::export::simulated::{About, SimulatedLog, perfetto_path};
use crate::bundled;
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result, keys_and_values};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, must_have_gaps, read_text_at_most};
use crate::promoting::Promoting;
use crate::role::{BundleRole, LIST, OUTPUT, Roles};
use crate::screen::{self, Screen};
use crate::threads;
use crate::unpack::Unpacking;

/// Much longer than any workload. Reading a TOML file takes fifty times its size.
const WORKLOAD_BYTE_COUNT_MAX: u64 = 1 << 20;
/// The default simulated time.
const DURATION_DEFAULT_MS: u64 = 1_000;
/// A year. A longer simulation would never end in practice.
const DURATION_MAX_MS: u64 = 31_536_000_000;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Request and response over TCP on a Sapphire Rapids, menu against teo
  idlewise lab simulate spr tcp-lat --governor menu --governor teo

  # The same with the card's interrupts on the next CPU, and 500 us between requests
  idlewise lab simulate spr tcp-lat --set irq_offset=1 --set think_ns=500000

  # Wake-ups by IPI instead of by a store to the monitored line
  idlewise lab simulate spr wakes --set ipi_less=false

  # A workload of your own, and what it did as an idle log that can be replayed
  idlewise lab simulate ./machine.toml ./workload.toml --trace run.parquet
  idlewise replay run.parquet --machine ./machine.toml

  # A timer that gets CPUs out of C1, beside the same without it
  idlewise lab simulate spr burst-then-idle --promote C1

  # The gaps of a recording
  idlewise lab simulate spr traces/h-pingpong.parquet

  # All workloads and parameters
  idlewise lab simulate --list

Exit status: 0; 1 if a governor's file crashed, looped or returned an invalid state; 2 on bad \
input or a run that would never end.";

/// Run a workload on a simulated machine
///
/// Simulates discrete events in virtual time: idle states, timers, ticks, interrupts, IPIs, run queues,
/// SMT, package states and the power limit. The same machine, workload, governor and seed always give
/// the same output.
#[derive(clap::Args)]
#[command(mut_arg("governor", with_default("menu and teo; menu with --trace")))]
#[command(after_help = EXAMPLES)]
pub struct Simulate {
    /// The machine: an id listed by `idlewise machines`, or a machine file
    #[arg(required_unless_present = "list")]
    machine: Option<String>,

    /// The workload: a name, a TOML file, or an idle log or recording whose gaps to play
    #[arg(required_unless_present = "list")]
    workload: Option<String>,

    /// List workloads and parameters, with their defaults
    #[arg(long)]
    list: bool,

    #[command(flatten)]
    governors: GovernorArguments,

    /// Set a parameter of the workload or of the hardware; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,

    /// Disable a state, by name or index; may be repeated
    #[arg(long = "disable", value_name = "STATE")]
    disabled: Vec<String>,

    #[command(flatten)]
    promoting: Promoting,

    /// Forbid states with a longer exit latency, in us
    #[arg(long, value_name = "T")]
    latency_limit_us: Option<u32>,

    /// Simulated time in ms [default: 1000, or a recording's length]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=DURATION_MAX_MS))]
    duration_ms: Option<u64>,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Repeat with this many consecutive seeds and add the results up
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    replicates: u64,

    /// Write the decisions as an idle log, and beside it as a Perfetto trace (.pftrace); needs exactly
    /// one --governor
    #[arg(long, value_name = "LOG", conflicts_with = "replicates")]
    trace: Option<PathBuf>,

    /// Replace the files of --trace if they exist
    #[arg(long, requires = "trace")]
    force: bool,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The validated request.
struct Request {
    machine: Machine,
    disabled: DisabledMask,
    hardware: Hardware,
    shape: Shape,
    workload: Workload,
    choices: Vec<Choice>,
    duration_ns: u64,
}

/// Its own options in a bundle.
pub const ROLES: Roles = &[
    (BundleRole::Machine, &["machine"]),
    (BundleRole::Workload, &["workload"]),
    (LIST, &["list"]),
    (
        BundleRole::Plain,
        &["sets", "disabled", "latency_limit_us", "duration_ms", "seed", "replicates"],
    ),
    (OUTPUT, &["trace", "force"]),
];

impl Simulate {
    /// Simulates everything that was requested, and prints it.
    pub fn run(self) -> Result<ExitCode> {
        if self.list {
            screen::stdout().write_all(list().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        threads::start();
        let plan = self.plan()?;
        // Fail before minutes of simulating, not after.
        let outputs = match &self.trace {
            Some(path) => {
                let inputs =
                    [&self.machine, &self.workload].map(|name| name.as_deref().unwrap_or_default());
                let inputs = inputs.map(Path::new);
                Some(SimulatedLog::create("--trace", path, self.force, &inputs)?)
            }
            None => None,
        };
        let mut runs = Vec::new();
        let unpromoted = self.promoting.is_asked().then(|| {
            let machine = plan.machine.clone().without_auto_promotion();
            (machine, " without timers")
        });
        for choice in &plan.choices {
            for (machine, suffix) in [(&plan.machine, "")]
                .into_iter()
                .chain(unpromoted.iter().map(|(machine, suffix)| (machine, *suffix)))
            {
                let report = self.simulate(&plan, machine, choice)?;
                if choice.failure().is_none() {
                    runs.push((format!("{}{suffix}", choice.name()), report));
                }
            }
        }
        let failed = governors::say_failures(&plan.choices, "its runs are left out");
        if runs.is_empty() {
            return Ok(ExitCode::FAILURE);
        }
        let mut out = screen::stdout();
        if let (Some(log), Some(path)) = (outputs, &self.trace) {
            let perfetto = perfetto_path(path);
            let (governor, report) = &runs[0];
            let about = About {
                command: format!(
                    "idlewise lab simulate {} {}",
                    plan.machine.id,
                    plan.workload.name()
                ),
                machine: &plan.machine,
                hz: plan.hardware.hz as u32,
                governor,
                cpu_count: plan.shape.cpu_count(),
                duration_ns: plan.duration_ns,
                // A replay of other machines does not need it.
                topology: plan.machine.shared_states().next().is_some().then(|| groups(&plan)),
                doubts: self.replay_doubts(&plan),
            };
            log.write(report, about)?;
            if !self.json {
                let gaps = counted(runs[0].1.gaps.len(), "gap");
                writeln!(out, "{}: {gaps}; {}", screen::name(path), screen::name(&perfetto))?;
            }
        }
        self.print(&mut out, &plan, &runs)?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn plan(&self) -> Result<Request> {
        let name = self.machine.as_deref().unwrap_or_default();
        let machine = bundled::machine(name)?;
        let disabled = disabled(&machine, &self.disabled)?;
        let machine = promoted(machine, self.promoting.states(), disabled)?;
        let mut hardware = Hardware::of(&machine);
        let usual: &[&str] = if self.trace.is_some() { &["menu"] } else { &["menu", "teo"] };
        let choices = self.governors.choices_or(usual)?;
        governors::must_decide(&choices)?;
        for choice in &choices {
            choice.on(&machine)?;
            if choice.is_oracle() {
                return Err(Failure::new(
                    "the oracle knows each gap in advance, which a simulated machine can't; \
                     replay the log of --trace with it",
                ));
            }
        }
        if self.trace.is_some() && choices.len() != 1 {
            return Err(Failure::new("--trace takes exactly one --governor"));
        }
        let mut workload = self.workload(&mut hardware)?;
        for (key, value) in keys_and_values(&self.sets, "")? {
            workload
                .set(&mut hardware, key, value)
                .map_err(|error| Failure::new(format_args!("--set: {error}")))?;
        }
        let shape = hardware.shape().map_err(Failure::new)?;
        let duration_ns = match (self.duration_ms, &workload) {
            (Some(ms), _) => ms * 1_000_000,
            (None, Workload::Recorded(recorded)) => recorded.end_ns() + 1,
            (None, _) => DURATION_DEFAULT_MS * 1_000_000,
        };
        Ok(Request { machine, disabled, hardware, shape, workload, choices, duration_ns })
    }

    fn workload(&self, hardware: &mut Hardware) -> Result<Workload> {
        let name = self.workload.as_deref().unwrap_or_default();
        if let Some(workload) = generated(name, hardware)? {
            return Ok(workload);
        }
        let path = Path::new(name);
        let named = NamedLog::open(path, self.unpacking)?;
        must_have_gaps([&named])?;
        if let Some(hz) = named.log.metadata.hz {
            hardware.hz = u64::from(hz);
        }
        let mut reader = GroupReader::new(&named.log);
        let mut gaps: Vec<IdleGap> = Vec::new();
        for group in named.log.groups() {
            gaps.extend_from_slice(reader.read(group)?);
        }
        let hz = hardware.hz.clamp(10, 10_000) as u32;
        let recorded = Recorded::new(&gaps, tick_period_ns(hz));
        // The recording's CPUs, each as its own core, because a log does not contain SMT siblings.
        hardware.package_count = 1;
        hardware.core_count = recorded.cpu_count().max(1) as u64;
        hardware.thread_count = 1;
        Ok(Workload::Recorded(recorded))
    }

    fn simulate(&self, plan: &Request, machine: &Machine, choice: &Choice) -> Result<Report> {
        let period_ns = tick_period_ns(plan.hardware.hz as u32);
        let (player, states) = (choice.on(machine)?, machine.table());
        let states = states.map_err(Failure::new)?;
        let make = || player.governor(&states, period_ns).expect("the plan has no oracle");
        let mut setup = Setup::new(machine, &make);
        setup.hardware = plan.hardware.clone();
        setup.disabled = plan.disabled;
        setup.latency_limit_ns =
            self.latency_limit_us.map_or(NO_LATENCY_LIMIT_NS, |us| i64::from(us) * 1_000);
        setup.keeps_gaps = self.trace.is_some();
        let load = |_| plan.workload.load(&plan.shape, &plan.hardware);
        let reports =
            simulate_replicates(&setup, &load, plan.duration_ns, self.seed, self.replicates)
                .map_err(Failure::new)?;
        let mut sum = Report::default();
        for report in &reports {
            sum.merge(report);
        }
        Ok(sum)
    }

    /// Why a replay of the log may decide differently.
    fn replay_doubts(&self, plan: &Request) -> Vec<Doubt> {
        let mut doubts = plan.hardware.replay_doubts();
        if !self.disabled.is_empty() {
            let flags: Vec<String> =
                self.disabled.iter().map(|state| format!("--disable {state}")).collect();
            doubts.push(Doubt::SimulatedDisabled { options: flags.join(" ") });
        }
        doubts
    }

    fn print(&self, out: &mut Screen, plan: &Request, runs: &[(String, Report)]) -> Result<()> {
        let names: Vec<String> =
            plan.machine.states.iter().map(|state| state.name.clone()).collect();
        let Shape { package_count, core_count, thread_count, .. } = plan.shape;
        let title = format!(
            "{} on {} ({package_count} × {core_count} × {thread_count} CPUs): {} ms simulated, seed \
             {}{}",
            plan.workload.name(),
            plan.machine.id,
            plan.duration_ns / 1_000_000,
            self.seed,
            if self.replicates > 1 { format!(", {} runs", self.replicates) } else { String::new() },
        );
        let tables = [run_table(&title, runs), span_table(runs), state_table(&names, runs)];
        let notes = self.notes(plan, runs);
        if self.json {
            let document = json!({
                "machine": plan.machine.id,
                "workload": plan.workload.name(),
                "seed": self.seed,
                "run_count": self.replicates,
                "duration_ns": plan.duration_ns,
                "hardware": values(&plan.hardware.values()),
                "parameters": values(&plan.workload.values()),
                "runs": tables[0],
                "spans": tables[1],
                "states": tables[2],
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let style = TextStyle::for_stdout();
        for table in tables.iter().filter(|table| table.row_count() > 0) {
            writeln!(out, "{}", table.to_text(&style))?;
        }
        out.write_all(notes.to_text(style.width).as_bytes())?;
        Ok(())
    }

    fn notes(&self, plan: &Request, runs: &[(String, Report)]) -> Notes {
        let mut notes = self.doubts.notes();
        notes.basis(Basis::Simulated, "all figures above");
        add_machine(&mut notes, &plan.machine, "");
        notes.basis(
            Basis::Assumed,
            "costs of interrupts, IPIs, stores and switches (`idlewise lab simulate --list`)",
        );
        add_governors(&mut notes, Basis::Calibrated, &plan.choices);
        let broken = runs
            .iter()
            .filter_map(|(name, report)| broken_rules(name, &plan.machine.id, &report.idle));
        broken.for_each(|text| notes.doubt(text));
        notes
    }
}

/// A workload by its name or TOML file, which may set hardware parameters; `None` for another file.
pub(super) fn generated(name: &str, hardware: &mut Hardware) -> Result<Option<Workload>> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "toml") {
        let text = read_text_at_most(path, WORKLOAD_BYTE_COUNT_MAX)?;
        return Workload::from_toml(&text, hardware)
            .map(Some)
            .map_err(|error| Failure::new(format_args!("{name}: {error}")));
    }
    match path.is_file() {
        true => Ok(None),
        false => Workload::named(name).map(Some).map_err(Failure::new),
    }
}

fn values(values: &[(&'static str, String)]) -> Value {
    let mut map = Map::new();
    for (key, text) in values {
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()));
        map.insert((*key).to_owned(), value);
    }
    Value::Object(map)
}

/// The CPUs of the simulated cores, clusters and packages.
fn groups(plan: &Request) -> CpuGroups {
    let Shape { core_count, thread_count, .. } = plan.shape;
    let cpus: Vec<u16> = (0..plan.shape.cpu_count()).map(|cpu| cpu as u16).collect();
    let package_cpu_count = core_count * thread_count;
    let groups = |cpu_count: usize| -> Vec<Vec<u16>> {
        let packages = cpus.chunks(package_cpu_count);
        packages.flat_map(|cpus| cpus.chunks(cpu_count)).map(<[u16]>::to_vec).collect()
    };
    let cluster_cpu_count = match plan.hardware.cluster_cpu_count as usize {
        0 => package_cpu_count,
        count => count,
    };
    CpuGroups {
        core: groups(thread_count),
        cluster: groups(cluster_cpu_count),
        package: groups(package_cpu_count),
    }
}

/// Workloads and parameters for `--list`.
fn list() -> String {
    let mut text = String::from(
        "Workloads, with their parameters, defaults and [ranges]. A span is 0 to a year unless another\n\
         range is given.\n",
    );
    for spec in WORKLOADS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}: {}", spec.name, spec.meaning);
        let values = Workload::named(spec.name).map(|workload| workload.values());
        write_parameters(&mut text, &(spec.parameters)(), &values.unwrap_or_default());
    }
    text.push_str("\nHardware, for every workload (assumed unless the machine's file says it):\n");
    write_parameters(&mut text, &Hardware::parameters(), &Hardware::default().values());
    text
}

fn write_parameters(text: &mut String, infos: &[ParameterInfo], values: &[(&str, String)]) {
    for (info, (_, value)) in infos.iter().zip(values) {
        let range = match info.range.is_any_span() {
            true => String::new(),
            false => format!(" [{}]", info.range),
        };
        let line = format!("  {:20} {:>10}  {}{range}", info.key, value, info.meaning);
        let _ = writeln!(text, "{}", wrap(&line, 100, 35));
    }
}
