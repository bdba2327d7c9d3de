//! What a wake-up costs.
//!
//! A recorded wake-up took some time until the task ran. Part of it is the idle state's exit latency, which another
//! state changes. The rest (delivery, the kernel's work, the switch) is its **rest**, which stays as it was. The
//! exit latency of a state is what the recording shows of it: the tenth percentile of the wake-ups that found
//! their CPU in it, less that of wake-ups that found a CPU running and did not wait behind its task; but no more than the table says, and
//! the table's where there are fewer than [`SHOWN_COUNT_MIN`]. So with the recorded states each wake-up takes as long as
//! recorded, except where it took less than the state's exit latency.
//! A wake-up that comes from elsewhere, or finds its CPU in another state than in the recording, has the rest of usual ones
//! that do.
//! Where all CPUs are taken, what a wake-up of a task takes longer than nine of ten is no cost of it but a wait.
//! A task that waits behind another one has no rest: the wait follows from the run, and the switch is in the other
//! one's time. A task whose data is there before it waits is not woken at all.
//! Until an idle CPU learns of another one's wake-up, it stays idle. That is part of the stay from which its governor
//! learns. The time that a CPU takes to go idle is not.
//! A task that is woken on the CPU that it then runs on has no rest: until the switch the other one runs, and what
//! the wake-up costs is in that one's time.
//!
//! A log that a simulated machine wrote has no rests: the same machine adds the same costs again
//! ([`super::Costs::Machine`]), and the run is the recorded one to the nanosecond.

use std::collections::BTreeMap;

use idlewise_trace::causes::WorkloadMetadata;

use super::tasks::Others;
use super::{Arrival, CausedWorkload, Kind, Played, SHOWN_COUNT_MIN};
use crate::Machine;
use crate::simulate::{Found, Quantiles};

/// Shorter exits are lost among what else a wake-up takes.
const DOUBTFUL_EXIT_MIN_NS: u64 = 10_000;

impl CausedWorkload {
    /// States that the recording shows to be left in less than a tenth of what its machine's table says, with both: index,
    /// shown, table. Something else that delays wake-ups of running CPUs may hide the exit. A run of the recorded states
    /// does not tell, since exit and rest add up to what was recorded; on other states it would be wrong.
    pub fn doubtful_exits_ns(&self, recorded: &Machine) -> Vec<(usize, u64, u64)> {
        let table_ns = recorded.exit_latencies_ns();
        let doubtful = self.shown_exits_ns.iter().filter_map(|(&state, &shown_ns)| {
            let state = usize::from(state);
            let table_ns = *table_ns.get(state)?;
            let is_doubtful = table_ns >= DOUBTFUL_EXIT_MIN_NS && shown_ns * 10 < table_ns;
            is_doubtful.then_some((state, shown_ns, table_ns))
        });
        doubtful.collect()
    }

