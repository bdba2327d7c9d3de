//! The tables of `idlewise machines`: all machines, and the states of one.

use idlewise_sim::{Machine, MachineState, Power};

use crate::columns::{MACHINE, STATE};
use crate::{Column, Table, Value};

/// A state of a machine.
pub struct State<'a> {
    index: usize,
    state: &'a MachineState,
    power: Power,
}

/// How a state is requested, if the machine file says so.
fn entered_by(state: &MachineState) -> Option<String> {
    let mwait = state.mwait_hint.as_ref().map(|hint| format!("MWAIT {hint}"));
    let umwait = state.umwait_state.map(|umwait| format!("UMWAIT {}", umwait.as_str()));
    let port = state.io_port.as_ref().map(|port| format!("port {port}"));
    mwait.or(umwait).or(port)
}

fn flags(state: &MachineState) -> Option<String> {
    let flags: Vec<&str> = state.flags.iter().map(|flag| flag.as_str()).collect();
    (!flags.is_empty()).then(|| flags.join(" "))
}

fn state_names(machine: &Machine) -> Option<String> {
    let names: Vec<&str> = machine.states.iter().map(|state| state.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// Returns the columns of the list of machines.
pub fn machine_columns() -> Vec<Column<Machine>> {
    type C = Column<Machine>;
    vec![
        C::new(MACHINE, |row| row.id.as_str().into()),
        C::text("title", "title", |row| row.title.as_str().into())
            .means("The machine's name for people.")
            .detail(),
        C::text("states", "states", |row| state_names(row).into())
            .means("Names of the idle states, shallowest first."),
        C::ns("deepest_exit_latency_ns", "deepest exit", |row| {
            row.states.last().map(|state| state.exit_latency_ns).into()
        })
        .means("Exit latency of the deepest state.")
        .precise(),
        C::ns("deepest_target_residency_ns", "target residency", |row| {
            row.states.last().map(|state| state.target_residency_ns).into()
        })
        .means("Target residency of the deepest state.")
        .precise(),
        C::text("power_basis", "power basis", |row| {
            row.states.last().map(|_| row.power_basis().as_str()).into()
        })
        .means(
            "The weakest source of the states' powers: measured, simulated, calibrated (published) \
             or assumed.",
        ),
        C::text("source", "source", |row| row.source.as_str().into()).means(
            "The kind of source of the states: captured, kernel table, device tree or paper.",
        ),
    ]
}

/// Returns the columns of a machine's states.
pub fn state_columns<'a>() -> Vec<Column<State<'a>>> {
    type C<'a> = Column<State<'a>>;
    vec![
        C::count("state_index", "#", |row| Value::Count(row.index as u64))
            .means("The state's place in its table, from 0.")
            .key(),
        C::new(STATE, |row| row.state.name.as_str().into()),
        C::ns("exit_latency_ns", "exit latency", |row| row.state.exit_latency_ns.into())
            .means("Worst case from the wake-up to the first instruction, as declared.")
            .precise(),
        C::ns("target_residency_ns", "target residency", |row| {
            row.state.target_residency_ns.into()
        })
        .means("Shortest stay that pays, entry included, as declared.")
        .precise(),
        C::mw("power_mw", "power", |row| row.power.mw.into())
            .means("Power of one core in the state."),
        C::text("basis", "basis", |row| row.power.basis.as_str().into()).means(
            "Where a figure comes from: measured, simulated, calibrated (published) or assumed.",
        ),
        C::text("default", "default", |row| {
            if row.state.is_disabled_by_default { "off" } else { "on" }.into()
        })
        .means("off if the state is disabled unless somebody turns it on, else on."),
        C::text("entry", "entered by", |row| entered_by(row.state).into())
            .means("How the state is requested: an MWAIT hint, a UMWAIT state or an I/O port.")
            .detail(),
        C::text("flags", "flags", |row| flags(row.state).into())
            .means(
                "What the state needs or does, according to the driver; machines/README.md lists \
                 the flags.",
            )
            .detail(),
        C::text("desc", "description", |row| row.state.desc.clone().into())
            .means("What the driver says about it.")
            .detail(),
    ]
}

/// Returns one row for each machine.
pub fn machine_table(machines: &[Machine]) -> Table {
    Table::new("", &machine_columns(), machines)
}

/// Returns one row for each state of a machine.
pub fn state_table(machine: &Machine) -> Table {
    let states = machine.states.iter().zip(machine.powers()).enumerate();
    let state = |(index, (state, power))| State { index, state, power };
    Table::new("", &state_columns(), states.map(state))
}
