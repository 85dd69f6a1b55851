//! Static entries: flow entries that their owners state in terms of OpenFlow, each under the name
//! of its owner and a name of its own.
//!
//! All of them are in the table of paths. An entry is in one of three bands:
//!
//! | band | priorities in the switch |
//! | --- | --- |
//! | after all entries of auster's own but the table-miss | 1 to 499 |
//! | before all of them but LLDP's | 9,000 to 9,999 |
//! | of programs for Ryu, before all of them | 10,000 to 63,035 |
//!
//! Access lists and mirrors come before the table of paths. So do entries that let packets go on
//! to it ([`StaticEntry::goes_on`]), in a table of their own. [`parts`] are groups and meters.

pub mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use clock::{Budget, Instant};
use openflow::message::{FlowMod, FlowModFlags};
use openflow::table::{Pattern, check_actions};
use openflow::{Action, DatapathId, ErrorKind, Field, Instruction, Match, MatchField, MeterId};
use openflow::{Message, PortNo, TableId, Version, Xid, encode};

use crate::entry::{ETH_TYPE_LLDP, EntryKind, in_version};
use crate::pipeline::{ONWARD_TABLE, PATH_TABLE};
use parts::PartId;

/// The owner of entries that programs for Ryu set.
pub const OWNER_RYU: &str = "ryu";
/// Overlapping entries that a view names, and entries of the same priority compared to find them.
pub const OVERLAPS_MAX: usize = 8;
pub(crate) const COMPARED_MAX: usize = 4096;
/// Entries of a switch that may be mended at once.
pub(crate) const MENDED_AT_ONCE: u32 = 4096;

/// The limits of the owners' entries and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimits {
    /// Entries that an owner may have.
    pub per_owner: usize,
    /// Entries that all owners may have together.
    pub all: usize,
    /// Changes of switches that an owner may cause in a second, after a burst of as many as it may
    /// have entries. Further changes wait.
    pub changes_per_s: u32,
}

impl FlowLimits {
    /// The limits beside auster's own forwarding.
    pub const BESIDE: FlowLimits = FlowLimits {
        per_owner: 4096,
        all: 20_000,
        changes_per_s: 200,
    };
    /// The limits without auster's own forwarding: the owners' entries do all forwarding.
    pub const ALONE: FlowLimits = FlowLimits {
        per_owner: 65_536,
        all: 131_072,
        changes_per_s: 50_000,
    };

    /// The budget of changes of an owner that has caused none for long.
    pub(crate) fn budget(self, now: Instant) -> Budget {
        Budget::new(now, self.changes_per_s, self.at_once())
    }

    pub(crate) fn at_once(self) -> u32 {
        u32::try_from(self.per_owner).unwrap_or(u32::MAX)
    }
}

const ACTIONS_MAX: usize = 64;
const AFTER: u16 = 1;
const BEFORE: u16 = 9_000;
const RYU: u16 = 10_000;

/// The name of an entry: its owner's name, and its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowName {
    pub owner: String,
    pub name: String,
}

impl FlowName {
    pub fn new(owner: impl Into<String>, name: impl Into<String>) -> FlowName {
        let (owner, name) = (owner.into(), name.into());
        FlowName { owner, name }
    }

    /// A name before all others of an owner.
    pub(crate) fn first(owner: &str) -> FlowName {
        FlowName::new(owner, "")
    }
}

impl fmt::Display for FlowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// The place of an entry among auster's own entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    #[default]
    Before,
    After,
    /// Entries with Ryu's priorities, from 0 to 65,535.
    Ryu,
}

impl Band {
    pub fn priority_max(self) -> u16 {
        match self {
            Band::Before => 999,
            Band::After => 498,
            Band::Ryu => u16::MAX,
        }
    }

    /// The priority in the switch. A greater stated priority is never below a smaller one there.
    fn priority(self, stated: u16) -> u16 {
        match self {
            Band::Before => BEFORE + stated.min(self.priority_max()),
            Band::After => AFTER + stated.min(self.priority_max()),
            Band::Ryu => RYU + squeezed(stated),
        }
    }
}

/// Maps Ryu's 65,536 priorities to fewer: from 40,000 to 64,999, where programs have the fewest,
/// two neighbours share one.
fn squeezed(stated: u16) -> u16 {
    const FROM: u16 = 40_000;
    const TO: u16 = 65_000;
    match stated {
        ..FROM => stated,
        FROM..TO => FROM + (stated - FROM) / 2,
        TO.. => FROM + (TO - FROM) / 2 + (stated - TO),
    }
}

