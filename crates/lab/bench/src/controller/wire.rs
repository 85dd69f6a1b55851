//! The bytes of the hot path: packet-ins from a template, and answers read in place.
//!
//! Everything else uses the `openflow` crate. These two may cost some tens of nanoseconds, because
//! they limit what can be measured. The tests compare them with that crate.

use bytes::Bytes;
use openflow::message::PacketIn;
use openflow::packet::build::udp;
use openflow::{BufferId, Cookie, EncodeError, Message, PortNo, Version, Xid};

use super::layout::{DESTINATION, Layout};

pub const HEADER_LEN: usize = 8;
pub const NO_BUFFER: u32 = u32::MAX;
pub const TYPE_PACKET_OUT: u8 = 13;
pub const TYPE_FLOW_MOD: u8 = 14;

/// Ethernet, IPv4 and UDP headers.
const HEADERS_LEN: usize = 14 + 20 + 8;
/// The length of cbench's packet.
const PACKET_LEN: usize = 64;
/// The mark before the tag in the payload; other packets do not have it there.
pub const MAGIC: u32 = 0x6175_7374;
pub const UDP_PORTS: (u16, u16) = (31256, 22635);
const UDP_CHECKSUM_AT: usize = 14 + 20 + 6;

/// A packet-in of one switch, but for its hosts, port and tag.
pub struct PacketInTemplate {
    bytes: Vec<u8>,
    version: Version,
    is_buffered: bool,
    packet_at: usize,
}

const V10_IN_PORT_AT: usize = 14;
/// The offset after the fixed fields, the match's header and the header of its first OXM.
const V13_IN_PORT_AT: usize = 24 + 4 + 4;
const BUFFER_ID_AT: usize = 8;

impl PacketInTemplate {
    /// Creates the template. Buffered packets use the tag as their buffer.
    pub fn new(
        version: Version,
        layout: &Layout,
        is_buffered: bool,
    ) -> Result<PacketInTemplate, EncodeError> {
        let payload = [&MAGIC.to_be_bytes()[..], &[0; PACKET_LEN - HEADERS_LEN - 4]].concat();
        let (from, to) = (layout.host(1), layout.far().host(DESTINATION));
        let mut packet = udp(from, to, UDP_PORTS, &payload);
        // No checksum, which UDP over IPv4 allows: the payload differs from packet to packet.
        packet[UDP_CHECKSUM_AT..UDP_CHECKSUM_AT + 2].fill(0);
        let buffer_id = is_buffered.then_some(BufferId(0));
        let frame = packet_in(version, buffer_id, layout.port(1), Bytes::from(packet))?;
        Ok(PacketInTemplate {
            packet_at: frame.len() - PACKET_LEN,
            bytes: frame.to_vec(),
            version,
            is_buffered,
        })
    }

    /// Writes the packet of host `source` to host `target`.
    pub fn write(
        &self,
        layout: &Layout,
        (source, target): (u32, u32),
        tag: u32,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let message = &mut out[start..];
        let port = layout.port(source);
        match self.version {
            Version::V10 => put(message, V10_IN_PORT_AT, (port as u16).to_be_bytes()),
            _ => put(message, V13_IN_PORT_AT, port.to_be_bytes()),
        }
        if self.is_buffered {
            put(message, BUFFER_ID_AT, tag.to_be_bytes());
        }
        let [_, host @ ..] = target.to_be_bytes();
        put(message, self.packet_at + 3, host);
        let [_, host @ ..] = source.to_be_bytes();
        put(message, self.packet_at + 9, host);
        put(message, self.packet_at + HEADERS_LEN + 4, tag.to_be_bytes());
    }
}

fn put<const N: usize>(message: &mut [u8], at: usize, bytes: [u8; N]) {
    message[at..at + N].copy_from_slice(&bytes);
}

