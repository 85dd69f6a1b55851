//! Floods packets out of every edge port, within budgets.
//!
//! A broadcast costs a packet-out for each switch, or for each tree of the fabric, so a port's
//! number of broadcasts says little about the controller's work. The total cost is limited in
//! packet-outs per second (`flood_packet_outs_max`). One port may use a quarter of that and one
//! switch half, so that a port that storms leaves room for the broadcasts of others.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Duration, Instant};
use openflow::message::PacketOut;
use openflow::{Action, DatapathId, Frame, Message, PortNo, Version, Xid, encode};

use crate::Location;
use crate::controller::event::Alarm;
use crate::controller::fabric::Delivery;
use crate::controller::network::Network;
use crate::controller::outbox::Outbox;
use crate::controller::port_state::PortRole;
use crate::fabric::tree::{self, Edges};
use crate::requests::EDGE_XID;
use crate::vlan::{Form, VlanId};
use clock::Budget;

use super::Ingress;

/// How long a port must be over its budget before it counts as storming, and the pause that ends
/// this time.
const STORM_AFTER: Duration = Duration::from_secs(10);
const STORM_PAUSE: Duration = Duration::from_secs(2);
/// Minimum time between two alarms of one port.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);

/// The fractions of all packet-outs that the broadcasts of one port, and of one switch, may cost.
pub(super) const PORT_PART: u32 = 4;
pub(super) const SWITCH_PART: u32 = 2;

/// A port's excess over its budget: since when, and the last alarm.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Storm {
    since: Option<Instant>,
    last: Instant,
    alarmed_at: Option<Instant>,
}

/// The edge ports of a switch, cached until something changes.
pub(super) struct EdgePorts {
    ports: Arc<[PortNo]>,
    /// The revision of the links, and the number of changes of the switch's ports, at the time of
    /// the list.
    as_of: (u64, u64),
}

/// How a flooded packet reaches the switches.
#[derive(Clone, Copy)]
pub(in crate::controller) struct Flooding<'a> {
    pub vlan: VlanId,
    /// `None`: by a packet-out for each switch.
    pub delivery: Option<&'a Delivery>,
}

/// A budget of packet-outs per second. The packet-outs of a second may be sent at once.
pub(super) fn packet_out_budget(now: Instant, packet_outs_max: u32, part: u32) -> Budget {
    let rate = (packet_outs_max / part).max(1);
    Budget::new(now, rate, rate)
}

impl Storm {
    /// Notes a packet over the budget. Returns whether to raise an alarm.
    fn is_alarming(&mut self, now: Instant) -> bool {
        let goes_on = now.since(self.last) <= STORM_PAUSE;
        let since = self.since.filter(|_| goes_on).unwrap_or(now);
        (self.since, self.last) = (Some(since), now);
        let is_damped = |at: Instant| now.since(at) < ALARM_INTERVAL;
        if now.since(since) < STORM_AFTER || self.alarmed_at.is_some_and(is_damped) {
            return false;
        }
        self.alarmed_at = Some(now);
        true
    }
}

impl Ingress {
    /// Forgets the cached edge ports of all switches.
    pub(in crate::controller) fn forget_edge_ports(&mut self) {
        for switch in self.switches.values_mut() {
            switch.edge_ports = None;
        }
    }

    /// Returns the edge ports of a switch.
    fn edge_ports(&mut self, net: &Network, dpid: DatapathId) -> Arc<[PortNo]> {
        let Some(known) = net.switch(dpid) else {
            return Arc::default();
        };
        let changes = known.ports.values().map(|port| port.state.changes());
        let as_of = (net.links.revision(), changes.sum());
        let switch = self.switches.get_mut(&dpid);
        let kept = switch
            .as_ref()
            .and_then(|switch| switch.edge_ports.as_ref());
        if let Some(kept) = kept.filter(|kept| kept.as_of == as_of) {
            return kept.ports.clone();
        }
        let at = |port: PortNo| Location { dpid, port };
        let is_edge = |port: &PortNo| net.role(at(*port)) == PortRole::Edge;
        // The place of a bond stays when its port is deleted.
        let places = known.ports.keys().map(|port| net.place(at(*port)).port);
        let places: BTreeSet<PortNo> = places.collect();
        let ports: Arc<[PortNo]> = places.into_iter().filter(is_edge).collect();
        if let Some(switch) = switch {
            switch.edge_ports = Some(EdgePorts {
                ports: ports.clone(),
                as_of,
            });
        }
        ports
    }

