//! The common options of `replay` and `replay --compare`: what to replay, on which machines, how to print it.

use std::io::Write;
use std::path::PathBuf;

use idlewise_lab::notes::{add_governors, add_log, add_machine};
pub use idlewise_lab::target::{ALL_LOGS, MACHINES_DEFAULT, ReplayTarget, Targets};
use idlewise_lab::target::{AskedMachines, Conditions};
use idlewise_report::{Notes, TextStyle, counted, time_words, wrap};
use idlewise_sim::contest::Price;
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, Setting, TICK_WORK_MAX_NS, Tally};
use idlewise_sim::{Arch, Basis};

use crate::bundled;
use crate::doubts::ShownDoubts;
use crate::error::Result;
use crate::governor_arguments::GovernorArguments;
use crate::governors::Choice;
use crate::input::{self, NamedLog};
use crate::promoting::Promoting;
use crate::role::{BundleRole, Roles};
use crate::screen::{Screen, say};
use crate::twins::without_twins;
use crate::unpack::Unpacking;

#[derive(clap::Args)]
pub struct ReplayArguments {
    /// Recordings (perf.data, trace.dat) or logs from `log import` [default: bundled ones]
    pub logs: Vec<PathBuf>,

    /// Machines by name or file, or `recorded` [default: recorded; if unknown, spr and milan]
    #[arg(long = "machine", value_name = "NAME|FILE[,...]", value_delimiter = ',')]
    pub machines: Vec<String>,

    /// The price of delay in mW: a second of delay costs this many mJ [default: 0, ¼ and 1 times the
    /// power of busy-waiting]
    #[arg(long, value_name = "P", value_parser = Price::parse_milliwatts)]
    pub lambda_mw: Option<Price>,

    /// Forbid states with a longer exit latency, in us; a stricter limit in the log also applies
    #[arg(long, value_name = "T")]
    pub latency_limit_us: Option<u32>,

    /// Disable a state, by name or index; may be repeated
    #[arg(long = "disable", value_name = "STATE")]
    pub disabled: Vec<String>,

    /// Print one table for each log instead of one for all
    #[arg(long)]
    pub by_log: bool,

    #[command(flatten)]
    pub doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print the table as CSV instead of text
    #[arg(long)]
    pub csv: bool,

    #[command(flatten)]
    pub promoting: Promoting,

    /// Simulate a kernel with this CONFIG_HZ [default: the recording's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000))]
    pub hz: Option<u32>,

    /// How long a CPU is assumed to be busy with each scheduler tick, in ns, at most 500000
    #[arg(long, hide_short_help = true, value_name = "NS", default_value_t = DEFAULT_TICK_WORK_NS, value_parser = clap::value_parser!(u64).range(0..=TICK_WORK_MAX_NS))]
    pub tick_work_ns: u64,

    #[command(flatten)]
    pub unpacking: Unpacking,
}

/// What all commands that replay have.
pub const ROLES: Roles = &[
    (BundleRole::Log, &["logs"]),
    (BundleRole::Machine, &["machines"]),
    (
        BundleRole::Plain,
        &["hz", "lambda_mw", "latency_limit_us", "disabled", "states", "tick_work_ns", "doubts"],
    ),
    (BundleRole::InTable, &["by_log"]),
    (BundleRole::Here, &["max_unpacked"]),
    (BundleRole::Form, &["json", "csv"]),
];
/// What others share with them.
pub const SHOWN: Roles = &[
    (BundleRole::Here, &["max_unpacked"]),
    (BundleRole::Plain, &["doubts"]),
    (BundleRole::Form, &["json"]),
];

impl ReplayArguments {
    /// Returns the prices of latency to report.
    pub fn prices(&self) -> Vec<Price> {
        match self.lambda_mw {
            Some(price) => vec![price],
            None => Price::STANDARD.to_vec(),
        }
    }

    /// The machines by name, which are checked before a log is read.
    pub fn machines<'a>(&'a self, choices: &'a [Choice]) -> Result<AskedMachines<'a>> {
        AskedMachines::new(&self.machines, choices, &self.disabled, self.promoting.states())
    }

    pub fn open_logs(&self) -> Result<Vec<NamedLog>> {
        open_logs(&self.logs, self.unpacking)
    }

