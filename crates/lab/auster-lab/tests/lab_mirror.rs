//! Mirrors on Open vSwitch: the port of a mirror gets as many frames as the mirrored port, in each
//! direction, after reloads and after a restart of the controller. As root.

#[path = "../../../auster/tests/common/mod.rs"]
mod common;

use std::fs;
use std::time::Duration;

use common::lab::{Lab, wait_for};
use common::run;
use common::running::Running;
use tempfile::TempDir;

/// Host 1 is mirrored to host 2. Host 3 is at the same switch, and host 4 at the other.
const SEEN: u32 = 1;
const PROBE: u32 = 2;
const ROUNDS_MAX: u32 = 8;
const READINGS_MAX: u32 = 100;

/// The frames that an interface has received and sent so far.
fn counts(lab: &Lab, host: u32) -> [u64; 2] {
    let text = lab.must(host, "ip -s -j link show dev eth0");
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |side: &str| read[0]["stats64"][side]["packets"].as_u64().unwrap();
    [of("rx"), of("tx")]
}

/// The frames that a mirror should have copied, and those that its port got.
struct Watch<'a> {
    lab: &'a Lab,
    direction: &'a str,
    seen: [u64; 2],
    probe: u64,
}

impl<'a> Watch<'a> {
    fn start(lab: &'a Lab, direction: &'a str) -> Watch<'a> {
        // Frames that leave the switch's port are those that the host receives.
        Watch {
            lab,
            direction,
            probe: counts(lab, PROBE)[0],
            seen: counts(lab, SEEN),
        }
    }

    fn found(&self) -> (u64, u64) {
        let [rx, tx] = counts(self.lab, SEEN);
        let (outs, ins) = (rx - self.seen[0], tx - self.seen[1]);
        let wanted = match self.direction {
            "in" => ins,
            "out" => outs,
            _ => ins + outs,
        };
        (wanted, counts(self.lab, PROBE)[0] - self.probe)
    }
}

/// Sends pings from all hosts but the probe, broadcasts, and packets to an unused address.
fn talk(lab: &Lab) {
    for (from, to) in [(3, 1), (4, 1), (1, 3), (1, 4), (3, 4)] {
        lab.must(
            from,
            &format!("ping -q -c 40 -i 0.01 -W 2 10.0.0.{to} || true"),
        );
    }
    for host in [1, 3, 4] {
        lab.must(
            host,
            "ping -q -b -c 20 -i 0.01 -W 1 10.255.255.255 2>&1 || true",
        );
        lab.must(host, "ping -q -c 1 -W 1 10.0.0.99 || true");
    }
}

/// Waits until the mirror copies frames, and then counts the copies of much traffic.
fn check(lab: &Lab, direction: &str, when: &str) {
    wait_for(&format!("{direction}, {when}: copies"), || {
        let watch = Watch::start(lab, direction);
        lab.must(4, "ping -q -c 5 -i 0.01 -W 2 10.0.0.1 || true");
        let (wanted, found) = watch.found();
        wanted >= 5 && wanted == found
    });
    // A busy machine may lose a frame: one round of many must be complete.
    let mut last = (0, 0);
    for _ in 0..ROUNDS_MAX {
        let watch = Watch::start(lab, direction);
        talk(lab);
        // An LLDP frame may be in flight between two readings.
        for _ in 0..READINGS_MAX {
            last = watch.found();
            if last.0 >= 150 && last.0 == last.1 {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    panic!("{direction}, {when}: (frames, copies) {last:?}");
}

#[test]
fn a_mirror_has_the_frames_of_its_port() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("auster.toml");
    let config = |direction: &str| {
        format!(
            "[[mirror]]\nname = \"m\"\nfrom = \"1:1\"\nto = \"1:2\"\ndirection = \"{direction}\"\n"
        )
    };
    fs::write(&file, config("both")).unwrap();
    let path = file.display().to_string();
    let mut controller = Running::start(&["run", "ptcp:0:127.0.0.1", "--config", &path]);
    let at = controller.listening("ptcp").to_string();
    let controller_at = format!("tcp:{at}");
    let lab = Lab::up(&["linear,2", "--hosts", "3", "--controller", &controller_at]);
    check(&lab, "both", "at first");
    let mut reload = |text: &str| {
        fs::write(&file, text).unwrap();
        run("kill", &["-HUP", &controller.child.id().to_string()]);
        controller.wait_for("in use: lists 0")
    };
    for direction in ["in", "out", "both"] {
        reload(&config(direction));
        check(&lab, direction, "after a reload");
    }
    let wrong = config("both").replace("\"1:2\"", "\"2:2\"");
    fs::write(&file, wrong).unwrap();
    run("kill", &["-HUP", &controller.child.id().to_string()]);
    let said = controller.wait_for(&format!("reload of {path}: refused"));
    assert!(said.contains("auster.toml:3:8: from: "), "{said}");
    check(&lab, "both", "after a mistake");

    let watch = Watch::start(&lab, "both");
    fs::write(&file, config("both")).unwrap();
    drop(controller);
    lab.must(3, "ping -q -c 100 -i 0.01 -W 2 10.0.0.1 || true");
    let port = at.rsplit(':').next().unwrap();
    let listen = format!("ptcp:{port}:127.0.0.1");
    let controller = Running::start(&["run", &listen, "--config", &path]);
    lab.must(3, "ping -q -c 100 -i 0.01 -W 2 10.0.0.1 || true");
    wait_for("no frame without its copy around the restart", || {
        let (wanted, found) = watch.found();
        wanted >= 150 && wanted == found
    });
    check(&lab, "both", "after a restart");
    drop(controller);
    assert!(lab.down().status.success());
}
