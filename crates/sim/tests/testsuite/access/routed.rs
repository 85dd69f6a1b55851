//! Lists for packets that are routed into a VLAN: they hold whatever happens to links, controllers,
//! routes and gateways.

use std::collections::BTreeMap;

use clock::SplitMix64;
use control::controller::ControllerOutput;
use control::routing::{GATEWAY_MAC, Gateway, Gateways};
use openflow::packet::PacketFields;
use openflow::{Field, PortNo, decode};

use super::*;

const OTHER_MAC: MacAddr = MacAddr([0x0e, 0, 0, 0, 0, 2]);

fn vlan(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN id")
}

fn gateway_ip(id: u16) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, id as u8, 254)
}

/// Gateways of VLANs, with `0.0.0.0/0` and a network in the documentation's range behind routers.
fn gateways(ids: &[u16], routes: &[(&str, Ipv4Addr)]) -> Gateways {
    let gateway = |id: &u16| {
        let subnet = format!("{}/24", gateway_ip(*id));
        let subnets = vec![subnet.parse().expect("a gateway")];
        let mac = GATEWAY_MAC;
        (vlan(*id), Gateway { mac, subnets })
    };
    let route = |(to, via): &(&str, Ipv4Addr)| {
        let via: IpAddr = (*via).into();
        (to.parse().expect("a network"), via)
    };
    Gateways {
        vlans: ids.iter().map(gateway).collect(),
        routes: routes.iter().map(route).collect(),
    }
}

/// Lists for packets that are routed into VLANs.
fn into(lists: &[(u16, Acl)]) -> Access {
    let (ids, acls): (Vec<u16>, Vec<Acl>) = lists.iter().cloned().unzip();
    let out = ids.into_iter().enumerate();
    Access {
        acls,
        out: out.map(|(n, id)| (vlan(id), vec![n])).collect(),
        ..Access::default()
    }
}

/// Every switch has a host of VLANs 10, 20 and 40; one on an odd switch tags its frames.
struct Campus {
    network: Network,
    topology: Topology,
    hosts: BTreeMap<u16, Vec<HostId>>,
}

const IDS: [u16; 3] = [10, 20, 40];

impl Campus {
    fn new(seed: u64, build: impl FnOnce(&mut Network) -> Topology) -> Campus {
        let controller = ControllerConfig {
            fabric: Some(FabricConfig::default()),
            gateways: gateways(&IDS, &[]),
            ..ControllerConfig::default()
        };
        let mut network = Network::new(controller.into(), seed);
        let topology = build(&mut network);
        let mut hosts = BTreeMap::new();
        let mut vlans = Vlans::default();
        for id in IDS {
            for (n, switch) in topology.switches.iter().enumerate() {
                let host = network.add_host(*switch);
                let is_tagged = n % 2 == 1;
                let own = network.host_mut(host);
                own.address = Address {
                    mac: MacAddr([2, 0, 0, id as u8, 0, n as u8]),
                    ip: Ipv4Addr::new(10, 0, id as u8, n as u8 + 1),
                };
                own.gateway = Some((gateway_ip(id), 256));
                own.record = true;
                own.vlan = is_tagged.then_some(id);
                let tagged = [vlan(id)].into();
                let port = match is_tagged {
                    false => PortVlans::Access(vlan(id)),
                    true => PortVlans::Trunk {
                        tagged,
                        native: None,
                    },
                };
                vlans.ports.insert(network.place(host), port);
                hosts.entry(id).or_insert_with(Vec::new).push(host);
            }
        }
        network.set_vlans(vlans);
        network.run_for(ms(2000));
        Campus {
            network,
            topology,
            hosts,
        }
    }

    fn set(&mut self, access: Access) {
        self.network.set_access(access).expect("all can");
    }

    fn ip(&self, host: HostId) -> Ipv4Addr {
        self.network.host(host).address.ip
    }

    /// Has each host speak, so that it is known where it is.
    fn introduce(&mut self, seq: u16) {
        let hosts = self.hosts.values().flatten().copied().collect();
        let all = Topology {
            switches: self.topology.switches.clone(),
            links: Vec::new(),
            hosts,
        };
        all.silent_pairs(&mut self.network, seq);
    }

    /// A datagram and a ping to an address, through the gateway.
    fn frames(&self, from: HostId, ip: Ipv4Addr) -> [Vec<u8>; 2] {
        let own = self.network.host(from).address;
        let mac = GATEWAY_MAC;
        let to = Address { mac, ip };
        let frames = [
            build::udp(own, to, (4000, 4001), b"data"),
            build::icmp_echo_request(own, to, 7, 7, b"ping"),
        ];
        frames.map(|frame| match self.network.host(from).vlan {
            Some(tag) => build::tagged(&frame, tag, 0),
            None => frame,
        })
    }