/// A flow entry that its owner wants a switch to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaticEntry {
    pub dpid: DatapathId,
    pub band: Band,
    pub priority: u16,
    pub r#match: Match,
    /// The meter before the actions.
    pub meter: Option<MeterId>,
    /// The actions. With none, packets are dropped, unless they go on.
    pub actions: Vec<Action>,
    /// Whether packets go on to the table of paths after the actions, where other static entries
    /// and auster's own forwarding match them. Only for an entry before auster's own.
    pub goes_on: bool,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
    /// Match and actions as their owner has written them.
    pub words: (String, String),
    /// Cookie and flags as a program for Ryu has stated them. The switch has auster's own.
    pub stated: (u64, u16),
}

/// The identity of an entry in its switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    pub table: TableId,
    pub priority: u16,
    pub pattern: Pattern,
}

impl FlowKey {
    /// The key of an entry that a switch reports in our numbers; `None` for a match or a table that
    /// no static entry has.
    pub(crate) fn of(table: TableId, priority: u16, m: &Match) -> Option<FlowKey> {
        let pattern = Pattern::new(m).ok()?;
        let key = FlowKey {
            table,
            priority,
            pattern,
        };
        [PATH_TABLE, ONWARD_TABLE].contains(&table).then_some(key)
    }
}

impl StaticEntry {
    /// Whether the entry is set again when it is missing.
    pub fn is_lasting(&self) -> bool {
        self.idle_timeout_s == 0 && self.hard_timeout_s == 0
    }

    fn table(&self) -> TableId {
        match self.goes_on {
            true => ONWARD_TABLE,
            false => PATH_TABLE,
        }
    }

