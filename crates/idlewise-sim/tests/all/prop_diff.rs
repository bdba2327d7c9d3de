//! Properties of every comparison of two governors: the differences of the gaps add up to the
//! difference of two replays, however the gaps are grouped, and the most expensive gaps are found.

use crate::any;

use idlewise_core::{
    Context, Decision, Device, Fixed, Governor, IdleState, Outcome, StateTable, TimerOnly,
};
use idlewise_sim::diff::{
    COSTLY_COUNT, ComparedGovernor, Diff, Dimension, GroupTally, Pair, governor_side, oracle_side,
};
use idlewise_sim::replay::{GovernorLane, Lane, Setting, Tally};
use idlewise_sim::{CostModel, Exits, OracleLane};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

use any::{TICK_NS, any_gap, any_table};

/// Decides by a fixed sequence of answers, which need not make sense.
#[derive(Clone, Debug)]
struct Scripted {
    answers: Vec<(usize, bool)>,
    next: usize,
}

impl Governor for Scripted {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        let (state, stop_tick) = self.answers[self.next % self.answers.len()];
        self.next += 1;
        Decision { state: state.min(context.states.deepest()), stop_tick }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}
}

fn any_answers() -> impl Strategy<Value = Scripted> {
    prop::collection::vec((0..5_usize, any::<bool>()), 1..20)
        .prop_map(|answers| Scripted { answers, next: 0 })
}

fn model(states: StateTable) -> CostModel {
    let powers_mw: Vec<f64> = (0..states.len()).map(|i| 4_000.0 / (1.0 + 3.0 * i as f64)).collect();
    CostModel::new(states, &powers_mw, 4_000.0)
}

fn compared(
    a: Box<dyn ComparedGovernor>,
    b: Box<dyn ComparedGovernor>,
    setting: &Setting,
    lambda_mw: f64,
    gaps: &[IdleGap],
) -> Diff {
    let mut pair = Pair::new(a, b, setting, lambda_mw, 0);
    pair.replay(gaps);
    pair.into_diff()
}

/// Replays gap by gap, and computes each gap's cost from the change of the tally.
fn naive_costs_uj(
    lane: &mut dyn Lane,
    costs: &CostModel,
    lambda_mw: f64,
    gaps: &[IdleGap],
) -> Vec<f64> {
    let mut before_uj = 0.0;
    gaps.iter()
        .map(|gap| {
            lane.replay(std::slice::from_ref(gap));
            let after_uj = costs.cost_uj(lane.tally(), lambda_mw);
            let cost_uj = after_uj - before_uj;
            before_uj = after_uj;
            cost_uj
        })
        .collect()
}

fn assert_close(found: f64, expected: f64, size: f64) {
    assert!((found - expected).abs() <= 1e-9 * size + 1e-6, "{found} is not {expected}");
}

