//! The network as pages and programs are shown it: ports, cables, hosts and paths.
//!
//! Each answer is made at one moment. An answer about hosts or paths has a bounded length, and the
//! reader asks for what follows.

use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use openflow::message::PortName;
use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;
use crate::timeouts::Prefix;
use crate::topology::Difference;
use crate::vlan::VlanId;

use super::Controller;
use super::event::{HostView, SwitchView};
use super::hosts::Hosts;
use super::links::Pair;
use super::network::SwitchPort;
use super::port_state::PortRole;

/// The use that forwarding makes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortUse {
    Down,
    /// Up, and LLDP may still be answered.
    Held,
    /// Hosts may be behind it.
    Edge,
    /// LLDP passes, but does not prove a link yet.
    Claimed,
    Link,
    /// A former end of a link, where LLDP no longer arrives.
    Silent,
    /// A port of a bond that carries packets.
    Bond,
    /// A guard has closed it, or no port of its bond carries packets.
    Closed,
}

impl PortUse {
    pub fn name(self) -> &'static str {
        match self {
            PortUse::Down => "down",
            PortUse::Held => "held",
            PortUse::Edge => "edge",
            PortUse::Claimed => "claimed",
            PortUse::Link => "link",
            PortUse::Silent => "silent",
            PortUse::Bond => "bond",
            PortUse::Closed => "closed",
        }
    }
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDetail {
    pub at: Location,
    pub name: PortName,
    pub hw_addr: MacAddr,
    pub is_up: bool,
    /// In kbit/s; 0 if the switch does not say.
    pub speed_kbit: u32,
    pub used_as: PortUse,
    pub host_count: usize,
}

/// A link in both directions, its lower end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    pub from: Location,
    pub to: Location,
    /// Both directions are proven.
    pub is_usable: bool,
    pub is_drained: bool,
    pub is_doubted: bool,
    /// It drops full-size frames with the fabric's tag.
    pub is_narrow: bool,
    /// Whether the administrator's topology names it; `None` without one.
    pub is_stated: Option<bool>,
}

/// Everything at one moment, except hosts and paths.
#[derive(Clone, Debug, Default)]
pub struct NetworkView {
    pub switches: Vec<SwitchView>,
    /// Sorted by switch and number.
    pub ports: Vec<PortDetail>,
    pub cables: Vec<Cable>,
    /// Against the administrator's topology; `None` without one.
    pub differences: Option<Vec<Difference>>,
    pub host_count: usize,
}

/// Which hosts are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostQuery {
    pub at: Option<DatapathId>,
    pub vlan: Option<VlanId>,
    pub names: Names,
    /// Those behind this one, by address and then VLAN.
    pub after: Option<(MacAddr, VlanId)>,
    pub limit: usize,
}

/// The hosts that a text names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    #[default]
    All,
    /// Those whose first `digits` hexadecimal digits are these.
    Mac {
        value: u64,
        digits: u32,
    },
    Network(Prefix),
}

/// Some of the hosts that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPage {
    pub hosts: Vec<HostDetail>,
    /// All that are wanted, on this page or not.
    pub total: usize,
    /// Whether there are others behind the last.
    pub has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDetail {
    pub host: HostView,
    /// It has been heard at its place; otherwise only an entry says that it is there.
    pub is_heard: bool,
    /// The port that claims its address while it is asked.
    pub claimed_at: Option<Location>,
}

/// A host by one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostName {
    Mac(MacAddr),
    Ip(IpAddr),
}

/// Which paths are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathQuery {
    pub src: Option<HostName>,
    pub dst: Option<HostName>,
    pub after: Option<(MacAddr, MacAddr)>,
    pub limit: usize,
}

/// The entries' way of one pair. In hybrid mode and in the fabric, a pair has an entry of its own
/// at its first switch only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathView {
    pub src: MacAddr,
    pub dst: MacAddr,
    /// Switch, in-port and out-port.
    pub hops: Vec<(DatapathId, PortNo, PortNo)>,
    /// Whether the switches have confirmed it; `None` if nobody asked them.
    pub is_confirmed: Option<bool>,
}

