//! A packet's walk through the tables. A walk changes nothing: it reports the outputs, and
//! everything that it touched. Queries and forwarding therefore cannot differ.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::actions::{Action, Bucket, Instruction};
use crate::match_fields::{Field, Match};
use crate::message::{GroupType, PacketIn, PacketInReason, PortConfig};
use crate::types::{Cookie, GroupId, MacAddr, MeterId, PortNo, TableId, Version};

use super::actions::{ActionSet, Packet, TtlExpired};
use super::explain::{Allowance, Choice, Notes, Step};
use super::flow::EntryId;
use super::group::GROUP_DEPTH_MAX;
use super::{DropReason, Output, Switch};

/// The result of a packet's walk through the tables, and everything that it touched.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub outputs: Vec<Output>,
    pub lookups: Vec<(TableId, Option<EntryId>)>,
    pub groups: Vec<(GroupId, Vec<usize>)>,
    pub meters: Vec<MeterId>,
    /// Addresses that NORMAL learns: the VLAN, the address and its port.
    pub learned: Vec<((u16, MacAddr), PortNo)>,
    pub drops: Vec<DropReason>,
}

pub(super) struct Walk<'a> {
    switch: &'a Switch,
    pub trace: Trace,
    /// The live groups, found when a bucket first watches one.
    live_groups: OnceCell<Arc<BTreeSet<GroupId>>>,
    /// Notes of the walk's steps, if the caller wants them.
    notes: Option<Notes<'a>>,
}

/// The entry that acts, which a packet-in reports as its cause.
#[derive(Clone, Copy)]
struct Origin {
    table_id: TableId,
    cookie: Cookie,
    reason: PacketInReason,
    /// Whether this is a PACKET_OUT, which may send to TABLE; an entry may not.
    packet_out: bool,
}

impl<'a> Walk<'a> {
    pub fn new(switch: &'a Switch) -> Walk<'a> {
        Walk {
            switch,
            trace: Trace::default(),
            live_groups: OnceCell::new(),
            notes: None,
        }
    }

    /// Returns a walk that also notes its steps, and visits every bucket that a hash may choose.
    pub fn explaining(switch: &'a Switch, notes: Notes<'a>) -> Walk<'a> {
        Walk {
            live_groups: OnceCell::from(notes.live_groups()),
            notes: Some(notes),
            ..Walk::new(switch)
        }
    }

    /// Returns the noted steps and the rest of the allowance.
    pub fn end(self) -> Option<(Vec<Step>, Allowance)> {
        self.notes.map(Notes::end)
    }

    /// Whether the walk ends here because too much has been noted.
    fn is_over(&self) -> bool {
        self.notes.as_ref().is_some_and(Notes::is_over)
    }

    fn is_live(&self, bucket: &Bucket) -> bool {
        let switch = self.switch;
        let port = bucket.watch_port == PortNo::ANY || switch.port_is_live(bucket.watch_port);
        port && (bucket.watch_group == GroupId::ANY || {
            let find = || Arc::new(switch.groups.live(|port| switch.port_is_live(port)));
            let live = self.live_groups.get_or_init(find);
            live.contains(&bucket.watch_group)
        })
    }

