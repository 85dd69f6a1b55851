//! Alerts under a real Prometheus: the tests cause their conditions, and the alerts fire.
//!
//! Prometheus evaluates a copy of `contrib/prometheus/auster.rules.yml` in which an alert waits for
//! a second and rates are over 30 s: conditions, names and labels are those of the file.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openflow::hello::Hello;
use openflow::message::*;
use openflow::multipart::*;
use openflow::packet::build::{Host, arp_request, udp};
use openflow::{
    Action, DatapathId, ErrorKind, Frame, MacAddr, Message, PortNo, Version, Xid, decode, encode,
};
use serde_json::{Value, json};

use super::cluster::Members;
use super::ports::free_port;
use super::{Auster, PATIENCE};

/// Alerts whose condition no test can bring about from outside, and why.
const NOT_HERE: [(&str, &str); 2] = [
    (
        "AusterFault",
        "no input is known that makes the controller panic",
    ),
    (
        "AusterClusterWatchRepaired",
        "etcd would have to lose changes of a watch: the crate `etcd` tests that with a model",
    ),
];

const RULES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../contrib/prometheus/auster.rules.yml"
);

/// A Prometheus with targets that may change.
struct Prometheus {
    child: Child,
    at: String,
    dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(token: &str) -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(
            path("rules.yml"),
            quick(&std::fs::read_to_string(RULES).unwrap()),
        )
        .unwrap();
        std::fs::write(path("token"), token).unwrap();
        let config = format!(
            "global: {{ scrape_interval: 4s, evaluation_interval: 1s }}\n\
             rule_files: [ {} ]\n\
             scrape_configs:\n\
             - job_name: auster\n  \
               authorization: {{ credentials_file: {} }}\n  \
               file_sd_configs: [ {{ files: [ {} ] }} ]\n",
            path("rules.yml"),
            path("token"),
            path("targets.json"),
        );
        std::fs::write(path("prometheus.yml"), config).unwrap();
        std::fs::write(path("targets.json"), "[]").unwrap();
        let at = format!("127.0.0.1:{}", free_port());
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", path("data")))
            .arg(format!("--web.listen-address={at}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed");
        Prometheus { child, at, dir }
    }

    /// Scrapes these targets from now on.
    fn scrape(&self, targets: &[SocketAddr]) {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let file = self.dir.path().join("targets.json");
        let next = self.dir.path().join("next.json");
        std::fs::write(&next, json!([{"targets": targets}]).to_string()).unwrap();
        std::fs::rename(next, file).unwrap();
    }

    /// The values of a query, with their labels.
    fn query(&self, text: &str) -> Vec<(Value, f64)> {
        let output = Command::new("curl")
            .args(["-s", "--max-time", "10", "-G", "--data-urlencode"])
            .arg(format!("query={text}"))
            .arg(format!("http://{}/api/v1/query", self.at))
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rows = answer["data"]["result"].as_array().into_iter().flatten();
        let value = |row: &Value| row["value"][1].as_str()?.parse().ok();
        rows.filter_map(|row| Some((row["metric"].clone(), value(row)?)))
            .collect()
    }

