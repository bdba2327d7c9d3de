//! `idlewise lab boot`, on machines of which `crates/idlewise-study/boot-machines` has dumps or files, and the
//! kernel module's copy of the rule.

use std::fs;
use std::path::Path;

use idlewise_machine::boot::{Answer, BRANCHES, Branch, IdleRoutine, Kernel};
use serde_json::Value;

use crate::{OwnFile, WIDTH, failure, folder, idlewise, json, root, stdout};

/// A machine of `machines.txt`.
struct Machine {
    id: String,
    fields: Vec<(String, String)>,
    /// Files by path; `cpuid` is the dump.
    files: Vec<(String, String)>,
}

impl Machine {
    fn field(&self, name: &str) -> &str {
        let field = self.fields.iter().find(|(known, _)| known == name);
        &field.unwrap_or_else(|| panic!("{}: {name}", self.id)).1
    }

    /// Writes the files and returns the options that describe the machine.
    fn options(&self, folder: &Path) -> Vec<String> {
        let place = folder.join(&self.id);
        let mut options = Vec::new();
        for (path, content) in &self.files {
            let file = place.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, content).unwrap();
            let option = if path == "cpuid" {
                ["--cpuid".to_owned(), file.to_str().unwrap().to_owned()]
            } else {
                ["--sysroot".to_owned(), place.to_str().unwrap().to_owned()]
            };
            if !options.contains(&option) {
                options.push(option);
            }
        }
        options.concat()
    }
}

fn machines() -> Vec<Machine> {
    let text = fs::read_to_string(root().join("crates/idlewise-study/boot-machines/machines.txt"));
    let text = text.unwrap();
    let machine = |section: &str| {
        let mut files = section.split("\n-- ");
        let mut fields = files.next().unwrap().lines();
        let id = fields.next().unwrap().to_owned();
        let pair = |separator, text: &str| {
            let (name, value) = text.split_once(separator).unwrap();
            (name.to_owned(), value.to_owned())
        };
        let fields = fields.filter(|line| !line.is_empty()).map(|line| pair(": ", line)).collect();
        Machine { id, fields, files: files.map(|file| pair("\n", file)).collect() }
    };
    text.split("\n== ").skip(1).map(machine).collect()
}

/// The CPUID of one of them.
pub(crate) fn dump(id: &str) -> String {
    let machine = machines().into_iter().find(|machine| machine.id == id);
    let files = machine.unwrap_or_else(|| panic!("no machine {id}")).files;
    files.into_iter().find(|(path, _)| path == "cpuid").expect("it has a dump").1
}

fn names(values: &Value, name: &str) -> Vec<String> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value[name].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn each_machine_gets_what_its_kernel_chooses() {
    let folder = folder();
    let machines = machines();
    let captured = machines.iter().filter(|m| m.field("origin").starts_with("captured")).count();
    assert!(captured >= 20, "{captured} of {}", machines.len());
    for machine in machines {
        let options = machine.options(folder.path());
        for kernel in ["5.18", "6.1", "6.12", "7.2"] {
            let mut arguments = vec!["lab", "boot", "--json", "--kernel", kernel];
            arguments.extend(options.iter().map(String::as_str));
            let document = json(&arguments);
            let place = format!("{} in {kernel}: {document:#}", machine.id);
            let expected = machine.field(kernel);
            let (routine, reason) = expected.rsplit_once(", ").unwrap();
            let branches = document["branches"].as_array().unwrap().iter();
            let unknown = branches.filter(|branch| branch["verdict"] == "unknown");
            let unknown: Vec<&str> = unknown.map(|b| b["branch"].as_str().unwrap()).collect();
            if routine == "unknown" {
                assert_eq!(document["routine"], Value::Null, "{place}");
                assert_eq!(unknown.join(" "), reason, "{place}");
                let notes = document["notes"].as_array().unwrap();
                assert!(notes[0].as_str().unwrap().starts_with("Unknown: "), "{place}");
            } else {
                assert_eq!(document["routine"], routine, "{place}");
                assert_eq!(names(&document["possible"], "branch"), [reason], "{place}");
            }
        }
    }
}

#[test]
fn every_machines_text_fits() {
    let folder = folder();
    for machine in machines() {
        let options = machine.options(folder.path());
        for cmdline in ["", "idle=poll", "cpuidle_haltpoll.force=1"] {
            let mut arguments = vec!["lab", "boot", "--cmdline", cmdline];
            arguments.extend(options.iter().map(String::as_str));
            for line in stdout(&arguments).lines() {
                assert!(line.chars().count() <= WIDTH, "{}: {line}", machine.id);
            }
        }
    }
}

