//! Identity of hosts: a host keeps its place and its IP addresses against other claims, and gives
//! them up when it has left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clock::{Duration, ms};
use control::controller::{Alarm, ControllerConfig, Event, Location, Mode};
use control::entry::EntryKind;
use control::timeouts::{FlowClass, HostName, Proto, Service, Timeouts};
use openflow::message::{FlowMod, FlowModCommand};
use openflow::packet::build::{
    Host as Address, arp_reply, arp_request, ethernet, neighbour_advertisement,
    neighbour_solicitation, tagged, udp, udp6,
};
use openflow::table::FlowEntry;
use openflow::{MacAddr, Message, Version};
use sim::network::{HostId, Network, NetworkConfig, SwitchId};

const VERSIONS: [Version; 2] = [Version::V13, Version::V10];

/// Two switches with a link: the victim and its neighbour at the first, an attacker at either.
struct Net {
    network: Network,
    here: SwitchId,
    there: SwitchId,
    victim: HostId,
    peer: HostId,
    far: HostId,
    near_attacker: HostId,
    far_attacker: HostId,
}

fn net(version: Version, controller: ControllerConfig) -> Net {
    let config = NetworkConfig {
        version,
        ..controller.into()
    };
    let mut network = Network::new(config, 1);
    let (here, there) = (network.add_switch(), network.add_switch());
    network.link(here, there);
    let [victim, peer, near_attacker] = [(); 3].map(|()| network.add_host(here));
    let [far, far_attacker] = [(); 2].map(|()| network.add_host(there));
    network.run_for(ms(2000));
    Net {
        network,
        here,
        there,
        victim,
        peer,
        far,
        near_attacker,
        far_attacker,
    }
}

fn lasting() -> ControllerConfig {
    ControllerConfig {
        timeouts: Timeouts::fixed(60, 0),
        ..ControllerConfig::default()
    }
}

impl Net {
    fn mac(&self, host: HostId) -> MacAddr {
        self.network.host(host).address.mac
    }

    fn place(&self, mac: MacAddr) -> Option<Location> {
        let hosts = self.network.process().controller.hosts();
        let host = hosts.iter().find(|host| host.mac == mac);
        host.map(|host| host.at)
    }

    fn ips(&self, host: HostId) -> Vec<IpAddr> {
        let hosts = self.network.process().controller.hosts();
        let found = hosts.into_iter().find(|seen| seen.mac == self.mac(host));
        found.map_or(Vec::new(), |host| host.ips)
    }

    fn alarms(&self) -> Vec<Alarm> {
        let alarms = self.network.events().filter_map(|event| match event {
            Event::Alarm(alarm) => Some(alarm.clone()),
            _ => None,
        });
        alarms.collect()
    }

    fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.network.events().filter(|event| is_it(event)).count()
    }

    /// The host announces its IPv4 address.
    fn announce(&mut self, host: HostId) {
        let address = self.network.host(host).address;
        self.network.inject(host, arp_request(address, address.ip));
        self.network.run_for(ms(50));
    }

    /// Sends the victim's hardware address from the attacker's port for 8 s. The victim must keep
    /// its place, and the alarm must name the attacker's port.
    fn attack_place(&mut self, attacker: HostId) {
        let mac = self.mac(self.victim);
        for n in 0..800u16 {
            let somebody = MacAddr([2, 9, 9, 9, (n >> 8) as u8, n as u8]);
            let frame = ethernet(mac, somebody, 0x88b5, &[7; 46]);
            self.network.inject(attacker, frame);
            self.network.run_for(ms(10));
        }
        let (home, at) = (
            self.network.place(self.victim),
            self.network.place(attacker),
        );
        assert_eq!(self.place(mac), Some(home));
        assert_eq!(self.count(|e| matches!(e, Event::HostMoved { .. })), 0);
        let right = Alarm::HostSpoofed { mac, home, at };
        assert_eq!(self.alarms(), [right]);
    }
}

