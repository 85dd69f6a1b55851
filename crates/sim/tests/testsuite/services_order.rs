//! Forbidden traffic between two hosts does not pass between any two messages of the controller: a
//! switch may wait after one for any time before it takes the next.

use std::net::Ipv4Addr;

use clock::{Duration, Instant};
use control::ConnectionId;
use control::controller::{
    Admission, Controller, ControllerConfig, ControllerOutput, PeerIdentity,
};
use control::entry::EntryKind;
use control::session::SwitchUp;
use control::timeouts::{FlowClass, HostName, Lifetime, Proto, Service, Timeouts};
use openflow::message::{FlowMod, FlowModCommand, Role};
use openflow::packet::build::{Host as Address, udp};
use openflow::table::{Output, Switch, SwitchOptions, plain_port};
use openflow::{MacAddr, Match, Message, PortNo, Version, Xid, decode, encode};

const SWITCH: ConnectionId = ConnectionId(1);
const AT_A: PortNo = PortNo(1);
const AT_B: PortNo = PortNo(2);

/// A controller and one switch with nothing between them.
struct Bench {
    controller: Controller,
    switch: Switch,
    now: Instant,
    /// Whether a packet to port 53 passed, after each change of the table.
    passed: Vec<bool>,
}

fn host(n: u8) -> Address {
    Address::new(MacAddr([2, 0, 0, 0, 0, n]), Ipv4Addr::new(10, 0, 0, n))
}

/// The class of UDP to these ports.
pub fn class(name: &str, dst_ports: &[u16], forbid: bool) -> FlowClass {
    FlowClass {
        name: name.to_owned(),
        src: None,
        dst: None,
        service: Some(Service {
            proto: Proto::UDP,
            src_ports: Vec::new(),
            dst_ports: dst_ports.to_vec(),
        }),
        lifetime: None,
        first_packets: None,
        forbid,
        priority: false,
    }
}

/// All that the one host sends.
fn all_of_a() -> FlowClass {
    FlowClass {
        src: Some(HostName::Mac(host(1).mac)),
        service: None,
        ..class("a", &[], true)
    }
}

fn timeouts(classes: Vec<FlowClass>) -> Timeouts {
    Timeouts {
        classes,
        ..Timeouts::default()
    }
}

impl Bench {
    fn new(classes: Vec<FlowClass>) -> Bench {
        let config = ControllerConfig {
            timeouts: timeouts(classes),
            ..ControllerConfig::default()
        };
        let mut switch = Switch::new(SwitchOptions::default());
        for port in [AT_A, AT_B] {
            let _ = switch.set_port(Instant::START, plain_port(port));
        }
        let mut bench = Bench {
            controller: Controller::new(config, [3; 32]),
            switch,
            now: Instant::START,
            passed: Vec::new(),
        };
        bench.connect();
        bench.run_for(5000);
        // Both hosts are learned, and the path of allowed traffic is set.
        bench.send(AT_B, 2, 1, 80);
        bench.send(AT_A, 1, 2, 80);
        bench.run_for(100);
        bench
    }

    fn connect(&mut self) {
        let up = SwitchUp {
            version: Version::V13,
            features: self.switch.features(),
            ports: self.switch.ports().cloned().collect(),
            description: None,
            role: Role::Equal,
        };
        let peer = PeerIdentity::default();
        let admitted = self.controller.handle_up(self.now, SWITCH, up, peer);
        assert_eq!(admitted, Admission::Admitted);
        self.drain();
    }

    /// Sends a packet and lets the controller answer its packet-in. Returns whether it passed.
    fn send(&mut self, at: PortNo, from: u8, to: u8, port: u16) -> bool {
        let frame = udp(host(from), host(to), (9, port), &[]);
        let outputs = self.switch.process(self.now, at, &frame);
        let mut has_passed = false;
        for output in outputs {
            match output {
                Output::Port { .. } => has_passed = true,
                Output::Controller(packet_in) => {
                    let message = Message::PacketIn(packet_in);
                    let frame = encode(Version::V13, Xid(0), &message).unwrap();
                    self.controller.handle_frame(self.now, SWITCH, frame);
                }
            }
        }
        self.drain();
        has_passed
    }

    fn drain(&mut self) {
        while let Some(output) = self.controller.poll_output() {
            let ControllerOutput::Send { frame, .. } = output else {
                continue;
            };
            let message = decode(&frame).expect("what it sends can be read");
            if let Message::PacketOut(_) = message {
                continue;
            }
            self.apply(frame.xid(), &message);
            if let Message::FlowMod(_) = message {
                let dns = udp(host(1), host(2), (9, 53), &[]);
                let outputs = self.switch.process(self.now, AT_A, &dns);
                let is_out = |output: &Output| matches!(output, Output::Port { .. });
                self.passed.push(outputs.iter().any(is_out));
            }
        }
    }

    fn apply(&mut self, xid: Xid, message: &Message) {
        let answers = self.switch.apply(self.now, message).expect("taken");
        for answer in answers {
            let frame = encode(Version::V13, xid, &answer).unwrap();
            self.controller.handle_frame(self.now, SWITCH, frame);
        }
    }

