//! Taps: packets that applications receive.
//!
//! A separate state machine: the taps, the entries that each switch has for them, and the budgets
//! of packets. A tap that takes packets for itself alone is an entry in the table of paths, above
//! all entries that forward packets. A tap that copies is an entry in the first table of a switch:
//! like mirrors of received packets, it gives the tables other numbers.
//!
//! The cookie of an entry names its tap:
//!
//! ```text
//! 63            32 31        16 15     8 7          0
//! | "aust"         | number     |  kind  | generation |
//! ```
//!
//! If several taps match a packet, the entry of one sends it to the controller, and all of them
//! receive it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use clock::{Budget, Instant};
use openflow::message::PacketIn;
use openflow::message::{ErrorMessage, FlowMod, FlowModFlags, FlowRemoved, FlowRemovedReason};
use openflow::multipart::FlowStats;
use openflow::packet::PacketFields;
use openflow::{
    Action, Cookie, DatapathId, ErrorKind, Instruction, Match, PortNo, TableId, Version,
};

use crate::Location;
use crate::entry::{ETH_TYPE_LLDP, EntryKind, is_tap};
use crate::mirror::Mirrors;
use crate::pipeline::{GUARD_TABLE, MIRROR_TABLE, Numbering, PATH_TABLE};
use crate::tap::{NotSet, OWNERS_MAX, Sink, TAPS_MAX, TAPS_PER_OWNER_MAX};
use crate::tap::{Tap, TapId, TapView, Tapped};

use super::Controller;
use super::entries::{delete_of, delete_row};
use super::network::Network;
use super::outbox::Outbox;
use super::packet::Held as HeldPacket;
use super::port_state::PortRole;

/// The priority of the first tap's entry, above all static entries, which end at 63,035, and all of
/// auster's own but LLDP's.
const PRIORITY: u16 = 63_100;
/// The same for a tap after static entries, still above all of auster's own.
const PRIORITY_AFTER: u16 = 6_000;
/// Below each entry there is room for the same entry at other ports.
const PRIORITIES_PER_TAP: u16 = 2;

#[derive(Default)]
pub(super) struct Taps {
    all: BTreeMap<TapId, Held>,
    by_number: BTreeMap<u16, TapId>,
    /// The number of the last tap. Numbers are reused as late as possible: packets of a tap that
    /// has ended may be under way.
    last: u16,
    /// The entries that each switch has, by the number of their tap.
    sent: BTreeMap<DatapathId, BTreeMap<u16, Vec<Row>>>,
    /// Switches whose tables have the numbers for copies, for as long as they are connected.
    copying: BTreeSet<DatapathId>,
    sink: Option<Sink>,
}

struct Held {
    tap: Tap,
    number: u16,
    rank: u16,
    budgets: BTreeMap<DatapathId, Budget>,
    packets: u64,
    shed: u64,
    refused: BTreeMap<DatapathId, ErrorKind>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    table: TableId,
    priority: u16,
    cookie: Cookie,
    matching: Match,
    instructions: Vec<Instruction>,
}

impl Row {
    fn to_add(&self) -> FlowMod {
        FlowMod {
            table_id: self.table,
            cookie: self.cookie,
            flags: FlowModFlags::SEND_FLOW_REM,
            instructions: self.instructions.clone(),
            ..FlowMod::add(self.priority, self.matching.clone(), Vec::new())
        }
    }

    fn to_delete(&self) -> FlowMod {
        delete_of(self.table, self.priority, &self.matching)
    }

    /// Whether this entry is at the place of another entry, which it replaces.
    fn replaces(&self, other: &Row) -> bool {
        let place = |row: &Row| (row.table, row.priority);
        place(self) == place(other) && self.matching == other.matching
    }