#[test]
fn a_host_of_ipv6_alone_keeps_its_place() {
    for version in VERSIONS {
        for far in [false, true] {
            let mut net = net(version, lasting());
            let ip: Ipv6Addr = "2001:db8::1".parse().unwrap();
            let (victim, mac) = (net.victim, net.mac(net.victim));
            net.network.host_mut(victim).ip6 = Some(ip);
            let asked = "2001:db8::99".parse().unwrap();
            net.network
                .inject(victim, neighbour_solicitation((mac, ip), asked));
            net.network.run_for(ms(500));
            let attacker = if far {
                net.far_attacker
            } else {
                net.near_attacker
            };
            net.attack_place(attacker);
        }
    }
}

/// The host answers for its present address, and for no earlier one. Its present address is the
/// greater one.
#[test]
fn a_host_with_another_address_than_before_keeps_its_place() {
    for version in VERSIONS {
        let mut net = net(version, lasting());
        net.announce(net.victim);
        net.network.host_mut(net.victim).address.ip = Ipv4Addr::new(10, 0, 7, 7);
        net.announce(net.victim);
        net.attack_place(net.far_attacker);
    }
}

/// The host has announced no address and answers no question. Entries carry its packets, those of
/// its switch's edge and those of a path, so the controller sees them only while it asks for the
/// host. None is lost.
#[test]
fn a_host_that_cannot_be_asked_is_heard_by_its_traffic() {
    for version in VERSIONS {
        for far in [false, true] {
            let mut net = net(version, lasting());
            net.announce(net.peer);
            net.announce(net.far);
            let from = net.network.host(net.victim).address;
            let to = [net.peer, net.far].map(|to| net.network.host(to).address);
            let victim = net.victim;
            let send = |net: &mut Net, number: u64| {
                for to in to {
                    let frame = udp(from, to, (1, 2), &number.to_be_bytes());
                    net.network.inject(victim, frame);
                }
            };
            for number in 0..100 {
                send(&mut net, number);
                net.network.run_for(ms(10));
            }
            let attacker = if far {
                net.far_attacker
            } else {
                net.near_attacker
            };
            for number in 100..900u64 {
                let n = number as u16;
                let somebody = MacAddr([2, 9, 9, 9, (n >> 8) as u8, n as u8]);
                let frame = ethernet(from.mac, somebody, 0x88b5, &[7; 46]);
                net.network.inject(attacker, frame);
                send(&mut net, number);
                net.network.run_for(ms(10));
            }
            net.network.run_for(ms(100));
            let home = net.network.place(victim);
            assert_eq!(net.place(from.mac), Some(home), "{version} far {far}");
            assert_eq!(net.count(|e| matches!(e, Event::HostMoved { .. })), 0);
            let (mac, at) = (from.mac, net.network.place(attacker));
            assert_eq!(net.alarms(), [Alarm::HostSpoofed { mac, home, at }]);
            for to in [net.peer, net.far] {
                let got = net.network.host(to).datagrams.values().sum::<u32>();
                assert_eq!(got, 900, "{version} far {far}: lost or doubled");
            }
            // The entries carry its packets again.
            let before = net.network.process().controller.counters().packet_ins;
            let lldp = net.network.process().controller.counters().lldp_accepted;
            for number in 900..1000 {
                send(&mut net, number);
                net.network.run_for(ms(10));
            }
            let counters = net.network.process().controller.counters();
            let packet_ins = counters.packet_ins - before - (counters.lldp_accepted - lldp);
            assert!(packet_ins <= 2, "{version} far {far}: {packet_ins}");
        }
    }
}

/// The host's packets go to a host of the same switch, so the connection's edge answers them.
#[test]
fn a_host_that_speaks_only_to_its_neighbour_is_heard() {
    for version in VERSIONS {
        let mut net = net(version, lasting());
        net.announce(net.peer);
        let from = net.network.host(net.victim).address;
        let to = net.network.host(net.peer).address;
        let (victim, attacker) = (net.victim, net.far_attacker);
        for number in 0..900u64 {
            if number >= 100 {
                let n = number as u16;
                let somebody = MacAddr([2, 9, 9, 9, (n >> 8) as u8, n as u8]);
                let frame = ethernet(from.mac, somebody, 0x88b5, &[7; 46]);
                net.network.inject(attacker, frame);
            }
            let frame = udp(from, to, (1, 2), &number.to_be_bytes());
            net.network.inject(victim, frame);
            net.network.run_for(ms(10));
        }
        net.network.run_for(ms(100));
        let home = net.network.place(victim);
        assert_eq!(net.place(from.mac), Some(home), "{version}");
        assert_eq!(net.count(|e| matches!(e, Event::HostMoved { .. })), 0);
    }
}

