//! Properties that hold for any input: no panic, and a decision within the table, which is enabled where
//! the kernel promises that.

use idlewise_core::tick_period_ns;
use idlewise_core::{
    Context, Device, DisabledMask, Governor, IdleState, Outcome, SleepLength, StateIndex,
    StateTable,
};
use idlewise_linux::{GOVERNORS, GovernorSpec};
use proptest::prelude::*;

/// One call of select and its outcome. This includes fields that the kernel would never see.
#[derive(Clone, Debug)]
struct Stay {
    sleep_length: SleepLength,
    disabled: DisabledMask,
    latency_limit_ns: i64,
    tick_stopped: bool,
    iowait_count: u32,
    now_ns: u64,
    residency_ns: u64,
    /// 0 to 9 enters that state (modulo the table); anything else is a refusal.
    entered: usize,
    is_overruled: bool,
    got_tick: bool,
    poll: Option<(bool, u64)>,
}

fn span_ns() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => 0_i64..20_000_000,
        1 => Just(i64::MAX),
        1 => any::<i64>(),
    ]
}

fn stay() -> impl Strategy<Value = Stay> {
    let timers = (span_ns(), span_ns());
    let limits = (0_u16..1_024, prop_oneof![Just(0), Just(2_000_000_000_000), span_ns()]);
    let flags = (any::<[bool; 3]>(), proptest::option::of(any::<(bool, u64)>()));
    let rest =
        (any::<u32>(), any::<u64>(), prop_oneof![0_u64..20_000_000, any::<u64>()], 0_usize..11);
    (timers, limits, flags, rest).prop_map(|(timers, limits, flags, rest)| Stay {
        sleep_length: SleepLength { sleep_length_ns: timers.0, next_event_ns: timers.1 },
        disabled: DisabledMask::from_bits(limits.0),
        latency_limit_ns: limits.1,
        tick_stopped: flags.0[0],
        iowait_count: rest.0,
        now_ns: rest.1,
        residency_ns: rest.2,
        entered: rest.3,
        is_overruled: flags.0[2],
        got_tick: flags.0[1],
        poll: flags.1,
    })
}

prop_compose! {
    fn table()(
        polls in any::<bool>(),
        mut times_ns in proptest::collection::vec((0_u64..20_000_000, 0_u64..20_000_000), 1..=10),
    ) -> StateTable {
        times_ns.sort_by_key(|&(_, residency_ns)| residency_ns);
        let mut states: Vec<_> = times_ns.into_iter().map(|(l, r)| IdleState::new(l, r)).collect();
        states[0].is_polling = polls;
        StateTable::new(&states).expect("residencies are sorted and only state 0 polls")
    }
}

/// Whether the kernel would select `state`, which is disabled.
fn may_be_disabled(spec: &GovernorSpec, context: &Context<'_>, state: StateIndex) -> bool {
    let states = context.states.as_slice().iter().enumerate();
    let mut enabled = states.filter(|&(index, _)| !context.disabled.contains(index));
    // ladder and haltpoll don't check. With a single state, or with all disabled, there is no choice.
    let looks = spec.name.starts_with("menu") || spec.name == "teo";
    if !looks || context.states.len() == 1 || enabled.clone().next().is_none() {
        return true;
    }
    // Only a latency limit can lead to a disabled state, which is then state 0. menu selects it if no
    // latency at all is allowed, teo if it found an enabled state above the limit.
    let limit_ns = context.latency_limit_ns;
    let leads_there = if spec.name == "teo" {
        enabled.any(|(_, state)| state.exit_latency_ns as i64 > limit_ns)
    } else {
        limit_ns == 0
    };
    state == 0 && leads_there
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn answers_from_the_table_whatever_happens(
        states in table(),
        stays in proptest::collection::vec(stay(), 1..60),
        hz in prop_oneof![Just(100_u32), Just(250), Just(300), Just(1_000)],
    ) {
        for spec in GOVERNORS {
            let mut governor = spec.build(tick_period_ns(hz));
            let mut device = Device::default();
            for stay in &stays {
                let mut context = Context::new(&states, stay.sleep_length);
                context.disabled = stay.disabled;
                context.latency_limit_ns = stay.latency_limit_ns;
                context.tick_stopped = stay.tick_stopped;
                context.iowait_count = stay.iowait_count;
                context.now_ns = stay.now_ns;
                let state = governor.select(&context, &mut device).state;
                prop_assert!(state < states.len(), "{}", spec.id);

                if stay.disabled.contains(state) {
                    prop_assert!(may_be_disabled(spec, &context, state), "{}", spec.id);
                }

                if let Some((poll_time_limit, poll_limit_ns)) = stay.poll {
                    device.poll_time_limit = poll_time_limit;
                    device.poll_limit_ns = poll_limit_ns;
                }
                device.last_residency_ns = 0;
                if stay.entered < 10 {
                    device.last_residency_ns = stay.residency_ns;
                    let entered = stay.entered % states.len();
                    let now_ns = stay.now_ns.wrapping_add(stay.residency_ns);
                    let (is_overruled, got_tick) = (stay.is_overruled, stay.got_tick);
                    let outcome = Outcome { entered, is_overruled, got_tick, now_ns };
                    governor.reflect(&outcome, &mut device);
                }
            }
        }
    }

    #[test]
    fn survives_a_device_that_another_governor_left(
        states in table(),
        stays in proptest::collection::vec(stay(), 1..20),
        last_state in proptest::option::of(0_usize..1_000),
    ) {
        for spec in GOVERNORS {
            let mut governor = spec.build(tick_period_ns(250));
            for stay in &stays {
                let mut device = Device { last_state, ..Device::default() };
                let context = Context::new(&states, stay.sleep_length);
                let state = governor.select(&context, &mut device).state;
                prop_assert!(state < states.len(), "{}", spec.id);
                device.last_state = last_state;
                let Stay { is_overruled, got_tick, now_ns, .. } = *stay;
                let outcome = Outcome { entered: 999, is_overruled, got_tick, now_ns };
                governor.reflect(&outcome, &mut device);
            }
        }
    }
}
