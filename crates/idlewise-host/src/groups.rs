//! CPUs that behaved alike, so that a machine with hundreds of them fits on a screen.
//!
//! Two CPUs are alike if they have the same idle states, if their shares of time in each state differ by
//! at most [`SHARE_TOLERANCE`], and if one woke up at most [`RATE_FACTOR`] times as often as the other.
//! This holds for **any** two CPUs of a group, so a group's average describes each of its CPUs
//! (complete-linkage clustering, cut at a fixed distance). Nothing else decides, and nothing is random:
//! the same counts always give the same groups.
//!
//! If that makes more groups than there is room for, both tolerances are doubled until it does not, and
//! [`Grouping::scale`] says how often.

use crate::{CpuDifference, Difference};

/// By how much the share of time in a state may differ within a group: ten points.
pub const SHARE_TOLERANCE: f64 = 0.10;
/// By how many times the wake-ups may differ within a group.
pub const RATE_FACTOR: f64 = 2.0;
/// Rates below this many wake-ups a second are alike: a CPU that only has the kernel's own timers.
const RATE_FLOOR: f64 = 20.0;
/// So many wake-ups in the interval are no different from none, whatever their rate.
const COUNT_FLOOR: f64 = 25.0;
/// After so many doublings, all CPUs with the same states are alike.
const SCALE_MAX: f64 = 64.0;

/// CPUs that behaved alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlikeCpus {
    /// The places of its CPUs in [`Difference::cpus`], in order.
    pub members: Vec<usize>,
    /// Its CPUs, in order.
    pub cpus: Vec<u16>,
}

/// All usable CPUs in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// The groups, in the order of their first CPUs.
    pub groups: Vec<AlikeCpus>,
    /// How many times the tolerances had to be multiplied to get few enough groups: 1, 2, 4, ...
    pub scale: f64,
}

/// Groups the CPUs that can be used. `kinds` has a number for each CPU of `difference`: only CPUs with the
/// same number can be in one group. There are at most `group_count_max` groups, or one for each kind.
pub fn groups(difference: &Difference, kinds: &[usize], group_count_max: usize) -> Grouping {
    let mut scale = 1.0;
    loop {
        let groups = groups_at(difference, kinds, scale);
        if groups.len() <= group_count_max || scale >= SCALE_MAX {
            return Grouping { groups, scale };
        }
        scale *= 2.0;
    }
}

fn groups_at(difference: &Difference, kinds: &[usize], scale: f64) -> Vec<AlikeCpus> {
    let usable: Vec<usize> = difference
        .cpus
        .iter()
        .enumerate()
        .filter(|(index, cpu)| cpu.unusable.is_none() && *index < kinds.len())
        .map(|(index, _)| index)
        .collect();
    let behaviours: Vec<Behaviour> =
        usable.iter().map(|&index| Behaviour::of(&difference.cpus[index], kinds[index])).collect();
    let clusters = clusters(behaviours.len(), scale, |a, b| behaviours[a].distance(&behaviours[b]));
    let mut groups: Vec<AlikeCpus> = clusters
        .into_iter()
        .map(|cluster| {
            let members: Vec<usize> = cluster.into_iter().map(|at| usable[at]).collect();
            let mut cpus: Vec<u16> = members.iter().map(|&at| difference.cpus[at].cpu).collect();
            cpus.sort_unstable();
            AlikeCpus { members, cpus }
        })
        .collect();
    groups.sort_by_key(|group| group.cpus.first().copied());
    groups
}

struct Behaviour {
    kind: usize,
    /// The share of time in each state.
    shares: Vec<f64>,
    /// The logarithm to base [`RATE_FACTOR`] of wake-ups a second, with a floor.
    rate_log: f64,
}

