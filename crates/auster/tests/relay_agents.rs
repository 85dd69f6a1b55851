//! Further agents of a switch beside OpenFlow and OVSDB, through one pair of relays over one QUIC
//! connection: net-snmp by datagrams, syslog by TCP and by UDP to rsyslog, NETCONF to netconfd. All
//! of them are Debian's, and none knows of relays.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::dummy::DummySwitch;
use common::ports::free_port;
use common::relays::{Relays, wait_for_port};
use common::run;
use common::running::{PATIENCE, Running};
use serde_json::Value;
use tempfile::TempDir;

const SYS_NAME: &str = ".1.3.6.1.2.1.1.5.0";
/// The subtree that the agent implements. Its rows asked for at once exceed a QUIC packet.
const SYS_OR_TABLE: &str = ".1.3.6.1.2.1.1.9";

const NETCONF_USER: &str = "operator";
const NETCONF_BASE: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";
const NETCONF_END: &str = "]]>]]>";

/// A daemon that ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn daemon(program: &str, arguments: &[&str], dir: &TempDir) -> Daemon {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SNMP_PERSISTENT_DIR", dir.path())
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn();
    Daemon(child.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup")))
}

/// net-snmp's agent, on a UDP port of its own.
fn snmp_agent(dir: &TempDir) -> (Daemon, u16) {
    let port = free_port();
    let config = dir.path().join("snmpd.conf");
    let text = "rocommunity public 127.0.0.1\nsysName switch-of-the-test\n";
    fs::write(&config, text).unwrap();
    let pid = dir.path().join("snmpd.pid");
    let (config, pid) = (config.display().to_string(), pid.display().to_string());
    let address = format!("udp:127.0.0.1:{port}");
    let words = [
        "-f", "-LE", "emerg", "-C", "-c", &config, "-p", &pid, &address,
    ];
    (daemon("/usr/sbin/snmpd", &words, dir), port)
}

/// rsyslog, which takes messages by TCP and UDP and writes them to `messages` in `dir`.
fn collector(dir: &TempDir) -> (Daemon, u16, u16) {
    let (tcp, udp) = (free_port(), free_port());
    let path = dir.path().display();
    let text = format!(
        "global(workDirectory=\"{path}\")\n\
         module(load=\"imtcp\")\ninput(type=\"imtcp\" port=\"{tcp}\" address=\"127.0.0.1\")\n\
         module(load=\"imudp\")\ninput(type=\"imudp\" port=\"{udp}\" address=\"127.0.0.1\")\n\
         *.* action(type=\"omfile\" file=\"{path}/messages\")\n"
    );
    let config = dir.path().join("rsyslog.conf");
    fs::write(&config, text).unwrap();
    let (config, pid) = (
        config.display().to_string(),
        dir.path().join("rsyslog.pid").display().to_string(),
    );
    let daemon = daemon(
        "/usr/sbin/rsyslogd",
        &["-n", "-f", &config, "-i", &pid],
        dir,
    );
    wait_for_port(tcp);
    (daemon, tcp, udp)
}

