//! The packet-outs by which a broadcast reaches all switches.

use std::collections::{BTreeMap, BTreeSet};

use openflow::{Action, DatapathId, PortNo};

use crate::Location;
use crate::fabric::Label;
use crate::fabric::tree::{self, Edges};
use crate::vlan::VlanId;

/// How a broadcast reaches all switches.
pub(in crate::controller) struct Delivery {
    pub(super) label: Label,
    pub(super) tag: u16,
    pub(super) links: BTreeMap<DatapathId, BTreeSet<PortNo>>,
    /// The first switch of the tree of each switch.
    pub(super) roots: BTreeMap<DatapathId, DatapathId>,
    /// The first switches of all trees.
    pub(super) firsts: BTreeSet<DatapathId>,
    /// Switches whose pieces have no edge ports: these get a packet-out.
    pub(super) by_packet_out: BTreeSet<DatapathId>,
    /// Connected switches in no tree.
    pub(super) outside: Vec<DatapathId>,
}

impl Delivery {
    /// The switches that get a packet-out, and whether the packet enters a tree there. `except`:
    /// edge ports out of which the packet is not sent. In a tree, such a port can be left out only
    /// at the switch where the packet enters.
    pub(in crate::controller) fn targets(&self, except: &[Location]) -> Vec<(DatapathId, bool)> {
        let firsts = self.firsts.iter();
        let entries = firsts.map(|first| (*first, BTreeSet::new()));
        let mut entries: BTreeMap<DatapathId, BTreeSet<DatapathId>> = entries.collect();
        for at in except
            .iter()
            .filter(|at| !self.by_packet_out.contains(&at.dpid))
        {
            if let Some(root) = self.roots.get(&at.dpid) {
                entries.entry(*root).or_default().insert(at.dpid);
            }
        }
        let mut targets = Vec::new();
        for (root, at) in entries {
            let mut at = at.into_iter();
            match (at.next(), at.next()) {
                (entry, None) => {
                    let entry = entry.unwrap_or(root);
                    targets.push((entry, true));
                    let others = self.by_packet_out.iter().filter(|dpid| **dpid != entry);
                    let others = others.filter(|dpid| self.roots.get(dpid) == Some(&root));
                    targets.extend(others.map(|dpid| (*dpid, false)));
                }
                _ => {
                    let members = self.roots.iter().filter(|(_, of)| **of == root);
                    targets.extend(members.map(|(dpid, _)| (*dpid, false)));
                }
            }
        }
        targets.extend(self.outside.iter().map(|dpid| (*dpid, false)));
        targets
    }

    /// The actions of a packet-out by which a packet enters at a switch.
    pub(in crate::controller) fn entry_actions(
        &self,
        dpid: DatapathId,
        edges: (VlanId, &Edges),
    ) -> Vec<Action> {
        match self.links.get(&dpid) {
            Some(links) => tree::entry_actions(self.tag, self.label, links, edges),
            None => tree::outputs(edges.0, edges.1),
        }
    }
}
