//! The machine that a command looks at: this one, or a captured one below a folder.

use std::path::Path;

use idlewise_host::Root;

use crate::error::{Failure, Result};
use crate::screen;

/// Returns this machine, or the one below the folder that `--sysroot` names.
pub fn root(sysroot: Option<&Path>) -> Result<Root> {
    match sysroot {
        None => Ok(Root::live()),
        Some(folder) if folder.is_dir() => Ok(Root::at(folder)),
        Some(folder) => Err(Failure::new(format_args!(
            "{} is not a folder; name the one that contains the machine's proc and sys",
            screen::name(folder)
        ))),
    }
}
