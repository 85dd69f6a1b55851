//! The entries of an earlier process's edges, as a switch reports them.
//!
//! An edge keeps no record of its entries. This module reads the entries that lead to egresses, and
//! those between ports of a VLAN. An entry is kept only if an edge could set the same entry for the
//! VLANs that ports have now.

use openflow::multipart::FlowStats;
use openflow::{Action, DatapathId, Field, Instruction, MacAddr, PortNo};

use crate::Location;
use crate::entry::{EntryKey, EntryKind};
use crate::fabric::Exit;
use crate::fabric::form::{self, Place};
use crate::pipeline::PATH_TABLE;
use crate::vlan::{self, HostKey, VlanId, Vlans};

/// An entry between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ingress {
    pub in_port: PortNo,
    pub dst: HostKey,
    pub exit: Exit,
}

/// Whether an entry is read here: an edge has set it, in a VLAN or towards an egress.
pub(super) fn is_ingress(tag: u16, row: &FlowStats) -> bool {
    let leads_to_egress = || match &row.instructions[..] {
        [Instruction::ApplyActions(actions)] => form::ingress_exit(tag, actions).is_some(),
        _ => false,
    };
    let is_in_vlan = row.r#match.exact(Field::VlanVid).is_some();
    let is_edges = EntryKind::of(row.cookie) == Some(EntryKind::Local);
    is_edges && (is_in_vlan || leads_to_egress())
}

impl Ingress {
    /// Reads an entry; `None` if no edge would set it now. `tag`: the EtherType of labels.
    pub(super) fn read(
        dpid: DatapathId,
        row: &FlowStats,
        (tag, vlans): (u16, &Vlans),
    ) -> Option<Ingress> {
        let at = |port| Location { dpid, port };
        let m = &row.r#match;
        let mac = |field| Some(MacAddr::from_u64(m.exact(field)? as u64));
        let (src, dst) = (mac(Field::EthSrc)?, mac(Field::EthDst)?);
        let in_port = m.in_port()?;
        let key = EntryKey::pair(in_port, src, dst);
        let vid = m.exact(Field::VlanVid);
        let own = vid.filter(|vid| *vid != 0).map(|vid| vid as u16 & 0xfff);
        let (vlan, wanted) = match vid {
            None if vlans.ports.contains_key(&at(in_port)) => return None,
            None => (VlanId::NONE, key.to_match()),
            // A priority tag does not show whether another tag is behind it.
            Some(_) if own == Some(0) => return None,
            Some(_) => {
                let vlan = vlans.classify(at(in_port), own)?;
                let vlan = Some(vlan).filter(|vlan| !vlan.is_none());
                (vlan?, vlan::with_tag(key.to_match(), own))
            }
        };
        let [Instruction::ApplyActions(actions)] = &row.instructions[..] else {
            return None;
        };
        let exit = exit_of(actions)?;
        let right = match exit {
            Exit::Egress(label) => {
                let untagged = own.map(|_| Action::PopVlan).into_iter();
                untagged.chain(form::ingress_actions(tag, label)).collect()
            }
            Exit::Port(port) if vlan.is_none() || port == in_port => return None,
            Exit::Port(port) => vlan::output(own, vlan, vlans.form(at(port), vlan)?, port),
        };
        let is_its_place = Place::of_entry(row.table_id, row.priority, m)
            == Place::of_entry(PATH_TABLE, key.priority, &wanted);
        (is_its_place && *actions == right).then_some(Ingress {
            in_port,
            dst: HostKey { vlan, mac: dst },
            exit,
        })
    }
}

fn exit_of(actions: &[Action]) -> Option<Exit> {
    match actions.last()? {
        Action::Group(id) => form::label_of(*id).map(Exit::Egress),
        last => form::port_of(last).map(Exit::Port),
    }
}
