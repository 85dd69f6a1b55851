//! Compares a switch's entries with the wanted ones after a connection.
//!
//! Nothing is deleted wholesale. Valid entries with auster's cookie are adopted, from this process
//! or an earlier one. Missing entries are added, wrong entries are mended one by one, and entries
//! with other cookies are left alone. When discovery has found the links, the controller joins
//! adopted hops into paths, and learns the hosts at their ends.

use std::collections::{BTreeMap, BTreeSet};

use clock::{Duration, Instant};
use openflow::message::MultipartReply;
use openflow::multipart::{FlowStats, ReplyBody, UnreadableRow};
use openflow::{Action, DatapathId, Instruction, MacAddr, PortNo, TableId, Version, Xid};

use crate::entry::{Entry, EntryKey, EntryKind, is_own};
use crate::guest::Answer;
use crate::pipeline::{MIRROR_TABLE, Numbering};
use crate::requests::Reply;
use crate::timeouts::ENTRIES_MAX;
use crate::vlan::HostKey;

use super::entries::{Entries, delete_of, delete_row};
use super::links::Hop;
use super::links::Pair;
use super::outbox::Request;
use super::port_state::PortRole;
use super::qos::QosRows;
use super::questions::Answered;
use super::services::of_rules;
use super::tables::Table;
use super::vlans::hosts_of;
use super::{Alarm, Controller, Event, Location, Mode, Timer};

/// Time for discovery after the last change before adopted entries are judged.
const SETTLE: Duration = Duration::from_millis(500);

/// A path with more hops is a loop.
const HOPS_MAX: usize = 64;

/// The end of a trace along adopted entries.
enum Trace {
    Whole(Vec<Hop>, Location),
    /// The trace led to a switch that is not known well enough yet.
    Unsure,
    Broken,
}

#[derive(Default)]
struct Tally {
    kept: usize,
    added: usize,
    deleted: usize,
}

