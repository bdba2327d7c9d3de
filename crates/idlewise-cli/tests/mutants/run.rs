//! Runs every command on a mutant, each in a process whose time and memory are measured.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::seeds::Kind;

/// The limits of a run. Time is CPU time, so that a busy machine does not matter.
const CPU_MS_MAX: u64 = 5_000;
const MEMORY_KB_MAX: u64 = 200 << 10;
/// After this much CPU time a run counts as endless.
const ENDLESS_S: u64 = 120;

pub struct Runner {
    pub binary: PathBuf,
    /// Whether the limits apply. An unoptimised binary is slower.
    pub has_limits: bool,
}

#[derive(Default)]
pub struct Outcome {
    pub problems: Vec<String>,
    pub cpu_ms: u64,
    pub memory_kb: u64,
    pub run_count: u64,
    pub is_imported: bool,
    pub has_written: bool,
    pub has_simulated: bool,
}

/// The maxima of all runs.
#[derive(Default)]
pub struct Worst {
    run_count: u64,
    imported_count: u64,
    written_count: u64,
    simulated_count: u64,
    cpu_ms: (u64, String),
    memory_kb: (u64, String),
}

impl Worst {
    pub fn add(&mut self, outcome: &Outcome, number: u64, seed: &str) {
        let name = || format!("{number} of {seed}");
        self.run_count += outcome.run_count;
        self.imported_count += u64::from(outcome.is_imported);
        self.written_count += u64::from(outcome.has_written);
        self.simulated_count += u64::from(outcome.has_simulated);
        if outcome.cpu_ms > self.cpu_ms.0 {
            self.cpu_ms = (outcome.cpu_ms, name());
        }
        if outcome.memory_kb > self.memory_kb.0 {
            self.memory_kb = (outcome.memory_kb, name());
        }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} runs; {} imports, {} replays and {} simulations wrote a log; at most {} ms of CPU \
             time ({}) and {} kB ({})",
            self.run_count,
            self.imported_count,
            self.written_count,
            self.simulated_count,
            self.cpu_ms.0,
            self.cpu_ms.1,
            self.memory_kb.0,
            self.memory_kb.1
        )
    }
}

impl Runner {
    /// Runs every command that takes a mutant of this kind.
    pub fn run(&self, bytes: &[u8], kind: Kind, scratch: &Path) -> Outcome {
        let mut outcome = Outcome::default();
        for entry in fs::read_dir(scratch).expect("the folder is there") {
            let path = entry.expect("it can be listed").path();
            // Files that a run leaves behind besides its output.
            if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".partial")) {
                outcome.problems.push(format!("{} was left behind", path.display()));
            }
            fs::remove_file(path).expect("it can be removed");
        }
        let given = match kind {
            Kind::Recording => "mutant",
            Kind::Log => "log.parquet",
            Kind::Machine | Kind::Workload => "mutant.toml",
        };
        fs::write(scratch.join(given), bytes).expect("the folder can be written to");
        let mut runs = Runs { runner: self, scratch, outcome: &mut outcome };
        match kind {
            Kind::Recording => {
                if runs.run("log import mutant -o log.parquet") == Some(0) {
                    runs.outcome.is_imported = true;
                    runs.check("import", "log.parquet");
                    runs.log();
                }
            }
            Kind::Log => runs.log(),
            Kind::Machine => {
                let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/a-idle.parquet");
                fs::copy(log, scratch.join("whole.parquet")).expect("it is there");
                runs.run("machines mutant.toml --json");
                runs.run("replay whole.parquet --machine mutant.toml --governor menu --json");
                runs.run("lab simulate mutant.toml third-cpu --duration-ms 20 --json");
                runs.simulate("mutant.toml poisson --duration-ms 20");
            }
            Kind::Workload => {
                runs.run("lab simulate milan mutant.toml --duration-ms 20 --json");
                runs.simulate("spr mutant.toml --duration-ms 20");
            }
        }
        outcome
    }

    /// Runs a command. Its status is `None` if it was killed.
    #[expect(clippy::zombie_processes, reason = "`wait` waits, and learns what the child used")]
    fn run_once(&self, arguments: &[&OsStr], scratch: &Path, outcome: &mut Outcome) -> Option<i32> {
        let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(scratch).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null());
        command.stdout(File::create(&out).expect("the folder can be written to"));
        command.stderr(File::create(&err).expect("the folder can be written to"));
        // SAFETY: between fork and exec only setrlimit is called, which is allowed there.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: ENDLESS_S, rlim_max: ENDLESS_S + 5 };
                libc::setrlimit(libc::RLIMIT_CPU, &raw const limit);
                Ok(())
            });
        }
        let child = command.spawn().expect("it starts");
        let (status, usage) = wait(child.id());
        let milliseconds =
            |time: libc::timeval| time.tv_sec as u64 * 1_000 + time.tv_usec as u64 / 1_000;
        let cpu_ms = milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime);
        // In kB on Linux.
        let memory_kb = usage.ru_maxrss as u64;
        outcome.run_count += 1;
        outcome.cpu_ms = outcome.cpu_ms.max(cpu_ms);
        outcome.memory_kb = outcome.memory_kb.max(memory_kb);

        let line =
            arguments.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let said = fs::read(&err).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let mut problem = |what: String| outcome.problems.push(format!("{line}: {what}"));
        match status.code() {
            Some(0..=2) if !said.contains("panicked") => {}
            code => problem(format!("status {code:?}, signal {:?}: {said}", status.signal())),
        }
        if status.code() == Some(0) && arguments.contains(&OsStr::new("--json")) {
            let text = fs::read(&out).unwrap_or_default();
            if let Err(error) = serde_json::from_slice::<serde_json::Value>(&text) {
                problem(format!("no JSON: {error}"));
            }
        }
        if self.has_limits && cpu_ms > CPU_MS_MAX {
            problem(format!("took {cpu_ms} ms of CPU time"));
        }
        if self.has_limits && memory_kb > MEMORY_KB_MAX {
            problem(format!("took {memory_kb} kB"));
        }
        status.code()
    }
}

