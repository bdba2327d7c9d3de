//! `idlewise watch --serve`: the counters as a page for Prometheus.
//!
//! One thread waits for everything at once (poll), so nothing is shared and nothing is locked. What a client
//! can cost is bounded:
//!
//! * at most [`CONNECTION_COUNT_MAX`] connections; one more ends the oldest, so clients that say nothing cannot
//!   keep others out
//! * a request's head has at most [`HEAD_BYTE_COUNT_MAX`] bytes, and a connection lives at most
//!   [`CONNECTION_AGE_MAX`], however slowly it reads
//! * the counters are read at most once in [`READ_AGE_MAX`]; all clients of that time share the text
//!
//! A page of some other site must not read these figures through a visitor's browser. It could if its name led to this
//! machine for a while (DNS rebinding): the browser then takes both for one site. So what a client calls us, the `Host`
//! of HTTP, must be `localhost`, an address, or a name that the user gave; everything else is refused.
//!
//! Requests are parsed by `httparse`, which is what hyper uses. A whole server would bring an asynchronous runtime
//! for one page; the smaller ones either have no time-outs or have not been released for years.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use idlewise_report::watch::{Exposition, Form, Grouping, Reading, Steady, write_metrics};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::source::Source;
use crate::error::{Failure, Result};
use crate::program;
use crate::screen::say;
use crate::signals::Signals;

const CONNECTION_COUNT_MAX: usize = 16;
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(10);
const HEAD_BYTE_COUNT_MAX: usize = 8 << 10;
const HEADER_COUNT_MAX: usize = 64;
const READ_AGE_MAX: Duration = Duration::from_secs(1);
/// How long the listener rests if no connection can be accepted, for lack of files or memory.
const REST: Duration = Duration::from_secs(1);

const NOT_OURS: &str =
    "this server has no such name: ask by its address, or start it with --allow-host NAME\n";
const INDEX: &str = "idlewise watch --serve: the metrics are at /metrics\n";

/// Parses where to listen: `ADDRESS:PORT` or `localhost:PORT`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    if let Some(port) = local {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_| "give an address and a port, such as 127.0.0.1:9737 or [::1]:9737".to_owned())
}

/// Parses a name that clients may use.
pub fn host_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    match !text.is_empty() && text.chars().all(is_name) {
        true => Ok(plain_name(text)),
        false => Err("give a name without a port, such as server1.example.org".to_owned()),
    }
}

/// Names are the same in capitals, and with a dot at their end.
fn plain_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// What is served, and to whom.
pub struct Served {
    /// Where to listen.
    pub address: SocketAddr,
    /// What a sample is about.
    pub by: Grouping,
    /// Whether other machines may reach it.
    pub allows_remote: bool,
    /// What clients may call us besides `localhost` and addresses.
    pub host_names: Vec<String>,
}

