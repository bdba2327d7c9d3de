//! What every importer guarantees for any input.

pub use idlewise_trace::Event;
pub use idlewise_trace::import::Recording;
pub use libfuzzer_sys;

/// Defines the target for an importer, given the type that reads its recordings: the whole importer
/// must neither panic nor hang, and must keep its guarantees.
#[macro_export]
macro_rules! importer {
    ($recording:ty) => {
        use $crate::Recording as _;
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
            let Ok(recording) = <$recording>::from_bytes(bytes.to_vec()) else { return };
            let mut last_at_ns = i64::MIN;
            let mut event_count = 0;
            let sink = &mut |events: &[$crate::Event]| {
                for event in events {
                    assert!(event.at_ns >= last_at_ns);
                    last_at_ns = event.at_ns;
                    event_count += 1;
                }
            };
            let summary = recording.read(&|_| {}, sink).expect("memory can be read");
            assert_eq!(summary.event_count, event_count);
            assert!(summary.out_of_order_count <= event_count);
            assert!(summary.truncated.is_none_or(|place| place.at_byte <= bytes.len() as u64));
        });
    };
}
