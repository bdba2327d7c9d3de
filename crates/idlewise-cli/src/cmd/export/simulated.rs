//! What a simulated machine did, as an idle log and beside it as a Perfetto trace.

use std::path::{Path, PathBuf};

use idlewise_sim::Machine;
use idlewise_sim::simulate::Report;
use idlewise_trace::log::{FORMAT_VERSION, LogMetadata, LogSource, LogWriter};
use idlewise_trace::{CpuGroups, CpuSummary, Doubt, Driver, GapSink, OutputFile};

use crate::error::{Failure, Result};
use crate::output;

/// The two files, begun.
pub(in crate::cmd) struct SimulatedLog {
    path: PathBuf,
    log: LogWriter,
    /// Missing if the log is a pipe or a device.
    perfetto: Option<OutputFile>,
}

/// What the log says of itself.
pub(in crate::cmd) struct About<'a> {
    pub command: String,
    pub machine: &'a Machine,
    pub hz: u32,
    pub governor: &'a str,
    pub cpu_count: usize,
    pub duration_ns: u64,
    pub topology: Option<CpuGroups>,
    pub doubts: Vec<Doubt>,
}

impl SimulatedLog {
    /// Begins both files. `option` is what named the log.
    pub fn create(option: &str, path: &Path, force: bool, inputs: &[&Path]) -> Result<Self> {
        let log = output::create(path, force, inputs)?;
        let path = path.to_owned();
        if !log.is_file() {
            return Ok(SimulatedLog { path, log: LogWriter::new(log)?, perfetto: None });
        }
        let perfetto = perfetto_path(&path);
        if perfetto == path {
            return Err(Failure::new(format_args!(
                "{option} {}: the trace for Perfetto is written under this name beside the log; name \
                 the log otherwise, such as {}",
                path.display(),
                path.with_extension("parquet").display()
            )));
        }
        let perfetto = Some(output::create(&perfetto, force, inputs)?);
        Ok(SimulatedLog { log: LogWriter::new(log)?, path, perfetto })
    }

    /// Writes a run, of which the gaps were kept.
    pub fn write(self, report: &Report, about: About<'_>) -> Result<()> {
        let SimulatedLog { path, log: mut writer, perfetto } = self;
        let mut gap_counts = vec![0; about.cpu_count];
        for gaps in report.gaps.chunk_by(|a, b| a.cpu == b.cpu) {
            writer.take(gaps[0].cpu, gaps)?;
            gap_counts[usize::from(gaps[0].cpu)] += gaps.len() as u64;
        }
        let of_cpu = |(cpu, gap_count)| CpuSummary {
            cpu: cpu as u16,
            observed: true,
            gap_count,
            first_at_ns: 0,
            last_at_ns: about.duration_ns as i64,
            ..CpuSummary::default()
        };
        let metadata = LogMetadata {
            format_version: FORMAT_VERSION,
            created_by: concat!("idlewise ", env!("CARGO_PKG_VERSION")).to_owned(),
            source: LogSource {
                format: "simulate".to_owned(),
                event_count: report.event_count,
                command: Some(about.command),
                ..LogSource::default()
            },
            hz: Some(about.hz),
            governor: Some(about.governor.to_owned()),
            driver: Some(Driver::named(Driver::SIMULATED)),
            machine: Some(about.machine.clone()),
            topology: about.topology,
            clock: Some("simulated".to_owned()),
            cpus: gap_counts.into_iter().enumerate().map(of_cpu).collect(),
            doubts: about.doubts,
            ..LogMetadata::default()
        };
        writer.finish(&metadata)?;
        match perfetto {
            Some(output) => super::write_perfetto(&path, output),
            None => Ok(()),
        }
    }
}

/// The trace beside the log.
pub(in crate::cmd) fn perfetto_path(log: &Path) -> PathBuf {
    log.with_extension("pftrace")
}
