//! Five published claims confronted with the simulated machine. A study is a folder and a row of [`STUDIES`]:
//! `model.rs` has its inputs and its runs, `mod.rs` its claim, source, figures, facts, tables and sentences.
//!
//! | file | holds |
//! | --- | --- |
//! | `amd_mwait/` | MWAIT instead of HALT where no driver is loaded |
//! | `menu_min/` | menu believes its short forecast though the tick is stopped |
//! | `ipi_less/` | a store instead of an IPI |
//! | `c02/` | C0.2 between POLL and C1 |
//! | `promotion/` | a timer that gets a CPU out of a shallow state |
//! | `inputs.rs` | an input: its value, its origin, and what is plausible |
//! | `trial.rs` | one simulated run of a study; [`Shelf`] |
//! | `error.rs` | [`StudyError`] |
//! | `figure.rs` | [`Study`], what a page consists of, and how its numbers are written |
//! | `sensitivity.rs` | which inputs decide a figure, and its label |
//! | `page.rs` | [`Page`]: runs a study |
//! | `text.rs` | a page as text, as Markdown and as JSON |
//! | `plot.rs` | its plots, as SVG |
//! | `charts.rs` | its charts, on a page in HTML |
//!
//! A model has a list `INPUTS`, a function `headline`, which computes its figures for given inputs and runs many times to
//! find out which inputs decide them, and a function `run`, which returns its `Findings`. Both fail if a machine or governor
//! that the study needs is missing. Findings include the machine, the hardware and the workload that the runs used, so that a
//! page prints those values and no copies of them. `None` is what never happened.
//!
//! Pages are Rust and not a data format, because nearly every line contains a computed number or depends on one: the compiler
//! then checks their names, where templates would need a language, keys on both sides, and tests of them.
//!
//! No author says what became of a figure: `sensitivity.rs` runs the study with other inputs and computes its label. A figure
//! is *calibrated* if an input names it as what it was fitted to, and *predicted* only if no input that nobody documented
//! decides it.
//!
//! Governors come from outside ([`Shelf`]), so this crate does not depend on the GPL-2.0 ports.
#![forbid(unsafe_code)]

mod amd_mwait;
mod c02;
mod charts;
mod error;
mod figure;
mod inputs;
mod ipi_less;
mod menu_min;
mod page;
mod plot;
mod promotion;
mod sensitivity;
mod text;
mod trial;

pub use charts::to_html_page;
pub use error::StudyError;
pub use figure::{Given, Study};
pub use inputs::{Alternative, Changes, Input, Origin, Together};
pub use page::Page;
pub use plot::{to_svg, to_tornado};
pub use text::{figure_headings, inputs_to_json, inputs_to_text, to_json, to_markdown, to_text};
pub use trial::{GovernorById, Shelf};

/// Every study.
pub const STUDIES: &[&Study] =
    &[&amd_mwait::STUDY, &menu_min::STUDY, &ipi_less::STUDY, &c02::STUDY, &promotion::STUDY];
