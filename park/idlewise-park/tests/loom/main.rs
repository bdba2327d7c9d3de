//! Loom explores the crate's own code: every interleaving, and every value that the memory model lets a
//! load return. `make loom` runs it without a bound on preemptions where that terminates, `make test` with
//! at most three.
//!
//! The word, the marks and the idle set are explored in `idlewise-core`, the loops around them here. Only
//! the parker is a model (`src/model.rs`), which always sleeps. A lost wake-up is a deadlock.
#![cfg(loom)]

mod buckets;
mod channel;
mod sets;
