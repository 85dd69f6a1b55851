//! The access entries of all switches, which decide who may send what, and their counters.
//!
//! The entries follow from the settings, from the VLANs of ports, from the gateways between VLANs,
//! and from the ports that are ends of links. The controller compares them with a switch's own
//! entries when the switch connects and at each reading of the counters, and mends differences.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::message::{FlowRemoved, FlowRemovedReason, MultipartRequest};
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::packet::PacketFields;
use openflow::{DatapathId, ErrorKind, Message, PortNo, Version};

use crate::access::learned::Learned;
use crate::access::tables::{self, Around, EntryKey, Orders, Owner, Plan, Planned, Step};
use crate::access::{Access, RuleId, Verdict, can_decide, can_lead_onward};
use crate::bond::Bonds;
use crate::entry::is_own;
use crate::mirror::Mirrors;
use crate::pipeline::{MIRROR_TABLE, Numbering};
use crate::routing::{Gateways, Routing};
use crate::session::SwitchUp;
use crate::vlan::{VlanId, Vlans};
use crate::{ConnectionId, Location};

use super::Controller;
use super::entries::delete_row;
use super::event::Alarm;
use super::network::Network;
use super::outbox::{Outbox, Request, Timer};
use super::output::RefusedReason;
use super::port_state::PortRole;

/// Time between two readings of the counters.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of switches known to refuse the way through tables that nothing needs.
const WAYLESS_MAX: usize = 1024;

/// The number of packets decided about, by the owner of the entry that decided.
type Counts = BTreeMap<Owner, u64>;

/// Packets that access lists, bindings and guards have decided about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessCounts {
    /// For each rule that is in use: its list, its name or number, and whether it allows.
    pub rules: Vec<(String, String, bool, u64)>,
    /// All other dropped packets, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
pub(super) struct AccessControl {
    /// Whether switches always have the tables of mirrors and access, so that both can be added and
    /// removed without a change of table numbers.
    has_tables: bool,
    /// Switches that have refused the way through these tables while nothing was decided in them.
    /// They have the tables only while something is decided in them, as without the fabric.
    wayless: BTreeSet<DatapathId>,
    /// The statements, with bonds by their places.
    stated: Access,
    /// The statements with the ports of bonds.
    access: Access,
    orders: Orders,
    /// The entries sent to each connected switch.
    sent: BTreeMap<DatapathId, Plan>,
    counts: BTreeMap<DatapathId, Counts>,
    /// The connected switches that cannot decide.
    unable: BTreeSet<DatapathId>,
    /// The connected switches that cannot have the table of static entries that let packets go on,
    /// and those that have it.
    shallow: BTreeSet<DatapathId>,
    onward: BTreeSet<DatapathId>,
    is_reading: bool,
    /// Hosts with an address by DHCP, at ports that are bound to such hosts.
    pub(super) learned: Learned,
    /// The switches with such ports whose entries have been taken over.
    adopted: BTreeSet<DatapathId>,
}

impl AccessControl {
    /// `has_tables`: switches always have the tables of mirrors and access.
    pub(super) fn new(access: Access, bonds: &Bonds, has_tables: bool) -> AccessControl {
        let mut control = AccessControl {
            has_tables,
            ..AccessControl::default()
        };
        control.set(access, bonds);
        control
    }

    /// Whether there is any statement about access.
    pub(super) fn is_on(&self) -> bool {
        self.access.is_on()
    }

    fn set(&mut self, stated: Access, bonds: &Bonds) {
        // The counts name rules by their numbers.
        self.counts.clear();
        self.access = stated.of_ports(bonds);
        self.stated = stated;
        self.learned.retain(&self.stated.by_dhcp);
        for place in self.stated.by_dhcp.clone() {
            self.take_learned(place, bonds);
        }
        self.orders = self.orders.change(&self.access);
    }

    /// Applies changed bonds.
    pub(super) fn set_bonds(&mut self, bonds: &Bonds) {
        let stated = std::mem::take(&mut self.stated);
        self.set(stated, bonds);
    }