/// The victim's switch is away for a while, and the victim cannot be asked.
#[test]
fn a_host_that_cannot_be_heard_is_not_taken_for_silent() {
    let mut net = net(Version::V13, lasting());
    net.announce(net.victim);
    let mac = net.mac(net.victim);
    net.network.disconnect(net.here);
    for n in 0..300u16 {
        let somebody = MacAddr([2, 9, 9, 9, (n >> 8) as u8, n as u8]);
        let frame = ethernet(mac, somebody, 0x88b5, &[7; 46]);
        net.network.inject(net.far_attacker, frame);
        net.network.run_for(ms(10));
    }
    net.network.run_for(ms(2000));
    assert_eq!(net.place(mac), Some(net.network.place(net.victim)));
    assert_eq!(net.count(|e| matches!(e, Event::HostMoved { .. })), 0);
}

/// A host that has left silently loses its place within 1.3 s, whatever its addresses.
#[test]
fn a_host_that_has_gone_is_believed_at_its_new_place() {
    let ip6: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for (v4, v6) in [(true, false), (false, true), (true, true)] {
        let mut net = net(Version::V13, lasting());
        let (victim, mac) = (net.victim, net.mac(net.victim));
        let tell = |net: &mut Net| {
            if v4 {
                net.announce(victim);
            }
            if v6 {
                net.network.host_mut(victim).ip6 = Some(ip6);
                let frame = neighbour_advertisement((mac, ip6), false);
                net.network.inject(victim, frame);
                net.network.run_for(ms(50));
            }
        };
        tell(&mut net);
        net.network.move_host(victim, net.there, false);
        net.network.run_for(ms(700));
        tell(&mut net);
        net.network.run_for(ms(1250));
        assert_eq!(net.place(mac), Some(net.network.place(victim)), "{v4} {v6}");
    }
}

/// "10.0.0.1 is at the attacker", for 8 s: the address stays with its owner, and one alarm names
/// all.
#[test]
fn an_address_stays_with_its_owner() {
    for version in VERSIONS {
        for is_request in [false, true] {
            let mut net = net(version, lasting());
            net.announce(net.victim);
            net.announce(net.far_attacker);
            let victim = net.network.host(net.victim).address;
            let mac = net.mac(net.far_attacker);
            let claim = Address { mac, ip: victim.ip };
            let frame = match is_request {
                true => arp_request(claim, victim.ip),
                false => arp_reply(claim, net.network.host(net.peer).address),
            };
            for _ in 0..800 {
                net.network.inject(net.far_attacker, frame.clone());
                net.network.run_for(ms(10));
            }
            assert_eq!(net.ips(net.victim), [IpAddr::V4(victim.ip)]);
            assert!(!net.ips(net.far_attacker).contains(&IpAddr::V4(victim.ip)));
            assert_eq!(net.count(|e| matches!(e, Event::AddressMoved { .. })), 0);
            let right = Alarm::AddressClaimed {
                ip: victim.ip.into(),
                owner: victim.mac,
                claimant: mac,
                at: net.network.place(net.far_attacker),
            };
            assert_eq!(net.alarms(), [right]);
            let counters = net.network.process().controller.counters();
            assert!(counters.address_claims > 0);
        }
    }
}

#[test]
fn an_address_of_ipv6_stays_with_its_owner() {
    let mut net = net(Version::V13, lasting());
    let ip: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let (mac, attacker) = (net.mac(net.victim), net.mac(net.far_attacker));
    net.network.host_mut(net.victim).ip6 = Some(ip);
    net.network
        .inject(net.victim, neighbour_advertisement((mac, ip), false));
    net.network.run_for(ms(50));
    for _ in 0..300 {
        let frame = neighbour_advertisement((attacker, ip), false);
        net.network.inject(net.far_attacker, frame);
        net.network.run_for(ms(10));
    }
    assert_eq!(net.ips(net.victim), [IpAddr::V6(ip)]);
    assert!(net.ips(net.far_attacker).is_empty());
}

