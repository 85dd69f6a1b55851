//! Experiments on queues, policies and circuits.

pub mod paper;

use cli::program;
use std::process::{Command, Output};

use cli::failure::Failure;
use testbed::network::{Network, SWITCHES};

/// `auster queues` of a switch's port, where the switch is.
fn queues(network: &Network, port: &str, words: &[&str]) -> Result<Output, Failure> {
    let database = format!("unix:{}", network.dir().join("db.sock").display());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &network.namespace(SWITCHES)]);
    command.arg(program::auster()?).arg("queues").args(words);
    command.args(["--port", port, "--db", &database]);
    command
        .output()
        .map_err(|e| Failure::machine(format!("ip netns exec: {e}")))
}

fn check(what: &str, output: &Output) -> Result<(), Failure> {
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::machine(format!(
            "{what}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}
