//! Bonds at work: which of their ports carry packets, and the groups and entries that follow.
//!
//! A machine of its own, with one LACP machine for each bond. In the switch, the group of a bond
//! chooses among its live ports, so that a failed port costs no message from the controller.
//! Entries close the ports that carry no packets. All other modules see one port, the bond's place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clock::{Fnv1a, Instant};
use openflow::message::GroupModCommand;
use openflow::multipart::ReplyBody;
use openflow::packet::lacp;
use openflow::{DatapathId, ErrorKind, GroupId, MacAddr, PortNo};

use crate::Location;
use crate::bond::{self, Bond, Bonds, Bpdu, Protocol};
use crate::edge::{BondPort, EdgeUpdate};
use crate::fabric::form::{self, Part};
use crate::lacp::{Config, Lacp, Output};
use crate::vlan::Vlans;

use super::event::{Alarm, BondPortView, BondView, Event};
use super::fabric::{Fabric, send_change};
use super::outbox::{Outbox, Timer};
use super::{Controller, PortRole};

#[derive(Default)]
pub(super) struct Bonding {
    states: BTreeMap<Location, State>,
    /// The groups and entries of each switch, as they were sent.
    sent: BTreeMap<DatapathId, Vec<Part>>,
    /// Ports that a guard has closed.
    guarded: BTreeSet<Location>,
    due: Option<Instant>,
}

/// The state of a bond.
struct State {
    /// The address of its system in messages.
    system: MacAddr,
    lacp: Option<Lacp>,
    /// The ports at which packets may arrive, and those out of which packets are sent.
    collecting: BTreeSet<PortNo>,
    distributing: BTreeSet<PortNo>,
    /// Whether its switch was found to have no fabric.
    is_unsupported: bool,
    /// Whether its switch has refused a group that shares the ports.
    is_unshared: bool,
}

/// The address of a bond's system: the same in each process, because a device that receives another
/// address leaves the bond. No two bonds share an address, so that no device takes them for one.
fn system(bond: &Bond) -> MacAddr {
    let mut text = bond.dpid.0.to_be_bytes().to_vec();
    text.extend(bond.name.as_bytes());
    let [_, _, a, b, c, d, e, f] = Fnv1a::of(&text).to_be_bytes();
    // Locally administered, and no group.
    MacAddr([a & 0xfc | 2, b, c, d, e, f])
}

/// The number of a port in LACP.
fn number(port: PortNo) -> u16 {
    port.0 as u16
}

fn ports(numbers: &BTreeSet<u16>) -> BTreeSet<PortNo> {
    let numbers = numbers.iter();
    numbers.map(|number| PortNo(u32::from(*number))).collect()
}

impl State {
    /// Takes over the ports that LACP has chosen.
    fn follow_lacp(&mut self) {
        if let Some(lacp) = &self.lacp {
            self.collecting = ports(&lacp.collecting());
            self.distributing = ports(&lacp.distributing());
        }
    }
}

impl Bonding {
    /// Adds a bond with all its ports down.
    fn add(&mut self, bond: &Bond) {
        let system = system(bond);
        let config = Config {
            system,
            key: number(bond.place().port),
            is_active: bond.protocol == Protocol::Active,
            is_fast: bond.is_fast,
        };
        let numbers = bond.ports.iter().map(|port| number(*port));
        let has_lacp = bond.protocol != Protocol::Static;
        let state = State {
            system,
            lacp: has_lacp.then(|| Lacp::new(config, numbers)),
            collecting: BTreeSet::new(),
            distributing: BTreeSet::new(),
            is_unsupported: false,
            is_unshared: false,
        };
        self.states.insert(bond.place(), state);
    }

    /// Whether packets may arrive at a port, as far as bonds are concerned.
    pub(super) fn is_open(&self, bonds: &Bonds, at: Location) -> bool {
        let state = |_| self.states.get(&bonds.place(at));
        match bonds.contains(at).then_some(()).map(state) {
            None => true,
            Some(state) => state.is_some_and(|state| state.collecting.contains(&at.port)),
        }
    }

