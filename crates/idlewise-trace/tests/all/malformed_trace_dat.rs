//! trace.dat files that cannot be imported. Each is `tests/malformed/trace_dat/<reason>.trace.dat`
//! and must fail with its message. Fuzz finds that were errors are among them.
//!
//! `cargo test -p idlewise-trace --test all malformed_trace_dat:: -- --ignored` rewrites the files.

use crate::formats;
use crate::malformed_files;
use crate::perf_writer;
use crate::trace_dat_writer;

use std::fs;
use std::path::Path;

use idlewise_trace::import::trace_dat::TraceDat;
use malformed_files::MalformedFiles;
use perf_writer::TRACEPOINTS;
use trace_dat_writer::{
    BIG, CPU_COUNT, LITTLE, Packing, Page, TRACE_CLOCK, TraceDatWriter, Written,
};

const FILES: MalformedFiles = MalformedFiles { format: "trace_dat", extension: "trace.dat" };

struct Case {
    /// The file's name.
    reason: &'static str,
    bytes: Vec<u8>,
    /// The error's message.
    message: String,
}

/// The offset of the first options' place in version 7, without compression.
const OPTIONS_PLACE_AT: usize = 24;
/// The offset of the page size in either version.
const PAGE_SIZE_AT: usize = 14;

fn recording(version: &'static str) -> TraceDatWriter {
    let mut writer = TraceDatWriter::new(LITTLE, version);
    writer.buffer("", &[&[Page::new(LITTLE, 100).idle_entry(100, 0, 1).idle_exit(200, 0)]]);
    writer
}

fn with(version: &'static str, edit: impl FnOnce(&mut TraceDatWriter)) -> Written {
    let mut writer = recording(version);
    edit(&mut writer);
    writer.file()
}

