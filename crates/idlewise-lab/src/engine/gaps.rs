//! A row for each gap. Rows come in batches of a fixed size, so that building a table takes no more memory than the
//! table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::types::UInt32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::{Field, Schema};
use idlewise_core::Verdict;
use idlewise_sim::contest::Player;
use idlewise_sim::diff::{ComparedGovernor, GapExpense};
use idlewise_sim::replay::{PerCpu, replay_cpus};
use idlewise_trace::log::ColumnSet;
use idlewise_trace::{IdleGap, WakeReason};

use super::{Log, One, Request, pool};
use crate::error::Result;
use crate::roster::OnMachine;

/// The rows of a batch.
pub(super) const ROW_COUNT: usize = 1 << 14;
/// In the order of [`verdict_index`].
pub(super) const VERDICTS: [&str; 3] = ["fit", "too_deep", "too_shallow"];

/// Columns of a batch.
pub(super) type Columns = Vec<(&'static str, ArrayRef)>;

/// `also_nullable` names columns that may be null in this table only.
pub(super) fn batch(columns: Columns, also_nullable: &[&str]) -> RecordBatch {
    let field = |(name, array): &(&str, ArrayRef)| {
        Field::new(*name, array.data_type().clone(), array.is_nullable())
    };
    // Every batch has to have the same schema, also one without nulls.
    let nullable = [
        "sleep_length_ns",
        "next_tick_ns",
        "latency_limit_ns",
        "recorded_state",
        "recorded_idle_ns",
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| {
            let is_nullable = nullable.contains(&column.0) || also_nullable.contains(&column.0);
            field(column).with_nullable(is_nullable)
        })
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("equal lengths")
}

/// A column of few texts.
pub(super) fn texts(keys: impl Iterator<Item = Option<u32>>, texts: &Arc<StringArray>) -> ArrayRef {
    let keys: UInt32Array = keys.collect();
    Arc::new(DictionaryArray::<UInt32Type>::new(keys, texts.clone()))
}

pub(super) fn of_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Arc<StringArray> {
    Arc::new(names.into_iter().map(Some).collect::<StringArray>())
}

pub(super) fn wake_reasons() -> Arc<StringArray> {
    of_names(WakeReason::ALL.map(WakeReason::name))
}

fn reason_index(reason: WakeReason) -> u32 {
    WakeReason::ALL.iter().position(|&it| it == reason).unwrap_or_default() as u32
}

pub(super) fn verdict_index(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Fit => 0,
        Verdict::TooDeep => 1,
        Verdict::TooShallow => 2,
    }
}

/// The columns that say which gap it is.
pub(super) fn common(gaps: &[IdleGap], reasons: &Arc<StringArray>) -> Columns {
    let gaps = || gaps.iter();
    vec![
        ("cpu", Arc::new(gaps().map(|it| it.cpu).collect::<UInt16Array>()) as ArrayRef),
        ("start_ns", Arc::new(gaps().map(|it| it.start_ns).collect::<Int64Array>())),
        ("gap_ns", Arc::new(gaps().map(|it| it.gap_ns).collect::<UInt64Array>())),
        ("sleep_length_ns", Arc::new(gaps().map(|it| it.sleep_length_ns).collect::<UInt64Array>())),
        ("wake_reason", texts(gaps().map(|it| Some(reason_index(it.wake_reason))), reasons)),
    ]
}

/// What a batch is made of: gaps, and what two governors spent in each.
type Spent = (IdleGap, GapExpense, GapExpense);

/// Replays one log on one machine under one governor, and returns batches of a row for each gap. The request has
/// one of each; its price is what the oracle minimises.
///
/// # Errors
/// If a name is unknown, or the log is damaged.
pub fn replayed_gaps(
    log: &Log,
    request: &Request,
    is_stopped: &AtomicBool,
) -> Result<Vec<RecordBatch>, String> {
    replayed(log, request, is_stopped).map_err(|failure| failure.text())
}

