//! Checks whether there is something to import, and chooses a file's buffers: those on one clock.

use std::collections::{BTreeMap, BTreeSet};

use super::clock::{self, CycleScale, Use};
use super::head::{Draft, Head, SECTION_HEADER_BYTE_COUNT, SECTION_IS_PACKED};
use super::ids::{Compiled, Ids};
use super::options::{Buffer, CpuData};
use super::pack::Unpacker;
use super::page::{MAX_PAGE_BYTE_COUNT, MIN_PAGE_BYTE_COUNT, PageLayout};
use super::stream::{Damage, MAX_CHUNK_PAGE_COUNT, Region, Stream};
use crate::Doubt;
use crate::event::Tracepoints;
use crate::import::source::{ReadAt, bytes_at};
use crate::import::{ImportError, TraceInfo, TruncationReason};
use crate::tracepoint::Purpose;

const RECORD_COMMAND: &str = "trace-cmd record -C mono -e power:cpu_idle -e timer -e sched_switch";
const RECORD_MONO: &str = "record with trace-cmd's -C mono";

/// The most memory for the chunks of all CPUs together.
const MAX_CHUNKS_BYTE_COUNT: u64 = 1 << 30;
/// The most memory for one page of each CPU, with its events.
const MAX_PAGES_BYTE_COUNT: u64 = 1 << 28;
/// How many of a CPU's pages are examined to find out what a buffer contains.
const LOOK_PAGE_COUNT: usize = 16;

impl Draft {
    /// Makes a head of the data read so far, if it has idle events that we can read.
    pub(super) fn finish(
        mut self,
        source: &dyn ReadAt,
        file_byte_count: u64,
        purpose: Purpose,
    ) -> Result<Head, ImportError> {
        let order = self.data.order;
        let at_byte = self.formats_at;
        let Compiled { ids, tracepoints, unreadable_tracepoints } =
            Ids::compile(&self.data, purpose).ok_or_else(|| ImportError::BrokenHeader {
                at_byte,
                found: "event formats without a common_type".to_owned(),
                expected: "a field with an event's number",
            })?;
        let unreadable_idle =
            unreadable_tracepoints.iter().find(|unreadable| unreadable.tracepoint == "cpu_idle");
        if let Some(unreadable) = unreadable_idle.cloned() {
            return Err(ImportError::UnreadableCpuIdle { at_byte, unreadable });
        }
        if !tracepoints.contains(Tracepoints::CPU_IDLE) {
            let recorded_count = self.data.events.len();
            return Err(ImportError::NoCpuIdle { at_byte, recorded_count, todo: RECORD_COMMAND });
        }
        self.leave_out_texts()?;

        let layout = PageLayout::parse(&self.data.header_page, order, self.data.long_byte_count);
        let file = File { source, byte_count: file_byte_count };
        let mut places = Places::default();
        for (index, buffer) in self.buffers.iter().enumerate() {
            self.add_regions(&file, (index, buffer), &layout, &mut places)?;
        }
        let (mut regions, damage) = places.finish();
        let mut doubts = Vec::new();
        let clock = self.choose_clock(&file, &layout, &ids, &mut regions, &mut doubts);
        self.check_memory(&regions)?;
        let cycle_scale = self.cycle_scale(clock.as_deref(), &mut doubts)?;
        let (kernel, arch) = self.options.release_and_machine();
        let info = TraceInfo {
            kernel,
            arch,
            cpu_count: self.options.cpu_count,
            machine_note: self.options.machine_note,
            clock: clock.as_deref().map(clock::log_name),
            tracepoints,
            unreadable_tracepoints,
            doubts,
            file_byte_count,
            ..TraceInfo::default()
        };
        let algorithm = self.algorithm;
        Ok(Head { order, info, layout, ids, cycle_scale, algorithm, regions, damage })
    }

    /// Drops buffers that are texts. Fails if no other buffer is left.
    fn leave_out_texts(&mut self) -> Result<(), ImportError> {
        let Some(first) = self.buffers.first() else {
            return Err(ImportError::BrokenHeader {
                at_byte: self.formats_at,
                found: "a file without the place of any event".to_owned(),
                expected: "a buffer among the options",
            });
        };
        if self.buffers.iter().all(|buffer| buffer.is_text) {
            return Err(ImportError::Unsupported {
                at_byte: first.section_at,
                found: "the recording is the text of a latency tracer".to_owned(),
                todo: "record events: trace-cmd record -C mono -e power -e timer -e sched",
            });
        }
        self.buffers.retain(|buffer| !buffer.is_text);
        Ok(())
    }

