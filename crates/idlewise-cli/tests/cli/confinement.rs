//! `--governor FILE` with files that try to do more than compute. Each is stopped with a line that
//! says what it did, and nothing else is affected.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::root;

/// A governor that executes ESCAPE at its fifth decision.
const GOVERNOR: &str = "\
#define _GNU_SOURCE
#include <idlewise_governor.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define INPUT 3
#define OUTPUT 4 /* what a worker answers on */
/* the shared page: its first word changes with each gap, its ninth counts decisions */
#define PAGE ((volatile unsigned long *)mmap(0, 4096, 3, MAP_SHARED, 2, 0))

static void *thread(void *unused) { return unused; }
static int deeper(volatile int *p) { volatile int a[64]; a[0] = *p + 1; return deeper(a) + a[0]; }

static int pick(struct idlewise_context *context, struct idlewise_device *device, bool *stop_tick)
{
	static int count;
	volatile int zero = 0;
	(void)thread; (void)deeper; (void)zero;
	if (++count == 5) {
		ESCAPE;
	}
	return 1;
}
IDLEWISE_GOVERNOR(.select = pick);
";

/// A folder with the user's files and a cache.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(super::folder())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn governor(&self, name: &str, escape: &str) -> String {
        self.file(&format!("{name}.c"), &GOVERNOR.replace("ESCAPE", escape))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.current_dir(root()).env("XDG_CACHE_HOME", self.path("cache")).env_remove("CC");
        command.args(["replay", "traces/a-idle.parquet", "--machine", "spr", "--json"]);
        command
    }

    /// Replays a short log on a machine.
    fn replay(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The states of one governor.
fn states(output: &Output, governor: &str) -> Vec<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut rows = document["states"].as_array().unwrap().clone();
    rows.retain(|row| row["governor"] == governor);
    rows
}

/// Replays all these governors at once, and expects one line about each.
fn each_is_stopped(place: &Place, cases: &[(&str, &str, &str)]) {
    let files: Vec<String> =
        cases.iter().map(|(name, escape, _)| place.governor(name, escape)).collect();
    let good = place.governor("good", "");
    let mut arguments = vec!["--governor", "menu", "--governor", &good];
    let alone = place.replay(&arguments);
    assert!(alone.status.success(), "{}", words(&alone));
    for file in &files {
        arguments.extend(["--governor", file]);
    }
    let output = place.replay(&arguments);
    let message = words(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    for governor in ["menu", "good.c"] {
        assert_eq!(states(&output, governor), states(&alone, governor), "{governor} is as alone");
    }
    for (name, escape, cause) in cases {
        let start = format!("idlewise: {name}.c {cause}");
        let lines: Vec<&str> = message.lines().filter(|line| line.starts_with(&start)).collect();
        assert_eq!(lines.len(), 1, "{escape}: no line starts with {start:?}:\n{message}");
        // A message that the governor sends itself is seen only when it is read, some gaps later.
        let place = if cause.starts_with("sent ") { "" } else { "in gap 4 of CPU 0" };
        assert!(lines[0].contains(place) && lines[0].contains("of a-idle on spr"), "{}", lines[0]);
        assert!(states(&output, &format!("{name}.c")).is_empty(), "{name} has no rows");
    }
    let lines = message.lines().filter(|line| !line.contains("prints.c printed: flood"));
    assert_eq!(lines.count(), cases.len(), "one line each:\n{message}");
}

#[test]
fn a_system_call_that_is_not_computing_ends_the_governor() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let target = place.file("target", "as it was");
    let escaped = place.path("escaped");
    let create = format!("open(\"{escaped}\", O_CREAT | O_WRONLY, 0600)");
    let read = format!("open(\"{target}\", O_RDONLY)");
    let unlink = format!("unlinkat(AT_FDCWD, \"{target}\", 0)");
    let forbidden = |call: &str| format!("made the system call {call}, which is not allowed,");
    let [openat, unlinkat, socket, execve, getppid, kill, ptrace, tgkill] =
        ["openat", "unlinkat", "socket", "execve", "getppid", "kill", "ptrace", "tgkill"]
            .map(forbidden);
    let [prlimit, prctl, sigaction, memfd, write, clone, io_uring] =
        ["prlimit64", "prctl", "rt_sigaction", "memfd_create", "write", "clone", "io_uring_setup"]
            .map(forbidden);
    each_is_stopped(
        &place,
        &[
            ("creates", &create, &openat),
            ("reads", &read, &openat),
            ("unlinks", &unlink, &unlinkat),
            ("connects", "socket(AF_INET, SOCK_STREAM, 0)", &socket),
            ("executes", "execl(\"/bin/true\", \"true\", (char *)0)", &execve),
            ("kills", "kill(getppid(), SIGKILL)", &getppid),
            ("kills_all", "kill(-1, SIGTERM)", &kill),
            ("traces", "ptrace(PTRACE_TRACEME, 0, 0, 0)", &ptrace),
            ("stops", "raise(SIGSTOP)", &tgkill),
            ("limits", "struct rlimit r = {1, 1}; setrlimit(RLIMIT_CPU, &r)", &prlimit),
            ("controls", "prctl(PR_SET_DUMPABLE, 1)", &prctl),
            ("handles", "signal(SIGSYS, SIG_IGN)", &sigaction),
            ("makes_memory", "memfd_create(\"x\", 0)", &memfd),
            ("forks", "syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)", &clone),
            ("rings", "syscall(SYS_io_uring_setup, 1, 0)", &io_uring),
            ("writes", "write(3, \"x\", 1)", &write),
            // It blocks the filter's signal, so the kernel ends the process directly.
            (
                "blocks",
                "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0); getuid()",
                "crashed (SIGSYS)",
            ),
        ],
    );
    assert!(!Path::new(&escaped).exists());
    assert_eq!(fs::read_to_string(&target).unwrap(), "as it was");
}

