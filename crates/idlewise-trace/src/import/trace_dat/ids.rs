//! Identifies a record's event by the number in its first field, according to the file's formats.

use crate::byte_order::ByteOrder;
use crate::event::Tracepoints;
use crate::import::TracingData;
use crate::tracepoint::{Decoder, Int, Purpose, UnreadableTracepoint};

/// The event that a record's number stands for.
pub(super) enum Known<'a> {
    /// An event that an idle log needs: its number and decoder.
    Needed(u16, &'a Decoder),
    /// Another event.
    Unneeded,
    /// Not described in the file, or the record is too short to tell.
    Not,
}

/// The events of a file by their number.
pub(super) struct Ids {
    order: ByteOrder,
    /// Where a record's number is.
    number: Int,
    decoders: Vec<Decoder>,
    /// Indexed by number: an index into `decoders`, `UNNEEDED` or `UNKNOWN`.
    indices: Vec<u16>,
    idle_number: Option<u16>,
}

const UNNEEDED: u16 = u16::MAX - 1;
const UNKNOWN: u16 = u16::MAX;

/// The compiled formats of a file.
pub(super) struct Compiled {
    pub(super) ids: Ids,
    pub(super) tracepoints: Tracepoints,
    pub(super) unreadable_tracepoints: Vec<UnreadableTracepoint>,
}

impl Ids {
    /// Compiles the formats for a purpose; `None` if none of them says where a record's number is.
    pub(super) fn compile(data: &TracingData, purpose: Purpose) -> Option<Compiled> {
        let order = data.order;
        let number = data.events.iter().find_map(|(_, format)| format.optional_int("common_type"));
        let mut ids = Self {
            order,
            number: number?,
            decoders: Vec::new(),
            indices: Vec::new(),
            idle_number: None,
        };
        let mut tracepoints = Tracepoints::EMPTY;
        let mut unreadable_tracepoints = Vec::new();
        for (system, format) in &data.events {
            let Ok(number) = u16::try_from(format.id) else { continue };
            let index = match Decoder::compile(system, format, order, purpose) {
                Ok(Some(decoder)) if ids.decoders.len() < usize::from(UNNEEDED) => {
                    tracepoints = tracepoints.union(decoder.provides());
                    if decoder.provides().contains(Tracepoints::CPU_IDLE) {
                        ids.idle_number = Some(number);
                    }
                    ids.decoders.push(decoder);
                    (ids.decoders.len() - 1) as u16
                }
                Ok(_) => UNNEEDED,
                Err(unreadable) => {
                    unreadable_tracepoints.push(unreadable);
                    UNNEEDED
                }
            };
            let needed_len = usize::from(number) + 1;
            if ids.indices.len() < needed_len {
                ids.indices.resize(needed_len, UNKNOWN);
            }
            if let Some(place) = ids.indices.get_mut(usize::from(number)) {
                *place = index;
            }
        }
        Some(Compiled { ids, tracepoints, unreadable_tracepoints })
    }

    /// The event of a record.
    #[inline]
    pub(super) fn event(&self, record: &[u8]) -> Known<'_> {
        let Some(number) = self.number.read(record, self.order) else { return Known::Not };
        let number = number as u16;
        match self.indices.get(usize::from(number)) {
            None | Some(&UNKNOWN) => Known::Not,
            Some(&UNNEEDED) => Known::Unneeded,
            Some(&index) => match self.decoders.get(usize::from(index)) {
                Some(decoder) => Known::Needed(number, decoder),
                None => Known::Not,
            },
        }
    }

    /// Whether a record is an idle event.
    pub(super) fn is_idle(&self, record: &[u8]) -> bool {
        let number = self.number.read(record, self.order).map(|number| number as u16);
        number.is_some() && number == self.idle_number
    }
}
