//! One CPU's pass: its gaps through every lane of every machine, some at a time.

use std::collections::BTreeMap;

use idlewise_core::StateIndex;
use idlewise_trace::{IdleGap, WakeReason};

use super::account::{Account, CourseGap};
use super::choose::{Budget, Choice, Finder};
use super::regret::{RegretCell, RegretTally, bin_of};
use super::{CpuLedger, KeptCourse, KeptCpu, LedgerGovernor, LedgerMachine, cost_uj};
use crate::replay::{Lane, ObservedLane, OracleLane, Tally};

/// How many gaps each lane replays before the next one does, so that they stay in the cache.
const GAPS_AT_ONCE: usize = 256;

/// What a CPU's pass gives.
pub(super) struct CpuResult {
    pub first_ns: Option<i64>,
    pub end_ns: i64,
    pub wakes: [(u64, u64); WakeReason::ALL.len()],
    pub cpu: CpuLedger,
    pub machines: Vec<MachineResult>,
    pub kept: Option<KeptCpu>,
    pub found: Option<Finder>,
}

/// What it gives for a machine. Regret is listed by governor, then by price.
pub(super) struct MachineResult {
    pub tallies: Vec<Tally>,
    pub oracles: Vec<Tally>,
    pub front: Vec<Tally>,
    pub regret: Vec<Vec<RegretCell>>,
}

