//! The programs that make a lab, and its requirements on the machine.
#![allow(unsafe_code)] // `std` cannot set the signal mask of a child.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cli::program::{self, is_in_path};
use nix::sys::signal::SigSet;

use crate::ledger::{ID_VARIABLE, Ledger};
use cli::failure::Failure;

/// Where `ip netns` keeps namespaces by name.
pub const NETNS_DIR: &str = "/run/netns";

/// The programs that a real network needs, with the Debian package of each.
const PROGRAMS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
];

/// Checks for root and the tools of a lab before anything is made. Fails with one line that names
/// all that is missing.
pub fn require_network_tools() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::machine(
            "a lab makes network namespaces and needs root: run it with sudo",
        ));
    }
    let missing: Vec<&(&str, &str)> = PROGRAMS
        .iter()
        .filter(|(program, _)| !is_in_path(program))
        .collect();
    if !missing.is_empty() {
        let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
        let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        return Err(Failure::machine(format!(
            "{} not found: apt-get install {}",
            programs.join(", "),
            packages.join(" ")
        )));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Failure::machine(
            "/dev/net/tun is missing: Open vSwitch's userspace datapath needs it (modprobe tun)",
        ));
    }
    Ok(())
}

/// Checks for the tools that impaired links alone need: no switch, so fewer than for a lab.
pub fn require_link_tools() -> Result<(), Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::machine(
            "it makes network namespaces and TAP devices and needs root: run it with sudo",
        ));
    }
    if !is_in_path("ip") {
        return Err(Failure::machine("ip not found: apt-get install iproute2"));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Failure::machine(
            "/dev/net/tun is missing: links are made of TAP devices (modprobe tun)",
        ));
    }
    Ok(())
}

/// A command that starts a long-lived process of a lab: marked with the lab's id, and in a process
/// group of its own, so that Ctrl-C reaches the lab alone, which then ends its processes in order.
pub fn lab_command(ledger: &Ledger, namespace: Option<&str>, program: impl AsRef<Path>) -> Command {
    marked_command(ledger.id(), &ledger.dir(), namespace, program)
}

fn marked_command(
    id: &str,
    dir: &Path,
    namespace: Option<&str>,
    program: impl AsRef<Path>,
) -> Command {
    let mut command = match namespace {
        // `ip netns exec` replaces itself, so the pid is the program's.
        Some(namespace) => {
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", namespace])
                .arg(program.as_ref());
            command
        }
        None => Command::new(program.as_ref()),
    };
    command
        .env(ID_VARIABLE, id)
        .env("OVS_RUNDIR", dir)
        .env("OVS_LOGDIR", dir)
        .env("OVS_DBDIR", dir)
        .stdin(Stdio::null())
        // A process that outlives `lab up` must not keep its caller's pipes open.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    // A lab that polls for signals has them blocked, and its processes would inherit that.
    let unblock = || Ok(SigSet::empty().thread_set_mask()?);
    // SAFETY: between fork and exec only async-signal-safe functions may run; this is one system
    // call that changes the mask of the only thread.
    unsafe { command.pre_exec(unblock) };
    command
}

/// A search path with `auster` before everything else.
pub fn path() -> Result<OsString, Failure> {
    let auster = program::auster()?;
    let mut path = auster.parent().unwrap_or(&auster).as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    Ok(path)
}

/// Runs a command to its end with a shell on the machine itself. An error has the last line of the
/// command's standard error.
pub fn shell(words: &str) -> Result<(), String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", words]).stdin(Stdio::null());
    let output = shell.output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or("it said nothing");
    Err(format!("{last} ({})", output.status))
}

/// The shell of a lab, for threads other than the one that changes its network. Commands start in
/// the lab's directory and find its Open vSwitch and `auster`.
#[derive(Clone, Debug)]
pub struct Shell {
    id: String,
    dir: PathBuf,
    path: OsString,
}

/// Seconds after which a command that has not ended is killed.
const COMMAND_TIME_MAX: &str = "600";

impl Shell {
    pub fn of(ledger: &Ledger) -> Result<Shell, Failure> {
        let (id, dir) = (ledger.id().to_string(), ledger.dir());
        let path = path()?;
        Ok(Shell { id, dir, path })
    }

    /// The namespace of a part of the lab.
    pub fn namespace(&self, part: &str) -> String {
        format!("{}-{part}", self.id)
    }

    /// Runs a command to its end in the namespace of a part of the lab.
    pub fn run<'v>(
        &self,
        part: &str,
        words: &str,
        variables: impl Iterator<Item = (&'v str, &'v str)>,
    ) -> Result<Output, Failure> {
        let namespace = self.namespace(part);
        let mut command = marked_command(&self.id, &self.dir, Some(&namespace), "timeout");
        command
            .args(["--kill-after=1", COMMAND_TIME_MAX, "sh", "-c", words])
            .env("PATH", &self.path)
            .envs(variables)
            .current_dir(&self.dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = command.output();
        output.map_err(|e| Failure::machine(format!("sh: {e}")))
    }
}
