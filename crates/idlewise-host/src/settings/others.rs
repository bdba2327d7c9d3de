//! Programs that write the same settings, or settings near them: who may undo ours.

use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;

use crate::Root;

/// A program that may change settings behind our back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherWriter {
    /// Its name.
    pub name: &'static str,
    /// What it writes.
    pub writes: &'static str,
    /// Whether it writes settings that idlewise can set.
    pub is_rival: bool,
    /// Its process, if it runs.
    pub pid: Option<i32>,
    /// The systemd unit that starts it, if that is enabled.
    pub unit: Option<String>,
}

/// The daemons that we know, with what their documentation says they write, and whether idlewise can set some of it.
/// The unit of each has its name.
const KNOWN: &[(&str, &str, bool)] = &[
    (
        "tuned",
        "latency limits (force_latency, pm_qos_resume_latency_us), as its profile says",
        true,
    ),
    ("crio", "latency limits of CPUs of pods (cpu-c-states.crio.io)", true),
    ("cpupower", "frequencies; idle states when somebody runs `cpupower idle-set`", true),
    ("power-profiles-daemon", "frequencies and platform profiles", false),
    ("auto-cpufreq", "frequencies", false),
    ("tlp", "frequencies and devices' power management", false),
    ("throttled", "power limits and voltages, by MSR", false),
];

/// The kernel cuts a process's name.
const COMM_BYTE_COUNT: usize = 15;

/// Returns the programs that run, or that systemd starts, and that write such settings.
pub fn other_writers(root: &Root) -> Vec<OtherWriter> {
    let processes = processes(root);
    let units = enabled_units(root);
    let found = KNOWN.iter().filter_map(|&(name, writes, is_rival)| {
        let process = processes.iter().find(|process| process.is(name));
        let pid = process.map(|process| process.pid);
        let unit = Some(format!("{name}.service")).filter(|unit| units.contains(unit));
        let other = OtherWriter { name, writes, is_rival, pid, unit };
        (other.pid.is_some() || other.unit.is_some()).then_some(other)
    });
    found.collect()
}

/// The programs that write settings of ours, in words.
pub(super) fn named_writers(root: &Root) -> String {
    let rivals = other_writers(root).into_iter().filter(|other| other.is_rival);
    let names: Vec<String> = rivals
        .map(|other| match other.pid {
            Some(pid) => format!("{} runs, process {pid}", other.name),
            None => format!("{} is enabled", other.name),
        })
        .collect();
    match names.is_empty() {
        true => "no daemon that is known to do so runs here".to_owned(),
        false => names.join(", "),
    }
}

/// Returns the processes that hold a latency limit of the whole machine: number and name. Only root sees those of
/// others.
pub fn latency_limit_holders(root: &Root) -> Vec<(i32, String)> {
    let holds = |process: &Process| {
        let folder = format!("proc/{}/fd", process.pid);
        let targets = root.names(&folder).into_iter();
        let mut targets = targets.filter_map(|link| root.link(&format!("{folder}/{link}")));
        targets.any(|target| target == "/dev/cpu_dma_latency")
    };
    let holders = processes(root).into_iter().filter(holds);
    holders.map(|process| (process.pid, process.name)).collect()
}

struct Process {
    pid: i32,
    name: String,
    /// The program's name if an interpreter runs it.
    script: Option<String>,
}

impl Process {
    fn is(&self, name: &str) -> bool {
        self.name == name[..name.len().min(COMM_BYTE_COUNT)] || self.script.as_deref() == Some(name)
    }
}

fn processes(root: &Root) -> Vec<Process> {
    let process = |folder: String| {
        let pid: i32 = folder.parse().ok()?;
        let name = root.text(&format!("proc/{pid}/comm"))?;
        let is_python = name.starts_with("python");
        let script = || {
            let arguments = root.bytes(&format!("proc/{pid}/cmdline")).ok()?;
            let script = arguments.split(|byte| *byte == 0).nth(1)?;
            let script = Path::new(std::str::from_utf8(script).ok()?);
            script.file_stem().and_then(OsStr::to_str).map(str::to_owned)
        };
        Some(Process { pid, script: is_python.then(script).flatten(), name })
    };
    let mut processes: Vec<_> = root.names("proc").into_iter().filter_map(process).collect();
    processes.sort_by_key(|process| process.pid);
    processes
}

/// The units that systemd starts at boot.
pub(crate) fn enabled_units(root: &Root) -> Vec<String> {
    const FOLDER: &str = "etc/systemd/system";
    let wants = root.names(FOLDER).into_iter().filter(|name| name.ends_with(".wants"));
    wants.flat_map(|name| root.names(&format!("{FOLDER}/{name}"))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::root::tests::machine;

    #[test]
    fn daemons_are_found_by_process_and_by_unit() {
        let (_folder, root) = machine(&[
            ("proc/812/comm", "tuned\n"),
            ("proc/900/comm", "power-profiles-\n"),
            ("proc/77/comm", "python3\n"),
            ("proc/77/cmdline", "/usr/bin/python3\0/opt/throttled/throttled.py\0"),
            ("proc/78/comm", "python3\n"),
            ("proc/78/cmdline", "/usr/bin/python3\0-m\0http.server\0"),
            ("proc/1/comm", "systemd\n"),
            ("etc/systemd/system/multi-user.target.wants/tlp.service", ""),
            ("etc/systemd/system/multi-user.target.wants/ssh.service", ""),
        ]);
        let found = other_writers(&root);
        let found: Vec<_> = found.iter().map(|o| (o.name, o.pid, o.unit.as_deref())).collect();
        assert_eq!(
            found,
            [
                ("tuned", Some(812), None),
                ("power-profiles-daemon", Some(900), None),
                ("tlp", None, Some("tlp.service")),
                ("throttled", Some(77), None),
            ]
        );
        assert_eq!(named_writers(&root), "tuned runs, process 812");
    }

    #[test]
    fn processes_and_units_behind_a_link_that_leads_outside_are_none() {
        let (folder, root) = machine(&[("proc/1/comm", "systemd\n")]);
        let (outside, _) =
            machine(&[("812/comm", "tuned\n"), ("fd/3", ""), ("wants/tlp.service", "")]);
        let wants = folder.path().join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(wants.parent().unwrap()).unwrap();
        symlink(outside.path().join("wants"), wants).unwrap();
        symlink(outside.path().join("812"), folder.path().join("proc/812")).unwrap();
        assert!(other_writers(&root).is_empty());
        assert!(latency_limit_holders(&root).is_empty());
    }

    #[test]
    fn who_holds_the_machines_limit_is_named() {
        let (folder, root) = machine(&[("proc/5/comm", "jackd\n"), ("proc/6/comm", "cat\n")]);
        for (pid, target) in [(5, "/dev/cpu_dma_latency"), (6, "/dev/null")] {
            let fd = folder.path().join(format!("proc/{pid}/fd"));
            fs::create_dir(&fd).unwrap();
            symlink(target, fd.join("3")).unwrap();
        }
        assert_eq!(latency_limit_holders(&root), [(5, "jackd".to_owned())]);
    }
}
