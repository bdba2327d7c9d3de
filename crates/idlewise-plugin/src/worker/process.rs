//! idlewise's side of a worker: starts it, asks it, watches it and ends it.
//!
//! Nothing that a worker sends is trusted. A message must have an expected kind and a bounded length, with
//! nothing after it. A tally must fit what was sent (`check.rs`).
//!
//! # Time
//!
//! The shared page says which gap the worker is in, so that an endless loop is noticed after [`CPU_LIMIT`]. But the
//! governor can write to that page, and pretend progress. So there is a second limit on the worker's CPU time, which
//! depends only on what idlewise itself announced: [`CPU_TIME_AT_FIRST`], [`CPU_TIME_OF_LOAD`] for each time the library is
//! loaded, [`CPU_TIME_OF_GAP`] for each gap or decision, and a tenth of the length of the gaps. A confined
//! governor can't wait for a time (`confine/governor.rs`), so one that does not use the CPU waits for idlewise,
//! and [`WALL_LIMIT`] ends it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::protocol::{self, HEADER_BYTE_COUNT, Kind};
use crate::failure::{FailureCause, Place};
use crate::limits::{
    CPU_LIMIT, CPU_TIME_AT_FIRST, CPU_TIME_OF_GAP, CPU_TIME_PART_OF_GAPS, WALL_LIMIT,
};
use crate::page::{ANNOUNCED_COUNT, GAP_BYTE_COUNT, Progress, Ring, SLOT_BYTE_COUNT};
use crate::process_group::kill_group;

/// The additional time for each decision. A gap of a day may have one per tick, if the governor wants them.
const CPU_LIMIT_OF_DECISION: Duration = Duration::from_micros(1);
/// What each load of the library adds to the CPU time that a worker may use in all.
const CPU_TIME_OF_LOAD: Duration = Duration::from_millis(100);
/// How often to check on a worker while waiting for it. Time is counted in these slices, so that a worker
/// is not blamed if the machine or idlewise was suspended.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const SLICE_DURATION: Duration = Duration::from_millis(100);
const SLICE_COUNT_MAX: u32 = (WALL_LIMIT.as_millis() / SLICE_DURATION.as_millis()) as u32;
/// The limit for an unconfined worker that uses a little CPU time now and then: it may only be short of CPU, but
/// not by that much.
const BUSY_SLICE_COUNT_MAX: u32 = 6 * SLICE_COUNT_MAX;
const BUSY_PART: u32 = 20;
/// A decision request is shorter than this.
const SHORT_BYTE_COUNT: usize = 1 << 10;
/// What is asked for; the system may give more. See [`Ring`].
const PIPE_BYTE_COUNT: usize = 4 << 10;

/// How to start a worker: a program whose `main` calls [`serve`](super::serve).
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Follows them if the governor should run without confinement.
    pub unconfined_argument: OsString,
}

/// A running worker. Dropping it ends the process.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    progress: Progress,
    ring: Ring,
    /// The length of an announcement of gaps: so many fill the pipe as the ring has room for.
    announcement_byte_count: usize,
    /// The CPU time that it may use in all, for what was announced so far.
    cpu_time_max: Duration,
    looked_at: Instant,
    message: Vec<u8>,
    received: Vec<u8>,
}

/// What a worker does while idlewise waits for it to read or send one message.
struct Watch {
    /// The CPU time when the wait began, and when it was last seen.
    first_cpu_time: Duration,
    last_cpu_time: Duration,
    /// Slices since the wait began, and how many of them since CPU time was last used.
    slice_count: u32,
    still_slice_count: u32,
    /// The step that the page shows, and the decision count and CPU time when it was first seen.
    step: u64,
    step_decision_count: u64,
    step_cpu_time: Duration,
}

/// What these gaps add to the CPU time that a worker may use.
fn cpu_time_of(gaps: &[u8]) -> Duration {
    let (gaps, _) = gaps.as_chunks::<GAP_BYTE_COUNT>();
    let gap_ns = gaps.iter().map(protocol::get_gap_ns).fold(0, u64::saturating_add);
    CPU_TIME_OF_GAP * gaps.len() as u32 + Duration::from_nanos(gap_ns) / CPU_TIME_PART_OF_GAPS
}

/// Starts a process from a thread that lives as long as this process. A worker is killed with the thread that started it
/// (`PR_SET_PDEATHSIG`), but one that a thread has started may be used by others when that thread ends.
fn spawn(mut command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: LazyLock<Option<mpsc::Sender<Request>>> = LazyLock::new(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        let body = move || {
            for (mut command, answer) in requests {
                // Who asked waits for it.
                let _ = answer.send(command.spawn());
            }
        };
        let thread = thread::Builder::new().name("worker starter".to_owned()).spawn(body);
        thread.is_ok().then_some(sender)
    });
    // With a limit on threads there is only one, which lives as long.
    let Some(starter) = &*STARTER else { return command.spawn() };
    let (answer, child) = mpsc::channel();
    let is_there = starter.send((command, answer)).is_ok();
    let child = if is_there { child.recv().ok() } else { None };
    child.unwrap_or_else(|| Err(io::Error::other("the thread that starts workers has ended")))
}

