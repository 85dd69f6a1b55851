//! Multipart requests and replies as `ovs-ofctl ofp-print` writes them.

use std::fmt::{self, Write};

use bytes::Bytes;

use crate::multipart::*;
use crate::stat::Stat;
use crate::types::{GroupId, PortNo, QueueId, TableId, Version};

use super::messages::{self, meter_id};
use super::{flow, later, names, values};

pub(super) fn request_name(body: &RequestBody) -> String {
    let known = match body {
        RequestBody::Desc => 0,
        RequestBody::Flow(_) => 1,
        RequestBody::Aggregate(_) => 2,
        RequestBody::Table => 3,
        RequestBody::PortStats(_) => 4,
        RequestBody::Queue { .. } => 5,
        RequestBody::Group(_) => 6,
        RequestBody::GroupDesc(_) => 7,
        RequestBody::GroupFeatures => 8,
        RequestBody::Meter(_) => 9,
        RequestBody::MeterConfig(_) => 10,
        RequestBody::MeterFeatures => 11,
        RequestBody::TableFeatures(_) => 12,
        RequestBody::PortDesc(_) => 13,
        RequestBody::TableDesc => 14,
        RequestBody::QueueDesc { .. } => 15,
        RequestBody::FlowMonitor(_) => 16,
        RequestBody::FlowCounters(_) => 17,
        RequestBody::ControllerStatus => 18,
        RequestBody::BundleFeatures(_) => 19,
        RequestBody::Experimenter { .. } => return "EXPERIMENTER".into(),
        RequestBody::Other { kind, .. } => return kind.to_string(),
    };
    names::multipart(known).to_owned()
}

pub(super) fn reply_name(body: &ReplyBody) -> String {
    let known = match body {
        ReplyBody::Desc(_) => 0,
        ReplyBody::Flow(_) => 1,
        ReplyBody::Aggregate(_) => 2,
        ReplyBody::Table(_) => 3,
        ReplyBody::PortStats(_) => 4,
        ReplyBody::Queue(_) => 5,
        ReplyBody::Group(_) => 6,
        ReplyBody::GroupDesc(_) => 7,
        ReplyBody::GroupFeatures(_) => 8,
        ReplyBody::Meter(_) => 9,
        ReplyBody::MeterConfig(_) => 10,
        ReplyBody::MeterFeatures(_) => 11,
        ReplyBody::TableFeatures(_) => 12,
        ReplyBody::PortDesc(_) => 13,
        ReplyBody::TableDesc(_) => 14,
        ReplyBody::QueueDesc(_) => 15,
        ReplyBody::FlowMonitor(_) => 16,
        ReplyBody::FlowCounters(_) => 17,
        ReplyBody::ControllerStatus(_) => 18,
        ReplyBody::BundleFeatures(_) => 19,
        ReplyBody::Experimenter { .. } => return "EXPERIMENTER".into(),
        ReplyBody::Other { kind, .. } => return kind.to_string(),
    };
    names::multipart(known).to_owned()
}

pub(super) fn request(w: &mut String, version: Version, m: &MultipartRequest) -> fmt::Result {
    if m.more {
        w.push_str(" flags=[more]");
    }
    match &m.body {
        RequestBody::Desc
        | RequestBody::Table
        | RequestBody::TableDesc
        | RequestBody::ControllerStatus
        | RequestBody::GroupFeatures
        | RequestBody::MeterFeatures => Ok(()),
        RequestBody::Flow(m) | RequestBody::Aggregate(m) | RequestBody::FlowCounters(m) => {
            flow_request(w, m)
        }
        RequestBody::QueueDesc { port, queue } => {
            write!(w, " port={port}")?;
            match *queue {
                QueueId::ALL => Ok(()),
                queue => write!(w, " queue={}", queue_id(queue)),
            }
        }
        RequestBody::FlowMonitor(monitors) => monitors
            .iter()
            .try_for_each(|m| later::flow_monitor(w, version, m)),
        RequestBody::BundleFeatures(m) => {
            write!(w, " flags={:#x}", m.flags)?;
            later::bundle_features(w, &m.properties)
        }
        RequestBody::PortStats(port) => write!(w, " port_no={port}"),
        RequestBody::Queue { port, queue } => write!(w, " port={port} queue={}", queue_id(*queue)),
        RequestBody::Group(group) => write!(w, " group_id={}", group_id(*group)),
        RequestBody::GroupDesc(group) => write!(w, " group_id={}", group_id(*group)),
        RequestBody::PortDesc(port) => write!(w, " port={port}"),
        RequestBody::Meter(meter) | RequestBody::MeterConfig(meter) => {
            write!(w, " meter={}", meter_id(*meter))
        }
        RequestBody::TableFeatures(tables) => table_features(w, tables),
        RequestBody::Experimenter { experimenter, data } => raw(w, Some(*experimenter), data),
        RequestBody::Other { body, .. } => raw(w, None, body),
    }
}

