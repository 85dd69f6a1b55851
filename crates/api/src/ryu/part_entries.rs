//! `/stats/groupentry/…` and `/stats/meterentry/…`: groups and meters of the owner `ryu`, in Ryu's
//! words and with its numbers.

use std::collections::BTreeSet;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use control::flows::parts::{PartId, PartKind, PartMod, PartName, StaticPart};
use control::flows::{Chosen, FlowName, OWNER_RYU};
use openflow::message::{
    GroupMod, GroupModCommand, GroupType, MeterBand, MeterBandKind, MeterFlags, MeterMod,
    MeterModCommand,
};
use openflow::text::{group_words, meter_words};
use openflow::{Bucket, DatapathId, GroupId, MeterId, PortNo};
use serde_json::{Map, Value, json};

use super::super::entries::delete_all;
use super::super::problem::Problem;
use super::super::{Api, json};
use super::flow_entries::{actions, connected, its};
use super::matching::{Wrong, integer};
use super::stats::wrong_fields;
use cluster::intent::When;
use config::parts::stated;
use config::qos::held::{Op, Put};
use config::qos::tree::Node;

pub fn router() -> Router<Api> {
    Router::new()
        .route("/stats/groupentry/{command}", post(change_group))
        .route("/stats/meterentry/{command}", post(change_meter))
}

async fn change_group(
    State(api): State<Api>,
    Path(command): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    change(&api, PartKind::Group, &command, request).await
}

async fn change_meter(
    State(api): State<Api>,
    Path(command): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    change(&api, PartKind::Meter, &command, request).await
}

/// A parsed body: a switch, one number or all of them, and the requested group or meter.
#[derive(Debug, PartialEq)]
struct Asked {
    dpid: DatapathId,
    number: Option<u32>,
    add: Option<PartMod>,
}

async fn change(
    api: &Api,
    kind: PartKind,
    command: &str,
    request: Request,
) -> Result<StatusCode, Problem> {
    if !matches!(command, "add" | "modify" | "delete") {
        let detail = format!("'{command}' is none of add, modify, delete");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail));
    }
    let body = json(request).await?.unwrap_or_else(|| json!({}));
    let asked = read(kind, &body, command == "delete").map_err(wrong_fields)?;
    connected(api, asked.dpid).await?;
    let (dpid, number) = (asked.dpid, asked.number);
    let there = api.parts(kind).await?.into_iter();
    let there = there.filter(|view| view.name.of.owner == OWNER_RYU && view.part.dpid == dpid);
    let its: Vec<PartName> = there
        .filter(|view| number.is_none_or(|number| view.part.id().number() == number))
        .map(|view| view.name)
        .collect();
    match asked.add {
        None => delete(api, dpid, kind, (number, its)).await?,
        // There is nothing to modify.
        Some(_) if command == "modify" && its.is_empty() => {}
        Some(add) => {
            let part = part(dpid, add);
            let name = name(kind, dpid, part.id().number());
            let node = Node::of_json(&stated(&part));
            let put = Op::Put(Box::new(Put::Part(name, Box::new(part))), node);
            api.change_parts(vec![put], When::default()).await?;
        }
    }
    Ok(StatusCode::OK)
}

/// Deletes groups or meters with the entries that refer to them, as a switch does.
async fn delete(
    api: &Api,
    dpid: DatapathId,
    kind: PartKind,
    (number, names): (Option<u32>, Vec<PartName>),
) -> Result<(), Problem> {
    let ids: Vec<PartId> = match number {
        Some(number) => vec![kind.id(number)],
        None => {
            let views = api.parts(kind).await?.into_iter();
            let its = views.filter(|view| names.contains(&view.name));
            its.map(|view| view.part.id()).collect()
        }
    };
    let flows = its(api, dpid, Chosen::All).await?.into_iter();
    let users = flows.filter(|view| ids.iter().any(|id| view.entry.leads_to(*id)));
    let users: BTreeSet<FlowName> = users.map(|view| view.name).collect();
    delete_all(api, users).await?;
    api.delete_parts(names.into_iter().collect()).await
}

