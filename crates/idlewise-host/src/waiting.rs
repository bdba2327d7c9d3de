//! Facts about a machine that can affect how long a waiting thread waits. `idlewise-park-bench`
//! records them with its figures.

use crate::note::{self, CpuInfo};
use crate::{Relation, Root, cpuidle, is_virtual_machine};

/// Returns the facts in display order; `None` where the machine shows nothing. `waker_cpu` and
/// `waiter_cpu` are the CPUs of the measurement.
pub fn waiting_facts(
    root: &Root,
    waker_cpu: u16,
    waiter_cpu: u16,
) -> Vec<(&'static str, Option<String>)> {
    let cpu = format!("sys/devices/system/cpu/cpu{waiter_cpu}");
    let clock = "sys/devices/system/clocksource/clocksource0";
    vec![
        ("kernel", root.text("proc/sys/kernel/osrelease")),
        ("CPU", CpuInfo::read(root).model(root)),
        ("CPUs online", Some(root.online_cpus().len()).filter(|n| *n > 0).map(|n| n.to_string())),
        ("waker and waiter", relation(root, waker_cpu, waiter_cpu)),
        ("SMT", root.text("sys/devices/system/cpu/smt/control")),
        ("cpuidle driver", note::driver(root).map(String::from)),
        ("cpuidle governor", note::governor(root)),
        ("idle states, exit latency in µs", states(root, waiter_cpu)),
        ("idle options of the kernel's command line", options(root)),
        ("cpufreq driver", root.text(&format!("{cpu}/cpufreq/scaling_driver"))),
        ("cpufreq governor", root.text(&format!("{cpu}/cpufreq/scaling_governor"))),
        ("clock source", root.text(&format!("{clock}/current_clocksource"))),
        ("clock sources to choose from", root.text(&format!("{clock}/available_clocksource"))),
        ("hypervisor", hypervisor(root)),
        ("what KVM offers the guest", kvm_features(root)),
        ("guest halt polling (module haltpoll)", parameters(root, "haltpoll")),
        ("module cpuidle_haltpoll", parameters(root, "cpuidle_haltpoll")),
        ("halt polling for guests of this machine", root.text(HALT_POLL)),
    ]
}

const HALT_POLL: &str = "sys/module/kvm/parameters/halt_poll_ns";

/// The CPU time of all CPUs so far, and how much of it the hypervisor gave to others, in ticks.
pub fn steal_ticks(root: &Root) -> Option<(u64, u64)> {
    let text = root.text("proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal. Guest time is already in user.
    Some((ticks.get(..8)?.iter().sum(), ticks[7]))
}

/// What all CPUs together have done since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// All of it.
    pub all: u64,
    /// Running, also interrupts.
    pub busy: u64,
    /// Wanting to run while the host ran something else.
    pub stolen: u64,
    /// What this process and its ended children ran.
    pub own: u64,
}

