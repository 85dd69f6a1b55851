//! Queues of many switches kept over OVSDB, against real, private ovsdb-servers and a real Open
//! vSwitch: wanted queues are written once, others' rows stay, and a killed process leaves queues
//! that are complete or absent. Messages of strangers at the listener take bounded memory.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::dummy::DummySwitch;
use common::running::Running;
use common::{run, wait_until};
use driver::databases::{Databases, DatapathView, QueuesState, Views, Wanted};
use net::clock::Clock;
use net::method::{Method, Protocol};
use net::tls::Security;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use openflow::DatapathId;
use ovsdb::vswitch::qos::{PortQueues, Queue};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const PATIENCE: Duration = Duration::from_secs(180);

/// A database with one bridge of two ports. No program carries out its rows.
struct Server {
    dir: TempDir,
    process: Child,
    dpid: u64,
}

impl Server {
    fn start(dpid: u64) -> Server {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("db").display().to_string();
        run("ovsdb-tool", &["create", &file, SCHEMA]);
        let process = Server::spawn(&dir);
        let server = Server { dir, process, dpid };
        server.wait();
        server.vsctl("init");
        server.vsctl("add-br br0 -- add-port br0 p1 -- add-port br0 p2");
        server.name_datapath();
        server
    }

    /// The column is ephemeral: where a switch runs, ovs-vswitchd writes it whenever it connects.
    fn name_datapath(&self) {
        let dpid = self.dpid;
        self.vsctl(&format!("set bridge br0 datapath_id=\"{dpid:016x}\""));
    }

