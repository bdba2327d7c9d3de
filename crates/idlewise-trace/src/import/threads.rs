//! Threads for importers with random access: one reads and merges, one hashes the file, and the
//! caller's thread passes the events to the sink. A few batches circulate between them and are
//! reused, so memory does not grow with the file.

use std::fs::File;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use super::ImportError;
use super::source::{ReadAt, fill_at};
use crate::event::Event;

/// How many batches may wait for the sink.
const WAITING_BATCH_COUNT: usize = 16;

/// How much is hashed at a time.
const HASH_BLOCK_BYTE_COUNT: usize = 1 << 18;

/// Events in order.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) events: Vec<Event>,
    /// How many bytes had been read when it was complete.
    pub(super) byte_count: u64,
}

/// Runs `read` on its own thread. The batches that it hands over go to `sink`, and `progress` is
/// called with the number of bytes read. In exchange for a full batch, `read` gets an empty one and
/// is told whether to go on. Returns `read`'s result, and the file's BLAKE3 hash in hexadecimal.
pub(super) fn run<T: Send>(
    name: &str,
    source: &dyn ReadAt,
    read: impl FnOnce(&mut dyn FnMut(&mut Batch) -> bool) -> Result<T, ImportError> + Send,
    progress: &dyn Fn(u64),
    sink: &mut dyn FnMut(&[Event]),
) -> Result<(T, String), ImportError> {
    let named = |name: String| thread::Builder::new().name(name);
    let (full_sender, full) = sync_channel::<Batch>(WAITING_BATCH_COUNT);
    let (empty_sender, empty) = channel::<Batch>();
    thread::scope(|scope| {
        let hasher = named(format!("{name}-hash"))
            .spawn_scoped(scope, || hash(source))
            .map_err(ImportError::NoThread)?;
        let reader = named(name.to_owned())
            .spawn_scoped(scope, move || {
                read(&mut |batch| {
                    let mut next = empty.try_recv().unwrap_or_default();
                    next.events.clear();
                    full_sender.send(std::mem::replace(batch, next)).is_ok()
                })
            })
            .map_err(ImportError::NoThread)?;
        for batch in full {
            if !batch.events.is_empty() {
                sink(&batch.events);
            }
            progress(batch.byte_count);
            // This fails if the reading thread has ended and needs no more buffers.
            let _ = empty_sender.send(batch);
        }
        let outcome = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let hash = hasher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((outcome, hash))
    })
}

/// The BLAKE3 hash of a recording, as a log made from it has it ([`LogSource::blake3`]).
///
/// # Errors
/// Fails if the file cannot be read.
///
/// [`LogSource::blake3`]: crate::log::LogSource::blake3
pub fn source_blake3(file: &File) -> Result<String, ImportError> {
    hash(file)
}

/// The BLAKE3 hash of the whole file, in hexadecimal.
fn hash(source: &dyn ReadAt) -> Result<String, ImportError> {
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; HASH_BLOCK_BYTE_COUNT];
    let mut at_byte = 0;
    loop {
        let byte_count = fill_at(source, &mut block, at_byte)?;
        hasher.update(block.get(..byte_count).unwrap_or_default());
        at_byte += byte_count as u64;
        if byte_count < block.len() {
            return Ok(hasher.finalize().to_hex().to_string());
        }
    }
}
