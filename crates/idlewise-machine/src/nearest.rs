//! Suggestions for mistyped names.
//!
//! Case is ignored here, so that `TEO` gets the suggestion `teo`. It is not accepted: results, bundles and scripts
//! have the one spelling by which the kernel, too, knows a governor, and its driver a state. Only the machines of
//! `machines/` and the states of a replay or a measurement, which stay among us, are found in any case.

/// Longer ones have no suggestion.
const NAME_BYTE_COUNT_MAX: usize = 200;

/// Returns the candidate that `name` was probably meant to be, or `None` if none is close. A close one
/// differs by at most one edit for every three characters of `name`, apart from case.
///
/// ```
/// use idlewise_machine::nearest_name;
///
/// assert_eq!(nearest_name("meun", ["teo", "menu"]), Some("menu"));
/// assert_eq!(nearest_name("TEO", ["teo", "menu"]), Some("teo"));
/// assert_eq!(nearest_name("oracle", ["teo", "menu"]), None);
/// assert_eq!(nearest_name(&"x".repeat(500_000), ["teo", &"x".repeat(499_999)]), None);
/// ```
pub fn nearest_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A long text is no misspelt name, and comparing takes as long as both are.
    if name.len() > NAME_BYTE_COUNT_MAX {
        return None;
    }
    let lower = name.to_lowercase();
    let scored = candidates.into_iter().map(|candidate| {
        (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate)
    });
    let close = scored.filter(|(edit_count, _)| *edit_count <= name.len().div_ceil(3));
    close.min_by_key(|(edit_count, _)| *edit_count).map(|(_, candidate)| candidate)
}

/// What to do about an unknown name: suggests the most similar one, if any is close.
pub fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    match nearest_name(name, known) {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => otherwise.to_owned(),
    }
}

/// What to say of an unknown state before the list of all: `did you mean 'C6'? `, or nothing. Another number is another
/// state, not a misspelt one. The state itself may be known, of other CPUs.
///
/// ```
/// use idlewise_machine::state_hint;
///
/// assert_eq!(state_hint("C6s", ["C1", "C6"]), "did you mean 'C6'? ");
/// assert_eq!(state_hint("C7", ["C1", "C6"]), "");
/// assert_eq!(state_hint("C8", ["C1", "C8"]), "");
/// ```
pub fn state_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let blurred = |name: &str| name.to_lowercase().replace(|c: char| c.is_ascii_digit(), "#");
    let known = known.into_iter().filter(|known| {
        *known != name && (blurred(known) != blurred(name) || known.eq_ignore_ascii_case(name))
    });
    hint_before(name, known)
}

/// The same of any unknown name.
pub fn hint_before<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match did_you_mean(name, known, "") {
        hint if hint.is_empty() => hint,
        hint => hint + " ",
    }
}
