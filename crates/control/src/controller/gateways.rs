//! Routes packets between VLANs, and answers for their gateways.
//!
//! The first packet of a host to the Ethernet address of its gateway reaches the controller. The
//! controller sends the packet to its next hop, and sets an entry that routes the packets after it
//! ([`flow`](crate::routing::flow)). It answers requests for the gateways' addresses and echo
//! requests to them, and it reports packets that do not arrive. No host is ever believed to be a
//! gateway.

mod adopt;

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;
use clock::Instant;
use openflow::message::{AsyncConfig, FlowRemoved, FlowRemovedReason, PacketInReason};
use openflow::packet::PacketFields;
use openflow::packet::build::{
    Host, arp_reply, arp_request, neighbour_advertisement, neighbour_answer, neighbour_solicitation,
};
use openflow::packet::ip::{Datagram, IcmpError};
use openflow::{DatapathId, Field, MacAddr, Message, PortNo, Version};

use crate::Location;
use crate::entry::can_be_host;
use crate::fabric::Exit;
use crate::routing::flow::{Flow, FlowKey, Flows};
use crate::routing::neighbours::{Due, Held, Neighbours, Waiting};
use crate::routing::{Gateway, Gateways, Hop, Routing, Verdict};
use crate::timeouts::Prefix;
use crate::vlan::{self, Form, HostKey, VlanId};

use super::config::ControllerConfig;
use super::hosts::OWN_MAC;
use super::ingress::Flooding;
use super::outbox::{Outbox, Timer};
use super::packet::{Packet, sender_ip};
use super::tables::Table;
use super::{Alarm, Controller};

const ARP_REQUEST: u128 = 1;
const NEIGHBOUR_SOLICITATION: u128 = 135;
/// Neighbour discovery with another hop limit has passed a router (RFC 4861, 7.1).
const HOP_LIMIT: u8 = 255;
const UDP: u8 = 17;

/// Whether a gateway may have an Ethernet address: it is the address of one host, and not the
/// controller's own.
pub fn can_be_gateway(mac: MacAddr) -> bool {
    can_be_host(mac) && mac != OWN_MAC
}

/// The gateways, the next hops being asked for, and the routing entries.
pub(super) struct Gatekeeper {
    routing: Routing,
    neighbours: Neighbours,
    flows: Flows,
    /// Switches that refuse routing entries: the controller routes for their hosts.
    refusing: BTreeSet<DatapathId>,
    due: Option<Instant>,
}

/// A packet to a gateway, and the VLAN and port where it has arrived.
struct Entering<'a> {
    vlan: VlanId,
    at: Location,
    /// The port itself, which may belong to a bond at `at`.
    in_port: PortNo,
    /// The Ethernet address of its sender.
    src: MacAddr,
    packet: Datagram<'a>,
}

impl Gatekeeper {
    pub(super) fn new(config: &ControllerConfig) -> Gatekeeper {
        Gatekeeper {
            routing: Routing::new(config.gateways.clone()),
            neighbours: Neighbours::default(),
            flows: Flows::default(),
            refusing: BTreeSet::new(),
            due: None,
        }
    }

    pub(super) fn routing(&self) -> &Routing {
        &self.routing
    }

