//! Cores and packages: their states, their power, and their speed.

use idlewise_core::StateIndex;

use super::cpu::{IdleStay, Mode};
use super::{Event, Simulation};
use crate::cost::UJ_PER_MW_NS;
use crate::idle_loop::StayEnd;
use crate::shared::{Ask, Group};

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
    }

    /// The CPU goes idle: its groups may follow.
    #[inline]
    pub(super) fn enter_groups(&mut self, cpu: usize, ask: Ask) {
        for &(group, number) in self.group_slots.get(cpu).into_iter().flatten() {
            self.groups[group].enter(number, self.now_ns, ask);
        }
    }

    /// The CPU begins to wake up. Returns how long it waits for its groups.
    fn leave_groups(&mut self, cpu: usize, end: StayEnd) -> u64 {
        if self.groups.is_empty() {
            return 0;
        }
        let package = self.shape.package_of(cpu);
        let group = self.package_groups.get(package);
        if group.is_some_and(|group| self.groups[*group].asleep().is_some()) {
            self.account_package(package);
        }
        let mut wait_ns = 0;
        for &(group, number) in &self.group_slots[cpu] {
            let group = &mut self.groups[group];
            let left = group.leave(number, self.now_ns, wait_ns);
            wait_ns += left.wait_ns;
            if end == StayEnd::Event {
                group.add_wake(&left);
            }
        }
        wait_ns
    }

    /// How long a CPU takes to leave a state now, and the part of it that it waits for shared states.
    pub(super) fn exit(&mut self, cpu: usize, stay: &IdleStay, end: StayEnd) -> (u64, u64) {
        let IdleStay { entry, entered_at_ns, .. } = stay;
        let own_ns = match self.setup.exit_quantiles.get(&entry.state) {
            Some(quantiles) => quantiles.draw(&mut self.rng),
            None => {
                let rule = self.cpus[cpu].idle.rule(entry.state);
                self.scaled_exit_ns(rule.exit_latency_ns)
            }
        };
        // Hardware does not enter a core state that a sibling prevents.
        let own_ns = if self.shape.thread_count > 1 {
            own_ns.min(self.core_exit_ns(cpu, entry.state))
        } else {
            own_ns
        };
        let entering_ns = entered_at_ns.saturating_sub(self.now_ns);
        let wait_ns = self.leave_groups(cpu, end);
        (own_ns + entering_ns.max(wait_ns), wait_ns)
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
        let setting = &self.cpus[cpu].idle.setting;
        let states = &setting.states;
        // A thread in UMWAIT executes an instruction: it is not halted.
        let is_halted = |i: &usize| !states.get(*i).is_polling && !self.is_umwait[*i];
        let first_halted = (0..states.len()).find(is_halted).unwrap_or(0);
        let reached = core.state.unwrap_or(0).max(first_halted).min(own);
        self.scaled_exit_ns(setting.exits_ns[reached])
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

    /// Adds to the energy curve. Times are those of events, so neighbours are at least so far apart as was asked for.
    pub(super) fn note_energy(&mut self) {
        for core in 0..self.cores.len() {
            self.account_core(core);
        }
        for package in 0..self.packages.len() {
            self.account_package(package);
        }
        let cores = &self.report.cores;
        self.report.energy_curve.push((self.now_ns, cores.idle_uj + cores.package_uj));
        let every_ns = self.setup.energy_every_ns.unwrap_or(u64::MAX).max(1);
        self.energy_due_ns = self.now_ns.saturating_add(every_ns);
    }

    /// Charges the time since the last call to the package's state.
    pub(super) fn account_package(&mut self, index: usize) {
        let hardware = self.hardware;
        let group = self.package_groups.get(index).and_then(|group| self.groups.get(*group));
        let asleep_at_ns = group.and_then(Group::asleep).map(|(_, since_ns)| since_ns);
        let package = &mut self.packages[index];
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
