//! Thrift's compact protocol, as far as Parquet files use it: structs with numbered fields.
//!
//! `None` always means damaged. Every step consumes at least one byte of input, so no count in a
//! file can make the reader loop or allocate beyond the file's length. (The Parquet crate skips
//! lists of booleans without consuming input: two billion booleans in six bytes.)

/// The deepest nesting of structs and lists. Parquet itself needs 6.
const DEPTH_MAX: u32 = 16;

/// The type of a field or an element. Integers of all widths are `Int`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    True,
    False,
    Byte,
    Int,
    Double,
    Bytes,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::True,
            2 => Kind::False,
            3 => Kind::Byte,
            4..=6 => Kind::Int,
            7 => Kind::Double,
            8 => Kind::Bytes,
            // Sets are encoded in the same way.
            9 | 10 => Kind::List,
            11 => Kind::Map,
            12 => Kind::Struct,
            13 => Kind::Uuid,
            _ => return None,
        })
    }
}

/// The bytes that are left to read.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// How many bytes are left.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    /// Reads a number of up to 64 bits, 7 bits in a byte, the lowest first.
    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte can contribute only one bit.
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a signed number: 0, -1, 1, -2, … are encoded as 0, 1, 2, 3, …
    pub(super) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a struct. `field` must read or skip the value of each field it is called with.
    pub(super) fn fields(
        &mut self,
        mut field: impl FnMut(&mut Self, i16, Kind) -> Option<()>,
    ) -> Option<()> {
        let mut id = 0_i16;
        loop {
            let head = self.byte()?;
            if head & 0x0f == 0 {
                return Some(());
            }
            let kind = Kind::from_code(head & 0x0f)?;
            id = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            field(self, id, kind)?;
        }
    }

    /// Reads a list. `element` must read or skip each element.
    pub(super) fn list(
        &mut self,
        kind: Kind,
        mut element: impl FnMut(&mut Self, Kind) -> Option<()>,
    ) -> Option<()> {
        let (count, kind) = self.list_head(kind)?;
        for _ in 0..count {
            element(self, kind)?;
        }
        Some(())
    }

    fn list_head(&mut self, kind: Kind) -> Option<(u64, Kind)> {
        if kind != Kind::List {
            return None;
        }
        let head = self.byte()?;
        if head == 0 {
            // Some writers give an empty list no type.
            return Some((0, Kind::Byte));
        }
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        // Every element takes at least a byte.
        (count <= self.len() as u64).then_some(())?;
        Some((count, Kind::from_code(head & 0x0f)?))
    }

    pub(super) fn int(&mut self, kind: Kind) -> Option<i64> {
        if kind == Kind::Int { self.zigzag() } else { None }
    }

    pub(super) fn bytes(&mut self, kind: Kind) -> Option<&'a [u8]> {
        if kind != Kind::Bytes {
            return None;
        }
        let count = usize::try_from(self.varint()?).ok()?;
        self.take(count)
    }

    /// Skips a field's value.
    pub(super) fn skip(&mut self, kind: Kind) -> Option<()> {
        self.skip_nested(kind, DEPTH_MAX)
    }

    fn skip_nested(&mut self, kind: Kind, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A boolean field consists only of its header.
            Kind::True | Kind::False => Some(()),
            Kind::Byte => self.byte().map(|_| ()),
            Kind::Int => self.varint().map(|_| ()),
            Kind::Double => self.take(8).map(|_| ()),
            Kind::Uuid => self.take(16).map(|_| ()),
            Kind::Bytes => self.bytes(kind).map(|_| ()),
            Kind::Struct => self.fields(|reader, _, kind| reader.skip_nested(kind, depth)),
            Kind::List => self.list(kind, |reader, kind| reader.skip_element(kind, depth)),
            Kind::Map => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                let (key, value) = (Kind::from_code(kinds >> 4)?, Kind::from_code(kinds & 0x0f)?);
                for _ in 0..count {
                    self.skip_element(key, depth)?;
                    self.skip_element(value, depth)?;
                }
                Some(())
            }
        }
    }

    fn skip_element(&mut self, kind: Kind, depth: u32) -> Option<()> {
        match kind {
            // As a list element, a boolean takes a byte.
            Kind::True | Kind::False => self.byte().map(|_| ()),
            kind => self.skip_nested(kind, depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_counts_beyond_the_input() {
        // A struct with one field of 2^31 - 1 booleans.
        let bools = [0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07, 0];
        assert_eq!(Reader::new(&bools).skip(Kind::Struct), None);
        assert_eq!(Reader::new(&[0x19, 0x21, 1, 2, 0]).skip(Kind::Struct), Some(()));
        assert_eq!(Reader::new(&[0x1b, 0xff, 0x7f, 0x11, 1, 1]).skip(Kind::Struct), None);
    }

    #[test]
    fn refuses_structs_in_structs_without_end() {
        assert_eq!(Reader::new(&[0x1c; 100_000]).skip(Kind::Struct), None);
        assert_eq!(Reader::new(&[0x19; 100_000]).skip(Kind::Struct), None);
    }

    #[test]
    fn refuses_numbers_of_more_than_64_bits() {
        let mut max = [0xff; 10];
        max[9] = 1;
        assert_eq!(Reader::new(&max).varint(), Some(u64::MAX));
        max[9] = 2;
        assert_eq!(Reader::new(&max).varint(), None);
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None);
    }
}