    /// Forgets the entries of a switch: it has lost them, or they are deleted.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.flows.forget_switch(dpid);
        self.refusing.remove(&dpid);
    }

    /// Makes the controller route for the hosts of a switch that refuses routing entries.
    pub(super) fn handle_refused(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        self.refusing.insert(dpid);
        self.end(self.flows.of_switch(dpid), outbox);
    }

    /// Deletes the entries from and to a host that has left its place.
    pub(super) fn end_host(&mut self, host: HostKey, outbox: &mut Outbox) {
        self.end(self.flows.of_host(host), outbox);
    }

    /// Deletes the entries of a port that is down, a link, or in another VLAN.
    pub(super) fn end_port(&mut self, at: Location, outbox: &mut Outbox) {
        for at in outbox.bonds.ports(at) {
            self.end(self.flows.of_port(at), outbox);
        }
    }

    fn end(&mut self, keys: Vec<FlowKey>, outbox: &mut Outbox) {
        for key in keys {
            self.flows.remove(key);
            outbox.send_flow_mod(key.at.dpid, key.to_delete());
        }
    }

    /// The entries that gateways and routes no longer justify.
    fn unjustified(&self) -> Vec<FlowKey> {
        let has_mac = |vlan, mac| self.routing.of(vlan).is_some_and(|it| it.mac == mac);
        let is_justified = |key: &FlowKey, flow: &Flow| {
            has_mac(flow.from.vlan, key.gateway)
                && has_mac(flow.hop.vlan, flow.gateway)
                && self.routing.leads(flow.from.vlan, key.to) == Some(flow.hop)
        };
        let all = self.flows.all();
        let unjustified = all.filter(|(key, flow)| !is_justified(key, flow));
        unjustified.map(|(key, _)| key).collect()
    }

    fn set_timer(&mut self, outbox: &mut Outbox) {
        let Some(due) = self.neighbours.next_due() else {
            return;
        };
        if self.due.is_none_or(|set| due < set) {
            self.due = Some(due);
            outbox.timer(due, Timer::Neighbours);
        }
    }
}

/// The address of the gateway that a packet asks for, by ARP or neighbour discovery.
fn asked_for(gateway: &Gateway, packet: &Packet<'_>, fields: &PacketFields) -> Option<IpAddr> {
    let is_to_it = packet.dst.is_multicast() || packet.dst == gateway.mac;
    let ip = if fields.get(Field::ArpOp) == Some(ARP_REQUEST) {
        IpAddr::V4((fields.get(Field::ArpTpa)? as u32).into())
    } else if fields.get(Field::Icmpv6Type) == Some(NEIGHBOUR_SOLICITATION) {
        let is_of_link = Datagram::read(packet.data)?.ok()?.ttl == HOP_LIMIT;
        let target = fields.get(Field::Ipv6NdTarget).filter(|_| is_of_link);
        IpAddr::V6(target?.into())
    } else {
        return None;
    };
    (is_to_it && gateway.owns(ip)).then_some(ip)
}

/// The frame by which a gateway answers a question for its address.
fn answer(
    (mac, ip): (MacAddr, IpAddr),
    packet: &Packet<'_>,
    fields: &PacketFields,
) -> Option<Vec<u8>> {
    let asker = packet.src;
    Some(match ip {
        IpAddr::V4(ip) => {
            let from = (fields.get(Field::ArpSpa)? as u32).into();
            let to = Host::new(asker, from);
            arp_reply(Host { mac, ip }, to)
        }
        IpAddr::V6(ip) => match fields.get(Field::Ipv6Src)?.into() {
            std::net::Ipv6Addr::UNSPECIFIED => neighbour_advertisement((mac, ip), true),
            from => neighbour_answer((mac, ip), (asker, from), true),
        },
    })
}

/// The frame with which a gateway reminds all hosts of its address.
fn announcement(mac: MacAddr, ip: IpAddr) -> Bytes {
    let frame = match ip {
        IpAddr::V4(ip) => arp_request(Host { mac, ip }, ip),
        IpAddr::V6(ip) => neighbour_advertisement((mac, ip), true),
    };
    frame.into()
}

impl Controller {
    /// Applies new gateways and routes. Deletes entries that they do not justify; the others stay.
    /// Closes the connections of switches that now need access lists which they cannot apply.
    pub fn set_gateways(&mut self, now: Instant, gateways: Gateways) {
        self.outbox.now = now;
        let before = self.route_by(gateways);
        self.update_access();
        self.close_unable(now);
        self.begin_gateways(now, &before);
    }

    /// Routes by new gateways, and deletes the entries that they do not justify, before other lists
    /// judge the entries' packets. Returns the former routing.
    pub(super) fn route_by(&mut self, gateways: Gateways) -> Routing {
        let routing = Routing::new(gateways.clone());
        let before = std::mem::replace(&mut self.gateways.routing, routing);
        self.config.gateways = gateways;
        let ended = self.gateways.unjustified();
        self.gateways.end(ended, &mut self.outbox);
        let routing = &self.gateways.routing;
        let is_kept = |hop: Hop| routing.of(hop.vlan).is_some();
        self.gateways.neighbours.retain(is_kept);
        before
    }

