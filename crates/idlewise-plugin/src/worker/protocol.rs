//! Messages between idlewise and a worker: a kind, a length and bytes. Both ends are the same program, so
//! there are no versions. Still, all numbers are encoded explicitly, so no memory layout is trusted.
//!
//! What idlewise sends is always valid. What a worker sends may come from the governor: reading an invalid
//! message only returns `None`, and takes no longer than the message is.

use std::io::{self, ErrorKind, Read, Write};

use idlewise_core::{
    Context, Decision, Device, DisabledMask, IdleState, Outcome, SleepLength, StateTable,
};
use idlewise_sim::replay::{Delays, Setting, Tally};
use idlewise_trace::{IdleGap, WakeReason};

use crate::page::GAP_BYTE_COUNT;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// To the worker, first: the library's bytes.
    Library,
    /// From the worker: the library was loaded.
    Ready,
    /// From the worker: it could not be loaded, with a message.
    NotLoadable,
    /// From the worker: nothing was loaded because this system can't confine it, with a message.
    NotConfined,
    /// To the worker: a lane begins, with its setting.
    Lane,
    /// To the worker: the lane's next gaps are in a slot of the shared file.
    Gaps,
    /// To the worker: the lane is over.
    End,
    /// From the worker: the lane's tally.
    Tally,
    /// To the worker: a governor for single decisions, with its states.
    Governor,
    /// To the worker: the outcome of the last decision, if any, and a request for the next one.
    Select,
    /// From the worker: the decision.
    Answer,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Library,
        Kind::Ready,
        Kind::NotLoadable,
        Kind::NotConfined,
        Kind::Lane,
        Kind::Gaps,
        Kind::End,
        Kind::Tally,
        Kind::Governor,
        Kind::Select,
        Kind::Answer,
    ];

    /// The longest payload of such a message from a worker.
    pub(crate) fn byte_count_max(self) -> usize {
        match self {
            Kind::Tally => 1_024 + 16 * Delays::DISTINCT_MAX,
            Kind::NotLoadable | Kind::NotConfined => 4 << 10,
            _ => 256,
        }
    }
}

pub(crate) const HEADER_BYTE_COUNT: usize = 5;

pub(crate) fn header(kind: Kind, payload_byte_count: usize) -> [u8; HEADER_BYTE_COUNT] {
    let mut header = [kind as u8; HEADER_BYTE_COUNT];
    header[1..].copy_from_slice(&(payload_byte_count as u32).to_le_bytes());
    header
}

pub(crate) fn send(output: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    output.write_all(&[&header(kind, payload.len())[..], payload].concat())
}

/// The kind and length in a header; `None` if there is no such kind.
pub(crate) fn parse_header(header: &[u8; HEADER_BYTE_COUNT]) -> Option<(Kind, usize)> {
    let kind = *Kind::ALL.get(usize::from(header[0]))?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    Some((kind, length as usize))
}

/// Receives the next message for a worker: its kind, and its payload, which replaces the old contents.
/// `None` if the other end has closed. Nothing is buffered, so gaps are copied only once.
pub(crate) fn receive(input: &mut impl Read, payload: &mut Vec<u8>) -> io::Result<Option<Kind>> {
    let mut header = [0; HEADER_BYTE_COUNT];
    if let Err(error) = input.read_exact(&mut header) {
        return if error.kind() == ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let broken = || io::Error::from(ErrorKind::InvalidData);
    let (kind, length) = parse_header(&header).ok_or_else(broken)?;
    payload.resize(length, 0);
    input.read_exact(payload)?;
    Ok(Some(kind))
}

/// Takes numbers from a message, in the order in which they were added.
struct Numbers<'a> {
    bytes: &'a [u8],
    is_short: bool,
}

impl<'a> Numbers<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Numbers { bytes, is_short: false }
    }

    /// The next number. If there is none it is 0, and [`Numbers::is_all`] is false from then on.
    fn next(&mut self) -> u64 {
        match self.bytes.split_first_chunk() {
            Some((number, rest)) => {
                self.bytes = rest;
                u64::from_le_bytes(*number)
            }
            None => {
                self.is_short = true;
                0
            }
        }
    }

    fn flag(&mut self) -> bool {
        self.next() != 0
    }

    /// Whether the message contained exactly the numbers taken.
    fn is_all(&self) -> bool {
        !self.is_short && self.bytes.is_empty()
    }
}

fn put(to: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        to.extend(number.to_le_bytes());
    }
}