/// An address moves to another host when its owner is silent, or no longer has a place: a service
/// that fails over.
#[test]
fn an_address_follows_a_failover() {
    for unplug in [false, true] {
        let mut net = net(Version::V13, lasting());
        net.announce(net.victim);
        net.announce(net.far);
        let shared = net.network.host(net.victim).address.ip;
        if unplug {
            let link = net.network.link_of(net.victim);
            net.network.set_link(link, false);
            net.network.run_for(ms(300));
        } else {
            net.network.host_mut(net.victim).silent = true;
        }
        net.network.host_mut(net.far).address.ip = shared;
        net.announce(net.far);
        net.network.run_for(ms(if unplug { 0 } else { 1200 }));
        assert!(net.ips(net.far).contains(&IpAddr::V4(shared)), "{unplug}");
        let is_it = |e: &Event| matches!(e, Event::AddressMoved { .. });
        assert_eq!(net.count(is_it), 1);
        assert_eq!(net.alarms(), []);
    }
}

/// ARP and neighbour discovery in a frame from another source are not forwarded.
#[test]
fn whoever_speaks_for_another_is_not_heard() {
    for version in VERSIONS {
        let mut net = net(version, lasting());
        net.announce(net.peer);
        net.announce(net.far_attacker);
        let peer = net.network.host(net.peer).address;
        net.network.host_mut(net.peer).record = true;
        let hidden = Address::new(MacAddr([2, 6, 6, 6, 6, 6]), Ipv4Addr::new(10, 0, 9, 5));
        let source = net.mac(net.far_attacker);
        let mut frames = vec![arp_request(hidden, peer.ip), arp_reply(hidden, peer)];
        let ip6 = "2001:db8::5".parse().unwrap();
        frames.push(neighbour_advertisement((hidden.mac, ip6), false));
        frames.push(neighbour_solicitation((hidden.mac, ip6), ip6));
        for frame in &mut frames {
            frame[6..12].copy_from_slice(&source.0);
        }
        let count = frames.len() as u64;
        for frame in frames {
            net.network.inject(net.far_attacker, frame);
            net.network.run_for(ms(50));
        }
        let heard = &net.network.host(net.peer).recorded;
        let from_it = heard.iter().filter(|frame| frame[6..12] == source.0);
        assert_eq!(from_it.count(), 0, "{version}");
        let counters = net.network.process().controller.counters();
        assert_eq!(counters.senders_forged, count);
        let right = Alarm::SenderForged {
            at: net.network.place(net.far_attacker),
            mac: source,
            said: hidden.mac,
        };
        assert_eq!(net.alarms(), [right]);
        assert_eq!(net.ips(net.far_attacker).len(), 1, "its own");
    }
}

const MODES: [Mode; 3] = [Mode::Reactive, Mode::Proactive, Mode::Hybrid];

/// A host that is asked keeps its place and its addresses in every mode.
#[test]
fn places_and_addresses_hold_in_every_mode() {
    for mode in MODES {
        let config = ControllerConfig { mode, ..lasting() };
        let mut net = net(Version::V13, config);
        net.announce(net.victim);
        net.network.host_mut(net.victim).address.ip = Ipv4Addr::new(10, 0, 7, 7);
        net.announce(net.victim);
        net.attack_place(net.far_attacker);
    }
}

fn class(src: &str, dst: &str, forbid: bool) -> FlowClass {
    let name = |text: &str| (!text.is_empty()).then(|| text.parse::<HostName>().unwrap());
    FlowClass {
        name: format!("{src} to {dst}"),
        src: name(src),
        dst: name(dst),
        service: None,
        lifetime: None,
        first_packets: None,
        forbid,
        priority: false,
    }
}

fn barring(classes: Vec<FlowClass>) -> Timeouts {
    Timeouts {
        classes,
        ..Timeouts::fixed(60, 0)
    }
}

