//! Flow syntax to matches: names and aliases to fields, prerequisites checked.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;

use crate::match_fields::{Field, Match, MatchField, Prereq, VLAN_PRESENT};
use crate::types::{MacAddr, PortNo};

use super::error::TextError;
use super::items::{Item, Items};
use super::names;
use super::values::{self, Shape};

/// Parses a match such as `tcp,in_port=1,nw_dst=10.0.0.0/8`; an empty text matches everything. The
/// fields are in the order of their numbers, which is Open vSwitch's order.
///
/// # Errors
/// Fails for an unknown name, a value that does not fit its field, or a field whose protocol is
/// missing.
pub fn parse_match(text: &str) -> Result<Match, TextError> {
    let mut items = Items::new(text, 0);
    let mut reader = MatchReader::default();
    while let Some(item) = items.next()? {
        if !reader.take(item)? {
            return Err(unknown_field(&item));
        }
    }
    reader.finish()
}

pub(super) fn unknown_field(item: &Item<'_>) -> TextError {
    let usual = "a field such as in_port, dl_dst, nw_src, tcp_dst, or a protocol such as tcp";
    item.unknown(names::instead_of(item.key).unwrap_or_else(|| usual.to_owned()))
}

/// A reader that collects items first and interprets them at the end: the meaning of `tp_src`
/// depends on the protocol, which may follow later.
#[derive(Default)]
pub(super) struct MatchReader<'a> {
    fields: BTreeMap<Field, (u128, u128)>,
    /// The words that name each field.
    named: BTreeMap<Field, Item<'a>>,
    other: Vec<MatchField>,
    waiting: Vec<Item<'a>>,
}

impl<'a> MatchReader<'a> {
    /// Takes `item` if it is part of a match.
    pub fn take(&mut self, item: Item<'a>) -> Result<bool, TextError> {
        if item.value.is_none() {
            let Some((_, ty, proto)) = names::PROTOCOLS.iter().find(|(name, ..)| *name == item.key)
            else {
                return Ok(false);
            };
            self.exact(&item, Field::EthType, u128::from(*ty))?;
            if let Some(proto) = proto {
                self.exact(&item, Field::IpProto, u128::from(*proto))?;
            }
            return Ok(true);
        }
        match item.key {
            "dl_vlan" | "vlan_tci" | "nw_tos" => self.derived(&item)?,
            "oxm" => self.other.push(oxm(&item, item.value()?)?),
            "tp_src" | "tp_dst" => self.waiting.push(item),
            key => match Field::from_name(key) {
                // The field is known once the protocol is.
                Some(
                    Field::Icmpv4Type
                    | Field::Icmpv4Code
                    | Field::Ipv4Src
                    | Field::Ipv4Dst
                    | Field::IpProto,
                ) => self.waiting.push(item),
                Some(field) => self.plain(&item, field)?,
                None => return Ok(false),
            },
        }
        Ok(true)
    }

    pub fn finish(mut self) -> Result<Match, TextError> {
        let protocol_first = |item: &Item<'_>| !matches!(item.key, "nw_proto" | "ip_proto");
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(protocol_first);
        for item in waiting {
            let field = self.meant_by(&item)?;
            self.plain(&item, field)?;
        }
        if self.fields.contains_key(&Field::VlanPcp) {
            // A priority requires a tag: Open vSwitch matches one, and 1.3 asks for it.
            self.fields
                .entry(Field::VlanVid)
                .or_insert((VLAN_PRESENT, VLAN_PRESENT));
        }
        for field in self.fields.keys() {
            self.check_prerequisite(*field)?;
        }
        let basic = |(field, (value, mask)): (&Field, &(u128, u128))| MatchField::Basic {
            field: *field,
            value: *value,
            mask: Some(*mask).filter(|mask| *mask != field.ones()),
        };
        let fields = self.fields.iter().map(basic).chain(self.other).collect();
        Ok(Match { fields })
    }

    fn value_of(&self, field: Field) -> Option<u128> {
        self.fields
            .get(&field)
            .filter(|(_, mask)| *mask == field.ones())
            .map(|(value, _)| *value)
    }

