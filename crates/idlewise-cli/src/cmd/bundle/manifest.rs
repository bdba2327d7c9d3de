//! `bundle.json`: what a bundle says about itself.

use std::fs::File;
use std::path::Path;

use idlewise_lab::bundle::{BundlePath, Unpacked};
use idlewise_trace::read_small_text_of;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, Result};

/// The name of the file.
pub const MANIFEST: &str = "bundle.json";

/// The number of the bundle's form: which files there are, and what is in this one.
pub const FORM: u32 = 1;

/// The largest that is read. A bundle's 4,096 files need less than 2 MiB.
pub const BYTE_COUNT_MAX: u64 = 4 << 20;

/// The longest command. It can name each of a bundle's files with an option.
const WORD_COUNT_MAX: usize = 10_000;

/// What is read first, because the rest depends on it.
#[derive(Deserialize)]
struct Formed {
    form: Option<u64>,
}

/// What a bundle says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub form: u32,
    /// idlewise's version and commit.
    pub version: String,
    pub commit: Option<String>,
    /// The command's words, without the program's name. Paths are relative to the bundle's folder.
    pub command: Vec<String>,
    pub outputs: Vec<OutputNote>,
    pub logs: Vec<LogNote>,
    /// The machines' tables.
    pub machines: Vec<MachineNote>,
    /// Whether the user wanted everything in it.
    pub is_private: bool,
    /// What was removed, in words.
    pub dropped: Vec<String>,
    /// What could still identify a machine or a workload, in words.
    pub remains: Vec<String>,
}

/// An output of the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutputNote {
    pub path: String,
    /// The command's exit status.
    pub status: i32,
}

/// A log, and the kernel that it was recorded on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogNote {
    pub path: String,
    /// A workload log has steps and no gaps.
    pub gap_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_count: Option<u64>,
    pub kernel: Option<String>,
    pub hz: Option<u32>,
    /// The fields that were removed from it.
    pub dropped: Vec<String>,
}

/// A machine's table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MachineNote {
    /// As the command names it.
    pub name: String,
    pub path: String,
}

impl Manifest {
    /// Reads it from an unpacked bundle.
    ///
    /// # Errors
    /// Fails if it is missing, is not one, or if this version does not know its form.
    pub fn read(folder: &Path, files: &[Unpacked]) -> Result<Self> {
        if !files.iter().any(|file| file.path.as_str() == MANIFEST) {
            return Err(Failure::new(format_args!("it has no {MANIFEST}")));
        }
        let fail =
            |error: &dyn std::fmt::Display| Failure::new(format_args!("{MANIFEST}: {error}"));
        let text = File::open(folder.join(MANIFEST))
            .and_then(|file| read_small_text_of(file, BYTE_COUNT_MAX))
            .map_err(|error| fail(&error))?;
        Self::parse(&text)
    }

    /// Parses it.
    ///
    /// # Errors
    /// Like [`Manifest::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let fail =
            |error: &dyn std::fmt::Display| Failure::new(format_args!("{MANIFEST}: {error}"));
        let Formed { form } = serde_json::from_str(text).map_err(|error| fail(&error))?;
        match form {
            Some(form) if form == u64::from(FORM) => {}
            Some(form) => {
                let message = format!(
                    "the bundle has form {form}, and this idlewise knows form {FORM}; use the version \
                     that made it"
                );
                return Err(fail(&message));
            }
            None => return Err(fail(&"it does not say which form it has")),
        }
        let manifest: Self = serde_json::from_str(text).map_err(|error| fail(&error))?;
        match manifest.command.len() > WORD_COUNT_MAX {
            true => Err(fail(&format_args!("its command has more than {WORD_COUNT_MAX} words"))),
            false => Ok(manifest),
        }
    }

    /// Returns the exit status with which an output was made.
    pub fn status_of(&self, path: &BundlePath) -> Option<i32> {
        let mut outputs = self.outputs.iter();
        outputs.find(|output| output.path == path.as_str()).map(|output| output.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a bundle of a few kilobytes takes a gigabyte of memory.
    #[test]
    fn a_command_has_a_largest_number_of_words() {
        let with = |word_count: usize| {
            let words = vec!["a"; word_count];
            Manifest::parse(&format!(
                "{{\"form\":1,\"version\":\"\",\"commit\":null,\"command\":{words:?},\"outputs\":[],\"logs\":[],\
                 \"machines\":[],\"is_private\":false,\"dropped\":[],\"remains\":[]}}"
            ))
        };
        assert_eq!(with(WORD_COUNT_MAX).unwrap().command.len(), WORD_COUNT_MAX);
        let message = with(WORD_COUNT_MAX + 1).unwrap_err().text();
        assert_eq!(message, "bundle.json: its command has more than 10000 words");
        assert!(Manifest::parse("{}").unwrap_err().text().contains("does not say which form"));
        assert!(Manifest::parse("{\"form\":2}").unwrap_err().text().contains("has form 2"));
    }
}
