//! A bond with a real partner: Open vSwitch's own bond, by LACP. Hosts reach the server behind it,
//! each frame arrives once, and a failed link does not cut them off. `scripts/bond` measures how
//! long that takes. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::lab::{Lab, wait_for};
use common::running::{AUSTER, Running};
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The address behind the bond.
const SERVER: &str = "10.9.0.100";
/// Broadcasts that are counted at both ends.
const BROADCASTS: usize = 200;

/// Receives until all packets have arrived, and a little longer. Prints the number of packets and
/// of different packets.
const RECEIVER: &str = r#"
import os, socket, sys, time
give_up = time.monotonic() + 120
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# The kernel hears broadcasts at the bond's links as well.
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"srv")
s.bind(("", 5000))
s.settimeout(0.2)
count, seen = 0, set()
open(sys.argv[1], "w").close()
late = 5
while late and time.monotonic() < give_up:
    try:
        seen.add(s.recv(100))
        count += 1
    except socket.timeout:
        late -= len(seen) >= int(sys.argv[2])
print(count, len(seen))
"#;

const SENDER: &str = r#"
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for number in range(int(sys.argv[1])):
    s.sendto(number.to_bytes(8, "big"), ("10.9.0.255", 5000))
    time.sleep(0.01)
"#;

/// The device behind the bond: a separate switch in the namespace of host 1, which also has the
/// link of host 2.
struct Partner<'a> {
    lab: &'a Lab,
    dir: TempDir,
    processes: Vec<Child>,
}

impl Drop for Partner<'_> {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl<'a> Partner<'a> {
    fn start(lab: &'a Lab, lacp: &str) -> Partner<'a> {
        let mut partner = Partner {
            lab,
            dir: TempDir::new().unwrap(),
            processes: Vec::new(),
        };
        let space = lab.must(1, "ip netns identify");
        let taken = format!("ip link set eth0 down netns {} name eth1", space.trim());
        lab.must(2, &taken);
        for name in ["eth0", "eth1"] {
            lab.must(1, &format!("ip addr flush dev {name}"));
            lab.must(1, &format!("ip link set {name} arp off up"));
        }
        let db = partner.dir.path().join("conf.db");
        let sock = partner.dir.path().join("db.sock");
        let mut make = Command::new("ovsdb-tool");
        make.arg("create").arg(&db).arg(SCHEMA);
        let made = make.output().expect("ovsdb-tool runs");
        assert!(made.status.success(), "{made:?}");
        let remote = format!("--remote=punix:{}", sock.display());
        let database = db.display().to_string();
        partner.spawn(&["ovsdb-server", &database, &remote]);
        wait_for("the partner's database", || sock.exists());
        partner.vsctl("--no-wait init");
        let socket = format!("unix:{}", sock.display());
        partner.spawn(&["ovs-vswitchd", &socket]);
        partner.vsctl(&format!(
            "add-br br -- set bridge br datapath_type=netdev -- add-bond br bond0 eth0 eth1 -- set \
             port bond0 lacp={lacp} other_config:lacp-time=fast bond_mode=balance-tcp -- add-port \
             br srv -- set interface srv type=internal"
        ));
        for command in [
            "ethtool -K srv tx off",
            "ip link set srv up",
            &format!("ip addr add {SERVER}/24 dev srv"),
        ] {
            lab.must(1, command);
        }
        partner
    }

    fn words(&self) -> Vec<String> {
        let dir = self.dir.path().display();
        let variables = ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"];
        let mut words = vec!["env".to_owned()];
        words.extend(variables.iter().map(|name| format!("{name}={dir}")));
        words
    }

    fn spawn(&mut self, program: &[&str]) {
        let mut command = Command::new(AUSTER);
        command.args(["lab", "exec", &self.lab.id, "h1", "--"]);
        command.args(self.words()).args(program);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(command.spawn().expect("it starts"));
    }

    fn vsctl(&self, words: &str) {
        let sock = self.dir.path().join("db.sock");
        let command = format!(
            "ovs-vsctl --timeout=60 --db=unix:{} {words}",
            sock.display()
        );
        self.lab.must(1, &command);
    }

    /// The partner's view of the bond.
    fn shown(&self) -> String {
        let words = self.words().join(" ");
        let pid = self.dir.path().join("ovs-vswitchd.*.ctl");
        let command = format!("{words} ovs-appctl -t {} lacp/show bond0", pid.display());
        self.lab.must(1, &command)
    }
}

