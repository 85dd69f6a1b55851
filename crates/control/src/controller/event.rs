//! Reports of the controller: events for logs, rows for status tables.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::message::PortName;
use openflow::multipart::Description;
use openflow::{Cookie, DatapathId, ErrorKind, MacAddr, PortNo, Version};

use crate::bond::Bond;
use crate::flows::FlowName;
use crate::histogram::Histogram;
use crate::lacp::{Partner, PortView};
use crate::topology::Difference;
use crate::vlan::VlanId;
use crate::{ConnectionId, Location};

use super::named::Setting;

/// An event, for people and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    SwitchUp {
        dpid: DatapathId,
        version: Version,
    },
    SwitchDown {
        dpid: DatapathId,
    },
    /// The switch's grace is over: its links and the paths through it are removed.
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
        vlan: VlanId,
        at: Location,
    },
    HostMoved {
        mac: MacAddr,
        vlan: VlanId,
        from: Location,
        to: Location,
    },
    /// An IP address has a new owner: the former one did not answer when asked, or is at no known
    /// port.
    AddressMoved {
        ip: IpAddr,
        from: MacAddr,
        to: MacAddr,
    },
    /// The controller has compared flow entries from an earlier run of the switch or of itself.
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
    /// The ports of a bond that carry packets have changed.
    BondChanged {
        name: String,
        at: Location,
        ports: Vec<PortNo>,
    },
    /// A port that a spanning tree's message had closed is open again.
    PortOpened(Location),
    /// A relay beside the switch uses the controller's policy map.
    PolicyShared {
        dpid: DatapathId,
        generation: u64,
    },
    /// Neither the switch nor a relay takes a policy map over OpenFlow, according to the answer.
    PolicyAlone {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A switch accepts no bundles, or has refused one: messages are sent one by one. Reported once
    /// per connection. `None`: the switch has not answered.
    BundleRefused {
        dpid: DatapathId,
        error: Option<ErrorKind>,
        /// Whether the switch accepts bundles in general.
        takes_others: bool,
    },
    /// Another party has deleted or changed a static entry, and the controller sets it again.
    FlowMended {
        dpid: DatapathId,
        name: FlowName,
    },
    /// A static entry with a timeout has ended.
    FlowEnded {
        dpid: DatapathId,
        name: FlowName,
    },
    /// A guest is connected for a switch.
    GuestConnected {
        dpid: DatapathId,
        guest: Arc<str>,
    },
    /// The connection of a guest for a switch has ended.
    GuestDisconnected {
        dpid: DatapathId,
        guest: Arc<str>,
        why: String,
    },
    /// A difference between the administrator's topology and the network.
    TopologyDiffers(Difference),
    /// No differences are left.
    TopologyAgrees,
    /// No path over links exists between two switches, each the first of its part of the network:
    /// packets between the parts are dropped.
    NoWay {
        from: DatapathId,
        to: DatapathId,
        /// The number of parts of the network.
        parts: usize,
    },
    /// A path exists between all switches again.
    NoWayMended,
    Alarm(Alarm),
}

