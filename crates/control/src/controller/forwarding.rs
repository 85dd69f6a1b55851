//! Forwards the packets that switches send to the controller.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use clock::Instant;
use openflow::message::PacketIn;
use openflow::packet::{PacketFields, lacp};
use openflow::{DatapathId, MacAddr};

use crate::edge;
use crate::entry::{ETH_TYPE_LLDP, EntryKey, is_report, is_tap};
use crate::fabric::Label;
use crate::guest;
use crate::pipeline::LABEL_TABLE;
use crate::timeouts::HostName;
use crate::vlan::{self, HostKey, VlanId};

use super::ageing::is_active;
use super::bpdu::ClosedBy;
use super::fabric::Delivery;
use super::hosts::{AddressVerdict, Answer, OWN_MAC, Observed};
use super::ingress::Flooding;
use super::links::Pair;
use super::mending::Cause;
use super::packet::{Held, Packet, is_link_local, other_sender, says_router, sender_ip};
use super::port_state::PortRole;
use super::vlans::hosts_of;
use super::{Alarm, Controller, Event, Location, Mode, Timer};

/// Maximum number of waiting packets from held ports, over all switches, and of one switch and one
/// port.
const HELD_MAX: usize = 4096;
const HELD_PER_SWITCH_MAX: usize = 1024;
const HELD_PER_PORT_MAX: usize = 256;
/// Short packets that a port may have waiting, whatever other ports have: a host's first
/// announcement is not lost to a flood elsewhere. In all, no more than twice `HELD_MAX` packets
/// wait.
const HELD_PER_PORT_MIN: usize = 4;
const HELD_SHORT_LEN: usize = 256;

impl Controller {
    /// Handles a packet-in. Its reason is ignored: Open vSwitch sets ACTION for a packet that came
    /// over a patch port from a packet-out and missed.
    pub(super) fn handle_packet_in(&mut self, now: Instant, dpid: DatapathId, packet_in: PacketIn) {
        self.outbox.counters.packet_ins += 1;
        let in_port = packet_in.r#match.in_port();
        let Some(port) = in_port.filter(|port| port.is_ordinary()) else {
            self.outbox.counters.packet_ins_no_port += 1;
            return;
        };
        let at = Location { dpid, port };
        if is_tap(packet_in.cookie) {
            return self.handle_tapped(now, at, packet_in);
        }
        if guest::of_cookie(packet_in.cookie).is_some() {
            let outbox = &mut self.outbox;
            return self.guests.handle_packet_in(at, packet_in, outbox);
        }
        let fields = PacketFields::parse(port, &packet_in.data);
        if fields.eth_type() == Some(ETH_TYPE_LLDP) {
            return self.handle_lldp(now, at, &packet_in);
        }
        if !self.config.is_forwarding {
            self.outbox.counters.packet_ins_not_forwarded += 1;
            return;
        }
        if lacp::is_lacp(&packet_in.data) && self.handle_lacp(now, at, &packet_in.data) {
            return;
        }
        if let Some(dst) = fields.eth_dst().filter(|dst| is_link_local(*dst)) {
            return self.handle_link_local(now, at, dst, &packet_in);
        }
        if !self.bonding.is_open(&self.outbox.bonds, at) {
            self.outbox.counters.packets_bond_closed += 1;
            return;
        }
        if !self.follow_dhcp(now, at, &packet_in, &fields) {
            return;
        }
        let at = self.outbox.bonds.place(at);
        let is_shown = packet_in.reason == edge::SHOWN;
        // A shown question, which goes to a group, stands for questions only.
        let is_for_others = is_shown && !fields.eth_dst().is_some_and(MacAddr::is_multicast);
        self.ingress
            .note_packet(now, at, &packet_in.data, is_for_others);
        if is_shown {
            return self.learn_from(now, at, packet_in, &fields);
        }
        if !self.updates.has_room() {
            self.outbox.counters.packet_ins_shed_busy += 1;
            return;
        }
        let is_copy = is_report(packet_in.cookie);
        self.outbox.counters.packet_ins_copied += u64::from(is_copy);
        if packet_in.data.len() < usize::from(packet_in.total_len) && !is_copy {
            self.outbox.counters.packet_ins_truncated += 1;
            return;
        }
        match self.network.role(at) {
            PortRole::Gone => self.outbox.counters.packet_ins_no_port += 1,
            // The packet itself is on its way, and the next packet shows the controller the same.
            PortRole::Held | PortRole::Link | PortRole::Silent | PortRole::Claimed if is_copy => {}
            PortRole::Held if self.is_hold_full(at, packet_in.data.len()) => {
                self.outbox.counters.packet_ins_hold_full += 1;
            }
            role => {
                let (buffer_id, data) = (packet_in.buffer_id, packet_in.data);
                let is_labelled = packet_in.table_id == LABEL_TABLE;
                if let Some(label) = vlan::outer_id(&data).filter(|_| is_labelled) {
                    let label = Label(label);
                    self.fabric.handle_tree_miss(at, label, &mut self.outbox);
                }
                let packet = Held {
                    at,
                    in_port: port,
                    buffer_id,
                    data,
                    is_copy,
                    is_labelled,
                };
                self.handle_packet(now, role, packet, &fields);
            }
        }
    }

