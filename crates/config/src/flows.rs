//! Static entries in the API: JSON with a match and actions in ovs-ofctl syntax.

use control::flows::parts::{PartId, PartKind};
use control::flows::{
    Band, FlowName, FlowState, FlowView, StaticEntry, action_problems, match_problem, not_stated,
};
use openflow::text::{Named, parse_actions_of, parse_match};
use openflow::{Action, DatapathId, Match, MeterId};
use serde::Serialize;
use utoipa::ToSchema;

use super::qos::tree::{Node, Place, Reader, is_name};

/// The most bytes of a match or of actions.
const WORDS_MAX: usize = 2000;

/// The word at the end of actions that passes packets on to auster's forwarding.
pub const GO_ON: &str = "go_on";

/// The fields of a body. Further fields of an answer are ignored, so that the answer can be PUT
/// back.
const FIELDS: [&str; 14] = [
    "owner",
    "name",
    "switch",
    "table",
    "priority",
    "match",
    "actions",
    "idle_timeout",
    "hard_timeout",
    "state",
    "reason",
    "packets",
    "bytes",
    "overlaps",
];

/// An entry as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StatedFlow {
    #[schema(example = "0000000000000001")]
    pub switch: String,
    /// `before` all of auster's own entries, or `after` them.
    #[schema(required = false, example = "before")]
    pub table: &'static str,
    /// From 0 to 999, and to 498 in `after`. The greatest one wins.
    #[schema(required = false, maximum = 999)]
    pub priority: u16,
    /// In the words of ovs-ofctl; an empty one matches all packets.
    #[schema(example = "ip,nw_dst=10.0.0.2")]
    pub r#match: String,
    /// In the words of ovs-ofctl; `drop` or an empty text drops. `group:NAME` and `meter:NAME`
    /// lead to the owner's own. `go_on` at the end lets packets go on to auster's forwarding.
    #[schema(example = "output:3")]
    pub actions: String,
    /// Seconds without a packet after which it ends; 0 for never.
    #[schema(required = false)]
    pub idle_timeout: u16,
    /// Seconds after which it ends; 0 for never.
    #[schema(required = false)]
    pub hard_timeout: u16,
    /// The cookie that a program for Ryu has stated, and with which such programs see the entry.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub cookie: u64,
    /// The flags that it has stated.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub flags: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An entry, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FlowDocument {
    #[schema(example = "ann")]
    pub owner: String,
    #[schema(example = "detour")]
    pub name: String,
    #[serde(flatten)]
    pub stated: StatedFlow,
    /// `wanted` while the switch is away, `sent`, `in_use`, `no_port` or `refused`.
    #[schema(example = "in_use")]
    pub state: &'static str,
    /// The port that the switch does not have, or the reason why it does not take the entry.
    pub reason: Option<String>,
    /// Counters, as last read from the switch.
    pub packets: Option<u64>,
    pub bytes: Option<u64>,
    /// Entries of other owners of the same priority that take some of its packets too: the switch
    /// decides which of them a packet meets. Left out where there are none, and in lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["bob/web"]))]
    pub overlaps: Vec<String>,
}