    /// Sends the datagram and the ping in the same millisecond.
    fn send_both(&mut self, from: HostId, ip: Ipv4Addr) {
        for frame in self.frames(from, ip) {
            self.network.inject(from, frame);
        }
        self.network.run_for(ms(1));
    }

    /// Counts the datagrams and pings to a network behind routers that a host has received, and
    /// clears its record.
    fn received(&mut self, host: HostId) -> [usize; 2] {
        let frames = std::mem::take(&mut self.network.host_mut(host).recorded);
        let mut counts = [0, 0];
        for frame in frames {
            let fields = PacketFields::parse(PortNo(1), &frame);
            let is_to = fields.value(Field::Ipv4Dst) >> 8 == 0xc0_00_02;
            match fields.ip_proto() {
                Some(17) if is_to => counts[0] += 1,
                Some(1) if is_to => counts[1] += 1,
                _ => {}
            }
        }
        counts
    }
}

#[test]
fn a_list_holds_for_routed_packets_through_failures_restarts_and_reloads() {
    let mut campus = Campus::new(1, |network| topology::ring(network, 4));
    let target = campus.hosts[&20][0];
    let ip = campus.ip(target);
    let access = into(&[(20, no_ping_to(ip))]);
    campus.set(access.clone());
    campus.network.run_for(ms(4000));
    let mut seq = 0;
    let mut check = |campus: &mut Campus, may: bool, when: &str| {
        // The first packets to a host wait until its address is resolved.
        seq += 2;
        campus.introduce(seq);
        for (from, to) in [(10, 20), (20, 10), (40, 20), (20, 20), (10, 40)] {
            for n in 0..4 {
                let pair = (campus.hosts[&from][n], campus.hosts[&to][(n + 1) % 4]);
                let is_judged = from != to && pair.1 == target;
                let found = pings(&mut campus.network, pair.0, pair.1, seq + 1);
                assert_eq!(found, may || !is_judged, "{when}: {from} to {to}, host {n}");
            }
        }
    };
    check(&mut campus, false, "at first");
    campus.network.set_link(campus.topology.links[0], false);
    campus.network.run_for(ms(500));
    check(&mut campus, false, "after a failure");
    campus.network.set_link(campus.topology.links[0], true);
    campus.network.kill_controller();
    campus.network.run_for(ms(500));
    campus.network.start_controller(9);
    campus.network.run_for(ms(4000));
    check(&mut campus, false, "after a restart");
    campus.set(into(&[(20, no_ping_to(Ipv4Addr::LOCALHOST))]));
    campus.network.run_for(ms(50));
    check(&mut campus, true, "after a reload");
    campus.set(access);
    campus.network.run_for(ms(50));
    check(&mut campus, false, "after another");
    campus.network.run_for(ms(11_000));
    let counts = campus.network.process().controller.access_counts();
    let denied = counts.rules.iter().find(|(.., allows, _)| !allows);
    assert!(denied.is_some_and(|(.., count)| *count > 0), "{counts:?}");
    campus.set(Access::default());
    campus.network.run_for(ms(4000));
    check(&mut campus, true, "without lists");
    assert_eq!(campus.network.errors().count(), 0);
}

/// One rule that changes costs each switch one entry set and one deleted; a route, one entry.
#[test]
fn a_reload_of_one_rule_or_route_loses_no_packet() {
    let mut campus = Campus::new(2, |network| topology::line(network, 3));
    let list = |changed: u16| {
        let changed = (format!("tcp,tp_dst={changed}"), false);
        let others = (1000..1100).map(|port| (format!("tcp,tp_dst={port}"), false));
        let all: Vec<(String, bool)> = [changed].into_iter().chain(others).collect();
        let mut all: Vec<(&str, bool)> = all.iter().map(|(m, a)| (&m[..], *a)).collect();
        all.push(("", true));
        acl(&all)
    };
    campus.set(into(&[(20, list(7))]));
    campus.network.run_for(ms(4000));
    campus.introduce(1);
    let (from, to) = (campus.hosts[&10][0], campus.hosts[&20][2]);
    campus.network.stream(from, to, 0, 2000, ms(1));
    campus.network.run_for(ms(500));
    let sent = |campus: &Campus| -> Vec<u64> {
        let switches = campus.topology.switches.iter();
        let heard = |switch: &sim::network::SwitchId| campus.network.heard(*switch, FLOW_MOD);
        switches.map(heard).collect()
    };
    let more = |campus: &Campus, before: &[u64]| -> Vec<u64> {
        let now = sent(campus);
        before.iter().zip(&now).map(|(a, b)| b - a).collect()
    };
    let before = sent(&campus);
    campus.set(into(&[(20, list(8))]));
    campus.network.run_for(ms(500));
    assert_eq!(more(&campus, &before), [2, 2, 2]);
    let before = sent(&campus);
    let via = campus.ip(campus.hosts[&20][1]);
    let routed = gateways(&IDS, &[("192.0.2.0/24", via)]);
    campus.network.set_gateways(routed);
    campus.network.run_for(ms(1500));
    assert_eq!(more(&campus, &before), [1, 1, 1]);
    let got = &campus.network.host(to).datagrams;
    let whole = (0..2000).all(|n| got.get(&n) == Some(&1));
    assert!(whole, "{}", got.len());
}

