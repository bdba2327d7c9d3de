//! `idlewise doctor`: what idlewise can do on this machine, and how to fix the rest.
//!
//! | file | holds |
//! | --- | --- |
//! | `rows.rs` | the capabilities, and how each is found out |
//! | `cause.rs` | from a command's error to a few words and how to fix it |
//!
//! It only reads. What cannot be known without trying is not tried.

mod cause;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_host::surroundings::{Rights, container, hypervisor};
use idlewise_host::{CoreKinds, note, show_cpu_list};
use idlewise_report::{TextStyle, counted, wrap};
use idlewise_trace::{Driver, MachineNote, cpus_in_words};
use serde_json::{Value, json};

use self::cause::Asker;
use self::rows::{Checks, Row, SYSTEM_FILES, Verdict, short};
use crate::error::{Failure, Result};
use crate::screen;
use crate::sysroot::root;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// So many rows that do not work are named in the answer.
const NAMED_COUNT_MAX: usize = 3;
/// So many kinds of CPUs are shown.
const KIND_COUNT_MAX: usize = 4;
/// Where the name of a capability begins.
const WHAT_AT: usize = 11;
/// Below this width, what was found has lines of its own.
const ONE_LINE_WIDTH_MIN: usize = 70;
/// Where what describes the machine begins.
const MACHINE_AT: usize = 11;
/// The longest texts of a machine, such as its model, that are shown.
const WORD_LENGTH_MAX: usize = 60;
/// The longest names of states that are shown.
const NAME_LENGTH_MAX: usize = 24;

const EXAMPLES: &str = "\
Examples:
  # What works here, and what to do about the rest
  idlewise doctor

  # The same as root, who sees more: tracefs and debugfs are closed to others
  sudo idlewise doctor

  # For a program: what does not work
  idlewise doctor --json | jq -r '.rows[] | select(.verdict == \"no\") | .id'

Most rows run the checks of the commands that they name. `as root` means that this user may not; only \
root sees whether something else is missing. Nothing is changed, loaded or mounted. What cannot be \
known without that is not tried: record --histogram loads programs into the kernel, so its row says \
only whether the kernel offers it and this process may.

Exit status: 0, whatever works; 2 if neither /proc nor /sys can be read.";

/// Say what works on this machine, and how to fix the rest
///
/// Changes nothing. The result differs for root and for other users.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    /// Examine a captured machine: read its proc, sys, dev, run, etc and lib below this folder
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    sysroot: Option<PathBuf>,
}

/// The machine, as it is shown.
struct Surroundings {
    note: MachineNote,
    online: Vec<u16>,
    cores: CoreKinds,
    hypervisor: Option<String>,
    container: Option<String>,
}

