//! `idlewise log bundle`: what is packed here is verified elsewhere, what was changed is found, and what somebody
//! made to do harm does none.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use idlewise_lab::bundle::{self, BundlePath, Limits, SUMS, Sums, TOP};
use serde_json::Value;

use crate::{assert_refused, failure, folder, idlewise, json, root, stdout, user};

const LOG: &str = "traces/s-softirq500.parquet";
const SAVED: &str = "crates/idlewise-cli/tests/saved";

/// A folder, and a bundle in it.
struct Made(tempfile::TempDir);

impl Made {
    /// Makes a bundle of a command.
    fn new(command: &[&str]) -> Self {
        Self::with(&[], command)
    }

    fn with(options: &[&str], command: &[&str]) -> Self {
        let made = Made(folder());
        stdout(&[&["log", "bundle", "-o", &made.path()], options, &["--"], command].concat());
        made
    }

    /// An archive of files that were changed by somebody, with sums that are right.
    fn changed(&self, change: impl FnOnce(&Path)) -> Self {
        let folder = self.unpacked();
        change(&folder);
        let mut sums = Sums::default();
        let paths: Vec<BundlePath> = paths_below(&folder);
        for path in paths.iter().filter(|path| path.as_str() != SUMS) {
            sums.add(path.clone(), Sums::of(&fs::read(folder.join(path.as_str())).unwrap()));
        }
        fs::write(folder.join(SUMS), sums.to_string()).unwrap();
        let made = Made(crate::folder());
        bundle::pack(&folder, &paths, File::create(made.path()).unwrap()).unwrap();
        made
    }

    /// The same with another command.
    fn with_command(&self, words: &[&str]) -> Self {
        self.changed(|folder| {
            let mut manifest: Value =
                serde_json::from_slice(&fs::read(folder.join("bundle.json")).unwrap()).unwrap();
            manifest["command"] = words.into();
            fs::write(folder.join("bundle.json"), manifest.to_string()).unwrap();
        })
    }

    fn path(&self) -> String {
        self.0.path().join("evidence.tar.zst").to_str().unwrap().to_owned()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    /// Unpacks it beside itself.
    fn unpacked(&self) -> PathBuf {
        let folder = self.0.path().join(TOP);
        let _ = fs::remove_dir_all(&folder);
        bundle::unpack(&self.bytes()[..], Limits::USUAL, &mut |path, _, content| {
            let to = folder.join(path.as_str());
            fs::create_dir_all(to.parent().unwrap())?;
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            fs::write(to, bytes)
        })
        .unwrap();
        folder
    }

    fn names(&self) -> Vec<String> {
        let document = json(&["log", "bundle", "list", &self.path(), "--json"]);
        let files = document["files"].as_array().unwrap().iter();
        files.map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }

    /// The findings of verifying, as `about outcome`.
    fn findings(&self, options: &[&str]) -> Vec<String> {
        let path = self.path();
        let arguments = [&["log", "bundle", "verify", &path, "--json"], options].concat();
        let output = idlewise(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));
        crate::schemas::assert_valid("bundle-verify", &document);
        let findings = document["findings"].as_array().unwrap().iter();
        let findings: Vec<String> = findings
            .map(|finding| {
                [&finding["about"], &finding["outcome"]].map(|it| it.as_str().unwrap()).join(" ")
            })
            // It depends on the build.
            .filter(|finding| finding != "version note")
            .collect();
        let differs = findings.iter().any(|finding| finding.ends_with(" differs"));
        assert_eq!(output.status.code(), Some(i32::from(differs)), "{findings:?}");
        assert_eq!(document["is_same"], !differs);
        findings
    }

    /// Asserts that verifying it is refused in one line, and that nothing appears beside it.
    fn assert_refused(&self, options: &[&str], parts: &[&str]) {
        let before = fs::read_dir(self.0.path()).unwrap().count();
        assert_refused(&[&["log", "bundle", "verify", &self.path()], options].concat(), parts);
        assert_eq!(fs::read_dir(self.0.path()).unwrap().count(), before);
    }
}

