//! The events of a network at a moment, one file per kind.

mod address;
mod connect;
mod drain;
mod flap;
mod link;
mod load;
mod process;
mod run;

use std::time::Duration;

use cli::failure::Failure;
use clock::SplitMix64;
use testbed::network::Network;
use testbed::plane::{Controller, Plane};
use testbed::topology::Topology;

use crate::engine::reader::Section;
use process::Change;

/// One change of a running network.
pub trait Event: Sync {
    /// Refuses a network or a controller to which the event cannot be applied.
    fn check(&self, _: &Topology, _: &Controller) -> Result<(), String> {
        Ok(())
    }

    fn apply(&self, network: &mut Network, plane: &Plane) -> Result<(), Failure>;

    /// The moment until which an event continues.
    fn until(&self) -> Option<&str> {
        None
    }

    /// The later changes of an event that lasts this long, each with its time after the first
    /// change.
    fn later(&self, _lasts: Duration, _random: SplitMix64) -> Vec<(Duration, Box<dyn Event>)> {
        Vec::new()
    }
}

/// Keys of `[[at]]` that make something happen.
pub const VERBS: [&str; 12] = [
    "cut", "mend", "drain", "flap", "kill", "stop", "start", "reload", "address", "connect",
    "load", "run",
];

/// The event of one `[[at]]`; none if it only names a moment.
pub fn read(section: &Section<'_>) -> Option<Box<dyn Event>> {
    let verbs: Vec<&str> = VERBS.into_iter().filter(|verb| section.has(verb)).collect();
    if let [_, second, ..] = verbs[..] {
        section.problem(second, "one verb for each [[at]]; write another [[at]]");
    }
    let cut = link::Link::read(section, "cut", false);
    let mend = link::Link::read(section, "mend", true);
    let kill = process::Process::read(section, "kill", Change::Kill);
    let stop = process::Process::read(section, "stop", Change::Stop);
    let start = process::Process::read(section, "start", Change::Start);
    let reload = process::Process::read(section, "reload", Change::Reload);
    let address = address::Address::read(section);
    let connect = connect::Connect::read(section);
    let drain = drain::Drain::read(section);
    let flap = flap::Flap::read(section);
    let load = load::Load::read(section);
    let run = run::Run::read(section);
    let all = [
        cut, mend, drain, flap, kill, stop, start, reload, address, connect, load, run,
    ];
    all.into_iter().flatten().next()
}
