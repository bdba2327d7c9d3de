//! Watching wake-ups while they happen: the ring buffers' pages are handed out instead of written to a file.

use std::fs::File;
use std::io::{ErrorKind, Read};

use idlewise_trace::wake_events;

use super::events::Events;
use super::{CLOCK, RecordError, Stats, suitable_buffer_kb};
use crate::tracefs::Instance;
use crate::{Root, Tracefs};

/// The largest default buffer for a CPU. The buffers are read several times a second, so this holds more
/// than a million events a second.
const BUFFER_KB_MAX: u64 = 4 << 10;

/// A tracing instance with the events from which wake-ups follow. Dropping it leaves nothing behind.
#[derive(Debug)]
pub struct WakeWatch {
    // These are files of the instance, so they are dropped first.
    rings: Vec<(u16, File)>,
    instance: Instance,
    events: Events,
    header_page: Vec<u8>,
    page: Vec<u8>,
}

impl WakeWatch {
    /// Starts to trace all online CPUs, with a buffer of `buffer_kb` KiB for each; `None` chooses a size
    /// that suits the machine. Our driver's tracepoint is left out unless `with_driver`.
    ///
    /// # Errors
    /// Fails if the kernel does not allow it, or has no idle events.
    pub fn start(
        root: &Root,
        buffer_kb: Option<u64>,
        with_driver: bool,
    ) -> Result<Self, RecordError> {
        let tracefs = Tracefs::find(root)?;
        let cpus = root.online_cpus();
        if cpus.is_empty() {
            return Err(RecordError::NoCpus);
        }
        let (instance, _) = Instance::create(&tracefs)?;
        instance.set("trace_clock", CLOCK)?;
        let suitable_kb = || suitable_buffer_kb(root, cpus.len()).min(BUFFER_KB_MAX);
        let wanted_kb = buffer_kb.unwrap_or_else(suitable_kb);
        instance.set("buffer_size_kb", &wanted_kb.to_string())?;
        let wanted = wake_events().filter(|wanted| with_driver || wanted.system() != "idlewise");
        let events = Events::enable(&instance, wanted)?;
        let header_page = instance
            .bytes("events/header_page")
            .or_else(|_| tracefs.bytes("events/header_page"))?;
        let rings = cpus.iter().map(|&cpu| Ok((cpu, instance.open_ring(cpu)?)));
        let rings = rings.collect::<Result<Vec<_>, RecordError>>()?;
        let page = vec![0; rustix::param::page_size()];
        // This comes last: the effects of enabling the events must not be recorded.
        instance.set("tracing_on", "1")?;
        Ok(WakeWatch { rings, instance, events, header_page, page })
    }

    /// Returns tracefs's description of a page.
    pub fn header_page(&self) -> &[u8] {
        &self.header_page
    }

    /// Returns the events' systems and descriptions.
    pub fn formats(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let systems = self.events.systems.iter();
        systems.flat_map(|system| {
            system.events.iter().map(|event| (system.name, event.format.as_slice()))
        })
    }

    /// Returns the events that are traced, as `system:name`.
    pub fn event_names(&self) -> Vec<String> {
        self.events.names()
    }

    /// Returns the traced CPUs.
    pub fn cpus(&self) -> impl Iterator<Item = u16> {
        self.rings.iter().map(|(cpu, _)| *cpu)
    }

    /// Returns the time on the clock of the events. Every event before it is in the buffers.
    pub fn now_ns(&self) -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    /// Empties the buffers. `sink` receives each CPU's pages in order.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn read(&mut self, sink: &mut dyn FnMut(u16, &[u8])) -> Result<(), RecordError> {
        let Self { rings, page, instance, .. } = self;
        for (cpu, ring) in rings {
            loop {
                match ring.read(page) {
                    Ok(0) => break,
                    Ok(byte_count) => {
                        // What the kernel does not write is no event.
                        page[byte_count..].fill(0);
                        sink(*cpu, page);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(source) => {
                        return Err(RecordError::tracefs(&instance.ring_path(*cpu), source));
                    }
                }
            }
        }
        Ok(())
    }

    /// Stops the tracing. What is in the buffers can still be read.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn stop(&self) -> Result<(), RecordError> {
        self.instance.set("tracing_on", "0")
    }

    /// Returns how many events the kernel has dropped because the buffers were full.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn lost_event_count(&self) -> Result<u64, RecordError> {
        let mut count = 0;
        for cpu in self.cpus() {
            count += Stats::read(&self.instance, cpu)?.lost_count;
        }
        Ok(count)
    }
}
