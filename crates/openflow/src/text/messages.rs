//! Messages as `ovs-ofctl ofp-print` writes them, all but the multipart ones.

use std::fmt::{self, Display, Formatter, Write};

use crate::actions::Bucket;
use crate::frame::Frame;
use crate::hello::Hello;
use crate::message::*;
use crate::types::{BucketId, BufferId, Cookie, GroupId, MeterId, TableId, Version, Xid};

use super::{flow, later, names, packet, roles, stats, values};

impl Display for Message {
    /// Writes the words of 1.3 without version and xid; several lines where `ovs-ofctl` has
    /// several.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = format!("{}:", header_name(Version::V13, self));
        body(&mut text, Version::V13, Xid(0), self)?;
        f.write_str(trimmed(&text))
    }
}

/// Header line and body, without the last newline.
pub(super) fn message(version: Version, xid: Xid, message: &Message) -> String {
    let mut text = header(&header_name(version, message), version.wire(), xid);
    let _ = body(&mut text, version, xid, message);
    trimmed(&text).to_owned()
}

pub(super) fn trimmed(text: &str) -> &str {
    text.strip_suffix('\n')
        .unwrap_or(text)
        .trim_end_matches(' ')
}

pub(super) fn header(name: &str, version: u8, xid: Xid) -> String {
    let version = match Version::from_wire(version) {
        Some(Version::V10) => String::new(),
        Some(version) => format!(" (OF{version})"),
        None => format!(" (OF 0x{version:02x})"),
    };
    format!("{name}{version} (xid={:#x}):", xid.0)
}

/// Returns the name in the header line, such as `OFPT_HELLO`, `OFPST_FLOW request`, `NXT_FLOW_AGE`.
fn header_name(version: Version, message: &Message) -> String {
    match message {
        Message::MultipartRequest(m) => format!("OFPST_{} request", stats::request_name(&m.body)),
        Message::MultipartReply(m) => format!("OFPST_{} reply", stats::reply_name(&m.body)),
        message if version == Version::V13 => names::message_v13(message.kind()),
        message => names::message(message.kind()).to_owned(),
    }
}

pub(super) fn body(w: &mut String, version: Version, xid: Xid, message: &Message) -> fmt::Result {
    match message {
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest => Ok(()),
        Message::Hello(m) => hello(w, version, m),
        Message::Error(m) => error(w, m),
        Message::EchoRequest(data) | Message::EchoReply(data) => {
            writeln!(w, " {} bytes of payload", data.len())?;
            values::hex_dump(w, data)
        }
        Message::Experimenter(m) => experimenter(w, m),
        Message::FeaturesReply(m) => features(w, version, m),
        Message::GetConfigReply(m) | Message::SetConfig(m) => config(w, version, *m),
        Message::PacketIn(m) => packet_in(w, m),
        Message::FlowRemoved(m) => flow_removed(w, version, m),
        Message::PortStatus(m) => port_status(w, m),
        Message::PacketOut(m) => packet_out(w, version, m),
        Message::FlowMod(m) => {
            w.push(' ');
            flow::flow_mod(w, version, m)
        }
        Message::GroupMod(m) => group_mod(w, version, m),
        Message::PortMod(m) => port_mod(w, m),
        Message::TableMod(m) => later::table_mod(w, version, m),
        Message::MultipartRequest(m) => stats::request(w, version, m),
        Message::MultipartReply(m) => stats::reply(w, version, m),
        Message::QueueGetConfigRequest { port } => write!(w, " port={port}"),
        Message::QueueGetConfigReply(m) => queue_config(w, m),
        Message::RoleRequest(m) => roles::role(w, *m, m.role != Role::NoChange),
        Message::RoleReply(m) => roles::role(w, *m, true),
        Message::RoleStatus(m) => roles::role_status(w, m),
        Message::GetAsyncReply(m) | Message::SetAsync(m) => roles::async_config(w, m),
        Message::MeterMod(m) => meter_mod(w, m),
        Message::TableStatus(m) => later::table_status(w, m),
        Message::RequestForward(m) => later::request_forward(w, version, m),
        Message::BundleControl(m) => later::bundle_control(w, m),
        Message::BundleAdd(m) => later::bundle_add(w, version, xid, m),
        Message::ControllerStatus(m) => later::controller_status(w, m),
    }
}

