//! A row for each decision of a governor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Float64Array, RecordBatch, UInt64Array};
use idlewise_sim::CostModel;
use idlewise_sim::contest::Player;
use idlewise_sim::replay::{GapCourse, ObservedLane, Observer, ReplayedStay, StayEnd};
use idlewise_trace::IdleGap;

use super::gaps::{Rows, VERDICTS, batch, common, of_names, texts, verdict_index, wake_reasons};
use super::{Log, Request};
use crate::error::{Failure, Result};

/// More rows than this would fill most machines' memory.
pub(super) const ROW_COUNT_MAX: usize = 1 << 26;
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
            ("state", texts(stays().map(|it| Some(it.state as u32)), &names)),
            ("verdict", texts(stays().map(|it| Some(verdict_index(it.verdict))), &verdicts)),
            ("stay_ns", Arc::new(stays().map(|it| it.stay_ns).collect::<UInt64Array>())),
            ("ended_by", texts(stays().map(|it| Some(end_index(it.end))), &ends)),
            ("delay_ns", Arc::new(rows.iter().map(|row| row.delay_ns).collect::<UInt64Array>())),
            ("energy_uj", Arc::new(stays().map(energy).collect::<Float64Array>())),
        ]);
        // Of all but a gap's last decision.
        batch(columns, &["delay_ns"])
    };
    // Of all CPUs.
    let row_count = AtomicUsize::new(0);
    let are_too_many = || row_count.load(Ordering::Relaxed) > ROW_COUNT_MAX;
    let make = || player.observed(costs, one.setting, one.price, Decisions::default());
    let take = |lane: &mut Observed<'_>, gap: &IdleGap, rows: &mut Vec<Row>| {
        if are_too_many() {
            return;
        }
        lane.replay(std::slice::from_ref(gap));
        let decided = &mut lane.observer_mut().0;
        row_count.fetch_add(decided.len(), Ordering::Relaxed);
        rows.append(decided);
    };
    let rows = Rows { make: &make, take: &take, finished: &finished };
    let batches = rows.of(log, one.choice.is_made(), is_stopped)?;
    if are_too_many() {
        return Err(Failure::new(format_args!(
            "{} decides more than {ROW_COUNT_MAX} times in {}; `gaps` has a row for each gap",
            one.choice.name(),
            log.name()
        )));
    }
    Ok(batches)
}

/// A CPU's governor.
type Observed<'a> = Box<dyn ObservedLane<Decisions> + 'a>;

/// The energy of a stay, and of the work after it that a tick or a promotion makes.
fn energy_uj(costs: &CostModel, stay: &ReplayedStay, tick_work_ns: u64) -> f64 {
    let work_ns = match stay.end {
        StayEnd::Tick => stay.exit_latency_ns + tick_work_ns,
        StayEnd::Promotion => stay.exit_latency_ns,
        _ => 0,
    };
    costs.stay_uj(stay.state, stay.stay_ns) + costs.running_uj(work_ns)
}
