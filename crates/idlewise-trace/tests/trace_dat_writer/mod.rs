//! Writes tiny trace.dat files, whole and broken, like trace-cmd, including the pages of the
//! kernel's ring buffer.
//!
//! We need our own writer, because trace-cmd can produce neither the other byte order nor damage.
#![allow(dead_code, reason = "each test uses a part of it")]

use idlewise_trace::ByteOrder;

use crate::perf_writer::{CPU_IDLE, HRTIMER_START, IRQ_HANDLER, OTHER, TRACEPOINTS};

pub const MISSED_EVENTS: u64 = 1 << 31;
pub const MISSED_COUNT_STORED: u64 = 1 << 30;

// Options. Some of them are sections too.
pub const BUFFER: u16 = 3;
pub const TRACE_CLOCK: u16 = 4;
pub const UNAME: u16 = 5;
pub const OFFSET: u16 = 7;
pub const CPU_COUNT: u16 = 8;
pub const VERSION: u16 = 9;
pub const CYCLE_SCALE: u16 = 14;
pub const STRINGS: u16 = 15;
pub const HEADER_INFO: u16 = 16;
pub const FTRACE_EVENTS: u16 = 17;
pub const EVENT_FORMATS: u16 = 18;
pub const KALLSYMS: u16 = 19;
pub const BUFFER_TEXT: u16 = 22;
/// An option that does not exist.
pub const UNKNOWN: u16 = 4711;

pub const RECORD_HEADER_BYTE_COUNT: usize = 4;

/// The machine's number formats.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    pub order: ByteOrder,
    pub long_byte_count: usize,
    pub page_byte_count: usize,
}

pub const LITTLE: Machine =
    Machine { order: ByteOrder::Little, long_byte_count: 8, page_byte_count: 512 };
/// Like a phone of ten years ago, but with the other byte order.
pub const BIG: Machine =
    Machine { order: ByteOrder::Big, long_byte_count: 4, page_byte_count: 1024 };

