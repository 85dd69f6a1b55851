//! An entry of a policy or a circuit, as a value and on the wire.
//!
//! The cookies of these entries follow the scheme of [`crate::entry`], with kinds of their own. The
//! lowest byte is the entry's place along its circuit, so that a later reader knows the order of
//! entries.

use std::collections::BTreeMap;

use openflow::message::{
    FlowMod, FlowModCommand, MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand,
};
use openflow::multipart::{FlowStats, MeterConfig};
use openflow::packet::PacketFields;
use openflow::{
    Action, Cookie, Field, Instruction, Match, MatchField, MeterId, PortNo, QueueId, TableId,
    Version,
};

use super::{Exceeding, Meter, Rate};
use crate::entry::{COOKIE_PREFIX, COOKIE_PREFIX_MASK, is_own};
use crate::pipeline::{PATH_TABLE, POLICY_TABLE};

const ETH_TYPE_IPV6: u128 = 0x86dd;

/// Kinds of cookies, after those of [`crate::entry::EntryKind`].
const KIND_POLICY: u8 = 16;
const KIND_CIRCUIT: u8 = 17;

/// The rank of the entry that lets packets in.
pub const OPENS: u8 = 1;

/// A match as an ordered value: each field once, with value and mask.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Matching(BTreeMap<Field, (u128, u128)>);

/// The identity of an entry in a switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    pub table: TableId,
    pub priority: u16,
    pub matching: Matching,
}

/// The actions of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Does {
    pub meter: Option<MeterId>,
    /// The code point to write.
    pub mark: Option<u8>,
    pub queue: Option<QueueId>,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The output that the path has chosen.
    Leave,
    Drop,
    Output(PortNo),
}

/// An entry as stored in a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    pub key: FlowKey,
    pub does: Does,
    /// The place along the circuit, from the sender on: [`OPENS`] is set last and deleted first. 0
    /// for policies.
    pub rank: u8,
}

impl Matching {
    pub fn any() -> Matching {
        Matching::default()
    }

    /// Adds `field` to the match; `None` if no packet can match both.
    pub fn and(self, field: Field, value: impl Into<u128>) -> Option<Matching> {
        self.and_masked(field, value, field.ones())
    }

    pub fn and_masked(
        mut self,
        field: Field,
        value: impl Into<u128>,
        mask: u128,
    ) -> Option<Matching> {
        let value = value.into() & mask;
        if mask == 0 {
            return Some(self);
        }
        let (was, was_mask) = self.0.get(&field).copied().unwrap_or((0, 0));
        if (was ^ value) & was_mask & mask != 0 {
            return None;
        }
        self.0.insert(field, (was | value, was_mask | mask));
        Some(self)
    }

    /// Whether a packet matches.
    pub fn takes(&self, packet: &PacketFields) -> bool {
        self.0.iter().all(|(field, (value, mask))| {
            let found = packet.get(*field);
            found.is_some_and(|found| (found ^ value) & mask == 0)
        })
    }

    /// Whether every packet that matches `other` matches this.
    pub fn covers(&self, other: &Matching) -> bool {
        self.0.iter().all(|(field, (value, mask))| {
            let (other, other_mask) = other.0.get(field).copied().unwrap_or((0, 0));
            other_mask & mask == *mask && (value ^ other) & mask == 0
        })
    }

    /// Whether a packet can match both.
    pub fn overlaps(&self, other: &Matching) -> bool {
        self.0.iter().all(|(field, (value, mask))| {
            let (other, other_mask) = other.0.get(field).copied().unwrap_or((0, 0));
            (value ^ other) & mask & other_mask == 0
        })
    }

