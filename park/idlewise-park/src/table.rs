//! The state table of a process's waiters: which ways to wait they use, and what each costs.

use std::fmt;
use std::sync::{Arc, OnceLock};

use idlewise_core::{IdleState, STATE_COUNT_MAX, StateTable};

use crate::poll_limit::{PollLimit, SLEEP_DEPTH_COUNT, SleepCost, WaitCost};
use crate::wait::{METHODS, Method, monitor};

/// The environment variable that names the states: `IDLEWISE_PARK_STATES=spin,futex`.
pub const STATES_VARIABLE: &str = "IDLEWISE_PARK_STATES";
/// The environment variable that, set to 0, makes the process keep the assumed costs.
pub const CALIBRATE_VARIABLE: &str = "IDLEWISE_PARK_CALIBRATE";

/// Where a cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Learnt from this process's own wake-ups.
    Calibrated,
    /// A figure that roughly fits many machines.
    Assumed,
}

/// One way to wait, with its costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitState {
    /// How it waits.
    pub method: Method,
    /// From the waker's store to the waiter's next instruction.
    pub exit_latency_ns: u64,
    /// CPU time to enter and leave, including the waker's share.
    pub transition_ns: u64,
    /// How much of a CPU waiting uses, in thousandths. Always assumed.
    pub power_permille: u32,
    /// Where the times come from.
    pub basis: Basis,
}

/// Costs of each method before anything is measured: round figures for current x86 servers. Spinning uses a
/// whole CPU by definition. For the powers of C0.1 and C0.2 see "Sapphire Rapids C0.x idle states support"
/// (Artem Bityutskiy, 2023), which saw C0.2 half-way between polling and C1.
pub const ASSUMED: &[WaitState] = &[
    assumed(Method::Spin, 0, 0, 1000),
    assumed(Method::Tpause, 300, 50, 750),
    assumed(Method::UmwaitC01, 200, 100, 650),
    assumed(Method::UmwaitC02, 500, 150, 500),
    assumed(Method::Mwaitx, 1_000, 500, 500),
    assumed(Method::Wfe, 200, 100, 650),
    assumed(Method::Wfet, 200, 100, 650),
    assumed(Method::Futex, 5_000, 5_000, 0),
    assumed(Method::Condvar, 6_000, 7_000, 0),
];

const fn assumed(
    method: Method,
    exit_latency_ns: u64,
    transition_ns: u64,
    power_permille: u32,
) -> WaitState {
    let basis = Basis::Assumed;
    WaitState { method, exit_latency_ns, transition_ns, power_permille, basis }
}

/// The default price of a nanosecond of late wake-up, in nanoseconds of CPU time. With a sleep that takes 5
/// µs to enter and leave, it makes a waiter poll for gaps up to about 80 µs.
pub const LATENCY_PRICE_DEFAULT: u32 = 16;

/// The states of a process's waiters, shallowest first; the last one sleeps.
#[derive(Clone, Debug)]
pub struct WaitTable {
    /// Has as many valid entries as `table`.
    states: [WaitState; STATE_COUNT_MAX],
    table: StateTable,
    costs: [WaitCost; STATE_COUNT_MAX],
    latency_price: u32,
    doubts: Arc<[String]>,
    does_learn: bool,
}

/// Why a list of ways to wait does not make a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitTableError {
    /// There is no method with that name.
    UnknownMethod {
        /// The name.
        name: String,
    },
    /// This machine does not have the method.
    Unavailable {
        /// The method.
        method: Method,
        /// What is missing.
        reason: &'static str,
    },
    /// The last state does not sleep, or an earlier one does.
    NoSleepAtTheEnd,
    /// Methods must be in the order of [`METHODS`], each at most once.
    Unordered {
        /// The first that is out of order.
        method: Method,
    },
}

impl fmt::Display for WaitTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMethod { name } => {
                let names: Vec<_> = METHODS.iter().map(|(_, name)| *name).collect();
                write!(f, "no way to wait is called '{name}': choose from {}", names.join(", "))
            }
            Self::Unavailable { method, reason } => {
                write!(f, "'{}' does not work here: {reason}", method.name())
            }
            Self::NoSleepAtTheEnd => write!(
                f,
                "the last way to wait, and only that, must be a sleep: end with 'futex' or 'condvar'"
            ),
            Self::Unordered { method } => {
                write!(f, "'{}' is out of order: name states from shallow to deep", method.name())
            }
        }
    }
}

impl std::error::Error for WaitTableError {}

/// An upper bound for any latency price: an hour of waiting justifies any state.
const TARGET_RESIDENCY_MAX_NS: u64 = 3_600_000_000_000;

