//! The groups and entries of a switch in the fabric, and the messages that change them.
//!
//! A route consists of a few [`Part`]s. To change it, its parts before and after are compared, and
//! messages are sent only for the differences. The parts that a switch reports after a restart are
//! compared with the same parts.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{
    ErrorMessage, FlowMod, FlowModCommand, FlowModFlags, GroupMod, GroupModCommand, GroupType,
};
use openflow::multipart::{FlowStats, GroupDesc};
use openflow::packet::lacp;
use openflow::{
    Action, Bucket, Cookie, ErrorKind, Field, GroupId, Instruction, MacAddr, Match, MatchField,
    Message, PortNo, TableId,
};

use crate::bond;
use crate::entry::{COOKIE_PREFIX, COOKIE_PREFIX_MASK, EntryKind};
use crate::pipeline::{HOST_TABLE, LABEL_TABLE, PATH_TABLE};
use crate::vlan::{self, Form, HostKey, VlanId};

use super::plan::{Ports, Route};
use super::{Exit, Label, replication, tree};

/// Messages of LACP, and packets of ports that are closed.
const PRIORITY_LACP: u16 = 5100;
const PRIORITY_CLOSED: u16 = 5000;
/// Above all other entries: labelled packets have been judged at their ingress.
const PRIORITY_LINK: u16 = 4000;
const PRIORITY_LABEL: u16 = 1000;
/// The label's entries for one in-port.
const PRIORITY_INLET: u16 = 2000;
const PRIORITY_HOST: u16 = 1000;
/// A host in a VLAN.
const PRIORITY_MEMBER: u16 = 1500;
/// The label of a VLAN at its egress: below packets for nobody there, which are dropped.
const PRIORITY_VLAN: u16 = 100;

/// The OXM value of a tag that is present (1.3.5, table 13).
const VID_PRESENT: u16 = 0x1000;

/// The upper half of the group numbers: "au".
const GROUPS: u32 = 0x6175_0000;
const BACK: u32 = 1 << 12;

/// The priority in the tag of a marked packet.
const MARK: u8 = 1;

/// One group or entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Group {
        id: GroupId,
        group_type: GroupType,
        buckets: Vec<Bucket>,
    },
    Entry {
        table_id: TableId,
        priority: u16,
        r#match: Match,
        instructions: Vec<Instruction>,
    },
}

/// The group that forwards packets to an egress.
pub fn group(label: Label) -> GroupId {
    GroupId(GROUPS | u32::from(label.0))
}

/// The group for packets that arrive on the port of the detour.
fn back_group(label: Label) -> GroupId {
    GroupId(GROUPS | BACK | u32::from(label.0))
}

/// The egress of a group, if it is one of ours.
pub fn label_of(group: GroupId) -> Option<Label> {
    let is_egress = group.0 & 0xffff_e000 == GROUPS;
    let label = Label((group.0 & 0xfff) as u16);
    (is_egress && (Label::MIN..=Label::MAX).contains(&label)).then_some(label)
}

/// The VLAN id of a label, in the form of matches and actions.
pub fn vid(label: Label) -> u16 {
    VID_PRESENT | label.0
}

/// The actions at the ingress.
pub fn ingress_actions(tag: u16, label: Label) -> Vec<Action> {
    let mut actions = label_actions(tag, label);
    actions.push(Action::Group(group(label)));
    actions
}

/// The actions that give a packet a label.
pub(super) fn label_actions(tag: u16, label: Label) -> Vec<Action> {
    vec![
        Action::PushVlan(tag),
        set(Field::VlanVid, vid(label)),
        // A switch copies the priority of an inner tag, and a host must not mark its packets.
        set(Field::VlanPcp, 0u8),
    ]
}

/// The action that sets the id of a VLAN.
pub(super) fn set_vid(vlan: VlanId) -> Action {
    set(Field::VlanVid, VID_PRESENT | vlan.number())
}

/// The exit of the actions that an edge has set at an ingress.
pub fn ingress_exit(tag: u16, actions: &[Action]) -> Option<Exit> {
    let [.., Action::Group(id)] = actions else {
        return None;
    };
    let label = label_of(*id)?;
    (ingress_actions(tag, label) == actions).then_some(Exit::Egress(label))
}

