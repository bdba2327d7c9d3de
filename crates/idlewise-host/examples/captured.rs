//! A captured machine in a folder, for showing commands that watch a machine (`make site`):
//!
//! ```sh
//! cargo run -p idlewise-host --example captured
//! ```
//!
//! Prints the folder. For each line that it reads, ten seconds pass there, with the invented counts of docs/why.md. When its
//! input ends, the folder is removed.

use std::io::{self, BufRead, Write};

#[path = "../tests/captured/mod.rs"]
mod captured;

use captured::{CapturedMachine, More};

const C1E: usize = 2;
const C6: usize = 3;

#[allow(clippy::disallowed_methods, reason = "a program, no library")]
fn main() -> io::Result<()> {
    let machine = CapturedMachine::unpack("server-ice-lake");
    writeln!(io::stdout(), "{}", machine.path().display())?;
    for line in io::stdin().lock().lines() {
        line?;
        let quiet = More { usage: 420, time_us: 9_800_000, above: 260, ..More::default() };
        machine.count("0-1,72-75", C6, quiet);
        let short =
            More { usage: 2_100, time_us: 400_000, above: 30, below: 700, ..More::default() };
        machine.count("2-3", C1E, short);
        let busy = More { usage: 18_400, time_us: 5_000_000, above: 5_704, ..More::default() };
        machine.count("2-3", C6, busy);
        machine.pass(10.0);
    }
    Ok(())
}
