//! What `idlewise record` writes about the machine into a trace, so that the trace alone is enough.
//!
//! In a trace.dat it is JSON after the name of the program that wrote the file (option 9):
//! `idlewise 0.1.0`, a zero byte, the note. trace-cmd and KernelShark read up to the zero. An
//! option number of our own would also work, but they warn about unknown numbers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use idlewise_machine::Machine;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::{CpuGroups, Doubt, Driver};

/// The version of the note. A reader uses the fields that it knows of a newer note.
pub const NOTE_VERSION: u32 = 1;

/// The beginning of the names of programs that write notes.
const WRITER: &str = "idlewise ";

/// Plausible values of CONFIG_HZ. With others, a tick's period makes no sense.
const HZ: RangeInclusive<u32> = 10..=10_000;

/// Reads a CONFIG_HZ of a log.
pub(crate) fn hz<'de, D: Deserializer<'de>>(de: D) -> Result<Option<u32>, D::Error> {
    let hz = Option::<u32>::deserialize(de)?;
    match hz.filter(|hz| !HZ.contains(hz)) {
        Some(hz) => {
            let (least, most) = HZ.into_inner();
            Err(D::Error::custom(format_args!("hz is {hz}, where kernels have {least} to {most}")))
        }
        None => Ok(hz),
    }
}

/// The recorded machine at the beginning of the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineNote {
    /// See [`NOTE_VERSION`].
    pub note_version: u32,
    /// The recorder's command line, words joined by spaces.
    pub command: String,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// The architecture, as `uname -m` prints it.
    pub arch: Option<String>,
    /// The CPU's model name.
    pub cpu_model: Option<String>,
    /// CONFIG_HZ, from the kernel's configuration.
    pub hz: Option<u32>,
    /// The kernel's command line.
    pub kernel_cmdline: Option<String>,
    /// The cpuidle driver.
    pub driver: Option<Driver>,
    /// The cpuidle governor; `None` if there is no driver to use it.
    pub governor: Option<String>,
    /// The idle states, one entry for each kind of CPU. Empty without a driver.
    pub tables: Vec<NotedTable>,
    /// Which CPUs form a core, a cluster or a package.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<CpuGroups>,
    /// The PM QoS limit of each CPU that has one, including the limit of the whole machine.
    pub latency_limits_ns: BTreeMap<u16, u64>,
    /// Whether a limit changed while recording. In that case no limit is known.
    pub limits_changed: bool,
    /// Other reasons to distrust the note.
    pub doubts: Vec<Doubt>,
}

/// The idle states of some CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotedTable {
    /// The CPUs that have them.
    pub cpus: Vec<u16>,
    /// A machine with only such CPUs.
    #[serde(deserialize_with = "present_machine")]
    pub machine: Machine,
}

/// Reads a machine: an object with the fields of a machine file, or the text of such a file in
/// early logs and recordings. A machine that cannot be read is always an error.
pub(crate) fn machine<'de, D: Deserializer<'de>>(de: D) -> Result<Option<Machine>, D::Error> {
    let machine = match Value::deserialize(de)? {
        Value::Null => return Ok(None),
        Value::String(text) => Machine::from_toml(&text),
        value => {
            let machine: Machine = serde_json::from_value(value).map_err(D::Error::custom)?;
            machine.check().map(|()| machine)
        }
    };
    machine.map(Some).map_err(|error| D::Error::custom(format_args!("machine: {error}")))
}

fn present_machine<'de, D: Deserializer<'de>>(de: D) -> Result<Machine, D::Error> {
    machine(de)?.ok_or_else(|| D::Error::custom("no machine"))
}

impl MachineNote {
    /// The note as a trace holds it: the writer's name, a zero byte, the note, and a zero byte.
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("a note's keys are strings");
        format!("{WRITER}{}\0{json}\0", env!("CARGO_PKG_VERSION")).into_bytes()
    }

    /// Parses the note after the writer's name in a trace; `None` if another program wrote it, or
    /// if it is not a note. Idle states that cannot be read are left out, because a recording
    /// cannot be repeated.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(WRITER.as_bytes())?;
        let mut parts = rest.split(|&byte| byte == 0);
        parts.next()?;
        let mut value: Value = serde_json::from_slice(parts.next()?).ok()?;
        let mut note = Self::deserialize(&value).ok().or_else(|| {
            value.as_object_mut()?.remove("tables");
            let mut note = Self::deserialize(&value).ok()?;
            note.doubts.push(Doubt::UnreadableNote);
            Some(note)
        })?;
        note.hz = note.hz.filter(|hz| HZ.contains(hz));
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use idlewise_machine::{Arch, MachineState};

    use super::*;

    #[test]
    fn reads_back_what_it_writes() {
        let mut machine = Machine::new("recorded", "A machine", Arch::Other, "captured");
        machine.states = vec![MachineState::new("C1", 190, 1_500)];
        let table = NotedTable { cpus: vec![0, 1], machine };
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
    fn reads_machines_that_are_the_text_of_a_file() {
        let text = r#"id = \"recorded\"\ntitle = \"T\"\narch = \"x86\"\nsource = \"captured\""#;
        let table =
            |machine| format!(r#"{{"cpus":[0],"machine":"{machine}","exit_latencies_ns":[]}}"#);
        let note = |machine| {
            let json = format!(r#"{{"note_version":1,"hz":250,"tables":[{}]}}"#, table(machine));
            MachineNote::from_bytes(format!("idlewise 0.1.0\0{json}\0").as_bytes()).unwrap()
        };
        assert_eq!(note(text).tables[0].machine.title, "T");
        // The rest of the note is still used.
        let broken = note("id = 3");
        assert_eq!((broken.tables.len(), broken.hz, broken.doubts.len()), (0, Some(250), 1));
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