/// While a route leads elsewhere and back, no packet reaches a router past the lists of its VLAN.
#[test]
fn no_packet_passes_unjudged_while_routes_change() {
    for seed in 0..6 {
        let mut some = SplitMix64::new(seed);
        let mut campus = Campus::new(seed, |network| topology::line(network, 3));
        let routers = [campus.hosts[&20][1], campus.hosts[&40][2]];
        let vias = routers.map(|router| campus.ip(router));
        let only = |protocol| acl(&[(protocol, true), ("arp", true)]);
        // The lists are of both VLANs for even seeds. For odd ones they move with the route.
        let both = into(&[(20, only("udp")), (40, only("icmp"))]);
        let access = |n: usize| match seed % 2 {
            0 => both.clone(),
            _ => into(&[([20, 40][n], only("udp"))]),
        };
        let by = |n: usize| gateways(&IDS, &[("192.0.2.0/24", vias[n])]);
        campus.set(access(0));
        campus.network.set_gateways(by(0));
        campus.network.run_for(ms(4000));
        campus.introduce(1);
        for router in routers {
            let _ = campus.received(router);
        }
        let from = campus.hosts[&10][0];
        let mut total = [[0; 2]; 2];
        for round in 1..30 {
            let (access, by) = (access(round % 2), by(round % 2));
            let told = campus.network.ask(move |controller, now| {
                controller.set_access_with(now, access, None, Some(by))
            });
            assert_eq!(told, Ok(()));
            for n in 0..some.next() % 40 {
                campus.send_both(from, Ipv4Addr::new(192, 0, 2, n as u8));
            }
            for (router, total) in routers.into_iter().zip(&mut total) {
                let got = campus.received(router);
                *total = [total[0] + got[0], total[1] + got[1]];
            }
        }
        let [[udp20, icmp20], [udp40, icmp40]] = total;
        assert_eq!(icmp20, 0, "seed {seed}: {total:?}");
        assert!(udp20 > 100, "seed {seed}: {total:?}");
        let (kept, passed) = match seed % 2 {
            0 => (udp40, icmp40),
            _ => (icmp40, udp40),
        };
        assert!(kept == 0 && passed > 100, "seed {seed}: {total:?}");
        assert_eq!(campus.network.errors().count(), 0);
    }
}

/// After each single message of a change, no packet goes where the former lists forbid it, and no
/// packet that both the former and the new lists allow is lost.
#[test]
fn each_message_of_a_change_leaves_packets_judged() {
    let only = |protocol| acl(&[(protocol, true), ("arp", true)]);
    let (udp20, udp40) = (into(&[(20, only("udp"))]), into(&[(40, only("udp"))]));
    let both = into(&[(20, only("udp")), (40, only("icmp"))]);
    // The last value is whether datagrams may continue.
    let cases = [(udp20, udp40, true), (both.clone(), both, false)];
    for (before, after, goes_on) in cases {
        let mut campus = Campus::new(5, |network| topology::line(network, 3));
        let from = campus.hosts[&10][0];
        let vias = [campus.hosts[&20][1], campus.hosts[&40][2]].map(|host| campus.ip(host));
        let by = |n: usize| gateways(&IDS, &[("192.0.2.0/24", vias[n])]);
        campus.set(before);
        campus.network.set_gateways(by(0));
        campus.network.run_for(ms(4000));
        campus.introduce(1);
        for _ in 0..5 {
            campus.send_both(from, Ipv4Addr::new(192, 0, 2, 1));
            campus.network.run_for(ms(50));
        }
        let (switch, at) = (campus.topology.switches[0], campus.network.place(from));
        let [udp, icmp] = campus.frames(from, Ipv4Addr::new(192, 0, 2, 1));
        let outs = |campus: &Campus, frame: &[u8]| {
            let switch = campus.network.switch(switch);
            let outs = switch.ports_of(at.port, frame);
            let is_up = |out: &PortNo| *out == PortNo::CONTROLLER;
            (outs.iter().any(is_up), !outs.iter().all(is_up))
        };
        assert_eq!(outs(&campus, &udp), (false, true), "an entry routes them");
        let connection = campus.network.connection(switch);
        let messages = campus.network.ask(|controller, now| {
            let told = controller.set_access_with(now, after, None, Some(by(1)));
            assert_eq!(told, Ok(()));
            let outputs = std::iter::from_fn(|| controller.poll_output());
            let sent = outputs.filter_map(|output| match output {
                ControllerOutput::Send {
                    connection: to,
                    frame,
                } if Some(to) == connection => decode(&frame).ok(),
                _ => None,
            });
            sent.collect::<Vec<Message>>()
        });
        let changes = messages.iter().filter(|m| matches!(m, Message::FlowMod(_)));
        for change in changes.clone() {
            campus.network.apply(switch, change);
            assert!(!outs(&campus, &icmp).1, "{change:?}");
            let (is_up, is_out) = outs(&campus, &udp);
            assert!(is_up || is_out || !goes_on, "{change:?}");
        }
        assert!(changes.count() > 1);
        assert_eq!(outs(&campus, &udp), (goes_on, false), "and no longer");
    }
}

