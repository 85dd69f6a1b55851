//! Multicast in hardware: the ports of a group's members, and the entries and OpenFlow groups that
//! copy its packets to them.
//!
//! A machine of its own. [`Membership`] decides who receives. The first packet of a sender goes to
//! the controller. The sender's switch then gets a group that copies its packets ([`replication`]),
//! and switches handle later packets alone. A sender's entry ends after a minute without a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use clock::Instant;
use openflow::message::{FlowModCommand, FlowRemoved, PacketOut};
use openflow::packet::PacketFields;
use openflow::packet::membership::{self, Heard, Message as Said, Query, Sender};
use openflow::{Action, DatapathId, GroupId, Message, PortNo};

use crate::Location;
use crate::fabric::replication::{self, GroupKey, SLOTS};
use crate::fabric::{Label, form};
use crate::multicast::{Family, Membership, Output, QuerierAddresses, is_tracked};
use crate::vlan::{self, Form, VlanId, Vlans};

use super::Controller;
use super::config::MulticastConfig;
use super::fabric::{Fabric, send_change};
use super::hosts::{OWN_MAC, link_local};
use super::outbox::{Outbox, Timer};
use super::packet::Packet;

/// Maximum number of groups that the hosts of one port, and of one switch, may send to at a time.
const SENDERS_PER_PORT_MAX: usize = 64;
const SENDERS_PER_SWITCH_MAX: usize = 2048;
/// Maximum number of VLANs in which a port is asked when it has just opened. Further VLANs wait for
/// the next query.
const ASKED_PER_PORT_MAX: usize = 64;

/// Maximum number of switches with members for which a group's copies fit into one message.
const EGRESSES_MAX: usize = 900;

/// The sender of queries for one group, which elect no querier (RFC 4541, 2.1.1).
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;

pub(super) struct Multicast {
    config: Option<MulticastConfig>,
    membership: Membership,
    /// The entries of egresses, as they were sent.
    delivered: BTreeMap<(GroupKey, DatapathId), Vec<form::Part>>,
    /// The copies for the senders of a switch. Senders behind a bond have separate copies, none of
    /// which goes to that bond.
    senders: BTreeMap<(GroupKey, DatapathId, PortNo), Copies>,
    /// The groups that hosts of each port send to, with the tags of their packets.
    by_port: BTreeMap<Location, BTreeSet<(GroupKey, Option<u16>)>>,
    /// The slots in use at each switch.
    slots: BTreeMap<DatapathId, BTreeSet<u16>>,
    /// Switches that refuse groups with copies: the controller floods there, within its budgets.
    refusing: BTreeSet<DatapathId>,
    due: Option<Instant>,
}

/// The copies that a switch makes for its senders to a group.
struct Copies {
    slot: u16,
    /// The ports of its senders, with the tags of their packets.
    ports: BTreeSet<(PortNo, Option<u16>)>,
    /// The group as it was sent.
    sent: form::Part,
}

/// The IP multicast group that a packet goes to, if its members are tracked.
pub(super) fn group_of(packet: &Packet<'_>, fields: &PacketFields) -> Option<IpAddr> {
    use openflow::Field::{Ipv4Dst, Ipv6Dst};
    if !packet.dst.is_multicast() {
        return None;
    }
    let v4 = fields
        .get(Ipv4Dst)
        .map(|ip| Ipv4Addr::from(ip as u32).into());
    let ip = v4.or_else(|| Some(Ipv6Addr::from(fields.get(Ipv6Dst)?).into()));
    ip.filter(|ip| is_tracked(*ip))
}