/// What happens to single gaps.
enum Keeping<'a> {
    /// Gaps to keep are looked for.
    Finding { budgets: &'a BTreeMap<u16, Budget>, finder: Option<Finder> },
    /// All are kept.
    All(KeptCpu),
    /// The chosen ones are kept. Nothing is counted.
    Chosen { choices: &'a BTreeMap<u16, Choice>, kept: KeptCpu, place: usize },
}

/// One CPU's pass.
pub(super) struct CpuPass<'a, 'b> {
    machines: Vec<CpuMachine<'a, 'b>>,
    keeping: Keeping<'a>,
    course_count: usize,
    gap_count: u64,
    /// The last kept gap's number, plus 1.
    last_kept: u64,
    cpu: u16,
    first_ns: Option<i64>,
    end_ns: i64,
    idle_ns: u64,
    wakes: [(u64, u64); WakeReason::ALL.len()],
}

/// The lanes of a machine.
struct CpuMachine<'a, 'b> {
    machine: &'a LedgerMachine<'b>,
    /// Each with the number of its course, if it is shown.
    lanes: Vec<(Box<dyn ObservedLane<Account>>, Option<usize>)>,
    oracles: Vec<OracleLane>,
    front: Vec<OracleLane>,
    /// By governor, then by price.
    regret: Vec<RegretTally>,
    /// The right state of each gap of a chunk and its cost, for each price.
    right: Vec<Vec<(StateIndex, f64)>>,
}

impl<'a, 'b> CpuPass<'a, 'b> {
    /// A pass that counts, and looks for gaps to keep.
    pub fn counting(machines: &'a [LedgerMachine<'b>], budgets: &'a BTreeMap<u16, Budget>) -> Self {
        CpuPass::new(machines, Keeping::Finding { budgets, finder: None })
    }

    /// A pass that counts, and keeps every gap.
    pub fn counting_and_keeping(machines: &'a [LedgerMachine<'b>]) -> Self {
        CpuPass::new(machines, Keeping::All(KeptCpu::default()))
    }

    /// A pass that only keeps the chosen gaps.
    pub fn keeping(machines: &'a [LedgerMachine<'b>], choices: &'a BTreeMap<u16, Choice>) -> Self {
        CpuPass::new(machines, Keeping::Chosen { choices, kept: KeptCpu::default(), place: 0 })
    }

    fn new(machines: &'a [LedgerMachine<'b>], mut keeping: Keeping<'a>) -> Self {
        let mut course_count = 0;
        let machines = machines
            .iter()
            .map(|machine| CpuMachine::new(machine, &keeping, &mut course_count))
            .collect();
        if let Keeping::All(kept) | Keeping::Chosen { kept, .. } = &mut keeping {
            kept.courses.resize_with(course_count, KeptCourse::default);
        }
        CpuPass {
            machines,
            keeping,
            course_count,
            gap_count: 0,
            last_kept: 0,
            cpu: 0,
            first_ns: None,
            end_ns: i64::MIN,
            idle_ns: 0,
            wakes: Default::default(),
        }
    }

    /// Replays the next gaps.
    pub fn take(&mut self, gaps: &[IdleGap]) {
        for gaps in gaps.chunks(GAPS_AT_ONCE) {
            if let (Some(first), None) = (gaps.first(), self.first_ns) {
                self.begin(first);
            }
            self.count(gaps);
            match &mut self.keeping {
                Keeping::Chosen { .. } => self.keep_chosen(gaps),
                _ => self.count_and_keep(gaps),
            }
            self.gap_count += gaps.len() as u64;
        }
    }

    fn begin(&mut self, first: &IdleGap) {
        self.cpu = first.cpu;
        self.first_ns = Some(first.start_ns);
        if let Keeping::Finding { budgets, finder } = &mut self.keeping {
            let budget = budgets.get(&first.cpu).copied().unwrap_or_default();
            *finder = Some(Finder::new(first.cpu, budget, self.course_count));
        }
    }

    fn count(&mut self, gaps: &[IdleGap]) {
        for gap in gaps {
            self.idle_ns += gap.gap_ns;
            self.end_ns = self.end_ns.max(gap.start_ns.saturating_add_unsigned(gap.gap_ns));
            let (count, sum_ns) = &mut self.wakes[gap.wake_reason as usize];
            *count += 1;
            *sum_ns += gap.gap_ns;
        }
    }

    fn count_and_keep(&mut self, gaps: &[IdleGap]) {
        let bins: Vec<usize> = gaps.iter().map(|gap| bin_of(gap.gap_ns)).collect();
        let mut misses_uj = vec![0.0; gaps.len()];
        for machine in &mut self.machines {
            machine.count(gaps, &bins, &mut self.keeping, self.gap_count, &mut misses_uj);
        }
        match &mut self.keeping {
            Keeping::Finding { finder: Some(finder), .. } => {
                for (index, (gap, miss_uj)) in (self.gap_count..).zip(gaps.iter().zip(misses_uj)) {
                    finder.longest.offer(gap.gap_ns, index);
                    finder.worst.offer_real(miss_uj, index);
                }
            }
            Keeping::All(kept) => kept.gaps.extend(gaps.iter().map(|gap| (*gap, 0))),
            _ => {}
        }
    }

    fn keep_chosen(&mut self, gaps: &[IdleGap]) {
        let Keeping::Chosen { choices, kept, place } = &mut self.keeping else { return };
        let choice = choices.get(&self.cpu).map(Vec::as_slice).unwrap_or_default();
        let end = self.gap_count + gaps.len() as u64;
        let count = choice[*place..].partition_point(|&index| index < end);
        let chosen = &choice[*place..*place + count];
        *place += count;
        for machine in &mut self.machines {
            for (lane, course) in &mut machine.lanes {
                lane.observer_mut().clear();
                lane.replay(gaps);
                if let Some(course) = course {
                    kept.courses[*course].take(lane.observer_mut(), chosen, self.gap_count);
                }
            }
        }
        for &index in chosen {
            let gap = gaps[(index - self.gap_count) as usize];
            kept.gaps.push((gap, index - self.last_kept));
            self.last_kept = index + 1;
        }
    }

    /// Ends the pass.
    pub fn finish(self) -> CpuResult {
        let of_machine = |machine: &CpuMachine<'_, '_>| machine.regret_ratios();
        let cpu = CpuLedger {
            cpu: self.cpu,
            gap_count: self.gap_count,
            idle_ns: self.idle_ns,
            regret_ratios: self.machines.iter().map(of_machine).collect(),
        };
        let (kept, found) = match self.keeping {
            Keeping::Finding { finder, .. } => (None, finder),
            Keeping::All(kept) | Keeping::Chosen { kept, .. } => (Some(kept), None),
        };
        CpuResult {
            first_ns: self.first_ns,
            end_ns: self.end_ns,
            wakes: self.wakes,
            cpu,
            machines: self.machines.into_iter().map(CpuMachine::finish).collect(),
            kept,
            found,
        }
    }
}

