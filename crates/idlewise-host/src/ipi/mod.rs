//! Measures the cost of waking an idle CPU for each idle state separately, using the kernel module
//! idlewise_bench, or whatever the caller measures with ([`measure_by`]). [`measure`] measures the wake latency, from just before another CPU sends a call
//! to the idle CPU's first instruction, and the cost of sending it. [`measure_timers`] measures the
//! interrupt latency, from the expiry of one of the idle CPU's timers to the timer's handler.
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | [`MeasurementPlan`]: which CPU wakes which, from which states |
//! | `forced.rs` | forces a state by disabling the others in sysfs, with the journal of `settings/` |
//! | `module.rs` | the module in debugfs |
//! | `samples.rs` | [`Samples`], [`StateSamples`], [`TimerSamples`]: the module's output |
//! | `error.rs` | [`IpiError`] |
//!
//! Forcing a state is only a request. The driver, the governor or a latency limit may override it.
//! Each case therefore includes the kernel's counts of the states that the target entered.
//!
//! Not here: percentiles.

mod error;
pub(crate) mod forced;
mod module;
mod plan;
mod samples;

use std::fs::File;
use std::time::{Duration, Instant};

pub use error::IpiError;
pub use forced::can_force;
pub use plan::allowed_cpus;
pub use plan::{MeasurementPlan, State, StateWish, Target, Waker, Wishes};
pub use samples::{
    ProxySamples, Sample, Samples, SamplesError, StateSample, StateSamples, TimerSamples,
};

use crate::settings::Owner;
use crate::state_lock;
use crate::{IdleCounters, Relation, Root};
use forced::{Alike, ForcedStates};
use module::Batch;
pub(crate) use module::{Module, StateRequest, check_tsc};

/// Wakes that are not counted after a state was forced. A CPU stays in a disabled state until it is
/// woken, and governors remember some of their last predictions.
const WARM_UP_COUNT: u64 = 10;
/// How long a request may take. The kernel cannot be interrupted while it measures.
const REQUEST_TIME: Duration = Duration::from_millis(250);
/// The most wakes per request, whatever the time between them.
const REQUEST_COUNT_MAX: u64 = 100_000;
/// If the target failed to go idle this often, and more often than it went idle, it is not idle.
const GIVEN_UP_COUNT_MIN: u64 = 50;

/// The measurement of one target and one state.
#[derive(Clone, Debug)]
pub struct Case<S = Samples> {
    /// The CPU that was woken.
    pub target: u16,
    /// How far it is from the source.
    pub relation: Option<Relation>,
    /// The state that was forced.
    pub state: State,
    /// The wakes, in order of time.
    pub samples: S,
    /// How often the target entered each of its states meanwhile, by name, according to the kernel.
    /// Empty without a driver.
    pub entry_counts: Vec<(String, u64)>,
}

impl<S> Case<S> {
    /// Returns the share of the target's idle entries that were into the forced state; `None` if
    /// nothing was forced or counted.
    pub fn forced_entry_ratio(&self) -> Option<f64> {
        let all: u64 = self.entry_counts.iter().map(|(_, count)| count).sum();
        let (_, forced) = self.entry_counts.get(self.state.index?)?;
        (all > 0).then(|| *forced as f64 / all as f64)
    }
}

/// A request for wakes of one target.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The CPU that wakes; `None` if the target's own timers do.
    pub source: Option<u16>,
    /// The CPU to wake.
    pub target: u16,
    /// The number of wakes.
    pub wake_count: u64,
    /// The time between wakes, in microseconds.
    pub gap_us: u32,
}

/// The result of a request.
pub trait Wakes: Sized {
    /// Returns the number of wakes that were measured.
    fn wake_count(&self) -> u64;
    /// Returns the number of wakes that were given up.
    fn given_up_count(&self) -> u64;
    /// Appends the measured wakes of another request.
    fn append(&mut self, other: Self);
    /// Returns the result without its wakes.
    fn emptied(self) -> Self;
}

/// Observes a measurement and can stop it.
pub trait Watch {
    /// `count` more wakes were measured.
    fn wakes(&self, count: u64);
    /// Returns whether to stop now. Called several times a second.
    fn is_stopped(&self) -> bool;
    /// Reports that idle states could not be restored during a panic, which no error can report.
    fn warn(&self, message: &str);
}