impl Multicast {
    pub(super) fn new(config: Option<MulticastConfig>) -> Multicast {
        let snooping = config.as_ref().map(|config| config.snooping);
        Multicast {
            config,
            membership: Membership::new(snooping.unwrap_or_default()),
            delivered: BTreeMap::new(),
            senders: BTreeMap::new(),
            by_port: BTreeMap::new(),
            slots: BTreeMap::new(),
            refusing: BTreeSet::new(),
            due: None,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.is_some()
    }

    fn querier(&self) -> Option<QuerierAddresses> {
        self.config.as_ref().and_then(|config| config.querier)
    }

    /// Whether a router may be behind a port. Any host can claim to be a router.
    fn may_be_router(&self, at: Location) -> bool {
        let stated = self.config.as_ref().and_then(|it| it.router_ports.as_ref());
        stated.is_none_or(|ports| ports.contains(&at))
    }

    /// Starts or stops queries in a VLAN, if queries are wanted.
    pub(super) fn set_asking(&mut self, now: Instant, vlan: VlanId, is_asking: bool) {
        let addresses = self.querier();
        if let Some(addresses) = addresses {
            let nobody = QuerierAddresses::default();
            let addresses = if is_asking { addresses } else { nobody };
            self.membership.set_querier(now, vlan, addresses);
        }
    }

    /// The ports at each switch that receive a group.
    fn receivers(&self, key: GroupKey, vlans: &Vlans) -> Receivers {
        let mut receivers = Receivers::new();
        for at in self.membership.receivers(key.vlan, key.ip) {
            if let Some(form) = vlans.form(at, key.vlan) {
                receivers.entry(at.dpid).or_default().push((at.port, form));
            }
        }
        receivers
    }

    /// Sends the changes of a group: the entries of egresses first, and then the copies.
    fn update(&mut self, key: GroupKey, fabric: &Fabric, outbox: &mut Outbox) {
        let receivers = self.receivers(key, &outbox.vlans);
        let held = self.delivered.range(switches_of(key));
        let mut switches: BTreeSet<DatapathId> = held.map(|((_, dpid), _)| *dpid).collect();
        switches.extend(receivers.keys());
        // A switch that is away keeps using its entries, and gets all of them again.
        for dpid in switches.into_iter().filter(|dpid| fabric.has_tables(*dpid)) {
            let label = fabric.egress_label(dpid, key.vlan);
            let new = match label.zip(receivers.get(&dpid)) {
                Some((label, ports)) => replication::delivery(key, label, ports),
                None => Vec::new(),
            };
            let old = self.delivered.remove(&(key, dpid)).unwrap_or_default();
            if !new.is_empty() {
                self.delivered.insert((key, dpid), new.clone());
            }
            send_change(dpid, old, new, outbox);
        }
        if receivers.len() > EGRESSES_MAX {
            return self.end_senders(key, outbox);
        }
        for ((_, dpid, home), copies) in self.senders.range_mut(senders_of(key)) {
            let new = copies_of(copies.slot, (*dpid, *home), key, (&receivers, fabric));
            if new != copies.sent {
                let old = std::mem::replace(&mut copies.sent, new.clone());
                send_change(*dpid, vec![old], vec![new], outbox);
            }
        }
    }

    /// Sends the changes of all groups after routes or labels have changed.
    pub(super) fn update_all(&mut self, fabric: &Fabric, outbox: &mut Outbox) {
        if !self.is_on() {
            return;
        }
        let mut keys: BTreeSet<GroupKey> = self.delivered.keys().map(|(key, _)| *key).collect();
        keys.extend(self.senders.keys().map(|(key, ..)| *key));
        let groups = self.membership.groups();
        keys.extend(groups.map(|(vlan, ip)| GroupKey { vlan, ip }));
        for key in keys {
            self.update(key, fabric, outbox);
        }
    }

    /// Forgets the entries and groups of a switch: it has lost them, or they are deleted.
    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.delivered.retain(|(_, of), _| *of != dpid);
        self.refusing.remove(&dpid);
        self.senders.retain(|(_, of, _), _| *of != dpid);
        self.by_port.retain(|at, _| at.dpid != dpid);
        self.slots.remove(&dpid);
    }

    /// Ends the senders and deletes the entries of a switch that no longer takes part in the
    /// fabric.
    pub(super) fn exclude(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        self.end_senders_at(dpid, outbox);
        let held = self.delivered.extract_if(.., |(_, of), _| *of == dpid);
        for (_, parts) in held.collect::<Vec<_>>() {
            send_change(dpid, parts, Vec::new(), outbox);
        }
    }

    /// Stops using groups with copies at a switch that refuses them.
    pub(super) fn handle_refused(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        self.refusing.insert(dpid);
        self.end_senders_at(dpid, outbox);
    }

    fn end_senders_at(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let here = self.by_port.iter().filter(|(at, _)| at.dpid == dpid);
        let all = here.flat_map(|(at, own)| {
            let own = own.iter();
            own.map(|(key, tag)| (*key, (at.port, *tag)))
        });
        for (key, port) in all.collect::<Vec<_>>() {
            self.end_sender((dpid, key), port, outbox);
        }
    }

