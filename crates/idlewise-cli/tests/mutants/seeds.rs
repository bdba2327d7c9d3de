//! Recordings and logs to mutate: small ones of every format and form, with which the fuzz targets
//! also begin, and some real ones.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use idlewise_trace::Event;
use idlewise_trace::import::Recording as _;
use idlewise_trace::import::perf::PerfData;

use crate::perfetto_writer::{compact, compressed, file, trace};

pub struct Seed {
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// Whether the file consists of lines with numbers.
    pub is_text: bool,
    pub kind: Kind,
}

/// The kind of a file, which decides which commands take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Recording,
    Log,
    Machine,
    Workload,
}

impl Kind {
    /// The kind of a file by its name's ending, in `found/` and among kept mutants.
    pub fn of(name: &str) -> Self {
        match name {
            _ if name.ends_with(".parquet") => Kind::Log,
            _ if name.ends_with(".machine.toml") => Kind::Machine,
            _ if name.ends_with(".workload.toml") => Kind::Workload,
            _ => Kind::Recording,
        }
    }
}

/// Machine files with different features: package states, SMT, states of other vendors.
const MACHINES: [&str; 5] = ["milan", "skl-client", "spr-c02", "power9", "pixel6-x1"];

const SMALL: [&str; 29] = [
    "ftrace_text/old",
    "ftrace_text/systrace",
    "ftrace_text/trace_cmd_report",
    "ftrace_text/tracefs",
    "idle_log/ours.parquet",
    "idle_log/plain.parquet",
    "idle_log/runs.parquet",
    "perf_data/big_chains",
    "perf_data/big_compressed",
    "perf_data/big_compressed2",
    "perf_data/big_file",
    "perf_data/big_pipe",
    "perf_data/h_pingpong_cut",
    "perf_data/little_chains",
    "perf_data/little_compressed",
    "perf_data/little_compressed2",
    "perf_data/little_file",
    "perf_data/little_pipe",
    "perfetto/all",
    "perfetto/rounds",
    "perfetto/zlib",
    "trace_dat/v6-none-big",
    "trace_dat/v6-none-little",
    "trace_dat/v7-none-big",
    "trace_dat/v7-none-little",
    "trace_dat/v7-zlib-big",
    "trace_dat/v7-zlib-little",
    "trace_dat/v7-zstd-big",
    "trace_dat/v7-zstd-little",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn unpacked(name: &str) -> Vec<u8> {
    let packed = fs::File::open(root().join("traces").join(name)).unwrap();
    let mut bytes = Vec::new();
    liblzma::read::XzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The complete lines within this many bytes.
fn first_lines(mut text: Vec<u8>, byte_count: usize) -> Vec<u8> {
    text.truncate(byte_count);
    let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    text.truncate(end);
    text
}

pub fn all() -> Vec<Seed> {
    let seed = |name: &'static str, bytes| Seed {
        name: name.rsplit('/').next().unwrap_or(name),
        bytes,
        is_text: name.contains("text") || name.ends_with(".txt") || name.ends_with(".toml"),
        kind: Kind::of(name),
    };
    let folder = root().join("crates/idlewise-trace/fuzz/seeds");
    let mut seeds: Vec<Seed> =
        SMALL.iter().map(|name| seed(name, fs::read(folder.join(name)).unwrap())).collect();
    let mut events: Vec<Event> = Vec::new();
    let perf = fs::read(folder.join("perf_data/h_pingpong_cut")).unwrap();
    PerfData::from_bytes(perf).unwrap().read(&|_| {}, &mut |some| events.extend(some)).unwrap();
    let plain = trace(&events, 0);
    let mut compacted = plain.clone();
    for bundle in compacted.iter_mut().filter_map(|packet| packet.ftrace_events.as_mut()) {
        compact(bundle);
    }
    let text = unpacked("l-pingpong.tracefs.txt.xz");
    let report = unpacked("k-pingpong-v7.trace-cmd-report.txt.xz");
    let log = fs::read(root().join("traces/a-idle.parquet")).unwrap();
    seeds.extend([
        seed("plain.pftrace", file(&plain)),
        seed("compact.pftrace", file(&compacted)),
        seed("zstd.pftrace", file(&compressed(&plain, true))),
        seed("tracefs.txt", first_lines(text, 64 << 10)),
        seed("report.txt", first_lines(report, 64 << 10)),
        seed("a-idle.parquet", log),
        // The last one has a note about its machine.
        seed("a-idle.perf.data", unpacked("a-idle.perf.data.xz")),
        seed("q-menu.trace.dat", unpacked("q-menu-7.2.trace.dat.xz")),
    ]);
    for id in MACHINES {
        let text = fs::read(root().join(format!("machines/{id}.toml"))).unwrap();
        seeds.push(seed(format!("{id}.machine.toml").leak(), text));
    }
    let folder = root().join("crates/idlewise-sim/fuzz/seeds/workload");
    for name in ["poisson", "tcp-lat"] {
        let text = fs::read(folder.join(format!("{name}.toml"))).unwrap();
        seeds.push(seed(format!("{name}.workload.toml").leak(), text));
    }
    seeds
}
