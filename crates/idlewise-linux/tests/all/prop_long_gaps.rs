//! Stays that repeat within a gap are counted instead of replayed one by one. The tally must be the same as
//! that of a replay which takes each stay by itself.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use idlewise_core::{
    Context, Decision, Device, DisabledMask, Fixed, Governor, IdleState, NO_LATENCY_LIMIT_NS,
    Outcome, StateTable, TimerOnly,
};
use idlewise_linux::GOVERNORS;
use idlewise_sim::CostModel;
use idlewise_sim::diff::governor_side;
use idlewise_sim::replay::{GovernorLane, Lane, Setting, Tally};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

const TICK_NS: u32 = 4_000_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// The naive twin: a governor that does not report its memory, so each stay is replayed.
struct StayByStay(Box<dyn Governor>);

impl Governor for StayByStay {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        self.0.select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }
}

/// Counts how often it is called.
struct Counted<G>(G, Arc<AtomicU64>);

impl<G: Governor> Governor for Counted<G> {
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        self.1.fetch_add(1, Relaxed);
        self.0.select(context, device)
    }

    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        self.0.memory(note)
    }
}

/// Repeats a sequence of decisions, and reports its place in it.
#[derive(Clone, Debug)]
struct Scripted {
    answers: Vec<(usize, bool)>,
    next: usize,
}

impl Governor for Scripted {
    fn select(&mut self, context: &Context<'_>, _device: &mut Device) -> Decision {
        let (state, stop_tick) = self.answers[self.next];
        self.next = (self.next + 1) % self.answers.len();
        Decision { state: state.min(context.states.deepest()), stop_tick }
    }

    fn reflect(&mut self, _outcome: &Outcome, _device: &mut Device) {}

    fn memory(&self, note: &mut dyn FnMut(u64)) -> bool {
        note(self.next as u64);
        true
    }
}

type MakeGovernor = Box<dyn Fn() -> Box<dyn Governor>>;

