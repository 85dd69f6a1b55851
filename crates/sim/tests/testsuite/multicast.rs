//! Multicast in hardware: members receive each packet once, nobody else receives any, and the
//! controller sees the first packet only.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use clock::{Duration, ms};
use control::Location;
use control::controller::{ControllerConfig, FabricConfig, MulticastConfig};
use control::fabric::replication;
use control::multicast::QuerierAddresses;
use control::vlan::{PortVlans, VlanId, Vlans};
use openflow::message::{ErrorMessage, GroupMod, GroupModCommand, GroupType};
use openflow::packet::build::{Host as Address, ethernet, group_join, group_leave, tagged, udp};
use openflow::packet::membership::{Query, Sender};
use openflow::{DatapathId, ErrorKind, MacAddr, Message, PortNo, Version, Xid, encode};
use sim::network::{HostId, Network};
use sim::topology::{self, Topology};

/// OFPGMFC_INVALID_GROUP (OpenFlow 1.3.5, 7.4.4.7).
const GROUP_REFUSED: ErrorKind = ErrorKind { ty: 6, code: 1 };

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

fn network(seed: u64) -> Network {
    network_of(seed, None)
}

fn network_of(seed: u64, router_ports: Option<BTreeSet<Location>>) -> Network {
    let multicast = MulticastConfig {
        router_ports,
        querier: Some(QuerierAddresses {
            ipv4: Some(Ipv4Addr::UNSPECIFIED),
            ipv6: None,
        }),
        ..MulticastConfig::default()
    };
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        multicast: Some(multicast),
        ..ControllerConfig::default()
    };
    Network::new(controller.into(), seed)
}

fn group_mac() -> MacAddr {
    let [_, b, c, d] = GROUP.octets();
    MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

/// The addresses from which a host sends messages about membership.
fn sender(host: Address) -> Sender {
    Sender {
        mac: host.mac,
        ipv4: host.ip,
        ipv6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, u16::from(host.mac.0[5])),
    }
}

fn inject(network: &mut Network, host: HostId, frame: Vec<u8>) {
    let frame = match network.host(host).vlan {
        Some(vlan) => tagged(&frame, vlan, 0),
        None => frame,
    };
    network.inject(host, frame);
}

fn join(network: &mut Network, host: HostId) {
    let frame = group_join(sender(network.host(host).address), GROUP.into());
    inject(network, host, frame);
}

fn leave(network: &mut Network, host: HostId) {
    let frame = group_leave(sender(network.host(host).address), GROUP.into());
    inject(network, host, frame);
}

/// Sends packets to the group, one each millisecond.
fn send(network: &mut Network, host: HostId, numbers: std::ops::Range<u64>) {
    let to = Address::new(group_mac(), GROUP);
    for number in numbers {
        let from = network.host(host).address;
        let frame = udp(from, to, (4000, 4001), &number.to_be_bytes());
        inject(network, host, frame);
        network.run_for(ms(1));
    }
}

/// The numbers of the group's packets that a host has received.
fn got(network: &Network, host: HostId) -> Vec<u64> {
    let host = network.host(host);
    let mut numbers = Vec::new();
    let is_lldp = |frame: &&Vec<u8>| frame[12..14] == [0x88, 0xcc];
    for frame in host.recorded.iter().filter(|frame| !is_lldp(frame)) {
        let at = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
        assert_eq!(
            at > 0,
            host.vlan.is_some(),
            "the form of its port: {frame:02x?}"
        );
        let is_to_group =
            frame[12 + at..14 + at] == [8, 0] && frame[30 + at..34 + at] == GROUP.octets();
        if is_to_group && frame[23 + at] == 17 {
            let number = frame[42 + at..50 + at].try_into().expect("eight bytes");
            numbers.push(u64::from_be_bytes(number));
        }
    }
    numbers
}

fn packet_ins(network: &Network) -> u64 {
    let counters = network.process().controller.counters();
    counters.packet_ins - counters.lldp_accepted
}

