//! `idlewise record`: records this machine's idle events as a trace.dat.

mod histogram;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use idlewise_host::states::CpuTimes;
use idlewise_host::{
    IdleCounters, Progress as HostProgress, Recording, RecordingSummary, Root, note,
};
use idlewise_report::{Notes, counted, wrap};
use idlewise_trace::{cause_events, wanted_events};

use crate::error::{Failure, Result};
use crate::input::NamedLog;
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Screen, say};
use crate::signals::Signals;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Record ten seconds, then look at the result
  sudo idlewise record -d 10
  idlewise info trace.dat

  # Record while a workload runs; idlewise exits with its status
  sudo idlewise record -o slow.dat -- ./workload --requests 10000

  # Also record which task wakes which
  sudo idlewise record --causes -o causes.dat -- ./workload --requests 10000

  # Record until ctrl-c and print a line each second
  sudo idlewise record --follow

  # Count for an hour, in a few kB for each CPU; `info` and `advise` read the result
  sudo idlewise record --histogram -d 3600

  # Replay the recording under other governors
  idlewise replay trace.dat --governor menu --governor teo --governor oracle

The result is a trace.dat, which trace-cmd and KernelShark can open; Perfetto can open the text \
that `trace-cmd report` makes from it. It also contains the machine's idle states, HZ, governor, \
CPU model, latency limits and kernel command line; `idlewise log anonymize` removes private \
information. Recording uses a tracing instance of its own and does not disturb other tracers. The \
instance is removed at the end; if the recorder is killed, the next recording removes it.

Exit status: 0 after ctrl-c or without COMMAND; otherwise COMMAND's; 2 if nothing could be recorded.";

/// Record what this machine's CPUs do when they are idle
///
/// Recording stops when COMMAND ends, after SECONDS or on ctrl-c, whichever comes first. If SECONDS
/// pass first, COMMAND continues and idlewise waits for it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Record {
    /// Stop recording after this many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// The file to write [default: trace.dat, or histogram.json with --histogram]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// Let the kernel count idle stays by CPU, state and length instead of recording events: a few kB for each CPU
    /// however long the recording runs
    #[arg(long, conflicts_with_all = ["causes", "follow", "buffer_kb"])]
    histogram: bool,

    /// Also record which task wakes which, how long tasks run and how long interrupts take
    #[arg(long)]
    causes: bool,

    /// Print a line each second: idle entries by state, events, losses
    #[arg(long)]
    follow: bool,

    /// Buffer size for each CPU in KiB [default: 8192, or less on machines with little memory]
    #[arg(short, long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(4..=BUFFER_KB_MAX))]
    buffer_kb: Option<u64>,

    /// Print JSON instead of text when done
    #[arg(long)]
    json: bool,

    /// Run this command while recording
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The trace's name unless the user gives one.
const OUTPUT: &str = "trace.dat";

/// Longer than any machine runs, and far from overflowing times.
const SECONDS_MAX: f64 = 1e9;

/// In less nothing happens.
const SECONDS_MIN: f64 = 0.001;

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        Ok(seconds) if seconds > SECONDS_MAX => Err(format!("give at most {SECONDS_MAX} seconds")),
        _ => Err(format!("give seconds from {SECONDS_MIN}, such as 10 or 0.5")),
    }
}

/// The largest buffer of a CPU: 16 GiB.
const BUFFER_KB_MAX: u64 = 16 << 20;

/// How often to check for errors and report progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// CPUs that were busier than this may have had no idle period at all.
const BUSY_MIN: f64 = 0.99;

/// What ended a recording.
enum End {
    Command(ExitStatus),
    Signal,
    Time,
}

