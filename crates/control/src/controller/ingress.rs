//! Packet-ins before they are examined: the budgets of each port, the flows that datapaths may have
//! kept for it, and whether its edge answers for it.

mod cached;
mod echo;
mod flood;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use clock::{Budget, Duration, Instant};
use openflow::{DatapathId, PortNo};

use crate::Location;

use super::config::ControllerConfig;
pub(super) use cached::{Inlets, outlasts_flows};
use echo::Echoes;
pub(super) use flood::Flooding;
use flood::{EdgePorts, PORT_PART, SWITCH_PART, Storm, packet_out_budget};

/// Packets of one port that the controller carries each second while the port's new paths are over
/// their budget.
const DETOUR_PER_S: u32 = 5000;

/// Packets without an entry that arrive over a link, and that the controller carries each second. A
/// link carries such packets from many hosts: after a restart, or while tables are full.
const HALF_WAY_PER_S: u32 = 25_000;
const HALF_WAY_BURST: u32 = 5000;

/// ICMP errors sent each second to the hosts of one port (RFC 1812, 4.3.2.8; RFC 4443, 2.4).
const ICMP_PER_S: u32 = 100;
const ICMP_BURST: u32 = 20;

/// Minimum time between two alarms about forged senders at one port.
const FORGED_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct Ingress {
    switches: BTreeMap<DatapathId, IngressSwitch>,
    /// The budget of all broadcasts.
    flood_packet_outs: Budget,
    storm_alarms: Budget,
    /// The number of the last broadcast.
    flood_number: u32,
    echoes: Echoes,
    flood_rate_max: u32,
    flood_packet_outs_max: u32,
    path_rate_max: u32,
}

struct IngressSwitch {
    /// Boxed: a map takes room for eleven values, and many switches have few ports.
    ports: BTreeMap<PortNo, Box<IngressPort>>,
    /// The budget of broadcasts from its ports.
    flood_packet_outs: Budget,
    /// Cached until something changes.
    edge_ports: Option<EdgePorts>,
    /// Until when any port may have kept flows that the entries would not make.
    kept_until: Instant,
}

struct IngressPort {
    /// The budgets of broadcasts from here, and of the packet-outs that they cost.
    flood_budget: Budget,
    flood_packet_outs: Budget,
    storm: Storm,
    /// The budget of new paths that begin here.
    path_budget: Budget,
    /// The budget of packets from here that the controller carries because `path_budget` is used
    /// up.
    detour_budget: Budget,
    /// The budget of packets that arrived over a link and that the controller carries.
    half_way_budget: Budget,
    /// The budget of ICMP errors to hosts here.
    icmp_budget: Budget,
    /// When the last alarm about a forged sender here was raised.
    forged_at: Option<Instant>,
    /// Until when packets from here may have a kept flow that the switch's entries would not make.
    kept_until: Instant,
    /// Whether the switch's edge answers for the port.
    edge_open: bool,
}

impl Ingress {
    pub(super) fn new(config: &ControllerConfig, seed: u64) -> Ingress {
        let packet_outs_max = config.flood_packet_outs_max;
        Ingress {
            switches: BTreeMap::new(),
            flood_packet_outs: packet_out_budget(Instant::START, packet_outs_max, 1),
            storm_alarms: Budget::new(Instant::START, 1, 10),
            flood_number: 0,
            echoes: Echoes::new(seed),
            flood_rate_max: config.flood_rate_max,
            flood_packet_outs_max: packet_outs_max,
            path_rate_max: config.path_rate_max,
        }
    }

    /// Replaces the rates. Budgets whose rate has changed start full.
    pub(super) fn set_rates(&mut self, now: Instant, config: &ControllerConfig) {
        let before = (self.flood_rate_max, self.flood_packet_outs_max);
        let before = (before.0, before.1, self.path_rate_max);
        let (flood, packet_outs) = (config.flood_rate_max, config.flood_packet_outs_max);
        let of_paths = config.path_rate_max;
        if before == (flood, packet_outs, of_paths) {
            return;
        }
        (self.flood_rate_max, self.flood_packet_outs_max) = (flood, packet_outs);
        self.path_rate_max = of_paths;
        if before.1 != packet_outs {
            self.flood_packet_outs = packet_out_budget(now, packet_outs, 1);
        }
        for switch in self.switches.values_mut() {
            if before.1 != packet_outs {
                switch.flood_packet_outs = packet_out_budget(now, packet_outs, SWITCH_PART);
            }
            for port in switch.ports.values_mut() {
                if before.0 != flood {
                    port.flood_budget = Budget::new(now, flood, flood.max(1));
                }
                if before.1 != packet_outs {
                    port.flood_packet_outs = packet_out_budget(now, packet_outs, PORT_PART);
                }
                if before.2 != of_paths {
                    port.path_budget = Budget::new(now, of_paths, of_paths.max(1));
                }
            }
        }
    }

