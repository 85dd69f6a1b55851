//! Policy maps from Open vSwitch's database and from the relay's own file, with a real
//! ovsdb-server. The tests kill the server and the relay.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::dummy::DummySwitch;
use common::run;
use common::running::{AUSTER, PATIENCE, Running};
use serde_json::Value;
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const TICK: Duration = Duration::from_millis(20);

struct Lab {
    dir: TempDir,
    server: Option<Child>,
}

impl Lab {
    fn start() -> Lab {
        let mut lab = Lab {
            dir: tempfile::tempdir().unwrap(),
            server: None,
        };
        run("ovsdb-tool", &["create", &lab.path("db"), SCHEMA]);
        lab.start_server();
        lab.vsctl(&["add-br", "br0"]);
        lab
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        path.display().to_string()
    }

    fn database(&self) -> String {
        format!("unix:{}", self.path("db.sock"))
    }

    fn start_server(&mut self) {
        let _ = fs::remove_file(self.path("db.sock"));
        let server = Command::new("ovsdb-server")
            .args([
                &self.path("db"),
                &format!("--remote=punix:{}", self.path("db.sock")),
            ])
            .args([&format!("--unixctl={}", self.path("db.ctl")), "-voff"])
            .stderr(Stdio::null())
            .spawn();
        self.server = Some(server.expect("ovsdb-server of Open vSwitch"));
        let deadline = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(self.path("db.sock")).is_err() {
            assert!(Instant::now() < deadline, "the database does not listen");
            std::thread::sleep(TICK);
        }
    }

    fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    fn vsctl(&self, words: &[&str]) -> String {
        let db = format!("--db={}", self.database());
        run("ovs-vsctl", &[&[db.as_str(), "--no-wait"], words].concat())
    }

    /// Sets keys of the bridge's `external_ids` as an operator would.
    fn write(&self, keys: &[(&str, &str)]) {
        for (key, value) in keys {
            let value = serde_json::to_string(value).unwrap();
            self.vsctl(&[
                "set",
                "bridge",
                "br0",
                &format!("external_ids:{key}={value}"),
            ]);
        }
    }

    fn active(&self) -> String {
        let get = [
            "--if-exists",
            "get",
            "bridge",
            "br0",
            "external_ids:auster-pmt-active",
        ];
        self.vsctl(&get).trim().trim_matches('"').to_owned()
    }