    /// Splits each recorded wake-up into how long the CPU takes to learn of it, the idle state's exit latency, and the
    /// rest.
    pub(super) fn find_rests(&mut self, metadata: &WorkloadMetadata) {
        let machine = metadata.machine.as_ref();
        let table_ns = machine.map_or_else(Vec::new, Machine::exit_latencies_ns);
        let mut all: BTreeMap<Option<u8>, Vec<u64>> = BTreeMap::new();
        let mut by_kind: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        let others = self.others();
        // What waits behind a task shows how long that ran.
        let is_shown = |(step, others): &(&Played, &Others)| {
            step.is_woken() && !(step.idle_state.is_none() && others.were_ahead)
        };
        for (step, _) in self.steps.iter().zip(&others).filter(is_shown) {
            all.entry(step.idle_state).or_default().push(step.latency_ns());
            by_kind.entry(step.kind()).or_default().push(step.latency_ns());
        }
        let low_ns = |latencies_ns: &mut Vec<u64>| {
            let place = latencies_ns.len() / 10;
            let is_shown = latencies_ns.len() >= SHOWN_COUNT_MIN;
            is_shown.then(|| *latencies_ns.select_nth_unstable(place).1)
        };
        let lows = all.iter_mut().filter_map(|(state, all_ns)| Some((*state, low_ns(all_ns)?)));
        let mut lows_ns: BTreeMap<Option<u8>, u64> = lows.collect();
        let busy_ns = lows_ns.remove(&None);
        // Without wake-ups of running CPUs, those from the shallowest state show it, less what the table says.
        let shallow_ns = || {
            let (state, low_ns) = lows_ns.first_key_value()?;
            let table_ns = table_ns.get(usize::from((*state)?)).copied().unwrap_or(0);
            Some(low_ns.saturating_sub(table_ns))
        };
        let usual_ns = busy_ns.or_else(shallow_ns).unwrap_or(0);
        let mut deepest_ns = 0;
        for (state, low_ns) in lows_ns {
            let Some(state) = state else { continue };
            // A deeper state takes no less than a shallower one, and none takes more than the table says: what is
            // above that stays in the wake-ups' rests.
            deepest_ns = low_ns.saturating_sub(usual_ns).max(deepest_ns);
            let table_ns = table_ns.get(usize::from(state)).copied().unwrap_or(u64::MAX);
            self.shown_exits_ns.insert(state, deepest_ns.min(table_ns));
        }
        self.idle_entry_ns = metadata.idle_entry_ns.unwrap_or(0);
        let is_polling = |state: u8| {
            let state = machine.and_then(|machine| machine.states.get(usize::from(state)));
            state.is_some_and(|state| state.idle().is_polling)
        };
        // A polling CPU sees the wake-up itself.
        let told = metadata.left_after_ns.iter().filter(|(state, _)| !is_polling(**state));
        let deliveries_ns = told.filter_map(|(state, left_ns)| {
            Some(left_ns.saturating_sub(*self.shown_exits_ns.get(state)?))
        });
        let told_ns = deliveries_ns.min().unwrap_or(0);
        // What the log tells is the median, which contains what else delays interrupts. The fastest wake-ups bound it.
        let lows = by_kind.iter_mut().filter(|((is_remote, _), _)| *is_remote);
        let bounds_ns = lows.filter_map(|((_, state), latencies_ns)| {
            let state = state.filter(|state| !is_polling(*state))?;
            let exit_ns = self.shown_exits_ns.get(&state)?;
            Some(low_ns(latencies_ns)?.saturating_sub(*exit_ns))
        });
        self.delivery_ns = bounds_ns.min().unwrap_or(0).min(told_ns);
        let delivery_ns = |is_remote: bool, state: u8| {
            if is_remote && !is_polling(state) { self.delivery_ns } else { 0 }
        };
        for ((is_remote, state), latencies_ns) in &mut by_kind {
            let Some(low_ns) = low_ns(latencies_ns) else { continue };
            let known_ns = state.map_or(0, |state| {
                let exit_ns = self.shown_exits_ns.get(&state).copied().unwrap_or(0);
                exit_ns + delivery_ns(*is_remote, state)
            });
            self.usual_rests_ns.insert((*is_remote, *state), low_ns.saturating_sub(known_ns));
        }
        let mut rests_ns: Vec<u64> = Vec::with_capacity(self.steps.len());
        for (step, others) in self.steps.iter().zip(&others) {
            let latency_ns = step.latency_ns();
            let kind = step.kind();
            let rest_ns = match step.idle_state {
                // In the run, that follows from who is ahead there.
                Some(_) if others.were_ahead && self.usual_rests_ns.contains_key(&kind) => {
                    self.usual_rests_ns[&kind]
                }
                Some(state) => {
                    let shown_ns = self.shown_exits_ns.get(&state).copied();
                    let exit_ns = shown_ns.unwrap_or(latency_ns.saturating_sub(usual_ns));
                    latency_ns.saturating_sub(exit_ns + delivery_ns(step.is_remote, state))
                }
                None => {
                    let of_kind_ns = self.usual_rests_ns.get(&(step.is_remote, None)).copied();
                    latency_ns.min(of_kind_ns.unwrap_or(usual_ns))
                }
            };
            rests_ns.push(if step.is_woken() { rest_ns } else { 0 });
        }
        let most_ns = self.most_rests_ns(&rests_ns);
        let crowded = self.crowded();
        for ((step, rest_ns), is_crowded) in self.steps.iter_mut().zip(rests_ns).zip(crowded) {
            // Of a task that is bound to no CPU, more than most is that another CPU was late, or was chosen late: if there was none
            // to spare.
            let most_ns = most_ns
                .get(&step.kind())
                .filter(|_| self.is_free[step.task as usize] && is_crowded);
            step.rest_ns = most_ns.map_or(rest_ns, |&most_ns| rest_ns.min(most_ns));
        }
        self.find_scheduling(&others);
    }

