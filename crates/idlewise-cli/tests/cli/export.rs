//! `idlewise log export`: the rows of CSV and Arrow are the log's; the Perfetto trace can be decoded by
//! the published field numbers, its slices nest, and its misses are those of `idlewise replay`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use idlewise_report::export;
use idlewise_trace::GapSink;
use idlewise_trace::log::{IdleLog, LogMetadata, LogWriter};

use crate::import::gaps;
use crate::replay::gap_of_ten_days;
use crate::{assert_refused, folder, json, root, stdout};

const LOG: &str = "traces/e-hackbench.parquet";

/// Returns the bytes of an export of [`LOG`].
fn export(format: &str, more: &[&str]) -> Vec<u8> {
    let folder = folder();
    let path = folder.path().join("out");
    let arguments = ["log", "export", LOG, "--format", format, "-o", path.to_str().unwrap()];
    stdout(&[&arguments, more].concat());
    fs::read(path).unwrap()
}

#[test]
fn csv_has_the_rows_of_the_log() {
    let text = String::from_utf8(export("csv", &[])).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = export::headings()[..11].iter().map(|column| column.id).collect();
    assert_eq!(lines.next().unwrap(), names.join(","));
    let log = IdleLog::open(&root().join(LOG)).unwrap();
    let optional = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    for gap in gaps(&log) {
        let expected = format!(
            "{},{},{},{},{},{},{},{},{},{},{}",
            gap.cpu,
            gap.start_ns,
            gap.gap_ns,
            optional(gap.sleep_length_ns),
            optional(gap.next_tick_ns.map(u64::from)),
            gap.tick_stopped,
            gap.ran_task,
            gap.wake_reason,
            optional(gap.latency_limit_ns),
            optional(gap.recorded_state.map(u64::from)),
            optional(gap.recorded_idle_ns),
        );
        assert_eq!(lines.next(), Some(expected.as_str()));
    }
    assert_eq!(lines.next(), None);
}

/// A cell in CSV form.
fn cell(batch: &RecordBatch, column: usize, row: usize) -> String {
    let column = batch.column(column);
    if column.is_null(row) {
        return String::new();
    }
    use arrow_schema::DataType;
    match column.data_type() {
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        other => panic!("{other}"),
    }
}

#[test]
fn arrow_says_what_csv_says() {
    let governors = ["--governor", "menu+min", "--governor", "ladder"];
    let csv = String::from_utf8(export("csv", &governors)).unwrap();
    let arrow = export("arrow", &governors);
    let reader = FileReader::try_new(std::io::Cursor::new(arrow), None).unwrap();
    let schema = reader.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let mut lines = csv.lines();
    assert_eq!(lines.next().unwrap(), names.join(","));
    assert_eq!(
        names[11..],
        ["menu+min_state", "menu+min_verdict", "ladder_state", "ladder_verdict"]
    );
    let metadata: serde_json::Value = serde_json::from_str(&schema.metadata()["idlewise"]).unwrap();
    assert_eq!(metadata["hz"], 250);
    for batch in reader {
        let batch = batch.unwrap();
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                (0..batch.num_columns()).map(|column| cell(&batch, column, row)).collect();
            assert_eq!(lines.next(), Some(cells.join(",").as_str()));
        }
    }
    assert_eq!(lines.next(), None);
}

/// A field of an encoded message: its number, and a number or bytes.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message. This shares no code with the exporter.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (field, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(field)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn number(message: &[u8], wanted: u64) -> Option<u64> {
    fields(message).into_iter().find_map(|(id, field)| match field {
        Field::Number(value) if id == wanted => Some(value),
        _ => None,
    })
}

fn all_bytes(message: &[u8], wanted: u64) -> Vec<&[u8]> {
    let bytes = fields(message).into_iter().filter_map(|(id, field)| match field {
        Field::Bytes(bytes) if id == wanted => Some(bytes),
        _ => None,
    });
    bytes.collect()
}

fn text(message: &[u8], wanted: u64) -> String {
    String::from_utf8(all_bytes(message, wanted)[0].to_vec()).unwrap()
}

