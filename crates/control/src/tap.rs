//! Taps: the packets that applications beside auster see, and the packets that they send.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use openflow::{Action, DatapathId, ErrorKind, Field, Match, PortNo};

use crate::Location;

/// Maximum number of taps, of their owners, and of one owner's.
pub const TAPS_MAX: usize = 1024;
pub const OWNERS_MAX: usize = 64;
pub const TAPS_PER_OWNER_MAX: usize = 64;

/// Fields that no packet has by itself. Ports are named beside the match.
pub const OTHERS: [Field; 4] = [
    Field::InPort,
    Field::InPhyPort,
    Field::Metadata,
    Field::TunnelId,
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapId {
    pub owner: Arc<str>,
    pub name: Arc<str>,
}

/// Switches and ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    pub switches: BTreeSet<DatapathId>,
    pub ports: BTreeSet<Location>,
}

/// Packets that one application sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// Without any of [`OTHERS`].
    pub matching: Match,
    /// Everywhere, if none is named.
    pub at: Places,
    /// Whether the packets go their way besides. Otherwise the application alone has them.
    pub is_copy: bool,
    /// Whether static entries `before` auster's own have theirs first. Of one that diverts.
    pub is_after: bool,
    /// Packets of one switch in a second.
    pub rate_max: u32,
    /// The beginning of each packet that is sent up. `u16::MAX`: all of it.
    pub bytes: u16,
}

/// News of a tap, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tapped {
    Packet {
        tap: TapId,
        at: Location,
        /// The length of the whole packet.
        total_len: u16,
        data: Bytes,
    },
    /// A packet was over the rate of its tap.
    Shed(TapId),
}

/// Where that goes. The application's thread calls it, so it must not wait.
pub type Sink = Box<dyn FnMut(Tapped) + Send>;

/// The reason why a tap is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSet {
    TooMany,
    TooManyOwners,
    TooManyOfOwner,
}

/// A tap, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapView {
    pub id: TapId,
    pub tap: Tap,
    /// Packets for its owner, and those over its rate.
    pub packets: u64,
    pub shed: u64,
    /// The number of switches that have it.
    pub switches: usize,
    /// Connected switches that cannot have it.
    pub unable: Vec<DatapathId>,
    /// Those that have refused it.
    pub refused: Vec<(DatapathId, ErrorKind)>,
}

/// A packet of an application, for one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub dpid: DatapathId,
    /// The port that it is to have come in by.
    pub in_port: Option<PortNo>,
    pub actions: Vec<Action>,
    pub data: Bytes,
}

/// The reason why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The switch is not connected.
    Away,
    /// The switch has no such port for a packet to leave by.
    NoPort(PortNo),
    /// The switch has no such port for a packet to come in by.
    NoInPort(PortNo),
    /// The version of OpenFlow that the switch speaks has no such actions, or the packet is too
    /// long for it.
    NotInVersion,
}

impl Places {
    pub fn is_everywhere(&self) -> bool {
        self.switches.is_empty() && self.ports.is_empty()
    }

    /// Whether packets of some port of a switch are meant.
    pub fn concerns(&self, dpid: DatapathId) -> bool {
        self.has_all_of(dpid) || self.ports_of(dpid).next().is_some()
    }

    /// Whether packets of all ports of a switch are meant.
    pub fn has_all_of(&self, dpid: DatapathId) -> bool {
        self.is_everywhere() || self.switches.contains(&dpid)
    }

    /// The ports of a switch that are named.
    pub fn ports_of(&self, dpid: DatapathId) -> impl Iterator<Item = PortNo> {
        let at = |port| Location { dpid, port };
        let here = self.ports.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        here.map(|at| at.port)
    }

    pub fn contains(&self, at: Location) -> bool {
        self.has_all_of(at.dpid) || self.ports.contains(&at)
    }
}
