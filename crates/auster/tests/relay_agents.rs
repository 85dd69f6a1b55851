//! Further agents of a switch beside OpenFlow and OVSDB, through one pair of relays over one QUIC
//! connection: net-snmp by datagrams, syslog by TCP and by UDP to rsyslog. All of them are Debian's,
//! and none knows of relays.

mod common;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::dummy::DummySwitch;
use common::relays::{Relays, free_port, free_udp_port, wait_for_port};
use common::run;
use common::running::{PATIENCE, Running};
use serde_json::Value;
use tempfile::TempDir;

const SYS_NAME: &str = ".1.3.6.1.2.1.1.5.0";
/// What the agent implements: more than a packet of QUIC has room for, asked for at once.
const SYS_OR_TABLE: &str = ".1.3.6.1.2.1.1.9";

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
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn();
    Daemon(child.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup")))
}

/// net-snmp's agent, on a UDP port of its own.
fn snmp_agent(dir: &TempDir) -> (Daemon, u16) {
    let port = free_udp_port();
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
    let (tcp, udp) = (free_port(), free_udp_port());
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

/// One of net-snmp's commands against an agent, `None` while that does not answer.
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
    let [snmp_port, log_udp] = [(); 2].map(|()| free_udp_port());
    let log_tcp = free_port();
    let agents = [
        // Asked from the controller's side.
        (
            format!("snmp=udp:127.0.0.1:{agent_port},class=exchange"),
            format!("snmp=pudp:{snmp_port}:127.0.0.1,class=exchange"),
        ),
        // Told by the switch's.
        (
            format!("syslog=ptcp:{log_tcp}:127.0.0.1,class=other"),
            format!("syslog=tcp:127.0.0.1:{syslog_tcp}"),
        ),
        (
            format!("syslog-udp=pudp:{log_udp}:127.0.0.1,class=state"),
            format!("syslog-udp=udp:127.0.0.1:{syslog_udp}"),
        ),
    ];

    let switch = DummySwitch::start(2);
    let (bridges_port, controller_port) = (free_port(), free_port());
    let mut controller = Command::new("ovs-testcontroller");
    let unixctl = dir.path().join("tc.ctl").display().to_string();
    controller.arg(format!("--unixctl={unixctl}"));
    controller.arg(format!("ptcp:{controller_port}:127.0.0.1"));
    let _controller = Running::spawn(controller);
    wait_for_port(controller_port);
    let database = format!("unix:{}", switch.path("db.sock").display());
    let relays = Relays::with_agents(bridges_port, controller_port, &database, &agents);
    wait("the relays are joined", || {
        relays.status("switch")["relays"][0]["up"] == true
    });
    let target = format!("tcp:127.0.0.1:{bridges_port}");
    switch.vsctl(&["--no-wait", "set-controller", "br0", &target]);

    // OpenFlow, to where the controller has asked something; and OVSDB, from its side.
    wait("the bridge is connected", || {
        let status = relays.status("switch");
        let channels = status["relays"][0]["channels"].as_array().cloned();
        let is_used = |channel: &Value| channel["given"]["bytes"].as_u64() > Some(8);
        channels.is_some_and(|channels| channels.iter().any(is_used))
    });
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

    // Nothing was lost on the way, and all of it was on one connection.
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
