//! What idlewise can do on a machine, one row for each capability. Each row asks the code of the commands that it names,
//! as far as that can be asked without changing anything.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use idlewise_host::counters::{CounterPlan, CounterSpec};
use idlewise_host::energy::EnergyMeter;
use idlewise_host::ipi::{IpiError, StateWish, module_absence};
use idlewise_host::settings::{Setting, SettingsError, obstacle};
use idlewise_host::states::{
    EnergyPlan, EnergyWishes, StatesError, StatesPlan, StatesWishes, WakeBy,
};
use idlewise_host::surroundings::{
    Capability, ModuleState, lockdown, module_state, unit_is_enabled, wants_signed_modules,
};
use idlewise_host::{Counts, CountsReader, RecordError, boot_machine, check_recording};
use idlewise_plugin::Compiler;
use idlewise_probe::{PerfCounter, PerfEvent};
use idlewise_report::counted;
use idlewise_trace::{MachineNote, cause_events, wanted_events};

use super::cause::{Asker, BUILD_MODULES, Cause, Explained};

/// Whether something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It works.
    Yes,
    /// Part of it works.
    Partly,
    /// This user may not, and root may. What else is missing only root can see.
    AsRoot,
    /// It does not work.
    No,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::Partly => "partly",
            Verdict::AsRoot => "as root",
            Verdict::No => "no",
        }
    }
}

/// A capability.
pub struct Row {
    /// Its name for programs.
    pub id: &'static str,
    /// What the user wants to do.
    pub group: &'static str,
    /// The commands.
    pub what: &'static str,
    pub verdict: Verdict,
    /// What was found.
    pub why: String,
    /// What mends it.
    pub mend: Option<String>,
    /// The command's own message.
    pub message: Option<String>,
}

/// What a row's check found: what works, or why it does not.
enum Found {
    Yes(String),
    Partly(Cause),
    No(Cause),
}

use Found::{No, Partly, Yes};

impl From<Cause> for Found {
    fn from(cause: Cause) -> Self {
        No(cause)
    }
}

/// What must be found before a check can go on.
type Checked<T = Found> = Result<T, Cause>;

/// The machine, and who asks.
pub struct Checks<'a> {
    pub asker: Asker<'a>,
    pub note: &'a MachineNote,
    pub online: &'a [u16],
    /// Whether it is the machine that runs this process.
    pub is_live: bool,
}

const SEE: &str = "See what idle states cost";
const RECORD: &str = "Record, for replay and advice";
const SET: &str = "Change settings";
const MEASURE: &str = "Measure";
const BUILD: &str = "Kernels and governors";

/// The module that measures IPIs and timers.
const BENCH: &str = "idlewise_bench";