impl Behaviour {
    fn of(cpu: &CpuDifference, kind: usize) -> Self {
        let seconds = cpu.elapsed.as_secs_f64().max(1e-6);
        let share = |time_us: u64| (time_us as f64 / 1e6 / seconds).min(1.0);
        let floor = RATE_FLOOR.max(COUNT_FLOOR / seconds);
        let rate = cpu.usage() as f64 / seconds;
        Behaviour {
            kind,
            shares: cpu.states.iter().map(|state| share(state.time_us)).collect(),
            rate_log: (rate + floor).log(RATE_FACTOR),
        }
    }

    /// At most 1 if they are alike.
    fn distance(&self, other: &Behaviour) -> f64 {
        if self.kind != other.kind || self.shares.len() != other.shares.len() {
            return f64::INFINITY;
        }
        let shares = self.shares.iter().zip(&other.shares);
        let share = shares.map(|(a, b)| (a - b).abs() / SHARE_TOLERANCE).fold(0.0, f64::max);
        share.max((self.rate_log - other.rate_log).abs())
    }
}

/// Complete-linkage clusters of `count` items, merged up to a distance of `tolerance`. Uses the
/// nearest-neighbour chain, which takes time and memory proportional to the square of `count`.
fn clusters(
    count: usize,
    tolerance: f64,
    distance: impl Fn(usize, usize) -> f64,
) -> Vec<Vec<usize>> {
    let mut distances: Vec<f64> =
        (0..count * count).map(|at| distance(at / count, at % count)).collect();
    let mut members: Vec<Vec<usize>> = (0..count).map(|item| vec![item]).collect();
    // A cluster that is not open has been merged into another, or is as large as it gets.
    let mut is_open = vec![true; count];
    let mut chain: Vec<usize> = Vec::new();
    while let Some(start) = chain.last().copied().or_else(|| is_open.iter().position(|open| *open))
    {
        if chain.is_empty() {
            chain.push(start);
        }
        // The cluster before it in the chain comes first, so that equal distances end the chain.
        let before = chain.len().checked_sub(2).map(|at| chain[at]);
        let others = (0..count).filter(|&other| is_open[other] && other != start);
        let nearest = before.into_iter().chain(others).fold(None, |best: Option<usize>, other| {
            let nearer =
                |best: usize| distances[start * count + other] < distances[start * count + best];
            if best.is_none_or(nearer) { Some(other) } else { best }
        });
        let Some(nearest) = nearest.filter(|&at| distances[start * count + at] <= tolerance) else {
            // Distances only grow by merging, so nothing will ever join it.
            is_open[start] = false;
            chain.pop();
            continue;
        };
        if Some(nearest) != before {
            chain.push(nearest);
            continue;
        }
        chain.truncate(chain.len() - 2);
        let (kept, merged) = (start.min(nearest), start.max(nearest));
        is_open[merged] = false;
        let joined = std::mem::take(&mut members[merged]);
        members[kept].extend(joined);
        members[kept].sort_unstable();
        for other in 0..count {
            let far = distances[kept * count + other].max(distances[merged * count + other]);
            (distances[kept * count + other], distances[other * count + kept]) = (far, far);
        }
    }
    members.retain(|cluster| !cluster.is_empty());
    members
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::StateDifference;

    /// A CPU that spent these shares of ten seconds in its states, with so many wake-ups in the last one.
    fn cpu(cpu: u16, shares: &[f64], usage: u64) -> CpuDifference {
        let state = |share: &f64| StateDifference {
            time_us: (share * 1e7) as u64,
            ..StateDifference::default()
        };
        let mut states: Vec<_> = shares.iter().map(state).collect();
        states.last_mut().unwrap().usage = usage;
        CpuDifference { cpu, elapsed: Duration::from_secs(10), states, ..CpuDifference::default() }
    }

    fn lists(cpus: Vec<CpuDifference>, kinds: &[usize], most: usize) -> (Vec<Vec<u16>>, f64) {
        let found = groups(&Difference { cpus, ..Difference::default() }, kinds, most);
        (found.groups.into_iter().map(|group| group.cpus).collect(), found.scale)
    }

    #[test]
    fn busy_and_idle_cpus_are_apart() {
        let cpus = vec![
            cpu(0, &[0.0, 0.95], 300),
            cpu(1, &[0.0, 0.99], 250),
            cpu(2, &[0.3, 0.30], 20_000),
            cpu(3, &[0.35, 0.27], 24_000),
            cpu(4, &[0.0, 0.98], 400),
        ];
        assert_eq!(lists(cpus, &[0; 5], 8), (vec![vec![0, 1, 4], vec![2, 3]], 1.0));
    }

    #[test]
    fn other_states_are_another_group() {
        let cpus = vec![cpu(0, &[0.5], 100), cpu(1, &[0.5], 100)];
        assert_eq!(lists(cpus, &[0, 1], 1).0, [[0], [1]]);
    }

    #[test]
    fn any_two_cpus_of_a_group_are_alike() {
        // A slope: neighbours are alike, the ends are not. Single linkage would make it one group.
        let cpus: Vec<_> = (0..20).map(|n| cpu(n, &[f64::from(n) * 0.05], 1_000)).collect();
        let difference = Difference { cpus, ..Difference::default() };
        let found = groups(&difference, &[0; 20], 20);
        assert!(found.groups.len() > 3);
        for group in &found.groups {
            let share = |at: usize| difference.cpus[at].states[0].time_us as f64 / 1e7;
            let (first, last) = (group.members[0], *group.members.last().unwrap());
            assert!((share(last) - share(first)).abs() <= SHARE_TOLERANCE + 1e-9, "{group:?}");
        }
        // With room for three, the tolerance doubles until they fit.
        let few = groups(&difference, &[0; 20], 3);
        assert!(few.groups.len() <= 3 && few.scale > 1.0, "{few:?}");
    }

    #[test]
    fn cpus_that_cannot_be_used_are_in_no_group() {
        let mut gone = cpu(1, &[0.5], 100);
        (gone.unusable, gone.states) = (Some(crate::Unusable::WentOffline), Vec::new());
        assert_eq!(lists(vec![cpu(0, &[0.5], 100), gone], &[0, 0], 8).0, [[0]]);
        assert!(lists(Vec::new(), &[], 8).0.is_empty());
    }

    /// The naive way: merges the nearest two clusters until none are near enough.
    fn naive(count: usize, tolerance: f64, d: &dyn Fn(usize, usize) -> f64) -> Vec<Vec<usize>> {
        let mut clusters: Vec<Vec<usize>> = (0..count).map(|item| vec![item]).collect();
        loop {
            let far = |a: &[usize], b: &[usize]| {
                let pairs = a.iter().flat_map(|&x| b.iter().map(move |&y| d(x, y)));
                pairs.fold(0.0, f64::max)
            };
            let mut best: Option<(f64, usize, usize)> = None;
            for a in 0..clusters.len() {
                for b in a + 1..clusters.len() {
                    let distance = far(&clusters[a], &clusters[b]);
                    if best.is_none_or(|(least, ..)| distance < least) {
                        best = Some((distance, a, b));
                    }
                }
            }
            match best {
                Some((distance, a, b)) if distance <= tolerance => {
                    let joined = clusters.remove(b);
                    clusters[a].extend(joined);
                    clusters[a].sort_unstable();
                }
                _ => break,
            }
        }
        clusters.sort();
        clusters
    }

    #[test]
    fn the_chain_finds_what_the_naive_way_finds() {
        let mut state = 12_345_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        for count in [1, 2, 3, 7, 20, 40] {
            let points: Vec<(f64, f64)> = (0..count).map(|_| (random(), random())).collect();
            let distance = |a: usize, b: usize| {
                (points[a].0 - points[b].0).abs().max((points[a].1 - points[b].1).abs())
            };
            for tolerance in [0.05, 0.2, 0.6, 2.0] {
                let mut found = clusters(count, tolerance, distance);
                found.sort();
                assert_eq!(found, naive(count, tolerance, &distance), "{count} at {tolerance}");
            }
        }
    }
}
