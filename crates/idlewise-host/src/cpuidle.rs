//! The idle states of a CPU as sysfs shows them (`/sys/devices/system/cpu/cpuN/cpuidle`), and as a
//! machine file (`machines/README.md`).
//!
//! sysfs tells times in whole microseconds and no flags: that a state polls, or what MWAIT is asked
//! for, is in the driver's description of it.

use serde::Serialize;

use crate::Root;

/// No driver has more: `CPUIDLE_STATE_MAX` is 10.
const STATE_COUNT_MAX: usize = 10;

/// One idle state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SysfsState {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    desc: Option<String>,
    pub(crate) exit_latency_us: u64,
    target_residency_us: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flags: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mwait_hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io_port: Option<String>,
    /// Fields that an old kernel doesn't show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inferred: Vec<&'static str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) default_disabled: bool,
}

/// What of a machine goes around its states.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct MachineHead {
    pub id: String,
    pub title: String,
    pub arch: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stepping: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    pub source: &'static str,
    pub source_ref: String,
}

/// The states of one CPU, shallowest first as the driver has them; none without a driver.
pub(crate) fn states(root: &Root, cpu: u16) -> Vec<SysfsState> {
    (0..STATE_COUNT_MAX).map_while(|index| state(root, cpu, index)).collect()
}

/// The folder of a state.
pub(crate) fn state_folder(cpu: u16, index: usize) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{index}")
}

fn state(root: &Root, cpu: u16, index: usize) -> Option<SysfsState> {
    let folder = state_folder(cpu, index);
    let text = |name: &str| root.text(&format!("{folder}/{name}"));
    let number = |name: &str| root.number(&format!("{folder}/{name}"));
    let shown = text("name")?;
    let exit_latency_us = number("latency")?;
    let desc = text("desc").filter(|desc| *desc != shown);
    // x86 and Arm call their polling state POLL, POWER calls it snooze.
    let is_polling = index == 0 && ["POLL", "snooze"].contains(&shown.as_str());
    let word_after = |words: &str| {
        let rest = desc.as_deref()?.split_once(words)?.1;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let target_residency_us = number("residency");
    Some(SysfsState {
        exit_latency_us,
        target_residency_us: target_residency_us.unwrap_or(exit_latency_us),
        flags: if is_polling { vec!["polling"] } else { Vec::new() },
        mwait_hint: word_after("MWAIT "),
        io_port: word_after("IOPORT "),
        inferred: if target_residency_us.is_none() { vec!["target_residency_us"] } else { vec![] },
        default_disabled: number("disable").is_some_and(|disabled| disabled != 0),
        // A machine file's names are words.
        name: shown.replace([' ', ',', '/'], "-"),
        desc,
    })
}

/// The exit latencies by state.
pub(crate) fn exit_latencies_ns(states: &[SysfsState]) -> Vec<u64> {
    states.iter().map(|state| state.exit_latency_us.saturating_mul(1_000)).collect()
}

/// The states as the text of a machine file.
pub(crate) fn to_toml(head: &MachineHead, states: &[SysfsState]) -> String {
    #[derive(Serialize)]
    struct MachineFile<'a> {
        #[serde(flatten)]
        head: &'a MachineHead,
        states: &'a [SysfsState],
    }
    toml::to_string(&MachineFile { head, states }).expect("plain values only")
}
