//! Recording: writes the events that the gap builder needs from the kernel's ring buffers to a file
//! that trace-cmd and KernelShark can also read.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Recording`]: what is set up, in which order, and how it is removed |
//! | `events.rs` | which of the wanted events this kernel has |
//! | `reader.rs` | threads that move pages from ring buffers to files |
//! | `trace_dat.rs` | the file: a head, then each CPU's pages |
//! | `wakes.rs` | [`WakeWatch`]: hands out pages instead of writing a file |
//!
//! The recorder must not disturb what it records. The kernel filters out unneeded events before
//! they reach the buffer. A reader wakes once a second, or when a buffer is half full. Pages go
//! from the ring buffer through a pipe to the file, without being copied by us. If readers are too
//! slow, the kernel overwrites the oldest page and marks the gap, so that the importer knows where
//! events are missing. The kernel's count of them is read at the end.

mod events;
mod reader;
mod trace_dat;
mod wakes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idlewise_trace::{MachineNote, OutputFile, WantedEvent};
use serde::{Serialize, Serializer};

pub use crate::record_error::RecordError;
pub use wakes::WakeWatch;

use crate::note::compare;
use crate::tracefs::Instance;
use crate::{Root, Tracefs};
use events::Events;
use reader::Readers;
use trace_dat::{CpuPart, TraceDat};

/// The clock of the timestamps. It is the kernel timers' clock, so expiries need no conversion.
const CLOCK: &str = "mono";
/// The largest default buffer for a CPU.
const BUFFER_KB_MAX: u64 = 8 << 10;
/// The smallest default buffer.
const BUFFER_KB_MIN: u64 = 1 << 10;
/// All buffers together take at most this fraction of the machine's memory.
const MEMORY_PART: u64 = 32;

/// A recording in progress. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub struct Recording {
    // Readers hold files of the instance open, so they are dropped first.
    readers: Readers,
    instance: Instance,
    tracefs: Tracefs,
    root: Root,
    output: OutputFile,
    events: Events,
    cpus: Vec<u16>,
    buffer_kb: u64,
    removed_instance_count: usize,
    started: Instant,
}

/// The result of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingSummary {
    /// The file.
    #[serde(serialize_with = "shown_path")]
    pub output: PathBuf,
    /// Its size.
    pub byte_count: u64,
    /// The events in it, according to the kernel.
    pub event_count: u64,
    /// Events that the kernel dropped because readers were too slow, for each CPU that has any.
    pub lost_event_counts: BTreeMap<u16, u64>,
    /// How long it recorded.
    pub recorded_ns: u64,
    /// The CPUs that were recorded.
    pub cpus: Vec<u16>,
    /// The size of each CPU's buffer.
    pub buffer_kb: u64,
    /// The events that were recorded, as `system:name`.
    pub events: Vec<String>,
    /// The tracing instance, if it could not be removed because another program has it open. It is
    /// inactive and has no buffers, and the next recorder removes it.
    #[serde(serialize_with = "shown_paths")]
    pub left_instance: Option<PathBuf>,
}

/// A path may not be UTF-8, but JSON must be.
fn shown_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn shown_paths<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes that have been read from the buffers.
    pub byte_count: u64,
    /// Events that have been read from the buffers or are still in them.
    pub event_count: u64,
    /// Events that the kernel dropped.
    pub lost_event_count: u64,
}

