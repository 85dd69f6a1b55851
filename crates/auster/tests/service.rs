//! auster under a service manager: what it reports, the sockets that it is passed, and the units
//! and the configuration that the package installs.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::ports::free_port;
use common::running::{AUSTER, PATIENCE, Running};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A HELLO of OpenFlow 1.3.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib")
}

/// The manager's end of the notifications.
struct Heard(UnixDatagram);

impl Heard {
    fn bind(path: &Path) -> Heard {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Heard(socket)
    }

    fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let len = self.0.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }

    /// The next notification that begins with `start`. Reports to the watchdog may come before it.
    fn wait_for(&self, start: &str) -> String {
        loop {
            let message = self.next();
            if message.starts_with(start) {
                return message;
            }
            assert!(message.starts_with("STATUS="), "{message}, not {start}");
        }
    }
}

fn signal(running: &Running, signal: Signal) {
    kill(Pid::from_raw(running.child.id() as i32), signal).unwrap();
}

#[test]
fn a_controller_reports_how_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let heard = Heard::bind(&socket);
    let port = free_port();
    let config = dir.path().join("run.toml");
    fs::write(&config, format!("listen = [\"ptcp:{port}:127.0.0.1\"]\n")).unwrap();
    let mut command = Command::new(AUSTER);
    command.args(["run", "--config"]).arg(&config);
    command.env("NOTIFY_SOCKET", &socket);
    command.env("WATCHDOG_USEC", "600000");
    let mut auster = Running::spawn(command);

    assert_eq!(heard.next(), "READY=1");
    TcpStream::connect(("127.0.0.1", port)).expect("who is ready listens");
    let status = heard.wait_for("STATUS=");
    assert!(
        status.contains(" connections of switches\nWATCHDOG=1"),
        "{status}"
    );

    signal(&auster, Signal::SIGHUP);
    let reloading = heard.wait_for("RELOADING=1\nMONOTONIC_USEC=");
    assert!(reloading.trim_end().ends_with(|c: char| c.is_ascii_digit()));
    heard.wait_for("READY=1");

    signal(&auster, Signal::SIGTERM);
    heard.wait_for("STOPPING=1");
    assert!(auster.child.wait().unwrap().success());
}

#[test]
fn a_relay_reports_how_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("notify");
    let heard = Heard::bind(&socket);
    let port = free_port();
    let mut command = Command::new(AUSTER);
    let openflow = format!("ptcp:{port}:127.0.0.1");
    command.args([
        "relay",
        "switch",
        "--openflow",
        &openflow,
        "--connect",
        "tcp:127.0.0.1:9",
    ]);
    command.env("NOTIFY_SOCKET", &socket);
    command.env("WATCHDOG_USEC", "600000");
    let mut relay = Running::spawn(command);
    assert_eq!(heard.next(), "READY=1");
    TcpStream::connect(("127.0.0.1", port)).expect("who is ready listens");
    let status = heard.wait_for("STATUS=");
    assert!(status.contains(" channels\nWATCHDOG=1"), "{status}");
    signal(&relay, Signal::SIGTERM);
    heard.wait_for("STOPPING=1");
    assert!(relay.child.wait().unwrap().success());
}

/// A command that systemd's own tool starts with sockets on these ports, at the first connection.
fn activated(ports: &[u16], words: &[&str]) -> Command {
    let mut command = Command::new("systemd-socket-activate");
    for port in ports {
        command.arg(format!("--listen=127.0.0.1:{port}"));
    }
    command.arg(AUSTER).args(words);
    command
}

