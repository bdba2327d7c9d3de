//! `--governor FILE`: compiling, loading and replaying, and the messages on failure. The kernel's
//! own files are tested by `verify sources`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::root;

/// A governor in the kernel's style, for these tests. Selects state 1, or does DEFECT instead.
pub const KERNEL_STYLE: &str = "\
#include <linux/cpuidle.h>
#include <linux/kernel.h>
#include <linux/tick.h>

struct own { int count; };
static DEFINE_PER_CPU(struct own, owns);

static int own_select(struct cpuidle_driver *drv, struct cpuidle_device *dev, bool *stop_tick)
{
	struct own *own = this_cpu_ptr(&owns);
	if (++own->count == 5) {
		DEFECT;
	}
	return min(drv->state_count - 1, 1);
}

static void own_reflect(struct cpuidle_device *dev, int index)
{
	dev->last_state_idx = index;
}

static struct cpuidle_governor own_governor = {
	.name = \"own\",
	.rating = 1,
	.select = own_select,
	.reflect = own_reflect,
};

static int __init own_init(void)
{
	return cpuidle_register_governor(&own_governor);
}
postcore_initcall(own_init);
MODULE_LICENSE(\"GPL\");
MODULE_VERSION(\"1\");
";

/// A folder with the user's files and a cache.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(super::folder())
    }

    /// Writes a file and returns its path.
    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn own(&self, name: &str, defect: &str) -> String {
        self.file(name, &KERNEL_STYLE.replace("DEFECT", defect))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.current_dir(root()).env("XDG_CACHE_HOME", self.0.path()).env_remove("CC");
        command
    }

    /// Replays a short log on a machine.
    fn replay(&self, arguments: &[&str]) -> Output {
        let world = ["replay", "traces/a-idle.parquet", "--machine", "spr", "--json"];
        self.command().args(world).args(arguments).output().unwrap()
    }

    fn rows(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.replay(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The message of a replay that is refused.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.replay(arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(output.stdout.is_empty());
        message.strip_prefix("idlewise: ").expect("it says who speaks").to_owned()
    }
}

/// The rows without the governors' names.
fn nameless(document: &serde_json::Value, key: &str) -> Vec<serde_json::Value> {
    let mut rows = document[key].as_array().unwrap().clone();
    for row in &mut rows {
        row.as_object_mut().unwrap().remove("governor");
    }
    rows
}

#[test]
fn a_kernel_style_file_decides_like_its_built_in_twin() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.own("own.c", "barrier()");
    let theirs = place.rows(&["--governor", &file]);
    let ours = place.rows(&["--governor", "fixed=1"]);
    assert_eq!(theirs["rows"][0]["governor"], "own.c");
    assert_eq!(nameless(&theirs, "states"), nameless(&ours, "states"));
    // Again, from the cache.
    assert_eq!(place.rows(&["--governor", &file])["rows"], theirs["rows"]);
}

/// The example of a governor of several files, copied to a folder where it can be changed.
fn mean_length(place: &Place, name: &str) -> String {
    let example = root().join("crates/idlewise-plugin/examples/mean_length");
    for entry in fs::read_dir(example).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        place.file(&format!("{name}/{file}"), &fs::read_to_string(&path).unwrap());
    }
    format!("{}/", place.0.path().join(name).to_str().unwrap())
}

