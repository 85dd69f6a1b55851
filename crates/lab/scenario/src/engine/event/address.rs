//! `address = { at = "switches", remove = "172.30.1.2/24", add = "172.30.1.3/24" }`: an end of the
//! control link loses an address or gets one.

use std::net::Ipv4Addr;

use cli::failure::Failure;
use cli::program;
use testbed::network::{CONTROLLER, CONTROLLER_DEVICE, Network, SWITCHES, SWITCHES_DEVICE};
use testbed::plane::Plane;

use super::Event;
use crate::engine::reader::Section;

pub struct Address {
    part: &'static str,
    /// Commands of `ip`, in their order.
    lines: Vec<String>,
}

impl Address {
    pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
        let change = section.section("address")?;
        let (part, device) = match change.required_word("at", &["switches", "controller"]) {
            Some("switches") => (SWITCHES, SWITCHES_DEVICE),
            _ => (CONTROLLER, CONTROLLER_DEVICE),
        };
        let mut lines = Vec::new();
        for (key, command) in [("remove", "del"), ("add", "add")] {
            let Some(address) = change.text(key) else {
                continue;
            };
            if !is_address(&address) {
                let right = "write an IPv4 address with its length, such as \"172.30.1.2/24\"";
                change.problem(key, format!("'{address}' is not an address; {right}"));
            }
            lines.push(format!("addr {command} {address} dev {device}"));
        }
        if lines.is_empty() {
            let problem = "missing; write such as remove = \"172.30.1.2/24\"";
            change.problem("remove", problem);
        }
        change.finish();
        Some(Box::new(Address { part, lines }))
    }
}

fn is_address(text: &str) -> bool {
    let parts = text.split_once('/');
    parts.is_some_and(|(address, length)| {
        let length = length.parse::<u8>();
        address.parse::<Ipv4Addr>().is_ok() && length.is_ok_and(|length| length <= 32)
    })
}

impl Event for Address {
    fn apply(&self, network: &mut Network, _: &Plane) -> Result<(), Failure> {
        program::ip_batch(Some(&network.namespace(self.part)), &self.lines)
    }
}
