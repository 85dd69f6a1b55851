//! Shell commands, which verbs and probes run.

use std::process::Output;

use cli::failure::Failure;
use testbed::network::{CONTROLLER, SWITCHES};
use testbed::tools::Shell;
use testbed::topology::Topology;

use crate::engine::reader::{Section, suggestion};

/// Parts of the lab other than hosts, each with the suffix of its namespace's name.
const PARTS: [(&str, &str); 2] = [("switches", SWITCHES), ("controller", CONTROLLER)];

/// A command and the part of the lab where it runs: the switches, the controller or a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    part: String,
    pub words: String,
    /// The shell variables that the command names: values of the cell, and others.
    variables: Vec<(String, String)>,
}

impl Command {
    pub fn read(section: &Section<'_>) -> Option<Command> {
        let words = section.required_text("run", "\"ovs-vsctl show\"");
        let part = section.text("in").unwrap_or_else(|| PARTS[0].0.to_string());
        let words = words?;
        Some(Command {
            part,
            variables: section.parameters().variables(&words),
            words,
        })
    }

    pub fn check(&self, topology: &Topology) -> Result<(), String> {
        let hosts = topology.hosts.iter().map(|host| host.name.as_str());
        let mut parts = hosts.chain(PARTS.map(|(name, _)| name));
        match parts.clone().any(|part| part == self.part) {
            true => Ok(()),
            false => {
                let right = suggestion(&self.part, &mut parts);
                Err(format!("in = \"{}\" is no place; {right}", self.part))
            }
        }
    }

    /// The suffix of the namespace's name.
    pub fn part(&self) -> &str {
        let part = PARTS.iter().find(|(name, _)| *name == self.part);
        part.map_or(&self.part, |(_, part)| part)
    }

    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let variables = self.variables.iter();
        variables.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn run(&self, shell: &Shell) -> Result<Output, Failure> {
        shell.run(self.part(), &self.words, self.variables())
    }

    /// Runs the command to its end, and fails unless the command succeeds.
    pub fn succeed(&self, shell: &Shell) -> Result<(), Failure> {
        let output = self.run(shell)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let (said, status) = (said.trim(), output.status);
        Err(Failure::machine(format!(
            "run = \"{}\": {said} ({status})",
            self.words
        )))
    }
}
