//! Captured machines and damaged files, from outside. `watch.rs` counts allocations, so it has a program of its own.

#[path = "../captured/mod.rs"]
mod captured;
mod counters;
mod counts;
mod malformed;
mod sysroot;