/// Returns what the CPUs have done so far, and this process's part of it.
pub fn cpu_ticks(root: &Root) -> Option<CpuTicks> {
    let text = root.text("proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let &[user, nice, system, idle, iowait, irq, softirq, stolen] = ticks.get(..8)? else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    // After the name, which may have spaces: the state, ten more fields, then utime, stime, cutime, cstime.
    let own = root.text("proc/self/stat").and_then(|text| {
        let (_, fields) = text.rsplit_once(") ")?;
        fields
            .split_whitespace()
            .skip(11)
            .take(4)
            .map(|word| word.parse::<u64>().ok())
            .sum::<Option<u64>>()
    });
    Some(CpuTicks { all: busy + idle + iowait + stolen, busy, stolen, own: own.unwrap_or(0) })
}

/// Returns the one-minute load average.
pub fn load_average(root: &Root) -> Option<f64> {
    root.text("proc/loadavg")?.split_whitespace().next()?.parse().ok()
}

fn relation(root: &Root, waker_cpu: u16, waiter_cpu: u16) -> Option<String> {
    if waker_cpu == waiter_cpu {
        return Some(format!("both on CPU {waker_cpu}"));
    }
    let relation = Relation::of(root, waker_cpu, waiter_cpu)?;
    Some(format!("CPU {waker_cpu} and CPU {waiter_cpu}: {}", relation.as_str()))
}

fn states(root: &Root, cpu: u16) -> Option<String> {
    let states = cpuidle::states(root, cpu);
    let each =
        states.iter().map(|state| format!("{} {}", state.name, state.exit_latency_ns / 1_000));
    (!states.is_empty()).then(|| each.collect::<Vec<_>>().join(", "))
}

/// The options of the kernel's command line that change how CPUs idle. The rest is private.
fn options(root: &Root) -> Option<String> {
    const STARTS: [&str; 12] = [
        "idle=",
        "cpuidle",
        "haltpoll",
        "intel_idle",
        "processor.max_cstate",
        "nohz",
        "isolcpus",
        "rcu_nocbs",
        "mitigations=",
        "clocksource=",
        "tsc=",
        "preempt=",
    ];
    let line = root.text("proc/cmdline")?;
    let is_ours = |word: &&str| STARTS.iter().any(|start| word.starts_with(start));
    let words: Vec<&str> = line.split_whitespace().filter(is_ours).collect();
    Some(if words.is_empty() { "none".to_owned() } else { words.join(" ") })
}

fn parameters(root: &Root, module: &str) -> Option<String> {
    let folder = format!("sys/module/{module}");
    if !root.has(&folder) {
        return root.has("sys/module").then(|| "not loaded".to_owned());
    }
    let names = root.names(&format!("{folder}/parameters"));
    let mut each: Vec<String> = names
        .into_iter()
        .filter_map(|name| {
            let value = root.text(&format!("{folder}/parameters/{name}"))?;
            Some(format!("{name}={value}"))
        })
        .collect();
    each.sort_unstable();
    Some(if each.is_empty() { "loaded".to_owned() } else { each.join(" ") })
}

fn hypervisor(root: &Root) -> Option<String> {
    if !is_virtual_machine(root) {
        return root.has("proc/cpuinfo").then(|| "none".to_owned());
    }
    signature(root)
        .or_else(|| root.text("sys/hypervisor/type"))
        .or_else(|| Some("unknown".to_owned()))
}

#[cfg(target_arch = "x86_64")]
fn signature(root: &Root) -> Option<String> {
    // CPUID always describes this machine, so it is not used for a captured one.
    if !root.is_live() {
        return None;
    }
    let leaf = raw_cpuid::cpuid!(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    let name: String =
        bytes.iter().filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(target_arch = "x86_64")]
fn kvm_features(root: &Root) -> Option<String> {
    if signature(root)? != "KVMKVMKVM" || raw_cpuid::cpuid!(0x4000_0000).eax < 0x4000_0001 {
        return None;
    }
    let leaf = raw_cpuid::cpuid!(0x4000_0001);
    Some(kvm_feature_names(leaf.eax, leaf.edx))
}

#[cfg(not(target_arch = "x86_64"))]
fn signature(_: &Root) -> Option<String> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn kvm_features(_: &Root) -> Option<String> {
    None
}

/// Bits of CPUID 0x40000001 that concern clocks, halting and waking, as named in
/// Documentation/virt/kvm/x86/cpuid.rst.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "x86 alone has the leaf"))]
fn kvm_feature_names(eax: u32, edx: u32) -> String {
    const FEATURES: [(u32, &str); 11] = [
        (3, "kvm-clock"),
        (5, "steal time"),
        (6, "PV EOI"),
        (7, "PV unhalt"),
        (9, "PV TLB flush"),
        (10, "async page fault by VM exit"),
        (11, "PV send IPI"),
        (12, "poll control (the guest may stop the host's halt polling)"),
        (13, "PV sched yield"),
        (14, "async page fault by interrupt"),
        (24, "kvm-clock is stable"),
    ];
    let mut names: Vec<&str> = FEATURES
        .into_iter()
        .filter(|(bit, _)| eax & (1 << bit) != 0)
        .map(|(_, name)| name)
        .collect();
    if edx & 1 != 0 {
        names.push("hint: vCPUs are never preempted (KVM_HINTS_REALTIME)");
    }
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::tests::machine;

    fn fact(facts: &[(&'static str, Option<String>)], name: &str) -> Option<String> {
        facts.iter().find(|(known, _)| *known == name).expect(name).1.clone()
    }

    #[test]
    fn a_guest_with_haltpoll_is_told_as_such() {
        let cpu = "sys/devices/system/cpu";
        let (_folder, root) = machine(&[
            ("proc/cpuinfo", "model name\t: A CPU\nflags\t\t: fpu hypervisor tsc\n"),
            ("proc/sys/kernel/osrelease", "6.12.1\n"),
            ("proc/cmdline", "root=/dev/vda secret=1 idle=poll cpuidle_haltpoll.force=1\n"),
            ("proc/stat", "cpu  10 20 30 40 50 60 70 80 9 9\ncpu0 1 2 3\n"),
            ("proc/loadavg", "1.25 0.5 0.1 1/2 3\n"),
            ("proc/self/stat", "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 8 20 0 1\n"),
            ("sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n"),
            ("sys/module/haltpoll/parameters/guest_halt_poll_grow", "2\n"),
            ("sys/hypervisor/type", "kvm\n"),
            (&format!("{cpu}/online"), "0-1\n"),
            (&format!("{cpu}/cpuidle/current_driver"), "haltpoll\n"),
            (&format!("{cpu}/cpuidle/current_governor"), "haltpoll\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
        ]);
        let facts = waiting_facts(&root, 0, 0);
        let is = |name, value: &str| assert_eq!(fact(&facts, name).as_deref(), Some(value));
        is("kernel", "6.12.1");
        is("CPU", "A CPU");
        is("waker and waiter", "both on CPU 0");
        is("cpuidle driver", "haltpoll");
        is("cpuidle governor", "haltpoll");
        is("idle options of the kernel's command line", "idle=poll cpuidle_haltpoll.force=1");
        is("clock source", "tsc");
        is("hypervisor", "kvm");
        is(
            "guest halt polling (module haltpoll)",
            "guest_halt_poll_grow=2 guest_halt_poll_ns=200000",
        );
        is("module cpuidle_haltpoll", "not loaded");
        assert_eq!(fact(&facts, "what KVM offers the guest"), None);
        assert_eq!(steal_ticks(&root), Some((360, 80)));
        assert_eq!(load_average(&root), Some(1.25));
        let ticks = cpu_ticks(&root).unwrap();
        assert_eq!((ticks.all, ticks.stolen, ticks.own), (360, 80, 44));
    }

    #[test]
    fn a_machine_that_shows_nothing_has_no_facts() {
        let (_folder, root) = machine(&[]);
        assert!(waiting_facts(&root, 0, 1).iter().all(|(_, value)| value.is_none()));
        assert_eq!((steal_ticks(&root), load_average(&root)), (None, None));
    }

    #[test]
    fn features_of_kvm_have_names() {
        assert_eq!(
            kvm_feature_names(1 << 12 | 1 << 3 | 1 << 5, 0),
            "kvm-clock, steal time, poll control (the guest may stop the host's halt polling)"
        );
        assert_eq!(kvm_feature_names(0, 0), "nothing");
        assert!(kvm_feature_names(0, 1).starts_with("hint: "));
    }
}
