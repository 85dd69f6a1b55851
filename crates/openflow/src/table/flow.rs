//! One flow table: entries by match and priority, and the lookup that picks one.
//!
//! Entries that ask for the same fields under the same masks share an index by the hash of their
//! values, so that a lookup costs one probe per kind of match and not one per entry (tuple space
//! search; Srinivasan, Suri, Varghese 1999). Kinds of higher priority come first, and the lookup
//! ends where no better entry can follow.

use crate::actions::{Action, Instruction};
use crate::error::ErrorKind;
use crate::match_fields::{Field, Match, MatchField, Prereq, VLAN_PRESENT};
use crate::message::{FlowModFlags, FlowRemoved, FlowRemovedReason};
use crate::multipart::FlowStats;
use crate::packet::PacketFields;
use crate::types::{Cookie, GroupId, MeterId, PortNo, TableId};
use clock::{Duration, Instant, mix};
use hashbrown::HashTable;

/// An entry of a flow table, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEntry {
    /// Table of the entry.
    pub table_id: TableId,
    /// Priority of the entry.
    pub priority: u16,
    /// Cookie of the entry.
    pub cookie: Cookie,
    /// Options of the entry.
    pub flags: FlowModFlags,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard time-out in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Match of the entry.
    pub r#match: Match,
    /// Instructions of the entry.
    pub instructions: Vec<Instruction>,
    /// Time when the entry was added.
    pub created_at: Instant,
    /// Time from which the hard timeout counts.
    pub refreshed_at: Instant,
    /// Time of the last packet, or of the creation.
    pub used_at: Instant,
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    pub(super) pattern: Pattern,
    /// Time of the next check of this entry; never later than its deadline.
    pub(super) check_at: Option<Instant>,
}

impl FlowEntry {
    /// Reports whether this is the table-miss entry, which matches everything at priority 0
    /// (OpenFlow 1.3.1, 5.4).
    pub fn is_table_miss(&self) -> bool {
        self.priority == 0 && self.pattern.0.is_empty()
    }

    /// Returns when and why the entry expires if no packet arrives. The hard timeout wins a tie.
    pub fn deadline(&self) -> Option<(Instant, FlowRemovedReason)> {
        let after = |from: Instant, seconds: u16, reason| {
            (seconds > 0).then(|| (from + Duration::from_secs(seconds.into()), reason))
        };
        let hard = after(
            self.refreshed_at,
            self.hard_timeout,
            FlowRemovedReason::HARD_TIMEOUT,
        );
        let idle = after(
            self.used_at,
            self.idle_timeout,
            FlowRemovedReason::IDLE_TIMEOUT,
        );
        match (hard, idle) {
            (Some(hard), Some(idle)) => Some(if idle.0 < hard.0 { idle } else { hard }),
            (hard, idle) => hard.or(idle),
        }
    }

    /// Reports whether any action of the entry outputs to `port`, in APPLY_ACTIONS or
    /// WRITE_ACTIONS.
    pub fn outputs_to(&self, port: PortNo) -> bool {
        self.actions().any(|a| match a {
            Action::Output { port: p, .. } | Action::Enqueue { port: p, .. } => *p == port,
            _ => false,
        })
    }

    /// Reports whether an instruction of the entry names this group.
    pub fn uses_group(&self, group: GroupId) -> bool {
        self.actions()
            .any(|a| matches!(a, Action::Group(g) if *g == group))
    }

    /// Reports whether the entry sends packets through this meter. In 1.5 the meter is an action.
    pub fn uses_meter(&self, meter: MeterId) -> bool {
        let is_it = |i: &Instruction| matches!(i, Instruction::Meter(m) if *m == meter);
        let by_action = |a: &Action| matches!(a, Action::Meter(m) if *m == meter);
        self.instructions.iter().any(is_it) || self.actions().any(by_action)
    }

    /// Makes the FLOW_REMOVED that reports the entry's removal at `now`.
    pub fn removed(&self, now: Instant, reason: FlowRemovedReason) -> FlowRemoved {
        let lived = now.since(self.created_at);
        FlowRemoved {
            cookie: self.cookie,
            priority: self.priority,
            reason,
            table_id: self.table_id,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            packet_count: self.packet_count,
            byte_count: self.byte_count,
            r#match: self.r#match.clone(),
            stats: Vec::new(),
        }
    }

