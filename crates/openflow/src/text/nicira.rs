//! Nicira's messages, actions and fields in the words of `ovs-ofctl`, read from the bytes that
//! messages keep.
//!
//! Bytes that are not well formed or have no words here stay as they are: `experimenter(ID,DATA)`.

use std::fmt::{self, Write};

use bytes::Buf;

use crate::frame::Frame;
use crate::message::Experimenter;
use crate::types::PortNo;
use crate::wire::{NiciraMessage, PacketIn2};

use super::{messages, names, packet, values};

/// Classes of NXM headers.
const NXM_OF: u32 = 0;
const NXM_NX: u32 = 1;
/// OFPXMC_OPENFLOW_BASIC.
const OXM_OF: u32 = 0x8000;

/// Registers, the first fields of NXM_NX.
const REGISTERS: u32 = 16;

/// Fields of class NXM_OF by number: name and bits.
const OF_FIELDS: [(&str, u16); 18] = [
    ("IN_PORT", 16),
    ("ETH_DST", 48),
    ("ETH_SRC", 48),
    ("ETH_TYPE", 16),
    ("VLAN_TCI", 16),
    ("IP_TOS", 8),
    ("IP_PROTO", 8),
    ("IP_SRC", 32),
    ("IP_DST", 32),
    ("TCP_SRC", 16),
    ("TCP_DST", 16),
    ("UDP_SRC", 16),
    ("UDP_DST", 16),
    ("ICMP_TYPE", 8),
    ("ICMP_CODE", 8),
    ("ARP_OP", 16),
    ("ARP_SPA", 32),
    ("ARP_TPA", 32),
];

/// Fields of class NXM_NX that are no registers: number, name and bits.
const NX_FIELDS: [(u32, &str, u16); 24] = [
    (16, "TUN_ID", 64),
    (17, "ARP_SHA", 48),
    (18, "ARP_THA", 48),
    (19, "IPV6_SRC", 128),
    (20, "IPV6_DST", 128),
    (21, "ICMPV6_TYPE", 8),
    (22, "ICMPV6_CODE", 8),
    (23, "ND_TARGET", 128),
    (24, "ND_SLL", 48),
    (25, "ND_TLL", 48),
    (27, "IPV6_LABEL", 20),
    (28, "IP_ECN", 2),
    (29, "IP_TTL", 8),
    (30, "MPLS_TTL", 8),
    (31, "TUN_IPV4_SRC", 32),
    (32, "TUN_IPV4_DST", 32),
    (33, "PKT_MARK", 32),
    (34, "TCP_FLAGS", 12),
    (37, "CONJ_ID", 32),
    (105, "CT_STATE", 32),
    (106, "CT_ZONE", 16),
    (107, "CT_MARK", 32),
    (108, "CT_LABEL", 128),
    (109, "TUN_IPV6_SRC", 128),
];

/// Class and number of an OXM or NXM header.
fn class_and_number(header: u32) -> (u32, u32) {
    (header >> 16, header >> 9 & 0x7f)
}

/// The field's name in actions, and its bits.
fn field(header: u32) -> Option<(String, u16)> {
    Some(match class_and_number(header) {
        (NXM_OF, number) => {
            let (name, bits) = OF_FIELDS.get(number as usize)?;
            (format!("NXM_OF_{name}"), *bits)
        }
        (NXM_NX, number) if number < REGISTERS => (format!("NXM_NX_REG{number}"), 32),
        (NXM_NX, number) => {
            let (_, name, bits) = NX_FIELDS.iter().find(|(known, ..)| *known == number)?;
            (format!("NXM_NX_{name}"), *bits)
        }
        (OXM_OF, number) => {
            let field = crate::Field::from_number(u8::try_from(number).ok()?)?;
            let bits = u16::from(field.info().bits);
            match names::nxm(field) {
                Some(name) => (name.to_owned(), bits),
                None => (
                    format!("OXM_OF_{}", field.info().name.to_ascii_uppercase()),
                    bits,
                ),
            }
        }
        _ => return None,
    })
}

