//! `idlewise advise --check-profile` on captured machines. What it should say follows from the kernel's and tuned's sources.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::captured::CapturedMachine;
use crate::{assert_refused, idlewise, schemas};

/// The settings of a profile, checked on a machine, and the exit status.
fn check(machine: &CapturedMachine, profile: &str) -> (Value, Option<i32>) {
    let sysroot = machine.path().to_str().unwrap();
    let run = idlewise(&["advise", "--sysroot", sysroot, "--check-profile", profile, "--json"]);
    let document = serde_json::from_slice(&run.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&run.stderr)));
    schemas::assert_valid("advise-profile", &document);
    let is_good = run.status.code() == Some(0);
    assert_eq!(document["all_good"], is_good, "{document:#}");
    (document, run.status.code())
}

/// A file with this text.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile").to_str().unwrap().to_owned();
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// Checks the only setting of a text.
fn only(machine: &CapturedMachine, text: &str) -> Value {
    let (_folder, path) = file(text);
    let (document, _) = check(machine, &path);
    assert_eq!(document["settings"].as_array().unwrap().len(), 1, "{text}: {document:#}");
    document["settings"][0].clone()
}

fn assert_checked(machine: &str, setting: &str, verdict: &str, because: &str) {
    let text = if setting.contains("latency") {
        format!("[cpu]\n{setting}\n")
    } else {
        setting.to_owned()
    };
    let found = only(&CapturedMachine::unpack(machine), &text);
    assert_eq!(found["verdict"], verdict, "{machine}, {setting}: {found:#}");
    let why = found["because"].as_str().unwrap();
    assert!(why.contains(because), "{machine}, {setting}: {why}");
}

#[test]
fn a_limit_of_latency_is_compared_with_the_states_of_this_cpu() {
    for (machine, setting, verdict, because) in [
        // C1 takes 1 us here, and 2 us there.
        (
            "server-ice-lake",
            "force_latency=1",
            "works",
            "POLL and C1 may be used, but not C1E (4 us), C6",
        ),
        ("laptop-alder-lake", "force_latency=1", "does more than intended", "only POLL is left"),
        (
            "laptop-alder-lake",
            "force_latency=2",
            "works",
            "POLL and C1E may be used, but not C6 (170 us)",
        ),
        ("server-ice-lake", "force_latency=200", "does nothing here", "the slowest is C6 (170 us)"),
        ("server-ice-lake", "force_latency=0", "works", "only POLL is left: idle CPUs poll"),
        ("server-ice-lake", "force_latency=cstate.id:1|3", "works", "POLL and C1 may be used"),
        ("server-ice-lake", "force_latency=cstate.id:7|3", "works", "POLL and C1 may be used"),
        (
            "server-ice-lake",
            "force_latency=cstate.id_no_zero:0|3",
            "works",
            "POLL and C1 may be used",
        ),
        ("server-ice-lake", "force_latency=cstate.id:0|3", "works", "only POLL is left"),
        (
            "server-ice-lake",
            "force_latency=cstate.name:C6|10",
            "does nothing here",
            "the slowest is C6",
        ),
        (
            "server-genoa",
            "force_latency=cstate.name:C6|10",
            "works",
            "POLL and C1 may be used, but not C2",
        ),
        (
            "server-genoa",
            "force_latency=cstate.name:C6",
            "does nothing here",
            "CPU 0 has no state C6",
        ),
        ("server-ice-lake", "force_latency=fast", "does nothing here", "'fast' is no latency"),
        ("server-ice-lake", "force_latency=none", "works", "tuned sets nothing"),
        (
            "server-ice-lake",
            "force_latency=${f:exec:x}",
            "cannot be told",
            "tuned computes the value",
        ),
        // A disabled state is no slower one that would be forbidden.
        (
            "server-granite-rapids-c6p-off",
            "force_latency=170",
            "does nothing here",
            "the slowest is C6",
        ),
        ("vm-haltpoll", "force_latency=1", "does nothing here", "haltpoll obeys no limit but 0"),
        ("vm-haltpoll", "force_latency=0", "works", "only POLL is left"),
        ("vm-no-driver", "force_latency=1", "does nothing here", "without an idle driver"),
        (
            "server-ice-lake",
            "pm_qos_resume_latency_us=0",
            "does nothing here",
            "0 stands for no limit",
        ),
        ("server-ice-lake", "pm_qos_resume_latency_us=n/a", "works", "only POLL is left"),
        ("server-ice-lake", "pm_qos_resume_latency_us=10", "works", "but not C6 (170 us)"),
    ] {
        assert_checked(machine, setting, verdict, because);
    }
    // A deeper state that takes no longer stays allowed.
    let machine = CapturedMachine::unpack("server-ice-lake");
    for cpu in [0, 1, 2, 3, 72, 73, 74, 75] {
        machine.write(&crate::captured::state_file(cpu, 2, "latency"), "1\n");
    }
    let found = only(&machine, "[cpu]\nforce_latency=cstate.id:1\n");
    assert_eq!(found["verdict"], "does less than intended", "{found:#}");
    // On CPUs of another kind, POLL may be all that is left.
    machine.write(&crate::captured::state_file(3, 1, "latency"), "2\n");
    machine.write(&crate::captured::state_file(3, 2, "latency"), "3\n");
    let found = only(&machine, "[cpu]\nforce_latency=1\n");
    assert_eq!(found["verdict"], "does more than intended", "{found:#}");
    assert!(found["because"].as_str().unwrap().contains("POLL is left on CPUs 3, so"), "{found:#}");
}

