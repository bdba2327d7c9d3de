//! `idlewise machines`: the machines that come with idlewise, and what is known about each.

mod import;

use std::io::Write;
use std::process::ExitCode;

use idlewise_machine::{ExitFigure, Machine, MachineState, Power, PowerFigure, Topology};
use idlewise_report::machines::{machine_table, state_table};
use idlewise_report::{Notes, Table, TextStyle, shown_in_line, wrap};
use serde_json::json;

use crate::bundled;
use crate::error::Result;
use crate::screen;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # All machines
  idlewise machines

  # One machine: its states, powers, sources and doubts
  idlewise machines spr

  # Those with \"skylake\" in their id or title
  idlewise machines skylake

  # A file of your own; machines/README.md explains the format
  idlewise machines ./my-server.toml

  # Exit latencies that wult measured, as a machine file
  idlewise machines import ~/icx-c6-tdt --machine icx -o icx-measured.toml

  # For programs: times in nanoseconds, powers in milliwatts
  idlewise machines spr --json

Exit status: 0, or 2 if no machine has that name or a file can't be used.";

/// List the machines that idlewise knows, or show the idle states of one
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    override_usage = "idlewise machines [OPTIONS] [NAME]\n       idlewise machines import [OPTIONS] --machine <NAME|FILE> <FOLDER>"
)]
pub struct Machines {
    #[command(subcommand)]
    action: Option<Action>,

    /// A machine's id, a part of an id or title, or the path of a machine file (with a / or .toml)
    name: Option<String>,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the table as CSV instead of text
    #[arg(long)]
    csv: bool,
}

#[derive(clap::Subcommand)]
enum Action {
    Import(import::Import),
}

impl Machines {
    /// Prints the list or one machine, or makes a machine file.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(Action::Import(import)) = self.action {
            return import.run();
        }
        let style = TextStyle::for_stdout();
        let mut out = screen::stdout();
        let text = match self.one_machine()? {
            Some(machine) if self.json => {
                out.json(SCHEMA, &machine_json(&machine))?;
                return Ok(ExitCode::SUCCESS);
            }
            Some(machine) if self.csv => state_table(&machine).to_csv(),
            Some(machine) => machine_text(&machine, &style),
            None => {
                let machines = self.matching()?;
                let table = machine_table(&machines);
                if self.json {
                    out.json(SCHEMA, &json!({ "machines": table }))?;
                    return Ok(ExitCode::SUCCESS);
                }
                if self.csv { table.to_csv() } else { list_text(&table, &style) }
            }
        };
        out.write_all(text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    /// The machine that was named exactly or given as a file.
    fn one_machine(&self) -> Result<Option<Machine>> {
        match self.name.as_deref() {
            Some(name) if bundled::is_path(name) => bundled::machine(name).map(Some),
            name => Ok(name.and_then(idlewise_machine::bundled)),
        }
    }

    /// The machines whose id or title contains the name; all if none was given.
    fn matching(&self) -> Result<Vec<Machine>> {
        let mut machines: Vec<Machine> = idlewise_machine::bundled_machines().collect();
        if let Some(name) = &self.name {
            let wanted = name.to_lowercase();
            machines.retain(|machine| {
                machine.id.contains(&wanted) || machine.title.to_lowercase().contains(&wanted)
            });
            if machines.is_empty() {
                // `recorded` is a machine wherever there is a recording.
                bundled::machine(name)?;
            }
        }
        Ok(machines)
    }
}

fn list_text(table: &Table, style: &TextStyle) -> String {
    let count = table.row_count();
    let machines = if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") };
    let hint = format!("{machines}; `idlewise machines NAME` shows one with its sources.");
    format!("{}\n{}\n", table.to_text(style), wrap(&hint, style.width, 0))
}