    /// The groups and entries that a switch should hold.
    pub(super) fn parts(&self, dpid: DatapathId, fabric: &Fabric, bonds: &Bonds) -> Vec<Part> {
        let mut parts = Vec::new();
        for bond in bonds.of_switch(dpid) {
            let place = bond.place();
            let Some(state) = self.states.get(&place) else {
                continue;
            };
            let shares = fabric.shares_ports(dpid) && !state.is_unshared;
            parts.push(form::bond(place.port, &state.distributing, shares));
            for port in &bond.ports {
                parts.extend(state.lacp.as_ref().map(|_| form::lacp(*port)));
                let is_closed = !state.collecting.contains(port);
                parts.extend(is_closed.then(|| form::closed(*port)));
            }
        }
        let here = self.guarded.iter().filter(|at| at.dpid == dpid);
        let guarded = here.filter(|at| self.is_open(bonds, **at));
        parts.extend(guarded.map(|at| form::closed(at.port)));
        parts
    }

    /// Takes over the ports that carry packets, as an earlier process has set them on a switch.
    pub(super) fn adopt(
        &mut self,
        now: Instant,
        bond: &Bond,
        (collecting, distributing): (&BTreeSet<PortNo>, &BTreeSet<PortNo>),
    ) {
        if let Some(state) = self.states.get_mut(&bond.place()) {
            if let Some(lacp) = &mut state.lacp {
                for port in collecting {
                    lacp.adopt(now, number(*port), distributing.contains(port));
                }
            }
            state.follow_lacp();
        }
    }

    /// Notes the parts that a switch has, of those that it should have.
    pub(super) fn handle_held(&mut self, dpid: DatapathId, held: Vec<Part>) {
        self.sent.insert(dpid, held);
    }

    /// Sends a switch that takes part its changed parts.
    fn update(&mut self, dpid: DatapathId, fabric: &Fabric, outbox: &mut Outbox) {
        if !fabric.has_tables(dpid) {
            return;
        }
        let new = self.parts(dpid, fabric, &outbox.bonds);
        let old = self.sent.insert(dpid, new.clone()).unwrap_or_default();
        if old != new {
            send_change(dpid, old, new, outbox);
        }
    }

    /// Sets a port of a bond up or down.
    fn set_up(&mut self, now: Instant, place: Location, (port, is_up): (PortNo, bool)) {
        let Some(state) = self.states.get_mut(&place) else {
            return;
        };
        match &mut state.lacp {
            Some(lacp) => lacp.set_up(now, number(port), is_up),
            None => {
                for ports in [&mut state.collecting, &mut state.distributing] {
                    match is_up {
                        true => ports.insert(port),
                        false => ports.remove(&port),
                    };
                }
            }
        }
    }

    fn set_timer(&mut self, place: Location, outbox: &mut Outbox) {
        let state = self.states.get(&place);
        let machine = state.and_then(|state| state.lacp.as_ref());
        let Some(due) = machine.and_then(Lacp::next_due) else {
            return;
        };
        if self.due.is_none_or(|set| due < set) {
            self.due = Some(due);
            outbox.timer(due, Timer::Bonds);
        }
    }

    pub(super) fn is_unsupported(&self, place: Location) -> bool {
        let state = self.states.get(&place);
        state.is_some_and(|state| state.is_unsupported)
    }

    /// Closes a port of no bond, or opens it.
    pub(super) fn set_guarded(&mut self, at: Location, is_guarded: bool) {
        match is_guarded {
            true => self.guarded.insert(at),
            false => self.guarded.remove(&at),
        };
    }
}

impl Controller {
    pub(super) fn start_bonds(&mut self) {
        let bonds = self.outbox.bonds.clone();
        for bond in bonds.iter() {
            self.bonding.add(bond);
        }
    }

