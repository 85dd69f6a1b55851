//! Taps: the packets that applications beside auster see, and the packets that they send.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use openflow::{Action, DatapathId, ErrorKind, Field, Match, PortNo};

use crate::Location;

/// Maximum number of taps, of their owners, and of one owner's taps.
pub const TAPS_MAX: usize = 1024;
pub const OWNERS_MAX: usize = 64;
pub const TAPS_PER_OWNER_MAX: usize = 64;

/// Fields that are no part of a packet itself. Ports are named beside the match.
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
    /// The places of the tap: everywhere, if none is named.
    pub at: Places,
    /// Whether the packets are also forwarded as usual. Otherwise only the application receives
    /// them.
    pub is_copy: bool,
    /// Whether static entries `before` auster's own take precedence, for a tap that diverts
    /// packets.
    pub is_after: bool,
    /// Maximum number of packets from one switch per second.
    pub rate_max: u32,
    /// The number of bytes of each packet that the switch sends, from its start. `u16::MAX`: all.
    pub bytes: u16,
}

/// An event of a tap, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tapped {
    Packet {
        tap: TapId,
        at: Location,
        /// The length of the whole packet.
        total_len: u16,
        data: Bytes,
    },
    /// A packet exceeded the rate of its tap.
    Shed(TapId),
}

/// The receiver of a tap's events. The application's thread calls it, so it must not wait.
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
    /// Packets for the tap's owner, and packets over its rate.
    pub packets: u64,
    pub shed: u64,
    /// The number of switches that have the tap.
    pub switches: usize,
    /// Connected switches that cannot have the tap.
    pub unable: Vec<DatapathId>,
    /// Switches that have refused the tap.
    pub refused: Vec<(DatapathId, ErrorKind)>,
}

/// A packet of an application, for one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub dpid: DatapathId,
    /// The port by which the packet appears to come in.
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
    /// The switch's version of OpenFlow has no such actions, or the packet is too long for it.
    NotInVersion,
}

impl Places {
    pub fn is_everywhere(&self) -> bool {
        self.switches.is_empty() && self.ports.is_empty()
    }

    /// Whether the places include some port of a switch.
    pub fn concerns(&self, dpid: DatapathId) -> bool {
        self.has_all_of(dpid) || self.ports_of(dpid).next().is_some()
    }

    /// Whether the places include all ports of a switch.
    pub fn has_all_of(&self, dpid: DatapathId) -> bool {
        self.is_everywhere() || self.switches.contains(&dpid)
    }

    /// The named ports of a switch.
    pub fn ports_of(&self, dpid: DatapathId) -> impl Iterator<Item = PortNo> {
        let at = |port| Location { dpid, port };
        let here = self.ports.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        here.map(|at| at.port)
    }

    pub fn contains(&self, at: Location) -> bool {
        self.has_all_of(at.dpid) || self.ports.contains(&at)
    }
}
