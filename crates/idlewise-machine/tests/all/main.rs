//! The bundled machines, and machine files of all kinds.

mod bundled_machines;
mod curves;
mod malformed_machine;
mod prop_machine;
