//! Messages as values: one form for all versions, in the vocabulary of OpenFlow 1.3.
//!
//! Encoding a message or field that the version lacks fails with
//! [`EncodeError::Unsupported`](crate::EncodeError); the encoder never guesses. Sizes of the bodies
//! follow the specification; fields that are only padding are not kept.

use bytes::Bytes;

use crate::actions::{Action, Bucket, Instruction};
pub use crate::bundle::*;
use crate::error::ErrorKind;
pub use crate::hello::Hello;
use crate::kind::MessageKind;
use crate::match_fields::Match;
pub use crate::multipart::{MultipartReply, MultipartRequest};
pub use crate::notice::*;
pub use crate::property::*;
use crate::stat::Stat;
use crate::types::{
    BucketId, BufferId, Cookie, DatapathId, GroupId, MacAddr, MeterId, PortNo, QueueId, TableId,
    flags,
};

/// A message of any version, in the vocabulary of OpenFlow 1.3. Encoding fails for a version that
/// lacks the message or one of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// OFPT_HELLO (1.3.5, 7.5.1).
    Hello(Hello),
    /// OFPT_ERROR (7.4.4).
    Error(ErrorMessage),
    /// OFPT_ECHO_REQUEST, with any bytes (7.5.2).
    EchoRequest(Bytes),
    /// OFPT_ECHO_REPLY, with the bytes of the request (7.5.3).
    EchoReply(Bytes),
    /// OFPT_EXPERIMENTER, OFPT_VENDOR in 1.0 (7.5.4).
    Experimenter(Experimenter),
    /// OFPT_FEATURES_REQUEST (7.3.1).
    FeaturesRequest,
    /// OFPT_FEATURES_REPLY (7.3.1).
    FeaturesReply(SwitchFeatures),
    /// OFPT_GET_CONFIG_REQUEST (7.3.2).
    GetConfigRequest,
    /// OFPT_GET_CONFIG_REPLY (7.3.2).
    GetConfigReply(SwitchConfig),
    /// OFPT_SET_CONFIG (7.3.2).
    SetConfig(SwitchConfig),
    /// OFPT_PACKET_IN (7.4.1).
    PacketIn(PacketIn),
    /// OFPT_FLOW_REMOVED (7.4.2).
    FlowRemoved(FlowRemoved),
    /// OFPT_PORT_STATUS (7.4.3).
    PortStatus(PortStatus),
    /// OFPT_PACKET_OUT (7.3.7).
    PacketOut(PacketOut),
    /// OFPT_FLOW_MOD (7.3.4.1).
    FlowMod(FlowMod),
    /// OFPT_GROUP_MOD (7.3.4.2).
    GroupMod(GroupMod),
    /// OFPT_PORT_MOD (7.3.4.3).
    PortMod(PortMod),
    /// OFPT_TABLE_MOD (7.3.3).
    TableMod(TableMod),
    /// OFPT_MULTIPART_REQUEST, OFPT_STATS_REQUEST in 1.0 (7.3.5).
    MultipartRequest(MultipartRequest),
    /// OFPT_MULTIPART_REPLY, OFPT_STATS_REPLY in 1.0 (7.3.5).
    MultipartReply(MultipartReply),
    /// OFPT_BARRIER_REQUEST (7.3.8).
    BarrierRequest,
    /// OFPT_BARRIER_REPLY (7.3.8).
    BarrierReply,
    /// OFPT_QUEUE_GET_CONFIG_REQUEST (7.3.6).
    QueueGetConfigRequest {
        /// Port whose queues are requested; `ANY` for all ports.
        port: PortNo,
    },
    /// OFPT_QUEUE_GET_CONFIG_REPLY (7.3.6).
    QueueGetConfigReply(QueueConfig),
    /// OFPT_ROLE_REQUEST (7.3.9).
    RoleRequest(RoleMessage),
    /// OFPT_ROLE_REPLY (7.3.9).
    RoleReply(RoleMessage),
    /// OFPT_ROLE_STATUS of 1.4 (7.4.4), which 1.3 has as an extension of the ONF (EXT-191).
    RoleStatus(RoleStatus),
    /// OFPT_GET_ASYNC_REQUEST (7.3.10).
    GetAsyncRequest,
    /// OFPT_GET_ASYNC_REPLY (7.3.10).
    GetAsyncReply(AsyncConfig),
    /// OFPT_SET_ASYNC (7.3.10).
    SetAsync(AsyncConfig),
    /// OFPT_METER_MOD (7.3.4.4).
    MeterMod(MeterMod),
    /// OFPT_TABLE_STATUS, 1.4 and later.
    TableStatus(TableStatus),
    /// OFPT_REQUESTFORWARD, 1.4 and later; 1.3 has it as an extension of the ONF.
    RequestForward(RequestForward),
    /// OFPT_BUNDLE_CONTROL, 1.4 and later; 1.3 has it as an extension of the ONF.
    BundleControl(BundleControl),
    /// OFPT_BUNDLE_ADD_MESSAGE, 1.4 and later; 1.3 has it as an extension of the ONF.
    BundleAdd(BundleAdd),
    /// OFPT_CONTROLLER_STATUS, 1.5.
    ControllerStatus(ControllerStatus),
}

