//! Texts that are not workloads. Each is `tests/malformed/workload/<reason>.toml` and must fail
//! with its message.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use idlewise_sim::simulate::Hardware;
use idlewise_sim::workload::Workload;

const MESSAGES: [(&str, &str); 15] = [
    ("key_of_two_lines", "no parameter 'inter\\nval_xyz'; did you mean 'interval_ns'?"),
    (
        "value_of_two_lines",
        "line 2: interval_ns = a\\nb: expected a whole number, 100 to 31536000000000000 (a year)",
    ),
    ("name_of_two_lines", "no workload 'pop\\nson'; did you mean 'poisson'?"),
    ("unknown_key", "line 3: no parameter 'intervall_ns'; did you mean 'interval_ns'?"),
    (
        "unknown_hardware_key",
        "line 2: no parameter 'housekeping_ns'; did you mean 'housekeeping_ns'?",
    ),
    ("unknown_workload", "no workload 'poison'; did you mean 'poisson'?"),
    ("no_workload", "no line workload = \"NAME\"; `idlewise lab simulate --list` has the names"),
    (
        "negative_number",
        "line 2: interval_ns = -1: expected a whole number, 100 to 31536000000000000 (a year)",
    ),
    (
        "number_too_large",
        "line 2: invalid type: integer `99999999999999999999` as i128, expected any valid TOML value",
    ),
    (
        "text_for_a_number",
        "line 2: interval_ns = soon: expected a whole number, 100 to 31536000000000000 (a year)",
    ),
    (
        "table_for_a_number",
        "line 2: interval_ns = a table: expected a whole number, 100 to 31536000000000000 (a year)",
    ),
    ("not_a_flag", "line 2: exponential_service = 1: expected true or false"),
    ("not_finite", "line 2: exit_ratio = NaN: expected a number, 0 to 1000"),
    ("key_twice", "line 3: duplicate key"),
    ("no_value", "line 1: string values must be quoted, expected literal string"),
];

#[test]
fn each_fails_with_its_message() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/workload");
    let mut names: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for (reason, expected) in MESSAGES {
        let name = format!("{reason}.toml");
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let error = Workload::from_toml(&text, &mut Hardware::default()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{reason}");
        names.remove(&name);
    }
    assert!(names.is_empty(), "without a message: {names:?}");
}