fn machine_text(machine: &Machine, style: &TextStyle) -> String {
    let mut text = format!("{}: {}\n", machine.id, shown_in_line(&machine.title));
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let indent = name.len() + 2;
            text.push_str(&wrap(&format!("{name}: {value}"), style.width, indent));
            text.push('\n');
        }
    };
    line("CPU", cpu_words(machine));
    line("Topology", topology_words(&machine.topology));
    line("Driver", driver_words(machine));
    let source_ref = machine.source_ref.as_deref().unwrap_or("no reference given");
    line("Source", Some(format!("{}, {source_ref}", machine.source)));
    let figure = machine.running_power_figure();
    line("Running power", Some(power_words(machine.running_power(), figure)));
    for (source, names) in power_sources(&machine.states) {
        line("Power figures", Some(format!("{} from {source}", names.join(", "))));
    }

    for (state, figure) in machine.states.iter().filter_map(|it| Some((it, it.exit_figure()?))) {
        line("Exit latency", Some(exit_words(state, &figure)));
    }

    text.push('\n');
    if !machine.states.is_empty() {
        text.push_str(&state_table(machine).to_text(style));
        text.push('\n');
    }
    let mut list = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            text.push_str(&format!("{title}:\n"));
        }
        for item in items {
            text.push_str(&wrap(&format!("- {item}"), style.width, 2));
            text.push('\n');
        }
    };
    list("Power domains above the core", domain_words(machine));
    list("Facts", machine.quirks.clone());
    text + &notes(machine).to_text(style.width)
}

/// All doubts are major here: the machine is the subject, and nothing is judged.
fn notes(machine: &Machine) -> Notes {
    let mut notes = Notes::default();
    for doubt in machine.doubts().into_iter().chain(machine.shared_doubts()) {
        notes.doubt(doubt);
    }
    notes
}

fn cpu_words(machine: &Machine) -> Option<String> {
    let number = |name: &str, value: Option<u32>| value.map(|value| format!("{name} {value}"));
    let words = [
        machine.vendor.clone(),
        Some(machine.arch.as_str().to_owned()),
        machine.model_name.clone(),
        machine.part_of.as_ref().map(|whole| format!("part of {whole}")),
        number("family", machine.family),
        number("model", machine.model),
        number("stepping", machine.stepping),
        (!machine.cpu_models.is_empty()).then(|| machine.cpu_models.join(" ")),
    ];
    joined(words)
}

fn topology_words(topology: &Topology) -> Option<String> {
    let count = |count: Option<u32>, one: &str, many: &str| {
        count.map(|count| format!("{count} {}", if count == 1 { one } else { many }))
    };
    joined([
        count(topology.package_count, "package", "packages"),
        count(topology.numa_node_count, "NUMA node", "NUMA nodes"),
        count(topology.core_count, "core", "cores"),
        count(topology.thread_count, "thread", "threads"),
        count(topology.threads_per_core, "thread per core", "threads per core"),
        count(topology.p_thread_count, "of them on P-cores", "of them on P-cores"),
        count(topology.e_thread_count, "of them on E-cores", "of them on E-cores"),
    ])
}

fn driver_words(machine: &Machine) -> Option<String> {
    joined([
        machine.driver.clone(),
        machine.kernel_table.as_ref().map(|table| format!("table {table}")),
        machine.kernel.as_ref().map(|kernel| format!("kernel {kernel}")),
    ])
}

fn power_words(power: Power, figure: Option<PowerFigure<'_>>) -> String {
    let khz = figure.and_then(|figure| figure.at_khz).map(|khz| format!(" at {khz} kHz"));
    let source = figure.and_then(|figure| figure.source).map(|s| format!(", {s}"));
    let (khz, source) = (khz.unwrap_or_default(), source.unwrap_or_default());
    format!("{} mW{khz}, {}{source}", power.mw, power.basis)
}