#[test]
fn calls_with_several_numbers_end_the_governor_too() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    each_is_stopped(
        &place,
        &[
            ("forks", "if (fork() == 0) for (;;) ;", "made the system call clone"),
            (
                "threads",
                "pthread_t t; pthread_create(&t, 0, thread, 0); pthread_join(t, 0)",
                // glibc first installs a handler for its own signal.
                "made the system call ",
            ),
            ("pauses", "pause()", "made the system call p"),
            ("sleeps", "sleep(25)", "made the system call clock_nanosleep"),
            ("selects", "select(0, 0, 0, 0, 0)", "made the system call "),
        ],
    );
}

#[test]
fn a_governor_that_crashes_loops_or_ends_is_told_with_its_gap() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let looped = "took more than 5 s of CPU time and was stopped";
    each_is_stopped(
        &place,
        &[
            ("null", "*(int *)zero = 1", "crashed (SIGSEGV)"),
            ("aborts", "abort()", "crashed (SIGABRT)"),
            ("stack", "deeper(&zero)", "crashed (SIGSEGV)"),
            ("memory", "for (;;) memset(malloc(1 << 24), 1, 1 << 24)", "crashed (SIGSEGV)"),
            (
                "maps",
                "for (;;) { void *p = mmap(0, 1 << 24, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); \
                 memset(p, 1, 1 << 24); }",
                "crashed (SIGSEGV)",
            ),
            ("exits", "exit(0)", "ended its process"),
            ("ends", "_exit(0)", "ended its process"),
            ("answers", "return -7", "answered state -7 where there are 0 to 3"),
            ("loops", "for (;;) ;", looped),
            ("prints", "for (;;) fprintf(stderr, \"flood\\n\")", looped),
        ],
    );
}

