//! Makes a long Perfetto trace from a short recording by repeating its events at later times,
//! including timers, and measures how fast it is imported.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use idlewise_trace::{Event, EventKind, import};

use crate::figure::{Figure, Goal, median, print};
use crate::import::unpacked;
use crate::perfetto_writer::{file, trace};

const SOURCE: &str = "h-pingpong.perf.data";
const BYTE_COUNT_MIN: u64 = 100_000_000;
const ROUND_COUNT: usize = 5;

/// The offset between copies: more than the source's length, and whole ticks.
const STEP_NS: i64 = 5_000_000_000;
const STEP_JIFFIES: u64 = 1_250;

/// Measures the import's time and memory.
pub fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("long.pftrace");
    let byte_count = write_long(&source_events(folder.path())?, &path)?;
    let mut seconds = Vec::new();
    let (mut peak_byte_count, mut event_count) = (0, String::new());
    for _ in 0..ROUND_COUNT {
        let run = crate::import::import(&path, folder.path())?;
        seconds.push(run.seconds);
        peak_byte_count = peak_byte_count.max(run.peak_byte_count);
        event_count = run.event_count;
    }
    let megabytes = byte_count as f64 / 1e6;
    let figures = [
        Figure {
            what: "`idlewise log import`, the whole process".into(),
            unit: "MB/s",
            measured: megabytes / median(seconds),
            goal: Goal::None,
        },
        Figure {
            what: "  its peak memory".into(),
            unit: "MB",
            measured: peak_byte_count as f64 / 1e6,
            goal: Goal::AtMost(300.0),
        },
    ];
    let title = format!(
        "perfetto: {megabytes:.0} MB made of {SOURCE}, {event_count} events used, {ROUND_COUNT} \
         rounds"
    );
    print(&title, &figures);
    Ok(())
}

fn source_events(folder: &Path) -> Result<Vec<Event>, Box<dyn Error>> {
    let path = folder.join(SOURCE);
    fs::write(&path, unpacked(SOURCE)?)?;
    let mut events = Vec::new();
    import::open(&path)?.read(&|_| {}, &mut |some| events.extend_from_slice(some))?;
    Ok(events)
}

fn write_long(events: &[Event], path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut output = File::create(path)?;
    let mut byte_count = 0;
    for copy_number in 0.. {
        let copy: Vec<Event> = events.iter().map(|event| moved(event, copy_number)).collect();
        let bytes = file(&trace(&copy, 0));
        output.write_all(&bytes)?;
        byte_count += bytes.len() as u64;
        if byte_count >= BYTE_COUNT_MIN {
            break;
        }
    }
    Ok(byte_count)
}

fn moved(event: &Event, copy_number: u32) -> Event {
    let step_ns = STEP_NS * i64::from(copy_number);
    let step_jiffies = STEP_JIFFIES * u64::from(copy_number);
    let mut event = Event { at_ns: event.at_ns + step_ns, ..*event };
    match &mut event.kind {
        EventKind::HrtimerStart { expires_at_ns, .. } => *expires_at_ns += step_ns,
        EventKind::HrtimerExpire { now_ns, .. } => *now_ns += step_ns,
        EventKind::WheelStart { bucket_jiffies, .. } => *bucket_jiffies += step_jiffies,
        EventKind::WheelExpire { now_jiffies, .. } => *now_jiffies += step_jiffies,
        _ => {}
    }
    event
}
