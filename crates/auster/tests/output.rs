//! Readers that pause, leave, or have no room: output for them never holds up a command, and peers
//! cannot make it grow.

#[path = "../../net/tests/common/switch.rs"]
mod switch;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use switch::{PATIENCE, Switch};
use tokio::net::TcpStream;

const AUSTER: &str = env!("CARGO_BIN_EXE_auster");

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// The exit code, or `None` if it does not end in time or by a signal.
    fn wait(&mut self) -> Option<i32> {
        let give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe that holds 4 KiB, so that a paused reader soon has an effect.
fn small_pipe() -> (File, OwnedFd) {
    let (reader, writer) = nix::unistd::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    (reader.into(), writer)
}

/// A line from `reader`, and no byte more.
fn read_line(reader: &mut File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while reader.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

fn port_in(line: &str) -> u16 {
    let port = line.split(':').nth(1).and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("no port in '{line}'"))
}

async fn switch_at(
    port: u16,
    datapath_id: u64,
) -> Switch<tokio::net::tcp::OwnedReadHalf, tokio::net::tcp::OwnedWriteHalf> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (reader, writer) = stream.into_split();
    let mut switch = Switch::new(reader, writer, datapath_id);
    switch.set_up().await.expect("set up");
    switch
}

/// PORT_STATUS of OpenFlow 1.3: a port is modified, its link up or down.
fn port_status(port: u32, is_up: bool) -> Vec<u8> {
    let mut bytes = vec![4, 12, 0, 80, 0, 0, 0, 1];
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([2, 0, 0, 0, 0, 9, 0, 0]);
    bytes.extend(*b"p1\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    bytes.extend([0, 0, 0, 0]);
    bytes.extend(u32::from(!is_up).to_be_bytes());
    bytes.resize(80, 0);
    bytes
}

/// Takes `ports` ports of a switch up and down.
async fn flap(port: u16, ports: u32) {
    let mut switch = switch_at(port, 7).await;
    for n in 1..=ports {
        for is_up in [true, false] {
            switch.send_bytes(&port_status(n, is_up)).await.unwrap();
        }
    }
    switch.echo(9).await.expect("the controller answers");
}

#[tokio::test]
async fn a_reader_of_events_that_pauses_stops_neither_switches_nor_signals() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (mut reader, writer) = small_pipe();
        let mut run = Process::start(
            Command::new(AUSTER)
                .args(["run", "ptcp:0:127.0.0.1"])
                .stdout(writer),
        );
        let port = port_in(&read_line(&mut reader));
        // Some 6 KB of lines.
        flap(port, 300).await;
        switch_at(port, 8).await.echo(1).await.expect("served");
        run.signal(signal);
        assert_eq!(run.wait(), Some(0), "{signal}");
    }
}

#[tokio::test]
async fn events_that_a_switch_can_cause_as_often_as_it_likes_do_not_fill_a_disk() {
    const PORTS: u32 = 3000;
    let mut run = Process::start(
        Command::new(AUSTER)
            .args(["run", "ptcp:0:127.0.0.1"])
            .stdout(Stdio::piped()),
    );
    let mut reader = File::from(OwnedFd::from(run.0.stdout.take().unwrap()));
    let port = port_in(&read_line(&mut reader));
    let reading = std::thread::spawn(move || {
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        said
    });
    let since = Instant::now();
    flap(port, PORTS).await;
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(), Some(0));
    let said = reading.join().unwrap();
    let (mut lines, mut counted) = (0, 0);
    for line in said.lines() {
        lines += u32::from(line.starts_with("port "));
        if let Some((count, _)) = line.split_once(" more of this kind: port_") {
            counted += count.trim_start_matches("... and ").parse::<u32>().unwrap();
        }
    }
    // Two kinds of lines: 100 of each at once, and one in two minutes.
    let most = 2 * (100 + since.elapsed().as_secs() as u32 / 120 + 1);
    assert!(lines <= most, "{lines} lines, at most {most}");
    // Notices that nobody could take in time have another counter.
    let all = lines + counted;
    assert!(
        counted > 0 && all <= 2 * PORTS,
        "{lines} lines and {counted}"
    );
}

