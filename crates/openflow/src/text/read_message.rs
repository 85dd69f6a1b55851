//! Whole messages from text, and the exact form that can always be read back.

use bytes::Bytes;

use crate::frame::Frame;
use crate::hello::Hello;
use crate::kind::MessageKind;
use crate::message::*;
use crate::multipart::{FlowStatsRequest, RequestBody};
use crate::types::{BufferId, GroupId, MacAddr, PortNo, QueueId, TableId, Version, Xid};
use crate::wire::decode;

use super::error::TextError;
use super::items::{Item, Items};
use super::read_actions::{read_actions, small};
use super::read_flow::{Style, meter_id, read_flow_mod, read_group_mod, read_meter_mod};
use super::read_match::{self, MatchReader, number};
use super::{later, names, values};

/// Starts the line that holds a whole message in hex.
const FRAME_LINE: &str = "frame=";

/// Prints a message like [`print`](super::print), with a last line `frame=HEX` if the words lack
/// part of it.
pub fn print_exact(frame: &Frame) -> String {
    let words = super::print(frame);
    if let (Some(version), Ok(message)) = (frame.version(), decode(frame))
        && read_words(&words) == Ok((version, frame.xid(), message))
    {
        return words;
    }
    format!("{words}\n{FRAME_LINE}{}", values::hex(frame.bytes()))
}

/// Parses the output of [`print_exact`], or hand-written words for a message that words can
/// express.
///
/// # Errors
/// Fails if the text is not a message; if words without a `frame=` line leave out what the message
/// needs (the packet of a PACKET_IN, most statistics); or if the `frame=` line is another message
/// than the words above it.
pub fn parse_message(text: &str) -> Result<(Version, Xid, Message), TextError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let at = match text.rfind(FRAME_LINE) {
        Some(at) if at == 0 || text[..at].ends_with('\n') => at,
        _ => return read_words(text),
    };
    let digits = &text[at + FRAME_LINE.len()..];
    let wrong = |wanted: &str| TextError::new(at + FRAME_LINE.len(), digits, wanted);
    let bytes = values::unhex(digits).ok_or_else(|| wrong("pairs of hex digits"))?;
    let frame = Frame::new(Bytes::from(bytes)).map_err(|e| wrong(&format!("one message: {e}")))?;
    // Printed text may end with an empty line: the text in an error of a peer.
    let words = text[..at].trim_end_matches('\n');
    if !words.is_empty() && words != super::print(&frame).trim_end_matches('\n') {
        return Err(wrong(
            "the message of the words above, or only one of the two",
        ));
    }
    match (frame.version(), decode(&frame)) {
        (Some(version), Ok(message)) => Ok((version, frame.xid(), message)),
        (None, _) => Err(wrong("a message of OpenFlow 1.0 to 1.5")),
        (_, Err(error)) => Err(wrong(&format!("a message that decodes: {error}"))),
    }
}

/// The text after the header line's colon, and its position.
#[derive(Clone, Copy)]
struct Body<'a> {
    version: Version,
    text: &'a str,
    at: usize,
}

impl<'a> Body<'a> {
    fn items(&self) -> Items<'a> {
        Items::new(self.text, self.at)
    }

    fn wrong(&self, wanted: &str) -> TextError {
        TextError::new(self.at, self.text.trim_start(), wanted)
    }
}

/// Parses words such as `OFPT_FLOW_MOD (OF1.3) (xid=0x1): ADD …`.
fn read_words(text: &str) -> Result<(Version, Xid, Message), TextError> {
    let wrong = |wanted: &str| {
        let line = text.lines().next().unwrap_or("");
        TextError::new(0, line, wanted)
    };
    const SHAPE: &str = "a message such as OFPT_HELLO (OF1.3) (xid=0x1):";
    let (header, _) = text.split_once("):").ok_or_else(|| wrong(SHAPE))?;
    let (head, xid) = header.rsplit_once(" (xid=").ok_or_else(|| wrong(SHAPE))?;
    let xid = number(xid)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| wrong(SHAPE))?;
    let (name, version) = match head.split_once(" (OF") {
        None => (head, Version::V10),
        Some((name, version)) => {
            let version = version.trim_end_matches(')');
            let found = Version::ALL.into_iter().find(|v| v.to_string() == version);
            (
                name,
                found.ok_or_else(|| wrong("a version such as (OF1.3)"))?,
            )
        }
    };
    let at = header.len() + 2;
    let body = Body {
        version,
        text: &text[at..],
        at,
    };
    let message = match name.strip_prefix("OFPST_") {
        Some(name) => Message::MultipartRequest(request(name, body)?),
        None => {
            let of_v13 = name
                .strip_prefix("ONFT_")
                .map(|rest| format!("OFPT_{rest}"));
            let name = of_v13.as_deref().unwrap_or(name);
            let mut words = names::MESSAGES.iter();
            let found = words.find(|(_, word)| *word == name);
            let kind = found.map(|(kind, _)| *kind);
            read_body(
                kind.ok_or_else(|| wrong("a message such as OFPT_FLOW_MOD"))?,
                body,
            )?
        }
    };
    Ok((version, Xid(xid), message))
}