    pub(crate) fn key(&self) -> FlowKey {
        FlowKey {
            table: self.table(),
            priority: self.band.priority(self.priority),
            pattern: Pattern::new(&self.r#match).unwrap_or_default(),
        }
    }

    /// The message that sets the entry in a switch of this version.
    pub(crate) fn to_add(&self, version: Version, generation: u16) -> FlowMod {
        let priority = self.band.priority(self.priority);
        let meter = self.meter.map(Instruction::Meter).into_iter();
        let is_none = self.goes_on && self.actions.is_empty();
        let actions = (!is_none).then(|| Instruction::ApplyActions(self.actions.clone()));
        let onward = self.goes_on.then_some(Instruction::GotoTable(PATH_TABLE));
        let mut instructions = meter.chain(actions).chain(onward).collect();
        in_version(version, &mut instructions);
        FlowMod {
            table_id: self.table(),
            cookie: EntryKind::Static.cookie(generation),
            idle_timeout: self.idle_timeout_s,
            hard_timeout: self.hard_timeout_s,
            flags: FlowModFlags::SEND_FLOW_REM,
            instructions,
            ..FlowMod::add(priority, self.r#match.clone(), Vec::new())
        }
    }

    /// The ports that the entry sends packets out of, except those with a special meaning.
    pub(crate) fn ports(&self) -> impl Iterator<Item = PortNo> {
        ports_of(&self.actions)
    }

    pub fn leads_to(&self, id: PartId) -> bool {
        self.parts().any(|of| of == id)
    }

    /// The groups and the meter that the entry leads to.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PartId> {
        let groups = self.actions.iter().filter_map(|action| match action {
            Action::Group(group) => Some(PartId::Group(*group)),
            _ => None,
        });
        groups.chain(self.meter.map(PartId::Meter))
    }

    /// All problems of the entry by itself, whatever else there is, by field.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut problems = Vec::new();
        let most = self.band.priority_max();
        if self.priority > most {
            let text = format!(
                "{} is more than {most}, the greatest one here",
                self.priority
            );
            problems.push(("priority", text));
        }
        problems.extend(match_problem(&self.r#match).map(|why| ("match", why)));
        let mut wrong = action_problems(&self.actions, Some(&self.r#match));
        wrong.extend(
            self.meter
                .and_then(|meter| not_stated(PartId::Meter(meter))),
        );
        if self.goes_on {
            wrong.extend(self.actions.iter().filter_map(not_before_going_on));
            if self.band != Band::Before {
                let text = "go_on is for an entry of \"before\": nothing follows the others";
                problems.push(("table", text.to_owned()));
            }
        }
        problems.extend(wrong.into_iter().map(|why| ("actions", why)));
        problems
    }

    /// The part of the entry that a switch of this version cannot have, by field.
    fn problem_in(&self, version: Version) -> Option<(&'static str, String)> {
        if self.goes_on && version < Version::V13 {
            let text = format!(
                "switch {} speaks OpenFlow {version}, and go_on needs 1.3",
                self.dpid
            );
            return Some(("actions", text));
        }
        let whole = self.to_add(version, 0);
        let matching = FlowMod {
            instructions: Vec::new(),
            ..whole.clone()
        };
        for (field, flow_mod) in [("match", matching), ("actions", whole)] {
            if let Err(error) = encode(version, Xid(0), &Message::FlowMod(flow_mod)) {
                let text = format!("switch {} cannot have this: {error}", self.dpid);
                return Some((field, text));
            }
        }
        None
    }
}

/// Why no static entry can have this match.
pub fn match_problem(m: &Match) -> Option<String> {
    let is_other = |field: &MatchField| !matches!(field, MatchField::Basic { .. });
    if m.fields.iter().any(is_other) {
        let text = "it has a field that OpenFlow does not define, such as one of Nicira's";
        return Some(text.to_owned());
    }
    if let Err(error) = Pattern::new(m) {
        return Some(format!("a switch would refuse it: {error}"));
    }
    (m.exact(Field::EthType) == Some(ETH_TYPE_LLDP.into()))
        .then(|| "LLDP goes to auster, which finds links by it; no entry can take it".to_owned())
}

/// Why no static entry of this match can have these actions. Without a match: with any match.
pub fn action_problems(actions: &[Action], m: Option<&Match>) -> Vec<String> {
    let mut wrong: Vec<String> = actions.iter().filter_map(wrong_action).collect();
    if actions.len() > ACTIONS_MAX {
        wrong.push(format!("more than {ACTIONS_MAX} actions"));
    }
    let pattern = m.and_then(|m| Pattern::new(m).ok());
    if wrong.is_empty()
        && let Err(error) = check_actions(actions, pattern.as_ref())
    {
        wrong.push(action_text(error));
    }
    wrong
}

fn wrong_action(action: &Action) -> Option<String> {
    match action {
        Action::Output { port, .. } | Action::Enqueue { port, .. } => match *port {
            PortNo::TABLE => Some(
                "TABLE is for packets that the controller sends; an entry cannot \
                                   output there"
                    .to_owned(),
            ),
            port if check_actions(&[Action::output(port)], None).is_err() => {
                Some(format!("no switch has a port {port}"))
            }
            _ => None,
        },
        Action::Group(group) => not_stated(PartId::Group(*group)),
        Action::Experimenter { .. } => Some(
            "it has an action of Nicira's or another one that OpenFlow does not define".to_owned(),
        ),
        Action::CopyField { .. } | Action::Meter(_) => {
            Some("it has an action that only OpenFlow 1.5 has".to_owned())
        }
        _ => None,
    }
}

/// The ports that actions send packets out of, except those with a special meaning.
pub(crate) fn ports_of(actions: &[Action]) -> impl Iterator<Item = PortNo> {
    let ports = actions.iter().filter_map(|action| match action {
        Action::Output { port, .. } | Action::Enqueue { port, .. } => Some(*port),
        _ => None,
    });
    ports.filter(|port| port.is_ordinary())
}

/// Why packets cannot go on to auster's own forwarding after this action.
fn not_before_going_on(action: &Action) -> Option<String> {
    let what = match action {
        Action::Output { port, .. } if *port == PortNo::CONTROLLER => {
            return Some(
                "CONTROLLER and go_on would have auster forward the packet twice; set a tap that \
                 copies instead"
                    .to_owned(),
            );
        }
        Action::SetField(MatchField::Basic { field, .. }) => match field {
            Field::EthSrc => "the sender, by which auster learns where hosts are",
            Field::VlanVid => "the VLAN, which ports and links give",
            Field::Metadata => "the metadata, which is auster's own",
            _ => return None,
        },
        Action::PushVlan(_)
        | Action::PopVlan
        | Action::SetVlanVid(_)
        | Action::SetVlanPcp(_)
        | Action::StripVlan => "the VLAN, which ports and links give",
        Action::PushMpls(_) | Action::PopMpls(_) | Action::PushPbb(_) | Action::PopPbb => {
            "the headers by which auster forwards"
        }
        _ => return None,
    };
    Some(format!("an entry with go_on cannot change {what}"))
}

/// Why nothing static can lead to a group or a meter of this number.
pub fn not_stated(id: PartId) -> Option<String> {
    let most = id.kind().stated_max();
    let is_it = id.is_given() || (1..=most).contains(&id.number());
    (!is_it).then(|| format!("{id} is none of 1 to {most}; the others are auster's own"))
}

fn action_text(error: ErrorKind) -> String {
    match error {
        ErrorKind::ACTION_MATCH_INCONSISTENT => {
            "it sets a field that the packets of this match may not have; narrow the match, such \
             as by ip or tcp"
                .to_owned()
        }
        error => format!("a switch would refuse it: {error}"),
    }
}

/// A change of the wanted entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEdit {
    /// Puts an entry in the place of the entry of this name, if there is one.
    Put(FlowName, Box<StaticEntry>),
    Delete(FlowName),
}

impl FlowEdit {
    pub fn name(&self) -> &FlowName {
        match self {
            FlowEdit::Put(name, _) | FlowEdit::Delete(name) => name,
        }
    }
}

/// A reason why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowProblem {
    pub name: FlowName,
    /// The field of the entry; empty for all of it.
    pub field: &'static str,
    pub text: String,
}

/// The present state of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// The switch is not connected, or has not been compared.
    Wanted,
    /// The entry is under way, or waits for its owner's turn.
    Sent,
    InUse,
    /// The switch has confirmed the entry, but has no such port to send packets out of.
    NoPort(PortNo),
    /// The switch refuses the entry, for this reason.
    Refused(String),
}

/// An entry and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowView {
    pub name: FlowName,
    pub entry: StaticEntry,
    pub state: FlowState,
    /// Packets and bytes, as last read.
    pub counts: Option<(u64, u64)>,
    /// Other owners' entries of the same priority that match some of its packets too, at most
    /// [`OVERLAPS_MAX`]: the switch decides which of them a packet meets. Only for one entry that
    /// is asked for.
    pub overlaps: Vec<FlowName>,
}

