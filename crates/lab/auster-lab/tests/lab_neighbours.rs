//! Neighbour solicitations between Linux hosts on Open vSwitch: the edge answers them, the kernel
//! accepts the answer, and the solicited host does not receive them. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::lab::Lab;

const PATIENCE: Duration = Duration::from_secs(180);

/// The output of a command on a host, or `None` if it failed.
fn run(lab: &Lab, host: u32, command: &str) -> Option<String> {
    let output = lab.exec(&format!("h{host}"), &["sh", "-c", command]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

fn must(lab: &Lab, host: u32, command: &str) -> String {
    run(lab, host, command).unwrap_or_else(|| panic!("h{host}: {command}"))
}

/// Neighbour solicitations for addresses of a host that its kernel has received.
fn solicited(lab: &Lab, host: u32) -> u64 {
    let counters = must(lab, host, "cat /proc/net/snmp6");
    let mut lines = counters.lines();
    let line = lines.find_map(|line| line.strip_prefix("Icmp6InNeighborSolicits"));
    line.expect("the counter").trim().parse().expect("a number")
}

/// Pings an address once, with no neighbour entry for it before. Returns the kernel's entry for it.
fn resolve(lab: &Lab, from: u32, to: u32) -> String {
    let give_up = Instant::now() + PATIENCE;
    let forget = format!("ip -6 neigh del 2001:db8::{to} dev eth0 || true");
    let ping = format!("ping -6 -c 1 -W 3 2001:db8::{to}");
    loop {
        must(lab, from, &forget);
        if run(lab, from, &ping).is_some() {
            return must(lab, from, &format!("ip -6 neigh show 2001:db8::{to}"));
        }
        assert!(Instant::now() < give_up, "h{to} never answered h{from}");
    }
}

#[test]
fn linux_takes_the_answers_of_the_edge_and_routers_answer_themselves() {
    let lab = Lab::up(&["linear,3"]);
    for host in 1..=3 {
        let commands = [
            "sysctl -qw net.ipv6.conf.default.accept_ra=0",
            "sysctl -qw net.ipv6.conf.eth0.accept_ra=0",
            "sysctl -qw net.ipv6.conf.all.disable_ipv6=0",
            "sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0",
            // Entries stay reachable during this test: no host confirms them by another
            // solicitation.
            "sysctl -qw net.ipv6.neigh.eth0.base_reachable_time_ms=3600000",
            // Nor five seconds after a host's first packet to a host whose solicitation it has
            // received.
            "sysctl -qw net.ipv6.neigh.eth0.delay_first_probe_time=3600",
        ];
        for command in commands {
            must(&lab, host, command);
        }
        let address = format!("ip -6 addr add 2001:db8::{host}/64 dev eth0 nodad");
        must(&lab, host, &address);
    }
    must(&lab, 3, "sysctl -qw net.ipv6.conf.all.forwarding=1");

    // The first question for each host is its own, and says whether it is a router.
    for (from, to) in [(1, 2), (2, 3), (3, 1)] {
        resolve(&lab, from, to);
    }
    // Both hosts have an entry for each other, so that each later ping causes only one
    // solicitation.
    resolve(&lab, 2, 1);
    let mac = must(&lab, 2, "cat /sys/class/net/eth0/address");
    let before = solicited(&lab, 2);
    for _ in 0..10 {
        let entry = resolve(&lab, 1, 2);
        assert!(entry.contains(&format!("lladdr {}", mac.trim())), "{entry}");
        assert!(!entry.contains("router"), "{entry}");
    }
    assert_eq!(solicited(&lab, 2), before, "h2 was asked itself");

    for n in 0..3 {
        let before = solicited(&lab, 3);
        let entry = resolve(&lab, 1, 3);
        assert!(entry.contains("router"), "{entry}");
        assert!(solicited(&lab, 3) > before, "question {n} was not for h3");
    }
    assert!(lab.down().status.success());
}
