//! From settings to the files and values that they mean on a machine, and what the machine lacks for them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use idlewise_trace::Driver;
use rustix::fs::OFlags;

use super::SettingsError;
use super::error::file_error;
use super::setting::{CpuSet, Setting, UNLIMITED_US};
use crate::Root;
use crate::cpuidle::{in_one_word, state_folder};
use crate::note::driver;

/// The governor, as `available_governors` lists it.
pub(super) const GOVERNOR_FILE: &str = "sys/devices/system/cpu/cpuidle/current_governor";

/// The whole machine's limit. It lasts as long as the file is open.
pub(super) const MACHINE_LIMIT_FILE: &str = "dev/cpu_dma_latency";

/// No driver has more states.
const STATE_COUNT_MAX: usize = 10;

/// What settings mean on a machine.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// The value of each file, which is below the root.
    pub files: BTreeMap<String, String>,
    /// The limit of the whole machine, in microseconds.
    pub machine_limit_us: Option<u32>,
}

/// The file with a CPU's latency limit.
pub(super) fn limit_file(cpu: u16) -> String {
    format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

pub(super) fn is_limit_file(file: &str) -> bool {
    file.ends_with("/pm_qos_resume_latency_us")
}

/// Whether a setting is ever written to a file of this name.
pub(super) fn is_setting_file(file: &str) -> bool {
    let of_cpu = || {
        let (cpu, _) = file.strip_prefix("sys/devices/system/cpu/cpu")?.split_once('/')?;
        let cpu: u16 = cpu.parse().ok()?;
        let is_disable = |index| file == format!("{}/disable", state_folder(cpu, index));
        // What was parsed may have been written otherwise.
        Some(file == limit_file(cpu) || (0..STATE_COUNT_MAX).any(is_disable))
    };
    file == GOVERNOR_FILE || of_cpu() == Some(true)
}

/// A CPU's limit as sysfs writes it. There, `0` is no limit, and `n/a` is a limit of 0
/// (Documentation/ABI/testing/sysfs-devices-power). In `/dev/cpu_dma_latency`, 0 is a limit of 0.
pub(super) fn limit_value(limit: Option<Duration>) -> String {
    match limit.map(|limit| limit.as_micros()) {
        None => "0".to_owned(),
        Some(0) => "n/a".to_owned(),
        Some(us) => us.to_string(),
    }
}

/// The limit that a value means, in microseconds; the largest number if it means none.
pub(super) fn limit_us(value: &str) -> u64 {
    match value {
        "n/a" => 0,
        "0" => u64::MAX,
        us => us.parse().unwrap_or(u64::MAX),
    }
}

/// Finds out which files to write, and that each of them can be. Changes nothing.
pub(super) fn wishes(root: &Root, settings: &[Setting]) -> Result<Wishes, SettingsError> {
    let machine = Machine::read(root)?;
    let mut wishes = Wishes::default();
    for setting in settings {
        match setting {
            Setting::Governor(governor) => {
                machine.check_governor(governor)?;
                wishes.add(GOVERNOR_FILE.to_owned(), governor.clone(), setting)?;
            }
            Setting::StateDisable { cpus, state, disabled } => {
                for folder in machine.state_folders(cpus.as_ref(), state)? {
                    let value = u8::from(*disabled).to_string();
                    wishes.add(format!("{folder}/disable"), value, setting)?;
                }
            }
            Setting::LatencyLimit { cpus: None, limit: None } => {
                return Err(SettingsError::MachineLimitNone);
            }
            Setting::LatencyLimit { cpus: None, limit: Some(limit) } => {
                let us = u32::try_from(limit.as_micros()).unwrap_or(UNLIMITED_US).min(UNLIMITED_US);
                let us = wishes.machine_limit_us.map_or(us, |other| other.min(us));
                wishes.machine_limit_us = Some(us);
            }
            Setting::LatencyLimit { cpus: Some(cpus), limit } => {
                machine.check_online(cpus)?;
                for cpu in cpus.iter() {
                    wishes.add(limit_file(cpu), limit_value(*limit), setting)?;
                }
            }
        }
    }
    let limit = wishes.machine_limit_us.map(|_| MACHINE_LIMIT_FILE.to_owned());
    wishes.files.keys().chain(&limit).try_for_each(|file| check_writable(root, file))?;
    Ok(wishes)
}

impl Wishes {
    fn add(&mut self, file: String, value: String, of: &Setting) -> Result<(), SettingsError> {
        match self.files.get(&file) {
            Some(other) if *other != value && !is_limit_file(&file) => {
                let other =
                    format!("another setting of the same command (/{file} is to be {other})");
                Err(SettingsError::Contradiction { setting: of.to_string(), other })
            }
            Some(other) if limit_us(other) <= limit_us(&value) => Ok(()),
            _ => {
                self.files.insert(file, value);
                Ok(())
            }
        }
    }
}

/// The minor number of the device for the whole machine's limit, which the kernel lists whether `/dev` has it or not.
pub fn machine_limit_minor(root: &Root) -> Option<u32> {
    let devices = root.text("proc/misc")?;
    let line = devices.lines().find_map(|line| line.trim().strip_suffix(" cpu_dma_latency"))?;
    line.trim().parse().ok()
}

/// Opens a file for writing, which changes nothing.
fn check_writable(root: &Root, file: &str) -> Result<(), SettingsError> {
    match root.open_beneath(file, OFlags::WRONLY) {
        Ok(_) => Ok(()),
        Err(source) if source.kind() == ErrorKind::NotFound => {
            let why = if file == MACHINE_LIMIT_FILE && machine_limit_minor(root).is_some() {
                "the kernel has this device, but /dev lacks it, as in containers; `idlewise doctor` says \
                 how to get it"
            } else if file == MACHINE_LIMIT_FILE && root.hides("proc") {
                "/dev lacks it, and only /proc/misc could say whether the kernel has this device; as root: mount \
                 -t proc proc /proc"
            } else if is_limit_file(file) || file == MACHINE_LIMIT_FILE {
                "the kernel offers no latency limits here (PM QoS), as in containers without /dev and in \
                 kernels built without CONFIG_PM"
            } else if file == GOVERNOR_FILE {
                "before Linux 5.9 the governor can be changed only if booted with cpuidle_sysfs_switch"
            } else {
                "was the CPU put offline?"
            };
            Err(SettingsError::NoFile { path: root.path(file), why })
        }
        Err(source) => Err(file_error(root, file, source)),
    }
}

/// The CPUs that can be set, and the names of their states.
struct Machine<'a> {
    root: &'a Root,
    states: Vec<(u16, Vec<String>)>,
}

