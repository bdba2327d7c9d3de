//! Makes long recordings from a short one, by repeating its records at later times.
//!
//! It handles only what such a file needs: little-endian perf.data in file mode, whose samples all
//! begin in the same way (id, IP, PID and TID, time, CPU, period, then raw data). The first copy
//! has every record. Later ones have only samples and ends of rounds, since processes start only
//! once. Expiry times in the raw data move too, or timers would expire before they were armed.

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

// Offsets in the file header and in an attribute (tools/perf/util/header.h,
// include/uapi/linux/perf_event.h).
const ATTR_BYTE_COUNT_AT: usize = 16;
const ATTRS_SECTION_AT: usize = 24;
const DATA_SECTION_AT: usize = 40;
const FEATURES_AT: usize = 72;
const FEATURE_WORD_COUNT: usize = 4;
const SECTION_BYTE_COUNT: usize = 16;
const CONFIG_AT: usize = 8;
const SAMPLE_TYPE_AT: usize = 24;

/// IP, TID, TIME and IDENTIFIER. They put the time of every sample at the same offset.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 16;
const SAMPLE_RAW: u64 = 1 << 10;
/// With CPU and PERIOD as well, the raw data is at the same offset too.
const SAMPLE_TYPE_OF_RAW: u64 = SAMPLE_TYPE | 1 << 7 | 1 << 8 | SAMPLE_RAW;

// Records, and offsets in a sample, including its header.
const SAMPLE: u32 = 9;
const FINISHED_ROUND: u32 = 68;
const RECORD_HEADER_BYTE_COUNT: usize = 8;
const ID_AT: usize = 8;
const TIME_AT: usize = 32;
const RAW_AT: usize = 60;

/// The tick of our recordings; copies are whole ticks apart, so that they share its grid.
pub const TICK_NS: u64 = 4_000_000;

#[derive(Clone, Copy)]
pub enum FieldUnit {
    Nanoseconds,
    Jiffies,
}

/// Times in the raw data of timer tracepoints. Formats may lack these fields.
pub const TIME_FIELDS: [(&str, &str, FieldUnit); 8] = [
    ("hrtimer_start", "expires", FieldUnit::Nanoseconds),
    ("hrtimer_start", "softexpires", FieldUnit::Nanoseconds),
    ("hrtimer_expire_entry", "now", FieldUnit::Nanoseconds),
    ("timer_start", "expires", FieldUnit::Jiffies),
    ("timer_start", "bucket_expiry", FieldUnit::Jiffies),
    ("timer_start", "now", FieldUnit::Jiffies),
    ("timer_expire_entry", "now", FieldUnit::Jiffies),
    ("timer_expire_entry", "baseclk", FieldUnit::Jiffies),
];

/// A number to be shifted: its offset in the copied records, and the length of a tick in its unit.
pub struct Moved {
    pub at: usize,
    pub per_tick: u64,
}

/// A recording, parsed for copying.
pub struct Recording {
    /// Everything before the records.
    head: Vec<u8>,
    records: Vec<u8>,
    /// Only samples and ends of rounds.
    repeated: Vec<u8>,
    moved: Vec<Moved>,
    /// The table of features and the data it points to.
    tail: Vec<u8>,
    feature_count: usize,
    /// The offset from one copy to the next, in ticks.
    period_ticks: u64,
}

impl Recording {
    /// Parses a perf.data file.
    pub fn parse(file: &[u8]) -> Result<Self, Box<dyn Error>> {
        if !file.starts_with(b"PERFILE2") {
            return Err("not a little-endian perf.data file".into());
        }
        let data_start = usize_at(file, DATA_SECTION_AT)?;
        let data_end = data_start + usize_at(file, DATA_SECTION_AT + 8)?;
        let records = file.get(data_start..data_end).ok_or("records outside of the file")?;
        let tail = file.get(data_end..).unwrap_or_default().to_vec();
        let features = (0..FEATURE_WORD_COUNT).map(|i| u64_at(file, FEATURES_AT + 8 * i));
        let feature_count =
            features.map(|word| word.map(u64::count_ones)).sum::<Result<u32, _>>()?;
        let time_fields = time_fields(file, &tail)?;

        let mut repeated = Vec::with_capacity(records.len());
        let mut moved = Vec::new();
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        let mut at = 0;
        while at < records.len() {
            let kind = u32_at(records, at)?;
            let byte_count = usize::from(u16_at(records, at + 6)?);
            let record = records.get(at..at + byte_count).ok_or("a record is cut")?;
            if byte_count < RECORD_HEADER_BYTE_COUNT {
                return Err("a record without a header".into());
            }
            at += byte_count;
            if kind == SAMPLE {
                let at_ns = u64_at(record, TIME_AT)?;
                (first_ns, last_ns) = (first_ns.min(at_ns), last_ns.max(at_ns));
                moved.push(Moved { at: repeated.len() + TIME_AT, per_tick: TICK_NS });
                let fields = time_fields.get(&u64_at(record, ID_AT)?).into_iter().flatten();
                for &(offset, per_tick) in fields {
                    // A timer that never expires is not changed.
                    if u64_at(record, RAW_AT + offset)? < i64::MAX as u64 / 2 {
                        moved.push(Moved { at: repeated.len() + RAW_AT + offset, per_tick });
                    }
                }
            }
            if matches!(kind, SAMPLE | FINISHED_ROUND) {
                repeated.extend_from_slice(record);
            }
        }
        let span_ns = last_ns.checked_sub(first_ns).ok_or("no samples")?;
        Ok(Recording {
            head: file[..data_start].to_vec(),
            records: records.to_vec(),
            repeated,
            moved,
            tail,
            feature_count: feature_count as usize,
            period_ticks: span_ns / TICK_NS + 1,
        })
    }