impl Doctor {
    /// Examines the machine and prints what it found.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        if !root.can_list("proc") && !root.can_list("sys") {
            return Err(Failure::new(format_args!(
                "{}: neither proc nor sys is there; mount them, or name the folder that has them by --sysroot",
                screen::name(&root.path(""))
            )));
        }
        let online = root.online_cpus();
        let machine = Surroundings {
            note: note(&root, String::new()),
            cores: CoreKinds::read(&root, &online),
            hypervisor: hypervisor(&root),
            container: container(&root),
            online,
        };
        let asker = Asker {
            root: &root,
            is_root: rustix::process::geteuid().is_root(),
            rights: Rights::read(&root),
        };
        let (note, online) = (&machine.note, machine.online.as_slice());
        let rows = Checks { asker, note, online, is_live: self.sysroot.is_none() }.rows();
        let mut out = screen::stdout();
        match self.json {
            true => out.json(SCHEMA, &document(&machine, asker.is_root, &rows))?,
            false => {
                let width = TextStyle::for_stdout().width;
                out.write_all(text(&machine, asker.is_root, &rows, width).as_bytes())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The answer to whether all works, in a sentence or two.
fn answer(is_root: bool, rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.id != SYSTEM_FILES).collect();
    let of =
        |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).collect::<Vec<_>>();
    let (no, partly, as_root) = (of(Verdict::No), of(Verdict::Partly), of(Verdict::AsRoot));
    let (total, works) = (rows.len(), of(Verdict::Yes).len());
    let whom = if is_root { "" } else { " as this user" };
    if works == total {
        return format!("All {total} things below work on this machine{whom}.");
    }
    let mut text = format!("{works} of the {total} things below work on this machine{whom}");
    if !partly.is_empty() {
        let _ = write!(text, "; {} in part", partly.len());
    }
    if !as_root.is_empty() {
        let _ = write!(text, "; {} may work as root: `sudo idlewise doctor`", as_root.len());
    }
    if let [first, ..] = of(Verdict::Unknown).as_slice() {
        let _ = write!(text, "; {} unknown: {}", of(Verdict::Unknown).len(), first.why);
    }
    if !no.is_empty() {
        let _ = write!(text, "; {} do{} not", no.len(), if no.len() == 1 { "es" } else { "" });
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &no {
        match reasons.iter_mut().find(|(why, _)| *why == row.why) {
            Some((_, whats)) => whats.push(&row.what),
            None => reasons.push((&row.why, vec![&row.what])),
        }
    }
    match reasons.iter().max_by_key(|(_, whats)| whats.len()) {
        Some(_) if no.len() <= NAMED_COUNT_MAX => {
            let named = |(why, whats): &(&str, Vec<&str>)| format!("{} ({why})", whats.join("; "));
            let _ = write!(text, ": {}", reasons.iter().map(named).collect::<Vec<_>>().join("; "));
        }
        Some((why, whats)) if whats.len() > 1 => {
            let _ = write!(text, ", {} of them for one reason: {why}", whats.len());
        }
        _ => {}
    }
    text + "."
}

impl Surroundings {
    /// What to show of the machine: a heading, and a line.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let MachineNote { cpu_model, arch, kernel, driver, governor, .. } = &self.note;
        let word = |text: &str| cut(text, WORD_LENGTH_MAX);
        let known = |text: &Option<String>| text.as_deref().map(word);
        let kernel = known(kernel).map(|kernel| format!("Linux {kernel}"));
        let cpus = (!self.online.is_empty()).then(|| counted(self.online.len(), "CPU"));
        let parts = [known(cpu_model), cpus, known(arch), kernel];
        let mut lines =
            vec![("Machine", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))];
        let guest = known(&self.hypervisor).map(|it| format!("a virtual machine ({it})"));
        let inside = known(&self.container).map(|it| format!("a container ({it})"));
        let around: Vec<String> = guest.into_iter().chain(inside).collect();
        if !around.is_empty() {
            lines.push(("Inside", around.join(", ")));
        }
        let states = match (driver, governor) {
            (None, _) => "unknown, because /sys lists no CPUs".to_owned(),
            (Some(Driver::Named(driver)), None) => format!("driver {}", word(driver)),
            (Some(Driver::Named(driver)), Some(governor)) => {
                format!("driver {}, governor {}", word(driver), word(governor))
            }
            (Some(_), _) => "no cpuidle driver, so no idle states to choose from".to_owned(),
        };
        lines.push(("States", states));
        let tables = &self.note.tables;
        for table in tables.iter().take(KIND_COUNT_MAX) {
            let state = |state: &idlewise_machine::MachineState| {
                let name = cut(&state.name, NAME_LENGTH_MAX);
                if state.is_disabled_by_default { format!("{name} (off)") } else { name }
            };
            let states: Vec<String> = table.machine.states.iter().map(state).collect();
            let kind = table.cpus.first().and_then(|&cpu| self.cores.of(cpu));
            let is_one = table.cpus.iter().all(|&cpu| self.cores.of(cpu) == kind);
            let kind = kind.filter(|_| is_one).map(|kind| format!(" ({kind})")).unwrap_or_default();
            lines
                .push(("", format!("{}{kind}: {}", cpus_in_words(&table.cpus), states.join(", "))));
        }
        if tables.len() > KIND_COUNT_MAX {
            lines.push(("", format!("and {} more kinds of CPUs", tables.len() - KIND_COUNT_MAX)));
        }
        for (limit_ns, cpus) in self.limits() {
            let limit = format!("at most {} us to wake up", limit_ns / 1_000);
            lines.push((
                "Limits",
                format!("{}: {limit}, so deeper states are not entered", cpus_in_words(&cpus)),
            ));
        }
        lines
    }

    /// The latency limits that are in force, and for which CPUs.
    fn limits(&self) -> BTreeMap<u64, Vec<u16>> {
        let mut limits: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
        for (cpu, limit_ns) in &self.note.latency_limits_ns {
            limits.entry(*limit_ns).or_default().push(*cpu);
        }
        limits
    }
}

