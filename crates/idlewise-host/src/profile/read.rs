//! Reads the settings of a file that touch idling, whatever its form.

use std::path::{Path, PathBuf};

use super::parameters::touches_idling;
use super::tuned;
use crate::Root;

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
    #[error("tuned has no profile {name} in {folders}{included}")]
    NoProfile {
        /// The profile.
        name: String,
        /// Where it was looked for.
        folders: String,
        /// `, which PROFILE includes`, or nothing.
        included: String,
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
    /// Reads `tuned:NAME`, `cmdline` (the command line of the running kernel), or a file.
    ///
    /// # Errors
    /// Fails if it cannot be read, includes what cannot be read, or has no known form.
    pub fn read(root: &Root, what: &str) -> Result<Self, ProfileError> {
        if let Some(name) = what.strip_prefix("tuned:") {
            return tuned::named(root, name);
        }
        let path = if what == "cmdline" { root.path("proc/cmdline") } else { PathBuf::from(what) };
        let text = text(&path)?;
        if what == "cmdline" {
            return Ok(Self::of_cmdline("/proc/cmdline", &text));
        }
        let lines = || {
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
        };
        let is_section = |line: &str| line.starts_with('[') && line.ends_with(']');
        if lines().any(is_section) {
            return tuned::of_file(root, &path, &text);
        }
        if lines().any(|line| line.starts_with("GRUB_CMDLINE_LINUX")) {
            let values =
                lines().filter_map(|line| line.strip_prefix("GRUB_CMDLINE_LINUX")?.split_once('='));
            let all: Vec<&str> = values.map(|(_, value)| value.trim_matches(['"', '\''])).collect();
            return Ok(Self::of_cmdline(what, &all.join(" ")));
        }
        let is_shell = |line: &str| {
            let name = line.split('=').next().unwrap_or_default().trim_end_matches('+');
            line.contains('=')
                && !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        };
        if lines().next().is_some() && lines().all(is_shell) {
            let note = "TLP has no setting of idle states: those of its settings that begin with CPU_ are about \
                        frequencies, and a scaling governor such as performance does not limit idle states";
            let notes = vec![note.to_owned()];
            return Ok(Profile {
                name: what.to_owned(),
                form: "TLP configuration",
                notes,
                ..Self::default()
            });
        }
        match lines().count() {
            1 => Ok(Self::of_cmdline(what, &text)),
            _ => Err(ProfileError::NoForm { path }),
        }
    }

    fn of_cmdline(name: &str, cmdline: &str) -> Self {
        let mut profile =
            Profile { name: name.to_owned(), form: "kernel command line", ..Self::default() };
        profile.add_parameters(name, cmdline);
        profile
    }

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
    let bytes = std::fs::File::open(path).and_then(|file| crate::root::read_whole(file, 1 << 20));
    Ok(String::from_utf8_lossy(&bytes.map_err(unreadable)?).into_owned())
}
