//! `idlewise watch`: its lines on captured machines, its screen in a pseudo terminal, its page for Prometheus.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idlewise_report::watch::FAMILIES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::captured::{CapturedMachine, More, state_file};
use crate::{WIDTH, assert_refused, json, root, schemas, stdout};

/// Whatever is waited for comes long before; a test that hangs ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with two packages of `count` / 2 CPUs, four states each.
fn server_with(count: u16) -> CapturedMachine {
    let (last, first) = (count - 1, count / 2);
    let tree = TREE.replace("LAST", &last.to_string()).replace("MIDDLE", &(first - 1).to_string());
    CapturedMachine::from_tree(&tree.replace("FIRST", &first.to_string()))
}

/// The same with eight CPUs.
fn server() -> CapturedMachine {
    server_with(8)
}

const TREE: &str = "\
== sys/devices/system/cpu/online
0-LAST
== sys/devices/system/cpu/present
0-LAST
== sys/devices/system/cpu/cpuidle/current_driver
intel_idle
== sys/devices/system/cpu/cpuidle/current_governor
menu
== sys/devices/system/cpu/cpu{0-LAST}/power/pm_qos_resume_latency_us
0
== sys/devices/system/cpu/cpu{0-MIDDLE}/topology/physical_package_id
0
== sys/devices/system/cpu/cpu{FIRST-LAST}/topology/physical_package_id
1
== proc/uptime
100.00 0.00
== @cpuidle 0-LAST
name | desc       | latency | residency | disable | usage | time | above | below | rejected
POLL | CORE POLL  | 0       | 0         | 0       | 7     | 70   | 0     | 3     | 0
C1   | MWAIT 0x00 | 1       | 1         | 0       | 7     | 70   | 0     | 3     | 0
C1E  | MWAIT 0x01 | 2       | 4         | 0       | 7     | 70   | 0     | 3     | 0
C6   | MWAIT 0x20 | 290     | 800       | 0       | 9     | 9000 | 1     | 0     | 0
";

fn path(machine: &CapturedMachine) -> &str {
    machine.path().to_str().unwrap()
}

/// Lets a second pass, in which CPUs 0 to 3 enter C6 a thousand times.
fn play(machine: &CapturedMachine) {
    let more = More { usage: 1_000, time_us: 750_000, above: 310, below: 0, rejected: 0 };
    machine.count("0-3", 3, more);
    machine.pass(1.0);
}

/// Plays a machine forward until it is dropped.
struct Playing<'a> {
    is_over: &'a AtomicBool,
}

impl Drop for Playing<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Runs something while a machine is played forward.
fn while_playing<T>(machine: &CapturedMachine, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                play(machine);
            }
        });
        // Also if `run` panics.
        let _playing = Playing { is_over: &is_over };
        run()
    })
}

