//! Explains a packet's path through the tables of a real switch: the tables as the switch reported
//! them, and the steps of a walk through them.
//!
//! A report is treated as hostile: it may have entries that no switch should have, loops of groups,
//! or too many actions to follow. A walk ends where it cannot judge, and reports this. It also ends
//! when its [`Allowance`], which several walks may share, is spent. Where a hash chooses among
//! buckets, the walk visits each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::actions::{Action, Instruction};
use crate::match_fields::{Match, MatchField};
use crate::message::{GroupType, PacketInReason, Port};
use crate::multipart::{FlowStats, GroupDesc};
use crate::packet::PacketFields;
use crate::types::{GroupId, MeterId, PortNo, QueueId, TableId, Version};

use super::actions::Packet;
use super::flow::{EntryId, FlowEntry, FlowTable};
use super::pipeline::Walk;
use super::{DropReason, PortRecord, Switch, SwitchOptions, actions, stats};

/// Maximum work of one walk.
const WORK_MAX: usize = 8192;
/// Maximum number of bytes of one walk's steps.
const BYTES_MAX: usize = 2 << 20;
/// Maximum number of nested hash choices that a walk follows.
const CHOICES_MAX: usize = 16;
/// Table numbers are below this.
const TABLES: u8 = 255;

/// The work that walks may do, and the memory that their steps may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Number of steps, actions and buckets that are examined.
    pub work: usize,
    /// Bytes of the steps, with their entries and packets.
    pub bytes: usize,
}

impl Allowance {
    /// Maximum for a single walk.
    pub const WALK: Allowance = Allowance {
        work: WORK_MAX,
        bytes: BYTES_MAX,
    };

    /// Returns the allowance less this amount; `None` if less is left.
    fn without(self, work: usize, bytes: usize) -> Option<Allowance> {
        Some(Allowance {
            work: self.work.checked_sub(work)?,
            bytes: self.bytes.checked_sub(bytes)?,
        })
    }
}

/// The tables of a switch, as it has reported them.
#[derive(Clone, Debug)]
pub struct Report {
    switch: Switch,
    /// Entries whose match cannot be read, by table.
    unread: BTreeMap<TableId, Vec<FlowStats>>,
    live_groups: Arc<BTreeSet<GroupId>>,
    /// Entries whose instructions cannot be carried out.
    opaque: BTreeSet<(TableId, EntryId)>,
}

/// One step of a packet's path through a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An entry takes the packet.
    Entry {
        /// The entry, with its counters.
        entry: Box<FlowEntry>,
        /// Reason why another entry may take the packet.
        doubt: Option<Doubt>,
    },
    /// No entry of the table matches.
    Miss {
        /// The table.
        table: TableId,
        /// Reason why an entry may match all the same.
        doubt: Option<Doubt>,
    },
    /// The packet passes a meter.
    Meter(MeterId),
    /// An action changes the packet.
    Rewrite {
        /// The action.
        action: Action,
        /// Previous value of the field that the action sets.
        before: Option<u128>,
    },
    /// The packet is processed by a group.
    Group {
        /// The group.
        group: GroupId,
        /// Its type. SELECT chooses by a hash.
        group_type: GroupType,
        /// Number of its buckets.
        bucket_count: usize,
        /// The buckets that process the packet: with SELECT, all that a hash may choose.
        buckets: Vec<usize>,
        /// Hash choices that this step depends on.
        only_if: Vec<Choice>,
    },
    /// The packet leaves by a port.
    Output {
        /// The port.
        port: PortNo,
        /// Queue of the port.
        queue: Option<QueueId>,
        /// The packet after the actions.
        packet: Bytes,
        /// Hash choices that this step depends on.
        only_if: Vec<Choice>,
    },
    /// The packet goes to the controller.
    Controller {
        /// Reason given in the packet-in.
        reason: PacketInReason,
        /// Hash choices that this step depends on.
        only_if: Vec<Choice>,
    },
    /// The packet, or one of its copies, goes no further.
    Drop {
        /// Reason for the drop.
        reason: DropReason,
        /// Hash choices that this step depends on.
        only_if: Vec<Choice>,
    },
    /// The walk cannot continue.
    Unknown {
        /// Reason why the walk cannot continue.
        why: Unjudged,
        /// Hash choices that this step depends on.
        only_if: Vec<Choice>,
    },
}

