//! `idlewise bench`: measurements on this machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_bench::{
    FUTEX, Figures, Load, OURS, Settings, Workload, ready_token_ns, run, throughput, waiter_cpu,
};
use idlewise_host::{Relation, Root};
use idlewise_report::park::{
    Goal, ParkFigures, ParkRole, bench_park_plot, bench_park_table, bench_park_throughput_table,
    judge,
};
use idlewise_report::{TextStyle, wrap};
use serde_json::json;

use crate::error::Failure;
use crate::input::NamedLog;
use crate::output;
use crate::progress::Progress;
use crate::screen;
use crate::unpack::Unpacking;

const EXAMPLES: &str = "\
Examples:
  # All ways to park a thread, on four workloads (half a minute)
  idlewise bench park

  # One workload, more wakes, and a plot of latency against CPU time
  idlewise bench park --workload poisson:20 --wakes 20000 --plot poisson.svg

  # The gaps of a log, with more runnable threads than CPUs
  idlewise bench park --log traces/s-softirq500.parquet --oversubscribed

Only ratios within one run mean anything; pin nothing else to the CPUs meanwhile.";

/// Measure ways to wait on this machine
#[derive(clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Park(Park),
}

/// Wake a parked thread, by idlewise-park and by all that it is compared with
///
/// All ways to park take turns in one run. Wakes are due at times fixed beforehand (open loop), and
/// latency counts from then, so a stall counts for every wake that it delayed. Every figure is
/// measured.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
struct Park {
    /// poisson:US, periodic:US or bursty:US: mean gap, gap, or pause between bursts; repeatable
    #[arg(long = "workload", value_name = "KIND:US")]
    workloads: Vec<Workload>,

    /// Also the gaps of this idle log or recording, as they come
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Wakes of each way to park, on each workload
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    wakes: u64,

    /// Seed of the schedules
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Let a busy thread run on each CPU meanwhile; also count round trips with more threads than CPUs
    #[arg(long)]
    oversubscribed: bool,

    /// Let a busy thread run on the SMT sibling of the waiter's CPU meanwhile
    #[arg(long, conflicts_with = "oversubscribed")]
    busy_sibling: bool,