    /// Returns the field that a name shared by several protocols stands for.
    fn meant_by(&self, item: &Item<'_>) -> Result<Field, TextError> {
        let eth_type = self.value_of(Field::EthType);
        let proto = self.value_of(Field::IpProto);
        let is_arp = eth_type == Some(0x0806);
        let is_icmpv6 = eth_type == Some(0x86dd) && proto == Some(58);
        Ok(match item.key {
            "nw_src" if is_arp => Field::ArpSpa,
            "nw_dst" if is_arp => Field::ArpTpa,
            "nw_proto" if is_arp => Field::ArpOp,
            "icmp_type" if is_icmpv6 => Field::Icmpv6Type,
            "icmp_code" if is_icmpv6 => Field::Icmpv6Code,
            "tp_src" | "tp_dst" => match (proto, item.key) {
                (Some(6), "tp_src") => Field::TcpSrc,
                (Some(6), _) => Field::TcpDst,
                (Some(17), "tp_src") => Field::UdpSrc,
                (Some(17), _) => Field::UdpDst,
                (Some(132), "tp_src") => Field::SctpSrc,
                (Some(132), _) => Field::SctpDst,
                (Some(1), "tp_src") => Field::Icmpv4Type,
                (Some(1), _) => Field::Icmpv4Code,
                (Some(58), "tp_src") => Field::Icmpv6Type,
                (Some(58), _) => Field::Icmpv6Code,
                _ => return Err(item.unknown("tcp, udp or sctp too: whose port is it?")),
            },
            key => Field::from_name(key).ok_or_else(|| unknown_field(item))?,
        })
    }

    fn plain(&mut self, item: &Item<'a>, field: Field) -> Result<(), TextError> {
        match field_value(item, field, item.value()?)? {
            Some((value, mask)) => self.put(item, field, value, mask),
            None => Ok(()),
        }
    }

    /// Parses names that stand for more, less or something other than one field.
    fn derived(&mut self, item: &Item<'a>) -> Result<(), TextError> {
        let text = item.value()?;
        match item.key {
            "dl_vlan" => match number(text) {
                // OFP_VLAN_NONE of OpenFlow 1.0: no tag.
                Some(0xffff) => self.exact(item, Field::VlanVid, 0),
                Some(vid) if vid < 0x1000 => self.exact(item, Field::VlanVid, VLAN_PRESENT | vid),
                _ => Err(item.wrong("a VLAN id up to 4095, or 0xffff for no tag")),
            },
            "nw_tos" => match number(text) {
                Some(tos) if tos < 0x100 && tos & 3 == 0 => {
                    self.exact(item, Field::IpDscp, tos >> 2)
                }
                _ => Err(item.wrong("a TOS byte without its ECN bits: a multiple of 4 up to 252")),
            },
            _ => self.vlan_tci(item, text),
        }
    }

    fn vlan_tci(&mut self, item: &Item<'a>, text: &str) -> Result<(), TextError> {
        let wanted = "a TCI such as 0x1123/0x1fff; its priority is matched whole or not at all";
        let (tci, mask) = masked_number(text).unwrap_or((u128::MAX, 0));
        let mask = mask & 0xffff;
        if tci > 0xffff {
            return Err(item.wrong(wanted));
        }
        let vid_mask = mask & 0x1fff;
        if vid_mask != 0 {
            self.put(item, Field::VlanVid, tci & vid_mask, vid_mask)?;
        }
        match mask & 0xe000 {
            0 => Ok(()),
            // Without a tag there is no priority to match.
            0xe000 if tci & VLAN_PRESENT == 0 && vid_mask != 0 => Ok(()),
            0xe000 => self.exact(item, Field::VlanPcp, tci >> 13),
            _ => Err(item.wrong(wanted)),
        }
    }

    fn exact(&mut self, item: &Item<'a>, field: Field, value: u128) -> Result<(), TextError> {
        self.put(item, field, value, field.ones())
    }

    fn put(
        &mut self,
        item: &Item<'a>,
        field: Field,
        value: u128,
        mask: u128,
    ) -> Result<(), TextError> {
        match self.fields.insert(field, (value & mask, mask)) {
            Some(before) if before != (value & mask, mask) => {
                let wanted = format!("{} once: it is matched to something else before", item.key);
                Err(item.unknown(wanted))
            }
            _ => {
                self.named.insert(field, *item);
                Ok(())
            }
        }
    }

