//! Meters that rules name by number: kept, and set on a switch with the rule.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use control::qos::{Exceeding, Meter, Rate};
use openflow::multipart::RequestBody;
use openflow::{DatapathId, MeterId};
use serde_json::{Map, Value, json};

use super::super::super::Api;
use super::super::super::problem::Problem;
use super::super::matching::{Wrong, integer};
use super::super::show;
use super::super::stats::wrong_fields;
use super::{failure, fields, no_method, refused, results, success, switches};
use config::qos::held::{Op, Put};
use config::qos::tree::Node;
use config::qos::{Item, Refused};

pub(super) async fn meters(
    State(api): State<Api>,
    Path(switch): Path<String>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let method = request.method().clone();
    let dpids = switches(&api, &switch).await?;
    let fields = fields(request).await?;
    let mut found = Vec::new();
    for dpid in dpids {
        let done = match method {
            Method::GET => {
                let all = RequestBody::Meter(MeterId::ALL);
                let bodies = api.ask_switch(dpid, all).await?;
                json!({dpid.0.to_string(): show::bodies(bodies)})
            }
            Method::POST => set_meter(&api, dpid, &fields).await?,
            Method::DELETE => delete_meter(&api, dpid, &fields).await?,
            _ => return Err(no_method(&method)),
        };
        found.push((dpid, done));
    }
    Ok(results(found))
}

/// The most meters of one switch that may be kept.
const METERS_MAX: usize = 1024;

async fn set_meter(
    api: &Api,
    dpid: DatapathId,
    fields: &Map<String, Value>,
) -> Result<Value, Problem> {
    let (id, meter) = parse_meter(fields).map_err(wrong_fields)?;
    let layers = api.held.layers().await;
    let of_switch = layers.meters.keys().filter(|(of, _)| *of == dpid).count();
    if of_switch >= METERS_MAX && !layers.meters.contains_key(&(dpid, id)) {
        return Ok(json!([failure(format!(
            "there are {METERS_MAX} meters already"
        ))]));
    }
    let node = Node::of_json(&json!({}));
    let op = Op::Put(Box::new(Put::Meter(dpid, id, meter)), node);
    Ok(json!([match api.change(vec![op]).await {
        Ok(()) => success(format!("Meter added. : Meter ID={id}")),
        Err(why) => refused(why),
    }]))
}

fn meter_id(fields: &Map<String, Value>) -> Result<u32, (String, String)> {
    let wrong = |why: String| ("meter_id".to_owned(), why);
    let value = fields
        .get("meter_id")
        .ok_or_else(|| wrong("is missing".to_owned()))?;
    let number = integer(value).map_err(wrong)?;
    let number = u32::try_from(number)
        .ok()
        .filter(|id| *id > 0 && *id <= MeterId::MAX.0);
    number.ok_or_else(|| wrong("is no number of a meter".to_owned()))
}

fn parse_meter(fields: &Map<String, Value>) -> Result<(u32, Meter), Wrong> {
    let mut wrong = Wrong::new();
    let id = meter_id(fields).map_err(|problem| wrong.push(problem)).ok();
    let flags = fields.get("flags").or_else(|| fields.get("flag"));
    let names = |flags: &Value| match flags {
        Value::String(flag) => vec![flag.clone()],
        Value::Array(flags) => {
            let names = flags.iter().filter_map(Value::as_str);
            names.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    if flags.is_some_and(|flags| names(flags).iter().any(|flag| flag == "PKTPS")) {
        wrong.push((
            "flags".to_owned(),
            "must be KBPS: packets are not counted here".to_owned(),
        ));
    }
    let bands = fields.get("bands").and_then(Value::as_array);
    let [band] = bands.map_or(&[][..], |bands| &bands[..]) else {
        wrong.push(("bands".to_owned(), "must be a list of one band".to_owned()));
        return Err(wrong);
    };
    let number = |key: &str| band.get(key).map(integer).transpose();
    let kind = band.get("type").or_else(|| band.get("action"));
    let exceeding = match kind.and_then(Value::as_str) {
        Some("DROP") => Exceeding::Drop,
        Some("DSCP_REMARK") => match number("prec_level") {
            Ok(steps) => Exceeding::Remark(steps.unwrap_or(0).min(255) as u8),
            Err(why) => {
                wrong.push(("bands/0/prec_level".to_owned(), why));
                Exceeding::Drop
            }
        },
        _ => {
            wrong.push((
                "bands/0/type".to_owned(),
                "must be DROP or DSCP_REMARK".to_owned(),
            ));
            Exceeding::Drop
        }
    };
    let rate = number("rate").ok().flatten();
    let rate = rate.filter(|kbit| (1..=u128::from(u32::MAX)).contains(kbit));
    if rate.is_none() {
        wrong.push((
            "bands/0/rate".to_owned(),
            "must be kbit/s, above 0".to_owned(),
        ));
    }
    let burst = number("burst_size").unwrap_or_else(|why| {
        wrong.push(("bands/0/burst_size".to_owned(), why));
        None
    });
    match (id, rate, wrong.is_empty()) {
        (Some(id), Some(kbit), true) => {
            let meter = Meter {
                rate: Rate(kbit as u64 * 1000),
                // Ryu's burst is in kilobits.
                burst_bytes: burst
                    .filter(|n| *n > 0)
                    .map(|n| (n as u64).saturating_mul(125)),
                exceeding,
            };
            Ok((id, meter))
        }
        _ => Err(wrong),
    }
}

async fn delete_meter(
    api: &Api,
    dpid: DatapathId,
    fields: &Map<String, Value>,
) -> Result<Value, Problem> {
    let id = meter_id(fields).map_err(|problem| wrong_fields(vec![problem]))?;
    let op = Op::Delete(Item::Meter(dpid, id));
    Ok(match api.change(vec![op]).await {
        Ok(()) => success(format!("Meter deleted. : Meter ID={id}")),
        Err(Refused::Unknown(_)) => failure(format!("Meter is not exist. : Meter ID={id}")),
        Err(why) => refused(why),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn meters_are_kept_in_bits_and_bytes() {
        let Value::Object(fields) = json!({
            "meter_id": "1", "flags": "KBPS",
            "bands": [{"type": "DROP", "rate": 1000, "burst_size": 8}]
        }) else {
            panic!("an object");
        };
        let (id, meter) = parse_meter(&fields).unwrap();
        assert_eq!(
            (id, meter.rate, meter.burst_bytes),
            (1, Rate::mbit(1), Some(1000))
        );
        let Value::Object(fields) = json!({"flags": ["PKTPS"], "bands": []}) else {
            panic!("an object");
        };
        let wrong = parse_meter(&fields).unwrap_err();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(text in "[\\[\\]{}\",:a-z0-9_. ]{0,60}") {
            if let Ok(Value::Object(fields)) = serde_json::from_str(&text) {
                let _ = parse_meter(&fields);
            }
        }
    }
}
