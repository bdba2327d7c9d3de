//! [`Parker`] and [`Unparker`]: one thread waits, any number wake it.

use std::cell::RefCell;
use std::fmt;
use std::panic::RefUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idlewise_core::{Doorbell, DoorbellState, Ring};

use crate::clock::Deadline;
use crate::learn;
use crate::load;
use crate::outcome::ParkOutcome;
use crate::stats::WaitStats;
use crate::table::WaitTable;
use crate::wait::Method;
use crate::waiter::{Wait, Waiter};

/// Words in a pair of cache lines.
const LINE_WORDS: usize = 128 / size_of::<Doorbell>();

/// What a waiter and its wakers share.
///
/// The doorbell has a pair of cache lines of its own, because hardware fetches lines in pairs and a
/// monitored line should be touched by wakers alone, not by those who count `Arc`s. Allocators
/// take four times as long for memory that must begin at such a pair (100 ns instead of 25 with
/// glibc's), so there is room for two pairs, and the doorbell is the first word of the one that lies
/// within. The others are never touched.
pub(crate) struct Shared {
    room: [Doorbell; 2 * LINE_WORDS],
    /// How its deepest state is woken.
    sleep: Method,
    wake_calls: AtomicU64,
    #[cfg(feature = "free-rides")]
    free_rides: AtomicU64,
}

impl Shared {
    fn new(sleep: Method) -> Self {
        Shared {
            room: [const { Doorbell::new() }; 2 * LINE_WORDS],
            sleep,
            wake_calls: AtomicU64::new(0),
            #[cfg(feature = "free-rides")]
            free_rides: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn bell(&self) -> &Doorbell {
        let words_to_line = self.room.as_ptr().addr().wrapping_neg() / size_of::<Doorbell>();
        &self.room[words_to_line % LINE_WORDS]
    }

    #[inline]
    pub(crate) fn ring(&self) {
        match self.bell().ring() {
            Ring::Deposited | Ring::StoreWakes => {}
            Ring::FreeRide => {
                #[cfg(feature = "free-rides")]
                self.free_rides.fetch_add(1, Ordering::Relaxed);
            }
            Ring::MustWake => self.wake_sleeper(),
        }
    }

    #[cold]
    fn wake_sleeper(&self) {
        self.wake_calls.fetch_add(1, Ordering::Relaxed);
        learn::wake(self.sleep, self.bell());
    }

    fn free_rides(&self) -> Option<u64> {
        #[cfg(feature = "free-rides")]
        return Some(self.free_rides.load(Ordering::Relaxed));
        #[cfg(not(feature = "free-rides"))]
        None
    }
}

/// Waits until somebody calls [`Unparker::unpark`], in the state that fits what its waits were like.
///
/// As crossbeam's: it holds at most one token, which `unpark` leaves and the next `park` takes.
/// `park` never returns without one. It can be sent to another thread, but not shared.
///
/// ```
/// use idlewise_park::Parker;
///
/// let parker = Parker::new();
/// let unparker = parker.unparker().clone();
/// let worker = std::thread::spawn(move || unparker.unpark());
/// parker.park();
/// worker.join().unwrap();
/// ```
///
/// ```compile_fail,E0277
/// fn is_sync<T: Sync>() {}
/// is_sync::<idlewise_park::Parker>();
/// ```
pub struct Parker {
    unparker: Unparker,
    waiter: RefCell<Lazy>,
}

/// What belongs to the waiting thread: 1.5 kB of what its waits were like, made for its first wait.
/// Many parkers never wait, or are made for one wait.
enum Lazy {
    /// `None`: the default settings.
    Settings(Option<Box<ParkerBuilder>>),
    Made(Box<Waiter>),
}

impl Lazy {
    fn waiter(&mut self) -> &mut Waiter {
        if let Lazy::Settings(settings) = self {
            let settings =
                settings.take().map_or_else(ParkerBuilder::default, |settings| *settings);
            let waiter = settings.build_waiter(WaitTable::clone);
            *self = Lazy::Made(Box::new(waiter));
        }
        match self {
            Lazy::Made(waiter) => waiter,
            Lazy::Settings(_) => unreachable!("made above"),
        }
    }
}

// A wait runs no code of the user's, so no panic of theirs leaves a waiter half-way.
impl RefUnwindSafe for Parker {}

/// Wakes a [`Parker`]'s thread. Clones wake the same one.
#[derive(Clone)]
pub struct Unparker {
    shared: Arc<Shared>,
}

/// How a [`Parker`] is to wait.
///
/// ```
/// use idlewise_park::{Parker, WaitTable};
///
/// let parker = Parker::builder()
///     .table(WaitTable::assumed("spin,condvar")?.with_latency_price(4))
///     .latency_limit_ns(50_000)
///     .cpu_budget_permille(100)
///     .build();
/// # assert_eq!(parker.stats().waits, 0);
/// # Ok::<(), idlewise_park::WaitTableError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ParkerBuilder {
    table: Option<WaitTable>,
    latency_limit_ns: Option<u64>,
    cpu_budget_permille: Option<u32>,
}

impl ParkerBuilder {
    /// The states to choose from; default: [`WaitTable::host`].
    ///
    /// ```
    /// use idlewise_park::{Parker, WaitTable};
    /// let parker = Parker::builder().table(WaitTable::assumed("spin,condvar")?).build();
    /// assert_eq!(parker.table().states().len(), 2);
    /// # Ok::<(), idlewise_park::WaitTableError>(())
    /// ```
    #[must_use]
    pub fn table(mut self, table: WaitTable) -> Self {
        self.table = Some(table);
        self
    }

