//! Merges streams that are each in order of time, as the kernel's per-CPU buffers are.
//!
//! Only the next part of each stream is needed at any time. The stream with the earliest event
//! delivers everything up to the next stream's first event:
//!
//! ```text
//!   cpu 0   10  20  30         90        the part after this one is read when 90 is given
//!   cpu 1                50  60
//!           └───────┘    └────┘ └─┘
//!            1st run      2nd    3rd
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::ImportError;
use super::order::InOrder;
use super::threads::Batch;
use crate::event::Event;

/// About how many events are handed over at once.
const BATCH_EVENT_COUNT: usize = 1 << 12;

/// Reads streams.
pub(super) trait StreamReader {
    /// A stream, and how far it has been read.
    type Stream;

    /// Appends the events of the stream's next non-empty part to `events`, or nothing at its end.
    /// Returns how many bytes it read.
    fn refill(
        &mut self,
        stream: &mut Self::Stream,
        events: &mut Vec<Event>,
    ) -> Result<u64, ImportError>;

    /// Whether [`StreamReader::wants`] can return false.
    fn is_choosy(&self) -> bool {
        false
    }

    /// Whether to keep the event. It is called for each event in order of time. An event that
    /// several streams have is kept once.
    #[inline]
    fn wants(&mut self, _stream: &Self::Stream, _event: &Event) -> bool {
        true
    }

    /// Called when all events of the stream have been delivered.
    fn end(&mut self, _stream: &Self::Stream) {}
}

/// A stream, with the events of its current part that have not been delivered yet.
struct Lane<S> {
    stream: S,
    events: Vec<Event>,
    /// How many of `events` have been delivered.
    given: usize,
}

/// Passes the events of all streams, in order as far as each is, to `hand_over`, which exchanges a
/// full batch for an empty one and returns whether to go on. Returns the streams and the order.
pub(super) fn merge<R: StreamReader>(
    streams: Vec<R::Stream>,
    reader: &mut R,
    hand_over: impl FnMut(&mut Batch) -> bool,
) -> Result<(Vec<R::Stream>, InOrder), ImportError> {
    let mut output = Output { hand_over, batch: Batch::default(), order: InOrder::default() };
    let mut lanes: Vec<Lane<R::Stream>> =
        streams.into_iter().map(|stream| Lane { stream, events: Vec::new(), given: 0 }).collect();
    merge_lanes(&mut lanes, reader, &mut output)?;
    let Output { order, .. } = output;
    Ok((lanes.into_iter().map(|lane| lane.stream).collect(), order))
}

fn merge_lanes<R: StreamReader, F: FnMut(&mut Batch) -> bool>(
    lanes: &mut [Lane<R::Stream>],
    reader: &mut R,
    output: &mut Output<F>,
) -> Result<(), ImportError> {
    let mut next = BinaryHeap::new();
    for (index, lane) in lanes.iter_mut().enumerate() {
        output.batch.byte_count += reader.refill(&mut lane.stream, &mut lane.events)?;
        if let Some(event) = lane.events.first() {
            next.push(Reverse((event.at_ns, index)));
        }
    }
    let is_choosy = reader.is_choosy();
    while let Some(Reverse((_, index))) = next.pop() {
        let bound = next.peek().map(|&Reverse(first)| first);
        let Some(lane) = lanes.get_mut(index) else { continue };
        loop {
            let rest = lane.events.get_mut(lane.given..).unwrap_or_default();
            // A stream's own events keep their order, even if its clock steps back.
            let run = match bound {
                None => rest.len(),
                Some(bound) => {
                    rest.iter().position(|event| (event.at_ns, index) > bound).unwrap_or(rest.len())
                }
            };
            let is_last = run == rest.len();
            let wanted = rest.get_mut(..run).unwrap_or_default();
            let goes_on = match is_choosy {
                false => wanted.chunks_mut(BATCH_EVENT_COUNT).all(|some| output.push(some)),
                true => wanted.iter_mut().all(|event| {
                    !reader.wants(&lane.stream, event) || output.push(std::slice::from_mut(event))
                }),
            };
            if !goes_on {
                return Ok(());
            }
            lane.given += run;
            if !is_last {
                break;
            }
            lane.events.clear();
            lane.given = 0;
            output.batch.byte_count += reader.refill(&mut lane.stream, &mut lane.events)?;
            if lane.events.is_empty() {
                reader.end(&lane.stream);
                break;
            }
        }
        if let Some(event) = lane.events.get(lane.given) {
            next.push(Reverse((event.at_ns, index)));
        }
    }
    output.flush();
    Ok(())
}

/// Collects events in batches and keeps them in order.
struct Output<F> {
    hand_over: F,
    batch: Batch,
    order: InOrder,
}

impl<F: FnMut(&mut Batch) -> bool> Output<F> {
    /// Takes events; false if nobody is receiving.
    #[inline]
    fn push(&mut self, events: &mut [Event]) -> bool {
        // The events are still in the cache here. A batch returns from another CPU's cache.
        self.order.admit(events);
        self.batch.events.extend_from_slice(events);
        self.batch.events.len() < BATCH_EVENT_COUNT || self.flush()
    }

    /// Hands over what is left; false if nobody is receiving.
    fn flush(&mut self) -> bool {
        let byte_count = self.batch.byte_count;
        let goes_on = (self.hand_over)(&mut self.batch);
        self.batch.byte_count = byte_count;
        goes_on
    }
}