/// All governors of this crate, the bounds, and one that decides differently stay after stay.
fn governors(script: &Scripted) -> Vec<(&'static str, MakeGovernor)> {
    let mut all: Vec<(&'static str, MakeGovernor)> = Vec::new();
    for spec in GOVERNORS {
        all.push((spec.id, Box::new(|| Box::new(spec.build(TICK_NS)))));
    }
    all.push(("shallowest", Box::new(|| Box::new(Fixed::Shallowest))));
    all.push(("deepest", Box::new(|| Box::new(Fixed::Deepest))));
    all.push(("state 1", Box::new(|| Box::new(Fixed::State(1)))));
    all.push(("timer-only", Box::new(|| Box::new(TimerOnly::new(TICK_NS.into())))));
    let script = script.clone();
    all.push(("scripted", Box::new(move || Box::new(script.clone()))));
    all
}

fn gap(gap_ns: u64) -> IdleGap {
    IdleGap {
        cpu: 0,
        start_ns: 1_000_000_000,
        gap_ns,
        sleep_length_ns: None,
        next_tick_ns: Some(1_234_567),
        tick_stopped: false,
        ran_task: true,
        wake_reason: WakeReason::Irq,
        latency_limit_ns: None,
        recorded_state: None,
        recorded_idle_ns: None,
    }
}

fn tally(governor: &mut dyn Governor, setting: Setting, gaps: &[IdleGap]) -> Tally {
    let mut lane = GovernorLane::new(governor, setting);
    lane.replay(gaps);
    lane.tally().clone()
}

prop_compose! {
    /// Milliseconds and seconds, in which a polling CPU makes thousands of decisions.
    fn any_gap()(
        gap_ns in prop_oneof![0..20_000_000_u64, 0..3_000_000_000_u64],
        sleep_length_ns in prop::option::of(0..4_000_000_000_u64),
        next_tick_ns in prop::option::of(1..=TICK_NS),
        ran_task in prop::bool::weighted(0.8),
        reason in 0..6_usize,
        latency_limit_ns in prop_oneof![Just(None), Just(Some(0)), (0..5_000_u64).prop_map(Some)],
    ) -> IdleGap {
        IdleGap {
            sleep_length_ns, next_tick_ns, ran_task, latency_limit_ns,
            wake_reason: WakeReason::ALL[reason], ..gap(gap_ns)
        }
    }
}

prop_compose! {
    /// States of any latency. Some poll, promote themselves, or have a target residency above any stay.
    fn any_table()(
        polls in prop::bool::weighted(0.7),
        promotes in any::<bool>(),
        mut times in prop::collection::vec((0..500_000_u64, 0..2_000_000_u64), 1..5),
        last_residency_ns in prop_oneof![Just(0), Just(100_000_000_u64)],
    ) -> StateTable {
        times.sort_by_key(|&(_, residency_ns)| residency_ns);
        if let Some((_, residency_ns)) = times.last_mut() {
            *residency_ns = last_residency_ns.max(*residency_ns);
        }
        let mut states: Vec<IdleState> = times
            .into_iter()
            .map(|(latency_ns, residency_ns)| IdleState {
                is_auto_promoted: promotes,
                ..IdleState::new(latency_ns, residency_ns)
            })
            .collect();
        if polls {
            states.insert(0, IdleState::POLL);
        }
        StateTable::new(&states).unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn repeated_stays_count_as_if_replayed_one_by_one(
        states in any_table(),
        disabled_bits in prop_oneof![Just(0), 0..64_u16],
        gaps in prop::collection::vec(any_gap(), 1..4),
        answers in prop::collection::vec((0..5_usize, prop::bool::weighted(0.1)), 1..6),
        tick_work_ns in prop_oneof![Just(3_000_u64), 0..6_000_000_u64],
        limit_ns in prop_oneof![Just(NO_LATENCY_LIMIT_NS), Just(0_i64), 0..5_000_i64],
    ) {
        let setting = Setting {
            disabled: DisabledMask::from_bits(disabled_bits),
            latency_limit_ns: limit_ns,
            tick_work_ns,
            ..Setting::new(states, TICK_NS)
        };
        let costs = CostModel::new(states, &[4_000.0, 900.0, 300.0, 100.0], 4_000.0);
        let script = Scripted { answers, next: 0 };
        for (name, make) in governors(&script) {
            let expected = tally(&mut StayByStay(make()), setting, &gaps);
            prop_assert_eq!(&tally(&mut *make(), setting, &gaps), &expected, "{}", name);
            // What a comparison charges to each gap must also be the same, to the last bit.
            let mut side = governor_side(make(), setting, &costs);
            let mut naive = governor_side(Box::new(StayByStay(make())), setting, &costs);
            for gap in &gaps {
                prop_assert_eq!(side.gap(gap), naive.gap(gap), "{}", name);
            }
        }
    }
}

fn spr() -> StateTable {
    let c1 = IdleState::new(1_000, 1_000);
    let c1e = IdleState::new(2_000, 4_000);
    StateTable::new(&[IdleState::POLL, c1, c1e, IdleState::new(290_000, 800_000)]).unwrap()
}

/// The gaps that can hold the most stays: those without a timer, or with one in the past.
#[test]
fn asks_a_few_thousand_times_in_gaps_of_ten_days() {
    // Decisions that differ stay after stay, with the tick never stopped.
    let script =
        Scripted { answers: vec![(0, false), (2, false), (0, false), (1, false)], next: 0 };
    for latency_limit_ns in [None, Some(0), Some(1_500)] {
        for sleep_length_ns in [None, Some(2_000_000)] {
            let gap = IdleGap { latency_limit_ns, sleep_length_ns, ..gap(10 * DAY_NS) };
            for (name, make) in governors(&script) {
                let asked = Arc::new(AtomicU64::new(0));
                let mut governor = Counted(&mut *make(), Arc::clone(&asked));
                let tally = tally(&mut governor, Setting::new(spr(), TICK_NS), &[gap]);
                let asked_count = asked.load(Relaxed);
                assert!(asked_count < 20_000, "{name}: {asked_count}");
                let overrun_ns = tally.overruns.sum_ns();
                assert_eq!(tally.stay_ns() + tally.work_ns, gap.gap_ns + overrun_ns, "{name}");
            }
        }
    }
}

/// A timer that is set but never read does not matter.
#[test]
fn polls_for_ten_days_under_a_timer_that_is_not_read() {
    let gap = IdleGap { sleep_length_ns: Some(11 * DAY_NS), ..gap(10 * DAY_NS) };
    let asked = Arc::new(AtomicU64::new(0));
    let mut governor = Counted(Fixed::Shallowest, Arc::clone(&asked));
    let tally = tally(&mut governor, Setting::new(spr(), TICK_NS), &[gap]);
    assert!(asked.load(Relaxed) < 20_000);
    // A tick every 4 ms, whose work does not delay the next.
    let tick_count = (10 * DAY_NS - 1_234_567).div_ceil(TICK_NS.into());
    assert_eq!(tally.tick_wake_count, tick_count);
}
