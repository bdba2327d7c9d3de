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
mod screen;
mod signals;
mod threads;
mod unpack;
mod world;

use std::process::ExitCode;

use clap::Parser;
use idlewise_report::shown_in_line;

use crate::error::Failure;
use crate::screen::say;

/// Replay what idle CPUs really did under any governor, on any machine's idle states.
#[derive(Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cmd::run(cli.command).unwrap_or_else(Failure::report),
        Err(error) => report(&error),
    }
}

/// What is wrong with the arguments, or the help that was asked for.
fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Arguments may be names of files, which are not ours, and are part of what is said. So it is
        // said of arguments that can be shown, and without colours.
        let arguments = std::env::args_os();
        let shown = arguments.map(|word| shown_in_line(&word.to_string_lossy()).into_owned());
        let again = Cli::try_parse_from(shown).err();
        say(again.as_ref().unwrap_or(error).render().to_string().trim_end());
    } else {
        // `--help | head` is no error.
        let _ = error.print();
    }
    ExitCode::from(error.exit_code().try_into().unwrap_or(2))
}
