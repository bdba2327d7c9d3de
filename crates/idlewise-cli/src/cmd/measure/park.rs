//! `idlewise measure park`: compares ways to wait for another thread.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use idlewise_report::TextStyle;
use idlewise_report::park::{
    ParkResult, ParkSettings, RESULT_SCHEMA, RUN_COUNT_MIN, plot_name, to_markdown, to_svg, to_text,
};
use idlewise_trace::OutputFile;

use super::saving::{PROGRAM, today};
use crate::error::{Failure, Result};
use crate::input::{NamedLog, read_text_at_most};
use crate::output;
use crate::progress::Progress;
use crate::screen::{self, Numbered};
use crate::signals;
use crate::unpack::Unpacking;

const EXAMPLES: &str = "\
Examples (what measures is the program idlewise-park-bench, in park/):
  # All ways to wait, five workloads, seven runs (three minutes)
  idlewise measure park

  # One workload, more wakes, and a plot of latency against CPU time
  idlewise measure park --workload poisson:20 --wakes 5000 --plot poisson.svg

  # The gaps of a log, while a busy thread runs on each CPU
  idlewise measure park --log traces/s-softirq500.parquet --oversubscribed

  # The page of the documentation: measured.md, measured.json, a plot of each workload
  idlewise measure park --wakes 2000 --try-mwaitx --page docs/park/measured.md --force

  # The same page again, from what was measured then
  idlewise measure park --from docs/park/measured.json --page docs/park/measured.md --force

Only ratios within one run mean anything. Keep other programs off the machine meanwhile. Exit status: 0
whether or not the goals are met, or 2 on bad input.";

/// Measure how a thread waits for another one: idlewise-park beside other ways
///
/// The ways to wait take turns, in an order that is drawn again for each round. Wakes are due at times that
/// are fixed beforehand (open loop). Latency counts from the due time, so a stall counts for every wake that
/// it delays. Also measured: round trips with more threads than CPUs, calls that find nobody waiting, and waits
/// that time out. Figures are medians of the runs. A goal is met or not met only if the whole 95 % bootstrap
/// interval says so; otherwise it is undecided. All figures are measured.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Park {
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

/// What measures. This command has none, because it would bring all libraries that are measured: the program of `park/`
/// has one ([`crate::main_with_park`]).
pub trait ParkBench: Sync {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// Fails if a workload has no such name, or if this machine cannot measure it.
    fn prepare(&self, request: ParkRequest) -> Result<Box<dyn PreparedPark>, String>;
}

/// A measurement that can begin.
pub trait PreparedPark {
    /// Returns the names of its workloads, in their order.
    fn workload_names(&self) -> Vec<String>;

    /// Measures, and says how many milliseconds of how many are done.
    ///
    /// # Errors
    /// Fails if a process cannot be started.
    fn measure(self: Box<Self>, progress: &dyn Fn(u64, u64)) -> Result<ParkResult, String>;
}

/// What the options ask for.
pub struct ParkRequest {
    /// The workloads' names; the default ones if there is neither any nor a log.
    pub workloads: Vec<String>,
    /// A log's name, and its first gaps.
    pub log: Option<(String, Vec<u64>)>,
    /// What is saved of the options.
    pub settings: ParkSettings,
    /// How often all is measured.
    pub run_count: u64,
    /// Whether to wait by MWAITX too.
    pub try_mwaitx: bool,
    /// Name and version of this program.
    pub program: String,
    /// Today.
    pub date: String,
}

/// What [`crate::main_with_park`] was given.
pub static BENCH: OnceLock<&'static dyn ParkBench> = OnceLock::new();

const NO_BENCH: &str = "this idlewise does not measure ways to wait, only reads what was measured (--from); the program \
     idlewise-park-bench does (`make measured` builds it)";

