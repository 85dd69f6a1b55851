//! Queues of ports, by the names that they have in the switch's database, or by their numbers.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use control::controller::Location;
use control::qos::{PortQueues, Queue, Rate};
use openflow::multipart::RequestBody;
use openflow::{DatapathId, PortNo, QueueId};
use serde_json::{Map, Value, json};

use super::super::super::Api;
use super::super::super::problem::Problem;
use super::super::matching::{Wrong, integer};
use super::super::show;
use super::super::stats::wrong_fields;
use super::{bad, failure, fields, no_method, refused, results, success, switches};
use config::qos::Item;
use config::qos::held::{Op, Put};
use config::qos::tree::Node;

pub(super) async fn queues(
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
            Method::GET => queues_shown(&api, dpid).await,
            Method::POST => set_queues(&api, dpid, &fields).await?,
            Method::DELETE => delete_queues(&api, dpid).await,
            _ => return Err(no_method(&method)),
        };
        found.push((dpid, done));
    }
    Ok(results(found))
}

async fn queues_shown(api: &Api, dpid: DatapathId) -> Value {
    let qos = api.held.layers().await.whole();
    let mut shown = Map::new();
    for (port, queues) in qos.ports_of(dpid) {
        shown.insert(api.port_name(dpid, port), config(queues));
    }
    match shown.is_empty() {
        true => failure("Queue is not exists."),
        false => success(shown),
    }
}

fn config(queues: &PortQueues) -> Value {
    let config = |queue: &Queue| {
        let mut config = Map::new();
        let rates = [("max-rate", queue.max), ("min-rate", queue.min)];
        for (name, rate) in rates {
            config.extend(rate.map(|rate| (name.to_owned(), json!(rate.0.to_string()))));
        }
        json!({"config": config})
    };
    let queues = queues.queues.iter();
    let queues = queues.map(|(number, queue)| (number.to_string(), config(queue)));
    Value::Object(queues.collect())
}

impl Api {
    /// The port's name in the switch's database; its number where no database is connected.
    fn port_name(&self, dpid: DatapathId, port: PortNo) -> String {
        let views = self.views.borrow();
        let ports = views.get(&dpid).into_iter().flat_map(|view| &view.ports);
        let mut found = ports.filter(|(_, view)| view.numbers.contains(&port.0));
        let name = found.next().map(|(name, _)| name.clone());
        name.unwrap_or_else(|| port.to_string())
    }

    /// The ports of that name or number, or all that the database has.
    fn ports_called(&self, dpid: DatapathId, name: Option<&str>) -> Result<Vec<PortNo>, Problem> {
        let number = name.and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number {
            return Ok(vec![PortNo(number)]);
        }
        let views = self.views.borrow();
        let Some(view) = views.get(&dpid) else {
            let detail = format!(
                "the database of switch {dpid} is not connected (auster run --ovsdb): name a port \
                 by its number"
            );
            return Err(bad(detail));
        };
        let is_meant = |called: &str| name.is_none_or(|name| name == called);
        let ports = view.ports.iter().filter(|(called, _)| is_meant(called));
        let numbers = ports.flat_map(|(_, port)| port.numbers.iter().map(|n| PortNo(*n)));
        let numbers: Vec<PortNo> = numbers.filter(|port| port.is_ordinary()).collect();
        match name.filter(|_| numbers.is_empty()) {
            Some(name) => Err(bad(format!("{name} port is not exists"))),
            None => Ok(numbers),
        }
    }
}

async fn set_queues(
    api: &Api,
    dpid: DatapathId,
    fields: &Map<String, Value>,
) -> Result<Value, Problem> {
    let queues = parse_queues(fields).map_err(wrong_fields)?;
    let name = fields.get("port_name").and_then(Value::as_str);
    let ports = api.ports_called(dpid, name)?;
    let details = config(&queues);
    let put = |port| {
        let put = Put::Port(Location { dpid, port }, queues.clone());
        Op::Put(Box::new(put), Node::of_json(&json!({})))
    };
    let ops = ports.into_iter().map(put).collect();
    Ok(match api.change(ops).await {
        Ok(()) => success(details),
        Err(why) => refused(why),
    })
}