/// Some of the static entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowPage {
    pub flows: Vec<FlowView>,
    /// The number of all entries that were asked for, on this page or not.
    pub total: usize,
    pub has_more: bool,
}

/// A selection of entries on a switch by their match, as in flow-mods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    All,
    /// The entries that match no packets but those of this match.
    Within(Pattern),
    /// The entry of this match and stated priority.
    One(Pattern, u16),
}

impl Chosen {
    pub(crate) fn has(&self, key: &FlowKey, priority: u16) -> bool {
        match self {
            Chosen::All => true,
            Chosen::Within(wide) => key.pattern.is_within(wide),
            Chosen::One(pattern, at) => key.pattern == *pattern && priority == *at,
        }
    }
}

/// The entries that changes are checked against.
pub(crate) struct Around<'a> {
    /// The entry of a name.
    pub entry: &'a dyn Fn(&FlowName) -> Option<&'a StaticEntry>,
    /// The name of the entry in a place.
    pub holder: &'a dyn Fn(DatapathId, &FlowKey) -> Option<&'a FlowName>,
    pub of_owner: &'a dyn Fn(&str) -> usize,
    pub all: usize,
    pub limits: FlowLimits,
    /// The version of a connected switch.
    pub version: &'a dyn Fn(DatapathId) -> Option<Version>,
    /// Whether an owner has a group or a meter.
    pub has_part: &'a dyn Fn(&str, DatapathId, PartId) -> bool,
}

