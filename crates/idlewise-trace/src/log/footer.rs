//! Reads what we need from a Parquet footer, and checks it against the file's length.
//!
//! We do not use the Parquet crate's reader, because it does not terminate with some damaged
//! footers (see `thrift.rs`). Footer fields that are not in [`Footer`] are ignored.

use std::ops::{Range, RangeInclusive};

use parquet::basic::Type as PhysicalType;

use super::thrift::{Kind, Reader};
use super::{Form, METADATA_KEY, Refused};

/// The footer's length and the magic number.
pub(crate) const TAIL_BYTE_COUNT: u64 = 8;
/// Far more than any log needs: ours take about 1 KiB for 65,536 gaps.
const FOOTER_BYTE_COUNT_MAX: u64 = 64 << 20;
/// The largest row group that is accepted, because a group is held in memory whole. Ours have
/// 65,536 gaps; other writers by default make groups of at most this size.
pub(crate) const GROUP_ROW_COUNT_MAX: u64 = 1 << 20;
/// The most bytes per row in a column chunk: a value in a page of its own, with the page's header.
/// A chunk is read at once, and a sparse file could claim any length.
const CHUNK_ROW_BYTE_COUNT_MAX: i64 = 128;
const CHUNK_PREFIX_BYTE_COUNT_MAX: i64 = 1 << 16;

/// Where the footer of a file of `byte_count` bytes should be; `None` if it is not Parquet.
pub(crate) fn place(tail: &[u8], byte_count: u64) -> Option<Range<u64>> {
    let &[a, b, c, d, ref magic @ ..] = tail else { return None };
    let end = byte_count.checked_sub(TAIL_BYTE_COUNT)?;
    let footer_byte_count = u64::from(u32::from_le_bytes([a, b, c, d]));
    let start = end.checked_sub(footer_byte_count)?;
    (magic == b"PAR1" && footer_byte_count <= FOOTER_BYTE_COUNT_MAX).then_some(start..end)
}

pub(crate) struct Footer {
    pub row_count: u64,
    pub groups: Vec<FooterGroup>,
    /// The columns in the file's order. Every group has the same number.
    pub columns: Vec<Leaf>,
}

/// A column of the schema.
#[derive(Default)]
pub(crate) struct Leaf {
    name: String,
    physical_type: i64,
    repetition: i64,
    /// Whether it is annotated as a decimal, a date, a time or the like: another unit, or another scale.
    is_converted: bool,
    /// Whether it is annotated as an integer without a sign.
    pub(crate) is_unsigned: bool,
}

pub(crate) struct FooterGroup {
    pub row_count: u64,
    pub chunks: Vec<Chunk>,
}

/// A column of a row group.
pub(crate) struct Chunk {
    pub bytes: Range<u64>,
    pub is_compressed: bool,
    /// The least and greatest value, for 32-bit columns only. A value outside means damage.
    pub int32_range: Option<RangeInclusive<i32>>,
}

impl Leaf {
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// `IntType`.
    fn read_integer(&mut self, reader: &mut Reader<'_>, kind: Kind) -> Option<()> {
        read_struct(reader, kind, |reader, id, kind| {
            // `isSigned`. A boolean's value is its kind.
            self.is_unsigned |= id == 2 && kind == Kind::False;
            reader.skip(kind)
        })
    }

    /// Whether it has the type and nullability that we write. Integers with a sign will do.
    pub(crate) fn has_form(&self, form: &Form) -> bool {
        let physical_type = match form.physical {
            PhysicalType::BOOLEAN => 0,
            PhysicalType::INT32 => 1,
            PhysicalType::INT64 => 2,
            _ => 6,
        };
        let is_plain = physical_type == 6 || !self.is_converted;
        is_plain
            && self.physical_type == physical_type
            && self.repetition == i64::from(form.is_nullable)
    }
}

impl Chunk {
    fn byte_count(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }
}

/// The footer as the file has it. Missing numbers are 0 or -1, and are rejected later.
#[derive(Default)]
pub(crate) struct RawFooter {
    schema: Vec<SchemaElement>,
    row_count: i64,
    groups: Vec<RawGroup>,
    /// The value of our key; `None` if there is none.
    pub json: Option<String>,
}

impl RawFooter {
    /// Returns `None` if it cannot be decoded.
    pub(crate) fn decode(bytes: &[u8]) -> Option<RawFooter> {
        let mut footer = RawFooter::default();
        footer.read(&mut Reader::new(bytes))?;
        Some(footer)
    }

