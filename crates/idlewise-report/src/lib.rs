//! Tables and sentences made from results: the only maker of text that users read.
//!
//! | file | holds |
//! | --- | --- |
//! | `columns.rs` | [`Column`]: a number we print, defined once; which tables exist; docs/columns.md and docs/schemas/columns.json |
//! | `table.rs` | [`Table`] of [`Value`]s; CSV and JSON, which have everything |
//! | `text.rs` | a table as text: fits a width, one unit per column, the best value marked |
//! | `scale.rs` | which unit and how many decimals a column of numbers is printed with |
//! | `info.rs` | what a log holds, CPU by CPU |
//! | `machines.rs` | the machines that are known, and the states of one |
//! | `replay.rs` | what a replay says: its columns, tables and sentences |
//! | `park/` | what `idlewise measure park` measured: tables, goals, page, plots |
//! | `ipi.rs` | what `idlewise measure ipi` measured: tables, histogram |
//! | `timer.rs` | what `idlewise measure timer` measured |
//! | `diff/` | where two governors differ, and what it costs |
//! | `export.rs` | what the columns of an export mean |
//! | `simulate.rs` | what a simulated run says |
//! | `study/` | [`study::STUDIES`]: published claims; a study as text, page, JSON and plot |
//! | `validate.rs` | what is wrong or doubtful in a log |
//! | `shown.rs` | [`shown()`]: text that is not ours, made safe to show
//! | `notes.rs` | [`Notes`]: basis and doubts, the lines under a table |
//!
//! What this crate does not do: measure, simulate, open files, or look at a terminal other than to
//! ask whether standard output is one ([`TextStyle::for_stdout`]).
#![forbid(unsafe_code)]

pub mod columns;
pub mod diff;
pub mod export;
pub mod forced;
pub mod info;
pub mod ipi;
pub mod machines;
mod notes;
pub mod park;
pub mod replay;
mod scale;
mod shown;
pub mod simulate;
pub mod study;
mod table;
mod text;
pub mod timer;
pub mod validate;

pub use columns::{Better, Column, Heading, Priority, Unit, columns_markdown, columns_schema};
pub use notes::{CountedDoubt, Notes, Statement, wrap};
pub use shown::{json_shown, shown, shown_in_line};
pub use table::{Table, Value};
pub use text::{TextStyle, WIDTH_DEFAULT};