    /// Each field with its value and mask.
    pub fn fields(&self) -> impl Iterator<Item = (Field, u128, u128)> + '_ {
        let fields = self.0.iter();
        fields.map(|(field, (value, mask))| (*field, *value, *mask))
    }

    pub fn has(&self, field: Field) -> bool {
        self.0.contains_key(&field)
    }

    #[must_use]
    pub fn without(&self, field: Field) -> Matching {
        let mut rest = self.clone();
        rest.0.remove(&field);
        rest
    }

    /// The value of a field that is matched exactly.
    pub fn exact(&self, field: Field) -> Option<u128> {
        let (value, mask) = self.0.get(&field)?;
        (*mask == field.ones()).then_some(*value)
    }

    /// Whether the match is for IPv6, which OpenFlow 1.0 cannot match.
    pub fn is_ipv6(&self) -> bool {
        let eth_type = self.0.get(&Field::EthType);
        eth_type.is_some_and(|(value, _)| *value == ETH_TYPE_IPV6)
    }

    pub fn in_port(&self) -> Option<PortNo> {
        let (port, _) = self.0.get(&Field::InPort)?;
        Some(PortNo(*port as u32))
    }

    /// The match on the wire, in the order of the fields' numbers, which is also the order of their
    /// prerequisites.
    pub fn to_match(&self) -> Match {
        let with = |m: Match, (field, (value, mask)): (&Field, &(u128, u128))| {
            if *mask == field.ones() {
                m.with(*field, *value)
            } else {
                m.with_masked(*field, *value, *mask)
            }
        };
        self.0.iter().fold(Match::any(), with)
    }

    /// Reads a match; `None` if no entry of ours has it.
    pub fn from_match(m: &Match) -> Option<Matching> {
        let mut matching = Matching::any();
        for field in &m.fields {
            let MatchField::Basic { field, value, mask } = field else {
                return None;
            };
            // 1.0 has room for an ICMP type that does not exist.
            if value & !field.ones() != 0 {
                return None;
            }
            matching = matching.and_masked(*field, *value, mask.unwrap_or(field.ones()))?;
        }
        Some(matching)
    }
}

impl Flow {
    /// The lowest entry of the policy table: packets of no policy take the output of their path.
    pub fn policy_miss() -> Flow {
        Flow {
            key: FlowKey {
                table: POLICY_TABLE,
                priority: 0,
                matching: Matching::any(),
            },
            does: Does {
                meter: None,
                mark: None,
                queue: None,
                then: Then::Leave,
            },
            rank: 0,
        }
    }

    /// Returns the message that sets the entry. The message replaces an entry of the same match at
    /// once.
    pub fn to_add(&self, version: Version, generation: u16) -> FlowMod {
        let kind = match self.key.table {
            POLICY_TABLE => KIND_POLICY,
            _ => KIND_CIRCUIT,
        };
        let low = u64::from(generation) << 16 | u64::from(kind) << 8 | u64::from(self.rank);
        FlowMod {
            cookie: Cookie(COOKIE_PREFIX.0 | low),
            table_id: self.key.table,
            instructions: self.does.instructions(version),
            ..FlowMod::add(self.key.priority, self.key.matching.to_match(), Vec::new())
        }
    }

    /// The cookies and masks to request the entries of policies and circuits.
    pub fn cookies() -> [(Cookie, Cookie); 2] {
        [KIND_POLICY, KIND_CIRCUIT].map(|kind| {
            let cookie = Cookie(COOKIE_PREFIX.0 | u64::from(kind) << 8);
            (cookie, Cookie(COOKIE_PREFIX_MASK.0 | 0xff00))
        })
    }

    /// Whether a cookie belongs to an entry of a policy or circuit.
    pub fn is_its(cookie: Cookie) -> bool {
        is_own(cookie) && [KIND_POLICY, KIND_CIRCUIT].contains(&kind(cookie))
    }