/// A gateway with another Ethernet address, and one that goes and comes back.
#[test]
fn lists_follow_gateways() {
    let mut campus = Campus::new(3, |network| topology::line(network, 2));
    let (from, other, to) = (
        campus.hosts[&10][0],
        campus.hosts[&40][1],
        campus.hosts[&20][1],
    );
    let ip = campus.ip(to);
    campus.set(into(&[(20, no_ping_to(ip))]));
    campus.network.run_for(ms(4000));
    campus.introduce(1);
    let mut changed = gateways(&IDS, &[]);
    if let Some(gateway) = changed.vlans.get_mut(&vlan(10)) {
        gateway.mac = OTHER_MAC;
    }
    let steps = [
        gateways(&IDS, &[]),
        changed,
        gateways(&[20, 40], &[]),
        gateways(&IDS, &[]),
    ];
    for (step, gateways) in (10..).step_by(10).zip(steps) {
        campus.network.set_gateways(gateways);
        campus.network.host_mut(from).forget_addresses();
        campus.network.run_for(ms(50));
        let _ = pings(&mut campus.network, from, other, step);
        let has_gateway = step != 30;
        let found = pings(&mut campus.network, from, other, step + 1);
        assert_eq!(found, has_gateway, "step {step}");
        let _ = pings(&mut campus.network, from, to, step + 2);
        assert!(
            !pings(&mut campus.network, from, to, step + 3),
            "step {step}"
        );
        assert!(
            !pings(&mut campus.network, other, to, step + 4),
            "step {step}"
        );
        assert!(
            pings(&mut campus.network, to, other, step + 5),
            "step {step}"
        );
    }
}

/// A switch without the tables stays connected until one of its VLANs has a gateway.
#[test]
fn no_gateway_leads_past_lists_that_a_switch_cannot_hold() {
    let controller = ControllerConfig {
        fabric: Some(FabricConfig::default()),
        ..ControllerConfig::default()
    };
    let mut network = Network::new(controller.into(), 13);
    // One table less than lists need.
    let switch = network.add_switch_with(DatapathId(7), |options| options.n_tables = 11);
    let host = network.add_host(switch);
    network.run_for(ms(3000));
    network.set_vlans(Vlans {
        ports: [(network.place(host), PortVlans::Access(vlan(10)))].into(),
        ..Vlans::default()
    });
    let access = into(&[(20, acl(&[("arp", true)]))]);
    let (lists, routers) = (access.clone(), gateways(&[10, 20], &[]));
    let refused = network
        .ask(move |controller, now| controller.set_access_with(now, lists, None, Some(routers)));
    assert_eq!(refused, Err(vec![DatapathId(7)]));
    network.set_access(access).expect("it concerns no switch");
    network.run_for(ms(3000));
    assert!(network.connection(switch).is_some());
    network.set_gateways(gateways(&[20], &[]));
    network.run_for(ms(3000));
    assert!(
        network.connection(switch).is_some(),
        "nothing is routed there"
    );
    network.set_gateways(gateways(&[10, 20], &[]));
    network.run_for(ms(3000));
    let is_up = network.ask(|controller, _| {
        let views = controller.switches();
        views.iter().any(|view| view.connection.is_some())
    });
    assert!(!is_up);
}