    /// Whether every required one of these columns is present by name.
    pub(crate) fn has_columns(&self, forms: impl Iterator<Item = Form>) -> bool {
        let mut required = forms.filter(|form| !form.is_nullable);
        required.all(|form| self.schema.iter().any(|element| element.leaf.is(form.name)))
    }

    /// Checks the footer of a file whose row groups have at most `data_byte_count` bytes. The error
    /// says what is damaged.
    pub(crate) fn check(self, data_byte_count: u64) -> Result<Footer, Refused> {
        let mut schema = self.schema.into_iter();
        let root = schema.next().ok_or("the footer has no schema")?;
        let schema: Vec<SchemaElement> = schema.collect();
        if root.child_count != schema.len() as i64 || schema.iter().any(|e| e.child_count != 0) {
            return Err(Refused::Foreign("a column has columns inside"));
        }
        let mut row_count = 0_u64;
        let mut chunks_byte_count = 0_u64;
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in self.groups {
            let group_row_count =
                u64::try_from(group.row_count).map_err(|_| "a row group has no row count")?;
            if group_row_count > GROUP_ROW_COUNT_MAX {
                return Err(Refused::Foreign("a row group is larger than 1 Mi rows"));
            }
            if group.chunks.len() != schema.len() {
                return Err("a row group has not all columns".into());
            }
            let mut chunks = Vec::with_capacity(group.chunks.len());
            for chunk in group.chunks {
                let chunk = chunk.check(group.row_count, data_byte_count)?;
                chunks_byte_count = chunks_byte_count.saturating_add(chunk.byte_count());
                chunks.push(chunk);
            }
            // Cannot overflow: there are fewer groups than bytes in the file.
            row_count += group_row_count;
            groups.push(FooterGroup { row_count: group_row_count, chunks });
        }
        // Otherwise a short file could repeat a chunk so often that reading would take forever.
        if chunks_byte_count > data_byte_count {
            return Err("row groups share bytes".into());
        }
        if self.row_count != row_count as i64 {
            return Err("the row groups have not as many rows as the file".into());
        }
        let columns = schema.into_iter().map(|element| element.leaf).collect();
        Ok(Footer { row_count, groups, columns })
    }
}

#[derive(Default)]
struct SchemaElement {
    leaf: Leaf,
    child_count: i64,
}

struct RawGroup {
    row_count: i64,
    chunks: Vec<RawChunk>,
}

#[derive(Default)]
struct RawChunk {
    is_elsewhere: bool,
    codec: i64,
    value_count: i64,
    byte_count: i64,
    data_offset: i64,
    dictionary_offset: Option<i64>,
    /// The least and greatest value, in the deprecated and the current fields.
    old_range: [Option<i32>; 2],
    new_range: [Option<i32>; 2],
}

impl RawChunk {
    fn check(&self, row_count: i64, data_byte_count: u64) -> Result<Chunk, Refused> {
        if self.is_elsewhere {
            return Err("a column is in another file".into());
        }
        if self.byte_count > row_count * CHUNK_ROW_BYTE_COUNT_MAX + CHUNK_PREFIX_BYTE_COUNT_MAX {
            return Err("a column has more bytes than its rows can take".into());
        }
        if self.value_count != row_count {
            return Err("a column has not as many rows as its row group".into());
        }
        let is_compressed = match self.codec {
            0 => false,
            6 => true,
            _ => return Err(Refused::Foreign("a column is compressed, but not with Zstandard")),
        };
        // Some writers put 0 if there is no dictionary.
        let start = self.dictionary_offset.filter(|&offset| offset > 0).unwrap_or(self.data_offset);
        let bytes = u64::try_from(start)
            .ok()
            .zip(u64::try_from(self.byte_count).ok())
            .and_then(|(start, byte_count)| Some(start..start.checked_add(byte_count)?))
            .filter(|bytes| bytes.end <= data_byte_count)
            .ok_or("the footer points outside the file")?;
        let [min, max] = match self.new_range {
            [None, None] => self.old_range,
            range => range,
        };
        let int32_range = min.zip(max).map(|(min, max)| min..=max);
        Ok(Chunk { bytes, is_compressed, int32_range })
    }
}

// The numbers are field ids of the named struct in parquet-format's `parquet.thrift`.

