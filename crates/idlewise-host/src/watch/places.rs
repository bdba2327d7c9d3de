//! Where a CPU is: its package, its core and its last-level cache.

use crate::Root;
use crate::root::cpu_list;

/// More caches than any CPU has.
const CACHE_COUNT_MAX: usize = 10;

/// Where a CPU is, as far as the machine says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPosition {
    /// Its package.
    pub package: Option<u64>,
    /// Its core, numbered within the package.
    pub core: Option<u64>,
    /// The first of the CPUs that share its last-level cache.
    pub cache: Option<u16>,
}

/// Returns where a CPU is. An offline CPU does not say.
pub fn cpu_position(root: &Root, cpu: u16) -> CpuPosition {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}");
    let cache = |index: usize| {
        let level = root.number(&format!("{folder}/cache/index{index}/level"))?;
        Some((level, index))
    };
    let last = (0..CACHE_COUNT_MAX).filter_map(cache).max();
    CpuPosition {
        package: root.number(&format!("{folder}/topology/physical_package_id")),
        core: root.number(&format!("{folder}/topology/core_id")),
        cache: last.and_then(|(_, index)| {
            let list = root.text(&format!("{folder}/cache/index{index}/shared_cpu_list"))?;
            cpu_list(&list).first().copied()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn says_as_much_as_the_machine_does() {
        let cpu = "sys/devices/system/cpu/cpu5";
        let (_folder, root) = machine(&[
            (&format!("{cpu}/topology/physical_package_id"), "1\n"),
            (&format!("{cpu}/topology/core_id"), "9\n"),
            (&format!("{cpu}/cache/index0/level"), "1\n"),
            (&format!("{cpu}/cache/index0/shared_cpu_list"), "5\n"),
            (&format!("{cpu}/cache/index3/level"), "3\n"),
            (&format!("{cpu}/cache/index3/shared_cpu_list"), "4-7\n"),
        ]);
        assert_eq!(
            cpu_position(&root, 5),
            CpuPosition { package: Some(1), core: Some(9), cache: Some(4) }
        );
        assert_eq!(cpu_position(&root, 0), CpuPosition::default());
    }
}
