//! Collects everything that a trace should say about the recorded machine.

use std::collections::{BTreeMap, BTreeSet};

use flate2::read::GzDecoder;
use idlewise_machine::{Arch, Machine, MachineState};
use idlewise_trace::{CpuGroups, Doubt, Driver, MachineNote, NOTE_VERSION, NotedTable};

use crate::Root;
use crate::cpuidle;
use crate::root::read_whole;

/// `/dev/cpu_dma_latency` without any request (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`, 2000 s).
const UNLIMITED_US: i32 = 2_000_000_000;
/// Far more than a kernel configuration needs, which is a quarter of a megabyte.
const CONFIG_BYTE_COUNT_MAX: u64 = 16 << 20;

/// Reads the machine under `root`. `command` is the recorder's own command line.
///
/// What the machine does not show is left out, without an error.
pub fn note(root: &Root, command: String) -> MachineNote {
    let cpus = root.online_cpus();
    let kernel = root.text("proc/sys/kernel/osrelease");
    let arch = arch(root);
    let cpuinfo = CpuInfo::read(root);
    let driver = driver(root);
    let has_driver = matches!(driver, Some(Driver::Named(_)));
    let cpu_model = cpuinfo.model(root);
    let title = cpu_model.as_deref().unwrap_or("a machine without a name");
    let mut machine = Machine::new(
        "recorded",
        title,
        Arch::of_uname(arch.as_deref().unwrap_or_default()),
        "captured",
    );
    machine.vendor = cpuinfo.field("vendor_id");
    machine.model_name.clone_from(&cpu_model);
    machine.family = cpuinfo.number("cpu family");
    machine.model = cpuinfo.number("model");
    machine.stepping = cpuinfo.number("stepping");
    machine.driver = driver.as_ref().map(Driver::to_string);
    machine.kernel.clone_from(&kernel);
    machine.source_ref = Some("/sys/devices/system/cpu, read by idlewise record".to_owned());
    MachineNote {
        note_version: NOTE_VERSION,
        command,
        hz: hz(root, kernel.as_deref()),
        kernel_cmdline: root.text("proc/cmdline"),
        governor: governor(root).filter(|_| has_driver),
        tables: if has_driver { tables(root, &cpus, &machine) } else { Vec::new() },
        latency_limits_ns: latency_limits_ns(root, &cpus),
        topology: groups(root, &cpus),
        cpu_model,
        kernel,
        arch,
        driver,
        limits_changed: false,
        doubts: Vec::new(),
    }
}

/// Adds a doubt for everything that changed while recording. A changed limit is removed as unknown.
pub fn compare(before: &mut MachineNote, root: &Root) {
    let now = latency_limits_ns(root, &root.online_cpus());
    if now != before.latency_limits_ns {
        before.latency_limits_ns.clear();
        before.limits_changed = true;
    }
    let governor_now = governor(root);
    if before.governor.is_some() && governor_now != before.governor {
        let governor = governor_now.unwrap_or_else(|| "none".to_owned());
        before.doubts.push(Doubt::GovernorChanged { governor });
    }
}

fn arch(root: &Root) -> Option<String> {
    // Linux shows it since 6.1.
    root.text("proc/sys/kernel/arch").or_else(|| {
        root.is_live().then(|| rustix::system::uname().machine().to_string_lossy().into_owned())
    })
}

/// Also `None` if the kernel has no cpuidle at all.
pub(crate) fn driver(root: &Root) -> Option<Driver> {
    root.text("sys/devices/system/cpu/cpuidle/current_driver").map(Driver::from).or_else(|| {
        let has_sysfs = root.path("sys/devices/system/cpu/online").exists();
        has_sysfs.then_some(Driver::Absent)
    })
}

pub(crate) fn governor(root: &Root) -> Option<String> {
    let folder = "sys/devices/system/cpu/cpuidle";
    // Up to 5.9, the file with the writable name existed only on request.
    root.text(&format!("{folder}/current_governor"))
        .or_else(|| root.text(&format!("{folder}/current_governor_ro")))
}

/// The idle states of each kind of CPU, in the order of the CPUs. The rest is from `machine`.
fn tables(root: &Root, cpus: &[u16], machine: &Machine) -> Vec<NotedTable> {
    let mut kinds: Vec<(Vec<MachineState>, Vec<u16>)> = Vec::new();
    for &cpu in cpus {
        let states = cpuidle::states(root, cpu);
        match kinds.iter_mut().find(|(known, _)| *known == states) {
            Some((_, cpus)) => cpus.push(cpu),
            None => kinds.push((states, vec![cpu])),
        }
    }
    kinds.retain(|(states, _)| !states.is_empty());
    let is_mixed = kinds.len() > 1;
    let table = |(states, cpus): (Vec<MachineState>, Vec<u16>)| {
        let mut machine = machine.clone();
        machine.states = states;
        if is_mixed {
            let first = cpus.first().copied().unwrap_or_default();
            machine.id = format!("recorded-cpu{first}");
            machine.title = format!("{}, CPU {first} and those like it", machine.title);
        }
        NotedTable { cpus, machine }
    };
    kinds.into_iter().map(table).collect()
}

