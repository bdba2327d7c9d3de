//! The saved measurements, from which all tables and verdicts follow.

use serde::{Deserialize, Serialize};

use idlewise_report::CountedDoubt;
use idlewise_report::saved::MachineFact;

/// The version of the saved form, which `--json` prints too. Other versions are rejected.
pub const RESULT_SCHEMA: u32 = 1;

/// A whole measurement: several runs of all ways to park on all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkResult {
    /// The program that measured, with its version.
    pub program: String,
    /// The UTC date of its beginning: `2026-11-22`.
    pub date: String,
    /// Facts about the machine, in display order.
    pub machine: Vec<MachineFact>,
    /// How it was measured.
    pub settings: ParkSettings,
    /// What MWAITX does on the machine, if that was requested.
    pub mwaitx: Option<MwaitxFinding>,
    /// The runs.
    pub runs: Vec<ParkRun>,
    /// Reasons to distrust it.
    pub doubts: Vec<CountedDoubt>,
}

/// The settings of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkSettings {
    /// Wakes of each way to park on each workload in each run.
    pub wake_count: u64,
    /// Seed of the first run. Each further run adds 1.
    pub seed: u64,
    /// Whether a busy thread ran on each CPU.
    pub oversubscribed: bool,
    /// Whether a busy thread ran on the SMT sibling of the waiter's CPU.
    pub busy_sibling: bool,
}

/// What MWAITX did in a process that was started to try it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MwaitxFinding {
    /// The reason if it could not be measured.
    pub refused: Option<String>,
    /// The time of a MONITORX.
    pub monitor_ns: Option<f64>,
    /// The time of a wait that was not woken.
    pub wait_ns: Option<f64>,
    /// The fraction of its timer that this wait lasted.
    pub timer_ratio: Option<f64>,
    /// The time of a CPUID.
    pub cpuid_ns: Option<f64>,
    /// Whether a wait lasts until its timer.
    pub waits: bool,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkRun {
    /// The seed of its schedules and orders.
    pub seed: u64,
    /// The machine's one-minute load average at the beginning, caused by other programs.
    pub load_average: Option<f64>,
    /// The share of the CPUs' time that the hypervisor gave to others.
    pub steal_ratio: Option<f64>,
    /// The results on each workload.
    pub workloads: Vec<ParkWorkload>,
    /// Round trips with more threads than CPUs.
    pub round_trips: Vec<RoundTrips>,
    /// Calls that do not wait.
    pub calls: Vec<CallFigures>,
    /// Waits that time out.
    pub timeouts: Vec<TimeoutFigures>,
}

/// The results of a run on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkWorkload {
    /// Its name.
    pub workload: String,
    /// The mean time between its wakes.
    pub mean_gap_ns: u64,
    /// The results of each way to park.
    pub ways: Vec<ParkFigures>,
}

/// The results of one way to park on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkFigures {
    /// Its name.
    pub way: String,
    /// Its role in the goals.
    pub role: ParkRole,
    /// Median of the wake latency.
    pub wake_latency_p50_ns: f64,
    /// Mean of the 99 % shortest wake latencies.
    pub wake_latency_mean_ns: f64,
    /// 99th percentile of the wake latency.
    pub wake_latency_p99_ns: f64,
    /// 99.9th percentile of the wake latency.
    pub wake_latency_p999_ns: f64,
    /// Median of the waker's cost.
    pub send_cost_p50_ns: f64,
    /// Median of the waker's cost when the waiter slept.
    pub sleeper_send_cost_ns: f64,
    /// The waiter's CPU time as a share of elapsed time.
    pub cpu_ratio: f64,
    /// The waiter's context switches per wake.
    pub switches_per_wake: f64,
    /// The share of wakes that the waker sent late.
    pub late_ratio: f64,
}

/// The role of a way to park in the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkRole {
    /// The one that is judged: ours.
    Ours,
    /// The one whose sleep is the reference.
    Futex,
    /// A fixed spin. Ours must not be behind their Pareto front.
    FixedSpin,
    /// Another library's, or a single instruction.
    Other,
}

/// The round trips of a way to park.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrips {
    /// Its name.
    pub way: String,
    /// Round trips per second of all pairs of threads together.
    pub round_trips_per_s: f64,
}

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFigures {
    /// The call.
    pub call: String,
    /// The library.
    pub way: String,
    /// Nanoseconds per call.
    pub cost_ns: f64,
}

/// The cost of waiting for timeouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutFigures {
    /// The pattern of timeouts and wakes.
    pub pattern: String,
    /// The library whose parker was measured.
    pub way: String,
    /// CPU time as a share of elapsed time.
    pub cpu_ratio: f64,
}

impl ParkResult {
    /// Parses a saved measurement.
    ///
    /// # Errors
    /// Returns a sentence that says what is wrong, if the text is not one or has another version.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let document: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let mut fields = document.as_object().cloned().unwrap_or_default();
        // Values that are derived from the rest are not read: verdicts and bases.
        for derived in ["goals", "bases", "basis", "measurement", "run_count", "series"] {
            fields.remove(derived);
        }
        match fields.remove("schema").and_then(|schema| schema.as_u64()) {
            Some(schema) if schema == u64::from(RESULT_SCHEMA) => {}
            Some(schema) => {
                return Err(format!("its schema is {schema}; this idlewise reads {RESULT_SCHEMA}"));
            }
            None => {
                return Err("not a measurement of idlewise-park-bench".to_owned());
            }
        }
        let result: ParkResult = serde_json::from_value(serde_json::Value::Object(fields))
            .map_err(|error| format!("not a whole measurement: {error}"))?;
        if result.runs.is_empty() {
            return Err("it has no runs".to_owned());
        }
        Ok(result)
    }

    /// Returns the first run's workloads.
    pub fn workloads(&self) -> impl Iterator<Item = &ParkWorkload> {
        self.runs.first().into_iter().flat_map(|run| &run.workloads)
    }
}