fn read_body(kind: MessageKind, body: Body<'_>) -> Result<Message, TextError> {
    use MessageKind as K;
    let nothing = |message: Message| match body.text.trim() {
        "" => Ok(message),
        _ => Err(body.wrong("nothing: this message has no body")),
    };
    match kind {
        K::Hello => hello(body).map(Message::Hello),
        K::EchoRequest => payload(body).map(Message::EchoRequest),
        K::EchoReply => payload(body).map(Message::EchoReply),
        K::FeaturesRequest => nothing(Message::FeaturesRequest),
        K::GetConfigRequest => nothing(Message::GetConfigRequest),
        K::GetConfigReply => config(body).map(Message::GetConfigReply),
        K::SetConfig => config(body).map(Message::SetConfig),
        K::PacketOut => packet_out(body).map(Message::PacketOut),
        K::FlowMod => {
            read_flow_mod(body.version, body.text, body.at, Style::Printed).map(Message::FlowMod)
        }
        K::GroupMod => read_group_mod(body.version, body.text, body.at).map(Message::GroupMod),
        K::PortMod => port_mod(body).map(Message::PortMod),
        K::TableMod => table_mod(body).map(Message::TableMod),
        K::BarrierRequest => nothing(Message::BarrierRequest),
        K::BarrierReply => nothing(Message::BarrierReply),
        K::QueueGetConfigRequest => {
            let mut port = PortNo::ANY;
            each(body, |item| match item.key {
                "port" => read_match::port(item, item.value()?).map(|p| port = p),
                _ => Err(item.unknown("port=…")),
            })?;
            Ok(Message::QueueGetConfigRequest { port })
        }
        K::RoleRequest => role(body, 0).map(Message::RoleRequest),
        K::RoleReply => role(body, u64::MAX).map(Message::RoleReply),
        K::RoleStatus => role_status(body).map(Message::RoleStatus),
        K::GetAsyncRequest => nothing(Message::GetAsyncRequest),
        K::BundleControl => bundle_control(body).map(Message::BundleControl),
        K::MeterMod => read_meter_mod(body.text, body.at).map(Message::MeterMod),
        _ => Err(body.wrong("the line frame=HEX too: words alone do not say all of this message")),
    }
}

fn each(
    body: Body<'_>,
    mut take: impl FnMut(&Item<'_>) -> Result<(), TextError>,
) -> Result<(), TextError> {
    let mut items = body.items();
    while let Some(item) = items.next()? {
        take(&item)?;
    }
    Ok(())
}

fn hello(body: Body<'_>) -> Result<Hello, TextError> {
    let Some((_, list)) = body.text.split_once("version bitmap:") else {
        return Err(body.wrong("version bitmap: 0x01, 0x04"));
    };
    let mut bitmap = 0u32;
    for word in list
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        match number(word) {
            Some(version) if version < 32 => bitmap |= 1 << version,
            _ => return Err(body.wrong("version bitmap: numbers below 32, such as 0x01, 0x04")),
        }
    }
    Ok(Hello {
        bitmaps: Some(vec![bitmap]),
    })
}

/// The hex dump under `N bytes of payload`.
fn payload(body: Body<'_>) -> Result<Bytes, TextError> {
    let mut lines = body.text.lines();
    let announced = lines
        .next()
        .and_then(|line| line.trim().strip_suffix(" bytes of payload"));
    let len = announced
        .and_then(number)
        .ok_or_else(|| body.wrong("N bytes of payload"))?;
    let mut bytes = Vec::new();
    for line in lines {
        let digits = line
            .get(10..58)
            .unwrap_or_else(|| line.get(10..).unwrap_or(""));
        let digits: String = digits.chars().filter(char::is_ascii_hexdigit).collect();
        bytes.extend(values::unhex(&digits).ok_or_else(|| body.wrong("a hex dump"))?);
    }
    if bytes.len() as u128 != len {
        return Err(body.wrong(&format!(
            "a hex dump of {len} bytes: {} are there",
            bytes.len()
        )));
    }
    Ok(Bytes::from(bytes))
}

