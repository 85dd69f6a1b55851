use clock::{Duration, Instant};
use openflow::message::{FlowRemoved, FlowRemovedReason};
use openflow::packet::build;
use openflow::packet::build::Host;
use openflow::table::{Output, Switch};
use openflow::{DatapathId, Match, Message, PacketFields, PortNo};
use proptest::prelude::*;

use crate::Location;
use crate::entry::EntryKind;
use crate::fabric::Exit;
use crate::pipeline::PATH_TABLE;
use crate::vlan::{Form, HostKey};

use super::flow::{FLOWS_PER_PORT_MAX, Flow, FlowKey, Flows};
use super::neighbours::{Due, HOPS_MAX, HOPS_PER_PORT_MAX, Held, Neighbours, PACKETS_MAX, Waiting};
use super::*;

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn gateways(vlans: &[(u16, &[&str])], routes: &[(&str, &str)]) -> Gateways {
    let gateway = |texts: &[&str]| Gateway {
        mac: GATEWAY_MAC,
        subnets: texts
            .iter()
            .map(|text| text.parse().expect("right"))
            .collect(),
    };
    let vlans = vlans.iter().map(|(id, texts)| (vlan(*id), gateway(texts)));
    let routes = routes.iter();
    let routes = routes.map(|(to, via)| (to.parse().expect("a network"), ip(via)));
    Gateways {
        vlans: vlans.collect(),
        routes: routes.collect(),
    }
}

fn campus() -> Routing {
    Routing::new(gateways(
        &[
            (10, &["10.0.10.254/24", "fd00:10::1/64"]),
            (20, &["10.0.20.254/24", "fd00:20::1/64"]),
        ],
        &[
            ("0.0.0.0/0", "10.0.20.1"),
            ("10.0.0.0/8", "10.0.10.1"),
            ("10.7.0.0/16", "10.0.20.2"),
            ("::/0", "fd00:20::9"),
        ],
    ))
}

#[test]
fn the_longest_prefix_leads() {
    let routing = campus();
    let cases = [
        ("10.0.10.5", 10, "10.0.10.5", "10.0.10.5/32"),
        ("10.0.20.5", 20, "10.0.20.5", "10.0.20.5/32"),
        ("10.7.1.1", 20, "10.0.20.2", "10.7.0.0/16"),
        ("10.8.1.1", 10, "10.0.10.1", "10.8.0.0/13"),
        ("10.0.11.1", 10, "10.0.10.1", "10.0.11.0/24"),
        ("8.8.8.8", 20, "10.0.20.1", "8.0.0.0/7"),
        ("fd00:10::7", 10, "fd00:10::7", "fd00:10::7/128"),
        ("2001:db8::1", 20, "fd00:20::9", "2000::/3"),
    ];
    for (to, id, next, block) in cases {
        let hop = Hop {
            vlan: vlan(id),
            ip: ip(next),
        };
        let block: Prefix = block.parse().expect("a network");
        assert_eq!(routing.next_hop(ip(to)), Some((hop, block)), "{to}");
    }
    let alone = Routing::new(gateways(&[(10, &["10.0.10.254/24"])], &[]));
    assert_eq!(alone.next_hop(ip("10.0.20.5")), None);
}