/// A network whose hosts on odd switches tag their frames and are in VLAN 10, as all others, or
/// without VLANs.
fn hosts(
    seed: u64,
    in_vlan: bool,
    build: impl Fn(&mut Network) -> Topology,
) -> (Network, Topology) {
    let mut network = network(seed);
    let topology = build(&mut network);
    let vlan = VlanId::new(10).expect("a VLAN id");
    let mut vlans = Vlans::default();
    for (n, host) in topology.hosts.iter().enumerate() {
        network.host_mut(*host).record = true;
        if !in_vlan {
            continue;
        }
        let port = match n % 2 {
            0 => PortVlans::Access(vlan),
            _ => PortVlans::Trunk {
                tagged: [vlan].into(),
                native: None,
            },
        };
        network.host_mut(*host).vlan = (n % 2 == 1).then_some(10);
        vlans.ports.insert(network.place(*host), port);
    }
    network.set_vlans(vlans);
    topology.introduce(&mut network);
    (network, topology)
}

#[test]
fn members_receive_each_packet_once_and_nobody_else_any() {
    type Build = fn(&mut Network) -> Topology;
    let builds: [(&str, Build); 3] = [
        ("line", |network| topology::line(network, 5)),
        ("ring", |network| topology::ring(network, 6)),
        ("leaf-spine", |network| {
            topology::leaf_spine(network, 2, 3, 2)
        }),
    ];
    for (name, build) in builds {
        for in_vlan in [false, true] {
            let (mut network, topology) = hosts(1, in_vlan, build);
            let all = &topology.hosts;
            let (source, strangers) = (all[0], [all[2]]);
            let members: Vec<HostId> = all[1..].iter().copied().filter(|h| *h != all[2]).collect();
            for host in &members {
                join(&mut network, *host);
            }
            network.run_for(ms(200));
            send(&mut network, source, 0..1);
            network.run_for(ms(50));
            let before = packet_ins(&network);
            send(&mut network, source, 1..200);
            network.run_for(ms(100));
            let what = format!("{name}, in a VLAN: {in_vlan}");
            let up = packet_ins(&network) - before;
            assert!(up <= 1, "{what}: {up} packets came up");
            let wanted: Vec<u64> = (0..200).collect();
            for host in &members {
                assert_eq!(got(&network, *host), wanted, "{what}: {host:?}");
            }
            for host in strangers.iter().chain([&source]) {
                assert_eq!(got(&network, *host), [0; 0], "{what}: {host:?}");
            }
            assert_eq!(network.errors().count(), 0, "{what}");
        }
    }
}

/// Whoever joins receives, and whoever leaves receives no more; a sender may be a member.
#[test]
fn members_come_and_go_while_packets_flow() {
    for in_vlan in [false, true] {
        let (mut network, topology) = hosts(2, in_vlan, |network| topology::ring(network, 5));
        let all = topology.hosts.clone();
        let (source, early, late) = (all[0], all[1], all[3]);
        join(&mut network, early);
        join(&mut network, source);
        network.run_for(ms(200));
        send(&mut network, source, 0..50);
        join(&mut network, late);
        send(&mut network, source, 50..200);
        let first = got(&network, late)[0];
        assert!(first <= 60, "the first packet after the join was {first}");
        leave(&mut network, early);
        send(&mut network, source, 200..3000);
        let last = *got(&network, early).last().expect("some");
        assert!((2000..2400).contains(&last), "the last one was {last}");
        let late = got(&network, late);
        assert_eq!(late, (first..3000).collect::<Vec<_>>());
        assert_eq!(got(&network, source), [0; 0], "nobody hears itself");
        // A sender whose own packets have an entry leaves and joins by messages to the same group.
        leave(&mut network, source);
        network.run_for(ms(3000));
        send(&mut network, all[2], 5000..5010);
        assert_eq!(got(&network, source), [0; 0], "it has left");
        join(&mut network, source);
        network.run_for(ms(50));
        send(&mut network, all[2], 6000..6010);
        assert_eq!(got(&network, source), (6000..6010).collect::<Vec<_>>());
    }
}

/// A link fails, and the copies take the detours of their labels.
#[test]
fn copies_go_around_a_failed_link() {
    let (mut network, topology) = hosts(3, true, |network| topology::ring(network, 6));
    let all = topology.hosts.clone();
    for host in &all[1..] {
        join(&mut network, *host);
    }
    network.run_for(ms(200));
    send(&mut network, all[0], 0..100);
    network.set_link(topology.links[0], false);
    send(&mut network, all[0], 100..1000);
    network.run_for(ms(200));
    for host in &all[1..] {
        let got = got(&network, *host);
        let lost = 1000 - got.len();
        assert!(lost <= 2, "{host:?} lost {lost}");
        assert!(got.is_sorted_by(|a, b| a < b), "{host:?}: {got:?}");
    }
}