    /// Adds the places of a buffer's data, CPU by CPU. An impossible place is damage.
    fn add_regions(
        &self,
        file: &File<'_>,
        (index, buffer): (usize, &Buffer),
        layout: &PageLayout,
        places: &mut Places,
    ) -> Result<(), ImportError> {
        // Old recorders do not know pages that are larger than the machine's.
        let machine = u64::from(self.data.page_byte_count).max(layout.page_byte_count.unwrap_or(0));
        let page_byte_count = buffer.page_byte_count.unwrap_or(machine);
        if !(MIN_PAGE_BYTE_COUNT..=MAX_PAGE_BYTE_COUNT).contains(&page_byte_count) {
            return Err(ImportError::BrokenHeader {
                at_byte: buffer.section_at,
                found: format!("pages of {page_byte_count} bytes"),
                expected: "512 bytes to 1 MiB",
            });
        }
        // Version 7 only. If the header is missing, so is the whole section.
        let (mut is_packed, mut section_end) = (false, u64::MAX);
        if self.algorithm.is_some() {
            let header = bytes_at(file.source, buffer.section_at, SECTION_HEADER_BYTE_COUNT)?;
            let order = self.data.order;
            is_packed = order.u16_at(&header, 2).unwrap_or(0) & SECTION_IS_PACKED != 0;
            let content_at = buffer.section_at.saturating_add(SECTION_HEADER_BYTE_COUNT);
            section_end = content_at.saturating_add(order.u64_at(&header, 8).unwrap_or(0));
        }
        for &CpuData { cpu, at_byte, byte_count } in &buffer.cpus {
            if byte_count == 0 {
                continue;
            }
            let is_free = places.take(at_byte, byte_count);
            match (u16::try_from(cpu), u16::try_from(index)) {
                (Ok(cpu), Ok(buffer)) if is_free => {
                    let end = at_byte + byte_count;
                    let limit = if is_packed { section_end.max(end) } else { end };
                    places.regions.push(Region {
                        buffer,
                        cpu,
                        at_byte,
                        byte_count,
                        limit,
                        page_byte_count,
                        is_packed,
                    });
                }
                _ => {
                    let at_byte = at_byte.min(file.byte_count);
                    places.damage.add(at_byte, byte_count, TruncationReason::BrokenRecord);
                }
            }
        }
        Ok(())
    }

    /// Keeps only regions whose events are on the same clock as the first that has idle events.
    fn choose_clock(
        &self,
        file: &File<'_>,
        layout: &PageLayout,
        ids: &Ids,
        regions: &mut Vec<Region>,
        doubts: &mut Vec<Doubt>,
    ) -> Option<String> {
        let clock_of = |region: &Region| {
            let buffer = self.buffers.get(usize::from(region.buffer));
            let own = buffer.and_then(|buffer| buffer.clock.as_deref());
            own.or(self.options.clock.as_deref())
        };
        let Some(first) = regions.first() else { return self.options.clock.clone() };
        let mut chosen = clock_of(first);
        if regions.iter().all(|region| clock_of(region) == chosen) {
            return chosen.map(str::to_owned);
        }
        let mut unpacker = self.algorithm.map(Unpacker::new);
        let idle = regions.iter().find(|&&region| {
            let stream = Stream::new(file.source, self.data.order, region, file.byte_count);
            has_idle_events(stream, unpacker.as_mut(), layout, ids)
        });
        chosen = idle.map_or(chosen, clock_of);
        let left_out: BTreeSet<u16> = regions
            .iter()
            .filter(|region| clock_of(region) != chosen)
            .map(|region| region.buffer)
            .collect();
        let name = |&index: &u16| match self.buffers.get(usize::from(index)) {
            Some(buffer) if !buffer.name.is_empty() => format!("buffer {:?}", buffer.name),
            _ => "the main buffer".to_owned(),
        };
        let left_out: Vec<String> = left_out.iter().map(name).collect();
        doubts.push(Doubt::BuffersLeftOut {
            clock: chosen.unwrap_or("local").to_owned(),
            buffers: left_out.join(", "),
        });
        regions.retain(|region| clock_of(region) == chosen);
        chosen.map(str::to_owned)
    }

