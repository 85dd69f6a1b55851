//! A match as clients of Ryu write it: a JSON table of fields, by old names and new, with numbers
//! as numbers or as texts, decimal or hexadecimal.

use std::net::{Ipv4Addr, Ipv6Addr};

use openflow::match_fields::{FIELDS, Field, VLAN_PRESENT};
use openflow::{MacAddr, Match, PortNo};
use serde_json::{Map, Value};

/// All mistakes in a match, each with its field.
pub type Wrong = Vec<(String, String)>;

const ETH_TYPE_ARP: u128 = 0x0806;

/// # Errors
/// Every invalid field, with the reason.
pub fn parse(fields: &Map<String, Value>) -> Result<Match, Wrong> {
    let mut wrong = Wrong::new();
    let number = |keys: [&str; 2]| {
        let value = keys.into_iter().find_map(|key| fields.get(key));
        value.and_then(|value| integer(value).ok())
    };
    let is_arp = number(["dl_type", "eth_type"]) == Some(ETH_TYPE_ARP);
    let proto = number(["nw_proto", "ip_proto"]);
    let mut found: Vec<(Field, u128, Option<u128>)> = Vec::new();
    for (key, value) in fields {
        let Some(field) = field(key, is_arp, proto) else {
            let why = match key.as_str() {
                "tp_src" | "tp_dst" => "needs nw_proto 6, 17 or 132".to_owned(),
                _ => "is no field of a match".to_owned(),
            };
            wrong.push((key.clone(), why));
            continue;
        };
        match read(field, value) {
            Ok(_) if found.iter().any(|(other, ..)| *other == field) => {
                wrong.push((
                    key.clone(),
                    "is said twice, by its old name and its new".to_owned(),
                ));
            }
            Ok((value, mask)) => found.push((field, value, mask)),
            Err(why) => wrong.push((key.clone(), why)),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    // By number, since a field's prerequisites precede it.
    found.sort_by_key(|(field, ..)| *field as u8);
    let with = |all: Match, (field, value, mask): (Field, u128, Option<u128>)| match mask {
        None => all.with(field, value),
        Some(mask) => all.with_masked(field, value & mask, mask),
    };
    Ok(found.into_iter().fold(Match::any(), with))
}

fn field(key: &str, is_arp: bool, proto: Option<u128>) -> Option<Field> {
    Some(match key {
        "dl_dst" | "eth_dst" => Field::EthDst,
        "dl_src" | "eth_src" => Field::EthSrc,
        "dl_type" | "eth_type" => Field::EthType,
        "dl_vlan" | "vlan_vid" => Field::VlanVid,
        "nw_proto" | "ip_proto" => Field::IpProto,
        "nw_src" if is_arp => Field::ArpSpa,
        "nw_dst" if is_arp => Field::ArpTpa,
        "nw_src" | "ipv4_src" => Field::Ipv4Src,
        "nw_dst" | "ipv4_dst" => Field::Ipv4Dst,
        "ip_ecn" => Field::IpEcn,
        "icmpv4_type" => Field::Icmpv4Type,
        "icmpv4_code" => Field::Icmpv4Code,
        "ipv6_flabel" => Field::Ipv6Flabel,
        "ipv6_nd_target" => Field::Ipv6NdTarget,
        "ipv6_nd_sll" => Field::Ipv6NdSll,
        "ipv6_nd_tll" => Field::Ipv6NdTll,
        "tunnel_id" => Field::TunnelId,
        "tp_src" => match proto? {
            6 => Field::TcpSrc,
            17 => Field::UdpSrc,
            132 => Field::SctpSrc,
            _ => return None,
        },
        "tp_dst" => match proto? {
            6 => Field::TcpDst,
            17 => Field::UdpDst,
            132 => Field::SctpDst,
            _ => return None,
        },
        // The other fields have the same names here.
        "in_port" | "in_phy_port" | "metadata" | "vlan_pcp" | "ip_dscp" | "tcp_src" | "tcp_dst"
        | "udp_src" | "udp_dst" | "sctp_src" | "sctp_dst" | "arp_op" | "arp_spa" | "arp_tpa"
        | "arp_sha" | "arp_tha" | "ipv6_src" | "ipv6_dst" | "icmpv6_type" | "icmpv6_code"
        | "mpls_label" | "mpls_tc" | "mpls_bos" | "pbb_isid" | "ipv6_exthdr" => {
            let info = FIELDS.iter().find(|info| info.text == key)?;
            info.field
        }
        _ => return None,
    })
}

/// Reads a value and a mask.
fn read(field: Field, value: &Value) -> Result<(u128, Option<u128>), String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(format!("is {value}; it must be a number or a text")),
    };
    let (plain, mask) = match text.split_once('/') {
        Some((plain, mask)) => (plain, Some(mask)),
        None => (&text[..], None),
    };
    if mask.is_some() && !field.info().maskable {
        return Err("takes no mask".to_owned());
    }
    let number = one(field, plain, mask.is_none())?;
    let mask = mask.map(|mask| match mask.parse::<u8>() {
        Ok(bits) if is_address(field) => prefix(field, bits),
        _ => one(field, mask, false),
    });
    let mask = mask.transpose()?;
    let number = match (field, value) {
        // A number or decimal digits are the id in a tag; hexadecimal digits are the whole field.
        (Field::VlanVid, value) if mask.is_none() && is_decimal(value) => number | VLAN_PRESENT,
        _ => number,
    };
    let fits = |n: u128| n <= field.ones();
    if !fits(number) || mask.is_some_and(|mask| !fits(mask)) {
        return Err(format!("{text} is more than {} bits", field.info().bits));
    }
    Ok((number, mask))
}