fn set(field: Field, value: impl Into<u128>) -> Action {
    Action::SetField(MatchField::exact(field, value.into()))
}

pub(super) fn labelled(label: Label) -> Match {
    Match::any().with(Field::VlanVid, vid(label))
}

pub(super) fn entry(
    table_id: TableId,
    priority: u16,
    r#match: Match,
    instructions: Vec<Instruction>,
) -> Part {
    Part::Entry {
        table_id,
        priority,
        r#match,
        instructions,
    }
}

fn apply(actions: Vec<Action>) -> Vec<Instruction> {
    vec![Instruction::ApplyActions(actions)]
}

/// The parts of every switch of the fabric: packets that match no other entry go to the controller.
pub fn base() -> Vec<Part> {
    let miss = |table| entry(table, 0, Match::any(), apply(vec![Action::controller()]));
    vec![miss(HOST_TABLE), miss(LABEL_TABLE)]
}

/// Whether an entry of ours with this priority and match is one of [`base`].
pub fn is_base(priority: u16, r#match: &Match) -> bool {
    priority == 0 && r#match.fields.is_empty()
}

/// The flags of an entry. The switch reports the end of an entry if it shows that other entries of
/// its table, or the group that it leads to, were deleted as well.
fn flags(priority: u16, r#match: &Match, instructions: &[Instruction]) -> FlowModFlags {
    let leads_to_route = match instructions {
        [Instruction::ApplyActions(actions)] => {
            matches!(actions[..], [Action::Group(id)] if label_of(id).is_some())
        }
        _ => false,
    };
    match is_base(priority, r#match) || leads_to_route {
        true => FlowModFlags::SEND_FLOW_REM,
        false => FlowModFlags::empty(),
    }
}

/// The entry of an egress for its own label in a VLAN, or outside of all.
///
/// In a VLAN this entry sends packets where they go without it as well. It names the VLAN of the
/// label for a restarted controller: the id that its last action sets is never sent anywhere.
pub fn own(vlan: VlanId, label: Label) -> Vec<Part> {
    if vlan.is_none() {
        let pop = vec![
            Instruction::ApplyActions(vec![Action::PopVlan]),
            Instruction::GotoTable(HOST_TABLE),
        ];
        return vec![entry(LABEL_TABLE, PRIORITY_LABEL, labelled(label), pop)];
    }
    let up = apply(vec![Action::controller(), set_vid(vlan)]);
    vec![entry(LABEL_TABLE, PRIORITY_VLAN, labelled(label), up)]
}

/// The entry of a port with a link: labelled packets come in by links only.
pub fn inlet(port: PortNo) -> Vec<Part> {
    let tagged =
        Match::any()
            .with_in_port(port)
            .with_masked(Field::VlanVid, VID_PRESENT, VID_PRESENT);
    let on = vec![Instruction::GotoTable(LABEL_TABLE)];
    vec![entry(PATH_TABLE, PRIORITY_LINK, tagged, on)]
}

/// A host of an egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub port: PortNo,
    /// The label of its VLAN there, and the form of its packets at the port. `None` outside of all
    /// VLANs.
    pub vlan: Option<(Label, Form)>,
}

/// The entry of a host. Packets of a VLAN have that VLAN's own label, so that they never reach the
/// hosts of another network.
pub fn host(key: HostKey, host: &HostPort) -> Vec<Part> {
    let port = host.port;
    match host.vlan {
        None => {
            let to = Match::any().with_eth_dst(key.mac);
            let out = apply(vec![Action::output(port)]);
            vec![entry(HOST_TABLE, PRIORITY_HOST, to, out)]
        }
        Some((label, form)) => {
            let to = labelled(label).with_eth_dst(key.mac);
            let mut actions = vec![Action::PopVlan];
            actions.extend(vlan::output(None, key.vlan, form, port));
            vec![entry(LABEL_TABLE, PRIORITY_MEMBER, to, apply(actions))]
        }
    }
}

