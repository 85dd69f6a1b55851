//! The parts of a lab: switches, hosts and links, generated from a few words.
//!
//! Nothing here touches the machine. Switches are `s1`, `s2`, … with datapath ids 1, 2, …; hosts
//! are `h1`, `h2`, … with 10.0.0.1, 10.0.0.2, … in 10.0.0.0/8 and Mininet's hardware addresses.
//! Ports are numbered from 1 on every switch, hosts first, then links in the order they are made.

use std::net::Ipv4Addr;
use std::str::FromStr;

use openflow::{DatapathId, MacAddr, PortNo};
use sim::link::LinkConfig;

/// More switches than any lab on one machine has been run with; one vswitchd polls every port.
pub const SWITCHES_MAX: usize = 256;
pub const HOSTS_MAX: usize = 1024;

/// The words `auster lab` understands, for its help.
pub const FORMS: &str = "single,N | linear,N | ring,N | tree,depth=D,fanout=F | \
                         leaf-spine,SPINESxLEAVES | fat-tree,k=K | FILE.toml";

#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// The words or the file that the topology was made from.
    pub name: String,
    pub switches: Vec<Switch>,
    pub hosts: Vec<Host>,
    pub links: Vec<Link>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    pub name: String,
    pub dpid: DatapathId,
    pub port_count: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    pub name: String,
    pub address: Ipv4Addr,
    pub mac: MacAddr,
    pub at: Attachment,
    pub impairment: LinkConfig,
}

/// A link between two switches. The impairment applies in both directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub ends: [Attachment; 2],
    pub impairment: LinkConfig,
}

/// A port of a switch, by the switch's index in [`Topology::switches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub switch: usize,
    pub port: PortNo,
}

impl Topology {
    pub fn new(name: impl Into<String>) -> Topology {
        Topology {
            name: name.into(),
            switches: Vec::new(),
            hosts: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Makes a topology from its words; `hosts_per_edge` replaces the form's own number.
    pub fn generate(words: &str, hosts_per_edge: Option<usize>) -> Result<Topology, String> {
        Topology::generate_within(words, hosts_per_edge, (SWITCHES_MAX, HOSTS_MAX))
    }

    /// Makes a topology from its words, with other bounds on the number of switches and of hosts.
    pub fn generate_within(
        words: &str,
        hosts_per_edge: Option<usize>,
        (switches_max, hosts_max): (usize, usize),
    ) -> Result<Topology, String> {
        let form: Form = words.parse()?;
        let hosts_asked = match form {
            Form::Single { hosts } => hosts.max(hosts_per_edge.unwrap_or(0)),
            _ => hosts_per_edge.unwrap_or(0),
        };
        if hosts_asked > hosts_max {
            return Err(format!(
                "topology '{words}' has {hosts_asked} hosts on a switch; {hosts_max} is the most"
            ));
        }
        if form.switch_count() > switches_max {
            return Err(format!(
                "topology '{words}' has {} switches; {switches_max} is the most",
                form.switch_count()
            ));
        }
        let topology = form.build(words, hosts_per_edge);
        if topology.hosts.len() > hosts_max {
            return Err(format!(
                "topology '{words}' has {} hosts; {hosts_max} is the most",
                topology.hosts.len()
            ));
        }
        Ok(topology)
    }

    /// Adds `s<n>` with datapath id `n` and returns its index.
    pub fn add_switch(&mut self) -> usize {
        let number = self.switches.len() + 1;
        self.switches.push(Switch {
            name: format!("s{number}"),
            dpid: DatapathId(number as u64),
            port_count: 0,
        });
        number - 1
    }

    /// Adds `h<n>` at the next port of a switch.
    pub fn add_host(&mut self, switch: usize) -> &mut Host {
        let number = self.hosts.len() + 1;
        let [_, a, b, c] = (number as u32).to_be_bytes();
        let at = self.next_port(switch);
        self.hosts.push(Host {
            name: format!("h{number}"),
            address: Ipv4Addr::new(10, a, b, c),
            mac: MacAddr([0, 0, 0, a, b, c]),
            at,
            impairment: LinkConfig::default(),
        });
        &mut self.hosts[number - 1]
    }

    /// Joins two switches at their next ports.
    pub fn add_link(&mut self, a: usize, b: usize) -> &mut Link {
        let ends = [self.next_port(a), self.next_port(b)];
        self.links.push(Link {
            ends,
            impairment: LinkConfig::default(),
        });
        let last = self.links.len() - 1;
        &mut self.links[last]
    }

    /// The first link between two switches, by their names in either order.
    pub fn link_between(&self, a: &str, b: &str) -> Option<&Link> {
        self.links.iter().find(|link| {
            let [x, y] = link.ends.map(|end| self.switches[end.switch].name.as_str());
            (x, y) == (a, b) || (x, y) == (b, a)
        })
    }

    /// The port of a switch's link to another switch.
    pub fn port_towards(&self, switch: &str, far: &str) -> Result<Attachment, String> {
        let ends = self.link_between(switch, far).map(|link| link.ends);
        let mut ends = ends.into_iter().flatten();
        let end = ends.find(|end| self.switches[end.switch].name == switch);
        end.ok_or_else(|| format!("{} has no link {switch}-{far}", self.name))
    }

    fn next_port(&mut self, switch: usize) -> Attachment {
        let switch_record = &mut self.switches[switch];
        switch_record.port_count += 1;
        Attachment {
            switch,
            port: PortNo(switch_record.port_count),
        }
    }

    fn add_switches(&mut self, count: usize) -> std::ops::Range<usize> {
        let first = self.switches.len();
        (0..count).for_each(|_| {
            self.add_switch();
        });
        first..first + count
    }

    fn add_hosts(&mut self, edges: impl IntoIterator<Item = usize>, per_edge: usize) {
        for switch in edges {
            (0..per_edge).for_each(|_| {
                self.add_host(switch);
            });
        }
    }
}

/// A topology in words, before it is built.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// One switch with this number of hosts.
    Single {
        hosts: usize,
    },
    Linear {
        switches: usize,
    },
    Ring {
        switches: usize,
    },
    /// Hosts hang from the switches of the last level.
    Tree {
        depth: usize,
        fanout: usize,
    },
    LeafSpine {
        spines: usize,
        leaves: usize,
    },
    /// Al-Fares et al. 2008: k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores, k/2
    /// hosts per edge switch.
    FatTree {
        k: usize,
    },
}

impl Form {
    fn switch_count(self) -> usize {
        match self {
            Form::Single { .. } => 1,
            Form::Linear { switches } | Form::Ring { switches } => switches,
            Form::Tree { depth, fanout } => (0..depth as u32)
                .map(|level| fanout.saturating_pow(level))
                .fold(0, usize::saturating_add),
            Form::LeafSpine { spines, leaves } => spines.saturating_add(leaves),
            Form::FatTree { k } => k.saturating_mul(k).saturating_add(k / 2 * (k / 2)),
        }
    }

