//! Whether a profile of tuned, a configuration of TLP or a kernel command line does to idle states what it intends, on
//! this CPU with this driver, and whether it is in force now.
//!
//! What the kernel does is taken from its sources (`drivers/idle/intel_idle.c`, `drivers/acpi/processor_idle.c`,
//! `drivers/cpuidle`, `arch/x86/kernel/process.c`), what tuned does from its plug-ins `cpu`, `sysfs` and `bootloader`.
//! What depends on something that the machine does not show is [`Verdict::Unknown`]; nothing is guessed.
//!
//! | file | holds |
//! | --- | --- |
//! | `wishes.rs` | [`Profile`]: the settings of a file that touch idling |
//! | `read.rs` | [`Profile::read`]: any of the forms |
//! | `tuned.rs` | profiles of tuned with what they include |
//! | `facts.rs` | `Facts`: the machine's states, driver, governor and command line |
//! | `latency.rs` | limits of the exit latency |
//! | `sysfs.rs` | files that tuned writes |
//! | `parameters.rs` | parameters of the kernel |
//!
//! What is not here: settings of frequencies, and what a state costs.

mod facts;
mod latency;
mod parameters;
mod read;
mod sysfs;
mod tuned;
mod wishes;

use idlewise_core::words;
use serde::Serialize;

use crate::Root;
use facts::Facts;
use wishes::Wish;
pub use wishes::{Profile, ProfileError};

words! {
    /// What a setting does here.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// What it intends.
        Works = "works",
        /// Nothing.
        Nothing = "does nothing here",
        /// More than it intends.
        More = "does more than intended",
        /// Less than it intends.
        Less = "does less than intended",
        /// The machine does not show what it depends on.
        Unknown = "cannot be told",
    }
}

impl Serialize for Verdict {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A setting with what it does here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedSetting {
    /// The setting, as it is written.
    pub setting: String,
    /// Where it is written.
    pub source: String,
    /// What it intends.
    pub intends: String,
    /// What it does.
    pub verdict: Verdict,
    /// Why, or with what effect.
    pub because: String,
    /// Whether it is in force now; `None` if that cannot be told.
    pub in_force: Option<bool>,
    /// How that is known, or why it is not.
    pub in_force_because: String,
}

impl CheckedSetting {
    /// Whether it does what it intends, now.
    pub fn is_good(&self) -> bool {
        self.verdict == Verdict::Works && self.in_force == Some(true)
    }
}

/// What a check finds out about a setting.
struct Finding {
    intends: String,
    verdict: Verdict,
    because: String,
    in_force: (Option<bool>, String),
}

/// Checks the settings of a profile on the machine under `root`.
pub fn check_profile(root: &Root, profile: &Profile) -> Vec<CheckedSetting> {
    let facts = Facts::read(root, profile);
    let checked = profile.wishes.iter().map(|(source, setting, wish)| {
        let finding = match wish {
            Wish::MachineLatency(text) => latency::of_machine(&facts, text),
            Wish::CpuLatency(text) => latency::of_cpus(&facts, text),
            Wish::File(path, value) => sysfs::file(&facts, path, value),
            Wish::Parameter(name, value) => parameters::parameter(&facts, name, value.as_deref()),
        };
        let (in_force, in_force_because) = finding.in_force;
        CheckedSetting {
            setting: setting.clone(),
            source: source.clone(),
            intends: finding.intends,
            verdict: finding.verdict,
            because: finding.because,
            in_force,
            in_force_because,
        }
    });
    checked.collect()
}