/// The general queries that a host has received, and the time in which they are to be answered.
fn queries(network: &Network, host: HostId) -> Vec<Duration> {
    let host = network.host(host);
    let at = if host.vlan.is_some() { 4 } else { 0 };
    let is_query = |frame: &&Vec<u8>| {
        frame[12 + at..14 + at] == [8, 0]
            && frame[23 + at] == 2
            && frame[30 + at..34 + at] == [224, 0, 0, 1]
    };
    let queries = host.recorded.iter().filter(is_query);
    // Behind an IP header with the router alert.
    queries
        .map(|frame| ms(100 * u64::from(frame[14 + at + 24 + 1])))
        .collect()
}

/// A host that has heard no query yet is asked as soon as packets come to its port: after a
/// restart, after its link was down, and in another VLAN.
#[test]
fn a_port_that_opens_is_asked_at_once() {
    for in_vlan in [false, true] {
        let (mut network, topology) = hosts(4, in_vlan, |network| topology::ring(network, 4));
        let all = topology.hosts.clone();
        let forget = |network: &mut Network| {
            for host in &all {
                network.host_mut(*host).recorded.clear();
            }
        };
        let is_asked = |network: &Network, host| {
            let queries = queries(network, host);
            queries.iter().any(|time| *time <= ms(1000))
        };
        network.run_for(ms(5000));
        network.kill_controller();
        forget(&mut network);
        network.start_controller(7);
        network.run_for(ms(5000));
        for host in &all {
            assert!(is_asked(&network, *host), "{host:?} after a restart");
        }
        forget(&mut network);
        let link = network.link_of(all[1]);
        network.set_link(link, false);
        network.run_for(ms(500));
        network.set_link(link, true);
        network.run_for(ms(5000));
        assert!(is_asked(&network, all[1]), "after its link was down");
        assert!(!is_asked(&network, all[2]), "nobody else");
        forget(&mut network);
        let mut vlans = Vlans::default();
        let vlan = VlanId::new(20).expect("a VLAN id");
        for host in &all {
            let at = network.place(*host);
            vlans.ports.insert(at, PortVlans::Access(vlan));
            network.host_mut(*host).vlan = None;
        }
        network.set_vlans(vlans);
        network.run_for(ms(100));
        for host in &all {
            assert!(is_asked(&network, *host), "{host:?} in another VLAN");
        }
        assert_eq!(network.errors().count(), 0);
    }
}

/// The controller is away, and another one comes: members and senders are found again.
#[test]
fn another_controller_finds_members_and_senders() {
    let (mut network, topology) = hosts(4, true, |network| topology::ring(network, 4));
    let all = topology.hosts.clone();
    join(&mut network, all[2]);
    network.run_for(ms(200));
    send(&mut network, all[0], 0..100);
    network.kill_controller();
    send(&mut network, all[0], 100..200);
    network.start_controller(7);
    send(&mut network, all[0], 200..1200);
    // The new controller asks for members, and hosts answer.
    join(&mut network, all[2]);
    send(&mut network, all[0], 1200..2000);
    network.run_for(ms(100));
    let got = got(&network, all[2]);
    let late = (1500..2000).filter(|n| !got.contains(n)).count();
    assert_eq!(late, 0, "{late} lost when all is quiet again");
    assert!(got.is_sorted_by(|a, b| a < b));
}

