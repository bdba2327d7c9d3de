//! What is behind a URL, in a command without the feature `buckets`: nothing can be opened, so nothing else is ever called.

use std::fs::File;

use super::{Listed, Storage};
use crate::error::{Failure, Result};

/// An object or a folder behind a URL. There are none.
#[derive(Clone)]
pub enum Remote {}

type Outcome<T> = Result<T>;

impl Remote {
    pub fn open(url: &str) -> Outcome<Self> {
        Err(Failure::new(format_args!(
            "{url}: this idlewise was built without buckets and web servers; use the one of the Python package, or build it with `--features buckets`"
        )))
    }

    pub fn url(&self) -> &str {
        match *self {}
    }

    pub fn url_below(&self, _: &str) -> String {
        match *self {}
    }

    pub fn walk(&self) -> Outcome<Vec<Listed>> {
        match *self {}
    }

    pub fn version(&self) -> Outcome<Option<String>> {
        match *self {}
    }

    pub fn download(&self, _: &mut File) -> Outcome<Option<String>> {
        match *self {}
    }
}

impl Storage for Remote {
    fn create(&self, _: &str) -> Outcome<()> {
        match *self {}
    }

    fn list(&self, _: &str) -> Outcome<Vec<Listed>> {
        match *self {}
    }

    fn folders(&self, _: &str) -> Outcome<Vec<String>> {
        match *self {}
    }

    fn read(&self, _: &[String], _: u64) -> Outcome<Vec<Option<Vec<u8>>>> {
        match *self {}
    }

    fn write(&self, _: Vec<(String, Vec<u8>)>) -> Outcome<()> {
        match *self {}
    }

    fn remove(&self, _: &[String]) -> Outcome<()> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_to_get_buckets() {
        for url in ["s3://bucket/cells", "gs://bucket/cells"] {
            let Failure::Message(message) = Remote::open(url).err().unwrap() else {
                panic!("a message")
            };
            assert!(message.starts_with(&format!("{url}: ")), "{message}");
            assert!(message.contains("built without buckets"), "{message}");
            assert!(message.contains("--features buckets"), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}
