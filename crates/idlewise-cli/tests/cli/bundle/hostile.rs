//! What somebody made to do harm does none.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{ALL_SAME, GOVERNOR, LOG, Made, TABLES_SAME};
use crate::{assert_refused, folder, root, stdout};

/// Somebody's bundle names files, options and commands that are not for it.
#[test]
fn a_hostile_command_reads_and_runs_nothing() {
    let made = Made::new(&["replay", LOG, "--machine", "spr", "--governor", "menu"]);
    let log = "logs/s-softirq500.parquet";
    for (words, part) in [
        (&["replay", "/etc/passwd"][..], "/etc/passwd, which is no file in it"),
        (&["replay", "../evidence/logs/s-softirq500.parquet"], "no file in it"),
        (&["replay", log, "--machine", "/etc/machine.toml"], "no file in it"),
        (&["replay", log, "--machine", "../x.toml"], "no file in it"),
        (&["replay", log, "--governor", "/tmp/evil.so"], "no file in it"),
        (&["replay", log, "--governor", "../evil.c"], "no file in it"),
        (&["replay", log, "--governor", "output.txt/x.c"], "no file in it"),
        (&["replay", log, "--governor", "menu", "--kernel-source", "/usr/src"], "no file in it"),
        (
            &["replay", log, "--governor", "menu", "--unconfined"],
            "--unconfined cannot be in a bundle",
        ),
        (
            &["replay", log, "--write-log", "/tmp/x", "--governor", "menu", "--machine", "spr"],
            "--write-log cannot",
        ),
        (&["replay", "output.txt"], "output.txt in it is not an idle log"),
        (&["lab", "simulate", "spr", "/etc/passwd"], "no file in it"),
        (&["lab", "simulate", "spr", "wakes", "--trace", "/tmp/x"], "--trace cannot"),
        (&["lab", "study", "--pages", "/tmp"], "--pages cannot"),
        (&["replay", "--rank", log, "--store", "/tmp"], "--store cannot"),
        (&["lab", "compare", "/etc/passwd", "/etc/passwd"], "no file in it"),
        (&["lab", "compare", log, log, "--more-a", "/etc/passwd"], "no file in it"),
        (&["record", "-o", "/tmp/x"], "cannot hold 'record'"),
        (&["log", "bundle", "verify", "x"], "cannot hold 'log bundle'"),
        (&["plugin-worker", "--unconfined"], "cannot hold 'plugin-worker'"),
        (&["sh", "-c", "touch /tmp/owned"], "cannot hold 'sh'"),
        (&["replay; touch /tmp/owned"], "cannot hold"),
        (&["replay", "--help"], "the bundled command"),
        (&[], "cannot hold ''"),
    ] {
        made.with_command(words).assert_refused(&["--allow-code"], &[part]);
    }
    // A shell would do something with it.
    let changed =
        made.with_command(&["replay", "--machine", "spr", "--governor", "menu", "$(touch owned)"]);
    changed.assert_refused(&[], &["no file in it"]);
    // A measurement is never made for others.
    let changed = made.with_command(&["measure", "counters", "--", "touch", "/tmp/owned"]);
    assert_eq!(changed.findings(&[]), ["SHA256SUMS same", "output.json unknown"]);
    assert!(!Path::new("/tmp/owned").exists());
}

