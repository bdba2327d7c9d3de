//! States that CPUs share: package C6, a cluster or a module that is off.
//!
//! A CPU cannot enter such a state alone. A group of CPUs is in it from the moment at which the last of them
//! has asked for enough, until the first of them wakes up:
//!
//! ```text
//! CPU 0   ███░░░░░░░░░░░░░░░░░░░░░░│▒▒▒▒▓▓▓███     █ runs     ░ in the state that is required
//! CPU 1   ███████░░░░░░░░░░░░░░░░░░░░░░░░░░███     ▒ leaves its own state
//!                ├── shared state ─┤  ▓▓▓          ▓ waits for the shared state to be left
//! ```
//!
//! * **Who decides** that it is entered ([`idlewise_machine::Coordination`]). A platform does it at once, and
//!   takes the deepest state for which all CPUs have asked for enough. With OS-initiated coordination it is the
//!   kernel, when the last CPU goes idle (`cpu_power_down_ok` in `drivers/pmdomain/governor.c`): the deepest
//!   state whose target residency ends before the next timer of any of the CPUs, and whose exit latency every
//!   CPU's latency limit allows. Neither decides again before a CPU wakes up.
//! * **Leaving it** takes its exit latency on top of the CPU's own. The first CPU to wake up waits for all of
//!   it, one that wakes up meanwhile for the rest. A state of a wider scope is left before one of a narrower.
//! * **Whatever ends the stay** of a CPU leaves the shared state: its wake event, and as well the scheduler tick
//!   and a promotion timer, whose exits pass at running power.
//!
//! A [`Group`] is that rule and nothing else. Replays and the simulated machine both use it, so they count the
//! same.

use idlewise_core::{FAR_AWAY_NS, STATE_COUNT_MAX, StateIndex};
use idlewise_machine::{Coordination, Scope};

use crate::idle_loop::Entry;
use crate::tally::SharedStateTally;
use crate::{Machine, MachineError};

/// A shared state, resolved for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedRule {
    pub(crate) scope: Scope,
    pub(crate) exit_latency_ns: u64,
    pub(crate) target_residency_ns: u64,
    pub(crate) is_os_initiated: bool,
    /// The shallowest state that each CPU must be in.
    pub(crate) required: StateIndex,
    /// How long all CPUs must have been in it before the shared state follows.
    pub(crate) after_ns: u64,
    /// How long the entry takes, which cannot be aborted.
    pub(crate) entry_ns: u64,
    pub(crate) is_disabled: bool,
}

/// The shared states of a machine, the narrowest scope first, and then the shallowest state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedStates {
    names: Vec<String>,
    pub(crate) rules: Vec<SharedRule>,
}

impl SharedStates {
    /// No shared states.
    pub const NONE: SharedStates = SharedStates { names: Vec::new(), rules: Vec::new() };

    /// Resolves a machine's shared states. A machine without any is not an error.
    ///
    /// # Errors
    /// Fails if the machine has no state that a shared one requires.
    pub fn of(machine: &Machine) -> Result<Self, MachineError> {
        let mut shared = SharedStates::default();
        for state in machine.shared_states() {
            let Some(scope) = state.scope else { continue };
            shared.names.push(state.name.clone());
            shared.rules.push(SharedRule {
                scope,
                exit_latency_ns: state.exit_latency_ns,
                target_residency_ns: state.target_residency_ns,
                is_os_initiated: state.coordination == Some(Coordination::OsInitiated),
                required: machine.state_index(state.requires.as_deref().unwrap_or_default())?,
                after_ns: 0,
                entry_ns: 0,
                is_disabled: false,
            });
        }
        Ok(shared)
    }

    /// A single state, without a name.
    pub(crate) fn one(rule: SharedRule) -> Self {
        SharedStates { names: vec![String::new()], rules: vec![rule] }
    }

    /// Disables the states with that name; no group enters them. Returns whether there is one.
    pub fn disable(&mut self, name: &str) -> bool {
        let mut is_known = false;
        for (own_name, rule) in self.names.iter().zip(&mut self.rules) {
            if own_name.eq_ignore_ascii_case(name) {
                rule.is_disabled = true;
                is_known = true;
            }
        }
        is_known
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The scope of each.
    pub fn scope(&self, state: usize) -> Scope {
        self.rules[state].scope
    }

    /// Their scopes, the narrowest first.
    pub fn scopes(&self) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = self.rules.iter().map(|rule| rule.scope).collect();
        scopes.dedup();
        scopes
    }