fn patched(written: &Written, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = written.bytes.clone();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The offset of a text in the file.
fn find(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

fn cases() -> Vec<Case> {
    const COPY: &str = "copy the file again or record again";
    const FORMATS_CUT: &str = "found an end in the midst of the event formats, expected all of them; copy the file again or record again";
    const MONO: &str = "record with trace-cmd's -C mono";
    let case = |reason, bytes, message: String| Case { reason, bytes, message };
    let (six, seven) = (recording("6").file(), recording("7").file());
    let options_at = u64_at(&seven.bytes, OPTIONS_PLACE_AT);
    let formats_at = seven.formats_at;
    let fly_at = six.buffers_at[0];
    let count_at = find(&six.bytes, b"options  \0") - 4;
    let zstd = with("7", |writer| writer.packing = Packing::Zstd);
    let headers_at = 37;
    vec![
        case("magic_cut", six.bytes[..8].to_vec(), {
            format!(
                "byte 0: found the bytes [17, 08, 44, 74, 72, 61, 63, 69], expected {}; give a file that \
                 `perf record` or `trace-cmd record` wrote",
                formats::listed()
            )
        }),
        case("ends_after_magic", six.bytes[..10].to_vec(), {
            format!("byte 10: found the file's end, expected a version; {COPY}")
        }),
        case("version_5", patched(&six, 10, b"5"), {
            "byte 10: version \"5\" of trace.dat; record with a trace-cmd that writes version 6 or 7"
                .to_owned()
        }),
        case("version_without_end", [&six.bytes[..10], &[b'6'; 300]].concat(), {
            format!("byte 10: found 256 bytes without an end, expected a version; {COPY}")
        }),
        case("v6_cut_in_formats", six.bytes[..600].to_vec(), format!("byte 594: {FORMATS_CUT}")),
        case("v6_text_of_all_memory", patched(&six, 30, &u64::MAX.to_le_bytes()), {
            format!("byte 38: {FORMATS_CUT}")
        }),
        case(
            "v6_symbols_longer_than_file",
            patched(&six, six.boundaries[4], &u32::MAX.to_le_bytes()),
            {
                format!(
                    "byte {}: found 4294967295 bytes, more than the file has, expected the kernel's \
                 symbols; {COPY}",
                    six.boundaries[4] + 4
                )
            },
        ),
        case(
            "v6_names_longer_than_file",
            patched(&six, six.boundaries[6], &u64::MAX.to_le_bytes()),
            {
                format!(
                    "byte {}: found 18446744073709551615 bytes, more than the file has, expected the \
                 tasks' names; {COPY}",
                    six.boundaries[6] + 8
                )
            },
        ),
        case("v6_four_billion_cpus", patched(&six, count_at, &u32::MAX.to_le_bytes()), {
            format!("byte {}: found 4294967295 CPUs, expected 65536 at most; {COPY}", fly_at + 10)
        }),
        case(
            "v6_option_longer_than_file",
            patched(&six, count_at + 4 + 10 + 2, &u32::MAX.to_le_bytes()),
            {
                format!(
                    "byte {}: found 4294967295 bytes, more than the file has, expected an option; \
                 {COPY}",
                    count_at + 4 + 10 + 6
                )
            },
        ),
        case("v6_neither_records_nor_text", patched(&six, fly_at, b"flyagaric"), {
            format!(
                "byte {fly_at}: found \"flyagaric\\0\", expected `options`, `flyrecord` or \
                 `latency`; {COPY}"
            )
        }),
        case("v6_cut_in_places", six.bytes[..fly_at + 10 + 4].to_vec(), {
            format!(
                "byte {}: found the file's end, expected the place of a CPU's data; {COPY}",
                fly_at + 10
            )
        }),
        case(
            "v6_text_of_latency_tracer",
            with("6", |writer| writer.buffers[0].is_text = true).bytes,
            {
                format!(
                    "byte {fly_at}: the recording is the text of a latency tracer; record events: \
                 trace-cmd record -C mono -e power -e timer -e sched"
                )
            },
        ),
        case(
            "v6_pages_of_two_gigabytes",
            patched(&six, PAGE_SIZE_AT, &(1u32 << 31).to_le_bytes()),
            {
                format!(
                    "byte {fly_at}: found pages of 2147483648 bytes, expected 512 bytes to 1 MiB; {COPY}"
                )
            },
        ),
        case(
            "v6_clock_counter",
            {
                with("6", |writer| writer.options[0] = (TRACE_CLOCK, b"local [counter]\0".to_vec()))
                    .bytes
            },
            {
                // The name is one letter longer than the clock's name in the other files.
                format!(
                    "byte {}: the clock `counter`, which counts events, not time; {MONO}",
                    fly_at - 10
                )
            },
        ),
        case(
            "v6_big_endian_cut",
            {
                let mut writer = TraceDatWriter::new(BIG, "6");
                writer.buffer("", &[&[Page::new(BIG, 100).idle_entry(100, 0, 1)]]);
                let written = writer.file();
                written.bytes[..written.boundaries[6] + 3].to_vec()
            },
            format!("byte 1142: found the file's end, expected the tasks' names; {COPY}"),
        ),
        case("v7_compression_unknown", patched(&seven, 18, b"lzma"), {
            "byte 18: compression \"lzma\"; convert the file with `trace-cmd convert --compression \
             none -i IN -o OUT`"
                .to_owned()
        }),
        case("v7_killed_before_options", patched(&seven, OPTIONS_PLACE_AT, &[0; 8]), {
            format!(
                "byte {OPTIONS_PLACE_AT}: found no options, expected their place in the file; {COPY}"
            )
        }),
        case(
            "v7_options_beyond_file",
            patched(&seven, OPTIONS_PLACE_AT, &u64::MAX.to_le_bytes()),
            {
                format!(
                    "byte {}: found the file's end, expected a section that the file names; {COPY}",
                    u64::MAX
                )
            },
        ),
        case(
            "v7_options_are_another_section",
            patched(&seven, OPTIONS_PLACE_AT, &(headers_at as u64 - 5).to_le_bytes()),
            {
                format!(
                    "byte {}: found section 16, expected the one that the options name; {COPY}",
                    headers_at - 5
                )
            },
        ),
        case(
            "v7_options_in_a_circle",
            {
                // The place of the next options, at the end of the first ones.
                let end = find(&seven.bytes, &[CPU_COUNT as u8, 0, 4, 0, 0, 0]) + 10;
                patched(&seven, end + 6, &options_at.to_le_bytes())
            },
            {
                format!(
                    "byte {options_at}: found more than 1024 sections of options, expected an end of \
                 the options; {COPY}"
                )
            },
        ),
        case(
            "v7_options_without_end",
            patched(&seven, options_at as usize + 18, &u32::MAX.to_le_bytes()),
            {
                format!(
                    "byte {options_at}: found options that are cut, expected an end of the options; \
                 {COPY}"
                )
            },
        ),
        case(
            "v7_section_of_all_memory",
            patched(&seven, options_at as usize + 8, &u64::MAX.to_le_bytes()),
            {
                format!(
                    "byte {options_at}: found a section of 18446744073709551615 bytes, expected 32 MiB \
                 at most; {COPY}"
                )
            },
        ),
        case("v7_cut_before_options", seven.bytes[..options_at as usize].to_vec(), {
            format!(
                "byte {options_at}: found the file's end, expected a section that the file names; \
                 {COPY}"
            )
        }),
        case("v7_packed_section_broken", patched(&zstd, zstd.formats_at + 30, &[0xff; 16]), {
            format!(
                "byte {}: found bytes that can not be unpacked, expected a compressed section; \
                 {COPY}",
                zstd.formats_at + 16
            )
        }),
        case(
            "v7_packed_section_of_all_memory",
            patched(&zstd, zstd.formats_at + 20, &u32::MAX.to_le_bytes()),
            {
                format!(
                    "byte {}: found bytes that can not be unpacked, expected a compressed section; \
                 {COPY}",
                    zstd.formats_at + 16
                )
            },
        ),
        case("v7_formats_cut", patched(&seven, formats_at + 16, &u32::MAX.to_le_bytes()), {
            format!("byte {formats_at}: {FORMATS_CUT}")
        }),
        case("v7_no_buffer", with("7", |writer| writer.buffers.clear()).bytes, {
            format!(
                "byte {formats_at}: found a file without the place of any event, expected a buffer \
                 among the options; {COPY}"
            )
        }),
        case(
            "v7_text_of_latency_tracer",
            with("7", |writer| writer.buffers[0].is_text = true).bytes,
            {
                format!(
                    "byte {}: the recording is the text of a latency tracer; record events: trace-cmd \
                 record -C mono -e power -e timer -e sched",
                    seven.buffers_at[0]
                )
            },
        ),
        case(
            "v7_pages_of_one_byte",
            with("7", |writer| writer.buffers[0].page_byte_count = 1).bytes,
            {
                format!(
                    "byte {}: found pages of 1 bytes, expected 512 bytes to 1 MiB; {COPY}",
                    seven.buffers_at[0]
                )
            },
        ),
        case(
            "v7_cycles_without_length",
            with("7", |writer| writer.buffers[0].clock = "x86-tsc").bytes,
            {
                format!(
                    "byte {}: the clock `x86-tsc` without the length of its cycles; {MONO}",
                    seven.buffers_at[0]
                )
            },
        ),
        case(
            "idle_not_recorded",
            {
                let other = TRACEPOINTS[0].format.replace("cpu_idle", "cpu_busy");
                with("7", |writer| writer.formats[0].1 = other).bytes
            },
            {
                format!(
                    "byte {formats_at}: power:cpu_idle is not among the 5 recorded events; record with \
                 `trace-cmd record -C mono -e power:cpu_idle -e timer -e sched_switch`"
                )
            },
        ),
        case(
            "idle_format_without_state",
            {
                with("7", |writer| {
                    writer.formats[0].1 = TRACEPOINTS[0].format.replace("state", "other")
                })
                .bytes
            },
            {
                format!(
                    "byte {formats_at}: the format of cpu_idle has no integer field `state`; report \
                 this kernel to us, with the file"
                )
            },
        ),
        case(
            "formats_without_number",
            {
                let without = TRACEPOINTS[0].format.replace("common_type", "common_thing");
                with("7", |writer| writer.formats[0].1 = without).bytes
            },
            format!(
                "byte {formats_at}: found event formats without a common_type, expected a field with an event's number; {COPY}"
            ),
        ),
    ]
}

#[test]
fn each_fails_with_its_message() {
    for Case { reason, message, .. } in cases() {
        let error = match TraceDat::open(&FILES.path(reason)) {
            Ok(_) => panic!("{reason}: imported"),
            Err(error) => error.to_string(),
        };
        assert_eq!(error, message, "{reason}");
    }
}

#[test]
fn every_file_has_its_case() {
    FILES.assert_are(cases().iter().map(|case| (case.reason, &case.bytes[..])));
}

#[test]
#[ignore = "writes the files that the others and the fuzz target read: run it after a change of the cases"]
fn write_files() {
    FILES.write(cases().iter().map(|case| (case.reason, &case.bytes[..])));
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/trace_dat");
    fs::create_dir_all(&seeds).unwrap();
    for machine in [LITTLE, BIG] {
        for (version, packing) in
            [("6", Packing::None), ("7", Packing::None), ("7", Packing::Zstd), ("7", Packing::Zlib)]
        {
            let mut writer = TraceDatWriter::new(machine, version);
            writer.packing = packing;
            let cpu_0 = [
                Page::new(machine, 90).idle_entry(100, 0, 1).discarded(8).idle_exit(160, 0),
                Page::new(machine, 200).hrtimer_start(200, 9_000, 8_000).lost(3, true),
            ];
            let cpu_1 = [Page::new(machine, 1 << 40).time_stamp(1 << 41).irq_handler(1 << 41, "a")];
            writer.buffer("", &[&cpu_0, &cpu_1]).buffer("one", &[&cpu_0, &cpu_1]);
            let name = format!("v{version}-{packing:?}-{:?}", machine.order).to_lowercase();
            fs::write(seeds.join(name), writer.file().bytes).unwrap();
        }
    }
}
