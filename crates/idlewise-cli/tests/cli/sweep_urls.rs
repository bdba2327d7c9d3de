//! `idlewise lab sweep` with URLs: logs of a web server, and what is said if something cannot be had. Buckets are tested
//! with a real server by python/tests/test_bucket.py.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::sweep::cell_count_of;
use super::{folder, root};

/// A web server of the files in a folder. It ends when it is dropped.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    folder: PathBuf,
    /// How many files were sent, heads not counted.
    sent_count: AtomicUsize,
    is_over: AtomicBool,
}

impl Server {
    fn new(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            folder: folder.to_owned(),
            sent_count: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let own = shared.clone();
        let serve = move || {
            for stream in listener.incoming().flatten() {
                if own.is_over.load(Ordering::SeqCst) {
                    return;
                }
                // Who goes away in the middle is none of the server's business.
                let _ = own.answer(stream);
            }
        };
        Server { address, shared, thread: Some(thread::spawn(serve)) }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    fn sent_count(&self) -> usize {
        self.shared.sent_count.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // So that it looks.
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
        let words: Vec<&str> = request.split(' ').collect();
        let [method, path, _] = words[..] else { return Ok(()) };
        let content = fs::read(self.folder.join(path.trim_start_matches('/'))).ok();
        let Some(content) = content.filter(|_| method == "GET" || method == "HEAD") else {
            let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return stream.write_all(head.as_bytes());
        };
        let tag = content
            .iter()
            .fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"{tag}\"\r\n\
             Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: close\r\n\r\n",
            content.len()
        )?;
        if method == "GET" {
            self.sent_count.fetch_add(1, Ordering::SeqCst);
            stream.write_all(&content)?;
        }
        stream.flush()
    }
}

/// Runs a sweep without credentials, and without patience for servers.
fn sweep(arguments: &[&str]) -> (Option<i32>, Value, String) {
    sweep_with(&[("IDLEWISE_RETRY_S", "0")], arguments)
}

/// Runs a sweep with these variables, and no others that are about servers.
fn sweep_with(environment: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
    command.args(["lab", "sweep"]).args(arguments).arg("--json");
    for (name, _) in std::env::vars() {
        let lower = name.to_ascii_lowercase();
        let is_of_clouds =
            ["aws_", "azure_", "google_", "gce_"].iter().any(|it| lower.starts_with(it));
        if is_of_clouds || lower.ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    // Where credentials of Google's tools would be.
    command.env("HOME", "/nonexistent").envs(environment.iter().copied());
    let output = command.output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code(), document, String::from_utf8(output.stderr).unwrap())
}

fn counts(document: &Value) -> [u64; 3] {
    ["present_count", "computed_count", "failed_count"]
        .map(|count| document[count].as_u64().unwrap_or_else(|| panic!("{document:#}")))
}

