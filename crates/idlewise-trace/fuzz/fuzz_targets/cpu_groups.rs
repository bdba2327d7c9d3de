//! Parses any text as a topology: it gives one line that says what is wrong, or groups that are read back as they are
//! written.
#![no_main]

use idlewise_trace::CpuGroups;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<CpuGroups>() {
        Ok(groups) => {
            assert_eq!(groups.check(), Ok(()));
            assert_eq!(groups.to_string().parse(), Ok(groups));
        }
        Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
    }
});