/// Asserts that gaps and tallies give the same change of delay and energy.
fn assert_adds_up(diff: &Diff, costs: &CostModel, states: &StateTable, lambda_mw: f64) {
    let (a_uj, b_uj) = (costs.energy_uj(&diff.a), costs.energy_uj(&diff.b));
    let delay_ns = |tally: &Tally| tally.delays(&Exits::declared(states)).sum_ns() as i64;
    let size = a_uj.abs() + b_uj.abs();
    assert_close(diff.all.energy_change_uj(), b_uj - a_uj, size);
    assert_eq!(diff.all.delay_change_ns(), delay_ns(&diff.b) - delay_ns(&diff.a));
    let cost_uj = |tally| costs.cost_uj(tally, lambda_mw);
    let (a_uj, b_uj) = (cost_uj(&diff.a), cost_uj(&diff.b));
    let size = a_uj.abs() + b_uj.abs();
    assert_close(diff.all.lost_uj - diff.all.saved_uj, b_uj - a_uj, size);
    for dimension in Dimension::ALL {
        let groups = diff.groups(dimension);
        let count = |of: fn(&GroupTally) -> u64| groups.iter().map(of).sum::<u64>();
        assert_eq!(count(|g| g.gap_count), diff.all.gap_count);
        assert_eq!(count(|g| g.differing_count), diff.all.differing_count);
        assert_eq!(count(|g| g.first_state_count), diff.all.first_state_count);
        assert_eq!(count(|g| g.a.delay_ns), diff.all.a.delay_ns);
        assert_eq!(count(|g| g.b.delay_ns), diff.all.b.delay_ns);
        assert_eq!(count(|g| g.saved_count), diff.all.saved_count);
        assert_eq!(count(|g| g.lost_count), diff.all.lost_count);
        let change_uj: f64 = groups.iter().map(GroupTally::energy_change_uj).sum();
        assert_close(change_uj, diff.all.energy_change_uj(), size);
        let saved_uj: f64 = groups.iter().map(|g| g.saved_uj).sum();
        assert_close(saved_uj, diff.all.saved_uj, size);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn differences_of_gaps_add_up_to_those_of_replays(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..80),
        first in any_answers(),
        second in any_answers(),
        lambda_mw in 0.0..8_000.0_f64,
    ) {
        let setting = Setting::new(states, TICK_NS);
        let costs = model(states);
        let governor = |g: &Scripted| governor_side(Box::new(g.clone()), setting, &costs);
        let diff = compared(governor(&first), governor(&second), &setting, lambda_mw, &gaps);
        assert_adds_up(&diff, &costs, &states, lambda_mw);

        // The tallies are those of plain replays, the most expensive gaps those of a naive search.
        let mut lanes = [first.clone(), second.clone()].map(|g| GovernorLane::new(g, setting));
        let [a_uj, b_uj] = [0, 1].map(|i| naive_costs_uj(&mut lanes[i], &costs, lambda_mw, &gaps));
        prop_assert_eq!(lanes[0].tally(), &diff.a);
        prop_assert_eq!(lanes[1].tally(), &diff.b);
        let size_uj = a_uj.iter().chain(&b_uj).sum::<f64>();
        let mut changes_uj: Vec<f64> = b_uj.iter().zip(&a_uj).map(|(b, a)| b - a).collect();
        changes_uj.sort_by(f64::total_cmp);
        for (kept, naive_uj) in diff.gains.iter().zip(&changes_uj) {
            assert_close(kept.change_uj, *naive_uj, size_uj);
        }
        for (kept, naive_uj) in diff.losses.iter().zip(changes_uj.iter().rev()) {
            assert_close(kept.change_uj, *naive_uj, size_uj);
        }
        prop_assert_eq!(diff.losses.len() as u64, diff.all.lost_count.min(COSTLY_COUNT as u64));
        prop_assert_eq!(diff.gains.len() as u64, diff.all.saved_count.min(COSTLY_COUNT as u64));

        // With A and B exchanged, gains are losses.
        let other = compared(governor(&second), governor(&first), &setting, lambda_mw, &gaps);
        prop_assert_eq!(other.all.saved_count, diff.all.lost_count);
        prop_assert_eq!(other.all.saved_uj, diff.all.lost_uj);
        prop_assert_eq!(other.all.differing_count, diff.all.differing_count);
    }

    #[test]
    fn the_oracle_and_bounds_add_up_too(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..80),
        lambda_mw in 0.0..4_000.0_f64,
    ) {
        let setting = Setting::new(states, TICK_NS);
        let costs = model(states);
        let timer_only = governor_side(Box::new(TimerOnly::new(u64::from(TICK_NS))), setting, &costs);
        let oracle = oracle_side(&costs, setting, lambda_mw);
        let diff = compared(timer_only, oracle, &setting, lambda_mw, &gaps);
        assert_adds_up(&diff, &costs, &states, lambda_mw);
        let mut lane = OracleLane::new(costs.clone(), setting, lambda_mw);
        lane.replay(&gaps);
        prop_assert_eq!(lane.tally(), &diff.b);
    }

    #[test]
    fn a_governor_does_not_differ_from_itself(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..80),
        answers in any_answers(),
    ) {
        let setting = Setting::new(states, TICK_NS);
        let costs = model(states);
        let governor = || governor_side(Box::new(answers.clone()), setting, &costs);
        let diff = compared(governor(), governor(), &setting, 1_000.0, &gaps);
        prop_assert_eq!(diff.all, GroupTally { gap_count: gaps.len() as u64, ..GroupTally::default() });
        prop_assert!(diff.losses.is_empty() && diff.gains.is_empty());
    }

    #[test]
    fn parts_merge_to_the_whole(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 2..80),
        split_ratio in 0.0..1.0_f64,
    ) {
        let setting = Setting::new(states, TICK_NS);
        let costs = model(states);
        let governor = |fixed| governor_side(Box::new(fixed), setting, &costs);
        let diff = |gaps: &[IdleGap]| {
            compared(governor(Fixed::Deepest), governor(Fixed::Shallowest), &setting, 500.0, gaps)
        };
        // No tick state is carried over from one part to the next.
        let gaps: Vec<IdleGap> = gaps.iter().map(|gap| IdleGap { ran_task: true, ..*gap }).collect();
        let (head, tail) = gaps.split_at((gaps.len() as f64 * split_ratio) as usize);
        let mut merged = diff(head);
        merged.merge(&diff(tail));
        let whole = diff(&gaps);
        prop_assert_eq!(merged.all.differing_count, whole.all.differing_count);
        let gap_of = |kept: &idlewise_sim::diff::CostlyGap| (kept.gap, kept.change_uj);
        let all = |diff: &Diff| diff.gains.iter().chain(&diff.losses).map(gap_of).collect::<Vec<_>>();
        prop_assert_eq!(all(&merged), all(&whole));
    }
}