    /// Announces the gateways that are new in comparison with the former ones.
    pub(super) fn begin_gateways(&mut self, now: Instant, before: &Routing) {
        if !before.is_on() {
            let connected: Vec<DatapathId> = self.network.connected().map(|s| s.dpid).collect();
            for dpid in connected {
                self.ask_for_expired(dpid);
            }
        }
        let all = self.config.gateways.vlans.clone();
        let is_new = |(vlan, gateway): &(VlanId, Gateway)| before.of(*vlan) != Some(gateway);
        for (vlan, gateway) in all.into_iter().filter(is_new) {
            self.begin_gateway(vlan, &gateway);
            self.tell_forgotten(now, vlan);
        }
    }

    /// Reserves a gateway's addresses, so that no host has them, and announces the gateway in its
    /// VLAN.
    fn begin_gateway(&mut self, vlan: VlanId, gateway: &Gateway) {
        let ips: Vec<IpAddr> = gateway.subnets.iter().map(|it| it.address).collect();
        if let Some(hosts) = self.vlan_hosts.get_mut(&vlan) {
            hosts.reserve(gateway.mac, &ips);
        }
        for ip in ips {
            let frame = announcement(gateway.mac, ip);
            self.send_to_all(vlan, &frame);
        }
    }

    /// Asks a switch to send up packets whose TTL has expired, which it drops otherwise.
    pub(super) fn ask_for_expired(&mut self, dpid: DatapathId) {
        const ALL: u32 = (1 << (PacketInReason::INVALID_TTL.0 + 1)) - 1;
        let can_ask = self.network.version(dpid) >= Some(Version::V13);
        if !self.gateways.routing.is_on() || !can_ask {
            return;
        }
        // A slave receives reports about ports only, as by default.
        // From 1.4 on entries also end with their meter, or by eviction.
        let removed = match self.network.version(dpid) {
            Some(Version::V13) => 0b1111,
            _ => 0b11_1111,
        };
        let config = AsyncConfig::of_v13([ALL, 0], [0b111, 0b111], [removed, 0]);
        self.outbox.send(dpid, Message::SetAsync(config));
    }

    /// Whether a packet of a host claims an address of its VLAN's gateway. If so, all hosts there
    /// are reminded of the gateway, within the budgets of the port.
    pub(super) fn is_claimed(
        &mut self,
        now: Instant,
        vlan: VlanId,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) -> bool {
        let Some(gateway) = self.gateways.routing.of(vlan) else {
            return false;
        };
        let ip = sender_ip(fields, packet.src).filter(|ip| gateway.owns(*ip));
        if packet.src != gateway.mac && ip.is_none() {
            return false;
        }
        let (at, claimant, mac) = (packet.at, packet.src, gateway.mac);
        self.outbox.counters.address_claims += 1;
        let alarm = Alarm::GatewayClaimed {
            vlan,
            ip,
            claimant,
            at,
        };
        self.outbox.alarm_once(now, alarm);
        if let Some(ip) = ip
            && self.ingress.may_flood(now, at, &mut self.outbox)
        {
            self.ask_members_of(now, at, (vlan, &announcement(mac, ip)));
        }
        true
    }

    /// Sends a frame of a gateway out of all ports of its VLAN, because of a host at `at`.
    fn ask_members_of(&mut self, now: Instant, at: Location, frame: (VlanId, &Bytes)) {
        let (vlan, frame) = frame;
        let delivery = self.delivery(vlan);
        let (net, outbox) = (&self.network, &mut self.outbox);
        let delivery = delivery.as_deref();
        self.ingress
            .ask_all(net, now, (at, frame), Flooding { vlan, delivery }, outbox);
    }

