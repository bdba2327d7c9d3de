//! Importing: speed compared with other readers of the same file, memory, and log sizes.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use liblzma::read::XzDecoder;
use linux_perf_data::PerfFileReader;

use crate::figure::{Figure, Goal, median, median_ratio, print, time};
use crate::perf_data::Recording;
use crate::{RECORDINGS, traces};

/// The recording from which long ones are made.
const SOURCE: &str = "e-hackbench.perf.data";
const THROUGHPUT_BYTE_COUNT: u64 = 100_000_000;
const MEMORY_BYTE_COUNT: u64 = 1_000_000_000;
/// Three times the file: the recording, the log with its scratch file, and a margin.
const FREE_BYTE_COUNT_MIN: u64 = 3_000_000_000;
const ROUND_COUNT: usize = 5;

/// Times the import, `perf script` and a bare walk over the records, in turns.
pub fn run_throughput() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("long.perf.data");
    let byte_count =
        Recording::parse(&unpacked(SOURCE)?)?.write_long(&path, THROUGHPUT_BYTE_COUNT)?;
    let has_perf = is_readable_by_perf(&path);
    let mut seconds: [Vec<f64>; 3] = Default::default();
    let [imports, scripts, walks] = &mut seconds;
    let (mut event_count, mut record_count) = (String::new(), 0);
    for _ in 0..ROUND_COUNT {
        let import = import(&path, folder.path())?;
        imports.push(import.seconds);
        event_count = import.event_count;
        let (walk, walked) = time(|| walk(&path));
        record_count = walked?;
        walks.push(walk.as_secs_f64());
        if has_perf {
            let (script, status) = time(|| perf_script(&path));
            if !status? {
                return Err("`perf script` failed on the file it has read before".into());
            }
            scripts.push(script.as_secs_f64());
        }
    }
    let megabytes = byte_count as f64 / 1e6;
    let rate = |seconds: &[f64]| megabytes / median(seconds.iter().copied());
    let figure =
        |what: &str, unit, measured, goal| Figure { what: what.into(), unit, measured, goal };
    let mut figures = vec![
        figure("`idlewise log import`, the whole process", "MB/s", rate(imports), Goal::None),
        figure("linux-perf-data, records alone", "MB/s", rate(walks), Goal::None),
        figure("import / linux-perf-data", "×", median_ratio(walks, imports), Goal::AtLeast(1.0)),
    ];
    if has_perf {
        figures.push(figure("`perf script > /dev/null`", "MB/s", rate(scripts), Goal::None));
        let ratio = median_ratio(scripts, imports);
        figures.push(figure("import / `perf script`", "×", ratio, Goal::AtLeast(8.0)));
    }
    let title = format!(
        "import: {megabytes:.0} MB of perf.data made of {SOURCE}, {record_count} records, \
         {event_count} events used, {ROUND_COUNT} rounds in turns"
    );
    print(&title, &figures);
    if !has_perf {
        println!("SKIPPED: `perf script`: perf is not installed (apt-get install linux-perf), or");
        println!("         it cannot read the file");
    }
    Ok(())
}

/// Imports a large file and measures its memory.
pub fn run_memory() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let free = free_byte_count(folder.path())?;
    if free < FREE_BYTE_COUNT_MIN {
        println!(
            "SKIPPED: memory: {:.1} GB free in {}, {:.0} GB are needed; set TMPDIR",
            free as f64 / 1e9,
            std::env::temp_dir().display(),
            FREE_BYTE_COUNT_MIN as f64 / 1e9,
        );
        return Ok(());
    }
    let recording = Recording::parse(&unpacked(SOURCE)?)?;
    let mut figures = Vec::new();
    for byte_count_min in [THROUGHPUT_BYTE_COUNT, MEMORY_BYTE_COUNT] {
        let path = folder.path().join("long.perf.data");
        let megabytes = recording.write_long(&path, byte_count_min)? as f64 / 1e6;
        let import = import(&path, folder.path())?;
        let is_large = byte_count_min == MEMORY_BYTE_COUNT;
        figures.push(Figure {
            what: format!("peak memory, {megabytes:.0} MB file"),
            unit: "MB",
            measured: import.peak_byte_count as f64 / 1e6,
            goal: if is_large { Goal::AtMost(300.0) } else { Goal::None },
        });
        figures.push(Figure {
            what: format!("`idlewise log import`, {megabytes:.0} MB file"),
            unit: "MB/s",
            measured: megabytes / import.seconds,
            goal: Goal::None,
        });
    }
    print(&format!("memory: importing long files made of {SOURCE}, once each"), &figures);
    Ok(())
}

