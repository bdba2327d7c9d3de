//! What is verified comes out the same, anywhere, and what was changed is found.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use idlewise_lab::bundle;
use serde_json::Value;

use super::{ALL_SAME, LOG, Made, TABLES_SAME, paths_below};
use crate::{folder, idlewise, stdout, user};

#[test]
fn a_replay_comes_out_the_same() {
    let made = Made::new(&["replay", LOG, "--machine", "spr"]);
    assert_eq!(made.findings(&[]), ALL_SAME);
    let text = stdout(&["log", "bundle", "verify", &made.path()]);
    assert!(text.contains("\noutput.csv    the same, byte for byte\n"), "{text}");
    assert!(
        text.contains("Command: idlewise replay --machine spr logs/s-softirq500.parquet"),
        "{text}"
    );
    // It is what a user gets who replays the log in it.
    let folder = made.unpacked();
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["replay", "--machine", "spr", "logs/s-softirq500.parquet"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!(output.stdout, fs::read(folder.join("output.txt")).unwrap());
    // The figures are those of the log that it was made from, whose names are gone.
    let csv = stdout(&["replay", LOG, "--machine", "spr", "--csv"]);
    assert_eq!(csv.as_bytes(), fs::read(folder.join("output.csv")).unwrap());
}

/// Bundles of earlier versions have the names that commands had.
#[test]
fn old_names_in_a_bundle_are_understood() {
    let two = ["--machine", "spr", "--governor", "menu", "--governor", "teo"];
    let compared = Made::new(&[&["replay", "--compare", LOG], &two[..]].concat());
    let ranked = Made::new(&[&["replay", "--rank", LOG], &two[..]].concat());
    let simulated = Made::new(&["lab", "simulate", "spr", "wakes", "--duration-ms", "1"]);
    let log = "logs/s-softirq500.parquet";
    let of = |name: &'static str| [&[name], &two[..], &[log]].concat();
    let simulate = ["simulate", "--duration-ms", "1", "spr", "wakes"];
    for (made, old) in [(compared, &of("diff")[..]), (ranked, &of("arena")), (simulated, &simulate)]
    {
        let expected = made.findings(&[]);
        let old = made.with_command(old);
        assert_eq!(old.findings(&[]), expected);
        let verified = idlewise(&["log", "bundle", "verify", &old.path()]);
        assert!(verified.stderr.is_empty(), "nobody typed the old name");
    }
}

/// Hints in outputs name commands. They count as the same only in another version.
#[test]
fn old_names_in_outputs_of_another_version_are_no_difference() {
    let made = Made::new(&["lab", "simulate", "spr", "wakes", "--duration-ms", "1"]);
    let with = |version: Option<&str>, from: &str, to: &str| {
        let changed = made.changed(|folder| {
            let edit = |name: &str, change: &dyn Fn(&str) -> String| {
                let path = folder.join(name);
                fs::write(&path, change(&fs::read_to_string(&path).unwrap())).unwrap();
            };
            edit("output.json", &|text| {
                assert!(text.contains(from), "{text}");
                text.replacen(from, to, 1)
            });
            edit("bundle.json", &|text| {
                let mut manifest: Value = serde_json::from_str(text).unwrap();
                version.iter().for_each(|&version| manifest["version"] = version.into());
                manifest.to_string()
            });
        });
        changed.findings(&[]).contains(&"output.json same".to_owned())
    };
    let (new, old) = ("`idlewise lab simulate --list`", "`idlewise simulate --list`");
    assert!(with(Some("0.0.9"), new, old));
    assert!(!with(None, new, old));
    assert!(!with(Some("0.0.9"), "\"seed\"", "\"seeds\""));
}

#[test]
fn a_comparison_a_simulation_and_a_study_come_out_the_same() {
    let made = Made::new(&[
        "replay",
        "--compare",
        LOG,
        "--machine",
        "spr",
        "--governor",
        "menu",
        "--governor",
        "teo",
    ]);
    assert_eq!(made.findings(&[]), TABLES_SAME);
    let made = Made::new(&[
        "replay",
        "--rank",
        LOG,
        "--machine",
        "spr",
        "--governor",
        "menu",
        "--governor",
        "teo",
    ]);
    assert_eq!(made.findings(&[]), TABLES_SAME);
    let without_csv = &TABLES_SAME[..3];
    let made =
        Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "20", "--seed", "7"]);
    assert_eq!(made.findings(&[]), without_csv);
    let made = Made::new(&["lab", "simulate", "spr", LOG, "--governor", "menu"]);
    assert_eq!(made.findings(&[]), without_csv);
    assert!(made.names().contains(&"logs/s-softirq500.parquet".to_owned()));
    let made = Made::new(&["lab", "study", "promotion"]);
    assert_eq!(made.findings(&[]), without_csv);
    // A recording with causes becomes a workload log.
    let recording = "traces/c-pingpong.trace.dat.xz";
    let made = Made::new(&["predict", recording, "--governor", "menu", "--disable", "C6"]);
    assert_eq!(made.findings(&[]), TABLES_SAME);
    assert!(made.names().contains(&"logs/c-pingpong.parquet".to_owned()));
}