/// Changes a file of the folder.
fn edit(folder: &str, file: &str, from: &str, to: &str) {
    let path = Path::new(folder).join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has {from}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_folder_of_c_files_is_one_governor() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let folder = mean_length(&place, "mean_length");
    let text = |file: &str| fs::read_to_string(Path::new(&folder).join(file)).unwrap();
    let whole = text("mean_length.h") + &text("mean_length_fpu.c") + &text("mean_length.c");
    let whole = whole.replace("#include \"mean_length.h\"", "").replace("../gov.h", "gov.h");
    let whole = place.file("whole.c", &whole);
    let rows = place.rows(&["--governor", &folder, "--governor", &whole, "--governor", "menu"]);
    let names = rows["rows"].as_array().unwrap().iter().map(|row| row["governor"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["mean_length/", "whole.c", "menu"]);
    let states = nameless(&rows, "states");
    assert_eq!(states[..4], states[4..8], "as one file");
    assert_ne!(states[..4], states[8..12], "and not as menu");

    // Every file counts, also when the others are the same as those in the cache.
    let before = nameless(&place.rows(&["--governor", &folder]), "states");
    assert_eq!(before[..], states[..4]);
    edit(&folder, "mean_length_fpu.c", "WEIGHT_COUNT_MAX 8", "WEIGHT_COUNT_MAX 1");
    let changed = nameless(&place.rows(&["--governor", &folder]), "states");
    assert_ne!(changed, before);
    edit(&folder, "mean_length_fpu.c", "WEIGHT_COUNT_MAX 1", "WEIGHT_COUNT_MAX 8");
    edit(&folder, "mean_length.h", "float log2_ns", "double log2_ns");
    assert_eq!(nameless(&place.rows(&["--governor", &folder]), "rows").len(), 1);
    // A patch may be about any of them.
    let patch = "--- a/g/mean_length_fpu.c\n+++ b/g/mean_length_fpu.c\n@@ -8 +8 @@\n\
                 -#define WEIGHT_COUNT_MAX 8\n+#define WEIGHT_COUNT_MAX 1\n";
    let patch = place.file("last.patch", patch);
    let rows = place.rows(&["--governor", &folder, "--patch", &patch]);
    assert_eq!(rows["rows"][0]["governor"], "mean_length/+last");
    assert_eq!(nameless(&rows, "states"), changed);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_makefile_names_the_instruction_set_of_a_file() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let folder = mean_length(&place, "mean_length");
    let needs = "#ifndef __SSE3__\n#error needs SSE3\n#endif\n";
    edit(&folder, "mean_length_fpu.c", "#include <linux/log2.h>", needs);
    let message = place.refused(&["--governor", &folder]);
    assert!(message.contains("mean_length_fpu.c") && message.contains("needs SSE3"), "{message}");
    edit(
        &folder,
        "Makefile",
        "$(CC_FLAGS_FPU)",
        "$(CC_FLAGS_FPU) \\\n\t-msse3 -include /etc/passwd",
    );
    place.rows(&["--governor", &folder]);
}

#[test]
fn a_folder_is_refused_with_the_file_and_line_that_is_wrong() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let folder = mean_length(&place, "mean_length");
    let empty = place.0.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let message = place.refused(&["--governor", empty.to_str().unwrap()]);
    assert!(message.contains("there is no C file in this folder"), "{message}");

    let patch = place.file("x.patch", "--- a/b.c\n+++ b/b.c\n@@ -1 +1 @@\n-a\n+b\n");
    let message = place.refused(&["--governor", &folder, "--patch", &patch]);
    assert!(message.contains("it is about b.c"), "{message}");

    edit(&folder, "mean_length_fpu.c", "ilog2(n)", "ilog3(n)");
    let message = place.refused(&["--governor", &folder]);
    assert!(message.contains("mean_length_fpu.c:14: 'ilog3' is not provided"), "{message}");
    edit(&folder, "mean_length_fpu.c", "ilog3(n)", "ilog2(n)");

    edit(&folder, "mean_length.c", "postcore_initcall(mean_length_init);", "");
    let message = place.refused(&["--governor", &folder]);
    assert!(message.contains("it has no postcore_initcall()"), "{message}");

    let mut command = place.command();
    command.args(["log", "bundle", "-o"]).arg(place.0.path().join("b.tar"));
    let line = ["--", "replay", "traces/a-idle.parquet", "--governor", &folder];
    let output = command.args(line).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("it is a folder"), "{message}");
}

#[test]
fn an_fpu_section_that_stays_open_ends_the_governor() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    for (from, to) in [("kernel_fpu_end();", ""), ("kernel_fpu_begin();", "")] {
        let folder = mean_length(&place, "mean_length");
        edit(&folder, "mean_length.c", from, to);
        let output = place.replay(&["--governor", &folder, "--governor", "menu"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("mean_length/ crashed (SIG"), "{message}");
    }
}

