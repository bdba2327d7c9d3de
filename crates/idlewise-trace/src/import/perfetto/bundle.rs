//! Decodes bundles of events of one CPU.
//!
//! An event has one of four forms: a message of its own type; a generic message that names its
//! fields; a generic message whose description came earlier, in this bundle or another; or, for
//! task switches, one entry in each of several columns (`CompactSched`).
//!
//! Instead of a kernel address the recorder writes a number: the address's index among those it has
//! met since it last read the kernel's buffers. A tenth of a second later, the same number means a
//! different timer. Starts and cancellations with such numbers are left out.

use rustc_hash::FxHashMap;

use super::schema::{TYPED, bundle, event};
use super::wire::{Fields, Value, field, packed, varint};
use crate::event::{Event, EventKind, TaskName};
use crate::import::named::{self, EVENT_COUNT};
use crate::tracepoint::{FieldName, Purpose, Tracepoint, context, leaving, task};

/// A trace describes few events. Beyond this number it is not a list of descriptions.
const MAX_DESCRIPTOR_COUNT: usize = 1 << 12;

/// We read no event field with a higher number.
const FIELD_COUNT: usize = 64;

/// No kernel object has a lower address.
const FIRST_ADDRESS: u64 = 1 << 24;

/// The clocks of FtraceClock by number. If there is none, it is CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TraceClock {
    #[default]
    Boottime,
    MonotonicRaw,
    /// The scheduler's clock, or one that the recorder did not know.
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

/// The CPU of a bundle; `None` if it is missing or impossible.
pub(super) fn cpu_of(bytes: &[u8]) -> Option<u16> {
    u16::try_from(field(bytes, bundle::CPU)?.number()?).ok()
}

/// Offsets from the monotonic clock to the trace's.
#[derive(Clone, Debug, Default)]
pub(super) struct MonotonicOffsets {
    /// Times on the trace's clock, each with the offset that applies from then on; in order.
    points: Vec<(i64, i64)>,
}

impl MonotonicOffsets {
    pub(super) fn new(mut points: Vec<(i64, i64)>) -> Self {
        points.sort_unstable();
        Self { points }
    }

    pub(super) fn is_known(&self) -> bool {
        !self.points.is_empty()
    }

    /// The offset at that time. Before the first snapshot, the first offset applies.
    #[inline]
    fn at(&self, at_ns: i64) -> Option<i64> {
        if let &[(_, offset_ns)] = self.points.as_slice() {
            return Some(offset_ns);
        }
        let next = self.points.partition_point(|&(from_ns, _)| from_ns <= at_ns);
        self.points.get(next.saturating_sub(1)).map(|&(_, offset_ns)| offset_ns)
    }
}

/// Reads bundles. What it learns from one is used for the next.
#[derive(Clone)]
pub(super) struct BundleReader {
    purpose: Purpose,
    /// Events that we read: those in the published schema, then those that the trace describes.
    rows: Vec<Row>,
    /// Indexes into `rows` by the events' fields in `FtraceEvent`: of published events, plus one,
    /// and of described ones.
    published: Vec<u8>,
    described: FxHashMap<u32, usize>,
    sched_switch: Option<usize>,
    sched_waking: Option<usize>,
    is_seen: [bool; EVENT_COUNT],
    pub(super) monotonic_offsets: MonotonicOffsets,
    /// Whether timers' addresses are replaced by numbers that change their meaning.
    pub(super) has_numbered_addresses: bool,
    /// Whether times of other clocks are converted to CLOCK_BOOTTIME.
    pub(super) puts_on_boottime: bool,
    /// Bundles that needed this conversion but do not give the offset.
    pub(super) unplaced_bundle_count: u64,
    pub(super) event_count: u64,
    pub(super) undecodable_count: u64,
}

