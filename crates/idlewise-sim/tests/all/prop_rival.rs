//! The competitive ratios of the rules that move down, on any states and gaps.

use crate::any;

use std::collections::BTreeMap;

use idlewise_core::{DisabledMask, StateTable};
use idlewise_sim::replay::{Lane, Setting, Tally};
use idlewise_sim::{CostModel, OracleLane, RIVALS, Rival, RivalLane};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

use any::{TICK_NS, any_gap, any_table};

/// What rounding break-evens to a nanosecond may cost in a gap.
const ROUNDING_UJ: f64 = 1e-4;

fn costs(states: &StateTable) -> CostModel {
    let powers_mw: Vec<f64> = (0..states.len()).map(|i| 4_000.0 / (1.0 + 3.0 * i as f64)).collect();
    CostModel::new(*states, &powers_mw, 4_000.0)
}

fn tally(mut lane: impl Lane, gaps: &[IdleGap]) -> Tally {
    // In two parts, with a look in between.
    let (a, b) = gaps.split_at(gaps.len() / 2);
    lane.replay(a);
    assert_eq!(lane.tally().gap_count, a.len() as u64);
    lane.replay(b);
    lane.tally().clone()
}

fn named(name: &str) -> Rival {
    Rival::parse(name).unwrap()
}

/// What each kind of lane costs for the gaps: the oracle, and each rival by its name.
fn all_uj(
    costs: &CostModel,
    setting: Setting,
    lambda_mw: f64,
    gaps: &[IdleGap],
) -> (f64, BTreeMap<&'static str, f64>) {
    let oracle = tally(OracleLane::new(costs.clone(), setting, lambda_mw), gaps);
    let of_rival = |&rival: &Rival| {
        let name = rival.name;
        let tally = tally(RivalLane::new(rival, costs.clone(), setting, lambda_mw), gaps);
        assert_eq!(tally.stay_ns(), tally.gap_ns, "{name}: time is conserved");
        assert_eq!((tally.gap_ns, tally.gap_count), (oracle.gap_ns, oracle.gap_count), "{name}");
        assert_eq!(tally.timerless_gap_count, oracle.timerless_gap_count, "{name}");
        let wakes: u64 = tally.states.iter().map(|state| state.wake_count).sum();
        assert_eq!((wakes, tally.decision_count()), (tally.gap_count, tally.gap_count), "{name}");
        (name, costs.cost_uj(&tally, lambda_mw))
    };
    (costs.cost_uj(&oracle, lambda_mw), RIVALS.iter().map(of_rival).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_lower_envelope_is_2_competitive_and_nothing_beats_the_oracle(
        states in any_table(),
        disabled_bits in 0..512_u16,
        limit_ns in 0..3_000_000_i64,
        gaps in prop::collection::vec(any_gap(), 1..60),
        lambda_ratio in 0.0..=4.0_f64,
    ) {
        let disabled = DisabledMask::from_bits(disabled_bits);
        let setting = Setting { disabled, latency_limit_ns: limit_ns, ..Setting::new(states, TICK_NS) };
        let costs = costs(&states);
        let lambda_mw = lambda_ratio * costs.full_price_mw();
        let (least_uj, rivals_uj) = all_uj(&costs, setting, lambda_mw, &gaps);
        let slack_uj = ROUNDING_UJ * gaps.len() as f64 + 1e-9 * least_uj;
        let envelope_uj = rivals_uj["lower-envelope"];
        prop_assert!(envelope_uj <= 2.0 * least_uj + slack_uj, "{envelope_uj} > 2 × {least_uj}");
        for (name, uj) in rivals_uj {
            prop_assert!(uj >= least_uj - slack_uj, "{name}: {uj} < {least_uj}");
        }
    }

    #[test]
    fn knowing_the_lengths_is_no_worse_than_any_time_for_all_gaps(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..60),
        lambda_ratio in 0.0..=1.0_f64,
    ) {
        let setting = Setting::new(states, TICK_NS);
        let costs = costs(&states);
        let lambda_mw = lambda_ratio * costs.full_price_mw();
        // Without limits of their own, all gaps are of one kind.
        let gaps: Vec<IdleGap> =
            gaps.into_iter().map(|gap| IdleGap { latency_limit_ns: None, ..gap }).collect();
        let (_, rivals_uj) = all_uj(&costs, setting, lambda_mw, &gaps);
        // One time for all gaps is a plan; so it is not much worse than the lower envelope's, nor than any state
        // from the start.
        let fixed = (0..states.len()).map(|i| {
            gaps.iter().map(|gap| costs.gap_uj(i, gap.gap_ns, lambda_mw)).sum::<f64>()
        });
        let best_uj = fixed.fold(rivals_uj["lower-envelope"], f64::min);
        // A plan can move only where a class of lengths ends, up to 1/64 of the time later.
        let slack_uj = ROUNDING_UJ * gaps.len() as f64;
        let known_uj = rivals_uj["ski-known"];
        prop_assert!(known_uj <= best_uj * (1.0 + 1.0 / 64.0) + slack_uj, "{known_uj} > {best_uj}");
    }
}

