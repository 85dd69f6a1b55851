//! Real messages: OpenFlow 1.3, encoded once, each of [`MESSAGE_BYTES`] on the wire.

use std::net::Ipv4Addr;

use bytes::Bytes;
use openflow::message::{PacketIn, PacketOut};
use openflow::packet::build::{self, Host};
use openflow::{Action, Frame, MacAddr, Message, PortNo, Version, Xid, encode};
use sched::Direction;

/// IPv4 and TCP headers without options, which every message has on the wire.
pub const HEADER_BYTES: usize = 40;

/// The published length of an OpenFlow message on the wire, these headers included.
pub const MESSAGE_BYTES: usize = 220;

/// Flows of one source. A queue holds fewer messages, so no two messages of a flow wait in it.
const FLOWS: u16 = 4096;

/// The kind of the other messages on a channel, or of data packets beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Packet-ins in one direction and packet-outs in the other, each of a different flow, to this
    /// UDP port.
    Packets { udp_dst: u16, in_port: u32 },
    /// Echo requests.
    Echo,
    /// Data packets of this size on the wire: traffic type 4.
    Data { bytes: u32 },
}

/// A message or packet that a source sends.
#[derive(Clone, Debug)]
pub(super) enum Sending {
    Message(Frame),
    /// A data packet, its Ethernet header included.
    Packet(Bytes),
}

/// The messages or packets of a source, which it sends in turn.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    sendings: Vec<Sending>,
    next: usize,
}

impl Pool {
    pub fn new(traffic: Traffic, direction: Direction) -> Pool {
        let sendings = match traffic {
            Traffic::Data { bytes } => (0..FLOWS)
                .map(|flow| Sending::Packet(packet(flow, DATA_UDP_DST, bytes as usize)))
                .collect(),
            Traffic::Echo => vec![message(&echo())],
            Traffic::Packets { udp_dst, in_port } => (0..FLOWS)
                .map(|flow| match direction {
                    Direction::ToController => message(&packet_in(flow, udp_dst, PortNo(in_port))),
                    Direction::ToSwitch => message(&packet_out(flow, udp_dst, PortNo(in_port))),
                })
                .collect(),
        };
        Pool { sendings, next: 0 }
    }

    pub fn next(&mut self) -> &Sending {
        self.next = (self.next + 1) % self.sendings.len();
        &self.sendings[self.next]
    }
}

/// The UDP destination port of data packets.
const DATA_UDP_DST: u16 = 5001;
/// Encoded bytes of a message.
const ENCODED_BYTES: usize = MESSAGE_BYTES - HEADER_BYTES;
/// Header, buffer, total length, reason, table, cookie; match with a port; padding.
const PACKET_IN_HEAD_BYTES: usize = 8 + 16 + 16 + 2;
/// Header, buffer, port, length of actions, padding; one output action.
const PACKET_OUT_HEAD_BYTES: usize = 8 + 16 + 16;
const ETHERNET_IP_UDP_BYTES: usize = 14 + 20 + 8;
/// Length of the data packet, before the switch cuts it to the length that the message holds.
const PACKET_BYTES: u16 = 512;

fn message(message: &Message) -> Sending {
    let frame = encode(Version::V13, Xid(1), message).expect("1.3 has these messages");
    assert_eq!(frame.len(), ENCODED_BYTES, "{:?}", frame.kind());
    Sending::Message(frame)
}

/// The first bytes of a datagram of flow number `flow`.
fn packet(flow: u16, udp_dst: u16, len: usize) -> Bytes {
    let host = |last: u8, mac| {
        Host::new(
            MacAddr([2, 0, 0, 0, 0, mac]),
            Ipv4Addr::new(10, mac, 0, last),
        )
    };
    let ports = (1024 + flow, udp_dst);
    let payload = vec![0; len.saturating_sub(ETHERNET_IP_UDP_BYTES)];
    build::udp(host(1, 1), host(2, 2), ports, &payload).into()
}

fn packet_in(flow: u16, udp_dst: u16, in_port: PortNo) -> Message {
    Message::PacketIn(PacketIn {
        total_len: PACKET_BYTES,
        ..PacketIn::new(
            in_port,
            packet(flow, udp_dst, ENCODED_BYTES - PACKET_IN_HEAD_BYTES),
        )
    })
}

fn packet_out(flow: u16, udp_dst: u16, in_port: PortNo) -> Message {
    let action = Action::Output {
        port: PortNo(1),
        max_len: 0,
    };
    Message::PacketOut(PacketOut::new(
        in_port,
        vec![action],
        packet(flow, udp_dst, ENCODED_BYTES - PACKET_OUT_HEAD_BYTES),
    ))
}

fn echo() -> Message {
    Message::EchoRequest(vec![0; ENCODED_BYTES - 8].into())
}
