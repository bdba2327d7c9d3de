//! The cpuidle driver of a recorded machine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kernel's cpuidle driver. If there is none, logs say `none`, as `current_driver` in sysfs does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Driver {
    /// The kernel had no driver, so it did not call any governor.
    Absent,
    /// The driver with this name.
    Named(String),
}

impl Driver {
    /// The name in the log of a simulated machine.
    pub const SIMULATED: &str = "simulated";

    /// Returns the driver with this name.
    pub fn named(name: &str) -> Self {
        Driver::Named(name.to_owned())
    }
}

impl From<String> for Driver {
    fn from(name: String) -> Self {
        if name == "none" { Driver::Absent } else { Driver::Named(name) }
    }
}

impl From<Driver> for String {
    fn from(driver: Driver) -> Self {
        driver.to_string()
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Driver::Absent => "none",
            Driver::Named(name) => name,
        })
    }
}
