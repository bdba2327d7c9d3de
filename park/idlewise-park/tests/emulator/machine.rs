//! Emulates instructions that this CPU lacks, in the handlers of the signals that they raise.
//!
//! UMONITOR, UMWAIT, TPAUSE, MONITORX and MWAITX raise #UD, which becomes SIGILL. RDTSC and RDTSCP raise
//! #GP, which becomes SIGSEGV, in a thread that asked for it ([`trap_tsc`]). The handler decodes the bytes
//! at the instruction pointer, does what Intel's and AMD's manuals specify, and continues after the
//! instruction. So the tests run the library's own machine code.
//!
//! Executing an instruction is the only way to find out whether it traps ([`traps`]). CPUID does not tell:
//! a hypervisor may hide an instruction and still let it through, and some (QEMU 7.2 too) then ignore it.
//! If an instruction does not trap, the CPU is stopped before each instruction to emulate it ([`step`]).
//!
//! The monitored line is compared with a copy made when the monitor was armed. Hardware also notices stores
//! that don't change it, but a doorbell has none of those.

use std::arch::asm;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// How often each instruction was executed.
#[derive(Debug)]
pub struct Log {
    pub umonitor: AtomicU64,
    pub umwait_c01: AtomicU64,
    pub umwait_c02: AtomicU64,
    pub tpause: AtomicU64,
    pub monitorx: AtomicU64,
    pub mwaitx: AtomicU64,
    pub rdtsc: AtomicU64,
    /// The bytes of the last instruction of each kind, little-endian, in the order of the fields above.
    pub bytes: [AtomicU32; 7],
    /// Operands for which hardware would have raised #GP.
    pub faults: AtomicU64,
}

pub static LOG: Log = Log {
    umonitor: AtomicU64::new(0),
    umwait_c01: AtomicU64::new(0),
    umwait_c02: AtomicU64::new(0),
    tpause: AtomicU64::new(0),
    monitorx: AtomicU64::new(0),
    mwaitx: AtomicU64::new(0),
    rdtsc: AtomicU64::new(0),
    bytes: [const { AtomicU32::new(0) }; 7],
    faults: AtomicU64::new(0),
};

/// `IA32_UMWAIT_CONTROL`: the longest wait in ticks; 0 means unbounded.
pub static OS_BOUND_TICKS: AtomicU64 = AtomicU64::new(0);
/// Every this many waits, one ends at once, as an interrupt would make it; 0 means none.
pub static SPURIOUS_EVERY: AtomicU64 = AtomicU64::new(0);
/// How far the emulated time stamp counter is ahead of the real one.
pub static TSC_OFFSET: AtomicI64 = AtomicI64::new(0);
/// If not 0, the next reading of the emulated counter. Each reading adds [`MANUAL_STEP`], so no time passes
/// while a signal is handled.
pub static MANUAL_TICKS: AtomicU64 = AtomicU64::new(0);
const MANUAL_STEP: u64 = 100;

thread_local! {
    /// The armed line and its contents at that time.
    static MONITOR: Cell<Option<(usize, [u64; 8])>> = const { Cell::new(None) };
}

type Registers = libc::ucontext_t;

fn register(context: &mut Registers, which: libc::c_int) -> &mut i64 {
    &mut context.uc_mcontext.gregs[which as usize]
}

/// From now on, handles the instructions in all threads.
pub fn install() {
    for (signal, handler) in [
        (libc::SIGILL, on_sigill as extern "C" fn(_, _, _)),
        (libc::SIGSEGV, on_sigsegv as extern "C" fn(_, _, _)),
        (libc::SIGTRAP, on_sigtrap as extern "C" fn(_, _, _)),
    ] {
        // SAFETY: an all-zero sigaction is a valid one; the handler has the signature of SA_SIGINFO.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            // While the handler waits, the same signal may have to be handled again.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }
}

/// Sets whether RDTSC traps in this thread and in those that it starts later. Returns `false` if the kernel
/// refuses.
pub fn trap_tsc(is_trapped: bool) -> bool {
    let mode = if is_trapped { libc::PR_TSC_SIGSEGV } else { libc::PR_TSC_ENABLE };
    // SAFETY: changes this thread's own mode.
    unsafe { libc::prctl(libc::PR_SET_TSC, mode, 0, 0, 0) == 0 }
}

fn is_tsc_trapped() -> bool {
    let mut mode: libc::c_int = 0;
    // SAFETY: writes `mode`.
    let result = unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode, 0, 0, 0) };
    result == 0 && mode == libc::PR_TSC_SIGSEGV
}

