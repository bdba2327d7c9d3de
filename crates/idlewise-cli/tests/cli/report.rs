//! `idlewise report`: one file, the same bytes each time, whose columns add up to its totals, and into
//! which no foreign text breaks out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use idlewise_trace::log::{FORMAT_VERSION, IdleLog, LogMetadata, LogWriter};
use idlewise_trace::{Doubt, GapSink, IdleGap, WakeReason};
use serde_json::Value;

use crate::import::gaps;
use crate::page::PageFile;
use crate::replay::gap_of_ten_days;
use crate::{assert_refused, folder, json, root, stdout};

/// Writes a page and reads it.
fn report(arguments: &[&str]) -> PageFile {
    let folder = folder();
    let path = folder.path().join("page.html");
    stdout(&[&["report"], arguments, &["-o", path.to_str().unwrap()]].concat());
    PageFile::parse(fs::read_to_string(path).unwrap())
}

/// Writes a log of gaps that are sorted by CPU, then by time.
fn write_log(path: &Path, metadata: &LogMetadata, gaps: &[IdleGap]) {
    let mut writer = LogWriter::create(path, false).unwrap();
    for of_cpu in gaps.chunk_by(|a, b| a.cpu == b.cpu) {
        writer.take(of_cpu[0].cpu, of_cpu).unwrap();
    }
    writer.finish_unchecked(metadata).unwrap();
}

fn metadata() -> LogMetadata {
    LogMetadata { format_version: FORMAT_VERSION, hz: Some(250), ..LogMetadata::default() }
}

