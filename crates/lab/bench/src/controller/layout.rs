//! The places of the emulated switches' hosts. They follow a rule, so that any answer can be judged
//! by arithmetic and nothing is looked up.
//!
//! Host 0 of each switch is the destination, behind port 1. Hosts 1 and up are the sources, spread
//! over the other ports. The Ethernet address names the switch and the host.

use std::net::Ipv4Addr;

use openflow::packet::build::Host;
use openflow::{DatapathId, MacAddr, PortNo};

/// The destination host, behind [`DESTINATION_PORT`].
pub const DESTINATION: u32 = 0;
pub const DESTINATION_PORT: u32 = 1;
/// Sources that one switch may have: three bytes of the address, less those of ports.
pub const SOURCES_MAX: u32 = 0xfe_ffff;
/// Locally administered; two bytes for the switch, three for the host.
const MAC_PREFIX: u64 = 0x02 << 40;

/// The layout of one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub switch: u16,
    pub dpid_first: u64,
    /// At least 2.
    pub port_count: u32,
    pub source_count: u32,
    /// Switches that form a line, each linked to the next; 0 if there are no links.
    pub line: u16,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub port: u32,
    pub peer: u16,
    pub peer_port: u32,
}

impl Layout {
    pub fn datapath_id(&self) -> DatapathId {
        DatapathId(self.dpid_first.wrapping_add(self.switch.into()))
    }

    pub fn mac(&self, host: u32) -> u64 {
        MAC_PREFIX | u64::from(self.switch) << 24 | u64::from(host)
    }

    pub fn port(&self, host: u32) -> u32 {
        match host {
            DESTINATION => DESTINATION_PORT,
            source => DESTINATION_PORT + 1 + (source - 1) % (self.port_count - 1),
        }
    }

    /// Returns the host that a source sends to in its `lap`-th turn: another source, behind another
    /// port.
    pub fn partner(&self, source: u32, lap: u32) -> u32 {
        let count = u64::from(self.source_count);
        let first = (u64::from(source) + u64::from(lap)) % count;
        let mut partners = (0..count).map(|step| ((first + step) % count) as u32 + 1);
        let elsewhere = partners.find(|partner| self.port(*partner) != self.port(source));
        elsewhere.unwrap_or(DESTINATION)
    }

    /// Returns a host. Its IPv4 address is unique among all hosts if no switch has more than 1,023.
    pub fn host(&self, host: u32) -> Host {
        let [_, a, b, c] = ((u32::from(self.switch) << 10) + (host & 0x3ff) + 1).to_be_bytes();
        Host::new(
            MacAddr::from_u64(self.mac(host)),
            Ipv4Addr::new(10, a, b, c),
        )
    }

    /// The host of this switch that has the address.
    pub fn host_of(&self, mac: u64) -> Option<u32> {
        let host = (mac & 0xff_ffff) as u32;
        (mac == self.mac(host) && host <= self.source_count).then_some(host)
    }

    /// Ports of hosts, then those of links.
    pub fn ports(&self) -> impl Iterator<Item = PortNo> + use<> {
        let links = self.links().map(|link| link.port);
        (1..=self.port_count).chain(links).map(PortNo)
    }

    /// Links to the next switch of the line and to the one before.
    pub fn links(&self) -> impl Iterator<Item = Link> + use<> {
        let (to_next, to_previous) = (self.port_count + 1, self.port_count + 2);
        let next = (self.switch + 1 < self.line).then(|| Link {
            port: to_next,
            peer: self.switch + 1,
            peer_port: to_previous,
        });
        let previous = (self.line > 0 && self.switch > 0).then(|| Link {
            port: to_previous,
            peer: self.switch - 1,
            peer_port: to_next,
        });
        next.into_iter().chain(previous)
    }

    /// Returns the switch to whose destination this switch's sources send. It is half a line away,
    /// so that every destination serves one switch.
    pub fn far(&self) -> Layout {
        let half = (self.line / 2).max(1);
        Layout {
            switch: match self.line {
                0 => self.switch,
                line => (self.switch + half) % line,
            },
            ..*self
        }
    }

