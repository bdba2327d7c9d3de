//! What each gap of a log costs under several governors on several machines, and where the cost comes
//! from. [`read`] makes it in one pass, or in two if not every gap is to be kept.
//!
//! The totals are those of a replay: they come from the same lanes. In addition each gap's cost is
//! compared with the oracle's, at each price of delay. The differences are sums by the gap's length,
//! the state that was chosen and the one that would have been right ([`RegretTally`]). Of single gaps at
//! most a given number is kept, with every stay of the governors that are to be shown. If there are
//! more gaps, a second pass replays the same and keeps the chosen ones (`choose.rs`). So memory does not
//! grow with the log.
//!
//! | file | holds |
//! | --- | --- |
//! | `account.rs` | [`Account`]: an observer that adds up what each gap costs |
//! | `choose.rs` | `Choice`: which gaps are kept |
//! | `cpu.rs` | one CPU's pass |
//! | `mod.rs` | [`read`] and its result, [`Ledger`] |
//! | `regret.rs` | [`RegretTally`] |

mod account;
mod choose;
mod cpu;
mod regret;

use std::collections::BTreeMap;

use idlewise_trace::log::{ColumnSet, IdleLog, LogError};
use idlewise_trace::{IdleGap, WakeReason};

use crate::cost::{CostModel, UJ_PER_MW_NS};
use crate::replay::{ObservedLane, PerCpu, Setting, Tally, replay_cpus};

pub use account::{Account, CourseGap, CourseStay, Rest, STAY_COUNT_MAX, Verdicts};
pub use choose::WORST_COUNT;
pub use regret::{RegretCell, RegretTally, bin_edge_ns, bin_of};

use choose::{Candidates, Choice, kept_counts};
use cpu::CpuPass;

/// A governor's lane for a CPU, which reports to an [`Account`].
pub type MakeCourse<'a> = dyn Fn(Account) -> Box<dyn ObservedLane<Account>> + Sync + 'a;

/// A machine, and the governors to replay on it.
pub struct LedgerMachine<'a> {
    /// Its costs.
    pub costs: &'a CostModel,
    /// The conditions under which governors decide.
    pub setting: Setting,
    /// The prices of delay at which regret is counted. The middle one also ranks misses.
    pub prices_mw: Vec<f64>,
    /// The prices of delay of the oracle's front.
    pub front_mw: Vec<f64>,
    /// The governors.
    pub governors: Vec<LedgerGovernor<'a>>,
}

/// A governor on a machine, for [`read`].
pub struct LedgerGovernor<'a> {
    /// Makes its lane for a CPU.
    pub make: &'a MakeCourse<'a>,
    /// Whether its stays are kept.
    pub is_shown: bool,
}

/// What a log costs on each machine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Ledger {
    /// The start of the first gap; `None` without gaps.
    pub first_ns: Option<i64>,
    /// The end of the last gap.
    pub end_ns: i64,
    /// The sum of all gaps.
    pub idle_ns: u64,
    /// Gaps, and their sum, by [`WakeReason`] in the order of [`WakeReason::ALL`].
    pub wakes: [(u64, u64); WakeReason::ALL.len()],
    /// The CPUs with gaps, in order.
    pub cpus: Vec<CpuLedger>,
    /// One for each machine.
    pub machines: Vec<MachineLedger>,
    /// How many gaps were kept.
    pub kept_count: u64,
    /// Whether some were not.
    pub is_sampled: bool,
}

/// The totals of a machine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MachineLedger {
    /// For each governor what a replay counts.
    pub tallies: Vec<Tally>,
    /// The oracle at each price.
    pub oracles: Vec<Tally>,
    /// The oracle at each price of the front.
    pub front: Vec<Tally>,
    /// For each governor and price where its regret is.
    pub regret: Vec<Vec<RegretTally>>,
}

/// The totals of a CPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CpuLedger {
    /// The CPU.
    pub cpu: u16,
    /// Its gaps.
    pub gap_count: u64,
    /// Their sum.
    pub idle_ns: u64,
    /// For each machine, governor and price the cost above the oracle's, as a share of it; `None` if that
    /// is 0.
    pub regret_ratios: Vec<Vec<Vec<Option<f64>>>>,
}

/// The kept gaps of a CPU.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeptCpu {
    /// Each gap, and how many gaps were left out since the one before.
    pub gaps: Vec<(IdleGap, u64)>,
    /// The courses of the governors that are shown: all of the first machine, then those of the next.
    pub courses: Vec<KeptCourse>,
}

/// What a governor did in the kept gaps of a CPU.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct KeptCourse {
    /// One for each gap.
    pub gaps: Vec<CourseGap>,
    /// The stays of all gaps that are not a single stay to the gap's end, in order.
    pub stays: Vec<CourseStay>,
    /// What is summed up of gaps with many stays, in order.
    pub rests: Vec<Rest>,
}

/// How often `progress` counts each gap: once for each pass.
pub fn pass_count(log: &IdleLog, keep_count: u64) -> u64 {
    if log.gap_count() > keep_count { 2 } else { 1 }
}

