//! Reads everything that is watched, and notices when the machine changes.

use std::time::{Duration, Instant};

use idlewise_host::energy::EnergyMeter;
use idlewise_host::settings::status;
use idlewise_host::watch::{IdleTimes, Lack, LatencyLimits, Marks, allow_many_files, cpu_position};
use idlewise_host::{Counts, CountsError, CountsReader, Root, show_cpu_list};
use idlewise_report::shown_in_line;
use idlewise_report::watch::{
    CpuPlace, CpuReading, Figures, Layout, PackageLine, Reading, StateInfo, StateReading,
};

use super::packages::Packages;
use crate::error::{Failure, Result};

/// The files of a machine, opened.
pub struct Source {
    root: Root,
    /// The CPUs that the user asked for.
    wished: Option<Vec<u16>>,
    /// `None` without a cpuidle driver.
    reader: Option<CountsReader>,
    counts: Counts,
    limits: LatencyLimits,
    idle_times: Option<IdleTimes>,
    marks: Marks,
    packages: Packages,
    energy: Option<EnergyMeter>,
    /// Why there is no energy.
    energy_lack: Option<String>,
    layout: Layout,
    started: Instant,
}

impl Source {
    /// Opens the files of these CPUs, or of all that are in the machine.
    ///
    /// # Errors
    /// Fails if nothing says what CPUs do.
    pub fn open(root: Root, wished: Option<Vec<u16>>) -> Result<Self> {
        Self::open_after(root, wished, &Layout::default())
    }