impl<'a, 'b> CpuMachine<'a, 'b> {
    fn new(
        machine: &'a LedgerMachine<'b>,
        keeping: &Keeping<'_>,
        course_count: &mut usize,
    ) -> Self {
        let is_counting = !matches!(keeping, Keeping::Chosen { .. });
        let lists_stays = !matches!(keeping, Keeping::Finding { .. });
        let setting = machine.setting;
        let mut lane = |governor: &LedgerGovernor<'_>| {
            let course = governor.is_shown.then(|| {
                *course_count += 1;
                *course_count - 1
            });
            let lists = lists_stays && governor.is_shown;
            let account = Account::new(machine.costs, setting.tick_work_ns, lists);
            (is_counting || governor.is_shown).then(|| ((governor.make)(account), course))
        };
        let lanes = machine.governors.iter().filter_map(&mut lane).collect();
        let oracles = |prices_mw: &[f64]| -> Vec<OracleLane> {
            let prices_mw = prices_mw.iter().filter(|_| is_counting);
            prices_mw.map(|&mw| OracleLane::new(machine.costs.clone(), setting, mw)).collect()
        };
        let tally_count = machine.governors.len() * machine.prices_mw.len();
        CpuMachine {
            machine,
            lanes,
            oracles: oracles(&machine.prices_mw),
            front: oracles(&machine.front_mw),
            regret: vec![RegretTally::new(setting.states.len()); tally_count],
            right: vec![Vec::new(); machine.prices_mw.len()],
        }
    }

    fn count(
        &mut self,
        gaps: &[IdleGap],
        bins: &[usize],
        keeping: &mut Keeping<'_>,
        first_index: u64,
        misses_uj: &mut [f64],
    ) {
        let LedgerMachine { costs, prices_mw, .. } = self.machine;
        let reference = prices_mw.len() / 2;
        for ((oracle, right), &mw) in self.oracles.iter_mut().zip(&mut self.right).zip(prices_mw) {
            right.clear();
            right.extend(gaps.iter().map(|gap| {
                let state = oracle.state(gap);
                (state, costs.gap_uj(state, gap.gap_ns, mw))
            }));
            oracle.replay(gaps);
        }
        self.front.iter_mut().for_each(|oracle| oracle.replay(gaps));
        let tallies = self.regret.chunks_mut(prices_mw.len().max(1));
        for ((lane, course), tallies) in self.lanes.iter_mut().zip(tallies) {
            lane.observer_mut().clear();
            lane.replay(gaps);
            let account = lane.observer_mut();
            for (price, (tally, right)) in tallies.iter_mut().zip(&self.right).enumerate() {
                let mw = prices_mw[price];
                let is_ranking = price == reference && course.is_some();
                for (place, gap) in account.gaps.iter().enumerate() {
                    let (right, least_uj) = right[place];
                    let regret_uj = cost_uj(gap.energy_uj, gap.delay_ns, mw) - least_uj;
                    tally.add(bins[place], gap.state, right, regret_uj);
                    if is_ranking {
                        misses_uj[place] += regret_uj.max(0.0);
                        if let (Keeping::Finding { finder: Some(finder), .. }, Some(course)) =
                            (&mut *keeping, *course)
                        {
                            let index = first_index + place as u64;
                            finder.courses[course].offer_real(regret_uj, index);
                        }
                    }
                }
            }
            if let (Keeping::All(kept), Some(course)) = (&mut *keeping, *course) {
                kept.courses[course].take_all(account);
            }
        }
    }

    /// For each governor and price the cost above the oracle's, as a share of it.
    fn regret_ratios(&self) -> Vec<Vec<Option<f64>>> {
        let LedgerMachine { costs, prices_mw, .. } = self.machine;
        let least = || self.oracles.iter().zip(prices_mw);
        let ratios = |tally: &Tally| {
            let ratio = |(oracle, &mw): (&OracleLane, &f64)| {
                let least_uj = costs.cost_uj(oracle.tally(), mw);
                (least_uj > 0.0).then(|| (costs.cost_uj(tally, mw) - least_uj) / least_uj)
            };
            least().map(ratio).collect()
        };
        self.lanes.iter().map(|(lane, _)| ratios(lane.tally())).collect()
    }

    fn finish(self) -> MachineResult {
        let of = |oracles: &[OracleLane]| oracles.iter().map(|lane| lane.tally().clone()).collect();
        MachineResult {
            tallies: self.lanes.iter().map(|(lane, _)| lane.tally().clone()).collect(),
            oracles: of(&self.oracles),
            front: of(&self.front),
            regret: self.regret.iter().map(|tally| tally.cells().collect()).collect(),
        }
    }
}

impl KeptCourse {
    fn take_all(&mut self, account: &Account) {
        self.gaps.extend_from_slice(&account.gaps);
        self.stays.extend_from_slice(&account.stays);
        self.rests.extend_from_slice(&account.rests);
    }

    /// Takes the gaps with these numbers; the account's first gap has `first`.
    fn take(&mut self, account: &Account, chosen: &[u64], first: u64) {
        let (mut stay, mut rest) = (0, 0);
        let mut chosen = chosen.iter().peekable();
        for (index, gap) in (first..).zip(&account.gaps) {
            let CourseGap { listed_count, has_rest, .. } = *gap;
            if chosen.next_if(|&&chosen| chosen == index).is_some() {
                self.gaps.push(*gap);
                self.stays.extend_from_slice(&account.stays[stay..stay + listed_count]);
                self.rests.extend_from_slice(&account.rests[rest..rest + usize::from(has_rest)]);
            }
            stay += listed_count;
            rest += usize::from(has_rest);
        }
    }
}
