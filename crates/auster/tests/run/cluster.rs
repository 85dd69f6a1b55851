//! Three members of a cluster at one real Open vSwitch, with a real etcd: the switch has one
//! master, and each broadcast arrives once, whoever is killed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::etcd_server::{Etcd, Options};
use super::faults::Between;
use super::guard::broadcast;
use super::intent::{eventually, get, metric};
use super::ovs::Ovs;
use super::ports::free_port;
use super::{Auster, PATIENCE};

const DPID: &str = "00000000000000c0";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Whether a member serves the switch, and how often it has taken it over and yielded it.
type Term = (bool, u64, u64);

pub struct Members {
    dir: TempDir,
    pub etcd: Etcd,
    pub running: Vec<Option<Auster>>,
    /// The address of each member's API.
    pub apis: Vec<SocketAddr>,
    /// The ports on which each member listens for switches and for the others. A restart keeps
    /// them.
    ports: Vec<u16>,
    bells: Vec<u16>,
    /// The port at which the others dial each member, and the one at which each member dials etcd.
    dialled: Vec<u16>,
    etcd_ports: Vec<u16>,
    pub names: [&'static str; 3],
    /// Relays between the members, and between them and etcd.
    pub between: Between,
    pub ovs: Ovs,
}

/// Differences from most tests.
#[derive(Default)]
pub struct Setup {
    /// The member that announces an address at which nobody listens.
    pub deaf: Option<usize>,
    /// Whether faults can be set between members, and between members and etcd.
    pub has_faults: bool,
    pub etcd: Options,
}

impl Members {
    /// Starts all members, with a bridge that dials each of them.
    pub fn start() -> Members {
        Members::start_with(&Setup::default())
    }

    pub fn start_with(setup: &Setup) -> Members {
        let (etcd, between) = (Etcd::start(&setup.etcd), Between::default());
        let bells: Vec<u16> = NAMES.iter().map(|_| free_port()).collect();
        let at: SocketAddr = etcd.endpoints()[0].parse().unwrap();
        let mut dialled = bells.clone();
        let mut etcd_ports = vec![at.port(); NAMES.len()];
        if setup.has_faults {
            for (n, name) in NAMES.iter().enumerate() {
                let bell = SocketAddr::from(([127, 0, 0, 1], bells[n]));
                dialled[n] = between.members(bell, name);
                etcd_ports[n] = between.etcd(at, name);
            }
        }
        if let Some(deaf) = setup.deaf {
            dialled[deaf] = 1;
        }
        let mut members = Members {
            dir: tempfile::tempdir().unwrap(),
            etcd,
            running: Vec::new(),
            apis: Vec::new(),
            ports: Vec::new(),
            bells,
            dialled,
            etcd_ports,
            names: NAMES,
            between,
            ovs: Ovs::start(),
        };
        for n in 0..NAMES.len() {
            let auster = Auster::start(&["--config", &members.config(n, 0)]);
            members.ports.push(auster.port());
            members.apis.push(auster.api());
            members.running.push(Some(auster));
        }
        let targets = members.ports.iter();
        let targets: Vec<String> = targets.map(|p| format!("tcp:127.0.0.1:{p}")).collect();
        let ovs = &members.ovs;
        ovs.add_bridge("br0", DPID, "OpenFlow13", &targets[0]);
        for port in ["p1", "p2"] {
            ovs.add_captured_port(port);
        }
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        ovs.vsctl(&[&["set-controller", "br0"], &targets[..]].concat());
        members
    }

