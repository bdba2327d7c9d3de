//! One CPU's part of a buffer: its pages in order, plain or in compressed chunks.
//!
//! A broken page or chunk loses only its own records, because the next one begins at a known
//! offset. Memory holds a few pages for each CPU, whatever the file's size.

use super::pack::Unpacker;
use crate::byte_order::ByteOrder;
use crate::import::source::{ReadAt, fill_at};
use crate::import::{ImportError, Truncation, TruncationReason};

/// Plain pages are read in blocks of this size, or one by one if they are larger.
const BLOCK_BYTE_COUNT: u64 = 1 << 16;
/// The most pages in a chunk. trace-cmd puts ten into one.
pub(super) const MAX_CHUNK_PAGE_COUNT: u64 = 16;
/// By how much compression may enlarge a chunk.
const MAX_PACKED_OVERHEAD_BYTE_COUNT: u64 = 1 << 12;
/// The header of a chunk: its compressed and its uncompressed size.
const CHUNK_HEADER_BYTE_COUNT: u64 = 8;

/// Where a CPU's data is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The file's buffer that it belongs to.
    pub(super) buffer: u16,
    pub(super) cpu: u16,
    pub(super) at_byte: u64,
    pub(super) byte_count: u64,
    /// The offset that it cannot extend beyond. trace-cmd does not count chunk headers in the size
    /// of compressed data, so such data continues past its stated end.
    pub(super) limit: u64,
    pub(super) page_byte_count: u64,
    pub(super) is_packed: bool,
}

impl Region {
    /// The end of its data according to the file.
    pub(super) fn end(&self) -> u64 {
        self.at_byte.saturating_add(self.byte_count)
    }
}

/// The part of a file that could not be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Damage(pub(super) Option<Truncation>);

impl Damage {
    /// Adds a damaged place.
    pub(super) fn add(&mut self, at_byte: u64, lost_byte_count: u64, reason: TruncationReason) {
        self.merge(Self(Some(Truncation { at_byte, lost_byte_count, reason })));
    }

    /// Keeps the first place, and adds up what is lost.
    pub(super) fn merge(&mut self, other: Self) {
        self.0 = match (self.0, other.0) {
            (Some(a), Some(b)) => {
                let first = if b.at_byte < a.at_byte { b } else { a };
                let lost_byte_count = a.lost_byte_count.saturating_add(b.lost_byte_count);
                Some(Truncation { lost_byte_count, ..first })
            }
            (a, b) => a.or(b),
        };
    }
}

