//! The relays under test, each a process of this program.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use net::tls::Role;

use super::report::Cell;
use crate::certificates::{self, Certificates};
use crate::controller::target::{Usage, usage_of};
use cli::failure::Failure;
use cli::program;

/// Makes certificates for both ends. The name in a certificate identifies a switch, so each switch
/// has its own.
pub fn certificates(switches: u32) -> Result<Certificates, Failure> {
    // Longer than the time before expiry in which the ends warn of a certificate.
    let days = 60;
    let made = Certificates::new()?;
    let switches: Vec<String> = (0..switches).map(|n| format!("switch{n}")).collect();
    let controller = ["controller".to_owned()];
    let host = "127.0.0.1";
    made.issue("controllerca", Role::Controller, &controller, host, days)?;
    made.issue("switchca", Role::Switch, &switches, host, days)?;
    Ok(made)
}

/// The two ends of the pair. Dropping this ends their processes.
pub struct Relays {
    switch: Process,
    controller: Process,
    /// Where switches connect to.
    pub switch_port: u16,
}

/// CPU time and memory that both ends have used so far.
#[derive(Clone, Copy)]
pub struct Used {
    pub switch: Usage,
    pub controller: Usage,
}

impl Relays {
    pub fn start(
        cell: &Cell,
        certificates: &Certificates,
        sink_port: u16,
    ) -> Result<Relays, Failure> {
        let mut controller = Command::new(program::auster()?);
        controller.args(["relay", "controller", "--listen", "pquic:0:127.0.0.1"]);
        controller.args(["--openflow", &format!("tcp:127.0.0.1:{sink_port}")]);
        let files = certificates::files(certificates.dir(), "controller", "switchca");
        controller.arg("-p").arg(files.private_key);
        controller.arg("-c").arg(files.certificate);
        controller.arg("-C").arg(files.ca);
        let (controller, relay_port) = Process::start(controller)?;
        // Like 'auster relay switch', but many of them in one process.
        // The file of this program, even if another has been put in its place.
        let mut switch = Command::new("/proc/self/exe");
        switch.args(["bench", "relay-switches"]);
        switch.args(["--switches", &cell.switches.to_string()]);
        switch.args(["--connect", &format!("quic:127.0.0.1:{relay_port}")]);
        switch.arg("--certificates").arg(certificates.dir());
        let (switch, switch_port) = Process::start(switch)?;
        Ok(Relays {
            switch,
            controller,
            switch_port,
        })
    }

    pub fn used(&self) -> Used {
        Used {
            switch: self.switch.usage(),
            controller: self.controller.usage(),
        }
    }
}

struct Process {
    child: Child,
    /// The relay's output, kept open so that writing to it does not fail.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Process {
    /// Starts `command` and reads the port from its first line: `listening on pquic:PORT:HOST` or
    /// `listening pquic:PORT:HOST relays`.
    fn start(mut command: Command) -> Result<(Process, u16), Failure> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::machine(format!("cannot start a relay: {error}")))?;
        let stdout = child.stdout.take();
        let mut stdout = BufReader::new(stdout.expect("it is piped"));
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        // From here on, dropping this ends the child.
        let process = Process {
            child,
            _stdout: stdout,
        };
        let port = line
            .split_whitespace()
            .find_map(|word| word.split(':').nth(1)?.parse().ok());
        match (read, port) {
            (Ok(_), Some(port)) => Ok((process, port)),
            (Err(error), _) => Err(Failure::machine(format!("a relay's output: {error}"))),
            (Ok(_), None) => Err(Failure::machine(format!(
                "a relay did not say where it listens, but '{}'",
                line.trim()
            ))),
        }
    }

    fn usage(&self) -> Usage {
        usage_of(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
