//! Commands of a shell, which verbs and probes run.

use std::process::Output;

use cli::failure::Failure;
use testbed::network::{CONTROLLER, SWITCHES};
use testbed::tools::Shell;
use testbed::topology::Topology;

use crate::engine::reader::{Section, suggestion};

/// Parts of the lab that are no hosts, each with the end of its namespace's name.
const PARTS: [(&str, &str); 2] = [("switches", SWITCHES), ("controller", CONTROLLER)];

/// A command and the part of the lab where it runs: the switches, the controller or a host.
#[derive(Clone, Debug)]
pub struct Command {
    part: String,
    pub words: String,
}

impl Command {
    pub fn read(section: &Section<'_>) -> Option<Command> {
        let words = section.required_text("run", "\"ovs-vsctl show\"");
        let part = section.text("in").unwrap_or_else(|| PARTS[0].0.to_string());
        Some(Command {
            part,
            words: words?,
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

    pub fn run(&self, shell: &Shell) -> Result<Output, Failure> {
        let mut parts = PARTS.iter();
        let part = parts.find(|(name, _)| *name == self.part);
        shell.run(part.map_or(&self.part, |(_, part)| part), &self.words)
    }
}
