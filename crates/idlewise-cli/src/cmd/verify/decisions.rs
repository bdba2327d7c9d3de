//! `idlewise lab verify decisions`: checks that our ports of governors decide as the kernel did.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::{Hazard, Lambda, StateTable, tick_period_ns};
use idlewise_linux::{GOVERNORS, GovernorSpec};
use idlewise_sim::decision_log::{
    DecisionMismatch, DecisionReplay, DecisionTables, replay_decisions,
};
use liblzma::read::XzDecoder;
use serde_json::json;

use crate::error::{Failure, Result, did_you_mean};
use crate::governors::port;
use crate::input::open_stream;
use crate::screen::{self, Screen};

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # Every recorded decision of real kernels that comes with idlewise
  idlewise lab verify decisions conformance/decisions/*.csv.xz

  # The same log against another governor: where do they part?
  idlewise lab verify decisions --governor menu+min conformance/decisions/6.12-menu-spr-hz250.csv.xz

  # A log whose name says nothing
  idlewise lab verify decisions --governor teo-6.1 --table spr --hz 1000 --tables tables.csv my.csv

Exit status: 0 if all decisions agree, 1 if any differs, 2 if a file can't be used.";

const HAZARD: &str = "hazard";

/// The magic number of xz files.
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Compare our governors with the logged decisions of real kernels, row by row
///
/// A log is CSV, xz-compressed or not; conformance/decisions/README.md defines it. Its name,
/// <kernel>-<governor>-<table>-hz<HZ>, gives the governor, the table and HZ unless flags do.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Decisions {
    /// Decision logs
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Governor to compare with, such as teo-6.1, menu for 6.12's, or hazard at the price of 1/4 [default: from the
    /// file name]
    #[arg(long, value_name = "NAME")]
    governor: Option<String>,

    /// State table's name in the tables file [default: from the file name]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// File of state tables [default: tables.csv beside each log]
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,

    /// Ticks per second of the kernel that was logged (CONFIG_HZ) [default: from the file name]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hz: Option<u32>,

    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The parts of a file's name that could be recognised.
#[derive(Debug, Default, PartialEq, Eq)]
struct LogName<'a> {
    governor: Option<&'static str>,
    table: Option<&'a str>,
    hz: Option<u32>,
}

/// The result of a file.
struct Verified {
    file: String,
    governor: &'static str,
    /// The kernel that it is ported from.
    release: Option<&'static str>,
    table: String,
    hz: u32,
    replay: DecisionReplay,
}

impl Decisions {
    /// Verifies every file, then prints the results.
    pub fn run(self) -> Result<ExitCode> {
        let mut known_tables = HashMap::new();
        let verified: Vec<Verified> = self
            .files
            .iter()
            .map(|file| self.verify(file, &mut known_tables))
            .collect::<Result<_, _>>()?;
        let mut output = screen::stdout();
        if self.json {
            write_json(&mut output, &verified)?;
        } else {
            write_table(&mut output, &verified)?;
        }
        output.flush()?;
        let agree = verified.iter().all(|file| file.replay.mismatch_count == 0);
        Ok(if agree { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }

    fn verify(
        &self,
        path: &Path,
        known_tables: &mut HashMap<PathBuf, DecisionTables>,
    ) -> Result<Verified> {
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let from_name = log_name(&file_name);
        let lacks = |what: &str, flag: &str| {
            Failure::new(format_args!(
                "{}: the file's name does not tell the {what}; name it \
                 <kernel>-<governor>-<table>-hz<HZ>.csv or pass {flag}",
                path.display()
            ))
        };
        let governor = self.governor.as_deref().or(from_name.governor);
        let governor = governor.ok_or_else(|| lacks("governor", "--governor NAME"))?;
        // Of our own governors, only this one runs in a kernel.
        let spec = if governor == HAZARD { None } else { Some(port(governor)?) };
        let table = self.table.as_deref().or(from_name.table);
        let table = table.ok_or_else(|| lacks("state table", "--table NAME"))?;
        let hz = self.hz.or(from_name.hz).ok_or_else(|| lacks("HZ", "--hz N"))?;

        let tables_path = self.tables.clone().unwrap_or_else(|| path.with_file_name("tables.csv"));
        if !known_tables.contains_key(&tables_path) {
            known_tables.insert(tables_path.clone(), read_tables(&tables_path)?);
        }
        let states = find_table(&known_tables[&tables_path], table, &tables_path)?;
        let log = open(path)?;
        let replay = match spec {
            Some(spec) => replay_decisions(log, states, &mut spec.build(tick_period_ns(hz))),
            None => replay_decisions(log, states, &mut Hazard::new(Lambda::QUARTER)),
        };
        let replay =
            replay.map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
        Ok(Verified {
            file: path.display().to_string(),
            governor: spec.map_or(HAZARD, |spec| spec.id),
            release: spec.map(|spec| spec.release),
            table: table.to_owned(),
            hz,
            replay,
        })
    }
}

/// Splits a log's name. Names of governors and tables may contain `-` and `+`, so the longest known
/// governor matches, and HZ follows the first `-hz` that is followed by digits.
fn log_name(file_name: &str) -> LogName<'_> {
    let with_hz = file_name.match_indices("-hz").find_map(|(at, separator)| {
        let rest = &file_name[at + separator.len()..];
        let digit_count = rest.bytes().take_while(u8::is_ascii_digit).count();
        // HZ cannot be zero or very large.
        let hz = rest[..digit_count].parse().ok().filter(|hz| (1..=1_000_000).contains(hz))?;
        Some((at, hz))
    });
    let stem = with_hz.map_or(file_name, |(at, _)| &file_name[..at]);
    let hz = with_hz.map(|(_, hz)| hz);
    let mut best: Option<(&GovernorSpec, &str)> = None;
    for spec in GOVERNORS {
        let rest = stem
            .strip_prefix(spec.series)
            .and_then(|rest| rest.strip_prefix('-'))
            .and_then(|rest| rest.strip_prefix(spec.name))
            .and_then(|rest| rest.strip_prefix('-'));
        if let Some(rest) = rest
            && best.is_none_or(|(found, _)| spec.name.len() > found.name.len())
        {
            best = Some((spec, rest));
        }
    }
    // Without HZ the end of the table's name is unknown.
    let table = best.map(|(_, rest)| rest).filter(|rest| hz.is_some() && !rest.is_empty());
    LogName { governor: best.map(|(spec, _)| spec.id), table, hz }
}

fn find_table<'a>(tables: &'a DecisionTables, name: &str, path: &Path) -> Result<&'a StateTable> {
    tables.get(name).ok_or_else(|| {
        let otherwise = format!("it has {}", tables.names().collect::<Vec<_>>().join(", "));
        let hint = did_you_mean(name, tables.names(), &otherwise);
        Failure::new(format_args!("{}: no table '{name}'; {hint}", path.display()))
    })
}

fn read_tables(path: &Path) -> Result<DecisionTables> {
    let file = open_stream(path)
        .map_err(|failure| failure.with("pass the state tables by --tables FILE"))?;
    DecisionTables::read(BufReader::new(file))
        .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
}

/// Opens a log. Its first bytes tell whether it is compressed.
fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let failed =
        |error: io::Error| Failure::new(format_args!("{}: cannot open: {error}", path.display()));
    let mut file = BufReader::new(open_stream(path)?);
    let is_xz = file.fill_buf().map_err(failed)?.starts_with(&XZ_MAGIC);
    Ok(if is_xz {
        Box::new(BufReader::new(XzDecoder::new_multi_decoder(file)))
    } else {
        Box::new(file)
    })
}

fn write_table(output: &mut impl Write, verified: &[Verified]) -> io::Result<()> {
    let heading = ["file", "governor", "table", "HZ", "rows", "mismatches"].map(String::from);
    let rows = verified.iter().map(|file| {
        let Verified { file, governor, table, hz, replay, .. } = file;
        [
            file.clone(),
            (*governor).to_owned(),
            table.clone(),
            hz.to_string(),
            replay.row_count.to_string(),
            replay.mismatch_count.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for [file, governor, table, hz, row_count, mismatch_count] in &rows {
        let [w0, w1, w2, w3, w4, w5] = widths;
        writeln!(
            output,
            "{file:w0$}  {governor:w1$}  {table:w2$}  {hz:>w3$}  {row_count:>w4$}  \
             {mismatch_count:>w5$}"
        )?;
    }
    for file in verified {
        if let Some(mismatch) = &file.replay.first_mismatch {
            write_mismatch(output, file, mismatch)?;
        }
    }
    Ok(())
}

fn write_mismatch(
    output: &mut impl Write,
    file: &Verified,
    mismatch: &DecisionMismatch,
) -> io::Result<()> {
    let DecisionMismatch { row, line, inputs, logged, replayed } = mismatch;
    writeln!(output, "\n{}: first mismatch in row {row} (line {line})", file.file)?;
    writeln!(output, "  inputs")?;
    for (column, value) in inputs {
        writeln!(output, "    {column:<20}  {value:>20}")?;
    }
    writeln!(output, "  {:<22}  {:>20}  {:>20}", "answers", "log", file.governor)?;
    for ((column, logged), (_, replayed)) in logged.columns().into_iter().zip(replayed.columns()) {
        let mark = if logged == replayed { "" } else { "  differs" };
        writeln!(output, "    {column:<20}  {logged:>20}  {replayed:>20}{mark}")?;
    }
    Ok(())
}

fn write_json(output: &mut Screen, verified: &[Verified]) -> io::Result<()> {
    let object = |columns: &[(&'static str, i128)]| {
        let values = columns.iter().map(|&(column, value)| {
            // Every column fits one of the two types, and JSON numbers can hold both.
            let number = i64::try_from(value).map(|value| json!(value));
            (column.to_owned(), number.unwrap_or_else(|_| json!(value as u64)))
        });
        values.collect::<serde_json::Map<_, _>>()
    };
    let files: Vec<_> = verified
        .iter()
        .map(|file| {
            let first_mismatch = file.replay.first_mismatch.as_ref().map(|mismatch| {
                json!({
                    "row": mismatch.row,
                    "line": mismatch.line,
                    "inputs": object(&mismatch.inputs),
                    "logged": object(&mismatch.logged.columns()),
                    "replayed": object(&mismatch.replayed.columns()),
                })
            });
            json!({
                "file": file.file,
                "governor": file.governor,
                "release": file.release,
                "table": file.table,
                "hz": file.hz,
                "row_count": file.replay.row_count,
                "mismatch_count": file.replay.mismatch_count,
                "first_mismatch": first_mismatch,
            })
        })
        .collect();
    output.json(SCHEMA, &json!({ "files": files }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(name: &str) -> (Option<&'static str>, Option<&str>, Option<u32>) {
        let LogName { governor, table, hz } = log_name(name);
        (governor, table, hz)
    }

    #[test]
    fn takes_names_apart_at_the_longest_governor() {
        let spr = (Some("menu-6.12+safe-range"), Some("spr"), Some(250));
        assert_eq!(parts("6.12-menu+safe-range-spr-hz250.csv.xz"), spr);
        let ladder = (Some("ladder-6.1"), Some("skl-client"), Some(1000));
        assert_eq!(parts("6.1-ladder-skl-client-hz1000-seed7.csv"), ladder);
        let odd_table = (Some("teo-6.12"), Some("a-hz-b"), Some(300));
        assert_eq!(parts("6.12-teo-a-hz-b-hz300.csv"), odd_table);
    }

    #[test]
    fn leaves_open_what_a_name_does_not_tell() {
        assert_eq!(parts("my.csv"), (None, None, None));
        assert_eq!(parts("5.10-menu-spr-hz100.csv"), (None, None, Some(100)));
        assert_eq!(parts("6.1-menu-spr.csv"), (Some("menu-6.1"), None, None));
        assert_eq!(parts("6.1-menu-spr-hz0.csv").2, None);
    }

    #[test]
    fn suggests_only_what_is_near() {
        let hint = |name| did_you_mean(name, GOVERNORS.iter().map(|spec| spec.id), "none");
        assert_eq!(hint("menu-6.21"), "did you mean 'menu-6.12'?");
        assert_eq!(hint("xyzzy"), "none");
    }
}
