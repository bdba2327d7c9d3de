//! Rebuilds the crate when a file is added to machines/: `include_dir!` sees changed files only.

fn main() {
    println!("cargo::rerun-if-changed=machines");
}
