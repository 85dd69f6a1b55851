//! Flow entries, groups and meters from the syntax of `ovs-ofctl add-flow`, `add-group` and
//! `add-meter`, and from the words [`print`](super::print) has for them.

use crate::actions::Bucket;
use crate::message::{
    FlowMod, FlowModCommand, GroupMod, GroupModCommand, GroupType, MeterBand, MeterBandKind,
    MeterFlags, MeterMod, MeterModCommand,
};
use crate::types::{BufferId, Cookie, GroupId, MeterId, TableId, Version};

use super::error::TextError;
use super::flow::{FLOW_FLAGS, PRIORITY_DEFAULT, bucket_weight_default};
use super::items::{Item, Items};
use super::read_actions::{read_actions, read_instructions, small};
use super::read_match::{self, MatchReader, masked_number, number};
use super::values;

/// Parses a flow, such as `priority=10,tcp,nw_dst=10.0.0.0/8,actions=output:2` for OpenFlow 1.3.
///
/// An optional first word `add`, `modify`, `modify_strict`, `delete` or `delete_strict` is the
/// command, as in the files of `ovs-ofctl`; the default is `add`. A delete without a table applies
/// to all tables.
///
/// # Errors
/// The error names the column, the text found there, and what to write instead.
pub fn parse_flow_mod(text: &str) -> Result<FlowMod, TextError> {
    parse_flow_mod_as(Version::V13, text)
}

/// Parses a flow for `version`, which decides the actions that some words mean: `mod_vlan_vid`,
/// `strip_vlan`, `enqueue`.
///
/// # Errors
/// Fails as [`parse_flow_mod`] does.
pub fn parse_flow_mod_as(version: Version, text: &str) -> Result<FlowMod, TextError> {
    read_flow_mod(version, text, 0, Style::Command)
}

/// Origin of a text, which decides what the text leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Written for `ovs-ofctl add-flow` and similar commands.
    Command,
    /// Printed from a message: table 0 is left out, whatever the command.
    Printed,
}

