//! `idlewise measure`: what this machine's own CPUs cost, by the kernel's modules.

mod ipi;

use std::process::ExitCode;

use crate::error::Failure;

/// Measure this machine's idle CPUs from inside the kernel
#[derive(clap::Args)]
pub struct Measure {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Ipi(ipi::Ipi),
}

impl Measure {
    /// Measures and prints.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let What::Ipi(ipi) = self.what;
        ipi.run()
    }
}
