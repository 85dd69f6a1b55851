//! Pairs of hosts that have never spoken: each ordered pair is drawn once.

use std::collections::HashSet;

use clap::ValueEnum;
use clock::SplitMix64;
use serde::Serialize;

use super::net::Net;

/// The choice of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Every host is as likely as any other
    Uniform,
    /// The nth most popular host has a weight of 1/n
    Zipf,
    /// The hosts of one switch
    OneHot,
}

/// Random draws before all pairs of a switch are tried in order.
const DRAWS_MAX: u32 = 16;

pub struct Pairs {
    choice: Choice,
    /// Whether both hosts of a pair are at the same switch.
    same_switch: bool,
    random: SplitMix64,
    host_count: u32,
    /// The ordered pairs that were drawn.
    drawn: HashSet<(u32, u32)>,
    /// Hosts in the order of their popularity, and the sums of the weights up to each.
    popular: Vec<(u32, f64)>,
    /// Switches whose pairs have all been drawn.
    exhausted: Vec<bool>,
}

impl Pairs {
    pub fn new(net: &Net, choice: Choice, same_switch: bool, seed: u64) -> Pairs {
        let host_count = net.host_count();
        let mut random = SplitMix64::new(seed);
        let mut popular = Vec::new();
        if choice == Choice::Zipf {
            let mut hosts: Vec<(u64, u32)> = (0..host_count).map(|h| (random.next(), h)).collect();
            hosts.sort_unstable();
            let mut sum = 0.0;
            for (rank, (_, host)) in (1..).zip(hosts) {
                sum += 1.0 / f64::from(rank);
                popular.push((host, sum));
            }
        }
        Pairs {
            choice,
            same_switch,
            random,
            host_count,
            drawn: HashSet::new(),
            popular,
            exhausted: vec![false; net.switch_count()],
        }
    }

    /// Draws a pair whose source began at the switch; `None` when no pair is left. `is_usable`
    /// leaves out hosts that cannot be reached.
    pub fn next(
        &mut self,
        net: &Net,
        switch: usize,
        is_usable: impl Fn(u32) -> bool,
    ) -> Option<(u32, u32)> {
        let home = net.home(switch);
        if self.exhausted[switch] || home.is_empty() {
            return None;
        }
        let fits = |pairs: &Pairs, source, destination| {
            let (a, b) = (net.place(source), net.place(destination));
            let is_so = match pairs.same_switch {
                true => a.switch == b.switch && a.port != b.port,
                false => a.switch != b.switch,
            };
            is_so && !pairs.drawn.contains(&(source, destination))
        };
        for _ in 0..DRAWS_MAX {
            let source = home.start + self.below(home.end - home.start);
            let destination = self.destination(net, switch);
            if fits(self, source, destination) && is_usable(source) && is_usable(destination) {
                return Some(self.draw(source, destination));
            }
        }
        let candidates = match (self.choice, self.same_switch) {
            (Choice::OneHot, false) => net.home(hot(net)),
            (_, true) => home.clone(),
            _ => 0..self.host_count,
        };
        let first = self.below(home.end - home.start);
        let sources = (home.start + first..home.end).chain(home.start..home.start + first);
        let mut all = sources.flat_map(|s| candidates.clone().map(move |d| (s, d)));
        let found = all.find(|(s, d)| fits(self, *s, *d) && is_usable(*s) && is_usable(*d));
        if found.is_none() {
            self.exhausted[switch] = true;
        }
        found.map(|(source, destination)| self.draw(source, destination))
    }

    fn destination(&mut self, net: &Net, switch: usize) -> u32 {
        let hosts = match (self.choice, self.same_switch) {
            (_, true) => net.home(switch),
            (Choice::OneHot, false) => net.home(hot(net)),
            (Choice::Uniform, false) => 0..self.host_count,
            (Choice::Zipf, false) => {
                let sum = self.popular.last().map_or(0.0, |(_, sum)| *sum);
                let drawn = self.random.uniform() * sum;
                let rank = self.popular.partition_point(|(_, sum)| *sum <= drawn);
                return self.popular[rank.min(self.popular.len() - 1)].0;
            }
        };
        hosts.start + self.below(hosts.end - hosts.start)
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.random.next() % u64::from(bound)) as u32
    }

    fn draw(&mut self, source: u32, destination: u32) -> (u32, u32) {
        self.drawn.insert((source, destination));
        (source, destination)
    }
}

/// The switch that all hosts send to.
fn hot(net: &Net) -> usize {
    net.edges().last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn drawn(choice: Choice, same_switch: bool, seed: u64) -> Vec<(u32, u32)> {
        let net = Net::generate("linear,3", 2, 6).unwrap();
        let mut pairs = Pairs::new(&net, choice, same_switch, seed);
        let mut drawn = Vec::new();
        for switch in net.edges().cycle().take(1000) {
            drawn.extend(pairs.next(&net, switch, |host| host != 5));
        }
        for (source, destination) in &drawn {
            let (a, b) = (net.place(*source), net.place(*destination));
            assert_eq!(a.switch == b.switch, same_switch);
            assert!(a != b && *source != 5 && *destination != 5);
        }
        let once: BTreeSet<_> = drawn.iter().collect();
        assert_eq!(once.len(), drawn.len(), "a pair was drawn twice");
        drawn
    }

    #[test]
    fn every_pair_is_drawn_once_and_then_none() {
        // 17 usable hosts: 5 at the first switch, 6 at each of the others.
        let across = 5 * 12 + 6 * 11 + 6 * 11;
        assert_eq!(drawn(Choice::Uniform, false, 1).len(), across);
        assert_eq!(drawn(Choice::Zipf, false, 1).len(), across);
        // The hot switch is the last: 11 sources for its 6 hosts.
        assert_eq!(drawn(Choice::OneHot, false, 1).len(), 66);
        // Behind the other port of the same switch.
        assert_eq!(drawn(Choice::Uniform, true, 1).len(), 2 * 3 * 2 + 2 * 18);
    }

    #[test]
    fn the_seed_decides_the_pairs() {
        let of = |seed| drawn(Choice::Zipf, false, seed);
        assert_eq!(of(4), of(4));
        assert_ne!(of(4), of(5));
    }

    #[test]
    fn popular_hosts_come_first_under_zipf() {
        let net = Net::generate("linear,2", 2, 500).unwrap();
        let mut pairs = Pairs::new(&net, Choice::Zipf, false, 3);
        let mut counts = vec![0; 1000];
        for _ in 0..2000 {
            let (_, destination) = pairs.next(&net, 0, |_| true).unwrap();
            counts[destination as usize] += 1;
        }
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        assert!(counts[0] > 10 * counts[100], "{:?}", &counts[..5]);
    }
}