/// Serves the counters until a signal comes.
///
/// # Errors
/// Fails if the address cannot be used, or if nothing says any more what CPUs do.
pub fn serve(mut source: Source, served: &Served, mut signals: Signals) -> Result<ExitCode> {
    let address = served.address;
    if !address.ip().is_loopback() && !served.allows_remote {
        return Err(Failure::new(format_args!(
            "--serve {address}: other machines could read these figures, without a password; add --allow-remote \
             if they may, or use 127.0.0.1:{}",
            address.port()
        )));
    }
    let listener = TcpListener::bind(address).map_err(|error| {
        let todo = match error.kind() {
            io::ErrorKind::AddrInUse => "another program has it; choose another port",
            io::ErrorKind::PermissionDenied => "ports below 1024 are root's; choose a higher one",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address; use 127.0.0.1",
            _ => "choose another address",
        };
        Failure::new(format_args!("cannot listen on {address}: {error}; {todo}"))
    })?;
    listener.set_nonblocking(true).map_err(|error| cannot_wait(&error))?;
    let address = listener.local_addr().map_err(|error| cannot_wait(&error))?;
    let reach = if address.ip().is_loopback() { "" } else { " to every machine that reaches it" };
    say(format_args!("idlewise: serving http://{address}/metrics{reach} until ctrl-c"));
    let mut pages = Pages { by: served.by, ..Pages::default() };
    let mut connections: Vec<Connection> = Vec::new();
    let mut rests_until: Option<Instant> = None;
    while !signals.has_ended() {
        let now = Instant::now();
        connections.retain(|connection| now < connection.ends_at);
        rests_until = rests_until.filter(|until| now < *until);
        let ends = connections.iter().map(|connection| connection.ends_at).chain(rests_until);
        let timeout = ends.min().map(|end| {
            // Rounded up, so that the end has come when poll returns.
            let left = end.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut waits = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        waits.extend(connections.iter().map(|connection| {
            let wanted = if connection.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(connection.stream.as_fd(), wanted)
        }));
        if rests_until.is_none() {
            waits.push(PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN));
        }
        match poll(&mut waits, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(cannot_wait(&error.into())),
        }
        let is_ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        drop(waits);
        if is_ready[0] {
            signals.wait(Duration::ZERO)?;
        }
        let connection_count = connections.len();
        let mut ready = is_ready[1..].iter();
        let mut failure = None;
        connections.retain_mut(|connection| {
            if ready.next() != Some(&true) {
                return true;
            }
            let page = |wish| pages.get(&mut source, wish);
            connection.go_on(&served.host_names, page).unwrap_or_else(|error| {
                failure = failure.take().or(error);
                false
            })
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if is_ready.get(1 + connection_count) == Some(&true) && !accept(&listener, &mut connections)
        {
            rests_until = Some(Instant::now() + REST);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_wait(error: &io::Error) -> Failure {
    Failure::new(format_args!("cannot wait for connections: {error}"))
}

/// Accepts a connection. Returns `false` if that is impossible for now.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> bool {
    match listener.accept() {
        Ok((stream, _)) => {
            if connections.len() >= CONNECTION_COUNT_MAX {
                connections.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                connections.push(Connection {
                    stream,
                    ends_at: Instant::now() + CONNECTION_AGE_MAX,
                    head: Vec::new(),
                    answer: None,
                });
            }
            true
        }
        // The client has gone, or another signal came.
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted
        ),
    }
}

/// The texts of the last reading.
#[derive(Default)]
struct Pages {
    reading: Reading,
    read_at: Option<Instant>,
    read_ns: u64,
    by: Grouping,
    steady: Steady,
    /// By [`Wish::place`].
    texts: [Option<Rc<[u8]>>; 4],
}

/// What page a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wish {
    form: Form,
    is_packed: bool,
}

impl Wish {
    fn place(self) -> usize {
        2 * usize::from(self.form == Form::OpenMetrics) + usize::from(self.is_packed)
    }
}

impl Pages {
    /// Returns the page, not older than [`READ_AGE_MAX`].
    fn get(&mut self, source: &mut Source, wish: Wish) -> Result<Rc<[u8]>> {
        let at = wish.place();
        let is_fresh = self.read_at.is_some_and(|at| at.elapsed() < READ_AGE_MAX);
        if let (true, Some(text)) = (is_fresh, &self.texts[at]) {
            return Ok(text.clone());
        }
        if !is_fresh {
            let began = Instant::now();
            self.texts = Default::default();
            source.follow()?;
            source.read(&mut self.reading);
            if self.by != Grouping::Cpu {
                self.steady.follow(source.layout(), &mut self.reading);
            }
            self.read_at = Some(began);
            self.read_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        let mut text = String::new();
        let exposition = Exposition {
            layout: source.layout(),
            reading: &self.reading,
            by: self.by,
            version: program::VERSION,
            commit: program::COMMIT,
            read_ns: self.read_ns,
        };
        write_metrics(&mut text, wish.form, &exposition);
        let text: Rc<[u8]> =
            if wish.is_packed { packed(&text)?.into() } else { text.into_bytes().into() };
        self.texts[at] = Some(text.clone());
        Ok(text)
    }
}

/// Packs a page: names and labels repeat, so even the fastest way leaves a tenth of it.
fn packed(text: &str) -> Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packer.write_all(text.as_bytes()).and_then(|()| packer.finish());
    packed.map_err(|error| Failure::new(format_args!("cannot pack the page: {error}")))
}

/// A client. It may ask one thing.
struct Connection {
    stream: TcpStream,
    ends_at: Instant,
    head: Vec<u8>,
    answer: Option<Answer>,
}

/// What is written to a client.
struct Answer {
    head: String,
    body: Rc<[u8]>,
    written: usize,
}

impl Connection {
    /// Reads or writes as much as is possible now. Returns whether the connection goes on.
    ///
    /// # Errors
    /// Returns the failure of `page`, or `None` if only this client is lost.
    fn go_on(
        &mut self,
        host_names: &[String],
        page: impl FnMut(Wish) -> Result<Rc<[u8]>>,
    ) -> Result<bool, Option<Failure>> {
        if self.answer.is_none() && !self.read(host_names, page)? {
            return Ok(true);
        }
        self.write().map_err(|_| None)
    }

    /// Returns whether there is an answer.
    fn read(
        &mut self,
        host_names: &[String],
        page: impl FnMut(Wish) -> Result<Rc<[u8]>>,
    ) -> Result<bool, Option<Failure>> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(count) => self.head.extend_from_slice(&buffer[..count]),
            Err(error) if is_early(&error) => return Ok(false),
            Err(_) => return Err(None),
        }
        self.answer = answer(&self.head, host_names, page).map_err(Some)?;
        Ok(self.answer.is_some())
    }

    /// Returns whether something is left to write.
    fn write(&mut self) -> io::Result<bool> {
        let Some(answer) = &mut self.answer else { return Ok(true) };
        loop {
            let rest = match answer.head.as_bytes().get(answer.written..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &answer.body[answer.written - answer.head.len()..],
            };
            if rest.is_empty() {
                // The client reads to the end before it sees that the connection is closed.
                self.stream.shutdown(std::net::Shutdown::Write)?;
                return Ok(false);
            }
            match self.stream.write(rest) {
                Ok(count) => answer.written += count,
                Err(error) if is_early(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Returns the answer to a request, or `None` if its head is not complete.
fn answer(
    head: &[u8],
    host_names: &[String],
    mut page: impl FnMut(Wish) -> Result<Rc<[u8]>>,
) -> Result<Option<Answer>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refused =
        |status: &str, why: &str| Ok(Some(Answer::new(status, TEXT, why.as_bytes().into(), false)));
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTE_COUNT_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refused("431 Request Header Fields Too Large", "too long\n");
        }
        Err(_) => return refused("400 Bad Request", "no HTTP request\n"),
    }
    let values = |name: &'static str| {
        let named =
            request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| std::str::from_utf8(header.value).unwrap_or_default())
    };
    if !values("host").all(|host| is_ours(host, host_names)) {
        return refused("403 Forbidden", NOT_OURS);
    }
    let is_head = request.method == Some("HEAD");
    if !is_head && request.method != Some("GET") {
        return refused("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n");
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match path {
        "/metrics" => {}
        "/" => return Ok(Some(Answer::new("200 OK", TEXT, INDEX.as_bytes().into(), is_head))),
        _ => return refused("404 Not Found", INDEX),
    }
    let form = Form::of_accept(values("accept").next().unwrap_or_default());
    let wish = Wish { form, is_packed: values("accept-encoding").any(takes_gzip) };
    let kind = match wish.is_packed {
        true => format!("{}\r\nContent-Encoding: gzip", form.content_type()),
        false => form.content_type().to_owned(),
    };
    let kind = format!("{kind}\r\nVary: Accept, Accept-Encoding");
    Ok(Some(Answer::new("200 OK", &kind, page(wish)?, is_head)))
}

/// Whether a client calls us by a name or an address that is ours. Other names may lead here too, by DNS.
fn is_ours(host: &str, host_names: &[String]) -> bool {
    let host = host.trim();
    if host.parse::<SocketAddr>().is_ok() || host.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = plain_name(name);
    name == "localhost" || host_names.contains(&name)
}

/// Whether an `Accept-Encoding` allows gzip.
fn takes_gzip(encodings: &str) -> bool {
    encodings.split(',').any(|encoding| {
        let mut parts = encoding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused =
            parts.any(|part| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0)));
        is_gzip && !is_refused
    })
}

