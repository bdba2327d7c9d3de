//! Where files are kept that are written once and read again, such as the cells of a sweep.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`at`]: a folder or a bucket |
//! | `remote.rs` | [`Remote`]: what is behind a URL |

mod remote;

use std::path::Path;

use idlewise_lab::storage::Folder;
pub use idlewise_lab::storage::{Listed, Storage};

pub use remote::{Remote, url_of};

use crate::error::Failure;

/// Names a folder, or what is behind a URL.
///
/// # Errors
/// Fails if the URL is wrong or the environment has no credentials for it. Nobody is asked yet.
pub fn at(place: &Path) -> Result<Box<dyn Storage>, Failure> {
    match url_of(place) {
        None => Ok(Box::new(Folder(place.to_owned()))),
        Some(url) if url.starts_with("http") => Err(Failure::new(format_args!(
            "{url}: cells cannot be kept on a web server; name a bucket (s3://, gs://, az://) or a folder"
        ))),
        Some(url) => Ok(Box::new(Remote::open(url)?)),
    }
}
