//! Answers of switches in the words of Ryu's `ofctl_v1_3`.

use openflow::match_fields::{Field, MatchField, VLAN_PRESENT};
use openflow::message::GroupType;
use openflow::message::{MeterBand, MeterBandKind, MeterFlags, Port};
use openflow::multipart::{
    Description, FlowStats, GroupDesc, GroupStats, MeterConfig, MeterFeatures, MeterStats,
    PortStats, QueueStats, ReplyBody, TableStats,
};
use openflow::{Action, GroupId, Instruction, MacAddr, Match, MeterId, PortNo, TableId};
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The JSON form of a switch's answer: a list, except for its description.
pub fn bodies(bodies: Vec<ReplyBody>) -> Value {
    let mut shown = Vec::new();
    for body in bodies {
        match body {
            ReplyBody::Desc(found) => return description(&found),
            ReplyBody::Flow(rows) => shown.extend(rows.iter().map(flow)),
            ReplyBody::Aggregate(found) => shown.push(json!({
                "packet_count": found.packet_count,
                "byte_count": found.byte_count,
                "flow_count": found.flow_count,
            })),
            ReplyBody::Table(rows) => shown.extend(rows.iter().map(table)),
            ReplyBody::PortStats(rows) => shown.extend(rows.iter().map(port)),
            ReplyBody::Queue(rows) => shown.extend(rows.iter().map(queue)),
            ReplyBody::Meter(rows) => shown.extend(rows.iter().map(meter)),
            ReplyBody::MeterConfig(rows) => shown.extend(rows.iter().map(meter_config)),
            ReplyBody::MeterFeatures(found) => shown.push(meter_features(&found)),
            ReplyBody::Group(rows) => shown.extend(rows.iter().map(group)),
            ReplyBody::GroupDesc(rows) => shown.extend(rows.iter().map(group_desc)),
            ReplyBody::PortDesc(rows) => shown.extend(rows.iter().map(port_desc)),
            ReplyBody::GroupFeatures(_)
            | ReplyBody::TableFeatures(_)
            | ReplyBody::Experimenter { .. }
            | ReplyBody::TableDesc(_)
            | ReplyBody::QueueDesc(_)
            | ReplyBody::FlowMonitor(_)
            | ReplyBody::FlowCounters(_)
            | ReplyBody::ControllerStatus(_)
            | ReplyBody::BundleFeatures(_)
            | ReplyBody::Other { .. } => {}
        }
    }
    Value::Array(shown)
}

fn description(found: &Description) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    json!({
        "dp_desc": text(&found.datapath),
        "hw_desc": text(&found.hardware),
        "mfr_desc": text(&found.manufacturer),
        "serial_num": text(&found.serial),
        "sw_desc": text(&found.software),
    })
}

