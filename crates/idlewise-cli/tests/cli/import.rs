//! `idlewise log import`: recordings become logs, invalid ones are refused, and an independent reader
//! of the same recording finds the same gaps.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;
use idlewise_trace::log::IdleLog;
use idlewise_trace::{IdleGap, WakeReason};
use liblzma::read::XzDecoder;

use crate::{
    OwnFile, assert_refused, failure, folder, idlewise, manifest_rows, recording, root, stdout,
    unpacked,
};

pub fn gaps(log: &IdleLog) -> Vec<IdleGap> {
    let (mut all, mut some) = (Vec::new(), Vec::new());
    for group in log.groups() {
        log.read_group(group, all.last(), &mut some).unwrap();
        all.extend_from_slice(&some);
    }
    all
}

#[test]
fn makes_the_bundled_logs_of_the_bundled_recordings() {
    for (name, log) in manifest_rows() {
        let folder = folder();
        let output = folder.path().join("log.parquet");
        let recording = format!("traces/{name}");
        stdout(&["log", "import", &recording, "-o", output.to_str().unwrap()]);
        let bundled = IdleLog::open(&root().join("traces").join(log)).unwrap();
        let made = IdleLog::open(&output).unwrap();
        // The gaps and metadata are the same. Bytes may differ with the compressor's version.
        assert_eq!(gaps(&made), gaps(&bundled), "{name}: run `make golden`");
        assert_eq!(made.metadata, bundled.metadata, "{name}: run `make golden`");
        let ratio = made.metadata.source.byte_count / fs::metadata(&output).unwrap().len();
        // The pages in version 7 of trace.dat are themselves compressed.
        let least = if name.contains("-v7.") { 5 } else { 20 };
        assert!(ratio >= least, "{name}: a log is to be 1/{least} of its recording, not 1/{ratio}");
    }
}

/// A stay of CPU 0 parsed from the output of `perf script` by string matching. It shares no code
/// with the importer, and takes the kernel's function addresses from traces/symbols.tsv.
#[derive(Default)]
struct NaiveGap {
    start_ns: i64,
    exit_ns: Option<i64>,
    interrupt: Option<(i64, bool)>,
    timer_fired: bool,
}

#[derive(Default)]
struct Naive {
    stay_count: u64,
    stay_sum_ns: i64,
    gaps: Vec<(i64, i64)>,
    open: Option<NaiveGap>,
    entered_ns: i64,
}

impl Naive {
    fn close(&mut self) {
        let Some(gap) = self.open.take() else { return };
        let signs = [gap.exit_ns, gap.interrupt.map(|(at_ns, _)| at_ns)];
        let end_ns = signs.into_iter().flatten().min().unwrap_or(gap.start_ns);
        self.gaps.push((gap.start_ns, end_ns.max(self.entered_ns)));
    }

    fn read(text: &str) -> Naive {
        const TICK: &str = "function=0xffffffff814330e0";
        // tcp_orphan_update is the only deferrable timer in these recordings.
        const DEFERRABLE: &str = "function=0xffffffff82010e10";
        const TIMER_VECTOR: &str = "irq_vectors:local_timer_entry:";
        let mut naive = Naive::default();
        for line in text.lines().filter(|line| line.contains(" [000] ")) {
            let (_, rest) = line.split_once("[000]").unwrap();
            let (time, event) = rest.trim().split_once(": ").unwrap();
            let (seconds, nanos) = time.split_once('.').unwrap();
            let at_ns =
                seconds.parse::<i64>().unwrap() * 1_000_000_000 + nanos.parse::<i64>().unwrap();
            let event = event.trim();
            if event.starts_with("power:cpu_idle:") && event.contains("state=4294967295") {
                if let Some(gap) = &mut naive.open {
                    gap.exit_ns = gap.exit_ns.or(Some(at_ns));
                    naive.stay_sum_ns += at_ns - naive.entered_ns;
                }
            } else if event.starts_with("power:cpu_idle:") {
                naive.stay_count += 1;
                match naive.open.as_mut() {
                    // Only the tick: the gap continues.
                    Some(gap)
                        if gap.interrupt.is_none_or(|(_, timer)| timer) && !gap.timer_fired =>
                    {
                        gap.exit_ns = None;
                        gap.interrupt = None;
                    }
                    Some(_) => naive.close(),
                    None => {}
                }
                naive.open.get_or_insert(NaiveGap { start_ns: at_ns, ..NaiveGap::default() });
                naive.entered_ns = at_ns;
            } else if event.starts_with("sched:sched_switch:") && !event.contains("next_pid=0 ") {
                naive.close();
            } else if let Some(gap) = &mut naive.open {
                let is_timer = event.starts_with(TIMER_VECTOR);
                if event.starts_with("irq_vectors:") || event.starts_with("irq:irq_handler_entry:")
                {
                    gap.interrupt.get_or_insert((at_ns, is_timer));
                }
                let fired = event.starts_with("timer:hrtimer_expire_entry:")
                    && !event.contains(TICK)
                    || event.starts_with("timer:timer_expire_entry:")
                        && !event.contains(DEFERRABLE);
                gap.timer_fired |= fired;
            }
        }
        naive
    }
}