#[test]
fn diff_takes_files() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.own("own.c", "barrier()");
    let groups = |b: &str| -> Vec<serde_json::Value> {
        let compare =
            ["replay", "--compare", "traces/a-idle.parquet", "--machine", "spr", "--json"];
        let output =
            place.command().args(compare).args(["--governor", &file, "--governor", b]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        document["groups"].as_array().unwrap().clone()
    };
    let differing = |groups: &[serde_json::Value]| {
        let all = groups.iter().find(|group| group["by"] == "all").expect("a row of all gaps");
        all["differing_count"].as_u64().unwrap()
    };
    assert_eq!(differing(&groups("fixed=1")), 0);
    let (theirs, gap_count) = (groups("fixed=2"), 147);
    assert_eq!(differing(&theirs), gap_count);
}

#[test]
fn every_flavour_of_headers_compiles() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.own("own.c", "barrier()");
    for kernel in ["6.1", "6.6", "6.12", "6.18", "7.2"] {
        place.rows(&["--governor", &file, "--kernel", kernel]);
    }
}

#[test]
fn the_example_of_the_stable_interface_runs_as_source_and_as_library() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let example = "crates/idlewise-plugin/examples/break_even.c";
    let lines = fs::read_to_string(root().join(example)).unwrap().lines().count();
    assert!(lines <= 36, "an example of 30 lines, and two of licence and purpose");
    let library = place.0.path().join("break_even.so");
    let include = root().join("crates/idlewise-plugin/include");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-I"])
        .arg(include)
        .arg("-o")
        .arg(&library)
        .arg(root().join(example))
        .status()
        .unwrap();
    assert!(built.success());
    let library = library.to_str().unwrap();
    let rows = place.rows(&["--governor", example, "--governor", library, "--governor", "menu"]);
    let names = rows["rows"].as_array().unwrap().iter().map(|row| row["governor"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["break_even.c", "break_even.so", "menu"]);
    let states = nameless(&rows, "states");
    assert_eq!(states[..4], states[4..8], "the same decisions from both");
    assert_ne!(states[..4], states[8..12], "and others than menu's");
}

#[test]
fn versions_of_one_file_replay_side_by_side() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.own("a/own.c", "barrier()");
    let other = place.own("b/own.c", "barrier()");
    let patch = "--- a/x/own.c\n+++ b/x/own.c\n@@ -15,1 +15,1 @@\n\
                 -\treturn min(drv->state_count - 1, 1);\n+\treturn min(drv->state_count - 1, 2);\n";
    let quoted: String =
        patch.replace('\t', "  ").lines().map(|line| format!("> {line}\n")).collect();
    let patch = place.file("deeper.patch", patch);
    let rows = place.rows(&[
        "--governor",
        &file,
        "--governor",
        &file,
        "--patch",
        &patch,
        "--governor",
        &other,
        // The same as a reply quotes it, with a tab that became spaces.
        "--governor",
        &file,
        "--patch",
        &place.file("mailed.patch", &quoted),
    ]);
    let names: Vec<_> =
        rows["rows"].as_array().unwrap().iter().map(|row| &row["governor"]).collect();
    assert_eq!(names, ["a/own.c", "own.c+deeper", "b/own.c", "own.c+mailed"]);
    let states = nameless(&rows, "states");
    assert_eq!(states[..4], states[8..12]);
    assert_eq!(states[4..8], states[12..16], "the patch is the same as it was mailed");
    assert_eq!(states[5]["entry_count"], 0);
    assert!(states[6]["entry_count"].as_u64() > Some(100), "the patched one enters state 2");
}

