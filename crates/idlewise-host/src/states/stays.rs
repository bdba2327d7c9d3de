//! What a CPU did since the last look: which idle states it entered, and whether firmware interrupted.
//!
//! Looking must not wake the CPU that is looked at. The kernel's counts are in memory. The count of system
//! management interrupts (SMIs) is in a register of each CPU, and asking another CPU for it sends an
//! interrupt there. SMIs stop all CPUs of a package at once, so the waker's own register is read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::Root;
use crate::cpuidle::state_folder;
use crate::note::CpuInfo;
use crate::root::small_text;
use crate::topology::is_virtual_machine;

/// `MSR_SMI_COUNT` of Intel's processors since Nehalem.
const SMI_COUNT_MSR: u64 = 0x34;

/// The counters of a CPU that is measured, opened.
pub(super) struct StayWatch {
    usages: Vec<(File, PathBuf)>,
    times: Vec<(File, PathBuf)>,
    smis: Option<File>,
    last_entries: Vec<u64>,
    last_times_us: Vec<u64>,
    last_smi: u64,
    seen: Seen,
}

/// What happened between two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// How often each state was left.
    pub entries: Vec<u64>,
    /// How long it was in each.
    pub times_us: Vec<u64>,
    /// SMIs.
    pub smi_count: u64,
}

impl StayWatch {
    /// `waker` is the CPU that looks.
    pub(super) fn open(root: &Root, cpu: u16, state_count: usize, waker: u16) -> io::Result<Self> {
        let open = |index: usize, name: &str| {
            let name = format!("{}/{name}", state_folder(cpu, index));
            let path = root.path(&name);
            Ok((root.open(&name).map_err(|error| named(&path, error))?, path))
        };
        let all =
            |name| (0..state_count).map(|index| open(index, name)).collect::<io::Result<Vec<_>>>();
        let (usages, times) = (all("usage")?, all("time")?);
        let zeros = vec![0; state_count];
        Ok(StayWatch {
            usages,
            times,
            smis: smi_counter(root, waker),
            last_entries: zeros.clone(),
            last_times_us: zeros.clone(),
            last_smi: 0,
            seen: Seen { entries: zeros.clone(), times_us: zeros, smi_count: 0 },
        })
    }

    /// Whether SMIs are counted.
    pub(super) fn counts_smis(&self) -> bool {
        self.smis.is_some()
    }

    /// What happened since the last look. The first one means nothing.
    pub(super) fn look(&mut self) -> io::Result<&Seen> {
        let counters = [
            (&self.usages, &mut self.last_entries, &mut self.seen.entries),
            (&self.times, &mut self.last_times_us, &mut self.seen.times_us),
        ];
        for (files, last, seen) in counters {
            for (((file, path), last), seen) in files.iter().zip(last).zip(seen) {
                let now = number(file).map_err(|error| named(path, error))?;
                *seen = now.saturating_sub(*last);
                *last = now;
            }
        }
        let smi = self.smis.as_ref().and_then(read_msr).unwrap_or(self.last_smi);
        self.seen.smi_count = smi.saturating_sub(self.last_smi);
        self.last_smi = smi;
        Ok(&self.seen)
    }
}

fn named(path: &std::path::Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn number(file: &File) -> io::Result<u64> {
    let mut buffer = [0; 32];
    small_text(file, &mut buffer)?
        .parse()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no count"))
}

/// The register of a CPU, if it has one and we may read it (root, with the module msr).
fn smi_counter(root: &Root, cpu: u16) -> Option<File> {
    let vendor = CpuInfo::read(root).field("vendor_id")?;
    if vendor != "GenuineIntel" || is_virtual_machine(root) {
        return None;
    }
    let file = root.open(&format!("dev/cpu/{cpu}/msr")).ok()?;
    read_msr(&file).map(|_| file)
}

fn read_msr(file: &File) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, SMI_COUNT_MSR).ok()?;
    // The upper half is reserved.
    Some(u64::from_le_bytes(bytes) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::root::tests::machine;

    fn state(index: usize, file: &str) -> String {
        format!("{}/{file}", state_folder(1, index))
    }

    fn tree(vendor: &str) -> (tempfile::TempDir, Root) {
        let (folder, root) =
            machine(&[("proc/cpuinfo", &format!("vendor_id\t: {vendor}\nflags\t: fpu\n"))]);
        for index in 0..2 {
            fs::create_dir_all(root.path(&state_folder(1, index))).unwrap();
            fs::write(root.path(&state(index, "usage")), "100\n").unwrap();
            fs::write(root.path(&state(index, "time")), "5000\n").unwrap();
        }
        (folder, root)
    }

    #[test]
    fn a_look_has_what_happened_since_the_last() {
        let (_folder, root) = tree("AuthenticAMD");
        let mut watch = StayWatch::open(&root, 1, 2, 0).unwrap();
        watch.look().unwrap();
        fs::write(root.path(&state(1, "usage")), "102\n").unwrap();
        fs::write(root.path(&state(1, "time")), "5300\n").unwrap();
        let seen = watch.look().unwrap();
        assert_eq!((&seen.entries[..], &seen.times_us[..]), (&[0, 2][..], &[0, 300][..]));
        assert_eq!(watch.look().unwrap().entries, [0, 0]);
        assert!(!watch.counts_smis());
    }

    #[test]
    fn smis_are_counted_where_the_register_can_be_read() {
        let (_folder, root) = tree("GenuineIntel");
        let path = root.path("dev/cpu/0/msr");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut registers = vec![0; 0x34 + 8];
        registers[0x34] = 7;
        fs::write(&path, &registers).unwrap();
        let mut watch = StayWatch::open(&root, 1, 2, 0).unwrap();
        assert!(watch.counts_smis());
        watch.look().unwrap();
        registers[0x34] = 9;
        fs::write(&path, &registers).unwrap();
        assert_eq!(watch.look().unwrap().smi_count, 2);
    }

    #[test]
    fn a_cpu_without_states_names_the_file() {
        let (_folder, root) = tree("GenuineIntel");
        let error = StayWatch::open(&root, 1, 3, 0).map(drop).unwrap_err().to_string();
        assert!(error.contains("cpu1/cpuidle/state2/usage"), "{error}");
    }
}