impl Answer {
    fn new(status: &str, content_type: &str, body: Rc<[u8]>, is_head: bool) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        Answer { head, body: if is_head { Rc::default() } else { body }, written: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and the body of the answer to a request; `None` if it is not complete.
    fn asked(request: &str) -> Option<(String, String)> {
        let page = |wish: Wish| {
            let packed = if wish.is_packed { " packed" } else { "" };
            Ok(format!("{:?}{packed}", wish.form).into_bytes().into())
        };
        let names = ["server1.example.org".to_owned()];
        let answer = answer(request.as_bytes(), &names, page).unwrap()?;
        let status = answer.head.split("\r\n").next().unwrap().to_owned();
        let length = format!("Content-Length: {}\r\n", answer.body.len());
        assert!(request.starts_with("HEAD") || answer.head.contains(&length), "{}", answer.head);
        Some((status, String::from_utf8(answer.body.to_vec()).unwrap()))
    }

    fn status(request: &str) -> String {
        asked(request).unwrap().0
    }

    #[test]
    fn answers_what_is_asked_for() {
        let (status, body) = asked("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "Prometheus"));
        let accept = "aCCept: application/openmetrics-text;version=1.0.0,*/*;q=0.1";
        let (_, body) = asked(&format!("GET /metrics?a=b HTTP/1.0\r\n{accept}\r\n\r\n")).unwrap();
        assert_eq!(body, "OpenMetrics");
        assert_eq!(asked("HEAD /metrics HTTP/1.1\r\n\r\n").unwrap().1, "");
        assert!(asked("GET / HTTP/1.1\r\n\r\n").unwrap().1.contains("/metrics"));
    }

    #[test]
    fn waits_for_the_end_of_a_head_and_not_longer_than_for_8_kib() {
        for part in ["", "G", "GET /metrics HTTP/1.1\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(asked(part), None, "{part:?}");
        }
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "x".repeat(HEAD_BYTE_COUNT_MAX));
        assert!(status(&long).contains(" 431 "));
        let many =
            format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADER_COUNT_MAX + 1));
        assert!(status(&many).contains(" 431 "));
    }

    #[test]
    fn packs_for_those_who_take_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("", false),
        ] {
            let head = format!("GET /metrics HTTP/1.1\r\nAccept-Encoding: {accepted}\r\n\r\n");
            assert_eq!(asked(&head).unwrap().1.ends_with(" packed"), expected, "{accepted}");
        }
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused() {
        let is_answered = |host: &str| {
            let status = status(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert!(status.contains(" 200 ") || status.contains(" 403 "), "{status}");
            status.contains(" 200 ")
        };
        for ours in [
            "localhost",
            "LocalHost:9737",
            "localhost.",
            "127.0.0.1:9737",
            "192.0.2.7",
            "[::1]:9737",
            "[::1]",
            "server1.example.org:80",
            "SERVER1.example.org.",
        ] {
            assert!(is_answered(ours), "{ours}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:9737",
            "",
            "[::1",
            "[localhost]",
            "1.2.3.4.5",
            "server1.example.org.evil",
            "\u{e4}.example",
        ] {
            assert!(!is_answered(other), "{other}");
        }
        // One of two is not ours.
        assert!(
            status("GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
                .contains(" 403 ")
        );
        assert!(
            host_name("a.example").is_ok() && host_name("a:80").is_err() && host_name("").is_err()
        );
    }

    #[test]
    fn refuses_everything_else() {
        assert!(status("GET /etc/passwd HTTP/1.1\r\n\r\n").contains(" 404 "));
        assert!(status("GET /metrics/../x HTTP/1.1\r\n\r\n").contains(" 404 "));
        assert!(status("POST /metrics HTTP/1.1\r\n\r\n").contains(" 405 "));
        for noise in
            ["\u{16}\u{3}\u{1}\u{2}", "GET\r\n\r\n", "\0\0\0\0", "GET /metrics HTTP/9\r\n\r\n"]
        {
            assert!(status(noise).contains(" 400 "), "{noise:?}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(address("localhost:9"), Ok("127.0.0.1:9".parse().unwrap()));
        assert_eq!(address("[::1]:9"), Ok("[::1]:9".parse().unwrap()));
        for bad in ["9737", "127.0.0.1", "example.org:80", "127.0.0.1:99999", "localhost:x"] {
            assert!(address(bad).unwrap_err().contains("127.0.0.1:9737"), "{bad}");
        }
    }
}
