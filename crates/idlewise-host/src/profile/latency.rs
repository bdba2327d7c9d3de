//! Limits of the exit latency: of the whole machine (`/dev/cpu_dma_latency`), and of CPUs (`pm_qos_resume_latency_us`).
//!
//! A governor uses a state only if its exit latency is at most the limit. With a limit of 0 it uses state 0, which polls on
//! x86. menu, teo and ladder do so; haltpoll looks only whether the limit is 0.

use super::facts::{Facts, State, Table, names};
use super::{Finding, Verdict};

/// What a value of tuned's comes to: it may name a state of CPU 0, and alternatives behind `|`.
enum Limit {
    /// So many microseconds, the latency of the state at that place if one was named.
    Us(u64, Option<usize>),
    /// The kernel's word for a limit of 0.
    Zero,
    /// Nothing is set.
    Skipped,
    /// tuned reports an error and sets nothing, because of this.
    Invalid(String),
}

impl Limit {
    fn parse(facts: &Facts<'_>, text: &str, allows_na: bool) -> Self {
        let states = facts.states();
        let mut reasons = Vec::new();
        for part in text.split('|').map(str::trim) {
            let (prefix, asked) = part.split_once(':').unwrap_or((part, ""));
            let place = match prefix {
                "none" | "None" => return Limit::Skipped,
                "n/a" if allows_na => return Limit::Zero,
                "cstate.id" | "cstate.id_no_zero" => {
                    asked.parse().ok().filter(|place: &usize| *place < states.len())
                }
                "cstate.name" | "cstate.name_no_zero" => {
                    states.iter().rposition(|state| state.name == asked)
                }
                number => match number.parse::<i64>() {
                    Ok(us) if us >= 0 => return Limit::Us(us.unsigned_abs(), None),
                    _ => {
                        reasons.push(format!("'{part}' is no latency"));
                        continue;
                    }
                },
            };
            match place {
                Some(place) if prefix.ends_with("no_zero") && states[place].latency_us == 0 => {
                    reasons.push(format!("{} has latency 0", states[place].name));
                }
                Some(place) => return Limit::Us(states[place].latency_us, Some(place)),
                None => reasons.push(format!("CPU 0 has no state {asked}")),
            }
        }
        Limit::Invalid(reasons.join(", "))
    }
}

/// tuned's `force_latency`.
pub(super) fn of_machine(facts: &Facts<'_>, text: &str) -> Finding {
    let limit = Limit::parse(facts, text, false);
    let in_force = match (&limit, facts.machine_limit_us()) {
        (Limit::Us(..), Err(lack)) => {
            (None, format!("the limit of the whole machine is unknown: {lack}"))
        }
        (Limit::Us(..), Ok(None)) => {
            (Some(false), "nobody limits the whole machine's latency".to_owned())
        }
        (Limit::Us(us, _), Ok(Some(now_us))) => {
            (Some(now_us <= *us), format!("the limit of the whole machine is {now_us} us"))
        }
        _ => (Some(false), "nothing is set".to_owned()),
    };
    finding(facts, text, &limit, in_force)
}

/// tuned's `pm_qos_resume_latency_us`, for all CPUs.
pub(super) fn of_cpus(facts: &Facts<'_>, text: &str) -> Finding {
    of_some_cpus(facts, text, &facts.cpus)
}