    pub(super) fn handle_up(&mut self, now: Instant, dpid: DatapathId) {
        let packet_outs_max = self.flood_packet_outs_max;
        let fresh = || IngressSwitch {
            ports: BTreeMap::new(),
            flood_packet_outs: packet_out_budget(now, packet_outs_max, SWITCH_PART),
            edge_ports: None,
            kept_until: Instant::START,
        };
        self.switches.entry(dpid).or_insert_with(fresh);
    }

    pub(super) fn forget(&mut self, dpid: DatapathId) {
        self.switches.remove(&dpid);
    }

    /// Notes that a port was reported, or removed.
    pub(super) fn handle_port(&mut self, now: Instant, at: Location, is_there: bool) {
        let (flood, of_paths) = (self.flood_rate_max, self.path_rate_max);
        let packet_outs_max = self.flood_packet_outs_max;
        let Some(switch) = self.switches.get_mut(&at.dpid) else {
            return;
        };
        switch.edge_ports = None;
        if !is_there {
            switch.ports.remove(&at.port);
            return;
        }
        let fresh = || {
            Box::new(IngressPort {
                flood_budget: Budget::new(now, flood, flood.max(1)),
                flood_packet_outs: packet_out_budget(now, packet_outs_max, PORT_PART),
                storm: Storm::default(),
                path_budget: Budget::new(now, of_paths, of_paths.max(1)),
                detour_budget: Budget::new(now, DETOUR_PER_S, DETOUR_PER_S),
                half_way_budget: Budget::new(now, HALF_WAY_PER_S, HALF_WAY_BURST),
                icmp_budget: Budget::new(now, ICMP_PER_S, ICMP_BURST),
                forged_at: None,
                kept_until: Instant::START,
                edge_open: false,
            })
        };
        switch.ports.entry(at.port).or_insert_with(fresh);
    }

    fn port_mut(&mut self, at: Location) -> Option<&mut IngressPort> {
        let switch = self.switches.get_mut(&at.dpid)?;
        switch.ports.get_mut(&at.port).map(Box::as_mut)
    }

    /// Whether a new path may begin at this port. A port that was removed has no limit.
    pub(super) fn may_begin_path(&mut self, now: Instant, at: Location) -> bool {
        let port = self.port_mut(at);
        port.is_none_or(|port| port.path_budget.take(now))
    }

    /// Whether the controller may carry one more packet for a port whose new paths exceed its
    /// budget.
    pub(super) fn may_detour(&mut self, now: Instant, at: Location) -> bool {
        let port = self.port_mut(at);
        port.is_some_and(|port| port.detour_budget.take(now))
    }

    /// Whether the controller may carry one more packet that arrived over the link at this port.
    pub(super) fn may_carry_half_way(&mut self, now: Instant, at: Location) -> bool {
        let port = self.port_mut(at);
        port.is_some_and(|port| port.half_way_budget.take(now))
    }

    /// Whether the hosts at this port may be sent one more ICMP error.
    pub(super) fn may_report(&mut self, now: Instant, at: Location) -> bool {
        let port = self.port_mut(at);
        port.is_some_and(|port| port.icmp_budget.take(now))
    }

    /// Notes a forged sender at a port. Returns whether to raise an alarm.
    pub(super) fn handle_forged(&mut self, now: Instant, at: Location) -> bool {
        let is_over = |since: Instant| now.since(since) >= FORGED_INTERVAL;
        let port = self.port_mut(at);
        let Some(port) = port.filter(|port| port.forged_at.is_none_or(is_over)) else {
            return false;
        };
        port.forged_at = Some(now);
        true
    }

    /// Notes that the edge of a switch restarts, and answers for no port.
    pub(super) fn close_edges(&mut self, dpid: DatapathId) {
        let ports = self.switches.get_mut(&dpid).map(|switch| &mut switch.ports);
        for port in ports.into_iter().flat_map(BTreeMap::values_mut) {
            port.edge_open = false;
        }
    }

    /// Notes that the edge answers for a port. Returns whether it did not before.
    pub(super) fn open_edge(&mut self, at: Location) -> bool {
        let port = self.port_mut(at);
        port.is_some_and(|port| !std::mem::replace(&mut port.edge_open, true))
    }

    /// Notes that the edge no longer answers for a port.
    pub(super) fn close_edge(&mut self, at: Location) {
        if let Some(port) = self.port_mut(at) {
            port.edge_open = false;
        }
    }

    pub(super) fn is_edge_open(&self, at: Location) -> bool {
        let switch = self.switches.get(&at.dpid);
        let port = switch.and_then(|switch| switch.ports.get(&at.port));
        port.is_some_and(|port| port.edge_open)
    }
}
