//! Messages as values: one form for all versions, in the vocabulary of OpenFlow 1.5.
//!
//! What a version cannot say is an [`EncodeError::Unsupported`](crate::EncodeError), never a guess.
//! Sizes of the bodies follow the specification; fields that are only padding are not kept.

use bytes::Bytes;

use crate::actions::{Action, Bucket, Instruction};
use crate::error::ErrorKind;
pub use crate::hello::Hello;
use crate::kind::MessageKind;
use crate::match_fields::Match;
pub use crate::multipart::{MultipartReply, MultipartRequest};
use crate::types::{
    BufferId, Cookie, DatapathId, GroupId, MacAddr, MeterId, PortNo, QueueId, TableId, flags,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Hello(Hello),
    Error(ErrorMessage),
    EchoRequest(Bytes),
    EchoReply(Bytes),
    Experimenter(Experimenter),
    FeaturesRequest,
    FeaturesReply(SwitchFeatures),
    GetConfigRequest,
    GetConfigReply(SwitchConfig),
    SetConfig(SwitchConfig),
    PacketIn(PacketIn),
    FlowRemoved(FlowRemoved),
    PortStatus(PortStatus),
    PacketOut(PacketOut),
    FlowMod(FlowMod),
    GroupMod(GroupMod),
    PortMod(PortMod),
    TableMod(TableMod),
    MultipartRequest(MultipartRequest),
    MultipartReply(MultipartReply),
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest { port: PortNo },
    QueueGetConfigReply(QueueConfig),
    RoleRequest(RoleMessage),
    RoleReply(RoleMessage),
    GetAsyncRequest,
    GetAsyncReply(AsyncConfig),
    SetAsync(AsyncConfig),
    MeterMod(MeterMod),
}

impl Message {
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
            Message::GetAsyncRequest => K::GetAsyncRequest,
            Message::GetAsyncReply(_) => K::GetAsyncReply,
            Message::SetAsync(_) => K::SetAsync,
            Message::MeterMod(_) => K::MeterMod,
        }
    }
}

/// OFPT_ERROR. `data` is at least 64 bytes of the message that was refused, or text for HELLO_FAILED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    pub kind: ErrorKind,
    /// Present in OFPET_EXPERIMENTER (0xffff) errors, where `kind.code` is the vendor's type.
    pub experimenter: Option<u32>,
    pub data: Bytes,
}

/// OFPT_EXPERIMENTER, or OFPT_VENDOR in 1.0: everything after the id, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    pub experimenter: u32,
    /// In 1.1 and later the first four bytes are the vendor's type, by convention.
    pub data: Bytes,
}

impl Experimenter {
    /// Nicira, whose extensions Open vSwitch speaks.
    pub const NICIRA: u32 = 0x0000_2320;
    /// The Open Networking Foundation's own extensions (bundles for 1.3 among them).
    pub const ONF: u32 = 0x4f4e_4600;
}

/// OFPT_FEATURES_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFeatures {
    pub datapath_id: DatapathId,
    pub n_buffers: u32,
    pub n_tables: u8,
    /// 1.3 and later: 0 on the main connection.
    pub auxiliary_id: u8,
    pub capabilities: Capabilities,
    /// 1.0 only: bitmap of OFPAT_* supported. 1.3 has it as a reserved field.
    pub actions: u32,
    /// 1.0 only; later versions ask for PORT_DESC.
    pub ports: Vec<Port>,
}

flags! {
    /// OFPC_*, in the numbering of 1.3; 1.0's STP is bit 3 there.
    Capabilities(u32) {
        FLOW_STATS = 1 << 0;
        TABLE_STATS = 1 << 1;
        PORT_STATS = 1 << 2;
        /// GROUP_STATS in 1.3, STP in 1.0.
        GROUP_STATS = 1 << 3;
        IP_REASM = 1 << 5;
        QUEUE_STATS = 1 << 6;
        /// ARP_MATCH_IP in 1.0.
        ARP_MATCH_IP = 1 << 7;
        PORT_BLOCKED = 1 << 8;
    }
}