/// One of several buckets that the hash of a SELECT group may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// The group.
    pub group: GroupId,
    /// Index of the bucket.
    pub bucket: usize,
    /// Number of buckets that the hash may choose.
    pub of: usize,
}

/// Reason why an entry other than the one found may take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// An entry at this priority has a match that cannot be read.
    UnreadMatch(u16),
    /// Another entry of the same priority matches too, and does something else.
    Rival,
}

/// Reason why a walk cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unjudged {
    /// The entry has an instruction or an action that is unknown here, or that no switch accepts.
    Instructions,
    /// A bucket has an action that is unknown here.
    Bucket,
    /// The [`Allowance`] is spent, or hash choices are nested too deeply.
    TooLong,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::UnreadMatch(priority) => write!(
                f,
                "an entry of priority {priority} has a match that cannot be read and may be first"
            ),
            Doubt::Rival => f.write_str(
                "another entry of the same priority matches too, and the switch chooses",
            ),
        }
    }
}

impl fmt::Display for Unjudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unjudged::Instructions => "this entry has actions that are not known here",
            Unjudged::Bucket => "a bucket of this group has actions that are not known here",
            Unjudged::TooLong => "the packet takes more actions than can be followed",
        })
    }
}

impl Report {
    /// Builds the tables of a switch from the entries, groups and ports that it reported.
    pub fn new(
        version: Version,
        rows: impl IntoIterator<Item = FlowStats>,
        groups: impl IntoIterator<Item = GroupDesc>,
        ports: impl IntoIterator<Item = Port>,
    ) -> Report {
        let mut report = Report {
            switch: Switch::new(SwitchOptions {
                version,
                n_tables: TABLES,
                ..SwitchOptions::default()
            }),
            unread: BTreeMap::new(),
            live_groups: Arc::default(),
            opaque: BTreeSet::new(),
        };
        for group in groups {
            report.switch.groups.put(group);
        }
        for port in ports {
            let record = PortRecord {
                stats: stats::no_traffic(port.port_no),
                added_at: clock::Instant::START,
                port,
            };
            report.switch.ports.insert(record.port.port_no, record);
        }
        let switch = &report.switch;
        let live = switch.groups.live(|port| switch.port_is_live(port));
        report.live_groups = Arc::new(live);
        for row in rows {
            report.add(row);
        }
        report
    }

    fn add(&mut self, row: FlowStats) {
        let (table_id, is_known) = (row.table_id, can_be_followed(&row));
        let Some(table) = self.switch.tables.get_mut(usize::from(table_id.0)) else {
            return;
        };
        match FlowEntry::of_row(row.clone()) {
            Ok(entry) => {
                let id = table.insert(entry);
                if !is_known {
                    self.opaque.insert((table_id, id));
                }
            }
            Err(_) => self.unread.entry(table_id).or_default().push(row),
        }
    }

    /// Number of entries.
    pub fn entry_count(&self) -> usize {
        self.switch.entry_count() + self.unread.values().map(Vec::len).sum::<usize>()
    }

    /// Returns the path of a packet received on a port. The walk deducts its cost from `left`, and
    /// spends at most [`Allowance::WALK`].
    pub fn walk(&self, in_port: PortNo, packet: &Bytes, left: &mut Allowance) -> Vec<Step> {
        let given = Allowance {
            work: left.work.min(WORK_MAX),
            bytes: left.bytes.min(BYTES_MAX),
        };
        let notes = Notes {
            report: self,
            steps: Vec::new(),
            choices: Vec::new(),
            left: given,
            is_over: false,
            ends: 0,
        };
        let mut walk = Walk::explaining(&self.switch, notes);
        walk.receive(in_port, packet.clone());
        let Some((steps, rest)) = walk.end() else {
            return Vec::new();
        };
        left.work -= given.work - rest.work;
        left.bytes -= given.bytes - rest.bytes;
        steps
    }

