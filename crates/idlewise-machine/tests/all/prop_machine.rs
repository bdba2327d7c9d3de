//! However a machine file is changed, reading it gives a machine or a one-line error.

use idlewise_machine::Machine;
use proptest::prelude::*;

const FILES: [&str; 3] = [
    include_str!("../../../../machines/spr-c02.toml"),
    include_str!("../../../../machines/pixel6-x1.toml"),
    include_str!("../../../../machines/power9-stop0lite.toml"),
];

/// What a careless or malicious person might insert.
const INSERTS: [&str; 14] = [
    "-",
    "\"",
    "[",
    "]]",
    "\n",
    "=",
    "nan",
    "-inf",
    "1e308",
    "99999999999999999999",
    "\u{0}",
    "é",
    "[[states]]\n",
    "flags = [\"polling\"]\n",
];

fn check(text: &str) -> Result<(), TestCaseError> {
    match Machine::from_toml(text) {
        Ok(machine) => {
            // The rest of the interface must work for whatever was accepted.
            let _ = machine.doubts();
            prop_assert_eq!(machine.check(), Ok(()));
            for power in machine.powers() {
                prop_assert!(power.mw.is_finite() && power.mw >= 0.0);
            }
            for (index, state) in machine.states.iter().enumerate() {
                prop_assert!(
                    machine.state_index(&state.name) == Ok(index)
                        || machine.state_index(&index.to_string()).is_ok()
                );
            }
            prop_assert_eq!(machine.table().is_err(), machine.states.is_empty());
        }
        Err(error) => prop_assert!(!error.to_string().contains('\n'), "one line: {}", error),
    }
    Ok(())
}

/// The nearest position at or before `offset` where `text` can be split.
fn boundary(text: &str, offset: usize) -> usize {
    (0..=offset.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

proptest! {
    #[test]
    fn mutated_files_never_panic(
        file in 0..FILES.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, 0..INSERTS.len()), 1..4),
    ) {
        let mut text = FILES[file].to_owned();
        for (place, removed_count, insert) in edits {
            let start = boundary(&text, place.index(text.len() + 1));
            let end = boundary(&text, start + removed_count).max(start);
            text.replace_range(start..end, INSERTS[insert]);
        }
        check(&text)?;
    }

    #[test]
    fn changed_numbers_never_panic(file in 0..FILES.len(), line in any::<prop::sample::Index>(), value in any::<f64>()) {
        let mut lines: Vec<String> = FILES[file].lines().map(str::to_owned).collect();
        let numeric: Vec<usize> =
            (0..lines.len()).filter(|i| lines[*i].contains("_us = ") || lines[*i].contains("_mw = ")).collect();
        let index = numeric[line.index(numeric.len())];
        let (name, _) = lines[index].split_once(" = ").expect("it was chosen for that");
        lines[index] = format!("{name} = {value:?}");
        check(&lines.join("\n"))?;
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,80}") {
        check(&text)?;
    }
}
