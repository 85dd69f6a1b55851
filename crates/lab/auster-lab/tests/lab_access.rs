//! Access lists and bindings on Open vSwitch: they apply at once after SIGHUP, only to what they
//! name, and a file with a mistake changes nothing. A port learns its host's address from the DHCP
//! server dnsmasq and its client udhcpc. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::lab::{Lab, wait_for};
use common::run;
use common::running::Running;
use tempfile::TempDir;

const NO_PING: &str = r#"
[[port]]
at = "1:1"
acl_in = "no-ping"
[[acl]]
name = "no-ping"
[[acl.rule]]
match = "icmp,icmp_type=8,nw_dst=10.0.0.3"
allow = false
[[acl.rule]]
allow = true
"#;

/// Host 2 has a different address from the one that its port is bound to.
const BOUND: &str = r#"
[[port]]
at = "2:1"
bind = "02:00:00:00:00:77 10.0.0.77"
[guard]
routers = []
"#;

fn pings(lab: &Lab, from: u32, to: u32) -> bool {
    let ping = format!("ping -c 1 -W 1 10.0.0.{to}");
    let output = lab.exec(&format!("h{from}"), &["sh", "-c", &ping]);
    output.status.success()
}

#[test]
fn lists_and_bindings_hold_after_a_reload() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    fs::write(&file, "").unwrap();
    let path = file.display().to_string();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
    let at = controller.listening("ptcp").to_string();
    let lab = Lab::up(&["linear,3", "--controller", &format!("tcp:{at}")]);
    let pairs = [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)];
    let all_but = |barred: &[(u32, u32)], what: &str| {
        for (from, to) in pairs {
            let may = !barred.contains(&(from, to));
            let what = format!("{what}: {from} to {to}: {may}");
            wait_for(&what, || pings(&lab, from, to) == may);
        }
    };
    let mut reload = |text: &str, answer: &str| {
        fs::write(&file, text).unwrap();
        run("kill", &["-HUP", &controller.child.id().to_string()]);
        controller.wait_for(answer)
    };
    all_but(&[], "without lists");
    reload(NO_PING, "in use: lists 1, rules 2, bound ports 0");
    all_but(&[(1, 3)], "with a list");
    let wrong = NO_PING.replace("\"no-ping\"\n[[acl]]", "\"another\"\n[[acl]]");
    let said = reload(&wrong, &format!("reload of {path}: refused"));
    assert!(
        said.contains(": acl_in: no [[acl]] has the name 'another'"),
        "{said}"
    );
    all_but(&[(1, 3)], "after a mistake");
    reload(BOUND, "in use: lists 0, rules 0, bound ports 1");
    all_but(
        &[(1, 2), (2, 1), (2, 3), (3, 2)],
        "bound to another address",
    );
    reload("", "in use: lists 0, rules 0, bound ports 0");
    all_but(&[], "without all of it");
    assert!(lab.down().status.success());
}

/// The third port has the DHCP server.
const BY_DHCP: &str = r#"
[[port]]
at = "1:1"
bind = "dhcp"
[guard]
dhcp_servers = "3:1"
"#;

/// The script by which udhcpc sets the address.
const TAKES_ADDRESS: &str = "#!/bin/sh\nif [ \"$1\" = bound ]; then\n  \
                             ip addr add $ip/24 dev $interface\nfi\n";

/// dnsmasq at a host of the lab.
struct Server(PathBuf);

impl Server {
    fn start(lab: &Lab, host: u32, dir: &Path) -> Server {
        let pid = dir.join("dnsmasq.pid");
        let line = format!(
            "dnsmasq --conf-file=/dev/null --port=0 --user=root --interface=eth0 \
             --bind-interfaces --dhcp-range=10.0.0.100,10.0.0.100,10m --dhcp-authoritative \
             --no-ping --leasefile-ro --pid-file={}",
            pid.display()
        );
        lab.must(host, &line);
        Server(pid)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(&self.0) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

#[test]
fn a_port_learns_the_address_that_its_host_has_by_dhcp() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    fs::write(&file, BY_DHCP).unwrap();
    let path = file.display().to_string();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
    let at = controller.listening("ptcp");
    let lab = Lab::up(&["linear,3", "--controller", &format!("tcp:{at}")]);
    wait_for("2 reaches 3", || pings(&lab, 2, 3));
    assert!(!pings(&lab, 1, 2), "it has no address from the server");
    let _server = Server::start(&lab, 3, dir.path());
    let script = dir.path().join("takes-address");
    fs::write(&script, TAKES_ADDRESS).unwrap();
    run("chmod", &["+x", &script.display().to_string()]);
    lab.must(1, "ip addr flush dev eth0");
    let asks = format!("udhcpc -i eth0 -n -q -t 5 -T 2 -s {}", script.display());
    wait_for("the server answers", || {
        let output = lab.exec("h1", &["sh", "-c", &asks]);
        output.status.success()
    });
    assert!(lab.must(1, "ip addr show eth0").contains("10.0.0.100/24"));
    wait_for("1 reaches 2", || pings(&lab, 1, 2));
    lab.must(1, "ip addr add 10.0.0.66/24 dev eth0");
    let forges = lab.exec("h1", &["sh", "-c", "ping -c 3 -W 1 -I 10.0.0.66 10.0.0.2"]);
    assert!(!forges.status.success(), "another address passes");
    // The next process sees no DHCP request or answer, and has only the switch's entries to learn
    // from.
    let listen = format!("ptcp:{}:{}", at.port(), at.ip());
    drop(controller);
    let mut controller = Running::start(&["run", &listen, "--config", &path]);
    controller.listening("ptcp");
    wait_for("2 reaches 3 again", || pings(&lab, 2, 3));
    wait_for("1 reaches 2 again", || pings(&lab, 1, 2));
    let forges = lab.exec("h1", &["sh", "-c", "ping -c 3 -W 1 -I 10.0.0.66 10.0.0.2"]);
    assert!(!forges.status.success(), "another address passes now");
    fs::write(&file, "").unwrap();
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    wait_for("another address passes without a binding", || {
        let forges = lab.exec("h1", &["sh", "-c", "ping -c 1 -W 1 -I 10.0.0.66 10.0.0.2"]);
        forges.status.success()
    });
    assert!(lab.down().status.success());
}