    /// Handles a packet of a host that its gateway answers or routes. Returns false for any other.
    /// `raw`: the packet as it arrived.
    pub(super) fn handle_gateway(
        &mut self,
        now: Instant,
        vlan: VlanId,
        (packet, raw): (&Packet<'_>, &Bytes),
        fields: &PacketFields,
    ) -> bool {
        let Some(gateway) = self.gateways.routing.of(vlan) else {
            return false;
        };
        let mac = gateway.mac;
        if let Some(ip) = asked_for(gateway, packet, fields) {
            if self.ingress.may_flood(now, packet.at, &mut self.outbox)
                && let Some(frame) = answer((mac, ip), packet, fields)
            {
                self.outbox.counters.questions_answered += 1;
                self.outbox.packet_out_in(vlan, packet.at, &frame);
            }
            return true;
        }
        if packet.dst != mac {
            return false;
        }
        if !self.ingress.may_detour(now, packet.at) {
            self.outbox.counters.packet_ins_detour_limited += 1;
        } else if !packet.is_copy {
            self.route(now, vlan, packet, raw);
        }
        true
    }

    fn route(&mut self, now: Instant, vlan: VlanId, packet: &Packet<'_>, raw: &Bytes) {
        let datagram = match Datagram::read(packet.data) {
            Some(Ok(datagram)) => datagram,
            Some(Err(_)) => return self.outbox.counters.packets_unrouted += 1,
            // The answer to a question, or no IP at all.
            None => return,
        };
        let entering = Entering {
            vlan,
            at: packet.at,
            in_port: packet.in_port,
            src: packet.src,
            packet: datagram,
        };
        match self.gateways.routing.judge(vlan, &entering.packet) {
            Verdict::Refused => self.outbox.counters.packets_unrouted += 1,
            Verdict::Own => self.answer_own(now, &entering),
            Verdict::Expired => self.report(now, &entering, IcmpError::TimeExceeded),
            Verdict::NoRoute => self.report(now, &entering, IcmpError::NoRoute),
            // The switch has applied the same lists, or those before a change.
            Verdict::Forward(hop, _) if !self.may_enter(hop.vlan, packet.at, packet.data) => {
                self.outbox.counters.packets_unrouted += 1;
            }
            Verdict::Forward(hop, to) => match self.owner_of(hop) {
                Some((target, place)) => {
                    if self.has_no_way(packet.at.dpid, place.dpid) {
                        return;
                    }
                    self.send_routed(&entering.packet, hop, (target, place));
                    // An entry for priority-tagged packets would not see a tag behind the priority
                    // tag.
                    let tag = vlan::tag_of(raw);
                    if tag != Some(0) {
                        self.set_flow(now, (&entering, tag), (hop, to), (target, place));
                    }
                }
                None => self.hold_for(now, &entering, hop, packet.data),
            },
        }
    }

    /// Whether the lists of a VLAN let a packet be routed into it.
    fn may_enter(&self, vlan: VlanId, at: Location, frame: &[u8]) -> bool {
        let fields = PacketFields::parse(at.port, frame);
        self.access.may_enter(vlan, &fields)
    }

    /// The host that owns the address of a next hop, and its place.
    fn owner_of(&self, hop: Hop) -> Option<(HostKey, Location)> {
        let hosts = self.vlan_hosts.get(&hop.vlan)?;
        let mac = hosts.by_ip(hop.ip)?;
        let vlan = hop.vlan;
        Some((HostKey { vlan, mac }, hosts.place(mac)?))
    }

    fn send_routed(
        &mut self,
        packet: &Datagram<'_>,
        hop: Hop,
        (target, place): (HostKey, Location),
    ) {
        let gateway = self.gateways.routing.of(hop.vlan);
        let frame = gateway.and_then(|gateway| packet.forwarded(gateway.mac, target.mac));
        if let Some(frame) = frame {
            self.outbox.counters.packets_routed += 1;
            self.outbox.packet_out_in(hop.vlan, place, &frame);
        }
    }

    /// Sets the entry that routes the packets after this one, where the fabric leads to their next
    /// hop.
    fn set_flow(
        &mut self,
        now: Instant,
        (entering, tag): (&Entering<'_>, Option<u16>),
        (hop, to): (Hop, Prefix),
        (target, place): (HostKey, Location),
    ) {
        let Entering {
            vlan,
            at,
            in_port,
            src,
            ..
        } = *entering;
        let is_full = |dpid| {
            self.tables
                .get(dpid)
                .is_none_or(|table: &Table| table.is_full(now))
        };
        let is_refused = self.gateways.refusing.contains(&at.dpid);
        if is_refused || is_full(at.dpid) || !self.fabric.has_tables(at.dpid) {
            return;
        }
        let exit = match place.dpid == at.dpid {
            // Both VLANs may be behind one trunk, and that may be a bond.
            true if place == at => Some(Exit::Port(PortNo::IN_PORT)),
            true => Some(Exit::Port(place.port)),
            false => self.fabric.exit(at.dpid, target, place),
        };
        let form = match exit {
            Some(Exit::Port(_)) => self.outbox.vlans.form(place, hop.vlan),
            _ => Some(Form::Untagged),
        };
        let routing = &self.gateways.routing;
        let macs = routing.of(vlan).zip(routing.of(hop.vlan));
        let macs = macs.map(|(own, of_target)| (own.mac, of_target.mac));
        let (Some((gateway, of_target)), Some(exit), Some(form)) = (macs, exit, form) else {
            return self.tell_member(target, place);
        };
        let (dpid, port) = (at.dpid, in_port);
        let key = FlowKey {
            at: Location { dpid, port },
            tag,
            src,
            gateway,
            to,
        };
        let flow = Flow {
            from: HostKey { vlan, mac: src },
            hop,
            target,
            gateway: of_target,
            exit,
            form,
        };
        let generation = self.outbox.generation;
        if self.gateways.flows.set(now, (key, flow), generation) {
            let tag = self.fabric.tag();
            let flow_mod = flow.to_add(key, tag, generation);
            self.outbox.send_flow_mod(at.dpid, flow_mod);
        }
    }

    /// Makes a packet wait for its next hop, and asks for the next hop.
    fn hold_for(&mut self, now: Instant, entering: &Entering<'_>, hop: Hop, frame: &Bytes) {
        let Entering { vlan, at, .. } = *entering;
        // The frame is a part of a larger buffer that was read with it.
        let frame = Bytes::copy_from_slice(frame);
        let waiting = Waiting { at, vlan, frame };
        match self.gateways.neighbours.hold(now, hop, waiting) {
            Held::Asks => self.ask_for(now, hop, at),
            Held::Waits => {}
            Held::Full => self.outbox.counters.packets_unrouted += 1,
        }
        self.gateways.set_timer(&mut self.outbox);
    }

    /// Asks all hosts in a VLAN for a next hop, for a host at a port.
    fn ask_for(&mut self, now: Instant, hop: Hop, at: Location) {
        let Some(gateway) = self.gateways.routing.of(hop.vlan) else {
            return;
        };
        let mac = gateway.mac;
        let frame = match (gateway.address_for(hop.ip), hop.ip) {
            (Some(IpAddr::V4(ip)), IpAddr::V4(asked)) => arp_request(Host { mac, ip }, asked),
            (Some(IpAddr::V6(ip)), IpAddr::V6(asked)) => neighbour_solicitation((mac, ip), asked),
            _ => return,
        };
        if self.ingress.may_flood(now, at, &mut self.outbox) {
            self.ask_members_of(now, at, (hop.vlan, &frame.into()));
        }
    }

    pub(super) fn neighbours_due(&mut self, now: Instant) {
        self.gateways.due = None;
        for outcome in self.gateways.neighbours.due(now) {
            match outcome {
                Due::Ask { hop, at } => self.ask_for(now, hop, at),
                Due::Failed { packets } => {
                    for waiting in packets {
                        self.report_unreachable(now, &waiting);
                    }
                }
            }
        }
        self.gateways.set_timer(&mut self.outbox);
    }

    fn report_unreachable(&mut self, now: Instant, waiting: &Waiting) {
        if let Some(entering) = Entering::read(waiting) {
            self.report(now, &entering, IcmpError::HostUnreachable);
        }
    }

    /// Notes the sender's address that a packet proves, which may be a next hop.
    pub(super) fn note_neighbour(
        &mut self,
        now: Instant,
        vlan: VlanId,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) {
        if self.gateways.routing.of(vlan).is_some()
            && let Some(ip) = sender_ip(fields, packet.src)
        {
            self.follow_neighbour(now, vlan, ip);
        }
    }

    /// Sends an address's owner the packets that wait for it, and deletes entries that lead to
    /// another host.
    pub(super) fn follow_neighbour(&mut self, now: Instant, vlan: VlanId, ip: IpAddr) {
        let hop = Hop { vlan, ip };
        let hosts = self.vlan_hosts.get(&vlan);
        let owner = hosts.and_then(|hosts| hosts.by_ip(ip));
        let astray = self.gateways.flows.astray(hop, owner);
        self.gateways.end(astray, &mut self.outbox);
        if !self.gateways.neighbours.asks(hop) || self.owner_of(hop).is_none() {
            return;
        }
        for waiting in self.gateways.neighbours.found(hop) {
            self.send_waiting(now, &waiting);
        }
    }

    /// Sends on a packet that has waited. Gateways and routes may have changed meanwhile.
    fn send_waiting(&mut self, now: Instant, waiting: &Waiting) {
        let Some(entering) = Entering::read(waiting) else {
            return;
        };
        let verdict = self.gateways.routing.judge(waiting.vlan, &entering.packet);
        let owner = match verdict {
            Verdict::Forward(hop, _) if !self.may_enter(hop.vlan, waiting.at, &waiting.frame) => {
                self.outbox.counters.packets_unrouted += 1;
                return;
            }
            Verdict::Forward(hop, _) => self.owner_of(hop).map(|owner| (hop, owner)),
            _ => None,
        };
        match owner {
            Some((_, (_, place))) if self.has_no_way(waiting.at.dpid, place.dpid) => {}
            Some((hop, owner)) => self.send_routed(&entering.packet, hop, owner),
            None => self.report(now, &entering, IcmpError::HostUnreachable),
        }
    }

    /// Answers a packet to a gateway itself.
    fn answer_own(&mut self, now: Instant, entering: &Entering<'_>) {
        let Entering {
            vlan,
            at,
            src,
            packet,
            ..
        } = entering;
        let Some(gateway) = self.gateways.routing.of(*vlan) else {
            return;
        };
        if let Some(frame) = packet.echo_reply(gateway.mac, *src) {
            self.outbox.packet_out_in(*vlan, *at, &frame);
        } else if packet.protocol == Some(UDP) {
            self.report(now, entering, IcmpError::PortUnreachable);
        }
    }

    /// Informs the sender of a packet that the packet does not arrive.
    fn report(&mut self, now: Instant, entering: &Entering<'_>, error: IcmpError) {
        self.outbox.counters.packets_unrouted += 1;
        let Entering {
            vlan,
            at,
            src,
            packet,
            ..
        } = entering;
        let Some(gateway) = self.gateways.routing.of(*vlan) else {
            return;
        };
        let router = gateway.address_for(packet.from);
        let macs = (gateway.mac, *src);
        let Some(frame) = router.and_then(|router| packet.error(error, router, macs)) else {
            return;
        };
        match self.ingress.may_report(now, *at) {
            true => self.outbox.packet_out_in(*vlan, *at, &frame),
            false => self.outbox.counters.icmp_limited += 1,
        }
    }

    /// Handles the end of a routing entry. A deleted entry has no record, or the record is its
    /// successor's.
    pub(super) fn routed_removed(&mut self, now: Instant, dpid: DatapathId, removed: &FlowRemoved) {
        let is_deleted = removed.reason == FlowRemovedReason::DELETE;
        if let Some(key) = FlowKey::from_match(dpid, &removed.r#match).filter(|_| !is_deleted) {
            self.gateways.flows.handle_removed(now, key, removed);
        }
    }

    /// The number of routing entries on all switches.
    pub fn routed_count(&self) -> usize {
        self.gateways.flows.len()
    }
}

impl<'a> Entering<'a> {
    /// Reads a waiting packet again.
    fn read(waiting: &'a Waiting) -> Option<Entering<'a>> {
        let src = MacAddr(*waiting.frame.get(6..)?.first_chunk()?);
        Some(Entering {
            vlan: waiting.vlan,
            at: waiting.at,
            in_port: waiting.at.port,
            src,
            packet: Datagram::read(&waiting.frame)?.ok()?,
        })
    }
}
