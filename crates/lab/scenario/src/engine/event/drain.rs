//! `drain = "s1-s2"`: the administrator takes this link, and no other, out of service.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::topology::Topology;

use super::Event;
use crate::engine::reader::Section;

/// The link to drain; if none, all links return to service.
pub struct Drain {
    link: Option<[String; 2]>,
}

impl Drain {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        let words = section.text("drain")?;
        let link = words
            .split_once('-')
            .map(|(a, b)| [a, b].map(str::to_string));
        if link.is_none() && words != "none" {
            let right = "write two switches, such as drain = \"s1-s2\", or \"none\"";
            section.problem("drain", format!("'{words}' is not a link; {right}"));
        }
        Some(Box::new(Drain { link }))
    }

    /// The ports as auster's configuration names them.
    fn ports(&self, topology: &Topology) -> Result<Vec<String>, String> {
        let Some([a, b]) = &self.link else {
            return Ok(Vec::new());
        };
        let end = topology.port_towards(a, b)?;
        let dpid = topology.switches[end.switch].dpid.0;
        Ok(vec![format!("{dpid:#x}:{}", end.port.0)])
    }
}

impl Event for Drain {
    fn check(&self, topology: &Topology, controller: &Controller) -> Result<(), String> {
        match controller {
            Controller::Auster(_) => self.ports(topology).map(drop),
            other => Err(format!("{other} cannot be told; --controller auster can")),
        }
    }

    fn apply(&self, network: &mut Network, plane: &Plane) -> Result<(), Failure> {
        let ports = self.ports(&network.topology).map_err(Failure::usage)?;
        plane.reconfigure(network, "drain", ports.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_by_the_port_of_its_first_switch() {
        let topology = Topology::generate("ring,3", None).unwrap();
        let ports = |link: Option<[&str; 2]>| {
            let link = link.map(|ends| ends.map(str::to_string));
            Drain { link }.ports(&topology)
        };
        let far = topology.port_towards("s1", "s3").unwrap();
        assert_eq!(
            ports(Some(["s1", "s3"])),
            Ok(vec![format!("0x1:{}", far.port.0)])
        );
        assert!(ports(Some(["s3", "s1"])).unwrap()[0].starts_with("0x3:"));
        assert_eq!(ports(None), Ok(Vec::new()));
        assert!(ports(Some(["s1", "s9"])).unwrap_err().contains("no link"));
    }
}