fn text(machine: &Surroundings, is_root: bool, rows: &[Row], width: usize) -> String {
    let mut text = format!("{}\n\n", hanging(&answer(is_root, rows), width, 0));
    let mut last = "";
    for (head, line) in machine.lines() {
        let head = if head == last { "" } else { head };
        let _ = writeln!(text, "{head:MACHINE_AT$}{}", hanging(&short(&line), width, MACHINE_AT));
        last = head;
    }
    let longest = rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
    let is_wide = width >= ONE_LINE_WIDTH_MIN;
    let found_at = if is_wide { WHAT_AT + longest + 2 } else { WHAT_AT };
    let mut group = "";
    let mut said: Option<&str> = None;
    for (at, row) in rows.iter().enumerate() {
        if row.group != group {
            (group, said) = (row.group, None);
            let _ = writeln!(text, "\n{group}");
        }
        let head = format!("  {:9}{}", row.verdict.as_str(), row.what);
        let mend = row.mend.as_deref();
        let found = mend.filter(|_| row.verdict == Verdict::AsRoot).unwrap_or(&row.why);
        let found = hanging(found, width, found_at);
        let _ = match is_wide {
            true => writeln!(text, "{head:found_at$}{found}"),
            false => writeln!(text, "{head}\n{:found_at$}{found}", ""),
        };
        // What all unknown rows wait for is said once.
        let is_known = row.verdict == Verdict::Unknown
            && rows[..at].iter().any(|other| other.mend == row.mend);
        let is_known = is_known || row.verdict == Verdict::AsRoot || said == mend;
        if let Some(mend) = mend.filter(|_| !is_known) {
            let _ = writeln!(text, "{:found_at$}-> {}", "", hanging(mend, width, found_at + 3));
            said = Some(mend);
        }
    }
    text
}