/// Runs one of net-snmp's commands against an agent; `None` while the agent does not answer.
fn snmp(program: &str, options: &[&str], port: u16, oid: &str) -> Option<String> {
    let address = format!("udp:127.0.0.1:{port}");
    let fixed = [
        "-v2c", "-c", "public", "-m", "", "-On", "-t", "2", "-r", "4",
    ];
    let output = Command::new(program)
        .args(fixed)
        .args(options)
        .args([&address, oid])
        .output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// netconfd, with the configuration of RFC 7317, and a port for the program between it and SSH.
fn netconf_agent(dir: &TempDir) -> (Daemon, u16) {
    let port = free_port();
    let socket = dir.path().join("netconfd.sock");
    let arguments = [
        // A configuration of its own, empty at first.
        "--no-startup".to_owned(),
        "--target=running".to_owned(),
        "--module=ietf-system".to_owned(),
        format!("--superuser={NETCONF_USER}"),
        format!("--ncxserver-sockname={}", socket.display()),
        "--tcp-direct-address=127.0.0.1".to_owned(),
        format!("--tcp-direct-port={port}"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = daemon("/usr/sbin/netconfd", &arguments, dir);
    wait_for_port(port);
    (daemon, port)
}

/// A NETCONF session through the program that an SSH server starts for it, which dials the agent by
/// TCP.
struct Netconf {
    subsystem: Daemon,
    requests: ChildStdin,
    messages: Receiver<String>,
    last_id: u32,
}

impl Netconf {
    /// Starts a session in which both ends have sent hello.
    fn connect(port: u16) -> Netconf {
        let program = "/usr/sbin/netconf-subsystem";
        let child = Command::new(program)
            .arg(format!("--tcp-direct-port={port}"))
            // Set as an SSH server sets them.
            .env("SSH_CONNECTION", "127.0.0.1 40000 127.0.0.1 830")
            .env("USER", NETCONF_USER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup"));
        let requests = child.stdin.take().unwrap();
        let mut replies = child.stdout.take().unwrap();
        let (heard, messages) = channel();
        std::thread::spawn(move || {
            let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
            while let Ok(len @ 1..) = replies.read(&mut chunk) {
                text.extend_from_slice(&chunk[..len]);
                let end = |text: &[u8]| {
                    let mut at = text.windows(NETCONF_END.len());
                    at.position(|bytes| bytes == NETCONF_END.as_bytes())
                };
                while let Some(at) = end(&text) {
                    let message = String::from_utf8(text[..at].to_vec()).unwrap();
                    text.drain(..at + NETCONF_END.len());
                    if heard.send(message).is_err() {
                        return;
                    }
                }
            }
        });
        let mut session = Netconf {
            subsystem: Daemon(child),
            requests,
            messages,
            last_id: 0,
        };
        session.say(&format!(
            "<hello xmlns=\"{NETCONF_BASE}\"><capabilities>\
             <capability>urn:ietf:params:netconf:base:1.0</capability></capabilities></hello>"
        ));
        let hello = session.hear();
        assert!(hello.contains("ietf-system"), "{hello}");
        session
    }

    fn say(&mut self, message: &str) {
        let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{message}{NETCONF_END}");
        self.requests.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a message. netconfd leaves a request that it has read together with the hello
    /// before it until more bytes come, so a blank line follows now and then.
    fn hear(&mut self) -> String {
        for _ in 0..PATIENCE.as_secs() {
            if let Ok(message) = self.messages.recv_timeout(Duration::from_secs(1)) {
                return message;
            }
            self.requests.write_all(b"\n").unwrap();
        }
        panic!("a message");
    }

    /// Sends a request and returns its reply.
    fn ask(&mut self, request: &str) -> String {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&format!(
            "<rpc xmlns=\"{NETCONF_BASE}\" message-id=\"{id}\">{request}</rpc>"
        ));
        let reply = self.hear();
        let is_its = reply.contains(&format!("message-id=\"{id}\""));
        assert!(is_its && !reply.contains("<rpc-error>"), "{reply}");
        reply
    }

    fn close(mut self) {
        let reply = self.ask("<close-session/>");
        assert!(reply.contains("<ok/>"), "{reply}");
        self.subsystem.0.wait().unwrap();
    }
}

/// Open vSwitch and a controller that has sent it a request, through relays with these agents.
struct Site {
    _switch: DummySwitch,
    _controller: Running,
    relays: Relays,
}

impl Site {
    fn start(dir: &TempDir, agents: &[(String, String)]) -> Site {
        let switch = DummySwitch::start(2);
        let (bridges_port, controller_port) = (free_port(), free_port());
        let mut controller = Command::new("ovs-testcontroller");
        let unixctl = dir.path().join("tc.ctl").display().to_string();
        controller.arg(format!("--unixctl={unixctl}"));
        controller.arg(format!("ptcp:{controller_port}:127.0.0.1"));
        let controller = Running::spawn(controller);
        wait_for_port(controller_port);
        let database = format!("unix:{}", switch.path("db.sock").display());
        let relays = Relays::with_agents(bridges_port, controller_port, &database, agents);
        wait("the relays are joined", || {
            relays.status("switch")["relays"][0]["up"] == true
        });
        let target = format!("tcp:127.0.0.1:{bridges_port}");
        switch.vsctl(&["--no-wait", "set-controller", "br0", &target]);
        let is_used = |channel: &Value| channel["given"]["bytes"].as_u64() > Some(8);
        wait("the bridge is connected", || {
            channels(&relays, "switch").iter().any(is_used)
        });
        Site {
            _switch: switch,
            _controller: controller,
            relays,
        }
    }
}

fn channels(relays: &Relays, side: &str) -> Vec<Value> {
    let channels = relays.status(side)["relays"][0]["channels"].clone();
    channels.as_array().cloned().unwrap_or_default()
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn snmp_and_syslog_go_beside_openflow_and_ovsdb_on_one_connection() {
    let dir = tempfile::tempdir().unwrap();
    let (_agent, agent_port) = snmp_agent(&dir);
    let (_collector, syslog_tcp, syslog_udp) = collector(&dir);
    let [snmp_port, log_udp] = [(); 2].map(|()| free_port());
    let log_tcp = free_port();
    let agents = [
        // Requests come from the controller's side.
        (
            format!("snmp=udp:127.0.0.1:{agent_port},class=exchange"),
            format!("snmp=pudp:{snmp_port}:127.0.0.1,class=exchange"),
        ),
        // Reports come from the switch's side.
        (
            format!("syslog=ptcp:{log_tcp}:127.0.0.1,class=other"),
            format!("syslog=tcp:127.0.0.1:{syslog_tcp}"),
        ),
        (
            format!("syslog-udp=pudp:{log_udp}:127.0.0.1,class=state"),
            format!("syslog-udp=udp:127.0.0.1:{syslog_udp}"),
        ),
    ];

    let site = Site::start(&dir, &agents);
    let relays = &site.relays;

    // OVSDB, from the controller's side.
    let db = format!("--db=unix:{}", relays.database().display());
    assert_eq!(run("ovs-vsctl", &["--timeout=10", &db, "list-br"]), "br0\n");

    // SNMP, by datagrams: a value, and a reply as long as the agent makes them.
    let asked = snmp("snmpget", &[], snmp_port, SYS_NAME).expect("an answer through the relays");
    assert!(asked.contains("switch-of-the-test"), "{asked}");
    let all = ["-Cr60"];
    let direct = snmp("snmpbulkget", &all, agent_port, SYS_OR_TABLE).expect("the agent answers");
    let relayed = snmp("snmpbulkget", &all, snmp_port, SYS_OR_TABLE).expect("so do the relays");
    let lines = |text: &str| -> Vec<String> {
        let is_steady = |line: &&str| line.starts_with(SYS_OR_TABLE);
        text.lines().filter(is_steady).map(str::to_owned).collect()
    };
    assert!(lines(&direct).len() > 20, "{direct}");
    assert_eq!(lines(&relayed), lines(&direct));
    // Managers at the same time, each with its own answer.
    let managers: Vec<_> = (1..=7)
        .map(|n| {
            let oid = format!(".1.3.6.1.2.1.1.{n}.0");
            std::thread::spawn(move || (snmp("snmpget", &[], snmp_port, &oid), oid))
        })
        .collect();
    for manager in managers {
        let (answer, oid) = manager.join().unwrap();
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(&oid), "{oid}: {answer}");
    }

    // syslog, both ways of sending it.
    for (flag, port) in [("--tcp", log_tcp), ("--udp", log_udp)] {
        let (port, text) = (port.to_string(), format!("from the switch by {flag}"));
        run(
            "logger",
            &[flag, "-n", "127.0.0.1", "-P", &port, "--", &text],
        );
        wait(&text, || {
            let messages = fs::read_to_string(dir.path().join("messages"));
            messages.unwrap_or_default().contains(&text)
        });
    }

    // Nothing was lost between the ends, and everything was on one connection.
    for side in ["switch", "controller"] {
        let status = relays.status(side);
        let relay = &status["relays"][0];
        assert_eq!(relay["transport"], "quic", "{relay}");
        assert_eq!(relay["connections"].as_array().unwrap().len(), 1, "{relay}");
        let datagrams = &relay["datagrams"];
        let dropped = datagrams["dropped"].as_object().unwrap();
        assert!(dropped.values().all(|n| n == 0), "{datagrams}");
        let count = |name: &str| datagrams[name]["count"].as_u64().unwrap();
        assert!(count("taken") >= 9 && count("given") >= 9, "{datagrams}");
        let is_open = |agent: &str| {
            let channels = relay["channels"].as_array().unwrap();
            channels
                .iter()
                .any(|channel: &Value| channel["agent"] == agent)
        };
        assert!(is_open("openflow"), "{relay}");
        assert!(!is_open("snmp"), "datagrams have no channel: {relay}");
    }
    let given = &relays.status("switch")["relays"][0]["datagrams"]["given"]["count"];
    let taken = &relays.status("controller")["relays"][0]["datagrams"]["taken"]["count"];
    assert!(given.as_u64() <= taken.as_u64(), "{given} of {taken}");
}

/// A manager beside the controller configures the switch by NETCONF, while its bridge has its
/// controller and its database is watched.
#[test]
fn netconf_goes_beside_openflow_and_ovsdb_with_a_class_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (_agent, agent_port) = netconf_agent(&dir);
    let port = free_port();
    let agents = [(
        format!("netconf=tcp:127.0.0.1:{agent_port},class=exchange"),
        format!("netconf=ptcp:{port}:127.0.0.1,class=exchange"),
    )];
    let site = Site::start(&dir, &agents);
    let relays = &site.relays;
    let mut database = UnixStream::connect(relays.database()).unwrap();
    database.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = br#"{"method":"list_dbs","params":[],"id":0}"#;
    database.write_all(request).unwrap();
    let answer = serde_json::Deserializer::from_reader(&database);
    let answer = answer.into_iter::<Value>().next().unwrap().unwrap();
    assert_eq!(answer["result"][0], "Open_vSwitch", "{answer}");

    let mut manager = Netconf::connect(port);
    let system = "<system xmlns=\"urn:ietf:params:xml:ns:yang:ietf-system\"";
    let name = "<hostname>switch-of-the-test</hostname>";
    let edited = manager.ask(&format!(
        "<edit-config><target><running/></target><config>{system}>{name}</system></config>\
         </edit-config>"
    ));
    assert!(edited.contains("<ok/>"), "{edited}");
    let config = format!(
        "<get-config><source><running/></source><filter type=\"subtree\">{system}/></filter>\
         </get-config>"
    );
    // The agent itself has it, and nobody else is asked.
    let mut direct = Netconf::connect(agent_port);
    for session in [&mut manager, &mut direct] {
        let config = session.ask(&config);
        assert!(config.contains(name), "{config}");
    }
    // The agent's own state, and a reply of many packets.
    let monitoring = "xmlns=\"urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring\"";
    let state = manager.ask(&format!(
        "<get><filter type=\"subtree\"><netconf-state {monitoring}><sessions/></netconf-state>\
         </filter></get>"
    ));
    assert_eq!(state.matches("<username>").count(), 2, "{state}");
    let schema =
        format!("<get-schema {monitoring}><identifier>ietf-system</identifier></get-schema>");
    let body = |reply: String| reply.split_once("<data").unwrap().1.to_owned();
    let (relayed, alone) = (body(manager.ask(&schema)), body(direct.ask(&schema)));
    assert!(relayed.len() > 20_000, "{relayed}");
    assert!(relayed == alone, "{relayed}\n{alone}");

    // Each agent has its class, and both ends have counted the same on its lanes.
    let [switch, controller] = ["switch", "controller"].map(|side| {
        let status = relays.status(side);
        assert_eq!(status["relays"].as_array().unwrap().len(), 1, "{status}");
        let relay = &status["relays"][0];
        assert_eq!(relay["transport"], "quic", "{relay}");
        assert_eq!(relay["connections"].as_array().unwrap().len(), 1, "{relay}");
        relay["channels"].as_array().unwrap().clone()
    });
    let of = |channels: &[Value], agent: &str| {
        let mut of_agent = channels.iter().filter(|c| c["agent"] == agent);
        let found = of_agent.next().unwrap_or_else(|| panic!("no {agent}"));
        found.clone()
    };
    assert!(of(&switch, "openflow")["class"].is_null());
    assert!(of(&switch, "openflow")["lanes_in"]["state0"].as_u64() > Some(0));
    for (agent, class) in [("netconf", "exchange"), ("ovsdb", "other")] {
        let (s, c) = (of(&switch, agent), of(&controller, agent));
        for (here, there) in [(&s, &c), (&c, &s)] {
            assert_eq!(here["class"], class, "{here}");
            for name in ["bytes", "digest"] {
                assert_eq!(here["taken"][name], there["given"][name], "{here}\n{there}");
            }
            assert_eq!(here["lanes_out"], there["lanes_in"], "{here}\n{there}");
            assert!(here["lanes_out"]["state0"].as_u64() > Some(0), "{here}");
        }
    }
    manager.close();
    direct.close();
    wait("the session has ended at both ends", || {
        let is_there = |side| {
            let channels = channels(relays, side);
            channels.iter().any(|channel| channel["agent"] == "netconf")
        };
        !is_there("switch") && !is_there("controller")
    });
}
