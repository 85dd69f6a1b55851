//! `kill = "controller"` and `start = "controller"`: a process of the control plane ends by SIGKILL
//! and starts again.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::{Controller, Part, Plane};
use testbed::topology::Topology;

use super::Event;
use crate::engine::reader::Section;

pub struct Process {
    part: Part,
    start: bool,
}

const PARTS: [Part; 3] = [Part::Controller, Part::RelayController, Part::RelaySwitch];

impl Process {
    pub fn read(section: &Section<'_>, verb: &'static str, start: bool) -> Option<Box<dyn Event>> {
        let role = section.word(verb, &PARTS.map(Part::role))?;
        let part = PARTS.into_iter().find(|part| part.role() == role)?;
        Some(Box::new(Process { part, start }))
    }
}

impl Event for Process {
    fn check(&self, _: &Topology, controller: &Controller) -> Result<(), String> {
        if controller.parts().contains(&self.part) {
            return Ok(());
        }
        Err(format!(
            "{controller} has no {}; relays are there with --transport quic",
            self.part.role()
        ))
    }

    fn apply(&self, network: &mut Network, plane: &Plane) -> Result<(), Failure> {
        match self.start {
            true => plane.start_again(network, self.part),
            false => network.kill(self.part.role()),
        }
    }
}