    /// Sets the entry of a sender whose packet has reached the controller. Returns the group that
    /// copies its packets, or `None` if there is no room for another.
    fn handle_sender(
        &mut self,
        key: GroupKey,
        (at, tag): (Location, Option<u16>),
        fabric: &Fabric,
        outbox: &mut Outbox,
    ) -> Option<GroupId> {
        if self.refusing.contains(&at.dpid) || !fabric.has_tables(at.dpid) {
            return None;
        }
        let port = (at.port, tag);
        let id = (key, at.dpid, home_of(at, outbox));
        let own = self.by_port.get(&at);
        let is_known = own.is_some_and(|own| own.contains(&(key, tag)));
        if !is_known && own.map_or(0, BTreeSet::len) >= SENDERS_PER_PORT_MAX {
            return None;
        }
        if !self.senders.contains_key(&id) {
            let receivers = self.receivers(key, &outbox.vlans);
            if receivers.len() > EGRESSES_MAX {
                return None;
            }
            let slot = self.take_slot(at.dpid)?;
            let sent = copies_of(slot, (at.dpid, id.2), key, (&receivers, fabric));
            send_change(at.dpid, Vec::new(), vec![sent.clone()], outbox);
            let ports = BTreeSet::new();
            self.senders.insert(id, Copies { slot, ports, sent });
        }
        let copies = self.senders.get_mut(&id)?;
        copies.ports.insert(port);
        self.by_port.entry(at).or_default().insert((key, tag));
        let entry = replication::sender(key, port, copies.slot, outbox.generation);
        outbox.send_flow_mod(at.dpid, entry);
        Some(replication::group(copies.slot))
    }

    /// Takes a slot that no group of the switch uses, unless the switch has used its share.
    fn take_slot(&mut self, dpid: DatapathId) -> Option<u16> {
        let taken = self.slots.entry(dpid).or_default();
        if taken.len() >= SENDERS_PER_SWITCH_MAX {
            return None;
        }
        let slot = (0..SLOTS).find(|slot| !taken.contains(slot))?;
        taken.insert(slot);
        Some(slot)
    }

    /// Ends the copies of a sender that is silent, or whose port has gone.
    pub(super) fn handle_sender_gone(
        &mut self,
        (dpid, key): (DatapathId, GroupKey),
        port: (PortNo, Option<u16>),
        outbox: &mut Outbox,
    ) {
        let (number, tag) = port;
        let at = Location { dpid, port: number };
        let id = (key, dpid, home_of(at, outbox));
        if let Some(own) = self.by_port.get_mut(&at) {
            own.remove(&(key, tag));
            if own.is_empty() {
                self.by_port.remove(&at);
            }
        }
        let Some(copies) = self.senders.get_mut(&id) else {
            return;
        };
        copies.ports.remove(&port);
        if copies.ports.is_empty()
            && let Some(copies) = self.senders.remove(&id)
        {
            self.slots.entry(dpid).or_default().remove(&copies.slot);
            send_change(dpid, vec![copies.sent], Vec::new(), outbox);
        }
    }

    /// Ends the entries of all senders at a port.
    pub(super) fn end_senders_of(&mut self, at: Location, outbox: &mut Outbox) {
        for (key, tag) in self.by_port.remove(&at).unwrap_or_default() {
            self.end_sender((at.dpid, key), (at.port, tag), outbox);
        }
    }

    /// Ends the multicast that a port sends and receives.
    fn handle_port_gone(&mut self, now: Instant, at: Location, outbox: &mut Outbox) {
        self.membership.handle_port_gone(now, at);
        for at in outbox.bonds.clone().ports(at) {
            self.end_senders_of(at, outbox);
        }
    }

    /// Ends the entries of all senders to a group.
    fn end_senders(&mut self, key: GroupKey, outbox: &mut Outbox) {
        let of_key = self.senders.range(senders_of(key));
        let all = of_key.flat_map(|((_, dpid, _), copies)| {
            let ports = copies.ports.iter();
            ports.map(|port| (*dpid, *port))
        });
        for (dpid, port) in all.collect::<Vec<_>>() {
            self.end_sender((dpid, key), port, outbox);
        }
    }

    fn end_sender(
        &mut self,
        (dpid, key): (DatapathId, GroupKey),
        port: (PortNo, Option<u16>),
        outbox: &mut Outbox,
    ) {
        let mut entry = replication::sender(key, port, 0, outbox.generation);
        entry.command = FlowModCommand::DeleteStrict;
        entry.instructions.clear();
        outbox.send_flow_mod(dpid, entry);
        self.handle_sender_gone((dpid, key), port, outbox);
    }

