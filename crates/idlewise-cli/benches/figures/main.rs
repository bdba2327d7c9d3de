//! Measures the figures of this project's goals on this machine: `make bench`, or
//! `cargo bench -p idlewise-cli --bench figures -- SECTION ...` for some of them.
//!
//! | file | holds |
//! | --- | --- |
//! | `main.rs` | which sections run, and the machine they run on |
//! | `figure.rs` | a figure with its goal; medians; printing |
//! | `decisions.rs` | how long a decision takes, without the replay around it |
//! | `kernel_c.rs`, `.c` | decisions and replays compared with the kernel's own C files |
//! | `replay.rs` | a whole replay compared with the sum of its decisions; scaling over threads; CPUs together and alone |
//! | `simulate.rs` | simulated events per second, a large machine, the studies |
//! | `predict.rs` | played events per second |
//! | `import.rs` | importing compared with `perf script` and a bare walk; memory; log sizes |
//! | `trace_dat.rs` | importing trace.dat compared with `trace-cmd report`; its memory |
//! | `text.rs` | importing ftrace's text |
//! | `perfetto.rs` | importing a Perfetto trace; its memory |
//! | `record.rs` | the cost of recording a workload, compared with other recorders |
//! | `perf_data.rs` | makes long recordings from a short one |
//!
//! Everything that is compared is measured in turns (A B A B) within one run, and a ratio is the
//! median of the rounds' ratios, so that a busy machine affects both sides. A missed goal is
//! reported, but is not a failure.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]

mod decisions;
mod figure;
mod import;
mod kernel_c;
mod perf_data;
mod perfetto;
#[path = "../../../idlewise-trace/tests/perfetto_writer/mod.rs"]
mod perfetto_writer;
mod predict;
mod record;
mod replay;
mod simulate;
mod text;
mod trace_dat;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// A section prints as it measures. An error means that it could not measure.
type Section = fn() -> Result<(), Box<dyn Error>>;

const SECTIONS: &[(&str, Section)] = &[
    ("decisions", decisions::run),
    ("kernel-c", kernel_c::run),
    ("replay", replay::run),
    ("joined", replay::run_joined),
    ("simulate", simulate::run_all),
    ("predict", predict::run_all),
    ("import", import::run_throughput),
    ("trace-dat", trace_dat::run),
    ("text", text::run),
    ("perfetto", perfetto::run),
    ("memory", import::run_memory),
    ("sizes", import::run_sizes),
    ("record", record::run),
];

/// Set for a process that runs one section of several.
const PART: &str = "IDLEWISE_FIGURES_PART";

fn run_apart(section: &str) -> Result<(), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    let status = command.arg(section).env(PART, "1").status()?;
    if status.success() { Ok(()) } else { Err(format!("{status}").into()) }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(record::PING_PONG) {
        return match record::run_ping_pong(&arguments.collect::<Vec<_>>()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    // cargo adds `--bench`. Arguments that look like options are ignored.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let Some(unknown) = wanted.iter().find(|name| SECTIONS.iter().all(|(s, _)| s != name)) {
        let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        eprintln!("no section '{unknown}'; there are: {names}");
        return ExitCode::from(2);
    }
    if std::env::var_os(PART).is_none() {
        print_machine();
    }
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let chosen: Vec<_> = SECTIONS.iter().filter(|(name, _)| chosen(name)).collect();
    let mut exit = ExitCode::SUCCESS;
    for (name, run) in &chosen {
        // Each section runs in its own process. Linux passes a process's peak memory on to the
        // program it executes, so a section's tools would seem to need as much as earlier sections.
        let result = match chosen[..] {
            [_] => {
                println!();
                run()
            }
            _ => run_apart(name),
        };
        if let Err(error) = result {
            println!("BROKEN: {name}: {error}");
            exit = ExitCode::FAILURE;
        }
    }
    exit
}

fn print_machine() {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let line_of = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let kernel = line_of("/proc/sys/kernel/osrelease");
    let load = line_of("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    println!("idlewise {}: figures against their goals, all measured", env!("CARGO_PKG_VERSION"));
    println!("{cores} CPUs, {model}, Linux {kernel}, load average {}", load.join(" "));
    if load.first().and_then(|load| load.parse().ok()).is_some_and(|load: f64| load > 0.5) {
        println!("doubt: others use this machine too; times are longer than on an idle one");
    }
}

/// A bundled recording's name, and its log.
const RECORDINGS: [&str; 5] = ["a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500"];

fn traces() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces"))
}
