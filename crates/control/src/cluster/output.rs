//! The results of a member: messages, switches to serve, events and counts.

use std::collections::BTreeMap;
use std::fmt;

use openflow::DatapathId;
use openflow::message::RoleMessage;

use super::store::{HighWater, Member, StoreRequest};
use super::suspicion::PeerMessage;
use super::term::{Generation, MemberId, Rank, ShardId};
use crate::ConnectionId;

/// A result of [`super::Cluster::poll_output`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOutput {
    /// Send a request to the store. Only one is outstanding at a time; pass the answer with the
    /// same number to [`super::Cluster::handle_store_answer`]. The machine gives up after 300 ms
    /// and ignores later answers.
    Store { number: u32, request: StoreRequest },
    /// Send a message to a member by its bell; drop it if there is no connection.
    Peer { to: MemberId, message: PeerMessage },
    /// Send OFPT_ROLE_REQUEST. Pass the answer with the same number to
    /// [`super::Cluster::handle_role_reply`] or [`super::Cluster::handle_role_refused`].
    Role {
        dpid: DatapathId,
        connection: ConnectionId,
        number: u32,
        request: RoleMessage,
    },
    /// This member is the switch's master: the application serves the switch from now on.
    Serve {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// Another member is the switch's master, or will be: the application stops at once and drops
    /// messages that wait for the switch. Not output for a switch that has gone down.
    Yield {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// Write this to the state directory, in place of the earlier mark. Output at most once a
    /// second, except for new terms.
    HighWater(HighWater),
    /// The members in the store other than this one: keep a bell to each. Keep a connection to any
    /// other peer as long as it lasts: the store may have lost its data.
    Members(BTreeMap<MemberId, Member>),
    /// Close the connection: the switch does not support roles, and another member serves its
    /// shard.
    Close {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// Something for the log.
    Event(ClusterEvent),
}

/// An event that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A member is silent, or its connection was reset.
    Suspected(MemberId),
    /// Other members do not hear the suspected member either.
    Confirmed(MemberId),
    /// A suspected member is heard again.
    Heard(MemberId),
    /// This member and the peers that it hears are no majority of the members: it is not ready,
    /// unless it serves. Write this into its entry.
    Deaf {
        hears: Vec<MemberId>,
        /// The number of the other members.
        members: usize,
    },
    /// It hears a majority again.
    HearsAgain,
    /// This member serves a shard that `from` served before.
    TookOver {
        shard: ShardId,
        from: MemberId,
        rank: Rank,
    },
    /// This member serves a shard by its order.
    Holds { shard: ShardId },
    /// This member has stopped serving a shard; `to` serves it now, if that is known.
    Yielded {
        shard: ShardId,
        to: Option<MemberId>,
    },
    /// This member has written an order.
    Assigned { shard: ShardId, owner: MemberId },
    /// The store has an earlier state or is another store: its data was restored. The epoch is
    /// raised before anything else is written.
    Restored { from: HighWater, cluster_id: u64 },
    /// A switch of this member has seen a generation that the cluster did not assign: another
    /// controller is active, or the store was restored.
    Foreign {
        dpid: DatapathId,
        generation: Generation,
    },
    /// A generation is too great to exceed, or was exceeded too often: the switch is not served
    /// until it reconnects.
    Exhausted {
        dpid: DatapathId,
        generation: Generation,
    },
    /// The epoch has changed.
    Epoch(u16),
    /// The schema of the store's documents has changed. If this member does not read the new
    /// schema, it serves nothing: write that it is not ready.
    Schema { in_use: u32, reads: u32 },
    /// The store does not answer. Take-overs continue; nothing is assigned.
    StoreLost { why: String },
    /// The store answers again.
    StoreBack,
    /// The store has no room: it accepts no order and no API request. Take-overs continue.
    StoreFull,
    /// The store has room again.
    StoreRoom,
}

/// The current standing of this member, for monitoring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Serves,
    /// Another member serves, and this one has a place to take over from it.
    StandsBy {
        serves: MemberId,
    },
    /// No switch is connected yet.
    NoSwitch,
    /// This member has never read the store: it serves nothing until then.
    Unread {
        why: String,
    },
    /// The store's documents have a schema that this member does not read.
    TooOld,
    Deaf,
    /// The application has reported that it is not ready.
    NotReady,
    /// No order contains this member.
    NoPlace,
    NobodyServes,
}

impl Standing {
    /// Whether this member serves, or could take over.
    pub fn is_able(&self) -> bool {
        matches!(
            self,
            Standing::Serves | Standing::StandsBy { .. } | Standing::NoSwitch
        )
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Standing::Serves => "serves the switches",
            Standing::StandsBy { serves } => return write!(f, "stands by for {serves}"),
            Standing::NoSwitch => "no switch is connected",
            Standing::Unread { why } => return write!(f, "has not read etcd: {why}"),
            Standing::TooOld => "the cluster has a schema that this version does not read",
            Standing::Deaf => "hears too few of the other members: can they dial its address?",
            Standing::NotReady => {
                "serves nothing: it is drained, ends, or has not read what the API was asked for"
            }
            Standing::NoPlace => "has no place in the order of the members",
            Standing::NobodyServes => "nobody serves the switches",
        })
    }
}

/// Counters since the start, and the state now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounts {
    /// Suspicions of peers.
    pub suspicions: u64,
    /// Shards taken over from suspected members.
    pub takeovers: u64,
    /// Shards yielded to others.
    pub yields: u64,
    /// Role requests that a switch refused as stale.
    pub stale: u64,
    /// Other messages that a switch refused because another member is its master.
    pub refused: u64,
    /// Reports of foreign generations.
    pub foreign: u64,
    /// Epochs raised by this member.
    pub epochs_raised: u64,
    /// Requests to the store.
    pub store_requests: u64,
    /// Requests to the store without an answer in time.
    pub store_timeouts: u64,
    /// Full reads that found a change which the watch had not reported.
    pub watch_repaired: u64,
    /// Role requests sent.
    pub role_requests: u64,
    /// Role requests without an answer in time.
    pub role_timeouts: u64,
    /// Messages to peers.
    pub peer_messages: u64,
    /// Ignored messages from peers: unknown or too many members, numbers out of range.
    pub peer_messages_refused: u64,
}

/// The state of one shard, for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStatus {
    pub shard: ShardId,
    /// The member in charge, as far as this one knows.
    pub holder: Option<MemberId>,
    /// The generation in use.
    pub generation: Generation,
    /// Whether this member serves it.
    pub is_held: bool,
}