    /// Applies new bonds and new effects of spanning trees. Forgets hosts at ports of changed
    /// bonds, with the entries that lead from and to the hosts.
    pub fn set_bonds(&mut self, now: Instant, bonds: Bonds, bpdus: BTreeMap<Location, Bpdu>) {
        self.outbox.now = now;
        self.set_bpdus(now, bpdus);
        let before = self.outbox.bonds.clone();
        let changed: Vec<Bond> = before.changed(&bonds).cloned().collect();
        if changed.is_empty() {
            return;
        }
        let all = changed.iter().flat_map(|bond| {
            let ports = bond.ports.iter();
            ports.map(|port| bond.at(*port))
        });
        let all: BTreeSet<Location> = all.collect();
        for at in &all {
            let was_edge = self.network.role(*at) == PortRole::Edge;
            self.lose(now, *at, was_edge);
        }
        let bonds = Arc::new(bonds);
        self.network.set_bonds(bonds.clone());
        self.outbox.bonds = bonds.clone();
        self.config.bonds = (*bonds).clone();
        self.access.set_bonds(&self.config.bonds);
        for bond in &changed {
            self.bonding.states.remove(&bond.place());
        }
        for bond in changed
            .iter()
            .filter(|bond| bonds.of(bond.place()) == Some(bond))
        {
            self.bonding.add(bond);
        }
        for at in &all {
            self.begin_again(now, *at);
        }
        let vlans = self.config.vlans.all();
        self.follow_vlans(&vlans);
        self.follow_mirrors(now);
        self.update_access();
        self.ingress.forget_edge_ports();
        let switches: BTreeSet<DatapathId> = all.iter().map(|at| at.dpid).collect();
        for dpid in switches {
            self.tell_all_vlans(dpid);
            self.tell_bonds(dpid);
            self.bonding.update(dpid, &self.fabric, &mut self.outbox);
        }
        self.follow_bonds(now);
    }

    /// Treats a port as one that has just come up, in a bond or outside of all bonds.
    pub(super) fn begin_again(&mut self, now: Instant, at: Location) {
        if !self.network.is_up(at) {
            return;
        }
        if self.outbox.bonds.contains(at) {
            return self.bond_port(now, at, true);
        }
        if let Some(port) = self.network.port_mut(at) {
            port.state.handle_up();
        }
        self.outbox.timer(now, Timer::Lldp(at));
        let hold = self.config.port_hold;
        self.outbox.timer(now + hold, Timer::HoldOver(at.dpid));
    }

    /// Notes that a port is up or down, if it belongs to a bond.
    pub(super) fn bond_port(&mut self, now: Instant, at: Location, is_up: bool) {
        if let Some(bond) = self.outbox.bonds.of(at) {
            let place = bond.place();
            // The switch may have ports that carry packets. Until it has reported them, a message
            // of ours would stop that.
            let waits = bond.protocol != Protocol::Static && !self.fabric.has_tables(at.dpid);
            if !is_up || !waits {
                self.bonding.set_up(now, place, (at.port, is_up));
            }
            self.follow_one(now, place);
        }
    }

    /// Takes over the bonds as their switch has them, as far as its ports are up.
    pub(super) fn adopt_bonds(&mut self, now: Instant, dpid: DatapathId, bodies: &[ReplyBody]) {
        let bonds = self.outbox.bonds.clone();
        for bond in bonds.of_switch(dpid) {
            let is_up = |port: &PortNo| self.network.is_up(bond.at(*port));
            if let Some([mut collecting, distributing]) = self.fabric.bond_held(bond, bodies) {
                collecting.retain(is_up);
                self.bonding.adopt(now, bond, (&collecting, &distributing));
            }
        }
    }

