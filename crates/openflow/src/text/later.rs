//! Messages of 1.4 and 1.5 as `ovs-ofctl ofp-print` writes them. Messages that Open vSwitch does
//! not have are written in the same style.

use std::fmt::{self, Write};

use crate::message::*;
use crate::multipart::{FlowCounters, FlowEvent, FlowMonitorCommand, FlowUpdate};
use crate::multipart::{FlowMonitor, FlowMonitorFlags};
use crate::stat::Stat;
use crate::types::{GroupId, PortNo, TableId, Version, Xid};

use super::{flow, messages, names, values};

/// The names of the bits that are set, with `separator` between.
fn flag_names(bits: u32, names: &[(u32, &'static str)], separator: &str) -> String {
    let name = |bit| {
        let found = names.iter().find(|(known, _)| *known == bit);
        found.map(|(_, name)| *name)
    };
    values::bit_names(bits, name).replace(' ', separator)
}

pub(super) const BUNDLE_FLAGS: &[(u32, &str)] = &[(1, "atomic"), (2, "ordered")];

pub(super) fn bundle_command(command: BundleCommand) -> &'static str {
    match command {
        BundleCommand::OpenRequest => "OPEN_REQUEST",
        BundleCommand::OpenReply => "OPEN_REPLY",
        BundleCommand::CloseRequest => "CLOSE_REQUEST",
        BundleCommand::CloseReply => "CLOSE_REPLY",
        BundleCommand::CommitRequest => "COMMIT_REQUEST",
        BundleCommand::CommitReply => "COMMIT_REPLY",
        BundleCommand::DiscardRequest => "DISCARD_REQUEST",
        BundleCommand::DiscardReply => "DISCARD_REPLY",
    }
}

/// A bundle's number in hex as C writes it: zero has no prefix.
fn bundle_id(id: u32) -> String {
    match id {
        0 => "0".into(),
        id => format!("{id:#x}"),
    }
}

fn bundle_flags(flags: BundleFlags) -> String {
    flag_names(u32::from(flags.0), BUNDLE_FLAGS, " ")
}

pub(super) fn bundle_control(w: &mut String, m: &BundleControl) -> fmt::Result {
    let (id, command) = (bundle_id(m.bundle_id), bundle_command(m.command));
    let flags = bundle_flags(m.flags);
    write!(w, "\n bundle_id={id} type={command} flags={flags}")
}

/// Writes the header line, then the inner message as if it stood alone.
pub(super) fn bundle_add(w: &mut String, version: Version, xid: Xid, m: &BundleAdd) -> fmt::Result {
    let (id, flags) = (bundle_id(m.bundle_id), bundle_flags(m.flags));
    writeln!(w, "\n bundle_id={id} flags={flags}")?;
    w.push_str(&messages::message(version, xid, &m.message));
    Ok(())
}

pub(super) fn request_forward(w: &mut String, version: Version, m: &RequestForward) -> fmt::Result {
    let reason = match *m.request {
        Message::GroupMod(_) => "group_mod",
        _ => "meter_mod",
    };
    write!(w, " reason={reason}")?;
    messages::body(w, version, m.xid, &m.request)
}

pub(super) fn table_mod(w: &mut String, version: Version, m: &TableMod) -> fmt::Result {
    match m.table_id {
        TableId::ALL => write!(w, " table_id: ALL_TABLES")?,
        TableId(id) => write!(w, " table_id={id}")?,
    }
    match version {
        Version::V10 | Version::V11 | Version::V12 => {
            let named = names::TABLE_MISS.get(m.config as usize & 3);
            return write!(
                w,
                ", flow_miss_config={}",
                named.unwrap_or(&names::TABLE_MISS[0])
            );
        }
        // 1.3 has the bits of `config` for compatibility only: Open vSwitch prints none of them.
        Version::V13 => return Ok(()),
        Version::V14 | Version::V15 => {}
    }
    write!(w, ", eviction={}", on(m, TableConfig::EVICTION))?;
    if let Some(flags) = eviction_flags(m) {
        write!(w, ", eviction_flags={flags}")?;
    }
    write!(w, ", vacancy={}", on(m, TableConfig::VACANCY_EVENTS))?;
    if has(m, TableConfig::VACANCY_EVENTS) {
        let (down, up, _) = vacancy(m);
        write!(w, " vacancy:{down},{up}")?;
    }
    Ok(())
}

pub(super) fn table_desc(w: &mut String, m: &TableMod) -> fmt::Result {
    writeln!(w, "\n  table {}:", m.table_id.0)?;
    let eviction = on(m, TableConfig::EVICTION);
    let flags = eviction_flags(m).unwrap_or_else(|| "(default)".into());
    writeln!(w, "   eviction={eviction} eviction_flags={flags}")?;
    write!(w, "   vacancy={}", on(m, TableConfig::VACANCY_EVENTS))?;
    if has(m, TableConfig::VACANCY_EVENTS) {
        let (down, up, now) = vacancy(m);
        write!(w, " vacancy_down={down}% vacancy_up={up}% vacancy={now}%")?;
    }
    w.push('\n');
    Ok(())
}

pub(super) fn table_status(w: &mut String, m: &TableStatus) -> fmt::Result {
    match m.reason {
        TableReason::VACANCY_DOWN => w.push_str(" reason=VACANCY_DOWN"),
        TableReason::VACANCY_UP => w.push_str(" reason=VACANCY_UP"),
        _ => {}
    }
    w.push_str("\ntable_desc:-");
    table_desc(w, &m.table)
}

fn has(m: &TableMod, bit: TableConfig) -> bool {
    TableConfig(m.config).contains(bit)
}

fn on(m: &TableMod, bit: TableConfig) -> &'static str {
    if has(m, bit) { "on" } else { "off" }
}