    fn is(&self, row: &FlowStats) -> bool {
        (self.table, self.priority, self.cookie) == (row.table_id, row.priority, row.cookie)
            && sorted(&self.matching) == sorted(&row.r#match)
            && self.instructions == row.instructions
    }
}

fn sorted(matching: &Match) -> Vec<String> {
    let fields = matching.fields.iter();
    let mut fields: Vec<String> = fields.map(|field| format!("{field:?}")).collect();
    fields.sort_unstable();
    fields
}

fn cookie(number: u16, generation: u16) -> Cookie {
    let low = u64::from(generation & 0xff);
    Cookie(EntryKind::Tap.cookie(number).0 | low)
}

/// The number of the tap in its cookie.
fn number(cookie: Cookie) -> u16 {
    crate::entry::generation(cookie)
}

/// The cookie of the entry that a switch refuses, if it is a tap's. An error repeats the beginning
/// of the message that it refuses.
fn refused_cookie(error: &ErrorMessage) -> Option<Cookie> {
    const FLOW_MOD: u8 = 14;
    const COOKIE: std::ops::Range<usize> = 8..16;
    let bytes = error.data.get(COOKIE)?.try_into().ok()?;
    let cookie = Cookie(u64::from_be_bytes(bytes));
    (error.data.get(1) == Some(&FLOW_MOD) && is_tap(cookie)).then_some(cookie)
}

impl Held {
    /// The entries of a switch.
    fn rows(&self, dpid: DatapathId, generation: u16, mirrors: &Mirrors) -> Vec<Row> {
        let Tap {
            at,
            is_copy,
            is_after,
            ..
        } = &self.tap;
        let first = match *is_after && !is_copy {
            true => PRIORITY_AFTER,
            false => PRIORITY,
        };
        let priority = first + self.rank * PRIORITIES_PER_TAP;
        let row =
            |port: Option<PortNo>, priority: u16, copies: &mut dyn Iterator<Item = PortNo>| {
                let max_len = self.tap.bytes;
                let port_no = PortNo::CONTROLLER;
                let up = Action::Output {
                    port: port_no,
                    max_len,
                };
                let actions = [up].into_iter().chain(copies.map(Action::output)).collect();
                let mut matching = Match::any();
                if let Some(port) = port {
                    matching = matching.with_in_port(port);
                }
                matching.fields.extend(self.tap.matching.fields.clone());
                let on = is_copy.then_some(Instruction::GotoTable(GUARD_TABLE));
                let actions = [Instruction::ApplyActions(actions)];
                Row {
                    table: if *is_copy { MIRROR_TABLE } else { PATH_TABLE },
                    priority,
                    cookie: cookie(self.number, generation),
                    matching,
                    instructions: actions.into_iter().chain(on).collect(),
                }
            };
        let mut rows = Vec::new();
        let is_all = at.has_all_of(dpid);
        if is_all {
            rows.push(row(None, priority, &mut std::iter::empty()));
        }
        // The tap's entry hides the entry of a mirror, so it also copies for the mirror.
        let mirrored = mirrors.ins(dpid).filter(|_| *is_copy);
        let mirrored: BTreeMap<PortNo, Vec<PortNo>> = mirrored
            .map(|(port, to)| (port, to.iter().copied().collect()))
            .collect();
        let named = at.ports_of(dpid).filter(|_| !is_all);
        let of_mirrors = mirrored.keys().copied().filter(|_| is_all);
        for port in named.chain(of_mirrors) {
            let targets = mirrored.get(&port).into_iter().flatten().copied();
            rows.push(row(Some(port), priority + 1, &mut { targets }));
        }
        rows
    }

    /// Whether the tap receives a packet that the entry of another tap has sent to the controller.
    fn takes(&self, at: Location, fields: &PacketFields) -> bool {
        self.tap.at.contains(at) && fields.matches(&self.tap.matching)
    }

    /// Counts a packet. Returns whether it is within the rate.
    fn count(&mut self, now: Instant, dpid: DatapathId) -> bool {
        let rate = self.tap.rate_max;
        let budget = self.budgets.entry(dpid);
        let budget = budget.or_insert_with(|| Budget::new(now, rate, rate.max(1)));
        let is_within = budget.take(now);
        match is_within {
            true => self.packets = self.packets.saturating_add(1),
            false => self.shed = self.shed.saturating_add(1),
        }
        is_within
    }
}

impl Taps {
    /// Begins with numbers that an earlier process has not used recently.
    pub(super) fn new(first: u16) -> Taps {
        Taps {
            last: first,
            ..Taps::default()
        }
    }

