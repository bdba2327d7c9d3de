//! Hashes of inputs.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The SHA-256 of what was added so far.
#[derive(Clone, Debug, Default)]
pub struct Sha256Sum(Sha256);

impl Sha256Sum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the sum in hex, as sha256sum prints it.
    pub fn hex(self) -> String {
        self.0.finalize().iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_that_of_sha256sum() {
        let mut sum = Sha256Sum::default();
        sum.add(b"ab");
        sum.add(b"c");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum.hex(), abc);
    }
}
