//! Reads a file's lines block by block. Memory holds one block and the beginning of a line.

use std::ops::ControlFlow;

use memchr::{memchr, memrchr};

use crate::import::ImportError;
use crate::import::source::{ReadAt, fill_at};

/// How much is read at a time: small enough to stay in a core's private cache until it is parsed.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The longest line that is parsed. Events have hundreds of bytes. Longer lines are scripts in HTML
/// files that contain the text.
const MAX_LINE_BYTE_COUNT: usize = 1 << 16;

/// Where reading lines ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// How many bytes were read.
    pub(super) byte_count: u64,
    /// How many of them belong to a last line without an end.
    pub(super) cut_byte_count: u64,
}

/// Calls `block` with the bytes as they are read, then `line` with each line in them and its
/// offset, until the end of the file or a break.
pub(super) fn each_line(
    source: &dyn ReadAt,
    block: &mut dyn FnMut(&[u8]),
    line: &mut impl FnMut(&[u8], u64) -> ControlFlow<()>,
) -> Result<End, ImportError> {
    // The beginning of a line, then the block that continues it.
    let mut buffer = vec![0; MAX_LINE_BYTE_COUNT + BLOCK_BYTE_COUNT];
    let mut kept = 0;
    let mut read_at = 0;
    // How many bytes of an overlong line were dropped.
    let mut dropped: u64 = 0;
    loop {
        let into = buffer.get_mut(kept..kept + BLOCK_BYTE_COUNT).unwrap_or_default();
        let byte_count = fill_at(source, into, read_at)?;
        if byte_count == 0 {
            return Ok(End { byte_count: read_at, cut_byte_count: dropped + kept as u64 });
        }
        block(into.get(..byte_count).unwrap_or_default());
        let filled = buffer.get(..kept + byte_count).unwrap_or_default();
        let mut at_byte = read_at - kept as u64;
        read_at += byte_count as u64;
        let whole = memrchr(b'\n', filled).map_or(0, |at| at + 1);
        let mut rest = filled.get(..whole).unwrap_or_default();
        while let Some(end) = memchr(b'\n', rest) {
            let (this, after) = rest.split_at_checked(end + 1).unwrap_or_default();
            rest = after;
            let place = at_byte;
            at_byte += this.len() as u64;
            if std::mem::take(&mut dropped) > 0 {
                continue;
            }
            if line(this.trim_ascii_end(), place).is_break() {
                return Ok(End { byte_count: read_at, cut_byte_count: 0 });
            }
        }
        kept = filled.len() - whole;
        if kept > MAX_LINE_BYTE_COUNT || dropped > 0 {
            dropped += kept as u64;
            kept = 0;
        }
        buffer.copy_within(whole..whole + kept, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: Vec<u8>) -> (Vec<(String, u64)>, End) {
        let mut lines = Vec::new();
        let mut read = 0;
        let end = each_line(&bytes, &mut |block| read += block.len(), &mut |line, at_byte| {
            lines.push((String::from_utf8_lossy(line).into_owned(), at_byte));
            ControlFlow::Continue(())
        });
        assert_eq!(read, bytes.len());
        (lines, end.unwrap())
    }

    #[test]
    fn lines_go_over_the_ends_of_blocks() {
        let text: String = (0..100_000).map(|i| format!("line {i}\r\n")).collect();
        let byte_count = text.len() as u64;
        let (lines, end) = lines(text.into_bytes());
        assert_eq!(lines.len(), 100_000);
        assert_eq!(lines[77_777].0, "line 77777");
        assert_eq!(lines[1], ("line 1".to_owned(), 8));
        assert_eq!(end, End { byte_count, cut_byte_count: 0 });
    }

    #[test]
    fn a_line_too_long_is_let_go_and_a_cut_one_counted() {
        let mut text = b"one\n".to_vec();
        text.resize(3 << 20, b'x');
        text.extend_from_slice(b"\ntwo\nthr");
        let at_byte = text.len() as u64 - 7;
        let (lines, end) = lines(text);
        assert_eq!(lines, [("one".to_owned(), 0), ("two".to_owned(), at_byte)]);
        assert_eq!(end.cut_byte_count, 3);
    }
}
