//! The kernel module idlewise_bench in debugfs: write a request, read samples.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::{
    IpiError, ProxySamples, Request, Samples, SamplesError, StateSamples, TimerSamples, Wakes,
};
use crate::Root;
use crate::root::read_whole;
use crate::surroundings::module_is_installed;

/// The longest line of samples: three 32-bit counts, two of 64 bits, commas, line end, a margin.
const LINE_BYTE_COUNT_MAX: u64 = 96;
/// The two header lines.
const HEAD_BYTE_COUNT_MAX: u64 = 1024;

/// The result of a request to the module.
pub(super) trait Batch: Sized {
    /// The module's files for the request and for its result.
    const FILES: [&'static str; 2];

    fn parse(text: &str) -> Result<Self, SamplesError>;

    /// The number of wakes that were measured or given up.
    fn answered_count(&self) -> u64;
}

/// A request for wakes out of known states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateRequest {
    /// The CPU that wakes.
    pub source: u16,
    /// The CPU to wake.
    pub target: u16,
    /// The number of wakes.
    pub wake_count: u64,
    /// The shortest and the longest time between wakes, in microseconds.
    pub gap_us: [u64; 2],
}

impl Batch for StateSamples {
    const FILES: [&'static str; 2] = ["state_run", "state_samples"];

    fn parse(text: &str) -> Result<Self, SamplesError> {
        StateSamples::parse(text)
    }

    fn answered_count(&self) -> u64 {
        self.samples.len() as u64 + self.given_up_count
    }
}

impl Batch for Samples {
    const FILES: [&'static str; 2] = ["run", "samples"];

    fn parse(text: &str) -> Result<Self, SamplesError> {
        Samples::parse(text)
    }

    fn answered_count(&self) -> u64 {
        self.samples.len() as u64 + self.given_up_count
    }
}

impl Wakes for Samples {
    fn wake_count(&self) -> u64 {
        self.samples.len() as u64
    }

    fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    fn append(&mut self, other: Self) {
        self.samples.extend(other.samples);
        self.given_up_count += other.given_up_count;
    }

    fn emptied(self) -> Self {
        Samples { given_up_count: 0, samples: Vec::new(), ..self }
    }
}

impl Batch for TimerSamples {
    const FILES: [&'static str; 2] = ["timer_run", "timer_samples"];

    fn parse(text: &str) -> Result<Self, SamplesError> {
        TimerSamples::parse(text)
    }

    fn answered_count(&self) -> u64 {
        self.interrupts_ns.len() as u64 + self.given_up_count
    }
}

impl Wakes for TimerSamples {
    fn wake_count(&self) -> u64 {
        self.interrupts_ns.len() as u64
    }

    fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    fn append(&mut self, other: Self) {
        self.interrupts_ns.extend(other.interrupts_ns);
        self.given_up_count += other.given_up_count;
    }

    fn emptied(self) -> Self {
        TimerSamples::default()
    }
}

impl Wakes for ProxySamples {
    fn wake_count(&self) -> u64 {
        self.latencies_ns.len() as u64
    }

    fn given_up_count(&self) -> u64 {
        self.given_up_count
    }

    fn append(&mut self, other: Self) {
        self.latencies_ns.extend(other.latencies_ns);
        self.sends_ns.extend(other.sends_ns);
        self.given_up_count += other.given_up_count;
    }

    fn emptied(self) -> Self {
        ProxySamples::default()
    }
}

/// The module, locked for our use while this value exists.
#[derive(Debug)]
pub(crate) struct Module {
    /// The lock. There is only one for all files, because every measurement forces states.
    _lock: File,
    root: Root,
}

/// The module's folder.
const FOLDER: &str = "sys/kernel/debug/idlewise_bench";
/// The kernel's log.
const LOG: &str = "dev/kmsg";

impl Module {
    pub(crate) fn open(root: &Root) -> Result<Self, IpiError> {
        check_tsc(root)?;
        let name = format!("{FOLDER}/run");
        let path = root.path(&name);
        let lock = root.open_as(&name, OFlags::WRONLY).map_err(|source| match source.kind() {
            ErrorKind::NotFound => absence(root),
            _ => denied(&path, source),
        })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(IpiError::Busy),
            Err(error) => return Err(denied(&path, error.into())),
        }
        Ok(Module { _lock: lock, root: root.clone() })
    }

    /// Measures. This takes about `wake_count` times `gap_us`, in which the kernel cannot be
    /// interrupted.
    pub(super) fn measure<B: Batch>(&mut self, request: Request) -> Result<B, IpiError> {
        let Request { source, target, wake_count, gap_us } = request;
        let source = source.map_or_else(String::new, |source| format!("{source} "));
        self.ask(&format!("{source}{target} {wake_count} {gap_us}\n"), wake_count)
    }

