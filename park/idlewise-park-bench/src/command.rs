//! The options, and the files that are written.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Parser;
use idlewise_lab::error::{Failure, Result};
use idlewise_lab::input::{NamedLog, read_text_at_most};
use idlewise_lab::unpack::Unpacking;
use idlewise_report::{TextStyle, shown_in_line};
use idlewise_trace::{OutputFile, OutputOptions};
use indicatif::{ProgressBar, ProgressStyle};

use crate::report::{
    ParkResult, ParkSettings, RUN_COUNT_MIN, plot_name, to_markdown, to_svg, to_text,
};
use crate::{Bench, ParkRequest};

const EXAMPLES: &str = "\
Examples:
  # All ways to wait, five workloads, seven runs (three minutes)
  idlewise-park-bench

  # One workload, more wakes, and a plot of latency against CPU time
  idlewise-park-bench --workload poisson:20 --wakes 5000 --plot poisson.svg

  # The gaps of a log, while a busy thread runs on each CPU
  idlewise-park-bench --log traces/s-softirq500.parquet --oversubscribed

  # The page of the documentation: measured.md, measured.json, a plot of each workload
  idlewise-park-bench --wakes 2000 --try-mwaitx --page docs/park/measured.md --force

  # The same page again, from what was measured then
  idlewise-park-bench --from docs/park/measured.json --page docs/park/measured.md --force

Only ratios within one run mean anything. Keep other programs off the machine meanwhile. Exit status: 0
whether or not the goals are met, or 2 on bad input.";

/// Measure how a thread waits for another one: idlewise-park beside other ways
///
/// The ways to wait take turns, in an order that is drawn again for each round. Wakes are due at times that
/// are fixed beforehand (open loop). Latency counts from the due time, so a stall counts for every wake that
/// it delays. Also measured: round trips with more threads than CPUs, calls that find nobody waiting, and waits
/// that time out. Figures are medians of the runs. A goal is met or not met only if the whole 95 % bootstrap
/// interval says so; otherwise it is undecided. All figures are measured.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Command {
    /// A workload: poisson:US (mean gap), periodic:US (gap) or bursty:US (pause between bursts); may be
    /// repeated
    /// [default: poisson:20, poisson:50, periodic:50, bursty:1000, periodic:1000]
    #[arg(long = "workload", value_name = "KIND:US", conflicts_with = "from")]
    workloads: Vec<String>,

    /// Also use the gaps of this idle log or recording as a workload
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    log: Option<PathBuf>,

    /// Wakes for each way to wait, in each workload and run
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u64).range(100..=10_000_000), conflicts_with = "from")]
    wakes: u64,

    /// The number of runs; with fewer than 7 there are no intervals, and goals stay undecided
    #[arg(long, value_name = "N", default_value_t = RUN_COUNT_MIN as u64, value_parser = clap::value_parser!(u64).range(1..=1000), conflicts_with = "from")]
    runs: u64,

    /// The seed of the first run; each further run takes the next number
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "from")]
    seed: u64,

    /// Run a busy thread on each CPU at the same time
    #[arg(long, conflicts_with = "from")]
    oversubscribed: bool,

    /// Run a busy thread on the SMT sibling of the waiter's CPU at the same time
    #[arg(long, conflicts_with_all = ["oversubscribed", "from"])]
    busy_sibling: bool,

    /// Also wait by MWAITX, even if CPUID does not list it (x86); another process tries it first
    #[arg(long, conflicts_with = "from")]
    try_mwaitx: bool,

    /// Write a plot (SVG) of latency against CPU time for the last workload
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Write a page (Markdown), with plots and the figures of each run (JSON) beside it
    #[arg(long, value_name = "FILE.md")]
    page: Option<PathBuf>,

    /// Measure nothing; read what --page or --json wrote before
    #[arg(long, value_name = "FILE.json")]
    from: Option<PathBuf>,

    /// Replace existing files
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The largest saved measurement that is read.
const RESULT_BYTE_COUNT_MAX: u64 = 64 << 20;

enum Source {
    Saved(ParkResult),
    Bench(Bench),
}

impl Command {
    /// Measures and prints the result.
    ///
    /// # Errors
    /// Fails on bad input, and if something cannot be written.
    pub fn run(self) -> Result<()> {
        let source = match &self.from {
            Some(path) => Source::Saved(read_result(path)?),
            None => Source::Bench(self.prepare()?),
        };
        let names = match &source {
            Source::Saved(result) => result.workloads().map(|one| one.workload.clone()).collect(),
            Source::Bench(bench) => bench.workload_names(),
        };
        // Fail before minutes of measuring, not after.
        let inputs: Vec<&Path> =
            [&self.log, &self.from].into_iter().flatten().map(PathBuf::as_path).collect();
        let plot =
            self.plot.as_deref().map(|path| create(path, self.force, &inputs)).transpose()?;
        let page =
            self.page.as_deref().map(|path| Page::create(path, &names, &self)).transpose()?;

        let result = match source {
            Source::Saved(result) => result,
            Source::Bench(bench) => measure(bench)?,
        };
        if let (Some(plot), Some(workload)) = (plot, result.workloads().last()) {
            write(plot, &to_svg(&result, workload))?;
        }
        if let Some(page) = page {
            page.write(&result)?;
        }
        let text = match self.json {
            true => format!("{:#}\n", result.to_json()),
            false => to_text(&result, &TextStyle::for_stdout()),
        };
        #[expect(clippy::disallowed_methods, reason = "the text is safe to show")]
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }

