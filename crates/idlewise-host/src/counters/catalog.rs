//! The counters that say what idle CPUs do, and which of them a machine has.

use super::pmu::{Event, Pmu};
use crate::note::CpuInfo;
use crate::{Root, is_virtual_machine};

/// What a counter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each CPU.
    Cpu,
    /// Each core.
    Core,
    /// Each module or die: a group of cores.
    Module,
    /// Each package.
    Package,
}

/// What a count means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// Cycles; a share of those of another counter on the same CPU.
    ShareOf(Base),
    /// Energy: microjoules for each count.
    Energy(f64),
    /// Events.
    Events,
    /// Cycles that say nothing by themselves.
    Cycles,
}

/// The cycles that others are a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// Of the TSC, which never stops: all time.
    Tsc,
    /// Of the TSC while the CPU is in C0 (MPERF).
    Mperf,
    /// Of the CPU while it is not halted.
    Unhalted,
}

/// A counter to open on each of its CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterSpec {
    /// Its name for users.
    pub counter: String,
    /// Its name for perf.
    pub source: String,
    /// What it is about.
    pub scope: Scope,
    /// What a count means.
    pub meaning: Meaning,
    /// Whether others are a share of it.
    pub is_base: Option<Base>,
    /// The number of the unit that counts.
    pub type_number: u32,
    /// The event.
    pub event: Event,
    /// Where to open it.
    pub cpus: Vec<u16>,
}

/// Something that the machine does not count, or does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What it is.
    pub counter: String,
    /// Why it is absent.
    pub reason: String,
}

/// All counters of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterPlan {
    /// Those that exist.
    pub specs: Vec<CounterSpec>,
    /// Those that do not.
    pub lacks: Vec<Lack>,
}

/// A unit of which all events of a kind are wanted.
struct UnitRow {
    pmu: &'static str,
    scope: Scope,
    /// What is lost where the unit is absent.
    about: &'static str,
    /// Names of events and of their counters.
    events: &'static [(&'static str, &'static str, EventMeaning)],
}

#[derive(Clone, Copy)]
enum EventMeaning {
    Tsc,
    ShareOfTsc,
    ShareOfMperf,
    Energy,
    Events,
}

use EventMeaning::{Energy, Events, ShareOfMperf, ShareOfTsc, Tsc};

/// The units whose events sysfs names, in the order in which they are shown.
const UNITS: [UnitRow; 9] = [
    UnitRow {
        pmu: "msr",
        scope: Scope::Cpu,
        about: "running time and frequency (TSC, MPERF, APERF)",
        events: &[
            ("tsc", "TSC", Tsc),
            ("mperf", "C0 (MPERF)", ShareOfTsc),
            ("aperf", "speed in C0 (APERF/MPERF)", ShareOfMperf),
            ("smi", "SMI", Events),
        ],
    },
    UnitRow {
        pmu: "cstate_core",
        scope: Scope::Core,
        about: "idle states that cores were in",
        events: &[
            ("c1-residency", "core C1", ShareOfTsc),
            ("c3-residency", "core C3", ShareOfTsc),
            ("c6-residency", "core C6", ShareOfTsc),
            ("c7-residency", "core C7", ShareOfTsc),
        ],
    },
    UnitRow {
        pmu: "cstate_module",
        scope: Scope::Module,
        about: "idle states that modules were in",
        events: &[("c6-residency", "module C6", ShareOfTsc)],
    },
    UnitRow {
        pmu: "cstate_pkg",
        scope: Scope::Package,
        about: "idle states that packages were in",
        events: &[
            ("c2-residency", "package C2", ShareOfTsc),
            ("c3-residency", "package C3", ShareOfTsc),
            ("c6-residency", "package C6", ShareOfTsc),
            ("c7-residency", "package C7", ShareOfTsc),
            ("c8-residency", "package C8", ShareOfTsc),
            ("c9-residency", "package C9", ShareOfTsc),
            ("c10-residency", "package C10", ShareOfTsc),
        ],
    },
    UnitRow {
        pmu: "power",
        scope: Scope::Package,
        about: "energy (RAPL)",
        events: &[
            ("energy-pkg", "package energy", Energy),
            ("energy-cores", "cores energy", Energy),
            ("energy-ram", "DRAM energy", Energy),
            ("energy-gpu", "GPU energy", Energy),
            ("energy-psys", "platform energy", Energy),
        ],
    },
    UnitRow {
        pmu: "power_core",
        scope: Scope::Core,
        about: "energy of each core (AMD)",
        events: &[("energy-core", "core energy", Energy)],
    },
    CACHES,
    // Where cores differ, each kind has a unit of its own.
    UnitRow { pmu: "cpu_core", ..CACHES },
    UnitRow { pmu: "cpu_atom", ..CACHES },
];

