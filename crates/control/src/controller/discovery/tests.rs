//! Discovery alone: its inputs are ports and frames, its outputs LLDP and the links that it finds.

use bytes::Bytes;
use clock::SplitMix64;
use openflow::{PortNo, decode};

use crate::ConnectionId;
use crate::controller::ControllerOutput;
use crate::controller::fixture::{port, up};
use crate::requests::Requests;

use super::*;

struct Setup {
    discovery: Discovery,
    net: Network,
    outbox: Outbox,
}

fn at(n: u64) -> Location {
    Location::new(DatapathId(n), PortNo(1))
}

fn ms(n: u64) -> Instant {
    Instant::START + Duration::from_millis(n)
}

impl Setup {
    /// Two switches whose entries have been compared, with port 1 of each up.
    fn new() -> Setup {
        let config = ControllerConfig::default();
        let mut setup = Setup {
            discovery: Discovery::new(&config, Prover::new([7; 32], 1)),
            net: Network::new(&config),
            outbox: Outbox::new(&config, 1, SplitMix64::new(1)),
        };
        for n in [1, 2] {
            let (up, connection) = (up(n), ConnectionId(n));
            let requests = || Requests::new(config.requests, 1);
            let dpid = up.features.datapath_id;
            setup.outbox.open(dpid, (connection, up.version), requests);
            setup.net.handle_up(ms(0), connection, &up);
            setup.net.handle_synced(dpid);
            setup.discovery.handle_up(dpid);
            assert_eq!(setup.apply(0, at(n), Some(&port(1))), Some(true));
        }
        setup
    }

    fn apply(&mut self, now: u64, at: Location, state: Option<&Port>) -> Option<bool> {
        self.discovery
            .apply_port(&mut self.net, ms(now), (at, state))
    }

    /// The LLDP that a port sends, if it is due.
    fn lldp(&mut self, now: u64, at: Location) -> Option<Bytes> {
        let due = self.discovery.due(&self.net, ms(now), at)?;
        let (net, outbox) = (&self.net, &mut self.outbox);
        self.discovery.send_due(net, ms(now), (at, due), outbox);
        let frames = std::iter::from_fn(|| self.outbox.pop());
        let frames = frames.filter_map(|output| match output {
            ControllerOutput::Send { frame, .. } => decode(&frame).ok(),
            _ => None,
        });
        let mut sent = frames.filter_map(|message| match message {
            Message::PacketOut(packet_out) => Some(packet_out.data),
            _ => None,
        });
        sent.next()
    }

    /// The link that a frame proves at the port where it arrives.
    fn hear(&mut self, now: u64, to: Location, data: &[u8]) -> Option<(Location, Location)> {
        let (net, outbox) = (&mut self.net, &mut self.outbox);
        self.discovery
            .handle_lldp(net, ms(now), (to, data, data.len()), |_, _| false, outbox)
            .and_then(|shown| match shown {
                Shown::Link(from, to) => Some((from, to)),
                _ => None,
            })
    }
}

#[test]
fn a_frame_proves_a_link_once_and_a_copy_of_it_nothing() {
    let mut setup = Setup::new();
    let frame = setup.lldp(0, at(1)).expect("the first LLDP is due at once");
    assert_eq!(setup.hear(1, at(2), &frame), Some((at(1), at(2))));
    assert_eq!(setup.outbox.counters.lldp_accepted, 1);
    setup.net.links.establish(at(1), at(2));
    assert_eq!(setup.hear(2, at(2), &frame), None);
    assert_eq!(setup.hear(2, at(1), b"not LLDP"), None);
    let counters = setup.outbox.counters;
    assert_eq!((counters.lldp_accepted, counters.lldp_foreign), (1, 1));
}

#[test]
fn a_port_sends_no_lldp_before_it_is_due_and_none_while_it_is_down() {
    let mut setup = Setup::new();
    assert!(setup.lldp(0, at(1)).is_some());
    assert_eq!(setup.lldp(1, at(1)), None);
    assert_eq!(setup.apply(2, at(1), None), Some(false));
    assert_eq!(setup.lldp(10_000, at(1)), None);
}

#[test]
fn a_change_too_soon_after_another_waits_and_only_the_last_is_kept() {
    let mut setup = Setup::new();
    let down = |setup: &mut Setup, now| {
        let (discovery, outbox) = (&mut setup.discovery, &mut setup.outbox);
        discovery.damp(ms(now), at(1), None, outbox)
    };
    assert_eq!(down(&mut setup, 50), None);
    let (discovery, outbox) = (&mut setup.discovery, &mut setup.outbox);
    assert_eq!(discovery.damp(ms(60), at(1), Some(port(1)), outbox), None);
    assert_eq!(
        outbox.poll_timeout(),
        Some((ms(100), Timer::PortChange(at(1))))
    );
    assert_eq!(setup.discovery.take_pending(at(1)), Some(Some(port(1))));
    assert_eq!(down(&mut setup, 200), Some(None), "calm again");
}

/// A switch whose answers take two seconds is not silent; otherwise it would get almost no LLDP.
#[test]
fn a_switch_that_answers_late_is_not_silent() {
    let interval = Duration::from_secs(1);
    let mut pulse = Pulse {
        asked: Some(ms(0)),
        asked_last: ms(1000),
        ..Pulse::default()
    };
    assert!(!pulse.is_silent(ms(999), interval) && pulse.is_silent(ms(1000), interval));
    pulse.handle_answer(ms(1950), ms(0));
    assert_eq!(pulse.asked, Some(ms(1000)), "one is outstanding");
    assert!(!pulse.is_silent(ms(2949), interval) && pulse.is_silent(ms(2950), interval));
    pulse.handle_answer(ms(2950), ms(1000));
    assert!(!pulse.is_silent(ms(9000), interval), "nothing is asked");
}