    fn build(self, name: &str, hosts_per_edge: Option<usize>) -> Topology {
        let mut t = Topology::new(name);
        let per_edge = hosts_per_edge.unwrap_or(1);
        match self {
            Form::Single { hosts } => {
                let switch = t.add_switch();
                t.add_hosts([switch], hosts_per_edge.unwrap_or(hosts));
            }
            Form::Linear { switches } => {
                let chain = t.add_switches(switches);
                t.add_hosts(chain.clone(), per_edge);
                chain.skip(1).for_each(|s| {
                    t.add_link(s - 1, s);
                });
            }
            Form::Ring { switches } => {
                let ring = t.add_switches(switches);
                t.add_hosts(ring.clone(), per_edge);
                ring.for_each(|s| {
                    t.add_link(s, (s + 1) % switches);
                });
            }
            Form::Tree { depth, fanout } => build_tree(&mut t, depth, fanout, per_edge),
            Form::LeafSpine { spines, leaves } => {
                let spines = t.add_switches(spines);
                let leaves = t.add_switches(leaves);
                t.add_hosts(leaves.clone(), per_edge);
                for leaf in leaves {
                    for spine in spines.clone() {
                        t.add_link(spine, leaf);
                    }
                }
            }
            Form::FatTree { k } => {
                build_fat_tree(&mut t, k, hosts_per_edge.unwrap_or(k / 2));
            }
        }
        t
    }
}

/// Builds a tree level by level, the root first, so that `s1` is the root.
fn build_tree(t: &mut Topology, depth: usize, fanout: usize, per_edge: usize) {
    let mut levels = vec![t.add_switches(1)];
    for level in 1..depth {
        levels.push(t.add_switches(fanout.pow(level as u32)));
    }
    t.add_hosts(levels[depth - 1].clone(), per_edge);
    for pair in levels.windows(2) {
        for (n, child) in pair[1].clone().enumerate() {
            t.add_link(pair[0].start + n / fanout, child);
        }
    }
}

/// Builds the cores first, then pod by pod: aggregation, then edge. Aggregation switch `a` of every
/// pod joins the `a`th group of k/2 cores.
fn build_fat_tree(t: &mut Topology, k: usize, per_edge: usize) {
    let half = k / 2;
    let cores = t.add_switches(half * half);
    for _pod in 0..k {
        let aggregations = t.add_switches(half);
        let edges = t.add_switches(half);
        t.add_hosts(edges.clone(), per_edge);
        for (a, aggregation) in aggregations.enumerate() {
            edges.clone().for_each(|edge| {
                t.add_link(aggregation, edge);
            });
            for core in 0..half {
                t.add_link(cores.start + a * half + core, aggregation);
            }
        }
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(words: &str) -> Result<Form, String> {
        let (kind, rest) = words.split_once(',').unwrap_or((words, ""));
        let parameters: Vec<&str> = rest.split(',').filter(|p| !p.is_empty()).collect();
        let numbers =
            |names: &[&str], least: &[usize]| named_numbers(words, &parameters, names, least);
        match kind {
            "single" => Ok(Form::Single {
                hosts: numbers(&["n"], &[1])?[0],
            }),
            "linear" => Ok(Form::Linear {
                switches: numbers(&["n"], &[1])?[0],
            }),
            "ring" => Ok(Form::Ring {
                switches: numbers(&["n"], &[3])?[0],
            }),
            "tree" => {
                let n = numbers(&["depth", "fanout"], &[1, 1])?;
                Ok(Form::Tree {
                    depth: n[0],
                    fanout: n[1],
                })
            }
            "leaf-spine" => {
                let sizes: Vec<&str> = parameters.iter().flat_map(|p| p.split('x')).collect();
                let n = named_numbers(words, &sizes, &["spines", "leaves"], &[1, 1])?;
                Ok(Form::LeafSpine {
                    spines: n[0],
                    leaves: n[1],
                })
            }
            "fat-tree" => match numbers(&["k"], &[2])?[0] {
                k if k % 2 == 0 => Ok(Form::FatTree { k }),
                k => Err(format!(
                    "topology '{words}': k={k} is odd; a fat tree halves it"
                )),
            },
            _ => Err(format!("unknown topology '{words}'; write {FORMS}")),
        }
    }
}

/// Reads `name=number` or a bare number per name, in order; each is at least its value in `least`.
fn named_numbers(
    words: &str,
    parameters: &[&str],
    names: &[&str],
    least: &[usize],
) -> Result<Vec<usize>, String> {
    if parameters.len() != names.len() {
        return Err(format!(
            "topology '{words}': give {} number(s): {}",
            names.len(),
            names.join(", ")
        ));
    }
    let mut numbers = vec![None; names.len()];
    for (position, parameter) in parameters.iter().enumerate() {
        let (place, digits) = match parameter.split_once('=') {
            Some((name, digits)) => {
                let place = names.iter().position(|known| *known == name);
                let unknown = || {
                    format!(
                        "topology '{words}': no '{name}'; there is {}",
                        names.join(", ")
                    )
                };
                (place.ok_or_else(unknown)?, digits)
            }
            None => (position, *parameter),
        };
        let number: usize = digits
            .parse()
            .map_err(|_| format!("topology '{words}': '{digits}' is not a number"))?;
        if number < least[place] {
            return Err(format!(
                "topology '{words}': {} is at least {}",
                names[place], least[place]
            ));
        }
        numbers[place] = Some(number);
    }
    let twice = || format!("topology '{words}': give each of {} once", names.join(", "));
    numbers.into_iter().collect::<Option<_>>().ok_or_else(twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(words: &str) -> Topology {
        Topology::generate(words, None).unwrap()
    }

    fn sizes(words: &str) -> (usize, usize, usize) {
        let t = generate(words);
        (t.switches.len(), t.links.len(), t.hosts.len())
    }

    /// Whether all switches are reached from the first one over links.
    fn is_connected(t: &Topology) -> bool {
        let mut reached = vec![false; t.switches.len()];
        reached[0] = true;
        for _ in 0..t.switches.len() {
            for link in &t.links {
                let [a, b] = link.ends.map(|end| end.switch);
                let either = reached[a] || reached[b];
                (reached[a], reached[b]) = (either, either);
            }
        }
        reached.into_iter().all(|r| r)
    }

    const EVERY_FORM: [&str; 8] = [
        "single,3",
        "linear,10",
        "ring,6",
        "tree,depth=3,fanout=2",
        "tree,2,3",
        "leaf-spine,2x4",
        "fat-tree,k=4",
        "fat-tree,6",
    ];

    #[test]
    fn every_form_has_the_switches_links_and_hosts_of_its_definition() {
        assert_eq!(sizes("single,3"), (1, 0, 3));
        assert_eq!(sizes("linear,10"), (10, 9, 10));
        assert_eq!(sizes("ring,6"), (6, 6, 6));
        assert_eq!(sizes("tree,depth=3,fanout=2"), (7, 6, 4));
        assert_eq!(sizes("tree,fanout=2,depth=3"), (7, 6, 4));
        assert_eq!(sizes("leaf-spine,2x4"), (6, 8, 4));
        assert_eq!(sizes("fat-tree,k=4"), (20, 32, 16));
        assert_eq!(sizes("fat-tree,k=6"), (45, 108, 54));
    }

    #[test]
    fn every_form_is_connected_and_uses_each_port_once() {
        for words in EVERY_FORM {
            let t = generate(words);
            assert!(is_connected(&t), "{words}");
            let link_ends = t.links.iter().flat_map(|link| link.ends);
            let mut ports: Vec<(usize, u32)> = link_ends
                .chain(t.hosts.iter().map(|host| host.at))
                .map(|at| (at.switch, at.port.0))
                .collect();
            ports.sort_unstable();
            let all = t.switches.iter().enumerate();
            let expected: Vec<(usize, u32)> = all
                .flat_map(|(n, s)| (1..=s.port_count).map(move |p| (n, p)))
                .collect();
            assert_eq!(ports, expected, "{words}");
        }
    }

    #[test]
    fn names_numbers_and_addresses_follow_mininet() {
        let t = generate("linear,3");
        let host = &t.hosts[2];
        assert_eq!(
            (host.name.as_str(), host.address),
            ("h3", Ipv4Addr::new(10, 0, 0, 3))
        );
        assert_eq!(host.mac.to_string(), "00:00:00:00:00:03");
        assert_eq!(
            (t.switches[2].name.as_str(), t.switches[2].dpid),
            ("s3", DatapathId(3))
        );
        assert_eq!(
            host.at,
            Attachment {
                switch: 2,
                port: PortNo(1)
            }
        );
    }

    #[test]
    fn a_fat_tree_gives_every_switch_k_ports() {
        for k in [2, 4, 6, 8] {
            let t = generate(&format!("fat-tree,k={k}"));
            assert!(t.switches.iter().all(|s| s.port_count == k), "k={k}");
        }
    }

    #[test]
    fn the_number_of_hosts_per_edge_can_be_set() {
        assert_eq!(
            Topology::generate("ring,4", Some(3)).unwrap().hosts.len(),
            12
        );
        assert_eq!(
            Topology::generate("fat-tree,k=4", Some(1))
                .unwrap()
                .hosts
                .len(),
            8
        );
        assert_eq!(
            Topology::generate("ring,4", Some(0)).unwrap().hosts.len(),
            0
        );
    }

    #[test]
    fn links_are_found_by_the_names_of_their_switches() {
        let t = generate("ring,4");
        assert_eq!(t.link_between("s1", "s4"), t.link_between("s4", "s1"));
        assert!(t.link_between("s1", "s4").is_some());
        assert_eq!(t.link_between("s1", "s3"), None);
    }

    #[test]
    fn what_makes_no_topology_is_refused_with_the_reason() {
        let refused = |words| Topology::generate(words, None).unwrap_err();
        assert!(
            refused("torus,4").contains("leaf-spine"),
            "the known forms are listed"
        );
        assert!(refused("ring,2").contains("n is at least 3"));
        assert!(refused("ring").contains("give 1 number(s): n"));
        assert!(refused("linear,ten").contains("'ten' is not a number"));
        assert!(refused("linear,0").contains("at least 1"));
        assert!(refused("fat-tree,k=3").contains("odd"));
        assert!(refused("tree,width=3,fanout=2").contains("no 'width'"));
        assert!(refused("tree,depth=3,depth=2").contains("once"));
        assert!(refused("tree,depth=40,fanout=9").contains("256 is the most"));
        assert!(refused("linear,99999999999999").contains("256 is the most"));
        assert!(refused("single,5000").contains("1024 is the most"));
    }
}
