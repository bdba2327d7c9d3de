//! The contract between an idle loop and a governor.
//!
//! ```text
//!            Context, Device                 Outcome, Device
//! loop ──────► select ──► Decision ──► enter ──► woken ──► reflect ──► loop
//!                                        └─ refused: no reflect, residency 0
//! ```
//!
//! The types follow `struct cpuidle_governor` and `struct cpuidle_device` in `include/linux/cpuidle.h`, so
//! that a port can be compared with the kernel call by call.

use core::cell::Cell;

use crate::{DisabledMask, StateIndex, StateTable};

/// A time that never comes, like `KTIME_MAX` in `include/vdso/ktime.h`.
pub const FAR_AWAY_NS: i64 = i64::MAX;

/// The tick period in nanoseconds of a kernel with this CONFIG_HZ, rounded like `TICK_NSEC`.
///
/// # Panics
/// If `hz` is 0.
pub const fn tick_period_ns(hz: u32) -> u32 {
    (1_000_000_000 + hz / 2) / hz
}

/// What the timers say at an idle entry (`tick_nohz_get_sleep_length` in `kernel/time/tick-sched.c`). Both
/// times are negative if a timer is overdue, and [`FAR_AWAY_NS`] if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepLength {
    /// Time to the next timer, not counting the tick.
    pub sleep_length_ns: i64,
    /// Time to the next event if the tick continues: the timer or the tick, whichever is first.
    pub next_event_ns: i64,
}

/// The latency limit if nobody has set one: 2,000 s, like `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.
pub const NO_LATENCY_LIMIT_NS: i64 = 2_000_000_000_000;

/// What a governor may look at when it selects a state. Reads of the timers are counted: in the kernel a
/// read walks the timer wheel, and governors differ in how often they read.
#[derive(Debug)]
pub struct Context<'a> {
    /// The states of this CPU.
    pub states: &'a StateTable,
    /// The states that are disabled.
    pub disabled: DisabledMask,
    /// The longest exit latency allowed now; [`NO_LATENCY_LIMIT_NS`] if there is no limit.
    pub latency_limit_ns: i64,
    /// Whether the tick is already stopped.
    pub tick_stopped: bool,
    /// The CPU's clock at the time of the call.
    pub now_ns: u64,
    /// The number of this CPU's tasks that wait for I/O.
    pub iowait_count: u32,
    sleep_length: SleepLength,
    sleep_length_calls: Cell<u32>,
}

impl<'a> Context<'a> {
    /// Creates a context without disabled states or a latency limit, in which the tick runs.
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

    /// Sets what the timers say, for callers that reuse a context with other timers.
    #[inline]
    pub fn set_timers(&mut self, sleep_length: SleepLength) {
        self.sleep_length = sleep_length;
    }

    /// Reads the timers. Each call is counted.
    #[inline]
    pub fn sleep_length(&self) -> SleepLength {
        self.sleep_length_calls.set(self.sleep_length_calls.get() + 1);
        self.sleep_length
    }

    /// Reads the timers without counting, for a caller that passes them to other code and counts that
    /// code's reads with [`Context::count_sleep_length_calls`].
    #[inline]
    pub fn timers(&self) -> SleepLength {
        self.sleep_length
    }

    /// Counts reads that were made elsewhere.
    #[inline]
    pub fn count_sleep_length_calls(&self, count: u32) {
        self.sleep_length_calls.set(self.sleep_length_calls.get().saturating_add(count));
    }

    /// Returns how often the timers were read.
    #[inline]
    pub fn sleep_length_calls(&self) -> u32 {
        self.sleep_length_calls.get()
    }
}

/// What an idle loop and its governor share about one CPU: the parts of `struct cpuidle_device` that
/// governors use. It outlives a single decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Length of the last stay; 0 after a refused entry.
    pub last_residency_ns: u64,
    /// How long a polling state spins, set by the loop on the first poll or by the governor; 0: not set.
    pub poll_limit_ns: u64,
    /// Whether the last polling state ended at that limit. Other states do not change it.
    pub poll_time_limit: bool,
    /// The governor's note of the last state. The loop never writes it. `None` is the kernel's -1.
    pub last_state: Option<StateIndex>,
}

impl Default for Device {
    /// All zero, as the kernel allocates it. So `last_state` is state 0, not `None`.
    fn default() -> Self {
        Device {
            last_residency_ns: 0,
            poll_limit_ns: 0,
            poll_time_limit: false,
            last_state: Some(0),
        }
    }
}

/// A governor's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The state to enter.
    pub state: StateIndex,
    /// Whether to stop the tick. A tick that is already stopped stays stopped in either case.
    pub stop_tick: bool,
}

/// The outcome of a decision, for [`Governor::reflect`]. The length of the stay is in
/// [`Device::last_residency_ns`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The state that was entered, which need not be the one selected.
    pub entered: StateIndex,
    /// A replay that follows a recording entered `entered` in place of the governor's choice. A governor
    /// that remembers its choices must remember this one instead.
    pub is_overruled: bool,
    /// Whether the tick's handler ran while the CPU was idle.
    pub got_tick: bool,
    /// The CPU's clock after the stay.
    pub now_ns: u64,
}

/// Selects idle states for one CPU. An implementation holds that CPU's history and nothing else: no clock,
/// no allocation, no floating point.
///
/// The loop calls `select`, enters a state, writes [`Device::last_residency_ns`] and the poll fields, and
/// calls `reflect`. If the entry was refused, it writes 0 and skips `reflect`. The table does not change
/// during a governor's life.
pub trait Governor: Send {
    /// Selects the state to enter now, an index into `context.states`. A good governor selects a disabled
    /// state only if all are disabled. Linux's also do it in a few more cases, as each port says.
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision;

    /// Records how the last decision went.
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device);

    /// Passes every number that later decisions depend on to `note`, and returns `true`. A replay of a long
    /// gap compares these numbers. Once they recur, the stays repeat too, and need not be replayed one by
    /// one. The loop calls it between `reflect` and `select`.
    ///
    /// A governor that returns `true` promises two things. With the same numbers, device and context it
    /// always does the same. And it uses [`Context::now_ns`] only for differences that do not reach back
    /// beyond the last `reflect`. If a governor returns `false`, as by default, each of its stays is
    /// replayed.
    fn memory(&self, _note: &mut dyn FnMut(u64)) -> bool {
        false
    }

    /// Returns how long the governor expected the CPU to stay idle when it last selected a state; `None` if
    /// it states no such number. It is shown to people and influences nothing. A governor that wraps
    /// another passes on the other's.
    fn forecast_ns(&self) -> Option<u64> {
        None
    }
}

/// An operation on a governor whose type only a list of governors knows. This way the governor's code can
/// be inlined into it.
pub trait GovernorVisitor {
    /// The operation's result.
    type Output;

    /// Applies the operation to a governor without history.
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

    fn forecast_ns(&self) -> Option<u64> {
        (**self).forecast_ns()
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
