//! `--promote`: each governor with the promotion timers and without, over the same gaps.

use idlewise_report::promotion::{PromotionEffect, PromotionSide};
use idlewise_sim::contest::{Player, Price};
use idlewise_sim::replay::{ObservedLane, PerCpu, Setting, Stuck, replay_cpus};
use idlewise_trace::log::ColumnSet;
use rayon::prelude::*;

use crate::error::{Failure, Result};
use crate::governors::{Choice, OnMachine};
use crate::input::NamedLog;
use crate::replay_arguments::{ALL_LOGS, ReplayArguments, ReplayTarget};

/// The lanes with timers and without.
type Pair = [Box<dyn ObservedLane<Stuck>>; 2];

/// Returns one effect for each log, machine and governor, in that order. The oracle has none, because it
/// never wakes before the gap's end.
pub fn effects<'a>(
    shared: &ReplayArguments,
    logs: &[NamedLog],
    targets: &'a [ReplayTarget],
    choices: &[Choice],
) -> Result<Vec<PromotionEffect<'a>>> {
    let by_log: Vec<Vec<PromotionEffect<'a>>> = logs
        .par_iter()
        .enumerate()
        .map(|named| effects_on(shared, named, targets, choices))
        .collect::<Result<_>>()?;
    Ok(by_log.into_iter().flatten().collect())
}

fn effects_on<'a>(
    shared: &ReplayArguments,
    (index, named): (usize, &NamedLog),
    targets: &'a [ReplayTarget],
    choices: &[Choice],
) -> Result<Vec<PromotionEffect<'a>>> {
    let mut rows: Vec<(&'a ReplayTarget, String, Player<OnMachine<'_>>, [Setting; 2])> = Vec::new();
    for target in targets.iter().filter(|target| target.is_for(index)) {
        let with = shared.setting(target, named);
        let unpromoted = target.machine.clone().without_auto_promotion();
        let states = unpromoted.table().map_err(Failure::new)?;
        let settings = [with, Setting { states, ..with }];
        for choice in choices.iter().filter(|choice| !choice.is_priced()) {
            rows.push((target, choice.name(), choice.on(&target.machine)?, settings));
        }
    }
    let make = || -> Vec<Pair> {
        let pair =
            |(target, _, player, settings): &(&ReplayTarget, _, Player<OnMachine<'_>>, _)| {
                <[Setting; 2]>::map(*settings, |setting| {
                    let stuck = Stuck::new(&settings[0]);
                    // The price is the oracle's.
                    player.observed(&target.costs, setting, Price::QUARTER, stuck)
                })
            };
        rows.iter().map(pair).collect()
    };
    let take = |pairs: &mut Vec<Pair>, gaps: &[_]| {
        pairs.iter_mut().flatten().for_each(|lane| lane.replay(gaps));
    };
    let side = |mut lane: Box<dyn ObservedLane<Stuck>>| PromotionSide {
        tally: lane.tally().clone(),
        stuck: lane.observer_mut().clone(),
    };
    let finish =
        |pairs: Vec<Pair>| pairs.into_iter().map(|pair| pair.map(side)).collect::<Vec<_>>();
    // A log without gaps has no CPUs.
    let mut sums = finish(make());
    let cpu =
        PerCpu { columns: ColumnSet::WithoutRecorded, make: &make, take: &take, finish: &finish };
    let mut merge = |of_cpu: Vec<[PromotionSide; 2]>| {
        let sides = sums.iter_mut().flatten().zip(of_cpu.iter().flatten());
        sides.for_each(|(sum, side)| sum.merge(side));
    };
    replay_cpus(&named.log, &cpu, &mut merge, &|_| ())?;
    let mut effects = Vec::new();
    for ((target, governor, ..), [with, without]) in rows.into_iter().zip(sums) {
        effects.push(PromotionEffect {
            log: named.name.clone(),
            machine: target.machine.id.clone(),
            governor,
            states: target.states,
            costs: &target.costs,
            with,
            without,
        });
    }
    Ok(effects)
}

/// The sums over all logs, for each machine and governor.
pub fn pool<'a>(effects: &[PromotionEffect<'a>]) -> Vec<PromotionEffect<'a>> {
    let mut pooled: Vec<PromotionEffect<'a>> = Vec::new();
    for effect in effects {
        let same = |sum: &&mut PromotionEffect<'_>| {
            sum.machine == effect.machine && sum.governor == effect.governor
        };
        match pooled.iter_mut().find(same) {
            Some(sum) => {
                sum.with.merge(&effect.with);
                sum.without.merge(&effect.without);
            }
            None => pooled.push(PromotionEffect { log: ALL_LOGS.to_owned(), ..effect.clone() }),
        }
    }
    pooled
}