impl Checks<'_> {
    /// Makes all rows.
    pub fn rows(&self) -> Vec<Row> {
        // Files are named as on the machine, not as in its copy.
        let copy = format!("{}/", self.asker.root.path("").display()).replace("//", "/");
        let row = |id, group, what, command: &str, found: Checked| {
            let (verdict, why, mend, message) = match found.unwrap_or_else(Found::from) {
                Yes(what) => (Verdict::Yes, what, None, None),
                Partly(cause) => (Verdict::Partly, cause.why, Some(cause.mend), cause.message),
                No(cause) => self.refused(command, cause),
            };
            // Part of it is what files of the machine say, which may be anything.
            let shown = |text: String| match self.is_live {
                true => short(&text),
                false => short(&text.replace(&copy, "/")),
            };
            let (why, mend) = (shown(why), mend.map(shown));
            Row { id, group, what, verdict, why, mend, message }
        };
        vec![
            row("counts", SEE, "why, watch", "idlewise why", self.counts()),
            row(
                "record",
                RECORD,
                "record, advise, measure wakes",
                "idlewise record",
                self.record(),
            ),
            row("causes", RECORD, "record --causes", "idlewise record --causes", self.causes()),
            row(
                "histogram",
                RECORD,
                "record --histogram",
                "idlewise record --histogram",
                self.histogram(),
            ),
            row("perf", RECORD, "perf record, to import", "perf record -a", self.perf_record()),
            row(
                "states",
                SET,
                "set, try: C6=off",
                "idlewise set apply --set C6=off",
                self.set_states(),
            ),
            row(
                "latency",
                SET,
                "set, try: latency=10us@0",
                "idlewise set quiet -- COMMAND",
                self.set_latency(),
            ),
            row(
                "machine_latency",
                SET,
                "set, try: latency=10us",
                "idlewise set apply --set latency=10us",
                self.set_machine_latency(),
            ),
            row(
                "governor",
                SET,
                "set, try: governor=teo",
                "idlewise set apply --set governor=teo",
                self.set_governor(),
            ),
            row(
                "boot_settings",
                SET,
                "set at every boot",
                "idlewise set apply",
                self.set_at_boot(),
            ),
            row(
                "exit_latency",
                MEASURE,
                "measure states",
                "idlewise measure states",
                self.measure_states(),
            ),
            row(
                "energy",
                MEASURE,
                "measure power, residency",
                "idlewise measure power",
                self.measure_energy(),
            ),
            row(
                "wake_latency",
                MEASURE,
                "measure ipi, timer",
                "idlewise measure ipi",
                self.measure_ipi(),
            ),
            row(
                "counters",
                MEASURE,
                "measure counters",
                "idlewise measure counters",
                self.measure_counters(),
            ),
            row("modules", BUILD, "kernel modules", "modprobe idlewise_idle", self.modules()),
            row(
                "c_governors",
                BUILD,
                "replay: governors in C",
                "idlewise replay",
                c_governors(&Compiler::system()),
            ),
            row("boot", BUILD, "lab boot", "idlewise lab boot", self.lab_boot()),
        ]
    }

    /// What to say if something does not work.
    fn refused(
        &self,
        command: &str,
        cause: Cause,
    ) -> (Verdict, String, Option<String>, Option<String>) {
        let Cause { why, mend, is_denied, message } = cause;
        match (is_denied, self.asker.is_root) {
            (false, _) => (Verdict::No, why, Some(mend), message),
            (true, false) => {
                (Verdict::AsRoot, "needs root".to_owned(), Some(format!("sudo {command}")), message)
            }
            (true, true) => (
                Verdict::No,
                "even root is refused: a container or a security policy".to_owned(),
                Some("run it on the host, or in a privileged container".to_owned()),
                message,
            ),
        }
    }

    fn counts(&self) -> Checked {
        let root = self.asker.root;
        let cpus = root.present_cpus();
        let mut reader = CountsReader::open(root, &cpus).map_err(|e| e.cause(&self.asker))?;
        let mut counts = Counts::default();
        reader.read(&mut counts);
        let unreadable = (0..cpus.len()).find_map(|at| reader.unreadable(at));
        if let Some(file) = unreadable {
            return Ok(Partly(Cause::new(
                format!("{} cannot be read, so its CPU is left out", file.display()),
                "see who hides it: a container or a security policy",
            )));
        }
        let mut states = counts.cpus.iter().flat_map(|cpu| &cpu.states);
        if states.any(|state| state.above.is_none() || state.below.is_none()) {
            return Ok(Partly(Cause::new(
                "the kernel does not count stays that were too deep or too shallow",
                "use Linux 5.0 or later",
            )));
        }
        let shown = counts.cpus.iter().filter(|cpu| !cpu.states.is_empty()).count();
        Ok(Yes(format!("counts of {}", counted(shown, "CPU"))))
    }

    fn recording(&self, error: RecordError) -> Cause {
        error.cause(&self.asker)
    }

    fn record(&self) -> Checked {
        let lacking = check_recording(self.asker.root, wanted_events());
        let lacking = lacking.map_err(|error| self.recording(error))?;
        Ok(match lacking.as_slice() {
            [] => Yes("tracefs and all events that idle periods follow from".to_owned()),
            [one] => Partly(without(one, "")),
            [one, others @ ..] => Partly(without(one, &format!(" and {} more", others.len()))),
        })
    }

    fn causes(&self) -> Checked {
        const NEEDED: [&str; 3] =
            ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];
        let lacking = check_recording(self.asker.root, cause_events());
        let lacking = lacking.map_err(|error| self.recording(error))?;
        Ok(match lacking.iter().find(|event| NEEDED.contains(&event.as_str())) {
            Some(event) => No(without(event, "")),
            None => Yes("also the events that make tasks run".to_owned()),
        })
    }

    /// Programs are loaded only to count, so this asks what loading needs.
    fn histogram(&self) -> Checked {
        let (root, rights) = (self.asker.root, self.asker.rights);
        if root.text("proc/sys/kernel/unprivileged_bpf_disabled").is_none() {
            return Err(Cause::new(
                "the kernel has no BPF",
                "use a kernel with CONFIG_BPF_SYSCALL, or record without --histogram",
            ));
        }
        if lockdown(root).as_deref() == Some("confidentiality") {
            return Err(Cause::new(
                "the kernel is locked down (confidentiality)",
                "boot without Secure Boot and lockdown=",
            ));
        }
        match rights.has(Capability::Bpf) && rights.has(Capability::Perfmon) {
            true => Ok(Yes("BPF (not tried)".to_owned())),
            false => Err(denied()),
        }
    }

    fn perf_record(&self) -> Checked {
        let level = self.asker.root.text("proc/sys/kernel/perf_event_paranoid");
        let Some(level) = level else {
            return Err(Cause::new(
                "the kernel has no perf events",
                "use a kernel with CONFIG_PERF_EVENTS",
            ));
        };
        // The kernel lets everybody record tracepoints of all CPUs only below 0.
        let is_open = level.parse::<i32>().is_ok_and(|level| level < 0);
        match is_open || self.asker.rights.has(Capability::Perfmon) {
            true => Ok(Yes(format!(
                "perf_event_paranoid is {level}; `log import --help` has the events"
            ))),
            false => Err(denied()),
        }
    }

    fn setting(&self, settings: &[Setting], works: &str) -> Checked {
        match obstacle(self.asker.root, settings) {
            // Somebody else's present wish says nothing about what can be done.
            None | Some(SettingsError::Contradiction { .. } | SettingsError::Busy) => {
                Ok(Yes(works.to_owned()))
            }
            Some(error) => Err(error.cause(&self.asker)),
        }
    }

    fn set_states(&self) -> Checked {
        let mut names: Vec<&str> = Vec::new();
        for state in self.note.tables.iter().flat_map(|table| &table.machine.states) {
            if !names.contains(&state.name.as_str()) {
                names.push(&state.name);
            }
        }
        let setting = |name: &&str| Setting::StateDisable {
            cpus: None,
            state: (*name).to_owned(),
            disabled: false,
        };
        let settings: Vec<Setting> = names.iter().map(setting).collect();
        self.setting(&settings, &names.join(" "))
    }

    fn set_latency(&self) -> Checked {
        let cpus = Some(self.online.iter().copied().collect());
        let settings = [Setting::LatencyLimit { cpus, limit: Some(Duration::ZERO) }];
        self.setting(&settings, "and set quiet: a limit for each CPU")
    }

    fn set_machine_latency(&self) -> Checked {
        let limit = Some(Duration::from_micros(10));
        let settings = [Setting::LatencyLimit { cpus: None, limit }];
        self.setting(&settings, "by /dev/cpu_dma_latency")
    }

    fn set_governor(&self) -> Checked {
        let file = "sys/devices/system/cpu/cpuidle/available_governors";
        let known = self.asker.root.text(file).unwrap_or_default();
        let current = self.note.governor.clone().unwrap_or_else(|| "menu".to_owned());
        let works = if known.is_empty() { current.clone() } else { known.clone() };
        let found = self.setting(&[Setting::Governor(current)], &works)?;
        Ok(match known.split_whitespace().collect::<Vec<_>>()[..] {
            [only] => Partly(Cause::new(
                format!("the kernel has no governor but {only}"),
                "use a kernel with others, or load idlewise_governor (kernel/README.md)",
            )),
            _ => found,
        })
    }

    fn set_at_boot(&self) -> Checked {
        const UNIT: &str = "idlewise-settings.service";
        const SETTINGS: &str = "etc/idlewise/settings.conf";
        let root = self.asker.root;
        let has = |name: &str| root.has(name);
        if !has("run/systemd/system") {
            return Err(Cause::new(
                "systemd does not run here",
                "let your init system run `idlewise set apply FILE`",
            ));
        }
        let folders = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
        if !folders.iter().any(|folder| has(&format!("{folder}/{UNIT}"))) {
            return Err(Cause::new(
                format!("{UNIT} is not installed"),
                "make deb and install the package, or use `idlewise advise --emit systemd`",
            ));
        }
        if !has(SETTINGS) {
            return Ok(Partly(Cause::new(
                format!("there is no /{SETTINGS}"),
                "write a setting on each line of it, such as C6=off",
            )));
        }
        match unit_is_enabled(root, UNIT) {
            true => Ok(Yes(format!("{UNIT} is enabled"))),
            false => Ok(Partly(Cause::new(
                format!("{UNIT} is not enabled"),
                format!("sudo systemctl enable --now {UNIT}"),
            ))),
        }
    }

    fn measure_states(&self) -> Checked {
        let wishes = StatesWishes {
            source: None,
            targets: Vec::new(),
            states: StateWish::All,
            wake_count: 1,
            by: None,
        };
        self.check_bench()?;
        let checked = StatesPlan::new(self.asker.root, &wishes)
            .and_then(|plan| plan.check_writable(self.asker.root).map(|()| plan));
        let plan = checked.map_err(|error| error.cause(&self.asker))?;
        Ok(Yes(match plan.by {
            WakeBy::Ipi => "wakes by idlewise_bench".to_owned(),
            WakeBy::Futex => "wakes by futex".to_owned(),
        }))
    }

    /// Fails for a captured machine with a pipe in place of the module's file: opening it would wait for its other end.
    fn check_bench(&self) -> Result<(), Cause> {
        let file = self.asker.root.path("sys/kernel/debug/idlewise_bench/run");
        match file.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
            true => Err(Cause::new("idlewise_bench/run is a pipe", "remove it from the copy")),
            false => Ok(()),
        }
    }

    fn measure_energy(&self) -> Checked {
        let root = self.asker.root;
        let wishes = EnergyWishes {
            states: StateWish::All,
            intervals_ns: vec![None],
            slice_ns: 1,
            round_count: 1,
        };
        let checked = EnergyPlan::new(root, &wishes).and_then(|plan| {
            let meter = EnergyMeter::open(root).map_err(StatesError::from)?;
            plan.check_writable(root).map(|()| meter)
        });
        let meter = checked.map_err(|error| error.cause(&self.asker))?;
        let names: Vec<&str> = meter.domains().iter().map(|one| one.name.as_str()).collect();
        Ok(Yes(names.join(" ")))
    }

    fn measure_ipi(&self) -> Checked {
        let root = self.asker.root;
        if let [cpu] = self.online {
            return Err(IpiError::OneCpu { cpu: *cpu }.cause(&self.asker));
        }
        self.check_bench()?;
        let Some(error) = module_absence(root) else { return Ok(Yes("idlewise_bench".to_owned())) };
        let is_denied = match &error {
            IpiError::Busy => return Ok(Yes("idlewise_bench, which is in use".to_owned())),
            error => error.cause(&self.asker).is_denied,
        };
        // A user who may not look into debugfs still sees whether the module is loaded.
        let state = module_state(root, BENCH);
        let mut cause = match (&error, state) {
            (_, ModuleState::Loaded) if is_denied => return Err(error.cause(&self.asker)),
            (_, ModuleState::Installed) if is_denied => IpiError::NotLoaded.cause(&self.asker),
            _ if is_denied => IpiError::NotInstalled { kernel: self.kernel() }.cause(&self.asker),
            _ => error.cause(&self.asker),
        };
        if let Some(obstacle) = self.no_module(state) {
            cause.mend = obstacle.mend;
            cause.why = format!("{BENCH}: {}", obstacle.why);
        }
        cause.why += "; from user space only";
        Ok(Partly(cause))
    }

    fn measure_counters(&self) -> Checked {
        let root = self.asker.root;
        let CounterPlan { specs, lacks } = CounterPlan::new(root);
        let only = "only the kernel's counts: interrupts, requested states";
        if specs.is_empty() {
            let reason = lacks.first().map(|lack| lack.reason.clone()).unwrap_or_default();
            return Ok(Partly(Cause::new(
                only,
                format!("`measure counters --list` says why: {reason}"),
            )));
        }
        let refusal = match self.is_live {
            // What one counter refuses for lack of rights, all do.
            true => specs.iter().find_map(|spec| opened(spec).err()),
            false => self.paranoid(),
        };
        match refusal {
            Some(ErrorKind::PermissionDenied) if self.asker.is_root => Ok(Partly(Cause::new(
                format!("even root may not use perf: {only}"),
                "run it on the host, or in a privileged container",
            ))),
            Some(ErrorKind::PermissionDenied) => Err(denied()),
            _ => Ok(Yes(counted(specs.len(), "counter"))),
        }
    }

    /// What perf would answer on a captured machine.
    fn paranoid(&self) -> Option<ErrorKind> {
        let level = self.asker.root.text("proc/sys/kernel/perf_event_paranoid");
        let is_open = level.and_then(|level| level.parse::<i32>().ok()).is_some_and(|it| it <= 0);
        let is_allowed = is_open || self.asker.rights.has(Capability::Perfmon);
        (!is_allowed).then_some(ErrorKind::PermissionDenied)
    }

    fn kernel(&self) -> String {
        self.note.kernel.clone().unwrap_or_default()
    }

    /// Why this kernel can have no module of ours that is in this state.
    fn no_module(&self, state: ModuleState) -> Option<Cause> {
        let kernel = self.kernel();
        let is_x86 = self.note.arch.as_deref().is_none_or(|arch| arch == "x86_64");
        match state {
            ModuleState::Loaded => None,
            _ if !is_x86 => {
                Some(Cause::new("the modules are for x86-64 only", "use an x86-64 machine"))
            }
            ModuleState::NoModules => {
                Some(Cause::new("the kernel loads no modules", "use a kernel with CONFIG_MODULES"))
            }
            ModuleState::Disabled => {
                Some(Cause::new("kernel.modules_disabled is set", "reboot without that setting"))
            }
            ModuleState::NoHeaders => Some(Cause::new(
                format!("there are no headers for Linux {kernel}"),
                format!("sudo apt install linux-headers-{kernel}"),
            )),
            ModuleState::Buildable | ModuleState::Installed => None,
        }
    }

    fn modules(&self) -> Checked {
        const MODULE: &str = "idlewise_idle";
        let root = self.asker.root;
        let state = module_state(root, MODULE);
        if state == ModuleState::Loaded {
            return Ok(Yes(format!("{MODULE} is loaded")));
        }
        if let Some(obstacle) = self.no_module(state) {
            return Err(obstacle);
        }
        if self.asker.is_root && !self.asker.rights.has(Capability::SysModule) {
            return Err(Cause::new(
                "this process may load no modules, as in containers",
                "load them on the host",
            ));
        }
        Ok(match state {
            ModuleState::Installed if wants_signed_modules(root) => Partly(Cause::new(
                "the kernel loads only modules that are signed by a key it knows",
                "sudo mokutil --import /var/lib/dkms/mok.pub, then reboot",
            )),
            ModuleState::Installed => Yes(format!("installed; sudo modprobe {MODULE}")),
            _ => Partly(Cause::new("not built; the kernel's headers are here", BUILD_MODULES)),
        })
    }

    fn lab_boot(&self) -> Checked {
        match boot_machine(self.asker.root, None).facts.cpu {
            Some(_) => Ok(Yes("x86: the idle routine that the kernel chose at boot".to_owned())),
            None => Err(Cause::new(
                "/proc/cpuinfo has no x86 CPU",
                "use it for x86 only, or with --cpuid FILE",
            )),
        }
    }
}

