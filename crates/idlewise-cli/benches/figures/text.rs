//! Makes long ftrace texts from a short one by repeating its lines at later times, including
//! expiries, and measures how fast they are imported.

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use liblzma::read::XzDecoder;

use crate::figure::{Figure, Goal, median, print};
use crate::import::import;
use crate::traces;

const SOURCES: [&str; 2] = ["l-pingpong.tracefs", "k-pingpong-v7.trace-cmd-report"];
const BYTE_COUNT_MIN: usize = 200_000_000;
const ROUND_COUNT: usize = 5;

/// The offset between copies: more than the source's length, and whole ticks.
const STEP_S: u64 = 2;
const STEP_NS: u64 = STEP_S * 1_000_000_000;
const STEP_JIFFIES: u64 = STEP_S * 250;

/// Values from here on are times in nanoseconds; smaller ones are jiffies.
const NANOSECONDS_MIN: u64 = 1 << 36;

/// Times the import of both dialects, on one core.
pub fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut figures = Vec::new();
    for name in SOURCES {
        let path = folder.path().join("long.txt");
        let megabytes = write_long(name, &path)? as f64 / 1e6;
        let mut seconds = Vec::new();
        let mut peak_byte_count = 0;
        for _ in 0..ROUND_COUNT {
            let run = import(&path, folder.path())?;
            seconds.push(run.seconds);
            peak_byte_count = peak_byte_count.max(run.peak_byte_count);
        }
        figures.push(Figure {
            what: format!("`idlewise log import`, {megabytes:.0} MB of {name}"),
            unit: "MB/s",
            measured: megabytes / median(seconds.iter().copied()),
            goal: Goal::AtLeast(150.0),
        });
        figures.push(Figure {
            what: format!("peak memory, {name}"),
            unit: "MB",
            measured: peak_byte_count as f64 / 1e6,
            goal: Goal::AtMost(100.0),
        });
    }
    // The text importer uses a single thread.
    print(&format!("text: importing ftrace's text, on one core, {ROUND_COUNT} rounds"), &figures);
    Ok(())
}

fn write_long(name: &str, path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut text = String::new();
    let packed = File::open(traces().join(format!("{name}.txt.xz")))?;
    XzDecoder::new(packed).read_to_string(&mut text)?;
    let mut output = BufWriter::new(File::create(path)?);
    let mut copy = String::new();
    let mut byte_count = 0;
    for copy_number in 0.. {
        copy.clear();
        for line in text.lines().filter(|line| copy_number == 0 || line.starts_with(' ')) {
            move_line(line, copy_number, &mut copy).ok_or("a line without a time")?;
        }
        output.write_all(copy.as_bytes())?;
        byte_count += copy.len();
        if byte_count >= BYTE_COUNT_MIN {
            break;
        }
    }
    output.into_inner()?.sync_all()?;
    Ok(byte_count as u64)
}

/// Appends a line with its times shifted. Header lines have none.
fn move_line(line: &str, copy_number: u64, to: &mut String) -> Option<()> {
    use std::fmt::Write;
    if copy_number > 0 {
        let (head, body) = line.split_once(": ")?;
        let (before, time) = head.rsplit_once(' ')?;
        let (seconds, fraction) = time.split_once('.')?;
        let seconds = seconds.parse::<u64>().ok()? + copy_number * STEP_S;
        write!(to, "{before} {seconds}.{fraction}:").ok()?;
        for word in body.split(' ') {
            let moved = word.split_once('=').and_then(|(key, value)| {
                let is_time = ["now", "expires", "softexpires", "bucket_expiry", "baseclk"];
                let value = value.parse::<u64>().ok().filter(|_| is_time.contains(&key))?;
                let step = if value < NANOSECONDS_MIN { STEP_JIFFIES } else { STEP_NS };
                Some((key, value + copy_number * step))
            });
            match moved {
                Some((key, value)) => write!(to, " {key}={value}").ok()?,
                None => write!(to, " {word}").ok()?,
            }
        }
    } else {
        to.push_str(line);
    }
    to.push('\n');
    Some(())
}