#[test]
fn says_branch_by_branch_why() {
    let folder = folder();
    let machines = machines();
    let zen3 = machines.iter().find(|machine| machine.id == "ryzen-9-5950x").unwrap();
    let options = zen3.options(folder.path());
    let mut arguments = vec!["lab", "boot"];
    arguments.extend(options.iter().map(String::as_str));
    assert_eq!(
        stdout(&arguments),
        "\
AMD family 0x19, model 0x21, stepping 0
By the rules of Linux 6.12 it gets MWAIT C1, because CPUID leaf 5 lists C1 substates.

The kernel asks                 answer     known from
idle=poll?                      no         assumed
Has Xen chosen before?          no         CPUID leaf 0x1
idle=halt?                      no         assumed
idle=nomwait?                   no         assumed
No MWAIT?                       no         CPUID leaf 0x1
Does CPUID end before leaf 5?   no         CPUID leaf 0x0
Can MONITOR miss a store?       no         family and model
Does C1E stop the APIC timer?   no         the kernel's order
Does leaf 5 list no extensions? no         CPUID leaf 0x5
Does leaf 5 list C1 substates?  yes        CPUID leaf 0x5
Does leaf 5 list no C1?         not asked
A TDX guest?                    not asked

Kernel log: process: using mwait in idle threads

cpuidle drivers, if the kernel has them, in their order:
  intel_idle  stays away: the CPU is not Intel's
  acpi_idle   depends on the firmware's C-states (_CST), which it can hide
  haltpoll    stays away: this is no KVM guest
If one of them registers, it decides instead.

Without a driver, by kernel and parameter:
  Linux  no idle=  idle=halt  idle=nomwait  idle=poll
  5.18   HLT       HLT        HLT           poll
  6.1    MWAIT C1  HLT        HLT           poll
  6.12   MWAIT C1  HLT        HLT           poll
  7.2    MWAIT C1  HLT        HLT           poll

Notes:
- No kernel command line is known; an empty one is assumed (--cmdline gives one).
"
    );
}

/// KVM runs MWAIT as a no-op unless the host passes it through, which CPUID does not show.
#[test]
fn a_guest_that_is_given_mwait_is_warned_of_spinning() {
    let folder = folder();
    let bare = dump("ryzen-9-5950x");
    let guest = bare.replace("ecx=0x7ed8320b", "ecx=0xfed8320b");
    assert_ne!(guest, bare);
    let kvm = format!(
        "{guest}   0x40000000 0x00: eax=0x40000001 ebx=0x4b4d564b ecx=0x564b4d56 edx=0x0000004d\n\
         \x20  0x40000001 0x00: eax=0x00000000 ebx=0x00000000 ecx=0x00000000 edx=0x00000000\n"
    );
    let notes = |text: &str, options: &[&str]| {
        let path = folder.path().join("cpuid.txt");
        fs::write(&path, text).unwrap();
        let dump = ["lab", "boot", "--json", "--cpuid", path.to_str().unwrap()];
        json(&[&dump[..], options].concat())["notes"].to_string()
    };
    assert!(!notes(&bare, &[]).contains("This is a guest"));
    assert!(
        notes(&guest, &[]).contains("as a no-op (KVM does), so that"),
        "{}",
        notes(&guest, &[])
    );
    let said = notes(&kvm, &[]);
    assert!(said.contains("This is a guest. KVM runs a guest's MWAIT as a no-op"), "{said}");
    // Then nothing waits by MWAIT.
    let said = notes(&kvm, &["--cmdline", "idle=nomwait"]);
    assert!(!said.contains("This is a guest"), "{said}");
}

