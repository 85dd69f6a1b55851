//! `auster run` as a process: its flags and failures, scripted switches, real Open vSwitch, and
//! four thousand hostile peers.

#[path = "run/alerts.rs"]
mod alerts;
#[path = "run/cluster.rs"]
mod cluster;
#[path = "run/cluster_faults.rs"]
mod cluster_faults;
#[path = "../../etcd/tests/common/etcd.rs"]
#[allow(dead_code, reason = "each test uses its part of it")]
mod etcd_server;
#[path = "run/faults.rs"]
mod faults;
#[path = "run/guard.rs"]
mod guard;
#[path = "run/hostile.rs"]
mod hostile;
#[path = "run/intent.rs"]
mod intent;
#[path = "run/kept.rs"]
mod kept;
#[path = "run/ovs.rs"]
mod ovs;
#[path = "common/ports.rs"]
mod ports;
#[path = "run/restart.rs"]
mod restart;
#[path = "../../net/tests/common/switch.rs"]
mod switch;
#[path = "run/taps.rs"]
mod taps;
#[path = "run/upgrade.rs"]
mod upgrade;
#[path = "run/versions.rs"]
mod versions;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use switch::{PATIENCE, Switch, packet_in};
use tempfile::TempDir;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A running `auster run`, ended with the test.
pub struct Auster {
    child: Child,
    lines: mpsc::Receiver<String>,
    pub dir: TempDir,
}

impl Auster {
    /// Starts with `arguments` and a status socket.
    pub fn start(arguments: &[&str]) -> Auster {
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        command.arg("run").args(arguments);
        Auster::spawn(command)
    }

    /// Starts a command that ends with the arguments of `auster run`, with a status socket.
    fn spawn(mut command: Command) -> Auster {
        let dir = tempfile::tempdir().unwrap();
        let mut child = command
            .arg("--status")
            .arg(dir.path().join("status"))
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Auster { child, lines, dir }
    }

    /// The next line of its output that contains `text`.
    pub fn line(&self, text: &str) -> String {
        self.lines_until(text).pop().expect("that line")
    }

    /// The next lines of its output, up to the one that contains `text`.
    pub fn lines_until(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        let give_up = std::time::Instant::now() + PATIENCE;
        loop {
            let left = give_up.saturating_duration_since(std::time::Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => seen.push(line),
                Err(_) => panic!("no line with '{text}' in {seen:#?}"),
            }
            if seen.last().is_some_and(|line| line.contains(text)) {
                return seen;
            }
        }
    }

    /// The port of its first listener.
    pub fn port(&self) -> u16 {
        let line = self.line("listening on ");
        let port = line.split(':').nth(1).unwrap();
        port.parse().unwrap()
    }

    /// The address of its API; after [`Auster::port`].
    pub fn api(&self) -> std::net::SocketAddr {
        let line = self.line("API on http://");
        let at = line.split("http://").nth(1).unwrap();
        at.split('/').next().unwrap().parse().unwrap()
    }