impl Park {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode> {
        signals::clean_up_first()?;
        let prepared: Box<dyn PreparedPark> = match &self.from {
            Some(path) => Box::new(Saved(read_result(path)?)),
            None => self.prepare()?,
        };
        let names = prepared.workload_names();
        // Fail before minutes of measuring, not after.
        let inputs: Vec<&Path> =
            [&self.log, &self.from].into_iter().flatten().map(PathBuf::as_path).collect();
        let plot = self.plot.as_deref().map(|path| output::create(path, self.force, &inputs));
        let plot = plot.transpose()?;
        let page = self.page.as_deref().map(|path| Page::create(path, &names, &self));
        let page = page.transpose()?;
        let to_stdout =
            plot.iter().chain(page.as_ref().map(|page| &page.text)).find(|file| file.is_stdout());
        let mut out = to_stdout.map_or(screen::stdout as _, output::report_of)();

        let result = measure(prepared)?;
        let last = result.workloads().last();
        if let (Some(plot), Some(workload)) = (plot, last) {
            output::write(plot, to_svg(&result, workload))?;
        }
        if let Some(page) = page {
            page.write(&result)?;
        }
        if self.json {
            out.json(RESULT_SCHEMA, &result.to_json())?;
        } else {
            out.write_all(to_text(&result, &TextStyle::for_stdout()).as_bytes())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn prepare(&self) -> Result<Box<dyn PreparedPark>> {
        let bench = BENCH.get().ok_or_else(|| Failure::new(NO_BENCH))?;
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
            program: PROGRAM.to_owned(),
            date: today(),
        };
        bench.prepare(request).map_err(Failure::new)
    }
}

/// What was measured before.
struct Saved(ParkResult);

impl PreparedPark for Saved {
    fn workload_names(&self) -> Vec<String> {
        self.0.workloads().map(|one| one.workload.clone()).collect()
    }

    fn measure(self: Box<Self>, _: &dyn Fn(u64, u64)) -> Result<ParkResult, String> {
        Ok(self.0)
    }
}

fn measure(prepared: Box<dyn PreparedPark>) -> Result<ParkResult> {
    let bar = Progress::park("measuring", 1);
    let progress = |done_ms, of_ms| {
        bar.set_length(of_ms);
        bar.set(done_ms);
    };
    let measured = prepared.measure(&progress);
    bar.finish();
    measured.map_err(Failure::new)
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
    fn create(path: &Path, workloads: &[String], park: &Park) -> Result<Self> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let Some(stem) = stem.filter(|_| path.extension().is_some_and(|ending| ending == "md"))
        else {
            return Err(Failure::new(format_args!(
                "--page {}: name a file that ends in .md; its figures and plots get their names from it",
                screen::name(path)
            )));
        };
        let from: Vec<&Path> = park.from.as_deref().into_iter().collect();
        let log: Vec<&Path> = park.log.as_deref().into_iter().collect();
        let create = |path: &Path| output::create(path, park.force, &log);
        let plots = workloads.iter().map(|workload| {
            let name = plot_name(&stem, workload);
            create(&path.with_file_name(&name))
        });
        let plots = plots.collect::<Result<_>>()?;
        Ok(Page {
            stem,
            text: create(path)?,
            // `--from` may be the file beside the page, which is then rewritten unchanged.
            figures: match from.as_slice() {
                [from] if *from == path.with_extension("json") => create(from)?,
                inputs => output::create(&path.with_extension("json"), park.force, inputs)?,
            },
            plots,
        })
    }

    fn write(self, result: &ParkResult) -> Result<()> {
        let Page { stem, text, figures, plots } = self;
        let page = to_markdown(result, &stem);
        for (workload, plot) in result.workloads().zip(plots) {
            output::write(plot, to_svg(result, workload))?;
        }
        // There are seven thousand figures. One line for each would not be easier to read.
        let json =
            serde_json::to_string(&Numbered { schema: RESULT_SCHEMA, document: &result.to_json() })
                .map_err(Failure::new)?;
        output::write(figures, json + "\n")?;
        output::write(text, page)
    }
}

fn read_result(path: &Path) -> Result<ParkResult> {
    let text = read_text_at_most(path, RESULT_BYTE_COUNT_MAX)?;
    ParkResult::from_json(&text)
        .map_err(|error| Failure::new(format_args!("{}: {error}", screen::name(path))))
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
