//! Idle logs written by PyArrow and pandas (`rewritten/README.md`). They are refused for their
//! form, not as damaged, and can be read after the conversion in `docs/rewritten-logs.md`.

use std::path::{Path, PathBuf};

use idlewise_trace::IdleGap;
use idlewise_trace::log::{IdleLog, LogError};

fn path(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rewritten");
    tests.join(name).with_extension("parquet")
}

fn read(path: &Path) -> Result<Vec<IdleGap>, LogError> {
    let log = IdleLog::open(path)?;
    let (mut all, mut gaps) = (Vec::new(), Vec::new());
    for group in log.groups() {
        log.read_group(group, all.last(), &mut gaps)?;
        all.extend_from_slice(&gaps);
    }
    Ok(all)
}

#[test]
fn says_what_another_program_did() {
    for (name, what) in [
        ("snappy", "a column is compressed, but not with Zstandard"),
        ("page-v2", "column cpu: a page is of version 2"),
        ("pandas", "it has no metadata under the key `idlewise`"),
        ("metadata-lost", "it has no metadata under the key `idlewise`"),
        ("nullable", "column cpu has another type, or may have nulls"),
        (
            "delta-strings",
            "column wake_reason: a page is encoded in a way that its column never is",
        ),
    ] {
        let error = read(&path(name)).expect_err(name);
        assert!(matches!(error, LogError::Rewritten { .. }), "{name}: {error:?}");
        let message = error.to_string();
        assert!(message.contains(&format!("as idlewise writes them: {what}; ")), "{message}");
        assert!(message.contains("docs/rewritten-logs.md"), "{message}");
        assert!(!message.contains("damaged"), "{message}");
    }
}

#[test]
fn reads_what_was_converted() {
    let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/a-idle.parquet");
    let original = read(&original).unwrap();
    for name in ["pandas-converted", "snappy-converted"] {
        assert_eq!(read(&path(name)).unwrap(), original[..40], "{name}");
    }
}
