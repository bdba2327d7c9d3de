//! The log and the importers, from outside: recordings of every kind, whole and damaged, and logs of other programs.
//!
//! All are one program, because each program would have Arrow and Parquet linked into it once more. What writes
//! recordings is in folders beside this one, because tests of the command use it too.

mod formats;
mod gap_builder;
mod idle_log;
mod import_causes;
mod import_perf;
mod import_perfetto;
mod import_text;
mod import_trace_dat;
#[path = "../malformed_files/mod.rs"]
mod malformed_files;
mod malformed_idle_log;
mod malformed_perf;
mod malformed_perfetto;
mod malformed_text;
mod malformed_trace_dat;
mod out_of_order;
#[path = "../parquet_writer/mod.rs"]
mod parquet_writer;
#[path = "../perf_writer/mod.rs"]
mod perf_writer;
#[path = "../perfetto_writer/mod.rs"]
mod perfetto_writer;
mod prop_evidence;
mod rewritten_idle_log;
mod running;
#[path = "../trace_dat_writer/mod.rs"]
mod trace_dat_writer;
mod validate;
mod workload_log;
