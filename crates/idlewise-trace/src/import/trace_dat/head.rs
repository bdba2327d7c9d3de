//! Reads everything before the pages: event formats, options, and where each CPU's pages are.
//!
//! ```text
//!   version 6                              version 7
//!   | magic | formats | symbols | ... |    | magic | first options' place |
//!   | options | places | pages ... |       | section | section | ... , in any order:
//!                                            options name the others, formats and buffers too
//! ```
//!
//! In version 6 the parts follow one another. In version 7 sections may be compressed, and options,
//! which are sections too, form a chain through the file.

use super::clock::{self, CycleScale};
use super::ids::Ids;
use super::options::{Buffer, CpuData, MAX_PLACE_COUNT, Next, Options, Section};
use super::pack::{Algorithm, Unpacker};
use super::page::PageLayout;
use super::stream::{Damage, Region};
use crate::byte_order::ByteOrder;
use crate::import::source::{ReadAt, bytes_at};
use crate::import::tracing_data::{MAGIC, Part, TracingData};
use crate::import::{ImportError, TraceInfo, unknown_format};
use crate::tracepoint::Purpose;

// Bounds on the memory that a malicious file can make us use. Real files stay far below them.
const MAX_FORMATS_BYTE_COUNT: u64 = 32 << 20;
const MAX_OPTION_BYTE_COUNT: u64 = 4 << 20;
const MAX_OPTION_COUNT: usize = 1 << 16;
const MAX_OPTION_SECTION_COUNT: usize = 1 << 10;
const MAX_STRING_BYTE_COUNT: u64 = 256;
const MAX_CPU_COUNT: u32 = 1 << 16;

/// How much of the formats is read first.
const FORMATS_STEP_BYTE_COUNT: u64 = 1 << 20;

/// `options  `, `latency  ` or `flyrecord`, each with a zero byte.
const MARK_BYTE_COUNT: u64 = 10;
pub(super) const SECTION_HEADER_BYTE_COUNT: u64 = 16;
pub(super) const SECTION_IS_PACKED: u16 = 1;
const OPTIONS_SECTION: u16 = 0;

const FILE_END: &str = "the file's end";

/// Everything that must be known before the first page can be read.
pub(super) struct Head {
    pub(super) order: ByteOrder,
    pub(super) info: TraceInfo,
    pub(super) layout: PageLayout,
    pub(super) ids: Ids,
    /// How to scale the clock's values, if they count cycles.
    pub(super) cycle_scale: Option<CycleScale>,
    pub(super) algorithm: Option<Algorithm>,
    /// The regions, in the file's order.
    pub(super) regions: Vec<Region>,
    /// Impossible places of CPUs' data.
    pub(super) damage: Damage,
}

impl Head {
    pub(super) fn read(
        source: &dyn ReadAt,
        file_byte_count: u64,
        purpose: Purpose,
    ) -> Result<Self, ImportError> {
        let mut file = Reader { source, file_byte_count, at_byte: 0, order: ByteOrder::Little };
        let magic = bytes_at(source, 0, MAGIC.len() as u64)?;
        if magic != MAGIC {
            return Err(unknown_format(&magic));
        }
        file.at_byte = MAGIC.len() as u64;
        let version_at = file.at_byte;
        let version = file.string("a version")?;
        file.order = match file.bytes(1, "a byte order")?.as_slice() {
            [0] => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let draft = match version.as_slice() {
            b"6" => read_version_6(&mut file)?,
            b"7" => read_version_7(&mut file)?,
            other => {
                return Err(ImportError::Unsupported {
                    at_byte: version_at,
                    found: format!("version {:?} of trace.dat", String::from_utf8_lossy(other)),
                    todo: "record with a trace-cmd that writes version 6 or 7",
                });
            }
        };
        draft.finish(source, file_byte_count, purpose)
    }
}

/// Reads one part of the file after another.
struct Reader<'a> {
    source: &'a dyn ReadAt,
    file_byte_count: u64,
    at_byte: u64,
    order: ByteOrder,
}

