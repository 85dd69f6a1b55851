//! Arbitrary messages of OpenFlow 1.3 from a seed: every variant of every enum, in any mixture
//! that a peer may send (prerequisites before what needs them, no field twice).

use openflow::actions::{Action, Bucket, Instruction};
use openflow::error::ErrorKind;
use openflow::match_fields::{FIELDS, Field, FieldInfo, Match, MatchField, Prereq};
use openflow::message::*;
use openflow::multipart::*;
use openflow::types::*;

use super::Rng;

/// Kinds of messages that [`message`] chooses from.
pub const KINDS: u64 = 31;

/// Any message of 1.3.
pub fn message(g: &mut Rng) -> Message {
    let kind = g.below(KINDS);
    // A third are multipart messages, which have the most forms.
    match g.below(6) {
        0 => Message::MultipartRequest(multipart_request(g)),
        1 => Message::MultipartReply(multipart_reply(g)),
        _ => message_of_kind(kind, g),
    }
}

fn message_of_kind(kind: u64, g: &mut Rng) -> Message {
    match kind {
        0 => Message::Hello(hello(g)),
        1 => Message::Error(error(g)),
        2 => Message::EchoRequest(g.bytes(64)),
        3 => Message::EchoReply(g.bytes(64)),
        4 => Message::Experimenter(Experimenter {
            experimenter: g.u32(),
            data: g.bytes(64),
        }),
        5 => Message::FeaturesRequest,
        6 => Message::FeaturesReply(SwitchFeatures {
            datapath_id: DatapathId(g.long()),
            n_buffers: g.u32(),
            n_tables: g.u8(),
            auxiliary_id: g.u8(),
            capabilities: Capabilities(g.u32()),
            actions: g.u32(),
            ports: Vec::new(),
        }),
        7 => Message::GetConfigRequest,
        8 => Message::GetConfigReply(config(g)),
        9 => Message::SetConfig(config(g)),
        10 => Message::PacketIn(packet_in(g)),
        11 => Message::FlowRemoved(flow_removed(g)),
        12 => Message::PortStatus(PortStatus {
            reason: PortReason(g.below(3) as u8),
            port: port(g),
        }),
        13 => Message::PacketOut(PacketOut {
            buffer_id: buffer_id(g),
            in_port: PortNo(g.u32()),
            actions: g.list(6, action),
            data: g.bytes(200),
            pipeline: Default::default(),
        }),
        14 => Message::FlowMod(flow_mod(g)),
        15 => Message::GroupMod(GroupMod::new(
            g.pick(&[
                GroupModCommand::Add,
                GroupModCommand::Modify,
                GroupModCommand::Delete,
            ]),
            group_type(g),
            GroupId(g.u32()),
            g.list(4, bucket),
        )),
        16 => Message::PortMod(PortMod {
            port_no: PortNo(g.u32()),
            hw_addr: mac(g),
            config: PortConfig(g.u32()),
            mask: PortConfig(g.u32()),
            advertise: g.u32(),
            properties: Vec::new(),
        }),
        17 => Message::TableMod(TableMod {
            table_id: TableId(g.u8()),
            config: g.u32(),
            properties: Vec::new(),
        }),
        18 => Message::MultipartRequest(multipart_request(g)),
        19 => Message::MultipartReply(multipart_reply(g)),
        20 => Message::BarrierRequest,
        21 => Message::BarrierReply,
        22 => Message::QueueGetConfigRequest {
            port: PortNo(g.u32()),
        },
        23 => Message::QueueGetConfigReply(QueueConfig {
            port: PortNo(g.u32()),
            queues: g.list(4, packet_queue),
        }),
        24 => Message::RoleRequest(role(g)),
        25 => Message::RoleReply(role(g)),
        26 => Message::GetAsyncRequest,
        27 => Message::GetAsyncReply(async_config(g)),
        28 => Message::SetAsync(async_config(g)),
        29 => Message::RoleStatus(RoleStatus {
            role: g.pick(&[Role::Equal, Role::Primary, Role::Secondary]),
            reason: RoleReason(g.below(4) as u8),
            generation_id: g.long(),
            properties: Vec::new(),
        }),
        _ => Message::MeterMod(MeterMod {
            command: g.pick(&[
                MeterModCommand::Add,
                MeterModCommand::Modify,
                MeterModCommand::Delete,
            ]),
            flags: MeterFlags(g.u16() & 0xf),
            meter_id: MeterId(g.u32()),
            bands: g.list(4, meter_band),
        }),
    }
}

