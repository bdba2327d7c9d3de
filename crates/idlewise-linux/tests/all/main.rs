//! The ports against decisions and recordings of real kernels, and properties of every governor.

mod conformance;
mod forecast;
mod menu_min;
mod prediction;
mod prop_governors;
mod prop_long_gaps;
mod replay_conserves_time;
