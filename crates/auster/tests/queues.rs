//! `auster queues` on real interfaces, each test in namespaces of its own, and on a real
//! ovsdb-server.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::lab::{AUSTER, Lab};
use common::run;
use serde_json::Value;
use tempfile::TempDir;

/// The published Example 2.
const POLICY: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scenarios/pso-in-band.policy"
);
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A veth pair from one namespace of this test's own to another, with addresses of both families.
struct Wire {
    names: [String; 2],
}

impl Wire {
    fn new() -> Wire {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("autq{}-{number}{end}", std::process::id()));
        let wire = Wire { names };
        let [a, b] = &wire.names;
        run("ip", &["netns", "add", a]);
        run("ip", &["netns", "add", b]);
        let add = format!("link add q0 type veth peer name q0 netns {b}");
        run("ip", &words(&["-n", a], &add));
        for (n, name) in wire.names.iter().enumerate() {
            for line in [
                format!("addr add 10.9.0.{}/24 dev q0", n + 1),
                format!("addr add fd09::{}/64 dev q0 nodad", n + 1),
                "link set q0 up".to_string(),
            ] {
                run("ip", &words(&["-n", name], &line));
            }
        }
        wire
    }

    /// Runs `auster queues` beside the interface. It can reach no database except a named one.
    fn queues(&self, line: &str) -> Output {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0]]);
        command.args(["unshare", "-m", "sh", "-c"]);
        command.arg(format!(
            "mount -t tmpfs tmpfs /run && exec {AUSTER} queues {line}"
        ));
        command.output().unwrap()
    }

    /// The output of a successful command.
    fn done(&self, line: &str) -> String {
        let output = self.queues(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Exit code and message of a command that refuses.
    fn refused(&self, line: &str) -> (Option<i32>, String) {
        let output = self.queues(line);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), error)
    }

    fn set(&self, rate: &str) -> String {
        self.done(&format!("set --port q0 --rate {rate} --policy {POLICY}"))
    }

    fn state(&self) -> Value {
        let text = self.done("show --port q0 --json");
        serde_json::from_str(&text).unwrap()
    }

    /// Packets so far in the queue of a code point.
    fn packets(&self, queue: usize) -> u64 {
        let state = self.state();
        state["kernel"]["queues"][queue]["packets"]
            .as_u64()
            .unwrap()
    }

    fn tc(&self, line: &str) -> String {
        run("tc", &words(&["-n", &self.names[0]], line))
    }

    fn ping(&self, to: &str, tos: u8, count: u32) {
        let line = format!(
            "netns exec {} ping -c {count} -i 0.01 -W 2 -Q {tos} {to}",
            self.names[0]
        );
        run("ip", &words(&[], &line));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn words<'a>(before: &[&'a str], line: &'a str) -> Vec<&'a str> {
    before.iter().copied().chain(line.split(' ')).collect()
}

