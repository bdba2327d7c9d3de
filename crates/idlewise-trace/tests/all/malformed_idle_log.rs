//! Idle logs that cannot be read. Each is `tests/malformed/idle_log/<reason>.parquet` and must fail
//! with its message. Some make the Parquet crate panic or hang; some are fuzz finds.
//!
//! `cargo test -p idlewise-trace --test all malformed_idle_log:: -- --ignored` rewrites them and the
//! fuzzer's seeds.

use crate::parquet_writer;

use std::fs;
use std::path::{Path, PathBuf};

use idlewise_trace::log::{IdleLog, LogError, LogMetadata, LogWriter};
use idlewise_trace::validate::{Check, CheckResult, validate};
use idlewise_trace::{GapSink, IdleGap, WakeReason};
use parquet_writer::{
    BIT_PACKED, DATA_PAGE_V2, DELTA, DICTIONARY, Log, PLAIN, RLE, dictionary, page, prefixed,
    varint, zigzag,
};

struct Case {
    /// The file's name.
    reason: &'static str,
    bytes: Vec<u8>,
    /// The part of its message between file name and advice.
    message: &'static str,
}

fn with(edit: impl FnOnce(&mut Log)) -> Vec<u8> {
    let mut log = Log::new();
    edit(&mut log);
    log.bytes()
}

/// A log with this machine in its metadata, as JSON.
fn with_machine(machine: &str) -> Vec<u8> {
    let field = format!("\"machine\":{machine},\"cpus\":");
    with(|log| log.json = log.json.take().map(|json| json.replace("\"cpus\":", &field)))
}

/// Replaces the body of a column's last page.
fn body(name: &str, bytes: Vec<u8>) -> Vec<u8> {
    with(|log| log.page(name).body = bytes)
}

/// Replaces `gap_ns` with a DELTA_BINARY_PACKED page.
fn delta(block: u64, parts: u64, count: u64, blocks: &[u8]) -> Vec<u8> {
    let head = [varint(block), varint(parts), varint(count), zigzag(5)].concat();
    body("gap_ns", [&head, blocks].concat())
}

