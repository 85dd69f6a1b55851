//! `run = "ovs-vsctl …"`: a shell command, beside the switches or at another place.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::tools::Shell;
use testbed::topology::Topology;

use super::Event;
use crate::engine::command::Command;
use crate::engine::reader::Section;

pub struct Run(Command);

impl Run {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        let command = section.has("run").then(|| Command::read(section))?;
        Some(Box::new(Run(command?)))
    }
}

impl Event for Run {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        self.0.check(topology)
    }

    fn apply(&self, network: &mut Network, _: &Plane) -> Result<(), Failure> {
        self.0.succeed(&Shell::of(network.ledger())?)
    }
}