    /// Reads an entry that [`Flow::to_add`] once made; `None` if it has another shape.
    pub fn from_stats(row: &FlowStats) -> Option<Flow> {
        let has_no_end = row.idle_timeout == 0 && row.hard_timeout == 0;
        let is_in_place = match row.table_id {
            PATH_TABLE => kind(row.cookie) == KIND_CIRCUIT,
            POLICY_TABLE => kind(row.cookie) == KIND_POLICY,
            _ => false,
        };
        if !Flow::is_its(row.cookie) || !has_no_end || !is_in_place {
            return None;
        }
        let matching = Matching::from_match(&row.r#match)?;
        let does = Does::read(&row.instructions)?;
        let out = match does.then {
            Then::Output(port) => Some(port),
            Then::Leave | Then::Drop => None,
        };
        let mut ports = matching.in_port().into_iter().chain(out);
        ports.all(PortNo::is_ordinary).then_some(Flow {
            key: FlowKey {
                table: row.table_id,
                priority: row.priority,
                matching,
            },
            does,
            rank: row.cookie.0 as u8,
        })
    }
}

fn kind(cookie: Cookie) -> u8 {
    (cookie.0 >> 8) as u8
}

impl FlowKey {
    /// Returns the message that deletes this entry, and no other; see
    /// [`crate::entry::EntryKey::to_delete`].
    pub fn to_delete(&self) -> FlowMod {
        FlowMod {
            command: FlowModCommand::DeleteStrict,
            cookie: COOKIE_PREFIX,
            cookie_mask: COOKIE_PREFIX_MASK,
            table_id: self.table,
            instructions: Vec::new(),
            ..FlowMod::add(self.priority, self.matching.to_match(), Vec::new())
        }
    }
}

impl Does {
    fn instructions(self, version: Version) -> Vec<Instruction> {
        let mark = self
            .mark
            .map(|mark| Action::SetField(MatchField::exact(Field::IpDscp, mark.into())));
        // In 1.5 a meter is an action.
        let is_action = version >= Version::V15;
        let metered = self.meter.filter(|_| is_action).map(Action::Meter);
        let mut actions: Vec<Action> = metered.into_iter().chain(mark).collect();
        match (self.then, self.queue) {
            (Then::Output(port), Some(queue)) if version == Version::V10 => {
                actions.push(Action::Enqueue { port, queue });
            }
            (then, queue) => {
                actions.extend(queue.map(Action::SetQueue));
                if let Then::Output(port) = then {
                    actions.push(Action::output(port));
                }
            }
        }
        let metered = self.meter.filter(|_| !is_action).map(Instruction::Meter);
        let mut instructions: Vec<Instruction> = metered.into_iter().collect();
        if !actions.is_empty() {
            instructions.push(Instruction::ApplyActions(actions));
        }
        if self.then == Then::Drop && version != Version::V10 {
            instructions.push(Instruction::ClearActions);
        }
        instructions
    }

    fn read(instructions: &[Instruction]) -> Option<Does> {
        let mut does = Flow::policy_miss().does;
        for instruction in instructions {
            match instruction {
                Instruction::Meter(meter) if does.meter.is_none() => does.meter = Some(*meter),
                Instruction::ClearActions => does.then = Then::Drop,
                Instruction::ApplyActions(actions) => {
                    for action in actions {
                        does.read_action(action)?;
                    }
                }
                _ => return None,
            }
        }
        Some(does)
    }

    fn read_action(&mut self, action: &Action) -> Option<()> {
        match action {
            Action::SetField(MatchField::Basic {
                field: Field::IpDscp,
                value,
                ..
            }) => self.mark = Some(*value as u8),
            Action::Meter(meter) if self.meter.is_none() => self.meter = Some(*meter),
            Action::SetNwTos(tos) => self.mark = Some(tos >> 2),
            Action::SetQueue(queue) => self.queue = Some(*queue),
            Action::Output { port, .. } => self.then = Then::Output(*port),
            Action::Enqueue { port, queue } => {
                (self.queue, self.then) = (Some(*queue), Then::Output(*port));
            }
            _ => return None,
        }
        Some(())
    }
}

impl Meter {
    pub fn to_mod(self, id: MeterId, command: MeterModCommand) -> MeterMod {
        let burst = match self.burst_bytes {
            Some(_) => MeterFlags::BURST,
            None => MeterFlags::empty(),
        };
        MeterMod {
            command,
            flags: MeterFlags::KBPS | MeterFlags::STATS | burst,
            meter_id: id,
            bands: vec![MeterBand {
                rate: u32::try_from(self.rate.kbit()).unwrap_or(u32::MAX),
                burst_size: self.burst_kbit().unwrap_or(0),
                kind: match self.exceeding {
                    Exceeding::Drop => MeterBandKind::Drop,
                    Exceeding::Remark(prec_level) => MeterBandKind::DscpRemark { prec_level },
                },
            }],
        }
    }

