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
//!   [`SETTLE`](super::entries::SETTLE) has passed. The answer may find an entry and never come here.
//! - When a host answers that was not known before, its answer comes here and is held the same way.
//! - So does a unicast question, by which hosts confirm what they know, when no entry leads from
//!   the one host to the other. When there is one, nothing has to be done.
//!
//! Open vSwitch's entries are active with their barriers where its datapath keeps no flow for the
//! packets to come (`cached.rs`). There the controller skips [`SETTLE`] for ARP, which IPv4
//! follows.
//!
//! Held messages are bounded in number, per port and in all, and in time. Beyond the bounds a
//! message goes at once, and is counted. Neighbour discovery (IPv6) is treated the same; its
//! questions to a multicast group are flooded.

use std::collections::BTreeMap;

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::packet::PacketFields;

use crate::edge::EdgeUpdate;
use crate::timeouts::FirstPackets;

use super::counts::Counts;
use super::facts::Facts;
use super::ingress::Inlets;
use super::links::Pair;
use super::packet::{Packet, asked_ip, is_arp, resolves};
use super::stage::{Stage, Token};
use super::{Controller, Location, Mode, Timer};

/// Maximum time that a message is held, whatever has been confirmed; hosts ask again after 1 s.
const HOLD_MAX: Duration = Duration::from_millis(500);

/// Maximum number of held messages, in all, of one port and of one switch.
const HELD_MAX: usize = 1024;
const HELD_PER_PORT_MAX: usize = 64;
const HELD_PER_SWITCH_MAX: usize = 256;

/// Maximum length of a frame that is held: a longer one resolves no address, or is not worth
/// keeping.
const FRAME_BYTES_MAX: usize = 1518;

/// A host and its place.
type End = (MacAddr, Location);

#[derive(Default)]
pub(super) struct FirstPacketState {
    next: u64,
    under_way: BTreeMap<Token, PendingPath>,
    held: BTreeMap<u64, HeldMessage>,
    held_by: Counts,
    /// The entries that the routes will bring that are being computed or sent.
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
struct HeldMessage {
    at: Location,
    src: MacAddr,
    dst: MacAddr,
    data: Bytes,
    is_arp: bool,
    /// The number of entries that it waits for.
    missing: usize,
}

impl FirstPacketState {
    /// Names entries that are about to be sent; `pair` if they are a pair's path.
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

    /// Names the routes that are sent now.
    pub(super) fn routes_token(&mut self) -> Token {
        let pending = self.routes_pending.take();
        let token = pending.unwrap_or_else(|| self.token(None, Inlets::Every));
        self.routes_sent = Some(token);
        token
    }

    fn take(&mut self, id: u64) -> Option<HeldMessage> {
        let message = self.held.remove(&id)?;
        self.held_by.remove(message.at);
        Some(message)
    }
}

impl Facts<'_> {
    fn presets(&self, pair: Pair) -> bool {
        let class = self.class_of(pair);
        let first_packets = self.timeouts.first_packets(class);
        first_packets == FirstPackets::PreInstall && self.admits(pair)
    }

    /// The inlets between two ports of one switch, where its edge sets the entries.
    fn local_inlets(&self, from: Location, to: Location) -> Inlets {
        let is_lasting = |dpid| self.tables.get(dpid).is_some_and(|t| t.has_lasting_edge());
        match is_lasting(from.dpid) && is_lasting(to.dpid) {
            true => Inlets::Ports(vec![from, to]),
            false => Inlets::Unknown,
        }
    }
}

impl Controller {
    /// Sets the missing entries between the two hosts of a message that resolves an address, and
    /// holds the message until they are active. Returns false if the message is to go on as any
    /// packet: it resolves nothing, nothing is missing, or too many are held.
    pub(super) fn hold_resolution(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        fields: &PacketFields,
        to: Location,
    ) -> bool {
        let may = to != packet.at && !packet.is_copy && packet.data.len() <= FRAME_BYTES_MAX;
        if !may || !resolves(fields) {
            return false;
        }
        let ends = ((packet.src, packet.at), (packet.dst, to));
        let tokens = self.set_both_ways(now, ends, true);
        self.hold(now, packet, is_arp(fields), tokens)
    }

