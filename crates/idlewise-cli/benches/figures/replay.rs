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
use crate::import::wait_for_peak;

/// The fewest gaps in the replayed log.
const GAP_COUNT_MIN: usize = 1_000_000;
/// The number of its CPUs. All have the same gaps, so threads can share them evenly.
const CPU_COUNT: u16 = 8;
/// Gaps in a row group: the importer's maximum.
const GROUP_GAP_COUNT: usize = 65_536;
const ROUND_COUNT: usize = 7;
/// The fewest gaps in the shortest log whose replay's memory is measured.
const MEMORY_GAP_COUNT_MIN: usize = 1_000_000;
const MENU: [&str; 2] = ["--governor", "menu"];

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
        process_works.push(replay_by_binary(&path, &["--machine", "spr"])?);
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

/// Compares CPUs that are replayed together, because they share a state, with the same CPUs alone, and shows how
/// memory depends on the log's length.
pub fn run_joined() -> Result<(), Box<dyn Error>> {
    let inputs = Inputs::load()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("large.parquet");
    let gap_count = write_log(&path, &inputs, GAP_COUNT_MIN)?;
    let topology = format!("package=0-{}", CPU_COUNT - 1);
    let joined = ["--machine", "spr-pc6", "--topology", &topology];
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    let (mut menus_alone, mut menus_together) = (Vec::new(), Vec::new());
    for _ in 0..ROUND_COUNT {
        alone.push(replay_by_binary(&path, &joined[..2])?);
        together.push(replay_by_binary(&path, &joined)?);
        menus_alone.push(replay_by_binary(&path, &[&joined[..2], &MENU].concat())?);
        menus_together.push(replay_by_binary(&path, &[&joined[..], &MENU].concat())?);
    }
    let per_gap_ns = |seconds: &[f64]| median(seconds.iter().copied()) * 1e9 / gap_count as f64;
    let figure =
        |what: &str, unit, measured, goal| Figure { what: what.into(), unit, measured, goal };
    let goal = Goal::AtMost(2.0);
    print(
        &format!(
            "joined: {gap_count} gaps, {CPU_COUNT} CPUs of a package, standard governors and oracles on spr-pc6, \
             {ROUND_COUNT} rounds in turns, CPU time of `idlewise replay --csv` with its start"
        ),
        &[
            figure("CPUs alone", "ns a gap", per_gap_ns(&alone), Goal::None),
            figure("CPUs together", "ns a gap", per_gap_ns(&together), Goal::None),
            figure("together / alone", "×", median_ratio(&together, &alone), goal),
            figure("menu: CPUs alone", "ns a gap", per_gap_ns(&menus_alone), Goal::None),
            figure("menu: CPUs together", "ns a gap", per_gap_ns(&menus_together), Goal::None),
            figure(
                "menu: together / alone",
                "×",
                median_ratio(&menus_together, &menus_alone),
                Goal::None,
            ),
        ],
    );
    let mut figures = Vec::new();
    let mut peaks = Vec::new();
    for times in [1, 4, 16] {
        let gap_count = write_log(&path, &inputs, times * MEMORY_GAP_COUNT_MIN)?;
        let byte_count = path.metadata()?.len();
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.arg("replay").arg(&path).args(joined).arg("--csv").stdout(Stdio::null());
        let (is_success, peak_byte_count) = wait_for_peak(command.spawn()?.id())?;
        if !is_success {
            return Err("`idlewise replay` failed".into());
        }
        peaks.push(peak_byte_count as f64 / 1e6);
        let what = format!("peak memory, {gap_count} gaps in {:.1} MB", byte_count as f64 / 1e6);
        figures.push(figure(&what, "MB", peak_byte_count as f64 / 1e6, Goal::None));
    }
    let growth = peaks[2] / peaks[0];
    figures.push(figure("16 times the length / once", "×", growth, Goal::AtMost(1.1)));
    print(
        &format!(
            "joined, memory: all bundled logs on each of {CPU_COUNT} CPUs of a package, repeated; standard governors \
             and oracles on spr-pc6, once each"
        ),
        &figures,
    );
    Ok(())
}

/// The CPU time of the binary for the same work, including its start and its table.
fn replay_by_binary(path: &Path, arguments: &[&str]) -> Result<f64, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.arg("replay").arg(path).args(arguments).arg("--csv");
    command.env("RAYON_NUM_THREADS", "1").stdout(Stdio::null());
    let before = cpu_time_of(Whose::Children);
    if !command.status()?.success() {
        return Err("`idlewise replay` failed".into());
    }
    Ok((cpu_time_of(Whose::Children) - before).as_secs_f64())
}

/// Writes a log in which each CPU has all gaps of all bundled logs, repeated until there are enough. Returns the
/// number of gaps. It needs little memory, of which a child's peak would be at least as high.
pub fn write_log(
    path: &Path,
    inputs: &Inputs,
    gap_count_min: usize,
) -> Result<usize, Box<dyn Error>> {
    // Whole ticks, so that each gap keeps its place on the grid.
    let tick_ns = i64::from(inputs.setting.tick_period_ns);
    let once_count: usize = inputs.streams.iter().map(Vec::len).sum();
    let repeat_count = gap_count_min.div_ceil(once_count * usize::from(CPU_COUNT));
    let mut writer = LogWriter::create(path, true)?;
    let mut group: Vec<IdleGap> = Vec::with_capacity(GROUP_GAP_COUNT);
    for cpu in 0..CPU_COUNT {
        let mut at_ns = 0;
        for stream in (0..repeat_count).flat_map(|_| &inputs.streams) {
            let (Some(first), Some(last)) = (stream.first(), stream.last()) else { continue };
            let shift_ns = at_ns - first.start_ns.div_euclid(tick_ns) * tick_ns;
            for gap in stream {
                group.push(IdleGap { cpu, start_ns: gap.start_ns + shift_ns, ..*gap });
                if group.len() == GROUP_GAP_COUNT {
                    writer.take(cpu, &group)?;
                    group.clear();
                }
            }
            let end_ns = last.start_ns + shift_ns + last.gap_ns as i64;
            at_ns = (end_ns / tick_ns + 2) * tick_ns;
        }
        if !group.is_empty() {
            writer.take(cpu, &group)?;
            group.clear();
        }
    }
    writer.finish_unchecked(&LogMetadata {
        format_version: FORMAT_VERSION,
        hz: Some(HZ),
        ..LogMetadata::default()
    })?;
    Ok(repeat_count * once_count * usize::from(CPU_COUNT))
}
