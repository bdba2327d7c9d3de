//! What the kernel counts in files: interrupts of each CPU, and the idle states that it requested.

use std::collections::BTreeMap;
use std::fs::File;

use crate::Root;
use crate::cpuidle::{state_folder, states};
use crate::root::small_number;

use super::Lack;

/// What a file's number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileMeaning {
    /// Events.
    Events,
    /// Microseconds.
    Microseconds,
}

/// A number of a file that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMeter {
    /// Its name for users.
    pub counter: String,
    /// Where it is from.
    pub source: String,
    /// The CPU.
    pub cpu: u16,
    /// What it means.
    pub meaning: FileMeaning,
}

/// The interrupts that are counted: the description that begins so in /proc/interrupts (each
/// architecture has its own short names), and our name.
const INTERRUPTS: [(&str, &str); 4] = [
    ("Rescheduling interrupts", "RES (rescheduling)"),
    ("Function call interrupts", "CAL (function calls)"),
    ("Local timer interrupts", "LOC (local timer)"),
    ("TLB shootdowns", "TLB (shootdowns)"),
];

/// The files, opened.
pub struct FileCounters {
    root: Root,
    meters: Vec<FileMeter>,
    /// The files of requested idle states: one for each meter after those of interrupts.
    idle: Vec<File>,
    /// For each meter of interrupts, its name and CPU.
    interrupts: Vec<(&'static str, u16)>,
}

impl FileCounters {
    /// Finds what there is, and what there is not.
    pub fn open(root: &Root) -> (Self, Vec<Lack>) {
        let mut lacks = Vec::new();
        let mut meters = Vec::new();
        let mut interrupts = Vec::new();
        let found = read_interrupts(root);
        for (_, counter) in INTERRUPTS {
            for &(known, cpu) in found.keys().filter(|(known, _)| *known == counter) {
                interrupts.push((known, cpu));
                meters.push(FileMeter {
                    counter: counter.to_owned(),
                    source: "/proc/interrupts".to_owned(),
                    cpu,
                    meaning: FileMeaning::Events,
                });
            }
        }
        if found.is_empty() {
            lacks.push(Lack {
                counter: "interrupts (RES, CAL, LOC, TLB)".to_owned(),
                reason: "/proc/interrupts does not list them by CPU".to_owned(),
            });
        }
        let mut idle = Vec::new();
        for cpu in root.online_cpus() {
            for (index, state) in states(root, cpu).iter().enumerate() {
                for (file, meaning, what) in [
                    ("time", FileMeaning::Microseconds, "requested"),
                    ("usage", FileMeaning::Events, "entries of"),
                ] {
                    let name = format!("{}/{file}", state_folder(cpu, index));
                    let Ok(opened) = root.open(&name) else { continue };
                    idle.push(opened);
                    meters.push(FileMeter {
                        counter: format!("{what} {}", state.name),
                        source: format!("cpuidle/state*/{file}"),
                        cpu,
                        meaning,
                    });
                }
            }
        }
        if idle.is_empty() {
            lacks.push(Lack {
                counter: "requested idle states".to_owned(),
                reason: "no cpuidle driver counts them".to_owned(),
            });
        }
        (FileCounters { root: root.clone(), meters, idle, interrupts }, lacks)
    }

    /// Returns what is counted.
    pub fn meters(&self) -> &[FileMeter] {
        &self.meters
    }

    /// Returns the present numbers, one for each meter; `None` for a CPU that is gone.
    pub fn read(&self) -> Vec<Option<u64>> {
        let found = read_interrupts(&self.root);
        let interrupts = self.interrupts.iter().map(|key| found.get(key).copied());
        let idle = self.idle.iter().map(small_number);
        interrupts.chain(idle).collect()
    }
}

/// The numbers of the interrupts in the list, by name and CPU. Several lines of one name are added.
fn read_interrupts(root: &Root) -> BTreeMap<(&'static str, u16), u64> {
    let text = root.text("proc/interrupts").unwrap_or_default();
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u16> = head.filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let mut found = BTreeMap::new();
    for line in lines {
        let Some((_, rest)) = line.split_once(':') else { continue };
        let Some((_, counter)) = INTERRUPTS.iter().find(|(words, _)| rest.contains(words)) else {
            continue;
        };
        let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        for (cpu, count) in cpus.iter().zip(counts) {
            let sum: &mut u64 = found.entry((*counter, *cpu)).or_insert(0);
            *sum = sum.saturating_add(count);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn interrupts_are_read_by_their_description() {
        let x86 = "           CPU0       CPU2\n  8:  1  0  IO-APIC   8-edge  rtc0\n\
                   RES:  11  13   Rescheduling interrupts\nCAL: 7 9   Function call interrupts\nERR: 0\n";
        let arm = "     CPU0  CPU1\nIPI0: 3 4  Rescheduling interrupts\nIPI1: 5 6   Function call interrupts\n";
        let (_folder, root) = machine(&[("proc/interrupts", x86)]);
        let (counters, lacks) = FileCounters::open(&root);
        let names: Vec<(&str, u16)> =
            counters.meters().iter().map(|one| (one.counter.as_str(), one.cpu)).collect();
        let [res, cal] = ["RES (rescheduling)", "CAL (function calls)"];
        assert_eq!(names, [(res, 0), (res, 2), (cal, 0), (cal, 2)]);
        assert_eq!(counters.read(), [Some(11), Some(13), Some(7), Some(9)]);
        assert_eq!(lacks.len(), 1);
        assert_eq!(lacks[0].counter, "requested idle states");
        std::fs::write(root.path("proc/interrupts"), arm).unwrap();
        assert_eq!(counters.read(), [Some(3), None, Some(5), None], "CPU 2 is gone");
    }

    #[test]
    fn a_machine_without_files_lacks_all_of_it() {
        let (_folder, root) = machine(&[]);
        let (counters, lacks) = FileCounters::open(&root);
        assert!(counters.meters().is_empty() && counters.read().is_empty());
        assert_eq!(lacks.len(), 2);
    }
}