impl Machine {
    pub fn u16(&self, value: u16) -> Vec<u8> {
        match self.order {
            ByteOrder::Little => value.to_le_bytes().to_vec(),
            ByteOrder::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn u32(&self, value: u32) -> Vec<u8> {
        match self.order {
            ByteOrder::Little => value.to_le_bytes().to_vec(),
            ByteOrder::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn u64(&self, value: u64) -> Vec<u8> {
        match self.order {
            ByteOrder::Little => value.to_le_bytes().to_vec(),
            ByteOrder::Big => value.to_be_bytes().to_vec(),
        }
    }

    pub fn long(&self, value: u64) -> Vec<u8> {
        if self.long_byte_count == 4 { self.u32(value as u32) } else { self.u64(value) }
    }

    fn data_at(&self) -> usize {
        8 + self.long_byte_count
    }

    /// The kernel's description of its pages.
    fn header_page(&self) -> String {
        let (long, data_at) = (self.long_byte_count, self.data_at());
        let data_byte_count = self.page_byte_count - data_at;
        format!(
            "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
             \tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n\
             \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
             \tfield: char data;\toffset:{data_at};\tsize:{data_byte_count};\tsigned:0;\n"
        )
    }
}

/// A page of the ring buffer, being filled.
#[derive(Clone, Debug)]
pub struct Page {
    machine: Machine,
    begins_at: u64,
    now: u64,
    pub data: Vec<u8>,
    lost: Option<(u64, bool)>,
}

impl Page {
    pub fn new(machine: Machine, begins_at: u64) -> Self {
        Self { machine, begins_at, now: begins_at, data: Vec::new(), lost: None }
    }

    /// Events were lost before the page. Their number may be stored after its records.
    pub fn lost(mut self, event_count: u64, is_stored: bool) -> Self {
        self.lost = Some((event_count, is_stored));
        self
    }

    pub fn word(&mut self, kind: u32, delta: u64) {
        let delta = u32::try_from(delta).unwrap();
        assert!(delta < 1 << 27 && kind < 32);
        let word = match self.machine.order {
            ByteOrder::Little => delta << 5 | kind,
            ByteOrder::Big => kind << 27 | delta,
        };
        self.data.extend(self.machine.u32(word));
    }

    /// Adds a record. A long record has its length in a separate word.
    pub fn record(mut self, at: u64, content: &[u8], is_long: bool) -> Self {
        let delta = at - self.now;
        if delta >= 1 << 27 {
            self = self.time_extend(delta & !((1 << 27) - 1));
        }
        let delta = at - self.now;
        self.now = at;
        let padded = content.len().next_multiple_of(4);
        if is_long || padded > 28 * 4 {
            self.word(0, delta);
            let byte_count = u32::try_from(content.len() + 4).unwrap();
            self.data.extend(self.machine.u32(byte_count));
        } else {
            self.word((padded / 4) as u32, delta);
        }
        self.data.extend(content);
        self.data.resize(self.data.len() + padded - content.len(), 0);
        self
    }

    /// Adds time without an event, more than the 27 bits of a record can hold.
    pub fn time_extend(mut self, delta: u64) -> Self {
        self.word(30, delta & ((1 << 27) - 1));
        let upper = u32::try_from(delta >> 27).unwrap();
        self.data.extend(self.machine.u32(upper));
        self.now += delta;
        self
    }

    /// Adds the time without its five upper bits.
    pub fn time_stamp(mut self, at: u64) -> Self {
        self.word(31, at & ((1 << 27) - 1));
        let upper = (at & ((1 << 59) - 1)) >> 27;
        self.data.extend(self.machine.u32(upper as u32));
        self.now = at;
        self
    }

    /// Adds a record that its writer discarded.
    pub fn discarded(mut self, byte_count: usize) -> Self {
        self.word(29, 1);
        self.data.extend(self.machine.u32(byte_count as u32 + 4));
        self.data.resize(self.data.len() + byte_count, 0xee);
        self
    }

    /// Ends the records before the end of the committed data.
    pub fn padding(mut self, byte_count: usize) -> Self {
        self.word(29, 0);
        self.data.resize(self.data.len() + byte_count, 0xee);
        self
    }

    fn event(self, event: usize, at: u64, fields: &[u8], is_long: bool) -> Self {
        let mut content = self.machine.u16(TRACEPOINTS[event].id as u16);
        content.extend([0, 0]);
        content.extend(self.machine.u32(1));
        content.extend(fields);
        self.record(at, &content, is_long)
    }

    pub fn idle_entry(self, at: u64, cpu: u32, state: u32) -> Self {
        let fields = [self.machine.u32(state), self.machine.u32(cpu)].concat();
        self.event(CPU_IDLE, at, &fields, false)
    }

    pub fn idle_exit(self, at: u64, cpu: u32) -> Self {
        let fields = [self.machine.u32(u32::MAX), self.machine.u32(cpu)].concat();
        self.event(CPU_IDLE, at, &fields, true)
    }

    pub fn hrtimer_start(self, at: u64, expires: u64, soft_expires: u64) -> Self {
        let words = [0xffff_8880_0000_1000, 0xffff_ffff_8142_01c0, expires, soft_expires];
        let fields: Vec<u8> = words.iter().flat_map(|&word| self.machine.u64(word)).collect();
        self.event(HRTIMER_START, at, &fields, false)
    }

    pub fn irq_handler(self, at: u64, name: &str) -> Self {
        let text = [name.as_bytes(), &[0]].concat();
        let data_loc = (text.len() as u32) << 16 | 16;
        let fields = [self.machine.u32(27), self.machine.u32(data_loc), text].concat();
        self.event(IRQ_HANDLER, at, &fields, false)
    }

    /// Adds an event that the file describes but no idle log needs.
    pub fn other(self, at: u64) -> Self {
        let fields = self.machine.u32(1);
        self.event(OTHER, at, &fields, false)
    }

    /// Adds an event that the file does not describe.
    pub fn without_format(self, at: u64) -> Self {
        let content = [self.machine.u16(999), vec![0; 10]].concat();
        self.record(at, &content, false)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut commit = self.data.len() as u64;
        let mut behind = Vec::new();
        if let Some((event_count, is_stored)) = self.lost {
            commit |= MISSED_EVENTS;
            if is_stored {
                commit |= MISSED_COUNT_STORED;
                behind = self.machine.long(event_count);
            }
        }
        let machine = &self.machine;
        let mut page =
            [machine.u64(self.begins_at), machine.long(commit), self.data.clone(), behind].concat();
        assert!(page.len() <= machine.page_byte_count, "{} bytes", page.len());
        page.resize(machine.page_byte_count, 0);
        page
    }
}

/// A buffer, with the pages of each CPU.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: &'static str,
    pub clock: &'static str,
    pub cpus: Vec<(u32, Vec<Vec<u8>>)>,
    pub is_text: bool,
    /// Pages larger than the machine's, in version 7.
    pub page_byte_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    None,
    Zstd,
    Zlib,
}

#[derive(Clone, Debug)]
pub struct TraceDatWriter {
    pub machine: Machine,
    pub version: &'static str,
    pub packing: Packing,
    pub formats: Vec<(&'static str, String)>,
    /// Options in addition to those that locate other parts.
    pub options: Vec<(u16, Vec<u8>)>,
    pub buffers: Vec<Buffer>,
    /// The number of CPUs in version 6, also the length of the list of places.
    pub cpu_count: u32,
}

/// A file, and the offsets of its sections.
pub struct Written {
    pub bytes: Vec<u8>,
    pub boundaries: Vec<usize>,
    /// The offset of each buffer's section.
    pub buffers_at: Vec<usize>,
    pub formats_at: usize,
}

impl TraceDatWriter {
    pub fn new(machine: Machine, version: &'static str) -> Self {
        let clock = b"local global [mono] boot\n\0".to_vec();
        let uname = b"Linux host 6.18.44 x86_64\0".to_vec();
        let options = vec![
            (TRACE_CLOCK, clock),
            (UNAME, uname),
            (UNKNOWN, vec![1, 2, 3]),
            (VERSION, b"3.3\0".to_vec()),
        ];
        Self {
            machine,
            version,
            packing: Packing::None,
            formats: TRACEPOINTS.iter().map(|t| (t.system, t.format.to_owned())).collect(),
            options,
            buffers: Vec::new(),
            cpu_count: 0,
        }
    }

    /// Adds a buffer with pages of CPUs 0, 1 and so on. The first buffer is the machine's own.
    pub fn buffer(&mut self, name: &'static str, cpus: &[&[Page]]) -> &mut Self {
        let pages = |pages: &&[Page]| pages.iter().map(Page::bytes).collect();
        let cpus: Vec<(u32, Vec<Vec<u8>>)> = (0..).zip(cpus.iter().map(pages)).collect();
        self.cpu_count = self.cpu_count.max(cpus.len() as u32);
        let page_byte_count = self.machine.page_byte_count;
        let clock = "mono";
        self.buffers.push(Buffer { name, clock, cpus, is_text: false, page_byte_count });
        self
    }

    pub fn file(&self) -> Written {
        if self.version == "7" { self.version_7() } else { self.version_6() }
    }

    fn head(&self) -> Vec<u8> {
        let is_big = u8::from(self.machine.order == ByteOrder::Big);
        let numbers = [is_big, self.machine.long_byte_count as u8];
        let page = self.machine.u32(self.machine.page_byte_count as u32);
        [b"\x17\x08\x44tracing", self.version.as_bytes(), &[0], &numbers, &page].concat()
    }

    fn text(&self, text: &str) -> Vec<u8> {
        [self.machine.u64(text.len() as u64), text.as_bytes().to_vec()].concat()
    }

    fn header_info(&self) -> Vec<u8> {
        let page = self.text(&self.machine.header_page());
        let event = self.text("# compressed entry header\n\ttype_len : 5 bits\n");
        [b"header_page\0".to_vec(), page, b"header_event\0".to_vec(), event].concat()
    }

    fn ftrace_events(&self) -> Vec<u8> {
        [self.machine.u32(1), self.text("name: function\nID: 1\nformat:\n")].concat()
    }

    fn event_formats(&self) -> Vec<u8> {
        let mut systems = self.machine.u32(self.formats.len() as u32);
        for (system, format) in &self.formats {
            systems.extend(system.bytes());
            systems.push(0);
            systems.extend(self.machine.u32(1));
            systems.extend(self.text(format));
        }
        systems
    }

    fn option(&self, number: u16, data: &[u8]) -> Vec<u8> {
        let machine = &self.machine;
        [machine.u16(number), machine.u32(data.len() as u32), data.to_vec()].concat()
    }

    fn version_6(&self) -> Written {
        let machine = &self.machine;
        let mut bytes = self.head();
        let mut boundaries = vec![0, bytes.len()];
        let formats_at = bytes.len();
        let kallsyms = b"ffffffff81000000 T _text\n".to_vec();
        let parts = [
            self.header_info(),
            self.ftrace_events(),
            self.event_formats(),
            [machine.u32(kallsyms.len() as u32), kallsyms].concat(),
            machine.u32(0),
            self.text("1 init\n"),
            machine.u32(self.cpu_count),
        ];
        for part in parts {
            bytes.extend(part);
            boundaries.push(bytes.len());
        }
        bytes.extend(b"options  \0");
        for (number, data) in &self.options {
            bytes.extend(self.option(*number, data));
        }
        let mut places_of_buffers = Vec::new();
        for buffer in self.buffers.iter().skip(1) {
            places_of_buffers.push(bytes.len() + 6);
            let data = [machine.u64(0), buffer.name.as_bytes().to_vec(), vec![0]].concat();
            bytes.extend(self.option(BUFFER, &data));
        }
        bytes.extend(machine.u16(0));
        boundaries.push(bytes.len());
        let mut buffers_at = Vec::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            buffers_at.push(bytes.len());
            if let Some(place) = index.checked_sub(1).map(|index| places_of_buffers[index]) {
                let at = machine.u64(bytes.len() as u64);
                bytes[place..place + 8].copy_from_slice(&at);
            }
            bytes.extend(if buffer.is_text { b"latency  \0" } else { b"flyrecord\0" });
            boundaries.push(bytes.len());
            if buffer.is_text {
                bytes.extend(b"# tracer: irqsoff\n");
                continue;
            }
            let list_at = bytes.len();
            bytes.resize(list_at + 16 * self.cpu_count as usize, 0);
            if index == 0 {
                bytes.extend(self.text("[mono]"));
            }
            boundaries.push(bytes.len());
            for (cpu, pages) in &buffer.cpus {
                bytes.resize(bytes.len().next_multiple_of(machine.page_byte_count), 0);
                boundaries.push(bytes.len());
                let content = pages.concat();
                let place = list_at + 16 * *cpu as usize;
                let entry =
                    [machine.u64(bytes.len() as u64), machine.u64(content.len() as u64)].concat();
                if place + 16 <= list_at + 16 * self.cpu_count as usize {
                    bytes[place..place + 16].copy_from_slice(&entry);
                }
                bytes.extend(content);
            }
            boundaries.push(bytes.len());
        }
        Written { bytes, boundaries, buffers_at, formats_at }
    }

    pub fn pack(&self, plain: &[u8]) -> Vec<u8> {
        let packed = match self.packing {
            Packing::None => return plain.to_vec(),
            Packing::Zlib => miniz_oxide::deflate::compress_to_vec_zlib(plain, 6),
            Packing::Zstd => {
                let mut packed = vec![0; zstd_safe::compress_bound(plain.len())];
                let byte_count = zstd_safe::compress(&mut packed[..], plain, 3).unwrap();
                packed.truncate(byte_count);
                packed
            }
        };
        let sizes = [self.machine.u32(packed.len() as u32), self.machine.u32(plain.len() as u32)];
        [sizes.concat(), packed].concat()
    }

    fn section_header(&self, number: u16, byte_count: usize) -> Vec<u8> {
        let machine = &self.machine;
        let flags = u16::from(self.packing != Packing::None);
        let numbers = [machine.u16(number), machine.u16(flags)].concat();
        [numbers, machine.u32(0), machine.u64(byte_count as u64)].concat()
    }

    fn section(&self, number: u16, plain: &[u8]) -> Vec<u8> {
        let content = self.pack(plain);
        [self.section_header(number, content.len()), content].concat()
    }

    fn version_7(&self) -> Written {
        let machine = &self.machine;
        let mut bytes = self.head();
        bytes.extend(match self.packing {
            Packing::None => &b"none\0\0"[..],
            Packing::Zstd => b"zstd\x001.5.4\0",
            Packing::Zlib => b"zlib\x001.2.13\0",
        });
        let first_place_at = bytes.len();
        bytes.extend(machine.u64(0));
        let mut boundaries = vec![0, bytes.len()];
        let mut options = Vec::new();
        let mut formats_at = 0;
        let parts = [
            (HEADER_INFO, self.header_info()),
            (FTRACE_EVENTS, self.ftrace_events()),
            (EVENT_FORMATS, self.event_formats()),
            (KALLSYMS, [machine.u32(4), b"none".to_vec()].concat()),
        ];
        for (number, content) in parts {
            options.push((number, machine.u64(bytes.len() as u64)));
            if number == EVENT_FORMATS {
                formats_at = bytes.len();
            }
            bytes.extend(self.section(number, &content));
            boundaries.push(bytes.len());
        }
        options.extend(self.options.iter().cloned());
        options.push((CPU_COUNT, machine.u32(self.cpu_count)));
        let mut next_place_at = self.push_options(&mut bytes, first_place_at, &options);
        boundaries.push(bytes.len());
        let mut buffers_at = Vec::new();
        for buffer in &self.buffers {
            buffers_at.push(bytes.len());
            let option = self.push_buffer(&mut bytes, buffer);
            boundaries.push(bytes.len());
            next_place_at = self.push_options(&mut bytes, next_place_at, &[option]);
            boundaries.push(bytes.len());
        }
        bytes.extend(self.section(STRINGS, b"options\0"));
        boundaries.push(bytes.len());
        Written { bytes, boundaries, buffers_at, formats_at }
    }

    /// Adds a section of options and writes its offset into the place reserved by the previous one.
    /// Returns the place that it reserves. It is never compressed, so that such a place exists.
    fn push_options(
        &self,
        bytes: &mut Vec<u8>,
        place_at: usize,
        options: &[(u16, Vec<u8>)],
    ) -> usize {
        let place = self.machine.u64(bytes.len() as u64);
        bytes[place_at..place_at + 8].copy_from_slice(&place);
        let mut content: Vec<u8> =
            options.iter().flat_map(|(number, data)| self.option(*number, data)).collect();
        content.extend(self.option(0, &self.machine.u64(0)));
        let numbers = [self.machine.u16(0), self.machine.u16(0)].concat();
        bytes.extend(numbers);
        bytes.extend(self.machine.u32(0));
        bytes.extend(self.machine.u64(content.len() as u64));
        bytes.extend(content);
        bytes.len() - 8
    }

    fn push_buffer(&self, bytes: &mut Vec<u8>, buffer: &Buffer) -> (u16, Vec<u8>) {
        let machine = &self.machine;
        let section_at = bytes.len();
        let texts = [buffer.name.as_bytes(), &[0], buffer.clock.as_bytes(), &[0]].concat();
        let mut option = [machine.u64(section_at as u64), texts].concat();
        let number = if buffer.is_text { BUFFER_TEXT } else { BUFFER };
        bytes.extend(self.section_header(number, 0));
        if buffer.is_text {
            bytes.extend(b"# tracer: irqsoff\n");
        } else {
            option.extend(machine.u32(buffer.page_byte_count as u32));
            option.extend(machine.u32(buffer.cpus.len() as u32));
        }
        for (cpu, pages) in &buffer.cpus {
            bytes.resize(bytes.len().next_multiple_of(machine.page_byte_count), 0);
            let at = bytes.len();
            let byte_count = match self.packing {
                Packing::None => {
                    bytes.extend(pages.concat());
                    bytes.len() - at
                }
                _ => {
                    let chunks = pages.chunks(2);
                    bytes.extend(machine.u32(chunks.len() as u32));
                    for chunk in chunks.clone() {
                        bytes.extend(self.pack(&chunk.concat()));
                    }
                    // Like trace-cmd, which does not count the sizes.
                    bytes.len() - at - 4 - 8 * chunks.len()
                }
            };
            option.extend(machine.u32(*cpu));
            option.extend(machine.u64(at as u64));
            option.extend(machine.u64(byte_count as u64));
        }
        let content_byte_count = machine.u64((bytes.len() - section_at - 16) as u64);
        bytes[section_at + 8..section_at + 16].copy_from_slice(&content_byte_count);
        (number, option)
    }
}
