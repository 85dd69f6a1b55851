//! A session between two relays outlives another address of the switch, a dead path, and another
//! address of the controller's relay. It does not outlive another controller relay. The tests make
//! network namespaces of their own with two cables between them, so they need root.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const AUSTER: &str = env!("CARGO_BIN_EXE_auster");
/// Far beyond what anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

static SITES: AtomicU32 = AtomicU32::new(0);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two machines: the switch's at 10.91.n.1 and the controllers' at 10.91.n.2, by cable n.
struct Site {
    dir: TempDir,
    names: [String; 2],
    relays: BTreeMap<&'static str, Process>,
    controllers: BTreeMap<&'static str, UnixListener>,
}

impl Site {
    fn new() -> Site {
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        let names = ["s", "c"].map(|side| format!("rs{}x{number}{side}", std::process::id()));
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
            names,
            relays: BTreeMap::new(),
            controllers: BTreeMap::new(),
        };
        let [switch, controller] = &site.names;
        for name in &site.names {
            run("ip", &["netns", "add", name]);
            run("ip", &["-n", name, "link", "set", "lo", "up"]);
        }
        for n in 0..2 {
            let line =
                format!("-n {switch} link add u{n} type veth peer name u{n} netns {controller}");
            run("ip", &line.split(' ').collect::<Vec<_>>());
            for (end, name) in site.names.iter().enumerate() {
                site.ip(end, &format!("addr add 10.91.{n}.{}/24 dev u{n}", end + 1));
                run("ip", &["-n", name, "link", "set", &format!("u{n}"), "up"]);
            }
        }
        for (kind, name) in [
            ("init", None),
            ("switch", Some("s1")),
            ("controller", Some("c1")),
        ] {
            let mut command = Command::new(AUSTER);
            command
                .current_dir(&site.dir)
                .args(["pki", kind])
                .args(name);
            let output = command.args(["--dir", "pki"]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        site
    }

    /// `ip` on the switch's machine (0) or the controllers' (1).
    fn ip(&self, end: usize, line: &str) {
        let words: Vec<&str> = ["-n", &self.names[end]]
            .into_iter()
            .chain(line.split(' '))
            .collect();
        run("ip", &words);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start_controller_relay(&mut self, name: &'static str, listen: &str) {
        let socket = self.path(&format!("{name}.ofp"));
        let controller = UnixListener::bind(socket).unwrap();
        controller.set_nonblocking(true).unwrap();
        self.controllers.insert(name, controller);
        let openflow = format!("unix:{name}.ofp");
        let words = ["--listen", listen, "--openflow", &openflow];
        self.start_relay(name, "controller", "c1", "switchca", &words);
    }

    fn start_switch_relay(&mut self, connect: &[&str]) {
        let mut words = vec!["--openflow", "punix:switch.ofp"];
        connect
            .iter()
            .for_each(|to| words.extend(["--connect", to]));
        self.start_relay("switch", "switch", "s1", "controllerca", &words);
        self.wait("the relays are joined", |site| {
            site.status("switch")["up"] == true
        });
    }

    fn start_relay(
        &mut self,
        name: &'static str,
        end: &str,
        certificate: &str,
        ca: &str,
        words: &[&str],
    ) {
        let namespace = &self.names[usize::from(end == "controller")];
        let log = File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, AUSTER, "relay", end]);
        command.args(words).args(["--grace-s", "60"]);
        command.args(["--status", &format!("unix:{name}.status")]);
        for (flag, file) in [
            ("-p", format!("{certificate}-privkey.pem")),
            ("-c", format!("{certificate}-cert.pem")),
            ("-C", format!("pki/{ca}/cacert.pem")),
        ] {
            command.arg(flag).arg(file);
        }
        command.current_dir(&self.dir).env("AUSTER_LOG", "info");
        command.stdout(Stdio::null()).stderr(log);
        self.relays.insert(name, Process(command.spawn().unwrap()));
        let status = self.path(&format!("{name}.status"));
        self.wait("the relay has started", |_| {
            UnixStream::connect(&status).is_ok()
        });
    }

    /// The status of the relay's one session.
    fn status(&self, relay: &str) -> Value {
        let mut socket = UnixStream::connect(self.path(&format!("{relay}.status"))).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let status: Value = serde_json::from_str(&text).unwrap();
        status["relays"][0].clone()
    }

