//! Conditions on what `idlewise why` counted, for continuous integration: each is judged over all CPUs.

use serde::Serialize;

use super::{WhyGroup, WhyReport, WhyState, grouped, percent, time};

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The share of stays that were too deep, over all states.
    TooDeep,
    /// The share of stays that were too shallow, over all states.
    TooShallow,
    /// The share of time in the state of that name, on the CPUs that have it.
    Residency(String),
    /// The longest exit latency of the states that were entered.
    WakeLatency,
}

/// When a condition fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As the user wrote it.
    pub text: String,
    /// What it is about.
    pub measure: Measure,
    /// Whether it fails above the limit; otherwise below.
    pub fails_above: bool,
    /// The limit: a share, or nanoseconds.
    pub limit: f64,
}

/// A condition with what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedCondition {
    condition: String,
    /// Whether it failed.
    pub failed: bool,
    /// A share, or nanoseconds.
    value: f64,
    /// The CPUs that are furthest on the wrong side.
    cpus: String,
    /// The same as a sentence.
    pub text: String,
}

impl Condition {
    /// Judges what was counted.
    ///
    /// # Errors
    /// Fails if nothing was counted that the condition is about.
    pub fn judge(&self, report: &WhyReport) -> Result<JudgedCondition, String> {
        // A stay counts when it ends, so nothing is known of CPUs on which none ended.
        let counted = report.groups.iter().filter(|group| group.has_counted());
        let groups: Vec<&WhyGroup> = counted.collect();
        let value = self.value(&groups).ok_or_else(|| {
            let names: Vec<&str> = report.rows().map(|row| row.state.name.as_str()).collect();
            match &self.measure {
                Measure::Residency(name)
                    if !names.iter().any(|one| one.eq_ignore_ascii_case(name)) =>
                {
                    format!("no CPU has a state {name}; there are {}", unique(&names))
                }
                Measure::Residency(name) => format!("no time was watched of {name}"),
                Measure::WakeLatency => "no idle state was entered".to_owned(),
                _ => "this kernel does not count misses; Linux does since 5.0".to_owned(),
            }
        });
        let value = value.map_err(|why| format!("--fail-if {}: {why}", self.text))?;
        // A group of which nothing was counted cannot be the worst.
        let alone = groups.iter().filter_map(|group| Some((self.value(&[group])?, group)));
        let worst = alone.reduce(|worst, other| {
            // The longest latency is the value, whichever side fails.
            let looks_above = self.fails_above || self.measure == Measure::WakeLatency;
            let is_worse = if looks_above { other.0 > worst.0 } else { other.0 < worst.0 };
            if is_worse { other } else { worst }
        });
        let found = match (&self.measure, worst) {
            (_, None) => String::new(),
            (Measure::WakeLatency, Some((_, group))) => {
                longest(group).map_or(String::new(), |state| {
                    format!(
                        "{}, {} was entered {} times a second on {}",
                        time(state.exit_latency_ns),
                        state.name,
                        grouped(group.rate(state)),
                        group.title()
                    )
                })
            }
            (_, Some((_, group))) if groups.len() == 1 => {
                format!("{} on {}", percent(value), group.title())
            }
            (_, Some((alone, group))) => {
                format!("{} over all CPUs, {} on {}", percent(value), percent(alone), group.title())
            }
        };
        let failed = if self.fails_above { value > self.limit } else { value < self.limit };
        let (is, holds) = if failed { ("FAILED", "holds") } else { ("passed", "does not hold") };
        let found = if found.is_empty() { found } else { format!(" ({found})") };
        Ok(JudgedCondition {
            condition: self.text.clone(),
            failed,
            value,
            cpus: worst.map_or(String::new(), |(_, group)| group.cpus.clone()),
            text: format!("{is}: {} {holds}{found}", self.text),
        })
    }

    /// The measured value over these groups. `None` if nothing was counted that it is made of.
    fn value(&self, groups: &[&WhyGroup]) -> Option<f64> {
        let states = || groups.iter().flat_map(|group| &group.states);
        let share_of_stays = |count: fn(&WhyState) -> Option<u64>| {
            let counted = states().filter_map(|state| Some((count(state)?, state.stay_count)));
            let (missed, all) = counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            (all > 0).then(|| missed as f64 / all as f64)
        };
        match &self.measure {
            Measure::TooDeep => share_of_stays(|state| state.too_deep_count),
            Measure::TooShallow => share_of_stays(|state| state.too_shallow_count),
            Measure::WakeLatency => {
                let longest = groups.iter().filter_map(|group| longest(group));
                longest.map(|state| state.exit_latency_ns as f64).reduce(f64::max)
            }
            Measure::Residency(name) => {
                let is_asked = |state: &&WhyState| state.name.eq_ignore_ascii_case(name);
                let time = |group: &&WhyGroup| {
                    let asked = group.states.iter().filter(is_asked).map(|state| state.time_ns);
                    Some((asked.reduce(u64::saturating_add)?, group.watched_ns))
                };
                let all = groups.iter().filter_map(time);
                let (time_ns, watched_ns) =
                    all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
                (watched_ns > 0).then(|| (time_ns as f64 / watched_ns as f64).min(1.0))
            }
        }
    }
}

/// Of the states that CPUs entered, the one with the longest exit latency.
fn longest(group: &WhyGroup) -> Option<&WhyState> {
    let entered = group.states.iter().filter(|state| state.stay_count > 0);
    entered.max_by_key(|state| state.exit_latency_ns)
}

fn unique(names: &[&str]) -> String {
    let is_first = |(at, name): &(usize, &&str)| !names[..*at].contains(*name);
    let unique: Vec<&str> =
        names.iter().enumerate().filter(is_first).map(|(_, name)| *name).collect();
    unique.join(", ")
}