    /// Whether the port has budget for the packet, in packets.
    pub(in crate::controller) fn may_flood(
        &mut self,
        now: Instant,
        at: Location,
        outbox: &mut Outbox,
    ) -> bool {
        let port = self.port_mut(at);
        let within = port.is_some_and(|port| port.flood_budget.take(now));
        if !within {
            outbox.counters.flood_limited += 1;
            self.note_storm(now, at, outbox);
        }
        within
    }

    /// Whether the port, its switch and the controller have budget for the broadcast, in
    /// packet-outs.
    fn may_spread(
        &mut self,
        now: Instant,
        (at, cost): (Location, usize),
        outbox: &mut Outbox,
    ) -> bool {
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let Some(switch) = self.switches.get_mut(&at.dpid) else {
            return false;
        };
        let Some(port) = switch.ports.get_mut(&at.port) else {
            return false;
        };
        if !port.flood_packet_outs.has(now, cost) {
            outbox.counters.flood_limited += 1;
            self.note_storm(now, at, outbox);
            return false;
        }
        let budgets = [&mut switch.flood_packet_outs, &mut self.flood_packet_outs];
        if !budgets.into_iter().all(|budget| budget.has(now, cost)) {
            outbox.counters.flood_limited_shared += 1;
            return false;
        }
        port.flood_packet_outs.take_many(now, cost);
        switch.flood_packet_outs.take_many(now, cost);
        self.flood_packet_outs.take_many(now, cost);
        true
    }

    fn note_storm(&mut self, now: Instant, at: Location, outbox: &mut Outbox) {
        if let Some(port) = self.port_mut(at)
            && port.storm.is_alarming(now)
            && self.storm_alarms.take(now)
        {
            outbox.alarm(Alarm::BroadcastStorm { at });
        }
    }

    /// The edge ports of a switch for a VLAN, or outside of all VLANs, apart from `except`.
    pub(in crate::controller) fn edges(
        &mut self,
        net: &Network,
        (dpid, vlan): (DatapathId, VlanId),
        except: &[Location],
        outbox: &Outbox,
    ) -> Edges {
        let (vlans, mut edges) = (&outbox.vlans, Edges::default());
        for port in self.edge_ports(net, dpid).iter().copied() {
            let at = Location { dpid, port };
            let form = match vlans.is_on() {
                true => vlans.form(at, vlan),
                false => Some(Form::Untagged),
            };
            match form.filter(|_| !except.contains(&at)) {
                Some(Form::Untagged) => edges.untagged.push(port),
                Some(Form::Tagged) => edges.tagged.push(port),
                None => {}
            }
        }
        edges
    }

