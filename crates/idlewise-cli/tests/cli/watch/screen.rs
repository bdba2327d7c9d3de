//! Its screen in a pseudo terminal.

use std::fs::File;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::{FAST, PATIENCE, path, play, server, server_with, while_playing_time};

/// `idlewise watch` in a pseudo terminal.
struct Terminal {
    master: OwnedFd,
    parser: vt100::Parser,
    child: Child,
}

impl Terminal {
    fn start(size: (u16, u16), arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_in(Path::new("/"), size, arguments, variables, false)
    }

    /// `is_deaf`: the signal of another size never arrives.
    fn start_in(
        folder: &Path,
        (width, height): (u16, u16),
        arguments: &[&str],
        variables: &[(&str, &str)],
        is_deaf: bool,
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
        // SAFETY: these calls are allowed between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                if is_deaf {
                    let mut set = std::mem::zeroed();
                    libc::sigaddset(&mut set, libc::SIGWINCH);
                    libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
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

    fn resize(&mut self, width: u16, height: u16) {
        self.parser.screen_mut().set_size(cells(height), cells(width));
        tcsetwinsize(&self.master, winsize(width, height)).unwrap();
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
        [((60, 12), "? help"), ((30, 5), "too small: 30x5"), ((180, 40), "refused")]
    {
        terminal.resize(width, height);
        terminal.shows(part);
    }
    terminal.press("q");
    let (status, _) = terminal.end();
    assert!(status.success());
}

/// Also while nothing else changes.
#[test]
fn another_size_is_seen_without_its_signal() {
    let machine = server();
    let arguments = ["--sysroot", path(&machine), FAST[0], FAST[1]];
    let mut terminal = Terminal::start_in(Path::new("/"), (80, 24), &arguments, &[], true);
    terminal.shows("8 CPUs");
    terminal.press(" ");
    terminal.shows("PAUSED");
    terminal.resize(30, 5);
    terminal.shows("too small: 30x5");
    terminal.press("q");
    assert!(terminal.end().0.success());
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
    let mut terminal = Terminal::start_in(folder.path(), (100, 24), &arguments, &[], false);
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
