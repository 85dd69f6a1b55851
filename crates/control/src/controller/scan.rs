//! Pages of hosts, out of all known hosts. A page is collected in steps: a scan of two million
//! hosts takes longer than switches and other members of a cluster may wait.

use std::collections::BinaryHeap;

use openflow::{DatapathId, MacAddr};

use crate::Location;
use crate::timeouts::Prefix;
use crate::vlan::VlanId;

use super::Controller;
use super::hosts::Hosts;
use super::views::HostDetail;

/// Maximum number of hosts in one step, which takes a fraction of a millisecond.
const STEP_MAX: usize = 8192;

/// A query for hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostQuery {
    pub at: Option<DatapathId>,
    pub vlan: Option<VlanId>,
    pub names: Names,
    /// Only hosts after this one, by address and then VLAN.
    pub after: Option<(MacAddr, VlanId)>,
    pub limit: usize,
}

/// The hosts that a text names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    #[default]
    All,
    /// Hosts whose first `digits` hexadecimal digits are these.
    Mac {
        value: u64,
        digits: u32,
    },
    Network(Prefix),
}

/// A page of the wanted hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostPage {
    pub hosts: Vec<HostDetail>,
    /// The number of wanted hosts, on this page or not.
    pub total: usize,
    /// Whether there are more hosts after the last.
    pub has_more: bool,
}

/// A scan for a page of hosts that have a place. Call [`Controller::look_at_hosts`] until it is
/// over. Hosts that appear, leave or move meanwhile may be missed.
#[derive(Clone, Debug, Default)]
pub struct HostScan {
    query: HostQuery,
    /// The first hosts so far, with the last of them on top.
    first: BinaryHeap<((MacAddr, VlanId), Location)>,
    total: usize,
    has_more: bool,
    /// The VLAN under scan, and the number of its hosts already scanned.
    at: (VlanId, usize),
}

impl Names {
    fn has(self, mac: MacAddr, hosts: &Hosts) -> bool {
        match self {
            Names::All => true,
            Names::Mac { value, digits } => {
                let dropped = 4 * 12u32.saturating_sub(digits);
                mac.to_u64().checked_shr(dropped).unwrap_or(0) == value
            }
            Names::Network(network) => hosts.has_ip(mac, network),
        }
    }

    /// The one host that can have the name. `None` if there may be several.
    fn single(self, hosts: &Hosts) -> Option<Option<MacAddr>> {
        match self {
            Names::Mac { value, digits: 12 } => {
                let [_, _, bytes @ ..] = value.to_be_bytes();
                Some(Some(MacAddr(bytes)))
            }
            Names::Network(network) => Some(hosts.by_ip(network.single()?)),
            _ => None,
        }
    }
}

impl HostScan {
    pub fn new(query: HostQuery) -> HostScan {
        HostScan {
            query,
            ..HostScan::default()
        }
    }

    fn offer(&mut self, mac: MacAddr, vlan: VlanId, at: Location, hosts: &Hosts) {
        let query = &self.query;
        if query.at.is_some_and(|dpid| dpid != at.dpid) || !query.names.has(mac, hosts) {
            return;
        }
        self.total += 1;
        let key = (mac, vlan);
        if query.after.is_some_and(|after| key <= after) {
            return;
        }
        if self.first.len() >= query.limit {
            self.has_more = true;
            // Nearly every host of a large network is after the last host of a full page.
            if self.first.peek().is_none_or(|(last, _)| key >= *last) {
                return;
            }
            self.first.pop();
        }
        self.first.push((key, at));
    }

    /// Scans some hosts of a VLAN. Returns their number, or `None` if no others are left.
    fn look(&mut self, vlan: VlanId, hosts: &Hosts, count_max: usize) -> Option<usize> {
        if let Some(single) = self.query.names.single(hosts) {
            if let Some((mac, at)) = single.and_then(|mac| Some((mac, hosts.place(mac)?))) {
                self.offer(mac, vlan, at, hosts);
            }
            return None;
        }
        let from = self.at.1;
        let until = hosts.len().min(from.saturating_add(count_max));
        if from >= until {
            return None;
        }
        for (mac, at) in hosts.placed_in(from..until) {
            self.offer(mac, vlan, at, hosts);
        }
        Some(until - from)
    }
}