    fn note(&mut self, step: impl FnOnce(&Notes<'a>) -> Step) {
        if let Some(notes) = &mut self.notes {
            notes.add(step);
        }
    }

    fn drop(&mut self, reason: DropReason) {
        self.trace.drops.push(reason);
        self.note(|notes| Step::Drop {
            reason,
            only_if: notes.choices(),
        });
    }

    /// Processes a packet received on a port of the switch.
    pub fn receive(&mut self, in_port: PortNo, bytes: Bytes) {
        let receives = self
            .switch
            .ports
            .get(&in_port)
            .is_some_and(|p| p.port.is_up() && !p.port.config.contains(PortConfig::NO_RECV));
        if !receives {
            return self.drop(DropReason::InPortClosed);
        }
        self.tables(Packet::new(in_port, bytes));
    }

    /// Processes a packet from the controller, with the actions sent with it.
    pub fn packet_out(&mut self, in_port: PortNo, bytes: Bytes, actions: &[Action]) {
        let origin = Origin {
            table_id: TableId(0),
            cookie: Cookie(u64::MAX),
            reason: PacketInReason::ACTION,
            packet_out: true,
        };
        let mut packet = Packet::new(in_port, bytes);
        let _ = self.actions(&mut packet, actions, origin, 0);
    }

    fn tables(&mut self, mut packet: Packet) {
        let mut set = ActionSet::default();
        let mut next = Some(TableId(0));
        let mut origin = None;
        while let Some(table_id) = next {
            let switch = self.switch;
            let table = &switch.tables[usize::from(table_id.0)];
            let hit = table.lookup(&packet.fields);
            self.trace.lookups.push((table_id, hit));
            let entry = hit.and_then(|id| table.get(id));
            if let Some(notes) = &mut self.notes
                && !notes.lookup(table_id, table, hit, &packet.fields)
            {
                return;
            }
            let Some(entry) = entry else {
                return self.miss(&packet, table_id);
            };
            let here = Origin {
                table_id,
                cookie: entry.cookie,
                reason: if entry.is_table_miss() {
                    PacketInReason::NO_MATCH
                } else {
                    PacketInReason::ACTION
                },
                packet_out: false,
            };
            match self.entry(&mut packet, &entry.instructions, &mut set, here) {
                Ok(goto) => next = goto,
                Err(TtlExpired) => return,
            }
            if self.is_over() {
                return;
            }
            origin = Some(here);
        }
        let Some(origin) = origin else {
            return;
        };
        let outputs = self.trace.outputs.len();
        let ran = self.actions(&mut packet, set.actions(), origin, 0);
        let silent = self.trace.outputs.len() == outputs && outputs == 0;
        let is_unended = self.notes.as_ref().is_none_or(|notes| notes.ends() == 0);
        if ran.is_ok() && silent && is_unended && self.trace.drops.is_empty() {
            self.drop(DropReason::NoOutput);
        }
    }

    /// Drops a packet, as there is no table-miss entry; in 1.0 sends it to the controller.
    fn miss(&mut self, packet: &Packet, table_id: TableId) {
        let in_port = self.switch.ports.get(&packet.fields.in_port());
        let asks = self.switch.options.version == Version::V10
            && in_port.is_some_and(|p| !p.port.config.contains(PortConfig::NO_PACKET_IN));
        if !asks {
            return self.drop(DropReason::TableMiss);
        }
        let origin = Origin {
            table_id,
            cookie: Cookie(u64::MAX),
            reason: PacketInReason::NO_MATCH,
            packet_out: false,
        };
        self.packet_in(packet, origin);
    }

    /// Carries out instructions in the order of OpenFlow 1.3.1, 5.9, whatever their order in the
    /// entry.
    fn entry(
        &mut self,
        packet: &mut Packet,
        instructions: &'a [Instruction],
        set: &mut ActionSet<'a>,
        origin: Origin,
    ) -> Result<Option<TableId>, TtlExpired> {
        let mut goto = None;
        let of_rank = |rank| instructions.iter().filter(move |i| order(i) == rank);
        for instruction in (0..=LAST).flat_map(of_rank) {
            match instruction {
                Instruction::Meter(meter) => self.meter(*meter),
                Instruction::ApplyActions(actions) => self.actions(packet, actions, origin, 0)?,
                Instruction::ClearActions => set.clear(),
                Instruction::WriteActions(actions) => set.write(actions),
                Instruction::WriteMetadata { metadata, mask } => {
                    let old = packet.fields.get(Field::Metadata).unwrap_or(0) as u64;
                    let new = old & !mask | metadata & mask;
                    packet.fields.set(Field::Metadata, new);
                }
                Instruction::GotoTable(table) => goto = Some(*table),
                Instruction::Experimenter { .. } | Instruction::StatTrigger { .. } => {}
            }
        }
        Ok(goto)
    }

    fn actions<'b>(
        &mut self,
        packet: &mut Packet,
        actions: impl IntoIterator<Item = &'b Action>,
        origin: Origin,
        depth: usize,
    ) -> Result<(), TtlExpired> {
        for action in actions {
            if let Some(notes) = &mut self.notes
                && !notes.action(action, packet)
            {
                return Ok(());
            }
            match action {
                Action::Output { port, .. } => self.output(packet, *port, origin),
                Action::Enqueue { port, queue } => {
                    let mut queued = packet.clone();
                    queued.queue = Some(*queue);
                    self.output(&queued, *port, origin);
                }
                Action::Group(group) => self.group(packet, *group, origin, depth),
                Action::Meter(meter) => self.meter(*meter),
                rewriting => packet.rewrite(rewriting).inspect_err(|TtlExpired| {
                    let reason = PacketInReason::INVALID_TTL;
                    match self.switch.sends_expired {
                        true => self.packet_in(packet, Origin { reason, ..origin }),
                        false => self.drop(DropReason::Expired),
                    }
                })?,
            }
        }
        Ok(())
    }

