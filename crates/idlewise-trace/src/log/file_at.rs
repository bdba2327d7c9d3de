//! A file that several threads read at places of their own.
//!
//! The Parquet crate reads a [`File`] by seeking in a duplicate of its descriptor. Duplicates share
//! one position, so two threads would move it under each other. Here every read says its place.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

/// Sequential readers are made for page headers only, which are shorter than this.
const HEADER_BYTE_COUNT: usize = 256;

/// An open file of known length.
#[derive(Clone)]
pub(super) struct SharedFile {
    pub(super) file: Arc<File>,
    pub(super) byte_count: u64,
}

/// Reads on from a place.
pub(super) struct FileAt {
    file: Arc<File>,
    at_byte: u64,
}

impl Read for FileAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let byte_count = self.file.read_at(buffer, self.at_byte)?;
        self.at_byte += byte_count as u64;
        Ok(byte_count)
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.byte_count
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<FileAt>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let reader = FileAt { file: Arc::clone(&self.file), at_byte: start };
        Ok(BufReader::with_capacity(HEADER_BYTE_COUNT, reader))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        // A damaged page header may ask for more than there is.
        if start.checked_add(length as u64).is_none_or(|end| end > self.byte_count) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are past the end")));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}