/// The real compiler at a limit of CPU time, as a slow machine would meet ours.
#[test]
fn a_compiler_that_reached_a_limit_is_not_a_fault_of_the_governor() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let slow = "#!/bin/sh\n[ \"$1\" = --version ] || ulimit -t 1\nexec cc \"$@\"\n";
    let compiler = place.file("slow-cc", slow);
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o700)).unwrap();
    // Each line doubles the work: 2^17 statements.
    let doubled = |n: u32| format!("#define S{} S{n} S{n}\n", n + 1);
    let macros: String = (0..17).map(doubled).collect();
    let text = format!(
        "#define S0 x = x * 3 ^ (x >> 7);\n{macros}unsigned long long_one(unsigned long x) {{ S17 return x; }}\n"
    );
    let mut command = place.command();
    command.env("CC", compiler).args(["replay", "--governor", &place.file("long.c", &text)]);
    let output = command.output();
    let message = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(message.contains("long.c: the compiler was stopped: it may take 120 s"), "{message}");
}

#[test]
fn what_a_governor_does_wrong_is_told_with_its_gap_and_the_others_go_on() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    for (defect, cause) in [
        ("*(volatile int *)0 = 1", "crashed (SIGSEGV)"),
        (
            "BUG()",
            if cfg!(target_arch = "x86_64") { "crashed (SIGILL)" } else { "crashed (SIGTRAP)" },
        ),
        ("for (;;) barrier()", "took more than 5 s of CPU time"),
        ("return -7", "answered state -7 where there are 0 to 3"),
        ("return drv->state_count", "answered state 4 where there are 0 to 3"),
    ] {
        let file = place.own("own.c", defect);
        let output = place.replay(&["--governor", &file, "--governor", "menu"]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("own.c {cause}")), "{defect}: {message}");
        assert!(message.contains("in gap ") && message.contains("of a-idle on spr"), "{message}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["rows"].as_array().unwrap().len(), 1, "menu's row is there");
        assert_eq!(document["failures"][0]["governor"], "own.c");
    }
}

#[test]
fn a_page_has_the_files_that_work_and_leaves_out_one_that_crashes() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let example = "crates/idlewise-plugin/examples/break_even.c";
    let page = place.0.path().join("page.html");
    let page = page.to_str().unwrap();
    let report = |file: &str| {
        let log = ["report", "traces/a-idle.parquet", "--machine", "spr", "--json", "--force"];
        let governors = ["--governor", example, "--governor", file];
        place.command().args(log).args(governors).args(["-o", page]).output().unwrap()
    };
    let output = report(&place.own("own.c", "barrier()"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("\"break_even.c\"") && html.contains("\"own.c\""));

    let output = report(&place.own("own.c", "*(volatile int *)0 = 1"));
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("own.c crashed (SIGSEGV)"), "{message}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["failures"][0]["governor"], "own.c");
    let html = fs::read_to_string(page).unwrap();
    assert!(html.contains("\"break_even.c\"") && !html.contains("\"own.c\""));
}

#[test]
fn decisions_one_by_one_are_those_of_a_lane() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let example = "crates/idlewise-plugin/examples/break_even.c";
    let log = place.0.path().join("own.parquet");
    let log = log.to_str().unwrap();
    let world = ["replay", "traces/a-idle.parquet", "--machine", "spr", "--governor", example];
    let written = place.command().args(world).args(["--write-log", log]).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let checked = place
        .command()
        .args(["replay", log, "--machine", "spr", "--governor", example, "--check-recorded"])
        .output()
        .unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && text.contains("(100.00 %)"), "{text}");

    let file = place.own("own.c", "return -1");
    let failed = ["replay", "traces/a-idle.parquet", "--machine", "spr", "--governor", &file];
    let output = place.command().args(failed).args(["--write-log", &format!("{log}2")]).output();
    let message = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(message.contains("own.c answered state -1") && message.contains("no log was written"));
    assert!(!Path::new(&format!("{log}2")).exists());
}