    /// Learns from a packet that the edge of its switch has forwarded.
    fn learn_from(
        &mut self,
        now: Instant,
        at: Location,
        packet_in: PacketIn,
        fields: &PacketFields,
    ) {
        self.edge_has_shown(now, at.dpid);
        let (buffer_id, data) = (packet_in.buffer_id, packet_in.data);
        let held = Held {
            at,
            in_port: at.port,
            buffer_id,
            data,
            is_copy: true,
            is_labelled: false,
        };
        self.learn_held(now, held, fields);
    }

    /// Learns from a packet that is forwarded without the controller.
    pub(super) fn learn_held(&mut self, now: Instant, held: Held, fields: &PacketFields) {
        if self.network.role(held.at) != PortRole::Edge {
            return;
        }
        match self.vlan_of(PortRole::Edge, &held) {
            Some(VlanId::NONE) => {
                if let Some(packet) = Packet::read(&held, fields) {
                    self.observe(now, VlanId::NONE, &packet, fields);
                }
            }
            Some(vlan) => self.learn_member(now, vlan, held),
            None => {}
        }
    }

    /// Handles the packets that waited for ports that are no longer held.
    pub(super) fn hold_over(&mut self, now: Instant) {
        let net = &self.network;
        let waits = |packet: &Held| net.role(packet.at) == PortRole::Held;
        let all = std::mem::take(&mut self.held).into_iter();
        let (held, ready): (VecDeque<Held>, VecDeque<Held>) = all.partition(waits);
        self.held = held;
        for packet in ready {
            self.in_hand = Some(packet.at.dpid);
            self.held_by.remove(packet.at);
            let fields = PacketFields::parse(packet.at.port, &packet.data);
            self.handle_packet(now, self.network.role(packet.at), packet, &fields);
        }
        self.in_hand = None;
        self.refresh_coarse(now);
        self.routes_soon(now);
        self.adopt_soon(now);
    }

    fn is_hold_full(&self, at: Location, len: usize) -> bool {
        let (of_port, of_switch) = (self.held_by.of_port(at), self.held_by.of_switch(at.dpid));
        let is_announcement = of_port < HELD_PER_PORT_MIN && len <= HELD_SHORT_LEN;
        if is_announcement {
            return self.held.len() >= 2 * HELD_MAX;
        }
        of_port >= HELD_PER_PORT_MAX
            || of_switch >= HELD_PER_SWITCH_MAX
            || self.held.len() >= HELD_MAX
    }