/// What the waking and the woken CPU fetch: a wake-up by IPI costs more of it than one by a store.
const CACHES: UnitRow = UnitRow {
    pmu: "cpu",
    scope: Scope::Cpu,
    about: "cache references",
    events: &[
        ("cache-references", "cache references", Events),
        ("cache-misses", "cache misses", Events),
    ],
};

/// Units that only a few machines have. Nobody misses them elsewhere.
const RARE: [&str; 4] = ["cstate_module", "power_core", "cpu_core", "cpu_atom"];

/// Time in C0.1 and C0.2 by Intel's event lists for the models below (perf has them in
/// tools/perf/pmu-events/arch/x86): the name, the event. The lists call C0.1 the slower one that saves
/// more, and Intel's manual C0.2. We keep the events' names and do not interpret them.
const WAITPKG_EVENTS: [(&str, &str); 2] = [
    ("CPU_CLK_UNHALTED.C01", "event=0xec,umask=0x10"),
    ("CPU_CLK_UNHALTED.C02", "event=0xec,umask=0x20"),
];
const UNHALTED: (&str, &str) = ("CPU_CLK_UNHALTED.THREAD", "event=0x3c,umask=0x0");

/// Models of Intel's family 6 whose large cores count these events: Golden Cove and its successors.
/// Their small cores, and Tremont, have WAITPKG without them.
const WAITPKG_MODELS: [u32; 15] = [
    0x8f, 0xcf, // Sapphire Rapids, Emerald Rapids
    0xad, 0xae, // Granite Rapids
    0x97, 0x9a, // Alder Lake
    0xb7, 0xba, 0xbf, // Raptor Lake
    0xaa, 0xac, // Meteor Lake
    0xbd, // Lunar Lake
    0xb5, 0xc5, 0xc6, // Arrow Lake
];

impl CounterPlan {
    /// Finds the counters of a machine.
    pub fn new(root: &Root) -> Self {
        let mut plan = CounterPlan::default();
        let online = root.online_cpus();
        for unit in &UNITS {
            plan.add_unit(root, unit, &online);
        }
        plan.add_waitpkg(root, &online);
        plan
    }

    fn add_unit(&mut self, root: &Root, unit: &UnitRow, online: &[u16]) {
        let Some(pmu) = Pmu::read(root, unit.pmu) else {
            let is_split = unit.pmu == "cpu" && Pmu::read(root, "cpu_core").is_some();
            if !RARE.contains(&unit.pmu) && !is_split {
                let reason = format!(
                    "{} has no {}{}",
                    "/sys/bus/event_source/devices",
                    unit.pmu,
                    why_no_unit(root, unit.pmu)
                );
                self.lack(unit.about, reason);
            }
            return;
        };
        let mut absent = Vec::new();
        for &(name, counter, meaning) in unit.events {
            let source = format!("{}/{name}/", unit.pmu);
            let Some(event) = pmu.named(root, name) else {
                absent.push(counter);
                continue;
            };
            let meaning = match meaning {
                ShareOfTsc => Meaning::ShareOf(Base::Tsc),
                ShareOfMperf => Meaning::ShareOf(Base::Mperf),
                Tsc => Meaning::Cycles,
                Events => Meaning::Events,
                Energy => match pmu.scale(root, name) {
                    Some((joules, unit)) if unit == "Joules" => Meaning::Energy(joules * 1e6),
                    _ => {
                        self.lack(
                            counter,
                            format!("{source} does not say how many joules a count is"),
                        );
                        continue;
                    }
                },
            };
            self.specs.push(CounterSpec {
                counter: counter.to_owned(),
                source,
                scope: unit.scope,
                meaning,
                is_base: match name {
                    "tsc" => Some(Base::Tsc),
                    "mperf" => Some(Base::Mperf),
                    _ => None,
                },
                type_number: pmu.type_number,
                event,
                cpus: pmu.cpus.clone().unwrap_or_else(|| online.to_vec()),
            });
        }
        // No machine has all idle states or all domains of energy.
        if absent.len() == unit.events.len() || unit.pmu == "msr" && !absent.is_empty() {
            let guest = if is_virtual_machine(root) { "; a hypervisor hides most" } else { "" };
            self.lack(
                &absent.join(", "),
                format!("the unit {} does not count it{guest}", unit.pmu),
            );
        }
    }

