//! What `idlewise why` found, for the textfile collector of Prometheus's node_exporter.
//!
//! Groups of CPUs that behaved alike change from run to run, and labels must not. So figures are those of all CPUs whose
//! cores are of one kind. They are shares and rates of the watched time; `watch --serve` has counters.

use super::{WhyGroup, WhyReport, WhyState};
use crate::watch::{Family, Form, Writer, gauge, label, sum_of};

const KIND: &[&str] = &["core_kind"];
const STATE: &[&str] = &["core_kind", "state"];

const RESIDENCY: Family =
    gauge("idlewise_why_state_residency_ratio", STATE, "Share of time requested in an idle state.");
const STAYS: Family = gauge(
    "idlewise_why_state_stays_per_second",
    STATE,
    "Stays in an idle state that ended, a second and CPU.",
);
const STATE_TOO_DEEP: Family = gauge(
    "idlewise_why_state_too_deep_ratio",
    STATE,
    "Share of a state's stays that were too short for it.",
);
const STATE_TOO_SHALLOW: Family = gauge(
    "idlewise_why_state_too_shallow_ratio",
    STATE,
    "Share of a state's stays that were long enough for a deeper state.",
);
const REFUSED: Family = gauge(
    "idlewise_why_state_refused_per_second",
    STATE,
    "Refused requests for an idle state, a second and CPU.",
);
const WAITING: Family = gauge(
    "idlewise_why_state_waiting_ratio",
    STATE,
    "Stays times exit latency as a share of time: the most that wake-ups can have waited for exits.",
);
const EXIT_LATENCY: Family = gauge(
    "idlewise_why_state_exit_latency_seconds",
    STATE,
    "Exit latency of an idle state, the longest if CPUs differ.",
);
const TOO_DEEP: Family =
    gauge("idlewise_why_too_deep_ratio", KIND, "Share of all stays that were too deep.");
const TOO_SHALLOW: Family =
    gauge("idlewise_why_too_shallow_ratio", KIND, "Share of all stays that were too shallow.");
const CPUS: Family = gauge("idlewise_why_cpus", KIND, "CPUs of which something was counted.");
const FINDINGS: Family = gauge(
    "idlewise_why_findings",
    &["kind"],
    "Findings of idlewise why: states in which wake-ups wait, that are refused, or that are too shallow.",
);
const WATCHED: Family =
    gauge("idlewise_why_watched_seconds", &[], "For how long idlewise why watched.");
const TIMESTAMP: Family =
    gauge("idlewise_why_timestamp_seconds", &[], "When it ended, as Unix time.");

/// The counts of a state, or of all states, over all groups of a kind of cores.
#[derive(Default)]
struct Sum<'a> {
    kind: &'a str,
    name: &'a str,
    /// The time that its CPUs were watched.
    watched_ns: u64,
    time_ns: u64,
    stay_count: u64,
    too_deep_count: Option<u64>,
    too_shallow_count: Option<u64>,
    rejected_count: Option<u64>,
    waiting_ns: f64,
    exit_latency_ns: u64,
}

impl Sum<'_> {
    fn add(&mut self, group: &WhyGroup, state: &WhyState) {
        self.watched_ns = self.watched_ns.saturating_add(group.watched_ns);
        self.time_ns = self.time_ns.saturating_add(state.time_ns);
        self.stay_count = self.stay_count.saturating_add(state.stay_count);
        self.too_deep_count = sum_of(self.too_deep_count, state.too_deep_count);
        self.too_shallow_count = sum_of(self.too_shallow_count, state.too_shallow_count);
        self.rejected_count = sum_of(self.rejected_count, state.rejected_count);
        self.waiting_ns += group.waiting_ratio(state) * group.watched_ns as f64;
        self.exit_latency_ns = self.exit_latency_ns.max(state.exit_latency_ns);
    }

    fn seconds(&self) -> f64 {
        self.watched_ns.max(1) as f64 / 1e9
    }

    /// A share of the stays.
    fn share(&self, count: Option<u64>) -> Option<f64> {
        (self.stay_count > 0).then(|| count.map(|count| count as f64 / self.stay_count as f64))?
    }
}

