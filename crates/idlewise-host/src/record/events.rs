//! Enables in an instance the wanted events that this kernel has.

use std::fs;
use std::path::Path;

use idlewise_trace::WantedEvent;

use super::RecordError;
use crate::tracefs::Instance;
use crate::{Root, Tracefs};

/// The events of a recording, system by system.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) systems: Vec<System>,
}

/// One system's events.
#[derive(Debug)]
pub(super) struct System {
    pub(super) name: &'static str,
    pub(super) events: Vec<Event>,
}

/// An event, with the description that readers of the trace need.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) format: Vec<u8>,
}

impl Events {
    /// Enables the wanted events that exist, with their filters.
    pub(super) fn enable(
        instance: &Instance,
        wanted: impl IntoIterator<Item = WantedEvent>,
    ) -> Result<Self, RecordError> {
        let mut events = Events::default();
        for wanted in wanted {
            let system = wanted.system();
            let folder = instance.path(&format!("events/{system}"));
            for name in matching(wanted, subfolders(&folder)) {
                let event = format!("events/{system}/{name}");
                // A kernel without the field records more than we need.
                if let Some(filter) = wanted.filter {
                    let _ = instance.set(&format!("{event}/filter"), filter);
                }
                instance.set(&format!("{event}/enable"), "1")?;
                let format = instance.bytes(&format!("{event}/format"))?;
                events.system(system).events.push(Event { name, format });
            }
        }
        match events.names().iter().any(|name| name == CPU_IDLE) {
            true => Ok(events),
            false => Err(RecordError::NoCpuIdle),
        }
    }

    fn system(&mut self, name: &'static str) -> &mut System {
        let index = self.systems.iter().position(|system| system.name == name);
        let index = index.unwrap_or_else(|| {
            self.systems.push(System { name, events: Vec::new() });
            self.systems.len() - 1
        });
        &mut self.systems[index]
    }

    /// As `system:name`.
    pub(super) fn names(&self) -> Vec<String> {
        let of = |system: &System| -> Vec<String> {
            system.events.iter().map(|event| format!("{}:{}", system.name, event.name)).collect()
        };
        self.systems.iter().flat_map(of).collect()
    }
}

/// The event without which nothing is known.
const CPU_IDLE: &str = "power:cpu_idle";

/// Systems that not every architecture has, and our own driver's.
const SYSTEMS_OF_SOME: [&str; 4] = ["irq_vectors", "ipi", "powerpc", "idlewise"];

/// Returns the wanted events that this kernel lacks, as `system:name`. Those that only some architectures have
/// are left out.
pub(super) fn lacking(
    root: &Root,
    tracefs: &Tracefs,
    wanted: impl IntoIterator<Item = WantedEvent>,
) -> Result<Vec<String>, RecordError> {
    let wanted = wanted.into_iter().filter(|it| !SYSTEMS_OF_SOME.contains(&it.system()));
    let is_lacking =
        |it: &WantedEvent| matching(*it, tracefs.events_of(root, it.system())).is_empty();
    let lacking: Vec<String> =
        wanted.filter(is_lacking).map(|it| format!("{}:{}", it.system(), it.name())).collect();
    match lacking.iter().any(|name| name == CPU_IDLE) {
        true => Err(RecordError::NoCpuIdle),
        false => Ok(lacking),
    }
}

/// The names that a wanted event stands for, in order.
fn matching(wanted: WantedEvent, mut names: Vec<String>) -> Vec<String> {
    names.retain(|name| wanted.matches(wanted.system(), name));
    names.sort();
    names
}

/// The descriptions of ftrace's own records, which every trace.dat begins with.
pub(super) fn ftrace_formats(tracefs: &Tracefs) -> Result<Vec<Vec<u8>>, RecordError> {
    let mut names = subfolders(&tracefs.path("events/ftrace"));
    names.sort();
    names.iter().map(|name| tracefs.bytes(&format!("events/ftrace/{name}/format"))).collect()
}

/// The names of a folder's subfolders. Empty if the folder does not exist.
fn subfolders(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