    fn has_room(&self, id: &TapId) -> Result<(), NotSet> {
        if self.all.contains_key(id) {
            return Ok(());
        }
        let owners: BTreeSet<&str> = self.all.keys().map(|id| &*id.owner).collect();
        let is_of_owner = |other: &&TapId| other.owner == id.owner;
        match self.all.keys().filter(is_of_owner).count() {
            0 if owners.len() >= OWNERS_MAX => Err(NotSet::TooManyOwners),
            TAPS_PER_OWNER_MAX.. => Err(NotSet::TooManyOfOwner),
            _ if self.all.len() >= TAPS_MAX => Err(NotSet::TooMany),
            _ => Ok(()),
        }
    }

    /// Sets a tap, replacing one with the same name. Returns the number of the replaced tap.
    fn set(&mut self, id: TapId, tap: Tap) -> Result<Option<u16>, NotSet> {
        self.has_room(&id)?;
        let before = self.remove(&id);
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.by_number.contains_key(&self.last) {
                break;
            }
        }
        let taken: BTreeSet<u16> = self.all.values().map(|held| held.rank).collect();
        let rank = (0..).find(|rank| !taken.contains(rank)).unwrap_or_default();
        let held = Held {
            tap,
            number: self.last,
            rank,
            budgets: BTreeMap::new(),
            packets: 0,
            shed: 0,
            refused: BTreeMap::new(),
        };
        self.by_number.insert(self.last, id.clone());
        self.all.insert(id, held);
        Ok(before)
    }

    fn remove(&mut self, id: &TapId) -> Option<u16> {
        let held = self.all.remove(id)?;
        self.by_number.remove(&held.number);
        Some(held.number)
    }

    /// Whether a switch needs the table for copies. A switch that has the table keeps it until it
    /// reconnects.
    pub(super) fn copies_at(&self, dpid: DatapathId) -> bool {
        let mut taps = self.all.values().map(|held| &held.tap);
        self.copying.contains(&dpid) || taps.any(|tap| tap.is_copy && tap.at.concerns(dpid))
    }

    /// Notes the numbers of a switch's tables.
    pub(super) fn handle_up(&mut self, dpid: DatapathId, numbering: Numbering) {
        if numbering.has_access() && self.copies_at(dpid) {
            self.copying.insert(dpid);
        }
    }

