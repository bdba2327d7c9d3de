use idlewise_core::DisabledMask;

use super::*;

/// A machine whose header takes up lines 1 to 4; `rest` begins on line 5.
fn machine(rest: &str) -> Result<Machine, MachineError> {
    let head = "id = \"toy\"\ntitle = \"Toy\"\narch = \"x86\"\nsource = \"invented\"\n";
    Machine::from_toml(&format!("{head}{rest}"))
}

/// One state in five lines.
fn state(name: &str, exit_latency_us: &str, target_residency_us: &str, more: &str) -> String {
    format!(
        "[[states]]\nname = \"{name}\"\nexit_latency_us = {exit_latency_us}\n\
         target_residency_us = {target_residency_us}\n{more}\n"
    )
}

fn error(rest: &str) -> String {
    let error = machine(rest).expect_err("the text is wrong").to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

fn states(list: &[(&str, &str, &str, &str)]) -> String {
    list.iter()
        .map(|(name, latency, residency, more)| state(name, latency, residency, more))
        .collect()
}

const POLL: (&str, &str, &str, &str) = ("POLL", "0", "0", "flags = [\"polling\"]");

#[test]
fn rounds_fractional_microseconds_to_the_nearest_nanosecond() {
    let machine = machine(&states(&[("a", "0.1", "0.7", ""), ("b", "2.0006", "290", "")])).unwrap();
    let times = |index: usize| {
        let idle = machine.states[index].idle();
        (idle.exit_latency_ns, idle.target_residency_ns)
    };
    assert_eq!(times(0), (100, 700));
    assert_eq!(times(1), (2_001, 290_000));
}

#[test]
fn polling_mwait_and_umwait_states_wake_on_store() {
    let text = states(&[
        POLL,
        ("C0.2", "0.1", "0.1", "umwait_state = \"C0.2\""),
        ("C1", "1", "1", "mwait_hint = \"0x00\""),
        ("C2", "30", "60", "io_port = \"0x414\""),
    ]);
    let machine = machine(&text).unwrap();
    let wakes: Vec<bool> = machine.states.iter().map(|state| state.idle().wakes_on_store).collect();
    assert_eq!(wakes, [true, true, true, false]);
}

#[test]
fn a_machine_without_states_loads_but_has_no_table() {
    let machine = machine("").unwrap();
    assert_eq!(
        machine.table().unwrap_err().to_string(),
        "machine toy has no idle states (it ran without an idle driver): choose another"
    );
    assert_eq!(machine.doubts()[0].to_string(), "no idle states: it cannot be replayed on");
}

#[test]
fn collects_states_that_are_off_by_default() {
    let text = states(&[POLL, ("C1", "1", "1", ""), ("C6", "9", "9", "default_disabled = true")]);
    assert_eq!(machine(&text).unwrap().disabled_by_default().bits(), 0b100);
}

#[test]
fn errors_name_line_cause_and_expectation() {
    let c1 = ("C1", "2", "2", "");
    assert_eq!(
        error("[[states]]\nname = \"C1\"\nexit_latency_us = 1\n"),
        "line 5: missing field `target_residency_us`"
    );
    assert_eq!(
        error(&state("C1", "\"2\"", "2", "")),
        "line 7: invalid type: string \"2\", expected microseconds as a number, at least 0, such as \
         290 or 0.5"
    );
    assert_eq!(
        error(&state("C1", "-3", "2", "")),
        "line 7: invalid value: integer `-3`, expected microseconds as a number, at least 0, such as \
         290 or 0.5"
    );
    assert_eq!(
        error(&state("C1", "1", "nan", "")),
        "line 8: invalid value: floating point `NaN`, expected microseconds as a number, at least \
         0, such as 290 or 0.5"
    );
    assert_eq!(
        error(&states(&[c1, ("C1E", "10", "20", ""), ("C6", "133", "6", "")])),
        "line 16: state 2 (C6) has target residency 6 us, below the 20 us of C1E: order states by \
         target residency"
    );
    assert_eq!(
        error(&states(&[c1, ("POLL", "2", "2", "flags = [\"polling\"]")])),
        "line 11: state 1 (POLL) polls: only the first state may be a polling state"
    );
    assert_eq!(error(&states(&[c1; 11])), "line 56: 11 idle states: the kernel takes at most 10");
    assert_eq!(
        error(&state("C6", "190", "9e10", "")),
        "line 6: state 0 (C6) declares 90000000000 us, more than a day: check the unit"
    );
    assert_eq!(error(&state("C6", "190", "1e300", "")).split(": ").last(), Some("check the unit"));
    assert_eq!(error("id = \"other\"\n"), "line 5: duplicate key");
    assert_eq!(
        error(&state("C1", "1", "1", "exit_latency = 1")),
        "line 9: unknown field `exit_latency`; did you mean `exit_latency_us`?"
    );
    assert_eq!(
        error(&state("C1", "1", "1", "colour = 1")).split(" one of").next(),
        Some("line 9: unknown field `colour`, expected")
    );
    assert_eq!(
        error(&state("C1", "1", "1", "flags = [\"poling\"]")),
        "line 9: unknown variant `poling`; did you mean `polling`?"
    );
    assert_eq!(
        error(&state("C1", "1", "1", "power_source = \"a paper\"")),
        "line 6: `power_source` without `power_mw`: give both or neither"
    );
    assert_eq!(
        error(&state("C 1", "1", "1", "")),
        "line 6: state name \"C 1\" is empty or has a space, a comma or a slash: use a word"
    );
}

#[test]
fn errors_of_the_header_name_their_line() {
    let error = Machine::from_toml("id = \"toy\"\ntitle = 3\n").unwrap_err().to_string();
    assert_eq!(error, "line 2: invalid type: integer `3`, expected a string");
    let error = Machine::from_toml("").unwrap_err().to_string();
    assert_eq!(error, "line 1: missing field `id`");
}

#[test]
fn finds_states_by_name_in_any_case_or_by_index() {
    let text = states(&[POLL, ("C1", "1", "1", ""), ("ret", "2", "9", ""), ("RET", "3", "9", "")]);
    let machine = machine(&text).unwrap();
    assert_eq!(machine.state_index("poll"), Ok(0));
    assert_eq!(machine.state_index("1"), Ok(1));
    assert_eq!(machine.state_index("RET"), Ok(3));
    assert_eq!(
        machine.state_index("Ret").unwrap_err().to_string(),
        "machine toy has several states Ret: give an index, one of 2, 3"
    );
    assert_eq!(
        machine.state_index("C7").unwrap_err().to_string(),
        "machine toy has no state C7: it has POLL, C1, ret, RET"
    );
    assert!(machine.state_index("4").is_err());
}

/// Powers in milliwatts, rounded to tenths.
fn powers_mw(text: &str) -> Vec<f64> {
    let machine = machine(text).unwrap();
    machine.powers().iter().map(|power| (power.mw * 10.0).round() / 10.0).collect()
}

#[test]
fn default_shape_goes_through_its_points() {
    let text = states(&[
        POLL,
        ("C0.1", "0.1", "0.1", "umwait_state = \"C0.1\""),
        ("C0.2", "0.1", "0.1", "umwait_state = \"C0.2\""),
        ("C1", "1", "1", ""),
        // Half-way between 1 and 4 us in logarithms, so the geometric mean of 1440 and 880 mW.
        ("C1a", "1", "2", ""),
        ("C1E", "2", "4", ""),
        ("C6", "290", "600", ""),
        ("C6P", "290", "800", ""),
    ]);
    assert_eq!(powers_mw(&text), [4000.0, 3600.0, 3280.0, 1440.0, 1125.7, 880.0, 100.0, 90.0]);
}

#[test]
fn assumed_powers_stay_between_published_ones() {
    // C1 would be 1440 mW, but it must stay above C2's published 2000 mW, and C3 below that.
    let text = states(&[
        POLL,
        ("C1", "1", "1", ""),
        ("C2", "2", "2", "power_mw = 2000\npower_source = \"a paper\""),
        ("C3", "3", "3", ""),
        ("C4", "9", "900", "power_mw = 0\npower_source = \"a paper\""),
        ("C5", "9", "900", ""),
    ]);
    assert_eq!(powers_mw(&text), [4000.0, 2828.4, 2000.0, 974.7, 0.0, 0.0]);
    let machine = machine(&text).unwrap();
    assert_eq!(machine.powers()[2].basis, Basis::Calibrated);
    assert_eq!(machine.powers()[3].basis, Basis::Assumed);
    assert_eq!(machine.power_basis(), Basis::Assumed);
}

#[test]
fn a_figure_without_a_source_counts_as_assumed() {
    let basis = |more: &str| machine(&state("C1", "1", "1", more)).unwrap().powers()[0].basis;
    assert_eq!(basis("power_mw = 5"), Basis::Assumed);
    assert_eq!(basis("power_mw = 5\npower_source = \"a paper\""), Basis::Calibrated);
    assert_eq!(basis("power_mw = 5\npower_kind = \"measured\""), Basis::Measured);
    assert_eq!(
        basis("power_mw = 5\npower_kind = \"assumed\"\npower_source = \"x\""),
        Basis::Assumed
    );
}

#[test]
fn doubts_use_names() {
    let text = states(&[
        POLL,
        ("C1", "1", "1", "inferred = [\"exit_latency_us\"]"),
        ("C6N", "300", "275", "power_mw = 0\npower_source = \"s\"\npower_checked = false"),
        ("C6S", "200", "275", "power_mw = 3"),
    ]);
    let doubts = machine(&text).unwrap().doubts();
    let texts: Vec<String> = doubts.iter().map(MachineDoubt::to_string).collect();
    assert_eq!(
        texts,
        [
            "C6N: exit latency above target residency",
            "C6S: exit latency below the shallower state's",
            "C6S: same target residency as the shallower state",
            "C1: inferred, not stated by the source: exit_latency_us",
            "power of C1 assumed: default shape, ratios of an assumed running power of 4000 mW",
            "power of C6S counts as assumed: its file names no source",
            "power of C6N quoted second-hand: read its source before relying on it",
            "power of C6N is zero by construction, not by measurement",
            "C6S: more power than C6N",
        ]
    );
    let minor_count = doubts.iter().filter(|doubt| doubt.rank() == Rank::Minor).count();
    assert_eq!(minor_count, 3, "what is odd in the table, and nothing else");
}

#[test]
fn promotes_only_states_that_a_timer_can_take_a_cpu_out_of() {
    let machine = || bundled("power9").unwrap();
    let withheld = machine().disabled_by_default();
    let mut promoted = machine();
    assert_eq!(promoted.auto_promote("stop0_lite", withheld), Ok(1));
    assert_eq!(promoted.auto_promote("1", withheld), Ok(1));
    assert!(promoted.table().unwrap().get(1).is_auto_promoted);
    let lite = &promoted.states[1];
    assert_eq!(lite.flags, [Flag::StopFast, Flag::AutoPromote], "once, however often it is named");
    assert_eq!(promoted.without_auto_promotion(), machine());
    let refused =
        |state: &str, disabled| machine().auto_promote(state, disabled).unwrap_err().to_string();
    // Only what is enabled counts: stop8 and stop11 are withheld.
    let names = "these can be: stop0_lite, stop0, stop1, stop2, stop4";
    assert_eq!(
        refused("stop5", withheld),
        format!("machine power9 cannot promote stop5: no deeper state is enabled; {names}")
    );
    assert_eq!(
        refused("stop8", withheld),
        format!(
            "machine power9 cannot promote stop8: it is disabled, so no CPU enters it; {names}"
        )
    );
    assert!(refused("snooze", withheld).contains("snooze timeout"));
    assert!(refused("stop99", withheld).contains("it has snooze, stop0_lite"));
    let all_but_one = (1..9).fold(DisabledMask::NONE, |mask, index| mask.with(index));
    assert!(refused("0", all_but_one).ends_with("none of its states can be"));
}

/// A shared state on line 17 of a machine with the states C1 and C6.
fn shared(fields: &str) -> String {
    let states = states(&[("C1", "1", "1", ""), ("C6", "190", "600", "")]);
    states + &domain("PC6", "800", fields)
}

fn domain(name: &str, target_residency_us: &str, fields: &str) -> String {
    format!(
        "[[domain_states]]\nname = \"{name}\"\nexit_latency_us = 100\n\
         target_residency_us = {target_residency_us}\n{fields}\n"
    )
}

const WHOLE: &str = "scope = \"package\"\ncoordination = \"platform\"\nrequires = \"C6\"";

#[test]
fn a_shared_state_is_read_back_as_it_was_written() {
    let whole = machine(&shared(&format!("{WHOLE}\npower_mw = 5\nawake_power_mw = 9"))).unwrap();
    let state = &whole.domain_states[0];
    assert_eq!(
        (state.scope, state.coordination),
        (Some(Scope::Package), Some(Coordination::Platform))
    );
    assert_eq!(Machine::from_toml(&whole.to_toml().unwrap()).unwrap(), whole);
    assert_eq!(whole.anonymous().shared_states().count(), 1);
    // Without a scope it is only listed.
    let listed = machine(&shared("")).unwrap();
    assert_eq!((listed.domain_states.len(), listed.shared_states().count()), (1, 0));
}

#[test]
fn errors_of_shared_states_name_line_cause_and_expectation() {
    let scope = "scope = \"package\"";
    let platform = "coordination = \"platform\"";
    for (fields, message) in [
        (
            "requires = \"C6\"",
            "PC6: `requires` without `scope`: say who shares the state, core, module, cluster or \
             package",
        ),
        (scope, "PC6: `scope` without `coordination`: say who decides, platform or os-initiated"),
        (
            &format!("{scope}\n{platform}"),
            "PC6: `scope` without `requires`: name the state that each CPU must be in",
        ),
        (
            &format!("{scope}\n{platform}\nrequires = \"c6\""),
            "PC6 requires c6, which is not one state: did you mean C6?",
        ),
        (
            &format!("{WHOLE}\npower_mw = 5"),
            "PC6: `power_mw` and `awake_power_mw` are only of use together: give both or neither",
        ),
        (
            &format!("{WHOLE}\npower_mw = 5\nawake_power_mw = 4"),
            "PC6 draws 5 mW, more than the 4 mW of being awake: check the powers",
        ),
    ] {
        assert_eq!(error(&shared(fields)), format!("line 16: {message}"));
    }
    let text = error(&shared("scope = \"socket\""));
    assert!(text.starts_with("line 19: unknown variant `socket`"), "{text}");
    let two = |residency_us: &str, fields: &str| {
        error(&(shared(WHOLE) + &domain("PC7", residency_us, fields)))
    };
    assert_eq!(
        two("700", WHOLE),
        "line 23: PC7 has target residency 700 us, below the 800 us of PC6: order shared states by \
         target residency"
    );
    assert_eq!(
        two("900", &WHOLE.replace("package", "core")),
        "line 23: PC7 has scope core after PC6 with scope package: order shared states from the \
         narrowest scope to the widest"
    );
    assert_eq!(
        two("900", &WHOLE.replace("platform", "os-initiated")),
        "line 23: PC7 and PC6 have one scope and different `coordination`"
    );
}

#[test]
fn exits_without_a_source_or_a_reader_are_doubtful() {
    let mut machine = bundled("spr").unwrap();
    let before = machine.doubts();
    let said = |machine: &Machine| -> Vec<String> {
        let new = machine.doubts().into_iter().filter(|doubt| !before.contains(doubt));
        new.map(|doubt| doubt.to_string()).collect()
    };
    machine.states[3].exit_percentiles_us = vec![[50.0, 100.0]];
    assert_eq!(said(&machine), ["exit latency of C6 counts as assumed: its file names no source"]);
    machine.states[3].exit_source = Some("a paper".to_owned());
    assert_eq!(said(&machine), [""; 0]);
    machine.states[3].exit_checked = Some(false);
    let second_hand = "exit latency of C6 quoted second-hand: read its source before relying on it";
    assert_eq!(said(&machine), [second_hand]);
    // Anonymous, it is known that there was a source.
    let text = machine.anonymous().to_toml().unwrap();
    assert!(text.contains("exit_kind = \"calibrated\"\n") && !text.contains("a paper"), "{text}");
}
