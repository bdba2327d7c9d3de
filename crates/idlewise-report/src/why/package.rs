//! What keeps a package out of its deep states, as far as counters tell.
//!
//! A package enters a deep state only while each of its CPUs is in a state that allows it. So a CPU that asked for its
//! deepest state for 2 % of the time keeps the package out of what needs it for the other 98 %. If all CPUs ask for it, counters do not tell whether they
//! did at the same time, nor what devices and the firmware allowed.

use serde::Serialize;

use super::{percent, time};

/// A package that enters deep states for at least this share of the time is not kept out.
const DEEP_MIN: f64 = 0.5;
/// A CPU that asks for its deepest state for less than this share of the time is named.
const ASKED_MIN: f64 = 0.5;

/// A CPU of a package.
#[derive(Clone, Debug)]
pub struct PackageCpu {
    /// Its number.
    pub cpu: u16,
    /// The name of its deepest state.
    pub deepest: String,
    /// The exit latency of that state.
    pub exit_latency_ns: u64,
    /// Whether somebody disabled it.
    pub is_disabled: bool,
    /// The limit of exit latencies.
    pub latency_limit_ns: Option<u64>,
    /// The share of time for which the kernel asked for it.
    pub asked_ratio: f64,
}

/// A package: the states it was in by its own counters, shallowest first, and its CPUs.
#[derive(Clone, Debug, Default)]
pub struct WhyPackage {
    /// Its name, such as `package 0`.
    pub name: String,
    /// States with their shares of time.
    pub states: Vec<PackageState>,
    /// Its CPUs.
    pub cpus: Vec<PackageCpu>,
}

/// A state of a package.
#[derive(Clone, Debug, Serialize)]
pub struct PackageState {
    /// Its name, such as `C6`.
    pub state: String,
    /// The share of time that the package was in it.
    pub residency_ratio: f64,
}

impl WhyPackage {
    /// The time in states deeper than C2.
    fn deep_ratio(&self) -> f64 {
        let deep = self.states.iter().filter(|state| state.state != "C2");
        deep.map(|state| state.residency_ratio).sum()
    }

    /// Why it is not in its deep states for longer; `None` if it is there for most of the time.
    pub fn reason(&self) -> Option<String> {
        if self.deep_ratio() >= DEEP_MIN {
            return None;
        }
        if let Some(cpu) = self.cpus.iter().find(|cpu| cpu.is_disabled) {
            return Some(format!(
                "{} is disabled on CPU {}, so the package cannot enter states that need it",
                cpu.deepest, cpu.cpu
            ));
        }
        let limited = |cpu: &&PackageCpu| {
            cpu.latency_limit_ns.is_some_and(|limit_ns| limit_ns < cpu.exit_latency_ns)
        };
        if let Some(cpu) = self.cpus.iter().find(limited) {
            return Some(format!(
                "a latency limit of {} on CPU {} forbids {}, which takes {} to leave",
                time(cpu.latency_limit_ns.unwrap_or_default()),
                cpu.cpu,
                cpu.deepest,
                time(cpu.exit_latency_ns)
            ));
        }
        let least = self.cpus.iter().min_by(|a, b| a.asked_ratio.total_cmp(&b.asked_ratio))?;
        Some(match least.asked_ratio < ASKED_MIN {
            true => format!(
                "CPU {} asked for {} {} of the time, and package states that need it need it on all CPUs",
                least.cpu,
                least.deepest,
                percent(least.asked_ratio)
            ),
            false => format!(
                "counters do not tell why: each CPU asked for its deepest state at least {} of the time, perhaps not at \
                 once, and devices and the firmware are not counted",
                percent(least.asked_ratio)
            ),
        })
    }

    /// What it did, in a line.
    fn did(&self) -> String {
        let states = self.states.iter();
        let states =
            states.map(|state| format!("{} {}", state.state, percent(state.residency_ratio)));
        format!(
            "By its own counters, {} was in {} of the time",
            self.name,
            states.collect::<Vec<_>>().join(", ")
        )
    }
}

/// At most two lines, about the package that is in deep states for the least time.
pub(super) fn sentences(packages: &[WhyPackage]) -> Vec<String> {
    let worst = packages.iter().min_by(|a, b| a.deep_ratio().total_cmp(&b.deep_ratio()));
    let Some(worst) = worst else { return Vec::new() };
    let mut lines = vec![format!("{}.", worst.did())];
    if let Some(reason) = worst.reason() {
        let mut letters = reason.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        lines.push(format!("{}{}.", first.map_or(String::new(), String::from), letters.as_str()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(deep_ratio: f64) -> WhyPackage {
        let state = |state: &str, residency_ratio| PackageState {
            state: state.to_owned(),
            residency_ratio,
        };
        let cpu = |cpu, asked_ratio| PackageCpu {
            cpu,
            deepest: "C10".to_owned(),
            exit_latency_ns: 230_000,
            is_disabled: false,
            latency_limit_ns: None,
            asked_ratio,
        };
        WhyPackage {
            name: "package 0".to_owned(),
            states: vec![state("C2", 0.4), state("C10", deep_ratio)],
            cpus: vec![cpu(0, 0.97), cpu(1, 0.95), cpu(5, 0.02)],
        }
    }

    #[test]
    fn names_the_cpu_that_asks_least() {
        let found = sentences(&[package(0.9), package(0.01)]);
        let expected = [
            "By its own counters, package 0 was in C2 40 %, C10 1.0 % of the time.",
            "CPU 5 asked for C10 2.0 % of the time, and package states that need it need it on all CPUs.",
        ];
        assert_eq!(found, expected);
        assert_eq!(sentences(&[package(0.9)]).len(), 1, "it is not kept out");
        assert!(sentences(&[]).is_empty());
    }

    #[test]
    fn a_setting_that_forbids_the_state_comes_first() {
        let mut package = package(0.0);
        package.cpus[1].latency_limit_ns = Some(50_000);
        let expected = "a latency limit of 50 us on CPU 1 forbids C10, which takes 230 us to leave";
        assert_eq!(package.reason().unwrap(), expected);
        package.cpus[1].latency_limit_ns = Some(230_000);
        assert!(package.reason().unwrap().starts_with("CPU 5 asked for C10"));
        package.cpus[0].is_disabled = true;
        assert!(package.reason().unwrap().starts_with("C10 is disabled on CPU 0, "));
    }

    #[test]
    fn says_that_counters_do_not_tell() {
        let mut package = package(0.1);
        package.cpus.pop();
        let reason = package.reason().unwrap();
        assert!(reason.starts_with(
            "counters do not tell why: each CPU asked for its deepest state at least 95 %"
        ));
        package.cpus.clear();
        assert_eq!(package.reason(), None, "nothing is known of its CPUs");
    }
}