    /// Notes that a connection has ended.
    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        self.sent.remove(&dpid);
        self.copying.remove(&dpid);
        for held in self.all.values_mut() {
            held.refused.remove(&dpid);
            held.budgets.remove(&dpid);
        }
    }

    /// The entries that a switch should have for a tap.
    fn wanted(&self, number: u16, dpid: DatapathId, outbox: &Outbox) -> Vec<Row> {
        let id = self.by_number.get(&number);
        let Some(held) = id.and_then(|id| self.all.get(id)) else {
            return Vec::new();
        };
        let has_table = outbox.numbering(dpid).has_access() || !held.tap.is_copy;
        match has_table && outbox.version(dpid) >= Some(Version::V13) {
            true => held.rows(dpid, outbox.generation, &outbox.mirrors),
            false => Vec::new(),
        }
    }

    /// Sends a switch the changes of some taps: new entries before deletions. One tap may have
    /// taken the place of another.
    fn update(&mut self, numbers: &[u16], dpid: DatapathId, outbox: &mut Outbox) {
        let wanted = numbers
            .iter()
            .map(|number| self.wanted(*number, dpid, outbox));
        let wanted: Vec<Vec<Row>> = wanted.collect();
        let sent = self.sent.entry(dpid).or_default();
        let before = numbers.iter().filter_map(|number| sent.remove(number));
        let before: Vec<Row> = before.flatten().collect();
        for row in wanted.iter().flatten().filter(|row| !before.contains(row)) {
            outbox.send_flow_mod(dpid, row.to_add());
        }
        for row in before {
            if !wanted.iter().flatten().any(|wanted| wanted.replaces(&row)) {
                outbox.send_flow_mod(dpid, row.to_delete());
            }
        }
        let rows = numbers.iter().copied().zip(wanted);
        sent.extend(rows.filter(|(_, rows)| !rows.is_empty()));
    }

    /// Sends all switches the changes of some taps.
    fn update_all(&mut self, numbers: &[u16], net: &Network, outbox: &mut Outbox) {
        for switch in net.connected().filter(|switch| switch.synced) {
            self.update(numbers, switch.dpid, outbox);
        }
    }

    /// Follows changed mirrors of received packets.
    pub(super) fn follow_mirrors(&mut self, net: &Network, outbox: &mut Outbox) {
        let copies = self.all.values().filter(|held| held.tap.is_copy);
        let numbers: Vec<u16> = copies.map(|held| held.number).collect();
        self.update_all(&numbers, net, outbox);
    }

    /// Corrects a switch's tap entries, and removes them from its rows. Returns the numbers kept,
    /// added and deleted.
    pub(super) fn reconcile(
        &mut self,
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
        outbox: &mut Outbox,
    ) -> [usize; 3] {
        let held: Vec<FlowStats> = rows.extract_if(.., |row| is_tap(row.cookie)).collect();
        let numbers: Vec<u16> = self.by_number.keys().copied().collect();
        let wanted = numbers
            .iter()
            .map(|number| (*number, self.wanted(*number, dpid, outbox)));
        let wanted: BTreeMap<u16, Vec<Row>> = wanted.filter(|(_, rows)| !rows.is_empty()).collect();
        let mut counts = [0; 3];
        let all = || wanted.values().flatten();
        for row in held
            .iter()
            .filter(|row| !all().any(|wanted| wanted.is(row)))
        {
            counts[2] += 1;
            outbox.send_flow_mod(dpid, delete_row(row));
        }
        for row in all() {
            let is_held = held.iter().any(|held| row.is(held));
            counts[usize::from(!is_held)] += 1;
            if !is_held {
                outbox.send_flow_mod(dpid, row.to_add());
            }
        }
        self.sent.insert(dpid, wanted);
        counts
    }

    /// Sets an entry again that somebody else has deleted.
    pub(super) fn handle_removed(
        &mut self,
        dpid: DatapathId,
        removed: &FlowRemoved,
        outbox: &mut Outbox,
    ) {
        let sent = self.sent.get(&dpid);
        let rows = sent.and_then(|sent| sent.get(&number(removed.cookie)));
        let is_it = |row: &&Row| {
            (row.table, row.priority, row.cookie)
                == (removed.table_id, removed.priority, removed.cookie)
                && sorted(&row.matching) == sorted(&removed.r#match)
        };
        let row = rows.and_then(|rows| rows.iter().find(is_it));
        if let Some(row) = row.filter(|_| removed.reason == FlowRemovedReason::DELETE) {
            outbox.send_flow_mod(dpid, row.to_add());
        }
    }

    /// Handles an error of a switch. Returns whether the error refuses a tap.
    pub(super) fn handle_error(&mut self, dpid: DatapathId, error: &ErrorMessage) -> bool {
        let Some(cookie) = refused_cookie(error) else {
            return false;
        };
        let id = self.by_number.get(&number(cookie));
        if let Some(held) = id.and_then(|id| self.all.get_mut(id)) {
            held.refused.insert(dpid, error.kind);
        }
        true
    }

    /// Delivers a packet to the owners of all taps that match it. Returns whether the packet is not
    /// forwarded otherwise.
    fn deliver(
        &mut self,
        now: Instant,
        at: Location,
        packet_in: &PacketIn,
        (fields, is_end): (&PacketFields, bool),
    ) -> Option<bool> {
        let first = self.by_number.get(&number(packet_in.cookie))?.clone();
        let is_copy = self.all.get(&first)?.tap.is_copy;
        let Some(sink) = &mut self.sink else {
            return Some(!is_copy);
        };
        for (id, held) in &mut self.all {
            let is_its = *id == first || held.tap.is_copy == is_copy && held.takes(at, fields);
            // A copy is made where a packet enters the network, and at links that the tap names.
            let is_on_way = is_copy && is_end && !held.tap.at.ports.contains(&at);
            if !is_its || is_on_way {
                continue;
            }
            if !held.count(now, at.dpid) {
                sink(Tapped::Shed(id.clone()));
                continue;
            }
            let len = packet_in.data.len().min(held.tap.bytes.into());
            sink(Tapped::Packet {
                tap: id.clone(),
                at,
                total_len: packet_in.total_len,
                // Copied, since a slice would keep the whole message in memory.
                data: Bytes::copy_from_slice(&packet_in.data[..len]),
            });
        }
        Some(!is_copy)
    }

    fn view(&self, (id, held): (&TapId, &Held), net: &Network, outbox: &Outbox) -> TapView {
        let concerned = net.connected().map(|switch| switch.dpid);
        let concerned = concerned.filter(|dpid| held.tap.at.concerns(*dpid));
        let can_have = |dpid: &DatapathId| {
            let has_table = outbox.numbering(*dpid).has_access();
            outbox.version(*dpid) >= Some(Version::V13) && (has_table || !held.tap.is_copy)
        };
        let has_it = self
            .sent
            .values()
            .filter(|rows| rows.contains_key(&held.number));
        let has_it = has_it.count();
        let refused = held.refused.iter().map(|(dpid, error)| (*dpid, *error));
        TapView {
            id: id.clone(),
            tap: held.tap.clone(),
            packets: held.packets,
            shed: held.shed,
            switches: has_it.saturating_sub(held.refused.len()),
            unable: concerned.filter(|dpid| !can_have(dpid)).collect(),
            refused: refused.collect(),
        }
    }

    /// The tap of an entry.
    pub(super) fn of(&self, cookie: Cookie) -> Option<&TapId> {
        self.by_number.get(&number(cookie))
    }
}

