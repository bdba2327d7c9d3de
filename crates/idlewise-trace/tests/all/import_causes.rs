//! What makes tasks run, found in every format. tests/causes/README.md says what was recorded.

use crate::perfetto_writer;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use idlewise_trace::causes::{Step, StepEnd, WorkloadMetadata, convert_causes};
use idlewise_trace::import::{Options, Recording, open_with};
use idlewise_trace::tracepoint::Purpose;
use idlewise_trace::{Event, OutputFile, RecordedMachine};
use liblzma::read::XzDecoder;
use perfetto_writer::{compact, file, trace};

fn recording(bytes: &[u8]) -> Box<dyn Recording> {
    recording_for(bytes, Purpose::Causes)
}

pub fn recording_for(bytes: &[u8], purpose: Purpose) -> Box<dyn Recording> {
    let mut file = OutputFile::unnamed(Path::new("recording")).unwrap().into_file();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    open_with(file, Options { purpose, ..Options::default() }).unwrap()
}

pub fn unpacked(path: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let mut bytes = Vec::new();
    XzDecoder::new(File::open(&path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

type Workload = (Vec<Step>, WorkloadMetadata);

fn workload(bytes: &[u8]) -> Workload {
    let recorded = RecordedMachine::default();
    convert_causes(recording(bytes), Vec::new(), &recorded, &|_| {}).unwrap()
}

/// A step's task, what made it run, and who: what does not depend on the recorder's clock.
type Link = (String, &'static str, Option<(String, u64)>);

/// The links of tasks with these names. A task's first step is left out: whether the recording shows what made that run
/// depends on when the recorder began. So is a last step that the recording cut.
fn links((steps, metadata): &Workload, names: &[&str]) -> Vec<Link> {
    let name = |task: u32| metadata.tasks[task as usize].name.clone();
    let mut seen = std::collections::BTreeSet::new();
    let is_shown = |step: &&Step| {
        let is_first = seen.insert(step.task);
        names.contains(&name(step.task).as_str()) && !is_first && step.end != StepEnd::Cut
    };
    let link = |step: &Step| {
        let from = step.cause.place().map(|place| (name(place.task), place.step));
        (name(step.task), step.cause.name(), from)
    };
    steps.iter().filter(is_shown).map(link).collect()
}

pub const PING_PONG: &str = "../../traces/c-pingpong.trace.dat.xz";

#[test]
fn perf_data_has_the_causes_that_trace_dat_has_of_the_same_run() {
    let ours = workload(&unpacked("tests/causes/one-run.trace.dat.xz"));
    let perfs = workload(&unpacked("tests/causes/one-run.perf.data.xz"));
    let names = ["ping", "pong"];
    let (ours, perfs) = (links(&ours, &names), links(&perfs, &names));
    assert_eq!(ours, perfs);
    // 60 rounds. In each, pong is woken by ping; ping by pong, and by the timer of its nap.
    let count = |task: &str, cause: &str| {
        ours.iter().filter(|(name, found, _)| name == task && *found == cause).count()
    };
    assert!((58..=60).contains(&count("pong", "task")), "{ours:?}");
    assert!((58..=60).contains(&count("ping", "timer")), "{ours:?}");
}

#[test]
fn text_has_the_causes_that_trace_dat_has() {
    let (whole, part) = (unpacked(PING_PONG), unpacked("tests/causes/pingpong.txt.xz"));
    let (whole, part) =
        (links(&workload(&whole), &["pingpong"]), links(&workload(&part), &["pingpong"]));
    // The text is the recording's beginning.
    assert!(part.len() > 200, "{}", part.len());
    assert_eq!(part, whole[..part.len()]);
}

#[test]
fn perfetto_has_the_causes_that_trace_dat_has() {
    let bytes = unpacked(PING_PONG);
    let mut events: Vec<Event> = Vec::new();
    recording(&bytes).read(&|_| {}, &mut |some| events.extend_from_slice(some)).unwrap();
    let expected = workload(&bytes);
    // Perfetto does not list what was recorded, so stays without an interrupt stay undecided, and are not joined: an idle
    // task tells its next timer more often.
    let names = expected.1.tasks.iter().map(|task| task.name.as_str());
    let names: Vec<&str> = names.filter(|name| !name.starts_with("swapper")).collect();
    let all = links(&expected, &names);
    assert!(all.len() > 3_990, "{}", all.len());
    let lengths = |(steps, metadata): &Workload| -> Vec<u64> {
        let is_task =
            |step: &&Step| !metadata.tasks[step.task as usize].name.starts_with("swapper");
        steps.iter().filter(is_task).map(|step| step.run_ns).collect()
    };
    // Events of their own types, without flags.
    let mut packets = trace(&events, 0);
    let found = workload(&file(&packets));
    assert!(links(&found, &names) == all, "the causes differ");
    assert_eq!(lengths(&found), lengths(&expected));
    // Switches and wakings in columns. These do not name the task that leaves, so what ran before the first switch is
    // not known, but no other task's causes change.
    packets.iter_mut().filter_map(|packet| packet.ftrace_events.as_mut()).for_each(compact);
    let found = workload(&file(&packets));
    let names = ["pingpong"];
    assert!(links(&found, &names) == links(&expected, &names), "the causes differ");
}

#[test]
fn each_fixture_is_described() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/causes");
    let text = fs::read_to_string(folder.join("README.md")).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || text.contains(&name), "{name}");
    }
}