    /// Returns the message that deletes a meter. Entries that name the meter are deleted with it.
    pub fn to_delete(id: MeterId) -> MeterMod {
        MeterMod {
            command: MeterModCommand::Delete,
            flags: MeterFlags::empty(),
            meter_id: id,
            bands: Vec::new(),
        }
    }

    /// Reads a switch's report of a meter, in the units of the wire; `None` if the meter has
    /// another shape than ours.
    pub fn from_config(config: &MeterConfig) -> Option<Meter> {
        let [band] = &config.bands[..] else {
            return None;
        };
        let is_rate = config.flags.contains(MeterFlags::KBPS);
        let has_burst = config.flags.contains(MeterFlags::BURST);
        let exceeding = match band.kind {
            MeterBandKind::Drop => Exceeding::Drop,
            MeterBandKind::DscpRemark { prec_level } => Exceeding::Remark(prec_level),
            MeterBandKind::Experimenter { .. } => return None,
        };
        is_rate.then(|| Meter {
            rate: Rate(u64::from(band.rate) * 1000),
            burst_bytes: has_burst.then(|| u64::from(band.burst_size) * 125),
            exceeding,
        })
    }

    /// The meter as a switch reports it: in whole kilobits.
    #[must_use]
    pub fn whole(self) -> Meter {
        Meter {
            rate: Rate(self.rate.kbit() * 1000),
            burst_bytes: self.burst_kbit().map(|kbit| u64::from(kbit) * 125),
            ..self
        }
    }

