//! Gateways on Open vSwitch: hosts of two VLANs reach each other through their gateways, by IPv4
//! and IPv6, and a VLAN without a gateway stays isolated. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::process::{Child, Command, Stdio};

use common::lab::{Lab, wait_for};
use common::run;
use common::running::{AUSTER, Running};
use tempfile::TempDir;

/// The hosts of each VLAN, on the three switches of a line.
const VLANS: [(u16, [u32; 2]); 3] = [(10, [1, 3]), (20, [2, 5]), (30, [4, 6])];

/// The bytes of a transfer.
const TRANSFER: usize = 3_000_000;

/// Accepts one connection, and prints the number of bytes that it has read.
const SERVER: &str = r#"
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], 5001))
s.listen(1)
s.settimeout(60)
peer = s.accept()[0]
peer.settimeout(60)
count = 0
while data := peer.recv(65536):
    count += len(data)
print(count)
"#;

/// Connects, and sends as many bytes as it is asked to.
const CLIENT: &str = r#"
import socket, sys, time
for _ in range(50):
    try:
        s = socket.create_connection((sys.argv[1], 5001), 5)
        break
    except ConnectionRefusedError:
        time.sleep(0.2)
s.sendall(b"x" * int(sys.argv[2]))
s.close()
"#;

fn config(gateways: &[u16]) -> String {
    let mut text = String::new();
    for (vlan, hosts) in VLANS {
        text += &format!("[[vlan]]\nid = {vlan}\n");
        if gateways.contains(&vlan) {
            text += &format!("gateway = [\"10.9.{vlan}.254/24\", \"fd00:{vlan}::fe/64\"]\n");
        }
        for host in hosts {
            let (switch, port) = (host.div_ceil(2), (host + 1) % 2 + 1);
            text += &format!("[[port]]\nat = \"{switch}:{port}\"\naccess = {vlan}\n");
        }
    }
    text
}

fn vlan_of(host: u32) -> u16 {
    let of = VLANS.iter().find(|(_, hosts)| hosts.contains(&host));
    of.expect("it is in a VLAN").0
}

fn ipv4(host: u32) -> String {
    format!("10.9.{}.{host}", vlan_of(host))
}

fn ipv6(host: u32) -> String {
    format!("fd00:{}::{host}", vlan_of(host))
}

/// Whether an address answers a host, and the output of ping.
fn pings(lab: &Lab, from: u32, to: &str, options: &str) -> (bool, String) {
    let ping = format!("ping -c 2 -i 0.2 -W 1 {options} {to} 2>&1");
    let output = lab.exec(&format!("h{from}"), &["sh", "-c", &ping]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), text)
}

fn configure(lab: &Lab, host: u32) {
    let (vlan, v4, v6) = (vlan_of(host), ipv4(host), ipv6(host));
    let commands = [
        "sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.eth0.disable_ipv6=0 \
         net.ipv6.conf.eth0.accept_dad=0"
            .to_owned(),
        "ip addr flush dev eth0 scope global".to_owned(),
        format!("ip addr add {v4}/24 dev eth0"),
        format!("ip -6 addr add {v6}/64 dev eth0 nodad"),
        format!("ip route replace default via 10.9.{vlan}.254"),
        format!("ip -6 route replace default via fd00:{vlan}::fe dev eth0"),
    ];
    for command in commands {
        lab.must(host, &command);
    }
}

fn python(lab: &Lab, host: u32, program: &str, words: &[&str]) -> Child {
    let start = ["lab", "exec", &lab.id, &format!("h{host}"), "--"];
    let mut command = Command::new(AUSTER);
    command
        .args(start)
        .args(["python3", "-c", program])
        .args(words);
    command.stdout(Stdio::piped()).spawn().expect("it starts")
}