fn config(body: Body<'_>) -> Result<SwitchConfig, TextError> {
    let mut config = SwitchConfig::default();
    each(body, |item| {
        match item.key {
            "frags" => {
                config.flags |= match item.value()? {
                    "normal" => 0,
                    "drop" => 1,
                    "reassemble" => 2,
                    "nx-match" => 3,
                    _ => return Err(item.wrong("frags=normal, drop, reassemble or nx-match")),
                }
            }
            "invalid_ttl_to_controller" => config.flags |= 4,
            "miss_send_len" => config.miss_send_len = small(item, 0xffff)?,
            _ => return Err(item.unknown("frags=… or miss_send_len=…")),
        }
        Ok(())
    })?;
    Ok(config)
}

/// Parses a PACKET_OUT whose packet is in the switch's buffer, or that has no packet.
fn packet_out(body: Body<'_>) -> Result<PacketOut, TextError> {
    let mut out = PacketOut::new(PortNo::CONTROLLER, Vec::new(), Bytes::new());
    each(body, |item| {
        match item.key {
            "in_port" if item.value.is_some() => {
                out.in_port = read_match::port(item, item.value()?)?;
            }
            "actions" => {}
            "buffer" => out.buffer_id = buffer(item)?,
            "data_len" if item.value != Some("0") => {
                return Err(item.wrong("the line frame=HEX too: the packet is not in these words"));
            }
            _ => {}
        }
        Ok(())
    })?;
    let Some((_, rest)) = body.text.split_once("actions=") else {
        return Err(body.wrong("in_port=… actions=…"));
    };
    let at = body.at + body.text.len() - rest.len();
    let end = rest
        .find(" buffer=")
        .or_else(|| rest.find(" data_len="))
        .unwrap_or(rest.len());
    out.actions = read_actions(body.version, &rest[..end], at, &Default::default())?;
    Ok(out)
}

fn buffer(item: &Item<'_>) -> Result<Option<BufferId>, TextError> {
    let wanted = "buffer=0x and up to eight hex digits";
    let digits = item
        .value()?
        .strip_prefix("0x")
        .ok_or_else(|| item.wrong(wanted))?;
    let id = u32::from_str_radix(digits, 16).map_err(|_| item.wrong(wanted))?;
    Ok(Some(BufferId(id)))
}

/// Port, address, and three lines of bits.
fn port_mod(body: Body<'_>) -> Result<PortMod, TextError> {
    let line = |label: &str| {
        let line = body
            .text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(label));
        line.map(str::trim)
            .ok_or_else(|| body.wrong(&format!("the line {label} …")))
    };
    let bits = |text: &str, name: &dyn Fn(u32) -> Option<&'static str>| {
        text.split_whitespace().try_fold(0u32, |bits, word| {
            let named = (0..32).map(|n| 1 << n).find(|bit| name(*bit) == Some(word));
            let number = || number(word).and_then(|n| u32::try_from(n).ok());
            named.or_else(number).map(|bit| bits | bit)
        })
    };
    let config_name = |bit: u32| {
        PortConfig::NAMES
            .iter()
            .find(|(flag, _)| flag.0 == bit)
            .map(|(_, name)| *name)
    };
    let config = |label: &str| {
        let bits = bits(line(label)?, &config_name);
        bits.map(PortConfig)
            .ok_or_else(|| body.wrong("port bits such as PORT_DOWN NO_FLOOD"))
    };
    let first = line("port: ")?;
    let (port_no, hw_addr) = first
        .split_once(": addr:")
        .ok_or_else(|| body.wrong("port: N: addr:…"))?;
    let port_no: PortNo = port_no.parse().map_err(|e: String| body.wrong(&e))?;
    let hw_addr: MacAddr = hw_addr.parse().map_err(|e: String| body.wrong(&e))?;
    let advertise = match line("advertise: ")? {
        "UNCHANGED" => 0,
        words => bits(words, &names::port_feature)
            .ok_or_else(|| body.wrong("advertise: UNCHANGED, or speeds such as 1GB-FD"))?,
    };
    Ok(PortMod {
        port_no,
        hw_addr,
        config: config("config:")?,
        mask: config("mask:")?,
        advertise,
        properties: Vec::new(),
    })
}

