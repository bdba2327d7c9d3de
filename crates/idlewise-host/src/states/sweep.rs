//! Energy of CPUs that are all held in one state, idle or woken periodically.
//!
//! The energy counters are a package's, so all CPUs with the same table are held in the same state and do
//! the same: one CPU in a hundred would be lost in the noise. The settings (state and interval) take turns in
//! rounds, in another order each, so that a drift of temperature or load meets all of them.
//!
//! Not here: what follows from it (watts and break-evens), and the threads that wake up.

use std::collections::BTreeSet;

use idlewise_machine::MachineState;
use idlewise_trace::cpus_in_words;

use super::plan::{check_writable, held_state, kinds};
use super::stays::StayWatch;
use super::{Random, SEED, StatesError, check_online};
use crate::cpuidle::states;
use crate::energy::{EnergyDomain, EnergyKind, EnergyMeter};
use crate::ipi::forced::{Alike, ForcedStates, disable_file};
use crate::ipi::{IpiError, StateWish, Watch, allowed_cpus, lock};
use crate::note::latency_limits_ns;
use crate::settings::Owner;
use crate::watch::cpu_position;
use crate::{CoreKinds, Root};

/// How long a setting lasts before it is measured.
const SETTLE_NS: u64 = 50_000_000;

/// What the caller wants to measure.
#[derive(Clone, Debug)]
pub struct EnergyWishes {
    /// The states.
    pub states: StateWish,
    /// The intervals at which CPUs wake up; `None` stands for not at all.
    pub intervals_ns: Vec<Option<u64>>,
    /// How long each setting is measured in a round.
    pub slice_ns: u64,
    /// How often the settings take turns.
    pub round_count: u64,
}

/// What will be done.
#[derive(Clone, Debug)]
pub struct EnergyPlan {
    /// The CPUs, all with the same table.
    pub cpus: Vec<u16>,
    /// Their states, as the driver declares them.
    pub table: Vec<MachineState>,
    /// The states to hold them in, by index, shallowest first.
    pub held: Vec<usize>,
    /// The intervals at which they wake up; `None` stands for not at all.
    pub intervals_ns: Vec<Option<u64>>,
    /// How long each setting is measured in a round.
    pub slice_ns: u64,
    /// How often the settings take turns.
    pub round_count: u64,
    /// What was left out or may interfere, in sentences.
    pub doubts: Vec<String>,
}

impl EnergyPlan {
    /// Makes a plan for this machine. Changes nothing.
    ///
    /// # Errors
    /// Fails if there is no state to hold CPUs in.
    pub fn new(root: &Root, wishes: &EnergyWishes) -> Result<Self, StatesError> {
        let mut online = root.online_cpus();
        let first = online.first().copied().ok_or(IpiError::NoCpus)?;
        let mut doubts = Vec::new();
        match EnergyMeter::open(root) {
            Ok(meter) => doubts.extend(leave_uncounted(root, meter.domains(), &mut online)),
            Err(error) => doubts.push(error.to_string()),
        }
        // Cores of all kinds are held, as far as they have the same states: the energy is that of all.
        let mut kinds = kinds(root, &online, &CoreKinds::default());
        kinds.retain(|(table, _)| !table.is_empty());
        let most = kinds.iter().max_by_key(|(_, cpus)| cpus.len()).cloned();
        let Some((table, mut cpus)) = most else { return Err(StatesError::no_driver(root)) };
        if cpus.len() < online.len() {
            doubts.push(format!(
                "CPUs with another table were left alone ({}): the energy is theirs too, as far as they share a \
                 package",
                online.len() - cpus.len()
            ));
        }
        if let Some(allowed) = allowed_cpus(root) {
            let count = cpus.len();
            cpus.retain(|cpu| allowed.contains(cpu));
            if cpus.len() < count {
                doubts.push(format!(
                    "this process may not run on {} of the CPUs (affinity or cpuset), so they were left alone",
                    count - cpus.len()
                ));
            }
        }
        let cpu = cpus.first().copied().ok_or(StatesError::NotAllowed { cpu: first })?;
        let named = |name: &String| {
            let place = table.iter().position(|state| state.name.eq_ignore_ascii_case(name));
            place.ok_or_else(|| IpiError::NoSuchState {
                cpu,
                name: name.clone(),
                states: table.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "),
            })
        };
        let now = states(root, cpu);
        let indices: Vec<usize> = match &wishes.states {
            StateWish::Named(names) => names.iter().map(named).collect::<Result<_, _>>()?,
            _ => {
                let is_enabled =
                    |index: &usize| now.get(*index).is_some_and(|s| !s.is_disabled_by_default);
                (0..table.len()).filter(is_enabled).collect()
            }
        };
        let limits_ns = latency_limits_ns(root, &cpus);
        let limit_ns = limits_ns.values().min().copied();
        let mut held = Vec::new();
        for index in indices {
            match held_state(&table, index, limit_ns).refusal {
                Some(why) => doubts.push(format!("{} was not measured: {why}", table[index].name)),
                None => held.push(index),
            }
        }
        held.sort_unstable();
        held.dedup();
        if held.is_empty() {
            return Err(StatesError::NothingToHold { cpu });
        }
        let EnergyWishes { intervals_ns, slice_ns, round_count, .. } = wishes.clone();
        Ok(EnergyPlan { cpus, table, held, intervals_ns, slice_ns, round_count, doubts })
    }

