//! `idlewise report`: one HTML page about logs under governors on machines.

mod mail;
mod measured;
pub mod provenance;
mod replayed;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use idlewise_report::page::{
    DetailFacts, Facts, Knows, LogFacts, MachineFacts, Page, PageKind, PriceFacts, Verdict,
    log_doubts,
};
use idlewise_report::replay::is_recorded;
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_sim::Machine;
use serde_json::json;

use crate::error::{Failure, Result};
use crate::governor_arguments::{GovernorArguments, with_default};
use crate::governors::{self, Choice};
use crate::input::{NamedLog, must_have_gaps};
use crate::output;
use crate::replay_arguments::{
    MACHINES_DEFAULT, ReplayArguments, ReplayTarget, Targets, say_assumed,
};
use crate::screen::{self, Screen};
use crate::threads;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # The bundled recordings, two server machines, the usual governors, into report.html
  idlewise report

  # Your own recording, on its machine's idle states, to view in a browser
  idlewise report trace.dat -o server.html

  # Saved measurements: distributions and intervals
  idlewise report halt.json mwait.json -o wakes.html

  # What a patch for menu would do, compared with the unpatched menu.c
  idlewise report server.parquet --kernel-source ~/linux --governor menu.c \\
      --governor menu.c --patch my.patch

  # The same as text for a mailing list, and under the message of a commit
  idlewise report server.parquet --governor menu --governor menu+min --format mail
  idlewise report server.parquet --governor menu --governor menu+min --format mail \\
      --bundle https://example.org/evidence.tar.zst --commit 0001-cpuidle-menu.patch

Exit status: 0; 1 if a governor's file crashed, looped or returned an invalid state; 2 on bad \
input.";

/// Write an HTML page that shows which governor is best, and where and when others lose
///
/// The page is a single file that needs no network and no server. Its content security policy allows no
/// script but its own. Without JavaScript it shows its verdicts as text. Instead of logs it takes results
/// saved by `idlewise measure ... --json`; `idlewise lab study --report` makes such a page too.
#[derive(clap::Args)]
#[command(mut_arg(
    "governor",
    with_default(
        "menu, menu+min, teo, ladder and, on a page, deepest, shallowest, timer-only and the oracle"
    )
))]
#[command(mut_arg("csv", |option| option.hide(true)), mut_arg("by_log", |option| option.hide(true)))]
#[command(after_help = EXAMPLES)]
pub struct Report {
    #[command(flatten)]
    governors: GovernorArguments,

    #[command(flatten)]
    shared: ReplayArguments,

    /// The file to write [default: report.html; a mail goes to standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,

    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Html)]
    format: Format,

    /// Put the mail under the `---` line of a `git format-patch` file; an earlier one is replaced
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "json"])]
    commit: Option<PathBuf>,

    /// Where others find the bundle of this result (`idlewise log bundle`), for the mail
    #[arg(long, value_name = "URL")]
    bundle: Option<String>,

    /// Show at most this many gaps of each log one by one; all other figures are of all gaps
    #[arg(long, value_name = "N", default_value_t = GAP_COUNT_MAX)]
    gaps: u64,
}

/// With this many gaps a page stays below 8 MB.
const GAP_COUNT_MAX: u64 = 300_000;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A page for a browser
    Html,
    /// Text for a mail
    Mail,
}

impl Report {
    /// Replays everything that was requested, and writes the page.
    pub fn run(self) -> Result<ExitCode> {
        threads::start();
        if self.shared.csv || self.shared.by_log {
            return Err(Failure::new(
                "--csv and --by-log are for tables; `idlewise replay` prints them, and the page has every log",
            ));
        }
        if self.format == Format::Mail {
            return self.write_mail();
        }
        self.refuse_mail_options()?;
        if let Some(files) = measured::saved(&self.shared.logs)? {
            return self.write_measured(&files);
        }
        // Check names, and whether the file may be written, before reading anything.
        let choices = governors::distinct(self.governors.choices_or(&governors::standard())?);
        governors::must_decide(&choices)?;
        self.shared.machines(&choices)?;
        let inputs = self.shared.inputs(&self.governors);
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let output = output::create(self.page_path(), self.force, &inputs)?;
        let logs = self.shared.open_logs()?;
        must_have_gaps(&logs)?;
        let choices = self.governors.with_in_use(choices, &logs);
        let on = self.shared.machines(&choices)?.on_logs(&logs, &MACHINES_DEFAULT)?;
        let page = self.page(&logs, &on, &choices)?;
        let report = output::report_of(&output);
        let html = page.to_html();
        let byte_count = html.len();
        output::write(output, html)?;
        let failed = governors::say_failures(&choices, "so it is not in the page");
        let mut out = report();
        let mut notes = Notes::default();
        say_assumed(on.assumed.as_deref(), &mut notes, &mut out, (self.shared.json, false))?;
        self.print(&mut out, &page.facts, byte_count, &choices)?;
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Prints what was written, and its verdicts.
    fn print(
        &self,
        out: &mut Screen,
        facts: &Facts,
        byte_count: usize,
        choices: &[Choice],
    ) -> Result<()> {
        if self.shared.json {
            let log = |detail: &DetailFacts| {
                json!({
                    "log": facts.logs[detail.log].name,
                    "gap_count": detail.gap_count,
                    "kept_count": detail.kept_count,
                    "how": detail.how,
                })
            };
            let verdict = |verdict: &Verdict| {
                json!({
                    "machine": facts.machines[verdict.machine].id,
                    "sentence": verdict.sentence,
                    "facts": verdict.facts,
                    "limits": verdict.limits,
                })
            };
            let failure = |choice: &Choice| {
                Some(json!({"governor": choice.name(), "message": choice.failure()?}))
            };
            let document = json!({
                "file": self.page_path().to_string_lossy(),
                "byte_count": byte_count,
                "logs": facts.details.iter().map(log).collect::<Vec<_>>(),
                "verdicts": facts.verdicts.iter().map(verdict).collect::<Vec<_>>(),
                "failures": choices.iter().filter_map(failure).collect::<Vec<_>>(),
            });
            out.json(SCHEMA, &document)?;
            return Ok(());
        }
        let gap_count: u64 = facts.logs.iter().map(|log| log.gap_count).sum();
        let name = screen::name(self.page_path());
        writeln!(
            out,
            "{name}: {} of {}, {byte_count} bytes",
            counted(gap_count, "gap"),
            counted(facts.logs.len(), "log")
        )?;
        for verdict in &facts.verdicts {
            writeln!(out, "{}", wrap(&verdict.sentence, TextStyle::for_stdout().width, 0))?;
        }
        writeln!(out, "Next: open it in a browser")?;
        Ok(())
    }

    /// The file for the page.
    fn page_path(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("report.html"))
    }

