//! The examples in the helps of `idlewise log`, run as a user would: one after the other, in a folder that has only
//! the recordings and measurements that they name.

use std::fs;
use std::process::Command;

use crate::{folder, root, stdout, unpacked};

/// The commands of `idlewise` among the examples. Others, such as perf, only make what those read.
fn examples(command: &str) -> Vec<String> {
    let help = stdout(&["log", command, "--help"]).replace("\\\n", "");
    let (_, examples) = help.split_once("Examples:\n").unwrap();
    let lines = examples.lines().filter(|line| line.starts_with("  ") && !line.contains("# "));
    lines.filter_map(|line| Some(line[line.find("idlewise log")?..].to_owned())).collect()
}

#[test]
fn the_examples_of_log_run_one_after_the_other() {
    let folder = folder();
    let place = folder.path();
    let perf = unpacked("a-idle.perf.data");
    let saved = root().join("crates/idlewise-cli/tests/saved");
    let packed = root().join("traces/a-idle.perf.data.xz");
    for (name, bytes) in [
        ("cut.perf.data", perf[..perf.len() / 2].to_vec()),
        ("short.perf.data", perf.clone()),
        ("perf.data", perf),
        ("server.perf.data.xz", fs::read(packed).unwrap()),
        ("trace.dat", unpacked("k-pingpong-v7.trace.dat")),
        ("live.txt", unpacked("l-pingpong.tracefs.txt")),
        ("report.txt", unpacked("k-pingpong-v7.trace-cmd-report.txt")),
        ("run.dat", unpacked("c-pingpong.trace.dat")),
        ("halt.json", fs::read(saved.join("halt.json")).unwrap()),
        ("mwait.json", fs::read(saved.join("mwait.json")).unwrap()),
    ] {
        fs::write(place.join(name), bytes).unwrap();
    }
    let mut run_count = 0;
    for command in ["import", "export", "anonymize", "bundle", "validate"] {
        // Those with a patch need the source of a kernel.
        for line in examples(command).iter().filter(|line| !line.contains("patch")) {
            let shell = line.replace("idlewise ", concat!(env!("CARGO_BIN_EXE_idlewise"), " "));
            let output = Command::new("sh").args(["-c", &shell]).current_dir(place).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("idlewise:"), "{line}: {said}");
            run_count += 1;
        }
    }
    assert!(run_count >= 20, "only {run_count} examples");
}
