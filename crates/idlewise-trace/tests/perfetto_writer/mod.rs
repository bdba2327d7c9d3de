//! Writes Perfetto traces according to the published schema, using `prost`.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use idlewise_trace::{Event, EventKind, Leaving};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Packet {
    #[prost(message, optional, tag = "1")]
    pub ftrace_events: Option<Bundle>,
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub sequence_id: Option<u32>,
    #[prost(message, optional, tag = "34")]
    pub ftrace_stats: Option<FtraceStats>,
    #[prost(bool, optional, tag = "42")]
    pub previous_packet_dropped: Option<bool>,
    #[prost(message, optional, tag = "45")]
    pub system_info: Option<SystemInfo>,
    #[prost(bytes = "vec", optional, tag = "50")]
    pub compressed_packets: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "98")]
    pub machine_id: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "133")]
    pub zstd_compressed_packets: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Bundle {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub event: Vec<FtraceEvent>,
    #[prost(bool, optional, tag = "3")]
    pub lost_events: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub compact_sched: Option<CompactSched>,
    #[prost(uint32, optional, tag = "5")]
    pub ftrace_clock: Option<u32>,
    #[prost(int64, optional, tag = "6")]
    pub ftrace_timestamp: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub boot_timestamp: Option<i64>,
    #[prost(message, repeated, tag = "11")]
    pub descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CompactSched {
    #[prost(uint64, repeated, tag = "1")]
    pub switch_timestamp: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub switch_next_pid: Vec<i32>,
    #[prost(string, repeated, tag = "5")]
    pub intern_table: Vec<String>,
    #[prost(uint32, repeated, tag = "6")]
    pub switch_next_comm_index: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub waking_timestamp: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    pub waking_pid: Vec<i32>,
    #[prost(uint32, repeated, tag = "12")]
    pub waking_common_flags: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Descriptor {
    #[prost(int32, optional, tag = "1")]
    pub field_id: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub event_descriptor: Option<Vec<u8>>,
}

/// google.protobuf.DescriptorProto and FieldDescriptorProto.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorProto {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub field: Vec<FieldProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FieldProto {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub number: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pub pid: Option<u32>,
    #[prost(
        oneof = "Payload",
        tags = "4, 11, 13, 17, 20, 24, 25, 36, 37, 114, 327, 551, 552, 553, 555, 556, 557, 559, 65536"
    )]
    pub payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SchedSwitch {
    #[prost(int32, optional, tag = "2")]
    pub prev_pid: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub prev_state: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub next_comm: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub next_pid: Option<i32>,
}

