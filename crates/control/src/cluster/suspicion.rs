//! Which peers are heard, and which are suspected by more than this member.

use super::term::{MemberId, Rank, ShardId};

/// A message between two members. All are small; at most a few dozen a second and peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// "I am alive", each 100 ms.
    Heartbeat(Heartbeat),
    /// "Do you hear `about`?"
    Question { number: u32, about: MemberId },
    /// The answer to the question with this number.
    Answer { number: u32, is_heard: bool },
}

/// The state of the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Whether it can serve switches.
    pub is_ready: bool,
    pub epoch: u16,
    /// The shards whose place in use is not the first, by number; at most 256.
    pub in_use: Vec<InUse>,
}

/// The place of an order that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    pub shard: ShardId,
    /// The revision of the order.
    pub revision: u64,
    /// 1 to 15.
    pub rank: Rank,
}