fn put_states(to: &mut Vec<u8>, states: &StateTable) {
    put(to, &[states.len() as u64]);
    for state in states.as_slice() {
        put(
            to,
            &[
                state.exit_latency_ns,
                state.target_residency_ns,
                state.is_polling.into(),
                state.wakes_on_store.into(),
                state.is_auto_promoted.into(),
            ],
        );
    }
}

fn get_states(from: &mut Numbers<'_>) -> StateTable {
    let count = from.next();
    let states: Vec<IdleState> = (0..count)
        .map(|_| IdleState {
            exit_latency_ns: from.next(),
            target_residency_ns: from.next(),
            is_polling: from.flag(),
            wakes_on_store: from.flag(),
            is_auto_promoted: from.flag(),
        })
        .collect();
    StateTable::new(&states).expect("it was a table at the other end")
}

pub(crate) fn put_setting(to: &mut Vec<u8>, setting: &Setting) {
    put_states(to, &setting.states);
    put(
        to,
        &[
            setting.disabled.bits().into(),
            setting.latency_limit_ns as u64,
            setting.tick_period_ns.into(),
            setting.tick_work_ns,
        ],
    );
    put(to, &setting.exits_ns);
}

pub(crate) fn get_setting(payload: &[u8]) -> Setting {
    let from = &mut Numbers::new(payload);
    Setting {
        states: get_states(from),
        disabled: DisabledMask::from_bits(from.next() as u16),
        latency_limit_ns: from.next() as i64,
        tick_period_ns: from.next() as u32,
        tick_work_ns: from.next(),
        exits_ns: std::array::from_fn(|_| from.next()),
    }
}

const HAS_SLEEP_LENGTH: u8 = 1;
const HAS_NEXT_TICK: u8 = 2;
const HAS_LATENCY_LIMIT: u8 = 4;
const TICK_STOPPED: u8 = 8;
const RAN_TASK: u8 = 16;

#[inline]
pub(crate) fn put_gap(to: &mut Vec<u8>, gap: &IdleGap) {
    let flag = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    let flags = flag(gap.sleep_length_ns.is_some(), HAS_SLEEP_LENGTH)
        | flag(gap.next_tick_ns.is_some(), HAS_NEXT_TICK)
        | flag(gap.latency_limit_ns.is_some(), HAS_LATENCY_LIMIT)
        | flag(gap.tick_stopped, TICK_STOPPED)
        | flag(gap.ran_task, RAN_TASK);
    let mut bytes = [0; GAP_BYTE_COUNT];
    bytes[..8].copy_from_slice(&gap.start_ns.to_le_bytes());
    bytes[8..16].copy_from_slice(&gap.gap_ns.to_le_bytes());
    bytes[16..24].copy_from_slice(&gap.sleep_length_ns.unwrap_or(0).to_le_bytes());
    bytes[24..32].copy_from_slice(&gap.latency_limit_ns.unwrap_or(0).to_le_bytes());
    bytes[32..36].copy_from_slice(&gap.next_tick_ns.unwrap_or(0).to_le_bytes());
    bytes[36..38].copy_from_slice(&gap.cpu.to_le_bytes());
    bytes[38] = gap.wake_reason as u8;
    bytes[39] = flags;
    to.extend(bytes);
}

/// Announces gaps in a slot. Padded, so that a pipe has room for a known number of announcements.
pub(crate) fn put_slot(to: &mut Vec<u8>, slot: usize, gaps_byte_count: usize, padded: usize) {
    put(to, &[slot as u64, gaps_byte_count as u64]);
    to.resize(padded.saturating_sub(HEADER_BYTE_COUNT).max(to.len()), 0);
}

/// The slot, and how much of it.
pub(crate) fn get_slot(bytes: &[u8]) -> (usize, usize) {
    let mut numbers = Numbers::new(bytes);
    (numbers.next() as usize, numbers.next() as usize)
}

/// The length of a gap.
pub(crate) fn get_gap_ns(bytes: &[u8; GAP_BYTE_COUNT]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[8 + i]))
}

#[inline]
pub(crate) fn get_gap(bytes: &[u8; GAP_BYTE_COUNT]) -> IdleGap {
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    let flags = bytes[39];
    IdleGap {
        cpu: u16::from_le_bytes([bytes[36], bytes[37]]),
        start_ns: long(0) as i64,
        gap_ns: long(8),
        sleep_length_ns: (flags & HAS_SLEEP_LENGTH != 0).then(|| long(16)),
        next_tick_ns: (flags & HAS_NEXT_TICK != 0).then(|| long(32) as u32),
        tick_stopped: flags & TICK_STOPPED != 0,
        ran_task: flags & RAN_TASK != 0,
        wake_reason: WakeReason::ALL[usize::from(bytes[38]) % WakeReason::ALL.len()],
        latency_limit_ns: (flags & HAS_LATENCY_LIMIT != 0).then(|| long(24)),
        recorded_state: None,
        recorded_idle_ns: None,
    }
}

