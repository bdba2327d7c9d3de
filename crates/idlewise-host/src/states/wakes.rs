//! Wakes CPUs out of the states that they are held in, and sorts out the wakes that do not count.

use std::collections::BTreeMap;
use std::io;

use super::plan::{Baseline, HeldCpu, StatesPlan, WakeBy};
use super::stays::{Seen, StayWatch};
use super::{Random, SEED, StatesError, check_online};
use crate::Root;
use crate::ipi::forced::ForcedStates;
use crate::ipi::{IpiError, Module, StateRequest, StateSamples, Watch, check_tsc, lock};
use crate::settings::Owner;

/// The settings take turns so often.
pub(super) const ROUND_COUNT: u64 = 10;
/// How long a batch of wakes may take. Signals are handled between batches.
const BATCH_NS: u64 = 250_000_000;
/// The waker was not running when it should have been, if it is later than this.
pub(super) const LATE_NS: u64 = 10_000;
/// A call that took this many times the median, and `SEND_EXTRA_NS` more, was interrupted.
const SEND_FACTOR: u64 = 10;
const SEND_EXTRA_NS: u64 = 20_000;
/// If at least so many wakes were dropped, and twice as many as counted, a state is given up.
const DROP_COUNT_MIN: u64 = 50;
/// The most timers of each state, for the second opinion: a tenth of its wakes.
const TIMER_COUNT_MAX: u64 = 200;

/// A wake, as the caller's threads or the module saw it.
#[derive(Clone, Copy, Debug)]
pub struct LaunchedWake {
    /// From before the call to the woken thread's or CPU's next instruction.
    pub latency_ns: u64,
    /// How long the call took.
    pub send_ns: u64,
    /// How late the call began.
    pub late_ns: u64,
    /// Whether the thread or the CPU slept.
    pub is_woken: bool,
}

/// Wakes to launch, one after the other.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// The CPU that wakes.
    pub source: u16,
    /// The CPU that is woken.
    pub target: u16,
    /// Whether something of low priority runs on the target.
    pub runs: bool,
    /// The time before each wake.
    pub gaps_ns: Vec<u64>,
}

/// What makes the system calls.
pub trait Launcher {
    /// Wakes a thread. `each` must be called on the source: once before the first wake that counts, and
    /// after each wake has been answered.
    fn launch(
        &mut self,
        request: &LaunchRequest,
        each: &mut (dyn FnMut(Option<LaunchedWake>) + Send),
    );

    /// Lets a thread on a CPU sleep for timers, and returns how late it woke.
    fn timers(&mut self, cpu: u16, count: u64, gap_ns: u64) -> Vec<u64>;
}

/// Why wakes were not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// The CPU was not idle, or not yet.
    pub not_idle_count: u64,
    /// It was in another state too.
    pub other_state_count: u64,
    /// Firmware interrupted.
    pub smi_count: u64,
    /// The waker was late or was interrupted.
    pub outside_count: u64,
}

impl Drops {
    /// Returns the number of all wakes that were not counted.
    pub fn count(&self) -> u64 {
        self.not_idle_count + self.other_state_count + self.smi_count + self.outside_count
    }
}

/// The wakes out of a state or of the baseline.
#[derive(Clone, Debug, Default)]
pub struct StateWakes {
    /// From the call to the thread or the CPU, in order of time.
    pub latencies_ns: Vec<u64>,
    /// What was not counted.
    pub drops: Drops,
    /// Whether so many were not counted that it was given up.
    pub is_given_up: bool,
    /// How late a thread woke that slept for a timer.
    pub timers_ns: Vec<u64>,
    /// How long the calls took, sorted.
    sends_ns: Vec<u64>,
}

/// What was measured of a CPU.
#[derive(Clone, Debug)]
pub struct MeasuredCpu {
    /// The wakes of the baseline.
    pub baseline: StateWakes,
    /// The wakes out of each state that was measured, by its index.
    pub states: BTreeMap<usize, StateWakes>,
    /// Whether SMIs were counted.
    pub counts_smis: bool,
}

/// Measures according to the plan. Afterwards the idle states are enabled and disabled as before, whatever
/// happens; after SIGKILL the owner's holder does that.
///
/// # Errors
/// Fails if a state cannot be held, a CPU goes offline, the module cannot be used though the plan says so, or
/// `watch` stops it. Also fails if the idle states could not be restored, with what to write to which file.
pub fn measure_states(
    root: &Root,
    plan: &StatesPlan,
    owner: &Owner,
    launcher: &mut dyn Launcher,
    watch: &dyn Watch,
) -> Result<Vec<MeasuredCpu>, StatesError> {
    let _lock = lock(root)?;
    let mut module = match plan.by {
        WakeBy::Futex => None,
        WakeBy::Ipi => Some(Module::open(root)?),
    };
    plan.check_writable(root)?;
    let tell = |message: &str| watch.warn(message);
    let mut forced = ForcedStates::new(root, owner, &tell);
    let mut measured = Vec::new();
    let outcome = plan.targets.iter().try_for_each(|target| {
        let module = module.as_mut();
        let random = Random(SEED);
        let mut session = Session { root, plan, target, launcher, module, watch, random };
        measured.push(session.run(&mut forced).map_err(Stop::into_ipi)?);
        Ok(())
    });
    forced.restore(outcome)?;
    if module.is_some() {
        check_tsc(root)?;
    }
    Ok(measured)
}

