//! What idlewise can do on a machine, one row for each capability. Each row asks the code of the commands that it names,
//! as far as that can be asked without changing anything.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use idlewise_host::counters::{CounterPlan, CounterSpec};
use idlewise_host::energy::EnergyMeter;
use idlewise_host::ipi::{IpiError, StateWish, allowed_cpus, module_absence};
use idlewise_host::settings::{Setting, SettingsError, obstacle};
use idlewise_host::states::{
    EnergyPlan, EnergyWishes, StatesError, StatesPlan, StatesWishes, WakeBy,
};
use idlewise_host::surroundings::{
    Capability, ModuleState, lockdown, module_state, unit_is_enabled, wants_signed_modules,
};
use idlewise_host::watch::IdleTimes;
use idlewise_host::{
    Counts, CountsError, CountsReader, Root, boot_machine, check_event_descriptions,
    check_recording,
};
use idlewise_plugin::{CAN_LOAD, Compiler, PluginError, find_program};
use idlewise_probe::{PerfCounter, PerfEvent};
use idlewise_report::counted;
use idlewise_trace::{MachineNote, cause_events, wanted_events};

use super::cause::{
    Asker, Cause, Explained, GET_MODULES, Kind, MORE_CPUS, Package, UNLOCK, install,
};

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
    /// What would tell is hidden.
    Unknown,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::Partly => "partly",
            Verdict::AsRoot => "as root",
            Verdict::No => "no",
            Verdict::Unknown => "unknown",
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
    pub what: String,
    pub verdict: Verdict,
    /// What was found.
    pub why: String,
    /// How to fix it.
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

/// The row for a missing file system that others need.
pub const SYSTEM_FILES: &str = "system_files";

const NEEDED: &str = "Needed first";
const SEE: &str = "See what idle states cost";
const RECORD: &str = "Record, for replay and advice";
const SET: &str = "Change settings";
const MEASURE: &str = "Measure";
const BUILD: &str = "Kernels and governors";

/// The module that measures IPIs and timers.
const BENCH: &str = "idlewise_bench";
/// What is left of `measure counters` without perf.
const KERNEL_COUNTS: &str = "only the kernel's counts: interrupts, requested states";
/// Longer names of states and governors are no examples in the first column.
const EXAMPLE_LENGTH_MAX: usize = 20;

/// The file systems that a row needs.
const NONE: &[&str] = &[];
const PROC: &[&str] = &["proc"];
const SYS: &[&str] = &["sys"];
const BOTH: &[&str] = &["proc", "sys"];