impl WaitTable {
    /// Returns this machine's states. Their costs are assumed until waiters have learnt them from their own
    /// wake-ups. The environment takes precedence ([`STATES_VARIABLE`], [`CALIBRATE_VARIABLE`]). A mistake
    /// there becomes a doubt, and the default is used.
    ///
    /// The first call takes a fraction of a millisecond. It asks the CPU and the OS, and tries the states
    /// that monitor a cache line for about 10 µs.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// for state in WaitTable::host().states() {
    ///     println!("{} takes {} ns to leave", state.method.name(), state.exit_latency_ns);
    /// }
    /// ```
    pub fn host() -> &'static WaitTable {
        static HOST: OnceLock<WaitTable> = OnceLock::new();
        HOST.get_or_init(|| {
            let mut doubts = Vec::new();
            let named = std::env::var(STATES_VARIABLE).ok().and_then(|list| {
                parse(&list)
                    .and_then(|methods| check(&methods).map(|()| methods))
                    .inspect_err(|error| doubts.push(format!("{STATES_VARIABLE}: {error}")))
                    .ok()
            });
            let methods = named.unwrap_or_else(default_methods);
            let states: Vec<_> = methods.into_iter().map(assumed_state).collect();
            let does_learn = std::env::var(CALIBRATE_VARIABLE).as_deref() != Ok("0");
            if !does_learn {
                doubts.push("costs are assumed: learning is switched off".to_owned());
            }
            let table = WaitTable::build(&states, LATENCY_PRICE_DEFAULT);
            WaitTable { doubts: doubts.into(), does_learn, ..table }
        })
    }

    /// Makes a table of exactly these states. Nothing is learnt (for that see [`WaitTable::learning`]), and
    /// the environment is ignored. With rows of [`ASSUMED`] the table is the same on every machine.
    ///
    /// # Errors
    /// If a method does not work here, the order is wrong, or the last method does not sleep.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// // The same states, taken for twice as slow to leave.
    /// let states: Vec<_> = WaitTable::host()
    ///     .states()
    ///     .iter()
    ///     .map(|state| idlewise_park::WaitState { exit_latency_ns: state.exit_latency_ns * 2, ..*state })
    ///     .collect();
    /// let table = WaitTable::new(&states)?;
    /// # Ok::<(), idlewise_park::WaitTableError>(())
    /// ```
    pub fn new(states: &[WaitState]) -> Result<WaitTable, WaitTableError> {
        let methods: Vec<_> = states.iter().map(|state| state.method).collect();
        check(&methods)?;
        Ok(Self::build(states, LATENCY_PRICE_DEFAULT))
    }

    /// Like [`WaitTable::new`] with [`ASSUMED`] costs, from names such as `spin,futex`.
    ///
    /// # Errors
    /// As for [`WaitTable::new`], and if a name is unknown.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// let table = WaitTable::assumed("spin,condvar")?;
    /// assert_eq!(table.states().len(), 2);
    /// assert!(WaitTable::assumed("hlt").is_err());
    /// # Ok::<(), idlewise_park::WaitTableError>(())
    /// ```
    pub fn assumed(list: &str) -> Result<WaitTable, WaitTableError> {
        let states: Vec<_> = parse(list)?.into_iter().map(assumed_state).collect();
        Self::new(&states)
    }

    /// Like [`WaitTable::assumed`], but does not check that the machine has the methods. For tests that
    /// emulate them, and for hypervisors that allow instructions that CPUID hides.
    ///
    /// ```compile_fail,E0133
    /// // Without `unsafe` nobody gets at instructions that a CPU may lack.
    /// let table = idlewise_park::WaitTable::unchecked("umwait-c01,condvar");
    /// ```
    ///
    /// # Panics
    /// If a name is unknown.
    ///
    /// # Safety
    /// The CPU must execute the instructions of all these methods, or trap so that something emulates them.
    /// The last method must sleep.
    pub unsafe fn unchecked(list: &str) -> WaitTable {
        let parsed = parse(list).expect("names of methods");
        let states: Vec<_> = parsed.into_iter().map(assumed_state).collect();
        Self::build(&states, LATENCY_PRICE_DEFAULT)
    }

    /// Returns the table with another price of a nanosecond of late wake-up, in nanoseconds of CPU time
    /// ([`LATENCY_PRICE_DEFAULT`]). A higher price polls longer, 0 saves CPU time.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// // A late wake-up costs as much as ten times the CPU time.
    /// let table = WaitTable::host().clone().with_latency_price(10);
    /// ```
    #[must_use]
    pub fn with_latency_price(self, latency_price: u32) -> WaitTable {
        let table = Self::build(self.states(), latency_price);
        WaitTable { doubts: self.doubts, does_learn: self.does_learn, ..table }
    }

    /// Returns the table for waiters that learn the cost of sleeping from their own wake-ups. Until then
    /// the table's figures hold. [`WaitTable::host`] does this.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// let table = WaitTable::assumed("spin,condvar")?.learning();
    /// # Ok::<(), idlewise_park::WaitTableError>(())
    /// ```
    #[must_use]
    pub fn learning(self) -> WaitTable {
        WaitTable { does_learn: true, ..self }
    }

    /// The same table without the states that do nothing but monitor the doorbell's cache line.
    #[cfg(target_os = "linux")]
    pub(crate) fn without_monitors(&self) -> WaitTable {
        let states = self.states().iter().filter(|state| !state.method.is_monitored());
        let table = Self::build(&states.copied().collect::<Vec<_>>(), self.latency_price);
        WaitTable { doubts: self.doubts.clone(), does_learn: self.does_learn, ..table }
    }

    pub(crate) fn does_learn(&self) -> bool {
        self.does_learn
    }

    fn build(states: &[WaitState], latency_price: u32) -> WaitTable {
        let mut costs = [WaitCost { transition_ns: 0, power_permille: 1000 }; STATE_COUNT_MAX];
        let mut rows = [IdleState::default(); STATE_COUNT_MAX];
        let mut kept = [ASSUMED[0]; STATE_COUNT_MAX];
        let mut previous_ns = 0;
        for (index, state) in states.iter().enumerate() {
            costs[index] = WaitCost {
                transition_ns: state.transition_ns,
                power_permille: state.power_permille,
            };
            rows[index] = row(state, latency_price, previous_ns);
            previous_ns = rows[index].target_residency_ns;
            kept[index] = *state;
        }
        let count = states.len();
        let table = StateTable::new(&rows[..count]).expect("ordered by construction, and few");
        let doubts = Arc::from([]);
        WaitTable { states: kept, table, costs, latency_price, doubts, does_learn: false }
    }

    /// The cost of the sleep, from its row.
    pub(crate) fn sleep_cost(&self) -> SleepCost {
        let WaitState { exit_latency_ns, transition_ns, .. } = self.states[self.table.deepest()];
        SleepCost {
            exit_latency_ns: [exit_latency_ns; SLEEP_DEPTH_COUNT],
            transition_ns,
            own_ns: transition_ns / 2,
        }
    }

    /// Replaces the row's figures with what was measured. The latency is that of a short sleep, the only
    /// kind that competes with polling. Deeper sleeps are in the governor's plans.
    pub(crate) fn set_sleep_cost(&mut self, cost: &SleepCost) {
        let deepest = self.table.deepest();
        let previous_ns =
            deepest.checked_sub(1).map_or(0, |before| self.table.get(before).target_residency_ns);
        let state = &mut self.states[deepest];
        state.exit_latency_ns = cost.exit_latency_ns[1];
        state.transition_ns = cost.transition_ns;
        state.basis = Basis::Calibrated;
        let row = row(state, self.latency_price, previous_ns);
        self.costs[deepest].transition_ns = cost.transition_ns;
        self.table.replace_deepest(row).expect("ordered by construction");
    }

    /// Adds a doubt for each state that turned out not to work.
    pub(crate) fn doubt_broken(&mut self) {
        let broken: Vec<_> =
            self.states().iter().filter(|state| monitor::is_broken(state.method)).collect();
        if !broken.is_empty() {
            let doubt = |state: &&WaitState| {
                format!(
                    "{}: not used any more: its waits end at once, or miss stores",
                    state.method.name()
                )
            };
            let doubts = self.doubts.iter().cloned().chain(broken.iter().map(doubt));
            self.doubts = doubts.collect();
        }
    }

    /// Returns the states, shallowest first.
    pub fn states(&self) -> &[WaitState] {
        &self.states[..self.table.len()]
    }

    /// Returns the states as governors see them.
    pub fn state_table(&self) -> &StateTable {
        &self.table
    }

    /// Returns what is doubtful about the table, one sentence each.
    ///
    /// ```
    /// # use idlewise_park::WaitTable;
    /// for doubt in WaitTable::host().doubts() {
    ///     eprintln!("{doubt}");
    /// }
    /// ```
    pub fn doubts(&self) -> &[String] {
        &self.doubts
    }

    pub(crate) fn governor(&self) -> PollLimit {
        PollLimit::new(self.costs, self.latency_price)
    }
}