impl Message {
    /// Type of the message.
    pub fn kind(&self) -> MessageKind {
        use MessageKind as K;
        match self {
            Message::Hello(_) => K::Hello,
            Message::Error(_) => K::Error,
            Message::EchoRequest(_) => K::EchoRequest,
            Message::EchoReply(_) => K::EchoReply,
            Message::Experimenter(_) => K::Experimenter,
            Message::FeaturesRequest => K::FeaturesRequest,
            Message::FeaturesReply(_) => K::FeaturesReply,
            Message::GetConfigRequest => K::GetConfigRequest,
            Message::GetConfigReply(_) => K::GetConfigReply,
            Message::SetConfig(_) => K::SetConfig,
            Message::PacketIn(_) => K::PacketIn,
            Message::FlowRemoved(_) => K::FlowRemoved,
            Message::PortStatus(_) => K::PortStatus,
            Message::PacketOut(_) => K::PacketOut,
            Message::FlowMod(_) => K::FlowMod,
            Message::GroupMod(_) => K::GroupMod,
            Message::PortMod(_) => K::PortMod,
            Message::TableMod(_) => K::TableMod,
            Message::MultipartRequest(_) => K::MultipartRequest,
            Message::MultipartReply(_) => K::MultipartReply,
            Message::BarrierRequest => K::BarrierRequest,
            Message::BarrierReply => K::BarrierReply,
            Message::QueueGetConfigRequest { .. } => K::QueueGetConfigRequest,
            Message::QueueGetConfigReply(_) => K::QueueGetConfigReply,
            Message::RoleRequest(_) => K::RoleRequest,
            Message::RoleReply(_) => K::RoleReply,
            Message::RoleStatus(_) => K::RoleStatus,
            Message::GetAsyncRequest => K::GetAsyncRequest,
            Message::GetAsyncReply(_) => K::GetAsyncReply,
            Message::SetAsync(_) => K::SetAsync,
            Message::MeterMod(_) => K::MeterMod,
            Message::TableStatus(_) => K::TableStatus,
            Message::RequestForward(_) => K::RequestForward,
            Message::BundleControl(_) => K::BundleControl,
            Message::BundleAdd(_) => K::BundleAddMessage,
            Message::ControllerStatus(_) => K::ControllerStatus,
        }
    }
}

/// OFPT_ERROR. `data` is at least 64 bytes of the refused message, or text for HELLO_FAILED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// Type and code of the error.
    pub kind: ErrorKind,
    /// Experimenter id in OFPET_EXPERIMENTER (0xffff) errors, where `kind.code` is the vendor's
    /// type.
    pub experimenter: Option<u32>,
    /// Start of the refused message, or text.
    pub data: Bytes,
}

impl ErrorMessage {
    /// Makes an error of the standard, not a vendor's.
    pub fn new(kind: ErrorKind, data: Bytes) -> ErrorMessage {
        ErrorMessage {
            kind,
            experimenter: None,
            data,
        }
    }
}

