//! Compares a whole replay, from opening the log to the tallies, with the sum of its decisions, and
//! measures how it scales over threads.
//!
//! Single-threaded work is measured in CPU time. A replay of half a second is interrupted; a pass
//! over decisions, a thousand times shorter, is not. On a busy machine the elapsed time would show
//! only that. Both logs and decisions are in memory, so there is nothing else to wait for.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

use idlewise_sim::replay::{Lane, MakeLane, Tally, replay_log};
use idlewise_trace::log::{FORMAT_VERSION, IdleLog, LogMetadata, LogWriter};
use idlewise_trace::{GapSink, IdleGap};
use rayon::ThreadPoolBuilder;

use crate::decisions::{HZ, Inputs, Subject};
use crate::figure::{
    Figure, Goal, Whose, cpu_time, cpu_time_of, median, median_ratio, print, time,
};

/// The fewest gaps in the replayed log.
const GAP_COUNT_MIN: usize = 1_000_000;
/// The number of its CPUs. All have the same gaps, so threads can share them evenly.
const CPU_COUNT: u16 = 8;
/// Gaps in a row group: the importer's maximum.
const GROUP_GAP_COUNT: usize = 65_536;
const ROUND_COUNT: usize = 7;

/// Times replays of a large log.
pub fn run() -> Result<(), Box<dyn Error>> {
    let inputs = Inputs::load()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("large.parquet");
    let gap_count = write_log(&path, &inputs, GAP_COUNT_MIN)?;
    let byte_count = path.metadata()?.len();

    let subjects = Subject::standard();
    let timed: Vec<_> = subjects.iter().map(|subject| subject.prepare(&inputs)).collect();
    let one_thread = ThreadPoolBuilder::new().num_threads(1).build()?;
    let two_threads = ThreadPoolBuilder::new().num_threads(2).build()?;
    let mut seconds: [Vec<f64>; 7] = Default::default();
    let [wholes, whole_works, read_works, sum_works, pairs, pair_works, process_works] =
        &mut seconds;
    let mut decision_count = 0;
    for _ in 0..ROUND_COUNT {
        let run = || one_thread.install(|| replay(&path, &subjects, &inputs));
        let (whole, (work, tallies)) = time(|| cpu_time(run));
        let tallies = tallies?;
        wholes.push(whole.as_secs_f64());
        whole_works.push(work.as_secs_f64());
        decision_count = tallies.iter().map(Tally::decision_count).sum();
        let decisions = timed
            .iter()
            .zip(&tallies)
            .map(|(timed, tally)| timed.ns_per_decision() * 1e-9 * tally.decision_count() as f64);
        sum_works.push(decisions.sum());
        let (work, tallies) = cpu_time(|| one_thread.install(|| replay(&path, &[], &inputs)));
        tallies?;
        read_works.push(work.as_secs_f64());
        let run = || two_threads.install(|| replay(&path, &subjects, &inputs));
        let (pair, (work, tallies)) = time(|| cpu_time(run));
        tallies?;
        pairs.push(pair.as_secs_f64());
        pair_works.push(work.as_secs_f64());
        process_works.push(replay_by_binary(&path)?);
    }
    let per_gap_ns = |seconds: &[f64]| median(seconds.iter().copied()) * 1e9 / gap_count as f64;
    let halves: Vec<f64> = pairs.iter().map(|seconds| 2.0 * seconds).collect();
    let figure =
        |what: &str, unit, measured, goal| Figure { what: what.into(), unit, measured, goal };
    print(
        &format!(
            "replay: {gap_count} gaps, {CPU_COUNT} CPUs, {:.1} MB of Parquet, standard governors \
             and oracles on spr, {decision_count} decisions, {ROUND_COUNT} rounds in turns, CPU time",
            byte_count as f64 / 1e6,
        ),
        &[
            figure("whole replay, one thread", "ns a gap", per_gap_ns(whole_works), Goal::None),
            figure("  of that, reading the log", "ns a gap", per_gap_ns(read_works), Goal::None),
            figure("sum of its decisions", "ns a gap", per_gap_ns(sum_works), Goal::None),
            figure("whole / sum", "×", median_ratio(whole_works, sum_works), Goal::AtMost(2.0)),
            figure("  whole by the clock / sum", "×", median_ratio(wholes, sum_works), Goal::None),
            figure(
                "  `idlewise replay --csv` with its start / sum",
                "×",
                median_ratio(process_works, sum_works),
                Goal::None,
            ),
            figure(
                "two threads: speed-up / 2",
                "×",
                median_ratio(wholes, &halves),
                Goal::AtLeast(0.9),
            ),
            // The speed-up on a machine with nothing else to do.
            figure(
                "two threads: CPU time of one / of two",
                "×",
                median_ratio(whole_works, pair_works),
                Goal::AtLeast(0.9),
            ),
        ],
    );
    Ok(())
}

fn replay(
    path: &Path,
    subjects: &[Subject],
    inputs: &Inputs,
) -> Result<Vec<Tally>, idlewise_trace::log::LogError> {
    let log = IdleLog::open(path)?;
    let makers: Vec<_> =
        subjects.iter().map(|s| move || -> Box<dyn Lane> { s.lane(inputs) }).collect();
    let makers: Vec<&MakeLane<'_>> = makers.iter().map(|make| make as &MakeLane<'_>).collect();
    replay_log(&log, &makers, &|_| {})
}

/// The CPU time of the binary for the same work, including its start and its table.
fn replay_by_binary(path: &Path) -> Result<f64, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.arg("replay").arg(path).args(["--machine", "spr", "--csv"]);
    command.env("RAYON_NUM_THREADS", "1").stdout(Stdio::null());
    let before = cpu_time_of(Whose::Children);
    if !command.status()?.success() {
        return Err("`idlewise replay` failed".into());
    }
    Ok((cpu_time_of(Whose::Children) - before).as_secs_f64())
}

/// Writes a log in which each CPU has all gaps of all bundled logs, repeated until there are
/// enough. Returns the number of gaps.
pub fn write_log(
    path: &Path,
    inputs: &Inputs,
    gap_count_min: usize,
) -> Result<usize, Box<dyn Error>> {
    // Whole ticks, so that each gap keeps its place on the grid.
    let tick_ns = i64::from(inputs.setting.tick_period_ns);
    let mut gaps: Vec<IdleGap> = Vec::new();
    let mut at_ns = 0;
    while gaps.len() * usize::from(CPU_COUNT) < gap_count_min {
        for stream in &inputs.streams {
            let (Some(first), Some(last)) = (stream.first(), stream.last()) else { continue };
            let shift_ns = at_ns - first.start_ns.div_euclid(tick_ns) * tick_ns;
            gaps.extend(
                stream.iter().map(|gap| IdleGap { start_ns: gap.start_ns + shift_ns, ..*gap }),
            );
            let end_ns = last.start_ns + shift_ns + last.gap_ns as i64;
            at_ns = (end_ns / tick_ns + 2) * tick_ns;
        }
    }
    let mut writer = LogWriter::create(path, true)?;
    for cpu in 0..CPU_COUNT {
        gaps.iter_mut().for_each(|gap| gap.cpu = cpu);
        for group in gaps.chunks(GROUP_GAP_COUNT) {
            writer.take(cpu, group)?;
        }
    }
    writer.finish_unchecked(&LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(HZ),
        ..LogMetadata::default()
    })?;
    Ok(gaps.len() * usize::from(CPU_COUNT))
}
