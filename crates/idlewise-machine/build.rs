//! Rebuilds the crate when a file is added to machines/: `include_dir!` only notices changed files.

fn main() {
    println!("cargo::rerun-if-changed=machines");
}