    /// Binds the ports of a place to the stated and the learned hosts.
    fn take_learned(&mut self, place: Location, bonds: &Bonds) {
        let stated = self.stated.bindings.get(&place);
        let mut all = stated.cloned().unwrap_or_default();
        let learned = self.learned.of_port(place);
        let is_stated = |mac| stated.is_some_and(|all| all.iter().any(|host| host.mac == mac));
        all.extend(learned.filter(|host| !is_stated(host.mac)));
        for at in bonds.ports(place) {
            self.access.bindings.insert(at, all.clone());
        }
    }

    /// Binds the ports of a place in the same way, and updates their switch.
    pub(super) fn bind(&mut self, place: Location, bonds: &Bonds, outbox: &mut Outbox) {
        let ports = bonds.ports(place);
        let parts = |control: &AccessControl, at: &Location| {
            let hosts = control.access.bindings.get(at);
            tables::bound(*at, hosts.map_or(&[][..], |hosts| hosts), true)
        };
        let before: Vec<Plan> = ports.iter().map(|at| parts(self, at)).collect();
        self.take_learned(place, bonds);
        let after: Vec<Plan> = ports.iter().map(|at| parts(self, at)).collect();
        let Some(sent) = self.sent.get_mut(&place.dpid) else {
            return;
        };
        for (before, after) in before.into_iter().zip(after) {
            for (key, planned) in after.iter().rev() {
                if !sent.get(key).is_some_and(|sent| sent.does_as(planned)) {
                    outbox.send_flow_mod(place.dpid, key.to_add(planned, outbox.generation));
                    sent.insert(key.clone(), planned.clone());
                }
            }
            for key in before.keys().filter(|key| !after.contains_key(key)) {
                sent.remove(key);
                delete(key, place.dpid, outbox);
            }
        }
    }

    /// Forgets the hosts learned at a port, which is in another VLAN now.
    pub(super) fn forget_learned_at(&mut self, place: Location, bonds: &Bonds) {
        if self.stated.by_dhcp.contains(&place) {
            self.learned.forget_port(place);
            self.take_learned(place, bonds);
        }
    }

    /// Takes over the hosts that an earlier process has learned, according to a switch's entries.
    fn adopt(
        &mut self,
        dpid: DatapathId,
        held: &[FlowStats],
        (vlans, bonds): (&Vlans, &Bonds),
        outbox: &Outbox,
    ) {
        if !self.begins_to_learn(dpid) {
            return;
        }
        let hosts = held
            .iter()
            .filter_map(|row| EntryKey::of_row(row)?.bound_host());
        let mut changed = BTreeSet::new();
        for (port, mac, ip) in hosts {
            let at = bonds.place(Location { dpid, port });
            let stated = self.stated.bindings.get(&at).into_iter().flatten();
            let is_stated = stated.into_iter().any(|host| host.mac == mac);
            if self.stated.by_dhcp.contains(&at) && !is_stated {
                // Behind a trunk the next answer names the VLAN.
                let vlan = vlans.classify(at, None).unwrap_or(VlanId::NONE);
                if self.learned.adopt(outbox.now, (vlan, at), (mac, ip)) {
                    changed.insert(at);
                }
            }
        }
        for at in changed {
            self.take_learned(at, bonds);
        }
    }

    /// Whether a switch has bound hosts only from now on. Later, this process knows the switch's
    /// entries.
    fn begins_to_learn(&mut self, dpid: DatapathId) -> bool {
        let learns = self.stated.by_dhcp.iter().any(|at| at.dpid == dpid);
        learns && self.adopted.insert(dpid)
    }

    /// Whether a port is bound to the addresses that its hosts have by DHCP.
    pub(super) fn learns_at(&self, place: Location) -> bool {
        self.stated.by_dhcp.contains(&place)
    }

    /// The lists and bindings as they are stated.
    pub(super) fn stated(&self) -> &Access {
        &self.stated
    }

