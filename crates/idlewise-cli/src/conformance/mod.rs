//! Compares two governors decision by decision: our ports and the kernel's own C.
//!
//! | file | holds |
//! | --- | --- |
//! | `row.rs` | one decision: its inputs, its feedback, and both answers |
//! | `generate.rs` | rows that no trace contains: every limit that a governor compares with |
//! | `pair.rs` | two governors in one replay |
//! | `shrink.rs` | the smallest set of rows that shows a difference |
//! | `module.rs` | a test of our kernel module |

mod generate;
#[cfg(test)]
mod module;
mod pair;
mod row;
mod shrink;

pub use generate::{Generator, random_table};
pub use pair::Pair;
pub use row::{DrivenGovernor, Row, first_difference};
pub use shrink::shrink;
