//! The guide: every page is in its table of contents, and every link in the repository is valid.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// All pages of the project: the guide and each folder's README.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    files(&root(), &mut pages);
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages
}

/// Adds a file, or all files of a folder but those that we did not write.
pub fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        found.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Expected outputs of tests are pages of other folders.
        let is_others = ["target", "tests", "node_modules"].contains(&name.as_str());
        if !name.starts_with('.') && !is_others && !path.is_symlink() {
            files(&path, found);
        }
    }
}

/// The links of a page: targets of `](...)` outside of code.
fn links(text: &str) -> Vec<String> {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_fence && !is_code
    });
    let mut links = Vec::new();
    for line in lines {
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for part in prose.split("](").skip(1) {
            links.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    links
}

/// The anchors of a page, as GitHub and mdBook derive them from headings.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let names = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    names.map(|name| name.replace(' ', "-").chars().filter(|&c| kept(c)).collect()).collect()
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 20, "only {} pages", pages.len());
    let mut broken = Vec::new();
    for page in &pages {
        for link in links(&fs::read_to_string(page).unwrap()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let leads = target.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&target).unwrap()).iter().any(|a| a == anchor));
            if !leads {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_guide_has_every_page_once() {
    let guide = root().join("docs");
    let contents = links(&fs::read_to_string(guide.join("SUMMARY.md")).unwrap());
    for page in pages() {
        let Ok(name) = page.strip_prefix(&guide) else { continue };
        let name = name.to_str().unwrap();
        let count = contents.iter().filter(|link| *link == name).count();
        // mdBook rejects a page that is listed twice.
        let is_right = count == 1 || name == "SUMMARY.md";
        assert!(is_right, "docs/SUMMARY.md lists {name} {count} times");
    }
}

/// What a new user reads: the introduction, and the pages of the part "Guide" in the table of contents.
#[test]
fn the_path_of_a_reader_is_short() {
    let guide = root().join("docs");
    let contents = fs::read_to_string(guide.join("SUMMARY.md")).unwrap();
    let (path, _) =
        contents.split_once("\n# Reference").expect("the guide ends where the reference begins");
    let pages = links(path);
    assert!((5..=8).contains(&pages.len()), "{pages:?}");
    for page in pages {
        let count = fs::read_to_string(guide.join(&page)).unwrap().split_whitespace().count();
        assert!(
            count <= 700,
            "{page} has {count} words: move what few readers need to a reference page"
        );
    }
}