    /// The purpose of an entry that a switch was sent, from its report in our numbers.
    pub(super) fn owner(&self, dpid: DatapathId, row: &FlowStats) -> Option<&Owner> {
        let planned = self.sent.get(&dpid)?.get(&EntryKey::of_row(row)?)?;
        Some(&planned.owner)
    }

    /// Decides about a packet, as the switches do.
    pub(super) fn judge(
        &self,
        (vlans, routing): (&Vlans, &Routing),
        at: Location,
        packet: &PacketFields,
    ) -> Verdict {
        self.access.judge((vlans, routing), at, packet)
    }

    /// Whether a packet may be routed into a VLAN.
    pub(super) fn may_enter(&self, vlan: VlanId, packet: &PacketFields) -> bool {
        self.access.may_enter(vlan, packet)
    }

    /// Whether a DHCP server may be behind a port.
    pub(super) fn trusts_server(&self, at: Location) -> bool {
        self.access.trusts(at)
    }

    /// Notes a switch that connects. Returns the numbers of its tables. `is_copying`: a tap copies
    /// packets there. `is_onward`: static entries let packets go on there.
    pub(super) fn handle_up(
        &mut self,
        up: &SwitchUp,
        mirrors: &Mirrors,
        needs: (bool, bool),
    ) -> Numbering {
        let dpid = up.features.datapath_id;
        if !can_decide(up) {
            self.unable.insert(dpid);
        }
        if !can_lead_onward(up) {
            self.shallow.insert(dpid);
        }
        let numbering = self.numbering(dpid, mirrors, needs);
        if numbering == Numbering::Onward {
            self.onward.insert(dpid);
        }
        numbering
    }

    /// The numbers of the tables that a connected switch should have.
    fn numbering(
        &self,
        dpid: DatapathId,
        mirrors: &Mirrors,
        (is_copying, is_onward): (bool, bool),
    ) -> Numbering {
        let is_mirroring = mirrors.ins(dpid).next().is_some();
        let has_tables = self.has_tables && !self.wayless.contains(&dpid);
        let is_wanted = has_tables || self.access.is_on() || is_mirroring || is_copying;
        match is_wanted && !self.unable.contains(&dpid) {
            _ if is_onward && !self.shallow.contains(&dpid) => Numbering::Onward,
            true => Numbering::Access,
            false => Numbering::Plain,
        }
    }

    /// Whether a switch cannot apply the statements about it.
    pub(super) fn refuses(&self, up: &SwitchUp, vlans: &Vlans, gateways: &Gateways) -> bool {
        let dpid = up.features.datapath_id;
        !can_decide(up) && self.access.concerns(dpid, vlans, gateways)
    }

    /// The connected switches that statements concern, and that cannot apply them.
    fn concerned(&self, access: &Access, vlans: &Vlans, gateways: &Gateways) -> Vec<DatapathId> {
        let unable = self.unable.iter().copied();
        unable
            .filter(|dpid| access.concerns(*dpid, vlans, gateways))
            .collect()
    }

