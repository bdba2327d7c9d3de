//! Termination signals, for commands that must clean up first.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use idlewise_plugin::end_without_compilers;
use idlewise_trace::end_without_partial_files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::emulate_default_handler;
use signal_hook::low_level::siginfo::Cause;

use crate::error::{Failure, Result};
use crate::work_folder::end_without_bundles;

/// From now on, exceeding the file size limit (RLIMIT_FSIZE) is a write error, like a full disk,
/// instead of ending the process.
pub fn fail_at_size_limits() -> Result<()> {
    let ignored = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, ignored).map_err(not_caught)?;
    Ok(())
}

/// From now on, ctrl-c and similar signals first remove partial files, and stop running compilers and
/// bundled commands.
/// Signals that our parent told us to ignore, as `nohup` does, stay ignored.
pub fn clean_up_first() -> Result<()> {
    let (mut woken, waker) = UnixStream::pair().map_err(not_caught)?;
    let last = Arc::new(AtomicUsize::new(0));
    let ignored = ignored_signals();
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        if ignored & 1 << (signal - 1) != 0 {
            continue;
        }
        signal_hook::flag::register_usize(signal, last.clone(), signal as usize)
            .map_err(not_caught)?;
        let waker = waker.try_clone().map_err(not_caught)?;
        signal_hook::low_level::pipe::register(signal, waker).map_err(not_caught)?;
    }
    let end = move || {
        // The read returns early only if a signal interrupts it.
        while woken.read(&mut [0]).is_err() {}
        // Relaxed is enough: the byte that was read was written after it.
        let signal = last.load(Ordering::Relaxed);
        end_without_leftovers(|| {
            let _ = emulate_default_handler(signal as i32);
        });
    };
    let thread = std::thread::Builder::new().name("idlewise-signals".to_owned());
    thread.spawn(end).map_err(not_caught)?;
    Ok(())
}

/// Stops running compilers and bundled commands, removes partial files and private folders, and calls `end`, which
/// ends the process.
pub fn end_without_leftovers(end: impl FnOnce()) {
    end_without_partial_files(|| end_without_bundles(|| end_without_compilers(end)));
}

/// A bit for each ignored signal, the first signal's lowest.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn not_caught(error: io::Error) -> Failure {
    Failure::new(format_args!("cannot catch signals: {error}"))
}

/// Waits for ctrl-c and similar signals, and for the end of a child process.
pub struct Signals {
    woken: UnixStream,
    has_ended: Arc<AtomicBool>,
}

impl Signals {
    /// From now on, these signals do not end the process.
    pub fn catch() -> Result<Self> {
        let (woken, waker) = UnixStream::pair().map_err(not_caught)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, has_ended.clone()).map_err(not_caught)?;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            let waker = waker.try_clone().map_err(not_caught)?;
            signal_hook::low_level::pipe::register(signal, waker).map_err(not_caught)?;
        }
        Ok(Signals { woken, has_ended })
    }

    /// Returns whether a termination signal came.
    pub fn has_ended(&self) -> bool {
        // Relaxed is enough: the pipe orders what matters, and the next check sees it anyway.
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Waits for a signal, for at most this long.
    pub fn wait(&mut self, at_most: Duration) -> Result<()> {
        self.woken.set_read_timeout(Some(at_most.max(Duration::from_millis(1))))?;
        // The number of signals does not matter.
        match self.woken.read(&mut [0; 64]).map(|_count| ()) {
            Ok(()) => Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            },
        }
    }
}

/// Readable once a signal came.
impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }
}

/// A signal that came while a command ran.
#[derive(Clone, Copy)]
pub struct Caught {
    /// Its number.
    pub signal: i32,
    /// Whether a process sent it to us alone. A terminal sends ctrl-c to the command as well.
    pub is_ours_alone: bool,
}

/// Catches signals for a command that runs in our place, and learns of its end.
pub struct Forwarding(SignalDelivery<UnixStream, WithOrigin>);

impl Forwarding {
    /// From now on, these signals do not end the process. Those that our parent told us to ignore stay ignored.
    pub fn catch() -> Result<Self> {
        let (woken, waker) = UnixStream::pair().map_err(not_caught)?;
        let ignored = ignored_signals();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD]
            .into_iter()
            .filter(|signal| *signal == SIGCHLD || ignored & 1 << (signal - 1) == 0);
        let delivery = SignalDelivery::with_pipe(woken, waker, WithOrigin::default(), signals);
        Ok(Forwarding(delivery.map_err(not_caught)?))
    }

    /// Waits for a signal, at most this long, and returns those that came, without ends of children.
    pub fn wait(&mut self, at_most: Option<Duration>) -> Vec<Caught> {
        let at_most = at_most.and_then(|time| Timespec::try_from(time).ok());
        let mut woken = [PollFd::new(self.0.get_read(), PollFlags::IN)];
        // It fails only if a signal interrupts it.
        let _ = poll(&mut woken, at_most.as_ref());
        let caught = self.0.pending().filter(|origin| origin.signal != SIGCHLD);
        let caught = caught.map(|origin| Caught {
            signal: origin.signal,
            is_ours_alone: !matches!(origin.cause, Cause::Kernel),
        });
        caught.collect()
    }
}
