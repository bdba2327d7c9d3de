//! Parameters of the kernel that decide how CPUs idle.

use idlewise_machine::boot::driver::{CpuidleDriver, Prospect, prospects};

use super::facts::{Facts, State, names};
use super::wishes::JUDGED;
use super::{Finding, Verdict};

/// Alder Lake and its successors that `adl_idle_state_table_update` knows: their table has a C1 that is left out.
const MODELS_WITHOUT_C1: [u32; 3] = [0x97, 0x9a, 0xbe];

type Judged = (String, Verdict, String, (Option<bool>, String));

/// What a parameter does.
pub(super) fn parameter(facts: &Facts<'_>, name: &str, value: Option<&str>) -> Finding {
    let number = value.and_then(number);
    let (intends, verdict, because, in_force) = match (name, number) {
        ("idle", _) => idle(facts, value.unwrap_or_default()),
        ("intel_idle.max_cstate", Some(0)) => intel_idle_off(facts),
        ("intel_idle.max_cstate", Some(most)) => intel_idle_most(facts, value, most),
        ("intel_idle.states_off", Some(mask)) => states_off(facts, value, mask),
        ("processor.max_cstate", Some(most)) => processor_most(facts, value, most),
        ("cpuidle.off", Some(off)) => cpuidle_off(facts, value, off),
        ("cpuidle.governor", _) => governor(facts, value.unwrap_or_default()),
        ("cpuidle_haltpoll.force", _) => haltpoll_force(facts, value),
        ("nohz", _) => nohz(facts, value.unwrap_or_default()),
        (name, _) if JUDGED.contains(&name) => (
            "a number".to_owned(),
            Verdict::Nothing,
            format!("'{}' is no number, so the kernel ignores it", value.unwrap_or_default()),
            facts.is_booted(name, value, None),
        ),
        _ => other(facts, name, value),
    };
    Finding { intends, verdict, because, in_force }
}

/// A number as the kernel reads it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn other(facts: &Facts<'_>, name: &str, value: Option<&str>) -> Judged {
    let module = name.split('.').next().unwrap_or(name);
    if module == "haltpoll" {
        return of_haltpoll(facts, name, value);
    }
    let is_absent = name.contains('.')
        && facts.root.has("sys/module")
        && !facts.root.has(&format!("sys/module/{module}"));
    let (verdict, because) = match is_absent {
        true => (Verdict::Nothing, format!("this kernel has no {module} (/sys/module/{module})")),
        false => (Verdict::Unknown, "idlewise does not judge this parameter".to_owned()),
    };
    ("something about idling".to_owned(), verdict, because, facts.is_booted(name, value, None))
}

/// The governor haltpoll has parameters for how long guests poll. They can be changed while the machine runs.
fn of_haltpoll(facts: &Facts<'_>, name: &str, value: Option<&str>) -> Judged {
    let governor = facts.governor.as_deref().unwrap_or("none");
    let (verdict, because) = match governor {
        "haltpoll" => (Verdict::Works, "haltpoll is the governor".to_owned()),
        _ => (Verdict::Nothing, format!("the governor is {governor}")),
    };
    let now = facts.root.text(&format!("sys/module/{}", name.replacen('.', "/parameters/", 1)));
    let other = now.filter(|now| Some(now.as_str()) != value).map(|now| format!("it is {now} now"));
    let in_force = facts.is_booted(name, value, other);
    (
        "a limit on how long guests poll (the governor haltpoll)".to_owned(),
        verdict,
        because,
        in_force,
    )
}

/// What contradicts a kernel that was started without any driver.
fn has_states(facts: &Facts<'_>) -> Option<String> {
    (!facts.tables.is_empty())
        .then(|| format!("{} has states: {}", facts.driver_name(), names(facts.states())))
}