fn table_mod(body: Body<'_>) -> Result<TableMod, TextError> {
    let mut table = TableMod {
        table_id: TableId::ALL,
        config: 0,
        properties: Vec::new(),
    };
    each(body, |item| {
        match (item.key, item.value) {
            // `table_id: ALL_TABLES` is two items.
            ("table_id", Some("")) | ("ALL_TABLES", None) => {}
            ("table_id", _) => table.table_id = TableId(small(item, 255)?),
            ("flow_miss_config", Some(word)) => {
                let found = names::TABLE_MISS.iter().position(|known| *known == word);
                let wanted = || item.wrong("controller, continue or drop");
                table.config |= found.ok_or_else(wanted)? as u32;
            }
            ("eviction", _) => table.config |= switched(item, TableConfig::EVICTION)?,
            ("vacancy", _) => table.config |= switched(item, TableConfig::VACANCY_EVENTS)?,
            _ => return Err(item.unknown("table_id=… or table_id: ALL_TABLES")),
        }
        Ok(())
    })?;
    Ok(table)
}

fn switched(item: &Item<'_>, bit: TableConfig) -> Result<u32, TextError> {
    match item.value()? {
        "on" => Ok(bit.0),
        "off" => Ok(0),
        _ => Err(item.wrong("on or off")),
    }
}

fn bundle_control(body: Body<'_>) -> Result<BundleControl, TextError> {
    let (mut id, mut command, mut flags) = (0, None, 0u16);
    each(body, |item| {
        let flag = |word: &str| {
            let found = later::BUNDLE_FLAGS.iter().find(|(_, name)| *name == word);
            let named = found.map(|(bit, _)| u128::from(*bit));
            named
                .or_else(|| number(word))
                .and_then(|bit| u16::try_from(bit).ok())
        };
        let wanted = "flags=atomic, ordered or a number";
        match item.key {
            "bundle_id" => id = small(item, u128::from(u32::MAX))?,
            "type" => {
                let word = item.value()?;
                let named = |command: &BundleCommand| later::bundle_command(*command) == word;
                let found = BundleCommand::ALL.into_iter().find(named);
                command = Some(found.ok_or_else(|| item.wrong("a type such as OPEN_REQUEST"))?);
            }
            "flags" => flags |= flag(item.value()?).ok_or_else(|| item.wrong(wanted))?,
            // More than one flag: each is a word of its own.
            word if item.value.is_none() => {
                flags |= flag(word).ok_or_else(|| item.unknown(wanted))?;
            }
            _ => return Err(item.unknown("bundle_id=…, type=… or flags=…")),
        }
        Ok(())
    })?;
    Ok(BundleControl {
        bundle_id: id,
        command: command.ok_or_else(|| body.wrong("type=…"))?,
        flags: BundleFlags(flags),
        properties: Vec::new(),
    })
}

fn role(body: Body<'_>, generation_default: u64) -> Result<RoleMessage, TextError> {
    let mut message = RoleMessage::new(Role::NoChange, generation_default);
    each(body, |item| match take_role(&mut message, item)? {
        true => Ok(()),
        false => Err(item.unknown("role=… or generation_id=…")),
    })?;
    Ok(message)
}

