//! The process that runs foreign code.
//!
//! ```text
//! idlewise                              idlewise plugin-worker
//!   Worker ── library ────────────────►   confines itself, then loads it
//!          ◄── ready ──────────────────
//!   PluginLane ── setting, gaps ──────►   GovernorLane over an Instance
//!              ◄── tally ──────────────
//!   RemoteGovernor ── question ───────►   Instance          (slow: a message for each decision)
//!                  ◄── answer ─────────
//!   Progress ◄─── a shared page ───────   where it is; why it ends, if it knows
//! ```
//!
//! Messages go through the child's standard input and output, which are moved to other numbers so that the
//! governor does not find them. A worker serves one lane at a time and is then reused. Each lane begins
//! with a freshly loaded library.

mod check;
mod process;
mod protocol;
mod serve;

pub(crate) use check::Sent;
pub(crate) use process::Worker;
pub use process::WorkerCommand;
pub(crate) use protocol::{
    Kind, get_answer, get_tally, put_gap, put_governor, put_question, put_setting,
};
pub use serve::serve;
