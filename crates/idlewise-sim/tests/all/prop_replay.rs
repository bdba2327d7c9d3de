//! Properties of every replay: time is conserved, verdicts are the kernel's, nothing beats the
//! oracle, and fast implementations agree with naive ones.

use crate::any;

use idlewise_core::{
    Context, Decision, Device, DisabledMask, Fixed, Governor, IdleState, Outcome, SleepLength,
    StateTable, Stay, TimerOnly, Verdict,
};
use idlewise_sim::replay::{GovernorLane, Lane, Question, Setting, Steps, Tally};
use idlewise_sim::{CostModel, ExitTimes, Exits, MachineState, Oracle, OracleLane};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

use any::{TICK_NS, any_gap, any_table};

/// Decides by a fixed sequence of answers, which need not make sense, and judges each stay by the
/// rule in `idlewise-core`.
struct Scripted {
    answers: Vec<(usize, bool)>,
    next: usize,
    states: StateTable,
    disabled: DisabledMask,
    verdicts: std::sync::Arc<std::sync::Mutex<[u64; 2]>>,
}

impl Governor for Scripted {
    fn select(&mut self, _context: &Context<'_>, _device: &mut Device) -> Decision {
        let (state, stop_tick) = self.answers[self.next % self.answers.len()];
        self.next += 1;
        Decision { state: state.min(self.states.deepest()), stop_tick }
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let stay = Stay { state: outcome.entered, idle_duration_ns: device.last_residency_ns };
        let mut verdicts = self.verdicts.lock().unwrap();
        match stay.verdict(&self.states, self.disabled) {
            Verdict::TooDeep => verdicts[0] += 1,
            Verdict::TooShallow => verdicts[1] += 1,
            Verdict::Fit => {}
        }
    }
}

fn powers_mw(states: &StateTable) -> Vec<f64> {
    (0..states.len()).map(|i| 4_000.0 / (1.0 + 3.0 * i as f64)).collect()
}

/// What part of the declared exit latencies leaving the states takes, in percent. Often all of it.
fn any_percents() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(100), 0..150_u64], 10)
}

fn exits_at(states: &StateTable, percents: &[u64]) -> Exits {
    let states = states.as_slice().iter().zip(percents);
    let times = states.map(|(state, percent)| {
        let ns = state.exit_latency_ns * percent / 100;
        if percent % 2 == 0 {
            return ExitTimes::constant(ns);
        }
        // Some are very slow.
        let mut state = MachineState::new("any", ns, 0);
        let us = ns as f64 / 1e3;
        state.exit_percentiles_us = vec![[0.0, 0.0], [99.5, us], [100.0, 1_000.0 * us]];
        state.exit_times()
    });
    times.collect()
}

