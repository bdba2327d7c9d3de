//! Cores and packages: their states, their power, and their speed.

use idlewise_core::StateIndex;

use super::idle::Mode;
use super::{Event, Simulation};
use crate::cost::UJ_PER_MW_NS;
use crate::idle_loop::Entry;

/// The frequency never falls below this share of nominal, however low the power limit.
const FREQUENCY_MIN_RATIO: f64 = 0.3;

#[derive(Clone, Copy, Debug)]
pub(super) struct Core {
    /// The shallowest state of the core's threads; `None` while one runs or wakes up.
    state: Option<StateIndex>,
    /// No thread runs yet, but one wakes up: the energy of that is part of the state's transition.
    is_waking: bool,
    since_ns: u64,
    /// Speed of a running thread, of a thread that has the core alone.
    thread_speed: f64,
}

impl Default for Core {
    fn default() -> Self {
        Core { state: None, is_waking: false, since_ns: 0, thread_speed: 1.0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    /// Cores in the deepest state.
    deep_core_count: usize,
    /// Since when all cores are in it.
    deep_since_ns: Option<u64>,
    /// When the exit from the package state is complete.
    awake_at_ns: u64,
    since_ns: u64,
    frequency_ratio: f64,
    /// Energy of the current period at nominal frequency: what grows with it, and the rest.
    scaled_uj: f64,
    fixed_uj: f64,
    /// Energy of the current period at the frequency of that time.
    spent_uj: f64,
    /// What was spent beyond the power limit and not saved since.
    debt_uj: f64,
}

/// The share of its debt that a package saves in a period.
const REPAID_RATIO: f64 = 0.1;

impl Package {
    pub(super) fn new() -> Self {
        Package {
            deep_core_count: 0,
            deep_since_ns: None,
            awake_at_ns: 0,
            since_ns: 0,
            // What the limit allows is not known before the first period ends.
            frequency_ratio: 1.0,
            scaled_uj: 0.0,
            fixed_uj: 0.0,
            spent_uj: 0.0,
            debt_uj: 0.0,
        }
    }
}

impl Simulation<'_> {
    fn has_package_state(&self) -> bool {
        self.hardware.package_exit_ns > 0 || self.hardware.package_idle_mw > 0.0
    }

    /// A CPU's speed: the frequency times what SMT leaves of the core.
    #[inline]
    pub(super) fn rate(&self, cpu: usize) -> f64 {
        let smt = self.cores[self.shape.core_of(cpu)].thread_speed;
        // At a speed of 0, work would never end.
        (smt * self.packages[self.shape.package_of(cpu)].frequency_ratio).max(1e-3)
    }

    /// Updates a core after one of its threads changed its mode.
    #[inline]
    pub(super) fn update_core(&mut self, cpu: usize) {
        let index = self.shape.core_of(cpu);
        let threads = index * self.shape.thread_count..(index + 1) * self.shape.thread_count;
        let mut state = Some(usize::MAX);
        let (mut polling_count, mut waiting_count, mut other_count) = (0, 0, 0);
        let mut is_running = false;
        for thread in &self.cpus[threads.clone()] {
            is_running |= matches!(thread.mode, Mode::Running);
            let thread_state = thread.idle_state();
            match thread_state {
                Some(i) if thread.idle.setting.states.get(i).is_polling => polling_count += 1,
                Some(i) if self.is_umwait[i] => waiting_count += 1,
                Some(i) if !self.is_lite[i] => {}
                _ => other_count += 1,
            }
            state = state.zip(thread_state).map(|(a, b)| a.min(b));
        }
        let is_waking = state.is_none() && !is_running;
        let core = self.cores[index];
        let (old_state, old_speed) = (core.state, core.thread_speed);
        if state != old_state || is_waking != core.is_waking {
            self.account_core(index);
            self.cores[index].is_waking = is_waking;
        }
        if state != old_state {
            self.cores[index].state = state;
            self.enter_core_state(index, old_state, state);
        }
        let thread_speed = self.thread_speed(other_count, polling_count, waiting_count);
        if thread_speed != old_speed {
            self.cores[index].thread_speed = thread_speed;
            for thread in threads.filter(|thread| *thread != cpu) {
                if matches!(self.cpus[thread].mode, Mode::Running) {
                    self.change_rate(thread);
                }
            }
        }
    }

    /// The speed of a running thread of a core with so many threads that run, poll, and wait in UMWAIT.
    fn thread_speed(&self, other_count: u64, polling_count: u64, waiting_count: u64) -> f64 {
        let hardware = self.hardware;
        match (other_count + polling_count, polling_count) {
            (0 | 1, _) if waiting_count > 0 => hardware.smt_umwait_speed,
            (0 | 1, _) => 1.0,
            (2, 1) => hardware.smt_poll_speed.unwrap_or(hardware.smt2_speed),
            (2, _) => hardware.smt2_speed,
            _ => hardware.smt4_speed,
        }
    }

    /// The energy of entering and leaving a state. It follows from the target residency, which holds for
    /// the table's exit latency: hardware that exits faster also spends less.
    fn transition_uj(&self, state: StateIndex) -> f64 {
        self.costs.transition_uj(state) * self.hardware.exit_ratio
    }

    fn enter_core_state(&mut self, core: usize, old: Option<StateIndex>, new: Option<StateIndex>) {
        if let Some(new) = new
            && old.is_none_or(|old| old < new)
        {
            let paid_uj = old.map_or(0.0, |old| self.transition_uj(old));
            let uj = self.transition_uj(new) - paid_uj;
            self.report.cores.idle_uj += uj;
            let package = &mut self.packages[core / self.shape.core_count];
            package.fixed_uj += uj;
            package.spent_uj += uj;
            self.report.cores.entry_count[new] += 1;
        }
        let deepest = self.cpus[core * self.shape.thread_count].idle.setting.states.deepest();
        let (was_deep, is_deep) = (old == Some(deepest), new == Some(deepest));
        if was_deep == is_deep {
            return;
        }
        let index = core / self.shape.core_count;
        if is_deep {
            self.packages[index].deep_core_count += 1;
            if self.packages[index].deep_core_count == self.shape.core_count {
                self.account_package(index);
                self.packages[index].deep_since_ns = Some(self.now_ns);
            }
        } else {
            self.account_package(index);
            self.packages[index].deep_core_count -= 1;
            self.packages[index].deep_since_ns = None;
        }
    }

    /// How long a CPU takes to leave a state now.
    pub(super) fn exit_ns(&mut self, cpu: usize, entry: &Entry, entered_at_ns: u64) -> u64 {
        let own_ns = match self.setup.exit_quantiles.get(&entry.state) {
            Some(quantiles) => quantiles.draw(&mut self.rng),
            None => self.scaled_exit_ns(entry.rule.exit_latency_ns),
        };
        // Hardware does not enter a core state that a sibling prevents.
        let own_ns = if self.shape.thread_count > 1 {
            own_ns.min(self.core_exit_ns(cpu, entry.state))
        } else {
            own_ns
        };
        let entering_ns = entered_at_ns.saturating_sub(self.now_ns);
        own_ns + entering_ns.max(self.package_exit_ns(self.shape.package_of(cpu)))
    }

    fn scaled_exit_ns(&self, exit_ns: u64) -> u64 {
        match self.hardware.exit_ratio {
            1.0 => exit_ns,
            ratio => (exit_ns as f64 * ratio) as u64,
        }
    }

    /// The exit latency of the core state that the siblings allow: at most that of a halted thread
    /// next to a running one.
    fn core_exit_ns(&self, cpu: usize, own: StateIndex) -> u64 {
        let core = &self.cores[self.shape.core_of(cpu)];
        let states = &self.cpus[cpu].idle.setting.states;
        // A thread in UMWAIT executes an instruction: it is not halted.
        let is_halted = |i: &usize| !states.get(*i).is_polling && !self.is_umwait[*i];
        let first_halted = (0..states.len()).find(is_halted).unwrap_or(0);
        let reached = core.state.unwrap_or(0).max(first_halted).min(own);
        self.scaled_exit_ns(states.get(reached).exit_latency_ns)
    }

    /// How long waking the package takes. A second CPU waits only for the rest.
    fn package_exit_ns(&mut self, index: usize) -> u64 {
        if !self.has_package_state() {
            return 0;
        }
        let now_ns = self.now_ns;
        let hardware = self.hardware;
        let package = &mut self.packages[index];
        let asleep_at_ns = package.deep_since_ns.map(|ns| ns + hardware.package_after_ns);
        if let Some(asleep_at_ns) = asleep_at_ns.filter(|at_ns| *at_ns <= now_ns) {
            let entered_at_ns = (asleep_at_ns + hardware.package_entry_ns).max(now_ns);
            package.awake_at_ns = entered_at_ns + hardware.package_exit_ns;
        }
        package.awake_at_ns.saturating_sub(now_ns)
    }

    /// Charges the time since the last call to the core's state.
    pub(super) fn account_core(&mut self, index: usize) {
        let package = &mut self.packages[index / self.shape.core_count];
        let core = &mut self.cores[index];
        let span_ns = self.now_ns - core.since_ns;
        core.since_ns = self.now_ns;
        let tally = &mut self.report.cores;
        if core.is_waking {
            tally.waking_ns += span_ns;
            return;
        }
        let (power_mw, is_scaled) = match core.state {
            None => (self.costs.running_mw, true),
            Some(state) => (self.costs.power_mw(state), self.scales[state]),
        };
        let nominal_uj = power_mw * span_ns as f64 * UJ_PER_MW_NS;
        let ratio = package.frequency_ratio;
        let uj = if is_scaled && ratio != 1.0 {
            nominal_uj * ratio.powf(self.hardware.power_exponent)
        } else {
            nominal_uj
        };
        package.spent_uj += uj;
        if is_scaled {
            package.scaled_uj += nominal_uj;
        } else {
            package.fixed_uj += nominal_uj;
        }
        match core.state {
            None => {
                tally.running_ns += span_ns;
                tally.running_uj += uj;
                tally.frequency_ns += ratio * span_ns as f64;
            }
            Some(state) => {
                tally.residency_ns[state] += span_ns;
                tally.idle_uj += uj;
            }
        }
    }

    /// Charges the time since the last call to the package's state.
    pub(super) fn account_package(&mut self, index: usize) {
        let hardware = self.hardware;
        let has_state = self.has_package_state();
        let package = &mut self.packages[index];
        let asleep_at_ns = package.deep_since_ns.filter(|_| has_state);
        let asleep_at_ns = asleep_at_ns.map(|ns| ns + hardware.package_after_ns);
        let asleep_ns =
            asleep_at_ns.map_or(0, |at_ns| self.now_ns.saturating_sub(at_ns.max(package.since_ns)));
        let awake_ns = self.now_ns - package.since_ns - asleep_ns;
        if asleep_at_ns.is_some_and(|at_ns| at_ns >= package.since_ns && at_ns < self.now_ns) {
            self.report.cores.package_entry_count += 1;
        }
        package.since_ns = self.now_ns;
        self.report.cores.package_idle_ns += asleep_ns;
        let uj = hardware.package_mw * awake_ns as f64 * UJ_PER_MW_NS
            + hardware.package_idle_mw * asleep_ns as f64 * UJ_PER_MW_NS;
        self.report.cores.package_uj += uj;
        package.fixed_uj += uj;
        package.spent_uj += uj;
    }

    /// Sets each package's frequency so that the last period's mix would have met the power limit. Where the
    /// mix changes faster than that, more is spent, and saved in the periods that follow.
    pub(super) fn spend_budget(&mut self) {
        let hardware = self.hardware;
        let Some(tdp_mw) = hardware.tdp_mw else { return };
        let period_ns = hardware.budget_period_ns.max(1);
        for core in 0..self.cores.len() {
            self.account_core(core);
        }
        for index in 0..self.packages.len() {
            self.account_package(index);
            let package = &mut self.packages[index];
            let limit_uj = tdp_mw * period_ns as f64 * UJ_PER_MW_NS;
            package.debt_uj = (package.debt_uj + package.spent_uj - limit_uj).max(0.0);
            let budget_uj = limit_uj - package.fixed_uj - package.debt_uj * REPAID_RATIO;
            let ratio = if package.scaled_uj > 0.0 {
                (budget_uj.max(0.0) / package.scaled_uj)
                    .powf(1.0 / hardware.power_exponent.max(1.0))
            } else {
                hardware.turbo_ratio
            };
            package.frequency_ratio =
                ratio.clamp(FREQUENCY_MIN_RATIO, hardware.turbo_ratio.max(1.0));
            package.scaled_uj = 0.0;
            package.fixed_uj = 0.0;
            package.spent_uj = 0.0;
        }
        for cpu in 0..self.cpus.len() {
            self.change_rate(cpu);
        }
        self.queue.push(self.now_ns + period_ns, Event::Budget);
    }
}
