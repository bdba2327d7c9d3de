//! The block of event descriptions in the files of perf and trace-cmd.
//!
//! Both use the format of perf's old util/trace-event-info.c: a magic number, the machine's byte
//! order and word sizes, then the `format` files of the events, system by system, each preceded by
//! its length. What follows the events (symbols, printk strings) is not read.

use crate::byte_order::ByteOrder;
use crate::tracepoint::EventFormat;

pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// No kernel has nearly as many events. A longer list is cut here.
const MAX_EVENT_COUNT: usize = 1 << 16;

/// The event descriptions of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingData {
    /// The byte order of the recorded machine.
    pub order: ByteOrder,
    /// The size of a `long` in its kernel, in bytes.
    pub long_byte_count: u8,
    /// The size of a memory page in bytes; zero if it is not given.
    pub page_byte_count: u32,
    /// The description of a page of the kernel's ring buffer.
    pub header_page: Vec<u8>,
    /// The descriptions, each with the name of its system.
    pub events: Vec<(String, EventFormat)>,
    /// The number of bytes from the beginning of the block to the end of the descriptions.
    pub byte_count: usize,
    /// Whether the block ends before its last event.
    pub is_cut: bool,
}

impl TracingData {
    /// Parses a block, as far as it is complete; `None` if its head is not complete.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut cursor = Cursor { rest: block.strip_prefix(MAGIC)?, order: ByteOrder::Little };
        cursor.string()?; // The version: "0.5", "0.6" or "6", the same up to the events' end.
        cursor.order = match cursor.bytes(1)? {
            [0] => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let long_byte_count = *cursor.bytes(1)?.first()?;
        let mut data = Self::empty(cursor.order, long_byte_count);
        data.is_cut = data.read_events(&mut cursor).is_none();
        data.byte_count = block.len() - cursor.rest.len();
        Some(data)
    }

    /// A value without descriptions.
    pub(super) fn empty(order: ByteOrder, long_byte_count: u8) -> Self {
        Self {
            order,
            long_byte_count,
            page_byte_count: 0,
            header_page: Vec::new(),
            events: Vec::new(),
            byte_count: 0,
            is_cut: false,
        }
    }

    /// Adds a separate part, as in version 7 of trace.dat.
    pub(super) fn add(&mut self, part: Part, bytes: &[u8]) {
        let mut cursor = Cursor { rest: bytes, order: self.order };
        let read = match part {
            Part::Headers => self.read_headers(&mut cursor),
            Part::FtraceEvents => self.read_ftrace_events(&mut cursor),
            Part::Systems => self.read_systems(&mut cursor),
        };
        self.is_cut |= read.is_none();
    }

    /// Returns `None` if the block ends too early, and so do the methods below.
    fn read_events(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        self.page_byte_count = cursor.u32()?;
        self.read_headers(cursor)?;
        self.read_ftrace_events(cursor)?;
        self.read_systems(cursor)
    }

    fn read_headers(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        cursor.string()?;
        self.header_page = cursor.text()?.to_owned();
        cursor.string()?;
        cursor.text()?;
        Some(())
    }

    fn read_ftrace_events(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let event_count = cursor.u32()?;
        for _ in 0..event_count {
            self.push("ftrace", cursor.text()?)?;
        }
        Some(())
    }

    fn read_systems(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let system_count = cursor.u32()?;
        for _ in 0..system_count {
            let system = String::from_utf8_lossy(cursor.string()?).into_owned();
            let event_count = cursor.u32()?;
            for _ in 0..event_count {
                self.push(&system, cursor.text()?)?;
            }
        }
        Some(())
    }

    fn push(&mut self, system: &str, text: &[u8]) -> Option<()> {
        if self.events.len() == MAX_EVENT_COUNT {
            return None;
        }
        self.events.extend(EventFormat::parse(text).map(|format| (system.to_owned(), format)));
        Some(())
    }
}

/// A part of a block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The layout of the ring buffer's pages and records.
    Headers,
    /// The events of the function tracer and similar ones.
    FtraceEvents,
    /// All other events, system by system.
    Systems,
}

struct Cursor<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, byte_count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(byte_count)?;
        self.rest = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.order.u32_at(self.bytes(4)?, 0)
    }

    /// Reads a string that ends with a zero byte, and returns it without that byte.
    fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        let taken = self.bytes(end + 1)?;
        taken.get(..end)
    }

    /// Reads a text that is preceded by its length in eight bytes.
    fn text(&mut self) -> Option<&'a [u8]> {
        let byte_count = self.order.u64_at(self.bytes(8)?, 0)?;
        self.bytes(usize::try_from(byte_count).ok()?)
    }
}
