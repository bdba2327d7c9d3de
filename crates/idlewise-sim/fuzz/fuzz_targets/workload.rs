//! Reads any text as a workload. The result is a one-line error, or a workload with values.
#![no_main]

use idlewise_sim::simulate::Hardware;
use idlewise_sim::workload::Workload;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut hardware = Hardware::default();
    match Workload::from_toml(text, &mut hardware) {
        Ok(workload) => assert!(!workload.values().is_empty()),
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    let _ = hardware.shape();
});
