//! The administrator's description of the network: switches, links, and the places of hosts.
//!
//! The description is no evidence: discovery finds the real network. The controller compares the
//! two and reports the differences. A host whose place is described can be reached before it sends
//! a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use openflow::{DatapathId, MacAddr};

use crate::Location;

/// A checked description. Links have their lower end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    switches: BTreeSet<DatapathId>,
    links: BTreeSet<(Location, Location)>,
    /// The ends of links.
    ends: BTreeSet<Location>,
    hosts: BTreeMap<MacAddr, Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: Location,
    pub ip: Option<IpAddr>,
}

/// One statement of a description, by its position among the statements of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statement {
    Link(usize),
    Host(usize),
}

/// A thing that is described but not found, or found but not described.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    SwitchMissing(DatapathId),
    SwitchUnknown(DatapathId),
    PortMissing(Location),
    LinkMissing(Location, Location),
    LinkUnknown(Location, Location),
    HostElsewhere {
        mac: MacAddr,
        said: Location,
        found: Location,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::SwitchMissing(dpid) => write!(f, "switch {dpid} is not connected"),
            Difference::SwitchUnknown(dpid) => {
                write!(f, "switch {dpid} is connected and not in the topology")
            }
            Difference::PortMissing(at) => write!(f, "the switch has no port {at}"),
            Difference::LinkMissing(a, b) => write!(f, "link {a} - {b} is not found"),
            Difference::LinkUnknown(a, b) => {
                write!(f, "link {a} - {b} is found and not in the topology")
            }
            Difference::HostElsewhere { mac, said, found } => {
                write!(f, "host {mac} is at {found}, and said to be at {said}")
            }
        }
    }
}

/// The findings of discovery.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Connected switches with their ports.
    pub switches: BTreeMap<DatapathId, BTreeSet<Location>>,
    /// Both directions of each link.
    pub links: BTreeSet<(Location, Location)>,
}

impl Topology {
    /// Checks statements against each other. Returns all mistakes, by statement.
    pub fn new(
        switches: impl IntoIterator<Item = DatapathId>,
        links: &[(Location, Location)],
        hosts: &[(MacAddr, Place)],
    ) -> Result<Topology, Vec<(Statement, String)>> {
        let mut topology = Topology {
            switches: switches.into_iter().collect(),
            ..Topology::default()
        };
        let mut problems = Vec::new();
        let mut link_ends: BTreeSet<Location> = BTreeSet::new();
        for (n, (a, b)) in links.iter().enumerate() {
            let mut wrong = |problem: String| problems.push((Statement::Link(n), problem));
            if a.dpid == b.dpid {
                wrong(format!("{a} - {b}: a link joins two switches"));
                continue;
            }
            for end in [a, b] {
                if !end.port.is_ordinary() {
                    wrong(format!("{end} is no port that a link can have"));
                } else if !link_ends.insert(*end) {
                    wrong(format!("{end} has a link already; a port has one"));
                }
            }
            topology.links.insert((*a.min(b), *a.max(b)));
            topology.switches.extend([a.dpid, b.dpid]);
        }
        let mut addresses: BTreeMap<IpAddr, MacAddr> = BTreeMap::new();
        for (n, (mac, place)) in hosts.iter().enumerate() {
            let mut wrong = |problem: String| problems.push((Statement::Host(n), problem));
            let at = place.at;
            if mac.is_multicast() || *mac == MacAddr::default() {
                wrong(format!("{mac} is no host's address"));
            }
            if !at.port.is_ordinary() {
                wrong(format!("{at} is no port that a host can be at"));
            } else if link_ends.contains(&at) {
                wrong(format!("host {mac} is at {at}, which has a link"));
            }
            if topology.hosts.insert(*mac, *place).is_some() {
                wrong(format!("host {mac} is said to be somewhere already"));
            }
            if let Some(ip) = place.ip
                && let Some(other) = addresses.insert(ip, *mac).filter(|other| other != mac)
            {
                wrong(format!("{ip} is {other}'s already"));
            }
            topology.switches.insert(at.dpid);
        }
        topology.ends = link_ends;
        if problems.is_empty() {
            Ok(topology)
        } else {
            Err(problems)
        }
    }

    /// Whether a cable joins these ports, whichever is named first.
    pub fn has_link(&self, a: Location, b: Location) -> bool {
        self.links.contains(&(a.min(b), a.max(b)))
    }

    /// Whether a cable ends at this port.
    pub fn has_end(&self, at: Location) -> bool {
        self.ends.contains(&at)
    }

