//! Reads any bytes as a workload log. Must end without a panic, either with steps that keep every rule or with an
//! error of one line.
#![no_main]

use idlewise_trace::causes::WorkloadLog;
use idlewise_trace::log::LogError;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = read(bytes) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
});

fn read(bytes: &[u8]) -> Result<(), LogError> {
    let log = WorkloadLog::from_bytes("log", bytes.to_vec())?;
    let mut step_count = 0;
    log.each_group(&mut |steps| {
        step_count += steps.len() as u64;
        for step in steps {
            assert!(step.due_at_ns <= step.run_at_ns && step.run_at_ns <= step.end_at_ns);
            assert!((step.task as usize) < log.metadata.tasks.len());
        }
    })?;
    assert_eq!(step_count, log.step_count());
    Ok(())
}
