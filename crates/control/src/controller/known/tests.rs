use clock::Duration;
use openflow::message::{MultipartReply, PacketIn, Port, PortReason, PortState, PortStatus};
use openflow::multipart::{ReplyBody, RequestBody};
use openflow::{Cookie, MacAddr, Message, PortNo, Version, decode, encode};

use super::*;
use crate::ConnectionId;
use crate::controller::fixture::{port, up};
use crate::controller::{ControllerConfig, ControllerOutput, PeerIdentity};

fn at(dpid: u64, port: u32) -> Location {
    Location::new(DatapathId(dpid), PortNo(port))
}

fn host(n: u64) -> HostKey {
    HostKey::untagged(MacAddr::from_u64(0x0200_0000_0000 | n))
}

fn known(at: Location) -> KnownHost {
    KnownHost {
        at,
        is_no_router: false,
        ips: Vec::new(),
    }
}

/// A controller whose switches answer barriers and have no entries. No LLDP arrives.
struct Trial {
    now: Instant,
    controller: Controller,
}

impl Trial {
    fn new() -> Trial {
        Trial {
            now: Instant::START + Duration::from_secs(1),
            controller: Controller::new(ControllerConfig::default(), [7; 32]),
        }
    }

    fn come_up(&mut self, dpid: u64, ports: Vec<Port>) {
        let mut up = up(dpid);
        up.ports = ports;
        let peer = PeerIdentity::default();
        let _ = self
            .controller
            .handle_up(self.now, ConnectionId(dpid), up, peer);
    }

    fn learn(&mut self, host: HostKey, known: &KnownHost) {
        assert!(self.controller.learn_host(self.now, host, Some(known)));
        self.controller.settle_learned(self.now, host.vlan);
    }

    /// Answers the requests to switches, and returns the other messages sent to them.
    fn answer(&mut self) -> Vec<(ConnectionId, Message)> {
        let mut sent = Vec::new();
        while let Some(output) = self.controller.poll_output() {
            let ControllerOutput::Send { connection, frame } = output else {
                continue;
            };
            let answer = match decode(&frame) {
                Ok(Message::BarrierRequest) => Message::BarrierReply,
                Ok(Message::MultipartRequest(request)) => match request.body {
                    RequestBody::Flow(_) => {
                        let body = ReplyBody::Flow(Vec::new());
                        Message::MultipartReply(MultipartReply { more: false, body })
                    }
                    _ => continue,
                },
                Ok(message) => {
                    sent.push((connection, message));
                    continue;
                }
                Err(_) => continue,
            };
            let answer = encode(Version::V13, frame.xid(), &answer).unwrap();
            self.controller.handle_frame(self.now, connection, answer);
        }
        sent
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.answer();
            self.now += Duration::from_millis(10);
            self.controller.handle_timeout(self.now);
        }
    }

    /// A little more than four hours.
    fn wait_hours(&mut self) {
        for _ in 0..15_000 {
            self.now += Duration::from_secs(1);
            self.controller.handle_timeout(self.now);
            self.answer();
        }
    }

    fn say(&mut self, dpid: u64, message: &Message) {
        let frame = encode(Version::V13, openflow::Xid(0), message).unwrap();
        self.controller
            .handle_frame(self.now, ConnectionId(dpid), frame);
    }

    fn packet(&mut self, from: Location, src: HostKey, dst: HostKey) {
        let packet_in = PacketIn {
            cookie: Cookie(u64::MAX),
            total_len: 60,
            ..PacketIn::new(
                from.port,
                [&dst.mac.0[..], &src.mac.0, &[8; 48]].concat().into(),
            )
        };
        self.say(from.dpid.0, &Message::PacketIn(packet_in));
    }

    fn link_count(&self) -> usize {
        self.controller.links().len()
    }
}

fn down(number: u32) -> Port {
    Port {
        state: PortState::LINK_DOWN,
        ..port(number)
    }
}

