//! Ports that do not fit the configuration that names them: missing ports, and ends of links
//! between switches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};

use clock::Instant;
use openflow::{DatapathId, PortNo};

use crate::Location;
use crate::access::Access;
use crate::bond::Bonds;
use crate::mirror::Mirrors;
use crate::vlan::Vlans;

use super::event::Alarm;
use super::{Controller, ControllerConfig};

/// A setting that names a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// VLANs, access lists or bindings of a port.
    Port,
    /// A port whose packets are copied. It may be an end of a link.
    MirrorFrom,
    /// A port that receives copies.
    MirrorTo,
    Bond,
    EdgePorts,
}

/// The ports that settings name.
struct Named<'a> {
    vlans: &'a Vlans,
    access: &'a Access,
    mirrors: &'a Mirrors,
    bonds: &'a Bonds,
    edge_ports: &'a BTreeSet<Location>,
}

impl Named<'_> {
    /// Each port of one switch, or of all, with the setting that matters most.
    fn ports(&self, of: Option<DatapathId>) -> BTreeMap<Location, Setting> {
        let here = match of {
            None => (Bound::Unbounded, Bound::Unbounded),
            Some(dpid) => {
                let end = |port| Bound::Included(Location::new(dpid, PortNo(port)));
                (end(0), end(u32::MAX))
            }
        };
        let access = self.access;
        let of_lists = access.ports.range(here).map(|(at, _)| at);
        let of_bindings = access.bindings.range(here).map(|(at, _)| at);
        let of_vlans = self.vlans.ports.range(here).map(|(at, _)| at);
        let of_hosts = of_lists
            .chain(of_bindings)
            .chain(access.by_dhcp.range(here));
        let mirrored = self.mirrors.iter().flat_map(|mirror| {
            let ports = mirror.from.iter();
            ports.map(|port| mirror.at(*port))
        });
        let bonded = self.bonds.iter().flat_map(|bond| {
            let ports = bond.ports.iter();
            ports.map(|port| bond.at(*port))
        });
        let mut all = BTreeMap::new();
        let mirrored = mirrored.filter(|at| here.contains(at));
        all.extend(mirrored.map(|at| (at, Setting::MirrorFrom)));
        all.extend(of_vlans.chain(of_hosts).map(|at| (*at, Setting::Port)));
        let bonded = bonded.filter(|at| here.contains(at));
        all.extend(bonded.map(|at| (at, Setting::Bond)));
        let targets = self.mirrors.targets().range(here);
        all.extend(targets.map(|at| (*at, Setting::MirrorTo)));
        let edges = self.edge_ports.range(here);
        all.extend(edges.map(|at| (*at, Setting::EdgePorts)));
        all
    }
}

impl Controller {
    fn named(&self) -> Named<'_> {
        Named {
            vlans: &self.config.vlans,
            access: self.access.stated(),
            mirrors: &self.config.mirrors,
            bonds: &self.config.bonds,
            edge_ports: &self.config.edge_ports,
        }
    }

    /// The alarms about ports that another configuration names: ports that connected switches do
    /// not have, and ends of links that are up. Changes nothing.
    pub fn doubts(&self, config: &ControllerConfig) -> Vec<Alarm> {
        let named = Named {
            vlans: &config.vlans,
            access: &config.access,
            mirrors: &config.mirrors,
            bonds: &config.bonds,
            edge_ports: &config.edge_ports,
        };
        self.doubts_about(&named.ports(None))
    }

    fn doubts_about(&self, ports: &BTreeMap<Location, Setting>) -> Vec<Alarm> {
        let doubt = |(at, setting): (&Location, &Setting)| {
            let (at, setting) = (*at, *setting);
            let switch = self.network.switch(at.dpid)?;
            switch.connection?;
            if !switch.ports.contains_key(&at.port) {
                return Some(Alarm::PortMissing { at, setting });
            }
            let to = self.network.links.peer(at)?;
            let is_doubtful = setting != Setting::MirrorFrom;
            is_doubtful.then_some(Alarm::PortIsLink { at, to, setting })
        };
        ports.iter().filter_map(doubt).collect()
    }

    /// Raises alarms about ports, each once a minute at most.
    pub fn raise(&mut self, now: Instant, doubts: Vec<Alarm>) {
        for alarm in doubts {
            self.outbox.alarm_once(now, alarm);
        }
    }

    /// Reports named ports that a switch does not have, or that are links: of one switch, or of
    /// all.
    pub(super) fn doubt_ports(&mut self, now: Instant, of: Option<DatapathId>) {
        let doubts = self.doubts_about(&self.named().ports(of));
        self.raise(now, doubts);
    }

    /// Reports a link between ports that are named for hosts.
    pub(super) fn doubt_link(&mut self, now: Instant, from: Location, to: Location) {
        for (at, to) in [(from, to), (to, from)] {
            let access = self.access.stated();
            let has_access = access.ports.contains_key(&at) || access.bindings.contains_key(&at);
            let has_vlans = self.config.vlans.ports.contains_key(&at);
            if has_vlans || has_access || access.by_dhcp.contains(&at) {
                let setting = Setting::Port;
                self.outbox
                    .alarm_once(now, Alarm::PortIsLink { at, to, setting });
            }
        }
    }
}
