//! What the program measures, and the process that tries MWAITX.

use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use idlewise_host::{Relation, Root, load_average, steal_ticks, waiting_facts};
use idlewise_lab::program::today;
use idlewise_probe::{waiter_cpu, waker_cpu};
use idlewise_report::saved::MachineFact;
use idlewise_report::{CountedDoubt, Notes};
use serde_json::json;

use crate::report::{
    CallFigures, MwaitxFinding, ParkFigures, ParkResult, ParkRole, ParkRun, ParkSettings,
    ParkWorkload, RUN_COUNT_MIN, RoundTrips, TimeoutFigures,
};
use crate::{
    Contender, FUTEX, Figures, Load, MWAITX, OURS, REFUSED_STATUS, Settings, Workload, call_costs,
    contenders, mwaitx_missing, probe_mwaitx, run, throughput, timeout_costs,
};

/// The default workloads: gaps for which polling should win, gaps for which it is unclear, a
/// mixture, and gaps for which it should not poll.
const DEFAULT_WORKLOADS: [&str; 5] =
    ["poisson:20", "poisson:50", "periodic:50", "bursty:1000", "periodic:1000"];

/// The argument of the process that tries MWAITX.
pub const PROBE_MWAITX: &str = "probe-mwaitx";

/// Tries MWAITX for the parent process, and dies if the CPU does not have it.
pub fn try_instructions() -> ExitCode {
    use std::io::Write;
    let probe = probe_mwaitx();
    let found = json!({
        "monitor_ns": probe.monitor_ns,
        "wait_ns": probe.wait_ns,
        "timer_ratio": probe.timer_ratio,
        "cpuid_ns": probe.cpuid_ns,
        "waits": probe.waits(),
        "refused": null,
    });
    #[expect(clippy::disallowed_methods, reason = "the parent reads it")]
    let written = writeln!(std::io::stdout(), "{found}");
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is asked for.
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
}

