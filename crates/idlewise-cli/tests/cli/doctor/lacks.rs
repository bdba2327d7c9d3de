//! How a healthy machine can come to lack something, what the row then says, and what mends it.

use std::fs;

use super::{
    ALL_CAPABILITIES, BENCH, CPU, Healthy, NO_CAPABILITIES, PARANOID, TRACING, UNIT, WANTS,
    turn_states, without_driver,
};
use crate::user;

type Change = Box<dyn Fn(&Healthy)>;

/// A way to lack something.
pub struct Lack {
    pub id: &'static str,
    pub take: Change,
    /// What the row then says.
    pub verdict: &'static str,
    pub why: &'static str,
    pub mend: &'static str,
    /// What mends it.
    pub give: Change,
}

fn lack(
    id: &'static str,
    take: impl Fn(&Healthy) + 'static,
    verdict: &'static str,
    why: &'static str,
    mend: &'static str,
    give: impl Fn(&Healthy) + 'static,
) -> Lack {
    Lack { id, take: Box::new(take), verdict, why, mend, give: Box::new(give) }
}

/// A file or folder is not there, until it is.
fn without(
    id: &'static str,
    name: &str,
    verdict: &'static str,
    why: &'static str,
    mend: &'static str,
) -> Lack {
    let (taken, given) = (name.to_owned(), name.to_owned());
    let take = move |machine: &Healthy| rename(machine, &taken, "aside");
    lack(id, take, verdict, why, mend, move |machine| rename(machine, "aside", &given))
}

/// A file holds something else, until it holds what it should.
fn changed(
    id: &'static str,
    name: &str,
    wrong: &str,
    verdict: &'static str,
    why: &'static str,
    mend: &'static str,
    right: &str,
) -> Lack {
    let put = |text: &str| {
        let (name, text) = (name.to_owned(), text.to_owned());
        move |machine: &Healthy| machine.put(&name, &text)
    };
    lack(id, put(wrong), verdict, why, mend, put(right))
}

fn rename(machine: &Healthy, from: &str, to: &str) {
    fs::rename(machine.path(from), machine.path(to)).unwrap();
}