    pub fn status(&self) -> Value {
        let give_up = std::time::Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(self.dir.path().join("status")) {
                Ok(mut socket) => {
                    let mut text = String::new();
                    socket.read_to_string(&mut text).unwrap();
                    return serde_json::from_str(&text).unwrap();
                }
                Err(error) => assert!(std::time::Instant::now() < give_up, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    /// Whether its process is stopped (`T` behind the name in `stat`).
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.is_ok_and(|stat| stat.contains(") T "))
    }

    /// Sends `signal` and waits for the exit code.
    pub fn end(&mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, signal).unwrap();
        let give_up = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(std::time::Instant::now() < give_up, "does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Auster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type TcpSwitch = Switch<OwnedReadHalf, OwnedWriteHalf>;

pub async fn dial(port: u16, datapath_id: u64) -> TcpSwitch {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (reader, writer) = stream.into_split();
    Switch::new(reader, writer, datapath_id)
}

/// Runs auster to its end, for arguments that cannot work.
fn failing(arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_auster"))
        .arg("run")
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn what_cannot_work_is_told_with_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = write(dir.path(), "garbage.pem", "no PEM");
    let garbage = garbage.to_str().unwrap();
    let config = write(dir.path(), "net.toml", "mode = \"fast\"\nspeed = 1\n");
    let config = config.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("ptcp:{}:127.0.0.1", taken.local_addr().unwrap().port());
    let tls = ["-p", garbage, "-c", garbage, "-C", garbage];
    let missing = ["-p", "/no/such", "-c", "/no/such", "-C", "/no/such"];
    let cases: [(&[&str], i32, &str); 9] = [
        (&["udp:1.2.3.4"], 2, "'udp:' is no connection method"),
        (
            &["--listen", "tcp:1.2.3.4"],
            2,
            "put a 'p' before it to listen",
        ),
        (
            &["--listen", "pssl:0"],
            2,
            "pssl:0:0.0.0.0 needs certificates",
        ),
        (&["-p", garbage], 2, "-c CERT -C CA is missing"),
        (
            &["--config", config],
            2,
            "net.toml:1:8: mode: 'fast' is none of",
        ),
        (&["--config", "/no/such"], 5, "/no/such: No such file"),
        (&tls, 4, "no private key in it"),
        (&missing, 5, "/no/such: No such file"),
        (&[&taken], 4, "the address is in use"),
    ];
    for (arguments, code, problem) in cases {
        let (found, said) = failing(arguments);
        assert!(said.contains(problem), "{arguments:?}: {said}");
        assert_eq!(found, Some(code), "{arguments:?}: {said}");
    }
    let (_, said) = failing(&["--config", config]);
    assert!(
        said.contains("net.toml:2:1: 'speed' is not known"),
        "{said}"
    );
}

#[tokio::test]
async fn a_policy_map_is_read_again_on_sighup_and_a_wrong_one_is_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let good =
        "Generation: 7\nRule #1: traffic_type=2, action=queue_id:1\nDefault: action=queue_id:0\n";
    let file = write(dir.path(), "voice.policy", good);
    let auster = Auster::start(&["ptcp:0:127.0.0.1", "--policy", file.to_str().unwrap()]);
    let port = auster.port();
    let mut switch = dial(port, 1).await;
    switch.set_up().await.expect("set up");
    auster.line("up");
    switch.send(9, &packet_in(1, b"no packet")).await.unwrap();
    let give_up = std::time::Instant::now() + PATIENCE;
    let policy = loop {
        let policy = auster.status()["policy"].clone();
        let is_hit = policy["rules"][0]["hits"].as_u64() >= Some(1);
        let processed = &policy["queues"][1]["received"]["processed"];
        if is_hit && processed.as_u64() > Some(0) {
            break policy;
        }
        assert!(std::time::Instant::now() < give_up, "{policy}");
    };
    assert_eq!(policy["generation"], 7, "{policy}");
    let hang_up = || {
        kill(
            Pid::from_raw(auster.child.id().cast_signed()),
            Signal::SIGHUP,
        )
        .unwrap()
    };
    let wrong = "Generation: 8\nRule #1: traffic_type=5, action=queue_id:1\nRule #2: color=red\n";
    write(dir.path(), "voice.policy", wrong);
    hang_up();
    // The line lists all mistakes.
    let line = auster.line("refused, all in use stays");
    for word in ["E03", "E02"] {
        assert!(line.contains(word), "{line}");
    }
    assert_eq!(auster.status()["policy"]["generation"], 7);
    write(dir.path(), "voice.policy", &good.replace('7', "8"));
    hang_up();
    auster.line("in use: generation 8");
    assert_eq!(auster.status()["policy"]["generation"], 8);
    switch.echo(5).await.expect("nothing was interrupted");
}

/// The refusal lists every mistake. The timeouts in use stay, and so does everything else.
#[tokio::test]
async fn timeouts_are_read_again_on_sighup_and_wrong_ones_are_refused_whole() {
    let dir = tempfile::tempdir().unwrap();
    let good = "[timeouts]\npolicy = \"lease\"\nlease_s = 10\ntable_entries_max = 500\n";
    let file = write(dir.path(), "net.toml", good);
    let auster = Auster::start(&["ptcp:0:127.0.0.1", "--config", file.to_str().unwrap()]);
    let mut switch = dial(auster.port(), 1).await;
    switch.set_up().await.expect("set up");
    auster.line("up");
    let hang_up = || {
        let pid = Pid::from_raw(auster.child.id().cast_signed());
        kill(pid, Signal::SIGHUP).unwrap();
    };
    let wrong = "[timeouts]\npolicy = \"fixed\"\nidle_s = 9\nhard_s = 5\n\
                 [[timeouts.class]]\nname = \"a\"\nsrc = \"h1\"\n";
    write(dir.path(), "net.toml", wrong);
    hang_up();
    let line = auster.line("refused, all in use stays");
    for problem in [
        "net.toml:3:10: idle_s is 9",
        "net.toml:7:7: src: 'h1' is no",
    ] {
        assert!(line.contains(problem), "{line}");
    }
    let status = auster.status();
    assert_eq!(status["timeouts"]["policy"], "lease");
    assert_eq!(
        status["switches"][0]["table"]["edge_hard_s"], 10,
        "{status}"
    );
    write(dir.path(), "net.toml", &good.replace("10", "20"));
    hang_up();
    auster.line("in use: policy lease");
    let status = auster.status();
    assert_eq!(
        status["switches"][0]["table"]["edge_hard_s"], 20,
        "{status}"
    );
    // The load of a process that has nothing to do, sampled each second.
    let load = status["timeouts"]["load_percent"].as_f64().unwrap();
    assert!((0.0..1000.0).contains(&load), "{status}");
    switch.echo(5).await.expect("nothing was interrupted");
}

#[tokio::test]
async fn a_topology_is_compared_and_read_again_on_sighup_unless_it_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "cables.toml", "switches = [\"1\", \"2\"]\n");
    let auster = Auster::start(&["ptcp:0:127.0.0.1", "--topology", file.to_str().unwrap()]);
    let mut switch = dial(auster.port(), 1).await;
    switch.set_up().await.expect("set up");
    let answering = async {
        while let Some(frame) = switch.receive().await {
            let _ = switch.answer(&frame).await;
        }
    };
    let check = tokio::task::spawn_blocking(move || {
        auster.line("topology: switch 0000000000000002 is not connected");
        let differences = auster.status()["topology_differences"].clone();
        assert_eq!(differences.as_array().unwrap().len(), 1, "{differences}");
        let hang_up = || {
            let pid = Pid::from_raw(auster.child.id().cast_signed());
            kill(pid, Signal::SIGHUP).unwrap();
        };
        // Wrong in itself, and then because the switch lacks the port.
        write(dir.path(), "cables.toml", "links = [\"1:1 1:2\"]\n");
        hang_up();
        let line = auster.line("refused, all in use stays");
        assert!(line.contains("cables.toml:1:10: links: "), "{line}");
        write(dir.path(), "cables.toml", "\nlinks = [\"1:77 2:1\"]\n");
        hang_up();
        let line = auster.line("refused, all in use stays");
        let expected = "cables.toml:2: the switch has no port 0000000000000001:77";
        assert!(line.contains(expected), "{line}");
        assert_eq!(auster.status()["topology_differences"], differences);
        write(dir.path(), "cables.toml", "switches = [\"1\"]\n");
        hang_up();
        auster.line("cables.toml in use");
        assert_eq!(
            auster.status()["topology_differences"],
            serde_json::json!([])
        );
        auster
    });
    tokio::select! {
        () = answering => panic!("the switch was closed"),
        checked = check => drop(checked.unwrap()),
    }
}

#[tokio::test]
async fn a_switch_is_shown_in_lines_and_status_and_signals_end_it_cleanly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut auster = Auster::start(&["ptcp:0:127.0.0.1"]);
        let mut switch = dial(auster.port(), 0x2a).await;
        switch.set_up().await.expect("set up");
        let line = auster.line("up");
        assert!(
            line.starts_with("switch 000000000000002a up: OpenFlow 1.3 over tcp:127.0.0.1:"),
            "{line}"
        );
        switch.echo(5).await.unwrap();
        let status = auster.status();
        let shown = &status["switches"][0];
        assert_eq!(shown["dpid"], "000000000000002a");
        assert_eq!(shown["transport"], "tcp");
        assert_eq!(shown["version"], "1.3");
        assert!(shown["messages_in"].as_u64().unwrap() >= 5, "{status}");
        assert!(shown["messages_out"].as_u64().unwrap() >= 4, "{status}");
        assert_eq!(status["connections"]["up"], 1);
        assert_eq!(status["drops"]["packet_ins_inbox_full"], 0);