/// A HELLO without versions in a bitmap offers every version up to its own (OpenFlow 1.3.1, 6.3.1).
fn hello(w: &mut String, version: Version, m: &Hello) -> fmt::Result {
    let all_below = (2u32 << version.wire()) - 2;
    let bitmap = m
        .bitmaps
        .as_ref()
        .and_then(|maps| maps.first().copied())
        .filter(|map| map & !1 != 0)
        .unwrap_or(all_below);
    // Bit 0 is no version.
    let offered: Vec<String> = (1..32)
        .filter(|n| bitmap >> n & 1 == 1)
        .map(|n| format!("0x{n:02x}"))
        .collect();
    write!(w, "\n version bitmap: {}", offered.join(", "))
}

fn error(w: &mut String, m: &ErrorMessage) -> fmt::Result {
    match m.experimenter {
        Some(id) => writeln!(w, " experimenter {id:#010x} type {}", m.kind.code)?,
        None => writeln!(w, " {}", names::error(m.kind))?,
    }
    if m.kind.ty == 0 {
        let printable = |byte: &u8| match byte {
            0x20..0x7f if *byte != b'\\' => char::from(*byte).to_string(),
            byte => format!("\\{byte:03o}"),
        };
        w.extend(m.data.iter().map(printable));
        return Ok(());
    }
    refused_message(w, &m.data)
}

/// Writes the start of the refused message: decoded if complete, else its header and bytes.
fn refused_message(w: &mut String, data: &[u8]) -> fmt::Result {
    if data.is_empty() {
        return w.write_str("OpenFlow message is empty\n");
    }
    let Some([version, ty, len_high, len_low, xid @ ..]) = data.first_chunk::<8>() else {
        writeln!(w, "OpenFlow packet too short (only {} bytes):", data.len())?;
        return values::hex_dump(w, data);
    };
    let announced = usize::from(u16::from_be_bytes([*len_high, *len_low]));
    if announced == data.len()
        && let Ok(frame) = Frame::new(bytes::Bytes::copy_from_slice(data))
    {
        w.push_str(&super::print(&frame));
        return Ok(());
    }
    if announced > data.len() {
        if let Some(name) = names::frame(*version, *ty, data) {
            writeln!(
                w,
                "{}",
                header(&name, *version, Xid(u32::from_be_bytes(*xid)))
            )?;
        }
        writeln!(
            w,
            "(***truncated to {} bytes from {announced}***)",
            data.len()
        )?;
    } else {
        writeln!(
            w,
            "(***only uses {announced} bytes out of {}***)",
            data.len()
        )?;
    }
    values::hex_dump(w, data)
}

fn experimenter(w: &mut String, m: &Experimenter) -> fmt::Result {
    write!(w, " experimenter={:#010x}", m.experimenter)?;
    if let Some(ty) = m.data.first_chunk::<4>() {
        write!(w, " type={}", u32::from_be_bytes(*ty))?;
    }
    w.push('\n');
    values::hex_dump(w, &m.data)
}

fn features(w: &mut String, version: Version, m: &SwitchFeatures) -> fmt::Result {
    writeln!(w, " dpid:{}", m.datapath_id)?;
    write!(w, "n_tables:{}, n_buffers:{}", m.n_tables, m.n_buffers)?;
    if m.auxiliary_id != 0 {
        write!(w, ", auxiliary_id:{}", m.auxiliary_id)?;
    }
    let is_of = |bit| match bit {
        bit if bit >= Capabilities::BUNDLES.0 => version >= Version::V14,
        bit if bit == Capabilities::PORT_BLOCKED.0 => version >= Version::V12,
        bit if bit == Capabilities::ARP_MATCH_IP.0 => version <= Version::V11,
        _ => true,
    };
    let name = |bit| {
        if version == Version::V10 && bit == Capabilities::GROUP_STATS.0 {
            return Some("STP");
        }
        if !is_of(bit) {
            return None;
        }
        Capabilities::NAMES
            .iter()
            .find(|(flag, _)| flag.0 == bit)
            .map(|(_, name)| *name)
    };
    let named = (0..32)
        .map(|n| 1u32 << n)
        .filter(|bit| name(*bit).is_some());
    let named: u32 = named.sum();
    writeln!(
        w,
        "\ncapabilities: {}",
        // Open vSwitch prints only the named bits.
        values::bit_names(m.capabilities.0 & named, name)
    )?;
    if version == Version::V10 {
        writeln!(
            w,
            "actions: {}",
            names::bitmap(names::ACTION_TYPES_V10, m.actions)
        )?;
    }
    ports(w, version, &m.ports)
}

