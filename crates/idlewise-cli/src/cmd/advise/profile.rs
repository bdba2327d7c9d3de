//! `idlewise advise --check-profile`: whether a profile does what it intends on this machine.

use std::io::Write;
use std::process::ExitCode;

use idlewise_host::Root;
use idlewise_host::profile::{CheckedSetting, Profile, Verdict, check_profile};
use idlewise_report::{TextStyle, shown_in_line, wrap};
use serde_json::json;

use crate::error::{Failure, Result};
use crate::screen;

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// Checks the profile and prints what each of its settings does.
pub(super) fn check(root: &Root, what: &str, is_json: bool) -> Result<ExitCode> {
    let profile = Profile::read(root, what).map_err(Failure::new)?;
    let checked = check_profile(root, &profile);
    let is_good = checked.iter().all(CheckedSetting::is_good);
    let mut out = screen::stdout();
    if is_json {
        let document = json!({
            "profile": profile.name,
            "form": profile.form,
            "all_good": is_good,
            "settings": checked,
            "notes": profile.notes,
        });
        out.json(SCHEMA, &document)?;
    } else {
        let width = TextStyle::for_stdout().width;
        out.write_all(text(&profile, &checked, width).as_bytes())?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(profile: &Profile, checked: &[CheckedSetting], width: usize) -> String {
    let head = match checked.len() {
        0 => "has no idle-state setting".to_owned(),
        1 => "has one idle-state setting".to_owned(),
        count => format!("has {count} idle-state settings"),
    };
    let mut lines = vec![format!("{}, a {}, {head}.", profile.name, profile.form)];
    for one in checked {
        let verdict = match one.verdict {
            Verdict::Nothing => format!("does nothing here, because {}", one.because),
            verdict => format!("{}: {}", verdict.as_str(), one.because),
        };
        let in_force = match one.in_force {
            Some(true) => "in force",
            Some(false) => "not in force now",
            None => "perhaps in force",
        };
        lines.push(String::new());
        lines.push(format!("{}, in {}", one.setting, one.source));
        lines.push(format!("  intends: {}", one.intends));
        lines.push(format!("  {verdict}"));
        lines.push(format!("  {in_force}: {}", one.in_force_because));
    }
    if !profile.notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(profile.notes.iter().map(|note| format!("{note}.")));
    let shown = |line: &String| match line.strip_prefix("  ") {
        Some(rest) => {
            format!("  {}\n", wrap(&shown_in_line(rest), width - 2, 2).replace('\n', "\n  "))
        }
        None => format!("{}\n", wrap(&shown_in_line(line), width, 2)),
    };
    lines.iter().map(shown).collect()
}