#[test]
fn agrees_with_an_independent_reading_of_perf_script() {
    if Command::new("perf").arg("--version").output().is_err() {
        // `make setup` installs it; see the Makefile.
        eprintln!("SKIPPED: perf is not installed, so nothing independent read the recording");
        return;
    }
    for name in ["s-softirq500", "h-pingpong", "a-idle"] {
        let data = OwnFile::new("perf.data", recording(name));
        let script = Command::new("perf")
            // Addresses, even where the kernel that runs is the recorded one.
            .args(["script", "--kallsyms=/dev/null", "--ns"])
            .args(["-F", "comm,pid,cpu,time,event,trace", "-i", data.path()])
            .output()
            .unwrap();
        assert_agrees(name, &Naive::read(&String::from_utf8_lossy(&script.stdout)));
    }
}

#[test]
fn agrees_with_an_independent_reading_of_trace_cmd_report() {
    if Command::new("trace-cmd").arg("--version").output().is_err() {
        // `make setup` installs it; see the Makefile.
        eprintln!("SKIPPED: trace-cmd is not installed, so nothing independent read the recording");
        return;
    }
    for name in ["k-pingpong-v6", "k-pingpong-v7"] {
        let data = OwnFile::new("trace.dat", unpacked(&format!("{name}.trace.dat")));
        // With nanoseconds and raw fields.
        let report = Command::new("trace-cmd")
            .args(["report", "-t", "-R", "-i", data.path()])
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&report.stdout);
        let events = report.lines().filter_map(|line| {
            let (head, event) = line.split_once(": ")?;
            let (name, fields) = event.trim_start().split_once(':')?;
            let system = match name {
                "cpu_idle" => "power",
                "sched_switch" => "sched",
                "irq_handler_entry" => "irq",
                name if name.starts_with("hrtimer_") || name.starts_with("timer_") => "timer",
                name if name.ends_with("_entry") => "irq_vectors",
                _ => "other",
            };
            Some(format!("{head}: {system}:{name}:{fields}\n"))
        });
        assert_agrees(name, &Naive::read(&events.collect::<String>()));
    }
}

/// Asserts that the bundled log has the gaps that a naive reader of its recording found.
fn assert_agrees(name: &str, naive: &Naive) {
    let log = IdleLog::open(&root().join(format!("traces/{name}.parquet"))).unwrap();
    let ours = gaps(&log);
    let cpu = &log.metadata.cpus[0];

    assert_eq!(naive.stay_count, cpu.idle_entry_count, "{name}: idle entries");
    let starts_ns: Vec<i64> = ours.iter().map(|gap| gap.start_ns).collect();
    let naive_starts_ns: Vec<i64> = naive.gaps.iter().map(|gap| gap.0).collect();
    assert_eq!(starts_ns, naive_starts_ns, "{name}: where gaps start");
    let mut timer_lateness_ns = Vec::new();
    for (gap, &(start_ns, end_ns)) in ours.iter().zip(&naive.gaps) {
        let gap_end_ns = gap.start_ns + gap.gap_ns as i64;
        match gap.wake_reason {
            // The expiry comes before its interrupt.
            WakeReason::Timer => timer_lateness_ns.push(end_ns - gap_end_ns),
            _ => assert_eq!(gap_end_ns, end_ns, "{name}: gap from {start_ns}"),
        }
    }
    timer_lateness_ns.sort_unstable();
    let median_ns = timer_lateness_ns[timer_lateness_ns.len() / 2];
    // An interrupt serves all timers that are due when it checks, microseconds after its entry.
    assert!(timer_lateness_ns[0] > -20_000, "{name}: {}", timer_lateness_ns[0]);
    assert!((0..100_000).contains(&median_ns), "{name}: {median_ns}");
    let ours_sum_ns: i64 = ours.iter().map(|gap| gap.recorded_idle_ns.unwrap() as i64).sum();
    // The last stay may still be open when the recording ends.
    assert!((naive.stay_sum_ns - ours_sum_ns).abs() < 50_000_000, "{name}: idle time");
}