/// `is_reusable` says whether the worker can serve another lane.
pub(crate) fn put_tally(to: &mut Vec<u8>, is_reusable: bool, tally: &Tally) {
    put(to, &[is_reusable.into()]);
    for state in &tally.states {
        put(
            to,
            &[
                state.entry_count,
                state.stay_ns,
                state.too_deep_count,
                state.too_shallow_count,
                state.wake_count,
                state.free_ipi_count,
            ],
        );
    }
    put(
        to,
        &[
            tally.gap_count,
            tally.gap_ns,
            tally.timerless_gap_count,
            tally.work_ns,
            tally.tick_wake_count,
            tally.auto_promotion_count,
            tally.timer_read_count,
            tally.invalid_count,
            tally.forbidden_count,
            tally.overruns.iter().count() as u64,
        ],
    );
    for (delay_ns, count) in tally.overruns.iter() {
        put(to, &[delay_ns, count]);
    }
}

/// Returns `None` if an honest worker would not have sent it.
pub(crate) fn get_tally(payload: &[u8]) -> Option<(bool, Tally)> {
    let from = &mut Numbers::new(payload);
    let is_reusable = from.flag();
    let mut tally = Tally::default();
    for state in &mut tally.states {
        state.entry_count = from.next();
        state.stay_ns = from.next();
        state.too_deep_count = from.next();
        state.too_shallow_count = from.next();
        state.wake_count = from.next();
        state.free_ipi_count = from.next();
    }
    tally.gap_count = from.next();
    tally.gap_ns = from.next();
    tally.timerless_gap_count = from.next();
    tally.work_ns = from.next();
    tally.tick_wake_count = from.next();
    tally.auto_promotion_count = from.next();
    tally.timer_read_count = from.next();
    tally.invalid_count = from.next();
    tally.forbidden_count = from.next();
    let overrun_count = from.next();
    if overrun_count != from.bytes.len() as u64 / 16 {
        return None;
    }
    let mut count_sum = 0_u64;
    for _ in 0..overrun_count {
        let (delay_ns, count) = (from.next(), from.next());
        // Sums like this one are kept in 64 bits.
        count_sum = count_sum.checked_add(count)?;
        tally.overruns.add(delay_ns, count);
    }
    from.is_all().then_some((is_reusable, tally))
}

pub(crate) fn put_governor(to: &mut Vec<u8>, states: &StateTable, tick_period_ns: u32) {
    put(to, &[tick_period_ns.into()]);
    put_states(to, states);
}

pub(crate) fn get_governor(payload: &[u8]) -> (StateTable, u32) {
    let from = &mut Numbers::new(payload);
    let tick_period_ns = from.next() as u32;
    (get_states(from), tick_period_ns)
}

fn put_device(to: &mut Vec<u8>, device: &Device) {
    let last_state = device.last_state.map_or(u64::MAX, |state| state as u64);
    put(
        to,
        &[
            device.last_residency_ns,
            device.poll_limit_ns,
            device.poll_time_limit.into(),
            last_state,
        ],
    );
}

fn get_device(from: &mut Numbers<'_>) -> Device {
    Device {
        last_residency_ns: from.next(),
        poll_limit_ns: from.next(),
        poll_time_limit: from.flag(),
        last_state: Some(from.next()).filter(|&state| state != u64::MAX).map(|s| s as usize),
    }
}

/// `outcome` is that of the last decision, if the governor does not know it yet.
pub(crate) fn put_question(
    to: &mut Vec<u8>,
    outcome: Option<&Outcome>,
    context: &Context<'_>,
    device: &Device,
) {
    put(to, &[outcome.is_some().into()]);
    if let Some(&Outcome { entered, is_overruled, got_tick, now_ns }) = outcome {
        put(to, &[entered as u64, is_overruled.into(), got_tick.into(), now_ns]);
    }
    let timers = context.timers();
    put(
        to,
        &[
            timers.sleep_length_ns as u64,
            timers.next_event_ns as u64,
            context.disabled.bits().into(),
            context.latency_limit_ns as u64,
            context.tick_stopped.into(),
            context.now_ns,
            context.iowait_count.into(),
        ],
    );
    put_device(to, device);
}

