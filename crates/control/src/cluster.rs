//! One member of a cluster of controllers: which switches it serves, and when it takes over those
//! of another.
//!
//! A key-value store (etcd) says who is a member and who owns each shard of switches, as an
//! [`Order`] of owners. The store's revision of that order is the owner's term. The switches
//! enforce it: [`Generation`] puts term and place in the order into `generation_id`, and a switch
//! refuses an older one. Members hear each other directly, ten times a second. Who has the next
//! place takes over as soon as the owner is suspected, also while the store is away, and writes
//! the new order once the store allows it.
//!
//! [`Cluster`] is the machine: it takes the time, answers of the store, messages of peers and
//! answers of switches. It returns messages, and the switches to serve. The driving contract is
//! that of the crate: call one `handle_*` or `set_ready`, drain [`Cluster::poll_output`], then
//! wait for input or for [`Cluster::poll_timeout`].
//!
//! Three rules keep members from fighting. A place is used once for each revision. A place is used
//! only when its predecessor is suspected, and others confirm it ([`suspicion`]). A member that
//! took over while this one did not hear it counts as alive until it is heard again or its entry
//! in the store has expired.
//!
//! A member that stands by asks for SLAVE with the generation *in use*, not with one of its own
//! place: a switch notes the generation of a SLAVE request too, and would then refuse the owner.
//!
//! The assigner writes orders for shards whose owner is to leave or is gone for good. It is the
//! least member, by name, that is ready and heard. Two members may both believe to be it for a
//! while. Each write compares the revision that it replaces, so only one of them succeeds, and no
//! key for an election is needed. Nothing is moved for balance.

mod assign;
mod roles;
mod store;
mod suspicion;
mod term;

use std::collections::{BTreeMap, VecDeque};

use clock::{Duration, Instant};
use openflow::DatapathId;
use openflow::message::RoleMessage;

use crate::ConnectionId;

pub use roles::RoleRefusal;
pub use store::{
    Changed, HighWater, Member, Own, Snapshot, StoreAnswer, StoreChange, StoreRequest,
};
pub use suspicion::{Heartbeat, InUse, PeerMessage};
pub use term::{
    EPOCH_MAX, Generation, MEMBERS_MAX, MemberId, NAME_BYTES_MAX, Order, PLACES, Rank, SHARDS_MAX,
    ShardId,
};

/// The settings of a member.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// This member.
    pub id: MemberId,
    /// The number of shards, 1 to 256; equal in all members.
    pub shards: u16,
    /// Seed of the spread of retries; different in each process.
    pub seed: u64,
}