#[test]
fn queues_are_made_once_shown_and_removed_with_nothing_left() {
    let wire = Wire::new();
    let before = wire.tc("qdisc show dev q0");
    assert!(wire.set("50mbit").contains("8 queues, made, by kernel HTB"));
    let classes = wire.tc("class show dev q0");
    let filters = wire.tc("filter show dev q0 parent a057:");
    assert_eq!(classes.matches("class htb").count(), 9, "{classes}");

    let state = wire.state();
    assert_eq!(state["way"], "kernel");
    let queues = state["kernel"]["queues"].as_array().unwrap();
    let of = |key: &str| -> Vec<String> { queues.iter().map(|q| q[key].to_string()).collect() };
    assert_eq!(of("dscp")[..3], ["\"56-63\"", "\"48-55\"", "\"40-47\""]);
    assert_eq!(of("dscp")[7], "\"0-7\"");
    assert_eq!(of("priority"), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(of("is_default")[6..], ["false", "true"]);
    let sure: u64 = queues
        .iter()
        .map(|q| q["min_rate_bps"].as_u64().unwrap())
        .sum();
    assert!((49_000_000..=50_000_000).contains(&sure), "{sure}");
    let held: u64 = queues
        .iter()
        .map(|q| q["packets_max"].as_u64().unwrap())
        .sum();
    assert!(held * 2304 < 212_992, "{held} full frames in all queues");

    // Counters would be gone if anything had been made anew.
    wire.ping("10.9.0.2", 0xc0, 3);
    let count = wire.packets(1);
    assert!(wire.set("50mbit").contains("as they were"));
    assert_eq!(wire.packets(1), count);
    assert_eq!(wire.tc("class show dev q0"), classes);
    assert_eq!(wire.tc("filter show dev q0 parent a057:"), filters);

    assert!(wire.set("20mbit").contains("made anew"));
    assert_eq!(wire.state()["kernel"]["rate_bps"], 20_000_000);
    // A filter was removed, so the queues are not as they were.
    wire.tc("filter del dev q0 parent a057: pref 3");
    assert!(wire.set("20mbit").contains("made anew"));

    assert!(wire.done("clear --port q0").contains("removed"));
    assert!(
        wire.done("clear --port q0")
            .contains("no queues of auster's")
    );
    assert_eq!(wire.tc("qdisc show dev q0"), before);
    assert_eq!(wire.state()["way"], "none");
}

/// Every code point that names a class selector, in both families; ARP and neighbour discovery are
/// in the last class of control, and not with data.
#[test]
fn packets_land_in_the_class_of_their_code_point() {
    let wire = Wire::new();
    wire.set("50mbit");
    for address in ["10.9.0.2", "fd09::2"] {
        for queue in 0..8 {
            let before = wire.packets(queue);
            let dscp = (7 - queue as u8) * 8;
            wire.ping(address, dscp << 2, 5);
            let landed = wire.packets(queue) - before;
            assert!(
                landed >= 5,
                "code point {dscp} to {address}: {landed} of 5 in queue {queue}"
            );
        }
        // A code point between the selectors, and ECN bits beside it.
        let before = wire.packets(2);
        wire.ping(address, 46 << 2 | 1, 5);
        assert!(wire.packets(2) - before >= 5, "EF to {address}");
    }
    run("ip", &words(&["-n", &wire.names[0]], "neigh flush dev q0"));
    // For an address that no host has, the kernel sends questions and nothing else. Its other
    // packets meanwhile (router solicitations, multicast reports) are data.
    for address in ["10.9.0.77", "fd09::77"] {
        let before = wire.packets(2);
        let line = format!("netns exec {} ping -c 1 -W 1 {address}", wire.names[0]);
        let _ = Command::new("ip").args(line.split(' ')).output();
        assert!(wire.packets(2) > before, "the questions for {address}");
    }
}

#[test]
fn what_auster_did_not_make_it_leaves_alone_and_says_how_to_remove() {
    let wire = Wire::new();
    wire.tc("qdisc add dev q0 root tbf rate 10mbit burst 15k latency 20ms");
    let foreign = wire.tc("qdisc show dev q0");
    let set = format!("set --port q0 --rate 50mbit --policy {POLICY}");
    for line in [set.as_str(), "clear --port q0"] {
        let (code, said) = wire.refused(line);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("tbf qdisc") && said.contains("tc qdisc del dev q0 root"),
            "{said}"
        );
        // Doubts about the map are logged before it.
        let failures = said.lines().filter(|line| line.starts_with("auster: "));
        assert_eq!(failures.count(), 1, "{said}");
    }
    assert_eq!(wire.tc("qdisc show dev q0"), foreign);
}

