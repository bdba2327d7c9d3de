//! The compression of version 7. Each section or chunk is compressed separately and is preceded by
//! its compressed and uncompressed sizes.

use zstd_safe::DCtx;

/// The algorithm that the file names in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Zstd,
    Zlib,
}

impl Algorithm {
    /// Returns `None` for an unknown name.
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            b"zstd" => Some(Self::Zstd),
            b"zlib" => Some(Self::Zlib),
            _ => None,
        }
    }
}

/// Decompresses chunks of all CPUs. A context for each CPU would take more memory than the chunks.
pub(super) struct Unpacker {
    algorithm: Algorithm,
    context: Option<DCtx<'static>>,
}

impl Unpacker {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, context: None }
    }

    /// Decompresses into `plain`, which must then have `byte_count` bytes, a number that the caller
    /// has checked. Returns `None` if the size differs or the data is broken.
    pub(super) fn unpack(
        &mut self,
        packed: &[u8],
        byte_count: usize,
        plain: &mut Vec<u8>,
    ) -> Option<()> {
        plain.clear();
        let unpacked_byte_count = match self.algorithm {
            Algorithm::Zlib => {
                plain.resize(byte_count, 0);
                let (has_header, ignores_checksum) = (true, false);
                let packed = std::iter::once(packed);
                miniz_oxide::inflate::decompress_slice_iter_to_slice(
                    plain,
                    packed,
                    has_header,
                    ignores_checksum,
                )
                .ok()?
            }
            Algorithm::Zstd => {
                let context = match &mut self.context {
                    Some(context) => context,
                    None => self.context.insert(DCtx::try_create()?),
                };
                plain.reserve_exact(byte_count);
                context.decompress(plain, packed).ok()?
            }
        };
        (unpacked_byte_count == byte_count).then_some(())
    }
}
