//! Fields of a rule: their names, allowed values and notation.

use std::net::{Ipv4Addr, Ipv6Addr};

use openflow::match_fields::{FIELDS, VLAN_PRESENT};
use openflow::{Field, MacAddr, MatchField, PortNo};

const ETH_ARP: u128 = 0x0806;

/// Returns the name of `field` in a map.
pub fn field_name(field: Field) -> &'static str {
    field.info().name
}

/// Returns the value of `field` in the notation of a map, with its mask if it has one.
pub fn field_text(field: Field, value: u128, mask: Option<u128>) -> String {
    let mut text = one(field, value);
    if let Some(mask) = mask {
        text.push('/');
        text.push_str(&match shape(field) {
            Shape::Ipv4 => prefix(mask, 32).map_or_else(|| one(field, mask), |n| n.to_string()),
            Shape::Ipv6 => prefix(mask, 128).map_or_else(|| one(field, mask), |n| n.to_string()),
            Shape::Mac => one(field, mask),
            Shape::Number | Shape::Hex | Shape::Port => format!("{mask:#x}"),
        });
    }
    text
}

/// The protocol that a rule names. Some field names belong to several protocols; this decides which
/// one is meant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Protocol {
    pub eth_type: Option<u128>,
    pub ip_proto: Option<u128>,
}

/// Reason why a field cannot be read.
pub(super) enum Unread {
    Unknown { wanted: String },
    Value { wanted: String },
}

/// Reports whether `key` may name a field at all; [`read`] returns which one.
pub(super) fn is_field(key: &str) -> bool {
    matches!(key, "tp_src" | "tp_dst" | "nw_tos" | "dl_vlan") || named(key).is_some()
}

/// Reads the field that `key` means together with `protocol`, its value and mask.
pub(super) fn read(key: &str, text: &str, protocol: Protocol) -> Result<MatchField, Unread> {
    let wrong = |wanted: &str| Unread::Value {
        wanted: wanted.into(),
    };
    match key {
        "dl_vlan" => {
            let vid = match number(text) {
                Some(0xffff) => 0,
                Some(vid) if vid < 0x1000 => vid | VLAN_PRESENT,
                _ => return Err(wrong("a VLAN id up to 4095, or 0xffff for no tag")),
            };
            Ok(exact(Field::VlanVid, vid))
        }
        "nw_tos" => match number(text) {
            Some(tos) if tos < 0x100 && tos & 3 == 0 => Ok(exact(Field::IpDscp, tos >> 2)),
            _ => Err(wrong(
                "a TOS byte without its ECN bits: a multiple of 4 up to 252",
            )),
        },
        _ => {
            let field = meant(key, protocol).ok_or_else(|| Unread::Unknown {
                wanted: match key {
                    "tp_src" | "tp_dst" => {
                        "ip_proto=6, 17 or 132 too (whose port is it?), or tcp_dst, udp_dst".into()
                    }
                    _ => suggestion(key),
                },
            })?;
            value(field, text)
        }
    }
}

/// Returns a name close to `key`, which is not a name itself, or examples.
pub(super) fn suggestion(key: &str) -> String {
    const OTHERS: [&str; 7] = [
        "traffic_type",
        "msg",
        "dir",
        "dpid",
        "xid",
        "domain",
        "action",
    ];
    let names = FIELDS
        .iter()
        .flat_map(|info| [info.name, info.text, info.set_text])
        .chain(OTHERS);
    // A key from a peer may be long.
    let near = names
        .filter(|name| name.len().abs_diff(key.len()) <= 2)
        .map(|name| (strsim::levenshtein(key, name), name))
        .min()
        .filter(|(distance, _)| *distance <= 2);
    match near {
        Some((_, name)) => format!("{name}=…"),
        None => "a field such as in_port, eth_type, ip_proto, ipv4_dst, udp_dst".into(),
    }
}

fn named(key: &str) -> Option<Field> {
    match key {
        "nw_dscp" => Some(Field::IpDscp),
        _ => Field::from_name(key),
    }
}

