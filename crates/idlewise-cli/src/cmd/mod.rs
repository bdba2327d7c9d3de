//! The list of subcommands; each has a file of its own.

use std::process::ExitCode;

use crate::error::Failure;

/// What idlewise can do.
#[derive(clap::Subcommand)]
pub enum Command {}

/// Runs one subcommand.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {}
}
