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
use testbed::network::device;
use testbed::plane::{Controller, Plane, Transport};
use testbed::tools::Shell;
use testbed::topology::Topology;

use crate::engine::expression::{Figures, Shape, Value};
use crate::engine::reader::Section;
use crate::engine::timeline::Window;

/// Values by their time since the run's clock began.
pub type Series = Vec<(Duration, f64)>;

/// Observes a network during a run, in a thread of its own.
pub trait Probe: Sync {
    /// Refuses a network that lacks what the probe observes.
    fn check(&self, _: &Topology, _: &Controller) -> Result<(), String> {
        Ok(())
    }

    fn observe(&self, scene: &Scene<'_>) -> Result<Series, Failure>;

    /// Further figures, each one number, named by the scenario.
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

impl Scene<'_> {
    /// Takes values repeatedly, with a rest in between, and for the last time at the end.
    fn watch<V: IntoIterator<Item = f64>>(
        &self,
        rest: Duration,
        mut look: impl FnMut() -> Result<V, Failure>,
    ) -> Result<Series, Failure> {
        let mut series = Series::new();
        loop {
            let left = self.until.saturating_sub(self.epoch.elapsed());
            let values = look()?;
            let at = self.epoch.elapsed();
            series.extend(values.into_iter().map(|value| (at, value)));
            if left.is_zero() {
                return Ok(series);
            }
            std::thread::sleep(left.min(rest));
        }
    }
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

/// A probe of the kind that a section names, with its figures.
pub fn read(section: &Section<'_>) -> Option<(Box<dyn Probe>, Figures)> {
    let Some(word) = section.required_word("kind", &KINDS) else {
        section.pass_over_all_but("kind");
        return None;
    };
    match word {
        "counter" => kind(counter::Counter::read(section), &counter::FIGURES),
        "status" => kind(status::Status::read(section), &status::FIGURES),
        "host" => kind(host::Host::read(section), &host::FIGURES),
        "sessions" => kind(Some(presence::SESSIONS), &presence::FIGURES),
        "entries" => kind(Some(presence::ENTRIES), &presence::FIGURES),
        "occupancy" => kind(occupancy::Occupancy::read(section), &occupancy::FIGURES),
        "relay" => kind(Some(relay::Relay), &relay::FIGURES),
        "run" => kind(run::Run::read(section), &run::FIGURES),
        "machine" => kind(Some(cpu::MACHINE), cpu::MACHINE.figures),
        "dscp" => kind(dscp::Dscp::read(section), &dscp::FIGURES),
        "messages" => kind(messages::Messages::read(section), &messages::FIGURES),
        "channel" => kind(channel::Channel::read(section), &channel::FIGURES),
        "cpu" => kind(Some(cpu::CORE), cpu::CORE.figures),
        "holdings" => kind(holdings::Holdings::read(section), &holdings::FIGURES),
        _ => None,
    }
}

fn kind<T: Probe + 'static>(
    read: Option<T>,
    figures: Figures,
) -> Option<(Box<dyn Probe>, Figures)> {
    Some((Box::new(read?), figures))
}

/// The place of a figure among the figures of its kind.
fn place(figures: &[(&str, Shape)], name: &str) -> usize {
    let place = figures.iter().position(|(known, _)| *known == name);
    place.unwrap_or_default()
}

/// The figure at this place, in a series with one value for each figure.
fn one(series: &Series, place: usize) -> Value {
    Value::One(series.get(place).map_or(f64::NAN, |(_, value)| *value))
}

/// A port of a switch by its link to another switch or a host.
struct Port {
    switch: String,
    far: String,
}

impl Port {
    fn parse(words: &str) -> Option<Port> {
        let (switch, far) = words.split_once('-')?;
        let (switch, far) = (switch.to_string(), far.to_string());
        Some(Port { switch, far })
    }

    /// The interface of the port.
    fn device(&self, topology: &Topology) -> Result<String, String> {
        let end = topology.port_towards(&self.switch, &self.far)?;
        Ok(device(topology, end))
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