    fn map(&self, generation: u64) -> String {
        let path = self.path(&format!("{generation}.policy"));
        let text = format!(
            "Generation: {generation}\nRule #1: udp_dst={generation}, action=queue_id:0\nDefault: \
             action=queue_id:1\n"
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a relay that has no peer to connect to.
    fn relay(&self, more: &[&str]) -> Running {
        let (policy, status) = (self.map(1), format!("unix:{}", self.path("status")));
        let _ = fs::remove_file(self.path("status"));
        let words = ["relay", "switch", "--openflow", "ptcp:0:127.0.0.1"];
        let link = ["--connect", "tcp:127.0.0.1:1", "--policy", &policy];
        let mut relay =
            Running::start(&[&words[..], &link[..], &["--status", &status], more].concat());
        relay.wait_for("listening");
        relay
    }

    /// Generation and digest that the relay reports as in use.
    fn in_use(&self) -> (u64, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let relay = format!("unix:{}", self.path("status"));
            let asked = auster(&["policy", "status", "--json", "--relay", &relay]);
            if let Ok(document) = serde_json::from_slice::<Value>(&asked.stdout) {
                let map = &document[0]["map"];
                let digest = map["sha256"].as_str().unwrap().to_owned();
                return (map["generation"].as_u64().unwrap(), digest);
            }
            assert!(Instant::now() < deadline, "{asked:?}");
            std::thread::sleep(TICK);
        }
    }

    fn push(&self, generation: u64) -> Output {
        let (map, database) = (self.map(generation), self.database());
        auster(&[
            "policy", "push", &map, "--ovsdb", &database, "--bridge", "br0",
        ])
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.kill_server();
    }
}

/// A real switch behind a relay, and the same one without; the controller has a newer map.
#[test]
fn a_controller_gives_its_map_to_the_relay_at_a_switch_and_a_plain_switch_takes_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let write = |name: &str, generation: u64| {
        let text = format!("Generation: {generation}\nDefault: action=queue_id:0\n");
        fs::write(path(name), text).unwrap();
    };
    write("controller", 5);
    write("relay", 1);
    let mut controller =
        Running::start(&["run", "ptcp:0:127.0.0.1", "--policy", &path("controller")]);
    let at = controller.listening("ptcp");
    let status = format!("unix:{}", path("status"));
    let connect = format!("tcp:{at}");
    let words = ["relay", "switch", "--openflow", "ptcp:0:127.0.0.1"];
    let more = [
        "--connect",
        &connect,
        "--policy",
        &path("relay"),
        "--status",
        &status,
    ];
    let mut relay = Running::start(&[&words[..], &more].concat());
    let line = relay.wait_for("listening ptcp:");
    let port = line.split(':').nth(1).unwrap().to_owned();
    // The relay learns last that both ends have the map.
    let wait_for_both = |generation: u64| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let asked = auster(&["policy", "status", "--json", "--relay", &status]);
            let document: Value = serde_json::from_slice(&asked.stdout).unwrap();
            let map = &document[0]["map"];
            if map["in_sync"] == true && map["generation"] == generation {
                return;
            }
            assert!(Instant::now() < deadline, "{document}");
            std::thread::sleep(TICK);
        }
    };

    let switch = DummySwitch::start(1);
    let via_relay = format!("tcp:127.0.0.1:{port}");
    switch.vsctl(&["set-controller", "br0", &via_relay]);
    controller.wait_for("the relay beside it has policy map generation 5");
    wait_for_both(5);
    write("controller", 6);
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    controller.wait_for("the relay beside it has policy map generation 6");
    wait_for_both(6);

    // The older connection ends first: of two connections for one switch, the newer is refused.
    switch.vsctl(&["del-controller", "br0"]);
    controller.wait_for("switch 0000000000000001 down");
    switch.vsctl(&["set-controller", "br0", &connect]);
    controller.wait_for("takes no policy map over OpenFlow (BAD_EXPERIMENTER)");
}

