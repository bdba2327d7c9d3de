//! Threads that move pages from the ring buffers to files, one file for each CPU.
//!
//! Full pages go from the buffer into a pipe and from there to the file (splice). Partly filled
//! pages would be padded, so the last one is read at the end. A thread serves many CPUs, because
//! each wake-up of a reader is a wake-up in the trace.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use idlewise_trace::OutputFile;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::RecordError;
use crate::tracefs::Instance;

/// How many CPUs a thread serves. A CPU that records 20 MB/s takes a few percent of a reader.
const CPUS_PER_THREAD: usize = 16;
/// The capacity of the pipe, if we may set it. It bounds the number of pages in a splice.
const PIPE_BYTE_COUNT: usize = 1 << 20;
/// How long a reader waits at most.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The threads and their shared state.
#[derive(Debug)]
pub(super) struct Readers {
    threads: Vec<JoinHandle<Result<Files, io::Error>>>,
    /// Closing it tells the threads to drain the buffers and end.
    stop: Option<OwnedFd>,
    shared: Arc<Shared>,
    output: PathBuf,
}

/// Each CPU's pages.
type Files = Vec<(u16, File)>;

#[derive(Debug, Default)]
struct Shared {
    byte_count: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

struct Reader {
    cpus: Vec<CpuReader>,
    pipe: (OwnedFd, OwnedFd),
    pipe_byte_count: usize,
    page_byte_count: usize,
    stop: Arc<OwnedFd>,
    shared: Arc<Shared>,
}

struct CpuReader {
    cpu: u16,
    ring: File,
    pages: File,
}

impl Readers {
    /// Opens the buffers and starts to read them.
    pub(super) fn start(
        instance: &Instance,
        cpus: &[u16],
        output: &OutputFile,
    ) -> Result<Self, RecordError> {
        let fail = |error: Errno| RecordError::Reader { source: error.into() };
        let shared = Arc::new(Shared::default());
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).map_err(fail)?;
        let stopped = Arc::new(stopped);
        let mut readers = Readers {
            threads: Vec::new(),
            stop: Some(stop),
            shared: shared.clone(),
            output: output.path().to_owned(),
        };
        for cpus in cpus.chunks(CPUS_PER_THREAD) {
            let open = |&cpu: &u16| -> Result<CpuReader, RecordError> {
                let ring = instance.open_ring(cpu)?;
                Ok(CpuReader { cpu, ring, pages: output.scratch()? })
            };
            let cpus = cpus.iter().map(open).collect::<Result<Vec<_>, _>>()?;
            let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(fail)?;
            let pipe_byte_count = fcntl_setpipe_size(&pipe.1, PIPE_BYTE_COUNT)
                .or_else(|_| rustix::pipe::fcntl_getpipe_size(&pipe.1))
                .map_err(fail)?;
            let reader = Reader {
                cpus,
                pipe,
                pipe_byte_count,
                page_byte_count: rustix::param::page_size(),
                stop: stopped.clone(),
                shared: shared.clone(),
            };
            let thread = thread::Builder::new()
                .name("idlewise-record".to_owned())
                .spawn(move || reader.run())
                .map_err(|source| RecordError::Reader { source })?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// The number of bytes in the files.
    pub(super) fn byte_count(&self) -> u64 {
        // Relaxed is enough: the figure is only displayed.
        self.shared.byte_count.load(Ordering::Relaxed)
    }

    /// Fails if a reader has failed.
    pub(super) fn check(&self) -> Result<(), RecordError> {
        // Acquire pairs with the release in `Reader::run`, so the reason is available.
        if !self.shared.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure =
            self.shared.failure.lock().expect("no reader panics while it holds it").take();
        let source = failure.unwrap_or_else(|| io::Error::other("a reader failed"));
        Err(RecordError::Write { path: self.output.clone(), source })
    }

    /// Drains the buffers after tracing has stopped, and returns each CPU's pages in order.
    pub(super) fn finish(mut self) -> Result<Files, RecordError> {
        let mut files = Vec::new();
        for outcome in self.join() {
            match outcome {
                Ok(some) => files.extend(some),
                Err(source) => {
                    return Err(RecordError::Write { path: self.output.clone(), source });
                }
            }
        }
        Ok(files)
    }

    fn join(&mut self) -> Vec<Result<Files, io::Error>> {
        drop(self.stop.take());
        let join = |thread: JoinHandle<_>| match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        self.threads.drain(..).map(join).collect()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // The instance cannot be removed while a thread has its files open.
        self.join();
    }
}

impl Reader {
    fn run(mut self) -> Result<Files, io::Error> {
        let outcome = self.read_until_stopped();
        if let Err(error) = &outcome {
            let told = error
                .raw_os_error()
                .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error);
            *self.shared.failure.lock().expect("nobody panics while holding it") = Some(told);
            // Release pairs with the acquire in `Readers::check`.
            self.shared.has_failed.store(true, Ordering::Release);
        }
        outcome?;
        Ok(self.cpus.into_iter().map(|cpu| (cpu.cpu, cpu.pages)).collect())
    }

    fn read_until_stopped(&mut self) -> io::Result<()> {
        // Kernels that ignore the wake-up threshold wake a reader for every event. On those, it
        // waits only by time.
        let mut waits_for_data = true;
        while !self.wait(waits_for_data)? {
            let moved = self.move_pages()?;
            waits_for_data = moved > 0;
        }
        self.move_pages()?;
        for cpu in &mut self.cpus {
            read_last_page(cpu, self.page_byte_count, &self.shared)?;
        }
        Ok(())
    }

    /// Waits a while for a buffer to be half full. Returns true if recording has stopped.
    fn wait(&self, for_data: bool) -> io::Result<bool> {
        let mut places = vec![PollFd::new(&*self.stop, PollFlags::empty())];
        if for_data {
            places.extend(self.cpus.iter().map(|cpu| PollFd::new(&cpu.ring, PollFlags::IN)));
        }
        match poll(&mut places, Some(&WAIT)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(!places[0].revents().is_empty())
    }

    /// Moves all full pages, and returns the number of bytes.
    fn move_pages(&mut self) -> io::Result<u64> {
        let mut moved = 0;
        for cpu in &self.cpus {
            loop {
                let byte_count = self.move_some(cpu)?;
                if byte_count == 0 {
                    break;
                }
                moved += byte_count;
            }
        }
        Ok(moved)
    }

    fn move_some(&self, cpu: &CpuReader) -> io::Result<u64> {
        let (read_end, write_end) = (self.pipe.0.as_fd(), self.pipe.1.as_fd());
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let filled = match splice(&cpu.ring, None, write_end, None, self.pipe_byte_count, flags) {
            Ok(filled) => filled,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut left = filled;
        while left > 0 {
            match splice(read_end, None, &cpu.pages, None, left, SpliceFlags::MOVE) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(byte_count) => left -= byte_count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.shared.byte_count.fetch_add(filled as u64, Ordering::Relaxed);
        Ok(filled as u64)
    }
}

/// Reads what splice leaves: the page that is not full.
fn read_last_page(cpu: &mut CpuReader, page_byte_count: usize, shared: &Shared) -> io::Result<()> {
    let mut page = vec![0; page_byte_count];
    loop {
        match cpu.ring.read(&mut page) {
            Ok(0) => return Ok(()),
            Ok(byte_count) => {
                // Readers of the file expect whole pages, so a short one is padded.
                page[byte_count..].fill(0);
                cpu.pages.write_all(&page)?;
                shared.byte_count.fetch_add(page.len() as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
