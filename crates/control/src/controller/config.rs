//! The settings of the controller.

use std::collections::{BTreeMap, BTreeSet};

use clock::Duration;
use sched::PolicyMap;

use crate::Location;
use crate::access::Access;
use crate::bond::{Bonds, Bpdu};
use crate::fabric::Label;
use crate::guest::Guest;
use crate::mirror::Mirrors;
use crate::multicast::{self, QuerierAddresses};
use crate::requests::RequestLimits;
use crate::routing::Gateways;
use crate::timeouts::Timeouts;
use crate::topology::Topology;
use crate::vlan::Vlans;

/// When flow entries are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// An entry per pair of hosts and hop when the pair's first packet arrives; idle entries
    /// expire.
    #[default]
    Reactive,
    /// One entry per host on every switch, as soon as the host is known.
    Proactive,
    /// Proactive between switches, reactive at the edge: one flow-mod per new pair.
    Hybrid,
}

/// The choice of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPolicy {
    /// All links that LLDP proves.
    #[default]
    Discover,
    /// The proven links that the administrator's topology has. Any other link raises an alarm.
    Enforce,
}

#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Whether auster forwards packets. Otherwise switches get only the entry for LLDP: an
    /// application beside auster forwards.
    pub is_forwarding: bool,
    pub mode: Mode,
    /// The timeouts of entries between two hosts.
    pub timeouts: Timeouts,
    /// Time between two LLDP frames to the same port, while none is missing. A link is removed when
    /// ten frames in a row were certainly lost: about three intervals.
    pub lldp_interval: Duration,
    /// How long a new port neither learns nor is flooded to, so that discovery is first.
    pub port_hold: Duration,
    /// How long the links and paths of a switch outlive its connection.
    pub switch_grace: Duration,
    /// Broadcasts and packets to unknown hosts that one port may have flooded, per second.
    pub flood_rate_max: u32,
    /// Cost limit of all broadcasts, in packet-outs per second: each broadcast costs one for every
    /// switch. One switch may use half of it, one port a quarter.
    pub flood_packet_outs_max: u32,
    pub switch_count_max: usize,
    /// Maximum number of ports of one switch. One port more closes the switch's connection, at any
    /// time.
    pub port_count_max: usize,
    /// Maximum number of hosts. Each takes twenty bytes, and at most ten for the index.
    pub host_count_max: usize,
    /// Maximum number of hosts of one switch, so that neither a switch nor a port fills the table.
    /// Hosts whose port has gone down count too.
    pub hosts_per_switch_max: u32,
    pub hosts_per_port_max: u32,
    /// How long a silent host is kept. Then it is forgotten if no path leads to it and it does not
    /// answer a request. At most two days.
    pub host_idle: Duration,
    /// Maximum number of pairs of hosts that have a path of their own: in all, begun by hosts of
    /// one switch, and begun by hosts of one port.
    pub path_count_max: usize,
    pub paths_per_switch_max: usize,
    pub paths_per_port_max: usize,
    /// New paths that the hosts of one port may begin per second. The controller carries up to
    /// 5,000 other packets a second.
    pub path_rate_max: u32,
    pub requests: RequestLimits,
    /// Whether messages that belong together are sent as a bundle to a switch that accepts bundles.
    pub has_bundles: bool,
    /// The policy map for relays beside the switches. Without one, the controller asks no switch
    /// for a relay.
    pub policy: Option<PolicyMap>,
    /// The administrator's description of the network.
    pub topology: Option<Topology>,
    pub links: LinkPolicy,
    /// Ports that are never ends of a link: no LLDP goes out of them and none is believed.
    pub edge_ports: BTreeSet<Location>,
    /// Whether the controller drops ARP and neighbour discovery that claim another host's IP
    /// address. All such messages then pass through it.
    pub arp_inspection: bool,
    /// Forwarding by labels, on the switches that can. Needs reactive mode.
    pub fabric: Option<FabricConfig>,
    /// The VLANs of the ports. They need the fabric.
    pub vlans: Vlans,
    /// Ports that are used as one. They need the fabric.
    pub bonds: Bonds,
    /// Copies of ports' packets. They need the fabric.
    pub mirrors: Mirrors,
    /// The effect of a spanning tree's messages at ports; any other port drops them.
    pub bpdus: BTreeMap<Location, Bpdu>,
    /// Ports that a crowd of new hosts closes for a while. They need the fabric.
    pub crowd_guards: BTreeSet<Location>,
    /// Multicast to the ports of members only. Needs the fabric.
    pub multicast: Option<MulticastConfig>,
    /// Access lists and bindings. They need OpenFlow 1.3.
    pub access: Access,
    /// The gateways of VLANs, between which packets are routed.
    pub gateways: Gateways,
    /// Other controllers that see switches through this one.
    pub guests: Vec<Guest>,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        ControllerConfig {
            is_forwarding: true,
            mode: Mode::Reactive,
            timeouts: Timeouts::default(),
            lldp_interval: Duration::from_secs(1),
            port_hold: Duration::from_millis(600),
            switch_grace: Duration::from_secs(5),
            flood_rate_max: 500,
            flood_packet_outs_max: 30_000,
            switch_count_max: 10_000,
            port_count_max: 4096,
            host_count_max: 2_097_152,
            hosts_per_switch_max: 524_288,
            hosts_per_port_max: 131_072,
            host_idle: Duration::from_secs(4 * 3600),
            path_count_max: 262_144,
            paths_per_switch_max: 131_072,
            paths_per_port_max: 65_536,
            path_rate_max: 2000,
            requests: RequestLimits::default(),
            has_bundles: false,
            policy: None,
            topology: None,
            links: LinkPolicy::default(),
            edge_ports: BTreeSet::new(),
            arp_inspection: false,
            fabric: None,
            vlans: Vlans::default(),
            bonds: Bonds::default(),
            mirrors: Mirrors::default(),
            bpdus: BTreeMap::new(),
            crowd_guards: BTreeSet::new(),
            multicast: None,
            access: Access::default(),
            gateways: Gateways::default(),
            guests: Vec::new(),
        }
    }
}

/// How members of multicast groups are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MulticastConfig {
    pub snooping: multicast::Config,
    /// The addresses from which the controller asks for members. `None`: a router asks.
    pub querier: Option<QuerierAddresses>,
    /// The ports that may have routers behind them: a router receives all groups. `None`: all.
    pub router_ports: Option<BTreeSet<Location>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// The EtherType of the tag that carries a label.
    pub tag: u16,
    /// Whether conversations share equal shortest paths. Otherwise the first path takes all
    /// conversations.
    pub shares: bool,
    /// Maximum number of switches with hosts. Paths from and to further ones are set hop by hop.
    pub egress_count_max: usize,
    /// Number of routes that one change computes, each from a switch to an egress; at least the
    /// routes of one egress. The next change computes further routes, so that no change holds up
    /// packets for long.
    pub routes_at_once: usize,
}

impl Default for FabricConfig {
    fn default() -> FabricConfig {
        FabricConfig {
            tag: 0x8100,
            shares: true,
            egress_count_max: usize::from(Label::MAX.0),
            routes_at_once: 1 << 16,
        }
    }
}
