//! Takes over the state that switches have from an earlier process: labels, routes, hosts, and
//! entries of edges.
//!
//! Only state that this process would set itself is kept, for the VLANs that ports have now. A
//! switch's reports may be wrong: a label that two switches claim, or one switch for two VLANs,
//! goes to the first claim, and entries in one VLAN towards a label of another VLAN are deleted.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::message::{FlowMod, FlowModCommand, MultipartRequest};
use openflow::multipart::{FlowStats, GroupDesc, ReplyBody, RequestBody};
use openflow::{Cookie, DatapathId, GroupId, Match, Message, PortNo};

use crate::Location;
use crate::bond::{self, Bond};
use crate::entry::{COOKIE_PREFIX_MASK, EntryKind};
use crate::fabric::form::{self, Holdings, HostPort, Part};
use crate::fabric::{Exit, Label, tree};
use crate::vlan::{HostKey, VlanId};

use super::ingress::{self, Ingress};
use super::{Egress, Fabric, Node, Sent, base};
use crate::controller::entries::delete_row;
use crate::controller::outbox::{Outbox, Request};

/// How long routes of an earlier process are left as they are while links that they use have not
/// been found again.
const ADOPTED_KEPT: Duration = Duration::from_secs(15);

/// The entries with which edges forward packets.
#[derive(Default)]
pub(in crate::controller) struct Ingresses {
    /// The ports of hosts, according to the entries that stay.
    pub kept: Vec<PortNo>,
    pub deleted: usize,
    /// The hosts of the switch, according to its entries.
    pub hosts: BTreeMap<HostKey, HostPort>,
}

