//! `idlewise lab study`: published claims confronted with the simulated machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::Governor;
use idlewise_linux::resolve;
use idlewise_report::TextStyle;
use idlewise_study::{self as study, Given, Page, STUDIES, Shelf};
use idlewise_trace::OutputFile;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::cmd::report::provenance::{PROGRAM, command_line};
use crate::error::{Failure, Result, did_you_mean, keys_and_values};
use crate::output;
use crate::role::{BundleRole, OUTPUT, Roles};
use crate::screen;
use crate::threads;

/// The number of the shape of `--json`.
const SCHEMA: u32 = 2;

const EXAMPLES: &str = "\
Examples:
  # All five
  idlewise lab study

  # One of them, for a program
  idlewise lab study menu-min --json

  # What one of its inputs decides: list the inputs, then set some
  idlewise lab study menu-min --inputs
  idlewise lab study menu-min --set hz=100 --set package_share=0.75

  # A value that is not a guess: what is set with a source counts as known
  idlewise lab study menu-min --set hz=100 --source 'hz=CONFIG_HZ of the machine'

  # The same with charts, as a page to look at
  idlewise lab study menu-min --report menu-min.html

  # The pages of docs/studies
  idlewise lab study --pages docs/studies --force

Exit status: 0, or 2 on bad input.";

/// Check five published claims about CPU idling on a simulated machine
///
/// A study prints the claim, the published figures beside ours, a judgement, and the source of every
/// input. It runs again with other plausible inputs to find out which of them decide a figure; the
/// label of each figure (predicted, simulated) follows from that. The studies are amd-mwait,
/// menu-min, ipi-less, c02 and promotion.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Study {
    /// The study to run [default: all]
    name: Option<String>,

    /// Set an input of the study to another value; may be repeated
    ///
    /// Without --source the value is a guess: the input is still varied, and no figure gets a better
    /// label.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "name")]
    changes: Vec<String>,

    /// Say where the value that --set gives an input is documented; may be repeated
    ///
    /// The input counts as known: it is not varied, and the labels follow from the others. The text
    /// is printed with the result.
    #[arg(long = "source", value_name = "KEY=TEXT", requires = "changes")]
    sources: Vec<String>,

    /// List the inputs that --set takes, with their plausible values and origins
    #[arg(long, requires = "name", conflicts_with_all = ["changes", "pages", "report"])]
    inputs: bool,

    /// Write each study as a page with plots into this folder
    #[arg(long, value_name = "FOLDER", group = "written", conflicts_with_all = ["json", "changes"])]
    pages: Option<PathBuf>,

    /// Write the studies with charts into one HTML page, as `idlewise report` does
    #[arg(long, value_name = "FILE", group = "written", conflicts_with = "json")]
    report: Option<PathBuf>,

    /// Replace pages that exist
    #[arg(long, requires = "written")]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Its options in a bundle.
pub const ROLES: Roles = &[
    (BundleRole::Plain, &["name", "changes", "sources", "inputs"]),
    (OUTPUT, &["pages", "report", "force"]),
    (BundleRole::Form, &["json"]),
];

