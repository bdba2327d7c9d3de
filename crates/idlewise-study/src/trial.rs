//! What studies run: a simulated machine with everything that may be changed about it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use idlewise_core::{
    Context, Decision, Device, DisabledMask, Fixed, Governor, Outcome, StateIndex,
};
use idlewise_machine::{Machine, bundled};
use idlewise_sim::replay::Delays;
use idlewise_sim::simulate::{Hardware, Quantiles, Report, Setup, simulate_replicates};
use idlewise_sim::workload::Workload;

use crate::error::{Result, StudyError};

/// What a study needs from outside, governors by name, and what its runs have found. A study runs again with
/// many inputs, and most of them change only some of its runs.
pub struct Shelf<'a> {
    governor: &'a GovernorById<'a>,
    found: Mutex<BTreeMap<String, Box<dyn Any + Send>>>,
}

/// Builds a governor by its id, for a tick period in nanoseconds.
pub type GovernorById<'a> = dyn Fn(&str, u32) -> Option<Box<dyn Governor>> + Sync + 'a;

impl<'a> Shelf<'a> {
    /// `governor` makes a governor from its id, for a tick period in nanoseconds.
    pub const fn new(governor: &'a GovernorById<'a>) -> Self {
        Shelf { governor, found: Mutex::new(BTreeMap::new()) }
    }

    pub(crate) fn machine(&self, id: &str) -> Result<Machine> {
        bundled(id).ok_or_else(|| StudyError::NoMachine(id.to_owned()))
    }

    /// Returns what was found before under this description, or finds it. No thread waits for another one, so
    /// two may find the same at once.
    pub(crate) fn once<T: Clone + Send + 'static>(
        &self,
        description: String,
        find: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let lock = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&description).and_then(|known| known.downcast_ref::<T>().cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let found = find()?;
        lock().insert(description, Box::new(found.clone()));
        Ok(found)
    }
}

/// One run of a study, with everything that may be changed.
#[derive(Clone)]
pub(crate) struct Trial<'a> {
    pub(crate) shelf: &'a Shelf<'a>,
    pub(crate) machine: &'a Machine,
    /// An id of the shelf, or a bound.
    pub(crate) governor: &'a str,
    pub(crate) hardware: Hardware,
    pub(crate) workload: Workload,
    /// What comes before the duration.
    pub(crate) warm_up_ns: u64,
    pub(crate) duration_ns: u64,
    /// Runs left out: those of another trial that this one continues.
    pub(crate) skipped_run_count: u64,
    pub(crate) run_count: u64,
    pub(crate) disabled: DisabledMask,
    pub(crate) disabled_by_package: Vec<(usize, DisabledMask)>,
    pub(crate) quantiles: BTreeMap<StateIndex, Quantiles>,
    pub(crate) keeps_gaps: bool,
    pub(crate) ignores_spans: bool,
    /// The tick is stopped whenever it may be, whatever the governor says.
    pub(crate) stops_tick: bool,
}

/// The seed of every study; replicates take those that follow.
const SEED: u64 = 20;

impl<'a> Trial<'a> {
    pub(crate) fn new(
        shelf: &'a Shelf<'a>,
        machine: &'a Machine,
        governor: &'a str,
        workload: impl Into<Workload>,
    ) -> Self {
        let hardware =
            Hardware { package_count: 1, core_count: 4, thread_count: 1, ..Hardware::of(machine) };
        Trial {
            shelf,
            machine,
            governor,
            hardware,
            workload: workload.into(),
            warm_up_ns: 0,
            duration_ns: 1_000_000_000,
            skipped_run_count: 0,
            run_count: 1,
            disabled: machine.disabled_by_default(),
            disabled_by_package: Vec::new(),
            quantiles: BTreeMap::new(),
            keeps_gaps: false,
            ignores_spans: false,
            stops_tick: false,
        }
    }

