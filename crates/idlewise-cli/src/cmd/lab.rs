//! `idlewise lab`: research, on many logs or on simulated machines.

use std::process::ExitCode;

use super::{boot, compare, simulate, study, sweep, verify};
use crate::error::Result;

/// Simulate workloads, check published claims, check our ports against kernels
#[derive(clap::Args)]
pub struct Lab {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Sweep(sweep::Sweep),
    Simulate(simulate::Simulate),
    Study(study::Study),
    Verify(verify::Verify),
    Boot(boot::Boot),
    Compare(compare::Compare),
}

impl Lab {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.what {
            What::Sweep(sweep) => sweep.run(),
            What::Simulate(simulate) => simulate.run(),
            What::Study(study) => study.run(),
            What::Verify(verify) => verify.run(),
            What::Boot(boot) => boot.run(),
            What::Compare(compare) => compare.run(),
        }
    }
}
