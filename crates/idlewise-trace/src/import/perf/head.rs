//! Reads the metadata that comes before, after or (in pipe mode) among the first records:
//! attributes, event formats, and what perf knew about the machine.
//!
//! perf.data has two forms (tools/perf/Documentation/perf.data-file-format.txt). A file begins with
//! a table of sections. The attributes come before the records, everything else (including the
//! event formats) after them, so a file that was cut has no event formats. A pipe
//! (`perf record -o -`) sends the same information as special records, which come first.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use super::SeekRead;
use super::sample::{Attr, SAMPLE_CPU, SAMPLE_RAW, SAMPLE_TIME};
use super::walk::{
    AUXTRACE, COMPRESSED, COMPRESSED2, FINISHED_ROUND, FIRST_USER_RECORD, HEADER_ATTR,
    HEADER_FEATURE, HEADER_TRACING_DATA, RECORD_HEADER_BYTE_COUNT,
};
use crate::byte_order::ByteOrder;
use crate::event::Tracepoints;
use crate::import::{ImportError, TraceInfo, TracingData, unknown_format};
use crate::tracepoint::{Decoder, Purpose};

pub(super) const MAGIC_LITTLE: &[u8] = b"PERFILE2";
pub(super) const MAGIC_BIG: &[u8] = b"2ELIFREP";

const RECORD_COMMAND: &str =
    "perf record -a -k CLOCK_MONOTONIC -e power:cpu_idle,'timer:*',sched:sched_switch";

const FILE_HEADER_BYTE_COUNT: usize = 104;
const PIPE_HEADER_BYTE_COUNT: usize = 16;
/// `sizeof(struct perf_event_attr)` when it was first published. It has only grown since.
const FIRST_ATTR_BYTE_COUNT: usize = 64;
const SECTION_BYTE_COUNT: usize = 16;

// Bounds on the memory that a malicious file can make us use. Real files stay far below them.
const MAX_ATTR_BYTE_COUNT: usize = 4096;
const MAX_ATTR_COUNT: usize = 1 << 14;
const MAX_ID_COUNT: usize = 1 << 21;
const MAX_TRACING_DATA_BYTE_COUNT: u64 = 32 << 20;
const MAX_FEATURE_BYTE_COUNT: u64 = 1 << 16;

const FEATURE_TRACING_DATA: u64 = 1;
const FEATURE_OSRELEASE: u64 = 4;
const FEATURE_ARCH: u64 = 6;
const FEATURE_NRCPUS: u64 = 7;
const FEATURE_CPUDESC: u64 = 8;
const FEATURE_CPUID: u64 = 9;
const FEATURE_CMDLINE: u64 = 11;
const FEATURE_BIT_COUNT: u64 = 256;

const ATTR_TYPE_TRACEPOINT: u32 = 2;
const ATTR_FLAG_FREQUENCY: u32 = 10;
const ATTR_FLAG_SAMPLE_ID_ALL: u32 = 18;
const ATTR_FLAG_USE_CLOCKID: u32 = 25;

/// Everything that must be known before the first record can be read.
pub(super) struct Head {
    pub(super) order: ByteOrder,
    pub(super) info: TraceInfo,
    pub(super) attrs: Vec<Attr>,
    /// Where the records begin.
    pub(super) data_start: u64,
    /// Where the file says that the records end. A pipe does not say.
    pub(super) data_end: Option<u64>,
    /// Where the file's last section ends, according to the file.
    pub(super) stated_end: u64,
}

impl Head {
    /// Reads a head. If the file was cut or perf was killed, it has no event formats of its own,
    /// and `formats` are used instead.
    pub(super) fn read(
        source: &mut dyn SeekRead,
        formats: Option<TracingData>,
        purpose: Purpose,
    ) -> Result<Self, ImportError> {
        let (mut draft, data_start, data_end) = Draft::read(source)?;
        if let (None, Some(formats)) = (&draft.tracing_data, formats) {
            draft.tracing_data = Some(formats);
            draft.info.has_foreign_formats = true;
        }
        draft.finish(data_start, data_end, purpose)
    }

    /// Reads a head only for its event formats.
    pub(super) fn read_formats(source: &mut dyn SeekRead) -> Result<TracingData, ImportError> {
        let (draft, ..) = Draft::read(source)?;
        draft.into_formats().map(|(formats, _)| formats)
    }
}