    /// Starts all ports of bonds that waited for their switch to report its groups and entries.
    pub(super) fn start_ports(&mut self, now: Instant, dpid: DatapathId) {
        let bonds = self.outbox.bonds.clone();
        let ports = bonds
            .of_switch(dpid)
            .flat_map(|bond| bonds.ports(bond.place()));
        for at in ports
            .filter(|at| self.network.is_up(*at))
            .collect::<Vec<_>>()
        {
            self.bond_port(now, at, true);
        }
    }

    /// Whether a port is up, or any port of its bond if it is the bond's place.
    pub(super) fn is_port_up(&self, at: Location) -> bool {
        let ports = self.outbox.bonds.ports(at);
        ports.into_iter().any(|port| self.network.is_up(port))
    }

    /// Handles an LACP message. Returns whether its port belongs to a bond that uses LACP.
    pub(super) fn handle_lacp(&mut self, now: Instant, at: Location, data: &[u8]) -> bool {
        let place = self.outbox.bonds.place(at);
        let states = &mut self.bonding.states;
        let systems: BTreeSet<MacAddr> = states.values().map(|state| state.system).collect();
        let state = states.get_mut(&place);
        let Some((own, machine)) = state.and_then(|it| Some((it.system, it.lacp.as_mut()?))) else {
            return false;
        };
        if !self.fabric.has_tables(at.dpid) {
            return true;
        }
        let before = machine.dropped;
        let is_heard = lacp::read(data).is_some_and(|mut pdu| {
            // A cable between two of our bonds is a loop like one within a bond.
            if systems.contains(&pdu.actor.system) {
                pdu.actor.system = own;
            }
            machine.handle_pdu(now, number(at.port), &pdu);
            machine.dropped == before
        });
        match is_heard {
            true => self.follow_one(now, place),
            false => self.outbox.counters.lacp_refused += 1,
        }
        true
    }

    /// Sends LACP out of all ports of bonds before this process ends: devices wait for the next one
    /// as long as their timeout lets them.
    pub fn refresh_bonds(&mut self, now: Instant) {
        self.outbox.now = now;
        for state in self.bonding.states.values_mut() {
            if let Some(lacp) = &mut state.lacp {
                lacp.refresh(now);
            }
        }
        self.follow_bonds(now);
    }

    pub(super) fn bonds_due(&mut self, now: Instant) {
        self.bonding.due = None;
        for state in self.bonding.states.values_mut() {
            if let Some(lacp) = &mut state.lacp {
                lacp.due(now);
            }
        }
        self.follow_bonds(now);
    }

    /// Carries out what the machine of one bond has decided.
    fn follow_one(&mut self, now: Instant, place: Location) {
        let bonds = self.outbox.bonds.clone();
        if let Some(bond) = bonds.of(place) {
            self.follow_bond(now, bond);
            self.bonding.set_timer(place, &mut self.outbox);
        }
    }

    /// Carries out what the machines have decided.
    pub(super) fn follow_bonds(&mut self, now: Instant) {
        let bonds = self.outbox.bonds.clone();
        for bond in bonds.iter() {
            self.follow_one(now, bond.place());
        }
    }

    fn follow_bond(&mut self, now: Instant, bond: &Bond) {
        let place = bond.place();
        let Some(state) = self.bonding.states.get_mut(&place) else {
            return;
        };
        let mut outputs = Vec::new();
        if let Some(lacp) = &mut state.lacp {
            outputs.extend(std::iter::from_fn(|| lacp.poll_output()));
        }
        state.follow_lacp();
        for output in outputs {
            self.carry_out(now, bond, output);
        }
        self.follow_ports(now, bond);
    }

