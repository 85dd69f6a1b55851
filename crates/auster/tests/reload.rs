//! A configuration that is read again: what is bound and ended, what the report says, and that a
//! mistake changes nothing. The script tests traffic over real Open vSwitch.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::ports::free_port;
use common::running::{AUSTER, PATIENCE, Running};
use common::switch::{Came, Switch};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Served {
    running: Running,
    dir: TempDir,
}

impl Served {
    fn start(text: &str) -> Served {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), text);
        let config = dir.path().join("run.toml").display().to_string();
        let running = Running::start(&["run", "--config", &config]);
        Served { running, dir }
    }

    fn reload_with(&self, text: &str) -> (Option<i32>, Value) {
        write(self.dir.path(), text);
        let api = format!("unix:{}/api.sock", self.dir.path().display());
        let output = auster(&["reload", "--json", "--api", &api]);
        let report = serde_json::from_slice(&output.stdout);
        let report = report.unwrap_or_else(|e| panic!("{e}: {output:?}"));
        (output.status.code(), report)
    }

    /// The address of the last listener that was opened.
    fn address(&mut self, count: usize) -> SocketAddr {
        let line = || "listening on ptcp:";
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.running.log.iter();
            let all: Vec<String> = log.filter(|l| l.contains(line())).cloned().collect();
            if all.len() >= count {
                let method = all[count - 1].rsplit("ptcp:").next().unwrap();
                let (port, host) = method.trim().split_once(':').unwrap();
                return format!("{host}:{port}").parse().unwrap();
            }
            assert!(Instant::now() < deadline, "{all:?}");
            self.running.wait_for_next();
        }
    }
}

