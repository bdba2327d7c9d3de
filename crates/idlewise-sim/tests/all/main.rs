//! Replays, predictions and simulations, from outside. `joined_memory.rs` counts allocations, so it has a program of its own.

mod any;
mod hardware;
mod malformed_decision_log;
mod malformed_workload;
mod predict;
mod prop_diff;
mod prop_joined;
mod prop_replay;
mod prop_rival;
mod scheduling;
mod simulate;
