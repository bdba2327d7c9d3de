//! `idlewise log bundle`: what is packed here is verified elsewhere, what was changed is found, and what somebody
//! made to do harm does none.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use idlewise_lab::bundle::{self, BundlePath, Limits, SUMS, Sums, TOP};
use serde_json::Value;

use crate::{assert_refused, failure, folder, idlewise, json, root, stdout};

mod endings;
mod hostile;
mod same;

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
