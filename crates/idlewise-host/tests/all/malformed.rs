//! Texts that are not samples of idlewise_bench. Each is `tests/malformed/ipi_samples/<reason>.txt`
//! and must fail with its one-line message.

use std::fs;
use std::path::Path;

use idlewise_host::ipi::Samples;

const MESSAGES: [(&str, &str); 12] = [
    (
        "arrived_before_it_was_sent",
        "line 3: the call arrived before it was sent: the CPUs' TSCs don't",
    ),
    ("busy_beyond_32_bits", "line 3, column 'busy_cycles': '4294967296' is no count of cycles"),
    (
        "control_characters",
        "line 3, column 'wake_cycles': '\\u{1b}[2Jxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…'",
    ),
    (
        "cut_line",
        "line 4: expected 5 counts of cycles, found '1,1,2,3'; the text was cut or edited",
    ),
    ("empty", "line 1: expected `# tsc_khz N, given up N …`, found ''; load the module of this"),
    (
        "frequency_beyond_32_bits",
        "line 1: expected `# tsc_khz N, given up N …`, found '# tsc_khz 99999999999",
    ),
    ("frequency_zero", "line 1: a TSC of 0 kHz; the kernel could not calibrate it"),
    ("negative", "line 3, column 'waking_cycles': '-3' is no count of cycles"),
    (
        "no_columns",
        "line 2: expected 'wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles', found ''",
    ),
    ("no_head", "line 1: expected `# tsc_khz N, given up N …`, found 'wake_cycles,idle_cycles'"),
    (
        "other_columns",
        "line 2: expected 'wake_cycles,call_cycles,idle_cycles,waking_cycles,busy_cycles', found 'wake",
    ),
    ("six_fields", "line 3: expected 5 counts of cycles, found '1,1,2,3,4,5'"),
];

#[test]
fn each_text_fails_with_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/ipi_samples");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), MESSAGES.len());
    for (name, expected) in MESSAGES {
        let text = fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let message = Samples::parse(&text).expect_err(name).to_string();
        assert!(message.starts_with(expected), "{name}: {message}");
        assert_eq!(message.lines().count(), 1, "{name}");
    }
}