/// 10.0.9.0/24 and 2001:db8:9::/64 are forbidden, from the beginning or from a while after it.
fn barred_net(version: Version, late: bool) -> Net {
    let barring = barring(vec![
        class("10.0.9.0/24", "", true),
        class("2001:db8:9::/64", "", true),
    ]);
    let timeouts = match late {
        true => barring_none(),
        false => barring.clone(),
    };
    let config = ControllerConfig {
        timeouts,
        ..ControllerConfig::default()
    };
    let mut net = net(version, config);
    for host in [net.peer, net.far, net.far_attacker] {
        net.announce(host);
    }
    if late {
        // Entries of pairs, and of edges, exist before.
        for host in [net.peer, net.far] {
            net.network.host_mut(host).record = true;
        }
        send_all(&mut net, "10.0.0.66", 1, 20);
        send_all_6(&mut net, "2001:db8:9::5", 1, 20);
        assert!(arrived(&net, 1, 20) > 0, "or it says nothing");
        net.network.set_timeouts(barring);
        net.network.run_for(ms(200));
    }
    net
}

fn barring_none() -> Timeouts {
    Timeouts::fixed(60, 0)
}

/// The attackers send UDP from an IPv4 address to the peer and the far host, from their own
/// hardware address, and say nothing of themselves.
fn send_all(net: &mut Net, ip: &str, first: u64, count: u64) {
    for number in first..first + count {
        for attacker in [net.near_attacker, net.far_attacker] {
            let from = Address::new(net.mac(attacker), ip.parse().unwrap());
            for to in [net.peer, net.far] {
                let to = net.network.host(to).address;
                let frame = udp(from, to, (1, 2), &number.to_be_bytes());
                net.network.inject(attacker, frame);
            }
        }
        net.network.run_for(ms(10));
    }
}

/// The same over IPv6. A host of the model does not read the number, and counts the packet.
fn send_all_6(net: &mut Net, ip: &str, first: u64, count: u64) {
    for number in first..first + count {
        for attacker in [net.near_attacker, net.far_attacker] {
            for to in [net.peer, net.far] {
                let (from, to) = (net.mac(attacker), net.mac(to));
                let target = "2001:db8::2".parse().unwrap();
                let ips = ((from, ip.parse().unwrap()), (to, target));
                let frame = udp6(ips.0, ips.1, (1, 2), &number.to_be_bytes());
                net.network.inject(attacker, frame);
            }
        }
        net.network.run_for(ms(10));
    }
}

/// The number of frames with one of these numbers over UDP that the peer and the far host have
/// recorded.
fn arrived(net: &Net, first: u64, count: u64) -> usize {
    let hosts = [net.peer, net.far].map(|host| net.network.host(host));
    let frames = hosts.into_iter().flat_map(|host| &host.recorded);
    let is_it = |frame: &&Vec<u8>| {
        let at = match frame[12..14] {
            [0x08, 0x00] => 42,
            [0x86, 0xdd] if frame[20] == 17 => 62,
            _ => return false,
        };
        let number = frame.get(at..at + 8).map(|b| b.try_into().unwrap());
        number.is_some_and(|b| (first..first + count).contains(&u64::from_be_bytes(b)))
    };
    frames.filter(is_it).count()
}

/// A host barred by its IP address is barred though it never announces that address, on one switch
/// and on two, and whatever entries it had before.
#[test]
fn packets_of_a_barred_address_go_nowhere() {
    for (version, late) in VERSIONS.into_iter().flat_map(|v| [(v, false), (v, true)]) {
        let mut net = barred_net(version, late);
        for host in [net.peer, net.far] {
            net.network.host_mut(host).record = true;
        }
        send_all(&mut net, "10.0.9.5", 1000, 50);
        assert_eq!(arrived(&net, 1000, 50), 0, "{version} late {late}");
        send_all_6(&mut net, "2001:db8:9::5", 2000, 50);
        assert_eq!(arrived(&net, 2000, 50), 0, "{version} late {late}");
        // The packets are barred, not the hosts: other packets of the same hosts pass.
        send_all(&mut net, "10.0.0.66", 3000, 50);
        assert_eq!(arrived(&net, 3000, 50), 200, "{version} late {late}");
        send_all_6(&mut net, "2001:db8:8::5", 4000, 50);
        assert_eq!(arrived(&net, 4000, 50), 200, "{version} late {late}");
        // The pairs have entries now.
        send_all(&mut net, "10.0.9.5", 5000, 50);
        send_all_6(&mut net, "2001:db8:9::5", 6000, 50);
        assert_eq!(arrived(&net, 5000, 1050), 0, "{version} late {late}");
    }
}