    /// The longest exit latency that a state may have, in nanoseconds. If only polling is that
    /// fast, it polls. Of a sleep counts what a short one was found to take, or the table's figure until
    /// then; long ones take longer to leave.
    ///
    /// ```
    /// # use idlewise_park::{Parker, ParkOutcome};
    /// # use std::time::Duration;
    /// // It never sleeps: no sleep ends within 100 ns.
    /// let parker = Parker::builder().latency_limit_ns(100).build();
    /// assert_eq!(parker.park_timeout(Duration::from_micros(50)), ParkOutcome::TimedOut);
    /// ```
    #[must_use]
    pub fn latency_limit_ns(mut self, latency_limit_ns: u64) -> Self {
        self.latency_limit_ns = Some(latency_limit_ns);
        self
    }

    /// How much CPU time waiting may burn beyond what sleeping would have cost, in thousandths of the time
    /// that passes: 1000 polls as long as that pays, 0 always sleeps. Default: the thread's
    /// ([`crate::CPU_BUDGET_DEFAULT_PERMILLE`]). A latency limit that no sleep keeps goes before.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// // Always sleeps at once, as a thread that must save power.
    /// let parker = Parker::builder().cpu_budget_permille(0).build();
    /// ```
    #[must_use]
    pub fn cpu_budget_permille(mut self, cpu_budget_permille: u32) -> Self {
        self.cpu_budget_permille = Some(cpu_budget_permille);
        self
    }

    /// A waiter with these settings, and a table made of theirs.
    pub(crate) fn build_waiter(self, table: impl FnOnce(&WaitTable) -> WaitTable) -> Waiter {
        let table = table(self.table.as_ref().unwrap_or_else(|| WaitTable::host()));
        Waiter::new(table, self.latency_limit_ns, self.cpu_budget_permille)
    }

    /// A parker with these settings.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::builder().latency_limit_ns(10_000).build();
    /// parker.unparker().unpark();
    /// parker.park();
    /// ```
    pub fn build(self) -> Parker {
        load::prepare();
        let table = self.table.as_ref().unwrap_or_else(|| WaitTable::host());
        let sleep = table.states().last().expect("a table ends with a sleep").method;
        let is_default = matches!(
            self,
            ParkerBuilder { table: None, latency_limit_ns: None, cpu_budget_permille: None }
        );
        let settings = (!is_default).then(|| Box::new(self));
        Parker {
            unparker: Unparker { shared: Arc::new(Shared::new(sleep)) },
            waiter: RefCell::new(Lazy::Settings(settings)),
        }
    }
}

/// Tells what a wait was like. Nothing of the waiter's is borrowed any more: a subscriber may ask.
pub(crate) fn tell(wait: Wait) -> ParkOutcome {
    #[cfg(feature = "tracing")]
    if let Some(state) = wait.state {
        tracing::trace!(
            target: "idlewise_park",
            gap_ns = wait.gap_ns,
            woken = wait.outcome.is_woken(),
            state = state.name(),
            "wait"
        );
    }
    wait.outcome
}

impl Parker {
    /// A parker for this machine. The first one of a process looks what the machine has, in a fraction
    /// of a millisecond ([`WaitTable::host`]).
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A parker with other settings.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::builder().cpu_budget_permille(500).build();
    /// ```
    pub fn builder() -> ParkerBuilder {
        ParkerBuilder::default()
    }

    /// Waits for a token and takes it.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// let unparker = parker.unparker().clone();
    /// std::thread::spawn(move || unparker.unpark());
    /// parker.park();
    /// ```
    #[inline]
    pub fn park(&self) {
        let woken = self.park_until(None);
        debug_assert!(woken.is_woken());
    }

    /// Waits for a token, but not longer than this.
    ///
    /// ```
    /// # use idlewise_park::{Parker, ParkOutcome};
    /// # use std::time::Duration;
    /// let parker = Parker::new();
    /// assert_eq!(parker.park_timeout(Duration::from_millis(1)), ParkOutcome::TimedOut);
    /// parker.unparker().unpark();
    /// assert_eq!(parker.park_timeout(Duration::from_millis(1)), ParkOutcome::Woken);
    /// ```
    #[inline]
    pub fn park_timeout(&self, timeout: Duration) -> ParkOutcome {
        if self.take_token() {
            return ParkOutcome::Woken;
        }
        self.park_until(Deadline::after(timeout))
    }