impl Names {
    fn has_mac(self, mac: MacAddr) -> bool {
        match self {
            Names::All | Names::Network(_) => true,
            Names::Mac { value, digits } => {
                let dropped = 4 * 12u32.saturating_sub(digits);
                mac.to_u64().checked_shr(dropped).unwrap_or(0) == value
            }
        }
    }
}

impl Controller {
    /// The switches, ports and cables, and the differences from the administrator's topology.
    pub fn network_view(&self) -> NetworkView {
        NetworkView {
            switches: self.switches(),
            ports: self.ports(),
            cables: self.cables(),
            differences: self.has_topology().then(|| self.topology_differences()),
            host_count: self.host_count(),
        }
    }

    /// All ports, by switch and number.
    pub fn ports(&self) -> Vec<PortDetail> {
        let mut hosts: BTreeMap<Location, usize> = BTreeMap::new();
        for of_vlan in self.all_hosts() {
            for (at, count) in of_vlan.1.counts() {
                *hosts.entry(at).or_default() += count;
            }
        }
        let of_switch = |switch: &super::network::Switch| {
            let dpid = switch.dpid;
            let ports = switch.ports.iter();
            let ports = ports.map(|(port, known)| (Location { dpid, port: *port }, known.clone()));
            ports.collect::<Vec<_>>()
        };
        let ports = self.network.switches().flat_map(of_switch);
        let detail = |(at, known): (Location, SwitchPort)| PortDetail {
            at,
            name: known.name,
            hw_addr: known.hw_addr,
            is_up: known.state.is_up(),
            speed_kbit: known.speed_kbit,
            used_as: self.port_use(at),
            host_count: hosts.get(&at).copied().unwrap_or(0),
        };
        ports.map(detail).collect()
    }

    fn port_use(&self, at: Location) -> PortUse {
        let net = &self.network;
        if !net.is_up(at) {
            return PortUse::Down;
        }
        if net.is_bonded(at) {
            return match net.role(net.place(at)) {
                PortRole::Edge => PortUse::Bond,
                _ => PortUse::Closed,
            };
        }
        match net.role(at) {
            PortRole::Gone => PortUse::Closed,
            PortRole::Held => PortUse::Held,
            PortRole::Edge => PortUse::Edge,
            PortRole::Claimed => PortUse::Claimed,
            PortRole::Link => PortUse::Link,
            PortRole::Silent => PortUse::Silent,
        }
    }

    /// The links, each cable once.
    pub fn cables(&self) -> Vec<Cable> {
        let links = &self.network.links;
        let has_topology = self.has_topology();
        // The reverse of a link that is proven both ways is left out.
        let once = links
            .iter()
            .filter(|(a, b)| a < b || !links.is_link(*b, *a));
        let cable = |(a, b): (Location, Location)| {
            let (from, to) = (a.min(b), a.max(b));
            Cable {
                from,
                to,
                is_usable: links.is_link(from, to) && links.is_link(to, from),
                is_drained: links.is_drained_end(from) || links.is_drained_end(to),
                is_doubted: links.is_doubted(from) || links.is_doubted(to),
                is_narrow: links.is_narrow(from, to),
                is_stated: has_topology.then(|| self.network.says_link(from, to)),
            }
        };
        let mut cables: Vec<Cable> = once.map(cable).collect();
        cables.sort_by_key(|cable| (cable.from, cable.to));
        cables
    }

    fn all_hosts(&self) -> impl Iterator<Item = (VlanId, &Hosts)> {
        let of_vlans = self.vlan_hosts.iter().map(|(vlan, hosts)| (*vlan, hosts));
        std::iter::once((VlanId::NONE, &self.hosts)).chain(of_vlans)
    }