/// Connects to the process that listens now or soon, and sends HELLO.
fn greet(port: u16) -> TcpStream {
    let begun = std::time::Instant::now();
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if begun.elapsed() > PATIENCE => panic!("port {port}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&HELLO).unwrap();
    stream
}

#[test]
fn a_switch_that_came_before_its_controller_is_served() {
    let (port, api) = (free_port(), free_port());
    let openflow = format!("ptcp:{port}:127.0.0.1");
    let at = format!("127.0.0.1:{api}");
    let mut auster = Running::spawn(activated(
        &[port, api],
        &["run", "--listen", &openflow, "--api", &at],
    ));
    // The tool listens, and this connection makes it start auster.
    let mut early = greet(port);
    let mut answer = [0; 8];
    early.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..2], [4, 0], "a HELLO: {answer:?}");
    auster.wait_for(&format!("listening on {openflow}"));

    let mut stream = TcpStream::connect(("127.0.0.1", api)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn a_passed_socket_that_nobody_listens_on_is_warned_of() {
    let (port, idle) = (free_port(), free_port());
    let openflow = format!("ptcp:{port}:127.0.0.1");
    let words = ["run", "--listen", &openflow];
    let mut auster = Running::spawn(activated(&[port, idle], &words));
    let _early = greet(port);
    let warning = auster.wait_for("has opened");
    assert!(warning.contains(&format!("127.0.0.1:{idle}")), "{warning}");
    assert!(
        !auster
            .log
            .concat()
            .contains(&format!("127.0.0.1:{port}, and"))
    );
}

/// The units with the program under test in them, since theirs is not installed here.
fn units(dir: &Path) -> Vec<PathBuf> {
    let mut units = Vec::new();
    for entry in fs::read_dir(contrib().join("systemd")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".service") || name.ends_with(".socket") {
            let text = fs::read_to_string(&path).unwrap();
            let to = dir.join(name.replace("@.", "@s1."));
            fs::write(&to, text.replace("/usr/bin/auster", AUSTER)).unwrap();
            units.push(to);
        }
    }
    assert_eq!(units.len(), 5);
    units
}

#[test]
fn units_are_those_that_systemd_takes_and_calls_safe() {
    let dir = tempfile::tempdir().unwrap();
    for unit in units(dir.path()) {
        let mut verify = Command::new("systemd-analyze");
        verify
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&unit);
        let output = verify.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{unit:?}: {said}"
        );
        if unit.extension().is_some_and(|kind| kind == "service") {
            let mut security = Command::new("systemd-analyze");
            security.args(["security", "--offline=true", "--no-pager", "--threshold=15"]);
            let output = security.arg(&unit).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{unit:?}: more than 1.5: {said}");
        }
    }
}

#[test]
fn the_installed_configuration_is_right_and_fits_the_socket_unit() {
    let path = contrib().join("debian/run.toml");
    let text = fs::read_to_string(&path).unwrap();
    config::Settings::parse(&text, &path).unwrap();
    // A comment that is a setting or the name of a table can be used as it stands.
    let used = |line: &str| {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let name = bare.split_once(" = ").map_or("", |(name, _)| name);
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let is_setting = !name.is_empty() && is_name(name);
        match is_setting || bare.starts_with('[') {
            true => bare.to_owned(),
            false => line.to_owned(),
        }
    };
    let full = text.lines().map(used).collect::<Vec<_>>().join("\n");
    assert!(full.contains("\n[tls]\nprivate_key = "), "{full}");
    config::Settings::parse(&full, &path).unwrap();
    let socket = fs::read_to_string(contrib().join("systemd/auster-run.socket")).unwrap();
    assert!(text.contains("listen = [\"ptcp:6653:127.0.0.1\"]"));
    assert!(socket.contains("\nListenStream=127.0.0.1:6653\n"));
}

#[test]
fn the_version_says_which_build_it_is() {
    let output = Command::new(AUSTER).args(["version", "--json"]).output();
    let output = output.unwrap();
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    let rustc = document["rustc"].as_str().unwrap();
    assert!(rustc.starts_with("rustc "), "{rustc}");
    let text = Command::new(AUSTER).arg("version").output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let first = format!("auster {}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.starts_with(&first), "{text}");
    let short = Command::new(AUSTER).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(short.stdout).unwrap(), first);
}
