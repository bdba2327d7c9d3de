//! Pages about saved measurements.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::counted;
use idlewise_report::page::measured_page;
use idlewise_report::saved::Saved;
use serde_json::json;

use super::{Report, SCHEMA, provenance};
use crate::cmd::compare::read_saved;
use crate::error::{Failure, Result};
use crate::input::distinct_names;
use crate::output;
use crate::screen;

/// Reads the files if they are saved measurements; `None` if they are logs.
pub fn saved(paths: &[PathBuf]) -> Result<Option<Vec<(String, Saved)>>> {
    let (saved, logs): (Vec<&PathBuf>, Vec<&PathBuf>) =
        paths.iter().partition(|path| is_json(path));
    match (saved.first(), logs.first()) {
        (None, _) => return Ok(None),
        (Some(saved), Some(log)) => {
            let [saved, log] = [saved, log].map(|path| screen::name(path));
            return Err(Failure::new(format_args!(
                "{saved} is a saved measurement, and {log} is not; write a page of each kind"
            )));
        }
        (Some(_), None) => {}
    }
    let names = distinct_names(paths, &[]);
    let files = paths.iter().zip(names).map(|(path, name)| Ok((name, read_saved(path)?)));
    let files: Vec<(String, Saved)> = files.collect::<Result<_>>()?;
    let (first, rest) = files.split_first().expect("there is one");
    if let Some((name, other)) = rest.iter().find(|(_, one)| one.measurement != first.1.measurement)
    {
        return Err(Failure::new(format_args!(
            "{} is a measurement of {}, {name} one of {}; write a page for each",
            first.0, first.1.measurement, other.measurement
        )));
    }
    Ok(Some(files))
}

/// Whether a regular file begins as a JSON object does. No recording begins so.
fn is_json(path: &Path) -> bool {
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut start = Vec::new();
    let mut begins = || File::open(path)?.take(64).read_to_end(&mut start);
    is_file && begins().is_ok() && start.trim_ascii_start().starts_with(b"{")
}

impl Report {
    /// Writes the page of saved measurements.
    pub(super) fn write_measured(&self, files: &[(String, Saved)]) -> Result<ExitCode> {
        let inputs: Vec<&Path> = self.shared.logs.iter().map(PathBuf::as_path).collect();
        let file = output::create(self.page_path(), self.force, &inputs)?;
        let mut page = measured_page(files, &provenance::command_line());
        page.facts.program = provenance::PROGRAM.to_owned();
        let html = page.to_html();
        let byte_count = html.len();
        let report = output::report_of(&file);
        output::write(file, html)?;
        let mut out = report();
        if self.shared.json {
            let document = json!({
                "file": self.page_path().to_string_lossy(),
                "byte_count": byte_count,
                "logs": [],
                "verdicts": [],
                "failures": [],
            });
            out.json(SCHEMA, &document)?;
            return Ok(ExitCode::SUCCESS);
        }
        let charts = counted(page.facts.charts.len(), "chart");
        writeln!(out, "{}: {charts}, {byte_count} bytes", screen::name(self.page_path()))?;
        writeln!(out, "Next: open it in a browser")?;
        Ok(ExitCode::SUCCESS)
    }
}
