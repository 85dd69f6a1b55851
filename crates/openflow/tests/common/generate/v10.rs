//! Arbitrary messages of OpenFlow 1.0 from a seed: every message that 1.0 has, and nothing that it
//! cannot say. Match fields stand in the order in which they are read.

use openflow::actions::{Action, Instruction};
use openflow::error::ErrorKind;
use openflow::match_fields::{Field, Match, MatchField, VLAN_PRESENT};
use openflow::message::*;
use openflow::multipart::*;
use openflow::types::*;

use super::{Rng, v13};

/// Any message of 1.0.
pub fn message(g: &mut Rng) -> Message {
    match g.below(27) {
        0 => Message::Hello(Hello {
            bitmaps: g.option(|g| g.list(3, Rng::u32)),
        }),
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
            auxiliary_id: 0,
            capabilities: Capabilities(g.u8().into()),
            actions: g.u32(),
            ports: g.list(4, port),
        }),
        7 => Message::GetConfigRequest,
        8 => Message::GetConfigReply(config(g)),
        9 => Message::SetConfig(config(g)),
        10 => Message::PacketIn(packet_in(g)),
        11 => Message::FlowRemoved(flow_removed(g)),
        12 => Message::PortStatus(PortStatus {
            reason: PortReason(g.u8()),
            port: port(g),
        }),
        13 => Message::PacketOut(PacketOut {
            buffer_id: buffer_id(g),
            in_port: port_no(g),
            actions: g.list(6, action),
            data: g.bytes(200),
            pipeline: Default::default(),
        }),
        14..=17 => Message::FlowMod(flow_mod(g)),
        18 => Message::PortMod(PortMod {
            port_no: port_no(g),
            hw_addr: MacAddr::from_u64(g.long()),
            config: PortConfig(g.u32()),
            mask: PortConfig(g.u32()),
            advertise: port_features(g),
            properties: Vec::new(),
        }),
        19 => Message::BarrierRequest,
        20 => Message::BarrierReply,
        21 => Message::QueueGetConfigRequest { port: port_no(g) },
        22 => Message::QueueGetConfigReply(queue_config(g)),
        23 => Message::MultipartRequest(MultipartRequest {
            more: g.bool(),
            body: request(g),
        }),
        _ => Message::MultipartReply(MultipartReply {
            more: g.bool(),
            body: reply(g),
        }),
    }
}

/// Errors of 1.0 by their names of 1.3, or a vendor's.
fn error(g: &mut Rng) -> ErrorMessage {
    use ErrorKind as E;
    let renumbered = [
        E::FLOW_MOD_TABLE_FULL,
        E::FLOW_MOD_OVERLAP,
        E::FLOW_MOD_EPERM,
        E::FLOW_MOD_BAD_EMERG_TIMEOUT,
        E::FLOW_MOD_BAD_COMMAND,
        E::FLOW_MOD_UNSUPPORTED,
        E::PORT_MOD_BAD_PORT,
        E::PORT_MOD_BAD_HW_ADDR,
        E::QUEUE_BAD_PORT,
        E::QUEUE_BAD_QUEUE,
        E::QUEUE_EPERM,
    ];
    let (ty, codes) = g.pick(&[(0, 2), (1, 9), (2, 9), (0xb0c2, 0x10000)]);
    let code = g.below(codes) as u16;
    ErrorMessage {
        kind: match g.bool() {
            true => g.pick(&renumbered),
            false => ErrorKind { ty, code },
        },
        experimenter: None,
        data: g.bytes(64),
    }
}

fn config(g: &mut Rng) -> SwitchConfig {
    SwitchConfig {
        flags: g.u16(),
        miss_send_len: g.u16(),
    }
}

fn packet_in(g: &mut Rng) -> PacketIn {
    PacketIn {
        buffer_id: buffer_id(g),
        total_len: g.u16(),
        reason: PacketInReason(g.u8()),
        table_id: TableId(0),
        // 1.0 has no cookie here.
        cookie: Cookie(u64::MAX),
        r#match: Match::any().with_in_port(port_no(g)),
        data: g.bytes(200),
    }
}

fn flow_removed(g: &mut Rng) -> FlowRemoved {
    FlowRemoved {
        reason: FlowRemovedReason(g.u8()),
        table_id: TableId(0),
        hard_timeout: 0,
        r#match: any_match(g),
        ..v13::flow_removed(g)
    }
}

fn flow_mod(g: &mut Rng) -> FlowMod {
    let flags = [
        FlowModFlags::SEND_FLOW_REM,
        FlowModFlags::CHECK_OVERLAP,
        FlowModFlags::EMERG,
    ];
    let flags = g.list(3, |g| g.pick(&flags)).into_iter();
    FlowMod {
        cookie: Cookie(g.long()),
        command: FlowModCommand::from_wire(g.below(5) as u8).expect("five commands"),
        idle_timeout: g.u16(),
        hard_timeout: g.u16(),
        buffer_id: buffer_id(g),
        out_port: port_no(g),
        flags: flags.fold(FlowModFlags::empty(), |all, flag| all | flag),
        ..FlowMod::add(g.u16(), any_match(g), g.list(5, action))
    }
}

