//! `idlewise measure counters`: what CPUs, cores and packages do, by counters of the processor and of
//! the kernel.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use idlewise_host::counters::{
    Base, CounterPlan, CounterSpec, FileCounters, FileMeaning, Lack, Meaning, Scope,
};
use idlewise_host::{Root, is_virtual_machine};
use idlewise_probe::{PerfCounter, PerfEvent};
use idlewise_report::compare::Comparison;
use idlewise_report::counted;
use idlewise_report::counters::{
    CounterFigures, CounterLine, each_place, measure_counters_table, over_places,
};
use idlewise_report::saved::{Saved, SeriesUnit};
use idlewise_report::switch::Absent;
use idlewise_report::{Notes, TextStyle, wrap};
use idlewise_sim::Basis;
use serde_json::json;

use super::forced::{SCHEMA, print_csv};
use super::saving::{PROGRAM, Pair, conditions, machine_facts, saved};
use crate::error::{Failure, Result};
use crate::program::today;
use crate::progress::Progress;
use crate::screen;
use crate::signals::Signals;
use crate::sysroot::root;

const EXAMPLES: &str = "\
Examples:
  # What the CPUs do for ten seconds: idle states, interrupts, energy
  sudo idlewise measure counters

  # While a command runs; each CPU and package has a line
  sudo idlewise measure counters --each -- ./workload --requests 10000

  # Does C0.2 save power? Two settings in turns (A B B A ...), and the difference with an interval
  sudo idlewise measure counters -d 60 --ab \\
      'echo 1 > /sys/devices/system/cpu/umwait_control/enable_c02' \\
      'echo 0 > /sys/devices/system/cpu/umwait_control/enable_c02'

  # What this machine counts, and what it lacks; nothing is counted
  idlewise measure counters --list

Counters of the processor need root, or perf_event_paranoid at 0 or below; those of the kernel \
(interrupts, requested idle states) need no rights. What the machine does not count is listed with \
the reason. `idlewise lab compare` compares two saved measurements.

Exit status: COMMAND's, if it ended or outlasted the counting; otherwise 0, or 2 if nothing was \
counted.";

/// Count what CPUs, cores and packages do: idle states, interrupts, energy
///
/// Counts on all CPUs, by perf_event_open: C0.1 and C0.2 (Intel), the idle states that cores and packages
/// were in, TSC, MPERF and APERF, RAPL; and from files: rescheduling, call and timer interrupts, and the
/// idle states that were requested. Prints shares of time, rates and power, as means of slices of time.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Counters {
    /// Stop after this many seconds [default: 10, or 20 with --ab, or when COMMAND ends]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Seconds of a slice; `idlewise lab compare` draws slices for its intervals
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    slice: Duration,

    /// Run two shell commands alternately (A B B A ...), one before each slice, and compare the slices.
    /// A is run last
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    ab: Vec<String>,

    /// Seconds to wait after each command of --ab, before its slice begins
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0.1", requires = "ab")]
    settle: Duration,

    /// A line for each CPU, core and package instead of one for all CPUs
    #[arg(long, conflicts_with = "ab")]
    each: bool,

    /// Only list what is counted here, and what is not
    #[arg(long, conflicts_with_all = ["ab", "each", "duration", "command", "csv"])]
    list: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// Print the table as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Count while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

/// Longer than any machine runs, and far from overflowing times.
const SECONDS_MAX: f64 = 1e9;

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=SECONDS_MAX).contains(&seconds) => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err("give seconds, 0.01 or more, such as 10 or 0.5".to_owned()),
    }
}

const DURATION: Duration = Duration::from_secs(10);
const DURATION_AB: Duration = Duration::from_secs(20);

/// How a count becomes a value.
#[derive(Clone, Copy)]
enum Conversion {
    /// Divided by the growth of another meter.
    ShareOf(usize),
    /// Microseconds, divided by the time that passed.
    ShareOfTime,
    /// Microjoules for each count.
    Energy(f64),
    PerSecond,
    /// Nothing: others are a share of it.
    Unshown,
}

/// Something that grows at a place.
struct Meter {
    counter: String,
    source: String,
    place: String,
    conversion: Conversion,
}

/// Everything that is counted.
struct Meters {
    perf: Vec<PerfCounter>,
    files: FileCounters,
    /// Those of `perf`, then those of `files`.
    meters: Vec<Meter>,
    lacks: Vec<Lack>,
}