fn paths_below(folder: &Path) -> Vec<BundlePath> {
    let mut paths = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(from) = folders.pop() {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                    paths.push(BundlePath::new(name).unwrap());
                }
            }
        }
    }
    paths
}

const TABLES_SAME: [&str; 4] =
    ["SHA256SUMS same", "output.txt same", "output.json same", "output.csv same"];
/// A replay has a page and a mail too.
const ALL_SAME: [&str; 6] = [
    "SHA256SUMS same",
    "output.txt same",
    "output.json same",
    "output.csv same",
    "report.html same",
    "mail.txt same",
];

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

#[test]
fn logs_that_are_part_of_idlewise_are_in_the_bundle_too() {
    let made = Made::new(&["replay", "--machine", "milan", "--governor", "menu"]);
    let names = made.names();
    for log in ["a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500"] {
        assert!(names.contains(&format!("logs/{log}.parquet")), "{names:?}");
    }
    assert!(names.contains(&"machines/milan.toml".to_owned()));
    assert_eq!(made.findings(&[]), ALL_SAME);
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let (one, other) = (folder(), folder());
    let log = |folder: &tempfile::TempDir| {
        folder.path().join("server.parquet").to_str().unwrap().to_owned()
    };
    for folder in [&one, &other] {
        fs::copy(root().join(LOG), log(folder)).unwrap();
        fs::copy(root().join("machines/spr.toml"), folder.path().join("mine.toml")).unwrap();
    }
    // Another time and another mode of the file, another folder, and another way to write the same.
    fs::set_permissions(log(&other), fs::Permissions::from_mode(0o400)).unwrap();
    let mine =
        |folder: &tempfile::TempDir| folder.path().join("mine.toml").to_str().unwrap().to_owned();
    let a = Made::new(&["replay", "--machine", &mine(&one), &log(&one), "--hz", "250"]);
    let b = Made::new(&[
        "idlewise",
        "replay",
        "--hz=250",
        "--json",
        &log(&other),
        &format!("--machine={}", mine(&other)),
    ]);
    let command =
        |made: &Made| json(&["log", "bundle", "list", &made.path(), "--json"])["command"].clone();
    assert_eq!(
        command(&a),
        serde_json::json!([
            "replay",
            "--machine",
            "machines/mine.toml",
            "--hz",
            "250",
            "logs/server.parquet"
        ])
    );
    assert_ne!(command(&a), command(&b), "the order of options is the user's");
    let b = Made::new(&[
        "idlewise",
        "replay",
        &format!("--machine={}", mine(&other)),
        "--hz=250",
        "--json",
        &log(&other),
    ]);
    assert!(a.bytes() == b.bytes());
}

#[test]
fn nothing_private_is_in_it() {
    let place = folder();
    let secret = place.path().join("acme home");
    fs::create_dir(&secret).unwrap();
    let log = secret.join("server.parquet");
    fs::copy(root().join(LOG), &log).unwrap();
    let made = Made::new(&["replay", log.to_str().unwrap(), "--machine", "spr"]);
    let info = json(&["info", LOG, "--json"]);
    let metadata = &info["metadata"];
    let [kernel, model] =
        ["kernel", "cpu_model"].map(|field| metadata[field].as_str().unwrap().to_owned());
    let command = metadata["source"]["command"].as_str().unwrap().to_owned();
    let holds = |made: &Made, words: &str| {
        let folder = made.unpacked();
        paths_below(&folder).iter().any(|path| {
            let bytes = fs::read(folder.join(path.as_str())).unwrap();
            bytes.windows(words.len()).any(|window| window == words.as_bytes())
        })
    };
    let place = place.path().to_str().unwrap();
    for words in ["acme", place, env!("CARGO_MANIFEST_DIR"), &kernel, &model, &command] {
        assert!(!holds(&made, words), "{words}");
    }
    // What was dropped is said, here and in the bundle.
    let text = fs::read_to_string(made.unpacked().join("README.txt")).unwrap();
    for text in [text, stdout(&["log", "bundle", "list", &made.path()])] {
        assert!(text.contains("- cpu-model of all logs: the CPU's model name"), "{text}");
        assert!(text.contains("Remains, and could still identify:\n- the gaps"), "{text}");
    }
    let kept = Made::with(&["--keep", "cpu-model"], &["replay", LOG, "--machine", "spr"]);
    assert!(holds(&kept, &model) && !holds(&kept, &command));
    let all = Made::with(&["--keep-private"], &["replay", LOG, "--machine", "spr"]);
    assert!(holds(&all, &model) && holds(&all, &command) && holds(&all, &kernel));
    assert_eq!(all.findings(&[]), ALL_SAME);
}

