//! The worker's side: takes messages until its input closes.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use idlewise_core::{Context, Decision, Device, Governor, Outcome, StateTable};
use idlewise_sim::replay::{GovernorLane, Lane};

use super::FailureCause;
use super::guard;
use super::protocol::{self, Kind, Message};
use crate::instance::Instance;

/// Serves the process that started this one: loads the library and replays with it. What the
/// governor prints goes to standard error.
///
/// # Errors
/// If standard input and output are not pipes of that process.
pub fn serve(library: &Path) -> io::Result<()> {
    let (input, mut output) = take_streams()?;
    let mut input = BufReader::with_capacity(1 << 16, input);
    guard::install(output.as_raw_fd())?;
    guard::enter(0, u32::MAX, 0);
    // A first load says whether it works at all; each lane has a copy of its own.
    let first = Instance::load(library, 1).map(drop);
    guard::leave();
    if let Err(error) = first {
        return protocol::send(&mut output, Kind::NotLoadable, error.to_string().as_bytes());
    }
    protocol::send(&mut output, Kind::Ready, &[])?;
    let load = |tick_period_ns| {
        Instance::load(library, tick_period_ns).map_err(|error| io::Error::other(error.to_string()))
    };
    while let Some(Message { kind, payload }) = protocol::receive(&mut input)? {
        match kind {
            Kind::Lane => {
                let setting = protocol::get_setting(&payload);
                let governor = Checked(load(setting.tick_period_ns)?);
                let mut lane = GovernorLane::new(governor, setting);
                let mut index = 0;
                while let Some(Message { kind: Kind::Gaps, payload }) =
                    protocol::receive(&mut input)?
                {
                    for bytes in payload.as_chunks::<{ protocol::GAP_BYTE_COUNT }>().0 {
                        let gap = protocol::get_gap(bytes);
                        guard::enter(index, gap.cpu.into(), gap.start_ns);
                        lane.replay(&[gap]);
                        index += 1;
                    }
                    guard::leave();
                }
                let mut bytes = Vec::new();
                protocol::put_tally(&mut bytes, lane.tally());
                protocol::send(&mut output, Kind::Tally, &bytes)?;
            }
            Kind::Governor => {
                let (states, tick_period_ns) = protocol::get_governor(&payload);
                let mut governor = Checked(load(tick_period_ns)?);
                let mut index = 0;
                while let Some(Message { kind, payload }) = protocol::receive(&mut input)? {
                    let (kind, bytes) = match kind {
                        Kind::Select => select(&mut governor, &states, &payload, index),
                        Kind::Reflect => {
                            let (outcome, mut device) = protocol::get_outcome(&payload);
                            guard::enter(index, u32::MAX, outcome.now_ns as i64);
                            governor.reflect(&outcome, &mut device);
                            index += 1;
                            (Kind::Device, protocol::device(&device))
                        }
                        _ => break,
                    };
                    guard::leave();
                    protocol::send(&mut output, kind, &bytes)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn select(
    governor: &mut Checked,
    states: &StateTable,
    payload: &[u8],
    index: u64,
) -> (Kind, Vec<u8>) {
    let (context, mut device) = protocol::get_question(payload, states);
    guard::enter(index, u32::MAX, context.now_ns as i64);
    let decision = governor.select(&context, &mut device);
    (Kind::Answer, protocol::answer(decision, context.sleep_length_calls(), &device))
}

/// A governor whose answers must be states; any other ends the worker.
struct Checked(Instance);

impl Governor for Checked {
    #[inline]
    fn select(&mut self, context: &Context<'_>, device: &mut Device) -> Decision {
        let decision = self.0.select(context, device);
        if decision.state >= context.states.len() {
            let answer = self.0.last_answer();
            let state_count = context.states.len() as u32;
            guard::fail(FailureCause::OutOfRange { answer, state_count });
        }
        decision
    }

    #[inline]
    fn reflect(&mut self, outcome: &Outcome, device: &mut Device) {
        self.0.reflect(outcome, device);
    }
}

/// Standard input and output under numbers of their own; in their places the governor finds
/// nothing to read, and standard error.
fn take_streams() -> io::Result<(File, File)> {
    // SAFETY: the numbers that come back are checked, and nobody else's.
    let moved = unsafe {
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
    let [input, output] = moved;
    Ok((input, output))
}
