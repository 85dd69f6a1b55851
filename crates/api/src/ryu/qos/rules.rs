//! Rules: a service and a policy for each.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use control::qos::{Meter, On, Policy, Proto, Qos, QueueName, Service, Treatment};
use control::timeouts::HostName;
use openflow::DatapathId;
use serde_json::{Map, Value, json};

use super::super::super::Api;
use super::super::super::problem::Problem;
use super::super::matching::{Wrong, digits, integer};
use super::super::stats::wrong_fields;
use super::{bad, failure, fields, no_method, refused, results, success, switches};
use cluster::intent::Change;
use config::qos::Item;
use config::qos::Refused;
use config::qos::held::{Layers, Op, Put};
use config::qos::tree::Node;

/// The greatest priority of a policy.
const PRIORITY_MAX: u128 = control::qos::PRIORITY_MAX as u128;
/// The most rules that one switch may have.
const RULES_MAX: u32 = 4096;

pub(super) async fn rules(
    State(api): State<Api>,
    Path(switch): Path<String>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    of_rules(api, switch, None, request).await
}

pub(super) async fn of_vlan(
    State(api): State<Api>,
    Path((switch, vlan)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let vlan = vlan
        .parse::<u16>()
        .ok()
        .filter(|vlan| (2..=4094).contains(vlan));
    let vlan = vlan.ok_or_else(|| bad("Invalid {vlan_id} value. Set [2-4094]"))?;
    of_rules(api, switch, Some(vlan), request).await
}

async fn of_rules(
    api: Api,
    switch: String,
    vlan: Option<u16>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let method = request.method().clone();
    let dpids = switches(&api, &switch).await?;
    let fields = fields(request).await?;
    let mut found = Vec::new();
    for dpid in dpids {
        let done = match method {
            Method::GET => Rule::all_shown(&api.held.layers().await.api, dpid, vlan),
            Method::POST => set_rule(&api, dpid, vlan, &fields).await?,
            Method::DELETE => delete_rules(&api, dpid, vlan, &fields).await?,
            _ => return Err(no_method(&method)),
        };
        found.push((dpid, done));
    }
    Ok(results(found))
}

/// A rule, identified by the name of its service and policy.
struct Rule<'q> {
    id: u32,
    service: &'q Service,
    policy: &'q Policy,
}

fn name(dpid: DatapathId, id: u32) -> String {
    format!("ryu-{dpid}-{id}")
}

impl Rule<'_> {
    fn all(qos: &Qos, dpid: DatapathId) -> Vec<Rule<'_>> {
        let start = format!("ryu-{dpid}-");
        let rule = |policy| {
            let policy: &Policy = policy;
            let id = policy.name.strip_prefix(&start)?.parse().ok()?;
            let service = qos.service(&policy.service)?;
            Some(Rule {
                id,
                service,
                policy,
            })
        };
        qos.policies.iter().filter_map(rule).collect()
    }

    fn all_shown(qos: &Qos, dpid: DatapathId, vlan: Option<u16>) -> Value {
        let mut by_vlan: BTreeMap<Option<u16>, Vec<Value>> = BTreeMap::new();
        for rule in Rule::all(qos, dpid) {
            let of = rule.service.vlan;
            if vlan.is_none_or(|vlan| of == Some(vlan)) {
                by_vlan.entry(of).or_default().push(rule.shown());
            }
        }
        let shown = by_vlan.into_iter().map(|(vlan, rules)| match vlan {
            Some(vlan) => json!({"vlan_id": vlan, "qos": rules}),
            None => json!({"qos": rules}),
        });
        shown.collect()
    }

    fn shown(&self) -> Value {
        let Treatment {
            queue, meter, mark, ..
        } = &self.policy.treatment;
        let mut actions: Vec<Value> = Vec::new();
        actions.extend(mark.map(|mark| json!({"mark": mark.to_string()})));
        actions.extend(meter.map(|meter| json!({"meter": meter.rate.to_string()})));
        actions.extend(
            queue
                .as_ref()
                .map(|queue| json!({"queue": queue.to_string()})),
        );
        let mut shown = json!({
            "qos_id": self.id,
            "priority": self.policy.priority,
            "actions": actions,
        });
        for (key, value) in shown_match(self.service) {
            shown[key] = value;
        }
        shown
    }
}