/// A state as governors see it. Its target residency is where the saving over polling has paid for the
/// transition and for the priced exit latency.
fn row(state: &WaitState, latency_price: u32, previous_ns: u64) -> IdleState {
    let saved_permille = u64::from(1000u32.saturating_sub(state.power_permille).max(1));
    let latency_cost_ns = state.exit_latency_ns.saturating_mul(latency_price.into());
    let cost_ns = state.transition_ns.saturating_add(latency_cost_ns);
    let break_even_ns = cost_ns.saturating_mul(1000) / saved_permille;
    IdleState {
        exit_latency_ns: state.exit_latency_ns,
        target_residency_ns: break_even_ns.clamp(previous_ns, TARGET_RESIDENCY_MAX_NS),
        is_polling: state.method == Method::Spin,
        wakes_on_store: !state.method.is_sleep(),
        is_auto_promoted: !state.method.is_sleep(),
    }
}

fn parse(list: &str) -> Result<Vec<Method>, WaitTableError> {
    list.split(',')
        .map(str::trim)
        .map(|name| {
            Method::from_name(name)
                .ok_or_else(|| WaitTableError::UnknownMethod { name: name.to_owned() })
        })
        .collect()
}

fn assumed_state(method: Method) -> WaitState {
    let rank = METHODS.iter().position(|(listed, _)| *listed == method).unwrap_or(0);
    ASSUMED[rank]
}

