//! A model of etcd: a linearizable key-value store with revisions, leases that are checked every
//! half second, watches, compaction, and restoring from a snapshot.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use control::cluster::{
    Changed, Member, MemberId, Move, Order, Own, ShardId, Snapshot, StoreAnswer, StoreChange,
    StoreRequest,
};

/// The time for which a member's entry stays without a keepalive.
pub const LEASE: Duration = Duration::from_secs(3);

/// The store and its data.
#[derive(Clone, Debug)]
pub struct ModelStore {
    /// Whether the store answers.
    pub is_up: bool,
    /// Whether the store has no room (NOSPACE): it refuses requests that need room, and keeps
    /// leases alive.
    pub is_full: bool,
    pub cluster_id: u64,
    pub revision: u64,
    pub own: BTreeMap<ShardId, Own>,
    members: BTreeMap<MemberId, Member>,
    leases: BTreeMap<MemberId, Instant>,
    /// When each entry changed last, and at which revision.
    changed_at: BTreeMap<MemberId, Instant>,
    put_at: BTreeMap<MemberId, u64>,
    moves: BTreeMap<ShardId, Move>,
    /// Members that an operator has drained. They read it with each keepalive.
    pub drained: BTreeSet<MemberId>,
    epoch: Option<(u16, u64)>,
    /// The schema in use and the revision of its key.
    schema: (u32, u64),
    /// Changes that are not yet sent to the watches.
    pub changes: Vec<StoreChange>,
}

impl ModelStore {
    pub fn new(cluster_id: u64) -> ModelStore {
        ModelStore {
            is_up: true,
            is_full: false,
            cluster_id,
            revision: 1,
            own: BTreeMap::new(),
            members: BTreeMap::new(),
            leases: BTreeMap::new(),
            changed_at: BTreeMap::new(),
            put_at: BTreeMap::new(),
            moves: BTreeMap::new(),
            drained: BTreeSet::new(),
            epoch: None,
            schema: (1, 1),
            changes: Vec::new(),
        }
    }

    pub fn members(&self) -> &BTreeMap<MemberId, Member> {
        &self.members
    }

    /// The time at which a member's entry was last put with another value.
    pub fn changed_at(&self, id: &MemberId) -> Instant {
        self.changed_at.get(id).copied().unwrap_or_default()
    }

    pub fn epoch(&self) -> u16 {
        self.epoch.map_or(0, |(epoch, _)| epoch)
    }

    /// The schema in use.
    pub fn schema(&self) -> u32 {
        self.schema.0
    }

    fn change(&mut self, changed: Changed) -> u64 {
        self.revision += 1;
        self.changes.push(StoreChange {
            cluster_id: self.cluster_id,
            revision: self.revision,
            changed,
        });
        self.revision
    }

    /// Puts a key of another user of the store: only the revision grows.
    pub fn put_other(&mut self) {
        self.revision += 1;
    }

    /// Asks for another owner of a shard.
    pub fn ask_move(&mut self, shard: ShardId, to: &MemberId) {
        if let Some(own) = self.own.get(&shard) {
            let asked = Move {
                to: to.clone(),
                revision: own.revision,
            };
            self.moves.insert(shard, asked.clone());
            self.change(Changed::Move(shard, Some(asked)));
        }
    }

    /// Whether an operator wants a shard's present order to be replaced by an order of this member.
    pub fn is_asked_for(&self, shard: ShardId, to: &MemberId) -> bool {
        let (asked, own) = (self.moves.get(&shard), self.own.get(&shard));
        let is_asked =
            |(asked, own): (&Move, &Own)| asked.to == *to && asked.revision == own.revision;
        asked.zip(own).is_some_and(is_asked)
    }

    /// Keeps a member's entry alive, and puts it if it is missing or has changed.
    pub fn register(&mut self, now: Instant, id: &MemberId, member: Member) {
        let is_known = self.leases.contains_key(id);
        if is_known || !self.is_full {
            self.leases.insert(id.clone(), now + LEASE);
        }
        if !self.is_full && self.members.get(id) != Some(&member) {
            self.members.insert(id.clone(), member.clone());
            self.changed_at.insert(id.clone(), now);
            let revision = self.change(Changed::Member(id.clone(), Some(member)));
            self.put_at.insert(id.clone(), revision);
        }
    }

    /// Ends a member's lease.
    pub fn revoke(&mut self, id: &MemberId) {
        self.leases.remove(id);
        if self.members.remove(id).is_some() {
            self.change(Changed::Member(id.clone(), None));
        }
    }

    /// Ends the leases that have expired.
    pub fn expire(&mut self, now: Instant) {
        let expired = self.leases.iter().filter(|(_, until)| **until <= now);
        let expired: Vec<_> = expired.map(|(id, _)| id.clone()).collect();
        for id in expired {
            self.revoke(&id);
        }
    }

    /// Gives every lease its whole time again, as a new leader does.
    pub fn extend_leases(&mut self, now: Instant) {
        for until in self.leases.values_mut() {
            *until = now + LEASE;
        }
    }

    /// Restores an earlier state, as `etcdctl snapshot restore` does.
    pub fn restore(&mut self, now: Instant, backup: &ModelStore, cluster_id: u64) {
        *self = ModelStore {
            is_up: self.is_up,
            is_full: self.is_full,
            cluster_id,
            changes: Vec::new(),
            ..backup.clone()
        };
        self.extend_leases(now);
    }

    pub fn handle(&mut self, request: &StoreRequest) -> StoreAnswer {
        let cluster_id = self.cluster_id;
        let conflict = |store: &ModelStore| StoreAnswer::Conflict {
            cluster_id,
            revision: store.revision,
        };
        if self.is_full && *request != StoreRequest::Read {
            return StoreAnswer::Full;
        }
        match request {
            StoreRequest::Read => StoreAnswer::Read(Snapshot {
                cluster_id,
                revision: self.revision,
                own: self.own.clone(),
                members: self.members.clone(),
                moves: self.moves.clone(),
                epoch: self.epoch,
                schema: Some(self.schema),
            }),
            StoreRequest::PutOwn {
                shard,
                order,
                expected,
                epoch_at,
            } => {
                let known = self.own.get(shard).map(|own| own.revision);
                if known != *expected || self.epoch.map(|(_, at)| at) != *epoch_at {
                    return conflict(self);
                }
                let revision = self.put_own(*shard, order.clone());
                StoreAnswer::Written {
                    cluster_id,
                    revision,
                }
            }
            StoreRequest::PutEpoch { epoch, expected } => {
                if self.epoch.map(|(_, revision)| revision) != *expected {
                    return conflict(self);
                }
                let revision = self.change(Changed::Epoch(Some(*epoch)));
                self.epoch = Some((*epoch, revision));
                StoreAnswer::Written {
                    cluster_id,
                    revision,
                }
            }
            StoreRequest::PutSchema {
                schema,
                expected,
                members_at,
            } => {
                let is_later = |id| self.put_at.get(id).is_some_and(|put| put > members_at);
                if self.schema.1 != *expected || self.members.keys().any(is_later) {
                    return conflict(self);
                }
                let revision = self.change(Changed::Schema(Some(*schema)));
                self.schema = (*schema, revision);
                StoreAnswer::Written {
                    cluster_id,
                    revision,
                }
            }
        }
    }

    fn put_own(&mut self, shard: ShardId, order: Order) -> u64 {
        let revision = self.change(Changed::Own(shard, Some(order.clone())));
        self.own.insert(shard, Own { order, revision });
        revision
    }
}
