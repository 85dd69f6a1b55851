//! Keeps the first packets of a conversation off the detour through the controller.
//!
//! A packet that misses goes up to the controller and out again at its destination. The packets
//! behind it do the same until the entry is active. The first packet that finds the entry overtakes
//! all that are still on the detour: about rate × delay packets arrive out of order. To prevent
//! this, the first packet of a conversation must find its entry.
//!
//! *Before the conversation.* Two hosts that want to talk ask for each other's address first. These
//! messages reach the controller:
//!
//! - A broadcast question always does, since nothing floods without the controller. If it asks for
//!   a host whose place is known, the controller sets the entries of both directions, from the
//!   destination to the ingress. It holds the question until every switch has confirmed them and
//!   [`SETTLE`](super::entries::SETTLE) has passed. The answer may find an entry and never reach
//!   the controller.
//! - When a previously unknown host answers, its answer reaches the controller and is held in the
//!   same way.
//! - A unicast question, by which hosts confirm a known address, also reaches the controller and is
//!   held when no entry leads from one host to the other. When there is an entry, nothing has to be
//!   done.
//!
//! Open vSwitch's entries are active with their barriers where its datapath keeps no flow for the
//! coming packets (`cached.rs`). There the controller skips [`SETTLE`] for ARP, which IPv4 follows.
//!
//! Held messages are bounded in number, per port and in all, and in time. Beyond the bounds a
//! message is sent at once, and is counted. Neighbour discovery (IPv6) is treated the same, except
//! that its questions to a multicast group are flooded at once where the controller does not answer
//! them itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::MacAddr;

use crate::Location;

use super::counts::Counts;
use super::ingress::Inlets;
use super::links::Pair;
use super::outbox::{Outbox, Timer};
use super::packet::Packet;
use super::stage::Token;

/// Maximum time that a message is held, whatever has been confirmed; hosts ask again after 1 s.
const HOLD_MAX: Duration = Duration::from_millis(500);

/// Maximum number of held messages, in all, of one port and of one switch.
const HELD_MAX: usize = 1024;
const HELD_PER_PORT_MAX: usize = 64;
const HELD_PER_SWITCH_MAX: usize = 256;

/// The entries under way, and the messages that wait for them.
#[derive(Default)]
pub(super) struct FirstPacketState {
    next: u64,
    under_way: BTreeMap<Token, PendingPath>,
    held: BTreeMap<u64, HeldMessage>,
    held_by: Counts,
    /// The entries of the routes that are being computed or sent.
    routes_pending: Option<Token>,
    routes_sent: Option<Token>,
}

struct PendingPath {
    /// The pair whose path these entries confirm.
    pair: Option<Pair>,
    inlets: Inlets,
    /// Whether every switch has taken them.
    is_taken: bool,
    held: Vec<u64>,
}

/// A message that resolves an address, held until the entries are active.
pub(super) struct HeldMessage {
    pub at: Location,
    pub src: MacAddr,
    pub dst: MacAddr,
    pub data: Bytes,
    is_arp: bool,
    /// The number of entries that it waits for.
    missing: usize,
}

impl FirstPacketState {
    /// Returns a token for entries that are about to be sent; `pair` if they are a pair's path.
    pub(super) fn token(&mut self, pair: Option<Pair>, inlets: Inlets) -> Token {
        self.next += 1;
        let entries = PendingPath {
            pair,
            inlets,
            is_taken: false,
            held: Vec::new(),
        };
        self.under_way.insert(self.next, entries);
        self.next
    }

    /// Returns the token of the routes that are sent now.
    pub(super) fn routes_token(&mut self) -> Token {
        let pending = self.routes_pending.take();
        let token = pending.unwrap_or_else(|| self.token(None, Inlets::Every));
        self.routes_sent = Some(token);
        token
    }

    /// The token of the routes that are to be sent (`is_pending`), or that were sent and are not
    /// active.
    pub(super) fn routes_under_way(&mut self, is_pending: bool) -> Option<Token> {
        if is_pending {
            let pending = self.routes_pending;
            let token = pending.unwrap_or_else(|| self.token(None, Inlets::Every));
            self.routes_pending = Some(token);
            return Some(token);
        }
        self.routes_sent
            .filter(|token| self.under_way.contains_key(token))
    }

    /// Holds a message until none of `tokens` is under way. Returns false if none is, or too many
    /// messages are held. `is_active`: whether entries are active as soon as they are taken.
    pub(super) fn hold(
        &mut self,
        now: Instant,
        (packet, is_arp): (&Packet<'_>, bool),
        mut tokens: Vec<Token>,
        is_active: impl Fn(&Inlets) -> bool,
        outbox: &mut Outbox,
    ) -> bool {
        tokens.retain(|token| {
            let entries = self.under_way.get(token);
            entries.is_some_and(|entries| {
                let is_there = is_arp && entries.is_taken;
                !is_there || !is_active(&entries.inlets)
            })
        });
        if tokens.is_empty() {
            return false;
        }
        if self.held.len() >= HELD_MAX
            || self.held_by.of_port(packet.at) >= HELD_PER_PORT_MAX
            || self.held_by.of_switch(packet.at.dpid) >= HELD_PER_SWITCH_MAX
        {
            outbox.counters.resolutions_hold_full += 1;
            return false;
        }
        outbox.counters.resolutions_held += 1;
        self.next += 1;
        let id = self.next;
        let message = HeldMessage {
            at: packet.at,
            src: packet.src,
            dst: packet.dst,
            data: Bytes::copy_from_slice(packet.data),
            is_arp,
            missing: tokens.len(),
        };
        self.held.insert(id, message);
        self.held_by.add(packet.at);
        for token in tokens {
            if let Some(entries) = self.under_way.get_mut(&token) {
                entries.held.push(id);
            }
        }
        outbox.timer(now + HOLD_MAX, Timer::Resolution(id));
        true
    }

    /// Notes that every switch has taken the entries of this token. Returns the held ARP messages
    /// that no longer wait for the entries, if these are active at once.
    pub(super) fn handle_taken(
        &mut self,
        token: Token,
        is_active: impl Fn(&Inlets) -> bool,
    ) -> Vec<u64> {
        let Some(entries) = self.under_way.get_mut(&token) else {
            return Vec::new();
        };
        entries.is_taken = true;
        if !is_active(&entries.inlets) {
            return Vec::new();
        }
        let held = &self.held;
        let is_arp = |id: &u64| held.get(id).is_none_or(|message| message.is_arp);
        let (arp, others) = entries.held.drain(..).partition(is_arp);
        entries.held = others;
        arp
    }

    /// Notes that the entries of this token are active as far as can be known. Returns the pair
    /// whose path they are, and the messages that no longer wait for them.
    pub(super) fn handle_active(&mut self, token: Token) -> (Option<Pair>, Vec<u64>) {
        let entries = self.under_way.remove(&token);
        entries.map_or((None, Vec::new()), |entries| (entries.pair, entries.held))
    }

    /// Counts one entry fewer for a held message. Returns the message if that was the last one.
    pub(super) fn found(&mut self, id: u64) -> Option<HeldMessage> {
        let message = self.held.get_mut(&id)?;
        message.missing -= 1;
        match message.missing {
            0 => self.take(id),
            _ => None,
        }
    }

    /// Ends the hold of a message.
    pub(super) fn take(&mut self, id: u64) -> Option<HeldMessage> {
        let message = self.held.remove(&id)?;
        self.held_by.remove(message.at);
        Some(message)
    }
}
