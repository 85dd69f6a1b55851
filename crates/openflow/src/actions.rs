//! What a flow entry does with a packet: actions, instructions, and the buckets of groups.

use bytes::Bytes;

use crate::match_fields::MatchField;
use crate::types::{GroupId, MeterId, PortNo, QueueId, TableId};

/// One action. The 1.0 codec maps its SET_VLAN_VID, SET_NW_SRC … to `SetField` and back where they
/// say the same, and keeps those with no counterpart under their own names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Output {
        port: PortNo,
        /// Bytes of the packet to send to the controller; 0xffff is all of it.
        max_len: u16,
    },
    Group(GroupId),
    SetQueue(QueueId),
    SetField(MatchField),
    PushVlan(u16),
    PopVlan,
    PushMpls(u16),
    PopMpls(u16),
    PushPbb(u16),
    PopPbb,
    SetMplsTtl(u8),
    DecMplsTtl,
    SetNwTtl(u8),
    DecNwTtl,
    CopyTtlOut,
    CopyTtlIn,
    /// OpenFlow 1.0: set the VLAN id, adding a tag if there is none.
    SetVlanVid(u16),
    /// OpenFlow 1.0: set the VLAN priority, adding a tag if there is none.
    SetVlanPcp(u8),
    /// OpenFlow 1.0: strip the VLAN tag if there is one.
    StripVlan,
    /// OpenFlow 1.0: the whole TOS byte less its ECN bits.
    SetNwTos(u8),
    /// OpenFlow 1.0: the source port of whatever transport the packet has.
    SetTpSrc(u16),
    /// OpenFlow 1.0: the destination port of whatever transport the packet has.
    SetTpDst(u16),
    /// OpenFlow 1.0: output to a queue of a port.
    Enqueue {
        port: PortNo,
        queue: QueueId,
    },
    /// Vendor action (Nicira's among them): everything after the experimenter id, padding included.
    Experimenter {
        experimenter: u32,
        data: Bytes,
    },
}

impl Action {
    /// Output of whole packets to `port`.
    pub fn output(port: PortNo) -> Action {
        Action::Output { port, max_len: 0 }
    }

    /// The whole packet to the controller.
    pub fn controller() -> Action {
        Action::Output {
            port: PortNo::CONTROLLER,
            max_len: 0xffff,
        }
    }
}

/// What happens to a packet that an entry matched (1.1 and later; 1.0 has APPLY_ACTIONS only).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    GotoTable(TableId),
    WriteMetadata { metadata: u64, mask: u64 },
    WriteActions(Vec<Action>),
    ApplyActions(Vec<Action>),
    ClearActions,
    Meter(MeterId),
    Experimenter { experimenter: u32, data: Bytes },
}

/// One way through a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Relative weight, for SELECT groups.
    pub weight: u16,
    /// Port whose liveness decides, for FAST_FAILOVER; `ANY` when unused.
    pub watch_port: PortNo,
    pub watch_group: GroupId,
    pub actions: Vec<Action>,
}