impl Checks<'_> {
    /// Makes all rows.
    pub fn rows(&self) -> Vec<Row> {
        let hidden: Vec<&str> =
            BOTH.iter().copied().filter(|it| !self.asker.root.can_list(it)).collect();
        let mut rows: Vec<Row> = hidden.iter().map(|it| self.hidden_row(it)).collect();
        // Files are named as on the machine, not as in its copy.
        let copy = format!("{}/", self.asker.root.path("").display()).replace("//", "/");
        let mut row = |id, group, what: &str, command: &str, needs: &[&str], found: Checked| {
            let found = match found.unwrap_or_else(Found::from) {
                Yes(what) => Yes(what),
                found => match hidden.iter().find(|it| needs.contains(it)) {
                    None => found,
                    Some(hidden) => No(self.hidden(hidden)),
                },
            };
            let (verdict, why, mend, message) = match found {
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
            rows.push(Row { id, group, what: what.to_owned(), verdict, why, mend, message });
        };
        let cpus = self.asker.root.present_cpus();
        let reader = CountsReader::open(self.asker.root, &cpus);
        let watch = self.watch(reader.as_ref().err());
        row("counts", SEE, "why", "idlewise why", SYS, self.counts(reader, cpus.len()));
        row("watch", SEE, "watch", "idlewise watch", BOTH, watch);
        let what = "record, advise, measure wakes";
        row("record", RECORD, what, "idlewise record", BOTH, self.record());
        let command = "idlewise record --causes";
        row("causes", RECORD, "record --causes", command, BOTH, self.causes());
        let command = "idlewise record --histogram";
        row("histogram", RECORD, "record --histogram", command, BOTH, self.histogram());
        row("perf", RECORD, "perf record, to import", "perf record -a", BOTH, self.perf_record());
        let mut set = |id, setting: Option<String>, other: &str, needs, found| {
            let setting = setting.unwrap_or_else(|| other.to_owned());
            let what = match setting.chars().count() > EXAMPLE_LENGTH_MAX {
                true => other,
                false => &setting,
            };
            let command = format!("idlewise set apply --set {setting}");
            row(id, SET, &format!("set, try: {what}"), &command, needs, found);
        };
        let state = self.state().map(|state| format!("{state}=off"));
        set("states", state, "a state", SYS, self.set_states());
        let limit = format!("latency=10us@{}", self.online.first().copied().unwrap_or_default());
        set("latency", Some(limit), "", SYS, self.set_latency());
        let limit = Some("latency=10us".to_owned());
        set("machine_latency", limit, "", SYS, self.set_machine_latency());
        let governor = self.other_governor().map(|other| format!("governor={other}"));
        set("governor", governor, "the governor", SYS, self.set_governor());
        let command = "idlewise set apply";
        row("boot_settings", SET, "set at every boot", command, NONE, self.set_at_boot());
        let command = "idlewise measure states";
        row("exit_latency", MEASURE, "measure states", command, BOTH, self.measure_states());
        let (what, command) = ("measure power, residency", "idlewise measure power");
        row("energy", MEASURE, what, command, BOTH, self.measure_energy());
        let command = "idlewise measure ipi";
        row("wake_latency", MEASURE, "measure ipi, timer", command, BOTH, self.measure_ipi());
        let command = "idlewise measure counters";
        row("counters", MEASURE, "measure counters", command, BOTH, self.measure_counters());
        let command = "modprobe idlewise_idle";
        row("modules", BUILD, "kernel modules", command, BOTH, self.modules());
        let (what, command) = ("replay: governors in C", "idlewise replay");
        row("c_governors", BUILD, what, command, NONE, self.c_governors());
        row("boot", BUILD, "lab boot", "idlewise lab boot", PROC, self.lab_boot());
        rows
    }

    /// Why nothing can be said without a file system.
    fn hidden(&self, name: &str) -> Cause {
        match self.is_live {
            true => Cause::unknown(
                format!("/{name} is not mounted"),
                self.asker.as_root(&match name {
                    "proc" => "mount -t proc proc /proc".to_owned(),
                    other => format!("mount -t {other}fs {other}fs /{other}"),
                }),
            ),
            false => Cause::unknown(format!("the copy has no /{name}"), "copy it too"),
        }
    }

    fn hidden_row(&self, name: &str) -> Row {
        let Cause { why, mend, message, .. } = self.hidden(name);
        let (id, group, verdict, mend) = (SYSTEM_FILES, NEEDED, Verdict::No, Some(mend));
        Row { id, group, what: format!("/{name}"), verdict, why, mend, message }
    }

    /// What to say if something does not work.
    fn refused(
        &self,
        command: &str,
        cause: Cause,
    ) -> (Verdict, String, Option<String>, Option<String>) {
        let Cause { why, mend, kind, message } = cause;
        let Asker { is_root, rights, .. } = self.asker;
        let (verdict, why, mend) = match kind {
            Kind::Lack => (Verdict::No, why, mend),
            Kind::Unknown => (Verdict::Unknown, why, mend),
            Kind::Denied if !is_root => {
                (Verdict::AsRoot, "needs root".to_owned(), self.asker.as_root(command))
            }
            Kind::Denied if rights.are_of_user_namespace() => (
                Verdict::No,
                "root in a user namespace is refused".to_owned(),
                self.asker.as_root(command),
            ),
            Kind::Denied => (
                Verdict::No,
                "even root is refused: a container or a security policy".to_owned(),
                "run it on the host, or in a privileged container".to_owned(),
            ),
        };
        (verdict, why, Some(mend), message)
    }

    /// Fails if the process lacks one of these capabilities.
    fn check_capable(&self, needed: &[Capability]) -> Result<(), Cause> {
        let rights = self.asker.rights;
        match needed.iter().all(|one| rights.has(*one)) {
            true => Ok(()),
            false if rights.are_known() => Err(Cause::denied()),
            false => Err(Cause::unknown("the copy does not say who runs", "copy proc/self too")),
        }
    }

    /// Fails if the kernel is locked down so far that it closes tracefs and BPF.
    fn check_lockdown(&self) -> Result<(), Cause> {
        match lockdown(self.asker.root).as_deref() {
            Some("confidentiality") => {
                Err(Cause::new("the kernel is locked down (confidentiality)", UNLOCK))
            }
            _ => Ok(()),
        }
    }

    /// The deepest idle state, if one can be turned off.
    fn state(&self) -> Option<&str> {
        let states = self.note.tables.iter().filter(|table| table.machine.states.len() > 1);
        let last = states.filter_map(|table| table.machine.states.last());
        last.max_by_key(|state| state.exit_latency_ns).map(|state| state.name.as_str())
    }

    /// A governor that could be chosen instead of the present one.
    fn other_governor(&self) -> Option<String> {
        let known = self.governors();
        let is_other = |it: &&str| self.note.governor.as_deref() != Some(*it);
        known.split_whitespace().rfind(is_other).map(str::to_owned)
    }

    fn governors(&self) -> String {
        let file = "sys/devices/system/cpu/cpuidle/available_governors";
        self.asker.root.text(file).unwrap_or_default()
    }

    fn counts(&self, reader: Result<CountsReader, CountsError>, cpu_count: usize) -> Checked {
        let mut reader = reader.map_err(|error| error.cause(&self.asker))?;
        let mut counts = Counts::default();
        reader.read(&mut counts);
        let unreadable = (0..cpu_count).find_map(|at| reader.unreadable(at));
        if let Some(file) = unreadable {
            return Ok(Partly(Cause::new(
                format!("{} cannot be read, so its CPU is left out", file.display()),
                "see who hides it: a container or a security policy",
            )));
        }
        counts.cpus.retain(|cpu| cpu.is_online && !cpu.states.is_empty());
        let mut states = counts.cpus.iter().flat_map(|cpu| &cpu.states);
        if states.any(|state| state.above.is_none() || state.below.is_none()) {
            return Ok(Partly(Cause::new(
                "the kernel does not count stays that were too deep or too shallow",
                "use Linux 5.0 or later",
            )));
        }
        Ok(Yes(format!("the kernel's counters for {}", counted(counts.cpus.len(), "CPU"))))
    }

    /// Without idle states it still shows how long CPUs are idle.
    fn watch(&self, failure: Option<&CountsError>) -> Checked {
        let Some(error) = failure else {
            return Ok(Yes("states, misses and idle time".to_owned()));
        };
        let cause = error.cause(&self.asker);
        match error {
            CountsError::NoDriver { .. } | CountsError::NoStates { .. }
                if IdleTimes::open(self.asker.root).is_some() =>
            {
                Ok(Partly(Cause { why: format!("only idle time: {}", cause.why), ..cause }))
            }
            _ => Err(cause),
        }
    }

    fn record(&self) -> Checked {
        self.check_lockdown()?;
        let lacking = check_recording(self.asker.root, wanted_events());
        let lacking = lacking.map_err(|error| error.cause(&self.asker))?;
        Ok(match lacking.as_slice() {
            [] => Yes("tracefs, with every event needed".to_owned()),
            [one] => Partly(without(one, "")),
            [one, others @ ..] => Partly(without(one, &format!(" and {} more", others.len()))),
        })
    }

    fn causes(&self) -> Checked {
        const NEEDED: [&str; 3] =
            ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];
        self.check_lockdown()?;
        let lacking = check_recording(self.asker.root, cause_events());
        let lacking = lacking.map_err(|error| error.cause(&self.asker))?;
        Ok(match lacking.iter().find(|event| NEEDED.contains(&event.as_str())) {
            Some(event) => No(without(event, "")),
            None => Yes("also the events that wake tasks".to_owned()),
        })
    }

    /// Programs are loaded only to count, so this asks what loading needs.
    fn histogram(&self) -> Checked {
        if self.asker.root.text("proc/sys/kernel/unprivileged_bpf_disabled").is_none() {
            return Err(Cause::new(
                "the kernel has no BPF",
                "use a kernel with CONFIG_BPF_SYSCALL, or record without --histogram",
            ));
        }
        self.check_lockdown()?;
        self.check_capable(&[Capability::Bpf, Capability::Perfmon])?;
        Ok(Yes("BPF (not tried)".to_owned()))
    }

    fn perf_record(&self) -> Checked {
        let level = self.asker.root.text("proc/sys/kernel/perf_event_paranoid");
        let Some(level) = level else {
            return Err(Cause::new(
                "the kernel has no perf events",
                "use a kernel with CONFIG_PERF_EVENTS",
            ));
        };
        self.check_lockdown()?;
        if find_program("perf").is_none() {
            return Err(Cause::new(
                "the program perf is not in PATH",
                "install it: the package is perf, linux-perf or linux-tools",
            ));
        }
        // The kernel lets everybody record tracepoints of all CPUs only below 0.
        if !level.parse::<i32>().is_ok_and(|level| level < 0) {
            self.check_capable(&[Capability::Perfmon])?;
        }
        // perf reads them too.
        check_event_descriptions(self.asker.root).map_err(|error| error.cause(&self.asker))?;
        Ok(Yes("events: `log import --help`".to_owned()))
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
        let states = self.note.tables.iter().flat_map(|table| &table.machine.states);
        let names = unique(states.map(|state| state.name.as_str()).collect());
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
        self.setting(&settings, "per-CPU limit (also `set quiet`)")
    }

    fn set_machine_latency(&self) -> Checked {
        let limit = Some(Duration::from_micros(10));
        let settings = [Setting::LatencyLimit { cpus: None, limit }];
        self.setting(&settings, "by /dev/cpu_dma_latency")
    }

    fn set_governor(&self) -> Checked {
        let known = self.governors();
        let current = self.note.governor.clone().unwrap_or_else(|| "menu".to_owned());
        let works = if known.is_empty() { current.clone() } else { known.clone() };
        let found = self.setting(&[Setting::Governor(current)], &works)?;
        Ok(match known.split_whitespace().collect::<Vec<_>>()[..] {
            [only] => Partly(Cause::new(
                format!("the kernel has no governor but {only}"),
                format!("use a kernel with others, or idlewise_governor: {GET_MODULES}"),
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
        let folders = ["etc", "usr/local/lib", "usr/lib", "lib"]
            .map(|folder| format!("{folder}/systemd/system"));
        if !folders.iter().any(|folder| has(&format!("{folder}/{UNIT}"))) {
            return Err(Cause::new(
                format!("{UNIT} is not installed"),
                "install the package idlewise, or use `idlewise advise --emit systemd`",
            ));
        }
        if !has(SETTINGS) {
            return Ok(Partly(Cause::new(
                format!("there is no /{SETTINGS}"),
                match self.state() {
                    Some(state) => {
                        format!("write a setting on each line of it, such as {state}=off")
                    }
                    None => "write a setting on each line of it".to_owned(),
                },
            )));
        }
        match unit_is_enabled(root, UNIT) {
            true => Ok(Yes(format!("{UNIT} is enabled"))),
            false => Ok(Partly(Cause::new(
                format!("{UNIT} is not enabled"),
                self.asker.as_root(&format!("systemctl enable --now {UNIT}")),
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
        let plan = checked.map_err(|error| match error {
            StatesError::NothingToHold { .. } => self.all_off(&error),
            error => error.cause(&self.asker),
        })?;
        Ok(Yes(match plan.by {
            WakeBy::Ipi => "wakes by idlewise_bench".to_owned(),
            WakeBy::Futex => "wakes by futex".to_owned(),
        }))
    }

    fn all_off(&self, error: &StatesError) -> Cause {
        let states = self.note.tables.iter().flat_map(|table| &table.machine.states);
        let off: Vec<&str> = states
            .filter(|state| state.is_disabled_by_default)
            .map(|state| state.name.as_str())
            .collect();
        let on = off.last().copied().unwrap_or_default();
        let mend = self.asker.as_root(&format!("idlewise set apply --set {on}=on"));
        let why = format!("all idle states are off: {}", unique(off).join(", "));
        Cause { message: Some(error.to_string()), ..Cause::new(why, mend) }
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
        if let [_] = self.online {
            return Ok(Partly(Cause::new(
                "only timer: ipi needs two CPUs online",
                "put another CPU online",
            )));
        }
        self.check_bench()?;
        let Some(error) = module_absence(root) else { return Ok(Yes(BENCH.to_owned())) };
        let is_denied = match &error {
            IpiError::Busy => return Ok(Yes(format!("{BENCH}, which is in use"))),
            error => error.cause(&self.asker).is_denied(),
        };
        // A user who may not look into debugfs still sees whether the module is loaded.
        let state = module_state(root, BENCH);
        let mut cause = match (&error, state) {
            (_, ModuleState::Loaded) if is_denied => return Err(error.cause(&self.asker)),
            (_, ModuleState::Installed) if is_denied => IpiError::NotLoaded.cause(&self.asker),
            _ if is_denied => IpiError::NotInstalled { kernel: self.kernel() }.cause(&self.asker),
            _ => error.cause(&self.asker),
        };
        if let Some(obstacle) = self.no_module(state).or_else(|| self.unsigned(state)) {
            (cause.why, cause.mend) = (obstacle.why, obstacle.mend);
        }
        let is_allowed =
            |cpu: &&u16| allowed_cpus(root).is_none_or(|allowed| allowed.contains(*cpu));
        Ok(Partly(match self.online.iter().filter(is_allowed).count() {
            0 | 1 => Cause::new(
                "only timer, from user space: this process may not run on two CPUs",
                MORE_CPUS,
            ),
            _ => Cause { why: format!("only from user space: {}", cause.why), ..cause },
        }))
    }

    fn measure_counters(&self) -> Checked {
        let root = self.asker.root;
        let CounterPlan { specs, lacks } = CounterPlan::new(root);
        if specs.is_empty() {
            let reason = lacks.first().map(|lack| lack.reason.clone()).unwrap_or_default();
            return Ok(Partly(Cause::new(
                KERNEL_COUNTS,
                format!("`measure counters --list` says why: {reason}"),
            )));
        }
        let refusal = match self.is_live {
            // What one counter refuses for lack of rights, all do.
            true => specs
                .iter()
                .find_map(|spec| opened(spec).err())
                .filter(|kind| *kind == ErrorKind::PermissionDenied)
                .map(|_| Cause::denied()),
            false => self.paranoid().err(),
        };
        match refusal {
            None => Ok(Yes(counted(specs.len(), "counter"))),
            Some(cause) if !cause.is_denied() => Err(cause),
            // The rest works for everybody.
            Some(cause) => {
                let (_, why, mend, message) = self.refused("idlewise measure counters", cause);
                let why = match self.asker.is_root {
                    true => format!("{KERNEL_COUNTS}: {why}"),
                    false => KERNEL_COUNTS.to_owned(),
                };
                let mend = mend.unwrap_or_default();
                Ok(Partly(Cause { message, ..Cause::new(why, mend) }))
            }
        }
    }

    /// What perf would answer on a captured machine.
    fn paranoid(&self) -> Result<(), Cause> {
        let level = self.asker.root.text("proc/sys/kernel/perf_event_paranoid");
        let is_open = level.and_then(|level| level.parse::<i32>().ok()).is_some_and(|it| it <= 0);
        if is_open { Ok(()) } else { self.check_capable(&[Capability::Perfmon]) }
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
                install(self.asker.root, self.asker.is_root, Package::Headers(&kernel)),
            )),
            ModuleState::Buildable | ModuleState::Installed => None,
        }
    }

    /// Why the kernel may refuse a module of ours that is there.
    fn unsigned(&self, state: ModuleState) -> Option<Cause> {
        (state == ModuleState::Installed && wants_signed_modules(self.asker.root)).then(|| {
            let command = self.asker.as_root("mokutil --import /var/lib/dkms/mok.pub");
            Cause::new("the kernel loads only signed modules", format!("{command}, then reboot"))
        })
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
        if let Some(cause) = self.unsigned(state) {
            return Ok(Partly(cause));
        }
        Ok(match state {
            ModuleState::Installed => {
                let command = self.asker.as_root(&format!("modprobe {MODULE}"));
                Yes(format!("installed; {command}"))
            }
            _ => Partly(Cause::new("not built; the kernel's headers are here", GET_MODULES)),
        })
    }

    /// This is about the process, whatever the machine.
    fn c_governors(&self) -> Checked {
        if !CAN_LOAD {
            return Err(PluginError::Static.cause(&self.asker));
        }
        let compiler = Compiler::system();
        let place = compiler.place();
        let (folder, is_usable) = compiler.temporary_folder();
        if place.is_some() && !is_usable {
            return Err(Cause::new(
                format!("no file can be made in {}", folder.display()),
                "name another folder with TMPDIR",
            ));
        }
        judged_compiler(
            compiler.command(),
            place.map(|_| compiler.has_headers()),
            compiler.is_confinable(),
            compiler.code_is_confinable(),
            &install(&Root::live(), self.asker.is_root, Package::Compiler),
        )
    }

    fn lab_boot(&self) -> Checked {
        match boot_machine(self.asker.root, None).facts.cpu {
            Some(_) => Ok(Yes("the idle routine chosen at boot".to_owned())),
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

/// Each name once.
fn unique(names: Vec<&str>) -> Vec<&str> {
    let mut once: Vec<&str> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
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

/// `has_headers` is `None` without a compiler.
fn judged_compiler(
    command: &str,
    has_headers: Option<bool>,
    has_landlock: bool,
    has_seccomp: bool,
    installing: &str,
) -> Checked {
    match (has_headers, has_seccomp, has_landlock) {
        (None, ..) => Err(Cause::new(
            format!("there is no C compiler '{command}'"),
            format!("{installing}, or name yours with CC"),
        )),
        (Some(false), ..) => {
            Err(Cause::new(format!("'{command}' has no headers of the C library"), installing))
        }
        (Some(true), false, _) => Ok(Partly(Cause::new(
            "the kernel has no seccomp filters, so their code is not confined",
            "add --unconfined for files that you trust",
        ))),
        (Some(true), true, false) => Ok(Partly(Cause::new(
            "the kernel has no Landlock, so the compiler is not confined",
            "add --unconfined=compiler for files that you trust, or use Linux 5.13 or later",
        ))),
        (Some(true), true, true) => Ok(Yes(format!("'{command}', confined"))),
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
        for (headers, landlock, seccomp, parts) in [
            (None, true, true, ["no there is no C compiler", "gcc"]),
            (Some(false), true, true, ["no 'cc' has no headers", "apt install gcc"]),
            (Some(true), false, true, ["partly", "--unconfined=compiler for"]),
            (Some(true), true, false, ["partly", "--unconfined for"]),
            (Some(true), true, true, ["yes 'cc'", "confined"]),
        ] {
            let found = words(judged_compiler("cc", headers, landlock, seccomp, "apt install gcc"));
            assert!(parts.iter().all(|part| found.contains(part)), "{found}");
        }
    }
}
