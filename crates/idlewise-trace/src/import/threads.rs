//! Importers that read at places: one thread reads and merges, one hashes the file, the caller's own
//! gives the events to the sink. Between them go a few batches, whose buffers go round in a circle,
//! so memory does not grow with the file.

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
    /// How many bytes were read for it and all before it.
    pub(super) byte_count: u64,
}

/// Runs `read` on a thread of its own. What it hands over goes to `sink`, and `progress` is told how
/// many bytes were read. `read` gets an empty batch in the place of a full one, and is told whether
/// to go on. Returns what `read` returns, and the file's BLAKE3 hash in hexadecimal.
pub(super) fn run<T: Send>(
    name: &str,
    source: &dyn ReadAt,
    read: impl FnOnce(&mut dyn FnMut(&mut Batch) -> bool) -> Result<T, ImportError> + Send,
    progress: &dyn Fn(u64),
    sink: &mut dyn FnMut(&[Event]),
) -> Result<(T, String), ImportError> {
    let no_thread = |source| ImportError::Io { at_byte: 0, source };
    let named = |name: String| thread::Builder::new().name(name);
    let (full_sender, full) = sync_channel::<Batch>(WAITING_BATCH_COUNT);
    let (empty_sender, empty) = channel::<Batch>();
    thread::scope(|scope| {
        let hasher = named(format!("{name}-hash"))
            .spawn_scoped(scope, || hash(source))
            .map_err(no_thread)?;
        let reader = named(name.to_owned())
            .spawn_scoped(scope, move || {
                read(&mut |batch| {
                    let mut next = empty.try_recv().unwrap_or_default();
                    next.events.clear();
                    full_sender.send(std::mem::replace(batch, next)).is_ok()
                })
            })
            .map_err(no_thread)?;
        for batch in full {
            if !batch.events.is_empty() {
                sink(&batch.events);
            }
            progress(batch.byte_count);
            // The reading thread may have ended, and needs no more buffers then.
            let _ = empty_sender.send(batch);
        }
        let outcome = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let hash = hasher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((outcome, hash))
    })
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