pub(super) fn reply(w: &mut String, version: Version, m: &MultipartReply) -> fmt::Result {
    if m.more {
        w.push_str(" flags=[more]");
    }
    match &m.body {
        ReplyBody::Desc(m) => description(w, m),
        ReplyBody::Flow(flows) => flows.iter().try_for_each(|m| flow_stats(w, version, m)),
        ReplyBody::Aggregate(m) => {
            let AggregateStats {
                packet_count,
                byte_count,
                flow_count,
                ..
            } = m;
            write!(
                w,
                " packet_count={packet_count} byte_count={byte_count} flow_count={flow_count}"
            )
        }
        ReplyBody::Table(tables) => table_stats(w, tables),
        ReplyBody::PortStats(ports) => {
            writeln!(w, " {} ports", ports.len())?;
            ports.iter().try_for_each(|m| port_stats(w, version, m))
        }
        ReplyBody::Queue(queues) => {
            writeln!(w, " {} queues", queues.len())?;
            queues.iter().try_for_each(|m| queue_stats(w, version, m))
        }
        ReplyBody::Group(groups) => groups.iter().try_for_each(|m| group_stats(w, version, m)),
        ReplyBody::GroupDesc(groups) => groups.iter().try_for_each(|m| {
            w.push_str("\n ");
            let shown = Some(m.group_type);
            messages::group(w, version, (m.group_id, m.group_type), shown, &m.buckets)
        }),
        ReplyBody::GroupFeatures(m) => group_features(w, m),
        ReplyBody::Meter(meters) => meters.iter().try_for_each(|m| meter_stats(w, m)),
        ReplyBody::MeterConfig(meters) => meters.iter().try_for_each(|m| {
            w.push('\n');
            messages::meter(w, m.meter_id, m.flags, &m.bands)
        }),
        ReplyBody::MeterFeatures(m) => meter_features(w, *m),
        ReplyBody::TableFeatures(tables) => table_features(w, tables),
        ReplyBody::PortDesc(ports) => {
            w.push('\n');
            messages::ports(w, version, ports)
        }
        ReplyBody::TableDesc(tables) => tables.iter().try_for_each(|m| later::table_desc(w, m)),
        ReplyBody::QueueDesc(queues) => messages::queues(w, queues),
        ReplyBody::FlowMonitor(updates) => updates
            .iter()
            .try_for_each(|m| later::flow_update(w, version, m)),
        ReplyBody::FlowCounters(rows) => rows
            .iter()
            .try_for_each(|m| later::flow_counters(w, version, m)),
        ReplyBody::ControllerStatus(list) => list.iter().try_for_each(|m| {
            w.push('\n');
            later::controller_status(w, m)
        }),
        ReplyBody::BundleFeatures(m) => {
            write!(w, " capabilities={:#x}", m.capabilities.0)?;
            later::bundle_features(w, &m.properties)
        }
        ReplyBody::Experimenter { experimenter, data } => raw(w, Some(*experimenter), data),
        ReplyBody::Other { body, .. } => raw(w, None, body),
    }
}

fn raw(w: &mut String, experimenter: Option<u32>, data: &[u8]) -> fmt::Result {
    if let Some(id) = experimenter {
        write!(w, " experimenter={id:#010x}")?;
    }
    w.push('\n');
    values::hex_dump(w, data)
}

pub(super) fn queue_id(queue: QueueId) -> String {
    if queue == QueueId::ALL {
        "ALL".into()
    } else {
        queue.0.to_string()
    }
}

fn group_id(group: GroupId) -> String {
    match group {
        GroupId::ALL => "ALL".into(),
        GroupId::ANY => "ANY".into(),
        GroupId(id) => id.to_string(),
    }
}