/// An event that we read.
#[derive(Clone)]
struct Row {
    /// Its number in `TRACEPOINTS`.
    number: usize,
    /// The meaning of its fields, by number.
    fields: [Option<FieldName>; FIELD_COUNT],
    /// The field with an interrupt's name or an IPI's reason.
    name_field: Option<u32>,
    /// Whether one of the fields is a timer's address.
    has_timer: bool,
}

impl Row {
    fn new(
        number: usize,
        known: impl Iterator<Item = (u32, FieldName)>,
        name_field: Option<u32>,
    ) -> Self {
        let mut fields = [None; FIELD_COUNT];
        for (number, field) in known {
            if let Some(place) = fields.get_mut(number as usize) {
                *place = Some(field);
            }
        }
        let has_timer =
            fields.contains(&Some(FieldName::Hrtimer)) || fields.contains(&Some(FieldName::Timer));
        Self { number, fields, name_field, has_timer }
    }

    #[inline]
    fn read<'a>(&self, payload: &'a [u8], into: &mut named::Fields<'a>) {
        into.clear();
        for (number, value) in Fields::of(payload) {
            match value {
                Value::Number(value) => {
                    if let Some(&Some(field)) = self.fields.get(number as usize) {
                        into.set(field, value);
                    }
                }
                Value::Bytes(bytes) if self.name_field == Some(number) => into.name = bytes,
                Value::Bytes(_) => {}
            }
        }
    }
}

impl Default for BundleReader {
    fn default() -> Self {
        Self::new(Purpose::Gaps)
    }
}

impl BundleReader {
    /// Makes a reader for a purpose.
    pub(super) fn new(purpose: Purpose) -> Self {
        let (mut rows, mut published) = (Vec::new(), Vec::new());
        for typed in TYPED {
            let Some(number) = named::find(typed.name.as_bytes(), purpose) else { continue };
            rows.push(Row::new(number, typed.fields.iter().copied(), typed.name_field));
            let index = typed.number as usize;
            if published.len() <= index {
                published.resize(index + 1, 0);
            }
            if let Some(place) = published.get_mut(index) {
                *place = rows.len() as u8;
            }
        }
        Self {
            purpose,
            rows,
            published,
            described: FxHashMap::default(),
            sched_switch: named::find(b"sched_switch", purpose),
            sched_waking: named::find(b"sched_waking", purpose),
            is_seen: [false; EVENT_COUNT],
            monotonic_offsets: MonotonicOffsets::default(),
            has_numbered_addresses: false,
            puts_on_boottime: false,
            unplaced_bundle_count: 0,
            event_count: 0,
            undecodable_count: 0,
        }
    }
}

/// What a bundle says about itself. Most of it comes before the events.
#[derive(Default)]
struct BundleHead {
    has_lost_events: bool,
    clock: TraceClock,
    ftrace_ns: Option<u64>,
    boot_ns: Option<u64>,
    /// Whether the whole bundle was read for it.
    is_read: bool,
}

impl BundleHead {
    fn set(&mut self, number: u32, value: u64) {
        match number {
            bundle::LOST_EVENTS => self.has_lost_events = value != 0,
            bundle::FTRACE_CLOCK => self.clock = TraceClock::of(value),
            bundle::FTRACE_TIMESTAMP => self.ftrace_ns = Some(value),
            bundle::BOOT_TIMESTAMP => self.boot_ns = Some(value),
            _ => {}
        }
    }
}

/// What all events of a bundle have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    cpu: u16,
    is_on_boottime: bool,
    /// The offset to add to its times.
    shift_ns: i64,
}

impl BundleReader {
    /// Resets the counts and the set of events seen.
    pub(super) fn start(&mut self) {
        self.is_seen = [false; EVENT_COUNT];
        self.event_count = 0;
        self.undecodable_count = 0;
    }

