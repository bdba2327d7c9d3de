//! `idlewise lab verify`: checks that our ports of Linux's governors decide as the kernel does.

mod decisions;
mod sources;

use std::process::ExitCode;

use crate::error::Result;

/// Check that our governors decide as real kernels do
#[derive(clap::Args)]
pub struct Verify {
    #[command(subcommand)]
    against: Against,
}

#[derive(clap::Subcommand)]
enum Against {
    Decisions(decisions::Decisions),
    Sources(sources::Sources),
}

impl Verify {
    /// Compares and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        match self.against {
            Against::Decisions(decisions) => decisions.run(),
            Against::Sources(sources) => sources.run(),
        }
    }
}