fn shown_match(service: &Service) -> Vec<(&'static str, Value)> {
    let mut shown = Vec::new();
    let is_v6 = |host: &HostName| host.to_string().contains(':');
    for (host, eth, v4, v6) in [
        (service.src, "dl_src", "nw_src", "ipv6_src"),
        (service.dst, "dl_dst", "nw_dst", "ipv6_dst"),
    ] {
        let Some(host) = host else {
            continue;
        };
        let key = match host {
            HostName::Mac(_) => eth,
            host if is_v6(&host) => v6,
            _ => v4,
        };
        if key != eth {
            let kind = if key == v6 { "IPv6" } else { "IPv4" };
            shown.push(("dl_type", json!(kind)));
        }
        shown.push((key, json!(host.to_string())));
    }
    shown.extend(service.proto.map(|proto| {
        let name = match proto {
            Proto::Tcp => "TCP".to_owned(),
            Proto::Udp => "UDP".to_owned(),
            Proto::Icmp => "ICMP".to_owned(),
            other => other.to_string(),
        };
        ("nw_proto", json!(name))
    }));
    shown.extend(service.src_port.map(|port| ("tp_src", json!(port))));
    shown.extend(service.dst_port.map(|port| ("tp_dst", json!(port))));
    shown.extend(service.dscp.map(|dscp| ("ip_dscp", json!(dscp))));
    shown
}

async fn set_rule(
    api: &Api,
    dpid: DatapathId,
    vlan: Option<u16>,
    fields: &Map<String, Value>,
) -> Result<Value, Problem> {
    let layers = api.held.layers().await;
    let mut taken: BTreeSet<u32> = Rule::all(&layers.api, dpid).iter().map(|r| r.id).collect();
    loop {
        let Some(id) = (1..=RULES_MAX).find(|id| !taken.contains(id)) else {
            return Ok(failure(format!("there are {RULES_MAX} rules already")));
        };
        match add_rule(api, &layers, dpid, vlan, fields, id).await? {
            // Another request, maybe at another controller, has taken the number.
            Err(Refused::Exists(_)) => taken.insert(id),
            Err(why) => return Ok(json!([refused(why)])),
            Ok(()) => {
                let mut added = success(format!("QoS added. : qos_id={id}"));
                if let Some(vlan) = vlan {
                    added["vlan_id"] = json!(vlan);
                }
                return Ok(json!([added]));
            }
        };
    }
}

async fn add_rule(
    api: &Api,
    layers: &Layers,
    dpid: DatapathId,
    vlan: Option<u16>,
    fields: &Map<String, Value>,
    id: u32,
) -> Result<Result<(), Refused>, Problem> {
    let meter = |number: u32| layers.meters.get(&(dpid, number)).copied();
    let (mut service, policy) = parse_rule(dpid, id, fields, meter).map_err(wrong_fields)?;
    service.vlan = vlan.or(service.vlan);
    let node = || Node::of_json(&Value::Object(fields.clone()));
    let ops = vec![
        Op::Put(Box::new(Put::Service(service)), node()),
        Op::Put(Box::new(Put::Policy(policy)), node()),
    ];
    let change = Change {
        ops,
        is_new: true,
        ..Change::default()
    };
    Ok(api.intent.change(change).await.map(drop))
}

