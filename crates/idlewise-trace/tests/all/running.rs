//! What ran when, and how fast, found in every format. tests/causes/README.md says what was recorded.

use std::collections::BTreeMap;

use idlewise_trace::running::{FrequencyChange, Run, RunningBuilder};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{Event, EventKind};

use crate::import_causes::{PING_PONG, recording_for, unpacked};
use crate::perfetto_writer::{compact, file, trace};

fn running(bytes: &[u8]) -> (Vec<Run>, Vec<FrequencyChange>) {
    let mut builder = RunningBuilder::default();
    recording_for(bytes, Purpose::Running).read(&|_| {}, &mut |some| builder.push(some)).unwrap();
    builder.finish()
}

/// How often each task ran to its end, and for how long together.
fn totals(runs: &[Run]) -> BTreeMap<String, (usize, u64)> {
    let mut totals = BTreeMap::new();
    for run in runs {
        let Some(run_ns) = run.run_ns else { continue };
        let (count, sum_ns): &mut (usize, u64) = totals.entry(run.name.text()).or_default();
        (*count, *sum_ns) = (*count + 1, *sum_ns + run_ns);
    }
    totals
}

#[test]
fn perf_data_has_the_runs_that_trace_dat_has_of_the_same_run() {
    let ours = totals(&running(&unpacked("tests/causes/one-run.trace.dat.xz")).0);
    let perfs = totals(&running(&unpacked("tests/causes/one-run.perf.data.xz")).0);
    for name in ["ping", "pong"] {
        let ((ours, ours_ns), (perfs, perfs_ns)) = (ours[name], perfs[name]);
        // The recorders began and ended a little apart, and each delays the other's events.
        assert!(ours >= 110 && ours.abs_diff(perfs) <= 4, "{name}: {ours} and {perfs} runs");
        let ratio = ours_ns as f64 / perfs_ns as f64;
        assert!((0.8..1.25).contains(&ratio), "{name}: {ours_ns} and {perfs_ns} ns");
    }
}

#[test]
fn perfetto_has_the_runs_and_frequencies_that_trace_dat_has() {
    let bytes = unpacked(PING_PONG);
    let mut events: Vec<Event> = Vec::new();
    recording_for(&bytes, Purpose::Running)
        .read(&|_| {}, &mut |some| events.extend_from_slice(some))
        .unwrap();
    // No kernel in a virtual machine sets frequencies: one is planted at every hundredth switch, for another CPU.
    let is_switch = |event: &&Event| matches!(event.kind, EventKind::Switch { .. });
    let planted: Vec<Event> = events
        .iter()
        .filter(is_switch)
        .step_by(100)
        .zip(1..)
        .map(|(event, khz)| Event { cpu: 1, kind: EventKind::Frequency { khz }, ..*event })
        .collect();
    assert!(planted.len() > 10);
    let expected = running(&bytes).0;
    assert!(expected.iter().filter(|run| run.run_ns.is_some()).count() > 1_000);
    events.extend(&planted);
    events.sort_by_key(|event| event.at_ns);
    let mut packets = trace(&events, 0);
    let (runs, changes) = running(&file(&packets));
    assert_eq!(runs, expected);
    let found: Vec<(i64, u32)> = changes.iter().map(|change| (change.at_ns, change.khz)).collect();
    let wanted = planted.iter().zip(1..).map(|(event, khz)| (event.at_ns, khz));
    assert_eq!(found, wanted.collect::<Vec<_>>());
    // Switches in columns name the next task only, which says when it began and when the next one did.
    packets.iter_mut().filter_map(|packet| packet.ftrace_events.as_mut()).for_each(compact);
    let (runs, _) = running(&file(&packets));
    let lengths = |runs: &[Run]| -> Vec<_> {
        runs.iter().map(|run| (run.cpu, run.start_ns, run.run_ns, run.task)).collect()
    };
    assert_eq!(lengths(&runs), lengths(&expected));
}
