//! Groups and meters that owners state, for static entries of the same owner.
//!
//! | numbers | of groups | of meters |
//! | --- | --- | --- |
//! | that owners state | 1 to 0x5fff_ffff | 1 to 0x3fff |
//! | that follow from names | 0x6000_0000 to 0x60ff_ffff | 0x4000 to 0x5fff |
//! | auster's own | above | above, or the upper half of a switch with fewer |
//!
//! A number that follows from a name is the same on every member of a cluster and after a restart.
//! Two names of a switch with the same number are a mistake, which a stated number mends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use clock::Fnv1a;
use openflow::message::{
    GroupMod, GroupModCommand, GroupType, MeterBandKind, MeterFlags, MeterMod, MeterModCommand,
};
use openflow::{Action, DatapathId, GroupId, Message, MeterId, PortNo, Version, Xid, encode};

use super::{FlowName, FlowState, action_problems};

/// Groups and meters that an owner may have.
pub const PARTS_PER_OWNER_MAX: usize = 256;
/// Groups and meters that all owners may have together.
pub const PARTS_MAX: usize = 2048;

const BUCKETS_MAX: usize = 64;
const BANDS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKind {
    Group,
    Meter,
}

impl PartKind {
    pub fn word(self) -> &'static str {
        match self {
            PartKind::Group => "group",
            PartKind::Meter => "meter",
        }
    }

    fn given(self) -> RangeInclusive<u32> {
        match self {
            PartKind::Group => 0x6000_0000..=0x60ff_ffff,
            PartKind::Meter => 0x4000..=0x5fff,
        }
    }

    /// The greatest number that an owner may state.
    pub fn stated_max(self) -> u32 {
        self.given().start() - 1
    }

    pub fn id(self, number: u32) -> PartId {
        match self {
            PartKind::Group => PartId::Group(GroupId(number)),
            PartKind::Meter => PartId::Meter(MeterId(number)),
        }
    }

    /// The number that follows from a name.
    pub fn number(self, name: &FlowName) -> u32 {
        let (given, hash) = (self.given(), Fnv1a::of(name.to_string().as_bytes()));
        let count = u64::from(given.end() - given.start()) + 1;
        given.start() + (hash % count) as u32
    }
}

/// The identity of a group or a meter in its switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartId {
    Group(GroupId),
    Meter(MeterId),
}

impl PartId {
    pub fn kind(self) -> PartKind {
        match self {
            PartId::Group(_) => PartKind::Group,
            PartId::Meter(_) => PartKind::Meter,
        }
    }

    pub fn number(self) -> u32 {
        match self {
            PartId::Group(GroupId(number)) | PartId::Meter(MeterId(number)) => number,
        }
    }

    /// Whether it can only be a static group or meter, set by this auster or an earlier one.
    pub(crate) fn is_given(self) -> bool {
        self.kind().given().contains(&self.number())
    }

    /// The message that deletes it, with the entries that lead to it.
    pub(crate) fn to_delete(self) -> Message {
        match self {
            PartId::Group(group_id) => Message::GroupMod(GroupMod::new(
                GroupModCommand::Delete,
                GroupType::All,
                group_id,
                Vec::new(),
            )),
            PartId::Meter(meter_id) => Message::MeterMod(MeterMod {
                command: MeterModCommand::Delete,
                flags: MeterFlags::empty(),
                meter_id,
                bands: Vec::new(),
            }),
        }
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().word(), self.number())
    }
}

/// The name of a group or a meter: its owner's name, and its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    pub kind: PartKind,
    pub of: FlowName,
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.word(), self.of)
    }
}

/// The message that adds a group or a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartMod {
    Group(GroupMod),
    Meter(MeterMod),
}

/// A group or a meter that its owner wants a switch to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPart {
    pub dpid: DatapathId,
    pub add: PartMod,
    /// Whether the number is its owner's choice.
    pub is_numbered: bool,
    /// The words of its owner.
    pub words: String,
}

impl StaticPart {
    pub fn id(&self) -> PartId {
        match &self.add {
            PartMod::Group(group) => PartId::Group(group.group_id),
            PartMod::Meter(meter) => PartId::Meter(meter.meter_id),
        }
    }

    pub(crate) fn to_add(&self) -> Message {
        match &self.add {
            PartMod::Group(group) => Message::GroupMod(group.clone()),
            PartMod::Meter(meter) => Message::MeterMod(meter.clone()),
        }
    }

