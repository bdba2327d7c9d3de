//! Removes cells that nobody needs.

use std::collections::HashSet;
use std::io::Write;
use std::process::ExitCode;

use idlewise_report::counted;
use serde_json::json;

use super::{Common, SCHEMA};
use crate::cells::cell_name;
use crate::error::Result;
use crate::screen;

#[derive(clap::Args)]
pub struct Prune {
    #[command(flatten)]
    common: Common,

    /// Also remove this version's cells that the manifest does not name; other manifests may need them
    #[arg(long)]
    unlisted: bool,

    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Prune {
    /// Removes files, and folders that become empty.
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.common.plan()?;
        let mut listed = None;
        if self.unlisted {
            let mut names = HashSet::new();
            let cells = plan.cells();
            for log in &plan.logs {
                // Without its hash, all of its cells would look superfluous.
                let sha256 = log.fetch(&plan.store)?.content.sha256;
                names.extend(cells.inputs(&sha256).iter().map(cell_name));
            }
            listed = Some(names);
        }
        let files = plan.store.superfluous(listed.as_ref())?;
        let byte_count: u64 = files.iter().map(|file| file.byte_count).sum();
        if !self.dry_run {
            plan.store.remove(&files)?;
        }
        let mut out = screen::stdout();
        if self.json {
            let document = json!({
                "removed_count": files.len(),
                "removed_byte_count": byte_count,
                "is_dry_run": self.dry_run,
            });
            out.json(SCHEMA, &document)?;
        } else {
            let words = if self.dry_run { "would be removed" } else { "removed" };
            writeln!(out, "{} {words}, {byte_count} bytes", counted(files.len(), "file"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
