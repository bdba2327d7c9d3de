//! Suggestions for mistyped names.

/// Returns the candidate that `name` was probably meant to be, or `None` if none is close. A close one
/// differs by at most one edit for every three characters of `name`.
///
/// ```
/// use idlewise_machine::nearest_name;
///
/// assert_eq!(nearest_name("meun", ["teo", "menu"]), Some("menu"));
/// assert_eq!(nearest_name("oracle", ["teo", "menu"]), None);
/// ```
pub fn nearest_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate));
    let close = scored.filter(|(edit_count, _)| *edit_count <= name.len().div_ceil(3));
    close.min_by_key(|(edit_count, _)| *edit_count).map(|(_, candidate)| candidate)
}
