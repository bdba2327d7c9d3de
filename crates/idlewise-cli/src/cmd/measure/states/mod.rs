//! `idlewise measure states`: how long leaving each idle state takes, as a machine file.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the command, and the system calls that wake threads |
//! | `plan.rs` | what would be done |
//! | `result.rs` | figures, machine files and differences from the kernel's table |

mod plan;
mod result;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use idlewise_host::Root;
use idlewise_host::ipi::{IpiError, Watch};
use idlewise_host::states::{
    CpuTimes, LaunchRequest, LaunchedWake, Launcher, StatesError, StatesPlan, StatesWishes, WakeBy,
    measure_states,
};
use idlewise_probe::{Between, Launch, launches, timer_wakes};
use idlewise_report::Notes;
use idlewise_report::states::measure_states_table;
use idlewise_sim::Basis;
use idlewise_trace::OutputFile;

use plan::{kinds, print_plan};
use result::Measured;

use super::forced::{Follow, ForcedArguments, STATUS_STOPPED, owner};
use crate::error::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::screen::say;
use crate::signals::Signals;

/// How long the machine is watched before it counts as idle.
const WATCH_TIME: Duration = Duration::from_secs(1);
/// The CPUs of the measurement may be busy for at most this share of time, and all CPUs on average for the
/// other.
const BUSY_RATIO_MAX: f64 = 0.05;
const BUSY_MEAN_MAX: f64 = 0.10;

const EXAMPLES: &str = "\
Examples:
  # Each state of one CPU of each kind, as a machine file that replay and the others take
  sudo idlewise measure states -o my-machine.toml
  idlewise replay LOG --machine ./my-machine.toml

  # What would be done, without doing it
  idlewise measure states --dry-run

  # One state of one CPU; as many wakes as an interval of the 99.99th percentile needs
  sudo idlewise measure states --source 0 --target 2 --state C6 --count 50000

  # Without system calls and the scheduler in the wakes
  sudo modprobe idlewise_bench
  sudo idlewise measure states --by ipi

  # Before and after a change of firmware or kernel
  sudo idlewise measure states --json > before.json
  idlewise lab compare before.json after.json

A CPU is held in one state by disabling its others in sysfs, and those of its SMT siblings. They \
are put back at the end, whatever ends it, SIGKILL included; `idlewise set status` shows them \
meanwhile. Another CPU wakes it at random distances: a thread there by a futex or, where the \
kernel module idlewise_bench is loaded, the CPU itself by an IPI (--by). The kernel's counts say \
which states the CPU left; wakes out of others do not count, nor do those that firmware \
interrupted (SMIs, if /dev/cpu/N/msr can be read) or that the waker launched late.

The same wake of the CPU while it polls is subtracted. The waker is awake, so states of its \
package are not in the figures: name a --target in another package for these.

Exit status: 0; 1 if no wake can be used; 130 if a signal ended it; 2 if nothing could be \
measured.";

/// What wakes CPUs.
#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    /// IPIs where the kernel module idlewise_bench is loaded, otherwise futexes
    Auto,
    /// A futex, which wakes a thread there
    Futex,
    /// Function call IPIs by the kernel module idlewise_bench, without system calls and the scheduler
    Ipi,
}

impl By {
    fn wish(self) -> Option<WakeBy> {
        match self {
            By::Auto => None,
            By::Futex => Some(WakeBy::Futex),
            By::Ipi => Some(WakeBy::Ipi),
        }
    }
}

/// Measure how long leaving each idle state takes, without special hardware
///
/// Prints percentiles beside the exit latency in the kernel's table, with 95 % intervals, and what differs
/// from that table; on Intel also the boot parameter that corrects it. With -o, writes a machine file whose
/// exit latencies are measured. Needs root, and an idle machine.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct States {
    /// Write a machine file; a machine with several kinds of CPUs gets one for each (FILE-cpuN.toml)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The CPU that wakes [default: the first one that this process may run on]
    #[arg(long, value_name = "CPU")]
    source: Option<u16>,

    /// The CPUs to hold in states [default: one of each kind, of another core than the source]
    #[arg(long, value_name = "CPU", value_delimiter = ',')]
    target: Vec<u16>,

    /// Wakes of each CPU out of each state; p99.99 needs 5,000
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    count: u64,

    /// What wakes the CPU
    #[arg(long, value_enum, default_value_t = By::Auto)]
    by: By,

    /// Measure although the machine is busy, which makes high percentiles too high
    #[arg(long)]
    busy: bool,

    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    forced: ForcedArguments,
}