#[test]
fn logs_of_a_web_server_are_read_once_for_their_hash_and_once_to_be_replayed() {
    let place = folder();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let server = Server::new(&root().join("traces"));
    let manifest = |logs: &[String]| {
        format!("logs = {logs:?}\nmachines = [\"spr\", \"milan\"]\ngovernors = [\"menu\"]\n")
    };
    let urls = ["a-idle.parquet", "s-softirq500.perf.data.xz"].map(|name| server.url(name));
    fs::write(path("web.toml"), manifest(&urls)).unwrap();
    let (status, document, said) = sweep(&[&path("web.toml"), "--store", &path("web")]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(counts(&document), [0, 16, 0]);
    assert_eq!(server.sent_count(), 2 * 2);
    // With a table of their hashes, nothing more is read, also when the table is made again.
    let table = path("logs.parquet");
    for sent_count in [3 * 2, 3 * 2] {
        let (status, document, _) = sweep(&["plan", &path("web.toml"), "-o", &table]);
        assert_eq!((status, &document["log_count"]), (Some(0), &2.into()));
        assert_eq!(server.sent_count(), sent_count);
        for action in [&["status"][..], &[]] {
            let rest = [&path("web.toml")[..], "--logs", &table, "--store", &path("web")];
            let (_, document, _) = sweep(&[action, &rest].concat());
            assert_eq!(counts(&document), [16, 0, 0]);
        }
        assert_eq!(server.sent_count(), sent_count);
    }
    // The same content has the same cells, wherever it lies.
    let files = ["a-idle.parquet", "s-softirq500.perf.data.xz"]
        .map(|name| root().join("traces").join(name).to_str().unwrap().to_owned());
    fs::write(path("files.toml"), manifest(&files)).unwrap();
    let (_, document, _) = sweep(&[&path("files.toml"), "--store", &path("web")]);
    assert_eq!(counts(&document), [16, 0, 0]);
    assert_eq!(cell_count_of(Path::new(&path("web"))), 16);
}

#[test]
fn a_log_that_cannot_be_fetched_fails_alone() {
    let place = folder();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let server = Server::new(&root().join("traces"));
    let gone = {
        let gone = Server::new(&root().join("traces"));
        gone.url("a-idle.parquet")
    };
    let logs = [
        server.url("a-idle.parquet"),
        server.url("missing.parquet"),
        gone.clone(),
        "s3://bucket/x.parquet".to_owned(),
        "gs://bucket/x.parquet".to_owned(),
        "az://container/x.parquet".to_owned(),
    ];
    let text = format!("logs = {logs:?}\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    fs::write(path("sweep.toml"), text).unwrap();
    let (status, document, said) = sweep(&[&path("sweep.toml")]);
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(counts(&document), [0, 4, 5 * 4]);
    let has = |part: &str| {
        let failures = document["failures"].as_array().unwrap();
        let is_it = |failure: &&Value| {
            let reason = failure["reason"].as_str().unwrap();
            !reason.contains('\n') && reason.contains(part)
        };
        assert_eq!(failures.iter().filter(is_it).count(), 4, "{part}: {document:#}");
    };
    has("/missing.parquet: there is no such object or bucket");
    has(&format!("cannot read {gone}: Connection refused"));
    has(
        "s3://bucket/x.parquet: no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set",
    );
    has("gs://bucket/x.parquet: no credentials: GOOGLE_APPLICATION_CREDENTIALS is not set");
    has("az://container/x.parquet: AZURE_STORAGE_ACCOUNT_NAME is not set");
}

/// It accepts connections, and answers only after 25 seconds. We wait for one.
#[test]
fn a_server_that_is_silent_is_given_up() {
    let place = folder();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                // Until the other side goes away, as it should.
                stream.set_read_timeout(Some(Duration::from_secs(25)))?;
                std::io::copy(&mut stream, &mut std::io::sink()).map(drop).or_else(|_| {
                    stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                })
            });
        }
    });
    let server = format!("http://{address}");
    let environment = [
        ("IDLEWISE_RETRY_S", "1"),
        ("AWS_ENDPOINT_URL", &server[..]),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let log = format!("{server}/x.parquet");
    let text = |log: &str| format!("logs = {log:?}\nmachines = \"spr\"\ngovernors = \"menu\"\n");
    fs::write(path("log.toml"), text(&log)).unwrap();
    fs::write(path("store.toml"), text(root().join("traces/a-idle.parquet").to_str().unwrap()))
        .unwrap();
    let cells = path("cells");
    for (manifest, silent, store, status) in [
        ("log.toml", &log[..], &cells[..], 1),
        ("store.toml", "s3://bucket/cells", "s3://bucket/cells", 2),
    ] {
        let (found, document, said) =
            sweep_with(&environment, &[&path(manifest), "--store", store]);
        assert_eq!(found, Some(status), "{said}");
        assert!(said.contains(&format!("waiting for {silent}, which does not answer")), "{said}");
        let reason = format!("{document} {said}");
        assert!(reason.contains("operation timed out"), "{reason}");
    }
}

