//! The laboratory: what the command and the Python package ask. It knows every governor by name, opens logs and
//! recordings, prepares machines, runs the experiment and keeps its results.
//!
//! | file | holds |
//! | --- | --- |
//! | `roster.rs` | every governor that a user can name |
//! | `target.rs` | [`target::ReplayTarget`]: a machine prepared for replay; [`target::Conditions`], and the default of HZ |
//! | `topology.rs` | which CPUs of a log share a machine's states |
//! | `cells/` | [`cells::Contest`]: who plays where, in cells; the store that keeps them |
//! | `storage.rs` | [`storage::Storage`]: where a store's files are; a folder |
//! | `engine/` | what the Python package uses |
//! | `notes.rs` | what every result says of itself |
//! | `bundle/` | [`bundle`]: the container of an evidence bundle |
//! | `input.rs`, `unpack.rs` | logs and recordings, compressed or not |
//! | `bundled.rs` | the machines and logs that are built in |
//! | `recorded_course.rs` | following what the recorded kernel did |
//! | `program.rs` | which program this is, and how to start it once more |
//! | `progress.rs` | who watches |
//! | `error.rs` | [`error::Failure`] |
//!
//! It parses no arguments, writes to no terminal and opens no connection.
#![forbid(unsafe_code)]

pub mod bundle;
pub mod bundled;
pub mod cells;
pub mod engine;
pub mod error;
pub mod input;
pub mod notes;
pub mod program;
pub mod progress;
pub mod recorded_course;
pub mod roster;
pub mod storage;
pub mod target;
pub mod topology;
pub mod unpack;