fn hello(g: &mut Rng) -> Hello {
    Hello {
        bitmaps: g.bool().then(|| g.list(3, Rng::u32)),
    }
}

fn error(g: &mut Rng) -> ErrorMessage {
    let named = g.below(ErrorKind::NAMES.len() as u64) as usize;
    let (kind, experimenter) = match g.below(8) {
        0 => {
            let kind = ErrorKind {
                ty: 0xffff,
                code: g.u16(),
            };
            (kind, Some(g.u32()))
        }
        _ => (ErrorKind::NAMES[named].0, None),
    };
    ErrorMessage {
        kind,
        experimenter,
        data: g.bytes(64),
    }
}

fn config(g: &mut Rng) -> SwitchConfig {
    SwitchConfig {
        flags: g.below(4) as u16,
        miss_send_len: g.u16(),
    }
}

fn packet_in(g: &mut Rng) -> PacketIn {
    PacketIn {
        buffer_id: buffer_id(g),
        total_len: g.u16(),
        reason: PacketInReason(g.below(3) as u8),
        table_id: TableId(g.u8()),
        cookie: Cookie(g.long()),
        r#match: any_match(g),
        data: g.bytes(200),
    }
}

pub fn flow_removed(g: &mut Rng) -> FlowRemoved {
    FlowRemoved {
        cookie: Cookie(g.long()),
        priority: g.u16(),
        reason: FlowRemovedReason(g.below(4) as u8),
        table_id: TableId(g.u8()),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        idle_timeout: g.u16(),
        hard_timeout: g.u16(),
        packet_count: g.long(),
        byte_count: g.long(),
        r#match: any_match(g),
        stats: Vec::new(),
    }
}

fn flow_mod(g: &mut Rng) -> FlowMod {
    FlowMod {
        cookie: Cookie(g.long()),
        cookie_mask: Cookie(g.long()),
        table_id: TableId(g.u8()),
        command: FlowModCommand::from_wire(g.below(5) as u8).expect("five commands"),
        idle_timeout: g.u16(),
        hard_timeout: g.u16(),
        priority: g.u16(),
        buffer_id: buffer_id(g),
        out_port: PortNo(g.u32()),
        out_group: GroupId(g.u32()),
        flags: FlowModFlags(g.u16() & 0x1f),
        r#match: any_match(g),
        instructions: g.list(4, instruction),
        importance: 0,
    }
}

fn role(g: &mut Rng) -> RoleMessage {
    RoleMessage::new(
        g.pick(&[Role::NoChange, Role::Equal, Role::Primary, Role::Secondary]),
        g.long(),
    )
}

fn async_config(g: &mut Rng) -> AsyncConfig {
    AsyncConfig::of_v13([g.u32(), g.u32()], [g.u32(), g.u32()], [g.u32(), g.u32()])
}

pub fn multipart_request(g: &mut Rng) -> MultipartRequest {
    let body = match g.below(16) {
        0 => RequestBody::Desc,
        1 => RequestBody::Flow(flow_stats_request(g)),
        2 => RequestBody::Aggregate(flow_stats_request(g)),
        3 => RequestBody::Table,
        4 => RequestBody::PortStats(PortNo(g.u32())),
        5 => RequestBody::Queue {
            port: PortNo(g.u32()),
            queue: QueueId(g.u32()),
        },
        6 => RequestBody::Group(GroupId(g.u32())),
        7 => RequestBody::GroupDesc(GroupId::ALL),
        8 => RequestBody::GroupFeatures,
        9 => RequestBody::Meter(MeterId(g.u32())),
        10 => RequestBody::MeterConfig(MeterId(g.u32())),
        11 => RequestBody::MeterFeatures,
        12 => RequestBody::TableFeatures(g.list(3, table_features)),
        13 => RequestBody::PortDesc(PortNo::ANY),
        14 => RequestBody::Experimenter {
            experimenter: g.u32(),
            data: g.bytes(64),
        },
        _ => RequestBody::Other {
            kind: 14 + g.below(1000) as u16,
            body: g.bytes(64),
        },
    };
    MultipartRequest {
        more: g.bool(),
        body,
    }
}