/// Passwords and signatures in URLs must not get into results, which others may read, nor into messages.
#[test]
fn a_password_in_a_url_is_never_shown() {
    let place = folder();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let server = Server::new(&root().join("traces"));
    let with_password = |url: &str| url.replace("://", "://me:pass%3Aword@");
    let gone = {
        let gone = Server::new(&root().join("traces"));
        with_password(&gone.url("x.parquet"))
    };
    let logs = [
        with_password(&server.url("a-idle.parquet")),
        // Its name begins with the user and the password if it has to be told from another.
        with_password(&server.url("missing.parquet")),
        server.url("missing.parquet"),
        gone,
        "https://host/x?X-Amz-Signature=password&v=1".to_owned(),
        "s4://me:password@host/x".to_owned(),
        with_password("http://127.0.0.1:9"),
    ];
    let text = format!("logs = {logs:?}\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n");
    fs::write(path("sweep.toml"), text).unwrap();
    let check = |shown: &str, at: &str| {
        for secret in ["password", "pass%3Aword", "pass:word"] {
            assert!(!shown.contains(secret), "{at}: {shown}");
        }
    };
    let mut shown_count = 0;
    for line in [
        &["lab", "sweep", &path("sweep.toml")][..],
        &["lab", "sweep", &path("sweep.toml"), "--json"],
        &["lab", "sweep", "status", &path("sweep.toml")],
        &["lab", "sweep", "status", &path("sweep.toml"), "--json"],
        &["lab", "sweep", "collect", &path("sweep.toml")],
        &["lab", "sweep", "collect", &path("sweep.toml"), "-o", &path("cells.json")],
        &["lab", "sweep", "plan", &path("sweep.toml"), "-o", &path("logs.parquet")],
        &["lab", "sweep", &with_password(&server.url("missing.toml"))],
        &["lab", "sweep", &path("sweep.toml"), "--store", "https://me:password@host/cells"],
        &["lab", "sweep", &path("sweep.toml"), "--store", "s4://me:password@host/cells"],
        &["lab", "sweep", "https://me:password@host/x", "and", "https://me:password@host/y"],
        &["replay", "https://me:password@host/x?sig=password"],
        &["info", "https://me:password@host/x"],
        &["replay", "--machine", "https://me:password@host/x"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idlewise"));
        command.args(line).env("IDLEWISE_RETRY_S", "0").env("no_proxy", "*");
        let output = command.output().unwrap();
        let shown =
            [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        check(&shown, &line.join(" "));
        shown_count += usize::from(shown.contains("me:***@"));
    }
    // The check would find nothing where nothing is shown.
    assert!(shown_count >= 10, "{shown_count}");
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                // Without the secrets nobody could read the logs. `plan` has said so.
                false if path.ends_with("sweep.toml") || path.ends_with("logs.parquet") => {}
                false => check(
                    &String::from_utf8_lossy(&fs::read(&path).unwrap()),
                    &path.to_string_lossy(),
                ),
            }
        }
    }
}

#[test]
fn a_manifest_can_be_behind_a_url() {
    let place = folder();
    let logs = place.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::copy(root().join("traces/a-idle.parquet"), logs.join("a.parquet")).unwrap();
    let text = "logs = [\"./a.parquet\"]\nmachines = [\"spr\"]\ngovernors = [\"menu\"]\n";
    fs::write(logs.join("sweep.toml"), text).unwrap();
    let server = Server::new(&logs);
    let store = place.path().join("cells");
    let url = server.url("sweep.toml");
    let (status, document, said) = sweep(&[&url, "--store", store.to_str().unwrap()]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(counts(&document), [0, 4, 0]);
    // Without --store, cells would be beside it.
    let (status, _, said) = sweep(&[&url]);
    assert_eq!(status, Some(2));
    assert!(said.contains("/cells: cells cannot be kept on a web server"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_wrong_store_is_refused_before_anything_is_computed() {
    let manifest = root().join("crates/idlewise-cli/tests/saved/sweep.toml");
    let manifest = manifest.to_str().unwrap();
    for (store, part) in [
        ("s4://bucket/cells", "no such kind of storage; there are s3, gs, az, http and https"),
        ("s3:///cells", "no bucket or server is named"),
        (
            "s3://bucket/cells",
            "no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set",
        ),
        ("https://host/cells", "cells cannot be kept on a web server"),
    ] {
        let (status, _, said) = sweep(&[manifest, "--store", store]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains(store) && said.contains(part), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