/// The page that says where a governor is can be written by the governor.
#[test]
fn nothing_that_a_governor_writes_gives_it_more_time() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let slow = "took more CPU time than its gaps allow (6 s, 1 ms for each gap and 100 ms for each \
                second of them) and was stopped";
    let sleeps = "int f = 0; struct timespec t = { 0, 50000000 }; \
                  for (volatile unsigned long *p = PAGE;;) { p[0]++; syscall(SYS_futex, &f, FUTEX_WAIT, 0, &t); }";
    each_is_stopped(
        &place,
        &[
            ("steps", "for (volatile unsigned long *p = PAGE;;) { p[0]++; p[8]++; }", slow),
            ("sleeps", sleeps, "made the system call futex, which is not allowed,"),
            // It takes what it is given, little by little, and then waits for more.
            (
                "dribbles",
                "char c; for (volatile unsigned long *p = PAGE;; p[0]++) { read(INPUT, &c, 1); \
                 for (volatile int i = 0; i < 1000000; i++) p[8]++; }",
                "did not answer for 10 s",
            ),
        ],
    );
    // After the last gap, and in single decisions.
    let destructor = "__attribute__((destructor)) static void d(void) \
                      { for (volatile unsigned long *p = PAGE;;) { p[0]++; p[8]++; } }";
    let file = place.file("ends.c", &(GOVERNOR.replace("ESCAPE", "") + destructor));
    let output = place.replay(&["--governor", &file, "--governor", "menu"]);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).starts_with(&format!("idlewise: ends.c {slow}")), "{}", words(&output));
    let file =
        place.governor("simulated", "for (volatile unsigned long *p = PAGE;;) { p[0]++; p[8]++; }");
    let output = Command::new(env!("CARGO_BIN_EXE_idlewise"))
        .current_dir(root())
        .env("XDG_CACHE_HOME", place.path("cache"))
        .args(["lab", "simulate", "spr", "wakes", "--set", "core_count=2", "--governor", &file])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(
        words(&output).starts_with(&format!("idlewise: simulated.c {slow}")),
        "{}",
        words(&output)
    );
}

#[test]
fn memory_is_neither_locked_nor_damaged() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let forbidden = |call: &str| format!("made the system call {call}, which is not allowed,");
    let [mmap, mlock, madvise] = ["mmap", "mlock", "madvise"].map(forbidden);
    // Nothing is mapped there, in case the call is made.
    let advise = |advice: u32| format!("madvise((void *)0x10000000000, 4096, {advice})");
    let (poison, offline, merge) = (advise(100), advise(101), advise(12));
    let map =
        |flags: &str| format!("mmap(0, 1 << 21, 3, MAP_PRIVATE | MAP_ANONYMOUS | {flags}, -1, 0)");
    let (locked, huge) = (map("MAP_LOCKED"), map("MAP_HUGETLB"));
    each_is_stopped(
        &place,
        &[
            ("locks", &locked, &mmap),
            ("takes_huge_pages", &huge, &mmap),
            ("locks_later", "mlock(&count, 4096)", &mlock),
            ("poisons", &poison, &madvise),
            ("takes_offline", &offline, &madvise),
            ("merges", &merge, &madvise),
        ],
    );
    let usual = place.governor(
        "usual",
        "char *p = malloc(1 << 24); memset(p, 1, 1 << 24); \
         madvise(p + 4096 - (long)p % 4096, 4096, MADV_DONTNEED); \
         free(p)",
    );
    let output = place.replay(&["--governor", &usual]);
    assert!(output.status.success(), "{}", words(&output));
}

/// A child that is killed if the test fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The status of the worker of a running command, once it has a seccomp filter.
fn confined_worker(running: &mut Running) -> String {
    loop {
        let parent = format!("\nPPid:\t{}\n", running.0.id());
        let is_worker = |process: &Path| {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).any(|word| word == b"plugin-worker")
        };
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let mut workers = processes.filter(|process| is_worker(process));
        let status = workers.find_map(|worker| {
            let status = fs::read_to_string(worker.join("status")).ok()?;
            (status.contains(&parent) && status.contains("\nSeccomp:\t2\n")).then_some(status)
        });
        if let Some(status) = status {
            return status;
        }
        assert!(running.0.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
}

/// Each CPU has a process, and the first that loops ends all: together they take no more time than two.
#[test]
fn one_loop_ends_the_governor_on_all_cpus() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.governor("loops", "for (;;) ;");
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(["lab", "simulate", "spr", "periodic", "--duration-ms", "5", "--governor", &file]);
    for set in ["package_count=1", "core_count=4", "thread_count=1"] {
        command.args(["--set", set]);
    }
    #[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // SAFETY: these are plain data, and the child is waited for once.
    let (status, usage) = unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, &raw mut usage);
        (status, usage)
    };
    assert_eq!(libc::WEXITSTATUS(status), 1);
    assert!((5..12).contains(&usage.ru_utime.tv_sec), "{} s", usage.ru_utime.tv_sec);
}