    /// C0.1 and C0.2, whose events sysfs does not name.
    fn add_waitpkg(&mut self, root: &Root, online: &[u16]) {
        const ABOUT: &str = "C0.1, C0.2 (CPU_CLK_UNHALTED.C01, .C02)";
        let info = CpuInfo::read(root);
        let number = |name| info.field(name).and_then(|number| number.parse::<u32>().ok());
        let has_flag =
            info.field("flags").is_some_and(|flags| flags.split(' ').any(|f| f == "waitpkg"));
        let model = number("model");
        let reason = match (info.field("vendor_id").as_deref(), number("cpu family"), model) {
            (Some("GenuineIntel"), Some(6), Some(model)) if WAITPKG_MODELS.contains(&model) => {
                match has_flag {
                    true => None,
                    false => Some("the CPU shows no WAITPKG (UMWAIT)".to_owned()),
                }
            }
            (Some("GenuineIntel"), ..) if has_flag => {
                Some("the event's code is not known for this Intel model".to_owned())
            }
            _ => Some("only Intel processors with WAITPKG (UMWAIT) count it".to_owned()),
        };
        // Where cores differ, the large ones have a unit of their own.
        let name = ["cpu_core", "cpu"].into_iter().find(|name| Pmu::read(root, name).is_some());
        let reason = reason.or_else(|| match name {
            Some(_) => None,
            None => Some(format!(
                "{} has no cpu{}",
                "/sys/bus/event_source/devices",
                why_no_unit(root, "cpu")
            )),
        });
        if let Some(reason) = reason {
            return self.lack(ABOUT, reason);
        }
        let Some((name, pmu)) = name.and_then(|name| Some((name, Pmu::read(root, name)?))) else {
            return;
        };
        let mut add = |(counter, text): (&str, &str), meaning, is_base| {
            let Some(event) = pmu.event(root, text) else { return };
            self.specs.push(CounterSpec {
                counter: counter.to_owned(),
                source: format!("{name}/{text}/"),
                scope: Scope::Cpu,
                meaning,
                is_base,
                type_number: pmu.type_number,
                event,
                cpus: pmu.cpus.clone().unwrap_or_else(|| online.to_vec()),
            });
        };
        add(UNHALTED, Meaning::ShareOf(Base::Tsc), Some(Base::Unhalted));
        for event in WAITPKG_EVENTS {
            add(event, Meaning::ShareOf(Base::Unhalted), None);
        }
    }

    fn lack(&mut self, counter: &str, reason: String) {
        self.lacks.push(Lack { counter: counter.to_owned(), reason });
    }
}

fn why_no_unit(root: &Root, unit: &str) -> &'static str {
    let is_amd = CpuInfo::read(root).field("vendor_id").as_deref() == Some("AuthenticAMD");
    match unit {
        "cstate_core" | "cstate_pkg" if is_amd => ": AMD's processors do not count it",
        _ if is_virtual_machine(root) => ": the hypervisor does not pass it on",
        "power" => ": load the module rapl",
        "cstate_core" | "cstate_pkg" => ": load the module intel_cstate",
        _ => "",
    }
}
