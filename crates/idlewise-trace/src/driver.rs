//! The cpuidle driver of a recorded machine.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kernel's cpuidle driver. Logs spell the lack of one `none`, as `current_driver` in sysfs does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Driver {
    /// The kernel had none, so it asked no governor.
    Absent,
    /// The driver's name.
    Named(String),
}

impl Driver {
    /// The driver of that name.
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
