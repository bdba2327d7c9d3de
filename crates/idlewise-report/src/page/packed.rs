//! Columns of numbers inside the page: whole numbers as bytes, compressed, then as text.
//!
//! | encoding | a row is |
//! | --- | --- |
//! | `bytes` | one byte |
//! | `u` | the value as LEB128 |
//! | `z` | zigzag(value) as LEB128 |
//! | `delta` | zigzag(value − previous value) as LEB128; the first row's previous value is 0 |
//! | `json` | the whole column is one JSON document in UTF-8 |
//!
//! If a column can lack values, 0 stands for an absent one and everything else is one more. An absent
//! value does not become the previous one. The bytes are compressed (raw deflate) and written in base64.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;

/// How a column's values become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// One byte each.
    Bytes,
    /// Unsigned.
    U,
    /// Signed.
    Z,
    /// Signed differences.
    Delta,
    /// A JSON document.
    Json,
}

/// Where a column is in the page, and how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColumnRef {
    /// The `data-id` of its block.
    pub id: usize,
    /// How it is encoded.
    pub encoding: Encoding,
    /// Whether values can be absent.
    pub null: bool,
}

/// A column being filled.
#[derive(Clone, Debug)]
pub struct Encoder {
    encoding: Encoding,
    is_nullable: bool,
    previous: i64,
    bytes: Vec<u8>,
}

impl Encoder {
    /// Starts a column whose values are all known.
    pub fn new(encoding: Encoding) -> Self {
        Encoder { encoding, is_nullable: false, previous: 0, bytes: Vec::new() }
    }

    /// Starts a column that can lack values.
    pub fn nullable(encoding: Encoding) -> Self {
        Encoder { is_nullable: true, ..Encoder::new(encoding) }
    }

    /// Starts a column that is a JSON document.
    pub fn json(document: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(document).expect("keys are strings");
        Encoder { bytes, ..Encoder::new(Encoding::Json) }
    }

    /// Adds a value. A byte column takes 0 to 255, or to 254 if it can lack values; larger values are
    /// taken as the largest.
    pub fn push(&mut self, value: i64) {
        let shift = u64::from(self.is_nullable);
        match self.encoding {
            Encoding::Bytes => {
                let byte = value.max(0).cast_unsigned().saturating_add(shift);
                self.bytes.push(u8::try_from(byte).unwrap_or(u8::MAX));
            }
            Encoding::U => self.varint(value.max(0).cast_unsigned().saturating_add(shift)),
            Encoding::Z => self.varint(zigzag(value).saturating_add(shift)),
            Encoding::Delta => {
                let difference = value.wrapping_sub(self.previous);
                self.previous = value;
                self.varint(zigzag(difference).saturating_add(shift));
            }
            Encoding::Json => unreachable!("a document has no rows"),
        }
    }

    /// Adds a value that may be absent.
    ///
    /// # Panics
    /// Panics if the column was not made for that.
    pub fn push_option(&mut self, value: Option<i64>) {
        assert!(self.is_nullable, "the column has no place for absent values");
        match value {
            Some(value) => self.push(value),
            None => self.bytes.push(0),
        }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Compresses the column.
    pub(super) fn pack(&self) -> PackedColumn {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::new(LEVEL));
        let packed = deflate.write_all(&self.bytes).and_then(|()| deflate.finish());
        PackedColumn { base64: STANDARD.encode(packed.expect("a vector takes all bytes")) }
    }

    pub(super) fn reference(&self, id: usize) -> ColumnRef {
        ColumnRef { id, encoding: self.encoding, null: self.is_nullable }
    }
}

/// The best that deflate can do: a page is written once and sent many times.
const LEVEL: u32 = 9;

/// 0, -1, 1, -2, … as 0, 1, 2, 3, …
pub(super) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// A column as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PackedColumn {
    pub base64: String,
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    /// Undoes an encoding in the most naive way.
    fn decoded(column: &Encoder) -> Vec<Option<i64>> {
        let packed = STANDARD.decode(column.pack().base64).unwrap();
        let mut bytes = Vec::new();
        flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        let mut numbers: Vec<u128> = Vec::new();
        let mut parts: Vec<u128> = Vec::new();
        for byte in bytes {
            parts.push(u128::from(byte));
            if column.encoding == Encoding::Bytes || byte < 0x80 {
                let place = |(index, part): (usize, &u128)| (part % 128) << (7 * index);
                numbers.push(match column.encoding {
                    Encoding::Bytes => parts[0],
                    _ => parts.iter().enumerate().map(place).sum(),
                });
                parts.clear();
            }
        }
        assert!(parts.is_empty());
        let mut last = 0;
        let value = |number: u128| {
            let number = match column.is_nullable {
                true => number.checked_sub(1)?,
                false => number,
            };
            let signed = match number % 2 {
                0 => (number / 2) as i128,
                _ => -1 - (number / 2) as i128,
            };
            Some(match column.encoding {
                Encoding::Bytes | Encoding::U => number as i64,
                Encoding::Z => signed as i64,
                _ => {
                    last += signed as i64;
                    last
                }
            })
        };
        numbers.into_iter().map(value).collect()
    }

    /// Numbers as a script can hold them; the differences of two fit too.
    fn numbers() -> impl Strategy<Value = i64> {
        let most = 1_i64 << 53;
        prop_oneof![-3..3_i64, -200..200_i64, -most..most, Just(most), Just(-most)]
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_written(values in prop::collection::vec(numbers(), 0..200)) {
            for encoding in [Encoding::Bytes, Encoding::U, Encoding::Z, Encoding::Delta] {
                let mut column = Encoder::new(encoding);
                let fitting = |value: i64| match encoding {
                    Encoding::Bytes => value.clamp(0, 255),
                    Encoding::U => value.max(0),
                    _ => value,
                };
                values.iter().for_each(|&value| column.push(fitting(value)));
                let expected: Vec<_> = values.iter().map(|&value| Some(fitting(value))).collect();
                prop_assert_eq!(decoded(&column), expected);
            }
        }

        #[test]
        fn absent_values_stay_absent(
            values in prop::collection::vec(prop::option::of(numbers()), 0..200),
        ) {
            for encoding in [Encoding::Bytes, Encoding::U, Encoding::Z, Encoding::Delta] {
                let mut column = Encoder::nullable(encoding);
                let fitting = |value: i64| match encoding {
                    Encoding::Bytes => value.clamp(0, 254),
                    Encoding::U => value.max(0),
                    _ => value,
                };
                let values: Vec<_> = values.iter().map(|value| value.map(fitting)).collect();
                values.iter().for_each(|&value| column.push_option(value));
                prop_assert_eq!(decoded(&column), values);
            }
        }
    }

    #[test]
    fn a_byte_that_does_not_fit_is_the_largest() {
        let mut column = Encoder::new(Encoding::Bytes);
        [-1, 256, i64::MAX].into_iter().for_each(|value| column.push(value));
        assert_eq!(decoded(&column), [Some(0), Some(255), Some(255)]);
    }
}
