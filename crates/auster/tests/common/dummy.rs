//! A real Open vSwitch under virtual time: `ovs-vswitchd --enable-dummy=override --disable-system`.
//!
//! Its clock is stopped and moves only by [`DummySwitch::warp`], so a minute of timeouts takes a
//! second and is exact. Tests put packets into its ports by hand. Needs no root, no namespaces and
//! no devices, only a directory of its own. The control plane works like that in any Open vSwitch:
//! controllers connect as usual, and wait in real time.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Deserializer, Value, json};
use tempfile::TempDir;

use super::run;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The largest step of the clock. Events within a step are seen at its end.
const STEP: Duration = Duration::from_secs(1);

pub struct DummySwitch {
    dir: TempDir,
    daemons: Vec<Child>,
    /// The OpenFlow version that [`DummySwitch::ofctl`] speaks, without its dot.
    pub ofctl_version: String,
}

impl DummySwitch {
    /// One bridge, `br0`, with ports `p1` to `p<count>` under the same numbers; time stands still.
    pub fn start(port_count: u32) -> DummySwitch {
        let dir = tempfile::tempdir().unwrap();
        let mut switch = DummySwitch {
            dir,
            daemons: Vec::new(),
            ofctl_version: "13".to_owned(),
        };
        let database = switch.path("conf.db").display().to_string();
        run("ovsdb-tool", &["create", &database, SCHEMA]);
        let remote = format!("--remote=punix:{}", switch.path("db.sock").display());
        switch.spawn("ovsdb-server", &[&database, &remote]);
        switch.wait_for("db.sock");
        switch.vsctl(&["--no-wait", "init"]);
        switch.start_switch();
        let mut words: Vec<String> = Vec::new();
        let mut add = |line: &str| words.extend(line.split(' ').map(str::to_string));
        add(
            "add-br br0 -- set bridge br0 datapath_type=dummy protocols=OpenFlow13 \
             fail_mode=secure other-config:disable-in-band=true \
             other-config:datapath-id=0000000000000001",
        );
        for n in 1..=port_count {
            add(&format!(
                "-- add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}"
            ));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        switch.vsctl(&words);
        switch.appctl("time/stop", &[]);
        switch
    }

    fn start_switch(&mut self) {
        let socket = format!("unix:{}", self.path("db.sock").display());
        let flags = ["--enable-dummy=override", "--disable-system"];
        self.spawn("ovs-vswitchd", &[&socket, flags[0], flags[1]]);
    }

    /// Kills the switch and starts it again, with its bridge and without its entries. From then on
    /// the switch uses the machine's clock.
    pub fn restart(&mut self) {
        let mut killed = self.daemons.pop().expect("the switch runs");
        killed.kill().and_then(|()| killed.wait()).expect("it ends");
        for socket in ["ovs-vswitchd.ctl", "br0.mgmt"] {
            let _ = std::fs::remove_file(self.path(socket));
        }
        self.start_switch();
        self.wait_for("ovs-vswitchd.ctl");
        // This command returns once the bridge exists.
        self.vsctl(&["set", "bridge", "br0", "other-config:started=again"]);
        self.wait_for("br0.mgmt");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn vsctl(&self, arguments: &[&str]) -> String {
        let db = format!("--db=unix:{}", self.path("db.sock").display());
        run(
            "ovs-vsctl",
            &[&[db.as_str(), "--timeout=10"], arguments].concat(),
        )
    }

    /// Sends the JSON-RPC of `ovs-appctl METHOD …` on the same socket, without a process for each.
    pub fn appctl(&self, method: &str, arguments: &[&str]) -> String {
        let mut socket = UnixStream::connect(self.path("ovs-vswitchd.ctl")).unwrap();
        let request = json!({ "id": 0, "method": method, "params": arguments });
        socket.write_all(request.to_string().as_bytes()).unwrap();
        let mut answers = Deserializer::from_reader(socket).into_iter::<Value>();
        let answer = answers.next().unwrap().unwrap();
        assert!(
            answer["error"].is_null(),
            "{method} {arguments:?}: {answer}"
        );
        answer["result"].as_str().unwrap().to_string()
    }

    /// `ovs-ofctl COMMAND br0 …`
    pub fn ofctl(&self, command: &str, arguments: &[&str]) -> String {
        let target = format!("unix:{}", self.path("br0.mgmt").display());
        let version = format!("OpenFlow{}", self.ofctl_version);
        let fixed = ["-O", &version, command, target.as_str()];
        run("ovs-ofctl", &[&fixed, arguments].concat())
    }

    /// Lets virtual time pass.
    pub fn warp(&self, time: Duration) {
        let [total, step] = [time, time.min(STEP)].map(|t| t.as_millis().to_string());
        self.appctl("time/warp", &[&total, &step]);
    }

    /// Puts a packet into a port. Its fields are written as `ovs-dpctl`'s flow keys.
    pub fn receive(&self, port: u32, flow: &str) {
        self.appctl("netdev-dummy/receive", &[&format!("p{port}"), flow]);
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let dir = self.dir.path();
        let child = Command::new(program)
            .args(arguments)
            .arg(format!(
                "--unixctl={}",
                dir.join(program).with_extension("ctl").display()
            ))
            .arg(format!(
                "--log-file={}",
                dir.join(program).with_extension("log").display()
            ))
            .args(["-vconsole:off", "-vsyslog:off"])
            .envs(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"].map(|name| (name, dir)))
            .stderr(Stdio::null())
            .spawn();
        self.daemons
            .push(child.unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup")));
    }

    fn wait_for(&self, socket: &str) {
        let path: &Path = &self.path(socket);
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(path).is_err() {
            assert!(
                Instant::now() < deadline,
                "{} does not answer",
                path.display()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for DummySwitch {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
