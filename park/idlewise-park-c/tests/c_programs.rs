//! Builds C and C++ programs against the header and both libraries, as in an installation.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

// This makes cargo build the libraries.
use idlewise_park_c as _;

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where cargo puts the libraries: beside the test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

#[expect(clippy::print_stdout, reason = "a test that can't run says so")]
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED: {program} is not installed");
    }
    found
}

fn cc(compiler: &str, standard: &str, to: &Path, rest: &[&str]) {
    let flags = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", standard, "-pthread"];
    let mut command = Command::new(compiler);
    command.args(flags).arg("-I").arg(source("include")).arg("-o").arg(to);
    run(command.args(rest));
}

#[test]
fn a_program_runs_with_the_shared_and_with_the_static_library() {
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = source("tests/program.c");
    let program = program.to_str().unwrap();
    let libraries = libraries();

    let shared = folder.path().join("shared");
    // As in an installation: one name for linking programs, and one that they look for.
    let so = libraries.join("libidlewise_park_c.so");
    for name in ["libidlewise_park.so", "libidlewise_park.so.0"] {
        std::os::unix::fs::symlink(&so, folder.path().join(name)).unwrap();
    }
    let found_in = folder.path().to_str().unwrap();
    cc("gcc", "-std=c11", &shared, &[program, "-L", found_in, "-lidlewise_park"]);
    assert_eq!(run(Command::new(&shared).env("LD_LIBRARY_PATH", found_in)), "ok\n");

    let fixed = folder.path().join("static");
    let archive = libraries.join("libidlewise_park_c.a");
    let archive = archive.to_str().unwrap();
    cc("gcc", "-std=c11", &fixed, &[program, archive, "-ldl", "-lm"]);
    assert_eq!(run(&mut Command::new(&fixed)), "ok\n");
}

/// Installs the way a package is built: into a folder that stands for the root, with another prefix.
#[test]
fn an_installation_is_found_by_pkg_config() {
    if !has("gcc") || !has("pkg-config") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let libraries = libraries();
    // The other crate's library may not have been built. Only its name matters here.
    let from = folder.path().join("from");
    std::fs::create_dir(&from).unwrap();
    for name in ["libidlewise_park_c.so", "libidlewise_park_c.a"] {
        std::os::unix::fs::symlink(libraries.join(name), from.join(name)).unwrap();
    }
    std::fs::write(from.join("libidlewise_preload.so"), "").unwrap();
    let root = folder.path().join("root");
    let mut install = Command::new(source("../../scripts/install-park"));
    let said = run(install.arg(&from).env("DESTDIR", &root).env("PREFIX", "/opt/idle"));
    assert!(said.contains("opt/idle: include/idlewise_park.h"), "{said}");
    let mut found = Command::new("pkg-config");
    found.env("PKG_CONFIG_PATH", root.join("opt/idle/lib/pkgconfig"));
    found.env("PKG_CONFIG_SYSROOT_DIR", &root);
    let flags = run(found.args(["--cflags", "--libs", "idlewise-park"]));
    let program = folder.path().join("program");
    let mut command = Command::new("gcc");
    command.args(["-std=c11", "-pthread", "-o"]).arg(&program).arg(source("tests/program.c"));
    run(command.args(flags.split_whitespace()));
    let mut program = Command::new(&program);
    assert_eq!(run(program.env("LD_LIBRARY_PATH", root.join("opt/idle/lib"))), "ok\n");
}

#[test]
fn the_header_is_c99_and_cpp() {
    if !has("gcc") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text =
        "#include \"idlewise_park.h\"\nint main(void) { return (int)(IDLEWISE_FOREVER == 0); }\n";
    for (compiler, standard, name) in [("gcc", "-std=c99", "a.c"), ("g++", "-std=c++11", "a.cc")] {
        if !has(compiler) {
            continue;
        }
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        cc(compiler, standard, &folder.path().join("out"), &["-c", path.to_str().unwrap()]);
    }
}

/// The library exports exactly what the header declares.
#[test]
fn header_and_library_have_the_same_functions() {
    if !has("nm") {
        return;
    }
    let so = libraries().join("libidlewise_park_c.so");
    let symbols = run(Command::new("nm").args(["-D", "--defined-only"]).arg(so));
    let exported: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = std::fs::read_to_string(source("include/idlewise_park.h")).unwrap();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    let code: String = code.collect();
    let declared: BTreeSet<&str> = code
        .match_indices('(')
        .filter_map(|(at, _)| {
            let start = code[..at].rfind(|c| !is_name(c)).map_or(0, |before| before + 1);
            Some(&code[start..at]).filter(|name| name.starts_with("idlewise_"))
        })
        .collect();
    assert_eq!(exported, declared);
    assert!(declared.len() > 10, "{declared:?}");
}
