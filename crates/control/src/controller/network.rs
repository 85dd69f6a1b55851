//! The network as far as it is known: switches, ports, links, and the administrator's statements.
//!
//! All machines read it. The controller changes it where a switch connects or leaves, and
//! discovery ([`super::discovery`]) where ports and links change.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::message::{Port, PortName};
use openflow::multipart::Description;
use openflow::{DatapathId, MacAddr, PortNo, Version};

use crate::bond::Bonds;
use crate::mirror::Mirrors;
use crate::session::SwitchUp;
use crate::topology::Topology;
use crate::{ConnectionId, Location};

use super::config::{ControllerConfig, LinkPolicy};
use super::links::{Links, Pair};
use super::named::Setting;
use super::parts::Parts;
use super::port_state::{Ends, PortRole, PortState, Stated};

/// How long entries of unheard hosts are kept after their switch connected: the host's own switch
/// may not be connected yet.
pub(super) const ADOPTED_KEPT: Duration = Duration::from_secs(30);

pub(super) struct Network {
    pub links: Links,
    pub parts: Parts,
    switches: BTreeMap<DatapathId, Switch>,
    /// Hardware addresses of switch ports: no evidence of a host.
    port_addresses: BTreeMap<MacAddr, DatapathId>,
    /// The administrator's description of the network.
    topology: Option<Topology>,
    edge_ports: BTreeSet<Location>,
    bonds: Arc<Bonds>,
    mirrors: Arc<Mirrors>,
    /// The places of bonds with a port that carries packets.
    open_bonds: BTreeSet<Location>,
    /// Ports that are closed to hosts.
    closed: BTreeSet<Location>,
    link_policy: LinkPolicy,
    /// Counts changes that may change the role of a port, or which switches are connected.
    revision: u64,
}

pub(super) struct Switch {
    pub dpid: DatapathId,
    /// `None` during the switch's grace.
    pub connection: Option<ConnectionId>,
    pub version: Version,
    pub up_since: Instant,
    pub down_since: Option<Instant>,
    /// Whether its entries have been compared since it connected.
    pub synced: bool,
    /// Whether the switch must reconnect because someone has deleted entries that it needs.
    is_emptied: bool,
    pub description: Option<Description>,
    /// The name of its LOCAL port, which on Open vSwitch is the bridge's name.
    pub name: Option<PortName>,
    pub ports: BTreeMap<PortNo, SwitchPort>,
}

#[derive(Clone)]
pub(super) struct SwitchPort {
    pub hw_addr: MacAddr,
    pub name: PortName,
    /// In kbit/s; 0 if the switch does not report it.
    pub speed_kbit: u32,
    pub state: PortState,
}

impl Switch {
    pub(super) fn is_open_vswitch(&self) -> bool {
        let hardware = self.description.as_ref().map(|d| &d.hardware[..]);
        hardware == Some(b"Open vSwitch")
    }
}

impl Network {
    pub(super) fn new(config: &ControllerConfig) -> Network {
        Network {
            links: Links::default(),
            parts: Parts::default(),
            switches: BTreeMap::new(),
            port_addresses: BTreeMap::new(),
            topology: config.topology.clone(),
            edge_ports: config.edge_ports.clone(),
            bonds: Arc::new(config.bonds.clone()),
            mirrors: Arc::default(),
            open_bonds: BTreeSet::new(),
            closed: BTreeSet::new(),
            link_policy: config.links,
            revision: 0,
        }
    }