/// A head that is being read.
struct Draft {
    order: ByteOrder,
    file_byte_count: u64,
    info: TraceInfo,
    attrs: Vec<Attr>,
    id_count: usize,
    attrs_at_byte: u64,
    tracing_data: Option<TracingData>,
    tracing_data_at_byte: u64,
    stated_end: u64,
}

impl Draft {
    /// Also returns where the records begin and end.
    fn read(source: &mut dyn SeekRead) -> Result<(Self, u64, Option<u64>), ImportError> {
        let file_byte_count = source
            .seek(SeekFrom::End(0))
            .map_err(|source| ImportError::Io { at_byte: 0, source })?;
        let first = read_at(source, 0, FILE_HEADER_BYTE_COUNT as u64)?;
        let order = match first.first_chunk::<8>().map(<[u8; 8]>::as_slice) {
            Some(MAGIC_LITTLE) => ByteOrder::Little,
            Some(MAGIC_BIG) => ByteOrder::Big,
            _ => return Err(unknown_format(&first)),
        };
        let mut draft = Draft {
            order,
            file_byte_count,
            info: TraceInfo { file_byte_count, ..TraceInfo::default() },
            attrs: Vec::new(),
            id_count: 0,
            attrs_at_byte: 0,
            tracing_data: None,
            tracing_data_at_byte: file_byte_count,
            stated_end: 0,
        };
        let header_byte_count = order.u64_at(&first, 8);
        match header_byte_count {
            Some(size) if size == PIPE_HEADER_BYTE_COUNT as u64 => {
                draft.read_pipe(source)?;
                Ok((draft, PIPE_HEADER_BYTE_COUNT as u64, None))
            }
            Some(size) if size == FILE_HEADER_BYTE_COUNT as u64 => {
                let (data_start, data_end) = draft.read_file(source, &first)?;
                Ok((draft, data_start, data_end))
            }
            _ => Err(ImportError::BrokenHeader {
                at_byte: 8,
                found: match header_byte_count {
                    Some(size) => format!("a header of {size} bytes"),
                    None => "the file's end".to_owned(),
                },
                expected: "a header of 104 bytes (a file) or 16 (a pipe)",
            }),
        }
    }

    /// Returns where the records begin and end.
    fn read_file(
        &mut self,
        source: &mut dyn SeekRead,
        header: &[u8],
    ) -> Result<(u64, Option<u64>), ImportError> {
        let word = |index: usize| {
            self.order.u64_at(header, index * 8).ok_or(ImportError::BrokenHeader {
                at_byte: header.len() as u64,
                found: "the file's end".to_owned(),
                expected: "a header of 104 bytes",
            })
        };
        let (attr_byte_count, attrs_start, attrs_byte_count) = (word(2)?, word(3)?, word(4)?);
        let (data_start, data_byte_count) = (word(5)?, word(6)?);
        let features = [word(9)?, word(10)?, word(11)?, word(12)?];
        for (at_byte, start) in [(24, attrs_start), (40, data_start)] {
            if start > self.file_byte_count {
                return Err(ImportError::BrokenHeader {
                    at_byte,
                    found: format!("a section from byte {start} on"),
                    expected: "a place in the file",
                });
            }
        }

        self.read_attr_section(source, attr_byte_count, attrs_start, attrs_byte_count)?;
        let data_end =
            data_start.checked_add(data_byte_count).ok_or(ImportError::BrokenHeader {
                at_byte: 48,
                found: format!("{data_byte_count} bytes of records from byte {data_start}"),
                expected: "a place in the file",
            })?;
        self.stated_end = data_end;
        if data_byte_count == 0 {
            // perf writes the size when it ends. It was killed, so nothing follows the records.
            return Ok((data_start, None));
        }
        let mut section_at = data_end;
        for feature in 0..FEATURE_BIT_COUNT {
            let word = features.get((feature / 64) as usize).copied().unwrap_or(0);
            if word >> (feature % 64) & 1 == 1 {
                self.read_feature_section(source, feature, section_at)?;
                section_at = section_at.saturating_add(SECTION_BYTE_COUNT as u64);
            }
        }
        self.stated_end = self.stated_end.max(section_at);
        Ok((data_start, Some(data_end)))
    }