#[test]
fn a_packet_is_judged() {
    let routing = campus();
    let judge = |from: &str, to: &str, ttl: u8, id: u16| {
        let mac = GATEWAY_MAC;
        let mut frame = match (ip(from), ip(to)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                build::udp(Host { mac, ip: from }, Host { mac, ip: to }, (1, 2), b"")
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => build::udp6((mac, from), (mac, to), (1, 2), b""),
            _ => panic!("of one family"),
        };
        let at = if ip(from).is_ipv4() { 22 } else { 21 };
        let old = std::mem::replace(&mut frame[at], ttl);
        if at == 22 {
            // The sum of the header changes by as much (RFC 1624).
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            let sum = u32::from(!sum) + 0xffff - (u32::from(old) << 8) + (u32::from(ttl) << 8);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let packet = Datagram::read(&frame).expect("IP").expect("right");
        routing.judge(vlan(id), &packet)
    };
    let forwards = |verdict| matches!(verdict, Verdict::Forward(..));
    assert!(forwards(judge("10.0.10.5", "10.0.20.5", 64, 10)));
    assert!(forwards(judge("10.0.10.5", "10.0.20.5", 2, 10)));
    assert!(forwards(judge("fd00:10::5", "fd00:20::5", 64, 10)));
    let cases = [
        ("10.0.10.5", "10.0.20.5", 1, 10, Verdict::Expired, "one hop"),
        ("10.0.10.5", "10.0.20.5", 0, 10, Verdict::Expired, "none"),
        ("10.0.10.5", "10.0.20.254", 1, 10, Verdict::Own, "a gateway"),
        (
            "10.0.10.5",
            "10.0.20.255",
            64,
            10,
            Verdict::Refused,
            "everybody",
        ),
        (
            "10.0.10.5",
            "10.0.20.0",
            64,
            10,
            Verdict::Refused,
            "the network",
        ),
        (
            "10.0.10.5",
            "224.0.0.5",
            64,
            10,
            Verdict::Refused,
            "multicast",
        ),
        ("10.0.10.5", "127.0.0.1", 64, 10, Verdict::Refused, "itself"),
        (
            "10.0.10.5",
            "169.254.1.1",
            64,
            10,
            Verdict::Refused,
            "of a link",
        ),
        (
            "10.0.10.254",
            "10.0.20.5",
            64,
            10,
            Verdict::Refused,
            "as a gateway",
        ),
        (
            "0.0.0.0",
            "10.0.20.5",
            64,
            10,
            Verdict::Refused,
            "from nobody",
        ),
        (
            "10.0.10.5",
            "10.0.20.5",
            64,
            30,
            Verdict::Refused,
            "no gateway",
        ),
        (
            "fe80::5",
            "fd00:20::5",
            64,
            10,
            Verdict::Refused,
            "of a link",
        ),
        (
            "fd00:10::5",
            "ff02::1",
            64,
            10,
            Verdict::Refused,
            "multicast",
        ),
    ];
    for (from, to, ttl, id, verdict, what) in cases {
        assert_eq!(judge(from, to, ttl, id), verdict, "{what}: {from} to {to}");
    }
    let v4_only = Routing::new(gateways(
        &[(10, &["10.0.10.254/24"]), (20, &["fd00:20::1/64"])],
        &[],
    ));
    let frame = build::udp6(
        (GATEWAY_MAC, "fd00:20::5".parse().expect("one")),
        (GATEWAY_MAC, "fd00:20::6".parse().expect("one")),
        (1, 2),
        b"",
    );
    let packet = Datagram::read(&frame).expect("IP").expect("right");
    assert_eq!(v4_only.judge(vlan(10), &packet), Verdict::Refused);
}

#[test]
fn wrong_gateways_are_refused_with_what_would_be_right() {
    let cases = [
        ("10.0.10.254", "no address with a length"),
        ("10.0.10.254/33", "from 1 to 32"),
        ("10.0.10.254/0", "from 1 to 32"),
        ("10.0.10.0/24", "network or broadcast"),
        ("10.0.10.255/24", "network or broadcast"),
        ("fd00:10::/64", "network or broadcast"),
        ("fe80::1/64", "cannot be a gateway"),
        ("224.0.0.1/24", "cannot be a gateway"),
        ("127.0.0.1/8", "cannot be a gateway"),
        ("office", "no address with a length"),
    ];
    for (text, expected) in cases {
        let problem = text.parse::<Subnet>().expect_err(text);
        assert!(problem.contains(expected), "{text}: {problem}");
    }
    for text in [
        "10.0.10.0/31",
        "10.0.10.1/32",
        "fd00::/127",
        "10.0.10.254/24",
    ] {
        assert_eq!(text.parse::<Subnet>().expect(text).to_string(), text);
    }
}

/// Entries towards a network forward no packet for a gateway's own address or a broadcast address,
/// if that address is in a shorter network than the entry's.
#[test]
fn an_entry_covers_no_address_of_a_gateway() {
    let gateways = gateways(
        &[(10, &["10.0.5.1/16"])],
        &[("10.0.5.0/24", "10.0.0.9"), ("10.0.255.0/24", "10.0.0.9")],
    );
    let routing = Routing::new(gateways);
    for (to, own) in [("10.0.5.9", "10.0.5.1"), ("10.0.255.9", "10.0.255.255")] {
        let (hop, block) = routing.next_hop(ip(to)).expect("a route");
        assert_eq!(hop.ip, ip("10.0.0.9"));
        assert!(!block.contains(ip(own)), "{block} has {own}");
        assert_eq!(routing.leads(vlan(10), block), Some(hop));
        let whole = Prefix::of(ip(to), 24);
        assert_eq!(routing.leads(vlan(10), whole), None);
    }
}

fn network() -> impl Strategy<Value = Prefix> {
    let v4 = (0u32..64, 0u8..33).prop_map(|(n, len)| {
        Prefix::of(
            Ipv4Addr::from(10 << 24 | n << 26 | (n * 0x3_0101)).into(),
            len,
        )
    });
    let v6 = (0u128..64, 0u8..129).prop_map(|(n, len)| {
        Prefix::of(
            Ipv6Addr::from(0xfd << 120 | n << 122 | (n * 77)).into(),
            len,
        )
    });
    prop_oneof![v4, v6]
}

proptest! {
    /// The table finds the same as a search of every network, and all addresses of the returned
    /// prefix have the same next hop.
    #[test]
    fn the_table_agrees_with_trying_every_network(
        routes in prop::collection::btree_set(network(), 0..20),
        near in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u128>(), 0u32..129),
            1..30,
        ),
    ) {
        let all = &[(10, &["10.0.10.254/24", "fd00:10::1/64"][..])];
        let mut gateways = gateways(all, &[]);
        for (n, to) in routes.iter().enumerate() {
            let via = match to.ip() {
                IpAddr::V4(_) => Ipv4Addr::new(10, 0, 10, n as u8 + 1).into(),
                IpAddr::V6(_) => Ipv6Addr::from(0xfd00_0010 << 96 | (n as u128 + 2)).into(),
            };
            gateways.routes.insert(*to, via);
        }
        let connected: Vec<Prefix> =
            gateways.vlans.values().flat_map(|it| &it.subnets).map(|it| it.network).collect();
        let naive = |to: IpAddr| {
            let here = connected.iter().filter(|network| network.contains(to));
            let here = here.map(|network| (network.bits(), true, to));
            let there = gateways.routes.iter().filter(|(network, _)| network.contains(to));
            let there = there.map(|(network, via)| (network.bits(), false, *via));
            here.chain(there).max().map(|(_, _, ip)| ip)
        };
        let routing = Routing::new(gateways.clone());
        let networks: Vec<Prefix> = routes.iter().chain(&connected).copied().collect();
        let mut blocks: Vec<Prefix> = Vec::new();
        for (index, noise, kept) in near {
            let base = index.get(&networks).ip();
            let noise = noise.checked_shr(kept).unwrap_or(0);
            let to = match base {
                IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip) ^ (noise >> 96) as u32).into(),
                IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) ^ noise).into(),
            };
            let found = routing.next_hop(to);
            prop_assert_eq!(found.map(|(hop, _)| hop.ip), naive(to));
            let Some((hop, block)) = found.filter(|_| is_routed(to)) else { continue };
            prop_assert!(block.contains(to));
            if block.bits() < Prefix::host(to).bits() {
                for network in &networks {
                    let is_within = block.covers(*network) && *network != block;
                    prop_assert!(!is_within, "{block} has {network}");
                }
                prop_assert!(!unrouted(to).any(|other| block.covers(other)));
                prop_assert_eq!(routing.next_hop(block.ip()), Some((hop, block)));
            }
            let apart = |other: &Prefix| {
                *other == block || !other.covers(block) && !block.covers(*other)
            };
            prop_assert!(blocks.iter().all(apart), "{block} and {blocks:?}");
            blocks.push(block);
        }
    }
}

