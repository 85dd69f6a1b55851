//! `/stats/flowentry/…`: static entries of the owner `ryu`, in Ryu's words.
//!
//! The name of an entry is made from its switch, priority and match, which identify it to Ryu's
//! clients. All of these entries precede auster's own entries, in the order of their priorities.

use std::collections::BTreeSet;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::{delete, post};
use clock::Fnv1a;
use control::flows::parts::PartId;
use control::flows::{
    Band, Chosen, FlowName, FlowView, OWNER_RYU, StaticEntry, action_problems, match_problem,
    not_stated,
};
use openflow::QueueId;
use openflow::table::Pattern;
use openflow::{Action, DatapathId, GroupId, Instruction, Match, MatchField, MeterId, PortNo};
use serde_json::{Map, Value, json};

use super::super::entries::{Wish, delete_all};
use super::super::problem::Problem;
use super::super::{Api, json};
use super::matching::{self, Wrong, integer};
use super::stats::{dpid_of, wrong_fields};
use cluster::intent::When;
use config::flows::stated;
use config::qos::tree::Node;

pub fn router() -> Router<Api> {
    Router::new()
        .route("/stats/flowentry/{command}", post(change))
        .route("/stats/flowentry/clear/{dpid}", delete(clear))
}

/// The fields of a body. Cookies in switches are auster's, and switches report the end of each
/// entry to it; the program's cookies are kept separately.
const FIELDS: [&str; 10] = [
    "dpid",
    "cookie",
    "table_id",
    "idle_timeout",
    "hard_timeout",
    "priority",
    "flags",
    "match",
    "actions",
    "cookie_mask",
];

/// A parsed body.
#[derive(Debug, PartialEq)]
struct Asked {
    dpid: DatapathId,
    priority: u16,
    r#match: Match,
    meter: Option<MeterId>,
    actions: Vec<Action>,
    idle_timeout_s: u16,
    hard_timeout_s: u16,
    cookie: u64,
    /// Selects among the entries to change or delete.
    cookie_mask: u64,
    flags: u16,
}