/// A host that sends to any number of groups gets entries for some; the others are flooded.
#[test]
fn one_port_sends_to_a_bounded_number_of_groups() {
    let (mut network, topology) = hosts(5, true, |network| topology::line(network, 3));
    let (source, switch) = (topology.hosts[0], topology.switches[0]);
    let from = network.host(source).address;
    for n in 0..400u16 {
        let [high, low] = n.to_be_bytes();
        let to = Address::new(
            MacAddr([0x01, 0x00, 0x5e, 1, high, low]),
            Ipv4Addr::new(239, 1, high, low),
        );
        inject(&mut network, source, udp(from, to, (1, 2), &[0; 8]));
        network.run_for(ms(1));
    }
    network.run_for(ms(100));
    let entries = network.switch(switch).entries();
    let senders = entries.filter(|entry| entry.cookie.0 >> 8 & 0xff == 13);
    assert_eq!(senders.count(), 64);
    // The entries end when nothing is sent, and make room for others.
    for round in 0..35u8 {
        network.run_for(Duration::from_secs(70));
        let entries = network.switch(switch).entries();
        let senders = entries.filter(|entry| entry.cookie.0 >> 8 & 0xff == 13);
        assert_eq!(senders.count(), 0, "round {round}");
        for n in 0..64 {
            let to = Address::new(
                MacAddr([0x01, 0x00, 0x5e, 2, round, n]),
                Ipv4Addr::new(239, 2, round, n),
            );
            inject(&mut network, source, udp(from, to, (1, 2), &[0; 8]));
        }
        network.run_for(ms(50));
        let entries = network.switch(switch).entries();
        let senders = entries.filter(|entry| entry.cookie.0 >> 8 & 0xff == 13);
        assert_eq!(senders.count(), 64, "round {round}");
    }
    assert_eq!(network.errors().count(), 0);
}

/// Runs one seed of random faults, and returns what went wrong, if anything.
fn run(seed: u64) -> Result<(), String> {
    let mut random = clock::SplitMix64::new(seed);
    let mut below = move |end: usize| (random.next() % end as u64) as usize;
    let size = 3 + below(4);
    let is_ring = below(2) == 0;
    let in_vlan = below(3) > 0;
    let (mut network, topology) = hosts(seed, in_vlan, |network| match is_ring {
        true => topology::ring(network, size),
        false => topology::leaf_spine(network, 2, size, 2),
    });
    let all = topology.hosts.clone();
    let source = all[below(all.len())];
    let mut next = 0;
    let mut down = Vec::new();
    for host in &all {
        join(&mut network, *host);
    }
    network.run_for(ms(200));
    for round in 0..15u64 {
        let switch = topology.switches[below(topology.switches.len())];
        match below(8) {
            0 => network.disconnect(switch),
            1 => {
                network.kill_controller();
                network.run_for(ms(below(50) as u64));
                network.start_controller(seed ^ round);
            }
            2 => join(&mut network, all[below(all.len())]),
            3 => leave(&mut network, all[below(all.len())]),
            4 | 5 => {
                let link = topology.links[below(topology.links.len())];
                network.set_link(link, false);
                down.push(link);
            }
            _ => {
                if let Some(link) = down.pop() {
                    network.set_link(link, true);
                }
            }
        }
        let count = below(100) as u64;
        send(&mut network, source, next..next + count);
        next += count;
    }
    for link in down {
        network.set_link(link, true);
    }
    network.run_for(ms(4000));
    for host in &all {
        join(&mut network, *host);
    }
    network.run_for(ms(1000));
    send(&mut network, source, next..next + 100);
    network.run_for(ms(200));
    if network.circled > 0 {
        return Err("a packet went in a circle".to_owned());
    }
    for host in all.iter().filter(|host| **host != source) {
        let mut numbers = got(&network, *host);
        numbers.sort_unstable();
        let before = numbers.len();
        numbers.dedup();
        if numbers.len() < before {
            return Err(format!("{host:?} received packets twice"));
        }
        let late = numbers.iter().filter(|n| **n >= next).count();
        if late != 100 {
            return Err(format!("{host:?} received {late} of 100 in quiet times"));
        }
    }
    Ok(())
}

