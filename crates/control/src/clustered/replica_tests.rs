//! Two controllers, of which one follows the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use clock::{Duration, Instant, SplitMix64};
use openflow::{DatapathId, MacAddr, PortNo};

use super::replica::Replica;
use super::source::{Follower, Said, Source};
use super::wire::{Batch, LENGTH_BYTES, Record};
use super::{Learned, Listener};
use crate::Location;
use crate::controller::known::{HostCursor, KnownHost, Link};
use crate::controller::{Controller, ControllerConfig};
use crate::vlan::{HostKey, PortVlans, VlanId, Vlans};

fn vlan() -> VlanId {
    VlanId::new(7).unwrap()
}

/// A controller with one VLAN.
fn controller() -> Controller {
    let mut vlans = Vlans::default();
    let at = place(1, 99);
    vlans.ports.insert(at, PortVlans::Access(vlan()));
    let config = ControllerConfig {
        vlans,
        host_count_max: 200_000,
        ..ControllerConfig::default()
    };
    Controller::new(config, [7; 32])
}

fn place(dpid: u64, port: u32) -> Location {
    Location::new(DatapathId(dpid), PortNo(port))
}

struct Trial {
    now: Instant,
    random: SplitMix64,
    serving: Controller,
    source: Source,
    following: Controller,
    replica: Replica,
    follower: Follower,
    listener: Listener,
    term: u64,
    hosts: u64,
    begun: usize,
}