async fn change(
    State(api): State<Api>,
    Path(command): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let is_deletion = command.starts_with("delete");
    let body = json(request).await?.unwrap_or_else(|| json!({}));
    let asked = read(&body, is_deletion).map_err(wrong_fields)?;
    connected(&api, asked.dpid).await?;
    let (wide, one) = (Chosen::Within(asked.pattern()), asked.one());
    let wishes: Vec<Wish> = match command.as_str() {
        "add" => vec![wish(asked.name(), asked.entry())],
        "modify" | "modify_strict" => {
            let chosen = if command == "modify" { wide } else { one };
            let there = its(&api, asked.dpid, chosen).await?.into_iter();
            let there = there.filter(|view| asked.has_cookie(view));
            there.map(|view| asked.changed(view)).collect()
        }
        "delete" | "delete_strict" => {
            let chosen = if command == "delete" { wide } else { one };
            let there = its(&api, asked.dpid, chosen).await?.into_iter();
            let there = there.filter(|view| asked.has_cookie(view));
            there.map(|view| (view.name, None)).collect()
        }
        _ => {
            let detail =
                format!("'{command}' is none of add, modify, modify_strict, delete, delete_strict");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
    };
    if is_deletion {
        delete_all(&api, wishes.into_iter().map(|(name, _)| name).collect()).await?;
    } else if !wishes.is_empty() {
        api.change_flows(wishes, When::default()).await?;
    }
    Ok(StatusCode::OK)
}

async fn clear(State(api): State<Api>, Path(dpid): Path<String>) -> Result<StatusCode, Problem> {
    let dpid = dpid_of(&dpid)?;
    connected(&api, dpid).await?;
    let there = its(&api, dpid, Chosen::All).await?.into_iter();
    let names: BTreeSet<FlowName> = there.map(|view| view.name).collect();
    delete_all(&api, names).await?;
    Ok(StatusCode::OK)
}

/// Ryu's entries on a switch to which a command applies.
pub async fn its(api: &Api, dpid: DatapathId, chosen: Chosen) -> Result<Vec<FlowView>, Problem> {
    api.ask(move |controller| controller.flows_at(OWNER_RYU, dpid, &chosen))
        .await
}

/// Checks that a switch is connected; Ryu answers 404 for others.
pub async fn connected(api: &Api, dpid: DatapathId) -> Result<(), Problem> {
    let views = api.switches().await?;
    let mut up = views.iter().filter(|view| view.connection.is_some());
    match up.any(|view| view.dpid == dpid) {
        true => Ok(()),
        false => {
            let detail = format!("switch {dpid} is not connected");
            Err(Problem::new(StatusCode::NOT_FOUND, detail))
        }
    }
}

fn wish(name: FlowName, entry: StaticEntry) -> Wish {
    let node = Node::of_json(&json!(stated(&entry)));
    (name, Some((entry, node)))
}

fn words(meter: Option<MeterId>, actions: &[Action]) -> String {
    let meter = meter.map(|meter| Instruction::Meter(meter).to_string());
    let actions = (!actions.is_empty()).then(|| Instruction::ApplyActions(actions.to_vec()));
    let actions = actions.map_or_else(|| "drop".to_owned(), |actions| actions.to_string());
    let all: Vec<String> = meter.into_iter().chain([actions]).collect();
    all.join(",")
}

impl Asked {
    fn pattern(&self) -> Pattern {
        Pattern::new(&self.r#match).unwrap_or_default()
    }

    fn has_cookie(&self, view: &FlowView) -> bool {
        (view.entry.stated.0 ^ self.cookie) & self.cookie_mask == 0
    }

    /// The choice of the entry with this match and priority.
    fn one(&self) -> Chosen {
        Chosen::One(self.pattern(), self.priority)
    }

    fn name(&self) -> FlowName {
        // The match as a switch would report it: another spelling is the same entry.
        let matching = format!("{:?}", self.pattern());
        let hash = Fnv1a::of(matching.as_bytes());
        FlowName::new(
            OWNER_RYU,
            format!("{}-{}-{hash:016x}", self.dpid, self.priority),
        )
    }

    fn entry(&self) -> StaticEntry {
        StaticEntry {
            dpid: self.dpid,
            band: Band::Ryu,
            priority: self.priority,
            r#match: self.r#match.clone(),
            meter: self.meter,
            actions: self.actions.clone(),
            goes_on: false,
            idle_timeout_s: self.idle_timeout_s,
            hard_timeout_s: self.hard_timeout_s,
            words: (self.r#match.to_string(), words(self.meter, &self.actions)),
            stated: (self.cookie, self.flags),
        }
    }

    /// An existing entry, with these actions.
    fn changed(&self, view: FlowView) -> Wish {
        let mut entry = view.entry;
        entry.meter = self.meter;
        entry.actions.clone_from(&self.actions);
        entry.words.1 = words(self.meter, &self.actions);
        wish(view.name, entry)
    }
}

fn read(body: &Value, is_deletion: bool) -> Result<Asked, Wrong> {
    let none = Map::new();
    let mut wrong = Wrong::new();
    let fields = body.as_object().unwrap_or(&none);
    for key in fields.keys().filter(|key| !FIELDS.contains(&key.as_str())) {
        let why = "is not taken by auster; leave it out".to_owned();
        wrong.push((key.clone(), why));
    }
    let mut number = |key: &str, most: u128| {
        let found = integer(fields.get(key)?);
        match found.and_then(|n| (n <= most).then_some(n).ok_or(format!("{n} is too much"))) {
            Ok(number) => Some(number),
            Err(why) => {
                wrong.push((key.to_owned(), why));
                None
            }
        }
    };
    let mut u16_of = |key: &str| number(key, u16::MAX.into()).unwrap_or(0) as u16;
    let (priority, idle_timeout_s) = (u16_of("priority"), u16_of("idle_timeout"));
    let (hard_timeout_s, flags) = (u16_of("hard_timeout"), u16_of("flags"));
    let dpid = number("dpid", u64::MAX.into());
    let mut u64_of = |key: &str| number(key, u64::MAX.into()).unwrap_or(0) as u64;
    let (cookie, cookie_mask) = (u64_of("cookie"), u64_of("cookie_mask"));
    let table = match fields.get("table_id").and_then(Value::as_str) {
        Some("ALL" | "OFPTT_ALL") => Some(255),
        _ => number("table_id", 255),
    };
    let mut refuse = |key: &str, why: &str| wrong.push((key.to_owned(), why.to_owned()));
    if !fields.contains_key("dpid") {
        refuse("dpid", "is missing");
    }
    if !matches!(
        (table, is_deletion),
        (None | Some(0), _) | (Some(255), true)
    ) {
        refuse("table_id", "must be 0: the other tables are auster's own");
    }
    if flags > 1 {
        refuse("flags", "may have bit 0 alone (OFPFF_SEND_FLOW_REM)");
    }
    let m = match fields.get("match") {
        None => Match::any(),
        Some(Value::Object(fields)) => matching::parse(fields).unwrap_or_else(|fields| {
            let below = |(key, why)| (format!("match/{key}"), why);
            wrong.extend(fields.into_iter().map(below));
            Match::any()
        }),
        Some(_) => {
            wrong.push(("match".to_owned(), "is no JSON object".to_owned()));
            Match::any()
        }
    };
    let (meter, actions) = match fields.get("actions") {
        _ if is_deletion => (None, Vec::new()),
        None => (None, Vec::new()),
        Some(Value::Array(list)) => {
            let (meters, others): (Vec<&Value>, Vec<&Value>) =
                list.iter().partition(|value| value["type"] == "METER");
            let meter = meters.last().and_then(|value| match meter_id(value) {
                Ok(id) => Some(id),
                Err(why) => {
                    wrong.push(("actions/meter_id".to_owned(), why));
                    None
                }
            });
            (meter, actions(&others, &mut wrong))
        }
        Some(_) => {
            wrong.push(("actions".to_owned(), "is no list".to_owned()));
            (None, Vec::new())
        }
    };
    if wrong.is_empty() {
        wrong.extend(match_problem(&m).map(|why| ("match".to_owned(), why)));
        let of_meter = meter.and_then(|meter| not_stated(PartId::Meter(meter)));
        let why = action_problems(&actions, Some(&m))
            .into_iter()
            .chain(of_meter);
        wrong.extend(why.map(|why| ("actions".to_owned(), why)));
    }
    match dpid.filter(|_| wrong.is_empty()) {
        Some(dpid) => Ok(Asked {
            dpid: DatapathId(dpid as u64),
            priority,
            r#match: m,
            meter,
            actions,
            idle_timeout_s,
            hard_timeout_s,
            cookie,
            cookie_mask,
            flags,
        }),
        None => Err(wrong),
    }
}

fn meter_id(value: &Value) -> Result<MeterId, String> {
    let id = value.get("meter_id").ok_or("is missing")?;
    let id = u32::try_from(integer(id)?).map_err(|_| "is too much")?;
    Ok(MeterId(id))
}

/// Reads a list of actions. Mistakes are noted below `actions`.
pub fn actions(list: &[&Value], wrong: &mut Wrong) -> Vec<Action> {
    let mut actions = Vec::new();
    for (n, value) in list.iter().enumerate() {
        match action(value) {
            Ok(action) => actions.push(action),
            Err((key, why)) => wrong.push((format!("actions/{n}/{key}"), why)),
        }
    }
    actions
}

fn action(value: &Value) -> Result<Action, (&'static str, String)> {
    let Some(kind) = value.get("type").and_then(Value::as_str) else {
        return Err(("type", "is missing, such as OUTPUT".to_owned()));
    };
    let number = |key: &'static str, most: u128| {
        let found = value.get(key).ok_or_else(|| "is missing".to_owned());
        let found = found.and_then(integer);
        let found = found.and_then(|n| (n <= most).then_some(n).ok_or(format!("{n} is too much")));
        found.map_err(|why| (key, why))
    };
    let small = |key| number(key, u8::MAX.into()).map(|n| n as u8);
    let middle = |key| number(key, u16::MAX.into()).map(|n| n as u16);
    Ok(match kind {
        "OUTPUT" => {
            let named = value.get("port").and_then(Value::as_str);
            let named = named.map(|text| text.trim_start_matches("OFPP_"));
            let port = match named.and_then(|text| text.parse::<PortNo>().ok()) {
                Some(port) => port,
                None => PortNo(number("port", u32::MAX.into())? as u32),
            };
            let max_len = match value.get("max_len") {
                None if port == PortNo::CONTROLLER => u16::MAX,
                None => 0,
                Some(_) => middle("max_len")?,
            };
            Action::Output { port, max_len }
        }
        "SET_FIELD" => set_field(value)?,
        "PUSH_VLAN" => Action::PushVlan(middle("ethertype")?),
        "POP_VLAN" => Action::PopVlan,
        "PUSH_MPLS" => Action::PushMpls(middle("ethertype")?),
        "POP_MPLS" => Action::PopMpls(middle("ethertype")?),
        "SET_MPLS_TTL" => Action::SetMplsTtl(small("mpls_ttl")?),
        "DEC_MPLS_TTL" => Action::DecMplsTtl,
        "SET_QUEUE" => Action::SetQueue(QueueId(number("queue_id", u32::MAX.into())? as u32)),
        "SET_NW_TTL" => Action::SetNwTtl(small("nw_ttl")?),
        "DEC_NW_TTL" => Action::DecNwTtl,
        "GROUP" => Action::Group(GroupId(number("group_id", u32::MAX.into())? as u32)),
        _ => {
            let why = format!(
                "{kind} is not taken by auster; it takes OUTPUT, GROUP, METER, SET_FIELD, \
                 SET_QUEUE, and those that push, pop or set VLAN tags, MPLS labels and TTLs"
            );
            return Err(("type", why));
        }
    })
}

fn set_field(value: &Value) -> Result<Action, (&'static str, String)> {
    let field = value.get("field").and_then(Value::as_str);
    let field = field.ok_or(("field", "is missing, such as eth_dst".to_owned()))?;
    let written = value
        .get("value")
        .ok_or(("value", "is missing".to_owned()))?;
    let one = Map::from_iter([(field.to_owned(), written.clone())]);
    let found = matching::parse(&one).map_err(|wrong| {
        let why = wrong.into_iter().map(|(_, why)| why).next();
        ("value", why.unwrap_or_default())
    })?;
    match found.fields.into_iter().next() {
        Some(MatchField::Basic {
            field,
            value,
            mask: None,
        }) => Ok(Action::SetField(MatchField::exact(field, value))),
        _ => Err(("value", "takes no mask".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use openflow::Field;
    use openflow::text::{parse_actions, parse_actions_of, parse_match};

    use super::*;

    /// The bodies of Ryu's documentation.
    #[test]
    fn an_entry_of_ryus_documentation_is_read() {
        let asked = read(
            &json!({
                "dpid": 1, "cookie": 1, "cookie_mask": 1, "table_id": 0, "idle_timeout": 30,
                "hard_timeout": 30, "priority": 11111, "flags": 1,
                "match": {"in_port": 1},
                "actions": [
                    {"type": "PUSH_VLAN", "ethertype": 33024},
                    {"type": "SET_FIELD", "field": "vlan_vid", "value": 4102},
                    {"type": "OUTPUT", "port": 2}
                ]
            }),
            false,
        );
        let asked = asked.unwrap();
        assert_eq!((asked.priority, asked.idle_timeout_s), (11_111, 30));
        assert_eq!(asked.r#match.exact(Field::InPort), Some(1));
        let entry = asked.entry();
        assert_eq!(entry.stated, (1, 1));
        assert_eq!(entry.problems(), []);
        // The words mean the same.
        assert_eq!(parse_match(&entry.words.0), Ok(entry.r#match.clone()));
        assert_eq!(parse_actions(&entry.words.1), Ok(entry.actions.clone()));
        assert_eq!(
            entry.words.1,
            "push_vlan:0x8100,set_field:4102->vlan_vid,output:2"
        );
    }

    #[test]
    fn an_entry_leads_to_a_group_and_a_meter() {
        let body = json!({"dpid": 1, "actions": [
            {"type": "METER", "meter_id": 3}, {"type": "GROUP", "group_id": "0x7"}
        ]});
        let entry = read(&body, false).unwrap().entry();
        assert_eq!(entry.words.1, "meter:3,group:7");
        let read = parse_actions_of(&entry.words.1, &Match::any(), &|_| None);
        assert_eq!(read, Ok((entry.meter, entry.actions)));
    }

    #[test]
    fn a_name_is_of_the_match_however_it_is_written() {
        let name = |body: Value| read(&body, false).unwrap().name();
        let old = json!({"dpid": 1, "match": {"dl_type": 2048, "nw_dst": "10.0.0.2"}});
        let new = json!({"dpid": "1", "match": {"ipv4_dst": "10.0.0.2", "eth_type": "0x800"}});
        assert_eq!(name(old.clone()), name(new));
        let other = json!({"dpid": 1, "match": {"dl_type": 2048, "nw_dst": "10.0.0.3"}});
        assert_ne!(name(old), name(other));
    }

    #[test]
    fn what_is_not_taken_is_named() {
        let wrong = read(
            &json!({
                "table_id": 3, "priority": 70_000, "flags": 2, "buffer_id": 1, "importance": 1,
                "match": {"nw_dst": "x"},
                "actions": [{"type": "GOTO_TABLE", "table_id": 1}, {"type": "OUTPUT"}, {}]
            }),
            false,
        );
        let wrong: BTreeSet<String> = wrong.unwrap_err().into_iter().map(|(key, _)| key).collect();
        let expected = [
            "dpid",
            "table_id",
            "priority",
            "flags",
            "buffer_id",
            "importance",
            "match/nw_dst",
            "actions/0/type",
            "actions/1/port",
            "actions/2/type",
        ];
        assert_eq!(wrong, expected.map(str::to_owned).into());
        let deletion = json!({"dpid": 1, "table_id": "OFPTT_ALL", "cookie_mask": -1});
        let wrong = read(&deletion, true).unwrap_err();
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
}