/// For each gap that a timer ended, the sleep length rebuilt at its start must match the expiry.
/// The gap builder's documentation explains the exceptions.
#[test]
fn rebuilds_the_expiries_that_followed() {
    let proven = |name: &str| {
        let log = IdleLog::open(&root().join(format!("traces/{name}.parquet"))).unwrap();
        let gaps = gaps(&log);
        let by_timer = gaps.iter().filter(|gap| gap.wake_reason == WakeReason::Timer);
        let (known, unknown): (Vec<&IdleGap>, _) =
            by_timer.partition(|gap| gap.ended_by_known_timer());
        (known.len(), unknown.len())
    };
    // The others are explained in the gap builder's `builder.rs`.
    let found = ["a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500"].map(proven);
    assert_eq!(found, [(87, 10), (4603, 6), (158, 17), (86, 6), (171, 0)]);
}

#[test]
fn refuses_what_is_no_recording_with_one_line() {
    for (name, content, found) in [
        ("empty.data", &b""[..], "empty"),
        ("text.data", &b"swapper     0 [000]  4095.340497: power:cpu_idle: state=1"[..], "found"),
        ("elf.data", &b"\x7fELF\x02\x01\x01"[..], "ELF"),
    ] {
        let file = OwnFile::new(name, content);
        let output = file.0.with_extension("parquet");
        assert_refused(
            &["log", "import", file.path(), "-o", output.to_str().unwrap()],
            &[name, found],
        );
        assert!(!output.exists(), "nothing half-written");
    }
    assert_refused(&["log", "import", "no-such-file"], &["no-such-file", "No such file"]);
}

