//! Strategies for the property tests: any states, any gaps.

use idlewise_core::{IdleState, StateTable};
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

/// The tick period.
pub const TICK_NS: u32 = 4_000_000;

prop_compose! {
    /// A state table, which need not make sense.
    pub fn any_table()(
        polls in any::<bool>(),
        promotes in any::<bool>(),
        mut times in prop::collection::vec((0..2_000_000_u64, 0..9_000_000_u64), 1..9),
    ) -> StateTable {
        times.sort_by_key(|&(_, residency_ns)| residency_ns);
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

prop_compose! {
    /// A gap of a log with a tick period of 4 ms.
    pub fn any_gap()(
        start_ns in 0..1_i64 << 40,
        gap_ns in prop_oneof![0..50_000_u64, 0..60_000_000_u64],
        sleep_length_ns in prop::option::of(0..100_000_000_u64),
        next_tick_ns in prop::option::of(1..=TICK_NS),
        ran_task in any::<bool>(),
        reason in 0..6_usize,
    ) -> IdleGap {
        IdleGap {
            cpu: 0, start_ns, gap_ns, sleep_length_ns, next_tick_ns, tick_stopped: false, ran_task,
            wake_reason: WakeReason::ALL[reason], latency_limit_ns: None, recorded_state: None,
            recorded_idle_ns: None,
        }
    }
}