fn queue_config(g: &mut Rng) -> QueueConfig {
    let port = port_no(g);
    let property = |g: &mut Rng| match g.below(8) {
        0 => QueueProperty::Other {
            property: 3 + g.below(1000) as u16,
            data: g.bytes(24),
        },
        _ => QueueProperty::MinRate(g.u16()),
    };
    let queues = g.list(4, |g| PacketQueue {
        queue_id: QueueId(g.u32()),
        port,
        properties: g.list(3, property),
    });
    QueueConfig { port, queues }
}

fn request(g: &mut Rng) -> RequestBody {
    match g.below(8) {
        0 => RequestBody::Desc,
        1 => RequestBody::Flow(flow_request(g)),
        2 => RequestBody::Aggregate(flow_request(g)),
        3 => RequestBody::Table,
        4 => RequestBody::PortStats(port_no(g)),
        5 => RequestBody::Queue {
            // 1.0 says ALL where later versions say ANY.
            port: match port_no(g) {
                PortNo::ALL => PortNo::ANY,
                port => port,
            },
            queue: QueueId(g.u32()),
        },
        6 => RequestBody::Experimenter {
            experimenter: g.u32(),
            data: g.bytes(64),
        },
        _ => RequestBody::Other {
            kind: 6 + g.below(1000) as u16,
            body: g.bytes(64),
        },
    }
}

fn flow_request(g: &mut Rng) -> FlowStatsRequest {
    FlowStatsRequest {
        table_id: TableId(g.u8()),
        out_port: port_no(g),
        r#match: any_match(g),
        ..FlowStatsRequest::all()
    }
}

fn reply(g: &mut Rng) -> ReplyBody {
    match g.below(8) {
        0 => ReplyBody::Desc(v13::description(g)),
        1 => ReplyBody::Flow(g.list(4, flow_stats)),
        2 => ReplyBody::Aggregate(v13::aggregate(g)),
        3 => ReplyBody::Table(g.list(4, |g| TableStats {
            table_id: TableId(g.u8()),
            active_count: g.u32(),
            lookup_count: g.long(),
            matched_count: g.long(),
            v10: Some(TableStatsV10 {
                name: g.text(32),
                wildcards: g.u32(),
                features: Default::default(),
                max_entries: g.u32(),
            }),
        })),
        4 => ReplyBody::PortStats(g.list(4, port_stats)),
        5 => ReplyBody::Queue(g.list(4, |g| QueueStats {
            port_no: port_no(g),
            duration_sec: 0,
            duration_nsec: 0,
            ..v13::queue_stats(g)
        })),
        6 => ReplyBody::Experimenter {
            experimenter: g.u32(),
            data: g.bytes(64),
        },
        _ => ReplyBody::Other {
            kind: 6 + g.below(1000) as u16,
            body: g.bytes(64),
        },
    }
}

fn flow_stats(g: &mut Rng) -> FlowStats {
    FlowStats {
        flags: FlowModFlags::empty(),
        r#match: any_match(g),
        instructions: vec![Instruction::ApplyActions(g.list(4, action))],
        ..v13::flow_stats(g)
    }
}

fn port_stats(g: &mut Rng) -> PortStats {
    PortStats {
        port_no: port_no(g),
        duration_sec: 0,
        duration_nsec: 0,
        ..v13::port_stats(g)
    }
}

fn port(g: &mut Rng) -> Port {
    let (curr, supported) = (port_features(g), port_features(g));
    Port {
        port_no: port_no(g),
        hw_addr: MacAddr::from_u64(g.long()),
        name: PortName(std::array::from_fn(|_| g.u8())),
        config: PortConfig(g.u32()),
        // LINK_DOWN, and the two bits of the spanning tree.
        state: PortState(g.u32() & 0x301),
        curr,
        advertised: port_features(g),
        supported,
        peer: port_features(g),
        curr_speed: speed_kbps(curr),
        max_speed: speed_kbps(supported),
        properties: Vec::new(),
    }
}

/// The features of 1.0 in the numbering of 1.3: no more than 10 Gb/s, and no others.
fn port_features(g: &mut Rng) -> u32 {
    g.u32() & 0xf87f
}

/// The speed in kbit/s: later versions send it as a number, 1.0 by the fastest feature.
fn speed_kbps(features: u32) -> u32 {
    let rates = [(0x40, 10_000_000), (0x30, 1_000_000), (0x0c, 100_000)];
    let fast = rates.into_iter().find(|(bits, _)| features & bits != 0);
    match fast {
        Some((_, kbps)) => kbps,
        None if features & 0x03 != 0 => 10_000,
        None => 0,
    }
}

