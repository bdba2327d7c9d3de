//! Writes trace.dat version 6: a head with the descriptions of the events, then each CPU's pages as
//! the kernel made them (trace-cmd's Documentation/trace-cmd/trace-cmd.dat.v6.5.txt).
//!
//! Version 6 is used because every trace-cmd and KernelShark since 2010 can read it, it has
//! everything that we need, and it can be written in one pass. Version 7 adds compression, which
//! would take time on the recorded machine. To share a file, compress it with xz afterwards.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::fchown;

use idlewise_trace::{MachineNote, OutputFile};

use super::RecordError;
use super::events::Events;

/// `TRACECMD_OPTION_CPUSTAT`: the kernel's counts for each CPU.
const OPTION_CPU_STAT: u16 = 2;
/// `TRACECMD_OPTION_TRACECLOCK`: the list of clocks, ours in brackets.
const OPTION_TRACE_CLOCK: u16 = 4;
/// `TRACECMD_OPTION_UNAME`.
const OPTION_UNAME: u16 = 5;
/// `TRACECMD_OPTION_VERSION`: the program that wrote the file, followed by our note.
const OPTION_VERSION: u16 = 9;
const OPTION_DONE: u16 = 0;

/// Everything before the pages.
pub(super) struct TraceDat<'a> {
    pub(super) header_page: Vec<u8>,
    pub(super) header_event: Vec<u8>,
    pub(super) ftrace_formats: Vec<Vec<u8>>,
    pub(super) events: &'a Events,
    /// Names of processes.
    pub(super) cmdlines: Vec<u8>,
    pub(super) trace_clock: Vec<u8>,
    /// How many CPUs the file has parts for. CPUs that were not recorded have empty parts.
    pub(super) cpu_count: usize,
    pub(super) note: &'a MachineNote,
}

/// One CPU's part.
pub(super) struct CpuPart {
    pub(super) cpu: u16,
    pub(super) pages: File,
    /// The kernel's counts, as it prints them.
    pub(super) stats: String,
}

/// Writes everything, gives the file its name, and returns its size.
pub(super) fn finish(
    output: OutputFile,
    head: &TraceDat<'_>,
    parts: Vec<CpuPart>,
    progress: &dyn Fn(u64, u64),
) -> Result<u64, RecordError> {
    let written = write(output.file(), head, parts, progress);
    let byte_count =
        written.map_err(|source| RecordError::Write { path: output.path().to_owned(), source })?;
    give_to_caller(output.file());
    output.finish()?;
    Ok(byte_count)
}

/// Gives a file that was created through sudo to the user who called sudo.
fn give_to_caller(file: &File) {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    if let (true, Some(user), Some(group)) =
        (rustix::process::geteuid().is_root(), number("SUDO_UID"), number("SUDO_GID"))
    {
        // If that fails, as on some network file systems, the file stays root's.
        let _ = fchown(file, Some(user), Some(group));
    }
}