#[test]
fn a_governor_has_no_capabilities() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.governor("loops", "for (;;) ;");
    let mut command = place.command();
    command.args(["--governor", &file]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let status = confined_worker(&mut running);
    for none in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(status.contains(&format!("\n{none}:\t0000000000000000\n")), "{status}");
    }
    assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
}

/// Makes Landlock's system calls fail as in a kernel that has none.
fn without_landlock(command: &mut Command) -> &mut Command {
    let filter =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call, if it is one of three.
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(
            libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
            0,
            2,
            libc::SYS_landlock_create_ruleset as u32,
        ),
        filter(
            libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K,
            1,
            0,
            libc::SYS_landlock_restrict_self as u32,
        ),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the program outlives the call, and no memory is allocated.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
                | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: it makes two system calls.
    unsafe { command.pre_exec(install) }
}

#[test]
fn without_landlock_nothing_is_compiled_unless_the_user_wants_it() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let secret = place.file("secret.txt", "hunter2 hunter3\n");
    let good = GOVERNOR.replace("ESCAPE", "");
    let reads = place.file("reads.c", &format!("#include \"{secret}\"\n{good}"));
    let good = place.file("good.c", &good);
    let bad = place.governor("bad", "getppid()");
    let run = |arguments: &[&str]| {
        without_landlock(&mut place.command()).args(arguments).output().unwrap()
    };
    for file in [&reads, &good] {
        let output = run(&["--governor", file]);
        let message = words(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("{file}: this kernel has no Landlock")), "{message}");
        assert!(
            message.contains("--unconfined=compiler") && message.lines().count() == 1,
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
    let output = run(&["--governor", &good, "--unconfined=compiler"]);
    assert!(output.status.success(), "{}", words(&output));
    let document = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(document.contains("the compiler was not confined"), "{document}");
    // Its code still is.
    let output = run(&["--governor", &bad, "--unconfined=compiler"]);
    assert_eq!(output.status.code(), Some(1), "{}", words(&output));
    assert!(words(&output).contains("bad.c made the system call getppid"), "{}", words(&output));
    // Where it is not needed, it does the same.
    let output = place.replay(&["--governor", &reads, "--unconfined=compiler"]);
    assert!(words(&output).contains("hunter2"), "{}", words(&output));
    // Others' code is not even compiled for a test.
    let bundle = place.path("evidence");
    let idlewise = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.current_dir(root()).env("XDG_CACHE_HOME", place.path("cache")).args(arguments);
        command
    };
    let log = "traces/a-idle.parquet";
    let made = idlewise(&[
        "log",
        "bundle",
        "-o",
        &bundle,
        "--",
        "replay",
        log,
        "--machine",
        "spr",
        "--governor",
        &good,
    ]);
    let made = { made }.output().unwrap();
    assert!(made.status.success(), "{}", words(&made));
    let verified =
        without_landlock(&mut idlewise(&["log", "bundle", "verify", &bundle, "--allow-code"]))
            .output()
            .unwrap();
    assert_eq!(verified.status.code(), Some(2), "{}", words(&verified));
    assert!(words(&verified).contains("this kernel has no Landlock"), "{}", words(&verified));
}

#[test]
fn what_a_governor_writes_on_its_own_is_no_result() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let forged = "sent a result that is not one of the gaps it was given";
    each_is_stopped(
        &place,
        &[
            ("garbage", "write(OUTPUT, \"hello there, this is garbage\\n\", 29)", forged),
            // Kind 7 is a tally.
            (
                "huge",
                "unsigned char h[5] = { 7, 255, 255, 255, 255 }; write(OUTPUT, h, 5); for (;;) ;",
                forged,
            ),
            (
                "tally",
                "static unsigned char h[5 + 16384] = { 7, 0, 64, 0, 0 }; \
                 memset(h + 5, 255, 16384); write(OUTPUT, h, sizeof h); for (;;) ;",
                forged,
            ),
            (
                "zeros",
                "static unsigned char h[5 + 560] = { 7, 48, 2, 0, 0 }; \
                 write(OUTPUT, h, sizeof h); for (;;) ;",
                forged,
            ),
            ("flood", "static char z[1 << 16]; for (;;) write(OUTPUT, z, sizeof z)", forged),
            ("closes", "close(OUTPUT); for (;;) ;", "was killed (SIGKILL)"),
            // It consumes its own gaps, and waits for more.
            ("takes", "char c[999]; for (;;) read(3, c, 999)", "did not answer for 10 s"),
        ],
    );
}