    /// The same for a broadcast question, if the place of the host that will answer is known.
    pub(super) fn hold_question(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) -> bool {
        let place = |ip| {
            let mac = self.hosts.by_ip(ip).filter(|mac| *mac != packet.src)?;
            Some((mac, self.hosts.place(mac).filter(|to| *to != packet.at)?))
        };
        let asked = asked_ip(fields).filter(|_| packet.data.len() <= FRAME_BYTES_MAX);
        let Some(answerer) = asked.and_then(place) else {
            return false;
        };
        let tokens = self.set_both_ways(now, ((packet.src, packet.at), answerer), false);
        self.hold(now, packet, is_arp(fields), tokens)
    }

    /// Holds a message until none of `tokens` is under way. Returns false if none is, or too much
    /// is held.
    fn hold(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        is_arp: bool,
        mut tokens: Vec<Token>,
    ) -> bool {
        tokens.retain(|token| {
            let entries = self.first.under_way.get(token);
            entries.is_some_and(|entries| {
                let is_there = is_arp && entries.is_taken;
                !is_there
                    || !self
                        .ingress
                        .is_active_at_once(&self.network, now, &entries.inlets)
            })
        });
        if tokens.is_empty() {
            return false;
        }
        let held_by = &self.first.held_by;
        if self.first.held.len() >= HELD_MAX
            || held_by.of_port(packet.at) >= HELD_PER_PORT_MAX
            || held_by.of_switch(packet.at.dpid) >= HELD_PER_SWITCH_MAX
        {
            self.outbox.counters.resolutions_hold_full += 1;
            return false;
        }
        self.outbox.counters.resolutions_held += 1;
        self.first.next += 1;
        let id = self.first.next;
        let message = HeldMessage {
            at: packet.at,
            src: packet.src,
            dst: packet.dst,
            data: Bytes::copy_from_slice(packet.data),
            is_arp,
            missing: tokens.len(),
        };
        self.first.held.insert(id, message);
        self.first.held_by.add(packet.at);
        for token in tokens {
            if let Some(entries) = self.first.under_way.get_mut(&token) {
                entries.held.push(id);
            }
        }
        self.outbox.timer(now + HOLD_MAX, Timer::Resolution(id));
        true
    }

    /// Sets entries from one host to the other and back. Returns the names of those that are not
    /// confirmed yet. `missed`: a packet of the first host has come up for want of an entry.
    fn set_both_ways(&mut self, now: Instant, ends: (End, End), missed: bool) -> Vec<Token> {
        let ((src, from), (dst, to)) = ends;
        let facts = self.facts();
        let (forth, back) = (facts.presets((src, dst)), facts.presets((dst, src)));
        let mut tokens = Vec::new();
        if self.facts().reports() || (self.config.mode == Mode::Proactive && (forth || back)) {
            tokens.extend(self.routes_under_way());
        } else if !forth && !back {
            return tokens;
        } else if self.is_by_edge(src, from, dst, to) {
            tokens.extend(self.set_local(now, ends));
        } else if !self.is_by_fabric((src, dst), from, to) {
            if forth {
                tokens.extend(self.confirm_path(now, (src, dst), from, to, (from, missed)));
            }
            if back {
                tokens.extend(self.confirm_path(now, (dst, src), to, from, (from, false)));
            }
            tokens.extend(self.routes_under_way());
        }
        tokens
    }

