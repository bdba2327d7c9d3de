//! Reads the packets of a trace one at a time. A file is one message with a single repeated field.
//!
//! Only the largest packet is held in memory, up to a limit. Packets may contain compressed
//! packets, which are decompressed within the same limit. They cannot be nested.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::schema::packet;
use super::wire::{Fields, Value, varint};
use crate::import::source::{ReadAt, fill_at};
use crate::import::{ImportError, Truncation, TruncationReason};

/// The encoded key of `Trace.packet`.
const PACKET_KEY: u8 = 0x0a;

/// How much is read at a time.
const BLOCK_BYTE_COUNT: usize = 1 << 18;

/// The largest packet that is read, and the most that one may decompress to. Recorders write
/// packets of at most a few hundred kilobytes.
const MAX_PACKET_BYTE_COUNT: usize = 1 << 26;

/// The binary logarithm of zstd's largest window.
const MAX_WINDOW_LOG: u32 = 26;

/// Whether a file that begins with these bytes is a trace: a sequence of packets, the last of which
/// may continue past them.
pub(super) fn are_packets(first: &[u8]) -> bool {
    let mut rest = first;
    let mut whole_count = 0;
    while !rest.is_empty() {
        let Some((start, byte_count)) = head(rest) else { return whole_count > 0 };
        let Some(packet) = rest.get(start..).and_then(|rest| rest.get(..byte_count)) else {
            // The packet continues past these bytes. At least its first field must be a valid one.
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

/// Whether a key's first byte has a valid wire type and a number above zero.
fn is_key(byte: u8) -> bool {
    matches!(byte & 7, 0 | 1 | 2 | 5) && byte >> 3 != 0
}

/// Returns where the first packet's body starts and how long it is; `None` if there is no packet,
/// or its head is incomplete.
fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let (&key, after_key) = bytes.split_first()?;
    if key != PACKET_KEY {
        return None;
    }
    let (byte_count, rest) = varint(after_key)?;
    Some((bytes.len() - rest.len(), usize::try_from(byte_count).ok()?))
}

/// A packet of a file. It may contain compressed packets.
pub(super) struct OuterPacket<'a> {
    /// Where in the file its key is.
    pub(super) at_byte: u64,
    /// How many bytes there are before its body.
    pub(super) head_byte_count: usize,
    pub(super) body: &'a [u8],
}

/// Calls `packet` with each packet of a file. Returns where the packets end if that is before the
/// end of the file or inside a packet.
pub(super) fn each_packet(
    source: &dyn ReadAt,
    packet: &mut dyn FnMut(OuterPacket<'_>),
) -> Result<Option<Truncation>, ImportError> {
    let mut buffer: Vec<u8> = vec![0; BLOCK_BYTE_COUNT];
    // The part of the buffer that is read but not passed on, and the file offset of its end.
    let (mut start, mut end) = (0, 0);
    let mut read_at: u64 = 0;
    let mut stopped: Option<(u64, TruncationReason)> = None;
    loop {
        // All complete packets in the buffer.
        let mut missing = 0;
        while stopped.is_none() {
            let rest = buffer.get(start..end).unwrap_or_default();
            let at_byte = read_at - rest.len() as u64;
            let Some((head_byte_count, byte_count)) = head(rest) else {
                // A head has at most eleven bytes, so an incomplete one has fewer.
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
            let whole = head_byte_count + byte_count;
            let Some(body) = rest.get(head_byte_count..whole) else {
                missing = whole - rest.len();
                break;
            };
            packet(OuterPacket { at_byte, head_byte_count, body });
            start += whole;
        }
        if stopped.is_some() {
            start = end;
        }
        buffer.copy_within(start..end, 0);
        (start, end) = (0, end - start);
        // If a packet is longer than the buffer, the buffer grows as the packet is read.
        let room = missing.clamp(BLOCK_BYTE_COUNT / 2, 4 * BLOCK_BYTE_COUNT);
        if buffer.len() < end + room {
            buffer.resize(end + room, 0);
        }
        let into = buffer.get_mut(end..).unwrap_or_default();
        let filled = fill_at(source, into, read_at)?;
        end += filled;
        read_at += filled as u64;
        if filled == 0 {
            if end > 0 {
                stopped.get_or_insert((read_at - end as u64, TruncationReason::CutShort));
            }
            return Ok(stopped.map(|(at_byte, reason)| Truncation {
                at_byte,
                lost_byte_count: read_at - at_byte,
                reason,
            }));
        }
    }
}

/// The bodies of the packets in these bytes of a file.
pub(super) fn packets(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (start, byte_count) = head(bytes)?;
        let body = bytes.get(start..)?.get(..byte_count)?;
        bytes = bytes.get(start + byte_count..)?;
        Some(body)
    })
}

/// Several packets compressed as one.
pub(super) struct Compressed<'a> {
    is_zstd: bool,
    bytes: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Returns `None` if this packet does not contain compressed packets.
    pub(super) fn of(body: &'a [u8]) -> Option<Self> {
        Fields::of(body).find_map(|(number, value)| {
            let bytes = value.bytes()?;
            match number {
                packet::ZLIB_PACKETS => Some(Self { is_zstd: false, bytes }),
                packet::ZSTD_PACKETS => Some(Self { is_zstd: true, bytes }),
                _ => None,
            }
        })
    }

    /// Decompresses them into the empty `unpacked`. Returns false if that was not possible in full.
    pub(super) fn unpack(&self, unpacked: &mut Vec<u8>) -> bool {
        let limit = MAX_PACKET_BYTE_COUNT as u64 + 1;
        let result = match self.is_zstd {
            false => ZlibDecoder::new(self.bytes).take(limit).read_to_end(unpacked),
            true => zstd::Decoder::with_buffer(self.bytes).and_then(|mut decoder| {
                decoder.window_log_max(MAX_WINDOW_LOG)?;
                decoder.take(limit).read_to_end(unpacked)
            }),
        };
        let mut rest = unpacked.as_slice();
        while let Some((start, byte_count)) = head(rest) {
            let Some(behind) = rest.get(start..).and_then(|rest| rest.get(byte_count..)) else {
                break;
            };
            rest = behind;
        }
        result.is_ok() && unpacked.len() <= MAX_PACKET_BYTE_COUNT && rest.is_empty()
    }
}

/// A packet, of events or not. These are the fields that all packets share.
#[derive(Clone, Copy, Default)]
pub(super) struct PacketHead<'a> {
    pub(super) ftrace: Option<&'a [u8]>,
    /// Its writer. The packets of one writer are in order.
    pub(super) sequence_id: u64,
    /// Whether it comes from another machine.
    pub(super) is_foreign: bool,
    /// Whether packets of its sequence are missing before it.
    pub(super) is_after_loss: bool,
    /// Whether it can be read to its end.
    pub(super) is_whole: bool,
}

impl<'a> PacketHead<'a> {
    pub(super) fn of(body: &'a [u8]) -> Self {
        let mut head = Self::default();
        let mut fields = Fields::of(body);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (packet::FTRACE_EVENTS, Value::Bytes(bytes)) => head.ftrace = Some(bytes),
                (packet::SEQUENCE_ID, Value::Number(id)) => head.sequence_id = id,
                (packet::MACHINE_ID, Value::Number(id)) => head.is_foreign = id != 0,
                (packet::PREVIOUS_PACKET_DROPPED, Value::Number(is)) => {
                    head.is_after_loss = is != 0;
                }
                _ => {}
            }
        }
        head.is_whole = fields.rest().is_empty();
        head
    }
}
