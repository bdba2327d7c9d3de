//! `idlewise lab verify sources`: what needs no kernel source. `make conformance` tests the rest.

use crate::{assert_refused, folder};

#[test]
fn a_folder_that_is_no_source_is_refused() {
    let folder = folder();
    let path = folder.path().to_str().unwrap();
    assert_refused(&["lab", "verify", "sources", path], &["not a kernel's source", "Makefile"]);
    let makefile = folder.path().join("Makefile");
    std::fs::write(&makefile, "VERSION = 6\nPATCHLEVEL = 8\nSUBLEVEL = 1\n").unwrap();
    assert_refused(
        &["lab", "verify", "sources", path],
        &["no ports of Linux 6.6's governors", "6.12"],
    );
    std::fs::write(&makefile, "VERSION = 5\nPATCHLEVEL = 4\n").unwrap();
    assert_refused(&["lab", "verify", "sources", path], &["no headers for Linux '5.4'"]);
}