impl Reader<'_> {
    fn bytes(&mut self, byte_count: u64, what: &'static str) -> Result<Vec<u8>, ImportError> {
        let bytes = bytes_at(self.source, self.at_byte, byte_count)?;
        if (bytes.len() as u64) < byte_count {
            return Err(self.broken(FILE_END.to_owned(), what));
        }
        self.at_byte += byte_count;
        Ok(bytes)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, ImportError> {
        let bytes = self.bytes(4, what)?;
        Ok(self.order.u32_at(&bytes, 0).unwrap_or(0))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, ImportError> {
        let bytes = self.bytes(8, what)?;
        Ok(self.order.u64_at(&bytes, 0).unwrap_or(0))
    }

    /// Reads a string that ends with a zero byte, and returns it without that byte.
    fn string(&mut self, what: &'static str) -> Result<Vec<u8>, ImportError> {
        let mut bytes = bytes_at(self.source, self.at_byte, MAX_STRING_BYTE_COUNT)?;
        let Some(end) = bytes.iter().position(|&byte| byte == 0) else {
            let found = match (bytes.len() as u64) < MAX_STRING_BYTE_COUNT {
                true => FILE_END.to_owned(),
                false => format!("{MAX_STRING_BYTE_COUNT} bytes without an end"),
            };
            return Err(self.broken(found, what));
        };
        bytes.truncate(end);
        self.at_byte += end as u64 + 1;
        Ok(bytes)
    }

    /// Skips a text that is preceded by its length.
    fn skip(&mut self, byte_count: u64, what: &'static str) -> Result<(), ImportError> {
        let end = self.at_byte.checked_add(byte_count).filter(|&end| end <= self.file_byte_count);
        match end {
            Some(end) => self.at_byte = end,
            None => {
                let found = format!("{byte_count} bytes, more than the file has");
                return Err(self.broken(found, what));
            }
        }
        Ok(())
    }

    fn broken(&self, found: String, expected: &'static str) -> ImportError {
        ImportError::BrokenHeader { at_byte: self.at_byte, found, expected }
    }
}

/// What is known after reading the head of either version.
pub(super) struct Draft {
    pub(super) data: TracingData,
    /// Where the formats are.
    pub(super) formats_at: u64,
    pub(super) options: Options,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) buffers: Vec<Buffer>,
}

fn read_version_6(file: &mut Reader<'_>) -> Result<Draft, ImportError> {
    let data = read_formats(file)?;
    let formats_at = std::mem::replace(&mut file.at_byte, data.byte_count as u64);
    for what in ["the kernel's symbols", "the formats of trace_printk"] {
        let byte_count = file.u32(what)?;
        file.skip(byte_count.into(), what)?;
    }
    let what = "the tasks' names";
    let byte_count = file.u64(what)?;
    file.skip(byte_count, what)?;
    let mut options =
        Options { cpu_count: Some(file.u32("a number of CPUs")?), ..Default::default() };
    let mut top = Buffer {
        name: String::new(),
        clock: None,
        section_at: file.at_byte,
        page_byte_count: None,
        is_text: false,
        cpus: Vec::new(),
    };
    read_places(file, &mut options, &mut top)?;
    if options.has_clock
        && let Ok(byte_count) = file.u64("a clock")
    {
        let text = bytes_at(file.source, file.at_byte, byte_count.min(MAX_STRING_BYTE_COUNT))?;
        options.clock = options.clock.or(clock::chosen(&text));
    }
    let mut buffers = vec![top];
    for mut buffer in std::mem::take(&mut options.buffers) {
        file.at_byte = buffer.section_at;
        read_places(file, &mut options, &mut buffer)?;
        buffers.push(buffer);
    }
    Ok(Draft { data, formats_at, options, algorithm: None, buffers })
}

/// Reads the block of event formats. Its length is unknown until its end.
fn read_formats(file: &Reader<'_>) -> Result<TracingData, ImportError> {
    let mut byte_count = FORMATS_STEP_BYTE_COUNT;
    loop {
        let block = bytes_at(file.source, 0, byte_count)?;
        let is_all = (block.len() as u64) < byte_count || byte_count >= MAX_FORMATS_BYTE_COUNT;
        match TracingData::parse(&block) {
            Some(data) if !data.is_cut => return Ok(data),
            parsed if is_all => {
                let read_byte_count = parsed.map_or(0, |data| data.byte_count);
                return Err(cut_formats(read_byte_count as u64));
            }
            _ => byte_count *= 4,
        }
    }
}

fn cut_formats(at_byte: u64) -> ImportError {
    let found = "an end in the midst of the event formats".to_owned();
    ImportError::BrokenHeader { at_byte, found, expected: "all of them" }
}

/// Reads the options before a buffer of version 6, and where its CPUs' pages are.
fn read_places(
    file: &mut Reader<'_>,
    options: &mut Options,
    buffer: &mut Buffer,
) -> Result<(), ImportError> {
    const EXPECTED: &str = "`options`, `flyrecord` or `latency`";
    let mut mark = file.bytes(MARK_BYTE_COUNT, EXPECTED)?;
    if mark.starts_with(b"options") {
        read_options(file, options)?;
        mark = file.bytes(MARK_BYTE_COUNT, "`flyrecord` or `latency`")?;
    }
    let mark_at = file.at_byte - MARK_BYTE_COUNT;
    buffer.section_at = mark_at;
    if mark.starts_with(b"latency") {
        buffer.is_text = true;
        return Ok(());
    }
    if !mark.starts_with(b"flyrecord") {
        let found = format!("{:?}", String::from_utf8_lossy(&mark));
        return Err(ImportError::BrokenHeader { at_byte: mark_at, found, expected: EXPECTED });
    }
    let cpu_count = options.cpu_count.unwrap_or(0);
    if cpu_count > MAX_CPU_COUNT {
        return Err(file.broken(format!("{cpu_count} CPUs"), "65536 at most"));
    }
    for cpu in 0..cpu_count {
        if options.place_count == MAX_PLACE_COUNT {
            let found = format!("more than {MAX_PLACE_COUNT} places of CPUs' data");
            return Err(file.broken(found, "some for each CPU"));
        }
        options.place_count += 1;
        let at_byte = file.u64("the place of a CPU's data")?;
        let byte_count = file.u64("the size of a CPU's data")?;
        buffer.cpus.push(CpuData { cpu, at_byte, byte_count });
    }
    Ok(())
}