/// OFPT_EXPERIMENTER, or OFPT_VENDOR in 1.0, with everything after the id as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    /// Experimenter id of the vendor.
    pub experimenter: u32,
    /// Bytes after the id. In 1.1 and later the first four are the vendor's type, by convention.
    pub data: Bytes,
}

impl Experimenter {
    /// Nicira, whose extensions Open vSwitch speaks.
    pub const NICIRA: u32 = 0x0000_2320;
    /// The Open Networking Foundation's own extensions (bundles for 1.3 among them).
    pub const ONF: u32 = 0x4f4e_4600;
    /// Type of the ONF's ROLE_STATUS for 1.3, in the first four bytes of the data.
    pub const ONF_ROLE_STATUS: u32 = 1911;
    /// Type of the ONF's BUNDLE_CONTROL for 1.3.
    pub const ONF_BUNDLE_CONTROL: u32 = 2300;
    /// Type of the ONF's BUNDLE_ADD_MESSAGE for 1.3.
    pub const ONF_BUNDLE_ADD_MESSAGE: u32 = 2301;
    /// Type of the ONF's REQUESTFORWARD for 1.3.
    pub const ONF_REQUEST_FORWARD: u32 = 2350;
}

/// OFPT_FEATURES_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFeatures {
    /// Identity of the switch.
    pub datapath_id: DatapathId,
    /// Number of packets that the switch can buffer.
    pub n_buffers: u32,
    /// Number of flow tables.
    pub n_tables: u8,
    /// Id of the connection, 0 for the main one; 1.3 and later.
    pub auxiliary_id: u8,
    /// Abilities of the switch.
    pub capabilities: Capabilities,
    /// Bitmap of OFPAT_* supported; 1.0 only. A reserved field in 1.3.
    pub actions: u32,
    /// Ports of the switch, up to 1.2. In later versions, request PORT_DESC.
    pub ports: Vec<Port>,
}

flags! {
    /// OFPC_*, in the numbering of 1.3. In 1.0, bit 3 is STP.
    Capabilities(u32) {
        /// Counts packets and bytes of entries.
        FLOW_STATS = 1 << 0;
        /// Counts lookups of tables.
        TABLE_STATS = 1 << 1;
        /// Counts packets and bytes of ports.
        PORT_STATS = 1 << 2;
        /// Counts packets and bytes of groups; in 1.0 the bit is STP.
        GROUP_STATS = 1 << 3;
        /// Reassembles IP fragments.
        IP_REASM = 1 << 5;
        /// Counts packets and bytes of queues.
        QUEUE_STATS = 1 << 6;
        /// Matches IP addresses in ARP packets; 1.0 and 1.1.
        ARP_MATCH_IP = 1 << 7;
        /// Blocks ports that would make a loop.
        PORT_BLOCKED = 1 << 8;
        /// Carries out bundles; 1.4 and later.
        BUNDLES = 1 << 9;
        /// Reports changes of entries; 1.4 and later.
        FLOW_MONITORING = 1 << 10;
    }
}

/// GET_CONFIG_REPLY and SET_CONFIG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Fragment handling: 0 normal, 1 drop, 2 reassemble. Only Open vSwitch has 3: the first
    /// fragment has its ports.
    pub flags: u16,
    /// Number of bytes of a packet that a table miss sends to the controller.
    pub miss_send_len: u16,
}

/// A port and its state (ofp_phy_port, ofp_port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number of the port.
    pub port_no: PortNo,
    /// Hardware address.
    pub hw_addr: MacAddr,
    /// Name, zero-terminated in a field of 16 bytes. All bytes are kept, so that odd names pass
    /// through.
    pub name: PortName,
    /// Administrative settings.
    pub config: PortConfig,
    /// State of the link.
    pub state: PortState,
    /// Current features, as OFPPF_* in the numbering of 1.3.
    pub curr: u32,
    /// Features that the port advertises, as OFPPF_*.
    pub advertised: u32,
    /// Features that the port supports, as OFPPF_*.
    pub supported: u32,
    /// Features that the other end advertises, as OFPPF_*.
    pub peer: u32,
    /// Current speed in kbit/s; 1.1 and later.
    pub curr_speed: u32,
    /// Highest speed in kbit/s; 1.1 and later.
    pub max_speed: u32,
    /// Properties except the Ethernet one, which is the fields above; 1.4 and later.
    pub properties: Vec<PortProperty>,
}