    /// Sets entries between two hosts through the edges of their switches, with the timeouts of the
    /// edges' own entries, so that they expire like them. Whether they already exist is unknown.
    fn set_local(&mut self, now: Instant, ends: (End, End)) -> Option<Token> {
        let ((src, from), (dst, to)) = ends;
        let is_full = |dpid| self.tables.get(dpid).is_none_or(|table| table.is_full(now));
        if is_full(from.dpid) || is_full(to.dpid) {
            return None;
        }
        self.install_locally(now, (dst, to), (src, from));
        self.install_locally(now, (src, from), (dst, to));
        let token = self.first.token(None, self.facts().local_inlets(from, to));
        let mut stages = vec![Stage::confirm(from.dpid)];
        stages.extend((from.dpid != to.dpid).then(|| Stage::confirm(to.dpid)));
        stages.extend(Stage::tell(token));
        self.start_update(now, stages);
        Some(token)
    }

    /// Sets an entry between two hosts through the edge of the first.
    pub(super) fn install_locally(&mut self, now: Instant, from: End, to: End) {
        let ((src, at), (dst, to)) = (from, to);
        let Some(exit) = self.exit_of_edge(at, dst, to) else {
            return;
        };
        self.tell_host(src, at);
        self.tell_host(dst, to);
        let update = EdgeUpdate::Install {
            now,
            in_port: at.port,
            src,
            dst,
            exit,
        };
        self.outbox.tell_edge(at.dpid, update);
    }

    fn routes_under_way(&mut self) -> Option<Token> {
        if !self.facts().has_routes() {
            return None;
        }
        if self.routes_pending {
            let pending = self.first.routes_pending;
            let token = pending.unwrap_or_else(|| self.first.token(None, Inlets::Every));
            self.first.routes_pending = Some(token);
            return Some(token);
        }
        self.first
            .routes_sent
            .filter(|token| self.first.under_way.contains_key(token))
    }

    /// Notes that every switch has taken the entries of this name. Releases held ARP where the
    /// entries are active at once.
    pub(super) fn taken(&mut self, now: Instant, token: Token) {
        let Some(entries) = self.first.under_way.get_mut(&token) else {
            return;
        };
        entries.is_taken = true;
        let inlets = entries.inlets.clone();
        if !self.ingress.is_active_at_once(&self.network, now, &inlets) {
            return;
        }
        let Some(entries) = self.first.under_way.get_mut(&token) else {
            return;
        };
        let held = &self.first.held;
        let is_arp = |id: &u64| held.get(id).is_none_or(|message| message.is_arp);
        let (arp, others) = entries.held.drain(..).partition(is_arp);
        entries.held = others;
        self.found(now, arp);
    }

    /// Releases the messages that wait for the entries of this name, which are active as far as can
    /// be known.
    pub(super) fn release(&mut self, now: Instant, token: Token) {
        let Some(entries) = self.first.under_way.remove(&token) else {
            return;
        };
        if let Some(pair) = entries.pair {
            self.paths.confirmed(pair, token);
        }
        self.found(now, entries.held);
    }

    /// Counts one entry fewer for these held messages.
    fn found(&mut self, now: Instant, held: Vec<u64>) {
        for id in held {
            let Some(message) = self.first.held.get_mut(&id) else {
                continue;
            };
            message.missing -= 1;
            if message.missing == 0 {
                self.send_held(now, id);
            }
        }
    }

    pub(super) fn resolution_due(&mut self, now: Instant, id: u64) {
        if self.first.held.contains_key(&id) {
            self.outbox.counters.resolutions_timed_out += 1;
            self.send_held(now, id);
        }
    }

    /// Sends a held message. Its receiver may have moved or gone meanwhile.
    fn send_held(&mut self, now: Instant, id: u64) {
        let Some(message) = self.first.take(id) else {
            return;
        };
        let HeldMessage {
            at, src, dst, data, ..
        } = message;
        match self.hosts.place(dst) {
            Some(to) if to == at => {}
            Some(to) => self.send_to(at, to, &data),
            None => {
                let packet = Packet {
                    at,
                    src,
                    dst,
                    buffer_id: None,
                    data: &data,
                    is_copy: false,
                };
                self.answer_or_spread(now, &packet);
            }
        }
    }
}
