//! Both relays as processes between a real Open vSwitch (dummy datapath, no privilege) and
//! `ovs-testcontroller`, and what happens when one of the relays is killed.

#[path = "common/ports.rs"]
mod ports;

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ports::free_port;
use serde_json::Value;
use tempfile::TempDir;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The longest wait for an event that must come, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(180);
const AUSTER: &str = env!("CARGO_BIN_EXE_auster");

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A network of one switch, a controller and a relay pair between them.
struct Lab {
    dir: TempDir,
    switch_relay: Option<Process>,
    controller_relay: Option<Process>,
    ports: [u16; 3],
    _daemons: Vec<Process>,
}

impl Lab {
    fn start(bridges: &[&str]) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let mut lab = Lab {
            dir,
            switch_relay: None,
            controller_relay: None,
            ports: [(); 3].map(|()| free_port()),
            _daemons: Vec::new(),
        };
        lab.make_certificates();
        lab.start_switch();
        lab.start_controller();
        lab.start_controller_relay();
        lab.start_switch_relay();
        for bridge in bridges {
            lab.add_bridge(bridge);
        }
        lab.wait("every bridge has a channel", |lab| {
            lab.channels().len() == bridges.len()
        });
        lab
    }

    fn make_certificates(&self) {
        for (kind, name) in [
            ("init", None),
            ("switch", Some("s1")),
            ("controller", Some("c1")),
        ] {
            let mut command = Command::new(AUSTER);
            command
                .current_dir(&self.dir)
                .args(["pki", kind])
                .args(name)
                .args(["--dir", "pki"]);
            run(&mut command);
        }
    }

    fn start_switch(&mut self) {
        run(self.tool("ovsdb-tool").args(["create", "db", SCHEMA]));
        let server = ["--remote=punix:db.sock", "--unixctl=db.ctl", "-voff", "db"];
        self.spawn("ovsdb-server", &server);
        self.wait("the database listens", |lab| lab.path("db.sock").exists());
        run(self.vsctl().args(["--no-wait", "init"]));
        let switch = [
            "--enable-dummy=override",
            "--disable-system",
            "--unixctl=vs.ctl",
            "-voff",
        ];
        self.spawn("ovs-vswitchd", &[&["unix:db.sock"], &switch[..]].concat());
    }

    fn start_controller(&mut self) {
        let listen = format!("ptcp:{}:127.0.0.1", self.ports[0]);
        self.spawn(
            "ovs-testcontroller",
            &["--unixctl=tc.ctl", "-voff", &listen],
        );
    }

    fn spawn(&mut self, tool: &str, args: &[&str]) {
        let child = self.tool(tool).args(args).spawn().unwrap();
        self._daemons.push(Process(child));
    }

    fn start_controller_relay(&mut self) {
        let [controller, relay, _] = self.ports;
        let (listen, dial) = (
            format!("pquic:{relay}:127.0.0.1"),
            format!("tcp:127.0.0.1:{controller}"),
        );
        let mut command = self.relay("controller", "c1", "switchca");
        command.args(["--listen", &listen, "--openflow", &dial]);
        command.args(["--ovsdb", "punix:{name}.sock"]);
        self.controller_relay = Some(Process(command.spawn().unwrap()));
    }

    fn start_switch_relay(&mut self) {
        let [_, relay, openflow] = self.ports;
        let (listen, dial) = (
            format!("ptcp:{openflow}:127.0.0.1"),
            format!("quic:127.0.0.1:{relay}"),
        );
        let mut command = self.relay("switch", "s1", "controllerca");
        command.args(["--openflow", &listen, "--ovsdb", "unix:db.sock"]);
        command.args(["--connect", &dial, "--nudge"]);
        self.switch_relay = Some(Process(command.spawn().unwrap()));
    }

    fn relay(&self, end: &str, name: &str, ca: &str) -> Command {
        let mut command = Command::new(AUSTER);
        let log = self.path(&format!("{end}.log"));
        let log = File::options().create(true).append(true).open(log).unwrap();
        command
            .current_dir(&self.dir)
            .stdout(Stdio::null())
            .stderr(log)
            .env("AUSTER_LOG", "info");
        command.args(["relay", end, "--status", &format!("unix:{end}.status")]);
        // Longer than any wait of the tests: no wait ends because the grace does.
        command.args(["--grace-s", "600"]);
        command.args(["--record", &format!("{end}.record")]);
        command.args([
            "-p",
            &format!("{name}-privkey.pem"),
            "-c",
            &format!("{name}-cert.pem"),
        ]);
        command.args(["-C", &format!("pki/{ca}/cacert.pem")]);
        command
    }

    fn add_bridge(&self, bridge: &str) {
        let controller = format!("tcp:127.0.0.1:{}", self.ports[2]);
        run(self
            .vsctl()
            .args(["add-br", bridge, "--", "set", "bridge", bridge])
            .args([
                "datapath_type=dummy",
                "protocols=OpenFlow13",
                "fail_mode=secure",
                "other_config:disable-in-band=true",
            ]));
        for port in ["1", "2"] {
            let name = format!("{bridge}-{port}");
            let request = format!("ofport_request={port}");
            let set = ["--", "set", "interface", &name, "type=dummy", &request];
            run(self.vsctl().args(["add-port", bridge, &name]).args(set));
        }
        run(self
            .vsctl()
            .args(["--no-wait", "set-controller", bridge, &controller]));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.current_dir(&self.dir);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.dir.path());
        }
        command
    }

    fn vsctl(&self) -> Command {
        let mut command = self.tool("ovs-vsctl");
        command.args(["--db=unix:db.sock", "--timeout=10"]);
        command
    }

    fn ofctl(&self, args: &[&str]) -> String {
        run(self
            .tool("ovs-ofctl")
            .args(["-O", "OpenFlow13", "--timeout=10"])
            .args(args))
    }

    fn flows(&self) -> String {
        self.ofctl(&["dump-flows", &self.bridge("br0")])
    }

    fn bridge(&self, name: &str) -> String {
        format!("unix:{}", self.path(&format!("{name}.mgmt")).display())
    }

    /// Sends a UDP packet into br0, from host `from` at its port to host `to`.
    fn inject(&self, port: u8, from: u8, to: u8, tos: u8) {
        let packet = format!(
            "in_port({port}),eth(src=50:54:00:00:00:{from:02x},dst=50:54:00:00:00:{to:02x}),\
             eth_type(0x0800),ipv4(src=10.0.0.{from},dst=10.0.0.{to},proto=17,tos={tos},ttl=64,\
             frag=no),udp(src=1,dst=2)"
        );
        let args = [
            "-t",
            &self.path("vs.ctl").display().to_string(),
            "netdev-dummy/receive",
        ];
        run(self
            .tool("ovs-appctl")
            .args(args)
            .args([&format!("br0-{port}"), &packet]));
    }

    /// The state of the relay at `end`.
    fn status(&self, end: &str) -> Value {
        let Ok(mut socket) = UnixStream::connect(self.path(&format!("{end}.status"))) else {
            return Value::Null;
        };
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn channels(&self) -> Vec<Value> {
        let status = self.status("switch");
        let channels = status["relays"][0]["channels"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        channels
            .into_iter()
            .filter(|c| c["given"]["bytes"].as_u64() > Some(8))
            .collect()
    }

    fn wait(&self, what: &str, done: impl Fn(&Lab) -> bool) {
        let start = Instant::now();
        while !done(self) {
            let (ours, theirs) = (self.log("switch"), self.log("controller"));
            assert!(start.elapsed() < PATIENCE, "{what}:\n{ours}\n{theirs}");
            sleep(Duration::from_millis(20));
        }
    }

    fn log(&self, end: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{end}.log"))).unwrap_or_default()
    }

    /// Lets new hosts talk until the controller has installed a flow for them. Returns the time
    /// taken.
    fn time_to_new_flow(&self, host: u8) -> Duration {
        let start = Instant::now();
        let wanted = format!("dl_src=50:54:00:00:00:{host:02x}");
        while !self.flows().contains(&wanted) {
            assert!(start.elapsed() < PATIENCE, "no new flow: {}", self.flows());
            self.inject(2, 100, host, 0);
            self.inject(1, host, 100, 0);
        }
        start.elapsed()
    }

    fn established_packets(&self) -> u64 {
        let flows = self.flows();
        let flow = flows
            .lines()
            .find(|line| line.contains("priority=40000"))
            .unwrap();
        let (_, rest) = flow.split_once("n_packets=").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    }
}

fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The whole lines of a file that may be growing.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn unmodified_switches_controllers_and_ovsdb_tools_work_through_the_relays() {
    let mut lab = Lab::start(&["br0", "br1", "br2"]);
    assert_eq!(lab.channels().len(), 3, "a channel per bridge");
    lab.time_to_new_flow(7);
    let db = format!("--db=unix:{}", lab.path("s1.sock").display());
    let bridges = run(lab.tool("ovs-vsctl").args([&db, "--timeout=10", "list-br"]));
    assert_eq!(
        bridges, "br0\nbr1\nbr2\n",
        "the switch's database, from the controller's side"
    );
    run(lab
        .tool("ovs-vsctl")
        .args([&db, "--timeout=10", "--no-wait", "add-br", "br9"]));
    assert!(run(lab.vsctl().arg("list-br")).contains("br9"));

    // The switch's relay is asked to stop; every byte that it took is one that the other relay
    // gave.
    let pid = lab.switch_relay.as_ref().unwrap().0.id();
    run(Command::new("kill").arg(pid.to_string()));
    assert!(
        lab.switch_relay
            .as_mut()
            .unwrap()
            .0
            .wait()
            .unwrap()
            .success()
    );
    // The other relay is notified, and does not wait out its grace for a return.
    lab.wait("every channel is recorded", |lab| {
        let ours = lines(&lab.path("switch.record")).len();
        ours >= 5 && lines(&lab.path("controller.record")).len() >= ours
    });
    let (ours, theirs) = (
        lines(&lab.path("switch.record")),
        lines(&lab.path("controller.record")),
    );
    // 3 bridges and 2 runs of ovs-vsctl; more when a bridge connected twice on a busy machine.
    let of = |agent: &str| ours.iter().filter(|line| line["agent"] == agent).count();
    assert!(of("openflow") >= 3 && of("ovsdb") == 2, "{ours:#?}");
    for ours in &ours {
        let same = |other: &&Value| other["channel"] == ours["channel"];
        let theirs = theirs.iter().find(same).unwrap();
        assert_eq!(ours["given"], theirs["taken"], "{}", ours["agent"]);
        assert_eq!(
            ours["taken"]["digest"], theirs["given"]["digest"],
            "{}",
            ours["agent"]
        );
        assert_eq!(
            ours["taken"]["bytes"], theirs["given"]["bytes"],
            "{}",
            ours["agent"]
        );
    }
}

/// Each relay is killed in the middle of traffic, three times for each: started again at once,
/// after half a second, and after 2 s, when the bridge waits out a back-off of 4 s.
#[test]
fn a_killed_relay_costs_established_flows_nothing_and_new_ones_come_again() {
    let mut lab = Lab::start(&["br0"]);
    lab.time_to_new_flow(1);
    let established = "priority=40000,ip,in_port=1,nw_tos=4,actions=output:2";
    lab.ofctl(&["add-flow", &lab.bridge("br0"), established]);
    let mut sent = 0;
    let mut host = 10;
    for down_ms in [0, 500, 2000] {
        for end in ["controller", "switch"] {
            let relay = if end == "switch" {
                &mut lab.switch_relay
            } else {
                &mut lab.controller_relay
            };
            // SIGKILL.
            drop(relay.take());
            let killed = Instant::now();
            while sent == 0 || killed.elapsed() < Duration::from_millis(down_ms) {
                lab.inject(1, 200, 201, 4);
                sent += 1;
            }
            if end == "switch" {
                lab.start_switch_relay()
            } else {
                lab.start_controller_relay()
            }
            lab.inject(1, 200, 201, 4);
            sent += 1;
            // The claim about this time is in scenarios/relay-restart.toml.
            let time = lab.time_to_new_flow(host);
            println!("{end} relay down for {down_ms} ms: new flows {time:?} after its restart");
            host += 1;
        }
    }
    lab.wait("every packet is counted", |lab| {
        lab.established_packets() == sent
    });
}
