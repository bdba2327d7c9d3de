//! `idlewise set quiet`: keeps CPUs out of deep idle states while a command runs.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use idlewise_host::Root;
use idlewise_host::noise::{Noise, NoiseBetween, allowed_cpus};
use idlewise_host::settings::{
    CpuSet, Owner, Setting, SettingsError, apply, other_writers, parse_limit, planned,
};
use idlewise_report::shown_in_line;
use rustix::process::{Pid, Signal, kill_process};

use super::revert::say_left;
use super::{holder, warn_of_others};
use crate::cmd::record::exit_code;
use crate::error::{Failure, Result};
use crate::screen::say;
use crate::signals::{Caught, Forwarding};
use crate::sysroot::root;

/// Exit statuses as a shell has them.
const STATUS_NOT_EXECUTABLE: u8 = 126;
const STATUS_NOT_FOUND: u8 = 127;

const EXAMPLES: &str = "\
Examples:
  # CPUs 4-7 wake up within 10 us while the benchmark runs on them
  sudo idlewise set quiet --cpus 4-7 -- taskset -c 4-7 ./benchmark

  # No idle state but polling, which costs most and disturbs least
  sudo idlewise set quiet --latency 0us --cpus 2 -- ./measure

  # COMMAND as yourself
  sudo idlewise set quiet -- runuser -u \"$USER\" -- ./benchmark

The limit is a latency limit of each CPU (PM QoS): states with a longer exit latency are not \
entered. Other limits stay in force, and the smallest counts. Without --cpus it applies to the \
CPUs that COMMAND may run on (affinity, cpuset). When COMMAND ends, or idlewise is killed, the old \
limits are restored. Lines on standard error say how often these CPUs woke from idle and how busy \
they were before, during and after the run.

Exit status: COMMAND's; 128 and the signal's number if one ended it; 127 if there is no such \
command, 126 if it cannot be executed; 2 if the limit could not be set, and COMMAND was not \
started. Signals are passed on.";

/// Limit the exit latency of CPUs while a command runs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Quiet {
    /// The longest exit latency allowed, such as 10us; 0us allows polling only
    #[arg(long, value_name = "TIME", default_value = "10us", value_parser = limit)]
    latency: Duration,

    /// The CPUs [default: those that the command may run on]
    #[arg(long, value_name = "CPUS", value_parser = |text: &str| text.parse::<CpuSet>())]
    cpus: Option<CpuSet>,

    /// Observe the CPUs this long before and after, in seconds; 0 to not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = look)]
    look: f64,

    /// The folder that the machine's files are under
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,

    /// Run this command
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn limit(text: &str) -> Result<Duration, String> {
    parse_limit(text)?.ok_or_else(|| "without a limit there is nothing to do".to_owned())
}

fn look(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds from 0 to 60".to_owned()),
    }
}

impl Quiet {
    /// Runs the command under the limit, and returns its status.
    pub fn run(self) -> Result<ExitCode> {
        let root = root(self.sysroot.as_deref())?;
        let mut signals = Forwarding::catch()?;
        let cpus = self.cpus.clone().unwrap_or_else(|| allowed_cpus(&root));
        let limit = Some(self.latency);
        let setting = Setting::LatencyLimit { cpus: Some(cpus.clone()), limit };
        let settings = std::slice::from_ref(&setting);
        let not_started =
            |error: SettingsError| Failure::new(error).with("COMMAND was not started");
        // A mistake is to be known before the wait.
        planned(&root, settings).map_err(not_started)?;
        let before = self.observe(&root, &cpus, &mut signals);
        if let (_, Some(caught)) = before {
            return Ok(ExitCode::from(u8::try_from(128 + caught.signal).unwrap_or(1)));
        }
        let owner = Owner {
            reason: self.command.first().map(|word| word.to_string_lossy().into_owned()),
            holder: holder(),
            ..Owner::running("idlewise set quiet")
        };
        let applied = apply(&root, settings, &owner).map_err(not_started)?;
        warn_of_others(&other_writers(&root));
        let start = Noise::read(&root, &cpus);
        let ended = self.run_command(&mut signals);
        let meanwhile = Noise::read(&root, &cpus).since(&start);
        let reverted = applied.revert();
        let name = self.command[0].to_string_lossy().into_owned();
        let status = match &ended {
            Ok(status) => exit_code(*status),
            Err(error) => {
                say(format_args!("idlewise: cannot start {}: {error}", shown_in_line(&name)));
                ExitCode::from(match error.kind() {
                    ErrorKind::NotFound => STATUS_NOT_FOUND,
                    _ => STATUS_NOT_EXECUTABLE,
                })
            }
        };
        if ended.is_ok() {
            let (after, _) = self.observe(&root, &cpus, &mut signals);
            say(format_args!("idlewise: {setting} while {} ran", shown_in_line(&name)));
            for (when, noise) in
                [("before", before.0), ("meanwhile", Some(meanwhile)), ("after", after)]
            {
                noise.iter().for_each(|noise| say(line(when, noise)));
            }
        }
        match reverted {
            Ok(reverted) => say_left(&reverted),
            // The status is COMMAND's all the same.
            Err(error) => say(format_args!("idlewise: {error}; as root: idlewise set revert")),
        }
        Ok(status)
    }

    /// Runs the command and passes signals on to it.
    fn run_command(&self, signals: &mut Forwarding) -> io::Result<ExitStatus> {
        let mut child = Command::new(&self.command[0]).args(&self.command[1..]).spawn()?;
        let process = Pid::from_child(&child);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let caught = signals.wait(None).into_iter().filter(|caught| caught.is_ours_alone);
            for signal in caught.filter_map(|caught| Signal::from_named_raw(caught.signal)) {
                // It may have ended.
                let _ = kill_process(process, signal);
            }
        }
    }

    /// Counts what the CPUs do, until a signal comes.
    fn observe(
        &self,
        root: &Root,
        cpus: &CpuSet,
        signals: &mut Forwarding,
    ) -> (Option<NoiseBetween>, Option<Caught>) {
        if self.look == 0.0 {
            return (None, None);
        }
        let (start, time) = (Noise::read(root, cpus), Duration::from_secs_f64(self.look));
        let begin = Instant::now();
        while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
            if let Some(caught) = signals.wait(Some(left)).first() {
                return (None, Some(*caught));
            }
        }
        (Some(Noise::read(root, cpus).since(&start)), None)
    }
}

fn line(when: &str, noise: &NoiseBetween) -> String {
    let seconds = noise.elapsed.as_secs_f64().max(1e-9);
    let rate = noise.wake_count as f64 / seconds;
    let busy = noise
        .busy_ratio
        .map_or("too short to say how".to_owned(), |busy| format!("{:.1} %", 100.0 * busy));
    format!("  {when:<10} {rate:9.1} wake-ups/s, {busy} busy, over {seconds:.1} s")
}
