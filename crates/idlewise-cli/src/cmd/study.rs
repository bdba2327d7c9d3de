//! `idlewise study`: published claims confronted with the simulated machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::Governor;
use idlewise_linux::resolve;
use idlewise_report::{TextStyle, study};
use idlewise_sim::study::{STUDIES, Shelf, Study as Outcome, StudySpec};
use idlewise_trace::OutputFile;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::error::{Failure, did_you_mean};
use crate::output;
use crate::screen;
use crate::threads;

/// The number of the shape of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # All five
  idlewise study

  # One of them, for a program
  idlewise study menu-min --json

  # The pages of docs/studies
  idlewise study --pages docs/studies --force

Exit status: 0, or 2 on bad input.";

/// Compare five published claims about CPU idling with a simulated machine
///
/// A study prints the claim, the published figures beside ours, the source of every input, what
/// follows from the model alone, how the result depends on assumptions, and a judgement. The studies
/// are amd-mwait, menu-min, ipi-less, c02 and promotion.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Study {
    /// The study to run [default: all]
    name: Option<String>,

    /// Write each study as a page with a plot into this folder
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
                let known = STUDIES.iter().map(|spec| spec.name);
                let hint = did_you_mean(name, known, "`idlewise study --help` lists them");
                Failure::new(format_args!("no study '{name}'; {hint}"))
            })?],
        };
        // Before a minute of simulating, not after.
        let pages = match &self.pages {
            Some(folder) => start_pages(folder, &specs, self.force)?,
            None => Vec::new(),
        };
        let shelf = Shelf { governor: &governor };
        let outcomes: Vec<Outcome> = specs
            .par_iter()
            .map(|spec| spec.run(&shelf).map_err(Failure::new))
            .collect::<Result<_, _>>()?;
        let mut out = screen::stdout();
        if let Some(folder) = &self.pages {
            for (outcome, [page, plot]) in outcomes.iter().zip(pages) {
                output::write(page, study::to_markdown(outcome))?;
                output::write(plot, study::to_svg(&outcome.plot))?;
                writeln!(out, "{}", screen::name(&folder.join(format!("{}.md", outcome.name))))?;
            }
        } else if self.json {
            let studies: Vec<Value> = outcomes.iter().map(study::to_json).collect();
            out.json(SCHEMA, &json!({ "studies": studies }))?;
        } else {
            let texts =
                outcomes.iter().map(|outcome| study::to_text(outcome, &TextStyle::for_stdout()));
            let texts: Vec<String> = texts.collect();
            out.write_all(texts.join("\n\n").as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn governor(id: &str, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
    let spec = resolve(id)?;
    Some(Box::new(spec.build(tick_period_ns)))
}

/// The page and the plot of each study.
fn start_pages(
    folder: &Path,
    specs: &[&StudySpec],
    force: bool,
) -> Result<Vec<[OutputFile; 2]>, Failure> {
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{}: the folder does not exist; make it, or name another",
            folder.display()
        )));
    }
    let start = |spec: &&StudySpec, ending: &str| {
        output::create(&folder.join(format!("{}.{ending}", spec.name)), force, &[])
    };
    specs.iter().map(|spec| Ok([start(spec, "md")?, start(spec, "svg")?])).collect()
}