fn cases() -> Vec<Case> {
    let case = |reason, message, bytes| Case { reason, bytes, message };
    let whole = Log::new().bytes();
    let mut long_footer = whole.clone();
    let at = long_footer.len() - 5;
    long_footer[at] = 0x7f;
    let runs_cut = "column wake_reason: Parquet error: values are cut off";
    let gaps_cut = "column gap_ns: Parquet error: values are cut off";
    vec![
        case("text", "not an idle log", b"cpu,start_ns,gap_ns\n".to_vec()),
        case("footer_cut", "not an idle log", whole[..whole.len() - 1].to_vec()),
        case("footer_longer_than_file", "not an idle log", long_footer),
        case(
            "footer_field_of_unknown_kind",
            "the footer can't be decoded",
            with(|log| log.footer_extra = vec![0x1e]),
        ),
        case(
            // The Parquet crate counts to 2^31 for each such list, which takes minutes in total.
            "footer_list_of_two_billion_flags",
            "the footer can't be decoded",
            with(|log| {
                log.footer_extra = [0xf9, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x07].repeat(100);
            }),
        ),
        case(
            "footer_structs_without_end",
            "the footer can't be decoded",
            with(|log| log.footer_extra = vec![0x1c; 10_000]),
        ),
        case(
            "metadata_missing",
            "it has no metadata under the key `idlewise`; another program",
            with(|log| log.json = None),
        ),
        case(
            "metadata_cut",
            "metadata: EOF while parsing",
            with(|log| log.json = Some("{\"format_version\":1".to_owned())),
        ),
        case(
            "machine_with_two_words_for_a_name",
            "metadata: machine: line 1: id \"a b\" is empty or has a space",
            with_machine(r#""id = \"a b\"\ntitle = \"T\"\narch = \"x86\"\nsource = \"s\"""#),
        ),
        case(
            "machine_without_id",
            "metadata: missing field `id`",
            with_machine(r#"{"title":"T","arch":"x86","source":"s"}"#),
        ),
        case(
            "newer_version",
            "idle log version 2,",
            with(|log| {
                log.json = log.json.take().map(|json| json.replace("version\":1", "version\":2"));
            }),
        ),
        case(
            "rows_fewer_than_in_groups",
            "the row groups have not as many rows",
            with(|log| log.row_count = 2),
        ),
        case("rows_negative", "a row group has no row count", with(|log| log.group_row_count = -3)),
        case(
            "group_of_two_million_rows",
            "a row group is larger than 1 Mi rows",
            with(|log| log.group_row_count = 2 << 20),
        ),
        case(
            "group_without_last_column",
            "a row group has not all columns",
            with(|log| log.is_last_chunk_missing = true),
        ),
        case("column_nested", "a column has columns inside", with(|log| log.nested_count = 1)),
        case(
            "column_of_another_type",
            "column gap_ns has another type, or may have nulls; another program",
            with(|log| log.chunk("gap_ns").physical_type = 1),
        ),
        case(
            "column_missing",
            "no gap_ns",
            with(|log| log.chunks.retain(|chunk| chunk.name != "gap_ns")),
        ),
        case(
            "column_with_more_rows_than_group",
            "a column has not as many rows as its row group",
            with(|log| log.chunk("gap_ns").row_count = 4),
        ),
        case(
            "column_in_snappy",
            "a column is compressed, but not with Zstandard; another program",
            with(|log| log.chunk("gap_ns").codec = 1),
        ),
        case(
            "column_before_file",
            "the footer points outside the file",
            with(|log| log.chunk("gap_ns").offset = Some(-1)),
        ),
        case(
            "column_beyond_file",
            "the footer points outside the file",
            with(|log| log.chunk("gap_ns").offset = Some(i64::MAX)),
        ),
        case(
            "columns_share_bytes",
            "row groups share bytes",
            with(|log| {
                log.chunk("start_ns").offset = Some(4);
                log.chunk("start_ns").byte_count = Some(80);
            }),
        ),
        case(
            "cpu_outside_statistics",
            "column cpu, row 0 of a group: impossible value",
            with(|log| log.chunk("cpu").range = Some([2, 2])),
        ),
        case(
            "page_header_cut",
            "column gap_ns: Parquet error: a page header can't be decoded",
            with(|log| log.chunk("gap_ns").byte_count = Some(2)),
        ),
        case(
            "page_of_negative_length",
            "column gap_ns: Parquet error: a page header lacks a count",
            with(|log| log.page("gap_ns").packed_byte_count = Some(-5)),
        ),
        case(
            "page_longer_than_column",
            "column gap_ns: Parquet error: a page is too long",
            with(|log| log.page("gap_ns").packed_byte_count = Some(1_000)),
        ),
        case(
            // The Parquet crate allocates that much first.
            "page_unpacks_to_two_gigabytes",
            "column gap_ns: Parquet error: a page is too long",
            with(|log| {
                log.chunk("gap_ns").codec = 6;
                log.page("gap_ns").unpacked_byte_count = Some(i64::from(i32::MAX));
            }),
        ),
        case(
            "page_is_no_zstandard",
            "column gap_ns: Parquet error: a page can't be unpacked",
            with(|log| log.chunk("gap_ns").codec = 6),
        ),
        case(
            "page_longer_than_its_header_says",
            "column gap_ns: Parquet error: a page has another length",
            with(|log| log.page("gap_ns").unpacked_byte_count = Some(7)),
        ),
        case(
            "page_of_version_2",
            "column gap_ns: a page is of version 2; another program",
            with(|log| log.page("gap_ns").page_type = DATA_PAGE_V2),
        ),
        case(
            "page_without_values",
            "column gap_ns: Parquet error: a page has no values",
            with(|log| log.page("gap_ns").value_count = 0),
        ),
        case(
            "page_of_more_values_than_rows",
            "column gap_ns: Parquet error: a page has more values than its row group has rows",
            with(|log| log.page("gap_ns").value_count = i64::from(u32::MAX)),
        ),
        case(
            "pages_end_early",
            "column gap_ns has 0 rows instead of 3",
            with(|log| log.chunk("gap_ns").pages.clear()),
        ),
        case(
            "encoding_of_strings_for_numbers",
            "column gap_ns: a page is encoded in a way that its column never is; another",
            with(|log| log.page("gap_ns").encoding = 7),
        ),
        case(
            // The Parquet crate panics: there is no decoder.
            "dictionary_missing",
            "column wake_reason: Parquet error: a page is encoded in a way",
            with(|log| {
                log.chunk("wake_reason").pages.remove(0);
            }),
        ),
        case(
            "dictionary_twice",
            "column wake_reason: Parquet error: a second dictionary",
            with(|log| {
                let chunk = log.chunk("wake_reason");
                chunk.pages.insert(0, chunk.pages[0].clone());
            }),
        ),
        case(
            // The Parquet crate panics: it slices past the end.
            "dictionary_cut",
            "column wake_reason: Parquet error: a dictionary is cut off",
            with(|log| log.chunk("wake_reason").pages[0] = dictionary(2, prefixed(b"timer"))),
        ),
        case(
            "dictionary_too_short_for_index",
            "column wake_reason: Parquet error: dictionary index out of bounds",
            with(|log| log.page("wake_reason").body = vec![8, 6, 200]),
        ),
        case(
            "name_longer_than_page",
            "column wake_reason: Parquet error: values are cut off",
            with(|log| {
                log.chunk("wake_reason").pages = vec![page(PLAIN, vec![0xff, 0, 0, 0, b'i'])];
            }),
        ),
        case(
            "name_unknown",
            "column wake_reason, row 1 of a group: impossible value",
            with(|log| {
                let names = [prefixed(b"ipi"), prefixed(b"gpi"), prefixed(b"ipi")].concat();
                log.chunk("wake_reason").pages = vec![page(PLAIN, names)];
            }),
        ),
        case(
            "plain_values_cut",
            "column start_ns: Parquet error: values",
            body("start_ns", vec![1]),
        ),
        case(
            // The Parquet crate panics: more bytes than a 64-bit number can have.
            "run_head_of_eleven_bytes",
            runs_cut,
            body("wake_reason", [&[1][..], &[0x80; 10], &[1, 0]].concat()),
        ),
        case("run_of_no_values", runs_cut, body("wake_reason", vec![1, 0, 0, 0, 0])),
        case("runs_cut", runs_cut, body("wake_reason", vec![1, 4, 1])),
        case("index_of_33_bits", runs_cut, body("wake_reason", vec![33, 6, 0, 0, 0, 0, 0])),
        case(
            "levels_longer_than_page",
            "column sleep_length_ns: Parquet error: marks of nulls are cut off",
            body("sleep_length_ns", vec![0xff, 0xff, 0xff, 0xff, 3, 5]),
        ),
        case(
            "levels_in_an_unknown_way",
            "column sleep_length_ns: Parquet error: nulls are marked in an unknown way",
            with(|log| log.page("sleep_length_ns").level_encoding = BIT_PACKED),
        ),
        case(
            "levels_in_deltas",
            "column sleep_length_ns: Parquet error: nulls are marked in an unknown way",
            with(|log| log.page("sleep_length_ns").level_encoding = DELTA),
        ),
        case(
            // The Parquet crate panics: it reads a run's header even if there is no value.
            "run_head_of_eleven_bytes_and_no_values",
            "column recorded_state: Parquet error: values are cut off",
            with(|log| {
                log.chunk("recorded_state").pages = vec![
                    dictionary(0, Vec::new()),
                    page(DICTIONARY, [&prefixed(&[6, 0])[..], &[1], &[0x80; 12]].concat()),
                ];
            }),
        ),
        case(
            "flags_longer_than_page",
            "column ran_task: Parquet error: values are cut off",
            body("ran_task", vec![9, 0, 0, 0, 6, 1]),
        ),
        case(
            // The Parquet crate panics: there is no decoder.
            "flags_with_unknown_encoding",
            "column ran_task: Parquet error: a page is encoded in a way",
            with(|log| log.page("ran_task").encoding = DICTIONARY),
        ),
        case("delta_block_of_no_values", gaps_cut, delta(0, 4, 3, &[0; 80])),
        // The Parquet crate panics: it counts down from 0.
        case("delta_count_of_zero", gaps_cut, delta(128, 4, 0, &[0; 80])),
        case("delta_block_of_all_memory", gaps_cut, delta(1 << 62, 4, 3, &[0; 80])),
        case("delta_block_without_parts", gaps_cut, delta(128, 0, 3, &[0; 80])),
        case("delta_part_of_16_values", gaps_cut, delta(128, 8, 3, &[0; 80])),
        case("delta_of_65_bits", gaps_cut, delta(128, 4, 3, &[0, 65, 0, 0, 0].repeat(20))),
        case("delta_block_cut", gaps_cut, delta(128, 4, 3, &[0, 16, 0, 0, 0, 1])),
        // The Parquet crate panics, as above.
        case("delta_of_eleven_bytes", gaps_cut, delta(128, 4, 3, &[0x80; 80])),
        case(
            "gap_negative",
            "column gap_ns, row 2 of a group: impossible value",
            delta(128, 4, 3, &[9, 0, 0, 0, 0]),
        ),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/malformed/idle_log")
}

fn read(bytes: Vec<u8>) -> Result<Vec<IdleGap>, LogError> {
    let log = IdleLog::from_bytes("log", bytes)?;
    let (mut all, mut gaps) = (Vec::new(), Vec::new());
    for group in log.groups() {
        log.read_group(group, all.last(), &mut gaps)?;
        all.extend_from_slice(&gaps);
    }
    Ok(all)
}

#[test]
fn every_malformed_log_says_what_is_wrong() {
    let cases = cases();
    for Case { reason, message, .. } in &cases {
        let bytes = fs::read(folder().join(reason).with_extension("parquet")).unwrap();
        let error = read(bytes).expect_err(reason).to_string();
        assert!(error.contains(message), "{reason}: {error}");
    }
    let file_count = fs::read_dir(folder()).unwrap().count();
    assert_eq!(file_count, cases.len(), "a file in {} has no case", folder().display());
}

#[test]
fn reads_what_the_writer_of_malformed_logs_wrote_without_damage() {
    let gaps = read(Log::new().bytes()).unwrap();
    let column = |get: fn(&IdleGap) -> i64| gaps.iter().map(get).collect::<Vec<_>>();
    assert_eq!(column(|gap| gap.start_ns), [10, 20, 30]);
    assert_eq!(column(|gap| gap.gap_ns as i64), [5, 6, 7]);
    assert_eq!(column(|gap| gap.sleep_length_ns.map_or(-1, |ns| ns as i64)), [700, -1, 900]);
    assert_eq!(column(|gap| gap.recorded_state.map_or(-1, i64::from)), [2, 2, 2]);
    assert_eq!(gaps[0].wake_reason, WakeReason::Ipi);
    assert_eq!(gaps[1].wake_reason, WakeReason::Timer);
    assert!(gaps[1].tick_stopped && !gaps[2].tick_stopped && gaps[2].ran_task);
}

/// The declared type of a 64-bit number does not matter.
#[test]
fn ignores_what_integers_are_called() {
    assert!(read(with(|log| log.chunk("gap_ns").integer_width = Some(7))).is_ok());
}

/// Levels: all values are null, as the writer encodes that and as others may.
#[test]
fn reads_columns_of_nulls_alone() {
    let nulls = prefixed(&[6, 0]);
    let bytes = with(|log| {
        log.chunk("sleep_length_ns").pages = vec![page(PLAIN, nulls.clone())];
        log.chunk("recorded_state").pages =
            vec![dictionary(0, Vec::new()), page(DICTIONARY, [&nulls[..], &[0]].concat())];
    });
    let gaps = read(bytes).unwrap();
    assert!(gaps.iter().all(|gap| gap.sleep_length_ns.is_none() && gap.recorded_state.is_none()));
}

/// A log that we wrote: 2 CPUs, 50 gaps.
fn small_log(path: &Path) {
    let mut writer = LogWriter::create(path, true).unwrap();
    for (cpu, gap_count) in [(0_u16, 20_i64), (3, 30)] {
        let gap = |i: i64| IdleGap {
            cpu,
            start_ns: 1_000_000 + i * 250_000 + i * i % 7_919,
            gap_ns: (i * 104_729 % 200_000) as u64,
            sleep_length_ns: (i % 3 > 0).then_some(i as u64 * 1_000),
            next_tick_ns: (i % 5 > 0).then_some(i as u32 * 77),
            tick_stopped: i % 4 == 0,
            ran_task: i % 3 == 0,
            wake_reason: WakeReason::ALL[i as usize % 6],
            latency_limit_ns: (i > 40).then_some(70_000),
            recorded_state: Some((i % 4) as u8),
            recorded_idle_ns: Some(i as u64 * 1_200),
        };
        writer.take(cpu, &(0..gap_count).map(gap).collect::<Vec<_>>()).unwrap();
    }
    writer.finish_unchecked(&LogMetadata { format_version: 1, ..LogMetadata::default() }).unwrap();
}

#[test]
#[ignore = "writes the files: run it after a change of a case"]
fn write_files() {
    fs::create_dir_all(folder()).unwrap();
    for Case { reason, bytes, .. } in cases() {
        fs::write(folder().join(reason).with_extension("parquet"), bytes).unwrap();
    }
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/idle_log");
    fs::create_dir_all(&seeds).unwrap();
    small_log(&seeds.join("ours.parquet"));
    fs::write(seeds.join("plain.parquet"), Log::new().bytes()).unwrap();
    // Like ours, but uncompressed, so that the fuzzer can reach the values.
    let runs = |log: &mut Log| log.page("tick_stopped").encoding = RLE;
    let unpacked = with(|log| {
        runs(log);
        log.page("tick_stopped").body = prefixed(&[2, 0, 4, 1]);
    });
    fs::write(seeds.join("runs.parquet"), unpacked).unwrap();
}

/// Early logs contain the text of a machine file, later ones its fields.
#[test]
fn reads_a_machine_in_either_form() {
    let text = r#""id = \"toy\"\ntitle = \"T\"\narch = \"x86\"\nsource = \"s\"\n""#;
    let fields = r#"{"id":"toy","title":"T","arch":"x86","source":"s"}"#;
    let [of_text, of_fields] = [text, fields].map(|machine| {
        IdleLog::from_bytes("x", with_machine(machine)).unwrap().metadata.machine.unwrap()
    });
    assert_eq!(of_text.id, "toy");
    assert_eq!(of_text, of_fields);
}

/// A file may lack nullable columns. A caller that checks it is told.
#[test]
fn names_the_columns_that_a_file_lacks() {
    let log = IdleLog::from_bytes("x", Log::new().bytes()).unwrap();
    let missing = ["next_tick_ns", "latency_limit_ns", "recorded_idle_ns"];
    assert_eq!(log.missing_columns(), missing);
    let findings = validate(&log, &|_| {}).unwrap();
    let finding = findings.iter().find(|finding| finding.check == Check::Columns).unwrap();
    assert_eq!((finding.result(), finding.found_count), (CheckResult::Doubt, 3));
}