/// Writes the ports, ordered by number.
pub(super) fn ports(w: &mut String, version: Version, list: &[Port]) -> fmt::Result {
    let mut ordered: Vec<&Port> = list.iter().collect();
    ordered.sort_by_key(|port| port.port_no);
    ordered
        .into_iter()
        .try_for_each(|one| port(w, version, one))
}

fn port(w: &mut String, version: Version, m: &Port) -> fmt::Result {
    let name: String = m.name.0[..15]
        .iter()
        .take_while(|b| (0x20..0x7f).contains(*b))
        .map(|b| char::from(*b))
        .collect();
    writeln!(w, " {}({name}): addr:{}", m.port_no, m.hw_addr)?;
    writeln!(w, "     config:     {}", port_config(m.config))?;
    let state = port_state(version, m.state);
    writeln!(w, "     state:      {state}")?;
    for (label, features) in [
        ("current:    ", m.curr),
        ("advertised: ", m.advertised),
        ("supported:  ", m.supported),
        ("peer:       ", m.peer),
    ] {
        if features != 0 {
            writeln!(
                w,
                "     {label}{}",
                values::bit_names(features, names::port_feature)
            )?;
        }
    }
    let (now, max) = match version {
        Version::V10 => (kbps(m.curr), kbps(m.supported)),
        _ => (m.curr_speed, m.max_speed),
    };
    writeln!(
        w,
        "     speed: {} Mbps now, {} Mbps max",
        now / 1000,
        max / 1000
    )
}

/// Speed of a port by its feature bits: 1.0 has no field for it.
fn kbps(features: u32) -> u32 {
    const SPEEDS: [(u32, u32); 7] = [
        (1 << 9, 1_000_000_000),
        (1 << 8, 100_000_000),
        (1 << 7, 40_000_000),
        (1 << 6, 10_000_000),
        (3 << 4, 1_000_000),
        (3 << 2, 100_000),
        (3, 10_000),
    ];
    SPEEDS
        .iter()
        .find(|(bits, _)| features & bits != 0)
        .map_or(0, |(_, speed)| *speed)
}

pub(super) fn port_config(config: PortConfig) -> String {
    values::bit_names(config.0, |bit| {
        PortConfig::NAMES
            .iter()
            .find(|(flag, _)| flag.0 == bit)
            .map(|(_, name)| *name)
    })
}

fn port_state(version: Version, state: PortState) -> String {
    let name = |bit| {
        PortState::NAMES
            .iter()
            .find(|(flag, _)| flag.0 == bit)
            .map(|(_, name)| *name)
    };
    let stp = state.0 >> 8 & 3;
    if version != Version::V10 || stp == 0 {
        return values::bit_names(state.0, name);
    }
    let rest = state.0 & !0x300;
    let rest = if rest == 0 {
        String::new()
    } else {
        values::bit_names(rest, name)
    };
    format!(
        "{}{rest}",
        ["STP_LISTEN", "STP_LEARN", "STP_FORWARD", "STP_BLOCK"][stp as usize]
    )
}

/// Writes the flags: fragments in bits 0 and 1. In 1.1 and 1.2, bit 2 sends packets with an invalid
/// TTL to the controller.
fn config(w: &mut String, _version: Version, m: SwitchConfig) -> fmt::Result {
    let frags = match m.flags & 3 {
        0 => "normal",
        1 => "drop",
        2 => "reassemble",
        _ => "nx-match",
    };
    write!(w, " frags={frags}")?;
    if m.flags & 4 != 0 {
        write!(w, " invalid_ttl_to_controller")?;
    }
    writeln!(w, " miss_send_len={}", m.miss_send_len)
}

fn packet_in(w: &mut String, m: &PacketIn) -> fmt::Result {
    packet_in_head(w, m)?;
    w.write_str(&packet::summary(&m.data))
}