    fn spawn(dir: &TempDir) -> Child {
        let path = |name: &str| dir.path().join(name).display().to_string();
        Command::new("ovsdb-server")
            .arg(path("db"))
            .arg(format!("--remote=punix:{}", path("sock")))
            .arg("--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
            .arg(format!("--unixctl={}", path("ctl")))
            .arg("-vconsole:off")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn wait(&self) {
        let give_up = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(Instant::now() < give_up, "ovsdb-server does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(self.socket());
        self.process = Server::spawn(&self.dir);
        self.wait();
        self.name_datapath();
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    fn method(&self) -> Method {
        Method::DialUnix(self.socket())
    }

    fn vsctl(&self, line: &str) -> String {
        let db = format!("--db=unix:{}", self.socket().display());
        let words: Vec<&str> = line.split(' ').collect();
        run(
            "ovs-vsctl",
            &[&[&db as &str, "--no-wait"], &words[..]].concat(),
        )
    }

    fn uuids(&self, table: &str) -> Vec<String> {
        let line = format!("--columns=_uuid --format=csv --no-headings list {table}");
        let text = self.vsctl(&line);
        let mut uuids: Vec<String> = text.lines().map(str::to_owned).collect();
        uuids.retain(|uuid| !uuid.is_empty());
        uuids.sort();
        uuids
    }

    fn counts(&self) -> (usize, usize) {
        (self.uuids("qos").len(), self.uuids("queue").len())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Three queues with a minimum of `mbit` Mbit/s each.
fn queues(mbit: u64) -> PortQueues {
    let queue = |at: u32| Queue {
        min_rate_bps: Some(mbit * 1_000_000),
        priority: Some(at),
        dscp: Some(8 * at as u8),
        ..Queue::default()
    };
    PortQueues {
        max_rate_bps: Some(100_000_000),
        queues: (0..3).map(|at| (at, queue(at))).collect(),
    }
}

fn wanted(dpid: u64, ports: &[(&str, PortQueues)]) -> Wanted {
    let ports = ports.iter();
    let ports = ports.map(|(name, queues)| ((*name).to_owned(), queues.clone()));
    Wanted::from([(DatapathId(dpid), ports.collect::<BTreeMap<_, _>>())])
}

async fn start(methods: &[Method]) -> Databases {
    let security = Security::plain();
    let started = Databases::start(methods, &security, Clock::start(), 1).await;
    started.unwrap()
}

/// Waits until `is_seen` accepts the views, and returns them.
async fn shows(views: &mut watch::Receiver<Views>, is_seen: impl Fn(&Views) -> bool) -> Views {
    let seen = tokio::time::timeout(PATIENCE, views.wait_for(|views| is_seen(views)));
    let seen = seen.await.ok().map(|seen| seen.unwrap().clone());
    seen.unwrap_or_else(|| panic!("not seen in {:#?}", views.borrow()))
}

fn view(views: &Views, dpid: u64) -> Option<&DatapathView> {
    views.get(&DatapathId(dpid))
}

fn state<'a>(views: &'a Views, dpid: u64, port: &str) -> Option<&'a QueuesState> {
    Some(&view(views, dpid)?.ports.get(port)?.queues)
}

fn is_written(views: &Views, dpid: u64, port: &str) -> bool {
    state(views, dpid, port) == Some(&QueuesState::Written)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wanted_is_written_once_and_others_queues_stay() {
    let mut server = Server::start(1);
    server.vsctl("set port p2 qos=@q -- --id=@q create qos type=linux-hfsc");
    server.vsctl("create queue external_ids:owner=somebody");
    // A row of a version that was killed in the middle. This version cannot leave such a row.
    server.vsctl("create queue external_ids:auster=run");
    let (databases, p1) = (start(&[server.method()]).await, queues(20));
    let mut views = databases.views();
    let seen = shows(&mut views, |views| view(views, 1).is_some()).await;
    assert_eq!(state(&seen, 1, "p1"), Some(&QueuesState::Absent));
    let datapath = view(&seen, 1).unwrap();
    assert_eq!(
        (datapath.bridge.as_str(), datapath.datapath_type.as_str()),
        ("br0", "system")
    );

    let both = [("p1", p1.clone()), ("p2", p1.clone()), ("p9", p1.clone())];
    databases.want(wanted(1, &both));
    let seen = shows(&mut views, |views| is_written(views, 1, "p1")).await;
    let problem = |port: &str| state(&seen, 1, port).unwrap().problem().unwrap();
    assert!(problem("p2").contains("ovs-vsctl clear port p2 qos"));
    assert!(problem("p9").contains("no such port"));
    assert_eq!(server.counts(), (2, 4), "the orphan is gone");
    let qos = server.vsctl("get port p1 qos");

    // Nothing is sent for rows that exist already, not even by a new session.
    let before = (
        server.uuids("qos"),
        server.vsctl("get open_vswitch . next_cfg"),
    );
    databases.want(wanted(1, &both));
    drop(databases);
    let databases = start(&[server.method()]).await;
    let mut views = databases.views();
    let seen = shows(&mut views, |views| view(views, 1).is_some()).await;
    assert_eq!(state(&seen, 1, "p1"), Some(&QueuesState::Left));
    databases.want(wanted(1, &both));
    shows(&mut views, |views| is_written(views, 1, "p1")).await;
    let after = (
        server.uuids("qos"),
        server.vsctl("get open_vswitch . next_cfg"),
    );
    assert_eq!(after, before);

    // The database ends, and comes back.
    server.restart();
    databases.want(wanted(1, &[("p1", queues(30))]));
    let changed = async {
        while server.vsctl("get port p1 qos") == qos {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, changed).await.unwrap();
    assert_eq!(server.counts(), (2, 4), "the old ones are gone");
    databases.want(wanted(1, &[]));
    shows(&mut views, |views| {
        state(views, 1, "p1") == Some(&QueuesState::Absent)
    })
    .await;
    assert_eq!(server.counts(), (1, 1), "somebody's are not");
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_dial_in_and_none_speaks_for_anothers_datapath() {
    let servers = [Server::start(1), Server::start(2)];
    let listen = Method::parse("ptcp:0:127.0.0.1", Protocol::Ovsdb).unwrap();
    let databases = start(&[listen]).await;
    let manager = databases.listening()[0].0.to_string();
    let port = manager.split(':').nth(1).unwrap();
    for server in &servers {
        server.vsctl(&format!("set-manager tcp:127.0.0.1:{port}"));
    }
    let mut views = databases.views();
    shows(&mut views, |views| views.len() == 2).await;
    let mut both = wanted(1, &[("p1", queues(10))]);
    both.extend(wanted(2, &[("p2", queues(20))]));
    databases.want(both);
    shows(&mut views, |views| {
        is_written(views, 1, "p1") && is_written(views, 2, "p2")
    })
    .await;
    assert_eq!(servers.each_ref().map(Server::counts), [(1, 3), (1, 3)]);

    let before = servers[1].uuids("qos");
    let impostor = Server::start(2);
    impostor.vsctl("set bridge br0 datapath_type=netdev");
    impostor.vsctl(&format!("set-manager tcp:127.0.0.1:{port}"));
    // Enough time for the impostor to be heard, if auster listened to it.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let datapath_type = view(&views.borrow(), 2).unwrap().datapath_type.clone();
    assert_eq!(datapath_type, "system");
    assert_eq!(impostor.counts(), (0, 0));
    assert_eq!(servers[1].uuids("qos"), before);
}

/// Each turn ends at another point: before, within or after the transactions.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_ended_leaves_queues_that_are_complete_or_absent() {
    let server = Server::start(1);
    let (mut complete, mut absent) = (0, 0);
    for turn in 0..50u64 {
        let databases = start(&[server.method()]).await;
        // Other queues each time, so that there is always something to be changed.
        let ports = [("p1", queues(1 + turn % 7)), ("p2", queues(1 + turn % 5))];
        let wanted = match turn % 4 {
            3 => wanted(1, &[]),
            _ => wanted(1, &ports),
        };
        databases.want(wanted);
        tokio::time::sleep(Duration::from_micros(turn * 1731)).await;
        drop(databases);
        // Time for messages that were sent already.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut queue_count = 0;
        for port in ["p1", "p2"] {
            let qos = server.vsctl(&format!("get port {port} qos"));
            if qos.trim() == "[]" {
                absent += 1;
                continue;
            }
            let queues = server.vsctl(&format!("get qos {} queues", qos.trim()));
            assert_eq!(queues.matches('=').count(), 3, "turn {turn}: {queues}");
            complete += 1;
            queue_count += 3;
        }
        assert_eq!(
            server.counts(),
            (queue_count / 3, queue_count),
            "turn {turn}"
        );
    }
    assert!(complete > 3 && absent > 3, "{complete} {absent}");
}

/// Open vSwitch reports that it has read the rows, a helper beside it reports whether the kernel
/// has the queues, and the controller learns the limit of its table.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_switch_takes_the_rows_in_and_tells_its_limit() {
    let switch = DummySwitch::start(2);
    let set = "set bridge br0 flow_tables:0=@t -- --id=@t create flow_table flow_limit=77";
    switch.vsctl(&set.split(' ').collect::<Vec<_>>());
    let databases = start(&[Method::DialUnix(switch.path("db.sock"))]).await;
    let mut views = databases.views();
    let seen = shows(&mut views, |views| view(views, 1).is_some()).await;
    let datapath = view(&seen, 1).unwrap();
    assert_eq!(datapath.flow_limit, Some(77));
    assert_eq!(datapath.ports["p2"].numbers, [2]);
    databases.want(wanted(1, &[("p2", queues(20))]));
    shows(&mut views, |views| is_written(views, 1, "p2")).await;
    let qos = switch.vsctl(&["get", "port", "p2", "qos"]);
    let says = "external_ids:auster-kernel=\"failed: no interface p2 here\"";
    switch.vsctl(&["--no-wait", "set", "qos", qos.trim(), says]);
    let seen = shows(&mut views, |views| {
        matches!(state(views, 1, "p2"), Some(QueuesState::Failed(_)))
    })
    .await;
    let problem = state(&seen, 1, "p2").unwrap().problem().unwrap();
    assert_eq!(problem, "beside the switch: no interface p2 here");
    let kind = switch.vsctl(&["--columns=type", "--no-headings", "list", "qos"]);
    assert!(kind.contains("linux-noop"), "{kind}");
}

#[test]
fn the_controller_keeps_to_the_limit_that_the_switches_database_has() {
    let switch = DummySwitch::start(1);
    let database = format!("unix:{}", switch.path("db.sock").display());
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("status");
    let status = socket.display().to_string();
    let line = [
        "run",
        "ptcp:0:127.0.0.1",
        "--ovsdb",
        &database,
        "--status",
        &status,
    ];
    let mut auster = Running::start(&line);
    let at = auster.listening("ptcp");
    let said = auster.wait_for("database of switch 0000000000000001");
    assert!(
        said.contains("br0") && said.contains("datapath dummy"),
        "{said}"
    );
    switch.vsctl(&["--no-wait", "set-controller", "br0", &format!("tcp:{at}")]);
    auster.wait_for("switch 0000000000000001 up");
    let set =
        "--no-wait set bridge br0 flow_tables:0=@t -- --id=@t create flow_table flow_limit=77";
    switch.vsctl(&set.split(' ').collect::<Vec<_>>());
    auster.wait_for("77 entries");
    let give_up = Instant::now() + PATIENCE;
    loop {
        let mut text = String::new();
        let mut reader = UnixStream::connect(&socket).unwrap();
        reader.read_to_string(&mut text).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["databases"][0]["ports"]["p1"]["queues"], "absent");
        if document["switches"][0]["table"]["limit"] == 77 {
            break;
        }
        assert!(Instant::now() < give_up, "{document:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// From 1.4 on a switch watches the room in its table by itself. It keeps the eviction that
/// somebody else has asked for, and reports when the table fills and when there is room again.
#[test]
fn a_real_switch_watches_its_table_and_reports() {
    for (version, name) in [("1.4", "OpenFlow14"), ("1.5", "OpenFlow15")] {
        let switch = DummySwitch::start(1);
        let set = format!(
            "--no-wait set bridge br0 protocols={name} flow_tables:8=@t -- \
             --id=@t create flow_table flow_limit=100"
        );
        switch.vsctl(&set.split(' ').collect::<Vec<_>>());
        let bridge = format!("unix:{}", switch.path("br0.mgmt").display());
        let ofctl = |words: &[&str]| {
            let fixed = ["-O", name, words[0], &bridge];
            run("ovs-ofctl", &[&fixed, &words[1..]].concat())
        };
        wait_until("the bridge speaks it", || {
            Command::new("ovs-ofctl")
                .args(["-O", name, "mod-table", &bridge, "8", "evict"])
                .output()
                .is_ok_and(|output| output.status.success())
        });
        let database = format!("unix:{}", switch.path("db.sock").display());
        let dir = TempDir::new().unwrap();
        let status = dir.path().join("status").display().to_string();
        let line = ["run", "ptcp:0:127.0.0.1", "--versions", version];
        let more = ["--ovsdb", &database, "--status", &status];
        let mut auster = Running::start(&[&line[..], &more].concat());
        let at = auster.listening("ptcp");
        switch.vsctl(&["--no-wait", "set-controller", "br0", &format!("tcp:{at}")]);
        auster.wait_for("reconciled");
        wait_until("it has the marks", || {
            let told = ofctl(&["dump-table-desc"]);
            let table = told.split("table 8:").nth(1).unwrap_or_default();
            let table = table.split("table 9:").next().unwrap_or_default();
            table.contains("eviction=on")
                && table.contains("vacancy=on vacancy_down=30% vacancy_up=40%")
        });
        let table = || {
            let mut text = String::new();
            let mut reader = UnixStream::connect(&status).unwrap();
            reader.read_to_string(&mut text).unwrap();
            let document: Value = serde_json::from_str(&text).unwrap();
            document["switches"][0]["table"].clone()
        };
        // The switch reports only after it has been asked again, and nothing outside shows when
        // that is.
        let fill = || {
            let entries = (0..75).map(|n| format!("table=8,udp,tp_dst={n},actions=drop\n"));
            let file = dir.path().join("entries");
            std::fs::write(&file, entries.collect::<String>()).unwrap();
            ofctl(&["add-flows", file.to_str().unwrap()]);
        };
        fill();
        wait_until("the switch has reported", || table()["vacancy_events"] == 1);
        wait_until("the table was read", || {
            table()["entries"].as_u64() >= Some(75)
        });
        ofctl(&["del-flows", "udp"]);
        wait_until("there is room again", || table()["vacancy_events"] == 2);
        fill();
        wait_until("it has filled again", || table()["vacancy_events"] == 3);
    }
}

/// The columns are read, also when they change, and followed only if the configuration says so.
#[test]
fn vlans_of_a_switch_are_followed_or_named() {
    let switch = DummySwitch::start(3);
    let set = |line: &str| {
        let words: Vec<&str> = ["--no-wait"].into_iter().chain(line.split(' ')).collect();
        switch.vsctl(&words)
    };
    set("set port p1 tag=20 -- set port p2 tag=30 vlan_mode=dot1q-tunnel -- set port br0 tag=20");
    let database = format!("unix:{}", switch.path("db.sock").display());
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("net.toml");
    std::fs::write(&file, "vlans = \"ovsdb\"\n").unwrap();
    let config = file.display().to_string();
    let line = [
        "run",
        "ptcp:0:127.0.0.1",
        "--ovsdb",
        &database,
        "--config",
        &config,
    ];
    let mut auster = Running::start(&line);
    let refused = auster.wait_for("its packets belong to no VLAN");
    assert!(
        refused.contains("p2 (0000000000000001:2) has tag=30 vlan_mode=dot1q-tunnel"),
        "{refused}"
    );
    auster.wait_for("vlans of the databases: VLANs 1, ports 2, changed ports 2");
    set("clear port p1 tag -- set port p1 trunks=20,40");
    auster.wait_for("vlans of the databases: VLANs 2, ports 2, changed ports 1");
    set("set port p3 tag=50 trunks=60 vlan_mode=native-untagged");
    auster.wait_for("vlans of the databases: VLANs 4, ports 3, changed ports 1");

    let pid = Pid::from_raw(auster.child.id().cast_signed());
    let hang_up = || kill(pid, Signal::SIGHUP).unwrap();
    let stated = "[[vlan]]\nid = 20\n[[port]]\nat = \"1:1\"\naccess = 20\n";
    std::fs::write(&file, format!("vlans = \"ovsdb\"\n{stated}")).unwrap();
    hang_up();
    auster.wait_for("p1 (0000000000000001:1) has trunks=20,40 in the database and other VLANs");
    auster.wait_for(&format!(
        "vlans of {config}: VLANs 4, ports 3, changed ports 1"
    ));
    std::fs::write(&file, format!("{stated}native = 20\n")).unwrap();
    hang_up();
    auster.wait_for(&format!("reload of {config}: refused"));
    std::fs::write(&file, stated).unwrap();
    hang_up();
    auster.wait_for(&format!(
        "vlans of {config}: VLANs 1, ports 1, changed ports 2"
    ));
    auster.wait_for("p3 (0000000000000001:3) has tag=50 trunks=60 vlan_mode=native-untagged");
    let log = auster.log.join("\n");
    assert!(
        !log.contains("(0000000000000001:65534)"),
        "no host is at the local port: {log}"
    );
    let said = log.matches("its packets belong to no VLAN").count();
    assert_eq!(said, 1, "a line comes once: {log}");
}

/// Hosts of different VLANs must not reach each other while a database is away, however the process
/// ended.
#[test]
fn a_restart_has_the_vlans_of_databases_before_they_are_read() {
    let switch = DummySwitch::start(2);
    switch.vsctl(&["--no-wait", "set", "port", "p1", "tag=20"]);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("net.toml");
    std::fs::write(&file, "vlans = \"ovsdb\"\n").unwrap();
    let (config, state) = (file.display().to_string(), dir.path().join("state"));
    std::fs::create_dir(&state).unwrap();
    let start = |database: &Path| {
        let database = format!("unix:{}", database.display());
        let state = state.display().to_string();
        let words = ["--config", &config, "--state", &state, "--ovsdb", &database];
        Running::start(&[&["run", "ptcp:0:127.0.0.1"], &words[..]].concat())
    };
    let mut auster = start(&switch.path("db.sock"));
    auster.wait_for("vlans of the databases: VLANs 1, ports 1, changed ports 1");
    wait_until("they are written", || state.join("vlans.json").exists());
    auster.child.kill().unwrap();
    auster.child.wait().unwrap();
    let mut auster = start(&dir.path().join("nobody.sock"));
    auster.wait_for("vlans of the databases, as they were last: VLANs 1, ports 1, changed ports 1");
}

/// Connects from a stranger's address.
async fn strange(port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 1, 1], 0).into()).unwrap();
    let to = ([127, 0, 0, 1], port).into();
    socket.connect(to).await.unwrap()
}

/// Answers the requests before its rows, sends `rows`, and then reads until the end.
async fn database(port: u16, rows: Arc<str>) {
    let mut stream = strange(port).await;
    let mut buf = vec![0; 1 << 16];
    if say_rows(&mut stream, &rows).await.is_some() {
        while stream.read(&mut buf).await.is_ok_and(|len| len > 0) {}
    }
}

/// Answers the requests up to that for the rows. `None` if the connection ends before.
async fn say_rows(stream: &mut TcpStream, rows: &str) -> Option<()> {
    for (id, method, result) in [(0, "get_schema", &schema()[..]), (1, "monitor_cond", rows)] {
        hear(stream, method).await?;
        let head = format!(r#"{{"id":{id},"error":null,"result":"#);
        for part in [&head, result, "}"] {
            stream.write_all(part.as_bytes()).await.ok()?;
        }
    }
    Some(())
}

/// Reads until `method` has been asked for; `None` at the end.
async fn hear(stream: &mut TcpStream, method: &str) -> Option<()> {
    let (mut input, mut buf) = (String::new(), vec![0; 1 << 16]);
    while !input.contains(method) {
        let len = stream.read(&mut buf).await.ok().filter(|len| *len > 0)?;
        input.push_str(std::str::from_utf8(&buf[..len]).unwrap());
    }
    Some(())
}

/// One table that everything may be said of.
fn schema() -> String {
    let columns =
        r#"{"name":{"type":"string"},"ports":{"type":{"key":"string","min":0,"max":"unlimited"}}}"#;
    format!(
        r#"{{"name":"Open_vSwitch","version":"1","tables":{{"Bridge":{{"columns":{columns}}}}}}}"#
    )
}

/// The database is alive: it answers each echo request with one more byte of the message. The first
/// request comes after 5 s, and after 10 s the message is too late.
#[tokio::test]
async fn a_message_that_a_database_never_ends_ends_its_connection() {
    let mut auster = Running::start(&["run", "ptcp:0:127.0.0.1", "--ovsdb", "ptcp:0:127.0.0.1"]);
    let line = auster.wait_for("databases may come to ptcp:");
    let mut stream = strange(line.split(':').nth_back(1).unwrap().parse().unwrap()).await;
    say_rows(&mut stream, "{}")
        .await
        .expect("its rows are read");
    stream.write_all(b"{").await.unwrap();
    let mut answered = 0;
    while hear(&mut stream, "\"echo\"").await.is_some() {
        answered += 1;
        assert!(answered < 3, "still there after {answered} echo requests");
        let _ = stream.write_all(b" ").await;
    }
    auster.wait_for("a message is not complete in time");
}

/// The operator has chosen these databases and auster dials them, so no network's share ends them
/// sooner.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_database_is_bounded_and_more_closely_until_its_rows_are_asked_for() {
    let text = ("[\"", "x".repeat(1 << 16));
    let values = ("[0", ",[]".repeat(1 << 14));
    // One piece more than the limit; nobody receives the end of the message.
    let cases = [
        (false, &text, (4 << 4) + 1, "get_schema was refused: Closed"),
        (false, &values, 2, "get_schema was refused: Closed"),
        (true, &text, (64 << 4) + 1, "longer than 67108864 bytes"),
        (true, &values, 40, "take more than 100663296 bytes"),
    ];
    let mut words = vec!["run".to_owned(), "ptcp:0:127.0.0.1".to_owned()];
    let mut listeners = Vec::new();
    for _ in &cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let method = format!("tcp:{}", listener.local_addr().unwrap());
        words.extend(["--ovsdb".to_owned(), method.clone()]);
        listeners.push((method, listener));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut auster = Running::start(&words);
    for ((has_rows, shape, pieces, expected), (method, listener)) in
        cases.into_iter().zip(listeners)
    {
        let (mut stream, _) = listener.accept().await.unwrap();
        if has_rows {
            say_rows(&mut stream, "{}")
                .await
                .expect("its rows are read");
        }
        let (head, piece) = shape;
        let head = format!(r#"{{"id":null,"method":"a","params":{head}"#);
        stream.write_all(head.as_bytes()).await.unwrap();
        for _ in 0..pieces {
            let _ = stream.write_all(piece.as_bytes()).await;
        }
        let problem = auster.wait_for(&format!("database {method}: "));
        assert!(problem.contains(expected), "{expected}: {problem}");
    }
}

/// 64 connections of one address with 60 MiB each, in five shapes.
#[tokio::test(flavor = "multi_thread")]
async fn databases_of_one_address_take_no_more_than_one_network_may() {
    const CONNECTIONS: usize = 64;
    const BYTES: usize = 60 << 20;
    const MIB_MAX: u64 = 128;
    let mut auster = Running::start(&["run", "ptcp:0:127.0.0.1", "--ovsdb", "ptcp:0:127.0.0.1"]);
    let line = auster.wait_for("databases may come to ptcp:");
    let port = line.split(':').nth_back(1).unwrap().parse().unwrap();
    let empty: Arc<str> = format!("[0{}]", ",[]".repeat(BYTES / 3)).into();
    let row = |n: usize| format!(r#""{}":{{"initial":{{}}}}"#, uuid(n));
    let many: Vec<String> = (0..BYTES / 60).map(row).collect();
    let many: Arc<str> = format!(r#"{{"Bridge":{{{}}}}}"#, many.join(",")).into();
    let text = "x".repeat(BYTES);
    let long = format!(
        r#"{{"Bridge":{{"{}":{{"initial":{{"name":"{text}"}}}}}}}}"#,
        uuid(0)
    );
    let long: Arc<str> = long.into();
    drop(text);
    let most = Mutex::new(BTreeMap::new());
    let before = auster.memory();
    let note = |shape: &'static str| {
        let mut most = most.lock().unwrap();
        let now = auster.memory().saturating_sub(before) >> 20;
        let peak = most.entry(shape).or_insert(0);
        *peak = now.max(*peak);
    };
    // Sent at once, before any request: brackets, and a text that never ends.
    let plain: [(&'static str, Arc<str>); 2] = [
        ("brackets at once", empty.clone()),
        ("a text at once", long.clone()),
    ];
    for (shape, bytes) in plain {
        let mut sent = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let bytes = bytes.clone();
            sent.spawn(async move {
                let mut stream = strange(port).await;
                let _ = stream
                    .write_all(br#"{"id":null,"method":"a","params":"#)
                    .await;
                let _ = stream.write_all(bytes.as_bytes()).await;
                sleep(Duration::from_millis(200)).await;
            });
        }
        drain(&mut sent, || note(shape)).await;
    }
    // Sent as an answer.
    let rows: [(&'static str, Arc<str>); 3] =
        [("brackets", empty), ("many rows", many), ("a text", long)];
    for (shape, rows) in rows {
        let mut sent = JoinSet::new();
        for _ in 0..CONNECTIONS {
            sent.spawn(database(port, rows.clone()));
        }
        drain(&mut sent, || note(shape)).await;
    }
    println!("MiB more: {:?}", most.lock().unwrap());
    for (shape, peak) in most.into_inner().unwrap() {
        // Without a bound one connection takes 1.5 GiB.
        assert!(peak <= MIB_MAX, "{shape}: {peak} MiB more");
    }
}

async fn drain(tasks: &mut JoinSet<()>, mut look: impl FnMut()) {
    let end = Instant::now() + Duration::from_secs(12);
    loop {
        look();
        tokio::select! {
            done = tasks.join_next() => if done.is_none() { return },
            () = sleep(Duration::from_millis(5)) => {}
        }
        if Instant::now() > end {
            tasks.shutdown().await;
        }
    }
}

fn uuid(n: usize) -> String {
    format!("00000000-0000-0000-0000-{n:012x}")
}
