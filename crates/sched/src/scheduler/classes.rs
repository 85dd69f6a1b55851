//! The queues, and the turns within each queue.
//!
//! A queue has one *member* per channel. A member has one *leaf* per port that sent packet-ins, and
//! one for all other messages. In a fair queue members take turns, and so do the leaves of each
//! member. Otherwise a queue is served in order of arrival, and leaves only show which port has the
//! most waiting. A blocked channel's members are out of their queues, so their messages are not
//! considered.

use clock::Instant;

use super::entry::{Entry, link};
use super::slab::{Id, Link, Linked, List, NIL, Slab};
use super::table::Table;
use crate::policy::{Algorithm, QUEUES_MAX};

/// The bytes that one turn pays for: more than any single packet-in. A longer message costs several
/// turns, so that long replies of one switch do not crowd out the others.
const TURN_BYTES: u32 = 4096;

/// The leaf of messages other than packet-ins. Ports have 32 bits.
const PLAIN: u64 = u64::MAX;

/// All queues.
#[derive(Debug)]
pub(super) struct Classes {
    /// Whether members take turns; if not, first come, first served.
    is_fair: bool,
    /// Whether the longest leaf may be asked for.
    by_port: bool,
    queues: [Queue; QUEUES_MAX],
    members: Slab<Member>,
    leaves: Slab<Leaf>,
    by_port_of: Table,
    /// Indexed by the place of a channel.
    channels: Vec<Channel>,
    /// Queues with waiting messages that are not blocked, one bit each.
    backlogged: u16,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub messages: usize,
    pub bytes: usize,
    /// Messages that may be shed, oldest first.
    pub droppable: List,
    /// Members with something to send: in turn, or a heap by the age of their first message.
    turns: List,
    heap: Vec<Id>,
    ranks: Ranks,
}

/// Leaves by their number of packet-ins. Ranks are kept from the time a queue exceeds its limits
/// until it has half the packet-ins it had then, so that they cost nothing without pressure.
#[derive(Debug, Default)]
struct Ranks {
    /// Number of packet-ins in the queue below which the ranks are cleared. 0 while no ranks are
    /// kept.
    until: usize,
    by_length: Vec<List>,
    longest: usize,
}

#[derive(Clone, Debug)]
struct Channel {
    is_blocked: bool,
    members: [Id; QUEUES_MAX],
}

/// The state of a channel that has sent nothing yet.
const NO_CHANNEL: Channel = Channel {
    is_blocked: false,
    members: [NIL; QUEUES_MAX],
};

#[derive(Debug)]
struct Member {
    messages: usize,
    /// All messages in order of arrival, where that is the order of service.
    fifo: List,
    /// Leaves in turn, where that is the order of service.
    turns: List,
    plain: Id,
    owed: u32,
    heap_at: usize,
    links: [Link; 1],
}

#[derive(Debug)]
struct Leaf {
    port: u64,
    fifo: List,
    owed: u32,
    /// The length by which the leaf is ranked; 0 if it is not.
    rank: usize,
    links: [Link; 2],
}

/// A leaf's links: its turn within the member, its rank in length.
const TURN: usize = 0;
const LENGTH: usize = 1;

impl Linked for Member {
    fn links(&self) -> &[Link] {
        &self.links
    }

    fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }
}

impl Linked for Leaf {
    fn links(&self) -> &[Link] {
        &self.links
    }

    fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }
}

/// The first message of a queue, as a discipline sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Length of the message.
    pub bytes: u32,
    /// Time of its arrival.
    pub since: Instant,
}

impl Classes {
    pub(super) fn new(algorithm: Algorithm) -> Classes {
        Classes {
            is_fair: algorithm == Algorithm::Hierarchy,
            by_port: algorithm != Algorithm::Fifo,
            queues: Default::default(),
            members: Slab::default(),
            leaves: Slab::default(),
            by_port_of: Table::default(),
            channels: Vec::new(),
            backlogged: 0,
        }
    }

    pub(super) fn queue(&self, queue: u8) -> &Queue {
        &self.queues[usize::from(queue)]
    }

    pub(super) fn backlogged(&self) -> u16 {
        self.backlogged
    }

    /// Reports whether the channel at `place` is blocked.
    pub(super) fn is_blocked(&self, place: Id) -> bool {
        self.channels
            .get(place as usize)
            .is_some_and(|c| c.is_blocked)
    }