/// Computed by hand: ten gaps of 1 ms, and what each of two fixed states costs in them.
#[test]
fn charges_each_gap_what_it_cost() {
    let states =
        StateTable::new(&[IdleState::new(1_000, 1_000), IdleState::new(290_000, 800_000)]).unwrap();
    let setting = Setting::new(states, TICK_NS);
    let costs = CostModel::new(states, &[1_000.0, 100.0], 4_000.0);
    let gap = |i: i64| IdleGap {
        cpu: 3,
        start_ns: i * 4_000_000,
        gap_ns: 1_000_000 + i as u64,
        sleep_length_ns: Some(20_000_000),
        next_tick_ns: Some(4_000_000),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let gaps: Vec<IdleGap> = (0..12).map(gap).collect();
    let side = |fixed| governor_side(Box::new(fixed), setting, &costs);
    let diff = compared(side(Fixed::Shallowest), side(Fixed::Deepest), &setting, 0.0, &gaps);
    // C6: 100 mW · 1 ms + (1000 − 100) mW · 800 µs = 820 µJ, against 1000 µJ in C1.
    assert_eq!((diff.all.gap_count, diff.all.first_state_count), (12, 12));
    // And 900 nW more for each of the 5.5 ns that they are longer on average.
    assert_close(diff.all.energy_change_uj() / 12.0, -180.0 - 900.0 * 5.5e-6, 1e3);
    assert_eq!(diff.all.delay_change_ns(), 12 * 289_000);
    assert_eq!((diff.all.saved_count, diff.all.lost_count), (12, 0));
    // The longest gap saves the most, and is kept with the eight gaps before it.
    let best = &diff.gains[0];
    assert_eq!(best.gap, gaps[11]);
    assert_eq!(best.before_ns, (3..11).map(|i| 1_000_000 + i).collect::<Vec<u64>>());
    assert_eq!((best.a.first.state, best.b.first.state), (0, 1));
    assert_eq!(diff.groups(Dimension::States)[1].gap_count, 12);
    assert_eq!(diff.groups(Dimension::GapLength)[7].gap_count, 12);
    // At 1 W for a second of delay, the 289 µs cost more than the 180 µJ.
    let diff = compared(side(Fixed::Shallowest), side(Fixed::Deepest), &setting, 1_000.0, &gaps);
    assert_eq!((diff.all.saved_count, diff.all.lost_count), (0, 12));
    assert_eq!(diff.losses[0].gap, gaps[0]);
}