/// The bundled gaps over and over, spread over CPUs. Each time the clock runs a little faster and
/// jitters, so that no time repeats, but what was at the same time still is: the same timer is the next
/// one in several gaps.
fn tiled(gap_count: usize, cpu_count: u16) -> Vec<IdleGap> {
    let log =
        |name: &str| gaps(&IdleLog::open(&root().join(format!("traces/{name}.parquet"))).unwrap());
    let recorded: Vec<Vec<IdleGap>> =
        ["b-redis", "e-hackbench", "h-pingpong", "s-softirq500"].into_iter().map(log).collect();
    let mut all = Vec::with_capacity(gap_count);
    for cpu in 0..cpu_count {
        let share = gap_count / usize::from(cpu_count);
        let count = share + usize::from(usize::from(cpu) < gap_count % usize::from(cpu_count));
        let (mut from_ns, end) = (1_000_000_i64, all.len() + count);
        // No two CPUs have the same tiles.
        for tile in usize::from(cpu) * 10_007.. {
            let log = &recorded[tile % recorded.len()];
            let origin_ns = log[0].start_ns;
            let warped = |at_ns: i64| {
                let passed_ns = at_ns - origin_ns;
                let mixed =
                    (passed_ns as u64 ^ (tile as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                from_ns + passed_ns - passed_ns / 97 * (tile as i64 % 31) / 31
                    + (mixed >> 58) as i64
            };
            let mut last_ns = from_ns;
            for gap in log.iter().take(end - all.len()) {
                let start_ns = warped(gap.start_ns).max(last_ns);
                let end_ns = warped(gap.start_ns + gap.gap_ns as i64).max(start_ns);
                let since =
                    |ns: u64| warped(gap.start_ns + ns as i64).max(start_ns).abs_diff(start_ns);
                all.push(IdleGap {
                    cpu,
                    start_ns,
                    gap_ns: end_ns.abs_diff(start_ns),
                    sleep_length_ns: gap.sleep_length_ns.map(since),
                    next_tick_ns: Some((4_000_000 - start_ns % 4_000_000) as u32),
                    ..*gap
                });
                last_ns = end_ns;
            }
            from_ns = last_ns + 1_000_000;
            if all.len() == end {
                break;
            }
        }
    }
    all
}

/// The columns of every course add up to the energy, delay, ticks and entries of its result.
fn assert_adds_up(page: &PageFile) {
    let facts = &page.facts;
    for course in facts["courses"].as_array().unwrap() {
        let totals = page.totals(course);
        let is_same = |result: &&Value| {
            ["log", "machine", "governor"].iter().all(|key| result[key] == course[key])
        };
        let result = facts["results"].as_array().unwrap().iter().find(is_same).unwrap();
        let energy_uj = result["energy_uj"].as_f64().unwrap();
        assert!((totals.energy_uj - energy_uj).abs() <= 1e-9 * energy_uj, "{totals:?} {result}");
        assert_eq!(result["delay_ns"], totals.delay_ns);
        assert_eq!(result["tick_wake_count"], totals.tick_count);
        let states = result["states"].as_array().unwrap().iter();
        let entries: Vec<u64> = states.map(|one| one["entry_count"].as_u64().unwrap()).collect();
        assert_eq!(entries, totals.entry_counts);
    }
}

#[test]
fn the_columns_add_up_to_what_a_replay_counts() {
    let page = report(&[]);
    assert_eq!(page.facts["courses"].as_array().unwrap().len(), 5 * 2 * 4);
    assert_adds_up(&page);
    let replay = json(&["replay", "--json"]);
    let name =
        |list: &str, index: &Value| page.facts[list][index.as_u64().unwrap() as usize].clone();
    for row in replay["rows"].as_array().unwrap() {
        let is_it = |result: &&Value| {
            !result["log"].is_null()
                && name("logs", &result["log"])["name"] == row["log"]
                && name("machines", &result["machine"])["id"] == row["machine"]
                && name("governors", &result["governor"])["name"] == row["governor"]
        };
        let result = page.facts["results"].as_array().unwrap().iter().find(is_it).unwrap();
        assert_eq!(result["energy_uj"], row["energy_uj"], "{row}");
        assert_eq!(result["delay_ns"], row["delay_sum_ns"], "{row}");
        assert_eq!(result["gap_count"], row["gap_count"], "{row}");
    }
}

#[test]
fn regret_by_length_and_choice_adds_up_to_the_regret() {
    let page = report(&["traces/s-softirq500.parquet", "--machine", "spr"]);
    let facts = &page.facts;
    let results = facts["results"].as_array().unwrap();
    let full_mw = facts["machines"][0]["full_price_mw"].as_f64().unwrap();
    for regret in facts["regret"].as_array().unwrap() {
        let cells = page.document(&regret["cells"]);
        let cells = cells.as_array().unwrap();
        let count: u64 = cells.iter().map(|cell| cell[3].as_u64().unwrap()).sum();
        let sum_uj: f64 = cells.iter().map(|cell| cell[4].as_f64().unwrap()).sum();
        let price = &facts["prices"][regret["price"].as_u64().unwrap() as usize];
        let lambda_mw = full_mw * price["share"].as_f64().unwrap();
        let cost_uj = |governor: &Value| {
            let is_it = |one: &&Value| one["log"] == regret["log"] && one["governor"] == *governor;
            let result = results.iter().find(is_it).unwrap();
            assert_eq!(result["gap_count"], count);
            result["energy_uj"].as_f64().unwrap()
                + lambda_mw * result["delay_ns"].as_f64().unwrap() * 1e-6
        };
        let is_oracle =
            |name: &Value| name == "oracle λ=0" || name == "oracle λ=¼" || name == "oracle λ=1";
        let governors = facts["governors"].as_array().unwrap();
        let first = governors.iter().position(|one| is_oracle(&one["name"])).unwrap();
        let oracle = Value::from(first as u64 + regret["price"].as_u64().unwrap());
        let expected_uj = cost_uj(&regret["governor"]) - cost_uj(&oracle);
        assert!(
            (sum_uj - expected_uj).abs() < 1e-4 * expected_uj.abs() + 1.0,
            "{sum_uj} {expected_uj}"
        );
    }
}

/// The oracle's rows lie on its front, no governor is below it, and it falls.
#[test]
fn nothing_is_below_the_front() {
    let page = report(&["traces/b-redis.parquet"]);
    let facts = &page.facts;
    for front in facts["fronts"].as_array().unwrap() {
        let points = front["points"].as_array().unwrap();
        let point =
            |one: &Value| (one["delay_ns"].as_f64().unwrap(), one["energy_uj"].as_f64().unwrap());
        for pair in points.windows(2) {
            let ((from_ns, from_uj), (to_ns, to_uj)) = (point(&pair[0]), point(&pair[1]));
            assert!(to_ns < from_ns && to_uj > from_uj, "{pair:?}");
        }
        let same = |result: &&Value| {
            result["log"] == front["log"] && result["machine"] == front["machine"]
        };
        for result in facts["results"].as_array().unwrap().iter().filter(same) {
            let (delay_ns, energy_uj) = point(result);
            let governor = &facts["governors"][result["governor"].as_u64().unwrap() as usize];
            if governor["role"] == "oracle" {
                assert!(points.iter().any(|one| point(one) == (delay_ns, energy_uj)), "{result}");
            }
            // Each point is the cheapest at its own price, up to λ = 1.
            let machine = &facts["machines"][result["machine"].as_u64().unwrap() as usize];
            for one in points {
                let lambda_mw = one["lambda_mw"].as_f64().unwrap();
                if lambda_mw <= machine["full_price_mw"].as_f64().unwrap() {
                    let cost_uj = |ns: f64, uj: f64| uj + lambda_mw * ns * 1e-6;
                    let least_uj = cost_uj(point(one).0, point(one).1);
                    assert!(
                        cost_uj(delay_ns, energy_uj) >= least_uj * (1.0 - 1e-9),
                        "{result} {one}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let arguments = ["traces/e-hackbench.parquet", "--gaps", "500"];
    let folder = folder();
    let path = folder.path().join("page.html");
    let write = |threads: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.current_dir(root()).env("RAYON_NUM_THREADS", threads).arg("report").args(arguments);
        let output = command.args(["--force", "-o"]).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(&path).unwrap()
    };
    let first = write("1");
    assert!(first == write("4"));
}

#[test]
fn an_existing_file_is_kept_and_an_input_is_never_replaced() {
    let folder = folder();
    let path = folder.path().join("page.html");
    fs::write(&path, "mine").unwrap();
    let path = path.to_str().unwrap();
    assert_refused(&["report", "traces/a-idle.parquet", "-o", path], &[path, "--force"]);
    assert_eq!(fs::read_to_string(path).unwrap(), "mine");
    let log = folder.path().join("log.parquet");
    fs::copy(root().join("traces/a-idle.parquet"), &log).unwrap();
    let log = log.to_str().unwrap();
    assert_refused(&["report", log, "-o", log, "--force"], &["not replaced"]);
    assert_refused(&["report", "--csv"], &["idlewise replay"]);
}

/// Ends the page's blocks, moves the cursor, turns the direction of text, and is longer than a screen.
const HOSTILE: &str =
    "</script><script>alert(1)</script><!--\u{1b}]0;x\u{7}\u{202e}\u{2066}\u{2028}'\"&lt;";

#[test]
fn foreign_text_neither_runs_nor_hides() {
    let folder = folder();
    let path = folder.path().join("a</script><script>alert(2)<!--.parquet");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let doubts = vec![Doubt::Other(HOSTILE.to_owned())];
    let metadata = LogMetadata {
        kernel: Some(HOSTILE.to_owned()),
        governor: Some(HOSTILE.to_owned()),
        doubts,
        ..metadata()
    };
    write_log(&path, &metadata, &tiled(50, 1));
    let machine = fs::read_to_string(root().join("machines/spr.toml")).unwrap();
    let title = machine.lines().find(|line| line.starts_with("title")).unwrap();
    let machine = machine.replace(title, "title = \"</script><script>alert(3)</script><!--\"");
    let machine_path = folder.path().join("machine.toml");
    fs::write(&machine_path, machine).unwrap();
    let page = report(&[path.to_str().unwrap(), "--machine", machine_path.to_str().unwrap()]);
    let ours = report(&["traces/a-idle.parquet", "--machine", "spr"]);
    let count = |page: &PageFile, tag: &str| page.html.to_ascii_lowercase().matches(tag).count();
    let column_count = |page: &PageFile| page.html.matches("class=\"column\"").count();
    for (tag, each) in [("<script", 1), ("</script", 1), ("<!--", 0), ("-->", 0)] {
        let foreign = count(&page, tag) - each * column_count(&page);
        assert_eq!(foreign, count(&ours, tag) - each * column_count(&ours), "{tag}");
    }
    for hidden in ['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}', '\u{2028}'] {
        assert!(!page.html.contains(hidden), "{hidden:?}");
    }
    assert!(page.plain().contains("&lt;/script&gt;"), "{}", page.plain());
    assert_eq!(page.facts["logs"][0]["kernel"], HOSTILE);
}

#[test]
fn a_log_without_gaps_and_one_with_a_single_gap() {
    let folder = folder();
    let (empty, single) =
        (folder.path().join("empty.parquet"), folder.path().join("single.parquet"));
    write_log(&empty, &metadata(), &[]);
    write_log(&single, &metadata(), &tiled(1, 1));
    assert_refused(
        &["report", empty.to_str().unwrap(), "--machine", "spr", "-o", "/dev/null"],
        &["nothing to judge"],
    );
    let page = report(&[single.to_str().unwrap(), "--machine", "spr"]);
    assert_eq!(page.facts["details"][0]["kept_count"], 1);
    assert_adds_up(&page);
    let both = report(&[empty.to_str().unwrap(), single.to_str().unwrap()]);
    assert_adds_up(&both);
}

/// Ten days of polling are billions of stays; all but eight are summed up.
#[test]
fn a_gap_of_many_stays_is_summed_up_exactly() {
    let folder = folder();
    let path = folder.path().join("long.parquet");
    write_log(&path, &metadata(), &[gap_of_ten_days()]);
    let page = report(&[path.to_str().unwrap(), "--machine", "spr", "--latency-limit-us", "0"]);
    assert_adds_up(&page);
    assert!(page.html.len() < 1_000_000);
}

/// Timers that a CPU promotes, and a tick's work that overruns gaps.
#[test]
fn promotions_and_overruns_add_up() {
    let arguments = ["traces/s-softirq500.parquet", "--machine", "spr"];
    let more = [
        "--promote",
        "C1,C1E",
        "--tick-work-ns",
        "200000",
        "--hz",
        "1000",
        "--governor",
        "fixed=C1",
    ];
    let page = report(&[&arguments[..], &more].concat());
    assert_adds_up(&page);
    let promoted =
        |result: &Value| result["promotion_count"].as_u64().is_some_and(|count| count > 0);
    assert!(page.facts["results"].as_array().unwrap().iter().any(promoted));
}

#[test]
fn what_a_recording_lacks_is_unknown() {
    let folder = folder();
    let path = folder.path().join("poor.parquet");
    let unknown =
        ["sleep_length_ns", "wake_reason", "recorded_state", "recorded_idle_ns", "tick_stopped"];
    let metadata =
        LogMetadata { unknown_columns: unknown.map(str::to_owned).to_vec(), ..metadata() };
    let poor = |gap: &IdleGap| IdleGap {
        sleep_length_ns: None,
        wake_reason: WakeReason::Unknown,
        recorded_state: None,
        recorded_idle_ns: None,
        tick_stopped: false,
        ..*gap
    };
    write_log(&path, &metadata, &tiled(300, 2).iter().map(poor).collect::<Vec<_>>());
    let page = report(&[path.to_str().unwrap(), "--machine", "spr"]);
    let knows = &page.facts["logs"][0]["knows"];
    for what in ["timers", "wakes", "states", "ticks"] {
        assert_eq!(knows[what], false, "{what}");
    }
    let columns = page.facts["details"][0]["columns"].as_object().unwrap();
    for name in ["timer", "reason", "recorded_state", "recorded_idle"] {
        assert!(!columns.contains_key(name), "{name}");
    }
    assert!(!page.plain().contains("are ended by"), "{}", page.plain());
    assert_adds_up(&page);
}

/// Sampling keeps every CPU, the longest gap and the worst miss, and no figure outside the timeline
/// changes.
#[test]
fn peaks_and_misses_and_every_cpu_survive_sampling() {
    let folder = folder();
    let path = folder.path().join("wide.parquet");
    let mut all = tiled(20_000, 512);
    // One long gap and one bad miss, on CPUs that nobody would look at.
    all[13_337].gap_ns = 5_000_000_000;
    let shift_ns = 6_000_000_000;
    let cpu = all[13_337].cpu;
    all[13_338..]
        .iter_mut()
        .take_while(|gap| gap.cpu == cpu)
        .for_each(|gap| gap.start_ns += shift_ns);
    write_log(&path, &metadata(), &all);
    let path = path.to_str().unwrap();
    let arguments = [path, "--machine", "spr", "--governor", "menu", "--governor", "teo"];
    let whole = report(&arguments);
    let some = report(&[&arguments[..], &["--gaps", "2000"]].concat());
    for same in ["results", "fronts", "wakes", "edges_ns", "tables", "verdicts"] {
        assert_eq!(whole.facts[same], some.facts[same], "{same}");
    }
    let (whole_detail, detail) = (&whole.facts["details"][0], &some.facts["details"][0]);
    assert_eq!(whole_detail["is_sampled"], false);
    assert_eq!(detail["is_sampled"], true);
    let kept_count = detail["kept_count"].as_u64().unwrap();
    assert!((512..4_000).contains(&kept_count), "{kept_count}");
    assert!(detail["how"].as_str().unwrap().starts_with(&format!("{kept_count} of 20000 gaps")));
    let column = |page: &PageFile, detail: &Value, name: &str| page.known(&detail["columns"][name]);
    let cpus: BTreeSet<i64> = column(&some, detail, "cpu").into_iter().collect();
    assert_eq!(cpus.len(), 512);
    assert_eq!(column(&some, detail, "gap").into_iter().max(), Some(5_000_000_000));
    // With the gaps that were left out, each CPU has all of its own up to its last row.
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for (cpu, skipped) in
        column(&some, detail, "cpu").into_iter().zip(column(&some, detail, "skipped"))
    {
        *counts.entry(cpu).or_default() += 1 + skipped as u64;
    }
    let expected = |cpu: i64| all.iter().filter(|gap| i64::from(gap.cpu) == cpu).count() as u64;
    assert!(counts.iter().all(|(&cpu, &count)| count == expected(cpu)));
    // Each row is a row of the whole page, at the same time.
    let rows =
        |page: &PageFile, detail: &Value| page.rows(detail).into_iter().collect::<BTreeSet<_>>();
    assert!(rows(&some, detail).is_subset(&rows(&whole, whole_detail)));
}

/// The page of 100,000 gaps that never repeat, with the default governors and machines.
#[test]
fn a_hundred_thousand_gaps_take_at_most_two_megabytes() {
    let folder = folder();
    let path = folder.path().join("large.parquet");
    write_log(&path, &metadata(), &tiled(100_000, 8));
    let page = report(&[path.to_str().unwrap()]);
    assert_eq!(page.facts["details"][0]["kept_count"], 100_000);
    assert!(page.html.len() <= 2_000_000, "{} bytes", page.html.len());
}

#[test]
fn says_what_it_wrote() {
    let folder = folder();
    let path = folder.path().join("page.html");
    let path = path.to_str().unwrap();
    let text = stdout(&["report", "traces/a-idle.parquet", "--machine", "spr", "-o", path]);
    assert!(text.contains(path) && text.contains("bytes"), "{text}");
    assert!(text.contains("On spr, "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100 || line.contains(path)), "{text}");
    let document = json(&["report", "traces/a-idle.parquet", "--force", "-o", path, "--json"]);
    assert_eq!(document["file"], path);
    assert_eq!(document["byte_count"], fs::metadata(path).unwrap().len());
    assert_eq!(document["verdicts"].as_array().unwrap().len(), 2);
}

/// Every figure of a chart is a number, and its kind has what the script reads.
fn assert_charts(page: &PageFile, kinds: &[&str]) {
    assert_eq!(page.facts["kind"], "figures");
    let charts = page.facts["charts"].as_array().unwrap();
    let ids: BTreeSet<&str> = charts.iter().map(|chart| chart["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), charts.len(), "each has its own id");
    for kind in kinds {
        assert!(charts.iter().any(|chart| chart["kind"] == *kind), "{kind}");
    }
    for chart in charts {
        let list = if matches!(chart["kind"].as_str(), Some("tornado" | "intervals")) {
            "rows"
        } else {
            "series"
        };
        assert!(!chart[list].as_array().unwrap().is_empty(), "{chart}");
        assert!(page.plain().contains("<p>"), "{}", page.plain());
    }
}

#[test]
fn saved_measurements_become_charts() {
    let saved = |name: &str| format!("crates/idlewise-cli/tests/saved/{name}.json");
    let (halt, mwait) = (saved("halt"), saved("mwait"));
    let page = report(&[&halt, &mwait]);
    assert_charts(&page, &["quantiles", "intervals"]);
    let name = page.facts["charts"][0]["series"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("halt, "), "{name}");
    report(&["docs/park/measured.json"]);
    let logs = ["report", &halt, "traces/a-idle.parquet", "-o", "/nowhere/page.html"];
    assert_refused(&logs, &["halt.json", "a-idle.parquet", "page of each kind"]);
    let other = ["report", &halt, "docs/park/measured.json", "-o", "/nowhere/page.html"];
    assert_refused(&other, &["halt", "a page for each"]);
}

#[test]
fn a_study_becomes_charts() {
    let folder = folder();
    let path = folder.path().join("study.html");
    let path = path.to_str().unwrap();
    let text = stdout(&["lab", "study", "promotion", "--report", path]);
    assert!(text.starts_with(path), "{text}");
    let page = PageFile::parse(fs::read_to_string(path).unwrap());
    assert_charts(&page, &["lines", "tornado"]);
    assert_refused(&["lab", "study", "promotion", "--report", path], &["--force"]);
}

/// Each verdict is a sentence with at most three facts, each with its basis, and says what limits it. A
/// replay shows what goes together and not why.
#[test]
fn a_verdict_is_short_and_names_no_cause() {
    let both = ["--governor", "menu", "--governor", "teo"];
    let pages = [
        report(&[]),
        report(&[&["traces/b-redis.parquet"], &both[..]].concat()),
        report(&["traces/s-softirq500.parquet", "--governor", "deepest", "--governor", "menu"]),
        report(&["traces/s-softirq500.parquet", "--governor", "shallowest"]),
        report(&["traces/s-softirq500.parquet", "--lambda-mw", "700"]),
    ];
    for (index, page) in pages.iter().enumerate() {
        for verdict in page.facts["verdicts"].as_array().unwrap() {
            let sentence = verdict["sentence"].as_str().unwrap();
            assert!(sentence.chars().count() < 200 && sentence.ends_with('.'), "{sentence}");
            let facts = verdict["facts"].as_array().unwrap();
            assert_eq!(facts.is_empty(), index == 3, "{verdict}");
            assert!(facts.len() <= 3 && facts.iter().all(|fact| fact["basis"].is_string()));
            let limits = verdict["limits"].as_array().unwrap();
            assert!((1..=5).contains(&limits.len()), "{verdict}");
            assert!(limits.last().unwrap().as_str().unwrap().contains("correlates"));
            let text = verdict.to_string();
            for cause in ["because", "cause", "due to", "thanks to", "leads to", "NaN", "inf "] {
                assert!(!text.contains(cause), "{cause}: {text}");
            }
        }
    }
    let only = pages[2].facts["verdicts"][0].to_string();
    assert!(
        only.contains("menu (the kernel's default): p99 290") && only.contains("menu's regret"),
        "{only}"
    );
}

/// The page's first numbers compare whom its sentence compares, also if the port of the governor in use has a kernel's
/// version in its name.
#[test]
fn the_first_numbers_are_those_of_the_verdict() {
    let folder = crate::folder();
    let log = folder.path().join("halt.parquet");
    let log = log.to_str().unwrap();
    let simulated = ["lab", "simulate", "spr", "nearly-idle", "--governor", "haltpoll"];
    stdout(&[&simulated[..], &["--duration-ms", "50", "--trace", log]].concat());
    let page = report(&[log]);
    let verdict = &page.facts["verdicts"][0];
    let sentence = verdict["sentence"].as_str().unwrap();
    let name = |key: &str| {
        let index = verdict[key].as_u64().unwrap() as usize;
        page.facts["governors"][index]["name"].as_str().unwrap()
    };
    assert_eq!((name("base"), &verdict["is_in_use"]), ("haltpoll-6.12", &Value::Bool(true)));
    assert!(sentence.contains(&format!("{} (in use)", name("base"))), "{sentence}");
    assert!(sentence.contains(name("other")) && name("other") != name("base"), "{sentence}");
}

/// The second machine's block counted the gaps of both logs.
#[test]
fn each_machine_has_the_gaps_of_its_own_logs() {
    let folder = crate::folder();
    let logs = [("spr", "poisson"), ("milan", "burst-then-idle")].map(|(machine, workload)| {
        let log = folder.path().join(format!("{machine}.parquet")).to_str().unwrap().to_owned();
        let line = format!(
            "lab simulate {machine} {workload} --set package_count=1 --set core_count=2 --set thread_count=1 \
             --duration-ms 200 --governor menu --trace {log}"
        );
        stdout(&line.split_whitespace().collect::<Vec<_>>());
        log
    });
    let page = report(&[&logs[0], &logs[1]]);
    let mut seen_count = 0;
    for verdict in page.facts["verdicts"].as_array().unwrap() {
        let machine = verdict["machine"].as_u64().unwrap() as usize;
        let id = &page.facts["machines"][machine]["id"];
        let logs = page.facts["logs"].as_array().unwrap();
        let own = logs.iter().find(|log| log["machine"] == *id).unwrap();
        for fact in verdict["facts"].as_array().unwrap() {
            let Some((head, _)) = fact["text"].as_str().unwrap().split_once(" gaps are ended by")
            else {
                continue;
            };
            let (_, count) = head.rsplit_once(' ').unwrap();
            assert_eq!(count, own["gap_count"].to_string(), "{id}: {fact}");
            seen_count += 1;
        }
    }
    assert!(seen_count > 0, "{}", page.facts["verdicts"]);
}

/// Whoever is asked gives the same reason.
#[test]
fn a_log_without_gaps_is_refused_by_all() {
    let folder = crate::folder();
    let log = folder.path().join("busy.parquet");
    let log = log.to_str().unwrap();
    let simulated =
        ["lab", "simulate", "skl-client", "hackbench", "--duration-ms", "20", "--trace"];
    stdout(&[&simulated[..], &[log]].concat());
    for command in [
        &["replay"][..],
        &["replay", "--rank"],
        &["replay", "--compare"],
        &["report", "-o", "/dev/null"],
        &["report", "--format", "mail"],
        &["advise"],
        &["lab", "simulate", "spr"],
        &["replay", "--json"],
        &["replay", "--rank", "--csv"],
        &["replay", "--compare", "--json"],
    ] {
        let arguments = [command, &[log]].concat();
        assert_refused(
            &arguments,
            &["busy: no idle period of CPUs 0-3 began and ended in", ": nothing to judge"],
        );
        assert!(crate::failure(&arguments).1.lines().all(|line| line.len() <= 100));
    }
}
