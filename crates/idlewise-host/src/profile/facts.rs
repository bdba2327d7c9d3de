//! What a machine shows that decides what a setting does.

use idlewise_machine::boot::cpuid::Vendor;
use idlewise_trace::show_cpu_list;

use super::wishes::{Profile, parameters};
use crate::boot::{BootMachine, boot_machine};
use crate::cpuidle::state_folder;
use crate::watch::LatencyLimits;
use crate::{Root, note};

/// An idle state as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub name: String,
    pub desc: String,
    pub latency_us: u64,
    pub residency_us: Option<u64>,
    pub is_disabled: bool,
}

impl State {
    pub fn is_polling(&self) -> bool {
        ["POLL", "snooze"].contains(&self.name.as_str())
    }

    /// `C6 (170 us)`.
    pub fn with_latency(&self) -> String {
        format!("{} ({} us)", self.name, self.latency_us)
    }
}

/// The states of CPUs that have the same.
pub(super) struct Table {
    pub cpus: Vec<u16>,
    pub states: Vec<State>,
}

pub(super) struct Facts<'a> {
    pub root: &'a Root,
    pub profile: &'a Profile,
    pub cpus: Vec<u16>,
    /// One for each kind of CPU. Empty without a driver.
    pub tables: Vec<Table>,
    pub driver: Option<String>,
    pub governor: Option<String>,
    /// The running kernel's parameters.
    cmdline: Option<Vec<(String, Option<String>)>>,
    pub is_x86: bool,
    pub boot: BootMachine,
    pub hz: Option<u32>,
}

impl<'a> Facts<'a> {
    pub fn read(root: &'a Root, profile: &'a Profile) -> Self {
        let cpus = root.online_cpus();
        let mut tables: Vec<Table> = Vec::new();
        for &cpu in &cpus {
            let states = states(root, cpu);
            match tables.iter_mut().find(|table| table.states == states) {
                Some(table) => table.cpus.push(cpu),
                None => tables.push(Table { cpus: vec![cpu], states }),
            }
        }
        tables.retain(|table| !table.states.is_empty());
        let note = note(root, String::new());
        let is_x86 =
            note.arch.as_deref().is_some_and(|arch| ["x86_64", "i686", "i386"].contains(&arch));
        let mut boot = boot_machine(root, None);
        boot.set_kernel(None);
        let driver = boot.driver.clone().filter(|name| name != "none");
        let cmdline = root.text("proc/cmdline").map(|line| parameters(&line).collect());
        Facts {
            root,
            profile,
            cpus,
            tables,
            driver,
            governor: note.governor,
            cmdline,
            is_x86,
            boot,
            hz: note.hz,
        }
    }

    /// The states of the first kind of CPU.
    pub fn states(&self) -> &[State] {
        self.tables.first().map_or(&[], |table| &table.states)
    }

    /// ` on CPUs 4-7`, where CPUs differ.
    pub fn on(&self, table: &Table) -> String {
        match self.tables.len() {
            1 => String::new(),
            _ => format!(" on CPUs {}", show_cpu_list(&table.cpus)),
        }
    }

    /// The driver, in words.
    pub fn driver_name(&self) -> &str {
        self.driver.as_deref().unwrap_or("no idle driver")
    }

    pub fn is_intel(&self) -> Option<bool> {
        Some(self.boot.facts.cpu?.value.vendor == Vendor::Intel)
    }

    /// The value that the running kernel was given; the outer `None` if its command line cannot be read, the inner one if it
    /// was given none. The last counts.
    pub fn running(&self, name: &str) -> Option<Option<&str>> {
        let given = self.cmdline.as_ref()?.iter().rev().find(|(known, _)| known == name);
        Some(given.map(|(_, value)| value.as_deref().unwrap_or_default()))
    }

    /// Whether the running kernel was given this parameter with this value. `contradiction` is what the machine shows
    /// that it would not show then.
    pub fn is_booted(
        &self,
        name: &str,
        value: Option<&str>,
        contradiction: Option<String>,
    ) -> (Option<bool>, String) {
        match (self.running(name), contradiction) {
            (Some(Some(given)), None) if given == value.unwrap_or_default() => {
                (Some(true), "/proc/cmdline has it".to_owned())
            }
            (Some(Some(given)), Some(shown)) if given == value.unwrap_or_default() => {
                (Some(false), format!("/proc/cmdline has it, but {shown}"))
            }
            (Some(Some(given)), _) => (Some(false), format!("/proc/cmdline has {name}={given}")),
            (Some(None), _) => {
                (Some(false), "/proc/cmdline does not have it; it needs a reboot".to_owned())
            }
            (None, Some(shown)) => (Some(false), shown),
            (None, None) => (None, "/proc/cmdline cannot be read".to_owned()),
        }
    }

    /// The limit of the whole machine, or why it is unknown.
    pub fn machine_limit_us(&self) -> Result<Option<u64>, &'static str> {
        let limits = LatencyLimits::open(self.root, &[]);
        match limits.machine_lack() {
            Some(lack) => Err(lack.as_str()),
            None => Ok(limits.machine_ns().map(|ns| ns / 1_000)),
        }
    }
}

fn states(root: &Root, cpu: u16) -> Vec<State> {
    let state = |index| {
        let folder = state_folder(cpu, index);
        let number = |name: &str| root.number(&format!("{folder}/{name}"));
        Some(State {
            name: root.text(&format!("{folder}/name"))?,
            desc: root.text(&format!("{folder}/desc")).unwrap_or_default(),
            latency_us: number("latency")?,
            residency_us: number("residency"),
            is_disabled: number("disable").is_some_and(|disabled| disabled != 0),
        })
    };
    (0..10).map_while(state).collect()
}

/// `C1, C1E and C6`, or `no state`.
pub(super) fn names<'s>(states: impl IntoIterator<Item = &'s State>) -> String {
    let names: Vec<&str> = states.into_iter().map(|state| state.name.as_str()).collect();
    match names.as_slice() {
        [] => "no state".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
