//! Two controllers that do not know of each other at one Open vSwitch: one serves it.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::ovs::Ovs;
use super::{Auster, PATIENCE};

const DPID: &str = "00000000000000b0";

/// A broadcast of a host at `p1`, with a number to be found by.
pub fn broadcast(number: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 0x51, 0x88, 0xb5]);
    frame.extend(b"auster guard");
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

impl Ovs {
    /// A port of `br0` that notes what leaves by it.
    pub fn add_captured_port(&self, port: &str) {
        let capture = self.path(&format!("{port}.pcap"));
        let capture = format!("options:tx_pcap={}", capture.display());
        let make = ["--", "set", "interface", port, "type=dummy", &capture];
        self.vsctl(&[&["add-port", "br0", port], &make[..]].concat());
    }

    pub fn receive(&self, port: &str, frame: &[u8]) {
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        let target = format!("--target={}", self.path("ovs-vswitchd.ctl").display());
        self.run("ovs-appctl", &[&target, "netdev-dummy/receive", port, &hex]);
    }

    /// The number of copies of `frame` that left the switch by `p2`.
    fn sent(&self, frame: &[u8]) -> usize {
        self.sent_by("p2", frame)
    }

    /// The same number for another captured port.
    pub fn sent_by(&self, port: &str, frame: &[u8]) -> usize {
        let capture = std::fs::read(self.path(&format!("{port}.pcap"))).unwrap_or_default();
        capture.windows(frame.len()).filter(|w| *w == frame).count()
    }

    /// Puts 20 broadcasts into the switch, and returns the number of copies of each that have left.
    /// The broadcasts before and after them must be seen once, so that nothing is under way.
    pub fn copies(&self, first: u16) -> Vec<usize> {
        let give_up = Instant::now() + PATIENCE;
        let mut number = first;
        // A port is held before it counts as a host's.
        while self.sent(&broadcast(number)) == 0 {
            assert!(Instant::now() < give_up, "no broadcast gets through");
            number += 1;
            self.receive("p1", &broadcast(number));
            std::thread::sleep(Duration::from_millis(100));
        }
        let counted = number + 1..=number + 20;
        for number in number + 1..=number + 21 {
            self.receive("p1", &broadcast(number));
        }
        while self.sent(&broadcast(number + 21)) == 0 {
            assert!(Instant::now() < give_up, "the last broadcast does not come");
            std::thread::sleep(Duration::from_millis(20));
        }
        counted.map(|n| self.sent(&broadcast(n))).collect()
    }
}

fn serves(auster: &Auster) -> bool {
    auster.status()["connections"]["up"] == 1
}

fn stands_by(auster: &Auster) -> bool {
    auster.status()["connections"]["standing_by"] == serde_json::json!([DPID])
}

/// Either of them may serve, not only the controller that was started first.
#[test]
fn of_two_controllers_at_one_switch_one_serves_and_the_other_when_it_is_killed() {
    let mut both = [(); 2].map(|()| Auster::start(&["ptcp:0:127.0.0.1"]));
    let [one, two] = [0, 1].map(|n: usize| format!("tcp:127.0.0.1:{}", both[n].port()));
    let ovs = Ovs::start();
    ovs.add_bridge("br0", DPID, "OpenFlow13", &one);
    for port in ["p1", "p2"] {
        ovs.add_captured_port(port);
    }
    ovs.vsctl(&["set-controller", "br0", &one, &two]);

    let give_up = Instant::now() + PATIENCE;
    let serving = loop {
        let up = |n: usize| serves(&both[n]) && stands_by(&both[1 - n]);
        if let Some(serving) = [0, 1].into_iter().find(|n| up(*n)) {
            break serving;
        }
        assert!(Instant::now() < give_up, "nobody serves, or both do");
        std::thread::sleep(Duration::from_millis(20));
    };
    both[1 - serving].line(&format!(
        "switch {DPID}: another controller serves it; standing by"
    ));
    assert_eq!(ovs.copies(0), [1; 20]);
    let metrics = both[1 - serving].status();
    assert_eq!(metrics["connections"]["up"], 0, "{metrics}");

    both[serving].end(Signal::SIGKILL);
    let heir = &both[1 - serving];
    let lines = heir.lines_until("serving it now");
    assert!(
        !lines.iter().any(|line| line.contains("alarm")),
        "{lines:#?}"
    );
    assert_eq!(ovs.copies(1000), [1; 20]);
    assert!(serves(heir) && !stands_by(heir));
}