/// The time in states and at work equals the gaps plus overruns, which are work past a gap's end.
fn assert_time_is_conserved(tally: &Tally) {
    assert_eq!(tally.stay_ns() + tally.work_ns, tally.gap_ns + tally.overruns.sum_ns());
    let wake_count: u64 = tally.states.iter().map(|state| state.wake_count).sum();
    assert_eq!(wake_count + tally.overruns.count(), tally.gap_count);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn conserves_time_and_judges_as_the_kernel(
        states in any_table(),
        disabled_bits in 0..512_u16,
        gaps in prop::collection::vec(any_gap(), 1..60),
        answers in prop::collection::vec((0..10_usize, any::<bool>()), 1..20),
        percents in any_percents(),
    ) {
        let disabled = DisabledMask::from_bits(disabled_bits);
        let exits_ns = exits_at(&states, &percents).means_ns();
        let setting = Setting { disabled, exits_ns, ..Setting::new(states, TICK_NS) };
        let verdicts = std::sync::Arc::default();
        let scripted =
            Scripted { answers, next: 0, states, disabled, verdicts: std::sync::Arc::clone(&verdicts) };
        let mut lane = GovernorLane::new(scripted, setting);
        lane.replay(&gaps);
        assert_time_is_conserved(lane.tally());
        if states.len() > 1 {
            let expected = *verdicts.lock().unwrap();
            prop_assert_eq!([lane.tally().too_deep_count(), lane.tally().too_shallow_count()], expected);
        }
    }

    #[test]
    fn nothing_is_cheaper_than_the_oracle_up_to_the_price_of_running(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..60),
        lambda_ratio in 0.0..=1.0_f64,
        answers in prop::collection::vec((0..10_usize, any::<bool>()), 1..20),
        percents in any_percents(),
    ) {
        let exits = exits_at(&states, &percents);
        let setting = Setting { exits_ns: exits.means_ns(), ..Setting::new(states, TICK_NS) };
        let costs = CostModel::new(states, &powers_mw(&states), 4_000.0).with_exits(&exits);
        let lambda_mw = lambda_ratio * costs.full_price_mw();
        let mut oracle = OracleLane::new(costs.clone(), setting, lambda_mw);
        oracle.replay(&gaps);
        let least_uj = costs.cost_uj(oracle.tally(), lambda_mw);
        let scripted = Scripted {
            answers, next: 0, states, disabled: DisabledMask::NONE, verdicts: std::sync::Arc::default(),
        };
        let mut lanes: Vec<Box<dyn Lane>> = vec![
            Box::new(GovernorLane::new(scripted, setting)),
            Box::new(GovernorLane::new(Fixed::Deepest, setting)),
            Box::new(GovernorLane::new(Fixed::Shallowest, setting)),
            Box::new(GovernorLane::new(TimerOnly::new(TICK_NS.into()), setting)),
        ];
        for lane in &mut lanes {
            lane.replay(&gaps);
            assert_time_is_conserved(lane.tally());
            let cost_uj = costs.cost_uj(lane.tally(), lambda_mw);
            prop_assert!(cost_uj >= least_uj * (1.0 - 1e-9) - 1e-6, "{cost_uj} < {least_uj}");
        }
    }

    #[test]
    fn the_envelope_is_the_brute_force_minimum(
        states in any_table(),
        disabled_bits in 0..512_u16,
        limit_ns in 0..3_000_000_i64,
        lambda_mw in 0.0..20_000.0_f64,
        gaps_ns in prop::collection::vec(0..80_000_000_u64, 1..200),
    ) {
        let disabled = DisabledMask::from_bits(disabled_bits);
        let setting = Setting { disabled, ..Setting::new(states, TICK_NS) };
        let costs = CostModel::new(states, &powers_mw(&states), 4_000.0);
        let oracle = Oracle::new(&costs, &setting, limit_ns, lambda_mw);
        let is_allowed = |i: &usize| {
            !disabled.contains(*i) && states.get(*i).exit_latency_ns as i64 <= limit_ns
        };
        for gap_ns in gaps_ns {
            let picked = oracle.state(gap_ns);
            let least_uj = (0..states.len())
                .filter(is_allowed)
                .map(|i| costs.gap_uj(i, gap_ns, lambda_mw))
                .min_by(f64::total_cmp);
            if let Some(least_uj) = least_uj {
                prop_assert!(is_allowed(&picked));
                let picked_uj = costs.gap_uj(picked, gap_ns, lambda_mw);
                // Breakpoints are rounded to nanoseconds: 4 W for one nanosecond is 4e-6 uJ.
                prop_assert!(picked_uj <= least_uj + 1e-5, "{picked_uj} > {least_uj} at {gap_ns}");
            }
        }
    }
}

