//! Replays a log for many players at once: those whose CPUs share states together, the others CPU by CPU.

use idlewise_trace::IdleGap;
use idlewise_trace::log::{ColumnSet, IdleLog};

use super::{Decider, Player, Price};
use crate::CostModel;
use crate::replay::{
    JoinError, Joint, JointBound, JointReplays, Lane, MakeJoint, MakeLane, ReplayedGroups, Setting,
    Tally, UnitOf, replay_joined, replay_log,
};

/// A player on a machine in a setting.
pub struct Seat<'a, D> {
    /// Who plays.
    pub player: Player<D>,
    /// What the machine's states cost.
    pub costs: &'a CostModel,
    /// Everything else of the machine.
    pub setting: Setting,
    /// The price of delay, for those who know it.
    pub price: Price,
    /// The CPUs that share states; `None`: each is replayed alone.
    pub groups: Option<&'a ReplayedGroups>,
}

/// Replays a log for all seats, and returns a tally for each. `bounds` are computed on the way: for each, the cost in
/// microjoules at each price. `progress` is called with the number of gaps replayed since its last call; each gap is
/// counted once. `name` is the log's in messages.
///
/// # Errors
/// Fails if the log is damaged, or not sorted by CPU where CPUs share states.
pub fn run<D: Decider + Sync>(
    log: &IdleLog,
    name: &str,
    seats: &[Seat<'_, D>],
    bounds: &[JointBound<'_>],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Vec<Tally>, Vec<Vec<f64>>), JoinError> {
    let mut tallies = vec![Tally::default(); seats.len()];
    let is_joined = |index: &usize| seats[*index].groups.is_some();
    let (joined, alone): (Vec<usize>, Vec<usize>) = (0..seats.len()).partition(is_joined);
    if !alone.is_empty() {
        type Make<'m> = Box<dyn Fn() -> Box<dyn Lane> + Sync + 'm>;
        let make = |index: &usize| -> Make<'_> {
            let Seat { player, costs, setting, price, .. } = &seats[*index];
            Box::new(move || player.lane(name, costs, *setting, *price))
        };
        let makes: Vec<Make<'_>> = alone.iter().map(make).collect();
        let makes: Vec<&MakeLane<'_>> = makes.iter().map(|make| &**make).collect();
        for (index, tally) in alone.iter().zip(replay_log(log, &makes, progress)?) {
            tallies[*index] = tally;
        }
    }
    if joined.is_empty() {
        return Ok((tallies, Vec::new()));
    }
    type Make<'m> = Box<dyn Fn(&UnitOf<'_>) -> Box<dyn Joint> + Sync + 'm>;
    let make = |index: &usize| -> Make<'_> {
        let Seat { player, costs, setting, price, .. } = &seats[*index];
        Box::new(move |unit| {
            let observers = unit.cpus().iter().map(|_| ()).collect();
            player.joint(unit, costs, *setting, *price, observers, None)
        })
    };
    let makes: Vec<Make<'_>> = joined.iter().map(make).collect();
    let groups = joined.iter().filter_map(|index| seats[*index].groups);
    let makes: Vec<(&ReplayedGroups, &MakeJoint<'_>)> =
        groups.zip(makes.iter().map(|make| &**make)).collect();
    let silent = |_| ();
    let progress: &(dyn Fn(u64) + Sync) = if alone.is_empty() { progress } else { &silent };
    let replays = JointReplays { makes: &makes, bounds };
    let results = replay_joined(log, ColumnSet::WithoutRecorded, replays, progress)?;
    for (index, tally) in joined.iter().zip(results.tallies) {
        tallies[*index] = tally;
    }
    Ok((tallies, results.bounds_uj))
}

/// Replays gaps, sorted by CPU, for one seat, each CPU alone.
pub fn run_gaps<D: Decider>(gaps: &[IdleGap], seat: &Seat<'_, D>) -> Tally {
    let mut sum = Tally::default();
    for of_cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
        let mut lane = seat.player.lane("", seat.costs, seat.setting, seat.price);
        lane.replay(of_cpu);
        sum.merge(lane.tally());
    }
    sum
}
