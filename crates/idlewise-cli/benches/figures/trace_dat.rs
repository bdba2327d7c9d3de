//! Importing trace.dat: speed compared with `trace-cmd report`, and memory.
//!
//! Long files are made from a short one by repeating its pages at later times. It handles only what
//! that file needs: a little-endian trace.dat of version 6 with pages of 4 KiB. Expiry times in the
//! records are shifted too; otherwise timers would expire before they were armed.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::figure::{Figure, Goal, median, median_ratio, print, time};
use crate::import::{import, unpacked};
use crate::perf_data::{
    FieldUnit, Moved, TICK_NS, TIME_FIELDS, add_at, field_offset, find, u16_at, u32_at, u64_at,
};

/// The recording from which long ones are made.
const SOURCE: &str = "k-pingpong-v6.trace.dat";
const THROUGHPUT_BYTE_COUNT: u64 = 100_000_000;
const MEMORY_BYTE_COUNT: u64 = 1_000_000_000;
const ROUND_COUNT: usize = 3;

const PAGE_BYTE_COUNT: usize = 4096;
const CPU_COUNT: usize = 2;
/// A page's header: its time and the length of its records.
const PAGE_HEADER_BYTE_COUNT: usize = 16;
const COMMIT_MASK: u64 = (1 << 27) - 1;

/// Times the import and `trace-cmd report` in turns, then a file ten times as long.
pub fn run() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("long.trace.dat");
    let recording = Recording::parse(unpacked(SOURCE)?)?;
    let megabytes = recording.write_long(&path, THROUGHPUT_BYTE_COUNT)? as f64 / 1e6;
    let has_trace_cmd = report(&path).unwrap_or(false);
    let mut seconds: [Vec<f64>; 2] = Default::default();
    let [imports, reports] = &mut seconds;
    let (mut event_count, mut peak_byte_count) = (String::new(), 0);
    for _ in 0..ROUND_COUNT {
        let run = import(&path, folder.path())?;
        imports.push(run.seconds);
        (event_count, peak_byte_count) = (run.event_count, run.peak_byte_count);
        if has_trace_cmd {
            let (report, status) = time(|| report(&path));
            if !status? {
                return Err("`trace-cmd report` failed on the file it has read before".into());
            }
            reports.push(report.as_secs_f64());
        }
    }
    let rate = |seconds: &[f64]| megabytes / median(seconds.iter().copied());
    let figure = |what: String, unit, measured, goal| Figure { what, unit, measured, goal };
    let mut figures = vec![
        figure(
            "`idlewise log import`, the whole process".into(),
            "MB/s",
            rate(imports),
            Goal::None,
        ),
        figure("  its peak memory".into(), "MB", peak_byte_count as f64 / 1e6, Goal::None),
    ];
    if has_trace_cmd {
        let name = "`trace-cmd report > /dev/null`";
        figures.push(figure(name.into(), "MB/s", rate(reports), Goal::None));
        let ratio = median_ratio(reports, imports);
        figures.push(figure("import / trace-cmd".into(), "×", ratio, Goal::AtLeast(15.0)));
    }
    let large = recording.write_long(&path, MEMORY_BYTE_COUNT)? as f64 / 1e6;
    let run = import(&path, folder.path())?;
    let peak = run.peak_byte_count as f64 / 1e6;
    figures.push(figure(format!("peak memory, {large:.0} MB"), "MB", peak, Goal::AtMost(300.0)));
    figures.push(figure(
        format!("`idlewise log import`, {large:.0} MB"),
        "MB/s",
        large / run.seconds,
        Goal::None,
    ));
    let title = format!(
        "trace.dat: {megabytes:.0} MB made of {SOURCE}, {event_count} events used, {ROUND_COUNT} \
         rounds in turns"
    );
    print(&title, &figures);
    if !has_trace_cmd {
        println!("SKIPPED: `trace-cmd report`: trace-cmd is not installed (apt-get install");
        println!("         trace-cmd), or it cannot read the file");
    }
    Ok(())
}

