//! `idlewise lab sweep`: where its logs come from, the table of them, and what is wrong in it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use idlewise_report::ParquetColumns;

use super::root;
use super::sweep::{Place, counts};

fn store_of(place: &Place) -> String {
    place.path("cells").to_str().unwrap().to_owned()
}

/// Logs are looked for and hashed once. A part that takes the table looks for none, and computes only what is its own.
#[test]
fn parts_take_the_logs_from_a_table() {
    let place = Place::new("logs = [\"logs/\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    place.copy("a-idle.parquet", "a.parquet");
    place.copy("b-redis.parquet", "b.parquet");
    place.copy("s-softirq500.perf.data.xz", "c.perf.data.xz");
    let table = place.path("table.parquet");
    let table = table.to_str().unwrap();
    let said = place.text(&["plan", "-o", table]);
    assert!(said.starts_with(&format!("{table}: 3 logs, ")), "{said}");
    let rows = ParquetColumns::of(fs::read(table).unwrap()).unwrap();
    assert_eq!([0, 1, 2].map(|row| rows.text("log", row)), [Some("a"), Some("b"), Some("c")]);
    assert_eq!((rows.count("gap_count", 0), rows.count("gap_count", 2)), (Some(147), None));
    // One that came later is nobody's, until the table is made again.
    place.copy("h-pingpong.parquet", "d.parquet");
    let parts = ["1/3", "2/3", "3/3"];
    let of_part =
        |part| place.counts(&["--logs", table, "--shard", part, "--store", &store_of(&place)]);
    assert_eq!(parts.map(of_part), [[0, 4, 0]; 3]);
    assert_eq!(
        place.counts(&["status", "--logs", table, "--store", &store_of(&place)]),
        [12, 0, 0]
    );
    assert_eq!(place.counts(&["--store", &store_of(&place)]), [12, 4, 0]);
    // Twice the same table is once its logs, and one in another packing says so.
    let twice = place.path("twice.parquet");
    let rows = idlewise_report::logs::of_file(fs::read(table).unwrap()).unwrap();
    fs::write(&twice, idlewise_report::logs::to_file(&[&rows[..], &rows].concat())).unwrap();
    assert_eq!(place.sweep(&["status", "--logs", twice.to_str().unwrap()]).1["cell_count"], 12);
    // A folder that is not there is no log that cannot be read.
    fs::rename(place.path("logs"), place.path("away")).unwrap();
    let output = place.run(&["plan", "-o", table]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("logs: logs/: no such folder"));
    fs::rename(place.path("away"), place.path("logs")).unwrap();
    // A table is not written over something else, and nothing else is a table.
    let logs = fs::read(place.path("logs/a.parquet")).unwrap();
    for file in ["logs/a.parquet", "sweep.toml"] {
        let output = place.run(&["plan", "-o", place.path(file).to_str().unwrap()]);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("not a table of logs"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert_eq!(fs::read(place.path("logs/a.parquet")).unwrap(), logs);
    // What is no longer what it was is no cell of what it was.
    place.copy("s-softirq500.parquet", "b.parquet");
    fs::remove_file(place.path("logs/a.parquet")).unwrap();
    let fresh = place.path("fresh");
    let (status, document) = place.sweep(&["--logs", table, "--store", fresh.to_str().unwrap()]);
    assert_eq!((status, counts(&document)), (Some(1), [0, 4, 8]), "{document:#}");
    let reasons = document["failures"].to_string();
    assert!(
        reasons.contains("b.parquet: it has changed since it was hashed; run this again"),
        "{reasons}"
    );
    assert!(reasons.contains("No such file"), "{reasons}");
    let of_store = place.sweep(&["status", "--logs", table, "--store", fresh.to_str().unwrap()]);
    assert_eq!(
        of_store.1["missing_count"], 8,
        "no reason is kept under a hash that is not its own"
    );
    // The recording is now the new log's.
    let (status, document) = place.sweep(&["plan", "-o", table]);
    assert_eq!((status, &document["log_count"]), (Some(0), &2.into()), "{document:#}");
}

/// Names that differ only in bytes that are not UTF-8 are different logs, and so is one that looks like the encoding.
#[test]
fn a_table_has_logs_whose_names_are_not_utf_8() {
    let place = Place::new("logs = [\"logs/\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    fs::create_dir(place.path("logs")).unwrap();
    for (log, name) in [
        ("a-idle", &b"x\xff %41.parquet"[..]),
        ("b-redis", b"x\xfe %41.parquet"),
        ("s-softirq500", b"x%FF%20%2541.parquet"),
    ] {
        let to = place.path("logs").join(OsStr::from_bytes(name));
        fs::copy(root().join(format!("traces/{log}.parquet")), to).unwrap();
    }
    let table = place.path("table.parquet");
    let table = table.to_str().unwrap();
    let (status, document) = place.sweep(&["plan", "-o", table]);
    assert_eq!((status, &document["log_count"]), (Some(0), &3.into()), "{document:#}");
    let rows = idlewise_report::logs::of_file(fs::read(table).unwrap()).unwrap();
    let mut urls: Vec<String> = rows.into_iter().filter_map(|row| row.url).collect();
    urls.sort();
    let logs = place.path("logs");
    let logs = logs.to_str().unwrap();
    let expected = [
        format!("{logs}/x%FF%20%2541.parquet"),
        format!("file://{logs}/x%FE%20%2541.parquet"),
        format!("file://{logs}/x%FF%20%2541.parquet"),
    ];
    assert_eq!(urls, expected);
    assert_eq!(place.counts(&["--logs", table]), [0, 3 * 4, 0]);
    assert_eq!(place.counts(&[]), [3 * 4, 0, 0]);
}

/// Also in a pattern. What is called otherwise may lie beside logs, and nothing is said.
#[test]
fn what_is_called_like_a_log_and_is_none_is_said() {
    let place = Place::new("");
    fs::create_dir_all(place.path("logs/folder.parquet")).unwrap();
    fs::create_dir(place.path("logs/notes")).unwrap();
    let log = |name: &str| place.path("logs").join(name);
    for (trace, name) in [("a-idle", "a.parquet"), ("b-redis", "UPPER.PARQUET")] {
        fs::copy(root().join(format!("traces/{trace}.parquet")), log(name)).unwrap();
    }
    fs::write(log("README.txt"), "notes").unwrap();
    std::os::unix::fs::symlink("nowhere", log("broken.parquet")).unwrap();
    std::os::unix::fs::symlink("nowhere", log("README")).unwrap();
    assert!(Command::new("mkfifo").arg(log("pipe.dat")).status().unwrap().success());
    let table = place.path("table.parquet");
    for logs in ["logs/", "logs/[!R]*"] {
        let text = format!("logs = {logs:?}\nmachines = \"spr\"\ngovernors = \"menu\"\n");
        place.write(&text);
        for command in [&["plan", "-o", table.to_str().unwrap()][..], &["status"]] {
            let output = place.run(command);
            let said = String::from_utf8(output.stderr).unwrap();
            for line in [
                "broken.parquet is left out, because it is a link to nothing\n",
                "folder.parquet is left out, because it is a folder, not a file\n",
                "pipe.dat is left out, because it is a pipe, not a file\n",
            ] {
                assert!(said.contains(line), "{logs}, {command:?}: {said}");
            }
            assert_eq!(said.lines().count(), 3, "{said}");
        }
        assert_eq!(place.sweep(&["plan", "-o", table.to_str().unwrap()]).1["log_count"], 2);
    }
    // The table is no log by this name either.
    fs::rename(table, log("TABLE.PARQUET")).unwrap();
    let said = String::from_utf8(place.run(&["status"]).stderr).unwrap();
    assert!(said.contains("TABLE.PARQUET is left out, because it is no idle log"), "{said}");
}

/// A row without a file or a hash fails alone, and so does a log without content.
#[test]
fn a_wrong_row_of_a_table_is_named() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\", \"LOGS/b-redis.parquet\", \"LOGS/s-softirq500.parquet\", \"empty.parquet\"]\n\
         machines = [\"spr\"]\ngovernors = [\"menu\"]\n",
    );
    fs::write(place.path("empty.parquet"), "").unwrap();
    let table = place.path("table.parquet");
    let table = table.to_str().unwrap();
    place.sweep(&["plan", "-o", table]);
    let mut rows = idlewise_report::logs::of_file(fs::read(table).unwrap()).unwrap();
    assert_eq!(
        rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>()[..2],
        ["a-idle", "b-redis"]
    );
    rows[0].url = Some(String::new());
    rows[1].sha256 = rows[1].sha256.as_ref().map(|sha256| sha256[1..].to_owned());
    fs::write(table, idlewise_report::logs::to_file(&rows)).unwrap();
    let (status, document) = place.sweep(&["--logs", table]);
    assert_eq!((status, counts(&document)), (Some(1), [0, 4, 3 * 4]), "{document:#}");
    let reasons = document["failures"].to_string();
    for part in [
        "a-idle, row 1 of the table of logs: url is empty",
        "b-redis, row 2 of the table of logs: log_sha256 is not a SHA-256, which has 64 digits from 0 to 9 and a to f",
        "empty.parquet: the file is empty",
    ] {
        assert!(reasons.contains(part), "{part}: {reasons}");
    }
}

/// A row whose hash is another log's keeps no result under that hash, and hides nobody.
#[test]
fn a_row_with_the_hash_of_another_log_fails_alone() {
    let place = Place::new(
        "logs = [\"LOGS/a-idle.parquet\", \"LOGS/b-redis.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n",
    );
    let table = place.path("table.parquet");
    let table = table.to_str().unwrap();
    place.sweep(&["plan", "-o", table]);
    let rows = idlewise_report::logs::of_file(fs::read(table).unwrap()).unwrap();
    let [idle, redis] = &rows[..] else { panic!("two rows") };
    let of_redis = |url: Option<&str>| idlewise_report::logs::LogRow {
        url: url.map(str::to_owned),
        sha256: redis.sha256.clone(),
        ..idle.clone()
    };
    let missing = idlewise_report::logs::LogRow { sha256: None, ..of_redis(None) };
    for wrong in
        [of_redis(None), of_redis(idle.url.as_deref()), of_redis(Some("/dev/zero")), missing]
    {
        let mut rows = vec![wrong, redis.clone()];
        for _ in 0..2 {
            fs::write(table, idlewise_report::logs::to_file(&rows)).unwrap();
            let store = place.path("cells");
            let _ = fs::remove_dir_all(&store);
            let (status, document) = place.sweep(&["--logs", table]);
            assert_eq!((status, counts(&document)), (Some(1), [0, 4, 4]), "{document:#}");
            // The right row's cells are the right log's.
            let (_, document) = place.sweep(&["--logs", table]);
            assert_eq!(counts(&document), [4, 0, 4], "{document:#}");
            assert_eq!(place.counts(&[]), [4, 4, 0]);
            rows.reverse();
        }
    }
    // Alone, too.
    fs::remove_dir_all(place.path("cells")).unwrap();
    fs::write(table, idlewise_report::logs::to_file(&[of_redis(None)])).unwrap();
    let (status, document) = place.sweep(&["--logs", table]);
    assert_eq!((status, counts(&document)), (Some(1), [0, 0, 4]), "{document:#}");
    assert!(document["failures"].to_string().contains("another log of this name built in"));
}
