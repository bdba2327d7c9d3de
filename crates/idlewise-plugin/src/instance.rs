//! A loaded governor: a private copy of a library, for one CPU.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use idlewise_core::{Context, Decision, Device, Governor, Outcome, STATE_COUNT_MAX, StateTable};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::confine::governor;
use crate::error::PluginError;

/// `IDLEWISE_GOVERNOR_VERSION`.
const VERSION: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CState {
    exit_latency_ns: i64,
    target_residency_ns: i64,
    is_polling: bool,
}

#[repr(C)]
#[derive(Default)]
struct CMachine {
    state_count: u32,
    tick_period_ns: u32,
    states: [CState; STATE_COUNT_MAX],
}

#[repr(C)]
struct CContext {
    machine: *const CMachine,
    now_ns: u64,
    latency_limit_ns: i64,
    disabled: u32,
    iowait_count: u32,
    tick_stopped: bool,
    timer_read_count: u32,
    sleep_length_ns: i64,
    next_event_ns: i64,
}

#[repr(C)]
struct CDevice {
    last_residency_ns: u64,
    poll_limit_ns: u64,
    last_state: i32,
    poll_time_limit: bool,
}

#[repr(C)]
struct COutcome {
    now_ns: u64,
    entered: u32,
    got_tick: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CGovernor {
    version: u32,
    enable: Option<unsafe extern "C" fn(*const CMachine, *mut CDevice)>,
    select: Option<unsafe extern "C" fn(*mut CContext, *mut CDevice, *mut bool) -> c_int>,
    reflect: Option<unsafe extern "C" fn(*const COutcome, *mut CDevice)>,
}

/// Why a kernel governor can't be used, from `idlewise_kernel_problem` in `shim.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its `enable` returned this error.
    EnableFailed(i32),
    /// No governor with a `select` was registered.
    NotRegistered,
}

/// A compiled governor.
#[derive(Clone)]
pub struct Library {
    /// Its name in messages.
    path: PathBuf,
    bytes: Arc<[u8]>,
    /// A hash of all that it was made from.
    key: String,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Library({:?}, {} bytes)", self.path, self.bytes.len())
    }
}

impl Library {
    pub(crate) fn new(path: PathBuf, bytes: Vec<u8>, key: String) -> Self {
        Library { path, bytes: bytes.into(), key }
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A library in a memory file, for the dynamic linker.
pub(crate) struct Image(File);

impl Image {
    pub(crate) fn new(bytes: &[u8]) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create(c"governor", flags)?);
        file.write_all(bytes)?;
        // Each load must find the same content.
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Image(file))
    }

    /// The path of the open file.
    pub(crate) fn name(&self) -> CString {
        CString::new(format!("/proc/self/fd/{}", self.0.as_raw_fd())).expect("no zero")
    }
}

impl AsRawFd for Image {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A governor's library, loaded for one CPU. Its code runs in this process, so a crash ends the process. In
/// the worker (`worker/`) that does no harm.
pub struct Instance {
    handle: *mut c_void,
    /// The dynamic linker does not load the same file twice, so an image must stay open as long as its
    /// library is loaded. `None` if somebody else keeps it open.
    _image: Option<Image>,
    interface: CGovernor,
    machine: Box<CMachine>,
    tick_period_ns: u32,
    last_answer: c_int,
}

// SAFETY: an instance owns its copy of the library with all its variables. Nobody else calls it, and a
// governor's code does not depend on its thread.
unsafe impl Send for Instance {}

impl Instance {
    /// Loads a fresh copy of a library into this process, without any confinement. Only for trusted code.
    ///
    /// # Errors
    /// If it can't be loaded or contains no governor.
    pub fn load(library: &Library, tick_period_ns: u32) -> Result<Self, PluginError> {
        let fail = |reason| PluginError::NotLoadable { path: library.path.clone(), reason };
        let image = Image::new(library.bytes())
            .map_err(|error| fail(format!("cannot copy it: {error}")))?;
        let mut instance = Instance::open(&image.name()).map_err(fail)?;
        instance._image = Some(image);
        instance.set_tick_period_ns(tick_period_ns);
        Ok(instance)
    }

