//! What runs on the simulated machine: each workload is a few small state machines with parameters.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | the list of workloads, and their TOML form |
//! | `<name>.rs` | each workload, in its own file |
//! | `recorded.rs` | the gaps of an idle log; it is not in the list because it needs a log |
//!
//! A file names its workload, and can set any parameter of the workload or the hardware:
//!
//! ```toml
//! workload = "poisson"
//! interval_ns = 200000
//! irq_entry_ns = 300
//! ```

mod async_calls;
mod burst_then_idle;
mod context_switch2;
mod hackbench;
mod nearly_idle;
mod periodic;
mod poisson;
mod recorded;
mod tcp_lat;
mod third_cpu;
mod wakes;

use idlewise_machine::nearest_name;

use crate::simulate::{Hardware, Load, ParameterError, ParameterInfo, Shape};

pub use recorded::Recorded;

/// A row of the list of workloads.
pub struct WorkloadSpec {
    /// The name that users type.
    pub name: &'static str,
    /// A description in one line.
    pub meaning: &'static str,
    /// Its parameters.
    pub parameters: fn() -> Vec<ParameterInfo>,
    build: fn() -> Workload,
}

/// Declares the list of workloads. Each row has the file, its type, its name, and what it does.
macro_rules! workloads {
    ($($file:ident $Type:ident $name:literal $meaning:literal;)+) => {
        $(
            pub use $file::$Type;

            impl From<$Type> for Workload {
                fn from(this: $Type) -> Self {
                    Workload::$Type(this)
                }
            }
        )+

        /// A workload with its parameters.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "each is documented where it is defined, and in `WORKLOADS`")]
        pub enum Workload {
            $($Type($Type),)+
            Recorded(Recorded),
        }

        /// Every workload that needs no input.
        pub const WORKLOADS: &[WorkloadSpec] = &[$(WorkloadSpec {
            name: $name,
            meaning: $meaning,
            parameters: $Type::parameters,
            build: || Workload::$Type($Type::default()),
        },)+];

        impl Workload {
            /// Returns its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Workload::$Type(_) => $name,)+
                    Workload::Recorded(_) => "recorded",
                }
            }

            /// Returns the current values of its parameters.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                match self {
                    $(Workload::$Type(this) => this.values(),)+
                    Workload::Recorded(_) => Vec::new(),
                }
            }

            fn set_own(&mut self, key: &str, value: &str) -> Result<bool, ParameterError> {
                match self {
                    $(Workload::$Type(this) => this.set(key, value),)+
                    Workload::Recorded(_) => Ok(false),
                }
            }

            /// Returns its tasks and sources on a machine with this shape.
            pub fn load(&self, shape: &Shape, hardware: &Hardware) -> Load {
                match self {
                    $(Workload::$Type(this) => this.load(shape, hardware),)+
                    Workload::Recorded(this) => this.load(),
                }
            }
        }
    };
}

workloads! {
    tcp_lat TcpLat "tcp-lat" "request and response between two CPUs over a wire, as qperf's tcp_lat";
    wakes Wakes "wakes" "one CPU wakes another, both pinned, 10,000 times";
    context_switch2 ContextSwitch2 "context-switch2" "two tasks on two CPUs pass a byte back and forth through pipes";
    hackbench Hackbench "hackbench" "groups of senders and receivers, each sender to all receivers of its group";
    async_calls AsyncCalls "async-calls" "one CPU makes all others run a function, without waiting for them";
    third_cpu ThirdCpu "third-cpu" "one CPU wakes another, and a third one wants it too while it is waking up";
    burst_then_idle BurstThenIdle "burst-then-idle" "many short idle periods, then a long one that no history predicts";
    poisson Poisson "poisson" "jobs that arrive at random, served one after the other by one task";
    periodic Periodic "periodic" "a task on each CPU that wakes by its own timer, with jitter";
    nearly_idle NearlyIdle "nearly-idle" "rare timers on every CPU, and occasional wake-ups from another one";
}

/// Why a text is not a workload.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Not TOML.
    #[error("{}{message}", at(line))]
    Syntax {
        /// The line, counted from 1.
        line: Option<usize>,
        /// The parser's message.
        message: String,
    },
    /// `workload = "NAME"` is missing.
    #[error("no line workload = \"NAME\"; `idlewise lab simulate --list` has the names")]
    Unnamed,
    /// No workload has that name.
    #[error("no workload '{}'; {}", name.escape_debug(), hint(nearest))]
    Unknown {
        /// The name in the file.
        name: String,
        /// The most similar name, if any is close.
        nearest: Option<&'static str>,
    },
    /// A parameter is wrong.
    #[error("{}{error}", at(line))]
    Parameter {
        /// The line, counted from 1.
        line: Option<usize>,
        /// What is wrong.
        error: ParameterError,
    },
}