/// Measures according to the plan, target by target. If `watch` stops it, what has been measured so far is returned: the
/// last case has fewer wakes, and those after it are missing. Afterwards the idle states are enabled and
/// disabled as before, whatever happens; after SIGKILL the owner's holder does that.
///
/// # Errors
/// Fails if the module cannot be used, a state cannot be forced, or `watch` stops it before anything was measured. Also fails if
/// the idle states could not be restored, with what to write to which file.
pub fn measure(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    watch: &dyn Watch,
) -> Result<Vec<Case>, IpiError> {
    by_module(root, plan, owner, watch)
}

/// Like [`measure`], but the targets' own timers wake them.
///
/// # Errors
/// Fails like [`measure`].
pub fn measure_timers(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    watch: &dyn Watch,
) -> Result<Vec<Case<TimerSamples>>, IpiError> {
    by_module(root, plan, owner, watch)
}

fn by_module<B: Batch + Wakes>(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    watch: &dyn Watch,
) -> Result<Vec<Case<B>>, IpiError> {
    let mut module = Module::open(root)?;
    let cases = measure_by(root, plan, owner, watch, &mut |request| module.measure(request))?;
    check_tsc(root)?;
    Ok(cases)
}

/// Returns why the kernel module cannot be used; `None` if it can.
pub fn module_absence(root: &Root) -> Option<IpiError> {
    Module::open(root).err()
}

/// Like [`measure`], with a measurement of the caller's. It is asked for as many wakes as take about a
/// quarter of a second.
///
/// # Errors
/// Fails like [`measure`].
pub fn measure_by<W: Wakes>(
    root: &Root,
    plan: &MeasurementPlan,
    owner: &Owner,
    watch: &dyn Watch,
    measure: &mut dyn FnMut(Request) -> Result<W, IpiError>,
) -> Result<Vec<Case<W>>, IpiError> {
    let _lock = lock(root)?;
    let mut cases = Vec::new();
    let tell = |message: &str| watch.warn(message);
    let mut forced = ForcedStates::new(root, owner, &tell);
    let outcome = plan.targets.iter().try_for_each(|target| {
        let alike = Alike { cpus: vec![target.cpu], state_count: target.forced_count };
        target.states.iter().try_for_each(|state| {
            forced.force(&alike, state.index)?;
            let case = measure_case(root, plan, target, state, measure, watch)?;
            let is_whole = case.samples.wake_count() >= plan.wake_count;
            cases.push(case);
            if is_whole { Ok(()) } else { Err(IpiError::Stopped) }
        })
    });
    let outcome = match outcome {
        Err(IpiError::Stopped) if !cases.is_empty() => Ok(()),
        outcome => outcome,
    };
    forced.restore(outcome)?;
    Ok(cases)
}

/// Locks the idle states for a measurement.
pub(crate) fn lock(root: &Root) -> Result<Option<File>, IpiError> {
    state_lock::lock(root).map_err(|state_lock::Busy| IpiError::Busy)
}

/// Measures out of one state. If `watch` stops it, the case has fewer wakes than were asked for; it fails if it has none.
fn measure_case<W: Wakes>(
    root: &Root,
    plan: &MeasurementPlan,
    target: &Target,
    state: &State,
    measure: &mut dyn FnMut(Request) -> Result<W, IpiError>,
    watch: &dyn Watch,
) -> Result<Case<W>, IpiError> {
    let mut measured = |wake_count: u64| {
        if watch.is_stopped() {
            return Err(IpiError::Stopped);
        }
        let MeasurementPlan { source, gap_us, .. } = *plan;
        let start = Instant::now();
        let samples = measure(Request { source, target: target.cpu, wake_count, gap_us })?;
        let each_ns = (start.elapsed().as_nanos() / u128::from(wake_count)).max(1);
        let next_count = (REQUEST_TIME.as_nanos() / each_ns) as u64;
        Ok((samples, next_count.clamp(1, REQUEST_COUNT_MAX)))
    };
    let (warm_up, mut next_count) = measured(WARM_UP_COUNT)?;
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
        let (new, faster_count) = match measured(next_count.min(plan.wake_count - found_count)) {
            Err(IpiError::Stopped) if found_count > 0 => break,
            outcome => outcome?,
        };
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