/// A switch that answers beside the test, as a real one does, and the end of its connection.
struct Beside {
    is_asked: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Beside {
    fn up(at: SocketAddr, datapath: u64) -> Beside {
        let mut switch = Switch::up(at, datapath);
        let is_asked = Arc::new(AtomicBool::new(false));
        let asked = is_asked.clone();
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                if switch.serve(Duration::from_millis(50)) == Came::Closed {
                    return false;
                }
            }
            switch.is_answered(PATIENCE)
        });
        Beside { is_asked, thread }
    }

    /// Waits until the controller has closed the connection.
    fn ends(self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while !self.thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.goes_on()
    }

    fn goes_on(self) -> bool {
        self.is_asked.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn write(dir: &Path, text: &str) {
    let api = "[api]\nlisten = \"unix:api.sock\"\n";
    fs::write(dir.join("run.toml"), format!("{text}{api}")).unwrap();
}

fn auster(words: &[&str]) -> Output {
    Command::new(AUSTER).args(words).output().unwrap()
}

fn names(report: &Value, key: &str) -> Vec<String> {
    let all = report[key].as_array().unwrap().iter();
    all.map(|one| one["setting"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_mistake_changes_nothing_and_what_needs_a_restart_is_named_with_its_reason() {
    let good = "listen = \"ptcp:0:127.0.0.1\"\n";
    let mut served = Served::start(good);
    let at = served.address(1);
    let mut switch = Switch::up(at, 1);

    // Two mistakes in the file, beside a change that is right.
    let wrong = format!("{good}lisen = 1\nallow_dpid = \"2\"\n[session]\nguard = 3\n");
    let (code, report) = served.reload_with(&wrong);
    assert_eq!((code, &report["applied"]), (Some(2), &json!(false)));
    let mistakes = report["mistakes"].to_string();
    for expected in [
        "run.toml:2:1: 'lisen'",
        "did you mean listen?",
        "run.toml:5:9: guard is 3",
    ] {
        assert!(mistakes.contains(expected), "{mistakes}");
    }
    // An address that another process uses: all else is right, but nothing is applied.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let wrong =
        format!("listen = [\"ptcp:0:127.0.0.1\", \"ptcp:{port}:127.0.0.1\"]\nallow_dpid = \"2\"\n");
    let (code, report) = served.reload_with(&wrong);
    assert_eq!(code, Some(2), "{report}");
    assert!(
        report["mistakes"][0].as_str().unwrap().contains("in use"),
        "{report}"
    );
    assert!(switch.is_served(), "it may be served still");

    let (code, report) = served.reload_with(&format!("{good}threads = 3\nmode = \"hybrid\"\n"));
    assert_eq!((code, names(&report, "changed")), (Some(0), vec![]));
    assert_eq!(
        names(&report, "needs_restart"),
        ["mode", "forwarding", "threads"]
    );
    let reason = report["needs_restart"][2]["reason"].as_str().unwrap();
    assert!(reason.contains("thread"), "{reason}");
    let (_, report) = served.reload_with(good);
    assert_eq!(
        names(&report, "needs_restart"),
        [""; 0],
        "it is as at the start"
    );
    assert!(switch.is_served());
}

/// Also by a client that has seen no event before the restart.
#[test]
fn events_are_followed_beyond_a_restart() {
    let good = "listen = \"ptcp:0:127.0.0.1\"\n";
    let mut served = Served::start(good);
    served.running.wait_for("api.sock");
    let api = format!("unix:{}/api.sock", served.dir.path().display());
    let follow = |more: &[&str]| {
        let words = ["events", "--follow", "--api", &api];
        Running::start(&[&words, more].concat())
    };
    served.reload_with(good);
    let mut quiet = follow(&["--since", "0", "--kind", "reloaded"]);
    let mut seen = follow(&["--since", "0", "--kind", "reloaded,reload_refused"]);
    for follower in [&mut quiet, &mut seen] {
        let line = follower.wait_for(" reloaded ");
        assert!(line.starts_with("20") && line.contains("Z "), "{line}");
    }

    served.running.child.kill().unwrap();
    served.running.child.wait().unwrap();
    for follower in [&mut quiet, &mut seen] {
        follower.wait_for("connecting again");
    }
    let config = served.dir.path().join("run.toml").display().to_string();
    served.running = Running::start(&["run", "--config", &config]);
    for follower in [&mut quiet, &mut seen] {
        follower.wait_for("answers again");
    }
    served.reload_with("lisen = 1\n");
    seen.wait_for(" reload_refused ");
    assert!(quiet.is_running());
}

/// Warnings are in the report, and do not refuse it.
#[test]
fn a_report_has_the_warnings() {
    let good = "listen = \"ptcp:0:127.0.0.1\"\nforwarding = \"paths\"\n";
    let mut served = Served::start(good);
    served.running.wait_for("api.sock");
    let unused = "[[acl]]\nname = \"a\"\n[[acl.rule]]\nallow = true\n";
    let (code, report) = served.reload_with(&format!("{good}{unused}"));
    let warnings = report["warnings"].to_string();
    assert_eq!(code, Some(0));
    assert!(warnings.contains("run.toml:5:1: no acl_in"), "{warnings}");
    assert!(!warnings.contains("connect again"), "{warnings}");
    let bound = "[[port]]\nat = \"1:2\"\nbind = \"02:00:00:00:00:01\"\n";
    let (_, report) = served.reload_with(&format!("{good}{bound}"));
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("switches connect again"), "{warnings}");
}

#[test]
fn a_closed_listener_refuses_a_new_one_serves_and_connected_switches_stay() {
    let [first, second] = [(); 2].map(|()| free_port());
    let listen = |port: u16| format!("listen = \"ptcp:{port}:127.0.0.1\"\n");
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let mut served = Served::start(&listen(first));
    assert_eq!(served.address(1), at(first));
    let stays = Beside::up(at(first), 1);

    // An address that cannot be bound: the listener that it would have replaced still serves.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = listen(taken.local_addr().unwrap().port());
    let (code, report) = served.reload_with(&wrong);
    assert_eq!((code, &report["applied"]), (Some(2), &json!(false)));
    let comes = Beside::up(at(first), 2);
    assert!(comes.goes_on(), "{report}");

    let (code, report) = served.reload_with(&listen(second));
    assert_eq!(
        (code, names(&report, "changed")),
        (Some(0), vec!["listen".to_owned()])
    );
    assert!(
        std::net::TcpStream::connect(at(first)).is_err(),
        "it is closed"
    );
    assert!(Beside::up(at(second), 3).goes_on());
    assert!(stays.goes_on(), "who came by the closed one stays");
}

#[test]
fn a_switch_that_is_no_longer_allowed_is_cut_and_another_stays() {
    let listen = "listen = \"ptcp:0:127.0.0.1\"\n";
    let mut served = Served::start(listen);
    let at = served.address(1);
    let [goes, stays] = [1, 2].map(|datapath| Beside::up(at, datapath));
    let (code, report) = served.reload_with(&format!("{listen}allow_dpid = \"2\"\n"));
    assert_eq!(
        (code, names(&report, "changed")),
        (Some(0), vec!["allow_dpid".to_owned()])
    );
    assert!(goes.ends(), "{report}");
    assert!(Beside::up(at, 1).ends(), "nor may it come again");
    assert!(stays.goes_on(), "{report}");
}

/// Changed limits send nothing to a switch, which gets LLDP and liveness messages only.
#[test]
fn a_switch_is_sent_nothing_about_limits() {
    let good = "listen = \"ptcp:0:127.0.0.1\"\n";
    let mut served = Served::start(good);
    let mut switch = Switch::up(served.address(1), 1);
    let limits = format!(
        "{good}[controller]\npath_rate_max = 9\nhost_count_max = 77\nswitch_grace_ms = 100\n\
         [session]\nmessages_max = 9\n"
    );
    let (_, report) = served.reload_with(&limits);
    assert_eq!(names(&report, "changed").len(), 4, "{report}");
    let until = Instant::now() + Duration::from_millis(800);
    while Instant::now() < until {
        if let Came::Message(frame) = switch.serve(Duration::from_millis(200)) {
            let kind = frame.kind();
            assert_ne!(kind, openflow::MessageKind::FlowMod, "{report}");
        }
    }
}

#[test]
fn a_configuration_is_checked_and_shown_without_being_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let path = file.display().to_string();
    fs::write(
        &file,
        "listen = \"ptcp:6653\"\n[controller]\npath_rate_max = 500\n",
    )
    .unwrap();
    let checked = auster(&["run", "--check", "--config", &path]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(
        (checked.status.code(), &*said),
        (Some(0), &*format!("{path} is good\n"))
    );
    let shown = auster(&[
        "config",
        "show",
        "--config",
        &path,
        "--set",
        "--threads",
        "3",
    ]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for (setting, value, source) in [
        ("listen", "[\"ptcp:6653\"]", "run.toml:1"),
        ("controller.path_rate_max", "500", "run.toml:3"),
        ("threads", "3", "--threads"),
    ] {
        let line = shown
            .lines()
            .find(|line| line.trim_start().starts_with(setting));
        let line = line.unwrap_or_else(|| panic!("{setting}: {shown}"));
        assert!(line.contains(value) && line.ends_with(source), "{line}");
    }
    fs::write(
        &file,
        "listen = 7\nlink = \"x\"\n[controller]\npath_rate_max = 0\n",
    )
    .unwrap();
    let checked = auster(&["run", "--check", "--config", &path]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{said}");
    for expected in [
        "run.toml:1:10: listen is 7",
        "run.toml:2:1: 'link' is not known here",
        "did you mean links?",
        "run.toml:4:17: path_rate_max is 0; it must be a number from 1 to 10000000",
        "has 3 mistakes",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let schema = auster(&["config", "schema"]);
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let rate = &schema["properties"]["controller"]["properties"]["path_rate_max"];
    assert_eq!(rate["minimum"], 1, "{rate}");
}

/// Real Open vSwitch and 1,000 packets a second. Only `scripts/reload` takes all kinds, also those
/// that move paths: there a switch that gets no processor for long may reorder packets.
#[test]
fn reloads_lose_no_packet_and_reorder_none() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/reload");
    let mut command = Command::new(script);
    command.args(["--auster", env!("CARGO_BIN_EXE_auster"), "--times", "1"]);
    for kind in [
        "listen: one more",
        "limits of paths",
        "links and topology",
        "qos",
        "mistakes",
    ] {
        command.args(["--only", kind]);
    }
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{script}: {e}: run scripts/setup"));
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}{errors}");
    assert!(report.contains("0 lost, 0 reordered"), "{report}");
}
