//! The options of a file: numbered pieces of data, most of them text, with information that is
//! nowhere else. `Options::take` lists those that we read. All others are skipped.

use super::clock::{self, CycleScale};
use crate::MachineNote;
use crate::byte_order::ByteOrder;

/// The numbers of the options (trace-cmd.dat.v7(5)).
const DONE: u16 = 0;
const BUFFER: u16 = 3;
const TRACE_CLOCK: u16 = 4;
const UNAME: u16 = 5;
const CPU_COUNT: u16 = 8;
const WRITER: u16 = 9;
const CYCLE_SCALE: u16 = 14;
const BUFFER_TEXT: u16 = 22;
// Options that give the place of the section with the same number.
const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;

/// Bounds on the memory that a malicious file can make us use: how many buffers there may be, and
/// how many places of CPUs' data in all of them.
const MAX_BUFFER_COUNT: usize = 1 << 12;
pub(super) const MAX_PLACE_COUNT: usize = 1 << 18;

/// The number and size in front of each option.
pub(super) const OPTION_HEADER_BYTE_COUNT: usize = 6;

/// The contents of a file's options. Offsets for displaying times are not included: events keep the
/// kernel's own clock, which is also the timers'.
#[derive(Default)]
pub(super) struct Options {
    /// System, host, release and machine, as `uname` prints them.
    pub(super) uname: Option<String>,
    pub(super) cpu_count: Option<u32>,
    /// The note that our own recorder writes after its name.
    pub(super) machine_note: Option<MachineNote>,
    pub(super) clock: Option<String>,
    /// Whether there is an option for the clock, with or without a name.
    pub(super) has_clock: bool,
    pub(super) cycle_scale: Option<CycleScale>,
    pub(super) buffers: Vec<Buffer>,
    /// How many places of CPUs' data all buffers have together.
    pub(super) place_count: usize,
    pub(super) sections: Vec<(Section, u64)>,
}

/// The sections that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    HeaderInfo = HEADER_INFO as isize,
    FtraceEvents = FTRACE_EVENTS as isize,
    EventFormats = EVENT_FORMATS as isize,
}

/// A ring buffer in the file: the machine's own, or that of a tracing instance.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    /// Empty for the machine's own buffer.
    pub(super) name: String,
    /// Its clock, as the file gives it.
    pub(super) clock: Option<String>,
    /// The offset of its section.
    pub(super) section_at: u64,
    /// The size of its pages, if they differ from the machine's.
    pub(super) page_byte_count: Option<u64>,
    /// Whether its data is text instead of pages.
    pub(super) is_text: bool,
    pub(super) cpus: Vec<CpuData>,
}

/// Where one CPU's data is.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuData {
    pub(super) cpu: u32,
    pub(super) at_byte: u64,
    pub(super) byte_count: u64,
}

/// What follows an option.
pub(super) enum Next {
    Option,
    /// No more options here. In version 7 they may continue at another offset.
    End(Option<u64>),
}

impl Options {
    /// Reads a complete option. With `has_sections` (from version 7 on) some point to sections.
    pub(super) fn take(
        &mut self,
        number: u16,
        data: &[u8],
        order: ByteOrder,
        has_sections: bool,
    ) -> Next {
        match number {
            DONE => return Next::End(order.u64_at(data, 0).filter(|&place| place != 0)),
            BUFFER | BUFFER_TEXT => {
                let is_text = number == BUFFER_TEXT;
                let room = MAX_PLACE_COUNT - self.place_count;
                let buffer = Buffer::parse(data, order, has_sections, is_text, room);
                if let Some(buffer) = buffer.filter(|_| self.buffers.len() < MAX_BUFFER_COUNT) {
                    self.place_count += buffer.cpus.len();
                    self.buffers.push(buffer);
                }
            }
            TRACE_CLOCK => {
                self.has_clock = true;
                self.clock = clock::chosen(data).or(self.clock.take());
            }
            UNAME => self.uname = Some(text(data)),
            CPU_COUNT => self.cpu_count = order.u32_at(data, 0).or(self.cpu_count),
            WRITER => self.machine_note = MachineNote::from_bytes(data),
            CYCLE_SCALE => self.cycle_scale = CycleScale::parse(data, order),
            HEADER_INFO => self.add_section(Section::HeaderInfo, data, order),
            FTRACE_EVENTS => self.add_section(Section::FtraceEvents, data, order),
            EVENT_FORMATS => self.add_section(Section::EventFormats, data, order),
            _ => {}
        }
        Next::Option
    }

    /// Whether we use this option. If not, its data need not be read.
    pub(super) fn wants(number: u16) -> bool {
        matches!(
            number,
            BUFFER
                | BUFFER_TEXT
                | TRACE_CLOCK
                | UNAME
                | CPU_COUNT
                | WRITER
                | CYCLE_SCALE
                | HEADER_INFO
                | FTRACE_EVENTS
                | EVENT_FORMATS
        )
    }

    /// Reads the options of a section.
    pub(super) fn take_all(&mut self, bytes: &[u8], order: ByteOrder) -> Option<Next> {
        let mut rest = bytes;
        while let (Some(number), Some(byte_count)) = (order.u16_at(rest, 0), order.u32_at(rest, 2))
        {
            let (data, behind) =
                rest.get(OPTION_HEADER_BYTE_COUNT..)?.split_at_checked(byte_count as usize)?;
            match self.take(number, data, order, true) {
                Next::Option => rest = behind,
                end => return Some(end),
            }
        }
        None
    }

    fn add_section(&mut self, section: Section, data: &[u8], order: ByteOrder) {
        self.sections.retain(|&(known, _)| known != section);
        self.sections.extend(order.u64_at(data, 0).map(|place| (section, place)));
    }

    /// The kernel's release and the machine's architecture.
    pub(super) fn release_and_machine(&self) -> (Option<String>, Option<String>) {
        let mut words = self.uname.iter().flat_map(|uname| uname.split_whitespace()).rev();
        let machine = words.next().map(str::to_owned);
        (words.next().map(str::to_owned), machine)
    }
}

impl Buffer {
    /// Returns `None` if the option is cut. CPUs that the list lacks, or that exceed the limit, are
    /// left out.
    fn parse(
        data: &[u8],
        order: ByteOrder,
        has_sections: bool,
        is_text: bool,
        room: usize,
    ) -> Option<Self> {
        let section_at = order.u64_at(data, 0)?;
        let mut strings = data.get(8..)?.split(|&byte| byte == 0);
        let name = strings.next()?;
        let mut buffer = Self {
            name: text(name),
            clock: None,
            section_at,
            page_byte_count: None,
            is_text,
            cpus: Vec::new(),
        };
        if !has_sections {
            return Some(buffer);
        }
        let clock = strings.next()?;
        buffer.clock = clock::chosen(clock);
        let rest = data.get(8 + name.len() + 1 + clock.len() + 1..).unwrap_or_default();
        buffer.page_byte_count = order.u32_at(rest, 0).map(u64::from).filter(|&count| count > 0);
        let cpu_count = order.u32_at(rest, 4).unwrap_or(0) as usize;
        let list = rest.get(8..).unwrap_or_default();
        buffer.cpus = list
            .chunks_exact(20)
            .take(cpu_count.min(room))
            .filter_map(|entry| {
                Some(CpuData {
                    cpu: order.u32_at(entry, 0)?,
                    at_byte: order.u64_at(entry, 4)?,
                    byte_count: order.u64_at(entry, 12)?,
                })
            })
            .collect();
        Some(buffer)
    }
}

/// The text before the first zero byte.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
