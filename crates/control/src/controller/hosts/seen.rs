//! The known facts of one host, for people.

use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::MacAddr;

use crate::Location;

use super::Hosts;

/// A host as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// `None` if its port has gone.
    pub at: Option<Location>,
    pub ips: Vec<IpAddr>,
    /// The time since it was last heard, in steps of a few seconds. `None` if only an entry names
    /// its place.
    pub heard_ago: Option<Duration>,
    /// The port that claims the host's address, while the host is asked.
    pub contested_by: Option<Location>,
}

impl Hosts {
    /// The known facts of a host; `None` if it is unknown.
    pub(in crate::controller) fn seen(&self, now: Instant, mac: MacAddr) -> Option<Seen> {
        if !self.places.contains(mac) {
            return None;
        }
        let contest = self.details.get(&mac).and_then(|it| it.contest.as_ref());
        Some(Seen {
            at: self.places.place(mac),
            ips: self.ips(mac),
            heard_ago: self.places.heard_ago(now, mac),
            contested_by: contest.map(|contest| contest.claimant),
        })
    }
}
