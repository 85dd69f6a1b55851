//! Gateways of VLANs, and the routes behind them.
//!
//! ```toml
//! [[vlan]]
//! id = 10
//! gateway = ["10.0.10.254/24", "fd00:10::1/64"]
//! gateway_mac = "0e:00:00:00:00:01"    # optional
//!
//! [[route]]
//! to = "0.0.0.0/0"
//! via = "10.0.20.1"                    # in a gateway's network
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use control::controller::can_be_gateway;
use control::routing::{GATEWAY_MAC, Gateway, Gateways, Subnet, is_routed};
use control::timeouts::Prefix;
use control::vlan::VlanId;
use openflow::MacAddr;
use toml::de::DeTable;

use super::fields::{Fields, Value, items};

const ROUTE: [&str; 2] = ["to", "via"];
const IDS: std::ops::RangeInclusive<u64> = 1..=4094;

/// The most static routes: the first packet of each flow is compared with all of them.
const ROUTES_MAX: usize = 1024;
/// The most networks that a message names.
const NAMED_MAX: usize = 8;

/// Reads the gateways and routes of the file. Mistakes go to `fields`.
pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>) -> Gateways {
    let mut reader = Reader::default();
    for (_, table) in fields.tables_at(root, "vlan") {
        reader.read_vlan(fields, table);
    }
    for (n, (place, table)) in fields.tables_at(root, "route").into_iter().enumerate() {
        if n == ROUTES_MAX {
            fields.problem(
                &place,
                format!("there are more than {ROUTES_MAX} [[route]]"),
            );
        }
        reader.read_route(fields, &place, table);
    }
    reader.gateways
}

#[derive(Default)]
struct Reader {
    gateways: Gateways,
    /// The networks of all gateways, with the lines that state them.
    subnets: Vec<(Subnet, VlanId, usize)>,
    /// Whether a gateway has a mistake, so that its network is not known.
    is_wrong: bool,
    routes: BTreeMap<Prefix, usize>,
}

