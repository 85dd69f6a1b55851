//! Three members of a cluster at one real Open vSwitch, with a real etcd: the switch has one
//! master, and each broadcast arrives once, whoever is killed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::etcd_server::Etcd;
use super::ovs::Ovs;
use super::{Auster, PATIENCE};

const DPID: &str = "00000000000000c0";
const NAMES: [&str; 3] = ["a", "b", "c"];

struct Members {
    dir: TempDir,
    etcd: Etcd,
    running: Vec<Option<Auster>>,
    /// Where each listens for switches; the same when it is started again.
    ports: Vec<u16>,
    ovs: Ovs,
}

impl Members {
    /// Starts all, with a bridge that dials each of them.
    fn start() -> Members {
        let mut members = Members {
            dir: tempfile::tempdir().unwrap(),
            etcd: Etcd::one(),
            running: Vec::new(),
            ports: Vec::new(),
            ovs: Ovs::start(),
        };
        for n in 0..NAMES.len() {
            let auster = Auster::start(&["--config", &members.config(n, 0)]);
            members.ports.push(auster.port());
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

    /// The file of a member that listens for switches on a port.
    fn config(&self, member: usize, port: u16) -> String {
        let name = NAMES[member];
        let endpoint = &self.etcd.endpoints()[0];
        let text = format!(
            "listen = \"ptcp:{port}:127.0.0.1\"\n\
             [cluster]\n\
             etcd = [\"http://{endpoint}\"]\n\
             name = \"{name}\"\n\
             listen = \"ptcp:0:127.0.0.1\"\n\
             state = \"state\"\n"
        );
        let file: PathBuf = self.dir.path().join(format!("{name}.toml"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    fn restart(&mut self, member: usize) {
        let config = self.config(member, self.ports[member]);
        self.running[member] = Some(Auster::start(&["--config", &config]));
    }

    fn end(&mut self, member: usize, signal: Signal) -> Option<i32> {
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

    /// Waits until one running member is master, and the others are slaves; returns the master.
    fn settled(&self) -> usize {
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
    let first = members.settled();
    assert_eq!(members.ovs.copies(0), [1; 20]);

    assert_eq!(members.end(first, Signal::SIGKILL), None);
    let second = members.settled();
    assert_ne!(second, first);
    assert_eq!(members.ovs.copies(1000), [1; 20]);

    // Back as one that stands by.
    members.restart(first);
    assert_eq!(members.settled(), second);
    assert_eq!(members.ovs.copies(2000), [1; 20]);

    // A planned end hands over.
    assert_eq!(members.end(second, Signal::SIGTERM), Some(0));
    let third = members.settled();
    assert_eq!(members.ovs.copies(3000), [1; 20]);

    // Nobody needs etcd to take over.
    members.etcd.kill(0);
    assert_eq!(members.end(third, Signal::SIGKILL), None);
    members.settled();
    assert_eq!(members.ovs.copies(4000), [1; 20]);
}
