//! Compiled governors, kept from one run to the next.
//!
//! Files in the cache are loaded as code. So only the user and root may be able to write to the folder or
//! to the folders above it. Without such a folder nothing is kept. Each file ends with a hash of its name
//! and content. A file that was damaged or moved is not used, but compiled again.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Returns where compiled governors are kept: `idlewise/governors` in the user's cache folder, or `None` if
/// the environment names no such folder. A home that does not exist is not made: a system user's often must not.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_home = || Some(absolute("HOME").filter(|home| home.is_dir())?.join(".cache"));
    let base = absolute("XDG_CACHE_HOME").or_else(of_home);
    Some(base?.join("idlewise/governors"))
}

/// A folder that only the user can write to.
pub(crate) struct Cache {
    folder: PathBuf,
}

const HASH_BYTE_COUNT: usize = blake3::OUT_LEN;
/// A library must be smaller than this.
pub(crate) const LIBRARY_BYTE_COUNT_MAX: u64 = 64 << 20;

impl Cache {
    /// Creates the folder if necessary. Returns `None` if it isn't safe.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        // Links are resolved once, here. The resulting path contains none.
        let folder = folder.canonicalize().ok()?;
        let user = rustix::process::geteuid().as_raw();
        let is_safe = |(depth, part): (usize, &Path)| {
            let Ok(metadata) = fs::symlink_metadata(part) else { return false };
            let is_ours = metadata.uid() == user;
            let is_others = metadata.mode() & 0o022 != 0;
            // In a sticky folder such as /tmp, others can't touch the user's files.
            let is_sticky = metadata.mode() & 0o1000 != 0;
            match depth {
                0 => is_ours && !is_others,
                _ => (is_ours || metadata.uid() == 0) && (!is_others || is_sticky),
            }
        };
        folder.ancestors().enumerate().all(is_safe).then_some(Cache { folder })
    }

    /// Returns what was stored under this key, if it is intact.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(key)).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(LIBRARY_BYTE_COUNT_MAX).read_to_end(&mut bytes).ok()?;
        let (content, hash) = bytes.split_last_chunk::<HASH_BYTE_COUNT>()?;
        let is_whole = blake3::Hash::from_bytes(*hash) == sum(key, content);
        bytes.truncate(bytes.len() - HASH_BYTE_COUNT);
        is_whole.then_some(bytes)
    }

    /// Stores content under a key, completely or not at all.
    pub(crate) fn put(&self, key: &str, content: &[u8]) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        let to: &mut File = file.as_file_mut();
        to.write_all(content)?;
        to.write_all(sum(key, content).as_bytes())?;
        file.persist(self.path(key))?;
        Ok(())
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.so"))
    }
}

fn sum(key: &str, content: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(key.as_bytes()).update(&[0]).update(content).finalize()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn gives_back_what_was_put_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let cache = Cache::open(&top.path().join("a/b")).expect("a folder of ours");
        assert_eq!(cache.get("key"), None);
        cache.put("key", b"content").unwrap();
        assert_eq!(cache.get("key").as_deref(), Some(&b"content"[..]));

        let path = cache.path("key");
        fs::copy(&path, cache.path("other")).unwrap();
        assert_eq!(cache.get("other"), None, "another's content");
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(cache.get("key"), None, "a damaged one");
        fs::write(&path, b"short").unwrap();
        assert_eq!(cache.get("key"), None, "a short one");
        cache.put("key", b"content").unwrap();
        fs::rename(&path, cache.path("target")).unwrap();
        symlink(cache.path("target"), &path).unwrap();
        assert_eq!(cache.get("key"), None, "a link");
        cache.put("key", b"content").unwrap();
        assert_eq!(cache.get("key").as_deref(), Some(&b"content"[..]), "made again");
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_none() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("a/b");
        assert!(Cache::open(&folder).is_some());
        let above = top.path().join("a");
        for (path, mode, is_safe) in [
            (&folder, 0o777, false),
            (&folder, 0o720, false),
            (&folder, 0o1777, false),
            (&folder, 0o755, true),
            (&above, 0o702, false),
            (&above, 0o770, false),
            (&above, 0o1777, true),
        ] {
            let before = fs::metadata(path).unwrap().mode();
            set_mode(path, mode);
            assert_eq!(Cache::open(&folder).is_some(), is_safe, "{} {mode:o}", path.display());
            set_mode(path, before & 0o7777);
        }
        fs::write(top.path().join("file"), "").unwrap();
        assert!(Cache::open(&top.path().join("file/b")).is_none());
    }
}
