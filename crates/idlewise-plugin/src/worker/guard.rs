//! What happens when the governor crashes or never returns: the worker says so, and ends.
//!
//! A crash is a signal on the thread that runs the governor. Its handler runs on a stack of its own
//! (the governor may have used up the other one), writes one message and ends the process; it
//! allocates nothing. Loops are for the watchdog: a thread that looks whether the place has changed
//! while CPU time passed. CPU time, not the wall clock: a machine may sleep or be busy.

use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::FailureCause;
use super::protocol::{FAILURE_BYTE_COUNT, HEADER_BYTE_COUNT, Kind, failure_bytes, header};

/// What one gap may take. A decision takes nanoseconds, and a gap of a day at 1000 ticks a second
/// well under this.
pub(crate) const CPU_LIMIT: Duration = Duration::from_secs(1);
const WATCH_PERIOD: Duration = Duration::from_millis(100);
const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT];

/// Where messages go.
static OUTPUT: AtomicI32 = AtomicI32::new(1);
// The place: written by the one thread that runs the governor. Nothing is published with it, so
// relaxed is enough; on a crash the reader is that same thread.
static INDEX: AtomicU64 = AtomicU64::new(0);
static CPU: AtomicU32 = AtomicU32::new(u32::MAX);
static AT_NS: AtomicI64 = AtomicI64::new(0);
/// Changes with each place; odd while a governor may run.
static STEP: AtomicU64 = AtomicU64::new(0);

/// Notes that the governor works on this gap from here on; `cpu` is `u32::MAX` for a decision.
#[inline]
pub(crate) fn enter(index: u64, cpu: u32, at_ns: i64) {
    INDEX.store(index, Ordering::Relaxed);
    CPU.store(cpu, Ordering::Relaxed);
    AT_NS.store(at_ns, Ordering::Relaxed);
    STEP.store((STEP.load(Ordering::Relaxed) | 1).wrapping_add(2), Ordering::Relaxed);
}

/// Notes that no governor runs.
#[inline]
pub(crate) fn leave() {
    STEP.store((STEP.load(Ordering::Relaxed) | 1).wrapping_add(1), Ordering::Relaxed);
}

/// Tells the other end what went wrong and ends the process. Safe in a signal handler.
pub(crate) fn fail(cause: FailureCause) -> ! {
    let [index, cpu, at_ns] = [
        INDEX.load(Ordering::Relaxed),
        CPU.load(Ordering::Relaxed).into(),
        AT_NS.load(Ordering::Relaxed) as u64,
    ];
    let mut message = [0; HEADER_BYTE_COUNT + FAILURE_BYTE_COUNT];
    message[..HEADER_BYTE_COUNT].copy_from_slice(&header(Kind::Failure, FAILURE_BYTE_COUNT));
    message[HEADER_BYTE_COUNT..].copy_from_slice(&failure_bytes(
        cause,
        index,
        cpu as u32,
        at_ns as i64,
    ));
    // SAFETY: the buffer is as long as said; write and _exit are async-signal-safe. A message of
    // this size is written whole or not at all, and nobody is left to tell if not.
    unsafe {
        libc::write(OUTPUT.load(Ordering::Relaxed), message.as_ptr().cast(), message.len());
        libc::_exit(1)
    }
}

extern "C" fn on_signal(signal: i32) {
    fail(FailureCause::Signal(signal))
}

extern "C" fn on_exit() {
    // Only foreign code ends the process while it runs.
    if STEP.load(Ordering::Relaxed) % 2 == 1 {
        fail(FailureCause::Gone)
    }
}

/// Watches this thread from here on; messages go to the file descriptor `output`.
pub(crate) fn install(output: i32) -> io::Result<()> {
    OUTPUT.store(output, Ordering::Relaxed);
    // SAFETY: the stack is never freed; the structures are filled in as sigaltstack(2) and
    // sigaction(2) say, zero being an empty mask; the handler is async-signal-safe.
    unsafe {
        let stack = Box::leak(vec![0_u8; 64 * 1024].into_boxed_slice());
        let alternative =
            libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        if libc::sigaltstack(&alternative, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        for signal in SIGNALS {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_signal as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_ONSTACK;
            if libc::sigaction(signal, &action, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // No core files for what is reported, and no orphan if idlewise is killed.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    // SAFETY: the function is there as long as the process.
    unsafe { libc::atexit(on_exit) };
    thread::Builder::new().name("watchdog".to_owned()).spawn(watch)?;
    Ok(())
}

fn watch() {
    let (mut seen, mut since) = (0, cpu_time());
    loop {
        #[expect(clippy::disallowed_methods, reason = "CPU time has no event to wait for")]
        thread::sleep(WATCH_PERIOD);
        let (step, now) = (STEP.load(Ordering::Relaxed), cpu_time());
        if step != seen || step % 2 == 0 {
            (seen, since) = (step, now);
        } else if now.saturating_sub(since) > CPU_LIMIT {
            fail(FailureCause::Loop)
        }
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
