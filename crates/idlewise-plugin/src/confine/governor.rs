//! Confines a process that is about to load a governor.
//!
//! The confinement is complete before the first byte of the governor is loaded, so it applies to
//! constructors too. The process gives up all capabilities, which root has. A seccomp filter allows what computing
//! needs: memory, reading the clock, reading and writing open descriptors, and exiting. Any other call ends the
//! process, and its number is written to the progress page. Nothing that is allowed waits, except for idlewise.
//!
//! The dynamic linker must open the library it loads, but a filter cannot look at a path. So `openat` is
//! trapped as well, and the trap's handler replaces it for the linker: for the library it returns a copy of
//! the open descriptor, and for any other file an error as if it did not exist. Nothing is ever opened by
//! path.
//!
//! If the kernel has no seccomp, [`confine`] fails, and nothing foreign is loaded.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::Resource;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{limit, without_capabilities};
use crate::failure::FailureCause;
use crate::page::fail;

/// Memory for the governor, beyond what this process has.
const MEMORY_BYTE_COUNT: u64 = 256 << 20;
const STACK_BYTE_COUNT: u64 = 8 << 20;
const OPEN_FILE_COUNT: u64 = 64;

/// What a C library's allocator may say about its memory.
const USUAL_ADVICE: [c_int; 8] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_DONTNEED,
    libc::MADV_FREE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
];
/// The part of a futex call's second argument that says what to do.
const FUTEX_OPERATIONS: u64 = 0x7f;

/// The library's name for the dynamic linker. [`confine`]'s handler recognises it.
pub(crate) const LIBRARY_NAME: &CStr = c"/idlewise-governor";

/// The library's descriptor, and whether the dynamic linker is loading it.
static LIBRARY: AtomicI32 = AtomicI32::new(-1);
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// Declares that the dynamic linker is working until [`loaded`].
pub(crate) fn loading() {
    IS_LOADING.store(true, Ordering::Relaxed);
}

/// Declares that from now on only the governor could open a file.
pub(crate) fn loaded() {
    IS_LOADING.store(false, Ordering::Relaxed);
}

/// For any worker: no core files for what is reported, and no orphan if idlewise is killed.
pub(crate) fn confine_little() -> io::Result<()> {
    limit(Resource::Core, 0)?;
    // SAFETY: plain numbers; the handlers are reset to the default.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Rust's runtime has its own handlers for these two.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
    }
    Ok(())
}

/// Confines this process, which has one thread, permanently. It can read its open descriptors and write to
/// `writable`, and the dynamic linker can load `library`.
pub(crate) fn confine(library: RawFd, writable: &[RawFd], file_byte_count: u64) -> io::Result<()> {
    LIBRARY.store(library, Ordering::Relaxed);
    let program = filter(library, writable)?;
    let action = on_forbidden as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    // SAFETY: the structure is filled in as sigaction(2) says, where zero is an empty mask. The handler
    // only uses async-signal-safe functions.
    unsafe {
        let mut handler: libc::sigaction = mem::zeroed();
        handler.sa_sigaction = action as usize;
        handler.sa_flags = libc::SA_SIGINFO;
        if libc::sigaction(libc::SIGSYS, &handler, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    without_capabilities(0)?;
    limit(Resource::As, address_space_byte_count() + MEMORY_BYTE_COUNT)?;
    limit(Resource::Stack, STACK_BYTE_COUNT)?;
    limit(Resource::Nofile, OPEN_FILE_COUNT)?;
    limit(Resource::Fsize, file_byte_count)?;
    for resource in [Resource::Nproc, Resource::Memlock, Resource::Msgqueue] {
        limit(resource, 0)?;
    }
    seccompiler::apply_filter(&program).map_err(|error| io::Error::other(error.to_string()))
}

/// The memory that this process has mapped, or a guess if the kernel doesn't say.
fn address_space_byte_count() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page_count = text.split(' ').next().and_then(|count| count.parse::<u64>().ok());
    page_count.map_or(256 << 20, |count| count * rustix::param::page_size() as u64)
}

fn filter(library: RawFd, writable: &[RawFd]) -> io::Result<BpfProgram> {
    let is = |argument: u8, value: i64| {
        let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
        SeccompCondition::new(argument, length, equal, value as u32 as u64)
    };
    let masked = |argument: u8, mask: u64, value: u64| {
        let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask));
        SeccompCondition::new(argument, length, equal, value)
    };
    let only = |conditions: Vec<SeccompCondition>| SeccompRule::new(conditions);
    let build = || -> Result<BpfProgram, seccompiler::BackendError> {
        let any = [
            // Memory.
            libc::SYS_brk,
            libc::SYS_mprotect,
            libc::SYS_mremap,
            libc::SYS_munmap,
            // Open descriptors.
            libc::SYS_read,
            libc::SYS_pread64,
            libc::SYS_lseek,
            libc::SYS_fstat,
            libc::SYS_close,
            // Clocks, process ids, and what the C library itself asks for.
            libc::SYS_clock_gettime,
            libc::SYS_clock_getres,
            libc::SYS_gettimeofday,
            libc::SYS_getrandom,
            libc::SYS_getpid,
            libc::SYS_gettid,
            libc::SYS_sysinfo,
            libc::SYS_rt_sigprocmask,
            // The end of a handler or of the process.
            libc::SYS_rt_sigreturn,
            libc::SYS_restart_syscall,
            libc::SYS_exit,
            libc::SYS_exit_group,
        ];
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            any.into_iter().map(|number| (number, Vec::new())).collect();
        let writes = writable.iter().map(|&fd| only(vec![is(0, fd.into())?]));
        rules.insert(libc::SYS_write, writes.collect::<Result<_, _>>()?);
        rules.insert(libc::SYS_dup, vec![only(vec![is(0, library.into())?])?]);
        // Neither memory that stays resident, nor from the pool of huge pages.
        let unusual = (libc::MAP_LOCKED | libc::MAP_HUGETLB) as u64;
        rules.insert(libc::SYS_mmap, vec![only(vec![masked(3, unusual, 0)?])?]);
        // Others of its values damage pages of the whole machine.
        let advice = USUAL_ADVICE.map(|advice| only(vec![is(2, advice.into())?]));
        rules.insert(libc::SYS_madvise, advice.into_iter().collect::<Result<_, _>>()?);
        // With one thread there is nobody to wait for. A futex that times out would be a way to sleep.
        let wake = masked(1, FUTEX_OPERATIONS, libc::FUTEX_WAKE as u64)?;
        rules.insert(libc::SYS_futex, vec![only(vec![wake])?]);
        // abort() raises a signal.
        let own = i64::from(std::process::id());
        let abort = only(vec![is(0, own)?, is(1, own)?, is(2, libc::SIGABRT.into())?])?;
        rules.insert(libc::SYS_tgkill, vec![abort]);
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, arch)?.try_into()
    };
    build().map_err(|error| io::Error::other(error.to_string()))
}

