//! Texts that cannot be imported. Each is `tests/malformed/text/<reason>.*` and must fail with its
//! message. Damage that leaves something to import is in `import_text.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_trace::import;

/// Each file, and the line that the user gets.
const CASES: [(&str, &str); 8] = [
    (
        "no_events.txt",
        "byte 0: a text without any line of an event; give the text of tracefs's trace or of \
         `trace-cmd report`, or systrace's page",
    ),
    (
        "idle_not_recorded.txt",
        "byte 0: power:cpu_idle is not among the 2 recorded events; record with `trace-cmd record \
         -C mono -e power:cpu_idle -e timer -e sched:sched_switch`",
    ),
    (
        "clock_counts_cycles.txt",
        "byte 0: times without a point, of a clock that counts something else; record with the \
         clock `mono` (trace-cmd's -C, tracefs's trace_clock)",
    ),
    (
        "tracer_of_functions.txt",
        "byte 0: a text without any line of an event; give the text of tracefs's trace or of \
         `trace-cmd report`, or systrace's page",
    ),
    (
        "tracer_of_latencies.txt",
        "byte 0: a text without any line of an event; give the text of tracefs's trace or of \
         `trace-cmd report`, or systrace's page",
    ),
    (
        "page_without_trace.html",
        "byte 0: a page without a trace in ftrace's text; give the text of tracefs's trace or of \
         `trace-cmd report`, or systrace's page",
    ),
    ("compressed_atrace.txt", "trace with atrace's option -z left out"),
    (
        "only_the_beginning_of_a_line.txt",
        "byte 0: a text without any line of an event; give the text of tracefs's trace or of \
         `trace-cmd report`, or systrace's page",
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/text")
}

#[test]
fn each_fails_with_its_message() {
    for (name, message) in CASES {
        let error = match import::open(&folder().join(name)) {
            Ok(_) => panic!("{name}: imported"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with("byte 0: ") && error.ends_with(message), "{name}: {error}");
    }
}

#[test]
fn every_file_has_its_case() {
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(CASES.iter().any(|(case, _)| *case == name), "{name}");
    }
}