fn replayed(log: &Log, request: &Request, is_stopped: &AtomicBool) -> Result<Vec<RecordBatch>> {
    let One { choice, target, setting, price } = request.one_on(log, "gaps")?;
    let own = choice.on(&target.machine)?;
    let oracle: Player<OnMachine<'_>> = Player::Oracle;
    let (names, verdicts, reasons) = (
        of_names(target.state_names.iter().map(String::as_str)),
        of_names(VERDICTS),
        wake_reasons(),
    );
    let finished = |rows: &[Spent]| {
        let gaps: Vec<IdleGap> = rows.iter().map(|row| row.0).collect();
        let mut columns = common(&gaps, &reasons);
        drop(gaps);
        let state = |it: &GapExpense| Some(it.first.state as u32);
        let own = || rows.iter().map(|row| &row.1);
        let oracle = || rows.iter().map(|row| &row.2);
        let lambda_mw = price.lambda_mw(&target.costs);
        let more: Columns = vec![
            ("chosen_state", texts(own().map(state), &names)),
            ("right_state", texts(oracle().map(state), &names)),
            ("verdict", texts(own().map(|it| Some(verdict_index(it.first_verdict))), &verdicts)),
            ("stay_count", Arc::new(own().map(|it| it.stay_count).collect::<UInt64Array>())),
            ("delay_ns", Arc::new(own().map(|it| it.expense.delay_ns).collect::<UInt64Array>())),
            ("energy_uj", Arc::new(own().map(|it| it.expense.energy_uj).collect::<Float64Array>())),
            ("cost_uj", Arc::new(own().map(|it| it.cost_uj(lambda_mw)).collect::<Float64Array>())),
            (
                "right_cost_uj",
                Arc::new(oracle().map(|it| it.cost_uj(lambda_mw)).collect::<Float64Array>()),
            ),
        ];
        columns.extend(more);
        batch(columns, &[])
    };
    let make =
        || (own.side(&target.costs, setting, price), oracle.side(&target.costs, setting, price));
    let take = |(own, oracle): &mut Sides, gap: &IdleGap, rows: &mut Vec<Spent>| {
        rows.push((*gap, own.gap(gap), oracle.gap(gap)));
    };
    Rows { make: &make, take: &take, finished: &finished }.of(log, choice.is_made(), is_stopped)
}

/// The governor and the oracle on one CPU.
type Sides = (Box<dyn ComparedGovernor>, Box<dyn ComparedGovernor>);

/// How the rows of a table are made: for each CPU a lane, which adds the rows of each of its gaps.
pub(super) struct Rows<'a, L, R> {
    pub(super) make: &'a (dyn Fn() -> L + Sync),
    pub(super) take: &'a (dyn Fn(&mut L, &IdleGap, &mut Vec<R>) + Sync),
    pub(super) finished: &'a (dyn Fn(&[R]) -> RecordBatch + Sync),
}

/// One CPU.
struct Worker<L, R> {
    lane: L,
    rows: Vec<R>,
    done: Vec<RecordBatch>,
}

impl<L: Send, R: Send> Rows<'_, L, R> {
    /// Makes them of all gaps, until it is to stop; on this thread alone if a governor is the caller's.
    pub(super) fn of(
        &self,
        log: &Log,
        is_alone: bool,
        is_stopped: &AtomicBool,
    ) -> Result<Vec<RecordBatch>> {
        let make = || Worker { lane: (self.make)(), rows: Vec::new(), done: Vec::new() };
        let take = |worker: &mut Worker<L, R>, gaps: &[IdleGap]| {
            let Worker { lane, rows, done } = worker;
            for gap in gaps {
                // Relaxed is enough: it only has to be seen some time.
                if is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                (self.take)(lane, gap, rows);
                if rows.len() >= ROW_COUNT {
                    done.extend(rows.chunks(ROW_COUNT).map(self.finished));
                    rows.clear();
                }
            }
        };
        let end = |mut worker: Worker<L, R>| {
            worker.done.extend(worker.rows.chunks(ROW_COUNT).map(self.finished));
            worker.done
        };
        let cpu =
            PerCpu { columns: ColumnSet::WithoutRecorded, make: &make, take: &take, finish: &end };
        let mut batches = Vec::new();
        pool(is_alone)?.install(|| {
            replay_cpus(&log.0.log, &cpu, &mut |of_cpu: Vec<_>| batches.extend(of_cpu), &|_| {})
        })?;
        if batches.is_empty() {
            batches.push((self.finished)(&[]));
        }
        Ok(batches)
    }
}

/// Passes all gaps of a log to `make`, which makes a batch of them.
fn batches(
    log: &Log,
    make: &(dyn Fn(&[IdleGap]) -> RecordBatch + Sync),
) -> Result<Vec<RecordBatch>, String> {
    let cpu = PerCpu {
        columns: ColumnSet::All,
        make: &Vec::new,
        take: &|done: &mut Vec<RecordBatch>, gaps| done.extend(gaps.chunks(ROW_COUNT).map(make)),
        finish: &|done| done,
    };
    let mut batches = Vec::new();
    let merged = replay_cpus(&log.0.log, &cpu, &mut |of_cpu| batches.extend(of_cpu), &|_| {});
    merged.map_err(|error| error.to_string())?;
    if batches.is_empty() {
        batches.push(make(&[]));
    }
    Ok(batches)
}

