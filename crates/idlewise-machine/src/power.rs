//! The power of a state or a running core for which a machine's file has no figure.
//!
//! # The default shape
//!
//! Almost nobody publishes the power of an idle state, yet every cost needs one. If a machine's file gives
//! none, the power is a fraction of running power that depends only on target residency:
//!
//! | target residency | ratio | from |
//! | --- | --- | --- |
//! | polling | 1.0 | a loop runs instructions |
//! | UMWAIT C0.1 | 0.9 | between POLL and C0.2; measured to save less |
//! | UMWAIT C0.2 | 0.82 | -18 % package power by RAPL against POLL (linux-pm, 10 July 2023) |
//! | 1 us and less | 0.36 | C1, 1.44 W |
//! | 4 us | 0.22 | C1E, 0.88 W |
//! | 600 us and more | 0.025 | C6, 0.1 W |
//!
//! The last three are those of the Skylake server core in AgileWatts (Yahya et al., 2022), whose C0 takes
//! 4.0 W. In between, the relation is linear in the logarithms of both. The paper gives the powers of named
//! states. Their target residencies here are those of recent Xeon tables.
//!
//! A deeper state must draw less power, or entering it could never pay off. If the shape does not fall from
//! one state to the next, the deeper one gets [`STEP_RATIO`] of the shallower one's power.
//!
//! # Known limitations
//!
//! A single curve for phones and servers is crude: ratios are wrong by factors, and absolute powers by
//! more. It does give the right order, so results that depend on it are marked assumed.

use crate::figure::{Basis, Power, PowerFigure};
use crate::state::MachineState;
use crate::words::{Arch, UmwaitState};

/// Assumed running power, in milliwatts, of a core that is not Arm's: AgileWatts' Skylake C0.
pub const RUNNING_POWER_MW: f64 = 4000.0;

/// Assumed running power, in milliwatts, of an Arm core in a phone or an embedded board. It lies amid the
/// five published cores at a middle frequency, 128 mW (`pixel6-a55`) to 744 mW (`sm8750-c1`).
pub const RUNNING_POWER_ARM_MW: f64 = 400.0;

/// A state's fraction of its shallower neighbour's power if the shape would not fall.
const STEP_RATIO: f64 = 0.9;

/// Target residency in nanoseconds, and fraction of running power; see the table above.
const SHAPE: [(f64, f64); 3] = [(1_000.0, 0.36), (4_000.0, 0.22), (600_000.0, 0.025)];

const UMWAIT_C01_RATIO: f64 = 0.9;
const UMWAIT_C02_RATIO: f64 = 0.82;

/// The running power of a machine: its file's figure, or else the default.
pub(crate) fn running_power(arch: Arch, figure: Option<PowerFigure<'_>>) -> Power {
    let default_mw = match arch {
        Arch::X86 | Arch::Power | Arch::Other => RUNNING_POWER_MW,
        Arch::Arm => RUNNING_POWER_ARM_MW,
    };
    figure.map_or(Power { mw: default_mw, basis: Basis::Assumed }, |figure| figure.power())
}

/// The powers of a table's states: the published figure, or else the default shape, kept below the
/// shallower state and above published deeper ones.
pub(crate) fn state_powers(running: Power, states: &[MachineState]) -> Vec<Power> {
    let mut powers: Vec<Power> = Vec::with_capacity(states.len());
    for (index, state) in states.iter().enumerate() {
        let power = match state.power_figure() {
            Some(figure) => figure.power(),
            None if state.idle().is_polling => running,
            None => {
                let shape_mw = running.mw * shape_ratio(state);
                let ceiling_mw = powers.last().unwrap_or(&running).mw;
                let published_mw = states[index..].iter().filter_map(|deeper| deeper.power_mw);
                let floor_mw = published_mw.fold(0.0, f64::max);
                Power { mw: between(shape_mw, ceiling_mw, floor_mw), basis: Basis::Assumed }
            }
        };
        powers.push(power);
    }
    powers
}

/// The shape's power if it lies strictly between floor and ceiling, or else a value that does. Never above
/// the ceiling, even where a published deeper state is.
fn between(shape_mw: f64, ceiling_mw: f64, floor_mw: f64) -> f64 {
    let mw = if shape_mw < ceiling_mw { shape_mw } else { ceiling_mw * STEP_RATIO };
    if mw > floor_mw || floor_mw >= ceiling_mw { mw } else { (ceiling_mw * floor_mw).sqrt() }
}

fn shape_ratio(state: &MachineState) -> f64 {
    match state.umwait_state {
        Some(UmwaitState::C01) => UMWAIT_C01_RATIO,
        Some(UmwaitState::C02) => UMWAIT_C02_RATIO,
        None => residency_ratio(state.target_residency_ns as f64),
    }
}

/// Interpolates [`SHAPE`] linearly in the logarithms of both; constant beyond its ends.
fn residency_ratio(target_residency_ns: f64) -> f64 {
    let (first, last) = (SHAPE[0], SHAPE[SHAPE.len() - 1]);
    if target_residency_ns <= first.0 {
        return first.1;
    }
    for pair in SHAPE.windows(2) {
        let ((short_ns, high), (long_ns, low)) = (pair[0], pair[1]);
        if target_residency_ns < long_ns {
            let share = (target_residency_ns / short_ns).ln() / (long_ns / short_ns).ln();
            return high * (low / high).powf(share);
        }
    }
    last.1
}