/// The group of a bond, which sends packets out of a live port of the bond. With `shares`, each
/// conversation has its own port; otherwise the first live port takes all.
pub fn bond(place: PortNo, ports: &BTreeSet<PortNo>, shares: bool) -> Part {
    let bucket = |port: &PortNo| Bucket {
        weight: u16::from(shares),
        watch_port: *port,
        watch_group: GroupId::ANY,
        actions: vec![Action::output(*port)],
        bucket_id: None,
        properties: Vec::new(),
    };
    Part::Group {
        id: bond::group(place),
        group_type: match shares {
            true => GroupType::Select,
            false => GroupType::FastFailover,
        },
        buckets: ports.iter().map(bucket).collect(),
    }
}

/// The entry that sends LACP to the controller, also while its port is closed.
pub fn lacp(port: PortNo) -> Part {
    let lacp = Match::any().with_in_port(port).with_eth_dst(lacp::GROUP);
    let lacp = lacp.with(Field::EthType, lacp::ETH_TYPE);
    let up = apply(vec![Action::controller()]);
    entry(PATH_TABLE, PRIORITY_LACP, lacp, up)
}

/// The entry that drops all packets of a port.
pub fn closed(port: PortNo) -> Part {
    let all = Match::any().with_in_port(port);
    entry(PATH_TABLE, PRIORITY_CLOSED, all, Vec::new())
}

pub fn route(label: Label, route: &Route) -> Vec<Part> {
    let Some(first) = route.ports.first() else {
        return Vec::new();
    };
    let bucket = |watch_port: PortNo, actions: Vec<Action>| Bucket {
        weight: u16::from(route.shares),
        watch_port,
        watch_group: GroupId::ANY,
        actions,
        bucket_id: None,
        properties: Vec::new(),
    };
    let alive = |port: PortNo| bucket(port, vec![Action::output(port)]);
    let marked = |to: PortNo| vec![set(Field::VlanPcp, MARK), Action::output(to)];
    let with_mark = |mark: u8| labelled(label).with(Field::VlanPcp, mark);
    let by = |port: PortNo, mark: u8| with_mark(mark).with_in_port(port);
    let to_group = |id| apply(vec![Action::Group(id)]);
    let buckets = |last: Option<Bucket>| route.ports.iter().map(alive).chain(last).collect();
    let detour = route.other.filter(|_| route.detours);
    let mut parts = vec![
        Part::Group {
            id: group(label),
            group_type: match route.shares {
                true => GroupType::Select,
                false => GroupType::FastFailover,
            },
            buckets: buckets(detour.map(|other| bucket(other, marked(other)))),
        },
        entry(
            LABEL_TABLE,
            PRIORITY_LABEL,
            with_mark(0),
            to_group(group(label)),
        ),
        entry(
            LABEL_TABLE,
            PRIORITY_LABEL,
            with_mark(MARK),
            apply(vec![Action::output(first)]),
        ),
    ];
    if let Some(other) = detour.filter(|_| route.turns_back) {
        let back = Some(bucket(other, marked(PortNo::IN_PORT)));
        parts.push(Part::Group {
            id: back_group(label),
            group_type: GroupType::FastFailover,
            buckets: buckets(back),
        });
        let into = to_group(back_group(label));
        parts.push(entry(LABEL_TABLE, PRIORITY_INLET, by(other, 0), into));
    }
    if let Some(other) = route.other.filter(|_| route.passes_on) {
        let on = apply(vec![Action::output(other)]);
        parts.push(entry(LABEL_TABLE, PRIORITY_INLET, by(first, MARK), on));
    }
    parts
}