        assert_eq!(auster.end(signal), Some(0));
        auster.line("switch 000000000000002a down: auster stops");
        assert!(!auster.dir.path().join("status").exists());
    }
}

#[tokio::test]
async fn events_are_json_lines_when_asked_for() {
    let auster = Auster::start(&["--listen", "ptcp:0:127.0.0.1", "--json"]);
    let listening: Value = serde_json::from_str(&auster.line("listening")).unwrap();
    let method = listening["method"].as_str().unwrap();
    let port: u16 = method.split(':').nth(1).unwrap().parse().unwrap();
    let mut switch = dial(port, 9).await;
    switch.set_up().await.unwrap();
    let up: Value = serde_json::from_str(&auster.line("switch_up")).unwrap();
    assert_eq!(up["dpid"], "0000000000000009");
    assert!(up["time_s"].as_f64().unwrap() > 1e9);
    drop(switch);
    let down: Value = serde_json::from_str(&auster.line("switch_down")).unwrap();
    assert_eq!(down["reason"], "closed_by_peer");
}

/// Open vSwitch offers versions in a bitmap; an older switch has the version byte alone.
#[tokio::test]
async fn a_switch_of_other_versions_is_refused_by_an_event_with_the_versions_of_both() {
    let auster = Auster::start(&["--listen", "ptcp:0:127.0.0.1", "--json"]);
    let listening: Value = serde_json::from_str(&auster.line("listening")).unwrap();
    let method = listening["method"].as_str().unwrap();
    let port: u16 = method.split(':').nth(1).unwrap().parse().unwrap();
    let hellos: [(&[u8], &str); 3] = [
        (&[2, 0, 0, 8, 0, 0, 0, 1], "1.1"),
        (&[3, 0, 0, 8, 0, 0, 0, 1], "1.2"),
        (
            &[6, 0, 0, 16, 0, 0, 0, 1, 0, 1, 0, 8, 0, 0, 0, 0x60],
            "1.4, 1.5",
        ),
    ];
    let mut addresses = Vec::new();
    for (count, (hello, _)) in (1..).zip(hellos) {
        let mut switch = dial(port, 9).await;
        addresses.push(switch.writer.local_addr().unwrap().to_string());
        switch.send_bytes(hello).await.unwrap();
        while switch.receive().await.is_some() {}
        let give_up = std::time::Instant::now() + PATIENCE;
        while auster.status()["ended"]["version_mismatch"] != count {
            assert!(std::time::Instant::now() < give_up, "{count} are counted");
        }
    }
    dial(port, 9).await.set_up().await.unwrap();
    let said = auster.lines_until("switch_up");
    let events = said.iter().filter(|line| line.contains("\"refused\""));
    let events: Vec<Value> = events
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), hellos.len(), "{said:#?}");
    for ((event, address), (_, versions)) in events.iter().zip(addresses).zip(hellos) {
        let said = event["address"].as_str().unwrap();
        assert!(said.ends_with(&address), "{address}: {event}");
        assert_eq!(event["reason"], "version_mismatch");
        assert_eq!(event["versions"], versions);
        assert_eq!(event["versions_of_auster"], "1.0, 1.3");
    }
}