    fn read_attr_section(
        &mut self,
        source: &mut dyn SeekRead,
        attr_byte_count: u64,
        start: u64,
        byte_count: u64,
    ) -> Result<(), ImportError> {
        self.attrs_at_byte = start;
        let least = FIRST_ATTR_BYTE_COUNT + SECTION_BYTE_COUNT;
        let attr_byte_count = usize::try_from(attr_byte_count)
            .ok()
            .filter(|size| (least..=MAX_ATTR_BYTE_COUNT).contains(size))
            .ok_or_else(|| ImportError::BrokenHeader {
                at_byte: 16,
                found: format!("attributes of {attr_byte_count} bytes"),
                expected: "80 to 4096 bytes",
            })?;
        let wanted_byte_count = byte_count.min((MAX_ATTR_COUNT * attr_byte_count) as u64);
        let section = read_at(source, start, wanted_byte_count)?;
        for (index, attr) in section.chunks_exact(attr_byte_count).enumerate() {
            let at_byte = start + (index * attr_byte_count) as u64;
            let (attr, ids_section) = attr.split_at(attr_byte_count - SECTION_BYTE_COUNT);
            let ids_start = self.order.u64_at(ids_section, 0).unwrap_or(0);
            let ids_byte_count = self.order.u64_at(ids_section, 8).unwrap_or(0);
            let room = (MAX_ID_COUNT - self.id_count) * 8;
            let ids = read_at(source, ids_start, ids_byte_count.min(room as u64))?;
            self.push_attr(at_byte, attr, &ids);
        }
        Ok(())
    }

    fn push_attr(&mut self, at_byte: u64, attr: &[u8], ids: &[u8]) {
        let order = self.order;
        let (
            Some(kind),
            Some(config),
            Some(sample_period),
            Some(sample_type),
            Some(read_format),
            Some(flags),
        ) = (
            order.u32_at(attr, 0),
            order.u64_at(attr, 8),
            order.u64_at(attr, 16),
            order.u64_at(attr, 24),
            order.u64_at(attr, 32),
            order.u64_at(attr, 40),
        )
        else {
            return;
        };
        // The order of bit fields follows the byte order.
        let flags = match order {
            ByteOrder::Little => flags,
            ByteOrder::Big => flags.reverse_bits(),
        };
        let flag = |bit: u32| flags >> bit & 1 == 1;
        if self.info.clock.is_none() {
            let clock_id = order.u32_at(attr, 92).filter(|_| flag(ATTR_FLAG_USE_CLOCKID));
            self.info.clock = Some(clock_name(clock_id.map(|id| id as i32)));
        }
        let ids: Vec<u64> = ids.chunks_exact(8).filter_map(|id| order.u64_at(id, 0)).collect();
        self.id_count += ids.len();
        self.attrs.push(Attr {
            at_byte,
            tracepoint_id: (kind == ATTR_TYPE_TRACEPOINT).then_some(config),
            sample_type,
            read_format,
            has_sample_id_all: flag(ATTR_FLAG_SAMPLE_ID_ALL),
            is_sampled: flag(ATTR_FLAG_FREQUENCY) || sample_period > 1,
            ids,
            decoder: None,
        });
    }

    /// Reads the feature whose section's offset and size are at `section_at`. If it lies past the
    /// end of the file, it is treated as missing.
    fn read_feature_section(
        &mut self,
        source: &mut dyn SeekRead,
        feature: u64,
        section_at: u64,
    ) -> Result<(), ImportError> {
        let section = read_at(source, section_at, SECTION_BYTE_COUNT as u64)?;
        let (Some(start), Some(byte_count)) =
            (self.order.u64_at(&section, 0), self.order.u64_at(&section, 8))
        else {
            return Ok(());
        };
        self.stated_end = self.stated_end.max(start.saturating_add(byte_count));
        if feature == FEATURE_TRACING_DATA {
            let block = read_at(source, start, byte_count.min(MAX_TRACING_DATA_BYTE_COUNT))?;
            self.tracing_data_at_byte = start;
            self.tracing_data = TracingData::parse(&block);
        } else if is_wanted(feature) {
            let content = read_at(source, start, byte_count.min(MAX_FEATURE_BYTE_COUNT))?;
            self.read_feature(feature, &content);
        }
        Ok(())
    }

