//! For `LD_PRELOAD`: makes the condition variables and semaphores of unmodified programs wait with
//! `idlewise-park` (Linux, glibc 2.25 and later, 64 bits).
//!
//! | file | holds |
//! | --- | --- |
//! | `condvar.rs` | `pthread_cond_*`: a queue of waiters, each with a parker on its stack |
//! | `node.rs` | a waiter's place in such a queue |
//! | `semaphore.rs` | `sem_wait` and its variants: a polling phase before glibc's own wait |
//! | `cancel.rs` | `pthread_cancel`: wakes a thread that waits on a parker |
//! | `next.rs` | glibc's own functions, and whether its structures have the expected layout |
//!
//! It does not replace mutexes, `sem_post` or C11's `cnd_wait` (where glibc calls its own functions), nor
//! anything between processes: shared condition variables stay glibc's.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions are POSIX's, and so is what callers promise"
)]

mod cancel;
mod condvar;
mod next;
mod node;
mod semaphore;