#[test]
fn a_file_that_is_no_governor_is_refused_with_what_to_do() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let own = place.own("own.c", "barrier()");
    let broken = place.own("broken.c", "own->count++ }");
    let message = place.refused(&["--governor", &broken]);
    assert!(message.contains("broken.c doesn't compile as a governor of Linux 6.12:"), "{message}");
    assert!(message.contains("broken.c:12:"), "its own line: {message}");
    assert!(message.contains("own->count++ }"), "its own text: {message}");
    assert!(message.lines().count() <= 12, "short: {message}");

    let missing = place.own("missing.c", "tick_nohz_get_length()");
    let gov_h = place.file("gov_h.c", &format!("#include \"gov.h\"\n{KERNEL_STYLE}"));
    let header = place.file("header.c", &format!("#include <linux/acpi.h>\n{KERNEL_STYLE}"));
    let external = place.own("external.c", "extern int kthread(void); kthread()");
    let nothing = place.file("nothing.c", "int nothing;\n");
    let text = place.file("text.so", "hello");
    let patch = place.file("x.patch", "--- a/own.c\n+++ b/own.c\n@@ -3,1 +3,1 @@\n-no\n+yes\n");
    let other = place.file("y.patch", "--- a/b.c\n+++ b/b.c\n@@ -3,1 +3,1 @@\n-no\n+yes\n");
    let folder = place.0.path().to_str().unwrap();
    for (arguments, parts) in [
        (
            vec![&*missing],
            vec!["missing.c:12: 'tick_nohz_get_length' is not provided", "docs/plugins.md"],
        ),
        (
            vec![&*header],
            vec!["header.c:1: 'linux/acpi.h' is not provided for a governor of Linux"],
        ),
        (vec![&*external], vec!["external.c:12: 'kthread' is not provided"]),
        (
            vec![&*gov_h, "--kernel", "6.1"],
            vec!["not a governor of Linux 6.1", "--kernel 6.6 or newer"],
        ),
        (vec![&*nothing], vec!["nothing.c: it has no postcore_initcall()"]),
        (vec![&*text], vec!["text.so: cannot load it"]),
        (vec!["no/such.c"], vec!["cannot read no/such.c"]),
        (vec!["./own.txt"], vec!["./own.txt: a governor's file ends in .c"]),
        (
            vec![&*own, "--kernel", "5.4"],
            vec!["no headers for Linux '5.4'", "6.1, 6.6, 6.12, 6.18, 7.2"],
        ),
        (vec![&*own, "--kernel-source", folder], vec!["not a kernel's source", "Makefile"]),
        (vec![&*own, "--patch", &patch], vec!["x.patch doesn't apply to", "hunk 1"]),
        (vec![&*own, "--patch", &other], vec!["y.patch doesn't apply to", "it is about b.c"]),
        (vec!["menu", "--patch", &patch], vec!["--patch goes with a governor's file"]),
        (vec![&*text, "--patch", &patch], vec!["--patch needs the .c file"]),
    ] {
        let mut all = vec!["--governor"];
        all.extend(arguments);
        let message = place.refused(&all);
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "{message:?} has no {part:?}");
        }
    }

    let mut command = place.command();
    let output = command.env("CC", "no-such-cc").args(["replay", "--governor", &own]).output();
    let message = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(message.contains("cannot start the C compiler 'no-such-cc'"), "{message}");
    assert!(message.contains("apt install gcc"), "{message}");
}

#[test]
fn a_library_of_something_else_is_refused() {
    let place = Place::new();
    let library = |name: &str, text: &str| {
        let source = place.file(&format!("{name}.c"), text);
        let path = place.0.path().join(format!("{name}.so"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&path).arg(source);
        assert!(cc.status().unwrap().success());
        path.to_str().unwrap().to_owned()
    };
    for (name, text, reason) in [
        ("empty", "int nothing;", "exports no 'idlewise_governor'"),
        (
            "old",
            "const struct { int version; } idlewise_governor = { 77 };",
            "has version 77, this idlewise knows 1",
        ),
        (
            "crash",
            "__attribute__((constructor)) static void f(void) { *(volatile int *)0 = 1; }",
            "crashed (SIGSEGV) when it was loaded",
        ),
    ] {
        let message = place.refused(&["--governor", &library(name, text)]);
        assert!(message.contains(reason), "{message:?} has no {reason:?}");
    }
}
