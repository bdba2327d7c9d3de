//! What `idlewise info` and `idlewise advise` say about a file of `idlewise record --histogram`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use idlewise_report::histogram::{bars, limit_lines, limit_table, state_lines, state_table};
use idlewise_report::{Notes, TextStyle, counted, wrap};
use idlewise_sim::{Basis, Machine};
use idlewise_trace::histogram::IdleHistogram;
use serde_json::{Value, json};

use crate::error::{Failure, Result};
use crate::screen;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// Of more CPUs, only all together are printed as text.
const CPU_COUNT_MAX: usize = 8;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Csv,
}

impl Form {
    /// The form that a command's options ask for.
    pub fn of(json: bool, csv: bool) -> Self {
        match (json, csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        }
    }
}

/// Reads a histogram; `None` if the file is something else.
pub fn read(path: &Path) -> Result<Option<IdleHistogram>> {
    let fail = |error: String| Failure::new(format_args!("{}: {error}", screen::name(path)));
    IdleHistogram::read(path).transpose().map_err(fail)
}

/// Prints what a histogram holds.
pub fn info(path: &Path, histogram: &IdleHistogram, form: Form) -> Result<ExitCode> {
    let (all, each) = state_lines(histogram);
    let mut notes = Notes::default();
    notes.basis(Basis::Measured, "stays, times and what ended them");
    if histogram.note.tables.is_empty() {
        notes.doubt(
            "the machine had no cpuidle driver, so nothing is too deep or too shallow: state 1 stands for the \
             kernel's own idle routine",
        );
    }
    let beyond_count: u64 = histogram.cpus.iter().map(|cpu| cpu.beyond_count).sum();
    if beyond_count > 0 {
        notes.doubt(format!(
            "{} left out, for the states are those of another driver that came later",
            counted(beyond_count, "stay")
        ));
    }
    notes.doubts_of(&histogram.note.doubts);
    limits(&mut notes);
    let mut out = screen::stdout();
    match form {
        Form::Json => {
            let document = json!({
                "kind": "idle histogram",
                "recorded_ns": histogram.recorded_ns,
                "all": state_table("", &all),
                "each": state_table("", &each),
                "note": histogram.note,
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
        }
        Form::Csv => {
            let lines = [all, each].concat();
            write!(out, "{}", state_table("", &lines).to_csv())?;
        }
        Form::Text => {
            let style = TextStyle::for_stdout();
            writeln!(out, "{}\n", wrap(&header(path, histogram), style.width, 2))?;
            let is_short = histogram.cpus.len() <= CPU_COUNT_MAX && histogram.cpus.len() > 1;
            let lines = if is_short { [all.clone(), each].concat() } else { all.clone() };
            write!(out, "{}", state_table("", &lines).to_text(&style))?;
            writeln!(out, "\nAll stays by length:\n{}", bars(&all))?;
            write!(out, "{}", notes.to_text(style.width))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn header(path: &Path, histogram: &IdleHistogram) -> String {
    let note = &histogram.note;
    let or_unknown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    format!(
        "{}: an idle histogram of {} over {:.1} s. Kernel {}, {}, governor {}",
        screen::name(path),
        counted(histogram.cpus.len(), "CPU"),
        histogram.recorded_ns as f64 / 1e9,
        or_unknown(&note.kernel),
        or_unknown(&note.cpu_model),
        or_unknown(&note.governor),
    )
}

/// What a histogram cannot tell.
fn limits(notes: &mut Notes) {
    notes.doubt(
        "a histogram has no order of stays, so no governor can be replayed on it, and nothing is known of what \
         could have been predicted: `idlewise record` without --histogram",
    );
    notes.doubt(
        "a stay that the tick ended counts as ended by a timer, and ends there, though the CPU may have been idle \
         for longer",
    );
}

/// Prints what limits on the depth of idle states would have meant. `machine` takes the place of the recorded one.
pub fn advise(
    path: &Path,
    histogram: &IdleHistogram,
    machine: Option<&Machine>,
    form: Form,
) -> Result<ExitCode> {
    let fail = |what: String| Failure::new(format_args!("{}: {what}", screen::name(path)));
    let recorded = histogram.note.tables.first().map(|table| &table.machine);
    let Some(machine) = machine.or(recorded) else {
        return Err(fail(
            "the machine had no cpuidle driver, so there is nothing to advise; `idlewise info` shows the stays"
                .to_owned(),
        ));
    };
    let lines = limit_lines(histogram, machine).map_err(|error| fail(error.to_string()))?;
    let mut notes = Notes::default();
    notes.basis(Basis::Measured, "stays");
    notes.powers(machine.power_basis(), &machine.id, "");
    notes.basis(
        Basis::Assumed,
        "that stays keep their length in another state, and that each exit takes the table's latency",
    );
    if histogram.note.tables.len() > 1 {
        notes.doubt(
            "its CPUs have different states, and all were judged by those of the first kind",
        );
    }
    limits(&mut notes);
    let findings: Vec<String> = findings(&lines);
    let mut out = screen::stdout();
    match form {
        Form::Json => {
            let findings = findings
                .iter()
                .map(|text| json!({ "log": Value::Null, "machine": machine.id, "text": text }));
            let document = json!({
                "kind": "idle histogram",
                "machine": machine.id,
                "limits": limit_table("", &lines),
                "findings": findings.collect::<Vec<_>>(),
                "bases": notes.bases_json(),
                "doubts": notes.counted_doubts(),
            });
            out.json(SCHEMA, &document)?;
        }
        Form::Csv => write!(out, "{}", limit_table("", &lines).to_csv())?,
        Form::Text => {
            let style = TextStyle::for_stdout();
            writeln!(out, "{}\n", wrap(&header(path, histogram), style.width, 2))?;
            write!(
                out,
                "{}",
                limit_table("If no deeper state were allowed:", &lines).to_text(&style)
            )?;
            writeln!(out)?;
            for finding in &findings {
                writeln!(out, "{}", wrap(finding, style.width, 0))?;
            }
            write!(out, "{}", notes.to_text(style.width))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What each limit would have saved and cost, and how to try it.
fn findings(lines: &[idlewise_report::histogram::LimitLine]) -> Vec<String> {
    let Some(recorded) = lines.iter().rfind(|line| line.name() == "as recorded") else {
        return Vec::new();
    };
    /// A share of time below this is not worth a setting.
    const WORTH_RATIO: f64 = 0.001;
    if recorded.waiting_ratio() < WORTH_RATIO {
        return vec![format!(
            "Leave it alone: CPUs waited for exits in {:.3} % of the time, so no limit can gain more than that.",
            100.0 * recorded.waiting_ratio()
        )];
    }
    let limited = lines.iter().filter_map(|line| Some((line, line.latency_ns?)));
    let mut found: Vec<String> = limited
        .map(|(line, latency_ns)| {
            format!(
                "{} at most: CPUs wait in {:.3} % of the time instead of {:.3} %, and each takes {:+.0} mW.",
                line.name(),
                100.0 * line.waiting_ratio(),
                100.0 * recorded.waiting_ratio(),
                line.power_mw() - recorded.power_mw(),
            ) + &match latency_ns.div_ceil(1_000) {
                // A limit of 0 allows polling only, and on some kernels means no limit.
                0 => String::new(),
                us => format!(" To try it: idlewise try --set latency={us}us -- YOUR-BENCHMARK"),
            }
        })
        .collect();
    found
        .push("Which of them pays depends on what a second of waiting is worth to you.".to_owned());
    found
}