#[test]
fn parameters_of_the_kernel_are_read_by_the_driver_that_is_there() {
    for (machine, setting, verdict, because) in [
        (
            "server-ice-lake",
            "intel_idle.max_cstate=1",
            "works",
            "left: POLL and C1; gone: C1E and C6",
        ),
        ("server-ice-lake", "intel_idle.max-cstate=2", "works", "left: POLL, C1 and C1E; gone: C6"),
        (
            "server-ice-lake",
            "intel_idle.max_cstate=6",
            "does nothing here",
            "has 3 states here: C1, C1E and C6",
        ),
        ("server-ice-lake", "intel_idle.max_cstate=C1", "does nothing here", "no number"),
        ("server-ice-lake", "intel_idle.max_cstate=0", "works", "processor.max_cstate limits them"),
        (
            "server-ice-lake",
            "processor.max_cstate=1",
            "does nothing here",
            "the driver is intel_idle",
        ),
        // Its table begins with a C1 that is left out and counts.
        (
            "laptop-alder-lake",
            "intel_idle.max_cstate=1",
            "does more than intended",
            "left: POLL; gone: C1E",
        ),
        (
            "laptop-alder-lake",
            "intel_idle.max_cstate=2",
            "works",
            "left: POLL and C1E; gone: C6, C8 and C10",
        ),
        (
            "server-genoa",
            "intel_idle.max_cstate=1",
            "does nothing here",
            "not Intel's; the driver is acpi_idle",
        ),
        ("server-genoa", "processor.max_cstate=1", "works", "C2 is not used"),
        ("server-genoa", "processor.max_cstate=0", "works", "C2 is not used"),
        ("server-genoa", "processor.max_cstate=2", "does nothing here", "no deeper state"),
        ("server-genoa", "idle=nomwait", "works", "C1 by HLT"),
        ("server-ice-lake", "idle=nomwait", "works", "intel_idle is not used"),
        ("vm-haltpoll", "idle=nomwait", "does more than intended", "haltpoll does not register"),
        ("server-ice-lake", "idle=poll", "works", "full power"),
        ("server-ice-lake", "idle=mwait", "does nothing here", "poll, halt and nomwait"),
        ("phone-sm8550", "idle=poll", "does nothing here", "only kernels for x86"),
        ("vm-haltpoll", "processor.max_cstate=1", "does nothing here", "the driver is haltpoll"),
        ("vm-haltpoll", "cpuidle_haltpoll.force=1", "works", "haltpoll is the driver"),
        (
            "server-ice-lake",
            "cpuidle_haltpoll.force=1",
            "does nothing here",
            "intel_idle registers before",
        ),
        ("vm-no-driver", "cpuidle.governor=teo", "does nothing here", "no governor decides"),
        ("server-ice-lake", "cpuidle.governor=menu", "works", "this kernel has menu"),
        ("server-ice-lake", "cpuidle.governor=teo", "cannot be told", "available_governors"),
        ("server-ice-lake", "cpuidle.off=1", "works", "default routine"),
        ("server-ice-lake", "cpuidle.off=0", "does nothing here", "the default"),
        ("server-ice-lake", "intel_idle.states_off=8", "works", "C6 is off until"),
        ("server-ice-lake", "intel_idle.states_off=0x100", "does nothing here", "no such state"),
        ("server-ice-lake", "nohz=off", "works", "at each tick"),
        ("server-ice-lake", "nohz=maybe", "does nothing here", "neither on nor off"),
        ("server-ice-lake", "intel_idle.no_acpi=1", "cannot be told", "does not judge"),
        ("vm-haltpoll", "haltpoll.guest_halt_poll_ns=0", "works", "haltpoll is the governor"),
        (
            "server-ice-lake",
            "haltpoll.guest_halt_poll_ns=0",
            "does nothing here",
            "the governor is menu",
        ),
    ] {
        assert_checked(machine, setting, verdict, because);
    }
    let machine = CapturedMachine::unpack("server-ice-lake");
    machine.write("sys/devices/system/cpu/cpuidle/available_governors", "ladder menu\n");
    assert_eq!(
        only(&machine, "cpuidle.governor=teo")["because"],
        "this kernel has only ladder, menu"
    );
    machine.write("sys/module/intel_idle/parameters/max_cstate", "9\n");
    assert_eq!(only(&machine, "amd_idle.max_cstate=1")["verdict"], "does nothing here");
    // It was changed while the machine ran.
    let guest = CapturedMachine::unpack("vm-haltpoll");
    guest.write("proc/cmdline", "haltpoll.guest_halt_poll_ns=0\n");
    for (now, expected) in [("0", true), ("200000", false)] {
        guest.write("sys/module/haltpoll/parameters/guest_halt_poll_ns", &format!("{now}\n"));
        assert_eq!(only(&guest, "haltpoll.guest_halt_poll_ns=0")["in_force"], expected);
    }
    // Together they mean something else.
    let (_folder, path) = file("intel_idle.max_cstate=0 processor.max_cstate=1");
    let (document, _) = check(&machine, &path);
    assert_eq!(document["settings"][1]["verdict"], "works", "{document:#}");
}

