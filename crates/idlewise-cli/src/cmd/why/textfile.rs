//! The file of `idlewise why --textfile`. It replaces the last one when it is complete, and everybody may read it: the
//! collector runs as another user.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use idlewise_report::why::WhyReport;
use idlewise_trace::OutputFile;

use crate::error::{Failure, Result};
use crate::output;

const MODE: u32 = 0o644;

/// Starts the file.
pub(super) fn create(path: &Path) -> Result<OutputFile> {
    let file = output::create(path, true, &[])?;
    if file.is_file() {
        file.file().set_permissions(Permissions::from_mode(MODE)).map_err(|error| {
            Failure::new(format_args!("{}: cannot let others read it: {error}", path.display()))
        })?;
    }
    Ok(file)
}

/// Writes what was found.
pub(super) fn write(file: OutputFile, report: &WhyReport) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    output::write(file, report.to_textfile(now.as_secs_f64().floor()))
}
