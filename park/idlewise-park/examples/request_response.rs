//! A request/response server in one process. Clients send through a bounded channel, and each waits for the
//! answer with its own parker. The server waits in the state that suits the clients' rhythm.
//!
//! `cargo run --release --package idlewise-park --example request_response [requests]`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idlewise_park::{Parker, Unparker, channel};

const CLIENT_COUNT: u64 = 2;

struct Request {
    number: u64,
    answer: Arc<AtomicU64>,
    client: Unparker,
}

fn main() {
    let requests = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(2_000u64);
    let (to_server, server) = channel::bounded::<Request>(64);
    let clients: Vec<_> = (0..CLIENT_COUNT)
        .map(|_| {
            let to_server = to_server.clone();
            std::thread::spawn(move || {
                let (parker, answer) = (Parker::new(), Arc::new(AtomicU64::new(0)));
                let mut slowest = Duration::ZERO;
                for number in 1..=requests {
                    let start = Instant::now();
                    let client = parker.unparker().clone();
                    to_server.send(Request { number, answer: answer.clone(), client }).unwrap();
                    parker.park();
                    // Whatever the server wrote before it woke this client is visible here.
                    assert_eq!(answer.load(Ordering::Relaxed), number * number);
                    slowest = slowest.max(start.elapsed());
                }
                slowest
            })
        })
        .collect();
    drop(to_server);
    for Request { number, answer, client } in server.iter() {
        answer.store(number * number, Ordering::Relaxed);
        client.unpark();
    }
    let slowest = clients.into_iter().map(|client| client.join().unwrap()).max();
    println!("{} requests answered, the slowest in {slowest:?}", CLIENT_COUNT * requests);
    println!("the server: {:?}", server.stats());
}