#[tokio::test]
async fn a_datapath_that_is_not_allowed_is_refused() {
    let auster = Auster::start(&["ptcp:0:127.0.0.1", "--allow-dpid", "1"]);
    let port = auster.port();
    let mut stranger = dial(port, 2).await;
    stranger.set_up().await;
    while stranger.receive().await.is_some() {}
    let line = auster.line("refused");
    assert!(
        line.contains("0000000000000002 is not among the allowed"),
        "{line}"
    );
    let mut known = dial(port, 1).await;
    known.set_up().await.unwrap();
    auster.line("switch 0000000000000001 up");
}

/// The attacker knows the id, and the victim keeps its connection: a hundred times.
#[tokio::test]
async fn a_spoofed_datapath_id_never_costs_the_victim_its_connection() {
    let auster = Auster::start(&["ptcp:0:127.0.0.1"]);
    let port = auster.port();
    let mut victim = dial(port, 7).await;
    victim.set_up().await.unwrap();
    auster.line("switch 0000000000000007 up");
    for attempt in 0..100 {
        let spoofed = async {
            let mut spoofer = dial(port, 7).await;
            spoofer.set_up().await;
            while spoofer.receive().await.is_some() {}
        };
        let mut spoofed = std::pin::pin!(spoofed);
        // The victim answers all the while: auster asks it whether it is alive.
        for echo in 0.. {
            tokio::select! {
                () = &mut spoofed => break,
                answer = victim.echo(1000 * (attempt + 1) + echo) => {
                    answer.expect("the victim stays");
                }
            }
        }
    }
    let status = auster.status();
    assert_eq!(status["switches"].as_array().unwrap().len(), 1, "{status}");
    auster.line("refused");
}