#[test]
fn it_says_what_is_in_force_now() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let in_force = |text: &str| only(&machine, text)["in_force"].clone();
    // Nobody can tell without the file.
    assert_eq!(in_force("nohz=off"), Value::Null);
    machine.write("proc/cmdline", "quiet nohz=off intel_idle.max_cstate=2 idle=poll -- nohz=on\n");
    assert_eq!(in_force("nohz=off"), true);
    assert_eq!(in_force("nohz=on"), false);
    // It is on the command line, but the machine shows otherwise.
    for contradicted in ["intel_idle.max_cstate=2", "idle=poll"] {
        let found = only(&machine, contradicted);
        assert_eq!(found["in_force"], false, "{found:#}");
        let why = found["in_force_because"].as_str().unwrap();
        assert!(why.starts_with("/proc/cmdline has it, but "), "{why}");
    }
    assert_eq!(in_force("cpuidle.governor=menu"), false, "a reboot would be needed");
    let limit = "[cpu]\nforce_latency=10\n";
    assert_eq!(in_force(limit), Value::Null, "there is no /dev/cpu_dma_latency");
    for (now_us, expected) in [(10_i32, true), (1, true), (11, false), (2_000_000_000, false)] {
        fs::create_dir_all(machine.path().join("dev")).unwrap();
        fs::write(machine.path().join("dev/cpu_dma_latency"), now_us.to_ne_bytes()).unwrap();
        assert_eq!(in_force(limit), expected, "{now_us}");
    }
    let off = "[sysfs]\n/sys/devices/system/cpu/cpu*/cpuidle/state3/disable=1\n";
    assert_eq!(in_force(off), false);
    for cpu in [0, 1, 2, 3, 72, 73, 74, 75] {
        machine.write(&crate::captured::state_file(cpu, 3, "disable"), "1\n");
    }
    assert_eq!(in_force(off), true);
    assert_eq!(only(&machine, &off.replace("state3", "state7"))["verdict"], "does nothing here");
    let one = "[sysfs]\n/sys/devices/system/cpu/cpu72/power/pm_qos_resume_latency_us=20\n";
    assert_eq!(in_force(one), false);
    machine.write("sys/devices/system/cpu/cpu72/power/pm_qos_resume_latency_us", "20\n");
    assert_eq!(in_force(one), true);
    let governor = "[sysfs]\n/sys/devices/system/cpu/cpuidle/current_governor=menu\n";
    let (_folder, path) = file(governor);
    assert_eq!(check(&machine, &path).1, Some(0), "it works and is in force");
}