/// A fixed text field of the protocol, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName(pub [u8; 16]);

impl PortName {
    /// Makes a field from `name`, cut to 15 bytes if it is longer.
    pub fn new(name: &str) -> PortName {
        let mut bytes = [0; 16];
        let len = name.len().min(15);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        PortName(bytes)
    }

    /// The text before the first zero byte.
    pub fn to_text(self) -> String {
        let end = self.0.iter().position(|b| *b == 0).unwrap_or(16);
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

impl std::fmt::Debug for PortName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}

flags! {
    /// OFPPC_*.
    PortConfig(u32) {
        /// Administratively down.
        PORT_DOWN = 1 << 0;
        /// Takes no part in spanning tree; 1.0 only.
        NO_STP = 1 << 1;
        /// Drops all packets that it receives.
        NO_RECV = 1 << 2;
        /// Drops received spanning tree packets; 1.0 only.
        NO_RECV_STP = 1 << 3;
        /// Left out of FLOOD; 1.0 only.
        NO_FLOOD = 1 << 4;
        /// Drops all packets to send.
        NO_FWD = 1 << 5;
        /// Sends no PACKET_IN for its packets.
        NO_PACKET_IN = 1 << 6;
    }
}

flags! {
    /// OFPPS_*. 1.0 has its STP state in bits 8 and 9.
    PortState(u32) {
        /// No link.
        LINK_DOWN = 1 << 0;
        /// Blocked by a protocol such as spanning tree.
        BLOCKED = 1 << 1;
        /// Live for FAST_FAILOVER groups.
        LIVE = 1 << 2;
    }
}

impl Port {
    /// Reports whether the port is neither administratively down nor without a link.
    pub fn is_up(&self) -> bool {
        !self.config.contains(PortConfig::PORT_DOWN) && !self.state.contains(PortState::LINK_DOWN)
    }
}

/// Reason why a packet went to the controller (OFPR_*); 1.0 and 1.3 share 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketInReason(pub u8);

impl PacketInReason {
    /// OFPR_NO_MATCH: no entry matched, or the table-miss entry did.
    pub const NO_MATCH: PacketInReason = PacketInReason(0);
    /// OFPR_ACTION: an entry sent the packet.
    pub const ACTION: PacketInReason = PacketInReason(1);
    /// OFPR_INVALID_TTL: the packet's TTL ran out.
    pub const INVALID_TTL: PacketInReason = PacketInReason(2);
}

/// OFPT_PACKET_IN (1.3.5, 7.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Packet kept by the switch; `None` if `data` holds the whole packet.
    pub buffer_id: Option<BufferId>,
    /// Length of the packet before it was truncated.
    pub total_len: u16,
    /// Reason why the switch sends the packet.
    pub reason: PacketInReason,
    /// Table, in 1.1 and later; 0 in 1.0.
    pub table_id: TableId,
    /// Cookie, in 1.3 and later; all ones in earlier versions.
    pub cookie: Cookie,
    /// Fields of the packet: at least its in_port.
    pub r#match: Match,
    /// The packet, possibly truncated.
    pub data: Bytes,
}

/// Reason for an entry's removal (OFPRR_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRemovedReason(pub u8);

impl FlowRemovedReason {
    /// OFPRR_IDLE_TIMEOUT: no packet matched in time.
    pub const IDLE_TIMEOUT: FlowRemovedReason = FlowRemovedReason(0);
    /// OFPRR_HARD_TIMEOUT: the hard time-out expired.
    pub const HARD_TIMEOUT: FlowRemovedReason = FlowRemovedReason(1);
    /// OFPRR_DELETE: a FLOW_MOD deleted the entry.
    pub const DELETE: FlowRemovedReason = FlowRemovedReason(2);
    /// OFPRR_GROUP_DELETE: the entry's group was deleted.
    pub const GROUP_DELETE: FlowRemovedReason = FlowRemovedReason(3);
    /// OFPRR_METER_DELETE: the entry's meter was deleted (1.4, 7.4.2).
    pub const METER_DELETE: FlowRemovedReason = FlowRemovedReason(4);
    /// OFPRR_EVICTION: the switch needed the entry's place (1.4, 7.4.2).
    pub const EVICTION: FlowRemovedReason = FlowRemovedReason(5);
}

