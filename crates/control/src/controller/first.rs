//! Keeping first packets off the way over the controller.
//!
//! A packet that misses goes up, and out again at its destination; those behind it do the same until
//! its entry is active, and the first that finds the entry overtakes all that are still on the way:
//! about rate × delay packets arrive out of order. The cure is that the first packet of a
//! conversation finds its entry.
//!
//! *Before the conversation.* Two hosts that want to talk ask for each other's address first. Which
//! message of that passes here:
//!
//! - A broadcast question always does, since nothing floods without the controller. If it is for a
//!   host whose place is known, the entries of both directions are set, from the destination to the
//!   ingress, and the question is held until every switch has confirmed them and [`SETTLE`] has
//!   passed on top. The answer may find an entry and never pass here.
//! - When a host answers that was not known before, its answer passes here, and is held the same.
//! - So is a unicast question, by which hosts confirm what they know, when no entry leads from the
//!   one host to the other. When there is one, nothing has to be done.
//!
//! Open vSwitch's entries are active with their barriers where its datapath keeps no flow for the
//! packets to come (`cached.rs`); there [`SETTLE`] is left out, for ARP, which IPv4 follows.
//!
//! What is held is bounded in number, per port and in all, and in time; beyond the bounds it goes at
//! once, and is counted. Neighbour discovery (IPv6) is treated the same; its questions to a multicast
//! group are flooded.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use clock::{Duration, Instant};
use openflow::packet::PacketFields;
use openflow::{Field, MacAddr};

use crate::edge::EdgeUpdate;
use crate::timeouts::FirstPackets;

use super::cached::Inlets;
use super::counts::Counts;
use super::forwarding::Packet;
use super::paths::Pair;
use super::updates::Stage;
use super::{Controller, Location, Mode, Timer};

/// After the last barrier. A barrier reply is no proof that an entry is active: on Open vSwitch the
/// next packet took the old way for up to 17 ms, where a flow was kept for it.
pub(super) const SETTLE: Duration = Duration::from_millis(20);

/// A held message goes after this long whatever has been confirmed; hosts ask again after 1 s.
const HOLD_MAX: Duration = Duration::from_millis(500);

/// Messages that may be held, in all, of one port and of one switch.
const HELD_MAX: usize = 1024;
const HELD_PER_PORT_MAX: usize = 64;
const HELD_PER_SWITCH_MAX: usize = 256;

/// A longer frame is no resolution of addresses, or not one worth keeping.
const FRAME_BYTES_MAX: usize = 1518;

/// A host and its place.
type End = (MacAddr, Location);

/// Names entries that are under way.
pub(super) type Token = u64;

#[derive(Default)]
pub(super) struct FirstPacketState {
    next: u64,
    under_way: BTreeMap<Token, UnderWay>,
    held: BTreeMap<u64, HeldMessage>,
    held_by: Counts,
    /// For what the routes that are to be computed, or are on their way, will bring.
    routes_pending: Option<Token>,
    routes_sent: Option<Token>,
}

struct UnderWay {
    /// Whose path is confirmed with it.
    pair: Option<Pair>,
    inlets: Inlets,
    /// Every switch has taken them.
    is_taken: bool,
    held: Vec<u64>,
}

/// A message that resolves an address, until the entries are there.
struct HeldMessage {
    at: Location,
    src: MacAddr,
    dst: MacAddr,
    data: Bytes,
    is_arp: bool,
    /// Entries that it waits for.
    missing: usize,
}

impl FirstPacketState {
    /// A name for entries that are about to be sent, of a pair's path if it is one.
    pub(super) fn token(&mut self, pair: Option<Pair>, inlets: Inlets) -> Token {
        self.next += 1;
        let entries = UnderWay {
            pair,
            inlets,
            is_taken: false,
            held: Vec::new(),
        };
        self.under_way.insert(self.next, entries);
        self.next
    }

    /// For the routes that are sent now.
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

impl Controller {
    /// Sets what is missing between the two hosts of a message that resolves an address, and holds
    /// the message until it is there. False if it is to go on as any packet: it is none, or nothing
    /// is missing, or too many are held.
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

    /// The same for a question to everybody, if it is known where he is who will answer.
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

    fn presets(&self, pair: Pair) -> bool {
        let class = self.class_of(pair);
        let first_packets = self.config.timeouts.first_packets(class);
        first_packets == FirstPackets::PreInstall && self.admits(pair)
    }