/// The ratio to the oracle's cost for gaps of one length. Only their starts, and so their draws, differ.
fn ratio(rival: Rival, states: StateTable, gap_ns: u64, lambda_ratio: f64, count: i64) -> f64 {
    let setting = Setting::new(states, TICK_NS);
    let costs = costs(&states);
    let lambda_mw = lambda_ratio * costs.full_price_mw();
    let gap = |i: i64| IdleGap {
        cpu: 3,
        start_ns: i * 10_000_019,
        gap_ns,
        sleep_length_ns: None,
        next_tick_ns: None,
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Ipi,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let gaps: Vec<IdleGap> = (0..count).map(gap).collect();
    let mut lane = RivalLane::new(rival, costs.clone(), setting, lambda_mw);
    lane.replay(&gaps);
    let mut oracle = OracleLane::new(costs.clone(), setting, lambda_mw);
    oracle.replay(&gaps);
    costs.cost_uj(lane.tally(), lambda_mw) / costs.cost_uj(oracle.tally(), lambda_mw)
}

#[test]
fn the_random_rule_is_e_over_e_minus_1_competitive_and_that_is_reached() {
    let bound = std::f64::consts::E / (std::f64::consts::E - 1.0);
    let states = idlewise_machine::bundled("spr").unwrap().table().unwrap();
    let mut worst = 0.0_f64;
    for lambda_ratio in [0.0, 0.25, 1.0] {
        for exponent in 0..40 {
            let gap_ns = (500.0 * 1.3_f64.powi(exponent)) as u64;
            // The draws are fixed, so is the ratio; its standard error is below half a percent.
            worst = worst.max(ratio(named("ski-random"), states, gap_ns, lambda_ratio, 20_000));
        }
    }
    assert!(worst <= bound * 1.01, "{worst} > {bound}");
    assert!(worst > 1.4, "{worst}: no gap is near the bound, so nothing was tested");
    // The deterministic rule reaches more at its worst.
    let at_break_even = ratio(named("lower-envelope"), states, 2_000, 0.0, 10);
    assert!(at_break_even > 1.4 && at_break_even <= 2.0, "{at_break_even}");
}

#[test]
fn what_learns_is_near_the_oracle_where_gaps_are_alike() {
    let states = idlewise_machine::bundled("spr").unwrap().table().unwrap();
    for gap_ns in [3_000, 100_000, 5_000_000] {
        let (dpm, known) = (
            ratio(named("dpm"), states, gap_ns, 0.25, 5_000),
            ratio(named("ski-known"), states, gap_ns, 0.25, 5_000),
        );
        assert!((known - 1.0).abs() < 1e-9, "{gap_ns}: {known}");
        assert!(dpm < 1.6, "{gap_ns}: {dpm}");
    }
}
