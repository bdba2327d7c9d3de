//! Perfetto traces that cannot be imported. Each is `tests/malformed/perfetto/<reason>.pftrace` and
//! must fail with its message. Damage that leaves something to import is in `import_perfetto.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_trace::import;

use crate::formats;

const NO_FTRACE: &str = "byte 0: a Perfetto trace without events of ftrace; record with the data \
                         source linux.ftrace and its event power/cpu_idle";

/// Each file, and the line that the user gets. `FORMATS` stands for the names of all formats.
const CASES: [(&str, &str); 6] = [
    ("no_ftrace", NO_FTRACE),
    (
        "idle_not_recorded",
        "byte 0: power:cpu_idle is not among the 1 recorded events; record with `perfetto \
         power/cpu_idle sched/sched_switch -o trace.pftrace`",
    ),
    ("cut_in_first_packet", NO_FTRACE),
    (
        "cpu_beyond_all",
        "byte 0: power:cpu_idle is not among the 0 recorded events; record with `perfetto \
         power/cpu_idle sched/sched_switch -o trace.pftrace`",
    ),
    (
        "group_in_first_packet",
        "byte 0: found the bytes [0a, 04, 0b, 08, 01, 0c], expected FORMATS; \
         give a file that `perf record` or `trace-cmd record` wrote",
    ),
    ("compressed_is_broken", NO_FTRACE),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/perfetto")
}

#[test]
fn each_fails_with_its_message() {
    for (reason, message) in CASES {
        let error = match import::open(&folder().join(format!("{reason}.pftrace"))) {
            Ok(_) => panic!("{reason}: imported"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error, message.replace("FORMATS", &formats::listed()), "{reason}");
    }
}

#[test]
fn every_file_has_its_case() {
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let reason = name.strip_suffix(".pftrace").unwrap_or_default();
        assert!(CASES.iter().any(|(case, _)| *case == reason), "{name}");
    }
}
