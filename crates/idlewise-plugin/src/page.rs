//! A file in memory that a worker shares with idlewise: where the worker is, the gaps that it gets, and what
//! it prints.
//!
//! The worker records each gap before it replays it, at the cost of a few plain stores. If it crashes,
//! hangs or is killed, the first page shows where. While it works, idlewise can see its progress. Then come
//! the slots of [`Ring`], and room for what the governor prints. The governor can overwrite all of it: idlewise
//! only writes gaps, and uses the rest for messages about this governor.
//!
//! The file is the worker's standard error, the only descriptor besides the two pipes that `Command` passes
//! on.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::failure::{FailureCause, Place};

const PAGE_BYTE_COUNT: u64 = 4_096;
const PRINTED_BYTE_COUNT: u64 = 4 * PAGE_BYTE_COUNT;
/// The size of a gap. A lane does not need what the recording kernel did.
pub(crate) const GAP_BYTE_COUNT: usize = 40;
/// Gaps that are announced together: enough to make that cheap, and few enough for the caches.
pub(crate) const SLOT_BYTE_COUNT: usize = 1_024 * GAP_BYTE_COUNT;
/// How many announcements the pipe holds.
pub(crate) const ANNOUNCED_COUNT: usize = 4;
/// While those wait, the worker works on one slot and idlewise fills another.
const SLOT_COUNT: usize = ANNOUNCED_COUNT + 2;
const RING_BYTE_COUNT: usize = SLOT_COUNT * SLOT_BYTE_COUNT;
const MAPPED_BYTE_COUNT: usize = PAGE_BYTE_COUNT as usize + RING_BYTE_COUNT;
const PRINTED_AT: u64 = MAPPED_BYTE_COUNT as u64;
/// The size of the file, which is fixed.
pub(crate) const FILE_BYTE_COUNT: u64 = PRINTED_AT + PRINTED_BYTE_COUNT;

const STEP: usize = 0;
const KIND: usize = 1;
const INDEX: usize = 2;
const CPU: usize = 3;
const AT_NS: usize = 4;
const CAUSE: usize = 5;
const DETAIL: usize = 6;
const DECISION_COUNT: usize = 8;
const WORD_COUNT: usize = 9;

type Words = [AtomicU64; WORD_COUNT];

const LOADING: u64 = 0;
const GAP: u64 = 1;
const DECISION: u64 = 2;
const UNLOADING: u64 = 3;
const WAITING: u64 = 4;

/// idlewise's side.
pub(crate) struct Progress {
    file: File,
}

/// Slots for gaps, in turns. idlewise copies gaps into a slot and announces it through the pipe, which has room
/// for [`ANNOUNCED_COUNT`] announcements: so a slot is written again only after the worker is done with it.
pub(crate) struct Ring {
    slots: *mut u8,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Ring {}

impl Ring {
    /// Copies gaps, at most a slot's, into the next slot and returns its number.
    pub(crate) fn put(&mut self, gaps: &[u8]) -> usize {
        assert!(gaps.len() <= SLOT_BYTE_COUNT, "more than a slot's");
        let slot = self.next;
        self.next = (slot + 1) % SLOT_COUNT;
        // SAFETY: the slot is within the mapping. The worker may change what is there at any time, but
        // idlewise never reads it.
        unsafe {
            let to = self.slots.add(slot * SLOT_BYTE_COUNT);
            ptr::copy_nonoverlapping(gaps.as_ptr(), to, gaps.len());
        }
        slot
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `Progress::ring` mapped it, and nobody else has it.
        unsafe {
            libc::munmap(self.slots.sub(PAGE_BYTE_COUNT as usize).cast(), MAPPED_BYTE_COUNT);
        }
    }
}

/// Maps the page and the ring.
fn map(file: BorrowedFd<'_>) -> io::Result<*mut u8> {
    // SAFETY: a new mapping that nobody else in this process knows, of a file that is large enough and can't
    // shrink.
    let mapped = unsafe {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        libc::mmap(ptr::null_mut(), MAPPED_BYTE_COUNT, protection, flags, file.as_raw_fd(), 0)
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.cast()) }
}