fn idle(facts: &Facts<'_>, value: &str) -> Judged {
    let booted = |contradiction| facts.is_booted("idle", Some(value), contradiction);
    if !["poll", "halt", "nomwait"].contains(&value) {
        let because = "the kernel knows poll, halt and nomwait, and ignores others".to_owned();
        return ("another idle routine".to_owned(), Verdict::Nothing, because, booted(None));
    }
    if !facts.is_x86 {
        let because = "only kernels for x86 read it".to_owned();
        return (format!("idle={value}"), Verdict::Nothing, because, booted(None));
    }
    let is_haltpoll = facts.driver.as_deref() == Some("haltpoll");
    match value {
        "poll" => {
            let because = "no idle driver is used, and idle CPUs run at full power".to_owned();
            ("idle CPUs poll".to_owned(), Verdict::Works, because, booted(has_states(facts)))
        }
        "halt" => {
            let because = "no idle driver is used, so there is no deep state".to_owned();
            ("idle CPUs use HLT".to_owned(), Verdict::Works, because, booted(has_states(facts)))
        }
        _ => {
            let by_mwait = || facts.states().iter().filter(|state| state.desc.contains("MWAIT"));
            let shown =
                by_mwait().next().map(|state| format!("{} is entered by MWAIT", state.name));
            let (verdict, because) = match facts.driver.as_deref() {
                _ if is_haltpoll => {
                    let because = "the driver haltpoll does not register if any idle= is given, so guests do not poll \
                                   before they halt";
                    (Verdict::More, because.to_owned())
                }
                Some("intel_idle") => {
                    let because = "intel_idle is not used; acpi_idle is if the firmware lists C-states, and enters them by \
                                   HLT or a port";
                    (Verdict::Works, because.to_owned())
                }
                _ if shown.is_some() => {
                    (Verdict::Works, format!("{} by HLT or a port instead", names(by_mwait())))
                }
                Some(driver) if facts.running("idle") == Some(None) => {
                    (Verdict::Nothing, format!("{driver} enters no state by MWAIT"))
                }
                _ => (
                    Verdict::Works,
                    "idlewise lab boot says which routine is used instead".to_owned(),
                ),
            };
            ("no MWAIT on idle CPUs".to_owned(), verdict, because, booted(shown))
        }
    }
}

/// Why intel_idle is not the driver although nobody knows what it would do; `None` if it never is.
fn is_kept_away(facts: &Facts<'_>) -> bool {
    let is_zero = facts.running("intel_idle.max_cstate").flatten().and_then(number) == Some(0);
    is_zero
        || facts.running("idle").flatten().is_some()
        || facts.running("cpuidle.off").flatten().is_some()
}

fn not_intel_idle(facts: &Facts<'_>) -> Option<(Verdict, String)> {
    if facts.driver.as_deref() == Some("intel_idle") {
        return None;
    }
    Some(match (facts.is_intel(), is_kept_away(facts)) {
        (Some(false), _) => (
            Verdict::Nothing,
            format!("the CPU is not Intel's; the driver is {}", facts.driver_name()),
        ),
        (_, true) => {
            (Verdict::Unknown, "the running kernel's command line keeps intel_idle away".to_owned())
        }
        _ => (
            Verdict::Nothing,
            format!("the driver is {}, which does not read it", facts.driver_name()),
        ),
    })
}

fn intel_idle_off(facts: &Facts<'_>) -> Judged {
    let name = "intel_idle.max_cstate";
    let intends = "the driver intel_idle is not used".to_owned();
    let is_used = facts.driver.as_deref() == Some("intel_idle");
    let in_force =
        facts.is_booted(name, Some("0"), is_used.then(|| "the driver is intel_idle".to_owned()));
    let driver = facts.driver_name();
    let (verdict, because) = match facts.running(name) {
        _ if is_used => (
            Verdict::Works,
            "that alone limits no state: acpi_idle is used if the firmware lists C-states, deep ones too; \
             processor.max_cstate limits them"
                .to_owned(),
        ),
        _ if facts.is_intel() == Some(false) => {
            (Verdict::Nothing, "the CPU is not Intel's, so it is never used".to_owned())
        }
        Some(Some(_)) => {
            (Verdict::Works, format!("instead there is {driver}, with {}", names(facts.states())))
        }
        Some(None) => (Verdict::Nothing, format!("it is not used anyway; there is {driver}")),
        None => (Verdict::Unknown, format!("there is {driver}, and /proc/cmdline does not say why")),
    };
    (intends, verdict, because, in_force)
}