pub fn multipart_reply(g: &mut Rng) -> MultipartReply {
    let body = match g.below(16) {
        0 => ReplyBody::Desc(description(g)),
        1 => ReplyBody::Flow(g.list(4, flow_stats)),
        2 => ReplyBody::Aggregate(aggregate(g)),
        3 => ReplyBody::Table(g.list(6, table_stats)),
        4 => ReplyBody::PortStats(g.list(4, port_stats)),
        5 => ReplyBody::Queue(g.list(4, queue_stats)),
        6 => ReplyBody::Group(g.list(4, group_stats)),
        7 => ReplyBody::GroupDesc(g.list(4, |g| GroupDesc {
            group_type: group_type(g),
            group_id: GroupId(g.u32()),
            buckets: g.list(4, bucket),
            properties: Vec::new(),
        })),
        8 => ReplyBody::GroupFeatures(GroupFeatures {
            types: g.u32(),
            capabilities: g.u32(),
            max_groups: [(); 4].map(|()| g.u32()),
            actions: [(); 4].map(|()| g.u32()),
        }),
        9 => ReplyBody::Meter(g.list(4, meter_stats)),
        10 => ReplyBody::MeterConfig(g.list(4, |g| MeterConfig {
            flags: MeterFlags(g.u16()),
            meter_id: MeterId(g.u32()),
            bands: g.list(4, meter_band),
        })),
        11 => ReplyBody::MeterFeatures(MeterFeatures {
            max_meter: g.u32(),
            band_types: g.u32(),
            capabilities: g.u32(),
            max_bands: g.u8(),
            max_color: g.u8(),
            features: None,
        }),
        12 => ReplyBody::TableFeatures(g.list(3, table_features)),
        13 => ReplyBody::PortDesc(g.list(6, port)),
        14 => ReplyBody::Experimenter {
            experimenter: g.u32(),
            data: g.bytes(64),
        },
        _ => ReplyBody::Other {
            kind: 14 + g.below(1000) as u16,
            body: g.bytes(64),
        },
    };
    MultipartReply {
        more: g.bool(),
        body,
    }
}

pub fn description(g: &mut Rng) -> Description {
    Description {
        manufacturer: g.text(256),
        hardware: g.text(256),
        software: g.text(256),
        serial: g.text(32),
        datapath: g.text(256),
    }
}

pub fn aggregate(g: &mut Rng) -> AggregateStats {
    AggregateStats {
        packet_count: g.long(),
        byte_count: g.long(),
        flow_count: g.u32(),
        stats: Vec::new(),
    }
}

fn flow_stats_request(g: &mut Rng) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: TableId(g.u8()),
        out_port: PortNo(g.u32()),
        out_group: GroupId(g.u32()),
        cookie: Cookie(g.long()),
        cookie_mask: Cookie(g.long()),
        r#match: any_match(g),
    }
}

pub fn flow_stats(g: &mut Rng) -> FlowStats {
    FlowStats {
        table_id: TableId(g.u8()),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        priority: g.u16(),
        idle_timeout: g.u16(),
        hard_timeout: g.u16(),
        flags: FlowModFlags(g.u16()),
        cookie: Cookie(g.long()),
        packet_count: g.long(),
        byte_count: g.long(),
        r#match: any_match(g),
        instructions: g.list(3, instruction),
        importance: 0,
        stats: Vec::new(),
    }
}

