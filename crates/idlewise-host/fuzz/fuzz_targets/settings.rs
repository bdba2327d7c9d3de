//! Reads any text as a setting: a one-line error, or a setting whose text form means the same.
#![no_main]

use idlewise_host::settings::Setting;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match text.parse::<Setting>() {
    Ok(setting) => assert_eq!(setting.to_string().parse(), Ok(setting)),
    Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
});