impl RawFooter {
    /// `FileMetaData`.
    fn read(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        reader.fields(|reader, id, kind| {
            match id {
                2 => reader.list(kind, |reader, kind| {
                    self.schema.push(SchemaElement::read(reader, kind)?);
                    Some(())
                })?,
                3 => self.row_count = reader.int(kind)?,
                4 => reader.list(kind, |reader, kind| {
                    self.groups.push(RawGroup::read(reader, kind)?);
                    Some(())
                })?,
                5 => reader.list(kind, |reader, kind| {
                    if let Some(json) = read_our_value(reader, kind)? {
                        self.json.get_or_insert(json);
                    }
                    Some(())
                })?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })
    }
}

/// Reads a `KeyValue`, and returns the value if the key is ours.
fn read_our_value(reader: &mut Reader<'_>, kind: Kind) -> Option<Option<String>> {
    let (mut is_ours, mut value) = (false, None);
    read_struct(reader, kind, |reader, id, kind| {
        match id {
            1 => is_ours = reader.bytes(kind)? == METADATA_KEY.as_bytes(),
            2 => value = Some(reader.bytes(kind)?),
            _ => reader.skip(kind)?,
        }
        Some(())
    })?;
    match value.filter(|_| is_ours) {
        Some(value) => Some(Some(str::from_utf8(value).ok()?.to_owned())),
        None => Some(None),
    }
}

fn read_struct<'a>(
    reader: &mut Reader<'a>,
    kind: Kind,
    field: impl FnMut(&mut Reader<'a>, i16, Kind) -> Option<()>,
) -> Option<()> {
    if kind == Kind::Struct { reader.fields(field) } else { None }
}

impl SchemaElement {
    /// `SchemaElement`.
    fn read(reader: &mut Reader<'_>, kind: Kind) -> Option<Self> {
        let mut element = SchemaElement::default();
        read_struct(reader, kind, |reader, id, kind| {
            match id {
                1 => element.leaf.physical_type = reader.int(kind)?,
                3 => element.leaf.repetition = reader.int(kind)?,
                4 => element.leaf.name = String::from_utf8_lossy(reader.bytes(kind)?).into_owned(),
                5 => element.child_count = reader.int(kind)?,
                // `ConvertedType`: UINT_8 to UINT_64, INT_8 to INT_64.
                6 => match reader.int(kind)? {
                    11..=14 => element.leaf.is_unsigned = true,
                    15..=18 => {}
                    _ => element.leaf.is_converted = true,
                },
                // `LogicalType`: a union.
                10 => read_struct(reader, kind, |reader, id, kind| match id {
                    10 => element.leaf.read_integer(reader, kind),
                    _ => {
                        element.leaf.is_converted = true;
                        reader.skip(kind)
                    }
                })?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })?;
        Some(element)
    }
}

impl RawGroup {
    /// `RowGroup`.
    fn read(reader: &mut Reader<'_>, kind: Kind) -> Option<Self> {
        let mut group = RawGroup { row_count: -1, chunks: Vec::new() };
        read_struct(reader, kind, |reader, id, kind| {
            match id {
                1 => reader.list(kind, |reader, kind| {
                    group.chunks.push(RawChunk::read(reader, kind)?);
                    Some(())
                })?,
                3 => group.row_count = reader.int(kind)?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })?;
        Some(group)
    }
}

impl RawChunk {
    /// `ColumnChunk`.
    fn read(reader: &mut Reader<'_>, kind: Kind) -> Option<Self> {
        let mut chunk = RawChunk { value_count: -1, byte_count: -1, ..RawChunk::default() };
        read_struct(reader, kind, |reader, id, kind| {
            match id {
                1 => {
                    reader.bytes(kind)?;
                    chunk.is_elsewhere = true;
                }
                3 => chunk.read_metadata(reader, kind)?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })?;
        Some(chunk)
    }

    /// `ColumnMetaData`.
    fn read_metadata(&mut self, reader: &mut Reader<'_>, kind: Kind) -> Option<()> {
        read_struct(reader, kind, |reader, id, kind| {
            match id {
                4 => self.codec = reader.int(kind)?,
                5 => self.value_count = reader.int(kind)?,
                7 => self.byte_count = reader.int(kind)?,
                9 => self.data_offset = reader.int(kind)?,
                11 => self.dictionary_offset = Some(reader.int(kind)?),
                12 => self.read_statistics(reader, kind)?,
                _ => reader.skip(kind)?,
            }
            Some(())
        })
    }

    /// `Statistics`.
    fn read_statistics(&mut self, reader: &mut Reader<'_>, kind: Kind) -> Option<()> {
        read_struct(reader, kind, |reader, id, kind| {
            let slot = match id {
                1 => &mut self.old_range[1],
                2 => &mut self.old_range[0],
                5 => &mut self.new_range[1],
                6 => &mut self.new_range[0],
                _ => return reader.skip(kind),
            };
            *slot = reader.bytes(kind)?.try_into().ok().map(i32::from_le_bytes);
            Some(())
        })
    }
}