fn write(
    mut file: &File,
    head: &TraceDat<'_>,
    mut parts: Vec<CpuPart>,
    progress: &dyn Fn(u64, u64),
) -> io::Result<u64> {
    let page_byte_count = rustix::param::page_size() as u64;
    let mut bytes = head.to_bytes(&parts, page_byte_count as u32);
    // The table of the parts. All lengths are known by now.
    let table_byte_count = 16 * head.cpu_count as u64;
    let clock_byte_count = 8 + head.trace_clock.len() as u64;
    let head_byte_count = bytes.len() as u64 + table_byte_count + clock_byte_count;
    let mut at_byte = head_byte_count.next_multiple_of(page_byte_count);
    let first_at_byte = at_byte;
    let mut table = vec![(0_u64, 0_u64); head.cpu_count];
    for part in &parts {
        let length = part.pages.metadata()?.len();
        table[usize::from(part.cpu)] = (at_byte, length);
        at_byte = (at_byte + length).next_multiple_of(page_byte_count);
    }
    // A CPU without pages needs an offset too, because some readers map it.
    for (at_byte, _) in table.iter_mut().filter(|(at_byte, _)| *at_byte == 0) {
        *at_byte = first_at_byte;
    }
    for (at_byte, length) in &table {
        bytes.extend(at_byte.to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
    }
    // trace-cmd writes and expects the list of clocks here as well.
    bytes.extend((head.trace_clock.len() as u64).to_ne_bytes());
    bytes.extend(&head.trace_clock);
    bytes.resize(first_at_byte as usize, 0);
    file.write_all(&bytes)?;
    let end_at_byte = at_byte;
    for part in &mut parts {
        progress(file.stream_position()?, end_at_byte);
        let (at_byte, _) = table[usize::from(part.cpu)];
        file.seek(SeekFrom::Start(at_byte))?;
        part.pages.seek(SeekFrom::Start(0))?;
        // The kernel copies the bytes, or shares the blocks if the file system supports it.
        io::copy(&mut part.pages, &mut file)?;
    }
    file.set_len(end_at_byte)?;
    Ok(end_at_byte)
}

impl TraceDat<'_> {
    /// Everything up to the table of the CPUs' parts.
    fn to_bytes(&self, parts: &[CpuPart], page_byte_count: u32) -> Vec<u8> {
        let mut head = Head(Vec::new());
        head.bytes(b"\x17\x08\x44tracing6\0");
        head.bytes(&[u8::from(cfg!(target_endian = "big")), size_of::<usize>() as u8]);
        head.u32(page_byte_count);
        head.bytes(b"header_page\0");
        head.sized(&self.header_page);
        head.bytes(b"header_event\0");
        head.sized(&self.header_event);
        head.u32(self.ftrace_formats.len() as u32);
        for format in &self.ftrace_formats {
            head.sized(format);
        }
        head.u32(self.events.systems.len() as u32);
        for system in &self.events.systems {
            head.bytes(system.name.as_bytes());
            head.bytes(b"\0");
            head.u32(system.events.len() as u32);
            for event in &system.events {
                head.sized(&event.format);
            }
        }
        // No symbols and no printk strings, because none of our events uses them.
        head.u32(0);
        head.u32(0);
        head.sized(&self.cmdlines);
        head.u32(self.cpu_count as u32);
        head.bytes(b"options  \0");
        for part in parts {
            head.text_option(OPTION_CPU_STAT, &format!("CPU: {}\n{}", part.cpu, part.stats));
        }
        head.text_option(OPTION_TRACE_CLOCK, String::from_utf8_lossy(&self.trace_clock).trim());
        head.text_option(OPTION_UNAME, &self.uname());
        head.option(OPTION_VERSION, &self.note.to_bytes());
        head.u16(OPTION_DONE);
        head.bytes(b"flyrecord\0");
        head.0
    }

    /// The text of `uname -srm` with the kernel's default host name, to keep the machine's private.
    fn uname(&self) -> String {
        let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        format!("Linux (none) {} {}", word(&self.note.kernel), word(&self.note.arch))
    }
}

/// The head's bytes, in this machine's byte order.
struct Head(Vec<u8>);

impl Head {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u16(&mut self, number: u16) {
        self.bytes(&number.to_ne_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.bytes(&number.to_ne_bytes());
    }

    /// Writes a text, preceded by its length in eight bytes.
    fn sized(&mut self, text: &[u8]) {
        self.bytes(&(text.len() as u64).to_ne_bytes());
        self.bytes(text);
    }

    fn option(&mut self, id: u16, content: &[u8]) {
        self.u16(id);
        self.u32(content.len() as u32);
        self.bytes(content);
    }

    /// trace-cmd expects C strings here.
    fn text_option(&mut self, id: u16, text: &str) {
        self.option(id, format!("{text}\0").as_bytes());
    }
}
