//! Comparing two governors decision by decision: our ports with the kernel's own C.
//!
//! | file | holds |
//! | --- | --- |
//! | `row.rs` | one decision: what is asked and told, and both answers |
//! | `generate.rs` | rows that no trace has: every edge that a governor compares with |
//! | `pair.rs` | two governors in one replay |
//! | `shrink.rs` | the shortest rows that show a difference |
//! | `module.rs` | a test: our kernel module |

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