/// Any event that has only numbers: its fields by their numbers in the schema.
#[derive(Clone, PartialEq, Message)]
pub struct Numbers {
    #[prost(int64, optional, tag = "1")]
    pub one: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub two: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub three: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub four: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub five: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub six: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub seven: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct IrqHandler {
    #[prost(int32, optional, tag = "1")]
    pub irq: Option<i32>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Generic {
    #[prost(string, optional, tag = "1")]
    pub event_name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub field: Vec<GenericField>,
}

#[derive(Clone, PartialEq, Message)]
pub struct GenericField {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Payload {
    #[prost(message, tag = "4")]
    SchedSwitch(SchedSwitch),
    #[prost(message, tag = "11")]
    CpuFrequency(Numbers),
    #[prost(message, tag = "13")]
    CpuIdle(Numbers),
    #[prost(message, tag = "17")]
    SchedWakeup(Numbers),
    #[prost(message, tag = "20")]
    SchedWaking(Numbers),
    #[prost(message, tag = "24")]
    SoftirqEntry(Numbers),
    #[prost(message, tag = "25")]
    SoftirqExit(Numbers),
    #[prost(message, tag = "36")]
    IrqHandlerEntry(IrqHandler),
    #[prost(message, tag = "37")]
    IrqHandlerExit(Numbers),
    #[prost(message, tag = "114")]
    SchedWakeupNew(Numbers),
    #[prost(message, tag = "327")]
    Generic(Generic),
    #[prost(message, tag = "551")]
    HrtimerStart(Numbers),
    #[prost(message, tag = "552")]
    HrtimerCancel(Numbers),
    #[prost(message, tag = "553")]
    HrtimerExpire(Numbers),
    #[prost(message, tag = "555")]
    TimerStart(Numbers),
    #[prost(message, tag = "556")]
    TimerCancel(Numbers),
    #[prost(message, tag = "557")]
    TimerExpire(Numbers),
    #[prost(message, tag = "559")]
    LocalTimer(Numbers),
    /// An event that the trace itself describes.
    #[prost(message, tag = "65536")]
    Described(Numbers),
}

#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FtraceStats {
    #[prost(uint32, optional, tag = "1")]
    pub phase: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub cpu_stats: Vec<CpuStats>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CpuStats {
    #[prost(uint64, optional, tag = "1")]
    pub cpu: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub overrun: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
    #[prost(uint32, optional, tag = "8")]
    pub num_cpus: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Utsname {
    #[prost(string, optional, tag = "1")]
    pub sysname: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub release: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub machine: Option<String>,
}

/// A trace's packets in the form of a file.
pub fn file(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        bytes.push(0x0a);
        bytes.extend(packet.encode_length_delimited_to_vec());
    }
    bytes
}

/// The same packets, a few at a time in a compressed packet.
pub fn compressed(packets: &[Packet], with_zstd: bool) -> Vec<Packet> {
    let pack = |some: &[Packet]| {
        let plain = file(some);
        if with_zstd {
            let packed = zstd::encode_all(&*plain, 1).unwrap();
            return Packet { zstd_compressed_packets: Some(packed), ..Packet::default() };
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain).unwrap();
        let packed = encoder.finish().unwrap();
        Packet { compressed_packets: Some(packed), ..Packet::default() }
    };
    packets.chunks(5).map(pack).collect()
}

/// A snapshot of CLOCK_BOOTTIME and CLOCK_MONOTONIC, which is `suspended_ns` behind.
pub fn snapshot(boottime_ns: u64, suspended_ns: u64) -> Packet {
    let clock =
        |clock_id, timestamp| Clock { clock_id: Some(clock_id), timestamp: Some(timestamp) };
    let clocks = vec![clock(6, boottime_ns), clock(3, boottime_ns - suspended_ns)];
    Packet { clock_snapshot: Some(ClockSnapshot { clocks }), ..Packet::default() }
}

pub fn bundle(cpu: u16, event: Vec<FtraceEvent>) -> Packet {
    let bundle = Bundle { cpu: Some(cpu.into()), event, ..Bundle::default() };
    Packet { ftrace_events: Some(bundle), ..Packet::default() }
}

/// The id of the generic events in our traces.
const DESCRIBED: u32 = 65536;

/// Converts an event to the form that the recorder writes; `None` if it has no such event.
pub fn event(event: &Event, at_ns: u64) -> Option<FtraceEvent> {
    let numbers = Numbers::default;
    let vector = |name: &str| {
        let field = GenericField { name: Some("vector".to_owned()), int_value: Some(251) };
        Payload::Generic(Generic { event_name: Some(name.to_owned()), field: vec![field] })
    };
    let int = |value: u64| Some(value as i64);
    let payload = match event.kind {
        EventKind::IdleEntry { state } => Payload::CpuIdle(Numbers {
            one: int(state.into()),
            two: int(event.cpu.into()),
            ..numbers()
        }),
        EventKind::IdleExit => Payload::CpuIdle(Numbers {
            one: int(u32::MAX.into()),
            two: int(event.cpu.into()),
            ..numbers()
        }),
        EventKind::Frequency { khz } => Payload::CpuFrequency(Numbers {
            one: int(khz.into()),
            two: int(event.cpu.into()),
            ..numbers()
        }),
        EventKind::HrtimerStart { timer, function, expires_at_ns, has_slack } => {
            Payload::HrtimerStart(Numbers {
                one: int(timer),
                two: int(function),
                three: Some(expires_at_ns),
                four: Some(expires_at_ns - i64::from(has_slack)),
                ..numbers()
            })
        }
        EventKind::HrtimerCancel { timer } => {
            Payload::HrtimerCancel(Numbers { one: int(timer), ..numbers() })
        }
        EventKind::HrtimerExpire { timer, function, now_ns } => Payload::HrtimerExpire(Numbers {
            one: int(timer),
            two: Some(now_ns),
            three: int(function),
            ..numbers()
        }),
        EventKind::WheelStart { timer, bucket_jiffies, ahead_jiffies, flags } => {
            let now = bucket_jiffies.wrapping_sub(ahead_jiffies as u64);
            Payload::TimerStart(Numbers {
                one: int(timer),
                three: int(bucket_jiffies),
                four: int(now),
                six: int(flags.into()),
                seven: int(bucket_jiffies),
                ..numbers()
            })
        }
        EventKind::WheelCancel { timer } => {
            Payload::TimerCancel(Numbers { one: int(timer), ..numbers() })
        }
        EventKind::WheelExpire { timer, now_jiffies } => {
            Payload::TimerExpire(Numbers { one: int(timer), two: int(now_jiffies), ..numbers() })
        }
        EventKind::TickStop => {
            let field = GenericField { name: Some("success".to_owned()), int_value: Some(1) };
            let event_name = Some("tick_stop".to_owned());
            Payload::Generic(Generic { event_name, field: vec![field] })
        }
        EventKind::TimerInterrupt => Payload::LocalTimer(Numbers { one: int(236), ..numbers() }),
        EventKind::RescheduleInterrupt => vector("reschedule_entry"),
        EventKind::IpiInterrupt => Payload::Described(Numbers { one: int(251), ..numbers() }),
        EventKind::DeviceInterrupt => {
            Payload::IrqHandlerEntry(IrqHandler { irq: Some(41), name: Some("virtio3-rx".into()) })
        }
        EventKind::Softirq { vector } => {
            Payload::SoftirqEntry(Numbers { one: int(vector.into()), ..numbers() })
        }
        EventKind::SwitchToTask | EventKind::SwitchToIdle => {
            let next_pid = i32::from(event.kind == EventKind::SwitchToTask);
            Payload::SchedSwitch(SchedSwitch { next_pid: Some(next_pid), ..Default::default() })
        }
        EventKind::Wakeup { target_cpu } => {
            Payload::SchedWakeup(Numbers { five: int(target_cpu.into()), ..numbers() })
        }
        EventKind::Switch { prev, next, leaves, next_name } => Payload::SchedSwitch(SchedSwitch {
            prev_pid: prev.map(|task| task.number() as i32),
            prev_state: Some(match leaves {
                Leaving::Runnable => 0,
                Leaving::Waits => 1,
                Leaving::Ends => 0x10,
            }),
            next_comm: Some(next_name.text()),
            next_pid: Some(next as i32),
        }),
        EventKind::Waking { task, .. } => {
            Payload::SchedWaking(Numbers { two: int(task.into()), ..numbers() })
        }
        EventKind::Fork { task } => {
            Payload::SchedWakeupNew(Numbers { two: int(task.into()), ..numbers() })
        }
        EventKind::InterruptExit => vector("reschedule_exit"),
        EventKind::SoftirqExit => Payload::SoftirqExit(numbers()),
        // Perfetto has no types of its own for them.
        _ => return None,
    };
    Some(FtraceEvent { timestamp: Some(at_ns), pid: Some(0), payload: Some(payload) })
}

/// The description of the event that the trace itself describes.
pub fn descriptor() -> Descriptor {
    let field = FieldProto { name: Some("vector".to_owned()), number: Some(1) };
    let name = Some("call_function_single_entry".to_owned());
    let descriptor = DescriptorProto { name, field: vec![field] };
    Descriptor {
        field_id: Some(DESCRIBED as i32),
        event_descriptor: Some(descriptor.encode_to_vec()),
    }
}

/// Moves a bundle's switches and wakings into its compact part. Wakings there have no flags.
pub fn compact(bundle: &mut Bundle) {
    let mut compact = CompactSched::default();
    // Of switches and of wakings.
    let mut last_at_ns = [0; 2];
    bundle.event.retain(|event| {
        let at_ns = event.timestamp.unwrap();
        match &event.payload {
            Some(Payload::SchedSwitch(switch)) => {
                compact.switch_timestamp.push(at_ns - last_at_ns[0]);
                last_at_ns[0] = at_ns;
                compact.switch_prev_state.push(switch.prev_state.unwrap_or(1));
                compact.switch_next_pid.push(switch.next_pid.unwrap());
                let name = switch.next_comm.clone().unwrap_or_default();
                let known = compact.intern_table.iter().position(|known| *known == name);
                let index = known.unwrap_or_else(|| {
                    compact.intern_table.push(name);
                    compact.intern_table.len() - 1
                });
                compact.switch_next_comm_index.push(index as u32);
                false
            }
            Some(Payload::SchedWaking(waking)) => {
                compact.waking_timestamp.push(at_ns - last_at_ns[1]);
                last_at_ns[1] = at_ns;
                compact.waking_pid.push(waking.two.unwrap() as i32);
                false
            }
            _ => true,
        }
    });
    bundle.compact_sched = Some(compact);
}

/// The events of several sources, each in its own sequence of packets, written source by source in
/// blocks of `block_ns`.
pub fn trace_of_sources(sources: &[Vec<Event>], block_ns: i64) -> Vec<Packet> {
    let block_of = |event: &Event| event.at_ns / block_ns;
    let last_block = sources.iter().flatten().map(block_of).max().unwrap_or(0);
    let mut packets = Vec::new();
    for block in 0..=last_block {
        for (sequence_id, source) in (7..).zip(sources) {
            let own = source.iter().filter(|event| block_of(event) == block).copied();
            let own: Vec<Event> = own.collect();
            // Without the two packets about machine and clocks, which the service writes.
            for mut packet in trace(&own, 0).split_off(2) {
                packet.sequence_id = Some(sequence_id);
                packets.push(packet);
            }
        }
    }
    packets
}

/// A whole recording as a trace: CPU by CPU, round by round, on CLOCK_BOOTTIME, which includes
/// `suspended_ns` of suspend.
pub fn trace(events: &[Event], suspended_ns: u64) -> Vec<Packet> {
    const ROUND_NS: i64 = 50_000_000;
    let first_at_ns = events.first().map_or(0, |event| event.at_ns);
    let cpu_count = events.iter().map(|event| event.cpu + 1).max().unwrap_or(0);
    let utsname = Utsname {
        sysname: Some("Linux".to_owned()),
        release: Some("6.18.44".to_owned()),
        machine: Some("x86_64".to_owned()),
    };
    let system_info = SystemInfo { utsname: Some(utsname), num_cpus: Some(cpu_count.into()) };
    let mut packets = vec![
        Packet { system_info: Some(system_info), ..Packet::default() },
        snapshot(first_at_ns as u64 + suspended_ns, suspended_ns),
    ];
    let rounds = events
        .chunk_by(|a, b| (a.at_ns - first_at_ns) / ROUND_NS == (b.at_ns - first_at_ns) / ROUND_NS);
    for round in rounds {
        for cpu in 0..cpu_count {
            let own = round.iter().filter(|event| event.cpu == cpu);
            let own = own.filter_map(|own| event(own, own.at_ns as u64 + suspended_ns)).collect();
            let mut packet = bundle(cpu, own);
            if let Some(bundle) = &mut packet.ftrace_events {
                bundle.descriptors.push(descriptor());
            }
            packets.push(packet);
        }
    }
    packets
}
