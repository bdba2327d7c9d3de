//! The CPUs of a unit, replayed together: each runs ahead up to the end of a stay that other CPUs can lengthen.

use std::collections::VecDeque;
use std::sync::Arc;

use idlewise_core::{Governor, STATE_COUNT_MAX, StateIndex};
use idlewise_machine::Scope;
use idlewise_trace::IdleGap;

use super::step::Step;
use super::turns::{Turns, clock, turn, unclock};
use super::{Joint, JointPeriod, TakePeriod, Unit, UnitOf};
use crate::CostModel;
use crate::replay::{Delays, GovernorLane, Observer, OracleLane, Setting, Tally};
use crate::shared::{Group, Left, SharedStates};

/// No group of some scope.
const NO_GROUP: u32 = u32::MAX;
/// How many delays are collected before they are counted. Most are distinct, and counting them in order is faster.
const DELAYS_AT_ONCE: usize = 1 << 12;

/// A CPU of a unit.
struct Member<S: Step> {
    lane: S,
    /// Its group of each of the unit's scopes and its number there, the widest scope first.
    groups: [(u32, u32); Scope::ALL.len()],
    /// The gap that it is in, or was in last.
    gap: IdleGap,
    /// When that began, or the CPU woke up from it. Not before the end of the gap before, even if the log is damaged.
    start_ns: i64,
    /// The stay whose end has its turn; `None` between gaps.
    paused: Option<S::Paused>,
    /// Gaps that have begun before the one that it is in has ended. Only damaged logs have them.
    late: VecDeque<IdleGap>,
}

/// Where stays of groups go.
pub(super) enum Periods {
    Nowhere,
    To(TakePeriod),
    Kept(Vec<JointPeriod>),
}

impl Periods {
    fn of(take: Option<TakePeriod>) -> Self {
        take.map_or(Periods::Nowhere, Periods::To)
    }

    #[inline]
    fn take(&mut self, place: (Scope, u16), left: &Left, now_ns: i64) {
        if matches!(self, Periods::Nowhere) {
            return;
        }
        let Some((state, since_ns)) = left.ended else { return };
        let (scope, first_cpu) = place;
        let begin_ns = unclock(since_ns);
        let period = JointPeriod { scope, first_cpu, state, begin_ns, end_ns: now_ns };
        match self {
            Periods::Nowhere => {}
            Periods::To(take) => take(period),
            Periods::Kept(periods) => periods.push(period),
        }
    }
}

/// Delays, many of which are counted at once.
#[derive(Default)]
struct DelaySink {
    recent_ns: Vec<u64>,
    delays: Delays,
}

impl DelaySink {
    fn add(&mut self, delay_ns: u64) {
        self.recent_ns.push(delay_ns);
        if self.recent_ns.len() == DELAYS_AT_ONCE {
            self.count();
        }
    }

    fn count(&mut self) {
        self.recent_ns.sort_unstable();
        for same in self.recent_ns.chunk_by(|a, b| a == b) {
            self.delays.add(same[0], same.len() as u64);
        }
        self.recent_ns.clear();
    }
}

pub(super) struct Lanes<S: Step> {
    members: Vec<Member<S>>,
    groups: Vec<Group>,
    /// The scope and the first CPU of each group.
    places: Vec<(Scope, u16)>,
    /// A CPU in a shallower state has no part in any group.
    joined_from: StateIndex,
    turns: Turns,
    pub(super) periods: Periods,
    /// What wake events waited that also waited for a group. One sum for all CPUs, because there are many values.
    shared_delays: DelaySink,
    /// The same for those of single CPUs that have many.
    overruns: Delays,
}