/// OFPT_FLOW_REMOVED (1.3.5, 7.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Cookie of the entry.
    pub cookie: Cookie,
    /// Priority of the entry.
    pub priority: u16,
    /// Reason for the removal.
    pub reason: FlowRemovedReason,
    /// Table of the entry; 0 in 1.0.
    pub table_id: TableId,
    /// Age of the entry, whole seconds.
    pub duration_sec: u32,
    /// Age of the entry, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Idle time-out of the entry, in seconds.
    pub idle_timeout: u16,
    /// Hard time-out of the entry, in seconds; 1.2 and later.
    pub hard_timeout: u16,
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// Match of the entry.
    pub r#match: Match,
    /// 1.5: statistics that have no field above. In 1.5, a field above is all ones if the switch
    /// does not report it.
    pub stats: Vec<Stat>,
}

/// OFPPR_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortReason(pub u8);

impl PortReason {
    /// OFPPR_ADD: the port is new.
    pub const ADD: PortReason = PortReason(0);
    /// OFPPR_DELETE: the port was removed.
    pub const DELETE: PortReason = PortReason(1);
    /// OFPPR_MODIFY: the port has changed.
    pub const MODIFY: PortReason = PortReason(2);
}

/// OFPT_PORT_STATUS (1.3.5, 7.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Kind of change.
    pub reason: PortReason,
    /// The port after the change.
    pub port: Port,
}

impl PacketIn {
    /// Makes a PACKET_IN with a whole packet that matched no entry of table 0.
    pub fn new(in_port: PortNo, data: Bytes) -> PacketIn {
        PacketIn {
            buffer_id: None,
            total_len: u16::try_from(data.len()).unwrap_or(u16::MAX),
            reason: PacketInReason::NO_MATCH,
            table_id: TableId(0),
            cookie: Cookie(0),
            r#match: Match::any().with_in_port(in_port),
            data,
        }
    }
}

/// OFPT_PACKET_OUT (1.3.5, 7.3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// Packet kept by the switch; `None` if `data` holds the packet.
    pub buffer_id: Option<BufferId>,
    /// Ingress port. For a packet from no port, `CONTROLLER`, or `ANY` (OFPP_NONE) in 1.0.
    pub in_port: PortNo,
    /// Actions on the packet; an empty list drops it.
    pub actions: Vec<Action>,
    /// The packet; empty if `buffer_id` names it.
    pub data: Bytes,
    /// 1.5: pipeline fields of the packet except `in_port`, such as its tunnel.
    pub pipeline: Match,
}

impl PacketOut {
    /// Makes a PACKET_OUT with a packet that the switch has not buffered.
    pub fn new(in_port: PortNo, actions: Vec<Action>, data: Bytes) -> PacketOut {
        PacketOut {
            buffer_id: None,
            in_port,
            actions,
            data,
            pipeline: Match::any(),
        }
    }
}

/// OFPFC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowModCommand {
    /// OFPFC_ADD: adds an entry, and replaces an equal one.
    Add = 0,
    /// OFPFC_MODIFY: changes the instructions of all entries that the match covers.
    Modify = 1,
    /// OFPFC_MODIFY_STRICT: changes the instructions of the entry with this match and priority.
    ModifyStrict = 2,
    /// OFPFC_DELETE: deletes all entries that the match covers.
    Delete = 3,
    /// OFPFC_DELETE_STRICT: deletes the entry with this match and priority.
    DeleteStrict = 4,
}

