//! Ingress alone: budgets and broadcasts.

use clock::SplitMix64;
use openflow::{Action, Message, decode};

use crate::ConnectionId;
use crate::controller::ControllerOutput;
use crate::controller::fixture::{port, up};
use crate::controller::network::Network;
use crate::controller::outbox::Outbox;
use crate::controller::port_state::{Past, PortState};
use crate::requests::Requests;

use super::*;

struct Setup {
    ingress: Ingress,
    net: Network,
    outbox: Outbox,
}

fn at(n: u64, port: u32) -> Location {
    Location::new(DatapathId(n), PortNo(port))
}

impl Setup {
    /// Two switches with two edge ports each.
    fn new(config: &ControllerConfig) -> Setup {
        let now = Instant::START;
        let mut setup = Setup {
            ingress: Ingress::new(config),
            net: Network::new(config),
            outbox: Outbox::new(config, 1, SplitMix64::new(1)),
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
        let (net, outbox) = (&self.net, &mut self.outbox);
        let data = bytes::Bytes::from_static(&[0xff; 60]);
        let now = Instant::START;
        let vlan = crate::vlan::VlanId::NONE;
        let how = Flooding {
            vlan,
            delivery: None,
        };
        self.ingress
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
        sent.collect()
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
    // The switch has had its half.
    assert_eq!(setup.outbox.counters.flood_limited, 1);
    setup.ingress.handle_port(Instant::START, at(1, 1), false);
    setup.ingress.handle_port(Instant::START, at(1, 1), true);
    assert_eq!(setup.spread(at(1, 1)), []);
    assert_eq!(setup.outbox.counters.flood_limited_shared, 1);
}