#[test]
fn a_log_that_goes_to_no_terminal_has_no_colours() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    let mut relay = Process::start(
        Command::new(AUSTER)
            .args(["relay", "switch", "--log", "info"])
            .args(["--openflow", "ptcp:0:127.0.0.1", "--connect", &target])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = File::from(OwnedFd::from(relay.0.stdout.take().unwrap()));
    let mut stderr = File::from(OwnedFd::from(relay.0.stderr.take().unwrap()));
    let port = port_in(&read_line(&mut stdout));
    let switch = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let line = read_line(&mut stderr);
    assert!(
        line.contains(" INFO ") && line.contains("carried"),
        "{line:?}"
    );
    assert!(!line.contains('\u{1b}'), "{line:?}");
    drop((switch, controller));
}

#[test]
fn a_reader_of_a_relays_log_that_pauses_stops_no_message() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    let (reader, writer) = small_pipe();
    let mut relay = Process::start(
        Command::new(AUSTER)
            .args(["relay", "switch", "--log", "trace"])
            .args(["--openflow", "ptcp:0:127.0.0.1", "--connect", &target])
            .stdout(Stdio::piped())
            .stderr(writer),
    );
    let mut stdout = File::from(OwnedFd::from(relay.0.stdout.take().unwrap()));
    let port = port_in(&read_line(&mut stdout));
    let hello = [4, 0, 0, 8, 0, 0, 0, 1];
    let mut carried = Vec::new();
    for n in 0..60 {
        let mut switch = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        switch.set_read_timeout(Some(PATIENCE)).unwrap();
        let (mut accepted, _) = controller.accept().unwrap();
        accepted.set_read_timeout(Some(PATIENCE)).unwrap();
        switch.write_all(&hello).unwrap();
        let mut heard = [0; 8];
        let read = accepted.read_exact(&mut heard);
        assert!(read.is_ok() && heard == hello, "connection {n}: {read:?}");
        carried.push((switch, accepted));
    }
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait(), Some(0));
    drop(reader);
}

#[test]
fn an_answer_that_cannot_be_written_is_an_exit_code_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let pki = |arguments: &[&str]| {
        let mut command = Command::new(AUSTER);
        command.arg("pki").args(arguments).current_dir(&dir);
        command
    };
    assert!(pki(&["init"]).output().unwrap().status.success());
    let show = ["show", "pki/switchca/cacert.pem"];
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let output = pki(&show).stdout(full()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.starts_with("auster: standard output: "), "{said}");

    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    let output = pki(&show).stdout(writer).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    // As `auster ofp pcap FILE | head` ends.
    assert_eq!(said, "");

    // Nobody can read the error message either.
    let status = pki(&["show", "missing.pem"])
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(5));
}

#[test]
fn a_relay_whose_output_nobody_can_read_relays() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("openflow");
    let openflow = format!("punix:{}", socket.display());
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut relay = Process::start(
        Command::new(AUSTER)
            .args(["relay", "switch", "--openflow", &openflow])
            .args(["--connect", &target])
            .stdout(full())
            .stderr(full()),
    );
    let give_up = Instant::now() + PATIENCE;
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(relay.0.try_wait().unwrap().is_none(), "it has ended");
        assert!(Instant::now() < give_up, "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    controller.accept().unwrap();
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait(), Some(0));
}

/// A document a line, with the fields that the manual names.
#[test]
fn the_fields_of_a_log_in_json_stay() {
    let controller = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", controller.local_addr().unwrap());
    let mut relay = Process::start(
        Command::new(AUSTER)
            .args(["relay", "switch", "--log", "info", "--log-format", "json"])
            .args(["--openflow", "ptcp:0:127.0.0.1", "--connect", &target])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    );
    let mut stdout = File::from(OwnedFd::from(relay.0.stdout.take().unwrap()));
    let mut stderr = File::from(OwnedFd::from(relay.0.stderr.take().unwrap()));
    let port = port_in(&read_line(&mut stdout));
    let _switch = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let line = read_line(&mut stderr);
    let document: serde_json::Value = serde_json::from_str(&line).unwrap();
    let mut fields: Vec<&str> = document.as_object().unwrap().keys().map(|k| &**k).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["fields", "level", "target", "timestamp"], "{line}");
    assert_eq!(document["level"], "INFO");
    assert!(document["fields"]["message"].is_string(), "{line}");
    let manual = include_str!("../../../docs/run-status.md");
    for field in fields {
        assert!(
            manual.contains(&format!("| `{field}` |")),
            "{field} is not in the manual"
        );
    }
}