/// Reads a log. `kept` gets the kept gaps, CPU by CPU: all, or about `keep_count` of them.
///
/// # Errors
/// Fails if the log is damaged.
pub fn read(
    log: &IdleLog,
    machines: &[LedgerMachine<'_>],
    keep_count: u64,
    kept: &mut dyn FnMut(KeptCpu),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Ledger, LogError> {
    let is_sampled = pass_count(log, keep_count) > 1;
    let counts = if is_sampled { kept_counts(log, keep_count)? } else { BTreeMap::new() };
    let mut ledger = Ledger { is_sampled, ..Ledger::default() };
    ledger.machines = machines.iter().map(MachineLedger::new).collect();
    let mut candidates = Candidates::default();
    let make = || match is_sampled {
        true => CpuPass::counting(machines, &counts),
        false => CpuPass::counting_and_keeping(machines),
    };
    let pass = PerCpu {
        columns: if is_sampled { ColumnSet::WithoutRecorded } else { ColumnSet::All },
        make: &make,
        take: &|pass: &mut CpuPass<'_, '_>, gaps| pass.take(gaps),
        finish: &CpuPass::finish,
    };
    let mut merge = |mut of_cpu: cpu::CpuResult| {
        if let Some(kept_gaps) = of_cpu.kept.take() {
            ledger.kept_count += kept_gaps.gaps.len() as u64;
            kept(kept_gaps);
        }
        if let Some(found) = of_cpu.found.take() {
            candidates.add(found);
        }
        ledger.add(of_cpu);
    };
    replay_cpus(log, &pass, &mut merge, progress)?;
    if is_sampled {
        let choice: BTreeMap<u16, Choice> = candidates.choose();
        let make = || CpuPass::keeping(machines, &choice);
        let pass = PerCpu {
            columns: ColumnSet::All,
            make: &make,
            take: &|pass: &mut CpuPass<'_, '_>, gaps| pass.take(gaps),
            finish: &CpuPass::finish,
        };
        let mut merge = |mut of_cpu: cpu::CpuResult| {
            let kept_gaps = of_cpu.kept.take().unwrap_or_default();
            ledger.kept_count += kept_gaps.gaps.len() as u64;
            kept(kept_gaps);
        };
        replay_cpus(log, &pass, &mut merge, progress)?;
    }
    Ok(ledger)
}

impl MachineLedger {
    fn new(machine: &LedgerMachine<'_>) -> Self {
        let state_count = machine.setting.states.len();
        let regret = vec![RegretTally::new(state_count); machine.prices_mw.len()];
        MachineLedger {
            tallies: vec![Tally::default(); machine.governors.len()],
            oracles: vec![Tally::default(); machine.prices_mw.len()],
            front: vec![Tally::default(); machine.front_mw.len()],
            regret: vec![regret; machine.governors.len()],
        }
    }

    fn add(&mut self, of_cpu: cpu::MachineResult) {
        let cpu::MachineResult { tallies, oracles, front, regret } = of_cpu;
        merge(&mut self.tallies, &tallies);
        merge(&mut self.oracles, &oracles);
        merge(&mut self.front, &front);
        for (mine, theirs) in self.regret.iter_mut().flatten().zip(regret) {
            mine.merge(theirs);
        }
    }

    /// Adds the totals of other gaps on the same machine.
    pub fn merge(&mut self, other: &MachineLedger) {
        merge(&mut self.tallies, &other.tallies);
        merge(&mut self.oracles, &other.oracles);
        merge(&mut self.front, &other.front);
        for (mine, theirs) in self.regret.iter_mut().flatten().zip(other.regret.iter().flatten()) {
            mine.merge(theirs.cells());
        }
    }
}

fn merge(mine: &mut [Tally], theirs: &[Tally]) {
    mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| mine.merge(theirs));
}

impl Ledger {
    /// Adds a machine at this index on which the log was not replayed.
    pub fn leave_out(&mut self, index: usize, machine: &LedgerMachine<'_>) {
        self.machines.insert(index, MachineLedger::new(machine));
        for cpu in &mut self.cpus {
            let ratios = vec![None; machine.prices_mw.len()];
            cpu.regret_ratios.insert(index, vec![ratios; machine.governors.len()]);
        }
    }

    fn add(&mut self, of_cpu: cpu::CpuResult) {
        let cpu::CpuResult { first_ns, end_ns, wakes, cpu, machines, .. } = of_cpu;
        let Some(first_ns) = first_ns else { return };
        self.end_ns = self.first_ns.map_or(end_ns, |_| self.end_ns.max(end_ns));
        self.first_ns = Some(self.first_ns.map_or(first_ns, |known_ns| known_ns.min(first_ns)));
        self.idle_ns += cpu.idle_ns;
        for (mine, theirs) in self.wakes.iter_mut().zip(wakes) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        self.cpus.push(cpu);
        for (mine, theirs) in self.machines.iter_mut().zip(machines) {
            mine.add(theirs);
        }
    }
}

/// The cost of a gap, with delay at a price.
fn cost_uj(energy_uj: f64, delay_ns: u64, lambda_mw: f64) -> f64 {
    energy_uj + lambda_mw * delay_ns as f64 * UJ_PER_MW_NS
}