    fn carry_out(&mut self, now: Instant, bond: &Bond, output: Output) {
        let at = |port: u16| bond.at(PortNo(u32::from(port)));
        match output {
            Output::Send { port, pdu } => {
                let at = at(port);
                let own = self.network.port(at).map(|port| port.hw_addr);
                let source = own.filter(|mac| *mac != MacAddr::default() && !mac.is_multicast());
                let frame = pdu.frame(source.unwrap_or(pdu.actor.system));
                self.outbox.send_at_port(at, frame);
            }
            Output::OtherPartner { port, heard } => {
                let (at, heard) = (at(port), heard.system);
                let alarm = Alarm::BondOtherPartner { at, heard };
                self.outbox.alarm_once(now, alarm);
            }
            Output::Loop { port } => {
                let alarm = Alarm::BondLoop { at: at(port) };
                self.outbox.alarm_once(now, alarm);
            }
            Output::Changed => {}
        }
    }

    /// Opens or closes a bond, and updates its switch.
    fn follow_ports(&mut self, now: Instant, bond: &Bond) {
        let (place, dpid) = (bond.place(), bond.dpid);
        let Some(state) = self.bonding.states.get_mut(&place) else {
            return;
        };
        let is_wanted = !state.collecting.is_empty();
        let ports: Vec<PortNo> = state.distributing.iter().copied().collect();
        let is_known = self.network.is_connected(dpid) && self.network.is_synced(dpid);
        let is_unsupported = is_known && !self.fabric.is_capable(dpid);
        if is_unsupported && !std::mem::replace(&mut state.is_unsupported, true) {
            self.outbox.alarm(Alarm::BondUnsupported { at: place });
        }
        state.is_unsupported &= is_unsupported || !is_known;
        let was_open = self.network.is_open(place);
        let before = self.bonding.sent.get(&dpid).map(Vec::len);
        let had = self.group_of(bond);
        self.bonding.update(dpid, &self.fabric, &mut self.outbox);
        let is_new = before != self.bonding.sent.get(&dpid).map(Vec::len);
        let has_changed = had != self.group_of(bond);
        // A group that its switch does not have takes no packets.
        let may_open = was_open || self.fabric.has_tables(dpid);
        let is_open = is_wanted && may_open && !self.bonding.is_unsupported(place);
        if was_open && !is_open {
            self.lose(now, place, true);
        }
        if was_open != is_open {
            self.network.set_bond_open(place, is_open);
            self.ingress.handle_port(now, place, true);
            self.ingress.forget_edge_ports();
            self.topology_soon(now);
            self.ask_at(is_open.then_some(place));
        }
        if was_open != is_open || has_changed || is_new {
            self.tell_bonds(dpid);
        }
        if has_changed {
            let name = bond.name.clone();
            let at = place;
            self.outbox.event(Event::BondChanged { name, at, ports });
        }
    }

    /// The ports of a bond's group as its switch has it.
    fn group_of(&self, of: &Bond) -> Vec<PortNo> {
        let sent = self.bonding.sent.get(&of.dpid);
        let id = bond::group(of.place().port);
        let group = sent.into_iter().flatten().find_map(|part| match part {
            Part::Group {
                id: other, buckets, ..
            } if *other == id => Some(buckets),
            _ => None,
        });
        let buckets = group.into_iter().flatten();
        buckets.map(|bucket| bucket.watch_port).collect()
    }

    /// Informs the edge of a switch of the places of its ports.
    pub(super) fn tell_bonds(&mut self, dpid: DatapathId) {
        let bonds = self.outbox.bonds.clone();
        let mut all = BTreeMap::new();
        for bond in bonds.of_switch(dpid) {
            let place = bond.place().port;
            for port in &bond.ports {
                let is_open = self.bonding.is_open(&bonds, bond.at(*port));
                all.insert(*port, BondPort { place, is_open });
            }
        }
        self.outbox.tell_edge(dpid, EdgeUpdate::Bonds(all));
    }

