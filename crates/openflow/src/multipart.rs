//! Multipart messages: the questions about state, and the parts of their answers.
//!
//! A reply may come in several messages of one xid, all but the last with `more` set. Lists may
//! be split between any two entries; a body that is no list comes whole.

use bytes::Bytes;

use crate::actions::{Bucket, Instruction};
use crate::error::DecodeError;
use crate::match_fields::Match;
use crate::message::{FlowModFlags, GroupType, MeterBand, MeterFlags, Port};
use crate::types::{Cookie, GroupId, MeterId, PortNo, QueueId, TableId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartRequest {
    /// OFPMPF_REQ_MORE.
    pub more: bool,
    pub body: RequestBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBody {
    Desc,
    Flow(FlowStatsRequest),
    Aggregate(FlowStatsRequest),
    Table,
    PortStats(PortNo),
    Queue {
        port: PortNo,
        queue: QueueId,
    },
    Group(GroupId),
    GroupDesc,
    GroupFeatures,
    Meter(MeterId),
    MeterConfig(MeterId),
    MeterFeatures,
    /// Empty asks; tables in it set (1.3).
    TableFeatures(Vec<TableFeatures>),
    PortDesc,
    Experimenter {
        experimenter: u32,
        data: Bytes,
    },
    /// A multipart type without a name here: its number and body.
    Other {
        kind: u16,
        body: Bytes,
    },
}

/// A row of flow statistics that cannot be read ([`crate::decode_rows`]), as far as it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub table_id: TableId,
    pub priority: u16,
    pub cookie: Cookie,
    /// `None` if it is what cannot be read.
    pub r#match: Option<Match>,
    pub error: DecodeError,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// OFPMPF_REPLY_MORE.
    pub more: bool,
    pub body: ReplyBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    Desc(Description),
    Flow(Vec<FlowStats>),
    Aggregate(AggregateStats),
    Table(Vec<TableStats>),
    PortStats(Vec<PortStats>),
    Queue(Vec<QueueStats>),
    Group(Vec<GroupStats>),
    GroupDesc(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meter(Vec<MeterStats>),
    MeterConfig(Vec<MeterConfig>),
    MeterFeatures(MeterFeatures),
    TableFeatures(Vec<TableFeatures>),
    PortDesc(Vec<Port>),
    Experimenter { experimenter: u32, data: Bytes },
    Other { kind: u16, body: Bytes },
}

/// Which entries a FLOW or AGGREGATE request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    pub table_id: TableId,
    pub out_port: PortNo,
    /// 1.1 and later.
    pub out_group: GroupId,
    pub cookie: Cookie,
    pub cookie_mask: Cookie,
    pub r#match: Match,
}

impl FlowStatsRequest {
    /// Every entry of every table.
    pub fn all() -> FlowStatsRequest {
        FlowStatsRequest {
            table_id: TableId::ALL,
            out_port: PortNo::ANY,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: Cookie(0),
            r#match: Match::any(),
        }
    }
}

/// Zero-terminated texts, cut at the first zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    pub manufacturer: Bytes,
    pub hardware: Bytes,
    pub software: Bytes,
    pub serial: Bytes,
    pub datapath: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    pub table_id: TableId,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub priority: u16,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    /// 1.3 and later.
    pub flags: FlowModFlags,
    pub cookie: Cookie,
    pub packet_count: u64,
    pub byte_count: u64,
    pub r#match: Match,
    pub instructions: Vec<Instruction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregateStats {
    pub packet_count: u64,
    pub byte_count: u64,
    pub flow_count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    pub table_id: TableId,
    pub active_count: u32,
    pub lookup_count: u64,
    pub matched_count: u64,
    /// 1.0 only: name (32 bytes), wildcards and max_entries.
    pub v10: Option<TableStatsV10>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatsV10 {
    pub name: Bytes,
    pub wildcards: u32,
    pub max_entries: u32,
}

/// Counters of a port; all ones means not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStats {
    pub port_no: PortNo,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// 1.3 and later.
    pub duration_sec: u32,
    pub duration_nsec: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    pub port_no: PortNo,
    pub queue_id: QueueId,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// 1.3 and later.
    pub duration_sec: u32,
    pub duration_nsec: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    pub group_id: GroupId,
    pub ref_count: u32,
    pub packet_count: u64,
    pub byte_count: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    /// Packets and bytes per bucket.
    pub buckets: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    pub group_type: GroupType,
    pub group_id: GroupId,
    pub buckets: Vec<Bucket>,
}

/// Per group type: all, select, indirect, fast failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    pub types: u32,
    pub capabilities: u32,
    pub max_groups: [u32; 4],
    pub actions: [u32; 4],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    pub meter_id: MeterId,
    pub flow_count: u32,
    pub packet_in_count: u64,
    pub byte_in_count: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    /// Packets and bytes per band.
    pub bands: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    pub flags: MeterFlags,
    pub meter_id: MeterId,
    pub bands: Vec<MeterBand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    pub max_meter: u32,
    pub band_types: u32,
    pub capabilities: u32,
    pub max_bands: u8,
    pub max_color: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    pub table_id: TableId,
    /// 32 bytes, cut at the first zero.
    pub name: Bytes,
    pub metadata_match: u64,
    pub metadata_write: u64,
    pub config: u32,
    pub max_entries: u32,
    pub properties: Vec<TableFeatureProperty>,
}

/// A property of a table, by its type (OFPTFPT_*), as lists of ids. `miss` is the type's low bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableFeatureProperty {
    /// Ids of instructions (OFPTFPT_INSTRUCTIONS 0, _MISS 1).
    Instructions { miss: bool, ids: Vec<FeatureId> },
    /// OFPTFPT_NEXT_TABLES 2, _MISS 3.
    NextTables { miss: bool, tables: Vec<TableId> },
    /// OFPTFPT_WRITE_ACTIONS 4, _MISS 5.
    WriteActions { miss: bool, ids: Vec<FeatureId> },
    /// OFPTFPT_APPLY_ACTIONS 6, _MISS 7.
    ApplyActions { miss: bool, ids: Vec<FeatureId> },
    /// OXM headers: OFPTFPT_MATCH 8, WILDCARDS 10, WRITE_SETFIELD 12/13, APPLY_SETFIELD 14/15.
    Fields { property: u16, headers: Vec<u32> },
    /// Anything else (experimenters' among them): type, and what follows its 4-byte header.
    Other { property: u16, data: Bytes },
}

/// The id of an action or instruction in a feature list; an experimenter's has data after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureId {
    pub id: u16,
    pub experimenter: Option<(u32, Bytes)>,
}
