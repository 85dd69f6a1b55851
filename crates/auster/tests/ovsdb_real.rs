//! Our OVSDB session against a real, private ovsdb-server over a Unix socket.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clock::Instant;
use ovsdb::vswitch::qos::{Owner, PortQueues, Queue, QueueSelection};
use ovsdb::vswitch::{self, Controller};
use ovsdb::{
    Answer, Condition, Config, Datum, MonitorId, OpResult, Operation, Output, RequestError,
    RequestId, Schema, Session, Transaction,
};
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A server of our own, in a directory of its own.
struct Server {
    dir: TempDir,
}

impl Server {
    fn start() -> Server {
        let server = Server {
            dir: tempfile::tempdir().unwrap(),
        };
        let path = |name: &str| server.path(name).display().to_string();
        run("ovsdb-tool", &["create", &path("db"), SCHEMA]);
        run(
            "ovsdb-server",
            &[
                &path("db"),
                &format!("--remote=punix:{}", path("sock")),
                &format!("--unixctl={}", path("ctl")),
                &format!("--pidfile={}", path("pid")),
                "--detach",
                "--no-chdir",
                "-voff",
            ],
        );
        server
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn vsctl(&self, args: &[&str]) {
        let db = format!("--db=unix:{}", self.path("sock").display());
        run("ovs-vsctl", &[&[&db as &str, "--no-wait"], args].concat());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.path("pid")).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse() {
            let pid = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output();
    let output = output.unwrap_or_else(|e| panic!("{program} (of Open vSwitch): {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}

/// A session and its socket, driven by the caller that waits.
struct Client {
    session: Session,
    socket: UnixStream,
    started: std::time::Instant,
}

impl Client {
    fn connect(path: &Path, config: Config) -> Client {
        Client {
            session: Session::new(Instant::START, config),
            socket: UnixStream::connect(path).unwrap(),
            started: std::time::Instant::now(),
        }
    }

    fn now(&self) -> Instant {
        Instant::START + self.started.elapsed()
    }

    /// Mutates, drains and waits until `wanted` takes an output, for 20 s at most.
    fn wait<T>(&mut self, mut wanted: impl FnMut(&Session, Output) -> Option<T>) -> T {
        let mut buf = vec![0; 1 << 16];
        let give_up = self.now() + Duration::from_secs(20);
        loop {
            while let Some(output) = self.session.poll_output() {
                match output {
                    Output::Transmit(bytes) => self.socket.write_all(&bytes).unwrap(),
                    Output::Close(reason) => panic!("closed: {reason}"),
                    output => {
                        if let Some(found) = wanted(&self.session, output) {
                            return found;
                        }
                    }
                }
            }
            let now = self.now();
            assert!(now < give_up, "what was waited for did not come");
            let due = self
                .session
                .poll_timeout()
                .map_or(give_up, |(at, _)| at.min(give_up));
            let patience = due.since(now).max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(patience)).unwrap();
            match self.socket.read(&mut buf) {
                Ok(0) => panic!("the server closed the connection"),
                Ok(n) => self.session.handle_bytes(self.now(), &buf[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => panic!("{e}"),
            }
            let now = self.now();
            self.session.handle_timeout(now);
        }
    }

    fn ask(
        &mut self,
        request: impl FnOnce(&mut Session, Instant) -> Result<RequestId, RequestError>,
    ) -> Answer {
        let now = self.now();
        let id = request(&mut self.session, now).unwrap();
        self.wait(|_, output| match output {
            Output::Answered(of, answer) if of == id => Some(answer),
            _ => None,
        })
    }

    fn schema(&mut self) -> Schema {
        match self.ask(|session, now| session.get_schema(now, vswitch::DATABASE)) {
            Answer::Schema(schema) => *schema,
            other => panic!("{other:?}"),
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Vec<OpResult> {
        match self.ask(|session, now| session.transact(now, transaction)) {
            Answer::Transacted(results) => results.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn monitor(&mut self, schema: &Schema, conditional: bool) -> MonitorId {
        let request = vswitch::monitor_request();
        let answer = self.ask(|session, now| {
            if conditional {
                session.monitor_cond(now, schema, &request)
            } else {
                session.monitor(now, schema, &request)
            }
        });
        match answer {
            Answer::Monitoring(monitor) => monitor,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until `shows` finds a value in the replica, and returns it.
    fn wait_replica<T>(
        &mut self,
        monitor: MonitorId,
        shows: impl Fn(&ovsdb::Replica) -> Option<T>,
    ) -> T {
        if let Some(seen) = shows(self.session.replica(monitor).unwrap()) {
            return seen;
        }
        self.wait(|session, output| match output {
            Output::Updated(of, _) if of == monitor => shows(session.replica(monitor)?),
            _ => None,
        })
    }
}

fn transaction() -> Transaction {
    Transaction::new(vswitch::DATABASE)
}

fn queues() -> PortQueues {
    let guaranteed = Queue {
        min_rate_bps: Some(1_000_000),
        priority: Some(1),
        dscp: Some(46),
        ..Queue::default()
    };
    let limited = Queue {
        max_rate_bps: Some(500_000),
        ..Queue::default()
    };
    PortQueues {
        max_rate_bps: Some(10_000_000),
        queues: [(0, guaranteed), (7, limited)].into(),
    }
}

fn controller() -> Controller {
    Controller {
        target: "tcp:127.0.0.1:6653".into(),
        inactivity_probe_ms: Some(2000),
        max_backoff_ms: Some(1000),
        controller_queue_size: Some(50),
        controller_rate_limit: Some(1000),
        controller_burst_limit: Some(250),
        enable_async_messages: Some(true),
        connection_mode: Some("out-of-band".into()),
        dscp: Some(48),
        is_connected: false,
    }
}

#[test]
fn a_bridge_with_controllers_and_queues_is_made_seen_and_taken_away() {
    let server = Server::start();
    server.vsctl(&["init"]);
    let mut client = Client::connect(&server.path("sock"), Config::default());
    let databases = client.ask(|session, now| session.list_dbs(now));
    let expected = vec!["Open_vSwitch".to_string(), "_Server".to_string()];
    assert_eq!(databases, Answer::Databases(expected));
    let schema = client.schema();
    assert!(schema.tables.len() > 10, "{} tables", schema.tables.len());
    let mut watcher = Client::connect(&server.path("sock"), Config::default());
    let by_difference = client.monitor(&schema, true);
    let whole = watcher.monitor(&schema, false);

    client.transact(&vswitch::add_bridge(transaction(), "br0", "netdev"));
    client.transact(&vswitch::add_port(transaction(), "br0", "p1", "dummy"));
    let port = client.wait_replica(by_difference, |replica| {
        let bridge = vswitch::bridges(replica).remove("br0")?;
        bridge.ports.into_iter().find(|port| port.name == "p1")
    });
    let set =
        |queues: &PortQueues| port.set_queues(Owner::Command, QueueSelection::SetQueue, queues);
    client.transact(&set(&queues()).unwrap().unwrap());
    let controllers = [
        controller(),
        Controller {
            target: "ptcp:".into(),
            ..Default::default()
        },
    ];
    let set = vswitch::set_controllers(transaction(), "br0", &controllers);
    client.transact(&vswitch::request_reconfiguration(set));

    let complete = |replica: &ovsdb::Replica| {
        let bridge = vswitch::bridges(replica).remove("br0")?;
        let has_queues = bridge.ports.iter().any(|port| port.qos.is_some());
        (bridge.controllers.len() == 2 && has_queues).then_some(bridge)
    };
    let bridge = client.wait_replica(by_difference, complete);
    assert_eq!(
        bridge,
        watcher.wait_replica(whole, complete),
        "update2 and update agree"
    );
    assert!(
        bridge.controllers.contains(&controller()),
        "{:?}",
        bridge.controllers
    );
    let port = bridge.ports.iter().find(|port| port.name == "p1").unwrap();
    let qos = port.qos.as_ref().unwrap();
    assert_eq!(
        (qos.kind.as_str(), qos.owner),
        ("linux-htb", Some(Owner::Command))
    );
    assert_eq!(qos.max_rate_bps, queues().max_rate_bps);
    let rows = qos.queues.iter();
    let seen = rows.map(|(number, row)| (*number, row.queue.clone()));
    assert_eq!(seen.collect::<BTreeMap<_, _>>(), queues().queues);
    let again = port.set_queues(Owner::Command, QueueSelection::SetQueue, &queues());
    assert_eq!(again, Ok(None), "it has them");
    assert_eq!(port.interfaces[0].kind, "dummy");
    let replica = client.session.replica(by_difference).unwrap();
    assert!(
        !vswitch::is_configured(replica),
        "no ovs-vswitchd runs here"
    );

    let clear = port.clear_queues(&[Owner::Command]).unwrap();
    client.transact(&vswitch::delete_bridge(clear, bridge.uuid));
    client.wait_replica(by_difference, |replica| {
        let left: usize = ["Bridge", "Port", "Interface", "Controller", "QoS", "Queue"]
            .iter()
            .map(|table| replica.rows(table).count())
            .sum();
        (left == 0).then_some(())
    });
}

#[test]
fn a_monitor_sees_what_somebody_else_does() {
    let server = Server::start();
    let mut client = Client::connect(&server.path("sock"), Config::default());
    let schema = client.schema();
    let monitor = client.monitor(&schema, true);
    server.vsctl(&[
        "add-br",
        "br1",
        "--",
        "set",
        "bridge",
        "br1",
        "fail_mode=secure",
    ]);
    let bridge = client.wait_replica(monitor, |replica| vswitch::bridges(replica).remove("br1"));
    assert_eq!(bridge.fail_mode.as_deref(), Some("secure"));
    server.vsctl(&["del-br", "br1"]);
    client.wait_replica(monitor, |replica| {
        vswitch::bridges(replica).is_empty().then_some(())
    });
}

/// 12 MiB into the database and out again: far more than one read, one socket buffer or one
/// TLS record.
#[test]
fn a_transaction_and_a_reply_above_ten_megabytes_pass() {
    const LEN: usize = 12 << 20;
    let server = Server::start();
    server.vsctl(&["init"]);
    let mut client = Client::connect(&server.path("sock"), Config::default());
    let text: String = (0..LEN).map(|i| char::from(b"ab\"\\{"[i % 5])).collect();
    let ids = Datum::map([("big", text.as_str())]);
    let put = Operation::update("Open_vSwitch", vec![], [("external_ids", ids.clone())]);
    assert_eq!(
        client.transact(&transaction().then(put)),
        [OpResult::Count(1)]
    );
    let get = transaction().then(Operation::select("Open_vSwitch", vec![]));
    let results = client.transact(&get);
    let [OpResult::Rows(rows)] = &results[..] else {
        panic!("a select answers rows")
    };
    assert!(rows[0]["external_ids"] == ids, "12 MiB came back changed");
}

#[test]
fn a_transaction_that_waits_can_be_cancelled_and_a_lock_is_held() {
    let server = Server::start();
    server.vsctl(&["init"]);
    let mut client = Client::connect(&server.path("sock"), Config::default());
    let never = Operation::Wait {
        table: "Bridge".into(),
        conditions: vec![Condition::equal("name", "never")],
        columns: vec!["name".into()],
        until_equal: false,
        rows: vec![],
        timeout_ms: 15_000,
    };
    let answer = client.ask(|session, now| {
        let id = session.transact(now, &transaction().then(never))?;
        session.cancel(now, id);
        Ok(id)
    });
    // ovsdb-server 3.1 never answers; RFC 7047 has it answer "canceled".
    let canceled = Answer::Refused("canceled".into());
    assert!(
        answer == Answer::TimedOut || answer == canceled,
        "{answer:?}"
    );

    let own = Operation::Assert { lock: "l".into() };
    let locked = client.ask(|session, now| session.lock(now, "l"));
    assert_eq!(locked, Answer::Lock { locked: true });
    assert_eq!(client.transact(&transaction().then(own)), [OpResult::Done]);

    let mut thief = Client::connect(&server.path("sock"), Config::default());
    let stolen = thief.ask(|session, now| session.steal(now, "l"));
    assert_eq!(stolen, Answer::Lock { locked: true });
    client.wait(|_, output| (output == Output::Stolen("l".into())).then_some(()));
}

/// A second of silence: without an answer to our probes, every 200 ms, the session would close.
#[test]
fn our_probes_are_answered_by_the_server() {
    let server = Server::start();
    let config = Config {
        inactivity_probe: Some(Duration::from_millis(200)),
        ..Config::default()
    };
    let mut client = Client::connect(&server.path("sock"), config);
    let until = client.now() + Duration::from_millis(1100);
    while client.now() < until {
        let wake = client.now() + Duration::from_millis(150);
        while let Some(output) = client.session.poll_output() {
            match output {
                Output::Transmit(bytes) => client.socket.write_all(&bytes).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        let mut buf = [0; 4096];
        client
            .socket
            .set_read_timeout(Some(wake.since(client.now())))
            .unwrap();
        if let Ok(n) = client.socket.read(&mut buf) {
            assert_ne!(n, 0, "the server closed the connection");
            client.session.handle_bytes(client.now(), &buf[..n]);
        }
        let now = client.now();
        client.session.handle_timeout(now);
    }
    assert!(!client.session.is_closed());
}
