//! What will be measured: which CPU wakes which, held in which states. Reads the machine and changes nothing.

use idlewise_core::words;
use idlewise_machine::MachineState;
use rustix::fs::OFlags;

use super::StatesError;
use crate::cpuidle::states;
use crate::ipi::forced::{Alike, disable_file};
use crate::ipi::{
    IpiError, MeasurementPlan, StateWish, Waker, Wishes, allowed_cpus, module_absence,
};
use crate::note::latency_limits_ns;
use crate::settings::check_rights_and_journal;
use crate::{CoreKinds, Relation, Root};

/// A CPU is left alone at least so long before it is woken.
pub(super) const GAP_MIN_NS: u64 = 100_000;
/// How much longer than the shortest distance the longest one is, besides its double.
const GAP_SPREAD_NS: u64 = 500_000;

/// What the caller wants to measure.
#[derive(Clone, Debug)]
pub struct StatesWishes {
    /// The CPU that wakes; `None` for the first one that this process may run on.
    pub source: Option<u16>,
    /// The CPUs to hold in states. If empty: one of each kind.
    pub targets: Vec<u16>,
    /// The states.
    pub states: StateWish,
    /// Wakes of each CPU out of each state.
    pub wake_count: u64,
    /// What wakes; `None` for IPIs where the kernel module is loaded and every CPU has a polling state to
    /// compare with, and otherwise futexes.
    pub by: Option<WakeBy>,
}

words! {
    /// What wakes a CPU.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WakeBy {
        /// The wake-up of a thread there.
        Futex = "futex",
        /// A function call by the kernel module idlewise_bench.
        Ipi = "ipi",
    }
}

/// What will be done.
#[derive(Clone, Debug)]
pub struct StatesPlan {
    /// The CPU that wakes.
    pub source: u16,
    /// What wakes.
    pub by: WakeBy,
    /// The CPUs that are held.
    pub targets: Vec<HeldCpu>,
    /// Wakes of each CPU out of each state, and of the baseline.
    pub wake_count: u64,
    /// What was left out or may interfere, in sentences.
    pub doubts: Vec<String>,
}

/// A CPU that is held in states.
#[derive(Clone, Debug)]
pub struct HeldCpu {
    /// Its number.
    pub cpu: u16,
    /// How far it is from the waker, if known.
    pub relation: Option<Relation>,
    /// The other threads of its core, which are held in the same states.
    pub siblings: Vec<u16>,
    /// The kind of its core, on a machine that has several.
    pub core: Option<String>,
    /// All CPUs with the same table and the same kind of core, this one included.
    pub alike: Vec<u16>,
    /// Its states, as the driver declares them.
    pub table: Vec<MachineState>,
    /// What the wakes are compared with.
    pub baseline: Baseline,
    /// The states to measure.
    pub cases: Vec<HeldState>,
}

/// What wakes out of a state are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The CPU is held in its polling state.
    Polls(usize),
    /// The CPU runs something of low priority.
    Runs,
}

/// A state that a CPU is held in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldState {
    /// Its index in the table.
    pub index: usize,
    /// The shortest and the longest time before a wake.
    pub gap_ns: [u64; 2],
    /// Why it cannot be entered, if it cannot.
    pub refusal: Option<String>,
}

impl HeldCpu {
    /// Returns the states that will be measured.
    pub fn measured(&self) -> impl Iterator<Item = &HeldState> {
        self.cases.iter().filter(|case| case.refusal.is_none())
    }

    /// It and its siblings.
    pub(super) fn held(&self) -> Alike {
        let cpus = [self.cpu].into_iter().chain(self.siblings.iter().copied()).collect();
        Alike { cpus, state_count: self.table.len() }
    }

    /// The distances of the baseline's wakes: those of the shallowest state.
    pub(super) fn baseline_gap_ns(&self) -> [u64; 2] {
        self.measured().map(|case| case.gap_ns).min().unwrap_or([GAP_MIN_NS, GAP_SPREAD_NS])
    }
}

