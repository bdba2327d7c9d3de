//! The kinds of cores of a hybrid machine. Their CPUs may have the same idle states, and still differ in how long they
//! take to leave them and in what they draw.
//!
//! - Intel: the kernel has a set of counters for each kind, and `/sys/devices/cpu_core/cpus`, `cpu_atom/cpus` and
//!   `cpu_lowpower/cpus` list its CPUs. On Meteor Lake the low-power cores are in `cpu_atom` too; they are the ones
//!   without a level-3 cache, where the others have one.
//! - Arm: MIDR_EL1 has the core's part number. Where it is not shown, the capacity that the scheduler counts with says
//!   which CPUs are alike.

use std::collections::BTreeMap;

use crate::Root;

/// What is known of the kinds of cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreKinds {
    kinds: BTreeMap<u16, String>,
    doubts: Vec<String>,
}

impl CoreKinds {
    /// Reads the kinds of these CPUs. There are none on a machine whose cores are all of one kind.
    pub fn read(root: &Root, cpus: &[u16]) -> Self {
        let Counters { kinds: by_counters, set_count, contested } = by_counters(root);
        let kind = |cpu: u16| by_counters.get(&cpu).cloned().or_else(|| arm_kind(root, cpu));
        let kinds: BTreeMap<u16, String> =
            cpus.iter().filter_map(|&cpu| Some((cpu, kind(cpu)?))).collect();
        let mut names = kinds.values();
        let first = names.next();
        let is_hybrid = names.any(|name| Some(name) != first);
        let unnamed: Vec<u16> =
            cpus.iter().copied().filter(|cpu| !kinds.contains_key(cpu)).collect();
        // A second set of counters is for a second kind of cores, also if its list cannot be read.
        let is_unsure = set_count > 1 && !kinds.is_empty() && !unnamed.is_empty();
        let mut doubts = Vec::new();
        if is_unsure {
            doubts.push(format!(
                "{} in no list of /sys/devices/cpu_*/cpus, and other CPUs are: the kind of these cores is not known",
                are(&unnamed)
            ));
        }
        if !contested.is_empty() {
            doubts.push(format!(
                "{} in two lists of /sys/devices/cpu_*/cpus: the kind of these cores is that of the last list",
                are(&contested)
            ));
        }
        CoreKinds { kinds: if is_hybrid || is_unsure { kinds } else { BTreeMap::new() }, doubts }
    }

    /// Returns where the machine's lists of cores contradict each other or are not whole.
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    /// Returns the name of a CPU's kind: `P core`, `E core`, `LP-E core`, or what an Arm core calls itself. `None` if
    /// all are of one kind, or if the machine does not say.
    pub fn of(&self, cpu: u16) -> Option<&str> {
        self.kinds.get(&cpu).map(String::as_str)
    }
}

/// `CPU 8 is`, or `CPUs 0, 1 are`.
fn are(cpus: &[u16]) -> String {
    let numbers: Vec<String> = cpus.iter().map(u16::to_string).collect();
    let (noun, verb) = if cpus.len() == 1 { ("CPU", "is") } else { ("CPUs", "are") };
    format!("{noun} {} {verb}", numbers.join(", "))
}

/// What Intel's sets of counters say.
struct Counters {
    kinds: BTreeMap<u16, String>,
    set_count: usize,
    /// CPUs that cannot be both of what they are said to be.
    contested: Vec<u16>,
}

