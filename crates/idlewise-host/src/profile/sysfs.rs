//! Files below `/sys/devices/system/cpu` that tuned's plug-in `sysfs` writes.

use idlewise_trace::show_cpu_list;

use super::facts::Facts;
use super::{Finding, Verdict, latency, parameters};
use crate::cpuidle::state_folder;

/// A value in a file; the path may have `*` for the CPUs.
pub(super) fn file(facts: &Facts<'_>, path: &str, value: &str) -> Finding {
    if path == "cpuidle/current_governor" {
        return governor(facts, value);
    }
    let parts: Vec<&str> = path.split('/').collect();
    let cpus = parts.first().and_then(|part| part.strip_prefix("cpu")).and_then(|cpu| match cpu {
        "*" => Some(facts.cpus.clone()),
        cpu => cpu.parse().ok().map(|cpu| vec![cpu]),
    });
    match (cpus, &parts[1..]) {
        (Some(cpus), ["power", "pm_qos_resume_latency_us"]) => {
            latency::of_some_cpus(facts, value, &cpus)
        }
        (Some(cpus), ["cpuidle", state, "disable"]) => {
            match state.strip_prefix("state").and_then(|index| index.parse().ok()) {
                Some(index) => disable(facts, &cpus, index, value != "0"),
                None => not_judged(),
            }
        }
        _ => not_judged(),
    }
}

fn not_judged() -> Finding {
    Finding {
        intends: "a value in this file".to_owned(),
        verdict: Verdict::Unknown,
        because: "idlewise does not judge this file or pattern".to_owned(),
        in_force: (None, "not looked at".to_owned()),
    }
}

fn disable(facts: &Facts<'_>, cpus: &[u16], index: usize, is_off: bool) -> Finding {
    let file =
        |cpu: u16, name: &str| facts.root.text(&format!("{}/{name}", state_folder(cpu, index)));
    let (having, lacking): (Vec<u16>, Vec<u16>) =
        cpus.iter().partition(|cpu| file(**cpu, "name").is_some());
    let name = having.first().and_then(|cpu| file(*cpu, "name"));
    let wanted = if is_off { "is disabled" } else { "is enabled" };
    let other =
        having.iter().find(|cpu| file(**cpu, "disable").is_some_and(|now| (now != "0") != is_off));
    let name = name.unwrap_or_else(|| format!("state {index}"));
    let (verdict, because) = match (having.as_slice(), lacking.as_slice()) {
        ([], _) => (
            Verdict::Nothing,
            format!("these CPUs have no state {index}; the driver is {}", facts.driver_name()),
        ),
        (_, []) => (Verdict::Works, format!("state {index} is {name} here")),
        (_, lacking) => {
            (Verdict::Less, format!("CPUs {} have no state {index}", show_cpu_list(lacking)))
        }
    };
    let in_force = match (having.is_empty(), other) {
        (true, _) => (Some(false), "there is no such state".to_owned()),
        (_, Some(cpu)) => (
            Some(false),
            format!("{name} is {} on CPU {cpu}", if is_off { "enabled" } else { "disabled" }),
        ),
        (_, None) => (Some(true), format!("{name} {wanted}")),
    };
    let intends =
        if is_off { format!("{name} is not used") } else { format!("{name} may be used") };
    Finding { intends, verdict, because, in_force }
}

/// A governor that is chosen while the machine runs.
fn governor(facts: &Facts<'_>, value: &str) -> Finding {
    let (verdict, because) = parameters::governor_verdict(facts, value);
    let now = facts.governor.as_deref().unwrap_or("unknown");
    Finding {
        intends: format!("the governor {value} decides"),
        verdict,
        because,
        in_force: (
            facts.governor.as_ref().map(|now| now == value),
            format!("the governor is {now}"),
        ),
    }
}