/// Bits of the header's field, such as `NXM_NX_REG0[0..7]`. `None` if the field has no name here.
pub(super) fn sub_field(header: u32, from: u16, n_bits: u16) -> Option<String> {
    let (name, bits) = field(header)?;
    Some(match n_bits {
        _ if (from, n_bits) == (0, bits) => format!("{name}[]"),
        1 => format!("{name}[{from}]"),
        _ => {
            let end = u32::from(from) + u32::from(n_bits).max(1) - 1;
            format!("{name}[{from}..{end}]")
        }
    })
}

/// A number in hex as C writes it: zero has no prefix.
fn hex(n: u64) -> String {
    match n {
        0 => "0".into(),
        n => format!("{n:#x}"),
    }
}

/// A match on one of Nicira's fields: its position among Open vSwitch's words, and the word.
pub(super) enum Word {
    /// Packet mark, before everything else.
    Mark(String),
    /// Field of the tracked connection, before the protocol.
    Tracked(String),
    /// Register, after the protocol.
    Register(String),
}

/// `reg0=0x7`, with its mask if it has one.
pub(super) fn match_word(header: u32, payload: &[u8]) -> Option<Word> {
    let has_mask = header >> 8 & 1 == 1;
    let (class, number) = class_and_number(header);
    if class != NXM_NX || payload.len() != (header & 0xff) as usize {
        return None;
    }
    let (name, len) = match number {
        0..REGISTERS => (format!("reg{number}"), 4),
        33 => ("pkt_mark".to_owned(), 4),
        106 => ("ct_zone".to_owned(), 2),
        107 => ("ct_mark".to_owned(), 4),
        _ => return None,
    };
    let (value, mask) = match has_mask {
        true if payload.len() == 2 * len => (&payload[..len], Some(&payload[len..])),
        false if payload.len() == len => (payload, None),
        _ => return None,
    };
    let word = |bytes: &[u8]| hex(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
    // Open vSwitch prints exact zones in decimal.
    let value = match mask {
        None if number == 106 => value
            .iter()
            .fold(0u32, |n, b| n << 8 | u32::from(*b))
            .to_string(),
        _ => word(value),
    };
    let text = match mask.filter(|mask| mask.iter().any(|b| *b != 0xff)) {
        Some(mask) => format!("{name}={value}/{}", word(mask)),
        None => format!("{name}={value}"),
    };
    Some(match number {
        0..REGISTERS => Word::Register(text),
        33 => Word::Mark(text),
        _ => Word::Tracked(text),
    })
}

/// The port of the 16-bit numbering of OpenFlow 1.0, which Nicira's actions keep.
fn port(number: u16) -> String {
    let port = match number {
        0xff00.. => PortNo(0xffff_0000 | u32::from(number)),
        number => PortNo(u32::from(number)),
    };
    port.to_string()
}

/// The words of a vendor's action whose bytes after the id are `data`.
pub(super) fn action(experimenter: u32, data: &[u8]) -> Option<String> {
    if experimenter != Experimenter::NICIRA {
        return None;
    }
    let mut r = data;
    let subtype = r.try_get_u16().ok()?;
    let mut read = |n: usize| -> Option<u64> {
        let (bytes, rest) = r.split_at_checked(n)?;
        r = rest;
        Some(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    };
    Some(match subtype {
        1 => resubmit(read(2)? as u16, 255, false),
        14 | 44 => resubmit(read(2)? as u16, read(1)? as u8, subtype == 44),
        2 => {
            read(2)?;
            format!("set_tunnel:{}", hex(read(4)?))
        }
        9 => {
            read(6)?;
            format!("set_tunnel64:{}", hex(read(8)?))
        }
        4 => {
            read(2)?;
            format!("set_queue:{}", read(4)?)
        }
        5 => "pop_queue".to_owned(),
        6 => {
            let (n_bits, from, to) = (read(2)? as u16, read(2)? as u16, read(2)? as u16);
            let from = sub_field(read(4)? as u32, from, n_bits)?;
            let to = sub_field(read(4)? as u32, to, n_bits)?;
            format!("move:{from}->{to}")
        }
        7 => {
            let (from, n_bits) = bits(read(2)?);
            let to = sub_field(read(4)? as u32, from, n_bits)?;
            format!("load:{}->{to}", hex(read(8)?))
        }
        8 => {
            let bytes = data[2..].iter().map(|byte| format!("{byte:02x}"));
            format!("note:{}", bytes.collect::<Vec<_>>().join("."))
        }
        15 => {
            let (from, n_bits) = bits(read(2)?);
            format!("output:{}", sub_field(read(4)? as u32, from, n_bits)?)
        }
        17 => "exit".to_owned(),
        18 => "dec_ttl".to_owned(),
        19 => {
            let mut limits = Vec::new();
            for name in ["idle_timeout", "hard_timeout"] {
                match read(2)? {
                    0 => {}
                    time => limits.push(format!("{name}={time}")),
                }
            }
            format!("fin_timeout({})", limits.join(","))
        }
        20 => controller(read(2)? as u16, read(2)? as u16, read(1)? as u8),
        21 => {
            let count = read(2)?;
            read(4)?;
            let ids: Option<Vec<String>> = (0..count).map(|_| Some(read(2)?.to_string())).collect();
            format!("dec_ttl({})", ids?.join(","))
        }
        27 | 28 => {
            let (from, header, n_bits) = (read(2)? as u16, read(4)? as u32, read(2)? as u16);
            let word = if subtype == 27 { "push" } else { "pop" };
            format!("{word}:{}", sub_field(header, from, n_bits)?)
        }
        34 => {
            let (clause, clauses, id) = (read(1)?, read(1)?, read(4)?);
            format!("conjunction({id},{}/{clauses})", clause + 1)
        }
        39 => {
            let (to, len) = (read(2)? as u16, read(4)?);
            format!("output(port={},max_len={len})", port(to))
        }
        43 => "ct_clear".to_owned(),
        _ => return None,
    })
}

/// First bit and number of bits, packed.
fn bits(packed: u64) -> (u16, u16) {
    ((packed >> 6) as u16, (packed & 0x3f) as u16 + 1)
}

fn resubmit(in_port: u16, table: u8, has_ct: bool) -> String {
    const IN_PORT: u16 = 0xfff8;
    const SAME: u8 = 255;
    if in_port != IN_PORT && table == SAME {
        return format!("resubmit:{}", port(in_port));
    }
    let mut text = "resubmit(".to_owned();
    if in_port != IN_PORT {
        text.push_str(&port(in_port));
    }
    text.push(',');
    if table != SAME {
        let _ = write!(text, "{table}");
    }
    text.push_str(if has_ct { ",ct)" } else { ")" });
    text
}

fn controller(max_len: u16, id: u16, reason: u8) -> String {
    const ACTION: u8 = 1;
    if reason == ACTION && id == 0 {
        return format!("CONTROLLER:{max_len}");
    }
    let mut parts = Vec::new();
    if reason != ACTION {
        parts.push(format!("reason={}", names::packet_in_reason(reason)));
    }
    if max_len != u16::MAX {
        parts.push(format!("max_len={max_len}"));
    }
    if id != 0 {
        parts.push(format!("id={id}"));
    }
    format!("controller({})", parts.join(","))
}

/// A vendor's action, in words or as bytes.
pub(super) fn action_text(experimenter: u32, data: &[u8]) -> String {
    action(experimenter, data)
        .unwrap_or_else(|| format!("experimenter({experimenter:#010x},{})", values::hex(data)))
}

/// A message of Nicira's, without the last newline.
pub(super) fn message(frame: &Frame, message: &NiciraMessage) -> String {
    let mut text = super::header(frame);
    let _ = match message {
        NiciraMessage::SetPacketInFormat(format) => match format {
            0 => write!(text, " format=standard"),
            1 => write!(text, " format=nxt_packet_in"),
            2 => write!(text, " format=nxt_packet_in2"),
            other => write!(text, " format={other}"),
        },
        NiciraMessage::SetControllerId(id) => write!(text, " id={id}"),
        NiciraMessage::PacketIn2(m) => packet_in2(&mut text, m),
    };
    messages::trimmed(&text).to_owned()
}

fn packet_in2(w: &mut String, m: &PacketIn2) -> fmt::Result {
    messages::packet_in_head(w, &m.packet)?;
    if !m.userdata.is_empty() {
        let bytes = m.userdata.iter().map(|byte| format!("{byte:02x}"));
        writeln!(w, " userdata={}", bytes.collect::<Vec<_>>().join("."))?;
    }
    if !m.continuation.is_empty() {
        writeln!(w, " continuation={}", values::hex(&m.continuation))?;
    }
    w.write_str(&packet::summary(&m.packet.data))
}
