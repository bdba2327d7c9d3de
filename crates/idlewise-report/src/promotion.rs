//! What auto-promotion changes in a replay: how long gaps leave a CPU in promoted states, and what the
//! timers cost.

use idlewise_core::StateTable;
use idlewise_sim::CostModel;
use idlewise_sim::replay::{Delays, Stuck, Tally};

use crate::columns::{GOVERNOR, LOG, MACHINE};
use crate::{Column, Table, Value};

/// A replay, and how long its gaps were stuck.
#[derive(Clone, Debug, Default)]
pub struct PromotionSide {
    /// What the governor did.
    pub tally: Tally,
    /// How long gaps left the CPU in promoted states.
    pub stuck: Stuck,
}

impl PromotionSide {
    /// Adds another CPU or log.
    pub fn merge(&mut self, other: &PromotionSide) {
        self.tally.merge(&other.tally);
        self.stuck.merge(&other.stuck);
    }
}

/// A governor with promotion timers and without, on one machine, over one log or the sum of several.
#[derive(Clone, Debug)]
pub struct PromotionEffect<'a> {
    /// The log's name.
    pub log: String,
    /// The machine's id.
    pub machine: String,
    /// The governor's name.
    pub governor: String,
    /// The machine's states, with the promoted ones.
    pub states: StateTable,
    /// The costs of the states.
    pub costs: &'a CostModel,
    /// With the timers.
    pub with: PromotionSide,
    /// The same states without a timer.
    pub without: PromotionSide,
}

impl PromotionEffect<'_> {
    /// Returns how many timers were started.
    pub fn armed_count(&self) -> u64 {
        self.with.stuck.armed_count()
    }

    /// The energy with the timers above that without, as a share of the latter.
    fn energy_change(&self) -> Value {
        let [with_uj, without_uj] =
            [&self.with, &self.without].map(|side| self.costs.energy_uj(&side.tally));
        Some(with_uj / without_uj - 1.0).filter(|_| without_uj > 0.0).into()
    }

    /// The same for the sum of all delays.
    fn delay_change(&self) -> Value {
        let sum_ns = |side: &PromotionSide| side.tally.delay_sum_ns(self.costs.exits()) as f64;
        let [with_ns, without_ns] = [&self.with, &self.without].map(sum_ns);
        Some(with_ns / without_ns - 1.0).filter(|_| without_ns > 0.0).into()
    }

    fn times(&self, is_with: bool) -> &Delays {
        if is_with { self.with.stuck.times() } else { self.without.stuck.times() }
    }
}

type C<'a> = Column<PromotionEffect<'a>>;

/// Returns the columns of the promotion table of a replay.
pub fn columns<'a>() -> Vec<C<'a>> {
    vec![
        C::new(LOG, |row| row.log.as_str().into()),
        C::new(MACHINE, |row| row.machine.as_str().into()),
        C::new(GOVERNOR, |row| row.governor.as_str().into()),
        C::count("stuck_gap_count", "stuck gaps", |row| row.times(true).count().into()).means(
            "Gaps that lasted longer than the promotion timer after the CPU entered a promoted \
             state; simulated with promotion.",
        ),
        C::count("unpromoted_stuck_gap_count", "stuck gaps without", |row| {
            row.times(false).count().into()
        })
        .means("The same without promotion, where the governor learns from other stays.")
        .detail(),
        C::ns("stuck_p50_ns", "stuck p50", |row| row.times(true).quantile_ns(0.5).into())
            .means(
                "Median time from a stuck gap's first entry into a promoted state to the first \
                 deeper state that is not promoted, or to the gap's end; simulated with promotion.",
            )
            .lower_is_better(),
        C::ns("unpromoted_stuck_p50_ns", "p50 without", |row| {
            row.times(false).quantile_ns(0.5).into()
        })
        .means("The same without promotion."),
        C::ns("stuck_p99_ns", "stuck p99", |row| row.times(true).quantile_ns(0.99).into())
            .means("99th percentile of that time, with promotion.")
            .lower_is_better(),
        C::ns("unpromoted_stuck_p99_ns", "p99 without", |row| {
            row.times(false).quantile_ns(0.99).into()
        })
        .means("The same without promotion."),
        C::ns("stuck_sum_ns", "stuck sum", |row| row.times(true).sum_ns().into())
            .means("The sum of that time, with promotion.")
            .lower_is_better(),
        C::ns("unpromoted_stuck_sum_ns", "sum without", |row| row.times(false).sum_ns().into())
            .means("The same without promotion."),
        C::count("timer_armed_count", "timers armed", |row| row.armed_count().into()).means(
            "Promotion timers started: entries of promoted states whose next state the latency \
             limit allows.",
        ),
        C::count("timer_fired_count", "fired", |row| row.with.tally.auto_promotion_count.into())
            .means("Promotion timers that ended a stay; the others were cancelled."),
        C::ratio("energy_change_ratio", "energy change", |row| row.energy_change())
            .means(
                "How much more energy promotion takes: stays, transitions, and exits caused by the \
                 timer, but not the work of starting and handling it.",
            )
            .lower_is_better(),
        C::ratio("delay_change_ratio", "delay change", |row| row.delay_change())
            .means("The same for the sum of all delays of wake events.")
            .detail(),
    ]
}

/// Returns one row for each effect. Text leaves out what its title says, and governors that entered no
/// promoted state.
pub fn promotion_table(title: &str, effects: &[PromotionEffect<'_>], leave_out: &[&str]) -> Table {
    let mut columns = columns();
    columns.retain(|column| !leave_out.contains(&column.heading.id));
    Table::new(title, &columns, effects)
}
