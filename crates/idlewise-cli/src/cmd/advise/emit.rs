//! The recommended change in a form that another program takes.

use std::fmt::Write as _;

use idlewise_host::settings::{CpuSet, Setting};

use super::candidates::Change;

/// Where Debian packages and `make install PREFIX=/usr` put the command.
const PROGRAM: &str = "/usr/bin/idlewise";

/// A profile of tuned replaces the active one.
const KEEP: &str = "# To keep the active profile's settings: include=ITS-NAME\n";

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Shell commands
    Commands,
    /// A tuned.conf. Once activated, it replaces your profile unless you add include=
    Tuned,
    /// A systemd unit that applies the setting at boot and restores the old values when stopped
    Systemd,
    /// A file for `idlewise set apply`, one setting per line
    Dropin,
}

/// Returns the text. `sentence` says why; without a change the text is only comments.
pub(super) fn text(format: Format, change: &Change, log: &str, sentence: &str) -> String {
    let mut text = String::new();
    for line in [format!("idlewise advise on {log}"), sentence.to_owned()] {
        // A file's name may have line breaks.
        let line = line.replace(|symbol: char| symbol.is_control(), "?");
        let _ = writeln!(text, "# {line}");
    }
    match (change, format) {
        (Change::Nothing, _) => {}
        (Change::Boot(parameter), Format::Tuned) => {
            let _ = write!(
                text,
                "[main]\nsummary=Idle states, by idlewise advise\n{KEEP}\n[bootloader]\n\
                 cmdline_idlewise=+{parameter}\n"
            );
        }
        (Change::Boot(parameter), _) => {
            let _ = writeln!(
                text,
                "# Nothing can be set while the machine runs: add {parameter} to the kernel's command \
                 line and reboot."
            );
        }
        (Change::Setting(setting, _), Format::Commands) => {
            let _ =
                write!(text, "idlewise set apply --set '{setting}'\n# Undo: idlewise set revert\n");
        }
        (Change::Setting(setting, _), Format::Dropin) => {
            let _ = writeln!(text, "{setting}");
        }
        (Change::Setting(setting, _), Format::Systemd) => {
            let _ = write!(
                text,
                "[Unit]\nDescription=Idle states, by idlewise advise\n\n\
                 [Service]\nType=notify\nKillMode=mixed\n\
                 ExecStart={PROGRAM} set apply --on-exit restore --set {setting}\n\
                 ExecStopPost=-{PROGRAM} set revert --ended\n\n\
                 [Install]\nWantedBy=multi-user.target\n"
            );
        }
        (Change::Setting(setting, state), Format::Tuned) => {
            let _ = write!(
                text,
                "[main]\nsummary=Idle states, by idlewise advise\n{KEEP}\n[sysfs]\n{}",
                sysfs(setting, *state)
            );
        }
    }
    text
}

/// The files of a setting with their values. tuned restores them when the profile is left.
fn sysfs(setting: &Setting, state: Option<usize>) -> String {
    let folder = "/sys/devices/system/cpu";
    let each = |cpus: Option<&CpuSet>, file: &str, value: &str| match cpus {
        None => format!("{folder}/cpu*/{file}={value}\n"),
        Some(cpus) => {
            cpus.iter().map(|cpu| format!("{folder}/cpu{cpu}/{file}={value}\n")).collect()
        }
    };
    match setting {
        Setting::Governor(name) => format!("{folder}/cpuidle/current_governor={name}\n"),
        Setting::StateDisable { cpus, disabled, .. } => {
            let state = state.unwrap_or_default();
            let value = if *disabled { "1" } else { "0" };
            each(cpus.as_ref(), &format!("cpuidle/state{state}/disable"), value)
        }
        Setting::LatencyLimit { cpus, limit } => {
            // To the kernel, 0 is no limit, and n/a is one of 0.
            let value = match limit.map(|limit| limit.as_micros()) {
                None => "0".to_owned(),
                Some(0) => "n/a".to_owned(),
                Some(us) => us.to_string(),
            };
            each(cpus.as_ref(), "power/pm_qos_resume_latency_us", &value)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn change(text: &str, state: Option<usize>) -> Change {
        Change::Setting(text.parse().unwrap(), state)
    }

    #[test]
    fn tuned_gets_files_of_each_cpu() {
        let limit = text(Format::Tuned, &change("latency=2us@4-5", None), "log", "Why.");
        assert!(limit.ends_with(
            "[sysfs]\n/sys/devices/system/cpu/cpu4/power/pm_qos_resume_latency_us=2\n\
             /sys/devices/system/cpu/cpu5/power/pm_qos_resume_latency_us=2\n"
        ));
        let off = text(Format::Tuned, &change("C6=off", Some(3)), "log", "Why.");
        assert!(off.ends_with("/sys/devices/system/cpu/cpu*/cpuidle/state3/disable=1\n"));
        let boot = Change::Boot("intel_idle.max_cstate=2".to_owned());
        let boot = text(Format::Tuned, &boot, "log", "Why.");
        assert!(boot.ends_with("[bootloader]\ncmdline_idlewise=+intel_idle.max_cstate=2\n"));
    }

    #[test]
    fn a_drop_in_is_read_as_settings() {
        let text = text(Format::Dropin, &change("latency=10us@4-7", None), "a\nb", "Why.");
        assert_eq!(text, "# idlewise advise on a?b\n# Why.\nlatency=10us@4-7\n");
        let settings = text.lines().filter(|line| !line.starts_with('#'));
        let settings: Vec<Setting> = settings.map(|line| line.parse().unwrap()).collect();
        let limit = Some(Duration::from_micros(10));
        assert_eq!(settings, [Setting::LatencyLimit { cpus: Some("4-7".parse().unwrap()), limit }]);
    }

    #[test]
    fn without_a_change_there_is_nothing_to_run() {
        for format in [Format::Commands, Format::Tuned, Format::Systemd, Format::Dropin] {
            let text = text(format, &Change::Nothing, "log", "Leave it alone.");
            assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        }
    }
}
