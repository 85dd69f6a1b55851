//! Arbitrary messages from a seed, of each version that is written.

pub mod earlier;
pub mod later;
pub mod v10;
pub mod v13;

use bytes::Bytes;
use clock::SplitMix64;

/// The same on every machine.
pub struct Rng(pub SplitMix64);

impl Rng {
    pub fn u64(&mut self) -> u64 {
        self.0.next()
    }

    /// Any number, with a liking for both ends of its width.
    pub fn int(&mut self, bits: u32) -> u128 {
        let ones = u128::MAX >> (128 - bits);
        match self.below(8) {
            0 => 0,
            1 => ones,
            2 => 1,
            _ => (u128::from(self.u64()) << 64 | u128::from(self.u64())) & ones,
        }
    }

    pub fn u8(&mut self) -> u8 {
        self.int(8) as u8
    }

    pub fn u16(&mut self) -> u16 {
        self.int(16) as u16
    }

    pub fn u32(&mut self) -> u32 {
        self.int(32) as u32
    }

    pub fn long(&mut self) -> u64 {
        self.int(64) as u64
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.u64() % n
    }

    pub fn bool(&mut self) -> bool {
        self.below(2) == 1
    }

    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    pub fn list<T>(&mut self, max: u64, mut one: impl FnMut(&mut Rng) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| one(self)).collect()
    }

    pub fn bytes(&mut self, max: u64) -> Bytes {
        self.list(max, |g| g.u64() as u8).into()
    }

    /// Bytes whose number is a multiple of 8.
    pub fn aligned_bytes(&mut self, max: u64) -> Bytes {
        let words = self.list(max / 8, Rng::u64);
        words.into_iter().flat_map(u64::to_be_bytes).collect()
    }

    pub fn option<T>(&mut self, one: impl FnOnce(&mut Rng) -> T) -> Option<T> {
        self.bool().then(|| one(self))
    }

    /// A text of 1 to `max` letters.
    pub fn text(&mut self, max: u64) -> Bytes {
        let mut text = self.list(max - 1, |g| b'a' + g.below(26) as u8);
        text.push(b'z');
        text.into()
    }
}