/// A report that only a fault or an attack explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alarm {
    DuplicateDatapath {
        dpid: DatapathId,
        connection: ConnectionId,
    },
    /// LLDP that claims to be ours and is forged, or not fresh.
    LldpForged {
        at: Location,
        why: &'static str,
    },
    /// A port that had hosts is now an end of a link: LLDP has passed for long enough, and no host
    /// has sent packets there meanwhile. `excess`: the minimum by which LLDP took longer than the
    /// control paths.
    EdgeBecameLink {
        from: Location,
        to: Location,
        excess: Option<Duration>,
    },
    /// A discovered link that the enforced topology does not name. Nothing is sent over it.
    LinkNotStated {
        from: Location,
        to: Location,
    },
    /// A link that carries LLDP and drops full-size frames with the fabric's tag. The fabric does
    /// not use it.
    LinkNarrow {
        from: Location,
        to: Location,
    },
    /// A second host claims the address of a host that is alive elsewhere.
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
    /// A host claims an address of its VLAN's gateway: its IP address, or its Ethernet address.
    GatewayClaimed {
        vlan: VlanId,
        ip: Option<IpAddr>,
        claimant: MacAddr,
        at: Location,
    },
    /// A host's ARP or neighbour discovery names another hardware address than its own.
    SenderForged {
        at: Location,
        mac: MacAddr,
        said: MacAddr,
    },
    /// The port with the most hosts has lost its oldest host, or was refused further ones.
    HostTableFull {
        at: Location,
    },
    /// The same for the IP addresses of hosts.
    HostAddressesFull {
        at: Location,
    },
    /// A port's broadcasts or multicasts have exceeded its budget for a long time.
    BroadcastStorm {
        at: Location,
    },
    /// A foreign entry takes the place of one that sends table misses or LLDP to the controller.
    ForeignInfrastructure {
        dpid: DatapathId,
    },
    /// Foreign entries match packets in the first table, before the access tables and all other
    /// tables of auster: their number, and the entry with the highest priority.
    ForeignEntries {
        dpid: DatapathId,
        count: usize,
        cookie: Cookie,
        priority: u16,
    },
    FlowTableFull {
        dpid: DatapathId,
    },
    /// A switch refuses an entry of access lists or bindings: packets that the entry should drop
    /// may pass.
    AccessRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
    FlowModRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A switch does not send a packet from a packet-out: it refuses the actions that an
    /// application has for the packet.
    PacketOutRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// No label is left for a switch with hosts. Paths from and to them are set hop by hop.
    FabricFull {
        dpid: DatapathId,
    },
    /// A switch did not take its part of the fabric; `None`: it did not report its groups. Paths
    /// from and to it are set hop by hop.
    FabricRefused {
        dpid: DatapathId,
        error: Option<ErrorKind>,
    },
    /// A switch refused a group that shares equal paths. It uses the first of them.
    FabricUnshared {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A switch refused its part of a broadcast tree. It gets a packet-out for each broadcast.
    TreeRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A switch refused a group that copies multicast. Its hosts' multicast is flooded.
    MulticastRefused {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A port of a bond has a different partner from the bond's other ports. The port carries no
    /// packets.
    BondOtherPartner {
        at: Location,
        heard: MacAddr,
    },
    /// A port of a bond is connected to another port of these switches. It carries no packets.
    BondLoop {
        at: Location,
    },
    /// The switch of a bond has no fabric, so that the bond carries no packets.
    BondUnsupported {
        at: Location,
    },
    /// A switch refused a group that shares the ports of a bond. The bond uses one port at a time.
    BondUnshared {
        dpid: DatapathId,
        error: ErrorKind,
    },
    /// A switch with mirrors has no fabric. It may not copy packets that come in, and does not
    /// close ports that get copies.
    MirrorUnsupported {
        dpid: DatapathId,
    },
    /// A port that a setting names does not exist.
    PortMissing {
        at: Location,
        setting: Setting,
    },
    /// A port that a setting treats as no end of a link leads to another switch. Settings for hosts
    /// do not apply to the port; any other setting makes the link unused.
    PortIsLink {
        at: Location,
        to: Location,
        setting: Setting,
    },
    /// A spanning tree's message has come in at a guarded port, which is closed now.
    BpduGuard {
        at: Location,
    },
    /// A DHCP server has given a host an address that another host has. The port is not bound to
    /// the claimant with this address.
    BindingTaken {
        at: Location,
        ip: Ipv4Addr,
        holder: MacAddr,
        claimant: MacAddr,
    },
    /// A port that is bound by DHCP has its maximum number of hosts. A further host is not bound.
    BindingsFull {
        at: Location,
    },
    /// Too many unknown hosts have sent packets at a guarded port, which is closed for a while.
    CrowdGuard {
        at: Location,
    },
    /// A guest cannot see a switch: packet-ins in the switch's version name no entry, and so no
    /// guest.
    GuestUnserved {
        dpid: DatapathId,
        guest: Arc<str>,
        version: Version,
    },
    /// A guest has fewer tables at a switch than its configuration says: the switch has too few.
    GuestTables {
        dpid: DatapathId,
        guest: Arc<str>,
        there: usize,
        stated: usize,
    },
    /// Auster caught a panic. The state of the switch that it was serving, if any, is reset.
    Panicked {
        dpid: Option<DatapathId>,
    },
}

impl Alarm {
    /// The kind and port of an alarm that is raised once a minute at most. `None`: each one is
    /// raised.
    pub(super) fn damped_by(&self) -> Option<(&'static str, Location)> {
        match self {
            Alarm::ForeignEntries { dpid, .. } => {
                Some(("entries", Location::new(*dpid, PortNo::ANY)))
            }
            Alarm::PacketOutRefused { dpid, .. } => {
                Some(("packet", Location::new(*dpid, PortNo::ANY)))
            }
            Alarm::LldpForged { at, .. } => Some(("lldp", *at)),
            Alarm::LinkNotStated { to, .. } => Some(("link", *to)),
            Alarm::LinkNarrow { to, .. } => Some(("narrow", *to)),
            Alarm::BondOtherPartner { at, .. } => Some(("bond partner", *at)),
            Alarm::PortMissing { at, .. } => Some(("no port", *at)),
            Alarm::PortIsLink { at, .. } => Some(("stated link", *at)),
            Alarm::BondLoop { at } => Some(("bond loop", *at)),
            Alarm::BpduGuard { at } => Some(("bpdu", *at)),
            Alarm::CrowdGuard { at } => Some(("crowd", *at)),
            Alarm::GatewayClaimed { at, .. } => Some(("gateway", *at)),
            Alarm::BindingTaken { at, .. } => Some(("binding", *at)),
            Alarm::BindingsFull { at } => Some(("bindings", *at)),
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
    /// Entries that the controller has set; those of edges and of detours are not counted.
    pub flow_count: usize,
    pub up_since: Instant,
    pub description: Option<Description>,
    /// The name of its LOCAL port, which on Open vSwitch is the bridge's.
    pub name: Option<PortName>,
    pub table: TableView,
}

/// A switch's flow table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableView {
    /// The number of all entries at the last reading. The controller reads them only if something
    /// depends on the number.
    pub entries: Option<u32>,
    pub limit: Option<u32>,
    /// Entries that are renewed as long as their flow sends.
    pub leases: usize,
    /// Coarse entries: each carries all pairs to a host from one port, in place of their own.
    pub coarse: usize,
    /// Idle and hard timeout, in seconds, of the entries that the switch's edge sets.
    pub timeouts_at_edge: Option<(u16, u16)>,
    pub counters: TableCounters,
}

/// The present timeouts, for all switches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeoutsView {
    /// The policy for pairs in no class.
    pub policy: &'static str,
    pub first_packets: &'static str,
    pub load_percent: f64,
    /// The factor by which the load makes timeouts longer.
    pub stretch: u32,
    pub leases: usize,
    /// The number of the last 1,024 set-up delays that were measured: from the request for a path,
    /// as a rule a packet-in, to the barrier after its first entry.
    pub delays: usize,
    pub delay_p50: Option<Duration>,
    pub delay_p99: Option<Duration>,
    /// All measured set-up delays.
    pub delays_all: Histogram,
}

/// A directed link. Paths use it only when its reverse exists too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkView {
    pub from: Location,
    pub to: Location,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    pub mac: MacAddr,
    pub vlan: VlanId,
    pub at: Location,
    pub ips: Vec<IpAddr>,
}