fn flow_request(w: &mut String, m: &FlowStatsRequest) -> fmt::Result {
    if m.table_id != TableId::ALL {
        write!(w, " table={}", m.table_id.0)?;
    }
    if m.out_port != PortNo::ANY {
        write!(w, " out_port={}", m.out_port)?;
    }
    write!(w, " {}", m.r#match)
}

fn description(w: &mut String, m: &Description) -> fmt::Result {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    writeln!(w, "\nManufacturer: {}", text(&m.manufacturer))?;
    writeln!(w, "Hardware: {}", text(&m.hardware))?;
    writeln!(w, "Software: {}", text(&m.software))?;
    writeln!(w, "Serial Num: {}", text(&m.serial))?;
    writeln!(w, "DP Description: {}", text(&m.datapath))
}

fn flow_stats(w: &mut String, version: Version, m: &FlowStats) -> fmt::Result {
    write!(w, "\n cookie={:#x}, duration=", m.cookie.0)?;
    values::duration(w, m.duration_sec, m.duration_nsec)?;
    write!(w, ", table={}, ", m.table_id.0)?;
    let (packets, bytes) = (counter(m.packet_count), counter(m.byte_count));
    write!(w, "n_packets={packets}, n_bytes={bytes}, ")?;
    if m.idle_timeout != 0 {
        write!(w, "idle_timeout={}, ", m.idle_timeout)?;
    }
    if m.hard_timeout != 0 {
        write!(w, "hard_timeout={}, ", m.hard_timeout)?;
    }
    flow::flow_flags(w, m.flags)?;
    if m.importance != 0 {
        write!(w, "importance={}, ", m.importance)?;
    }
    for stat in &m.stats {
        match stat {
            Stat::IdleTime(sec, _) if *sec <= i32::MAX as u32 => write!(w, "idle_age={sec}, ")?,
            Stat::IdleTime(..) => {}
            other => {
                later::stat(w, other)?;
                w.push_str(", ");
            }
        }
    }
    let match_text = flow::match_text(version, &m.r#match, m.priority);
    if !match_text.is_empty() {
        write!(w, "{match_text} ")?;
    }
    write!(w, "actions=")?;
    flow::instructions(w, version, &m.instructions)
}

/// Prints a counter. All ones means that a switch does not count this.
fn counter(count: u64) -> String {
    if count == u64::MAX {
        "?".into()
    } else {
        count.to_string()
    }
}

/// Writes consecutive tables with the same counters once.
fn table_stats(w: &mut String, tables: &[TableStats]) -> fmt::Result {
    let same = |a: &TableStats, b: &TableStats| {
        let counts = |t: &TableStats| (t.active_count, t.lookup_count, t.matched_count);
        let has_name = a.v10.as_ref().is_some_and(|v10| !v10.name.is_empty());
        counts(a) == counts(b) && a.v10 == b.v10 && !has_name
    };
    let mut at = 0;
    while at < tables.len() {
        let table = &tables[at];
        let run = match at.checked_sub(1) {
            Some(before) => tables[at..]
                .iter()
                .take_while(|next| same(next, &tables[before]))
                .count(),
            None => 0,
        };
        if run > 0 {
            let last = tables[at + run - 1].table_id.0;
            match run {
                1 => writeln!(w, "\n  table {last}: ditto")?,
                _ => writeln!(w, "\n  tables {}...{last}: ditto", table.table_id.0)?,
            }
            at += run;
            continue;
        }
        write!(w, "\n  table {}", table.table_id.0)?;
        if let Some(v10) = table.v10.as_ref().filter(|v10| !v10.name.is_empty()) {
            write!(w, " (\"{}\")", String::from_utf8_lossy(&v10.name))?;
        }
        writeln!(w, ":")?;
        let TableStats {
            active_count,
            lookup_count,
            matched_count,
            ..
        } = table;
        writeln!(
            w,
            "    active={active_count}, lookup={lookup_count}, matched={matched_count}"
        )?;
        if let Some(v10) = &table.v10 {
            writeln!(w, "    max_entries={}", v10.max_entries)?;
            match v10.features.is_empty() {
                true => writeln!(w, "    wildcards={:#x}", v10.wildcards)?,
                false => writeln!(w, "    features={}", values::hex(&v10.features))?,
            }
        }
        at += 1;
    }
    Ok(())
}

fn port_stats(w: &mut String, version: Version, m: &PortStats) -> fmt::Result {
    let pad = if m.port_no.0 & 0xffff < 10 { " " } else { "" };
    let c = counter;
    write!(
        w,
        "  port {pad}{}: rx pkts={}, ",
        m.port_no,
        c(m.rx_packets)
    )?;
    write!(w, "bytes={}, drop={}, ", c(m.rx_bytes), c(m.rx_dropped))?;
    write!(w, "errs={}, frame={}, ", c(m.rx_errors), c(m.rx_frame_err))?;
    writeln!(w, "over={}, crc={}", c(m.rx_over_err), c(m.rx_crc_err))?;
    write!(
        w,
        "           tx pkts={}, bytes={}, ",
        c(m.tx_packets),
        c(m.tx_bytes)
    )?;
    write!(w, "drop={}, errs={}, ", c(m.tx_dropped), c(m.tx_errors))?;
    writeln!(w, "coll={}", c(m.collisions))?;
    if m.duration_sec != u32::MAX && version >= Version::V13 {
        write!(w, "           duration=")?;
        values::duration(w, m.duration_sec, m.duration_nsec)?;
        w.push('\n');
    }
    Ok(())
}

fn queue_stats(w: &mut String, version: Version, m: &QueueStats) -> fmt::Result {
    write!(w, "  port {} queue {}: ", m.port_no, queue_id(m.queue_id))?;
    let c = counter;
    write!(w, "bytes={}, pkts={}, ", c(m.tx_bytes), c(m.tx_packets))?;
    write!(w, "errors={}, duration=", c(m.tx_errors))?;
    match m.duration_sec {
        _ if version < Version::V13 => w.push('?'),
        u32::MAX => w.push('?'),
        sec => values::duration(w, sec, m.duration_nsec)?,
    }
    w.push('\n');
    Ok(())
}

fn group_stats(w: &mut String, version: Version, m: &GroupStats) -> fmt::Result {
    write!(w, "\n group_id={},", m.group_id.0)?;
    if m.duration_sec != u32::MAX && version >= Version::V13 {
        write!(w, "duration=")?;
        values::duration(w, m.duration_sec, m.duration_nsec)?;
        w.push(',');
    }
    let GroupStats {
        ref_count,
        packet_count,
        byte_count,
        ..
    } = m;
    write!(
        w,
        "ref_count={ref_count},packet_count={packet_count},byte_count={byte_count}"
    )?;
    for (at, (packets, bytes)) in m.buckets.iter().enumerate() {
        if *packets != u64::MAX {
            write!(w, ",bucket{at}:packet_count={packets},byte_count={bytes}")?;
        }
    }
    Ok(())
}

fn group_features(w: &mut String, m: &GroupFeatures) -> fmt::Result {
    writeln!(w, "\n Group table:\n    Types:  {:#x}", m.types)?;
    writeln!(w, "    Capabilities:  {:#x}", m.capabilities)?;
    for (at, name) in ["all", "select", "indirect", "fast failover"]
        .into_iter()
        .enumerate()
    {
        if m.types >> at & 1 == 1 {
            writeln!(w, "    {name} group:")?;
            let max = values::c_hex(m.max_groups[at].into());
            writeln!(w, "       max_groups={max}")?;
            let actions = names::bitmap(names::ACTION_TYPES, m.actions[at]);
            writeln!(w, "       actions: {actions}")?;
        }
    }
    Ok(())
}

fn meter_stats(w: &mut String, m: &MeterStats) -> fmt::Result {
    write!(
        w,
        "\nmeter:{} flow_count:{} ",
        meter_id(m.meter_id),
        m.flow_count
    )?;
    write!(w, "packet_in_count:{} ", m.packet_in_count)?;
    write!(w, "byte_in_count:{} duration:", m.byte_in_count)?;
    values::duration(w, m.duration_sec, m.duration_nsec)?;
    writeln!(w, " bands:")?;
    for (at, (packets, bytes)) in m.bands.iter().enumerate() {
        writeln!(w, "{at}: packet_count:{packets} byte_count:{bytes}")?;
    }
    Ok(())
}

fn meter_features(w: &mut String, m: MeterFeatures) -> fmt::Result {
    let MeterFeatures {
        max_meter,
        max_bands,
        max_color,
        ..
    } = m;
    writeln!(
        w,
        "\nmax_meter:{max_meter} max_bands:{max_bands} max_color:{max_color}"
    )?;
    let band_type = |bit| match bit {
        2 => Some("drop"),
        4 => Some("dscp_remark"),
        _ => None,
    };
    writeln!(
        w,
        "band_types: {}",
        values::bit_names(m.band_types, band_type)
    )?;
    let capability = |bit| match bit {
        1 => Some("kbps"),
        2 => Some("pktps"),
        4 => Some("burst"),
        8 => Some("stats"),
        _ => None,
    };
    writeln!(
        w,
        "capabilities: {}",
        values::bit_names(m.capabilities, capability)
    )
}

/// Writes this crate's own format, with one line for each property. Open vSwitch folds field names
/// into patterns such as `{eth,ipv6}_{src,dst}` and leaves out which table-miss differs.
fn table_features(w: &mut String, tables: &[TableFeatures]) -> fmt::Result {
    for m in tables {
        write!(w, "\n  table {}", m.table_id.0)?;
        if !m.name.is_empty() {
            write!(w, " (\"{}\")", String::from_utf8_lossy(&m.name))?;
        }
        writeln!(w, ":")?;
        let (matched, written) = (m.metadata_match, m.metadata_write);
        writeln!(w, "    metadata: match={matched:#x} write={written:#x}")?;
        writeln!(w, "    max_entries={}", m.max_entries)?;
        for property in &m.properties {
            writeln!(w, "    {}", table_property(property))?;
        }
    }
    Ok(())
}

fn table_property(property: &TableFeatureProperty) -> String {
    use TableFeatureProperty as P;
    let miss = |miss: &bool| if *miss { "_miss" } else { "" };
    let ids = |ids: &[FeatureId], types: &[(u16, &str)]| -> String {
        let word = |one: &FeatureId| match types.iter().find(|(ty, _)| *ty == one.id) {
            Some((_, name)) => (*name).to_owned(),
            None => one.id.to_string(),
        };
        ids.iter().map(word).collect::<Vec<_>>().join(",")
    };
    const INSTRUCTIONS: &[(u16, &str)] = &[
        (1, "goto_table"),
        (2, "write_metadata"),
        (3, "write_actions"),
        (4, "apply_actions"),
        (5, "clear_actions"),
        (6, "meter"),
    ];
    match property {
        P::Instructions { miss: m, ids: list } => {
            format!("instructions{}: {}", miss(m), ids(list, INSTRUCTIONS))
        }
        P::NextTables { miss: m, tables } => format!("next_tables{}: {}", miss(m), runs(tables)),
        P::WriteActions { miss: m, ids: list } => {
            format!(
                "write_actions{}: {}",
                miss(m),
                ids(list, names::ACTION_TYPES)
            )
        }
        P::ApplyActions { miss: m, ids: list } => {
            format!(
                "apply_actions{}: {}",
                miss(m),
                ids(list, names::ACTION_TYPES)
            )
        }
        P::Fields { property, headers } => {
            let name = match property {
                8 => "match",
                10 => "wildcards",
                12 => "write_set_field",
                13 => "write_set_field_miss",
                14 => "apply_set_field",
                15 => "apply_set_field_miss",
                18 => "write_copy_field",
                19 => "write_copy_field_miss",
                20 => "apply_copy_field",
                21 => "apply_copy_field_miss",
                _ => "fields",
            };
            let fields: Vec<String> = headers.iter().map(|h| field_of_header(*h)).collect();
            format!("{name}: {}", fields.join(","))
        }
        P::Other { property, data } => format!("property {property:#x}: {}", values::hex(data)),
    }
}

/// Prints numbers in their given order, such as `1-3,7`: consecutive numbers become one range.
fn runs(tables: &[TableId]) -> String {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for TableId(id) in tables {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let word = |(first, last): (u8, u8)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.into_iter().map(word).collect::<Vec<_>>().join(",")
}

/// The name of a basic field; the OXM header of any other.
fn field_of_header(header: u32) -> String {
    let number = (header >> 9 & 0x7f) as u8;
    match crate::match_fields::Field::from_number(number) {
        Some(field) if header >> 16 == 0x8000 => field.info().set_text.to_owned(),
        _ => format!("{header:#010x}"),
    }
}
