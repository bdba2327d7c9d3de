//! What `idlewise lab boot` prints: the choice of the idle routine, branch by branch.

use std::fmt::Write;

use idlewise_machine::boot::driver::{CpuidleDriver, Prospect, prospects};
use idlewise_machine::boot::{
    BRANCHES, BootFacts, Branch, Fact, IdleParameter, IdleRoutine, Kernel, Selection, Source,
    Verdict, log_lines, select,
};
use serde_json::{Value, json};

use crate::{Notes, shown_in_line, wrap};

/// A machine's idle routine, and everything that is said about it.
pub struct BootReport {
    /// The CPU's name.
    name: Option<String>,
    /// The cpuidle driver that is registered.
    driver: Option<String>,
    facts: BootFacts,
    selection: Selection,
    doubts: Notes,
}

impl BootReport {
    /// Chooses the routine from `facts`.
    pub fn new(
        facts: BootFacts,
        name: Option<String>,
        driver: Option<String>,
        doubts: &[String],
    ) -> Self {
        let mut notes = Notes::default();
        for doubt in doubts {
            notes.doubt(doubt);
        }
        BootReport { name, driver, facts, selection: select(&facts), doubts: notes }
    }

    /// Returns the report as text.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        let mut paragraph = |words: &str, indent: usize| {
            text.push_str(&wrap(words, width, indent));
            text.push('\n');
        };
        paragraph(&self.subject(), 0);
        paragraph(&self.conclusion(), 0);

        let mut text = text + "\n" + &self.branches_text() + "\n";
        for (routine, _) in self.selection.possible() {
            let is_open = self.selection.routine().is_none();
            let condition = if is_open { format!(" if {routine}") } else { String::new() };
            let lines: Vec<&str> = log_lines(&self.facts, routine).collect();
            let lines = if lines.is_empty() { "no line".to_owned() } else { lines.join("; ") };
            text.push_str(&wrap(&format!("Kernel log{condition}: {lines}"), width, 12));
            text.push('\n');
        }

        text.push_str("\ncpuidle drivers, if the kernel has them, in their order:\n");
        for (driver, prospect) in prospects(&self.facts) {
            let words = prospect_words(prospect);
            let line = format!("  {:<10}  {words}", driver.as_str());
            text.push_str(&wrap_after(&line, width, 14));
        }
        for line in self.driver_lines() {
            text.push_str(&wrap(&line, width, 0));
            text.push('\n');
        }

        text.push_str("\nWithout a driver, by kernel and parameter:\n");
        text.push_str(&self.by_kernel_text());
        let notes = self.notes();
        if !notes.is_empty() {
            text.push_str("\nNotes:\n");
        }
        for note in notes {
            text.push_str(&wrap(&format!("- {note}"), width, 2));
            text.push('\n');
        }
        match self.doubts.to_text(width) {
            doubts if doubts.is_empty() => text,
            doubts => text + "\n" + &doubts,
        }
    }

    /// Returns the report for programs.
    pub fn to_json(&self) -> Value {
        let possible = |selection: &Selection, facts: &BootFacts| -> Vec<Value> {
            let outcomes = selection.possible().map(|(routine, branch)| {
                json!({
                    "routine": routine.as_str(),
                    "branch": branch.map(|branch| branch.row().name),
                    "log_lines": log_lines(facts, routine).collect::<Vec<_>>(),
                })
            });
            outcomes.collect()
        };
        let branches = BRANCHES.iter().zip(self.selection.verdicts).map(|(row, verdict)| {
            let (word, source) = verdict_words(verdict);
            json!({
                "branch": row.name,
                "question": row.question,
                "verdict": word,
                "source": source.map(|source| source.to_string()),
            })
        });
        let drivers = prospects(&self.facts).map(|(driver, prospect)| {
            json!({
                "driver": driver.as_str(),
                "prospect": prospect.as_str(),
                "reason": prospect.reason(),
            })
        });
        let by_kernel = self.variants().map(|(kernel, parameter, facts)| {
            let selection = select(&facts);
            json!({
                "kernel": kernel.as_str(),
                "parameter": parameter.as_str(),
                "routine": selection.routine().map(IdleRoutine::as_str),
                "possible": possible(&selection, &facts),
            })
        });
        json!({
            "name": self.name,
            "cpu": self.facts.cpu.map(|cpu| json!({
                "vendor": cpu.value.vendor.as_str(),
                "family": cpu.value.family,
                "model": cpu.value.model,
                "stepping": cpu.value.stepping,
            })),
            "kernel": self.facts.kernel.as_str(),
            "routine": self.selection.routine().map(IdleRoutine::as_str),
            "possible": possible(&self.selection, &self.facts),
            "branches": branches.collect::<Vec<_>>(),
            "drivers": drivers,
            "current_driver": self.driver,
            "by_kernel": by_kernel.collect::<Vec<_>>(),
            "notes": self.notes(),
            "doubts": self.doubts.counted_doubts(),
        })
    }

    fn subject(&self) -> String {
        let model = self.facts.cpu.map(|cpu| cpu.value.to_string());
        match (&self.name, model) {
            (Some(name), Some(model)) => format!("{}: {model}", shown_in_line(name)),
            (Some(name), None) => shown_in_line(name).into_owned(),
            (None, Some(model)) => model,
            (None, None) => "A CPU of unknown model".to_owned(),
        }
    }

    /// The answer in a sentence.
    fn conclusion(&self) -> String {
        let kernel = self.facts.kernel;
        let because = |branch: Option<Branch>| {
            branch.map_or(String::new(), |branch| format!(", because {}", branch.row().reason))
        };
        if let Some(routine) = self.selection.routine() {
            let branch = self.selection.possible().next().and_then(|(_, branch)| branch);
            return format!("By the rules of Linux {kernel} it gets {routine}{}.", because(branch));
        }
        let possible: Vec<&str> =
            self.selection.possible().map(|(routine, _)| routine.as_str()).collect();
        format!(
            "By the rules of Linux {kernel} it gets {}; which one depends on what is unknown here.",
            possible.join(" or ")
        )
    }

    fn branches_text(&self) -> String {
        let mut lines = format!("{:<32}{:<11}known from\n", "The kernel asks", "answer");
        for (row, verdict) in BRANCHES.iter().zip(self.selection.verdicts) {
            if verdict == Verdict::Absent {
                continue;
            }
            let (_, source) = verdict_words(verdict);
            let answer = match verdict {
                Verdict::Taken(_) => "yes",
                Verdict::NotTaken(_) => "no",
                Verdict::Unknown => "unknown",
                Verdict::NotReached | Verdict::Absent => "not asked",
            };
            let source = source.map(|source| source.to_string()).unwrap_or_default();
            let line = format!("{:<32}{answer:<11}{source}", row.question);
            let _ = writeln!(lines, "{}", line.trim_end());
        }
        lines
    }

    /// What the drivers mean for the routine.
    fn driver_lines(&self) -> Vec<String> {
        let prospects = prospects(&self.facts);
        let first =
            prospects.iter().find(|(_, prospect)| !matches!(prospect, Prospect::Refuses(_)));
        let polls = self.facts.cmdline.is_some_and(|cmdline| cmdline.value.polls);
        let meaning = match first {
            _ if polls => "CPUs poll whatever driver there is.".to_owned(),
            None => "No driver takes over, so CPUs idle by that routine.".to_owned(),
            Some((driver, Prospect::Registers(_))) => {
                format!("If the kernel has {}, it decides instead.", driver.as_str())
            }
            Some(_) => "If one of them registers, it decides instead.".to_owned(),
        };
        let now = self.driver.as_deref().map(|driver| {
            let name = shown_in_line(driver);
            let foretold = prospects.iter().find(|(known, _)| known.as_str() == driver);
            let surprise = match foretold {
                Some((_, Prospect::Refuses(reason))) => {
                    format!(", although {reason}")
                }
                _ => String::new(),
            };
            format!("Registered now, by sysfs: {name}{surprise}.")
        });
        std::iter::once(meaning).chain(now).collect()
    }

    /// The machine under each kernel and each `idle=`.
    fn variants(&self) -> impl Iterator<Item = (Kernel, IdleParameter, BootFacts)> {
        let facts = self.facts;
        Kernel::ALL.into_iter().flat_map(move |kernel| {
            IdleParameter::ALL.into_iter().map(move |parameter| {
                let cmdline = facts.cmdline.map(|cmdline| cmdline.value).unwrap_or_default();
                let cmdline = Fact::new(cmdline.with(parameter), Source::Assumed);
                (kernel, parameter, BootFacts { kernel, cmdline: Some(cmdline), ..facts })
            })
        })
    }

    fn by_kernel_text(&self) -> String {
        let mut cells: Vec<Vec<String>> = vec![vec!["Linux".to_owned()]];
        cells[0].extend(IdleParameter::ALL.map(|parameter| parameter.as_str().to_owned()));
        for kernel in Kernel::ALL {
            let of_kernel = self.variants().filter(|(of, ..)| *of == kernel);
            let routines = of_kernel.map(|(.., facts)| {
                let selection = select(&facts);
                let names: Vec<&str> =
                    selection.possible().map(|(routine, _)| routine.as_str()).collect();
                names.join(" or ")
            });
            cells.push(std::iter::once(kernel.to_string()).chain(routines).collect());
        }
        let widths: Vec<usize> = (0..cells[0].len())
            .map(|column| cells.iter().map(|row| row[column].len()).max().unwrap_or_default())
            .collect();
        let mut text = String::new();
        for row in cells {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        text
    }

    /// What errata and unknown facts mean.
    fn notes(&self) -> Vec<String> {
        let facts = &self.facts;
        let is = |fact: Option<Fact<bool>>| fact.is_some_and(|is| is.value);
        let mut notes: Vec<String> = self
            .selection
            .unknown()
            .map(|branch| missing(branch, facts.cmdline.is_some()))
            .collect();
        notes.dedup();
        let is_e400_possible = facts.has_e400().is_none_or(|is| is.value);
        if facts.cpu.is_some() && is_e400_possible {
            let line = if facts.kernel <= Kernel::V6_1 {
                "process: System has AMD C1E enabled"
            } else {
                "process: System has AMD C1E erratum E400. Workaround enabled."
            };
            notes.push(format!(
                "Erratum 400: if the firmware uses C1E, an idle CPU's timer stops. The kernel finds out after \
                 ACPI is up (MSR 0xc0010055), lets another CPU keep the timer, and logs \"{line}\"."
            ));
        }
        let is_mwait = self.selection.possible().any(|(routine, _)| routine == IdleRoutine::Mwait);
        if is_mwait && is(facts.needs_clflush()) {
            notes.push(
                "Erratum AAI65: the kernel flushes the cache line each time before it monitors it."
                    .to_owned(),
            );
        }
        let driver_waits = prospects(facts).iter().any(|(driver, prospect)| {
            *driver == CpuidleDriver::IntelIdle && matches!(prospect, Prospect::Registers(_))
        });
        if is(facts.is_guest) && (is_mwait || driver_waits) {
            let whose = match facts.kvm.map(|kvm| kvm.value.is_kvm) {
                Some(true) => "KVM runs a guest's MWAIT as a no-op",
                Some(false) => "A hypervisor may run a guest's MWAIT as a no-op",
                None => "A hypervisor may run a guest's MWAIT as a no-op (KVM does)",
            };
            notes.push(format!(
                "This is a guest. {whose}, so that an idle CPU spins, unless the host lets guests execute it \
                 (QEMU: -overcommit cpu-pm=on). The host shows which: if a CPU of this idle guest keeps a core \
                 busy, boot with idle=nomwait."
            ));
        }
        let monitor_bug = self.selection.verdicts[Branch::MonitorBug as usize];
        if matches!(monitor_bug, Verdict::Taken(_)) {
            notes.push(
                "A driver such as intel_idle still uses MWAIT here, but an idle CPU is woken by an interrupt \
                 and not by the store that it monitors."
                    .to_owned(),
            );
        }
        let polls = facts.cmdline.is_some_and(|cmdline| cmdline.value.polls);
        if polls && facts.sees_smt().is_none() {
            notes.push(
                "Whether the log warns of polling beside a busy sibling depends on SMT, which is unknown here."
                    .to_owned(),
            );
        }
        if facts.cmdline.is_some_and(|cmdline| cmdline.source == Source::Assumed) {
            notes.push(
                "No kernel command line is known; an empty one is assumed (--cmdline gives one)."
                    .to_owned(),
            );
        }
        notes
    }
}

