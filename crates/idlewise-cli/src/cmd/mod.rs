//! The subcommands. A new one is a file in this folder and a row of the list below.

use std::process::ExitCode;

use crate::error::Failure;
use crate::signals;

/// Generates the modules, [`Command`], [`GROUPS`] and the dispatch from one list.
macro_rules! subcommands {
    ($($group:literal { $($(#[$attribute:meta])* $file:ident: $name:ident,)* })*) => {
        $($($(#[$attribute])* mod $file;)*)*
        mod plugin_worker;

        /// What idlewise can do.
        #[derive(clap::Subcommand)]
        pub enum Command {
            $($($(#[$attribute])* $name($file::$name),)*)*
            #[command(hide = true)]
            PluginWorker(plugin_worker::PluginWorker),
        }

        /// The groups of `idlewise --help`: a purpose, and the subcommands for it.
        pub const GROUPS: &[(&str, &[&str])] = &[
            $(($group, &[$($(#[$attribute])* stringify!($file),)*]),)*
        ];

        fn dispatch(command: Command) -> Result<ExitCode, Failure> {
            match command {
                $($($(#[$attribute])* Command::$name(arguments) => arguments.run(),)*)*
                Command::PluginWorker(arguments) => arguments.run(),
            }
        }
    };
}

subcommands! {
    "Record" {
        record: Record,
        import: Import,
        info: Info,
    }
    "Judge governors" {
        replay: Replay,
        diff: Diff,
        arena: Arena,
        machines: Machines,
    }
    "Simulate" {
        simulate: Simulate,
        study: Study,
    }
    "Measure this machine" {
        measure: Measure,
        compare: Compare,
        boot: Boot,
    }
    "Share" {
        report: Report,
        export: Export,
        anonymize: Anonymize,
        bundle: Bundle,
    }
    "Check" {
        validate: Validate,
        verify: Verify,
    }
    "Install" {
        generate: Generate,
    }
}

pub use bundle::end_without_bundles;

/// Runs one subcommand.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        // The worker opens no files, and must not have more rights than it needs.
        Command::PluginWorker(_) => {}
        // They must also restore settings of the machine, so they handle signals themselves.
        Command::Record(_) | Command::Measure(_) => signals::fail_at_size_limits()?,
        _ => {
            signals::fail_at_size_limits()?;
            signals::clean_up_first()?;
        }
    }
    dispatch(command)
}
