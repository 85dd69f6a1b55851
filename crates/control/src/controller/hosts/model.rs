//! The table of hosts compared with a reference that is simple and slow.

use std::collections::BTreeMap;

use openflow::{DatapathId, PortNo};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Operation {
    /// A frame of a host, with an IP address of its own, at a port of a switch.
    Observe {
        host: u8,
        at: u8,
        ip: bool,
    },
    Adopt {
        host: u8,
        at: u8,
    },
    Unplace {
        at: u8,
    },
    /// Seconds pass.
    Wait(u16),
    Age,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::{Adopt, Age, Observe, Unplace, Wait};
    prop_oneof![
        12 => (1u8..60, 0u8..12, any::<bool>()).prop_map(|(host, at, ip)| Observe { host, at, ip }),
        2 => (1u8..60, 0u8..12).prop_map(|(host, at)| Adopt { host, at }),
        1 => (0u8..12).prop_map(|at| Unplace { at }),
        2 => (1u16..200).prop_map(Wait),
        2 => Just(Age),
    ]
}

fn mac(host: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, host])
}

/// Three switches of four ports.
fn place(at: u8) -> Location {
    Location::new(
        DatapathId(u64::from(at / 4) + 1),
        PortNo(u32::from(at % 4) + 1),
    )
}

const SHARES: Shares = Shares {
    count_max: 24,
    per_switch_max: 12,
    per_port_max: 6,
};
const IDLE: Duration = Duration::from_secs(600);

/// Where a host is or was, whether it is still there and has answered there, and when it was last
/// heard.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    at: Location,
    placed: bool,
    proven: bool,
    since: Instant,
}

impl Known {
    fn new(at: Location, since: Instant) -> Known {
        Known {
            at,
            placed: true,
            proven: false,
            since,
        }
    }
}

#[derive(Default)]
struct Model {
    known: BTreeMap<MacAddr, Known>,
}

impl Model {
    fn count(&self, is_it: impl Fn(Location) -> bool) -> usize {
        self.known.values().filter(|k| is_it(k.at)).count()
    }

    fn of_port(&self, at: Location) -> usize {
        self.count(|there| there == at)
    }

    fn of_switch(&self, dpid: DatapathId) -> usize {
        self.count(|there| there.dpid == dpid)
    }

    /// The ports that may have to give up a host for one more at `at`.
    fn givers(&self, at: Location, from: Option<Location>) -> Vec<Location> {
        if self.of_port(at) >= SHARES.per_port_max as usize {
            return vec![at];
        }
        let ports: Vec<Location> = (0..12).map(place).collect();
        let most = |of: Vec<Location>| {
            let count = of.iter().map(|port| self.of_port(*port)).max().unwrap_or(0);
            of.into_iter()
                .filter(|port| self.of_port(*port) == count)
                .collect::<Vec<_>>()
        };
        let of_switch = |dpid| ports.iter().copied().filter(|p| p.dpid == dpid).collect();
        let stays = from.is_some_and(|from| from.dpid == at.dpid);
        if self.of_switch(at.dpid) >= SHARES.per_switch_max as usize && !stays {
            return most(of_switch(at.dpid));
        }
        if self.known.len() >= SHARES.count_max && from.is_none() {
            let switches = (1..=3).map(DatapathId);
            let count = switches.clone().map(|dpid| self.of_switch(dpid)).max();
            let most_of = switches.filter(|dpid| Some(self.of_switch(*dpid)) == count);
            return most_of.flat_map(|dpid| most(of_switch(dpid))).collect();
        }
        Vec::new()
    }

    /// Notes that `gone` were evicted, after checking that this was right.
    fn give_way(&mut self, givers: &[Location], gone: &[MacAddr]) {
        match givers {
            [] => assert_eq!(gone, [], "there was room"),
            givers => {
                let [gone] = gone else {
                    panic!("one gives way, not {gone:?}");
                };
                let of = self.known[gone].clone();
                assert!(givers.contains(&of.at), "{of:?} is none of {givers:?}");
                // Hosts without a place are evicted first, then hosts that have not answered, and
                // of these the host silent for longest.
                let order = |k: &Known| {
                    let tick = k.since.as_nanos() / 4_000_000_000;
                    (k.placed, k.placed && k.proven, tick)
                };
                let there = self.known.values().filter(|k| k.at == of.at);
                let first = there.map(order).min().unwrap();
                assert_eq!(order(&of), first, "{gone} goes first of {}", of.at);
                self.known.remove(gone);
            }
        }
    }
}