    fn read_feature(&mut self, feature: u64, content: &[u8]) {
        let order = self.order;
        match feature {
            FEATURE_OSRELEASE => self.info.kernel = string(content, order),
            FEATURE_ARCH => self.info.arch = string(content, order),
            FEATURE_CPUDESC => self.info.cpu_model = string(content, order),
            FEATURE_CPUID => self.info.cpuid = string(content, order),
            // The number of possible CPUs comes first, then that of CPUs online.
            FEATURE_NRCPUS => self.info.cpu_count = order.u32_at(content, 4),
            FEATURE_CMDLINE => self.info.cmdline = words(content, order),
            _ => {}
        }
    }

    /// Reads a pipe's first records, up to the first that is not about the recording.
    fn read_pipe(&mut self, source: &mut dyn SeekRead) -> Result<(), ImportError> {
        self.attrs_at_byte = PIPE_HEADER_BYTE_COUNT as u64;
        let mut at_byte = PIPE_HEADER_BYTE_COUNT as u64;
        loop {
            let record_header = read_at(source, at_byte, RECORD_HEADER_BYTE_COUNT as u64)?;
            let (Some(kind), Some(byte_count)) =
                (self.order.u32_at(&record_header, 0), self.order.u16_at(&record_header, 6))
            else {
                return Ok(());
            };
            let byte_count = u64::from(byte_count);
            let is_about_records = kind < FIRST_USER_RECORD
                || matches!(kind, FINISHED_ROUND | COMPRESSED | COMPRESSED2 | AUXTRACE);
            if is_about_records || byte_count < RECORD_HEADER_BYTE_COUNT as u64 {
                return Ok(());
            }
            let mut next_at = at_byte.saturating_add(byte_count);
            if matches!(kind, HEADER_ATTR | HEADER_FEATURE | HEADER_TRACING_DATA) {
                let record = read_at(source, at_byte, byte_count)?;
                let body = record.get(RECORD_HEADER_BYTE_COUNT..).unwrap_or_default();
                match kind {
                    HEADER_ATTR => self.read_attr_record(at_byte, body),
                    HEADER_FEATURE => {
                        if let (Some(feature), Some(content)) =
                            (self.order.u64_at(body, 0), body.get(8..))
                        {
                            self.read_feature(feature, content);
                        }
                    }
                    _ => {
                        let block_byte_count = u64::from(self.order.u32_at(body, 0).unwrap_or(0));
                        let wanted_byte_count = block_byte_count.min(MAX_TRACING_DATA_BYTE_COUNT);
                        let block = read_at(source, next_at, wanted_byte_count)?;
                        self.tracing_data_at_byte = next_at;
                        self.tracing_data = TracingData::parse(&block);
                        next_at = next_at.saturating_add(block_byte_count);
                    }
                }
            }
            at_byte = next_at;
        }
    }

    /// An attribute, followed by its event's ids.
    fn read_attr_record(&mut self, at_byte: u64, body: &[u8]) {
        let stated = self.order.u32_at(body, 4).unwrap_or(0) as usize;
        let attr_byte_count = stated.max(FIRST_ATTR_BYTE_COUNT);
        let Some((attr, ids)) = body.split_at_checked(attr_byte_count) else { return };
        let room = (MAX_ID_COUNT - self.id_count) * 8;
        let ids = ids.get(..ids.len().min(room)).unwrap_or_default();
        if self.attrs.len() < MAX_ATTR_COUNT {
            self.push_attr(at_byte, attr, ids);
        }
    }

    /// Splits off the formats, if there are any.
    fn into_formats(mut self) -> Result<(TracingData, Self), ImportError> {
        match self.tracing_data.take().filter(|data| !data.events.is_empty()) {
            Some(formats) => Ok((formats, self)),
            None => Err(ImportError::NoTracingData { at_byte: self.tracing_data_at_byte }),
        }
    }

