//! Which program this is: version and commit.

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, with `-dirty` if the sources were changed; unknown outside a repository.
pub const COMMIT: Option<&str> = option_env!("IDLEWISE_COMMIT");

/// Returns a version with its commit, if that is known: `0.1.0 (1a2b3c4d5e6f)`.
pub fn described(version: &str, commit: Option<&str>) -> String {
    match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}