impl Controller {
    /// Continues a scan for hosts. Returns their page once it is over.
    pub fn look_at_hosts(&self, scan: &mut HostScan) -> Option<HostPage> {
        let mut left = STEP_MAX;
        let at = scan.at.0;
        let vlans = self.all_hosts().skip_while(|(vlan, _)| *vlan < at);
        for (vlan, hosts) in vlans {
            if vlan != scan.at.0 {
                scan.at = (vlan, 0);
            }
            if scan.query.vlan.is_some_and(|wanted| wanted != vlan) {
                continue;
            }
            while let Some(count) = scan.look(vlan, hosts, left) {
                scan.at.1 += count;
                left = left.saturating_sub(count);
                if left == 0 {
                    return None;
                }
            }
        }
        let mut first = std::mem::take(&mut scan.first).into_sorted_vec();
        // A host that has moved within the table may have been found twice.
        first.dedup_by_key(|(key, _)| *key);
        let details = first.into_iter();
        let details = details.filter_map(|((mac, vlan), at)| self.host_detail(mac, vlan, at));
        Some(HostPage {
            hosts: details.collect(),
            total: scan.total,
            has_more: scan.has_more,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clock::{Instant, SplitMix64};
    use openflow::PortNo;

    use super::*;
    use crate::controller::ControllerConfig;
    use crate::fair_table::Shares;

    fn mac(n: u64) -> MacAddr {
        let [_, _, bytes @ ..] = (0x0200_0000_0000 | n).to_be_bytes();
        MacAddr(bytes)
    }

    /// A controller with hosts in two VLANs and in none, and their places.
    fn known() -> (Controller, BTreeMap<(MacAddr, VlanId), Location>) {
        let count_max = 100_000;
        let shares = Shares {
            count_max,
            per_switch_max: count_max as u32,
            per_port_max: count_max as u32,
        };
        let vlans = [
            VlanId::NONE,
            VlanId::new(7).unwrap(),
            VlanId::new(9).unwrap(),
        ];
        let mut random = SplitMix64::new(1);
        let mut places = BTreeMap::new();
        let mut controller = Controller::new(ControllerConfig::default(), [7; 32]);
        for (vlan, count) in vlans
            .into_iter()
            .zip([3 * STEP_MAX as u64, 10, STEP_MAX as u64 + 1])
        {
            let mut hosts = Hosts::new(vlan, shares, 1, 1);
            for _ in 0..count {
                let mac = mac(random.next() % 200_000);
                let at = Location::new(
                    DatapathId(1 + random.next() % 3),
                    PortNo(1 + (random.next() % 4) as u32),
                );
                if places.insert((mac, vlan), at).is_none() {
                    hosts.observe(Instant::START, mac, at, |_| false, |_| false);
                } else {
                    places.insert((mac, vlan), hosts.place(mac).unwrap());
                }
            }
            match vlan.is_none() {
                true => controller.hosts = hosts,
                false => drop(controller.vlan_hosts.insert(vlan, hosts)),
            }
        }
        (controller, places)
    }

    /// The page, and the number of steps that it took.
    fn page(controller: &Controller, query: HostQuery) -> (HostPage, usize) {
        let mut scan = HostScan::new(query);
        for steps in 1.. {
            if let Some(page) = controller.look_at_hosts(&mut scan) {
                return (page, steps);
            }
        }
        unreachable!("a look comes to its end");
    }

    #[test]
    fn pages_have_every_host_that_is_wanted_once_and_in_order() {
        let (controller, places) = known();
        let vlan = VlanId::new(9);
        let prefix = Names::Mac {
            value: 0x0002_0000_0001,
            digits: 10,
        };
        let queries = [
            HostQuery::default(),
            HostQuery {
                vlan,
                ..HostQuery::default()
            },
            HostQuery {
                at: Some(DatapathId(2)),
                names: prefix,
                ..HostQuery::default()
            },
        ];
        for query in queries {
            let wanted = places.iter().filter(|((mac, vlan), at)| {
                query.vlan.is_none_or(|v| v == *vlan)
                    && query.at.is_none_or(|dpid| dpid == at.dpid)
                    && (query.names == Names::All || mac.to_u64() >> 8 == 0x0002_0000_0001)
            });
            let wanted: Vec<_> = wanted.map(|(key, at)| (*key, *at)).collect();
            let mut found = Vec::new();
            let mut after = None;
            loop {
                let limit = 5000;
                let query = HostQuery {
                    after,
                    limit,
                    ..query.clone()
                };
                let (page, steps) = page(&controller, query);
                assert_eq!(page.total, wanted.len());
                assert!(steps <= places.len() / STEP_MAX + 2, "{steps}");
                let hosts = page.hosts.iter().map(|detail| &detail.host);
                found.extend(hosts.map(|host| ((host.mac, host.vlan), host.at)));
                after = found.last().map(|(key, _)| *key);
                if !page.has_more {
                    break;
                }
                assert_eq!(page.hosts.len(), limit);
            }
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn one_host_is_found_at_once_and_many_in_steps() {
        let (controller, places) = known();
        let limit = 1;
        let all = HostQuery {
            limit,
            ..HostQuery::default()
        };
        let (_, steps) = page(&controller, all);
        assert!(steps > places.len() / STEP_MAX, "{steps}");
        let ((wanted, _), _) = places.last_key_value().unwrap();
        let names = Names::Mac {
            value: wanted.to_u64(),
            digits: 12,
        };
        let of_vlans = places.keys().filter(|(mac, _)| mac == wanted).count();
        let one = HostQuery {
            names,
            limit,
            ..HostQuery::default()
        };
        let (page, steps) = page(&controller, one);
        assert_eq!((page.total, steps), (of_vlans, 1));
    }
}