impl<S: Step> Lanes<S> {
    pub(super) fn new(
        shared: &Arc<SharedStates>,
        unit: &Unit,
        lanes: Vec<S>,
        periods: Periods,
    ) -> Self {
        let mut members: Vec<Member<S>> = lanes
            .into_iter()
            .map(|lane| Member {
                lane,
                groups: [(NO_GROUP, 0); Scope::ALL.len()],
                gap: IdleGap::default(),
                start_ns: i64::MIN,
                paused: None,
                late: Default::default(),
            })
            .collect();
        let mut groups = Vec::new();
        let mut places = Vec::new();
        for (scope, of_group) in unit.groups.iter().rev() {
            for (number, &member) in of_group.iter().enumerate() {
                let slots = &mut members[member].groups;
                if let Some(free) = slots.iter_mut().find(|slot| slot.0 == NO_GROUP) {
                    *free = (groups.len() as u32, number as u32);
                }
            }
            places.push((*scope, unit.cpus[of_group[0]]));
            groups.push(Group::new(shared, *scope, of_group.len()));
        }
        Lanes {
            turns: Turns::new(members.len()),
            members,
            groups,
            places,
            joined_from: shared.shallowest_required(),
            periods,
            shared_delays: DelaySink::default(),
            overruns: Delays::default(),
        }
    }

    /// The CPU wakes up. Returns how long it waits for its groups.
    #[inline]
    fn wake(&mut self, index: usize, now_ns: i64) -> u64 {
        let Member { lane, groups, paused, .. } = &self.members[index];
        let exit_ns = paused.as_ref().and_then(|paused| lane.event_exit_ns(paused));
        let mut wait_ns = 0;
        for &(group, number) in groups.iter().take_while(|slot| slot.0 != NO_GROUP) {
            let place = self.places[group as usize];
            let group = &mut self.groups[group as usize];
            group.settle(number as usize, clock(now_ns));
            let left: Left = group.leave(number as usize, clock(now_ns), wait_ns);
            wait_ns += left.wait_ns;
            if exit_ns.is_some() {
                group.add_wake(&left);
            }
            self.periods.take(place, &left, now_ns);
        }
        if let Some(exit_ns) = exit_ns
            && wait_ns > 0
        {
            self.shared_delays.add(exit_ns + wait_ns);
        }
        wait_ns
    }

    /// Ends the CPU's stay, if it is in one, and goes on up to the end of the next one in which it is part of a group,
    /// or of its gaps.
    #[inline]
    fn run(&mut self, index: usize, now_ns: i64, wait_ns: u64, gaps: &mut &[IdleGap]) {
        let joined_from = self.joined_from;
        let Member { lane, groups, gap: held, start_ns, paused, late } = &mut self.members[index];
        let mut now_ns = now_ns;
        // The rest of the gap in which the CPU is, if there is any.
        let mut rest = None;
        if let Some(paused) = paused.take() {
            let (mut course, stay) = lane.resume(paused);
            if let Some(at_ns) = lane.leave(held, &mut course, &stay, wait_ns) {
                let entry_ns = start_ns.saturating_add_unsigned(at_ns).max(now_ns);
                rest = Some((course, entry_ns));
            }
        }
        loop {
            let (mut course, mut entry_ns) = match rest.take() {
                Some(rest) => rest,
                None => {
                    let next = if late.is_empty() { gaps.split_off_first() } else { None };
                    // Copied at once: a gap is long, and this is once for each.
                    match next {
                        Some(gap) => *held = *gap,
                        None => match late.pop_front() {
                            Some(gap) => *held = gap,
                            None => {
                                *start_ns = now_ns;
                                self.turns.set(index, Turns::NEVER);
                                return;
                            }
                        },
                    }
                    *start_ns = held.start_ns.max(now_ns);
                    (lane.begin(held), *start_ns)
                }
            };
            // A lane goes on alone where the CPU is in no group.
            loop {
                let (stay, stay_ns, ask) = lane.enter(held, &mut course);
                now_ns = entry_ns.saturating_add_unsigned(stay_ns);
                if ask.state >= joined_from {
                    *paused = Some(S::pause(&course, &stay));
                    for &(group, number) in groups.iter().take_while(|slot| slot.0 != NO_GROUP) {
                        self.groups[group as usize].plan(number as usize, clock(entry_ns), ask);
                    }
                    self.turns.set(index, turn(now_ns, now_ns == entry_ns, index));
                    return;
                }
                let Some(at_ns) = lane.leave(held, &mut course, &stay, 0) else { break };
                entry_ns = start_ns.saturating_add_unsigned(at_ns).max(now_ns);
            }
        }
    }
}

