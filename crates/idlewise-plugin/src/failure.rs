//! What a governor did wrong and where, in words.

use std::fmt;

use crate::limits::{
    CPU_LIMIT, CPU_TIME_AT_FIRST, CPU_TIME_OF_GAP, CPU_TIME_PART_OF_GAPS, WALL_LIMIT,
};
use crate::syscalls::syscall_name;

/// What a governor did that ended its replay, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it did.
    pub cause: FailureCause,
    /// The lane's name, such as the log and machine.
    pub lane: String,
    /// Where in the lane it happened.
    pub place: Place,
}

/// What a worker was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Starting, or loading its library.
    Loading,
    /// Done with the gaps of a lane, and unloading its library.
    Unloading,
    /// Between gaps: waiting for the next ones.
    Waiting,
    /// Working on a gap of a lane.
    Gap {
        /// The gap's number on its CPU, beginning at 0.
        index: u64,
        /// The CPU.
        cpu: u16,
        /// When the gap starts.
        at_ns: i64,
    },
    /// Making a decision, if governors are asked one decision at a time.
    Decision {
        /// The decision's number, beginning at 0.
        index: u64,
        /// When it was asked for.
        at_ns: i64,
    },
}

/// What a governor did that ended its replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// A signal: the governor crashed or called `BUG()`.
    Signal(i32),
    /// It used more CPU time for one gap, or for being loaded, than any governor needs.
    Loop,
    /// It used more CPU time in all than the gaps that it was given allow.
    Slow,
    /// It sent nothing for a long time, and used no CPU time either.
    Stuck,
    /// It selected a state that does not exist.
    OutOfRange {
        /// The selected state.
        answer: i32,
        /// The number of states.
        state_count: u32,
    },
    /// The process ended without a message, as if the governor had called `exit`.
    Gone,
    /// It made a system call that governors may not make.
    Forbidden {
        /// The call's number.
        call: i64,
    },
    /// It sent a message that idlewise's code would not send, or a tally that is not possible for the gaps.
    Forged,
    /// A kernel governor's `enable` returned an error.
    EnableFailed {
        /// The error.
        error: i32,
    },
    /// A kernel governor's initcall registered no governor.
    NotRegistered,
}

const OUT_OF_RANGE: u64 = 1;
const FORBIDDEN: u64 = 2;
const ENABLE_FAILED: u64 = 3;
const NOT_REGISTERED: u64 = 4;

impl FailureCause {
    /// For the progress page: the causes that a worker itself may report.
    pub(crate) fn words(self) -> (u64, u64, u64) {
        match self {
            Self::OutOfRange { answer, state_count } => {
                (OUT_OF_RANGE, answer as u64, state_count.into())
            }
            Self::Forbidden { call } => (FORBIDDEN, call as u64, 0),
            Self::EnableFailed { error } => (ENABLE_FAILED, error as u64, 0),
            Self::NotRegistered => (NOT_REGISTERED, 0, 0),
            // idlewise detects the others from outside.
            Self::Signal(_) | Self::Loop | Self::Slow | Self::Stuck | Self::Gone | Self::Forged => {
                (0, 0, 0)
            }
        }
    }

    /// The inverse of [`FailureCause::words`]; `None` for anything else.
    pub(crate) fn from_words(kind: u64, a: u64, b: u64) -> Option<Self> {
        Some(match kind {
            OUT_OF_RANGE => Self::OutOfRange { answer: a as i32, state_count: b as u32 },
            FORBIDDEN => Self::Forbidden { call: a as i64 },
            ENABLE_FAILED => Self::EnableFailed { error: a as i32 },
            NOT_REGISTERED => Self::NotRegistered,
            _ => return None,
        })
    }
}

impl fmt::Display for FailureCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Signal(libc::SIGKILL) => f.write_str("was killed (SIGKILL)"),
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "crashed ({name})"),
                None => write!(f, "crashed (signal {signal})"),
            },
            Self::Loop => write!(
                f,
                "took more than {} s of CPU time and was stopped (an endless loop?)",
                CPU_LIMIT.as_secs()
            ),
            Self::Slow => write!(
                f,
                "took more CPU time than its gaps allow ({} s, {} ms for each gap and {} ms for each \
                 second of them) and was stopped",
                CPU_TIME_AT_FIRST.as_secs(),
                CPU_TIME_OF_GAP.as_millis(),
                1_000 / CPU_TIME_PART_OF_GAPS
            ),
            Self::Stuck => {
                write!(f, "did not answer for {} s or more and was stopped", WALL_LIMIT.as_secs())
            }
            Self::OutOfRange { answer, state_count } => {
                write!(f, "answered state {answer} where there are 0 to {}", state_count.max(1) - 1)
            }
            Self::Gone => f.write_str("ended its process"),
            Self::Forbidden { call } => {
                match syscall_name(call) {
                    Some(name) => write!(f, "made the system call {name}")?,
                    None => write!(f, "made system call {call}")?,
                }
                f.write_str(", which is not allowed,")
            }
            Self::Forged => f.write_str("sent a result that is not one of the gaps it was given"),
            Self::EnableFailed { error } => {
                write!(f, "failed to start (its enable returned {error})")
            }
            Self::NotRegistered => {
                f.write_str("failed to start (it registered no governor that has a select)")
            }
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
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGXFSZ, "SIGXFSZ"),
    ];
    names.into_iter().find(|&(number, _)| number == signal).map(|(_, name)| name)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { cause, lane, place } = self;
        match place {
            // It is detected later than it happens.
            _ if *cause == FailureCause::Forged => write!(f, "{cause}, of {lane}"),
            Place::Loading => write!(f, "{cause} when it was loaded for {lane}"),
            Place::Unloading => write!(f, "{cause} when it was unloaded after {lane}"),
            // idlewise always sends more, or that it was all.
            Place::Waiting if *cause == FailureCause::Stuck => {
                write!(f, "{cause}, of {lane}: it took a message that was not for it")
            }
            Place::Waiting => write!(f, "{cause} between two gaps of {lane}"),
            Place::Gap { index, cpu, at_ns } => {
                write!(f, "{cause} in gap {index} of CPU {cpu}, from {at_ns} ns, of {lane}")
            }
            Place::Decision { index, at_ns } => {
                write!(f, "{cause} in decision {index}, at {at_ns} ns, of {lane}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_it_happened() {
        let said = |cause, place| Failure { cause, lane: "b-redis".to_owned(), place }.to_string();
        let unloaded = said(FailureCause::Loop, Place::Unloading);
        assert!(unloaded.ends_with("when it was unloaded after b-redis"), "{unloaded}");
        let waiting = said(FailureCause::Stuck, Place::Waiting);
        assert!(!waiting.contains("gap") && waiting.contains("not for it"), "{waiting}");
    }
}