pub(super) fn read_flow_mod(
    version: Version,
    text: &str,
    base: usize,
    style: Style,
) -> Result<FlowMod, TextError> {
    let mut items = Items::new(text, base);
    let mut flow = FlowMod::add(PRIORITY_DEFAULT, Default::default(), Vec::new());
    flow.instructions.clear();
    let mut m = MatchReader::default();
    let mut actions = None;
    let mut table = None;
    let mut is_first = true;
    while let Some(item) = items.next()? {
        let command = is_first.then(|| command(&item)).flatten();
        is_first = false;
        if let Some(command) = command {
            flow.command = command;
        } else if matches!(item.key, "actions" | "action") && item.value.is_some() {
            actions = Some(items.rest_from(&item));
            break;
        } else if item.key == "table" {
            table = Some(TableId(small(&item, 255)?));
        } else if !flow_word(&mut flow, &item)? && !m.take(item)? {
            return Err(read_match::unknown_field(&item));
        }
    }
    let deletes = matches!(
        flow.command,
        FlowModCommand::Delete | FlowModCommand::DeleteStrict
    );
    flow.table_id = table.unwrap_or(match style {
        Style::Command if deletes && version != Version::V10 => TableId::ALL,
        _ => TableId(0),
    });
    flow.r#match = m.finish()?;
    match actions {
        Some((actions, at)) => {
            flow.instructions = read_instructions(version, actions, at, &flow.r#match)?;
        }
        None if deletes => {}
        None => {
            return Err(TextError::new(
                base + text.len(),
                "",
                "actions=… (actions=drop for none)",
            ));
        }
    }
    if style == Style::Command {
        refuse_useless(&flow, text, base)?;
    }
    Ok(flow)
}

fn command(item: &Item<'_>) -> Option<FlowModCommand> {
    if item.value.is_some() {
        return None;
    }
    Some(match item.key.to_ascii_lowercase().as_str() {
        "add" => FlowModCommand::Add,
        "modify" | "mod" => FlowModCommand::Modify,
        "modify_strict" | "mod_strict" => FlowModCommand::ModifyStrict,
        "delete" | "del" => FlowModCommand::Delete,
        "delete_strict" | "del_strict" => FlowModCommand::DeleteStrict,
        _ => return None,
    })
}

/// Parses the parts of a flow other than its match, table and actions. `false` for any other item.
fn flow_word(flow: &mut FlowMod, item: &Item<'_>) -> Result<bool, TextError> {
    if let Some((flag, _)) = FLOW_FLAGS.iter().find(|(_, word)| *word == item.key) {
        flow.flags |= *flag;
        return Ok(true);
    }
    match item.key {
        "priority" => flow.priority = small(item, 0xffff)?,
        "idle_timeout" | "idle" => flow.idle_timeout = small(item, 0xffff)?,
        "hard_timeout" | "hard" => flow.hard_timeout = small(item, 0xffff)?,
        "buffer_id" | "buf" => flow.buffer_id = Some(BufferId(small(item, u128::from(u32::MAX))?)),
        "out_port" => flow.out_port = read_match::port(item, item.value()?)?,
        "out_group" => flow.out_group = group_id(item)?,
        "cookie" => cookie(flow, item)?,
        // Words that dump-flows adds are accepted, so that its lines can be read back.
        "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
        _ => return Ok(false),
    }
    Ok(true)
}

/// ADD sets `COOKIE`, the other commands look for `COOKIE/MASK`; `-1` is all ones.
fn cookie(flow: &mut FlowMod, item: &Item<'_>) -> Result<(), TextError> {
    let text = item.value()?;
    let wanted = "cookie=NUMBER for a flow that is added, cookie=NUMBER/MASK for others";
    let (value, mask) = match text {
        "-1" => (u128::from(u64::MAX), u128::MAX),
        text => masked_number(text).ok_or_else(|| item.wrong(wanted))?,
    };
    let value = u64::try_from(value).map_err(|_| item.wrong("at most 64 bits"))?;
    let is_masked = text.contains('/');
    match (flow.command, is_masked) {
        (FlowModCommand::Add, true)
        | (FlowModCommand::Delete | FlowModCommand::DeleteStrict, false) => {
            return Err(item.wrong(wanted));
        }
        (_, true) => flow.cookie_mask = Cookie(mask as u64),
        (_, false) => {}
    }
    flow.cookie = Cookie(value);
    Ok(())
}

/// Refuses a flow that a switch would ignore or refuse.
fn refuse_useless(flow: &FlowMod, text: &str, base: usize) -> Result<(), TextError> {
    if flow.command == FlowModCommand::Add && flow.table_id == TableId::ALL {
        let at = text.find("table").unwrap_or(0);
        return Err(TextError::new(
            base + at,
            "table=255",
            "table=0 to table=254: 255 is no table",
        ));
    }
    Ok(())
}

fn group_id(item: &Item<'_>) -> Result<GroupId, TextError> {
    let wanted = "a group number, all or any";
    match item.value()?.to_ascii_lowercase().as_str() {
        "all" => Ok(GroupId::ALL),
        "any" => Ok(GroupId::ANY),
        text => match number(text).map(u32::try_from) {
            Some(Ok(id)) => Ok(GroupId(id)),
            _ => Err(item.wrong(wanted)),
        },
    }
}

/// Parses a group such as `group_id=1,type=select,bucket=weight:2,output:1,bucket=output:2`, like
/// `ovs-ofctl add-group`. An optional first word `add`, `modify` or `delete` is the command.
///
/// # Errors
/// Fails as [`parse_flow_mod`] does.
pub fn parse_group_mod(text: &str) -> Result<GroupMod, TextError> {
    read_group_mod(Version::V13, text, 0)
}

/// Parses a group whose number is given, such as
/// `type=select,bucket=weight:2,output:1,bucket=output:2`.
///
/// # Errors
/// Fails as [`parse_group_mod`] does, and if the text has a number or a command.
pub fn parse_group_of(id: GroupId, text: &str) -> Result<GroupMod, TextError> {
    read_group(Version::V13, text, 0, Some(id))
}

pub(super) fn read_group_mod(
    version: Version,
    text: &str,
    base: usize,
) -> Result<GroupMod, TextError> {
    read_group(version, text, base, None)
}

fn read_group(
    version: Version,
    text: &str,
    base: usize,
    given: Option<GroupId>,
) -> Result<GroupMod, TextError> {
    let (head, buckets) = match find_word(text, "bucket", 0) {
        Some(at) => (&text[..at], &text[at..]),
        None => (text, ""),
    };
    let mut command = GroupModCommand::Add;
    let mut id = given;
    let mut group_type = None;
    let mut items = Items::new(head, base);
    while let Some(item) = items.next()? {
        match (item.key.to_ascii_lowercase().as_str(), item.value) {
            ("type", _) => group_type = Some(read_group_type(&item)?),
            _ if given.is_some() => return Err(item.unknown("type=… or bucket=…")),
            ("add", None) => command = GroupModCommand::Add,
            ("modify" | "mod", None) => command = GroupModCommand::Modify,
            ("delete" | "del", None) => command = GroupModCommand::Delete,
            ("group_id", _) => id = Some(group_id(&item)?),
            _ => return Err(item.unknown("group_id=…, type=… or bucket=…")),
        }
    }
    let missing = |what: &str| TextError::new(base + text.len(), "", what);
    let group_type = match group_type {
        Some(group_type) => group_type,
        None if command == GroupModCommand::Delete => GroupType::All,
        None => return Err(missing("type=all, select, indirect or ff")),
    };
    Ok(GroupMod::new(
        command,
        group_type,
        id.ok_or_else(|| missing("group_id=NUMBER"))?,
        read_buckets(version, group_type, buckets, base + head.len())?,
    ))
}

fn read_group_type(item: &Item<'_>) -> Result<GroupType, TextError> {
    Ok(match item.value()? {
        "all" => GroupType::All,
        "select" => GroupType::Select,
        "indirect" => GroupType::Indirect,
        "ff" | "fast_failover" => GroupType::FastFailover,
        _ => return Err(item.wrong("type=all, select, indirect or ff")),
    })
}

/// Returns the next position after `from` where `word=` or `word:` starts an item.
fn find_word(text: &str, word: &str, from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = text[at..].find(word).map(|n| n + at) {
        let starts = text[..found].ends_with([',', ' ', '\t', '\n']) || found == 0;
        if starts && text[found + word.len()..].starts_with(['=', ':']) {
            return Some(found);
        }
        at = found + word.len();
    }
    None
}

/// Parses `bucket=…,bucket=…`; each bucket ends where the next one starts.
fn read_buckets(
    version: Version,
    group_type: GroupType,
    text: &str,
    base: usize,
) -> Result<Vec<Bucket>, TextError> {
    const WORD: &str = "bucket";
    let mut buckets = Vec::new();
    let mut start = find_word(text, WORD, 0);
    while let Some(at) = start {
        let body = at + WORD.len() + 1;
        start = find_word(text, WORD, body);
        let end = start.unwrap_or(text.len());
        buckets.push(read_bucket(
            version,
            group_type,
            &text[body..end],
            base + body,
        )?);
    }
    Ok(buckets)
}

fn read_bucket(
    version: Version,
    group_type: GroupType,
    text: &str,
    base: usize,
) -> Result<Bucket, TextError> {
    let mut bucket = Bucket::new(bucket_weight_default(group_type), Vec::new());
    let mut items = Items::new(text, base);
    let mut actions = items.remaining();
    while let Some(item) = items.next()? {
        match item.key {
            "weight" => bucket.weight = small(&item, 0xffff)?,
            "watch_port" => bucket.watch_port = read_match::port(&item, item.value()?)?,
            "watch_group" => bucket.watch_group = group_id(&item)?,
            "actions" | "action" if item.value.is_some() => {
                actions = items.rest_from(&item);
                break;
            }
            // The first word that is not a property of the bucket starts its actions.
            _ => {
                actions = (&text[item.at - base..], item.at);
                break;
            }
        }
        actions = items.remaining();
    }
    bucket.actions = read_actions(version, actions.0, actions.1, &Default::default())?;
    Ok(bucket)
}

/// Parses a meter such as `meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100`, like
/// `ovs-ofctl add-meter`. An optional first word `add`, `modify` or `delete` is the command.
///
/// # Errors
/// Fails as [`parse_flow_mod`] does.
pub fn parse_meter_mod(text: &str) -> Result<MeterMod, TextError> {
    read_meter_mod(text, 0)
}

/// Parses a meter whose number is given, such as
/// `kbps,burst,bands=type=drop,rate=1000,burst_size=100`.
///
/// # Errors
/// Fails as [`parse_meter_mod`] does, and if the text has a number or a command.
pub fn parse_meter_of(id: MeterId, text: &str) -> Result<MeterMod, TextError> {
    read_meter(text, 0, Some(id))
}

pub(super) fn read_meter_mod(text: &str, base: usize) -> Result<MeterMod, TextError> {
    read_meter(text, base, None)
}

fn read_meter(text: &str, base: usize, given: Option<MeterId>) -> Result<MeterMod, TextError> {
    let mut meter = MeterMod {
        command: MeterModCommand::Add,
        flags: MeterFlags::empty(),
        meter_id: given.unwrap_or(MeterId(0)),
        bands: Vec::new(),
    };
    let mut has_id = given.is_some();
    let mut items = Items::new(text, base);
    while let Some(item) = items.next()? {
        match (item.key.to_ascii_lowercase().as_str(), item.value) {
            ("add" | "modify" | "mod" | "delete" | "del", None) | ("meter", _)
                if given.is_some() =>
            {
                return Err(item.unknown("kbps, pktps, burst, stats or bands=…"));
            }
            ("add", None) => meter.command = MeterModCommand::Add,
            ("modify" | "mod", None) => meter.command = MeterModCommand::Modify,
            ("delete" | "del", None) => meter.command = MeterModCommand::Delete,
            ("meter", Some(_)) => {
                meter.meter_id = meter_id(&item)?;
                has_id = true;
            }
            ("kbps", None) => meter.flags |= MeterFlags::KBPS,
            ("pktps", None) => meter.flags |= MeterFlags::PKTPS,
            ("burst", None) => meter.flags |= MeterFlags::BURST,
            ("stats", None) => meter.flags |= MeterFlags::STATS,
            ("flags", Some(_)) => meter.flags |= MeterFlags(small(&item, 0xffff)?),
            ("bands" | "band", Some(_)) => {
                let (text, at) = items.rest_from(&item);
                meter.bands = read_bands(text, at)?;
                break;
            }
            _ => return Err(item.unknown("meter=…, kbps, pktps, burst, stats or bands=…")),
        }
    }
    if !has_id {
        return Err(TextError::new(base + text.len(), "", "meter=NUMBER"));
    }
    Ok(meter)
}

pub(super) fn meter_id(item: &Item<'_>) -> Result<MeterId, TextError> {
    match item.value()? {
        "all" => Ok(MeterId::ALL),
        "controller" => Ok(MeterId::CONTROLLER),
        "slowpath" => Ok(MeterId::SLOWPATH),
        _ => small(item, u128::from(u32::MAX)).map(MeterId),
    }
}

/// Parses the bands, each of which starts with `type=`.
fn read_bands(text: &str, base: usize) -> Result<Vec<MeterBand>, TextError> {
    let mut bands: Vec<MeterBand> = Vec::new();
    let mut items = Items::new(text, base);
    while let Some(item) = items.next()? {
        if item.key == "type" {
            let kind = match item.value()? {
                "drop" => MeterBandKind::Drop,
                "dscp_remark" => MeterBandKind::DscpRemark { prec_level: 0 },
                "65535" => MeterBandKind::Experimenter {
                    experimenter: 0,
                    data: Default::default(),
                },
                _ => return Err(item.wrong("type=drop or type=dscp_remark")),
            };
            bands.push(MeterBand {
                rate: 0,
                burst_size: 0,
                kind,
            });
            continue;
        }
        let Some(band) = bands.last_mut() else {
            return Err(item.unknown("bands=type=…: every band starts with its type"));
        };
        match (item.key, &mut band.kind) {
            ("rate", _) => band.rate = small(&item, u128::from(u32::MAX))?,
            ("burst_size", _) => band.burst_size = small(&item, u128::from(u32::MAX))?,
            ("prec_level", MeterBandKind::DscpRemark { prec_level }) => {
                *prec_level = small(&item, 255)?;
            }
            ("experimenter", MeterBandKind::Experimenter { experimenter, .. }) => {
                *experimenter = small(&item, u128::from(u32::MAX))?;
            }
            ("data", MeterBandKind::Experimenter { data, .. }) => {
                let bytes = values::unhex(item.value.unwrap_or(""));
                *data = bytes
                    .ok_or_else(|| item.wrong("pairs of hex digits"))?
                    .into();
            }
            _ => return Err(item.unknown("rate=…, burst_size=… or prec_level=…")),
        }
    }
    Ok(bands)
}