fn ping(lab: &Lab, host: u32, words: &str) -> Child {
    let line = format!("ping {words} {SERVER}");
    let mut command = Command::new(AUSTER);
    command.args(["lab", "exec", &lab.id, &format!("h{host}"), "--"]);
    command.args(["sh", "-c", &line]).stdout(Stdio::piped());
    command.spawn().expect("ping starts")
}

/// The number of answered probes. No probe may be answered twice.
fn answered(output: &Output) -> usize {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("DUP!"), "a frame came twice: {text}");
    text.lines().filter(|line| line.contains(" time=")).count()
}

fn python(lab: &Lab, host: u32, program: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(AUSTER);
    command.args(["lab", "exec", &lab.id, &format!("h{host}"), "--", "python3"]);
    command.arg(program).args(words).stdout(Stdio::piped());
    command.spawn().expect("the program starts")
}

/// Checks that each broadcast of a host arrives once behind the bond.
fn check_broadcasts(lab: &Lab, dir: &Path) {
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (receiver, sender) = (write("receiver.py", RECEIVER), write("sender.py", SENDER));
    let ready = dir.join("ready");
    let (ready_text, count) = (ready.display().to_string(), BROADCASTS.to_string());
    let receiver = python(lab, 1, &receiver, &[&ready_text, &count]);
    wait_for("the receiver", || ready.exists());
    let sent = python(lab, 4, &sender, &[&count]).wait();
    assert!(sent.unwrap().success());
    let output = receiver.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts: Vec<usize> = text.split_whitespace().flat_map(str::parse).collect();
    assert_eq!(counts, [BROADCASTS; 2], "each broadcast once");
}

/// Fails a link of the server, and checks that a host reaches the server over the other link.
fn check_failover(lab: &Lab, host: u32, link: &str) {
    lab.must(1, &format!("ip link set {link} down"));
    wait_for(&format!("h{host} without {link}"), || answers(lab, host));
    lab.must(1, &format!("ip link set {link} up"));
}

/// Whether the server answers a host. No answer may arrive twice.
fn answers(lab: &Lab, host: u32) -> bool {
    let ping = ping(lab, host, "-c 3 -i 0.1 -W 1").wait_with_output();
    answered(&ping.unwrap()) == 3
}

#[test]
fn a_bond_of_open_vswitch_is_one_port_that_survives_a_link() {
    for (own, partner) in [("active", "passive"), ("passive", "active")] {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("auster.toml");
        let config =
            format!("[[bond]]\nname = \"server\"\nports = [\"1:1\", \"1:2\"]\nlacp = \"{own}\"\n");
        fs::write(&file, config).unwrap();
        let path = file.display().to_string();
        let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
        let at = controller.listening("ptcp").to_string();
        let controller_at = format!("tcp:{at}");
        let lab = Lab::up(&["linear,2", "--hosts", "3", "--controller", &controller_at]);
        for host in [3, 4] {
            lab.must(host, "ip addr flush dev eth0");
            lab.must(host, &format!("ip addr add 10.9.0.{host}/24 dev eth0"));
        }
        let partner = Partner::start(&lab, partner);
        controller.wait_for("bond server at 0000000000000001:1: ports 1, 2");
        for host in [3, 4] {
            wait_for("the server answers", || answers(&lab, host));
        }
        let shown = partner.shown();
        let collects = shown.matches("collecting distributing");
        assert!(collects.count() >= 4, "both ends of both ports: {shown}");
        check_broadcasts(&lab, dir.path());
        for (host, link) in [(4, "eth0"), (3, "eth1"), (4, "eth1"), (3, "eth0")] {
            check_failover(&lab, host, link);
            wait_for("both ports are used again", || {
                partner.shown().matches("collecting distributing").count() >= 4
            });
        }
        drop(partner);
        assert!(lab.down().status.success());
    }
}
