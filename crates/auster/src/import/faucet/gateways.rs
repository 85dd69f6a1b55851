//! Gateways and static routes of Faucet's VLANs. Faucet routes between the VLANs of one router; in
//! auster all VLANs with a gateway are one router. So gateways are carried over only if both route
//! between the same VLANs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use openflow::MacAddr;

use super::keys;
use super::{Vlans, entries};
use crate::import::report::{At, Report, shown};
use crate::import::yaml::{Entry, Node, Value};

/// The gateway of a VLAN, as written in the file.
#[derive(Debug, Default)]
pub struct Gateway {
    at: Option<At>,
    pub addresses: Vec<String>,
    pub mac: Option<String>,
    /// Networks and their next hops.
    pub routes: Vec<(String, String)>,
}

impl Gateway {
    /// Reads a key of a VLAN. Returns whether it was about a gateway.
    pub fn read(&mut self, entry: &Entry, path: &str, report: &mut Report) -> bool {
        let path = format!("{path}.{}", entry.key);
        match entry.key.as_str() {
            "faucet_vips" => {
                self.at = Some(entry.at);
                for item in list(&entry.value) {
                    match item.text().filter(|text| is_network(text)) {
                        Some(text) => self.addresses.push(text),
                        None => wrong(item, &path, "an address such as 10.0.0.254/24", report),
                    }
                }
            }
            "faucet_mac" => match entry.value.text() {
                Some(text) if text.parse::<MacAddr>().is_ok() => self.mac = Some(text),
                _ => wrong(&entry.value, &path, "an Ethernet address", report),
            },
            "routes" => {
                for item in list(&entry.value) {
                    match route(item) {
                        Some(route) => self.routes.push(route),
                        None => wrong(item, &path, "route: {ip_dst: NETWORK, ip_gw: IP}", report),
                    }
                }
            }
            _ => return false,
        }
        true
    }
}

fn wrong(node: &Node, path: &str, wanted: &str, report: &mut Report) {
    let found = shown(&node.text().unwrap_or_default());
    report.mistake(node.at, format!("{path}: '{found}' is not {wanted}"));
}

fn list(node: &Node) -> Vec<&Node> {
    match &node.value {
        Value::List(items) => items.iter().map(|item| &**item).collect(),
        _ if node.is_null() => Vec::new(),
        _ => vec![node],
    }
}

fn is_network(text: &str) -> bool {
    let (ip, length) = text.split_once('/').unwrap_or((text, "x"));
    let max = match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= max)
}

fn route(item: &Node) -> Option<(String, String)> {
    let Value::Map(outer) = &item.value else {
        return None;
    };
    let [entry] = &outer[..] else {
        return None;
    };
    let Value::Map(fields) = &entry.value.value else {
        return None;
    };
    let text = |key: &str| fields.iter().find(|field| field.key == key)?.value.text();
    let (to, via) = (text("ip_dst")?, text("ip_gw")?);
    let is_right = entry.key == "route" && is_network(&to) && via.parse::<IpAddr>().is_ok();
    is_right.then_some((to, via))
}

/// Drops the gateways that auster would route between more VLANs than Faucet does.
pub fn judge(vlans: &mut Vlans, routers: &[Entry], report: &mut Report) {
    let has_gateway = |vlan: &super::Vlan| !vlan.gateway.addresses.is_empty();
    let with = vlans.by_id.iter().filter(|(_, vlan)| has_gateway(vlan));
    let with: BTreeSet<u16> = with.map(|(id, _)| *id).collect();
    let mut of_routers = Vec::new();
    for router in routers {
        let path = format!("routers.{}", shown(&router.key));
        let mut members = BTreeSet::new();
        for field in entries(&router.value, &path, report) {
            match field.key.as_str() {
                "vlans" => {
                    let path = format!("{path}.vlans");
                    let found = list(&field.value).into_iter();
                    members.extend(found.filter_map(|node| vlans.find(node, &path, report)));
                }
                _ if field.value.is_null() => {}
                _ => report.left_out(field.at, &path, keys::ROUTER),
            }
        }
        of_routers.push(members);
    }
    let is_same = with.len() < 2 || of_routers.len() == 1 && with.is_subset(&of_routers[0]);
    if is_same {
        return;
    }
    for (id, vlan) in &mut vlans.by_id {
        let gateway = std::mem::take(&mut vlan.gateway);
        if let Some(at) = gateway.at {
            report.left_out(at, &format!("VLAN {id}: faucet_vips"), keys::ROUTERS);
        }
    }
}
