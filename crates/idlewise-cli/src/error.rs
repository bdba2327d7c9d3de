//! How a command fails: one line on standard error, and exit status 2. Exit status 1 means that the
//! command worked and the result is negative (a mismatch, a check that failed).

use std::process::ExitCode;

pub use idlewise_lab::error::{Failure, Result, did_you_mean, keys_and_values, without_middle};
use idlewise_report::shown_in_line;

use crate::screen::say;

/// Prints a failure and returns the exit status.
pub fn report(failure: Failure) -> ExitCode {
    match failure {
        Failure::Message(message) => {
            // A file name may contain newlines.
            say(format_args!("idlewise: {}", shown_in_line(&message)));
            ExitCode::from(2)
        }
        Failure::Lines(message) => {
            say(format_args!("idlewise: {message}"));
            ExitCode::from(2)
        }
        Failure::ClosedPipe => ExitCode::SUCCESS,
    }
}