fn action(g: &mut Rng) -> Action {
    let set = |field: Field, g: &mut Rng| {
        Action::SetField(MatchField::exact(
            field,
            g.int(u32::from(field.info().bits)),
        ))
    };
    match g.below(13) {
        0 => Action::Output {
            port: port_no(g),
            max_len: g.u16(),
        },
        1 => Action::SetVlanVid(g.u16()),
        2 => Action::SetVlanPcp(g.u8()),
        3 => Action::StripVlan,
        4 => set(Field::EthSrc, g),
        5 => set(Field::EthDst, g),
        6 => set(Field::Ipv4Src, g),
        7 => set(Field::Ipv4Dst, g),
        8 => Action::SetNwTos(g.u8()),
        9 => Action::SetTpSrc(g.u16()),
        10 => Action::SetTpDst(g.u16()),
        11 => Action::Enqueue {
            port: port_no(g),
            queue: QueueId(g.u32()),
        },
        _ => Action::Experimenter {
            experimenter: g.u32(),
            data: g.aligned_bytes(24),
        },
    }
}

fn any_match(g: &mut Rng) -> Match {
    let mut m = Match::any();
    if g.bool() {
        m = m.with_in_port(port_no(g));
    }
    m = exact(m, Field::EthDst, g);
    m = exact(m, Field::EthSrc, g);
    let eth_type = g.pick(&[None, Some(0x0800), Some(0x86dd), Some(0x0806), Some(0x88cc)]);
    if let Some(eth_type) = eth_type {
        m = m.with(Field::EthType, eth_type as u16);
    }
    m = vlan(m, g);
    match eth_type {
        Some(0x0806) => {
            if g.bool() {
                m = m.with(Field::ArpOp, g.u8());
            }
            m = prefix(m, Field::ArpSpa, g);
            prefix(m, Field::ArpTpa, g)
        }
        Some(eth_type @ (0x0800 | 0x86dd)) => ip(m, eth_type == 0x0800, g),
        _ => m,
    }
}

fn vlan(m: Match, g: &mut Rng) -> Match {
    let tag = g.int(12) | VLAN_PRESENT;
    match g.below(5) {
        0 => m.with(Field::VlanVid, 0u8),
        1 => m.with(Field::VlanVid, tag),
        2 => exact(m.with(Field::VlanVid, tag), Field::VlanPcp, g),
        3 => m
            .with_masked(Field::VlanVid, VLAN_PRESENT, VLAN_PRESENT)
            .with(Field::VlanPcp, g.int(3)),
        _ => m,
    }
}

fn ip(mut m: Match, v4: bool, g: &mut Rng) -> Match {
    use Field as F;
    let (proto, ports) = g.pick(&[
        (6, Some((F::TcpSrc, F::TcpDst))),
        (17, Some((F::UdpSrc, F::UdpDst))),
        (132, Some((F::SctpSrc, F::SctpDst))),
        (1, v4.then_some((F::Icmpv4Type, F::Icmpv4Code))),
        (58, (!v4).then_some((F::Icmpv6Type, F::Icmpv6Code))),
        (47, None),
        (0, None),
    ]);
    m = exact(m, F::IpDscp, g);
    let says_proto = g.below(4) != 0;
    if says_proto {
        m = m.with(F::IpProto, proto as u8);
    }
    if v4 {
        m = prefix(m, F::Ipv4Src, g);
        m = prefix(m, F::Ipv4Dst, g);
    }
    match ports.filter(|_| says_proto) {
        Some((src, dst)) => exact(exact(m, src, g), dst, g),
        None => m,
    }
}

/// Any value of `field`, or none.
fn exact(m: Match, field: Field, g: &mut Rng) -> Match {
    match g.option(|g| g.int(u32::from(field.info().bits))) {
        Some(value) => m.with(field, value),
        None => m,
    }
}

/// An address whose first bits count: some, all or none.
fn prefix(m: Match, field: Field, g: &mut Rng) -> Match {
    let address = g.u32();
    match g.pick(&[0, 1, 8, 17, 24, 31, 32]) {
        0 => m,
        32 => m.with(field, address),
        len => {
            let mask = u32::MAX << (32 - len);
            m.with_masked(field, address & mask, mask)
        }
    }
}

/// Any of 0 to 0xfeff, or one of the reserved ports: 0xff00 and more on the wire.
fn port_no(g: &mut Rng) -> PortNo {
    match g.below(4) {
        0 => PortNo(0xffff_ff00 | u32::from(g.u8())),
        _ => PortNo(g.below(0xff00) as u32),
    }
}

fn buffer_id(g: &mut Rng) -> Option<BufferId> {
    g.option(|g| BufferId(g.u32() & 0x7fff_ffff))
}
