//! The cost of recording: two workloads, alone and while each recorder records the same events.
//!
//! The recorder runs the workload, which times itself, so set-up and saving are not included. What
//! remains is the cost of the events and of reading the buffers. The events' own cost is also
//! shown: enabled, but never read. No recorder of these events can be cheaper.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use idlewise_host::{Root, Tracefs};
use idlewise_trace::WantedEvent;

use crate::figure::{Figure, Goal, median, median_ratio, print};

const ROUND_COUNT: usize = 9;
/// The goal's rate of idle entries, for both CPUs together.
const ENTRIES_PER_SECOND: f64 = 50_000.0;
const PING_PONG_COUNT: u32 = 25_000;

/// The argument that makes this program a workload when a recorder runs it.
pub const PING_PONG: &str = "--ping-pong";

/// The most that a recorder may cost a workload.
const GOAL: Goal = Goal::AtMost(1.02);
/// The most that recording causes may cost it beyond their events.
const CAUSES_GOAL: Goal = Goal::AtMost(1.03);
/// The most that counting in the kernel may cost it.
const HISTOGRAM_GOAL: Goal = Goal::AtMost(1.005);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Times the workloads without a recorder and with each, in turns.
pub fn run() -> Outcome<()> {
    if let Err(reason) = Tracefs::find(&Root::live()) {
        println!("SKIPPED: record: {reason}");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut recorders = vec![
        Recorder::None,
        Recorder::IdleUnread,
        Recorder::Unread,
        Recorder::Idlewise,
        Recorder::CausesUnread,
        Recorder::Causes,
        Recorder::Histogram,
    ];
    for other in [Recorder::Perf, Recorder::TraceCmd] {
        match other.time(&["true".to_owned()], folder.path()) {
            Ok(_) => recorders.push(other),
            Err(error) => println!("SKIPPED: record: {}: {error}", other.name()),
        }
    }
    let work_count = calibrate()?;
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let ping_pong = [this, PING_PONG.into(), PING_PONG_COUNT.to_string(), work_count.to_string()];
    let entries = 2.0 * f64::from(PING_PONG_COUNT);
    let title = "record: two threads on two CPUs wake each other and work a little";
    compare(title, &ping_pong, Some(entries), &recorders, folder.path())?;
    let hackbench =
        ["perf", "bench", "sched", "messaging", "-g", "5", "-l", "400"].map(str::to_owned);
    if Command::new("perf").args(["bench", "sched", "messaging", "-l", "1"]).output().is_err() {
        println!("SKIPPED: record: hackbench: perf is not installed (apt-get install linux-perf)");
        return Ok(());
    }
    compare(
        "record: hackbench (perf bench sched messaging)",
        &hackbench,
        None,
        &recorders,
        folder.path(),
    )
}

fn compare(
    title: &str,
    workload: &[String],
    idle_entry_count: Option<f64>,
    recorders: &[Recorder],
    folder: &Path,
) -> Outcome<()> {
    let mut seconds: Vec<Vec<f64>> = vec![Vec::new(); recorders.len()];
    // The first round is a warm-up.
    for round in 0..=ROUND_COUNT {
        for (recorder, seconds) in recorders.iter().zip(&mut seconds) {
            let taken = recorder.time(workload, folder)?;
            if round > 0 {
                seconds.push(taken);
            }
        }
    }
    let alone = &seconds[0];
    let mut figures = Vec::new();
    if let Some(count) = idle_entry_count {
        figures.push(Figure {
            what: "idle entries alone".into(),
            unit: "/s",
            measured: count / median(alone.iter().copied()),
            goal: Goal::None,
        });
    }
    for (recorder, seconds) in recorders.iter().zip(&seconds) {
        if let Recorder::None = recorder {
            continue;
        }
        figures.push(Figure {
            what: format!("{} / alone", recorder.name()),
            unit: "×",
            measured: median_ratio(seconds, alone),
            goal: match recorder {
                Recorder::Idlewise => GOAL,
                Recorder::Histogram => HISTOGRAM_GOAL,
                _ => Goal::None,
            },
        });
    }
    let of = |wanted: Recorder| {
        let place = recorders.iter().position(|recorder| *recorder == wanted);
        place.map(|place| seconds[place].as_slice())
    };
    for (with, without, goal) in [
        (Recorder::Causes, Recorder::CausesUnread, CAUSES_GOAL),
        (Recorder::Causes, Recorder::Idlewise, Goal::None),
    ] {
        if let (Some(one), Some(other)) = (of(with), of(without)) {
            figures.push(Figure {
                what: format!("{} / {}", with.name(), without.name()),
                unit: "×",
                measured: median_ratio(one, other),
                goal,
            });
        }
    }
    print(&format!("{title}, {ROUND_COUNT} rounds in turns"), &figures);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorder {
    None,
    /// Only `cpu_idle` is enabled, and the buffers are not read.
    IdleUnread,
    /// All events are enabled, and the buffers are not read.
    Unread,
    Idlewise,
    /// All events of causes are enabled, and the buffers are not read.
    CausesUnread,
    /// `idlewise record --causes`.
    Causes,
    /// `idlewise record --histogram`.
    Histogram,
    Perf,
    TraceCmd,
}

impl Recorder {
    fn name(self) -> &'static str {
        match self {
            Recorder::None => "alone",
            Recorder::IdleUnread => "power:cpu_idle enabled, nobody reads",
            Recorder::Unread => "same events enabled, nobody reads",
            Recorder::Idlewise => "`idlewise record`",
            Recorder::CausesUnread => "events of causes enabled, nobody reads",
            Recorder::Causes => "`idlewise record --causes`",
            Recorder::Histogram => "`idlewise record --histogram`",
            Recorder::Perf => "`perf record`, same events",
            Recorder::TraceCmd => "`trace-cmd record`, same events",
        }
    }

    /// Runs a workload, and returns the time that it reports; 0 if it reports none.
    fn time(self, workload: &[String], folder: &Path) -> Outcome<f64> {
        let output = folder.join("recording");
        let output = output.to_str().ok_or("TMPDIR is no UTF-8")?;
        let events = available(idlewise_trace::wanted_events());
        let mut words: Vec<String> = Vec::new();
        let mut push = |some: &[&str]| words.extend(some.iter().map(|&word| word.to_owned()));
        let _unread = match self {
            Recorder::IdleUnread => {
                Some(Unread::enable(&BTreeMap::from([("power:cpu_idle".to_owned(), None)]))?)
            }
            Recorder::Unread => Some(Unread::enable(&events)?),
            Recorder::CausesUnread => {
                Some(Unread::enable(&available(idlewise_trace::cause_events()))?)
            }
            _ => None,
        };
        match self {
            Recorder::None | Recorder::IdleUnread | Recorder::Unread | Recorder::CausesUnread => {}
            Recorder::Idlewise => {
                push(&[env!("CARGO_BIN_EXE_idlewise"), "record", "--force", "-o", output, "--"]);
            }
            Recorder::Causes => {
                push(&[env!("CARGO_BIN_EXE_idlewise"), "record", "--causes", "--force"]);
                push(&["-o", output, "--"]);
            }
            Recorder::Histogram => {
                push(&[env!("CARGO_BIN_EXE_idlewise"), "record", "--histogram", "--force"]);
                push(&["-o", output, "--"]);
            }
            Recorder::Perf => {
                push(&["perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-m", "2048"]);
                for (event, filter) in &events {
                    push(&["-e", event]);
                    if let Some(filter) = filter {
                        push(&["--filter", filter]);
                    }
                }
                push(&["-o", output, "--"]);
            }
            Recorder::TraceCmd => {
                let script =
                    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plain_function_tracing.sh");
                push(&["unshare", "-m", "sh", script]);
                push(&["trace-cmd", "record", "-q", "-C", "mono", "-b", "8192"]);
                for (event, filter) in &events {
                    push(&["-e", event]);
                    if let Some(filter) = filter {
                        push(&["-f", filter]);
                    }
                }
                push(&["-o", output]);
            }
        }
        words.extend_from_slice(workload);
        let result = Command::new(&words[0]).args(&words[1..]).current_dir(folder).output()?;
        if !result.status.success() {
            let stderr = String::from_utf8_lossy(&result.stderr);
            return Err(stderr.lines().last().unwrap_or("it failed").to_owned().into());
        }
        let _ = fs::remove_file(output);
        Ok(said_seconds(&String::from_utf8_lossy(&result.stdout)))
    }
}

/// A tracefs instance whose buffers are not read. It is removed on drop.
struct Unread {
    folder: PathBuf,
}

impl Unread {
    /// Enables events with their filters, with the same clock and buffers as the recorders'.
    fn enable(events: &BTreeMap<String, Option<&'static str>>) -> Outcome<Self> {
        let name = format!("figures-{}", std::process::id());
        let folder = Path::new("/sys/kernel/tracing/instances").join(name);
        fs::create_dir(&folder)?;
        let unread = Unread { folder };
        let set = |name: &str, value: &str| fs::write(unread.folder.join(name), value);
        set("trace_clock", "mono")?;
        set("buffer_size_kb", "8192")?;
        for (event, filter) in events {
            let event = format!("events/{}", event.replace(':', "/"));
            if let Some(filter) = filter {
                set(&format!("{event}/filter"), filter)?;
            }
            set(&format!("{event}/enable"), "1")?;
        }
        set("tracing_on", "1")?;
        Ok(unread)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// `system:name` and filter of those events that this kernel has.
fn available(wanted: impl Iterator<Item = WantedEvent>) -> BTreeMap<String, Option<&'static str>> {
    let all: Vec<WantedEvent> = wanted.collect();
    let lines = Root::live().text("sys/kernel/tracing/available_events").unwrap_or_default();
    let named = lines.lines().filter_map(|line| {
        let (system, name) = line.split_once(':')?;
        let wanted = all.iter().find(|wanted| wanted.matches(system, name))?;
        Some((line.to_owned(), wanted.filter))
    });
    named.collect()
}

/// Parses `Total time: 0.123 [sec]`, which perf bench and our workload print.
fn said_seconds(text: &str) -> f64 {
    let said = text.lines().find_map(|line| line.trim().strip_prefix("Total time:"));
    said.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Finds out how much work between two wake-ups gives the goal's rate.
fn calibrate() -> Outcome<u32> {
    let mut work_count = 0;
    for _ in 0..8 {
        let taken = (0..3).map(|_| ping_pong(2_000, work_count)).collect::<Result<Vec<_>, _>>()?;
        let taken = median(taken.iter().map(Duration::as_secs_f64));
        let wanted = 2.0 * 2_000.0 / ENTRIES_PER_SECOND;
        // A unit of work takes about a nanosecond. The next round measures the result.
        let missing_ns = (wanted - taken) * 1e9 / (2.0 * 2_000.0);
        work_count = (f64::from(work_count) + missing_ns).max(0.0) as u32;
    }
    Ok(work_count)
}

/// The workload itself: `--ping-pong ROUNDS WORK`.
pub fn run_ping_pong(arguments: &[String]) -> Outcome<()> {
    let number = |index: usize| -> Outcome<u32> {
        Ok(arguments.get(index).ok_or("--ping-pong takes rounds and work")?.parse()?)
    };
    let taken = ping_pong(number(0)?, number(1)?)?;
    println!("Total time: {:.9} [sec]", taken.as_secs_f64());
    Ok(())
}

/// Two threads on two CPUs that wait for each other. Every wait is an idle entry.
fn ping_pong(round_count: u32, work_count: u32) -> Outcome<Duration> {
    let (mut here, mut there) = UnixStream::pair()?;
    let partner = thread::spawn(move || -> std::io::Result<()> {
        pin(1);
        let mut byte = [0];
        for _ in 0..round_count {
            there.read_exact(&mut byte)?;
            work(work_count);
            there.write_all(&byte)?;
        }
        Ok(())
    });
    pin(0);
    let mut byte = [0];
    let start = Instant::now();
    for _ in 0..round_count {
        work(work_count);
        here.write_all(&byte)?;
        here.read_exact(&mut byte)?;
    }
    let taken = start.elapsed();
    partner.join().map_err(|_| "the other thread panicked")??;
    Ok(taken)
}

fn work(count: u32) {
    for i in 0..count {
        std::hint::black_box(i);
    }
}

/// Pins the thread to a CPU.
fn pin(cpu: usize) {
    // SAFETY: all of `cpu_set_t` is plain numbers, for which zeros are valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is a live local and the CPU is within its size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is to a live local of the size given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
}
