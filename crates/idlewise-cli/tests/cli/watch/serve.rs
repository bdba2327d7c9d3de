//! Its page for Prometheus.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idlewise_report::watch::FAMILIES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{PATIENCE, path, server, while_playing_time};
use crate::captured::{CapturedMachine, More, state_file};
use crate::{assert_refused, root, stdout};

/// `idlewise watch --serve` on a port of its own.
pub struct Server {
    child: Child,
    address: SocketAddr,
    _stderr: BufReader<std::process::ChildStderr>,
}

impl Server {
    pub fn start(machine: &CapturedMachine) -> Self {
        Self::start_with(machine, &[])
    }

    fn start_with(machine: &CapturedMachine, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_idlewise"))
            .args(["watch", "--sysroot", path(machine), "--serve", "127.0.0.1:0"])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let (_, rest) = line.split_once("http://").unwrap_or_else(|| panic!("{line}"));
        let address = rest.split('/').next().unwrap().parse().unwrap();
        Server { child, address, _stderr: stderr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The head and the body of an answer.
    pub fn ask(&self, request: &str) -> (String, String) {
        let (head, body) = self.ask_bytes(request);
        (head, String::from_utf8(body).unwrap())
    }

    fn ask_bytes(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("a head");
        let body = answer.split_off(end + 4);
        (String::from_utf8(answer).unwrap(), body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
const OPEN_METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";

#[test]
fn prometheus_gets_the_counters_in_both_forms() {
    let machine = server();
    machine.write("sys/devices/system/cpu/cpu7/power/pm_qos_resume_latency_us", "20\n");
    let server = Server::start(&machine);
    let (head, body) = server.ask(METRICS);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    for line in [
        "idlewise_state_entries_total{cpu=\"7\",package=\"1\",state=\"C6\"} 9\n",
        "idlewise_state_residency_seconds_total{cpu=\"0\",package=\"0\",state=\"C6\"} 0.009\n",
        "idlewise_state_too_deep_total{cpu=\"0\",package=\"0\",state=\"C6\"} 1\n",
        "idlewise_state_too_shallow_total{cpu=\"0\",package=\"0\",state=\"C1\"} 3\n",
        "idlewise_state_exit_latency_seconds{state=\"C6\",cpus=\"0-7\"} 0.00029\n",
        "idlewise_cpu_latency_limit_seconds{cpu=\"7\",package=\"1\"} 0.00002\n",
        "idlewise_cpuidle_info{driver=\"intel_idle\",governor=\"menu\",kernel=\"none\"} 1\n",
    ] {
        assert!(body.contains(line), "{line}");
    }
    assert!(
        !body.contains("# EOF") && !body.contains("idlewise_cpu_latency_limit_seconds{cpu=\"6\"")
    );
    let (head, open) = server.ask(OPEN_METRICS);
    assert!(head.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(
        open.ends_with("# EOF\n")
            && open.contains("# UNIT idlewise_state_residency_seconds seconds\n")
    );
    let length = format!("Content-Length: {}", open.len());
    assert!(head.contains(&length), "{head}");
}

/// A machine with 224 CPUs has 24 counters of each, and nothing of each that is the same for all or follows from others.
#[test]
fn nothing_is_served_twice_and_groups_have_fewer_samples() {
    let machine = CapturedMachine::grown("server-ice-lake", 224);
    let samples = |options: &[&str]| {
        let (_, body) = Server::start_with(&machine, options).ask(METRICS);
        let lines = body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let of_cpus = samples(&[]);
    // Six of each of four states, and whether the CPU can be read.
    assert_eq!(of_cpus.iter().filter(|line| line.contains("cpu=\"")).count(), 224 * (6 * 4 + 1));
    assert!(of_cpus.len() < 224 * 25 + 20, "{}", of_cpus.len());
    assert!(
        of_cpus.contains(
            &"idlewise_state_entries_total{cpu=\"60\",package=\"1\",core=\"4\",state=\"C6\"} 11925"
                .to_owned()
        )
    );
    let of_packages = samples(&["--group", "package"]);
    let sum = 112 * 11_925;
    for package in [0, 1] {
        let line =
            format!("idlewise_state_entries_total{{package=\"{package}\",state=\"C6\"}} {sum}");
        assert!(of_packages.contains(&line), "{of_packages:#?}");
    }
    let of_machine = samples(&["--group", "machine"]);
    let line = format!("idlewise_state_entries_total{{state=\"C6\"}} {}", 2 * sum);
    assert!(of_machine.contains(&line), "{of_machine:#?}");
    assert!(of_machine.contains(&"idlewise_cpu_readable 224".to_owned()), "{of_machine:#?}");
    assert!(
        of_packages.len() < 80 && of_machine.len() < 50,
        "{} {}",
        of_packages.len(),
        of_machine.len()
    );
}

/// Prometheus would count all that is left once more. Some machines remove the states of a CPU that is offline, and count
/// from 0 when it is back.
#[test]
fn a_sum_does_not_fall_while_a_cpu_is_offline() {
    for (keeps_states, back) in [(true, 77), (false, 86)] {
        let machine = server();
        let server = Server::start_with(&machine, &["--group", "machine"]);
        let until = |wanted: (u64, u64)| {
            let began = Instant::now();
            loop {
                let (_, body) = server.ask(METRICS);
                let find = |name: &str| {
                    let line = body.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                    line.trim().parse::<u64>().unwrap()
                };
                let entries = find("idlewise_state_entries_total{state=\"C6\"}");
                let now = (entries, find("idlewise_cpu_readable"));
                if now == wanted {
                    break;
                }
                assert!(72 <= entries && entries <= wanted.0, "{now:?}");
                // It reads at most once a second.
                assert!(began.elapsed() < PATIENCE, "{now:?}");
                std::thread::yield_now();
            }
        };
        until((72, 8));
        let cpu = "sys/devices/system/cpu/cpu7";
        let [states, away] =
            [format!("{cpu}/cpuidle"), format!("{cpu}/away")].map(|name| machine.path().join(name));
        machine.count("0", 3, More { usage: 5, ..More::default() });
        if !keeps_states {
            fs::rename(&states, &away).unwrap();
            fs::remove_file(machine.path().join(format!("{cpu}/topology/physical_package_id")))
                .unwrap();
        }
        machine.set_online("0-6");
        until((77, 7));
        if !keeps_states {
            fs::rename(&away, &states).unwrap();
            machine.write(&state_file(7, 3, "usage"), "0\n");
        }
        machine.set_online("0-7");
        until((77, 8));
        if !keeps_states {
            machine.write(&state_file(7, 3, "usage"), "9\n");
        }
        until((back, 8));
    }
}

/// Each package has its memory.
#[test]
fn the_energy_of_each_package_has_a_name_of_its_own() {
    let machine = server();
    for (zone, name) in [("0", "package-0"), ("0:0", "dram"), ("1", "package-1"), ("1:0", "dram")] {
        let folder = format!("sys/class/powercap/intel-rapl:{zone}");
        machine.write(&format!("{folder}/name"), &format!("{name}\n"));
        machine.write(&format!("{folder}/energy_uj"), "1000\n");
    }
    let (_, body) = Server::start_with(&machine, &["--group", "package"]).ask(METRICS);
    for domain in ["package-0", "package-0-dram", "package-1", "package-1-dram"] {
        let sample = format!("idlewise_energy_joules_total{{domain=\"{domain}\"}} 0\n");
        assert_eq!(body.matches(&sample).count(), 1, "{body}");
    }
    let out = while_playing_time(&machine, || {
        stdout(&["watch", "--sysroot", path(&machine), "--json", "--count", "1"])
    });
    let document: Value = serde_json::from_str(&out).unwrap();
    let places: Vec<&str> = document["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["place"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["package 0", "package 0 dram", "package 1", "package 1 dram"]);
}

#[test]
fn a_client_that_takes_gzip_gets_it() {
    let machine = CapturedMachine::grown("server-ice-lake", 224);
    let server = Server::start(&machine);
    let request = METRICS.replace("\r\n\r\n", "\r\nAccept-Encoding: deflate, gzip;q=1.0\r\n\r\n");
    let (head, packed) = server.ask_bytes(&request);
    assert!(
        head.contains("\r\nContent-Encoding: gzip\r\n")
            && head.contains("\r\nVary: Accept, Accept-Encoding\r\n"),
        "{head}"
    );
    assert!(head.contains(&format!("Content-Length: {}", packed.len())), "{head}");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let (head, plain) = server.ask(METRICS);
    assert!(!head.contains("Content-Encoding"), "{head}");
    let without_time = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("idlewise_read"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(without_time(&text), without_time(&plain));
    assert!(packed.len() * 8 < plain.len(), "{} of {}", packed.len(), plain.len());
}

/// A page of another site whose name leads here for a while (DNS rebinding) reads nothing.
#[test]
fn a_foreign_name_gets_nothing() {
    let machine = server();
    let server = Server::start_with(&machine, &["--allow-host", "Server1.example.org"]);
    let ask = |host: &str| server.ask(&METRICS.replace("localhost", host));
    for host in ["evil.example", "evil.example:9737", "localhost.evil.example"] {
        let (head, body) = ask(host);
        assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
        assert_eq!(body.lines().count(), 1, "{body}");
        assert!(body.contains("--allow-host") && !body.contains("evil"), "{body}");
    }
    for host in ["localhost:9737", "127.0.0.1", "[::1]:9737", "server1.example.org:9737"] {
        assert!(ask(host).0.starts_with("HTTP/1.1 200 OK\r\n"), "{host}");
    }
    let refused = ["watch", "--sysroot", path(&machine), "--allow-host", "a"];
    assert_eq!(crate::failure(&refused).0, Some(2), "it is for --serve only");
}

#[test]
fn slow_and_hostile_clients_do_not_stop_it() {
    let machine = server();
    let server = Server::start(&machine);
    // More than it keeps: some say nothing, some ask and do not read, some never end their request.
    let held: Vec<TcpStream> = (0..60)
        .map(|number| {
            let mut stream = server.connect();
            let request = ["", METRICS, "GET /metrics HTTP/1.1\r\nA: "][number % 3];
            // It may have been cut off by now.
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        assert!(server.ask(METRICS).0.starts_with("HTTP/1.1 200"));
    }
    for noise in [
        &[0_u8; 100][..],
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        &[b'a'; 20_000],
    ] {
        let mut stream = server.connect();
        let _ = stream.write_all(noise);
        // What it answers does not matter, if it goes on.
        let _ = stream.read(&mut [0; 100]);
    }
    // Reset instead of closed.
    for stream in held {
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
    assert!(server.ask(OPEN_METRICS).1.ends_with("# EOF\n"));
    let statm = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let peak = statm.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kb: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kb < 100 << 10, "{peak_kb} kB");
}

#[test]
fn serves_others_only_if_it_is_told_so_and_ends_by_a_signal() {
    let machine = server();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let sysroot = ["watch", "--sysroot", path(&machine), "--serve"];
    let refused =
        |address: &str, parts: &[&str]| assert_refused(&[&sysroot[..], &[address]].concat(), parts);
    refused(&address, &["in use", "choose another port"]);
    refused("0.0.0.0:0", &["--allow-remote"]);
    refused("192.0.2.1:0", &["--allow-remote"]);
    let mut server = Server::start(&machine);
    kill_process(Pid::from_child(&server.child), Signal::TERM).unwrap();
    assert!(server.child.wait().unwrap().success());
}

/// The dashboard in docs names only metrics and labels that exist.
#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let text = fs::read_to_string(root().join("docs/watch/grafana.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut expressions = Vec::new();
    collect(&dashboard, &mut expressions);
    assert!(expressions.len() >= 8, "{expressions:?}");
    let names: Vec<String> =
        FAMILIES.iter().map(|family| family.sample_name().into_owned()).collect();
    let mut used = Vec::new();
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("idlewise_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(names.iter().any(|name| name == metric), "{metric}: {expression}");
            used.push(metric.to_owned());
        }
        // What stands before = in braces, and after `by`, are labels.
        let labels =
            expression.split(['{', '(', ',']).filter_map(|part| part.trim().split_once(['=', '~']));
        for (label, _) in labels {
            let label = label.trim_end_matches(['!', ' ']);
            let known = [
                "cpu", "cpus", "package", "core", "state", "domain", "driver", "governor",
                "kernel", "instance", "job",
            ];
            assert!(known.contains(&label), "{label}: {expression}");
        }
    }
    for needed in [
        "residency",
        "entries",
        "too_deep",
        "too_shallow",
        "exit_latency",
        "latency_limit",
        "energy",
    ] {
        assert!(used.iter().any(|name| name.contains(needed)), "nothing of {needed}");
    }
}

#[test]
fn the_guide_lists_every_metric_with_its_labels() {
    let guide = fs::read_to_string(root().join("docs/watch.md")).unwrap();
    for family in FAMILIES {
        let labels = match family.labels {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let name = format!("`{}{labels}`", family.sample_name());
        assert!(guide.contains(&name), "{name}");
    }
}

/// All values of `expr`, and the queries of variables.
fn collect(value: &Value, expressions: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text)
                        if name == "expr" || name == "query" && text.contains("idlewise_") =>
                    {
                        expressions.push(text.clone());
                    }
                    value => collect(value, expressions),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, expressions)),
        _ => {}
    }
}