/// GET_CONFIG_REPLY and SET_CONFIG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Fragment handling: 0 normal, 1 drop, 2 reassemble.
    pub flags: u16,
    pub miss_send_len: u16,
}

/// A port and its state (ofp_phy_port, ofp_port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub port_no: PortNo,
    pub hw_addr: MacAddr,
    /// Zero-terminated in a field of 16 bytes; whole bytes kept, so that odd names pass.
    pub name: PortName,
    pub config: PortConfig,
    pub state: PortState,
    /// OFPPF_* in the numbering of 1.3.
    pub curr: u32,
    pub advertised: u32,
    pub supported: u32,
    pub peer: u32,
    /// kbit/s; 1.1 and later.
    pub curr_speed: u32,
    pub max_speed: u32,
}

/// A fixed text field of the protocol, trailing zeros cut off.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortName(pub [u8; 16]);

impl PortName {
    /// Cuts names of more than 15 bytes.
    pub fn new(name: &str) -> PortName {
        let mut bytes = [0; 16];
        let len = name.len().min(15);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        PortName(bytes)
    }

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
        PORT_DOWN = 1 << 0;
        NO_STP = 1 << 1;
        NO_RECV = 1 << 2;
        NO_RECV_STP = 1 << 3;
        NO_FLOOD = 1 << 4;
        NO_FWD = 1 << 5;
        NO_PACKET_IN = 1 << 6;
    }
}

flags! {
    /// OFPPS_*. 1.0 has its STP state in bits 8 and 9.
    PortState(u32) {
        LINK_DOWN = 1 << 0;
        BLOCKED = 1 << 1;
        LIVE = 1 << 2;
    }
}

impl Port {
    /// Neither administratively down nor without link.
    pub fn is_up(&self) -> bool {
        !self.config.contains(PortConfig::PORT_DOWN) && !self.state.contains(PortState::LINK_DOWN)
    }
}

/// Why a packet went to the controller (OFPR_*); 1.0 and 1.3 share 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketInReason(pub u8);

impl PacketInReason {
    pub const NO_MATCH: PacketInReason = PacketInReason(0);
    pub const ACTION: PacketInReason = PacketInReason(1);
    pub const INVALID_TTL: PacketInReason = PacketInReason(2);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    pub buffer_id: Option<BufferId>,
    /// Length of the packet before it was cut.
    pub total_len: u16,
    pub reason: PacketInReason,
    /// 1.1 and later; 0 in 1.0.
    pub table_id: TableId,
    /// 1.3 and later; all ones in earlier versions.
    pub cookie: Cookie,
    /// Holds at least the in_port.
    pub r#match: Match,
    pub data: Bytes,
}

/// Why an entry went (OFPRR_*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowRemovedReason(pub u8);

impl FlowRemovedReason {
    pub const IDLE_TIMEOUT: FlowRemovedReason = FlowRemovedReason(0);
    pub const HARD_TIMEOUT: FlowRemovedReason = FlowRemovedReason(1);
    pub const DELETE: FlowRemovedReason = FlowRemovedReason(2);
    pub const GROUP_DELETE: FlowRemovedReason = FlowRemovedReason(3);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    pub cookie: Cookie,
    pub priority: u16,
    pub reason: FlowRemovedReason,
    pub table_id: TableId,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub idle_timeout: u16,
    /// 1.2 and later.
    pub hard_timeout: u16,
    pub packet_count: u64,
    pub byte_count: u64,
    pub r#match: Match,
}

/// OFPPR_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortReason(pub u8);

impl PortReason {
    pub const ADD: PortReason = PortReason(0);
    pub const DELETE: PortReason = PortReason(1);
    pub const MODIFY: PortReason = PortReason(2);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    pub reason: PortReason,
    pub port: Port,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    pub buffer_id: Option<BufferId>,
    /// `CONTROLLER` when the packet came from no port; `ANY` (OFPP_NONE) in 1.0.
    pub in_port: PortNo,
    pub actions: Vec<Action>,
    /// Empty when `buffer_id` names the packet.
    pub data: Bytes,
}