/// Which CPUs form a core, a cluster or a package, according to sysfs. Only the given CPUs are in it. A level that
/// sysfs does not show for all of them is left out.
pub fn groups(root: &Root, cpus: &[u16]) -> Option<CpuGroups> {
    let known: BTreeSet<u16> = cpus.iter().copied().collect();
    let level = |files: &[&str]| -> Vec<Vec<u16>> {
        let group = |&cpu: &u16| {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let mut found =
                files.iter().find_map(|file| root.cpus_in(&format!("{folder}/{file}")))?;
            found.retain(|cpu| known.contains(cpu));
            Some(found)
        };
        let groups: Option<BTreeSet<Vec<u16>>> = cpus.iter().map(group).collect();
        groups.map(|groups| groups.into_iter().collect()).unwrap_or_default()
    };
    // The second name is that of kernels before 5.x.
    let groups = CpuGroups {
        core: level(&["core_cpus_list", "thread_siblings_list"]),
        cluster: level(&["cluster_cpus_list"]),
        package: level(&["package_cpus_list", "core_siblings_list"]),
    };
    (groups != CpuGroups::default() && groups.check().is_ok()).then_some(groups)
}

/// CONFIG_HZ of the running kernel, if its configuration can be found.
fn hz(root: &Root, kernel: Option<&str>) -> Option<u32> {
    let of =
        |text: &str| text.lines().find_map(|line| line.strip_prefix("CONFIG_HZ=")?.parse().ok());
    let packed = root.open("proc/config.gz").ok().and_then(|file| {
        of(std::str::from_utf8(&read_whole(GzDecoder::new(file), CONFIG_BYTE_COUNT_MAX).ok()?)
            .ok()?)
    });
    packed.or_else(|| {
        let kernel = kernel?;
        let files = [format!("boot/config-{kernel}"), format!("lib/modules/{kernel}/config")];
        files.iter().find_map(|file| of(&root.text(file)?))
    })
}

/// Returns the longest exit latency that PM QoS allows each CPU: the smaller of the machine's limit and the
/// CPU's own. A CPU without a limit is not in it.
pub fn latency_limits_ns(root: &Root, cpus: &[u16]) -> BTreeMap<u16, u64> {
    // Opening it does not request a limit: a request starts with the default.
    let global_us = root
        .bytes("dev/cpu_dma_latency")
        .ok()
        .and_then(|bytes| bytes.first_chunk().copied().map(i32::from_ne_bytes))
        .filter(|&us| (0..UNLIMITED_US).contains(&us))
        .map(|us| u64::from(us.unsigned_abs()));
    let limit_us = |cpu: u16| {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}/power");
        match root.text(&format!("{folder}/pm_qos_resume_latency_us"))?.as_str() {
            "n/a" => Some(0),
            "0" => None,
            us => us.parse().ok(),
        }
    };
    cpus.iter()
        .filter_map(|&cpu| {
            let limit_us = [global_us, limit_us(cpu)].into_iter().flatten().min()?;
            Some((cpu, limit_us.saturating_mul(1_000)))
        })
        .collect()
}

/// The contents of /proc/cpuinfo.
pub(crate) struct CpuInfo(String);

impl CpuInfo {
    pub(crate) fn read(root: &Root) -> Self {
        CpuInfo(root.text("proc/cpuinfo").unwrap_or_default())
    }

    /// The first CPU's field with that name.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        self.0.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    }

    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        self.field(name)?.parse().ok()
    }

    /// The first CPU's field with that name, even if it is empty.
    pub(crate) fn line<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.lines(name).next()
    }

    /// The flags of each CPU.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> + Clone {
        self.lines("flags")
    }

    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + Clone {
        self.0.lines().filter_map(move |line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    }

    /// x86 has `model name`, POWER `cpu`; Arm machines have at best the device tree.
    pub(crate) fn model(&self, root: &Root) -> Option<String> {
        let device_tree = || root.text("proc/device-tree/model");
        let name = self.field("model name").or_else(|| self.field("cpu"));
        let name = name.or_else(device_tree).or_else(|| self.field("Hardware"))?;
        Some(name.trim_end_matches('\0').to_owned())
    }
}