impl StatesPlan {
    /// Makes a plan for this machine. Changes nothing.
    ///
    /// # Errors
    /// Fails if a CPU or state does not exist, if there is nothing to measure, or if the wished way to wake is
    /// impossible.
    pub fn new(root: &Root, wishes: &StatesWishes) -> Result<Self, StatesError> {
        let online = root.online_cpus();
        let cores = CoreKinds::read(root, &online);
        let kinds = kinds(root, &online, &cores);
        if kinds.iter().all(|(table, _)| table.is_empty()) && !online.is_empty() {
            return Err(StatesError::no_driver(root));
        }
        let allowed: Vec<u16> = match allowed_cpus(root) {
            Some(allowed) => online.iter().copied().filter(|cpu| allowed.contains(cpu)).collect(),
            None => online.clone(),
        };
        let source = wishes.source.or(allowed.first().copied()).or(online.first().copied());
        let source = source.ok_or(IpiError::NoCpus)?;
        let mut doubts = cores.doubts().to_vec();
        let targets = match wishes.targets.is_empty() {
            true => default_targets(root, &kinds, &cores, &allowed, source, &mut doubts),
            false => wishes.targets.clone(),
        };
        if targets.is_empty() {
            return Err(match online.iter().find(|cpu| **cpu != source) {
                Some(&cpu) => StatesError::NotAllowed { cpu },
                None => IpiError::OneCpu { cpu: source }.into(),
            });
        }
        let planned = MeasurementPlan::new(
            root,
            &Wishes {
                waker: Waker::Cpu(Some(source)),
                targets,
                states: wishes.states.clone(),
                wake_count: wishes.wake_count,
                gap_us: 0,
            },
        )?;
        let limits_ns = latency_limits_ns(root, &online);
        let held = |target: &crate::ipi::Target| {
            let cpu = target.cpu;
            let (table, alike) = kinds
                .iter()
                .find(|(_, cpus)| cpus.contains(&cpu))
                .map(|(table, cpus)| (table.clone(), cpus.clone()))
                .unwrap_or_default();
            if table.is_empty() {
                return Err(StatesError::no_driver(root));
            }
            if !allowed.contains(&cpu) {
                return Err(StatesError::NotAllowed { cpu });
            }
            let polls = table.first().is_some_and(|state| state.idle().is_polling);
            let indices = target.states.iter().filter_map(|state| state.index);
            let limit_ns = limits_ns.get(&cpu).copied();
            let cases: Vec<HeldState> = indices
                .filter(|&index| !(polls && index == 0))
                .map(|index| held_state(&table, index, limit_ns))
                .collect();
            if cases.is_empty() {
                // Without a wish, states that are off were left out.
                return Err(match wishes.states == StateWish::All && table.len() > 1 {
                    true => StatesError::NothingToHold { cpu },
                    false => StatesError::OnlyPolls { cpu, name: table[0].name.clone() },
                });
            }
            let baseline = if polls { Baseline::Polls(0) } else { Baseline::Runs };
            let siblings = siblings(root, cpu, &online, source);
            let relation = target.relation;
            let core = cores.of(cpu).map(str::to_owned);
            Ok(HeldCpu { cpu, relation, siblings, core, alike, table, baseline, cases })
        };
        let targets: Vec<HeldCpu> = planned.targets.iter().map(held).collect::<Result<_, _>>()?;
        let by = way_to_wake(root, wishes.by, &targets)?;
        for target in &targets {
            if target.relation == Some(Relation::SmtSibling) {
                doubts.push(format!(
                    "CPU {} is an SMT sibling of CPU {source}, which is awake: their core gets into no state \
                     deeper than it lets both into; name a CPU of another core by --target",
                    target.cpu
                ));
            }
        }
        // Limits are in the states' refusals.
        doubts.extend(planned.doubts.into_iter().filter(|doubt| !doubt.contains("PM QoS allows")));
        Ok(StatesPlan { source, by, targets, wake_count: wishes.wake_count, doubts })
    }

    /// Returns the wakes of all CPUs, states and baselines.
    pub fn total_wake_count(&self) -> u64 {
        let count = |target: &HeldCpu| target.measured().count() as u64 + 1;
        self.wake_count.saturating_mul(self.targets.iter().map(count).sum())
    }

    /// Returns about how long it takes: the distances alone, in nanoseconds.
    pub fn about_ns(&self) -> u64 {
        let of = |target: &HeldCpu| {
            let gaps = target.measured().map(|case| case.gap_ns).chain([target.baseline_gap_ns()]);
            gaps.map(|[least, most]| u64::midpoint(least, most)).sum::<u64>()
        };
        self.wake_count.saturating_mul(self.targets.iter().map(of).sum())
    }

    /// Returns the files that are written, each with what is written for the held state.
    pub fn files(&self) -> Vec<String> {
        let of = |target: &HeldCpu| {
            let Alike { cpus, state_count } = target.held();
            cpus.into_iter()
                .flat_map(move |cpu| (0..state_count).map(move |index| disable_file(cpu, index)))
        };
        self.targets.iter().flat_map(of).collect()
    }

    /// Checks that all settings can be changed, before any is.
    ///
    /// # Errors
    /// Fails if one cannot, with what to do.
    pub fn check_writable(&self, root: &Root) -> Result<(), StatesError> {
        check_writable(root, &self.files())
    }
}