/// All numbers at a moment.
struct Snapshot {
    at: Instant,
    counts: Vec<Option<f64>>,
}

impl Meters {
    fn open(root: &Root) -> Self {
        let CounterPlan { specs, mut lacks } = CounterPlan::new(root);
        let (files, more) = FileCounters::open(root);
        lacks.extend(more);
        let (mut perf, mut meters) = (Vec::new(), Vec::new());
        let mut bases: HashMap<(Base, u16), usize> = HashMap::new();
        // Bases first, so that others find them.
        let (first, then): (Vec<_>, Vec<_>) = specs.iter().partition(|spec| spec.is_base.is_some());
        for spec in first.into_iter().chain(then) {
            let event = PerfEvent {
                type_number: spec.type_number,
                config: [spec.event.config, spec.event.config1, spec.event.config2],
            };
            for &cpu in &spec.cpus {
                match PerfCounter::open(event, cpu) {
                    Ok(counter) => {
                        if let Some(base) = spec.is_base {
                            bases.insert((base, cpu), perf.len());
                        }
                        perf.push(counter);
                        meters.push(Meter {
                            counter: spec.counter.clone(),
                            source: spec.source.clone(),
                            place: place(root, spec.scope, cpu),
                            conversion: match spec.meaning {
                                Meaning::Energy(uj) => Conversion::Energy(uj),
                                Meaning::Events => Conversion::PerSecond,
                                Meaning::Cycles => Conversion::Unshown,
                                Meaning::ShareOf(base) => match bases.get(&(base, cpu)) {
                                    Some(&base) => Conversion::ShareOf(base),
                                    None => Conversion::PerSecond,
                                },
                            },
                        });
                    }
                    // What one CPU refuses, others do too.
                    Err(error) => {
                        lacks.push(Lack {
                            counter: spec.counter.clone(),
                            reason: refusal(root, spec, &error),
                        });
                        break;
                    }
                }
            }
        }
        meters.extend(files.meters().iter().map(|meter| Meter {
            counter: meter.counter.clone(),
            source: meter.source.clone(),
            place: format!("CPU {}", meter.cpu),
            conversion: match meter.meaning {
                FileMeaning::Events => Conversion::PerSecond,
                FileMeaning::Microseconds => Conversion::ShareOfTime,
            },
        }));
        Meters { perf, files, meters, lacks }
    }

    fn read(&self) -> Snapshot {
        let at = Instant::now();
        let perf = self.perf.iter().map(|counter| counter.read().ok().flatten());
        let files = self.files.read().into_iter().map(|count| count.map(|count| count as f64));
        Snapshot { at, counts: perf.chain(files).collect() }
    }

    /// The value of each meter between two moments.
    fn values(&self, before: &Snapshot, after: &Snapshot) -> Vec<Option<f64>> {
        let elapsed_s = (after.at - before.at).as_secs_f64().max(1e-9);
        // A counter may be put back to 0, as when a CPU goes offline.
        let grown = |index: usize| {
            Some(after.counts[index]? - before.counts[index]?).filter(|count| *count >= 0.0)
        };
        let value = |(index, meter): (usize, &Meter)| {
            let count = grown(index)?;
            match meter.conversion {
                Conversion::ShareOf(base) => {
                    grown(base).filter(|base| *base > 0.0).map(|base| count / base)
                }
                Conversion::ShareOfTime => Some(count / 1e6 / elapsed_s),
                // A microjoule in a second is a microwatt.
                Conversion::Energy(uj) => Some(count * uj / elapsed_s / 1e3),
                Conversion::PerSecond => Some(count / elapsed_s),
                Conversion::Unshown => None,
            }
        };
        self.meters.iter().enumerate().map(value).collect()
    }

    /// The values of some slices, meter by meter, those of a counter side by side.
    fn figures(&self, slices: &[&Vec<Option<f64>>]) -> Vec<CounterFigures> {
        let mut figures: Vec<CounterFigures> = Vec::new();
        for (index, meter) in self.meters.iter().enumerate() {
            let unit = match meter.conversion {
                Conversion::ShareOf(_) | Conversion::ShareOfTime => SeriesUnit::Ratio,
                Conversion::Energy(_) => SeriesUnit::Milliwatts,
                Conversion::PerSecond => SeriesUnit::PerSecond,
                Conversion::Unshown => continue,
            };
            let one = CounterFigures {
                counter: meter.counter.clone(),
                source: meter.source.clone(),
                place: meter.place.clone(),
                unit,
                slices: slices.iter().map(|slice| slice[index]).collect(),
            };
            let last = figures.iter().rposition(|known| known.counter == one.counter);
            figures.insert(last.map_or(figures.len(), |last| last + 1), one);
        }
        figures
    }
}