/// `max_rate` is the port's; queues are numbered from 0 on. Beyond Ryu's fields a queue may have a
/// `dscp`, for datapaths that choose queues by it.
fn parse_queues(fields: &Map<String, Value>) -> Result<PortQueues, Wrong> {
    let mut wrong = Wrong::new();
    let mut rate = |value: Option<&Value>, field: String| {
        let value = value.filter(|value| !value.is_null())?;
        match integer(value).map(u64::try_from) {
            Ok(Ok(bps)) if bps > 0 => Some(Rate(bps)),
            _ => {
                wrong.push((field, "must be bits per second, above 0".to_owned()));
                None
            }
        }
    };
    let max = rate(fields.get("max_rate"), "max_rate".to_owned());
    let mut queues = BTreeMap::new();
    let none = Vec::new();
    let items = fields.get("queues").map_or(Some(&none), Value::as_array);
    let items: Vec<&Value> = items.into_iter().flatten().take(256).collect();
    let mut missing = Vec::new();
    for (n, item) in items.into_iter().enumerate() {
        let max = rate(item.get("max_rate"), format!("queues/{n}/max_rate"));
        let min = rate(item.get("min_rate"), format!("queues/{n}/min_rate"));
        if item.get("max_rate").is_none() && item.get("min_rate").is_none() {
            missing.push((
                format!("queues/{n}"),
                "needs max_rate or min_rate".to_owned(),
            ));
        }
        let dscp = item.get("dscp").and_then(Value::as_u64);
        let queue = Queue {
            min,
            max,
            dscp: dscp.into_iter().map(|n| n.min(255) as u8).collect(),
            ..Queue::default()
        };
        queues.insert(n as u8, queue);
    }
    wrong.extend(missing);
    if fields
        .get("queues")
        .is_some_and(|queues| !queues.is_array())
    {
        wrong.push(("queues".to_owned(), "must be a list".to_owned()));
    }
    if max.is_none() && !fields.contains_key("max_rate") {
        wrong.push((
            "max_rate".to_owned(),
            "is missing: the rate of the port".to_owned(),
        ));
    }
    let kind = fields.get("type").map(|kind| kind.as_str());
    if kind.is_some_and(|kind| kind != Some("linux-htb")) {
        wrong.push(("type".to_owned(), "must be linux-htb".to_owned()));
    }
    match (max, wrong.is_empty()) {
        (Some(rate), true) => Ok(PortQueues { rate, queues }),
        _ => Err(wrong),
    }
}

async fn delete_queues(api: &Api, dpid: DatapathId) -> Value {
    let layers = api.held.layers().await;
    let ports = layers.api.ports_of(dpid);
    let ops: Vec<Op> = ports
        .map(|(port, _)| Op::Delete(Item::Port(Location { dpid, port })))
        .collect();
    match api.change(ops).await {
        Ok(()) => json!("success"),
        Err(why) => refused(why),
    }
}

pub(super) async fn status(
    State(api): State<Api>,
    Path(switch): Path<String>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    if request.method() != Method::GET {
        return Err(no_method(request.method()));
    }
    let mut found = Vec::new();
    for dpid in switches(&api, &switch).await? {
        let all = RequestBody::Queue {
            port: PortNo::ANY,
            queue: QueueId::ALL,
        };
        let bodies = api.ask_switch(dpid, all).await?;
        found.push((dpid, json!({dpid.0.to_string(): show::bodies(bodies)})));
    }
    Ok(results(found))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queues_are_numbered_and_need_the_rate_of_their_port() {
        let Value::Object(fields) = json!({
            "port_name": "s1-eth1", "type": "linux-htb", "max_rate": "1000000",
            "queues": [{"max_rate": "500000"}, {"min_rate": 800_000}]
        }) else {
            panic!("an object");
        };
        let queues = parse_queues(&fields).unwrap();
        assert_eq!(queues.rate, Rate::mbit(1));
        assert_eq!(queues.queues[&0].max, Some(Rate(500_000)));
        assert_eq!(queues.queues[&1].min, Some(Rate(800_000)));
        let expected = json!({
            "0": {"config": {"max-rate": "500000"}}, "1": {"config": {"min-rate": "800000"}}
        });
        assert_eq!(config(&queues), expected);
        let Value::Object(fields) = json!({"type": "x", "queues": [{}, {"max_rate": "y"}]}) else {
            panic!("an object");
        };
        let wrong = parse_queues(&fields).unwrap_err();
        let fields: Vec<&str> = wrong.iter().map(|(field, _)| &field[..]).collect();
        assert_eq!(
            fields,
            ["queues/1/max_rate", "queues/0", "max_rate", "type"]
        );
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(text in "[\\[\\]{}\",:a-z0-9_. ]{0,60}") {
            if let Ok(Value::Object(fields)) = serde_json::from_str(&text) {
                let _ = parse_queues(&fields);
            }
        }
    }
}