fn at(dpid: u64, port: u32) -> Location {
    Location::new(DatapathId(dpid), PortNo(port))
}

fn waiting(port: u32, len: usize) -> Waiting {
    Waiting {
        at: at(1, port),
        vlan: vlan(10),
        frame: vec![port as u8; len].into(),
    }
}

fn hop(n: u32) -> Hop {
    Hop {
        vlan: vlan(20),
        ip: Ipv4Addr::from(0x0a00_0000 + n).into(),
    }
}

#[test]
fn a_next_hop_is_asked_for_three_times() {
    let mut neighbours = Neighbours::default();
    let start = Instant::START;
    assert_eq!(neighbours.hold(start, hop(1), waiting(1, 60)), Held::Asks);
    for n in 0..6 {
        let held = neighbours.hold(start, hop(1), waiting(1, 61 + n));
        assert_eq!(held, Held::Waits);
    }
    let ask = || {
        vec![Due::Ask {
            hop: hop(1),
            at: at(1, 1),
        }]
    };
    let second = Duration::from_secs(1);
    assert_eq!(neighbours.due(start), []);
    assert_eq!(neighbours.next_due(), Some(start + second));
    assert_eq!(neighbours.due(start + second), ask());
    assert_eq!(neighbours.due(start + second * 2), ask());
    let [Due::Failed { packets }] = &neighbours.due(start + second * 3)[..] else {
        panic!("it has failed");
    };
    let lens: Vec<usize> = packets.iter().map(|packet| packet.frame.len()).collect();
    assert_eq!(lens, [63, 64, 65, 66], "the newest");
    assert!(neighbours.is_empty() && neighbours.next_due().is_none());
}