    /// Makes the row of flow statistics for the entry at `now`.
    pub fn stats(&self, now: Instant) -> FlowStats {
        let lived = now.since(self.created_at);
        FlowStats {
            table_id: self.table_id,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            priority: self.priority,
            idle_timeout: self.idle_timeout,
            hard_timeout: self.hard_timeout,
            flags: self.flags,
            cookie: self.cookie,
            packet_count: self.packet_count,
            byte_count: self.byte_count,
            r#match: self.r#match.clone(),
            instructions: self.instructions.clone(),
            importance: 0,
            stats: Vec::new(),
        }
    }

    /// Makes an entry from a row that a switch reports.
    ///
    /// # Errors
    /// The OFPBMC_* error that a switch would answer the match with.
    pub(super) fn of_row(row: FlowStats) -> Result<FlowEntry, ErrorKind> {
        Ok(FlowEntry {
            pattern: Pattern::new(&row.r#match)?,
            table_id: row.table_id,
            priority: row.priority,
            cookie: row.cookie,
            flags: row.flags,
            idle_timeout: row.idle_timeout,
            hard_timeout: row.hard_timeout,
            r#match: row.r#match,
            instructions: row.instructions,
            created_at: Instant::START,
            refreshed_at: Instant::START,
            used_at: Instant::START,
            packet_count: row.packet_count,
            byte_count: row.byte_count,
            check_at: None,
        })
    }

    pub(super) fn count(&mut self, now: Instant, len: usize) {
        self.used_at = now;
        if !self.flags.contains(FlowModFlags::NO_PKT_COUNTS) {
            self.packet_count += 1;
        }
        if !self.flags.contains(FlowModFlags::NO_BYT_COUNTS) {
            self.byte_count += len as u64;
        }
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.instructions.iter().flat_map(|i| match i {
            Instruction::ApplyActions(actions) | Instruction::WriteActions(actions) => {
                actions.as_slice()
            }
            _ => &[],
        })
    }
}

/// Whole seconds, limited to the largest value of the field.
pub(super) fn seconds(d: Duration) -> u32 {
    u32::try_from(d.as_secs()).unwrap_or(u32::MAX)
}

/// Identifies an entry within its table. Ids grow with every entry added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    age: u64,
    slot: usize,
}

/// Entries whose matches name the same fields under the same masks.
#[derive(Clone, Debug)]
struct Shape {
    fields: Vec<(Field, u128)>,
    /// No entry of the shape has a higher priority.
    priority_max: u16,
    places: HashTable<Place>,
}

/// An entry in the index of its shape, with enough data to skip it without reading the entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    priority: u16,
    id: EntryId,
}

impl Shape {
    fn get(&self, hash: u64) -> impl Iterator<Item = &Place> {
        let places = self.places.iter_hash(hash);
        places.filter(move |place| place.hash == hash)
    }
}

/// Entries of one table. At equal priority the oldest matching entry wins. OpenFlow leaves the
/// choice open, but a model must be the same in every run.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTable {
    /// Entries with their ids; empty slots are listed in `free`.
    slots: Vec<Option<(EntryId, FlowEntry)>>,
    free: Vec<usize>,
    /// Kinds of match, by descending `priority_max`.
    shapes: Vec<Shape>,
    added: u64,
    pub lookup_count: u64,
    pub matched_count: u64,
}

impl FlowTable {
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn get(&self, id: EntryId) -> Option<&FlowEntry> {
        let (of, entry) = self.slots.get(id.slot)?.as_ref()?;
        (*of == id).then_some(entry)
    }

    /// Returns an entry, for changes to anything but its match and priority.
    pub fn get_mut(&mut self, id: EntryId) -> Option<&mut FlowEntry> {
        let (of, entry) = self.slots.get_mut(id.slot)?.as_mut()?;
        (*of == id).then_some(entry)
    }