    fn set_timer(&mut self, outbox: &mut Outbox) {
        let Some(due) = self.membership.next_due().filter(|_| self.is_on()) else {
            return;
        };
        if self.due.is_none_or(|set| due < set) {
            self.due = Some(due);
            outbox.timer(due, Timer::Multicast);
        }
    }
}

/// The keys of a group at all switches.
fn switches_of(key: GroupKey) -> RangeInclusive<(GroupKey, DatapathId)> {
    (key, DatapathId(0))..=(key, DatapathId(u64::MAX))
}

/// The same for the keys of senders.
fn senders_of(key: GroupKey) -> RangeInclusive<(GroupKey, DatapathId, PortNo)> {
    let first = (key, DatapathId(0), PortNo(0));
    first..=(key, DatapathId(u64::MAX), PortNo(u32::MAX))
}

/// The port to which a sender's packets are not copied: the port of its bond, or its own port if
/// packets to it are also copied elsewhere. The switch itself leaves out any other sender's port.
fn home_of(at: Location, outbox: &Outbox) -> PortNo {
    match outbox.bonds.contains(at) || outbox.mirrors.copies_out(at) {
        true => outbox.bonds.place(at).port,
        false => PortNo::ANY,
    }
}

/// The ports of each switch that receive a group, with the form of its packets there.
type Receivers = BTreeMap<DatapathId, Vec<(PortNo, Form)>>;

fn copies_of(
    slot: u16,
    (dpid, home): (DatapathId, PortNo),
    key: GroupKey,
    (receivers, fabric): (&Receivers, &Fabric),
) -> form::Part {
    let here = receivers.get(&dpid).into_iter().flatten();
    // A bond would send a copy back by another port than the one where the packet arrived.
    let here: Vec<(PortNo, Form)> = here.filter(|(port, _)| *port != home).copied().collect();
    let away = receivers.keys().filter(|of| **of != dpid);
    let labels = away.filter_map(|of| fabric.egress_label(*of, key.vlan));
    let labels: Vec<Label> = labels
        .filter(|label| fabric.leads_to(dpid, *label))
        .collect();
    replication::copies(slot, key.vlan, &here, &labels, fabric.tag())
}