/// Reads the options of version 6. There is no field for their total size.
fn read_options(file: &mut Reader<'_>, options: &mut Options) -> Result<(), ImportError> {
    for _ in 0..MAX_OPTION_COUNT {
        let number = file.bytes(2, "an option")?;
        let number = file.order.u16_at(&number, 0).unwrap_or(0);
        if number == 0 {
            return Ok(());
        }
        let byte_count = u64::from(file.u32("an option's size")?);
        let is_read = Options::wants(number) && byte_count <= MAX_OPTION_BYTE_COUNT;
        if is_read {
            let data = file.bytes(byte_count, "an option")?;
            options.take(number, &data, file.order, false);
        } else {
            file.skip(byte_count, "an option")?;
        }
    }
    Err(file.broken(format!("more than {MAX_OPTION_COUNT} options"), "an end of the options"))
}

fn read_version_7(file: &mut Reader<'_>) -> Result<Draft, ImportError> {
    let long_byte_count = file.bytes(1, "the size of a long")?;
    let mut data =
        TracingData::empty(file.order, long_byte_count.first().copied().unwrap_or_default());
    data.page_byte_count = file.u32("the size of a page")?;
    let algorithm_at = file.at_byte;
    let name = file.string("the name of a compression")?;
    let algorithm = Algorithm::of_name(&name);
    if algorithm.is_none() && name != b"none" && !name.is_empty() {
        return Err(ImportError::Unsupported {
            at_byte: algorithm_at,
            found: format!("compression {:?}", String::from_utf8_lossy(&name)),
            todo: "convert the file with `trace-cmd convert --compression none -i IN -o OUT`",
        });
    }
    file.string("the version of a compression")?;
    let mut options = Options::default();
    let mut next = Some(file.u64("the place of the options")?).filter(|&place| place != 0);
    if next.is_none() {
        file.at_byte -= 8;
        return Err(file.broken("no options".to_owned(), "their place in the file"));
    }
    let mut section_count = 0;
    while let Some(place) = next {
        section_count += 1;
        if section_count > MAX_OPTION_SECTION_COUNT {
            file.at_byte = place;
            let found = format!("more than {MAX_OPTION_SECTION_COUNT} sections of options");
            return Err(file.broken(found, "an end of the options"));
        }
        let bytes = read_section(file, place, OPTIONS_SECTION, algorithm)?;
        next = match options.take_all(&bytes, file.order) {
            Some(Next::End(next)) => next,
            _ => {
                file.at_byte = place;
                return Err(file.broken("options that are cut".to_owned(), "an end of the options"));
            }
        };
    }
    let mut formats_at = file.file_byte_count;
    for &(section, place) in &options.sections {
        let bytes = read_section(file, place, section as u16, algorithm)?;
        let part = match section {
            Section::HeaderInfo => Part::Headers,
            Section::FtraceEvents => Part::FtraceEvents,
            Section::EventFormats => {
                formats_at = place;
                Part::Systems
            }
        };
        data.add(part, &bytes);
        if data.is_cut {
            return Err(cut_formats(place));
        }
    }
    let buffers = std::mem::take(&mut options.buffers);
    Ok(Draft { data, formats_at, options, algorithm, buffers })
}

/// The content of a section, decompressed.
fn read_section(
    file: &mut Reader<'_>,
    place: u64,
    number: u16,
    algorithm: Option<Algorithm>,
) -> Result<Vec<u8>, ImportError> {
    file.at_byte = place;
    let header = file.bytes(SECTION_HEADER_BYTE_COUNT, "a section that the file names")?;
    let order = file.order;
    let found = order.u16_at(&header, 0).unwrap_or(0);
    if found != number {
        file.at_byte = place;
        return Err(file.broken(format!("section {found}"), "the one that the options name"));
    }
    let flags = order.u16_at(&header, 2).unwrap_or(0);
    let byte_count = order.u64_at(&header, 8).unwrap_or(0);
    if byte_count > MAX_FORMATS_BYTE_COUNT {
        file.at_byte = place;
        return Err(file.broken(format!("a section of {byte_count} bytes"), "32 MiB at most"));
    }
    let content_at = file.at_byte;
    let content = file.bytes(byte_count, "a whole section")?;
    if flags & SECTION_IS_PACKED == 0 {
        return Ok(content);
    }
    let unpacked = (|| {
        let packed_byte_count = order.u32_at(&content, 0)? as usize;
        let byte_count = order.u32_at(&content, 4)? as usize;
        if byte_count as u64 > MAX_FORMATS_BYTE_COUNT {
            return None;
        }
        let packed = content.get(8..)?.get(..packed_byte_count)?;
        let mut plain = Vec::new();
        Unpacker::new(algorithm?).unpack(packed, byte_count, &mut plain)?;
        Some(plain)
    })();
    unpacked.ok_or_else(|| {
        file.at_byte = content_at;
        file.broken("bytes that can not be unpacked".to_owned(), "a compressed section")
    })
}