/// The contents of a track.
#[derive(Default)]
struct Track {
    name: String,
    parent: Option<u64>,
    is_open: bool,
    last_at_ns: u64,
    /// The number of slices by name and category.
    slices: BTreeMap<(String, String), u64>,
    annotations: BTreeMap<String, u64>,
    slice_sum_ns: u64,
    instant_count: u64,
    last_count: Option<u64>,
}

/// Decodes a trace. Checks that every track's events are in order, slices are closed before the
/// next begins, and names, categories and tracks are declared before they are used.
fn decode(trace: &[u8]) -> BTreeMap<String, Track> {
    let mut interned: [HashMap<u64, String>; 3] = Default::default();
    let mut tracks: HashMap<u64, Track> = HashMap::new();
    for packet in all_bytes(trace, 1) {
        assert_eq!(number(packet, 10), Some(1), "all of one sequence");
        for data in all_bytes(packet, 12) {
            for (names, id) in interned.iter_mut().zip(1..) {
                let all = all_bytes(data, id);
                names.extend(all.iter().map(|entry| (number(entry, 1).unwrap(), text(entry, 2))));
            }
        }
        for descriptor in all_bytes(packet, 60) {
            let track = Track {
                name: text(descriptor, 2),
                parent: number(descriptor, 5),
                ..Track::default()
            };
            assert!(track.parent.is_none_or(|parent| tracks.contains_key(&parent)));
            assert!(tracks.insert(number(descriptor, 1).unwrap(), track).is_none());
        }
        for event in all_bytes(packet, 11) {
            let at_ns = number(packet, 8).unwrap();
            let track = tracks.get_mut(&number(event, 11).unwrap()).expect("a declared track");
            assert!(at_ns >= track.last_at_ns, "{}: in order", track.name);
            let [categories, names, annotations] = &interned;
            let name = || names[&number(event, 10).unwrap()].clone();
            match number(event, 9) {
                Some(1) => {
                    assert!(!track.is_open, "{}: no overlap", track.name);
                    track.is_open = true;
                    let category = categories[&number(event, 3).unwrap()].clone();
                    *track.slices.entry((name(), category)).or_default() += 1;
                    for annotation in all_bytes(event, 4) {
                        let name = annotations[&number(annotation, 1).unwrap()].clone();
                        *track.annotations.entry(name).or_default() +=
                            number(annotation, 3).unwrap();
                    }
                }
                Some(2) => {
                    assert!(track.is_open, "{}: ends what began", track.name);
                    track.is_open = false;
                    track.slice_sum_ns += at_ns - track.last_at_ns;
                }
                Some(3) => {
                    assert_eq!(name(), "tick");
                    track.instant_count += 1;
                }
                Some(4) => track.last_count = number(event, 30),
                other => panic!("event type {other:?}"),
            }
            track.last_at_ns = at_ns;
        }
    }
    assert!(tracks.values().all(|track| !track.is_open), "all slices end");
    let by_name = |track: Track| {
        let path = match track.parent {
            Some(_) => format!("CPU 0/{}", track.name),
            None => track.name.clone(),
        };
        (path, track)
    };
    tracks.into_values().map(by_name).collect()
}

const GOVERNORS: [&str; 6] = ["--governor", "menu", "--governor", "teo", "--machine", "spr"];

