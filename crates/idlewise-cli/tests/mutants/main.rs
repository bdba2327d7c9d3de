//! Damaged recordings, logs, machine files and workloads, end to end. Each mutant is given to all
//! commands of the real binary that take its kind. It may be refused or doubted, but nothing may
//! panic, run forever or use up memory, and whatever an import, replay, simulation or anonymization
//! writes must pass `validate`.
//!
//! `cargo test` runs a few mutants of a fixed seed, and every one in `found/`: those that once
//! broke something. `make mutants` runs many with the optimised binary and enforces the limits. It
//! is controlled by these variables:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `IDLEWISE_MUTANT_COUNT` | the number of mutants |
//! | `IDLEWISE_MUTANT_SEED` | the seed of the first; that of mutant n is this number plus n |
//! | `IDLEWISE_MUTANT_OF` | use only seed files whose name contains this |
//! | `IDLEWISE_MUTANT_BINARY` | the binary to run; the limits are enforced only with this one |
//! | `IDLEWISE_MUTANT_FOLDER` | where to keep mutants that break something |

#![cfg(target_os = "linux")]

mod mutate;
#[path = "../../../idlewise-trace/tests/perfetto_writer/mod.rs"]
mod perfetto_writer;
mod run;
mod seeds;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use run::{Runner, Worst};
use seeds::Kind;

/// The number of mutants that `cargo test` has time for.
const SHORT_COUNT: u64 = 60;
const SHORT_SEED: u64 = 20_261_122;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

fn runner() -> Runner {
    let named = std::env::var_os("IDLEWISE_MUTANT_BINARY").map(PathBuf::from);
    let has_limits = named.is_some();
    let binary = named.unwrap_or_else(|| env!("CARGO_BIN_EXE_idlewise").into());
    Runner { binary: binary.canonicalize().expect("the binary is there"), has_limits }
}

#[test]
fn no_mutant_breaks_anything() {
    let count = number("IDLEWISE_MUTANT_COUNT").unwrap_or(SHORT_COUNT);
    let first = number("IDLEWISE_MUTANT_SEED").unwrap_or(SHORT_SEED);
    let of = std::env::var("IDLEWISE_MUTANT_OF").unwrap_or_default();
    let (runner, mut seeds) = (runner(), seeds::all());
    seeds.retain(|seed| seed.name.contains(&of));
    assert!(!seeds.is_empty(), "no seed has {of} in its name");
    let next = AtomicU64::new(0);
    let worst = Mutex::new(Worst::default());
    let broken = Mutex::new(Vec::new());
    let work = || {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let number = first.wrapping_add(index);
            let (seed, bytes) = mutate::mutant(number, &seeds);
            let outcome = runner.run(&bytes, seed.kind, scratch.path());
            worst.lock().unwrap_or_else(PoisonError::into_inner).add(&outcome, number, seed.name);
            for problem in outcome.problems {
                let line = format!("{number} of {}: {problem}", seed.name);
                println!("BROKEN {line}");
                keep(number, seed.name, &bytes);
                broken.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            if index > 0 && index.is_multiple_of(1_000) {
                println!("{index} mutants");
            }
        }
    };
    let thread_count = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(work);
        }
    });
    let worst = worst.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{count} mutants from seed {first}: {worst}");
    let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(broken.is_empty(), "{} problems:\n{}", broken.len(), broken.join("\n"));
}

fn keep(number: u64, seed: &str, bytes: &[u8]) {
    if let Some(folder) = std::env::var_os("IDLEWISE_MUTANT_FOLDER") {
        let path = Path::new(&folder).join(format!("{number}-{seed}"));
        std::fs::write(path, bytes).expect("the folder can be written to");
    }
}

#[test]
fn what_was_found_once_is_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants/found");
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = Kind::of(path.to_str().unwrap());
        let outcome = runner().run(&std::fs::read(&path).unwrap(), kind, scratch.path());
        assert!(outcome.problems.is_empty(), "{}: {:?}", path.display(), outcome.problems);
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn mutants_differ_and_are_the_same_each_time() {
    let seeds = seeds::all();
    let mutants = || (0..200).map(|number| mutate::mutant(number, &seeds).1).collect::<Vec<_>>();
    let first = mutants();
    assert!(first == mutants());
    let distinct: std::collections::HashSet<_> = first.iter().collect();
    assert!(distinct.len() > 190, "{}", distinct.len());
}