fn name(kind: PartKind, dpid: DatapathId, number: u32) -> PartName {
    let of = FlowName::new(OWNER_RYU, format!("{dpid}-{number}"));
    PartName { kind, of }
}

fn part(dpid: DatapathId, add: PartMod) -> StaticPart {
    let words = match &add {
        PartMod::Group(group) => group_words(group),
        PartMod::Meter(meter) => meter_words(meter),
    };
    StaticPart {
        dpid,
        add,
        is_numbered: true,
        words,
    }
}

/// The numbers in a JSON table.
struct Numbers<'a> {
    fields: &'a Map<String, Value>,
    path: String,
}

impl Numbers<'_> {
    fn read(&self, key: &str, most: u32, wrong: &mut Wrong) -> Option<u32> {
        let found = integer(self.fields.get(key)?);
        let found = found.and_then(|n| match u32::try_from(n) {
            Ok(n) if n <= most => Ok(n),
            _ => Err(format!("{n} is too much")),
        });
        match found {
            Ok(number) => Some(number),
            Err(why) => {
                wrong.push((format!("{}{key}", self.path), why));
                None
            }
        }
    }
}

fn read(kind: PartKind, body: &Value, is_deletion: bool) -> Result<Asked, Wrong> {
    let none = Map::new();
    let mut wrong = Wrong::new();
    let fields = body.as_object().unwrap_or(&none);
    let (id, known): (&str, &[&str]) = match kind {
        PartKind::Group => ("group_id", &["dpid", "group_id", "type", "buckets"]),
        PartKind::Meter => ("meter_id", &["dpid", "meter_id", "flags", "bands"]),
    };
    for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
        let why = "is not taken by auster; leave it out".to_owned();
        wrong.push((key.clone(), why));
    }
    let dpid = match fields.get("dpid").map(integer) {
        None => Err("is missing".to_owned()),
        Some(dpid) => dpid.and_then(|n| u64::try_from(n).map_err(|_| format!("{n} is too much"))),
    };
    let dpid = dpid.map_err(|why| wrong.push(("dpid".to_owned(), why)));
    let numbers = Numbers {
        fields,
        path: String::new(),
    };
    let named = fields.get(id).and_then(Value::as_str);
    let is_all = named.is_some_and(|text| text.ends_with("ALL")) && is_deletion;
    // Ryu's own defaults.
    let default = u32::from(kind == PartKind::Meter && !is_deletion);
    let number = match is_all {
        true => None,
        false => Some(numbers.read(id, u32::MAX, &mut wrong).unwrap_or(default)),
    };
    let list = |key: &str, wrong: &mut Wrong| match fields.get(key) {
        None => Vec::new(),
        Some(Value::Array(list)) => list.clone(),
        Some(_) => {
            wrong.push((key.to_owned(), "is no list".to_owned()));
            Vec::new()
        }
    };
    let add = number.filter(|_| !is_deletion).map(|number| match kind {
        PartKind::Group => PartMod::Group(GroupMod::new(
            GroupModCommand::Add,
            group_type(fields, &mut wrong),
            GroupId(number),
            {
                let list = list("buckets", &mut wrong);
                let list = list.iter().enumerate();
                list.map(|(n, value)| bucket(n, value, &mut wrong))
                    .collect()
            },
        )),
        PartKind::Meter => PartMod::Meter(MeterMod {
            command: MeterModCommand::Add,
            flags: flags(fields, &mut wrong),
            meter_id: MeterId(number),
            bands: {
                let list = list("bands", &mut wrong);
                let list = list.iter().enumerate();
                list.map(|(n, value)| band(n, value, &mut wrong)).collect()
            },
        }),
    });
    if let (true, Ok(dpid), Some(add)) = (wrong.is_empty(), &dpid, &add) {
        let problems = part(DatapathId(*dpid), add.clone()).problems().into_iter();
        wrong.extend(problems.map(|(field, why)| {
            let field = if field == "number" { id } else { known[3] };
            (field.to_owned(), why)
        }));
    }
    match dpid {
        Ok(dpid) if wrong.is_empty() => Ok(Asked {
            dpid: DatapathId(dpid),
            number,
            add,
        }),
        _ => Err(wrong),
    }
}