fn at(line: &Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

fn hint(nearest: &Option<&str>) -> String {
    match nearest {
        Some(nearest) => format!("did you mean '{nearest}'?"),
        None => "`idlewise lab simulate --list` has the names".to_owned(),
    }
}

impl Workload {
    /// Returns the workload with that name, with its defaults.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn named(name: &str) -> Result<Self, WorkloadError> {
        let spec = WORKLOADS.iter().find(|spec| spec.name == name);
        spec.map(|spec| (spec.build)()).ok_or_else(|| WorkloadError::Unknown {
            name: name.to_owned(),
            nearest: nearest_name(name, WORKLOADS.iter().map(|spec| spec.name)),
        })
    }

    /// Parses a workload from TOML, and sets the hardware parameters that it contains in
    /// `hardware`.
    ///
    /// # Errors
    /// Fails if the text is not TOML, or if a workload, a parameter or a value is not valid.
    pub fn from_toml(text: &str, hardware: &mut Hardware) -> Result<Self, WorkloadError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line_of = |offset: usize| 1 + text[..offset].matches('\n').count();
            WorkloadError::Syntax {
                line: error.span().map(|span| line_of(span.start.min(text.len()))),
                message: error.message().replace('\n', ", "),
            }
        })?;
        let name = table.get("workload").and_then(toml::Value::as_str);
        let mut workload = Workload::named(name.ok_or(WorkloadError::Unnamed)?)?;
        for (key, value) in table.iter().filter(|(key, _)| *key != "workload") {
            let value = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                toml::Value::Datetime(date) => date.to_string(),
                toml::Value::Array(_) => "a list".to_owned(),
                toml::Value::Table(_) => "a table".to_owned(),
            };
            workload.set(hardware, key, &value).map_err(|error| {
                let is_key = |line: &str| {
                    let line = line.trim_start();
                    let rest = line.strip_prefix('[').unwrap_or(line).strip_prefix(key);
                    rest.is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.']))
                };
                let line = text.lines().position(is_key).map(|index| index + 1);
                WorkloadError::Parameter { line, error }
            })?;
        }
        Ok(workload)
    }

    /// Sets a parameter of the workload or, if it has none with this name, of the hardware.
    ///
    /// # Errors
    /// Fails if neither has it, or if the value is not valid.
    pub fn set(
        &mut self,
        hardware: &mut Hardware,
        key: &str,
        value: &str,
    ) -> Result<(), ParameterError> {
        if self.set_own(key, value)? || hardware.set(key, value)? {
            return Ok(());
        }
        let spec = WORKLOADS.iter().find(|spec| spec.name == self.name());
        let mut known = spec.map_or_else(Vec::new, |spec| (spec.parameters)());
        known.extend(Hardware::parameters());
        let known = known.iter().map(|info| info.key);
        Err(ParameterError::Unknown { key: key.to_owned(), nearest: nearest_name(key, known) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_its_own_name_and_no_parameter_of_the_hardware() {
        for spec in WORKLOADS {
            assert_eq!((spec.build)().name(), spec.name);
            let hardware: Vec<&str> = Hardware::parameters().iter().map(|info| info.key).collect();
            for info in (spec.parameters)() {
                assert!(!hardware.contains(&info.key), "{}: {}", spec.name, info.key);
            }
        }
    }

    #[test]
    fn reads_a_file_and_says_where_it_is_wrong() {
        let mut hardware = Hardware::default();
        let text = "workload = \"poisson\"\ninterval_ns = 500\nirq_entry_ns = 7\n";
        let workload = Workload::from_toml(text, &mut hardware).unwrap();
        assert!(matches!(workload, Workload::Poisson(Poisson { interval_ns: 500, .. })));
        assert_eq!(hardware.irq_entry_ns, 7);
        let message = |text: &str| {
            Workload::from_toml(text, &mut Hardware::default()).unwrap_err().to_string()
        };
        assert_eq!(
            message("workload = \"poisson\"\n\nintervall_ns = 5"),
            "line 3: no parameter 'intervall_ns'; did you mean 'interval_ns'?"
        );
        assert_eq!(
            message("workload = \"poison\""),
            "no workload 'poison'; did you mean 'poisson'?"
        );
        assert_eq!(
            message("workload = \"poisson\"\ninterval_ns = -1"),
            "line 2: interval_ns = -1: expected a whole number, 100 to 31536000000000000 (a year)"
        );
        assert_eq!(
            message("interval_ns = 1"),
            "no line workload = \"NAME\"; `idlewise lab simulate --list` has the names"
        );
        assert!(message("workload = ").starts_with("line 1: "));
    }
}