#[test]
fn a_constructor_is_confined_too() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let escaped = place.path("escaped");
    let with = |name: &str, code: &str| {
        let constructor = format!("__attribute__((constructor)) static void c(void) {{ {code}; }}");
        place.file(&format!("{name}.c"), &(GOVERNOR.replace("ESCAPE", "") + &constructor))
    };
    for (name, code, cause) in [
        ("loops", "for (;;) ;", "it took more than 5 s of CPU time"),
        ("connects", "socket(AF_INET, SOCK_STREAM, 0)", "it made the system call socket"),
        ("exits", "_exit(0)", "it ended its process"),
        ("crashes", "abort()", "it crashed (SIGABRT)"),
        ("garbage", "write(OUTPUT, \"garbage\", 7); for (;;) ;", "it sent a result"),
    ] {
        let output = place.replay(&["--governor", "menu", "--governor", &with(name, code)]);
        let message = words(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("{name}.c: {cause}")), "{message}");
        assert!(message.ends_with("when it was loaded\n"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    // While the linker runs, the file does not exist.
    let opens = format!("if (open(\"{escaped}\", O_CREAT | O_WRONLY, 0600) >= 0) abort()");
    let output = place.replay(&["--governor", &with("opens", &opens)]);
    assert!(output.status.success(), "{}", words(&output));
    assert!(!Path::new(&escaped).exists());
}

#[test]
fn a_shared_object_is_confined_as_a_c_file_is() {
    let place = Place::new();
    let source = place.governor("own", "getppid()");
    let library = place.path("own.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", &library, &source, "-lm", "-I"])
        .arg(root().join("crates/idlewise-plugin/include"))
        .status()
        .unwrap();
    assert!(built.success());
    let output = place.replay(&["--governor", &library, "--governor", "menu"]);
    let message = words(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("idlewise: own.so made the system call getppid"), "{message}");

    let trusted = place.replay(&["--governor", &library, "--unconfined"]);
    assert!(trusted.status.success(), "{}", words(&trusted));
    let document = String::from_utf8(trusted.stdout).unwrap();
    assert!(document.contains("not confined: its code had all your rights"), "{document}");
}

#[test]
fn what_a_governor_prints_is_shown_and_has_an_end() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file =
        place.governor("own", "for (int i = 0; i < 100000; i++) fprintf(stderr, \"%d\\n\", i)");
    let output = place.replay(&["--governor", &file]);
    let message = words(&output);
    assert!(output.status.success(), "{message}");
    assert!(message.starts_with("idlewise: own.c printed: 0\nidlewise: own.c printed: 1\n"));
    assert!(message.lines().count() <= 21, "{message}");
}

#[test]
fn the_compiler_reads_nothing_of_the_users_and_has_an_end() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let secret = place.file("secret.txt", "hunter2 hunter3\n");
    let header = place.file("beside.h", "#define BESIDE 1\n");
    let good = GOVERNOR.replace("ESCAPE", "");
    let allowed = place.file("allowed.c", &format!("#include \"beside.h\"\n{good}int x = BESIDE;"));
    let output = place.replay(&["--governor", &allowed]);
    assert!(output.status.success(), "{}: {}", header, words(&output));
    for (name, text, cause) in [
        ("absolute", format!("#include \"{secret}\"\n"), "secret.txt'"),
        ("beside", "#include \"secret.txt\"\n".to_owned(), "secret.txt'"),
        ("system", "#include \"/etc/passwd\"\n".to_owned(), "'/etc/passwd'"),
        ("zero", "#include \"/dev/zero\"\n".to_owned(), "'/dev/zero'"),
        ("environment", "#include \"/proc/self/environ\"\n".to_owned(), "'/proc/self/environ'"),
        ("binary", format!("__asm__(\".incbin \\\"{secret}\\\"\");\n"), "doesn't compile"),
        ("large", "int large[1L << 36] = { 1 };\n".to_owned(), "doesn't compile"),
    ] {
        let file = place.file(&format!("{name}.c"), &(text + &good));
        let output = place.replay(&["--governor", &file]);
        let message = words(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {message}");
        assert!(message.contains(cause), "{name}: {message}");
        assert!(!message.contains("hunter2") && !message.contains("root:"), "{name}: {message}");
        assert!(message.lines().count() <= 12, "{name}: {message}");
    }
    let secret = place.file("reads.c", &format!("#include \"{secret}\"\n{good}"));
    let output = place.replay(&["--governor", &secret, "--unconfined"]);
    assert!(words(&output).contains("hunter2"), "the user's own wish: {}", words(&output));
}