    /// The indices of the states with that scope.
    pub(crate) fn of_scope(&self, scope: Scope) -> std::ops::Range<usize> {
        let first = self.rules.iter().position(|rule| rule.scope == scope).unwrap_or(0);
        let count = self.rules.iter().filter(|rule| rule.scope == scope).count();
        first..first + count
    }

    /// The shallowest state that any of them requires. A CPU in a shallower one has no part in them.
    pub(crate) fn shallowest_required(&self) -> StateIndex {
        let enabled = self.rules.iter().filter(|rule| !rule.is_disabled);
        enabled.map(|rule| rule.required).min().unwrap_or(STATE_COUNT_MAX)
    }

    /// The same as if every idle CPU had asked for enough, and nobody had to decide.
    pub(crate) fn relaxed(&self) -> Self {
        let rules = self.rules.iter().map(|rule| SharedRule {
            is_os_initiated: false,
            required: 0,
            ..*rule
        });
        SharedStates { names: self.names.clone(), rules: rules.collect() }
    }
}

/// A CPU's part in a group.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// One bit for each of the group's states for which the CPU has asked for enough; 0 while it is awake.
    asked: u8,
    /// When it goes idle, or went.
    entered_at_ns: u64,
    /// When its next timer is due.
    next_event_at_ns: u64,
}

/// What a CPU asks for when it goes idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) state: StateIndex,
    /// The time to its next timer or tick; [`FAR_AWAY_NS`] if there is none.
    pub(crate) next_event_ns: i64,
    pub(crate) latency_limit_ns: i64,
}

impl Ask {
    /// What an entry asks for, with so much time to the next timer.
    #[inline]
    pub(crate) fn of(entry: &Entry, timer_left_ns: i64, latency_limit_ns: i64) -> Self {
        let interrupt_ns = entry.tick_left_ns.min(entry.own_limit_ns);
        let interrupt_ns = i64::try_from(interrupt_ns).unwrap_or(FAR_AWAY_NS);
        Ask { state: entry.state, next_event_ns: timer_left_ns.min(interrupt_ns), latency_limit_ns }
    }
}

/// The state that a group is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep {
    /// Its index in the group.
    rule: usize,
    since_ns: u64,
}

/// What a CPU's wake-up does to its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// How long the CPU waits for the group.
    pub(crate) wait_ns: u64,
    /// The index of the state that it waits for, among all of the machine.
    pub(crate) waits_for: Option<usize>,
    /// The stay that it ended: the state's index among all of the machine, and since when.
    pub(crate) ended: Option<(usize, u64)>,
}

/// CPUs that share states of one scope. Times are absolute and those of wake-ups never go back; a wake-up comes
/// before an entry at the same time.
///
/// A simulation calls [`Group::enter`] when a CPU goes idle. A replay knows before when that will be, and calls
/// [`Group::plan`]. Only its wake-ups are in the order of time, and it calls [`Group::settle`] before each.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    rules: Box<[SharedRule]>,
    /// The index of its first state among all of the machine.
    first: usize,
    members: Vec<Member>,
    /// How many are idle, or will be.
    idle_count: usize,
    /// The latest entry of all, and the CPU. Its CPU is still in it or went idle again later, so once all CPUs are
    /// idle it is the entry of the last of them.
    latest: (u64, usize),
    asleep: Option<Asleep>,
    /// When the last exit is complete, and from which state it was.
    awake_at_ns: u64,
    left_state: usize,
    tallies: [SharedStateTally; idlewise_machine::SHARED_STATE_COUNT_MAX],
}

impl Group {
    pub(crate) fn new(shared: &SharedStates, scope: Scope, member_count: usize) -> Self {
        let range = shared.of_scope(scope);
        Group {
            first: range.start,
            rules: shared.rules[range].into(),
            members: vec![Member::default(); member_count],
            idle_count: 0,
            latest: (0, 0),
            asleep: None,
            awake_at_ns: 0,
            left_state: 0,
            tallies: Default::default(),
        }
    }

    /// A CPU goes idle.
    #[inline]
    pub(crate) fn enter(&mut self, member: usize, now_ns: u64, ask: Ask) {
        let has_asked = self.plan(member, now_ns, ask);
        if has_asked && self.idle_count == self.members.len() {
            self.asleep = self.choose(now_ns);
        }
    }