impl Controller {
    pub(super) fn handle_multipart(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        xid: Xid,
        len: usize,
        mut reply: MultipartReply,
        unreadable: Vec<UnreadableRow>,
    ) {
        // A switch may describe 254 tables at length, in many parts; only one number is needed.
        if let ReplyBody::TableFeatures(tables) = &mut reply.body
            && self.outbox.asked(dpid, xid) == Some(Request::TableFeatures)
        {
            tables.retain(|table| table.table_id == TableId(0));
            tables.shrink_to_fit();
        }
        if !unreadable.is_empty() {
            self.handle_unreadable(dpid, xid, &unreadable);
        }
        if self.outbox.asked(dpid, xid) == Some(Request::Entries) {
            self.tables.handle_part(now, dpid);
        }
        let Some(reply) = self.outbox.handle_part(dpid, xid, len, reply) else {
            return;
        };
        match reply {
            Reply::Partial => {}
            Reply::Unsolicited => self.outbox.counters.unsolicited += 1,
            Reply::Oversized(request) => self.handle_unanswered(now, dpid, request),
            Reply::Whole(Request::Entries, bodies) => {
                let rows = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Flow(rows) => rows,
                    _ => Vec::new(),
                });
                let rows = rows.collect();
                self.as_one(|it| it.reconcile(now, dpid, Some(rows)));
                // Its groups belong to the same turn.
                if !self.outbox.waits_for(dpid, Request::Groups) {
                    self.tables.end_reading(now, dpid, &mut self.outbox);
                }
            }
            Reply::Whole(
                request @ (Request::Pulse { .. }
                | Request::Delay { .. }
                | Request::Qos
                | Request::Static),
                _,
            ) => {
                self.handle_unanswered(now, dpid, request);
            }
            Reply::Whole(Request::Groups, bodies) => {
                self.handle_groups(now, dpid, bodies);
                self.tables.end_reading(now, dpid, &mut self.outbox);
            }
            Reply::Whole(request @ (Request::MirroredRows | Request::MirroredGroups), bodies) => {
                self.handle_mirrored(dpid, request, bodies);
            }
            Reply::Whole(Request::StaticRows, bodies) => {
                self.static_rows_read(dpid, bodies);
            }
            Reply::Whole(Request::Guest(guest, ticket), bodies) => {
                self.guest_answered(dpid, (guest, ticket), Answer::Whole(bodies));
            }
            Reply::Whole(Request::GuestRows, bodies) => {
                self.guests
                    .handle_rows(dpid, Some(bodies), &mut self.outbox);
            }
            Reply::Whole(request @ (Request::StaticGroups | Request::StaticMeters), bodies) => {
                self.static_parts_read(dpid, request, bodies);
            }
            Reply::Whole(Request::Access, bodies) => {
                self.access.handle_rows(dpid, bodies, &mut self.outbox);
            }
            Reply::Whole(Request::Question(id), bodies) => {
                self.questions.answer(id, Answered::Whole(bodies));
            }
            Reply::Whole(request @ (Request::MeterFeatures | Request::Meters), bodies) => {
                self.with_qos(|qos, around| {
                    qos.handle_qos_answer(around, now, dpid, request, bodies)
                });
            }
            Reply::Whole(
                request @ (Request::QosRows | Request::QosMeters | Request::QosQueues),
                bodies,
            ) => self
                .with_qos(|qos, around| qos.handle_qos_counts(around, now, dpid, request, bodies)),
            Reply::Whole(request, bodies) => self.handle_table_answer(now, dpid, request, bodies),
        }
    }

    pub(super) fn handle_groups(&mut self, now: Instant, dpid: DatapathId, bodies: Vec<ReplyBody>) {
        let mut bodies = self.read_mirrored_groups(dpid, bodies);
        for body in &mut bodies {
            if let ReplyBody::GroupDesc(groups) = body {
                self.outbox.bonds.unlead_groups(dpid, groups);
            }
        }
        self.adopt_bonds(now, dpid, &bodies);
        // A switch that has lost its entries also needs the entries of hosts that only receive.
        let mut of_bonds = self.bonding.parts(dpid, &self.fabric, &self.outbox.bonds);
        let others = (&mut of_bonds, &mut self.outbox);
        let is_new = self.fabric.read_groups(now, dpid, bodies, others);
        self.bonding.handle_held(dpid, of_bonds);
        self.start_ports(now, dpid);
        self.follow_bonds(now);
        self.update_closed(dpid);
        if is_new {
            let hosts: Vec<_> = self.hosts.placed_at(dpid).collect();
            for (mac, at) in hosts {
                self.tell_fabric(mac, at);
            }
            self.tell_members(dpid);
        }
        self.fabric.handle_more(now, &mut self.outbox);
        self.multicast.update_all(&self.fabric, &mut self.outbox);
        self.adopt_soon(now);
    }

    /// Counts unreadable rows, and deletes those with our cookie: no auster has sent such an entry.
    fn handle_unreadable(&mut self, dpid: DatapathId, xid: Xid, rows: &[UnreadableRow]) {
        let of = &mut self.outbox.counters.rows_unreadable;
        *of = of.saturating_add(rows.len() as u64);
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        if self.outbox.asked(dpid, xid) != Some(Request::Entries) {
            return;
        }
        table.handle_unreadable(rows.len());
        for row in rows.iter().filter(|row| is_own(row.cookie)) {
            if let Some(r#match) = &row.r#match {
                self.outbox
                    .send_flow_mod(dpid, delete_of(row.table_id, row.priority, r#match));
            }
        }
    }

    /// Compares the entries. `None` if the switch does not report them: then it receives only the
    /// minimum that it needs.
    pub(super) fn reconcile(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        rows: Option<Vec<FlowStats>>,
    ) {
        let mut tally = Tally::default();
        let known = rows.is_some();
        let unreadable = self.tables.get(dpid).map_or(0, Table::unreadable);
        let is_blank = rows.as_ref().is_some_and(Vec::is_empty) && unreadable == 0;
        let mut rows = rows.unwrap_or_default();
        let taps = self.taps.reconcile(dpid, &mut rows, &mut self.outbox);
        self.read_mirrored_rows(dpid, &mut rows);
        self.outbox.bonds.unlead_rows(dpid, &mut rows);
        let stated = self.reconcile_static(dpid, known, &mut rows);
        let guests = self
            .guests
            .reconcile(dpid, known, &mut rows, &mut self.outbox);
        let access = self.reconcile_access(dpid, &mut rows);
        let ingresses = self
            .fabric
            .read_rows(now, dpid, &mut rows, &mut self.outbox);
        let routed = self.read_routed(now, dpid, &mut rows, &ingresses.hosts);
        let told = QosRows::of(&mut rows, self.qos.wants_policies());
        let is_first = self.network.switch(dpid).is_some_and(|s| !s.synced);
        self.with_qos(|qos, around| qos.read_qos(around, now, dpid, &told, is_first));
        let (mut ours, theirs): (Vec<FlowStats>, Vec<FlowStats>) =
            rows.into_iter().partition(|row| is_own(row.cookie));
        self.name_foreign(now, dpid, &theirs);
        let guards = self.reconcile_guards(dpid, &mut ours);
        [tally.kept, tally.added, tally.deleted] = guards;
        tally.kept += ingresses.kept.len() + access[0] + stated[0] + taps[0] + guests[0];
        tally.added += access[1] + stated[1] + taps[1] + guests[1];
        tally.kept += routed[0];
        tally.deleted += routed[1];
        tally.deleted += ingresses.deleted + access[2] + stated[2] + taps[2] + guests[2];
        let mut held = BTreeMap::new();
        for row in &ours {
            match Entry::from_stats(row) {
                Some(entry) => drop(held.insert(entry.key, entry)),
                None => {
                    tally.deleted += 1;
                    self.outbox.send_flow_mod(dpid, delete_row(row));
                }
            }
        }
        if self.config.is_forwarding {
            let (net, outbox) = (&self.network, &mut self.outbox);
            self.ingress
                .note_admitted(net, now, (dpid, is_blank), outbox);
        }
        self.set_infrastructure(dpid, &held, &theirs, &mut tally);
        if known {
            self.set_missing(now, dpid, &held, &mut tally);
        }
        self.adopt_held(now, dpid, &held, &mut tally);
        self.network.handle_synced(dpid);
        self.check_mirrors(dpid);
        self.follow_bonds(now);
        for port in edges_told(&held).chain(ingresses.kept) {
            self.network.handle_told(Location { dpid, port });
        }
        self.settle_ports(now, dpid);
        let Tally {
            kept,
            added,
            deleted,
        } = tally;
        self.outbox.event(Event::Reconciled {
            dpid,
            kept,
            added,
            deleted,
            unreadable,
            is_unread: !known,
        });
        self.start_table(now, dpid);
        self.routes_soon(now);
        self.adopt_soon(now);
        if self.qos.is_used() || !told.leading.is_empty() {
            self.with_qos(|qos, around| qos.advance_qos(around, now));
        }
    }

    /// Raises an alarm about entries of others in front of our tables. In the path tables such
    /// entries are beside ours, by their priorities.
    fn name_foreign(&mut self, now: Instant, dpid: DatapathId, theirs: &[FlowStats]) {
        if self.outbox.numbering(dpid) == Numbering::Plain {
            return;
        }
        let leads_on = |row: &FlowStats| {
            let mut steps = row.instructions.iter();
            steps.any(|step| matches!(step, Instruction::GotoTable(_)))
        };
        let is_first = |row: &&FlowStats| row.table_id == MIRROR_TABLE && row.priority > 0;
        let takers = theirs.iter().filter(is_first).filter(|row| !leads_on(row));
        if let Some(row) = takers.clone().max_by_key(|row| row.priority) {
            let alarm = Alarm::ForeignEntries {
                dpid,
                count: takers.count(),
                cookie: row.cookie,
                priority: row.priority,
            };
            self.outbox.alarm_once(now, alarm);
        }
    }

    fn set_infrastructure(
        &mut self,
        dpid: DatapathId,
        held: &BTreeMap<EntryKey, Entry>,
        theirs: &[FlowStats],
        tally: &mut Tally,
    ) {
        let all = Entry::infrastructure(self.config.is_forwarding);
        let is_ended = |entry: &&Entry| {
            let is_wanted = all.iter().any(|wanted| wanted.key == entry.key);
            entry.kind == EntryKind::Infrastructure && !is_wanted
        };
        for entry in held.values().filter(is_ended) {
            tally.deleted += 1;
            self.outbox.send_flow_mod(dpid, entry.key.to_delete());
        }
        // An earlier version has not requested reports of their end. Before 1.3 no switch returns
        // flags.
        let says_flags = self.outbox.version(dpid) >= Some(Version::V13);
        for entry in all {
            let is_same = |row: &&FlowStats| {
                row.table_id.0 == 0
                    && EntryKey::from_match(row.priority, &row.r#match) == Some(entry.key)
            };
            let held = held.get(&entry.key);
            if held.is_some_and(|held| held.notify || !says_flags) {
                tally.kept += 1;
            } else if let Some(row) = theirs.iter().find(is_same) {
                if !sends_to_controller(row) {
                    self.outbox.alarm(Alarm::ForeignInfrastructure { dpid });
                }
            } else {
                tally.added += 1;
                self.outbox
                    .send_flow_mod(dpid, entry.to_add(self.outbox.generation));
            }
        }
    }

    /// Sets the wanted entries that the switch lacks, or has in another form.
    fn set_missing(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        held: &BTreeMap<EntryKey, Entry>,
        tally: &mut Tally,
    ) {
        let Some(table) = self.tables.get_mut(dpid) else {
            return;
        };
        let paths = &self.paths;
        // Entries of a path that has ended meanwhile are not wanted, nor are entries of an edge.
        let wanted = |entry: &Entry| match entry.kind {
            EntryKind::Pair | EntryKind::Service | EntryKind::Barrier => {
                paths.owns(dpid, entry.key)
            }
            EntryKind::Local
            | EntryKind::Barred
            | EntryKind::Watch
            | EntryKind::Guard
            | EntryKind::Fabric
            | EntryKind::Sender
            | EntryKind::Access
            | EntryKind::Routed
            | EntryKind::Static
            | EntryKind::Tap
            | EntryKind::Guest
            | EntryKind::Tree => false,
            EntryKind::Infrastructure
            | EntryKind::Destination
            | EntryKind::Report
            | EntryKind::Coarse => true,
        };
        table.retain(|entry| wanted(entry) || held.contains_key(&entry.key));
        let missing = table.entries().values().filter(|entry| {
            !matches!(entry.kind, EntryKind::Local | EntryKind::Barred)
                && held.get(&entry.key).map(|h| h.out) != Some(entry.out)
        });
        let mut missing: Vec<Entry> = missing.copied().collect();
        missing.sort_unstable_by_key(|entry| (!entry.kind.is_drop(), entry.key));
        for entry in missing {
            tally.added += 1;
            if let Some(table) = self.tables.get_mut(dpid) {
                table.note_sent(now, entry);
            }
            self.outbox
                .send_flow_mod(dpid, entry.to_add(self.outbox.generation));
        }
    }

    /// Adopts the switch's entries that this process did not know, if their ports exist.
    fn adopt_held(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        held: &BTreeMap<EntryKey, Entry>,
        tally: &mut Tally,
    ) {
        for (key, entry) in held {
            if entry.kind == EntryKind::Infrastructure {
                continue;
            }
            let up = |port: PortNo| self.is_port_up(Location { dpid, port });
            let sound = (entry.kind.is_drop() || up(entry.out)) && key.in_port.is_none_or(up);
            // A port may be in a VLAN by now. Entries between its hosts look at their tags.
            let vlans = &self.outbox.vlans.ports;
            let is_outside = |port: PortNo| !vlans.contains_key(&Location { dpid, port });
            let sound = sound && is_outside(entry.out) && key.in_port.is_none_or(is_outside);
            let pair = key.eth_src.zip(key.eth_dst);
            let forbids = pair.is_some_and(|pair| self.facts().forbids(pair));
            let admits = pair.is_none_or(|pair| self.facts().admits(pair));
            let is_judged = pair.is_none_or(|pair| self.facts().is_judged(pair));
            let is_rule = key
                .rule
                .is_none_or(|rule| self.config.timeouts.has_rule(rule));
            let fits = match entry.kind {
                _ if !self.config.is_forwarding => false,
                EntryKind::Infrastructure => true,
                EntryKind::Pair => admits && !key.is_successor(),
                EntryKind::Barred => forbids || !is_judged,
                // Their owners are known when their hosts are.
                EntryKind::Service | EntryKind::Barrier => {
                    is_rule && (admits || !is_judged) && !key.is_successor()
                }
                EntryKind::Destination => self.facts().has_routes(),
                EntryKind::Report => self.facts().reports(),
                EntryKind::Coarse => self.facts().adopts_coarse(now, dpid, entry),
                EntryKind::Local => self.config.mode != Mode::Proactive,
                EntryKind::Watch
                | EntryKind::Guard
                | EntryKind::Fabric
                | EntryKind::Sender
                | EntryKind::Access
                | EntryKind::Routed
                | EntryKind::Static
                | EntryKind::Tap
                | EntryKind::Guest
                | EntryKind::Tree => false,
            };
            let Some(table) = self.tables.get_mut(dpid) else {
                return;
            };
            if table.entries().contains_key(key) {
                tally.kept += 1;
            } else if sound && fits && table.entries().len() < ENTRIES_MAX as usize {
                tally.kept += 1;
                table.adopt(*entry);
                if let (EntryKind::Coarse, Some(port), Some(dst)) =
                    (entry.kind, key.in_port, key.eth_dst)
                {
                    self.coarse.set(Location { dpid, port }, dst, entry.out);
                }
            } else {
                tally.deleted += 1;
                self.outbox.send_flow_mod(dpid, key.to_delete());
            }
        }
    }

    /// The switches whose entries have been compared.
    fn synced(&self) -> impl Iterator<Item = (&DatapathId, &Table)> {
        let tables = self.tables.iter();
        tables.filter(|(dpid, _)| self.network.is_synced(**dpid))
    }

    pub(super) fn adopt_soon(&mut self, now: Instant) {
        self.topology_soon(now);
        if !std::mem::replace(&mut self.adopt_pending, true) {
            self.outbox
                .timer(now + self.config.port_hold + SETTLE, Timer::Adopt);
        }
    }

    /// Joins adopted hops into paths. Deletes the first entries of paths that lead nowhere: their
    /// next packet reaches the controller and gets a path.
    pub(super) fn adopt_entries(&mut self, now: Instant) {
        self.adopt_hosts(now);
        let mut beginnings: BTreeMap<Pair, BTreeSet<Location>> = BTreeMap::new();
        for (dpid, table) in self.synced() {
            for entry in table.entries().values() {
                let key = &entry.key;
                let Some(pair) = key.eth_src.zip(key.eth_dst) else {
                    continue;
                };
                let at = key.in_port.map(|port| Location { dpid: *dpid, port });
                let at = at.filter(|_| !entry.kind.is_drop());
                let place = |at| self.outbox.bonds.place(at);
                let at = at.filter(|at| self.adopted_role(place(*at)) == PortRole::Edge);
                if let Some(at) = at {
                    beginnings.entry(pair).or_default().insert(at);
                }
            }
        }
        for (pair, places) in beginnings {
            // A path seems to begin in two places if the switch between them is not connected yet:
            // a port towards it looks like a port with hosts, and neither end is what it seems.
            // The ports of a bond are one place.
            let place = |at: &Location| self.outbox.bonds.place(*at);
            if places.iter().map(place).collect::<BTreeSet<_>>().len() > 1 {
                continue;
            }
            for at in places {
                let key = EntryKey::pair(at.port, pair.0, pair.1);
                if !self.paths.owns(at.dpid, key) {
                    // A panic in these entries is attributed to their switch.
                    self.in_hand = Some(at.dpid);
                    self.adopt_path(now, pair, at);
                }
            }
        }
        self.in_hand = None;
        self.refresh_coarse(now);
        self.drop_barriers(now);
        self.routes_soon(now);
        self.qos_soon(now);
    }

    fn adopt_path(&mut self, now: Instant, pair: Pair, at: Location) {
        let key = EntryKey::pair(at.port, pair.0, pair.1);
        let entry = self.tables.get(at.dpid).and_then(|s| s.entries().get(&key));
        let is_local = entry.is_some_and(|entry| entry.kind == EntryKind::Local);
        let broken = match self.trace(pair, at) {
            Trace::Unsure => false,
            Trace::Broken => true,
            Trace::Whole(hops, end) => {
                let (src, dst) = pair;
                let begin = self.outbox.bonds.place(at);
                self.adopt_host(now, HostKey::untagged(src), begin);
                self.adopt_host(now, HostKey::untagged(dst), end);
                let right =
                    self.hosts.place(src) == Some(begin) && self.hosts.place(dst) == Some(end);
                if is_local {
                    // The hosts of the entry are known now; the rest of it is not kept.
                    self.forget_entry(at, pair);
                } else if right && !self.paths.contains(pair) {
                    self.paths.adopt(now, pair, hops);
                    self.adopt_rules(now, pair);
                }
                // Two places known only from entries are equally doubtful.
                self.heard_elsewhere(src, begin) || self.heard_elsewhere(dst, end)
            }
        };
        if broken {
            self.ingress.note_ended(now, at.dpid, Some(at.port));
            for key in self.forget_entry(at, pair) {
                self.outbox.send_flow_mod(at.dpid, key.to_delete());
            }
        }
    }

    /// Forgets a pair's entry and the entries of its rules.
    fn forget_entry(&mut self, at: Location, pair: Pair) -> BTreeSet<EntryKey> {
        let key = EntryKey::pair(at.port, pair.0, pair.1);
        let Some(table) = self.tables.get_mut(at.dpid) else {
            return BTreeSet::new();
        };
        let rules = of_rules(table.entries(), key).map(|entry| entry.key);
        let its: BTreeSet<EntryKey> = rules.chain([key]).collect();
        for key in &its {
            table.forget(key);
        }
        its
    }

    /// Deletes dropping entries that no longer have forwarding entries of their pair beside them.
    fn drop_barriers(&mut self, now: Instant) {
        let mut idle = Vec::new();
        for (dpid, table) in self.synced() {
            let entries = table.entries().values();
            for entry in entries.filter(|entry| entry.kind == EntryKind::Barrier) {
                let key = entry.key.without_rule();
                if leading(table.entries(), key).is_none() && !self.paths.owns(*dpid, key) {
                    idle.push((*dpid, entry.key));
                }
            }
        }
        for (dpid, key) in idle {
            if let Some(table) = self.tables.get_mut(dpid) {
                table.forget(&key);
                table.handle_removed(key);
            }
            self.ingress.note_ended(now, dpid, key.in_port);
            self.outbox.send_flow_mod(dpid, key.to_delete());
        }
    }

    /// Follows a pair's entries from the ingress to an edge port.
    fn trace(&self, pair: Pair, from: Location) -> Trace {
        let mut at = from;
        let mut hops = Vec::new();
        while hops.len() < HOPS_MAX {
            let is_synced = self.network.is_synced(at.dpid);
            let Some(table) = self.tables.get(at.dpid).filter(|_| is_synced) else {
                return Trace::Unsure;
            };
            let key = EntryKey::pair(at.port, pair.0, pair.1);
            let Some(entry) = leading(table.entries(), key) else {
                return Trace::Broken;
            };
            let out = Location::new(at.dpid, entry.out);
            let (in_port, out_port) = (at.port, out.port);
            hops.push(Hop {
                dpid: at.dpid,
                in_port,
                out_port,
            });
            match self.adopted_role(out) {
                PortRole::Edge => return Trace::Whole(hops, out),
                PortRole::Held | PortRole::Claimed | PortRole::Silent => return Trace::Unsure,
                PortRole::Gone => return Trace::Broken,
                PortRole::Link if self.config.mode == Mode::Hybrid => {
                    let end = self.hosts.place(pair.1);
                    return end.map_or(Trace::Unsure, |end| Trace::Whole(hops, end));
                }
                PortRole::Link => match self.network.links.peer(out) {
                    Some(peer) => at = peer,
                    None => return Trace::Unsure,
                },
            }
        }
        Trace::Broken
    }

    /// Learns hosts from routes: a route that ends at an edge port shows where its host is.
    fn adopt_hosts(&mut self, now: Instant) {
        let mut found = Vec::new();
        for (dpid, table) in self.synced() {
            let routes = table
                .entries()
                .values()
                .filter(|entry| entry.kind.is_route());
            for entry in routes {
                let out = Location::new(*dpid, entry.out);
                if let Some(mac) = entry.key.eth_dst.filter(|mac| !self.hosts.is_known(*mac))
                    && self.adopted_role(out) == PortRole::Edge
                {
                    found.push((mac, out));
                }
            }
        }
        let mut found: Vec<(HostKey, Location)> = found
            .into_iter()
            .map(|(mac, at)| (HostKey::untagged(mac), at))
            .collect();
        for (host, at) in self.fabric.hosts_told() {
            let Some(hosts) = self.hosts_in(host.vlan) else {
                continue;
            };
            match hosts.place(host.mac) {
                Some(place) if place.dpid != at.dpid => self.end_told(now, host, at),
                Some(_) => {}
                None if hosts.is_known(host.mac) => {}
                None => match self.adopted_role(at) {
                    PortRole::Edge => found.push((host, at)),
                    // The host has left unnoticed.
                    PortRole::Gone => self.end_told(now, host, at),
                    _ => {}
                },
            }
        }
        for (host, at) in found {
            self.in_hand = Some(at.dpid);
            self.adopt_host(now, host, at);
        }
    }

    /// Ends the entries towards a host that is no longer at the place that a switch's entries name.
    /// Entries between hosts outside of VLANs are traced.
    fn end_told(&mut self, now: Instant, host: HostKey, at: Location) {
        match host.vlan.is_none() {
            true => self.fabric.forget_host(host, at.dpid, &mut self.outbox),
            false => self.forget_member(now, host, at),
        }
    }

    /// The role of a port that entries name. A port that was a link of the fabric is not an edge
    /// until the fabric gives it up.
    fn adopted_role(&self, at: Location) -> PortRole {
        match self.network.role(at) {
            PortRole::Edge if self.fabric.was_link(at) => PortRole::Held,
            role => role,
        }
    }

    fn heard_elsewhere(&self, mac: MacAddr, here: Location) -> bool {
        self.hosts.is_heard(mac) && self.hosts.place(mac) != Some(here)
    }

    fn adopt_host(&mut self, now: Instant, host: HostKey, at: Location) {
        let HostKey { vlan, mac } = host;
        let is_member = !vlan.is_none();
        let of_vlan = self.gateways.routing().of(vlan);
        let is_gateway = of_vlan.is_some_and(|gateway| gateway.mac == mac);
        if is_gateway || is_member && !self.has_room(now, host, at) {
            return self.end_told(now, host, at);
        }
        let adopts = hosts_of!(self, vlan).is_some_and(|hosts| hosts.adopt(now, mac, at));
        if adopts {
            self.outbox.event(Event::HostLearned { mac, vlan, at });
            match is_member {
                true => self.place_member(host, at),
                false => self.tell_fabric(mac, at),
            }
            self.age_soon(now);
        }
        if is_member {
            self.tell_forgotten(now, vlan);
        }
    }
}

/// Ports with hosts, according to the entries: a pair's first hop, and both ends of an edge's
/// entry.
fn edges_told(held: &BTreeMap<EntryKey, Entry>) -> impl Iterator<Item = PortNo> {
    let entries = held.values();
    let ports = entries.flat_map(|entry| match entry.kind {
        EntryKind::Pair if entry.notify => [entry.key.in_port, None],
        EntryKind::Local => [entry.key.in_port, Some(entry.out)],
        _ => [None, None],
    });
    ports.flatten()
}

/// The entry that forwards a pair's packets out of a switch: the pair's own entry, an entry of one
/// of its rules, or else a coarse entry.
fn leading(entries: &Entries, key: EntryKey) -> Option<&Entry> {
    let own = entries.get(&key);
    let of_rule = || of_rules(entries, key).find(|entry| entry.kind == EntryKind::Service);
    let coarse = || {
        let key = EntryKey::coarse(key.in_port?, key.eth_dst?);
        entries.get(&key).filter(|_| own.is_none())
    };
    let leads = own.filter(|entry| !entry.kind.is_drop());
    leads.or_else(of_rule).or_else(coarse)
}

fn sends_to_controller(row: &FlowStats) -> bool {
    row.instructions
        .iter()
        .any(|instruction| match instruction {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                let to_controller = |a: &Action| {
                    matches!(
                        a,
                        Action::Output {
                            port: PortNo::CONTROLLER,
                            ..
                        }
                    )
                };
                actions.iter().any(to_controller)
            }
            _ => false,
        })
}