    /// Iterates over the entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &FlowEntry)> {
        let mut all: Vec<_> = self.all().collect();
        all.sort_by_key(|(id, _)| *id);
        all.into_iter()
    }

    fn all(&self) -> impl Iterator<Item = (EntryId, &FlowEntry)> {
        let slots = self.slots.iter().flatten();
        slots.map(|(id, entry)| (*id, entry))
    }

    /// Returns the matching entry with the highest priority.
    pub fn lookup(&self, packet: &PacketFields) -> Option<EntryId> {
        let mut best: Option<(u16, EntryId)> = None;
        for shape in &self.shapes {
            if best.is_some_and(|(priority, _)| priority > shape.priority_max) {
                break;
            }
            let Some(hash) = hash_of_packet(&shape.fields, packet) else {
                continue;
            };
            for place in shape.get(hash) {
                let is_better = best.is_none_or(|(priority, oldest)| {
                    place.priority > priority || place.priority == priority && place.id < oldest
                });
                let entry = is_better.then(|| self.get(place.id)).flatten();
                if entry.is_some_and(|entry| entry.pattern.matches(packet)) {
                    best = Some((place.priority, place.id));
                }
            }
        }
        best.map(|(_, id)| id)
    }

    /// Returns another entry of the same priority that matches the packet but has different
    /// instructions. OpenFlow leaves open which of the two takes the packet.
    pub fn rival(&self, of: EntryId, packet: &PacketFields) -> Option<&FlowEntry> {
        let entry = self.get(of)?;
        let mut others = self.iter().map(|(_, other)| other);
        others.find(|other| {
            other.priority == entry.priority
                && other.instructions != entry.instructions
                && other.pattern.matches(packet)
        })
    }

    /// Returns the entry with exactly this match and priority.
    pub fn find_strict(&self, pattern: &Pattern, priority: u16) -> Option<EntryId> {
        let shape = &self.shapes[self.find_shape(pattern)?];
        let mut places = shape.get(pattern.hash());
        let place = places.find(|place| {
            let entry = self.get(place.id);
            place.priority == priority && entry.is_some_and(|it| it.pattern == *pattern)
        });
        place.map(|place| place.id)
    }

    /// Reports whether a packet could match both `pattern` and an entry of this priority.
    pub fn overlaps(&self, pattern: &Pattern, priority: u16) -> bool {
        self.all()
            .any(|(_, e)| e.priority == priority && e.pattern.overlaps(pattern))
    }

    pub fn insert(&mut self, entry: FlowEntry) -> EntryId {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        let id = EntryId {
            age: self.added,
            slot,
        };
        self.added += 1;
        let at = self.find_shape(&entry.pattern).unwrap_or_else(|| {
            self.shapes.push(Shape {
                fields: entry.pattern.shape().collect(),
                priority_max: 0,
                places: HashTable::new(),
            });
            self.shapes.len() - 1
        });
        let shape = &mut self.shapes[at];
        let place = Place {
            hash: entry.pattern.hash(),
            priority: entry.priority,
            id,
        };
        let hash_of = |place: &Place| place.hash;
        shape.places.insert_unique(place.hash, place, hash_of);
        if entry.priority > shape.priority_max {
            shape.priority_max = entry.priority;
            self.shapes
                .sort_by_key(|s| std::cmp::Reverse(s.priority_max));
        }
        self.slots[slot] = Some((id, entry));
        id
    }

    pub fn remove(&mut self, id: EntryId) -> Option<FlowEntry> {
        self.get(id)?;
        let (_, entry) = self.slots[id.slot].take()?;
        self.free.push(id.slot);
        if let Some(at) = self.find_shape(&entry.pattern) {
            let places = &mut self.shapes[at].places;
            let place = places.find_entry(entry.pattern.hash(), |place| place.id == id);
            if let Ok(place) = place {
                place.remove();
            }
            if places.is_empty() {
                self.shapes.remove(at);
            }
        }
        Some(entry)
    }

    fn find_shape(&self, pattern: &Pattern) -> Option<usize> {
        let same = |s: &Shape| s.fields.iter().copied().eq(pattern.shape());
        self.shapes.iter().position(same)
    }
}

/// The hash that an entry of this shape has if the packet matches it; `None` if the packet lacks a
/// field.
fn hash_of_packet(shape: &[(Field, u128)], packet: &PacketFields) -> Option<u64> {
    shape.iter().try_fold(0, |hash, (field, mask)| {
        Some(hash_with(hash, packet.get(*field)? & mask))
    })
}

fn hash_with(hash: u64, value: u128) -> u64 {
    mix(hash.rotate_left(5) ^ value as u64 ^ mix((value >> 64) as u64))
}

/// A match in canonical form: checked, sorted by field, values masked, wildcards removed. Two
/// matches are the same to OpenFlow when their patterns are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Vec<Term>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    field: Field,
    value: u128,
    mask: u128,
}

