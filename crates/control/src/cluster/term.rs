//! Names and numbers of the cluster: members, shards, orders of owners, and the generation that
//! fences one owner from the next.

use std::fmt;
use std::sync::Arc;

use clock::{Fnv1a, mix};
use openflow::DatapathId;

/// The largest number of shards.
pub const SHARDS_MAX: u16 = 256;
/// The largest number of members that one member knows. Further members are ignored.
pub const MEMBERS_MAX: usize = 16;
/// The places of an order.
pub const PLACES: usize = 16;
/// The largest length of a member's name, in bytes: that of a DNS label.
pub const NAME_BYTES_MAX: usize = 63;
/// The largest epoch in use. A switch compares generations as signed differences (OpenFlow 1.3.5,
/// 6.3.6), so half of the 12 bits stays free.
pub const EPOCH_MAX: u16 = 2047;

const REVISION_MAX: u64 = (1 << 48) - 1;

/// A member's name: 1 to 63 of the bytes `a-z`, `0-9` and `-`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(Arc<str>);

impl MemberId {
    /// Checks a name. Returns `None` if it is empty, too long, or has other bytes.
    pub fn new(name: &str) -> Option<MemberId> {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let has_length = (1..=NAME_BYTES_MAX).contains(&name.len());
        (has_length && name.bytes().all(is_good)).then(|| MemberId(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A share of the switches that has one owner at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u8);

impl ShardId {
    /// The shard of a switch, of `shards` in all (1 to 256): the same in every member.
    pub fn of(dpid: DatapathId, shards: u16) -> ShardId {
        let shards = u64::from(shards.clamp(1, SHARDS_MAX));
        ShardId((mix(dpid.0) % shards) as u8)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A place in an [`Order`], from 0. The member at place 0 owns the shard at first.
pub type Rank = u8;

/// The number in role requests that makes a switch refuse an earlier owner (`generation_id`).
///
/// It is `epoch << 52 | revision << 4 | rank`: 12, 48 and 4 bits. `revision` is etcd's
/// `mod_revision` of the shard's order, so each later order has the greater generations.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The value that Open vSwitch reports before it has a generation.
    pub const NONE: Generation = Generation(u64::MAX);

    /// Makes a generation. A value beyond its field's bits becomes the field's largest.
    pub fn new(epoch: u16, revision: u64, rank: Rank) -> Generation {
        let epoch = u64::from(epoch.min(0xfff));
        let rank = u64::from(rank.min(PLACES as u8 - 1));
        Generation(epoch << 52 | revision.min(REVISION_MAX) << 4 | rank)
    }

    /// The epoch: raised when revisions cannot be trusted to grow.
    pub fn epoch(self) -> u16 {
        (self.0 >> 52) as u16
    }

    /// The revision of the shard's order.
    pub fn revision(self) -> u64 {
        self.0 >> 4 & REVISION_MAX
    }

    /// The place in the order.
    pub fn rank(self) -> Rank {
        (self.0 & 0xf) as Rank
    }

    /// Whether a switch that has seen `other` refuses this one as stale: the signed difference is
    /// negative (OpenFlow 1.3.5, 6.3.6).
    pub fn is_stale_after(self, other: Generation) -> bool {
        (self.0.wrapping_sub(other.0) as i64) < 0
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Generation::NONE => f.write_str("none"),
            g => write!(f, "{}.{}.{}", g.epoch(), g.revision(), g.rank()),
        }
    }
}

/// The document `own/<shard>`: the owner of a shard and its successors, in order. At most 16
/// places; members repeat, so that 15 take-overs are possible while the store is unreachable.
///
/// An empty order stands for a document that cannot be read: nobody owns the shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order(Arc<[MemberId]>);

impl Order {
    /// An order with these places. Returns `None` if there are more than 16.
    pub fn new(places: Vec<MemberId>) -> Option<Order> {
        (places.len() <= PLACES).then(|| Order(places.into()))
    }

    /// An order in which these members take turns until all 16 places are filled.
    pub fn repeating(members: &[MemberId]) -> Order {
        Order(members.iter().cycle().take(PLACES).cloned().collect())
    }

    /// The places, from rank 0.
    pub fn places(&self) -> &[MemberId] {
        &self.0
    }

    /// The member at a place.
    pub fn holder(&self, rank: Rank) -> Option<&MemberId> {
        self.0.get(usize::from(rank))
    }

    /// Whether a member has a place.
    pub fn contains(&self, member: &MemberId) -> bool {
        self.0.contains(member)
    }
}

/// The weight of a member for a shard (rendezvous hashing): the greatest is the first owner.
pub(super) fn weight(shard: ShardId, member: &MemberId) -> u64 {
    let member = Fnv1a::of(member.as_str().as_bytes());
    mix(member ^ mix(u64::from(shard.0)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_dns_labels() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for good in ["a", "host-1", "0", "-", &longest] {
            assert_eq!(MemberId::new(good).expect(good).as_str(), good);
        }
        let too_long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "A", "a.b", "a/b", "ä", "a b", "a\n", &too_long] {
            assert_eq!(MemberId::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn an_order_has_sixteen_places_in_turn() {
        let members = ["a", "b", "c"].map(|name| MemberId::new(name).expect("a name"));
        let order = Order::repeating(&members);
        assert_eq!(order.places().len(), PLACES);
        assert_eq!(order.holder(0), Some(&members[0]));
        assert_eq!(order.holder(15), Some(&members[0]));
        assert_eq!(order.holder(16), None);
        assert_eq!(Order::repeating(&[]), Order::default());
        let many = vec![members[0].clone(); PLACES + 1];
        assert_eq!(Order::new(many), None);
        assert_eq!(Order::new(order.places().to_vec()), Some(order));
    }

    proptest! {
        #[test]
        fn a_generation_keeps_its_parts(
            epoch in 0..=0xfffu16,
            revision in 0..=REVISION_MAX,
            rank in 0..16u8,
        ) {
            let generation = Generation::new(epoch, revision, rank);
            let parts = (generation.epoch(), generation.revision(), generation.rank());
            prop_assert_eq!(parts, (epoch, revision, rank));
        }

        /// Generations are ordered by epoch, then by order, then by place: a switch accepts the
        /// later one, and then refuses the earlier.
        #[test]
        fn generations_are_in_the_order_of_their_parts(
            a in (0..=EPOCH_MAX, 0..=REVISION_MAX, 0..16u8),
            b in (0..=EPOCH_MAX, 0..=REVISION_MAX, 0..16u8),
        ) {
            let [one, other] = [a, b].map(|(e, r, k)| Generation::new(e, r, k));
            prop_assert_eq!(one.is_stale_after(other), a < b);
            prop_assert_eq!(other.is_stale_after(one), b < a);
        }

        #[test]
        fn parts_beyond_their_bits_do_not_spill(
            epoch: u16,
            revision: u64,
            rank: u8,
        ) {
            let generation = Generation::new(epoch, revision, rank);
            prop_assert_eq!(generation.epoch(), epoch.min(0xfff));
            prop_assert_eq!(generation.revision(), revision.min(REVISION_MAX));
            prop_assert_eq!(generation.rank(), rank.min(15));
        }

        #[test]
        fn a_switch_has_one_of_the_shards(dpid: u64, shards in 1..=SHARDS_MAX) {
            prop_assert!(u16::from(ShardId::of(DatapathId(dpid), shards).0) < shards);
        }
    }
}