    /// Combines attributes and formats, and checks that there is something to import.
    fn finish(
        self,
        data_start: u64,
        data_end: Option<u64>,
        purpose: Purpose,
    ) -> Result<Head, ImportError> {
        if self.attrs.is_empty() {
            return Err(ImportError::BrokenHeader {
                at_byte: self.attrs_at_byte,
                found: "no event attribute".to_owned(),
                expected: "one for each recorded event",
            });
        }
        let (tracing_data, mut draft) = self.into_formats()?;
        let events: HashMap<u64, _> =
            tracing_data.events.iter().map(|event| (event.1.id, event)).collect();
        for attr in &mut draft.attrs {
            let Some((system, format)) = attr.tracepoint_id.and_then(|id| events.get(&id)) else {
                continue;
            };
            match Decoder::compile(system, format, tracing_data.order, purpose) {
                Ok(None) => {}
                Ok(Some(decoder)) => {
                    attr.check_sample_type(&format.name)?;
                    if attr.is_sampled {
                        draft.info.sampled_tracepoints.push(format!("{system}:{}", format.name));
                    }
                    draft.info.tracepoints = draft.info.tracepoints.union(decoder.provides());
                    attr.decoder = Some(decoder);
                }
                Err(unreadable) if unreadable.tracepoint == "cpu_idle" => {
                    let at_byte = draft.tracing_data_at_byte;
                    return Err(ImportError::UnreadableCpuIdle { at_byte, unreadable });
                }
                Err(unreadable) => draft.info.unreadable_tracepoints.push(unreadable),
            }
        }
        if !draft.info.tracepoints.contains(Tracepoints::CPU_IDLE) {
            return Err(ImportError::NoCpuIdle {
                at_byte: draft.attrs_at_byte,
                recorded_count: draft.attrs.len(),
                todo: RECORD_COMMAND,
            });
        }
        Ok(Head {
            order: draft.order,
            info: draft.info,
            attrs: draft.attrs,
            data_start: data_start.min(draft.file_byte_count),
            data_end,
            stated_end: draft.stated_end,
        })
    }
}

impl Attr {
    fn check_sample_type(&self, tracepoint: &str) -> Result<(), ImportError> {
        let needed = [
            (SAMPLE_TIME, "time", "record with perf's option -T"),
            (SAMPLE_CPU, "CPU", "record the whole machine, with perf's option -a"),
            (SAMPLE_RAW, "raw data", "record with perf's option -R"),
        ];
        for (bit, name, todo) in needed {
            if self.sample_type & bit == 0 {
                let found = format!("the samples of {tracepoint} have no {name}");
                return Err(ImportError::Unsupported { at_byte: self.at_byte, found, todo });
            }
        }
        Ok(())
    }
}

/// Reads `byte_count` bytes, or fewer at the end of the file. The buffer grows as bytes are read,
/// so a false count costs no memory.
fn read_at<R: Read + Seek + ?Sized>(
    source: &mut R,
    at_byte: u64,
    byte_count: u64,
) -> Result<Vec<u8>, ImportError> {
    let mut bytes = Vec::new();
    // The seek offset is signed. No file is that long.
    if i64::try_from(at_byte).is_err() {
        return Ok(bytes);
    }
    source
        .seek(SeekFrom::Start(at_byte))
        .and_then(|_| source.take(byte_count).read_to_end(&mut bytes))
        .map_err(|source| ImportError::Io { at_byte, source })?;
    Ok(bytes)
}

fn is_wanted(feature: u64) -> bool {
    matches!(
        feature,
        FEATURE_OSRELEASE
            | FEATURE_ARCH
            | FEATURE_NRCPUS
            | FEATURE_CPUDESC
            | FEATURE_CPUID
            | FEATURE_CMDLINE
    )
}

/// A string that is preceded by the size of its padded space.
fn string(content: &[u8], order: ByteOrder) -> Option<String> {
    let space = order.u32_at(content, 0)? as usize;
    let rest = content.get(4..)?;
    let padded = rest.get(..space.min(rest.len()))?;
    let text = padded.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn words(content: &[u8], order: ByteOrder) -> Option<String> {
    let word_count = order.u32_at(content, 0)?;
    let mut rest = content.get(4..)?;
    let mut words = Vec::new();
    for _ in 0..word_count {
        let Some(space) = order.u32_at(rest, 0) else { break };
        words.extend(string(rest, order));
        rest = rest.get(4 + space as usize..).unwrap_or_default();
    }
    Some(words.join(" "))
}

/// The clocks of clock_gettime(2) that perf accepts.
fn clock_name(clock_id: Option<i32>) -> String {
    match clock_id {
        None => "perf".to_owned(),
        Some(0) => "CLOCK_REALTIME".to_owned(),
        Some(1) => "CLOCK_MONOTONIC".to_owned(),
        Some(4) => "CLOCK_MONOTONIC_RAW".to_owned(),
        Some(7) => "CLOCK_BOOTTIME".to_owned(),
        Some(11) => "CLOCK_TAI".to_owned(),
        Some(other) => format!("clock {other}"),
    }
}
