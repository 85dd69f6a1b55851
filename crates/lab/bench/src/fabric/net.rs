//! The network of a run: the hosts or link behind each port of each switch, and the place of each
//! host. No switch state and no clock.

use std::net::Ipv4Addr;
use std::ops::Range;

use openflow::packet::build::Host;
use openflow::{MacAddr, PortNo};
use testbed::topology::{Attachment, Topology};

pub const SWITCHES_MAX: usize = 1024;
/// Ports of one switch that have hosts.
pub const HOST_PORTS_MAX: usize = 48;
pub const HOSTS_MAX: usize = 131_072;
/// Locally administered, and unlike the hosts of `bench controller`, which may run at the same
/// time; the host's number follows.
const MAC_PREFIX: u64 = 0x06 << 40;
/// 172.16.0.0/12; the host's number follows.
const IP_PREFIX: u32 = 0xac10_0000;

/// The far side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    Hosts,
    Link {
        /// Index in [`Net::links`].
        link: usize,
        far: Attachment,
    },
}

/// A link between two switches.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub ends: [Attachment; 2],
    /// Whether LLDP has passed from each end.
    pub heard: [bool; 2],
}

pub struct Net {
    pub links: Vec<Link>,
    /// The far side of each port, by switch and by port number less 1.
    behind: Vec<Vec<Behind>>,
    /// Place of each host.
    hosts: Vec<Attachment>,
    /// Hosts that began at each switch.
    homes: Vec<Range<u32>>,
}

impl Net {
    /// Makes the network from the words of `auster lab`, with `hosts` behind `host_ports` ports of
    /// each switch that has hosts.
    ///
    /// # Errors
    /// The mistake in the words, or the bound that they exceed.
    pub fn generate(words: &str, host_ports: usize, hosts: usize) -> Result<Net, String> {
        if !(1..=HOST_PORTS_MAX).contains(&host_ports) {
            return Err(format!(
                "--host-ports {host_ports}: write 1 to {HOST_PORTS_MAX}"
            ));
        }
        let bounds = (SWITCHES_MAX, SWITCHES_MAX * HOST_PORTS_MAX);
        let topology = Topology::generate_within(words, Some(host_ports), bounds)?;
        let edges = topology.hosts.len() / host_ports;
        let most = HOSTS_MAX / edges.max(1);
        if !(1..=most).contains(&hosts) {
            return Err(format!(
                "--hosts {hosts}: write 1 to {most}; '{words}' has {edges} switches with hosts, \
                 and {HOSTS_MAX} hosts in all are the most"
            ));
        }
        Ok(Net::new(&topology, host_ports, hosts))
    }

    fn new(topology: &Topology, host_ports: usize, hosts_each: usize) -> Net {
        let ports = |s: &testbed::topology::Switch| vec![Behind::Hosts; s.port_count as usize];
        let mut net = Net {
            links: Vec::new(),
            behind: topology.switches.iter().map(ports).collect(),
            hosts: Vec::new(),
            homes: vec![0..0; topology.switches.len()],
        };
        for (number, link) in topology.links.iter().enumerate() {
            let [a, b] = link.ends;
            for (near, far) in [(a, b), (b, a)] {
                let link = number;
                net.behind[near.switch][near.port.0 as usize - 1] = Behind::Link { link, far };
            }
            net.links.push(Link {
                ends: link.ends,
                heard: [false; 2],
            });
        }
        for ports in topology.hosts.chunks(host_ports) {
            let first = net.hosts.len() as u32;
            let places = (0..hosts_each).map(|n| ports[n % ports.len()].at);
            net.hosts.extend(places);
            net.homes[ports[0].at.switch] = first..net.hosts.len() as u32;
        }
        net
    }

    pub fn switch_count(&self) -> usize {
        self.behind.len()
    }

    pub fn host_count(&self) -> u32 {
        self.hosts.len() as u32
    }

    pub fn ports(&self, switch: usize) -> impl Iterator<Item = PortNo> + use<> {
        (1..=self.behind[switch].len() as u32).map(PortNo)
    }

    /// The far side of a port; `None` if the switch has no such port.
    pub fn behind(&self, at: Attachment) -> Option<Behind> {
        let place = (at.port.0 as usize).checked_sub(1)?;
        self.behind[at.switch].get(place).copied()
    }

    /// Indices of a switch's links.
    pub fn links_of(&self, switch: usize) -> Vec<usize> {
        let link = |behind: &Behind| match behind {
            Behind::Link { link, .. } => Some(*link),
            Behind::Hosts => None,
        };
        self.behind[switch].iter().filter_map(link).collect()
    }

    /// Hosts that began at this switch.
    pub fn home(&self, switch: usize) -> Range<u32> {
        self.homes[switch].clone()
    }