impl Reader {
    fn read_vlan<'a>(&mut self, fields: &mut Fields<'a>, table: &DeTable<'a>) {
        // A mistake in the id is reported where VLANs are read, and only there.
        let id = fields.integer(table, "id", IDS);
        let id = id.and_then(|id| VlanId::new(u16::try_from(id).ok()?));
        let example = "10.0.10.254/24";
        let stated = fields.list_at(table, "gateway", example, str::parse::<Subnet>);
        let mac = fields.parsed(table, "gateway_mac", "0e:00:00:00:00:01", gateway_mac);
        self.is_wrong |= stated.len() < items(table, "gateway").len() || id.is_none();
        let has_gateway = table.get("gateway").is_some();
        if let Some(value) = table.get("gateway_mac").filter(|_| !has_gateway) {
            let problem = "gateway_mac needs gateway = [...], the addresses of the gateway";
            fields.problem(&value.span(), problem);
        }
        let empty = table
            .get("gateway")
            .filter(|_| items(table, "gateway").is_empty());
        if let Some(value) = empty {
            let problem = "gateway is empty; list addresses such as [\"10.0.10.254/24\"]";
            fields.problem(&value.span(), problem);
        }
        let Some(vlan) = id else {
            return;
        };
        let mut subnets = Vec::new();
        for (place, subnet) in stated {
            if self.fits(fields, (&place, vlan), subnet) {
                subnets.push(subnet);
            }
            let line = fields.line(&place);
            self.subnets.push((subnet, vlan, line));
        }
        if !subnets.is_empty() {
            let mac = mac.unwrap_or(GATEWAY_MAC);
            self.gateways.vlans.insert(vlan, Gateway { mac, subnets });
        }
    }

    /// Whether a subnet shares no address with earlier subnets.
    fn fits(
        &self,
        fields: &mut Fields<'_>,
        (place, vlan): (&Range<usize>, VlanId),
        subnet: Subnet,
    ) -> bool {
        let shares = |other: &Subnet| {
            let (a, b) = (other.network, subnet.network);
            a.contains(b.ip()) || b.contains(a.ip())
        };
        let mut others = self.subnets.iter();
        let other = others.find(|(other, of, _)| {
            let is_same_network = *of == vlan && other.network == subnet.network;
            other.address == subnet.address || shares(other) && !is_same_network
        });
        let Some((other, of, line)) = other else {
            return true;
        };
        let problem = match other.address == subnet.address {
            true => format!(
                "gateway: {} is VLAN {of}'s gateway already, in line {line}",
                subnet.address
            ),
            false => format!(
                "gateway: {subnet} overlaps {other} of VLAN {of}, in line {line}; a network is one \
                 VLAN's"
            ),
        };
        fields.problem(place, problem);
        false
    }

    fn read_route<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        place: &Range<usize>,
        table: &DeTable<'a>,
    ) {
        fields.only(table, "[route]", &ROUTE);
        if !table.contains_key("to") {
            fields.problem(place, "to is missing: a network such as \"0.0.0.0/0\"");
        }
        if !table.contains_key("via") {
            fields.problem(place, "via is missing: the next hop, such as \"10.0.20.1\"");
        }
        let to = fields.parsed(table, "to", "0.0.0.0/0", str::parse::<Prefix>);
        let via = fields.parsed(table, "via", "10.0.20.1", next_hop);
        let at = |key: &str| table.get(key).map_or(place.clone(), Value::span);
        if let Some(to) = to {
            self.check_network(fields, &at("to"), to);
        }
        if let Some(via) = via {
            self.check_next_hop(fields, &at("via"), via);
        }
        let Some((to, via)) = to.zip(via) else {
            return;
        };
        if to.ip().is_ipv4() != via.is_ipv4() {
            let problem = format!("via: {via} and {to} must both be of IPv4, or both of IPv6");
            fields.problem(&at("via"), problem);
        }
        self.gateways.routes.insert(to, via);
    }

    fn check_network(&mut self, fields: &mut Fields<'_>, place: &Range<usize>, to: Prefix) {
        let line = fields.line(place);
        if let Some(before) = self.routes.insert(to, line) {
            fields.problem(
                place,
                format!("to: {to} has a route already, in line {before}"),
            );
        }
        let mut subnets = self.subnets.iter();
        if let Some((_, vlan, line)) = subnets.find(|(subnet, ..)| subnet.network == to) {
            let problem = format!(
                "to: {to} is VLAN {vlan}'s own network by the gateway in line {line}; it needs no \
                 route"
            );
            fields.problem(place, problem);
        }
    }

    fn check_next_hop(&self, fields: &mut Fields<'_>, place: &Range<usize>, via: IpAddr) {
        let mut subnets = self.subnets.iter();
        let of = subnets.find(|(subnet, ..)| subnet.network.contains(via));
        let problem = match of {
            Some((subnet, ..)) if subnet.address == via => {
                format!("via: {via} is a gateway's own address; name the router behind it")
            }
            Some(_) => return,
            // The missing gateway may be one that could not be read.
            None if self.is_wrong => return,
            None => format!("via: {via} is in no gateway's network; {}", self.known()),
        };
        fields.problem(place, problem);
    }

    fn known(&self) -> String {
        if self.subnets.is_empty() {
            return "state gateway = [...] in the [[vlan]] of the next hop".to_owned();
        }
        let networks = self.subnets.iter().map(|(subnet, ..)| subnet.network);
        let mut shown: Vec<String> = networks.take(NAMED_MAX).map(|it| it.to_string()).collect();
        if self.subnets.len() > NAMED_MAX {
            shown.push("...".to_owned());
        }
        format!("use an address in one of {}", shown.join(", "))
    }
}

/// The Ethernet address of a gateway.
fn gateway_mac(text: &str) -> Result<MacAddr, String> {
    let mac = text.parse::<MacAddr>().ok();
    mac.filter(|mac| can_be_gateway(*mac)).ok_or_else(|| {
        format!("'{text}' is no Ethernet address of one host, such as 0e:00:00:00:00:01")
    })
}