pub(super) fn check_writable(root: &Root, files: &[String]) -> Result<(), StatesError> {
    for name in files {
        if let Err(source) = root.open_beneath(name, OFlags::WRONLY) {
            return Err(StatesError::not_writable(root.path(name), source));
        }
    }
    check_rights_and_journal(root).map_err(|error| IpiError::Settings(error).into())
}

/// The module compares with a polling CPU only: to wake a CPU that runs something, it would have to interrupt it.
fn way_to_wake(
    root: &Root,
    wish: Option<WakeBy>,
    targets: &[HeldCpu],
) -> Result<WakeBy, StatesError> {
    let without_polling = targets.iter().find(|target| target.baseline == Baseline::Runs);
    match (wish, without_polling, module_absence(root)) {
        (Some(WakeBy::Futex), ..) => Ok(WakeBy::Futex),
        (Some(WakeBy::Ipi), Some(target), _) => Err(StatesError::NoPolling { cpu: target.cpu }),
        (Some(WakeBy::Ipi), None, Some(error)) => Err(error.into()),
        (Some(WakeBy::Ipi) | None, None, None) => Ok(WakeBy::Ipi),
        (None, ..) => Ok(WakeBy::Futex),
    }
}

/// The CPUs that have the same table, whatever is disabled, and the same kind of core, in their order.
pub(super) fn kinds(
    root: &Root,
    online: &[u16],
    cores: &CoreKinds,
) -> Vec<(Vec<MachineState>, Vec<u16>)> {
    let mut kinds: Vec<(Vec<MachineState>, Vec<u16>)> = Vec::new();
    for &cpu in online {
        let table = states(root, cpu);
        let is_same = |known: &[MachineState]| {
            known.len() == table.len()
                && known.iter().zip(&table).all(|(one, other)| {
                    (&one.name, one.exit_latency_ns, one.target_residency_ns)
                        == (&other.name, other.exit_latency_ns, other.target_residency_ns)
                })
        };
        let is_same =
            |known: &[MachineState], first: u16| is_same(known) && cores.of(first) == cores.of(cpu);
        match kinds.iter_mut().find(|(known, cpus)| is_same(known, cpus[0])) {
            Some((_, cpus)) => cpus.push(cpu),
            None => kinds.push((table, vec![cpu])),
        }
    }
    kinds
}

/// One CPU of each kind: not the waker's sibling if that can be avoided, and rather near it.
fn default_targets(
    root: &Root,
    kinds: &[(Vec<MachineState>, Vec<u16>)],
    cores: &CoreKinds,
    allowed: &[u16],
    source: u16,
    doubts: &mut Vec<String>,
) -> Vec<u16> {
    let mut targets = Vec::new();
    for (table, cpus) in kinds.iter().filter(|(table, _)| !table.is_empty()) {
        let possible = cpus.iter().copied().filter(|cpu| *cpu != source && allowed.contains(cpu));
        let distance = |cpu: &u16| {
            let relation = Relation::of(root, source, *cpu);
            (relation == Some(Relation::SmtSibling), relation, *cpu)
        };
        match possible.min_by_key(distance) {
            Some(cpu) => targets.push(cpu),
            None if kinds.len() > 1 => doubts.push(format!(
                "the CPUs {} were left out: this process may use none of them but the waker; name another by \
                 --source",
                match cores.of(cpus[0]) {
                    Some(core) => format!("of kind {core}"),
                    None => format!("with the state {}", table.last().map_or("", |s| s.name.as_str())),
                }
            )),
            None => {}
        }
    }
    targets
}

/// The online threads of a CPU's core besides itself and the waker.
fn siblings(root: &Root, cpu: u16, online: &[u16], source: u16) -> Vec<u16> {
    let list =
        root.cpus_in(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    let others = list.unwrap_or_default().into_iter();
    others.filter(|other| *other != cpu && *other != source && online.contains(other)).collect()
}

pub(super) fn held_state(table: &[MachineState], index: usize, limit_ns: Option<u64>) -> HeldState {
    let state = &table[index];
    let least_ns = state.target_residency_ns.max(state.exit_latency_ns).max(GAP_MIN_NS);
    let refusal = limit_ns.filter(|&limit_ns| limit_ns < state.exit_latency_ns).map(|limit_ns| {
        format!("a latency limit of {} us forbids it (`lsof /dev/cpu_dma_latency`, pm_qos_resume_latency_us)", limit_ns / 1_000)
    });
    HeldState { index, gap_ns: [least_ns, 2 * least_ns + GAP_SPREAD_NS], refusal }
}