/// The limit of some CPUs.
pub(super) fn of_some_cpus(facts: &Facts<'_>, text: &str, cpus: &[u16]) -> Finding {
    let limit = Limit::parse(facts, text, true);
    let file = |cpu: &u16| {
        facts.root.text(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
    };
    let wanted = match &limit {
        Limit::Us(us, _) => us.to_string(),
        _ => "n/a".to_owned(),
    };
    let other = cpus.iter().find(|cpu| file(cpu).as_deref() != Some(&wanted));
    let in_force = match (&limit, other) {
        (Limit::Skipped | Limit::Invalid(_), _) => (Some(false), "nothing is set".to_owned()),
        (_, None) => (Some(!cpus.is_empty()), format!("these CPUs have {wanted}")),
        (_, Some(cpu)) => match file(cpu) {
            Some(now) => (Some(false), format!("CPU {cpu} has {now}")),
            None => (None, format!("the file of CPU {cpu} cannot be read")),
        },
    };
    if let Limit::Us(0, None) = limit {
        return Finding {
            intends: "no exit latency".to_owned(),
            verdict: Verdict::Nothing,
            because: "in this file 0 stands for no limit; n/a is a limit of 0".to_owned(),
            in_force,
        };
    }
    finding(facts, text, &limit, in_force)
}

fn finding(
    facts: &Facts<'_>,
    text: &str,
    limit: &Limit,
    in_force: (Option<bool>, String),
) -> Finding {
    let (us, named) = match limit {
        Limit::Us(us, named) => (*us, *named),
        Limit::Zero => (0, None),
        Limit::Skipped => {
            return Finding {
                intends: "to leave the limit as it is".to_owned(),
                verdict: Verdict::Works,
                because: "tuned sets nothing".to_owned(),
                in_force: (Some(true), "nothing is to be set".to_owned()),
            };
        }
        Limit::Invalid(why) => {
            let (verdict, why) = match text.contains("${") {
                true => (Verdict::Unknown, "tuned computes the value".to_owned()),
                false => (Verdict::Nothing, format!("tuned sets no limit: {why}")),
            };
            return Finding {
                intends: "a limit of exit latencies".to_owned(),
                verdict,
                because: why,
                in_force,
            };
        }
    };
    let intends = match named.map(|place| &facts.states()[place]) {
        Some(state) => format!("no state that takes longer to leave than {}", state.with_latency()),
        None if us == 0 => "no exit latency: the shallowest state only".to_owned(),
        None => format!("no state that takes more than {us} us to leave"),
    };
    let (verdict, because) = if facts.tables.is_empty() {
        (Verdict::Nothing, "without an idle driver, nothing looks at exit latencies".to_owned())
    } else if facts.governor.as_deref() == Some("haltpoll") && us > 0 {
        (Verdict::Nothing, "the governor haltpoll obeys no limit but 0".to_owned())
    } else {
        let judged = facts.tables.iter().map(|table| effect(facts, table, us, named));
        // Kinds of CPUs on which it does not work come first.
        let worst = judged.min_by_key(|(verdict, _)| *verdict == Verdict::Works);
        worst.unwrap_or((Verdict::Unknown, String::new()))
    };
    Finding { intends, verdict, because, in_force }
}

/// What a limit does to CPUs of a kind.
fn effect(facts: &Facts<'_>, table: &Table, us: u64, named: Option<usize>) -> (Verdict, String) {
    let on = facts.on(table);
    let first = &table.states[0];
    let usable = || table.states.iter().filter(|state| !state.is_disabled);
    if us == 0 {
        let does =
            if first.is_polling() { "idle CPUs poll" } else { "it is used whatever its latency" };
        return (Verdict::Works, format!("only {} is left{on}: {does}", first.name));
    }
    let (kept, gone): (Vec<&State>, Vec<&State>) =
        usable().partition(|state| state.latency_us <= us);
    if kept.iter().all(|state| state.is_polling()) {
        let next = gone.iter().min_by_key(|state| state.latency_us);
        let Some(next) = next else {
            return (Verdict::Nothing, format!("no other state is enabled{on}"));
        };
        return if first.is_polling() {
            let because = format!(
                "only {} is left{on}, so idle CPUs poll: {} takes {} us to leave",
                first.name, next.name, next.latency_us
            );
            (Verdict::More, because)
        } else {
            let because = format!(
                "{} takes longer, and is used whatever its latency{on}",
                first.with_latency()
            );
            (Verdict::Less, because)
        };
    }
    if gone.is_empty() {
        let Some(slowest) = usable().max_by_key(|state| state.latency_us) else {
            return (Verdict::Nothing, format!("no state is enabled{on}"));
        };
        let because =
            format!("no state takes longer; the slowest is {}{on}", slowest.with_latency());
        return (Verdict::Nothing, because);
    }
    // On CPUs with other states, the place of the named one means another one.
    let is_deeper = |state: &&&State| {
        let place = table.states.iter().position(|one| one == **state);
        named.is_some_and(|named| place > Some(named)) && table.cpus.contains(&0)
    };
    let deeper: Vec<&State> = kept.iter().filter(is_deeper).copied().collect();
    if !deeper.is_empty() {
        let because =
            format!("{} is deeper and takes no longer, so it stays allowed{on}", names(deeper));
        return (Verdict::Less, because);
    }
    let gone: Vec<String> = gone.iter().map(|state| state.with_latency()).collect();
    (Verdict::Works, format!("{} may be used, but not {}{on}", names(kept), gone.join(", ")))
}
