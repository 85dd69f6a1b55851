//! Informs the edges of the ports and hosts that they may answer for.
//!
//! The controller opens an edge port with the first packet that it receives from the port, and
//! closes the port as soon as its role changes. It names a host to the edge after it has examined a
//! packet of that host, and withdraws the host when its place is in question. So an edge never
//! knows more than the controller. For a moment an edge may know less, and then a packet goes
//! through the controller.

use std::collections::BTreeMap;

use clock::Instant;
use openflow::{DatapathId, MacAddr, PortNo, Version};

use crate::edge::{Closed, Deliver, EdgeConfig, EdgeUpdate};
use crate::entry::Entry;
use crate::fabric::Exit;
use crate::vlan::{HostKey, PortVlans, VlanId};

use super::fabric;
use super::packet::Packet;
use super::{Controller, Location, Mode};

impl Controller {
    /// Starts the edge of a switch. Does nothing in proactive mode, where all entries exist
    /// beforehand, or where nothing is forwarded.
    pub(super) fn start_edge(&mut self, dpid: DatapathId) {
        if self.config.mode == Mode::Proactive || !self.config.is_forwarding {
            return;
        }
        let seed = self.outbox.random();
        let (idle_timeout_s, hard_timeout_s) = self.facts().timeouts_of_edges(None);
        let Some(version) = self.network.version(dpid) else {
            return;
        };
        self.ingress.close_edges(dpid);
        if let Some(table) = self.tables.get_mut(dpid) {
            table.handle_edge_started(idle_timeout_s, hard_timeout_s);
        }
        let config = EdgeConfig {
            version,
            generation: self.outbox.generation,
            idle_timeout_s,
            hard_timeout_s,
            seed,
            numbering: self.outbox.numbering(dpid),
        };
        self.outbox.tell_edge(dpid, EdgeUpdate::Start(config));
        self.tell_vlans(dpid);
        if self.outbox.bonds.of_switch(dpid).next().is_some() {
            self.tell_bonds(dpid);
        }
        if self.outbox.mirrors.outs(dpid).next().is_some() {
            self.tell_mirrors(dpid);
        }
        self.start_grant(dpid);
    }

    /// Informs the edge of the VLANs of its ports, if there are any.
    pub(super) fn tell_vlans(&mut self, dpid: DatapathId) {
        let of_switch = self.outbox.vlans.of_switch(dpid);
        let ports: BTreeMap<PortNo, PortVlans> = of_switch.collect();
        if !ports.is_empty() {
            self.outbox.tell_edge(dpid, EdgeUpdate::Vlans(ports));
        }
    }

    /// Whether the edge of the first host's switch answers between two hosts: both are at that
    /// switch, or the fabric leads to the second.
    pub(super) fn is_by_edge(
        &self,
        src: MacAddr,
        from: Location,
        dst: MacAddr,
        to: Location,
    ) -> bool {
        self.exit_of_edge(from, dst, to).is_some()
            && self.config.mode != Mode::Proactive
            && self.facts().edge_may_answer(from.dpid)
            && !self.facts().is_in_class(src)
            && !self.facts().is_in_class(dst)
    }

    /// The exit from a port's edge to a host, if edges know one.
    pub(super) fn exit_of_edge(&self, from: Location, dst: MacAddr, to: Location) -> Option<Exit> {
        match from.dpid == to.dpid {
            true => Some(Exit::Port(to.port)),
            false => self
                .fabric
                .exit(from.dpid, HostKey::untagged(dst), to)
                .filter(|_| !self.qos.leads_on(from.dpid)),
        }
    }

    /// Forwards a packet through the edge where it arrived. The edge answers such packets itself
    /// from now on. `to` is another port of this switch, or behind an egress.
    pub(super) fn deliver_locally(&mut self, now: Instant, packet: &Packet<'_>, to: Location) {
        let dpid = packet.at.dpid;
        if packet.is_copy {
            return self.install_locally(now, (packet.src, packet.at), (packet.dst, to));
        }
        let Some(exit) = self.exit_of_edge(packet.at, packet.dst, to) else {
            return;
        };
        self.tell_host(packet.src, packet.at);
        self.tell_host(packet.dst, to);
        let deliver = Deliver {
            now,
            in_port: packet.in_port,
            vlan: VlanId::NONE,
            src: packet.src,
            dst: packet.dst,
            exit,
            buffer_id: packet.buffer_id,
            data: packet.data.clone(),
        };
        self.outbox
            .tell_edge(dpid, EdgeUpdate::Deliver(Box::new(deliver)));
    }