/// The driver counts the entries of its table, not the names of states. Some entries may be left out.
fn intel_idle_most(facts: &Facts<'_>, value: Option<&str>, most: u64) -> Judged {
    let name = "intel_idle.max_cstate";
    let first = if most == 1 { "state".to_owned() } else { format!("{most} states") };
    let intends = format!("only the first {first} of intel_idle besides POLL");
    let states = facts.states();
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let beyond: Vec<&State> = states.iter().skip(most.saturating_add(1)).collect();
    let contradiction = (facts.driver.as_deref() == Some("intel_idle") && !beyond.is_empty())
        .then(|| format!("{} still there", are(&beyond)));
    let in_force = facts.is_booted(name, value, contradiction);
    if let Some((verdict, because)) = not_intel_idle(facts) {
        return (intends, verdict, because, in_force);
    }
    let is_limited = facts.running(name).flatten().is_some();
    let cpu = facts.boot.facts.cpu.map(|cpu| (cpu.value.family, cpu.value.model));
    // Without a table of its own, the driver takes the firmware's states, and calls them C1_ACPI and so on.
    let starts_with_c1e = states.get(1).is_some_and(|state| state.name == "C1E");
    let skips_c1 = starts_with_c1e
        && cpu.is_some_and(|(family, model)| family == 6 && MODELS_WITHOUT_C1.contains(&model));
    let kept = |count: usize| names(states.iter().take(count));
    let (verdict, because) = if in_force.0 == Some(true) {
        (Verdict::Works, format!("there are {}", names(states)))
    } else if is_limited {
        (Verdict::Unknown, "the running kernel's own limit hides which states there are".to_owned())
    } else if skips_c1 && most < states.len() {
        let verdict = if most == 1 { Verdict::More } else { Verdict::Works };
        let because = format!(
            "this model's table begins with a C1 that counts and is left out; left: {}; gone: {}",
            kept(most),
            names(states.iter().skip(most))
        );
        (verdict, because)
    } else if beyond.is_empty() {
        let because = format!(
            "intel_idle has {} here: {}; the number counts them and is no C-state's name",
            match states.len().saturating_sub(1) {
                1 => "1 state".to_owned(),
                count => format!("{count} states"),
            },
            names(states.iter().skip(1))
        );
        (Verdict::Nothing, because)
    } else {
        (
            Verdict::Works,
            format!("left: {}; gone: {}", kept(most + 1), names(beyond.iter().copied())),
        )
    };
    (intends, verdict, because, in_force)
}

/// `C6 is` or `C3 and C6 are`.
fn are(states: &[&State]) -> String {
    format!("{} {}", names(states.iter().copied()), if states.len() == 1 { "is" } else { "are" })
}

fn states_off(facts: &Facts<'_>, value: Option<&str>, mask: u64) -> Judged {
    let states = facts.states();
    let named: Vec<&State> =
        (0..64).filter(|bit| mask >> bit & 1 == 1).filter_map(|bit| states.get(bit)).collect();
    let on: Vec<&State> = named.iter().filter(|state| !state.is_disabled).copied().collect();
    let contradiction = (!on.is_empty()).then(|| format!("{} on", are(&on)));
    let in_force = facts.is_booted("intel_idle.states_off", value, contradiction);
    let (verdict, because) = match not_intel_idle(facts) {
        Some(judged) => judged,
        None if named.is_empty() => {
            (Verdict::Nothing, format!("there is no such state; there are {}", names(states)))
        }
        None => (Verdict::Works, format!("{} off until somebody enables it", are(&named))),
    };
    ("these states of intel_idle are off at boot".to_owned(), verdict, because, in_force)
}