    pub(crate) fn to_modify(&self) -> Message {
        match &self.add {
            PartMod::Group(group) => Message::GroupMod(GroupMod {
                command: GroupModCommand::Modify,
                ..group.clone()
            }),
            PartMod::Meter(meter) => Message::MeterMod(MeterMod {
                command: MeterModCommand::Modify,
                ..meter.clone()
            }),
        }
    }

    /// All problems of the part by itself, whatever else there is, by field.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let (id, mut problems) = (self.id(), Vec::new());
        let (word, most) = (id.kind().word(), id.kind().stated_max());
        if self.is_numbered && !(1..=most).contains(&id.number()) {
            let text = format!(
                "{} is none of 1 to {most}; the others are auster's own",
                id.number()
            );
            problems.push(("number", text));
        }
        let mut wrong = match &self.add {
            PartMod::Group(group) => group_problems(group),
            PartMod::Meter(meter) => meter_problems(meter),
        };
        // In the form of OpenFlow 1.3, whatever version the switch speaks.
        if wrong.is_empty()
            && let Err(error) = encode(Version::V13, Xid(0), &self.to_add())
        {
            wrong.push(format!("no switch can have this: {error}"));
        }
        problems.extend(wrong.into_iter().map(|text| (word, text)));
        problems
    }
}

fn group_problems(group: &GroupMod) -> Vec<String> {
    let (buckets, mut wrong) = (&group.buckets, Vec::new());
    if buckets.len() > BUCKETS_MAX {
        wrong.push(format!("more than {BUCKETS_MAX} buckets"));
    }
    if group.group_type == GroupType::Indirect && buckets.len() != 1 {
        wrong.push("a group of type=indirect has one bucket".to_owned());
    }
    let watches = |port: PortNo| port != PortNo::ANY;
    let is_failover = group.group_type == GroupType::FastFailover;
    if is_failover && !buckets.iter().all(|bucket| watches(bucket.watch_port)) {
        wrong.push("each bucket of a group of type=ff needs a watch_port".to_owned());
    }
    if buckets.iter().any(|b| b.watch_group != GroupId::ANY) {
        wrong.push("a bucket cannot watch a group here; watch a port".to_owned());
    }
    let actions: Vec<&Action> = buckets.iter().flat_map(|b| &b.actions).collect();
    if actions.iter().any(|a| matches!(a, Action::Group(_))) {
        wrong.push("a bucket cannot lead to another group here; output to ports".to_owned());
    }
    let of_buckets = buckets.iter().map(|b| action_problems(&b.actions, None));
    let of_buckets: BTreeSet<String> = of_buckets.flatten().collect();
    wrong.extend(of_buckets);
    wrong
}

fn meter_problems(meter: &MeterMod) -> Vec<String> {
    let (bands, mut wrong) = (&meter.bands, Vec::new());
    if !(1..=BANDS_MAX).contains(&bands.len()) {
        wrong.push(format!("it needs 1 to {BANDS_MAX} bands"));
    }
    let has = |flag| meter.flags.contains(flag);
    if has(MeterFlags::KBPS) == has(MeterFlags::PKTPS) {
        wrong.push("either kbps or pktps is the unit of its rates".to_owned());
    }
    if bands.iter().any(|band| band.rate == 0) {
        wrong.push("a rate is at least 1".to_owned());
    }
    let is_other = |kind: &MeterBandKind| matches!(kind, MeterBandKind::Experimenter { .. });
    if bands.iter().any(|band| is_other(&band.kind)) {
        wrong.push("type=drop and type=dscp_remark are the bands of OpenFlow".to_owned());
    }
    wrong
}

/// A change of the wanted groups and meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartEdit {
    /// Puts a part in the place of the part of this name, if there is one.
    Put(PartName, Box<StaticPart>),
    Delete(PartName),
}

impl PartEdit {
    pub(crate) fn name(&self) -> &PartName {
        match self {
            PartEdit::Put(name, _) | PartEdit::Delete(name) => name,
        }
    }
}

/// A reason why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartProblem {
    pub name: PartName,
    /// The field; empty for all of it.
    pub field: &'static str,
    pub text: String,
}

/// A group or a meter, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartView {
    pub name: PartName,
    pub part: StaticPart,
    pub state: FlowState,
}

/// Groups and meters by name.
pub(crate) type Parts<T> = BTreeMap<PartName, T>;

