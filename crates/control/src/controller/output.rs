//! The outputs of the controller to its caller, and its counters.

use std::fmt;

use openflow::{DatapathId, Frame};

use crate::ConnectionId;
use crate::access::TABLES_MIN;
use crate::edge::EdgeUpdate;

use super::event::Event;

#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerOutput {
    Send {
        connection: ConnectionId,
        frame: Frame,
    },
    Close {
        connection: ConnectionId,
        reason: RefusedReason,
    },
    /// Call `Session::handle_probe`: another peer claims this connection's datapath id.
    Probe { connection: ConnectionId },
    /// For the connection's [`Edge`](crate::edge::Edge), in order with the messages sent to it.
    Edge {
        connection: ConnectionId,
        update: EdgeUpdate,
    },
    /// For logs and status; nothing depends on it.
    Event(Event),
}

/// Counters of work done, and of packets and messages dropped or left undone, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCounters {
    pub packet_ins: u64,
    /// Packet-ins from a port that does not exist, or is not an ordinary port.
    pub packet_ins_no_port: u64,
    /// Packet-ins that the switch truncated, so that they cannot be forwarded.
    pub packet_ins_truncated: u64,
    /// Packet-ins for applications.
    pub packet_ins_tapped: u64,
    /// Packet-ins received while the controller forwards nothing.
    pub packet_ins_not_forwarded: u64,
    /// Copies of packets that the switch has forwarded.
    pub packet_ins_copied: u64,
    /// Packet-ins from a held port when too many packets already wait.
    pub packet_ins_hold_full: u64,
    /// Packet-ins shed while too many changes were under way.
    pub packet_ins_shed_busy: u64,
    /// Packet-ins without a sender that can be a host.
    pub packet_ins_no_sender: u64,
    /// Packet-ins whose sender's place is in question, or known to be elsewhere.
    pub packet_ins_contested: u64,
    /// ARP and neighbour discovery dropped because the hardware address in the message differs from
    /// the frame's.
    pub senders_forged: u64,
    /// ARP and neighbour discovery from a host for an IP address that another host owns.
    pub address_claims: u64,
    /// Address claims that were dropped because of `arp_inspection`.
    pub address_claims_dropped: u64,
    /// Packet-ins received while the host table, or the port's share of it, was full.
    pub packet_ins_host_table_full: u64,
    /// Broadcasts received over a link.
    pub packet_ins_broadcast_on_link: u64,
    /// Packet-ins to addresses that no bridge forwards (802.1D, CDP).
    pub packet_ins_link_local: u64,
    /// Packet-ins from a port over its budget of new paths and of packets without a path.
    pub packet_ins_detour_limited: u64,
    /// Packets received over a link without an entry, beyond the number that the controller
    /// carries.
    pub packet_ins_half_way_limited: u64,
    pub flooded: u64,
    /// Flooded packets that were sent along a tree of the fabric.
    pub flooded_by_tree: u64,
    /// The packet-outs for all flooded packets.
    pub flood_packet_outs: u64,
    /// Broadcasts received at another edge port just after they were sent.
    pub flood_echoes: u64,
    /// Questions for addresses that the controller answered in place of their hosts.
    pub questions_answered: u64,
    /// Questions for addresses dropped because the same question was flooded a moment ago.
    pub questions_repeated: u64,
    /// Broadcasts over the port's budget.
    pub flood_limited: u64,
    /// Broadcasts over the switch's budget or over the budget shared by all.
    pub flood_limited_shared: u64,
    /// Packets without a path to their destination.
    pub unreachable: u64,
    /// Packets to a host in another part of the network.
    pub packets_no_way: u64,
    /// Packet-ins from unknown senders, or broadcasts, at a port that LLDP claims is not an edge.
    pub packet_ins_claimed: u64,
    /// Packets of a VLAN that does not include their port, or the port to which they were
    /// addressed.
    pub packets_vlan_refused: u64,
    /// Packets at ports of bonds that carry no packets.
    pub packets_bond_closed: u64,
    /// LACP messages that cannot be read, or that arrived too fast.
    pub lacp_refused: u64,
    /// Messages of DHCP clients in another host's name, or unreadable, at ports bound by DHCP.
    pub dhcp_refused: u64,
    /// Messages of spanning trees.
    pub bpdus: u64,
    /// Packets between VLANs that the controller has forwarded.
    pub packets_routed: u64,
    /// Packets to a gateway that are malformed, that no router forwards, or that did not reach
    /// their next hop.
    pub packets_unrouted: u64,
    /// Such packets whose sender was not informed, because of its port's budget.
    pub icmp_limited: u64,
    /// Messages about multicast membership that are malformed or cannot come from a host.
    pub memberships_refused: u64,
    pub lldp_sent: u64,
    pub lldp_accepted: u64,
    pub lldp_foreign: u64,
    pub lldp_refused: u64,
    /// LLDP frames of our own that arrived too late to prove anything.
    pub lldp_late: u64,
    pub lldp_limited: u64,
    pub flow_mods: u64,
    pub packet_outs: u64,
    /// Packets of forbidden pairs dropped by the controller, and by entries that have ended.
    pub packets_forbidden: u64,
    pub paths_installed: u64,
    pub paths_rerouted: u64,
    /// Paths that moved during a pause of their packets.
    pub paths_moved_in_pause: u64,
    /// Paths that moved under traffic because the wait for a pause was over.
    pub paths_moved_under_traffic: u64,
    pub path_table_full: u64,
    /// Paths not set because the requesting port, or its switch, has used up its share.
    pub paths_over_share: u64,
    /// Paths not set because the port requested too many in a second.
    pub paths_limited: u64,
    /// Paths not set because one of their switches had too much to confirm. Their packets go to the
    /// controller.
    pub paths_put_off: u64,
    /// Stages followed by the next stage without a switch's confirmation: the switch refused the
    /// barrier, or did not answer it in time.
    pub stages_unconfirmed: u64,
    /// Changes that a switch has carried out as a whole.
    pub bundles_committed: u64,
    /// Changes sent message by message, because the switch refused or ignored the bundle.
    pub bundles_refused: u64,
    /// Messages that resolve an address, held until the entries were in place.
    pub resolutions_held: u64,
    /// Messages that resolve an address, not held because too many were held already.
    pub resolutions_hold_full: u64,
    /// Held messages forwarded before everything was confirmed.
    pub resolutions_timed_out: u64,
    /// Frames that belong to no connection of ours, or are unreadable.
    pub frames_ignored: u64,
    /// Replies that match no request of ours.
    pub unsolicited: u64,
    /// Messages too long, or without a form in the switch's version.
    pub unencodable: u64,
    pub errors_received: u64,
    /// Connections closed because the switch had too many ports.
    pub too_many_ports: u64,
    /// Rows of flow statistics that could not be read.
    pub rows_unreadable: u64,
    /// Groups and entries of the fabric that a switch had when it connected, and that were deleted:
    /// nothing would set them now.
    pub fabric_parts_wrong: u64,
    /// Panics that were caught ([`super::Controller::handle_panicked`]).
    pub panics: u64,
    /// Alarms not raised because the same kind was raised at the same port in the same minute.
    pub alarms_damped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// A live connection has this datapath id. The controller keeps that connection and probes it.
    DuplicateDatapath {
        dpid: DatapathId,
    },
    /// The certificate is bound to another switch.
    IdentityMismatch {
        dpid: DatapathId,
        certified: DatapathId,
    },
    /// The certificate is a controller's.
    NotASwitch,
    /// An auxiliary connection; only main ones are served.
    Auxiliary,
    TooManySwitches,
    /// [`super::ControllerConfig::port_count_max`] is reached.
    TooManyPorts,
    /// The switch cannot hold the access lists or bindings that concern its ports.
    NoAccess,
    /// The first access lists or bindings were added, or the last ones removed: the switch's tables
    /// get other numbers.
    OtherTables,
    /// The switch supports no roles, so members of a cluster cannot share it, and another member
    /// serves it.
    NoRoles,
    /// The switch has not answered the commit of a bundle, so its entries are unknown.
    CommitUnanswered,
    /// Someone else has deleted entries that every switch has, and perhaps all entries.
    Emptied,
    /// Auster panicked while it served this switch. The switch's state is built afresh.
    Fault,
}

