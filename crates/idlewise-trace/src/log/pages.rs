//! The pages of one column, decompressed and checked before the Parquet crate decodes their values.
//!
//! ```text
//! chunk ─► header ─► sizes, counts, encoding ─► unpack ─► levels, values ─► Page ─► decoder
//! ```
//!
//! Names, as those of wake reasons, are replaced by numbers here, in a dictionary or in a page of values,
//! because decoding strings takes longer than all other columns together: the decoder counts
//! references to each value.
//!
//! The Parquet crate trusts its input. Its decoders assert or index if a number or a length is too
//! large, a dictionary is missing or a block has no values, and they allocate as much as a header
//! asks for. We therefore check exactly what they will read.

use std::cell::RefCell;

use bytes::Bytes;
use parquet::basic::{Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

use super::Form;
use super::thrift::{Kind, Reader};

/// The most bytes that any encoding we read takes for a value including its level, or for what
/// precedes all values. The longest name, of a workload log's causes, has 9 bytes.
const VALUE_BYTE_COUNT_MAX: u64 = 16;
const PREFIX_BYTE_COUNT_MAX: u64 = 4096;
/// For DELTA_BINARY_PACKED. Writers use 128 and 256.
const DELTA_BLOCK_VALUE_COUNT_MAX: u64 = 1 << 16;

thread_local! {
    /// Creating a decompressor takes longer than decompressing a short column, and a log of many
    /// CPUs has many short columns.
    static UNPACKER: RefCell<zstd_safe::DCtx<'static>> = RefCell::new(zstd_safe::DCtx::create());
}
const DATA_PAGE_V2: i64 = 3;
/// Encodings that other programs may choose: BIT_PACKED, the two delta encodings of strings,
/// BYTE_STREAM_SPLIT.
const OTHER_ENCODINGS: &[i64] = &[4, 6, 7, 9];

/// Reads a column's pages. If a column has fewer rows than its row group, it ends early.
pub(crate) struct Pages {
    /// The rest of the column.
    chunk: Bytes,
    is_compressed: bool,
    form: Form,
    row_count_left: u64,
    has_dictionary: bool,
}

/// `PageHeader` in parquet-format's `parquet.thrift`. A missing number is -1.
struct Header {
    page_type: i64,
    unpacked_byte_count: i64,
    packed_byte_count: i64,
    value_count: i64,
    encoding: i64,
    level_encoding: i64,
}

fn damaged<T>(what: &str) -> Result<T> {
    Err(ParquetError::General(what.to_owned()))
}

/// Valid, but in a form that we do not write.
fn foreign<T>(what: &str) -> Result<T> {
    Err(ParquetError::NYI(what.to_owned()))
}

impl Pages {
    pub(crate) fn new(form: Form, chunk: Bytes, is_compressed: bool, row_count: u64) -> Self {
        Pages { chunk, is_compressed, form, row_count_left: row_count, has_dictionary: false }
    }

    fn next_page(&mut self) -> Result<Page> {
        let mut reader = Reader::new(&self.chunk);
        let Some(header) = Header::read(&mut reader) else {
            return damaged("a page header can't be decoded");
        };
        if header.page_type == DATA_PAGE_V2 {
            return foreign("a page is of version 2");
        }
        let header_byte_count = self.chunk.len() - reader.len();
        let counts = (
            u64::try_from(header.unpacked_byte_count),
            usize::try_from(header.packed_byte_count),
            u32::try_from(header.value_count),
        );
        let (Ok(unpacked_byte_count), Ok(packed_byte_count), Ok(value_count)) = counts else {
            return damaged("a page header lacks a count");
        };
        if u64::from(value_count) > self.row_count_left {
            return damaged("a page has more values than its row group has rows");
        }
        let most = u64::from(value_count) * VALUE_BYTE_COUNT_MAX + PREFIX_BYTE_COUNT_MAX;
        if packed_byte_count > reader.len() || unpacked_byte_count > most {
            return damaged("a page is too long");
        }
        let packed = self.chunk.slice(header_byte_count..header_byte_count + packed_byte_count);
        self.chunk = self.chunk.slice(header_byte_count + packed_byte_count..);
        let unpacked = self.unpack(packed, unpacked_byte_count as usize)?;
        match header.page_type {
            0 => self.data_page(&header, value_count, unpacked),
            2 => self.dictionary_page(&header, value_count, unpacked),
            _ => damaged("a page is neither data (version 1) nor a dictionary"),
        }
    }

    fn unpack(&self, packed: Bytes, unpacked_byte_count: usize) -> Result<Bytes> {
        let unpacked = if self.is_compressed {
            let mut unpacked = Vec::with_capacity(unpacked_byte_count);
            if UNPACKER.with_borrow_mut(|it| it.decompress(&mut unpacked, &packed)).is_err() {
                return damaged("a page can't be unpacked");
            }
            unpacked.into()
        } else {
            packed
        };
        if unpacked.len() == unpacked_byte_count {
            return Ok(unpacked);
        }
        damaged("a page has another length than its header says")
    }

    fn dictionary_page(&mut self, header: &Header, value_count: u32, buf: Bytes) -> Result<Page> {
        let is_known =
            matches!(header.encoding, 0 | 2) && self.form.physical != PhysicalType::BOOLEAN;
        if !is_known || self.has_dictionary {
            return damaged("a second dictionary, or one of an unknown kind");
        }
        if !has_plain_values(self.form.physical, &buf, value_count.into()) {
            return damaged("a dictionary is cut off");
        }
        self.has_dictionary = true;
        let buf = self.with_numbers(buf, value_count.into());
        let encoding = Encoding::PLAIN;
        Ok(Page::DictionaryPage { buf, num_values: value_count, encoding, is_sorted: false })
    }

    fn data_page(&mut self, header: &Header, row_count: u32, buf: Bytes) -> Result<Page> {
        if row_count == 0 {
            // The Parquet crate would treat it as the end.
            return damaged("a page has no values");
        }
        let mut values = Reader::new(&buf);
        let mut value_count = u64::from(row_count);
        if self.form.is_nullable {
            if header.level_encoding != 3 {
                return damaged("nulls are marked in an unknown way");
            }
            let ones = prefixed(&mut values).and_then(|levels| check_runs(levels, 1, value_count));
            let Some(ones) = ones else { return damaged("marks of nulls are cut off") };
            value_count = ones;
        }
        let Some((encoding, is_whole)) = self.check_values(header.encoding, &values, value_count)
        else {
            let refuse = if OTHER_ENCODINGS.contains(&header.encoding) { foreign } else { damaged };
            return refuse("a page is encoded in a way that its column never is");
        };
        if !is_whole {
            return damaged("values are cut off");
        }
        self.row_count_left -= u64::from(row_count);
        let buf = match encoding {
            Encoding::PLAIN => self.with_numbers(buf, value_count),
            _ => buf,
        };
        Ok(Page::DataPage {
            buf,
            num_values: row_count,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })
    }

    /// The values, with names as numbers. The decoder then reads the column as INT32.
    fn with_numbers(&self, values: Bytes, value_count: u64) -> Bytes {
        let Some(number_of) = self.form.number_of else { return values };
        let mut names = Reader::new(&values);
        let names = (0..value_count).map_while(|_| prefixed(&mut names));
        names.flat_map(|name| number_of(name).to_le_bytes()).collect()
    }

    /// Returns the encoding if we read it in this column, and checks that all values are present.
    fn check_values(
        &self,
        encoding: i64,
        values: &Reader<'_>,
        value_count: u64,
    ) -> Option<(Encoding, bool)> {
        let mut values = Reader::new(values.rest());
        Some(match (encoding, self.form.physical) {
            (0, of) => (Encoding::PLAIN, has_plain_values(of, values.rest(), value_count)),
            (3, PhysicalType::BOOLEAN) => {
                let runs = prefixed(&mut values);
                (Encoding::RLE, runs.and_then(|runs| check_runs(runs, 1, value_count)).is_some())
            }
            (5, PhysicalType::INT32) => {
                (Encoding::DELTA_BINARY_PACKED, check_deltas(values, 32, value_count).is_some())
            }
            (5, PhysicalType::INT64) => {
                (Encoding::DELTA_BINARY_PACKED, check_deltas(values, 64, value_count).is_some())
            }
            (2 | 8, _) if self.has_dictionary => {
                let width = values.byte().filter(|&width| width <= 32);
                let runs = width.and_then(|width| check_runs(values.rest(), width, value_count));
                (Encoding::RLE_DICTIONARY, runs.is_some())
            }
            _ => return None,
        })
    }
}

impl Header {
    fn read(reader: &mut Reader<'_>) -> Option<Header> {
        let mut header = Header {
            page_type: -1,
            unpacked_byte_count: -1,
            packed_byte_count: -1,
            value_count: -1,
            encoding: -1,
            level_encoding: -1,
        };
        reader.fields(|reader, id, kind| {
            match (id, kind) {
                (1, _) => header.page_type = reader.int(kind)?,
                (2, _) => header.unpacked_byte_count = reader.int(kind)?,
                (3, _) => header.packed_byte_count = reader.int(kind)?,
                // `DataPageHeader` and `DictionaryPageHeader` begin alike.
                (5 | 7, Kind::Struct) => reader.fields(|reader, id, kind| {
                    match id {
                        1 => header.value_count = reader.int(kind)?,
                        2 => header.encoding = reader.int(kind)?,
                        3 if kind == Kind::Int => header.level_encoding = reader.int(kind)?,
                        _ => reader.skip(kind)?,
                    }
                    Some(())
                })?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })?;
        Some(header)
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if self.chunk.is_empty() || self.row_count_left == 0 {
            return Ok(None);
        }
        self.next_page().map(Some)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        damaged("pages are read in order only")
    }

    fn skip_next_page(&mut self) -> Result<()> {
        damaged("pages are read in order only")
    }
}

/// Reads a length of 4 bytes, then that many bytes.
fn prefixed<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.take(4)?.try_into().ok().map(u32::from_le_bytes)?;
    reader.take(usize::try_from(len).ok()?)
}

/// Whether there are enough values in PLAIN encoding.
fn has_plain_values(physical_type: PhysicalType, bytes: &[u8], value_count: u64) -> bool {
    let byte_count = match physical_type {
        PhysicalType::BOOLEAN => value_count.div_ceil(8),
        PhysicalType::INT32 => value_count * 4,
        PhysicalType::INT64 => value_count * 8,
        _ => {
            let mut reader = Reader::new(bytes);
            return (0..value_count).all(|_| prefixed(&mut reader).is_some());
        }
    };
    byte_count <= bytes.len() as u64
}

/// Walks runs of values of `width` bits, each either repeated or packed in groups of 8, up to
/// `value_count` values. `None` if there are fewer; the sum of the values if `width` is 1.
fn check_runs(bytes: &[u8], width: u8, value_count: u64) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    let (mut left, mut ones) = (value_count, 0);
    if left == 0 && !bytes.is_empty() {
        // The decoder always reads the header of the first run.
        reader.varint()?;
    }
    while left > 0 {
        let head = reader.varint().filter(|&head| head > 1 && head <= u64::from(u32::MAX))?;
        if head & 1 == 0 {
            let count = left.min(head >> 1);
            let mut value = [0; 4];
            let value_byte_count = usize::from(width.div_ceil(8));
            value[..value_byte_count].copy_from_slice(reader.take(value_byte_count)?);
            let value = u64::from(u32::from_le_bytes(value));
            (value >> width == 0).then_some(())?;
            if width == 1 {
                ones += count * value;
            }
            left -= count;
        } else {
            let group_count = head >> 1;
            let count = left.min(group_count * 8);
            // The last group may end with its last value.
            let byte_count = (count * u64::from(width)).div_ceil(8);
            let packed = reader.take(usize::try_from(byte_count).ok()?)?;
            if width == 1 {
                ones += count_ones(packed, count);
            }
            left -= count;
            if left > 0 {
                let padding = group_count * u64::from(width) - byte_count;
                reader.take(usize::try_from(padding).ok()?)?;
            }
        }
    }
    Some(ones)
}

