//! The programs a lab is made with, and what it needs of the machine.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;
use crate::lab::ledger::{ID_VARIABLE, Ledger};

/// Where `ip netns` keeps namespaces by name.
pub const NETNS_DIR: &str = "/run/netns";

/// What a real network needs, and the Debian package each comes in.
const PROGRAMS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
];

/// Fails, before anything is made, with one line that names all that is missing.
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

/// What impaired links alone need: no switch, so much less than a lab.
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

/// Runs `ip -batch` with these lines, inside a namespace if one is given. All lines are tried.
pub fn ip_batch(namespace: Option<&str>, lines: &[String]) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    command.args(["-force", "-batch", "-"]);
    let output = output_of(command, Some(&(lines.join("\n") + "\n")))?;
    check("ip", &output)
}

/// Runs a `tc` command, inside a namespace if one is given.
pub fn tc(namespace: Option<&str>, arguments: &[&str]) -> Result<String, Failure> {
    let mut command = tc_command(namespace)?;
    command.args(arguments);
    run(command)
}

/// Runs `tc -batch` with these lines, up to the first that fails.
pub fn tc_batch(namespace: Option<&str>, lines: &[String]) -> Result<(), Failure> {
    let mut command = tc_command(namespace)?;
    command.args(["-batch", "-"]);
    let output = output_of(command, Some(&(lines.join("\n") + "\n")))?;
    check("tc", &output)
}

fn tc_command(namespace: Option<&str>) -> Result<Command, Failure> {
    if !is_in_path("tc") {
        return Err(Failure::machine("tc not found: apt-get install iproute2"));
    }
    let mut command = Command::new("tc");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    Ok(command)
}

/// Runs a program to its end and gives its standard output; its last words if it fails.
pub fn run(command: Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output_of(command, None)?;
    check(&program, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A command that starts a long-lived process of a lab: marked with the lab's id, and in a process
/// group of its own, so that Ctrl-C reaches the lab alone, which then ends things in order.
pub fn lab_command(ledger: &Ledger, namespace: Option<&str>, program: impl AsRef<Path>) -> Command {
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
        .env(ID_VARIABLE, ledger.id())
        .env("OVS_RUNDIR", ledger.dir())
        .env("OVS_LOGDIR", ledger.dir())
        .env("OVS_DBDIR", ledger.dir())
        .stdin(Stdio::null())
        // A process that outlives `lab up` must not hold its caller's pipes open.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

fn output_of(mut command: Command, input: Option<&str>) -> Result<Output, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| Failure::machine(format!("{program}: {e}"));
    command
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(input.as_bytes()).map_err(failed)?;
    }
    child.wait_with_output().map_err(failed)
}

fn check(program: &str, output: &Output) -> Result<(), Failure> {
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr
        .lines()
        .find(|line| !line.is_empty())
        .unwrap_or("no message");
    Err(Failure::machine(format!(
        "{program}: {line} ({})",
        output.status
    )))
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
