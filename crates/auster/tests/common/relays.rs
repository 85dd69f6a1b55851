//! A pair of relays on loopback, with certificates of its own.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::ports::free_port;
use super::running::{AUSTER, PATIENCE, Running};

pub struct Relays {
    pub dir: TempDir,
    /// The port that bridges connect to.
    pub bridges_port: u16,
    /// The UDP port between the two relays.
    pub tunnel_port: u16,
    pub switch: Running,
    pub controller: Running,
}

impl Relays {
    /// Carries connections to `bridges_port` to the controller at `controller_port`, and
    /// connections to [`Relays::database`] to `database`, a connection method.
    pub fn start(bridges_port: u16, controller_port: u16, database: &str) -> Relays {
        Relays::with_agents(bridges_port, controller_port, database, &[])
    }

    /// Starts relays like [`Relays::start`], with further agents: each agent's option for the
    /// switch's relay, and for the controller's.
    pub fn with_agents(
        bridges_port: u16,
        controller_port: u16,
        database: &str,
        agents: &[(String, String)],
    ) -> Relays {
        let dir = tempfile::tempdir().unwrap();
        for words in [&["init"][..], &["controller", "ctl"], &["switch", "s1"]] {
            let mut command = Command::new(AUSTER);
            command.current_dir(&dir).arg("pki").args(words);
            let output = command.output().unwrap();
            assert!(output.status.success(), "auster pki {words:?}: {output:?}");
        }
        let file = |name: &str| dir.path().join(name).display().to_string();
        let tunnel_port = free_port();
        let credentials = |name: &str, ca: &str| {
            let [key, certificate] = ["privkey", "cert"].map(|f| file(&format!("{name}-{f}.pem")));
            ["-p", &key, "-c", &certificate, "-C", &file(ca)].map(str::to_string)
        };
        let start = |side: &str, flags: &[(&str, String)], credentials: [String; 6]| {
            let socket = format!("unix:{}", file(&format!("{side}.status")));
            let status = [("--status", socket), ("--metrics", "0".to_owned())];
            let agents = agents.iter().map(|(switch, controller)| match side {
                "switch" => ("--agent", switch.clone()),
                _ => ("--agent", controller.clone()),
            });
            let flags: Vec<(&str, String)> =
                flags.iter().cloned().chain(status).chain(agents).collect();
            let flags = flags
                .iter()
                .flat_map(|(flag, method)| [*flag, method.as_str()]);
            let words: Vec<&str> = ["relay", side]
                .into_iter()
                .chain(flags)
                .chain(credentials.iter().map(String::as_str))
                .collect();
            Running::start(&words)
        };
        let controller = start(
            "controller",
            &[
                ("--listen", format!("pquic:{tunnel_port}:127.0.0.1")),
                ("--openflow", format!("tcp:127.0.0.1:{controller_port}")),
                ("--ovsdb", format!("punix:{}", file("db.sock"))),
            ],
            credentials("ctl", "pki/switchca/cacert.pem"),
        );
        let switch = start(
            "switch",
            &[
                ("--openflow", format!("ptcp:{bridges_port}:127.0.0.1")),
                ("--ovsdb", database.to_string()),
                ("--connect", format!("quic:127.0.0.1:{tunnel_port}")),
            ],
            credentials("s1", "pki/controllerca/cacert.pem"),
        );
        Relays {
            dir,
            bridges_port,
            tunnel_port,
            switch,
            controller,
        }
    }

    /// The status of the relay at `side`.
    pub fn status(&self, side: &str) -> Value {
        let socket = UnixStream::connect(self.dir.path().join(format!("{side}.status")));
        let mut text = String::new();
        let read = socket.and_then(|mut socket| socket.read_to_string(&mut text));
        read.ok()
            .and_then(|_| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }

    /// The controller's end of the switch's database.
    pub fn database(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }
}

/// Waits until something listens on `port`.
pub fn wait_for_port(port: u16) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nothing listens on {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
