//! `idlewise study`: published claims confronted with the simulated machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::Governor;
use idlewise_linux::resolve;
use idlewise_report::{TextStyle, study};
use idlewise_sim::Machine;
use idlewise_sim::study::{STUDIES, Shelf, Study as Outcome, StudySpec};
use rayon::prelude::*;
use serde_json::Value;

use crate::bundled;
use crate::error::{Failure, nearest};
use crate::output::write_text;
use crate::screen;
use crate::threads;

const EXAMPLES: &str = "\
Examples:
  # All five
  idlewise study

  # One of them, for a program
  idlewise study menu-min --json

  # The pages of docs/studies
  idlewise study --pages docs/studies --force

Exit status: 0, or 2 on bad input.";

/// Confront five published claims about CPU idling with a simulated machine
///
/// Each study prints the claim, the published figures beside ours, where every input is from, what
/// follows from the model alone, how it depends on what had to be assumed, and a judgement. Studies:
/// amd-mwait, menu-min, ipi-less, c02, promotion.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Study {
    /// The study [default: all]
    name: Option<String>,

    /// Write a page with a plot for each study into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
    pages: Option<PathBuf>,

    /// Replace pages that exist
    #[arg(long, requires = "pages")]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Study {
    /// Runs what was asked for and prints it.
    pub fn run(self) -> Result<ExitCode, Failure> {
        threads::start();
        let specs: Vec<&StudySpec> = match &self.name {
            None => STUDIES.iter().collect(),
            Some(name) => vec![STUDIES.iter().find(|spec| spec.name == name).ok_or_else(|| {
                let hint = match nearest(name, STUDIES.iter().map(|spec| spec.name)) {
                    Some(nearest) => format!("did you mean '{nearest}'?"),
                    None => "`idlewise study --help` lists them".to_owned(),
                };
                Failure::new(format_args!("no study '{name}'; {hint}"))
            })?],
        };
        if let Some(folder) = &self.pages {
            // Before a minute of simulating, not after.
            check_pages(folder, &specs, self.force)?;
        }
        let shelf = Shelf { machine: &machine, governor: &governor };
        let outcomes: Vec<Outcome> = specs
            .par_iter()
            .map(|spec| spec.run(&shelf).map_err(Failure::new))
            .collect::<Result<_, _>>()?;
        let mut out = screen::stdout();
        if let Some(folder) = &self.pages {
            for outcome in &outcomes {
                let markdown = study::to_markdown(outcome);
                write_text(&folder.join(format!("{}.md", outcome.name)), &markdown)?;
                let svg = study::to_svg(&outcome.plot);
                write_text(&folder.join(format!("{}.svg", outcome.name)), &svg)?;
                writeln!(out, "{}", screen::name(&folder.join(format!("{}.md", outcome.name))))?;
            }
        } else if self.json {
            let documents: Vec<Value> = outcomes.iter().map(study::to_json).collect();
            out.json(&Value::Array(documents))?;
        } else {
            let texts =
                outcomes.iter().map(|outcome| study::to_text(outcome, &TextStyle::for_stdout()));
            let texts: Vec<String> = texts.collect();
            out.write_all(texts.join("\n\n").as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn machine(id: &str) -> Option<Machine> {
    bundled::bundled_machine(id)?.ok()
}

fn governor(id: &str, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
    let spec = resolve(id)?;
    Some(Box::new(spec.build(tick_period_ns)))
}

fn check_pages(folder: &Path, specs: &[&StudySpec], replace: bool) -> Result<(), Failure> {
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{}: the folder does not exist; make it, or name another",
            folder.display()
        )));
    }
    let pages =
        specs.iter().flat_map(|spec| ["md", "svg"].map(|end| format!("{}.{end}", spec.name)));
    let existing = pages.map(|page| folder.join(page)).find(|page| page.exists());
    match existing {
        Some(page) if !replace => {
            Err(Failure::new(format_args!("{}: exists; use --force to replace it", page.display())))
        }
        _ => Ok(()),
    }
}