    /// Wakes a CPU out of whatever state it is in, and finds out which. This takes about `wake_count` times the
    /// gap, in which the kernel cannot be interrupted.
    pub(crate) fn measure_states(
        &mut self,
        request: &StateRequest,
    ) -> Result<StateSamples, IpiError> {
        let StateRequest { source, target, wake_count, gap_us: [least_us, most_us] } = request;
        let words = format!("{source} {target} {wake_count} {least_us} {most_us}\n");
        self.ask(&words, *wake_count)
    }

    fn ask<B: Batch>(&mut self, words: &str, wake_count: u64) -> Result<B, IpiError> {
        let [run, samples] = B::FILES.map(|file| format!("{FOLDER}/{file}"));
        let [run_path, samples_path] = [&run, &samples].map(|name| self.root.path(name));
        let log = KernelLog::from_here(&self.root);
        // Each write is a whole request.
        let written = self
            .root
            .open_as(&run, OFlags::WRONLY)
            .and_then(|mut run| retried(|| run.write(words.as_bytes())));
        written.map_err(|source| IpiError::Refused {
            path: run_path,
            source,
            kernel_line: log.and_then(KernelLog::last_line),
        })?;
        let text = samples_text(&self.root, &samples, wake_count)?;
        let batch = B::parse(&text)
            .map_err(|source| IpiError::Samples { path: samples_path.clone(), source })?;
        let found_count = batch.answered_count();
        if found_count != wake_count {
            let path = samples_path;
            return Err(IpiError::WrongCount { path, found_count, expected_count: wake_count });
        }
        Ok(batch)
    }
}

fn samples_text(root: &Root, name: &str, wake_count: u64) -> Result<String, IpiError> {
    let fail = |source| denied(&root.path(name), source);
    let limit = HEAD_BYTE_COUNT_MAX + wake_count.saturating_mul(LINE_BYTE_COUNT_MAX);
    let file = root.open_as(name, OFlags::RDONLY).map_err(fail)?;
    let bytes = read_whole(file, limit).map_err(fail)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A signal ends a run and its wakes are lost, so the run is repeated. Runs are short, and the
/// caller checks between them whether to stop.
fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Fails if the kernel has stopped trusting the TSC, before or after the module was loaded.
pub(crate) fn check_tsc(root: &Root) -> Result<(), IpiError> {
    let name = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    match root.text(name) {
        Some(found) if !found.split(' ').any(|clock| clock == "tsc") => {
            Err(IpiError::UnstableTsc { file: root.path(name), found })
        }
        _ => Ok(()),
    }
}

/// Finds out why the module's files are missing.
fn absence(root: &Root) -> IpiError {
    // Whether it is loaded comes first: without the module, mounting debugfs would not help.
    if root.has("sys/module/idlewise_bench") {
        return IpiError::NoDebugfs;
    }
    let kernel = root.text("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    if module_is_installed(root, &kernel, "idlewise_bench") {
        IpiError::NotLoaded
    } else {
        IpiError::NotInstalled { kernel }
    }
}

fn denied(path: &Path, source: io::Error) -> IpiError {
    let path = path.to_owned();
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS) => IpiError::NotPermitted { path, source },
        Some(Errno::PERM) => IpiError::LockedDown { path, source },
        _ => IpiError::Refused { path, source, kernel_line: None },
    }
}

/// The kernel's log from some point on.
struct KernelLog(File);

impl KernelLog {
    /// Returns `None` if the log cannot be read; then the kernel's message is unknown.
    fn from_here(root: &Root) -> Option<Self> {
        let mut log = root.open_as(LOG, OFlags::RDONLY | OFlags::NONBLOCK).ok()?;
        log.seek(SeekFrom::End(0)).ok()?;
        Some(KernelLog(log))
    }

    /// The module's last line since then, without the module's name.
    fn last_line(mut self) -> Option<String> {
        let mut last = None;
        // A read returns one record: numbers, a semicolon, the text, and lines about devices.
        let mut record = [0; 8192];
        loop {
            match self.0.read(&mut record) {
                Ok(0) => return last,
                Ok(byte_count) => {
                    let text = String::from_utf8_lossy(&record[..byte_count]);
                    let line = text.lines().next().unwrap_or_default();
                    let words = line.split_once(';').map_or(line, |(_, words)| words);
                    last = words.strip_prefix("idlewise_bench: ").map(str::to_owned).or(last);
                }
                // The log overran us. Some records are lost, and the next read continues.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => return last,
            }
        }
    }
}