    /// Waits for a token, but not beyond this moment; one that is past takes a token that is there.
    ///
    /// ```
    /// # use idlewise_park::{Parker, ParkOutcome};
    /// # use std::time::{Duration, Instant};
    /// let parker = Parker::new();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(parker.park_deadline(deadline), ParkOutcome::TimedOut);
    /// assert!(Instant::now() >= deadline);
    /// ```
    #[inline]
    pub fn park_deadline(&self, deadline: Instant) -> ParkOutcome {
        if self.take_token() {
            return ParkOutcome::Woken;
        }
        self.park_until(Some(Deadline::at(deadline)))
    }

    /// The token, if it is there: one instruction that matters, no clock. Looking first would cost
    /// more than it saves: a load right behind another thread's or one's own write waits for it.
    #[inline]
    fn take_token(&self) -> bool {
        self.unparker.shared.bell().take()
    }

    #[inline]
    pub(crate) fn park_until(&self, deadline: Option<Deadline>) -> ParkOutcome {
        if self.take_token() {
            return ParkOutcome::Woken;
        }
        self.wait(deadline)
    }

    fn wait(&self, deadline: Option<Deadline>) -> ParkOutcome {
        let wait = self.waiter.borrow_mut().waiter().wait(self.unparker.shared.bell(), deadline);
        tell(wait)
    }

    /// What wakes this parker.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// let unparker = parker.unparker().clone();
    /// assert!(unparker.will_unpark(&parker));
    /// ```
    pub fn unparker(&self) -> &Unparker {
        &self.unparker
    }

    /// What its waits were like so far. Tokens that were there already are no waits.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// # use std::time::Duration;
    /// let parker = Parker::new();
    /// parker.park_timeout(Duration::from_micros(10));
    /// assert_eq!(parker.stats().waits, 1);
    /// ```
    pub fn stats(&self) -> WaitStats {
        let shared = &self.unparker.shared;
        let waits = match &*self.waiter.borrow() {
            Lazy::Settings(_) => WaitStats::default(),
            Lazy::Made(waiter) => waiter.stats(),
        };
        WaitStats {
            wake_calls: shared.wake_calls.load(Ordering::Relaxed),
            free_rides: shared.free_rides(),
            ..waits
        }
    }

    /// The states that it chooses from, with what it has learnt of them.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// for state in parker.table().states() {
    ///     println!("{}: exit latency {} ns", state.method.name(), state.exit_latency_ns);
    /// }
    /// ```
    pub fn table(&self) -> WaitTable {
        self.waiter.borrow_mut().waiter().table()
    }
}

impl Default for Parker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").field("state", &self.unparker.shared.bell().state()).finish()
    }
}

impl Unparker {
    /// Leaves a token and wakes the waiter, with a system call only if it sleeps and nobody else is
    /// waking it. All that the caller wrote before is seen after the `park` that takes the token.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// // A token that is left before anybody waits is not lost.
    /// parker.unparker().unpark();
    /// parker.park();
    /// ```
    #[inline]
    pub fn unpark(&self) {
        self.shared.ring();
    }

    /// Whether a store would wake the waiter, as a hint.
    pub(crate) fn is_polling(&self) -> bool {
        self.shared.bell().state() == DoorbellState::Polling
    }

    /// Whether this unparker wakes that parker.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let (a, b) = (Parker::new(), Parker::new());
    /// assert!(a.unparker().will_unpark(&a));
    /// assert!(!a.unparker().will_unpark(&b));
    /// ```
    pub fn will_unpark(&self, parker: &Parker) -> bool {
        self.same_parker(&parker.unparker)
    }

    /// Whether both wake the same parker.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let (a, b) = (Parker::new(), Parker::new());
    /// assert!(a.unparker().same_parker(&a.unparker().clone()));
    /// assert!(!a.unparker().same_parker(b.unparker()));
    /// ```
    pub fn same_parker(&self, other: &Unparker) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The unparker as a pointer, for code that has room for one word; [`Unparker::from_raw`] makes
    /// it an unparker again.
    ///
    /// ```
    /// # use idlewise_park::{Parker, Unparker};
    /// let parker = Parker::new();
    /// let raw = Unparker::into_raw(parker.unparker().clone());
    /// // SAFETY: it comes from `into_raw`, and is used once.
    /// let unparker = unsafe { Unparker::from_raw(raw) };
    /// assert!(unparker.will_unpark(&parker));
    /// ```
    #[must_use = "what it points to is never freed unless `from_raw` gets it back"]
    pub fn into_raw(this: Unparker) -> *const () {
        Arc::into_raw(this.shared).cast()
    }

    /// The unparker that [`Unparker::into_raw`] made a pointer.
    ///
    /// # Safety
    /// `raw` comes from `into_raw`, and each such pointer is used once: it counts one reference.
    pub unsafe fn from_raw(raw: *const ()) -> Unparker {
        // SAFETY: the caller says that it comes from there and is used once.
        Unparker { shared: unsafe { Arc::from_raw(raw.cast()) } }
    }

    /// The same pointer, counting no reference.
    pub(crate) fn as_raw(&self) -> *const () {
        Arc::as_ptr(&self.shared).cast()
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unparker").field("state", &self.shared.bell().state()).finish()
    }
}
