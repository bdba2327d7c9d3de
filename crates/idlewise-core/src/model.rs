//! How the tests of the waiting protocols explore models (`RUSTFLAGS="--cfg loom"`).
#![allow(clippy::print_stdout, reason = "says how many executions there were")]

extern crate std;

use std::borrow::ToOwned;
use std::boxed::Box;
use std::string::{String, ToString};
use std::{panic, println, thread_local};

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use crate::sync::broken::{self, Break};

/// Explores `model` and prints how many executions that took.
pub fn explore(name: &str, model: impl Fn() + Send + Sync + 'static) {
    explore_with(loom::model::Builder::new(), name, model);
}

/// Like [`explore`], with a bound on preemptions, for models that would take days without one.
pub fn explore_within(
    name: &str,
    preemption_bound: usize,
    model: impl Fn() + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    let bound =
        builder.preemption_bound.map_or(preemption_bound, |bound| bound.min(preemption_bound));
    builder.preemption_bound = Some(bound);
    explore_with(builder, name, model);
}

fn explore_with(
    builder: loom::model::Builder,
    name: &str,
    model: impl Fn() + Send + Sync + 'static,
) {
    let executions = Arc::new(AtomicU64::new(0));
    let counter = executions.clone();
    let bound = builder.preemption_bound.map_or("no".to_owned(), |bound| bound.to_string());
    builder.check(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let count = executions.load(Ordering::Relaxed);
    println!("loom: {name}: {count} executions ({bound} bound on preemptions), all correct");
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// An expected panic prints nothing.
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

/// What loom reports for a broken protocol: a thread waits for ever, or runs without work.
const FINDINGS: [&str; 8] = [
    "deadlock; ",
    "woken, but no work is there",
    "without its work",
    "one was rung twice",
    "an item is left behind",
    "Causality violation",
    "a write that nobody reads",
    "nobody looks for work",
];

/// Explores `model` with one thing broken, and fails unless loom finds it.
pub fn must_fail(how: Break, model: impl Fn() + Send + Sync + 'static) {
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
    // It must not be one of loom's own limits, or a mistake in the model.
    assert!(FINDINGS.iter().any(|finding| line.contains(finding)), "{how:?}: {message}");
    println!("loom: broken on purpose: {how:?}: caught in execution {count}: {line}");
}
