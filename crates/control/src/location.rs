//! A place in the network.

use std::fmt;

use openflow::{DatapathId, PortNo};

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub dpid: DatapathId,
    pub port: PortNo,
}

impl Location {
    pub const fn new(dpid: DatapathId, port: PortNo) -> Location {
        Location { dpid, port }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dpid, self.port)
    }
}