    fn log(&self, relay: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{relay}.log"))).unwrap()
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut(&Site) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            if Instant::now() > deadline {
                let logs = self.relays.keys().map(|relay| self.log(relay));
                panic!("not so: {what}\n{}", logs.collect::<Vec<_>>().join("\n"));
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// A switch's connection, and the controller's behind `relay`.
    fn connect(&self, relay: &str) -> Talk {
        let switch = UnixStream::connect(self.path("switch.ofp")).unwrap();
        let mut controller = None;
        self.wait("the controller is dialled", |site| {
            controller = site.controllers[relay].accept().ok();
            controller.is_some()
        });
        let controller = controller.unwrap().0;
        controller.set_nonblocking(false).unwrap();
        for end in [&switch, &controller] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let mut talk = Talk {
            ends: [switch, controller],
            next: [0; 2],
        };
        talk.exchange(1);
        talk
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.relays.clear();
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// A connection through both relays, with numbered messages each way.
struct Talk {
    ends: [UnixStream; 2],
    next: [u32; 2],
}

impl Talk {
    fn say(&mut self, end: usize) {
        let n = self.next[end];
        // HELLO first, then PACKET_IN and FLOW_MOD.
        let kind = if n == 0 { 0 } else { [10, 14][end] };
        let mut message = [0; 100];
        message[..4].copy_from_slice(&[4, kind, 0, 100]);
        message[4..8].copy_from_slice(&n.to_be_bytes());
        self.ends[end].write_all(&message).unwrap();
        self.next[end] += 1;
    }

    /// Reads the next message of the other end, which has this number.
    fn hear(&mut self, end: usize, number: u32) {
        let mut message = [0; 100];
        self.ends[end].read_exact(&mut message).unwrap();
        let got = u32::from_be_bytes(message[4..8].try_into().unwrap());
        assert_eq!(got, number, "end {end}");
    }

    /// Exchanges `count` messages each way at the same time. None is lost, doubled or overtaken.
    fn exchange(&mut self, count: u32) {
        let first = self.next;
        self.say_all(count);
        self.hear_all(first, count);
    }

    fn say_all(&mut self, count: u32) {
        for _ in 0..count {
            self.say(0);
            self.say(1);
        }
    }

    fn hear_all(&mut self, first: [u32; 2], count: u32) {
        for n in 0..count {
            self.hear(0, first[1] + n);
            self.hear(1, first[0] + n);
        }
    }

    /// Runs `change` while messages are under way.
    fn exchange_across(&mut self, change: impl FnOnce()) {
        let first = self.next;
        self.say_all(50);
        change();
        self.say_all(50);
        self.hear_all(first, 100);
        self.exchange(50);
    }
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}");
}

fn counts(status: &Value) -> [u64; 4] {
    ["reconnects", "resumptions", "sessions", "channels_closed"]
        .map(|name| status[name].as_u64().unwrap())
}

#[test]
fn another_address_of_the_switch_costs_no_message_and_no_handshake() {
    let mut site = Site::new();
    site.start_controller_relay("a", "pquic:6654:0.0.0.0");
    site.start_switch_relay(&["quic:10.91.0.2:6654"]);
    let mut talk = site.connect("a");
    let address = |site: &Site| site.status("a")["address"].as_str().unwrap().to_owned();
    assert!(address(&site).starts_with("10.91.0.1:"));

    talk.exchange_across(|| {
        site.ip(0, "addr del 10.91.0.1/24 dev u0");
        site.ip(0, "addr add 10.91.0.77/24 dev u0");
    });
    assert!(address(&site).starts_with("10.91.0.77:"));
    // The other end learns the new address even though the switch sends no message.
    site.ip(0, "addr del 10.91.0.77/24 dev u0");
    site.ip(0, "addr add 10.91.0.78/24 dev u0");
    site.wait("the other end knows", |site| {
        address(site).starts_with("10.91.0.78:")
    });
    talk.exchange(10);
    assert_eq!(counts(&site.status("switch")), [0, 0, 1, 0]);
    assert_eq!(counts(&site.status("a")), [0, 0, 1, 0]);

    // By the other cable: other interfaces, other addresses.
    site.ip(1, "addr add 10.93.0.1/32 dev lo");
    drop(talk);
    site.relays.remove("switch");
    std::fs::remove_file(site.path("switch.ofp")).unwrap();
    site.ip(0, "route add 10.93.0.1/32 via 10.91.0.2");
    site.start_switch_relay(&["quic:10.93.0.1:6654"]);
    let mut talk = site.connect("a");
    talk.exchange_across(|| site.ip(0, "route replace 10.93.0.1/32 via 10.91.1.2"));
    site.wait("by the other cable", |site| {
        address(site).starts_with("10.91.1.1:")
    });
    talk.exchange(10);
    assert_eq!(counts(&site.status("switch")), [0, 0, 1, 0]);
}

/// A firewall that has forgotten the switch's port.
#[test]
fn a_port_that_is_heard_no_more_is_left_for_another() {
    let mut site = Site::new();
    site.start_controller_relay("a", "pquic:6654:0.0.0.0");
    site.start_switch_relay(&["quic:10.91.0.2:6654"]);
    let mut talk = site.connect("a");
    let address = |site: &Site| site.status("a")["address"].as_str().unwrap().to_owned();
    let before = address(&site);
    let port = before.rsplit(':').next().unwrap();
    talk.exchange_across(|| {
        for (end, side) in [(0, "sport"), (1, "dport")] {
            let of_port = format!("ipproto udp {side} {port}");
            site.ip(end, &format!("rule add prio 1 {of_port} prohibit"));
        }
    });
    let status = site.status("switch");
    assert_ne!(address(&site), before);
    let [reconnects, resumptions, sessions, closed] = counts(&status);
    let log = site.log("switch");
    assert_eq!((sessions, closed), (1, 0), "{status:#}\n{log}");
    assert!(
        reconnects >= 1 && resumptions == reconnects,
        "{status:#}\n{log}"
    );
}

/// Longer than the connection between the relays lives without a packet.
#[test]
fn an_address_that_comes_back_late_costs_a_handshake_and_no_message() {
    let mut site = Site::new();
    site.start_controller_relay("a", "pquic:6654:0.0.0.0");
    site.start_switch_relay(&["quic:10.91.0.2:6654"]);
    let mut talk = site.connect("a");
    talk.exchange_across(|| {
        site.ip(0, "addr del 10.91.0.1/24 dev u0");
        site.wait("it is noticed", |site| site.status("switch")["up"] == false);
        site.ip(0, "addr add 10.91.0.77/24 dev u0");
    });
    let [reconnects, resumptions, sessions, closed] = counts(&site.status("switch"));
    assert_eq!((sessions, closed), (1, 0));
    assert!(reconnects >= 1 && resumptions == reconnects);
}

#[test]
fn another_address_of_the_same_relay_takes_the_session_over() {
    let mut site = Site::new();
    site.start_controller_relay("a", "pquic:6654:0.0.0.0");
    let methods = ["quic:10.91.0.2:6654", "quic:10.91.1.2:6654"];
    site.start_switch_relay(&methods);
    let mut talk = site.connect("a");
    assert_eq!(site.status("switch")["relay"], methods[0]);

    talk.exchange_across(|| site.ip(0, "link set u0 down"));
    let status = site.status("switch");
    assert_eq!(
        (&status["relay"], &status["failovers"]),
        (&methods[1].into(), &1.into())
    );
    assert!(
        site.log("switch")
            .contains("another address: the session goes on")
    );

    // The first one comes back, and is not used again before the present one fails.
    site.ip(0, "link set u0 up");
    site.wait("the first answers again", |site| {
        let words = [
            "netns",
            "exec",
            &site.names[0],
            "ping",
            "-c1",
            "-W1",
            "10.91.0.2",
        ];
        Command::new("ip")
            .args(words)
            .output()
            .unwrap()
            .status
            .success()
    });
    talk.exchange(50);
    assert_eq!(site.status("switch")["relay"], methods[1]);
    talk.exchange_across(|| site.ip(0, "link set u1 down"));
    let status = site.status("switch");
    assert_eq!(
        (&status["relay"], &status["failovers"]),
        (&methods[0].into(), &2.into())
    );
    let [_, _, sessions, closed] = counts(&status);
    assert_eq!((sessions, closed), (1, 0));
}

#[test]
fn another_relay_begins_a_session_and_the_first_does_not_take_up_what_it_had() {
    let mut site = Site::new();
    site.start_controller_relay("a", "pquic:6654:10.91.0.2");
    site.start_controller_relay("b", "pquic:6654:10.91.1.2");
    let methods = ["quic:10.91.0.2:6654", "quic:10.91.1.2:6654"];
    site.start_switch_relay(&methods);
    let mut talk = site.connect("a");
    talk.exchange(20);

    let ends = |talk: &mut Talk| {
        let mut rest = [0; 1];
        let read = talk.ends[0].read(&mut rest);
        assert!(matches!(read, Ok(0)), "closed, with nothing more: {read:?}");
    };
    site.ip(0, "link set u0 down");
    ends(&mut talk);
    let mut second = site.connect("b");
    second.exchange(20);
    let status = site.status("switch");
    assert_eq!(
        (&status["relay"], &status["failovers"]),
        (&methods[1].into(), &1.into())
    );
    assert_eq!(counts(&status)[2..], [2, 1]);
    assert!(
        site.log("switch")
            .contains("another controller relay: a new session")
    );

    // The first relay still has the old session, under the same id.
    assert_eq!(site.status("a")["channels"].as_array().unwrap().len(), 1);
    site.ip(0, "link set u0 up");
    site.relays.remove("b");
    ends(&mut second);
    let mut third = site.connect("a");
    third.exchange(20);
    let status = site.status("switch");
    assert_eq!(status["relay"], methods[0]);
    assert_eq!(counts(&status)[2..], [3, 2]);
}
