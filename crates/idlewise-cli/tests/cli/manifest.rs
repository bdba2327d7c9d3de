//! traces/MANIFEST.toml: every file in traces/ has a row, and every row is correct.

use std::collections::BTreeSet;
use std::fs;

use idlewise_trace::log::IdleLog;

use crate::root;

#[test]
fn every_trace_has_a_row_and_every_row_is_true() {
    let folder = root().join("traces");
    let text = fs::read_to_string(folder.join("MANIFEST.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let mut listed = BTreeSet::from(["MANIFEST.toml".to_owned(), "symbols.tsv".to_owned()]);
    for row in manifest["recording"].as_array().unwrap() {
        let field = |name: &str| row[name].as_str().unwrap_or_else(|| panic!("{name} in {row:?}"));
        for name in ["origin", "licence", "command", "workload", "kernel", "clock", "units"] {
            assert!(!field(name).is_empty(), "{name} of {row:?}");
        }
        let bytes = fs::read(folder.join(field("file"))).unwrap();
        assert_eq!(blake3::hash(&bytes).to_hex().as_str(), field("blake3"), "{}", field("file"));
        listed.insert(field("file").to_owned());
        let folder_of_own = crate::folder();
        let log = match row.get("log") {
            Some(log) => {
                listed.insert(log.as_str().unwrap().to_owned());
                folder.join(log.as_str().unwrap())
            }
            None => {
                let log = folder_of_own.path().join("log.parquet");
                let recording = format!("traces/{}", field("file"));
                crate::stdout(&["log", "import", &recording, "-o", log.to_str().unwrap()]);
                log
            }
        };
        let log = IdleLog::open(&log).unwrap();
        // A text recording does not name its kernel.
        let kernel = log.metadata.kernel.as_deref();
        assert!(kernel.is_none_or(|kernel| kernel == field("kernel")), "{row:?}");
        assert_eq!(log.metadata.clock.as_deref(), Some(field("clock")));
        assert_eq!(log.gap_count(), row["gap_count"].as_integer().unwrap() as u64);
    }
    let found: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, listed);
}