fn table_stats(g: &mut Rng) -> TableStats {
    TableStats {
        table_id: TableId(g.u8()),
        active_count: g.u32(),
        lookup_count: g.long(),
        matched_count: g.long(),
        v10: None,
    }
}

pub fn port_stats(g: &mut Rng) -> PortStats {
    PortStats {
        port_no: PortNo(g.u32()),
        rx_packets: g.long(),
        tx_packets: g.long(),
        rx_bytes: g.long(),
        tx_bytes: g.long(),
        rx_dropped: g.long(),
        tx_dropped: g.long(),
        rx_errors: g.long(),
        tx_errors: g.long(),
        rx_frame_err: g.long(),
        rx_over_err: g.long(),
        rx_crc_err: g.long(),
        collisions: g.long(),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        properties: Vec::new(),
    }
}

pub fn queue_stats(g: &mut Rng) -> QueueStats {
    QueueStats {
        port_no: PortNo(g.u32()),
        queue_id: QueueId(g.u32()),
        tx_bytes: g.long(),
        tx_packets: g.long(),
        tx_errors: g.long(),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        properties: Vec::new(),
    }
}

fn group_stats(g: &mut Rng) -> GroupStats {
    GroupStats {
        group_id: GroupId(g.u32()),
        ref_count: g.u32(),
        packet_count: g.long(),
        byte_count: g.long(),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        buckets: g.list(4, |g| (g.long(), g.long())),
    }
}

fn meter_stats(g: &mut Rng) -> MeterStats {
    MeterStats {
        meter_id: MeterId(g.u32()),
        flow_count: g.u32(),
        packet_in_count: g.long(),
        byte_in_count: g.long(),
        duration_sec: g.u32(),
        duration_nsec: g.u32(),
        bands: g.list(4, |g| (g.long(), g.long())),
    }
}

fn table_features(g: &mut Rng) -> TableFeatures {
    TableFeatures {
        table_id: TableId(g.u8()),
        name: g.text(32),
        metadata_match: g.long(),
        metadata_write: g.long(),
        config: g.u32(),
        max_entries: g.u32(),
        properties: g.list(6, table_feature_property),
        command: 0,
        features: 0,
    }
}

fn table_feature_property(g: &mut Rng) -> TableFeatureProperty {
    let miss = g.bool();
    match g.below(6) {
        0 => TableFeatureProperty::Instructions {
            miss,
            ids: g.list(6, |g| feature_id(g, 6)),
        },
        1 => TableFeatureProperty::NextTables {
            miss,
            tables: g.list(20, |g| TableId(g.u8())),
        },
        2 => TableFeatureProperty::WriteActions {
            miss,
            ids: g.list(6, |g| feature_id(g, 27)),
        },
        3 => TableFeatureProperty::ApplyActions {
            miss,
            ids: g.list(6, |g| feature_id(g, 27)),
        },
        4 => TableFeatureProperty::Fields {
            property: g.pick(&[8, 10, 12, 13, 14, 15]),
            headers: g.list(12, |g| {
                let field = g.pick(FIELDS).field;
                0x8000_0000 | (field as u32) << 9 | field.len() as u32
            }),
        },
        _ => TableFeatureProperty::Other {
            property: g.pick(&[0xfffe, 0xffff]),
            data: {
                // An experimenter's property begins with two words.
                let mut data = g.bytes(24).to_vec();
                data.resize(data.len() + 8, 7);
                data.into()
            },
        },
    }
}

fn feature_id(g: &mut Rng, id_max: u64) -> FeatureId {
    if g.below(8) == 0 {
        FeatureId {
            id: 0xffff,
            experimenter: Some((g.u32(), g.aligned_bytes(16))),
        }
    } else {
        FeatureId {
            id: 1 + g.below(id_max) as u16,
            experimenter: None,
        }
    }
}

