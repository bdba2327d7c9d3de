//! What `idlewise measure park` measured, as it is saved: every judgement and every table follows from it.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::CountedDoubt;

/// The number of the shape of a saved measurement, which `--json` prints too; one of another shape is
/// refused.
pub const RESULT_SCHEMA: u32 = 1;

/// A whole measurement: several runs, each of all ways to park on all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkResult {
    /// The program that measured, and its version.
    pub program: String,
    /// When it began, in days of UTC: `2026-11-22`.
    pub date: String,
    /// What the machine is, in the order in which it is shown.
    pub machine: Vec<MachineFact>,
    /// How it was measured.
    pub settings: ParkSettings,
    /// What MWAITX does here, if that was asked for.
    pub mwaitx: Option<MwaitxFinding>,
    /// The runs.
    pub runs: Vec<ParkRun>,
    /// Reasons to distrust it.
    pub doubts: Vec<CountedDoubt>,
}

/// Something about the machine that can matter to waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFact {
    /// What it is about.
    pub fact: String,
    /// What the machine shows; `None` if it shows nothing.
    pub value: Option<String>,
}

/// How it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkSettings {
    /// Wakes of each way, on each workload, in each run.
    pub wake_count: u64,
    /// Seed of the first run; each further one has the next number.
    pub seed: u64,
    /// A busy thread ran on each CPU.
    pub oversubscribed: bool,
    /// A busy thread ran on the sibling of the waiter's CPU.
    pub busy_sibling: bool,
}

/// What MWAITX did in a process that was started to try it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MwaitxFinding {
    /// Why there is nothing to measure, if so.
    pub refused: Option<String>,
    /// How long MONITORX took.
    pub monitor_ns: Option<f64>,
    /// How long a wait took that nobody ended.
    pub wait_ns: Option<f64>,
    /// What share of its timer that was.
    pub timer_ratio: Option<f64>,
    /// How long CPUID took.
    pub cpuid_ns: Option<f64>,
    /// Whether a wait lasts until its timer.
    pub waits: bool,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkRun {
    /// Seed of its schedules and orders.
    pub seed: u64,
    /// The machine's load average over a minute when it began: what others did.
    pub load_average: Option<f64>,
    /// Share of the CPUs' time that the hypervisor gave to others.
    pub steal_ratio: Option<f64>,
    /// Each workload.
    pub workloads: Vec<ParkWorkload>,
    /// Round trips with more threads than CPUs.
    pub round_trips: Vec<RoundTrips>,
    /// Calls that wait for nobody.
    pub calls: Vec<CallFigures>,
    /// Waits that end by their timeout.
    pub timeouts: Vec<TimeoutFigures>,
}

/// One workload of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkWorkload {
    /// Its name.
    pub workload: String,
    /// The mean time between its wakes.
    pub mean_gap_ns: u64,
    /// Each way.
    pub ways: Vec<ParkFigures>,
}

/// What one way to park did on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkFigures {
    /// Its name.
    pub way: String,
    /// Which part it has in the goals.
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
    /// Median of the waker's cost where the waiter slept.
    pub sleeper_send_cost_ns: f64,
    /// The waiter's CPU time as a share of time.
    pub cpu_ratio: f64,
    /// The waiter's context switches for each wake.
    pub switches_per_wake: f64,
    /// Share of the wakes that the waker itself sent late.
    pub late_ratio: f64,
}

/// Which part a way to park has in the goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkRole {
    /// The one that is judged.
    Ours,
    /// The one whose sleep is the measure.
    Futex,
    /// One of those whose front it must not be behind.
    FixedSpin,
    /// Another library's, or an instruction alone.
    Other,
}

/// Round trips of one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundTrips {
    /// Its name.
    pub way: String,
    /// Of all pairs of threads in a second.
    pub round_trips_per_s: f64,
}

/// What a call cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallFigures {
    /// The call.
    pub call: String,
    /// Whose.
    pub way: String,
    /// Nanoseconds for each.
    pub cost_ns: f64,
}

/// What waits for timeouts cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutFigures {
    /// The pattern of timeouts and wakes.
    pub pattern: String,
    /// Whose parker.
    pub way: String,
    /// CPU time as a share of time.
    pub cpu_ratio: f64,
}

impl ParkResult {
    /// Reads a saved measurement.
    ///
    /// # Errors
    /// A sentence that says what is wrong, if it is none, or of another format.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let document: serde_json::Value =
            serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let mut fields = document.as_object().cloned().unwrap_or_default();
        // What follows from the rest is not read: judgements, and that all is measured.
        for derived in ["goals", "bases", "basis"] {
            fields.remove(derived);
        }
        // Measurements were saved with a `format` before there was a `schema`.
        let schema = fields.remove("schema").or_else(|| fields.remove("format"));
        match schema.and_then(|schema| schema.as_u64()) {
            Some(schema) if schema == u64::from(RESULT_SCHEMA) => {}
            Some(schema) => {
                return Err(format!("its schema is {schema}; this idlewise reads {RESULT_SCHEMA}"));
            }
            None => {
                return Err("not a measurement of `idlewise measure park --page`".to_owned());
            }
        }
        // And doubts as sentences alone.
        for doubt in
            fields.get_mut("doubts").and_then(|doubts| doubts.as_array_mut()).into_iter().flatten()
        {
            if doubt.is_string() {
                *doubt = json!({ "doubt": doubt.take(), "count": 1 });
            }
        }
        let result: ParkResult = serde_json::from_value(serde_json::Value::Object(fields))
            .map_err(|error| format!("not a whole measurement: {error}"))?;
        if result.runs.is_empty() {
            return Err("it has no runs".to_owned());
        }
        Ok(result)
    }

    /// The workloads' names, as in the first run.
    pub fn workloads(&self) -> impl Iterator<Item = &ParkWorkload> {
        self.runs.first().into_iter().flat_map(|run| &run.workloads)
    }
}