    fn check_prerequisite(&self, field: Field) -> Result<(), TextError> {
        let eth_type = self.value_of(Field::EthType);
        let proto = self.value_of(Field::IpProto);
        let icmp_type = self.value_of(Field::Icmpv6Type);
        let is_icmpv6 = eth_type == Some(0x86dd) && proto == Some(58);
        let is_ip = matches!(eth_type, Some(0x0800 | 0x86dd));
        let is_mpls = matches!(eth_type, Some(0x8847 | 0x8848));
        let (met, wanted) = match field.info().prereq {
            Prereq::None => (true, String::new()),
            Prereq::InPort => (self.value_of(Field::InPort).is_some(), "in_port=…".into()),
            Prereq::Vlan => {
                let tagged = self
                    .fields
                    .get(&Field::VlanVid)
                    .is_some_and(|(vid, _)| *vid != 0);
                (tagged, "dl_vlan=…".into())
            }
            Prereq::EthType(0x8847) => (is_mpls, "mpls".into()),
            Prereq::EthType(ty) => {
                let word = names::protocol(ty, None).map(str::to_owned);
                (
                    eth_type == Some(u128::from(ty)),
                    word.unwrap_or(format!("dl_type={ty:#06x}")),
                )
            }
            Prereq::Ip => (is_ip, "ip or ipv6".into()),
            Prereq::IpProto(1) => (eth_type == Some(0x0800) && proto == Some(1), "icmp".into()),
            Prereq::IpProto(n) => {
                let word = names::protocol(0x0800, Some(n)).unwrap_or("nw_proto=…");
                (is_ip && proto == Some(u128::from(n)), word.into())
            }
            Prereq::Icmpv6 => (is_icmpv6, "icmp6".into()),
            Prereq::NdAny => {
                let is_nd = matches!(icmp_type, Some(135 | 136));
                (is_icmpv6 && is_nd, "icmp6,icmp_type=135 (or 136)".into())
            }
            Prereq::NdType(ty) => {
                let is_nd = icmp_type == Some(u128::from(ty));
                (is_icmpv6 && is_nd, format!("icmp6,icmp_type={ty}"))
            }
        };
        if met {
            return Ok(());
        }
        let named = self.named.get(&field);
        let (at, name) = named.map_or((0, field.info().set_text), |item| (item.at, item.key));
        let wanted = format!("{wanted} too: {name} is a field of it");
        Err(TextError::new(at, name, wanted))
    }
}

/// The value and mask that `text` means for `field`; `None` for a wildcard.
pub(super) fn field_value(
    item: &Item<'_>,
    field: Field,
    text: &str,
) -> Result<Option<(u128, u128)>, TextError> {
    if matches!(text, "*" | "ANY") && field != Field::InPort {
        return Ok(None);
    }
    let info = field.info();
    let (value, mask) = match values::shape(field) {
        Shape::Mac => masked_mac(text).ok_or_else(|| {
            item.wrong("an Ethernet address such as 52:54:00:12:34:56, /MASK after it if need be")
        })?,
        Shape::Ipv4 => masked_ipv4(text)
            .ok_or_else(|| item.wrong("an address such as 10.0.0.0/8 or 10.0.0.1/255.0.0.255"))?,
        Shape::Ipv6 => masked_ipv6(text)
            .ok_or_else(|| item.wrong("an address such as 2001:db8::/32 or fe80::1"))?,
        Shape::Port => {
            let port: PortNo = port(item, text)?;
            (u128::from(port.0), field.ones())
        }
        Shape::Decimal | Shape::Hex => {
            let (value, mask) = masked_number(text).ok_or_else(|| {
                item.wrong("a number, decimal or with 0x, /MASK after it if need be")
            })?;
            (
                value,
                if text.contains('/') {
                    mask & field.ones()
                } else {
                    field.ones()
                },
            )
        }
    };
    if value > field.ones() {
        return Err(item.wrong(format!("at most {:#x}", field.ones())));
    }
    if mask == 0 {
        return Ok(None);
    }
    if mask != field.ones() && !info.maskable {
        return Err(item.wrong(format!("no mask: {} is matched whole", item.key)));
    }
    Ok(Some((value & mask, mask)))
}