    /// Loads the library with this name. No other loaded instance may have that name.
    pub(crate) fn open(name: &CStr) -> Result<Self, String> {
        // SAFETY: loading a plug-in means running its library's constructors, and the user named it as one.
        let handle =
            linking(|| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) });
        if handle.is_null() {
            // The linker's message contains a name that the user never saw.
            let words = loader_error();
            let known = format!("{}: ", name.to_string_lossy());
            return Err(format!("cannot load it: {}", words.trim_start_matches(&known)));
        }
        let mut instance = Instance {
            handle,
            _image: None,
            interface: CGovernor { version: 0, enable: None, select: None, reflect: None },
            machine: Box::default(),
            tick_period_ns: 0,
            last_answer: 0,
        };
        let symbol = instance.symbol(c"idlewise_governor");
        if symbol.is_null() {
            return Err("it exports no 'idlewise_governor'; build it from a file that has \
                        IDLEWISE_GOVERNOR(...) of idlewise_governor.h, or pass the .c file"
                .to_owned());
        }
        // SAFETY: a governor of any version begins with its version number.
        let version = unsafe { *symbol.cast::<u32>() };
        if version != VERSION {
            return Err(format!(
                "its interface has version {version}, this idlewise knows {VERSION}; build it again \
                 with this idlewise_governor.h"
            ));
        }
        // SAFETY: in this version the exported symbol has this type (`idlewise_governor.h`).
        instance.interface = unsafe { *symbol.cast::<CGovernor>() };
        if instance.interface.select.is_none() {
            return Err("its governor has no select".to_owned());
        }
        Ok(instance)
    }

    /// Returns whether a library with this name is loaded, as one is that can't be unloaded.
    pub(crate) fn is_loaded(name: &CStr) -> bool {
        // SAFETY: a C string; with this flag the call loads nothing.
        let handle =
            linking(|| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) });
        if !handle.is_null() {
            // SAFETY: the handle is live; this releases what was just opened.
            unsafe { libc::dlclose(handle) };
        }
        !handle.is_null()
    }

    pub(crate) fn set_tick_period_ns(&mut self, tick_period_ns: u32) {
        self.tick_period_ns = tick_period_ns;
    }

    /// Returns why the governor can't be used. Call it after `enable`.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let symbol = self.symbol(c"idlewise_kernel_problem").cast::<c_int>();
        if symbol.is_null() {
            return None;
        }
        // SAFETY: the symbol is an int, from shim.c or from an imitation.
        match unsafe { symbol.read_unaligned() } {
            0 => None,
            c_int::MIN => Some(Problem::NotRegistered),
            error => Some(Problem::EnableFailed(error)),
        }
    }

    /// Returns the last answer exactly as the governor gave it, even if it is outside the table.
    pub fn last_answer(&self) -> i32 {
        self.last_answer
    }

    /// Returns a symbol of the library, or null if there is none. For tests and benchmarks that compile
    /// more into the library.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is live, and the name is a C string.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// Tells the governor its machine. Must be called once, before anything else.
    pub fn enable(&mut self, states: &StateTable, device: &mut Device) {
        let machine = &mut *self.machine;
        machine.state_count = states.len() as u32;
        machine.tick_period_ns = self.tick_period_ns;
        for (to, from) in machine.states.iter_mut().zip(states.as_slice()) {
            *to = CState {
                // A table holds no time above a day.
                exit_latency_ns: from.exit_latency_ns as i64,
                target_residency_ns: from.target_residency_ns as i64,
                is_polling: from.is_polling,
            };
        }
        if let Some(enable) = self.interface.enable {
            let mut shared = CDevice::of(device);
            // SAFETY: the interface guarantees this type; the machine lives as long as the instance.
            unsafe { enable(machine, &mut shared) }
            shared.give(device);
        }
    }
}

impl CDevice {
    #[inline]
    fn of(device: &Device) -> Self {
        CDevice {
            last_residency_ns: device.last_residency_ns,
            poll_limit_ns: device.poll_limit_ns,
            last_state: device.last_state.map_or(-1, |state| state as i32),
            poll_time_limit: device.poll_time_limit,
        }
    }

    #[inline]
    fn give(&self, device: &mut Device) {
        *device = Device {
            last_residency_ns: self.last_residency_ns,
            poll_limit_ns: self.poll_limit_ns,
            poll_time_limit: self.poll_time_limit,
            last_state: usize::try_from(self.last_state).ok(),
        };
    }
}

impl Governor for Instance {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        if self.machine.state_count == 0 {
            self.enable(context.states, device);
        }
        let timers = context.timers();
        let mut question = CContext {
            machine: &*self.machine,
            now_ns: context.now_ns,
            latency_limit_ns: context.latency_limit_ns,
            disabled: context.disabled.bits().into(),
            iowait_count: context.iowait_count,
            tick_stopped: context.tick_stopped,
            timer_read_count: 0,
            sleep_length_ns: timers.sleep_length_ns,
            next_event_ns: timers.next_event_ns,
        };
        let mut shared = CDevice::of(device);
        let mut stop_tick = true;
        let select = self.interface.select.expect("checked when it was loaded");
        // SAFETY: the interface guarantees this type; all three outlive the call.
        self.last_answer = unsafe { select(&mut question, &mut shared, &mut stop_tick) };
        shared.give(device);
        context.count_sleep_length_calls(question.timer_read_count);
        // A negative answer becomes a state beyond every table.
        let state = usize::try_from(self.last_answer).unwrap_or(usize::MAX);
        Decision { state, stop_tick }
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        let Some(reflect) = self.interface.reflect else { return };
        let mut shared = CDevice::of(device);
        let outcome = COutcome {
            now_ns: outcome.now_ns,
            entered: outcome.entered as u32,
            got_tick: outcome.got_tick,
        };
        // SAFETY: the interface guarantees this type; both outlive the call.
        unsafe { reflect(&outcome, &mut shared) }
        shared.give(device);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing of the library is used afterwards.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// Lets the dynamic linker open the library in a confined process.
fn linking<T>(link: impl FnOnce() -> T) -> T {
    governor::loading();
    let result = link();
    governor::loaded();
    result
}

fn loader_error() -> String {
    // SAFETY: dlerror returns null or a C string that is valid until this thread's next call.
    unsafe {
        let words: *mut c_char = libc::dlerror();
        if ptr::eq(words, ptr::null()) {
            "unknown reason".to_owned()
        } else {
            CStr::from_ptr(words).to_string_lossy().into_owned()
        }
    }
}