/// The requested rule, or every mistake in it.
fn parse_rule(
    dpid: DatapathId,
    id: u32,
    fields: &Map<String, Value>,
    meter: impl Fn(u32) -> Option<Meter>,
) -> Result<(Service, Policy), Wrong> {
    let mut wrong = Wrong::new();
    let priority = fields.get("priority").map_or(Ok(1), integer);
    let priority = match priority {
        Ok(priority) if priority <= PRIORITY_MAX => priority as u16,
        Ok(_) => {
            wrong.push(("priority".to_owned(), format!("is not 0 to {PRIORITY_MAX}")));
            0
        }
        Err(why) => {
            wrong.push(("priority".to_owned(), why));
            0
        }
    };
    let none = Map::new();
    let mut table = |key: &str| match fields.get(key) {
        None => &none,
        Some(Value::Object(found)) => found,
        Some(_) => {
            wrong.push((key.to_owned(), "is no JSON object".to_owned()));
            &none
        }
    };
    let (matched, actions) = (table("match"), table("actions"));
    let service = parse_match(name(dpid, id), matched, &mut wrong);
    let mut treatment = Treatment::default();
    let number = |value: &Value, max: u128| {
        let found = integer(value);
        found.and_then(|n| {
            (n <= max)
                .then_some(n)
                .ok_or(format!("is {n}, above {max}"))
        })
    };
    for (key, value) in actions {
        let done = match key.as_str() {
            "mark" => number(value, 63).map(|n| treatment.mark = Some(n as u8)),
            "queue" => number(value, 255).map(|n| {
                treatment.queue = Some(QueueName::Number(n as u8));
            }),
            "meter" => number(value, u128::from(u32::MAX)).and_then(|n| {
                let found = meter(n as u32);
                treatment.meter = found;
                found
                    .map(drop)
                    .ok_or_else(|| format!("{n} is not there: POST /qos/meter first"))
            }),
            _ => Err("is none of mark, meter, queue".to_owned()),
        };
        wrong.extend(done.err().map(|why| (format!("actions/{key}"), why)));
    }
    if actions.is_empty() {
        treatment.queue = Some(QueueName::Number(0));
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let policy = Policy {
        name: name(dpid, id),
        service: service.name.clone(),
        priority,
        treatment,
        on: On::Switches(BTreeSet::from([dpid])),
    };
    Ok((service, policy))
}

fn parse_match(name: String, fields: &Map<String, Value>, wrong: &mut Wrong) -> Service {
    let mut service = Service {
        name,
        ..Service::default()
    };
    let kind = fields.get("dl_type").and_then(Value::as_str);
    for (key, value) in fields {
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let host = || text.parse::<HostName>();
        let port = || {
            let number = digits(&text).and_then(|n| u16::try_from(n).ok());
            number.ok_or_else(|| format!("is {text}; it must be 0 to 65535"))
        };
        let done = match key.as_str() {
            "dl_type" => match kind {
                Some("IPv4" | "IPv6") => Ok(()),
                _ => Err("must be IPv4 or IPv6: services are of IP".to_owned()),
            },
            "dl_src" | "nw_src" | "ipv6_src" => host().and_then(|host| end(&mut service.src, host)),
            "dl_dst" | "nw_dst" | "ipv6_dst" => host().and_then(|host| end(&mut service.dst, host)),
            "nw_proto" => proto(&text).map(|proto| service.proto = Some(proto)),
            "tp_src" => port().map(|port| service.src_port = Some(port)),
            "tp_dst" => port().map(|port| service.dst_port = Some(port)),
            "dl_vlan" => port().map(|vlan| service.vlan = Some(vlan)),
            "ip_dscp" => port().map(|dscp| service.dscp = Some(dscp.min(255) as u8)),
            "in_port" => Err("is not told of a service: leave it out".to_owned()),
            _ => Err("is no field of a rule".to_owned()),
        };
        wrong.extend(done.err().map(|why| (format!("match/{key}"), why)));
    }
    // One IP version, and no other condition on its addresses.
    let any = match kind {
        Some("IPv4") => "0.0.0.0/0",
        Some("IPv6") => "::/0",
        _ => return service,
    };
    let is_ip = |host: Option<HostName>| host.is_some_and(|h| !matches!(h, HostName::Mac(_)));
    if !is_ip(service.src) && !is_ip(service.dst) {
        let free = match (service.src, service.dst) {
            (None, _) => Some(&mut service.src),
            (_, None) => Some(&mut service.dst),
            _ => None,
        };
        if let (Some(end), Ok(net)) = (free, any.parse()) {
            *end = Some(net);
        }
    }
    service
}

fn end(end: &mut Option<HostName>, host: HostName) -> Result<(), String> {
    match end.replace(host) {
        None => Ok(()),
        Some(_) => Err("is a second address of one end: a service has one".to_owned()),
    }
}

fn proto(text: &str) -> Result<Proto, String> {
    match text {
        "TCP" | "UDP" | "ICMP" => text.to_ascii_lowercase().parse(),
        "ICMPv6" => Ok(Proto::Icmp),
        number => number.parse(),
    }
}

async fn delete_rules(
    api: &Api,
    dpid: DatapathId,
    vlan: Option<u16>,
    fields: &Map<String, Value>,
) -> Result<Value, Problem> {
    let wanted = match fields.get("qos_id") {
        Some(Value::String(text)) if text == "all" => None,
        Some(value) => Some(integer(value).map_err(|_| bad("Invalid qos id."))?),
        None => return Err(bad("Invalid qos id.")),
    };
    let layers = api.held.layers().await;
    let rules = Rule::all(&layers.api, dpid);
    let meant = rules.iter().filter(|rule| {
        wanted.is_none_or(|id| id == u128::from(rule.id))
            && vlan.is_none_or(|vlan| rule.service.vlan == Some(vlan))
    });
    let meant: Vec<&Rule<'_>> = meant.collect();
    if meant.is_empty() {
        let of = wanted
            .map(|id| format!(" : QoS ID={id}"))
            .unwrap_or_default();
        return Ok(failure(format!("QoS rule is not exist.{of}")));
    }
    let ids: Vec<String> = meant.iter().map(|rule| rule.id.to_string()).collect();
    let ops = meant.iter().flat_map(|rule| {
        [
            Op::Delete(Item::Policy(rule.policy.name.clone())),
            Op::Delete(Item::Service(rule.service.name.clone())),
        ]
    });
    Ok(match api.change(ops.collect()).await {
        Ok(()) => json!([success(format!(" deleted. : QoS ID={}", ids.join(",")))]),
        Err(why) => json!([refused(why)]),
    })
}

#[cfg(test)]
mod tests {
    use control::qos::{Exceeding, Rate};
    use proptest::prelude::*;

    use super::*;

    fn rule(value: Value) -> Result<(Service, Policy), Wrong> {
        let Value::Object(fields) = value else {
            panic!("an object");
        };
        let meter = Meter {
            rate: Rate::mbit(5),
            burst_bytes: None,
            exceeding: Exceeding::Drop,
        };
        parse_rule(DatapathId(1), 3, &fields, |id| (id == 1).then_some(meter))
    }

    /// The rules of the chapter on QoS in Ryu's book.
    #[test]
    fn rules_of_ryus_book_are_services_and_policies() {
        let (service, policy) = rule(json!({
            "match": {"nw_dst": "10.0.0.1", "nw_proto": "UDP", "tp_dst": "5002"},
            "actions": {"queue": "1"}
        }))
        .unwrap();
        assert_eq!(service.name, "ryu-0000000000000001-3");
        assert_eq!(service.dst, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(
            (service.proto, service.dst_port),
            (Some(Proto::Udp), Some(5002))
        );
        assert_eq!(policy.treatment.queue, Some(QueueName::Number(1)));
        assert_eq!((policy.priority, &policy.service), (1, &service.name));
        let (_, policy) = rule(json!({
            "priority": "7",
            "match": {"ip_dscp": "26", "dl_type": "IPv4"}, "actions": {"meter": "1", "mark": 10}
        }))
        .unwrap();
        assert_eq!((policy.priority, policy.treatment.mark), (7, Some(10)));
        assert_eq!(policy.treatment.meter.unwrap().rate, Rate::mbit(5));
    }

    #[test]
    fn a_rule_is_shown_as_ryu_shows_it() {
        let (service, policy) = rule(json!({
            "match": {"nw_dst": "10.0.0.1", "nw_proto": "UDP", "tp_dst": "5002"},
            "actions": {"queue": "1"}
        }))
        .unwrap();
        let qos = Qos {
            services: vec![service],
            policies: vec![policy],
            ..Qos::default()
        };
        let shown = Rule::all_shown(&qos, DatapathId(1), None);
        let expected = json!([{"qos": [{
            "qos_id": 3, "priority": 1, "actions": [{"queue": "1"}], "dl_type": "IPv4",
            "nw_dst": "10.0.0.1", "nw_proto": "UDP", "tp_dst": 5002
        }]}]);
        assert_eq!(shown, expected);
        assert_eq!(Rule::all_shown(&qos, DatapathId(2), None), json!([]));
    }

    #[test]
    fn what_a_service_cannot_say_is_refused_by_field() {
        let wrong = rule(json!({
            "priority": 20_000,
            "match": {"in_port": 1, "dl_type": "ARP", "nw_src": "x", "ip_ecn": 1,
                      "dl_dst": "02:00:00:00:00:01", "nw_dst": "10.0.0.1"},
            "actions": {"meter": 2, "mark": 64, "fly": 1}
        }));
        let wrong: BTreeMap<_, _> = wrong.unwrap_err().into_iter().collect();
        for field in [
            "priority",
            "match/in_port",
            "match/dl_type",
            "match/nw_src",
            "match/ip_ecn",
            "match/nw_dst",
            "actions/meter",
            "actions/mark",
            "actions/fly",
        ] {
            assert!(wrong.contains_key(field), "{field}: {wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(text in "[\\[\\]{}\",:a-z0-9_. ]{0,60}") {
            if let Ok(Value::Object(fields)) = serde_json::from_str(&text) {
                let _ = rule(Value::Object(fields));
            }
        }
    }
}