/// `acpi_idle` calls its states by the numbers that it compares: C1, C2, ...
fn processor_most(facts: &Facts<'_>, value: Option<&str>, most: u64) -> Judged {
    // The driver takes 0 for 1.
    let most = most.max(1);
    let intends = format!("no state of acpi_idle deeper than C{most}");
    let is_acpi = facts.driver.as_deref() == Some("acpi_idle");
    let state_number =
        |state: &&State| state.name.strip_prefix('C').and_then(|number| number.parse::<u64>().ok());
    let beyond: Vec<&State> = facts
        .states()
        .iter()
        .filter(|state| state_number(state).is_some_and(|number| number > most))
        .collect();
    let contradiction =
        (is_acpi && !beyond.is_empty()).then(|| format!("{} still there", are(&beyond)));
    let in_force = facts.is_booted("processor.max_cstate", value, contradiction);
    let lets_in = facts.profile.parameter("intel_idle.max_cstate").and_then(number) == Some(0)
        || facts.profile.parameter("idle") == Some("nomwait");
    let (verdict, because) = match facts.driver.as_deref() {
        Some("acpi_idle") if in_force.0 == Some(true) => {
            (Verdict::Works, format!("there are {}", names(facts.states())))
        }
        Some("acpi_idle") if facts.running("processor.max_cstate").flatten().is_some() => (
            Verdict::Unknown,
            "the running kernel's own limit hides which states there are".to_owned(),
        ),
        Some("acpi_idle") if beyond.is_empty() => (
            Verdict::Nothing,
            format!("acpi_idle has no deeper state; there are {}", names(facts.states())),
        ),
        Some("acpi_idle") => (Verdict::Works, format!("{} not used", are(&beyond))),
        Some("intel_idle") if lets_in => {
            let because = "another parameter here keeps intel_idle away, and acpi_idle is used if the firmware lists C-states";
            (Verdict::Works, because.to_owned())
        }
        Some("intel_idle") => {
            let because =
                "the driver is intel_idle, which does not read it; it has intel_idle.max_cstate";
            (Verdict::Nothing, because.to_owned())
        }
        Some(driver) => {
            (Verdict::Nothing, format!("the driver is {driver}, which does not read it"))
        }
        None if is_kept_away(facts) => {
            (Verdict::Nothing, "the command line keeps idle drivers away".to_owned())
        }
        None => (Verdict::Nothing, "there is no idle driver".to_owned()),
    };
    (intends, verdict, because, in_force)
}

fn cpuidle_off(facts: &Facts<'_>, value: Option<&str>, off: u64) -> Judged {
    let in_force = facts.is_booted("cpuidle.off", value, has_states(facts));
    let (verdict, because) = match off {
        0 => (Verdict::Nothing, "0 is the default".to_owned()),
        _ => (
            Verdict::Works,
            "idle CPUs use the kernel's default routine, on x86 HLT or MWAIT C1 (idlewise lab boot)"
                .to_owned(),
        ),
    };
    ("no idle driver is used".to_owned(), verdict, because, in_force)
}

/// Whether a governor can decide.
pub(super) fn governor_verdict(facts: &Facts<'_>, wanted: &str) -> (Verdict, String) {
    let available = facts.root.text("sys/devices/system/cpu/cpuidle/available_governors");
    let is_now = facts.governor.as_deref().is_some_and(|now| now.eq_ignore_ascii_case(wanted));
    match available {
        _ if facts.driver.is_none() => {
            (Verdict::Nothing, "there is no idle driver, so no governor decides".to_owned())
        }
        _ if is_now => (Verdict::Works, format!("this kernel has {wanted}")),
        Some(list) if list.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(wanted)) => {
            (Verdict::Works, format!("this kernel has {}", list.replace(' ', ", ")))
        }
        Some(list) => {
            (Verdict::Nothing, format!("this kernel has only {}", list.replace(' ', ", ")))
        }
        None => (
            Verdict::Unknown,
            "the kernel does not list its governors (available_governors)".to_owned(),
        ),
    }
}

