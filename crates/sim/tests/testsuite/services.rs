//! Services: some of the packets between two hosts are forbidden, or live longer.

use clock::ms;
use control::entry::{EntryKey, EntryKind};
use control::timeouts::{
    FirstPackets, FlowClass, HostName, Lease, Lifetime, Proto, Service, Timeouts,
};
use openflow::message::{FlowMod, FlowModCommand};
use openflow::packet::build::{udp, udp6};
use openflow::table::FlowEntry;
use openflow::{DatapathId, MacAddr, Message, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};
use sim::process::ProcessConfig;

const VERSIONS: [Version; 2] = [Version::V13, Version::V10];

/// Two hosts behind different switches, which have spoken.
struct Two {
    network: Network,
    here: SwitchId,
    there: SwitchId,
    a: HostId,
    b: HostId,
}

fn two(version: Version, classes: Vec<FlowClass>) -> Two {
    let mut config = NetworkConfig {
        version,
        process: ProcessConfig::default(),
        ..NetworkConfig::default()
    };
    config.process.controller.timeouts = timeouts(classes);
    let mut network = Network::new(config, 1);
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let (a, b) = (network.add_host(here), network.add_host(there));
    network.run_for(ms(2000));
    let mut two = Two {
        network,
        here,
        there,
        a,
        b,
    };
    two.resolve();
    two
}

fn timeouts(classes: Vec<FlowClass>) -> Timeouts {
    Timeouts {
        classes,
        ..idle(10)
    }
}

fn idle(idle_s: u16) -> Timeouts {
    Timeouts {
        first_packets: FirstPackets::PreInstall,
        ..Timeouts::fixed(idle_s, 0)
    }
}

fn class(name: &str, proto: &str, dst_ports: &[u16]) -> FlowClass {
    let service = Service {
        proto: proto.parse::<Proto>().unwrap(),
        src_ports: Vec::new(),
        dst_ports: dst_ports.to_vec(),
    };
    FlowClass {
        name: name.to_owned(),
        src: None,
        dst: None,
        service: Some(service),
        lifetime: None,
        first_packets: None,
        forbid: false,
        priority: false,
    }
}

fn forbidden(name: &str, proto: &str, dst_ports: &[u16]) -> FlowClass {
    FlowClass {
        forbid: true,
        ..class(name, proto, dst_ports)
    }
}

impl Two {
    fn resolve(&mut self) {
        self.network.host_mut(self.a).forget_addresses();
        self.network.host_mut(self.b).forget_addresses();
        self.network.resolve(self.a, self.b);
        self.network.run_for(ms(200));
    }

    fn set(&mut self, classes: Vec<FlowClass>) {
        let timeouts = timeouts(classes);
        self.network
            .tell_controller(|controller, now| controller.set_timeouts(now, timeouts));
    }

    /// Sends a packet from one host to the other. Returns whether it arrives.
    fn arrives(&mut self, port: u16, number: u64) -> bool {
        let [from, to] = [self.a, self.b].map(|host| self.network.host(host).address);
        let frame = udp(from, to, (9, port), &number.to_be_bytes());
        self.network.inject(self.a, frame);
        self.network.run_for(ms(50));
        self.network.host(self.b).datagrams.contains_key(&number)
    }

    /// Whether the packets of a ping arrive.
    fn answers(&mut self, seq: u16) -> bool {
        self.network.ping(self.a, self.b, seq);
        self.network.run_for(ms(50));
        let pongs = &self.network.host(self.a).pongs;
        pongs.keys().any(|(_, answered)| *answered == seq)
    }

    fn entries(&self, kind: EntryKind) -> Vec<FlowEntry> {
        let all = self.network.switch(self.here).entries();
        let its = all.filter(|e| EntryKind::of(e.cookie) == Some(kind));
        its.cloned().collect()
    }