    /// Waits until a query has a wanted value.
    fn wait_for(&self, text: &str, is_wanted: impl Fn(f64) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !self.query(text).iter().any(|(_, value)| is_wanted(*value)) {
            assert!(Instant::now() < give_up, "{text}: {:?}", self.query(text));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The alerts that have fired at any time.
    fn fired(&self) -> BTreeSet<String> {
        let rows =
            self.query("count by (alertname)(count_over_time(ALERTS{alertstate=\"firing\"}[30m]))");
        let names = rows.iter();
        let names = names.filter_map(|(labels, _)| labels["alertname"].as_str());
        names.map(str::to_owned).collect()
    }

    /// Waits until an alert has fired.
    fn expect(&self, alert: &str) {
        let give_up = Instant::now() + PATIENCE;
        while !self.fired().contains(alert) {
            let pending = self.query("ALERTS");
            assert!(
                Instant::now() < give_up,
                "{alert} does not fire; {pending:#?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rules with short times: the conditions stay.
fn quick(rules: &str) -> String {
    let line = |line: &str| match line.trim_start().starts_with("for: ") {
        true => format!("{}for: 1s\n", &line[..line.len() - line.trim_start().len()]),
        false => ["[2m]", "[5m]", "[10m]"]
            .iter()
            .fold(line.to_owned() + "\n", |line, window| {
                line.replace(window, "[30s]")
            }),
    };
    rules.lines().map(line).collect()
}

/// The alerts of the rules: either those of relays, or all others.
fn alerts(is_of_relays: bool) -> BTreeSet<String> {
    let rules = std::fs::read_to_string(RULES).unwrap();
    let names = rules.lines();
    let names = names.filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names = names.filter(|name| name.starts_with("AusterRelay") == is_of_relays);
    names.map(str::to_owned).collect()
}

/// Connections of two scripted switches whose second ports are joined, for LLDP.
type Cable = Arc<Mutex<BTreeMap<u64, TcpStream>>>;

/// The fault of a scripted switch.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It answers echoes and barriers late. Its hosts speak with those of another switch.
    Slow,
    /// Its table takes no further entries.
    Full,
    /// It sends more packet-ins than the controller can look at.
    Flood,
}

#[derive(Default)]
struct Orders {
    is_ended: AtomicBool,
    may_speak: AtomicBool,
}

/// A switch with two ports, and hosts that begin to speak.
struct Scripted {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    fn start(at: SocketAddr, dpid: u64, fault: Fault, cable: &Cable) -> Scripted {
        let orders: Arc<Orders> = Arc::default();
        let (given, cable) = (orders.clone(), cable.clone());
        let thread = std::thread::spawn(move || {
            while !given.is_ended.load(Ordering::Relaxed) {
                converse(at, DatapathId(dpid), fault, (&given, &cable));
            }
        });
        let thread = Some(thread);
        Scripted { orders, thread }
    }

    fn speak(&self) {
        self.orders.may_speak.store(true, Ordering::Relaxed);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.orders.is_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const VERSION: Version = Version::V13;
/// Longer than the quarter and the half of a second of the rules.
const LATE: Duration = Duration::from_millis(800);
/// Time between two pairs of hosts.
const PAUSE: Duration = Duration::from_millis(200);

/// One connection, until it ends.
fn converse(at: SocketAddr, dpid: DatapathId, fault: Fault, around: (&Orders, &Cable)) {
    let (orders, cable) = around;
    let Ok(mut stream) = TcpStream::connect(at) else {
        return std::thread::sleep(PAUSE);
    };
    let mut bytes = BytesMut::new();
    let (mut chunk, mut pair, mut due) = ([0; 65536], 0, Instant::now() + LATE);
    let mut late = VecDeque::new();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    if fault == Fault::Slow {
        let ours = stream.try_clone().unwrap();
        cable.lock().unwrap().insert(dpid.0, ours);
    }
    send(
        &mut stream,
        Xid(1),
        &Message::Hello(Hello::offering(&[VERSION])),
    );
    while !orders.is_ended.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(_) => {}
        }
        while let Some(frame) = Frame::split_from(&mut bytes).unwrap() {
            let message = decode(&frame).unwrap();
            if let Message::PacketOut(out) = &message {
                pass(cable, dpid, out);
            }
            let is_late = matches!(message, Message::EchoRequest(_) | Message::BarrierRequest);
            let is_late = is_late && fault == Fault::Slow;
            match answer(dpid, fault, &frame, message) {
                Some(reply) if is_late => late.push_back((Instant::now() + LATE, frame, reply)),
                Some(reply) => send(&mut stream, frame.xid(), &reply),
                None => {}
            }
        }
        while let Some((_, frame, reply)) = late.pop_front_if(|late| late.0 <= Instant::now()) {
            send(&mut stream, frame.xid(), &reply);
        }
        let is_due = due <= Instant::now() && orders.may_speak.load(Ordering::Relaxed);
        if is_due && fault == Fault::Flood {
            flood(&mut stream);
        } else if is_due {
            pair += 1;
            due = Instant::now() + PAUSE;
            speak(&mut stream, dpid, fault, pair);
        }
    }
}

fn send(stream: &mut TcpStream, xid: Xid, message: &Message) {
    // The next read reports whether the connection has ended.
    let _ = stream.write_all(encode(VERSION, xid, message).unwrap().bytes());
}

fn answer(dpid: DatapathId, fault: Fault, frame: &Frame, message: Message) -> Option<Message> {
    Some(match message {
        Message::FeaturesRequest => Message::FeaturesReply(SwitchFeatures {
            datapath_id: dpid,
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS,
            actions: 0,
            ports: vec![],
        }),
        Message::EchoRequest(data) => Message::EchoReply(data),
        Message::BarrierRequest => Message::BarrierReply,
        Message::GetConfigRequest => Message::GetConfigReply(SwitchConfig::default()),
        Message::RoleRequest(role) => Message::RoleReply(role),
        // The entries that the controller sets before there are hosts fit.
        Message::FlowMod(entry)
            if fault == Fault::Full && entry.r#match.exact(openflow::Field::EthDst).is_some() =>
        {
            Message::Error(ErrorMessage::new(
                ErrorKind::FLOW_MOD_TABLE_FULL,
                frame.bytes().clone(),
            ))
        }
        Message::MultipartRequest(request) => {
            let body = match request.body {
                RequestBody::Desc => ReplyBody::Desc(Description::default()),
                RequestBody::PortDesc(_) => ReplyBody::PortDesc([1, 2].map(port).to_vec()),
                RequestBody::Flow(_) => ReplyBody::Flow(vec![]),
                _ => return None,
            };
            Message::MultipartReply(MultipartReply { more: false, body })
        }
        _ => return None,
    })
}

fn port(number: u32) -> Port {
    Port {
        port_no: PortNo(number),
        hw_addr: MacAddr([2, 0, 0, 0, 1, number as u8]),
        name: PortName::new(&format!("p{number}")),
        config: PortConfig::empty(),
        state: PortState::empty(),
        curr: 0,
        advertised: 0,
        supported: 0,
        peer: 0,
        curr_speed: 0,
        max_speed: 0,
        properties: Vec::new(),
    }
}

/// Two hosts of a switch. The second has not been heard before.
fn hosts(dpid: DatapathId, pair: u32) -> [Host; 2] {
    [1, 2].map(|port: u8| {
        let [_, high, middle, low] = pair.to_be_bytes();
        Host::new(
            MacAddr([2, dpid.0 as u8, port, high, middle, low]),
            [10, 64 + port, middle, low].into(),
        )
    })
}

/// Passes LLDP that leaves by the second port to the other switch.
fn pass(cable: &Cable, from: DatapathId, out: &PacketOut) {
    let is_lldp = out.data.get(12..14) == Some(&[0x88, 0xcc]);
    let leaves = |action: &Action| {
        matches!(
            action,
            Action::Output {
                port: PortNo(2),
                ..
            }
        )
    };
    if is_lldp && out.actions.iter().any(leaves) {
        let mut cable = cable.lock().unwrap();
        let other = cable.iter_mut().find(|(dpid, _)| **dpid != from.0);
        if let Some((_, stream)) = other {
            send(stream, Xid(0), &packet_in(2, out.data.to_vec()));
        }
    }
}

/// Pairs of hosts behind two switches that know each other before they speak.
const PAIRS_BEFORE: u32 = 15;
const SLOW: [u64; 2] = [0xd1, 0xd3];

fn speak(stream: &mut TcpStream, dpid: DatapathId, fault: Fault, pair: u32) {
    if fault == Fault::Slow {
        // The addresses of a pair are those of the first of both switches.
        let of = |pair| hosts(DatapathId(SLOW[0]), pair);
        let is_first = dpid.0 == SLOW[0];
        let ours = of(pair)[usize::from(!is_first)];
        send(stream, Xid(0), &packet_in(1, arp_request(ours, ours.ip)));
        if let Some(pair) = pair.checked_sub(PAIRS_BEFORE).filter(|_| is_first) {
            let [one, other] = of(pair);
            let first = udp(one, other, (5000, 5001), b"first");
            send(stream, Xid(0), &packet_in(1, first));
        }
        return;
    }
    let [one, other] = hosts(dpid, pair);
    let packets = [
        (1, arp_request(one, other.ip)),
        (2, arp_request(other, one.ip)),
        (1, udp(one, other, (5000, 5001), b"first")),
    ];
    for (port, data) in packets {
        send(stream, Xid(0), &packet_in(port, data));
    }
}

/// Some thousand packets of new pairs at once.
fn flood(stream: &mut TcpStream) {
    let mut all = Vec::new();
    for pair in 0..4000 {
        let [one, other] = hosts(DatapathId(0xdf), pair);
        let message = packet_in(1, udp(one, other, (5000, 5001), &[0; 200]));
        all.extend_from_slice(encode(VERSION, Xid(0), &message).unwrap().bytes());
    }
    let _ = stream.write_all(&all);
}

fn packet_in(port: u32, data: Vec<u8>) -> Message {
    Message::PacketIn(PacketIn::new(PortNo(port), Bytes::from(data)))
}

/// Stops one thread, as a debugger does, until standard input ends.
const STOP: &str = "
import ctypes, sys
ptrace = ctypes.CDLL(None).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT = 0x4206, 0x4207
for request in (SEIZE, INTERRUPT):
    assert ptrace(request, int(sys.argv[1]), None, None) == 0
sys.stdin.read()
";

/// A stopped thread of a process. It continues when this is dropped.
struct Stopped(Child);

impl Stopped {
    fn thread(process: u32, name: &str) -> Stopped {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let is_it = |task: &std::fs::DirEntry| {
            let comm = std::fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim() == name)
        };
        let task = tasks
            .map_while(Result::ok)
            .find(is_it)
            .expect("that thread");
        let mut command = Command::new("python3");
        command.args(["-c", STOP]).arg(task.file_name());
        Stopped(command.stdin(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `auster` in a folder; its output.
fn auster(dir: &Path, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
    let output = command.current_dir(dir).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The configuration of a controller alone, whose faults need no more than its files: certificates
/// of five days, an audit on a full disk, a document of another version, a circuit of two hosts
/// that nobody has heard.
fn prepare(dir: &Path) -> String {
    for words in [&["init"][..], &["controller", "ctl", "--days", "5"]] {
        auster(dir, &[&["pki"], words].concat());
    }
    std::fs::create_dir(dir.join("kept")).unwrap();
    let kept = json!({"auster_state": 1, "revision": 1,
        "documents": {"services/odd": {"revision": 1, "stored": {"version": 99}}}});
    std::fs::write(dir.join("kept/intent.json"), kept.to_string()).unwrap();
    let config = r#"
        listen = ["ptcp:0:127.0.0.1", "pssl:0:127.0.0.1"]
        mode = "reactive"
        state = "kept"

        [tls]
        private_key = "ctl-privkey.pem"
        certificate = "ctl-cert.pem"
        ca = "pki/switchca/cacert.pem"

        [api]
        listen = "127.0.0.1:0"
        tokens = "tokens"
        audit = "/dev/full"

        [session]
        echo_interval_ms = 2000
        echo_unanswered_max = 20

        [timeouts.switches]
        "00000000000000e2" = 2

        [[qos.service]]
        name = "voice"
        proto = "udp"
        dst_port = 5060

        [[qos.circuit]]
        name = "backup"
        from = "10.77.0.1"
        to = "10.77.0.3"
        service = "voice"
    "#;
    std::fs::write(dir.join("alone.toml"), config).unwrap();
    auster(
        dir,
        &[
            "api", "token", "add", "p", "--role", "operate", "--file", "tokens",
        ],
    )
}

/// The status of a request with a token.
fn request(at: SocketAddr, token: &str, method: &str, path: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn alerts_fire_under_a_real_prometheus_when_their_conditions_are_brought_about() {
    let dir = tempfile::tempdir().unwrap();
    let token = prepare(dir.path());
    let prometheus = Prometheus::start(&token);
    let config = dir.path().join("alone.toml").display().to_string();
    let alone = Auster::start(&["--config", &config]);
    let of_switches = SocketAddr::from(([127, 0, 0, 1], alone.port()));
    let of_tls = SocketAddr::from(([127, 0, 0, 1], alone.port()));
    let api = alone.api();
    let mut members = Members::start();
    members.wait_for_order();
    let mut targets = members.apis.clone();
    targets.push(api);
    prometheus.scrape(&targets);

    // A network in order: two bridges with a link.
    let controller = format!("tcp:{of_switches}");
    for (bridge, dpid) in [("e1", "00000000000000e1"), ("e2", "00000000000000e2")] {
        members
            .ovs
            .add_bridge(bridge, dpid, "OpenFlow13", &controller);
    }
    let patch = |bridge: &str, port: &str, peer: &str| {
        let peer = format!("options:peer={peer}");
        let set = ["--", "set", "interface", port, "type=patch", &peer];
        members
            .ovs
            .vsctl(&[&["add-port", bridge, port], &set[..]].concat());
    };
    patch("e1", "pa", "pb");
    patch("e2", "pb", "pa");
    prometheus.wait_for("auster_of_connections_up", |count| count == 2.0);
    prometheus.wait_for("auster_links", |count| count == 2.0);
    prometheus.wait_for("sum(auster_cluster_serves)", |count| count == 1.0);
    prometheus.wait_for("count(up == 1)", |count| count == 4.0);
    let begun: BTreeSet<String> = [
        // Alerts that the configuration causes from the start.
        "AusterAuditLost",
        "AusterCertificateExpires",
        "AusterCircuitNotInEffect",
        "AusterIntentLeftOut",
        "AusterTableFilling",
    ]
    .map(str::to_owned)
    .into();
    // Wait until the rules have been evaluated some times with all figures.
    prometheus.wait_for("min(count_over_time(up[2m]))", |scrapes| scrapes >= 4.0);
    // A busy machine causes some of the other alerts by itself.
    let early = prometheus.fired();
    for alert in [
        "AusterConfigurationsDiffer",
        "AusterConnectionsRefused",
        "AusterLogins",
        "AusterPacketInsShed",
        "AusterTableFull",
        "AusterUnresponsive",
    ] {
        assert!(!early.contains(alert), "{alert} without its condition");
    }

    let cable = Cable::default();
    let flood = Scripted::start(of_switches, 0xdf, Fault::Flood, &cable);
    flood.speak();
    prometheus.expect("AusterPacketInsShed");
    drop(flood);
    let [one, other] = SLOW;
    let faults = [
        (one, Fault::Slow),
        (other, Fault::Slow),
        (0xd2, Fault::Full),
    ];
    let scripted = faults.map(|(dpid, fault)| Scripted::start(of_switches, dpid, fault, &cable));
    // An increase needs a scrape before it.
    let refused = "auster_table_full_total{dp_id=\"00000000000000d2\"}";
    prometheus.wait_for(refused, |count| count == 0.0);
    scripted.iter().for_each(Scripted::speak);
    let voice = r#"{"proto": "udp", "dst_port": 5070}"#;
    assert_eq!(request(api, &token, "PUT", "/v1/services/more", voice), 201);
    for _ in 0..20 {
        let status = request(api, "wrong", "GET", "/v1/topology", "");
        assert!([401, 429].contains(&status), "{status}");
    }
    for _ in 0..20 {
        let mut stream = TcpStream::connect(of_tls).unwrap();
        let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = stream.read(&mut [0; 64]);
    }
    members.ovs.vsctl(&["del-port", "e1", "pa"]);
    for alert in begun.iter().map(String::as_str).chain([
        "AusterConnectionsRefused",
        "AusterEchoSlow",
        "AusterLinkLost",
        "AusterLogins",
        "AusterPathSetupSlow",
        "AusterTableFull",
    ]) {
        prometheus.expect(alert);
    }
    drop(scripted);
    members.ovs.vsctl(&["del-br", "e2"]);
    prometheus.expect("AusterSwitchGone");

    let stopped = Stopped::thread(alone.child.id(), "application");
    prometheus.expect("AusterUnresponsive");
    drop(stopped);

    // A member whose file has another setting than the other members' files.
    let file = members.file(0);
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + "[metrics]\nports = false\n").unwrap();
    let member = members.running[0].as_ref().unwrap();
    kill(
        Pid::from_raw(member.child.id().cast_signed()),
        Signal::SIGHUP,
    )
    .unwrap();
    prometheus.expect("AusterConfigurationsDiffer");
    members.end(2, Signal::SIGKILL);
    prometheus.expect("AusterDown");
    prometheus.expect("AusterClusterMemberSilent");
    members.etcd.stop(0);
    prometheus.expect("AusterEtcdAway");
    // A member that starts without etcd has nothing to serve by.
    for member in [0, 1] {
        members.end(member, Signal::SIGKILL);
    }
    members.restart(0);
    prometheus.scrape(&[members.apis[0], api]);
    prometheus.expect("AusterClusterNoMaster");

    let mut known = prometheus.fired();
    for (alert, why) in NOT_HERE {
        assert!(!known.contains(alert), "{alert} has fired, although {why}");
        known.insert(alert.to_owned());
    }
    assert_eq!(known, alerts(false));
}

/// A relay that serves metrics, ended with the test.
struct Relay {
    child: Child,
    metrics: SocketAddr,
}

impl Relay {
    /// Starts `auster relay` with the certificate of `name` in a folder.
    fn start(dir: &Path, name: &str, words: &[&str]) -> Relay {
        let metrics = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let peers = match words[0] {
            "controller" => "switch",
            _ => "controller",
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_auster"));
        command.current_dir(dir).arg("relay").args(words);
        command.args(["--metrics", &metrics.to_string()]);
        command.args(["-p", &format!("{name}-privkey.pem")]);
        command.args(["-c", &format!("{name}-cert.pem")]);
        command.args(["-C", &format!("pki/{peers}ca/cacert.pem")]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        Relay { child, metrics }
    }

    /// Starts a switch's relay that dials the port `to`.
    fn of_switch(dir: &Path, name: &str, bridges: u16, to: u16, more: &[&str]) -> Relay {
        let bridges = format!("ptcp:{bridges}:127.0.0.1");
        let to = format!("quic:127.0.0.1:{to}");
        let words = ["switch", "--openflow", &bridges, "--connect", &to];
        Relay::start(dir, name, &[&words[..], more].concat())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that passes TCP on to the port `to` and answers no UDP.
fn without_udp(to: u16) -> (UdpSocket, u16) {
    let port = free_port();
    let silent = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            let copies = [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far, near),
            ];
            for (mut from, mut to) in copies {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (silent, port)
}

#[test]
fn alerts_of_relays_fire_under_a_real_prometheus() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for words in [
        &["init"][..],
        &["controller", "ctl"],
        &["switch", "busy"],
        &["switch", "firewalled"],
        &["switch", "picky"],
        &["switch", "twin"],
    ] {
        auster(dir, &[&["pki"], words].concat());
    }
    let prometheus = Prometheus::start("none");
    let controller = Auster::start(&["ptcp:0:127.0.0.1"]);
    let (listen, openflow) = (free_port(), format!("tcp:127.0.0.1:{}", controller.port()));
    let method = format!("pquic:{listen}:127.0.0.1");
    let words = ["controller", "--listen", &method, "--openflow", &openflow];
    let hub = Relay::start(dir, "ctl", &[&words[..], &["--policy", "auster"]].concat());
    let bridges = free_port();
    let slow = ["--policy", "auster", "--rate", "64kbit"];
    let busy = Relay::of_switch(dir, "busy", bridges, listen, &slow);
    prometheus.scrape(&[hub.metrics, busy.metrics]);
    prometheus.wait_for("sum(auster_relay_sessions)", |count| count == 2.0);
    let conflicts = "auster_relay_same_name_conflicts_total";
    prometheus.wait_for(conflicts, |count| count == 0.0);
    prometheus.wait_for("min(count_over_time(up[2m]))", |scrapes| scrapes >= 3.0);
    assert_eq!(
        prometheus.fired(),
        BTreeSet::new(),
        "without their conditions"
    );

    let (_silent, port) = without_udp(listen);
    let firewalled = Relay::of_switch(dir, "firewalled", free_port(), port, &[]);
    let other = ["--peer-name", "other"];
    let picky = Relay::of_switch(dir, "picky", free_port(), listen, &other);
    let twins = [(); 2].map(|()| Relay::of_switch(dir, "twin", free_port(), listen, &[]));
    prometheus.scrape(&[hub.metrics, busy.metrics, firewalled.metrics, picky.metrics]);
    let at = SocketAddr::from(([127, 0, 0, 1], bridges));
    let flood = Scripted::start(at, 0xdf, Fault::Flood, &Cable::default());
    flood.speak();
    for alert in [
        "AusterRelayByTls",
        "AusterRelayHandshakesRefused",
        "AusterRelayPacketInsShed",
        "AusterRelaySameName",
    ] {
        prometheus.expect(alert);
    }
    drop((flood, twins));
    drop(hub);
    prometheus.expect("AusterRelayGone");
    let of_relays = alerts(true);
    assert!(prometheus.fired().is_superset(&of_relays));
    assert_eq!(of_relays.len(), 5);
}