/// A packet to a host that has not been heard goes only to its place.
#[test]
fn a_host_that_another_member_knew_is_reached_at_once() {
    let mut trial = Trial::new();
    trial.learn(host(1), &known(at(1, 1)));
    trial.learn(host(2), &known(at(2, 2)));
    for dpid in [1, 2] {
        trial.come_up(dpid, vec![port(1), port(2)]);
        let edges = BTreeSet::from([PortNo(1), PortNo(2)]);
        trial
            .controller
            .expect_edges(trial.now, DatapathId(dpid), edges);
    }
    trial.answer();
    trial.packet(at(1, 1), host(1), host(2));
    let sent = trial.answer();
    let outs = sent.into_iter().filter_map(|(connection, message)| {
        let Message::PacketOut(out) = message else {
            return None;
        };
        let is_it = out.data.starts_with(&host(2).mac.0);
        is_it.then_some((connection, out.actions))
    });
    let outs: Vec<_> = outs.collect();
    let to = openflow::Action::output(PortNo(2));
    assert_eq!(outs, [(ConnectionId(2), vec![to])]);
    // It may move as soon as its place is silent: it is asked there, and by nobody else's word.
    trial.packet(at(2, 1), host(2), host(1));
    let place = trial.controller.known_host(host(2)).map(|known| known.at);
    assert_eq!(place, Some(at(2, 2)));
}

#[test]
fn a_switch_that_lacks_a_hosts_port_or_has_it_down_ends_that_it_is_there() {
    let mut trial = Trial::new();
    let places = [at(1, 1), at(1, 2), at(1, 9), at(2, 1)];
    for (n, place) in (1..).zip(places) {
        trial.learn(host(n), &known(place));
    }
    trial.come_up(1, vec![port(1), down(2)]);
    let there = |n| trial.controller.known_host(host(n)).is_some();
    assert_eq!([1, 2, 3, 4].map(there), [true, false, false, true]);
}

/// Four hours are longer than a silent host is kept.
#[test]
fn hosts_do_not_age_while_no_switch_is_connected() {
    let mut trial = Trial::new();
    trial.learn(host(1), &known(at(1, 1)));
    trial.wait_hours();
    assert!(trial.controller.known_host(host(1)).is_some());
    trial.come_up(1, vec![port(1), port(2)]);
    trial.wait_hours();
    assert!(trial.controller.known_host(host(1)).is_none());
}

/// The first of two switches has come up. Another member knew these links.
fn expecting(links: &[Link]) -> Trial {
    let mut trial = Trial::new();
    let links = links.iter().copied().collect();
    trial.controller.expect_links(trial.now, links);
    trial.come_up(1, vec![port(1), port(2)]);
    trial
}

const BOTH: [Link; 2] = [(at2(1), at2(2)), (at2(2), at2(1))];

const fn at2(dpid: u64) -> Location {
    Location::new(DatapathId(dpid), PortNo(2))
}

/// Both directions come up with the second switch, before any LLDP, and end without LLDP as fast as
/// any other link.
#[test]
fn links_that_another_member_knew_are_used_until_lldp_is_lost() {
    let mut trial = expecting(&BOTH);
    trial.answer();
    assert_eq!(trial.link_count(), 0, "the other switch is not there");
    trial.come_up(2, vec![port(1), port(2)]);
    trial.answer();
    assert_eq!(trial.link_count(), 2);
    trial.pass(Duration::from_secs(1));
    assert_eq!(trial.link_count(), 2, "LLDP has its time");
    trial.pass(Duration::from_secs(9));
    assert_eq!(trial.link_count(), 0, "LLDP never came");
}