    /// The host pairs of the entries at the one host's port, one pair for each entry.
    fn pairs_at_edge(&self, kind: EntryKind) -> Vec<(Option<MacAddr>, Option<MacAddr>)> {
        let port = self.network.place(self.a).port;
        let keys = self.entries(kind).into_iter();
        let keys = keys.filter_map(|e| EntryKey::from_match(e.priority, &e.r#match));
        let here = keys.filter(|key| key.in_port == Some(port));
        here.map(|key| (key.eth_src, key.eth_dst)).collect()
    }

    fn packet_ins(&self) -> u64 {
        let counters = self.network.process().controller.counters();
        counters.packet_ins - counters.lldp_accepted
    }

    fn dropped(&self) -> u64 {
        self.network
            .process()
            .controller
            .counters()
            .packets_forbidden
    }
}

/// In both versions the service stops at once when it is forbidden, and only as long as it is
/// forbidden. The rest of the pair goes on.
#[test]
fn a_forbidden_service_ends_at_once_and_the_rest_of_its_pair_does_not() {
    for version in VERSIONS {
        let mut two = two(version, Vec::new());
        assert!(two.arrives(53, 1) && two.arrives(80, 2) && two.answers(1));
        let asked = two.packet_ins();
        two.set(vec![forbidden("dns", "udp", &[53])]);
        two.network.run_for(ms(10));
        for n in 0..20 {
            assert!(!two.arrives(53, 100 + n), "{version:?}: {n}");
            assert!(two.arrives(80, 200 + n), "{version:?}: {n}");
        }
        assert!(two.answers(2), "{version:?}");
        // In 1.0 an edge's deletion removes all matching entries, which are requested once more.
        let again = if version == Version::V10 { 2 } else { 0 };
        assert!(
            two.packet_ins() <= asked + again,
            "{version:?}: the switch drops them"
        );
        assert_eq!(two.entries(EntryKind::Barrier).len(), 2, "IPv4 and IPv6");
        two.set(Vec::new());
        two.network.run_for(ms(300));
        assert!(two.arrives(53, 3), "{version:?}");
        assert_eq!(two.entries(EntryKind::Barrier), [], "{version:?}");
        assert_eq!(two.dropped(), 20, "{version:?}: each is counted");
        assert_eq!(two.network.errors().count(), 0, "{version:?}");
    }
}

/// Forbidden before the first packet, since drop entries are set with the pair's entries; and where
/// no entry is set.
#[test]
fn a_forbidden_service_is_so_from_its_first_packet() {
    let mut two = two(Version::V13, vec![forbidden("dns", "udp", &[53])]);
    assert_eq!(two.entries(EntryKind::Barrier).len(), 2);
    assert!(!two.arrives(53, 1) && two.arrives(80, 2));
    two.network.run_for(ms(20_000));
    assert_eq!(two.entries(EntryKind::Barrier), [], "with its pair");
    assert!(!two.arrives(53, 3), "it comes up and goes no further");
    assert_eq!(two.entries(EntryKind::Barrier).len(), 2);
    assert!(!two.arrives(53, 4) && two.arrives(80, 5));
}

/// The service's entry outlasts the pair's, so that none of its packets reaches the controller.
#[test]
fn a_service_lives_as_long_as_its_class_says() {
    let mut long = class("slow", "udp", &[7]);
    long.lifetime = Some(Lifetime::Fixed {
        idle_s: 60,
        hard_s: 0,
    });
    let mut two = two(Version::V13, vec![long]);
    let [slow] = &two.entries(EntryKind::Service)[..] else {
        panic!("one entry");
    };
    assert_eq!(slow.idle_timeout, 60);
    two.network.run_for(ms(30_000));
    let is_own = |e: &FlowEntry| e.idle_timeout == 10;
    let own = two.entries(EntryKind::Pair);
    assert!(!own.iter().any(is_own), "the pair's is over: {own:?}");
    let asked = two.packet_ins();
    assert!(two.arrives(7, 1));
    assert_eq!(two.packet_ins(), asked);
    assert!(two.arrives(8, 2));
    assert!(two.packet_ins() > asked, "the rest asks");
    two.network.run_for(ms(90_000));
    assert_eq!(two.entries(EntryKind::Service), []);
    assert_eq!(two.entries(EntryKind::Pair), []);
}

/// The first class that fits wins: one port of a forbidden service is allowed. It stays allowed
/// although it is silent for longer than its entry lives, as long as the pair is in use.
#[test]
fn an_exception_goes_before_what_it_stands_out_from() {
    let classes = vec![class("dns", "udp", &[53]), forbidden("udp", "udp", &[])];
    let mut two = two(Version::V13, classes);
    assert!(two.answers(1000));
    let asked = two.packet_ins();
    for second in 0..40 {
        assert!(two.answers(second), "{second}");
        two.network.run_for(ms(950));
    }
    assert!(two.arrives(53, 1));
    assert_eq!(two.packet_ins(), asked, "the path was there all the time");
    assert!(!two.arrives(54, 2));
    two.network.run_for(ms(60_000));
    for kind in [EntryKind::Service, EntryKind::Barrier, EntryKind::Pair] {
        assert_eq!(two.entries(kind), [], "{kind:?} ends with the pair");
    }
    assert!(two.arrives(53, 3) && !two.arrives(54, 4));
}

/// While its lease is renewed, the entry may be absent for a moment, and then its packets would be
/// dropped.
#[test]
fn an_exception_has_no_hard_timeout() {
    let mut dns = class("dns", "udp", &[53]);
    dns.lifetime = Some(Lifetime::Fixed {
        idle_s: 0,
        hard_s: 30,
    });
    let timeouts = |entry: &FlowEntry| (entry.idle_timeout, entry.hard_timeout);
    let two_of = |classes| {
        let services = two(Version::V13, classes).entries(EntryKind::Service);
        services.iter().map(timeouts).collect::<Vec<_>>()
    };
    assert_eq!(two_of(vec![dns.clone()])[0], (0, 30));
    let with_rest = two_of(vec![dns, forbidden("udp", "udp", &[])]);
    assert_eq!(with_rest[0], (30, 0));
}

/// Everything else between two hosts is forbidden. They find each other all the same.
#[test]
fn only_what_is_named_passes_where_the_rest_is_forbidden() {
    let mut two = two(Version::V13, Vec::new());
    let mac = two.network.host(two.a).address.mac;
    let mut rest = forbidden("rest", "udp", &[]);
    rest.service = None;
    rest.src = Some(HostName::Mac(mac));
    two.set(vec![class("dns", "udp", &[53]), rest]);
    two.network.run_for(ms(200));
    assert!(two.arrives(53, 1) && !two.arrives(54, 2) && !two.answers(1));
    two.network.run_for(ms(30_000));
    two.resolve();
    let a = two.network.host(two.a).address.ip;
    assert!(two.network.host(two.b).has_resolved(a) || two.arrives(53, 3));
    assert!(two.arrives(53, 4) && !two.arrives(54, 5) && !two.answers(2));
}

/// Over IPv6 as well, of which nothing is known.
#[test]
fn a_service_is_forbidden_in_both_families() {
    let mut two = two(Version::V13, vec![forbidden("dns", "udp", &[53])]);
    let ends = [two.a, two.b].map(|host| two.network.host(host).address.mac);
    let ip = |n: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
    two.network.host_mut(two.b).record = true;
    let mut arrives = |port| {
        let frame = udp6((ends[0], ip(1)), (ends[1], ip(2)), (9, port), &[1; 8]);
        two.network.inject(two.a, frame.clone());
        two.network.run_for(ms(50));
        two.network.host(two.b).recorded.contains(&frame)
    };
    assert!(arrives(80) && !arrives(53));
}

/// A controller that takes over finds the entries and leaves them: nothing slips through and
/// nothing is interrupted.
#[test]
fn a_new_controller_takes_services_over() {
    let mut long = class("slow", "udp", &[7]);
    long.lifetime = Some(Lifetime::Lease(Lease::default()));
    let mut two = two(Version::V13, vec![long, forbidden("dns", "udp", &[53])]);
    let before = |two: &Two| {
        let kinds = [EntryKind::Service, EntryKind::Barrier, EntryKind::Pair];
        kinds.map(|kind| two.entries(kind).len())
    };
    let entries = before(&two);
    assert!(entries[0] > 0 && entries[1] > 0, "{entries:?}");
    two.network.kill_controller();
    two.network.start_controller(7);
    for n in 0..40 {
        assert!(two.arrives(7, 100 + n) && two.arrives(80, 200 + n) && !two.arrives(53, 300 + n));
    }
    assert_eq!(before(&two), entries);
    two.set(Vec::new());
    two.network.run_for(ms(300));
    assert!(two.arrives(53, 1), "and knows them for its own");
    assert_eq!(two.entries(EntryKind::Barrier), []);
}

/// The controller removes entries that only drop when the entries of their pair are gone.
#[test]
fn a_new_controller_takes_out_what_only_drops() {
    let mut two = two(Version::V13, vec![forbidden("dns", "udp", &[53])]);
    two.network.kill_controller();
    for entry in two.entries(EntryKind::Pair) {
        let delete = FlowMod {
            command: FlowModCommand::DeleteStrict,
            ..FlowMod::add(entry.priority, entry.r#match, Vec::new())
        };
        two.network.apply(two.here, &Message::FlowMod(delete));
    }
    assert_eq!(two.entries(EntryKind::Barrier).len(), 2);
    two.network.start_controller(7);
    two.network.run_for(ms(5000));
    assert_eq!(two.entries(EntryKind::Barrier), []);
}

/// The host moves while it sends: its forbidden packets do not pass at the new place either.
#[test]
fn what_is_forbidden_moves_with_its_host() {
    let mut two = two(Version::V13, vec![forbidden("dns", "udp", &[53])]);
    let other = two.network.add_switch();
    two.network.link(two.here, other);
    two.network.run_for(ms(2000));
    two.network.move_host(two.a, other, true);
    two.here = other;
    two.network.run_for(ms(1500));
    two.resolve();
    for n in 0..20 {
        assert!(!two.arrives(53, 100 + n), "{n}");
    }
    assert!(two.arrives(80, 1));
    assert_eq!(two.entries(EntryKind::Barrier).len(), 2);
}

/// More pairs than their first switch has room for: entries come and go, and no forwarding entry is
/// present without the drop entries of its pair.
#[test]
fn what_is_forbidden_stays_so_where_a_table_is_too_small() {
    for version in VERSIONS {
        let mut two = two(version, Vec::new());
        let others = [(); 40].map(|()| two.network.add_host(two.there));
        two.network.set_timeouts(Timeouts {
            default: Lifetime::Lease(Lease::default()),
            switches: [1, 2].map(|n| (DatapathId(n), 40)).into(),
            ..timeouts(vec![forbidden("dns", "udp", &[53])])
        });
        two.network.run_for(ms(1000));
        let mut answered = 0;
        for round in 0..300 {
            let other = others[usize::from(round) % others.len()];
            two.network.ping(two.a, other, round);
            assert!(!two.arrives(53, u64::from(round)), "{version:?}: {round}");
            let barriers = two.pairs_at_edge(EntryKind::Barrier);
            for pair in two.pairs_at_edge(EntryKind::Pair) {
                let count = barriers.iter().filter(|barred| **barred == pair).count();
                assert_eq!(count, 2, "{version:?}: {round}, {pair:?}");
            }
            let pongs = &two.network.host(two.a).pongs;
            answered += u32::from(pongs.keys().any(|(_, answered)| *answered == round));
        }
        assert_eq!(answered, 300, "{version:?}: the rest goes on");
        let switches = two.network.process().controller.switches();
        let pressed = switches.iter().map(|switch| {
            let counters = switch.table.counters;
            counters.evictions + counters.no_room
        });
        assert!(pressed.sum::<u64>() > 100, "{version:?}: {switches:?}");
    }
}