    /// Hosts that have a place, by address. Without a network or a whole address all hosts of the
    /// VLANs, or of the switch, are looked at.
    pub fn hosts_page(&self, query: &HostQuery) -> HostPage {
        let mut first: BinaryHeap<((MacAddr, VlanId), Location)> = BinaryHeap::new();
        let mut page = HostPage::default();
        let mut offer = |mac: MacAddr, vlan: VlanId, at: Location| {
            let is_here = query.at.is_none_or(|dpid| dpid == at.dpid);
            if !is_here || !query.names.has_mac(mac) {
                return;
            }
            page.total += 1;
            let key = (mac, vlan);
            if query.after.is_some_and(|after| key <= after) {
                return;
            }
            if first.len() >= query.limit {
                page.has_more = true;
                // Nearly every host of a large network is behind the last of a full page.
                let is_behind = first.peek().is_none_or(|(last, _)| key >= *last);
                if is_behind {
                    return;
                }
                first.pop();
            }
            first.push((key, at));
        };
        let of_vlans = self.all_hosts();
        for (vlan, hosts) in of_vlans.filter(|(vlan, _)| query.vlan.is_none_or(|v| v == *vlan)) {
            match (query.names, query.at) {
                (Names::Network(network), _) => {
                    for mac in hosts.macs_in(network) {
                        hosts
                            .place(mac)
                            .into_iter()
                            .for_each(|at| offer(mac, vlan, at));
                    }
                }
                (Names::Mac { value, digits: 12 }, _) => {
                    let [_, _, bytes @ ..] = value.to_be_bytes();
                    let mac = MacAddr(bytes);
                    hosts
                        .place(mac)
                        .into_iter()
                        .for_each(|at| offer(mac, vlan, at));
                }
                (_, Some(dpid)) => {
                    hosts
                        .placed_at(dpid)
                        .for_each(|(mac, at)| offer(mac, vlan, at));
                }
                (_, None) => hosts.placed().for_each(|(mac, at)| offer(mac, vlan, at)),
            }
        }
        let first = first.into_sorted_vec().into_iter();
        let details = first.filter_map(|((mac, vlan), at)| self.host_detail(mac, vlan, at));
        page.hosts = details.collect();
        page
    }

    /// A host in each VLAN that knows it.
    pub fn host(&self, mac: MacAddr) -> Vec<HostDetail> {
        let of_vlans = self.all_hosts();
        let found = of_vlans.filter_map(|(vlan, hosts)| {
            let at = hosts.place(mac)?;
            self.host_detail(mac, vlan, at)
        });
        found.collect()
    }

    fn host_detail(&self, mac: MacAddr, vlan: VlanId, at: Location) -> Option<HostDetail> {
        let hosts = match vlan.is_none() {
            true => &self.hosts,
            false => self.vlan_hosts.get(&vlan)?,
        };
        let host = HostView {
            mac,
            vlan,
            at,
            ips: hosts.ips(mac),
        };
        Some(HostDetail {
            host,
            is_heard: hosts.is_heard(mac),
            claimed_at: hosts.claimant(mac),
        })
    }

    /// Paths in the order of their pairs, and whether there are others behind the last.
    pub fn paths_page(&self, query: &PathQuery) -> (Vec<PathView>, bool) {
        let (src, dst) = (self.mac_of(query.src), self.mac_of(query.dst));
        let (Ok(src), Ok(dst)) = (src, dst) else {
            return (Vec::new(), false);
        };
        let limit = query.limit;
        let pairs = self
            .paths
            .page((src, dst), query.after, limit.saturating_add(1));
        let has_more = pairs.len() > limit;
        let view = |pair: &Pair| {
            let (hops, is_confirmed) = self.paths.detail(*pair)?;
            let hops = hops.iter();
            Some(PathView {
                src: pair.0,
                dst: pair.1,
                hops: hops
                    .map(|hop| (hop.dpid, hop.in_port, hop.out_port))
                    .collect(),
                is_confirmed,
            })
        };
        (
            pairs.iter().take(limit).filter_map(view).collect(),
            has_more,
        )
    }

    /// The address of a host that is named; an error if nobody has the name.
    fn mac_of(&self, name: Option<HostName>) -> Result<Option<MacAddr>, ()> {
        match name {
            None => Ok(None),
            Some(HostName::Mac(mac)) => Ok(Some(mac)),
            Some(HostName::Ip(ip)) => {
                let mut owners = self.all_hosts().filter_map(|(_, hosts)| hosts.by_ip(ip));
                owners.next().map(Some).ok_or(())
            }
        }
    }
}
