//! Ingress alone: budgets and broadcasts.

use clock::{SplitMix64, ms};
use openflow::{Action, Message, decode};

use crate::ConnectionId;
use crate::controller::ControllerOutput;
use crate::controller::fixture::{port, up};
use crate::controller::hosts::MOVE_MIN;
use crate::controller::network::Network;
use crate::controller::outbox::Outbox;
use crate::controller::port_state::{Past, PortState};
use crate::requests::Requests;
use crate::vlan::VlanId;

use super::*;

struct Setup {
    ingress: Ingress,
    net: Network,
    outbox: Outbox,
    count: u8,
}

fn at(n: u64, port: u32) -> Location {
    Location::new(DatapathId(n), PortNo(port))
}

impl Setup {
    /// Two switches with two edge ports each.
    fn new(config: &ControllerConfig) -> Setup {
        let now = Instant::START;
        let mut setup = Setup {
            ingress: Ingress::new(config, 1),
            net: Network::new(config),
            outbox: Outbox::new(config, 1, SplitMix64::new(1)),
            count: 0,
        };
        for n in [1, 2] {
            let (up, connection) = (up(n), ConnectionId(n));
            let requests = || Requests::new(config.requests, 1);
            let dpid = up.features.datapath_id;
            setup.outbox.open(dpid, (connection, up.version), requests);
            setup.net.handle_up(now, connection, &up);
            setup.ingress.handle_up(now, dpid);
            for number in [1, 2] {
                let at = at(n, number);
                setup.ingress.handle_port(now, at, true);
                let fresh = || PortState::new(Past::default());
                let known = setup.net.set_port(at, &port(number), fresh).unwrap();
                known.state.handle_up();
                known.state.settle(now);
            }
        }
        setup
    }

    /// The ports that a broadcast from here leaves by.
    fn spread(&mut self, from: Location) -> Vec<(u64, Vec<u32>)> {
        // Each is a new broadcast.
        self.count += 1;
        self.spread_one(Instant::START, from, self.count).0
    }

    /// The same for a broadcast with this number, and the other port where it arrived.
    fn spread_one(
        &mut self,
        now: Instant,
        from: Location,
        number: u8,
    ) -> (Vec<(u64, Vec<u32>)>, Option<Location>) {
        let (net, outbox) = (&self.net, &mut self.outbox);
        let data = bytes::Bytes::from(vec![number; 60]);
        let vlan = VlanId::NONE;
        let how = Flooding {
            vlan,
            delivery: None,
        };
        let source = self
            .ingress
            .spread(net, now, (from, &data), (None, how), outbox);
        let outputs = std::iter::from_fn(|| self.outbox.pop());
        let sent = outputs.filter_map(|output| {
            let ControllerOutput::Send { connection, frame } = output else {
                return None;
            };
            let Ok(Message::PacketOut(packet_out)) = decode(&frame) else {
                return None;
            };
            let ports = packet_out.actions.iter().filter_map(|action| match action {
                Action::Output { port, .. } => Some(port.0),
                _ => None,
            });
            Some((connection.0, ports.collect()))
        });
        (sent.collect(), source)
    }
}

#[test]
fn a_broadcast_leaves_by_every_edge_port_but_its_own() {
    let mut setup = Setup::new(&ControllerConfig::default());
    assert_eq!(setup.spread(at(1, 1)), [(1, vec![2]), (2, vec![1, 2])]);
    // A port that goes down is left out, although the list of edge ports is cached.
    let known = setup.net.port_mut(at(2, 2)).unwrap();
    known.state.handle_down(Instant::START);
    assert_eq!(setup.spread(at(1, 1)), [(1, vec![2]), (2, vec![1])]);
}

#[test]
fn one_port_has_a_quarter_of_the_packet_outs_and_another_its_own_quarter() {
    let config = ControllerConfig {
        flood_packet_outs_max: 8,
        ..ControllerConfig::default()
    };
    let mut setup = Setup::new(&config);
    // A broadcast costs a packet-out for each of the two switches.
    assert_ne!(setup.spread(at(1, 1)), []);
    assert_eq!(setup.spread(at(1, 1)), []);
    assert_ne!(setup.spread(at(1, 2)), []);
    // The switch has used its half.
    assert_eq!(setup.outbox.counters.flood_limited, 1);
    setup.ingress.handle_port(Instant::START, at(1, 1), false);
    setup.ingress.handle_port(Instant::START, at(1, 1), true);
    assert_eq!(setup.spread(at(1, 1)), []);
    assert_eq!(setup.outbox.counters.flood_limited_shared, 1);
}

#[test]
fn a_broadcast_that_comes_in_again_elsewhere_is_not_sent_again() {
    let mut setup = Setup::new(&ControllerConfig::default());
    let (start, soon) = (Instant::START, Instant::START + ms(300));
    assert_ne!(setup.spread_one(start, at(1, 1), 7).0, []);
    assert_eq!(
        setup.spread_one(start, at(2, 1), 7),
        (vec![], Some(at(1, 1)))
    );
    assert_eq!(
        setup.spread_one(soon, at(1, 2), 7),
        (vec![], Some(at(1, 1)))
    );
    assert_eq!(setup.outbox.counters.flood_echoes, 2);
    // Another frame is another broadcast, as is the same frame in another VLAN.
    assert_ne!(setup.spread_one(soon, at(2, 1), 8).0, []);
    let echoes = &setup.ingress.echoes;
    let frame = [7; 60];
    assert_ne!(
        echoes.number(VlanId::NONE, &frame),
        echoes.number(VlanId::new(7).unwrap(), &frame)
    );
    assert_ne!(
        echoes.number(VlanId::NONE, &frame),
        echoes.number(VlanId::NONE, &frame[..59])
    );
}

#[test]
fn a_host_may_repeat_its_broadcast_and_one_that_has_moved_too() {
    let mut setup = Setup::new(&ControllerConfig::default());
    let start = Instant::START;
    for now in [start, start, start + ms(1), start + ms(1000)] {
        assert_ne!(setup.spread_one(now, at(1, 1), 7).0, []);
    }
    // The host's port stays up: its move is believed when it has not answered there.
    let moved = start + ms(1000) + MOVE_MIN;
    assert_ne!(setup.spread_one(moved, at(1, 2), 7).0, []);
    let known = setup.net.port_mut(at(1, 2)).unwrap();
    known.state.handle_down(moved);
    // So soon it is the broadcast that left by this port a moment ago.
    assert_eq!(setup.spread_one(moved + ms(1), at(2, 2), 7).0, []);
    assert_ne!(setup.spread_one(moved + ms(100), at(2, 2), 7).0, []);
    assert_eq!(setup.outbox.counters.flood_echoes, 1);
}
