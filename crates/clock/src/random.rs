//! Sebastiano Vigna's SplitMix64: small, seedable with anything, and never for secrets.

/// Numbers from a seed, the same on every machine.
///
/// ```
/// let mut random = clock::SplitMix64::new(0);
/// assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Makes a generator. Equal seeds give equal numbers.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next 64 random bits.
    #[expect(clippy::should_implement_trait)] // It never ends, and nobody wants to iterate.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number in [0, 1), all equally likely.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Makes another generator, different for each `number`. This one does not advance.
    pub fn fork(&self, number: u32) -> SplitMix64 {
        let mut random = SplitMix64(self.0 ^ u64::from(number) << 24);
        SplitMix64(random.next())
    }
}

/// The last step of SplitMix64: every bit of the result depends on every bit of `x`.
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