    pub fn hosts(&self) -> impl Iterator<Item = (MacAddr, Place)> + '_ {
        self.hosts.iter().map(|(mac, place)| (*mac, *place))
    }

    pub fn has_host(&self, mac: MacAddr) -> bool {
        self.hosts.contains_key(&mac)
    }

    /// Every port that a statement names.
    fn ports(&self) -> impl Iterator<Item = Location> + '_ {
        let ends = self.links.iter().flat_map(|(a, b)| [*a, *b]);
        ends.chain(self.hosts.values().map(|place| place.at))
    }

    /// The differences, in the order of [`Difference`]. `place` is a host's place, if known.
    pub fn differences(
        &self,
        found: &Found,
        place: impl Fn(MacAddr) -> Option<Location>,
    ) -> BTreeSet<Difference> {
        let mut differences = BTreeSet::new();
        let connected = |dpid: &DatapathId| found.switches.contains_key(dpid);
        let missing = self.switches.iter().filter(|dpid| !connected(dpid));
        differences.extend(missing.map(|dpid| Difference::SwitchMissing(*dpid)));
        let unknown = found.switches.keys().filter(|d| !self.switches.contains(d));
        differences.extend(unknown.map(|dpid| Difference::SwitchUnknown(*dpid)));
        for at in self.ports() {
            if let Some(ports) = found.switches.get(&at.dpid)
                && !ports.contains(&at)
            {
                differences.insert(Difference::PortMissing(at));
            }
        }
        for (a, b) in &self.links {
            let is_found = found.links.contains(&(*a, *b)) && found.links.contains(&(*b, *a));
            // A missing switch is reported alone, without its links.
            if !is_found && connected(&a.dpid) && connected(&b.dpid) {
                differences.insert(Difference::LinkMissing(*a, *b));
            }
        }
        for (from, to) in &found.links {
            let link = (*from.min(to), *from.max(to));
            if !self.links.contains(&link) {
                differences.insert(Difference::LinkUnknown(link.0, link.1));
            }
        }
        for (mac, said) in self.hosts() {
            let said = said.at;
            if let Some(found) = place(mac).filter(|found| *found != said) {
                differences.insert(Difference::HostElsewhere { mac, said, found });
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use openflow::PortNo;

    use super::*;

    fn at(dpid: u64, port: u32) -> Location {
        Location::new(DatapathId(dpid), PortNo(port))
    }

    fn mac(n: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, n])
    }

    fn host(n: u8, at: Location) -> (MacAddr, Place) {
        let ip = Some(IpAddr::from([10, 0, 0, n]));
        (mac(n), Place { at, ip })
    }

    fn found(ports: &[Location], links: &[(Location, Location)]) -> Found {
        let mut found = Found::default();
        for port in ports {
            found.switches.entry(port.dpid).or_default().insert(*port);
        }
        found.links.extend(links);
        found
    }

    #[test]
    fn what_is_found_as_said_differs_in_nothing() {
        let said = Topology::new([], &[(at(2, 1), at(1, 2))], &[host(1, at(1, 1))]).unwrap();
        let links = [(at(1, 2), at(2, 1)), (at(2, 1), at(1, 2))];
        let found = found(&[at(1, 1), at(1, 2), at(2, 1)], &links);
        let differences = said.differences(&found, |_| Some(at(1, 1)));
        assert_eq!(differences, BTreeSet::new());
    }

    #[test]
    fn every_kind_of_difference_is_told() {
        let links = [(at(1, 2), at(2, 1)), (at(2, 2), at(3, 1))];
        let said = Topology::new([DatapathId(9)], &links, &[host(1, at(1, 7))]).unwrap();
        let found = found(
            &[at(1, 1), at(1, 2), at(2, 1), at(2, 2), at(4, 1)],
            // One direction of the first link, and one link without a description.
            &[(at(1, 2), at(2, 1)), (at(4, 1), at(2, 2))],
        );
        let differences = said.differences(&found, |_| Some(at(1, 1)));
        let expected = [
            Difference::SwitchMissing(DatapathId(3)),
            Difference::SwitchMissing(DatapathId(9)),
            Difference::SwitchUnknown(DatapathId(4)),
            Difference::PortMissing(at(1, 7)),
            Difference::LinkMissing(at(1, 2), at(2, 1)),
            Difference::LinkUnknown(at(2, 2), at(4, 1)),
            Difference::HostElsewhere {
                mac: mac(1),
                said: at(1, 7),
                found: at(1, 1),
            },
        ];
        assert_eq!(differences, BTreeSet::from(expected));
    }

    #[test]
    fn contradictions_are_told_together_by_statement() {
        let links = [
            (at(1, 1), at(1, 2)),
            (at(1, 3), at(2, 1)),
            (at(3, 1), at(1, 3)),
            (at(4, 1), Location::new(DatapathId(5), PortNo::CONTROLLER)),
        ];
        let hosts = [
            host(1, at(1, 3)),
            host(2, at(1, 4)),
            host(2, at(1, 5)),
            (mac(3), host(1, at(1, 6)).1),
            (MacAddr([0xff; 6]), host(9, at(1, 7)).1),
        ];
        let problems = Topology::new([], &links, &hosts).unwrap_err();
        let of: Vec<Statement> = problems.iter().map(|(of, _)| *of).collect();
        use Statement::{Host, Link};
        assert_eq!(
            of,
            [
                Link(0),
                Link(2),
                Link(3),
                Host(0),
                Host(2),
                Host(3),
                Host(4)
            ],
            "{problems:?}"
        );
    }
}