/// Computed by hand. HZ=250, ticks at 4 and 8 ms; a state with 100 µs exit latency; a gap of 9 ms
/// in which the governor keeps the tick.
///
/// ```text
/// 0          4.000  4.103            8.000  8.103       9.000
/// ├── stay ────┤ work ├──── stay ──────┤ work ├── stay ────┤ +0.100 exit
/// ```
#[test]
fn puts_ticks_back_where_the_governor_keeps_them() {
    let states = StateTable::new(&[IdleState::POLL, IdleState::new(100_000, 200_000)]).unwrap();
    let gap = IdleGap {
        cpu: 0,
        start_ns: 0,
        gap_ns: 9_000_000,
        sleep_length_ns: None,
        next_tick_ns: Some(TICK_NS),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let scripted = |stop_tick| Scripted {
        answers: vec![(1, stop_tick)],
        next: 0,
        states,
        disabled: DisabledMask::NONE,
        verdicts: std::sync::Arc::default(),
    };
    let mut lane = GovernorLane::new(scripted(false), Setting::new(states, TICK_NS));
    lane.replay(&[gap]);
    let tally = lane.tally();
    assert_eq!((tally.decision_count(), tally.tick_wake_count), (3, 2));
    assert_eq!(tally.stay_ns(), 4_000_000 + 3_897_000 + 897_000);
    assert_eq!(tally.work_ns, 2 * 103_000);
    assert_eq!(tally.delays(&Exits::declared(&states)).sum_ns(), 100_000);

    // With the tick stopped there is one stay, and the tick stays stopped if no task runs.
    let mut lane = GovernorLane::new(scripted(true), Setting::new(states, TICK_NS));
    lane.replay(&[gap, IdleGap { ran_task: false, sleep_length_ns: Some(1), ..gap }]);
    assert_eq!((lane.tally().decision_count(), lane.tally().tick_wake_count), (2, 0));

    // An event during the tick's work waits for its end: 4.050 is 53 µs earlier.
    let mut lane = GovernorLane::new(scripted(false), Setting::new(states, TICK_NS));
    lane.replay(&[IdleGap { gap_ns: 4_050_000, ..gap }]);
    assert_eq!(lane.tally().overruns.max_ns(), Some(53_000));
}

#[test]
fn keeps_the_tick_for_a_timer_that_it_serves_and_no_other() {
    let states = StateTable::new(&[IdleState::POLL, IdleState::new(1_000, 2_000)]).unwrap();
    let gap = |sleep_length_ns| IdleGap {
        cpu: 0,
        start_ns: 0,
        gap_ns: 10_000_000,
        sleep_length_ns: Some(sleep_length_ns),
        next_tick_ns: Some(TICK_NS),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let ticks = |sleep_length_ns| {
        let mut lane = GovernorLane::new(Fixed::Deepest, Setting::new(states, TICK_NS));
        lane.replay(&[gap(sleep_length_ns)]);
        lane.tally().tick_wake_count
    };
    // An hrtimer has its own interrupt, however near it is.
    assert_eq!((ticks(4_000_001), ticks(3_999_999), ticks(1_000)), (0, 0, 0));
    // A timer-wheel timer expires in the tick. When asked after that, the timer is gone.
    assert_eq!(ticks(TICK_NS.into()), 1);
}

#[test]
fn promotes_out_of_a_shallow_state_and_asks_again() {
    let lite = IdleState { is_auto_promoted: true, ..IdleState::new(1_000, 1_000) };
    let states = StateTable::new(&[lite, IdleState::new(2_000, 20_000)]).unwrap();
    let scripted = Scripted {
        answers: vec![(0, true), (1, true)],
        next: 0,
        states,
        disabled: DisabledMask::NONE,
        verdicts: std::sync::Arc::default(),
    };
    let gap = IdleGap {
        cpu: 0,
        start_ns: 0,
        gap_ns: 500_000,
        sleep_length_ns: None,
        next_tick_ns: Some(TICK_NS),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    };
    let mut lane = GovernorLane::new(scripted, Setting::new(states, TICK_NS));
    lane.replay(&[gap]);
    let tally = lane.tally();
    // 24 µs in the lite state (20 + 2 · 2), 1 µs to leave it, and the rest in the next state.
    assert_eq!((tally.states[0].stay_ns, tally.states[1].stay_ns), (24_000, 475_000));
    assert_eq!((tally.auto_promotion_count, tally.work_ns), (1, 1_000));
}

/// Replays with a governor that is asked by hand.
fn by_hand(governor: &mut impl Governor, setting: Setting, gaps: &[IdleGap]) -> Tally {
    let mut steps = Steps::new(setting);
    let mut device = Device::default();
    for gap in gaps {
        steps.begin(gap);
        while let Some(question) = steps.question() {
            let Question { sleep_length_ns, next_event_ns, .. } = question;
            let timers = SleepLength { sleep_length_ns, next_event_ns };
            let mut context = Context::new(&setting.states, timers);
            context.disabled = setting.disabled;
            context.latency_limit_ns = question.latency_limit_ns;
            context.tick_stopped = question.tick_stopped;
            context.now_ns = question.now_ns;
            let decision = match setting.states.len() {
                1 => Decision { state: 0, stop_tick: true },
                _ => governor.select(&context, &mut device),
            };
            steps.decide(decision).expect("there was a question");
        }
    }
    steps.tally().clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Also if the lane counts repeated stays without following them.
    #[test]
    fn steps_and_lanes_count_the_same(
        states in any_table(),
        gaps in prop::collection::vec(any_gap(), 1..60),
        answers in prop::collection::vec((0..10_usize, any::<bool>()), 1..20),
    ) {
        let setting = Setting::new(states, TICK_NS);
        let disabled = DisabledMask::NONE;
        let scripted = || Scripted {
            answers: answers.clone(), next: 0, states, disabled, verdicts: std::sync::Arc::default(),
        };
        let mut lane = GovernorLane::new(scripted(), setting);
        lane.replay(&gaps);
        prop_assert_eq!(lane.tally(), &by_hand(&mut scripted(), setting, &gaps));
        for bound in [Fixed::Deepest, Fixed::Shallowest] {
            let mut lane = GovernorLane::new(bound, setting);
            lane.replay(&gaps);
            prop_assert_eq!(lane.tally(), &by_hand(&mut bound.clone(), setting, &gaps));
        }
    }
}
