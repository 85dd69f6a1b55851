//! The programs people already run, unmodified, against ours: Mininet drives `auster run`; os-ken
//! and Faucet control Open vSwitch through a pair of relays, and `ovs-vsctl` reaches its database
//! through the same connection.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::lab::Lab;
use common::ports::free_port;
use common::relays::{Relays, wait_for_port};
use common::run;
use common::running::{AUSTER, Running};

/// The address the lab gives to host h2.
const H2: &str = "10.0.0.2";

/// Faucet learns hosts from their packets and may flood a first packet nowhere; it has this long.
const CONVERGENCE_MAX: Duration = Duration::from_secs(180);

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// The virtual environment of a Python peer, made once and kept under `target`.
fn environment(peer: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("peers")
        .join(peer);
    run(
        peers().join("setup").to_str().unwrap(),
        &[peer, dir.to_str().unwrap()],
    );
    dir
}

/// Hosts on switches of a lab, whose controller is behind a pair of relays.
struct Relayed {
    lab: Lab,
    relays: Relays,
}

impl Relayed {
    fn start(topology: &str, controller_port: u16) -> Relayed {
        let bridges_port = free_port();
        let lab = Lab::up(&[
            topology,
            "--controller",
            &format!("tcp:127.0.0.1:{bridges_port}"),
        ]);
        let database = format!("unix:/run/auster/labs/{}/db.sock", lab.id);
        let relays = Relays::start(bridges_port, controller_port, &database);
        Relayed { lab, relays }
    }

    /// Pings from h1 to h2 until one is answered, then ten more of which none may be lost.
    fn assert_hosts_reach_each_other(&self) {
        let deadline = Instant::now() + CONVERGENCE_MAX;
        while !self
            .lab
            .exec("h1", &["ping", "-c1", "-W1", H2])
            .status
            .success()
        {
            assert!(Instant::now() < deadline, "h1 never reached h2");
        }
        let ping = self.lab.exec("h1", &["ping", "-c10", "-i0.05", "-W2", H2]);
        let said = String::from_utf8_lossy(&ping.stdout).into_owned();
        assert!(said.contains("10 received"), "{said}");
    }

    /// `ovs-vsctl` through the relays.
    fn vsctl(&self, words: &[&str]) -> String {
        let db = format!("--db=unix:{}", self.relays.database().display());
        run(
            "ovs-vsctl",
            &[&[db.as_str(), "--timeout=20"], words].concat(),
        )
    }

    fn assert_a_queue_can_be_added(&self) {
        let bridges = self.vsctl(&["list-br"]);
        let bridge = bridges.lines().next().unwrap();
        let ports = self.vsctl(&["list-ports", bridge]);
        let port = ports.lines().next().unwrap();
        self.vsctl(&[
            "set",
            "port",
            port,
            "qos=@qos",
            "--",
            "--id=@qos",
            "create",
            "qos",
            "type=linux-htb",
            "other-config:max-rate=10000000",
            "queues:1=@q1",
            "--",
            "--id=@q1",
            "create",
            "queue",
            "other-config:min-rate=1000000",
        ]);
        let queues = self.vsctl(&["--columns=other_config", "list", "queue"]);
        assert!(queues.contains("min-rate=\"1000000\""), "{queues}");
    }
}

#[test]
fn mininet_pings_all_pairs_under_auster_run() {
    assert_all_pairs_ping(&[]);
}

#[test]
fn mininet_starts_auster_run_itself_by_the_python_package() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/python");
    assert_all_pairs_ping(&[python.join("src/auster/mininet.py").to_str().unwrap()]);
}

fn assert_all_pairs_ping(custom: &[&str]) {
    let output = Command::new(peers().join("mininet"))
        .arg(AUSTER)
        .args(custom)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("Results: 0% dropped (12/12 received)"),
        "{said}"
    );
}

#[test]
fn os_ken_controls_open_vswitch_through_the_relays() {
    let environment = environment("os-ken");
    let port = free_port();
    let mut os_ken = Command::new(environment.join("bin/python"));
    os_ken.arg(peers().join("os_ken_l2.py"));
    os_ken.args([
        "--ofp-listen-host",
        "127.0.0.1",
        "--ofp-tcp-listen-port",
        &port.to_string(),
    ]);
    let _os_ken = Running::spawn(os_ken);
    wait_for_port(port);

    let network = Relayed::start("linear,2", port);
    network.assert_hosts_reach_each_other();
    network.assert_a_queue_can_be_added();
}

#[test]
fn faucet_controls_open_vswitch_through_the_relays() {
    let environment = environment("faucet");
    let (port, metrics) = (free_port(), free_port());
    let network = {
        let dir = tempfile::tempdir().unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut faucet = Command::new(environment.join("bin/faucet"));
        faucet
            .arg("--ryu-ofp-listen-host=127.0.0.1")
            .arg(format!("--ryu-ofp-tcp-listen-port={port}"))
            // It starts `osken-manager` by name.
            .env(
                "PATH",
                format!("{}:{path}", environment.join("bin").display()),
            )
            .env("FAUCET_CONFIG", peers().join("faucet.yaml"))
            .env("FAUCET_LOG", dir.path().join("faucet.log"))
            .env("FAUCET_EXCEPTION_LOG", dir.path().join("exception.log"))
            .env("FAUCET_PROMETHEUS_ADDR", "127.0.0.1")
            .env("FAUCET_PROMETHEUS_PORT", metrics.to_string());
        let faucet = Running::spawn(faucet);
        wait_for_port(port);
        (Relayed::start("single,2", port), faucet, dir)
    };
    network.0.assert_hosts_reach_each_other();
    network.0.assert_a_queue_can_be_added();
}
