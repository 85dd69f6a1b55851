//! Real Open vSwitch of our own: a database and a daemon with a dummy datapath, in a directory of
//! their own, without root.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::Auster;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

pub struct Ovs {
    dir: TempDir,
}

impl Ovs {
    pub fn start() -> Ovs {
        let ovs = Ovs {
            dir: tempfile::tempdir().unwrap(),
        };
        let path = |name: &str| ovs.path(name).display().to_string();
        ovs.run("ovsdb-tool", &["create", &path("db"), SCHEMA]);
        let daemon = |name: &str| {
            [
                format!("--pidfile={}", path(&format!("{name}.pid"))),
                format!("--unixctl={}", path(&format!("{name}.ctl"))),
                "--detach".to_owned(),
                "--no-chdir".to_owned(),
                "-vANY:file:off".to_owned(),
                "-vANY:console:off".to_owned(),
                "-vANY:syslog:off".to_owned(),
            ]
        };
        let remote = format!("--remote=punix:{}", path("db.sock"));
        let options = daemon("ovsdb-server");
        let mut arguments = vec![ovs.path("db").display().to_string(), remote];
        arguments.extend(options);
        ovs.run("ovsdb-server", &arguments);
        ovs.vsctl(&["--no-wait", "init"]);
        let mut arguments = vec![
            format!("unix:{}", path("db.sock")),
            "--enable-dummy=override".to_owned(),
            "--disable-system".to_owned(),
        ];
        arguments.extend(daemon("ovs-vswitchd"));
        ovs.run("ovs-vswitchd", &arguments);
        ovs
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn run(&self, program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Output {
        let output = Command::new(program)
            .args(arguments)
            .env("OVS_RUNDIR", self.dir.path())
            .env("OVS_DBDIR", self.dir.path())
            .env("OVS_LOGDIR", self.dir.path())
            .current_dir(self.dir.path())
            .output()
            .unwrap_or_else(|error| panic!("{program} (of Open vSwitch): {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {said}");
        output
    }

    pub fn vsctl(&self, arguments: &[&str]) {
        self.asked(arguments);
    }

    /// The answer of `ovs-vsctl`.
    pub fn asked(&self, arguments: &[&str]) -> String {
        let database = format!("--db=unix:{}", self.path("db.sock").display());
        let output = self.run("ovs-vsctl", &[&[&database as &str], arguments].concat());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn add_bridge(&self, name: &str, datapath_id: &str, protocol: &str, controller: &str) {
        let bridge = format!("other_config:datapath-id={datapath_id}");
        let protocols = format!("protocols={protocol}");
        self.vsctl(&[
            "add-br",
            name,
            "--",
            "set",
            "bridge",
            name,
            "datapath_type=dummy",
            &protocols,
            "fail_mode=secure",
            &bridge,
            "other_config:disable-in-band=true",
            "--",
            "set-controller",
            name,
            controller,
        ]);
    }

    /// The entries of a bridge, each with its age.
    pub fn flows_with_age(&self, bridge: &str) -> String {
        let management = format!("unix:{}", self.path(&format!("{bridge}.mgmt")).display());
        let arguments = ["-O", "OpenFlow13", "dump-flows", &management];
        String::from_utf8(self.run("ovs-ofctl", &arguments).stdout).unwrap()
    }

    pub fn flows(&self, bridge: &str) -> String {
        let management = format!("unix:{}", self.path(&format!("{bridge}.mgmt")).display());
        let arguments = ["-O", "OpenFlow13", "--no-stats", "dump-flows", &management];
        String::from_utf8(self.run("ovs-ofctl", &arguments).stdout).unwrap()
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for daemon in ["ovs-vswitchd", "ovsdb-server"] {
            let pid = std::fs::read_to_string(self.path(&format!("{daemon}.pid")));
            if let Ok(pid) = pid.unwrap_or_default().trim().parse() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
    }
}

#[test]
fn open_vswitch_comes_up_over_tcp_in_both_versions_and_keeps_its_flows() {
    let mut auster = Auster::start(&["ptcp:0:127.0.0.1"]);
    let controller = format!("tcp:127.0.0.1:{}", auster.port());
    let ovs = Ovs::start();
    ovs.add_bridge("br0", "00000000000000a0", "OpenFlow13", &controller);
    let line = auster.line("switch 00000000000000a0 up");
    assert!(line.contains("OpenFlow 1.3 over tcp:127.0.0.1:"), "{line}");
    ovs.add_bridge("br1", "00000000000000a1", "OpenFlow10", &controller);
    let line = auster.line("switch 00000000000000a1 up");
    assert!(line.contains("OpenFlow 1.0 over tcp:127.0.0.1:"), "{line}");

    let give_up = std::time::Instant::now() + super::PATIENCE;
    // One of the entries is for the first second only.
    let is_up = |flows: String| flows.lines().count() >= 2 && !flows.contains("hard_timeout");
    while !is_up(ovs.flows("br0")) {
        assert!(std::time::Instant::now() < give_up, "no flow entry came");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let status = auster.status();
    let switches = status["switches"].as_array().unwrap();
    assert_eq!(switches.len(), 2, "{status}");
    assert_eq!(
        switches[0]["software"].as_str().map(|s| s.contains('.')),
        Some(true)
    );
    assert_eq!(switches[0]["malformed"], 0, "{status}");
    assert_eq!(switches[1]["malformed"], 0, "{status}");

    let before = ovs.flows("br0");
    assert_eq!(auster.end(Signal::SIGTERM), Some(0));
    assert_eq!(
        ovs.flows("br0"),
        before,
        "the flows stay without the controller"
    );
}

/// With the keys of `ovs-pki`, as Open vSwitch's users have them.
#[test]
fn open_vswitch_comes_up_over_ssl_with_the_certificates_of_ovs_pki() {
    let ovs = Ovs::start();
    let pki = ovs.path("pki");
    let make = |arguments: &[&str]| {
        let dir = format!("--dir={}", pki.display());
        let log = format!("--log={}", ovs.path("pki.log").display());
        ovs.run("ovs-pki", &[&[dir.as_str(), &log], arguments].concat());
    };
    make(&["init"]);
    make(&["-u", "req+sign", "ctl", "controller"]);
    make(&["-u", "req+sign", "sc", "switch"]);
    let file = |path: &Path| path.display().to_string();
    let auster = Auster::start(&[
        "--listen",
        "pssl:0:127.0.0.1",
        "-p",
        &file(&ovs.path("ctl-privkey.pem")),
        "-c",
        &file(&ovs.path("ctl-cert.pem")),
        "-C",
        &file(&pki.join("switchca/cacert.pem")),
    ]);
    let controller = format!("ssl:127.0.0.1:{}", auster.port());
    ovs.vsctl(&[
        "set-ssl",
        &file(&ovs.path("sc-privkey.pem")),
        &file(&ovs.path("sc-cert.pem")),
        &file(&pki.join("controllerca/cacert.pem")),
    ]);
    ovs.add_bridge("br0", "00000000000000b0", "OpenFlow13", &controller);
    let line = auster.line("switch 00000000000000b0 up");
    assert!(line.contains("over ssl:127.0.0.1:"), "{line}");
    assert!(line.ends_with("(TLSv1.3)"), "{line}");
    assert_eq!(auster.status()["switches"][0]["transport"], "ssl");
}

/// The bridges of a ring of four, and one beside the ring.
const CABLES: [(u32, u32); 5] = [(1, 2), (2, 3), (3, 4), (4, 1), (1, 5)];

impl Ovs {
    /// Bridges joined by sockets; the port of bridge 1 towards bridge 2 is `p12`, and its
    /// administrator wants no BFD there.
    fn join(&self, controller: &str) {
        for n in 1..=5 {
            let datapath_id = format!("{:016x}", 0xb0 + n);
            self.add_bridge(&format!("br{n}"), &datapath_id, "OpenFlow13", controller);
        }
        for (a, b) in CABLES {
            let socket = self.path(&format!("{a}{b}"));
            for (a, b, way) in [(a, b, "pstream=punix"), (b, a, "stream=unix")] {
                let (bridge, port) = (format!("br{a}"), format!("p{a}{b}"));
                let options = format!("options:{way}:{}", socket.display());
                let mut set = vec!["--", "set", "interface", &port, "type=dummy", &options];
                // Before auster may have found the link.
                if port == "p12" {
                    set.push("bfd:enable=false");
                }
                self.vsctl(&[&["add-port", &bridge, &port as &str], &set[..]].concat());
            }
        }
    }

    /// The interfaces that satisfy `which`, in their order.
    fn interfaces(&self, which: &str) -> Vec<String> {
        let database = format!("--db=unix:{}", self.path("db.sock").display());
        let find = ["--bare", "--columns=name", "find", "interface", which];
        let output = self.run("ovs-vsctl", &[&[&database as &str], &find[..]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let names = text.lines().filter(|name| !name.is_empty());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Waits for these interfaces, and calls `again` now and then: a start fails if the machine is
    /// too busy for it.
    fn wait_for_interfaces(&self, which: &str, wanted: &[&str], again: impl Fn()) {
        let give_up = std::time::Instant::now() + 3 * super::PATIENCE;
        for turn in 1.. {
            let found = self.interfaces(which);
            if found == wanted {
                return;
            }
            let is_over = std::time::Instant::now() > give_up;
            assert!(!is_over, "{which}: {found:?} are not {wanted:?}");
            if turn % 200 == 0 {
                again();
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Links that have another path are watched, and stay so while no controller is there. The
/// administrator's settings stay in any case.
#[test]
fn links_with_another_path_are_watched_by_bfd_until_that_is_turned_off() {
    let ovs = Ovs::start();
    let config = |text: &str| super::write(ovs.dir.path(), "net.toml", text);
    let file = config("bfd_interval_ms = 300\n").display().to_string();
    let database = format!("unix:{}", ovs.path("db.sock").display());
    let line = ["ptcp:0:127.0.0.1", "--ovsdb", &database, "--config", &file];
    let mut auster = Auster::start(&line);
    ovs.join(&format!("tcp:127.0.0.1:{}", auster.port()));
    let watched = ["p14", "p23", "p32", "p34", "p41", "p43"];
    let retry = || {
        kill(
            Pid::from_raw(auster.child.id().cast_signed()),
            Signal::SIGHUP,
        )
        .unwrap()
    };
    ovs.wait_for_interfaces("bfd_status:state=up", &watched, retry);
    assert_eq!(ovs.interfaces("bfd:auster!=none"), watched);
    assert_eq!(ovs.interfaces("bfd:min_tx=300"), watched);
    assert_eq!(ovs.interfaces("bfd:enable=false"), ["p12"]);

    assert_eq!(auster.end(Signal::SIGTERM), Some(0));
    assert_eq!(ovs.interfaces("bfd:min_rx=300"), watched);
    config("");
    let auster = Auster::start(&line);
    auster.line("listening on ");
    ovs.wait_for_interfaces("bfd:enable=true", &[], || {});
    assert_eq!(ovs.interfaces("bfd:enable=false"), ["p12"]);
}
