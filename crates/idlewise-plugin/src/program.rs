//! Programs of this machine.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Returns where a program is that this process may start by this name, after resolving links. Does not start it.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && may_access(path, Access::EXEC_OK);
    let found = match name.contains('/') {
        true => Some(PathBuf::from(name)).filter(is_program),
        false => {
            let path = env::var_os("PATH")?;
            env::split_paths(&path).map(|folder| folder.join(name)).find(is_program)
        }
    };
    found?.canonicalize().ok()
}

/// Whether this process may do this with a file or folder.
pub(crate) fn may_access(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS).is_ok()
}