/// Why a CPU's measurement ended early.
enum Stop {
    Ipi(IpiError),
    Look(io::Error),
}

impl From<IpiError> for Stop {
    fn from(error: IpiError) -> Self {
        Stop::Ipi(error)
    }
}

impl Stop {
    fn into_ipi(self) -> IpiError {
        match self {
            Stop::Ipi(error) => error,
            Stop::Look(source) => IpiError::Counts { source },
        }
    }
}

/// The measurement of one CPU.
struct Session<'a> {
    root: &'a Root,
    plan: &'a StatesPlan,
    target: &'a HeldCpu,
    launcher: &'a mut dyn Launcher,
    /// What wakes, instead of the launcher.
    module: Option<&'a mut Module>,
    watch: &'a dyn Watch,
    random: Random,
}

impl Session<'_> {
    fn run(&mut self, forced: &mut ForcedStates<'_>) -> Result<MeasuredCpu, Stop> {
        let target = self.target;
        let alike = target.held();
        let open = StayWatch::open(self.root, target.cpu, target.table.len(), self.plan.source);
        let mut stays = open.map_err(Stop::Look)?;
        let baseline_state = match target.baseline {
            Baseline::Polls(index) => Some(index),
            Baseline::Runs => None,
        };
        let mut settings: Vec<(Option<usize>, [u64; 2], StateWakes)> =
            vec![(baseline_state, target.baseline_gap_ns(), StateWakes::default())];
        settings.extend(
            target.measured().map(|case| (Some(case.index), case.gap_ns, StateWakes::default())),
        );
        for round in 0..ROUND_COUNT {
            let wanted_count = self.plan.wake_count * (round + 1) / ROUND_COUNT;
            let mut order: Vec<usize> = (0..settings.len()).collect();
            if !round.is_multiple_of(2) {
                order.reverse();
            }
            for nth in order {
                let (state, gap_ns, wakes) = &mut settings[nth];
                forced.force(&alike, *state)?;
                self.stir_siblings();
                let is_baseline = nth == 0;
                self.collect(*state, is_baseline, *gap_ns, wanted_count, wakes, &mut stays)?;
            }
        }
        let timer_count = (self.plan.wake_count / 10).clamp(1, TIMER_COUNT_MAX);
        for (state, gap_ns, wakes) in settings.iter_mut().filter(|(.., wakes)| !wakes.is_given_up) {
            // A thread that runs instead of idling would hide the timer.
            let Some(state) = state else { continue };
            if self.watch.is_stopped() {
                return Err(IpiError::Stopped.into());
            }
            forced.force(&alike, Some(*state))?;
            let gap_ns = u64::midpoint(gap_ns[0], gap_ns[1]);
            wakes.timers_ns = self.launcher.timers(target.cpu, timer_count, gap_ns);
        }
        let mut settings = settings.into_iter();
        let baseline = settings.next().map(|(.., wakes)| wakes).unwrap_or_default();
        let states = settings.filter_map(|(state, _, wakes)| Some((state?, wakes))).collect();
        Ok(MeasuredCpu { baseline, states, counts_smis: stays.counts_smis() })
    }

    /// A CPU that idles stays in the state that it is in, allowed or not, until something wakes it.
    fn stir_siblings(&mut self) {
        for &sibling in &self.target.siblings {
            let request = LaunchRequest {
                source: self.plan.source,
                target: sibling,
                runs: false,
                gaps_ns: Vec::new(),
            };
            self.launcher.launch(&request, &mut |_| {});
        }
    }

    /// Launches wakes until so many count, or too many do not.
    fn collect(
        &mut self,
        state: Option<usize>,
        is_baseline: bool,
        gap_ns: [u64; 2],
        wanted_count: u64,
        wakes: &mut StateWakes,
        stays: &mut StayWatch,
    ) -> Result<(), Stop> {
        let batch_count = (BATCH_NS / u64::midpoint(gap_ns[0], gap_ns[1])).max(1);
        while !wakes.is_given_up && (wakes.latencies_ns.len() as u64) < wanted_count {
            if self.watch.is_stopped() {
                return Err(IpiError::Stopped.into());
            }
            // Its thread would be woken all the same, on another CPU.
            check_online(self.root, &[self.target.cpu, self.plan.source])?;
            let count = batch_count.min(wanted_count - wakes.latencies_ns.len() as u64);
            let mut found = match state {
                Some(state) if self.module.is_some() => {
                    self.send(state, gap_ns, count, &mut wakes.drops, stays)?
                }
                _ => self.launch(state, is_baseline, gap_ns, count, &mut wakes.drops, stays)?,
            };
            drop_interrupted(&mut found, &mut wakes.sends_ns, &mut wakes.drops);
            self.watch.wakes(found.len() as u64);
            wakes.latencies_ns.extend(found.iter().map(|wake| wake.latency_ns));
            let (dropped_count, counted_count) =
                (wakes.drops.count(), wakes.latencies_ns.len() as u64);
            wakes.is_given_up = dropped_count >= DROP_COUNT_MIN.max(2 * counted_count);
        }
        Ok(())
    }

    /// Wakes a thread by futexes. Returns the wakes that found the CPU as it should be.
    fn launch(
        &mut self,
        state: Option<usize>,
        is_baseline: bool,
        gap_ns: [u64; 2],
        count: u64,
        drops: &mut Drops,
        stays: &mut StayWatch,
    ) -> Result<Vec<LaunchedWake>, Stop> {
        let runs = is_baseline && state.is_none();
        let gaps_ns = (0..count).map(|_| self.random.between(gap_ns)).collect();
        let request =
            LaunchRequest { source: self.plan.source, target: self.target.cpu, runs, gaps_ns };
        let mut found: Vec<LaunchedWake> = Vec::new();
        let mut failed = None;
        let mut look = |launched: Option<LaunchedWake>| match stays.look() {
            Err(error) => failed = failed.take().or(Some(error)),
            Ok(seen) => {
                if let Some(wake) = launched
                    && counts(&wake, seen, state, is_baseline, drops)
                {
                    found.push(wake);
                }
            }
        };
        self.launcher.launch(&request, &mut look);
        failed.map_or(Ok(found), |error| Err(Stop::Look(error)))
    }

    /// Wakes the CPU by the module's IPIs. Returns the wakes that found it as it should be.
    fn send(
        &mut self,
        state: usize,
        gap_ns: [u64; 2],
        count: u64,
        drops: &mut Drops,
        stays: &mut StayWatch,
    ) -> Result<Vec<LaunchedWake>, Stop> {
        let Some(module) = &mut self.module else { return Ok(Vec::new()) };
        stays.look().map_err(Stop::Look)?;
        let samples = module.measure_states(&StateRequest {
            source: self.plan.source,
            target: self.target.cpu,
            wake_count: count,
            gap_us: gap_ns.map(|ns| ns / 1_000),
        })?;
        Ok(sent_wakes(&samples, stays.look().map_err(Stop::Look)?, state, drops))
    }
}