    /// The tracepoints that were seen.
    pub(super) fn seen(&self) -> impl Iterator<Item = &'static Tracepoint> {
        let seen = self.is_seen.iter().enumerate().filter(|(_, is_seen)| **is_seen);
        seen.map(|(number, _)| named::event(number))
    }

    /// Appends the events of that CPU's bundle to `events`, in order, and returns whether events
    /// were lost before them.
    pub(super) fn read(&mut self, bytes: &[u8], cpu: u16, events: &mut Vec<Event>) -> bool {
        let start = events.len();
        let before = (self.event_count, self.undecodable_count);
        let mut head = BundleHead::default();
        while !self.try_read(bytes, cpu, &mut head, events) {
            events.truncate(start);
            (self.event_count, self.undecodable_count) = before;
        }
        // Switches in columns come separately from the other events.
        let own = events.get_mut(start..).unwrap_or_default();
        if !own.is_sorted_by_key(|event| event.at_ns) {
            own.sort_by_key(|event| event.at_ns);
        }
        head.has_lost_events
    }

    /// Reads a bundle with what is known of its head; false if more of that follows events.
    fn try_read(
        &mut self,
        bytes: &[u8],
        cpu: u16,
        head: &mut BundleHead,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut place = self.place(cpu, head);
        let mut is_behind_events = false;
        let known_count = self.rows.len();
        let mut event_fields = named::Fields::default();
        let mut fields = Fields::of(bytes);
        for (number, value) in fields.by_ref() {
            match (number, value) {
                (bundle::EVENT, Value::Bytes(bytes)) => {
                    is_behind_events = true;
                    self.read_event(bytes, place, &mut event_fields, events);
                }
                (bundle::COMPACT_SCHED, Value::Bytes(bytes)) => {
                    is_behind_events = true;
                    self.read_compact(bytes, place, events);
                }
                (bundle::GENERIC_EVENT_DESCRIPTORS, Value::Bytes(bytes)) => self.describe(bytes),
                (_, Value::Number(value)) => {
                    head.set(number, value);
                    if !is_behind_events {
                        place = self.place(cpu, head);
                    }
                }
                _ => {}
            }
        }
        if is_behind_events
            && (self.rows.len() > known_count || self.place(cpu, head) != place)
            && !head.is_read
        {
            head.is_read = true;
            return false;
        }
        self.undecodable_count += u64::from(!fields.rest().is_empty());
        self.unplaced_bundle_count += u64::from(self.puts_on_boottime && !place.is_on_boottime);
        true
    }

    /// Where a bundle's events belong.
    fn place(&self, cpu: u16, head: &BundleHead) -> Place {
        let is_on_boottime = head.clock == TraceClock::Boottime;
        match (head.ftrace_ns, head.boot_ns) {
            (Some(ftrace_ns), Some(boot_ns)) if self.puts_on_boottime && !is_on_boottime => {
                let shift_ns = boot_ns.wrapping_sub(ftrace_ns) as i64;
                Place { cpu, is_on_boottime: true, shift_ns }
            }
            _ => Place { cpu, is_on_boottime, shift_ns: 0 },
        }
    }

    /// Notes which events a bundle has and whether its addresses are numbers, but no times. `kind`
    /// gets each event's field in `FtraceEvent`. Returns the bundle's clock.
    pub(super) fn survey(&mut self, bytes: &[u8], mut kind: impl FnMut(u32)) -> TraceClock {
        let mut fields = named::Fields::default();
        let mut clock = TraceClock::Boottime;
        for (number, value) in Fields::of(bytes) {
            match (number, value) {
                (bundle::FTRACE_CLOCK, Value::Number(number)) => clock = TraceClock::of(number),
                (bundle::GENERIC_EVENT_DESCRIPTORS, Value::Bytes(bytes)) => self.describe(bytes),
                (bundle::COMPACT_SCHED, Value::Bytes(bytes)) => {
                    let count = packed(column(bytes, bundle::SWITCH_TIMESTAMP)).count() as u64;
                    self.event_count += count;
                    if let (Some(number), 1..) = (self.sched_switch, count) {
                        self.is_seen[number] = true;
                    }
                    let count = packed(column(bytes, bundle::WAKING_TIMESTAMP)).count();
                    if let (Some(number), 1..) = (self.sched_waking, count) {
                        self.is_seen[number] = true;
                    }
                }
                _ => {}
            }
        }
        for (number, value) in Fields::of(bytes) {
            let (bundle::EVENT, Value::Bytes(event)) = (number, value) else { continue };
            self.event_count += 1;
            let Some(EventParts { number, payload, .. }) =
                EventParts::in_order(event).or_else(|| EventParts::of(event))
            else {
                continue;
            };
            kind(number);
            // Of kinds already seen, only timers' addresses are still of interest.
            if self.row(number).is_some_and(|row| self.is_seen[row.number] && !row.has_timer) {
                continue;
            }
            let Some(number) = self.payload(number, payload, &mut fields) else { continue };
            self.is_seen[number] = true;
            let timer = fields.get(FieldName::Hrtimer).or(fields.get(FieldName::Timer));
            self.has_numbered_addresses |=
                timer.is_some_and(|timer| (1..FIRST_ADDRESS).contains(&timer));
        }
        clock
    }

    #[inline]
    fn read_event<'a>(
        &mut self,
        bytes: &'a [u8],
        place: Place,
        event_fields: &mut named::Fields<'a>,
        events: &mut Vec<Event>,
    ) {
        self.event_count += 1;
        let Some(EventParts { at_ns, number, payload, is_whole }) =
            EventParts::in_order(bytes).or_else(|| EventParts::of(bytes))
        else {
            return;
        };
        let Some(number) = self.payload(number, payload, event_fields) else { return };
        let kept_count = events.len();
        let shifted_ns = at_ns.unwrap_or(0).saturating_add(place.shift_ns);
        events.push(Event { at_ns: shifted_ns, cpu: place.cpu, kind: EventKind::IdleExit });
        let Some(event) = events.last_mut() else { return };
        let says = match at_ns {
            Some(_) if is_whole => {
                named::event(number).decode_into(event_fields, event, self.purpose)
            }
            _ => None,
        };
        if says != Some(true) {
            self.undecodable_count += u64::from(says.is_none());
            events.truncate(kept_count);
        } else if self.has_numbered_addresses && needs_address(event.kind) {
            events.truncate(kept_count);
            return;
        } else if place.is_on_boottime {
            self.put_on_trace_clock(event);
        }
        self.is_seen[number] = true;
    }

    /// The event in a field of `FtraceEvent`, and its fields; `None` if we do not need it.
    #[inline]
    fn payload<'a>(
        &self,
        number: u32,
        payload: &'a [u8],
        fields: &mut named::Fields<'a>,
    ) -> Option<usize> {
        let Some(row) = self.row(number) else {
            let is_generic = number == event::GENERIC;
            return is_generic.then(|| generic(payload, fields, self.purpose))?;
        };
        row.read(payload, fields);
        Some(row.number)
    }

    /// How to read the event in a field of `FtraceEvent`.
    #[inline]
    fn row(&self, number: u32) -> Option<&Row> {
        match self.published.get(number as usize) {
            Some(&row) if row > 0 => self.rows.get(usize::from(row) - 1),
            _ if number == event::GENERIC => None,
            _ => self.rows.get(*self.described.get(&number)?),
        }
    }

    /// Reads the columns of switches and wakings for causes. They do not name the task that leaves.
    fn read_compact_causes(&mut self, bytes: &[u8], place: Place, events: &mut Vec<Event>) {
        let names = Fields::of(bytes).filter(|&(number, _)| number == bundle::NAMES);
        let names: Vec<&[u8]> = names.filter_map(|(_, value)| value.bytes()).collect();
        let mut next_pids = packed(column(bytes, bundle::SWITCH_NEXT_PID));
        let mut prev_states = packed(column(bytes, bundle::SWITCH_PREV_STATE));
        let mut next_names = packed(column(bytes, bundle::SWITCH_NEXT_NAME));
        let mut switch = || {
            let (next, prev_state) = (task(next_pids.next()?)?, prev_states.next()?);
            let name = next_names.next().and_then(|at| names.get(usize::try_from(at).ok()?));
            let next_name = TaskName::new(name.copied().unwrap_or_default());
            Some(EventKind::Switch { prev: None, next, leaves: leaving(prev_state), next_name })
        };
        let switches = column(bytes, bundle::SWITCH_TIMESTAMP);
        self.read_column(switches, place, self.sched_switch, &mut switch, events);
        let mut pids = packed(column(bytes, bundle::WAKING_PID));
        let mut flags = packed(column(bytes, bundle::WAKING_FLAGS));
        let mut waking = || {
            let (task, context) = (task(pids.next()?)?, context(flags.next()));
            Some(EventKind::Waking { task, context })
        };
        let wakings = column(bytes, bundle::WAKING_TIMESTAMP);
        self.read_column(wakings, place, self.sched_waking, &mut waking, events);
    }

    /// Reads events whose times are in one column, and the rest in others.
    fn read_column(
        &mut self,
        times: &[u8],
        place: Place,
        number: Option<usize>,
        next: &mut dyn FnMut() -> Option<EventKind>,
        events: &mut Vec<Event>,
    ) {
        let mut at_ns: u64 = 0;
        for step_ns in packed(times) {
            self.event_count += 1;
            at_ns = at_ns.wrapping_add(step_ns);
            let (Ok(at_ns), Some(kind)) = (i64::try_from(at_ns), next()) else {
                self.undecodable_count += 1;
                continue;
            };
            let at_ns = at_ns.saturating_add(place.shift_ns);
            events.push(Event { at_ns, cpu: place.cpu, kind });
            if let Some(number) = number {
                self.is_seen[number] = true;
            }
        }
    }

    fn read_compact(&mut self, bytes: &[u8], place: Place, events: &mut Vec<Event>) {
        if self.purpose.needs_tasks() {
            return self.read_compact_causes(bytes, place, events);
        }
        let mut next_pids = packed(column(bytes, bundle::SWITCH_NEXT_PID));
        let mut at_ns: u64 = 0;
        for step_ns in packed(column(bytes, bundle::SWITCH_TIMESTAMP)) {
            self.event_count += 1;
            at_ns = at_ns.wrapping_add(step_ns);
            let (Ok(at_ns), Some(next_pid)) = (i64::try_from(at_ns), next_pids.next()) else {
                self.undecodable_count += 1;
                continue;
            };
            let kind =
                if next_pid == 0 { EventKind::SwitchToIdle } else { EventKind::SwitchToTask };
            let at_ns = at_ns.saturating_add(place.shift_ns);
            events.push(Event { at_ns, cpu: place.cpu, kind });
            if let Some(number) = self.sched_switch {
                self.is_seen[number] = true;
            }
        }
    }

    /// Remembers the description of an event. In a `DescriptorProto`, field 1 is the name and field
    /// 2 the fields, each with its name in field 1 and its number in field 3.
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
        for message in messages.filter_map(|(_, value)| value.bytes()).take(FIELD_COUNT) {
            let name = field(message, 1).and_then(Value::bytes).unwrap_or_default();
            let Some(Ok(number)) = field(message, 3).and_then(Value::number).map(u32::try_from)
            else {
                continue;
            };
            match name {
                b"name" | b"reason" | b"next_comm" => name_field = Some(number),
                b"vector" => is_vector = true,
                _ => fields.extend(FieldName::from_name(name).map(|field| (number, field))),
            }
        }
        let vector = || named::find_vector(name, self.purpose).filter(|_| is_vector);
        let number = named::find(name, self.purpose).or_else(vector);
        let Some(number) = number else { return };
        self.described.insert(id, self.rows.len());
        self.rows.push(Row::new(number, fields.into_iter(), name_field));
    }

    /// Timers expire on the monotonic clock. Their times are converted to the events' clock, unless
    /// they are far from it, like those on the realtime clock.
    #[inline]
    fn put_on_trace_clock(&self, event: &mut Event) {
        const NEAR_NS: u64 = 31_536_000_000_000_000;
        let at_ns = event.at_ns;
        let (EventKind::HrtimerStart { expires_at_ns: time_ns, .. }
        | EventKind::HrtimerExpire { now_ns: time_ns, .. }) = &mut event.kind
        else {
            return;
        };
        let Some(offset_ns) = self.monotonic_offsets.at(at_ns) else { return };
        let moved_ns = time_ns.saturating_add(offset_ns);
        if moved_ns.abs_diff(at_ns) < NEAR_NS {
            *time_ns = moved_ns;
        }
    }
}