#[test]
fn perfetto_slices_nest_and_have_the_misses_of_the_replay() {
    let tracks = decode(&export("perfetto", &GOVERNORS));
    let log = IdleLog::open(&root().join(LOG)).unwrap();
    let gaps = gaps(&log);

    let recorded = &tracks["CPU 0/recorded"];
    let expected = (("state 1".to_owned(), "recorded".to_owned()), gaps.len() as u64);
    assert_eq!(recorded.slices.clone().into_iter().collect::<Vec<_>>(), [expected]);
    assert_eq!(recorded.slice_sum_ns, gaps.iter().map(|gap| gap.gap_ns).sum::<u64>());
    let depth = &tracks["CPU 0/recorded: state + 1, 0 if running"];
    assert_eq!((depth.last_count, depth.last_at_ns), (Some(0), recorded.last_at_ns));

    let arguments = ["replay", LOG, "--json"];
    let replay = json(&[&arguments[..], &GOVERNORS].concat());
    for governor in ["menu", "teo"] {
        let track = &tracks[&format!("CPU 0/{governor} on spr")];
        let of = |row: &&serde_json::Value| row["governor"] == governor;
        let row = replay["rows"].as_array().unwrap().iter().find(of).unwrap();
        assert_eq!(track.instant_count, row["tick_wake_count"].as_u64().unwrap());
        let states = replay["states"].as_array().unwrap();
        let (mut stay_sum_ns, mut too_deep, mut too_shallow) = (0, 0, 0);
        for state in states.iter().filter(of) {
            let count = |key: &str| state[key].as_u64().unwrap();
            let name = state["state"].as_str().unwrap();
            let slices = |name: String, category: &str| {
                track.slices.get(&(name, category.to_owned())).copied().unwrap_or(0)
            };
            let deep = slices(format!("{name} too deep"), "too_deep");
            let shallow = slices(format!("{name} too shallow"), "too_shallow");
            let fit = slices(name.to_owned(), "fit");
            assert_eq!(deep, count("too_deep_count"), "{governor} {name}");
            assert_eq!(shallow, count("too_shallow_count"), "{governor} {name}");
            assert_eq!(deep + shallow + fit, count("entry_count"), "{governor} {name}");
            stay_sum_ns += count("residency_ns");
            too_deep += deep;
            too_shallow += shallow;
        }
        assert_eq!(track.slice_sum_ns, stay_sum_ns, "{governor}");
        let counted = |what: &str| tracks[&format!("CPU 0/{governor} on spr: {what}")].last_count;
        assert_eq!(counted("too deep").unwrap_or(0), too_deep);
        assert_eq!(counted("too shallow").unwrap_or(0), too_shallow);
        for name in ["gap_ns", "sleep_length_ns", "residency_ns", "delay_ns"] {
            assert!(track.annotations[name] > 0, "{name}");
        }
    }
}

/// Three billion stays. Those that repeat share a slice.
#[test]
fn exports_of_gaps_of_ten_days_stay_small() {
    let folder = folder();
    let log = folder.path().join("long.parquet");
    let mut writer = LogWriter::create(&log, false).unwrap();
    writer.take(0, &[gap_of_ten_days()]).unwrap();
    writer.finish_unchecked(&LogMetadata { format_version: 1, ..LogMetadata::default() }).unwrap();
    let log = log.to_str().unwrap();
    let governors = ["--governor", "shallowest", "--governor", "menu", "--machine", "spr"];
    let export = |format: &str| {
        let path = folder.path().join(format);
        let arguments = ["log", "export", log, "--format", format, "-o", path.to_str().unwrap()];
        stdout(&[&arguments[..], &governors].concat());
        fs::read(path).unwrap()
    };
    assert_eq!(String::from_utf8(export("csv")).unwrap().lines().count(), 2);
    let trace = export("perfetto");
    assert!(trace.len() < 4 << 20, "{}", trace.len());
    let tracks = decode(&trace);
    let replay = json(&[&["replay", log, "--json"][..], &governors].concat());
    for governor in ["shallowest", "menu"] {
        let track = &tracks[&format!("CPU 0/{governor} on spr")];
        let of = |row: &&serde_json::Value| row["governor"] == governor;
        let states: Vec<_> = replay["states"].as_array().unwrap().iter().filter(of).collect();
        let sum = |key: &str| states.iter().map(|state| state[key].as_u64().unwrap()).sum::<u64>();
        let more = track.annotations.get("stay_count").copied().unwrap_or(0);
        let more_slices = track.slices.iter().filter(|((name, _), _)| name == "more stays");
        let slices: u64 = track.slices.values().sum();
        let own_slices = slices - more_slices.map(|(_, count)| count).sum::<u64>();
        assert_eq!(own_slices + more, sum("entry_count"), "{governor}");
        let counted = |what: &str| {
            tracks[&format!("CPU 0/{governor} on spr: {what}")].last_count.unwrap_or(0)
        };
        assert_eq!(counted("too deep"), sum("too_deep_count"), "{governor}");
        assert_eq!(counted("too shallow"), sum("too_shallow_count"), "{governor}");
    }
}