    fn prepare(&self) -> Result<Bench> {
        let log =
            self.log.as_deref().map(|path| recorded(path, self.wakes as usize)).transpose()?;
        let request = ParkRequest {
            workloads: self.workloads.clone(),
            log,
            settings: ParkSettings {
                wake_count: self.wakes,
                seed: self.seed,
                oversubscribed: self.oversubscribed,
                busy_sibling: self.busy_sibling,
            },
            run_count: self.runs,
            try_mwaitx: self.try_mwaitx,
        };
        Bench::prepare(request).map_err(Failure::new)
    }
}

fn measure(bench: Bench) -> Result<ParkResult> {
    let bar = ProgressBar::new(1).with_message("measuring");
    let style = ProgressStyle::with_template("{msg} {bar:32} {percent} % {eta} left");
    bar.set_style(style.map_err(Failure::new)?);
    let measured = bench.measure(&|done_ms, of_ms| {
        bar.set_length(of_ms);
        bar.set_position(done_ms);
    });
    bar.finish_and_clear();
    measured.map_err(Failure::new)
}

fn create(path: &Path, replace: bool, inputs: &[&Path]) -> Result<OutputFile> {
    Ok(OutputFile::create(path, &OutputOptions { replace, inputs, ..OutputOptions::default() })?)
}

fn write(output: OutputFile, text: &str) -> Result<()> {
    let written = output.file().write_all(text.as_bytes());
    written.map_err(|error| Failure::new(format_args!("{}: {error}", output.path().display())))?;
    output.finish()?;
    Ok(())
}

/// The files of a page, created before the measurement.
struct Page {
    /// The page's name without its extension.
    stem: String,
    text: OutputFile,
    figures: OutputFile,
    /// One plot for each workload.
    plots: Vec<OutputFile>,
}

impl Page {
    fn create(path: &Path, workloads: &[String], park: &Command) -> Result<Self> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let Some(stem) = stem.filter(|_| path.extension().is_some_and(|ending| ending == "md"))
        else {
            return Err(Failure::new(format_args!(
                "--page {}: name a file that ends in .md; its figures and plots get their names from it",
                shown_in_line(&path.to_string_lossy())
            )));
        };
        let from: Vec<&Path> = park.from.as_deref().into_iter().collect();
        let log: Vec<&Path> = park.log.as_deref().into_iter().collect();
        let start = |path: &Path| create(path, park.force, &log);
        let plots = workloads.iter().map(|workload| {
            let name = plot_name(&stem, workload);
            start(&path.with_file_name(&name))
        });
        let plots = plots.collect::<Result<_>>()?;
        Ok(Page {
            stem,
            text: start(path)?,
            // `--from` may be the file beside the page, which is then rewritten unchanged.
            figures: match from.as_slice() {
                [from] if *from == path.with_extension("json") => start(from)?,
                inputs => create(&path.with_extension("json"), park.force, inputs)?,
            },
            plots,
        })
    }

    fn write(self, result: &ParkResult) -> Result<()> {
        let Page { stem, text, figures, plots } = self;
        let page = to_markdown(result, &stem);
        for (workload, plot) in result.workloads().zip(plots) {
            write(plot, &to_svg(result, workload))?;
        }
        // There are seven thousand figures. One line for each would not be easier to read.
        write(figures, &format!("{}\n", result.to_json()))?;
        write(text, &page)
    }
}

fn read_result(path: &Path) -> Result<ParkResult> {
    let text = read_text_at_most(path, RESULT_BYTE_COUNT_MAX)?;
    ParkResult::from_json(&text).map_err(|error| {
        Failure::new(format_args!("{}: {error}", shown_in_line(&path.to_string_lossy())))
    })
}

/// The first gaps of a log, of the CPU in its first row.
fn recorded(path: &Path, count: usize) -> Result<(String, Vec<u64>)> {
    let named = NamedLog::open(path, Unpacking::default())?;
    let (mut gaps_ns, mut gaps) = (Vec::new(), Vec::new());
    for group in named.log.groups() {
        named.log.read_group(group, None, &mut gaps)?;
        // Gaps are limited: a wake every nanosecond is not a workload, and a run should end.
        let spans = gaps.iter().map(|gap| gap.gap_ns.clamp(1_000, 100_000_000));
        gaps_ns.extend(spans.take(count - gaps_ns.len()));
        if gaps_ns.len() >= count {
            break;
        }
    }
    if gaps_ns.is_empty() {
        return Err(Failure::new(format_args!("{}: it has no gaps", path.display())));
    }
    Ok((named.name, gaps_ns))
}
