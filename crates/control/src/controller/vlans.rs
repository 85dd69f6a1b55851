//! Forwards the packets of VLANs: through edges and the fabric, and packets for all hosts out of
//! the member ports.
//!
//! A packet is classified by its port and tag when it enters, and loses its tag. It gets its VLAN's
//! tag where it leaves by a trunk. Between switches it has the label of its VLAN at its egress.
//! Hosts of VLANs have no paths: where the fabric has no route, the controller forwards their
//! packets, within the budget of their port.

use std::collections::BTreeSet;
use std::sync::Arc;

use clock::Instant;
use openflow::DatapathId;
use openflow::packet::PacketFields;

use crate::Location;
use crate::edge::resolve::reply;
use crate::edge::{Deliver, EdgeUpdate};
use crate::fabric::Exit;
use crate::vlan::{self, HostKey, VlanId, Vlans};

use super::hosts::{Hosts, OWN_MAC};
use super::mending::Cause;
use super::packet::{Held, Packet};
use super::port_state::PortRole;
use super::{Controller, shares_of_hosts};

/// Borrows only the hosts of one VLAN, or the hosts outside all VLANs; `None` if there is no such
/// VLAN.
macro_rules! hosts_of {
    ($controller:expr, $vlan:expr) => {
        match $vlan.is_none() {
            true => Some(&mut $controller.hosts),
            false => $controller.vlan_hosts.get_mut(&$vlan),
        }
    };
}
pub(super) use hosts_of;

impl Controller {
    /// Applies new VLANs. Forgets the hosts of ports whose VLANs have changed, with the entries
    /// from and to these hosts.
    pub fn set_vlans(&mut self, now: Instant, vlans: Vlans) {
        self.outbox.now = now;
        let changed = self.config.vlans.changed(&vlans);
        for at in &changed {
            let hosts = self.hosts.unplace(now, *at);
            self.unplace_members(now, *at);
            self.end_multicast(now, *at);
            self.close_edge(now, *at, hosts.clone());
            self.access.forget_learned_at(*at, &self.config.bonds);
            if !hosts.is_empty() {
                self.mend_paths(now, Cause::Unknown, &hosts);
            }
        }
        let before = std::mem::replace(&mut self.config.vlans, vlans).all();
        self.follow_vlans(&before);
        self.update_access();
        self.close_unable(now);
        let switches: BTreeSet<DatapathId> = changed.iter().map(|at| at.dpid).collect();
        for dpid in switches {
            self.tell_all_vlans(dpid);
        }
        self.doubt_ports(now, None);
        let opened = changed.into_iter();
        let opened = opened.filter(|at| self.network.role(*at) == PortRole::Edge);
        let opened: Vec<Location> = opened.collect();
        self.ask_at(opened);
    }

    /// Keeps hosts and addresses for each VLAN that has member ports, and for no other.
    pub(super) fn follow_vlans(&mut self, before: &BTreeSet<VlanId>) {
        let vlans = self.config.vlans.all();
        let now = self.outbox.now;
        for vlan in before.difference(&vlans) {
            self.crowds.forget_vlan(*vlan);
            self.multicast.set_asking(now, *vlan, false);
        }
        for vlan in vlans.iter().chain([&VlanId::NONE]) {
            self.multicast.set_asking(now, *vlan, true);
        }
        self.vlan_hosts.retain(|vlan, _| vlans.contains(vlan));
        self.vlan_packet_ins.retain(|vlan, _| vlans.contains(vlan));
        let mut shares = shares_of_hosts(&self.config);
        let vlan_count = vlans.len() + 1;
        shares.count_max /= vlan_count;
        for vlan in vlans {
            let seed = self.outbox.random();
            let fresh = || Hosts::new(vlan, shares, vlan_count, seed);
            let hosts = self.vlan_hosts.entry(vlan).or_insert_with(fresh);
            if self.wants_news {
                hosts.want_news();
            }
        }
        self.set_room_of_hosts();
        self.outbox.vlans = Arc::new(self.vlans_of_bonds());
        let addresses = self.vlan_hosts.iter();
        let addresses = addresses.map(|(vlan, hosts)| (*vlan, hosts.addresses().clone()));
        self.fabric.set_vlans(addresses, &mut self.outbox);
        self.follow_membership();
    }

