//! `idlewise measure park`: compares ways to wait for another thread.

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use idlewise_bench::{
    Contender, FUTEX, Figures, Load, MWAITX, OURS, REFUSED_STATUS, Settings, Workload, call_costs,
    contenders, mwaitx_missing, probe_mwaitx, run, throughput, timeout_costs, waiter_cpu,
    waker_cpu,
};
use idlewise_host::{Relation, Root, load_average, steal_ticks, waiting_facts};
use idlewise_report::{CountedDoubt, Notes, TextStyle};
use idlewise_report::park::{
    CallFigures, MachineFact, MwaitxFinding, ParkFigures, ParkResult, ParkRole, ParkRun,
    ParkSettings, ParkWorkload, RESULT_SCHEMA, RUN_COUNT_MIN, RoundTrips, TimeoutFigures,
    plot_name, to_markdown, to_svg, to_text,
};
use idlewise_trace::OutputFile;
use serde_json::json;
use std::io::Write;

use super::saving::{PROGRAM, today};
use crate::error::Failure;
use crate::input::{NamedLog, open_stream};
use crate::output;
use crate::progress::Progress;
use crate::program;
use crate::screen::{self, Numbered};
use crate::signals;
use crate::unpack::Unpacking;

const EXAMPLES: &str = "\
Examples:
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
/// The ways to wait take turns, in an order that is drawn anew for each round. Wakes are due at times that
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
    workloads: Vec<Workload>,

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

/// The default workloads: gaps for which polling should win, gaps for which it is unclear, a
/// mixture, and gaps for which it should not poll.
const DEFAULT_WORKLOADS: [&str; 5] =
    ["poisson:20", "poisson:50", "periodic:50", "bursty:1000", "periodic:1000"];

/// The largest saved measurement that is read.
const RESULT_BYTE_COUNT_MAX: u64 = 64 << 20;

/// Tries MWAITX for the parent process, and dies if the CPU does not have it.
pub fn try_instructions() -> Result<ExitCode, Failure> {
    let probe = probe_mwaitx();
    let found = json!({
        "monitor_ns": probe.monitor_ns,
        "wait_ns": probe.wait_ns,
        "timer_ratio": probe.timer_ratio,
        "cpuid_ns": probe.cpuid_ns,
        "waits": probe.waits(),
        "refused": null,
    });
    writeln!(screen::stdout(), "{found}")?;
    Ok(ExitCode::SUCCESS)
}