/// A VLAN, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanView {
    pub vlan: VlanId,
    pub name: Option<String>,
    /// Its hosts that are known.
    pub hosts: usize,
    /// Its packets that the controller has looked at.
    pub packet_ins: u64,
}

/// A bond, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondView {
    pub bond: Bond,
    /// The partner of its ports, by LACP.
    pub partner: Option<Partner>,
    pub ports: Vec<BondPortView>,
}

/// A port of a bond, for status tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondPortView {
    pub port: PortNo,
    pub is_collecting: bool,
    pub is_distributing: bool,
    /// Its state in LACP.
    pub lacp: Option<PortView>,
}

/// Counters of a switch's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounters {
    /// Packet-ins for which the controller has set a path that begins here.
    pub misses: u64,
    pub renewals: u64,
    /// Entries deleted to make room for others.
    pub evictions: u64,
    /// Flow-mods refused because the table was full.
    pub table_full: u64,
    /// Paths that were not set because all entries are in use.
    pub no_room: u64,
    /// Entries that a coarse one has replaced.
    pub coarsened: u64,
    /// Entries set again in place of a coarse one.
    pub refined: u64,
    /// Entries that the switch evicted by itself.
    pub put_out: u64,
    /// Reports that the room in the table has passed a mark.
    pub vacancy_events: u64,
}
