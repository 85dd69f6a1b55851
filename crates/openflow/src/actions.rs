//! Treatment of a packet: actions, instructions, and the buckets of groups.

use bytes::Bytes;

use crate::match_fields::MatchField;
use crate::property::Property;
use crate::stat::Stat;
use crate::types::{BucketId, GroupId, MeterId, PortNo, QueueId, TableId};

/// One action. The 1.0 codec maps SET_DL_SRC, SET_NW_SRC … to an equivalent `SetField` and back.
/// Actions of 1.0 without an equivalent, such as SET_VLAN_VID, keep their own names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// OFPAT_OUTPUT: sends the packet to a port.
    Output {
        /// Port to send to.
        port: PortNo,
        /// Bytes of the packet to send to the controller; 0xffff is all of it.
        max_len: u16,
    },
    /// OFPAT_GROUP: processes the packet with a group.
    Group(GroupId),
    /// OFPAT_SET_QUEUE: chooses the queue for later outputs.
    SetQueue(QueueId),
    /// OFPAT_SET_FIELD: writes a header field.
    SetField(MatchField),
    /// OFPAT_PUSH_VLAN: adds a VLAN tag with this EtherType.
    PushVlan(u16),
    /// OFPAT_POP_VLAN: removes the outer VLAN tag.
    PopVlan,
    /// OFPAT_PUSH_MPLS: adds an MPLS label with this EtherType.
    PushMpls(u16),
    /// OFPAT_POP_MPLS: removes the outer MPLS label and sets this EtherType.
    PopMpls(u16),
    /// OFPAT_PUSH_PBB: adds a PBB header with this EtherType.
    PushPbb(u16),
    /// OFPAT_POP_PBB: removes the outer PBB header.
    PopPbb,
    /// OFPAT_SET_MPLS_TTL: sets the TTL of the outer MPLS label.
    SetMplsTtl(u8),
    /// OFPAT_DEC_MPLS_TTL: lowers the TTL of the outer MPLS label by one.
    DecMplsTtl,
    /// OFPAT_SET_NW_TTL: sets the IP TTL or hop limit.
    SetNwTtl(u8),
    /// OFPAT_DEC_NW_TTL: lowers the IP TTL or hop limit by one.
    DecNwTtl,
    /// OFPAT_COPY_TTL_OUT: copies the TTL from the next header to the outermost.
    CopyTtlOut,
    /// OFPAT_COPY_TTL_IN: copies the TTL from the outermost header to the next.
    CopyTtlIn,
    /// OpenFlow 1.0: sets the VLAN id, adding a tag if there is none.
    SetVlanVid(u16),
    /// OpenFlow 1.0: sets the VLAN priority, adding a tag if there is none.
    SetVlanPcp(u8),
    /// OpenFlow 1.0: strips the VLAN tag if there is one.
    StripVlan,
    /// OpenFlow 1.0 and 1.1: sets the whole TOS byte except its ECN bits.
    SetNwTos(u8),
    /// OpenFlow 1.0 and 1.1: sets the source port of whatever transport the packet has.
    SetTpSrc(u16),
    /// OpenFlow 1.0 and 1.1: sets the destination port of whatever transport the packet has.
    SetTpDst(u16),
    /// OpenFlow 1.0: outputs to a queue of a port.
    Enqueue {
        /// Port to send to.
        port: PortNo,
        /// Queue of the port.
        queue: QueueId,
    },
    /// OFPAT_COPY_FIELD: copies bits of one field to another; 1.5.
    CopyField {
        /// Number of bits.
        n_bits: u16,
        /// First bit of the source.
        src_offset: u16,
        /// First bit of the destination.
        dst_offset: u16,
        /// Field to read.
        src: FieldId,
        /// Field to write.
        dst: FieldId,
    },
    /// OFPAT_METER: sends the packet through a meter; 1.5, where it is not an instruction.
    Meter(MeterId),
    /// Vendor action (Nicira's among them): everything after the experimenter id, padding included.
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id.
        data: Bytes,
    },
}

impl Action {
    /// Outputs whole packets to `port`.
    pub fn output(port: PortNo) -> Action {
        Action::Output { port, max_len: 0 }
    }

    /// Outputs the whole packet to the controller.
    pub fn controller() -> Action {
        Action::Output {
            port: PortNo::CONTROLLER,
            max_len: 0xffff,
        }
    }
}

/// Treatment of a packet that an entry matched (1.1 and later; 1.0 has APPLY_ACTIONS only).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// OFPIT_GOTO_TABLE: continues in this table, which must have a higher number.
    GotoTable(TableId),
    /// OFPIT_WRITE_METADATA: writes the masked bits of the metadata.
    WriteMetadata {
        /// Bits to write.
        metadata: u64,
        /// Bits that change.
        mask: u64,
    },
    /// OFPIT_WRITE_ACTIONS: adds to the action set, which is run at the end of the pipeline.
    WriteActions(Vec<Action>),
    /// OFPIT_APPLY_ACTIONS: runs the actions at once, in order.
    ApplyActions(Vec<Action>),
    /// OFPIT_CLEAR_ACTIONS: empties the action set.
    ClearActions,
    /// OFPIT_METER: sends the packet through a meter; up to 1.4.
    Meter(MeterId),
    /// OFPIT_STAT_TRIGGER: reports the entry when its statistics pass thresholds; 1.5.
    StatTrigger {
        /// OFPSTF_*: 1 at every multiple, 2 the first time only.
        flags: u32,
        /// Thresholds.
        thresholds: Vec<Stat>,
    },
    /// A vendor's instruction.
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id.
        data: Bytes,
    },
}

/// Bucket of a group: one treatment of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Relative weight, for SELECT groups.
    pub weight: u16,
    /// Port whose liveness decides, for FAST_FAILOVER; `ANY` when unused.
    pub watch_port: PortNo,
    /// Group whose liveness decides, for FAST_FAILOVER; `ANY` when unused.
    pub watch_group: GroupId,
    /// Action set of the bucket.
    pub actions: Vec<Action>,
    /// 1.5: number of the bucket in its group. `None` means its position in the list.
    pub bucket_id: Option<BucketId>,
    /// 1.5: properties except the weight, the watched port and the watched group.
    pub properties: Vec<Property>,
}

impl Bucket {
    /// Makes a bucket that watches nothing.
    pub fn new(weight: u16, actions: Vec<Action>) -> Bucket {
        Bucket {
            weight,
            watch_port: PortNo::ANY,
            watch_group: GroupId::ANY,
            actions,
            bucket_id: None,
            properties: Vec::new(),
        }
    }
}

/// A field, identified by its OXM header (1.5.1, 7.2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldId {
    /// Class, field, mask bit and length.
    pub header: u32,
    /// Experimenter id of the vendor, for a field of class 0xffff.
    pub experimenter: Option<u32>,
}
