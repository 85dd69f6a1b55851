//! Bridges that speak one version of OpenFlow only.

use super::Auster;
use super::intent::{eventually, get};
use super::ovs::Ovs;

const BRIDGES: [(&str, &str, &str, &str); 3] = [
    ("br0", "00000000000000e0", "OpenFlow13", "1.3"),
    ("br1", "00000000000000e1", "OpenFlow14", "1.4"),
    ("br2", "00000000000000e2", "OpenFlow15", "1.5"),
];

fn frame(dst: [u8; 6], src: [u8; 6], number: u16) -> Vec<u8> {
    let mut frame = [&dst[..], &src, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

/// A triangle of one bridge of each version: each host reaches every other, and still does when the
/// link between two bridges has failed.
#[test]
fn bridges_of_1_3_1_4_and_1_5_are_one_network() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    std::fs::write(&file, "[session]\nversions = [\"1.3\", \"1.4\", \"1.5\"]\n").unwrap();
    let config = file.to_str().unwrap();
    let auster = Auster::start(&["ptcp:0:127.0.0.1", "--api", "0", "--config", config]);
    let controller = format!("tcp:127.0.0.1:{}", auster.port());
    let api = auster.api();
    let ovs = Ovs::start();
    for (bridge, dpid, protocol, _) in BRIDGES {
        ovs.add_bridge(bridge, dpid, protocol, &controller);
    }
    for (n, (bridge, ..)) in BRIDGES.iter().enumerate() {
        for (port, peer) in [
            (
                format!("to{}-{n}", (n + 1) % 3),
                format!("to{n}-{}", (n + 1) % 3),
            ),
            (
                format!("to{}-{n}", (n + 2) % 3),
                format!("to{n}-{}", (n + 2) % 3),
            ),
        ] {
            let peer = format!("options:peer={peer}");
            let make = ["add-port", bridge, &port, "--", "set", "interface", &port];
            ovs.vsctl(&[&make[..], &["type=patch", &peer]].concat());
        }
        let port = format!("p{n}");
        let capture = format!(
            "options:tx_pcap={}",
            ovs.path(&format!("{port}.pcap")).display()
        );
        let make = ["add-port", bridge, &port, "--", "set", "interface", &port];
        ovs.vsctl(&[&make[..], &["type=dummy", &capture]].concat());
    }
    let links = || {
        let answer = get(api, "/v1/links");
        answer.body["links"].as_array().map_or(0, Vec::len)
    };
    eventually("three links", || links() == 3);
    let mac = |n: usize| [2, 0, 0, 0, 0, 0x70 + n as u8];
    let mut number = 0;
    let mut all_reach_all = || {
        for (a, b) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)] {
            let (from, to) = (format!("p{a}"), format!("p{b}"));
            ovs.receive(&to, &frame([0xff; 6], mac(b), 0));
            let first = number + 1;
            let copies = |n: u16| ovs.sent_by(&to, &frame(mac(b), mac(a), n));
            // Any of these packets, however late: a packet may take longer than one check.
            eventually("a packet comes", || {
                number += 1;
                ovs.receive(&from, &frame(mac(b), mac(a), number));
                (first..=number).any(|n| copies(n) > 0)
            });
            let is_once = (first..=number).all(|n| copies(n) <= 1);
            assert!(is_once, "from {from} to {to}");
        }
    };
    all_reach_all();
    ovs.vsctl(&["del-port", "br0", "to1-0", "--", "del-port", "br1", "to0-1"]);
    eventually("two links", || links() == 2);
    all_reach_all();

    let status = auster.status();
    for (of, (.., version)) in status["switches"].as_array().unwrap().iter().zip(BRIDGES) {
        assert_eq!(of["version"], version, "{status}");
        assert_eq!(of["malformed"], 0, "{status}");
    }
    let trace = get(api, "/v1/topology").body;
    let versions = trace["switches"].as_array().unwrap().iter();
    let versions: Vec<&str> = versions.map(|of| of["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["1.3", "1.4", "1.5"]);
}

/// A bridge of a version that is not offered is refused, with the versions of both.
#[test]
fn a_bridge_of_another_version_is_refused_by_name() {
    let auster = Auster::start(&["ptcp:0:127.0.0.1"]);
    let ovs = Ovs::start();
    let (bridge, dpid, protocol, _) = BRIDGES[2];
    ovs.add_bridge(
        bridge,
        dpid,
        protocol,
        &format!("tcp:127.0.0.1:{}", auster.port()),
    );
    let line = auster.line("1.5");
    assert!(line.contains("1.0") && line.contains("1.3"), "{line}");
}
