//! Tracks which messages a waiting message must not overtake, at a cost of a few comparisons.
//!
//! The law is [`crate::order::must_follow`]. Each channel has one list per lane. Each domain of
//! barriers has one list of all bound messages and one of its fences. Dependencies point backwards
//! only. So repeated steps from a message to one that it must follow end at a message that may be
//! sent; from a lane's head this takes a handful of steps at most.

use super::entry::{Entry, link};
use super::slab::{Id, List, NIL, Slab};
use super::table::Table;
use crate::classify::Binding;
use crate::order::Direction;

/// The channels, and the waiting messages of each in order of arrival.
#[derive(Debug)]
pub(super) struct Lanes {
    direction: Direction,
    channels: Slab<Channel>,
    /// Place of a channel by its number.
    by_number: Table,
    /// One lane per flow with waiting messages.
    flows: Slab<List>,
    /// Place of a flow's lane by its channel's place and its key.
    by_flow: Table,
    /// Turns the law off, so that tests can check that they detect this.
    #[doc(hidden)]
    pub is_lawless: bool,
}

#[derive(Debug, Default)]
struct Channel {
    has_started: bool,
    /// The first message ever, while it waits: nothing overtakes it, whatever it is.
    opening: Option<Id>,
    state: List,
    exchange: List,
    free: List,
    /// The first is domain 0; others are added when they are used.
    domains: Vec<Domain>,
}

#[derive(Debug, Default)]
struct Domain {
    number: u8,
    bound: List,
    fences: List,
}

impl Lanes {
    pub(super) fn new(direction: Direction) -> Lanes {
        Lanes {
            direction,
            channels: Slab::default(),
            by_number: Table::default(),
            flows: Slab::default(),
            by_flow: Table::default(),
            is_lawless: false,
        }
    }

    /// Returns the place of a channel, and makes one if it has none.
    pub(super) fn channel(&mut self, number: u64) -> Id {
        if let Some(place) = self.by_number.get((0, number)) {
            return place;
        }
        let place = self.channels.insert(Channel {
            domains: vec![Domain::default()],
            ..Channel::default()
        });
        self.by_number.insert((0, number), place);
        place
    }

    /// Returns the place of a channel, if it has one.
    pub(super) fn find_channel(&self, number: u64) -> Option<Id> {
        self.by_number.get((0, number))
    }

    /// Returns any waiting message of a channel.
    pub(super) fn any_of(&self, place: Id) -> Option<Id> {
        let channel = &self.channels[place];
        let bound = channel.domains.iter().find_map(|d| d.bound.head());
        bound.or(channel.free.head())
    }

    /// Removes the channel, which has no waiting messages.
    pub(super) fn forget(&mut self, number: u64) {
        if let Some(place) = self.by_number.get((0, number)) {
            self.by_number.remove((0, number));
            self.channels.release(place);
        }
    }

    /// Adds a message that has arrived; the place of its channel is known.
    pub(super) fn insert(&mut self, entries: &mut Slab<Entry>, id: Id) {
        let Entry { channel, tag, .. } = entries[id];
        let of = &mut self.channels[channel];
        if !of.has_started {
            of.has_started = true;
            of.opening = Some(id);
        }
        if tag.binding == Binding::Free {
            of.free.push_back(entries, link::LANE, id);
            return;
        }
        let domain = of.domain(tag.domain);
        entries[id].domain = domain as u8;
        let domain = &mut of.domains[domain];
        domain.bound.push_back(entries, link::DOMAIN, id);
        let lane = match tag.binding {
            Binding::Fence => &mut domain.fences,
            Binding::State => &mut of.state,
            Binding::Exchange => &mut of.exchange,
            Binding::Free => &mut of.free,
            Binding::Flow { key, .. } => {
                let known = self.by_flow.get((channel, key));
                let flow = known.unwrap_or_else(|| {
                    let flow = self.flows.insert(List::default());
                    self.by_flow.insert((channel, key), flow);
                    flow
                });
                entries[id].flow = flow;
                &mut self.flows[flow]
            }
        };
        lane.push_back(entries, link::LANE, id);
    }