fn report(path: &Path) -> io::Result<bool> {
    let mut command = Command::new("trace-cmd");
    command.args(["report", "-i"]).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

/// A recording, parsed for copying.
struct Recording {
    /// Everything before the pages.
    head: Vec<u8>,
    /// The offset of the list of the CPUs' data in it.
    places_at: usize,
    cpus: Vec<CpuPages>,
    /// The offset from one copy to the next, in ticks.
    period_ticks: u64,
}

struct CpuPages {
    pages: Vec<u8>,
    moved: Vec<Moved>,
}

impl Recording {
    fn parse(file: Vec<u8>) -> Result<Self, Box<dyn Error>> {
        let mark = b"flyrecord\0";
        let places_at = find(&file, mark).ok_or("no pages in it")? + mark.len();
        let fields = time_fields(&file);
        let (mut cpus, mut head_end) = (Vec::new(), usize::MAX);
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        for cpu in 0..CPU_COUNT {
            let start = usize::try_from(u64_at(&file, places_at + 16 * cpu)?)?;
            let byte_count = usize::try_from(u64_at(&file, places_at + 16 * cpu + 8)?)?;
            let pages = file.get(start..start + byte_count).ok_or("the file is cut")?.to_vec();
            let mut moved = Vec::new();
            for at in (0..pages.len()).step_by(PAGE_BYTE_COUNT) {
                let at_ns = u64_at(&pages, at)?;
                (first_ns, last_ns) = (first_ns.min(at_ns), last_ns.max(at_ns));
                moved.push(Moved { at, per_tick: TICK_NS });
                let page = &pages[at..at + PAGE_BYTE_COUNT];
                for (record_at, number) in records(page)? {
                    for &(offset, per_tick) in fields.get(&number).into_iter().flatten() {
                        let at = at + record_at + offset;
                        // A timer that never expires is not changed.
                        if u64_at(&pages, at)? < i64::MAX as u64 / 2 {
                            moved.push(Moved { at, per_tick });
                        }
                    }
                }
            }
            head_end = head_end.min(start);
            cpus.push(CpuPages { pages, moved });
        }
        let mut head = file;
        head.truncate(head_end);
        // The last page continues for some time. A few more ticks keep its copy behind it.
        let period_ticks = last_ns.checked_sub(first_ns).ok_or("no pages")? / TICK_NS + 20;
        Ok(Recording { head, places_at, cpus, period_ticks })
    }

    /// Writes enough copies for `byte_count_min` bytes. Returns the length of the file.
    fn write_long(&self, path: &Path, byte_count_min: u64) -> Result<u64, Box<dyn Error>> {
        let one: usize = self.cpus.iter().map(|cpu| cpu.pages.len()).sum();
        let copy_count = byte_count_min.div_ceil(one as u64);
        let mut head = self.head.clone();
        let mut at = head.len() as u64;
        for (index, cpu) in self.cpus.iter().enumerate() {
            let byte_count = copy_count * cpu.pages.len() as u64;
            let place = self.places_at + 16 * index;
            head[place..place + 8].copy_from_slice(&at.to_le_bytes());
            head[place + 8..place + 16].copy_from_slice(&byte_count.to_le_bytes());
            at += byte_count;
        }
        let mut output = File::create(path)?;
        output.write_all(&head)?;
        for cpu in &self.cpus {
            let mut copy = cpu.pages.clone();
            for _ in 0..copy_count {
                output.write_all(&copy)?;
                for moved in &cpu.moved {
                    add_at(&mut copy, moved.at, moved.per_tick * self.period_ticks)?;
                }
            }
        }
        Ok(output.metadata()?.len())
    }
}

/// For each event number, the offsets of times in its record, and a tick's length in their unit.
fn time_fields(file: &[u8]) -> HashMap<u16, Vec<(usize, u64)>> {
    let mut fields: HashMap<u16, Vec<(usize, u64)>> = HashMap::new();
    for (event, field, unit) in TIME_FIELDS {
        let head = format!("name: {event}\nID: ");
        let Some(at) = find(file, head.as_bytes()) else { continue };
        let digits = file[at + head.len()..].split(|&byte| byte == b'\n').next();
        let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let Some(number) = number else { continue };
        let per_tick = match unit {
            FieldUnit::Nanoseconds => TICK_NS,
            FieldUnit::Jiffies => 1,
        };
        let offset = field_offset(file, event, number, field);
        let Ok(number) = u16::try_from(number) else { continue };
        fields.entry(number).or_default().extend(offset.map(|offset| (offset, per_tick)));
    }
    fields
}

/// The offset of each record's content in a page, and the number of its event.
fn records(page: &[u8]) -> Result<Vec<(usize, u16)>, Box<dyn Error>> {
    let end = PAGE_HEADER_BYTE_COUNT + (u64_at(page, 8)? & COMMIT_MASK) as usize;
    let (mut records, mut at) = (Vec::new(), PAGE_HEADER_BYTE_COUNT);
    while at < end {
        let word = u32_at(page, at)?;
        at += 4;
        match word & 0x1f {
            0 => {
                records.push((at + 4, u16_at(page, at + 4)?));
                at += u32_at(page, at)?.next_multiple_of(4) as usize;
            }
            29 if word >> 5 == 0 => break,
            29 => at += u32_at(page, at)?.next_multiple_of(4) as usize,
            30 | 31 => at += 4,
            words => {
                records.push((at, u16_at(page, at)?));
                at += words as usize * 4;
            }
        }
    }
    Ok(records)
}
