//! What a recording does not show, found by playing it.

use std::sync::Arc;

use super::{CausedWorkload, Costs, Outcome, PredictError, play};
use crate::simulate::Setup;

/// The shares that are tried.
const TICK_NEEDS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Finds how often CPUs have something to do at their next tick ([`Setup::tick_need`]). No event tells it, and
/// governors see it, because the tick is then the next timer. So the recorded setting is played with several
/// shares, and the one that comes nearest to the recording is kept.
///
/// # Errors
/// Fails like [`play`].
pub fn calibrate(
    workload: &Arc<CausedWorkload>,
    setup: &mut Setup<'_>,
    seed: u64,
) -> Result<f64, PredictError> {
    setup.tick_need = 0.0;
    if workload.costs == Costs::Machine {
        return Ok(0.0);
    }
    let recorded = Outcome::recorded(workload);
    let mut best = (f64::INFINITY, 0.0);
    for need in TICK_NEEDS {
        setup.tick_need = need;
        let distance = distance(&recorded, &play(workload, setup, seed)?);
        if distance < best.0 {
            best = (distance, need);
        }
    }
    setup.tick_need = best.1;
    Ok(best.1)
}

/// How far a run is from the recording: in the distribution of latencies, and in their mean.
fn distance(recorded: &Outcome, run: &Outcome) -> f64 {
    let mean = |of: &Outcome| of.latency_mean_ns.unwrap_or(0.0).max(1.0);
    recorded.latencies().distance(&run.latencies()) + (mean(run) / mean(recorded)).ln().abs()
}
