//! What `idlewise record` writes into a trace about the machine, so that the trace alone is enough.
//!
//! In a trace.dat it is JSON behind the name of the program that wrote the file (option 9): `idlewise
//! 0.1.0`, a zero byte, the note. trace-cmd and KernelShark read up to the zero. An option number of
//! our own would do as well, but they warn about numbers that they don't know.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the note. A reader takes what it knows from a newer one.
pub const NOTE_VERSION: u32 = 1;

/// What the name of a program that writes notes begins with.
const WRITER: &str = "idlewise ";

/// The recorded machine, as it was when the recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineNote {
    /// See [`NOTE_VERSION`].
    pub note_version: u32,
    /// The recorder's command line, words joined by spaces.
    pub command: String,
    /// The kernel's release, as `uname -r`.
    pub kernel: Option<String>,
    /// The architecture, as `uname -m`.
    pub arch: Option<String>,
    /// The CPU's model name.
    pub cpu_model: Option<String>,
    /// CONFIG_HZ, from the kernel's configuration.
    pub hz: Option<u32>,
    /// The kernel's command line.
    pub kernel_cmdline: Option<String>,
    /// The cpuidle driver; `none` if the kernel has none.
    pub driver: Option<String>,
    /// The cpuidle governor; `None` if there is no driver to ask it.
    pub governor: Option<String>,
    /// The idle states, one entry for each kind of CPU; none without a driver.
    pub tables: Vec<NotedTable>,
    /// The PM QoS limit of each CPU that has one, that of the whole machine included.
    pub latency_limits_ns: BTreeMap<u16, u64>,
    /// A limit changed while recording, so that none is known.
    pub limits_changed: bool,
    /// Other reasons to distrust the note, as sentences.
    pub doubts: Vec<String>,
}

/// The idle states of some CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotedTable {
    /// The CPUs that have them.
    pub cpus: Vec<u16>,
    /// A machine file (`machines/README.md`, TOML); `None` for an architecture that it has no word for.
    pub machine: Option<String>,
    /// The exit latencies by state.
    pub exit_latencies_ns: Vec<u64>,
}

impl MachineNote {
    /// The note with the writer's name in front, as a trace holds it. It ends with a zero byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("a note's keys are strings");
        format!("{WRITER}{}\0{json}\0", env!("CARGO_PKG_VERSION")).into_bytes()
    }

    /// The note in what a trace says about its writer; `None` if another program wrote it, or what
    /// it says is no note.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(WRITER.as_bytes())?;
        let mut parts = rest.split(|&byte| byte == 0);
        parts.next()?;
        serde_json::from_slice(parts.next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let table = NotedTable { cpus: vec![0, 1], machine: None, exit_latencies_ns: vec![0, 190] };
        let note = MachineNote {
            note_version: NOTE_VERSION,
            governor: Some("menu".to_owned()),
            tables: vec![table],
            latency_limits_ns: [(1, 20_000)].into(),
            ..MachineNote::default()
        };
        assert_eq!(MachineNote::from_bytes(&note.to_bytes()), Some(note));
    }

    #[test]
    fn takes_nothing_from_other_writers_or_damaged_notes() {
        let whole = MachineNote::default().to_bytes();
        for bytes in [&b""[..], b"trace-cmd 3.2\0{}\0", b"idlewise ", b"idlewise 9\0{\0"] {
            assert_eq!(MachineNote::from_bytes(bytes), None);
        }
        assert_eq!(MachineNote::from_bytes(&whole[..whole.len() - 2]), None);
        assert_eq!(
            MachineNote::from_bytes(b"idlewise 9\0{\"later\":1}\0"),
            Some(MachineNote::default())
        );
    }
}
