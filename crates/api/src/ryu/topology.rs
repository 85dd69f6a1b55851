//! `/v1.0/topology/…`, as Ryu's `rest_topology` has it. For a switch that does not exist, the lists
//! of switches, links and hosts are empty, as in Ryu.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use control::controller::{HostPage, HostQuery, Location, PortDetail};
use openflow::DatapathId;
use serde_json::{Value, json};

use super::super::Api;
use super::super::problem::Problem;

/// The most hosts in an answer: Ryu has no pages.
const HOSTS_MAX: usize = 10_000;
/// Digits of a datapath id in a path.
const DIGITS: usize = 16;

pub fn router() -> Router<Api> {
    Router::new()
        .route("/v1.0/topology/{kind}", get(all))
        .route("/v1.0/topology/{kind}/{dpid}", get(of_switch))
}

async fn all(State(api): State<Api>, Path(kind): Path<String>) -> Result<Json<Value>, Problem> {
    answer(&api, &kind, None).await
}

async fn of_switch(
    State(api): State<Api>,
    Path((kind, text)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let number = u64::from_str_radix(&text, 16).ok();
    let number = number.filter(|_| digits && text.len() == DIGITS);
    let dpid = number.map(DatapathId).ok_or_else(|| {
        let detail = format!("'{text}' is not a datapath id of {DIGITS} hexadecimal digits");
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    answer(&api, &kind, Some(dpid)).await
}

async fn answer(api: &Api, kind: &str, of: Option<DatapathId>) -> Result<Json<Value>, Problem> {
    let is_of = |dpid: DatapathId| of.is_none_or(|of| of == dpid);
    let snapshot = api.snapshot().await?;
    let ports = &snapshot.network.ports;
    let by_place: BTreeMap<Location, &PortDetail> = ports.iter().map(|p| (p.at, p)).collect();
    let port_at = |at: Location| by_place.get(&at).map_or(Value::Null, |port| port_of(port));
    let rows: Vec<Value> = match kind {
        "switches" => {
            let up = snapshot.network.switches.iter();
            let up = up.filter(|s| s.connection.is_some() && is_of(s.dpid));
            let row = |dpid: DatapathId| {
                // The ports are sorted by switch.
                let from = ports.partition_point(|port| port.at.dpid < dpid);
                let ports = ports[from..].iter();
                let ports = ports.take_while(|port| port.at.dpid == dpid);
                json!({"dpid": dpid.to_string(), "ports": ports.map(port_of).collect::<Vec<_>>()})
            };
            up.map(|switch| row(switch.dpid)).collect()
        }
        "links" => {
            let links = api
                .ask_soon(|controller| controller.links())
                .await?
                .into_iter();
            let links = links.filter(|link| is_of(link.from.dpid));
            let row = |from, to| json!({"src": port_at(from), "dst": port_at(to)});
            links.map(|link| row(link.from, link.to)).collect()
        }
        "hosts" => {
            let page = hosts(api, of).await?;
            let row = |host: &control::controller::HostView| {
                let (v4, v6): (Vec<_>, Vec<_>) = host.ips.iter().partition(|ip| ip.is_ipv4());
                let texts = |ips: Vec<&std::net::IpAddr>| {
                    ips.iter().map(ToString::to_string).collect::<Vec<_>>()
                };
                json!({
                    "mac": host.mac.to_string(),
                    "ipv4": texts(v4),
                    "ipv6": texts(v6),
                    "port": port_at(host.at),
                })
            };
            page.hosts.iter().map(|detail| row(&detail.host)).collect()
        }
        _ => {
            let detail = format!("there is nothing at /v1.0/topology/{kind}");
            return Err(Problem::new(StatusCode::NOT_FOUND, detail));
        }
    };
    Ok(Json(Value::Array(rows)))
}

async fn hosts(api: &Api, at: Option<DatapathId>) -> Result<HostPage, Problem> {
    let query = HostQuery {
        at,
        limit: HOSTS_MAX,
        ..HostQuery::default()
    };
    api.hosts_page(query).await
}

fn port_of(port: &PortDetail) -> Value {
    json!({
        "dpid": port.at.dpid.to_string(),
        "port_no": format!("{:08x}", port.at.port.0),
        "hw_addr": port.hw_addr.to_string(),
        "name": port.name.to_text(),
    })
}
