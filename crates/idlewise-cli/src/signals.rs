//! Signals that ask a command to end, for commands that have something to put right before.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::error::Failure;

/// Ctrl-c and the like, and a child's end, as something that can be waited for.
pub struct Signals {
    woken: UnixStream,
    has_ended: Arc<AtomicBool>,
}

impl Signals {
    /// From now on they end nothing by themselves.
    pub fn catch() -> Result<Self, Failure> {
        let fail = |error: io::Error| Failure::new(format_args!("cannot catch signals: {error}"));
        let (woken, waker) = UnixStream::pair().map_err(fail)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, has_ended.clone()).map_err(fail)?;
        }
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            let waker = waker.try_clone().map_err(fail)?;
            signal_hook::low_level::pipe::register(signal, waker).map_err(fail)?;
        }
        Ok(Signals { woken, has_ended })
    }

    /// Whether one came that asks us to end.
    pub fn has_ended(&self) -> bool {
        // Relaxed: the pipe that wakes us orders what matters, and the next look sees it anyway.
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Waits for a signal, or for so long.
    pub fn wait(&mut self, at_most: Duration) -> Result<(), Failure> {
        self.woken.set_read_timeout(Some(at_most.max(Duration::from_millis(1))))?;
        // How many signals came is of no matter.
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