impl Part {
    fn is_same_place(&self, other: &Part) -> bool {
        match (self, other) {
            (Part::Group { id, .. }, Part::Group { id: of, .. }) => id == of,
            (
                Part::Entry {
                    table_id,
                    priority,
                    r#match,
                    ..
                },
                Part::Entry {
                    table_id: table,
                    priority: rank,
                    r#match: other,
                    ..
                },
            ) => (table_id, priority, r#match) == (table, rank, other),
            _ => false,
        }
    }

    fn set(self, generation: u16, command: GroupModCommand) -> Message {
        match self {
            Part::Group {
                id,
                group_type,
                buckets,
            } => Message::GroupMod(GroupMod::new(command, group_type, id, buckets)),
            Part::Entry {
                table_id,
                priority,
                r#match,
                instructions,
            } => Message::FlowMod(FlowMod {
                table_id,
                flags: flags(priority, &r#match, &instructions),
                cookie: match tree::is_led_by(&instructions) {
                    true => EntryKind::Tree.cookie(generation),
                    false => EntryKind::Fabric.cookie(generation),
                },
                instructions,
                ..FlowMod::add(priority, r#match, Vec::new())
            }),
        }
    }

    fn delete(self) -> Message {
        match self {
            Part::Group { id, group_type, .. } => Message::GroupMod(GroupMod::new(
                GroupModCommand::Delete,
                group_type,
                id,
                Vec::new(),
            )),
            Part::Entry {
                table_id,
                priority,
                r#match,
                ..
            } => Message::FlowMod(FlowMod {
                command: FlowModCommand::DeleteStrict,
                table_id,
                cookie: COOKIE_PREFIX,
                cookie_mask: COOKIE_PREFIX_MASK,
                instructions: Vec::new(),
                ..FlowMod::add(priority, r#match, Vec::new())
            }),
        }
    }

    fn is_group(&self) -> bool {
        matches!(self, Part::Group { .. })
    }
}

/// The messages that change `old` into `new`, groups before the entries that lead to them.
pub fn change(old: Vec<Part>, new: Vec<Part>, generation: u16) -> Vec<Message> {
    let (mut gone, mut messages) = (Vec::new(), Vec::new());
    for part in &old {
        if !new.iter().any(|other| other.is_same_place(part)) {
            gone.push(part.clone());
        }
    }
    let (groups, entries): (Vec<Part>, Vec<Part>) = new.into_iter().partition(Part::is_group);
    for part in groups.into_iter().chain(entries) {
        let before = old.iter().find(|other| other.is_same_place(&part));
        if before != Some(&part) {
            let command = match before {
                Some(_) => GroupModCommand::Modify,
                None => GroupModCommand::Add,
            };
            messages.push(part.set(generation, command));
        }
    }
    // The deletion of a group deletes the entries that lead to it, so entries are deleted first.
    let (groups, entries): (Vec<Part>, Vec<Part>) = gone.into_iter().partition(Part::is_group);
    messages.extend(entries.into_iter().chain(groups).map(Part::delete));
    messages
}

/// Whether a switch refuses an entry of the fabric, or the actions of an edge at an ingress. An
/// error repeats the beginning of the refused message.
pub fn is_refusal(error: &ErrorMessage) -> bool {
    const FLOW_MOD: u8 = 14;
    const COOKIE: std::ops::Range<usize> = 8..16;
    let data = &error.data;
    let cookie = data.get(COOKIE).and_then(|bytes| bytes.try_into().ok());
    let cookie = Cookie(cookie.map_or(0, u64::from_be_bytes));
    let is_of_form = data.get(1) == Some(&FLOW_MOD) && error.kind != ErrorKind::FLOW_MOD_TABLE_FULL;
    // A port or a group may have been removed meanwhile, and a refused group has its own error.
    let is_of_target = [
        ErrorKind::ACTION_BAD_OUT_PORT,
        ErrorKind::ACTION_BAD_OUT_GROUP,
    ]
    .contains(&error.kind);
    let is_of_actions = error.kind.ty == ErrorKind::ACTION_BAD_OUT_PORT.ty;
    is_of_form
        && !is_of_target
        && match EntryKind::of(cookie) {
            Some(EntryKind::Fabric) => true,
            // Other entries of an edge only output.
            Some(EntryKind::Local) => is_of_actions,
            _ => false,
        }
}

/// The command and the egress of a group that shares ports, if a switch refuses such a group.
pub fn refused_share(error: &ErrorMessage) -> Option<(GroupModCommand, Label)> {
    let (command, group) = refused_select(error)?;
    Some((command, label_of(group)?))
}

/// The command and the group of a bond that shares its ports, if a switch refuses such a group.
pub fn refused_bond(error: &ErrorMessage) -> Option<(GroupModCommand, GroupId)> {
    refused_select(error).filter(|(_, group)| bond::is_group(*group))
}

fn refused_select(error: &ErrorMessage) -> Option<(GroupModCommand, GroupId)> {
    const GROUP_MOD: u8 = 15;
    const SELECT: u8 = GroupType::Select as u8;
    let [
        _,
        GROUP_MOD,
        _,
        _,
        _,
        _,
        _,
        _,
        0,
        command,
        SELECT,
        _,
        id @ ..,
    ] = *error.data.first_chunk::<16>()?
    else {
        return None;
    };
    let command = match command {
        0 => GroupModCommand::Add,
        1 => GroupModCommand::Modify,
        _ => return None,
    };
    Some((command, GroupId(u32::from_be_bytes(id))))
}

/// The parts that a switch of the fabric has, by place.
#[derive(Debug, Default)]
pub struct Holdings(BTreeMap<Place, Part>);

/// The identity of a group or an entry in a switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Group(GroupId),
    /// With the text of its match, whose fields are in order.
    Entry(TableId, u16, String),
}

impl Place {
    pub fn of_entry(table_id: TableId, priority: u16, r#match: &Match) -> Place {
        let mut r#match = r#match.clone();
        sort_fields(&mut r#match);
        Place::Entry(table_id, priority, format!("{:?}", r#match))
    }

    /// The group or the one entry that a message changes.
    pub fn of_message(message: &Message) -> Option<Place> {
        match message {
            Message::GroupMod(group_mod) => Some(Place::Group(group_mod.group_id)),
            Message::FlowMod(flow_mod) => {
                let table_id = flow_mod.table_id;
                Some(Place::of_entry(
                    table_id,
                    flow_mod.priority,
                    &flow_mod.r#match,
                ))
            }
            _ => None,
        }
    }
}

/// Sorts fields by number: a field then follows those that it requires, also in a deletion.
fn sort_fields(r#match: &mut Match) {
    r#match.fields.sort_by_key(|field| match field {
        MatchField::Basic { field, .. } => *field as u8,
        MatchField::Other { .. } => u8::MAX,
    });
}

impl Holdings {
    /// Takes the fabric's own entries out of the rows of a switch.
    pub fn take(rows: &mut Vec<FlowStats>) -> Holdings {
        let is_fabric = |cookie: Cookie| {
            let kind = EntryKind::of(cookie);
            matches!(kind, Some(EntryKind::Fabric | EntryKind::Tree))
        };
        let own = rows.extract_if(.., |row| is_fabric(row.cookie));
        let parts = own.map(|row| Part::Entry {
            table_id: row.table_id,
            priority: row.priority,
            r#match: row.r#match,
            instructions: row.instructions,
        });
        Holdings(parts.map(placed).collect())
    }

    pub fn add_groups(&mut self, groups: Vec<GroupDesc>) {
        let ours = groups.into_iter().filter(|group| is_group(group.group_id));
        let parts = ours.map(|group| Part::Group {
            id: group.group_id,
            group_type: group.group_type,
            buckets: group.buckets,
        });
        self.0.extend(parts.map(placed));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes parts out if the switch has all of them unchanged.
    pub fn claim(&mut self, parts: Vec<Part>) -> bool {
        let parts: Vec<(Place, Part)> = parts.into_iter().map(placed).collect();
        let is_there = parts
            .iter()
            .all(|(place, part)| self.0.get(place) == Some(part));
        if is_there {
            for (place, _) in &parts {
                self.0.remove(place);
            }
        }
        is_there
    }

    /// Takes a part out if the switch has it unchanged, or if the part is a group and its number is
    /// there. Returns the part as the switch has it.
    pub fn claim_place(&mut self, part: Part) -> Option<Part> {
        let is_group = part.is_group();
        let (place, wanted) = placed(part.clone());
        let is_same = *self.0.get(&place)? == wanted;
        let held = (is_same || is_group).then(|| self.0.remove(&place))?;
        if is_same { Some(part) } else { held }
    }

    /// Whether the switch has all of these parts unchanged.
    pub fn has(&self, parts: Vec<Part>) -> bool {
        let mut parts = parts.into_iter().map(placed);
        parts.all(|(place, part)| self.0.get(&place) == Some(&part))
    }

    /// The labels that a switch has as an egress. If a VLAN has several, the first one counts.
    pub fn own_labels(&self) -> BTreeMap<VlanId, Label> {
        let mut labels = BTreeMap::new();
        for (_, m, instructions) in self.entries() {
            if let Some(label) = label_in(m)
                && let Some(vlan) = vlan_in(instructions)
                && self.has(own(vlan, label))
            {
                labels.entry(vlan).or_insert(label);
            }
        }
        labels
    }

    /// The ports on which labelled packets arrive.
    pub fn inlets(&self) -> Vec<PortNo> {
        let of = self.entries().filter(|(table, _, _)| *table == PATH_TABLE);
        of.filter_map(|(_, m, _)| m.in_port()).collect()
    }

    /// The hosts of this egress.
    pub fn hosts(&self) -> Vec<(MacAddr, PortNo)> {
        let of = self.entries().filter(|(table, _, _)| *table == HOST_TABLE);
        let hosts = of.filter_map(|(_, m, instructions)| host_in(m).zip(output_of(instructions)));
        hosts.collect()
    }

    /// The hosts of this egress in VLANs, with the labels of the VLANs.
    pub fn members(&self) -> Vec<(Label, MacAddr, PortNo)> {
        let of = self.entries().filter(|(table, _, _)| *table == LABEL_TABLE);
        let members = of.filter_map(|(_, m, instructions)| {
            let [Instruction::ApplyActions(actions)] = instructions else {
                return None;
            };
            let port = actions.last().and_then(port_of)?;
            Some((label_in(m)?, host_in(m)?, port))
        });
        members.collect()
    }

    /// The labels that the switch has a route to, and the routes as far as they can be read.
    pub fn routes(&self) -> Vec<(Label, Route)> {
        let mut inlets: BTreeMap<Label, [Option<PortNo>; 2]> = BTreeMap::new();
        for (_, m, instructions) in self.entries() {
            let mark = m.exact(Field::VlanPcp).filter(|_| m.in_port().is_some());
            if let (Some(label), Some(mark)) = (label_in(m), mark) {
                let of = &mut inlets.entry(label).or_default()[usize::from(mark != 0)];
                *of = if mark == 0 {
                    m.in_port()
                } else {
                    output_of(instructions)
                };
            }
        }
        let mut routes = Vec::new();
        for part in self.0.values() {
            let Part::Group {
                id,
                group_type,
                buckets,
            } = part
            else {
                continue;
            };
            let Some(label) = label_of(*id).filter(|label| group(*label) == *id) else {
                continue;
            };
            let out = |bucket: &Bucket| match &bucket.actions[..] {
                [Action::Output { port, .. }] => Some(*port),
                _ => None,
            };
            let last = buckets.last().filter(|last| out(last).is_none());
            let detour = last.map(|last| last.watch_port);
            let [back, on] = inlets.get(&label).copied().unwrap_or_default();
            let route = Route {
                ports: Ports::of(buckets.iter().filter_map(out)),
                shares: *group_type == GroupType::Select,
                other: detour.or(on),
                detours: detour.is_some(),
                turns_back: back.is_some(),
                passes_on: on.is_some(),
            };
            routes.push((label, route));
        }
        routes
    }

    /// The pieces of trees that the switch may have.
    pub fn trees(&self) -> Vec<(Label, tree::Piece)> {
        let groups = self.0.values().filter_map(|part| match part {
            Part::Group { id, buckets, .. } => Some((tree::label_of(*id)?, tree::read(buckets))),
            Part::Entry { .. } => None,
        });
        groups.collect()
    }

    fn entries(&self) -> impl Iterator<Item = (TableId, &Match, &[Instruction])> {
        self.0.values().filter_map(|part| match part {
            Part::Entry {
                table_id,
                r#match,
                instructions,
                ..
            } => Some((*table_id, r#match, &instructions[..])),
            Part::Group { .. } => None,
        })
    }

    /// The messages that delete all parts that are left, entries first. Copies of multicast lead to
    /// the groups of labels, whose numbers are lower, so the groups of labels are deleted last.
    pub fn clear(self) -> Vec<Message> {
        change(self.0.into_values().rev().collect(), Vec::new(), 0)
    }
}

/// Whether the number of a group is one of ours that forward packets: all but those of mirrors.
pub fn is_group(group: GroupId) -> bool {
    let leads = label_of(group).is_some() || tree::label_of(group).is_some();
    leads || replication::is_group(group) || bond::is_group(group)
}

/// A part in the one form for comparisons: switches report fields in an order of their own, and
/// weights in groups whose weights do not count.
fn placed(mut part: Part) -> (Place, Part) {
    let place = match &mut part {
        Part::Group {
            id,
            group_type,
            buckets,
        } => {
            if *group_type != GroupType::Select {
                buckets.iter_mut().for_each(|bucket| bucket.weight = 0);
            }
            Place::Group(*id)
        }
        Part::Entry {
            table_id,
            priority,
            r#match,
            ..
        } => {
            sort_fields(r#match);
            Place::of_entry(*table_id, *priority, r#match)
        }
    };
    (place, part)
}

fn label_in(m: &Match) -> Option<Label> {
    let vid = m.exact(Field::VlanVid)? as u16;
    let label = Label(vid & !VID_PRESENT);
    let is_label = vid & VID_PRESENT != 0 && (Label::MIN..=Label::MAX).contains(&label);
    is_label.then_some(label)
}

/// The VLAN that an entry may name, if the entry is for the switch's own label.
fn vlan_in(instructions: &[Instruction]) -> Option<VlanId> {
    match instructions {
        [Instruction::ApplyActions(actions)] => match actions.last() {
            Some(Action::SetField(MatchField::Basic {
                field: Field::VlanVid,
                value,
                ..
            })) => VlanId::new(*value as u16 & !VID_PRESENT),
            _ => None,
        },
        _ => Some(VlanId::NONE),
    }
}

/// The host that an entry forwards packets to.
fn host_in(m: &Match) -> Option<MacAddr> {
    let mac = MacAddr::from_u64(m.exact(Field::EthDst)? as u64);
    (!mac.is_multicast() && mac != MacAddr::default()).then_some(mac)
}

fn output_of(instructions: &[Instruction]) -> Option<PortNo> {
    let [Instruction::ApplyActions(actions)] = instructions else {
        return None;
    };
    match &actions[..] {
        [action] => port_of(action),
        _ => None,
    }
}

/// The port of hosts or of a link that an action outputs to.
pub fn port_of(action: &Action) -> Option<PortNo> {
    match action {
        Action::Output { port, .. } => Some(*port).filter(|port| port.is_ordinary()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use openflow::multipart::{FlowStatsRequest, MultipartReply};
    use openflow::table::Switch;
    use proptest::prelude::*;

    use super::*;

    fn some_route() -> impl Strategy<Value = Route> {
        let ports = prop::collection::btree_set(1u32..5, 1..4);
        (ports, 5u32..7, any::<[bool; 3]>()).prop_map(|(ports, other, flags)| {
            let shares = ports.len() > 1 && flags[0];
            Route {
                ports: Ports::of(ports.into_iter().map(PortNo)),
                shares,
                other: Some(PortNo(other)),
                detours: flags[0] && !shares,
                turns_back: flags[0] && !shares && flags[1],
                passes_on: flags[2],
            }
        })
    }

    /// The parts that the switch reports.
    fn held(switch: &mut Switch) -> Holdings {
        let mut ask = |body| {
            let request = openflow::multipart::MultipartRequest { more: false, body };
            let answer = switch.apply(Instant::START, &Message::MultipartRequest(request));
            match answer.expect("an answer").remove(0) {
                Message::MultipartReply(MultipartReply { body, .. }) => body,
                other => panic!("{other:?}"),
            }
        };
        use openflow::multipart::{ReplyBody, RequestBody};
        let rows = ask(RequestBody::Flow(FlowStatsRequest::all()));
        let groups = ask(RequestBody::GroupDesc(GroupId::ALL));
        let (ReplyBody::Flow(mut rows), ReplyBody::GroupDesc(groups)) = (rows, groups) else {
            panic!("rows and groups");
        };
        let mut held = Holdings::take(&mut rows);
        held.add_groups(groups);
        held
    }

    proptest! {
        /// A switch that takes every change has the parts wanted last, and these can be read back.
        #[test]
        fn changes_lead_from_any_route_to_any_other(
            routes in prop::collection::vec(prop::option::of(some_route()), 1..8),
        ) {
            let mut switch = Switch::with_ports(1..8);
            let label = Label(4000);
            let mut old = Vec::new();
            for wanted in routes {
                let new = wanted.map_or(Vec::new(), |wanted| route(label, &wanted));
                for message in change(old, new.clone(), 7) {
                    let taken = switch.apply(Instant::START, &message);
                    prop_assert!(taken.is_ok(), "{message:?}: {taken:?}");
                }
                let mut holdings = held(&mut switch);
                let read = holdings.routes();
                let wanted = wanted.map(|mut wanted| {
                    let is_used = wanted.detours || wanted.passes_on;
                    wanted.other = wanted.other.filter(|_| is_used);
                    (label, wanted)
                });
                prop_assert_eq!(read, wanted.into_iter().collect::<Vec<_>>());
                prop_assert!(holdings.claim(new.clone()));
                prop_assert!(holdings.is_empty(), "nothing else is left: {:?}", holdings);
                old = new;
            }
        }
    }

    /// A leftover route is deleted by messages that a switch can read: each field follows the
    /// fields that it requires.
    #[test]
    fn what_is_left_over_is_deleted_in_words_that_switches_have() {
        let mut switch = Switch::with_ports(1..8);
        let left = Route {
            ports: Ports::of([PortNo(1)]),
            shares: false,
            other: Some(PortNo(2)),
            detours: true,
            turns_back: true,
            passes_on: true,
        };
        for message in change(Vec::new(), route(Label(9), &left), 1) {
            switch.apply(Instant::START, &message).expect("it takes it");
        }
        for message in held(&mut switch).clear() {
            let frame = openflow::encode(openflow::Version::V13, openflow::Xid(1), &message);
            let frame = frame.expect("it can be said");
            let read = openflow::decode(&frame).expect("it can be read");
            switch.apply(Instant::START, &read).expect("it takes it");
        }
        assert_eq!((switch.entry_count(), switch.group_count()), (0, 0));
    }

    #[test]
    fn what_a_switch_is_told_is_read_again() {
        let mut switch = Switch::with_ports(1..4);
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let at = HostPort {
            port: PortNo(2),
            vlan: None,
        };
        let vlan = VlanId::new(10).unwrap();
        let tagged = HostPort {
            port: PortNo(1),
            vlan: Some((Label(18), Form::Tagged)),
        };
        let all = [
            base(),
            own(VlanId::NONE, Label(17)),
            own(vlan, Label(18)),
            inlet(PortNo(3)),
            host(HostKey::untagged(mac), &at),
            host(HostKey { vlan, mac }, &tagged),
        ];
        for message in all.iter().flat_map(|p| change(Vec::new(), p.clone(), 1)) {
            switch.apply(Instant::START, &message).expect("it takes it");
        }
        let mut holdings = held(&mut switch);
        let labels = [(VlanId::NONE, Label(17)), (vlan, Label(18))];
        assert_eq!(holdings.own_labels(), labels.into());
        assert_eq!(holdings.members(), [(Label(18), mac, PortNo(1))]);
        assert_eq!(holdings.inlets(), [PortNo(3)]);
        assert_eq!(holdings.hosts(), [(mac, PortNo(2))]);
        assert!(all.into_iter().all(|part| holdings.claim(part)));
        assert!(holdings.is_empty());
    }

    /// Only groups of the fabric have its numbers.
    #[test]
    fn groups_of_others_are_left_alone() {
        for id in [0, 1, GROUPS, GROUPS | 4095, GROUPS | 0x2000, 0xffff_ff00] {
            assert_eq!(label_of(GroupId(id)), None, "{id:#x}");
        }
        assert_eq!(label_of(group(Label::MAX)), Some(Label::MAX));
        assert_eq!(label_of(back_group(Label::MIN)), Some(Label::MIN));
        let ours = ingress_actions(0x88a8, Label(5));
        assert_eq!(ingress_exit(0x88a8, &ours), Some(Exit::Egress(Label(5))));
        assert_eq!(ingress_exit(0x8100, &ours), None);
    }
}