fn workloads(request: &ParkRequest) -> Result<Vec<Workload>, String> {
    let mut names: Vec<&str> = request.workloads.iter().map(String::as_str).collect();
    if names.is_empty() && request.log.is_none() {
        names = DEFAULT_WORKLOADS.to_vec();
    }
    let parse = |name: &str| name.parse().map_err(|error| format!("--workload: {error}"));
    let mut workloads = names.into_iter().map(parse).collect::<Result<Vec<Workload>, _>>()?;
    workloads
        .extend(request.log.clone().map(|(name, gaps_ns)| Workload::Recorded { name, gaps_ns }));
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

fn load(request: &ParkRequest) -> Result<Load, String> {
    if request.settings.oversubscribed {
        return Ok(Load::Oversubscribed);
    }
    if !request.settings.busy_sibling {
        return Ok(Load::Idle);
    }
    let (root, waiter_cpu) = (Root::live(), waiter_cpu() as u16);
    let is_sibling = |&cpu: &u16| {
        cpu != waiter_cpu && Relation::of(&root, waiter_cpu, cpu) == Some(Relation::SmtSibling)
    };
    match root.online_cpus().into_iter().find(is_sibling) {
        Some(cpu) => Ok(Load::BusySibling(cpu.into())),
        None => Err(format!(
            "CPU {waiter_cpu} has no SMT sibling, so --busy-sibling measures nothing here; \
             leave it out, or run it on a machine with SMT"
        )),
    }
}

/// A measurement that can begin: all contenders on all workloads.
pub struct Bench {
    request: ParkRequest,
    workloads: Vec<Workload>,
    load: Load,
}

impl Bench {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// Fails if a workload has no such name, or if this machine cannot measure it.
    pub fn prepare(request: ParkRequest) -> Result<Self, String> {
        let load = load(&request)?;
        let workloads = workloads(&request)?;
        Ok(Bench { request, workloads, load })
    }

    /// Returns the names of its workloads, in their order.
    pub fn workload_names(&self) -> Vec<String> {
        self.workloads.iter().map(Workload::to_string).collect()
    }

    /// Measures, and says how many milliseconds of how many are done.
    ///
    /// # Errors
    /// Fails if a process cannot be started.
    pub fn measure(self, progress: &dyn Fn(u64, u64)) -> Result<ParkResult, String> {
        let root = Root::live();
        let mut ways = contenders();
        let mwaitx = self.request.try_mwaitx.then(try_mwaitx).transpose()?;
        if mwaitx.as_ref().is_some_and(|finding| finding.refused.is_none()) {
            ways.push(MWAITX);
        }
        let time_ms = self.time_ms(ways.len());
        let progress = &|done_ms| progress(done_ms, time_ms);
        let mut runs = Vec::new();
        for index in 0..self.request.run_count {
            let seed = self.request.settings.seed.wrapping_add(index);
            let settings = Settings {
                wake_count: self.request.settings.wake_count as usize,
                seed,
                load: self.load,
            };
            let done_ms = time_ms / self.request.run_count * index;
            progress(done_ms);
            let ticks = steal_ticks(&root);
            let load_average = load_average(&root);
            let mut measured = self.measure_once(&ways, settings, progress, done_ms);
            measured.load_average = load_average;
            measured.steal_ratio = ticks.zip(steal_ticks(&root)).map(|(before, after)| {
                let [all, stolen] =
                    [after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)];
                rounded(stolen as f64 / all.max(1) as f64)
            });
            runs.push(measured);
        }
        let doubts = self.doubts(&runs);
        let cpus = (waker_cpu() as u16, waiter_cpu() as u16);
        let machine = waiting_facts(&root, cpus.0, cpus.1).into_iter();
        Ok(ParkResult {
            program: concat!("idlewise-park-bench ", env!("CARGO_PKG_VERSION")).to_owned(),
            date: today(),
            machine: machine
                .map(|(fact, value)| MachineFact { fact: fact.to_owned(), value })
                .collect(),
            settings: self.request.settings,
            mwaitx,
            runs,
            doubts,
        })
    }

    fn measure_once(
        &self,
        ways: &[Contender],
        settings: Settings,
        progress: &dyn Fn(u64),
        mut done_ms: u64,
    ) -> ParkRun {
        let seed = settings.seed;
        let mut figures = Vec::new();
        for workload in &self.workloads {
            let span_ms = self.workload_ms(workload, ways.len());
            let share_done = |share: f64| progress(done_ms + (share * span_ms as f64) as u64);
            let measured = run(ways, workload, settings, &share_done);
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
        (self.request.settings.wake_count / 500).clamp(1, 4) as u32
    }

    fn timeout_turn(&self) -> Duration {
        Duration::from_millis((self.request.settings.wake_count / 5).clamp(20, 400))
    }

    /// The approximate time for a workload in a run.
    fn workload_ms(&self, workload: &Workload, way_count: usize) -> u64 {
        let wakes_us = self.request.settings.wake_count * workload.mean_gap_ns() / 1000;
        (wakes_us + self.request.settings.wake_count * 3) * way_count as u64 / 1000
    }

    /// The approximate total time.
    fn time_ms(&self, way_count: usize) -> u64 {
        let workloads_ms =
            self.workloads.iter().map(|one| self.workload_ms(one, way_count)).sum::<u64>();
        let trips_ms = u64::from(self.turn_count()) * 50 * way_count as u64;
        let timeouts_ms = self.timeout_turn().as_millis() as u64 * 16;
        (workloads_ms + trips_ms + timeouts_ms + 500) * self.request.run_count
    }

    fn doubts(&self, runs: &[ParkRun]) -> Vec<CountedDoubt> {
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
            if late > 0.02 && self.load == Load::Idle {
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
}

/// Tries it in a separate process, because the CPU may refuse.
fn try_mwaitx() -> Result<MwaitxFinding, String> {
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
    let itself =
        std::env::current_exe().map_err(|error| format!("this program's own file: {error}"))?;
    let output = Command::new(itself).arg(PROBE_MWAITX).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("a process to try MWAITX: {error}"))?;
    if output.status.code() == Some(REFUSED_STATUS) {
        return Ok(refused("the CPU refuses the instruction (SIGILL)".to_owned()));
    }
    if !output.status.success() {
        return Ok(refused(format!("the process that tried it ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("what the process that tried MWAITX said: {error}"))
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
