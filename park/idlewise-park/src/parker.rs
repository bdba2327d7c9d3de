//! [`Parker`] and [`Unparker`]: one thread waits, any number of threads wake it.

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

/// The number of words in a pair of cache lines.
const LINE_WORDS: usize = 128 / size_of::<Doorbell>();

/// The state that a waiter shares with its wakers.
///
/// The doorbell has a pair of cache lines to itself. Hardware fetches lines in pairs, and only wakers
/// should touch a monitored line, not threads that count `Arc` references. Allocators take four times as
/// long for memory aligned to such a pair (100 ns instead of 25 with glibc's). So this allocates two pairs
/// without alignment, and uses the first word of the pair that lies within.
pub(crate) struct Shared {
    room: [Doorbell; 2 * LINE_WORDS],
    /// How to wake the waiter from its deepest state.
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

/// Blocks a thread until [`Unparker::unpark`] is called, in the state that suits its earlier waits.
///
/// Like crossbeam's, a parker holds at most one token: `unpark` leaves it and the next `park` takes it.
/// `park` never returns without a token. A parker can be sent to another thread, but not shared.
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

/// The waiting thread's own part: 1.5 kB of history, allocated at its first wait. Many parkers never wait,
/// or wait only once.
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

// A wait runs no user code, so a panic in user code cannot leave a waiter in an inconsistent state.
impl RefUnwindSafe for Parker {}

/// Wakes a [`Parker`]'s thread. All clones wake the same thread.
#[derive(Clone)]
pub struct Unparker {
    shared: Arc<Shared>,
}

/// Configures how a [`Parker`] waits.
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
    /// Sets the states to choose from. The default is [`WaitTable::host`].
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

    /// Sets the longest exit latency that a state may have, in nanoseconds. If only polling meets the
    /// limit, the parker polls. A sleep's exit latency is the one measured for short sleeps, or the table's
    /// figure until there is one. Long sleeps take longer to leave.
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

    /// Limits the CPU time that waiting burns beyond the cost of sleeping, in thousandths of elapsed time:
    /// 1000 polls as long as it pays, 0 always sleeps. The default is the thread's budget
    /// ([`crate::CPU_BUDGET_DEFAULT_PERMILLE`]). A latency limit that no sleep meets takes precedence.
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

    /// Builds a waiter with these settings; `table` derives its table from theirs.
    pub(crate) fn build_waiter(self, table: impl FnOnce(&WaitTable) -> WaitTable) -> Waiter {
        let table = table(self.table.as_ref().unwrap_or_else(|| WaitTable::host()));
        Waiter::new(table, self.latency_limit_ns, self.cpu_budget_permille)
    }

    /// Builds a parker with these settings.
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

/// Emits the wait's tracing events. Nothing of the waiter is borrowed by now, so a subscriber may use it.
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
    /// Creates a parker for this machine. The first call in a process finds out what the machine has, which
    /// takes a fraction of a millisecond ([`WaitTable::host`]).
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::new();
    /// ```
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a parker with other settings.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// let parker = Parker::builder().cpu_budget_permille(500).build();
    /// ```
    pub fn builder() -> ParkerBuilder {
        ParkerBuilder::default()
    }

    /// Blocks until there is a token, and takes it.
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

    /// Blocks until there is a token, but no longer than `timeout`.
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

    /// Blocks until there is a token or `deadline` passes. A token that is there is taken even after that.
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

    /// Takes the token if there is one, in one atomic instruction and without reading the clock. A load
    /// before it would cost more than it saves, because it has to wait for any write just before it.
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

    /// Returns the unparker of this parker.
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

    /// Returns statistics of the waits so far. Calls that found a token there do not count.
    ///
    /// ```
    /// # use idlewise_park::Parker;
    /// # use std::time::Duration;
    /// let parker = Parker::new();
    /// parker.park_timeout(Duration::from_millis(20));
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

    /// Returns the states that it chooses from, with the costs it has learnt.
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
    /// Leaves a token and wakes the waiter, with a system call only if it sleeps and nobody else is waking
    /// it. What the caller wrote before is visible after the `park` that takes the token.
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

    /// Whether a store alone would wake the waiter, as a hint.
    pub(crate) fn is_polling(&self) -> bool {
        self.shared.bell().state() == DoorbellState::Polling
    }

    /// Returns whether this unparker wakes `parker`.
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

    /// Returns whether both wake the same parker.
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

    /// Converts the unparker into a pointer, for code that has room for one word. [`Unparker::from_raw`]
    /// converts it back.
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

    /// Converts a pointer from [`Unparker::into_raw`] back into an unparker.
    ///
    /// # Safety
    /// `raw` must come from `into_raw`. Use each such pointer only once: it owns one reference.
    pub unsafe fn from_raw(raw: *const ()) -> Unparker {
        // SAFETY: the caller guarantees that it comes from there and is used once.
        Unparker { shared: unsafe { Arc::from_raw(raw.cast()) } }
    }

    /// The same pointer, without adding a reference.
    pub(crate) fn as_raw(&self) -> *const () {
        Arc::as_ptr(&self.shared).cast()
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unparker").field("state", &self.shared.bell().state()).finish()
    }
}
