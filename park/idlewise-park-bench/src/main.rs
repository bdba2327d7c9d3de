//! The command, with a `measure park` that measures.

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use idlewise_park_bench::{Bench, PROBE_MWAITX, try_instructions};

    if std::env::args().nth(1).as_deref() == Some(PROBE_MWAITX) {
        return try_instructions();
    }
    idlewise_cli::main_with_park(&Bench)
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    idlewise_cli::main()
}