    /// Returns the files that are written and put back.
    pub fn files(&self) -> Vec<String> {
        let states = 0..self.table.len();
        let of = |&cpu: &u16| states.clone().map(move |index| disable_file(cpu, index));
        self.cpus.iter().flat_map(of).collect()
    }

    /// Checks that all settings can be changed, before any is.
    ///
    /// # Errors
    /// Fails if one cannot, with what to do.
    pub fn check_writable(&self, root: &Root) -> Result<(), StatesError> {
        check_writable(root, &self.files())
    }

    /// Returns the number of slices.
    pub fn slice_count(&self) -> u64 {
        (self.held.len() * self.intervals_ns.len()) as u64 * self.round_count
    }

    /// Returns about how long it takes.
    pub fn about_ns(&self) -> u64 {
        self.slice_count() * (self.slice_ns + SETTLE_NS)
    }
}

/// Takes out the CPUs of packages without an energy counter, and says which, if others have one: what those CPUs save is
/// in no figure.
fn leave_uncounted(root: &Root, domains: &[EnergyDomain], cpus: &mut Vec<u16>) -> Option<String> {
    let packages = domains.iter().filter(|domain| domain.kind == EnergyKind::Package);
    // A die of a package counts as package-0-die-1.
    let number = |name: &str| name.strip_prefix("package-")?.split('-').next()?.parse().ok();
    let counted: Vec<u64> = packages.map(|one| number(&one.name)).collect::<Option<_>>()?;
    let package_of = |cpu: u16| cpu_position(root, cpu).package;
    let is_out = |cpu: &u16| package_of(*cpu).is_some_and(|package| !counted.contains(&package));
    let (out, rest): (Vec<u16>, Vec<u16>) = cpus.iter().partition(|cpu| is_out(cpu));
    if out.is_empty() || rest.is_empty() {
        return None;
    }
    *cpus = rest;
    let packages: BTreeSet<u64> = out.iter().filter_map(|cpu| package_of(*cpu)).collect();
    let packages: Vec<String> = packages.iter().map(u64::to_string).collect();
    Some(format!(
        "package {} has no energy counter: {} were left alone, and no figure is theirs",
        packages.join(", "),
        cpus_in_words(&out)
    ))
}

/// What CPUs did in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// How long it took.
    pub elapsed_ns: u64,
    /// How often all of them together woke up.
    pub wake_count: u64,
}

/// What makes CPUs wake up.
pub trait Workers {
    /// Lets a thread on each CPU sleep and wake up at intervals, or only sleep, for about `slice_ns`.
    fn work(&mut self, cpus: &[u16], interval_ns: Option<u64>, slice_ns: u64) -> Worked;
}