    /// The places of blocked channels.
    pub(super) fn blocked(&self) -> Vec<Id> {
        let places = 0..self.channels.len() as Id;
        places.filter(|place| self.is_blocked(*place)).collect()
    }

    pub(super) fn set_blocked(&mut self, entries: &Slab<Entry>, place: Id, is_blocked: bool) {
        let channel = self.channel(place);
        if channel.is_blocked == is_blocked {
            return;
        }
        channel.is_blocked = is_blocked;
        let members = channel.members;
        for (queue, member) in members.into_iter().enumerate() {
            if member == NIL || self.members[member].messages == 0 {
                continue;
            }
            match is_blocked {
                true => self.leave(entries, queue, member),
                false => self.join(entries, queue, member),
            }
        }
    }

    /// Removes the channel at `place`, which has no waiting messages.
    pub(super) fn forget(&mut self, place: Id) {
        let channel = std::mem::replace(self.channel(place), NO_CHANNEL);
        for member in channel.members.into_iter().filter(|m| *m != NIL) {
            let plain = self.members[member].plain;
            self.leaves.release(plain);
            self.members.release(member);
        }
    }

    /// Adds a message that has arrived. Its queue and the place of its channel are known.
    pub(super) fn insert(&mut self, entries: &mut Slab<Entry>, id: Id) {
        let Entry {
            queue,
            channel,
            tag,
            ..
        } = entries[id];
        let queue = usize::from(queue);
        let member = self.member(queue, channel);
        entries[id].member = member;
        let of = &mut self.queues[queue];
        of.messages += 1;
        of.bytes += tag.bytes as usize;
        if tag.shed.is_some() {
            of.droppable.push_back(entries, link::SHED, id);
        }
        if !self.is_fair {
            let fifo = &mut self.members[member].fifo;
            fifo.push_back(entries, link::MEMBER, id);
        }
        if self.is_fair || (self.by_port && tag.shed.is_some()) {
            let leaf = match tag.shed {
                Some(_) => self.leaf_of_port(member, tag.port),
                None => self.members[member].plain,
            };
            entries[id].leaf = leaf;
            self.leaves[leaf].fifo.push_back(entries, link::LEAF, id);
            let len = self.leaves[leaf].fifo.len();
            if len == 1 && self.is_fair {
                let turns = &mut self.members[member].turns;
                turns.push_back(&mut self.leaves, TURN, leaf);
            }
            let ranks = &mut self.queues[queue].ranks;
            if ranks.until > 0 && tag.shed.is_some() {
                ranks.set(&mut self.leaves, leaf, len);
            }
        }
        self.members[member].messages += 1;
        if self.members[member].messages == 1 && !self.is_blocked(channel) {
            self.join(entries, queue, member);
        }
    }

    /// Removes a message that is sent, shed or forgotten.
    pub(super) fn remove(&mut self, entries: &mut Slab<Entry>, id: Id) {
        let Entry {
            queue,
            channel,
            tag,
            member,
            leaf,
            ..
        } = entries[id];
        let queue = usize::from(queue);
        let of = &mut self.queues[queue];
        of.messages -= 1;
        of.bytes -= tag.bytes as usize;
        if tag.shed.is_some() {
            of.droppable.unlink(entries, link::SHED, id);
        }
        let mut was_first = false;
        if !self.is_fair {
            let fifo = &mut self.members[member].fifo;
            was_first = fifo.head() == Some(id);
            fifo.unlink(entries, link::MEMBER, id);
        }
        if leaf != NIL {
            self.leaves[leaf].fifo.unlink(entries, link::LEAF, id);
            let len = self.leaves[leaf].fifo.len();
            if len == 0 && self.is_fair {
                let turns = &mut self.members[member].turns;
                turns.unlink(&mut self.leaves, TURN, leaf);
            }
            if tag.shed.is_some() {
                let of = &mut self.queues[queue];
                if of.ranks.until > 0 {
                    of.ranks.set(&mut self.leaves, leaf, len);
                    if of.droppable.len() < of.ranks.until {
                        of.ranks.clear(&mut self.leaves);
                    }
                }
                if len == 0 {
                    let port = self.leaves[leaf].port;
                    self.by_port_of.remove((member, port));
                    self.leaves.release(leaf);
                }
            }
        }
        self.members[member].messages -= 1;
        let is_in = !self.is_blocked(channel);
        if self.members[member].messages == 0 && is_in {
            self.leave(entries, queue, member);
        } else if was_first && is_in {
            let at = self.members[member].heap_at;
            self.sift_down(entries, queue, at);
        }
    }