    fn run_for(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        while let Some((due, _)) = self
            .controller
            .poll_timeout()
            .filter(|(due, _)| *due <= end)
        {
            self.now = self.now.max(due);
            self.tell_removed();
            self.controller.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
        self.tell_removed();
        self.drain();
    }

    /// Has the switch report the entries that have ended.
    fn tell_removed(&mut self) {
        for message in self.switch.handle_timeout(self.now) {
            let frame = encode(Version::V13, Xid(0), &message).unwrap();
            self.controller.handle_frame(self.now, SWITCH, frame);
        }
    }

    fn set(&mut self, classes: Vec<FlowClass>) {
        self.passed.clear();
        self.controller.set_timeouts(self.now, timeouts(classes));
        self.drain();
        self.run_for(500);
    }

    fn entries(&self, kind: EntryKind) -> usize {
        let all = self.switch.entries();
        all.filter(|e| EntryKind::of(e.cookie) == Some(kind))
            .count()
    }
}

/// Entries that drop are in the table before those that forward.
#[test]
fn what_is_forbidden_does_not_pass_while_a_path_is_set() {
    let mut bench = Bench::new(vec![class("dns", &[53], true)]);
    assert_eq!(bench.entries(EntryKind::Barrier), 2);
    assert!(bench.send(AT_A, 1, 2, 80), "the rest does");
    assert!(bench.passed.len() >= 5, "{:?}", bench.passed);
    assert!(!bench.passed.contains(&true), "{:?}", bench.passed);
    // Forbidden later, for a path that exists already.
    let mut bench = Bench::new(Vec::new());
    let mut rest = class("rest", &[], false);
    rest.lifetime = Some(Lifetime::Fixed {
        idle_s: 60,
        hard_s: 0,
    });
    bench.set(vec![rest.clone()]);
    bench.send(AT_A, 1, 2, 53);
    bench.run_for(100);
    assert!(bench.send(AT_A, 1, 2, 53));
    bench.set(vec![class("dns", &[53], true), rest]);
    assert!(bench.entries(EntryKind::Barrier) == 2 && !bench.send(AT_A, 1, 2, 53));
    let from = bench.passed.iter().position(|passed| !passed).unwrap();
    assert!(!bench.passed[from..].contains(&true), "{:?}", bench.passed);
}

/// A switch that has lost its entries is given them again.
#[test]
fn what_is_forbidden_does_not_pass_while_entries_are_set_again() {
    let mut bench = Bench::new(vec![class("dns", &[53], true)]);
    bench.controller.handle_down(bench.now, SWITCH);
    bench.drain();
    let all = FlowMod {
        command: FlowModCommand::Delete,
        ..FlowMod::add(0, Match::any(), Vec::new())
    };
    let emptied = bench.switch.apply(bench.now, &Message::FlowMod(all));
    assert!(emptied.is_ok() && bench.switch.entries().next().is_none());
    bench.passed.clear();
    bench.connect();
    bench.run_for(100);
    assert_eq!(bench.entries(EntryKind::Barrier), 2);
    assert!(bench.send(AT_A, 1, 2, 80) && !bench.send(AT_A, 1, 2, 53));
    assert!(!bench.passed.contains(&true), "{:?}", bench.passed);
}

/// Entries that forward are removed before those that drop some of their traffic.
#[test]
fn what_is_forbidden_does_not_pass_while_a_path_is_taken_away() {
    let dns = class("dns", &[53], true);
    let mut bench = Bench::new(vec![dns, class("udp", &[], false), all_of_a()]);
    assert!(bench.send(AT_A, 1, 2, 80) && !bench.send(AT_A, 1, 2, 53));
    bench.set(vec![all_of_a()]);
    assert!(!bench.send(AT_A, 1, 2, 80), "nothing is allowed any more");
    assert!(bench.passed.len() >= 3, "{:?}", bench.passed);
    assert!(!bench.passed.contains(&true), "{:?}", bench.passed);
}

#[test]
fn a_path_goes_with_what_drops_some_of_it_whoever_took_that_out() {
    let mut bench = Bench::new(vec![class("dns", &[53], true)]);
    let barriers = bench.switch.entries();
    let barriers: Vec<_> = barriers
        .filter(|e| EntryKind::of(e.cookie) == Some(EntryKind::Barrier))
        .map(|e| FlowMod {
            command: FlowModCommand::DeleteStrict,
            ..FlowMod::add(e.priority, e.r#match.clone(), Vec::new())
        })
        .collect();
    assert_eq!(barriers.len(), 2);
    for delete in barriers {
        bench.apply(Xid(0), &Message::FlowMod(delete));
        bench.drain();
        bench.run_for(100);
        assert!(!bench.send(AT_A, 1, 2, 53));
    }
    bench.run_for(1000);
    assert!(!bench.send(AT_A, 1, 2, 53) && bench.send(AT_A, 1, 2, 80));
    assert_eq!(bench.entries(EntryKind::Barrier), 2);
}