    fn handle_packet(&mut self, now: Instant, role: PortRole, held: Held, fields: &PacketFields) {
        if role == PortRole::Gone {
            self.outbox.counters.packet_ins_no_port += 1;
            return;
        }
        if role == PortRole::Held {
            self.held_by.add(held.at);
            self.held.push_back(held);
            return;
        }
        let Some(vlan) = self.vlan_of(role, &held) else {
            self.outbox.counters.packets_vlan_refused += 1;
            return;
        };
        if !vlan.is_none() {
            self.handle_member(now, vlan, role, held);
        } else if let Some(packet) = Packet::read(&held, fields) {
            match role {
                PortRole::Claimed => self.handle_at_claimed(now, &packet, fields),
                PortRole::Link | PortRole::Silent => self.handle_on_link(now, &packet, fields),
                _ => self.handle_at_edge(now, &packet, fields),
            }
        } else {
            self.outbox.counters.packet_ins_no_sender += 1;
        }
    }

    fn handle_at_edge(&mut self, now: Instant, packet: &Packet<'_>, fields: &PacketFields) {
        if self.is_forged(now, packet, fields) {
            return;
        }
        if !self.observe(now, VlanId::NONE, packet, fields) {
            return self.follow_echo(now, VlanId::NONE, packet);
        }
        if packet.dst == OWN_MAC {
            return;
        }
        if self.facts().guards_from((packet.src, packet.dst), fields) {
            self.outbox.counters.packets_forbidden += 1;
            return;
        }
        if self
            .facts()
            .forbids_packet((packet.src, packet.dst), fields)
        {
            return self.bar(now, packet);
        }
        match self.hosts.place(packet.dst) {
            // The receiver has just lost its place: the switch has sent the packet there already.
            None if packet.is_copy => {}
            Some(to) if !packet.dst.is_multicast() => {
                if !self.hold_resolution(now, packet, fields, to) {
                    self.deliver(now, packet, to);
                }
            }
            _ if self.handle_multicast(now, VlanId::NONE, (packet, packet.data), fields) => {}
            _ => self.handle_for_all(now, packet, fields),
        }
    }

    /// Handles a packet at a port that LLDP marks as no edge, though hosts may have been there.
    /// Known hosts are served; nothing new is learned.
    fn handle_at_claimed(&mut self, now: Instant, packet: &Packet<'_>, fields: &PacketFields) {
        let place = self.hosts.place(packet.src);
        if place == Some(packet.at) {
            self.network.links.disturb(now, packet.at);
            return self.handle_at_edge(now, packet, fields);
        }
        if place.is_none() && !self.network.is_port_address(packet.src) {
            self.network.links.disturb(now, packet.at);
        }
        if place.is_some() && !packet.dst.is_multicast() {
            return self.handle_on_link(now, packet, fields);
        }
        self.outbox.counters.packet_ins_claimed += 1;
    }

    /// Handles a packet that misses an entry half-way along its path. Sends it to its destination,
    /// and mends the path. Learns nothing: its sender is not at this port.
    fn handle_on_link(&mut self, now: Instant, packet: &Packet<'_>, fields: &PacketFields) {
        if packet.dst.is_multicast() {
            // Multicasts travel along trees alone: this one is of a tree that has ended, or of
            // another party.
            self.outbox.counters.packet_ins_broadcast_on_link += 1;
            return;
        }
        if self.is_forged(now, packet, fields) {
            return;
        }
        let pair = (packet.src, packet.dst);
        if self.facts().guards_from(pair, fields) || self.facts().forbids_packet(pair, fields) {
            self.outbox.counters.packets_forbidden += 1;
            return;
        }
        let ends = [packet.src, packet.dst].map(HostKey::untagged);
        let labelled = (packet.at, ends[0], ends[1]);
        self.fabric
            .correct_ingress(&self.hosts, now, labelled, &mut self.outbox);
        let Some(to) = self.hosts.place(packet.dst) else {
            let label = vlan::outer_id(packet.data).filter(|_| packet.is_labelled);
            if label.is_some_and(|label| self.fabric.vlan_of(label).is_none()) {
                // The packet is on its way to all ports along a tree that has just ended.
                self.outbox.counters.packet_ins_broadcast_on_link += 1;
                return;
            }
            return self.flood(now, packet);
        };
        if self.config.mode == Mode::Reactive
            && let Some(from) = self.hosts.place(packet.src)
            && !self.is_by_edge(packet.src, from, packet.dst, to)
            && !self.is_by_fabric((packet.src, packet.dst), from, to)
        {
            self.ensure_path(now, packet.src, packet.dst, from, to);
        }
        // Behind a hidden link the packet may arrive here again.
        if !self.ingress.may_carry_half_way(now, packet.at) {
            self.outbox.counters.packet_ins_half_way_limited += 1;
            return;
        }
        self.send_to(packet.at, to, packet.data);
    }

