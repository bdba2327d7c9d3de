//! A part of a log, as a log.

use std::path::Path;

use idlewise_sim::replay::GroupReader;
use idlewise_trace::log::{IdleLog, LogWriter};
use idlewise_trace::{Doubt, GapSink, IdleGap, OutputFile};

use super::Log;
use crate::error::{Failure, Result};
use crate::input::{NamedLog, groups_by_cpu};

/// Which gaps of a log.
pub struct Window {
    /// Gaps that begin from this time on, on the log's clock.
    pub from_ns: i64,
    /// Gaps that begin before this time.
    pub to_ns: i64,
    /// Only these CPUs; `None`: all.
    pub cpus: Option<Vec<u16>>,
}

/// Returns the gaps of a log that begin in a window, as a log of that name. Other CPUs' gaps are not read, nor those after
/// the window.
///
/// # Errors
/// If the log is damaged, or has none of the CPUs, or the window no gaps.
pub fn window(log: &Log, name: &str, window: &Window) -> Result<Log, String> {
    cut(&log.0, name, window).map(Log).map_err(|failure| failure.text())
}

fn cut(named: &NamedLog, name: &str, window: &Window) -> Result<NamedLog> {
    let log = &named.log;
    let has = |cpu: u16| window.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu));
    let mut metadata = log.metadata.clone();
    if let Some(&absent) = window
        .cpus
        .iter()
        .flatten()
        .find(|&&cpu| metadata.cpus.iter().all(|summary| summary.cpu != cpu))
    {
        return Err(Failure::new(format_args!("{}: it has no CPU {absent}", named.name)));
    }
    metadata.cpus.retain(|summary| has(summary.cpu));
    for summary in &mut metadata.cpus {
        summary.first_at_ns = summary.first_at_ns.max(window.from_ns);
        summary.last_at_ns = summary.last_at_ns.min(window.to_ns).max(summary.first_at_ns);
        summary.gap_count = 0;
    }
    let groups = groups_by_cpu(log)?;
    let path = Path::new(name);
    let mut writer = LogWriter::new(OutputFile::unnamed(path)?)?;
    let mut kept: Vec<IdleGap> = Vec::new();
    let mut gap_count = 0;
    for (cpu, groups) in groups.into_iter().filter(|(cpu, _)| has(*cpu)) {
        let mut reader = GroupReader::new(log);
        let (mut of_cpu, mut end_ns) = (0, i64::MIN);
        for group in groups {
            let gaps = reader.read(group)?;
            let is_in = |gap: &&IdleGap| (window.from_ns..window.to_ns).contains(&gap.start_ns);
            kept.clear();
            kept.extend(gaps.iter().filter(is_in));
            if let Some(last) = kept.last() {
                end_ns = last.start_ns.saturating_add_unsigned(last.gap_ns);
                of_cpu += kept.len() as u64;
                writer.take(cpu, &kept)?;
            }
            if gaps.last().is_some_and(|last| last.start_ns >= window.to_ns) {
                break;
            }
        }
        for summary in metadata.cpus.iter_mut().filter(|summary| summary.cpu == cpu) {
            summary.gap_count = of_cpu;
            // A gap that begins in the window may end after it.
            summary.last_at_ns = summary.last_at_ns.max(end_ns);
        }
        gap_count += of_cpu;
    }
    if gap_count == 0 {
        return Err(Failure::new(format_args!(
            "{}: no gap begins in that window; the log is from {} to {} ns",
            named.name,
            log.metadata.cpus.iter().map(|it| it.first_at_ns).min().unwrap_or_default(),
            log.metadata.cpus.iter().map(|it| it.last_at_ns).max().unwrap_or_default(),
        )));
    }
    metadata.doubts.push(Doubt::Window);
    let log = IdleLog::from_file(path, writer.finish_unnamed(&metadata)?)?;
    Ok(NamedLog::unnamed(name.to_owned(), log))
}
