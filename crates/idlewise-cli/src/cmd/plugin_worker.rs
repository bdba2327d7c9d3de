//! `idlewise plugin-worker`: not for users. idlewise starts itself this way to run a governor from
//! a file in a separate process (`idlewise-plugin`).

use std::process::ExitCode;

use crate::error::{Failure, Result};

/// Run a governor's file for the idlewise that started this one
#[derive(clap::Args)]
pub struct PluginWorker {
    /// Without confinement
    #[arg(long)]
    unconfined: bool,
}

impl PluginWorker {
    /// Serves requests until the parent closes the connection.
    pub fn run(self) -> Result<ExitCode> {
        idlewise_plugin::serve(!self.unconfined).map_err(|error| {
            Failure::new(format_args!("plugin-worker is started by idlewise itself: {error}"))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
