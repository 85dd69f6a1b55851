//! The store as this member knows it: read whole, then watched.
//!
//! Keys, below the cluster's prefix: `own/<shard>` ([`Order`]), `members/<id>` ([`Member`], on a
//! lease of the member) and `epoch` (a number). Documents are values here; their text is for the
//! I/O.

use std::collections::BTreeMap;

use super::term::{MemberId, Order, ShardId};

/// A request to the store. Both writes are one transaction each: compare, then put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// Read the whole prefix at one revision, linearizable. Answer [`StoreAnswer::Read`], and watch
    /// from the revision after it.
    Read,
    /// Put `own/<shard>` if its `mod_revision` is `expected`, or if it is absent for `None`.
    PutOwn {
        shard: ShardId,
        order: Order,
        expected: Option<u64>,
    },
    /// Put `epoch` if its `mod_revision` is `expected`, or if it is absent for `None`.
    PutEpoch { epoch: u16, expected: Option<u64> },
}

/// The store's answer. `cluster_id` and `revision` are from the header of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAnswer {
    /// Everything, for [`StoreRequest::Read`].
    Read(Snapshot),
    /// The transaction has put the key: `revision` is its `mod_revision` now.
    Written { cluster_id: u64, revision: u64 },
    /// The comparison failed, and nothing was put.
    Conflict { cluster_id: u64, revision: u64 },
    /// No answer, or an error. Whether a write was done is unknown.
    Unreachable,
}

/// The whole prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Of the header.
    pub cluster_id: u64,
    /// Of the header of the first page.
    pub revision: u64,
    pub own: BTreeMap<ShardId, Own>,
    pub members: BTreeMap<MemberId, Member>,
    /// The key `epoch` and its `mod_revision`, if it is there.
    pub epoch: Option<(u16, u64)>,
}

/// `own/<shard>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Empty if the document cannot be read.
    pub order: Order,
    /// The key's `mod_revision`: the shard's term.
    pub revision: u64,
}

/// `members/<id>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Where its bell listens: `host:port`.
    pub address: String,
    /// Whether it can serve switches.
    pub is_ready: bool,
}

/// One event of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreChange {
    /// Of the header.
    pub cluster_id: u64,
    /// The `mod_revision` of the key: when it was put or deleted.
    pub revision: u64,
    pub changed: Changed,
}

/// A key and its new document, `None` once it is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    Own(ShardId, Option<Order>),
    Member(MemberId, Option<Member>),
    Epoch(Option<u16>),
}

/// The latest state of the store that this member has seen. A store that is behind it was restored
/// from a snapshot, or is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    pub cluster_id: u64,
    pub revision: u64,
    pub epoch: u16,
}
