//! Access lists and bindings on Open vSwitch: they hold at once after SIGHUP, for what is named and
//! nothing else, and a file with a mistake changes nothing. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;

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

/// Host 2 has another address than its port is bound to.
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
    let said = reload(&wrong, &format!("vlans {path} refused"));
    assert!(
        said.contains("auster.toml:4: acl_in: no [[acl]] has the name 'another'"),
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