impl Pattern {
    /// Converts a match to this form.
    ///
    /// # Errors
    /// The OFPBMC_* error that a switch answers to a match that makes no sense.
    pub fn new(r#match: &Match) -> Result<Pattern, ErrorKind> {
        let mut terms: Vec<Term> = Vec::with_capacity(r#match.fields.len());
        for field in &r#match.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return Err(ErrorKind::MATCH_BAD_FIELD);
            };
            terms.push(Term::new(*field, *value, *mask)?);
        }
        terms.sort_by_key(|t| t.field);
        if terms.windows(2).any(|w| w[0].field == w[1].field) {
            return Err(ErrorKind::MATCH_DUP_FIELD);
        }
        let pattern = Pattern(terms);
        let lacking = |t: &Term| !pattern.allows(t.field);
        if pattern.0.iter().any(lacking) {
            return Err(ErrorKind::MATCH_BAD_PREREQ);
        }
        let said = pattern.0.into_iter().filter(|t| t.mask != 0);
        Ok(Pattern(said.collect()))
    }

    /// Reports whether the prerequisites of `field` hold for every packet that matches.
    pub fn allows(&self, field: Field) -> bool {
        let is = |field, wanted: &[u128]| self.exact(field).is_some_and(|v| wanted.contains(&v));
        let ip = || is(Field::EthType, &[0x0800, 0x86dd]);
        match field.info().prereq {
            Prereq::None => true,
            Prereq::InPort => self.exact(Field::InPort).is_some(),
            Prereq::Vlan => self
                .get(Field::VlanVid)
                .is_some_and(|t| t.value & VLAN_PRESENT != 0),
            Prereq::EthType(0x8847) => is(Field::EthType, &[0x8847, 0x8848]),
            Prereq::EthType(eth_type) => is(Field::EthType, &[eth_type.into()]),
            Prereq::Ip => ip(),
            Prereq::IpProto(1) => is(Field::EthType, &[0x0800]) && is(Field::IpProto, &[1]),
            Prereq::IpProto(proto) => ip() && is(Field::IpProto, &[proto.into()]),
            Prereq::Icmpv6 => is(Field::EthType, &[0x86dd]) && is(Field::IpProto, &[58]),
            Prereq::NdAny => is(Field::Icmpv6Type, &[135, 136]),
            Prereq::NdType(kind) => is(Field::Icmpv6Type, &[kind.into()]),
        }
    }

    /// Reports whether `wider` matches every packet that this pattern matches. Non-strict MODIFY
    /// and DELETE, and statistics, select entries by this rule.
    pub fn is_within(&self, wider: &Pattern) -> bool {
        wider.0.iter().all(|w| {
            let narrower =
                |t: &Term| t.mask & w.mask == w.mask && (t.value ^ w.value) & w.mask == 0;
            self.get(w.field).is_some_and(narrower)
        })
    }

    /// Reports whether some packet could match both patterns.
    pub fn overlaps(&self, other: &Pattern) -> bool {
        self.0.iter().all(|t| {
            other
                .get(t.field)
                .is_none_or(|o| (t.value ^ o.value) & t.mask & o.mask == 0)
        })
    }

    fn get(&self, field: Field) -> Option<&Term> {
        self.0.iter().find(|t| t.field == field)
    }

    fn exact(&self, field: Field) -> Option<u128> {
        self.get(field)
            .filter(|t| t.mask == field.ones())
            .map(|t| t.value)
    }

    /// Reports whether the packet has every field, with these values under their masks.
    fn matches(&self, packet: &PacketFields) -> bool {
        let holds = |t: &Term| packet.get(t.field).is_some_and(|v| v & t.mask == t.value);
        self.0.iter().all(holds)
    }

    fn shape(&self) -> impl Iterator<Item = (Field, u128)> {
        self.0.iter().map(|t| (t.field, t.mask))
    }

    fn hash(&self) -> u64 {
        let values = self.0.iter().map(|t| t.value);
        values.fold(0, hash_with)
    }
}

impl Term {
    fn new(field: Field, value: u128, mask: Option<u128>) -> Result<Term, ErrorKind> {
        let ones = field.ones();
        let given = mask.unwrap_or(ones);
        if given != ones && !field.info().maskable {
            return Err(ErrorKind::MATCH_BAD_MASK);
        }
        if value & !ones != 0 || given & !ones != 0 {
            return Err(ErrorKind::MATCH_BAD_VALUE);
        }
        if value & !given != 0 {
            return Err(ErrorKind::MATCH_BAD_WILDCARDS);
        }
        Ok(Term {
            field,
            value,
            mask: given,
        })
    }
}