    /// Everything that decides what the runs find, for [`Shelf::once`].
    pub(crate) fn description(&self) -> String {
        let Trial {
            shelf: _,
            machine,
            governor,
            hardware,
            workload,
            warm_up_ns,
            duration_ns,
            skipped_run_count,
            run_count,
            disabled,
            disabled_by_package,
            quantiles,
            keeps_gaps,
            ignores_spans,
            stops_tick,
        } = self;
        let times = (warm_up_ns, duration_ns, skipped_run_count, run_count);
        let states = (disabled, disabled_by_package, quantiles);
        let flags = (keeps_gaps, ignores_spans, stops_tick);
        format!("{governor} {machine:?} {hardware:?} {workload:?} {times:?} {states:?} {flags:?}")
    }

    /// All replicates added up.
    pub(crate) fn run(&self) -> Result<Report> {
        let mut sum = Report::default();
        self.runs()?.iter().for_each(|report| sum.merge(report));
        Ok(sum)
    }

    pub(crate) fn runs(&self) -> Result<Vec<Report>> {
        let period_ns = idlewise_core::tick_period_ns(self.hardware.hz as u32);
        let fixed = self.governor.strip_prefix("fixed=");
        let fixed = fixed.map(|state| self.machine.state_index(state)).transpose()?;
        let make = || -> Option<Box<dyn Governor>> {
            let governor = match fixed {
                Some(state) => Box::new(Fixed::State(state)),
                None => (self.shelf.governor)(self.governor, period_ns)?,
            };
            Some(if self.stops_tick { Box::new(StopsTick(governor)) } else { governor })
        };
        if make().is_none() {
            return Err(StudyError::NoGovernor(self.governor.to_owned()));
        }
        let make_governor = || make().expect("it was there a moment ago");
        let mut setup = Setup::new(self.machine, &make_governor);
        setup.hardware = self.hardware.clone();
        setup.disabled = self.disabled;
        setup.disabled_by_package.clone_from(&self.disabled_by_package);
        setup.exit_quantiles = self.quantiles.clone();
        setup.keeps_gaps = self.keeps_gaps;
        setup.ignores_spans = self.ignores_spans;
        setup.warm_up_ns = self.warm_up_ns;
        let shape = setup.hardware.shape()?;
        let load = |_| self.workload.load(&shape, &setup.hardware);
        let seed = SEED + self.skipped_run_count;
        Ok(simulate_replicates(&setup, &load, self.duration_ns, seed, self.run_count)?)
    }
}

/// A governor whose tick is stopped anyway: as before Linux 4.17.
struct StopsTick(Box<dyn Governor>);

impl Governor for StopsTick {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        Decision { stop_tick: true, ..self.0.select(context, device) }
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }

    fn forecast_ns(&self) -> Option<u64> {
        self.0.forecast_ns()
    }
}

/// A result for one value of what was varied.
#[derive(Clone, Debug)]
pub(crate) struct At<X, Y> {
    pub(crate) at: X,
    pub(crate) found: Y,
}

/// Results for all values of what was varied, in order.
pub(crate) type Sweep<X, Y> = Vec<At<X, Y>>;

pub(crate) fn sweep<X: Clone, Y>(
    values: impl IntoIterator<Item = X>,
    run: impl Fn(X) -> Result<Y>,
) -> Result<Sweep<X, Y>> {
    values.into_iter().map(|at| Ok(At { at: at.clone(), found: run(at)? })).collect()
}

/// The spans of that name, of which there must be some.
pub(crate) fn spans<'a>(report: &'a Report, name: &'static str) -> Result<&'a Delays> {
    report.metrics.spans(name).ok_or(StudyError::Nothing(name))
}

/// Their mean.
pub(crate) fn mean_ns(report: &Report, name: &'static str) -> Result<f64> {
    spans(report, name)?.mean_ns().ok_or(StudyError::Nothing(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use idlewise_sim::workload::Wakes;

    #[test]
    fn a_state_that_the_machine_does_not_have_is_an_error() {
        let shelf = Shelf::new(&|_, _| None);
        let machine = shelf.machine("spr").unwrap();
        let message = |governor| {
            let trial = Trial::new(&shelf, &machine, governor, Wakes::default());
            Trial { duration_ns: 1, ..trial }.run().map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(message("fixed=1"), Ok(()));
        let unknown = "machine spr has no state 7: it has POLL, C1, C1E, C6";
        assert_eq!(message("fixed=7"), Err(unknown.to_owned()));
        assert!(message("coin").unwrap_err().contains("governor coin"));
    }
}