pub(crate) fn get_question<'a>(
    payload: &[u8],
    states: &'a StateTable,
) -> (Option<Outcome>, Context<'a>, Device) {
    let from = &mut Numbers::new(payload);
    let outcome = from.flag().then(|| Outcome {
        entered: from.next() as usize,
        is_overruled: from.flag(),
        got_tick: from.flag(),
        now_ns: from.next(),
    });
    let sleep_length_ns = from.next() as i64;
    let next_event_ns = from.next() as i64;
    let mut context = Context::new(states, SleepLength { sleep_length_ns, next_event_ns });
    context.disabled = DisabledMask::from_bits(from.next() as u16);
    context.latency_limit_ns = from.next() as i64;
    context.tick_stopped = from.flag();
    context.now_ns = from.next();
    context.iowait_count = from.next() as u32;
    (outcome, context, get_device(from))
}

pub(crate) fn answer(decision: Decision, timer_read_count: u32, device: &Device) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, &[decision.state as u64, decision.stop_tick.into(), timer_read_count.into()]);
    put_device(&mut bytes, device);
    bytes
}

/// Returns `None` if an honest worker would not have sent it, for instance for a state beyond the table.
pub(crate) fn get_answer(payload: &[u8], state_count: usize) -> Option<(Decision, u32, Device)> {
    let from = &mut Numbers::new(payload);
    let decision = Decision { state: from.next() as usize, stop_tick: from.flag() };
    let timer_read_count = from.next() as u32;
    let device = get_device(from);
    (from.is_all() && decision.state < state_count).then_some((decision, timer_read_count, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brings_back_what_was_sent() {
        let gap = IdleGap {
            cpu: 65_535,
            start_ns: -5,
            gap_ns: u64::MAX,
            sleep_length_ns: Some(7),
            next_tick_ns: None,
            tick_stopped: true,
            ran_task: false,
            wake_reason: WakeReason::Softirq,
            latency_limit_ns: Some(0),
            recorded_state: None,
            recorded_idle_ns: None,
        };
        let mut bytes = Vec::new();
        put_gap(&mut bytes, &gap);
        assert_eq!(get_gap(bytes.first_chunk().unwrap()), gap);
        assert_eq!(get_gap_ns(bytes.first_chunk().unwrap()), u64::MAX);

        let mut tally =
            Tally { work_ns: 9, invalid_count: 1, forbidden_count: 2, ..Tally::default() };
        tally.states[9].free_ipi_count = 3;
        tally.overruns.add(5, 2);
        let mut bytes = Vec::new();
        put_tally(&mut bytes, true, &tally);
        assert_eq!(get_tally(&bytes), Some((true, tally)));

        let states = StateTable::new(&[IdleState::POLL, IdleState::new(1, 2)]).unwrap();
        let setting = Setting { latency_limit_ns: -1, ..Setting::new(states, 4_000_000) };
        let mut bytes = Vec::new();
        put_setting(&mut bytes, &setting);
        assert_eq!(format!("{:?}", get_setting(&bytes)), format!("{setting:?}"));

        let outcome = Outcome { entered: 3, is_overruled: true, got_tick: false, now_ns: 8 };
        let timers = SleepLength { sleep_length_ns: -1, next_event_ns: 7 };
        for outcome in [None, Some(outcome)] {
            let mut context = Context::new(&states, timers);
            context.tick_stopped = true;
            let device = Device { last_state: None, poll_limit_ns: 6, ..Device::default() };
            let mut bytes = Vec::new();
            put_question(&mut bytes, outcome.as_ref(), &context, &device);
            let (got, question, got_device) = get_question(&bytes, &states);
            assert_eq!((got, got_device), (outcome, device));
            assert_eq!(format!("{question:?}"), format!("{context:?}"));
        }
    }

    #[test]
    fn what_a_worker_of_ours_would_not_send_is_refused() {
        let mut tally = Tally::default();
        tally.overruns.add(5, 2);
        let mut bytes = Vec::new();
        put_tally(&mut bytes, true, &tally);
        for length in 0..bytes.len() {
            assert_eq!(get_tally(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(get_tally(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(get_tally(&[0xff; 0x4000]), None);

        let device = Device::default();
        let decision = Decision { state: 3, stop_tick: true };
        let bytes = answer(decision, 1, &device);
        assert!(get_answer(&bytes, 4).is_some());
        assert!(get_answer(&bytes, 3).is_none());
        assert!(get_answer(&bytes[1..], 4).is_none());
    }
}