    /// Refuses options of the mail where there is none.
    fn refuse_mail_options(&self) -> Result<()> {
        match self.commit.is_some() || self.bundle.is_some() {
            true => Err(Failure::new("--commit and --bundle are for the mail; add --format mail")),
            false => Ok(()),
        }
    }

    fn page(&self, logs: &[NamedLog], on: &Targets, choices: &[Choice]) -> Result<Page> {
        let targets = on.targets.as_slice();
        let mut page = Page::new(PageKind::Replay);
        let facts = &mut page.facts;
        facts.program = provenance::PROGRAM.to_owned();
        facts.command = provenance::command_line();
        facts.title = title(logs, targets);
        facts.machines = targets.iter().map(|target| self.machine(target)).collect();
        facts.prices = self.shared.prices().into_iter().map(PriceFacts::of).collect();
        let mut notes = self.shared.notes(logs, targets, choices);
        on.assumed.iter().for_each(|assumed| notes.doubt(assumed));
        facts.notes = (&notes).into();
        for (index, named) in logs.iter().enumerate() {
            let is_own = |it: &&ReplayTarget| is_recorded(&it.machine.id) && it.is_for(index);
            let own = targets.iter().find(is_own).map(|target| &target.machine);
            facts.logs.push(self.log(named, own)?);
        }
        self.replay_into(&mut page, logs, targets, choices)?;
        page.facts.provenance = provenance::of(&page.facts, logs);
        Ok(page)
    }

    fn machine(&self, target: &ReplayTarget) -> MachineFacts {
        let limit_ns = self.shared.latency_limit_us.map(|us| u64::from(us) * 1_000);
        let ReplayTarget { machine, costs, disabled, .. } = target;
        MachineFacts::of(machine, costs, *disabled, self.shared.tick_work_ns, limit_ns)
    }

    /// Describes a log, with its machine under the name that it has in results, if it was replayed on it.
    fn log(&self, named: &NamedLog, own: Option<&Machine>) -> Result<LogFacts> {
        let metadata = &named.log.metadata;
        let machine = own.or(metadata.machine.as_ref());
        Ok(LogFacts {
            name: named.name.clone(),
            gap_count: named.log.gap_count(),
            cpu_count: metadata.cpus.len() as u64,
            first_ns: 0,
            span_ns: 0,
            idle_ns: 0,
            kernel: metadata.kernel.clone(),
            hz: self.shared.hz(named),
            machine: machine.map(|machine| machine.id.clone()),
            state_names: machine
                .iter()
                .flat_map(|one| &one.states)
                .map(|s| s.name.clone())
                .collect(),
            governor: metadata.governor.clone(),
            sha256: named.sha256()?,
            doubts: log_doubts(&named.name, metadata),
            knows: Knows::of(metadata),
        })
    }
}

/// The heading of the page: which logs on which machines.
fn title(logs: &[NamedLog], targets: &[ReplayTarget]) -> String {
    let logs = match logs {
        [one] => one.name.clone(),
        logs => format!("{} logs", logs.len()),
    };
    let name = |target: &ReplayTarget| match is_recorded(&target.machine.id) {
        true => target.machine.title.clone(),
        false => target.machine.id.clone(),
    };
    let machines: Vec<String> = targets.iter().map(name).collect();
    format!("{logs} on {}", machines.join(" and "))
}
