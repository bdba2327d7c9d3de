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
pub struct CoreKinds(BTreeMap<u16, String>);

impl CoreKinds {
    /// Reads the kinds of these CPUs. There are none on a machine whose cores are all of one kind.
    pub fn read(root: &Root, cpus: &[u16]) -> Self {
        let by_counters = by_counters(root);
        let kind = |cpu: u16| by_counters.get(&cpu).cloned().or_else(|| arm_kind(root, cpu));
        let kinds: BTreeMap<u16, String> =
            cpus.iter().filter_map(|&cpu| Some((cpu, kind(cpu)?))).collect();
        let mut names = kinds.values();
        let first = names.next();
        let is_hybrid = names.any(|name| Some(name) != first);
        CoreKinds(if is_hybrid { kinds } else { BTreeMap::new() })
    }

    /// Returns the name of a CPU's kind: `P core`, `E core`, `LP-E core`, or what an Arm core calls itself. `None` if
    /// all are of one kind, or if the machine does not say.
    pub fn of(&self, cpu: u16) -> Option<&str> {
        self.0.get(&cpu).map(String::as_str)
    }
}

/// Intel's kinds.
fn by_counters(root: &Root) -> BTreeMap<u16, String> {
    let mut kinds = BTreeMap::new();
    let mut folders = root.names("sys/devices");
    folders.retain(|name| name.starts_with("cpu_"));
    folders.sort();
    for folder in folders {
        let kind = match folder.as_str() {
            "cpu_core" => "P core",
            "cpu_atom" => "E core",
            "cpu_lowpower" => "LP-E core",
            other => other,
        };
        let cpus = root.cpus_in(&format!("sys/devices/{folder}/cpus")).unwrap_or_default();
        kinds.extend(cpus.into_iter().map(|cpu| (cpu, kind.to_owned())));
    }
    let efficient = kinds.iter_mut().filter(|(_, kind)| *kind == "E core");
    let (with, without): (Vec<_>, Vec<_>) = efficient
        .partition(|(cpu, _)| root.has(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3")));
    if !with.is_empty() {
        without.into_iter().for_each(|(_, kind)| *kind = "LP-E core".to_owned());
    }
    kinds
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
    fn cores_of_one_kind_have_none() {
        assert_eq!(kinds(&[("sys/devices/cpu_core/cpus", "0-1\n")], 2), [None, None]);
        assert_eq!(kinds(&[("sys/devices/cpu/type", "4\n")], 2), [None, None]);
        assert_eq!(kinds(&[("sys/devices/cpu_atom/cpus", "garbage\n")], 1), [None]);
    }
}