/// The number of bytes that arrive in a transfer over TCP.
fn transfer(lab: &Lab, from: u32, to: u32, address: &str) -> usize {
    let server = python(lab, to, SERVER, &[address]);
    let count = TRANSFER.to_string();
    let mut client = python(lab, from, CLIENT, &[address, &count]);
    let status = client.wait().expect("it ends");
    assert!(status.success(), "h{from} to {address}");
    let output = server.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim()
        .parse()
        .unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn two_vlans_are_routed_and_a_third_stays_alone() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    fs::write(&file, config(&[10, 20])).unwrap();
    let path = file.display().to_string();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
    let at = controller.listening("ptcp").to_string();
    let lab = Lab::up(&[
        "linear,3",
        "--hosts",
        "2",
        "--controller",
        &format!("tcp:{at}"),
    ]);
    for host in 1..=6 {
        configure(&lab, host);
    }
    let pairs = [(1, 2), (1, 5), (3, 2), (5, 3)];
    for (from, to) in pairs {
        for address in [ipv4(to), ipv6(to)] {
            let reaches = || pings(&lab, from, &address, "").0;
            wait_for(&format!("h{from} reaches {address}"), reaches);
        }
    }
    // The switches' entries reduce the TTL by one in each direction.
    let (_, text) = pings(&lab, 1, &ipv4(5), "");
    assert!(text.contains("ttl=63"), "{text}");
    for gateway in ["10.9.10.254", "10.9.20.254", "fd00:10::fe"] {
        wait_for(gateway, || pings(&lab, 1, gateway, "").0);
    }
    let (reached, text) = pings(&lab, 1, &ipv4(5), "-t 1");
    assert!(!reached && text.contains("From 10.9.10.254"), "{text}");
    let (reached, text) = pings(&lab, 1, &ipv6(5), "-t 1");
    assert!(!reached && text.contains("From fd00:10::fe"), "{text}");
    for (from, to) in [(1, 5), (2, 3)] {
        for address in [ipv4(to), ipv6(to)] {
            assert_eq!(transfer(&lab, from, to, &address), TRANSFER, "{address}");
        }
    }
    let (reached, text) = pings(&lab, 1, "192.0.2.1", "");
    assert!(!reached && text.contains("Net Unreachable"), "{text}");

    wait_for("neighbours", || pings(&lab, 4, &ipv4(6), "").0);
    for (from, to) in [(4, 1), (4, 5), (1, 4), (2, 6)] {
        for address in [ipv4(to), ipv6(to)] {
            let (reached, text) = pings(&lab, from, &address, "");
            assert!(!reached, "h{from} reaches {address}: {text}");
        }
    }

    fs::write(&file, config(&[10])).unwrap();
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    controller.wait_for("gateways of");
    for (from, to) in pairs {
        for address in [ipv4(to), ipv6(to)] {
            let (reached, text) = pings(&lab, from, &address, "");
            assert!(!reached, "h{from} reaches {address}: {text}");
        }
    }
    fs::write(&file, config(&[10, 20])).unwrap();
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    wait_for("it is back", || pings(&lab, 1, &ipv4(5), "").0);
    assert!(lab.down().status.success());
}

/// Packets routed into a VLAN pass through its lists from the reload that states the lists until a
/// reload without them.
#[test]
fn lists_for_routed_packets_hold_after_a_reload() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    let without = config(&[10, 20]);
    let list = format!(
        "[[acl]]\nname = \"no-ping\"\n[[acl.rule]]\nallow = false\n\
         match = \"icmp,icmp_type=8,nw_dst={}\"\n[[acl.rule]]\nallow = true\n",
        ipv4(5)
    );
    let with = without.replace("id = 20\n", "id = 20\nacl_out = \"no-ping\"\n") + &list;
    fs::write(&file, &without).unwrap();
    let path = file.display().to_string();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
    let at = controller.listening("ptcp").to_string();
    let lab = Lab::up(&[
        "linear,3",
        "--hosts",
        "2",
        "--controller",
        &format!("tcp:{at}"),
    ]);
    for host in 1..=6 {
        configure(&lab, host);
    }
    let check = |barred: bool, when: &str| {
        for (from, address, is_judged) in [
            (1, ipv4(5), true),
            (3, ipv4(5), true),
            (1, ipv6(5), false),
            (1, ipv4(2), false),
            (2, ipv4(5), false),
            (5, ipv4(1), false),
        ] {
            let may = !(barred && is_judged);
            let what = format!("{when}: h{from} to {address}: {may}");
            wait_for(&what, || pings(&lab, from, &address, "").0 == may);
        }
    };
    check(false, "without lists");
    for (text, barred) in [(&with, true), (&without, false)] {
        fs::write(&file, text).unwrap();
        run("kill", &["-HUP", &controller.child.id().to_string()]);
        controller.wait_for("gateways of");
        check(barred, "after a reload");
    }
    assert!(lab.down().status.success());
}
