//! Views of the network for pages and programs: ports, cables, hosts and paths.
//!
//! Each answer takes a bounded time, and the reader requests the next part.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use openflow::message::PortName;
use openflow::{DatapathId, MacAddr, PortNo};

use crate::Location;
use crate::vlan::VlanId;

use super::Controller;
use super::event::{HostView, SwitchView};
use super::hosts::Hosts;
use super::links::Pair;
use super::network::{Switch, SwitchPort};
use super::port_state::PortRole;

/// Maximum number of switches and ports in one [`Controller::switches_after`]; a single switch may
/// have more.
const PART_MAX: usize = 4096;

/// The use that forwarding makes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortUse {
    Down,
    /// Up, and LLDP may still be answered.
    Held,
    /// Hosts may be behind the port.
    Edge,
    /// LLDP arrives, but does not prove a link yet.
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
    /// In kbit/s; 0 if the switch does not report the speed.
    pub speed_kbit: u32,
    pub used_as: PortUse,
    pub host_count: usize,
}

/// A link in both directions, the lower end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    pub from: Location,
    pub to: Location,
    /// Whether both directions are proven.
    pub is_usable: bool,
    pub is_drained: bool,
    pub is_doubted: bool,
    /// Whether the link drops full-size frames with the fabric's tag.
    pub is_narrow: bool,
    /// Whether the administrator's topology names it; `None` without one.
    pub is_stated: Option<bool>,
}

/// Switches, by datapath id, and their ports, by switch and number.
#[derive(Clone, Debug, Default)]
pub struct SwitchesPart {
    pub switches: Vec<SwitchView>,
    pub ports: Vec<PortDetail>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDetail {
    pub host: HostView,
    /// Whether the host has sent a packet from its place; otherwise only an entry shows that it is
    /// there.
    pub is_heard: bool,
    /// The port that claims the host's address while the controller asks the host.
    pub claimed_at: Option<Location>,
}

/// A host by one of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostName {
    Mac(MacAddr),
    Ip(IpAddr),
}

/// A selection of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathQuery {
    pub src: Option<HostName>,
    pub dst: Option<HostName>,
    pub after: Option<(MacAddr, MacAddr)>,
    pub limit: usize,
}

/// The path of one pair through its entries. In hybrid mode and in the fabric, a pair has an entry
/// of its own at its first switch only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathView {
    pub src: MacAddr,
    pub dst: MacAddr,
    /// Switch, in-port and out-port.
    pub hops: Vec<(DatapathId, PortNo, PortNo)>,
    /// Whether the switches have confirmed the path; `None` if they were not asked.
    pub is_confirmed: Option<bool>,
}

impl Controller {
    /// Some switches after `after`, with their ports. A large network is read in parts, between
    /// which the controller serves its switches. `None` after the last switch.
    pub fn switches_after(&self, after: Option<DatapathId>) -> Option<SwitchesPart> {
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut port_count = 0;
        let switches = self.network.switches_in((behind, Bound::Unbounded));
        let switches = switches.take_while(|switch| {
            let is_first = port_count == 0;
            port_count += 1 + switch.ports.len();
            is_first || port_count <= PART_MAX
        });
        let switches: Vec<&Switch> = switches.collect();
        let range = switches.first()?.dpid..=switches.last()?.dpid;
        let mut hosts: BTreeMap<Location, usize> = BTreeMap::new();
        for (_, of_vlan) in self.all_hosts() {
            for (at, count) in of_vlan.counts(range.clone()) {
                *hosts.entry(at).or_default() += count;
            }
        }
        let ports = switches.iter().flat_map(|switch| {
            let dpid = switch.dpid;
            let ports = switch.ports.iter();
            ports.map(move |(port, known)| (Location { dpid, port: *port }, known))
        });
        let detail = |(at, known): (Location, &SwitchPort)| PortDetail {
            at,
            name: known.name,
            hw_addr: known.hw_addr,
            is_up: known.state.is_up(),
            speed_kbit: known.speed_kbit,
            used_as: self.port_use(at),
            host_count: hosts.get(&at).copied().unwrap_or(0),
        };
        Some(SwitchesPart {
            ports: ports.map(detail).collect(),
            switches: switches.iter().map(|switch| self.switch(switch)).collect(),
        })
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

    /// Number of hosts by switch and VLAN.
    pub fn hosts_by_vlan(&self) -> Vec<(DatapathId, VlanId, usize)> {
        let all = DatapathId(u64::MIN)..=DatapathId(u64::MAX);
        let mut by_vlan: BTreeMap<(DatapathId, VlanId), usize> = BTreeMap::new();
        for (vlan, hosts) in self.all_hosts() {
            for (at, count) in hosts.counts(all.clone()) {
                *by_vlan.entry((at.dpid, vlan)).or_default() += count;
            }
        }
        let by_vlan = by_vlan.into_iter();
        by_vlan
            .map(|((dpid, vlan), count)| (dpid, vlan, count))
            .collect()
    }

    pub(super) fn all_hosts(&self) -> impl Iterator<Item = (VlanId, &Hosts)> {
        let of_vlans = self.vlan_hosts.iter().map(|(vlan, hosts)| (*vlan, hosts));
        std::iter::once((VlanId::NONE, &self.hosts)).chain(of_vlans)
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

    pub(super) fn host_detail(
        &self,
        mac: MacAddr,
        vlan: VlanId,
        at: Location,
    ) -> Option<HostDetail> {
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

    /// Paths in the order of their pairs, and whether more paths follow the last.
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

    /// The address of a named host; an error if no host has the name.
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

#[cfg(test)]
mod tests {
    use clock::Instant;

    use super::*;
    use crate::ConnectionId;
    use crate::controller::fixture::{port, up};
    use crate::controller::{Admission, ControllerConfig, PeerIdentity};

    #[test]
    fn a_large_network_is_read_in_parts_of_whole_switches() {
        let port_count_max = 5000;
        let config = ControllerConfig {
            port_count_max,
            ..ControllerConfig::default()
        };
        let mut controller = Controller::new(config, [7; 32]);
        assert!(controller.switches_after(None).is_none());
        // Some pairs fit into a part, and one switch does not.
        for (n, ports) in [
            (1, 1500),
            (2, 1500),
            (3, 5000),
            (4, 1500),
            (5, 1500),
            (6, 1),
        ] {
            let mut switch = up(n);
            switch.ports = (1..=ports).map(port).collect();
            let connection = ConnectionId(n);
            let peer = PeerIdentity::default();
            let admission = controller.handle_up(Instant::START, connection, switch, peer);
            assert_eq!(admission, Admission::Admitted);
        }
        let (mut after, mut parts) = (None, Vec::new());
        while let Some(part) = controller.switches_after(after) {
            let of_switch = |dpid| part.ports.iter().filter(|p| p.at.dpid == dpid).count();
            let switches = part.switches.iter();
            let read: Vec<_> = switches.map(|s| (s.dpid.0, of_switch(s.dpid))).collect();
            after = part.switches.last().map(|switch| switch.dpid);
            parts.push(read);
        }
        let expected = [
            vec![(1, 1500), (2, 1500)],
            vec![(3, 5000)],
            vec![(4, 1500), (5, 1500), (6, 1)],
        ];
        assert_eq!(parts, expected);
    }
}