    /// How to scale the clock's values, if they count cycles.
    fn cycle_scale(
        &self,
        clock: Option<&str>,
        doubts: &mut Vec<Doubt>,
    ) -> Result<Option<CycleScale>, ImportError> {
        let refuse = |found| {
            let at_byte = self.buffers.first().map_or(0, |buffer| buffer.section_at);
            Err(ImportError::Unsupported { at_byte, found, todo: RECORD_MONO })
        };
        let name = clock.unwrap_or("local");
        let doubt = |reason: &str| {
            let (clock, reason) = (name.to_owned(), reason.to_owned());
            Doubt::DoubtfulClock { clock, reason }
        };
        match clock::worth(clock) {
            Use::Good => Ok(None),
            Use::Doubtful(why) => {
                doubts.push(doubt(why));
                Ok(None)
            }
            Use::Cycles(why) => match self.options.cycle_scale {
                Some(scale) => {
                    doubts.push(doubt(why));
                    Ok(Some(scale))
                }
                None => refuse(format!("the clock `{name}` without the length of its cycles")),
            },
            Use::None(why) => refuse(format!("the clock `{name}`, which {why}")),
        }
    }

    /// Rejects files that cannot be read in bounded memory: each CPU needs room for a page, or for
    /// a chunk of pages.
    fn check_memory(&self, regions: &[Region]) -> Result<(), ImportError> {
        let refuse = |what, todo| {
            let at_byte = self.buffers.first().map_or(0, |buffer| buffer.section_at);
            let found = format!("{} CPUs with {what} of this size", regions.len());
            Err(ImportError::Unsupported { at_byte, found, todo })
        };
        let packed = regions.iter().filter(|region| region.is_packed);
        let chunks: u64 = packed.map(|region| region.page_byte_count * MAX_CHUNK_PAGE_COUNT).sum();
        let pages: u64 = regions.iter().map(|region| region.page_byte_count).sum();
        if pages > MAX_PAGES_BYTE_COUNT {
            return refuse("pages", "record with smaller sub-buffers");
        }
        if chunks > MAX_CHUNKS_BYTE_COUNT {
            return refuse(
                "packed pages",
                "unpack the file with `trace-cmd convert --compression none -i IN -o OUT`",
            );
        }
        Ok(())
    }
}

/// The file being examined.
struct File<'a> {
    source: &'a dyn ReadAt,
    byte_count: u64,
}

/// The places of all CPUs' data in the file.
#[derive(Default)]
struct Places {
    regions: Vec<Region>,
    /// The end of each place, by its beginning.
    taken: BTreeMap<u64, u64>,
    damage: Damage,
}

impl Places {
    /// Reserves a place. Returns false if it overlaps another or its end overflows. Data shared by
    /// two CPUs would be held twice in memory, and a forged list could share it a thousand times.
    fn take(&mut self, at_byte: u64, byte_count: u64) -> bool {
        let Some(end) = at_byte.checked_add(byte_count) else { return false };
        let before = self.taken.range(..end).next_back();
        let is_free = before.is_none_or(|(_, &before_end)| before_end <= at_byte);
        if is_free {
            self.taken.insert(at_byte, end);
        }
        is_free
    }

    /// The regions in the file's order, without overlaps.
    fn finish(mut self) -> (Vec<Region>, Damage) {
        self.regions.sort_by_key(|region| region.at_byte);
        let mut next_at = u64::MAX;
        for region in self.regions.iter_mut().rev() {
            region.limit = region.limit.min(next_at);
            next_at = region.at_byte;
        }
        (self.regions, self.damage)
    }
}

/// Whether the first pages of a region contain idle events.
fn has_idle_events(
    mut stream: Stream<'_>,
    mut unpacker: Option<&mut Unpacker>,
    layout: &PageLayout,
    ids: &Ids,
) -> bool {
    for _ in 0..LOOK_PAGE_COUNT {
        let Ok(Some((page, _))) = stream.next_page(unpacker.as_deref_mut()) else { break };
        let Some(page) = layout.page(page) else { continue };
        let mut records = page.records;
        while let Some(Ok((_, content))) = records.next_record() {
            if ids.is_idle(content) {
                return true;
            }
        }
    }
    false
}