fn meant(key: &str, protocol: Protocol) -> Option<Field> {
    let is_arp = protocol.eth_type == Some(ETH_ARP);
    let is_icmpv6 = protocol.ip_proto == Some(58);
    Some(match key {
        "nw_src" if is_arp => Field::ArpSpa,
        "nw_dst" if is_arp => Field::ArpTpa,
        "nw_proto" if is_arp => Field::ArpOp,
        "icmp_type" if is_icmpv6 => Field::Icmpv6Type,
        "icmp_code" if is_icmpv6 => Field::Icmpv6Code,
        "tp_src" | "tp_dst" => match (protocol.ip_proto?, key) {
            (6, "tp_src") => Field::TcpSrc,
            (6, _) => Field::TcpDst,
            (17, "tp_src") => Field::UdpSrc,
            (17, _) => Field::UdpDst,
            (132, "tp_src") => Field::SctpSrc,
            (132, _) => Field::SctpDst,
            (1, "tp_src") => Field::Icmpv4Type,
            (1, _) => Field::Icmpv4Code,
            (58, "tp_src") => Field::Icmpv6Type,
            (58, _) => Field::Icmpv6Code,
            _ => return None,
        },
        key => named(key)?,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Number,
    Hex,
    Mac,
    Ipv4,
    Ipv6,
    Port,
}

fn shape(field: Field) -> Shape {
    use Field as F;
    match field {
        F::InPort | F::InPhyPort => Shape::Port,
        F::EthDst | F::EthSrc | F::ArpSha | F::ArpTha | F::Ipv6NdSll | F::Ipv6NdTll => Shape::Mac,
        F::Ipv4Src | F::Ipv4Dst | F::ArpSpa | F::ArpTpa => Shape::Ipv4,
        F::Ipv6Src | F::Ipv6Dst | F::Ipv6NdTarget => Shape::Ipv6,
        F::Metadata | F::EthType | F::VlanVid | F::Ipv6Flabel | F::TunnelId => Shape::Hex,
        _ => Shape::Number,
    }
}

fn one(field: Field, value: u128) -> String {
    match shape(field) {
        Shape::Mac => MacAddr::from_u64(value as u64).to_string(),
        Shape::Ipv4 => Ipv4Addr::from_bits(value as u32).to_string(),
        Shape::Ipv6 => Ipv6Addr::from_bits(value).to_string(),
        Shape::Port => PortNo(value as u32).to_string(),
        Shape::Hex => format!("{value:#x}"),
        Shape::Number => value.to_string(),
    }
}

fn scalar(field: Field, text: &str) -> Option<u128> {
    match shape(field) {
        Shape::Mac => text.parse().ok().map(|mac: MacAddr| mac.to_u64().into()),
        Shape::Ipv4 => text.parse().ok().map(|ip: Ipv4Addr| ip.to_bits().into()),
        Shape::Ipv6 => text.parse().ok().map(|ip: Ipv6Addr| ip.to_bits()),
        Shape::Port => number(text).or_else(|| {
            let port: PortNo = text.parse().ok()?;
            Some(port.0.into())
        }),
        Shape::Hex | Shape::Number => number(text),
    }
}

fn value(field: Field, text: &str) -> Result<MatchField, Unread> {
    let wrong = |wanted: String| Unread::Value { wanted };
    let (text, mask_text) = match text.split_once('/') {
        Some((value, mask)) => (value.trim(), Some(mask.trim())),
        None => (text, None),
    };
    let ones = field.ones();
    let value = scalar(field, text).ok_or_else(|| wrong(example(field).into()))?;
    if value > ones {
        return Err(wrong(format!("at most {}", one(field, ones))));
    }
    let mask = match mask_text {
        None => ones,
        Some(mask) => {
            let prefix = match shape(field) {
                Shape::Ipv4 => prefix_mask(mask, 32),
                Shape::Ipv6 => prefix_mask(mask, 128),
                _ => None,
            };
            let mask = prefix.or_else(|| scalar(field, mask));
            mask.ok_or_else(|| wrong(format!("{} and a mask of that form", example(field))))?
        }
    };
    if mask > ones {
        return Err(wrong(format!("a mask of at most {ones:#x}")));
    }
    if mask == 0 {
        return Err(wrong(
            "no such field: a mask of 0 matches everything".into(),
        ));
    }
    if mask != ones && !field.info().maskable {
        return Err(wrong(format!(
            "no mask: {} is matched whole",
            field_name(field)
        )));
    }
    if value & !mask != 0 {
        let inside = field_text(field, value & mask, Some(mask));
        return Err(wrong(format!(
            "{inside}: no bit may be set outside the mask"
        )));
    }
    if field == Field::VlanVid && mask == ones && value != 0 && value & VLAN_PRESENT == 0 {
        return Err(wrong(format!(
            "dl_vlan={value} or vlan_vid={:#x}: a tag has the bit 0x1000",
            value | VLAN_PRESENT
        )));
    }
    Ok(MatchField::Basic {
        field,
        value,
        mask: (mask != ones).then_some(mask),
    })
}

fn example(field: Field) -> &'static str {
    match shape(field) {
        Shape::Mac => "an Ethernet address such as 52:54:00:12:34:56",
        Shape::Ipv4 => "an address such as 10.0.0.1 or 10.0.0.0/8",
        Shape::Ipv6 => "an address such as fe80::1 or 2001:db8::/32",
        Shape::Port => "a port number, or LOCAL, CONTROLLER",
        Shape::Hex | Shape::Number => "a number, decimal or with 0x",
    }
}

fn exact(field: Field, value: u128) -> MatchField {
    MatchField::exact(field, value)
}

/// Reads a decimal number, or hex after `0x`.
pub(super) fn number(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // `from_str_radix` accepts a sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, radix).ok()
}

fn prefix(mask: u128, bits: u32) -> Option<u32> {
    let len = mask.count_ones();
    (mask == prefix_of(len, bits)).then_some(len)
}

fn prefix_mask(text: &str, bits: u32) -> Option<u128> {
    let len = text.parse::<u32>().ok().filter(|len| *len <= bits)?;
    Some(prefix_of(len, bits))
}

fn prefix_of(len: u32, bits: u32) -> u128 {
    let all = u128::MAX >> (128 - bits);
    if len >= bits {
        all
    } else {
        all & !(all >> len)
    }
}