/// Reads a region's pages.
pub(super) struct Stream<'a> {
    source: &'a dyn ReadAt,
    order: ByteOrder,
    pub(super) region: Region,
    /// The offset of the next block or chunk.
    at_byte: u64,
    /// The end of reading: the region's limit, or the end of the file if that comes first.
    end: u64,
    /// How many chunks are left, once that is known.
    chunk_count: Option<u32>,
    packed: Vec<u8>,
    /// Complete pages.
    pages: Vec<u8>,
    /// How many bytes of `pages` have been returned.
    given: usize,
    /// The offset of the block or chunk that `pages` came from.
    pages_at: u64,
    pub(super) damage: Damage,
    /// Whether something between the last page and the next could not be read.
    pub(super) has_hole: bool,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        source: &'a dyn ReadAt,
        order: ByteOrder,
        region: Region,
        file_byte_count: u64,
    ) -> Self {
        let mut damage = Damage::default();
        if file_byte_count < region.end() {
            let lost_byte_count = region.end() - file_byte_count.max(region.at_byte);
            damage.add(file_byte_count, lost_byte_count, TruncationReason::CutShort);
        }
        let end = region.limit.min(file_byte_count);
        Self {
            source,
            order,
            region,
            at_byte: region.at_byte,
            end,
            chunk_count: None,
            packed: Vec::new(),
            pages: Vec::new(),
            given: 0,
            pages_at: region.at_byte,
            damage,
            has_hole: false,
        }
    }

    /// How far the region has been read.
    pub(super) fn read_byte_count(&self) -> u64 {
        self.at_byte.saturating_sub(self.region.at_byte)
    }

    /// The next page and its offset. In a compressed region that is the chunk's offset, and
    /// `unpacker` is needed.
    pub(super) fn next_page(
        &mut self,
        unpacker: Option<&mut Unpacker>,
    ) -> Result<Option<(&[u8], u64)>, ImportError> {
        if self.given >= self.pages.len() {
            self.given = 0;
            let is_filled = match unpacker {
                Some(unpacker) if self.region.is_packed => self.read_chunk(unpacker)?,
                _ => self.read_block()?,
            };
            if !is_filled {
                // Nothing more is read from it, and a machine may have hundreds of CPUs.
                (self.pages, self.packed) = (Vec::new(), Vec::new());
                return Ok(None);
            }
        }
        let start = self.given;
        self.given += self.region.page_byte_count as usize;
        let at_byte = match self.region.is_packed {
            false => self.pages_at + start as u64,
            true => self.pages_at,
        };
        Ok(self.pages.get(start..self.given).map(|page| (page, at_byte)))
    }

    /// Returns false at the region's end.
    fn read_block(&mut self) -> Result<bool, ImportError> {
        let page_byte_count = self.region.page_byte_count;
        let left = self.end.saturating_sub(self.at_byte);
        let block = (BLOCK_BYTE_COUNT / page_byte_count).max(1) * page_byte_count;
        let wanted = block.min(left) as usize;
        self.pages.resize(wanted, 0);
        let filled = fill_at(self.source, &mut self.pages, self.at_byte)?;
        let whole = filled - filled % page_byte_count as usize;
        self.pages.truncate(whole);
        self.pages_at = self.at_byte;
        if filled > whole {
            let at_byte = self.at_byte + whole as u64;
            self.damage.add(at_byte, (filled - whole) as u64, TruncationReason::CutShort);
        }
        self.at_byte += filled as u64;
        Ok(whole > 0)
    }

    /// Reads chunks until one is complete; false if there is none.
    fn read_chunk(&mut self, unpacker: &mut Unpacker) -> Result<bool, ImportError> {
        loop {
            self.pages_at = self.at_byte;
            let count = match self.chunk_count {
                Some(count) => count,
                None if self.end <= self.at_byte => return Ok(false),
                None => match self.read_u32s::<1>()? {
                    Some([count]) => count,
                    None => return Ok(self.stop(TruncationReason::CutShort)),
                },
            };
            let Some(left) = count.checked_sub(1) else { return Ok(false) };
            self.chunk_count = Some(left);
            self.pages_at = self.at_byte;
            let Some([packed_byte_count, byte_count]) = self.read_u32s::<2>()? else {
                return Ok(self.stop(TruncationReason::CutShort));
            };
            let (packed_byte_count, byte_count) =
                (u64::from(packed_byte_count), u64::from(byte_count));
            let page_byte_count = self.region.page_byte_count;
            let limit = page_byte_count * MAX_CHUNK_PAGE_COUNT;
            if byte_count > limit || packed_byte_count > limit + MAX_PACKED_OVERHEAD_BYTE_COUNT {
                return Ok(self.stop(TruncationReason::BrokenRecord));
            }
            if packed_byte_count > self.end.saturating_sub(self.at_byte) {
                return Ok(self.stop(TruncationReason::CutShort));
            }
            self.packed.resize(packed_byte_count as usize, 0);
            let filled = fill_at(self.source, &mut self.packed, self.at_byte)?;
            if filled < self.packed.len() {
                return Ok(self.stop(TruncationReason::CutShort));
            }
            self.at_byte += packed_byte_count;
            let unpacked = unpacker.unpack(&self.packed, byte_count as usize, &mut self.pages);
            let is_whole_pages = byte_count > 0 && byte_count.is_multiple_of(page_byte_count);
            let reason = match unpacked {
                Some(()) if is_whole_pages => return Ok(true),
                Some(()) => TruncationReason::BrokenRecord,
                None => TruncationReason::BrokenCompression,
            };
            self.pages = Vec::new();
            let lost_byte_count = packed_byte_count + CHUNK_HEADER_BYTE_COUNT;
            self.damage.add(self.pages_at, lost_byte_count, reason);
            self.has_hole = true;
        }
    }

    /// Abandons the rest of a compressed region, from its last chunk on.
    fn stop(&mut self, reason: TruncationReason) -> bool {
        let lost_byte_count = self.end.min(self.region.end()).saturating_sub(self.pages_at);
        self.damage.add(self.pages_at.min(self.end), lost_byte_count, reason);
        self.chunk_count = Some(0);
        self.at_byte = self.end;
        false
    }

    /// Reads words if the region has enough bytes.
    fn read_u32s<const N: usize>(&mut self) -> Result<Option<[u32; N]>, ImportError> {
        let byte_count = N * 4;
        if (byte_count as u64) > self.end.saturating_sub(self.at_byte) {
            return Ok(None);
        }
        self.packed.resize(byte_count, 0);
        if fill_at(self.source, &mut self.packed, self.at_byte)? < byte_count {
            return Ok(None);
        }
        self.at_byte += byte_count as u64;
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.order.u32_at(&self.packed, index * 4).unwrap_or(0);
        }
        Ok(Some(words))
    }
}
