//! `idlewise lab verify decisions`.

use std::fs;

use crate::{OwnFile, assert_refused, idlewise, root, stdout};

const LOG: &str = "conformance/decisions/6.12-menu-spr-hz250.csv.xz";

fn unpacked() -> String {
    let packed = fs::File::open(root().join(LOG)).unwrap();
    std::io::read_to_string(liblzma::read::XzDecoder::new(packed)).unwrap()
}

#[test]
fn passes_what_the_kernel_decided() {
    assert!(stdout(&["lab", "verify", "decisions", LOG]).contains("3000"));
}

#[test]
fn shows_the_first_mismatch_and_fails() {
    let output = idlewise(&["lab", "verify", "decisions", LOG, "--governor", "menu+min"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("first mismatch in row 21"), "{text}");
    assert!(text.contains("tick_stopped"), "the inputs are shown:\n{text}");
}

#[test]
fn refuses_a_damaged_log_and_a_nameless_one() {
    let tables = root().join("conformance/decisions/tables.csv");
    let tables = tables.to_str().unwrap();
    let broken = unpacked().replacen(",timer,", ",timer,x", 1).replacen("\n10,", "\n10,\"", 1);
    let file = OwnFile::new("6.12-menu-spr-hz250.csv", broken);
    assert_refused(
        &["lab", "verify", "decisions", file.path(), "--tables", tables],
        &["6.12-menu-spr-hz250.csv"],
    );
    let nameless = OwnFile::new("log.csv", unpacked());
    assert_refused(&["lab", "verify", "decisions", nameless.path()], &["log.csv", "--governor"]);
}