    /// The input files, with those of the governors.
    pub fn inputs(&self, governors: &GovernorArguments) -> Vec<PathBuf> {
        let machines = self.machines.iter().map(PathBuf::from);
        machines.chain(self.logs.iter().cloned()).chain(governors.files()).collect()
    }

    pub fn conditions(&self) -> Conditions {
        let ReplayArguments { hz, latency_limit_us, tick_work_ns, .. } = *self;
        Conditions { hz, latency_limit_us, tick_work_ns }
    }

    /// The HZ with which a log is replayed.
    pub fn hz(&self, log: &NamedLog) -> u32 {
        self.conditions().hz_of(&log.log.metadata)
    }

    pub fn setting(&self, target: &ReplayTarget, log: &NamedLog) -> Setting {
        target.setting(self.conditions(), &log.log.metadata)
    }

    pub fn notes(&self, logs: &[NamedLog], targets: &[ReplayTarget], choices: &[Choice]) -> Notes {
        let mut notes = self.doubts.notes();
        notes.basis(Basis::Simulated, "misses, delays and ticks, with worst-case exit latencies");
        add_governors(&mut notes, Basis::Simulated, choices);
        notes.basis(Basis::Assumed, format!("{} ns of work for each tick", self.tick_work_ns));
        for target in targets {
            add_machine(&mut notes, &target.machine, "energy and regret");
            let id = &target.machine.id;
            if self.promoting.is_asked() && target.machine.arch == Arch::Power {
                notes.doubt(format!(
                    "{id}: a replay has no SMT siblings, so what they gain when a CPU leaves a lite \
                     state is in no figure here; `idlewise lab study promotion` simulates it"
                ));
            }
        }
        if self.promoting.is_asked() {
            notes.basis(
                Basis::Simulated,
                "time stuck; a fired timer costs the state's exit latency",
            );
            notes.doubt(
                "promotion: what starting, cancelling and handling its timers takes is unknown, so it \
                 is in no figure here",
            );
        }
        for named in logs {
            add_log(&mut notes, &named.name, &named.log.metadata, self.conditions());
        }
        notes
    }
}

/// Says what stands for machines that recordings do not have: in text in the first line, in JSON as a doubt, and
/// beside CSV.
pub fn say_assumed(
    assumed: Option<&str>,
    notes: &mut Notes,
    out: &mut Screen,
    (json, csv): (bool, bool),
) -> Result<()> {
    match assumed {
        Some(assumed) if json => notes.doubt(assumed),
        Some(assumed) if csv => say(format_args!("idlewise: {assumed}")),
        Some(assumed) => writeln!(out, "{}\n", wrap(assumed, TextStyle::for_stdout().width, 0))?,
        None => {}
    }
    Ok(())
}

/// Opens the logs at these paths, under names that tell them apart; the bundled ones if there are none.
pub fn open_logs(paths: &[PathBuf], unpacking: Unpacking) -> Result<Vec<NamedLog>> {
    if paths.is_empty() {
        return bundled::logs();
    }
    let paths = without_twins(paths, unpacking);
    let named = paths.iter().zip(input::distinct_names(&paths, &[ALL_LOGS]));
    named.map(|(path, name)| NamedLog::open_as(path, name, unpacking)).collect()
}

/// Returns the title of the tables of a log, or of all logs, on a machine.
pub fn title(
    log: &str,
    machine: &str,
    targets: &[ReplayTarget],
    logs: &[NamedLog],
    tally: &Tally,
) -> String {
    let found = targets.iter().find(|target| target.machine.id == machine);
    let machine_title = found.map_or("", |target| target.machine.title.as_str());
    let log = match (log, found.and_then(|target| target.logs.as_deref())) {
        (ALL_LOGS, Some([only])) => logs[*only].name.clone(),
        (ALL_LOGS, Some(some)) if some.len() < logs.len() => {
            format!("{} logs together", some.len())
        }
        (ALL_LOGS, _) => format!("all {} logs together", logs.len()),
        (log, _) => log.to_owned(),
    };
    // A decimal of a second, unless that would be 0.0.
    let idle = match tally.gap_ns as f64 {
        ns if ns < 5e7 => time_words(ns),
        ns => format!("{:.1} s", ns / 1e9),
    };
    format!("{machine} ({machine_title}): {log}, {}, {idle} idle", counted(tally.gap_count, "gap"),)
}