/// Standard error is what `JOURNAL_STREAM` names, as systemd arranges it.
#[test]
fn lines_for_the_journal_begin_with_their_priority() {
    use std::os::fd::AsFd;
    for is_journal in [true, false] {
        let (mut reader, writer) = small_pipe();
        let found = nix::sys::stat::fstat(writer.as_fd()).unwrap();
        let inode = found.st_ino + u64::from(!is_journal);
        let controller = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("tcp:{}", controller.local_addr().unwrap());
        let mut relay = Process::start(
            Command::new(AUSTER)
                .args(["relay", "switch", "--log", "info"])
                .args(["--openflow", "ptcp:0:127.0.0.1", "--connect", &target])
                .env("JOURNAL_STREAM", format!("{}:{inode}", found.st_dev))
                .stdout(Stdio::piped())
                .stderr(writer),
        );
        let mut stdout = File::from(OwnedFd::from(relay.0.stdout.take().unwrap()));
        let port = port_in(&read_line(&mut stdout));
        let _switch = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let line = read_line(&mut reader);
        assert_eq!(line.starts_with("<6>"), is_journal, "{line:?}");
        assert_eq!(line.contains(" INFO "), !is_journal, "{line:?}");
    }
}

/// Neither output is read: SIGHUP and SIGTERM act, and switches are served.
#[tokio::test]
async fn readers_of_both_outputs_that_pause_stop_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("net.toml");
    std::fs::write(&config, "[session]\necho_interval_ms = 600000\n").unwrap();
    let (mut stdout, writer) = small_pipe();
    let (_stderr, log) = small_pipe();
    let mut run = Process::start(
        Command::new(AUSTER)
            .args(["run", "ptcp:0:127.0.0.1", "--api", "0", "--log", "trace"])
            .arg("--config")
            .arg(&config)
            .stdout(writer)
            .stderr(log),
    );
    let (mut port, mut api) = (None, None);
    while port.is_none() || api.is_none() {
        let line = read_line(&mut stdout);
        if let Some(at) = line.split("http://").nth(1) {
            api = at.split('/').next().map(str::to_owned);
        } else if line.contains("listening on ptcp") {
            port = Some(port_in(&line));
        }
    }
    let (port, api) = (port.unwrap(), api.unwrap());
    let metrics = || {
        let output = Command::new("curl")
            .args(["-s", &format!("http://{api}/metrics")])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let row = |name: &str| {
        let text = metrics();
        let row = text.lines().find(|line| line.starts_with(name));
        row.map(str::to_owned).unwrap_or_default()
    };
    // More than both pipes hold. Messages before the switch is up are no changes.
    let give_up = Instant::now() + PATIENCE;
    let is_some = |row: String| row.contains(' ') && !row.ends_with(" 0");
    while !is_some(row("auster_log_lines_left_out_total")) {
        assert!(Instant::now() < give_up, "no line is left out");
        flap(port, 1000).await;
    }
    assert!(!row("auster_log_lines_dropped_total{stream=\"stdout\"}").is_empty());
    let before = row("auster_config_info");
    assert!(!before.is_empty());
    std::fs::write(&config, "[session]\necho_interval_ms = 60000\n").unwrap();
    run.signal(Signal::SIGHUP);
    while row("auster_config_info") == before {
        assert!(Instant::now() < give_up, "SIGHUP does nothing");
    }
    switch_at(port, 8).await.echo(1).await.expect("served");
    run.signal(Signal::SIGTERM);
    assert_eq!(run.wait(), Some(0));
}
