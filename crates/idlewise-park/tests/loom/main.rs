//! The crate's own code explored by loom: every interleaving, and every value that the memory model
//! lets a load return. `make loom` runs it without a bound on preemptions where that ends,
//! `make test` with at most three.
//!
//! The word itself, the marks and the idle set are explored in `idlewise-core`. Here are the loops
//! around them; only the parker is a model (`src/model.rs`), which always sleeps. A lost wake-up is a
//! deadlock.
#![cfg(loom)]

mod buckets;
mod channel;
mod sets;
