//! The packets of a trace, one at a time: a file is one message, whose only field is repeated.
//!
//! What is held is the largest packet, within a bound. Packets may hold compressed packets, which
//! are unpacked within the same bound; those hold no further ones.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::wire::Fields;
use crate::import::source::{ReadAt, fill_at};
use crate::import::{ImportError, Truncation, TruncationReason};

/// `Trace.packet`, as its key is written.
const PACKET_KEY: u8 = 0x0a;
/// `TracePacket.compressed_packets`.
const ZLIB_PACKETS: u32 = 50;
/// `TracePacket.zstd_compressed_packets`.
const ZSTD_PACKETS: u32 = 133;

/// How much is read at a time.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The largest packet that is read, and the most that one may unpack to. Recorders write packets of
/// at most a few hundred kilobytes.
const MAX_PACKET_BYTE_COUNT: usize = 1 << 26;

/// The largest window of zstd, as a power of two.
const MAX_WINDOW_LOG: u32 = 26;

/// Whether a file that begins with these bytes is a trace: packets in a row, the last one perhaps
/// longer than what there is of it.
pub(super) fn are_packets(first: &[u8]) -> bool {
    let mut rest = first;
    let mut whole_count = 0;
    while !rest.is_empty() {
        let Some((start, byte_count)) = head(rest) else { return whole_count > 0 };
        let Some(packet) = rest.get(start..).and_then(|rest| rest.get(..byte_count)) else {
            // A packet longer than this: at least its first field must be a packet's.
            let begun = rest.get(start..).unwrap_or_default();
            return whole_count > 0 || begun.first().is_some_and(|&key| is_key(key));
        };
        let mut fields = Fields::of(packet);
        if fields.by_ref().count() == 0 && !packet.is_empty() || !fields.rest().is_empty() {
            return false;
        }
        whole_count += 1;
        rest = rest.get(start + byte_count..).unwrap_or_default();
    }
    whole_count > 0
}

/// Whether a key's first byte has a wire type that there is and a number above zero.
fn is_key(byte: u8) -> bool {
    matches!(byte & 7, 0 | 1 | 2 | 5) && byte >> 3 != 0
}

/// Where in these bytes the packet at their beginning starts, and how long it is. `None` if there
/// is no packet, or not all of its head.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let (key, mut rest) = bytes.split_first()?;
    if *key != PACKET_KEY {
        return None;
    }
    let before = rest.len();
    let byte_count = prost::encoding::decode_varint(&mut rest).ok()?;
    Some((1 + before - rest.len(), usize::try_from(byte_count).ok()?))
}

/// Gives `block` the bytes of a file as they are read, and `packet` each packet of them, those
/// within packets too, with the place of the outermost; it returns whether to go on. Returns
/// where the packets end before the file does, or in its middle.
pub(super) fn each_packet(
    source: &dyn ReadAt,
    block: &mut dyn FnMut(&[u8]),
    packet: &mut dyn FnMut(Packet<'_>, u64) -> bool,
) -> Result<Option<Truncation>, ImportError> {
    let mut buffer: Vec<u8> = Vec::new();
    let mut unpacked = Vec::new();
    let mut start = 0;
    let mut read_at: u64 = 0;
    let mut stopped: Option<(u64, TruncationReason)> = None;
    loop {
        // All whole packets of the buffer.
        while stopped.is_none() {
            let rest = buffer.get(start..).unwrap_or_default();
            let at_byte = read_at - rest.len() as u64;
            let Some((head_byte_count, byte_count)) = head(rest) else {
                // A head of the longest has eleven bytes; one that is not whole yet has fewer.
                let is_begun = rest.len() < 11 && rest.first().is_none_or(|&key| key == PACKET_KEY);
                if !is_begun {
                    stopped = Some((at_byte, TruncationReason::BrokenRecord));
                }
                break;
            };
            if byte_count > MAX_PACKET_BYTE_COUNT {
                stopped = Some((at_byte, TruncationReason::BrokenRecord));
                break;
            }
            let body = rest.get(head_byte_count..).and_then(|rest| rest.get(..byte_count));
            let Some(body) = body else { break };
            start += head_byte_count + byte_count;
            if !unpack(body, &mut unpacked, &mut |inner| packet(inner, at_byte)) {
                return Ok(None);
            }
        }
        if stopped.is_some() {
            start = buffer.len();
        }
        buffer.drain(..start);
        start = 0;
        let kept = buffer.len();
        buffer.resize(kept + BLOCK_BYTE_COUNT, 0);
        let into = buffer.get_mut(kept..).unwrap_or_default();
        let filled = fill_at(source, into, read_at)?;
        block(into.get(..filled).unwrap_or_default());
        buffer.truncate(kept + filled);
        read_at += filled as u64;
        if filled == 0 {
            if kept > 0 {
                stopped.get_or_insert((read_at - kept as u64, TruncationReason::CutShort));
            }
            return Ok(stopped.map(|(at_byte, reason)| Truncation {
                at_byte,
                lost_byte_count: read_at - at_byte,
                reason,
            }));
        }
    }
}

/// A packet, or what is left of one.
#[derive(Clone, Copy)]
pub(super) enum Packet<'a> {
    Whole(&'a [u8]),
    /// Compressed packets that could not be unpacked to their end.
    Broken,
}

/// Gives `packet` a packet, or those that are compressed in it. Returns whether to go on.
fn unpack(body: &[u8], unpacked: &mut Vec<u8>, packet: &mut dyn FnMut(Packet<'_>) -> bool) -> bool {
    let mut compressed = Fields::of(body).filter_map(|(number, value)| {
        matches!(number, ZLIB_PACKETS | ZSTD_PACKETS).then_some((number, value.bytes()?))
    });
    let Some((number, bytes)) = compressed.next() else { return packet(Packet::Whole(body)) };
    unpacked.clear();
    let limit = MAX_PACKET_BYTE_COUNT as u64 + 1;
    let result = match number {
        ZLIB_PACKETS => ZlibDecoder::new(bytes).take(limit).read_to_end(unpacked),
        _ => zstd::Decoder::with_buffer(bytes).and_then(|mut decoder| {
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            decoder.take(limit).read_to_end(unpacked)
        }),
    };
    let is_whole = result.is_ok() && unpacked.len() <= MAX_PACKET_BYTE_COUNT;
    let mut fields = Fields::of(unpacked);
    for (number, value) in fields.by_ref() {
        if let (1, Some(inner)) = (number, value.bytes())
            && !packet(Packet::Whole(inner))
        {
            return false;
        }
    }
    (is_whole && fields.rest().is_empty()) || packet(Packet::Broken)
}