/// A Perfetto trace as protoc prints it, with every packet and no unknown field; `None` without protoc.
pub fn decoded_by_protoc(trace: Vec<u8>) -> Option<String> {
    if Command::new("protoc").arg("--version").output().is_err() {
        // `make setup` installs it; see the Makefile.
        eprintln!("SKIPPED: protoc is not installed, so only our own decoder read the trace");
        return None;
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli");
    let mut protoc = Command::new("protoc")
        .args(["--decode=Trace", "--proto_path", folder, "perfetto.proto"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = protoc.stdin.take().unwrap();
    let packet_count = all_bytes(&trace, 1).len();
    let feeder = std::thread::spawn(move || stdin.write_all(&trace));
    let output = protoc.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| *line == "packet {").count(), packet_count);
    // protoc prints fields that are not in the schema by number.
    let unknown = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    assert_eq!(text.lines().find(unknown), None);
    let count = |what: &str| text.lines().filter(|line| line.trim() == what).count();
    assert!(count("type: TYPE_SLICE_BEGIN") > 0);
    assert_eq!(count("type: TYPE_SLICE_BEGIN"), count("type: TYPE_SLICE_END"));
    Some(text)
}

#[test]
fn perfetto_decodes_with_protoc() {
    let Some(text) = decoded_by_protoc(export("perfetto", &GOVERNORS)) else { return };
    let names = text.lines().filter(|line| line.trim() == "name: \"C6 too deep\"");
    assert_eq!(names.count(), 1, "names are interned once");
}

#[test]
fn overlapping_gaps_give_no_overlapping_slices() {
    let log = IdleLog::open(&root().join("traces/a-idle.parquet")).unwrap();
    let mut gaps = gaps(&log);
    gaps[3].gap_ns *= 100;
    let folder = folder();
    let (bad, out) = (folder.path().join("bad.parquet"), folder.path().join("out"));
    let mut writer = LogWriter::create(&bad, false).unwrap();
    writer.take(0, &gaps).unwrap();
    writer.finish_unchecked(&log.metadata).unwrap();
    let (bad, path) = (bad.to_str().unwrap(), out.to_str().unwrap());
    let export = ["log", "export", bad, "--format", "perfetto", "--governor", "menu", "-o", path];
    assert_refused(&export, &["row 4: the gap begins before the CPU's last one ends"]);
    assert!(!out.exists());
}

#[test]
fn the_default_name_is_the_logs() {
    let folder = folder();
    let path = root().join(LOG);
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        let arguments = ["log", "export", path.to_str().unwrap(), "--format", "perfetto", "--json"];
        command.current_dir(folder.path()).args(arguments).output().unwrap()
    };
    let document: serde_json::Value = serde_json::from_slice(&run().stdout).unwrap();
    assert_eq!(document["file"], "e-hackbench.pftrace");
    let written = File::open(folder.path().join("e-hackbench.pftrace")).unwrap();
    assert_eq!(document["byte_count"], written.metadata().unwrap().len());
    assert_eq!(run().status.code(), Some(2), "an existing file needs --force");
}

#[test]
fn refuses_what_it_cannot_do_and_leaves_nothing_behind() {
    let folder = folder();
    let out = folder.path().join("out");
    let to = ["--format", "csv", "-o", out.to_str().unwrap()];
    let refuse = |more: &[&str], parts: &[&str]| {
        assert_refused(&[&["log", "export"], more, &to[..]].concat(), parts);
    };
    refuse(&[LOG, "--governor", "meun"], &["did you mean 'menu'?"]);
    refuse(&[LOG, "--machine", "nowhere"], &["no machine 'nowhere'"]);
    refuse(&["README.md"], &["README.md"]);
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());
    assert_eq!(stdout(&["log", "export", LOG, "--format", "csv", "-o", "-"]).lines().count(), 3567);
}

/// `export -o - | head`
#[test]
fn a_reader_that_leaves_is_no_error() {
    for format in ["csv", "arrow", "perfetto"] {
        let mut exporting = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .current_dir(root())
            .args(["log", "export", "traces/s-softirq500.parquet", "-o", "-", "--format", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut reader = exporting.stdout.take().unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        drop(reader);
        let output = exporting.wait_with_output().unwrap();
        assert!(output.status.success(), "{format}: {:?}", output.status);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{format}");
    }
}
