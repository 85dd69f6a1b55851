//! Multipart messages: requests for state, and the parts of their replies.
//!
//! A reply may be split into several messages with one xid; all but the last have `more` set. Lists
//! may be split between any two entries. A body that is not a list is never split.

use bytes::Bytes;

use crate::actions::{Bucket, Instruction};
use crate::error::DecodeError;
pub use crate::flow_monitor::*;
use crate::match_fields::Match;
use crate::message::{
    BundleFeatures, BundleFeaturesRequest, ControllerStatus, FlowModFlags, GroupType, MeterBand,
    MeterFlags, PacketQueue, Port, PortStatsProperty, Property, TableMod,
};
use crate::stat::Stat;
use crate::types::{Cookie, GroupId, MeterId, PortNo, QueueId, TableId};

/// OFPT_MULTIPART_REQUEST (1.3.5, 7.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartRequest {
    /// OFPMPF_REQ_MORE.
    pub more: bool,
    /// The request.
    pub body: RequestBody,
}

/// Bodies of a MULTIPART_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// OFPMP_DESC: description of the switch (7.3.5.1).
    Desc,
    /// OFPMP_FLOW: entries with their counters (7.3.5.2).
    Flow(FlowStatsRequest),
    /// OFPMP_AGGREGATE: sums over entries (7.3.5.3).
    Aggregate(FlowStatsRequest),
    /// OFPMP_TABLE: counters of tables (7.3.5.4).
    Table,
    /// OFPMP_PORT_STATS: counters of a port, or of all with `ANY` (7.3.5.6).
    PortStats(PortNo),
    /// OFPMP_QUEUE: counters of queues (7.3.5.8).
    Queue {
        /// Port of the queues; `ANY` for all ports.
        port: PortNo,
        /// The queue; `ALL` for all queues.
        queue: QueueId,
    },
    /// OFPMP_GROUP: counters of a group, or of all with `ALL` (7.3.5.9).
    Group(GroupId),
    /// OFPMP_GROUP_DESC: a group, or all with `ALL` (7.3.5.10); before 1.5 always all.
    GroupDesc(GroupId),
    /// OFPMP_GROUP_FEATURES: abilities of groups (7.3.5.11).
    GroupFeatures,
    /// OFPMP_METER: counters of a meter, or of all with `ALL` (7.3.5.12).
    Meter(MeterId),
    /// OFPMP_METER_CONFIG: a meter, or all with `ALL` (7.3.5.13).
    MeterConfig(MeterId),
    /// OFPMP_METER_FEATURES: abilities of meters (7.3.5.14).
    MeterFeatures,
    /// An empty list requests the features; tables in the list set them (1.3).
    TableFeatures(Vec<TableFeatures>),
    /// OFPMP_PORT_DESC: a port, or all with `ANY`, 1.3 and later (7.3.5.7); before 1.5 always all.
    PortDesc(PortNo),
    /// OFPMP_TABLE_DESC: configuration of all tables, 1.4 and later.
    TableDesc,
    /// OFPMP_QUEUE_DESC: configuration of queues, 1.4 and later.
    QueueDesc {
        /// Port of the queues; `ANY` for all ports.
        port: PortNo,
        /// The queue; `ALL` for all queues.
        queue: QueueId,
    },
    /// OFPMP_FLOW_MONITOR: reports of changes of entries, 1.4 and later.
    FlowMonitor(Vec<FlowMonitor>),
    /// OFPMP_FLOW_STATS of 1.5: counters of entries, without their instructions.
    FlowCounters(FlowStatsRequest),
    /// OFPMP_CONTROLLER_STATUS: the switch's controllers, 1.5.
    ControllerStatus,
    /// OFPMP_BUNDLE_FEATURES: abilities of bundles, 1.5.
    BundleFeatures(BundleFeaturesRequest),
    /// A vendor's request (7.3.5.15).
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id.
        data: Bytes,
    },
    /// A multipart type without a name here: its number and body.
    Other {
        /// Number of the multipart type.
        kind: u16,
        /// Bytes after the multipart header.
        body: Bytes,
    },
}

/// A row of flow statistics that cannot be read in full ([`crate::decode_rows`]): the parts that
/// can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    /// Table of the entry.
    pub table_id: TableId,
    /// Priority of the entry.
    pub priority: u16,
    /// Cookie of the entry.
    pub cookie: Cookie,
    /// Match of the entry; `None` if it cannot be read.
    pub r#match: Option<Match>,
    /// Reason why the row cannot be read.
    pub error: DecodeError,
}