impl<'a> Machine<'a> {
    fn read(root: &'a Root) -> Result<Self, SettingsError> {
        if !matches!(driver(root), Some(Driver::Named(_))) {
            return Err(if root.hides("sys") {
                SettingsError::Hidden
            } else {
                SettingsError::NoDriver
            });
        }
        let cpus = root.online_cpus();
        if cpus.is_empty() {
            let path = root.path("sys/devices/system/cpu/online");
            return Err(SettingsError::NoCpus { path });
        }
        let names = |cpu: u16| {
            let name = |index| root.text(&format!("{}/name", state_folder(cpu, index)));
            (0..STATE_COUNT_MAX).map_while(name).collect::<Vec<_>>()
        };
        let states: Vec<_> = cpus.into_iter().map(|cpu| (cpu, names(cpu))).collect();
        match states
            .iter()
            .map(|(_, names)| names)
            .max_by_key(|names| names.len())
            .map(Vec::as_slice)
        {
            None | Some([]) => Err(SettingsError::NoDriver),
            Some([state]) => Err(SettingsError::OneState { state: state.clone() }),
            Some(_) => Ok(Machine { root, states }),
        }
    }

    fn check_governor(&self, governor: &str) -> Result<(), SettingsError> {
        let file = "sys/devices/system/cpu/cpuidle/available_governors";
        match self.root.text(file) {
            Some(known) if !known.split_whitespace().any(|known| known == governor) => {
                Err(SettingsError::NoGovernor { governor: governor.to_owned(), known })
            }
            // Old kernels don't list them. Writing tells.
            _ => Ok(()),
        }
    }

    fn check_online(&self, cpus: &CpuSet) -> Result<(), SettingsError> {
        match cpus.iter().find(|cpu| self.states.iter().all(|(online, _)| online != cpu)) {
            None => Ok(()),
            Some(cpu) => {
                let online: CpuSet = self.states.iter().map(|(cpu, _)| *cpu).collect();
                Err(SettingsError::Offline { cpu, online: online.to_string() })
            }
        }
    }

    /// The folders of a state on these CPUs, or on all that have it. Several states may have one name; `C2#3` is
    /// the one with that number.
    fn state_folders(
        &self,
        cpus: Option<&CpuSet>,
        state: &str,
    ) -> Result<Vec<String>, SettingsError> {
        if let Some(cpus) = cpus {
            self.check_online(cpus)?;
        }
        let wanted = |cpu: u16| cpus.is_none_or(|cpus| cpus.contains(cpu));
        let is_meant =
            // What is written from a machine file or a recording has its form of the name.
            |index: usize, name: &str| {
                name == state || in_one_word(name) == state || format!("{name}#{index}") == state
            };
        let of_cpu = |(cpu, names): &(u16, Vec<String>)| -> Vec<String> {
            let all = names.iter().enumerate();
            let meant = all.filter(|(index, name)| is_meant(*index, name));
            meant.map(|(index, _)| state_folder(*cpu, index)).collect()
        };
        let missing: CpuSet = self
            .states
            .iter()
            .filter(|states| wanted(states.0) && of_cpu(states).is_empty())
            .map(|(cpu, _)| *cpu)
            .collect();
        let folders: Vec<_> =
            self.states.iter().filter(|(cpu, _)| wanted(*cpu)).flat_map(of_cpu).collect();
        // On CPUs of several kinds, not all have all states.
        if folders.is_empty() || cpus.is_some() && missing.iter().next().is_some() {
            let cpus = match cpus {
                Some(_) => format!("CPUs {missing} have"),
                None => "this machine has".to_owned(),
            };
            let mut known: Vec<&str> = Vec::new();
            for name in self.states.iter().flat_map(|(_, names)| names) {
                if !known.contains(&name.as_str()) {
                    known.push(name);
                }
            }
            let (state, known) = (state.to_owned(), known.join(", "));
            return Err(SettingsError::NoState { cpus, state, known });
        }
        Ok(folders)
    }
}
