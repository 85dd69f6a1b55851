//! Why a packet takes its way through the tables of a real switch: the tables as the switch has
//! reported them, and the steps of a walk through them.
//!
//! A report is hostile: it may have entries that no switch should hold, loops of groups, or more
//! actions than anybody could follow. A walk ends at what it cannot judge and says so. It ends too
//! when its [`Allowance`] is spent, which several walks may share. Where a hash chooses among
//! buckets, the walk goes to each.

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

/// The most work of one walk.
const WORK_MAX: usize = 8192;
/// The most bytes of one walk's steps.
const BYTES_MAX: usize = 2 << 20;
/// The most buckets of a hash's choices that are followed below each other.
const CHOICES_MAX: usize = 16;
/// Tables are numbered below it.
const TABLES: u8 = 255;

/// The work that walks may do, and the memory that their steps may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// Number of steps, of actions and of buckets that are looked at.
    pub work: usize,
    /// Bytes of the steps, with their entries and packets.
    pub bytes: usize,
}

impl Allowance {
    /// The most that a single walk takes.
    pub const WALK: Allowance = Allowance {
        work: WORK_MAX,
        bytes: BYTES_MAX,
    };

    /// Takes a part away; `None` if that is more than there is.
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

/// One step of a packet's way through a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// An entry takes the packet.
    Entry {
        /// The entry, with what it had counted.
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
        /// Value of the field that it sets, before it did.
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
        /// The buckets that take it: with SELECT all that a hash may choose.
        buckets: Vec<usize>,
        /// The choices under which the packet gets here.
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
        /// The choices under which it does.
        only_if: Vec<Choice>,
    },
    /// The packet goes to the controller.
    Controller {
        /// Reason that the packet-in has.
        reason: PacketInReason,
        /// The choices under which it does.
        only_if: Vec<Choice>,
    },
    /// The packet, or one of its copies, goes no further.
    Drop {
        /// Reason why.
        reason: DropReason,
        /// The choices under which it does.
        only_if: Vec<Choice>,
    },
    /// The walk cannot go on.
    Unknown {
        /// Reason why.
        why: Unjudged,
        /// The choices under which the packet gets here.
        only_if: Vec<Choice>,
    },
}

/// A bucket that the hash of a SELECT group chooses, among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// The group.
    pub group: GroupId,
    /// Index of the bucket.
    pub bucket: usize,
    /// Number of buckets that the hash may choose.
    pub of: usize,
}

/// Reason why another entry than the one found may take a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// An entry at this priority has a match that cannot be read.
    UnreadMatch(u16),
    /// Another entry of the same priority matches too, and does something else.
    Rival,
}

/// Reason why a walk cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unjudged {
    /// The entry has an instruction or an action that is not known here, or that no switch takes.
    Instructions,
    /// A bucket has an action that is not known here.
    Bucket,
    /// The [`Allowance`] is spent, or too many choices are below each other.
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
    /// The tables of a switch that has reported these entries, groups and ports.
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

    /// The way of a packet that comes in by a port. It takes its part of what is `left`, and no
    /// more than [`Allowance::WALK`].
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

    /// Why another entry of a table may take the packet than the one of this priority, if any.
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

/// Whether all that an entry does is known, and leads on to later tables alone.
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

/// Whether a packet has the fields of a match as far as they can be read.
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
    /// Number of steps that end a copy of the packet's way.
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

    /// Whether so much is left, and the walk goes on. It ends otherwise, which is noted.
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

    /// Whether the walk has been too long to go on.
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

    /// Notes that what follows is of one bucket. Returns the number of ends before.
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

    /// Notes the entry that a packet meets. Returns whether it can be carried out.
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

    /// Whether a group of so many buckets can be looked at, each of which counts.
    pub fn group(&mut self, bucket_count: usize) -> bool {
        self.spend(bucket_count, bucket_count * size_of::<usize>())
    }

    /// Whether the actions of a bucket can be carried out, which is noted if not.
    pub fn bucket(&mut self, actions: &[Action]) -> bool {
        // They are checked and sorted before the first is carried out.
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

/// The memory that a copy of an entry takes, or more.
fn bytes_of_entry(entry: &FlowEntry) -> usize {
    let of_instruction = |instruction: &Instruction| match instruction {
        Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
            bytes_of(actions)
        }
        Instruction::Experimenter { data, .. } => data.len(),
        _ => 0,
    };
    let instructions = entry.instructions.iter().map(of_instruction);
    // Its match is there twice: as stated, and in the form that is compared.
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
