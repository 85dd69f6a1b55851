//! Mirrors in operation: ports that receive copies are closed, and switches follow a reload.
//!
//! A machine of its own: the groups with copies that each switch has, and switches whose entries
//! and groups are read again because their mirrors have changed. Each entry keeps its counters and
//! its timeouts when it gets copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::Instant;
use openflow::message::{FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupType};
use openflow::message::{MultipartReply, MultipartRequest};
use openflow::multipart::{FlowStats, FlowStatsRequest, GroupDesc, ReplyBody, RequestBody};
use openflow::{Bucket, Cookie, DatapathId, Field, GroupId, Instruction, MacAddr, Message};

use crate::Location;
use crate::access::tables;
use crate::edge::EdgeUpdate;
use crate::entry::{EntryKind, is_own, is_tap};
use crate::fabric::form::{self, Place};
use crate::guest;
use crate::mirror::{self, Mirrors};

use super::entries::delete_row;
use super::event::Alarm;
use super::outbox::{Outbox, Request};
use super::output::RefusedReason;
use super::{Controller, PortRole};

type Groups = BTreeMap<GroupId, Vec<Bucket>>;

#[derive(Default)]
pub(super) struct Mirroring {
    /// The groups with copies that each switch has.
    sent: BTreeMap<DatapathId, Groups>,
    /// The mirrors before the reloads after which a switch's entries are read again.
    before: BTreeMap<DatapathId, Arc<Mirrors>>,
    /// Connected switches with mirrors that they do not support.
    unsupported: BTreeSet<DatapathId>,
}

impl Mirroring {
    /// Sends the groups that a switch lacks. Groups that it should no longer have stay.
    fn send_groups(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let held = self.sent.entry(dpid).or_default();
        for (id, buckets) in outbox.mirrors.groups(dpid) {
            let command = match held.insert(id, buckets.clone()) {
                None => GroupModCommand::Add,
                Some(before) if before != buckets => GroupModCommand::Modify,
                Some(_) => continue,
            };
            send_group(dpid, (command, id, buckets), outbox);
        }
    }

    /// Deletes the groups that a switch should no longer have, once nothing leads to them.
    fn delete_groups(&mut self, dpid: DatapathId, outbox: &mut Outbox) {
        let wanted = outbox.mirrors.groups(dpid);
        let held = self.sent.entry(dpid).or_default();
        for (id, _) in held.extract_if(.., |id, _| !wanted.contains_key(id)) {
            send_group(dpid, (GroupModCommand::Delete, id, Vec::new()), outbox);
        }
    }

    /// Notes that a connection has ended.
    pub(super) fn handle_down(&mut self, dpid: DatapathId) {
        self.sent.remove(&dpid);
        self.before.remove(&dpid);
        self.unsupported.remove(&dpid);
    }
}

fn send_group(
    dpid: DatapathId,
    (command, group_id, buckets): (GroupModCommand, GroupId, Vec<Bucket>),
    outbox: &mut Outbox,
) {
    let message = GroupMod {
        command,
        group_type: GroupType::All,
        group_id,
        buckets,
        command_bucket: None,
        properties: Vec::new(),
    };
    outbox.send(dpid, Message::GroupMod(message));
}

/// Whether the outputs of an entry are followed by copies: entries of access and of taps copy
/// packets on arrival.
fn may_lead(cookie: Cookie) -> bool {
    is_own(cookie) && !tables::is_access(cookie) && !is_tap(cookie)
}