#[test]
fn members_are_found_again_whatever_fails() {
    let wrong: Vec<_> = (0..20)
        .filter_map(|seed| Some((seed, run(seed).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A router receives all groups. A host that claims to be one does not, unless its port may have a
/// router.
#[test]
fn only_stated_ports_are_routers() {
    for is_stated in [false, true] {
        let at = Location {
            dpid: DatapathId(2),
            // The links of a line have the first ports.
            port: PortNo(3),
        };
        let stated = is_stated.then_some(at).into_iter().collect();
        let mut network = network_of(6, Some(stated));
        let topology = topology::line(&mut network, 3);
        let [source, router, member] = topology.hosts[..] else {
            panic!("three hosts");
        };
        for host in &topology.hosts {
            network.host_mut(*host).record = true;
        }
        assert_eq!(network.place(router), at);
        topology.introduce(&mut network);
        let query = Query {
            group: Ipv4Addr::UNSPECIFIED.into(),
            response_max: Duration::from_secs(10),
            extended: None,
        };
        let frame = query.frame(sender(network.host(router).address));
        inject(&mut network, router, frame);
        join(&mut network, member);
        network.run_for(ms(200));
        send(&mut network, source, 0..20);
        network.run_for(ms(50));
        let all: Vec<u64> = (0..20).collect();
        assert_eq!(got(&network, member), all);
        let heard = got(&network, router);
        assert_eq!(heard.len(), if is_stated { 20 } else { 0 });
    }
}

/// MLD and IPv6, in a VLAN whose members tag their frames or not.
#[test]
fn members_of_ipv6_groups_receive() {
    let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x77);
    let (mut network, topology) = hosts(7, true, |network| topology::line(network, 4));
    let [source, member, stranger, other] = topology.hosts[..] else {
        panic!("four hosts");
    };
    for host in [member, other] {
        let frame = group_join(sender(network.host(host).address), group.into());
        inject(&mut network, host, frame);
    }
    network.run_for(ms(200));
    let from = sender(network.host(source).address);
    // A packet without a next header.
    let head = [0x60, 0, 0, 0, 0, 1, 59, 8];
    let packet = [&head[..], &from.ipv6.octets(), &group.octets(), &[0]].concat();
    let mac = MacAddr([0x33, 0x33, 0, 0, 0, 0x77]);
    let frame = ethernet(from.mac, mac, 0x86dd, &packet);
    for _ in 0..50 {
        inject(&mut network, source, frame.clone());
        network.run_for(ms(1));
    }
    network.run_for(ms(50));
    let heard = |host| {
        let recorded = network.host(host).recorded.iter();
        recorded.filter(|frame| frame[..6] == mac.0).count()
    };
    assert_eq!([member, stranger, other].map(heard), [50, 0, 50]);
}

/// Members behind a switch that has lost its connection continue to receive, whoever joins
/// meanwhile.
#[test]
fn a_member_outlives_the_connection_of_its_switch() {
    let (mut network, topology) = hosts(8, true, |network| topology::ring(network, 4));
    let all = topology.hosts.clone();
    join(&mut network, all[2]);
    network.run_for(ms(200));
    send(&mut network, all[0], 0..100);
    network.set_away(topology.switches[2], ms(3000));
    network.disconnect(topology.switches[2]);
    send(&mut network, all[0], 100..500);
    join(&mut network, all[1]);
    send(&mut network, all[0], 500..1500);
    let numbers = got(&network, all[2]);
    assert_eq!(numbers, (0..1500).collect::<Vec<_>>());
    assert!(got(&network, all[1]).len() > 900, "the new member");
    // Back on a fast channel, it gets all of it again.
    network.set_away(topology.switches[2], ms(0));
    network.disconnect(topology.switches[2]);
    network.run_for(ms(4000));
    join(&mut network, all[2]);
    network.run_for(ms(500));
    send(&mut network, all[0], 5000..5100);
    let late = got(&network, all[2]).into_iter().filter(|n| *n >= 5000);
    assert_eq!(late.count(), 100);
}

/// If a switch refuses a copying group, its hosts' multicast is flooded, within the budget.
#[test]
fn a_switch_that_refuses_to_copy_floods() {
    let (mut network, topology) = hosts(9, true, |network| topology::line(network, 3));
    let all = topology.hosts.clone();
    join(&mut network, all[2]);
    network.run_for(ms(200));
    send(&mut network, all[0], 0..10);
    let refused = GroupMod::new(
        GroupModCommand::Modify,
        GroupType::All,
        replication::group(0),
        Vec::new(),
    );
    let refused = encode(Version::V13, Xid(7), &Message::GroupMod(refused)).expect("it encodes");
    let error = ErrorMessage::new(GROUP_REFUSED, refused.bytes().clone());
    network.say(topology.switches[0], Xid(7), &Message::Error(error));
    network.run_for(ms(50));
    let entries = network.switch(topology.switches[0]).entries();
    let senders = entries.filter(|entry| entry.cookie.0 >> 8 & 0xff == 13);
    assert_eq!(senders.count(), 0, "its senders have no entries");
    send(&mut network, all[0], 100..150);
    network.run_for(ms(50));
    for host in [all[1], all[2]] {
        let flooded = got(&network, host).into_iter().filter(|n| *n >= 100);
        assert_eq!(flooded.count(), 50, "{host:?}");
    }
}
