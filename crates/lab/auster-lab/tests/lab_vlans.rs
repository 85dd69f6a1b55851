//! VLANs and multicast on Open vSwitch: hosts with the same addresses communicate only in their own
//! VLAN, members of a group receive every packet once, and a port that changes its VLAN at SIGHUP
//! leaves the former one. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::lab::{Lab, wait_for};
use common::run;
use common::running::{AUSTER, Running};
use tempfile::TempDir;

/// The hosts of each VLAN, on the three switches of a line. Both hosts of a switch have the
/// same addresses.
const VLANS: [(u16, [u32; 3]); 2] = [(10, [1, 3, 5]), (20, [2, 4, 6])];

const GROUP: &str = "239.1.1.1";
/// The packets that a member receives before it ends.
const WANTED: usize = 300;

/// Receives until it has `WANTED` packets, the file in its second argument exists, or it has waited
/// for long; prints the number of packets and of different packets.
const RECEIVER: &str = r#"
import os, socket, sys, time
own, stop, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
give_up = time.monotonic() + 180
group = socket.inet_aton("239.1.1.1")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("239.1.1.1", 5000))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton(own))
s.settimeout(0.2)
count, seen = 0, set()
while len(seen) < wanted and not os.path.exists(stop) and time.monotonic() < give_up:
    try:
        seen.add(s.recv(100))
        count += 1
    except socket.timeout:
        pass
print(count, len(seen))
"#;

/// Sends numbered packets until the file in its second argument exists.
const SENDER: &str = r#"
import os, socket, sys, time
own, stop = sys.argv[1], sys.argv[2]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
number = 0
while not os.path.exists(stop):
    s.sendto(number.to_bytes(8, "big"), ("239.1.1.1", 5000))
    number += 1
    time.sleep(0.002)
"#;

fn address(host: u32) -> u32 {
    host.div_ceil(2)
}

fn config(last: u16) -> String {
    format!(
        r#"
[[vlan]]
id = 10
[[vlan]]
id = 20
[[vlan]]
id = 30
[[port]]
at = ["1:1", "2:1"]
access = 10
[[port]]
at = "3:1"
access = {last}
[[port]]
at = ["1:2", "2:2", "3:2"]
access = 20
[multicast]
query_interval_s = 10
"#
    )
}

/// Whether a host answers another one, once or not at all.
fn pings(lab: &Lab, from: u32, to: u32) -> bool {
    let ping = format!("ping -c 2 -i 0.2 -W 1 10.9.0.{}", address(to));
    let output = lab.exec(&format!("h{from}"), &["sh", "-c", &ping]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("DUP!"), "h{from} hears two hosts: {text}");
    output.status.success()
}

fn python(lab: &Lab, host: u32, program: &Path, stop: &Path) -> Child {
    let words = ["lab", "exec", &lab.id, &format!("h{host}"), "--", "python3"];
    let own = format!("10.9.0.{}", address(host));
    let mut command = Command::new(AUSTER);
    command.args(words).arg(program).arg(own).arg(stop);
    command.arg(WANTED.to_string()).stdout(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// The counts that a receiver has printed: all packets, and different packets.
fn counts(child: Child) -> (usize, usize) {
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(count)), Some(Ok(seen))) => (count, seen),
        _ => panic!("no counts: {text}"),
    }
}

#[test]
fn tenants_with_the_same_addresses_never_meet() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    fs::write(&file, config(10)).unwrap();
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
    for host in VLANS.iter().flat_map(|(_, hosts)| hosts) {
        let n = address(*host);
        let commands = [
            "ip addr flush dev eth0".to_owned(),
            "ip link set eth0 down".to_owned(),
            format!("ip link set eth0 address 02:00:00:00:aa:0{n} up"),
            format!("ip addr add 10.9.0.{n}/24 dev eth0"),
        ];
        for command in commands {
            lab.must(*host, &command);
        }
    }
    let pairs = VLANS.iter().flat_map(|(_, hosts)| {
        let to = move |from: u32| hosts.iter().map(move |to| (from, *to));
        hosts.iter().flat_map(move |from| to(*from))
    });
    let pairs: Vec<(u32, u32)> = pairs.filter(|(from, to)| from != to).collect();
    for (from, to) in &pairs {
        wait_for("they talk", || pings(&lab, *from, *to));
    }
    for (vlan, _) in VLANS {
        controller.wait_for(&format!("in VLAN {vlan} at"));
    }

    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (receiver, sender) = (write("receiver.py", RECEIVER), write("sender.py", SENDER));
    let (stop, ended) = (dir.path().join("stop"), dir.path().join("never"));
    let members = [3, 5].map(|host| python(&lab, host, &receiver, &ended));
    let stranger = python(&lab, 4, &receiver, &stop);
    let mut source = python(&lab, 1, &sender, &stop);
    for member in members {
        assert_eq!(
            counts(member),
            (WANTED, WANTED),
            "{GROUP}: each packet once"
        );
    }
    fs::write(&stop, "").unwrap();
    assert_eq!(counts(stranger), (0, 0), "a member in another VLAN");
    source.wait().unwrap();

    fs::write(&file, config(30)).unwrap();
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    wait_for("h5 has left its VLAN", || !pings(&lab, 1, 5));
    for (from, to) in [(1, 3), (2, 6)] {
        wait_for("the others stay", || pings(&lab, from, to));
    }
    assert!(!pings(&lab, 5, 1));
    assert!(lab.down().status.success());
}
