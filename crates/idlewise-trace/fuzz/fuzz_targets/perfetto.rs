//! Any bytes: the whole importer neither panics nor hangs, and keeps what it promises.
#![no_main]

use idlewise_trace::Event;
use idlewise_trace::import::perfetto::PerfettoTrace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = PerfettoTrace::from_bytes(bytes.to_vec()) else { return };
    let mut last_at_ns = i64::MIN;
    let mut event_count = 0;
    let sink = &mut |events: &[Event]| {
        for event in events {
            assert!(event.at_ns >= last_at_ns);
            last_at_ns = event.at_ns;
            event_count += 1;
        }
    };
    let summary = trace.read(&|_| {}, sink).expect("memory can be read");
    assert_eq!(summary.event_count, event_count);
    assert!(summary.out_of_order_count <= event_count);
    assert!(summary.truncated.is_none_or(|place| place.at_byte <= bytes.len() as u64));
});
