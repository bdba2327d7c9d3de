//! The kernels for which there are headers.

/// A kernel for which there are headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The stable series.
    pub name: &'static str,
    /// Like `KERNEL_VERSION` in the headers.
    pub(crate) code: u32,
}

/// All kernels, oldest first.
pub const KERNELS: [Kernel; 5] = [
    Kernel { name: "6.1", code: 0x06_01_00 },
    Kernel { name: "6.6", code: 0x06_06_00 },
    Kernel { name: "6.12", code: 0x06_0c_00 },
    Kernel { name: "6.18", code: 0x06_12_00 },
    Kernel { name: "7.2", code: 0x07_02_00 },
];
