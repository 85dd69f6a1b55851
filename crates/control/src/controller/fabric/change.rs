//! A change of the fabric at one switch.

use openflow::{DatapathId, PortNo};

use crate::fabric::Label;
use crate::fabric::plan::Route;
use crate::fabric::tree::Piece;
use crate::vlan::{HostKey, VlanId};

/// A change of one switch.
pub(in crate::controller) struct FabricChange {
    pub dpid: DatapathId,
    pub revision: u64,
    pub what: What,
}

/// A change of the tree of a VLAN, which counts only if its revision is still current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct TreeChange {
    pub vlan: VlanId,
    pub revision: u64,
    /// A switch that has not confirmed it.
    pub lacking: Option<DatapathId>,
}

/// A part of the fabric at a switch, and whether the switch is to have it.
pub(in crate::controller) enum What {
    Base,
    /// Its label in a VLAN, or outside of all VLANs.
    Own(VlanId, Option<Label>),
    Inlet(PortNo, bool),
    Route(Label, Option<Route>),
    Host(HostKey, PortNo),
    /// Its piece of the tree with this label.
    Tree(Label, Option<Piece>),
    /// All parts on an excluded switch.
    Everything,
}