/// Reads an entry. Every mistake is noted with its field.
pub fn read(reader: &mut Reader, name: &FlowName, node: &Node) -> Option<StaticEntry> {
    let before = reader.problems.len();
    let is_ryus = name.owner == control::flows::OWNER_RYU;
    let known: &[&str] = match is_ryus {
        true => &[&FIELDS[..], &["cookie", "flags"]].concat(),
        false => &FIELDS,
    };
    if !reader.only(node, "static entry", known) {
        return None;
    }
    for (key, own) in [("owner", &name.owner), ("name", &name.name)] {
        if let Some(said) = node.get(key).filter(|said| said.as_text() != Some(own)) {
            let text = format!("{key}: the path says '{own}'; leave it out here, or say the same");
            reader.wrong(&said.place.clone(), text);
        }
    }
    for (key, example) in [
        ("switch", "\"0000000000000001\""),
        ("match", "\"ip\", or \"\" for all"),
        ("actions", "\"output:3\", or \"drop\""),
    ] {
        if node.get(key).is_none() {
            reader.wrong(&node.place, format!("{key} is missing: such as {example}"));
        }
    }
    let dpid = reader.parsed(node, "switch", "0000000000000001", str::parse::<DatapathId>);
    let band = reader.parsed(node, "table", "before", |text| match text {
        "before" => Ok(Band::Before),
        "after" => Ok(Band::After),
        "ryu" if is_ryus => Ok(Band::Ryu),
        _ => Err(format!("'{text}' is none of before, after")),
    });
    let band = band.unwrap_or_default();
    let priority = reader.number(node, "priority", 0..=band.priority_max().into());
    let mut seconds = |key| reader.number(node, key, 0..=u16::MAX.into());
    let (idle_timeout, hard_timeout) = (seconds("idle_timeout"), seconds("hard_timeout"));
    let cookie = reader.number(node, "cookie", 0..=u64::MAX);
    let flags = reader.number(node, "flags", 0..=1);
    let matching = words(reader, node, "match", "ip,nw_dst=10.0.0.2");
    let matching = matching.and_then(|(place, text)| match parse_match(text) {
        Ok(m) => {
            if let Some(why) = match_problem(&m) {
                reader.wrong(&place, format!("match: {why}"));
            }
            Some((m, text))
        }
        Err(error) => {
            reader.wrong(&place, format!("match: {error}"));
            None
        }
    });
    let actions = words(reader, node, "actions", "output:3");
    let any = Match::any();
    let of = matching.as_ref().map_or(&any, |(m, _)| m);
    let numbers = |named: Named<'_>| {
        let (kind, text) = match named {
            Named::Group(text) => (PartKind::Group, text),
            Named::Meter(text) => (PartKind::Meter, text),
        };
        let of = FlowName::new(name.owner.clone(), text);
        is_name(text).then(|| kind.number(&of))
    };
    let actions = actions.and_then(|(place, text)| match read_actions(text, of, &numbers) {
        Ok((meter, actions, goes_on)) => {
            let of_meter = meter.and_then(|meter| not_stated(PartId::Meter(meter)));
            let m = matching.as_ref().map(|(m, _)| m);
            for why in action_problems(&actions, m).into_iter().chain(of_meter) {
                reader.wrong(&place, format!("actions: {why}"));
            }
            Some((meter, actions, goes_on, text))
        }
        Err(error) => {
            reader.wrong(&place, format!("actions: {error}"));
            None
        }
    });
    let ((m, matching), (meter, actions, goes_on, written)) = matching.zip(actions)?;
    let entry = StaticEntry {
        dpid: dpid?,
        band,
        priority: priority.unwrap_or(0) as u16,
        r#match: m,
        meter,
        actions,
        goes_on,
        idle_timeout_s: idle_timeout.unwrap_or(0) as u16,
        hard_timeout_s: hard_timeout.unwrap_or(0) as u16,
        words: (matching.to_owned(), written.to_owned()),
        stated: (cookie.unwrap_or(0), flags.unwrap_or(0) as u16),
    };
    (reader.problems.len() == before).then_some(entry)
}

type Actions = (Option<MeterId>, Vec<Action>, bool);

/// Reads a meter and actions, and whether packets then go on to auster's forwarding.
fn read_actions(
    text: &str,
    of: &Match,
    numbers: &dyn Fn(Named<'_>) -> Option<u32>,
) -> Result<Actions, String> {
    let is_between = |c: char| c == ',' || c.is_whitespace();
    let (before, goes_on) = match text.trim_end().strip_suffix(GO_ON) {
        Some(before) if before.is_empty() || before.ends_with(is_between) => {
            (before.trim_end_matches(is_between), true)
        }
        _ => (text, false),
    };
    if before.split(is_between).any(|word| word == GO_ON) {
        return Err(format!("{GO_ON} comes once, at the end"));
    }
    if goes_on && before.trim() == "drop" {
        return Err(format!("drop and {GO_ON} cannot both be"));
    }
    let (meter, actions) =
        parse_actions_of(before, of, numbers).map_err(|error| error.to_string())?;
    Ok((meter, actions, goes_on))
}

/// A text of one line that is not too long.
pub fn words<'n>(
    reader: &mut Reader,
    node: &'n Node,
    key: &str,
    example: &str,
) -> Option<(Place, &'n str)> {
    let value = node.get(key)?;
    let parsed = reader.parse(value, key, example, &|text: &str| match text {
        _ if text.len() > WORDS_MAX => Err(format!("it has over {WORDS_MAX} bytes")),
        _ if text.contains(char::is_control) => Err("it must be one line".to_owned()),
        _ => Ok(()),
    });
    parsed?;
    Some((value.place.clone(), value.as_text()?))
}

