//! The program. The library is everything in it.

use std::process::ExitCode;

fn main() -> ExitCode {
    idlewise_cli::main()
}
