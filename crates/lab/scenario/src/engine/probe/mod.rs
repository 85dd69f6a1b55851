//! Measurements beside the traffic, one file per kind.

mod channel;
mod counter;
mod cpu;
mod dscp;
mod holdings;
mod host;
mod messages;
mod occupancy;
mod presence;
mod relay;
mod run;
mod status;

use std::time::{Duration, Instant};

use cli::failure::Failure;
use testbed::plane::{Controller, Plane, Transport};
use testbed::tools::Shell;
use testbed::topology::Topology;

use crate::engine::expression::{Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// A value at a time since the run's clock began.
pub type Series = Vec<(Duration, f64)>;

/// Observes a network during a run, in a thread of its own.
pub trait Probe: Sync {
    /// Refuses a network that lacks what it observes.
    fn check(&self, _: &Topology, _: &Controller) -> Result<(), String> {
        Ok(())
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure>;

    /// The names of its figures.
    fn figures(&self) -> &'static [(&'static str, Shape)];

    /// More figures, each one number, which the scenario names.
    fn own_figures(&self) -> Vec<&str> {
        Vec::new()
    }

    /// A figure over the observations in a window.
    fn figure(&self, name: &str, window: &Window, topology: &Topology, series: &Series) -> Value;
}

/// A network during one run.
pub struct Scene<'a> {
    pub topology: &'a Topology,
    pub plane: &'a Plane,
    /// The namespace of the switches.
    pub switches: String,
    pub shell: Shell,
    /// The process of the controller, if the lab has one.
    pub controller_pid: Option<u32>,
    /// The zero of the run's clock.
    pub epoch: Instant,
    pub until: Duration,
}

pub const KINDS: [&str; 14] = [
    "counter",
    "status",
    "host",
    "sessions",
    "entries",
    "occupancy",
    "relay",
    "run",
    "machine",
    "dscp",
    "messages",
    "channel",
    "cpu",
    "holdings",
];

pub const ONE: Shape = Shape {
    truth: false,
    many: false,
};

pub fn read(section: &Section<'_>) -> Option<Box<dyn Probe>> {
    match section.required_word("kind", &KINDS)? {
        "counter" => Some(Box::new(counter::Counter::read(section)?)),
        "status" => Some(Box::new(status::Status::read(section)?)),
        "holdings" => Some(Box::new(holdings::Holdings::read(section)?)),
        "host" => Some(Box::new(host::Host::read(section)?)),
        "sessions" => Some(Box::new(presence::SESSIONS)),
        "entries" => Some(Box::new(presence::ENTRIES)),
        "occupancy" => Some(Box::new(occupancy::Occupancy::read(section)?)),
        "relay" => Some(Box::new(relay::Relay)),
        "channel" => Some(Box::new(channel::Channel::read(section)?)),
        "cpu" => Some(Box::new(cpu::CORE)),
        "dscp" => Some(Box::new(dscp::Dscp::read(section)?)),
        "messages" => Some(Box::new(messages::Messages::read(section)?)),
        "machine" => Some(Box::new(cpu::MACHINE)),
        "run" => Some(Box::new(run::Run::read(section)?)),
        _ => None,
    }
}

/// Refuses a control channel whose messages cannot be read from the wire.
pub fn in_plain_tcp(controller: &Controller) -> Result<(), String> {
    match controller {
        Controller::Auster(site) if site.transport != Transport::Tcp => Err(format!(
            "{controller} cannot be read from the wire; write transport = \"tcp\""
        )),
        _ => Ok(()),
    }
}
