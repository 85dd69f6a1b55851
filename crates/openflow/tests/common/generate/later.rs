//! Arbitrary messages of OpenFlow 1.4 and 1.5: those of 1.3 with what later versions add, and those
//! that only they have.

use openflow::actions::{Action, Bucket, FieldId, Instruction};
use openflow::match_fields::{Field, Match, MatchField};
use openflow::message::*;
use openflow::multipart::*;
use openflow::stat::Stat;
use openflow::types::*;

use super::{Rng, v13};

pub fn v14(g: &mut Rng) -> Message {
    message(false, g)
}

pub fn v15(g: &mut Rng) -> Message {
    message(true, g)
}

fn message(is_v15: bool, g: &mut Rng) -> Message {
    match g.below(4) {
        0 => new_message(is_v15, g),
        1 => {
            let body = new_request(is_v15, g);
            let more = g.bool();
            Message::MultipartRequest(MultipartRequest { more, body })
        }
        2 if g.bool() => {
            let body = new_reply(is_v15, g);
            let more = g.bool();
            Message::MultipartReply(MultipartReply { more, body })
        }
        _ => loop {
            let message = v13::message(g);
            if !matches!(
                message,
                Message::QueueGetConfigRequest { .. } | Message::QueueGetConfigReply(_)
            ) {
                return enriched(is_v15, message, g);
            }
        },
    }
}

/// Messages that 1.3 does not have.
fn new_message(is_v15: bool, g: &mut Rng) -> Message {
    match g.below(if is_v15 { 5 } else { 4 }) {
        0 => Message::TableStatus(TableStatus {
            reason: TableReason(g.below(6) as u8),
            table: table_mod(g),
        }),
        1 => Message::RequestForward(RequestForward {
            xid: Xid(g.u32()),
            request: Box::new(held(
                is_v15,
                &[MessageKindOf::Group, MessageKindOf::Meter],
                g,
            )),
        }),
        2 => Message::BundleControl(BundleControl {
            bundle_id: g.u32(),
            command: g.pick(&BundleCommand::ALL),
            flags: BundleFlags(g.u16()),
            properties: g.list(2, |g| bundle_property(is_v15, g)),
        }),
        3 => Message::BundleAdd(bundle_add(is_v15, g)),
        _ => Message::ControllerStatus(controller_status(g)),
    }
}

/// Kinds of messages inside other messages.
#[derive(Clone, Copy)]
enum MessageKindOf {
    Group,
    Meter,
    Flow,
    Port,
    Packet,
}

fn held(is_v15: bool, kinds: &[MessageKindOf], g: &mut Rng) -> Message {
    let wanted = g.pick(kinds);
    loop {
        let message = v13::message(g);
        let is_wanted = match wanted {
            MessageKindOf::Group => matches!(message, Message::GroupMod(_)),
            MessageKindOf::Meter => matches!(message, Message::MeterMod(_)),
            MessageKindOf::Flow => matches!(message, Message::FlowMod(_)),
            MessageKindOf::Port => matches!(message, Message::PortMod(_)),
            MessageKindOf::Packet => matches!(message, Message::PacketOut(_)),
        };
        if is_wanted {
            return enriched(is_v15, message, g);
        }
    }
}

pub fn bundle_add(is_v15: bool, g: &mut Rng) -> BundleAdd {
    use MessageKindOf::*;
    BundleAdd {
        bundle_id: g.u32(),
        flags: BundleFlags(g.u16()),
        message: Box::new(held(is_v15, &[Group, Meter, Flow, Port, Packet], g)),
        properties: g.list(2, |g| bundle_property(is_v15, g)),
    }
}

fn bundle_property(is_v15: bool, g: &mut Rng) -> BundleProperty {
    if is_v15 && g.bool() {
        BundleProperty::Time(time(g))
    } else {
        BundleProperty::Other(vendor(g))
    }
}

fn time(g: &mut Rng) -> Time {
    Time {
        seconds: g.long(),
        nanoseconds: g.u32(),
    }
}

/// A vendor's property: id, type, and words.
pub fn vendor(g: &mut Rng) -> Property {
    let words = 2 + g.below(4);
    let data = (0..words).flat_map(|_| g.u32().to_be_bytes()).collect();
    Property {
        property: Property::EXPERIMENTER,
        data,
    }
}

