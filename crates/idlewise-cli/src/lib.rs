//! The `idlewise` command: options and glue code. The work is done in the libraries. Each
//! subcommand has a file in `cmd/`, and `idlewise-lab` runs the experiments.

mod cmd;
mod conformance;
mod doubts;
mod error;
mod governor_arguments;
mod governors;
#[cfg(test)]
mod hazard_scenarios;
mod help;
mod joining;
mod names;
mod output;
mod progress;
mod promoting;
mod replay_arguments;
mod role;
mod screen;
mod signals;
mod storage;
mod sysroot;
mod threads;
mod twins;
mod unpack;
mod work_folder;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use idlewise_lab::{bundled, cells, input, program, recorded_course};
use idlewise_report::shown_in_line;

use crate::error::{Result, without_middle};
use crate::screen::say;

/// Runs the command that this process's arguments name.
pub fn main() -> ExitCode {
    work_folder::end_with_bundle();
    progress::watch();
    let (parsed, renamed) = help::parse(program::arguments());
    if let Some((old, new)) = renamed {
        say(format_args!("idlewise: `{old}` is now `{new}`; the old name works until 0.2.0"));
    }
    let outcome = match parsed {
        Ok(help::Cli { command: Some(command) }) => cmd::run(command, help::command),
        Ok(help::Cli { command: None }) => greet(),
        Err(error) => return report(&error),
    };
    outcome.unwrap_or_else(error::report)
}

/// Opens the log or recording behind a URL, for the Python package.
///
/// # Errors
/// Says what is wrong with the URL, or with what is behind it.
pub fn open_url(url: &str) -> Result<idlewise_lab::engine::Log, String> {
    let fetched = storage::Remote::open(url).and_then(|remote| storage::fetch(&remote));
    let (file, _) = fetched.map_err(|failure| failure.text())?;
    idlewise_lab::engine::Log::fetched(url, file)
}

/// Returns status 2, because a script that names no command is wrong.
fn greet() -> Result<ExitCode> {
    screen::stdout().write_all(help::first_steps().as_bytes())?;
    Ok(ExitCode::from(2))
}

/// Prints what is wrong with the arguments, or the requested help.
fn report(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        // Error messages quote arguments, which may be foreign file names. So the arguments are
        // parsed again in a form that is safe to show, without colours.
        let arguments = program::arguments().into_iter();
        let shown = arguments.map(|word| shown_in_line(&word.to_string_lossy()).into_owned());
        let again = help::parse(shown.map(OsString::from).collect()).0.err();
        let text = again.as_ref().unwrap_or(error).render().to_string();
        let lines: Vec<String> =
            text.trim_end().lines().map(|line| without_middle(line.to_owned())).collect();
        say(lines.join("\n"));
    } else {
        let printed = error.print().and_then(|()| screen::raw_stdout().flush());
        // `--help | head` is not an error; a full disk is.
        if let Err(cause) = printed {
            return error::report(cause.into());
        }
    }
    ExitCode::from(error.exit_code().try_into().unwrap_or(2))
}