fn by_counters(root: &Root) -> Counters {
    let mut kinds: BTreeMap<u16, String> = BTreeMap::new();
    let mut contested = Vec::new();
    let mut folders = root.names("sys/devices");
    folders.retain(|name| name.starts_with("cpu_"));
    folders.sort();
    let set_count = folders.len();
    for folder in folders {
        let kind = match folder.as_str() {
            "cpu_core" => "P core",
            "cpu_atom" => "E core",
            "cpu_lowpower" => "LP-E core",
            other => other,
        };
        let cpus = root.cpus_in(&format!("sys/devices/{folder}/cpus")).unwrap_or_default();
        for cpu in cpus {
            let before = kinds.insert(cpu, kind.to_owned());
            // Low-power cores are E cores too.
            if before.is_some_and(|before| before != kind && kind != "LP-E core") {
                contested.push(cpu);
            }
        }
    }
    let efficient = kinds.iter_mut().filter(|(_, kind)| *kind == "E core");
    let (with, without): (Vec<_>, Vec<_>) = efficient
        .partition(|(cpu, _)| root.has(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3")));
    if !with.is_empty() {
        without.into_iter().for_each(|(_, kind)| *kind = "LP-E core".to_owned());
    }
    Counters { kinds, set_count, contested }
}

fn arm_kind(root: &Root, cpu: u16) -> Option<String> {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}");
    let midr = root.text(&format!("{folder}/regs/identification/midr_el1")).and_then(|midr| {
        let midr = u64::from_str_radix(midr.trim_start_matches("0x"), 16).ok()?;
        // Bits 31 to 24 are the implementer, 15 to 4 the part. Variant and revision are no other kind.
        Some(format!("core {:#04x}:{:#05x}", midr >> 24 & 0xff, midr >> 4 & 0xfff))
    });
    midr.or_else(|| Some(format!("capacity {}", root.number(&format!("{folder}/cpu_capacity"))?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    fn kinds(files: &[(&str, &str)], count: u16) -> Vec<Option<String>> {
        let (_folder, root) = machine(files);
        let cpus: Vec<u16> = (0..count).collect();
        let kinds = CoreKinds::read(&root, &cpus);
        cpus.iter().map(|cpu| kinds.of(*cpu).map(str::to_owned)).collect()
    }

    #[test]
    fn intels_kinds_are_those_of_its_counters() {
        let files = [
            ("sys/devices/cpu_core/cpus", "0-1\n"),
            ("sys/devices/cpu_atom/cpus", "2\n"),
            ("sys/devices/cpu_lowpower/cpus", "3\n"),
            ("sys/devices/cpum_cf/cpus", "0-4\n"),
        ];
        let found = kinds(&files, 5);
        let found: Vec<_> = found.iter().map(Option::as_deref).collect();
        let expected = [Some("P core"), Some("P core"), Some("E core"), Some("LP-E core"), None];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_low_power_core_of_meteor_lake_has_no_third_cache() {
        let cache = |cpu| format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/level");
        let (zero, one) = (cache(0), cache(1));
        let counters =
            [("sys/devices/cpu_core/cpus", "0\n"), ("sys/devices/cpu_atom/cpus", "1-2\n")];
        let found = kinds(&[&counters[..], &[(&zero, "3\n"), (&one, "3\n")]].concat(), 3);
        assert_eq!(
            found.iter().map(Option::as_deref).collect::<Vec<_>>(),
            [Some("P core"), Some("E core"), Some("LP-E core")]
        );
        // On Lunar Lake no E core has one.
        let found = kinds(&[&counters[..], &[(&zero, "3\n")]].concat(), 3);
        assert_eq!(
            found.iter().map(Option::as_deref).collect::<Vec<_>>(),
            [Some("P core"), Some("E core"), Some("E core")]
        );
    }

    #[test]
    fn arms_kinds_are_its_parts_or_else_its_capacities() {
        let file = |cpu, name| format!("sys/devices/system/cpu/cpu{cpu}/{name}");
        let midr = |cpu| file(cpu, "regs/identification/midr_el1");
        let (a, b, c) = (midr(0), midr(1), midr(2));
        // A Cortex-A55 in two revisions, and a Cortex-A76.
        let found = kinds(
            &[
                (&a, "0x00000000412fd050\n"),
                (&b, "0x00000000411fd051\n"),
                (&c, "0x00000000414fd0b0\n"),
            ],
            3,
        );
        let small = Some("core 0x41:0xd05".to_owned());
        assert_eq!(found, [small.clone(), small, Some("core 0x41:0xd0b".to_owned())]);
        let (a, b) = (file(0, "cpu_capacity"), file(1, "cpu_capacity"));
        let found = kinds(&[(&a, "446\n"), (&b, "1024\n")], 2);
        assert_eq!(found, [Some("capacity 446".to_owned()), Some("capacity 1024".to_owned())]);
    }

    #[test]
    fn lists_that_cannot_be_right_are_doubted() {
        let read = |core: &str, atom: &str| {
            let files = [("sys/devices/cpu_core/cpus", core), ("sys/devices/cpu_atom/cpus", atom)];
            let (_folder, root) = machine(&files);
            CoreKinds::read(&root, &[0, 1, 2, 3])
        };
        for wrong in ["garbage\n", "3-0\n", "0-99999999\n", "\n", ""] {
            for found in [read(wrong, "2-3\n"), read("2-3\n", wrong)] {
                assert!(found.of(0).is_none() && found.of(2).is_some(), "{wrong}: {found:?}");
                assert!(found.doubts[0].starts_with("CPUs 0, 1 are in no list"), "{found:?}");
            }
        }
        // E cores that are offline.
        assert_eq!(read("0-3\n", "\n"), CoreKinds::default());
        let both = read("0-2\n", "2-3\n");
        assert_eq!([both.of(2), both.of(3)], [Some("P core"), Some("E core")]);
        assert!(both.doubts[0].starts_with("CPU 2 is in two lists"), "{both:?}");
        assert_eq!(read("0-1\n", "2-3\n").doubts(), [""; 0]);
    }

    #[test]
    fn cores_of_one_kind_have_none() {
        assert_eq!(kinds(&[("sys/devices/cpu_core/cpus", "0-1\n")], 2), [None, None]);
        assert_eq!(kinds(&[("sys/devices/cpu/type", "4\n")], 2), [None, None]);
        assert_eq!(kinds(&[("sys/devices/cpu_atom/cpus", "garbage\n")], 1), [None]);
    }
}
