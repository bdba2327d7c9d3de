//! Where files are kept that are written once and read again, such as the cells of a sweep.
//!
//! | file | holds |
//! | --- | --- |
//! | `mod.rs` | [`at`]: a folder or a bucket |
//! | `remote.rs` | [`Remote`]: what is behind a URL, if the feature `buckets` is on |
//! | `no_remote.rs` | its stand-in otherwise, which says how to get one |

#[cfg(all(test, feature = "buckets"))]
#[allow(dead_code, reason = "only its message is tested")]
mod no_remote;
#[cfg(feature = "buckets")]
mod remote;
#[cfg(not(feature = "buckets"))]
#[path = "no_remote.rs"]
mod remote;

use std::fs::File;
use std::io::Seek;
use std::path::Path;

use idlewise_lab::storage::Folder;
pub use idlewise_lab::storage::{Listed, Storage};

pub use remote::Remote;

use crate::error::{Failure, Result};
use crate::unpack::unnamed_file;

/// Returns the path's text if it is a URL, of whatever scheme.
pub fn url_of(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_scheme.then_some(text)
}

/// What is behind a URL, in a file without a name, at its beginning; and the version that was read, if the server says it.
///
/// # Errors
/// Fails if it cannot be read.
pub fn fetch(remote: &Remote) -> Result<(File, Option<String>)> {
    let mut file = unnamed_file()?;
    let version = remote.download(&mut file)?;
    let fail = |error| Failure::new(format_args!("cannot read {}: {error}", remote.url()));
    file.rewind().map_err(fail)?;
    Ok((file, version))
}

/// Names a folder, or what is behind a URL.
///
/// # Errors
/// Fails if the URL is wrong or the environment has no credentials for it. Nobody is asked yet.
pub fn at(place: &Path) -> Result<Box<dyn Storage>> {
    const BEGINNINGS: [&str; 5] = ["s3:", "gs:", "az:", "http:", "https:"];
    match url_of(place) {
        // It may hold a password, which must not become the name of a folder.
        None if BEGINNINGS
            .iter()
            .any(|begin| place.to_string_lossy().trim_start().starts_with(begin)) =>
        {
            Err(Failure::new(format_args!(
                "{}: neither a URL nor a folder; a bucket's begins with s3://, gs:// or az://",
                place.display()
            )))
        }
        None => Ok(Box::new(Folder(place.to_owned()))),
        Some(url) if url.starts_with("http") => Err(Failure::new(format_args!(
            "{url}: cells cannot be kept on a web server; name a bucket (s3://, gs://, az://) or a folder"
        ))),
        Some(url) => Ok(Box::new(Remote::open(url)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_url_is_no_folder() {
        for place in [" s3://me:secret@host/cells", "s3:/me:secret@host/cells", "\tgs:cells"] {
            let failure = at(Path::new(place)).err().unwrap_or_else(|| panic!("{place}")).text();
            assert!(failure.contains("neither a URL nor a folder"), "{failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn urls_are_told_from_files() {
        assert_eq!(url_of(Path::new("s3://bucket/x")), Some("s3://bucket/x"));
        assert_eq!(url_of(Path::new("./a://b")), None);
        assert_eq!(url_of(Path::new("a/b")), None);
    }
}
