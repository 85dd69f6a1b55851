//! Processes of `auster` that a test starts and that end with it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

pub use super::AUSTER;

/// The longest wait for something that takes milliseconds; a bound against hanging, not a claim.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A running command. Dropping it kills the process by its pid and waits for its end.
pub struct Running {
    pub child: Child,
    lines: Receiver<String>,
    /// Everything it has printed so far, for the message of a failing test.
    pub log: Vec<String>,
}

impl Running {
    pub fn start(args: &[&str]) -> Running {
        let mut command = Command::new(AUSTER);
        command.args(["--log", "info"]).args(args);
        Running::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Running {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (to_test, lines) = channel();
        let stdout: Box<dyn std::io::Read + Send> = Box::new(child.stdout.take().unwrap());
        let stderr: Box<dyn std::io::Read + Send> = Box::new(child.stderr.take().unwrap());
        for output in [stdout, stderr] {
            let to_test = to_test.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if to_test.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Running {
            child,
            lines,
            log: Vec::new(),
        }
    }

    /// Waits for a line that contains `text`, and returns it.
    pub fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        if let Some(line) = self.log.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        while let Ok(line) = self
            .lines
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.log.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
        panic!(
            "no line with '{text}' came; there were:\n{}",
            self.log.join("\n")
        );
    }

    /// Waits for another line.
    pub fn wait_for_next(&mut self) {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.log.push(line),
            Err(_) => panic!("no line came after:\n{}", self.log.join("\n")),
        }
    }

    /// The address in the line `listening on ptcp:PORT:HOST`, or in OVS's other forms of it.
    pub fn listening(&mut self, kind: &str) -> SocketAddr {
        let line = self.wait_for(&format!("listening on {kind}:"));
        let at = line.find(&format!("{kind}:")).unwrap() + kind.len() + 1;
        let method = line[at..].split_whitespace().next().unwrap();
        let (port, host) = method.split_once(':').unwrap_or((method, "127.0.0.1"));
        format!("{host}:{port}")
            .parse()
            .unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    /// User and system time used so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit(") ").next().unwrap();
        let ticks: u64 = after_name
            .split(' ')
            .skip(11)
            .take(2)
            .map(|t| t.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