#[test]
fn imports_what_is_whole_of_a_truncated_recording() {
    let whole = recording("s-softirq500");
    let folder = folder();
    let output = folder.path().join("log.parquet");
    // perf writes the event formats last. Without them nothing can be decoded, as the error says.
    let cut = OwnFile::new("cut.perf.data", &whole[..whole.len() / 2]);
    let output_path = output.to_str().unwrap();
    let import = ["log", "import", cut.path(), "-o", output_path];
    assert_refused(&import, &["cut.perf.data", "--formats-from"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing half-written");

    // Those of another recording of the same kernel can be used.
    let other = "traces/a-idle.perf.data.xz";
    let said = stdout(&[&import[..], &["--doubts", "--formats-from", other]].concat());
    assert!(said.contains("cut short at byte") && said.contains("another recording"), "{said}");
    let whole = IdleLog::open(&root().join("traces/s-softirq500.parquet")).unwrap();
    let (whole, cut) = (gaps(&whole), gaps(&IdleLog::open(&output).unwrap()));
    // All gaps except the last, whose timer events are lost, are those of the whole file.
    let is_same =
        |gap: &IdleGap| whole.iter().any(|w| (w.start_ns, w.gap_ns) == (gap.start_ns, gap.gap_ns));
    let same_count = cut.iter().filter(|gap| is_same(gap)).count();
    assert!(cut.len() > 1_000 && cut.len() <= whole.len(), "{} gaps", cut.len());
    assert!(same_count + 10 >= cut.len(), "{same_count} of {} gaps", cut.len());

    // A file of another kind has no event formats.
    assert_refused(
        &[&import[..], &["--force", "--formats-from", "README.md"]].concat(),
        &["README.md", "found text"],
    );
}

#[test]
fn keeps_an_existing_log_without_force() {
    let log = OwnFile::new("log.parquet", "precious");
    let recording = "traces/a-idle.perf.data.xz";
    assert_refused(&["log", "import", recording, "-o", log.path()], &["log.parquet", "--force"]);
    let nowhere = "no-such-folder/log.parquet";
    assert_refused(
        &["log", "import", recording, "-o", nowhere],
        &[nowhere, "folder does not exist"],
    );
    assert_eq!(fs::read(&log.0).unwrap(), b"precious");
    stdout(&["log", "import", recording, "-o", log.path(), "--force"]);
    assert!(IdleLog::open(&log.0).is_ok());
}

/// A file size limit simulates a full disk: the write fails half-way at the same point.
#[test]
fn leaves_nothing_behind_when_the_disk_is_full() {
    let folder = folder();
    let output = folder.path().join("log.parquet");
    let recording = OwnFile::new("perf.data", recording("s-softirq500"));
    let script = format!(
        "trap '' XFSZ; ulimit -f 16; exec '{}' log import '{}' -o '{}'",
        env!("CARGO_BIN_EXE_idlewise"),
        recording.path(),
        output.display(),
    );
    let result = Command::new("sh").args(["-c", &script]).output().unwrap();
    let message = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(2), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("log.parquet"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing half-written");
}

#[test]
fn refuses_a_recorded_machine_that_lacks_a_recorded_state() {
    let one_state = "id = \"one\"\ntitle = \"One state\"\narch = \"x86\"\nsource = \"invented\"\n\
                     [[states]]\nname = \"POLL\"\nexit_latency_us = 0\n\
                     target_residency_us = 0\nflags = [\"polling\"]\n";
    let machine = OwnFile::new("one.toml", one_state);
    let folder = folder();
    let output = folder.path().join("log.parquet");
    assert_refused(
        &[
            "log",
            "import",
            "traces/a-idle.perf.data.xz",
            "--recorded-machine",
            machine.path(),
            "-o",
            output.to_str().unwrap(),
        ],
        &["a-idle.perf.data.xz", "enters state 1", "--recorded-machine"],
    );
}

/// Two tasks of two CPUs take turns for ten seconds, and nobody is idle but CPU 1, if asked to be.
fn busy_text(idle: &str) -> String {
    let turns = (0..200).map(|turn| {
        let (cpu, [from, to]) = (turn % 2, if turn % 4 < 2 { ["a", "b"] } else { ["b", "a"] });
        let at = 10.0 + f64::from(turn) / 20.0;
        format!(
            "{from}-10{cpu} [00{cpu}] d..2 {at:.6}: sched_switch: prev_comm={from} prev_pid=10{cpu} prev_prio=120 \
             prev_state=R ==> next_comm={to} next_pid=20{cpu} next_prio=120\n"
        )
    });
    turns.chain([idle.to_owned()]).collect()
}

/// The cause is that there is nothing, not that the recorder is to blame.
#[test]
fn a_machine_that_was_never_idle_is_said_to_be_busy() {
    // The recorded event is another CPU's, which is not idle.
    let text = busy_text("a-100 [000] d..2 20.000000: cpu_idle: state=4294967295 cpu_id=0\n");
    let text = OwnFile::new("busy.txt", text);
    let output = text.0.with_extension("parquet");
    let output = output.to_str().unwrap();
    let path = text.path();
    for arguments in [
        &["info", path][..],
        &["log", "validate", path],
        &["replay", path],
        &["replay", "--compare", path],
        &["replay", "--rank", path],
        &["report", path, "-o", output],
        &["advise", path],
        &["log", "import", path, "-o", output],
        &["log", "export", path, "--format", "csv", "-o", output],
    ] {
        assert_refused(arguments, &["CPUs 0-1 were never idle in these 10.0 s"]);
    }
    // CPU 1 is idle once, and nobody knows for how long.
    let text = busy_text("<idle>-0 [001] d..1 30.000000: cpu_idle: state=1 cpu_id=1\n");
    let text = OwnFile::new("one-stay.txt", text);
    for command in [&["replay"][..], &["replay", "--compare"], &["replay", "--rank"]] {
        assert_refused(
            &[command, &[text.path()]].concat(),
            &["one-stay: no idle period of CPUs 0-1 began and ended", "nothing to judge"],
        );
    }
}

/// A damaged event must not prevent the import, nor make the importer ask for a machine.
#[test]
fn a_state_that_no_driver_has_is_a_doubt() {
    let line =
        |at, state| format!("<idle>-0 [000] d..1 1.{at}: cpu_idle: state={state} cpu_id=0\n");
    let entries = [("100000", 1), ("300000", 4_096), ("500000", 1), ("700000", 1)];
    let exits = ["200000", "400000", "600000"].map(|at| line(at, u32::MAX));
    let lines = entries.iter().map(|&(at, state)| line(at, state)).zip(exits);
    let text =
        OwnFile::new("trace.txt", lines.map(|(entry, exit)| entry + &exit).collect::<String>());
    let output = text.0.with_extension("parquet");
    let said = stdout(&["log", "import", text.path(), "--doubts", "-o", output.to_str().unwrap()]);
    assert!(said.contains("enters state 4096 at 1300000000 ns"), "{said}");
    let states: Vec<_> =
        gaps(&IdleLog::open(&output).unwrap()).iter().map(|gap| gap.recorded_state).collect();
    assert_eq!(states, [Some(1), None]);
}

#[test]
fn output_is_the_same_each_time() {
    let runs: HashSet<Vec<u8>> = (0..2)
        .map(|_| {
            let folder = folder();
            let output = folder.path().join("log.parquet");
            idlewise(&[
                "log",
                "import",
                "traces/b-redis.perf.data.xz",
                "-o",
                output.to_str().unwrap(),
            ]);
            fs::read(output).unwrap()
        })
        .collect();
    assert_eq!(runs.len(), 1);
}

/// Each bundled text recording, and the number of CPU 0's idle entries, counted in its lines.
fn texts() -> [(String, usize); 2] {
    ["k-pingpong-v7.trace-cmd-report", "l-pingpong.tracefs"].map(|name| {
        let packed = fs::File::open(root().join(format!("traces/{name}.txt.xz"))).unwrap();
        let mut text = String::new();
        XzDecoder::new(packed).read_to_string(&mut text).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines = text.lines().map(words);
        let entry_count = lines.filter(|line| line.ends_with("cpu_idle: state=1 cpu_id=0")).count();
        (text, entry_count)
    })
}

#[test]
fn reads_texts_packed_in_every_way() {
    for (text, entry_count) in texts() {
        let packed = [
            ("plain.txt", text.clone().into_bytes()),
            ("gzip.txt.gz", {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(text.as_bytes()).unwrap();
                encoder.finish().unwrap()
            }),
            ("zstd.txt.zst", zstd::encode_all(text.as_bytes(), 1).unwrap()),
        ];
        let logs = packed.map(|(name, content)| {
            let file = OwnFile::new(name, content);
            let output = file.0.with_extension("parquet");
            stdout(&["log", "import", file.path(), "-o", output.to_str().unwrap()]);
            let log = IdleLog::open(&output).unwrap();
            assert_eq!(log.metadata.source.format, "ftrace-text");
            assert_eq!(log.metadata.hz, Some(250));
            assert_eq!(log.metadata.cpus[0].idle_entry_count, entry_count as u64, "{name}");
            assert!(!log.metadata.cpus[1].observed, "{name}");
            (log.metadata.clone(), gaps(&log))
        });
        assert!(logs.iter().all(|log| *log == logs[0]));
    }
}

#[test]
fn a_packed_file_that_is_cut_is_refused() {
    let packed = fs::read(root().join("traces/l-pingpong.tracefs.txt.xz")).unwrap();
    let gzip = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff".as_slice(), &[0xff; 20]].concat();
    for (name, content) in [("cut.xz", &packed[..packed.len() / 2]), ("broken.gz", &gzip)] {
        let file = OwnFile::new(name, content);
        let output = file.0.with_extension("parquet");
        let arguments = ["log", "import", file.path(), "-o", output.to_str().unwrap()];
        assert_refused(&arguments, &[name, "cannot unpack", "copy the file again"]);
        assert!(!output.exists());
    }
}

#[test]
fn a_format_can_be_named() {
    // The first lines do not show the format.
    let (text, _) = &texts()[1];
    let noise = "something that a script has printed\n".repeat(200);
    let file = OwnFile::new("log.txt", format!("{noise}{text}"));
    let output = file.0.with_extension("parquet");
    let output = output.to_str().unwrap();
    assert_refused(
        &["log", "import", file.path(), "-o", output],
        &["text that begins with \"something that ", "expected perf.data", "ftrace-text"],
    );
    stdout(&["log", "import", file.path(), "--format", "ftrace-text", "-o", output]);
    let (status, message) = failure(&["log", "import", file.path(), "--format", "ftrace"]);
    assert_eq!(status, Some(2));
    assert!(message.contains("[possible values: perf.data, trace.dat, ftrace-text"), "{message}");
}

/// One recording as trace.dat, in nanoseconds, and as text from trace-cmd, in microseconds.
/// trace-cmd 3.1 prints all flags of every timer. The test prints only the relevant flag, for
/// timers that have it in the trace.dat.
#[test]
fn the_text_of_a_recording_gives_the_gaps_of_its_trace_dat() {
    let binary = gaps(&IdleLog::open(&root().join("traces/k-pingpong-v7.parquet")).unwrap());
    let [(text, _), _] = texts();
    let is_deferrable = |line: &str| {
        line.contains("function=tcp_orphan_update ")
            || line.contains("function=delayed_work_timer_fn ")
                && !line.contains("timer=0xffffffff8307f9d8 ")
    };
    let lines = text.lines().map(|line| match line.strip_suffix("flags=D|P|I") {
        Some(line) if is_deferrable(line) => format!("{line}flags=D\n"),
        Some(line) => format!("{line}flags=\n"),
        None => format!("{line}\n"),
    });
    let file = OwnFile::new("report.txt", lines.collect::<String>());
    let output = file.0.with_extension("parquet");
    stdout(&["log", "import", file.path(), "-o", output.to_str().unwrap()]);
    let text = gaps(&IdleLog::open(&output).unwrap());
    assert_eq!(text.len(), binary.len());
    for (text, binary) in text.iter().zip(&binary) {
        let gap = format!("{text:?}\n{binary:?}");
        assert_eq!((text.cpu, text.wake_reason), (binary.cpu, binary.wake_reason), "{gap}");
        assert_eq!(text.recorded_state, binary.recorded_state, "{gap}");
        assert!(text.start_ns.abs_diff(binary.start_ns) <= 1_000, "{gap}");
        assert!(text.gap_ns.abs_diff(binary.gap_ns) <= 1_000, "{gap}");
    }
}

/// A hint names a file that can be read again, so there is none of what went through standard output or into a device.
#[test]
fn what_comes_next_is_said_of_a_file_only() {
    let folder = folder();
    let kept = folder.path().join("kept.parquet");
    let recording = "traces/a-idle.perf.data.xz";
    for (output, is_kept) in [(kept.to_str().unwrap(), true), ("-", false), ("/dev/null", false)] {
        let line = ["log", "import", recording, "--force", "-o", output];
        let output = idlewise(&line);
        assert!(output.status.success(), "{line:?}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(said.contains("Next: idlewise info "), is_kept, "{line:?}: {said}");
    }
}

/// The name may be somebody else's.
#[test]
fn what_comes_next_can_be_pasted() {
    let folder = folder();
    let recording = root().join("traces/a-idle.perf.data.xz");
    let program = Path::new(env!("CARGO_BIN_EXE_idlewise"));
    for name in ["a b.data.xz", "$(touch pasted);'`touch pasted`.data.xz", "-q\u{fc}\n.data.xz"] {
        fs::copy(&recording, folder.path().join(name)).unwrap();
        let imported = Command::new(program)
            .args(["log", "import", "--"])
            .arg(format!("./{name}"))
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8([imported.stdout, imported.stderr].concat()).unwrap();
        let next = said.lines().find_map(|line| line.strip_prefix("Next: "));
        let next = next.unwrap_or_else(|| panic!("{name}: {said}"));
        let shell = Command::new("bash")
            .args(["-ec", &format!("idlewise() {{ \"$PROGRAM\" \"$@\" > /dev/null; }}; {next}")])
            .env("PROGRAM", program)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(shell.status.success(), "{next}: {}", String::from_utf8_lossy(&shell.stderr));
        assert!(!folder.path().join("pasted").exists(), "{next}");
    }
}