    /// Makes a bond use one port at a time, because its switch refuses a group that shares the
    /// ports.
    pub(super) fn bond_unshared(
        &mut self,
        (dpid, error): (DatapathId, ErrorKind),
        (command, group): (GroupModCommand, GroupId),
    ) {
        let bonds = self.outbox.bonds.clone();
        let states = &mut self.bonding.states;
        let is_unshared = |place| states.get(&place).is_some_and(|it: &State| it.is_unshared);
        let is_first = !bonds.of_switch(dpid).map(Bond::place).any(is_unshared);
        let mut places = bonds.of_switch(dpid).map(Bond::place);
        let place = places.find(|place| bond::group(place.port) == group);
        let state = place.and_then(|place| states.get_mut(&place));
        // Further errors belong to messages that were under way.
        let Some(state) = state.filter(|state| !state.is_unshared) else {
            return;
        };
        state.is_unshared = true;
        if command == GroupModCommand::Add
            && let Some(sent) = self.bonding.sent.get_mut(&dpid)
        {
            sent.retain(|part| !matches!(part, Part::Group { id, .. } if *id == group));
        }
        if is_first {
            self.outbox.alarm(Alarm::BondUnshared { dpid, error });
        }
        self.bonding.update(dpid, &self.fabric, &mut self.outbox);
    }

    /// Sends a switch the changed parts for its closed ports.
    pub(super) fn update_closed(&mut self, dpid: DatapathId) {
        self.bonding.update(dpid, &self.fabric, &mut self.outbox);
    }

    /// Deletes the parts of bonds on a switch that no longer takes part in the fabric.
    pub(super) fn exclude_bonds(&mut self, now: Instant, dpid: DatapathId) {
        let held = self.bonding.sent.remove(&dpid).unwrap_or_default();
        self.follow_bonds(now);
        send_change(dpid, held, Vec::new(), &mut self.outbox);
    }

    /// Forgets the bonds of a switch that is lost: its ports are down, and it has no groups.
    pub(super) fn forget_bonds(&mut self, now: Instant, dpid: DatapathId) {
        self.bonding.sent.remove(&dpid);
        let bonds = self.outbox.bonds.clone();
        for bond in bonds.of_switch(dpid) {
            for port in &bond.ports {
                self.bonding.set_up(now, bond.place(), (*port, false));
            }
            self.network.set_bond_open(bond.place(), false);
        }
    }

    /// The VLANs of all ports: the ports of a bond have the VLANs of its place.
    pub(super) fn vlans_of_bonds(&self) -> Vlans {
        let mut vlans = self.config.vlans.clone();
        for bond in self.outbox.bonds.iter() {
            let of_place = vlans.ports.get(&bond.place()).cloned();
            for port in &bond.ports {
                match of_place.clone() {
                    Some(of_place) => vlans.ports.insert(bond.at(*port), of_place),
                    None => vlans.ports.remove(&bond.at(*port)),
                };
            }
        }
        vlans
    }

    /// Whether a host at either place is behind a bond.
    pub(super) fn is_bonded(&self, from: Location, to: Location) -> bool {
        let bonds = &self.outbox.bonds;
        bonds.contains(from) || bonds.contains(to)
    }

    /// The bonds, by place.
    pub fn bonds(&self) -> Vec<BondView> {
        let bonds = self.outbox.bonds.iter();
        bonds.map(|bond| self.view_bond(bond)).collect()
    }

    fn view_bond(&self, bond: &Bond) -> BondView {
        let state = self.bonding.states.get(&bond.place());
        let lacp = state.and_then(|state| state.lacp.as_ref());
        let is_in = |ports: fn(&State) -> &BTreeSet<PortNo>, port| {
            state.is_some_and(|state| ports(state).contains(port))
        };
        let ports = bond.ports.iter().map(|port| BondPortView {
            port: *port,
            is_collecting: is_in(|state| &state.collecting, port),
            is_distributing: is_in(|state| &state.distributing, port),
            lacp: lacp.and_then(|lacp| lacp.ports().find(|it| it.port == number(*port))),
        });
        BondView {
            bond: bond.clone(),
            partner: lacp.and_then(Lacp::partner),
            ports: ports.collect(),
        }
    }
}
