//! The `idlewise` command: flags and glue. The work is in the libraries; one file per subcommand
//! is in `cmd/`.

mod bundled;
mod cmd;
mod conformance;
mod doubts;
mod error;
mod governor_arguments;
mod governors;
mod help;
mod input;
mod output;
mod progress;
mod replay_arguments;
mod screen;
mod signals;
mod threads;
mod unpack;

use std::io::Write;
use std::process::ExitCode;

use idlewise_report::shown_in_line;

use crate::error::Failure;
use crate::screen::say;

fn main() -> ExitCode {
    let outcome = match help::parse(std::env::args_os()) {
        Ok(help::Cli { command: Some(command) }) => cmd::run(command),
        Ok(help::Cli { command: None }) => greet(),
        Err(error) => return report(&error),
    };
    outcome.unwrap_or_else(Failure::report)
}

/// Status 2, since a script that names no command has made a mistake.
fn greet() -> Result<ExitCode, Failure> {
    screen::stdout().write_all(help::first_steps().as_bytes())?;
    Ok(ExitCode::from(2))
}

/// What is wrong with the arguments, or the help that was asked for.
fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Arguments may be names of files, which are not ours, and are part of what is said. So it is
        // said of arguments that can be shown, and without colours.
        let arguments = std::env::args_os();
        let shown = arguments.map(|word| shown_in_line(&word.to_string_lossy()).into_owned());
        let again = help::parse(shown).err();
        say(again.as_ref().unwrap_or(error).render().to_string().trim_end());
    } else {
        // `--help | head` is no error.
        let _ = error.print();
    }
    ExitCode::from(error.exit_code().try_into().unwrap_or(2))
}