impl Record {
    /// Records, writes the file, and prints what it contains.
    pub fn run(self) -> Result<ExitCode> {
        if self.histogram {
            let path = self.output.as_deref().unwrap_or(Path::new(histogram::OUTPUT));
            return self.run_histogram(path);
        }
        let root = Root::live();
        let words: Vec<_> = crate::program::arguments()
            .into_iter()
            .map(|a| a.to_string_lossy().into_owned())
            .collect();
        let machine = note(&root, words.join(" "));
        let output = output::create_private(
            self.output.as_deref().unwrap_or(Path::new(OUTPUT)),
            self.force,
        )?;
        let report = output::report_of(&output);
        // Catch signals before creating an instance that a signal could leave behind.
        let mut signals = Signals::catch()?;
        let recording = match self.causes {
            true => Recording::start(&root, output, self.buffer_kb, cause_events())
                .map_err(Failure::new)?,
            false => Recording::start(&root, output, self.buffer_kb, wanted_events())
                .map_err(Failure::new)?,
        };
        self.say_begin(&recording);
        let times_before = CpuTimes::read(&root);
        let mut child = self.start_command()?;
        let end = self.watch(&root, &recording, &mut signals, child.as_mut())?;
        recording.stop().map_err(Failure::new)?;
        let times = times_before.zip(CpuTimes::read(&root));
        let bar = Progress::bytes("writing", 0);
        let summary = recording
            .finish(machine, &|done, all| {
                bar.set_length(all);
                bar.set(done);
            })
            .map_err(Failure::new)?;
        bar.finish();
        // The command's status is passed on even if the summary could not be printed.
        let is_busy = times.is_some_and(|(before, after)| {
            let is_busy = |&cpu: &u16| after.busy_ratio(&before, cpu) > Some(BUSY_MIN);
            summary.cpus.iter().all(is_busy)
        });
        let said = self.say_end(report, &summary, is_busy);
        self.end(said, end, child)
    }

    /// Returns the command's status, once it has ended.
    fn end(&self, said: Result<()>, end: End, mut child: Option<Child>) -> Result<ExitCode> {
        let status = match (end, &mut child) {
            (End::Command(status), _) => status,
            (End::Time, Some(child)) => child.wait()?,
            (End::Signal, Some(child)) => {
                // The child received ctrl-c as well, but not a SIGTERM that was sent to us.
                let process = rustix::process::Pid::from_child(child);
                let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
                child.wait()?;
                return said.map(|()| ExitCode::SUCCESS);
            }
            (_, None) => return said.map(|()| ExitCode::SUCCESS),
        };
        said.map(|()| exit_code(status))
    }

    fn start_command(&self) -> Result<Option<Child>> {
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        let child = std::process::Command::new(program).args(arguments).spawn();
        child.map(Some).map_err(|error| {
            Failure::new(format_args!(
                "cannot start {}: {error}; nothing was recorded",
                program.to_string_lossy()
            ))
        })
    }

    /// Waits for the end and reports progress.
    fn watch(
        &self,
        root: &Root,
        recording: &Recording,
        signals: &mut Signals,
        mut child: Option<&mut Child>,
    ) -> Result<End> {
        let spinner = Progress::open_ended();
        let mut follow = self.follow.then(|| Follow::new(root, recording.cpus()));
        let mut look_at = LOOK_EVERY;
        loop {
            if signals.has_ended() {
                return Ok(End::Signal);
            }
            if let Some(child) = &mut child
                && let Some(status) = child.try_wait()?
            {
                return Ok(End::Command(status));
            }
            let elapsed = recording.elapsed();
            let left = self.duration.map_or(Duration::MAX, |all| all.saturating_sub(elapsed));
            if left.is_zero() {
                return Ok(End::Time);
            }
            if elapsed >= look_at {
                look_at = elapsed + LOOK_EVERY;
                let progress = recording.progress().map_err(Failure::new)?;
                match &mut follow {
                    Some(follow) => say(follow.line(elapsed, progress)),
                    None => spinner.say(format!(
                        "{} s, {}",
                        elapsed.as_secs(),
                        amounts(
                            progress.event_count,
                            progress.byte_count,
                            progress.lost_event_count
                        )
                    )),
                }
            }
            signals.wait(left.min(look_at.saturating_sub(elapsed)))?;
        }
    }

    /// How long it takes, in words.
    fn until(&self) -> String {
        match (self.duration, self.command.is_empty()) {
            (Some(duration), _) => format!("for {} s", duration.as_secs_f64()),
            (None, true) => "until ctrl-c".to_owned(),
            (None, false) => "until the command ends".to_owned(),
        }
    }

    fn say_begin(&self, recording: &Recording) {
        let until = self.until();
        say(format_args!(
            "idlewise: recording {} with {} KiB of buffer each, {until}",
            cpus(recording.cpus().len()),
            recording.buffer_kb(),
        ));
        match recording.removed_instance_count() {
            0 => {}
            count => say(format_args!(
                "idlewise: removed {count} tracing instance(s) of a killed recorder"
            )),
        }
    }

