//! A row for each decision of a governor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use idlewise_sim::CostModel;
use idlewise_sim::contest::Player;
use idlewise_sim::replay::{
    GapCourse, ObservedLane, Observer, PerCpu, ReplayedStay, StayEnd, replay_cpus,
};
use idlewise_trace::IdleGap;
use idlewise_trace::log::ColumnSet;

use super::gaps::{
    ROW_COUNT, VERDICTS, batch, common, of_names, texts, verdict_index, wake_reasons,
};
use super::{Log, Request, pool};
use crate::error::{Failure, Result};

/// More rows than this would fill most machines' memory.
const ROW_COUNT_MAX: usize = 1 << 26;
/// In the order of [`end_index`].
const ENDS: [&str; 4] = ["event", "tick", "poll_limit", "promotion"];

fn end_index(end: StayEnd) -> u32 {
    match end {
        StayEnd::Tick => 1,
        StayEnd::PollLimit => 2,
        StayEnd::Promotion => 3,
        _ => 0,
    }
}

/// A stay, and at the end of its gap the delay of the gap's event.
#[derive(Clone, Copy)]
struct Row {
    gap: IdleGap,
    stay: ReplayedStay,
    delay_ns: Option<u64>,
}

/// Keeps what was decided.
#[derive(Default)]
struct Decisions(Vec<Row>);

impl Observer for Decisions {
    const SEES_EACH_STAY: bool = true;

    fn stay(&mut self, gap: &IdleGap, stay: ReplayedStay) {
        // A gap may have any number of stays. Whoever reads the rows sees that there are too many.
        if self.0.len() <= ROW_COUNT_MAX {
            self.0.push(Row { gap: *gap, stay, delay_ns: None });
        }
    }

    fn gap(&mut self, _gap: &IdleGap, course: GapCourse) {
        if let Some(last) = self.0.last_mut() {
            last.delay_ns = Some(course.delay_ns);
        }
    }
}

/// One CPU.
struct Worker<'a> {
    lane: Box<dyn ObservedLane<Decisions> + 'a>,
    done: Vec<RecordBatch>,
    row_count: usize,
}

/// Replays one log on one machine under one governor, and returns batches of a row for each decision. The request has
/// one of each; a governor without a price is told the request's.
///
/// # Errors
/// If a name is unknown, the log is damaged, or there are too many decisions.
pub fn decisions(
    log: &Log,
    request: &Request,
    is_stopped: &AtomicBool,
) -> Result<Vec<RecordBatch>, String> {
    decided(log, request, is_stopped).map_err(|failure| failure.text())
}

fn decided(log: &Log, request: &Request, is_stopped: &AtomicBool) -> Result<Vec<RecordBatch>> {
    let one = request.one_on(log, "decisions")?;
    let player = one.choice.on(&one.target.machine)?;
    if matches!(player, Player::Rival(_)) {
        let name = one.choice.name();
        return Err(Failure::new(format_args!(
            "{name} moves down while the CPU is idle, and has no decisions"
        )));
    }
    let costs = &one.target.costs;
    let names = of_names(one.target.state_names.iter().map(String::as_str));
    let (verdicts, ends, reasons) = (of_names(VERDICTS), of_names(ENDS), wake_reasons());
    let tick_work_ns = one.setting.tick_work_ns;
    let finished = |rows: &[Row]| {
        let gaps: Vec<IdleGap> = rows.iter().map(|row| row.gap).collect();
        let mut columns = common(&gaps, &reasons);
        let stays = || rows.iter().map(|row| &row.stay);
        let energy = |stay: &ReplayedStay| energy_uj(costs, stay, tick_work_ns);
        columns.extend([
            ("at_ns", Arc::new(stays().map(|it| it.at_ns).collect::<UInt64Array>()) as ArrayRef),
            ("state", texts(stays().map(|it| it.state as u32), &names)),
            ("verdict", texts(stays().map(|it| verdict_index(it.verdict)), &verdicts)),
            ("stay_ns", Arc::new(stays().map(|it| it.stay_ns).collect::<UInt64Array>())),
            ("ended_by", texts(stays().map(|it| end_index(it.end)), &ends)),
            ("delay_ns", Arc::new(rows.iter().map(|row| row.delay_ns).collect::<UInt64Array>())),
            ("energy_uj", Arc::new(stays().map(energy).collect::<Float64Array>())),
        ]);
        batch(columns)
    };
    let make = || Worker {
        lane: player.observed(costs, one.setting, one.price, Decisions::default()),
        done: Vec::new(),
        row_count: 0,
    };
    // What a worker has not made batches of yet is at least a batch, or one gap's.
    let take = |worker: &mut Worker<'_>, gaps: &[IdleGap]| {
        for gap in gaps {
            // Relaxed is enough: it only has to be seen some time.
            if is_stopped.load(Ordering::Relaxed) || worker.row_count > ROW_COUNT_MAX {
                return;
            }
            worker.lane.replay(std::slice::from_ref(gap));
            let rows = &mut worker.lane.observer_mut().0;
            if rows.len() >= ROW_COUNT {
                worker.row_count += rows.len();
                worker.done.extend(rows.chunks(ROW_COUNT).map(&finished));
                rows.clear();
            }
        }
    };
    let end = |mut worker: Worker<'_>| {
        let rows = std::mem::take(&mut worker.lane.observer_mut().0);
        worker.row_count += rows.len();
        worker.done.extend(rows.chunks(ROW_COUNT).map(&finished));
        (worker.done, worker.row_count)
    };
    let cpu =
        PerCpu { columns: ColumnSet::WithoutRecorded, make: &make, take: &take, finish: &end };
    let (mut batches, mut row_count) = (Vec::new(), 0);
    pool(one.choice.is_made())?.install(|| {
        let mut merge = |(of_cpu, count): (Vec<RecordBatch>, usize)| {
            row_count += count;
            if row_count <= ROW_COUNT_MAX {
                batches.extend(of_cpu);
            }
        };
        replay_cpus(&log.0.log, &cpu, &mut merge, &|_| {})
    })?;
    if row_count > ROW_COUNT_MAX {
        return Err(Failure::new(format_args!(
            "{} decides more than {ROW_COUNT_MAX} times in {}; `gaps` has a row for each gap",
            one.choice.name(),
            log.name()
        )));
    }
    if batches.is_empty() {
        batches.push(finished(&[]));
    }
    Ok(batches)
}

/// The energy of a stay, and of the work after it that a tick or a promotion makes.
fn energy_uj(costs: &CostModel, stay: &ReplayedStay, tick_work_ns: u64) -> f64 {
    let work_ns = match stay.end {
        StayEnd::Tick => stay.exit_latency_ns + tick_work_ns,
        StayEnd::Promotion => stay.exit_latency_ns,
        _ => 0,
    };
    costs.stay_uj(stay.state, stay.stay_ns) + costs.running_uj(work_ns)
}