/// The energy of a slice of time in one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct EnergySlice {
    /// The round.
    pub round: u64,
    /// The state, by index.
    pub state: usize,
    /// The interval; `None`: no wakes.
    pub interval_ns: Option<u64>,
    /// The energy of each domain, in microjoules.
    pub energy_uj: Vec<u64>,
    /// What the CPUs did.
    pub worked: Worked,
    /// How often they left the state.
    pub entry_count: u64,
    /// How often they left others.
    pub other_count: u64,
    /// How long they were in the state, all together.
    pub in_state_ns: u64,
}

/// Measures according to the plan. Afterwards the idle states are enabled and disabled as before, whatever
/// happens; after SIGKILL the owner's holder does that.
///
/// # Errors
/// Fails if energy cannot be read, a state cannot be held, or `watch` stops it. Also fails if the idle states
/// could not be restored, with what to write to which file.
pub fn measure_energy(
    root: &Root,
    plan: &EnergyPlan,
    owner: &Owner,
    workers: &mut dyn Workers,
    watch: &dyn Watch,
) -> Result<(Vec<EnergyDomain>, Vec<EnergySlice>), StatesError> {
    let mut meter = EnergyMeter::open(root)?;
    let _lock = lock(root)?;
    plan.check_writable(root)?;
    let tell = |message: &str| watch.warn(message);
    let mut forced = ForcedStates::new(root, owner, &tell);
    let mut slices = Vec::new();
    let outcome = sweep(root, plan, workers, watch, &mut forced, &mut meter, &mut slices);
    // Errors of energy are not about states, so they are kept apart while these are restored.
    let (outcome, energy) = match outcome {
        Ok(()) => (Ok(()), None),
        Err(StatesError::Ipi(error)) => (Err(error), None),
        Err(error) => (Ok(()), Some(error)),
    };
    forced.restore(outcome)?;
    energy.map_or(Ok(()), Err)?;
    Ok((meter.domains().to_vec(), slices))
}

fn sweep(
    root: &Root,
    plan: &EnergyPlan,
    workers: &mut dyn Workers,
    watch: &dyn Watch,
    forced: &mut ForcedStates<'_>,
    meter: &mut EnergyMeter,
    slices: &mut Vec<EnergySlice>,
) -> Result<(), StatesError> {
    let counts = |source| StatesError::Ipi(IpiError::Counts { source });
    let open = |&cpu: &u16| StayWatch::open(root, cpu, plan.table.len(), cpu);
    let mut stays: Vec<StayWatch> =
        plan.cpus.iter().map(open).collect::<std::io::Result<_>>().map_err(counts)?;
    let alike = Alike { cpus: plan.cpus.clone(), state_count: plan.table.len() };
    let mut random = Random(SEED);
    for round in 0..plan.round_count {
        let mut order: Vec<(usize, Option<u64>)> = plan
            .held
            .iter()
            .flat_map(|&state| plan.intervals_ns.iter().map(move |&interval| (state, interval)))
            .collect();
        for place in (1..order.len()).rev() {
            order.swap(place, random.between([0, place as u64]) as usize);
        }
        for (state, interval_ns) in order {
            if watch.is_stopped() {
                return Err(IpiError::Stopped.into());
            }
            check_online(root, &plan.cpus)?;
            forced.force(&alike, Some(state))?;
            // Every CPU wakes up at the beginning, and so leaves the state that it was in.
            workers.work(&plan.cpus, interval_ns, SETTLE_NS);
            let before_uj = meter.read_uj()?.to_vec();
            for watch in &mut stays {
                watch.look().map_err(counts)?;
            }
            let worked = workers.work(&plan.cpus, interval_ns, plan.slice_ns);
            let after_uj = meter.read_uj()?;
            let energy_uj =
                after_uj.iter().zip(&before_uj).map(|(after, before)| after - before).collect();
            let (mut entry_count, mut other_count, mut in_state_us) = (0, 0, 0);
            for watch in &mut stays {
                let seen = watch.look().map_err(counts)?;
                entry_count += seen.entries[state];
                other_count += seen.entries.iter().sum::<u64>() - seen.entries[state];
                in_state_us += seen.times_us[state];
            }
            slices.push(EnergySlice {
                round,
                state,
                interval_ns,
                energy_uj,
                worked,
                entry_count,
                other_count,
                in_state_ns: in_state_us * 1_000,
            });
            watch.wakes(1);
        }
    }
    Ok(())
}
