//! Plays the recorded workload under every variant, and cuts what happens into slices of the recording.
//!
//! A slice has the steps that were due in it in the recording. The same steps are compared under each variant,
//! whenever they ran there; the delays are those of the ones that waited for what woke them. A slice's energy is that
//! from when its first step is due until the next slice's first step is.

use std::path::Path;

use idlewise_report::advise::Slices;
use idlewise_sim::Machine;
use idlewise_sim::predict::{Arrivals, Outcome, Reproduction};
use idlewise_trace::RecordedMachine;
use idlewise_trace::tracepoint::Purpose;

use super::candidates::Variant;
use crate::cmd::predict::played::{Played, Replicates, Setting};
use crate::error::{Failure, Result};
use crate::input::{self, Reading};
use crate::unpack::Unpacking;

/// As for a replay.
const SLICE_COUNT_MAX: u64 = 32;
const STEPS_PER_SLICE: u64 = 16;
/// How often in a slice the energy is noted.
const NOTES_PER_SLICE: u64 = 64;
/// Every variant has the same ticks, so the variants differ in nothing else.
const ONE: Replicates = Replicates { count: 1, ..Replicates::DEFAULT };

/// A recording that reproduces itself when it is played.
pub(super) struct Predicted {
    pub played: Played,
    pub reproduction: Reproduction,
}

/// Opens a recording with causes; `None` if it has none.
pub(super) fn open(path: &Path, unpacking: Unpacking) -> Result<Option<Played>> {
    let reading =
        Reading { purpose: Purpose::Causes, unpacking: unpacking.into(), ..Reading::default() };
    let Some(log) = input::workload_if_any(path, &reading)? else { return Ok(None) };
    Played::new(path, log, RecordedMachine::default(), Arrivals::Open).map(Some)
}

impl Predicted {
    /// Fails if the recording does not reproduce itself, where `predict` would refuse it too.
    pub fn new(played: Played) -> Result<Self> {
        let reproduction = played.reproduction(Replicates::DEFAULT)?;
        Ok(Predicted { played, reproduction })
    }

    /// How long the recording is.
    pub fn span_ns(&self) -> u64 {
        self.played.metadata.last_at_ns.abs_diff(self.played.metadata.first_at_ns).max(1)
    }

    /// Plays each variant on a machine. `is_recorded` says that it is the recorded one. A variant that the workload cannot be
    /// played under is `None`, unless it is the first, which all others are compared with.
    pub fn run(
        &self,
        machine: &Machine,
        is_recorded: bool,
        variants: &[Variant],
    ) -> Result<Vec<Option<Slices>>> {
        let step_count = self.played.workload.step_count() as u64;
        let slice_count = (step_count / STEPS_PER_SLICE).clamp(1, SLICE_COUNT_MAX);
        let one = |variant: &Variant| -> Result<Slices> {
            let setting = Setting {
                disabled: variant.disabled,
                latency_limit_ns: variant.latency_limit_ns,
                is_recorded_machine: is_recorded,
                energy_every_ns: Some((self.span_ns() / slice_count / NOTES_PER_SLICE).max(1)),
                ..Setting::new(machine)
            };
            let runs = self.played.play(&setting, &variant.choice, ONE)?;
            Ok(runs.first().map_or_else(Slices::default, |run| self.cut(run, slice_count as usize)))
        };
        let played = variants.iter().enumerate().map(|(index, variant)| match one(variant) {
            Err(error) if index == 0 && is_recorded => Err(error),
            Err(error) if index == 0 => Err(Failure::new(format_args!(
                "on {}, as it is: {}; judge for the recorded machine: leave out --machine",
                machine.id,
                error.text()
            ))),
            played => Ok(played.ok()),
        });
        played.collect()
    }

    fn cut(&self, run: &Outcome, slice_count: usize) -> Slices {
        let mut slices = Slices::new(slice_count);
        // When each slice's first step is due in the run.
        let mut begins_ns = vec![u64::MAX; slice_count];
        for (step, recorded_due_ns) in self.played.workload.woken_steps() {
            let at = u128::from(recorded_due_ns) * slice_count as u128 / u128::from(self.span_ns());
            let at = (at as usize).min(slice_count - 1);
            let window = &run.windows[step];
            // What comes while the task still works waits for that work, whatever the idle state: no delay of a wake-up.
            if window.is_woken {
                slices.delays[at].record(window.run_at_ns.saturating_sub(window.due_ns));
            }
            begins_ns[at] = begins_ns[at].min(window.due_ns);
        }
        let Some(report) = &run.report else { return slices };
        let cores = &report.cores;
        let all = (report.duration_ns, cores.idle_uj + cores.package_uj);
        // Backwards, so that none begins after the one that follows it.
        let mut end = all;
        for at in (0..slice_count).rev() {
            let begin_ns = if at == 0 { 0 } else { begins_ns[at].min(end.0) };
            let begin = (begin_ns, energy_at(&report.energy_curve, all, begin_ns));
            slices.energy_uj[at] = end.1 - begin.1;
            end = begin;
        }
        slices
    }
}

/// The energy up to a time, from the curve's neighbours.
fn energy_at(curve: &[(u64, f64)], all: (u64, f64), at_ns: u64) -> f64 {
    let next = curve.partition_point(|(ns, _)| *ns <= at_ns);
    let (from_ns, from_uj) = next.checked_sub(1).map_or((0, 0.0), |at| curve[at]);
    let (to_ns, to_uj) = curve.get(next).copied().unwrap_or(all);
    let span_ns = to_ns.saturating_sub(from_ns);
    if span_ns == 0 {
        return from_uj;
    }
    from_uj + (to_uj - from_uj) * (at_ns - from_ns) as f64 / span_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_between_two_notes_is_in_proportion() {
        let curve = [(100, 10.0), (300, 50.0)];
        let at = |ns| energy_at(&curve, (400, 50.0), ns);
        assert_eq!(
            [0, 50, 100, 200, 300, 350, 400].map(at),
            [0.0, 5.0, 10.0, 30.0, 50.0, 50.0, 50.0]
        );
    }
}
