//! The contract between an idle loop and a governor.
//!
//! ```text
//!            Context, Device                 Outcome, Device
//! loop ──────► select ──► Decision ──► enter ──► woken ──► reflect ──► loop
//!                                        └─ refused: no reflect, residency 0
//! ```
//!
//! The shapes follow `struct cpuidle_governor` and `struct cpuidle_device` in
//! `include/linux/cpuidle.h`, so that a port can be compared with the kernel call by call.

use core::cell::Cell;

use crate::{DisabledMask, StateIndex, StateTable};

/// A time that never comes, as `KTIME_MAX` in `include/vdso/ktime.h`.
pub const FAR_AWAY_NS: i64 = i64::MAX;

/// The tick's period in nanoseconds on a kernel built with this CONFIG_HZ, rounded as `TICK_NSEC`.
///
/// # Panics
/// If `hz` is 0.
pub const fn tick_period_ns(hz: u32) -> u32 {
    (1_000_000_000 + hz / 2) / hz
}

/// What the timers say at one idle entry (`tick_nohz_get_sleep_length` in `kernel/time/tick-sched.c`).
/// Both may be negative when a timer is overdue, and [`FAR_AWAY_NS`] when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepLength {
    /// Time to the next timer, the tick excluded.
    pub sleep_length_ns: i64,
    /// Time to the next event if the tick goes on: the nearer of timer and tick.
    pub next_event_ns: i64,
}

/// The latency limit when nobody asked for one: 2,000 s, as `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.
pub const NO_LATENCY_LIMIT_NS: i64 = 2_000_000_000_000;

/// What a governor may look at when it selects a state. Reading the timers is counted, because in
/// the kernel it walks the timer wheel and governors differ in how often they pay for it.
#[derive(Debug)]
pub struct Context<'a> {
    /// The states of this CPU.
    pub states: &'a StateTable,
    /// Those that are switched off.
    pub disabled: DisabledMask,
    /// Longest exit latency allowed now; [`NO_LATENCY_LIMIT_NS`] if nobody cares.
    pub latency_limit_ns: i64,
    /// Whether the tick was stopped already.
    pub tick_stopped: bool,
    /// The CPU's clock at the time of asking.
    pub now_ns: u64,
    /// Tasks of this CPU that wait for I/O.
    pub iowait_count: u32,
    sleep_length: SleepLength,
    sleep_length_calls: Cell<u32>,
}

impl<'a> Context<'a> {
    /// A context in which no state is disabled, latency is free and the tick runs.
    pub fn new(states: &'a StateTable, sleep_length: SleepLength) -> Self {
        Context {
            states,
            disabled: DisabledMask::NONE,
            latency_limit_ns: NO_LATENCY_LIMIT_NS,
            tick_stopped: false,
            now_ns: 0,
            iowait_count: 0,
            sleep_length,
            sleep_length_calls: Cell::new(0),
        }
    }

    /// Sets what the timers say, for who asks again and again in otherwise the same place.
    #[inline]
    pub fn set_timers(&mut self, sleep_length: SleepLength) {
        self.sleep_length = sleep_length;
    }

    /// Reads the timers; each call counts.
    #[inline]
    pub fn sleep_length(&self) -> SleepLength {
        self.sleep_length_calls.set(self.sleep_length_calls.get() + 1);
        self.sleep_length
    }

    /// The timers without counting, for who passes a question on to code elsewhere, and counts what
    /// that read with [`Context::count_sleep_length_calls`].
    #[inline]
    pub fn timers(&self) -> SleepLength {
        self.sleep_length
    }

    /// Counts reads that others made.
    #[inline]
    pub fn count_sleep_length_calls(&self, count: u32) {
        self.sleep_length_calls.set(self.sleep_length_calls.get().saturating_add(count));
    }

    /// How often the timers were read.
    #[inline]
    pub fn sleep_length_calls(&self) -> u32 {
        self.sleep_length_calls.get()
    }
}

/// What an idle loop and its governor share about one CPU (the parts of `struct cpuidle_device`
/// that governors use). It outlives single decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Length of the last stay; 0 after a refused entry.
    pub last_residency_ns: u64,
    /// How long a polling state spins, set by the loop on the first poll or by the governor; 0: not set.
    pub poll_limit_ns: u64,
    /// The last polling state was left because of that limit. Other states leave the flag alone.
    pub poll_time_limit: bool,
    /// The governor's note of the last state; the loop never writes it. `None` is the kernel's -1.
    pub last_state: Option<StateIndex>,
}

impl Default for Device {
    /// All zero, as the kernel allocates it: `last_state` is state 0, not none.
    fn default() -> Self {
        Device {
            last_residency_ns: 0,
            poll_limit_ns: 0,
            poll_time_limit: false,
            last_state: Some(0),
        }
    }
}

/// A governor's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The state to enter.
    pub state: StateIndex,
    /// Whether the tick should be stopped; a stopped tick stays stopped whatever is said here.
    pub stop_tick: bool,
}

/// What became of a decision, for [`Governor::reflect`]. The length of the stay is in
/// [`Device::last_residency_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state that was entered, not always the one asked for.
    pub entered: StateIndex,
    /// A replay that follows a recording entered `entered`, whatever the governor had answered. A
    /// governor that remembers its answers must remember this one in its place.
    pub is_overruled: bool,
    /// The tick's handler ran while the CPU was idle.
    pub got_tick: bool,
    /// The CPU's clock after the stay.
    pub now_ns: u64,
}

/// Picks idle states for one CPU. Implementations hold that CPU's history and nothing else: no
/// clock, no allocation, no floating point.
///
/// The loop calls `select`, enters a state, writes [`Device::last_residency_ns`] and the poll
/// fields, then calls `reflect`; if the entry was refused it writes 0 and skips `reflect`. A loop
/// keeps the table the same for the life of a governor.
pub trait Governor: Send {
    /// Picks the state to enter now, an index into `context.states`. A good governor answers a
    /// disabled state only if all are; Linux's do it in a few cases more, as each port says.
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision;

    /// Notes how the last decision went.
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device);

    /// Passes to `note` every number that later answers depend on, and returns true. A replay of a
    /// long gap compares these numbers: where they come back, the stays since then repeat, and need
    /// not be replayed one by one. The loop calls it between `reflect` and `select`.
    ///
    /// A governor that returns true promises two things. With the same numbers, the same device and
    /// the same context it does the same, now and later. And of [`Context::now_ns`] it uses
    /// differences only, none of which reaches back behind the last `reflect`. One that returns
    /// false, as those do that do not know, has each stay replayed.
    fn memory(&self, _note: &mut dyn FnMut(u64)) -> bool {
        false
    }
}

/// Something to do with a governor whose type only a list of governors knows, so that it is inlined
/// there.
pub trait GovernorVisitor {
    /// What comes of it.
    type Output;

    /// Does it with a governor that has no history yet.
    fn visit<G: Governor + Clone + 'static>(self, governor: G) -> Self::Output;
}

impl<G: Governor + ?Sized> Governor for &mut G {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        (**self).select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        (**self).reflect(outcome, device);
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        (**self).memory(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_the_tick_as_the_kernel() {
        assert_eq!(
            [100, 250, 300, 1000].map(tick_period_ns),
            [10_000_000, 4_000_000, 3_333_333, 1_000_000]
        );
    }
}