impl Fabric {
    /// Removes the fabric's rows from a switch's rows, and requests the groups. Deletes wrong
    /// entries of edges.
    pub(in crate::controller) fn read_rows(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> Ingresses {
        let holdings = Holdings::take(rows);
        let tag = self.tag();
        let own = rows.extract_if(.., |row| ingress::is_ingress(tag, row));
        let own: Vec<FlowStats> = own.collect();
        let node = self.nodes.get(&dpid);
        let is_capable = node.is_some_and(|node| node.is_capable);
        let hosts = match is_capable {
            true => self.hosts_held(dpid, &holdings, outbox),
            false => BTreeMap::new(),
        };
        let mut ingresses = Ingresses::default();
        for row in &own {
            let read = Ingress::read(dpid, row, (tag, &outbox.vlans));
            let read = read.filter(|it| is_capable && self.is_right(dpid, it, &hosts, outbox));
            match read {
                Some(it) => ingresses.kept.push(it.in_port),
                None => {
                    ingresses.deleted += 1;
                    outbox.send_flow_mod(dpid, delete_row(row));
                }
            }
        }
        if is_capable || !holdings.is_empty() || !own.is_empty() {
            ingresses.kept.extend(hosts.values().map(|host| host.port));
            ingresses.hosts = hosts;
            self.nodes.entry(dpid).or_default().holdings = Some(holdings);
            let body = RequestBody::GroupDesc(GroupId::ALL);
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            outbox.request(now, dpid, Request::Groups, &message);
        }
        ingresses
    }

    /// Whether an edge's entry leads to its destination's place, as far as the place is known.
    fn is_right(
        &mut self,
        dpid: DatapathId,
        ingress: &Ingress,
        hosts: &BTreeMap<HostKey, HostPort>,
        outbox: &Outbox,
    ) -> bool {
        match ingress.exit {
            Exit::Port(port) => {
                let place = outbox.bonds.place(Location { dpid, port });
                let held = hosts.get(&ingress.dst);
                held.is_some_and(|held| held.port == place.port)
            }
            Exit::Egress(label) => self.may_lead(dpid, ingress.dst.vlan, label),
        }
    }

    /// Takes over the right parts on a switch, and deletes the wrong ones. Returns whether the
    /// switch takes part from now on. `others`: parts of another machine; those that the switch has
    /// remain, groups as the switch has them.
    pub(in crate::controller) fn read_groups(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        bodies: Vec<ReplyBody>,
        (others, outbox): (&mut Vec<Part>, &mut Outbox),
    ) -> bool {
        let wanted = std::mem::take(others);
        let Some(node) = self.nodes.get_mut(&dpid) else {
            return false;
        };
        let Some(mut held) = node.holdings.take() else {
            return false;
        };
        let is_capable = node.is_capable;
        let is_new = is_capable && !node.is_ready;
        let groups = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::GroupDesc(groups) => groups,
            _ => Vec::new(),
        });
        held.add_groups(groups.collect::<Vec<GroupDesc>>());
        let wanted = wanted.into_iter().filter(|_| is_capable);
        *others = wanted.filter_map(|part| held.claim_place(part)).collect();
        if is_capable {
            let sent = self.adopt(dpid, &mut held, outbox);
            if !sent.inlets.is_empty() {
                self.adopted_until = Some(now + ADOPTED_KEPT);
            }
            if let Some(node) = self.nodes.get_mut(&dpid) {
                (node.sent, node.is_ready) = (sent, true);
                node.leaving.clear();
                node.leaving_inlets.clear();
                let coming = std::mem::take(&mut node.coming_hosts);
                node.new_hosts.extend(coming);
            }
            self.is_stale = true;
            self.handle_pieces(dpid, outbox);
        }
        for message in held.clear() {
            outbox.counters.fabric_parts_wrong += 1;
            outbox.send(dpid, message);
        }
        is_new
    }

    /// The ports of a bond at which a switch accepts packets, and those out of which it sends them,
    /// as set by an earlier process. `None` unless the switch has the bond's group as auster sets
    /// it.
    pub(in crate::controller) fn bond_held(
        &self,
        bond: &Bond,
        bodies: &[ReplyBody],
    ) -> Option<[BTreeSet<PortNo>; 2]> {
        let node = self.nodes.get(&bond.dpid).filter(|node| node.is_capable)?;
        let entries = node.holdings.as_ref()?;
        let place = bond.place().port;
        let mut groups = bodies.iter().flat_map(|body| match body {
            ReplyBody::GroupDesc(groups) => &groups[..],
            _ => &[],
        });
        let group = groups.find(|it| it.group_id == bond::group(place))?;
        let distributing: BTreeSet<PortNo> = group.buckets.iter().map(|it| it.watch_port).collect();
        let mut held = Holdings::default();
        held.add_groups(vec![group.clone()]);
        let is_right = |shares| held.has(vec![form::bond(place, &distributing, shares)]);
        if !distributing.is_subset(&bond.ports) || !(is_right(true) || is_right(false)) {
            return None;
        }
        let takes = |port: &&PortNo| {
            entries.has(vec![form::lacp(**port)]) && !entries.has(vec![form::closed(**port)])
        };
        let collecting = bond.ports.iter().filter(takes).copied().collect();
        Some([collecting, distributing])
    }

    /// Takes over the right parts of a switch's holdings.
    fn adopt(&mut self, dpid: DatapathId, held: &mut Holdings, outbox: &mut Outbox) -> Sent {
        let mut sent = Sent {
            base: held.claim(base(self.copies)),
            ..Sent::default()
        };
        // The hosts are read before their labels are taken out.
        let hosts = self.hosts_held(dpid, held, outbox);
        for (vlan, label) in held.own_labels() {
            if self.may_label(dpid, vlan, label) && held.claim(form::own(vlan, label)) {
                sent.own.insert(vlan, label);
                self.adopt_label(dpid, (vlan, label), outbox);
            }
        }
        for port in held.inlets() {
            if held.claim(form::inlet(port)) {
                sent.inlets.insert(port);
            }
        }
        for (label, route) in held.routes() {
            if held.claim(form::route(label, &route)) {
                sent.routes.insert(label, route);
            }
        }
        for (label, piece) in held.trees() {
            let is_free = !self.egresses.contains_key(&label);
            let is_known = self.domains.contains_key(&piece.vlan);
            if is_free && is_known && held.claim(tree::parts(label, &piece)) {
                sent.trees.insert(label, piece);
            }
        }
        for (host, at) in hosts {
            let is_labelled = host.vlan.is_none() || sent.own.contains_key(&host.vlan);
            if is_labelled && held.claim(form::host(host, &at)) {
                sent.hosts.insert(host, at);
                self.held_at.entry(host).or_default().insert(dpid);
            }
        }
        sent
    }

    /// Whether a switch may have the label for a VLAN that its entries claim.
    fn may_label(&self, dpid: DatapathId, vlan: VlanId, label: Label) -> bool {
        let node = self.nodes.get(&dpid);
        let own = node.and_then(|node| node.labels.get(&vlan));
        let has_room = self.egresses.len() < self.config.unwrap_or_default().egress_count_max;
        let is_of_tree = |node: &Node| node.sent.trees.contains_key(&label);
        let is_used = self.egresses.contains_key(&label) || self.trees.has_label(label);
        let is_used = is_used || self.nodes.values().any(is_of_tree);
        let is_free = !is_used && has_room;
        let may = own.map_or(is_free, |own| *own == label);
        may && self.domains.contains_key(&vlan)
    }

    fn adopt_label(
        &mut self,
        dpid: DatapathId,
        (vlan, label): (VlanId, Label),
        outbox: &mut Outbox,
    ) {
        let Some(node) = self.nodes.get_mut(&dpid) else {
            return;
        };
        if node.labels.insert(vlan, label).is_some() {
            return;
        }
        self.take_label(Egress { dpid, vlan }, label, outbox);
    }

    /// Gives an egress a label. Deletes entries of an earlier process that lead packets of another
    /// VLAN to the label.
    pub(super) fn take_label(&mut self, egress: Egress, label: Label, outbox: &mut Outbox) {
        self.egresses.insert(label, egress);
        self.waiting.insert(label);
        let vlan = egress.vlan;
        for (dpid, node) in &mut self.nodes {
            let towards = (label, VlanId::NONE)..=(label, VlanId::MAX);
            let all: Vec<_> = node.adopted.range(towards).copied().collect();
            if all.iter().any(|(_, of)| *of != vlan) {
                for kind in [EntryKind::Local, EntryKind::Routed] {
                    outbox.counters.fabric_parts_wrong += 1;
                    outbox.send_flow_mod(*dpid, delete_towards(kind, label));
                }
            }
            for it in all {
                node.adopted.remove(&it);
            }
        }
    }

    /// The hosts that the entries of a switch name correctly, for the VLANs that its ports have
    /// now.
    fn hosts_held(
        &self,
        dpid: DatapathId,
        held: &Holdings,
        outbox: &Outbox,
    ) -> BTreeMap<HostKey, HostPort> {
        let at = |port| Location { dpid, port };
        let untagged = held.hosts().into_iter().filter_map(|(mac, port)| {
            outbox.vlans.form(at(port), VlanId::NONE)?;
            Some((HostKey::untagged(mac), HostPort { port, vlan: None }))
        });
        let labels = held.own_labels().into_iter();
        let labels = labels.filter(|(vlan, label)| self.may_label(dpid, *vlan, *label));
        let vlans: BTreeMap<Label, VlanId> = labels.map(|(vlan, label)| (label, vlan)).collect();
        let members = held.members().into_iter().filter_map(|(label, mac, port)| {
            let vlan = *vlans.get(&label)?;
            let form = outbox.vlans.form(at(port), vlan)?;
            let host = HostKey { vlan, mac };
            let vlan = Some((label, form));
            Some((host, HostPort { port, vlan }))
        });
        let hosts = untagged.chain(members);
        hosts
            .filter(|(host, at)| held.has(form::host(*host, at)))
            .collect()
    }

    /// The places of a host according to entries of an earlier process, apart from `at`. They count
    /// until the host's place is known.
    pub(in crate::controller) fn told_elsewhere(
        &self,
        host: HostKey,
        at: Location,
    ) -> Vec<Location> {
        let told = self.held_at.get(&host).into_iter().flatten();
        let place = |dpid: &DatapathId| {
            let port = self.nodes.get(dpid)?.sent.hosts.get(&host)?.port;
            let dpid = *dpid;
            Some(Location { dpid, port })
        };
        told.filter_map(place).filter(|told| *told != at).collect()
    }

    /// Notes that an entry of an earlier process leads packets of a VLAN to an egress. Returns
    /// whether the entry may be right: its label is not known to belong to another VLAN.
    pub(in crate::controller) fn may_lead(
        &mut self,
        dpid: DatapathId,
        vlan: VlanId,
        label: Label,
    ) -> bool {
        let egress = self.egresses.get(&label);
        let is_right = egress.is_none_or(|egress| egress.vlan == vlan);
        if let Some(node) = self.nodes.get_mut(&dpid).filter(|_| is_right) {
            node.adopted.insert((label, vlan));
        }
        is_right
    }
}

/// Deletes the entries of one kind that lead to an egress.
fn delete_towards(kind: EntryKind, label: Label) -> FlowMod {
    FlowMod {
        command: FlowModCommand::Delete,
        cookie: kind.cookie(0),
        cookie_mask: Cookie(COOKIE_PREFIX_MASK.0 | 0xff00),
        out_group: form::group(label),
        instructions: Vec::new(),
        ..FlowMod::add(0, Match::any(), Vec::new())
    }
}