/// Returns a packet-in with a whole packet that matched nothing.
pub fn packet_in(
    version: Version,
    buffer_id: Option<BufferId>,
    port: u32,
    packet: Bytes,
) -> Result<Bytes, EncodeError> {
    let message = Message::PacketIn(PacketIn {
        buffer_id,
        cookie: Cookie(if version == Version::V10 { u64::MAX } else { 0 }),
        ..PacketIn::new(PortNo(port), packet)
    });
    Ok(openflow::encode(version, Xid(0), &message)?.bytes().clone())
}

/// The fields that a template's packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub eth_dst: u64,
    pub eth_src: u64,
    /// `None` if the packet is not one of ours: an ARP or LLDP frame.
    pub tag: Option<u32>,
}

impl Packet {
    pub fn read(data: &[u8]) -> Option<Packet> {
        const TAG_AT: usize = HEADERS_LEN + 4;
        let tag = match (u32_at(data, HEADERS_LEN), u32_at(data, TAG_AT)) {
            (Some(MAGIC), tag) => tag,
            _ => None,
        };
        Some(Packet {
            eth_dst: mac_at(data, 0)?,
            eth_src: mac_at(data, 6)?,
            tag,
        })
    }
}

/// Where an answer sends the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Nowhere,
    Port(u32),
    /// Output to FLOOD or ALL, or to several ports.
    Flood,
}

/// A FLOW_MOD that adds or modifies, or a PACKET_OUT, as far as it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub is_flow_mod: bool,
    pub buffer_id: u32,
    /// Exact matches of a FLOW_MOD; absent is `None`.
    pub in_port: Option<u32>,
    pub eth_src: Option<u64>,
    pub eth_dst: Option<u64>,
    pub output: Output,
    /// The packet of a PACKET_OUT.
    pub data: &'a [u8],
}

impl<'a> Answer<'a> {
    /// Reads `message`, a whole PACKET_OUT or FLOW_MOD, header included; `None` if it makes no
    /// sense or deletes.
    pub fn read(version: Version, message: &'a [u8]) -> Option<Answer<'a>> {
        let is_flow_mod = *message.get(1)? == TYPE_FLOW_MOD;
        match (version, is_flow_mod) {
            (Version::V10, true) => read_flow_mod_v10(message),
            (Version::V10, false) => read_packet_out(message, (14, 16), port_v10),
            (Version::V15, false) => {
                // A match takes the place of the port.
                let match_len = usize::from(u16_at(message, 16 + 2)?);
                let actions_at = 16 + match_len.next_multiple_of(8);
                read_packet_out(message, (12, actions_at), port_v13)
            }
            (_, true) => read_flow_mod_v13(message),
            (_, false) => read_packet_out(message, (16, 24), port_v13),
        }
    }
}

/// Reads a PACKET_OUT. Its length of actions is at `len_at`, and its actions begin at `actions_at`.
fn read_packet_out(
    message: &[u8],
    (len_at, actions_at): (usize, usize),
    read_port: ReadPort,
) -> Option<Answer<'_>> {
    let actions_end = actions_at + usize::from(u16_at(message, len_at)?);
    let actions = message.get(actions_at..actions_end)?;
    Some(Answer {
        is_flow_mod: false,
        buffer_id: u32_at(message, 8)?,
        in_port: None,
        eth_src: None,
        eth_dst: None,
        output: read_actions(actions, read_port)?,
        data: &message[actions_end..],
    })
}

fn read_flow_mod_v10(message: &[u8]) -> Option<Answer<'_>> {
    const WILD_IN_PORT: u32 = 1;
    const WILD_SRC: u32 = 1 << 2;
    const WILD_DST: u32 = 1 << 3;
    const COMMAND_AT: usize = 56;
    const ACTIONS_AT: usize = 72;
    if u16_at(message, COMMAND_AT)? > MODIFY_STRICT {
        return None;
    }
    let wildcards = u32_at(message, 8)?;
    let exact = |wild: u32| wildcards & wild == 0;
    Some(Answer {
        is_flow_mod: true,
        buffer_id: u32_at(message, 64)?,
        in_port: exact(WILD_IN_PORT).then_some(u32::from(u16_at(message, 12)?)),
        eth_src: exact(WILD_SRC).then_some(mac_at(message, 14)?),
        eth_dst: exact(WILD_DST).then_some(mac_at(message, 20)?),
        output: read_actions(message.get(ACTIONS_AT..)?, port_v10)?,
        data: &[],
    })
}

