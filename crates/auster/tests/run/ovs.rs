//! Real Open vSwitch of our own: a database and a daemon with a dummy datapath, in a directory of
//! their own, without root's help.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::Auster;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

struct Ovs {
    dir: TempDir,
}

impl Ovs {
    fn start() -> Ovs {
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Output {
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

    fn vsctl(&self, arguments: &[&str]) {
        let database = format!("--db=unix:{}", self.path("db.sock").display());
        self.run("ovs-vsctl", &[&[&database as &str], arguments].concat());
    }

    fn add_bridge(&self, name: &str, datapath_id: &str, protocol: &str, controller: &str) {
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

    fn flows(&self, bridge: &str) -> String {
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
    // One of them is for the first second only.
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