/// The beginning of a text that is too long.
fn cut(text: &str, length_max: usize) -> String {
    match text.chars().count() > length_max {
        true => text.chars().take(length_max - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Text that begins at a column, without that column's spaces in the first line. Words that are longer than a line are
/// broken.
fn hanging(text: &str, width: usize, column: usize) -> String {
    let width = width.saturating_sub(column).max(1);
    let mut broken = String::new();
    for word in text.split_whitespace() {
        for (at, letter) in word.chars().enumerate() {
            if at % width == 0 {
                broken.push(' ');
            }
            broken.push(letter);
        }
    }
    wrap(&broken, width, 0).replace('\n', &format!("\n{:column$}", ""))
}

fn document(machine: &Surroundings, is_root: bool, rows: &[Row]) -> Value {
    let MachineNote { cpu_model, arch, kernel, driver, governor, tables, .. } = &machine.note;
    let table = |table: &idlewise_trace::NotedTable| {
        let states = table.machine.states.iter();
        let states = states
            .map(|state| json!({"name": state.name, "is_disabled": state.is_disabled_by_default}));
        json!({
            "cpus": show_cpu_list(&table.cpus),
            "core": table.cpus.first().and_then(|&cpu| machine.cores.of(cpu)),
            "states": states.collect::<Vec<_>>(),
        })
    };
    let limit = |(limit_ns, cpus): (u64, Vec<u16>)| json!({"cpus": show_cpu_list(&cpus), "latency_limit_ns": limit_ns});
    let row = |row: &Row| {
        json!({
            "id": row.id,
            "group": row.group,
            "what": row.what,
            "verdict": row.verdict.as_str().replace(' ', "_"),
            "why": row.why,
            "mend": row.mend,
            "message": row.message,
        })
    };
    json!({
        "answer": answer(is_root, rows),
        "is_root": is_root,
        "machine": {
            "cpu_model": cpu_model,
            "arch": arch,
            "kernel": kernel,
            "cpus": show_cpu_list(&machine.online),
            "hypervisor": machine.hypervisor,
            "container": machine.container,
            "driver": driver.as_ref().filter(|driver| matches!(driver, Driver::Named(_))).map(Driver::to_string),
            "governor": governor,
            "tables": tables.iter().map(table).collect::<Vec<_>>(),
            "latency_limits": machine.limits().into_iter().map(limit).collect::<Vec<_>>(),
        },
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &'static str, verdict: Verdict, why: &str) -> Row {
        let (what, why) = (format!("do {id}"), why.to_owned());
        let mend = (verdict != Verdict::Yes).then(|| format!("fix {why}"));
        Row { id, group: "Group", what, verdict, why, mend, message: None }
    }

    fn machine() -> Surroundings {
        let root = idlewise_host::Root::at(std::path::Path::new("/nowhere"));
        Surroundings {
            note: note(&root, String::new()),
            online: Vec::new(),
            cores: CoreKinds::read(&root, &[]),
            hypervisor: None,
            container: None,
        }
    }

    #[test]
    fn columns_are_apart_and_narrow_screens_get_a_line_for_each() {
        let rows =
            [row("short", Verdict::Yes, "it works"), row("something longer", Verdict::No, "x")];
        let wide = text(&machine(), true, &rows, 80);
        assert!(wide.contains("  yes      do short             it works\n"), "{wide}");
        assert!(wide.contains("  no       do something longer  x\n"), "{wide}");
        let narrow = text(&machine(), true, &rows, 60);
        assert!(narrow.contains("  yes      do short\n           it works\n"), "{narrow}");
        assert!(!wide.contains("0 CPUs") && wide.contains("/sys lists no CPUs"), "{wide}");
    }

    #[test]
    fn the_answer_counts_each_row_once() {
        let rows = |verdicts: &[(Verdict, &str)]| -> Vec<Row> {
            verdicts.iter().map(|(verdict, why)| row("this", *verdict, why)).collect()
        };
        use Verdict::{AsRoot, No, Partly, Unknown, Yes};
        for (verdicts, expected) in [
            (&[(Yes, ""), (Yes, "")][..], "All 2 things below work on this machine."),
            (
                &[(Yes, ""), (Partly, ""), (AsRoot, ""), (No, "no x"), (Unknown, "/proc is gone")],
                "1 of the 5 things below work on this machine; 1 in part; 1 may work as root: \
                 `sudo idlewise doctor`; 1 unknown: /proc is gone; 1 does not: do this (no x).",
            ),
            (
                &[(No, "a"), (No, "b"), (No, "b"), (No, "c")],
                "0 of the 4 things below work on this machine; 4 do not, 2 of them for one reason: b.",
            ),
            (
                &[(No, "a"), (No, "b"), (No, "c"), (No, "d")],
                "0 of the 4 things below work on this machine; 4 do not.",
            ),
        ] {
            assert_eq!(answer(true, &rows(verdicts)), expected);
        }
        assert!(answer(false, &rows(&[(Yes, "")])).ends_with("on this machine as this user."));
    }

    #[test]
    fn words_that_are_longer_than_a_line_are_broken() {
        assert_eq!(hanging("a bcdefg", 6, 2), "a\n  bcde\n  fg");
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
    }
}