fn is_decimal(value: &Value) -> bool {
    match value {
        Value::String(text) => text.bytes().all(|b| b.is_ascii_digit()),
        _ => true,
    }
}

fn is_address(field: Field) -> bool {
    let is_ip = matches!(
        field,
        Field::Ipv4Src | Field::Ipv4Dst | Field::ArpSpa | Field::ArpTpa
    );
    is_ip || field.info().bits == 128
}

fn prefix(field: Field, bits: u8) -> Result<u128, String> {
    let width = u32::from(field.info().bits);
    if u32::from(bits) > width {
        return Err(format!("/{bits} is more than /{width}"));
    }
    let hosts = width - u32::from(bits);
    let rest = u128::MAX.checked_shl(hosts).unwrap_or(0);
    Ok(rest & field.ones())
}

fn one(field: Field, text: &str, names: bool) -> Result<u128, String> {
    let wrong = |wanted: &str| format!("'{text}' is not {wanted}");
    match field.info().bits {
        48 => {
            let mac = text.parse::<MacAddr>();
            mac.map(|mac| mac.to_u64().into())
        }
        128 => {
            let ip = text.parse::<Ipv6Addr>();
            ip.map(u128::from).map_err(|_| wrong("an IPv6 address"))
        }
        _ if is_address(field) => {
            let ip = text.parse::<Ipv4Addr>();
            let ip = ip.map(|ip| u128::from(u32::from(ip)));
            ip.map_err(|_| wrong("an IPv4 address"))
        }
        _ => match digits(text) {
            Some(number) => Ok(number),
            None if field == Field::InPort && names => {
                let port = text.parse::<PortNo>();
                port.map(|port| port.0.into())
            }
            None => Err(wrong("a number, decimal or as 0x…")),
        },
    }
}