pub fn lacks() -> Vec<Lack> {
    fn driver(text: &'static str) -> impl Fn(&Healthy) {
        move |machine| machine.put("sys/devices/system/cpu/cpuidle/current_driver", text)
    }
    vec![
        lack("counts", without_driver, "no", "no cpuidle driver", "idle", |m| {
            driver("intel_idle\n")(m);
            for cpu in 0..4 {
                rename(m, &format!("aside{cpu}"), &format!("{CPU}/cpu{cpu}/cpuidle"));
            }
        }),
        without(
            "counts",
            &format!("{CPU}/cpu2/cpuidle/state1/usage"),
            "partly",
            "state1/usage cannot be read",
            "hides",
        ),
        without(
            "counts",
            &format!("{CPU}/cpu1/cpuidle/state2/above"),
            "partly",
            "too deep or too shallow",
            "Linux 5.0",
        ),
        lack("watch", without_driver, "partly", "only idle time", "idle", |m| {
            driver("intel_idle\n")(m);
            for cpu in 0..4 {
                rename(m, &format!("aside{cpu}"), &format!("{CPU}/cpu{cpu}/cpuidle"));
            }
        }),
        changed(
            "record",
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
            "no",
            "locked down",
            "Secure Boot",
            "[none] integrity confidentiality\n",
        ),
        without(
            "record",
            TRACING,
            "no",
            "tracefs is not mounted",
            "mount -t tracefs nodev /sys/kernel/tracing",
        ),
        without(
            "record",
            &format!("{TRACING}/events/power"),
            "no",
            "no power:cpu_idle",
            "CONFIG_CPU_IDLE",
        ),
        without(
            "record",
            &format!("{TRACING}/events/timer/tick_stop"),
            "partly",
            "no timer:tick_stop",
            "docs/recording.md",
        ),
        without(
            "causes",
            &format!("{TRACING}/events/sched/sched_waking"),
            "no",
            "no sched:sched_waking",
            "docs/recording.md",
        ),
        lack(
            "histogram",
            |m| m.remove("proc/sys/kernel/unprivileged_bpf_disabled"),
            "no",
            "no BPF",
            "CONFIG_BPF_SYSCALL",
            |m| m.put("proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
        ),
        changed(
            "histogram",
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
            "no",
            "locked down",
            "Secure Boot",
            "[none] integrity confidentiality\n",
        ),
        lack(
            "perf",
            |m| m.remove(PARANOID),
            "no",
            "no perf events",
            "CONFIG_PERF",
            |m| m.put(PARANOID, "2\n"),
        ),
        lack(
            "perf",
            |m| m.remove("bin/perf"),
            "no",
            "not in PATH",
            "linux-perf",
            |m| {
                m.put_perf();
            },
        ),
        without("perf", TRACING, "no", "tracefs is not mounted", "mount -t tracefs"),
        lack(
            "histogram",
            |m| m.remove("proc/self"),
            "unknown",
            "does not say who runs",
            "copy proc/self",
            |m| m.put("proc/self/status", ALL_CAPABILITIES),
        ),
        without("histogram", "proc", "unknown", "the copy has no /proc", "copy it"),
        without("states", "sys", "unknown", "the copy has no /sys", "copy it"),
        lack(
            "states",
            |m| driver("none\n")(m),
            "no",
            "no cpuidle driver",
            "idle",
            |m| driver("intel_idle\n")(m),
        ),
        without(
            "latency",
            &format!("{CPU}/cpu3/power/pm_qos_resume_latency_us"),
            "no",
            "no pm_qos_resume_latency_us",
            "CONFIG_PM",
        ),
        without("machine_latency", "dev/cpu_dma_latency", "no", "no cpu_dma_latency", "CONFIG_PM"),
        lack(
            "machine_latency",
            |m| {
                rename(m, "dev/cpu_dma_latency", "aside");
                m.put("proc/misc", "259 cpu_dma_latency\n235 autofs\n");
            },
            "no",
            "no cpu_dma_latency: the kernel has this device",
            "mknod -m 600 /dev/cpu_dma_latency c 10 259",
            |m| rename(m, "aside", "dev/cpu_dma_latency"),
        ),
        lack(
            "governor",
            |m| {
                rename(m, &format!("{CPU}/cpuidle/current_governor"), "aside");
                m.put(&format!("{CPU}/cpuidle/current_governor_ro"), "menu\n");
            },
            "no",
            "no current_governor",
            "cpuidle_sysfs_switch",
            |m| rename(m, "aside", &format!("{CPU}/cpuidle/current_governor")),
        ),
        changed(
            "governor",
            &format!("{CPU}/cpuidle/available_governors"),
            "menu\n",
            "partly",
            "no governor but menu",
            "idlewise_governor",
            "menu idlewise\n",
        ),
        lack(
            "boot_settings",
            |m| m.remove("run/systemd"),
            "no",
            "systemd does not run",
            "init system",
            |m| fs::create_dir_all(m.path("run/systemd/system")).unwrap(),
        ),
        lack(
            "boot_settings",
            |m| m.remove(&format!("usr/lib/systemd/system/{UNIT}")),
            "no",
            "not installed",
            "package idlewise",
            |m| m.put(&format!("usr/lib/systemd/system/{UNIT}"), ""),
        ),
        lack(
            "boot_settings",
            |m| m.remove("etc/idlewise/settings.conf"),
            "partly",
            "no /etc/idlewise/settings.conf",
            "C6=off",
            |m| m.put("etc/idlewise/settings.conf", "C6=off\n"),
        ),
        lack(
            "boot_settings",
            |m| m.remove(WANTS),
            "partly",
            "not enabled",
            "systemctl enable --now idlewise-settings",
            |m| m.put(WANTS, ""),
        ),
        lack(
            "exit_latency",
            |m| m.0.set_online("0"),
            "no",
            "CPU 0 is the only one online",
            "another CPU online",
            |m| m.0.set_online("0-3"),
        ),
        changed(
            "exit_latency",
            "proc/self/status",
            &ALL_CAPABILITIES.replace("0-3", "2"),
            "no",
            "this process may not run on CPU 0",
            "taskset",
            ALL_CAPABILITIES,
        ),
        lack(
            "exit_latency",
            |m| turn_states(m, "1\n"),
            "no",
            "all idle states are off: C1, C6",
            "idlewise set apply --set C6=on",
            |m| turn_states(m, "0\n"),
        ),
        without(
            "energy",
            "sys/class/powercap",
            "no",
            "neither RAPL nor a battery",
            "modprobe intel_rapl_msr",
        ),
        lack(
            "energy",
            |m| {
                m.remove("sys/class/powercap");
                m.put("sys/class/power_supply/BAT0/type", "Battery\n");
                m.put("sys/class/power_supply/BAT0/energy_now", "5000\n");
                m.put("sys/class/power_supply/BAT0/status", "Charging\n");
            },
            "no",
            "BAT0 is charging",
            "unplug",
            |m| m.put("sys/class/power_supply/BAT0/status", "Discharging\n"),
        ),
        lack(
            "wake_latency",
            |m| m.0.set_online("1"),
            "partly",
            "only timer: ipi needs two CPUs",
            "online",
            |m| m.0.set_online("0-3"),
        ),
        without(
            "wake_latency",
            BENCH,
            "partly",
            "debugfs is not mounted",
            "mount -t debugfs none /sys/kernel/debug",
        ),
        lack(
            "wake_latency",
            |m| {
                rename(m, BENCH, "aside");
                m.remove("sys/module/idlewise_bench");
                m.put("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_bench.ko:\n");
            },
            "partly",
            "idlewise_bench is not loaded",
            "modprobe idlewise_bench",
            |m| rename(m, "aside", BENCH),
        ),
        changed(
            "wake_latency",
            &format!("{CPU}/../clocksource/clocksource0/available_clocksource"),
            "hpet acpi_pm\n",
            "partly",
            "given up the TSC",
            "--by user-space",
            "tsc hpet\n",
        ),
        lack(
            "wake_latency",
            |m| {
                rename(m, BENCH, "aside");
                m.put("proc/self/status", &ALL_CAPABILITIES.replace("0-3", "2"));
            },
            "partly",
            "may not run on two CPUs",
            "taskset",
            |m| rename(m, "aside", BENCH),
        ),
        lack(
            "wake_latency",
            |m| {
                rename(m, BENCH, "aside");
                m.remove("sys/module/idlewise_bench");
                m.put("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_bench.ko:\n");
                m.put("sys/module/module/parameters/sig_enforce", "Y\n");
            },
            "partly",
            "only signed modules",
            "mokutil",
            |m| rename(m, "aside", BENCH),
        ),
        without(
            "counters",
            "sys/bus/event_source",
            "partly",
            "only the kernel's counts",
            "measure counters --list",
        ),
        lack(
            "modules",
            |m| m.remove("sys/module/idlewise_idle"),
            "no",
            "no headers for Linux 6.12.1",
            "apt install linux-headers-6.12.1",
            |m| {
                m.put("lib/modules/6.12.1/build/Makefile", "");
                assert_eq!(m.row("modules")["verdict"], "partly", "the next step is to build them");
                m.put("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_idle.ko:\n");
            },
        ),
        lack(
            "modules",
            |m| {
                m.remove("sys/module/idlewise_idle");
                m.put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
                m.put("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_idle.ko:\n");
            },
            "partly",
            "signed",
            "mokutil",
            |m| m.put("sys/module/idlewise_idle/refcnt", "0\n"),
        ),
        lack(
            "modules",
            |m| {
                m.remove("sys/module/idlewise_idle");
                m.remove("proc/modules");
            },
            "no",
            "loads no modules",
            "CONFIG_MODULES",
            |m| m.put("sys/module/idlewise_idle/refcnt", "0\n"),
        ),
        changed(
            "boot",
            "proc/cpuinfo",
            "CPU implementer : 0x41\n",
            "no",
            "no x86 CPU",
            "--cpuid",
            "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\n",
        ),
    ]
    .into_iter()
    .chain(lacks_of_rights())
    .collect()
}

/// What capabilities decide is `as root` for a user, and refused for root without them.
fn lacks_of_rights() -> Vec<Lack> {
    let (verdict, why, mend) = match user() {
        0 => ("no", "even root is refused", "on the host"),
        _ => ("as_root", "needs root", "sudo "),
    };
    let take: fn(&Healthy) = |m| m.put("proc/self/status", NO_CAPABILITIES);
    let give: fn(&Healthy) = |m| m.put("proc/self/status", ALL_CAPABILITIES);
    let mut lacks: Vec<Lack> = vec![
        lack("histogram", take, verdict, why, mend, give),
        lack("perf", take, verdict, why, mend, give),
        lack("perf", take, verdict, why, mend, |m| m.put(PARANOID, "-1\n")),
    ];
    let counts = if user() == 0 { why } else { "only the kernel's counts" };
    lacks.push(lack("counters", take, "partly", counts, mend, give));
    let open: fn(&Healthy) = |m| m.put(PARANOID, "0\n");
    lacks.push(lack("counters", take, "partly", counts, mend, open));
    if user() == 0 {
        lacks.push(lack(
            "modules",
            |m| {
                m.remove("sys/module/idlewise_idle");
                m.put("lib/modules/6.12.1/modules.dep", "updates/dkms/idlewise_idle.ko:\n");
                m.put("proc/self/status", NO_CAPABILITIES);
            },
            "no",
            "may load no modules",
            "on the host",
            give,
        ));
    }
    lacks
}