#[test]
fn measurements_need_consent_and_are_not_repeated() {
    let [halt, mwait] = ["halt", "mwait"].map(|name| format!("{SAVED}/{name}.json"));
    let compare = ["lab", "compare", &halt, &mwait];
    let place = folder();
    let path = place.path().join("x").to_str().unwrap().to_owned();
    assert_refused(
        &[&["log", "bundle", "-o", &path, "--"][..], &compare].concat(),
        &["--keep-private"],
    );
    assert!(!Path::new(&path).exists());
    let made = Made::with(&["--keep-private"], &compare);
    assert_eq!(made.findings(&[]), TABLES_SAME);

    let measure = ["measure", "switch", "--way", "futex", "--slices", "2", "--slice-ms", "1"];
    assert_refused(
        &[&["log", "bundle", "-o", &path, "--"][..], &measure].concat(),
        &["--keep-private"],
    );
    let made = Made::with(&["--keep-private"], &measure);
    assert_eq!(made.findings(&[]), ["SHA256SUMS same", "output.json unknown"]);
    // Others can compare it.
    let saved = made.unpacked().join("output.json");
    let saved = saved.to_str().unwrap();
    assert!(stdout(&["lab", "compare", saved, saved]).contains("futex"));
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

const GOVERNOR: &str = "\
#include <idlewise_governor.h>
#include \"rule.h\"

static int my_select(struct idlewise_context *context, struct idlewise_device *device, bool *stop_tick)
{
    return DEEPEST < context->machine->state_count ? DEEPEST : 0;
}

IDLEWISE_GOVERNOR(.select = my_select);
";

#[test]
fn a_failing_command_makes_no_bundle() {
    let place = folder();
    let path = place.path().join("evidence").to_str().unwrap().to_owned();
    let (status, message) = failure(&[
        "log", "bundle", "-o", &path, "--", "lab", "simulate", "spr", "wakes", "--set", "x=1",
    ]);
    assert_eq!(status, Some(2), "{message}");
    assert!(message.contains("no bundle was written"), "{message}");
    assert_refused(
        &["log", "bundle", "-o", &path, "--", "replay", "no-such-file"],
        &["no-such-file"],
    );
    assert_refused(
        &["log", "bundle", "-o", &path, "--", "record"],
        &["a bundle cannot hold 'record'", "replay"],
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    let (status, message) = failure(&["log", "bundle", "-o", &path, "replay"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("--output <BUNDLE> -- <COMMAND>"), "{message}");
}

/// Of a kernel tree there is what compiling reads, and nothing else.
#[test]
fn a_kernel_tree_is_in_it_as_far_as_it_was_read() {
    if crate::cannot_compile() {
        return;
    }
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: a_kernel_tree_is_in_it_as_far_as_it_was_read: no C compiler (apt install gcc)"
        );
        return;
    }
    let place = folder();
    let tree = place.path().join("linux-acme");
    let governors = tree.join("drivers/cpuidle/governors");
    fs::create_dir_all(&governors).unwrap();
    fs::create_dir_all(tree.join("include/linux")).unwrap();
    fs::write(tree.join("Makefile"), "VERSION = 6\nPATCHLEVEL = 12\nEXTRAVERSION = -acme\n")
        .unwrap();
    fs::write(governors.join("rule.h"), "#define DEEPEST 2\n").unwrap();
    fs::write(governors.join("menu.c"), "unread\n").unwrap();
    fs::write(tree.join("include/linux/unread.h"), "unread\n").unwrap();
    fs::write(governors.join("mine.c"), GOVERNOR).unwrap();
    let tree = tree.to_str().unwrap();
    let made = Made::new(&[
        "replay",
        LOG,
        "--machine",
        "spr",
        "--kernel-source",
        tree,
        "--governor",
        "mine.c",
        "--governor",
        "menu",
    ]);
    let code: Vec<String> = made
        .names()
        .into_iter()
        .filter(|name| name.starts_with("kernel-") || name.starts_with("code-"))
        .collect();
    let below = "kernel-1/drivers/cpuidle/governors";
    assert_eq!(
        code,
        ["kernel-1/Makefile".to_owned(), format!("{below}/mine.c"), format!("{below}/rule.h")]
    );
    let makefile = fs::read_to_string(made.unpacked().join("kernel-1/Makefile")).unwrap();
    assert_eq!(makefile, "VERSION = 6\nPATCHLEVEL = 12\n");
    assert_eq!(made.findings(&["--allow-code"]), ALL_SAME);
    // Somebody else's cannot be outside.
    let words =
        ["replay", "logs/s-softirq500.parquet", "--kernel-source", "..", "--governor", "menu"];
    made.with_command(&words).assert_refused(&["--allow-code"], &["no file in it"]);
}

#[test]
fn a_signal_ends_it_and_leaves_nothing() {
    let long = endless();
    let scratch = folder();
    let mut running = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "bundle", "verify", &long.path()])
        .env("TMPDIR", scratch.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let is_running = || {
        let folders = fs::read_dir(scratch.path()).unwrap();
        folders.flatten().any(|folder| folder.path().join("expected/output.txt").exists())
    };
    while !is_running() {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    // SAFETY: the process is our child, and has not been waited for.
    assert_eq!(unsafe { libc::kill(running.id() as i32, libc::SIGTERM) }, 0);
    let status = running.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGTERM));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// A bundle of a simulation that takes longer than any test.