pub fn flow(row: &FlowStats) -> Value {
    json!({
        "priority": row.priority,
        "cookie": row.cookie.0,
        "idle_timeout": row.idle_timeout,
        "hard_timeout": row.hard_timeout,
        "byte_count": row.byte_count,
        "duration_sec": row.duration_sec,
        "duration_nsec": row.duration_nsec,
        "packet_count": row.packet_count,
        "length": flow_length(row),
        "flags": row.flags.0,
        "actions": actions(&row.instructions),
        "match": matching(&row.r#match),
        "table_id": table_id(row.table_id),
    })
}

/// The length of the entry in OpenFlow 1.3's encoding: clients read it, so it is not left out.
fn flow_length(row: &FlowStats) -> usize {
    let oxm = |field: &MatchField| match field {
        MatchField::Basic { field, mask, .. } => {
            4 + field.len() * if mask.is_some() { 2 } else { 1 }
        }
        MatchField::Other { payload, .. } => 4 + payload.len(),
    };
    let fields: usize = 4 + row.r#match.fields.iter().map(oxm).sum::<usize>();
    let action = |action: &Action| match action {
        Action::Output { .. } => 16,
        Action::SetField(field) => (4 + oxm(field)).next_multiple_of(8),
        Action::Enqueue { .. } => 16,
        Action::Experimenter { data, .. } => 8 + data.len(),
        _ => 8,
    };
    let instruction = |instruction: &Instruction| match instruction {
        Instruction::WriteActions(list) | Instruction::ApplyActions(list) => {
            8 + list.iter().map(action).sum::<usize>()
        }
        Instruction::WriteMetadata { .. } => 24,
        Instruction::Experimenter { data, .. } => 8 + data.len(),
        // OpenFlow 1.3 has no statistics triggers.
        Instruction::StatTrigger { .. } => 0,
        Instruction::GotoTable(_) | Instruction::ClearActions | Instruction::Meter(_) => 8,
    };
    let instructions: usize = row.instructions.iter().map(instruction).sum();
    48 + fields.next_multiple_of(8) + instructions
}

fn table(row: &TableStats) -> Value {
    json!({
        "active_count": row.active_count,
        "lookup_count": row.lookup_count,
        "matched_count": row.matched_count,
        "table_id": table_id(row.table_id),
    })
}

fn port(row: &PortStats) -> Value {
    json!({
        "rx_packets": row.rx_packets,
        "tx_packets": row.tx_packets,
        "rx_bytes": row.rx_bytes,
        "tx_bytes": row.tx_bytes,
        "rx_dropped": row.rx_dropped,
        "tx_dropped": row.tx_dropped,
        "rx_errors": row.rx_errors,
        "tx_errors": row.tx_errors,
        "rx_frame_err": row.rx_frame_err,
        "rx_over_err": row.rx_over_err,
        "rx_crc_err": row.rx_crc_err,
        "collisions": row.collisions,
        "duration_sec": row.duration_sec,
        "duration_nsec": row.duration_nsec,
        "port_no": port_no(row.port_no),
    })
}

/// Ryu shows this port as a number, whatever it is.
fn queue(row: &QueueStats) -> Value {
    json!({
        "duration_nsec": row.duration_nsec,
        "duration_sec": row.duration_sec,
        "port_no": row.port_no.0,
        "queue_id": row.queue_id.0,
        "tx_bytes": row.tx_bytes,
        "tx_errors": row.tx_errors,
        "tx_packets": row.tx_packets,
    })
}

fn meter(row: &MeterStats) -> Value {
    let band = |counts: &(u64, u64)| {
        let (packets, bytes) = counts;
        json!({"packet_band_count": packets, "byte_band_count": bytes})
    };
    json!({
        "len": 40 + 16 * row.bands.len(),
        "flow_count": row.flow_count,
        "packet_in_count": row.packet_in_count,
        "byte_in_count": row.byte_in_count,
        "duration_sec": row.duration_sec,
        "duration_nsec": row.duration_nsec,
        "band_stats": row.bands.iter().map(band).collect::<Vec<_>>(),
        "meter_id": meter_id(row.meter_id),
    })
}

fn meter_config(row: &MeterConfig) -> Value {
    let flags = MeterFlags::NAMES.iter();
    let flags = flags.filter(|(flag, _)| row.flags.contains(*flag));
    let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
    json!({
        "flags": flags,
        "bands": row.bands.iter().map(band).collect::<Vec<_>>(),
        "meter_id": meter_id(row.meter_id),
    })
}

fn band(band: &MeterBand) -> Value {
    let mut shown = json!({"rate": band.rate, "burst_size": band.burst_size});
    match &band.kind {
        MeterBandKind::Drop => shown["type"] = json!("DROP"),
        MeterBandKind::DscpRemark { prec_level } => {
            shown["type"] = json!("DSCP_REMARK");
            shown["prec_level"] = json!(prec_level);
        }
        MeterBandKind::Experimenter { experimenter, .. } => {
            shown["type"] = json!("EXPERIMENTER");
            shown["experimenter"] = json!(experimenter);
        }
    }
    shown
}

/// Bits of band types are numbered from 1 on, in the order of the specification.
const BAND_TYPES: [(u32, &str); 2] = [(1, "DROP"), (2, "DSCP_REMARK")];

fn meter_features(found: &MeterFeatures) -> Value {
    let types = BAND_TYPES.iter();
    let types = types.filter(|(bit, _)| found.band_types & (1 << bit) != 0);
    let flags = MeterFlags::NAMES.iter();
    let flags = flags.filter(|(flag, _)| found.capabilities & u32::from(flag.0) != 0);
    json!({
        "max_meter": found.max_meter,
        "band_types": types.map(|(_, name)| *name).collect::<Vec<_>>(),
        "capabilities": flags.map(|(_, name)| *name).collect::<Vec<_>>(),
        "max_bands": found.max_bands,
        "max_color": found.max_color,
    })
}

fn group(row: &GroupStats) -> Value {
    let bucket =
        |(packets, bytes): &(u64, u64)| json!({"packet_count": packets, "byte_count": bytes});
    json!({
        "length": 40 + 16 * row.buckets.len(),
        "ref_count": row.ref_count,
        "packet_count": row.packet_count,
        "byte_count": row.byte_count,
        "duration_sec": row.duration_sec,
        "duration_nsec": row.duration_nsec,
        "bucket_stats": row.buckets.iter().map(bucket).collect::<Vec<_>>(),
        "group_id": group_id(row.group_id),
    })
}

fn group_desc(row: &GroupDesc) -> Value {
    let buckets = row.buckets.iter().map(|bucket| {
        json!({
            "weight": bucket.weight,
            "watch_port": bucket.watch_port.0,
            "watch_group": bucket.watch_group.0,
            "actions": bucket.actions.iter().map(action).collect::<Vec<_>>(),
        })
    });
    let kind = match row.group_type {
        GroupType::All => "ALL",
        GroupType::Select => "SELECT",
        GroupType::Indirect => "INDIRECT",
        GroupType::FastFailover => "FF",
    };
    json!({
        "buckets": buckets.collect::<Vec<_>>(),
        "group_id": group_id(row.group_id),
        "type": kind,
    })
}

fn port_desc(port: &Port) -> Value {
    json!({
        "hw_addr": port.hw_addr.to_string(),
        "name": port.name.to_text(),
        "config": port.config.0,
        "state": port.state.0,
        "curr": port.curr,
        "advertised": port.advertised,
        "supported": port.supported,
        "peer": port.peer,
        "curr_speed": port.curr_speed,
        "max_speed": port.max_speed,
        "port_no": port_no(port.port_no),
    })
}

/// Reserved numbers have names.
fn port_no(port: PortNo) -> Value {
    match port {
        PortNo::MAX => json!("MAX"),
        port if port.to_string().parse::<u32>().is_err() => json!(port.to_string()),
        PortNo(number) => json!(number),
    }
}

fn table_id(table: TableId) -> Value {
    match table {
        TableId::ALL => json!("ALL"),
        TableId::MAX => json!("MAX"),
        TableId(number) => json!(number),
    }
}

fn group_id(group: GroupId) -> Value {
    match group {
        GroupId::ALL => json!("ALL"),
        GroupId::ANY => json!("ANY"),
        GroupId::MAX => json!("MAX"),
        GroupId(number) => json!(number),
    }
}

fn meter_id(meter: MeterId) -> Value {
    match meter {
        MeterId::ALL => json!("ALL"),
        MeterId::CONTROLLER => json!("CONTROLLER"),
        MeterId::SLOWPATH => json!("SLOWPATH"),
        MeterId::MAX => json!("MAX"),
        MeterId(number) => json!(number),
    }
}

/// The text of a value, without its quotes.
fn bare(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn actions(instructions: &[Instruction]) -> Vec<Value> {
    let mut shown = Vec::new();
    for instruction in instructions {
        match instruction {
            Instruction::ApplyActions(list) => {
                shown.extend(list.iter().map(|a| json!(action(a))));
            }
            Instruction::WriteActions(list) if list.is_empty() => {}
            Instruction::WriteActions(list) => {
                let list: Vec<String> = list.iter().map(action).collect();
                shown.push(json!({"WRITE_ACTIONS": list}));
            }
            Instruction::ClearActions => shown.push(json!("CLEAR_ACTIONS")),
            Instruction::GotoTable(table) => {
                shown.push(json!(format!("GOTO_TABLE:{}", bare(table_id(*table)))));
            }
            Instruction::WriteMetadata { metadata, mask: 0 } => {
                shown.push(json!(format!("WRITE_METADATA:{metadata:#x}")));
            }
            Instruction::WriteMetadata { metadata, mask } => {
                shown.push(json!(format!("WRITE_METADATA:{metadata:#x}/{mask:#x}")));
            }
            Instruction::Meter(meter) => {
                shown.push(json!(format!("METER:{}", bare(meter_id(*meter)))));
            }
            // Ryu leaves these out.
            Instruction::Experimenter { .. } | Instruction::StatTrigger { .. } => {}
        }
    }
    shown
}

fn action(action: &Action) -> String {
    match action {
        Action::Output { port, .. } => format!("OUTPUT:{}", bare(port_no(*port))),
        Action::Group(group) => format!("GROUP:{}", bare(group_id(*group))),
        Action::SetQueue(queue) => format!("SET_QUEUE:{}", queue.0),
        // The whole field, as SET_FIELD has it; a match shows the tag's number.
        Action::SetField(MatchField::Basic {
            field: Field::VlanVid,
            value,
            ..
        }) => format!("SET_FIELD: {{vlan_vid:{value}}}"),
        Action::SetField(field) => match named(field) {
            Some((name, value)) => format!("SET_FIELD: {{{name}:{}}}", bare(value)),
            None => "UNKNOWN".to_owned(),
        },
        Action::PushVlan(kind) => format!("PUSH_VLAN:{kind}"),
        Action::PopVlan => "POP_VLAN".to_owned(),
        Action::PushMpls(kind) => format!("PUSH_MPLS:{kind}"),
        Action::PopMpls(kind) => format!("POP_MPLS:{kind}"),
        Action::PushPbb(kind) => format!("PUSH_PBB:{kind}"),
        Action::PopPbb => "POP_PBB".to_owned(),
        Action::SetMplsTtl(ttl) => format!("SET_MPLS_TTL:{ttl}"),
        Action::DecMplsTtl => "DEC_MPLS_TTL".to_owned(),
        Action::SetNwTtl(ttl) => format!("SET_NW_TTL:{ttl}"),
        Action::DecNwTtl => "DEC_NW_TTL".to_owned(),
        Action::CopyTtlOut => "COPY_TTL_OUT".to_owned(),
        Action::CopyTtlIn => "COPY_TTL_IN".to_owned(),
        Action::SetVlanVid(vid) => format!("SET_VLAN_VID:{vid}"),
        Action::SetVlanPcp(pcp) => format!("SET_VLAN_PCP:{pcp}"),
        Action::StripVlan => "STRIP_VLAN".to_owned(),
        Action::SetNwTos(tos) => format!("SET_NW_TOS:{tos}"),
        Action::SetTpSrc(port) => format!("SET_TP_SRC:{port}"),
        Action::SetTpDst(port) => format!("SET_TP_DST:{port}"),
        Action::Enqueue { port, queue } => {
            format!("ENQUEUE:{}:{}", bare(port_no(*port)), queue.0)
        }
        Action::CopyField { .. } => "COPY_FIELD".to_owned(),
        Action::Meter(meter) => format!("METER:{}", bare(meter_id(*meter))),
        Action::Experimenter { experimenter, .. } => {
            format!("EXPERIMENTER: {{experimenter:{experimenter}}}")
        }
    }
}

/// Shows a match, with the names that its fields have had since OpenFlow 1.0, if any.
pub fn matching(found: &Match) -> Value {
    let mut shown = Map::new();
    for field in &found.fields {
        let Some((name, value)) = named(field) else {
            continue;
        };
        let name = match name {
            "eth_src" => "dl_src",
            "eth_dst" => "dl_dst",
            "eth_type" => "dl_type",
            "vlan_vid" => "dl_vlan",
            "ipv4_src" => "nw_src",
            "ipv4_dst" => "nw_dst",
            "ip_proto" => "nw_proto",
            "tcp_src" | "udp_src" => "tp_src",
            "tcp_dst" | "udp_dst" => "tp_dst",
            other => other,
        };
        shown.entry(name).or_insert(value);
    }
    Value::Object(shown)
}

/// The name of a field in Ryu, and its value.
fn named(field: &MatchField) -> Option<(&'static str, Value)> {
    let MatchField::Basic { field, value, mask } = field else {
        return None;
    };
    let name = name(*field);
    let value = match (field, mask) {
        (Field::InPort, _) => port_no(PortNo(*value as u32)),
        (Field::VlanVid, Some(mask)) => json!(format!("{value:#06x}/{mask:#06x}")),
        (Field::VlanVid, None) if value & VLAN_PRESENT != 0 => {
            json!((value & !VLAN_PRESENT).to_string())
        }
        (Field::VlanVid, None) => json!(format!("{value:#06x}")),
        (_, Some(mask)) => {
            let (value, mask) = (plain(*field, *value), plain(*field, *mask));
            json!(format!("{}/{}", bare(value), bare(mask)))
        }
        (_, None) => plain(*field, *value),
    };
    Some((name, value))
}

fn plain(field: Field, value: u128) -> Value {
    match field.info().bits {
        48 => json!(MacAddr::from_u64(value as u64).to_string()),
        128 => json!(Ipv6Addr::from(value).to_string()),
        32 if !matches!(field, Field::InPort | Field::InPhyPort) => {
            json!(Ipv4Addr::from(value as u32).to_string())
        }
        _ => json!(value as u64),
    }
}

fn name(field: Field) -> &'static str {
    match field {
        Field::EthDst => "eth_dst",
        Field::EthSrc => "eth_src",
        Field::EthType => "eth_type",
        Field::IpEcn => "ip_ecn",
        Field::IpProto => "ip_proto",
        Field::Ipv4Src => "ipv4_src",
        Field::Ipv4Dst => "ipv4_dst",
        Field::Icmpv4Type => "icmpv4_type",
        Field::Icmpv4Code => "icmpv4_code",
        Field::Ipv6Flabel => "ipv6_flabel",
        Field::Ipv6NdTarget => "ipv6_nd_target",
        Field::Ipv6NdSll => "ipv6_nd_sll",
        Field::Ipv6NdTll => "ipv6_nd_tll",
        Field::TunnelId => "tunnel_id",
        other => other.info().text,
    }
}

#[cfg(test)]
mod tests {
    use openflow::text::{parse_actions, parse_match};
    use openflow::{Cookie, QueueId};

    use super::*;

    /// The example in the documentation of Ryu's ofctl_rest.
    #[test]
    fn an_entry_is_shown_as_ryu_shows_it() {
        let row = FlowStats {
            table_id: TableId(0),
            duration_sec: 2,
            duration_nsec: 6_000_000,
            priority: 11_111,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: openflow::message::FlowModFlags(1),
            cookie: Cookie(1),
            packet_count: 0,
            byte_count: 0,
            r#match: Match::any().with_in_port(PortNo(1)),
            instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
            importance: 0,
            stats: Vec::new(),
        };
        let expected = json!({
            "length": 88, "table_id": 0, "duration_sec": 2, "duration_nsec": 6_000_000,
            "priority": 11_111, "idle_timeout": 0, "hard_timeout": 0, "flags": 1, "cookie": 1,
            "packet_count": 0, "byte_count": 0, "match": {"in_port": 1}, "actions": ["OUTPUT:2"]
        });
        assert_eq!(flow(&row), expected);
    }

    #[test]
    fn matches_have_their_old_names() {
        let found = parse_match(
            "tcp,in_port=LOCAL,dl_src=02:00:00:00:00:01,dl_vlan=7,nw_src=10.0.0.0/24,tp_dst=80",
        );
        let shown = matching(&found.unwrap());
        assert_eq!(shown["in_port"], "LOCAL");
        assert_eq!(shown["dl_src"], "02:00:00:00:00:01");
        assert_eq!(shown["dl_type"], 2048);
        assert_eq!(shown["nw_proto"], 6);
        assert_eq!(shown["nw_src"], "10.0.0.0/255.255.255.0");
        assert_eq!(shown["tp_dst"], 80);
        assert_eq!(shown["dl_vlan"], "7");
    }

    #[test]
    fn what_an_entry_does_is_told_in_a_list() {
        let applied = parse_actions("set_queue:7,mod_vlan_vid:3,output:4,CONTROLLER:65535");
        let mut applied = applied.unwrap();
        applied.push(Action::SetField(MatchField::exact(Field::IpDscp, 46)));
        let instructions = [
            Instruction::Meter(MeterId(3)),
            Instruction::ApplyActions(applied),
            Instruction::WriteActions(vec![Action::SetQueue(QueueId(1))]),
            Instruction::WriteMetadata {
                metadata: 1,
                mask: 3,
            },
            Instruction::GotoTable(TableId(1)),
        ];
        let shown = actions(&instructions);
        for expected in [
            json!("METER:3"),
            json!("SET_QUEUE:7"),
            json!("OUTPUT:4"),
            json!("OUTPUT:CONTROLLER"),
            json!("SET_FIELD: {ip_dscp:46}"),
            json!("SET_FIELD: {vlan_vid:4099}"),
            json!({"WRITE_ACTIONS": ["SET_QUEUE:1"]}),
            json!("WRITE_METADATA:0x1/0x3"),
            json!("GOTO_TABLE:1"),
        ] {
            assert!(shown.contains(&expected), "{expected}: {shown:?}");
        }
    }

    #[test]
    fn meters_are_told_with_names_of_flags_and_bands() {
        let found = MeterFeatures {
            max_meter: 16,
            band_types: 0b110,
            capabilities: 0b1111,
            max_bands: 255,
            max_color: 0,
            features: None,
        };
        let shown = meter_features(&found);
        assert_eq!(shown["band_types"], json!(["DROP", "DSCP_REMARK"]));
        assert_eq!(
            shown["capabilities"],
            json!(["KBPS", "PKTPS", "BURST", "STATS"])
        );
        let config = MeterConfig {
            flags: MeterFlags(0b1001),
            meter_id: MeterId(1),
            bands: vec![MeterBand {
                rate: 1000,
                burst_size: 0,
                kind: MeterBandKind::Drop,
            }],
        };
        let expected = json!({
            "flags": ["KBPS", "STATS"], "meter_id": 1,
            "bands": [{"burst_size": 0, "rate": 1000, "type": "DROP"}]
        });
        assert_eq!(meter_config(&config), expected);
    }
}