impl fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusedReason::DuplicateDatapath { dpid } => {
                write!(f, "{dpid} is connected already; the older connection stays")
            }
            RefusedReason::IdentityMismatch { dpid, certified } => {
                write!(f, "says it is {dpid}, but its certificate is {certified}'s")
            }
            RefusedReason::NotASwitch => f.write_str("its certificate is a controller's"),
            RefusedReason::Auxiliary => f.write_str("auxiliary connections are not served"),
            RefusedReason::TooManySwitches => f.write_str("the limit of switches is reached"),
            RefusedReason::TooManyPorts => f.write_str("more ports than are allowed"),
            RefusedReason::NoAccess => write!(
                f,
                "access lists or bindings concern it, which need OpenFlow 1.3, groups and \
                 {TABLES_MIN} tables",
            ),
            RefusedReason::OtherTables => {
                f.write_str("its tables get other numbers; it connects again")
            }
            RefusedReason::NoRoles => f.write_str(
                "another member of the cluster serves it, and it knows no roles, as OpenFlow 1.0",
            ),
            RefusedReason::CommitUnanswered => f.write_str(
                "it has not answered the commit of a bundle; its entries are compared anew",
            ),
            RefusedReason::Emptied => f.write_str(
                "somebody else has deleted auster's entries there; it connects again, and they are \
                 set anew",
            ),
            RefusedReason::Fault => f.write_str("a fault of auster while it was served"),
        }
    }
}
