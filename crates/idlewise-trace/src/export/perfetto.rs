//! Writes tracks of slices, instants and counters as a Perfetto trace, which
//! <https://ui.perfetto.dev> and `trace_processor` can open.
//!
//! Only the few messages that we need are declared, with the field numbers that
//! `protos/perfetto/trace/` publishes (`trace_packet.proto`, `track_event/*.proto`,
//! `interned_data.proto`). Packets are written unsorted, because Perfetto sorts them by time.
//! Everything is one sequence, whose first packet interns all names.
//!
//! The UI colours a slice by a hash of its name without digits, so the name determines the colour:
//! "C6 too deep" and "C1 too deep" share a colour, "C6" has another.

use std::io::{self, Write};

use prost::Message;

/// The only sequence of packets.
const SEQUENCE_ID: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: names are interned anew from here.
const SEQUENCE_BEGINS: u32 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to interned names.
const SEQUENCE_GOES_ON: u32 = 2;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;
/// `EXPLICIT`: children are shown in order of their rank.
const ORDER_EXPLICIT: i32 = 3;
/// `Trace.packet`.
const PACKET_FIELD: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, optional, tag = "9")]
    kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "1")]
    event_categories: Vec<Interned>,
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Interned>,
}

#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(uint64, optional, tag = "1")]
    iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    sibling_order_rank: Option<i32>,
}

/// Unit and scale keep their defaults. The presence of this message makes the track a counter.
#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {}

/// A track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track(u64);

/// An event's name, as an index into [`Names::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventName(pub usize);

/// A value shown with a slice: the index of its name in [`Names::annotations`], and the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The index of the name.
    pub name: usize,
    /// The value.
    pub value: u64,
}

/// All names that events will use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of slices and instants.
    pub events: Vec<String>,
    /// Categories of events.
    pub categories: Vec<String>,
    /// Names of annotations.
    pub annotations: Vec<String>,
}

/// A slice. If it begins and ends at the same time it has no length.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// When it begins, on the trace's clock.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// Its name.
    pub name: EventName,
    /// The index of its category in [`Names::categories`].
    pub category: usize,
    /// The values shown when the slice is selected.
    pub annotations: &'a [Annotation],
}

/// Writes a Perfetto trace.
pub struct TraceWriter<W: Write> {
    output: W,
    /// The encoded packet; reused for every packet.
    buffer: Vec<u8>,
    packet: TracePacket,
    track_count: u64,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace with the names that it will use.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn new(output: W, names: &Names) -> io::Result<Self> {
        let intern = |names: &[String]| -> Vec<Interned> {
            let interned =
                |(iid, name): (u64, &String)| Interned { iid: Some(iid), name: Some(name.clone()) };
            (1..).zip(names).map(interned).collect()
        };
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE_ID),
            sequence_flags: Some(SEQUENCE_BEGINS | SEQUENCE_GOES_ON),
            interned_data: Some(InternedData {
                event_categories: intern(&names.categories),
                event_names: intern(&names.events),
                debug_annotation_names: intern(&names.annotations),
            }),
            ..TracePacket::default()
        };
        let mut writer = TraceWriter { output, buffer: Vec::new(), packet, track_count: 0 };
        writer.write_packet()?;
        writer.packet.interned_data = None;
        writer.packet.sequence_flags = Some(SEQUENCE_GOES_ON);
        Ok(writer)
    }

    /// Adds a track that groups others.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn group(&mut self, name: &str) -> io::Result<Track> {
        let child_ordering = Some(ORDER_EXPLICIT);
        self.track(name, TrackDescriptor { child_ordering, ..TrackDescriptor::default() })
    }

    /// Adds a track of slices and instants to a group, below its existing tracks.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn slices(&mut self, group: Track, name: &str) -> io::Result<Track> {
        let parent_uuid = Some(group.0);
        self.track(name, TrackDescriptor { parent_uuid, ..TrackDescriptor::default() })
    }

    /// Adds a track of numbers to a group, below its existing tracks.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn counter(&mut self, group: Track, name: &str) -> io::Result<Track> {
        let parent_uuid = Some(group.0);
        let counter = Some(CounterDescriptor {});
        self.track(name, TrackDescriptor { parent_uuid, counter, ..TrackDescriptor::default() })
    }

    fn track(&mut self, name: &str, descriptor: TrackDescriptor) -> io::Result<Track> {
        self.track_count += 1;
        let track = Track(self.track_count);
        self.packet.track_descriptor = Some(TrackDescriptor {
            uuid: Some(track.0),
            name: Some(name.to_owned()),
            sibling_order_rank: i32::try_from(self.track_count).ok(),
            ..descriptor
        });
        self.packet.timestamp = None;
        self.packet.track_event = None;
        self.write_packet()?;
        self.packet.track_descriptor = None;
        Ok(track)
    }

    /// Adds a slice. Slices of one track must not overlap.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn slice(&mut self, track: Track, slice: Slice<'_>) -> io::Result<()> {
        let event = self.event(track, slice.begin_ns, SLICE_BEGIN);
        event.name_iid = Some(1 + slice.name.0 as u64);
        event.category_iids.push(1 + slice.category as u64);
        event.debug_annotations.extend(slice.annotations.iter().map(|annotation| {
            let name_iid = Some(1 + annotation.name as u64);
            DebugAnnotation { name_iid, uint_value: Some(annotation.value) }
        }));
        self.write_packet()?;
        self.event(track, slice.end_ns, SLICE_END);
        self.write_packet()
    }

    /// Adds an instant.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn instant(
        &mut self,
        track: Track,
        at_ns: u64,
        name: EventName,
        category: usize,
    ) -> io::Result<()> {
        let event = self.event(track, at_ns, INSTANT);
        event.name_iid = Some(1 + name.0 as u64);
        event.category_iids.push(1 + category as u64);
        self.write_packet()
    }

    /// Sets a counter.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn count(&mut self, track: Track, at_ns: u64, value: u64) -> io::Result<()> {
        self.event(track, at_ns, COUNTER).counter_value = i64::try_from(value).ok();
        self.write_packet()
    }

    /// Finishes the trace.
    ///
    /// # Errors
    /// Returns an error if writing fails.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Prepares the next packet's event. It reuses the last one's memory but none of its content.
    fn event(&mut self, track: Track, at_ns: u64, kind: i32) -> &mut TrackEvent {
        self.packet.timestamp = Some(at_ns);
        let event = self.packet.track_event.get_or_insert_default();
        event.category_iids.clear();
        event.debug_annotations.clear();
        event.kind = Some(kind);
        event.name_iid = None;
        event.track_uuid = Some(track.0);
        event.counter_value = None;
        event
    }

    fn write_packet(&mut self) -> io::Result<()> {
        self.buffer.clear();
        prost::encoding::message::encode(PACKET_FIELD, &self.packet, &mut self.buffer);
        self.output.write_all(&self.buffer)
    }
}