/// The groups and meters that changes are checked against.
pub(crate) struct PartsAround<'a> {
    pub part: &'a dyn Fn(&PartName) -> Option<&'a StaticPart>,
    /// The name of the part with this number.
    pub holder: &'a dyn Fn(DatapathId, PartId) -> Option<&'a PartName>,
    /// An entry that leads to a part.
    pub user: &'a dyn Fn(&str, DatapathId, PartId) -> Option<&'a FlowName>,
    pub of_owner: &'a dyn Fn(&str) -> usize,
    pub all: usize,
    /// Whether a connected switch has groups and meters at all.
    pub has_parts: &'a dyn Fn(DatapathId) -> bool,
}

/// All reasons not to make these changes together. The last change of a name counts.
pub(crate) fn problems(edits: &[PartEdit], around: &PartsAround<'_>) -> Vec<PartProblem> {
    let mut after: Parts<Option<&StaticPart>> = Parts::new();
    for edit in edits {
        match edit {
            PartEdit::Put(name, part) => after.insert(name.clone(), Some(part)),
            PartEdit::Delete(name) => after.insert(name.clone(), None),
        };
    }
    let mut problems = Vec::new();
    let mut wrong = |name: &PartName, field, text| {
        let name = name.clone();
        problems.push(PartProblem { name, field, text });
    };
    let mut taken: BTreeMap<(DatapathId, PartId), &PartName> = BTreeMap::new();
    let mut counts: BTreeMap<&str, isize> = BTreeMap::new();
    for (name, part) in &after {
        let before = (around.part)(name);
        *counts.entry(&name.of.owner).or_default() +=
            isize::from(part.is_some()) - isize::from(before.is_some());
        let place = |part: &StaticPart| (part.dpid, part.id());
        if let Some((dpid, id)) = before.map(place).filter(|at| part.map(place) != Some(*at))
            && let Some(user) = (around.user)(&name.of.owner, dpid, id)
        {
            let text = format!("{user} leads to it; change or delete that one first");
            wrong(name, "", text);
        }
        let Some(part) = part else {
            continue;
        };
        for (field, text) in part.problems() {
            wrong(name, field, text);
        }
        if !(around.has_parts)(part.dpid) {
            let text = format!("switch {} speaks OpenFlow 1.0, which has none", part.dpid);
            wrong(name, "switch", text);
        }
        let stays = |holder: &&PartName| match after.get(*holder) {
            Some(next) => next.is_some_and(|next| place(next) == place(part)),
            None => true,
        };
        let (dpid, id) = place(part);
        let holder = (around.holder)(dpid, id).filter(|holder| *holder != name);
        let other = taken.insert((dpid, id), name);
        if let Some(holder) = other.or(holder.filter(stays)) {
            let text = match part.is_numbered {
                true => format!("{holder} has this number on switch {dpid}"),
                false => format!("its name gives it the number of {holder}; state another one"),
            };
            wrong(name, "number", text);
        }
    }
    let more: isize = counts.values().sum();
    let is_full = more > 0 && around.all as isize + more > PARTS_MAX as isize;
    for (owner, more) in counts {
        let count = (around.of_owner)(owner) as isize + more;
        let is_over = count > PARTS_PER_OWNER_MAX as isize;
        if more <= 0 || !(is_over || is_full) {
            continue;
        }
        let text = match is_over {
            true => format!(
                "{owner} would have {count} groups and meters, and may have {PARTS_PER_OWNER_MAX}"
            ),
            false => format!("there are {PARTS_MAX} groups and meters, and no more are taken"),
        };
        if let Some(name) = after.keys().find(|name| name.of.owner == owner) {
            wrong(name, "", text);
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use openflow::text::{parse_group_of, parse_meter_of};

    use super::*;

    fn name(owner: &str, name: &str) -> PartName {
        PartName {
            kind: PartKind::Group,
            of: FlowName::new(owner, name),
        }
    }

    fn part(add: PartMod) -> StaticPart {
        StaticPart {
            dpid: DatapathId(1),
            add,
            is_numbered: true,
            words: String::new(),
        }
    }

    fn group(number: u32, words: &str) -> StaticPart {
        part(PartMod::Group(
            parse_group_of(GroupId(number), words).unwrap(),
        ))
    }

    fn meter(number: u32, words: &str) -> StaticPart {
        part(PartMod::Meter(
            parse_meter_of(MeterId(number), words).unwrap(),
        ))
    }

    /// No number of an owner's part is one of auster's own groups or meters.
    #[test]
    fn numbers_are_of_nobody_else() {
        use crate::qos::plan::is_our_meter;
        use crate::{bond, fabric, mirror};
        for n in 0..10_000 {
            let of = FlowName::new("ann", n.to_string());
            let number = PartKind::Meter.number(&of);
            assert!(!is_our_meter(MeterId(number), 262_144));
            assert!(PartKind::Meter.id(number).is_given());
            let group = PartKind::Group.number(&of);
            for number in [group, n, PartKind::Group.stated_max() - n] {
                let id = GroupId(number);
                assert!(!fabric::form::is_group(id) && !bond::is_group(id), "{id:?}");
                assert!(!mirror::is_group(id), "{id:?}");
            }
            assert!(PartKind::Group.id(group).is_given());
        }
        assert!(!is_our_meter(
            MeterId(PartKind::Meter.stated_max()),
            262_144
        ));
    }

    #[test]
    fn what_cannot_be_is_named_by_field() {
        for (part, field, text) in [
            (group(0, "type=all"), "number", "none of 1 to"),
            (group(0x6175_0001, "type=all"), "number", "auster's own"),
            (
                meter(0x4000, "kbps,band=type=drop,rate=1"),
                "number",
                "16383",
            ),
            (group(1, "type=indirect"), "group", "one bucket"),
            (group(1, "type=ff,bucket=output:1"), "group", "watch_port"),
            (
                group(1, "type=ff,bucket=watch_port:1,watch_group:2,output:1"),
                "group",
                "cannot watch a group",
            ),
            (
                group(1, "type=all,bucket=group:2"),
                "group",
                "cannot lead to another group",
            ),
            (group(1, "type=all,bucket=TABLE"), "group", "TABLE is for"),
            (meter(1, "kbps"), "meter", "1 to 16 bands"),
            (meter(1, "band=type=drop,rate=1"), "meter", "kbps or pktps"),
            (meter(1, "kbps,band=type=drop"), "meter", "at least 1"),
        ] {
            let problems = part.problems();
            let is_it = |(of, why): &(&str, String)| *of == field && why.contains(text);
            assert!(problems.iter().any(is_it), "{text}: {problems:?}");
        }
        let sound = [
            group(7, "type=select,bucket=weight:2,output:1,bucket=output:2"),
            group(7, "type=ff,bucket=watch_port:1,output:1"),
            group(7, "type=all"),
            meter(7, "pktps,burst,band=type=drop,rate=10,burst_size=5"),
            meter(7, "kbps,band=type=dscp_remark,rate=10,prec_level=1"),
        ];
        for part in sound {
            assert_eq!(part.problems(), []);
        }
    }

    #[test]
    fn changes_are_judged_together() {
        let (a, b) = (name("x", "a"), name("y", "b"));
        let here = group(1, "type=all");
        let user = FlowName::new("x", "user");
        let around = PartsAround {
            part: &|of| (*of == a).then_some(&here),
            holder: &|dpid, id| (dpid == here.dpid && id == here.id()).then_some(&a),
            user: &|owner, _, id| (owner == "x" && id == here.id()).then_some(&user),
            of_owner: &|owner| match owner {
                "z" => PARTS_PER_OWNER_MAX,
                _ => 1,
            },
            all: PARTS_PER_OWNER_MAX + 1,
            has_parts: &|dpid| dpid == DatapathId(1),
        };
        let put = |name: &PartName, part: &StaticPart| {
            PartEdit::Put(name.clone(), Box::new(part.clone()))
        };
        let found = |edits: &[PartEdit]| {
            let found = problems(edits, &around).into_iter();
            found.map(|problem| problem.field).collect::<Vec<_>>()
        };
        let other = group(2, "type=all");
        assert_eq!(found(&[put(&a, &group(1, "type=select"))]), [""; 0]);
        assert_eq!(found(&[put(&b, &other)]), [""; 0]);
        assert_eq!(found(&[put(&b, &here)]), ["number"]);
        // An entry leads to the part of a.
        assert_eq!(found(&[put(&a, &other)]), [""]);
        assert_eq!(found(&[PartEdit::Delete(a.clone())]), [""]);
        assert_eq!(
            found(&[put(&b, &other), put(&name("y", "c"), &other)]),
            ["number"]
        );
        assert_eq!(found(&[put(&name("z", "c"), &other)]), [""]);
        let elsewhere = StaticPart {
            dpid: DatapathId(2),
            ..here.clone()
        };
        assert_eq!(found(&[put(&b, &elsewhere)]), ["switch"]);
    }
}