/// The needed libraries, one `SOURCE` for each that the loader names.
fn libraries(program: &str) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

/// Where nothing is but the binary, its libraries and a folder for temporary files: no home, no proc, no
/// compiler, no source tree.
#[test]
fn it_is_verified_in_an_empty_root() {
    let made = Made::new(&["replay", LOG, "--machine", "spr", "--governor", "menu"]);
    let place = folder();
    let binary = env!("CARGO_BIN_EXE_idlewise");
    for from in libraries(binary) {
        let to = place.path().join(from.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&from, to).unwrap();
    }
    fs::create_dir(place.path().join("tmp")).unwrap();
    fs::copy(binary, place.path().join("idlewise")).unwrap();
    fs::copy(made.path(), place.path().join("evidence")).unwrap();
    let enter: &[&str] =
        if user() == 0 { &["chroot"] } else { &["unshare", "--map-root-user", "chroot"] };
    let inside = |arguments: &[&str]| -> Output {
        let mut command = Command::new(enter[0]);
        command.args(&enter[1..]).arg(place.path()).args(arguments);
        // chroot itself needs no variables: it finds nothing in a PATH there.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    };
    let probe = inside(&["/idlewise", "machines"]);
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        eprintln!(
            "SKIPPED: it_is_verified_in_an_empty_root: needs root or user namespaces: {}",
            why.trim()
        );
        return;
    }
    let output = inside(&["/idlewise", "log", "bundle", "verify", "evidence"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("the same, byte for byte").count(), 5, "{text}");
    assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn it_is_verified_without_an_environment() {
    let made = Made::new(&["replay", LOG, "--machine", "spr", "--governor", "menu"]);
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "bundle", "verify", &made.path()])
        .env_clear()
        .current_dir("/")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_was_changed_is_found() {
    let made = Made::new(&["replay", LOG, "--machine", "spr", "--governor", "menu"]);
    // A better figure: the sums are wrong.
    let folder = made.unpacked();
    let csv = fs::read_to_string(folder.join("output.csv")).unwrap();
    fs::write(folder.join("output.csv"), csv.replacen("menu", "mine", 1)).unwrap();
    let changed = Made(crate::folder());
    bundle::pack(&folder, &paths_below(&folder), File::create(changed.path()).unwrap()).unwrap();
    assert_eq!(changed.findings(&[]), ["SHA256SUMS differs"]);
    // The same with new sums: it does not come out.
    let changed = made.changed(|folder| {
        let csv = fs::read_to_string(folder.join("output.csv")).unwrap();
        fs::write(folder.join("output.csv"), csv.replacen("menu", "mine", 1)).unwrap();
    });
    assert_eq!(
        changed.findings(&[]),
        [&ALL_SAME[..3], &["output.csv differs"], &ALL_SAME[4..]].concat()
    );
    let output = idlewise(&["log", "bundle", "verify", &changed.path()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("differs from line 2 on: \"s-softirq500,spr,mine,"), "{text}");
    assert!(words.contains("\" there, \"s-softirq500,spr,menu,"), "{text}");
    // The first line has the bundle's path.
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    // Another machine table than this binary has.
    let changed = made.changed(|folder| {
        fs::write(folder.join("machines/spr.toml"), "id = \"spr\"\n").unwrap();
    });
    assert!(changed.findings(&[]).contains(&"machines/spr.toml note".to_owned()));
    // Another command.
    let changed = made.with_command(&["replay", "--machine", "milan", "logs/s-softirq500.parquet"]);
    assert!(changed.findings(&[]).contains(&"output.csv differs".to_owned()));
    // Something more, and something less.
    let folder = made.unpacked();
    fs::write(folder.join("more"), "").unwrap();
    fs::remove_file(folder.join("output.txt")).unwrap();
    let changed = Made(crate::folder());
    bundle::pack(&folder, &paths_below(&folder), File::create(changed.path()).unwrap()).unwrap();
    assert_eq!(changed.findings(&[]), ["SHA256SUMS differs", "SHA256SUMS differs"]);
}

#[test]
fn each_damaged_byte_is_found() {
    let made = Made::new(&["lab", "study", "menu-min", "--inputs"]);
    let bytes = made.bytes();
    let content = zstd::decode_all(&bytes[..]).unwrap();
    for at in (0..bytes.len()).step_by(bytes.len() / 40) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        // A frame has a few bits that change nothing of what is packed in it.
        let is_same = zstd::decode_all(&damaged[..]).is_ok_and(|unpacked| unpacked == content);
        let file = Made(folder());
        fs::write(file.path(), damaged).unwrap();
        let output = idlewise(&["log", "bundle", "verify", &file.path()]);
        assert_eq!(output.status.success(), is_same, "byte {at}");
    }
}

/// Another version has another script in its page and another name in its mail, but the same figures.
#[test]
fn another_version_is_judged_by_its_figures() {
    let made = Made::new(&["replay", LOG, "--machine", "spr", "--governor", "menu"]);
    let other = |more: &dyn Fn(&Path)| {
        made.changed(|folder| {
            let edit = |name: &str, change: &dyn Fn(String) -> String| {
                let path = folder.join(name);
                fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
            };
            let name = |text: String| {
                let (before, rest) = text.split_once("idlewise ").unwrap();
                let (_, after) = rest.split_once(".\n").unwrap();
                format!("{before}idlewise 0.0.9\n(a-much-longer-name-than-any-commit-of-ours-has).\n{after}")
            };
            edit("mail.txt", &name);
            edit("report.html", &|text| {
                let ours = concat!("idlewise ", env!("CARGO_PKG_VERSION"));
                assert!(text.contains(ours), "the page names its program");
                text.replace(ours, "idlewise 0.0.9").replace("<style>", "<style>/* another */")
            });
            edit("bundle.json", &|text| {
                let mut manifest: Value = serde_json::from_str(&text).unwrap();
                manifest["version"] = "0.0.9".into();
                manifest["commit"] = "a-much-longer-name-than-any-commit-of-ours-has".into();
                manifest.to_string()
            });
            more(folder);
        })
    };
    assert_eq!(other(&|_| ()).findings(&[]), ALL_SAME);
    let text = stdout(&["log", "bundle", "verify", &other(&|_| ()).path()]);
    assert!(
        text.contains("made by 0.0.9 (a-much-longer") && text.contains("the same figures"),
        "{text}"
    );
    for (name, from, to) in [
        ("output.csv", ",menu,", ",mine,"),
        ("mail.txt", "| Above ", "| Above1"),
        ("report.html", "\"gap_count\":10144", "\"gap_count\":10145"),
    ] {
        let changed = other(&|folder| {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{name} has {from}");
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
        });
        assert!(changed.findings(&[]).contains(&format!("{name} differs")), "{name}");
    }
}