    /// Returns the reason why an entry other than `hit` may take the packet, if there is one.
    fn doubt(
        &self,
        table_id: TableId,
        (table, hit): (&FlowTable, Option<EntryId>),
        packet: &PacketFields,
    ) -> Option<Doubt> {
        let priority = hit.and_then(|id| table.get(id)).map(|e| e.priority);
        let mut unread = self.unread.get(&table_id).into_iter().flatten();
        let unread = unread.find(|row| {
            priority.is_none_or(|priority| row.priority >= priority)
                && may_match(&row.r#match, packet)
        });
        if let Some(unread) = unread {
            return Some(Doubt::UnreadMatch(unread.priority));
        }
        let rival = hit.and_then(|id| table.rival(id, packet));
        rival.map(|_| Doubt::Rival)
    }
}

/// Whether all instructions of an entry are known, and the next table is always a later one.
fn can_be_followed(row: &FlowStats) -> bool {
    row.instructions
        .iter()
        .all(|instruction| match instruction {
            Instruction::GotoTable(table) => *table > row.table_id && table.0 < TABLES,
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                actions::check(actions, None).is_ok()
            }
            Instruction::Experimenter { .. } => false,
            _ => true,
        })
}

/// Whether a packet may match, judged by the match fields that can be read.
fn may_match(r#match: &Match, packet: &PacketFields) -> bool {
    r#match.fields.iter().all(|field| match field {
        MatchField::Basic { field, value, mask } => {
            let mask = mask.unwrap_or(field.ones());
            packet.get(*field).is_none_or(|v| (v ^ value) & mask == 0)
        }
        _ => true,
    })
}

/// The notes of a walk.
#[derive(Debug)]
pub(super) struct Notes<'a> {
    report: &'a Report,
    steps: Vec<Step>,
    choices: Vec<Choice>,
    left: Allowance,
    is_over: bool,
    /// Number of steps that end the path of a copy of the packet.
    ends: usize,
}