/// Texts for a line or two.
const TEXT_LENGTH_MAX: usize = 240;

/// The beginning of a text that is too long.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(TEXT_LENGTH_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

fn denied() -> Cause {
    Cause { is_denied: true, ..Cause::new("", "") }
}

fn without(event: &str, others: &str) -> Cause {
    Cause::new(
        format!("the kernel has no {event}{others}"),
        "docs/recording.md says what is unknown then; other kernels have it",
    )
}

fn opened(spec: &CounterSpec) -> Result<PerfCounter, ErrorKind> {
    let config = [spec.event.config, spec.event.config1, spec.event.config2];
    let event = PerfEvent { type_number: spec.type_number, config };
    let cpu = spec.cpus.first().copied().unwrap_or_default();
    PerfCounter::open(event, cpu).map_err(|error| error.kind())
}

/// This is about the process, whatever the machine.
fn c_governors(compiler: &Compiler) -> Checked {
    judged_compiler(
        compiler.command(),
        compiler.place().is_some(),
        compiler.is_confinable(),
        compiler.code_is_confinable(),
    )
}

fn judged_compiler(
    command: &str,
    is_there: bool,
    has_landlock: bool,
    has_seccomp: bool,
) -> Checked {
    match (is_there, has_seccomp, has_landlock) {
        (false, ..) => Err(Cause::new(
            format!("there is no C compiler '{command}'"),
            "sudo apt install gcc libc6-dev, or name yours with CC",
        )),
        (true, false, _) => Ok(Partly(Cause::new(
            "the kernel has no seccomp filters, so their code is not confined",
            "add --unconfined for files that you trust",
        ))),
        (true, true, false) => Ok(Partly(Cause::new(
            "the kernel has no Landlock, so the compiler is not confined",
            "add --unconfined=compiler for files that you trust, or use Linux 5.13 or later",
        ))),
        (true, true, true) => Ok(Yes(format!("'{command}', confined by Landlock and seccomp"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No test can take Landlock or seccomp away from a process that runs.
    #[test]
    fn a_compiler_needs_landlock_and_its_code_seccomp() {
        let words = |found: Checked| match found.unwrap_or_else(Found::from) {
            Yes(what) => format!("yes {what}"),
            Partly(cause) => format!("partly {} {}", cause.why, cause.mend),
            No(cause) => format!("no {} {}", cause.why, cause.mend),
        };
        for (is_there, landlock, seccomp, parts) in [
            (false, true, true, ["no there is no C compiler", "gcc"]),
            (true, false, true, ["partly", "--unconfined=compiler for"]),
            (true, true, false, ["partly", "--unconfined for"]),
            (true, true, true, ["yes 'cc'", "Landlock"]),
        ] {
            let found = words(judged_compiler("cc", is_there, landlock, seccomp));
            assert!(parts.iter().all(|part| found.contains(part)), "{found}");
        }
    }
}
