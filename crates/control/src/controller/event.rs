//! What the controller tells people: events for logs, rows for status tables.

use std::fmt;
use std::net::IpAddr;

use clock::{Duration, Instant};
use openflow::multipart::Description;
use openflow::{DatapathId, ErrorKind, MacAddr, PortNo, Version};

use crate::ConnectionId;
use crate::topology::Difference;

use super::tables::TableCounters;

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
    /// An IP address has another owner: the one before was silent when asked, or has no place.
    AddressMoved {
        ip: IpAddr,
        from: MacAddr,
        to: MacAddr,
    },
    /// Flow entries of an earlier life of the switch or the controller were compared.
    Reconciled {
        dpid: DatapathId,
        kept: usize,
        added: usize,
        deleted: usize,
        /// Rows that could not be read.
        unreadable: usize,
        /// The switch did not report its entries: it refused, was late, or reported too much. Only
        /// infrastructure was sent.
        is_unread: bool,
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
    /// A port that had hosts is an end of a link now: LLDP has passed for long enough, and no host
    /// spoke there meanwhile. `excess`: the least that LLDP took longer than the control paths.
    EdgeBecameLink {
        from: Location,
        to: Location,
        excess: Option<Duration>,
    },
    /// Found, not in the topology, and links are enforced: nothing is sent over it.
    LinkNotStated {
        from: Location,
        to: Location,
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
    /// A host at a port claims an IP address whose owner has answered for it.
    AddressClaimed {
        ip: IpAddr,
        owner: MacAddr,
        claimant: MacAddr,
        at: Location,
    },
    /// ARP or neighbour discovery of a host speaks for another hardware address.
    SenderForged {
        at: Location,
        mac: MacAddr,
        said: MacAddr,
    },
    /// The port has most hosts, and its oldest gave way, or it got no more.
    HostTableFull {
        at: Location,
    },
    /// The same for what is known of hosts beside their place: their IP addresses.
    HostAddressesFull {
        at: Location,
    },
    /// Broadcasts or multicast from the port have been over its budget for long.
    BroadcastStorm {
        at: Location,
    },
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
    /// A panic in auster was caught. The state of the switch it was serving, if any, begins anew.
    Panicked {
        dpid: Option<DatapathId>,
    },
}

impl Alarm {
    /// What of its kind is said once a minute: alarms of one kind at one port. `None`: each is said.
    pub(super) fn damped_by(&self) -> Option<(&'static str, Location)> {
        match self {
            Alarm::LldpForged { at, .. } => Some(("lldp", *at)),
            Alarm::LinkNotStated { to, .. } => Some(("link", *to)),
            _ => None,
        }
    }
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
    pub table: TableView,
}

/// A switch's flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    /// Of everybody, when it was last asked; it is only if something depends on it.
    pub entries: Option<u32>,
    pub limit: Option<u32>,
    /// Entries that are renewed as long as their flow sends.
    pub leases: usize,
    /// Entries that carry all pairs to a host, from one port, in place of their own.
    pub coarse: usize,
    /// Idle and hard, in seconds, of the entries that its edge sets.
    pub timeouts_at_edge: Option<(u16, u16)>,
    pub counters: TableCounters,
}

/// What is decided of timeouts for all switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeoutsView {
    /// Of pairs in no class.
    pub policy: &'static str,
    pub first_packets: &'static str,
    pub load_percent: f64,
    /// Timeouts are longer by this factor because of the load.
    pub stretch: u32,
    pub leases: usize,
    /// Measured, of the last 1024: from when a path was asked for, as a rule by a packet-in, to
    /// the barrier after its first entry.
    pub delays: usize,
    pub delay_p50: Option<Duration>,
    pub delay_p99: Option<Duration>,
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
