//! Recording: the events that the gap builder needs, from the kernel's ring buffers into a file
//! that trace-cmd and KernelShark read too.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`Recording`]: what is set up, in which order, and taken down |
//! | `events.rs` | which events this kernel has of those that are wanted |
//! | `reader.rs` | threads that move whole pages from ring buffers to files |
//! | `trace_dat.rs` | the file: a head, then each CPU's pages |
//! | `error.rs` | [`RecordError`] |
//!
//! The recorder must not disturb what it records. The kernel drops what is not needed before it
//! reaches the buffer. A reader wakes once a second, or when a buffer is half full; pages go from
//! the ring buffer through a pipe to the file without being copied by us. Where readers are too
//! slow, the kernel overwrites the oldest page and marks the gap, so that the importer knows where
//! events are missing; it is asked how many at the end.

mod error;
mod events;
mod reader;
mod trace_dat;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idlewise_trace::{MachineNote, OutputFile};
use serde::{Serialize, Serializer};

pub use error::RecordError;

use crate::note::compare;
use crate::tracefs::Instance;
use crate::{Root, Tracefs};
use events::Events;
use reader::Readers;
use trace_dat::{CpuPart, TraceDat};

/// The clock of the timestamps: that of the kernel's timers, so that expiries need no conversion.
const CLOCK: &str = "mono";
/// The most memory that is taken for one CPU's buffer if nobody says how much.
const BUFFER_KB_MAX: u64 = 8 << 10;
/// The least.
const BUFFER_KB_MIN: u64 = 1 << 10;
/// All buffers together take no more of the machine's memory than one part in so many.
const MEMORY_PART: u64 = 32;

/// A recording that is going on. Dropped, it ends and leaves nothing.
#[derive(Debug)]
pub struct Recording {
    // Readers hold files of the instance open, so they are dropped before it.
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

/// What a recording came to.
#[derive(Clone, Debug, Serialize)]
pub struct RecordingSummary {
    /// The file.
    #[serde(serialize_with = "shown_path")]
    pub output: PathBuf,
    /// Its size.
    pub byte_count: u64,
    /// Events in it, as the kernel counted them.
    pub event_count: u64,
    /// Events that the kernel dropped because readers were too slow, for each CPU that has any.
    pub lost_event_counts: BTreeMap<u16, u64>,
    /// How long it recorded.
    pub recorded_ns: u64,
    /// The CPUs that were recorded.
    pub cpus: Vec<u16>,
    /// Each CPU's buffer.
    pub buffer_kb: u64,
    /// The events that were recorded, as `system:name`.
    pub events: Vec<String>,
    /// The tracing instance, if it could not be removed because somebody else has it open. It rests,
    /// without buffers, and the next recorder removes it.
    #[serde(serialize_with = "shown_paths")]
    pub left_instance: Option<PathBuf>,
}

/// A name may be no UTF-8, and JSON is.
fn shown_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

fn shown_paths<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Bytes that have left the buffers.
    pub byte_count: u64,
    /// Events that left the buffers or wait in them.
    pub event_count: u64,
    /// Events that the kernel dropped.
    pub lost_event_count: u64,
}

impl Recording {
    /// Starts to record all CPUs that are online, with a buffer of so many KiB for each; `None` for
    /// a size that suits the machine. The output should be private: it gets addresses of the kernel's
    /// objects.
    ///
    /// # Errors
    /// If the output can't be written, or the kernel does not let us record.
    pub fn start(
        root: &Root,
        output: OutputFile,
        buffer_kb: Option<u64>,
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
        let events = Events::enable(&instance)?;
        let readers = Readers::start(&instance, &cpus, &output)?;
        // Last: what enabling the events did to the machine is no part of the recording.
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

    /// The CPUs that are recorded.
    pub fn cpus(&self) -> &[u16] {
        &self.cpus
    }

    /// Each CPU's buffer in KiB, as large as the kernel made it.
    pub fn buffer_kb(&self) -> u64 {
        self.buffer_kb
    }

    /// How many instances of recorders that died were removed.
    pub fn removed_instance_count(&self) -> usize {
        self.removed_instance_count
    }

    /// For how long it has been recording.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How far it is. Reads one small file for each CPU.
    ///
    /// # Errors
    /// If a reader failed, as on a full disk; then nothing can be saved any more.
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

    /// Stops the kernel's side: from here on nothing more is recorded.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(&self) -> Result<(), RecordError> {
        self.instance.set("tracing_on", "0")
    }

    /// Ends the recording: the file is whole when this returns, and the instance is gone unless
    /// somebody else has it open.
    /// `progress` is told how many bytes of how many are written.
    ///
    /// # Errors
    /// If the file can't be written. Nothing is left behind then.
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
        // Before the long copy, so that a kill in it leaves no instance. Whoever has the instance
        // open, as `cat trace_pipe` does, must not cost us the recording.
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
            // They may have closed it meanwhile.
            left_instance: left.and_then(|instance| instance.remove().err()?.into_path()),
        })
    }
}

/// A size for each CPU's buffer that holds a second of a busy CPU's events and is small beside the
/// machine's memory.
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

/// What the kernel counted of one CPU's buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Stats {
    /// As the kernel prints it.
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
