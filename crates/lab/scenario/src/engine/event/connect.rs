//! `connect = "ssl:172.30.2.1:6653"`: the operator gives all switches another controller.

use cli::failure::Failure;
use testbed::network::Network;
use testbed::plane::{Plane, is_target, set_controllers};

use super::Event;
use crate::engine::reader::Section;

pub struct Connect(String);

impl Connect {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        let target = section.text("connect")?;
        if !is_target(&target) {
            let right = "write tcp:HOST:PORT or ssl:HOST:PORT";
            let problem = format!("'{target}' is not a controller; {right}");
            section.problem("connect", problem);
        }
        Some(Box::new(Connect(target)))
    }
}

impl Event for Connect {
    fn apply(&self, network: &mut Network, _: &Plane) -> Result<(), Failure> {
        set_controllers(network, &self.0)
    }
}