fn governor(facts: &Facts<'_>, wanted: &str) -> Judged {
    let (verdict, because) = governor_verdict(facts, wanted);
    let now = facts.governor.as_deref().filter(|now| !now.eq_ignore_ascii_case(wanted));
    let in_force = facts.is_booted(
        "cpuidle.governor",
        Some(wanted),
        now.map(|now| format!("the governor is {now}")),
    );
    (format!("the governor {wanted} decides"), verdict, because, in_force)
}

fn haltpoll_force(facts: &Facts<'_>, value: Option<&str>) -> Judged {
    let name = "cpuidle_haltpoll.force";
    let is_haltpoll = facts.driver.as_deref() == Some("haltpoll");
    let contradiction = (!is_haltpoll).then(|| format!("the driver is {}", facts.driver_name()));
    let is_on = value.is_none_or(|value| value.starts_with(['1', 'y', 'Y']));
    let in_force = facts.is_booted(name, value, contradiction);
    let mut forced = facts.boot.facts;
    if let Some(cmdline) = &mut forced.cmdline {
        cmdline.value.haltpoll_forced = true;
    }
    let prospect =
        prospects(&forced).into_iter().find(|(driver, _)| *driver == CpuidleDriver::Haltpoll);
    let (verdict, because) = match (facts.driver.as_deref(), prospect.map(|(_, prospect)| prospect))
    {
        _ if !is_on => (Verdict::Nothing, "off is the default".to_owned()),
        (Some("haltpoll"), _) => match facts.running(name) {
            Some(None) => (Verdict::Nothing, "haltpoll registered without it".to_owned()),
            _ => (Verdict::Works, "haltpoll is the driver".to_owned()),
        },
        (Some(driver), _) => (Verdict::Nothing, format!("{driver} registers before haltpoll")),
        (None, Some(Prospect::Registers(reason))) => (Verdict::Works, reason.to_owned()),
        (None, Some(Prospect::Refuses(reason))) => (Verdict::Nothing, reason.to_owned()),
        (None, Some(Prospect::Depends(reason))) => {
            (Verdict::Unknown, format!("it depends on {reason}"))
        }
        (None, None) => (Verdict::Unknown, String::new()),
    };
    ("guests poll before they halt (the driver haltpoll)".to_owned(), verdict, because, in_force)
}

fn nohz(facts: &Facts<'_>, value: &str) -> Judged {
    let is_off = match value {
        "off" | "0" | "n" => true,
        "on" | "1" | "y" => false,
        _ => {
            let because = format!("'{value}' is neither on nor off");
            return (
                "ticks".to_owned(),
                Verdict::Nothing,
                because,
                facts.is_booted("nohz", Some(value), None),
            );
        }
    };
    if !is_off {
        let in_force = match facts.running("nohz") {
            Some(Some(given)) if given != value => {
                (Some(false), format!("/proc/cmdline has nohz={given}"))
            }
            Some(_) => (Some(true), "it is the default".to_owned()),
            None => (None, "/proc/cmdline cannot be read".to_owned()),
        };
        let because = "it is the default of kernels with CONFIG_NO_HZ".to_owned();
        return ("idle CPUs stop their tick".to_owned(), Verdict::Works, because, in_force);
    }
    let ticks = match facts.hz {
        Some(hz) => {
            format!("{hz} times a second, so no stay is longer than {} us", 1_000_000 / hz.max(1))
        }
        None => "at each tick, so no stay is longer than one".to_owned(),
    };
    let is_never = |state: &&State| {
        state
            .residency_us
            .zip(facts.hz)
            .is_some_and(|(us, hz)| us > 1_000_000 / u64::from(hz.max(1)))
    };
    let never: Vec<&State> = facts.states().iter().filter(is_never).collect();
    let never = if never.is_empty() {
        String::new()
    } else {
        format!("; {} would need longer ones", names(never))
    };
    let because = format!("idle CPUs wake up {ticks}{never}");
    (
        "idle CPUs keep their tick".to_owned(),
        Verdict::Works,
        because,
        facts.is_booted("nohz", Some(value), None),
    )
}
