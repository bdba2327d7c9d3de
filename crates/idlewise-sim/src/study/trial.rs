//! What studies run: a simulated machine with everything that may be changed about it.

use std::collections::BTreeMap;

use idlewise_core::{DisabledMask, Fixed, Governor, StateIndex};
use idlewise_machine::bundled;

use super::{StudyError, other};
use crate::Machine;
use crate::simulate::{Hardware, Quantiles, Report, Setup, simulate_replicates};
use crate::workload::Workload;

/// What a study needs from outside: governors by name.
#[derive(Clone, Copy)]
pub struct Shelf<'a> {
    /// A governor by its id, for a tick period; none if there is none.
    pub governor: &'a GovernorById<'a>,
}

/// Builds a governor by its id, for a tick period in nanoseconds.
pub type GovernorById<'a> = dyn Fn(&str, u32) -> Option<Box<dyn Governor>> + Sync + 'a;

impl Shelf<'_> {
    pub(super) fn machine(&self, id: &str) -> Result<Machine, StudyError> {
        bundled(id).ok_or_else(|| StudyError::NoMachine(id.to_owned()))
    }
}

/// One run of a study, with everything that may be changed.
#[derive(Clone)]
pub(super) struct Trial<'a> {
    pub(super) shelf: &'a Shelf<'a>,
    pub(super) machine: &'a Machine,
    /// An id of the shelf, or `fixed=INDEX`.
    pub(super) governor: &'a str,
    pub(super) hardware: Hardware,
    pub(super) workload: &'a str,
    pub(super) sets: Vec<(&'a str, String)>,
    pub(super) duration_ns: u64,
    pub(super) run_count: u64,
    pub(super) disabled: DisabledMask,
    pub(super) quantiles: BTreeMap<StateIndex, Quantiles>,
    pub(super) keeps_gaps: bool,
    /// The tick is stopped whenever it may be, whatever the governor says.
    pub(super) stops_tick: bool,
}

/// The seed of every study; replicates take those that follow.
const SEED: u64 = 20;

impl<'a> Trial<'a> {
    pub(super) fn new(
        shelf: &'a Shelf<'a>,
        machine: &'a Machine,
        governor: &'a str,
        workload: &'a str,
    ) -> Self {
        let hardware =
            Hardware { package_count: 1, core_count: 4, thread_count: 1, ..Hardware::of(machine) };
        Trial {
            shelf,
            machine,
            governor,
            hardware,
            workload,
            sets: Vec::new(),
            duration_ns: 1_000_000_000,
            run_count: 1,
            disabled: machine.disabled_by_default(),
            quantiles: BTreeMap::new(),
            keeps_gaps: false,
            stops_tick: false,
        }
    }

    pub(super) fn set(mut self, key: &'a str, value: impl ToString) -> Self {
        self.sets.push((key, value.to_string()));
        self
    }

    /// All replicates added up.
    pub(super) fn run(&self) -> Result<Report, StudyError> {
        let mut sum = Report::default();
        self.runs()?.iter().for_each(|report| sum.merge(report));
        Ok(sum)
    }

    pub(super) fn runs(&self) -> Result<Vec<Report>, StudyError> {
        let period_ns = idlewise_core::tick_period_ns(self.hardware.hz as u32);
        let make = || -> Option<Box<dyn Governor>> {
            let governor: Box<dyn Governor> = match self.governor.strip_prefix("fixed=") {
                Some(state) => Box::new(Fixed::State(state.parse().ok()?)),
                None => (self.shelf.governor)(self.governor, period_ns)?,
            };
            Some(if self.stops_tick { Box::new(StopsTick(governor)) } else { governor })
        };
        if make().is_none() {
            return Err(StudyError::NoGovernor(self.governor.to_owned()));
        }
        let make_governor = || make().expect("it was there a moment ago");
        let mut hardware = self.hardware.clone();
        let mut workload = Workload::named(self.workload).map_err(|error| other(&error))?;
        for (key, value) in &self.sets {
            workload.set(&mut hardware, key, value).map_err(|error| other(&error))?;
        }
        let mut setup = Setup::new(self.machine, &make_governor);
        setup.hardware = hardware;
        setup.disabled = self.disabled;
        setup.exit_quantiles = self.quantiles.clone();
        setup.keeps_gaps = self.keeps_gaps;
        let shape = setup.hardware.shape().map_err(|error| other(&error))?;
        let load = |_| workload.load(&shape, &setup.hardware);
        Ok(simulate_replicates(&setup, &load, self.duration_ns, SEED, self.run_count)?)
    }
}

/// A governor whose tick is stopped anyway: as before Linux 4.17.
struct StopsTick(Box<dyn Governor>);

impl Governor for StopsTick {
    fn select(
        &mut self,
        context: &idlewise_core::Context<'_>,
        device: &mut idlewise_core::Device,
    ) -> idlewise_core::Decision {
        let decision = self.0.select(context, device);
        idlewise_core::Decision { stop_tick: true, ..decision }
    }

    fn reflect(&mut self, outcome: &idlewise_core::Outcome, device: &mut idlewise_core::Device) {
        self.0.reflect(outcome, device);
    }
}
