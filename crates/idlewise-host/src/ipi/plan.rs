//! Plans a measurement: which CPU wakes which others, from which states.

use idlewise_machine::MachineState;

use super::IpiError;
use crate::cpuidle;
use crate::note::latency_limits_ns;
use crate::topology::one_of_each_relation;
use crate::{Relation, Root, show_cpu_list};

/// What the caller wants to measure.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// What wakes.
    pub waker: Waker,
    /// The CPUs to wake. If empty: one for each relation to the source; or, if the target's own
    /// timers wake it, the first CPU that this process may run on.
    pub targets: Vec<u16>,
    /// The states to wake them from.
    pub states: StateWish,
    /// The number of wakes for each target and state.
    pub wake_count: u64,
    /// The time between wakes, in which the target goes idle.
    pub gap_us: u32,
}

/// What wakes a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waker {
    /// This CPU; `None` for the first one that this process may run on.
    Cpu(Option<u16>),
    /// A timer of the target's own.
    Timer,
}

/// The states from which a target is woken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWish {
    /// Each enabled state separately. Without a driver: whatever the kernel does.
    All,
    /// Whatever the governor selects.
    Configured,
    /// The named states, even if they are disabled.
    Named(Vec<String>),
}

/// A complete plan.
#[derive(Clone, Debug)]
pub struct MeasurementPlan {
    /// The CPU that wakes; `None` if timers do.
    pub source: Option<u16>,
    /// The CPUs to wake, the nearest first unless they were named.
    pub targets: Vec<Target>,
    /// The number of wakes for each target and state.
    pub wake_count: u64,
    /// The time between wakes, in microseconds.
    pub gap_us: u32,
    /// What was left out or may interfere, in sentences.
    pub doubts: Vec<String>,
}

/// A CPU that is woken.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number.
    pub cpu: u16,
    /// How far it is from the source, if known.
    pub relation: Option<Relation>,
    /// The states to wake it from.
    pub states: Vec<State>,
    /// How many states must be enabled or disabled for that: all of the CPU's, or 0.
    pub(super) forced_count: usize,
}

/// A state that is forced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Its index in the driver's table; `None` if nothing is forced.
    pub index: Option<usize>,
    /// Its name, or a description of what happens if nothing is forced.
    pub name: String,
    /// The exit latency in the table; `None` if sysfs, which has whole microseconds, says 0.
    pub exit_latency_ns: Option<u64>,
}

impl MeasurementPlan {
    /// Makes a plan for this machine.
    ///
    /// # Errors
    /// Fails if a CPU or state does not exist, or if a CPU would have to wake itself.
    pub fn new(root: &Root, wishes: &Wishes) -> Result<Self, IpiError> {
        let online = root.online_cpus();
        let allowed = allowed_cpus(root);
        let is_allowed = |cpu: &&u16| allowed.as_ref().is_none_or(|cpus| cpus.contains(cpu));
        let default = online.iter().find(is_allowed).or(online.first()).copied();
        let default = default.ok_or(IpiError::NoCpus)?;
        let source = match wishes.waker {
            Waker::Cpu(source) => Some(source.unwrap_or(default)),
            Waker::Timer => None,
        };
        let check_online = |cpu: u16| match online.contains(&cpu) {
            true => Ok(()),
            false => Err(IpiError::Offline { cpu, online: show_cpu_list(&online) }),
        };
        source.map_or(Ok(()), check_online)?;
        let targets = match (wishes.targets.is_empty(), source) {
            (true, Some(source)) => {
                one_of_each_relation(root, source).into_iter().map(|(_, cpu)| cpu).collect()
            }
            (true, None) => vec![default],
            (false, _) => wishes.targets.clone(),
        };
        if targets.is_empty() {
            return Err(IpiError::OneCpu { cpu: default });
        }
        let mut doubts = Vec::new();
        let mut target = |cpu: u16| {
            check_online(cpu)?;
            if Some(cpu) == source {
                return Err(IpiError::SameCpu { cpu });
            }
            let table = cpuidle::states(root, cpu);
            let states = wanted(&table, cpu, &wishes.states, &mut doubts)?;
            doubt_limits(root, cpu, &states, &mut doubts);
            let relation = source.and_then(|source| Relation::of(root, source, cpu));
            let is_forced = states.iter().any(|state| state.index.is_some());
            let forced_count = if is_forced { table.len() } else { 0 };
            Ok(Target { cpu, relation, states, forced_count })
        };
        let targets = targets.into_iter().map(&mut target).collect::<Result<_, _>>()?;
        let Wishes { wake_count, gap_us, .. } = *wishes;
        Ok(MeasurementPlan { source, targets, wake_count, gap_us, doubts })
    }

    /// Returns the number of wakes of all targets and states.
    pub fn total_wake_count(&self) -> u64 {
        let case_count: usize = self.targets.iter().map(|target| target.states.len()).sum();
        self.wake_count.saturating_mul(case_count as u64)
    }
}

/// The CPUs that this process may run on.
pub fn allowed_cpus(root: &Root) -> Option<Vec<u16>> {
    let status = root.text("proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(crate::root::cpu_list(list))
}

fn wanted(
    table: &[MachineState],
    cpu: u16,
    wish: &StateWish,
    doubts: &mut Vec<String>,
) -> Result<Vec<State>, IpiError> {
    let state = |index: usize| State {
        index: Some(index),
        name: table[index].name.clone(),
        exit_latency_ns: Some(table[index].exit_latency_ns).filter(|&ns| ns > 0),
    };
    match wish {
        StateWish::All if !table.is_empty() => {
            let (disabled, enabled): (Vec<usize>, Vec<usize>) =
                (0..table.len()).partition(|index| table[*index].is_disabled_by_default);
            for index in disabled {
                let name = &table[index].name;
                doubts.push(format!(
                    "CPU {cpu}: {name} is disabled and was not measured; --state {name} does it"
                ));
            }
            Ok(enabled.into_iter().map(state).collect())
        }
        StateWish::All | StateWish::Configured => {
            let name = if table.is_empty() { "no driver" } else { "as configured" }.to_owned();
            Ok(vec![State { index: None, name, exit_latency_ns: None }])
        }
        StateWish::Named(_) if table.is_empty() => Err(IpiError::NoStates { cpu }),
        StateWish::Named(names) => {
            let find = |name: &String| {
                let place = table.iter().position(|state| state.name.eq_ignore_ascii_case(name));
                place.map(state).ok_or_else(|| IpiError::NoSuchState {
                    cpu,
                    name: name.clone(),
                    states: table.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "),
                })
            };
            names.iter().map(find).collect()
        }
    }
}

/// Adds a doubt for states whose exit latency exceeds the CPU's limit. Enabling them has no effect,
/// because governors avoid them.
fn doubt_limits(root: &Root, cpu: u16, states: &[State], doubts: &mut Vec<String>) {
    let Some(limit_ns) = latency_limits_ns(root, &[cpu]).get(&cpu).copied() else { return };
    for state in states.iter().filter(|state| state.exit_latency_ns > Some(limit_ns)) {
        doubts.push(format!(
            "CPU {cpu}: PM QoS allows {} us of latency, less than {}'s exit latency: governors may \
             refuse it (`lsof /dev/cpu_dma_latency`, pm_qos_resume_latency_us)",
            limit_ns / 1_000,
            state.name
        ));
    }
}