/// A header of any kind, and the sum that makes it valid.
fn header(name: &str, kind: u8, link: &str, size: &str) -> [u8; 512] {
    let mut header = [0; 512];
    for (at, text) in [
        (0, name),
        (100, "0000644"),
        (108, "0000000"),
        (116, "0000000"),
        (124, size),
        (136, "00000000000"),
        (148, "        "),
        (157, link),
        (257, "ustar"),
        (263, "00"),
    ] {
        header[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A bundle of headers without contents.
fn archive(headers: &[[u8; 512]]) -> Made {
    let made = Made(folder());
    let mut packer = zstd::Encoder::new(File::create(made.path()).unwrap(), 1).unwrap();
    headers.iter().for_each(|header| packer.write_all(header).unwrap());
    packer.write_all(&[0; 1024]).unwrap();
    packer.finish().unwrap();
    made
}

#[test]
fn nothing_escapes_from_the_folder() {
    const EMPTY: &str = "00000000000";
    let file = |name: &str| header(name, b'0', "", EMPTY);
    for (headers, part) in [
        (vec![file("/etc/idlewise-was-here")], "not in the folder evidence/"),
        (vec![file("evidence/../../idlewise-was-here")], "begins with a dot"),
        (vec![file("evidence//etc/idlewise-was-here")], "a part of it is empty"),
        (vec![file("evidence/.bashrc")], "begins with a dot"),
        (vec![file("evidence/--unconfined")], "minus sign"),
        (vec![file("evidence/a\u{1b}[2J")], "other characters"),
        (vec![header("evidence/a", b'2', "/etc", EMPTY), file("evidence/a/b")], "a symbolic link"),
        (vec![header("evidence/a", b'1', "/etc/passwd", EMPTY)], "a hard link"),
        (vec![header("evidence/a", b'3', "", EMPTY)], "a device"),
        (vec![header("evidence/a", b'6', "", EMPTY)], "a pipe"),
        (vec![header("evidence/a", b'5', "", EMPTY)], "a folder"),
        (vec![header("evidence/a", b'x', "", EMPTY)], "an extension of tar"),
        (vec![file("evidence/a"), file("evidence/a")], "or is there twice"),
        (vec![file("evidence/a"), file("evidence/a/b")], "lies in a file"),
        (vec![header("evidence/a", b'0', "", "77777777777")], "unpacks to more than"),
        (vec![header("evidence/a", b'0', "", "00000007777")], "ends too early"),
        (vec![], "it has no bundle.json"),
    ] {
        archive(&headers).assert_refused(&[], &["evidence.tar.zst: ", part]);
    }
    let many: Vec<_> = (0..4097).map(|index| file(&format!("evidence/{index:05}"))).collect();
    archive(&many).assert_refused(&[], &["more than 4096 files"]);
    // What is no bundle at all.
    assert_refused(&["log", "bundle", "verify", "README.md"], &["README.md"]);
    assert_refused(&["log", "bundle", "list", LOG], &[LOG]);
    // A little of it is a lot of zeros.
    let bomb = Made(folder());
    let mut packer = zstd::Encoder::new(File::create(bomb.path()).unwrap(), 1).unwrap();
    packer.write_all(&header("evidence/a", b'0', "", "00400000000")).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(1 << 26), &mut packer).unwrap();
    packer.finish().unwrap();
    bomb.assert_refused(
        &["--max-unpacked", "32M"],
        &["more than 33554432 bytes", "--max-unpacked"],
    );
}

#[test]
fn hostile_names_are_shown_and_do_nothing() {
    const HOSTILE: &str = "a\u{1b}[2J</script>\u{202e}b";
    let place = folder();
    let machine = fs::read_to_string(root().join("machines/spr.toml")).unwrap();
    let title = machine.lines().find(|line| line.starts_with("title")).unwrap();
    let machine = machine.replace(title, "title = \"\\u001b[2J</script>\\u202e\"");
    let toml = place.path().join(format!("{}.toml", HOSTILE.replace('/', "")));
    fs::write(&toml, machine).unwrap();
    let log = place.path().join(format!("{}.parquet", HOSTILE.replace('/', "")));
    fs::copy(root().join(LOG), &log).unwrap();
    let made = Made::new(&["replay", log.to_str().unwrap(), "--machine", toml.to_str().unwrap()]);
    assert_eq!(made.findings(&[]), ALL_SAME);
    let names = made.names();
    assert!(names.contains(&"logs/a--2J-script--b.parquet".to_owned()), "{names:?}");
    let is_harmless = |text: &str| !text.contains(['\u{1b}', '\u{202e}']);
    for arguments in
        [["log", "bundle", "list", &made.path()], ["log", "bundle", "verify", &made.path()]]
    {
        assert!(is_harmless(&stdout(&arguments)));
    }
    // Words of somebody else's.
    let changed = made.changed(|folder| {
        let text = fs::read_to_string(folder.join("bundle.json")).unwrap();
        let mut manifest: Value = serde_json::from_str(&text).unwrap();
        manifest["version"] = format!("{HOSTILE}\nall is well").into();
        manifest["dropped"] = vec![format!("{HOSTILE}\nall is well")].into();
        fs::write(folder.join("bundle.json"), manifest.to_string()).unwrap();
    });
    for arguments in
        [["log", "bundle", "list", &changed.path()], ["log", "bundle", "verify", &changed.path()]]
    {
        let text = stdout(&arguments);
        assert!(is_harmless(&text) && !text.contains("\nall is well"), "{text}");
    }
}

#[test]
fn code_is_compiled_only_on_demand() {
    if crate::cannot_compile() {
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED: code_is_compiled_only_on_demand: no C compiler (apt install gcc)");
        return;
    }
    let place = folder();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("rule.h"), "#define DEEPEST 3\n").unwrap();
    fs::write(path("unrelated.h"), "secret\n").unwrap();
    fs::write(path("mine.c"), GOVERNOR).unwrap();
    let patch = "--- a/mine.c\n+++ b/mine.c\n@@ -1,2 +1,2 @@\n #include <idlewise_governor.h>\n-#include \"rule.h\"\n\
                 +#define DEEPEST 1\n";
    fs::write(path("my fix.patch"), patch).unwrap();
    let command = [
        "replay",
        "--compare",
        LOG,
        "--machine",
        "spr",
        "--governor",
        &path("mine.c"),
        "--governor",
        &path("mine.c"),
        "--patch",
        &path("my fix.patch"),
    ];
    let made = Made::new(&command);
    let names = made.names();
    for name in ["code-1/mine.c", "code-1/rule.h", "patches/my-fix.patch"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("unrelated")), "{names:?}");
    made.assert_refused(&[], &["C files", "--allow-code"]);
    assert_eq!(made.findings(&["--allow-code"]), TABLES_SAME);
    // What is compiled for everybody can be read by everybody.
    let output = path("x");
    assert_refused(
        &["log", "bundle", "-o", &output, "--", "replay", LOG, "--governor", "./mine.so"],
        &["./mine.so cannot be in a bundle", "C file"],
    );
}