#[test]
fn a_kernel_governor_has_no_c_library() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let text = "#include <linux/cpuidle.h>\nextern int pause(void);\n\
        static int pick(struct cpuidle_driver *drv, struct cpuidle_device *dev, bool *stop_tick)\n\
        {\n\treturn pause();\n}\n\
        static struct cpuidle_governor own = { .name = \"own\", .select = pick };\n\
        static int __init init(void) { return cpuidle_register_governor(&own); }\n\
        postcore_initcall(init);\n";
    let refused = |text: &str| {
        let output =
            place.replay(&["--governor", &place.file("own.c", text), "--governor", "menu"]);
        (output.status.code(), words(&output))
    };
    let (status, message) = refused(text);
    assert_eq!(status, Some(2));
    assert!(message.contains("own.c:5: 'pause' is not provided"), "{message}");
    let with = |body: &str| text.replace("pause()", body).replace("extern int pause(void);", "");
    let (_, message) = refused(&with("malloc(5) != NULL"));
    assert!(message.contains("'malloc' is not provided"), "{message}");
    // These functions may be called by code that the compiler generates.
    let (status, message) = refused(&with("memcmp(drv, dev, 8) & strlen(drv->name) & 0"));
    assert_eq!(status, Some(0), "{message}");
    for (from, to, cause) in [
        (".select = pick", ".name = \"x\"", "it registered no governor that has a select"),
        ("own.c", "own.c", "its enable returned -22"),
    ] {
        let enable = "static int on(struct cpuidle_driver *drv, struct cpuidle_device *dev)\n\
                      { return -22; }\nstatic struct cpuidle_governor own = { .enable = on,";
        let with_enable = with("0").replace("static struct cpuidle_governor own = {", enable);
        let (status, message) = refused(&with_enable.replace(from, to));
        assert_eq!(status, Some(1), "{message}");
        assert!(message.contains(&format!("own.c failed to start ({cause})")), "{message}");
    }
}

#[test]
fn a_compiled_governor_is_kept_only_where_nobody_else_can_write() {
    if crate::cannot_compile() {
        return;
    }
    let place = Place::new();
    let file = place.governor("own", "");
    let kept = || -> Vec<String> {
        let found = fs::read_dir(place.path("cache/idlewise/governors")).into_iter().flatten();
        found.map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect()
    };
    let run = |command: &mut Command| {
        let output = command.args(["--governor", &file]).output().unwrap();
        assert!(output.status.success(), "{}", words(&output));
        states(&output, "own.c")
    };
    let rows = run(&mut place.command());
    let [library] = &kept()[..] else { panic!("{:?}", kept()) };
    assert_eq!(fs::metadata(library).unwrap().permissions().mode() & 0o077, 0);

    // A damaged library is rebuilt.
    let good = fs::read(library).unwrap();
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 0xff;
    fs::write(library, &damaged).unwrap();
    assert_eq!(run(&mut place.command()), rows);
    assert_ne!(fs::read(library).unwrap(), damaged);

    // A library in a folder that others can write to is not loaded, and none is put there.
    let folder = place.path("cache/idlewise/governors");
    fs::write(library, "not ours").unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(run(&mut place.command()), rows);
    assert_eq!(fs::read(library).unwrap(), b"not ours");

    // If the user has no cache folder, nothing is left behind.
    let temporary = place.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut command = place.command();
    command.env_remove("XDG_CACHE_HOME").env_remove("HOME").env("TMPDIR", &temporary);
    assert_eq!(run(&mut command), rows);
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    // Nor is a home made for a user who has none.
    let (home, mut command) = (place.path("home"), place.command());
    assert_eq!(run(command.env_remove("XDG_CACHE_HOME").env("HOME", &home)), rows);
    assert!(!Path::new(&home).exists());
}