fn place(root: &Root, scope: Scope, cpu: u16) -> String {
    let id = |file: &str| root.text(&format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}"));
    match scope {
        Scope::Cpu => format!("CPU {cpu}"),
        Scope::Core => format!("core of CPU {cpu}"),
        Scope::Module => format!("module of CPU {cpu}"),
        Scope::Package => match id("physical_package_id") {
            Some(package) => format!("package {package}"),
            None => format!("package of CPU {cpu}"),
        },
    }
}

/// Why the kernel refused to count.
fn refusal(root: &Root, spec: &CounterSpec, error: &io::Error) -> String {
    let source = &spec.source;
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let level = root.text("proc/sys/kernel/perf_event_paranoid");
            let level = level.map_or(String::new(), |level| format!(" is {level}"));
            format!("{source}: only root may count it (perf_event_paranoid{level})")
        }
        io::ErrorKind::NotFound => format!("{source}: the kernel does not count it here"),
        _ => format!("{source}: {error}"),
    }
}

/// The slices of both settings, or of one.
#[derive(Default)]
struct Slices {
    a: Vec<Vec<Option<f64>>>,
    b: Vec<Vec<Option<f64>>>,
}

impl Counters {
    /// Counts and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        if self.list {
            self.print_list(&root)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut signals = Signals::catch()?;
        let meters = Meters::open(&root);
        if meters.figures(&[]).is_empty() {
            return Err(Failure::new(format_args!(
                "this machine counts nothing of what idle CPUs do; `idlewise measure counters --list` \
                 says why"
            )));
        }
        let mut child = self.start_command()?;
        let (slices, status) = match self.ab.as_slice() {
            [a, b] => (self.count_in_turns(&meters, [a, b], &mut signals)?, None),
            _ => self.count(&meters, &mut signals, child.as_mut())?,
        };
        let printed = self.print(&root, &meters, &slices);
        let status = match (status, &mut child) {
            (Some(status), _) => Some(status),
            (None, Some(child)) if signals.has_ended() => {
                // The child received ctrl-c as well, but not a SIGTERM that was sent to us.
                let process = rustix::process::Pid::from_child(child);
                let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
                child.wait()?;
                None
            }
            (None, Some(child)) => Some(child.wait()?),
            (None, None) => None,
        };
        printed.map(|()| status.map_or(ExitCode::SUCCESS, exit_code))
    }

    fn start_command(&self) -> Result<Option<Child>> {
        let Some((program, arguments)) = self.command.split_first() else { return Ok(None) };
        Command::new(program).args(arguments).spawn().map(Some).map_err(|error| {
            Failure::new(format_args!("cannot start {}: {error}", program.to_string_lossy()))
        })
    }

    /// Counts slices until the time is over, the command has ended, or a signal came.
    fn count(
        &self,
        meters: &Meters,
        signals: &mut Signals,
        mut child: Option<&mut Child>,
    ) -> Result<(Slices, Option<ExitStatus>)> {
        let all = match (self.duration, &child) {
            (Some(duration), _) => duration,
            (None, None) => DURATION,
            (None, Some(_)) => Duration::MAX,
        };
        let bar = Progress::time("counting", all.as_millis().min(u128::from(u32::MAX)) as u64);
        let start = Instant::now();
        let mut slices = Slices::default();
        let mut before = meters.read();
        loop {
            let mut status = None;
            let end = before.at + self.slice.min(all.saturating_sub(before.at - start));
            while Instant::now() < end && status.is_none() && !signals.has_ended() {
                signals.wait(end.saturating_duration_since(Instant::now()))?;
                status = match &mut child {
                    Some(child) => child.try_wait()?,
                    None => None,
                };
            }
            let after = meters.read();
            // What is left of a slice says less than a whole one, unless it is all there is.
            let is_whole = after.at - before.at >= self.slice / 2;
            if is_whole || slices.a.is_empty() {
                slices.a.push(meters.values(&before, &after));
            }
            bar.set((after.at - start).as_millis() as u64);
            let is_over = after.at - start >= all || status.is_some() || signals.has_ended();
            before = after;
            if is_over {
                bar.finish();
                return Ok((slices, status));
            }
        }
    }

    /// Counts slices under two settings that alternate, A B B A. The first is restored at the end.
    fn count_in_turns(
        &self,
        meters: &Meters,
        commands: [&str; 2],
        signals: &mut Signals,
    ) -> Result<Slices> {
        let each = self.slice + self.settle;
        let wished = self.duration.unwrap_or(DURATION_AB).as_secs_f64() / each.as_secs_f64();
        let turn_count = (wished / 4.0).ceil().max(1.0) as u64 * 4;
        let bar = Progress::time("counting", turn_count);
        let mut slices = Slices::default();
        let mut count = || -> Result<()> {
            for turn in 0..turn_count {
                let is_b = matches!(turn % 4, 1 | 2);
                set(commands[usize::from(is_b)])?;
                wait(signals, self.settle)?;
                let before = meters.read();
                wait(signals, self.slice)?;
                if signals.has_ended() {
                    return Ok(());
                }
                let values = meters.values(&before, &meters.read());
                if is_b {
                    slices.b.push(values)
                } else {
                    slices.a.push(values)
                }
                bar.add(1);
            }
            Ok(())
        };
        let outcome = count();
        bar.finish();
        let restored = set(commands[0]);
        outcome.and(restored)?;
        // Of a turn that a signal cut, only the other half is there.
        let pair_count = slices.a.len().min(slices.b.len());
        slices.a.truncate(pair_count);
        slices.b.truncate(pair_count);
        match pair_count {
            0 => Err(Failure::new("stopped before both settings were counted")),
            _ => Ok(slices),
        }
    }

    fn print(&self, root: &Root, meters: &Meters, slices: &Slices) -> Result<()> {
        let mut notes = Notes::default();
        notes.basis(Basis::Measured, "shares, rates and powers");
        if is_virtual_machine(root) {
            notes.doubt(
                "this is a virtual machine: interrupts are those of the guest, and requested idle states \
                 are not the processor's",
            );
        }
        let figures =
            |slices: &[Vec<Option<f64>>]| meters.figures(&slices.iter().collect::<Vec<_>>());
        let lacks = absent(&meters.lacks);
        let (a, b) = (figures(&slices.a), figures(&slices.b));
        let (a, b) = (over_places(&a), over_places(&b));
        if !self.ab.is_empty() {
            return self.print_ab(root, [&a, &b], &lacks, &notes);
        }
        let each = each_place(&figures(&slices.a));
        let shown: &[CounterLine] = if self.each { &each } else { &a };
        let style = TextStyle::for_stdout();
        if self.json {
            let document = json!({
                "slice_s": self.slice.as_secs_f64(),
                "slice_count": slices.a.len(),
                "is_virtual_machine": is_virtual_machine(root),
                "all": measure_counters_table("", &a),
                "each": measure_counters_table("", &each),
                "absent": lacks,
            });
            let series = a.iter().map(|line| line.series(""));
            let document = saved("counters", &facts(root), series, &notes, document);
            screen::stdout().json(SCHEMA, &document)?;
        } else if self.csv {
            print_csv(&measure_counters_table("", shown), &notes)?;
        } else {
            let title = format!(
                "Counters, mean of {} of {} s, measured",
                counted(slices.a.len(), "slice"),
                self.slice.as_secs_f64()
            );
            let mut out = screen::stdout();
            let table = measure_counters_table(&title, shown).without(&["source"]);
            write!(out, "{}", table.to_text(&style))?;
            write!(out, "{}", lacks_text(&lacks, style.width))?;
            write!(out, "{}", notes.to_text(style.width))?;
        }
        Ok(())
    }

    fn print_ab(
        &self,
        root: &Root,
        lines: [&[CounterLine]; 2],
        lacks: &[Absent],
        notes: &Notes,
    ) -> Result<()> {
        let setting = |index: usize| ["A", "B"][index];
        let of = |index: usize| Saved {
            measurement: "counters".to_owned(),
            program: PROGRAM.to_owned(),
            date: today(),
            machine: facts(root),
            series: lines[index].iter().map(|line| line.series(setting(index))).collect(),
            doubt_count: 0,
            run_count: 1,
            conditions: vec![conditions()],
            doubts: Vec::new(),
        };
        let comparison = Comparison::in_turns(&of(0), &of(1)).map_err(Failure::new)?;
        let mut notes = notes.clone();
        for (doubt, _) in comparison.notes().doubts() {
            notes.doubt(doubt);
        }
        if self.json {
            let document = json!({
                "slice_s": self.slice.as_secs_f64(),
                "is_virtual_machine": is_virtual_machine(root),
                "a": self.ab[0],
                "b": self.ab[1],
                "lines": comparison.table(""),
                "absent": lacks,
            });
            let series = [of(0), of(1)].into_iter().flat_map(|one| one.series);
            let document = saved("counters", &facts(root), series, &notes, document);
            screen::stdout().json(SCHEMA, &document)?;
        } else if self.csv {
            print_csv(&comparison.table(""), &notes)?;
        } else {
            let style = TextStyle::for_stdout();
            let mut out = screen::stdout();
            for (index, command) in self.ab.iter().enumerate() {
                writeln!(
                    out,
                    "{}",
                    wrap(&format!("{}: {command}", setting(index)), style.width, 3)
                )?;
            }
            let title = "In turns A B B A, means and the change from A to B";
            write!(out, "{}", comparison.turns_text(title, &style))?;
            write!(out, "{}", lacks_text(lacks, style.width))?;
            write!(out, "{}", notes.to_text(style.width))?;
        }
        Ok(())
    }

    fn print_list(&self, root: &Root) -> io::Result<()> {
        let CounterPlan { specs, mut lacks } = CounterPlan::new(root);
        let (files, more) = FileCounters::open(root);
        lacks.extend(more);
        let mut counted: Vec<(String, String, usize)> =
            specs.iter().map(|s| (s.counter.clone(), s.source.clone(), s.cpus.len())).collect();
        for meter in files.meters() {
            match counted.iter_mut().find(|(name, ..)| *name == meter.counter) {
                Some((.., count)) => *count += 1,
                None => counted.push((meter.counter.clone(), meter.source.clone(), 1)),
            }
        }
        let lacks = absent(&lacks);
        let mut out = screen::stdout();
        if self.json {
            let counted = counted.iter().map(|(counter, source, count)| {
                json!({ "counter": counter, "source": source, "place_count": count })
            });
            let document = json!({
                "counted": counted.collect::<Vec<_>>(),
                "absent": lacks,
            });
            return out.json(SCHEMA, &document);
        }
        let style = TextStyle::for_stdout();
        let width = counted.iter().map(|(counter, ..)| counter.len()).max().unwrap_or(0);
        for (counter, source, count) in &counted {
            writeln!(out, "{counter:width$}  at {count:3} places  {source}")?;
        }
        write!(out, "{}", lacks_text(&lacks, style.width))
    }
}