fn controller_status(g: &mut Rng) -> ControllerStatus {
    ControllerStatus {
        short_id: g.u16(),
        role: g.pick(&[Role::NoChange, Role::Equal, Role::Primary, Role::Secondary]),
        reason: g.u8(),
        channel_status: g.u8(),
        properties: g.list(2, |g| match g.bool() {
            true => ControllerProperty::Uri(g.text(40)),
            false => ControllerProperty::Other(vendor(g)),
        }),
    }
}

pub fn table_mod(g: &mut Rng) -> TableMod {
    TableMod {
        table_id: TableId(g.u8()),
        config: g.u32(),
        properties: g.list(3, |g| match g.below(3) {
            0 => TableProperty::Eviction(EvictionFlags(g.u32())),
            1 => TableProperty::Vacancy {
                down: g.u8(),
                up: g.u8(),
                now: g.u8(),
            },
            _ => TableProperty::Other(vendor(g)),
        }),
    }
}

fn new_request(is_v15: bool, g: &mut Rng) -> RequestBody {
    match g.below(if is_v15 { 8 } else { 3 }) {
        0 => RequestBody::TableDesc,
        1 => RequestBody::QueueDesc {
            port: PortNo(g.u32()),
            queue: QueueId(g.u32()),
        },
        // os-ken reads one monitor a request.
        2 => RequestBody::FlowMonitor(vec![FlowMonitor {
            monitor_id: g.u32(),
            out_port: PortNo(g.u32()),
            out_group: GroupId(g.u32()),
            flags: FlowMonitorFlags(g.u16()),
            table_id: TableId(g.u8()),
            command: g.pick(&[
                FlowMonitorCommand::Add,
                FlowMonitorCommand::Modify,
                FlowMonitorCommand::Delete,
            ]),
            r#match: matching(is_v15, g),
        }]),
        3 => RequestBody::GroupDesc(GroupId(g.u32())),
        4 => RequestBody::PortDesc(PortNo(g.u32())),
        5 => RequestBody::FlowCounters(FlowStatsRequest {
            table_id: TableId(g.u8()),
            out_port: PortNo(g.u32()),
            out_group: GroupId(g.u32()),
            cookie: Cookie(g.long()),
            cookie_mask: Cookie(g.long()),
            r#match: matching(is_v15, g),
        }),
        6 => RequestBody::ControllerStatus,
        _ => RequestBody::BundleFeatures(BundleFeaturesRequest {
            flags: g.u32(),
            properties: g.list(2, bundle_feature),
        }),
    }
}

fn bundle_feature(g: &mut Rng) -> BundleFeatureProperty {
    match g.bool() {
        true => BundleFeatureProperty::Time {
            accuracy: time(g),
            future_max: time(g),
            past_max: time(g),
            now: time(g),
        },
        false => BundleFeatureProperty::Other(vendor(g)),
    }
}

fn new_reply(is_v15: bool, g: &mut Rng) -> ReplyBody {
    match g.below(if is_v15 { 6 } else { 3 }) {
        0 => ReplyBody::TableDesc(g.list(4, table_mod)),
        1 => ReplyBody::QueueDesc(g.list(4, |g| PacketQueue {
            queue_id: QueueId(g.u32()),
            port: PortNo(g.u32()),
            properties: g.list(3, |g| match g.below(3) {
                0 => QueueProperty::MinRate(g.u16()),
                1 => QueueProperty::MaxRate(g.u16()),
                _ => QueueProperty::Experimenter {
                    experimenter: g.u32(),
                    data: {
                        let words = 1 + g.below(4);
                        (0..words).flat_map(|_| g.u32().to_be_bytes()).collect()
                    },
                },
            }),
        })),
        2 => ReplyBody::FlowMonitor(g.list(4, |g| match g.below(6) {
            0 => FlowUpdate::Abbreviated(Xid(g.u32())),
            1 => FlowUpdate::Paused,
            2 => FlowUpdate::Resumed,
            _ => FlowUpdate::Entry(FlowUpdateEntry {
                event: g.pick(&[
                    FlowEvent::Initial,
                    FlowEvent::Added,
                    FlowEvent::Removed,
                    FlowEvent::Modified,
                ]),
                table_id: TableId(g.u8()),
                reason: FlowRemovedReason(g.below(6) as u8),
                idle_timeout: g.u16(),
                hard_timeout: g.u16(),
                priority: g.u16(),
                cookie: Cookie(g.long()),
                r#match: matching(is_v15, g),
                instructions: instructions(is_v15, 3, g),
            }),
        })),
        3 => ReplyBody::FlowCounters(g.list(4, |g| FlowCounters {
            table_id: TableId(g.u8()),
            reason: g.u8(),
            priority: g.u16(),
            r#match: matching(is_v15, g),
            stats: stats(&[0, 1, 2, 3, 4, 5], g),
        })),
        4 => ReplyBody::ControllerStatus(g.list(4, controller_status)),
        _ => ReplyBody::BundleFeatures(BundleFeatures {
            capabilities: BundleFlags(g.u16()),
            properties: g.list(2, bundle_feature),
        }),
    }
}