impl FlowModCommand {
    /// Returns the command with this number; `None` above 4.
    pub fn from_wire(n: u8) -> Option<FlowModCommand> {
        use FlowModCommand::*;
        [Add, Modify, ModifyStrict, Delete, DeleteStrict]
            .into_iter()
            .find(|c| *c as u8 == n)
    }
}

flags! {
    /// OFPFF_*, in the numbering of 1.3.
    FlowModFlags(u16) {
        /// Sends FLOW_REMOVED when the entry is removed.
        SEND_FLOW_REM = 1 << 0;
        /// Refuses an entry that overlaps another entry of the same priority.
        CHECK_OVERLAP = 1 << 1;
        /// Sets the counters to zero; 1.2 and later. In 1.0 ADD always does.
        RESET_COUNTS = 1 << 2;
        /// Counts no packets; 1.3 and later.
        NO_PKT_COUNTS = 1 << 3;
        /// Counts no bytes; 1.3 and later.
        NO_BYT_COUNTS = 1 << 4;
        /// Marks an entry for use while the controller is lost; 1.0 only, where it is bit 2.
        EMERG = 1 << 15;
    }
}

/// OFPT_FLOW_MOD (1.3.5, 7.3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// Value that the controller assigns to the entry.
    pub cookie: Cookie,
    /// 1.1 and later: bits of the cookie that select entries for MODIFY and DELETE; 0 for all.
    pub cookie_mask: Cookie,
    /// Table; `ALL` for a delete in all tables. 0 in 1.0.
    pub table_id: TableId,
    /// Kind of change.
    pub command: FlowModCommand,
    /// Idle time-out: seconds without a packet; 0 for never.
    pub idle_timeout: u16,
    /// Hard time-out: seconds since the entry was set or modified; 0 for never.
    pub hard_timeout: u16,
    /// Priority; the matching entry with the highest priority wins.
    pub priority: u16,
    /// Packet kept by the switch that the new entry is applied to.
    pub buffer_id: Option<BufferId>,
    /// DELETE only entries that output to this port; `ANY` for all.
    pub out_port: PortNo,
    /// DELETE only entries that use this group; `ANY` for all.
    pub out_group: GroupId,
    /// Options of the entry.
    pub flags: FlowModFlags,
    /// Packets that the entry applies to.
    pub r#match: Match,
    /// Instructions of the entry. In 1.0, the list of actions is one `ApplyActions`.
    pub instructions: Vec<Instruction>,
    /// 1.4 and later: entries of less importance are evicted first.
    pub importance: u16,
}

impl FlowMod {
    /// Makes an ADD to table 0 without time-outs; set the fields that differ.
    pub fn add(priority: u16, r#match: Match, actions: Vec<Action>) -> FlowMod {
        FlowMod {
            cookie: Cookie(0),
            cookie_mask: Cookie(0),
            table_id: TableId(0),
            command: FlowModCommand::Add,
            idle_timeout: 0,
            hard_timeout: 0,
            priority,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            flags: FlowModFlags::empty(),
            r#match,
            instructions: vec![Instruction::ApplyActions(actions)],
            importance: 0,
        }
    }
}

/// OFPGC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupModCommand {
    /// OFPGC_ADD: adds a group.
    Add = 0,
    /// OFPGC_MODIFY: replaces a group.
    Modify = 1,
    /// OFPGC_DELETE: deletes a group, or all groups.
    Delete = 2,
    /// OFPGC_INSERT_BUCKET: adds buckets to a group; 1.5.
    InsertBucket = 3,
    /// OFPGC_REMOVE_BUCKET: removes buckets of a group; 1.5.
    RemoveBucket = 5,
}

/// OFPGT_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    /// OFPGT_ALL: runs all buckets.
    All = 0,
    /// OFPGT_SELECT: runs one bucket, chosen by the switch.
    Select = 1,
    /// OFPGT_INDIRECT: runs the only bucket.
    Indirect = 2,
    /// OFPGT_FF: runs the first live bucket.
    FastFailover = 3,
}