fn check(methods: &[Method]) -> Result<(), WaitTableError> {
    let rank = |method| METHODS.iter().position(|(listed, _)| *listed == method);
    for pair in methods.windows(2) {
        if rank(pair[0]) >= rank(pair[1]) {
            return Err(WaitTableError::Unordered { method: pair[1] });
        }
    }
    for &method in methods {
        if let Some(reason) = method.unavailable_because() {
            return Err(WaitTableError::Unavailable { method, reason });
        }
    }
    let sleeps = methods.iter().filter(|method| method.is_sleep()).count();
    if sleeps != 1 || !methods.last().is_some_and(|method| method.is_sleep()) {
        return Err(WaitTableError::NoSleepAtTheEnd);
    }
    Ok(())
}

/// The machine's methods, without those that another one makes pointless: TPAUSE where UMWAIT monitors the
/// line, WFE where WFET has a deadline, and a second sleep.
fn default_methods() -> Vec<Method> {
    let mut methods: Vec<_> =
        METHODS.iter().map(|(method, _)| *method).filter(|method| method.is_available()).collect();
    let has = |method| methods.contains(&method);
    let (umwait, wfet, futex) = (has(Method::UmwaitC01), has(Method::Wfet), has(Method::Futex));
    methods.retain(|method| match method {
        Method::Tpause => !umwait,
        Method::Wfe => !wfet,
        Method::Condvar => !futex,
        _ => true,
    });
    methods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_any_price() {
        let table = WaitTable::assumed("spin,condvar").unwrap().with_latency_price(u32::MAX);
        let residency_ns = table.state_table().get(1).target_residency_ns;
        assert_eq!(residency_ns, TARGET_RESIDENCY_MAX_NS);
    }

    #[test]
    fn lists_each_method_once_in_the_order_of_its_costs() {
        assert_eq!(ASSUMED.len(), METHODS.len());
        for (state, &(method, name)) in ASSUMED.iter().zip(METHODS) {
            assert_eq!(state.method, method);
            assert_eq!(Method::from_name(name), Some(method));
        }
    }

    #[test]
    fn a_machine_polls_first_and_sleeps_last() {
        let methods = default_methods();
        assert_eq!(methods[0], Method::Spin);
        assert_eq!(check(&methods), Ok(()));
    }

    #[test]
    fn prices_latency_into_the_target_residency() {
        let table = WaitTable::assumed("spin,condvar").unwrap();
        assert_eq!(table.state_table().get(1).target_residency_ns, 7_000 + 16 * 6_000);
        let table = table.with_latency_price(0);
        assert_eq!(table.state_table().get(1).target_residency_ns, 7_000);
    }

    #[test]
    fn says_what_is_wrong_with_a_list() {
        let message = |list| WaitTable::assumed(list).unwrap_err().to_string();
        assert!(
            message("spin,hlt").starts_with("no way to wait is called 'hlt': choose from spin, ")
        );
        assert!(
            message("spin").starts_with("the last way to wait, and only that, must be a sleep")
        );
        assert_eq!(
            message("condvar,spin"),
            "'spin' is out of order: name states from shallow to deep"
        );
        assert!(message("spin,spin,condvar").starts_with("'spin' is out of order"));
    }
}
