//! `idlewise info`: what an idle log contains, and how far it can be trusted.

pub(super) mod histogram;
mod why_menu;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use idlewise_lab::notes::add_gap_count;
use idlewise_report::info::InfoTable;
use idlewise_report::why_menu::why_menu_table;
use idlewise_report::{TextStyle, counted, wrap};
use idlewise_sim::replay::GroupReader;
use idlewise_trace::log::LogMetadata;
use serde_json::json;

use histogram::Form;

use crate::cmd::validate::verdict_of;
use crate::doubts::ShownDoubts;
use crate::error::{Failure, Result};
use crate::input::NamedLog;
use crate::screen;
use crate::unpack::Unpacking;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

const EXAMPLES: &str = "\
Examples:
  # What a log holds, CPU by CPU
  idlewise info machine.parquet

  # The same of a recording, without keeping a log
  idlewise info trace.dat

  # For kernel developers: would menu+min, the patch proposed in 2026, change anything here?
  idlewise info machine.parquet --why-menu

  # For programs: all columns, times in nanoseconds, and the log's metadata
  idlewise info machine.parquet --json

Exit status: 0 even if the log has errors (`log validate` returns 1 for those); 2 if the file \
cannot be used.";

/// Show what a recording holds, CPU by CPU, and whether it can be trusted
///
/// The first line is the verdict of `idlewise log validate`, which has the details.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Info {
    /// An idle log (idlewise's own format), a recording (perf.data, trace.dat; `idlewise log import --help` lists all), or a
    /// histogram of `record --histogram`
    log: PathBuf,

    /// Count how often menu distrusts a short prediction because the tick is stopped
    ///
    /// For kernel developers: shows what the proposed patch "cpuidle: menu: Use min() to prevent deep C-states
    /// when tick is stopped" (2026, docs/studies/menu-min.md) would change. Asks our port of menu, in the version of the recorded kernel, at each idle entry, and counts for each
    /// CPU: the tick was stopped, no task ran since the gap before, the prediction was below one tick, the
    /// next timer was more than one tick away, and all four; how often the proposed min() would select
    /// another state; and whether the gaps ended before the timer. Ticks and stays are as recorded if the
    /// log has a governor's decisions; otherwise menu decides itself.
    #[arg(long)]
    why_menu: bool,

    /// The machine whose states menu chooses from, a name or a file [default: recorded; if unknown, spr]
    #[arg(long, value_name = "NAME|FILE", requires = "why_menu")]
    machine: Option<String>,

    #[command(flatten)]
    unpacking: Unpacking,

    #[command(flatten)]
    doubts: ShownDoubts,

    /// Print JSON instead of text
    #[arg(long, conflicts_with = "csv")]
    json: bool,

    /// Print the table as CSV instead of text
    #[arg(long)]
    csv: bool,
}

impl Info {
    /// Prints the log's metadata and a line for each CPU.
    pub fn run(self) -> Result<ExitCode> {
        if let Some(histogram) = histogram::read(&self.log)? {
            if self.why_menu {
                let name = screen::name(&self.log);
                return Err(Failure::new(format_args!(
                    "{name}: a histogram has no order of stays, so menu cannot be asked; record without --histogram"
                )));
            }
            return histogram::info(&self.log, &histogram, Form::of(self.json, self.csv));
        }
        let named = NamedLog::open(&self.log, self.unpacking)?;
        let mut table = InfoTable::new(&named.log.metadata);
        let mut reader = GroupReader::new(&named.log);
        for group in named.log.groups() {
            for gap in reader.read(group)? {
                table.add(gap);
            }
        }
        let table = table.finish();
        let metadata = &named.log.metadata;
        let why_menu = match self.why_menu {
            true => Some(why_menu::ask(&named, self.machine.as_deref(), self.doubts.notes())?),
            false => None,
        };
        let mut out = screen::stdout();
        if self.csv {
            let table = why_menu.map_or(table, |answer| why_menu_table("", &answer.cpus));
            out.write_all(table.to_csv().as_bytes())?;
        } else if self.json {
            let gap_count = named.log.gap_count();
            let mut document =
                json!({ "gap_count": gap_count, "cpus": table, "metadata": metadata });
            if let Some(answer) = why_menu {
                document["why_menu"] = json!({
                    "governor": answer.governor,
                    "machine": answer.machine,
                    "is_recorded": answer.is_recorded,
                    "cpus": why_menu_table("", &answer.cpus),
                    "all": why_menu_table("", std::slice::from_ref(&answer.all)),
                    "finding": answer.all.sentence(),
                    "bases": answer.notes.bases_json(),
                    "doubts": answer.notes.counted_doubts(),
                });
            }
            out.json(SCHEMA, &document)?;
        } else if let Some(answer) = why_menu {
            let style = TextStyle::for_stdout();
            writeln!(out, "{}\n", header(&named.name, metadata, style.width))?;
            let title = format!(
                "{} on {}, asked at each idle entry; {}:",
                answer.governor,
                answer.machine,
                match answer.is_recorded {
                    true => "ticks and stays as recorded",
                    false => "ticks and stays as it decides",
                }
            );
            let mut rows = answer.cpus;
            if rows.len() > 1 {
                rows.push(answer.all.clone());
            }
            writeln!(out, "{}", why_menu_table(&title, &rows).to_text(&style))?;
            writeln!(out, "{}\n", wrap(&answer.all.sentence(), style.width, 0))?;
            writeln!(out, "{}", answer.notes.to_text(style.width).trim_end())?;
        } else {
            let style = TextStyle::for_stdout();
            writeln!(out, "{}\n", wrap(&verdict_of(&named, &self.log)?, style.width, 2))?;
            writeln!(out, "{}\n", header(&named.name, metadata, style.width))?;
            out.write_all(table.to_text(&style).as_bytes())?;
            let mut notes = self.doubts.notes();
            if !metadata.unknown_columns.is_empty() {
                let names = metadata.unknown_columns.join(", ");
                notes.doubt(format!("the recording does not have {names}"));
            }
            add_gap_count(&mut notes, &named.name, metadata);
            notes.doubts_of(&metadata.doubts);
            let notes = notes.to_text(style.width);
            if !notes.trim_end().is_empty() {
                writeln!(out, "\n{}", notes.trim_end())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn header(name: &str, metadata: &LogMetadata, width: usize) -> String {
    let source = &metadata.source;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let hz = metadata.hz.map_or("unknown".to_owned(), |hz| hz.to_string());
    let blake3 = source.blake3.as_deref().unwrap_or("unknown");
    let mut lines = vec![
        format!(
            "{name}: from {} of {} bytes, {}, BLAKE3 {}",
            source.format,
            source.byte_count,
            counted(source.event_count, "event"),
            blake3.get(..16).unwrap_or(blake3),
        ),
        format!(
            "Kernel {}, HZ {hz}, {}, clock {}",
            or_unknown(&metadata.kernel),
            or_unknown(&metadata.cpu_model),
            or_unknown(&metadata.clock),
        ),
        format!(
            "cpuidle driver {}, governor {}",
            or_unknown(&metadata.driver.clone().map(String::from)),
            or_unknown(&metadata.governor),
        ),
    ];
    if let Some(command) = &source.command {
        const SHOWN: usize = 160;
        let shown: String = command.chars().take(SHOWN).collect();
        let rest = if shown.len() < command.len() { "…" } else { "" };
        lines.push(format!("Recorded by: {shown}{rest}"));
    }
    lines.iter().map(|line| wrap(line, width, 2)).collect::<Vec<_>>().join("\n")
}
