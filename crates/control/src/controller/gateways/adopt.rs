//! Takes over the routing entries of an earlier process, if gateways and routes justify them now.

use std::collections::BTreeMap;

use clock::{Duration, Instant};
use openflow::multipart::FlowStats;
use openflow::{DatapathId, PortNo};

use crate::Location;
use crate::entry::{EntryKind, generation};
use crate::fabric::Exit;
use crate::fabric::form::HostPort;
use crate::routing::flow::{Flow, FlowKey};
use crate::vlan::{Form, HostKey};

use super::super::entries::delete_row;
use super::Controller;

impl Controller {
    /// Takes the routing entries out of a switch's rows, and deletes the wrong ones. `hosts`: the
    /// hosts of the switch, according to its entries. Returns the numbers of entries kept and
    /// deleted.
    pub(in crate::controller) fn read_routed(
        &mut self,
        now: Instant,
        dpid: DatapathId,
        rows: &mut Vec<FlowStats>,
        hosts: &BTreeMap<HostKey, HostPort>,
    ) -> [usize; 2] {
        let is_routed = |row: &mut FlowStats| EntryKind::of(row.cookie) == Some(EntryKind::Routed);
        let routed: Vec<FlowStats> = rows.extract_if(.., is_routed).collect();
        let mut counts = [0, 0];
        for row in routed {
            let age = Duration::from_secs(row.duration_sec.into())
                + Duration::from_nanos(row.duration_nsec.into());
            let sent_at = Instant::START + now.since(Instant::START + age);
            let sent = (sent_at, generation(row.cookie));
            let read = self.read_flow(dpid, &row, hosts);
            if read.is_some_and(|read| self.gateways.flows.adopt(read, sent)) {
                counts[0] += 1;
            } else {
                counts[1] += 1;
                self.outbox.send_flow_mod(dpid, delete_row(&row));
            }
        }
        counts
    }

    /// Reads a routing entry; `None` if it would not be set now.
    fn read_flow(
        &mut self,
        dpid: DatapathId,
        row: &FlowStats,
        hosts: &BTreeMap<HostKey, HostPort>,
    ) -> Option<(FlowKey, Flow)> {
        let key = FlowKey::from_match(dpid, &row.r#match)?;
        let (mac, exit) = Flow::read_way(row)?;
        let is_priority = key.tag == Some(0);
        let vlan = self.outbox.vlans.classify(key.at, key.tag);
        let vlan = vlan.filter(|vlan| !vlan.is_none() && !is_priority)?;
        let routing = &self.gateways.routing;
        let hop = routing.leads(vlan, key.to)?;
        let (own, of_target) = (routing.of(vlan)?.mac, routing.of(hop.vlan)?.mac);
        let from = HostKey { vlan, mac: key.src };
        let vlan = hop.vlan;
        let target = HostKey { vlan, mac };
        let place = |port| self.outbox.bonds.place(Location { dpid, port });
        let is_at = |host: HostKey, at: Location| {
            let held = hosts.get(&host);
            held.is_some_and(|held| held.port == at.port)
        };
        let to = match exit {
            Exit::Port(PortNo::IN_PORT) => Some(place(key.at.port)),
            Exit::Port(port) => Some(place(port)),
            Exit::Egress(_) => None,
        };
        let form = match to {
            Some(to) => self.outbox.vlans.form(to, hop.vlan)?,
            None => Form::Untagged,
        };
        let flow = Flow {
            from,
            hop,
            target,
            gateway: of_target,
            exit,
            form,
        };
        let is_right = key.gateway == own
            && is_at(from, place(key.at.port))
            && to.is_none_or(|to| is_at(target, to))
            && flow.is_row(key, self.fabric.tag(), row);
        let leads = match exit {
            Exit::Egress(label) if is_right => self.fabric.may_lead(dpid, vlan, label),
            _ => is_right,
        };
        leads.then_some((key, flow))
    }
}