    /// Sets an entry between two hosts through the edge of the first.
    pub(super) fn install_locally(
        &mut self,
        now: Instant,
        from: (MacAddr, Location),
        to: (MacAddr, Location),
    ) {
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

    /// Informs the edge that this host is at this edge port.
    pub(super) fn tell_host(&mut self, mac: MacAddr, at: Location) {
        let host = HostKey::untagged(mac);
        self.tell_fabric(mac, at);
        let port = at.port;
        if self.ingress.open_edge(at) {
            self.outbox.tell_edge(at.dpid, EdgeUpdate::Open(port));
        }
        // The controller decides every pair of a host in a class.
        if self.facts().edge_may_answer(at.dpid) && !self.facts().is_in_class(mac) {
            self.outbox
                .tell_edge(at.dpid, EdgeUpdate::Host { host, port });
        }
    }

    /// Names a host at an edge port to the fabric. The controller decides every pair of a host in a
    /// class.
    pub(super) fn tell_fabric(&mut self, mac: MacAddr, at: Location) {
        if self.fabric.is_on() && !self.facts().is_in_class(mac) {
            let host = HostKey::untagged(mac);
            self.fabric.handle_host(host, at, &mut self.outbox);
        }
    }

    /// Informs the edges of a new table of addresses, and of other settings.
    pub(super) fn tell_view(&mut self) {
        let presets = fabric::presets(&self.config.timeouts);
        self.fabric.handle_view(
            (VlanId::NONE, self.hosts.addresses()),
            presets,
            &mut self.outbox,
        );
        for (vlan, hosts) in &self.vlan_hosts {
            let view = (*vlan, hosts.addresses());
            self.fabric.handle_view(view, presets, &mut self.outbox);
        }
    }

    /// Closes a port that is down, removed, or a link: the edge deletes the entries that it set for
    /// the port. It receives the message even if it never knew of the port: an edge of an earlier
    /// connection may have known of it.
    pub(super) fn close_edge(&mut self, now: Instant, at: Location, hosts: Vec<MacAddr>) {
        // Its edge would delete the entries that send copies there.
        if self.outbox.mirrors.is_target(at) {
            return;
        }
        self.ingress.note_ended(now, at.dpid, None);
        self.ingress.close_edge(at);
        for mac in &hosts {
            let host = HostKey::untagged(*mac);
            self.fabric.forget_host(host, at.dpid, &mut self.outbox);
        }
        let port = at.port;
        let closed = Closed::new(port, &hosts);
        if self
            .outbox
            .tell_edge(at.dpid, EdgeUpdate::Close { port, hosts })
        {
            self.routes_deleted(now, at.dpid, |entry| closed.deletes(entry));
        }
    }

    /// Withdraws a host that has left, or that the edge must not answer for: the edge deletes the
    /// entries that it set for the host.
    pub(super) fn forget_host(&mut self, now: Instant, mac: MacAddr, at: Location) {
        let host = HostKey::untagged(mac);
        self.fabric.forget_host(host, at.dpid, &mut self.outbox);
        self.lift_host(now, mac, at);
    }

    /// Has the edge delete the entries that it set for a host, so that the host's packets go to the
    /// controller.
    pub(super) fn lift_host(&mut self, now: Instant, mac: MacAddr, at: Location) {
        self.ingress.note_ended(now, at.dpid, None);
        let host = HostKey::untagged(mac);
        if self.outbox.tell_edge(at.dpid, EdgeUpdate::Forget(host)) {
            self.routes_deleted(now, at.dpid, |entry| {
                entry.key.eth_src == Some(mac) || entry.key.eth_dst == Some(mac)
            });
        }
    }

    /// Sends routes again that were deleted with an edge's entries, if they are still wanted:
    /// OpenFlow 1.0 deletes by the match alone.
    fn routes_deleted(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        is_deleted: impl Fn(&Entry) -> bool,
    ) {
        let is_1_0 = self.network.version(dpid) == Some(Version::V10);
        let Some(table) = self.tables.get_mut(dpid).filter(|_| is_1_0) else {
            return;
        };
        let before = table.entries().len();
        let is_kept = |entry: &Entry| !entry.kind.is_route() || !is_deleted(entry);
        table.retain(is_kept);
        if table.entries().len() < before {
            self.routes_soon(now);
        }
    }
}