/// The lines in front of the packet.
pub(super) fn packet_in_head(w: &mut String, m: &PacketIn) -> fmt::Result {
    if m.table_id != TableId(0) {
        write!(w, " table_id={}", m.table_id.0)?;
    }
    if m.cookie != Cookie(u64::MAX) {
        write!(w, " cookie={:#x}", m.cookie.0)?;
    }
    let (total, here) = (usize::from(m.total_len), m.data.len());
    let reason = names::packet_in_reason(m.reason.0);
    write!(
        w,
        " total_len={total} {} (via {reason}) data_len={here}",
        m.r#match
    )?;
    match m.buffer_id {
        None if total != here => write!(w, " (unbuffered) (***total_len != data_len***)")?,
        None => write!(w, " (unbuffered)")?,
        Some(BufferId(buffer)) if total < here => {
            write!(w, " buffer=0x{buffer:08x} (***total_len < data_len***)")?;
        }
        Some(BufferId(buffer)) => write!(w, " buffer=0x{buffer:08x}")?,
    }
    w.push('\n');
    Ok(())
}

fn flow_removed(w: &mut String, version: Version, m: &FlowRemoved) -> fmt::Result {
    let reason = names::flow_removed_reason(m.reason.0);
    write!(
        w,
        " {} reason={reason}",
        flow::match_text(version, &m.r#match, m.priority)
    )?;
    if m.table_id != TableId::ALL && version != Version::V10 {
        write!(w, " table_id={}", m.table_id.0)?;
    }
    if m.cookie != Cookie(0) {
        write!(w, " cookie:{:#x}", m.cookie.0)?;
    }
    write!(w, " duration")?;
    values::duration(w, m.duration_sec, m.duration_nsec)?;
    write!(w, " idle{}", m.idle_timeout)?;
    if m.hard_timeout != 0 {
        write!(w, " hard{}", m.hard_timeout)?;
    }
    writeln!(w, " pkts{} bytes{}", m.packet_count, m.byte_count)
}

fn port_status(w: &mut String, m: &PortStatus) -> fmt::Result {
    match m.reason {
        PortReason::ADD => w.push_str(" ADD:"),
        PortReason::DELETE => w.push_str(" DEL:"),
        PortReason::MODIFY => w.push_str(" MOD:"),
        _ => {}
    }
    port(w, Version::V13, &m.port)
}

fn packet_out(w: &mut String, version: Version, m: &PacketOut) -> fmt::Result {
    if m.pipeline.fields.is_empty() {
        write!(w, " in_port={}", m.in_port)?;
    } else {
        let mut whole = m.pipeline.clone().with_in_port(m.in_port);
        whole.fields.rotate_right(1);
        write!(
            w,
            " {}",
            flow::match_text(version, &whole, flow::PRIORITY_DEFAULT)
        )?;
    }
    w.push_str(" actions=");
    flow::actions(w, version, &m.actions)?;
    match m.buffer_id {
        Some(BufferId(buffer)) => write!(w, " buffer=0x{buffer:08x}"),
        None if m.data.is_empty() => write!(w, " data_len=0"),
        None => write!(
            w,
            " data_len={}\n{}",
            m.data.len(),
            packet::summary(&m.data)
        ),
    }
}

fn group_mod(w: &mut String, version: Version, m: &GroupMod) -> fmt::Result {
    let command = match m.command {
        GroupModCommand::Add => "ADD",
        GroupModCommand::Modify => "MOD",
        GroupModCommand::Delete => "DEL",
        GroupModCommand::InsertBucket => "INSERT_BUCKET",
        GroupModCommand::RemoveBucket => "REMOVE_BUCKET",
    };
    write!(w, "\n {command} ")?;
    let of_buckets = [GroupModCommand::InsertBucket, GroupModCommand::RemoveBucket];
    let is_of_buckets = of_buckets.contains(&m.command);
    if is_of_buckets {
        let bucket = flow::bucket_id(m.command_bucket.unwrap_or(BucketId::ALL));
        write!(w, "command_bucket_id:{bucket},")?;
    }
    let shown = Some(m.group_type).filter(|_| !is_of_buckets);
    group(w, version, (m.group_id, m.group_type), shown, &m.buckets)
}

pub(super) fn group(
    w: &mut String,
    version: Version,
    (id, group_type): (GroupId, GroupType),
    shown_type: Option<GroupType>,
    buckets: &[Bucket],
) -> fmt::Result {
    write!(w, "group_id={}", id.0)?;
    if let Some(ty) = shown_type {
        write!(w, ",type={}", names::group_type(ty))?;
    }
    for bucket in buckets {
        w.push(',');
        flow::bucket(w, version, group_type, bucket)?;
    }
    Ok(())
}

fn port_mod(w: &mut String, m: &PortMod) -> fmt::Result {
    writeln!(w, " port: {}: addr:{}", m.port_no, m.hw_addr)?;
    writeln!(w, "     config: {}", port_config(m.config))?;
    writeln!(w, "     mask:   {}", port_config(m.mask))?;
    match m.advertise {
        0 => writeln!(w, "     advertise: UNCHANGED"),
        bits => writeln!(
            w,
            "     advertise: {}",
            values::bit_names(bits, names::port_feature)
        ),
    }
}

/// Writes the queues under the requested port, ordered by queue.
fn queue_config(w: &mut String, m: &QueueConfig) -> fmt::Result {
    let of_port = |queue: &PacketQueue| PacketQueue {
        port: m.port,
        ..queue.clone()
    };
    queues(w, &m.queues.iter().map(of_port).collect::<Vec<_>>())
}

/// Writes the queues, ordered by port and queue.
pub(super) fn queues(w: &mut String, list: &[PacketQueue]) -> fmt::Result {
    w.push(' ');
    let mut queues: Vec<&PacketQueue> = list.iter().collect();
    queues.sort_by_key(|queue| (queue.port, queue.queue_id));
    let mut port = None;
    for queue in queues {
        if port != Some(queue.port) {
            port = Some(queue.port);
            writeln!(w, "port={}", queue.port)?;
        }
        write!(w, "queue {}:", queue.queue_id.0)?;
        for property in &queue.properties {
            match property {
                QueueProperty::MinRate(rate) => queue_rate(w, "min_rate", *rate)?,
                QueueProperty::MaxRate(rate) => queue_rate(w, "max_rate", *rate)?,
                QueueProperty::Experimenter { .. } | QueueProperty::Other { .. } => {}
            }
        }
        w.push('\n');
    }
    Ok(())
}

fn queue_rate(w: &mut String, name: &str, rate: u16) -> fmt::Result {
    match rate {
        0..=1000 => write!(w, " {name}:{}.{}%", rate / 10, rate % 10),
        u16::MAX => Ok(()),
        _ => write!(w, " {name}:(disabled)"),
    }
}

fn meter_mod(w: &mut String, m: &MeterMod) -> fmt::Result {
    let command = match m.command {
        MeterModCommand::Add => "ADD",
        MeterModCommand::Modify => "MOD",
        MeterModCommand::Delete => "DEL",
    };
    write!(w, " {command} ")?;
    meter(w, m.meter_id, m.flags, &m.bands)
}

pub(super) fn meter_id(id: MeterId) -> String {
    match id {
        MeterId::ALL => "all".into(),
        MeterId::CONTROLLER => "controller".into(),
        MeterId::SLOWPATH => "slowpath".into(),
        id if id <= MeterId::MAX => id.0.to_string(),
        // Open vSwitch prints "unknown", which cannot be read back.
        id => format!("{:#x}", id.0),
    }
}

/// A meter and its bands, each band on a line of its own.
pub(super) fn meter(
    w: &mut String,
    id: MeterId,
    flags: MeterFlags,
    bands: &[MeterBand],
) -> fmt::Result {
    write!(w, "meter={} ", meter_id(id))?;
    let named = MeterFlags::KBPS | MeterFlags::PKTPS | MeterFlags::BURST | MeterFlags::STATS;
    for (flag, name) in MeterFlags::NAMES {
        if flags.contains(*flag) {
            write!(w, "{} ", name.to_ascii_lowercase())?;
        }
    }
    if flags.0 & !named.0 != 0 {
        write!(w, "flags:{:#x} ", flags.0 & !named.0)?;
    }
    write!(w, "bands=")?;
    for band in bands {
        match &band.kind {
            MeterBandKind::Drop => write!(w, "\ntype=drop")?,
            MeterBandKind::DscpRemark { .. } => write!(w, "\ntype=dscp_remark")?,
            MeterBandKind::Experimenter { .. } => write!(w, "\ntype=65535")?,
        }
        write!(w, " rate={}", band.rate)?;
        if flags.contains(MeterFlags::BURST) {
            write!(w, " burst_size={}", band.burst_size)?;
        }
        match &band.kind {
            MeterBandKind::Drop => {}
            MeterBandKind::DscpRemark { prec_level } => write!(w, " prec_level={prec_level}")?,
            MeterBandKind::Experimenter { experimenter, data } => {
                write!(
                    w,
                    " experimenter={experimenter:#010x} data={}",
                    values::hex(data)
                )?;
            }
        }
    }
    w.push('\n');
    Ok(())
}