fn group_type(fields: &Map<String, Value>, wrong: &mut Wrong) -> GroupType {
    match fields.get("type").map(|value| value.as_str()) {
        None | Some(Some("ALL")) => GroupType::All,
        Some(Some("SELECT")) => GroupType::Select,
        Some(Some("INDIRECT")) => GroupType::Indirect,
        Some(Some("FF")) => GroupType::FastFailover,
        _ => {
            let why = "is none of ALL, SELECT, INDIRECT, FF".to_owned();
            wrong.push(("type".to_owned(), why));
            GroupType::All
        }
    }
}

fn bucket(n: usize, value: &Value, wrong: &mut Wrong) -> Bucket {
    let none = Map::new();
    let numbers = Numbers {
        fields: value.as_object().unwrap_or(&none),
        path: format!("buckets/{n}/"),
    };
    let weight = numbers.read("weight", u16::MAX.into(), wrong);
    let port = numbers.read("watch_port", u32::MAX, wrong);
    let group = numbers.read("watch_group", u32::MAX, wrong);
    let list: Vec<&Value> = match value.get("actions") {
        Some(Value::Array(list)) => list.iter().collect(),
        _ => Vec::new(),
    };
    let mut below = Wrong::new();
    let actions = actions(&list, &mut below);
    let path = &numbers.path;
    wrong.extend(
        below
            .into_iter()
            .map(|(key, why)| (format!("{path}{key}"), why)),
    );
    Bucket {
        weight: weight.unwrap_or(0) as u16,
        watch_port: port.map_or(PortNo::ANY, PortNo),
        watch_group: group.map_or(GroupId::ANY, GroupId),
        actions,
        bucket_id: None,
        properties: Vec::new(),
    }
}

fn flags(fields: &Map<String, Value>, wrong: &mut Wrong) -> MeterFlags {
    let names: Vec<&Value> = match fields.get("flags") {
        None => Vec::new(),
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one) => vec![one],
    };
    let mut flags = MeterFlags::empty();
    for name in names {
        let is_it = |(_, text): &&(MeterFlags, &str)| name.as_str() == Some(text);
        match MeterFlags::NAMES.iter().find(is_it) {
            Some((flag, _)) => flags |= *flag,
            None => {
                let why = format!("{name} is none of KBPS, PKTPS, BURST, STATS");
                wrong.push(("flags".to_owned(), why));
            }
        }
    }
    flags
}