    /// A CPU that is awake will go idle. Returns whether it asks for enough for any state.
    #[inline]
    pub(crate) fn plan(&mut self, member: usize, at_ns: u64, ask: Ask) -> bool {
        let mut asked = 0;
        for (index, rule) in self.rules.iter().enumerate() {
            let is_allowed = !rule.is_os_initiated
                || i64::try_from(rule.exit_latency_ns).is_ok_and(|ns| ns <= ask.latency_limit_ns);
            let has_asked = ask.state >= rule.required && is_allowed && !rule.is_disabled;
            asked |= u8::from(has_asked) << index;
        }
        if asked == 0 {
            return false;
        }
        let next_event_at_ns = match ask.next_event_ns {
            FAR_AWAY_NS => u64::MAX,
            left_ns => at_ns.saturating_add(left_ns.max(0) as u64),
        };
        self.members[member] = Member { asked, entered_at_ns: at_ns, next_event_at_ns };
        self.idle_count += 1;
        self.latest = self.latest.max((at_ns, member));
        true
    }

    /// Decides on the planned entries that precede a CPU's wake-up, which is the next of the group.
    #[inline]
    pub(crate) fn settle(&mut self, member: usize, now_ns: u64) {
        if self.idle_count < self.members.len() {
            return;
        }
        let (last_at_ns, last) = self.latest;
        // A CPU that does not stay at all wakes up after those that went idle before it at the same time.
        let is_stay_empty = self.members[member].entered_at_ns == now_ns;
        if last_at_ns < now_ns || (is_stay_empty && last_at_ns == now_ns && last <= member) {
            self.asleep = self.choose(last_at_ns);
        }
    }

    /// The state for a group whose CPUs are all idle.
    fn choose(&self, now_ns: u64) -> Option<Asleep> {
        let asked = self.members.iter().fold(u8::MAX, |all, member| all & member.asked);
        let next_event_at_ns =
            self.members.iter().map(|member| member.next_event_at_ns).min().unwrap_or(u64::MAX);
        let left_ns = next_event_at_ns.saturating_sub(now_ns);
        let is_possible = |&index: &usize| {
            let rule = &self.rules[index];
            asked & 1 << index != 0
                && (!rule.is_os_initiated || rule.target_residency_ns <= left_ns)
        };
        let rule = (0..self.rules.len()).rev().find(is_possible)?;
        Some(Asleep { rule, since_ns: now_ns })
    }

    /// A CPU wakes up, and waits `before_ns` for groups of wider scopes.
    #[inline]
    pub(crate) fn leave(&mut self, member: usize, now_ns: u64, before_ns: u64) -> Left {
        // A CPU that asked for nothing was not part of it.
        if std::mem::take(&mut self.members[member].asked) == 0 {
            return Left::default();
        }
        self.idle_count -= 1;
        let mut left = Left::default();
        if let Some(Asleep { rule: index, since_ns }) = self.asleep.take() {
            let rule = self.rules[index];
            let since_ns = since_ns.saturating_add(rule.after_ns);
            if since_ns <= now_ns {
                let state = self.first + index;
                let tally = &mut self.tallies[state];
                let stay_ns = now_ns - since_ns;
                tally.entry_count += 1;
                tally.stay_ns += stay_ns;
                tally.too_deep_count += u64::from(stay_ns < rule.target_residency_ns);
                let begin_ns = since_ns.saturating_add(rule.entry_ns).max(now_ns + before_ns);
                self.awake_at_ns = begin_ns.saturating_add(rule.exit_latency_ns);
                self.left_state = state;
                left.ended = Some((state, since_ns));
            }
        }
        left.wait_ns = self.awake_at_ns.saturating_sub(now_ns + before_ns);
        left.waits_for = (left.wait_ns > 0).then_some(self.left_state);
        left
    }

    /// Since when the group is in a state, and in which, among all of the machine. If the state follows later,
    /// the time is in the future.
    pub(crate) fn asleep(&self) -> Option<(usize, u64)> {
        let Asleep { rule, since_ns } = self.asleep?;
        Some((self.first + rule, since_ns.saturating_add(self.rules[rule].after_ns)))
    }

    /// Counts a wake event's wait.
    #[inline]
    pub(crate) fn add_wake(&mut self, left: &Left) {
        if let Some(state) = left.waits_for {
            self.tallies[state].wake_count += 1;
            self.tallies[state].delay_ns += left.wait_ns;
        }
    }

    /// Drops all counts. A stay in progress counts from now.
    pub(crate) fn restart(&mut self, now_ns: u64) {
        self.tallies = Default::default();
        if let Some(Asleep { rule, since_ns }) = &mut self.asleep {
            let after_ns = self.rules[*rule].after_ns;
            *since_ns = (*since_ns).max(now_ns.saturating_sub(after_ns));
        }
    }