/// The runs of one mutant.
struct Runs<'a> {
    runner: &'a Runner,
    scratch: &'a Path,
    outcome: &'a mut Outcome,
}

impl Runs<'_> {
    /// Runs a command line.
    fn run(&mut self, line: &str) -> Option<i32> {
        let words: Vec<&OsStr> = line.split(' ').map(OsStr::new).collect();
        self.runner.run_once(&words, self.scratch, self.outcome)
    }

    /// Validates a log that a command wrote.
    fn check(&mut self, command: &str, log: &str) {
        let status = self.run(&format!("log validate {log}"));
        if status != Some(0) {
            let problem = format!("{command} wrote what validate refuses: {status:?}");
            self.outcome.problems.push(problem);
        }
    }

    fn simulate(&mut self, arguments: &str) {
        let line = format!("lab simulate {arguments} --governor teo --trace simulated.parquet");
        if self.run(&line) == Some(0) {
            self.outcome.has_simulated = true;
            self.check("simulate", "simulated.parquet");
        }
    }

    /// Runs everything that takes a log.
    fn log(&mut self) {
        for line in [
            "log validate log.parquet --json",
            "info log.parquet --json",
            "replay log.parquet --machine spr --governor menu --governor oracle --json",
            "replay log.parquet --machine skl-client --governor teo",
            "replay --compare log.parquet --machine spr --governor menu --governor teo --json",
            "log export log.parquet --governor menu --format csv -o rows",
            "log export log.parquet --machine spr --format perfetto -o t",
        ] {
            self.run(line);
        }
        let line =
            "replay log.parquet --machine skl-client --governor teo --write-log written.parquet";
        if self.run(line) == Some(0) {
            self.outcome.has_written = true;
            self.check("replay", "written.parquet");
        }
        if self.run("log anonymize log.parquet -o anonymous.parquet --json") == Some(0) {
            self.check("anonymize", "anonymous.parquet");
        }
        self.simulate("milan log.parquet --duration-ms 20");
    }
}

/// Waits for a child, and returns what it used.
fn wait(id: u32) -> (ExitStatus, libc::rusage) {
    let mut status = 0;
    // SAFETY: both are plain structures that the kernel fills in, and the child is ours.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        while libc::wait4(id as libc::pid_t, &raw mut status, 0, &raw mut usage) < 0 {}
        (ExitStatus::from_raw(status), usage)
    }
}