/// Imports each bundled recording and compares the sizes.
pub fn run_sizes() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut figures = Vec::new();
    for name in RECORDINGS {
        let path = folder.path().join(format!("{name}.perf.data"));
        fs::write(&path, unpacked(&format!("{name}.perf.data"))?)?;
        let byte_count = path.metadata()?.len();
        let log_byte_count = import(&path, folder.path())?.log_byte_count;
        figures.push(Figure {
            what: format!("{name}: {log_byte_count} bytes of {byte_count}"),
            unit: "×",
            measured: log_byte_count as f64 / byte_count as f64,
            goal: Goal::AtMost(1.0 / 20.0),
        });
    }
    print("sizes: idle log / perf.data, bundled recordings", &figures);
    Ok(())
}

/// Reads a bundled recording, named without .xz.
pub fn unpacked(name: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let path = traces().join(format!("{name}.xz"));
    let mut bytes = Vec::new();
    XzDecoder::new(File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The time and memory of a run of `idlewise log import`.
pub struct ImportRun {
    pub seconds: f64,
    pub peak_byte_count: u64,
    log_byte_count: u64,
    pub event_count: String,
}

pub fn import(path: &Path, folder: &Path) -> Result<ImportRun, Box<dyn Error>> {
    let log = folder.join("long.parquet");
    let start = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(["log", "import"]).arg(path).arg("--force").arg("-o").arg(&log);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let (is_success, peak_byte_count) = wait_for_peak(child.id())?;
    let seconds = start.elapsed().as_secs_f64();
    if !is_success {
        return Err(format!("`idlewise log import {}` failed", path.display()).into());
    }
    let opened = idlewise_trace::log::IdleLog::open(&log)?;
    Ok(ImportRun {
        seconds,
        peak_byte_count,
        log_byte_count: log.metadata()?.len(),
        event_count: opened.metadata.source.event_count.to_string(),
    })
}

/// Waits for a child. Returns whether it succeeded, and its peak memory.
pub fn wait_for_peak(child_id: u32) -> Result<(bool, u64), std::io::Error> {
    let mut status = 0;
    // SAFETY: all of `rusage` is plain numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live locals of the right types.
        let waited = unsafe { libc::wait4(child_id as i32, &mut status, 0, &mut usage) };
        if waited >= 0 {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let is_success = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
    // Linux reports it in KiB (getrusage(2)).
    Ok((is_success, usage.ru_maxrss as u64 * 1024))
}

/// Walks over all records of a file without decoding them.
fn walk(path: &Path) -> Result<u64, Box<dyn Error>> {
    let file = BufReader::new(File::open(path)?);
    let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_file(file)?;
    let mut record_count = 0;
    while record_iter.next_record(&mut perf_file)?.is_some() {
        record_count += 1;
    }
    Ok(record_count)
}

fn perf_script(path: &Path) -> std::io::Result<bool> {
    let mut command = Command::new("perf");
    // The user's perf configuration and symbols must have no effect.
    command.args(["script", "-i"]).arg(path).env("PERF_CONFIG", "/dev/null");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}

fn is_readable_by_perf(path: &Path) -> bool {
    perf_script(path).unwrap_or(false)
}

fn free_byte_count(folder: &Path) -> Result<u64, Box<dyn Error>> {
    let folder: PathBuf = folder.canonicalize()?;
    let path = std::ffi::CString::new(folder.into_os_string().into_encoded_bytes())?;
    // SAFETY: all of `statvfs` is plain numbers, for which zeros are valid.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a C string, and the pointer is to a live local.
    if unsafe { libc::statvfs(path.as_ptr(), &mut status) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(status.f_bavail * status.f_frsize)
}
