//! The process that runs foreign code.
//!
//! ```text
//! idlewise                              idlewise plugin-worker LIBRARY
//!   PluginLane ── setting, gaps ──────►   GovernorLane over an Instance
//!              ◄── tally ──────────────
//!   RemoteGovernor ── question ───────►   Instance          (slow: two messages a decision)
//!                  ◄── answer ─────────
//!              ◄── failure ────────────   signal handler, watchdog, range check; then it ends
//! ```
//!
//! Messages go through the child's standard input and output; the governor itself sees neither. A
//! worker serves one lane at a time, each with a fresh copy of the library, and is used again for
//! the next.

mod guard;
mod protocol;
mod serve;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) use protocol::{Kind, Message};
pub use serve::serve;

pub(crate) use protocol::{
    GAP_BYTE_COUNT, get_answer, get_device, get_tally, put_gap, put_governor, put_outcome,
    put_question, put_setting,
};

/// How to start a worker: a program whose `main` calls [`serve`] with the library's path, which
/// comes as its last argument.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// What comes before the library's path.
    pub arguments: Vec<OsString>,
}

/// What a governor did that ended its replay, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it did.
    pub cause: FailureCause,
    /// The log and machine, or whatever else the lane was called.
    pub lane: String,
    /// The gap, counted from 0 on its CPU; the decision, if governors are asked one by one.
    pub index: u64,
    /// The CPU; none if governors are asked one by one.
    pub cpu: Option<u16>,
    /// When the gap starts, or when the question was asked.
    pub at_ns: i64,
}

/// What a governor did that ended its replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A signal: the governor crashed or called `BUG()`.
    Signal(i32),
    /// One gap took longer than any governor needs.
    Loop,
    /// An answer that is no state.
    OutOfRange {
        /// The answer.
        answer: i32,
        /// How many states there are.
        state_count: u32,
    },
    /// The process ended without a word, as when the governor calls `exit`.
    Gone,
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "crashed ({name})"),
                None => write!(f, "crashed (signal {signal})"),
            },
            Self::Loop => write!(
                f,
                "took more than {} s of CPU time and was stopped (an endless loop?)",
                guard::CPU_LIMIT.as_secs()
            ),
            Self::OutOfRange { answer, state_count } => {
                write!(f, "answered state {answer} where there are 0 to {}", state_count.max(1) - 1)
            }
            Self::Gone => f.write_str("ended its process"),
        }
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGABRT, "SIGABRT"),
    ];
    names.into_iter().find(|&(number, _)| number == signal).map(|(_, name)| name)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { cause, lane, index, cpu, at_ns } = self;
        match cpu {
            Some(cpu) => {
                write!(f, "{cause} in gap {index} of CPU {cpu}, from {at_ns} ns, of {lane}")
            }
            None => write!(f, "{cause} in decision {index}, at {at_ns} ns, of {lane}"),
        }
    }
}

/// A running worker, seen from outside. Dropping it ends it.
pub(crate) struct Worker {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Worker {
    pub(crate) fn start(command: &WorkerCommand, library: &Path) -> io::Result<Self> {
        let mut child = Command::new(&command.program)
            .args(&command.arguments)
            .arg(library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        Ok(Worker { child, input, output })
    }

    pub(crate) fn send(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        protocol::send(&mut self.input, kind, payload)
    }

    /// The next message; when the process has ended without one, what became of it.
    pub(crate) fn receive(&mut self) -> Message {
        match protocol::receive(&mut self.output) {
            Ok(Some(message)) => message,
            _ => Message { kind: Kind::Failure, payload: self.last_words() },
        }
    }

    fn last_words(&mut self) -> Vec<u8> {
        use std::os::unix::process::ExitStatusExt;
        let status = self.child.wait().ok();
        let cause = match status.and_then(|status| status.signal()) {
            Some(signal) => FailureCause::Signal(signal),
            None => FailureCause::Gone,
        };
        protocol::failure(cause, 0, u32::MAX, 0)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be in foreign code that never comes back.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a failure's message.
pub(crate) fn failure_of(payload: &[u8], lane: &str) -> Failure {
    protocol::get_failure(payload, lane)
}
