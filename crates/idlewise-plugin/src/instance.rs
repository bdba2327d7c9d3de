//! A loaded governor: one private copy of a library, for one CPU.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::ptr;

use idlewise_core::{Context, Decision, Device, Governor, Outcome, STATE_COUNT_MAX, StateTable};

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

/// A governor's library, loaded for one CPU. Its code runs in this process: a crash is ours. The
/// worker (`worker/`) is where that does no harm.
pub struct Instance {
    handle: *mut c_void,
    /// Names the memory file that the library was loaded from: the dynamic linker takes a library
    /// of the same name for one that it has, so it must stay open as long as the library is.
    _file: File,
    interface: CGovernor,
    machine: Box<CMachine>,
    tick_period_ns: u32,
    last_answer: c_int,
}

// SAFETY: an instance owns its copy of the library with all its variables; nobody else calls it,
// and code of governors does not depend on the thread that it runs in.
unsafe impl Send for Instance {}

impl Instance {
    /// Loads a copy of the library at `path`, as it was before any call.
    ///
    /// # Errors
    /// If it can't be loaded or has no governor.
    pub fn load(path: &Path, tick_period_ns: u32) -> Result<Self, PluginError> {
        let fail = |reason| PluginError::NotLoadable { path: path.into(), reason };
        let file = copy(path).map_err(|error| fail(format!("cannot copy it: {error}")))?;
        let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("no zero");
        // SAFETY: running a library's constructors is what loading a plug-in means; the user named
        // it as one.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(fail(format!("cannot load it: {}", loader_error())));
        }
        let mut instance = Instance {
            handle,
            _file: file,
            interface: CGovernor { version: 0, enable: None, select: None, reflect: None },
            machine: Box::default(),
            tick_period_ns,
            last_answer: 0,
        };
        // SAFETY: the handle is live, the name a C string.
        let symbol = unsafe { libc::dlsym(handle, c"idlewise_governor".as_ptr()) };
        if symbol.is_null() {
            return Err(fail(
                "it exports no 'idlewise_governor'; build it from a file that has \
                 IDLEWISE_GOVERNOR(...) of idlewise_governor.h, or pass the .c file"
                    .to_owned(),
            ));
        }
        // SAFETY: a governor of any version begins with its version.
        let version = unsafe { *symbol.cast::<u32>() };
        if version != VERSION {
            return Err(fail(format!(
                "its interface has version {version}, this idlewise knows {VERSION}; build it again \
                 with this idlewise_governor.h"
            )));
        }
        // SAFETY: the exported symbol of this version has this type (`idlewise_governor.h`).
        instance.interface = unsafe { *symbol.cast::<CGovernor>() };
        if instance.interface.select.is_none() {
            return Err(fail("its governor has no select".to_owned()));
        }
        Ok(instance)
    }

    /// The last answer as the governor gave it, within the table or not.
    pub fn last_answer(&self) -> i32 {
        self.last_answer
    }

    /// A function of the library by name, null if it has none; for tests and benchmarks that
    /// compile more into it.
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is live, the name a C string.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }

    /// Tells the governor its machine: once, before anything else is asked.
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
            // SAFETY: the interface's promise; the machine lives as long as the instance.
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
        // SAFETY: the interface's promise; all three outlive the call.
        self.last_answer = unsafe { select(&mut question, &mut shared, &mut stop_tick) };
        shared.give(device);
        context.count_sleep_length_calls(question.timer_read_count);
        // A negative answer becomes one beyond every table.
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
        // SAFETY: the interface's promise; both outlive the call.
        unsafe { reflect(&outcome, &mut shared) }
        shared.give(device);
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: the handle is live and nothing of the library is used after this.
        unsafe { libc::dlclose(self.handle) };
    }
}

/// The library's bytes in a memory file of their own.
fn copy(path: &Path) -> io::Result<File> {
    let bytes = fs::read(path)?;
    // SAFETY: a C string and valid flags; the descriptor that comes back is nobody else's.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"governor".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    file.write_all(&bytes)?;
    Ok(file)
}

fn loader_error() -> String {
    // SAFETY: dlerror answers null or a C string that lasts until the next call of this thread.
    unsafe {
        let words: *mut c_char = libc::dlerror();
        if ptr::eq(words, ptr::null()) {
            "unknown reason".to_owned()
        } else {
            CStr::from_ptr(words).to_string_lossy().into_owned()
        }
    }
}