    fn burst_kbit(self) -> Option<u32> {
        let bits = self.burst_bytes?.saturating_mul(8);
        Some(u32::try_from(bits.div_ceil(1000)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::FlowModFlags;
    use openflow::{Message, Xid, decode, encode};
    use proptest::prelude::*;

    use super::*;

    fn row(flow_mod: &FlowMod) -> FlowStats {
        FlowStats {
            table_id: flow_mod.table_id,
            duration_sec: 0,
            duration_nsec: 0,
            priority: flow_mod.priority,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: FlowModFlags::empty(),
            cookie: flow_mod.cookie,
            packet_count: 0,
            byte_count: 0,
            r#match: flow_mod.r#match.clone(),
            instructions: flow_mod.instructions.clone(),
            importance: 0,
            stats: Vec::new(),
        }
    }

    fn sent(version: Version, flow: &Flow) -> Flow {
        let message = Message::FlowMod(flow.to_add(version, 7));
        let frame = encode(version, Xid(1), &message).unwrap();
        let Message::FlowMod(back) = decode(&frame).unwrap() else {
            panic!("a flow-mod");
        };
        Flow::from_stats(&row(&back)).unwrap()
    }

    fn udp_to(port: u16) -> Matching {
        let matching = Matching::any().and(Field::EthType, 0x0800u16);
        let matching = matching.and_then(|m| m.and(Field::IpProto, 17u8));
        matching.and_then(|m| m.and(Field::UdpDst, port)).unwrap()
    }

    fn flow(table: TableId, does: Does) -> Flow {
        Flow {
            key: FlowKey {
                table,
                priority: 3000,
                matching: udp_to(5004),
            },
            does,
            rank: OPENS,
        }
    }

    #[test]
    fn an_entry_is_what_it_was_when_it_comes_back() {
        let none = Flow::policy_miss().does;
        let all = Does {
            meter: Some(MeterId(5)),
            mark: Some(46),
            queue: Some(QueueId(3)),
            then: Then::Leave,
        };
        for does in [
            none,
            all,
            Does {
                then: Then::Drop,
                ..none
            },
            Does {
                then: Then::Output(PortNo(2)),
                ..all
            },
        ] {
            let flow = flow(POLICY_TABLE, does);
            for version in [Version::V13, Version::V14, Version::V15] {
                assert_eq!(sent(version, &flow), flow);
            }
        }
        assert_eq!(
            sent(Version::V13, &Flow::policy_miss()),
            Flow::policy_miss()
        );
    }

    #[test]
    fn a_circuit_is_said_in_1_0_as_well() {
        let does = Does {
            meter: None,
            mark: Some(46),
            queue: Some(QueueId(3)),
            then: Then::Output(PortNo(2)),
        };
        let circuit = flow(PATH_TABLE, does);
        assert_eq!(sent(Version::V10, &circuit), circuit);
        let plain = flow(
            PATH_TABLE,
            Does {
                queue: None,
                ..does
            },
        );
        assert_eq!(sent(Version::V10, &plain), plain);
    }

    #[test]
    fn entries_of_others_are_not_read() {
        let flow = flow(POLICY_TABLE, Flow::policy_miss().does);
        let mine = row(&flow.to_add(Version::V13, 7));
        assert_eq!(Flow::from_stats(&mine), Some(flow));
        let mut other = mine.clone();
        other.cookie = crate::entry::EntryKind::Pair.cookie(7);
        assert_eq!(Flow::from_stats(&other), None);
        let mut ends = mine.clone();
        ends.idle_timeout = 5;
        assert_eq!(Flow::from_stats(&ends), None);
        let mut groups = mine;
        groups.instructions = vec![Instruction::GotoTable(TableId(2))];
        assert_eq!(Flow::from_stats(&groups), None);
    }

    #[test]
    fn a_meter_is_what_it_was_when_it_comes_back() {
        for (burst_bytes, exceeding) in [
            (None, Exceeding::Drop),
            (Some(15_000), Exceeding::Remark(1)),
            (Some(1), Exceeding::Drop),
        ] {
            let meter = Meter {
                rate: Rate(1_234_567),
                burst_bytes,
                exceeding,
            };
            let sent = meter.to_mod(MeterId(9), MeterModCommand::Add);
            let config = MeterConfig {
                flags: sent.flags,
                meter_id: sent.meter_id,
                bands: sent.bands,
            };
            assert_eq!(Meter::from_config(&config), Some(meter.whole()));
            assert_eq!(meter.whole(), meter.whole().whole());
        }
    }

    fn matching() -> impl Strategy<Value = Matching> {
        let dst = (any::<u32>(), 0..=32u32);
        (dst, proptest::option::of(0..3u8)).prop_map(|((ip, len), proto)| {
            let mask = u128::from(!(u64::from(u32::MAX) >> len) as u32);
            let matching = Matching::any().and_masked(Field::Ipv4Dst, ip & 0x8000_0003, mask);
            let matching = matching.unwrap();
            match proto {
                Some(proto) => matching.and(Field::IpProto, proto).unwrap(),
                None => matching,
            }
        })
    }

    proptest! {
        /// Two matches overlap exactly if some packet matches both.
        #[test]
        fn what_overlaps_has_something_in_common(a in matching(), b in matching()) {
            let both = b.0.iter().try_fold(a.clone(), |both, (field, (value, mask))| {
                both.and_masked(*field, *value, *mask)
            });
            prop_assert_eq!(a.overlaps(&b), both.is_some());
            prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
            if let Some(both) = both {
                prop_assert!(both.overlaps(&a) && both.overlaps(&b));
            }
            prop_assert_eq!(Matching::from_match(&a.to_match()), Some(a));
        }
    }
}