    /// Notes that a connection has ended.
    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        self.sent.remove(&dpid);
        self.counts.remove(&dpid);
        self.unable.remove(&dpid);
        self.shallow.remove(&dpid);
        self.onward.remove(&dpid);
    }

    fn plan(&self, net: &Network, around: Around<'_>, dpid: DatapathId) -> Plan {
        let mut plan = match self.access.is_on() {
            false => tables::passing(around.mirrors, dpid),
            true => {
                let links = links(net, dpid);
                tables::plan(&self.access, &self.orders, around, dpid, &links)
            }
        };
        if self.access.is_on() {
            let closed = net.closed_of(dpid).filter_map(EntryKey::of_closed);
            plan.extend(closed);
        }
        if self.onward.contains(&dpid) {
            plan.extend(tables::onward());
        }
        plan
    }

    /// Compares a switch's entries with the plan, mends differences, and removes the entries from
    /// the rows. Returns the numbers kept, added and deleted.
    fn reconcile(
        &mut self,
        (net, around): (&Network, Around<'_>),
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> [usize; 3] {
        // Also entries of a time when the tables had other numbers.
        let is_here = |row: &mut FlowStats| {
            let is_in_place = row.table_id >= MIRROR_TABLE && is_own(row.cookie);
            is_in_place || tables::is_access(row.cookie)
        };
        let held = rows.extract_if(.., is_here);
        let held: Vec<FlowStats> = held.collect();
        self.adopt(dpid, &held, (around.vlans, around.bonds), outbox);
        let mut plan = match outbox.numbering(dpid) {
            Numbering::Plain => Plan::new(),
            Numbering::Access | Numbering::Onward => self.plan(net, around, dpid),
        };
        if !plan.is_empty() && self.access.is_on() {
            plan.extend(links_to_be(net, dpid, &held));
        }
        // An earlier version has not requested reports of the end of some entries. Before 1.3 no
        // switch reports the flags.
        let says_flags = outbox.version(dpid) >= Some(Version::V13);
        let hears =
            |key: &EntryKey, row: &FlowStats| !says_flags || row.flags.contains(key.flags());
        let counts = mend(&plan, &held, hears, (dpid, outbox));
        if !plan.is_empty() {
            self.sent.insert(dpid, plan);
            self.read_later(outbox);
        }
        counts
    }

    /// Sets an entry again that another party has deleted.
    pub(super) fn handle_removed(
        &self,
        dpid: DatapathId,
        removed: &FlowRemoved,
        outbox: &mut Outbox,
    ) {
        let key = EntryKey::of_removed(removed);
        let planned = self.sent.get(&dpid).zip(key.as_ref());
        let planned = planned.and_then(|(sent, key)| sent.get_key_value(key));
        if let Some((key, planned)) = planned
            && removed.reason == FlowRemovedReason::DELETE
        {
            outbox.send_flow_mod(dpid, key.to_add(planned, outbox.generation));
        }
    }

    /// Sends a switch the changes: additions before deletions.
    fn update(&mut self, net: &Network, around: Around<'_>, dpid: DatapathId, outbox: &mut Outbox) {
        if !self.sent.contains_key(&dpid) {
            return;
        }
        self.begins_to_learn(dpid);
        let plan = self.plan(net, around, dpid);
        let before = self.sent.remove(&dpid).unwrap_or_default();
        for flow_mod in tables::change(&before, &plan, outbox.generation) {
            outbox.send_flow_mod(dpid, flow_mod);
        }
        self.sent.insert(dpid, plan);
        self.read_later(outbox);
    }

    /// Lets packets at links pass, and no longer packets at other ports.
    fn follow_links(&mut self, net: &Network, dpid: DatapathId, outbox: &mut Outbox) {
        let Some(sent) = self.sent.get_mut(&dpid).filter(|_| self.access.is_on()) else {
            return;
        };
        let wanted: BTreeMap<EntryKey, Planned> = links(net, dpid)
            .into_iter()
            .filter_map(EntryKey::of_link)
            .collect();
        // A port that has been a link since it came up is not held. So the entry of a held port is
        // from an earlier process, and discovery is about to decide.
        let is_open = |key: &EntryKey| {
            let port = key.matching.in_port();
            port.is_some_and(|port| is_undecided(net, Location { dpid, port }))
        };
        let is_gone = |key: &EntryKey, _: &mut Planned| {
            key.is_of_link() && !wanted.contains_key(key) && !is_open(key)
        };
        let gone: Vec<EntryKey> = sent.extract_if(.., is_gone).map(|(key, _)| key).collect();
        for key in gone {
            delete(&key, dpid, outbox);
        }
        for (key, planned) in wanted {
            if let Entry::Vacant(place) = sent.entry(key) {
                let to_add = place.key().to_add(&planned, outbox.generation);
                outbox.send_flow_mod(dpid, to_add);
                place.insert(planned);
            }
        }
    }

    fn read_later(&mut self, outbox: &mut Outbox) {
        if self.access.is_on() && !std::mem::replace(&mut self.is_reading, true) {
            outbox.timer(outbox.now + READ_INTERVAL, Timer::Access);
        }
    }

    /// Asks all switches for their counters.
    fn read(&mut self, now: Instant, outbox: &mut Outbox) {
        self.is_reading = false;
        let (cookie, cookie_mask) = tables::cookie();
        let rows = FlowStatsRequest {
            cookie,
            cookie_mask,
            ..FlowStatsRequest::all()
        };
        let body = RequestBody::Flow(rows);
        let message = Message::MultipartRequest(MultipartRequest { more: false, body });
        let switches = self.sent.keys().filter(|_| self.access.is_on());
        for dpid in switches {
            if !outbox.waits_for(*dpid, Request::Access) {
                outbox.request(now, *dpid, Request::Access, &message);
            }
        }
        if !self.sent.is_empty() {
            self.read_later(outbox);
        }
    }

    /// Takes over a switch's counters, and mends entries that another party has changed.
    pub(super) fn handle_rows(
        &mut self,
        dpid: DatapathId,
        bodies: Vec<ReplyBody>,
        outbox: &mut Outbox,
    ) {
        let Some(sent) = self.sent.get(&dpid) else {
            return;
        };
        let rows = bodies.into_iter().flat_map(|body| match body {
            ReplyBody::Flow(rows) => rows,
            _ => Vec::new(),
        });
        let rows: Vec<FlowStats> = rows.filter(|row| tables::is_access(row.cookie)).collect();
        let mut counts = Counts::new();
        for row in &rows {
            let planned = EntryKey::of_row(row).and_then(|key| sent.get(&key));
            let is_rule = |planned: &&Planned| matches!(planned.owner, Owner::Rule(_));
            let counts_so = |planned: &&Planned| is_rule(planned) || planned.step == Step::Drop;
            if let Some(planned) = planned.filter(counts_so) {
                let count = counts.entry(planned.owner.clone()).or_default();
                *count = count.saturating_add(row.packet_count);
            }
        }
        self.counts.insert(dpid, counts);
        outbox.begin_change();
        mend(sent, &rows, |_, _| true, (dpid, outbox));
        outbox.end_change();
    }

    fn counts(&self) -> AccessCounts {
        let mut all = AccessCounts::default();
        let mut rules: BTreeMap<&RuleId, u64> = BTreeMap::new();
        for (owner, count) in self.counts.values().flatten() {
            let reason = match owner {
                Owner::Rule(id) => {
                    let sum = rules.entry(id).or_default();
                    *sum = sum.saturating_add(*count);
                    continue;
                }
                Owner::DhcpServers => "dhcp_server",
                Owner::Routers => "router",
                Owner::Bindings => "not_bound",
                Owner::End(_) => "no_rule",
                Owner::Way => continue,
            };
            let sum = all.dropped.entry(reason).or_default();
            *sum = sum.saturating_add(*count);
        }
        for (id, count) in rules {
            let acl = self.access.acls.get(id.acl);
            let rule = acl.and_then(|acl| Some((acl, acl.rules.get(id.rule)?)));
            if let Some((acl, rule)) = rule {
                let name = match rule.name.is_empty() {
                    true => (id.rule + 1).to_string(),
                    false => rule.name.clone(),
                };
                all.rules.push((acl.name.clone(), name, rule.allows, count));
            }
        }
        all
    }
}

/// Entries of links that an earlier process has known, and that discovery has not decided about.
/// The next reading decides.
fn links_to_be(net: &Network, dpid: DatapathId, held: &[FlowStats]) -> Plan {
    let keys = held.iter().filter_map(EntryKey::of_row);
    let ports = keys
        .filter(EntryKey::is_of_link)
        .filter_map(|key| key.matching.in_port());
    let is_open = |port: &PortNo| is_undecided(net, Location { dpid, port: *port });
    ports
        .filter(is_open)
        .filter_map(EntryKey::of_link)
        .collect()
}

fn is_undecided(net: &Network, at: Location) -> bool {
    matches!(net.role(at), PortRole::Held | PortRole::Claimed)
}

/// The ends of links of a switch, also of silent links.
fn links(net: &Network, dpid: DatapathId) -> BTreeSet<PortNo> {
    let switch = net.switch(dpid);
    let ports = switch.into_iter().flat_map(|switch| switch.ports.keys());
    let is_end = |port: &PortNo| {
        let role = net.role(Location { dpid, port: *port });
        matches!(role, PortRole::Link | PortRole::Silent)
    };
    ports.copied().filter(is_end).collect()
}

fn delete(key: &EntryKey, dpid: DatapathId, outbox: &mut Outbox) {
    outbox.send_flow_mod(dpid, key.to_delete());
}

/// Makes a switch's entries match the plan. An entry that acts as planned stays if it is `fit`.
/// Returns the numbers kept, added and deleted.
fn mend(
    plan: &Plan,
    held: &[FlowStats],
    fit: impl Fn(&EntryKey, &FlowStats) -> bool,
    (dpid, outbox): (DatapathId, &mut Outbox),
) -> [usize; 3] {
    let mut counts = [0; 3];
    let mut right = BTreeSet::new();
    let mut wrong = Vec::new();
    for row in held {
        let key = EntryKey::of_row(row);
        let planned = key.as_ref().and_then(|key| plan.get(key));
        match (key, planned) {
            (Some(key), Some(planned)) if planned.is_of(&row.instructions) && fit(&key, row) => {
                right.insert(key);
            }
            // The planned entry overwrites it.
            (Some(_), Some(_)) => {}
            _ => wrong.push(row),
        }
    }
    for (key, planned) in plan.iter().rev() {
        let is_held = right.contains(key);
        counts[usize::from(!is_held)] += 1;
        if !is_held {
            outbox.send_flow_mod(dpid, key.to_add(planned, outbox.generation));
        }
    }
    for row in wrong {
        counts[2] += 1;
        outbox.send_flow_mod(dpid, delete_row(row));
    }
    counts
}

impl Controller {
    /// The connected switches that these lists and bindings would concern, and that cannot apply
    /// them.
    pub fn unable_to_hold(
        &self,
        access: &Access,
        vlans: &Vlans,
        gateways: &Gateways,
    ) -> Vec<DatapathId> {
        self.access.concerned(access, vlans, gateways)
    }

    /// Applies new access lists and bindings, unless switches that they concern cannot apply them:
    /// then returns these switches. Without the fabric, switches reconnect for the first statement
    /// about access and after the last, because their tables get other numbers.
    pub fn set_access(&mut self, now: Instant, access: Access) -> Result<(), Vec<DatapathId>> {
        self.set_access_with(now, access, None, None)
    }

    /// Applies new access lists together with new VLANs and gateways: no packet of a VLAN, or
    /// routed into one, passes without the VLAN's lists.
    pub fn set_access_with(
        &mut self,
        now: Instant,
        access: Access,
        vlans: Option<Vlans>,
        gateways: Option<Gateways>,
    ) -> Result<(), Vec<DatapathId>> {
        self.outbox.now = now;
        let unable = self.access.concerned(
            &access,
            vlans.as_ref().unwrap_or(&self.outbox.vlans),
            gateways.as_ref().unwrap_or(&self.config.gateways),
        );
        if !unable.is_empty() {
            return Err(unable);
        }
        self.outbox.begin_change();
        let was_on = self.access.is_on();
        self.access.set(access, &self.config.bonds);
        let before = gateways.map(|gateways| self.route_by(gateways));
        self.renumber(now);
        match vlans {
            Some(vlans) => self.set_vlans(now, vlans),
            None => self.update_access(),
        }
        if let Some(before) = before {
            self.begin_gateways(now, &before);
        }
        self.outbox.end_change();
        if was_on != self.access.is_on() {
            for dpid in self.network.dpids() {
                self.configure(dpid);
            }
        }
        Ok(())
    }

    /// Handles an entry of access or mirrors that a switch has refused. If nothing needs these
    /// tables, the switch reconnects without them.
    pub(super) fn access_refused(&mut self, now: Instant, dpid: DatapathId, error: ErrorKind) {
        let is_off = !self.access.access.is_on();
        let wayless = &mut self.access.wayless;
        if is_off && wayless.len() < WAYLESS_MAX && wayless.insert(dpid) {
            self.renumber(now);
        }
        self.outbox.alarm(Alarm::AccessRefused { dpid, error });
    }

    /// Closes the connections of switches whose tables should have other numbers. With the fabric
    /// the numbers stay the same.
    pub(super) fn renumber(&mut self, now: Instant) {
        let mirrors = self.outbox.mirrors.clone();
        let is_other = |(_, dpid): &(&ConnectionId, &DatapathId)| {
            let needs = (self.taps.copies_at(**dpid), self.stated.goes_on_at(**dpid));
            let wanted = self.access.numbering(**dpid, &mirrors, needs);
            wanted != self.outbox.numbering(**dpid)
        };
        let others = self.connections.iter().filter(is_other);
        let others: Vec<ConnectionId> = others.map(|(connection, _)| *connection).collect();
        for connection in others {
            self.outbox.close(connection, RefusedReason::OtherTables);
            self.handle_down(now, connection);
        }
    }

    /// Closes the connections of switches that lists concern and that cannot apply them: their
    /// ports are in other VLANs now.
    pub(super) fn close_unable(&mut self, now: Instant) {
        let stated = &self.access.stated;
        let (vlans, gateways) = (&self.outbox.vlans, &self.config.gateways);
        let unable = self.access.concerned(stated, vlans, gateways);
        for dpid in unable {
            let connection = self.network.switch(dpid).and_then(|s| s.connection);
            if let Some(connection) = connection {
                self.outbox.close(connection, RefusedReason::NoAccess);
                self.handle_down(now, connection);
            }
        }
    }

    /// Sends all switches their changes of access entries.
    pub(super) fn update_access(&mut self) {
        for dpid in self.network.dpids() {
            self.update_access_of(dpid);
        }
    }

    /// Sends one switch its changes of access entries.
    pub(super) fn update_access_of(&mut self, dpid: DatapathId) {
        let (vlans, mirrors) = (self.outbox.vlans.clone(), self.outbox.mirrors.clone());
        let around = Around {
            vlans: &vlans,
            bonds: &self.config.bonds,
            mirrors: &mirrors,
            routing: self.gateways.routing(),
        };
        let (net, outbox) = (&self.network, &mut self.outbox);
        outbox.begin_change();
        self.access.update(net, around, dpid, outbox);
        outbox.end_change();
    }

    pub(super) fn reconcile_access(
        &mut self,
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
    ) -> [usize; 3] {
        let (vlans, mirrors) = (self.outbox.vlans.clone(), self.outbox.mirrors.clone());
        let around = Around {
            vlans: &vlans,
            bonds: &self.config.bonds,
            mirrors: &mirrors,
            routing: self.gateways.routing(),
        };
        let around = (&self.network, around);
        self.access.reconcile(around, dpid, rows, &mut self.outbox)
    }

    pub(super) fn access_due(&mut self, now: Instant) {
        for dpid in self.network.dpids() {
            self.follow_access_links(dpid);
        }
        self.forget_learned(now);
        self.access.read(now, &mut self.outbox);
    }

    pub(super) fn follow_access_links(&mut self, dpid: DatapathId) {
        self.access
            .follow_links(&self.network, dpid, &mut self.outbox);
    }

    /// The hosts to which ports are bound because of an address by DHCP.
    pub fn learned(&self) -> &Learned {
        &self.access.learned
    }

    /// Packets that access lists and bindings have decided about, as last read from the switches.
    pub fn access_counts(&self) -> AccessCounts {
        self.access.counts()
    }
}
