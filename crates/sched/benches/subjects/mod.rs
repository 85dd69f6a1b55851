//! Messages to classify, and maps in which every rule is looked at before none takes them.

#![allow(dead_code, reason = "each program uses its part")]

use openflow::{Field, Frame, Match, MatchField, Message, Version, Xid, encode, text};
use sched::policy::{Action, PolicyMap, Rule};
use sched::{Direction, TrafficType};

/// `rules` rules about flow setup, none of which takes these messages: of the `fields` fields of
/// each all hold but the last.
pub fn map(rules: usize, fields: usize) -> PolicyMap {
    let holds = [
        (Field::IpProto, 17u128),
        (Field::EthType, 0x0800),
        (Field::Ipv4Src, 0x0a00_0001),
        (Field::Ipv4Dst, 0x0a00_0002),
    ];
    let rule = |at: usize| Rule {
        id: at as u16 + 1,
        traffic: Some(TrafficType::FlowSetup),
        message: None,
        direction: None,
        datapath: None,
        fields: Match {
            fields: holds
                .iter()
                .copied()
                .cycle()
                .take(fields - 1)
                .chain([(Field::UdpDst, 1 + at as u128)])
                .map(|(field, value)| MatchField::exact(field, value))
                .collect(),
        },
        xid: None,
        domain: 0,
        action: Action::Queue(0),
    };
    PolicyMap {
        rules: (0..rules).map(rule).collect(),
        ..PolicyMap::none()
    }
}

pub fn messages() -> Vec<(&'static str, Frame, Direction)> {
    let (up, down) = (Direction::ToController, Direction::ToSwitch);
    let flow = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=20000,actions=output:2";
    let flow_mod = text::parse_flow_mod(flow).expect("a flow");
    let flow_mod = encode(Version::V13, Xid(1), &Message::FlowMod(flow_mod)).expect("a message");
    vec![
        ("packet_in", packet_in(udp(20000)), up),
        ("packet_out", packet_out(udp(20000)), down),
        ("flow_mod", flow_mod, down),
        ("barrier_request", frame(20, &[]), down),
        ("echo_request", frame(2, &[]), down),
    ]
}

/// A PACKET_IN of OpenFlow 1.3 from port 7.
pub fn packet_in(packet: Vec<u8>) -> Frame {
    let head = [
        0xff, 0xff, 0xff, 0xff, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 12, 0x80, 0, 0, 4, 0,
        0, 0, 7, 0, 0, 0, 0, 0, 0,
    ];
    frame(10, &[&head[..], &packet].concat())
}

fn packet_out(packet: Vec<u8>) -> Frame {
    let head = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 7, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0,
        0, 0, 0, 0, 0, 0,
    ];
    frame(13, &[&head[..], &packet].concat())
}

/// 98 bytes of Ethernet, IPv4 and UDP.
pub fn udp(dst: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend_from_slice(&[0x45, 0, 0, 84, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88]);
    packet.extend_from_slice(&dst.to_be_bytes());
    packet.extend_from_slice(&[0, 64, 0, 0]);
    packet.resize(98, 0);
    packet
}

fn frame(type_byte: u8, body: &[u8]) -> Frame {
    let mut bytes = vec![4, type_byte];
    bytes.extend_from_slice(&((8 + body.len()) as u16).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1]);
    bytes.extend_from_slice(body);
    Frame::new(bytes.into()).expect("a whole message")
}
