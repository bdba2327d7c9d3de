//! Enables in an instance the wanted events that this kernel has.

use std::fs;
use std::path::Path;

use idlewise_trace::WantedEvent;

use super::RecordError;
use crate::Tracefs;
use crate::tracefs::Instance;

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
            let mut names: Vec<String> = subfolders(&folder);
            names.retain(|name| wanted.matches(system, name));
            names.sort();
            for name in names {
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
        match events.names().iter().any(|name| name == "power:cpu_idle") {
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