impl Controller {
    /// Handles a packet for a multicast group from a host at an edge port. `raw`: the packet as
    /// received. Returns false if the packet is to be flooded.
    pub(super) fn handle_multicast(
        &mut self,
        now: Instant,
        vlan: VlanId,
        (packet, raw): (&Packet<'_>, &bytes::Bytes),
        fields: &PacketFields,
    ) -> bool {
        if !self.multicast.is_on() || !packet.dst.is_multicast() {
            return false;
        }
        match membership::read(packet.data) {
            Ok(Some(heard)) => {
                self.handle_membership(now, vlan, packet, &heard);
                return true;
            }
            Ok(None) => {}
            Err(_) => {
                self.outbox.counters.memberships_refused += 1;
                return true;
            }
        }
        let Some(ip) = group_of(packet, fields) else {
            return false;
        };
        let tag = vlan::tag_of(raw).filter(|_| !vlan.is_none());
        // An entry for packets with only a priority tag would not see a tag behind it.
        if tag == Some(0) {
            return false;
        }
        let is_free = !vlan.is_none() || !self.facts().is_in_class(packet.src);
        let is_tagged = vlan.is_none() && fields.vlan_id().is_some();
        if !is_free || is_tagged {
            return false;
        }
        // An entry that the switch refuses would leave all packets to the controller.
        if !self.ingress.may_detour(now, packet.at) {
            self.outbox.counters.packet_ins_detour_limited += 1;
            return true;
        }
        let key = GroupKey { vlan, ip };
        let inlet = Location {
            port: packet.in_port,
            ..packet.at
        };
        let sender = (inlet, tag);
        let group = self
            .multicast
            .handle_sender(key, sender, &self.fabric, &mut self.outbox);
        let Some(group) = group else {
            return false;
        };
        self.outbox.counters.packet_outs += 1;
        let message = PacketOut::new(
            packet.in_port,
            vec![Action::Group(group)],
            packet.data.clone(),
        );
        self.outbox
            .send(packet.at.dpid, Message::PacketOut(message));
        true
    }

    /// Handles a message about membership. Reports are forwarded to routers, and queries are
    /// flooded.
    fn handle_membership(
        &mut self,
        now: Instant,
        vlan: VlanId,
        packet: &Packet<'_>,
        heard: &Heard,
    ) {
        let at = packet.at;
        let is_of_router = matches!(heard.message, Said::Query(_) | Said::PimHello { .. });
        if is_of_router && !self.multicast.may_be_router(at) {
            self.outbox.counters.memberships_refused += 1;
            return;
        }
        if !self.ingress.may_flood(now, at, &mut self.outbox) {
            return;
        }
        let membership = &mut self.multicast.membership;
        membership.handle_message(now, vlan, at, heard);
        match heard.message {
            Said::Query(_) => {
                self.spread_in(now, vlan, (at, packet.data), None);
            }
            _ => {
                let family = Family::new(heard.from);
                let routers: Vec<Location> = membership.routers(vlan, family).collect();
                for to in routers.into_iter().filter(|to| *to != at) {
                    if !self.has_no_way(at.dpid, to.dpid) {
                        self.outbox.packet_out_in(vlan, to, packet.data);
                    }
                }
            }
        }
        self.follow_membership();
    }

    /// Carries out the decisions about membership.
    pub(super) fn follow_membership(&mut self) {
        let mut changed = BTreeSet::new();
        let mut is_all = false;
        while let Some(output) = self.multicast.membership.poll_output() {
            match output {
                Output::Joined { vlan, group, .. } | Output::Left { vlan, group, .. } => {
                    changed.insert(GroupKey { vlan, ip: group });
                }
                Output::RouterFound { .. } | Output::RouterLost { .. } => is_all = true,
                Output::Ask { vlan, to, query } => self.ask_members(vlan, to, &query),
            }
        }
        let (fabric, outbox) = (&self.fabric, &mut self.outbox);
        if is_all {
            self.multicast.update_all(fabric, outbox);
        }
        for key in changed {
            self.multicast.update(key, fabric, outbox);
        }
        self.multicast.set_timer(&mut self.outbox);
    }

    /// Asks the hosts of ports that have just become host ports, or are in other VLANs.
    pub(super) fn ask_at(&mut self, ports: impl IntoIterator<Item = Location>) {
        let vlans = self.outbox.vlans.clone();
        for at in ports {
            let of_port = match vlans.ports.get(&at) {
                Some(of_port) => of_port.all().collect(),
                None => vec![VlanId::NONE],
            };
            for vlan in of_port.into_iter().take(ASKED_PER_PORT_MAX) {
                self.multicast.membership.ask_port(vlan, at);
            }
        }
        self.follow_membership();
    }

    fn ask_members(&mut self, vlan: VlanId, to: Option<Location>, query: &Query) {
        let own = self.multicast.querier().unwrap_or_default();
        let frame = query.frame(Sender {
            mac: OWN_MAC,
            ipv4: own.ipv4.filter(|_| to.is_none()).unwrap_or(NOBODY),
            ipv6: own.ipv6.unwrap_or(link_local(OWN_MAC)),
        });
        match to {
            Some(to) => self.outbox.packet_out_in(vlan, to, &frame),
            None => self.send_to_all(vlan, &frame.into()),
        }
    }

    /// Handles the end of a sender's entry.
    pub(super) fn sender_removed(&mut self, dpid: DatapathId, removed: &FlowRemoved) {
        let Some((ip, port, tag)) = replication::sender_of(&removed.r#match) else {
            self.outbox.counters.unsolicited += 1;
            return;
        };
        let at = Location { dpid, port };
        let is_earlier = crate::entry::generation(removed.cookie) != self.outbox.generation;
        if let Some(vlan) = self.outbox.vlans.classify(at, tag).filter(|_| !is_earlier) {
            let key = GroupKey { vlan, ip };
            self.multicast
                .handle_sender_gone((dpid, key), (port, tag), &mut self.outbox);
        }
    }

    pub(super) fn multicast_due(&mut self, now: Instant) {
        self.multicast.due = None;
        self.multicast.membership.due(now);
        self.follow_membership();
    }

    /// Ends the multicast of a port that is down, a link, or in another VLAN.
    pub(super) fn end_multicast(&mut self, now: Instant, at: Location) {
        if self.multicast.is_on() {
            self.multicast.handle_port_gone(now, at, &mut self.outbox);
            self.follow_membership();
        }
    }
}
