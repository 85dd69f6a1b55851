//! Timeouts of flow entries on a real Open vSwitch, under virtual time.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::dummy::DummySwitch;

const PACKET: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),\
                      eth_type(0x0800),ipv4(src=192.168.0.1,dst=192.168.0.2,proto=1,tos=0,ttl=64,\
                      frag=no),icmp(type=8,code=0)";

/// Two entries, one kept busy by a packet a second until its hard timeout, one idle from the start.
#[test]
fn seventy_virtual_seconds_of_timeouts_expire_exactly() {
    let switch = DummySwitch::start(2);
    let busy = "in_port=1,idle_timeout=10,hard_timeout=60,actions=output:2";
    let idle = "in_port=2,idle_timeout=10,actions=output:1";
    switch.ofctl("add-flow", &[busy]);
    switch.ofctl("add-flow", &[idle]);
    let flows = || switch.ofctl("dump-flows", &[]);
    for second in 1..=70 {
        switch.receive(1, PACKET);
        switch.warp(Duration::from_secs(1));
        // Entries last through the second in which they expire, and expire after it, not before.
        match second {
            10 => assert!(flows().contains("in_port=2"), "idle at 10 s: {}", flows()),
            11 => assert!(!flows().contains("in_port=2"), "idle at 11 s: {}", flows()),
            60 => {
                let text = flows();
                assert!(
                    text.contains("duration=60s") && text.contains("n_packets=60"),
                    "{text}"
                );
            }
            61 => assert!(!flows().contains("in_port=1"), "hard at 61 s: {}", flows()),
            _ => {}
        }
    }
}
