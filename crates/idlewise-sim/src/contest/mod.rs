//! The experiment: who plays, on which log, machine and setting, at which price of delay, and what it costs above the
//! oracle.
//!
//! | file | holds |
//! | --- | --- |
//! | `player.rs` | [`Player`]: a governor, the oracle or a rival; [`Decider`] builds any governor |
//! | `price.rs` | [`Price`]: λ |
//! | `shape.rs` | [`Shape`]: other powers for a machine |
//! | `run.rs` | [`run`]: a log, for many players at once |
//! | `entry.rs` | [`Entry`]: what a player's replay came to; its cost and regret |

mod entry;
mod player;
mod price;
mod run;
mod shape;

pub use entry::{CellInputs, CellResult, Entry, Spent};
pub use player::{Cloned, Decider, Player, Role, Visitor};
pub use price::Price;
pub use run::{Seat, run, run_gaps};
pub use shape::Shape;
