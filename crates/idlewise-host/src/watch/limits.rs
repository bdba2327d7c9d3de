//! The limits of exit latencies that somebody asked for (PM QoS).

use idlewise_core::words;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;

use super::text;
use crate::Root;

/// `/dev/cpu_dma_latency` without any request (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`, 2000 s).
const UNLIMITED_US: i32 = 2_000_000_000;

/// The whole machine's limit.
const MACHINE: &str = "dev/cpu_dma_latency";

words! {
    /// Why the machine's limit cannot be read.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Lack {
        /// We may not.
        RootOnly = "only root may read it",
        /// There is no such file.
        Absent = "there is no /dev/cpu_dma_latency, as in containers",
        /// It cannot be opened.
        Unreadable = "/dev/cpu_dma_latency cannot be opened",
    }
}

/// Reads the limits again and again.
#[derive(Debug)]
pub struct LatencyLimits {
    /// Root only. It is opened for each reading: that asks for nothing, because a request begins with the
    /// default, but whoever has it open is listed as a holder of the limit.
    root: Root,
    /// One for each CPU; `None` if the kernel has no such file.
    cpus: Vec<Option<File>>,
}

impl LatencyLimits {
    /// Opens the limits of the machine and of these CPUs, as far as they exist.
    pub fn open(root: &Root, cpus: &[u16]) -> Self {
        let open = |name: &str| root.open(name).ok();
        let of_cpu = |cpu: &u16| {
            open(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
        };
        LatencyLimits { root: root.clone(), cpus: cpus.iter().map(of_cpu).collect() }
    }

    /// Returns why the machine's limit cannot be read, if so.
    pub fn machine_lack(&self) -> Option<Lack> {
        let error = self.root.open(MACHINE).err()?;
        Some(match error.kind() {
            ErrorKind::PermissionDenied => Lack::RootOnly,
            ErrorKind::NotFound => Lack::Absent,
            _ => Lack::Unreadable,
        })
    }

    /// Returns the machine's limit in nanoseconds. `None` if there is none or only root may see it.
    pub fn machine_ns(&self) -> Option<u64> {
        let mut bytes = [0; 4];
        let byte_count = self.root.open(MACHINE).ok()?.read_at(&mut bytes, 0).ok()?;
        let us = i32::from_ne_bytes(bytes);
        (byte_count == 4 && (0..UNLIMITED_US).contains(&us))
            .then(|| u64::from(us.unsigned_abs()) * 1_000)
    }

    /// Returns the limit in nanoseconds of the CPU at that place; `Some(0)` forbids all but polling. `None` if
    /// it has none.
    pub fn cpu_ns(&self, index: usize) -> Option<u64> {
        let mut buffer = [0; 24];
        match text(self.cpus.get(index)?.as_ref()?, &mut buffer)? {
            "n/a" => Some(0),
            "0" => None,
            us => us.parse::<u64>().ok().map(|us| us.saturating_mul(1_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn tells_no_limit_from_no_latency_at_all() {
        let file =
            |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
        let (_folder, root) = machine(&[
            (&file(0), "0\n"),
            (&file(1), "n/a\n"),
            (&file(2), "20\n"),
            (&file(3), "x\n"),
        ]);
        let limits = LatencyLimits::open(&root, &[0, 1, 2, 3, 4]);
        let found: Vec<Option<u64>> = (0..6).map(|index| limits.cpu_ns(index)).collect();
        assert_eq!(found, [None, Some(0), Some(20_000), None, None, None]);
        assert_eq!((limits.machine_lack(), limits.machine_ns()), (Some(Lack::Absent), None));
        std::fs::write(root.path(&file(0)), "7\n").unwrap();
        assert_eq!(limits.cpu_ns(0), Some(7_000));
    }

    #[test]
    fn the_machines_limit_is_a_binary_number() {
        let (_folder, root) = machine(&[("dev/cpu_dma_latency", "")]);
        let limits = LatencyLimits::open(&root, &[]);
        assert_eq!((limits.machine_lack(), limits.machine_ns()), (None, None));
        for (us, expected) in [(10, Some(10_000)), (0, Some(0)), (UNLIMITED_US, None), (-1, None)] {
            std::fs::write(root.path("dev/cpu_dma_latency"), i32::to_ne_bytes(us)).unwrap();
            assert_eq!(limits.machine_ns(), expected, "{us}");
        }
    }
}
