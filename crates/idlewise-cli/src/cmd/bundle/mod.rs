//! `idlewise log bundle`: a result, and everything needed to reproduce it, in one file.
//!
//! | file | holds |
//! | --- | --- |
//! | `line.rs` | [`Line`]: the bundled command, and which options it may have |
//! | `create.rs` | makes a bundle |
//! | `shelf.rs` | the files that go into it, under names that reveal nothing |
//! | `inputs.rs` | puts the command's inputs there, with anonymized logs |
//! | `verify.rs` | checks a bundle, and runs its command again |
//! | `list.rs` | shows what a bundle holds, without running anything |
//! | `manifest.rs` | `bundle.json` |
//! | `outputs.rs` | the command's outputs, one file for each form |
//!
//! The command runs in the bundle's folder, with paths relative to it, when the bundle is made and when it is
//! verified. So its outputs contain no path of anybody's machine, and are the same everywhere.
//! `idlewise_lab::bundle` has the container, and what makes it safe to read.

mod create;
mod inputs;
mod line;
mod list;
mod manifest;
mod outputs;
mod shelf;
mod verify;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::cmd::Definition;
use crate::error::Result;

/// The schema version of `--json`, of all three.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # A replay of a recording of yours, as proof for a mail
  idlewise log bundle -o evidence.tar.zst -- replay perf.data --machine spr

  # A patch for menu, with the kernel's headers that it needs
  idlewise log bundle -o patch.tar.zst -- replay --compare perf.data --kernel-source ~/linux \\
      --governor menu.c --governor menu.c --patch my.patch

  # Somebody else's: look into it, then run it again and compare every byte
  idlewise log bundle list evidence.tar.zst
  idlewise log bundle verify evidence.tar.zst

  # It has C files: they are compiled, and run confined
  idlewise log bundle verify patch.tar.zst --allow-code

  # Two saved measurements, which name the machine, its kernel and its settings
  idlewise log bundle -o waking.tar.zst --keep-private -- lab compare halt.json mwait.json

Exit status: 0; for `verify`: 0 if all is the same, 1 if something differs, 2 if it can't be \
verified.";

/// Pack a result with everything needed to reproduce it, or verify such a file
///
/// Runs replay (with --compare or --rank, too), predict, measure, or lab simulate, study or compare, and writes one file with the exact command, the
/// version and commit of idlewise, machine tables, logs, patches, C files and their headers, the outputs as
/// text, JSON and CSV, and SHA-256 sums of all that. Logs are anonymized (see `idlewise log anonymize`); what was
/// dropped is printed. The same inputs always give the same bytes.
#[derive(clap::Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "idlewise log bundle [OPTIONS] --output <BUNDLE> -- <COMMAND>...\n       \
                      idlewise log bundle verify|list <BUNDLE>"
)]
pub struct Bundle {
    #[command(subcommand)]
    action: Option<Action>,

    #[command(flatten)]
    create: Create,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Check a bundle, run its command again, and compare each byte of the outputs
    Verify(verify::Verify),
    /// Show what a bundle holds; nothing in it is run or believed
    List(list::List),
}

#[derive(clap::Args)]
struct Create {
    /// The bundle to write, such as evidence.tar.zst
    #[arg(short, long, value_name = "BUNDLE", required = true)]
    output: Option<PathBuf>,

    /// Replace the bundle if it exists
    #[arg(long)]
    force: bool,

    /// Keep this field of logs: command, source, kernel, cpu-model, machine, time, doubts or tasks; may be
    /// repeated
    #[arg(long, value_name = "FIELD", conflicts_with = "keep_private")]
    keep: Vec<String>,

    /// Keep everything in logs; needed for measurements, which name the machine, its kernel and its settings
    #[arg(long)]
    keep_private: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// The command that makes the result, without the program's name
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Bundle {
    /// Makes, verifies or lists a bundle.
    pub fn run(self, definition: Definition) -> Result<ExitCode> {
        match self.action {
            Some(Action::Verify(verify)) => verify.run(definition),
            Some(Action::List(list)) => list.run(),
            None => self.create.run(definition),
        }
    }
}