impl Progress {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create(c"idlewise-worker", flags)?);
        file.set_len(FILE_BYTE_COUNT)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        file.seek(SeekFrom::Start(PRINTED_AT))?;
        Ok(Progress { file })
    }

    /// The slots for gaps.
    pub(crate) fn ring(&self) -> io::Result<Ring> {
        let mapped = map(self.file.as_fd())?;
        // SAFETY: the ring follows the page.
        Ok(Ring { slots: unsafe { mapped.add(PAGE_BYTE_COUNT as usize) }, next: 0 })
    }

    /// The worker's standard error.
    pub(crate) fn for_worker(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn words(&self) -> [u64; WORD_COUNT] {
        let mut bytes = [0; WORD_COUNT * 8];
        // The file is in memory and has its full size.
        let _ = self.file.read_exact_at(&mut bytes, 0);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_ne_bytes(words[i]))
    }

    /// A number that changes with each gap, and the number of decisions made.
    pub(crate) fn step(&self) -> (u64, u64) {
        let words = self.words();
        (words[STEP], words[DECISION_COUNT])
    }

    pub(crate) fn place(&self) -> Place {
        let words = self.words();
        let (index, at_ns) = (words[INDEX], words[AT_NS] as i64);
        match words[KIND] {
            GAP => Place::Gap { index, cpu: words[CPU] as u16, at_ns },
            DECISION => Place::Decision { index, at_ns },
            UNLOADING => Place::Unloading,
            WAITING => Place::Waiting,
            _ => Place::Loading,
        }
    }

    /// Why the worker ended, if it recorded that.
    pub(crate) fn cause(&self) -> Option<FailureCause> {
        let words = self.words();
        FailureCause::from_words(words[CAUSE], words[DETAIL], words[DETAIL + 1])
    }

    /// What was printed so far, up to the available space.
    pub(crate) fn printed(&self) -> String {
        let mut bytes = vec![0; PRINTED_BYTE_COUNT as usize];
        let _ = self.file.read_exact_at(&mut bytes, PRINTED_AT);
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }
}

/// The worker's side: its page, for [`fail`], which may run in a signal handler.
static PAGE: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());

/// The worker's page.
#[derive(Clone, Copy)]
pub(crate) struct Page(&'static Words);

impl Page {
    /// Maps the page of a file that [`Progress`] created, for this process.
    pub(crate) fn attach(file: BorrowedFd<'_>) -> io::Result<Self> {
        if rustix::fs::fstat(file)?.st_size != FILE_BYTE_COUNT as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let page = map(file)?;
        PAGE.store(page.cast(), Ordering::Relaxed);
        // SAFETY: it stays mapped, it is page-aligned, and any bytes are valid numbers.
        Ok(Page(unsafe { &*page.cast() }))
    }

    /// The gaps in a slot that idlewise announced. `None` if there is no such slot, or it holds fewer.
    pub(crate) fn gaps(self, slot: usize, byte_count: usize) -> Option<&'static [u8]> {
        if slot >= SLOT_COUNT || byte_count > SLOT_BYTE_COUNT {
            return None;
        }
        let page: *const Words = self.0;
        // SAFETY: within the mapping, which stays. idlewise writes the slot again only after it has
        // announced all others, and so after this one's gaps were replayed.
        Some(unsafe {
            let at = page.cast::<u8>().add(PAGE_BYTE_COUNT as usize + slot * SLOT_BYTE_COUNT);
            std::slice::from_raw_parts(at, byte_count)
        })
    }

    // Only one thread writes, and the writes publish nothing else, so relaxed is enough.
    #[inline]
    fn put(self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    #[inline]
    fn count(self, word: usize) {
        self.put(word, self.0[word].load(Ordering::Relaxed).wrapping_add(1));
    }

    /// Records a decision. There may be many in a gap.
    #[inline]
    pub(crate) fn count_decision(self) {
        self.count(DECISION_COUNT);
    }

    /// Records that the library is being loaded.
    pub(crate) fn enter_loading(self) {
        self.put(KIND, LOADING);
        self.count(STEP);
    }

    /// Records that the library is being unloaded.
    pub(crate) fn enter_unloading(self) {
        self.put(KIND, UNLOADING);
        self.count(STEP);
    }

    /// Records that the governor is done with the gaps that were announced.
    pub(crate) fn enter_waiting(self) {
        self.put(KIND, WAITING);
        self.count(STEP);
    }

    /// Records that the governor begins this gap.
    #[inline]
    pub(crate) fn enter_gap(self, index: u64, cpu: u16, at_ns: i64) {
        self.put(KIND, GAP);
        self.put(INDEX, index);
        self.put(CPU, cpu.into());
        self.put(AT_NS, at_ns as u64);
        self.count(STEP);
    }

    /// Records that the governor begins this decision.
    pub(crate) fn enter_decision(self, index: u64, at_ns: u64) {
        self.put(KIND, DECISION);
        self.put(INDEX, index);
        self.put(AT_NS, at_ns);
        self.count(STEP);
    }
}

/// Records the cause and ends the process. Async-signal-safe.
pub(crate) fn fail(cause: FailureCause) -> ! {
    let page = PAGE.load(Ordering::Relaxed);
    if !page.is_null() {
        // SAFETY: as in `Page::attach`, which stored it.
        let page = Page(unsafe { &*page });
        let (kind, a, b) = cause.words();
        page.put(DETAIL, a);
        page.put(DETAIL + 1, b);
        page.put(CAUSE, kind);
    }
    // SAFETY: _exit is async-signal-safe.
    unsafe { libc::_exit(1) }
}
