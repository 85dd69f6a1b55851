//! The choice of the orders to write, and of the members at their first places.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};

use super::store::{Member, Snapshot, StoreRequest};
use super::suspicion::Peers;
use super::term::{MemberId, Order, Rank, ShardId, weight};
use super::{ClusterConfig, STEADY, Shard};

/// How long the next member waits for earlier members that are suspected too, or not ready.
const NEXT_RANK: Duration = Duration::from_millis(100);
/// How long it waits for an earlier member that is ready and does not act: three heartbeats. Each
/// further one adds [`NEXT_RANK`].
const TURN_MAX: Duration = Duration::from_millis(300);

/// The order of a shard over `members`: `first` has place 0 if it is given, and the others follow
/// by weight (rendezvous hashing). Empty without members.
pub(super) fn order(
    shard: ShardId,
    first: Option<&MemberId>,
    members: &BTreeSet<MemberId>,
) -> Order {
    let mut places: Vec<MemberId> = members.iter().cloned().collect();
    places.sort_by_key(|id| (Some(id) != first, std::cmp::Reverse(weight(shard, id))));
    Order::repeating(&places)
}

/// The place that this member may use once the present holder is suspected, and how long it waits
/// for the members at the earlier places.
pub(super) fn turn(me: &MemberId, shard: &Shard, peers: &Peers) -> Option<(Rank, Duration)> {
    let holder = shard.holder()?;
    let later = shard.own.order.places().iter().zip(0..);
    let later = later.skip(usize::from(shard.in_use) + 1);
    let (_, rank) = later.clone().find(|(place, _)| *place == me)?;
    let passed = later
        .map(|(place, _)| place)
        .take_while(|place| *place != me);
    let mut passed = passed.filter(|place| *place != holder).peekable();
    let least = passed.peek().map_or(Duration::ZERO, |_| NEXT_RANK);
    let wait = match u32::try_from(passed.filter(|place| peers.is_ready(place)).count()) {
        Ok(0) | Err(_) => least,
        Ok(ready) => TURN_MAX + NEXT_RANK * (ready - 1),
    };
    Some((rank, wait))
}

/// Whether a ready member has no place, or a member with a place has left or is about to leave.
pub(super) fn is_outdated(
    me: &MemberId,
    order: &Order,
    peers: &Peers,
    members: &BTreeMap<MemberId, Member>,
) -> bool {
    let is_there = |id| members.get(id).is_some_and(|member| member.is_ready);
    let mut new = members
        .keys()
        .filter(|id| is_there(id) && peers.is_ready(id));
    new.any(|id| !order.contains(id)) || order.places().iter().any(|id| id != me && !is_there(id))
}

/// The choice of the next write, from the point of view of one member.
pub(super) struct Writer<'a> {
    pub now: Instant,
    pub config: &'a ClusterConfig,
    pub is_ready: bool,
    /// It does not know which members are present: it assigns nothing, and keeps its present order.
    pub is_deaf: bool,
    pub peers: &'a Peers,
    pub shards: &'a BTreeMap<ShardId, Shard>,
    pub raise: Option<u16>,
    /// The schema that all members read, if it is to come into use.
    pub schema: Option<u32>,
    /// The revision up to which the members are known.
    pub applied: u64,
}

impl Writer<'_> {
    /// The next write, if one is needed.
    pub(super) fn next(&self, view: &Snapshot) -> Option<StoreRequest> {
        let (epoch, expected) = view.epoch.map_or((0, None), |(e, at)| (e, Some(at)));
        if let Some(epoch) = self.raise.filter(|raise| *raise > epoch) {
            return Some(StoreRequest::PutEpoch { epoch, expected });
        }
        if !self.is_ready {
            return None;
        }
        let live = self.live(view);
        // While the other members do not see it as ready in the store, one of them is the assigner,
        // too.
        let me = view.members.get(&self.config.id);
        let is_assigner = live.first() == Some(&self.config.id)
            && !self.is_deaf
            && me.is_some_and(|member| member.is_ready);
        let ids = (0..=u8::MAX).take(usize::from(self.config.shards));
        let order = ids.map(ShardId).find_map(|id| {
            let expected = view.own.get(&id).map(|own| own.revision);
            let known = self.shards.get(&id);
            let known = known.filter(|shard| Some(shard.own.revision) == expected);
            let order = match known {
                Some(shard) if shard.is_held => {
                    let is_steady = |since| since + STEADY <= self.now;
                    let is_outdated = shard.outdated_since.is_some_and(is_steady) && !self.is_deaf;
                    let me = &self.config.id;
                    let asked = view.moves.get(&id);
                    let asked = asked.filter(|asked| Some(asked.revision) == expected);
                    let to = asked.map(|asked| &asked.to);
                    let to = to.filter(|to| *to != me && live.contains(*to));
                    (to.is_some() || shard.in_use > 0 || shard.must_renew || is_outdated)
                        .then(|| order(id, to.or(Some(me)), &live))
                }
                Some(shard) if is_assigner && self.is_without_owner(shard, view) => {
                    let mut others = live.clone();
                    others.retain(|id| Some(id) != shard.holder());
                    Some(order(id, None, &others))
                }
                None if is_assigner => Some(order(id, None, &live)),
                _ => None,
            };
            Some(StoreRequest::PutOwn {
                shard: id,
                order: order?,
                expected,
                epoch_at: view.epoch.map(|(_, at)| at),
            })
        });
        let schema = self.schema.filter(|_| is_assigner).zip(view.schema);
        let schema = schema.map(|(schema, (_, expected))| StoreRequest::PutSchema {
            schema,
            expected,
            members_at: self.applied,
        });
        order.or(schema)
    }

    /// The members that are ready: this one, and those that are heard and in the store.
    fn live(&self, view: &Snapshot) -> BTreeSet<MemberId> {
        let is_live = |(id, member): &(&MemberId, &Member)| {
            member.is_ready && **id != self.config.id && self.peers.is_ready(id)
        };
        let others = view.members.iter().filter(is_live);
        let others = others.map(|(id, _)| id.clone());
        others.chain([self.config.id.clone()]).collect()
    }

    /// Whether the holder of a shard is about to leave, or is gone and no member can succeed it.
    fn is_without_owner(&self, shard: &Shard, view: &Snapshot) -> bool {
        let me = &self.config.id;
        let Some(holder) = shard.holder().filter(|holder| *holder != me) else {
            return shard.holder().is_none();
        };
        match view.members.get(holder) {
            Some(member) if !member.is_ready => true,
            None => self.peers.is_suspected(holder),
            Some(_) => {
                let later = shard.own.order.places().iter();
                let mut later = later.skip(usize::from(shard.in_use) + 1);
                self.peers.confirmed_at(holder).is_some()
                    && !later.any(|id| id == me || self.peers.is_ready(id))
            }
        }
    }
}