fn packet_queue(g: &mut Rng) -> PacketQueue {
    PacketQueue {
        queue_id: QueueId(g.u32()),
        port: PortNo(g.u32()),
        properties: g.list(4, |g| match g.below(4) {
            0 => QueueProperty::MinRate(g.u16()),
            1 => QueueProperty::MaxRate(g.u16()),
            2 => QueueProperty::Experimenter {
                experimenter: g.u32(),
                data: g.aligned_bytes(24),
            },
            _ => QueueProperty::Other {
                property: 3 + g.below(100) as u16,
                data: g.aligned_bytes(24),
            },
        }),
    }
}

pub fn meter_band(g: &mut Rng) -> MeterBand {
    let kind = match g.below(3) {
        0 => MeterBandKind::Drop,
        1 => MeterBandKind::DscpRemark { prec_level: g.u8() },
        _ => MeterBandKind::Experimenter {
            experimenter: g.u32(),
            data: g.aligned_bytes(16),
        },
    };
    MeterBand {
        rate: g.u32(),
        burst_size: g.u32(),
        kind,
    }
}

pub fn bucket(g: &mut Rng) -> Bucket {
    Bucket {
        weight: g.u16(),
        watch_port: PortNo(g.u32()),
        watch_group: GroupId(g.u32()),
        actions: g.list(4, action),
        bucket_id: None,
        properties: Vec::new(),
    }
}

pub fn instruction(g: &mut Rng) -> Instruction {
    match g.below(7) {
        0 => Instruction::GotoTable(TableId(g.u8())),
        1 => Instruction::WriteMetadata {
            metadata: g.long(),
            mask: g.long(),
        },
        2 => Instruction::WriteActions(g.list(5, action)),
        3 => Instruction::ApplyActions(g.list(5, action)),
        4 => Instruction::ClearActions,
        5 => Instruction::Meter(MeterId(g.u32())),
        _ => Instruction::Experimenter {
            experimenter: g.u32(),
            data: g.aligned_bytes(24),
        },
    }
}

pub fn action(g: &mut Rng) -> Action {
    match g.below(17) {
        0 => Action::Output {
            port: PortNo(g.u32()),
            max_len: g.u16(),
        },
        1 => Action::Group(GroupId(g.u32())),
        2 => Action::SetQueue(QueueId(g.u32())),
        3 => {
            let info = g.pick(FIELDS);
            Action::SetField(MatchField::exact(info.field, g.int(u32::from(info.bits))))
        }
        4 => Action::PushVlan(g.u16()),
        5 => Action::PopVlan,
        6 => Action::PushMpls(g.u16()),
        7 => Action::PopMpls(g.u16()),
        8 => Action::PushPbb(g.u16()),
        9 => Action::PopPbb,
        10 => Action::SetMplsTtl(g.u8()),
        11 => Action::DecMplsTtl,
        12 => Action::SetNwTtl(g.u8()),
        13 => Action::DecNwTtl,
        14 => Action::CopyTtlOut,
        15 => Action::CopyTtlIn,
        _ => Action::Experimenter {
            experimenter: g.u32(),
            data: g.aligned_bytes(24),
        },
    }
}

/// Some fields, each after the prerequisites that it asks for, and at most once.
pub fn any_match(g: &mut Rng) -> Match {
    let mut r#match = Match::any();
    for _ in 0..g.below(6) {
        let info = g.pick(FIELDS);
        add_prerequisite(info.prereq, &mut r#match);
        if r#match.get(info.field).is_none() {
            let field = arbitrary_field(info, g);
            r#match.fields.push(field);
        }
    }
    // Drops all fields from the first that contradicts an earlier one (TCP ports of an ARP packet).
    let consistent = (0..r#match.fields.len()).take_while(|at| {
        let MatchField::Basic { field, .. } = &r#match.fields[*at] else {
            return true;
        };
        let earlier = Match {
            fields: r#match.fields[..*at].to_vec(),
        };
        holds(field.info().prereq, &earlier)
    });
    let count = consistent.count();
    r#match.fields.truncate(count);
    if g.below(10) == 0 {
        r#match.fields.push(nicira_register(g));
    }
    r#match
}

