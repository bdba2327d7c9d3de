//! The list of subcommands; each has a file of its own.

mod verify_decisions;

use std::process::ExitCode;

use crate::error::Failure;

/// What idlewise can do.
#[derive(clap::Subcommand)]
pub enum Command {
    VerifyDecisions(verify_decisions::VerifyDecisions),
}

/// Runs one subcommand.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::VerifyDecisions(arguments) => arguments.run(),
    }
}
