//! The `idlewise` command: flags and glue. The work is in the libraries; one file per subcommand
//! is in `cmd/`.

mod bundled;
mod cmd;
mod conformance;
mod error;
mod governor_arguments;
mod governors;
mod input;
mod output;
mod progress;
mod signals;
mod unpack;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// Replay what idle CPUs really did under any governor, on any machine's idle states.
#[derive(Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    match cmd::run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}