/// Two tags of 802.1Q hide the addresses from the switch, and Linux takes both off.
#[test]
fn a_barred_packet_does_not_hide_behind_tags() {
    let mut net = barred_net(Version::V13, false);
    net.network.host_mut(net.far).record = true;
    let from = Address::new(net.mac(net.far_attacker), "10.0.9.5".parse().unwrap());
    let to = net.network.host(net.far).address;
    for tags in 1..4 {
        let mut frame = udp(from, to, (1, 2), &[7; 8]);
        for _ in 0..tags {
            frame = tagged(&frame, 0, 0);
        }
        for _ in 0..20 {
            net.network.inject(net.far_attacker, frame.clone());
            net.network.run_for(ms(10));
        }
        let heard = &net.network.host(net.far).recorded;
        let its = heard.iter().filter(|frame| frame[6..12] == from.mac.0);
        assert_eq!(its.count(), 0, "{tags} tags");
    }
}

/// A barred host whose answers come in a frame of another source gets no conversation.
#[test]
fn a_barred_host_does_not_answer_by_another_source() {
    for version in VERSIONS {
        let mut net = barred_net(version, false);
        let hidden = Address::new(net.mac(net.far_attacker), "10.0.9.5".parse().unwrap());
        for _ in 0..5 {
            // A host asks for it, and it answers so that nobody learns its identity.
            let peer = net.network.host(net.peer).address;
            net.network.inject(net.peer, arp_request(peer, hidden.ip));
            net.network.run_for(ms(50));
            let mut answer = arp_reply(hidden, peer);
            answer[6..12].copy_from_slice(&[2, 6, 6, 6, 6, 6]);
            net.network.inject(net.far_attacker, answer);
            net.network.run_for(ms(100));
        }
        assert!(!net.network.host(net.peer).has_resolved(hidden.ip));
    }
}

/// Traffic that an earlier class allows in a forbidden network goes on, however long its hosts
/// were silent; the rest of the network's traffic does not.
#[test]
fn a_class_before_the_forbidden_one_lets_its_hosts_through() {
    for version in VERSIONS {
        let mut ssh = class("10.0.0.0/24", "", false);
        ssh.service = Some(Service {
            proto: Proto::UDP,
            src_ports: Vec::new(),
            dst_ports: vec![22],
        });
        let far_ip = "10.0.0.4";
        let timeouts = Timeouts {
            default: Timeouts::fixed(2, 0).default,
            ..barring(vec![
                class("10.0.0.1", "", false),
                class(far_ip, "10.0.0.1", false),
                ssh,
                class("10.0.0.0/16", "", true),
            ])
        };
        let config = ControllerConfig {
            timeouts,
            ..ControllerConfig::default()
        };
        let mut net = net(version, config);
        for host in [net.victim, net.peer, net.far] {
            net.announce(host);
        }
        let send = |net: &mut Net, from: HostId, to: HostId, port: u16, number: u64| {
            let (sender, to) = (from, net.network.host(to).address);
            let from = net.network.host(from).address;
            let frame = udp(from, to, (1, port), &number.to_be_bytes());
            net.network.inject(sender, frame);
            net.network.run_for(ms(20));
        };
        let (victim, peer, far) = (net.victim, net.peer, net.far);
        assert_eq!(net.network.host(far).address.ip.to_string(), far_ip);
        // The second round finds no entry: all have ended.
        for round in 0..2 {
            for number in 0..10 {
                let number = number + 100 * round;
                send(&mut net, victim, far, 9, number);
                send(&mut net, victim, peer, 9, 1000 + number);
                send(&mut net, peer, far, 22, 2000 + number);
                send(&mut net, peer, far, 23, 3000 + number);
                send(&mut net, far, victim, 9, 4000 + number);
                send(&mut net, far, peer, 9, 5000 + number);
            }
            net.network.run_for(ms(6000));
        }
        let got = |host: HostId, first: u64| {
            let got = &net.network.host(host).datagrams;
            got.keys()
                .filter(|n| (first..first + 1000).contains(n))
                .count()
        };
        let all = [
            got(far, 0),
            got(peer, 1000),
            got(far, 2000),
            got(far, 3000),
            got(victim, 4000),
            got(peer, 5000),
        ];
        assert_eq!(all, [20, 20, 20, 0, 20, 0], "{version}");
        assert_eq!(net.network.errors().count(), 0);
    }
}

