//! Reads any text as samples of idlewise_bench, of both kinds: a one-line error, or samples that are in the text.
#![no_main]

use idlewise_host::ipi::{Samples, StateSamples};
use libfuzzer_sys::fuzz_target;

/// The first column of all samples.
fn first_column(text: &str) -> Vec<u64> {
    let lines = text.lines().skip(2);
    lines.map(|line| line.split(',').next().unwrap().parse().unwrap()).collect()
}

fuzz_target!(|text: &str| {
    match Samples::parse(text) {
        Ok(samples) => {
            assert!(samples.tsc_khz > 0);
            let wakes = samples.samples.iter().map(|sample| sample.wake_cycles);
            assert_eq!(wakes.collect::<Vec<_>>(), first_column(text));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
    match StateSamples::parse(text) {
        Ok(samples) => {
            assert!(samples.tsc_khz > 0);
            let wakes = samples.samples.iter().map(|sample| sample.wake_cycles);
            assert_eq!(wakes.collect::<Vec<_>>(), first_column(text));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
