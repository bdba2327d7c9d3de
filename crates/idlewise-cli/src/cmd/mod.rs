//! The list of subcommands; each has a file of its own.

mod machines;
mod verify_decisions;

use std::process::ExitCode;

use crate::error::Failure;

/// What idlewise can do.
#[derive(clap::Subcommand)]
pub enum Command {
    Machines(machines::Machines),
    VerifyDecisions(verify_decisions::VerifyDecisions),
}

/// Runs one subcommand.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Machines(arguments) => arguments.run(),
        Command::VerifyDecisions(arguments) => arguments.run(),
    }
}
