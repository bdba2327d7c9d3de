//! Measures ways to wait for another thread.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use std::io::Write;
    use std::process::ExitCode;

    use clap::Parser;
    use idlewise_lab::error::Failure;
    use idlewise_park_bench::{Command, PROBE_MWAITX, try_instructions};
    use idlewise_report::shown_in_line;

    if std::env::args().nth(1).as_deref() == Some(PROBE_MWAITX) {
        return try_instructions();
    }
    match Command::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(message) | Failure::Lines(message)) => {
            // A closed standard error is no reason to fail otherwise.
            #[expect(clippy::disallowed_methods, reason = "the text is safe to show")]
            let _ = writeln!(std::io::stderr(), "idlewise-park-bench: {}", shown_in_line(&message));
            ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {}