/// Whether a wake found the CPU as it should be.
fn counts(
    wake: &LaunchedWake,
    seen: &Seen,
    state: Option<usize>,
    is_baseline: bool,
    drops: &mut Drops,
) -> bool {
    let in_state = state.map_or(0, |index| seen.entries[index]);
    let elsewhere = seen.entries.iter().sum::<u64>() - in_state;
    // A polling CPU sees a wake at once, wherever it is in its loop, so it need not have left it.
    let must_leave = !is_baseline;
    let count = if seen.smi_count > 0 {
        &mut drops.smi_count
    } else if elsewhere > 0 {
        &mut drops.other_state_count
    } else if !wake.is_woken || (must_leave && in_state == 0) {
        &mut drops.not_idle_count
    } else if wake.late_ns > LATE_NS {
        &mut drops.outside_count
    } else {
        return true;
    };
    *count += 1;
    false
}

/// The wakes of a batch of IPIs that found the CPU as it should be. The module knows which state the governor
/// had selected for each. The driver may have entered another one, which only the kernel's counts tell, and
/// they are of the whole batch.
pub(super) fn sent_wakes(
    samples: &StateSamples,
    seen: &Seen,
    state: usize,
    drops: &mut Drops,
) -> Vec<LaunchedWake> {
    drops.not_idle_count += samples.given_up_count;
    let all_count = samples.samples.len() as u64;
    let in_state = samples.samples.iter().filter(|sample| sample.state as usize == state);
    let wakes: Vec<LaunchedWake> = in_state
        .map(|sample| LaunchedWake {
            latency_ns: samples.ns(sample.wake_cycles),
            send_ns: samples.ns(sample.send_cycles.into()),
            late_ns: 0,
            is_woken: true,
        })
        .collect();
    let count = wakes.len() as u64;
    drops.other_state_count += all_count - count;
    if seen.smi_count > 0 {
        drops.smi_count += count;
    } else if seen.entries[state] < count {
        drops.other_state_count += count;
    } else {
        return wakes;
    }
    Vec::new()
}

/// Drops wakes whose call took so long that something else ran on the waker meanwhile. The median is of all
/// calls so far, because the last batch may have a single one.
fn drop_interrupted(wakes: &mut Vec<LaunchedWake>, sends_ns: &mut Vec<u64>, drops: &mut Drops) {
    sends_ns.extend(wakes.iter().map(|wake| wake.send_ns));
    sends_ns.sort_unstable();
    let Some(median_ns) = sends_ns.get(sends_ns.len() / 2).copied() else { return };
    let before = wakes.len();
    wakes.retain(|wake| wake.send_ns <= SEND_FACTOR * median_ns + SEND_EXTRA_NS);
    drops.outside_count += (before - wakes.len()) as u64;
}