    /// Removes a message that is sent, shed or forgotten.
    pub(super) fn remove(&mut self, entries: &mut Slab<Entry>, id: Id) {
        let Entry {
            channel,
            tag,
            domain,
            flow,
            ..
        } = entries[id];
        let of = &mut self.channels[channel];
        if of.opening == Some(id) {
            of.opening = None;
        }
        if tag.binding == Binding::Free {
            of.free.unlink(entries, link::LANE, id);
            return;
        }
        let domain = &mut of.domains[usize::from(domain)];
        domain.bound.unlink(entries, link::DOMAIN, id);
        let lane = match tag.binding {
            Binding::Fence => &mut domain.fences,
            Binding::State => &mut of.state,
            Binding::Exchange => &mut of.exchange,
            Binding::Free => &mut of.free,
            Binding::Flow { .. } => &mut self.flows[flow],
        };
        lane.unlink(entries, link::LANE, id);
        if let Binding::Flow { key, .. } = tag.binding
            && lane.is_empty()
        {
            self.by_flow.remove((channel, key));
            self.flows.release(flow);
        }
    }

    /// Returns a message that may be sent now: `id` itself, or one that `id` must follow.
    pub(super) fn first_due(&self, entries: &Slab<Entry>, id: Id) -> Id {
        let mut at = id;
        if self.is_lawless {
            return at;
        }
        while let Some(before) = self.predecessor(entries, at) {
            debug_assert!(entries[before].seq < entries[at].seq);
            at = before;
        }
        at
    }

    /// Returns the oldest waiting message of the flow of `id`.
    pub(super) fn oldest_of_flow(&self, entries: &Slab<Entry>, id: Id) -> Option<Id> {
        match entries[id].flow {
            NIL => None,
            flow => self.flows[flow].head(),
        }
    }

    /// A waiting message that `id` must follow.
    fn predecessor(&self, entries: &Slab<Entry>, id: Id) -> Option<Id> {
        let entry = &entries[id];
        let channel = &self.channels[entry.channel];
        if channel.opening.is_some_and(|opening| opening != id) {
            return channel.opening;
        }
        let earlier = |other: &Id| entries[*other].seq < entry.seq;
        let head = |list: &List| list.head().filter(|head| *head != id);
        let to_switch = self.direction == Direction::ToSwitch;
        let state = || channel.state.head().filter(earlier);
        let exchange = || channel.exchange.head().filter(earlier);
        let within = match entry.tag.binding {
            Binding::Free => return head(&channel.free),
            Binding::Fence => None,
            Binding::State if to_switch => head(&channel.state).or_else(exchange),
            Binding::State => head(&channel.state),
            Binding::Exchange => head(&channel.exchange).or_else(state),
            Binding::Flow { after_state, .. } => match head(&self.flows[entry.flow]) {
                None if after_state && to_switch => state(),
                before => before,
            },
        };
        if within.is_some() {
            return within;
        }
        let is_fence = entry.tag.binding == Binding::Fence;
        let of = |domain: &Domain| match is_fence {
            true => domain.bound.head().filter(earlier),
            false => domain.fences.head().filter(earlier),
        };
        // As a rule all barriers are of domain 0.
        if let [everybody] = &channel.domains[..] {
            return of(everybody);
        }
        let number = entry.tag.domain;
        let shares = |d: &&Domain| number == 0 || d.number == 0 || d.number == number;
        let others = channel.domains.iter().filter(shares);
        others.filter_map(of).min_by_key(|o| entries[*o].seq)
    }
}

impl Channel {
    /// Returns the place of a domain, and makes one if it has none.
    fn domain(&mut self, number: u8) -> usize {
        if number == 0 {
            return 0;
        }
        let known = self.domains.iter().position(|d| d.number == number);
        known.unwrap_or_else(|| {
            self.domains.push(Domain {
                number,
                ..Domain::default()
            });
            self.domains.len() - 1
        })
    }
}