/// OFPT_MULTIPART_REPLY (1.3.5, 7.3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// OFPMPF_REPLY_MORE.
    pub more: bool,
    /// The reply, or a part of it.
    pub body: ReplyBody,
}

/// Bodies of a MULTIPART_REPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// OFPMP_DESC: description of the switch (7.3.5.1).
    Desc(Description),
    /// OFPMP_FLOW: entries with their counters (7.3.5.2).
    Flow(Vec<FlowStats>),
    /// OFPMP_AGGREGATE: sums over entries (7.3.5.3).
    Aggregate(AggregateStats),
    /// OFPMP_TABLE: counters of tables (7.3.5.4).
    Table(Vec<TableStats>),
    /// OFPMP_PORT_STATS: counters of ports (7.3.5.6).
    PortStats(Vec<PortStats>),
    /// OFPMP_QUEUE: counters of queues (7.3.5.8).
    Queue(Vec<QueueStats>),
    /// OFPMP_GROUP: counters of groups (7.3.5.9).
    Group(Vec<GroupStats>),
    /// OFPMP_GROUP_DESC: groups (7.3.5.10).
    GroupDesc(Vec<GroupDesc>),
    /// OFPMP_GROUP_FEATURES: abilities of groups (7.3.5.11).
    GroupFeatures(GroupFeatures),
    /// OFPMP_METER: counters of meters (7.3.5.12).
    Meter(Vec<MeterStats>),
    /// OFPMP_METER_CONFIG: meters (7.3.5.13).
    MeterConfig(Vec<MeterConfig>),
    /// OFPMP_METER_FEATURES: abilities of meters (7.3.5.14).
    MeterFeatures(MeterFeatures),
    /// OFPMP_TABLE_FEATURES: abilities of tables (7.3.5.5).
    TableFeatures(Vec<TableFeatures>),
    /// OFPMP_PORT_DESC: ports (7.3.5.7).
    PortDesc(Vec<Port>),
    /// OFPMP_TABLE_DESC: tables, 1.4 and later.
    TableDesc(Vec<TableMod>),
    /// OFPMP_QUEUE_DESC: queues, 1.4 and later.
    QueueDesc(Vec<PacketQueue>),
    /// OFPMP_FLOW_MONITOR: changes of entries, 1.4 and later.
    FlowMonitor(Vec<FlowUpdate>),
    /// OFPMP_FLOW_STATS of 1.5: counters of entries.
    FlowCounters(Vec<FlowCounters>),
    /// OFPMP_CONTROLLER_STATUS: controllers, 1.5.
    ControllerStatus(Vec<ControllerStatus>),
    /// OFPMP_BUNDLE_FEATURES: abilities of bundles, 1.5.
    BundleFeatures(BundleFeatures),
    /// A vendor's reply (7.3.5.15).
    Experimenter {
        /// Experimenter id of the vendor.
        experimenter: u32,
        /// Bytes after the id.
        data: Bytes,
    },
    /// A multipart type without a name here.
    Other {
        /// Number of the multipart type.
        kind: u16,
        /// Bytes after the multipart header.
        body: Bytes,
    },
}

/// Entries that a FLOW or AGGREGATE request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatsRequest {
    /// Table; `ALL` for all tables.
    pub table_id: TableId,
    /// Only entries that output to this port; `ANY` for all.
    pub out_port: PortNo,
    /// Only entries that use this group; 1.1 and later.
    pub out_group: GroupId,
    /// Only entries with this cookie in the bits of the mask.
    pub cookie: Cookie,
    /// Bits of the cookie to compare; 0 for all entries.
    pub cookie_mask: Cookie,
    /// Only entries that this match covers.
    pub r#match: Match,
}

impl FlowStatsRequest {
    /// Selects every entry of every table.
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

/// Description of the switch: zero-terminated texts, cut at the first zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Manufacturer, as the switch wrote it.
    pub manufacturer: Bytes,
    /// Hardware, as the switch wrote it.
    pub hardware: Bytes,
    /// Software, as the switch wrote it.
    pub software: Bytes,
    /// Serial number, as the switch wrote it.
    pub serial: Bytes,
    /// Human-readable name of the datapath.
    pub datapath: Bytes,
}

