//! The states that packages were in, by counters of the processor.

use std::io;

use idlewise_host::Root;
use idlewise_host::counters::{Base, CounterPlan, CounterSpec, Meaning, Scope};
use idlewise_probe::{PerfCounter, PerfEvent};
use idlewise_report::watch::PackageLine;

/// The counters, opened. None in most virtual machines, and without the right to count.
pub struct Packages {
    meters: Vec<Meter>,
    /// The TSC, which the others are a share of, on the CPU of each meter.
    tsc: Vec<(u16, PerfCounter, f64)>,
    lack: Option<String>,
}

struct Meter {
    place: String,
    counter: String,
    cpu: u16,
    perf: PerfCounter,
    before: f64,
}

impl Packages {
    /// Opens what there is. A captured machine has no counters to open.
    pub fn open(root: &Root) -> Self {
        let mut packages = Packages { meters: Vec::new(), tsc: Vec::new(), lack: None };
        if root.path("") != std::path::Path::new("/") {
            return packages;
        }
        let plan = CounterPlan::new(root);
        let is_wanted = |spec: &&CounterSpec| {
            spec.scope == Scope::Package && spec.meaning == Meaning::ShareOf(Base::Tsc)
        };
        for spec in plan.specs.iter().filter(is_wanted) {
            if let Err(error) = packages.add(root, spec) {
                packages.lack = Some(match error.kind() {
                    io::ErrorKind::PermissionDenied => "only root may count them".to_owned(),
                    _ => format!("{}: {error}", spec.source),
                });
            }
        }
        let tsc = plan.specs.iter().find(|spec| spec.is_base == Some(Base::Tsc));
        let mut cpus: Vec<u16> = packages.meters.iter().map(|meter| meter.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        for cpu in cpus {
            if let Some(Ok(perf)) = tsc.map(|spec| PerfCounter::open(event(spec), cpu)) {
                packages.tsc.push((cpu, perf, 0.0));
            }
        }
        if packages.meters.is_empty() && packages.lack.is_none() {
            let lack = plan.lacks.iter().find(|lack| lack.counter.contains("packages"));
            packages.lack = lack.map(|lack| lack.reason.clone());
        }
        packages
    }

    fn add(&mut self, root: &Root, spec: &CounterSpec) -> io::Result<()> {
        for &cpu in &spec.cpus {
            let perf = PerfCounter::open(event(spec), cpu)?;
            let id =
                root.text(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"));
            let counter = spec.counter.strip_prefix("package ").unwrap_or(&spec.counter);
            self.meters.push(Meter {
                place: id
                    .map_or_else(|| format!("package of CPU {cpu}"), |id| format!("package {id}")),
                counter: counter.to_owned(),
                before: 0.0,
                cpu,
                perf,
            });
        }
        Ok(())
    }

    /// Returns why nothing is known of packages, if that is so.
    pub fn lack(&self) -> Option<&str> {
        self.lack.as_deref().filter(|_| self.meters.is_empty())
    }

    /// Returns the shares of time since the last call, or since this was opened.
    pub fn lines(&mut self) -> Vec<PackageLine> {
        let tsc: Vec<(u16, f64)> = self
            .tsc
            .iter_mut()
            .filter_map(|(cpu, perf, before)| Some((*cpu, grown(perf, before)?)))
            .collect();
        let line = |meter: &mut Meter| {
            let count = grown(&meter.perf, &mut meter.before)?;
            let (_, cycles) =
                tsc.iter().find(|(cpu, cycles)| *cpu == meter.cpu && *cycles > 0.0)?;
            Some(PackageLine {
                place: meter.place.clone(),
                counter: meter.counter.clone(),
                residency_ratio: Some((count / cycles).min(1.0)),
                power_mw: None,
            })
        };
        self.meters.iter_mut().filter_map(line).collect()
    }
}

fn event(spec: &CounterSpec) -> PerfEvent {
    PerfEvent {
        type_number: spec.type_number,
        config: [spec.event.config, spec.event.config1, spec.event.config2],
    }
}

/// How much a counter grew since it was last read; `None` if it cannot be read.
fn grown(perf: &PerfCounter, before: &mut f64) -> Option<f64> {
    let now = perf.read().ok().flatten()?;
    let grown = now - *before;
    *before = now;
    (grown >= 0.0).then_some(grown)
}