    /// A number that changes whenever the roles of ports or the set of connected switches may have
    /// changed. Together with [`Links::revision`] it covers all such changes.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn switch(&self, dpid: DatapathId) -> Option<&Switch> {
        self.switches.get(&dpid)
    }

    pub(super) fn switches(&self) -> impl Iterator<Item = &Switch> {
        self.switches.values()
    }

    pub(super) fn switches_in(
        &self,
        dpids: impl RangeBounds<DatapathId>,
    ) -> impl Iterator<Item = &Switch> {
        self.switches.range(dpids).map(|(_, switch)| switch)
    }

    pub(super) fn dpids(&self) -> Vec<DatapathId> {
        self.switches.keys().copied().collect()
    }

    pub(super) fn switch_count(&self) -> usize {
        self.switches.len()
    }

    pub(super) fn knows(&self, dpid: DatapathId) -> bool {
        self.switches.contains_key(&dpid)
    }

    pub(super) fn connected(&self) -> impl Iterator<Item = &Switch> {
        let switches = self.switches.values();
        switches.filter(|switch| switch.connection.is_some())
    }

    pub(super) fn is_connected(&self, dpid: DatapathId) -> bool {
        let switch = self.switches.get(&dpid);
        switch.is_some_and(|switch| switch.connection.is_some())
    }

    pub(super) fn is_synced(&self, dpid: DatapathId) -> bool {
        self.switches.get(&dpid).is_some_and(|switch| switch.synced)
    }

    /// Whether the switch connected so recently that earlier hosts and other switches may still
    /// return.
    pub(super) fn is_young(&self, now: Instant, dpid: DatapathId) -> bool {
        let known = self.switch(dpid);
        known.is_some_and(|known| now.since(known.up_since) < ADOPTED_KEPT)
    }

    pub(super) fn version(&self, dpid: DatapathId) -> Option<Version> {
        self.switches.get(&dpid).map(|switch| switch.version)
    }

    pub(super) fn port(&self, at: Location) -> Option<&SwitchPort> {
        self.switches.get(&at.dpid)?.ports.get(&at.port)
    }

    pub(super) fn is_up(&self, at: Location) -> bool {
        self.port(at).is_some_and(|port| port.state.is_up())
    }

    /// Whether hosts at a place may still be there.
    pub(super) fn is_open(&self, at: Location) -> bool {
        match self.bonds.contains(at) {
            true => self.open_bonds.contains(&at),
            false => self.is_up(at) && !self.closed.contains(&at),
        }
    }

    /// Replaces the bonds. Changed bonds start without a port that carries packets.
    pub(super) fn set_bonds(&mut self, bonds: Arc<Bonds>) {
        self.revision += 1;
        self.open_bonds
            .retain(|at| bonds.of(*at) == self.bonds.of(*at));
        self.bonds = bonds;
    }

    /// Replaces the mirrors. Ports that receive copies are not ends of links.
    pub(super) fn set_mirrors(&mut self, mirrors: Arc<Mirrors>) {
        self.revision += 1;
        self.mirrors = mirrors;
    }

    /// Whether packets that leave by a port are copied to another.
    pub(super) fn copies_out(&self, at: Location) -> bool {
        self.mirrors.copies_out(at)
    }

    /// Notes whether a bond has a port that carries packets.
    pub(super) fn set_bond_open(&mut self, place: Location, is_open: bool) {
        self.revision += 1;
        match is_open {
            true => self.open_bonds.insert(place),
            false => self.open_bonds.remove(&place),
        };
    }

    /// The ports of a switch that are closed to hosts.
    pub(super) fn closed_of(&self, dpid: DatapathId) -> impl Iterator<Item = PortNo> {
        let at = |port| Location { dpid, port };
        let closed = self.closed.range(at(PortNo(0))..=at(PortNo(u32::MAX)));
        closed.map(|at| at.port)
    }

    /// Closes a port to hosts, or opens it.
    pub(super) fn set_closed(&mut self, at: Location, is_closed: bool) {
        self.revision += 1;
        match is_closed {
            true => self.closed.insert(at),
            false => self.closed.remove(&at),
        };
    }

    /// Whether a port of a switch has this hardware address.
    pub(super) fn is_port_address(&self, mac: MacAddr) -> bool {
        self.port_addresses.contains_key(&mac)
    }

    /// The place of a port: that of its bond, or its own.
    pub(super) fn place(&self, at: Location) -> Location {
        self.bonds.place(at)
    }

    pub(super) fn is_bonded(&self, at: Location) -> bool {
        self.bonds.contains(at)
    }

    /// The role of a port. A bond has one role at its place, and its other ports have none.
    pub(super) fn role(&self, at: Location) -> PortRole {
        if self.closed.contains(&at) {
            return PortRole::Gone;
        }
        match (self.bonds.contains(at), self.open_bonds.contains(&at)) {
            (true, true) => PortRole::Edge,
            (true, false) => PortRole::Gone,
            (false, _) => self.role_of_port(at),
        }
    }

    /// The ports of a switch that have a role.
    pub(super) fn ports_with(&self, dpid: DatapathId, role: PortRole) -> Vec<Location> {
        let ports = self.switch(dpid).into_iter().flat_map(|it| it.ports.keys());
        let all = ports.map(|port| Location { dpid, port: *port });
        all.filter(|at| self.role(*at) == role).collect()
    }

    /// The role of a port by itself.
    pub(super) fn role_of_port(&self, at: Location) -> PortRole {
        let Some(port) = self.port(at) else {
            return PortRole::Gone;
        };
        port.state.role(self.links.ends(at), self.stated(at))
    }

    /// Whether a switch was ever found behind the port since it came up.
    pub(super) fn is_end(&self, at: Location) -> bool {
        let was_link = self.port(at).is_some_and(|port| port.state.was_link());
        was_link || self.links.ends(at) != Ends::default()
    }

    pub(super) fn is_stated_edge(&self, at: Location) -> bool {
        self.edge_setting(at).is_some()
    }

    /// The setting that keeps a port from being an end of a link.
    pub(super) fn edge_setting(&self, at: Location) -> Option<Setting> {
        let settings = [
            (self.edge_ports.contains(&at), Setting::EdgePorts),
            (self.bonds.contains(at), Setting::Bond),
            (self.mirrors.is_target(at), Setting::MirrorTo),
        ];
        let named = settings.into_iter().find(|(is_named, _)| *is_named);
        named.map(|(_, setting)| setting)
    }

    fn stated(&self, at: Location) -> Stated {
        if self.is_stated_edge(at) {
            Stated::Edge
        } else if self.enforces_links() && self.says_end(at) {
            Stated::LinkEnd
        } else {
            Stated::Nothing
        }
    }

    /// Whether only links of the administrator's topology are used.
    pub(super) fn enforces_links(&self) -> bool {
        self.link_policy == LinkPolicy::Enforce
    }

    pub(super) fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// Whether the topology names this host's place.
    pub(super) fn names(&self, mac: MacAddr) -> bool {
        self.topology.as_ref().is_some_and(|t| t.has_host(mac))
    }

    /// Whether the topology has a cable between these ports.
    pub(super) fn says_link(&self, a: Location, b: Location) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(|t| t.has_link(a, b))
    }

    /// Whether the topology has a cable that ends at this port.
    fn says_end(&self, at: Location) -> bool {
        self.topology.as_ref().is_some_and(|t| t.has_end(at))
    }

    /// Whether the topology names the places of both hosts, so that their entries need no packet.
    pub(super) fn says_both(&self, (src, dst): Pair) -> bool {
        let topology = self.topology.as_ref();
        topology.is_some_and(|t| t.has_host(src) && t.has_host(dst))
    }

    /// Sets the link policy, and the ports that are edges.
    pub(super) fn set_stated(&mut self, links: LinkPolicy, edge_ports: BTreeSet<Location>) {
        self.revision += 1;
        (self.link_policy, self.edge_ports) = (links, edge_ports);
    }

    pub(super) fn set_topology(&mut self, topology: Option<Topology>) {
        self.revision += 1;
        self.topology = topology;
    }

    /// Notes that a switch has connected. Its entries are unknown.
    pub(super) fn handle_up(&mut self, now: Instant, connection: ConnectionId, up: &SwitchUp) {
        self.revision += 1;
        self.links.forget_paths();
        let dpid = up.features.datapath_id;
        let ports = match self.switches.remove(&dpid) {
            Some(known) => known.ports,
            None => BTreeMap::new(),
        };
        let switch = Switch {
            dpid,
            connection: Some(connection),
            version: up.version,
            up_since: now,
            down_since: None,
            synced: false,
            is_emptied: false,
            description: up.description.clone(),
            name: up
                .ports
                .iter()
                .find(|p| p.port_no == PortNo::LOCAL)
                .map(|p| p.name),
            ports,
        };
        self.switches.insert(dpid, switch);
    }

    /// Notes that a switch's connection has ended. Returns whether there is such a switch.
    pub(super) fn handle_down(&mut self, now: Instant, dpid: DatapathId) -> bool {
        self.revision += 1;
        self.links.forget_paths();
        let Some(switch) = self.switches.get_mut(&dpid) else {
            return false;
        };
        switch.connection = None;
        switch.synced = false;
        switch.down_since = Some(now);
        true
    }

    /// Ends the use of a switch's connection. Returns the connection.
    pub(super) fn take_connection(&mut self, dpid: DatapathId) -> Option<ConnectionId> {
        self.revision += 1;
        self.links.forget_paths();
        self.switches.get_mut(&dpid)?.connection.take()
    }

    /// Restarts the grace of all switches without a connection. Returns these switches.
    pub(super) fn restart_graces(&mut self, now: Instant) -> Vec<DatapathId> {
        let away = self.switches.values_mut();
        let away = away.filter(|switch| switch.connection.is_none());
        let away = away.map(|switch| {
            switch.down_since = Some(now);
            switch.dpid
        });
        away.collect()
    }

    /// Notes that a switch's entries have been compared.
    pub(super) fn handle_synced(&mut self, dpid: DatapathId) {
        if let Some(switch) = self.switches.get_mut(&dpid) {
            switch.synced = true;
        }
    }

    /// Notes that someone has deleted entries that a switch needs. Returns its connection the first
    /// time.
    pub(super) fn note_emptied(&mut self, dpid: DatapathId) -> Option<ConnectionId> {
        let switch = self.switches.get_mut(&dpid)?;
        let is_known = std::mem::replace(&mut switch.is_emptied, true);
        switch.connection.filter(|_| !is_known)
    }

    /// Forgets a switch, and returns its state.
    pub(super) fn forget(&mut self, dpid: DatapathId) -> Option<Switch> {
        self.revision += 1;
        self.links.forget_paths();
        let switch = self.switches.remove(&dpid)?;
        self.port_addresses.retain(|_, of| *of != dpid);
        Some(switch)
    }

    pub(super) fn port_mut(&mut self, at: Location) -> Option<&mut SwitchPort> {
        self.revision += 1;
        self.known_port(at)
    }

    /// A port, for changes that do not affect its role.
    fn known_port(&mut self, at: Location) -> Option<&mut SwitchPort> {
        self.switches.get_mut(&at.dpid)?.ports.get_mut(&at.port)
    }

    /// Notes a port as its switch describes it. `fresh` makes the state of a port that was not
    /// known.
    pub(super) fn set_port(
        &mut self,
        at: Location,
        described: &Port,
        fresh: impl FnOnce() -> PortState,
    ) -> Option<&mut SwitchPort> {
        self.revision += 1;
        let switch = self.switches.get_mut(&at.dpid)?;
        let hw_addr = described.hw_addr;
        let port = switch.ports.entry(at.port).or_insert_with(|| SwitchPort {
            hw_addr,
            name: described.name,
            speed_kbit: described.curr_speed,
            state: fresh(),
        });
        port.name = described.name;
        port.speed_kbit = described.curr_speed;
        let former = std::mem::replace(&mut port.hw_addr, hw_addr);
        self.port_addresses.remove(&former);
        self.port_addresses.insert(hw_addr, at.dpid);
        Some(port)
    }

    pub(super) fn remove_port(&mut self, at: Location) -> Option<SwitchPort> {
        self.revision += 1;
        let port = self.switches.get_mut(&at.dpid)?.ports.remove(&at.port)?;
        self.port_addresses.remove(&port.hw_addr);
        Some(port)
    }

    /// Notes that a host was accepted at a port.
    pub(super) fn handle_host(&mut self, now: Instant, at: Location) {
        if let Some(port) = self.known_port(at) {
            port.state.handle_host(now);
        }
    }

    /// Notes that entries of an earlier process name a host at a port.
    pub(super) fn handle_told(&mut self, at: Location) {
        if let Some(port) = self.known_port(at) {
            port.state.handle_told();
        }
    }
}