    /// Returns the message whose turn it is in a backlogged queue.
    pub(super) fn select(&mut self, queue: u8) -> Id {
        let of = &mut self.queues[usize::from(queue)];
        if !self.is_fair {
            let member = &self.members[of.heap[0]];
            return member.fifo.head().expect("a member in a heap has messages");
        }
        let member = next_in_turn(&mut of.turns, &mut self.members, 0, |m| &mut m.owed);
        let turns = &mut self.members[member].turns;
        let leaf = next_in_turn(turns, &mut self.leaves, TURN, |l| &mut l.owed);
        let leaf = &self.leaves[leaf];
        leaf.fifo.head().expect("a leaf in a ring has messages")
    }

    /// Uses the turn of `id`, which was selected, for a message of `bytes`.
    pub(super) fn use_turn(&mut self, entries: &Slab<Entry>, id: Id, bytes: u32) {
        if !self.is_fair {
            return;
        }
        let Entry {
            queue,
            member,
            leaf,
            ..
        } = entries[id];
        self.leaves[leaf].owed += bytes.saturating_sub(1) / TURN_BYTES;
        let turns = &mut self.members[member].turns;
        turns.rotate(&mut self.leaves, TURN);
        self.members[member].owed += bytes.saturating_sub(1) / TURN_BYTES;
        let turns = &mut self.queues[usize::from(queue)].turns;
        turns.rotate(&mut self.members, 0);
    }

    /// Returns the oldest message of a backlogged queue that is served in order of arrival; for a
    /// fair queue, the first message of the member whose turn it is.
    pub(super) fn head(&self, entries: &Slab<Entry>, queue: u8) -> Head {
        let of = &self.queues[usize::from(queue)];
        let id = match self.is_fair {
            false => self.members[of.heap[0]].fifo.head(),
            true => {
                let member = of.turns.head().map(|m| &self.members[m]);
                let leaf = member.and_then(|m| m.turns.head());
                leaf.and_then(|l| self.leaves[l].fifo.head())
            }
        };
        let entry = &entries[id.expect("a backlogged queue has a first message")];
        Head {
            bytes: entry.tag.bytes,
            since: entry.at,
        }
    }

    /// Returns the oldest packet-in of the port that has the most packet-ins in a queue.
    pub(super) fn head_of_longest(&mut self, entries: &Slab<Entry>, queue: u8) -> Option<Id> {
        let of = &mut self.queues[usize::from(queue)];
        if of.ranks.until == 0 {
            of.ranks.until = (of.droppable.len() / 2).max(1);
            let mut next = of.droppable.head();
            while let Some(id) = next {
                let leaf = entries[id].leaf;
                let len = self.leaves[leaf].fifo.len();
                of.ranks.set(&mut self.leaves, leaf, len);
                next = List::next(entries, link::SHED, id);
            }
        }
        let leaf = of.ranks.by_length.get(of.ranks.longest)?.head()?;
        self.leaves[leaf].fifo.head()
    }

    fn channel(&mut self, place: Id) -> &mut Channel {
        let at = place as usize;
        if at >= self.channels.len() {
            self.channels.resize(at + 1, NO_CHANNEL);
        }
        &mut self.channels[at]
    }

    fn member(&mut self, queue: usize, channel: Id) -> Id {
        let known = self.channel(channel).members[queue];
        if known != NIL {
            return known;
        }
        let plain = self.leaves.insert(Leaf::new(PLAIN));
        let member = self.members.insert(Member {
            messages: 0,
            fifo: List::default(),
            turns: List::default(),
            plain,
            owed: 0,
            heap_at: 0,
            links: [Link::NONE],
        });
        self.channel(channel).members[queue] = member;
        member
    }

    fn leaf_of_port(&mut self, member: Id, port: u32) -> Id {
        let port = u64::from(port);
        let known = self.by_port_of.get((member, port));
        known.unwrap_or_else(|| {
            let leaf = self.leaves.insert(Leaf::new(port));
            self.by_port_of.insert((member, port), leaf);
            leaf
        })
    }

