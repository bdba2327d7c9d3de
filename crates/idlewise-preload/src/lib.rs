//! For `LD_PRELOAD`: condition variables and semaphores of programs as they are, waited for by
//! `idlewise-park` (Linux, glibc 2.25 and later, 64 bits).
//!
//! | file | holds |
//! | --- | --- |
//! | `condvar.rs` | `pthread_cond_*`: a queue of waiters, each with a parker on its stack |
//! | `semaphore.rs` | `sem_wait` and its kind: a polling phase before glibc's own |
//! | `cancel.rs` | `pthread_cancel`: who waits by a parker is woken |
//! | `next.rs` | glibc's own functions, and whether its structures are what we take them for |
//!
//! What it does not do: replace mutexes, `sem_post`, C11's `cnd_wait` (glibc calls its own there), or anything
//! between processes: a condition variable that is shared is glibc's.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are POSIX's, and so is what callers promise"
)]

mod cancel;
mod condvar;
mod next;
mod semaphore;