/// OFPT_GROUP_MOD (1.3.5, 7.3.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// Kind of change.
    pub command: GroupModCommand,
    /// Type of the group.
    pub group_type: GroupType,
    /// The group; `ALL` to delete all.
    pub group_id: GroupId,
    /// Buckets of the group.
    pub buckets: Vec<Bucket>,
    /// 1.5: the bucket to insert after, or the bucket to remove; `None` for all of the group.
    pub command_bucket: Option<BucketId>,
    /// 1.5: properties, in the order of the message.
    pub properties: Vec<Property>,
}

impl GroupMod {
    /// Makes a change of a whole group.
    pub fn new(
        command: GroupModCommand,
        group_type: GroupType,
        group_id: GroupId,
        buckets: Vec<Bucket>,
    ) -> GroupMod {
        GroupMod {
            command,
            group_type,
            group_id,
            buckets,
            command_bucket: None,
            properties: Vec::new(),
        }
    }
}

/// OFPT_PORT_MOD (1.3.5, 7.3.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Number of the port.
    pub port_no: PortNo,
    /// Hardware address, which must be the port's.
    pub hw_addr: MacAddr,
    /// Settings to write.
    pub config: PortConfig,
    /// Settings that change.
    pub mask: PortConfig,
    /// Features to advertise, as OFPPF_* in the numbering of 1.3; 0 changes nothing.
    pub advertise: u32,
    /// Properties except the Ethernet one, which is the field above; 1.4 and later.
    pub properties: Vec<PortModProperty>,
}

/// QUEUE_GET_CONFIG_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Port of the queues.
    pub port: PortNo,
    /// Queues of the port.
    pub queues: Vec<PacketQueue>,
}

/// A queue of a QUEUE_GET_CONFIG_REPLY (1.3.5, 7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketQueue {
    /// Number of the queue.
    pub queue_id: QueueId,
    /// Port of the queue; 1.2 and later.
    pub port: PortNo,
    /// Properties, in the order of the message.
    pub properties: Vec<QueueProperty>,
}

/// A property of a queue (1.3.5, 7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueProperty {
    /// Minimum rate, in 1/10 of a percent; above 1000 means not configured.
    MinRate(u16),
    /// Maximum rate, in 1/10 of a percent; above 1000 means not configured.
    MaxRate(u16),
    /// A vendor's property.
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id and its padding.
        data: Bytes,
    },
    /// A property without a name here: its type and the bytes after its 8-byte header.
    Other {
        /// Type of the property.
        property: u16,
        /// Bytes after the header.
        data: Bytes,
    },
}

/// OFPMC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterModCommand {
    /// OFPMC_ADD: adds a meter.
    Add = 0,
    /// OFPMC_MODIFY: replaces a meter.
    Modify = 1,
    /// OFPMC_DELETE: deletes a meter, or all meters.
    Delete = 2,
}

flags! {
    /// OFPMF_*.
    MeterFlags(u16) {
        /// Rates are in kbit/s.
        KBPS = 1 << 0;
        /// Rates are in packets per second.
        PKTPS = 1 << 1;
        /// Bands have a burst size.
        BURST = 1 << 2;
        /// Counts packets and bytes.
        STATS = 1 << 3;
    }
}

/// OFPT_METER_MOD (1.3.5, 7.3.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// Kind of change.
    pub command: MeterModCommand,
    /// Units and options of the bands.
    pub flags: MeterFlags,
    /// The meter; `ALL` to delete all.
    pub meter_id: MeterId,
    /// Bands of the meter.
    pub bands: Vec<MeterBand>,
}

/// A band of a meter: the treatment of packets above a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// Rate in kbit/s or packets/s, depending on the meter's flags.
    pub rate: u32,
    /// Burst in kbit or packets, depending on the meter's flags.
    pub burst_size: u32,
    /// Treatment of packets above the rate.
    pub kind: MeterBandKind,
}

/// Treatments of a meter band (OFPMBT_*).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// OFPMBT_DROP: drops the packet.
    Drop,
    /// OFPMBT_DSCP_REMARK: raises the drop precedence in the packet's DSCP.
    DscpRemark {
        /// Levels to add to the drop precedence.
        prec_level: u8,
    },
    /// A vendor's band.
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id.
        data: Bytes,
    },
}