    /// The VLAN of a packet received on a port with this role; `None` if the port is not a member.
    /// On a link, the packet's label names its VLAN.
    pub(super) fn vlan_of(&self, role: PortRole, packet: &Held) -> Option<VlanId> {
        if !self.outbox.vlans.is_on() {
            return Some(VlanId::NONE);
        }
        match role {
            // Other tags there belong to hosts outside all VLANs.
            PortRole::Link | PortRole::Silent if !packet.is_labelled => Some(VlanId::NONE),
            PortRole::Link | PortRole::Silent => self.fabric.vlan_of(vlan::outer_id(&packet.data)?),
            _ => {
                let vlan = self
                    .outbox
                    .vlans
                    .classify(packet.at, vlan::tag_of(&packet.data));
                // Without its outer tag, the packet would have another VLAN's tag where a VLAN is
                // native.
                vlan.filter(|vlan| vlan.is_none() || !vlan::hides_tag(&packet.data))
            }
        }
    }

    /// Handles a packet of a VLAN.
    pub(super) fn handle_member(
        &mut self,
        now: Instant,
        vlan: VlanId,
        role: PortRole,
        packet: Held,
    ) {
        *self.vlan_packet_ins.entry(vlan).or_default() += 1;
        let (held, raw) = without_tag(packet);
        let fields = PacketFields::parse(held.at.port, &held.data);
        let Some(packet) = Packet::read(&held, &fields) else {
            self.outbox.counters.packet_ins_no_sender += 1;
            return;
        };
        let is_on_link = matches!(role, PortRole::Link | PortRole::Silent);
        if !is_on_link && self.is_claimed(now, vlan, &packet, &fields) {
            return;
        }
        let place = self.place_of(HostKey {
            vlan,
            mac: packet.src,
        });
        match role {
            PortRole::Link | PortRole::Silent => {
                self.handle_member_on_link(now, vlan, &packet, &fields);
            }
            PortRole::Claimed if place != Some(packet.at) => {
                self.outbox.counters.packet_ins_claimed += 1;
            }
            _ => self.handle_member_at_edge(now, vlan, (&packet, &raw), &fields),
        }
    }

    /// Learns from a packet of a VLAN that the edge of its switch has forwarded.
    pub(super) fn learn_member(&mut self, now: Instant, vlan: VlanId, packet: Held) {
        *self.vlan_packet_ins.entry(vlan).or_default() += 1;
        let (held, _) = without_tag(packet);
        let fields = PacketFields::parse(held.at.port, &held.data);
        if let Some(packet) = Packet::read(&held, &fields)
            && !self.is_claimed(now, vlan, &packet, &fields)
            && self.observe(now, vlan, &packet, &fields)
        {
            self.note_neighbour(now, vlan, &packet, &fields);
        }
    }

