//! `auster queues keep`, and the relay that does the same: the kernel has the queues that a
//! controller writes into a database, on real interfaces, with a real ovsdb-server and a real Open
//! vSwitch.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::lab::{AUSTER, Lab};
use common::run;
use common::running::Running;
use driver::databases::{Databases, QueuesState, Views, Wanted};
use net::clock::Clock;
use net::method::Method;
use net::tls::Security;
use ovsdb::vswitch::qos::{PortQueues, Queue};
use serde_json::Value;
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Longer than the keeper takes to notice that something is missing.
const PATIENCE: Duration = Duration::from_secs(180);

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Waits until `is_so` returns true.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Interface `q0` in a namespace, and a database beside it that lists it as a port of a userspace
/// bridge. No other program carries out the database's rows.
struct Bench {
    namespaces: [String; 2],
    dir: TempDir,
    server: Child,
}

impl Bench {
    fn start(name: &str) -> Bench {
        let namespaces = ["a", "b"].map(|end| format!("autk{}{name}{end}", std::process::id()));
        let [a, b] = &namespaces;
        run("ip", &["netns", "add", a]);
        run("ip", &["netns", "add", b]);
        let add = format!("-n {a} link add q0 type veth peer name q0 netns {b}");
        run("ip", &words(&add));
        for (n, namespace) in namespaces.iter().enumerate() {
            let address = format!("-n {namespace} addr add 10.9.1.{}/24 dev q0", n + 1);
            run("ip", &words(&address));
            for interface in ["lo", "q0"] {
                run("ip", &["-n", namespace, "link", "set", interface, "up"]);
            }
        }
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
        let bench = Bench {
            namespaces,
            dir,
            server,
        };
        wait("ovsdb-server answers", || bench.socket().exists());
        bench.vsctl("init");
        bench.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        bench.vsctl("add-port br0 q0");
        bench
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn db(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    fn vsctl(&self, line: &str) -> String {
        let db = format!("--db={}", self.db());
        let arguments = [&[db.as_str(), "--no-wait"], &words(line)[..]].concat();
        run("ovs-vsctl", &arguments).trim().to_owned()
    }

    fn keep(&self) -> Kept {
        let db = self.db();
        Kept::start(&self.namespaces[0], &["queues", "keep", "--db", &db])
    }

    /// Writes rows as a controller does; queue 1 has this minimum.
    fn ask(&self, min_rate: u64) {
        self.vsctl(&format!(
            "set port q0 qos=@q -- --id=@q create qos type=linux-noop external_ids:auster=run \
             other_config:max-rate=50000000 queues:1=@q1 -- --id=@q1 create queue dscp=10 \
             external_ids:auster=run other_config:min-rate={min_rate}"
        ));
    }

    fn change(&self, what: &str) {
        let qos = self.vsctl("get port q0 qos");
        let queue = self.vsctl(&format!("get qos {qos} queues:1"));
        self.vsctl(&format!("set queue {queue} {what}"));
    }

    /// The row's report about the kernel.
    fn said(&self) -> String {
        let qos = self.vsctl("get port q0 qos");
        let ids = self.vsctl(&format!("get qos {qos} external_ids"));
        let said = ids.split_once("auster-kernel=\"");
        said.map_or(String::new(), |(_, said)| {
            said.split('"').next().unwrap_or_default().to_owned()
        })
    }

    /// The counter of queue 1 in the row.
    fn told(&self) -> Option<u64> {
        let qos = self.vsctl("get port q0 qos");
        let ids = self.vsctl(&format!("get qos {qos} external_ids"));
        let (_, counts) = ids.split_once("auster-counts=\"")?;
        let (_, count) = counts.split_once("1=")?;
        let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    fn wait_for_said(&self, part: &str) -> String {
        wait(&format!("'{part}' is said"), || self.said().contains(part));
        self.said()
    }

    fn tc(&self, line: &str) -> String {
        let namespace = &self.namespaces[0];
        run("tc", &[&["-n", namespace], &words(line)[..]].concat())
    }

    fn auster(&self, line: &str) -> (bool, String) {
        let namespace = &self.namespaces[0];
        let output = Command::new("ip")
            .args(["netns", "exec", namespace, AUSTER])
            .args(words(line))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn queue(&self, number: usize) -> Value {
        let (_, text) = self.auster(&format!("queues show --port q0 --json --db {}", self.db()));
        let state: Value = serde_json::from_str(&text).unwrap();
        state["kernel"]["queues"][number].clone()
    }

    fn ping(&self, dscp: u8) {
        let line = format!(
            "netns exec {} ping -c 5 -i 0.01 -W 2 -Q {} 10.9.1.2",
            self.namespaces[0],
            dscp << 2
        );
        run("ip", &words(&line));
    }

    fn has_none(&self) -> bool {
        !self.tc("qdisc show dev q0").contains("htb")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        for namespace in &self.namespaces {
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .output();
        }
    }
}

/// A program that keeps the queues until this is dropped.
struct Kept(Child);

impl Kept {
    fn start(namespace: &str, line: &[&str]) -> Kept {
        let child = Command::new("ip")
            // This command replaces itself, so that the child is auster.
            .args(["netns", "exec", namespace, AUSTER])
            .args(line)
            .stdout(Stdio::null())
            .spawn();
        Kept(child.unwrap())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_kernel_has_what_the_rows_say_and_the_row_says_so() {
    let bench = Bench::start("r");
    let kept = bench.keep();
    bench.ask(20_000_000);
    let made = bench.wait_for_said("made: ");
    assert_eq!(made, "made: max-rate=50000000 1(min-rate=20000000 dscp=10)");
    assert!(bench.tc("qdisc show dev q0").contains("htb a058:"));
    bench.ping(10);
    let queue = bench.queue(1);
    assert_eq!(queue["min_rate_bps"], 20_000_000);
    assert!(queue["packets"].as_u64().unwrap() >= 5, "{queue}");
    wait("what it has counted is told", || bench.told() >= Some(5));
    let classes = || bench.tc("class show dev q0");
    let filters = || bench.tc("filter show dev q0 parent a058:");
    // Without the numbers of the queues at the leaves, which are new when the queues are made
    // again.
    let shape = || {
        let lines = classes();
        let lines = lines.lines().map(|line| match line.split_once(" leaf ") {
            Some((class, rest)) => [class, rest.split_once(' ').unwrap().1].join(" "),
            None => line.to_owned(),
        });
        (lines.collect::<Vec<_>>(), filters())
    };
    let before = shape();

    // A keeper that starts leaves the queues as they are: new queues would have lost the counts.
    drop(kept);
    assert!(
        bench.queue(1)["packets"].as_u64().unwrap() >= 5,
        "they stay"
    );
    let kept = bench.keep();
    bench.change("other_config:min-rate=30000000");
    bench.wait_for_said("min-rate=30000000");
    assert_eq!(bench.queue(1)["min_rate_bps"], 30_000_000);
    bench.ping(10);
    drop(kept);
    // ARP is counted there too, so there may be more; counters of new queues would begin at 0.
    let packets = || bench.queue(1)["packets"].as_u64().unwrap();
    let counted = packets();
    let _kept = bench.keep();
    std::thread::sleep(Duration::from_secs(2));
    assert!(packets() >= counted, "unchanged rows");
    bench.change("other_config:min-rate=20000000");
    bench.wait_for_said("min-rate=20000000");
    assert_eq!(shape(), before);

    // Queues that cannot be made are reported, and the existing ones stay.
    let before = (classes(), filters());
    bench.change("other_config:min-rate=60000000");
    let failed = bench.wait_for_said("failed: ");
    assert!(failed.contains("queue 1: min: 60mbit is above"), "{failed}");
    assert_eq!((classes(), filters()), before);
    bench.change("other_config:min-rate=20000000");
    bench.wait_for_said("made: ");

    // The queues belong to the controller.
    let (done, said) = bench.auster("queues set --port q0 --rate 50mbit --queue id=1,dscp=10");
    assert!(
        !done && said.contains("a controller has asked for"),
        "{said}"
    );
    bench.tc("qdisc del dev q0 root");
    wait("they are made again", || !bench.has_none());
    bench.vsctl("clear port q0 qos");
    wait("they are removed", || bench.has_none());
}

#[test]
fn what_others_made_stays_and_what_was_left_goes() {
    let bench = Bench::start("o");
    bench.tc("qdisc add dev q0 root tbf rate 10mbit burst 15k latency 20ms");
    let foreign = bench.tc("qdisc show dev q0");
    let kept = bench.keep();
    bench.ask(20_000_000);
    let failed = bench.wait_for_said("failed: ");
    assert!(failed.contains("tbf qdisc"), "{failed}");
    assert_eq!(bench.tc("qdisc show dev q0"), foreign);
    bench.tc("qdisc del dev q0 root");
    bench.wait_for_said("made: ");
    // While no keeper runs.
    drop(kept);
    bench.vsctl("clear port q0 qos");
    assert!(!bench.has_none());
    let _kept = bench.keep();
    wait("what was left is removed", || bench.has_none());
    // Queues of the command are not the controller's, with a record or without.
    let set = "queues set --port q0 --rate 50mbit --queue id=1,min=1mbit,dscp=10";
    let (done, said) = bench.auster(set);
    assert!(done, "{said}");
    let (done, said) = bench.auster(&format!("{set} --db {}", bench.db()));
    assert!(done && said.contains("as they were"), "{said}");
    std::thread::sleep(Duration::from_secs(6));
    assert!(bench.tc("qdisc show dev q0").contains("htb a057:"));
    assert_eq!(bench.said(), "");
}

/// The relay beside a switch keeps the queues as well.
#[test]
fn a_relay_keeps_the_queues_of_its_switch() {
    let bench = Bench::start("y");
    bench.ask(20_000_000);
    let db = bench.db();
    let line = [
        "relay",
        "switch",
        "--openflow",
        "ptcp:0:127.0.0.1",
        "--connect",
        "tcp:127.0.0.1:6653",
        "--queues-db",
        &db,
    ];
    let _kept = Kept::start(&bench.namespaces[0], &line);
    bench.wait_for_said("made: ");
    assert!(bench.tc("qdisc show dev q0").contains("htb a058:"));
    let (done, said) = bench.auster(&[&line[..7], &["ptcp:1"]].concat().join(" "));
    assert!(!done && said.contains("--queues-db ptcp:1"), "{said}");
}

/// A policy is active after its packets were counted in their queue, and not before. Where no
/// program makes the queue, it is reported as not in effect.
#[test]
fn a_policy_is_active_when_its_packets_were_seen_in_their_queue() {
    let lab = Lab::up(&["single,2", "--controller", "none"]);
    let dir = Path::new("/run/auster/labs").join(&lab.id);
    let path = |name: &str| format!("unix:{}", dir.join(name).display());
    let listen = format!("p{}", path("c.sock"));
    let mut controller =
        Running::start(&["run", &listen, "--api", "0", "--ovsdb", &path("db.sock")]);
    let line = controller.wait_for("API on http://");
    let api = line.split("http://").nth(1).unwrap();
    let api = api.split('/').next().unwrap().to_owned();
    let db = format!("--db={}", path("db.sock"));
    let target = path("c.sock");
    run("ovs-vsctl", &[&db, "set-controller", "s1", &target]);
    let qos = |line: &str| {
        let arguments = [&["qos"], &words(line)[..], &["--api", &api]].concat();
        let output = Command::new(AUSTER).args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let wrong = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told, wrong)
    };
    let done = |line: &str| {
        let (code, told, wrong) = qos(line);
        assert_eq!(code, Some(0), "{line}: {told}{wrong}");
        told
    };
    wait("its database and ports are known", || {
        let (code, ..) = qos(
            "set queues 1:2 rate=100mbit queue.1.class=gold queue.1.min=20mbit \
                              queue.1.dscp=46",
        );
        let shown = done("show");
        code == Some(0) && shown.contains(": written")
    });
    done("set service echo proto=icmp");
    done("set policy first service=echo queue=gold");
    wait("the policy is installed", || {
        done("show").contains(": installed")
    });
    let (code, told, wrong) = qos("verify --seconds 2");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("no traffic") && wrong.contains("under traffic"),
        "{told}{wrong}"
    );

    let traffic = [
        "lab", "exec", &lab.id, "h1", "--", "ping", "-q", "-i", "0.02", "-w", "150", "10.0.0.2",
    ];
    let traffic = Command::new(AUSTER)
        .args(traffic)
        .stdout(Stdio::null())
        .spawn();
    let _traffic = Kept(traffic.unwrap());
    std::thread::sleep(Duration::from_secs(1));
    let (code, told, wrong) = qos("verify first --seconds 4");
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains(" NO") && wrong.contains("nobody beside the switch"),
        "{told}{wrong}"
    );
    wait("it is not in effect", || {
        done("show").contains(": not in effect")
    });

    let namespace = format!("{}-sw", lab.id);
    let _kept = Kept::start(&namespace, &["queues", "keep", "--db", &path("db.sock")]);
    wait("the queues are made", || {
        done("show").contains(": in effect")
    });
    let (code, told, wrong) = qos("verify --seconds 5 --json");
    let found: Value = serde_json::from_str(&told).unwrap_or_default();
    assert_eq!(code, Some(0), "{told}{wrong}");
    let hop = &found["policies"]["first"]["hops"][0];
    assert_eq!(hop["effect"], "yes", "{told}");
    assert_eq!(
        (&hop["dpid"], &hop["ports"]),
        (&"0000000000000001".into(), &[2].into())
    );
    assert!(hop["counted"].as_u64().unwrap() >= 100, "{told}");
    wait("it is active", || done("show").contains(": active, seen "));
}

/// The whole chain: a controller over the database, Open vSwitch, and its kernel. The controller
/// distinguishes written rows from queues in effect, and `set_queue` of a flow chooses one.
#[tokio::test(flavor = "multi_thread")]
async fn on_open_vswitch_a_controllers_queues_are_in_effect_when_the_kernel_has_them() {
    let lab = Lab::up(&["single,2", "--controller", "none"]);
    let dir = Path::new("/run/auster/labs").join(&lab.id);
    let socket = dir.join("db.sock");
    let method = Method::DialUnix(socket.clone());
    let security = Security::plain();
    let databases = Databases::start(&[method], &security, Clock::start(), 1).await;
    let databases = databases.unwrap();
    let mut views = databases.views();
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|views| !views.is_empty()));
    let dpid = *seen.await.unwrap().unwrap().keys().next().unwrap();
    let queue = Queue {
        min_rate_bps: Some(20_000_000),
        dscp: Some(10),
        ..Queue::default()
    };
    let queues = PortQueues {
        max_rate_bps: Some(100_000_000),
        queues: BTreeMap::from([(1, queue)]),
    };
    let port = "s1-eth2";
    let ports = BTreeMap::from([(port.to_owned(), queues)]);
    databases.want(Wanted::from([(dpid, ports)]));
    let is = |views: &Views, state: &QueuesState| {
        let port = views.get(&dpid).and_then(|view| view.ports.get(port));
        port.is_some_and(|port| port.queues == *state)
    };
    let (written, in_effect) = (QueuesState::Written, QueuesState::InEffect);
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|views| is(views, &written)));
    assert!(seen.await.is_ok(), "{:#?}", views.borrow());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(is(&views.borrow(), &written), "nobody has made them");

    let db = format!("unix:{}", socket.display());
    let namespace = format!("{}-sw", lab.id);
    let _kept = Kept::start(&namespace, &["queues", "keep", "--db", &db]);
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|views| is(views, &in_effect)));
    assert!(seen.await.is_ok(), "{:#?}", views.borrow());

    let bridge = format!("unix:{}", dir.join("s1.mgmt").display());
    let flow = "priority=9,in_port=1,icmp,actions=set_queue:1,output:2";
    run(
        "ovs-ofctl",
        &["-O", "OpenFlow13", "add-flow", &bridge, flow],
    );
    let packets = || {
        let line = format!("{AUSTER} queues show --port {port} --json --db {db}");
        let output = lab.exec("sw", &words(&line));
        let state: Value = serde_json::from_slice(&output.stdout).unwrap();
        state["kernel"]["queues"][1]["packets"].as_u64().unwrap()
    };
    let before = packets();
    let ping = lab.exec("h1", &words("ping -i 0.01 -c 50 -q 10.0.0.2"));
    assert!(ping.status.success());
    assert!(
        packets() - before >= 50,
        "{} in queue 1",
        packets() - before
    );

    databases.want(Wanted::from([(dpid, BTreeMap::new())]));
    let absent = QueuesState::Absent;
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|views| is(views, &absent)));
    assert!(seen.await.is_ok(), "{:#?}", views.borrow());
    let root = || {
        let output = lab.exec("sw", &words(&format!("tc qdisc show dev {port}")));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait("they are removed", || !root().contains("htb"));
}
