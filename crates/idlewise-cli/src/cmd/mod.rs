//! The list of subcommands; each has a file of its own.

mod anonymize;
#[cfg(target_os = "linux")]
mod bench;
mod diff;
mod export;
mod import;
mod info;
mod machines;
mod measure;
mod plugin_worker;
mod record;
mod replay;
mod simulate;
mod study;
mod validate;
mod verify_decisions;
mod verify_sources;

use std::process::ExitCode;

use crate::error::Failure;
use crate::signals;

/// What idlewise can do.
#[derive(clap::Subcommand)]
pub enum Command {
    Record(record::Record),
    Import(import::Import),
    Info(info::Info),
    Replay(replay::Replay),
    Diff(diff::Diff),
    Export(export::Export),
    Simulate(simulate::Simulate),
    Study(study::Study),
    Validate(validate::Validate),
    Anonymize(anonymize::Anonymize),
    #[cfg(target_os = "linux")]
    Bench(bench::Bench),
    Measure(measure::Measure),
    Machines(machines::Machines),
    VerifyDecisions(verify_decisions::VerifyDecisions),
    VerifySources(verify_sources::VerifySources),
    #[command(hide = true)]
    PluginWorker(plugin_worker::PluginWorker),
}

/// Runs one subcommand.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        // It has no files, and must not be able to do much.
        Command::PluginWorker(_) => {}
        // They have more to put right than files, and wait for signals themselves.
        Command::Record(_) | Command::Measure(_) => signals::fail_at_size_limits()?,
        _ => {
            signals::fail_at_size_limits()?;
            signals::clean_up_first()?;
        }
    }
    match command {
        Command::Record(arguments) => arguments.run(),
        Command::Import(arguments) => arguments.run(),
        Command::Info(arguments) => arguments.run(),
        Command::Replay(arguments) => arguments.run(),
        Command::Diff(arguments) => arguments.run(),
        Command::Export(arguments) => arguments.run(),
        Command::Simulate(arguments) => arguments.run(),
        Command::Study(arguments) => arguments.run(),
        Command::Validate(arguments) => arguments.run(),
        Command::Anonymize(arguments) => arguments.run(),
        #[cfg(target_os = "linux")]
        Command::Bench(arguments) => arguments.run(),
        Command::Measure(arguments) => arguments.run(),
        Command::Machines(arguments) => arguments.run(),
        Command::VerifyDecisions(arguments) => arguments.run(),
        Command::VerifySources(arguments) => arguments.run(),
        Command::PluginWorker(arguments) => arguments.run(),
    }
}
