//! The subcommands. A new one is a file in this folder, a module and a row of the list below.

pub mod advise;
pub mod anonymize;
pub mod arena;
pub mod boot;
pub mod bundle;
pub mod compare;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod generate;
pub mod governors;
pub mod import;
pub mod info;
pub mod lab;
pub mod log;
pub mod machines;
pub mod measure;
mod plugin_worker;
pub mod predict;
pub mod record;
pub mod replay;
pub mod report;
pub mod set;
pub mod simulate;
pub mod study;
pub mod sweep;
pub mod r#try;
pub mod validate;
pub mod verify;
pub mod watch;
pub mod why;

use std::process::ExitCode;

use crate::error::{Failure, Result};
use crate::program;
use crate::signals;

/// Makes the definition of the whole command line, of which subcommands are a part.
pub type Definition = fn() -> clap::Command;

/// Generates [`Command`], [`GROUPS`] and the dispatch from one list. A command that parses or prints command lines is given
/// the definition of the whole.
macro_rules! subcommands {
    ($definition:ident; $($group:literal { $($(#[$attribute:meta])* $file:ident: $name:ident $(($given:ident))?,)* })*) => {
        /// What idlewise can do.
        #[derive(clap::Subcommand)]
        pub enum Command {
            $($($(#[$attribute])* $name($file::$name),)*)*
            #[command(hide = true)]
            PluginWorker(plugin_worker::PluginWorker),
        }

        /// The groups of `idlewise --help`: a purpose, and the subcommands for it.
        pub const GROUPS: &[(&str, &[&str])] = &[
            $(($group, &[$($(#[$attribute])* plain(stringify!($file)),)*]),)*
        ];

        fn dispatch(command: Command, $definition: Definition) -> Result<ExitCode> {
            match command {
                $($($(#[$attribute])* Command::$name(arguments) => arguments.run($($given)?),)*)*
                Command::PluginWorker(arguments) => arguments.run(),
            }
        }
    };
}

subcommands! {
    definition;
    "This machine" {
        why: Why,
        watch: Watch,
        advise: Advise,
        r#try: Try,
        set: Set,
        measure: Measure,
        doctor: Doctor,
    }
    "Recordings" {
        record: Record,
        info: Info,
        replay: Replay,
        predict: Predict,
        report: Report,
    }
    "More" {
        lab: Lab,
        log: Log(definition),
        governors: Governors,
        machines: Machines,
        generate: Generate(definition),
    }
}

/// A command's name: `try` is a keyword, and its module `r#try`.
const fn plain(module: &'static str) -> &'static str {
    match module.as_bytes() {
        [b'r', b'#', ..] => module.split_at(2).1,
        _ => module,
    }
}

/// Runs one subcommand.
pub fn run(command: Command, definition: Definition) -> Result<ExitCode> {
    // They leave a process of their own behind, or repeat themselves, and for that need a file to start.
    let needs_file = matches!(
        command,
        Command::Try(_) | Command::Set(_) | Command::Log(log::Log { what: log::What::Bundle(_) })
    );
    if needs_file && program::is_embedded() {
        return Err(Failure::new(
            "the Python package does not have this command; install idlewise itself: a package, an archive, or cargo install --locked idlewise-cli",
        ));
    }
    match command {
        // The worker opens no files, and must not have more rights than it needs.
        Command::PluginWorker(_) => {}
        // They restore settings of the machine or the terminal, or print what they have, so they handle signals
        // themselves.
        Command::Record(_)
        | Command::Measure(_)
        | Command::Try(_)
        | Command::Watch(_)
        | Command::Why(_)
        | Command::Advise(_)
        | Command::Set(_) => {
            signals::fail_at_size_limits()?;
        }
        _ => {
            signals::fail_at_size_limits()?;
            signals::clean_up_first()?;
        }
    }
    dispatch(command, definition)
}