impl Recording {
    /// Starts to record the events `wanted` ([`idlewise_trace::wanted_events`] or
    /// [`idlewise_trace::cause_events`]) of all online CPUs, with a buffer of `buffer_kb` KiB for each; `None` chooses
    /// a size that suits the machine. The output should be private, because it contains addresses
    /// of kernel objects.
    ///
    /// # Errors
    /// Fails if the output cannot be written, or if the kernel does not allow recording.
    pub fn start(
        root: &Root,
        output: OutputFile,
        buffer_kb: Option<u64>,
        wanted: impl IntoIterator<Item = WantedEvent>,
    ) -> Result<Self, RecordError> {
        let tracefs = Tracefs::find(root)?;
        let cpus = root.online_cpus();
        if cpus.is_empty() {
            return Err(RecordError::NoCpus);
        }
        let (instance, removed_instance_count) = Instance::create(&tracefs)?;
        instance.set("trace_clock", CLOCK)?;
        let wanted_kb = buffer_kb.unwrap_or_else(|| suitable_buffer_kb(root, cpus.len()));
        instance.set("buffer_size_kb", &wanted_kb.to_string())?;
        let events = Events::enable(&instance, wanted)?;
        let readers = Readers::start(&instance, &cpus, &output)?;
        // This comes last: the effects of enabling the events must not be recorded.
        instance.set("tracing_on", "1")?;
        let buffer_kb = String::from_utf8_lossy(&instance.bytes("buffer_size_kb")?)
            .split_whitespace()
            .next()
            .and_then(|kb| kb.parse().ok())
            .unwrap_or(wanted_kb);
        Ok(Recording {
            readers,
            instance,
            tracefs,
            root: root.clone(),
            output,
            events,
            cpus,
            buffer_kb,
            removed_instance_count,
            started: Instant::now(),
        })
    }

    /// Returns the CPUs that are recorded.
    pub fn cpus(&self) -> &[u16] {
        &self.cpus
    }

    /// Returns the actual size of each CPU's buffer in KiB.
    pub fn buffer_kb(&self) -> u64 {
        self.buffer_kb
    }

    /// Returns how many instances of dead recorders were removed.
    pub fn removed_instance_count(&self) -> usize {
        self.removed_instance_count
    }

    /// Returns how long it has been recording.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the progress. Reads one small file for each CPU.
    ///
    /// # Errors
    /// Fails if a reader failed, for example on a full disk. Nothing can be saved then.
    pub fn progress(&self) -> Result<Progress, RecordError> {
        self.readers.check()?;
        let mut progress =
            Progress { byte_count: self.readers.byte_count(), ..Progress::default() };
        for &cpu in &self.cpus {
            let stats = Stats::read(&self.instance, cpu)?;
            progress.event_count += stats.read_count + stats.waiting_count;
            progress.lost_event_count += stats.lost_count;
        }
        Ok(progress)
    }

    /// Stops the tracing. Nothing is recorded from here on.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn stop(&self) -> Result<(), RecordError> {
        self.instance.set("tracing_on", "0")
    }

    /// Ends the recording. When this returns the file is complete, and the instance is removed
    /// unless another program has it open. `progress` is called with the number of bytes written
    /// and to write.
    ///
    /// # Errors
    /// Fails if the file cannot be written. Nothing is left behind then.
    pub fn finish(
        self,
        mut note: MachineNote,
        progress: &dyn Fn(u64, u64),
    ) -> Result<RecordingSummary, RecordError> {
        self.stop()?;
        let recorded_ns = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let Recording { readers, instance, tracefs, root, output, events, cpus, buffer_kb, .. } =
            self;
        let files = readers.finish()?;
        let mut lost_event_counts = BTreeMap::new();
        let mut event_count = 0;
        let mut parts = Vec::new();
        for (cpu, pages) in files {
            let stats = Stats::read(&instance, cpu)?;
            event_count += stats.read_count;
            if stats.lost_count > 0 {
                lost_event_counts.insert(cpu, stats.lost_count);
            }
            parts.push(CpuPart { cpu, pages, stats: stats.text });
        }
        compare(&mut note, &root);
        let head = TraceDat {
            header_page: instance
                .bytes("events/header_page")
                .or_else(|_| tracefs.bytes("events/header_page"))?,
            header_event: instance
                .bytes("events/header_event")
                .or_else(|_| tracefs.bytes("events/header_event"))?,
            ftrace_formats: events::ftrace_formats(&tracefs)?,
            events: &events,
            cmdlines: tracefs.bytes("saved_cmdlines").unwrap_or_default(),
            trace_clock: instance.bytes("trace_clock")?,
            cpu_count: root
                .possible_cpu_count()
                .max(usize::from(cpus.last().copied().unwrap_or(0)) + 1),
            note: &note,
        };
        // Remove it before the long copy, so that a kill during the copy leaves no instance. If
        // another program has it open, like `cat trace_pipe`, the recording must not be lost.
        let left = instance.remove().err();
        let path = output.path().to_owned();
        let byte_count = trace_dat::finish(output, &head, parts, progress)?;
        Ok(RecordingSummary {
            output: path,
            byte_count,
            event_count,
            lost_event_counts,
            recorded_ns,
            cpus,
            buffer_kb,
            events: events.names(),
            // It may have been closed in the meantime.
            left_instance: left.and_then(|instance| instance.remove().err()?.into_path()),
        })
    }
}