pub fn digits(text: &str) -> Option<u128> {
    let (text, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    is_plain.then(|| u128::from_str_radix(text, radix).ok())?
}

/// Reads a number, or a text of one.
pub fn integer(value: &Value) -> Result<u128, String> {
    let found = match value {
        Value::Number(number) => number.as_u64().map(u128::from),
        Value::String(text) => digits(text),
        _ => None,
    };
    found.ok_or_else(|| format!("is {value}; it must be a number"))
}

#[cfg(test)]
mod tests {
    use openflow::text::parse_match;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::show;
    use super::*;

    fn read(value: Value) -> Result<Match, Wrong> {
        let Value::Object(fields) = value else {
            panic!("a table");
        };
        parse(&fields)
    }

    #[test]
    fn a_match_of_ryus_documentation_is_read() {
        let found = read(json!({
            "dl_type": 2048, "nw_proto": "6", "nw_src": "10.0.0.1/24", "tp_dst": "0x50",
            "in_port": "LOCAL", "dl_src": "aa:bb:cc:11:22:33/00:00:00:00:ff:ff", "dl_vlan": 7
        }));
        let expected = parse_match(
            "in_port=LOCAL,dl_src=00:00:00:00:22:33/00:00:00:00:ff:ff,dl_type=0x0800,\
             vlan_vid=0x1007,nw_proto=6,nw_src=10.0.0.0/24,tcp_dst=80",
        );
        let (found, expected) = (found.unwrap(), expected.unwrap());
        for field in FIELDS {
            assert_eq!(
                found.get(field.field),
                expected.get(field.field),
                "{}",
                field.text
            );
        }
        assert_eq!(found.fields.len(), expected.fields.len());
    }

    #[test]
    fn addresses_of_arp_and_tags_have_their_own_ways() {
        let found = read(json!({"dl_type": "0x0806", "nw_src": "10.0.0.1"})).unwrap();
        assert_eq!(found.exact(Field::ArpSpa), Some(0x0a00_0001));
        for (written, expected) in [
            (json!(5), (0x1005, None)),
            (json!("5"), (0x1005, None)),
            (json!("0x1005"), (0x1005, None)),
            (json!("0x0000"), (0, None)),
            (json!("0x1000/0x1000"), (0x1000, Some(0x1000))),
        ] {
            let found = super::read(Field::VlanVid, &written);
            assert_eq!(found, Ok(expected), "{written}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_told_by_field() {
        let wrong = read(json!({
            "dl_typ": 1, "nw_src": "10.0.0", "nw_dst": "10.0.0.1/33", "tp_src": 80,
            "dl_type": "0x0800/0xff00", "ip_dscp": 64, "in_port": [1], "dl_dst": "02:00",
            "eth_src": "02:00:00:00:00:01", "dl_src": "02:00:00:00:00:01"
        }));
        let wrong: std::collections::BTreeMap<_, _> = wrong.unwrap_err().into_iter().collect();
        for (field, part) in [
            ("dl_typ", "is no field"),
            ("nw_src", "is not an IPv4 address"),
            ("nw_dst", "/33 is more than /32"),
            ("tp_src", "needs nw_proto"),
            ("dl_type", "takes no mask"),
            ("ip_dscp", "more than 6 bits"),
            ("in_port", "a number or a text"),
            ("dl_dst", "not an Ethernet address"),
        ] {
            let told = wrong
                .get(field)
                .unwrap_or_else(|| panic!("{field}: {wrong:?}"));
            assert!(told.contains(part), "{field}: {told}");
        }
        let twice = ["eth_src", "dl_src"]
            .iter()
            .filter_map(|key| wrong.get(*key));
        assert!(twice.into_iter().any(|told| told.contains("twice")));
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<u64>().prop_map(|n| json!(n)),
            (0..70_000u64).prop_map(|n| json!(n)),
            "[0-9a-fx:./]{0,20}".prop_map(|text| json!(text)),
            Just(json!("10.0.0.7/255.255.0.0")),
            Just(json!("fd00::/16")),
            Just(json!("02:00:00:00:00:01")),
            any::<bool>().prop_map(|is| json!(is)),
            Just(json!(null)),
        ]
    }

    fn key() -> impl Strategy<Value = String> {
        let known = [
            "in_port", "dl_src", "dl_dst", "dl_type", "dl_vlan", "nw_proto", "nw_src", "nw_dst",
            "ipv6_src", "tp_src", "tp_dst", "ip_dscp", "metadata", "udp_dst", "arp_spa", "eth_src",
        ];
        prop_oneof![
            prop::sample::select(known.to_vec()).prop_map(str::to_owned),
            "[a-z_]{0,8}"
        ]
    }

    fn ports_alone(found: &Match) -> bool {
        let proto = found.exact(Field::IpProto);
        let of = [
            (6, [Field::TcpSrc, Field::TcpDst]),
            (17, [Field::UdpSrc, Field::UdpDst]),
            (132, [Field::SctpSrc, Field::SctpDst]),
        ];
        let mut others = of.into_iter().filter(|(number, _)| proto != Some(*number));
        others.any(|(_, fields)| fields.into_iter().any(|field| found.get(field).is_some()))
    }

    proptest! {
        /// Any input gives a match or a reason. A match that is read and shown reads the same
        /// again, except for ports without a protocol: Ryu shows them without it.
        #[test]
        fn what_is_read_is_shown_and_read_again(
            fields in prop::collection::btree_map(key(), value(), 0..5)
        ) {
            let fields: Map<String, Value> = fields.into_iter().collect();
            match parse(&fields) {
                Err(wrong) => prop_assert!(!wrong.is_empty()),
                Ok(found) if ports_alone(&found) => {}
                Ok(found) => {
                    let shown = show::matching(&found);
                    let again = parse(shown.as_object().unwrap());
                    prop_assert_eq!(again, Ok(found), "{}", shown);
                }
            }
        }
    }
}