    /// Sends a packet out of every edge port of its VLAN except the port where it arrived and, if
    /// known, its sender's place (`home`). If it has just been sent, returns the other edge port
    /// where it arrived.
    pub(in crate::controller) fn spread(
        &mut self,
        net: &Network,
        now: Instant,
        (at, data): (Location, &bytes::Bytes),
        (home, how): (Option<Location>, Flooding<'_>),
        outbox: &mut Outbox,
    ) -> Option<Location> {
        let source = self.echo_source(net, now, how.vlan, (at, data));
        if source.is_some() {
            outbox.counters.flood_echoes += 1;
            return source;
        }
        let except = [at, home.unwrap_or(at)];
        let targets = self.targets_of(net, now, at, (&except, how));
        if self.may_spread(now, (at, targets.len()), outbox) {
            let number = self.echoes.number(how.vlan, data);
            self.echoes.note(now, number, at);
            outbox.counters.flooded += 1;
            self.send_to(net, targets, (data, &except), how, outbox);
        }
        None
    }

    /// The other edge port where a packet arrived, if it has just been flooded.
    pub(in crate::controller) fn echo_source(
        &self,
        net: &Network,
        now: Instant,
        vlan: VlanId,
        (at, data): (Location, &bytes::Bytes),
    ) -> Option<Location> {
        let number = self.echoes.number(vlan, data);
        let was_down = |from| matches!(net.role(from), PortRole::Gone | PortRole::Held);
        self.echoes.source(now, (number, at), was_down)
    }

    /// Sends a question out of all edge ports of a VLAN, for a host at this port.
    pub(in crate::controller) fn ask_all(
        &mut self,
        net: &Network,
        now: Instant,
        (at, question): (Location, &bytes::Bytes),
        how: Flooding<'_>,
        outbox: &mut Outbox,
    ) {
        let targets = self.targets_of(net, now, at, (&[], how));
        if self.may_spread(now, (at, targets.len()), outbox) {
            outbox.counters.flooded += 1;
            self.send_to(net, targets, (question, &[]), how, outbox);
        }
    }

    /// Sends a packet out of every edge port of a VLAN, or outside of all VLANs, without a limit.
    pub(in crate::controller) fn send_to_all(
        &mut self,
        net: &Network,
        data: &bytes::Bytes,
        how: Flooding<'_>,
        outbox: &mut Outbox,
    ) {
        let targets = self.targets(net, &[], how);
        self.send_to(net, targets, (data, &[]), how, outbox);
    }

    /// The targets of a packet from a port, without switches in other parts of the network.
    fn targets_of(
        &mut self,
        net: &Network,
        now: Instant,
        from: Location,
        (except, how): (&[Location], Flooding<'_>),
    ) -> Vec<(DatapathId, bool)> {
        let mut targets = self.targets(net, except, how);
        targets.retain(|(to, _)| !net.parts.are_apart(now, from.dpid, *to));
        targets
    }

    /// The switches that get a packet-out, and whether the packet enters a tree there.
    fn targets(
        &mut self,
        net: &Network,
        except: &[Location],
        how: Flooding<'_>,
    ) -> Vec<(DatapathId, bool)> {
        match how.delivery {
            Some(delivery) => {
                // The packet would go out only by edge ports.
                let is_edge = |at: &Location| self.edge_ports(net, at.dpid).contains(&at.port);
                let edges: Vec<Location> = except.iter().copied().filter(is_edge).collect();
                delivery.targets(&edges)
            }
            None => net.connected().map(|s| (s.dpid, false)).collect(),
        }
    }

    /// Sends a packet to some switches. Switches with the same edge ports are sent the same frame.
    fn send_to(
        &mut self,
        net: &Network,
        targets: Vec<(DatapathId, bool)>,
        (data, except): (&bytes::Bytes, &[Location]),
        how: Flooding<'_>,
        outbox: &mut Outbox,
    ) {
        let vlan = how.vlan;
        outbox.counters.flooded_by_tree += u64::from(targets.iter().any(|(_, enters)| *enters));
        // Nothing waits for an answer. A number for each packet shows which one a switch refuses.
        self.flood_number = self.flood_number.wrapping_add(1);
        let xid = Xid(EDGE_XID | self.flood_number & (EDGE_XID - 1));
        let mut frames: BTreeMap<(Version, Edges), Option<Frame>> = BTreeMap::new();
        for (dpid, enters) in targets {
            let Some(switch) = net.switch(dpid) else {
                continue;
            };
            let (version, Some(connection)) = (switch.version, switch.connection) else {
                continue;
            };
            let edges = self.edges(net, (dpid, vlan), except, outbox);
            let entry = how.delivery.filter(|_| enters);
            if entry.is_none() && edges.is_empty() {
                continue;
            }
            // Bonds and mirrors of the switch change the frame.
            let copies = outbox.mirrors.outs(dpid).next().is_some();
            let is_own = copies || outbox.bonds.of_switch(dpid).next().is_some();
            if is_own || entry.is_some() {
                let mut actions = match entry {
                    Some(delivery) => delivery.entry_actions(dpid, (vlan, &edges)),
                    None => tree::outputs(vlan, &edges),
                };
                outbox.bonds.lead(dpid, &mut actions);
                outbox.mirrors.lead(dpid, None, &mut actions);
                match packet_out(version, xid, actions, data) {
                    Some(frame) => {
                        outbox.counters.flood_packet_outs += 1;
                        outbox.send_packet_out(connection, frame);
                    }
                    None => outbox.counters.unencodable += 1,
                }
                continue;
            }
            let frame = match frames.entry((version, edges)) {
                Entry::Occupied(same) => same.get().clone(),
                Entry::Vacant(fresh) => {
                    let actions = tree::outputs(vlan, &fresh.key().1);
                    let frame = packet_out(version, xid, actions, data);
                    fresh.insert(frame).clone()
                }
            };
            let Some(frame) = frame else {
                outbox.counters.unencodable += 1;
                continue;
            };
            outbox.counters.flood_packet_outs += 1;
            outbox.send_packet_out(connection, frame);
        }
    }
}

fn packet_out(
    version: Version,
    xid: Xid,
    actions: Vec<Action>,
    data: &bytes::Bytes,
) -> Option<Frame> {
    let message = PacketOut::new(
        match version {
            Version::V10 => PortNo::ANY,
            _ => PortNo::CONTROLLER,
        },
        actions,
        data.clone(),
    );
    encode(version, xid, &Message::PacketOut(message)).ok()
}
