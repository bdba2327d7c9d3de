//! `--max-unpacked`: the option of every command that reads recordings.

pub use idlewise_lab::unpack::{byte_count, first_bytes, free_byte_count, is_packed, unnamed_file};

/// How packed recordings are unpacked.
#[derive(Clone, Copy, Default, clap::Args)]
pub struct Unpacking {
    /// Unpack a .xz, .gz or .zst recording to at most SIZE bytes, such as 4G [default: 2000 times the
    /// file's size]; never to more than nine tenths of the free space in TMPDIR
    #[arg(long, hide_short_help = true, value_name = "SIZE", value_parser = byte_count)]
    max_unpacked: Option<u64>,
}

impl From<Unpacking> for idlewise_lab::unpack::Unpacking {
    fn from(asked: Unpacking) -> Self {
        Self::at_most(asked.max_unpacked)
    }
}
