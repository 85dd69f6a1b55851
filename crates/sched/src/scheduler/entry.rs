//! The record of a waiting message, without the message itself.

use clock::Instant;

use super::slab::{Id, Link, Linked, NIL};
use crate::classify::Tag;

/// The lists a waiting message is in, by the number of their link.
pub(super) mod link {
    /// The list of its leaf: the packet-ins of one port, or all other messages, of one channel and
    /// queue.
    pub const LEAF: usize = 0;
    /// The list of its channel and queue, where these are served in order of arrival.
    pub const MEMBER: usize = 1;
    /// All messages of its queue that may be shed.
    pub const SHED: usize = 2;
    /// All messages of its channel and domain that are bound to others.
    pub const DOMAIN: usize = 3;
    /// Its lane: state, exchange, free, fences of a domain, packets of a flow.
    pub const LANE: usize = 4;
    pub const COUNT: usize = 5;
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub tag: Tag,
    pub at: Instant,
    /// Position in the order of arrival, over all channels.
    pub seq: u64,
    /// The queue that serves the message: the tag's, unless all queues are one.
    pub queue: u8,
    /// Its channel's place.
    pub channel: Id,
    /// Place of its domain within the channel.
    pub domain: u8,
    /// The lane of its flow, if it is bound to one.
    pub flow: Id,
    pub member: Id,
    pub leaf: Id,
    links: [Link; link::COUNT],
}

impl Entry {
    pub(super) fn new(tag: Tag, at: Instant, seq: u64, queue: u8) -> Entry {
        Entry {
            tag,
            at,
            seq,
            queue,
            channel: NIL,
            domain: 0,
            flow: NIL,
            member: NIL,
            leaf: NIL,
            links: [Link::NONE; link::COUNT],
        }
    }
}

impl Linked for Entry {
    fn links(&self) -> &[Link] {
        &self.links
    }

    fn links_mut(&mut self) -> &mut [Link] {
        &mut self.links
    }
}
