//! Turns results into tables and sentences. Only this crate produces text that users read.
//!
//! | file | holds |
//! | --- | --- |
//! | `columns.rs` | [`Column`]: a printed number, defined once |
//! | `catalogue.rs` | all tables; docs/columns.md and docs/schemas/columns.json |
//! | `value.rs` | [`Value`]: what stands in a cell |
//! | `table.rs` | [`Table`] of [`Value`]s; CSV and JSON, which have all columns |
//! | `text.rs` | a table as text: fits a width, one unit per column, the best value marked |
//! | `scale.rs` | the unit and the number of decimals of a column of numbers |
//! | `parquet.rs` | a table as a Parquet file |
//! | `arrow.rs` | a table in Arrow's memory |
//! | `cell.rs` | one governor on one log and machine, as `idlewise lab sweep` keeps it in shards and collects it |
//! | `boot.rs` | which idle routine a machine gets at boot, branch by branch |
//! | `histogram.rs` | what an idle histogram holds, and what limits on the depth would have meant |
//! | `info.rs` | what a log holds, CPU by CPU |
//! | `logs.rs` | the logs of a sweep, as `idlewise lab sweep plan` lists them |
//! | `imported.rs` | exit latencies that another tool measured |
//! | `machines.rs` | the known machines, and the states of one |
//! | `promotion.rs` | what auto-promotion changes in a replay |
//! | `replay.rs` | the results of a replay: columns, tables and sentences |
//! | `mail.rs` | [`mail::Mail`]: the results of a replay as text for a mailing list |
//! | `advise/` | what candidates would change on a recording, and which of them pays |
//! | `arena.rs` | every governor in every cell of `idlewise replay --rank`, and who wins |
//! | `arena_played.rs` | the same with loads that are played, and whether replays rank governors as plays do |
//! | `arena_plot.rs` | its plot of energy against delay |
//! | `page/` | [`page::Page`]: the HTML page of `idlewise report` |
//! | `forced.rs` | what measurements that force idle states have in common |
//! | `ipi.rs` | what `idlewise measure ipi` measured: tables, histogram |
//! | `trial/` | [`trial::Trial`]: a command under two settings in turns, and when that is decided |
//! | `timer.rs` | what `idlewise measure timer` measured |
//! | `states.rs` | what `idlewise measure states` measured, and intel_idle's boot parameter for it |
//! | `residency.rs` | what `idlewise measure residency` and `measure power` measured: the energy model |
//! | `svg.rs` | what plots share |
//! | `switch.rs` | what `idlewise measure switch` measured |
//! | `saved.rs` | [`saved::Saved`]: measurements in files, of which `idlewise lab compare` reads two |
//! | `compare.rs` | two saved measurements side by side |
//! | `statistics.rs` | medians over runs, and confidence intervals by resampling |
//! | `proxy.rs` | what `measure ipi` and `measure timer` measured from user space |
//! | `counters.rs` | what `idlewise measure counters` counted |
//! | `diff/` | where two governors differ, and what that costs |
//! | `export.rs` | the meaning of an export's columns |
//! | `predict.rs` | what another setting would do to a workload |
//! | `simulate.rs` | the results of a simulated run |
//! | `verdict.rs` | the sentence that comes first: the best governor instead of the one in use |
//! | `validate.rs` | what is wrong or doubtful in a log |
//! | `why/` | what idle states cost by the kernel's counts |
//! | `why_menu.rs` | how often menu distrusts a short prediction |
//! | `watch/` | what `idlewise watch` shows, and serves to Prometheus |
//! | `wakes.rs` | what `idlewise measure wakes` counted |
//! | `shared_states.rs` | what became of the states that CPUs share |
//! | `secrets.rs` | [`without_secrets()`]: hides passwords in URLs |
//! | `shell.rs` | [`shell_word`], [`shell_path`]: what can be pasted into a shell |
//! | `shown.rs` | [`shown()`]: makes foreign text safe to show |
//! | `notes.rs` | [`Notes`]: bases and doubts, the lines under a table |
//!
//! This crate does not measure, simulate, open files, or look at the terminal, except to ask
//! whether standard output is one ([`TextStyle::for_stdout`]).
#![forbid(unsafe_code)]

pub mod advise;
pub mod arena;
pub mod arena_played;
pub mod arena_plot;
mod arrow;
pub mod boot;
mod catalogue;
pub mod cell;
pub mod columns;
pub mod compare;
pub mod counters;
pub mod diff;
pub mod export;
pub mod forced;
pub mod histogram;
pub mod imported;
pub mod info;
pub mod ipi;
pub mod logs;
pub mod machines;
pub mod mail;
mod notes;
pub mod page;
mod parquet;
pub mod predict;
pub mod promotion;
pub mod proxy;
pub mod replay;
pub mod residency;
pub mod saved;
mod scale;
mod secrets;
pub mod shared_states;
mod shell;
mod shown;
pub mod simulate;
pub mod states;
pub mod statistics;
pub mod svg;
pub mod switch;
mod table;
mod text;
pub mod timer;
pub mod trial;
pub mod validate;
mod value;
pub mod verdict;
pub mod wakes;
pub mod watch;
pub mod why;
pub mod why_menu;

pub use ::parquet::errors::ParquetError;
pub use catalogue::{columns_markdown, columns_schema};
pub use columns::{Better, Column, Heading, Priority, Unit};
pub use notes::{CountedDoubt, Notes, NotesForm, Statement, wrap};
pub use parquet::{ParquetColumns, ParquetWriter};
pub use secrets::{json_without_secrets, without_secrets};
pub use shell::{shell_path, shell_word};
pub use shown::{counted, json_shown, shown, shown_in_line, time_words};
pub use table::Table;
pub use text::{TextStyle, WIDTH_DEFAULT};
pub use value::Value;