/// A trapped system call, in the registers of its caller.
struct Call<'a>(&'a mut libc::mcontext_t);

#[cfg(target_arch = "x86_64")]
impl Call<'_> {
    const ARGUMENTS: [c_int; 4] = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10];

    fn number(&self) -> i64 {
        self.0.gregs[libc::REG_RAX as usize]
    }

    fn argument(&self, index: usize) -> i64 {
        self.0.gregs[Self::ARGUMENTS[index] as usize]
    }

    fn answer(&mut self, value: i64) {
        self.0.gregs[libc::REG_RAX as usize] = value;
    }
}

#[cfg(target_arch = "aarch64")]
impl Call<'_> {
    fn number(&self) -> i64 {
        self.0.regs[8] as i64
    }

    fn argument(&self, index: usize) -> i64 {
        self.0.regs[index] as i64
    }

    fn answer(&mut self, value: i64) {
        self.0.regs[0] = value as u64;
    }
}

/// Performs the dynamic linker's calls that concern the library. Any other call comes from the governor and
/// ends the process.
extern "C" fn on_forbidden(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context, ours until this returns.
    let mut call = Call(unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext });
    let is_loading = IS_LOADING.load(Ordering::Relaxed);
    let number = call.number();
    match number {
        // The C library queries an open descriptor this way, with an empty path.
        libc::SYS_newfstatat if starts_with(call.argument(1), c"") => {
            // SAFETY: the caller's own pointer; if it is bad, the kernel rejects it.
            let result =
                unsafe { libc::syscall(libc::SYS_fstat, call.argument(0), call.argument(2)) };
            call.answer(if result == 0 { 0 } else { -i64::from(libc::EFAULT) });
        }
        libc::SYS_openat if is_loading && starts_with(call.argument(1), LIBRARY_NAME) => {
            let library = LIBRARY.load(Ordering::Relaxed);
            // SAFETY: plain numbers. The copy shares the original's position.
            let copy = unsafe {
                libc::syscall(libc::SYS_lseek, library, 0, libc::SEEK_SET);
                libc::syscall(libc::SYS_dup, library)
            };
            call.answer(if copy >= 0 { copy } else { -i64::from(libc::EMFILE) });
        }
        libc::SYS_openat | libc::SYS_newfstatat if is_loading => {
            call.answer(-i64::from(libc::ENOENT));
        }
        // Printing checks whether the output is a terminal.
        libc::SYS_ioctl if call.argument(1) as u32 == libc::TCGETS as u32 => {
            call.answer(-i64::from(libc::ENOTTY));
        }
        _ => fail(FailureCause::Forbidden { call: number }),
    }
}

/// Whether the C string at an address equals `name`. An invalid address ends the process.
fn starts_with(address: i64, name: &CStr) -> bool {
    let at = address as *const u8;
    let bytes = name.to_bytes_with_nul();
    // SAFETY: read byte by byte up to the first difference, so never beyond the string's end. If the
    // address is bad, the process ends with a signal, as with the governor's own access.
    (0..bytes.len()).all(|i| unsafe { ptr::read_volatile(at.wrapping_add(i)) } == bytes[i])
}
