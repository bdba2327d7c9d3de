//! Twins: one recording that is named twice, as itself and as the log that `idlewise log import` made of it, or packed and
//! unpacked. They often lie in one folder, and a table of both would count each of its gaps twice.
//!
//! A log says the length and the hash of the recording that it was made of, so only a file of that length is hashed. Of
//! a packed recording nobody knows the length before it is unpacked, so it is unpacked and hashed wherever something could
//! be its twin. What is behind a URL would have to be fetched, and is not compared.
//!
//! Two logs of one recording may differ in the machine that they name, or in their span. Both count, and a line says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use idlewise_trace::import::source_blake3;
use idlewise_trace::log::IdleLog;
use idlewise_trace::open_regular;
use rayon::prelude::*;

use crate::input::PARQUET_MAGIC;
use crate::screen::{self, say};
use crate::unpack::{Unpacking, first_bytes, is_packed};

/// What a file is, as far as this needs it.
enum Kind {
    /// A log, with the length and the hash of its recording.
    Log(u64, String),
    /// A recording, with its length unless it is packed.
    Recording(Option<u64>),
    /// One that cannot be read now, or that does not say what it was made of. It has no twin.
    Other,
}

/// Returns the paths without the recordings of which another of them is the log, or the same recording. Says which
/// are left out.
pub fn without_twins(paths: &[PathBuf], unpacking: Unpacking) -> Vec<PathBuf> {
    if paths.len() < 2 {
        return paths.to_vec();
    }
    let kinds: Vec<Kind> = paths.par_iter().map(|path| kind(path)).collect();
    let mut lengths: HashMap<u64, usize> = HashMap::new();
    let mut packed_count = 0;
    let mut chosen: HashMap<&str, &Path> = HashMap::new();
    let mut same_source: Vec<(&Path, &Path)> = Vec::new();
    for (path, kind) in paths.iter().zip(&kinds) {
        match kind {
            Kind::Other => {}
            Kind::Recording(None) => packed_count += 1,
            Kind::Recording(Some(byte_count)) => *lengths.entry(*byte_count).or_default() += 1,
            Kind::Log(byte_count, blake3) => {
                *lengths.entry(*byte_count).or_default() += 1;
                let first = *chosen.entry(blake3).or_insert(path);
                if first != path {
                    same_source.push((path, first));
                }
            }
        }
    }
    let others_count = packed_count + lengths.values().sum::<usize>();
    let may_have_twin = |(_, kind): (&PathBuf, &Kind)| match kind {
        Kind::Recording(None) => others_count > 1,
        Kind::Recording(Some(byte_count)) => packed_count > 0 || lengths[byte_count] > 1,
        _ => false,
    };
    let hash = |(path, kind): (&PathBuf, &Kind)| {
        let file = may_have_twin((path, kind)).then(|| open_regular(path).ok()).flatten()?;
        // What cannot be read fails later, with its reason.
        source_blake3(&idlewise_lab::unpack::Unpacking::from(unpacking).unpack(path, file).ok()?)
            .ok()
    };
    let hashes: Vec<Option<String>> = paths.par_iter().zip(&kinds).map(hash).collect();
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut left_out: Vec<(&Path, &Path)> = Vec::new();
    for (path, hash) in paths.iter().zip(&hashes) {
        // A path that is given twice was meant so.
        let twin = hash.as_deref().and_then(|hash| {
            let first = *chosen.entry(hash).or_insert(path);
            (first != path).then_some(first)
        });
        match twin {
            Some(twin) => left_out.push((path, twin)),
            None => kept.push(path.clone()),
        }
    }
    say_first(&left_out, "so are", |path, twin| {
        format!("{path} is left out, because {twin} is the same recording")
    });
    say_first(&same_source, "so do", |path, first| {
        format!("{first} and {path} come from the same recording, and both count")
    });
    kept
}

/// Says something of the first pair, and how many more there are.
fn say_first(pairs: &[(&Path, &Path)], so_are: &str, words: impl Fn(String, String) -> String) {
    let Some((path, other)) = pairs.first() else { return };
    let words = words(screen::name(path), screen::name(other));
    match pairs.len() {
        1 => say(format_args!("idlewise: {words}")),
        count => say(format_args!("idlewise: {words}; {so_are} {} more", count - 1)),
    }
}

/// What a file is. Opening a log reads its footer.
fn kind(path: &Path) -> Kind {
    let Ok(file) = open_regular(path) else { return Kind::Other };
    let Ok(first) = first_bytes(path, &file, PARQUET_MAGIC.len()) else { return Kind::Other };
    if first != PARQUET_MAGIC {
        let about = file.metadata().ok().filter(|_| !is_packed(path, &file));
        return Kind::Recording(about.map(|about| about.len()));
    }
    let source = IdleLog::open(path).map(|log| log.metadata.source);
    match source.map(|source| (source.byte_count, source.blake3)) {
        Ok((byte_count, Some(blake3))) => Kind::Log(byte_count, blake3),
        _ => Kind::Other,
    }
}