/// Finds out whether [`Recording::start`] can record the events `wanted`, and changes nothing. Returns the events that this
/// kernel lacks, as `system:name`, without those that only some architectures have.
///
/// # Errors
/// Fails like [`Recording::start`].
pub fn check_recording(
    root: &Root,
    wanted: impl IntoIterator<Item = WantedEvent>,
) -> Result<Vec<String>, RecordError> {
    let tracefs = Tracefs::find(root)?;
    if root.online_cpus().is_empty() {
        return Err(RecordError::NoCpus);
    }
    tracefs.check_instances(root)?;
    let lacking = events::lacking(root, &tracefs, wanted)?;
    tracefs.check_event(root, "power/cpu_idle")?;
    Ok(lacking)
}

/// Fails if this process may not read the descriptions of events, as `perf record` does.
///
/// # Errors
/// Fails like [`Recording::start`].
pub fn check_event_descriptions(root: &Root) -> Result<(), RecordError> {
    Tracefs::find(root)?.check_event(root, "power/cpu_idle")
}

/// A size for each CPU's buffer that holds a second of a busy CPU's events and is small compared
/// with the machine's memory.
fn suitable_buffer_kb(root: &Root, cpu_count: usize) -> u64 {
    let memory_kb = root
        .text("proc/meminfo")
        .and_then(|text| {
            let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
            total.split_whitespace().next()?.parse::<u64>().ok()
        })
        .unwrap_or(0);
    let share_kb = memory_kb / MEMORY_PART / (cpu_count as u64).max(1);
    share_kb.clamp(BUFFER_KB_MIN, BUFFER_KB_MAX)
}

/// The kernel's counts for one CPU's buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stats {
    /// The text as the kernel prints it.
    text: String,
    waiting_count: u64,
    read_count: u64,
    lost_count: u64,
}

impl Stats {
    fn read(instance: &Instance, cpu: u16) -> Result<Self, RecordError> {
        let bytes = instance.bytes(&format!("per_cpu/cpu{cpu}/stats"))?;
        Ok(Stats::parse(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn parse(text: String) -> Self {
        let of = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
                .unwrap_or(0)
        };
        Stats {
            waiting_count: of("entries"),
            read_count: of("read events"),
            lost_count: of("overrun") + of("commit overrun") + of("dropped events"),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_the_kernel_lost() {
        let text = "entries: 12\noverrun: 300\ncommit overrun: 4\nbytes: 600\noldest event ts:  1.5\n\
                    now ts:  2.5\ndropped events: 50\nread events: 7000\n";
        let stats = Stats::parse(text.to_owned());
        assert_eq!((stats.waiting_count, stats.read_count, stats.lost_count), (12, 7_000, 354));
    }

    #[test]
    fn buffers_suit_the_machine() {
        let with_memory = |kb: u64, cpu_count| {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("proc")).unwrap();
            let text = format!("MemTotal:       {kb} kB\nMemFree: 1 kB\n");
            std::fs::write(folder.path().join("proc/meminfo"), text).unwrap();
            suitable_buffer_kb(&Root::at(folder.path()), cpu_count)
        };
        assert_eq!(with_memory(256 << 20, 8), 8 << 10, "a large machine");
        assert_eq!(with_memory(32 << 20, 512), 2 << 10, "many CPUs share a 32nd of the memory");
        assert_eq!(with_memory(512 << 10, 64), 1 << 10, "but they need some");
    }
}