fn facts(root: &Root) -> Vec<idlewise_report::saved::MachineFact> {
    let cpu = root.online_cpus().first().copied().unwrap_or_default();
    machine_facts(root, Pair { waker_cpu: cpu, waiter_cpu: cpu })
}

fn absent(lacks: &[Lack]) -> Vec<Absent> {
    let one =
        |Lack { counter, reason }: &Lack| Absent { what: counter.clone(), reason: reason.clone() };
    lacks.iter().map(one).collect()
}

fn lacks_text(lacks: &[Absent], width: usize) -> String {
    if lacks.is_empty() {
        return String::new();
    }
    let lines =
        lacks.iter().map(|one| wrap(&format!("- {}: {}", one.what, one.reason), width, 2) + "\n");
    "Not counted here:\n".to_owned() + &lines.collect::<String>()
}

/// Runs a command of `--ab`.
fn set(command: &str) -> Result<()> {
    let status = Command::new("sh").args(["-c", command]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format_args!("--ab: '{command}' failed ({status})"))),
        Err(error) => Err(Failure::new(format_args!("--ab: sh: {error}"))),
    }
}

/// Waits for this long, or until a signal came.
fn wait(signals: &mut Signals, duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    while Instant::now() < end && !signals.has_ended() {
        signals.wait(end.saturating_duration_since(Instant::now()))?;
    }
    Ok(())
}

/// A command's exit status, as a shell reports it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
