//! Answers to multipart requests.

use bytes::Bytes;

use crate::error::ErrorKind;
use crate::message::{FlowModFlags, Message};
use crate::multipart::{
    AggregateStats, Description, FeatureId, FlowStats, FlowStatsRequest, GroupFeatures, GroupStats,
    MeterFeatures, MeterStats, MultipartReply, PortStats, ReplyBody, RequestBody,
    TableFeatureProperty, TableFeatures, TableStats, TableStatsV10,
};
use crate::types::{GroupId, MeterId, PortNo, TableId, Version};
use clock::Instant;

use super::flow::{Pattern, seconds};
use super::{FlowEntry, Switch};

/// Maximum number of entries in one message of an answer, to keep it below 64 KiB.
const ENTRIES_PER_REPLY: usize = 64;

/// Actions that any entry may apply, including the table-miss entry (OFPAT_*): OUTPUT, TTLs, pushes
/// and pops, SET_QUEUE, GROUP, SET_FIELD.
const ACTIONS: [u16; 12] = [0, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25];

/// A value that is not counted (OpenFlow 1.3.1, 7.3.5.6).
const NOT_COUNTED: u64 = u64::MAX;

/// Statistics of a port without any traffic.
pub(super) fn no_traffic(port_no: PortNo) -> PortStats {
    PortStats {
        port_no,
        rx_packets: 0,
        tx_packets: 0,
        rx_bytes: 0,
        tx_bytes: 0,
        rx_dropped: NOT_COUNTED,
        tx_dropped: NOT_COUNTED,
        rx_errors: NOT_COUNTED,
        tx_errors: NOT_COUNTED,
        rx_frame_err: NOT_COUNTED,
        rx_over_err: NOT_COUNTED,
        rx_crc_err: NOT_COUNTED,
        collisions: NOT_COUNTED,
        duration_sec: 0,
        duration_nsec: 0,
        properties: Vec::new(),
    }
}

pub(super) fn answer(
    switch: &Switch,
    now: Instant,
    request: &RequestBody,
) -> Result<Vec<Message>, ErrorKind> {
    // In 1.0 flow statistics have no flags, and port statistics no age.
    let v10 = switch.options.version == Version::V10;
    Ok(match request {
        RequestBody::Desc => one(ReplyBody::Desc(description(switch))),
        RequestBody::Flow(r) => {
            let entries = selected(switch, r)?.into_iter();
            let list = entries.map(|e| FlowStats {
                flags: if v10 { FlowModFlags::empty() } else { e.flags },
                ..e.stats(now)
            });
            in_parts(list.collect(), ReplyBody::Flow)
        }
        RequestBody::Aggregate(r) => {
            let entries = selected(switch, r)?;
            one(ReplyBody::Aggregate(AggregateStats {
                packet_count: entries.iter().map(|e| e.packet_count).sum(),
                byte_count: entries.iter().map(|e| e.byte_count).sum(),
                flow_count: entries.len() as u32,
                stats: Vec::new(),
            }))
        }
        RequestBody::Table => in_parts(tables(switch), ReplyBody::Table),
        RequestBody::PortStats(port) => {
            let ports = switch.ports.iter();
            let wanted = ports.filter(|(number, _)| *port == PortNo::ANY || **number == *port);
            let list: Vec<PortStats> = wanted
                .map(|(_, record)| {
                    if v10 {
                        record.stats.clone()
                    } else {
                        port_stats(record, now)
                    }
                })
                .collect();
            if list.is_empty() && *port != PortNo::ANY {
                return Err(ErrorKind::BAD_PORT);
            }
            in_parts(list, ReplyBody::PortStats)
        }
        RequestBody::Queue { .. } => one(ReplyBody::Queue(Vec::new())),
        RequestBody::Group(id) => in_parts(groups(switch, now, *id), ReplyBody::Group),
        RequestBody::GroupDesc(_) => in_parts(switch.groups().collect(), ReplyBody::GroupDesc),
        RequestBody::GroupFeatures => one(ReplyBody::GroupFeatures(group_features(switch))),
        RequestBody::Meter(id) => in_parts(meters(switch, now, *id)?, ReplyBody::Meter),
        RequestBody::MeterConfig(id) => {
            let wanted = |m: &MeterId| *id == MeterId::ALL || m == id;
            let configs = switch.meters().filter(|meter| wanted(&meter.meter_id));
            in_parts(configs.collect(), ReplyBody::MeterConfig)
        }
        RequestBody::MeterFeatures => one(ReplyBody::MeterFeatures(MeterFeatures {
            max_meter: switch.options.meters_max as u32,
            // OFPMBT_DROP and OFPMBT_DSCP_REMARK.
            band_types: 1 << 1 | 1 << 2,
            capabilities: 0xf,
            max_bands: u8::MAX,
            max_color: 0,
            features: None,
        })),
        RequestBody::PortDesc(_) => {
            in_parts(switch.ports().cloned().collect(), ReplyBody::PortDesc)
        }
        // The features of a table cannot be changed.
        RequestBody::TableFeatures(set) if set.is_empty() => {
            in_parts(table_features(switch), ReplyBody::TableFeatures)
        }
        RequestBody::TableFeatures(_)
        | RequestBody::Other { .. }
        | RequestBody::TableDesc
        | RequestBody::QueueDesc { .. }
        | RequestBody::FlowMonitor(_)
        | RequestBody::FlowCounters(_)
        | RequestBody::ControllerStatus
        | RequestBody::BundleFeatures(_) => {
            return Err(ErrorKind::BAD_MULTIPART);
        }
        RequestBody::Experimenter { .. } => return Err(ErrorKind::BAD_EXPERIMENTER),
    })
}