/// A result of [`Cluster::poll_output`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterOutput {
    /// Send a request to the store. One is under way at a time; the answer goes to
    /// [`Cluster::handle_store_answer`] with the same number. The machine gives up after 300 ms and
    /// passes over later answers.
    Store { number: u32, request: StoreRequest },
    /// Send a message to a member by its bell; drop it if there is no connection.
    Peer { to: MemberId, message: PeerMessage },
    /// Send OFPT_ROLE_REQUEST. Pass the answer with the same number to
    /// [`Cluster::handle_role_reply`] or [`Cluster::handle_role_refused`].
    Role {
        dpid: DatapathId,
        connection: ConnectionId,
        number: u32,
        request: RoleMessage,
    },
    /// This member is the switch's master: the application serves it from now on.
    Serve {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// Another member is the switch's master, or will be: the application stops at once and drops
    /// what waits for the switch. Not output for a switch that has gone down.
    Yield {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// Write this to the state directory, in place of the earlier one; at most once a second but
    /// for new terms.
    HighWater(HighWater),
    /// The members of the store other than this one: keep a bell to each, and to no other.
    Members(BTreeMap<MemberId, Member>),
    /// Something for the log.
    Event(ClusterEvent),
}

/// Something that an operator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A member is silent, or its connection was reset.
    Suspected(MemberId),
    /// Others do not hear it either.
    Confirmed(MemberId),
    /// A suspected member is heard again.
    Heard(MemberId),
    /// This member serves a shard that `from` served before.
    TookOver {
        shard: ShardId,
        from: MemberId,
        rank: Rank,
    },
    /// This member serves a shard by its order.
    Holds { shard: ShardId },
    /// This member has stopped to serve a shard; `to` has it now, if that is known.
    Yielded {
        shard: ShardId,
        to: Option<MemberId>,
    },
    /// This member has written an order.
    Assigned { shard: ShardId, owner: MemberId },
    /// The store has gone back in time or is another one: its data was restored. The epoch is
    /// raised before anything else is written.
    Restored { from: HighWater, cluster_id: u64 },
    /// A switch of this member's has seen a generation that the cluster did not give: another
    /// controller is there, or the store was restored.
    Foreign {
        dpid: DatapathId,
        generation: Generation,
    },
    /// A foreign generation is too great to exceed: the switch is not served.
    Exhausted {
        dpid: DatapathId,
        generation: Generation,
    },
    /// The epoch is another one.
    Epoch(u16),
    /// The store does not answer. Take-overs go on; nothing is assigned.
    StoreLost,
    /// The store answers again.
    StoreBack,
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
    /// Messages of peers that were passed over: unknown or too many members, numbers out of range.
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

/// One member of a cluster.
#[derive(Debug)]
pub struct Cluster {
    config: ClusterConfig,
    outputs: VecDeque<ClusterOutput>,
    counts: ClusterCounts,
}

impl Cluster {
    /// A member that has just started and is not ready. `high_water` is what an earlier process of
    /// this member wrote last.
    pub fn new(now: Instant, config: ClusterConfig, high_water: Option<HighWater>) -> Cluster {
        let _ = (now, high_water);
        Cluster {
            config,
            outputs: VecDeque::new(),
            counts: ClusterCounts::default(),
        }
    }

    /// Sets whether this member can serve switches. A member that serves and is no longer ready
    /// goes on until others have taken its shards: see [`Cluster::holds_nothing`]. Write the same
    /// into the member's entry in the store.
    pub fn set_ready(&mut self, now: Instant, is_ready: bool) {
        let _ = (now, is_ready);
    }

    /// The application has taken its own tick. Call this at least each 50 ms from the thread that
    /// serves switches: without it for 100 ms, no heartbeat leaves, so a stalled controller does
    /// not keep its place.
    pub fn handle_application_tick(&mut self, now: Instant) {
        let _ = now;
    }

    /// An answer of the store to the request with this number.
    pub fn handle_store_answer(&mut self, now: Instant, number: u32, answer: StoreAnswer) {
        let _ = (now, number, answer);
    }

    /// A change that the watch reports: one call for each event, in order. The watch runs from the
    /// revision after that of the last [`Snapshot`]; each snapshot ends the watch before it.
    pub fn handle_store_change(&mut self, now: Instant, change: StoreChange) {
        let _ = (now, change);
    }

    /// The watch has ended: compacted, closed, or its connection is gone. The machine reads
    /// everything anew. Do not resume a watch in place of calling this.
    pub fn handle_watch_lost(&mut self, now: Instant) {
        let _ = now;
    }

    /// A message of a peer, whose certificate or key has proven its name.
    pub fn handle_peer_message(&mut self, now: Instant, from: &MemberId, message: PeerMessage) {
        let _ = (now, from, message);
    }

    /// The connection to a peer was closed or reset by it. Do not call this for a connection that
    /// could not be opened, nor if another to the same peer is there.
    pub fn handle_peer_reset(&mut self, now: Instant, peer: &MemberId) {
        let _ = (now, peer);
    }

    /// A switch has completed its handshake, without a role request. A connection before is gone.
    /// `shard` is [`ShardId::of`] or the operator's zone.
    pub fn handle_switch_up(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        shard: ShardId,
    ) {
        let _ = (now, dpid, connection, shard);
    }

    /// A switch's connection is gone.
    pub fn handle_switch_down(&mut self, now: Instant, dpid: DatapathId, connection: ConnectionId) {
        let _ = (now, dpid, connection);
    }

    /// OFPT_ROLE_REPLY to the request with this number.
    pub fn handle_role_reply(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        number: u32,
        reply: RoleMessage,
    ) {
        let _ = (now, dpid, connection, number, reply);
    }

    /// An error in answer to the role request with this number, or IS_SLAVE to any other message.
    pub fn handle_role_refused(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        refusal: RoleRefusal,
    ) {
        let _ = (now, dpid, connection, refusal);
    }

    /// OFPT_ROLE_STATUS, or its ONF extension 1911 of OpenFlow 1.3.
    pub fn handle_role_status(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        connection: ConnectionId,
        status: RoleMessage,
    ) {
        let _ = (now, dpid, connection, status);
    }

    /// Handles what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next output, until `None`.
    pub fn poll_output(&mut self) -> Option<ClusterOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`Cluster::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Whether this member serves a switch.
    pub fn serves(&self, dpid: DatapathId) -> bool {
        let _ = dpid;
        false
    }

    /// Whether this member serves no shard and no switch: one that leaves may exit.
    pub fn holds_nothing(&self) -> bool {
        true
    }

    /// All shards that have an order, by number.
    pub fn shards(&self) -> Vec<ShardStatus> {
        Vec::new()
    }

    /// The peers and whether each is heard now, by name.
    pub fn peers(&self) -> Vec<(MemberId, bool)> {
        Vec::new()
    }

    /// The settings.
    pub fn config(&self) -> &ClusterConfig {
        &self.config
    }

    /// The counters.
    pub fn counts(&self) -> &ClusterCounts {
        &self.counts
    }
}