    /// The same, after `known` was there.
    fn open_after(root: Root, wished: Option<Vec<u16>>, known: &Layout) -> Result<Self> {
        allow_many_files();
        let all = root.present_cpus();
        let cpus = match &wished {
            None => all,
            Some(wished) => match wished.iter().find(|cpu| !all.contains(cpu)) {
                Some(absent) if !all.is_empty() => {
                    return Err(Failure::new(format_args!(
                        "--cpus: this machine has no CPU {absent}; it has {}",
                        show_cpu_list(&all)
                    )));
                }
                _ => wished.clone(),
            },
        };
        let idle_times = IdleTimes::open(&root);
        let reader = match CountsReader::open(&root, &cpus) {
            Ok(reader) => Some(reader),
            Err(CountsError::NoDriver { .. } | CountsError::NoStates { .. })
                if idle_times.is_some() =>
            {
                None
            }
            Err(error) => return Err(Failure::new(error)),
        };
        let layout = layout(&root, &cpus, reader.as_ref(), known);
        let (energy, energy_lack) = match EnergyMeter::open(&root) {
            Ok(energy) => (Some(energy), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(Source {
            energy,
            energy_lack,
            limits: LatencyLimits::open(&root, &cpus),
            marks: Marks::open(&root),
            packages: Packages::open(&root),
            counts: Counts::default(),
            started: Instant::now(),
            layout,
            reader,
            idle_times,
            wished,
            root,
        })
    }

    /// Returns the CPUs and their states.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns what packages did since this was last asked, and their power in the figures' interval.
    pub fn package_lines(&mut self, figures: &Figures) -> Vec<PackageLine> {
        let mut lines = self.packages.lines();
        // RAPL calls it package-0, and we a part of it package-0-dram.
        let place = |domain: &String| match domain.strip_prefix("package-") {
            Some(rest) => format!("package {}", rest.replace('-', " ")),
            None => domain.clone(),
        };
        lines.extend(figures.power_mw.iter().map(|(domain, mw)| PackageLine {
            place: place(domain),
            counter: "power".to_owned(),
            residency_ratio: None,
            power_mw: Some(*mw),
        }));
        lines.sort_by(|one, other| one.place.cmp(&other.place));
        lines
    }

    /// Returns what is not known of packages, and why.
    pub fn package_lacks(&self) -> Vec<String> {
        let states = self.packages.lack().map(|lack| format!("package states: {lack}"));
        let power = self.energy_lack.as_ref().map(|lack| format!("power: {lack}"));
        states.into_iter().chain(power).collect()
    }

    /// Returns who holds the latency limits of a reading, as far as that is known: commands of idlewise, and
    /// processes that hold the machine's. It looks at every process, so it is for when limits change.
    pub fn limit_holders_of(&self, reading: &Reading) -> Vec<String> {
        let mut limits =
            reading.cpus.iter().map(|cpu| cpu.limit_ns).chain([reading.machine_limit_ns]);
        if limits.all(|limit_ns| limit_ns.is_none()) {
            return Vec::new();
        }
        let Ok(status) = status(&self.root) else { return Vec::new() };
        let machine =
            status.machine_limit_holders.iter().map(|(pid, name)| format!("{name} ({pid})"));
        let sessions = status.sessions.iter().filter_map(|session| {
            let limits: Vec<&str> = session
                .settings
                .iter()
                .map(String::as_str)
                .filter(|setting| setting.starts_with("latency="))
                .collect();
            let reason = session.reason.as_ref().map(|reason| format!(": {reason}"));
            (!limits.is_empty()).then(|| {
                format!(
                    "{} ({}) {}{}",
                    session.command,
                    session.owner.0,
                    limits.join(" "),
                    reason.unwrap_or_default()
                )
            })
        });
        machine.chain(sessions).map(|holder| shown_in_line(&holder).into_owned()).collect()
    }

    /// Returns why the limit of the whole machine cannot be read, if so.
    pub fn machine_limit_lack(&self) -> Option<Lack> {
        self.limits.machine_lack()
    }

    /// Returns whether anything says how long CPUs were idle in all.
    pub fn knows_idle_times(&self) -> bool {
        self.idle_times.is_some()
    }

    /// Opens everything again if the driver or the CPUs changed. Returns whether the layout is another one, so that
    /// earlier readings do not fit.
    ///
    /// # Errors
    /// Fails if nothing says any more what CPUs do.
    pub fn follow(&mut self) -> Result<bool> {
        let states = self.layout.cpus.iter().map(|place| place.states.len());
        let is_stale = match &self.reader {
            Some(reader) => {
                // A CPU that lost its states has none in the reader.
                let read = |index| reader.states(index).len();
                states.enumerate().any(|(index, count)| read(index) != count && read(index) > 0)
            }
            None => false,
        };
        if !self.marks.have_changed() && !is_stale {
            return Ok(false);
        }
        let opened = Source::open_after(self.root.clone(), self.wished.clone(), &self.layout)?;
        let is_another = opened.layout.cpus != self.layout.cpus;
        let started = self.started;
        *self = Source { started, ..opened };
        Ok(is_another)
    }

    /// Reads all counters. The memory of `into` is used again.
    pub fn read(&mut self, into: &mut Reading) {
        let layout = &self.layout;
        into.states.clear();
        into.cpus.clear();
        into.cpus.resize(layout.cpus.len(), CpuReading::default());
        match &mut self.reader {
            Some(reader) => {
                reader.read_again(&mut self.counts);
                into.at_ns = nanoseconds(self.counts.at);
                let cpus = self.counts.cpus.iter().zip(&layout.cpus).zip(&mut into.cpus);
                for ((counts, place), cpu) in cpus {
                    cpu.is_readable = counts.is_online && counts.states.len() == place.states.len();
                    let first = into.states.len();
                    into.states.resize(first + place.states.len(), StateReading::default());
                    for (state, counted) in into.states[first..].iter_mut().zip(&counts.states) {
                        *state = StateReading {
                            entry_count: counted.usage,
                            residency_ns: counted.time_us.saturating_mul(1_000),
                            too_deep_count: counted.above,
                            too_shallow_count: counted.below,
                            rejected_count: counted.rejected,
                            is_disabled: counted.is_disabled,
                        };
                    }
                }
            }
            None => into.at_ns = nanoseconds(self.started.elapsed()),
        }
        let has_states = self.reader.is_some();
        if let Some(times) = &mut self.idle_times {
            times.read(|cpu, idle_ns| {
                // In order, so this is where it is unless CPUs were left out.
                let at = match layout.cpus.get(usize::from(cpu)) {
                    Some(place) if place.cpu == cpu => Some(usize::from(cpu)),
                    _ => layout.cpus.binary_search_by_key(&cpu, |place| place.cpu).ok(),
                };
                if let Some(at) = at {
                    into.cpus[at].idle_ns = Some(idle_ns);
                    into.cpus[at].is_readable |= !has_states;
                }
            });
        }
        for (index, cpu) in into.cpus.iter_mut().enumerate() {
            cpu.limit_ns = self.limits.cpu_ns(index);
        }
        into.machine_limit_ns = self.limits.machine_ns();
        self.read_energy(into);
    }

    fn read_energy(&mut self, into: &mut Reading) {
        let Some(meter) = &mut self.energy else { return into.energy_uj.clear() };
        if into.energy_uj.len() != meter.domains().len() {
            into.energy_uj.clear();
            let names =
                meter.domains().iter().map(|domain| shown_in_line(&domain.name).into_owned());
            into.energy_uj.extend(names.map(|name| (name, 0.0)));
        }
        match meter.read_uj() {
            Ok(counts) => {
                for ((_, uj), count) in into.energy_uj.iter_mut().zip(counts) {
                    *uj = *count as f64;
                }
            }
            Err(error) => {
                into.energy_uj.clear();
                self.energy_lack = Some(error.to_string());
                self.energy = None;
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A CPU that is offline does not say where it is, and on some machines loses its states: they are as `known`.
fn layout(root: &Root, cpus: &[u16], reader: Option<&CountsReader>, known: &Layout) -> Layout {
    let online = root.online_cpus();
    let place = |(index, &cpu): (usize, &u16)| {
        let position = cpu_position(root, cpu);
        let states = reader.map(|reader| reader.states(index)).unwrap_or_default().iter();
        let info = |state: &idlewise_machine::MachineState| StateInfo {
            name: shown_in_line(&state.name).into_owned(),
            exit_latency_ns: state.exit_latency_ns,
            target_residency_ns: state.target_residency_ns,
        };
        let known = known.cpus.iter().find(|known| known.cpu == cpu);
        let mut states: Vec<StateInfo> = states.map(info).collect();
        if states.is_empty() && reader.is_some() && !online.contains(&cpu) {
            states = known.map(|known| known.states.clone()).unwrap_or_default();
        }
        CpuPlace {
            cpu,
            package: position.package.or(known.and_then(|known| known.package)),
            core: position.core.or(known.and_then(|known| known.core)),
            cache: position.cache.or(known.and_then(|known| known.cache)),
            states,
        }
    };
    let mut layout = Layout::new(cpus.iter().enumerate().map(place).collect());
    let text = |name: &str| root.text(name).map(|text| shown_in_line(&text).into_owned());
    let folder = "sys/devices/system/cpu/cpuidle";
    layout.driver = text(&format!("{folder}/current_driver")).filter(|_| reader.is_some());
    layout.governor = text(&format!("{folder}/current_governor"))
        .or_else(|| text(&format!("{folder}/current_governor_ro")))
        .filter(|_| reader.is_some());
    layout.kernel = text("proc/sys/kernel/osrelease");
    layout
}