    /// Learns from a packet at an edge port. Returns whether its sender may use the network from
    /// there.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        vlan: VlanId,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) -> bool {
        let (mac, at) = (packet.src, packet.at);
        let host = HostKey { vlan, mac };
        let is_outside = vlan.is_none();
        // If others take all room, each packet would count as one of a new host.
        let has_share = self.crowds.over_share(at).is_some();
        let is_new = hosts_of!(self, vlan)
            .is_some_and(|hosts| !hosts.is_known(mac) && (has_share || !hosts.is_full()));
        if is_new && self.crowds.is_flood(now, at) {
            self.close_port(now, at, ClosedBy::Crowd);
            return false;
        }
        if !self.has_room(now, host, at) {
            self.tell_forgotten(now, vlan);
            self.outbox.counters.packet_ins_host_table_full += 1;
            return false;
        }
        let (paths, net) = (&self.paths, &self.network);
        let home_gone = |home: Location| !net.is_open(home);
        let is_active = |mac| is_outside && is_active(paths, net)(mac);
        let Some(hosts) = hosts_of!(self, vlan) else {
            return false;
        };
        let before = hosts.place(mac);
        let observed = hosts.observe(now, mac, at, home_gone, is_active);
        let is_there = matches!(
            observed,
            Observed::Home | Observed::Placed | Observed::Defended { .. }
        );
        let ip = sender_ip(fields, mac).filter(|_| is_there);
        let owns = ip.is_none_or(|ip| self.host_tells(now, host, at, ip, before.is_some()));
        if let Some(is_router) = says_router(fields, packet.data).filter(|_| is_there)
            && let Some(hosts) = hosts_of!(self, vlan)
        {
            hosts.note_router(mac, is_router);
        }
        if ip.is_some() && is_outside {
            let is_kept = self.facts().is_in_class(mac) || self.is_in_qos(mac);
            self.hosts.set_kept(mac, is_kept);
        }
        self.tell_forgotten(now, vlan);
        // The kernel of a switch's machine sends packets of its own out of its ports, also over
        // cables.
        if is_there && !self.network.is_port_address(mac) {
            self.network.handle_host(now, at);
        }
        if is_there && is_outside && !self.outbox.bonds.contains(at) {
            let ip = ip.filter(|_| owns).map(HostName::Ip);
            let names = [Some(HostName::Mac(mac)), ip];
            self.with_qos(|qos, around| qos.qos_host(around, now, names.into_iter().flatten(), at));
        }
        let may_use = match observed {
            Observed::Home => true,
            Observed::Placed => {
                match before {
                    Some(from) => self.host_moved(now, host, from, at),
                    None => {
                        self.outbox.event(Event::HostLearned { mac, vlan, at });
                        self.routes_soon(now);
                    }
                }
                self.tell(host, at);
                self.age_soon(now);
                true
            }
            Observed::Defended { claimant, alarm } => {
                self.unlift(now, mac, at);
                if alarm {
                    self.outbox.alarm(Alarm::HostSpoofed {
                        mac,
                        home: at,
                        at: claimant,
                    });
                }
                true
            }
            Observed::Contested { ask } => {
                if let Some(question) = ask
                    && let Some(hosts) = hosts_of!(self, vlan)
                {
                    hosts.ask_claimed(mac, &question, &mut self.outbox);
                }
                self.outbox.counters.packet_ins_contested += 1;
                false
            }
            Observed::Rejected { alarm } => {
                if let Some(home) = before.filter(|_| alarm) {
                    self.outbox.alarm(Alarm::HostSpoofed { mac, home, at });
                }
                self.outbox.counters.packet_ins_contested += 1;
                false
            }
            Observed::TooManyMoves { alarm } => {
                if alarm {
                    self.outbox.alarm(Alarm::HostMovesTooOften { mac });
                }
                self.outbox.counters.packet_ins_contested += 1;
                false
            }
            Observed::Full => {
                self.outbox.counters.packet_ins_host_table_full += 1;
                false
            }
        };
        if !owns && self.config.arp_inspection {
            self.outbox.counters.address_claims_dropped += 1;
            return false;
        }
        may_use
    }

    /// Sends a packet to a known host, and sets a path for the packets after it.
    fn deliver(&mut self, now: Instant, packet: &Packet<'_>, to: Location) {
        if to == packet.at {
            // Both hosts are behind one port and reach each other there.
            return;
        }
        if self.has_no_way(packet.at.dpid, to.dpid) {
            return;
        }
        if self.is_by_edge(packet.src, packet.at, packet.dst, to) {
            return self.deliver_locally(now, packet, to);
        }
        if self.is_by_fabric((packet.src, packet.dst), packet.at, to) {
            if !self.ingress.may_detour(now, packet.at) {
                self.outbox.counters.packet_ins_detour_limited += 1;
            } else if !packet.is_copy {
                self.send_to(packet.at, to, packet.data);
            }
            return;
        }
        if self.config.mode != Mode::Proactive
            && !self.ensure_path(now, packet.src, packet.dst, packet.at, to)
            && !self.ingress.may_detour(now, packet.at)
        {
            self.outbox.counters.packet_ins_detour_limited += 1;
            return;
        }
        if !packet.is_copy {
            self.send_to(packet.at, to, packet.data);
        }
    }

    /// Whether the fabric is to carry the packets after this one.
    pub(super) fn is_by_fabric(&self, (src, dst): Pair, from: Location, to: Location) -> bool {
        self.fabric.will_lead(from.dpid, HostKey::untagged(dst), to)
            && !self.facts().is_in_class(src)
            && !self.facts().is_in_class(dst)
            && !self.qos.leads_on(from.dpid)
    }

    fn flood(&mut self, now: Instant, packet: &Packet<'_>) {
        let outbox = &mut self.outbox;
        if self.ingress.may_flood(now, packet.at, outbox) {
            self.spread(now, packet);
        }
    }

    /// Sends a packet out of every other edge port, within the budgets.
    pub(super) fn spread(&mut self, now: Instant, packet: &Packet<'_>) {
        let home = self.hosts.place(packet.src);
        let what = (packet.at, packet.data);
        self.spread_in(now, VlanId::NONE, what, home);
    }

    /// Sends a packet of a VLAN, or outside of all VLANs, out of every edge port except its own and
    /// its sender's (`home`), within the budgets of packet-outs.
    pub(super) fn spread_in(
        &mut self,
        now: Instant,
        vlan: VlanId,
        what: (Location, &bytes::Bytes),
        home: Option<Location>,
    ) {
        let delivery = self.delivery(vlan);
        let (net, outbox) = (&self.network, &mut self.outbox);
        let delivery = delivery.as_deref();
        let how = (home, Flooding { vlan, delivery });
        if let Some(source) = self.ingress.spread(net, now, what, how, outbox) {
            self.note_hidden_way(now, source, what.0);
            let outbox = &mut self.outbox;
            // There is an unknown link, and one of its ends is among these ports.
            for at in [source, what.0] {
                self.discovery.probe(now, at, outbox);
            }
        }
    }

    /// Notes the source of a packet whose sender is not at its port, if the packet has just been
    /// sent out of all ports.
    pub(super) fn follow_echo(&mut self, now: Instant, vlan: VlanId, packet: &Packet<'_>) {
        let (net, what) = (&self.network, (packet.at, packet.data));
        if let Some(source) = self.ingress.echo_source(net, now, vlan, what) {
            self.note_hidden_way(now, source, packet.at);
        }
    }

    /// Sends a frame of ours out of every edge port of a VLAN, or outside of all VLANs.
    pub(super) fn send_to_all(&mut self, vlan: VlanId, frame: &bytes::Bytes) {
        let delivery = self.delivery(vlan);
        let (net, outbox) = (&self.network, &mut self.outbox);
        let delivery = delivery.as_deref();
        self.ingress
            .send_to_all(net, frame, Flooding { vlan, delivery }, outbox);
    }

    /// The delivery by trees of packets for all hosts of a VLAN, or outside of all VLANs.
    pub(super) fn delivery(&mut self, vlan: VlanId) -> Option<Arc<Delivery>> {
        let (net, ingress) = (&self.network, &mut self.ingress);
        self.fabric.delivery(vlan, net, ingress, &mut self.outbox)
    }

    /// Sends a packet out at the destination's own switch. While that is disconnected, sends it one
    /// hop on from here: the entries there may still exist.
    pub(super) fn send_to(&mut self, at: Location, to: Location, data: &[u8]) {
        if self.has_no_way(at.dpid, to.dpid) {
            return;
        }
        if self.network.is_connected(to.dpid) {
            return self.outbox.packet_out(to.dpid, &[to.port], data);
        }
        let distances = self.network.links.distances(to.dpid, |_| true);
        match self.network.links.next_port(at.dpid, &distances, 0) {
            Some(port) if port != at.port => self.outbox.packet_out(at.dpid, &[port], data),
            _ => self.outbox.counters.unreachable += 1,
        }
    }

    /// Whether a message of ARP or neighbour discovery names another hardware address than its
    /// frame's.
    pub(super) fn is_forged(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) -> bool {
        let Some(said) = other_sender(fields, packet.src) else {
            return false;
        };
        self.outbox.counters.senders_forged += 1;
        let (at, mac) = (packet.at, packet.src);
        if self.ingress.handle_forged(now, at) {
            self.outbox.alarm(Alarm::SenderForged { at, mac, said });
        }
        true
    }

    /// Notes that a host at its place claims an address as its own. Returns whether it owns that
    /// address.
    fn host_tells(
        &mut self,
        now: Instant,
        host: HostKey,
        at: Location,
        ip: IpAddr,
        is_known: bool,
    ) -> bool {
        let HostKey { vlan, mac } = host;
        let Some(hosts) = hosts_of!(self, vlan) else {
            return false;
        };
        match hosts.tell(now, mac, at, ip) {
            AddressVerdict::Known => true,
            AddressVerdict::New => {
                if is_known && vlan.is_none() && self.facts().is_in_class(mac) {
                    self.host_classified(now, mac, at);
                }
                true
            }
            AddressVerdict::Taken { from } => {
                self.address_moved(now, vlan, ip, (from, mac));
                true
            }
            AddressVerdict::Defended {
                claimant,
                at: claimed_at,
                alarm,
            } => {
                if let Some(due) = hosts.dispute_due(ip) {
                    self.outbox.timer(due, Timer::AddressQuestion(vlan, ip));
                }
                if alarm {
                    self.outbox.alarm(Alarm::AddressClaimed {
                        ip,
                        owner: mac,
                        claimant,
                        at: claimed_at,
                    });
                }
                true
            }
            AddressVerdict::Contested { ask } => {
                if let Some(question) = ask {
                    hosts.ask_owner(question, &mut self.outbox);
                }
                self.outbox.counters.address_claims += 1;
                false
            }
            AddressVerdict::Rejected { owner, alarm } => {
                if alarm {
                    let claimant = mac;
                    self.outbox.alarm(Alarm::AddressClaimed {
                        ip,
                        owner,
                        claimant,
                        at,
                    });
                }
                self.outbox.counters.address_claims += 1;
                false
            }
            // No other host has the address, but nothing relies on it.
            AddressVerdict::TooMany => true,
            AddressVerdict::NoRoom => {
                self.outbox.counters.packet_ins_host_table_full += 1;
                false
            }
        }
    }

    pub(super) fn host_question_due(&mut self, now: Instant, host: HostKey) {
        let mac = host.mac;
        let Some(hosts) = hosts_of!(self, host.vlan) else {
            return;
        };
        match hosts.question_due(&self.network, now, mac, &mut self.outbox) {
            Some(Answer::Moved { from, to }) => {
                self.unlift(now, mac, from);
                self.host_moved(now, host, from, to);
                // The port may have been removed, or become a link, since the host was heard there.
                if self.network.role(to) == PortRole::Edge {
                    self.tell(host, to);
                }
            }
            Some(Answer::Dropped { home }) => self.unlift(now, mac, home),
            Some(Answer::Ask(_)) | None => {}
        }
    }

    pub(super) fn address_question_due(&mut self, now: Instant, vlan: VlanId, ip: IpAddr) {
        let Some(hosts) = hosts_of!(self, vlan) else {
            return;
        };
        let moved = hosts.address_question_due(&self.network, now, ip, &mut self.outbox);
        if let Some(ends) = moved {
            self.address_moved(now, vlan, ip, ends);
        }
    }

    /// Deletes the entry that sends a host's packets to the controller, once the question to the
    /// host has ended.
    fn unlift(&mut self, now: Instant, mac: MacAddr, home: Location) {
        self.ingress.note_ended(now, home.dpid, Some(home.port));
        for port in self.outbox.bonds.ports(home) {
            let watch = EntryKey::watch(port.port, mac).to_delete();
            self.outbox.send_flow_mod(home.dpid, watch);
        }
    }

    /// Handles the move of an IP address to another host.
    fn address_moved(&mut self, now: Instant, vlan: VlanId, ip: IpAddr, ends: Pair) {
        let (from, to) = ends;
        self.outbox.event(Event::AddressMoved { ip, from, to });
        if !vlan.is_none() {
            return self.follow_neighbour(now, vlan, ip);
        }
        let places = [from, to].map(|mac| (mac, self.hosts.place(mac)));
        for (mac, at) in places {
            if let Some(at) = at.filter(|_| self.config.timeouts.names_ips()) {
                self.host_classified(now, mac, at);
            }
        }
        if let Some(at) = self.hosts.place(to) {
            self.with_qos(|qos, around| qos.qos_host(around, now, [HostName::Ip(ip)], at));
        }
    }

    fn host_moved(&mut self, now: Instant, host: HostKey, from: Location, to: Location) {
        let HostKey { vlan, mac } = host;
        self.outbox.event(Event::HostMoved {
            mac,
            vlan,
            from,
            to,
        });
        if !vlan.is_none() {
            return self.forget_member(now, host, from);
        }
        self.forget_host(now, mac, from);
        self.mend_paths_of(now, Cause::Unknown, &[mac]);
        self.routes_soon(now);
        self.topology_soon(now);
    }

    /// Informs the edge and the fabric that a host is at an edge port.
    fn tell(&mut self, host: HostKey, at: Location) {
        match host.vlan.is_none() {
            true => self.tell_host(host.mac, at),
            false => self.tell_member(host, at),
        }
    }
}