/// ADD is 0, MODIFY 1, in all versions.
const MODIFY_STRICT: u16 = 2;

fn read_flow_mod_v13(message: &[u8]) -> Option<Answer<'_>> {
    const COMMAND_AT: usize = 25;
    const MATCH_AT: usize = 48;
    const OXM_IN_PORT: u32 = 0x8000_0004;
    const OXM_ETH_DST: u32 = 0x8000_0606;
    const OXM_ETH_SRC: u32 = 0x8000_0806;
    if u16::from(*message.get(COMMAND_AT)?) > MODIFY_STRICT {
        return None;
    }
    let match_len = usize::from(u16_at(message, MATCH_AT + 2)?);
    let mut fields = message.get(MATCH_AT + 4..MATCH_AT + match_len)?;
    let mut answer = Answer {
        is_flow_mod: true,
        buffer_id: u32_at(message, 32)?,
        in_port: None,
        eth_src: None,
        eth_dst: None,
        output: Output::Nowhere,
        data: &[],
    };
    while let Some(header) = u32_at(fields, 0) {
        match header {
            OXM_IN_PORT => answer.in_port = u32_at(fields, 4),
            OXM_ETH_DST => answer.eth_dst = mac_at(fields, 4),
            OXM_ETH_SRC => answer.eth_src = mac_at(fields, 4),
            _ => {}
        }
        fields = fields.get(4 + (header & 0xff) as usize..)?;
    }
    let instructions = message.get(MATCH_AT + match_len.next_multiple_of(8)..)?;
    answer.output = read_instructions(instructions)?;
    Some(answer)
}

fn read_instructions(mut instructions: &[u8]) -> Option<Output> {
    const WRITE_ACTIONS: u16 = 3;
    const APPLY_ACTIONS: u16 = 4;
    let mut output = Output::Nowhere;
    while let (Some(kind), Some(len)) = (u16_at(instructions, 0), u16_at(instructions, 2)) {
        let len = usize::from(len);
        let body = instructions.get(8.min(len)..len)?;
        if matches!(kind, WRITE_ACTIONS | APPLY_ACTIONS) {
            output = read_actions(body, port_v13)?;
        }
        instructions = instructions.get(len.max(8)..)?;
    }
    Some(output)
}

/// The port of an OUTPUT action, in the numbering of 1.3.
type ReadPort = fn(&[u8]) -> Option<u32>;

fn port_v10(action: &[u8]) -> Option<u32> {
    /// OFPP_MAX of 1.0; the same reserved ports are above it.
    const MAX: u16 = 0xff00;
    let port = u16_at(action, 4)?;
    Some(if port >= MAX {
        0xffff_0000 | u32::from(port)
    } else {
        u32::from(port)
    })
}

fn port_v13(action: &[u8]) -> Option<u32> {
    u32_at(action, 4)
}

fn read_actions(mut actions: &[u8], read_port: ReadPort) -> Option<Output> {
    const OUTPUT: u16 = 0;
    let mut output = Output::Nowhere;
    while let (Some(kind), Some(len)) = (u16_at(actions, 0), u16_at(actions, 2)) {
        if kind == OUTPUT {
            let port = read_port(actions)?;
            let floods = port == PortNo::FLOOD.0 || port == PortNo::ALL.0;
            output = match output {
                Output::Nowhere if !floods => Output::Port(port),
                _ => Output::Flood,
            };
        }
        // An action has at least 8 bytes; a smaller length would be read for ever.
        actions = actions.get(usize::from(len).max(8)..)?;
    }
    Some(output)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

fn mac_at(bytes: &[u8], at: usize) -> Option<u64> {
    let [a, b, c, d, e, f] = *bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