/// `idlewise watch --json` beside a machine that is played forward.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(machine: &CapturedMachine, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["watch", "--sysroot", path(machine), "--json", "--interval", "0.05"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Watching { child, lines }
    }

    /// Plays the machine forward until a line is as it should be. A line may have caught it half-way.
    fn until(&mut self, what: &str, play: impl Fn(), is_it: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            play();
            let line = self.lines.next().expect("it goes on").unwrap();
            let document: Value = serde_json::from_str(&line).unwrap();
            if is_it(&document) {
                schemas::assert_valid("watch", &document);
                return document;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {document:#}");
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_line_of_json_says_what_each_cpu_did() {
    let machine = server_with(224);
    let mut watching = Watching::start(&machine, &[]);
    let is_played = |document: &Value| {
        let ratio = document["cpus"][0]["too_deep_ratio"].as_f64();
        let rate = document["cpus"][4]["entries_per_s"].as_f64();
        // However many seconds passed, the shares are those of each.
        ratio.is_some_and(|ratio| (ratio - 0.31).abs() < 1e-9) && rate == Some(0.0)
    };
    let document = watching.until("figures", || play(&machine), is_played);
    assert_eq!(
        (&document["driver"], &document["governor"]),
        (&"intel_idle".into(), &"menu".into())
    );
    let cpus = document["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), 224);
    assert!(cpus[4]["too_deep_ratio"].is_null(), "nothing was entered");
    let states = document["states"].as_array().unwrap();
    assert_eq!(states.len(), 224 * 4);
    assert_eq!(states[3]["state"], "C6");
    assert_eq!(states[3]["exit_latency_ns"], 290_000);
    assert!(states[3]["residency_ratio"].as_f64().is_some_and(|ratio| ratio <= 1.0));
}

#[test]
fn groups_and_orders_as_it_is_told() {
    let machine = server();
    let options =
        ["--once", "--json", "--interval", "0.2", "--group", "package", "--sort", "entries"];
    let document = while_playing(&machine, || {
        json(&[&["watch", "--sysroot", path(&machine)][..], &options].concat())
    });
    let names: Vec<&str> = document["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["cpus"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["package 0", "package 1"]);
    assert_eq!(document["cpus"][0]["cpu_count"], 4);
    let options = ["--json", "--count", "2", "--interval", "0.1", "--cpus", "0-1,7"];
    let text = stdout(&[&["watch", "--sysroot", path(&machine)][..], &options].concat());
    assert_eq!(text.lines().count(), 2, "a line for each interval");
    for line in text.lines() {
        let document: Value = serde_json::from_str(line).unwrap();
        schemas::assert_valid("watch", &document);
        assert_eq!(document["cpus"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_pipe_gets_a_table_that_fits() {
    for name in crate::captured::names() {
        let machine = CapturedMachine::unpack(&name);
        let has = |file: &str| machine.path().join(state_file(0, 0, file)).exists();
        if has("usage") && !has("time") {
            // Put together before its times were of interest.
            continue;
        }
        // Some have no driver; idle time is then that of /proc/stat.
        machine.write("proc/stat", "cpu  0\ncpu0 1 0 1 100 0\ncpu1 1 0 1 100 0\nintr 1\n");
        let text = while_playing_time(&machine, || {
            stdout(&["watch", "--sysroot", path(&machine), "--interval", "0.1"])
        });
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{name}: {text}");
        assert!(text.contains("time by state") && text.contains("Measured:"), "{name}: {text}");
    }
}

fn while_playing_time<T>(machine: &CapturedMachine, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                machine.pass(0.5);
            }
        });
        let _playing = Playing { is_over: &is_over };
        run()
    })
}

#[test]
fn without_a_driver_idle_time_is_that_of_proc_stat() {
    let machine = CapturedMachine::unpack("vm-no-driver");
    assert_refused(&["watch", "--sysroot", path(&machine), "--once"], &["no idle driver"]);
    machine.write("proc/stat", "cpu  0\ncpu0 1 0 1 100 0\ncpu1 1 0 1 100 0\nintr 1\n");
    let document =
        json(&["watch", "--sysroot", path(&machine), "--once", "--json", "--interval", "0.1"]);
    assert!(document["driver"].is_null());
    assert_eq!(document["cpus"][0]["open_ratio"], 0.0);
    assert!(document["cpus"][0]["entries_per_s"].is_null());
    assert!(document["doubts"].to_string().contains("no cpuidle driver"), "{document}");
}

#[test]
fn bad_arguments_are_refused_in_a_line() {
    let machine = server();
    let sysroot = ["watch", "--sysroot", path(&machine)];
    let refused =
        |options: &[&str], parts: &[&str]| assert_refused(&[&sysroot[..], options].concat(), parts);
    refused(&["--cpus", "999"], &["no CPU 999", "0-7"]);
    assert_refused(&["watch", "--sysroot", "/nowhere"], &["/nowhere", "not a folder"]);
    let empty = tempfile::tempdir().unwrap();
    assert_refused(&["watch", "--sysroot", empty.path().to_str().unwrap(), "--once"], &["sys"]);
    for options in
        [&["--interval", "0"][..], &["--cpus", "x"], &["--serve", "9737"], &["--group", "core"]]
    {
        let (status, message) = crate::failure(&[&sysroot[..], options].concat());
        assert_eq!(status, Some(2), "{message}");
    }
}

#[test]
fn says_who_holds_a_latency_limit() {
    let machine = server();
    machine.write("proc/sys/kernel/random/boot_id", "one\n");
    let watch = ["watch", "--sysroot", path(&machine), "--once", "--json", "--interval", "0.1"];
    assert_eq!(json(&watch)["limit_holders"], serde_json::json!([]));
    let set = ["set", "apply", "--sysroot", path(&machine), "--set", "latency=20us@2-3"];
    stdout(&set);
    let document = json(&watch);
    let holder = document["limit_holders"][0].as_str().unwrap_or_else(|| panic!("{document}"));
    assert!(
        holder.starts_with("idlewise set apply (") && holder.ends_with("latency=20us@2-3"),
        "{holder}"
    );
    assert_eq!(document["cpus"][2]["latency_limit_ns"], 20_000);
    assert!(document["cpus"][1]["latency_limit_ns"].is_null());
}

/// A driver that goes, and CPUs that come and go, between two readings.
#[test]
fn a_machine_that_changes_is_read_anew() {
    let machine = server();
    let mut watching = Watching::start(&machine, &["--cpus", "0-3"]);
    let mut until = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
        watching.until(what, || machine.pass(0.1), is_it)
    };
    until("figures", &|document| document["cpus"][3]["entries_per_s"].is_f64());
    machine.set_online("0-2");
    until("offline", &|document| {
        let ratio = |cpu: usize| &document["cpus"][cpu]["entries_per_s"];
        ratio(2).is_f64() && ratio(3).is_null()
    });
    machine.set_online("0-7");
    until("online", &|document| document["cpus"][3]["entries_per_s"].is_f64());
    for cpu in 0..4 {
        for (index, name) in ["POLL", "WFI", "cluster", "off"].iter().enumerate() {
            machine.write(&state_file(cpu, index, "name"), &format!("{name}\n"));
        }
        machine.set_up_states_anew(cpu);
    }
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "psci_idle\n");
    let document = until("another driver", &|document| document["driver"] == "psci_idle");
    assert_eq!(document["states"][3]["state"], "off");
    kill_process(Pid::from_child(&watching.child), Signal::TERM).unwrap();
    assert!(watching.child.wait().unwrap().success());
}

/// `idlewise watch` in a pseudo terminal.
struct Terminal {
    master: OwnedFd,
    parser: vt100::Parser,
    child: Child,
}

impl Terminal {
    fn start(size: (u16, u16), arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(Path::new("/"), size, arguments, variables)
    }

    fn start_in(
        folder: &Path,
        (width, height): (u16, u16),
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command
            .current_dir(folder)
            .arg("watch")
            .args(arguments)
            .stdin(stream())
            .stdout(stream())
            .stderr(stream());
        command
            .env("TERM", "xterm-256color")
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied());
        // SAFETY: both calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut terminal = Terminal {
            parser: parser(width, height),
            master,
            child: {
                tcsetwinsize(&slave, winsize(width, height)).unwrap();
                command.spawn().unwrap()
            },
        };
        terminal.read(Duration::ZERO);
        terminal
    }

    /// Reads what is there, and waits for something for at most this long. Returns `false` at the end.
    fn read(&mut self, at_most: Duration) -> bool {
        let mut waits = [PollFd::from_borrowed_fd(self.master.as_fd(), PollFlags::IN)];
        let at_most =
            Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        if poll(&mut waits, Some(&at_most)).unwrap_or(0) == 0 {
            return true;
        }
        let mut buffer = [0; 65_536];
        match rustix::io::read(&self.master, &mut buffer) {
            Ok(count) if count > 0 => {
                self.parser.process(&buffer[..count]);
                true
            }
            _ => false,
        }
    }

    fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// Waits until the screen shows something, doing something again and again.
    fn until(&mut self, part: &str, mut again: impl FnMut()) {
        let began = Instant::now();
        while !self.text().contains(part) {
            again();
            let goes_on = self.read(Duration::from_millis(20));
            assert!(
                goes_on && began.elapsed() < PATIENCE,
                "{part:?} is not shown:\n{}",
                self.text()
            );
        }
    }

    fn shows(&mut self, part: &str) {
        self.until(part, || {});
    }

    fn press(&mut self, keys: &str) {
        rustix::io::write(&self.master, keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the terminal is as a shell needs it.
    fn is_given_back(&mut self) -> bool {
        while self.read(Duration::from_millis(50)) && self.parser.screen().alternate_screen() {}
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        let screen = self.parser.screen();
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }

    fn end(mut self) -> (ExitStatus, String) {
        let began = Instant::now();
        let status = loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
        };
        while self.read(Duration::ZERO) && !self.is_given_back() {
            assert!(began.elapsed() < PATIENCE, "the terminal is not given back");
        }
        assert!(self.is_given_back());
        (status, self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

fn parser(width: u16, height: u16) -> vt100::Parser {
    vt100::Parser::new(cells(height), cells(width), 0)
}

fn winsize(width: u16, height: u16) -> Winsize {
    Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 }
}

const FAST: [&str; 2] = ["--interval", "0.05"];

#[test]
fn the_screen_follows_the_machine_and_the_keys() {
    let machine = server_with(224);
    let mut terminal =
        Terminal::start((80, 24), &["--sysroot", path(&machine), FAST[0], FAST[1]], &[]);
    terminal.shows("intel_idle, menu, 224 CPUs");
    assert!(terminal.parser.screen().alternate_screen());
    terminal.until("deep 31.0 %", || play(&machine));
    terminal.until("limits: machine ", || {});
    terminal.press("g");
    terminal.shows("group: cache");
    terminal.press("g");
    terminal.shows("package 1");
    terminal.press("gg");
    terminal.press("s");
    terminal.shows("sort: running");
    terminal.press("/");
    terminal.shows("filter: _");
    terminal.press("2-3,x\r");
    terminal.shows("give CPUs such as");
    terminal.press("\u{7f}\u{7f}\r");
    terminal.until("/ filter: 2-3", || machine.pass(0.1));
    terminal.press("?");
    terminal.shows("Press any key to go on.");
    terminal.press("x ");
    terminal.shows("PAUSED");
    // A smaller terminal, one that is too small, and a large one.
    for ((width, height), part) in
        [((60, 12), "? help"), ((30, 5), "too small: 30x5"), ((180, 40), "rejected")]
    {
        terminal.parser.screen_mut().set_size(cells(height), cells(width));
        tcsetwinsize(&terminal.master, winsize(width, height)).unwrap();
        terminal.shows(part);
    }
    terminal.press("q");
    let (status, _) = terminal.end();
    assert!(status.success());
}

#[test]
fn the_terminal_is_given_back_on_every_way_out() {
    let machine = server();
    let arguments = ["--sysroot", path(&machine), FAST[0], FAST[1]];
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = Terminal::start((80, 24), &arguments, &[]);
        terminal.shows("8 CPUs");
        terminal.signal(signal);
        assert!(terminal.end().0.success(), "{signal:?}");
    }
    let mut terminal = Terminal::start((80, 24), &arguments, &[]);
    terminal.shows("8 CPUs");
    terminal.press("\u{3}");
    assert!(terminal.end().0.success(), "ctrl-c");
    // What is wrong is said on the screen that stays.
    if cfg!(debug_assertions) {
        let terminal = Terminal::start((80, 24), &arguments, &[("IDLEWISE_WATCH_PANIC", "1")]);
        let (status, text) = terminal.end();
        assert_eq!(status.code(), Some(101));
        assert!(text.contains("a panic, asked for by a test"), "{text}");
    }
}

#[test]
fn stopping_gives_the_terminal_back_until_it_goes_on() {
    let machine = server();
    let mut terminal =
        Terminal::start((80, 24), &["--sysroot", path(&machine), FAST[0], FAST[1]], &[]);
    for by_key in [true, false] {
        terminal.shows("8 CPUs");
        if by_key {
            terminal.press("\u{1a}")
        } else {
            terminal.signal(Signal::TSTP)
        }
        let pid = Pid::from_child(&terminal.child);
        let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
        assert!(terminal.is_given_back());
        terminal.parser = parser(80, 24);
        terminal.signal(Signal::CONT);
    }
    terminal.shows("8 CPUs");
    assert!(terminal.parser.screen().alternate_screen());
    terminal.press("q");
    assert!(terminal.end().0.success());
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_a_table() {
    let machine = server();
    let arguments = ["--sysroot", path(&machine), FAST[0], FAST[1], "--cpus", "0-1"];
    let (status, text) = while_playing_time(&machine, || {
        Terminal::start((80, 24), &arguments, &[("TERM", "dumb")]).end()
    });
    assert!(status.success());
    assert!(text.contains("Measured:"), "{text}");
}

#[test]
fn no_color_is_obeyed() {
    let machine = server();
    let arguments = ["--sysroot", path(&machine), FAST[0], FAST[1]];
    for (variables, has_colours) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut terminal = Terminal::start((80, 24), &arguments, variables);
        terminal.until("deep 31.0 %", || play(&machine));
        let screen = terminal.parser.screen();
        let cells =
            (0..24).flat_map(|row| (0..80).filter_map(move |column| screen.cell(row, column)));
        let is_coloured =
            cells.map(vt100::Cell::bgcolor).any(|ground| ground != vt100::Color::Default);
        assert_eq!(is_coloured, has_colours);
        terminal.press("q");
        terminal.end();
    }
}

/// Recording needs root and tracefs. Without, the screen says so and goes on.
#[test]
fn a_key_records_or_says_why_not() {
    let machine = server();
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--sysroot", path(&machine), FAST[0], FAST[1]];
    let mut terminal = Terminal::start_in(folder.path(), (100, 24), &arguments, &[]);
    terminal.shows("8 CPUs");
    terminal.press("r");
    let began = Instant::now();
    let ends = ["RECORDING", "not recorded: "];
    while !ends.iter().any(|end| terminal.text().contains(end)) {
        terminal.read(Duration::from_millis(20));
        assert!(began.elapsed() < PATIENCE, "{}", terminal.text());
    }
    let recording = terminal.text().contains("RECORDING");
    terminal.press("q");
    let (status, text) = terminal.end();
    assert!(status.success());
    if recording {
        assert!(
            text.contains("recorded into watch-1.dat") || text.contains("not recorded: "),
            "{text}"
        );
    }
}

/// `idlewise watch --serve` on a port of its own.
pub struct Server {
    child: Child,
    address: SocketAddr,
    _stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    pub fn start(machine: &CapturedMachine) -> Self {
        Self::start_with(machine, &[])
    }

    fn start_with(machine: &CapturedMachine, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["watch", "--sysroot", path(machine), "--serve", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("http://").unwrap_or_else(|| panic!("{line}"));
        let address = rest.split('/').next().unwrap().parse().unwrap();
        Server { child, address, _stderr: stderr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The head and the body of an answer.
    pub fn ask(&self, request: &str) -> (String, String) {
        let (head, body) = self.ask_bytes(request);
        (head, String::from_utf8(body).unwrap())
    }

    fn ask_bytes(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap(), body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
const OPEN_METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";

#[test]
fn prometheus_gets_the_counters_in_both_forms() {
    let machine = server();
    machine.write("sys/devices/system/cpu/cpu7/power/pm_qos_resume_latency_us", "20\n");
    let server = Server::start(&machine);
    let (head, body) = server.ask(METRICS);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    for line in [
        "idlewise_state_entries_total{cpu=\"7\",package=\"1\",state=\"C6\"} 9\n",
        "idlewise_state_residency_seconds_total{cpu=\"0\",package=\"0\",state=\"C6\"} 0.009\n",
        "idlewise_state_too_deep_total{cpu=\"0\",package=\"0\",state=\"C6\"} 1\n",
        "idlewise_state_too_shallow_total{cpu=\"0\",package=\"0\",state=\"C1\"} 3\n",
        "idlewise_state_exit_latency_seconds{state=\"C6\",cpus=\"0-7\"} 0.00029\n",
        "idlewise_cpu_latency_limit_seconds{cpu=\"7\",package=\"1\"} 0.00002\n",
        "idlewise_cpuidle_info{driver=\"intel_idle\",governor=\"menu\",kernel=\"none\"} 1\n",
    ] {
        assert!(body.contains(line), "{line}");
    }
    assert!(
        !body.contains("# EOF") && !body.contains("idlewise_cpu_latency_limit_seconds{cpu=\"6\"")
    );
    let (head, open) = server.ask(OPEN_METRICS);
    assert!(head.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(
        open.ends_with("# EOF\n")
            && open.contains("# UNIT idlewise_state_residency_seconds seconds\n")
    );
    let length = format!("Content-Length: {}", open.len());
    assert!(head.contains(&length), "{head}");
}

/// A machine with 224 CPUs has 24 counters of each, and nothing of each that is the same for all or follows from others.
#[test]
fn nothing_is_served_twice_and_groups_have_fewer_samples() {
    let machine = CapturedMachine::grown("server-ice-lake", 224);
    let samples = |options: &[&str]| {
        let (_, body) = Server::start_with(&machine, options).ask(METRICS);
        let lines = body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let of_cpus = samples(&[]);
    // Six of each of four states, and whether the CPU can be read.
    assert_eq!(of_cpus.iter().filter(|line| line.contains("cpu=\"")).count(), 224 * (6 * 4 + 1));
    assert!(of_cpus.len() < 224 * 25 + 20, "{}", of_cpus.len());
    assert!(
        of_cpus.contains(
            &"idlewise_state_entries_total{cpu=\"60\",package=\"1\",core=\"4\",state=\"C6\"} 11925"
                .to_owned()
        )
    );
    let of_packages = samples(&["--group", "package"]);
    let sum = 112 * 11_925;
    for package in [0, 1] {
        let line =
            format!("idlewise_state_entries_total{{package=\"{package}\",state=\"C6\"}} {sum}");
        assert!(of_packages.contains(&line), "{of_packages:#?}");
    }
    let of_machine = samples(&["--group", "machine"]);
    let line = format!("idlewise_state_entries_total{{state=\"C6\"}} {}", 2 * sum);
    assert!(of_machine.contains(&line), "{of_machine:#?}");
    assert!(of_machine.contains(&"idlewise_cpu_readable 224".to_owned()), "{of_machine:#?}");
    assert!(
        of_packages.len() < 80 && of_machine.len() < 50,
        "{} {}",
        of_packages.len(),
        of_machine.len()
    );
}

/// Prometheus would count all that is left once more. Some machines remove the states of a CPU that is offline, and count
/// from 0 when it is back.
#[test]
fn a_sum_does_not_fall_while_a_cpu_is_offline() {
    for (keeps_states, back) in [(true, 77), (false, 86)] {
        let machine = server();
        let server = Server::start_with(&machine, &["--group", "machine"]);
        let until = |wanted: (u64, u64)| {
            let began = Instant::now();
            loop {
                let (_, body) = server.ask(METRICS);
                let find = |name: &str| {
                    let line = body.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                    line.trim().parse::<u64>().unwrap()
                };
                let entries = find("idlewise_state_entries_total{state=\"C6\"}");
                let now = (entries, find("idlewise_cpu_readable"));
                if now == wanted {
                    break;
                }
                assert!(72 <= entries && entries <= wanted.0, "{now:?}");
                // It reads at most once a second.
                assert!(began.elapsed() < PATIENCE, "{now:?}");
                std::thread::yield_now();
            }
        };
        until((72, 8));
        let cpu = "sys/devices/system/cpu/cpu7";
        let [states, away] =
            [format!("{cpu}/cpuidle"), format!("{cpu}/away")].map(|name| machine.path().join(name));
        machine.count("0", 3, More { usage: 5, ..More::default() });
        if !keeps_states {
            fs::rename(&states, &away).unwrap();
            fs::remove_file(machine.path().join(format!("{cpu}/topology/physical_package_id")))
                .unwrap();
        }
        machine.set_online("0-6");
        until((77, 7));
        if !keeps_states {
            fs::rename(&away, &states).unwrap();
            machine.write(&state_file(7, 3, "usage"), "0\n");
        }
        machine.set_online("0-7");
        until((77, 8));
        if !keeps_states {
            machine.write(&state_file(7, 3, "usage"), "9\n");
        }
        until((back, 8));
    }
}

/// Each package has its memory.
#[test]
fn the_energy_of_each_package_has_a_name_of_its_own() {
    let machine = server();
    for (zone, name) in [("0", "package-0"), ("0:0", "dram"), ("1", "package-1"), ("1:0", "dram")] {
        let folder = format!("sys/class/powercap/intel-rapl:{zone}");
        machine.write(&format!("{folder}/name"), &format!("{name}\n"));
        machine.write(&format!("{folder}/energy_uj"), "1000\n");
    }
    let (_, body) = Server::start_with(&machine, &["--group", "package"]).ask(METRICS);
    for domain in ["package-0", "package-0-dram", "package-1", "package-1-dram"] {
        let sample = format!("idlewise_energy_joules_total{{domain=\"{domain}\"}} 0\n");
        assert_eq!(body.matches(&sample).count(), 1, "{body}");
    }
    let out = while_playing_time(&machine, || {
        stdout(&["watch", "--sysroot", path(&machine), "--json", "--count", "1"])
    });
    let document: Value = serde_json::from_str(&out).unwrap();
    let places: Vec<&str> = document["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["place"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["package 0", "package 0 dram", "package 1", "package 1 dram"]);
}

#[test]
fn a_client_that_takes_gzip_gets_it() {
    let machine = CapturedMachine::grown("server-ice-lake", 224);
    let server = Server::start(&machine);
    let request = METRICS.replace("\r\n\r\n", "\r\nAccept-Encoding: deflate, gzip;q=1.0\r\n\r\n");
    let (head, packed) = server.ask_bytes(&request);
    assert!(
        head.contains("\r\nContent-Encoding: gzip\r\n")
            && head.contains("\r\nVary: Accept, Accept-Encoding\r\n"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}", packed.len())), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let (head, plain) = server.ask(METRICS);
    assert!(!head.contains("Content-Encoding"), "{head}");
    let without_time = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("idlewise_read"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(without_time(&text), without_time(&plain));
    assert!(packed.len() * 8 < plain.len(), "{} of {}", packed.len(), plain.len());
}

/// A page of another site whose name leads here for a while (DNS rebinding) reads nothing.
#[test]
fn a_foreign_name_gets_nothing() {
    let machine = server();
    let server = Server::start_with(&machine, &["--allow-host", "Server1.example.org"]);
    let ask = |host: &str| server.ask(&METRICS.replace("localhost", host));
    for host in ["evil.example", "evil.example:9737", "localhost.evil.example"] {
        let (head, body) = ask(host);
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
        assert_eq!(body.lines().count(), 1, "{body}");
        assert!(body.contains("--allow-host") && !body.contains("evil"), "{body}");
    }
    for host in ["localhost:9737", "127.0.0.1", "[::1]:9737", "server1.example.org:9737"] {
        assert!(ask(host).0.starts_with("HTTP/1.1 200 OK\r\n"), "{host}");
    }
    let refused = ["watch", "--sysroot", path(&machine), "--allow-host", "a"];
    assert_eq!(crate::failure(&refused).0, Some(2), "it is for --serve only");
}

/// Without /proc/stat, nobody knows what a CPU did that counted nothing.
#[test]
fn what_is_not_known_to_be_idle_is_not_shown_as_running() {
    let machine = server();
    assert!(!machine.path().join("proc/stat").exists() && !machine.path().join("dev").exists());
    let mut watching = Watching::start(&machine, &[]);
    let is_played = |document: &Value| document["cpus"][0]["entries_per_s"].as_f64() > Some(0.0);
    let document = watching.until("figures", || play(&machine), is_played);
    assert!(document["cpus"][7]["running_ratio"].is_null(), "{document:#}");
    assert!(document["cpus"][7]["open_ratio"].is_null(), "{document:#}");
    let doubts = document["doubts"].to_string();
    assert!(doubts.contains("/proc/stat cannot be read"), "{doubts}");
    assert!(
        doubts.contains("there is no /dev/cpu_dma_latency") && !doubts.contains("only root"),
        "{doubts}"
    );
    let text = while_playing(&machine, || {
        stdout(&["watch", "--once", "--sysroot", path(&machine), FAST[0], FAST[1]])
    });
    assert!(text.contains("? not known"), "{text}");
    assert!(text.contains("?????"), "{text}");
}

#[test]
fn slow_and_hostile_clients_do_not_stop_it() {
    let machine = server();
    let server = Server::start(&machine);
    // More than it keeps: some say nothing, some ask and do not read, some never end their request.
    let held: Vec<TcpStream> = (0..60)
        .map(|number| {
            let mut stream = server.connect();
            let request = ["", METRICS, "GET /metrics HTTP/1.1\r\nA: "][number % 3];
            // It may have been cut off by now.
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        assert!(server.ask(METRICS).0.starts_with("HTTP/1.1 200"));
    }
    for noise in [
        &[0_u8; 100][..],
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        &[b'a'; 20_000],
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(noise);
        // What it answers does not matter, if it goes on.
        let _ = stream.read(&mut [0; 100]);
    }
    // Reset instead of closed.
    for stream in held {
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
    assert!(server.ask(OPEN_METRICS).1.ends_with("# EOF\n"));
    let statm = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let peak = statm.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < 100 << 10, "{peak_kb} kB");
}

#[test]
fn serves_others_only_if_it_is_told_so_and_ends_by_a_signal() {
    let machine = server();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let sysroot = ["watch", "--sysroot", path(&machine), "--serve"];
    let refused =
        |address: &str, parts: &[&str]| assert_refused(&[&sysroot[..], &[address]].concat(), parts);
    refused(&address, &["in use", "choose another port"]);
    refused("0.0.0.0:0", &["--allow-remote"]);
    refused("192.0.2.1:0", &["--allow-remote"]);
    let mut server = Server::start(&machine);
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert!(server.child.wait().unwrap().success());
}

/// The dashboard in docs names only metrics and labels that exist.
#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let text = fs::read_to_string(root().join("docs/watch/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, &mut expressions);
    assert!(expressions.len() >= 8, "{expressions:?}");
    let names: Vec<String> =
        FAMILIES.iter().map(|family| family.sample_name().into_owned()).collect();
    let mut used = Vec::new();
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("idlewise_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(names.iter().any(|name| name == metric), "{metric}: {expression}");
            used.push(metric.to_owned());
        }
        // What stands before = in braces, and after `by`, are labels.
        let labels =
            expression.split(['{', '(', ',']).filter_map(|part| part.trim().split_once(['=', '~']));
        for (label, _) in labels {
            let label = label.trim_end_matches(['!', ' ']);
            let known = [
                "cpu", "cpus", "package", "core", "state", "domain", "driver", "governor",
                "kernel", "instance", "job",
            ];
            assert!(known.contains(&label), "{label}: {expression}");
        }
    }
    for needed in [
        "residency",
        "entries",
        "too_deep",
        "too_shallow",
        "exit_latency",
        "latency_limit",
        "energy",
    ] {
        assert!(used.iter().any(|name| name.contains(needed)), "nothing of {needed}");
    }
}

#[test]
fn the_guide_lists_every_metric_with_its_labels() {
    let guide = fs::read_to_string(root().join("docs/watch.md")).unwrap();
    for family in FAMILIES {
        let labels = match family.labels {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let name = format!("`{}{labels}`", family.sample_name());
        assert!(guide.contains(&name), "{name}");
    }
}

/// All values of `expr`, and the queries of variables.
fn collect(value: &Value, expressions: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text)
                        if name == "expr" || name == "query" && text.contains("idlewise_") =>
                    {
                        expressions.push(text.clone());
                    }
                    value => collect(value, expressions),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, expressions)),
        _ => {}
    }
}
