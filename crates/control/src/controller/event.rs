//! What the controller tells people: events for logs, rows for status tables.

use std::fmt;
use std::net::IpAddr;

use openflow::multipart::Description;
use openflow::time::Instant;
use openflow::{DatapathId, ErrorKind, MacAddr, PortNo, Version};

use crate::ConnectionId;
use crate::topology::Difference;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub dpid: DatapathId,
    pub port: PortNo,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dpid, self.port)
    }
}

/// What happened, for people and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SwitchUp {
        dpid: DatapathId,
        version: Version,
    },
    SwitchDown {
        dpid: DatapathId,
    },
    /// Its grace is over: links and paths through it are gone.
    SwitchLost {
        dpid: DatapathId,
    },
    PortUp(Location),
    PortDown(Location),
    LinkUp {
        from: Location,
        to: Location,
    },
    LinkDown {
        from: Location,
        to: Location,
    },
    HostLearned {
        mac: MacAddr,
        at: Location,
    },
    HostMoved {
        mac: MacAddr,
        from: Location,
        to: Location,
    },
    /// Flow entries of an earlier life of the switch or the controller were compared.
    Reconciled {
        dpid: DatapathId,
        kept: usize,
        added: usize,
        deleted: usize,
    },
    /// A relay beside the switch has the controller's policy map in use.
    PolicyShared {
        dpid: DatapathId,
        generation: u64,
    },
    /// Nobody beside the switch takes a policy map over OpenFlow: it answered so.
    PolicyAlone {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// Of what the administrator says of the network, this is otherwise.
    TopologyDiffers(Difference),
    /// Nothing differs any more.
    TopologyAgrees,
    Alarm(Alarm),
}

/// Something that only a fault or an attack explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    DuplicateDatapath {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// LLDP that claims to be ours and is not, or not fresh.
    LldpForged {
        at: Location,
        why: &'static str,
    },
    /// A host that is alive elsewhere.
    HostSpoofed {
        mac: MacAddr,
        home: Location,
        at: Location,
    },
    HostMovesTooOften {
        mac: MacAddr,
    },
    HostTableFull,
    /// Somebody else's entry stands where table-miss or LLDP should go to the controller.
    ForeignInfrastructure {
        dpid: DatapathId,
    },
    FlowTableFull {
        dpid: DatapathId,
    },
    FlowModRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
}

/// A switch, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchView {
    pub dpid: DatapathId,
    /// `None` while it is disconnected and in its grace.
    pub connection: Option<ConnectionId>,
    pub version: Version,
    pub port_count: usize,
    pub flow_count: usize,
    pub up_since: Instant,
    pub description: Option<Description>,
}

/// A directed link. Paths use it only when its reverse is there too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkView {
    pub from: Location,
    pub to: Location,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    pub mac: MacAddr,
    pub at: Location,
    pub ips: Vec<IpAddr>,
}