fn known(hosts: &Hosts) -> Vec<MacAddr> {
    let all = (1..60).map(mac);
    all.filter(|mac| hosts.is_known(*mac)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn hosts_are_where_they_were_heard_and_no_port_has_more_than_its_share(
        seed: u64, operations in prop::collection::vec(operation(), 1..250),
    ) {
        let mut hosts = Hosts::new(crate::vlan::VlanId::NONE, SHARES, 1, seed);
        let mut model = Model::default();
        let mut now = Instant::START + Duration::from_secs(1000);
        for operation in operations {
            let before = known(&hosts);
            match operation {
                Operation::Observe { host, at, ip } => {
                    let (mac, at) = (mac(host), place(at));
                    let was = model.known.get(&mac).cloned();
                    let from = was.as_ref().map(|k| k.at);
                    let moves = from != Some(at);
                    let givers = match moves {
                        true => model.givers(at, from),
                        false => Vec::new(),
                    };
                    let told = ip.then(|| IpAddr::from([10, 0, 0, host]));
                    // The old place is always gone: contests have tests of their own.
                    let observed = hosts.observe(now, mac, at, |_| true, |_| false);
                    if let Some(ip) = told {
                        let _ = hosts.tell(now, mac, at, ip);
                    }
                    let stays = was.as_ref().is_some_and(|k| k.placed && !moves);
                    let expected = if stays { Observed::Home } else { Observed::Placed };
                    prop_assert_eq!(observed, expected);
                    let after = known(&hosts);
                    let gone = before.iter().filter(|m| !after.contains(m));
                    let gone: Vec<_> = gone.copied().collect();
                    model.give_way(&givers, &gone);
                    model.known.insert(mac, Known::new(at, now));
                }
                Operation::Adopt { host, at } => {
                    let (mac, at) = (mac(host), place(at));
                    let was = model.known.get(&mac).cloned();
                    let adopts = was.as_ref().is_none_or(|k| !k.placed);
                    let from = was.as_ref().map(|k| k.at);
                    let givers = match adopts && from != Some(at) {
                        true => model.givers(at, from),
                        false => Vec::new(),
                    };
                    prop_assert_eq!(hosts.adopt(now, mac, at), adopts);
                    let after = known(&hosts);
                    let gone = before.iter().filter(|m| !after.contains(m));
                    let gone: Vec<_> = gone.copied().collect();
                    model.give_way(&givers, &gone);
                    if adopts {
                        model.known.insert(mac, Known::new(at, now));
                        prop_assert!(!hosts.is_heard(mac));
                    }
                }
                Operation::Unplace { at } => {
                    let at = place(at);
                    let mut left = Vec::new();
                    for (mac, known) in &mut model.known {
                        if known.at == at && known.placed {
                            (known.placed, known.since) = (false, now);
                            left.push(*mac);
                        }
                    }
                    prop_assert_eq!(hosts.unplace(now, at), left);
                }
                Operation::Wait(seconds) => now += Duration::from_secs(u64::from(seconds)),
                Operation::Age => {
                    // Ten steps and more, so that a host that is asked and silent is forgotten.
                    for _ in 0..12 {
                        let _ = tests::age(&mut hosts, now, IDLE);
                        now += Duration::from_secs(1);
                    }
                    model.known.retain(|mac, k| {
                        let kept = if k.placed { IDLE } else { Duration::from_secs(180) };
                        let age = now.since(k.since);
                        // Time is counted in units of four seconds, and questions take some time.
                        let may_be_gone = age + Duration::from_secs(4) >= kept;
                        let must_be_gone = age >= kept + Duration::from_secs(20);
                        let is_known = hosts.is_known(*mac);
                        assert!(is_known || may_be_gone, "{mac} is gone after {age:?}");
                        assert!(!is_known || !must_be_gone, "{mac} is there after {age:?}");
                        is_known
                    });
                    // Who was asked and is not gone was put last: nothing is said of those.
                    for (mac, k) in &mut model.known {
                        if k.placed && now.since(k.since) + Duration::from_secs(16) >= IDLE {
                            k.since = now;
                            hosts.places.touch(now, *mac);
                        }
                    }
                }
            }
            for (mac, k) in &mut model.known {
                k.proven = hosts.places.is_proven(*mac);
            }
            check(&hosts, &model);
        }
    }
}

fn check(hosts: &Hosts, model: &Model) {
    assert_eq!(
        known(hosts),
        model.known.keys().copied().collect::<Vec<_>>()
    );
    for (mac, known) in &model.known {
        assert_eq!(hosts.place(*mac), known.placed.then_some(known.at));
    }
    for at in (0..12).map(place) {
        assert!(model.of_port(at) <= SHARES.per_port_max as usize);
        assert!(model.of_switch(at.dpid) <= SHARES.per_switch_max as usize);
        hosts
            .places
            .check(at, model.of_port(at), model.of_switch(at.dpid));
    }
    assert!(hosts.len() <= SHARES.count_max);
    // Only known hosts own addresses.
    for (ip, mac) in hosts.owned() {
        let detail = hosts.details.get(&mac);
        assert!(detail.is_some_and(|detail| detail.ips.iter().any(|owned| owned.ip == ip)));
        assert!(hosts.is_known(mac));
    }
    for ip in (1..60).map(|host| IpAddr::from([10, 0, 0, host])) {
        let owner = hosts.addresses().get(ip).map(|owner| owner.mac);
        assert_eq!(owner, hosts.undisputed(ip));
    }
}
