//! Writes tiny perf.data files, whole and broken, like `perf record -a`.
//!
//! We need our own writer, because perf can produce neither the other byte order nor damage.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::ops::Range;

use idlewise_trace::ByteOrder;
use zstd_safe::{CCtx, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective};

pub const SAMPLE_TYPE: u64 = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW;
pub const IP: u64 = 1;
pub const TID: u64 = 1 << 1;
pub const TIME: u64 = 1 << 2;
pub const READ: u64 = 1 << 4;
pub const CALLCHAIN: u64 = 1 << 5;
pub const ID: u64 = 1 << 6;
pub const CPU: u64 = 1 << 7;
pub const PERIOD: u64 = 1 << 8;
pub const RAW: u64 = 1 << 10;
pub const IDENTIFIER: u64 = 1 << 16;

pub const LOST: u32 = 2;
pub const SAMPLE: u32 = 9;
pub const LOST_SAMPLES: u32 = 13;
pub const FINISHED_ROUND: u32 = 68;
pub const AUXTRACE: u32 = 71;
pub const COMPRESSED: u32 = 81;
pub const COMPRESSED2: u32 = 83;

/// `call_chain` and `counter values` of a sample, if its type includes them.
const CALL_CHAIN: [u64; 3] = [0xffff_ffff_8100_0000, 0xffff_ffff_8100_1000, 0x40_0000];
/// READ with total times, id and lost count: value, enabled, running, id, lost.
pub const READ_FORMAT: u64 = 1 | 2 | 4 | 16;
const READ_VALUES: [u64; 5] = [7, 8, 9, 10, 11];

/// A tracepoint. Its index in the list of events is the `event` used below.
pub struct Tracepoint {
    pub system: &'static str,
    pub id: u64,
    pub format: &'static str,
}

pub const CPU_IDLE: usize = 0;
pub const HRTIMER_START: usize = 1;
pub const IRQ_HANDLER: usize = 2;
pub const OTHER: usize = 3;

pub const TRACEPOINTS: [Tracepoint; 4] = [
    Tracepoint {
        system: "power",
        id: 568,
        format: "name: cpu_idle\nID: 568\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:u32 state;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:u32 cpu_id;\toffset:12;\tsize:4;\tsigned:0;\n\nprint fmt: \"state=%lu\"\n",
    },
    Tracepoint {
        system: "timer",
        id: 460,
        format: "name: hrtimer_start\nID: 460\nformat:\n\
            \tfield:void * hrtimer;\toffset:8;\tsize:8;\tsigned:0;\n\
            \tfield:void * function;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:s64 expires;\toffset:24;\tsize:8;\tsigned:1;\n\
            \tfield:s64 softexpires;\toffset:32;\tsize:8;\tsigned:1;\n",
    },
    Tracepoint {
        system: "irq",
        id: 225,
        format: "name: irq_handler_entry\nID: 225\nformat:\n\
            \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n",
    },
    Tracepoint {
        system: "ipi",
        id: 354,
        format: "name: ipi_send_cpu\nID: 354\nformat:\n\
            \tfield:unsigned int cpu;\toffset:8;\tsize:4;\tsigned:0;\n",
    },
];

pub struct PerfWriter {
    pub order: ByteOrder,
    pub sample_type: u64,
    pub read_format: u64,
    pub has_sample_id_all: bool,
    /// One in this many events is recorded.
    pub sample_period: u64,
    /// The kernel clock that was requested.
    pub clock_id: Option<i32>,
    pub formats: Vec<(&'static str, String)>,
    /// The recorded ones of `TRACEPOINTS`.
    pub recorded: Range<usize>,
    /// Everything between header and features.
    pub records: Vec<u8>,
}

/// Offsets in a file.
pub struct Layout {
    pub attrs: usize,
    pub data: usize,
    pub tracing_data: usize,
}

impl PerfWriter {
    pub fn new(order: ByteOrder) -> Self {
        Self {
            order,
            sample_type: SAMPLE_TYPE,
            read_format: READ_FORMAT,
            has_sample_id_all: true,
            sample_period: 1,
            clock_id: Some(1),
            formats: TRACEPOINTS.iter().map(|t| (t.system, t.format.to_owned())).collect(),
            recorded: 0..TRACEPOINTS.len(),
            records: Vec::new(),
        }
    }

