//! `idlewise governors`: everything that `--governor` takes.

use std::io::Write;
use std::process::ExitCode;

use idlewise_report::{TextStyle, wrap};
use serde_json::{Value, json};

use crate::error::Result;
use crate::governors::groups;
use crate::screen;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// The column where meanings begin.
const INDENT: usize = 24;

const EXAMPLES: &str = "\
Examples:
  # All of them
  idlewise governors

  # For programs
  idlewise governors --json

Exit status: 0.";

/// List the governors that `replay` can use, and simple rules as baselines
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Governors {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What a role is.
fn title(role: &str) -> &'static str {
    match role {
        "governor" => "Governors; a name without a version is that of Linux 6.12",
        "bound" => "Simple rules, for comparison",
        "oracle" => "The optimum (only for replays; predict and lab simulate cannot know it)",
        "rival" => {
            "Rivals, for replay, replay --rank and lab sweep: published rules that move down while a CPU is idle"
        }
        _ => "Your own",
    }
}

impl Governors {
    /// Prints the list.
    pub fn run(self) -> Result<ExitCode> {
        let mut out = screen::stdout();
        if self.json {
            let row = |role: &str, (name, meaning)| json!({"name": name, "role": role, "meaning": meaning});
            let groups = groups().into_iter();
            let rows =
                groups.flat_map(|(role, rows)| rows.into_iter().map(move |it| row(role, it)));
            out.json(SCHEMA, &json!({"governors": rows.collect::<Vec<Value>>()}))?;
            return Ok(ExitCode::SUCCESS);
        }
        let all = TextStyle::for_stdout().width;
        let width = all.saturating_sub(INDENT).max(30);
        for (role, rows) in groups() {
            writeln!(out, "{}:", wrap(title(role), all.saturating_sub(1), 0))?;
            for (name, meaning) in rows {
                // `wrap` cannot start the first line at another column, so it wraps without the name.
                let meaning = wrap(meaning, width, 0).replace('\n', &format!("\n{:INDENT$}", ""));
                writeln!(out, "  {name:21} {meaning}")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
