//! Questions for IP addresses that reach the controller. The controller sets the entries of the
//! conversations that the questions precede, and holds the questions meanwhile ([`super::first`]).
//! With the fabric, it answers for known hosts, and floods a question for any other host once in a
//! while.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::MacAddr;
use openflow::packet::PacketFields;

use crate::edge::resolve::{Reply, reply};
use crate::timeouts::FirstPackets;

use super::facts::Facts;
use super::first::HeldMessage;
use super::ingress::Inlets;
use super::links::Pair;
use super::packet::{Packet, asked_ip, is_arp, resolves};
use super::stage::{Stage, Token};
use super::{Controller, Location, Mode};

/// Minimum time between two floods of the same question. Hosts ask again after a second.
const ASK_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of questions remembered for this interval. Beyond it every question is flooded,
/// within the budgets of its port.
const ASKED_MAX: usize = 4096;

/// Maximum length of a frame that is held: a longer one resolves no address, or is not worth
/// keeping.
const FRAME_BYTES_MAX: usize = 1518;

/// A host and its place.
type End = (MacAddr, Location);

type Question = (MacAddr, IpAddr);

/// Questions that were flooded a moment ago.
#[derive(Default)]
pub(super) struct Flooded {
    questions: BTreeSet<Question>,
    /// The same, oldest first.
    in_order: VecDeque<(Instant, Question)>,
}

impl Flooded {
    /// Whether a question may be flooded now.
    fn may_flood(&mut self, now: Instant, question: Question) -> bool {
        while let Some((_, old)) = self
            .in_order
            .pop_front_if(|(at, _)| now.since(*at) >= ASK_INTERVAL)
        {
            self.questions.remove(&old);
        }
        if self.questions.contains(&question) {
            return false;
        }
        if self.in_order.len() < ASKED_MAX {
            self.questions.insert(question);
            self.in_order.push_back((now, question));
        }
        true
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
    /// Handles a packet for all hosts, or for an unknown host.
    pub(super) fn handle_for_all(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) {
        let asked = asked_ip(fields);
        let is_answered = asked.is_some() && self.answer_to(packet).is_some();
        if self.fabric.is_on()
            && !is_answered
            && let Some(ip) = asked
            && !self.flooded.may_flood(now, (packet.src, ip))
        {
            self.outbox.counters.questions_repeated += 1;
            return;
        }
        // The answer to an IPv6 question must reach the controller, since it shows whether its
        // sender is a router. It would match an entry that was set before.
        let asked = asked.filter(|ip| ip.is_ipv4() || is_answered);
        if self.ingress.may_flood(now, packet.at, &mut self.outbox)
            && !asked.is_some_and(|ip| self.hold_question(now, packet, is_arp(fields), ip))
        {
            self.answer_or_spread(now, packet);
        }
    }

    /// Answers a question in place of the requested host, or sends the packet to all hosts.
    pub(super) fn answer_or_spread(&mut self, now: Instant, packet: &Packet<'_>) {
        match self.answer_to(packet) {
            Some(reply) => {
                let at = packet.at;
                self.outbox.counters.questions_answered += 1;
                self.outbox.packet_out(at.dpid, &[at.port], &reply.frame);
            }
            None => self.spread(now, packet),
        }
    }

    /// The answer for a host at another place that has the requested address. A class may forbid a
    /// host to learn of another, so hosts in classes answer for themselves.
    fn answer_to(&self, packet: &Packet<'_>) -> Option<Reply> {
        if !self.fabric.is_on() {
            return None;
        }
        let reply = reply(packet.data, self.hosts.addresses())?;
        let to = self.hosts.place(reply.owner)?;
        let is_free =
            !self.facts().is_in_class(packet.src) && !self.facts().is_in_class(reply.owner);
        let parts = &self.network.parts;
        let is_apart = parts.are_apart(self.outbox.now, packet.at.dpid, to.dpid);
        (to != packet.at && is_free && !is_apart).then_some(reply)
    }

    /// Sets the missing entries between the two hosts of a message that resolves an address, and
    /// holds the message until they are active. Returns false if the message is to be forwarded
    /// like any packet: it resolves nothing, no entry is missing, or too many messages are held.
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

    /// Does the same for a broadcast question, if the place of the host that will answer is known.
    fn hold_question(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        is_arp: bool,
        asked: IpAddr,
    ) -> bool {
        let owner = self.hosts.by_ip(asked).filter(|mac| *mac != packet.src);
        let place = |mac| Some((mac, self.hosts.place(mac).filter(|to| *to != packet.at)?));
        let answerer = owner.and_then(place);
        let Some(answerer) = answerer.filter(|_| packet.data.len() <= FRAME_BYTES_MAX) else {
            return false;
        };
        let tokens = self.set_both_ways(now, ((packet.src, packet.at), answerer), false);
        self.hold(now, packet, is_arp, tokens)
    }

    /// Holds a message until none of `tokens` is under way. Returns false if none is, or too much
    /// is held.
    fn hold(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        is_arp: bool,
        tokens: Vec<Token>,
    ) -> bool {
        let (ingress, net) = (&self.ingress, &self.network);
        let is_active = |inlets: &Inlets| ingress.is_active_at_once(net, now, inlets);
        let outbox = &mut self.outbox;
        self.first
            .hold(now, (packet, is_arp), tokens, is_active, outbox)
    }

    /// Sets entries from one host to the other and back. Returns the names of unconfirmed entries.
    /// `missed`: a packet of the first host has reached the controller for lack of an entry.
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

    fn routes_under_way(&mut self) -> Option<Token> {
        let is_pending = self.routes.is_pending();
        match self.facts().has_routes() {
            true => self.first.routes_under_way(is_pending),
            false => None,
        }
    }

    /// Notes that every switch has accepted the entries of this name. Releases held ARP where the
    /// entries are active at once.
    pub(super) fn taken(&mut self, now: Instant, token: Token) {
        let (ingress, net) = (&self.ingress, &self.network);
        let is_active = |inlets: &Inlets| ingress.is_active_at_once(net, now, inlets);
        let held = self.first.handle_taken(token, is_active);
        self.found(now, held);
    }

    /// Releases the messages that wait for the entries of this name, which are active as far as can
    /// be known.
    pub(super) fn release(&mut self, now: Instant, token: Token) {
        let (pair, held) = self.first.handle_active(token);
        if let Some(pair) = pair {
            self.paths.confirmed(pair, token);
        }
        self.found(now, held);
    }

    /// Counts one entry fewer for these held messages.
    fn found(&mut self, now: Instant, held: Vec<u64>) {
        for id in held {
            if let Some(message) = self.first.found(id) {
                self.send_held(now, message);
            }
        }
    }

    pub(super) fn resolution_due(&mut self, now: Instant, id: u64) {
        if let Some(message) = self.first.take(id) {
            self.outbox.counters.resolutions_timed_out += 1;
            self.send_held(now, message);
        }
    }

    /// Sends a held message. Its receiver may have moved or gone meanwhile.
    fn send_held(&mut self, now: Instant, message: HeldMessage) {
        let HeldMessage {
            at, src, dst, data, ..
        } = message;
        match self.hosts.place(dst) {
            Some(to) if to == at => {}
            Some(to) => self.send_to(at, to, &data),
            None => {
                let packet = Packet {
                    at,
                    in_port: at.port,
                    src,
                    dst,
                    buffer_id: None,
                    data: &data,
                    is_copy: false,
                    is_labelled: false,
                };
                self.answer_or_spread(now, &packet);
            }
        }
    }
}
