//! `idlewise study`: published claims confronted with the simulated machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_core::Governor;
use idlewise_linux::resolve;
use idlewise_report::TextStyle;
use idlewise_report::study::{self, Page, STUDIES};
use idlewise_sim::study::Shelf;
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
        let studies: Vec<&study::Study> = match &self.name {
            None => STUDIES.to_vec(),
            Some(name) => vec![STUDIES.iter().copied().find(|study| study.name == name).ok_or_else(|| {
                let known = STUDIES.iter().map(|study| study.name);
                let hint = did_you_mean(name, known, "`idlewise study --help` lists them");
                Failure::new(format_args!("no study '{name}'; {hint}"))
            })?],
        };
        // Before a minute of simulating, not after.
        let files = match &self.pages {
            Some(folder) => start_pages(folder, &studies, self.force)?,
            None => Vec::new(),
        };
        let shelf = Shelf { governor: &governor };
        let pages: Vec<Page> = studies
            .par_iter()
            .map(|study| study.run(&shelf).map_err(Failure::new))
            .collect::<Result<_, _>>()?;
        let results = || studies.iter().zip(&pages);
        let mut out = screen::stdout();
        if let Some(folder) = &self.pages {
            for ((study, page), [text, plot]) in results().zip(files) {
                output::write(text, study::to_markdown(study, page))?;
                output::write(plot, study::to_svg(page))?;
                writeln!(out, "{}", screen::name(&folder.join(format!("{}.md", study.name))))?;
            }
        } else if self.json {
            let studies: Vec<Value> =
                results().map(|(study, page)| study::to_json(study, page)).collect();
            out.json(SCHEMA, &json!({ "studies": studies }))?;
        } else {
            let style = TextStyle::for_stdout();
            let texts: Vec<String> =
                results().map(|(study, page)| study::to_text(study, page, &style)).collect();
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
    studies: &[&study::Study],
    force: bool,
) -> Result<Vec<[OutputFile; 2]>, Failure> {
    if !folder.is_dir() {
        return Err(Failure::new(format_args!(
            "{}: the folder does not exist; make it, or name another",
            folder.display()
        )));
    }
    let start = |study: &study::Study, ending: &str| {
        output::create(&folder.join(format!("{}.{ending}", study.name)), force, &[])
    };
    studies.iter().map(|study| Ok([start(study, "md")?, start(study, "svg")?])).collect()
}