/// An entry with its counters (1.3.5, 7.3.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Table of the entry.
    pub table_id: TableId,
    /// Age of the entry, whole seconds.
    pub duration_sec: u32,
    /// Age of the entry, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Priority of the entry.
    pub priority: u16,
    /// Idle time-out in seconds; 0 for none.
    pub idle_timeout: u16,
    /// Hard time-out in seconds; 0 for none.
    pub hard_timeout: u16,
    /// Flags of the entry; 1.3 and later.
    pub flags: FlowModFlags,
    /// Cookie of the entry.
    pub cookie: Cookie,
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// Match of the entry.
    pub r#match: Match,
    /// Instructions of the entry.
    pub instructions: Vec<Instruction>,
    /// Importance of the entry; 1.4 and later.
    pub importance: u16,
    /// 1.5: statistics that have no field above. In 1.5, a field above is all ones if the switch
    /// does not report it.
    pub stats: Vec<Stat>,
}

/// Counters of an entry (1.5.1, 7.3.5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowCounters {
    /// Table of the entry.
    pub table_id: TableId,
    /// OFPFSR_*: cause of the report.
    pub reason: u8,
    /// Priority of the entry.
    pub priority: u16,
    /// Match of the entry.
    pub r#match: Match,
    /// Statistics, in the order of the message.
    pub stats: Vec<Stat>,
}

/// Sums over entries (1.3.5, 7.3.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AggregateStats {
    /// Packets that matched.
    pub packet_count: u64,
    /// Bytes that matched.
    pub byte_count: u64,
    /// Number of entries.
    pub flow_count: u32,
    /// 1.5: statistics that have no field above. In 1.5, a field above is all ones if the switch
    /// does not report it.
    pub stats: Vec<Stat>,
}

/// Counters of a table (1.3.5, 7.3.5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table_id: TableId,
    /// Number of entries.
    pub active_count: u32,
    /// Packets looked up.
    pub lookup_count: u64,
    /// Packets that matched an entry.
    pub matched_count: u64,
    /// Up to 1.2: name (32 bytes), wildcards and max_entries.
    pub v10: Option<TableStatsV10>,
}

/// Fields of table statistics that versions up to 1.2 have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatsV10 {
    /// Name of the table.
    pub name: Bytes,
    /// Wildcards that the table supports, as OFPFW_*; 0 in 1.1 and 1.2.
    pub wildcards: u32,
    /// 1.1 and 1.2: bitmaps of the features that the table supports, as on the wire.
    pub features: Bytes,
    /// Number of entries that the table can hold.
    pub max_entries: u32,
}

/// Counters of a port; all ones means not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// Number of the port.
    pub port_no: PortNo,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets to send that were dropped.
    pub tx_dropped: u64,
    /// Receive errors, including the kinds below.
    pub rx_errors: u64,
    /// Send errors.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_err: u64,
    /// Receive overruns.
    pub rx_over_err: u64,
    /// Checksum errors.
    pub rx_crc_err: u64,
    /// Collisions.
    pub collisions: u64,
    /// Time that the port has been up, whole seconds; 1.3 and later.
    pub duration_sec: u32,
    /// Time that the port has been up, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Properties except the Ethernet one, which is fields above; 1.4 and later.
    pub properties: Vec<PortStatsProperty>,
}

/// Counters of a queue (1.3.5, 7.3.5.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Port of the queue.
    pub port_no: PortNo,
    /// Number of the queue.
    pub queue_id: QueueId,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped because of an overrun.
    pub tx_errors: u64,
    /// Time that the queue has existed, whole seconds; 1.3 and later.
    pub duration_sec: u32,
    /// Time that the queue has existed, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Properties, in the order of the message; 1.4 and later.
    pub properties: Vec<Property>,
}

/// Counters of a group (1.3.5, 7.3.5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group_id: GroupId,
    /// Number of entries and groups that refer to the group.
    pub ref_count: u32,
    /// Packets processed.
    pub packet_count: u64,
    /// Bytes processed.
    pub byte_count: u64,
    /// Age of the group, whole seconds.
    pub duration_sec: u32,
    /// Age of the group, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Packets and bytes per bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// A group (1.3.5, 7.3.5.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Type of the group.
    pub group_type: GroupType,
    /// The group.
    pub group_id: GroupId,
    /// Buckets of the group.
    pub buckets: Vec<Bucket>,
    /// 1.5: properties, in the order of the message.
    pub properties: Vec<Property>,
}

