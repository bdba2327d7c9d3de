//! `idlewise lab compare`: two saved measurements side by side.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::TextStyle;
use idlewise_report::compare::Comparison;
use idlewise_report::saved::{Saved, SavedSeries};
use serde_json::json;

use crate::error::{Failure, Result, did_you_mean};
use crate::input::read_text_at_most;
use crate::role::{BundleRole, Roles};
use crate::screen;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// The largest saved measurement that is read.
const BYTE_COUNT_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  # What MWAIT instead of HALT gains: percentiles, improvement and its interval
  sudo idlewise measure ipi --json > halt.json
  sudo idlewise measure ipi --json > mwait.json     # after a boot with another idle routine
  idlewise lab compare halt.json mwait.json

  # Seven runs of each, so that intervals include how runs differ
  idlewise lab compare a1.json b1.json --more-a a[2-7].json --more-b b[2-7].json

  # Two idle states of one measurement
  sudo idlewise measure timer --state POLL,C0.2 --json > timer.json
  idlewise lab compare timer.json timer.json --a POLL --b C0.2

  # Every figure, for a program
  idlewise lab compare halt.json mwait.json --csv

Exit status: 0, whichever is better; 2 if they cannot be compared.";

/// Compare two saved measurements, with intervals
///
/// A and B are what `idlewise measure ... --json` printed, both by the same command. Cases are compared
/// that both have; if they have none in common, those that leave no choice. The improvement is how many
/// times better B is, less one. Intervals (95 %) come from drawing the saved blocks of values again and
/// again, or whole runs where there are enough. Differences between the machines are listed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Compare {
    /// The first measurement, such as the one before a change
    #[arg(value_name = "A.json")]
    a: PathBuf,

    /// The second measurement; may be the same file, with --a and --b
    #[arg(value_name = "B.json")]
    b: PathBuf,

    /// More runs of A; with seven or more of each, intervals come from drawing whole runs
    #[arg(long, value_name = "FILE", num_args = 1..)]
    more_a: Vec<PathBuf>,

    /// More runs of B
    #[arg(long, value_name = "FILE", num_args = 1..)]
    more_b: Vec<PathBuf>,

    /// Take only this idle state, or way to wait, of A
    #[arg(long = "a", value_name = "NAME")]
    a_setting: Option<String>,

    /// Take only this idle state, or way to wait, of B
    #[arg(long = "b", value_name = "NAME")]
    b_setting: Option<String>,

    /// Print all percentiles, even if there are many figures
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    percentiles: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// Print a line for each statistic as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Its options in a bundle.
pub const ROLES: Roles = &[
    (BundleRole::Saved, &["a", "b", "more_a", "more_b"]),
    (BundleRole::Plain, &["a_setting", "b_setting"]),
    (BundleRole::InText, &["percentiles"]),
    (BundleRole::Form, &["json", "csv"]),
];

impl Compare {
    /// Compares and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        let a = read_all(&self.a, &self.more_a, self.a_setting.as_deref())?;
        let b = read_all(&self.b, &self.more_b, self.b_setting.as_deref())?;
        let comparison = Comparison::new(&a, &b).map_err(|error| {
            let [a, b] = [&self.a, &self.b].map(|path| screen::name(path));
            Failure::new(format_args!("{a} (A) and {b} (B): {error}"))
        })?;
        if self.json {
            let side = |path: &Path, saved: &Saved| {
                json!({
                    "file": path.to_string_lossy(),
                    "program": saved.program,
                    "date": saved.date,
                    "run_count": saved.run_count,
                })
            };
            let document = json!({
                "bases": comparison.notes().bases_json(),
                "measurement": a.measurement,
                "a": side(&self.a, &a),
                "b": side(&self.b, &b),
                "lines": comparison.table(""),
                "doubts": comparison.notes().counted_doubts(),
            });
            screen::stdout().json(SCHEMA, &document)?;
        } else if self.csv {
            write!(screen::stdout(), "{}", comparison.table("").to_csv())?;
            let width = TextStyle::for_stdout().width;
            write!(screen::stderr(), "{}", comparison.notes().to_text(width))?;
        } else {
            write!(
                screen::stdout(),
                "{}",
                comparison.to_text(&TextStyle::for_stdout(), self.percentiles)
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads all runs of a measurement.
fn read_all(first: &Path, more: &[PathBuf], setting: Option<&str>) -> Result<Saved> {
    let others: Vec<Saved> = more.iter().map(|path| read(path, setting)).collect::<Result<_>>()?;
    read(first, setting)?
        .joined(&others)
        .map_err(|error| Failure::new(format_args!("{} and more: {error}", screen::name(first))))
}

/// Reads a saved measurement.
pub fn read_saved(path: &Path) -> Result<Saved> {
    read(path, None)
}

/// Reads a measurement, or the part of it that is of one setting.
fn read(path: &Path, setting: Option<&str>) -> Result<Saved> {
    let fail = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {error}", screen::name(path)))
    };
    let text = read_text_at_most(path, BYTE_COUNT_MAX)?;
    let mut saved = Saved::from_json(&text).map_err(|error| fail(&error))?;
    let Some(setting) = setting else { return Ok(saved) };
    let is_it = |series: &SavedSeries| series.setting.eq_ignore_ascii_case(setting);
    if !saved.series.iter().any(is_it) {
        let mut names: Vec<&str> = saved.series.iter().map(|one| one.setting.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let hint =
            did_you_mean(setting, names.iter().copied(), &format!("it has {}", names.join(", ")));
        return Err(fail(&format!("nothing was measured of '{setting}'; {hint}")));
    }
    saved.series.retain(is_it);
    Ok(saved)
}