/// Reads the emulated counter, whether or not it traps here.
pub fn ticks() -> u64 {
    if MANUAL_TICKS.load(Ordering::Relaxed) != 0 {
        return MANUAL_TICKS.fetch_add(MANUAL_STEP, Ordering::Relaxed);
    }
    real_ticks().wrapping_add_signed(TSC_OFFSET.load(Ordering::Relaxed))
}

fn real_ticks() -> u64 {
    let was_trapped = is_tsc_trapped();
    if was_trapped {
        trap_tsc(false);
    }
    // SAFETY: it does not trap.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    if was_trapped {
        trap_tsc(true);
    }
    ticks
}

extern "C" fn on_sigill(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted thread's registers, ours until the handler returns.
    let context = unsafe { &mut *context.cast::<Registers>() };
    if !execute(context) {
        give_up(signal);
    }
}

extern "C" fn on_sigsegv(signal: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as above.
    let context = unsafe { &mut *context.cast::<Registers>() };
    if !is_tsc_trapped() || !execute(context) {
        give_up(signal);
    }
}

/// Runs between two instructions of a thread that [`step`]s.
extern "C" fn on_sigtrap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as above.
    execute(unsafe { &mut *context.cast::<Registers>() });
}

/// Single-steps `action`, so that these instructions are emulated whether they trap or not.
pub fn step<T>(action: impl FnOnce() -> T) -> T {
    const TRAP_FLAG: u64 = 1 << 8;
    // SAFETY: the handler of SIGTRAP is in place; the flag changes nothing else.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = const TRAP_FLAG) };
    let result = action();
    // SAFETY: as above.
    unsafe {
        asm!("pushfq", "and qword ptr [rsp], {mask}", "popfq", mask = const !TRAP_FLAG as i32)
    };
    result
}

/// An instruction that waits.
#[derive(Clone, Copy, Debug)]
pub enum Instruction {
    Umwait,
    Tpause,
    Mwaitx,
}

/// Returns whether an instruction traps here. Executes it with a deadline that ends the wait at once.
pub fn traps(instruction: Instruction) -> bool {
    let counts = [&LOG.umwait_c01, &LOG.tpause, &LOG.mwaitx];
    let emulated_count = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
    let before = emulated_count();
    let word = AtomicU32::new(0);
    // SAFETY: they read the word's cache line, wait, and change the registers named here. RBX is reserved
    // by the compiler, so it is restored.
    unsafe {
        match instruction {
            Instruction::Umwait => asm!(
                "umonitor rdi", "umwait ecx",
                in("rdi") word.as_ptr(), in("ecx") 1, in("eax") 0, in("edx") 0,
            ),
            Instruction::Tpause => asm!("tpause ecx", in("ecx") 1, in("eax") 0, in("edx") 0),
            Instruction::Mwaitx => asm!(
                "monitorx", "mov eax, 0", "mov ecx, 2",
                "xchg {ticks:r}, rbx", "mwaitx", "xchg {ticks:r}, rbx",
                ticks = inout(reg) 1u64 => _,
                inout("rax") word.as_ptr() => _, inout("ecx") 0 => _, in("edx") 0,
            ),
        }
    }
    emulated_count() > before
}

