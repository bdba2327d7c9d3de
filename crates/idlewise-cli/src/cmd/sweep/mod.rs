//! `idlewise lab sweep`: logs × machines × governors × settings, as cells that are computed once.
//!
//! | file | holds |
//! | --- | --- |
//! | `manifest.rs` | [`Manifest`]: the TOML file that says what to sweep |
//! | `logs.rs` | its logs: found, hashed, opened; `sweep plan`, which lists them in a table |
//! | `plan.rs` | [`Plan`]: the manifest with everything found and compiled; its cells |
//! | `run.rs` | computes what is missing |
//! | `status.rs` | says what is there, what is missing, and why |
//! | `collect.rs` | one table of all cells |
//!
//! `cells/` has what a cell is and where it is kept.

mod collect;
mod logs;
mod manifest;
mod plan;
mod run;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::Result;

/// The schema version of `--json`, of all but `collect`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Two recordings, all machines, three governors: this is the whole manifest
  cat > sweep.toml <<'END'
  logs = [\"server.parquet\", \"recordings/*.dat.xz\"]
  machines = [\"all\"]
  governors = [\"menu\", \"teo\", \"./mine.c\"]
  END

  # Compute what is missing; after ctrl-c, or with another governor in the manifest, the same again
  idlewise lab sweep sweep.toml

  # Parts of it, for an array job of Slurm or the matrix of a CI: look for the logs once
  idlewise lab sweep plan sweep.toml -o logs.parquet
  idlewise lab sweep sweep.toml --logs logs.parquet --shard $((SLURM_ARRAY_TASK_ID + 1))/16

  # Cells in a bucket, which many machines fill together
  idlewise lab sweep sweep.toml --store s3://bucket/cells

  # What is there, one table of it, and who wins
  idlewise lab sweep status sweep.toml
  idlewise lab sweep collect sweep.toml -o cells.parquet
  idlewise lab sweep collect sweep.toml --standings

Exit status: 0; 1 if cells failed (status: or are missing); 2 on bad input.";

/// Replay many logs on many machines, and keep each result
///
/// The manifest names logs, machines, governors, HZ and prices of delay. Each combination is a cell. Results are rows of
/// Parquet files, which DuckDB, Polars and Spark read, and each has the hash of everything that it depends on: the contents
/// of the log, of the machine and of a governor's file, and the settings. A cell that is there is not computed again, so a
/// sweep goes on where it was interrupted, several can share a folder, and another governor costs only its own cells.
/// Logs and results may be in buckets (s3://, gs://, az://), if idlewise was built with them. docs/sweep.md explains how,
/// the manifest and credentials.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "idlewise lab sweep [OPTIONS] <MANIFEST>\n       \
                      idlewise lab sweep plan|status|collect [OPTIONS] <MANIFEST>"
)]
pub struct Sweep {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    run: run::Run,
}

#[derive(clap::Subcommand)]
enum Action {
    Plan(logs::PlanLogs),
    /// Say how many cells are there, missing or failed, and why
    Status(status::Status),
    /// Make one table of all cells, or print who wins
    Collect(collect::Collect),
}

/// What all of them need.
#[derive(clap::Args)]
struct Common {
    /// What to sweep (TOML), a file or a URL
    #[arg(required = true)]
    manifest: Option<PathBuf>,

    /// Keep cells in this folder or bucket (s3://, gs://, az://) instead of the manifest's
    #[arg(long, value_name = "DIR|URL")]
    store: Option<PathBuf>,

    /// Take the logs from this table, which `idlewise lab sweep plan` has made, instead of looking for the manifest's
    #[arg(long, value_name = "FILE|URL")]
    logs: Option<PathBuf>,
}

impl Common {
    fn plan(&self) -> Result<plan::Plan> {
        let path = self.manifest.as_deref().expect("required unless there is a subcommand");
        plan::Plan::new(
            manifest::Manifest::read(path)?,
            self.logs.as_deref(),
            self.store.as_deref(),
        )
    }
}

impl Sweep {
    /// Computes what is missing, or what the subcommand says.
    pub fn run(self) -> Result<ExitCode> {
        match self.action {
            Some(Action::Plan(logs)) => logs.run(),
            Some(Action::Status(status)) => status.run(),
            Some(Action::Collect(collect)) => collect.run(),
            None => self.run.run(),
        }
    }
}