#[test]
fn a_captured_machine_has_its_own_command_line_kernel_and_driver() {
    let folder = folder();
    for (name, content) in [
        ("proc/cmdline", "quiet idle=poll\n"),
        ("proc/sys/kernel/osrelease", "6.8.0-31-generic\n"),
        ("sys/devices/system/cpu/cpuidle/current_driver", "acpi_idle\n"),
        (
            "proc/cpuinfo",
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Xeon\nstepping\t: 8\n\
             siblings\t: 112\ncpu cores\t: 56\ncpuid level\t: 32\nflags\t\t: fpu monitor\nbugs\t\t: spectre_v1\n",
        ),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }
    let place = folder.path().to_str().unwrap();
    let document = json(&["lab", "boot", "--sysroot", place, "--json"]);
    assert_eq!(document["name"], "Xeon");
    assert_eq!(document["kernel"], "6.1");
    assert_eq!(document["routine"], "poll");
    assert_eq!(document["current_driver"], "acpi_idle");
    let lines = document["possible"][0]["log_lines"].as_array().unwrap();
    assert_eq!(lines.len(), 2, "polling, and the warning because of SMT: {lines:?}");
    let doubt = document["doubts"][0]["doubt"].as_str().unwrap();
    assert!(doubt.contains("6.8.0-31-generic") && doubt.contains("not compared"), "{doubt}");

    // Leaf 5 is in no file, so without idle=poll the answer is open, and says what would close it.
    let arguments = ["lab", "boot", "--sysroot", place, "--cmdline", "", "--kernel", "6.12"];
    let text = stdout(&arguments);
    assert!(text.contains("it gets MWAIT C1 or HLT; which one depends on"), "{text}");
    assert!(text.contains("- Unknown: CPUID leaf 5, which /proc/cpuinfo does not show"), "{text}");
    assert!(text.contains("Kernel log if MWAIT C1: process: using mwait in idle"), "{text}");
    assert!(text.contains("Registered now, by sysfs: acpi_idle."), "{text}");
    let document = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!(document["drivers"][0]["prospect"], "depends");
    assert!(document["doubts"].as_array().unwrap().is_empty(), "the kernel was chosen");
}

#[test]
fn explains_the_machine_it_runs_on() {
    // Which one that is, and whether it is x86, is not ours to know.
    let output = idlewise(&["lab", "boot", "--json"]);
    match output.status.code() {
        Some(0) => {
            let document: Value = serde_json::from_slice(&output.stdout).unwrap();
            crate::schemas::assert_valid("boot", &document);
        }
        status => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(status, Some(2), "{error}");
            assert!(error.contains("no x86 CPU"), "{error}");
        }
    }
}

#[test]
fn a_wrong_input_is_one_line_that_says_what_to_do() {
    let dump = OwnFile::new("no-dump.txt", "processor: 0\n");
    let (status, error) = failure(&["lab", "boot", "--cpuid", dump.path()]);
    assert_eq!(status, Some(2));
    let expected = "no CPUID leaf 0x0: expected lines like those of `cpuid -1 -r`, ";
    assert!(error.contains(expected), "{error}");
    let (status, error) = failure(&["lab", "boot", "--cpuid", "/nowhere/dump"]);
    assert_eq!(status, Some(2));
    assert!(error.starts_with("idlewise: cannot read /nowhere/dump: "), "{error}");
    let (status, error) = failure(&["lab", "boot", "--sysroot", "/nowhere"]);
    assert_eq!(status, Some(2));
    assert!(error.starts_with("idlewise: /nowhere is not a folder"), "{error}");
    let empty = folder();
    let (status, error) = failure(&["lab", "boot", "--sysroot", empty.path().to_str().unwrap()]);
    assert_eq!(status, Some(2));
    assert!(error.contains("proc/cpuinfo: no x86 CPU in it"), "{error}");
    let (status, error) = failure(&["lab", "boot", "--kernel", "6.6"]);
    assert_eq!(status, Some(2));
    assert!(
        error.contains("the rules of 5.18, 6.1, 6.12, 7.2 are known; use the nearest"),
        "{error}"
    );
}

/// The module's rows are those of the library, without those that only kernels before 6.1 ask, up to the one about
/// TDX, which it asks by itself.
#[test]
fn the_kernel_module_decides_by_the_same_table() {
    let source = fs::read_to_string(root().join("kernel/idlewise_states.h")).unwrap();
    let rows = source.lines().filter_map(|line| line.trim().strip_prefix("BRANCH("));
    let rows = rows.filter_map(|row| {
        let (fact, rest) = row.split_once(", ")?;
        let (answer, rest) = rest.split_once(", \"")?;
        Some((fact, answer, rest.rsplit_once("\")")?.0))
    });
    let of_module = BRANCHES.iter().filter(|row| row.kernels.1 >= Kernel::V6_1);
    let expected = of_module.filter(|row| row.branch != Branch::TdxGuest).map(|row| {
        let answer = match row.answer {
            Answer::NoMwait => "NO_MWAIT",
            Answer::Routine(IdleRoutine::Poll) => "POLL",
            Answer::Routine(IdleRoutine::Mwait) => "MWAIT",
            Answer::Routine(IdleRoutine::Halt) => "HALT",
            Answer::Routine(IdleRoutine::E400Halt) => "E400_HALT",
            Answer::Routine(IdleRoutine::TdxHalt) => unreachable!("its branch is left out"),
        };
        (row.name, answer, row.reason)
    });
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    for routine in IdleRoutine::ALL {
        assert!(source.contains(&format!("\"{routine}\"")), "{routine} has the same name there");
    }
}