#[test]
fn links_that_a_switch_contradicts_are_not_believed() {
    // The link is known in one direction only.
    let mut trial = expecting(&BOTH[..1]);
    trial.come_up(2, vec![port(1), port(2)]);
    trial.answer();
    assert_eq!(trial.link_count(), 0, "one direction");
    // The port is down or missing.
    for ports in [vec![port(1), down(2)], vec![port(1)]] {
        let mut trial = expecting(&BOTH);
        trial.come_up(2, ports);
        trial.answer();
        assert_eq!(trial.link_count(), 0);
    }
    // The port has changed since.
    let mut trial = expecting(&BOTH);
    let status = PortStatus {
        reason: PortReason::MODIFY,
        port: port(2),
    };
    trial.say(1, &Message::PortStatus(status));
    trial.come_up(2, vec![port(1), port(2)]);
    trial.answer();
    assert_eq!(trial.link_count(), 0, "the port has changed");
    // Entries name a host at the port.
    let mut trial = expecting(&BOTH);
    trial.answer();
    trial.controller.network.handle_told(at2(1));
    trial.come_up(2, vec![port(1), port(2)]);
    trial.answer();
    assert_eq!(trial.link_count(), 0, "a host is there");
    // The other switch connects too late.
    let mut trial = expecting(&BOTH);
    trial.pass(EXPECTED_MORE);
    trial.come_up(2, vec![port(1), port(2)]);
    trial.answer();
    assert_eq!(trial.link_count(), 0, "too late");
}

/// The shape that one controller knew is used by the next one at once, if its switches connect
/// soon.
#[test]
fn a_shape_that_was_known_before_is_used_without_waiting() {
    let mut before = expecting(&BOTH);
    before.come_up(2, vec![port(1), port(2)]);
    before.pass(Duration::from_secs(1));
    let shape = before.controller.shape();
    assert_eq!(shape.links, BOTH.into());
    let edges = |ports: &[u32]| ports.iter().copied().map(PortNo).collect::<BTreeSet<_>>();
    for dpid in [1, 2] {
        assert_eq!(shape.edges[&DatapathId(dpid)], edges(&[1]));
    }
    for (wait, is_used) in [(Duration::ZERO, true), (EXPECTED_MORE, false)] {
        let mut after = Trial::new();
        after.controller.expect(after.now, shape.clone());
        after.pass(wait);
        for dpid in [1, 2] {
            after.come_up(dpid, vec![port(1), port(2)]);
        }
        after.answer();
        assert_eq!(after.link_count() == 2, is_used);
        assert_eq!(after.controller.is_edge(at(1, 1)), is_used);
        assert!(!after.controller.is_edge(at(1, 2)));
    }
}

const EXPECTED_MORE: Duration = Duration::from_secs(11);

/// A host whose port goes down has no place any more.
#[test]
fn news_are_of_hosts_that_come_move_and_go_and_of_links() {
    let mut trial = Trial::new();
    trial.controller.want_news();
    let news = |trial: &mut Trial| -> (Vec<HostKey>, Vec<Link>) {
        let (mut hosts, mut links) = (BTreeSet::new(), BTreeSet::new());
        let host = |host| {
            hosts.insert(host);
        };
        let link = |link| {
            links.insert(link);
        };
        let has_all = trial.controller.take_news(host, link);
        assert!(has_all);
        (hosts.into_iter().collect(), links.into_iter().collect())
    };
    trial.controller.expect_links(trial.now, BOTH.into());
    for dpid in [1, 2] {
        trial.come_up(dpid, vec![port(1), port(2)]);
    }
    trial.answer();
    assert_eq!(news(&mut trial), (vec![], BOTH.to_vec()));
    trial.pass(Duration::from_secs(1));
    trial.packet(at(1, 1), host(1), host(2));
    trial.packet(at(2, 1), host(2), host(1));
    assert_eq!(news(&mut trial), (vec![host(1), host(2)], vec![]));
    assert_eq!(news(&mut trial), (vec![], vec![]));
    for number in [1, 2] {
        let reason = PortReason::MODIFY;
        let port = down(number);
        trial.say(1, &Message::PortStatus(PortStatus { reason, port }));
    }
    trial.pass(Duration::from_millis(200));
    assert_eq!(news(&mut trial), (vec![host(1)], BOTH.to_vec()));
    assert_eq!(trial.controller.known_host(host(1)), None);
}
