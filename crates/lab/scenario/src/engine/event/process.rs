//! `kill`, `stop`, `start` and `reload = "controller"`: a process of the control plane ends on
//! SIGKILL or SIGTERM, starts again, or reads its configuration again on SIGHUP.

use cli::failure::Failure;
use nix::sys::signal::Signal;
use testbed::network::Network;
use testbed::plane::{Controller, Part, Plane};
use testbed::topology::Topology;

use super::Event;
use crate::engine::reader::Section;

pub struct Process {
    part: Part,
    change: Change,
}

#[derive(Clone, Copy)]
pub enum Change {
    Kill,
    Stop,
    Start,
    Reload,
}

impl Process {
    pub fn read(
        section: &Section<'_>,
        verb: &'static str,
        change: Change,
    ) -> Option<Box<dyn Event>> {
        let role = section.word(verb, &Part::ALL.map(Part::role))?;
        let part = Part::ALL.into_iter().find(|part| part.role() == role)?;
        Some(Box::new(Process { part, change }))
    }
}

impl Event for Process {
    fn check(&self, _: &Topology, controller: &Controller) -> Result<(), String> {
        let is_controller = matches!(self.part, Part::Controller | Part::Standby);
        if matches!(self.change, Change::Reload) && !is_controller {
            return Err("only a controller reads its configuration again".to_string());
        }
        if controller.parts().contains(&self.part) {
            return Ok(());
        }
        let right = match self.part {
            Part::Controller | Part::RelayController | Part::RelaySwitch => {
                "relays are there with --transport quic"
            }
            Part::Standby | Part::RelayStandby => "write standby = true in [controller]",
        };
        let role = self.part.role();
        Err(format!("{controller} has no {role}; {right}"))
    }

    fn apply(&self, network: &mut Network, plane: &Plane) -> Result<(), Failure> {
        match self.change {
            Change::Kill => network.kill(self.part.role()),
            Change::Stop => network.terminate(self.part.role()),
            Change::Start => plane.start_again(network, self.part),
            Change::Reload => network.signal(self.part.role(), Signal::SIGHUP),
        }
    }
}