#[test]
fn wrong_input_is_one_line_that_says_what_to_do() {
    let wire = Wire::new();
    let policy = tempfile::NamedTempFile::new().unwrap();
    let by_queue = "Rule #1: traffic_type=1, action=queue_id:0\nDefault: action=queue_id:1\n";
    std::fs::write(policy.path(), by_queue).unwrap();
    let by_queue = policy.path().display();
    for (line, code, part) in [
        (
            format!("set --port q9 --rate 50mbit --policy {POLICY}"),
            2,
            "no interface q9 here",
        ),
        (
            format!("set --port q0 --rate 50 --policy {POLICY}"),
            2,
            "such as 100mbit",
        ),
        (
            format!("set --port q0 --rate 50bit --policy {POLICY}"),
            2,
            "below 128kbit",
        ),
        (
            format!("set --port q0 --rate 50mbit --policy {by_queue}"),
            2,
            "action=dscp:CS6",
        ),
        (
            "set --port q0 --rate 50mbit --policy missing".into(),
            5,
            "missing: No such file",
        ),
        ("show --port q9".into(), 2, "no interface q9 here"),
        ("show --port q0 --db unix:missing".into(), 4, "missing"),
        (format!("flows --policy {POLICY}"), 2, "--edge PORT"),
        (
            format!("flows --policy {POLICY} --tunnel 3 --controller 10.0.0.1"),
            2,
            "two ports of the bridge",
        ),
        (
            format!("flows --policy {POLICY} --tunnel 3:2 --controller here"),
            2,
            "ADDRESS or ADDRESS:PORT",
        ),
    ] {
        let (found, said) = wire.refused(&line);
        assert_eq!(found, Some(code), "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
    // Nothing was started.
    assert_eq!(wire.state()["way"], "none");
}

#[test]
fn without_tc_and_without_root_it_says_so() {
    let set = [
        "queues", "set", "--port", "lo", "--rate", "50mbit", "--policy", POLICY,
    ];
    let output = Command::new(AUSTER)
        .args(set)
        .env("PATH", "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("apt-get install iproute2"), "{said}");
}

/// A database without Open vSwitch: the test looks only at the rows that Open vSwitch would get.
struct Database {
    dir: TempDir,
    server: Child,
}

impl Database {
    fn start() -> Database {
        let dir = TempDir::new().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        run("ovsdb-tool", &["create", &path("conf.db"), SCHEMA]);
        let server = Command::new("ovsdb-server")
            .arg(path("conf.db"))
            .arg(format!("--remote=punix:{}", path("sock")))
            .args([format!("--unixctl={}", path("ctl")), "-vconsole:off".into()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let database = Database { dir, server };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !database.socket().exists() {
            assert!(Instant::now() < deadline, "ovsdb-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        database.vsctl("init");
        database
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn vsctl(&self, line: &str) -> String {
        let db = format!("--db=unix:{}", self.socket().display());
        run("ovs-vsctl", &words(&[&db, "--no-wait"], line))
    }

    fn count(&self, table: &str) -> usize {
        let text = self.vsctl(&format!(
            "--columns=_uuid --format=csv --no-headings list {table}"
        ));
        text.lines().filter(|line| !line.is_empty()).count()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// On the kernel's datapath Open vSwitch makes the queues, from records. Records of others stay.
#[test]
fn where_set_queue_is_honoured_open_vswitch_is_given_records() {
    let (wire, database) = (Wire::new(), Database::start());
    database.vsctl("add-br br0 -- add-port br0 q0");
    database.vsctl("create qos type=linux-hfsc external_ids:owner=somebody");
    database.vsctl("create queue other_config:max-rate=5 external_ids:owner=somebody");
    let db = format!("--db unix:{}", database.socket().display());
    let set = format!("set --port q0 --rate 50mbit --policy {POLICY} {db}");
    let said = wire.done(&set);
    assert!(
        said.contains("8 queues, made, by Open vSwitch, chosen by set_queue"),
        "{said}"
    );
    assert_eq!(wire.state()["way"], "none", "the kernel was not touched");

    assert_eq!((database.count("qos"), database.count("queue")), (2, 9));
    let qos = database.vsctl("get port q0 qos").trim().to_string();
    assert_eq!(database.vsctl("get port q0 qos").trim(), qos);
    assert_eq!(
        database.vsctl(&format!("get qos {qos} type")).trim(),
        "linux-htb"
    );
    let link = database.vsctl(&format!("get qos {qos} other_config:max-rate"));
    assert_eq!(link.trim(), "\"50000000\"");
    let option = |number: u32, key: &str| {
        let queue = database.vsctl(&format!("get qos {qos} queues:{number}"));
        let line = format!("get queue {} other_config:{key}", queue.trim());
        database.vsctl(&line).trim().trim_matches('"').to_string()
    };
    // Packets that no flow has marked are in Open vSwitch's queue 0, so that queue is the least
    // urgent.
    assert_eq!([option(0, "priority"), option(1, "priority")], ["7", "0"]);
    assert_eq!(option(1, "max-rate"), "50000000");
    let shown: Value =
        serde_json::from_str(&wire.done(&format!("show --port q0 --json {db}"))).unwrap();
    assert_eq!(
        (&shown["way"], &shown["ovsdb"][1]["set_queue"]),
        (&"ovsdb".into(), &1.into())
    );

    let said = wire.done(&set);
    assert!(said.contains("as they were"), "{said}");
    assert_eq!(database.vsctl("get port q0 qos").trim(), qos);
    let said = wire.done(&set.replace("50mbit", "20mbit"));
    assert!(said.contains("made anew"), "{said}");
    assert_eq!(
        (database.count("qos"), database.count("queue")),
        (2, 9),
        "the old ones are gone"
    );

    assert!(
        wire.done(&format!("clear --port q0 {db}"))
            .contains("removed")
    );
    assert_eq!(
        (database.count("qos"), database.count("queue")),
        (1, 1),
        "somebody's are not"
    );
    assert_eq!(database.vsctl("get port q0 qos").trim(), "[]");
    assert!(
        wire.done(&format!("clear --port q0 {db}"))
            .contains("no queues of auster's")
    );

    database.vsctl("set port q0 qos=@q -- --id=@q create qos type=linux-htb");
    let (code, said) = wire.refused(&set);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("ovs-vsctl clear port q0 qos"), "{said}");
    wire.done(&format!("clear --port q0 {db}"));
    assert_eq!(database.count("qos"), 2, "nothing was removed");
}

/// When userspace Open vSwitch takes in a port, it removes queues that it did not make, unless its
/// record says that others manage them.
#[test]
fn on_the_userspace_datapath_the_kernels_queues_outlive_a_port_that_is_taken_in_anew() {
    let lab = Lab::up(&["single,2", "--controller", "none"]);
    let socket = Path::new("/run/auster/labs").join(&lab.id).join("db.sock");
    let db = format!("unix:{}", socket.display());
    let port = "s1-eth1";
    let exec = |line: &str| {
        let output = lab.exec("sw", &line.split(' ').collect::<Vec<_>>());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let set =
        format!("{AUSTER} queues set --port {port} --rate 50mbit --policy {POLICY} --db {db}");
    let said = exec(&set);
    assert!(
        said.contains("by kernel HTB") && said.contains("netdev datapath of s1"),
        "{said}"
    );
    let vsctl = |line: &str| run("ovs-vsctl", &words(&[&format!("--db={db}")], line));
    assert!(vsctl("list qos").contains("linux-noop"));
    // The port is taken in again, with all that Open vSwitch does to a new port.
    vsctl(&format!("set interface {port} type=internal"));
    vsctl(&format!("set interface {port} type=\"\""));
    assert!(exec(&format!("tc qdisc show dev {port}")).contains("htb a057:"));
    assert!(exec(&set).contains("as they were"));
    let clear = format!("{AUSTER} queues clear --port {port} --db {db}");
    assert!(exec(&clear).contains("removed"));
    assert!(!vsctl("list qos").contains("linux-noop"));
    assert!(!exec(&format!("tc qdisc show dev {port}")).contains("htb"));
}

/// A real switch takes the flows that `auster queues flows` prints, and they have the stated
/// effect.
#[test]
fn a_real_switch_takes_the_flows_and_data_loses_the_code_points_of_control() {
    let switch = common::dummy::DummySwitch::start(3);
    let flows = Command::new(AUSTER)
        .args(["queues", "flows", "--policy", POLICY, "--edge", "1"])
        .args(["--tunnel", "2:3", "--controller", "10.0.0.6"])
        .output()
        .unwrap();
    assert!(
        flows.status.success(),
        "{}",
        String::from_utf8_lossy(&flows.stderr)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &flows.stdout).unwrap();
    switch.ofctl("add-flows", &[&file.path().display().to_string()]);
    switch.ofctl("add-flow", &["priority=1,in_port=1,actions=output:3"]);
    let trace = |flow: &str| switch.appctl("ofproto/trace", &["br0", flow]);
    let udp = "udp,nw_src=10.0.0.1,nw_dst=10.0.0.6,udp_src=9,udp_dst=6654";
    for (tos, marked) in [
        (0xc0, true),
        (0xe0, true),
        (0xb8, true),
        (0x28, false),
        (0, false),
    ] {
        let text = trace(&format!("in_port=1,{udp},nw_tos={tos}"));
        let last = text
            .lines()
            .find(|line| line.starts_with("Datapath actions"))
            .unwrap();
        assert_eq!(last.contains("set(ipv4(tos=0"), marked, "{tos}: {text}");
        assert!(text.contains("output:3"), "{text}");
    }
    // The tunnel keeps the code points that its ends wrote, in both directions.
    let text = trace(&format!("in_port=2,{udp},nw_tos=192"));
    assert!(
        text.contains("output:3") && !text.contains("set(ipv4"),
        "{text}"
    );
    let back = "udp,nw_src=10.0.0.6,nw_dst=10.0.0.4,udp_src=6654,udp_dst=9,nw_tos=224";
    let text = trace(&format!("in_port=3,{back}"));
    assert!(
        text.contains("output:2") && !text.contains("set(ipv4"),
        "{text}"
    );
}

const VIDEO: &str = "id=1,min=20mbit,max=30mbit,priority=1,burst=15k,dscp=AF11,dscp=12";
const REST: &str = "id=2,min=20mbit,priority=2,dscp=18";

#[test]
fn stated_queues_are_made_once_and_packets_land_in_them_by_code_point() {
    let wire = Wire::new();
    let stated = format!("set --port q0 --rate 50mbit --queue {VIDEO} --queue {REST}");
    let said = wire.done(&stated);
    assert!(said.contains("3 queues, made, by kernel HTB"), "{said}");
    let state = wire.state();
    let queues = state["kernel"]["queues"].as_array().unwrap();
    let of = |key: &str| -> Vec<String> { queues.iter().map(|q| q[key].to_string()).collect() };
    assert_eq!(of("queue"), ["0", "1", "2"]);
    assert_eq!(of("dscp")[1..], ["\"10,12\"", "\"18\""]);
    assert_eq!(of("min_rate_bps"), ["500000", "20000000", "20000000"]);
    assert_eq!(of("max_rate_bps"), ["50000000", "30000000", "50000000"]);
    assert_eq!(of("priority"), ["2", "1", "2"]);
    assert_eq!(of("is_default"), ["true", "false", "false"]);
    for (address, dscp, queue) in [
        ("10.9.0.2", 10, 1),
        ("fd09::2", 12, 1),
        ("10.9.0.2", 18, 2),
        ("10.9.0.2", 11, 0),
        ("fd09::2", 0, 0),
    ] {
        let before = wire.packets(queue);
        wire.ping(address, dscp << 2, 5);
        let landed = wire.packets(queue) - before;
        assert!(landed >= 5, "{dscp} to {address}: {landed} of 5");
    }
    // Counters would be gone if anything had been made anew.
    let count = wire.packets(2);
    assert!(wire.done(&stated).contains("as they were"));
    assert_eq!(wire.packets(2), count);
    // The same, from a file.
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = "rate = '50mbit'\n\
                [[queue]]\nid = 1\nmin = '20mbit'\nmax = '30mbit'\npriority = 1\nburst = '15k'\n\
                dscp = ['AF11', 12]\n\
                [[queue]]\nid = 2\nmin = '20mbit'\npriority = 2\ndscp = 18\n";
    std::fs::write(file.path(), text).unwrap();
    let by_file = format!("set --port q0 --queues {}", file.path().display());
    assert!(wire.done(&by_file).contains("as they were"));
    for (from, to) in [
        ("burst=15k", "burst=30k"),
        ("max=30mbit", "max=31mbit"),
        ("dscp=18", "dscp=20"),
    ] {
        let said = wire.done(&stated.replace(from, to));
        assert!(said.contains("made anew"), "{to}: {said}");
        assert!(wire.done(&stated).contains("made anew"));
    }
    assert!(wire.done("clear --port q0").contains("removed"));
    assert_eq!(wire.state()["way"], "none");
}

#[test]
fn all_mistakes_in_stated_queues_are_told_together_and_nothing_is_changed() {
    let wire = Wire::new();
    wire.tc("qdisc add dev q0 root tbf rate 10mbit burst 15k latency 20ms");
    let before = wire.tc("qdisc show dev q0");
    let (code, said) = wire.refused(
        "set --port q0 --rate 50mbit --queue id=1,min=40mbit,max=30mbit,dscp=10 \
         --queue id=1,min=20mbit,priority=9,dscp=10 --queue nonsense",
    );
    assert_eq!(code, Some(2), "{said}");
    for part in [
        "'nonsense' is no queue",
        "queue 1: min: 40mbit is above max",
        "queue 1: priority: 9",
        "queue 1: id: it is there twice",
        "queue 1: dscp: 10 is queue 1's already",
        "all queues together ask for 60mbit, and the port has 50mbit",
        "q0 has a tbf qdisc",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(wire.tc("qdisc show dev q0"), before);
    let (code, said) = wire.refused("set --port q9 --queue id=1,min=1mbit");
    assert_eq!(code, Some(2), "{said}");
    for part in [
        "rate: say that",
        "queue 1: dscp: give it one",
        "port: no interface q9",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for (line, part) in [
        ("set --port q0 --rate 50mbit", "queue: state at least one"),
        ("set --port q0 --queues missing", "missing: No such file"),
        ("flows --queue id=1,dscp=10", "nothing to put into a queue"),
        (
            "flows --queue id=1,dscp=10 --into 2 --match udp --output 3",
            "--into 2: no such queue",
        ),
        (
            "flows --queue id=1,dscp=10 --into 1 --match in_port=1 --output 3",
            "only IP packets have one",
        ),
        ("verify --port q0", "no queues, neither auster's nor"),
    ] {
        let (_, said) = wire.refused(line);
        assert!(said.contains(part), "{line}: {said}");
    }
}

/// On the kernel's datapath no code point is needed, and Open vSwitch gets the stated queues.
#[test]
fn stated_queues_are_records_where_set_queue_is_honoured() {
    let (wire, database) = (Wire::new(), Database::start());
    database.vsctl("add-br br0 -- add-port br0 q0");
    database.vsctl("create queue other_config:max-rate=5 external_ids:owner=somebody");
    let db = format!("--db unix:{}", database.socket().display());
    let set = format!("set --port q0 --rate 50mbit --queue {VIDEO} --queue id=7,min=1mbit {db}");
    let said = wire.done(&set);
    assert!(
        said.contains("3 queues, made, by Open vSwitch, chosen by set_queue"),
        "{said}"
    );
    let qos = database.vsctl("get port q0 qos").trim().to_string();
    let column = |number: u32, column: &str| {
        let queue = database.vsctl(&format!("get qos {qos} queues:{number}"));
        let line = format!("get queue {} {column}", queue.trim());
        database.vsctl(&line).trim().to_string()
    };
    let of_video = column(1, "other_config");
    for part in [
        "burst=\"122880\"",
        "max-rate=\"30000000\"",
        "min-rate=\"20000000\"",
        "priority=\"1\"",
    ] {
        assert!(of_video.contains(part), "{of_video}");
    }
    assert_eq!([column(1, "dscp"), column(7, "dscp")], ["10", "[]"]);
    assert!(column(0, "other_config").contains("min-rate=\"500000\""));
    assert!(wire.done(&set).contains("as they were"));
    assert_eq!(database.vsctl("get port q0 qos").trim(), qos);
    assert!(
        wire.done(&set.replace("AF11", "AF13"))
            .contains("made anew")
    );
    let (_, said) = wire.refused(&format!("verify --port q0 {db}"));
    assert!(
        said.contains("no queues, neither"),
        "nobody has made them: {said}"
    );
    wire.done(&format!("clear --port q0 {db}"));
    assert_eq!((database.count("qos"), database.count("queue")), (0, 1));
}

/// The case that nothing else reports: Open vSwitch takes queues and flows, and every packet is in
/// queue 0. Queues made by auster let the same flow work.
#[test]
fn verify_tells_queues_that_flows_reach_from_those_that_they_do_not() {
    let lab = Lab::up(&["single,2", "--controller", "none"]);
    let dir = Path::new("/run/auster/labs").join(&lab.id);
    let db = format!("unix:{}", dir.join("db.sock").display());
    let vsctl = |line: &str| run("ovs-vsctl", &words(&[&format!("--db={db}")], line));
    let bridge = format!("unix:{}", dir.join("s1.mgmt").display());
    let add_flow = |line: &str| {
        run(
            "ovs-ofctl",
            &["-O", "OpenFlow13", "add-flow", &bridge, line],
        )
    };
    let queues = |line: &str| {
        let line = format!("{AUSTER} queues {line} --port s1-eth2 --db {db}");
        lab.exec("sw", &line.split(' ').collect::<Vec<_>>())
    };
    let verify = || {
        let traffic = ["ping", "-i", "0.01", "-c", "500", "-q", "10.0.0.2"];
        std::thread::scope(|scope| {
            let traffic = scope.spawn(|| lab.exec("h1", &traffic));
            std::thread::sleep(Duration::from_millis(1200));
            let output = queues("verify --seconds 3 --json");
            assert!(traffic.join().unwrap().status.success());
            let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), document, said)
        })
    };
    let effect = |document: &Value| document["queues"][1]["effect"].clone();

    vsctl(
        "set port s1-eth2 qos=@q -- --id=@q create qos type=linux-htb \
         other-config:max-rate=100000000 queues:1=@q1 -- --id=@q1 create queue \
         other-config:min-rate=20000000",
    );
    add_flow("priority=9,in_port=1,icmp,actions=set_queue:1,output:2");
    let (code, document, said) = verify();
    assert_eq!(
        (code, effect(&document)),
        (Some(1), "no".into()),
        "{said}{document}"
    );
    assert!(
        said.contains("queue 1 got 0 of") && said.contains("ignores set_queue"),
        "{said}"
    );
    assert_eq!(document["made_by"], "open-vswitch");
    assert!(
        document["queues"][0]["packets"].as_u64().unwrap() >= 20,
        "{document}"
    );

    vsctl("clear port s1-eth2 qos");
    let set = queues("set --rate 100mbit --queue id=1,min=20mbit,dscp=10");
    let error = String::from_utf8_lossy(&set.stderr).into_owned();
    assert!(set.status.success(), "{error}");
    // The same flow: Open vSwitch writes the code point of its queue.
    let (code, document, said) = verify();
    assert_eq!(
        (code, effect(&document)),
        (Some(0), "yes".into()),
        "{said}{document}"
    );
    assert_eq!(document["made_by"], "auster");

    // A flow that writes the code point itself.
    let flows = auster_flows("id=1,min=20mbit,dscp=10", "in_port=1,icmp", "2");
    run(
        "ovs-ofctl",
        &["-O", "OpenFlow13", "del-flows", &bridge, "icmp"],
    );
    add_flow(&flows);
    let (code, document, said) = verify();
    assert_eq!(
        (code, effect(&document)),
        (Some(0), "yes".into()),
        "{said}{document}"
    );

    let output = queues("verify --seconds 2");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing to judge by"), "{said}");
    assert!(queues("clear").status.success());
}

fn auster_flows(queue: &str, words: &str, output: &str) -> String {
    let flows = Command::new(AUSTER)
        .args(["queues", "flows", "--queue", queue, "--into", "1"])
        .args(["--match", words, "--output", output])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&flows.stderr).into_owned();
    assert!(flows.status.success(), "{error}");
    String::from_utf8_lossy(&flows.stdout).trim().to_owned()
}
