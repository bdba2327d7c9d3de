//! `idlewise measure`: the cost of waking a CPU or a thread on this machine.
//!
//! | file | holds |
//! | --- | --- |
//! | `ipi.rs` | `measure ipi`: wake latency and the sender's cost, one CPU waking another |
//! | `timer.rs` | `measure timer`: interrupt latency of a CPU's own timers |
//! | `states/` | `measure states`: how long leaving each idle state takes |
//! | `energy.rs` | `measure residency` and `measure power`: what idle states draw, and when they pay |
//! | `wakes.rs` | `measure wakes`: who wakes idle CPUs, and how |
//! | `proxy.rs` | the first two from user space, where there is no module |
//! | `switch.rs` | `measure switch`: two threads that pass a token |
//! | `counters.rs` | `measure counters`: counters of the processor and of the kernel |
//! | `forced.rs` | what those have in common that force idle states: options, plan, doubts, forms of output |
//! | `saving.rs` | what all saved measurements have in common |

mod counters;
#[cfg(target_os = "linux")]
mod energy;
mod forced;
mod ipi;
mod proxy;
pub(super) mod saving;
#[cfg(target_os = "linux")]
mod states;
mod switch;
mod timer;
mod wakes;

use std::process::ExitCode;

use crate::error::Result;

const EXAMPLES: &str = "\
Examples:
  # How long CPUs take to leave each idle state, as a machine file
  sudo idlewise measure states -o my-machine.toml

  # How fast two threads switch
  idlewise measure switch

`idlewise measure COMMAND --help` has more.";

/// Measure what wake-ups and context switches cost, and count events such as IPIs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Measure {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    #[cfg(target_os = "linux")]
    States(states::States),
    #[cfg(target_os = "linux")]
    Residency(energy::Residency),
    #[cfg(target_os = "linux")]
    Power(energy::Power),
    Ipi(ipi::Ipi),
    Timer(timer::Timer),
    Switch(switch::Switch),
    Counters(counters::Counters),
    Wakes(wakes::Wakes),
}

impl Measure {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        saving::begin();
        match self.what {
            #[cfg(target_os = "linux")]
            What::States(states) => states.run(),
            #[cfg(target_os = "linux")]
            What::Residency(residency) => residency.run(),
            #[cfg(target_os = "linux")]
            What::Power(power) => power.run(),
            What::Ipi(ipi) => ipi.run(),
            What::Timer(timer) => timer.run(),
            What::Switch(switch) => switch.run(),
            What::Counters(counters) => counters.run(),
            What::Wakes(wakes) => wakes.run(),
        }
    }
}