    /// Switches with hosts.
    pub fn edges(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.homes.len()).filter(|s| !self.homes[*s].is_empty())
    }

    /// The addresses of a host.
    pub fn host(&self, host: u32) -> Host {
        Host::new(
            MacAddr::from_u64(MAC_PREFIX | u64::from(host + 1)),
            Ipv4Addr::from_bits(IP_PREFIX | (host + 1)),
        )
    }

    /// The host with this Ethernet address.
    pub fn host_of(&self, mac: u64) -> Option<u32> {
        number_of(mac).filter(|host| *host < self.host_count())
    }

    /// The host with this IPv4 address.
    pub fn host_of_ip(&self, ip: u32) -> Option<u32> {
        let number = (ip ^ IP_PREFIX).checked_sub(1)?;
        (number < self.host_count()).then_some(number)
    }

    pub fn place(&self, host: u32) -> Attachment {
        self.hosts[host as usize]
    }

    pub fn move_host(&mut self, host: u32, to: Attachment) {
        self.hosts[host as usize] = to;
    }

    /// Whether LLDP has passed over every link, both ways.
    pub fn is_heard(&self) -> bool {
        self.links.iter().all(|link| link.heard == [true; 2])
    }

    /// Notes that LLDP sent from `from` passed the link.
    pub fn note_lldp(&mut self, link: usize, from: Attachment) {
        let link = &mut self.links[link];
        link.heard[usize::from(link.ends[0] != from)] = true;
    }

    /// Whether `from` reaches each switch, by number, over links for which `is_up` is true.
    pub fn reached(&self, from: usize, is_up: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut reached = vec![false; self.switch_count()];
        let mut open = vec![from];
        reached[from] = true;
        while let Some(switch) = open.pop() {
            for behind in &self.behind[switch] {
                if let Behind::Link { link, far } = behind
                    && is_up(*link)
                    && !std::mem::replace(&mut reached[far.switch], true)
                {
                    open.push(far.switch);
                }
            }
        }
        reached
    }
}

/// The number of the host with this Ethernet address, in a network with that many hosts.
pub fn number_of(mac: u64) -> Option<u32> {
    let number = (mac ^ MAC_PREFIX).checked_sub(1)?;
    (number < HOSTS_MAX as u64).then_some(number as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topology_is_connected_and_has_the_size_of_its_words() {
        let sizes = [
            ("linear,4", 4, 3, 4),
            ("linear,1024", 1024, 1023, 1024),
            ("ring,8", 8, 8, 8),
            ("leaf-spine,2x16", 18, 32, 16),
            ("fat-tree,k=4", 20, 32, 8),
            ("fat-tree,k=28", 980, 10_976, 392),
        ];
        for (words, switches, links, edges) in sizes {
            let net = Net::generate(words, 3, 7).unwrap();
            let size = (net.switch_count(), net.links.len(), net.edges().count());
            assert_eq!(size, (switches, links, edges), "{words}");
            assert_eq!(net.host_count() as usize, 7 * edges, "{words}");
            let reached = net.reached(0, |_| true);
            assert!(reached.into_iter().all(|r| r), "{words}");
        }
        let net = Net::generate("linear,4", 3, 7).unwrap();
        assert_eq!(net.reached(0, |link| link != 1), [true, true, false, false]);
    }

    #[test]
    fn hosts_are_spread_over_the_ports_of_their_switch_and_found_by_address() {
        let net = Net::generate("leaf-spine,2x4", 3, 7).unwrap();
        for switch in net.edges() {
            for (n, host) in net.home(switch).enumerate() {
                let at = net.place(host);
                assert_eq!((at.switch, at.port.0 as usize), (switch, n % 3 + 1));
                assert_eq!(net.behind(at), Some(Behind::Hosts));
                let addresses = net.host(host);
                assert_eq!(net.host_of(addresses.mac.to_u64()), Some(host));
                assert_eq!(net.host_of_ip(addresses.ip.to_bits()), Some(host));
            }
        }
        assert_eq!(net.host_of(MacAddr::BROADCAST.to_u64()), None);
        assert_eq!(net.host_of(0), None);
        let last = net.host(net.host_count() - 1).mac.to_u64();
        assert_eq!(net.host_of(last + 1), None);
        for port in [0, 4 + 3] {
            let port = PortNo(port);
            assert_eq!(net.behind(Attachment { switch: 2, port }), None);
        }
    }

    #[test]
    fn every_link_leads_there_and_back() {
        let net = Net::generate("fat-tree,k=4", 2, 1).unwrap();
        for (number, link) in net.links.iter().enumerate() {
            let [a, b] = link.ends;
            let behind = |at| net.behind(at);
            let to = |far| Some(Behind::Link { link: number, far });
            assert_eq!((behind(a), behind(b)), (to(b), to(a)));
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_the_bound() {
        let refused = |words, ports, hosts| Net::generate(words, ports, hosts).err().unwrap();
        assert!(refused("linear,1025", 1, 1).contains("1024 is the most"));
        assert!(refused("linear,4", 0, 1).contains("1 to 48"));
        assert!(refused("linear,4", 1, 32_769).contains("1 to 32768"));
        assert!(refused("linear,4", 1, 0).contains("--hosts 0"));
        assert!(refused("torus,4", 1, 1).contains("unknown topology"));
    }
}