#[test]
fn a_tuned_profile_comes_with_what_it_includes() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    // The new place, the old one, and a profile that includes its own name.
    machine.write(
        "usr/lib/tuned/profiles/base/tuned.conf",
        "[main]\nsummary=x\n[variables]\nlimit=cstate.name:C1|3\ninclude=/etc/tuned/own.conf\n\
         [cpu]\nforce_latency=${limit} # a comment\ngovernor=performance\n[disk]\nlatency=1\n",
    );
    machine.write("etc/tuned/own.conf", "boot=intel_idle.max_cstate=1\n");
    machine.write(
        "usr/lib/tuned/mine/tuned.conf",
        "[main]\ninclude=base\n[power]\ntype=cpu\npm_qos_resume_latency_us=7\n",
    );
    machine.write(
        "etc/tuned/mine/tuned.conf",
        "[main]\ninclude = mine\n[bootloader]\ncmdline_mine=+quiet ${boot} isolcpus=1\ncmdline_less=-nohz=off\n\
         [sysfs]\n/sys/devices/system/cpu/cpu0/cpufreq/x=1\n",
    );
    machine.write("etc/tuned/active_profile", "balanced\n");
    let (document, status) = check(&machine, "tuned:mine");
    assert_eq!(status, Some(1));
    let settings: Vec<&str> = document["settings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["setting"].as_str().unwrap())
        .collect();
    let expected =
        ["force_latency=cstate.name:C1|3", "pm_qos_resume_latency_us=7", "intel_idle.max_cstate=1"];
    assert_eq!(settings, expected, "{document:#}");
    assert_eq!(document["notes"][0], "the active profile of tuned is balanced, not mine");
    // An option of the profile that includes overrides that of the included one.
    machine.write("etc/tuned/over/tuned.conf", "[main]\ninclude=base\n[cpu]\nforce_latency=99\n");
    let (document, _) = check(&machine, "tuned:over");
    assert_eq!(document["settings"][0]["setting"], "force_latency=99", "{document:#}");
    assert_eq!(document["settings"].as_array().unwrap().len(), 1);
    let text = machine.path().join("etc/tuned/over/tuned.conf");
    let (document, _) = check(&machine, text.to_str().unwrap());
    assert_eq!(document["settings"][0]["setting"], "force_latency=99", "by its file");
    let at = |profile: &'static str| {
        let sysroot = machine.path().to_str().unwrap();
        ["advise", "--sysroot", sysroot, "--check-profile", profile].map(str::to_owned)
    };
    let refused = |arguments: [String; 5], part: &str| {
        assert_refused(&arguments.each_ref().map(String::as_str), &[part]);
    };
    refused(at("tuned:nothing"), "tuned has no profile nothing in /etc/tuned/profiles, ");
    refused(at("tuned:../mine"), "no profile ../mine");
    refused(at("tuned:bsae"), "no profile bsae in /etc/tuned/profiles, ");
    refused(at("tuned:bsae"), "; did you mean 'base'?");
    refused(at("cmdlien"), "there is no file cmdlien; did you mean 'cmdline'?");
    refused(at("tund:base"), "there is no file tund:base; did you mean 'tuned:NAME'?");
    machine.write("etc/tuned/broken/tuned.conf", "[main]\ninclude=gone\n");
    refused(at("tuned:broken"), "broken includes it");
}