impl<S: Step> Joint for Lanes<S> {
    fn replay(&mut self, gaps: &[&[IdleGap]], until_ns: i64) {
        let mut rest: Vec<&[IdleGap]> = gaps.to_vec();
        for (index, gaps) in rest.iter_mut().enumerate() {
            let member = &self.members[index];
            // Otherwise its turn is known.
            if member.paused.is_none() && !gaps.is_empty() {
                self.run(index, member.start_ns, 0, gaps);
            }
        }
        loop {
            let (now_ns, index) = self.turns.first();
            if now_ns >= until_ns {
                break;
            }
            let wait_ns = self.wake(index, now_ns);
            self.run(index, now_ns, wait_ns, &mut rest[index]);
        }
        for (member, gaps) in self.members.iter_mut().zip(rest) {
            member.late.extend(gaps);
            let overruns = &mut member.lane.tally_mut().overruns;
            if overruns.distinct_count() > DELAYS_AT_ONCE {
                self.overruns.merge(&std::mem::take(overruns));
            }
        }
    }

    fn tally(&mut self) -> Tally {
        self.shared_delays.count();
        let mut sum = Tally {
            overruns: self.overruns.clone(),
            shared_delays: self.shared_delays.delays.clone(),
            ..Tally::default()
        };
        for member in &self.members {
            sum.merge(member.lane.tally());
        }
        let mut shared = Tally::default();
        for group in &self.groups {
            shared.shared = *group.tallies();
            sum.merge(&shared);
        }
        sum
    }
}

/// Makes a unit's lanes from one governor for each CPU.
pub struct GovernorJoint;

impl GovernorJoint {
    /// Makes lanes that only count.
    pub fn make<G: Governor + 'static>(
        unit: &UnitOf<'_>,
        setting: Setting,
        make: impl FnMut() -> G,
    ) -> Box<dyn Joint> {
        let observers = unit.cpus().iter().map(|_| ()).collect();
        GovernorJoint::observed(unit, setting, make, observers, None)
    }

    /// Makes lanes that report each stay to an observer, and each stay of a group to `periods`. The observers are not
    /// asked for feedback.
    pub fn observed<'o, G: Governor + 'static, O: Observer + 'o>(
        unit: &UnitOf<'_>,
        setting: Setting,
        mut make: impl FnMut() -> G,
        observers: Vec<O>,
        periods: Option<TakePeriod>,
    ) -> Box<dyn Joint + 'o> {
        let joined_from = unit.shared.shallowest_required();
        let lanes = observers.into_iter().map(|observer| {
            let mut lane = GovernorLane::with_observer(make(), setting, observer);
            lane.joined_from = joined_from.min(STATE_COUNT_MAX);
            lane
        });
        Box::new(Lanes::new(unit.shared, unit.unit, lanes.collect(), Periods::of(periods)))
    }
}

/// Makes a unit's lanes from the oracle, which knows the length of each CPU's gaps, and nothing of other CPUs.
pub struct OracleJoint;

impl OracleJoint {
    /// Makes lanes that report each stay to an observer, and each stay of a group to `periods`.
    pub fn observed<'o, O: Observer + 'o>(
        unit: &UnitOf<'_>,
        (costs, setting, lambda_mw): (&CostModel, Setting, f64),
        observers: Vec<O>,
        periods: Option<TakePeriod>,
    ) -> Box<dyn Joint + 'o> {
        let lanes = observers
            .into_iter()
            .map(|observer| OracleLane::with_observer(costs.clone(), setting, lambda_mw, observer));
        Box::new(Lanes::new(unit.shared, unit.unit, lanes.collect(), Periods::of(periods)))
    }
}
