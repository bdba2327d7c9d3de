//! What `idlewise watch` shows: what CPUs did between two readings of the kernel's counters.
//!
//! | file | holds |
//! | --- | --- |
//! | `reading.rs` | [`Layout`], the CPUs and their states; [`Reading`], their counters at a moment |
//! | `figures.rs` | [`Figures`]: the differences of two readings |
//! | `lines.rs` | [`Line`] and [`StateLine`]: CPUs or groups of them, as rows to sort, filter and print |
//! | `openmetrics.rs` | a reading as text for Prometheus |
//! | `steady.rs` | [`Steady`]: counters of CPUs that come and go, whose sums never fall |
//!
//! The kernel counts a stay in an idle state when it ends. A CPU that sleeps for seconds shows nothing
//! meanwhile, and then more than the interval. So a CPU's time in states is cut to the interval, and the idle
//! time of /proc/stat, which runs on during a stay, tells a long stay from a busy CPU.

mod figures;
mod lines;
mod openmetrics;
mod reading;
mod steady;

pub use figures::{Condition, CpuFigures, Figures, StateFigures};
pub use lines::{
    Grouping, Line, Matching, PackageLine, SortKey, StateLine, bar, bar_column, latency,
    line_columns, lines, package_columns, sort, state_columns, state_lines, symbol,
};
pub use openmetrics::{Exposition, FAMILIES, Family, Form, Kind, write_metrics};
pub(crate) use openmetrics::{Writer, gauge, label, sum_of};
pub use reading::{CpuPlace, CpuReading, Layout, Reading, StateInfo, StateReading};
pub use steady::Steady;
