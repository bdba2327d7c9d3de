//! The subcommands. A new one is a file in this folder, a module and a row of the list below.

pub mod advise;
pub mod anonymize;
pub mod arena;
pub mod boot;
pub mod bundle;
pub mod compare;
pub mod diff;
pub mod export;
pub mod generate;
pub mod import;
pub mod info;
pub mod machines;
pub mod measure;
mod plugin_worker;
pub mod predict;
pub mod quiet;
pub mod record;
pub mod replay;
pub mod report;
pub mod settings;
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
    "Record" {
        record: Record,
        import: Import,
        info: Info,
    }
    "Judge governors" {
        replay: Replay,
        diff: Diff,
        arena: Arena,
        sweep: Sweep,
        machines: Machines,
    }
    "Simulate" {
        predict: Predict,
        simulate: Simulate,
        study: Study,
    }
    "Measure this machine" {
        why: Why,
        advise: Advise,
        measure: Measure,
        compare: Compare,
        r#try: Try,
        boot: Boot,
        watch: Watch,
    }
    "Change settings" {
        settings: Settings,
        quiet: Quiet,
    }
    "Share" {
        report: Report,
        export: Export,
        anonymize: Anonymize,
        bundle: Bundle(definition),
    }
    "Check" {
        validate: Validate,
        verify: Verify,
    }
    "Install" {
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
        Command::Try(_) | Command::Settings(_) | Command::Quiet(_) | Command::Bundle(_)
    );
    if needs_file && program::is_embedded() {
        return Err(Failure::new(
            "the Python package does not have this command; install idlewise itself (`make install`)",
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
        | Command::Settings(_)
        | Command::Quiet(_) => {
            signals::fail_at_size_limits()?;
        }
        _ => {
            signals::fail_at_size_limits()?;
            signals::clean_up_first()?;
        }
    }
    dispatch(command, definition)
}