/// A guard that somebody deletes, or that a switch has lost with its connection, is set again. The
/// guards of a lifted ban are removed.
#[test]
fn guards_are_kept() {
    for version in VERSIONS {
        let mut net = barred_net(version, false);
        let guards = |net: &Net, at: SwitchId| {
            let entries = net.network.switch(at).entries();
            let its = entries.filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Guard));
            its.cloned().collect::<Vec<FlowEntry>>()
        };
        let before = guards(&net, net.here).len();
        assert!(before >= 3, "{version}: {before}");
        let delete = |guard: &FlowEntry| {
            let mut flow_mod = FlowMod::add(guard.priority, guard.r#match.clone(), Vec::new());
            flow_mod.command = FlowModCommand::DeleteStrict;
            Message::FlowMod(flow_mod)
        };
        for again in [false, true] {
            for guard in guards(&net, net.here) {
                net.network.apply(net.here, &delete(&guard));
            }
            assert_eq!(guards(&net, net.here).len(), 0);
            if again {
                net.network.disconnect(net.here);
            } else {
                // The switch reports none of these, so its entries are compared.
                net.network.kill_controller();
                net.network.start_controller(7);
            }
            net.network.run_for(ms(3000));
            assert_eq!(guards(&net, net.here).len(), before, "{version}");
        }
        net.network.set_timeouts(barring_none());
        net.network.run_for(ms(500));
        assert_eq!(guards(&net, net.here).len(), 0, "{version}");
        assert_eq!(net.network.errors().count(), 0);
    }
}

/// With inspection no ARP or neighbour discovery message for another host's address arrives
/// anywhere, though the pair has entries; messages for the sender's own address do. Once the owner
/// is silent, its heir's messages do.
#[test]
fn inspection_drops_claims_of_others_addresses() {
    let config = ControllerConfig {
        arp_inspection: true,
        ..lasting()
    };
    let mut net = net(Version::V13, config);
    for host in [net.victim, net.peer, net.far, net.far_attacker] {
        net.announce(host);
    }
    let (attacker, peer) = (net.far_attacker, net.peer);
    net.network.ping(attacker, peer, 1);
    net.network.run_for(ms(200));
    let own = net.network.host(attacker).address;
    let victim = net.network.host(net.victim).address;
    let to = net.network.host(peer).address;
    net.network.host_mut(peer).record = true;
    let claim = Address::new(own.mac, victim.ip);
    let heard = |net: &mut Net, frame: &[u8]| {
        net.network.inject(attacker, frame.to_vec());
        net.network.run_for(ms(100));
        let heard = std::mem::take(&mut net.network.host_mut(peer).recorded);
        heard.iter().any(|heard| heard == frame)
    };
    for _ in 0..10 {
        assert!(!heard(&mut net, &arp_reply(claim, to)));
        assert!(!heard(&mut net, &arp_request(claim, claim.ip)));
        assert!(heard(&mut net, &arp_reply(own, to)));
    }
    net.network.host_mut(net.victim).silent = true;
    net.network.run_for(Duration::from_secs(11));
    let _ = heard(&mut net, &arp_reply(claim, to));
    net.network.run_for(ms(1200));
    assert!(heard(&mut net, &arp_reply(claim, to)), "it is its own now");
    assert!(
        net.network
            .process()
            .controller
            .counters()
            .address_claims_dropped
            >= 20
    );
}