    /// Prints text to standard error, apart from the command's own output; JSON to standard output.
    fn say_end(
        &self,
        report: fn() -> Screen,
        summary: &RecordingSummary,
        is_busy: bool,
    ) -> Result<()> {
        if let Some(instance) = &summary.left_instance {
            say(format_args!(
                "idlewise: {} stays, for somebody has it open; it records nothing, and goes with the \
                 next recording, or now: close what reads it, then rmdir it",
                screen::name(instance)
            ));
        }
        if self.json {
            return Ok(report().json(SCHEMA, summary)?);
        }
        let path = screen::name(&summary.output);
        let lost: u64 = summary.lost_event_counts.values().sum();
        let line = format!(
            "{path}: {} of {} in {:.1} s",
            amounts(summary.event_count, summary.byte_count, lost),
            cpus(summary.cpus.len()),
            summary.recorded_ns as f64 / 1e9,
        );
        say(wrap(&line, 100, 2));
        let mut notes = Notes::default();
        if lost > 0 {
            notes.doubt(format!(
                "{} lost, and gaps around that time will be given up; record with larger buffers: \
                 -b {}",
                counted(lost, "event"),
                summary.buffer_kb.saturating_mul(4)
            ));
        }
        write!(screen::stderr(), "{}", notes.to_text(100))?;
        match is_busy.then(|| why_useless(&summary.output)).flatten() {
            Some(why) => say(why),
            None if summary.output.is_file() => {
                let operand = screen::operand(&summary.output);
                say(format_args!("Next: idlewise info {operand}; idlewise replay {operand}"));
            }
            None => {}
        }
        Ok(())
    }
}

/// Says what is wrong with a busy machine's recording, if `info` and `replay` could not use it. It is read for that, so it
/// is asked only of a machine that was hardly idle.
fn why_useless(path: &Path) -> Option<String> {
    let is_file = path.metadata().is_ok_and(|file| file.is_file());
    let opened = is_file.then(|| NamedLog::open(path, Unpacking::default()))?;
    opened.err().map(|failure| failure.text())
}

/// A command's exit status, as a shell reports it.
pub(super) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

fn cpus(count: usize) -> String {
    counted(count, "CPU")
}

fn amounts(event_count: u64, byte_count: u64, lost_count: u64) -> String {
    let lost = if lost_count == 0 { "none".to_owned() } else { lost_count.to_string() };
    format!("{} ({lost} lost), {:.1} MB", counted(event_count, "event"), byte_count as f64 / 1e6)
}

/// The live summary.
struct Follow {
    counters: IdleCounters,
    entry_counts: Vec<u64>,
    at: Instant,
    event_count: u64,
}

impl Follow {
    fn new(root: &Root, cpus: &[u16]) -> Self {
        let counters = IdleCounters::open(root, cpus);
        let entry_counts = counters.entry_counts();
        Follow { counters, entry_counts, at: Instant::now(), event_count: 0 }
    }

    /// What happened since the last line, per second.
    fn line(&mut self, elapsed: Duration, progress: HostProgress) -> String {
        let entry_counts = self.counters.entry_counts();
        let seconds = self.at.elapsed().as_secs_f64().max(1e-3);
        self.at = Instant::now();
        // If a CPU goes offline, its counts are missing.
        let new: Vec<u64> = entry_counts
            .iter()
            .zip(&self.entry_counts)
            .map(|(n, o)| n.saturating_sub(*o))
            .collect();
        self.entry_counts = entry_counts;
        let all: u64 = new.iter().sum();
        let idle = if new.is_empty() {
            "idle entries unknown (no idle driver counts them)".to_owned()
        } else {
            let share = |count: u64| 100.0 * count as f64 / all.max(1) as f64;
            let states = self.counters.names().zip(&new);
            let states = states.map(|(name, &count)| format!("{name} {:.0} %", share(count)));
            let states: Vec<String> = states.collect();
            format!("{:.0} idle entries/s ({})", all as f64 / seconds, states.join(", "))
        };
        let events = progress.event_count.saturating_sub(self.event_count) as f64 / seconds;
        self.event_count = progress.event_count;
        format!(
            "{:5.0} s  {idle}, {events:.0} events/s, {} lost, {:.1} MB",
            elapsed.as_secs_f64(),
            progress.lost_event_count,
            progress.byte_count as f64 / 1e6
        )
    }
}
