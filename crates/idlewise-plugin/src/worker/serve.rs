//! The worker's side: confines itself, then handles messages until its input closes.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};

use idlewise_core::{Context, Decision, Device, Governor, Outcome, StateTable};
use idlewise_sim::replay::{GovernorLane, Lane};

use super::protocol::{self, Kind};
use crate::confine::governor;
use crate::failure::FailureCause;
use crate::instance::{Image, Instance, Problem};
use crate::page::{FILE_BYTE_COUNT, GAP_BYTE_COUNT, Page, fail};

/// The longest message about a library that can't be loaded.
const WORD_BYTE_COUNT_MAX: usize = 1_000;

/// Serves the process that started this one: loads the library it sends, confined unless it asked
/// otherwise, and replays with it.
///
/// # Errors
/// If standard input, output and error are not what idlewise passes to a worker.
pub fn serve(is_confined: bool) -> io::Result<()> {
    let (page, mut input, mut output) = take_streams()?;
    let mut payload = Vec::new();
    let Some(Kind::Library) = protocol::receive(&mut input, &mut payload)? else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let image = Image::new(&payload)?;
    governor::confine_little()?;
    if is_confined {
        preload(&payload);
        let writable = [1, 2, output.as_raw_fd()];
        // The file must refuse to grow before the limit's signal comes.
        let confined = governor::confine(image.as_raw_fd(), &writable, FILE_BYTE_COUNT + 1);
        if let Err(error) = confined {
            return protocol::send(&mut output, Kind::NotConfined, error.to_string().as_bytes());
        }
    }
    payload = Vec::new();
    let name = if is_confined { governor::LIBRARY_NAME.to_owned() } else { image.name() };
    page.enter_loading();
    let mut loaded = match Instance::open(&name) {
        Ok(instance) => Some(instance),
        Err(reason) => {
            let words = &reason.as_bytes()[..reason.len().min(WORD_BYTE_COUNT_MAX)];
            return protocol::send(&mut output, Kind::NotLoadable, words);
        }
    };
    protocol::send(&mut output, Kind::Ready, &[])?;
    while let Some(kind) = protocol::receive(&mut input, &mut payload)? {
        page.enter_loading();
        let instance = match loaded.take() {
            Some(instance) => instance,
            None => Instance::open(&name).map_err(io::Error::other)?,
        };
        match kind {
            Kind::Lane => {
                serve_lane(page, instance, &name, &payload, &mut input, &mut output)?;
            }
            Kind::Governor => {
                return serve_governor(page, instance, &payload, &mut input, &mut output);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(())
}

fn serve_lane(
    page: Page,
    instance: Instance,
    name: &CStr,
    payload: &[u8],
    input: &mut File,
    output: &mut File,
) -> io::Result<()> {
    let setting = protocol::get_setting(payload);
    let governor = Checked::new(instance, setting.tick_period_ns, page);
    let mut lane = GovernorLane::new(governor, setting);
    let mut index = 0;
    let mut payload = Vec::new();
    while let Some(Kind::Gaps) = protocol::receive(input, &mut payload)? {
        let (slot, byte_count) = protocol::get_slot(&payload);
        let gaps = page.gaps(slot, byte_count).ok_or(io::ErrorKind::InvalidInput)?;
        for bytes in gaps.as_chunks::<{ GAP_BYTE_COUNT }>().0 {
            let gap = protocol::get_gap(bytes);
            page.enter_gap(index, gap.cpu, gap.start_ns);
            lane.replay(&[gap]);
            index += 1;
        }
        page.enter_waiting();
    }
    let tally = lane.tally().clone();
    page.enter_unloading();
    drop(lane);
    // SAFETY: without a stream it flushes all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // A library that stays loaded would keep its variables for the next lane.
    let is_reusable = !Instance::is_loaded(name);
    let mut bytes = Vec::new();
    protocol::put_tally(&mut bytes, is_reusable, &tally);
    protocol::send(output, Kind::Tally, &bytes)
}

fn serve_governor(
    page: Page,
    instance: Instance,
    payload: &[u8],
    input: &mut File,
    output: &mut File,
) -> io::Result<()> {
    let (states, tick_period_ns) = protocol::get_governor(payload);
    let mut governor = Checked::new(instance, tick_period_ns, page);
    let mut index = 0;
    let mut payload = Vec::new();
    while let Some(Kind::Select) = protocol::receive(input, &mut payload)? {
        let (outcome, context, mut device) = protocol::get_question(&payload, &states);
        if let Some(outcome) = outcome {
            page.enter_decision(index, outcome.now_ns);
            governor.reflect(&outcome, &mut device);
            index += 1;
        }
        page.enter_decision(index, context.now_ns);
        let decision = governor.select(&context, &mut device);
        let answer = protocol::answer(decision, context.sleep_length_calls(), &device);
        protocol::send(output, Kind::Answer, &answer)?;
    }
    Ok(())
}

/// A governor whose decisions must be states. Any other decision ends the worker.
struct Checked {
    instance: Instance,
    page: Page,
    is_enabled: bool,
}

impl Checked {
    fn new(mut instance: Instance, tick_period_ns: u32, page: Page) -> Self {
        instance.set_tick_period_ns(tick_period_ns);
        Checked { instance, page, is_enabled: false }
    }

    #[cold]
    fn enable(&mut self, states: &StateTable, device: &mut Device) {
        self.instance.enable(states, device);
        match self.instance.problem() {
            Some(Problem::EnableFailed(error)) => fail(FailureCause::EnableFailed { error }),
            Some(Problem::NotRegistered) => fail(FailureCause::NotRegistered),
            None => self.is_enabled = true,
        }
    }
}

impl Governor for Checked {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        if !self.is_enabled {
            self.enable(context.states, device);
        }
        self.page.count_decision();
        let decision = self.instance.select(context, device);
        if decision.state >= context.states.len() {
            let answer = self.instance.last_answer();
            fail(FailureCause::OutOfRange { answer, state_count: context.states.len() as u32 });
        }
        decision
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.instance.reflect(outcome, device);
    }

    fn forecast_ns(&self) -> Option<u64> {
        self.instance.forecast_ns()
    }
}

/// Loads the parts of the C library that a governor may be linked with, because nothing can be opened
/// later.
fn preload(library: &[u8]) {
    let parts = [
        c"libm.so.6",
        c"libgcc_s.so.1",
        c"libpthread.so.0",
        c"libdl.so.2",
        c"librt.so.1",
        c"ld-linux-x86-64.so.2",
        c"ld-linux-aarch64.so.1",
        c"libc.so.6",
    ];
    for part in parts {
        let is_named = library.windows(part.count_bytes()).any(|bytes| bytes == part.to_bytes());
        if is_named {
            // SAFETY: parts of the C library, which this process has or could have anyway.
            unsafe { libc::dlopen(part.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        }
    }
}

/// Returns the page, and standard input and output under other numbers. In their place the governor finds
/// no input, and room for what it prints. Closes all other descriptors.
fn take_streams() -> io::Result<(Page, File, File)> {
    // SAFETY: it stays open as long as the process runs.
    let error = unsafe { BorrowedFd::borrow_raw(2) };
    let page = Page::attach(error)?;
    // First, so that the numbers below do not depend on what was inherited.
    close_others();
    // SAFETY: the new descriptors are checked, and nobody else has them.
    let [input, output] = unsafe {
        let moved =
            [libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3), libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3)];
        if moved.iter().any(|&number| number < 0) {
            return Err(io::Error::last_os_error());
        }
        moved.map(|number| File::from_raw_fd(number))
    };
    let nothing = File::open("/dev/null")?;
    // SAFETY: all four are open descriptors.
    if unsafe { libc::dup2(nothing.as_raw_fd(), 0) < 0 || libc::dup2(2, 1) < 0 } {
        return Err(io::Error::last_os_error());
    }
    Ok((page, input, output))
}

/// Closes the descriptors that this process inherited, except the standard streams.
fn close_others() {
    // SAFETY: this process has just started, and nothing in it uses these.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, RawFd::MAX, 0) };
    if result != 0 {
        // Kernels before 5.9.
        for fd in 3..=1_027 {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}