    /// Write latency against CPU time as SVG, of the last workload
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Replace an existing plot
    #[arg(long)]
    force: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Turns of each way in the count of round trips: a second each.
const THROUGHPUT_TURN_COUNT: u32 = 20;

/// What is measured if nothing is named: gaps that polling should win, a mixture, gaps that it
/// should leave alone.
const DEFAULT_WORKLOADS: [&str; 4] = ["poisson:20", "periodic:50", "bursty:1000", "periodic:1000"];

impl Bench {
    /// Measures and prints.
    pub fn run(self) -> Result<ExitCode, Failure> {
        let What::Park(park) = self.what;
        park.run()
    }
}

impl Park {
    fn run(self) -> Result<ExitCode, Failure> {
        let inputs: Vec<&Path> = self.log.as_deref().into_iter().collect();
        let plot = self.plot.as_deref().map(|path| output::create(path, self.force, &inputs));
        let plot = plot.transpose()?;
        let mut out = plot.as_ref().map_or(screen::stdout as _, output::report_of)();
        let load = self.load()?;
        let wake_count = self.wakes as usize;
        let settings = Settings { wake_count, seed: self.seed, load };
        let mut workloads = self.workloads.clone();
        if workloads.is_empty() && self.log.is_none() {
            let parse = |name: &&str| name.parse().expect("names are constants");
            workloads = DEFAULT_WORKLOADS.iter().map(parse).collect();
        }
        if let Some(path) = &self.log {
            workloads.push(recorded(path, wake_count)?);
        }
        let (mut results, mut doubts) = (Vec::new(), Vec::new());
        for workload in &workloads {
            let bar = Progress::gaps("measuring", 1000);
            let figures = run(workload, settings, &|share| bar.set((share * 1000.0) as u64));
            bar.finish();
            let late = figures.iter().map(|one| one.late_ratio).fold(0.0, f64::max);
            if late > 0.02 && load == Load::Idle {
                doubts.push(format!(
                    "{workload}: somebody else had the waker's CPU for up to {:.0} % of the wakes of \
                     a way: its latencies are the neighbours'; run it again on two idle CPUs",
                    late * 100.0
                ));
            }
            results.push((workload, figures.iter().map(report_figures).collect::<Vec<_>>()));
        }
        let rates = match load {
            Load::Oversubscribed => {
                let bar = Progress::gaps("measuring round trips", 1000);
                let rates = throughput(THROUGHPUT_TURN_COUNT, &|share| {
                    bar.set((share * 1000.0) as u64);
                });
                bar.finish();
                rates
            }
            _ => Vec::new(),
        };
        let rate =
            |name| rates.iter().find(|one| one.name == name).map(|one| one.round_trips_per_s);
        let against_futex = rate(OURS).zip(rate(FUTEX)).map(|(ours, futex)| Goal {
            goal: "a futex's round trips with more threads than CPUs, against ours",
            measured: futex / ours,
            at_most: 1.0 / 0.95,
        });
        let round_trips = rate(FUTEX).map(|futex_per_s| {
            let rates = rates.iter().map(|one| (one.name, one.round_trips_per_s));
            bench_park_throughput_table(
                "Round trips, two pairs of threads for each CPU, measured",
                rates,
                futex_per_s,
            )
        });
        let token = Goal {
            goal: "unpark and park of a ready token, in ns",
            measured: ready_token_ns(),
            at_most: 10.0,
        };
        if let (Some(plot), Some((workload, figures))) = (plot, results.last()) {
            output::write(plot, bench_park_plot(&workload.to_string(), figures))?;
        }
        if self.json {
            let workloads: Vec<_> = results.iter().map(|(workload, figures)| json!({
                "workload": workload.to_string(),
                "ways": bench_park_table("", figures),
                "goals": judge(figures, workload.mean_gap_ns()).iter().map(goal_json).collect::<Vec<_>>(),
            })).collect();
            let document = json!({
                "basis": "measured",
                "wake_count": wake_count,
                "seed": self.seed,
                "oversubscribed": self.oversubscribed,
                "busy_sibling": self.busy_sibling,
                "workloads": workloads,
                "round_trips": round_trips,
                "round_trips_goal": against_futex.as_ref().map(goal_json),
                "ready_token": goal_json(&token),
                "doubts": doubts,
            });
            out.json(&document)?;
        } else {
            let style = TextStyle::for_stdout();
            for (workload, figures) in &results {
                let title = format!("{workload}: {wake_count} wakes of each, measured");
                writeln!(out, "{}", bench_park_table(&title, figures).to_text(&style).trim_end())?;
                for goal in judge(figures, workload.mean_gap_ns()) {
                    writeln!(out, "{}", goal_line(&goal))?;
                }
                writeln!(out)?;
            }
            if let (Some(table), Some(goal)) = (&round_trips, &against_futex) {
                writeln!(out, "{}", table.to_text(&style).trim_end())?;
                writeln!(out, "{}\n", goal_line(goal))?;
            }
            writeln!(out, "{}", goal_line(&token))?;
            for doubt in &doubts {
                writeln!(out, "{}", wrap(&format!("doubt: {doubt}"), style.width, 2))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Park {
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

fn goal_line(goal: &Goal) -> String {
    let met = if goal.is_met() { "met" } else { "NOT met" };
    format!("goal {met}: {}: {:.3} (at most {:.3})", goal.goal, goal.measured, goal.at_most)
}

fn goal_json(goal: &Goal) -> serde_json::Value {
    json!({
        "goal": goal.goal,
        "measured": goal.measured,
        "at_most": goal.at_most,
        "is_met": goal.is_met(),
    })
}

fn report_figures(figures: &Figures) -> ParkFigures {
    let role = match (figures.name, figures.fixed_spin_ns) {
        (_, Some(_)) => ParkRole::FixedSpin,
        (OURS, None) => ParkRole::Ours,
        (FUTEX, None) => ParkRole::Futex,
        _ => ParkRole::Other,
    };
    let quantile = |share| Figures::quantile(&figures.latencies_ns, share);
    ParkFigures {
        way: figures.name.to_owned(),
        role,
        wake_latency_ns: [0.5, 0.99, 0.999].map(quantile),
        send_cost_p50_ns: Figures::quantile(&figures.send_costs_ns, 0.5),
        mean_latency_ns: figures.mean_latency_ns(),
        sleeper_send_cost_ns: figures.sleeper_send_cost_ns,
        cpu_ratio: figures.cpu_ratio,
        switches_per_wake: figures.switches_per_wake,
    }
}

/// The first gaps of a log, of the CPU that its first rows belong to.
fn recorded(path: &Path, count: usize) -> Result<Workload, Failure> {
    let named = NamedLog::open(path, Unpacking::default())?;
    let (mut gaps_ns, mut gaps) = (Vec::new(), Vec::new());
    for group in named.log.groups() {
        named.log.read_group(group, None, &mut gaps)?;
        // A wake every nanosecond is no workload, and a run should end.
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