impl Controller {
    /// Sets the sink for packets of taps.
    pub fn set_tap_sink(&mut self, sink: Sink) {
        self.taps.sink = Some(sink);
    }

    /// Sets a tap, replacing one with the same name. Returns whether there was one. Where it is a
    /// switch's first tap that copies, the switch reconnects: its tables get other numbers.
    pub fn set_tap(&mut self, now: Instant, id: TapId, tap: Tap) -> Result<bool, NotSet> {
        self.outbox.now = now;
        let before = self.taps.set(id, tap)?;
        self.renumber(now);
        let numbers: Vec<u16> = [self.taps.last].into_iter().chain(before).collect();
        self.taps
            .update_all(&numbers, &self.network, &mut self.outbox);
        Ok(before.is_some())
    }

    /// Ends a tap. Returns whether there was one.
    pub fn remove_tap(&mut self, now: Instant, id: &TapId) -> bool {
        self.outbox.now = now;
        let Some(before) = self.taps.remove(id) else {
            return false;
        };
        self.taps
            .update_all(&[before], &self.network, &mut self.outbox);
        true
    }

    /// Whether an owner has any tap.
    pub fn has_taps(&self, owner: &str) -> bool {
        self.taps.all.keys().any(|id| &*id.owner == owner)
    }

    /// The taps, by owner and name; of all owners, or of one.
    pub fn taps(&self, owner: Option<&str>) -> Vec<TapView> {
        let all = self.taps.all.iter();
        let all = all.filter(|(id, _)| owner.is_none_or(|owner| &*id.owner == owner));
        all.map(|one| self.taps.view(one, &self.network, &self.outbox))
            .collect()
    }

    /// Handles a packet that the entry of a tap has sent to the controller. Learns from packets
    /// that are not forwarded otherwise.
    pub(super) fn handle_tapped(&mut self, now: Instant, at: Location, packet_in: PacketIn) {
        self.outbox.counters.packet_ins_tapped += 1;
        let fields = PacketFields::parse(at.port, &packet_in.data);
        // LLDP, the proof of a link, is for the controller alone.
        if fields.eth_type() == Some(ETH_TYPE_LLDP) {
            return;
        }
        let role = self.network.role_of_port(at);
        let is_end = matches!(role, PortRole::Link | PortRole::Silent | PortRole::Claimed);
        let found = self.taps.deliver(now, at, &packet_in, (&fields, is_end));
        let Some(is_alone) = found else {
            // The tap has ended meanwhile.
            return;
        };
        if is_alone || !self.config.is_forwarding {
            let in_port = at.port;
            let at = self.outbox.bonds.place(at);
            let held = HeldPacket {
                at,
                in_port,
                buffer_id: None,
                data: packet_in.data,
                is_copy: true,
                is_labelled: false,
            };
            self.learn_held(now, held, &fields);
        }
    }
}