/// Some of the statistics with these numbers of [`stat`], each at most once.
fn stats(numbers: &[u64], g: &mut Rng) -> Vec<Stat> {
    let some: Vec<u64> = numbers.iter().copied().filter(|_| g.bool()).collect();
    some.into_iter().map(|n| stat(n, g)).collect()
}

fn stat(number: u64, g: &mut Rng) -> Stat {
    match number {
        0 => Stat::Duration(g.u32(), g.u32()),
        1 => Stat::IdleTime(g.u32(), g.u32()),
        2 => Stat::FlowCount(g.u32()),
        3 => Stat::PacketCount(g.long()),
        4 => Stat::ByteCount(g.long()),
        _ => {
            let payload = g.bytes(12);
            Stat::Other {
                header: 0x8002_2000 | payload.len() as u32,
                payload,
            }
        }
    }
}

/// A match, at times with a field that only later versions have.
fn matching(is_v15: bool, g: &mut Rng) -> Match {
    let mut m = v13::any_match(g);
    let new = |field: Field, m: &Match| m.get(field).is_none();
    if g.below(4) == 0 && m.exact(Field::EthType) == Some(0x88e7) {
        m = m.with(Field::PbbUca, g.int(1));
    }
    if is_v15 && g.below(6) == 0 {
        m = m.with(Field::ActsetOutput, g.int(32));
    }
    let is_tcp = m.exact(Field::IpProto) == Some(6)
        && matches!(m.exact(Field::EthType), Some(0x0800 | 0x86dd));
    if is_v15 && is_tcp && g.bool() {
        m = m.with(Field::TcpFlags, g.int(12));
    }
    if is_v15 && g.below(6) == 0 && new(Field::PacketType, &m) {
        m = m.with(Field::PacketType, g.int(32));
    }
    m
}

fn actions(is_v15: bool, mut list: Vec<Action>, g: &mut Rng) -> Vec<Action> {
    if is_v15 && g.below(3) == 0 {
        let header = |g: &mut Rng| FieldId {
            header: 0x8000_0000 | (g.below(39) as u32) << 9,
            experimenter: None,
        };
        list.push(Action::CopyField {
            n_bits: g.u16(),
            src_offset: g.u16(),
            dst_offset: g.u16(),
            src: header(g),
            dst: header(g),
        });
    }
    if is_v15 && g.below(3) == 0 {
        list.push(Action::Meter(MeterId(g.u32())));
    }
    if is_v15 && g.below(4) == 0 {
        let mask = g.int(48);
        list.push(Action::SetField(MatchField::Basic {
            field: Field::EthDst,
            value: g.int(48) & mask,
            mask: Some(mask),
        }));
    }
    list
}

fn instructions(is_v15: bool, max: u64, g: &mut Rng) -> Vec<Instruction> {
    let list = g.list(max, v13::instruction);
    enriched_instructions(is_v15, list, g)
}

fn enriched_instructions(is_v15: bool, list: Vec<Instruction>, g: &mut Rng) -> Vec<Instruction> {
    let one = |one: Instruction| match one {
        Instruction::Meter(_) if is_v15 => Instruction::StatTrigger {
            flags: g.u32(),
            thresholds: stats(&[0, 1, 2, 3, 4, 5], g),
        },
        Instruction::WriteActions(list) => Instruction::WriteActions(actions(is_v15, list, g)),
        Instruction::ApplyActions(list) => Instruction::ApplyActions(actions(is_v15, list, g)),
        other => other,
    };
    list.into_iter().map(one).collect()
}

