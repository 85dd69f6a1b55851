//! Topologies: each adds switches, links and hosts to a network and names them.

use crate::network::{HostId, LinkId, Network, SwitchId};
use clock::{Duration, SplitMix64};

pub struct Topology {
    pub switches: Vec<SwitchId>,
    pub links: Vec<LinkId>,
    pub hosts: Vec<HostId>,
}

impl Topology {
    /// Has each host ask for the address of the next one, so that the controller learns the
    /// location of each host.
    pub fn introduce(&self, network: &mut Network) {
        network.run_for(Duration::from_secs(2));
        for (n, host) in self.hosts.iter().enumerate() {
            network.resolve(*host, self.hosts[(n + 1) % self.hosts.len()]);
            network.run_for(Duration::from_millis(5));
        }
        network.run_for(Duration::from_millis(500));
    }

    /// All pairs in which the second host does not answer a ping from the first.
    pub fn silent_pairs(&self, network: &mut Network, seq: u16) -> Vec<(HostId, HostId)> {
        for (from, to) in self.pairs() {
            network.ping(from, to, seq);
            network.run_for(Duration::from_millis(5));
        }
        network.run_for(Duration::from_millis(400));
        let answered = |(from, to): &(HostId, HostId)| {
            let ip = network.host(*to).address.ip;
            network.host(*from).pongs.contains_key(&(ip, seq))
        };
        self.pairs().filter(|pair| !answered(pair)).collect()
    }

    /// Every ordered pair of different hosts.
    pub fn pairs(&self) -> impl Iterator<Item = (HostId, HostId)> {
        let to = |from: HostId| self.hosts.iter().map(move |to| (from, *to));
        let pairs = self.hosts.iter().flat_map(move |from| to(*from));
        pairs.filter(|(from, to)| from != to)
    }
}

fn build(
    network: &mut Network,
    switch_count: usize,
    links: impl IntoIterator<Item = (usize, usize)>,
    hosts_at: impl IntoIterator<Item = usize>,
) -> Topology {
    let switches: Vec<SwitchId> = (0..switch_count).map(|_| network.add_switch()).collect();
    let links = links
        .into_iter()
        .map(|(a, b)| network.link(switches[a], switches[b]))
        .collect();
    let hosts = hosts_at
        .into_iter()
        .map(|at| network.add_host(switches[at]))
        .collect();
    Topology {
        switches,
        links,
        hosts,
    }
}

/// Switches in a row, a host on each.
pub fn line(network: &mut Network, n: usize) -> Topology {
    build(network, n, (1..n).map(|i| (i - 1, i)), 0..n)
}

/// Switches in a circle, a host on each.
pub fn ring(network: &mut Network, n: usize) -> Topology {
    build(network, n, (0..n).map(|i| (i, (i + 1) % n)), 0..n)
}

/// Switches in `width` columns and `height` rows, each joined to four others, a host on each.
pub fn torus(network: &mut Network, width: usize, height: usize) -> Topology {
    let at = |x: usize, y: usize| y % height * width + x % width;
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let links = places.flat_map(|(x, y)| [(at(x, y), at(x + 1, y)), (at(x, y), at(x, y + 1))]);
    build(network, width * height, links, 0..width * height)
}

/// A tree of `depth` levels below its root, hosts on its leaves.
pub fn tree(network: &mut Network, depth: u32, fanout: usize) -> Topology {
    let count: usize = (0..=depth).map(|level| fanout.pow(level)).sum();
    let links = (1..count).map(|i| ((i - 1) / fanout, i));
    let leaves = count - fanout.pow(depth)..count;
    build(network, count, links, leaves)
}

/// Every leaf joined to every spine, with hosts on the leaves. The spines are the first switches.
pub fn leaf_spine(network: &mut Network, spines: usize, leaves: usize, hosts: usize) -> Topology {
    let links = (0..leaves).flat_map(|leaf| (0..spines).map(move |spine| (spine, spines + leaf)));
    let hosts_at = (0..leaves * hosts).map(|i| spines + i / hosts);
    build(network, spines + leaves, links, hosts_at)
}

/// The k-ary fat tree: (k/2)² cores, k pods of k/2 aggregation and k/2 edge switches, k/2 hosts on
/// each edge switch. Cores come first, then each pod's aggregation and edge switches.
pub fn fat_tree(network: &mut Network, k: usize) -> Topology {
    let half = k / 2;
    let cores = half * half;
    let aggregation = |pod: usize, i: usize| cores + pod * k + i;
    let edge = |pod: usize, i: usize| cores + pod * k + half + i;
    let mut links = Vec::new();
    let mut hosts = Vec::new();
    for pod in 0..k {
        for i in 0..half {
            links.extend((0..half).map(|j| (i * half + j, aggregation(pod, i))));
            links.extend((0..half).map(|j| (aggregation(pod, i), edge(pod, j))));
            hosts.extend((0..half).map(|_| edge(pod, i)));
        }
    }
    build(network, cores + k * k, links, hosts)
}

/// A connected graph: a random tree and `extra` more links, which may be parallel or join a switch
/// to itself. A host on each switch.
pub fn random(network: &mut Network, n: usize, extra: usize, seed: u64) -> Topology {
    let mut random = SplitMix64::new(seed);
    let mut below = |n: usize| (random.next() % n as u64) as usize;
    let mut links: Vec<(usize, usize)> = (1..n).map(|i| (below(i), i)).collect();
    links.extend((0..extra).map(|_| (below(n), below(n))));
    build(network, n, links, 0..n)
}