#[tokio::test]
async fn a_switch_that_listens_is_dialled_again_and_again() {
    let passive = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let method = format!("tcp:{}", passive.local_addr().unwrap());
    let auster = Auster::start(&["--connect", &method]);
    for _ in 0..3 {
        let accepted = tokio::time::timeout(PATIENCE, passive.accept()).await;
        let (reader, writer) = accepted.unwrap().unwrap().0.into_split();
        let mut switch = Switch::new(reader, writer, 3);
        switch.set_up().await.unwrap();
        auster.line("switch 0000000000000003 up");
    }
}

#[tokio::test]
async fn a_flood_of_packet_ins_delays_no_other_switchs_echo() {
    let auster = Auster::start(&["ptcp:0:127.0.0.1"]);
    let port = auster.port();
    let mut quiet = dial(port, 1).await;
    quiet.set_up().await.unwrap();
    let mut flooder = dial(port, 2).await;
    flooder.set_up().await.unwrap();
    let flood = tokio::spawn(async move {
        // It never reads, so the controller's side of it fills as well.
        let end = std::time::Instant::now() + Duration::from_secs(3);
        let mut sent = 0;
        while std::time::Instant::now() < end {
            let message = packet_in(1, b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x08\0flood");
            let write = flooder.send(sent, &message);
            match tokio::time::timeout(Duration::from_secs(1), write).await {
                Ok(Some(())) => sent += 1,
                _ => break,
            }
        }
        (sent, flooder)
    });
    let mut worst = Duration::ZERO;
    let mut count = 0;
    while !flood.is_finished() {
        worst = worst.max(quiet.echo(5000 + count).await.expect("stays connected"));
        count += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (sent, _flooder) = flood.await.unwrap();
    assert!(sent > 1000, "{sent} packet-ins are no flood");
    // Less than any keep-alive waits; `auster bench` measures how much less.
    assert!(
        worst < Duration::from_secs(10),
        "worst of {count} echoes: {worst:?}"
    );
}