fn auster(words: &[&str]) -> Output {
    Command::new(AUSTER).args(words).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The canonical form of `map`, and its digest.
fn canonical(map: &str) -> (String, String) {
    let shown = out(&auster(&["policy", "show", map, "--json"]));
    let document: Value = serde_json::from_str(&shown).unwrap();
    let digest = document["sha256"].as_str().unwrap().to_owned();
    (fs::read_to_string(map).unwrap(), digest)
}

#[test]
fn a_map_in_the_database_is_taken_and_told_and_whatever_breaks_the_last_one_stays() {
    let mut lab = Lab::start();
    let database = lab.database();
    let mut relay = lab.relay(&["--policy-db", &database]);
    assert_eq!(lab.in_use().0, 1);
    let pushed = lab.push(2);
    assert!(pushed.status.success(), "{pushed:?}");
    let (generation, digest) = lab.in_use();
    assert_eq!(generation, 2);
    assert_eq!(lab.active(), format!("2:{digest}"));
    let status = out(&auster(&["policy", "status", "--ovsdb", &database]));
    assert!(
        status.contains("br0: generation 2") && status.contains(", in use"),
        "{status}"
    );

    // Written by hand, key by key: no map is used before all keys are present and right.
    let (text, sha256) = canonical(&lab.map(3));
    lab.write(&[("auster-pmt", &text)]);
    relay.wait_for("E15");
    lab.write(&[("auster-pmt-gen", "three")]);
    relay.wait_for("'three', which is no number");
    lab.write(&[("auster-pmt", "Generation: 3\nRule #1: udp_dst=70000\n")]);
    relay.wait_for("E06");
    relay.wait_for("E12");
    assert_eq!(lab.in_use(), (2, digest.clone()));
    assert_eq!(lab.active(), format!("2:{digest}"));
    let status = out(&auster(&["policy", "status", "--ovsdb", &database]));
    assert!(
        status.contains("wrong") && status.contains("NOT in use: 2:"),
        "{status}"
    );
    lab.write(&[("auster-pmt", &text), ("auster-pmt-gen", "3")]);
    assert_eq!(lab.in_use().0, 2, "the digest is another map's");
    lab.write(&[("auster-pmt-sha256", &sha256)]);
    let deadline = Instant::now() + PATIENCE;
    while lab.active() != format!("3:{sha256}") {
        assert!(
            Instant::now() < deadline,
            "{}: {:?}",
            lab.active(),
            relay.log
        );
        std::thread::sleep(TICK);
    }
    assert_eq!(lab.in_use(), (3, sha256.clone()));

    // Without the database the map stays; when the database is back, the next map is taken.
    lab.kill_server();
    relay.wait_for("--policy-db");
    assert_eq!(lab.in_use(), (3, sha256));
    lab.start_server();
    let pushed = lab.push(4);
    assert!(pushed.status.success(), "{pushed:?}");
    assert_eq!(lab.in_use().0, 4);

    // The relay, killed and started again with the map of its file, finds the row.
    drop(relay);
    let _relay = lab.relay(&["--policy-db", &database]);
    let deadline = Instant::now() + PATIENCE;
    while lab.in_use().0 != 4 {
        assert!(Instant::now() < deadline, "{:?}", lab.in_use());
        std::thread::sleep(TICK);
    }
    let nobody = auster(&[
        "policy",
        "push",
        &lab.map(5),
        "--ovsdb",
        &database,
        "--bridge",
        "br9",
    ]);
    assert_eq!(nobody.status.code(), Some(2), "{nobody:?}");
}

#[test]
fn the_map_in_use_survives_a_relay_that_is_killed_and_a_corrupt_store_does_not_stop_it() {
    let lab = Lab::start();
    let (store, status) = (lab.path("store"), format!("unix:{}", lab.path("status")));
    let relay = lab.relay(&["--policy-store", &store]);
    let push = |generation| auster(&["policy", "push", &lab.map(generation), "--relay", &status]);
    let pushed = push(7);
    assert!(pushed.status.success(), "{pushed:?}");
    let in_use = lab.in_use();
    assert_eq!(in_use.0, 7);
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(&store).is_ok_and(|stored| stored.contains(&in_use.1)) {
        assert!(Instant::now() < deadline, "nothing is stored");
        std::thread::sleep(TICK);
    }
    let refused = push(6);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    drop(relay);

    let mut relay = lab.relay(&["--policy-store", &store]);
    relay.wait_for("newer than --policy");
    assert_eq!(lab.in_use(), in_use);
    drop(relay);

    fs::write(&store, &fs::read(&store).unwrap()[..100]).unwrap();
    let mut relay = lab.relay(&["--policy-store", &store]);
    relay.wait_for("--policy is in use instead");
    assert_eq!(lab.in_use().0, 1);
    // The relay has started a moment ago: an end may not be there yet.
    let deadline = Instant::now() + PATIENCE;
    while !push(8).status.success() && lab.in_use().0 != 8 {
        assert!(Instant::now() < deadline, "{:?}", push(8));
        std::thread::sleep(TICK);
    }
    while Instant::now() < deadline
        && !fs::read_to_string(&store)
            .unwrap()
            .contains("Generation: 8")
    {
        std::thread::sleep(TICK);
    }
    drop(relay);
    let _relay = lab.relay(&["--policy-store", &store]);
    assert_eq!(lab.in_use().0, 8);
}
