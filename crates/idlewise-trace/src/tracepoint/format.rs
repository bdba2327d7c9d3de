//! The kernel's description of a tracepoint's records, from its `format` file.

use std::fmt;

use super::FieldName;
use crate::byte_order::ByteOrder;

/// The kernel's largest event has about fifteen fields. A longer description is cut here, so that a
/// malicious one cannot make us hold millions.
const MAX_FIELD_COUNT: usize = 512;

/// The description of one tracepoint's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The tracepoint's name without its system.
    pub name: String,
    /// The tracepoint's number in `perf_event_attr.config` and `common_type`.
    pub id: u64,
    /// Its fields, including the common ones, in the description's order.
    pub fields: Vec<Field>,
}

/// One field of a tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name without type and array bounds.
    pub name: String,
    /// Its offset in the record, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub byte_count: usize,
    /// Whether it is a signed integer.
    pub is_signed: bool,
    /// Whether it contains the offset and length of data elsewhere in the record.
    pub is_data_loc: bool,
}

impl EventFormat {
    /// Parses a `format` file. Unknown lines and unreadable fields are skipped. `None` if the text
    /// has no name or no ID.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name.get_or_insert_with(|| rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = id.or(rest.trim().parse().ok());
            } else if line.starts_with("field") && fields.len() < MAX_FIELD_COUNT {
                fields.extend(Field::parse(line));
            }
        }
        Some(Self { name: name?, id: id?, fields })
    }

    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// An integer field that we need to read the event.
    pub(super) fn int(&self, field: FieldName) -> Result<Int, UnreadableTracepoint> {
        let field = field.name();
        self.optional_int(field)
            .ok_or_else(|| UnreadableTracepoint { tracepoint: self.name.clone(), field })
    }

    /// An integer field that some kernels lack.
    pub(crate) fn optional_int(&self, name: &str) -> Option<Int> {
        let field = self.field(name)?;
        let width = match field.byte_count {
            1 => Width::One,
            2 => Width::Two,
            4 => Width::Four,
            8 => Width::Eight,
            _ => return None,
        };
        Some(Int { offset: field.offset, width, is_signed: field.is_signed })
    }
}

impl Field {
    /// Parses a line like `field:__data_loc char[] name; offset:12; size:4; signed:0;`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(';').map(str::trim);
        let (_, declaration) = parts.next()?.split_once(':')?;
        let (mut offset, mut byte_count, mut is_signed) = (None, None, false);
        for part in parts {
            let Some((key, value)) = part.split_once(':') else { continue };
            match key.trim() {
                "offset" => offset = value.trim().parse::<u16>().ok(),
                "size" => byte_count = value.trim().parse::<u16>().ok(),
                "signed" => is_signed = value.trim() == "1",
                _ => {}
            }
        }
        let mut declared = declaration.trim();
        while let Some((before, _)) = declared.strip_suffix(']').and_then(|d| d.rsplit_once('[')) {
            declared = before.trim_end();
        }
        let name = declared.rsplit(|c: char| c.is_whitespace() || c == '*').next()?;
        Some(Self {
            name: name.to_owned(),
            offset: offset?.into(),
            byte_count: byte_count?.into(),
            is_signed,
            is_data_loc: declaration.trim_start().starts_with("__data_loc"),
        })
    }
}

/// A known tracepoint whose description in this trace lacks a field that we read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreadableTracepoint {
    /// The tracepoint's name.
    pub tracepoint: String,
    /// The field that is missing or is not an integer.
    pub field: &'static str,
}

impl fmt::Display for UnreadableTracepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tracepoint, field } = self;
        write!(f, "the format of {tracepoint} has no integer field `{field}`")
    }
}

/// The bytes that a `__data_loc` points to (length in the upper half, offset in the lower); `None`
/// if they are outside the record.
pub(super) fn bytes_at(data_loc: u64, record: &[u8]) -> Option<&[u8]> {
    let start = (data_loc & 0xffff) as usize;
    let byte_count = (data_loc >> 16 & 0xffff) as usize;
    record.get(start..start.checked_add(byte_count)?)
}

/// The string that a `__data_loc` points to; `None` if it is outside the record.
pub(super) fn string_at(data_loc: u64, record: &[u8]) -> Option<&[u8]> {
    bytes_at(data_loc, record)?.split(|&byte| byte == 0).next()
}

/// Where an integer field is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Int {
    offset: usize,
    pub(super) width: Width,
    is_signed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    One,
    Two,
    Four,
    Eight,
}

impl Int {
    /// The field's value, sign-extended if it is signed; `None` if the record is too short.
    #[inline]
    pub(crate) fn read(self, record: &[u8], order: ByteOrder) -> Option<u64> {
        let Self { offset, width, is_signed } = self;
        Some(match (width, is_signed) {
            (Width::Eight, _) => order.u64_at(record, offset)?,
            (Width::Four, false) => order.u32_at(record, offset)?.into(),
            (Width::Four, true) => order.u32_at(record, offset)? as i32 as u64,
            (Width::Two, false) => order.u16_at(record, offset)?.into(),
            (Width::Two, true) => order.u16_at(record, offset)? as i16 as u64,
            (Width::One, false) => u64::from(*record.get(offset)?),
            (Width::One, true) => *record.get(offset)? as i8 as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_text_is_read_as_the_kernel_writes_it() {
        let text = b"name: sched_switch\nID: 372\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
            \tfield:const char * reason;\toffset:28;\tsize:8;\tsigned:0;\n\
            \tfield:void *timer;\toffset:36;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long args[6 * 2];\toffset:44;\tsize:96;\tsigned:0;\n\
            \tfield:long prev_state;\toffset:140;\tsize:8;\tsigned:1;\n\
            \tfield:int broken;\toffset:x;\tsize:4;\tsigned:1;\n\
            something else\n\nprint fmt: \"field:int a; offset:1; size:4;\", REC->a\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("sched_switch", 372));
        let names: Vec<_> = format.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(
            names,
            ["common_type", "prev_comm", "name", "reason", "timer", "args", "prev_state"]
        );
        let name = format.field("name").unwrap();
        assert_eq!((name.offset, name.byte_count, name.is_data_loc), (24, 4, true));
        assert!(format.field("prev_state").unwrap().is_signed);
        assert!(format.optional_int("args").is_none());
    }

    #[test]
    fn format_without_name_or_id_is_none() {
        assert_eq!(EventFormat::parse(b"name: a\n"), None);
        assert_eq!(EventFormat::parse(b"ID: 1\n"), None);
        assert_eq!(EventFormat::parse(b"\xff\xfe\n\0"), None);
    }
}
