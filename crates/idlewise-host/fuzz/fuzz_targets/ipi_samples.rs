//! Reads any text as samples of idlewise_bench: a one-line error, or samples that are in the text.
#![no_main]

use idlewise_host::ipi::Samples;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match Samples::parse(text) {
    Ok(samples) => {
        assert!(samples.tsc_khz > 0);
        assert_eq!(samples.samples.len() + 2, text.lines().count());
        for (sample, line) in samples.samples.iter().zip(text.lines().skip(2)) {
            let wake: u64 = line.split(',').next().unwrap().parse().unwrap();
            assert_eq!(sample.wake_cycles, wake);
        }
    }
    Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
});