fn next_hop(text: &str) -> Result<IpAddr, String> {
    let ip = text.parse::<IpAddr>().ok();
    ip.filter(|ip| is_routed(*ip)).ok_or_else(|| {
        format!("'{text}' is no address of a router, such as 10.0.20.1 or fd00:20::9")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn parsed(text: &str) -> Result<Gateways, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let gateways = read(&mut fields, &root);
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| gateways)
    }

    const VLANS: &str = "[[vlan]]\nid = 10\ngateway = \"10.0.10.254/24\"\n\
                         [[vlan]]\nid = 20\ngateway = [\"10.0.20.254/24\", \"fd00:20::1/64\"]\n";

    #[test]
    fn gateways_and_routes_are_read() {
        let text = format!(
            "{VLANS}gateway_mac = \"0e:00:00:00:00:07\"\n[[vlan]]\nid = 30\n\
             [[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.20.1\"\n\
             [[route]]\nto = \"2001:db8::/32\"\nvia = \"fd00:20::9\"\n"
        );
        let gateways = parsed(&text).unwrap();
        let vlan = |id| VlanId::new(id).unwrap();
        let ids: Vec<VlanId> = gateways.vlans.keys().copied().collect();
        assert_eq!(ids, [vlan(10), vlan(20)]);
        assert_eq!(gateways.vlans[&vlan(10)].mac, GATEWAY_MAC);
        let other = &gateways.vlans[&vlan(20)];
        assert_eq!((other.mac.0[5], other.subnets.len()), (7, 2));
        assert_eq!(gateways.routes.len(), 2);
        assert_eq!(
            gateways.vlan_of("fd00:20::9".parse().unwrap()),
            Some(vlan(20))
        );
        assert_eq!(parsed("[[vlan]]\nid = 10\n").unwrap(), Gateways::default());
        let two = "[[vlan]]\nid = 1\ngateway = [\"10.0.0.1/24\", \"10.0.0.2/24\"]\n";
        assert!(parsed(two).is_ok(), "two addresses in one network");
    }

    /// Each case follows two VLANs in six lines.
    #[test]
    fn every_mistake_is_named_with_its_line_and_field() {
        let route = |to: &str, via: &str| format!("[[route]]\nto = \"{to}\"\nvia = \"{via}\"");
        let vlan = |gateway: &str| format!("[[vlan]]\nid = 30\ngateway = {gateway}");
        let cases = [
            (
                vlan("\"10.0.30.0/24\""),
                "9: gateway: '10.0.30.0/24' is the network or broadcast address; use another \
                 address of 10.0.30.0/24",
            ),
            (
                vlan("\"10.0.30.255/24\""),
                "9: gateway: '10.0.30.255/24' is the network or broadcast address; use another \
                 address of 10.0.30.0/24",
            ),
            (
                vlan("\"10.0.30.1\""),
                "9: gateway: '10.0.30.1' is no address with a length, such as 10.0.10.254/24 or \
                 fd00:10::1/64",
            ),
            (
                vlan("\"10.0.30.1/33\""),
                "9: gateway: '10.0.30.1/33' has a length of 33; it must be a number from 1 to 32",
            ),
            (
                vlan("\"10.0.0.1/16\""),
                "9: gateway: 10.0.0.1/16 overlaps 10.0.10.254/24 of VLAN 10, in line 3; a network \
                 is one VLAN's",
            ),
            (
                vlan("\"10.0.20.1/25\""),
                "9: gateway: 10.0.20.1/25 overlaps 10.0.20.254/24 of VLAN 20, in line 6; a network \
                 is one VLAN's",
            ),
            (
                vlan("\"10.0.10.254/24\""),
                "9: gateway: 10.0.10.254 is VLAN 10's gateway already, in line 3",
            ),
            (
                vlan("[]"),
                "9: gateway is empty; list addresses such as [\"10.0.10.254/24\"]",
            ),
            (
                "[[vlan]]\nid = 30\ngateway_mac = \"0e:00:00:00:00:02\"".to_owned(),
                "9: gateway_mac needs gateway = [...], the addresses of the gateway",
            ),
            (
                format!(
                    "{}\ngateway_mac = \"01:00:5e:00:00:01\"",
                    vlan("\"10.0.30.1/24\"")
                ),
                "10: gateway_mac: '01:00:5e:00:00:01' is no Ethernet address of one host, such as \
                 0e:00:00:00:00:01",
            ),
            (
                route("0.0.0.0/0", "10.0.99.1"),
                "9: via: 10.0.99.1 is in no gateway's network; use an address in one of \
                 10.0.10.0/24, 10.0.20.0/24, fd00:20::/64",
            ),
            (
                route("0.0.0.0/0", "10.0.20.254"),
                "9: via: 10.0.20.254 is a gateway's own address; name the router behind it",
            ),
            (
                route("0.0.0.0/0", "fd00:20::9"),
                "9: via: fd00:20::9 and 0.0.0.0/0 must both be of IPv4, or both of IPv6",
            ),
            (
                route("10.0.10.0/24", "10.0.20.1"),
                "8: to: 10.0.10.0/24 is VLAN 10's own network by the gateway in line 3; it needs \
                 no route",
            ),
            (
                format!(
                    "{}\n{}",
                    route("0.0.0.0/0", "10.0.20.1"),
                    route("0.0.0.0/0", "10.0.20.2")
                ),
                "11: to: 0.0.0.0/0 has a route already, in line 8",
            ),
            (
                "[[route]]\nvia = \"10.0.20.1\"\nmetric = 3".to_owned(),
                "7: to is missing: a network such as \"0.0.0.0/0\"\n\
                 9: 'metric' is not known in [[route]]; known: to, via",
            ),
            (
                "[[route]]\nto = \"192.0.2.1/24\"".to_owned(),
                "7: via is missing: the next hop, such as \"10.0.20.1\"\n\
                 8: to: '192.0.2.1/24' has bits past its length; the network is 192.0.2.0/24",
            ),
        ];
        for (text, expected) in cases {
            let text = format!("{VLANS}{text}\n");
            let found = parsed(&text).map(|_| text.clone()).unwrap_err();
            let expected: Vec<String> = expected.lines().map(|e| format!("net.toml:{e}")).collect();
            assert_eq!(found, expected, "{text}");
        }
        let alone = parsed("[[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.20.1\"\n");
        let expected = "net.toml:3: via: 10.0.20.1 is in no gateway's network; state gateway = \
                        [...] in the [[vlan]] of the next hop";
        assert_eq!(alone.unwrap_err(), [expected]);
    }

    /// A gateway with a mistake is not also reported as missing.
    #[test]
    fn mistakes_are_named_together_and_once() {
        let text = "[[vlan]]\nid = 0\ngateway = \"10.0.10.0/24\"\n\
                    [[route]]\nto = \"0.0.0.0/0\"\nvia = \"10.0.10.1\"\n";
        let expected = [
            "net.toml:2: id is 0; it must be a number from 1 to 4094",
            "net.toml:3: gateway: '10.0.10.0/24' is the network or broadcast address; use another \
             address of 10.0.10.0/24",
        ];
        assert_eq!(parsed(text).unwrap_err(), expected);
    }

    #[test]
    fn the_manuals_examples_are_read() {
        let manual = include_str!("../../../docs/run-gateways.md");
        let examples: Vec<&str> = manual.split("```toml\n").skip(1).collect();
        let text = examples[0].split("```").next().unwrap();
        let gateways = parsed(text).unwrap();
        assert_eq!((gateways.vlans.len(), gateways.routes.len()), (2, 1));
        assert_eq!(examples.len(), 1);
    }
}
