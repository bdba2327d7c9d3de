//! Bundles of events of one CPU, to events.
//!
//! An event comes in one of four shapes: as a message of its own type; as a generic one that names
//! its fields; as a generic one whose description came once, in this bundle or an earlier one; or,
//! for switches between tasks, in columns (`CompactSched`), of which each has one field of all.

use std::collections::HashMap;

use super::schema::{TYPED, Typed, bundle, event};
use super::wire::{Fields, Value, field, packed};
use crate::event::{Event, EventKind};
use crate::import::named::{self, EVENT_COUNT, Field};
use crate::tracepoint::Decoded;

/// A trace describes a few events; more than this is no description.
const MAX_DESCRIPTOR_COUNT: usize = 1 << 12;

/// The clocks of FtraceClock by number; none stands for CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceClock {
    Boottime,
    MonotonicRaw,
    /// The scheduler's, or one that the recorder did not know.
    Other,
}

impl TraceClock {
    fn of(number: u64) -> Self {
        match number {
            0 => Self::Boottime,
            4 => Self::MonotonicRaw,
            _ => Self::Other,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Boottime => "CLOCK_BOOTTIME",
            Self::MonotonicRaw => "CLOCK_MONOTONIC_RAW",
            Self::Other => "the kernel's own",
        }
    }
}

/// What a bundle says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BundleHead {
    pub(super) cpu: u16,
    pub(super) has_lost_events: bool,
    pub(super) clock: TraceClock,
}

/// Reads bundles; what it has learned from one serves the next.
pub(super) struct BundleReader {
    /// Events that the trace describes, by their field in `FtraceEvent`.
    described: HashMap<u32, Described>,
    pub(super) is_seen: [bool; EVENT_COUNT],
    /// What to add to the monotonic clock to get the trace's, if that is known.
    pub(super) monotonic_offset_ns: Option<i64>,
    pub(super) event_count: u64,
    pub(super) undecodable_count: u64,
}

struct Described {
    number: usize,
    fields: Vec<(u32, Field)>,
    name_field: Option<u32>,
}

impl Default for BundleReader {
    fn default() -> Self {
        Self {
            described: HashMap::new(),
            is_seen: [false; EVENT_COUNT],
            monotonic_offset_ns: None,
            event_count: 0,
            undecodable_count: 0,
        }
    }
}