/// Abilities of groups, by type: all, select, indirect, fast failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bitmap of the [`GroupType`]s supported.
    pub types: u32,
    /// OFPGFC_* supported.
    pub capabilities: u32,
    /// Maximum number of groups, by type.
    pub max_groups: [u32; 4],
    /// Bitmap of OFPAT_* by type.
    pub actions: [u32; 4],
}

/// Counters of a meter (1.3.5, 7.3.5.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter_id: MeterId,
    /// Number of entries that use the meter.
    pub flow_count: u32,
    /// Packets that reached the meter.
    pub packet_in_count: u64,
    /// Bytes that reached the meter.
    pub byte_in_count: u64,
    /// Age of the meter, whole seconds.
    pub duration_sec: u32,
    /// Age of the meter, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Packets and bytes per band.
    pub bands: Vec<(u64, u64)>,
}

/// A meter (1.3.5, 7.3.5.13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Units and options of the bands.
    pub flags: MeterFlags,
    /// The meter.
    pub meter_id: MeterId,
    /// Bands of the meter.
    pub bands: Vec<MeterBand>,
}

/// Abilities of meters (1.3.5, 7.3.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub max_meter: u32,
    /// Bitmap of OFPMBT_* supported.
    pub band_types: u32,
    /// [`MeterFlags`] supported.
    pub capabilities: u32,
    /// Maximum number of bands in a meter.
    pub max_bands: u8,
    /// Highest color.
    pub max_color: u8,
    /// 1.5: OFPMFF_* supported, if the switch reports them.
    pub features: Option<u32>,
}

/// Abilities of a table (1.3.5, 7.3.5.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table_id: TableId,
    /// Name of the table: 32 bytes, cut at the first zero.
    pub name: Bytes,
    /// Metadata bits that can be matched.
    pub metadata_match: u64,
    /// Metadata bits that can be written.
    pub metadata_write: u64,
    /// OFPTC_* in 1.3 and 1.4, those supported in 1.5.
    pub config: u32,
    /// 1.5: OFPTFC_*, the effect of a request on the tables; 0 replaces them.
    pub command: u8,
    /// 1.5: OFPTFF_*.
    pub features: u32,
    /// Number of entries that the table can hold.
    pub max_entries: u32,
    /// Properties, in the order of the message.
    pub properties: Vec<TableFeatureProperty>,
}

/// A property of a table, by its type (OFPTFPT_*), as lists of ids. `miss` is the type's low bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableFeatureProperty {
    /// Ids of instructions (OFPTFPT_INSTRUCTIONS 0, _MISS 1).
    Instructions {
        /// `true` for the table-miss entry.
        miss: bool,
        /// Instructions supported.
        ids: Vec<FeatureId>,
    },
    /// OFPTFPT_NEXT_TABLES 2, _MISS 3.
    NextTables {
        /// `true` for the table-miss entry.
        miss: bool,
        /// Tables that GOTO_TABLE may name.
        tables: Vec<TableId>,
    },
    /// OFPTFPT_WRITE_ACTIONS 4, _MISS 5.
    WriteActions {
        /// `true` for the table-miss entry.
        miss: bool,
        /// Actions supported.
        ids: Vec<FeatureId>,
    },
    /// OFPTFPT_APPLY_ACTIONS 6, _MISS 7.
    ApplyActions {
        /// `true` for the table-miss entry.
        miss: bool,
        /// Actions supported.
        ids: Vec<FeatureId>,
    },
    /// OXM headers: OFPTFPT_MATCH 8, WILDCARDS 10, WRITE_SETFIELD 12/13, APPLY_SETFIELD 14/15;
    /// in 1.5 WRITE_COPYFIELD 18/19 and APPLY_COPYFIELD 20/21.
    Fields {
        /// Type of the property.
        property: u16,
        /// OXM headers of the fields.
        headers: Vec<u32>,
    },
    /// Any other property, also an experimenter's: its type and the bytes after its 4-byte header.
    Other {
        /// Type of the property.
        property: u16,
        /// Bytes after the header.
        data: Bytes,
    },
}

/// The id of an action or instruction in a feature list; data follows an experimenter's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureId {
    /// OFPIT_* or OFPAT_* number.
    pub id: u16,
    /// Experimenter id and the bytes after it, for a vendor's instruction or action.
    pub experimenter: Option<(u32, Bytes)>,
}