/// All reasons not to make these changes together. The last change of a name counts.
pub(crate) fn problems(edits: &[FlowEdit], around: &Around<'_>) -> Vec<FlowProblem> {
    let mut after: BTreeMap<&FlowName, Option<&StaticEntry>> = BTreeMap::new();
    for edit in edits {
        match edit {
            FlowEdit::Put(name, entry) => after.insert(name, Some(entry)),
            FlowEdit::Delete(name) => after.insert(name, None),
        };
    }
    let mut problems = Vec::new();
    let mut wrong = |name: &FlowName, field, text| {
        let name = name.clone();
        problems.push(FlowProblem { name, field, text });
    };
    let mut taken: BTreeMap<(DatapathId, FlowKey), &FlowName> = BTreeMap::new();
    let (mut grown, mut shrunk) = (
        BTreeMap::<&str, usize>::new(),
        BTreeMap::<&str, usize>::new(),
    );
    for (name, entry) in &after {
        let (was, is) = ((around.entry)(name).is_some(), entry.is_some());
        match (was, is) {
            (false, true) => *grown.entry(&name.owner).or_default() += 1,
            (true, false) => *shrunk.entry(&name.owner).or_default() += 1,
            _ => {}
        }
        let Some(entry) = entry else {
            continue;
        };
        let own = entry.problems();
        let is_sound = own.is_empty();
        own.into_iter()
            .for_each(|(field, text)| wrong(name, field, text));
        if !is_sound {
            continue;
        }
        if let Some((field, text)) =
            (around.version)(entry.dpid).and_then(|version| entry.problem_in(version))
        {
            wrong(name, field, text);
        }
        let missing = entry
            .parts()
            .filter(|id| !(around.has_part)(&name.owner, entry.dpid, *id));
        for id in missing.collect::<BTreeSet<PartId>>() {
            let (word, owner) = (id.kind().word(), &name.owner);
            let text = match id.is_given() {
                true => format!(
                    "{owner} has no {word} of this name on switch {}",
                    entry.dpid
                ),
                false => format!("{owner} has no {id} on switch {}", entry.dpid),
            };
            let text = format!(
                "{text}; PUT /v1/{word}s/{owner}/NAME first; one with a \"number\" is {word}:NUMBER"
            );
            wrong(name, "actions", text);
        }
        let key = entry.key();
        let stays = |holder: &&FlowName| match after.get(holder) {
            Some(Some(next)) => next.dpid == entry.dpid && next.key() == key,
            Some(None) => false,
            None => true,
        };
        let holder = (around.holder)(entry.dpid, &key).filter(|holder| holder != name);
        let other = taken.insert((entry.dpid, key.clone()), name);
        if let Some(holder) = other.or(holder.filter(stays)) {
            let text = format!("{holder} has the same match and priority on this switch");
            wrong(name, "match", text);
        }
    }
    let owners: BTreeSet<&str> = grown.keys().copied().collect();
    let more: usize = grown.values().sum();
    let fewer: usize = shrunk.values().sum();
    let is_full = more > 0 && (around.all + more).saturating_sub(fewer) > around.limits.all;
    for owner in owners {
        let fewer = shrunk.get(owner).copied().unwrap_or(0);
        let count = ((around.of_owner)(owner) + grown[owner]).saturating_sub(fewer);
        let FlowLimits { per_owner, all, .. } = around.limits;
        let text = match (count > per_owner, is_full) {
            (true, _) => format!("{owner} would have {count} entries, and may have {per_owner}"),
            (_, true) => format!("there are {all} static entries, and no more are taken"),
            _ => continue,
        };
        let first = after.keys().find(|name| name.owner == owner);
        let first = first.map_or_else(FlowName::default, |name| (*name).clone());
        wrong(&first, "", text);
    }
    problems
}

#[cfg(test)]
mod tests {
    use openflow::text::{parse_actions, parse_match};

    use super::parts::PartKind;
    use super::*;

    pub(super) fn entry(matching: &str, actions: &str) -> StaticEntry {
        StaticEntry {
            dpid: DatapathId(1),
            r#match: parse_match(matching).unwrap(),
            actions: parse_actions(actions).unwrap(),
            words: (matching.to_owned(), actions.to_owned()),
            ..StaticEntry::default()
        }
    }

    /// A greater priority of a band is never below a smaller one, and no band overlaps another or
    /// auster's own priorities.
    #[test]
    fn priorities_keep_their_order_and_their_bands() {
        for (band, range) in [
            (Band::After, 1..=499),
            (Band::Before, 9_000..=9_999),
            (Band::Ryu, 10_000..=63_035),
        ] {
            let all = (0..=band.priority_max()).map(|stated| band.priority(stated));
            let all: Vec<u16> = all.collect();
            assert!(all.is_sorted());
            assert_eq!(
                (all.first(), all.last()),
                (Some(range.start()), Some(range.end()))
            );
        }
        let ryu = |stated| Band::Ryu.priority(stated);
        for (low, high) in [(0, 1), (32_767, 32_768), (39_999, 40_000), (65_534, 65_535)] {
            assert!(ryu(low) < ryu(high), "{low} and {high}");
        }
    }