impl BundleReader {
    /// Adds the events of a bundle to `events`, as the bundle has them; `None` if it has no CPU that
    /// there can be.
    pub(super) fn read(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Option<BundleHead> {
        let (mut cpu, mut has_lost_events, mut clock) = (None, false, TraceClock::Boottime);
        for (number, value) in Fields::of(bytes) {
            match (number, value) {
                (bundle::CPU, Value::Number(number)) => cpu = Some(number),
                (bundle::LOST_EVENTS, Value::Number(number)) => has_lost_events = number != 0,
                (bundle::FTRACE_CLOCK, Value::Number(number)) => clock = TraceClock::of(number),
                (bundle::GENERIC_EVENT_DESCRIPTORS, Value::Bytes(bytes)) => self.describe(bytes),
                _ => {}
            }
        }
        let cpu = u16::try_from(cpu?).ok()?;
        let mut fields = Fields::of(bytes);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (bundle::EVENT, Value::Bytes(bytes)) => self.read_event(bytes, cpu, clock, events),
                (bundle::COMPACT_SCHED, Value::Bytes(bytes)) => {
                    self.read_compact(bytes, cpu, events);
                }
                _ => {}
            }
        }
        self.undecodable_count += u64::from(!fields.rest().is_empty());
        Some(BundleHead { cpu, has_lost_events, clock })
    }

    #[inline]
    fn read_event(&mut self, bytes: &[u8], cpu: u16, clock: TraceClock, events: &mut Vec<Event>) {
        self.event_count += 1;
        let mut at_ns = None;
        let mut payload = None;
        let mut fields = Fields::of(bytes);
        for (number, value) in fields.by_ref() {
            match value {
                Value::Number(number_value) if number == event::TIMESTAMP => {
                    at_ns = i64::try_from(number_value).ok();
                }
                Value::Bytes(bytes) => payload = Some((number, bytes)),
                Value::Number(_) => {}
            }
        }
        let is_whole = fields.rest().is_empty();
        let Some((number, payload)) = payload else { return };
        let Some((named_number, fields)) = self.payload(number, payload) else { return };
        self.is_seen[named_number] = true;
        let decoded = match at_ns {
            Some(_) if is_whole => named::event(named_number).decode(&fields, cpu),
            _ => Decoded::Malformed,
        };
        match (decoded, at_ns) {
            (Decoded::Event { cpu, kind }, Some(at_ns)) => {
                let kind = self.on_trace_clock(kind, at_ns, clock);
                events.push(Event { at_ns, cpu, kind });
            }
            (Decoded::Nothing, _) => {}
            _ => self.undecodable_count += 1,
        }
    }

    /// Which event a field of `FtraceEvent` is, and its fields; `None` if we need it not.
    #[inline]
    fn payload<'a>(&self, number: u32, payload: &'a [u8]) -> Option<(usize, named::Fields<'a>)> {
        if let Some(Typed { name, fields, name_field, .. }) =
            TYPED.iter().find(|typed| typed.number == number)
        {
            return Some((named::find(name.as_bytes())?, numbered(payload, fields, *name_field)));
        }
        if number == event::GENERIC {
            return generic(payload);
        }
        let described = self.described.get(&number)?;
        Some((described.number, numbered(payload, &described.fields, described.name_field)))
    }

    fn read_compact(&mut self, bytes: &[u8], cpu: u16, events: &mut Vec<Event>) {
        let column = |number| field(bytes, number).and_then(Value::bytes).unwrap_or_default();
        let mut next_pids = packed(column(bundle::SWITCH_NEXT_PID));
        let mut at_ns: u64 = 0;
        for step_ns in packed(column(bundle::SWITCH_TIMESTAMP)) {
            self.event_count += 1;
            at_ns = at_ns.wrapping_add(step_ns);
            let (Ok(at_ns), Some(next_pid)) = (i64::try_from(at_ns), next_pids.next()) else {
                self.undecodable_count += 1;
                continue;
            };
            let kind =
                if next_pid == 0 { EventKind::SwitchToIdle } else { EventKind::SwitchToTask };
            events.push(Event { at_ns, cpu, kind });
            if let Some(number) = named::find(b"sched_switch") {
                self.is_seen[number] = true;
            }
        }
    }

    /// Remembers the description of an event: a `DescriptorProto` has its name as 1 and its fields
    /// as 2, of which each has its name as 1 and its number as 3.
    fn describe(&mut self, bytes: &[u8]) {
        let id = field(bytes, bundle::DESCRIPTOR_FIELD_ID).and_then(Value::number);
        let descriptor = field(bytes, bundle::DESCRIPTOR).and_then(Value::bytes);
        let (Some(Ok(id)), Some(descriptor)) = (id.map(u32::try_from), descriptor) else { return };
        if self.described.contains_key(&id) || self.described.len() == MAX_DESCRIPTOR_COUNT {
            return;
        }
        let name = field(descriptor, 1).and_then(Value::bytes).unwrap_or_default();
        let (mut fields, mut name_field, mut is_vector) = (Vec::new(), None, false);
        let messages = Fields::of(descriptor).filter(|&(number, _)| number == 2);
        for message in messages.filter_map(|(_, value)| value.bytes()) {
            let name = field(message, 1).and_then(Value::bytes).unwrap_or_default();
            let Some(Ok(number)) = field(message, 3).and_then(Value::number).map(u32::try_from)
            else {
                continue;
            };
            match name {
                b"name" | b"reason" => name_field = Some(number),
                b"vector" => is_vector = true,
                _ => fields.extend(Field::from_name(name).map(|field| (number, field))),
            }
        }
        let number = named::find(name).or_else(|| named::find_vector(name).filter(|_| is_vector));
        let Some(number) = number else { return };
        fields.truncate(MAX_DESCRIPTOR_COUNT);
        self.described.insert(id, Described { number, fields, name_field });
    }

    /// Timers expire on the monotonic clock; their times go where the events' are, unless they are
    /// far from there, as those on the clock of the day.
    fn on_trace_clock(&self, kind: EventKind, at_ns: i64, clock: TraceClock) -> EventKind {
        const NEAR_NS: u64 = 31_536_000_000_000_000;
        let Some(offset_ns) = self.monotonic_offset_ns.filter(|_| clock == TraceClock::Boottime)
        else {
            return kind;
        };
        let moved = |time_ns: i64| {
            let moved_ns = time_ns.saturating_add(offset_ns);
            if moved_ns.abs_diff(at_ns) < NEAR_NS { moved_ns } else { time_ns }
        };
        match kind {
            EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack } => {
                let expires_at_ns = moved(expires_at_ns);
                EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack }
            }
            EventKind::HrtimerExpire { timer, function, now_ns } => {
                EventKind::HrtimerExpire { timer, function, now_ns: moved(now_ns) }
            }
            kind => kind,
        }
    }
}

/// The fields of a message whose numbers are known.
#[inline]
fn numbered<'a>(
    payload: &'a [u8],
    known: &[(u32, Field)],
    name_field: Option<u32>,
) -> named::Fields<'a> {
    let mut fields = named::Fields::default();
    for (number, value) in Fields::of(payload) {
        match value {
            Value::Number(value) => {
                if let Some(&(_, field)) = known.iter().find(|&&(known, _)| known == number) {
                    fields.set(field, value);
                }
            }
            Value::Bytes(bytes) if name_field == Some(number) => fields.name = bytes,
            Value::Bytes(_) => {}
        }
    }
    fields
}

/// A generic event, which names itself and its fields.
fn generic(payload: &[u8]) -> Option<(usize, named::Fields<'_>)> {
    let name = field(payload, event::GENERIC_NAME)?.bytes()?;
    let mut fields = named::Fields::default();
    let mut is_vector = false;
    let messages = Fields::of(payload).filter(|&(number, _)| number == event::GENERIC_FIELD);
    for message in messages.filter_map(|(_, value)| value.bytes()) {
        let (mut key, mut number, mut text) = (b"".as_slice(), None, None);
        for (field, value) in Fields::of(message) {
            match (field, value) {
                (event::GENERIC_FIELD_NAME, Value::Bytes(bytes)) => key = bytes,
                (event::GENERIC_FIELD_STRING, Value::Bytes(bytes)) => text = Some(bytes),
                (_, Value::Number(value)) => number = Some(value),
                _ => {}
            }
        }
        match (key, number, text) {
            (b"name" | b"reason", _, Some(text)) => fields.name = text,
            (b"vector", ..) => is_vector = true,
            (key, Some(number), _) => {
                if let Some(field) = Field::from_name(key) {
                    fields.set(field, number);
                }
            }
            _ => {}
        }
    }
    let number = named::find(name).or_else(|| named::find_vector(name).filter(|_| is_vector))?;
    Some((number, fields))
}
