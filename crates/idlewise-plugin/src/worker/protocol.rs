//! Messages between idlewise and a worker: a kind, a length, bytes. Both ends are the same program,
//! so there are no versions; but all numbers are written out, so that no memory layout is trusted.

use std::io::{self, ErrorKind, Read, Write};

use idlewise_core::{
    Context, Decision, Device, DisabledMask, IdleState, Outcome, SleepLength, StateTable,
};
use idlewise_sim::replay::{Setting, Tally};
use idlewise_trace::{IdleGap, WakeReason};

use super::{Failure, FailureCause};

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// From the worker: the library was loaded.
    Ready,
    /// From the worker: it could not be, in words.
    NotLoadable,
    /// To the worker: a lane begins; its setting.
    Lane,
    /// To the worker: the lane's next gaps.
    Gaps,
    /// To the worker: the lane is over.
    End,
    /// From the worker: what the lane did.
    Tally,
    /// To the worker: a governor that is asked one by one; its states.
    Governor,
    /// To the worker: a question.
    Select,
    /// From the worker: the answer.
    Answer,
    /// To the worker: an outcome.
    Reflect,
    /// From the worker: the device after it.
    Device,
    /// From the worker, last: why it ends.
    Failure,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::Ready,
        Kind::NotLoadable,
        Kind::Lane,
        Kind::Gaps,
        Kind::End,
        Kind::Tally,
        Kind::Governor,
        Kind::Select,
        Kind::Answer,
        Kind::Reflect,
        Kind::Device,
        Kind::Failure,
    ];
}

/// A message as it came.
pub(crate) struct Message {
    pub kind: Kind,
    pub payload: Vec<u8>,
}

pub(crate) const HEADER_BYTE_COUNT: usize = 5;

pub(crate) fn header(kind: Kind, payload_byte_count: usize) -> [u8; HEADER_BYTE_COUNT] {
    let mut header = [kind as u8; HEADER_BYTE_COUNT];
    header[1..].copy_from_slice(&(payload_byte_count as u32).to_le_bytes());
    header
}

pub(crate) fn send(output: &mut impl Write, kind: Kind, payload: &[u8]) -> io::Result<()> {
    output.write_all(&header(kind, payload.len()))?;
    output.write_all(payload)?;
    output.flush()
}

/// The next message; none if the other end has closed.
pub(crate) fn receive(input: &mut impl Read) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER_BYTE_COUNT];
    if let Err(error) = input.read_exact(&mut header) {
        return if error.kind() == ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) };
    }
    let broken = || io::Error::from(ErrorKind::InvalidData);
    let kind = *Kind::ALL.get(usize::from(header[0])).ok_or_else(broken)?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    let mut payload = vec![0; length as usize];
    input.read_exact(&mut payload)?;
    Ok(Some(Message { kind, payload }))
}

/// Takes numbers from a message, in the order in which they were put.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> u64 {
        match self.0.split_first_chunk() {
            Some((number, rest)) => {
                self.0 = rest;
                u64::from_le_bytes(*number)
            }
            // The other end is this program; a short message can only be a torn one.
            None => 0,
        }
    }

    fn flag(&mut self) -> bool {
        self.next() != 0
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
}

pub(crate) fn get_setting(payload: &[u8]) -> Setting {
    let from = &mut Numbers(payload);
    Setting {
        states: get_states(from),
        disabled: DisabledMask::from_bits(from.next() as u16),
        latency_limit_ns: from.next() as i64,
        tick_period_ns: from.next() as u32,
        tick_work_ns: from.next(),
    }
}

/// What a gap takes; a lane does not look at what the recording kernel did.
pub(crate) const GAP_BYTE_COUNT: usize = 40;

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

pub(crate) fn put_tally(to: &mut Vec<u8>, tally: &Tally) {
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
            tally.overruns.iter().count() as u64,
        ],
    );
    for (delay_ns, count) in tally.overruns.iter() {
        put(to, &[delay_ns, count]);
    }
}

pub(crate) fn get_tally(payload: &[u8]) -> Tally {
    let from = &mut Numbers(payload);
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
    for _ in 0..from.next() {
        let delay_ns = from.next();
        tally.overruns.add(delay_ns, from.next());
    }
    tally
}

pub(crate) fn put_governor(to: &mut Vec<u8>, states: &StateTable, tick_period_ns: u32) {
    put(to, &[tick_period_ns.into()]);
    put_states(to, states);
}

pub(crate) fn get_governor(payload: &[u8]) -> (StateTable, u32) {
    let from = &mut Numbers(payload);
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

fn get_device_from(from: &mut Numbers<'_>) -> Device {
    Device {
        last_residency_ns: from.next(),
        poll_limit_ns: from.next(),
        poll_time_limit: from.flag(),
        last_state: Some(from.next()).filter(|&state| state != u64::MAX).map(|s| s as usize),
    }
}

pub(crate) fn device(device: &Device) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_device(&mut bytes, device);
    bytes
}

