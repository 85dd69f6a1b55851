//! `cut = "s1-s2"` and `mend = "s1-s2"`: a link goes down and up, at both ends.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::topology::Topology;

use super::Event;
use crate::engine::reader::Section;

pub struct Link {
    pub switches: [String; 2],
    pub up: bool,
}

impl Link {
    pub fn read(section: &Section<'_>, verb: &'static str, up: bool) -> Option<Box<dyn Event>> {
        let switches = switches(section, verb, &section.text(verb)?)?;
        Some(Box::new(Link { switches, up }))
    }
}

/// The two switches of a link such as `s1-s2`.
pub fn switches(section: &Section<'_>, verb: &'static str, words: &str) -> Option<[String; 2]> {
    let Some((a, b)) = words.split_once('-') else {
        let right = format!("write two switches, such as {verb} = \"s1-s2\"");
        return section.refuse(verb, format!("'{words}' is not a link; {right}"));
    };
    Some([a, b].map(str::to_string))
}

impl Event for Link {
    fn check(&self, topology: &Topology, _: &Controller) -> Result<(), String> {
        let [a, b] = &self.switches;
        topology.port_towards(a, b).map(drop)
    }

    fn apply(&self, network: &mut Network, _: &Plane) -> Result<(), Failure> {
        let [a, b] = &self.switches;
        network.set_link(a, b, self.up)
    }
}
