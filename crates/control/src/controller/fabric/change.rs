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

/// A change of the tree of a VLAN, which counts if this is its revision still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) struct TreeChange {
    pub vlan: VlanId,
    pub revision: u64,
    /// A switch that has not confirmed it.
    pub lacking: Option<DatapathId>,
}

/// A part of the fabric at a switch, and whether it is to be there.
pub(in crate::controller) enum What {
    Base,
    /// Its label in a VLAN, or outside of all.
    Own(VlanId, Option<Label>),
    Inlet(PortNo, bool),
    Route(Label, Option<Route>),
    Host(HostKey, PortNo),
    /// Its piece of the tree with this label.
    Tree(Label, Option<Piece>),
    /// Everything that a switch holds which is left out.
    Everything,
}
