//! The block of event descriptions that perf and trace-cmd put into their files.
//!
//! Both write what util/trace-event-info.c of perf once wrote: a magic, the machine's byte order
//! and word sizes, then the `format` files of the events, system by system. It tells each text's
//! length before the text. What follows the events (symbols, printk strings) is not read.

use crate::byte_order::ByteOrder;
use crate::tracepoint::EventFormat;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// No kernel has near as many events; a block that promises more is cut there.
const MAX_EVENT_COUNT: usize = 1 << 16;

/// The event descriptions of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingData {
    /// The byte order of the machine that recorded.
    pub order: ByteOrder,
    /// How many bytes a `long` had in its kernel.
    pub long_byte_count: u8,
    /// The descriptions, each with its system's name.
    pub events: Vec<(String, EventFormat)>,
    /// Whether the block ends before its last event.
    pub is_cut: bool,
}

impl TracingData {
    /// Reads a block, up to where it is cut; `None` if it has no whole head.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let mut cursor = Cursor { rest: block.strip_prefix(MAGIC)?, order: ByteOrder::Little };
        cursor.string()?; // The version: "0.5" or "0.6", the same up to the events' end.
        cursor.order = match cursor.bytes(1)? {
            [0] => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let long_byte_count = *cursor.bytes(1)?.first()?;
        let mut data =
            Self { order: cursor.order, long_byte_count, events: Vec::new(), is_cut: false };
        data.is_cut = data.read_events(&mut cursor).is_none();
        Some(data)
    }

    /// `None` where the block ends too early.
    fn read_events(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let _page_byte_count = cursor.u32()?;
        for _head in ["header_page", "header_event"] {
            cursor.string()?;
            cursor.text()?;
        }
        let ftrace_event_count = cursor.u32()?;
        for _ in 0..ftrace_event_count {
            self.push("ftrace", cursor.text()?)?;
        }
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

    /// A string that ends with a zero byte, which is not part of what it returns.
    fn string(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        let taken = self.bytes(end + 1)?;
        taken.get(..end)
    }

    /// A text with its length, eight bytes, in front.
    fn text(&mut self) -> Option<&'a [u8]> {
        let byte_count = self.order.u64_at(self.bytes(8)?, 0)?;
        self.bytes(usize::try_from(byte_count).ok()?)
    }
}
