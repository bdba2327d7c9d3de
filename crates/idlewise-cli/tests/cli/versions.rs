//! The version has one place, `[workspace.package]` of Cargo.toml. Files that other programs read as they are repeat it.

use std::fs;

use crate::root;

/// The files, and what stands before and behind the version.
const REPEATED: [(&str, &str, &str); 5] = [
    ("CHANGELOG.md", "\n## ", " "),
    ("Cargo.toml", "version = \"=", "\""),
    ("kernel/dkms.conf", "PACKAGE_VERSION=\"", "\""),
    ("kernel/idlewise_bench.c", "MODULE_VERSION(\"", "\""),
    ("kernel/idlewise_idle.c", "MODULE_VERSION(\"", "\""),
];

/// In the changelog, the newest version comes first.
#[test]
fn the_version_is_the_same_everywhere() {
    for (file, before, behind) in REPEATED {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let newest = text.split(before).skip(1).find(|text| !text.starts_with("Unreleased"));
        let newest = newest.and_then(|text| text.split(behind).next());
        assert_eq!(newest, Some(env!("CARGO_PKG_VERSION")), "{file}");
    }
}
