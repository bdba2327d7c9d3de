//! What can be set, and its text form.

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use idlewise_machine::{did_you_mean, nearest_name};

/// The whole machine's limit that means none: 2000 s (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
pub(super) const UNLIMITED_US: u32 = 2_000_000_000;

const EXAMPLES: &str =
    "; write governor=teo, C6=off, C6=off@4-7, latency=10us@4-7 or latency=none@4-7";

/// A setting of the machine's idle states.
///
/// ```
/// use idlewise_host::settings::Setting;
///
/// for text in ["governor=teo", "C6=off", "C6=on@4-7", "latency=10us@4-7", "latency=none@4", "latency=1ms"] {
///     let setting: Setting = text.parse().unwrap();
///     assert_eq!(setting.to_string(), text);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The governor, of the whole machine: `governor=teo`.
    Governor(String),
    /// Whether a state may be entered: `C6=off`, `C6=on@4-7`.
    StateDisable {
        /// `None`: all online CPUs that have the state.
        cpus: Option<CpuSet>,
        /// The state's name in sysfs, perhaps with its number: `C2#3`.
        state: String,
        /// Whether it is off.
        disabled: bool,
    },
    /// The longest exit latency that is allowed: `latency=10us@4-7`, `latency=none@4-7`, `latency=10us`.
    LatencyLimit {
        /// `None`: the whole machine, by `/dev/cpu_dma_latency`, as long as a process holds it open.
        cpus: Option<CpuSet>,
        /// In whole microseconds. 0 allows polling only. `None`: no limit.
        limit: Option<Duration>,
    },
}

/// Why a text is no setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {problem}{}", if problem.ends_with('?') { "" } else { EXAMPLES })]
pub struct SettingError {
    text: String,
    problem: String,
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let fail = |problem: String| SettingError { text: text.to_owned(), problem };
        // In a file, people put blanks around what they write.
        let (name, rest) = text
            .split_once('=')
            .map(|(name, rest)| (name.trim(), rest.trim()))
            .ok_or_else(|| fail("a setting has the form NAME=VALUE".to_owned()))?;
        let (value, cpus) = match rest.split_once('@') {
            Some((value, cpus)) => {
                (value.trim(), Some(cpus.trim().parse::<CpuSet>().map_err(fail)?))
            }
            None => (rest, None),
        };
        match (name, value) {
            ("", _) | (_, "") => Err(fail("name or value is missing".to_owned())),
            ("governor", _) if cpus.is_some() => {
                Err(fail("all CPUs have the same governor".to_owned()))
            }
            ("governor", governor) => Ok(Setting::Governor(governor.to_owned())),
            ("latency", limit) => {
                Ok(Setting::LatencyLimit { cpus, limit: parse_limit(limit).map_err(fail)? })
            }
            (state, "on" | "off") => Ok(Setting::StateDisable {
                cpus,
                state: state.to_owned(),
                disabled: value == "off",
            }),
            _ => Err(fail(match nearest_name(name, ["governor", "latency"]) {
                Some(meant) => format!("{name:?} is no setting; did you mean '{meant}'?"),
                None => {
                    let hint = did_you_mean(value, ["off", "on"], "");
                    let separator = if hint.is_empty() { "" } else { "; " };
                    format!("{value:?} is neither on nor off{separator}{hint}")
                }
            })),
        }
    }
}

impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = match self {
            Setting::Governor(governor) => return write!(f, "governor={governor}"),
            Setting::StateDisable { cpus, state, disabled } => {
                write!(f, "{state}={}", if *disabled { "off" } else { "on" })?;
                cpus
            }
            Setting::LatencyLimit { cpus, limit } => {
                match limit.map(|limit| limit.as_micros()) {
                    None => write!(f, "latency=none")?,
                    Some(us) if us >= 1_000 && us % 1_000 == 0 => {
                        write!(f, "latency={}ms", us / 1_000)?;
                    }
                    Some(us) => write!(f, "latency={us}us")?,
                }
                cpus
            }
        };
        cpus.as_ref().map_or(Ok(()), |cpus| write!(f, "@{cpus}"))
    }
}

/// Parses a latency limit: `10us`, `1ms`, `0us`, or `none`.
///
/// # Errors
/// Fails if it is no number of whole microseconds with its unit, or 2000 s and more.
pub fn parse_limit(text: &str) -> Result<Option<Duration>, String> {
    if text == "none" {
        return Ok(None);
    }
    let digit_count = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digit_count);
    let us_each = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return Err(format!("{text:?} is no latency; give whole microseconds, as 10us")),
    };
    let us = number.parse::<u64>().ok().and_then(|number| number.checked_mul(us_each));
    match us {
        Some(us) if us < UNLIMITED_US.into() => Ok(Some(Duration::from_micros(us))),
        _ => Err(format!("{text:?} is not below 2000s")),
    }
}

/// A set of CPUs: `4-7,12`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u16>);

impl CpuSet {
    /// Returns the CPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether the CPU is in it.
    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(&cpu)
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> Self {
        CpuSet(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u16>(), last.parse::<u16>()) {
                (Ok(first), Ok(last)) if first <= last => cpus.extend(first..=last),
                _ => return Err(format!("{text:?} is no list of CPUs, as 4-7,12")),
            }
        }
        Ok(CpuSet(cpus))
    }
}

impl Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_setting_is_named() {
        for (text, problem) in [
            ("C6", "has the form NAME=VALUE"),
            ("=off", "is missing"),
            ("C6=", "is missing"),
            ("C6=maybe", "neither on nor off"),
            ("C6=off@7-4", "no list of CPUs"),
            ("C6=off@", "no list of CPUs"),
            ("C6=off@70000", "no list of CPUs"),
            ("governor=teo@3", "the same governor"),
            ("latency=10", "give whole microseconds"),
            ("latency=us", "not below"),
            ("latency=0.5us", "give whole microseconds"),
            ("latency=2000s", "not below 2000s"),
            ("latency=99999999999999999999s", "not below 2000s"),
        ] {
            let error = text.parse::<Setting>().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn blanks_around_the_sign_are_no_part_of_a_setting() {
        for (text, tight) in [
            ("C6 = off", "C6=off"),
            ("latency= 10us@ 1-2", "latency=10us@1-2"),
            ("governor = teo ", "governor=teo"),
        ] {
            assert_eq!(text.parse::<Setting>(), tight.parse(), "{text}");
        }
    }

    #[test]
    fn sets_of_cpus_are_shown_as_ranges() {
        let shown = |text: &str| text.parse::<CpuSet>().unwrap().to_string();
        assert_eq!(shown("7,4-6,12"), "4-7,12");
        assert_eq!(shown("65535"), "65535");
    }
}
