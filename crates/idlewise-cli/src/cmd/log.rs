//! `idlewise log`: what one does with a log's file.

use std::process::ExitCode;

use super::{Definition, anonymize, bundle, export, import, validate};
use crate::error::Result;

/// Convert, check, anonymize and share recordings
#[derive(clap::Args)]
pub struct Log {
    #[command(subcommand)]
    pub what: What,
}

#[derive(clap::Subcommand)]
pub enum What {
    Import(import::Import),
    Export(export::Export),
    Anonymize(anonymize::Anonymize),
    Bundle(bundle::Bundle),
    Validate(validate::Validate),
}

impl Log {
    /// Runs the subcommand.
    pub fn run(self, definition: Definition) -> Result<ExitCode> {
        match self.what {
            What::Import(import) => import.run(),
            What::Export(export) => export.run(),
            What::Anonymize(anonymize) => anonymize.run(),
            What::Bundle(bundle) => bundle.run(definition),
            What::Validate(validate) => validate.run(),
        }
    }
}