    fn meter(&mut self, meter: MeterId) {
        self.trace.meters.push(meter);
        self.note(|_| Step::Meter(meter));
    }

    /// Sends a packet to a group. Each bucket works on its own copy; the original stays unchanged.
    fn group(&mut self, packet: &Packet, id: GroupId, origin: Origin, depth: usize) {
        let switch = self.switch;
        let group = switch.groups.get(id);
        let Some(group) = group.filter(|_| depth < GROUP_DEPTH_MAX) else {
            return self.drop(DropReason::NoBucket);
        };
        if let Some(notes) = &mut self.notes
            && !notes.group(group.buckets.len())
        {
            return;
        }
        let is_by_hash = self.notes.is_some() && group.group_type == GroupType::Select;
        let chosen = match is_by_hash {
            true => group.choices(|bucket| self.is_live(bucket)),
            false => group.choose(packet.fields.flow_key(), |bucket| self.is_live(bucket)),
        };
        self.note(|notes| Step::Group {
            group: id,
            group_type: group.group_type,
            bucket_count: group.buckets.len(),
            buckets: chosen.clone(),
            only_if: notes.choices(),
        });
        if chosen.is_empty() {
            self.drop(DropReason::NoBucket);
        }
        for bucket in &chosen {
            let of = chosen.len();
            let choice = Choice {
                group: id,
                bucket: *bucket,
                of,
            };
            let notes = self.notes.as_mut().filter(|_| is_by_hash && of > 1);
            let ends = notes.map(|notes| notes.enter(choice));
            let actions = &group.buckets[*bucket].actions;
            let notes = self.notes.as_mut();
            if notes.is_none_or(|notes| notes.bucket(actions)) {
                let set = ActionSet::of(actions);
                let _ = self.actions(&mut packet.clone(), set.actions(), origin, depth + 1);
            }
            if let Some(ends) = ends {
                // A bucket without an output drops the packet.
                if self
                    .notes
                    .as_ref()
                    .is_some_and(|notes| notes.ends() == ends)
                {
                    self.note(|notes| Step::Drop {
                        reason: DropReason::NoOutput,
                        only_if: notes.choices(),
                    });
                }
                self.notes.iter_mut().for_each(Notes::leave);
            }
            if self.is_over() {
                return;
            }
        }
        self.trace.groups.push((id, chosen));
    }

