//! Replay conserves time with every governor: residencies and busy time add up to the log's span, except
//! for exit latencies that reach beyond their gaps.

use std::path::Path;

use idlewise_core::{IdleState, StateTable};
use idlewise_linux::GOVERNORS;
use idlewise_sim::replay::{DEFAULT_TICK_WORK_NS, GovernorLane, GroupReader, Lane, Setting};
use idlewise_trace::log::IdleLog;
use idlewise_trace::{IdleGap, WakeReason};
use proptest::prelude::*;

const TICK_NS: u32 = 4_000_000;

fn spr() -> StateTable {
    let c1 = IdleState::new(1_000, 1_000);
    let c1e = IdleState::new(2_000, 4_000);
    StateTable::new(&[IdleState::POLL, c1, c1e, IdleState::new(290_000, 800_000)]).unwrap()
}

#[test]
fn on_the_bundled_logs() {
    for name in ["a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
        let log = IdleLog::open(&folder.join(format!("{name}.parquet"))).unwrap();
        let mut gaps = Vec::new();
        let mut reader = GroupReader::new(&log);
        for group in log.groups() {
            gaps.extend_from_slice(reader.read(group).unwrap());
        }
        let span_ns = log.metadata.span_ns(0).unwrap();
        let gap_sum_ns: u64 = gaps.iter().map(|gap| gap.gap_ns).sum();
        let busy_ns = span_ns - gap_sum_ns;
        for spec in GOVERNORS {
            let mut lane = GovernorLane::new(spec.build(TICK_NS), Setting::new(spr(), TICK_NS));
            lane.replay(&gaps);
            let tally = lane.tally();
            let overrun_ns = tally.overruns.sum_ns();
            // Only work that reached beyond its gap is counted twice.
            let replayed_ns = tally.stay_ns() + tally.work_ns + busy_ns;
            assert_eq!(replayed_ns, span_ns + overrun_ns, "{} on {name}", spec.id);
            let longest_ns = 290_000 + DEFAULT_TICK_WORK_NS;
            assert!(overrun_ns <= tally.overruns.count() * longest_ns, "{} on {name}", spec.id);
        }
    }
}

prop_compose! {
    fn any_gap()(
        start_ns in 0..1_i64 << 40,
        gap_ns in prop_oneof![0..5_000_u64, 0..1_000_000_u64, 0..90_000_000_u64],
        sleep_length_ns in prop::option::of(0..200_000_000_u64),
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

proptest! {
    #[test]
    fn on_any_gaps(gaps in prop::collection::vec(any_gap(), 1..200)) {
        for spec in GOVERNORS {
            let mut lane = GovernorLane::new(spec.build(TICK_NS), Setting::new(spr(), TICK_NS));
            lane.replay(&gaps);
            let tally = lane.tally();
            let gap_sum_ns: u64 = gaps.iter().map(|gap| gap.gap_ns).sum();
            prop_assert_eq!(tally.gap_ns, gap_sum_ns);
            let overrun_ns = tally.overruns.sum_ns();
            prop_assert_eq!(tally.stay_ns() + tally.work_ns, gap_sum_ns + overrun_ns, "{}", spec.id);
            prop_assert_eq!(tally.invalid_count, 0);
        }
    }
}
