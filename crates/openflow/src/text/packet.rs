//! The one-line summary of a data-plane packet that PACKET_IN and PACKET_OUT carry.

use crate::match_fields::{FIELDS, Field, Match};
use crate::packet::PacketFields;
use crate::types::PortNo;

use super::{flow, names};

/// The fields of `data` in flow syntax, TTL, fragment, TCP flags and checksum included.
pub(super) fn summary(data: &[u8]) -> String {
    let as_arp = rarp_as_arp(data);
    let fields = PacketFields::parse(PortNo(0), as_arp.as_deref().unwrap_or(data));
    let mut m = Match::any();
    for info in FIELDS
        .iter()
        .filter(|info| !matches!(info.field, Field::InPort | Field::Ipv6Exthdr))
    {
        if let Some(value) = fields.get(info.field) {
            let is_rarp = as_arp.is_some() && info.field == Field::EthType;
            m = m.with(info.field, if is_rarp { RARP.into() } else { value });
        }
    }
    let tagged = m.exact(Field::VlanVid).is_some_and(|vid| vid != 0);
    if !tagged {
        m.fields.retain(|f| !is_vlan(f));
    }
    let headers = Headers::find(data);
    let (mut parts, transport) = flow::match_parts(&m);
    let at = parts.iter().take_while(|part| !part.contains('=')).count();
    if tagged {
        let after_tag = at
            + parts
                .iter()
                .filter(|part| part.starts_with("dl_vlan"))
                .count();
        let inner = match inner_tag(data) {
            Some(tci) => format!("dl_vlan1={},dl_vlan_pcp1={}", tci & 0xfff, tci >> 13),
            None => "vlan_tci1=0x0000".to_owned(),
        };
        parts.insert(after_tag, inner);
    } else {
        parts.insert(at, "vlan_tci=0x0000".into());
    }
    parts.extend(headers.network_words(data));
    parts.extend(transport);
    parts.extend(headers.tcp_flags(data));
    let mut text = parts.join(",");
    if let Some((name, checksum)) = headers.checksum(data) {
        text.push_str(&format!(" {name}_csum:{checksum:x}"));
    }
    text
}

const RARP: u16 = 0x8035;

/// Returns a RARP packet with the type of ARP, whose format it shares.
fn rarp_as_arp(data: &[u8]) -> Option<Vec<u8>> {
    let at = type_at(data);
    let mut copy = (u16_at(data, at) == Some(RARP)).then(|| data.to_vec())?;
    copy[at..at + 2].copy_from_slice(&0x0806u16.to_be_bytes());
    Some(copy)
}

/// Returns the offset of an Ethernet frame's type, which follows its tags.
fn type_at(data: &[u8]) -> usize {
    let mut at = 12;
    while matches!(u16_at(data, at), Some(0x8100 | 0x88a8)) {
        at += 4;
    }
    at
}

/// Returns the VLAN tag after the first.
fn inner_tag(data: &[u8]) -> Option<u16> {
    matches!(u16_at(data, 16)?, 0x8100 | 0x88a8).then(|| u16_at(data, 18))?
}

fn is_vlan(field: &crate::match_fields::MatchField) -> bool {
    use crate::match_fields::MatchField::Basic;
    matches!(
        field,
        Basic {
            field: Field::VlanVid | Field::VlanPcp,
            ..
        }
    )
}

/// Offsets of the headers that no OpenFlow field reads, if they are simple to find.
#[derive(Default)]
struct Headers {
    ip: Option<usize>,
    is_ipv6: bool,
    /// Protocol number and offset of the transport header of an unfragmented packet.
    l4: Option<(u8, usize)>,
    is_fragment: bool,
    is_later_fragment: bool,
}

impl Headers {
    fn find(data: &[u8]) -> Headers {
        let mut headers = Headers::default();
        let mut at = type_at(data);
        // IEEE 802.3 with LLC and SNAP: the type follows them.
        if data.get(at + 2..at + 8) == Some(&[0xaa, 0xaa, 3, 0, 0, 0]) {
            at += 8;
        }
        let ip = at + 2;
        match u16_at(data, at) {
            Some(0x0800) if data.len() >= ip + 20 => {
                let fragment = u16_at(data, ip + 6).unwrap_or(0);
                headers.ip = Some(ip);
                headers.is_fragment = fragment & 0x3fff != 0;
                headers.is_later_fragment = fragment & 0x1fff != 0;
                if !headers.is_fragment {
                    headers.l4 = Some((data[ip + 9], ip + usize::from(data[ip] & 0xf) * 4));
                }
            }
            Some(0x86dd) if data.len() >= ip + 40 => {
                headers.ip = Some(ip);
                headers.is_ipv6 = true;
                headers.l4 = Some((data[ip + 6], ip + 40));
            }
            _ => {}
        }
        headers
    }

    fn network_words(&self, data: &[u8]) -> Vec<String> {
        let Some(ip) = self.ip else {
            return Vec::new();
        };
        let ttl = data[ip + if self.is_ipv6 { 7 } else { 8 }];
        let fragment = match (self.is_fragment, self.is_later_fragment) {
            (false, _) => "no",
            (true, false) => "first",
            (true, true) => "later",
        };
        vec![format!("nw_ttl={ttl}"), format!("nw_frag={fragment}")]
    }

    fn tcp_flags(&self, data: &[u8]) -> Option<String> {
        let (6, at) = self.l4? else {
            return None;
        };
        // Only a complete header has flags.
        u16_at(data, at + 18)?;
        let flags = u16_at(data, at + 12)? & 0xfff;
        let set: Vec<&str> = names::TCP_FLAGS
            .into_iter()
            .enumerate()
            .filter(|(n, _)| flags >> n & 1 == 1)
            .map(|(_, n)| n)
            .collect();
        Some(format!(
            "tcp_flags={}",
            if set.is_empty() {
                "0".into()
            } else {
                set.join("|")
            }
        ))
    }

    fn checksum(&self, data: &[u8]) -> Option<(&'static str, u32)> {
        let (proto, at) = self.l4?;
        let whole = |len: usize| data.len() >= at + len;
        let short = |offset: usize| u16_at(data, at + offset).map(u32::from);
        match proto {
            6 if whole(20) => Some(("tcp", short(16)?)),
            17 if whole(8) => Some(("udp", short(6)?)),
            132 if whole(12) => Some(("sctp", short(8)? << 16 | short(10)?)),
            1 if !self.is_ipv6 && whole(8) => Some(("icmp", short(2)?)),
            58 if self.is_ipv6 && whole(8) => Some(("icmp6", short(2)?)),
            _ => None,
        }
    }
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let pair = data.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}