const COMMAND_LINE: &str = "the kernel's command line: --cmdline gives it";

/// What would answer a branch that nobody can answer here.
fn missing(branch: Branch, has_cmdline: bool) -> String {
    let what = match branch {
        Branch::XenDecided => "the kind of Xen guest: /sys/hypervisor/guest_type has it",
        Branch::HasE400 => {
            "what the firmware says of erratum 400 (OSVW, MSR 0xc0010141): \"bugs\" in 6.1's /proc/cpuinfo \
             has amd_e400 if it applies"
        }
        Branch::PollRequested | Branch::HaltDecided | Branch::HaltRequested => COMMAND_LINE,
        Branch::MwaitForbidden if has_cmdline => {
            "whether this release obeys idle=nomwait: before 6.0, stable releases do from August 2022 on \
             (5.18.18, 5.15.61, 5.10.137)"
        }
        Branch::MwaitForbidden => COMMAND_LINE,
        Branch::NoMwait => {
            "whether the CPU claims MWAIT: CPUID leaf 1 or the flags in /proc/cpuinfo"
        }
        Branch::LeafMissing => {
            "the highest CPUID leaf under Linux, which lifts a limit that the firmware set: a dump made under \
             Linux has it"
        }
        Branch::MonitorBug | Branch::NotIntel | Branch::IsIntel => {
            "the CPU's vendor and model: CPUID leaves 0 and 1 have them"
        }
        Branch::C1eFound | Branch::NoExtensions | Branch::HasC1 | Branch::NoC1 => {
            "CPUID leaf 5, which /proc/cpuinfo does not show: `cpuid -1 -r` dumps it for --cpuid"
        }
        Branch::TdxGuest => "whether this is a TDX guest: CPUID leaf 0x21 or the flag tdx_guest",
    };
    format!("Unknown: {what}.")
}

fn verdict_words(verdict: Verdict) -> (&'static str, Option<Source>) {
    match verdict {
        Verdict::Taken(source) => ("taken", Some(source)),
        Verdict::NotTaken(source) => ("not_taken", Some(source)),
        Verdict::Unknown => ("unknown", None),
        Verdict::NotReached => ("not_reached", None),
        Verdict::Absent => ("absent", None),
    }
}

fn prospect_words(prospect: Prospect) -> String {
    match prospect {
        Prospect::Registers(reason) => format!("registers: {reason}"),
        Prospect::Refuses(reason) => format!("stays away: {reason}"),
        Prospect::Depends(reason) => format!("depends on {reason}"),
    }
}

/// Wraps a line whose first words are aligned by spaces, which `wrap` would join.
fn wrap_after(line: &str, width: usize, indent: usize) -> String {
    let (head, words) = line.split_at(indent.min(line.len()));
    let wrapped = wrap(words, width.saturating_sub(indent), 0);
    let lines = wrapped.lines().enumerate().map(|(number, line)| {
        let head = if number == 0 { head.to_owned() } else { " ".repeat(indent) };
        format!("{head}{line}\n")
    });
    lines.collect()
}