    /// The configuration of a member that listens for switches on `port`.
    fn config(&self, member: usize, port: u16) -> String {
        let (name, bell) = (self.names[member], self.bells[member]);
        let dialled = self.dialled[member];
        let mut endpoint: SocketAddr = self.etcd.endpoints()[0].parse().unwrap();
        if self.etcd_ports[member] != endpoint.port() {
            endpoint = SocketAddr::from(([127, 0, 0, 1], self.etcd_ports[member]));
        }
        let text = format!(
            "listen = \"ptcp:{port}:127.0.0.1\"\n\
             api = \"0\"\n\
             [cluster]\n\
             etcd = [\"http://{endpoint}\"]\n\
             name = \"{name}\"\n\
             listen = \"ptcp:{bell}:127.0.0.1\"\n\
             address = \"tcp:127.0.0.1:{dialled}\"\n\
             state = \"state\"\n"
        );
        let file = self.file(member);
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    /// The path of a member's configuration file.
    pub fn file(&self, member: usize) -> PathBuf {
        let name = self.names[member];
        self.dir.path().join(format!("{name}.toml"))
    }

    pub fn restart(&mut self, member: usize) {
        let config = self.config(member, self.ports[member]);
        let auster = Auster::start(&["--config", &config]);
        self.apis[member] = auster.api();
        self.running[member] = Some(auster);
    }

    /// The configuration of a member that is started again.
    pub fn file_of(&self, member: usize) -> String {
        self.config(member, self.ports[member])
    }

    /// Stops a member's process until it is continued.
    pub fn signal(&self, member: usize, signal: Signal) {
        let auster = self.running[member].as_ref().expect("it runs");
        kill(Pid::from_raw(auster.child.id().cast_signed()), signal).unwrap();
    }

    /// The members that report that they serve the switch. A stopped member reports nothing.
    pub fn serving(&self) -> Vec<usize> {
        let terms = self.terms();
        (0..terms.len()).filter(|n| terms[*n].0).collect()
    }

    /// The order of members that etcd has.
    pub fn order(&self) -> Vec<String> {
        let key = ["get", "/auster/v1/own/0", "--print-value-only"];
        let own: Value = serde_json::from_str(&self.etcd.ctl(&key)).unwrap_or_default();
        let order = own["order"].as_array().cloned().unwrap_or_default();
        order
            .iter()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    }

    pub fn end(&mut self, member: usize, signal: Signal) -> Option<i32> {
        let mut auster = self.running[member].take().expect("it runs");
        auster.end(signal)
    }

    /// The role that the switch gives each member: `master`, `slave`, `other`, or nothing.
    fn roles(&self) -> Vec<String> {
        let listed = self.ovs.asked(&[
            "--format=csv",
            "--no-heading",
            "--columns=target,role",
            "list",
            "controller",
        ]);
        let role = |port: &u16| {
            let line = listed
                .lines()
                .find(|line| line.contains(&format!(":{port}")));
            let role = line.and_then(|line| line.rsplit(',').next());
            role.unwrap_or_default().trim_matches('"').to_owned()
        };
        self.ports.iter().map(role).collect()
    }

    /// Counts broadcasts once the members have settled: each arrives once. Returns the master. If
    /// the role changed hands meanwhile, the machine stood still for longer than members wait, and
    /// the counts prove nothing.
    pub fn serve_once(&self, first: u16) -> usize {
        let give_up = Instant::now() + PATIENCE;
        for first in (first..).step_by(100) {
            let before = self.terms();
            let master = self.settled();
            let copies = self.ovs.copies(first);
            let is_master = |(n, term): (usize, &Term)| term.0 == (n == master);
            if self.terms() == before && before.iter().enumerate().all(is_master) {
                assert_eq!(copies, [1; 20]);
                return master;
            }
            assert!(Instant::now() < give_up, "no member stays master");
        }
        unreachable!("numbers without end")
    }

    /// Each member's own report. The switch does not show a role that comes and goes: Open vSwitch
    /// writes roles to its database once in five seconds.
    fn terms(&self) -> Vec<Term> {
        let of = |(running, api): (&Option<Auster>, &SocketAddr)| {
            let count = |name| metric(*api, &format!("auster_cluster_{name}")) as u64;
            let running = running.as_ref().filter(|auster| !auster.is_stopped());
            running.map_or((false, 0, 0), |_| {
                let serves = count("serves") == 1;
                (serves, count("takeovers_total"), count("yields_total"))
            })
        };
        self.running.iter().zip(&self.apis).map(of).collect()
    }

    /// Waits until the switch has another master, a moment after etcd has another order.
    fn wait_for_master(&self, is_it: impl Fn(usize) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_it(self.settled()) {
            assert!(Instant::now() < give_up, "the master stays");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until `count` members have a key. The key of a killed member stays for ten seconds.
    fn wait_for_keys(&self, count: usize) {
        let give_up = Instant::now() + PATIENCE;
        let keys = ["get", "--prefix", "/auster/v1/members/", "--keys-only"];
        while self.etcd.ctl(&keys).split_whitespace().count() != count {
            assert!(Instant::now() < give_up, "{}", self.etcd.ctl(&keys));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until etcd has an order with all members in it, who is running first.
    pub fn wait_for_order(&self) {
        let give_up = Instant::now() + PATIENCE;
        let has_all = |order: &str| {
            self.names
                .iter()
                .zip(&self.running)
                .all(|(name, running)| running.is_none() || order.contains(&format!("\"{name}\"")))
        };
        while !has_all(
            &self
                .etcd
                .ctl(&["get", "/auster/v1/own/0", "--print-value-only"]),
        ) {
            assert!(
                Instant::now() < give_up,
                "a member has no place in the order"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until one running member is master, and the others are slaves; returns the master.
    pub fn settled(&self) -> usize {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let roles = self.roles();
            let of_running = |role: &str| {
                let all = self.running.iter().zip(&roles);
                all.filter(|(running, of)| running.is_some() && *of == role)
                    .count()
            };
            let running = self.running.iter().flatten().count();
            let master = roles.iter().position(|role| role == "master");
            if let Some(master) = master.filter(|n| self.running[*n].is_some())
                && of_running("master") == 1
                && of_running("slave") == running - 1
            {
                return master;
            }
            assert!(Instant::now() < give_up, "not one master: {roles:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn whoever_of_a_cluster_is_killed_one_member_serves_the_switch() {
    let mut members = Members::start();
    let first = members.serve_once(0);

    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let second = members.serve_once(10_000);
    assert_ne!(second, first);

    // The member is back as a standby. A planned end hands over.
    members.restart(first);
    members.wait_for_order();
    let second = members.serve_once(20_000);
    assert_eq!(members.end(second, Signal::SIGTERM), Some(0));
    let third = members.serve_once(30_000);

    // No member needs etcd to take over.
    members.wait_for_order();
    members.etcd.kill(0);
    assert_eq!(members.end(third, Signal::SIGKILL), None);
    members.serve_once(40_000);
}

/// The others hear the member, and it hears nobody. It gets no place, and nobody waits for it.
#[test]
fn a_member_that_nobody_can_dial_gets_no_switches() {
    let mut members = Members::start_with(&Setup {
        deaf: Some(2),
        ..Setup::default()
    });
    let order = || {
        members
            .etcd
            .ctl(&["get", "/auster/v1/own/0", "--print-value-only"])
    };
    eventually("both others have a place", || {
        let order = order();
        order.contains("\"a\"") && order.contains("\"b\"")
    });
    let config = members.config(0, members.ports[0]);
    let mut status = String::new();
    eventually("its key says so", || {
        status = ask(&config, &["status"]).1;
        let mut words = status
            .lines()
            .find(|line| line.starts_with("c "))
            .unwrap_or_default()
            .split_whitespace();
        words.any(|word| word == "no")
    });
    assert!(!order().contains("\"c\""), "{}", order());
    let (code, said) = ask(&config, &["move", "c"]);
    assert_eq!((code, said.lines().count()), (1, 1), "{said}");
    assert!(said.contains("c is not ready"), "{said}");

    let first = members.settled();
    members.etcd.kill(0);
    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let heir = members.settled();
    assert_eq!(heir, 1 - first);

    // Probes, and what is known, without etcd.
    let health = |member: usize, more: &[&str]| {
        let api = members.apis[member].to_string();
        auster(&[&["health", "--api", &api], more].concat())
    };
    let (code, line) = health(heir, &[]);
    assert!(
        code == 0 && line.starts_with("ready: serves the switches"),
        "{line}"
    );
    let (code, line) = health(2, &[]);
    assert!(code == 1 && line.contains("hears too few"), "{line}");
    assert_eq!(health(2, &["--live"]).0, 0);
    let socket = members.running[heir]
        .as_ref()
        .expect("it runs")
        .dir
        .path()
        .join("status");
    let text = std::fs::read_to_string(members.file(heir)).unwrap();
    let text = format!("status = \"{}\"\n{text}", socket.display());
    std::fs::write(members.file(heir), text).unwrap();
    let (code, seen) = ask(&members.file(heir).display().to_string(), &["status"]);
    assert_eq!(code, 0, "{seen}");
    let endpoint = members.etcd.endpoints()[0].to_string();
    assert_eq!(seen.matches(&endpoint).count(), 1, "{seen}");
    let row = |name| {
        let mut rows = seen.lines().map(str::split_whitespace);
        rows.find_map(|mut row| (row.next() == Some(name)).then(|| row.collect::<Vec<_>>()))
    };
    let of_heir = row(NAMES[heir]).expect("a row");
    assert_eq!(of_heir[2], "serves", "{seen}");
    assert_eq!(row("c").expect("a row")[3..], [NAMES[heir]], "{seen}");
    assert_eq!(row(NAMES[first]).expect("a row")[3..], ["nobody"], "{seen}");
}

/// The hosts behind `p1` and `p2`.
const SPEAKS: [u8; 6] = [2, 0, 0, 0, 0, 0x51];
const SILENT: [u8; 6] = [2, 0, 0, 0, 0, 0x52];

/// A host that has sent nothing since a take-over gets the first packet of a pair that never spoke
/// before, and no other host does: the member that takes over knows where the host is.
#[test]
fn a_member_that_takes_over_knows_the_hosts() {
    let mut members = Members::start();
    members.ovs.add_captured_port("p3");
    let first = members.serve_once(0);
    members.wait_for_order();
    let frame = |dst: [u8; 6], src: [u8; 6], text: &[u8]| {
        let mut frame = [&dst[..], &src, &[0x88, 0xb5], text].concat();
        frame.resize(60, 0);
        frame
    };
    let knows = |members: &Members, member: usize| {
        [SPEAKS, SILENT].iter().all(|mac| {
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            get(members.apis[member], &format!("/v1/hosts/{mac}")).status == 200
        })
    };
    eventually("the host is heard", || {
        let hello = frame([0xff; 6], SILENT, b"hello");
        members.ovs.receive("p2", &hello);
        knows(&members, first)
    });
    for member in 0..NAMES.len() {
        eventually("each member knows the hosts", || knows(&members, member));
    }

    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let heir = members.settled();
    let ovs = &members.ovs;
    let mut number = 1000;
    eventually("broadcasts go out of the third port", || {
        number += 1;
        ovs.receive("p1", &broadcast(number));
        ovs.sent_by("p3", &broadcast(number)) > 0
    });
    let packet = frame(SILENT, SPEAKS, b"first");
    ovs.receive("p1", &packet);
    eventually("it comes", || ovs.sent_by("p2", &packet) > 0);
    // Packets leave one port in their order.
    ovs.receive("p1", &broadcast(number + 1));
    eventually("the broadcast comes", || {
        ovs.sent_by("p3", &broadcast(number + 1)) > 0
    });
    assert_eq!(ovs.sent_by("p3", &packet), 0, "it was flooded");
    assert_eq!(ovs.sent_by("p2", &packet), 1);
    assert!(knows(&members, heir));
}

/// Two more bridges make a ring. The link that packets take fails while all of etcd is down:
/// packets take the other path, and hosts that nobody knew begin to speak.
#[test]
fn a_link_that_fails_while_etcd_is_down_has_another_way() {
    let mut members = Members::start();
    let ovs = &members.ovs;
    let targets = members.ports.iter();
    let targets: Vec<String> = targets.map(|p| format!("tcp:127.0.0.1:{p}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    for (bridge, dpid) in [("br1", "00000000000000c1"), ("br2", "00000000000000c2")] {
        ovs.add_bridge(bridge, dpid, "OpenFlow13", targets[0]);
        ovs.vsctl(&[&["set-controller", bridge], &targets[..]].concat());
    }
    for (bridge, port, peer) in [
        ("br0", "to1", "from0"),
        ("br1", "from0", "to1"),
        ("br1", "to2", "from1"),
        ("br2", "from1", "to2"),
        ("br2", "to0", "from2"),
        ("br0", "from2", "to0"),
    ] {
        let peer = format!("options:peer={peer}");
        let make = ["add-port", bridge, port, "--", "set", "interface", port];
        ovs.vsctl(&[&make[..], &["type=patch", &peer]].concat());
    }
    let capture = format!("options:tx_pcap={}", ovs.path("far.pcap").display());
    let make = ["add-port", "br1", "far", "--", "set", "interface", "far"];
    ovs.vsctl(&[&make[..], &["type=dummy", &capture]].concat());
    let links = |members: &Members| {
        let known = members.apis.iter().map(|api| {
            let answer = get(*api, "/v1/links");
            answer.body["links"].as_array().map_or(0, Vec::len)
        });
        known.max().unwrap_or_default()
    };
    eventually("three links", || links(&members) == 3);
    members.wait_for_order();
    let mut number = 0u16;
    let mut comes = |members: &Members, src: u8| {
        let far = [2, 0, 0, 0, 0, 0x61];
        let frame = |dst: [u8; 6], src: u8, number: u16| {
            let number = number.to_be_bytes();
            let mut frame = [&dst[..], &[2, 0, 0, 0, 0, src], &[0x88, 0xb5], &number].concat();
            frame.resize(60, 0);
            frame
        };
        members.ovs.receive("far", &frame([0xff; 6], 0x61, 0));
        let first = number + 1;
        let copies = |n: u16| members.ovs.sent_by("far", &frame(far, src, n));
        // Any of these packets, however late: a packet may take longer than one check.
        eventually("a packet comes", || {
            number += 1;
            members.ovs.receive("p1", &frame(far, src, number));
            (first..=number).any(|n| copies(n) > 0)
        });
        assert!((first..=number).all(|n| copies(n) <= 1), "once");
    };
    comes(&members, 0x51);

    members.etcd.kill(0);
    let ovs = &members.ovs;
    ovs.vsctl(&["del-port", "br0", "to1", "--", "del-port", "br1", "from0"]);
    comes(&members, 0x51);
    comes(&members, 0x52);
    eventually("the link is gone", || links(&members) == 2);
}

/// Runs the command of an operator. Returns its exit code and its lines.
pub fn ask(config: &str, words: &[&str]) -> (i32, String) {
    auster(&[&["cluster"], words, &["--config", config]].concat())
}

fn auster(words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
    let output = command.args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let code = output.status.code().expect("it ends by itself");
    (code, String::from_utf8(said).unwrap())
}

#[test]
fn an_operator_moves_the_switches_and_drains_a_member() {
    let mut members = Members::start();
    let first = members.serve_once(0);
    members.wait_for_order();
    let config = members.config(0, members.ports[0]);
    let [second, third] = [1, 2].map(|n| (first + n) % NAMES.len());
    let (b, c) = (NAMES[second], NAMES[third]);
    let done = |text: String| (0, text + "\n");

    let moved = ask(&config, &["move", b]);
    assert_eq!(moved, done(format!("{b} serves all switches")));
    members.wait_for_master(|n| n == second);
    for n in [first, second, third] {
        let status = members.running[n].as_ref().expect("it runs").status();
        let cluster = &status["cluster"];
        assert_eq!(cluster["name"], NAMES[n]);
        assert_eq!(cluster["serves"], n == second, "{cluster}");
        assert_eq!(cluster["served_by"], b, "{cluster}");
    }
    assert_eq!(members.serve_once(10_000), second);
    let again = ask(&config, &["move", b]);
    assert_eq!(again, done(format!("{b} serves all switches already")));
    let nobody = ask(&config, &["move", "z"]);
    let text = "auster: no member is named z: the members are a, b, c\n";
    assert_eq!(nobody, (2, text.to_owned()));

    let (code, said) = ask(&config, &["drain", b]);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with(&format!("{b} is drained: ")), "{said}");
    members.wait_for_master(|n| n != second);
    assert_ne!(members.serve_once(20_000), second);

    // After a restart the member is still drained, and gets no switch by a move or as the last one.
    assert_eq!(members.end(second, Signal::SIGTERM), Some(0));
    members.restart(second);
    let (code, said) = ask(&config, &["move", b]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("is drained: undo that first"), "{said}");
    for other in [first, third] {
        members.end(other, Signal::SIGKILL);
    }
    let (code, said) = ask(&config, &["drain", b]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(members.roles()[second], "slave");

    let undone = ask(&config, &["drain", b, "--undo"]);
    assert_eq!(undone, done(format!("{b} may serve switches again")));
    assert_eq!(members.serve_once(30_000), second);
    members.wait_for_keys(1);
    let (code, said) = ask(&config, &["drain", b]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("no other member is ready"), "{said}");

    members.restart(third);
    members.wait_for_order();
    members.etcd.kill(0);
    let (code, said) = ask(&config, &["move", c]);
    assert_eq!(code, 4, "{said}");
    assert!(said.starts_with("auster: etcd: "), "{said}");
}

/// A process that ends with the test.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The steps of `docs/run-cluster.md`, on one machine: certificates of `auster pki` for etcd, the
/// members and the switch.
#[test]
fn the_manuals_cluster_with_certificates_comes_up_and_hands_over() {
    let dir = tempfile::tempdir().unwrap();
    let make = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        let command = command.arg("pki").args(arguments.split(' '));
        let output = command.current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
    };
    make("init");
    for name in ["a", "b", "etcd1"] {
        make(&format!(
            "controller {name} --host localhost --host 127.0.0.1"
        ));
    }
    make(&format!("switch s1 --dpid {DPID}"));
    let path = |name: &str| dir.path().join(name).display().to_string();

    let clients = format!("https://127.0.0.1:{}", free_port());
    let peers = format!("http://127.0.0.1:{}", free_port());
    let flags = [
        ("name", "m0"),
        ("data-dir", &path("etcd")),
        ("listen-client-urls", &clients),
        ("advertise-client-urls", &clients),
        ("listen-peer-urls", &peers),
        ("initial-advertise-peer-urls", &peers),
        ("initial-cluster", &format!("m0={peers}")),
        ("cert-file", &path("etcd1-cert.pem")),
        ("key-file", &path("etcd1-privkey.pem")),
        ("client-cert-auth", "true"),
        ("trusted-ca-file", &path("pki/controllerca/cacert.pem")),
    ];
    let flags = flags.map(|(flag, value)| format!("--{flag}={value}"));
    let mut command = Command::new("etcd");
    let command = command.args(flags).stdout(Stdio::null());
    let etcd = command.stderr(Stdio::null()).spawn();
    let _etcd = Server(etcd.unwrap_or_else(|e| panic!("etcd: {e}: run scripts/setup")));

    let mut members = ["a", "b"].map(|name| {
        let text = format!(
            r#"
listen = "pssl:0:127.0.0.1"
[tls]
private_key = "{name}-privkey.pem"
certificate = "{name}-cert.pem"
ca = "pki/switchca/cacert.pem"
[cluster]
etcd = ["{clients}"]
name = "{name}"
listen = "pssl:0:127.0.0.1"
ca = "pki/controllerca/cacert.pem"
state = "state"
"#
        );
        std::fs::write(path(&format!("{name}.toml")), text).unwrap();
        Auster::start(&["--config", &path(&format!("{name}.toml"))])
    });
    // The check reports that other members would refuse this certificate.
    for (certificate, problem) in [("b", "the certificate is \"b\"'s"), ("s1", "is a switch's")] {
        let text = std::fs::read_to_string(path("a.toml")).unwrap();
        let text = text.replace("\"a-", &format!("\"{certificate}-"));
        std::fs::write(path("mistaken.toml"), text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        let command = command.args(["run", "--check", "--config", &path("mistaken.toml")]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(problem), "{said}");
    }
    let targets = [0, 1].map(|n: usize| format!("ssl:127.0.0.1:{}", members[n].port()));

    let ovs = Ovs::start();
    let certificates = [
        "s1-privkey.pem",
        "s1-cert.pem",
        "pki/controllerca/cacert.pem",
    ];
    let certificates = certificates.map(path);
    let [key, certificate, ca] = &certificates;
    ovs.vsctl(&["set-ssl", key, certificate, ca]);
    ovs.add_bridge("br0", DPID, "OpenFlow13", &targets[0]);
    for port in ["p1", "p2"] {
        ovs.add_captured_port(port);
    }
    ovs.vsctl(&["set-controller", "br0", &targets[0], &targets[1]]);

    // The switch may list an ended member for a while.
    let master = |of: &[usize]| {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let listed = ["--format=csv", "--no-heading", "--columns=target,role"];
            let listed = ovs.asked(&[&listed[..], &["list", "controller"]].concat());
            let is_master = |n: &&usize| {
                let mut lines = listed.lines().filter(|line| line.contains(&targets[**n]));
                lines.any(|line| line.contains(",master"))
            };
            if let [one] = of.iter().filter(is_master).collect::<Vec<_>>()[..] {
                return *one;
            }
            assert!(Instant::now() < give_up, "not one master:\n{listed}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let first = master(&[0, 1]);
    ovs.copies(0);
    // The other member has a place, and so can take over.
    wait_for_place(&path("a.toml"), ["a", "b"][1 - first]);
    assert_eq!(members[first].end(Signal::SIGTERM), Some(0));
    master(&[1 - first]);
    assert_eq!(ovs.copies(1000), [1; 20]);
}

/// Asks as the manual does until a member is in the order.
fn wait_for_place(config: &str, member: &str) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        let command = command.args(["cluster", "status", "--json", "--config", config]);
        let output = command.output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let order = status["order"].as_array().cloned().unwrap_or_default();
        if order.iter().any(|place| place == member) {
            return;
        }
        assert!(
            Instant::now() < give_up,
            "{member} has no place: {output:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