/// Takes an item that ROLE_REQUEST, ROLE_REPLY and ROLE_STATUS share. Returns whether `item` is
/// one.
fn take_role(message: &mut RoleMessage, item: &Item<'_>) -> Result<bool, TextError> {
    match item.key {
        "role" => {
            message.role = match item.value()? {
                "nochange" => Role::NoChange,
                "equal" => Role::Equal,
                "primary" | "master" => Role::Primary,
                "secondary" | "slave" => Role::Secondary,
                _ => return Err(item.wrong("nochange, equal, primary or secondary")),
            }
        }
        "generation_id" => message.generation_id = small(item, u128::from(u64::MAX))?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn role_status(body: Body<'_>) -> Result<RoleStatus, TextError> {
    let mut held = RoleMessage::new(Role::NoChange, u64::MAX);
    let mut reason = None;
    each(body, |item| {
        if item.key == "reason" {
            let value = item.value()?;
            let known = names::ROLE_REASONS.iter().find(|(_, word)| *word == value);
            let wanted = "primary_request, configuration_changed or experimenter_data_changed";
            reason = Some(known.ok_or_else(|| item.wrong(wanted))?.0);
            return Ok(());
        }
        match take_role(&mut held, item)? {
            true => Ok(()),
            false => Err(item.unknown("role=…, generation_id=… or reason=…")),
        }
    })?;
    let reason = reason.ok_or_else(|| body.wrong("reason=…"))?;
    if held.role == Role::NoChange {
        return Err(body.wrong("role=equal, primary or secondary"));
    }
    Ok(RoleStatus {
        role: held.role,
        reason,
        generation_id: held.generation_id,
        properties: Vec::new(),
    })
}

/// Parses requests only: the words of replies leave out some of their numbers.
fn request(name: &str, body: Body<'_>) -> Result<MultipartRequest, TextError> {
    let Some(name) = name.strip_suffix(" request") else {
        return Err(
            body.wrong("the line frame=HEX too: words alone do not say all of this message")
        );
    };
    let (body, more) = match body.text.strip_prefix(" flags=[more]") {
        Some(rest) => (
            Body {
                text: rest,
                at: body.at + 13,
                ..body
            },
            true,
        ),
        None => (body, false),
    };
    let nothing = |request: RequestBody| match body.text.trim() {
        "" => Ok(request),
        _ => Err(body.wrong("nothing: this request has no body")),
    };
    let body = match name {
        "DESC" => nothing(RequestBody::Desc)?,
        "FLOW" => RequestBody::Flow(flow_request(body)?),
        "AGGREGATE" => RequestBody::Aggregate(flow_request(body)?),
        "TABLE" => nothing(RequestBody::Table)?,
        "TABLE_DESC" => nothing(RequestBody::TableDesc)?,
        "CONTROLLER_STATUS" => nothing(RequestBody::ControllerStatus)?,
        "FLOW_STATS" => RequestBody::FlowCounters(flow_request(body)?),
        "GROUP_FEATURES" => nothing(RequestBody::GroupFeatures)?,
        "METER_FEATURES" => nothing(RequestBody::MeterFeatures)?,
        "GROUP_DESC" => {
            only(body, "group_id", "ALL")?;
            RequestBody::GroupDesc(GroupId::ALL)
        }
        "PORT_DESC" => {
            only(body, "port", "ANY")?;
            RequestBody::PortDesc(PortNo::ANY)
        }
        "PORT" | "QUEUE" | "GROUP" | "METER" | "METER_CONFIG" => subject(name, body)?,
        _ => return Err(body.wrong("the line frame=HEX too: words do not say all of this message")),
    };
    Ok(MultipartRequest { more, body })
}

fn only(body: Body<'_>, key: &str, value: &str) -> Result<(), TextError> {
    each(body, |item| match item.value {
        Some(given) if item.key == key && given == value => Ok(()),
        _ => Err(item.unknown(format!(
            "{key}={value}: one alone can be asked for in 1.5 only"
        ))),
    })
}

/// Requests about one port, queue, group or meter.
fn subject(name: &str, body: Body<'_>) -> Result<RequestBody, TextError> {
    let (mut port, mut queue) = (PortNo::ANY, QueueId::ALL);
    let mut request = None;
    each(body, |item| {
        match (name, item.key) {
            ("PORT", "port_no") | ("QUEUE", "port") => {
                port = read_match::port(item, item.value()?)?;
            }
            ("QUEUE", "queue") if item.value == Some("ALL") => queue = QueueId::ALL,
            ("QUEUE", "queue") => queue = QueueId(small(item, u128::from(u32::MAX))?),
            ("GROUP", "group_id") => {
                request = Some(RequestBody::Group(match item.value()? {
                    "ALL" => GroupId::ALL,
                    "ANY" => GroupId::ANY,
                    _ => GroupId(small(item, u128::from(u32::MAX))?),
                }));
            }
            ("METER", "meter") => request = Some(RequestBody::Meter(meter_id(item)?)),
            ("METER_CONFIG", "meter") => request = Some(RequestBody::MeterConfig(meter_id(item)?)),
            _ => return Err(item.unknown("what the request is about: port, queue, group or meter")),
        }
        Ok(())
    })?;
    match (name, request) {
        ("PORT", _) => Ok(RequestBody::PortStats(port)),
        ("QUEUE", _) => Ok(RequestBody::Queue { port, queue }),
        (_, Some(request)) => Ok(request),
        _ => Err(body.wrong("group_id=… or meter=…")),
    }
}

fn flow_request(body: Body<'_>) -> Result<FlowStatsRequest, TextError> {
    let mut request = FlowStatsRequest::all();
    let mut m = MatchReader::default();
    let mut items = body.items();
    while let Some(item) = items.next()? {
        match item.key {
            "table" => request.table_id = TableId(small(&item, 255)?),
            "out_port" => request.out_port = read_match::port(&item, item.value()?)?,
            _ if m.take(item)? => {}
            _ => return Err(read_match::unknown_field(&item)),
        }
    }
    request.r#match = m.finish()?;
    Ok(request)
}