impl Study {
    /// Runs what was asked for and prints it.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        let studies: Vec<&study::Study> = match &self.name {
            None => STUDIES.to_vec(),
            Some(name) => {
                vec![STUDIES.iter().copied().find(|study| study.name == name).ok_or_else(|| {
                    let known = STUDIES.iter().map(|study| study.name);
                    let hint = did_you_mean(name, known, "`idlewise lab study --help` lists them");
                    Failure::new(format_args!("no study '{name}'; {hint}"))
                })?]
            }
        };
        let mut out = screen::stdout();
        let style = TextStyle::for_stdout();
        if self.inputs {
            if self.json {
                let studies = studies.iter().map(
                    |study| json!({ "study": study.name, "inputs": study::inputs_to_json(study) }),
                );
                out.json(SCHEMA, &json!({ "studies": studies.collect::<Vec<_>>() }))?;
            } else {
                let texts = studies.iter().map(|study| study::inputs_to_text(study, &style));
                out.write_all(texts.collect::<Vec<_>>().join("\n").as_bytes())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let given = match studies[..] {
            [study] => {
                let changes = changes(study, &self.changes)?;
                Given { sources: sources(&changes, &self.sources)?, changes }
            }
            _ => Given::default(),
        };
        // Before a minute of simulating, not after.
        let files = match &self.pages {
            Some(folder) => start_pages(folder, &studies, self.force)?,
            None => Vec::new(),
        };
        let report =
            self.report.as_deref().map(|path| output::create(path, self.force, &[])).transpose()?;
        let shelf = Shelf::new(&governor);
        let pages: Vec<Page> = studies
            .par_iter()
            .map(|study| study.run(&shelf, &given).map_err(Failure::new))
            .collect::<Result<_, _>>()?;
        let results = || studies.iter().zip(&pages);
        if let Some(file) = report {
            let mut page =
                study::to_html_page(results().map(|(study, page)| (*study, page)), &command_line());
            page.facts.program = PROGRAM.to_owned();
            let html = page.to_html();
            drop(out);
            let (name, report) = (screen::name(file.path()), output::report_of(&file));
            let byte_count = html.len();
            output::write(file, html)?;
            writeln!(report(), "{name}: {byte_count} bytes\nNext: open it in a browser")?;
        } else if let Some(folder) = &self.pages {
            for ((study, page), [text, plot, tornado]) in results().zip(files) {
                output::write(text, study::to_markdown(study, page))?;
                output::write(plot, study::to_svg(page))?;
                if let Some(svg) = study::to_tornado(page) {
                    output::write(tornado, svg)?;
                }
                writeln!(out, "{}", screen::name(&folder.join(format!("{}.md", study.name))))?;
            }
        } else if self.json {
            let studies: Vec<Value> =
                results().map(|(study, page)| study::to_json(study, page)).collect();
            out.json(SCHEMA, &json!({ "studies": studies }))?;
        } else {
            let texts: Vec<String> =
                results().map(|(study, page)| study::to_text(study, page, &style)).collect();
            out.write_all(texts.join("\n\n").as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn governor(id: &str, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
    Some(resolve(id)?.boxed(tick_period_ns))
}

/// Inputs that the user set, each `KEY=VALUE`.
fn changes(study: &study::Study, texts: &[String]) -> Result<Vec<(&'static str, f64)>> {
    let list = format!("`idlewise lab study {} --inputs` lists them", study.name);
    let read = |(key, value): (&str, &str)| {
        let text = format!("{key}={value}");
        let Some(input) = study.inputs.iter().find(|input| input.key == key) else {
            let hint = did_you_mean(key, study.inputs.iter().map(|input| input.key), &list);
            return Err(Failure::new(format_args!("--set {text}: no input '{key}'; {hint}")));
        };
        let allowed = input.allowed();
        let fits =
            |value: &f64| allowed.contains(value) && !(input.is_whole() && value.fract() != 0.0);
        value.parse().ok().filter(fits).map(|value| (input.key, value)).ok_or_else(|| {
            Failure::new(format_args!(
                "--set {text}: expected a {}number from {} to {}{}{}",
                if input.is_whole() { "whole " } else { "" },
                allowed.start(),
                allowed.end(),
                if input.unit.is_empty() { "" } else { " " },
                input.unit
            ))
        })
    };
    keys_and_values(texts, &format!("; {list}"))?.into_iter().map(read).collect()
}

/// Sources of inputs that the user set, each `KEY=TEXT`.
fn sources(
    changes: &[(&'static str, f64)],
    texts: &[String],
) -> Result<Vec<(&'static str, String)>> {
    let read = |text: &String| {
        let Some((key, source)) =
            text.split_once('=').filter(|(_, source)| source.contains(char::is_alphanumeric))
        else {
            return Err(Failure::new(format_args!(
                "--source {text}: expected KEY=TEXT, such as 'hz=CONFIG_HZ of the machine'"
            )));
        };
        let Some((key, _)) = changes.iter().find(|(set, _)| *set == key) else {
            let known = changes.iter().map(|(set, _)| *set);
            let hint =
                did_you_mean(key, known, "a source is for an input that --set gives a value");
            return Err(Failure::new(format_args!(
                "--source {text}: no --set {key}=VALUE; {hint}"
            )));
        };
        Ok((*key, source.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    let sources: Vec<(&'static str, String)> = texts.iter().map(read).collect::<Result<_>>()?;
    let keys = sources.iter().map(|(key, _)| *key);
    match keys.enumerate().find(|(index, key)| sources[..*index].iter().any(|(set, _)| set == key))
    {
        Some((_, key)) => Err(Failure::new(format_args!("--source {key}: given twice"))),
        None => Ok(sources),
    }
}

/// The page and the plots of each study.
fn start_pages(
    folder: &Path,
    studies: &[&study::Study],
    force: bool,
) -> Result<Vec<[OutputFile; 3]>> {
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{}: the folder does not exist; make it, or name another",
            folder.display()
        )));
    }
    let start = |study: &study::Study, ending: &str| {
        output::create(&folder.join(format!("{}{ending}", study.name)), force, &[])
    };
    let files = |study: &&study::Study| {
        Ok([start(study, ".md")?, start(study, ".svg")?, start(study, "-tornado.svg")?])
    };
    studies.iter().map(files).collect()
}