#[test]
fn next_hops_and_their_packets_are_bounded() {
    let mut neighbours = Neighbours::default();
    let now = Instant::START;
    assert_eq!(neighbours.hold(now, hop(0), waiting(1, 4000)), Held::Full);
    for n in 0..200_000 {
        let held = neighbours.hold(now, hop(n), waiting(1, 60));
        assert_eq!(held == Held::Asks, n < HOPS_PER_PORT_MAX as u32, "{n}");
    }
    assert_eq!(neighbours.len(), HOPS_PER_PORT_MAX);
    for n in 0..100_000 {
        let _ = neighbours.hold(now, hop(n), waiting(2 + n / 10, 60));
    }
    assert_eq!(neighbours.len(), HOPS_MAX);
    let packets: Vec<usize> = (0..200_000)
        .map(|n| neighbours.found(hop(n)).len())
        .collect();
    assert!(packets.iter().all(|count| *count <= PACKETS_MAX));
    assert_eq!(
        neighbours.hold(now, hop(7), waiting(1, 60)),
        Held::Asks,
        "room again"
    );
}

fn flow_key(port: u32, n: u32) -> FlowKey {
    FlowKey {
        at: at(1, port),
        tag: None,
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        gateway: GATEWAY_MAC,
        to: Prefix::host(hop(n).ip),
    }
}

fn flow(n: u32, mac: u8) -> Flow {
    Flow {
        from: HostKey {
            vlan: vlan(10),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
        },
        hop: hop(n),
        target: HostKey {
            vlan: vlan(20),
            mac: MacAddr([2, 0, 0, 0, 0, mac]),
        },
        gateway: MacAddr([0x0e, 0, 0, 0, 0, 2]),
        exit: Exit::Port(PortNo(2)),
        form: Form::Untagged,
    }
}

#[test]
fn entries_are_found_by_what_they_depend_on() {
    let mut flows = Flows::default();
    let now = Instant::START;
    for (port, n, mac) in [(1, 1, 7), (1, 2, 8), (3, 1, 7)] {
        assert!(flows.set(now, (flow_key(port, n), flow(n, mac)), 1));
    }
    assert!(
        !flows.set(now, (flow_key(1, 1), flow(1, 7)), 1),
        "a moment ago"
    );
    assert!(
        flows.set(now, (flow_key(1, 1), flow(1, 9)), 1),
        "another target"
    );
    let host = |mac| HostKey {
        vlan: vlan(20),
        mac: MacAddr([2, 0, 0, 0, 0, mac]),
    };
    assert_eq!(flows.of_host(host(7)), [flow_key(3, 1)]);
    assert_eq!(flows.of_host(host(9)), [flow_key(1, 1)]);
    assert_eq!(flows.astray(hop(1), Some(host(9).mac)), [flow_key(3, 1)]);
    assert_eq!(flows.astray(hop(2), None), [flow_key(1, 2)]);
    assert_eq!(flows.of_port(at(1, 1)), [flow_key(1, 1), flow_key(1, 2)]);
    flows.forget_switch(DatapathId(1));
    assert!(flows.is_empty() && flows.of_host(host(9)).is_empty());
}