/// Returns an entry as it was requested.
pub fn stated(entry: &StaticEntry) -> StatedFlow {
    StatedFlow {
        switch: entry.dpid.to_string(),
        table: match entry.band {
            Band::Before => "before",
            Band::After => "after",
            Band::Ryu => "ryu",
        },
        priority: entry.priority,
        r#match: entry.words.0.clone(),
        actions: entry.words.1.clone(),
        idle_timeout: entry.idle_timeout_s,
        hard_timeout: entry.hard_timeout_s,
        cookie: entry.stated.0,
        flags: entry.stated.1.into(),
    }
}

/// Returns the name of a state, and the reason why the switch does not accept the entry.
pub fn state_words(state: &FlowState) -> (&'static str, Option<String>) {
    match state {
        FlowState::Wanted => ("wanted", None),
        FlowState::Sent => ("sent", None),
        FlowState::InUse => ("in_use", None),
        FlowState::NoPort(port) => ("no_port", Some(format!("the switch has no port {port}"))),
        FlowState::Refused(why) => ("refused", Some(why.clone())),
    }
}

pub fn show(view: &FlowView) -> FlowDocument {
    let (state, reason) = state_words(&view.state);
    FlowDocument {
        owner: view.name.owner.clone(),
        name: view.name.name.clone(),
        stated: stated(&view.entry),
        state,
        reason,
        packets: view.counts.map(|(packets, _)| packets),
        bytes: view.counts.map(|(_, bytes)| bytes),
        overlaps: view.overlaps.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mistakes(body: Value) -> Vec<String> {
        let name = FlowName::new("ann", "detour");
        let mut reader = Reader::default();
        let read = read(&mut reader, &name, &Node::of_json(&body));
        assert_eq!(read.is_some(), reader.problems.is_empty());
        let wrong = reader.problems.iter();
        wrong
            .map(|wrong| format!("{} {}", wrong.place.pointer, wrong.text))
            .collect()
    }

    /// Actions are read with their match, as ovs-ofctl does.
    #[test]
    fn old_words_become_the_actions_of_the_match() {
        for (matching, actions, expected) in [
            (
                "ip",
                "mod_vlan_vid:7,output:1",
                "push_vlan:0x8100,set_field:4103->vlan_vid,output:1",
            ),
            (
                "dl_vlan=5",
                "mod_vlan_vid:7,output:1",
                "set_field:4103->vlan_vid,output:1",
            ),
            ("dl_vlan=5", "strip_vlan,output:1", "pop_vlan,output:1"),
            (
                "udp",
                "mod_tp_dst:53,output:1",
                "set_field:53->udp_dst,output:1",
            ),
            (
                "ip",
                "mod_nw_tos:184,output:1",
                "set_field:46->ip_dscp,output:1",
            ),
        ] {
            let body = json!({"switch": "1", "match": matching, "actions": actions});
            let name = FlowName::default();
            let entry = read(&mut Reader::default(), &name, &Node::of_json(&body)).unwrap();
            let text = openflow::Instruction::ApplyActions(entry.actions).to_string();
            assert_eq!(text, expected, "{matching} {actions}");
        }
        let wrong = mistakes(with("actions", json!("mod_tp_dst:53,output:1")));
        assert!(wrong[0].contains("tcp, udp or sctp"), "{wrong:?}");
        let wrong = mistakes(with("actions", json!("meter:0x6000,output:1")));
        assert!(wrong[0].contains("auster's own"), "{wrong:?}");
        let body = with("actions", json!("meter:slow,group:both"));
        let of = |owner: &str| {
            let name = FlowName::new(owner, "detour");
            let entry = read(&mut Reader::default(), &name, &Node::of_json(&body)).unwrap();
            (entry.meter, entry.actions)
        };
        assert!(of("ann").0.is_some() && of("ann") != of("bob"));
    }

    #[test]
    fn packets_go_on_behind_the_last_action() {
        for (actions, meter, count) in [
            ("go_on", false, 0),
            ("meter:slow,go_on", true, 0),
            ("meter:slow, mod_nw_tos:184, go_on", true, 1),
            ("mod_nw_tos:184 go_on", false, 1),
        ] {
            let name = FlowName::new("ann", "detour");
            let body = Node::of_json(&with("actions", json!(actions)));
            let entry = read(&mut Reader::default(), &name, &body).unwrap();
            assert!(entry.goes_on, "{actions}");
            assert_eq!((entry.meter.is_some(), entry.actions.len()), (meter, count));
            assert_eq!(entry.words.1, actions);
        }
        let wrong = mistakes(with("actions", json!("no_go_on")));
        assert!(wrong[0].contains("no_go_on"), "{wrong:?}");
    }

    fn with(key: &str, value: Value) -> Value {
        let mut body = json!({"switch": "1", "match": "ip", "actions": "output:1"});
        body[key] = value;
        body
    }

    #[test]
    fn an_answer_can_be_put_back() {
        assert_eq!(mistakes(with("priority", json!(999))), [""; 0]);
        let name = FlowName::new("ann", "detour");
        let body = Node::of_json(&with("idle_timeout", json!(5)));
        let entry = read(&mut Reader::default(), &name, &body).unwrap();
        let view = FlowView {
            name: name.clone(),
            entry: entry.clone(),
            state: FlowState::Refused("x".to_owned()),
            counts: Some((1, 2)),
            overlaps: vec![FlowName::new("bob", "web")],
        };
        let shown = Node::of_json(&json!(show(&view)));
        assert_eq!(read(&mut Reader::default(), &name, &shown), Some(entry));
    }

    /// Twenty mistakes, each alone: one line at its field, with a correction.
    #[test]
    fn each_mistake_is_named_by_its_field() {
        for (key, value, pointer, part) in [
            ("switch", json!(null), "", "switch is missing: such as"),
            ("switch", json!("x"), "/switch", "switch: "),
            ("switch", json!(1), "/switch", "it must be a text"),
            ("match", json!(null), "", "match is missing: such as"),
            ("match", json!("nw_dst=10.0.0.2"), "/match", "ip"),
            ("match", json!("ip,nw_dst=10.0.0"), "/match", "10.0.0"),
            ("match", json!("ip,nw_dts=10.0.0.1"), "/match", "nw_dts"),
            ("match", json!("tcp_dst=80"), "/match", "tcp"),
            (
                "match",
                json!("dl_type=0x88cc"),
                "/match",
                "LLDP goes to auster",
            ),
            ("match", json!("ip\n"), "/match", "one line"),
            ("match", json!("ip,".repeat(700)), "/match", "2000 bytes"),
            ("actions", json!(null), "", "actions is missing: such as"),
            ("actions", json!("outptu:3"), "/actions", "outptu"),
            ("actions", json!("output:x"), "/actions", "x"),
            ("actions", json!("go_on,output:1"), "/actions", "at the end"),
            ("actions", json!("drop,go_on"), "/actions", "cannot both be"),
            (
                "actions",
                json!("goto_table:1"),
                "/actions",
                "actions and a meter only",
            ),
            (
                "actions",
                json!("group:0x61750001"),
                "/actions",
                "auster's own",
            ),
            (
                "actions",
                json!("TABLE"),
                "/actions",
                "TABLE is for packets",
            ),
            (
                "actions",
                json!("set_field:80->tcp_dst"),
                "/actions",
                "narrow the match",
            ),
            (
                "actions",
                json!(["output:1"]),
                "/actions",
                "it must be a text",
            ),
            ("table", json!("middle"), "/table", "none of before, after"),
            ("table", json!("ryu"), "/table", "none of before, after"),
            ("priority", json!(1000), "/priority", "from 0 to 999"),
            ("priority", json!("high"), "/priority", "from 0 to 999"),
            (
                "idle_timeout",
                json!(65_536),
                "/idle_timeout",
                "from 0 to 65535",
            ),
            (
                "hard_timeout",
                json!(-1),
                "/hard_timeout",
                "from 0 to 65535",
            ),
            ("name", json!("other"), "/name", "the path says 'detour'"),
            (
                "cookie",
                json!(1),
                "/cookie",
                "'cookie' is no field of a static entry",
            ),
        ] {
            let found = mistakes(with(key, value.clone()));
            let [one] = &found[..] else {
                panic!("{key} {value}: {found:?}");
            };
            let is_right = one.split(' ').next() == Some(pointer) && one.contains(part);
            assert!(is_right && !one.contains('\n'), "{key} {value}: {one}");
        }
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let found = mistakes(json!({
            "switch": "x", "match": "nw_dts=1", "actions": "TABLE", "priority": 5000,
            "table": "middle", "hard_timeout": "long"
        }));
        assert_eq!(found.len(), 6, "{found:?}");
    }
}
