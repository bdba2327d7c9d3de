//! What studies run: a simulated machine with everything that may be changed about it.

use std::collections::BTreeMap;

use idlewise_core::{Context, Decision, Device, DisabledMask, Governor, Outcome, StateIndex};
use idlewise_machine::bundled;

use super::{Result, StudyError};
use crate::simulate::{Hardware, Quantiles, Report, Setup, simulate_replicates};
use crate::workload::Workload;
use crate::{Bound, IntoBox, Machine};

/// What a study needs from outside: governors by name.
#[derive(Clone, Copy)]
pub struct Shelf<'a> {
    /// A governor by its id, for a tick period; none if there is none.
    pub governor: &'a GovernorById<'a>,
}

/// Builds a governor by its id, for a tick period in nanoseconds.
pub type GovernorById<'a> = dyn Fn(&str, u32) -> Option<Box<dyn Governor>> + Sync + 'a;

impl Shelf<'_> {
    pub(super) fn machine(&self, id: &str) -> Result<Machine> {
        bundled(id).ok_or_else(|| StudyError::NoMachine(id.to_owned()))
    }
}

/// One run of a study, with everything that may be changed.
#[derive(Clone)]
pub(super) struct Trial<'a> {
    pub(super) shelf: &'a Shelf<'a>,
    pub(super) machine: &'a Machine,
    /// An id of the shelf, or a bound.
    pub(super) governor: &'a str,
    pub(super) hardware: Hardware,
    pub(super) workload: Workload,
    /// What comes before the duration.
    pub(super) warm_up_ns: u64,
    pub(super) duration_ns: u64,
    /// Runs left out: those of another trial that this one continues.
    pub(super) skipped_run_count: u64,
    pub(super) run_count: u64,
    pub(super) disabled: DisabledMask,
    pub(super) disabled_by_package: Vec<(usize, DisabledMask)>,
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
            stops_tick: false,
        }
    }

    /// All replicates added up.
    pub(super) fn run(&self) -> Result<Report> {
        let mut sum = Report::default();
        self.runs()?.iter().for_each(|report| sum.merge(report));
        Ok(sum)
    }

    pub(super) fn runs(&self) -> Result<Vec<Report>> {
        let period_ns = idlewise_core::tick_period_ns(self.hardware.hz as u32);
        let rule = Bound::parse(self.governor).map(|bound| bound.on(self.machine)).transpose()?;
        let make = || -> Option<Box<dyn Governor>> {
            let governor = match rule {
                Some(rule) => rule.visit(period_ns, IntoBox),
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Wakes;

    #[test]
    fn a_state_that_the_machine_does_not_have_is_an_error() {
        let shelf = Shelf { governor: &|_, _| None };
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