/// A report of an entry's end may arrive after the entry was set again.
#[test]
fn a_late_report_ends_no_entry_that_was_set_again() {
    let (mut flows, now) = (Flows::default(), Instant::START);
    let key = flow_key(1, 1);
    assert!(flows.set(now, (key, flow(1, 7)), 3));
    let later = now + Duration::from_secs(61);
    assert!(flows.set(later, (key, flow(1, 8)), 3));
    let removed = FlowRemoved {
        cookie: EntryKind::Routed.cookie(3),
        priority: 1,
        reason: FlowRemovedReason::IDLE_TIMEOUT,
        table_id: PATH_TABLE,
        duration_sec: 60,
        duration_nsec: 0,
        idle_timeout: 60,
        hard_timeout: 600,
        packet_count: 1,
        byte_count: 1,
        r#match: Match::any(),
        stats: Vec::new(),
    };
    flows.handle_removed(later + Duration::from_millis(5), key, &removed);
    assert_eq!(flows.len(), 1, "it ended before");
    flows.handle_removed(later + Duration::from_secs(61), key, &removed);
    assert!(flows.is_empty());
}

#[test]
fn entries_are_bounded_and_make_room_when_they_have_ended() {
    let mut flows = Flows::default();
    let now = Instant::START;
    for n in 0..20_000 {
        let is_set = flows.set(now, (flow_key(1, n), flow(n, 7)), 1);
        assert_eq!(is_set, n < FLOWS_PER_PORT_MAX as u32);
    }
    assert_eq!(flows.len(), FLOWS_PER_PORT_MAX);
    let later = now + Duration::from_secs(700);
    assert!(flows.set(later, (flow_key(1, 30_000), flow(1, 7)), 1));
    assert_eq!(flows.len(), 1);
}

/// A switch with the entry acts as a router, and reports the entry by the key it was set for.
#[test]
fn an_entry_routes() {
    let to: Prefix = "10.0.20.0/25".parse().expect("a network");
    let network = FlowKey {
        to,
        ..flow_key(1, 0)
    };
    let to: Prefix = "fd00:20::/64".parse().expect("a network");
    let v6 = FlowKey {
        to,
        ..flow_key(1, 0)
    };
    let to: Prefix = "0.0.0.0/0".parse().expect("a network");
    let whole = FlowKey {
        to,
        ..flow_key(1, 0)
    };
    let tagged = FlowKey {
        tag: Some(10),
        ..network
    };
    for key in [network, v6, whole, tagged] {
        let added = flow(1, 7).to_add(key, 0x8100, 3);
        assert_eq!(
            FlowKey::from_match(DatapathId(1), &added.r#match),
            Some(key)
        );
        let mut switch = Switch::with_ports([1, 2]);
        let taken = switch.apply(Instant::START, &Message::FlowMod(added));
        assert!(taken.is_ok(), "{taken:?}");
        let host = Host::new(key.src, [10, 0, 10, 5].into());
        let dst = Host::new(GATEWAY_MAC, [10, 0, 20, 5].into());
        let frame = match key.to.ip() {
            IpAddr::V4(_) => build::udp(host, dst, (1, 2), b"abc"),
            IpAddr::V6(_) => {
                let [from, to] = ["fd00:10::5", "fd00:20::5"].map(|ip| ip.parse().expect("one"));
                build::udp6((host.mac, from), (dst.mac, to), (1, 2), b"abc")
            }
        };
        let plain = Datagram::read(&frame).expect("IP").expect("right");
        let routed = plain.forwarded(flow(1, 7).gateway, flow(1, 7).target.mac);
        let frame = match key.tag {
            Some(tag) => build::tagged(&frame, tag, 0),
            None => frame.clone(),
        };
        let outputs = switch.process(Instant::START, PortNo(1), &frame);
        let [Output::Port { port, packet, .. }] = &outputs[..] else {
            panic!("{outputs:?}");
        };
        assert_eq!((*port, Some(packet.to_vec())), (PortNo(2), routed));
        let others = PacketFields::parse(PortNo(1), &build::arp_request(host, dst.ip));
        assert!(!others.matches(&key.to_delete().r#match));
        let deleted = switch.apply(Instant::START, &Message::FlowMod(key.to_delete()));
        assert!(
            deleted.is_ok_and(|reports| reports.len() == 1),
            "it reports its end"
        );
    }
}