pub(crate) fn get_device(payload: &[u8]) -> Device {
    get_device_from(&mut Numbers(payload))
}

pub(crate) fn put_question(to: &mut Vec<u8>, context: &Context<'_>, device: &Device) {
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

pub(crate) fn get_question<'a>(payload: &[u8], states: &'a StateTable) -> (Context<'a>, Device) {
    let from = &mut Numbers(payload);
    let sleep_length_ns = from.next() as i64;
    let next_event_ns = from.next() as i64;
    let mut context = Context::new(states, SleepLength { sleep_length_ns, next_event_ns });
    context.disabled = DisabledMask::from_bits(from.next() as u16);
    context.latency_limit_ns = from.next() as i64;
    context.tick_stopped = from.flag();
    context.now_ns = from.next();
    context.iowait_count = from.next() as u32;
    (context, get_device_from(from))
}

pub(crate) fn answer(decision: Decision, timer_read_count: u32, device: &Device) -> Vec<u8> {
    let mut bytes = Vec::new();
    put(&mut bytes, &[decision.state as u64, decision.stop_tick.into(), timer_read_count.into()]);
    put_device(&mut bytes, device);
    bytes
}

pub(crate) fn get_answer(payload: &[u8]) -> (Decision, u32, Device) {
    let from = &mut Numbers(payload);
    let decision = Decision { state: from.next() as usize, stop_tick: from.flag() };
    let timer_read_count = from.next() as u32;
    (decision, timer_read_count, get_device_from(from))
}

pub(crate) fn put_outcome(to: &mut Vec<u8>, outcome: &Outcome, device: &Device) {
    put(to, &[outcome.entered as u64, outcome.got_tick.into(), outcome.now_ns]);
    put_device(to, device);
}

pub(crate) fn get_outcome(payload: &[u8]) -> (Outcome, Device) {
    let from = &mut Numbers(payload);
    let outcome =
        Outcome { entered: from.next() as usize, got_tick: from.flag(), now_ns: from.next() };
    (outcome, get_device_from(from))
}

/// A failure's bytes; nothing in here allocates before the last line, so that a signal's handler
/// can use [`failure_bytes`].
pub(crate) fn failure(cause: FailureCause, index: u64, cpu: u32, at_ns: i64) -> Vec<u8> {
    failure_bytes(cause, index, cpu, at_ns).to_vec()
}

pub(crate) const FAILURE_BYTE_COUNT: usize = 48;

pub(crate) fn failure_bytes(
    cause: FailureCause,
    index: u64,
    cpu: u32,
    at_ns: i64,
) -> [u8; FAILURE_BYTE_COUNT] {
    let (kind, a, b) = match cause {
        FailureCause::Signal(signal) => (0, signal as u64, 0),
        FailureCause::Loop => (1, 0, 0),
        FailureCause::OutOfRange { answer, state_count } => (2, answer as u64, state_count.into()),
        FailureCause::Gone => (3, 0, 0),
    };
    let mut bytes = [0; FAILURE_BYTE_COUNT];
    let numbers = [kind, a, b, index, u64::from(cpu), at_ns as u64];
    for (bytes, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

pub(crate) fn get_failure(payload: &[u8], lane: &str) -> Failure {
    let from = &mut Numbers(payload);
    let (kind, a, b) = (from.next(), from.next(), from.next());
    let cause = match kind {
        0 => FailureCause::Signal(a as i32),
        1 => FailureCause::Loop,
        2 => FailureCause::OutOfRange { answer: a as i32, state_count: b as u32 },
        _ => FailureCause::Gone,
    };
    let index = from.next();
    let cpu = u16::try_from(from.next()).ok();
    Failure { cause, lane: lane.to_owned(), index, cpu, at_ns: from.next() as i64 }
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

        let mut tally = Tally { work_ns: 9, invalid_count: 1, ..Tally::default() };
        tally.states[9].free_ipi_count = 3;
        tally.overruns.add(5, 2);
        let mut bytes = Vec::new();
        put_tally(&mut bytes, &tally);
        assert_eq!(get_tally(&bytes), tally);

        let states = StateTable::new(&[IdleState::POLL, IdleState::new(1, 2)]).unwrap();
        let setting = Setting { latency_limit_ns: -1, ..Setting::new(states, 4_000_000) };
        let mut bytes = Vec::new();
        put_setting(&mut bytes, &setting);
        assert_eq!(format!("{:?}", get_setting(&bytes)), format!("{setting:?}"));

        let cause = FailureCause::OutOfRange { answer: -3, state_count: 4 };
        let failure = get_failure(&failure(cause, 8, 2, -1), "a log");
        assert_eq!(
            failure.to_string(),
            "answered state -3 where there are 0 to 3 in gap 8 of CPU 2, from -1 ns, of a log"
        );
    }
}
