//! BPF programs at tracepoints, and the map that they count in. What a program does is its maker's matter: it is
//! given as instructions.
//!
//! Everything lives as long as its file descriptor, so a killed process leaves nothing behind.

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Commands of bpf(2), `include/uapi/linux/bpf.h`.
const MAP_CREATE: i64 = 0;
const MAP_LOOKUP_ELEM: i64 = 1;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;

const MAP_TYPE_PERCPU_ARRAY: u32 = 6;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// The kernel asks for it before it lets a program read a clock.
const LICENSE: &std::ffi::CStr = c"Dual MIT/GPL";

/// The argument of bpf(2): as much of the union as these commands use. The kernel takes a longer one if the rest is 0.
#[repr(C, align(8))]
struct Attributes([u8; 64]);

impl Attributes {
    fn new(words: &[(usize, u32)], long_words: &[(usize, u64)]) -> Self {
        let mut bytes = [0; 64];
        for (at, word) in words {
            bytes[*at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        for (at, word) in long_words {
            bytes[*at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        Attributes(bytes)
    }

    /// Calls bpf(2).
    ///
    /// # Safety
    /// Every address among the attributes must be valid for what the command does with it.
    unsafe fn call(&self, command: i64) -> io::Result<RawFd> {
        let (attributes, byte_count) =
            (std::ptr::from_ref(self).cast::<c_void>(), size_of::<Self>());
        // SAFETY: the attributes outlive the call; the caller vouches for the addresses in them.
        match unsafe { libc::syscall(libc::SYS_bpf, command, attributes, byte_count) } {
            result if result >= 0 => Ok(result as RawFd),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Like [`Attributes::call`], for a command that returns a descriptor.
    ///
    /// # Safety
    /// As above, and the command returns a new descriptor.
    unsafe fn open(&self, command: i64) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise; nobody else owns a descriptor that was just made.
        unsafe { self.call(command).map(|fd| OwnedFd::from_raw_fd(fd)) }
    }
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<c_void>() as u64
}

/// A value for each possible CPU, all zeros at first.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    value_byte_count: usize,
}

impl BpfMap {
    /// Makes the map. The size of a value is a multiple of 8.
    ///
    /// # Errors
    /// Fails if the kernel refuses: for lack of rights or of memory, or because it has no BPF.
    pub fn per_cpu(value_byte_count: u32) -> io::Result<Self> {
        let key_byte_count = size_of::<u32>() as u32;
        let words =
            [(0, MAP_TYPE_PERCPU_ARRAY), (4, key_byte_count), (8, value_byte_count), (12, 1)];
        // SAFETY: there are no addresses among them.
        let fd = unsafe { Attributes::new(&words, &[]).open(MAP_CREATE)? };
        Ok(BpfMap { fd, value_byte_count: value_byte_count as usize })
    }

    /// Returns the number with which instructions name the map.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Reads the values of all possible CPUs, one after the other. There must be as many as the kernel has.
    ///
    /// # Errors
    /// Fails if the kernel does.
    pub fn read(&self, possible_cpu_count: usize) -> io::Result<Vec<u8>> {
        let mut values = vec![0_u8; possible_cpu_count * self.value_byte_count];
        let key = 0_u32;
        let words = [(0, self.fd.as_raw_fd().cast_unsigned())];
        let long_words = [(8, address(&key)), (16, values.as_mut_ptr() as u64)];
        // SAFETY: the key is a number of four bytes, and the kernel writes a value for each possible CPU.
        unsafe { Attributes::new(&words, &long_words).call(MAP_LOOKUP_ELEM)? };
        Ok(values)
    }
}

/// A program that runs at a tracepoint of the kernel, on all CPUs, until it is dropped.
#[derive(Debug)]
pub struct BpfProbe {
    #[expect(dead_code, reason = "kept open: that is the attachment")]
    link: OwnedFd,
}

impl BpfProbe {
    /// Loads a program and attaches it.
    ///
    /// # Errors
    /// Fails if the kernel refuses the program (its last words are in the error), has no such tracepoint, or we
    /// have no right to.
    pub fn attach(tracepoint: &str, instructions: &[u64]) -> io::Result<Self> {
        let program = load(instructions)?;
        let name = CString::new(tracepoint).map_err(io::Error::other)?;
        let words = [(8, program.as_raw_fd().cast_unsigned())];
        let attributes = Attributes::new(&words, &[(0, address(name.to_bytes_with_nul()))]);
        // SAFETY: the name ends with a zero and outlives the call. The link keeps the program.
        let link = unsafe { attributes.open(RAW_TRACEPOINT_OPEN)? };
        Ok(BpfProbe { link })
    }
}

fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    const LOG_BYTE_COUNT: usize = 1 << 16;
    let attempt = |log: &mut [u8]| {
        let count = instructions.len() as u32;
        let words = [
            (0, PROG_TYPE_RAW_TRACEPOINT),
            (4, count),
            (24, u32::from(!log.is_empty())),
            (28, log.len() as u32),
        ];
        let log_address = if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 };
        let long_words = [
            (8, address(instructions)),
            (16, address(LICENSE.to_bytes_with_nul())),
            (32, log_address),
        ];
        // SAFETY: the instructions, the licence and the log outlive the call, and have these sizes.
        unsafe { Attributes::new(&words, &long_words).open(PROG_LOAD) }
    };
    attempt(&mut []).or_else(|error| {
        // Only a refusal by the verifier has an explanation.
        if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EACCES)) {
            return Err(error);
        }
        let mut log = vec![0; LOG_BYTE_COUNT];
        attempt(&mut log).map_err(|error| {
            let text = String::from_utf8_lossy(&log);
            let lines = text.trim_end_matches('\0').lines().rev().take(3);
            let lines: Vec<&str> = lines.collect();
            let last = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
            io::Error::new(error.kind(), format!("{error}: {last}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `return 0`: BPF_MOV64_IMM and BPF_EXIT.
    const NOTHING: [u64; 2] = [0xb7, 0x95];

    #[test]
    fn loads_and_attaches_or_says_why_not() {
        let map = match BpfMap::per_cpu(64) {
            Ok(map) => map,
            Err(error) => {
                eprintln!("SKIPPED: loads_and_attaches_or_says_why_not: bpf: {error}");
                return;
            }
        };
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last: usize = cpus.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
        assert_eq!(map.read(last + 1).unwrap(), vec![0; 64 * (last + 1)]);
        match BpfProbe::attach("sched_switch", &NOTHING) {
            Ok(_) => {}
            Err(error) => {
                eprintln!("SKIPPED: loads_and_attaches_or_says_why_not: bpf: {error}");
                return;
            }
        }
        assert!(BpfProbe::attach("no_such_tracepoint", &NOTHING).is_err());
        // It does not return.
        let error = BpfProbe::attach("sched_switch", &[0xb7]).unwrap_err().to_string();
        assert!(error.contains(": "), "{error}");
    }
}