fn kind(group: &WhyGroup) -> &str {
    group.core.as_deref().unwrap_or("all")
}

impl WhyReport {
    /// Returns the text of a file `*.prom`. What is not known has no sample.
    pub fn to_textfile(&self, unix_s: f64) -> String {
        // Nothing is known of CPUs on which no stay ended.
        let groups: Vec<&WhyGroup> =
            self.groups.iter().filter(|group| group.has_counted()).collect();
        let mut sums: Vec<Sum<'_>> = Vec::new();
        let mut kinds: Vec<(Sum<'_>, usize)> = Vec::new();
        for group in &groups {
            let kind = kind(group);
            let place =
                kinds.iter().position(|(known, _)| known.kind == kind).unwrap_or_else(|| {
                    kinds.push((Sum { kind, ..Sum::default() }, 0));
                    kinds.len() - 1
                });
            kinds[place].1 += group.cpu_count;
            for state in &group.states {
                kinds[place].0.add(group, state);
                let is_it = |sum: &Sum<'_>| sum.kind == kind && sum.name == state.name;
                let sum = sums.iter().position(is_it).unwrap_or_else(|| {
                    sums.push(Sum { kind, name: &state.name, ..Sum::default() });
                    sums.len() - 1
                });
                sums[sum].add(group, state);
            }
        }
        let mut text = String::new();
        let mut writer = Writer::new(&mut text, Form::Prometheus);
        type OfSum = fn(&Sum<'_>) -> Option<f64>;
        let of_states: [(&Family, OfSum); 7] = [
            (&RESIDENCY, |sum| Some((sum.time_ns as f64 / 1e9 / sum.seconds()).min(1.0))),
            (&STAYS, |sum| Some(sum.stay_count as f64 / sum.seconds())),
            (&STATE_TOO_DEEP, |sum| sum.share(sum.too_deep_count)),
            (&STATE_TOO_SHALLOW, |sum| sum.share(sum.too_shallow_count)),
            (&REFUSED, |sum| Some(sum.rejected_count? as f64 / sum.seconds())),
            (&WAITING, |sum| Some(sum.waiting_ns / 1e9 / sum.seconds())),
            (&EXIT_LATENCY, |sum| Some(sum.exit_latency_ns as f64 / 1e9)),
        ];
        for (family, value) in of_states {
            let labels = |sum: &Sum<'_>| {
                format!("core_kind=\"{}\",state=\"{}\"", label(sum.kind), label(sum.name))
            };
            writer.family(family, sums.iter().filter_map(|sum| Some((labels(sum), value(sum)?))));
        }
        let of_kinds: [(&Family, OfSum); 2] = [
            (&TOO_DEEP, |sum| sum.share(sum.too_deep_count)),
            (&TOO_SHALLOW, |sum| sum.share(sum.too_shallow_count)),
        ];
        let labels = |sum: &Sum<'_>| format!("core_kind=\"{}\"", label(sum.kind));
        for (family, value) in of_kinds {
            let samples = kinds.iter().filter_map(|(sum, _)| Some((labels(sum), value(sum)?)));
            writer.family(family, samples);
        }
        writer.family(&CPUS, kinds.iter().map(|(sum, count)| (labels(sum), *count as f64)));
        let findings = self.findings();
        let count = |kind: &str| findings.iter().filter(|one| one.kind == kind).count() as f64;
        let samples = FINDING_KINDS.iter().map(|kind| (format!("kind=\"{kind}\""), count(kind)));
        writer.family(&FINDINGS, samples);
        let alone = |value: f64| std::iter::once((String::new(), value));
        writer.family(&WATCHED, alone(self.elapsed_ns as f64 / 1e9));
        writer.family(&TIMESTAMP, alone(unix_s));
        text
    }
}

/// The kinds of findings.
const FINDING_KINDS: [&str; 3] = ["waits", "refused", "too-shallow"];