    /// Whether, between each step's wake-up and its run, it and others that ran or were about to were as many as there are CPUs.
    fn crowded(&self) -> Vec<bool> {
        let sorted = |of: fn(&Played) -> u64| {
            let mut times_ns: Vec<u64> = self.steps.iter().map(of).collect();
            times_ns.sort_unstable();
            times_ns
        };
        let (dues_ns, ends_ns) = (sorted(|step| step.due_ns), sorted(|step| step.recorded_end_ns));
        let is_crowded = |step: &Played| {
            let come = dues_ns.partition_point(|&ns| ns <= step.recorded_run_at_ns);
            let gone = ends_ns.partition_point(|&ns| ns <= step.due_ns);
            come.saturating_sub(gone) >= self.cpu_count
        };
        self.steps.iter().map(is_crowded).collect()
    }

    /// What nine of ten wake-ups of a kind have at most.
    fn most_rests_ns(&self, rests_ns: &[u64]) -> BTreeMap<Kind, u64> {
        let mut by_kind: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
        for (step, &rest_ns) in self.steps.iter().zip(rests_ns).filter(|(step, _)| step.is_woken())
        {
            by_kind.entry(step.kind()).or_default().push(rest_ns);
        }
        let most = |mut rests_ns: Vec<u64>| {
            let place = rests_ns.len() * 9 / 10;
            *rests_ns.select_nth_unstable(place).1
        };
        by_kind.into_iter().map(|(kind, rests_ns)| (kind, most(rests_ns))).collect()
    }

    /// What a wake-up costs in the run besides the exit latency. A wake-up that finds its CPU otherwise than it did in
    /// the recording costs as much more or less as usual ones do.
    pub(super) fn rest_ns(&self, step: usize, found: Found, is_remote: bool) -> u64 {
        let step = &self.steps[step];
        let state = match found {
            Found::Ready if step.arrival == Arrival::AtOnce => return step.rest_ns,
            // The switch is in the time of the task that it waits for.
            Found::Ready | Found::Behind => return 0,
            Found::Running => None,
            Found::Idle(state) => u8::try_from(state).ok(),
        };
        // Woken by a task of its own CPU, here and there.
        if step.takes_over && !is_remote {
            return step.rest_ns;
        }
        let kinds = [(is_remote, state), step.kind()];
        if kinds[0] == kinds[1] {
            return step.rest_ns;
        }
        let [usual_ns, recorded_ns] = kinds.map(|kind| self.usual_rests_ns.get(&kind));
        match (usual_ns, recorded_ns) {
            (Some(usual_ns), Some(recorded_ns)) => {
                (step.rest_ns + usual_ns).saturating_sub(*recorded_ns)
            }
            (Some(usual_ns), None) if step.takes_over => *usual_ns,
            _ => step.rest_ns,
        }
    }

    /// The exit latencies to simulate: what the recording shows. States that it does not show have the table's.
    pub fn exit_quantiles(&self, machine: &Machine) -> BTreeMap<usize, Quantiles> {
        let shown = self.shown_exits_ns.iter().filter_map(|(&state, &exit_ns)| {
            let quantiles = Quantiles::new(&[(0.0, exit_ns), (1.0, exit_ns)])?;
            Some((usize::from(state), quantiles))
        });
        shown.filter(|(state, _)| *state < machine.states.len()).collect()
    }
}