fn bucket(is_v15: bool, group_type: GroupType, bucket: Bucket, g: &mut Rng) -> Bucket {
    if !is_v15 {
        return bucket;
    }
    Bucket {
        actions: actions(is_v15, bucket.actions, g),
        bucket_id: Some(BucketId(g.u32())),
        properties: g.list(2, vendor),
        weight: match group_type {
            GroupType::Select => bucket.weight,
            _ => 0,
        },
        ..bucket
    }
}

fn buckets(is_v15: bool, ty: GroupType, list: Vec<Bucket>, g: &mut Rng) -> Vec<Bucket> {
    list.into_iter().map(|b| bucket(is_v15, ty, b, g)).collect()
}

fn mask_pair(g: &mut Rng) -> [Option<u32>; 2] {
    [g.option(Rng::u32), g.option(Rng::u32)]
}

/// A message of 1.3 with what later versions add to it.
fn enriched(is_v15: bool, message: Message, g: &mut Rng) -> Message {
    match message {
        Message::FlowMod(m) => Message::FlowMod(FlowMod {
            importance: g.u16(),
            r#match: matching(is_v15, g),
            instructions: enriched_instructions(is_v15, m.instructions, g),
            ..m
        }),
        Message::FlowRemoved(mut m) => {
            m.r#match = matching(is_v15, g);
            if is_v15 {
                m.stats = stats(&[1, 5, 2], g);
            }
            Message::FlowRemoved(m)
        }
        Message::PacketIn(m) => Message::PacketIn(PacketIn {
            r#match: matching(is_v15, g),
            ..m
        }),
        Message::PacketOut(m) => Message::PacketOut(PacketOut {
            actions: actions(is_v15, m.actions, g),
            pipeline: match is_v15 && g.bool() {
                true => Match::any().with(Field::TunnelId, g.int(64)),
                false => Match::any(),
            },
            ..m
        }),
        Message::PortStatus(m) => Message::PortStatus(PortStatus {
            port: port(is_v15, m.port, g),
            ..m
        }),
        Message::PortMod(m) => Message::PortMod(PortMod {
            properties: g.list(2, |g| match g.bool() {
                true => PortModProperty::Optical {
                    configure: g.u32(),
                    lambda: g.u32(),
                    offset: g.u32() as i32,
                    grid_span: g.u32(),
                    tx_power: g.u32(),
                },
                false => PortModProperty::Other(vendor(g)),
            }),
            ..m
        }),
        Message::TableMod(_) => Message::TableMod(table_mod(g)),
        Message::GroupMod(m) => {
            let mut m = GroupMod {
                buckets: buckets(is_v15, m.group_type, m.buckets, g),
                ..m
            };
            if is_v15 {
                m.properties = g.list(2, vendor);
                m.command_bucket = g.option(|g| BucketId(g.u32() & 0xffff_fffe));
                m.command = g.pick(&[
                    GroupModCommand::Add,
                    GroupModCommand::Modify,
                    GroupModCommand::Delete,
                    GroupModCommand::InsertBucket,
                    GroupModCommand::RemoveBucket,
                ]);
            }
            Message::GroupMod(m)
        }
        Message::RoleRequest(m) | Message::RoleReply(m) => {
            let short_id = g.option(|g| g.u16() & 0xfffe).filter(|_| is_v15);
            let m = RoleMessage { short_id, ..m };
            match g.bool() {
                true => Message::RoleRequest(m),
                false => Message::RoleReply(m),
            }
        }
        Message::RoleStatus(m) => Message::RoleStatus(RoleStatus {
            properties: g.list(2, vendor),
            ..m
        }),
        Message::SetAsync(_) | Message::GetAsyncReply(_) => {
            let mut m = AsyncConfig {
                packet_in_mask: mask_pair(g),
                port_status_mask: mask_pair(g),
                flow_removed_mask: mask_pair(g),
                role_status_mask: mask_pair(g),
                table_status_mask: mask_pair(g),
                request_forward_mask: mask_pair(g),
                properties: g.list(2, vendor),
                ..AsyncConfig::default()
            };
            if is_v15 {
                m.flow_stats_mask = mask_pair(g);
                m.controller_status_mask = mask_pair(g);
            }
            match g.bool() {
                true => Message::SetAsync(m),
                false => Message::GetAsyncReply(m),
            }
        }
        Message::MultipartRequest(m) => Message::MultipartRequest(MultipartRequest {
            body: match m.body {
                // Its number must have no name in any version.
                RequestBody::Other { kind, body } => RequestBody::Other {
                    kind: kind | 0x100,
                    body,
                },
                RequestBody::TableFeatures(list) => {
                    RequestBody::TableFeatures(tables(is_v15, list, g))
                }
                other => other,
            },
            ..m
        }),
        Message::MultipartReply(m) => Message::MultipartReply(MultipartReply {
            body: enriched_reply(is_v15, m.body, g),
            ..m
        }),
        other => other,
    }
}