/// A real fault: restores the default action, so that the instruction faults again and ends the process.
fn give_up(signal: libc::c_int) {
    // SAFETY: restores the default action.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Emulates the instruction at the instruction pointer. Returns `false` if it is none of these.
fn execute(context: &mut Registers) -> bool {
    let address = *register(context, libc::REG_RIP) as usize as *const u8;
    // SAFETY: an instruction begins there. No byte beyond it is read, because comparing stops at the first
    // byte that differs.
    let byte = |index: usize| unsafe { address.add(index).read() };
    let (kind, length, counter) = match byte(0) {
        0x0f if byte(1) == 0x31 => (6, 2, &LOG.rdtsc),
        0x0f if byte(1) == 0x01 && byte(2) == 0xf9 => (6, 3, &LOG.rdtsc),
        0x0f if byte(1) == 0x01 && byte(2) == 0xfa => (4, 3, &LOG.monitorx),
        0x0f if byte(1) == 0x01 && byte(2) == 0xfb => (5, 3, &LOG.mwaitx),
        // The library uses RDI and ECX, which need no REX prefix.
        prefix @ (0x66 | 0xf2 | 0xf3) if byte(1) == 0x0f && byte(2) == 0xae => {
            match (prefix, byte(3)) {
                (0xf3, 0xf7) => (0, 4, &LOG.umonitor),
                (0xf2, 0xf1) if *register(context, libc::REG_RCX) as u32 == 1 => {
                    (1, 4, &LOG.umwait_c01)
                }
                (0xf2, 0xf1) => (2, 4, &LOG.umwait_c02),
                (0x66, 0xf1) => (3, 4, &LOG.tpause),
                _ => return false,
            }
        }
        _ => return false,
    };
    let bytes = (0..length).fold(0, |bytes, index| bytes | u32::from(byte(index)) << (8 * index));
    LOG.bytes[kind].store(bytes, Ordering::Relaxed);
    let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
    let ecx = *register(context, libc::REG_RCX) as u32;
    let eax = *register(context, libc::REG_RAX) as u32;
    let edx = *register(context, libc::REG_RDX) as u32;
    match kind {
        0 => arm(*register(context, libc::REG_RDI) as usize),
        1..=3 => {
            // Only one bit of ECX has a meaning; others raise #GP.
            LOG.faults.fetch_add(u64::from(ecx > 1), Ordering::Relaxed);
            let until_ticks = u64::from(edx) << 32 | u64::from(eax);
            let is_bound = wait(kind != 3, Some(until_ticks), count);
            // CF: the OS's bound ended it. OF, SF, ZF, AF and PF are cleared.
            const FLAGS: i64 = 0x8d5;
            let flags = register(context, libc::REG_EFL);
            *flags = *flags & !FLAGS | i64::from(is_bound);
        }
        4 => {
            LOG.faults.fetch_add(u64::from(ecx != 0), Ordering::Relaxed);
            arm(*register(context, libc::REG_RAX) as usize);
        }
        5 => {
            LOG.faults.fetch_add(u64::from(ecx & !0b11 != 0), Ordering::Relaxed);
            let ebx = *register(context, libc::REG_RBX) as u32;
            let until = (ecx & 0b10 != 0).then(|| ticks() + u64::from(ebx));
            wait(true, until, count);
        }
        _ => {
            // The OS's clock would have handled a counter that jumped, and goes on.
            let ticks = if is_os_code(address.addr()) { real_ticks() } else { ticks() };
            *register(context, libc::REG_RAX) = (ticks & 0xffff_ffff) as i64;
            *register(context, libc::REG_RDX) = (ticks >> 32) as i64;
            if length == 3 {
                *register(context, libc::REG_RCX) = 0;
            }
        }
    }
    *register(context, libc::REG_RIP) += length as i64;
    true
}

/// Whether the code is the vDSO's, which reads the counter for `clock_gettime`.
fn is_os_code(address: usize) -> bool {
    // SAFETY: no pointers.
    let vdso = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    (vdso..vdso + 0x4000).contains(&address)
}

fn line(address: usize) -> [u64; 8] {
    let line = (address & !63) as *const u64;
    // SAFETY: the line holds the monitored word, so all of it is mapped.
    std::array::from_fn(|index| unsafe { line.add(index).read_volatile() })
}

fn arm(address: usize) {
    MONITOR.set(Some((address, line(address))));
}

/// Waits for a store to the armed line (if `is_monitored`), the counter or the OS's bound. Returns whether
/// the bound ended it.
fn wait(is_monitored: bool, until_ticks: Option<u64>, count: u64) -> bool {
    let monitor = MONITOR.take();
    let spurious_every = SPURIOUS_EVERY.load(Ordering::Relaxed);
    if is_monitored && monitor.is_none() || spurious_every > 0 && count % spurious_every == 0 {
        return false; // without an armed monitor there is no wait
    }
    let start_ticks = ticks();
    let bound_ticks = Some(OS_BOUND_TICKS.load(Ordering::Relaxed)).filter(|&bound| bound > 0);
    loop {
        if let Some((address, before)) = monitor.filter(|_| is_monitored)
            && line(address) != before
        {
            return false;
        }
        let now_ticks = ticks();
        if until_ticks.is_some_and(|until| now_ticks >= until) {
            return false;
        }
        if bound_ticks.is_some_and(|bound| now_ticks.wrapping_sub(start_ticks) >= bound) {
            return true;
        }
        if MANUAL_TICKS.load(Ordering::Relaxed) != 0 {
            MANUAL_TICKS.fetch_add(20 * MANUAL_STEP, Ordering::Relaxed);
            continue;
        }
        // Another thread must run to store. Hardware does not need to yield for that.
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
    }
}