impl<'a> Notes<'a> {
    pub fn add(&mut self, step: impl FnOnce(&Notes<'a>) -> Step) {
        let bytes = size_of::<Step>() + size_of_val(&*self.choices);
        if !self.spend(1, bytes) {
            return;
        }
        let step = step(self);
        let bytes = match &step {
            Step::Output { packet, .. } => packet.len(),
            Step::Rewrite { action, .. } => bytes_of(std::slice::from_ref(action)),
            _ => 0,
        };
        if self.spend(0, bytes) {
            self.push(step);
        }
    }

    fn push(&mut self, step: Step) {
        let is_end = !matches!(
            step,
            Step::Entry { .. } | Step::Meter(_) | Step::Rewrite { .. } | Step::Group { .. }
        );
        self.ends += usize::from(is_end);
        self.steps.push(step);
    }

    /// Spends from the allowance and reports whether the walk continues. If too little is left, a
    /// step notes that the walk ends.
    fn spend(&mut self, work: usize, bytes: usize) -> bool {
        if self.is_over {
            return false;
        }
        let left = self.left.without(work, bytes);
        match left {
            Some(left) => self.left = left,
            None => self.stop(),
        }
        left.is_some()
    }

    fn stop(&mut self) {
        self.is_over = true;
        self.push(Step::Unknown {
            why: Unjudged::TooLong,
            only_if: self.choices(),
        });
    }

    /// Whether the walk has ended because it was too long.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The live groups of the switch.
    pub fn live_groups(&self) -> Arc<BTreeSet<GroupId>> {
        self.report.live_groups.clone()
    }

    pub fn choices(&self) -> Vec<Choice> {
        self.choices.clone()
    }

    pub fn ends(&self) -> usize {
        self.ends
    }

    /// Notes that the following steps belong to one bucket. Returns the number of ends so far.
    pub fn enter(&mut self, choice: Choice) -> usize {
        self.choices.push(choice);
        self.ends
    }

    pub fn leave(&mut self) {
        self.choices.pop();
    }

    pub fn end(self) -> (Vec<Step>, Allowance) {
        (self.steps, self.left)
    }

    fn unknown(&mut self, why: Unjudged) {
        self.add(|notes| Step::Unknown {
            why,
            only_if: notes.choices(),
        });
    }

    /// Notes the entry that a packet meets. Returns whether the entry can be carried out.
    pub fn lookup(
        &mut self,
        table_id: TableId,
        table: &FlowTable,
        hit: Option<EntryId>,
        packet: &PacketFields,
    ) -> bool {
        let entry = hit.and_then(|id| table.get(id));
        if !self.spend(0, entry.map_or(0, bytes_of_entry)) {
            return false;
        }
        let doubt = self.report.doubt(table_id, (table, hit), packet);
        self.add(|_| match entry {
            Some(entry) => Step::Entry {
                entry: Box::new(entry.clone()),
                doubt,
            },
            None => Step::Miss {
                table: table_id,
                doubt,
            },
        });
        let is_opaque = hit.is_some_and(|id| self.report.opaque.contains(&(table_id, id)));
        if is_opaque {
            self.unknown(Unjudged::Instructions);
        }
        !is_opaque && !self.is_over
    }

    /// Whether the allowance suffices for a group with this many buckets, each of which counts.
    pub fn group(&mut self, bucket_count: usize) -> bool {
        self.spend(bucket_count, bucket_count * size_of::<usize>())
    }

    /// Whether the actions of a bucket can be carried out; if not, a step notes this.
    pub fn bucket(&mut self, actions: &[Action]) -> bool {
        // All actions are checked and sorted before the first is carried out.
        if !self.spend(actions.len(), 0) {
            return false;
        }
        let is_known = actions::check(actions, None).is_ok();
        if !is_known {
            self.unknown(Unjudged::Bucket);
        }
        is_known
    }

    /// Notes an action. Returns whether it can be carried out.
    pub fn action(&mut self, action: &Action, packet: &Packet) -> bool {
        if !self.spend(1, 0) {
            return false;
        }
        if self.choices.len() > CHOICES_MAX {
            self.stop();
            return false;
        }
        match action {
            Action::Output { .. } | Action::Enqueue { .. } | Action::Group(_) => {}
            Action::SetQueue(_) | Action::Meter(_) => {}
            // The packet is copied, and actions make it longer.
            _ if !self.spend(0, packet.bytes.len()) => {}
            action => {
                let before = match action {
                    Action::SetField(MatchField::Basic { field, .. }) => packet.fields.get(*field),
                    _ => None,
                };
                self.add(|_| Step::Rewrite {
                    action: action.clone(),
                    before,
                });
            }
        }
        !self.is_over
    }
}

/// Upper bound of the memory that a copy of an entry takes.
fn bytes_of_entry(entry: &FlowEntry) -> usize {
    let of_instruction = |instruction: &Instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
            bytes_of(actions)
        }
        Instruction::Experimenter { data, .. } => data.len(),
        _ => 0,
    };
    let instructions = entry.instructions.iter().map(of_instruction);
    // The entry has its match twice: as stated, and in the form used for comparison.
    let fields = 2 * size_of_val(&*entry.r#match.fields);
    let own = size_of::<FlowEntry>() + size_of_val(&*entry.instructions);
    own + fields + instructions.sum::<usize>()
}

fn bytes_of(actions: &[Action]) -> usize {
    let data = actions.iter().map(|action| match action {
        Action::Experimenter { data, .. } => data.len(),
        _ => 0,
    });
    size_of_val(actions) + data.sum::<usize>()
}

#[cfg(test)]
mod tests;
