//! Measures how long CPUs take to leave each of their idle states, without special hardware.
//!
//! A CPU is held in one state: the others are disabled, on its SMT siblings too, because a core is only as
//! deep as its shallowest thread. Another CPU, which is awake, wakes it at random distances. A wake counts
//! only if it found the CPU in the held state and no other, if no firmware interrupted meanwhile, and if
//! nothing delayed the waker. There are two ways to wake ([`WakeBy`]):
//!
//! - **by futex**: a thread on the CPU. After each wake the kernel's counts say which states were left.
//! - **by IPI**, with the kernel module idlewise_bench: the CPU itself, without system calls and scheduler in
//!   the figure. The module says out of which state each wake was. The kernel's counts are read after a batch
//!   of wakes; if they have fewer stays in the state than the module, or if firmware interrupted, none of the
//!   batch counts.
//!
//! The same wakes of the same CPU while it polls, or while it runs something of low priority where there is
//! no polling state, are the baseline. The settings take turns in rounds, so that a slow drift of the
//! machine meets all of them.
//!
//! | file | holds |
//! | --- | --- |
//! | `plan.rs` | [`StatesPlan`]: which CPU wakes which, held in which states |
//! | `wakes.rs` | [`measure_states`]: the wakes, and which of them count |
//! | `sweep.rs` | [`measure_energy`]: energy of all CPUs, held in a state and woken periodically |
//! | `stays.rs` | what happened since the last look |
//! | `busy.rs` | [`CpuTimes`]: how busy CPUs are |
//! | `error.rs` | [`StatesError`] |
//!
//! Known limitations: the waker is awake, so its package is in no package state; a timer would wake a
//! package before it is due (Intel), so timers are only a second opinion. Not here: percentiles, and waking
//! threads, which needs system calls that this crate does not make ([`Launcher`]).

mod busy;
mod error;
mod plan;
mod stays;
mod sweep;
mod wakes;

use crate::Root;
use crate::ipi::IpiError;
use crate::show_cpu_list;

pub use busy::CpuTimes;
pub use error::StatesError;
pub use plan::{Baseline, HeldCpu, HeldState, StatesPlan, StatesWishes, WakeBy};
pub use sweep::{EnergyPlan, EnergySlice, EnergyWishes, Worked, Workers, measure_energy};
pub use wakes::{
    Drops, LaunchRequest, LaunchedWake, Launcher, MeasuredCpu, StateWakes, measure_states,
};

/// Fails if one of the CPUs has gone offline.
fn check_online(root: &Root, cpus: &[u16]) -> Result<(), IpiError> {
    let online = root.online_cpus();
    match cpus.iter().find(|cpu| !online.contains(cpu)) {
        None => Ok(()),
        Some(&cpu) => Err(IpiError::Offline { cpu, online: show_cpu_list(&online) }),
    }
}

/// An arbitrary constant with many bits set.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Distances that no periodic activity follows, the same in each run (xorshift64*).
struct Random(u64);

impl Random {
    fn between(&mut self, [least, most]: [u64; 2]) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        least + ((u128::from(number) * u128::from(most - least + 1)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
