//! How far apart two CPUs are, according to sysfs.

use crate::Root;
use crate::note::CpuInfo;
use idlewise_core::words;

words! {
    /// What two CPUs share, the nearest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Relation {
        /// The core.
        SmtSibling = "SMT sibling",
        /// The last-level cache: a core complex, or on many processors the whole package.
        SharedCache = "shared cache",
        /// The package, but no cache.
        SamePackage = "same package",
        /// Nothing: a wake-up crosses sockets.
        OtherPackage = "another package",
    }
}

/// More caches than any CPU has.
const CACHE_COUNT_MAX: usize = 10;

impl Relation {
    /// Returns the relation of two CPUs; `None` if the machine does not show it.
    pub fn of(root: &Root, one: u16, other: u16) -> Option<Self> {
        let folder = format!("sys/devices/system/cpu/cpu{one}");
        let has = |file: &str| Some(root.cpus_in(&format!("{folder}/{file}"))?.contains(&other));
        if has("topology/thread_siblings_list")? {
            return Some(Relation::SmtSibling);
        }
        let level = |index: usize| root.number(&format!("{folder}/cache/index{index}/level"));
        let last = (0..CACHE_COUNT_MAX).filter_map(|index| Some((level(index)?, index))).max();
        let shares_cache =
            last.and_then(|(_, index)| has(&format!("cache/index{index}/shared_cpu_list")));
        if shares_cache == Some(true) {
            return Some(Relation::SharedCache);
        }
        match has("topology/core_siblings_list")? {
            true => Some(Relation::SamePackage),
            false => Some(Relation::OtherPackage),
        }
    }
}

/// Returns the first online CPU of each relation to a CPU, the nearest first. The relation of CPUs
/// whose topology is not shown is `None`.
pub fn one_of_each_relation(root: &Root, source: u16) -> Vec<(Option<Relation>, u16)> {
    let mut nearest: Vec<(Option<Relation>, u16)> = Vec::new();
    for cpu in root.online_cpus().into_iter().filter(|cpu| *cpu != source) {
        let relation = Relation::of(root, source, cpu);
        if nearest.iter().all(|(known, _)| *known != relation) {
            nearest.push((relation, cpu));
        }
    }
    nearest.sort_unstable();
    nearest
}

/// Whether this is a virtual machine, according to the processor (x86) or the kernel (Xen).
pub fn is_virtual_machine(root: &Root) -> bool {
    let flags = CpuInfo::read(root).field("flags").unwrap_or_default();
    flags.split(' ').any(|flag| flag == "hypervisor") || root.text("sys/hypervisor/type").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn the_nearest_relation_counts() {
        let cpu = "sys/devices/system/cpu/cpu0";
        let (_folder, root) = machine(&[
            (&format!("{cpu}/topology/thread_siblings_list"), "0,8\n"),
            (&format!("{cpu}/topology/core_siblings_list"), "0-3,8-11\n"),
            (&format!("{cpu}/cache/index0/level"), "1\n"),
            (&format!("{cpu}/cache/index0/shared_cpu_list"), "0,8\n"),
            (&format!("{cpu}/cache/index3/level"), "3\n"),
            (&format!("{cpu}/cache/index3/shared_cpu_list"), "0-1,8-9\n"),
        ]);
        let relations = [8, 1, 2, 4].map(|other| Relation::of(&root, 0, other).unwrap());
        assert_eq!(
            relations.map(Relation::as_str),
            ["SMT sibling", "shared cache", "same package", "another package"]
        );
        assert!(relations.is_sorted());
    }

    #[test]
    fn a_machine_that_does_not_say_has_no_relation() {
        let (_folder, root) = machine(&[("proc/cpuinfo", "flags\t\t: fpu hypervisor tsc\n")]);
        assert_eq!(Relation::of(&root, 0, 1), None);
        assert!(is_virtual_machine(&root));
        assert!(!is_virtual_machine(&machine(&[("proc/cpuinfo", "flags : fpu tsc\n")]).1));
    }
}
