//! What waking an idle CPU costs, by the kernel module idlewise_bench, for each idle state alone.
//! [`measure`]: the wake latency, from before another CPU sends a call to the idle one's first instruction,
//! and what sending it took. [`measure_timers`]: the interrupt latency, from when a timer of the idle CPU's
//! own is due to the timer's handler.
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | [`MeasurementPlan`]: which CPU wakes which, out of which states |
//! | `forced.rs` | a state alone, the others disabled in sysfs; put back on every way out |
//! | `module.rs` | the module in debugfs |
//! | `samples.rs` | [`Samples`], [`TimerSamples`]: the module's texts |
//! | `error.rs` | [`IpiError`] |
//!
//! Forcing a state is a wish: the driver, the governor or a latency limit may refuse. So each case
//! says which states the target really entered meanwhile, as the kernel counted.
//!
//! What is not in here: percentiles, and repair after SIGKILL, which no process survives to make.

mod error;
mod forced;
mod module;
mod plan;
mod samples;

use std::time::{Duration, Instant};

pub use error::IpiError;
pub use plan::{MeasurementPlan, State, StateWish, Target, Waker, Wishes};
pub use samples::{Sample, Samples, SamplesError, TimerSamples};

use crate::{IdleCounters, Relation, Root};
use forced::ForcedStates;
use module::{Batch, Module, Request};

/// Wakes that are not counted, after a state was forced: a CPU stays in a state that was disabled
/// until it is woken, and governors look back at some of their last predictions.
const WARM_UP_COUNT: u64 = 10;
/// The kernel can't be stopped while it measures, so it is asked for about so much at a time.
const REQUEST_TIME: Duration = Duration::from_millis(250);
/// Of any length of time between wakes.
const REQUEST_COUNT_MAX: u64 = 100_000;
/// A target that has not gone idle so often, and more often than it has, is no idle CPU.
const GIVEN_UP_COUNT_MIN: u64 = 50;

/// One target woken out of one state.
#[derive(Clone, Debug)]
pub struct Case<S = Samples> {
    /// The CPU that was woken.
    pub target: u16,
    /// How far it is from the source.
    pub relation: Option<Relation>,
    /// The state that was forced.
    pub state: State,
    /// The wakes, in the order of time.
    pub samples: S,
    /// How often the target entered each of its states meanwhile, by name, as the kernel counted;
    /// none without a driver.
    pub entry_counts: Vec<(String, u64)>,
}

impl<S> Case<S> {
    /// The share of the target's idle entries that were into the forced state; `None` if nothing was
    /// forced or counted.
    pub fn forced_entry_ratio(&self) -> Option<f64> {
        let all: u64 = self.entry_counts.iter().map(|(_, count)| count).sum();
        let (_, forced) = self.entry_counts.get(self.state.index?)?;
        (all > 0).then(|| *forced as f64 / all as f64)
    }
}

/// Who wants to know how it goes, and may end it.
pub trait Watch {
    /// So many more wakes were measured.
    fn wakes(&self, count: u64);
    /// Whether to stop now; asked several times a second.
    fn is_stopped(&self) -> bool;
    /// Something that nobody else can tell any more: a panic passes by, and the idle states could
    /// not be put back.
    fn warn(&self, message: &str);
}

/// Measures what the plan says, target by target, and leaves the idle states enabled and disabled as
/// they were, whatever happens but SIGKILL.
///
/// # Errors
/// If the module can't be used, a state can't be forced, or `watch` stops it; and if the states
/// could not be put back, with what to write to which file.
pub fn measure(
    root: &Root,
    plan: &MeasurementPlan,
    watch: &dyn Watch,
) -> Result<Vec<Case>, IpiError> {
    cases(root, plan, watch)
}

/// The same where the targets' own timers wake them.
///
/// # Errors
/// As [`measure`].
pub fn measure_timers(
    root: &Root,
    plan: &MeasurementPlan,
    watch: &dyn Watch,
) -> Result<Vec<Case<TimerSamples>>, IpiError> {
    cases(root, plan, watch)
}

fn cases<B: Batch>(
    root: &Root,
    plan: &MeasurementPlan,
    watch: &dyn Watch,
) -> Result<Vec<Case<B>>, IpiError> {
    let mut module = Module::open(root)?;
    let mut cases = Vec::new();
    let tell = |message: &str| watch.warn(message);
    for target in &plan.targets {
        let mut forced = ForcedStates::remember(root, target.cpu, target.forced_count, &tell)?;
        let outcome = target.states.iter().try_for_each(|state| {
            forced.force(state.index)?;
            cases.push(measure_case(root, plan, target, state, &mut module, watch)?);
            Ok(())
        });
        forced.restore(outcome)?;
    }
    module::check_tsc(root)?;
    Ok(cases)
}

fn measure_case<B: Batch>(
    root: &Root,
    plan: &MeasurementPlan,
    target: &Target,
    state: &State,
    module: &mut Module,
    watch: &dyn Watch,
) -> Result<Case<B>, IpiError> {
    let mut measure = |wake_count| {
        if watch.is_stopped() {
            return Err(IpiError::Stopped);
        }
        let MeasurementPlan { source, gap_us, .. } = *plan;
        let start = Instant::now();
        let samples: B =
            module.measure(Request { source, target: target.cpu, wake_count, gap_us })?;
        let each_ns = (start.elapsed().as_nanos() / u128::from(wake_count)).max(1);
        let next_count = (REQUEST_TIME.as_nanos() / each_ns) as u64;
        Ok((samples, next_count.clamp(1, REQUEST_COUNT_MAX)))
    };
    let (warm_up, mut next_count) = measure(WARM_UP_COUNT)?;
    let mut all = warm_up.emptied();
    let counters = IdleCounters::open(root, &[target.cpu]);
    let before = counters.entry_counts();
    loop {
        let found_count = all.wake_count();
        if found_count >= plan.wake_count {
            break;
        }
        let given_up_count = all.given_up_count();
        if given_up_count >= GIVEN_UP_COUNT_MIN.max(found_count) {
            let tried_count = found_count + given_up_count;
            return Err(IpiError::NeverIdle { cpu: target.cpu, given_up_count, tried_count });
        }
        let (new, faster_count) = measure(next_count.min(plan.wake_count - found_count))?;
        next_count = faster_count;
        watch.wakes(new.wake_count());
        all.append(new);
    }
    let after = counters.entry_counts();
    let new_counts = after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before));
    let entry_counts = counters.names().map(str::to_owned).zip(new_counts).collect();
    Ok(Case {
        target: target.cpu,
        relation: target.relation,
        state: state.clone(),
        samples: all,
        entry_counts,
    })
}
