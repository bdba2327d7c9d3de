//! Turns results into tables and sentences. Only this crate produces text that users read.
//!
//! | file | holds |
//! | --- | --- |
//! | `columns.rs` | [`Column`]: a printed number, defined once; all tables; docs/columns.md and docs/schemas/columns.json |
//! | `table.rs` | [`Table`] of [`Value`]s; CSV and JSON, which have all columns |
//! | `text.rs` | a table as text: fits a width, one unit per column, the best value marked |
//! | `scale.rs` | the unit and the number of decimals of a column of numbers |
//! | `boot.rs` | which idle routine a machine gets at boot, branch by branch |
//! | `info.rs` | what a log holds, CPU by CPU |
//! | `machines.rs` | the known machines, and the states of one |
//! | `promotion.rs` | what auto-promotion changes in a replay |
//! | `replay.rs` | the results of a replay: columns, tables and sentences |
//! | `mail.rs` | [`mail::Mail`]: the results of a replay as text for a mailing list |
//! | `arena.rs` | every governor in every cell of `idlewise arena`, and who wins |
//! | `page/` | [`page::Page`]: the HTML page of `idlewise report` |
//! | `park/` | what `idlewise measure park` measured: tables, goals, page, plots |
//! | `ipi.rs` | what `idlewise measure ipi` measured: tables, histogram |
//! | `timer.rs` | what `idlewise measure timer` measured |
//! | `switch.rs` | what `idlewise measure switch` measured |
//! | `saved.rs` | [`saved::Saved`]: measurements in files, of which `idlewise compare` reads two |
//! | `compare.rs` | two saved measurements side by side |
//! | `statistics.rs` | medians over runs, and confidence intervals by resampling |
//! | `proxy.rs` | what `measure ipi` and `measure timer` measured from user space |
//! | `counters.rs` | what `idlewise measure counters` counted |
//! | `diff/` | where two governors differ, and what that costs |
//! | `export.rs` | the meaning of an export's columns |
//! | `simulate.rs` | the results of a simulated run |
//! | `study/` | [`study::STUDIES`]: published claims; a study as text, page, JSON and plot |
//! | `validate.rs` | what is wrong or doubtful in a log |
//! | `why_menu.rs` | how often menu distrusts a short prediction |
//! | `wakes.rs` | what `idlewise measure wakes` counted |
//! | `shown.rs` | [`shown()`]: makes foreign text safe to show |
//! | `notes.rs` | [`Notes`]: bases and doubts, the lines under a table |
//!
//! This crate does not measure, simulate, open files, or look at the terminal, except to ask
//! whether standard output is one ([`TextStyle::for_stdout`]).
#![forbid(unsafe_code)]

pub mod arena;
pub mod boot;
pub mod columns;
pub mod compare;
pub mod counters;
pub mod diff;
pub mod export;
pub mod forced;
pub mod info;
pub mod ipi;
pub mod machines;
pub mod mail;
mod notes;
pub mod page;
pub mod park;
pub mod promotion;
pub mod proxy;
pub mod replay;
pub mod saved;
mod scale;
mod shown;
pub mod simulate;
mod statistics;
pub mod study;
pub mod switch;
mod table;
mod text;
pub mod timer;
pub mod validate;
pub mod wakes;
pub mod why_menu;

pub use columns::{Better, Column, Heading, Priority, Unit, columns_markdown, columns_schema};
pub use notes::{CountedDoubt, Notes, Statement, wrap};
pub use shown::{json_shown, shown, shown_in_line};
pub use table::{Table, Value};
pub use text::{TextStyle, WIDTH_DEFAULT};
