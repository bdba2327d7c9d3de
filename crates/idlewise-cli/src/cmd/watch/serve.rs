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
//! Requests are parsed by `httparse`, which is what hyper uses. A whole server would bring an asynchronous runtime
//! for one page; the smaller ones either have no time-outs or have not been released for years.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use idlewise_report::watch::{Exposition, Form, Reading, write_metrics};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::source::Source;
use crate::error::Failure;
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

const INDEX: &str = "idlewise watch --serve: the metrics are at /metrics\n";

/// Parses where to listen: `ADDRESS:PORT` or `localhost:PORT`.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    if let Some(port) = local {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:9737 or [::1]:9737".to_owned())
}

/// Serves the counters until a signal comes.
///
/// # Errors
/// Fails if the address cannot be used, or if nothing says any more what CPUs do.
pub fn serve(
    mut source: Source,
    address: SocketAddr,
    allows_remote: bool,
    mut signals: Signals,
) -> Result<ExitCode, Failure> {
    if !address.ip().is_loopback() && !allows_remote {
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
    let mut pages = Pages::default();
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
            connection.go_on(|form| pages.get(&mut source, form)).unwrap_or_else(|error| {
                failure = failure.take().or(error);
                false
            })
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        if is_ready.get(1 + connection_count) == Some(&true) && !accept(&listener, &mut connections) {
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
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
        ),
    }
}

/// The texts of the last reading.
#[derive(Default)]
struct Pages {
    reading: Reading,
    read_at: Option<Instant>,
    read_ns: u64,
    texts: [Option<Rc<str>>; 2],
}

impl Pages {
    /// Returns the page in a form, not older than [`READ_AGE_MAX`].
    fn get(&mut self, source: &mut Source, form: Form) -> Result<Rc<str>, Failure> {
        let at = match form {
            Form::OpenMetrics => 0,
            Form::Prometheus => 1,
        };
        let is_fresh = self.read_at.is_some_and(|at| at.elapsed() < READ_AGE_MAX);
        if let (true, Some(text)) = (is_fresh, &self.texts[at]) {
            return Ok(text.clone());
        }
        if !is_fresh {
            let began = Instant::now();
            self.texts = [None, None];
            source.follow()?;
            source.read(&mut self.reading);
            self.read_at = Some(began);
            self.read_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        let mut text = String::new();
        let exposition = Exposition {
            layout: source.layout(),
            reading: &self.reading,
            version: program::VERSION,
            commit: program::COMMIT,
            read_ns: self.read_ns,
        };
        write_metrics(&mut text, form, &exposition);
        let text: Rc<str> = text.into();
        self.texts[at] = Some(text.clone());
        Ok(text)
    }
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
    body: Rc<str>,
    written: usize,
}

impl Connection {
    /// Reads or writes as much as is possible now. Returns whether the connection goes on.
    ///
    /// # Errors
    /// Returns the failure of `page`, or `None` if only this client is lost.
    fn go_on(
        &mut self,
        page: impl FnMut(Form) -> Result<Rc<str>, Failure>,
    ) -> Result<bool, Option<Failure>> {
        if self.answer.is_none() && !self.read(page)? {
            return Ok(true);
        }
        self.write().map_err(|_| None)
    }

    /// Returns whether there is an answer.
    fn read(
        &mut self,
        page: impl FnMut(Form) -> Result<Rc<str>, Failure>,
    ) -> Result<bool, Option<Failure>> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(None),
            Ok(count) => self.head.extend_from_slice(&buffer[..count]),
            Err(error) if is_early(&error) => return Ok(false),
            Err(_) => return Err(None),
        }
        self.answer = answer(&self.head, page).map_err(Some)?;
        Ok(self.answer.is_some())
    }

    /// Returns whether something is left to write.
    fn write(&mut self) -> io::Result<bool> {
        let Some(answer) = &mut self.answer else { return Ok(true) };
        loop {
            let rest = match answer.head.as_bytes().get(answer.written..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &answer.body.as_bytes()[answer.written - answer.head.len()..],
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
    mut page: impl FnMut(Form) -> Result<Rc<str>, Failure>,
) -> Result<Option<Answer>, Failure> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let refused = |status: &str, why: &str| Ok(Some(Answer::new(status, TEXT, why.into(), false)));
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTE_COUNT_MAX => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return refused("431 Request Header Fields Too Large", "too long\n");
        }
        Err(_) => return refused("400 Bad Request", "no HTTP request\n"),
    }
    let is_head = request.method == Some("HEAD");
    if !is_head && request.method != Some("GET") {
        return refused("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET and HEAD\n");
    }
    let path = request.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    match path {
        "/metrics" => {}
        "/" => return Ok(Some(Answer::new("200 OK", TEXT, INDEX.into(), is_head))),
        _ => return refused("404 Not Found", INDEX),
    }
    let mut accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let accept = accepts.find_map(|header| std::str::from_utf8(header.value).ok()).unwrap_or_default();
    let form = Form::of_accept(accept);
    Ok(Some(Answer::new("200 OK", form.content_type(), page(form)?, is_head)))
}

impl Answer {
    fn new(status: &str, content_type: &str, body: Rc<str>, is_head: bool) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        Answer { head, body: if is_head { "".into() } else { body }, written: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and the body of the answer to a request; `None` if it is not complete.
    fn asked(request: &str) -> Option<(String, String)> {
        let page = |form| Ok(format!("{form:?}").into());
        let answer = answer(request.as_bytes(), page).unwrap()?;
        let status = answer.head.split("\r\n").next().unwrap().to_owned();
        let length = format!("Content-Length: {}\r\n", answer.body.len());
        assert!(request.starts_with("HEAD") || answer.head.contains(&length), "{}", answer.head);
        Some((status, answer.body.to_string()))
    }

    fn status(request: &str) -> String {
        asked(request).unwrap().0
    }

    #[test]
    fn answers_what_is_asked_for() {
        let (status, body) = asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
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
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(HEADER_COUNT_MAX + 1));
        assert!(status(&many).contains(" 431 "));
    }

    #[test]
    fn refuses_everything_else() {
        assert!(status("GET /etc/passwd HTTP/1.1\r\n\r\n").contains(" 404 "));
        assert!(status("GET /metrics/../x HTTP/1.1\r\n\r\n").contains(" 404 "));
        assert!(status("POST /metrics HTTP/1.1\r\n\r\n").contains(" 405 "));
        for noise in ["\u{16}\u{3}\u{1}\u{2}", "GET\r\n\r\n", "\0\0\0\0", "GET /metrics HTTP/9\r\n\r\n"] {
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
