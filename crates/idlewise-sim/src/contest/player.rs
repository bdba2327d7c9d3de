//! Who plays: a governor that decides, the oracle, which knows each gap, or a rival, which moves down during it.
//!
//! A lane must not ask through a pointer, because a governor's decision takes about as long as the call. So what builds
//! a governor is not asked for one. It is given a [`Visitor`] and calls that with a governor of its own type, for which
//! the visitor's code is then compiled.

use std::marker::PhantomData;

use idlewise_core::{Governor, GovernorVisitor, StateTable};

use super::Price;
use crate::diff::{ComparedGovernor, governor_side, oracle_side};
use crate::replay::{
    GovernorJoint, GovernorLane, Joint, Lane, ObservedLane, Observer, OracleJoint, Setting,
    TakePeriod, UnitOf,
};
use crate::{CostModel, OracleLane, Rival, RivalLane};

/// An operation on a governor of a type that only its builder knows.
pub trait Visitor {
    /// The operation's result.
    type Output;

    /// Applies the operation. Each call of `make` returns a governor without history.
    fn visit<G: Governor + 'static>(self, make: impl FnMut() -> G) -> Self::Output;
}

/// Builds the governors of CPUs.
pub trait Decider {
    /// Calls the visitor with what makes a governor for these states and this tick.
    fn visit<V: Visitor>(&self, states: &StateTable, tick_period_ns: u32, visitor: V) -> V::Output;

    /// Returns a lane for a CPU of a log if the governor has its own, for example in another process.
    fn own_lane(&self, _log: &str, _setting: Setting) -> Option<Box<dyn Lane>> {
        None
    }
}

/// Lets a list of governors, which passes one governor, serve a visitor, which wants to make several.
pub struct Cloned<V>(pub V);

impl<V: Visitor> GovernorVisitor for Cloned<V> {
    type Output = V::Output;

    fn visit<G: Governor + Clone + 'static>(self, governor: G) -> V::Output {
        self.0.visit(move || governor.clone())
    }
}

/// The role of a player in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is ranked.
    Governor,
    /// Not ranked: a bound, which predicts nothing.
    Bound,
    /// Not ranked: it knows the future.
    Oracle,
    /// Not ranked: it moves down during the idle time, for free.
    Rival,
}

/// Who plays.
#[derive(Clone, Copy, Debug)]
pub enum Player<D> {
    /// A governor.
    Decider(D),
    /// The cheapest state for each gap, at a price of delay.
    Oracle,
    /// A rule that moves down while the CPU is idle, at a price of delay.
    Rival(Rival),
}

impl<D: Decider> Player<D> {
    /// Returns a governor for one CPU; `None` for what doesn't decide.
    pub fn governor(&self, states: &StateTable, tick_period_ns: u32) -> Option<Box<dyn Governor>> {
        match self {
            Player::Decider(decider) => Some(decider.visit(states, tick_period_ns, IntoBox)),
            Player::Oracle | Player::Rival(_) => None,
        }
    }

    /// Returns one side of a comparison for a CPU. The oracle uses that price of delay.
    pub fn side(
        &self,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn ComparedGovernor> {
        match self.governor(&setting.states, setting.tick_period_ns) {
            Some(governor) => governor_side(governor, setting, costs),
            None => oracle_side(costs, setting, price.lambda_mw(costs)),
        }
    }

    /// Returns a lane for a CPU that reports each gap to `observer`. The oracle uses that price of delay, and takes
    /// the place of a rival, which has no single decisions.
    pub fn observed<'o, O: Observer + 'o>(
        &self,
        costs: &CostModel,
        setting: Setting,
        price: Price,
        observer: O,
    ) -> Box<dyn ObservedLane<O> + 'o> {
        match self {
            Player::Decider(decider) => {
                let into_lane = IntoLane { setting, observer, life: PhantomData };
                decider.visit(&setting.states, setting.tick_period_ns, into_lane)
            }
            Player::Oracle | Player::Rival(_) => {
                let lambda_mw = price.lambda_mw(costs);
                Box::new(OracleLane::with_observer(costs.clone(), setting, lambda_mw, observer))
            }
        }
    }

    /// Returns lanes for CPUs that share states, each with an observer. Stays of groups go to `periods`. The oracle
    /// takes the place of a rival.
    pub fn joint<O: Observer + 'static>(
        &self,
        unit: &UnitOf<'_>,
        costs: &CostModel,
        setting: Setting,
        price: Price,
        observers: Vec<O>,
        periods: Option<TakePeriod>,
    ) -> Box<dyn Joint> {
        match self {
            Player::Decider(decider) => {
                let into_joint = IntoJoint { unit, setting, observers, periods };
                decider.visit(&setting.states, setting.tick_period_ns, into_joint)
            }
            Player::Oracle | Player::Rival(_) => {
                let oracle = (costs, setting, price.lambda_mw(costs));
                OracleJoint::observed(unit, oracle, observers, periods)
            }
        }
    }

    /// Returns a lane for a CPU of a log that only counts.
    pub fn lane(
        &self,
        log: &str,
        costs: &CostModel,
        setting: Setting,
        price: Price,
    ) -> Box<dyn Lane> {
        match self {
            Player::Decider(decider) => decider
                .own_lane(log, setting)
                .unwrap_or_else(|| self.observed(costs, setting, price, ())),
            Player::Oracle => self.observed(costs, setting, price, ()),
            Player::Rival(rival) => {
                Box::new(RivalLane::new(*rival, costs.clone(), setting, price.lambda_mw(costs)))
            }
        }
    }
}

/// Boxes a governor.
struct IntoBox;

impl Visitor for IntoBox {
    type Output = Box<dyn Governor>;

    fn visit<G: Governor + 'static>(self, mut make: impl FnMut() -> G) -> Self::Output {
        Box::new(make())
    }
}

/// Makes a lane from a governor.
struct IntoLane<'o, O> {
    setting: Setting,
    observer: O,
    /// The observer's lifetime.
    life: PhantomData<&'o ()>,
}

impl<'o, O: Observer + 'o> Visitor for IntoLane<'o, O> {
    type Output = Box<dyn ObservedLane<O> + 'o>;

    fn visit<G: Governor + 'static>(self, mut make: impl FnMut() -> G) -> Self::Output {
        Box::new(GovernorLane::with_observer(make(), self.setting, self.observer))
    }
}

/// Makes the lanes of CPUs that share states from a governor.
struct IntoJoint<'a, O> {
    unit: &'a UnitOf<'a>,
    setting: Setting,
    observers: Vec<O>,
    periods: Option<TakePeriod>,
}

impl<O: Observer + 'static> Visitor for IntoJoint<'_, O> {
    type Output = Box<dyn Joint>;

    fn visit<G: Governor + 'static>(self, make: impl FnMut() -> G) -> Self::Output {
        GovernorJoint::observed(self.unit, self.setting, make, self.observers, self.periods)
    }
}
