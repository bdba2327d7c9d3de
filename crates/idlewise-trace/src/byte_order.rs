//! Reads integers from bytes, in the byte order of the machine that wrote them.

/// The byte order of the integers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// Reads the integer at `offset`; `None` past the end.
    #[inline]
    pub fn u16_at(self, bytes: &[u8], offset: usize) -> Option<u16> {
        let chunk = *bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(chunk),
            Self::Big => u16::from_be_bytes(chunk),
        })
    }

    /// Reads the integer at `offset`; `None` past the end.
    #[inline]
    pub fn u32_at(self, bytes: &[u8], offset: usize) -> Option<u32> {
        let chunk = *bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(chunk),
            Self::Big => u32::from_be_bytes(chunk),
        })
    }

    /// Reads the integer at `offset`; `None` past the end.
    #[inline]
    pub fn u64_at(self, bytes: &[u8], offset: usize) -> Option<u64> {
        let chunk = *bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(chunk),
            Self::Big => u64::from_be_bytes(chunk),
        })
    }
}