/// How many of the first `count` bits are set.
fn count_ones(bytes: &[u8], count: u64) -> u64 {
    let ones: u64 = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let excess = bytes.len() as u64 * 8 - count;
    let last = bytes.last().map_or(0, |byte| u16::from(*byte) >> (8 - excess));
    ones - u64::from(last.count_ones())
}

/// Walks a DELTA_BINARY_PACKED page that has exactly `value_count` values of `width_max` bits.
fn check_deltas(mut reader: Reader<'_>, width_max: u8, value_count: u64) -> Option<()> {
    let block_value_count = reader.varint()?;
    let part_count = reader.varint()?;
    let said_count = reader.varint()?;
    reader.zigzag()?;
    let is_block_sound = (1..=DELTA_BLOCK_VALUE_COUNT_MAX).contains(&block_value_count)
        && block_value_count.is_multiple_of(128)
        && part_count > 0
        && block_value_count.is_multiple_of(part_count.saturating_mul(32));
    if !is_block_sound || said_count != value_count {
        return None;
    }
    let part_value_count = block_value_count / part_count;
    // The first value precedes all blocks.
    let mut left = value_count.saturating_sub(1);
    while left > 0 {
        reader.zigzag()?;
        let widths = reader.take(usize::try_from(part_count).ok()?)?;
        for &width in widths {
            if left == 0 {
                break;
            }
            (width <= width_max).then_some(())?;
            let count = left.min(part_value_count);
            let byte_count = (count * u64::from(width)).div_ceil(8);
            reader.take(usize::try_from(byte_count).ok()?)?;
            left -= count;
            if left > 0 {
                let padding = part_value_count * u64::from(width) / 8 - byte_count;
                reader.take(usize::try_from(padding).ok()?)?;
            }
        }
    }
    Some(())
}