impl Park {
    /// Measures and prints the result.
    pub fn run(self) -> Result<ExitCode, Failure> {
        signals::clean_up_first()?;
        let load = self.load()?;
        let (workloads, saved) = match &self.from {
            Some(path) => (Vec::new(), Some(read_result(path)?)),
            None => (self.workloads()?, None),
        };
        let names: Vec<String> = match &saved {
            Some(saved) => saved.workloads().map(|one| one.workload.clone()).collect(),
            None => workloads.iter().map(Workload::to_string).collect(),
        };
        // Fail before minutes of measuring, not after.
        let inputs: Vec<&Path> = [&self.log, &self.from].into_iter().flatten().map(PathBuf::as_path).collect();
        let plot = self.plot.as_deref().map(|path| output::create(path, self.force, &inputs));
        let plot = plot.transpose()?;
        let page = self.page.as_deref().map(|path| Page::create(path, &names, &self));
        let page = page.transpose()?;
        let to_stdout =
            plot.iter().chain(page.as_ref().map(|page| &page.text)).find(|file| file.is_stdout());
        let mut out = to_stdout.map_or(screen::stdout as _, output::report_of)();

        let result = match saved {
            Some(saved) => saved,
            None => self.measure(&workloads, load)?,
        };
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

    fn workloads(&self) -> Result<Vec<Workload>, Failure> {
        let mut workloads = self.workloads.clone();
        if workloads.is_empty() && self.log.is_none() {
            let parse = |name: &&str| name.parse().expect("names are constants");
            workloads = DEFAULT_WORKLOADS.iter().map(parse).collect();
        }
        if let Some(path) = &self.log {
            workloads.push(recorded(path, self.wakes as usize)?);
        }
        // A workload named twice would be measured twice but shown once.
        let mut names = Vec::new();
        workloads.retain(|workload| {
            let name = workload.to_string();
            let is_new = !names.contains(&name);
            names.push(name);
            is_new
        });
        Ok(workloads)
    }

    fn measure(&self, workloads: &[Workload], load: Load) -> Result<ParkResult, Failure> {
        let root = Root::live();
        let mut ways = contenders();
        let mwaitx = self.try_mwaitx.then(try_mwaitx).transpose()?;
        if mwaitx.as_ref().is_some_and(|finding| finding.refused.is_none()) {
            ways.push(MWAITX);
        }
        let time_ms = self.time_ms(workloads, ways.len());
        let bar = Progress::park("measuring", time_ms);
        let mut runs = Vec::new();
        for index in 0..self.runs {
            let seed = self.seed.wrapping_add(index);
            let settings = Settings { wake_count: self.wakes as usize, seed, load };
            let done_ms = time_ms / self.runs * index;
            bar.set(done_ms);
            let ticks = steal_ticks(&root);
            let load_average = load_average(&root);
            let mut measured = self.measure_once(workloads, &ways, settings, &bar, done_ms);
            measured.load_average = load_average;
            measured.steal_ratio = ticks.zip(steal_ticks(&root)).map(|(before, after)| {
                let [all, stolen] =
                    [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
                rounded(stolen as f64 / all.max(1) as f64)
            });
            runs.push(measured);
        }
        bar.finish();
        let doubts = self.doubts(&runs, load);
        let cpus = (waker_cpu() as u16, waiter_cpu() as u16);
        let machine = waiting_facts(&root, cpus.0, cpus.1).into_iter();
        Ok(ParkResult {
            program: PROGRAM.to_owned(),
            date: today(),
            machine: machine
                .map(|(fact, value)| MachineFact { fact: fact.to_owned(), value })
                .collect(),
            settings: ParkSettings {
                wake_count: self.wakes,
                seed: self.seed,
                oversubscribed: self.oversubscribed,
                busy_sibling: self.busy_sibling,
            },
            mwaitx,
            runs,
            doubts,
        })
    }

    fn measure_once(
        &self,
        workloads: &[Workload],
        ways: &[Contender],
        settings: Settings,
        bar: &Progress,
        mut done_ms: u64,
    ) -> ParkRun {
        let seed = settings.seed;
        let mut figures = Vec::new();
        for workload in workloads {
            let span_ms = self.workload_ms(workload, ways.len());
            let progress = |share: f64| bar.set(done_ms + (share * span_ms as f64) as u64);
            let measured = run(ways, workload, settings, &progress);
            done_ms += span_ms;
            figures.push(ParkWorkload {
                workload: workload.to_string(),
                mean_gap_ns: workload.mean_gap_ns(),
                ways: measured.iter().map(report_figures).collect(),
            });
        }
        let round_trips = throughput(ways, self.turn_count(), seed, &|_| ());
        let round_trips = round_trips.into_iter().map(|one| RoundTrips {
            way: one.name.to_owned(),
            round_trips_per_s: one.round_trips_per_s.round(),
        });
        let round_trips = round_trips.collect();
        let calls = call_costs(seed).into_iter().map(|one| CallFigures {
            call: one.call.to_owned(),
            way: one.way.to_owned(),
            cost_ns: rounded(one.cost_ns),
        });
        let calls = calls.collect();
        let timeouts = timeout_costs(seed, self.timeout_turn()).into_iter();
        let timeouts = timeouts.map(|one| TimeoutFigures {
            pattern: one.pattern.to_owned(),
            way: one.way.to_owned(),
            cpu_ratio: rounded(one.cpu_ratio),
        });
        ParkRun {
            seed,
            load_average: None,
            steal_ratio: None,
            workloads: figures,
            round_trips,
            calls,
            timeouts: timeouts.collect(),
        }
    }

    /// With more wakes, everything else is repeated more often too.
    fn turn_count(&self) -> u32 {
        (self.wakes / 500).clamp(1, 4) as u32
    }

    fn timeout_turn(&self) -> Duration {
        Duration::from_millis((self.wakes / 5).clamp(20, 400))
    }

    /// The approximate time for a workload in a run.
    fn workload_ms(&self, workload: &Workload, way_count: usize) -> u64 {
        let wakes_us = self.wakes * workload.mean_gap_ns() / 1000;
        (wakes_us + self.wakes * 3) * way_count as u64 / 1000
    }

    /// The approximate total time.
    fn time_ms(&self, workloads: &[Workload], way_count: usize) -> u64 {
        let workloads_ms =
            workloads.iter().map(|one| self.workload_ms(one, way_count)).sum::<u64>();
        let trips_ms = u64::from(self.turn_count()) * 50 * way_count as u64;
        let timeouts_ms = self.timeout_turn().as_millis() as u64 * 16;
        (workloads_ms + trips_ms + timeouts_ms + 500) * self.runs
    }

    fn doubts(&self, runs: &[ParkRun], load: Load) -> Vec<CountedDoubt> {
        let mut notes = Notes::default();
        if runs.len() < RUN_COUNT_MIN {
            notes.doubt(format!(
                "{} runs are too few for an interval: take {RUN_COUNT_MIN} or more (--runs)",
                runs.len()
            ));
        }
        for workload in runs.first().into_iter().flat_map(|run| &run.workloads) {
            let is_it = |one: &&ParkWorkload| one.workload == workload.workload;
            let of_runs = runs.iter().filter_map(|run| run.workloads.iter().find(is_it));
            let late = of_runs.flat_map(|one| &one.ways).map(|way| way.late_ratio);
            let late = late.fold(0.0, f64::max);
            if late > 0.02 && load == Load::Idle {
                notes.doubt(format!(
                    "{}: somebody else had the waker's CPU for up to {:.0} % of the wakes of a way in a \
                     run: its latencies are the neighbours'; run it again on two idle CPUs",
                    workload.workload,
                    late * 100.0
                ));
            }
        }
        if cfg!(debug_assertions) {
            notes.doubt("a build without optimization: measure with a release build");
        }
        let steal = runs.iter().filter_map(|run| run.steal_ratio).fold(0.0, f64::max);
        if steal > 0.01 {
            notes.doubt(format!(
                "the hypervisor gave up to {:.0} % of a run's CPU time to other guests",
                steal * 100.0
            ));
        }
        notes.counted_doubts()
    }

    fn load(&self) -> Result<Load, Failure> {
        if self.oversubscribed {
            return Ok(Load::Oversubscribed);
        }
        if !self.busy_sibling {
            return Ok(Load::Idle);
        }
        let (root, waiter_cpu) = (Root::live(), waiter_cpu() as u16);
        let is_sibling = |&cpu: &u16| {
            cpu != waiter_cpu && Relation::of(&root, waiter_cpu, cpu) == Some(Relation::SmtSibling)
        };
        match root.online_cpus().into_iter().find(is_sibling) {
            Some(cpu) => Ok(Load::BusySibling(cpu.into())),
            None => Err(Failure::new(format_args!(
                "CPU {waiter_cpu} has no SMT sibling, so --busy-sibling measures nothing here; \
                 leave it out, or run it on a machine with SMT"
            ))),
        }
    }
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
    fn create(path: &Path, workloads: &[String], park: &Park) -> Result<Self, Failure> {
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
        let plots = plots.collect::<Result<_, Failure>>()?;
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

    fn write(self, result: &ParkResult) -> Result<(), Failure> {
        let Page { stem, text, figures, plots } = self;
        let page = to_markdown(result, &stem);
        for (workload, plot) in result.workloads().zip(plots) {
            output::write(plot, to_svg(result, workload))?;
        }
        // There are seven thousand figures. One line for each would not be easier to read.
        let json = serde_json::to_string(&Numbered { schema: RESULT_SCHEMA, document: &result.to_json() }).map_err(Failure::new)?;
        output::write(figures, json + "\n")?;
        output::write(text, page)
    }
}

fn read_result(path: &Path) -> Result<ParkResult, Failure> {
    use std::io::Read;
    let fail = |error: &dyn std::fmt::Display| {
        Failure::new(format_args!("{}: {error}", screen::name(path)))
    };
    let file = open_stream(path)?;
    let mut text = String::new();
    let read = file.take(RESULT_BYTE_COUNT_MAX).read_to_string(&mut text);
    read.map_err(|error| fail(&error))?;
    ParkResult::from_json(&text).map_err(|error| fail(&error))
}

/// Tries it in a separate process, because the CPU may refuse.
fn try_mwaitx() -> Result<MwaitxFinding, Failure> {
    let refused = |reason: String| MwaitxFinding {
        refused: Some(reason),
        monitor_ns: None,
        wait_ns: None,
        timer_ratio: None,
        cpuid_ns: None,
        waits: false,
    };
    if let Some(missing) = mwaitx_missing() {
        return Ok(refused(missing.to_owned()));
    }
    let mut command = program::command()
        .map_err(|error| Failure::new(format_args!("idlewise's own file: {error}")))?;
    let output = command.args(["measure", "probe-mwaitx"]).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Failure::new(format_args!("a process to try MWAITX: {error}")))?;
    if output.status.code() == Some(REFUSED_STATUS) {
        return Ok(refused("the CPU refuses the instruction (SIGILL)".to_owned()));
    }
    if !output.status.success() {
        return Ok(refused(format!("the process that tried it ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| {
        Failure::new(format_args!("what the process that tried MWAITX said: {error}"))
    })
}

/// Rounds to five decimals. More are noise, and a saved measurement has thousands of figures.
fn rounded(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

fn report_figures(figures: &Figures) -> ParkFigures {
    let role = match (figures.name, figures.fixed_spin_ns) {
        (_, Some(_)) => ParkRole::FixedSpin,
        (OURS, None) => ParkRole::Ours,
        (FUTEX, None) => ParkRole::Futex,
        _ => ParkRole::Other,
    };
    let latency = |share| Figures::quantile(&figures.latencies_ns, share) as f64;
    ParkFigures {
        way: figures.name.to_owned(),
        role,
        wake_latency_p50_ns: latency(0.5),
        wake_latency_mean_ns: figures.mean_latency_ns().round(),
        wake_latency_p99_ns: latency(0.99),
        wake_latency_p999_ns: latency(0.999),
        send_cost_p50_ns: Figures::quantile(&figures.send_costs_ns, 0.5) as f64,
        sleeper_send_cost_ns: figures.sleeper_send_cost_ns as f64,
        cpu_ratio: rounded(figures.cpu_ratio),
        switches_per_wake: rounded(figures.switches_per_wake),
        late_ratio: rounded(figures.late_ratio),
    }
}

/// The first gaps of a log, of the CPU in its first row.
fn recorded(path: &Path, count: usize) -> Result<Workload, Failure> {
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
    Ok(Workload::Recorded { name: named.name, gaps_ns })
}