impl Trial {
    fn new(seed: u64, hosts: u64) -> Trial {
        let mut serving = controller();
        serving.want_news();
        Trial {
            now: Instant::START + Duration::from_secs(1),
            random: SplitMix64::new(seed),
            serving,
            source: Source::default(),
            following: controller(),
            replica: Replica::new(1000),
            follower: Follower::default(),
            listener: Listener::default(),
            term: 1,
            hosts,
            begun: 0,
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.next() % n
    }

    /// A host of the serving member appears, moves, disappears, or gets or loses an address.
    fn change(&mut self) {
        let n = self.below(self.hosts);
        let vlan = [VlanId::NONE, vlan()][self.below(2) as usize];
        let mac = MacAddr::from_u64(0x0200_0000_0000 | n);
        let host = HostKey { vlan, mac };
        let addresses = self.below(3) as u32;
        let address = |k: u32| IpAddr::from((0x0a00_0000 + n as u32 % 64 * 4 + k).to_be_bytes());
        let known = KnownHost {
            at: place(1 + self.below(3), 1 + self.below(4) as u32),
            is_no_router: self.below(2) == 0,
            ips: (0..addresses).map(address).collect(),
        };
        let known = (self.below(4) > 0).then_some(known);
        self.serving.learn_host(self.now, host, known.as_ref());
        self.serving.settle_learned(self.now, vlan);
    }

    /// Hands one frame over. Returns whether there was one.
    fn pull(&mut self) -> bool {
        let (source, serving) = (&mut self.source, &mut self.serving);
        let said = source.say(self.now, serving, &mut self.follower, self.term);
        let Said::Frame { bytes, .. } = said else {
            return false;
        };
        let mut batch = Batch::read(&bytes[LENGTH_BYTES..]).expect("it is well formed");
        self.begun += usize::from(batch.begins);
        loop {
            let (replica, following) = (&mut self.replica, &mut self.following);
            match replica.learn(self.now, following, &mut self.listener, &mut batch, |_| {
                true
            }) {
                Learned::More => {}
                Learned::Done => return true,
                Learned::Refused => panic!("refused"),
            }
        }
    }

    fn pull_all(&mut self) {
        while self.pull() {}
    }

    fn break_connection(&mut self) {
        (self.follower, self.listener) = (Follower::default(), Listener::default());
    }

    fn check(&self) {
        let (theirs, ours) = (known(&self.serving), known(&self.following));
        assert_eq!(theirs.len(), ours.len());
        assert_eq!(theirs, ours);
    }
}

fn known(controller: &Controller) -> BTreeMap<HostKey, KnownHost> {
    let mut cursor = HostCursor::default();
    let mut all = BTreeMap::new();
    while let Some(host) = controller.next_host(&mut cursor) {
        all.extend(host.and_then(|host| Some((host, controller.known_host(host)?))));
    }
    for known in all.values_mut() {
        known.ips.sort();
    }
    all
}

/// Whatever changes while a copy is made, and however often its connection breaks: in the end both
/// know the same. A copy takes several frames.
#[test]
fn in_the_end_both_members_know_the_same() {
    for seed in 0..12 {
        let mut trial = Trial::new(seed, 6000);
        for _ in 0..8000 {
            trial.change();
        }
        for _ in 0..60 {
            let changes = trial.below(200);
            for _ in 0..changes {
                trial.change();
            }
            match trial.below(12) {
                0 => trial.break_connection(),
                1 => trial.pull_all(),
                2 => trial.term += 1,
                _ => drop(trial.pull()),
            }
        }
        trial.pull_all();
        trial.check();
        assert!(trial.begun > 1, "seed {seed}");
        trial.now += Duration::from_millis(600);
        assert!(trial.pull(), "it says that it is alive");
        assert!(trial.replica.counts(trial.now).is_whole);
        assert!(
            !trial
                .replica
                .counts(trial.now + Duration::from_secs(4))
                .is_whole
        );
    }
}

/// The whole copy is sent again, and nothing is queued.
#[test]
fn whoever_is_slower_than_the_list_of_changes_gets_a_whole_copy_again() {
    let mut trial = Trial::new(1, 20);
    trial.pull_all();
    assert_eq!(trial.begun, 1);
    for _ in 0..200 {
        trial.change();
    }
    trial.pull_all();
    assert_eq!(trial.begun, 1, "changes are enough");
    for _ in 0..140_000 {
        trial.change();
    }
    trial.pull_all();
    assert_eq!(trial.begun, 2);
    trial.check();
}

/// The first whole copy removes hosts from the time when this member served.
#[test]
fn what_a_whole_copy_does_not_have_is_forgotten() {
    let mut trial = Trial::new(1, 20_000);
    let old = HostKey::untagged(MacAddr::from_u64(0x0200_0100_0000));
    let known = KnownHost {
        at: place(1, 1),
        is_no_router: false,
        ips: Vec::new(),
    };
    trial.following.learn_host(trial.now, old, Some(&known));
    for _ in 0..20_000 {
        trial.change();
    }
    trial.pull();
    assert!(trial.following.known_host(old).is_some(), "not yet");
    trial.pull_all();
    assert!(trial.following.known_host(old).is_none());
    trial.check();
}

#[test]
fn links_are_bounded_confirmed_and_forgotten_with_their_ports() {
    let now = Instant::START + Duration::from_secs(1);
    let mut following = controller();
    let mut replica = Replica::new(10);
    let mut listener = Listener::default();
    let link = |n: u32, is_there| Record::Link {
        link: (place(1, n), place(2, n)),
        is_there,
    };
    let back = |n: u32| Record::Link {
        link: (place(2, n), place(1, n)),
        is_there: true,
    };
    let mut learn = |replica: &mut Replica, begins, ends, records| {
        let mut batch = Batch {
            begins,
            ends,
            records,
        };
        let is_led = |dpid| dpid != DatapathId(3);
        let learned = replica.learn(now, &mut following, &mut listener, &mut batch, is_led);
        assert_eq!(learned, Learned::Done);
    };
    let links = (1..=20).map(|n| link(n, true)).collect();
    learn(&mut replica, true, true, links);
    assert_eq!(replica.counts(now).learned, 10);
    assert_eq!(replica.counts(now).passed_over, 10, "there is no room");
    let (from, to) = (place(3, 1), place(1, 1));
    let is_there = true;
    let of_others = Record::Link {
        link: (from, to),
        is_there,
    };
    learn(&mut replica, false, false, vec![link(1, false), of_others]);
    assert_eq!(replica.counts(now).passed_over, 11);
    let again = vec![link(2, true), link(3, true), back(3), link(4, true)];
    learn(&mut replica, true, false, again);
    learn(&mut replica, false, true, Vec::new());
    replica.port_changed(place(2, 3));
    let kept: BTreeSet<Link> = [2, 4].map(|n| (place(1, n), place(2, n))).into();
    assert_eq!(replica.take_links(now), Some(kept));
    let mut batch = Batch::default();
    let learned = replica.learn(now, &mut controller(), &mut listener, &mut batch, |_| true);
    assert_eq!(learned, Learned::Refused, "this member serves by now");
}

#[test]
fn links_of_a_member_that_has_been_silent_for_three_seconds_do_not_count() {
    let now = Instant::START + Duration::from_secs(1);
    let mut replica = Replica::new(10);
    let link = (place(1, 1), place(2, 1));
    let is_there = true;
    let mut batch = Batch {
        begins: true,
        ends: true,
        records: vec![Record::Link { link, is_there }],
    };
    let mut listener = Listener::default();
    let _ = replica.learn(now, &mut controller(), &mut listener, &mut batch, |_| true);
    assert_eq!(replica.take_links(now + Duration::from_secs(3)), None);
}

/// Measures the size of a copy of a million hosts, and the steps that it takes of either
/// application's thread. Run it alone, and measure the process from outside: it has both tables.
#[test]
#[ignore = "a measurement: results/2026-11-28-replication"]
fn a_million_hosts() {
    let mut trial = Trial::new(1, 1);
    let config = ControllerConfig::default();
    trial.serving = Controller::new(config.clone(), [7; 32]);
    trial.serving.want_news();
    trial.following = Controller::new(config, [7; 32]);
    for n in 0..1_000_000 {
        let mac = MacAddr::from_u64(0x0200_0000_0000 | n);
        let port = 1 + (n / 1000 % 50) as u32;
        let addresses = if n % 20 == 0 { 1 } else { 0 };
        let known = KnownHost {
            at: place(1 + n / 50_000, port),
            is_no_router: false,
            ips: vec![IpAddr::from((0x0a00_0000 + n as u32).to_be_bytes()); addresses],
        };
        let host = HostKey::untagged(mac);
        assert!(trial.serving.learn_host(trial.now, host, Some(&known)));
        if n % 1000 == 0 {
            trial.serving.settle_learned(trial.now, VlanId::NONE);
        }
    }
    trial.serving.settle_learned(trial.now, VlanId::NONE);
    let (mut frames, mut bytes) = (0, 0);
    loop {
        let (source, serving) = (&mut trial.source, &mut trial.serving);
        let Said::Frame { bytes: frame, .. } =
            source.say(trial.now, serving, &mut trial.follower, 1)
        else {
            break;
        };
        (frames, bytes) = (frames + 1, bytes + frame.len());
        let mut batch = Batch::read(&frame[LENGTH_BYTES..]).unwrap();
        let (replica, following) = (&mut trial.replica, &mut trial.following);
        let listener = &mut trial.listener;
        while replica.learn(trial.now, following, listener, &mut batch, |_| true) == Learned::More {
        }
    }
    assert_eq!(trial.following.host_count(), 1_000_000);
    println!("{frames} frames, {bytes} bytes");
}