fn endless() -> Made {
    let made = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    made.with_command(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "31536000000"])
}

#[test]
fn a_time_limit_ends_it_and_leaves_nothing() {
    let long = endless();
    let scratch = folder();
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .args(["log", "bundle", "verify", &long.path(), "--max-time", "1s"])
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("took more than 1 s") && message.contains("--max-time"), "{message}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    let (status, message) = failure(&["log", "bundle", "verify", "x", "--max-time", "0s"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("--max-time") && message.contains("such as 90s"), "{message}");
}

#[test]
fn what_was_killed_goes_on_nowhere_and_its_folder_is_removed_by_the_next() {
    let long = endless();
    let scratch = folder();
    let verify = |made: &Made| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(["log", "bundle", "verify", &made.path()]).env("TMPDIR", scratch.path());
        command.stdout(std::process::Stdio::null());
        command
    };
    let mut running = verify(&long).spawn().unwrap();
    // The bundled command, which has a parent of its own.
    let child = loop {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        let parent = format!("\nPPid:\t{}\n", running.id());
        let mut all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let is_child = |path: &PathBuf| {
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            // Its words are there once it runs.
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            status.contains(&parent) && words.windows(8).any(|part| part == b"simulate")
        };
        if let Some(child) = all.find(is_child) {
            break child;
        }
        std::thread::yield_now();
    };
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nobody could remove it");
    // Whoever has inherited it may take its time to notice.
    let is_there = || {
        let state = fs::read_to_string(child.join("stat")).unwrap_or_default();
        state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    };
    while is_there() {
        std::thread::yield_now();
    }
    let short = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    assert!(verify(&short).status().unwrap().success());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// What an output is compared with may be one line of any length.
#[test]
fn a_long_line_takes_no_memory() {
    let made = Made::new(&["lab", "simulate", "spr", "tcp-lat", "--duration-ms", "1"]);
    let long = made.changed(|folder| {
        File::create(folder.join("output.txt")).unwrap().set_len(96 << 20).unwrap();
    });
    // The program's own address space, and less than the line.
    let output = Command::new("sh")
        .args(["-c", r#"ulimit -v 400000 && exec "$@""#, "sh", env!("CARGO_BIN_EXE_idlewise")])
        .args(["log", "bundle", "verify", &long.path()])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("\noutput.txt    differs from line 1 on: "), "{text}");
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
            edit("report.html", &|text| text.replace("<style>", "<style>/* another */"));
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