fn eviction_flags(m: &TableMod) -> Option<String> {
    const NAMES: &[(u32, &str)] = &[(1, "OTHER"), (2, "IMPORTANCE"), (4, "LIFETIME")];
    let last = m
        .properties
        .iter()
        .rev()
        .find_map(|property| match property {
            TableProperty::Eviction(flags) => Some(flags.0),
            _ => None,
        })?;
    Some(flag_names(last, NAMES, "|"))
}

fn vacancy(m: &TableMod) -> (u8, u8, u8) {
    let last = m
        .properties
        .iter()
        .rev()
        .find_map(|property| match property {
            TableProperty::Vacancy { down, up, now } => Some((*down, *up, *now)),
            _ => None,
        });
    last.unwrap_or((0, 0, 0))
}

/// Writes this crate's own format: Open vSwitch has no 1.5 message of this kind.
pub(super) fn controller_status(w: &mut String, m: &ControllerStatus) -> fmt::Result {
    let role = names::role(m.role);
    let (id, reason, channel) = (m.short_id, m.reason, m.channel_status);
    write!(
        w,
        " short_id={id} role={role} reason={reason} channel_status={channel}"
    )?;
    for property in &m.properties {
        match property {
            ControllerProperty::Uri(uri) => write!(w, " uri={}", String::from_utf8_lossy(uri))?,
            ControllerProperty::Other(other) => {
                write!(
                    w,
                    " property({},{})",
                    other.property,
                    values::hex(&other.data)
                )?;
            }
        }
    }
    Ok(())
}

const MONITOR_FLAGS: &[(FlowMonitorFlags, &str)] = &[
    (FlowMonitorFlags::INITIAL, "initial"),
    (FlowMonitorFlags::ADD, "add"),
    (FlowMonitorFlags::REMOVED, "delete"),
    (FlowMonitorFlags::MODIFY, "modify"),
    (FlowMonitorFlags::INSTRUCTIONS, "actions"),
    (FlowMonitorFlags::NO_ABBREV, "no-abbrev"),
    (FlowMonitorFlags::ONLY_OWN, "own"),
];