fn band(n: usize, value: &Value, wrong: &mut Wrong) -> MeterBand {
    let none = Map::new();
    let numbers = Numbers {
        fields: value.as_object().unwrap_or(&none),
        path: format!("bands/{n}/"),
    };
    let rate = numbers.read("rate", u32::MAX, wrong).unwrap_or(0);
    let burst_size = numbers.read("burst_size", u32::MAX, wrong).unwrap_or(0);
    let level = numbers.read("prec_level", u8::MAX.into(), wrong);
    let kind = match value.get("type").and_then(Value::as_str) {
        Some("DROP") => MeterBandKind::Drop,
        Some("DSCP_REMARK") => MeterBandKind::DscpRemark {
            prec_level: level.unwrap_or(0) as u8,
        },
        _ => {
            let why = "is none of DROP, DSCP_REMARK".to_owned();
            wrong.push((format!("{}type", numbers.path), why));
            MeterBandKind::Drop
        }
    };
    MeterBand {
        rate,
        burst_size,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use openflow::text::{parse_group_of, parse_meter_of};

    use super::*;

    /// The bodies of Ryu's documentation, and their words.
    #[test]
    fn groups_and_meters_of_ryus_documentation_are_read() {
        let group = json!({
            "dpid": 1, "type": "ALL", "group_id": 1,
            "buckets": [{"actions": [{"type": "OUTPUT", "port": 1}]}]
        });
        let asked = read(PartKind::Group, &group, false).unwrap();
        let of_group = part(asked.dpid, asked.add.unwrap());
        assert_eq!(of_group.words, "type=all,bucket=actions=output:1");
        let again = parse_group_of(GroupId(1), &of_group.words).unwrap();
        assert_eq!(of_group.add, PartMod::Group(again));

        let meter = json!({
            "dpid": 1, "flags": ["KBPS", "BURST"], "meter_id": 1,
            "bands": [
                {"type": "DROP", "rate": 1000, "burst_size": 10},
                {"type": "DSCP_REMARK", "rate": "2000", "prec_level": 1}
            ]
        });
        let asked = read(PartKind::Meter, &meter, false).unwrap();
        let of_meter = part(asked.dpid, asked.add.unwrap());
        let again = parse_meter_of(MeterId(1), &of_meter.words).unwrap();
        assert_eq!(of_meter.add, PartMod::Meter(again), "{}", of_meter.words);
        assert_eq!(
            of_meter.words,
            "kbps,burst,bands=type=drop,rate=1000,burst_size=10,type=dscp_remark,rate=2000,\
             burst_size=0,prec_level=1"
        );
    }

    #[test]
    fn a_select_group_keeps_its_weights() {
        let group = json!({
            "dpid": 1, "type": "SELECT", "group_id": 2, "buckets": [
                {"weight": 0, "actions": []},
                {"weight": 1, "watch_port": 3, "actions": [{"type": "OUTPUT", "port": 1}]}
            ]
        });
        let asked = read(PartKind::Group, &group, false).unwrap();
        let group = part(asked.dpid, asked.add.unwrap());
        let again = parse_group_of(GroupId(2), &group.words).unwrap();
        assert_eq!(group.add, PartMod::Group(again), "{}", group.words);
    }

    #[test]
    fn a_deletion_names_one_or_all() {
        let read = |body| read(PartKind::Group, &body, true);
        let number = |body| read(body).unwrap().number;
        assert_eq!(number(json!({"dpid": 1, "group_id": 7})), Some(7));
        assert_eq!(number(json!({"dpid": 1, "group_id": "OFPG_ALL"})), None);
        assert!(read(json!({"group_id": 7})).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (kind, body, expected) in [
            (
                PartKind::Group,
                json!({
                    "type": "X", "group_id": "y", "x": 1,
                    "buckets": [{"weight": 70_000, "actions": [{"type": "METER"}]}]
                }),
                &[
                    "buckets/0/actions/0/type",
                    "buckets/0/weight",
                    "dpid",
                    "group_id",
                    "type",
                    "x",
                ][..],
            ),
            (
                PartKind::Meter,
                json!({"dpid": 1, "flags": "FAST", "bands": [{"rate": -1}]}),
                &["bands/0/rate", "bands/0/type", "flags"],
            ),
            (
                PartKind::Meter,
                json!({"dpid": 1, "flags": "KBPS"}),
                &["bands"],
            ),
            (
                PartKind::Group,
                json!({"dpid": 1, "group_id": 0x6175_0001, "type": "INDIRECT"}),
                &["buckets", "group_id"],
            ),
        ] {
            let wrong = read(kind, &body, false).unwrap_err().into_iter();
            let wrong: BTreeSet<String> = wrong.map(|(key, _)| key).collect();
            let expected = expected.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!(wrong, expected, "{body}");
        }
    }
}