    /// Adds a member that has something to send.
    fn join(&mut self, entries: &Slab<Entry>, queue: usize, member: Id) {
        self.backlogged |= 1 << queue;
        let of = &mut self.queues[queue];
        if self.is_fair {
            of.turns.push_back(&mut self.members, 0, member);
        } else {
            let at = of.heap.len();
            of.heap.push(member);
            self.members[member].heap_at = at;
            self.sift_up(entries, queue, at);
        }
    }

    /// Removes a member that has nothing to send, or may not send.
    fn leave(&mut self, entries: &Slab<Entry>, queue: usize, member: Id) {
        let of = &mut self.queues[queue];
        let is_idle = if self.is_fair {
            of.turns.unlink(&mut self.members, 0, member);
            of.turns.is_empty()
        } else {
            let at = self.members[member].heap_at;
            of.heap.swap_remove(at);
            let is_idle = of.heap.is_empty();
            if let Some(moved) = of.heap.get(at) {
                self.members[*moved].heap_at = at;
                self.sift_down(entries, queue, at);
                self.sift_up(entries, queue, at);
            }
            is_idle
        };
        if is_idle {
            self.backlogged &= !(1 << queue);
        }
    }

    fn age(&self, entries: &Slab<Entry>, queue: usize, at: usize) -> u64 {
        let member = self.queues[queue].heap[at];
        match self.members[member].fifo.head() {
            Some(first) => entries[first].seq,
            // The member is about to leave.
            None => u64::MAX,
        }
    }

    fn sift_up(&mut self, entries: &Slab<Entry>, queue: usize, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.age(entries, queue, above) <= self.age(entries, queue, at) {
                return;
            }
            self.swap(queue, at, above);
            at = above;
        }
    }

    fn sift_down(&mut self, entries: &Slab<Entry>, queue: usize, mut at: usize) {
        loop {
            let below = [2 * at + 1, 2 * at + 2];
            let len = self.queues[queue].heap.len();
            let oldest = below
                .into_iter()
                .filter(|b| *b < len)
                .min_by_key(|b| self.age(entries, queue, *b));
            match oldest {
                Some(b) if self.age(entries, queue, b) < self.age(entries, queue, at) => {
                    self.swap(queue, at, b);
                    at = b;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, queue: usize, a: usize, b: usize) {
        let heap = &mut self.queues[queue].heap;
        heap.swap(a, b);
        self.members[heap[a]].heap_at = a;
        self.members[heap[b]].heap_at = b;
    }
}

impl Ranks {
    /// Ranks a leaf that has `len` packet-ins now.
    fn set(&mut self, leaves: &mut Slab<Leaf>, leaf: Id, len: usize) {
        let was = std::mem::replace(&mut leaves[leaf].rank, len);
        if was == len {
            return;
        }
        if was > 0 {
            self.by_length[was].unlink(leaves, LENGTH, leaf);
        }
        if len > 0 {
            if self.by_length.len() <= len {
                self.by_length.resize(len + 1, List::default());
            }
            self.by_length[len].push_back(leaves, LENGTH, leaf);
        }
        // The leaf has one more than before, or one less, or was not ranked.
        let was_longest = was > 0 && was == self.longest && self.by_length[was].is_empty();
        if len > self.longest || was_longest {
            self.longest = len;
        }
    }

    fn clear(&mut self, leaves: &mut Slab<Leaf>) {
        self.until = 0;
        self.longest = 0;
        for (len, list) in self.by_length.iter_mut().enumerate().skip(1) {
            while let Some(leaf) = list.head() {
                debug_assert_eq!(leaves[leaf].rank, len);
                list.unlink(leaves, LENGTH, leaf);
                leaves[leaf].rank = 0;
            }
        }
    }
}

impl Leaf {
    fn new(port: u64) -> Leaf {
        Leaf {
            port,
            fifo: List::default(),
            owed: 0,
            rank: 0,
            links: [Link::NONE; 2],
        }
    }
}

/// Returns the next item of a ring that is not empty. An item that owes turns gives them up first.
fn next_in_turn<X: Linked>(
    ring: &mut List,
    items: &mut Slab<X>,
    link: usize,
    owed: impl Fn(&mut X) -> &mut u32,
) -> Id {
    loop {
        let first = ring.head().expect("a backlogged queue has somebody's turn");
        let owed = owed(&mut items[first]);
        if *owed == 0 {
            return first;
        }
        // An item that is alone in the ring harms no other.
        *owed = if ring.len() == 1 { 0 } else { *owed - 1 };
        ring.rotate(items, link);
    }
}
