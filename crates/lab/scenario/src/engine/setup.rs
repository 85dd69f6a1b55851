//! `[[setup]]`: commands that prepare a network for an experiment, before the network is ready.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::wait_for_listener;
use testbed::tools::{self, Shell};
use testbed::topology::Topology;

use crate::engine::command::Command;
use crate::engine::reader::Section;

/// One command. The next step waits for its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    command: Command,
    process: Option<Process>,
}

/// A command that runs until the network ends, under its own name.
#[derive(Clone, Debug, PartialEq)]
struct Process {
    name: String,
    /// The next step waits until something listens on this TCP port.
    listens: Option<u16>,
}

impl Step {
    pub fn read(section: &Section<'_>, topology: &Topology) -> Option<Step> {
        let command = Command::read(section);
        let listens = section.count("listens", 1..=u16::MAX.into());
        let name = section.text("stays");
        if section.has("listens") && name.is_none() {
            section.problem("listens", "only a command that stays takes it");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if let Some(name) = name.as_ref().filter(|name| !name.chars().all(is_plain)) {
            let problem = format!("'{name}' is no name; use letters, digits and -");
            section.problem("stays", problem);
        }
        let command = command?;
        if let Err(problem) = command.check(topology) {
            section.problem("in", problem);
        }
        let process = name.map(|name| Process {
            name,
            listens: listens.map(|port| port as u16),
        });
        Some(Step { command, process })
    }

    pub fn apply(&self, network: &mut Network) -> Result<(), Failure> {
        let Some(process) = &self.process else {
            return self.command.succeed(&Shell::of(network.ledger())?);
        };
        let log = format!("{}.log", process.name);
        let (said, errors) = (network.open_log(&log)?, network.open_log(&log)?);
        let (dir, path) = (network.dir(), tools::path()?);
        let part = self.command.part();
        network.spawn(&process.name, Some(part), "sh", |command| {
            command
                .args(["-c", &self.command.words])
                .current_dir(dir)
                .env("PATH", path)
                .envs(self.command.variables())
                .stdout(said)
                .stderr(errors);
        })?;
        match process.listens {
            Some(port) => wait_for_listener(network, part, port, &log),
            None => Ok(()),
        }
    }
}