/// Returns the log's own columns.
///
/// # Errors
/// If the log is damaged.
pub fn gaps(log: &Log) -> Result<Vec<RecordBatch>, String> {
    let reasons = wake_reasons();
    batches(log, &|gaps| {
        let mut columns = common(gaps, &reasons);
        let gaps = || gaps.iter();
        let flags = |flag: fn(&IdleGap) -> bool| -> ArrayRef {
            Arc::new(arrow_array::BooleanArray::from_iter(gaps().map(|it| Some(flag(it)))))
        };
        let more: Columns = vec![
            ("next_tick_ns", Arc::new(gaps().map(|it| it.next_tick_ns).collect::<UInt32Array>())),
            ("tick_stopped", flags(|it| it.tick_stopped)),
            ("ran_task", flags(|it| it.ran_task)),
            (
                "latency_limit_ns",
                Arc::new(gaps().map(|it| it.latency_limit_ns).collect::<UInt64Array>()),
            ),
            (
                "recorded_state",
                Arc::new(gaps().map(|it| it.recorded_state).collect::<UInt8Array>()),
            ),
            (
                "recorded_idle_ns",
                Arc::new(gaps().map(|it| it.recorded_idle_ns).collect::<UInt64Array>()),
            ),
        ];
        columns.extend(more);
        batch(columns, &[])
    })
}

/// Bins per factor of two in [`gap_counts`].
const BINS_PER_OCTAVE: u32 = 4;

/// Returns how many gaps of each length there are, by what ended them, and how long they are together. Lengths are in
/// bins of a fourth of an octave: a bin's gaps are at least `gap_ns` long, and shorter than 1.19 times that.
///
/// # Errors
/// If the log is damaged.
pub fn gap_counts(log: &Log) -> Result<Vec<RecordBatch>, String> {
    type Counts = BTreeMap<(u32, u32), (u64, u64)>;
    let cpu = PerCpu {
        columns: ColumnSet::WithoutRecorded,
        make: &Counts::new,
        take: &|counts: &mut Counts, gaps| {
            for gap in gaps {
                let bin = (gap.gap_ns.max(1) as f64).log2() * f64::from(BINS_PER_OCTAVE);
                let key = (bin as u32, reason_index(gap.wake_reason));
                let (count, sum_ns) = counts.entry(key).or_default();
                *count += 1;
                *sum_ns = sum_ns.saturating_add(gap.gap_ns);
            }
        },
        finish: &|counts| counts,
    };
    let mut all = Counts::new();
    let mut add = |of_cpu: Counts| {
        for (key, (count, sum_ns)) in of_cpu {
            let sums = all.entry(key).or_default();
            *sums = (sums.0 + count, sums.1.saturating_add(sum_ns));
        }
    };
    replay_cpus(&log.0.log, &cpu, &mut add, &|_| {}).map_err(|error| error.to_string())?;
    let least_ns = |bin: u32| (f64::from(bin) / f64::from(BINS_PER_OCTAVE)).exp2().ceil() as u64;
    let keys = || all.keys();
    let columns: Columns = vec![
        ("gap_ns", Arc::new(keys().map(|key| least_ns(key.0)).collect::<UInt64Array>())),
        ("wake_reason", texts(keys().map(|key| Some(key.1)), &wake_reasons())),
        ("gap_count", Arc::new(all.values().map(|sums| sums.0).collect::<UInt64Array>())),
        ("idle_ns", Arc::new(all.values().map(|sums| sums.1).collect::<UInt64Array>())),
    ];
    Ok(vec![batch(columns, &[])])
}

/// Returns the columns of LISA's `df_cpus_idle()`: for each gap a row with the state that the kernel entered first,
/// and one with -1 when it left. Gaps without a recorded state are left out.
///
/// # Errors
/// If the log is damaged.
pub fn columns_of_lisa(log: &Log) -> Result<Vec<RecordBatch>, String> {
    batches(log, &|gaps| {
        let (mut times_s, mut cpus, mut states) = (Vec::new(), Vec::new(), Vec::new());
        for gap in gaps {
            let Some(state) = gap.recorded_state else { continue };
            let idle_ns = gap.recorded_idle_ns.unwrap_or(gap.gap_ns);
            let end_ns = gap.start_ns.saturating_add_unsigned(idle_ns);
            for (at_ns, state) in [(gap.start_ns, i64::from(state)), (end_ns, -1)] {
                times_s.push(at_ns as f64 / 1e9);
                cpus.push(i64::from(gap.cpu));
                states.push(state);
            }
        }
        let columns: Columns = vec![
            ("Time", Arc::new(Float64Array::from(times_s))),
            ("cpu", Arc::new(Int64Array::from(cpus))),
            ("state", Arc::new(Int64Array::from(states))),
        ];
        batch(columns, &[])
    })
}