/// What leaving a state takes, by its percentiles.
fn exit_words(state: &MachineState, figure: &ExitFigure<'_>) -> String {
    let percentiles = figure.percentiles_us.iter().map(|[percent, us]| format!("p{percent} {us}"));
    let percentiles: Vec<String> = percentiles.collect();
    let source = figure.source.map(|source| format!(", {source}")).unwrap_or_default();
    let mean_us = state.exit_times().mean_ns() as f64 / 1e3;
    let (name, percentiles, basis) = (&state.name, percentiles.join(", "), figure.basis());
    format!("{name}: {percentiles} us, mean {mean_us} us, {basis}{source}")
}

/// The sources of published powers, each with its states.
fn power_sources(states: &[MachineState]) -> Vec<(&str, Vec<&str>)> {
    let mut sources: Vec<(&str, Vec<&str>)> = Vec::new();
    for state in states {
        let Some(source) = state.power_figure().and_then(|figure| figure.source) else { continue };
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, names)) => names.push(&state.name),
            None => sources.push((source, vec![&state.name])),
        }
    }
    sources
}

fn domain_words(machine: &Machine) -> Vec<String> {
    let us = |ns: u64| ns as f64 / 1000.0;
    let states = machine.domain_states.iter().map(|state| {
        let (latency_us, residency_us) = (us(state.exit_latency_ns), us(state.target_residency_ns));
        let times = format!("exit latency {latency_us} us, target residency {residency_us} us");
        let shared = state.scope.map(|scope| {
            let coordination = state.coordination.map_or("?", |by| by.as_str());
            let required = state.requires.as_deref().unwrap_or("?");
            format!(", shared by a {scope} ({coordination}) whose CPUs are in {required} or deeper")
        });
        let power = state.power_figure().zip(state.awake_power_mw).map(|(figure, awake_mw)| {
            let source = figure.source.map(|source| format!(", {source}")).unwrap_or_default();
            format!(", {} mW instead of {awake_mw} mW ({}{source})", figure.mw, figure.basis())
        });
        let (shared, power) = (shared.unwrap_or_default(), power.unwrap_or_default());
        format!("{}: {times}{shared}{power}", state.name)
    });
    states.collect()
}

fn joined<const N: usize>(words: [Option<String>; N]) -> Option<String> {
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn machine_json(machine: &Machine) -> serde_json::Value {
    let domain_states = machine.domain_states.iter().map(|state| {
        json!({
            "state": state.name,
            "desc": state.desc,
            "exit_latency_ns": state.exit_latency_ns,
            "target_residency_ns": state.target_residency_ns,
            "scope": state.scope,
            "coordination": state.coordination,
            "requires": state.requires,
            "power_mw": state.power_mw,
            "awake_power_mw": state.awake_power_mw,
            "power_basis": state.power_figure().map(|figure| figure.basis().as_str()),
        })
    });
    let running_power = machine.running_power();
    let exit_figures = machine.states.iter().map(MachineState::exit_figure);
    let power_figures = machine.states.iter().map(MachineState::power_figure);
    json!({
        "machine": machine.id,
        "title": machine.title,
        "arch": machine.arch.as_str(),
        "vendor": machine.vendor,
        "model_name": machine.model_name,
        "family": machine.family,
        "model": machine.model,
        "stepping": machine.stepping,
        "cpu_models": machine.cpu_models,
        "part_of": machine.part_of,
        "driver": machine.driver,
        "kernel": machine.kernel,
        "kernel_table": machine.kernel_table,
        "source": machine.source,
        "source_ref": machine.source_ref,
        "topology": machine.topology,
        "running_power_mw": running_power.mw,
        "running_power_basis": running_power.basis.as_str(),
        "running_power_figure": machine.running_power_figure(),
        "states": state_table(machine),
        "exit_figures": exit_figures.collect::<Vec<_>>(),
        "power_figures": power_figures.collect::<Vec<_>>(),
        "domain_states": domain_states.collect::<Vec<_>>(),
        "quirks": machine.quirks,
        "doubts": notes(machine).counted_doubts(),
    })
}
