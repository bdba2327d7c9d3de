//! The settings of a profile that touch idling.

use std::path::{Path, PathBuf};

use idlewise_trace::open_regular;

/// Those that idlewise judges.
pub(super) const JUDGED: [&str; 8] = [
    "idle",
    "intel_idle.max_cstate",
    "intel_idle.states_off",
    "processor.max_cstate",
    "cpuidle.off",
    "cpuidle.governor",
    "cpuidle_haltpoll.force",
    "nohz",
];
/// Modules all of whose parameters are about idling, and other names.
const MODULES: [&str; 5] =
    ["intel_idle.", "cpuidle.", "cpuidle_haltpoll.", "haltpoll.", "amd_idle."];
const OTHERS: [&str; 4] =
    ["nohlt", "processor.nocst", "processor.latency_factor", "processor.bm_check_disable"];

/// What a setting wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// tuned's `force_latency`.
    MachineLatency(String),
    /// tuned's `pm_qos_resume_latency_us`.
    CpuLatency(String),
    /// A value in a file below `/sys/devices/system/cpu`, without that.
    File(String, String),
    /// A parameter of the kernel.
    Parameter(String, Option<String>),
}

/// The settings of a profile that touch idling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Its name, or that of its file.
    pub name: String,
    /// What it is: `tuned profile`, `TLP configuration`, `kernel command line`.
    pub form: &'static str,
    /// What a reader should know besides.
    pub notes: Vec<String>,
    /// Where each is written, what is written, and what it wants.
    pub(super) wishes: Vec<(String, String, Wish)>,
}

/// Why a profile cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is no such profile.
    #[error("tuned has no profile {name} in {folders}{included}{hint}")]
    NoProfile {
        /// The profile.
        name: String,
        /// Where it was looked for.
        folders: String,
        /// `; PROFILE includes it`, or nothing.
        included: String,
        /// `; did you mean 'PROFILE'?`, or nothing.
        hint: String,
    },
    /// There is no such file, and it was not meant to be one.
    #[error("there is no file {what}; did you mean '{meant}'?")]
    NoFile {
        /// The name.
        what: String,
        /// What it was probably meant to be.
        meant: &'static str,
    },
    /// The file has no known form.
    #[error(
        "{path} is no profile of tuned (with [sections]), no configuration of TLP and no kernel command line"
    )]
    NoForm {
        /// The file.
        path: PathBuf,
    },
}

impl Profile {
    /// Adds those parameters of a command line that touch idling. Of each name, the last counts.
    pub(super) fn add_parameters(&mut self, source: &str, cmdline: &str) {
        for (name, value) in parameters(cmdline) {
            if !touches_idling(&name) {
                continue;
            }
            self.wishes.retain(
                |(_, _, wish)| !matches!(wish, Wish::Parameter(known, _) if *known == name),
            );
            let text = value.as_ref().map_or(name.clone(), |value| format!("{name}={value}"));
            self.wishes.push((source.to_owned(), text, Wish::Parameter(name, value)));
        }
    }

    /// The value of a parameter that the profile sets.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.wishes.iter().find_map(|(_, _, wish)| match wish {
            Wish::Parameter(known, value) if known == name => value.as_deref(),
            _ => None,
        })
    }
}

fn touches_idling(name: &str) -> bool {
    JUDGED.contains(&name)
        || OTHERS.contains(&name)
        || MODULES.iter().any(|module| name.starts_with(module))
}

/// The parameters of a command line. The kernel reads a dash in a name as an underscore; what follows `--` is for the first
/// process.
pub(super) fn parameters(cmdline: &str) -> impl Iterator<Item = (String, Option<String>)> + '_ {
    let words = cmdline.split_ascii_whitespace().take_while(|word| *word != "--");
    words.map(|word| {
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        (name.replace('-', "_"), value.map(|value| value.trim_matches('"').to_owned()))
    })
}

pub(super) fn text(path: &Path) -> Result<String, ProfileError> {
    let unreadable = |source| ProfileError::Unreadable { path: path.to_owned(), source };
    // A pipe would be waited for without a word.
    let bytes = open_regular(path).and_then(|file| crate::root::read_whole(file, 1 << 20));
    Ok(String::from_utf8_lossy(&bytes.map_err(unreadable)?).into_owned())
}
