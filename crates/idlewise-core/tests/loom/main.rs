//! Models of the waiting protocols, explored by loom: every interleaving and every value that the
//! memory model lets a load return. `make loom` runs them without a bound on preemptions, `make test`
//! with at most three (`LOOM_MAX_PREEMPTIONS`); each prints how many executions there were. Each model has broken twins, which loom must fail.
#![cfg(loom)]
#![allow(clippy::print_stdout, reason = "says how many executions there were")]

mod bells;
mod doorbell;
mod idle_set;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use idlewise_core::sync::broken::{self, Break};
use loom::thread::Thread;

/// Explores `model` and prints how many executions that took.
fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicU64::new(0));
    let counter = executions.clone();
    loom::model(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let bound = std::env::var("LOOM_MAX_PREEMPTIONS").map_or("no".to_owned(), |bound| bound);
    let count = executions.load(Ordering::Relaxed);
    println!("loom: {name}: {count} executions ({bound} bound on preemptions), all correct");
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// A panic that is wanted prints nothing.
struct Quiet;

impl Quiet {
    fn begin() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let print = take_hook();
            set_hook(Box::new(move |panic| {
                if !IS_QUIET.get() {
                    print(panic);
                }
            }));
        });
        IS_QUIET.set(true);
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(false);
    }
}

/// What a broken protocol does: somebody waits for ever, or works without work.
const FINDINGS: [&str; 4] =
    ["deadlock; ", "woken, but no work is there", "without its work", "one was rung twice"];

/// Explores `model` with one thing broken, and insists that loom finds it.
fn must_fail(how: Break, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicU64::new(0));
    let counter = executions.clone();
    let explored = broken::with(how, || {
        let _quiet = Quiet::begin();
        catch_unwind(AssertUnwindSafe(|| {
            loom::model(move || {
                counter.fetch_add(1, Ordering::Relaxed);
                model();
            });
        }))
    });
    let count = executions.load(Ordering::Relaxed);
    let Err(panic) = explored else {
        panic!("{how:?} went unnoticed in {count} executions: the model checks nothing");
    };
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic");
    let line = message.lines().next().unwrap_or_default();
    // Not loom's own limits, nor a slip of the model.
    assert!(FINDINGS.iter().any(|finding| line.contains(finding)), "{how:?}: {message}");
    println!("loom: broken on purpose: {how:?}: caught in execution {count}: {line}");
}

/// The kernel's futex. A real one compares the word with SLEEPING and sleeps in one step; loom's park
/// keeps a wake that comes before it, which amounts to the same.
struct Kernel {
    sleeper: Thread,
    /// How often a waker made the system call; no part of the model, only its book-keeping.
    wake_count: std::sync::atomic::AtomicU32,
}

impl Kernel {
    /// A kernel in which only the calling thread sleeps.
    fn new() -> Self {
        Kernel { sleeper: loom::thread::current(), wake_count: Default::default() }
    }

    /// Sleeps until some wake. Loom reports a deadlock if there never is one.
    fn wait(&self) {
        loom::thread::park();
    }

    fn wake(&self) {
        self.wake_count.fetch_add(1, Ordering::Relaxed);
        self.sleeper.unpark();
    }
}
