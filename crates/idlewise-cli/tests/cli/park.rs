//! `idlewise measure park` with what was measured before. What measures is in `park/`, and so are its tests.

use crate::{assert_refused, stdout};

/// A saved measurement becomes a page with figures and plots. Repeating that changes nothing.
#[test]
fn makes_a_page_of_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.md");
    let page = page.to_str().unwrap();
    let saved = "crates/idlewise-cli/tests/golden/park-result.json";
    stdout(&["measure", "park", "--from", saved, "--page", page]);
    let files = || {
        ["page.md", "page.json", "page-poisson-20.svg"]
            .map(|name| std::fs::read_to_string(folder.path().join(name)).expect(name))
    };
    let first = files();
    assert!(first[0].contains("](page-poisson-20.svg)"), "{}", first[0]);
    let figures = folder.path().join("page.json");
    let figures = figures.to_str().unwrap();
    assert_refused(&["measure", "park", "--from", figures, "--page", page], &["exists", "--force"]);
    stdout(&["measure", "park", "--from", figures, "--page", page, "--force"]);
    assert!(files() == first, "a page of the same figures differs");
    let (status, message) = crate::failure(&["measure", "park", "--from", page]);
    assert_eq!(status, Some(2));
    assert!(message.contains("page.md: no JSON: "), "{message}");
    let (_, message) = crate::failure(&["measure", "park", "--from", saved, "--page", "page.html"]);
    assert!(message.contains("page.html: name a file that ends in .md"), "{message}");
    let both = ["measure", "park", "--from", saved, "--wakes", "100"];
    assert_eq!(crate::failure(&both).0, Some(2));
}

#[test]
fn says_who_measures() {
    let arguments = ["measure", "park", "--wakes", "100", "--runs", "1"];
    assert_refused(&arguments, &["does not measure ways to wait", "idlewise-park-bench"]);
}