    /// Until none of `tokens` is under way; false if none is, or too much is held.
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
                !is_there || !self.is_active_at_once(now, &entries.inlets)
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
            self.counters.resolutions_hold_full += 1;
            return false;
        }
        self.counters.resolutions_held += 1;
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
        self.timer(now + HOLD_MAX, Timer::Resolution(id));
        true
    }

    /// Entries from one host to another and back. What is named is not confirmed yet. `missed`: a
    /// packet of the one has come up for want of an entry.
    fn set_both_ways(&mut self, now: Instant, ends: (End, End), missed: bool) -> Vec<Token> {
        let ((src, from), (dst, to)) = ends;
        let (forth, back) = (self.presets((src, dst)), self.presets((dst, src)));
        let mut tokens = Vec::new();
        if self.reports() || (self.config.mode == Mode::Proactive && (forth || back)) {
            tokens.extend(self.routes_under_way());
        } else if !forth && !back {
            return tokens;
        } else if self.is_by_edge(src, from, dst, to) {
            tokens.extend(self.set_local(now, ends));
        } else {
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

    /// Between two hosts of one switch: entries as its edge sets them, and by it, so that they are
    /// forgotten by everybody as all of their kind are. Nobody knows whether they are there already.
    fn set_local(&mut self, now: Instant, ends: (End, End)) -> Option<Token> {
        let ((src, from), (dst, to)) = ends;
        let dpid = from.dpid;
        let is_full = self.switches.get(&dpid)?.full_until > now;
        if is_full {
            return None;
        }
        self.install_locally(now, (dst, to), (src, from));
        self.install_locally(now, (src, from), (dst, to));
        let token = self.first.token(None, self.local_inlets(from, to));
        let told = Stage::tell(token).into_iter();
        let stages = std::iter::once(Stage::confirm(dpid)).chain(told);
        self.start_update(now, stages.collect());
        Some(token)
    }

    /// An entry between two hosts of one switch, by its edge.
    pub(super) fn install_locally(&mut self, now: Instant, from: End, to: End) {
        let ((src, at), (dst, to)) = (from, to);
        self.tell_host(src, at);
        self.tell_host(dst, to);
        let update = EdgeUpdate::Install {
            now,
            in_port: at.port,
            src,
            dst,
            out_port: to.port,
        };
        self.tell_edge(at.dpid, update);
    }

    fn routes_under_way(&mut self) -> Option<Token> {
        if !self.has_routes() {
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

    /// Every switch has taken the entries of this name. Who waits for them on the way that they are
    /// active on goes.
    pub(super) fn taken(&mut self, now: Instant, token: Token) {
        let Some(entries) = self.first.under_way.get_mut(&token) else {
            return;
        };
        entries.is_taken = true;
        let inlets = entries.inlets.clone();
        if !self.is_active_at_once(now, &inlets) {
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

    /// The entries of this name are active as far as can be known.
    pub(super) fn release(&mut self, now: Instant, token: Token) {
        let Some(entries) = self.first.under_way.remove(&token) else {
            return;
        };
        if let Some(pair) = entries.pair {
            self.paths.confirmed(pair, token);
        }
        self.found(now, entries.held);
    }

    /// One of the entries that they wait for.
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
            self.counters.resolutions_timed_out += 1;
            self.send_held(now, id);
        }
    }

    /// Its receiver may have moved or gone meanwhile.
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
                self.spread(now, &packet);
            }
        }
    }
}

/// Whether it is of ARP or IPv6 neighbour discovery.
fn resolves(fields: &PacketFields) -> bool {
    const NEIGHBOUR_SOLICITATION: u128 = 135;
    const NEIGHBOUR_ADVERTISEMENT: u128 = 136;
    let kind = fields.get(Field::Icmpv6Type);
    is_arp(fields) || matches!(kind, Some(NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT))
}

fn is_arp(fields: &PacketFields) -> bool {
    fields.get(Field::ArpOp).is_some()
}

/// Whose address a broadcast ARP request asks for, if it is one before a conversation: a host that
/// tells of itself asks for its own, and one that looks whether an address is free has none.
fn asked_ip(fields: &PacketFields) -> Option<IpAddr> {
    const REQUEST: u128 = 1;
    let ip = |field| fields.get(field).map(|ip| Ipv4Addr::from(ip as u32));
    let (asker, asked) = (ip(Field::ArpSpa)?, ip(Field::ArpTpa)?);
    let asks = fields.get(Field::ArpOp) == Some(REQUEST);
    (asks && !asker.is_unspecified() && asker != asked).then_some(IpAddr::V4(asked))
}
