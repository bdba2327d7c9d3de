//! Reads a file, whatever its form.

use std::path::PathBuf;

use idlewise_machine::nearest_name;

use super::tuned;
use super::wishes::{Profile, ProfileError, text};
use crate::Root;

impl Profile {
    /// Reads `tuned:NAME`, `cmdline` (the command line of the running kernel), or a file.
    ///
    /// # Errors
    /// Fails if it cannot be read, includes what cannot be read, or has no known form.
    pub fn read(root: &Root, what: &str) -> Result<Self, ProfileError> {
        if let Some(name) = what.strip_prefix("tuned:") {
            return tuned::named(root, name);
        }
        if what == "cmdline" {
            return Ok(Self::of_cmdline("/proc/cmdline", &text(&root.path("proc/cmdline"))?));
        }
        let path = PathBuf::from(what);
        let word = what.split(':').next().filter(|_| !path.exists()).unwrap_or_default();
        if let Some(meant) = nearest_name(word, ["cmdline", "tuned"]) {
            let meant = if meant == "tuned" { "tuned:NAME" } else { meant };
            return Err(ProfileError::NoFile { what: what.to_owned(), meant });
        }
        let text = text(&path)?;
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
            1 if !text.contains(is_no_text) => Ok(Self::of_cmdline(what, &text)),
            _ => Err(ProfileError::NoForm { path }),
        }
    }

    fn of_cmdline(name: &str, cmdline: &str) -> Self {
        let mut profile =
            Profile { name: name.to_owned(), form: "kernel command line", ..Self::default() };
        profile.add_parameters(name, cmdline);
        profile
    }
}

/// What no command line has: control characters, and bytes that were no text.
fn is_no_text(c: char) -> bool {
    c == char::REPLACEMENT_CHARACTER || c.is_control() && !c.is_whitespace()
}