fn tables(is_v15: bool, list: Vec<TableFeatures>, g: &mut Rng) -> Vec<TableFeatures> {
    let table = |table: TableFeatures| match is_v15 {
        true => TableFeatures {
            command: g.u8(),
            features: g.u32(),
            ..table
        },
        false => table,
    };
    list.into_iter().map(table).collect()
}

fn port(is_v15: bool, port: Port, g: &mut Rng) -> Port {
    let properties = g.list(2, |g| match g.below(if is_v15 { 5 } else { 2 }) {
        0 => PortProperty::Other(vendor(g)),
        1 => PortProperty::Optical(OpticalPort {
            supported: g.u32(),
            tx_lambda: [(); 3].map(|()| g.u32()),
            rx_lambda: [(); 3].map(|()| g.u32()),
            tx_power: [(); 2].map(|()| g.u16()),
        }),
        2 => PortProperty::PipelineInput(oxm_ids(g)),
        3 => PortProperty::PipelineOutput(oxm_ids(g)),
        _ => PortProperty::Recirculate(g.list(4, |g| PortNo(g.u32()))),
    });
    Port { properties, ..port }
}

fn oxm_ids(g: &mut Rng) -> Vec<u32> {
    g.list(4, |g| 0x8000_0000 | (g.below(39) as u32) << 9)
}

fn enriched_reply(is_v15: bool, body: ReplyBody, g: &mut Rng) -> ReplyBody {
    match body {
        ReplyBody::Other { kind, body } => ReplyBody::Other {
            kind: kind | 0x100,
            body,
        },
        ReplyBody::Flow(mut list) => {
            for row in &mut list {
                row.importance = g.u16();
                row.r#match = matching(is_v15, g);
                row.instructions = instructions(is_v15, 3, g);
                if is_v15 {
                    row.stats = stats(&[1, 5, 2], g);
                }
            }
            ReplyBody::Flow(list)
        }
        ReplyBody::Aggregate(mut m) => {
            if is_v15 {
                m.stats = stats(&[0, 1, 5], g);
            }
            ReplyBody::Aggregate(m)
        }
        ReplyBody::PortDesc(list) => {
            ReplyBody::PortDesc(list.into_iter().map(|p| port(is_v15, p, g)).collect())
        }
        ReplyBody::PortStats(mut list) => {
            for row in &mut list {
                row.properties = g.list(2, |g| match g.bool() {
                    true => PortStatsProperty::Optical {
                        flags: g.u32(),
                        tx_lambda: [(); 3].map(|()| g.u32()),
                        rx_lambda: [(); 3].map(|()| g.u32()),
                        power: [(); 2].map(|()| g.u16()),
                        bias_current: g.u16(),
                        temperature: g.u16(),
                    },
                    false => PortStatsProperty::Other(vendor(g)),
                });
            }
            ReplyBody::PortStats(list)
        }
        ReplyBody::Queue(mut list) => {
            for row in &mut list {
                row.properties = g.list(2, vendor);
            }
            ReplyBody::Queue(list)
        }
        ReplyBody::GroupDesc(mut list) => {
            for row in &mut list {
                row.buckets = buckets(is_v15, row.group_type, std::mem::take(&mut row.buckets), g);
                if is_v15 {
                    row.properties = g.list(2, vendor);
                }
            }
            ReplyBody::GroupDesc(list)
        }
        ReplyBody::MeterFeatures(m) => ReplyBody::MeterFeatures(MeterFeatures {
            features: g.option(Rng::u32).filter(|_| is_v15),
            ..m
        }),
        ReplyBody::TableFeatures(list) => ReplyBody::TableFeatures(tables(is_v15, list, g)),
        other => other,
    }
}