    fn output(&mut self, packet: &Packet, port: PortNo, origin: Origin) {
        let in_port = packet.fields.in_port();
        match port {
            PortNo::CONTROLLER => self.packet_in(packet, origin),
            PortNo::IN_PORT => self.deliver(packet, in_port),
            PortNo::TABLE if origin.packet_out => self.tables(packet.clone()),
            PortNo::ALL => self.flood(packet, PortConfig::empty()),
            PortNo::FLOOD => self.flood(packet, PortConfig::NO_FLOOD),
            PortNo::NORMAL => self.normal(packet),
            port if port == in_port => self.drop(DropReason::BackToInPort),
            port => self.deliver(packet, port),
        }
    }

    /// Outputs to every open port except the ingress port and ports with `barred` set.
    fn flood(&mut self, packet: &Packet, barred: PortConfig) {
        let in_port = packet.fields.in_port();
        let open = |config: PortConfig| barred.is_empty() || !config.contains(barred);
        for (number, state) in &self.switch.ports {
            if self.is_over() {
                return;
            }
            if *number != in_port && open(state.port.config) && state.forwards() {
                self.deliver(packet, *number);
            }
        }
    }

    /// Forwards like a learning bridge per VLAN id; unknown and multicast addresses are flooded.
    fn normal(&mut self, packet: &Packet) {
        let (Some(src), Some(dst)) = (packet.fields.eth_src(), packet.fields.eth_dst()) else {
            return self.drop(DropReason::NoOutput);
        };
        let vlan = packet.fields.vlan_id().unwrap_or(0);
        let in_port = packet.fields.in_port();
        if !src.is_multicast() {
            self.trace.learned.push(((vlan, src), in_port));
        }
        match self.switch.learned.get(&(vlan, dst)) {
            Some(port) if *port == in_port => self.drop(DropReason::BackToInPort),
            Some(port) => self.deliver(packet, *port),
            None => self.flood(packet, PortConfig::NO_FLOOD),
        }
    }

    fn deliver(&mut self, packet: &Packet, port: PortNo) {
        if !self.switch.ports.get(&port).is_some_and(|p| p.forwards()) {
            return self.drop(DropReason::OutPortClosed);
        }
        self.note(|notes| Step::Output {
            port,
            queue: packet.queue,
            packet: packet.bytes.clone(),
            only_if: notes.choices(),
        });
        self.trace.outputs.push(Output::Port {
            port,
            queue: packet.queue,
            packet: packet.bytes.clone(),
        });
    }

    /// Sends the whole packet to the controller: there are no buffers, and then `max_len` does not
    /// apply (OpenFlow 1.3.1, 7.4.1).
    fn packet_in(&mut self, packet: &Packet, origin: Origin) {
        // A packet-in of 1.0 does not name the entry.
        let v10 = self.switch.options.version == Version::V10;
        let cookie = if v10 { Cookie(u64::MAX) } else { origin.cookie };
        let mut r#match = Match::any().with_in_port(packet.fields.in_port());
        for field in [Field::Metadata, Field::TunnelId] {
            if let Some(value) = packet.fields.get(field).filter(|v| *v != 0) {
                r#match = r#match.with(field, value);
            }
        }
        self.note(|notes| Step::Controller {
            reason: origin.reason,
            only_if: notes.choices(),
        });
        self.trace.outputs.push(Output::Controller(PacketIn {
            buffer_id: None,
            total_len: u16::try_from(packet.bytes.len()).unwrap_or(u16::MAX),
            reason: origin.reason,
            table_id: origin.table_id,
            cookie,
            r#match,
            data: packet.bytes.clone(),
        }));
    }
}

/// The place of an instruction in the order of execution, up to [`LAST`].
fn order(instruction: &Instruction) -> u8 {
    match instruction {
        Instruction::Meter(_) => 0,
        Instruction::ApplyActions(_) => 1,
        Instruction::ClearActions => 2,
        Instruction::WriteActions(_) => 3,
        Instruction::WriteMetadata { .. } => 4,
        Instruction::GotoTable(_)
        | Instruction::Experimenter { .. }
        | Instruction::StatTrigger { .. } => LAST,
    }
}

const LAST: u8 = 5;