    #[test]
    fn what_cannot_be_is_named_by_field() {
        for (matching, actions, field, part) in [
            ("dl_type=0x88cc", "drop", "match", "LLDP goes to auster"),
            ("oxm=0x00010c04", "drop", "match", "of Nicira's"),
            ("", "TABLE", "actions", "TABLE is for packets"),
            ("", "output:4294967287", "actions", "no switch has a port"),
            ("", "group:0", "actions", "none of 1 to"),
            ("", "group:0x61750001", "actions", "auster's own"),
            (
                "",
                "set_field:10.0.0.1->ip_dst",
                "actions",
                "narrow the match",
            ),
            ("", "copy_ttl_out", "actions", "ACTION_BAD_TYPE"),
        ] {
            let Ok(matching) = parse_match(matching) else {
                continue;
            };
            let Ok(actions) = parse_actions(actions) else {
                continue;
            };
            let entry = StaticEntry {
                r#match: matching,
                actions,
                ..StaticEntry::default()
            };
            let problems = entry.problems();
            let is_it = |(of, text): &(&str, String)| *of == field && text.contains(part);
            assert!(problems.iter().any(is_it), "{part}: {problems:?}");
        }
        assert_eq!(entry("ip,nw_dst=10.0.0.2", "output:3").problems(), []);
        assert_eq!(
            entry("tcp", "set_field:80->tcp_dst,output:3").problems(),
            []
        );
        let high = StaticEntry {
            band: Band::After,
            priority: 499,
            ..entry("", "drop")
        };
        assert_eq!(high.problems()[0].0, "priority");
    }

    fn name(owner: &str, name: &str) -> FlowName {
        FlowName::new(owner, name)
    }

    /// Policies and circuits have cookies of the same scheme.
    #[test]
    fn no_cookie_of_a_static_entry_is_another_kinds() {
        let cookie = EntryKind::Static.cookie(7);
        assert!(!crate::qos::flow::Flow::is_its(cookie));
        assert_eq!(EntryKind::of(cookie), Some(EntryKind::Static));
    }

    #[test]
    fn changes_are_judged_together() {
        let (a, b) = (name("x", "a"), name("y", "b"));
        let here = entry("ip", "output:1");
        let key = here.key();
        let limits = FlowLimits::BESIDE;
        let around = Around {
            entry: &|of| (*of == a).then_some(&here),
            holder: &|_, of| (*of == key).then_some(&a),
            of_owner: &|owner| if owner == "x" { limits.per_owner } else { 0 },
            all: limits.per_owner,
            limits,
            version: &|_| None,
            has_part: &|owner, _, id| owner == "x" && id == PartKind::Group.id(7),
        };
        let put = |name: &FlowName, entry: &StaticEntry| {
            FlowEdit::Put(name.clone(), Box::new(entry.clone()))
        };
        let found = |edits: &[FlowEdit]| {
            let found = problems(edits, &around);
            found
                .into_iter()
                .map(|problem| problem.field)
                .collect::<Vec<_>>()
        };
        let other = entry("ip", "drop");
        assert_eq!(found(&[put(&a, &other)]), [""; 0], "in its own place");
        assert_eq!(found(&[put(&b, &other)]), ["match"]);
        assert_eq!(
            found(&[put(&b, &other), FlowEdit::Delete(a.clone())]),
            [""; 0]
        );
        let elsewhere = entry("arp", "drop");
        assert_eq!(found(&[put(&b, &other), put(&a, &elsewhere)]), [""; 0]);
        let both = [put(&b, &elsewhere), put(&name("y", "c"), &elsewhere)];
        assert_eq!(found(&both), ["match"]);
        // The owner of a has the maximum number of entries.
        assert_eq!(found(&[put(&name("x", "c"), &elsewhere)]), [""]);
        let one_for_one = [
            put(&name("x", "c"), &elsewhere),
            FlowEdit::Delete(a.clone()),
        ];
        assert_eq!(found(&one_for_one), [""; 0]);
        let led = entry("arp", "group:7");
        assert_eq!(found(&[put(&a, &led)]), [""; 0]);
        assert_eq!(
            found(&[put(&b, &led)]),
            ["actions"],
            "it is another owner's"
        );
        let metered = StaticEntry {
            meter: Some(MeterId(7)),
            ..led
        };
        assert_eq!(found(&[put(&a, &metered)]), ["actions"]);
    }
}