/// The parts of an `FtraceEvent`: its time and the event itself.
struct EventParts<'a> {
    at_ns: Option<i64>,
    /// The field that says which event it is.
    number: u32,
    payload: &'a [u8],
    is_whole: bool,
}

impl<'a> EventParts<'a> {
    /// Parses an event whose fields are in the order that recorders write, with nothing after them:
    /// time, pid, event.
    #[inline(always)]
    fn in_order(bytes: &'a [u8]) -> Option<Self> {
        const TIMESTAMP_KEY: u8 = 1 << 3;
        const PID_KEY: u8 = 2 << 3;
        let (at_ns, rest) = varint(bytes.strip_prefix(&[TIMESTAMP_KEY])?)?;
        let (_, rest) = varint(rest.strip_prefix(&[PID_KEY])?)?;
        let (key, rest) = varint(rest)?;
        let (byte_count, payload) = varint(rest)?;
        let is_alone = key & 7 == 2 && byte_count == payload.len() as u64;
        let number = u32::try_from(key >> 3).ok().filter(|_| is_alone)?;
        Some(Self { at_ns: i64::try_from(at_ns).ok(), number, payload, is_whole: true })
    }

    /// Parses any other event.
    #[cold]
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (mut at_ns, mut payload) = (None, None);
        let mut fields = Fields::of(bytes);
        for (number, value) in fields.by_ref() {
            match value {
                Value::Number(value) if number == event::TIMESTAMP => {
                    at_ns = i64::try_from(value).ok();
                }
                Value::Bytes(bytes) => payload = Some((number, bytes)),
                Value::Number(_) => {}
            }
        }
        let is_whole = fields.rest().is_empty();
        let (number, payload) = payload?;
        Some(Self { at_ns, number, payload, is_whole })
    }
}

/// Whether an event is useless unless its timer is known.
fn needs_address(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::HrtimerStart { .. }
            | EventKind::HrtimerCancel { .. }
            | EventKind::WheelStart { .. }
            | EventKind::WheelCancel { .. }
    )
}

/// A column of `CompactSched`.
fn column(bytes: &[u8], number: u32) -> &[u8] {
    field(bytes, number).and_then(Value::bytes).unwrap_or_default()
}

/// A generic event, which contains its name and the names of its fields.
fn generic<'a>(
    payload: &'a [u8],
    fields: &mut named::Fields<'a>,
    purpose: Purpose,
) -> Option<usize> {
    let name = field(payload, event::GENERIC_NAME)?.bytes()?;
    fields.clear();
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
            (b"name" | b"reason" | b"next_comm", _, Some(text)) => fields.name = text,
            (b"vector", ..) => is_vector = true,
            (key, Some(number), _) => {
                if let Some(field) = FieldName::from_name(key) {
                    fields.set(field, number);
                }
            }
            _ => {}
        }
    }
    let vector = || named::find_vector(name, purpose).filter(|_| is_vector);
    named::find(name, purpose).or_else(vector)
}
