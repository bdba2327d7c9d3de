//! A page of the kernel's ring buffer (kernel/trace/ring_buffer.c): the time of its first record,
//! the size of its records, and the records.
//!
//! ```text
//!   0         8          16                            commit
//!   | time    | commit   | record | record | ... | record | lost count? |
//! ```
//!
//! Each record begins with a word: five bits of type or length, and the nanoseconds since the
//! previous record. A page that follows lost events has a flag in the upper bits of `commit`, and
//! another flag if their number is stored after the records. The file's `header_page` says where
//! the parts are and how wide a `long` is.

use crate::byte_order::ByteOrder;
use crate::tracepoint::Field;

/// The kernel rejects larger sub-buffers, and so do we, because each CPU holds one.
pub(super) const MAX_PAGE_BYTE_COUNT: u64 = 1 << 20;
/// No machine has smaller pages.
pub(super) const MIN_PAGE_BYTE_COUNT: u64 = 1 << 9;

const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_COUNT_STORED: u64 = 1 << 30;
const COMMIT_MASK: u64 = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
const DELTA_BIT_COUNT: u32 = 27;
/// The bits of the time that an absolute time stamp omits.
const TIME_STAMP_MISSING_BITS: u64 = 0xf8 << 56;
/// Delta of a discarded record that had none. A delta of zero would mean the end of the page.
const NO_DELTA: u64 = 1;

/// Where the parts of a page are.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLayout {
    order: ByteOrder,
    time_at: usize,
    commit_at: usize,
    long_byte_count: usize,
    data_at: usize,
    /// The size of header and records at most, according to the kernel.
    pub(super) page_byte_count: Option<u64>,
}

impl PageLayout {
    /// Parses a `header_page`. Whatever it omits is taken to be as in all kernels so far.
    pub(super) fn parse(header_page: &[u8], order: ByteOrder, long_byte_count: u8) -> Self {
        let text = String::from_utf8_lossy(header_page);
        let fields: Vec<Field> = text
            .lines()
            .filter(|line| line.trim_start().starts_with("field"))
            .filter_map(|line| Field::parse(line.trim()))
            .collect();
        let field = |name: &str| fields.iter().find(|field| field.name == name);
        let commit = field("commit").filter(|field| matches!(field.byte_count, 4 | 8));
        let long_byte_count =
            commit.map_or(if long_byte_count == 4 { 4 } else { 8 }, |commit| commit.byte_count);
        let commit_at = commit.map_or(8, |commit| commit.offset);
        let data = field("data");
        Self {
            order,
            time_at: field("timestamp").map_or(0, |time| time.offset),
            commit_at,
            long_byte_count,
            data_at: data.map_or(commit_at + long_byte_count, |data| data.offset),
            page_byte_count: data.map(|data| (data.offset + data.byte_count) as u64),
        }
    }

    /// The offset of the records in the page.
    pub(super) fn data_at(&self) -> usize {
        self.data_at
    }

    /// Splits a page into its parts; `None` if its header is impossible.
    pub(super) fn page<'a>(&self, page: &'a [u8]) -> Option<Page<'a>> {
        let time = self.order.u64_at(page, self.time_at)?;
        let commit = self.long_at(page, self.commit_at)?;
        let data_end = self.data_at + (commit & COMMIT_MASK) as usize;
        let data = page.get(self.data_at..data_end)?;
        let lost_event_count = (commit & MISSED_EVENTS != 0).then(|| {
            let stored = Some(commit & MISSED_COUNT_STORED).filter(|&stored| stored != 0);
            // A full page has no room for the number.
            stored.and_then(|_| self.long_at(page, data_end)).unwrap_or(1).max(1)
        });
        Some(Page { lost_event_count, records: Records { order: self.order, data, at: 0, time } })
    }

    fn long_at(&self, bytes: &[u8], at: usize) -> Option<u64> {
        match self.long_byte_count {
            4 => self.order.u32_at(bytes, at).map(u64::from),
            _ => self.order.u64_at(bytes, at),
        }
    }
}

/// The parts of a page.
pub(super) struct Page<'a> {
    /// How many events were lost before it. If the kernel does not say how many, one.
    pub(super) lost_event_count: Option<u64>,
    pub(super) records: Records<'a>,
}

/// The records of a page.
pub(super) struct Records<'a> {
    order: ByteOrder,
    data: &'a [u8],
    at: usize,
    /// The time of the last record read, or of the page before that. In the clock's own units.
    time: u64,
}

/// The rest of a page, if it is not a record.
pub(super) struct BrokenRecord {
    /// Where it begins, counted from the end of the page's header.
    pub(super) at: usize,
    pub(super) byte_count: usize,
}

impl<'a> Records<'a> {
    /// The time of the last record read, or of the page before that.
    pub(super) fn at(&self) -> u64 {
        self.time
    }

    /// The next record's time and content; `None` at the page's end.
    #[inline]
    pub(super) fn next_record(&mut self) -> Option<Result<(u64, &'a [u8]), BrokenRecord>> {
        while self.at < self.data.len() {
            let Some(record) = self.read_one() else {
                let at = std::mem::replace(&mut self.at, self.data.len());
                return Some(Err(BrokenRecord { at, byte_count: self.data.len() - at }));
            };
            match record {
                Record::Event(content) => return Some(Ok((self.time, content))),
                Record::Nothing => {}
                Record::End => break,
            }
        }
        None
    }

    /// Returns `None` if the record extends past the data.
    #[inline]
    fn read_one(&mut self) -> Option<Record<'a>> {
        let word = self.order.u32_at(self.data, self.at)?;
        let (kind, delta) = match self.order {
            ByteOrder::Little => (word & 0x1f, word >> 5),
            ByteOrder::Big => (word >> DELTA_BIT_COUNT, word & ((1 << DELTA_BIT_COUNT) - 1)),
        };
        let delta = u64::from(delta);
        let content_at = self.at + 4;
        match kind {
            TYPE_PADDING if delta == 0 => return Some(Record::End),
            TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                let upper = u64::from(self.order.u32_at(self.data, content_at)?);
                let time = upper << DELTA_BIT_COUNT | delta;
                self.time = match kind {
                    TYPE_TIME_EXTEND => self.time.wrapping_add(time),
                    _ => time | self.time & TIME_STAMP_MISSING_BITS,
                };
                self.at = content_at + 4;
                return Some(Record::Nothing);
            }
            _ => {}
        }
        // The length of a long or discarded record is in the next word.
        let (start, byte_count) = match kind {
            0 | TYPE_PADDING => {
                let byte_count = self.order.u32_at(self.data, content_at)? as usize;
                (content_at + 4, byte_count.checked_sub(4)?)
            }
            words => (content_at, words as usize * 4),
        };
        let end = start.checked_add(byte_count)?;
        let content = self.data.get(start..end)?;
        self.at = end.next_multiple_of(4);
        if kind == TYPE_PADDING {
            if delta != NO_DELTA {
                self.time = self.time.wrapping_add(delta);
            }
            return Some(Record::Nothing);
        }
        self.time = self.time.wrapping_add(delta);
        Some(Record::Event(content))
    }
}

enum Record<'a> {
    Event(&'a [u8]),
    /// Only time passed.
    Nothing,
    /// The rest of the page is empty.
    End,
}