/// Takes copies out of a switch's rows. Entries that should have other copies get them. `before`:
/// mirrors that the switch may still have.
fn mend_rows(dpid: DatapathId, rows: &mut [FlowStats], before: &Mirrors, outbox: &mut Outbox) {
    let mirrors = outbox.mirrors.clone();
    let ours = rows.iter_mut().filter(|row| may_lead(row.cookie));
    for row in ours {
        let place = (dpid, row.r#match.in_port());
        let wanted = mirrors.mend(before, place, &mut row.instructions);
        let at = Place::of_entry(row.table_id, row.priority, &row.r#match);
        if wanted.is_none() || outbox.has_sent(dpid, &at) {
            continue;
        }
        let host = row.r#match.exact(Field::EthDst);
        let host = host.map(|mac| MacAddr::from_u64(mac as u64));
        let is_edges = EntryKind::of(row.cookie) == Some(EntryKind::Local);
        // The edge may have set the entry anew, and does so again.
        let is_old = is_edges && host.is_none_or(|host| outbox.has_told(dpid, host));
        let change = match is_old {
            true => delete_row(row),
            false => modify_row(row, row.instructions.clone()),
        };
        outbox.send_flow_mod(dpid, change);
    }
}

fn modify_row(row: &FlowStats, instructions: Vec<Instruction>) -> FlowMod {
    FlowMod {
        command: FlowModCommand::ModifyStrict,
        table_id: row.table_id,
        cookie: row.cookie,
        cookie_mask: Cookie(u64::MAX),
        instructions,
        ..FlowMod::add(row.priority, row.r#match.clone(), Vec::new())
    }
}

/// The same for a switch's groups.
fn mend_groups(dpid: DatapathId, groups: &mut [GroupDesc], outbox: &mut Outbox) {
    let mirrors = outbox.mirrors.clone();
    for group in groups {
        let is_guests = guest::of_group(group.group_id).is_some();
        if !(form::is_group(group.group_id) || is_guests) {
            continue;
        }
        let wanted = mirrors.mend_buckets(dpid, &mut group.buckets);
        let is_newer = outbox.has_sent(dpid, &Place::Group(group.group_id));
        if wanted.is_some() && !is_newer {
            let message = GroupMod {
                command: GroupModCommand::Modify,
                group_type: group.group_type,
                group_id: group.group_id,
                buckets: group.buckets.clone(),
                command_bucket: None,
                properties: Vec::new(),
            };
            outbox.send(dpid, Message::GroupMod(message));
        }
    }
}

fn groups_in(bodies: Vec<ReplyBody>) -> Vec<GroupDesc> {
    let groups = bodies.into_iter().flat_map(|body| match body {
        ReplyBody::GroupDesc(groups) => groups,
        _ => Vec::new(),
    });
    groups.collect()
}

impl Controller {
    pub(super) fn start_mirrors(&mut self) {
        let mirrors = self.outbox.mirrors.clone();
        self.network.set_mirrors(mirrors.clone());
        for at in mirrors.targets() {
            self.network.set_closed(*at, true);
            self.bonding.set_guarded(*at, true);
        }
    }

    /// Replaces the mirrors. Switches get copies in their existing entries.
    pub fn set_mirrors(&mut self, now: Instant, mirrors: Mirrors) {
        self.outbox.now = now;
        self.config.mirrors = mirrors;
        self.follow_mirrors(now);
    }

    /// Carries out the changes of the mirrors of ports.
    pub(super) fn follow_mirrors(&mut self, now: Instant) {
        let mirrors = Arc::new(self.config.mirrors.of_ports(&self.outbox.bonds));
        let before = self.outbox.mirrors.clone();
        if mirrors == before {
            return;
        }
        for at in before.outs_changed(&mirrors) {
            self.multicast.end_senders_of(at, &mut self.outbox);
        }
        let only = |one: &Mirrors, two: &Mirrors| -> Vec<Location> {
            one.targets().difference(two.targets()).copied().collect()
        };
        let (closed, opened) = (only(&mirrors, &before), only(&before, &mirrors));
        for at in &closed {
            let was_edge = self.network.role(*at) == PortRole::Edge;
            self.lose(now, *at, was_edge);
        }
        self.outbox.mirrors = mirrors.clone();
        self.network.set_mirrors(mirrors.clone());
        let mut switches = mirrors.switches();
        switches.extend(before.switches());
        for dpid in &switches {
            if self.fabric.has_tables(*dpid) {
                self.mirroring.send_groups(*dpid, &mut self.outbox);
            }
        }
        for at in closed {
            self.set_closed(now, at, true);
        }
        for at in opened {
            self.set_closed(now, at, false);
            self.begin_again(now, at);
        }
        for dpid in switches {
            self.tell_mirrors(dpid);
            self.read_mirrored(now, dpid, &before);
            self.check_mirrors(dpid);
        }
        self.update_access();
        self.taps.follow_mirrors(&self.network, &mut self.outbox);
    }

    /// Informs the edge of a switch of the ports whose packets are copied as they go out.
    pub(super) fn tell_mirrors(&mut self, dpid: DatapathId) {
        let mirrors = self.outbox.mirrors.clone();
        let outs = mirrors.outs(dpid);
        let all = outs.map(|(port, to)| (port, to.iter().copied().collect()));
        let update = EdgeUpdate::Mirrors(all.collect());
        self.outbox.tell_edge(dpid, update);
    }

    /// Raises an alarm about mirrors that a switch does not support.
    pub(super) fn check_mirrors(&mut self, dpid: DatapathId) {
        let has_any = self.outbox.mirrors.switches().contains(&dpid);
        let is_known = self.network.is_connected(dpid) && self.network.is_synced(dpid);
        let has_ins = self.outbox.mirrors.ins(dpid).next().is_some();
        let has_table = self.outbox.numbering(dpid).has_access();
        let is_able = self.fabric.is_capable(dpid) && (has_table || !has_ins);
        let is_unsupported = has_any && is_known && !is_able;
        if is_unsupported && self.mirroring.unsupported.insert(dpid) {
            self.outbox.alarm(Alarm::MirrorUnsupported { dpid });
        }
    }

    /// Asks a switch for the entries and groups that lack copies, or have too many.
    fn read_mirrored(&mut self, now: Instant, dpid: DatapathId, before: &Arc<Mirrors>) {
        if !self.network.is_connected(dpid) || !self.network.is_synced(dpid) {
            return;
        }
        self.outbox.note_sent(dpid);
        // Another reading may be under way, after another reload.
        let former = self.mirroring.before.entry(dpid).or_default();
        Arc::make_mut(former).unite_targets(before);
        let bodies = [
            (
                Request::MirroredRows,
                RequestBody::Flow(FlowStatsRequest::all()),
            ),
            (
                Request::MirroredGroups,
                RequestBody::GroupDesc(GroupId::ALL),
            ),
        ];
        for (request, body) in bodies {
            let is_group = request == Request::MirroredGroups;
            if is_group && !self.fabric.has_tables(dpid) {
                continue;
            }
            let message = Message::MultipartRequest(MultipartRequest { more: false, body });
            if self.outbox.request(now, dpid, request, &message).is_none() {
                return self.mirrored_unanswered(now, dpid);
            }
        }
    }

    /// Disconnects a switch that does not report its entries or groups, so that it is read anew.
    pub(super) fn mirrored_unanswered(&mut self, now: Instant, dpid: DatapathId) {
        let connection = self.network.switch(dpid).and_then(|it| it.connection);
        if let Some(connection) = connection {
            self.outbox.close(connection, RefusedReason::OtherTables);
            self.handle_down(now, connection);
        }
    }

    /// Gives copies to the entries or groups that a switch has reported after a reload.
    pub(super) fn handle_mirrored(
        &mut self,
        dpid: DatapathId,
        request: Request,
        bodies: Vec<ReplyBody>,
    ) {
        let before = self.mirroring.before.get(&dpid).cloned();
        let before = before.unwrap_or_default();
        match request {
            Request::MirroredGroups => {
                mend_groups(dpid, &mut groups_in(bodies), &mut self.outbox);
                self.mirroring.delete_groups(dpid, &mut self.outbox);
            }
            _ => {
                let rows = bodies.into_iter().flat_map(|body| match body {
                    ReplyBody::Flow(rows) => rows,
                    _ => Vec::new(),
                });
                let mut rows: Vec<FlowStats> = rows.collect();
                mend_rows(dpid, &mut rows, &before, &mut self.outbox);
            }
        }
        let requests = [Request::MirroredRows, Request::MirroredGroups];
        if !requests.iter().any(|it| self.outbox.waits_for(dpid, *it)) {
            self.mirroring.before.remove(&dpid);
            self.outbox.forget_sent(dpid);
        }
    }

    /// Takes copies out of the entries that a newly connected switch reports.
    pub(super) fn read_mirrored_rows(&mut self, dpid: DatapathId, rows: &mut [FlowStats]) {
        mend_rows(dpid, rows, &Mirrors::default(), &mut self.outbox);
    }

    /// Corrects a switch's groups with copies before anything leads to them, and takes copies out
    /// of its other groups.
    pub(super) fn read_mirrored_groups(
        &mut self,
        dpid: DatapathId,
        bodies: Vec<ReplyBody>,
    ) -> Vec<ReplyBody> {
        let (held, mut others): (Vec<GroupDesc>, Vec<GroupDesc>) = groups_in(bodies)
            .into_iter()
            .partition(|group| mirror::is_group(group.group_id));
        let held = held.into_iter().map(|group| {
            let mut buckets = group.buckets;
            buckets.iter_mut().for_each(|bucket| bucket.weight = 0);
            (group.group_id, buckets)
        });
        self.mirroring.sent.insert(dpid, held.collect());
        if self.fabric.is_capable(dpid) {
            self.mirroring.send_groups(dpid, &mut self.outbox);
        }
        mend_groups(dpid, &mut others, &mut self.outbox);
        self.mirroring.delete_groups(dpid, &mut self.outbox);
        vec![ReplyBody::GroupDesc(others)]
    }

    /// Takes copies out of other reports of a switch.
    pub(super) fn read_copies(&self, dpid: DatapathId, reply: &mut MultipartReply) {
        if let ReplyBody::Flow(rows) = &mut reply.body {
            let ours = rows.iter_mut().filter(|row| may_lead(row.cookie));
            for row in ours {
                let place = (dpid, row.r#match.in_port());
                let none = Mirrors::default();
                let _ = self
                    .outbox
                    .mirrors
                    .mend(&none, place, &mut row.instructions);
            }
        }
    }
}