    fn handle_member_at_edge(
        &mut self,
        now: Instant,
        vlan: VlanId,
        (packet, raw): (&Packet<'_>, &bytes::Bytes),
        fields: &PacketFields,
    ) {
        if self.is_forged(now, packet, fields) {
            return;
        }
        if !self.observe(now, vlan, packet, fields) {
            return self.follow_echo(now, vlan, packet);
        }
        if packet.dst == OWN_MAC {
            return;
        }
        self.note_neighbour(now, vlan, packet, fields);
        if self.handle_gateway(now, vlan, (packet, raw), fields) {
            return;
        }
        let dst = HostKey {
            vlan,
            mac: packet.dst,
        };
        match self.place_of(dst) {
            None if packet.is_copy => {}
            Some(to) if !packet.dst.is_multicast() => self.deliver_member((packet, raw), dst, to),
            _ if self.handle_multicast(now, vlan, (packet, raw), fields) => {}
            _ => self.flood_member(now, vlan, packet),
        }
    }

    /// Handles a packet that has reached an egress where its receiver is not present.
    fn handle_member_on_link(
        &mut self,
        now: Instant,
        vlan: VlanId,
        packet: &Packet<'_>,
        fields: &PacketFields,
    ) {
        if packet.dst.is_multicast() {
            self.outbox.counters.packet_ins_broadcast_on_link += 1;
            return;
        }
        if self.is_forged(now, packet, fields) {
            return;
        }
        let [src, dst] = [packet.src, packet.dst].map(|mac| HostKey { vlan, mac });
        let Some(hosts) = self.vlan_hosts.get(&vlan) else {
            return;
        };
        self.fabric
            .correct_ingress(hosts, now, (packet.at, src, dst), &mut self.outbox);
        match self.place_of(dst) {
            None => self.flood_member(now, vlan, packet),
            Some(to) if self.has_no_way(packet.at.dpid, to.dpid) => {}
            Some(to) if self.ingress.may_carry_half_way(now, packet.at) => {
                self.outbox.packet_out_in(vlan, to, packet.data);
            }
            Some(_) => self.outbox.counters.packet_ins_half_way_limited += 1,
        }
    }

    /// Sends a packet to a known host: through the edge where it entered, which answers such
    /// packets itself from now on, or by packet-out where the fabric has no route to the host.
    fn deliver_member(
        &mut self,
        (packet, raw): (&Packet<'_>, &bytes::Bytes),
        dst: HostKey,
        to: Location,
    ) {
        let (at, vlan) = (packet.at, dst.vlan);
        if to == at || self.has_no_way(at.dpid, to.dpid) {
            return;
        }
        let exit = match at.dpid == to.dpid {
            true => Some(Exit::Port(to.port)),
            false => self.fabric.exit(at.dpid, dst, to),
        };
        let src = HostKey {
            vlan,
            mac: packet.src,
        };
        let now = self.outbox.now;
        // An entry for packets with a priority tag would not match a tag behind it.
        let may_enter = !packet.is_copy && vlan::tag_of(raw) != Some(0);
        if let Some(exit) = exit.filter(|_| may_enter) {
            self.tell_member(src, at);
            self.tell_member(dst, to);
            let deliver = Deliver {
                now,
                in_port: packet.in_port,
                vlan,
                src: packet.src,
                dst: packet.dst,
                exit,
                buffer_id: packet.buffer_id,
                data: raw.clone(),
            };
            let update = EdgeUpdate::Deliver(Box::new(deliver));
            self.outbox.tell_edge(at.dpid, update);
        } else if !self.ingress.may_detour(now, at) {
            self.outbox.counters.packet_ins_detour_limited += 1;
        } else if !packet.is_copy {
            self.outbox.packet_out_in(vlan, to, packet.data);
        }
    }

    /// Answers a question on behalf of the requested host, or sends the packet out of all other
    /// ports of its VLAN, within the budgets.
    fn flood_member(&mut self, now: Instant, vlan: VlanId, packet: &Packet<'_>) {
        let at = packet.at;
        if !self.ingress.may_flood(now, at, &mut self.outbox) {
            return;
        }
        let Some(hosts) = self.vlan_hosts.get(&vlan) else {
            return;
        };
        let parts = &self.network.parts;
        let is_apart = |to: Location| parts.are_apart(now, at.dpid, to.dpid);
        let is_elsewhere = |mac| {
            let place = hosts.place(mac);
            place.is_some_and(|place| place != at && !is_apart(place))
        };
        let reply = reply(packet.data, hosts.addresses());
        if let Some(reply) = reply.filter(|reply| is_elsewhere(reply.owner)) {
            self.outbox.counters.questions_answered += 1;
            return self.outbox.packet_out_in(vlan, at, &reply.frame);
        }
        let home = hosts.place(packet.src);
        self.spread_in(now, vlan, (at, packet.data), home);
    }

    /// Informs the edge and the fabric that a host of a VLAN is at an edge port.
    pub(super) fn tell_member(&mut self, host: HostKey, at: Location) {
        self.place_member(host, at);
        if self.ingress.open_edge(at) {
            self.outbox.tell_edge(at.dpid, EdgeUpdate::Open(at.port));
        }
        let port = at.port;
        self.outbox
            .tell_edge(at.dpid, EdgeUpdate::Host { host, port });
    }

    /// Reports a host of a VLAN at an edge port to the fabric. Removes what an earlier process has
    /// set for the host at another place.
    pub(super) fn place_member(&mut self, host: HostKey, at: Location) {
        for told in self.fabric.told_elsewhere(host, at) {
            self.forget_member(self.outbox.now, host, told);
        }
        self.fabric.handle_host(host, at, &mut self.outbox);
    }

    /// Reports again all hosts of VLANs at a switch that has lost its entries.
    pub(super) fn tell_members(&mut self, dpid: DatapathId) {
        for (vlan, hosts) in &self.vlan_hosts {
            for (mac, at) in hosts.placed_at(dpid) {
                let host = HostKey { vlan: *vlan, mac };
                self.fabric.handle_host(host, at, &mut self.outbox);
            }
        }
    }

    /// Withdraws a host of a VLAN that has left: the edge deletes the entries that it set for the
    /// host.
    pub(super) fn forget_member(&mut self, now: Instant, host: HostKey, at: Location) {
        self.fabric.forget_host(host, at.dpid, &mut self.outbox);
        self.lift_member(now, host, at);
    }

    /// Makes the edge delete the entries of a host of a VLAN, so that the host's packets reach the
    /// controller.
    fn lift_member(&mut self, now: Instant, host: HostKey, at: Location) {
        self.ingress.note_ended(now, at.dpid, None);
        self.outbox.tell_edge(at.dpid, EdgeUpdate::Forget(host));
        self.gateways.end_host(host, &mut self.outbox);
    }

    /// Withdraws the forgotten hosts of a VLAN.
    pub(super) fn tell_forgotten_members(&mut self, now: Instant, vlan: VlanId) {
        let Some(hosts) = self.vlan_hosts.get_mut(&vlan) else {
            return;
        };
        let (gone, lifted) = (hosts.take_gone(), hosts.take_lifted());
        for (mac, at) in gone {
            self.forget_member(now, HostKey { vlan, mac }, at);
        }
        for (mac, at) in lifted {
            self.lift_member(now, HostKey { vlan, mac }, at);
        }
    }

    /// Makes room for one more host of a VLAN. The hosts of a port have one share over all VLANs:
    /// the VLAN with the most hosts there gives one up.
    pub(super) fn has_room(&mut self, now: Instant, host: HostKey, at: Location) -> bool {
        let Some(hosts) = self.vlan_hosts.get_mut(&host.vlan) else {
            return true;
        };
        if hosts.is_known(host.mac) {
            return true;
        }
        let greediest = self.crowds.over_share(at);
        if greediest.is_none() && !hosts.is_full() {
            return true;
        }
        if !self.crowds.may_replace(now, at) {
            hosts.refuse(at);
            return false;
        }
        let Some(greediest) = greediest else {
            return true;
        };
        let gives = hosts_of!(self, greediest).is_some_and(|hosts| hosts.give_up(now, at));
        self.tell_forgotten(now, greediest);
        gives
    }

    /// Forgets that hosts of VLANs are behind a port.
    pub(super) fn unplace_members(&mut self, now: Instant, at: Location) {
        for (vlan, hosts) in &mut self.vlan_hosts {
            for mac in hosts.unplace(now, at) {
                let host = HostKey { vlan: *vlan, mac };
                self.fabric.forget_host(host, at.dpid, &mut self.outbox);
                self.gateways.end_host(host, &mut self.outbox);
            }
        }
        self.gateways.end_port(at, &mut self.outbox);
    }

    pub(super) fn place_of(&self, host: HostKey) -> Option<Location> {
        match host.vlan.is_none() {
            true => self.hosts.place(host.mac),
            false => self.vlan_hosts.get(&host.vlan)?.place(host.mac),
        }
    }

    /// Informs the edge of a switch of its ports' VLANs, and of the hosts that are still behind
    /// them.
    pub(super) fn tell_all_vlans(&mut self, dpid: DatapathId) {
        let ports = self.outbox.vlans.of_switch(dpid).collect();
        self.outbox.tell_edge(dpid, EdgeUpdate::Vlans(ports));
        let mut hosts = Vec::new();
        for (vlan, of_vlan) in &self.vlan_hosts {
            let placed = of_vlan.placed_at(dpid);
            hosts.extend(placed.map(|(mac, at)| (HostKey { vlan: *vlan, mac }, at)));
        }
        for (host, at) in hosts {
            let port = at.port;
            self.outbox.tell_edge(dpid, EdgeUpdate::Host { host, port });
        }
    }
}

/// A packet without its tag or label, and its bytes as received.
fn without_tag(packet: Held) -> (Held, bytes::Bytes) {
    let raw = packet.data;
    let data = match packet.is_labelled || vlan::tag_of(&raw).is_some() {
        true => vlan::without_tag(&raw),
        false => raw.clone(),
    };
    (Held { data, ..packet }, raw)
}
