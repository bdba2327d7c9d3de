//! Invalid machine files: each is `tests/malformed/<reason>.toml`, and must fail with its message. Inputs
//! that a fuzzer takes long to find are generated here.

use idlewise_machine::Machine;

fn message(text: &str) -> String {
    Machine::from_toml(text).expect_err("the text is wrong").to_string()
}

#[test]
fn refuses_powers_whose_mean_would_be_infinite() {
    let message = message(include_str!("../malformed/power_beyond_all_cores.toml"));
    assert!(message.starts_with("line 6: 1000000000"), "{message}");
    assert!(message.ends_with("mW is too much: check the unit"), "{message}");
}

/// Nested deeply enough to overflow the stack of a recursive parser.
#[test]
fn refuses_values_in_values_without_end() {
    const DEPTH: usize = 100_000;
    for text in [
        format!("x = {}", "[".repeat(DEPTH)),
        format!("x = {}{}", "[".repeat(DEPTH), "]".repeat(DEPTH)),
        format!("x = {}", "{a = ".repeat(DEPTH)),
        format!("[{}a]", "a.".repeat(DEPTH)),
        format!("[[{}a]]", "a.".repeat(DEPTH)),
        format!("{}a = 1", "a.".repeat(DEPTH)),
        format!("x = {{ {}a = 1 }}", "a.".repeat(DEPTH)),
    ] {
        assert_eq!(message(&text).lines().count(), 1);
    }
}
