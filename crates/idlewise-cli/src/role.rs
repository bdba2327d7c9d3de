//! What the values of options are, for commands in bundles. Each command's roles stand beside its options. An option
//! without one is refused.

/// What the value of an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleRole {
    /// A number, a name or a switch.
    Plain,
    /// A log or a recording.
    Log,
    /// A machine's id or file.
    Machine,
    /// A governor's name or file.
    Governor,
    /// A patch for the governor before it.
    Patch,
    /// A kernel source tree for the governor before it.
    KernelSource,
    /// A workload's name or file, or a log.
    Workload,
    /// A recording with causes, or a workload log.
    Causes,
    /// A saved measurement.
    Saved,
    /// A form of output. A bundle has all forms.
    Form,
    /// Only the text can have it.
    InText,
    /// The page and the mail of a replay cannot have it.
    InTable,
    /// With it there is only text.
    OnlyText,
    /// Only about reading the user's own files.
    Here,
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// Options and operands of each role, by their names in the parser.
pub type Roles = &'static [(BundleRole, &'static [&'static str])];

/// What the command writes.
pub const OUTPUT: BundleRole =
    BundleRole::Refused("a bundle has the command's outputs already, and names their files itself");
/// Foreign code without limits.
pub const UNCONFINED: BundleRole =
    BundleRole::Refused("whoever verifies the bundle would run foreign code with all their rights");
/// A list instead of a result.
pub const LIST: BundleRole = BundleRole::Refused("it only prints a list");

/// What can be said of a command's outputs when it runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// They are the same, byte for byte.
    Same,
    /// They were measured, once.
    Measured,
}