/// What `advise --emit tuned` writes is understood.
#[test]
fn our_own_profile_works_where_it_was_made_for() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuned.conf").to_str().unwrap().to_owned();
    let emit = [
        "advise",
        "traces/h-pingpong.parquet",
        "--machine",
        "spr",
        "--slo",
        "p99=50us",
        "--emit",
        "tuned",
        "-o",
    ];
    assert!(idlewise(&[&emit[..], &[&path]].concat()).status.success());
    let (document, _) = check(&machine, &path);
    assert_eq!(document["settings"][0]["verdict"], "works", "{document:#}");
}

#[test]
fn other_forms_are_read_or_refused() {
    let machine = CapturedMachine::unpack("server-ice-lake");
    machine.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz nohz=off\n");
    let (document, status) = check(&machine, "cmdline");
    assert_eq!(
        (&document["settings"][0]["in_force"], status),
        (&true.into(), Some(0)),
        "{document:#}"
    );
    let grub = "# GRUB\nGRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet idle=halt\"\nGRUB_CMDLINE_LINUX=\"nohz=on\"\n";
    let (_folder, path) = file(grub);
    let (document, _) = check(&machine, &path);
    assert_eq!(document["settings"].as_array().unwrap().len(), 2, "{document:#}");
    let (_folder, path) =
        file("# TLP\nTLP_ENABLE=1\nCPU_SCALING_GOVERNOR_ON_AC=performance\nDEVICES+=\"x\"\n");
    let (document, status) = check(&machine, &path);
    assert_eq!((&document["form"], status), (&"TLP configuration".into(), Some(0)), "{document:#}");
    assert!(
        document["notes"][0].as_str().unwrap().starts_with("TLP has no setting of idle states")
    );
    let sysroot = machine.path().to_str().unwrap();
    // The second passed as a command line without a setting.
    for text in ["some\nlines\n", "junk\u{1}"] {
        let (_folder, path) = file(text);
        assert_refused(
            &["advise", "--sysroot", sysroot, "--check-profile", &path],
            &["is no profile of tuned"],
        );
    }
    assert_refused(&["advise", "--check-profile", "/nowhere"], &["cannot read /nowhere"]);
    // It was waited for without a word.
    let (_folder, path) = file("");
    let pipe = format!("{path}.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_refused(&["advise", "--check-profile", &pipe], &["cannot read", "a pipe"]);
    // The text fits and says the same.
    let (_folder, path) = file("idle=nomwait intel_idle.max_cstate=0 processor.max_cstate=1\n");
    let run = idlewise(&["advise", "--sysroot", sysroot, "--check-profile", &path]);
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(1), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= crate::WIDTH), "{text}");
    assert!(text.contains("  works: intel_idle is not used;"), "{text}");
    assert!(text.contains("  not in force now: /proc/cmdline does not have it"), "{text}");
}
