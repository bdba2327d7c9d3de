//! Reads protocol buffers in place: the fields of a message in order, without copying.

/// A field's value.
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

    /// The bytes as text. Invalid UTF-8 is replaced.
    pub(super) fn text(self) -> Option<String> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Iterates over the fields of a message with their numbers, as far as they can be read.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// The bytes after the fields that were read. Empty unless the message is broken.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline(always)]
    fn read(rest: &'a [u8]) -> Option<(u32, Value<'a>, &'a [u8])> {
        let (key, rest) = varint(rest)?;
        let number = u32::try_from(key).ok()? >> 3;
        let (value, rest) = match key & 7 {
            0 => {
                let (number, rest) = varint(rest)?;
                (Value::Number(number), rest)
            }
            2 => {
                let (byte_count, rest) = varint(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(byte_count).ok()?)?;
                (Value::Bytes(bytes), rest)
            }
            1 => {
                let (bytes, rest) = rest.split_first_chunk()?;
                (Value::Number(u64::from_le_bytes(*bytes)), rest)
            }
            5 => {
                let (bytes, rest) = rest.split_first_chunk()?;
                (Value::Number(u32::from_le_bytes(*bytes).into()), rest)
            }
            // Groups, which no published message has, and invalid types.
            _ => return None,
        };
        (number > 0).then_some((number, value, rest))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (number, value, rest) = Self::read(self.rest)?;
        self.rest = rest;
        Some((number, value))
    }
}

/// Reads the number at the beginning of these bytes, and returns it with the rest.
#[inline]
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes.split_first() {
        Some((&first, rest)) if first < 0x80 => Some((first.into(), rest)),
        _ => long_varint(bytes),
    }
}

/// Like [`varint`], for a number of several bytes. Times have seven, addresses ten.
#[inline]
fn long_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    const GOES_ON: u64 = 0x8080_8080_8080_8080;
    let Some(first) = bytes.first_chunk::<10>() else { return slow_varint(bytes) };
    let [a, b, c, d, e, f, g, h, ninth, tenth] = *first;
    let word = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let ends = !word & GOES_ON;
    // Keep all bits up to the end of the last byte, without the continuation bits.
    let word = word & (ends ^ ends.wrapping_sub(1)) & !GOES_ON;
    let pairs = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let quads = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = (quads & 0x0fff_ffff) | (quads & 0x0fff_ffff_0000_0000) >> 4;
    if ends != 0 {
        return Some((value, bytes.get(ends.trailing_zeros() as usize / 8 + 1..)?));
    }
    let value = value | u64::from(ninth & 0x7f) << 56;
    match (ninth, tenth) {
        (..0x80, _) => Some((value, bytes.get(9..)?)),
        // The tenth byte can contribute only one bit.
        (_, 0 | 1) => Some((value | u64::from(tenth) << 63, bytes.get(10..)?)),
        _ => None,
    }
}

/// Like [`varint`], for numbers near the end of the bytes.
fn slow_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        // The tenth byte can contribute only one bit.
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// The numbers of a packed repeated field.
pub(super) fn packed(mut bytes: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let (value, rest) = varint(bytes)?;
        bytes = rest;
        Some(value)
    })
}

/// The first field of a message with that number.
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

    #[test]
    fn numbers_are_those_that_prost_reads() {
        let mut numbers: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, u64::MAX >> bit]).collect();
        numbers.extend((0..10_000).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (i % 64)));
        for number in numbers {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(number, &mut bytes);
            let byte_count = bytes.len();
            for behind in [0, 1, 9] {
                bytes.resize(byte_count + behind, 0xff);
                let expected = (number, bytes.get(byte_count..).unwrap());
                assert_eq!(varint(&bytes), Some(expected), "{number} and {behind} bytes");
            }
            for cut in 0..byte_count {
                assert_eq!(varint(&bytes[..cut]), None, "{number} cut to {cut} bytes");
            }
        }
        // Encodings that are longer than necessary, and longer than allowed.
        for bytes in [b"\x80\x80\x00".as_slice(), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"] {
            let expected = prost::encoding::decode_varint(&mut &bytes[..]).ok();
            assert_eq!(varint(bytes).map(|(number, _)| number), expected, "{bytes:02x?}");
        }
    }
}
