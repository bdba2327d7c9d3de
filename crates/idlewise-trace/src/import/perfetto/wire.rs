//! Protocol buffers as they lie in memory: the fields of a message, one after the other, without
//! copies. The numbers themselves are read by `prost`, by the functions that its generated code
//! calls.

use prost::encoding::{WireType, decode_key, decode_varint};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    /// A message, a string, bytes or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }

    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Number(_) => None,
        }
    }

    /// The bytes as text; what is no UTF-8 is replaced.
    pub(super) fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// The fields of a message, with their numbers, as far as they can be read.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// What is behind the fields that were read: nothing, unless the message is broken.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn read(mut rest: &'a [u8]) -> Option<(u32, Value<'a>, &'a [u8])> {
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let value = match wire_type {
            WireType::Varint => Value::Number(decode_varint(&mut rest).ok()?),
            WireType::LengthDelimited => {
                let byte_count = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                let (bytes, after) = rest.split_at_checked(byte_count)?;
                rest = after;
                Value::Bytes(bytes)
            }
            WireType::SixtyFourBit => {
                let (bytes, after) = rest.split_first_chunk()?;
                rest = after;
                Value::Number(u64::from_le_bytes(*bytes))
            }
            WireType::ThirtyTwoBit => {
                let (bytes, after) = rest.split_first_chunk()?;
                rest = after;
                Value::Number(u32::from_le_bytes(*bytes).into())
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some((number, value, rest))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (number, value, rest) = Self::read(self.rest)?;
        self.rest = rest;
        Some((number, value))
    }
}

/// The numbers of a repeated field that is packed.
pub(super) fn packed(mut bytes: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || if bytes.is_empty() { None } else { decode_varint(&mut bytes).ok() })
}

/// The first field of a message that has that number.
pub(super) fn field(message: &[u8], number: u32) -> Option<Value<'_>> {
    Fields::of(message).find(|&(found, _)| found == number).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_of_every_kind_until_the_break() {
        // 1: 150, 2: "hi", 3: fixed32 7, 4: fixed64 9, then a length that is too long.
        let message = b"\x08\x96\x01\x12\x02hi\x1d\x07\0\0\0\x21\x09\0\0\0\0\0\0\0\x2a\x05x";
        let mut fields = Fields::of(message);
        let all: Vec<_> = fields.by_ref().collect();
        use Value::{Bytes, Number};
        assert_eq!(all, [(1, Number(150)), (2, Bytes(b"hi")), (3, Number(7)), (4, Number(9))]);
        assert_eq!(fields.rest(), b"\x2a\x05x");
        assert_eq!(packed(b"\x01\x96\x01\xff").collect::<Vec<_>>(), [1, 150]);
        assert_eq!(field(message, 2), Some(Bytes(b"hi")));
    }

    #[test]
    fn groups_and_numbers_too_long_are_breaks() {
        for message in [b"\x0b\x08".as_slice(), b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            let mut fields = Fields::of(message);
            assert_eq!((fields.next(), fields.rest()), (None, message));
        }
    }
}