impl Worker {
    pub(crate) fn start(command: &WorkerCommand, is_confined: bool) -> io::Result<Self> {
        let progress = Progress::new()?;
        let mut start = Command::new(&command.program);
        start.args(&command.arguments);
        if !is_confined {
            start.arg(&command.unconfined_argument);
        }
        start
            .env_clear()
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(progress.for_worker()?);
        let mut child = spawn(start)?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let mut worker = Worker {
            child,
            input,
            output,
            ring: progress.ring()?,
            progress,
            announcement_byte_count: 0,
            cpu_time_max: CPU_TIME_AT_FIRST,
            looked_at: Instant::now(),
            message: Vec::new(),
            received: Vec::new(),
        };
        let nonblocking = rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&worker.input, nonblocking)?;
        rustix::fs::fcntl_setfl(&worker.output, nonblocking)?;
        // Where it can't be smaller, announcements are longer.
        let _ = rustix::pipe::fcntl_setpipe_size(&worker.input, PIPE_BYTE_COUNT);
        let byte_count = rustix::pipe::fcntl_getpipe_size(&worker.input)?;
        worker.announcement_byte_count = byte_count / ANNOUNCED_COUNT;
        Ok(worker)
    }

    pub(crate) fn place(&self) -> Place {
        self.progress.place()
    }

    pub(crate) fn printed(&self) -> String {
        self.progress.printed()
    }

    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), FailureCause> {
        self.cpu_time_max += match kind {
            Kind::Lane | Kind::Governor => CPU_TIME_OF_LOAD,
            Kind::Select => CPU_TIME_OF_GAP,
            // Those of gaps are added where they are sent.
            _ => Duration::ZERO,
        };
        let header = protocol::header(kind, payload.len());
        if payload.len() > SHORT_BYTE_COUNT {
            self.write(&header)?;
            return self.write(payload);
        }
        // A single system call, so the worker wakes up only once.
        let mut bytes = [0; HEADER_BYTE_COUNT + SHORT_BYTE_COUNT];
        bytes[..HEADER_BYTE_COUNT].copy_from_slice(&header);
        bytes[HEADER_BYTE_COUNT..][..payload.len()].copy_from_slice(payload);
        self.write(&bytes[..HEADER_BYTE_COUNT + payload.len()])
    }

    /// Sends encoded gaps.
    pub(crate) fn send_gaps(&mut self, gaps: &[u8]) -> Result<(), FailureCause> {
        for gaps in gaps.chunks(SLOT_BYTE_COUNT) {
            self.cpu_time_max = self.cpu_time_max.saturating_add(cpu_time_of(gaps));
            let slot = self.ring.put(gaps);
            let mut message = std::mem::take(&mut self.message);
            message.clear();
            protocol::put_slot(&mut message, slot, gaps.len(), self.announcement_byte_count);
            let sent = self.send(Kind::Gaps, &message);
            self.message = message;
            sent?;
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), FailureCause> {
        let mut watch = None;
        while !bytes.is_empty() {
            match self.input.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(true, &mut watch)?;
                }
                Err(_) => return Err(self.last_words()),
            }
        }
        Ok(())
    }

    /// Receives the next message, which must be of one of these kinds.
    pub(crate) fn receive(&mut self, kinds: &[Kind]) -> Result<(Kind, Vec<u8>), FailureCause> {
        let mut watch = None;
        let mut bytes = [0; 16 << 10];
        self.received.clear();
        loop {
            if let Some((header, payload)) = self.received.split_first_chunk::<HEADER_BYTE_COUNT>()
            {
                let (kind, length) = protocol::parse_header(header).ok_or(FailureCause::Forged)?;
                // Requests and answers alternate, so nothing can follow the answer.
                let is_ours = kinds.contains(&kind)
                    && length <= kind.byte_count_max()
                    && payload.len() <= length;
                if !is_ours {
                    return Err(FailureCause::Forged);
                }
                if payload.len() == length {
                    return Ok((kind, payload.to_vec()));
                }
            }
            match self.output.read(&mut bytes) {
                Ok(0) => return Err(self.last_words()),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(false, &mut watch)?;
                }
                Err(_) => return Err(self.last_words()),
            }
        }
    }

    /// Waits until the worker reads or writes something.
    fn wait(&mut self, is_writing: bool, watch: &mut Option<Watch>) -> Result<(), FailureCause> {
        let (input, output) = (&self.input, &self.output);
        let ready = if is_writing {
            poll(
                &mut [PollFd::new(input, PollFlags::OUT), PollFd::new(output, PollFlags::IN)],
                Some(&SLICE),
            )
        } else {
            poll(&mut [PollFd::new(output, PollFlags::IN)], Some(&SLICE))
        };
        // A worker that reads or writes a little now and then is looked at as often as one that does not.
        let is_slice_over = matches!(ready, Ok(0)) || self.looked_at.elapsed() >= SLICE_DURATION;
        if is_slice_over {
            self.looked_at = Instant::now();
            self.look(watch)?;
        }
        match ready {
            Ok(0) => Ok(()),
            Ok(_) if is_writing => self.must_be_silent(),
            _ => Ok(()),
        }
    }

    /// A worker that is being given gaps must not send anything.
    fn must_be_silent(&mut self) -> Result<(), FailureCause> {
        let mut byte = [0];
        match self.output.read(&mut byte) {
            Ok(0) => Err(self.last_words()),
            Ok(_) => Err(FailureCause::Forged),
            Err(_) => Ok(()),
        }
    }

    /// Checks, at the end of a slice, whether the worker still has time.
    fn look(&mut self, watch: &mut Option<Watch>) -> Result<(), FailureCause> {
        let (step, decision_count) = self.progress.step();
        let cpu_time = self.cpu_time();
        if self.has_ended() {
            return Err(self.last_words());
        }
        let watch = watch.get_or_insert(Watch {
            first_cpu_time: cpu_time,
            last_cpu_time: cpu_time,
            slice_count: 0,
            still_slice_count: 0,
            step,
            step_decision_count: decision_count,
            step_cpu_time: cpu_time,
        });
        watch.slice_count += 1;
        watch.still_slice_count += 1;
        if watch.last_cpu_time != cpu_time {
            (watch.last_cpu_time, watch.still_slice_count) = (cpu_time, 0);
        }
        let used = cpu_time.saturating_sub(watch.first_cpu_time);
        let is_idle = used * BUSY_PART < SLICE_DURATION * watch.slice_count;
        if watch.still_slice_count >= SLICE_COUNT_MAX
            || watch.slice_count >= BUSY_SLICE_COUNT_MAX && is_idle
        {
            return Err(FailureCause::Stuck);
        }
        // Nothing that the governor writes extends this limit, nor those of waiting.
        if cpu_time > self.cpu_time_max {
            return Err(FailureCause::Slow);
        }
        // An honest page shows a loop earlier.
        if watch.step != step {
            watch.step = step;
            (watch.step_decision_count, watch.step_cpu_time) = (decision_count, cpu_time);
        }
        let used = cpu_time.saturating_sub(watch.step_cpu_time);
        let made = decision_count.saturating_sub(watch.step_decision_count);
        let made = u32::try_from(made).unwrap_or(u32::MAX);
        let is_loop = used > CPU_LIMIT + CPU_LIMIT_OF_DECISION * made;
        if is_loop { Err(FailureCause::Loop) } else { Ok(()) }
    }

    /// The worker's CPU time since its start.
    fn cpu_time(&self) -> Duration {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: both structures are this function's own. The clock of a child that was not waited for is there.
        unsafe {
            libc::clock_getcpuclockid(self.child.id() as i32, &mut clock);
            libc::clock_gettime(clock, &mut time);
        }
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Whether the process has ended. It is not reaped yet, so its group id is still valid.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let id = Pid::from_raw(self.child.id() as i32).map(WaitId::Pid);
        id.is_some_and(|id| matches!(waitid(id, options), Ok(Some(_))))
    }

    /// Why a worker closed its pipes.
    fn last_words(&mut self) -> FailureCause {
        kill_group(self.child.id());
        let signal = self.child.wait().ok().and_then(|status| status.signal());
        match (self.progress.cause(), signal) {
            (Some(cause), _) => cause,
            (None, Some(signal)) => FailureCause::Signal(signal),
            (None, None) => FailureCause::Gone,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be in foreign code that never returns. A worker that was reaped has no group.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            kill_group(self.child.id());
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::thread;

    #[test]
    fn a_worker_outlives_the_thread_that_asked_for_it() {
        let ask = || {
            let mut command = Command::new("sleep");
            command.arg("0.3");
            // SAFETY: a system call with plain numbers, as a worker makes it.
            unsafe {
                command.pre_exec(|| {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    Ok(())
                });
            }
            super::spawn(command).unwrap()
        };
        let mut child = thread::spawn(ask).join().unwrap();
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}
