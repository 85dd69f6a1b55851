//! Other programs: our own two, and those of the system.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::failure::Failure;

/// The product's program, wherever this one is installed.
pub fn auster() -> Result<PathBuf, Failure> {
    ours("auster")
}

/// The laboratory's program.
pub fn laboratory() -> Result<PathBuf, Failure> {
    ours("auster-lab")
}

/// A program of ours: this one, the one beside it, or the one on PATH.
fn ours(name: &'static str) -> Result<PathBuf, Failure> {
    let this = std::env::current_exe()
        .map_err(|e| Failure::machine(format!("this program's own path: {e}")))?;
    // A file that was replaced while it runs is called `auster (deleted)`.
    let beside = this.with_file_name(name);
    if beside.is_file() {
        return Ok(beside);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|program| program.is_file());
    found.ok_or_else(|| {
        Failure::machine(format!(
            "{name} is neither in {} nor on PATH: install it there (cargo install --locked {name})",
            beside.parent().unwrap_or(&beside).display()
        ))
    })
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

/// Runs a program to its end and returns its standard output, or its message if it fails.
pub fn run(command: Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output_of(command, None)?;
    check(&program, &output)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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

/// Whether a program of this name is on PATH.
pub fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