pub(super) fn port(item: &Item<'_>, text: &str) -> Result<PortNo, TextError> {
    let wanted = "a port number or IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL, ANY";
    match number(text) {
        // The reserved ports by their 16-bit numbers of 1.0, as Open vSwitch reads them.
        Some(n @ 0xfff8..=0xffff) => Ok(PortNo(0xffff_0000 | n as u32)),
        Some(n) => u32::try_from(n).map(PortNo).map_err(|_| item.wrong(wanted)),
        None => text.parse().map_err(|_| item.wrong(wanted)),
    }
}

/// Parses `0xHEADER:PAYLOAD`, both in hex; the header's length byte is the payload's length.
pub(super) fn oxm(item: &Item<'_>, text: &str) -> Result<MatchField, TextError> {
    let wanted = "oxm=0xHEADER:PAYLOAD, the header's last byte the payload's length";
    let (header, payload) = text.split_once(':').ok_or_else(|| item.wrong(wanted))?;
    let header = number(header).and_then(|n| u32::try_from(n).ok());
    let payload = values::unhex(payload);
    match (header, payload) {
        (Some(header), Some(payload)) if (header & 0xff) as usize == payload.len() => {
            Ok(MatchField::Other {
                header,
                payload: Bytes::from(payload),
            })
        }
        _ => Err(item.wrong(wanted)),
    }
}

/// Parses a decimal number, or hex after `0x`. A leading zero is refused: `ovs-ofctl` reads such
/// numbers as octal.
pub(super) fn number(text: &str) -> Option<u128> {
    let digits = |text: &str, radix: u32| {
        let all = text.chars().all(|c| c.is_digit(radix));
        (all && !text.is_empty())
            .then(|| u128::from_str_radix(text, radix).ok())
            .flatten()
    };
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => None,
        None => digits(text, 10),
    }
}

/// Parses `VALUE/MASK`, or `VALUE` with a mask of all ones; `-1` is such a mask too.
pub(super) fn masked_number(text: &str) -> Option<(u128, u128)> {
    match text.split_once('/') {
        Some((value, "-1")) => Some((number(value)?, u128::MAX)),
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u128::MAX)),
    }
}

fn masked_mac(text: &str) -> Option<(u128, u128)> {
    let mac = |text: &str| {
        text.parse()
            .ok()
            .map(|mac: MacAddr| u128::from(mac.to_u64()))
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((mac(value)?, mac(mask)?)),
        None => Some((mac(text)?, Field::EthDst.ones())),
    }
}

fn masked_ipv4(text: &str) -> Option<(u128, u128)> {
    let ip = |text: &str| {
        text.parse()
            .ok()
            .map(|ip: Ipv4Addr| u128::from(ip.to_bits()))
    };
    masked_address(text, 32, ip)
}

fn masked_ipv6(text: &str) -> Option<(u128, u128)> {
    let ip = |text: &str| text.parse().ok().map(|ip: Ipv6Addr| ip.to_bits());
    masked_address(text, 128, ip)
}

fn masked_address(
    text: &str,
    bits: u32,
    address: impl Fn(&str) -> Option<u128>,
) -> Option<(u128, u128)> {
    let Some((value, mask)) = text.split_once('/') else {
        return Some((address(text)?, values::prefix_mask(bits, bits)));
    };
    let mask = match mask.parse::<u32>() {
        Ok(len) if len <= bits => values::prefix_mask(len, bits),
        Ok(_) => return None,
        Err(_) => address(mask)?,
    };
    Some((address(value)?, mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error names what to write, and its column is the start of the word.
    #[test]
    fn words_that_openflow_1_3_has_no_field_for_say_so() {
        for (text, said) in [
            (
                "ip,nw_frag=no",
                "column 4: 'nw_frag' found, write nw_src, nw_dst or nw_proto",
            ),
            (
                "tcp,tcp_flags=+syn",
                "column 5: 'tcp_flags' found, write tcp_src or tcp_dst: ",
            ),
            ("ct_state=+trk", "OpenFlow 1.3 has no state of connections"),
            ("ip,reg7=1", "write metadata: OpenFlow 1.3 has no registers"),
            (
                "tun_src=1.2.3.4",
                "OpenFlow 1.3 has no field of tunnels but tun_id",
            ),
            ("ip,nw_ttl=1", "OpenFlow 1.3 has no field for the TTL"),
            ("nw_frag", "OpenFlow 1.3 has no field for fragments"),
            ("region=1", "write a field such as in_port"),
        ] {
            let error = parse_match(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(parse_match("tun_id=1").is_ok());
    }
}