impl States {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let (root, form) = (self.forced.root()?, self.forced.form());
        let wishes = StatesWishes {
            source: self.source,
            targets: self.target.clone(),
            states: self.forced.forced_states()?,
            wake_count: self.count,
            by: self.by.wish(),
        };
        let plan = StatesPlan::new(&root, &wishes).map_err(Failure::new)?;
        if self.dry_run {
            return print_plan(&plan, form.json);
        }
        let outputs = self.outputs(&plan)?;
        plan.check_writable(&root).map_err(Failure::new)?;
        let mut signals = Signals::catch()?;
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "what leaving a state takes");
        notes.basis(Basis::Calibrated, "the table's exit latencies, which the driver declares");
        for doubt in &plan.doubts {
            notes.doubt(doubt);
        }
        self.check_busy(&root, &plan, &mut signals, &mut notes)?;
        let bar = Progress::wakes("measuring", plan.total_wake_count());
        let watch = Follow::new(bar, signals);
        if watch.is_stopped() {
            say("idlewise: stopped before anything was changed");
            return Ok(ExitCode::from(STATUS_STOPPED));
        }
        let mut futexes = Futexes { is_realtime: true };
        let outcome = measure_states(&root, &plan, &owner("states"), &mut futexes, &watch);
        watch.bar.finish();
        let measured = match outcome {
            Err(StatesError::Ipi(error @ IpiError::Stopped)) => {
                say(format_args!("idlewise: {error}"));
                return Ok(ExitCode::from(STATUS_STOPPED));
            }
            outcome => outcome.map_err(Failure::new)?,
        };
        if !futexes.is_realtime {
            notes.doubt("the woken thread has no real-time priority, which only root may give: others delay it");
        }
        let result = Measured::new(&root, &plan, measured, &mut notes);
        let written =
            outputs.into_iter().zip(&result.machines).try_for_each(|(output, machine)| {
                let path = output.path().to_owned();
                let text = machine.file_text().map_err(|error| error.within(&path))?;
                output::write(output, text)
            });
        form.print(
            &notes,
            &|title| measure_states_table(title, &result.figures),
            || result.document(&root, &plan, &notes),
            |out, style| result.write_text(out, style, &plan, &self.paths(&plan)),
        )?;
        written?;
        if result.figures.iter().all(|figures| figures.wake_count == 0) {
            say(
                "idlewise: no wake can be used, so nothing was measured; stop what keeps the CPUs busy",
            );
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The file of each kind of CPU.
    fn paths(&self, plan: &StatesPlan) -> Vec<PathBuf> {
        let Some(path) = &self.output else { return Vec::new() };
        let kinds = kinds(plan);
        let name = |nth: usize, cpu: u16| match nth {
            0 => path.clone(),
            _ => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                path.with_file_name(format!("{stem}-cpu{cpu}.toml"))
            }
        };
        kinds
            .iter()
            .enumerate()
            .map(|(nth, targets)| name(nth, plan.targets[targets[0]].cpu))
            .collect()
    }

    fn outputs(&self, plan: &StatesPlan) -> Result<Vec<OutputFile>> {
        self.paths(plan).iter().map(|path| self.forced.create(path)).collect()
    }

    /// Refuses a busy machine, or adds what that does to the result.
    fn check_busy(
        &self,
        root: &Root,
        plan: &StatesPlan,
        signals: &mut Signals,
        notes: &mut Notes,
    ) -> Result<()> {
        let Some(before) = CpuTimes::read(root) else { return Ok(()) };
        signals.wait(WATCH_TIME)?;
        let Some(after) = CpuTimes::read(root) else { return Ok(()) };
        let own =
            [plan.source].into_iter().chain(plan.targets.iter().flat_map(|target| {
                [target.cpu].into_iter().chain(target.siblings.iter().copied())
            }));
        let ratio = |cpu: u16| after.busy_ratio(&before, cpu).unwrap_or(0.0);
        let busiest =
            own.map(|cpu| (ratio(cpu), cpu)).max_by(|one, other| one.0.total_cmp(&other.0));
        let online = root.online_cpus();
        let mean = online.iter().map(|&cpu| ratio(cpu)).sum::<f64>() / online.len().max(1) as f64;
        let found = match busiest {
            Some((ratio, cpu)) if ratio > BUSY_RATIO_MAX => {
                format!("CPU {cpu} was busy for {:.0} % of a second", 100.0 * ratio)
            }
            _ if mean > BUSY_MEAN_MAX => {
                format!("the machine's CPUs were busy for {:.0} % of a second", 100.0 * mean)
            }
            _ => return Ok(()),
        };
        if self.busy {
            notes.doubt(format!(
                "{found} before the measurement: other work delays wakes, so high percentiles are too high"
            ));
            return Ok(());
        }
        Err(Failure::new(format_args!(
            "{found}, and that would be in the figures; stop what runs there (top), name other CPUs by --source and \
             --target, or measure all the same: --busy"
        )))
    }
}

/// System calls.
struct Futexes {
    is_realtime: bool,
}

impl Launcher for Futexes {
    fn launch(
        &mut self,
        request: &LaunchRequest,
        each: &mut (dyn FnMut(Option<LaunchedWake>) + Send),
    ) {
        let between = if request.runs { Between::Runs } else { Between::Idles };
        let mut each =
            |launch: Option<Launch>| {
                each(launch.map(|Launch { latency_ns, send_ns, late_ns, is_woken }| {
                    LaunchedWake { latency_ns, send_ns, late_ns, is_woken }
                }));
            };
        let [source, target] = [request.source, request.target].map(usize::from);
        self.is_realtime &= launches(source, target, between, &request.gaps_ns, &mut each);
    }

    fn timers(&mut self, cpu: u16, count: u64, gap_ns: u64) -> Vec<u64> {
        timer_wakes(usize::from(cpu), count, Duration::from_nanos(gap_ns)).late_ns
    }
}