fn one(body: ReplyBody) -> Vec<Message> {
    let more = false;
    vec![Message::MultipartReply(MultipartReply { more, body })]
}

/// Splits a list into as many messages as it needs, at least one.
fn in_parts<T>(mut list: Vec<T>, body: impl Fn(Vec<T>) -> ReplyBody) -> Vec<Message> {
    let mut messages = Vec::new();
    loop {
        let rest = list.split_off(list.len().min(ENTRIES_PER_REPLY));
        let more = !rest.is_empty();
        let body = body(list);
        messages.push(Message::MultipartReply(MultipartReply { more, body }));
        if !more {
            return messages;
        }
        list = rest;
    }
}

fn selected<'a>(switch: &'a Switch, r: &FlowStatsRequest) -> Result<Vec<&'a FlowEntry>, ErrorKind> {
    let pattern = Pattern::new(&r.r#match)?;
    if r.table_id != TableId::ALL {
        switch.check_table(r.table_id, ErrorKind::BAD_TABLE_ID)?;
    }
    let chosen = switch.entries().filter(|e| {
        (r.table_id == TableId::ALL || r.table_id == e.table_id)
            && e.pattern.is_within(&pattern)
            && (e.cookie.0 ^ r.cookie.0) & r.cookie_mask.0 == 0
            && switch.outputs(e, r.out_port, r.out_group)
    });
    Ok(chosen.collect())
}

fn description(switch: &Switch) -> Description {
    Description {
        manufacturer: Bytes::from_static(b"auster"),
        hardware: Bytes::from_static(switch.options.hardware.as_bytes()),
        software: Bytes::from_static(env!("CARGO_PKG_VERSION").as_bytes()),
        serial: Bytes::from_static(b"None"),
        datapath: Bytes::from_static(b"None"),
    }
}

fn tables(switch: &Switch) -> Vec<TableStats> {
    let v10 = |number: u8| TableStatsV10 {
        name: Bytes::from(format!("table{number}")),
        // OFPFW_ALL.
        wildcards: (1 << 22) - 1,
        features: Bytes::new(),
        max_entries: switch.options.entries_max as u32,
    };
    let stats = |(number, table): (u8, &super::FlowTable)| TableStats {
        table_id: TableId(number),
        active_count: table.len() as u32,
        lookup_count: table.lookup_count,
        matched_count: table.matched_count,
        v10: (switch.options.version == Version::V10).then(|| v10(number)),
    };
    (0u8..).zip(&switch.tables).map(stats).collect()
}

/// Returns the tables with their sizes and actions. Floodlight sets a table-miss entry only if the
/// table names OUTPUT among that entry's actions.
fn table_features(switch: &Switch) -> Vec<TableFeatures> {
    let id = |id: u16| FeatureId {
        id,
        experimenter: None,
    };
    let actions = |miss: bool| TableFeatureProperty::ApplyActions {
        miss,
        ids: ACTIONS.map(id).to_vec(),
    };
    let features = |number: u8| TableFeatures {
        table_id: TableId(number),
        name: Bytes::from(format!("table{number}")),
        metadata_match: 0,
        metadata_write: 0,
        config: 0,
        max_entries: u32::try_from(switch.options.entries_max).unwrap_or(u32::MAX),
        properties: [false, true].map(actions).to_vec(),
        command: 0,
        features: 0,
    };
    (0..switch.options.n_tables).map(features).collect()
}

fn port_stats(record: &super::PortRecord, now: Instant) -> PortStats {
    let lived = now.since(record.added_at);
    PortStats {
        duration_sec: seconds(lived),
        duration_nsec: lived.subsec_nanos(),
        ..record.stats.clone()
    }
}

fn groups(switch: &Switch, now: Instant, id: GroupId) -> Vec<GroupStats> {
    let wanted = |g: &GroupId| id == GroupId::ALL || *g == id;
    let chosen = switch.groups.iter().filter(|(g, _)| wanted(g));
    let stats = |(group_id, group): (GroupId, &super::group::Group)| {
        let lived = now.since(group.created_at);
        GroupStats {
            group_id,
            ref_count: switch.entries().filter(|e| e.uses_group(group_id)).count() as u32,
            packet_count: group.packet_count,
            byte_count: group.byte_count,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            buckets: group.bucket_counts.clone(),
        }
    };
    chosen.map(stats).collect()
}

fn group_features(switch: &Switch) -> GroupFeatures {
    // OFPGFC_SELECT_WEIGHT, SELECT_LIVENESS and CHAINING; OFPAT_* as carried out.
    const ACTIONS: u32 = 1 | 1 << 15 | 0xff << 17 | 1 << 25;
    GroupFeatures {
        types: switch.options.group_types,
        capabilities: 0x7,
        max_groups: [switch.options.groups_max as u32; 4],
        actions: [ACTIONS; 4],
    }
}

fn meters(switch: &Switch, now: Instant, id: MeterId) -> Result<Vec<MeterStats>, ErrorKind> {
    if id != MeterId::ALL && switch.meters.get(id).is_none() {
        return Err(ErrorKind::METER_UNKNOWN_METER);
    }
    let wanted = |m: &MeterId| id == MeterId::ALL || *m == id;
    let chosen = switch.meters.iter().filter(|(m, _)| wanted(m));
    let stats = |(meter_id, meter): (MeterId, &super::group::Meter)| {
        let lived = now.since(meter.created_at);
        MeterStats {
            meter_id,
            flow_count: switch.meter_flow_count(meter_id),
            packet_in_count: meter.packet_count,
            byte_in_count: meter.byte_count,
            duration_sec: seconds(lived),
            duration_nsec: lived.subsec_nanos(),
            bands: vec![(0, 0); meter.config.bands.len()],
        }
    };
    Ok(chosen.map(stats).collect())
}
