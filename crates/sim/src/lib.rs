//! A network under virtual time: model switches, hosts, links, and the real controller.
//!
//! [`network::Network`] runs `control`'s sessions, inbox and controller over encoded frames against
//! switches made of `openflow::table`. Nothing waits and nothing is random but by the seed: the
//! same calls give the same trace, on any machine. [`link`] is one impaired link by itself, for the
//! lab.

pub mod cache;
pub mod channel;
pub mod host;
pub mod link;
pub mod network;
pub mod order;
pub mod overhead;
pub mod process;
pub mod table;
pub mod topology;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// A stream of its own for each number.
    pub(crate) fn fork(&self, number: u32) -> Random {
        let mut random = Random(self.0 ^ u64::from(number) << 24);
        Random(random.next())
    }
}