pub(super) fn flow_monitor(w: &mut String, version: Version, m: &FlowMonitor) -> fmt::Result {
    if m.command == FlowMonitorCommand::Delete {
        return write!(w, "\n id={} command=delete", m.monitor_id);
    }
    let all: Vec<(u32, &str)> = MONITOR_FLAGS
        .iter()
        .map(|(flag, name)| (u32::from(flag.0), *name))
        .collect();
    let flags = flag_names(u32::from(m.flags.0), &all, ",");
    write!(w, "\n id={} flags={flags}", m.monitor_id)?;
    if m.out_port != PortNo::ANY {
        write!(w, " out_port={}", m.out_port)?;
    }
    if m.out_group != GroupId(0) && m.out_group != GroupId::ANY {
        write!(w, " out_group={}", m.out_group.0 as i32)?;
    }
    if m.table_id != TableId::ALL {
        write!(w, " table={}", m.table_id.0)?;
    }
    let m = flow::match_text(version, &m.r#match, flow::PRIORITY_DEFAULT);
    if !m.is_empty() {
        write!(w, " {m}")?;
    }
    Ok(())
}

pub(super) fn flow_update(w: &mut String, version: Version, m: &FlowUpdate) -> fmt::Result {
    w.push_str("\n event=");
    let m = match m {
        FlowUpdate::Entry(entry) => entry,
        FlowUpdate::Abbreviated(xid) => return write!(w, "ABBREV xid={:#x}", xid.0),
        FlowUpdate::Paused => return w.write_str("PAUSED"),
        FlowUpdate::Resumed => return w.write_str("RESUMED"),
    };
    match m.event {
        FlowEvent::Initial => w.push_str("INITIAL"),
        FlowEvent::Added => w.push_str("ADDED"),
        FlowEvent::Removed => {
            let reason = names::flow_removed_reason(m.reason.0);
            write!(w, "DELETED reason={reason}")?;
        }
        FlowEvent::Modified => w.push_str("MODIFIED"),
    }
    write!(w, " table={}", m.table_id.0)?;
    if m.idle_timeout != 0 {
        write!(w, " idle_timeout={}", m.idle_timeout)?;
    }
    if m.hard_timeout != 0 {
        write!(w, " hard_timeout={}", m.hard_timeout)?;
    }
    match m.cookie.0 {
        0 => w.push_str(" cookie=0 "),
        cookie => write!(w, " cookie={cookie:#x} ")?,
    }
    // Open vSwitch leaves out the entry's priority here.
    w.push_str(&flow::match_text(
        version,
        &m.r#match,
        flow::PRIORITY_DEFAULT,
    ));
    if !m.instructions.is_empty() {
        if !w.ends_with(' ') {
            w.push(' ');
        }
        w.push_str("actions=");
        flow::instructions(w, version, &m.instructions)?;
    }
    Ok(())
}

/// Writes this crate's own format, not Open vSwitch's.
pub(super) fn flow_counters(w: &mut String, version: Version, m: &FlowCounters) -> fmt::Result {
    write!(w, "\n table={} reason={}", m.table_id.0, m.reason)?;
    for stat in &m.stats {
        w.push(' ');
        self::stat(w, stat)?;
    }
    let m = flow::match_text(version, &m.r#match, m.priority);
    if !m.is_empty() {
        write!(w, " {m}")?;
    }
    Ok(())
}

pub(super) fn stat(w: &mut dyn Write, stat: &Stat) -> fmt::Result {
    match stat {
        Stat::Duration(sec, nsec) => {
            w.write_str("duration=")?;
            values::duration(w, *sec, *nsec)
        }
        Stat::IdleTime(sec, nsec) => {
            w.write_str("idle_time=")?;
            values::duration(w, *sec, *nsec)
        }
        Stat::FlowCount(count) => write!(w, "flow_count={count}"),
        Stat::PacketCount(count) => write!(w, "packet_count={count}"),
        Stat::ByteCount(count) => write!(w, "byte_count={count}"),
        Stat::Other { header, payload } => {
            write!(w, "oxs={header:#010x}:{}", values::hex(payload))
        }
    }
}

pub(super) fn bundle_features(w: &mut String, list: &[BundleFeatureProperty]) -> fmt::Result {
    for property in list {
        match property {
            BundleFeatureProperty::Time {
                accuracy,
                future_max,
                past_max,
                now,
            } => {
                for (name, time) in [
                    ("accuracy", accuracy),
                    ("future_max", future_max),
                    ("past_max", past_max),
                    ("now", now),
                ] {
                    write!(w, " {name}={}.{:09}s", time.seconds, time.nanoseconds)?;
                }
            }
            BundleFeatureProperty::Other(other) => {
                write!(
                    w,
                    " property({},{})",
                    other.property,
                    values::hex(&other.data)
                )?;
            }
        }
    }
    Ok(())
}
