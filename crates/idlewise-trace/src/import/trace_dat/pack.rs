//! The compression of version 7. Sections and chunks are packed one by one, each with its packed
//! and unpacked size in front.

use zstd_safe::DCtx;

/// What the file names in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Zstd,
    Zlib,
}

impl Algorithm {
    /// `None` for a name that we don't know.
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        match name {
            b"zstd" => Some(Self::Zstd),
            b"zlib" => Some(Self::Zlib),
            _ => None,
        }
    }
}

/// Unpacks chunk after chunk, of all CPUs: a context for each would take more than the chunks.
pub(super) struct Unpacker {
    algorithm: Algorithm,
    context: Option<DCtx<'static>>,
}

impl Unpacker {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, context: None }
    }

    /// Unpacks into `plain`, which is to have `byte_count` bytes then; the caller has bounded that
    /// number. `None` if there are fewer or more, or the packed bytes are broken.
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