    /// Returns the port towards a host, here or over links.
    pub fn port_towards(&self, mac: u64) -> Option<u32> {
        if let Some(host) = self.host_of(mac) {
            return Some(self.port(host));
        }
        let switch = (mac >> 24) as u16;
        let there = Layout { switch, ..*self };
        if switch >= self.line || there.host_of(mac).is_none() {
            return None;
        }
        let mut links = self.links();
        let is_on_the_way = |link: &Link| (link.peer > self.switch) == (switch > self.switch);
        links.find(is_on_the_way).map(|link| link.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        switch: 9_999,
        dpid_first: 1,
        port_count: 4,
        source_count: 100_000,
        line: 0,
    };

    #[test]
    fn an_address_is_of_one_host_of_one_switch() {
        for host in [0, 1, 2, 77, 100_000] {
            assert_eq!(LAYOUT.host_of(LAYOUT.mac(host)), Some(host));
        }
        let other = Layout {
            switch: 9_998,
            ..LAYOUT
        };
        assert_eq!(LAYOUT.host_of(other.mac(1)), None, "another switch's");
        assert_eq!(LAYOUT.host_of(LAYOUT.mac(100_001)), None, "nobody's");
        assert_eq!(LAYOUT.host_of(LAYOUT.mac(1) | 1 << 47), None);
    }

    #[test]
    fn partners_are_behind_other_ports_and_change() {
        let layout = Layout {
            source_count: 10,
            ..LAYOUT
        };
        let mut pairs = std::collections::BTreeSet::new();
        for lap in 0..10 {
            for source in 1..=10 {
                let partner = layout.partner(source, lap);
                assert_ne!(layout.port(partner), layout.port(source));
                assert!((1..=10).contains(&partner));
                pairs.insert((source, partner));
            }
        }
        let possible = (1..=10).flat_map(|a| (1..=10).map(move |b| (a, b)));
        let possible = possible.filter(|(a, b)| layout.port(*a) != layout.port(*b));
        assert_eq!(pairs.len(), possible.count(), "every pair has its turn");
    }

    #[test]
    fn links_of_a_line_fit_and_lead_everywhere() {
        let at = |switch| Layout {
            switch,
            line: 5,
            ..LAYOUT
        };
        let mut far = std::collections::BTreeSet::new();
        for switch in 0..5 {
            for link in at(switch).links() {
                let back = at(link.peer).links();
                let back: Vec<u16> = back
                    .filter(|back| (back.port, back.peer_port) == (link.peer_port, link.port))
                    .map(|back| back.peer)
                    .collect();
                assert_eq!(back, [switch]);
                assert!(at(switch).ports().any(|port| port.0 == link.port));
            }
            assert_ne!(at(switch).far().switch, switch);
            far.insert(at(switch).far().switch);
            for other in 0..5 {
                let mac = at(other).mac(7);
                let (mut here, mut hops) = (switch, 0);
                while here != other {
                    let port = at(here).port_towards(mac).unwrap();
                    here = at(here).links().find(|l| l.port == port).unwrap().peer;
                    hops += 1;
                }
                assert_eq!(hops, other.abs_diff(switch));
                assert_eq!(at(here).port_towards(mac), Some(at(here).port(7)));
            }
        }
        assert_eq!(far.len(), 5, "each is the destination of one");
        assert_eq!(at(2).port_towards(at(5).mac(7)), None, "no such switch");
        assert_eq!(LAYOUT.links().count(), 0);
        assert_eq!(LAYOUT.far(), LAYOUT);
    }

    #[test]
    fn no_source_is_where_the_destination_is() {
        assert_eq!(LAYOUT.port(DESTINATION), DESTINATION_PORT);
        for source in 1..100 {
            assert!((2..=4).contains(&LAYOUT.port(source)));
        }
        let narrow = Layout {
            port_count: 2,
            ..LAYOUT
        };
        assert_eq!(narrow.port(5), 2);
    }
}
