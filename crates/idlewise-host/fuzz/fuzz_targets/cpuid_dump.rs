//! Reads any text as a CPUID dump: a one-line error, or a machine that has an idle routine under each kernel.
#![no_main]

use idlewise_machine::boot::cpuid::Cpuid;
use idlewise_machine::boot::{BootFacts, Kernel, select};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| match Cpuid::parse(text) {
    Ok(cpuid) => {
        for kernel in Kernel::ALL {
            let facts = cpuid.facts(BootFacts { kernel, ..BootFacts::without_cmdline() });
            let selected = select(&facts);
            assert!(selected.possible().next().is_some());
            assert_eq!(selected.routine().is_none(), selected.possible().count() > 1);
        }
    }
    Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
});
