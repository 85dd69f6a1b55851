//! FNV-1a, 64 bits: spreads well enough for tables and fingerprints, never against an adversary.

use std::hash::Hasher;

/// A hasher that computes 64-bit FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    /// Returns the hash of `bytes` alone.
    ///
    /// ```
    /// assert_eq!(clock::Fnv1a::of(b"a"), 0xaf63_dc4c_8601_ec8c);
    /// ```
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Fnv1a::default();
        hash.write(bytes);
        hash.finish()
    }
}

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