    /// Writes enough copies for `byte_count_min` bytes. Returns the length of the file.
    pub fn write_long(&self, path: &Path, byte_count_min: u64) -> Result<u64, Box<dyn Error>> {
        let first = (self.head.len() + self.records.len() + self.tail.len()) as u64;
        let missing = byte_count_min.saturating_sub(first);
        let copy_count = missing.div_ceil(self.repeated.len() as u64);
        let added = copy_count * self.repeated.len() as u64;

        let mut head = self.head.clone();
        add_at(&mut head, DATA_SECTION_AT + 8, added)?;
        let mut tail = self.tail.clone();
        for index in 0..self.feature_count {
            add_at(&mut tail, index * SECTION_BYTE_COUNT, added)?;
        }
        let mut output = File::create(path)?;
        output.write_all(&head)?;
        output.write_all(&self.records)?;
        let mut copy = self.repeated.clone();
        for _ in 0..copy_count {
            for moved in &self.moved {
                add_at(&mut copy, moved.at, moved.per_tick * self.period_ticks)?;
            }
            output.write_all(&copy)?;
        }
        output.write_all(&tail)?;
        Ok(output.metadata()?.len())
    }
}

/// For each event id, the offsets of times in its raw data, and the length of a tick in their unit.
type TimeFields = HashMap<u64, Vec<(usize, u64)>>;

/// Finds the time fields of a file whose formats are in `tail`.
fn time_fields(file: &[u8], tail: &[u8]) -> Result<TimeFields, Box<dyn Error>> {
    let attr_byte_count = usize_at(file, ATTR_BYTE_COUNT_AT)?;
    let attrs_start = usize_at(file, ATTRS_SECTION_AT)?;
    let attrs_byte_count = usize_at(file, ATTRS_SECTION_AT + 8)?;
    let mut fields = HashMap::new();
    for attr_start in (attrs_start..attrs_start + attrs_byte_count).step_by(attr_byte_count) {
        let sample_type = u64_at(file, attr_start + SAMPLE_TYPE_AT)?;
        let wanted = match sample_type & SAMPLE_RAW {
            0 => sample_type | SAMPLE_TYPE,
            _ => SAMPLE_TYPE_OF_RAW,
        };
        if sample_type != wanted {
            return Err(format!("samples of another shape: sample_type {sample_type:#x}").into());
        }
        let tracepoint_id = u64_at(file, attr_start + CONFIG_AT)?;
        let ids_section_at = attr_start + attr_byte_count - SECTION_BYTE_COUNT;
        let ids_start = usize_at(file, ids_section_at)?;
        let ids_byte_count = usize_at(file, ids_section_at + 8)?;
        let of_event: Vec<(usize, u64)> = TIME_FIELDS
            .iter()
            .filter_map(|&(event, field, unit)| {
                let offset = field_offset(tail, event, tracepoint_id, field)?;
                let per_tick = match unit {
                    FieldUnit::Nanoseconds => TICK_NS,
                    FieldUnit::Jiffies => 1,
                };
                Some((offset, per_tick))
            })
            .collect();
        for id_at in (ids_start..ids_start + ids_byte_count).step_by(8) {
            fields.insert(u64_at(file, id_at)?, of_event.clone());
        }
    }
    Ok(fields)
}

/// Finds the offset of a field in an event's raw data, using the event's text in `formats`.
pub fn field_offset(formats: &[u8], event: &str, tracepoint_id: u64, field: &str) -> Option<usize> {
    let start = find(formats, format!("name: {event}\nID: {tracepoint_id}\n").as_bytes())?;
    let format = &formats[start..];
    let format = &format[..find(format, b"print fmt:")?];
    let place = find(format, format!(" {field};\toffset:").as_bytes())?;
    let text = format[place..].split(|&byte| byte == b':').nth(1)?;
    let digits = text.split(|&byte| byte == b';').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let found = bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

pub fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

pub fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

pub fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

fn usize_at(bytes: &[u8], at: usize) -> io::Result<usize> {
    usize::try_from(u64_at(bytes, at)?).map_err(io::Error::other)
}

pub fn add_at(bytes: &mut [u8], at: usize, amount: u64) -> io::Result<()> {
    let sum = u64_at(bytes, at)?.wrapping_add(amount);
    bytes[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}