/// OFPFC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowModCommand {
    Add = 0,
    Modify = 1,
    ModifyStrict = 2,
    Delete = 3,
    DeleteStrict = 4,
}

impl FlowModCommand {
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
        SEND_FLOW_REM = 1 << 0;
        CHECK_OVERLAP = 1 << 1;
        /// 1.2 and later; in 1.0 ADD always does.
        RESET_COUNTS = 1 << 2;
        NO_PKT_COUNTS = 1 << 3;
        NO_BYT_COUNTS = 1 << 4;
        /// 1.0 only, as bit 2 there: an entry for when the controller is lost.
        EMERG = 1 << 15;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    pub cookie: Cookie,
    /// 1.1 and later: which entries MODIFY and DELETE concern; 0 for all.
    pub cookie_mask: Cookie,
    pub table_id: TableId,
    pub command: FlowModCommand,
    /// Seconds without a packet; 0 for never.
    pub idle_timeout: u16,
    /// Seconds since set or modified; 0 for never.
    pub hard_timeout: u16,
    pub priority: u16,
    pub buffer_id: Option<BufferId>,
    /// DELETE only entries that output here; `ANY` for all.
    pub out_port: PortNo,
    pub out_group: GroupId,
    pub flags: FlowModFlags,
    pub r#match: Match,
    /// 1.0 has its list of actions as one `ApplyActions`.
    pub instructions: Vec<Instruction>,
}

impl FlowMod {
    /// ADD to table 0 with no timeouts: fill in what differs.
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
        }
    }
}

/// OFPGC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupModCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

/// OFPGT_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    All = 0,
    Select = 1,
    Indirect = 2,
    FastFailover = 3,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    pub command: GroupModCommand,
    pub group_type: GroupType,
    pub group_id: GroupId,
    pub buckets: Vec<Bucket>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    pub port_no: PortNo,
    pub hw_addr: MacAddr,
    pub config: PortConfig,
    pub mask: PortConfig,
    /// OFPPF_* in the numbering of 1.3; 0 leaves it alone.
    pub advertise: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    pub table_id: TableId,
    /// Deprecated in 1.3 and kept.
    pub config: u32,
}

/// QUEUE_GET_CONFIG_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    pub port: PortNo,
    pub queues: Vec<PacketQueue>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketQueue {
    pub queue_id: QueueId,
    /// 1.2 and later.
    pub port: PortNo,
    pub properties: Vec<QueueProperty>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueProperty {
    /// In 1/10 of a percent; above 1000 means not configured.
    MinRate(u16),
    MaxRate(u16),
    Experimenter {
        experimenter: u32,
        data: Bytes,
    },
    /// A property this crate has no name for: type and what follows its 8-byte header.
    Other {
        property: u16,
        data: Bytes,
    },
}

/// OFPCR_ROLE_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Role {
    NoChange = 0,
    Equal = 1,
    /// OFPCR_ROLE_MASTER.
    Primary = 2,
    /// OFPCR_ROLE_SLAVE.
    Secondary = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    pub role: Role,
    /// Master election: a request with an older one is refused as STALE.
    pub generation_id: u64,
}

/// SET_ASYNC and GET_ASYNC_REPLY: bit n lets reason n through; `[0]` as master or equal, `[1]` as
/// slave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    pub packet_in_mask: [u32; 2],
    pub port_status_mask: [u32; 2],
    pub flow_removed_mask: [u32; 2],
}

/// OFPMC_*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterModCommand {
    Add = 0,
    Modify = 1,
    Delete = 2,
}

flags! {
    /// OFPMF_*.
    MeterFlags(u16) {
        KBPS = 1 << 0;
        PKTPS = 1 << 1;
        BURST = 1 << 2;
        STATS = 1 << 3;
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    pub command: MeterModCommand,
    pub flags: MeterFlags,
    pub meter_id: MeterId,
    pub bands: Vec<MeterBand>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// kbit/s or packets/s, by the meter's flags.
    pub rate: u32,
    pub burst_size: u32,
    pub kind: MeterBandKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    Drop,
    DscpRemark { prec_level: u8 },
    Experimenter { experimenter: u32, data: Bytes },
}