    /// The counts, in the machine's order, with a stay in progress.
    pub(crate) fn tallies_until(
        &self,
        now_ns: u64,
    ) -> [SharedStateTally; idlewise_machine::SHARED_STATE_COUNT_MAX] {
        let mut tallies = self.tallies;
        if let Some((state, since_ns)) = self.asleep().filter(|(_, since_ns)| *since_ns <= now_ns) {
            tallies[state].entry_count += 1;
            tallies[state].stay_ns += now_ns - since_ns;
        }
        tallies
    }

    /// The counts, in the machine's order.
    pub(crate) fn tallies(&self) -> &[SharedStateTally; idlewise_machine::SHARED_STATE_COUNT_MAX] {
        &self.tallies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(text: &str) -> SharedStates {
        let machine = Machine::from_toml(&format!(
            "id = \"toy\"\ntitle = \"Toy\"\narch = \"arm\"\nsource = \"invented\"\nstates = [\n\
             {{ name = \"WFI\", exit_latency_us = 1, target_residency_us = 1 }},\n\
             {{ name = \"off\", exit_latency_us = 50, target_residency_us = 100 }} ]\n\
             domain_states = [\n{text}\n]"
        ));
        SharedStates::of(&machine.unwrap()).unwrap()
    }

    fn state(name: &str, latency_us: u64, residency_us: u64, coordination: &str) -> String {
        format!(
            "{{ name = \"{name}\", exit_latency_us = {latency_us}, target_residency_us = \
             {residency_us}, scope = \"cluster\", coordination = \"{coordination}\", requires = \
             \"off\" }},"
        )
    }

    const OFF: Ask = Ask { state: 1, next_event_ns: FAR_AWAY_NS, latency_limit_ns: i64::MAX };

    #[test]
    fn begins_with_the_last_and_ends_with_the_first() {
        let shared = shared(&state("ret", 100, 1_000, "platform"));
        let mut group = Group::new(&shared, Scope::Cluster, 2);
        group.enter(0, 10_000, OFF);
        assert_eq!(group.asleep(), None);
        group.enter(1, 20_000, OFF);
        assert_eq!(group.asleep(), Some((0, 20_000)));
        // CPU 1 waits for the whole exit of 100 us, CPU 0 30 us later for the rest.
        let first = group.leave(1, 700_000, 0);
        assert_eq!((first.wait_ns, first.ended), (100_000, Some((0, 20_000))));
        let second = group.leave(0, 730_000, 0);
        assert_eq!((second.wait_ns, second.waits_for, second.ended), (70_000, Some(0), None));
        let tally = group.tallies()[0];
        assert_eq!((tally.entry_count, tally.stay_ns, tally.too_deep_count), (1, 680_000, 1));
    }

    #[test]
    fn a_cpu_in_a_shallow_state_keeps_all_awake() {
        let shared = shared(&state("ret", 100, 1_000, "platform"));
        let mut group = Group::new(&shared, Scope::Cluster, 2);
        group.enter(0, 0, Ask { state: 0, ..OFF });
        group.enter(1, 0, OFF);
        assert_eq!(group.asleep(), None);
        assert_eq!(group.leave(1, 900, 0), Left::default());
        assert_eq!(group.leave(0, 900, 0), Left::default());
        assert_eq!(group.tallies()[0], SharedStateTally::default());
    }

    #[test]
    fn the_kernel_looks_at_timers_and_limits_and_the_platform_at_neither() {
        let chosen = |coordination, next_event_ns, latency_limit_ns| {
            let shared = shared(
                &(state("ret", 100, 1_000, coordination) + &state("off", 400, 6_000, coordination)),
            );
            let mut group = Group::new(&shared, Scope::Cluster, 2);
            // The timer of the CPU that went idle first counts as well, from then on.
            group.enter(0, 0, Ask { next_event_ns, latency_limit_ns, ..OFF });
            group.enter(1, 500_000, OFF);
            group.asleep().map(|(state, _)| state)
        };
        for (next_event_ns, latency_limit_ns, by_kernel) in [
            (FAR_AWAY_NS, i64::MAX, Some(1)),
            (6_500_000, i64::MAX, Some(1)),
            (6_499_999, i64::MAX, Some(0)),
            (1_499_999, i64::MAX, None),
            (FAR_AWAY_NS, 399_999, Some(0)),
            (FAR_AWAY_NS, 99_999, None),
        ] {
            assert_eq!(chosen("os-initiated", next_event_ns, latency_limit_ns), by_kernel);
            assert_eq!(chosen("platform", next_event_ns, latency_limit_ns), Some(1));
        }
    }
}