    pub fn u16(&self, value: u16) -> [u8; 2] {
        match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    pub fn u32(&self, value: u32) -> [u8; 4] {
        match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    pub fn u64(&self, value: u64) -> [u8; 8] {
        match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    fn words(&self, words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|&word| self.u64(word)).collect()
    }

    fn pair(&self, first: u32, second: u32) -> Vec<u8> {
        [self.u32(first), self.u32(second)].concat()
    }

    /// Four events have the ids 20 to 27, two CPUs each.
    fn id(event: usize, cpu: u32) -> u64 {
        20 + event as u64 * 2 + u64::from(cpu & 1)
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let byte_count = u16::try_from(body.len() + 8).unwrap();
        let header = [&self.u32(kind)[..], &self.u16(misc), &self.u16(byte_count)].concat();
        self.records.extend(header);
        self.records.extend_from_slice(body);
    }

    pub fn sample(&mut self, event: usize, at_ns: u64, cpu: u32, raw: &[u8]) {
        let id = Self::id(event, cpu);
        let mut body = Vec::new();
        let parts: [(u64, Vec<u8>); 9] = [
            (IDENTIFIER, self.words(&[id])),
            (IP, self.words(&[0xffff_ffff_8100_0000])),
            (TID, self.pair(1, 1)),
            (TIME, self.words(&[at_ns])),
            (ID, self.words(&[id])),
            (CPU, self.pair(cpu, 0)),
            (PERIOD, self.words(&[1])),
            (READ, self.words(&READ_VALUES)),
            (CALLCHAIN, [self.words(&[CALL_CHAIN.len() as u64]), self.words(&CALL_CHAIN)].concat()),
        ];
        for (bit, part) in parts {
            if self.sample_type & bit != 0 {
                body.extend(part);
            }
        }
        if self.sample_type & RAW != 0 {
            // The kernel pads so that length and data together are a multiple of eight.
            let padded = (4 + raw.len()).next_multiple_of(8) - 4;
            body.extend(self.u32(padded as u32));
            body.extend_from_slice(raw);
            body.resize(body.len() + padded - raw.len(), 0);
        }
        self.record(SAMPLE, 1, &body);
    }

    fn common(&self, event: usize) -> Vec<u8> {
        let id = TRACEPOINTS[event].id;
        [&self.u16(id as u16)[..], &[0, 0], &self.u32(1)].concat()
    }

    pub fn idle_entry(&mut self, at_ns: u64, cpu: u32, state: u32) {
        let raw = [self.common(CPU_IDLE), self.pair(state, cpu)].concat();
        self.sample(CPU_IDLE, at_ns, cpu, &raw);
    }

    pub fn idle_exit(&mut self, at_ns: u64, cpu: u32) {
        self.idle_entry(at_ns, cpu, u32::MAX);
    }

    pub fn hrtimer_start(&mut self, at_ns: u64, cpu: u32, expires: u64, soft_expires: u64) {
        let fields =
            self.words(&[0xffff_8880_0000_1000, 0xffff_ffff_8142_01c0, expires, soft_expires]);
        let raw = [self.common(HRTIMER_START), fields].concat();
        self.sample(HRTIMER_START, at_ns, cpu, &raw);
    }

    pub fn irq_handler(&mut self, at_ns: u64, cpu: u32, name: &str) {
        let text = [name.as_bytes(), &[0]].concat();
        let data_loc = (text.len() as u32) << 16 | 16;
        let raw = [self.common(IRQ_HANDLER), self.pair(27, data_loc), text].concat();
        self.sample(IRQ_HANDLER, at_ns, cpu, &raw);
    }

    pub fn other(&mut self, at_ns: u64, cpu: u32) {
        let raw = [self.common(OTHER), self.pair(1, 0)].concat();
        self.sample(OTHER, at_ns, cpu, &raw);
    }

    /// The end of records that are not samples.
    fn trailer(&self, at_ns: u64, cpu: u32) -> Vec<u8> {
        let id = Self::id(0, cpu);
        let parts: [(u64, Vec<u8>); 5] = [
            (TID, self.pair(1, 1)),
            (TIME, self.words(&[at_ns])),
            (ID, self.words(&[id])),
            (CPU, self.pair(cpu, 0)),
            (IDENTIFIER, self.words(&[id])),
        ];
        let there = parts.into_iter().filter(|(bit, _)| self.sample_type & bit != 0);
        if self.has_sample_id_all { there.flat_map(|(_, part)| part).collect() } else { Vec::new() }
    }

    pub fn lost(&mut self, at_ns: u64, cpu: u32, event_count: u64) {
        let body =
            [self.words(&[Self::id(0, cpu), event_count]), self.trailer(at_ns, cpu)].concat();
        self.record(LOST, 0, &body);
    }

    pub fn lost_samples(&mut self, misc: u16, at_ns: u64, cpu: u32, event_count: u64) {
        let body = [self.words(&[event_count]), self.trailer(at_ns, cpu)].concat();
        self.record(LOST_SAMPLES, misc, &body);
    }

    pub fn round(&mut self) {
        self.record(FINISHED_ROUND, 0, &[]);
    }

    pub fn auxtrace(&mut self, payload: &[u8]) {
        let body = self.words(&[payload.len() as u64, 0, 0, 0, 0]);
        self.record(AUXTRACE, 0, &body);
        self.records.extend_from_slice(payload);
    }

    /// Compresses all records so far, like `perf record -z`, and splits the stream into records of
    /// at most `packed_byte_count` bytes. COMPRESSED records are as long as their content;
    /// COMPRESSED2 records are padded.
    pub fn compress(&mut self, kind: u32, packed_byte_count: usize) {
        let mut context = CCtx::create();
        let mut packed = vec![0; zstd_safe::compress_bound(self.records.len())];
        let mut output = OutBuffer::around(&mut packed[..]);
        let mut input = InBuffer::around(&self.records);
        let left = context
            .compress_stream2(&mut output, &mut input, ZSTD_EndDirective::ZSTD_e_flush)
            .unwrap();
        assert_eq!((left, input.pos()), (0, self.records.len()));
        let packed = output.as_slice().to_vec();
        self.records.clear();
        for chunk in packed.chunks(packed_byte_count) {
            let mut body = chunk.to_vec();
            if kind == COMPRESSED2 {
                body = [self.u64(chunk.len() as u64).to_vec(), body].concat();
                body.resize(body.len().next_multiple_of(8), 0xee);
            }
            self.record(kind, 0, &body);
        }
    }

    fn attr(&self, event: usize) -> Vec<u8> {
        let mut attr = vec![0; 128];
        let mut put = |at: usize, bytes: &[u8]| attr[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.u32(2));
        put(4, &self.u32(128));
        put(8, &self.u64(TRACEPOINTS[event].id));
        put(16, &self.u64(self.sample_period));
        put(24, &self.u64(self.sample_type));
        put(32, &self.u64(self.read_format));
        let flags =
            u64::from(self.has_sample_id_all) << 18 | u64::from(self.clock_id.is_some()) << 25;
        put(
            40,
            &self.u64(match self.order {
                ByteOrder::Little => flags,
                ByteOrder::Big => flags.reverse_bits(),
            }),
        );
        put(92, &self.u32(self.clock_id.unwrap_or(0) as u32));
        attr
    }

    fn ids(&self, event: usize) -> Vec<u8> {
        self.words(&[Self::id(event, 0), Self::id(event, 1)])
    }

    pub fn tracing_data(&self) -> Vec<u8> {
        let mut block = b"\x17\x08\x44tracing0.6\0".to_vec();
        block.push(match self.order {
            ByteOrder::Little => 0,
            ByteOrder::Big => 1,
        });
        block.push(8);
        block.extend(self.u32(4096));
        for head in ["header_page\0", "header_event\0"] {
            block.extend_from_slice(head.as_bytes());
            block.extend(self.u64(4));
            block.extend_from_slice(b"text");
        }
        block.extend(self.u32(0));
        block.extend(self.u32(self.formats.len() as u32));
        for (system, format) in &self.formats {
            block.extend_from_slice(system.as_bytes());
            block.push(0);
            block.extend(self.u32(1));
            block.extend(self.u64(format.len() as u64));
            block.extend_from_slice(format.as_bytes());
        }
        block.extend(self.u32(0));
        block.extend(self.u32(0));
        block.extend(self.u64(0));
        block
    }

    fn string(&self, text: &str) -> Vec<u8> {
        let mut padded = text.as_bytes().to_vec();
        padded.resize((text.len() + 1).next_multiple_of(64), 0);
        [self.u32(padded.len() as u32).to_vec(), padded].concat()
    }

    /// Feature bits with their contents, in the order of the bits.
    fn features(&self) -> Vec<(u64, Vec<u8>)> {
        let cmdline = [self.u32(2).to_vec(), self.string("perf"), self.string("record")].concat();
        vec![
            (1, self.tracing_data()),
            (4, self.string("6.18.44")),
            (6, self.string("x86_64")),
            (7, self.pair(4, 2)),
            (8, self.string("Intel(R) Xeon(R) Processor")),
            (9, self.string("GenuineIntel,6,167,1")),
            (11, cmdline),
        ]
    }

    /// The file and its offsets.
    pub fn file(&self) -> (Vec<u8>, Layout) {
        let mut ids = Vec::new();
        let mut attrs = Vec::new();
        let ids_at = 104;
        let attrs_at = ids_at + self.recorded.len() * 16;
        for event in self.recorded.clone() {
            attrs.extend(self.attr(event));
            attrs.extend(self.words(&[(ids_at + ids.len()) as u64, 16]));
            ids.extend(self.ids(event));
        }
        let data_at = attrs_at + attrs.len();
        let features = self.features();
        let bits = features.iter().fold(0, |bits, (bit, _)| bits | 1 << bit);
        let magic: &[u8] = match self.order {
            ByteOrder::Little => b"PERFILE2",
            ByteOrder::Big => b"2ELIFREP",
        };
        let mut file = magic.to_vec();
        file.extend(self.words(&[104, 144, attrs_at as u64, attrs.len() as u64]));
        file.extend(self.words(&[data_at as u64, self.records.len() as u64, 0, 0]));
        file.extend(self.words(&[bits, 0, 0, 0]));
        file.extend(ids);
        file.extend(attrs);
        file.extend_from_slice(&self.records);
        let mut at = file.len() + features.len() * 16;
        let tracing_data = at;
        for (_, content) in &features {
            file.extend(self.words(&[at as u64, content.len() as u64]));
            at += content.len();
        }
        file.extend(features.into_iter().flat_map(|(_, content)| content));
        (file, Layout { attrs: attrs_at, data: data_at, tracing_data })
    }

    /// The same recording as `perf record -o -` writes it, and the offset of the kernel's first
    /// record.
    pub fn pipe(&self) -> (Vec<u8>, usize) {
        let mut stream = Self::new(self.order);
        for event in self.recorded.clone() {
            stream.record(64, 0, &[self.attr(event), self.ids(event)].concat());
        }
        for (bit, content) in self.features() {
            if bit == 1 {
                let padded = content.len().next_multiple_of(8);
                stream.record(66, 0, &self.u32(padded as u32));
                stream.records.extend_from_slice(&content);
                stream.records.resize(stream.records.len() + padded - content.len(), 0);
            } else {
                stream.record(80, 0, &[self.u64(bit).to_vec(), content].concat());
            }
        }
        let magic: &[u8] = match self.order {
            ByteOrder::Little => b"PERFILE2",
            ByteOrder::Big => b"2ELIFREP",
        };
        let head = [magic.to_vec(), self.words(&[16]), stream.records].concat();
        let data_at = head.len();
        ([head, self.records.clone()].concat(), data_at)
    }
}