/// NXM_NX_REG0, which is no basic field.
fn nicira_register(g: &mut Rng) -> MatchField {
    MatchField::Other {
        header: 0x0001_0004,
        payload: g.u32().to_be_bytes().to_vec().into(),
    }
}

fn arbitrary_field(info: FieldInfo, g: &mut Rng) -> MatchField {
    let bits = u32::from(info.bits);
    let mask = (info.maskable && g.bool()).then(|| g.int(bits));
    let value = g.int(bits) & mask.unwrap_or(u128::MAX);
    MatchField::Basic {
        field: info.field,
        value,
        mask,
    }
}

/// Adds the field that `prereq` requires, and its own prerequisites, if the fields are still free.
fn add_prerequisite(prereq: Prereq, r#match: &mut Match) {
    let (field, value): (Field, u128) = match prereq {
        Prereq::None => return,
        Prereq::InPort => (Field::InPort, 1),
        Prereq::Vlan => (Field::VlanVid, 0x1005),
        Prereq::EthType(ty) => (Field::EthType, u128::from(ty)),
        Prereq::Ip => (Field::EthType, 0x0800),
        Prereq::IpProto(proto) => (Field::IpProto, u128::from(proto)),
        Prereq::Icmpv6 => (Field::IpProto, 58),
        Prereq::NdAny => (Field::Icmpv6Type, 135),
        Prereq::NdType(ty) => (Field::Icmpv6Type, u128::from(ty)),
    };
    if r#match.get(field).is_none() {
        let before = match prereq {
            Prereq::Icmpv6 => Prereq::EthType(0x86dd),
            _ => field.info().prereq,
        };
        add_prerequisite(before, r#match);
        r#match.fields.push(MatchField::exact(field, value));
    }
}

/// The rule of OpenFlow 1.3.1, table 12, written again, independently of the codec.
fn holds(prereq: Prereq, earlier: &Match) -> bool {
    let eth_type = earlier.exact(Field::EthType);
    let ip_proto = earlier.exact(Field::IpProto);
    let icmpv6_type = earlier.exact(Field::Icmpv6Type);
    match prereq {
        Prereq::None => true,
        Prereq::InPort => earlier.get(Field::InPort).is_some(),
        Prereq::Vlan => {
            matches!(earlier.get(Field::VlanVid), Some((v, m)) if v & m & 0x1000 != 0)
        }
        Prereq::EthType(ty) => eth_type == Some(u128::from(ty)),
        Prereq::Ip => matches!(eth_type, Some(0x0800 | 0x86dd)),
        Prereq::IpProto(1) => eth_type == Some(0x0800) && ip_proto == Some(1),
        Prereq::IpProto(proto) => ip_proto == Some(u128::from(proto)),
        Prereq::Icmpv6 => eth_type == Some(0x86dd) && ip_proto == Some(58),
        Prereq::NdAny => matches!(icmpv6_type, Some(135 | 136)),
        Prereq::NdType(ty) => icmpv6_type == Some(u128::from(ty)),
    }
}

fn buffer_id(g: &mut Rng) -> Option<BufferId> {
    g.bool().then(|| BufferId(g.u32() & 0x7fff_ffff))
}

fn group_type(g: &mut Rng) -> GroupType {
    g.pick(&[
        GroupType::All,
        GroupType::Select,
        GroupType::Indirect,
        GroupType::FastFailover,
    ])
}

fn mac(g: &mut Rng) -> MacAddr {
    MacAddr::from_u64(g.long())
}

pub fn port(g: &mut Rng) -> Port {
    let name = g.text(15);
    Port {
        port_no: PortNo(g.u32()),
        hw_addr: mac(g),
        name: PortName::new(std::str::from_utf8(&name).expect("letters")),
        config: PortConfig(g.u32()),
        state: PortState(g.u32()),
        curr: g.u32(),
        advertised: g.u32(),
        supported: g.u32(),
        peer: g.u32(),
        curr_speed: g.u32(),
        max_speed: g.u32(),
        properties: Vec::new(),
    }
}
