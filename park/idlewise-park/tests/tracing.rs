//! The feature `tracing`: one event for each wait, and none for a token that was already there.
#![cfg(feature = "tracing")]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idlewise_park::{Parker, WaitTable};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Calls a function for each of the crate's events.
struct Listener<F>(F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for Listener<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "idlewise_park"
    }

    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// An event's fields as text.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

#[test]
fn tells_of_each_wait() {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let kept = kept.clone();
        Listener(move |event: &Event<'_>| {
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            kept.lock().unwrap().push(fields.0);
        })
    };
    tracing::subscriber::with_default(listener, || {
        let table = WaitTable::assumed("condvar").unwrap();
        let parker = Parker::builder().table(table).build();
        parker.unparker().unpark();
        parker.park();
        while parker.stats().waits == 0 {
            parker.park_timeout(Duration::from_micros(100));
        }
    });
    let events = kept.lock().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains(" woken=false") && events[0].contains(" state=\"condvar\""));
    assert!(events[0].contains(" gap_ns="), "{events:?}");
}

thread_local! {
    static ASKED: RefCell<Option<Rc<Parker>>> = const { RefCell::new(None) };
}

/// A metrics layer queries the parker that emitted the event, and waits with it. Events used to be emitted
/// while the parker was borrowed.
#[test]
fn a_subscriber_may_ask_the_parker() {
    let waits = Arc::new(AtomicU64::new(0));
    let listener = {
        let waits = waits.clone();
        Listener(move |_: &Event<'_>| {
            let parker = ASKED.with_borrow(|parker| parker.clone().unwrap());
            waits.fetch_max(parker.stats().waits, Ordering::Relaxed);
            assert!(!parker.table().states().is_empty());
            parker.unparker().unpark();
            parker.park();
        })
    };
    tracing::subscriber::with_default(listener, || {
        let parker =
            Rc::new(Parker::builder().table(WaitTable::assumed("condvar").unwrap()).build());
        ASKED.set(Some(parker.clone()));
        while parker.stats().waits == 0 {
            parker.park_timeout(Duration::from_micros(100));
        }
        ASKED.set(None);
    });
    assert!(waits.load(Ordering::Relaxed) >= 1);
}
