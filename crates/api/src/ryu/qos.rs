//! `/qos/…`, as Ryu's `rest_qos` has it. A rule is a service and a policy of the API, called
//! `ryu-SWITCH-NUMBER`; queues are those of `/v1/queues`. The same checks apply to them, and a
//! request with a mistake changes nothing.

mod meters;
mod queues;
mod rules;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::routing::any;
use axum::{Json, Router};
use openflow::DatapathId;
use serde_json::{Map, Value, json};

use super::super::problem::Problem;
use super::super::{Api, json};
use super::stats::dpid_of;
use cluster::intent::{Change, When};
use config::qos::Refused;
use config::qos::held::Op;

pub fn router() -> Router<Api> {
    Router::new()
        .route("/qos/queue/{switch}", any(queues::queues))
        .route("/qos/queue/status/{switch}", any(queues::status))
        .route("/qos/rules/{switch}", any(rules::rules))
        .route("/qos/rules/{switch}/{vlan}", any(rules::of_vlan))
        .route("/qos/meter/{switch}", any(meters::meters))
}

fn bad(detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

fn no_method(method: &Method) -> Problem {
    let detail = format!("{method} does nothing here");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// The connected switches that the text names.
async fn switches(api: &Api, text: &str) -> Result<Vec<DatapathId>, Problem> {
    let views = api.switches().await?;
    let up = views.iter().filter(|view| view.connection.is_some());
    let up: Vec<DatapathId> = up.map(|view| view.dpid).collect();
    if text == "all" {
        return match up.is_empty() {
            true => Err(bad("qos sw is not connected.")),
            false => Ok(up),
        };
    }
    let dpid = dpid_of(text)?;
    match up.contains(&dpid) {
        true => Ok(vec![dpid]),
        false => Err(bad(format!("qos sw is not connected. : switchID={text}"))),
    }
}

async fn fields(request: Request) -> Result<Map<String, Value>, Problem> {
    match json(request).await? {
        None => Ok(Map::new()),
        Some(Value::Object(fields)) => Ok(fields),
        Some(_) => Err(bad("the body is no JSON object")),
    }
}

/// One answer for each switch.
fn results(found: Vec<(DatapathId, Value)>) -> Json<Value> {
    let result = |(dpid, value): (DatapathId, Value)| {
        let switch = dpid.to_string();
        json!({"switch_id": switch, "command_result": value})
    };
    Json(found.into_iter().map(result).collect())
}

fn success(details: impl Into<Value>) -> Value {
    json!({"result": "success", "details": details.into()})
}

fn failure(details: impl Into<Value>) -> Value {
    json!({"result": "failure", "details": details.into()})
}

impl Api {
    /// Makes all of these changes, or none.
    async fn change(&self, ops: Vec<Op>) -> Result<(), Refused> {
        let change = Change::new(ops, When::default());
        self.intent.change(change).await.map(drop)
    }
}

/// A refusal, as a result.
fn refused(refused: Refused) -> Value {
    let problem = Problem::from(refused);
    let errors = problem.errors.iter().map(|error| error.detail.clone());
    let told: Vec<String> = errors.collect();
    failure(match told.is_empty() {
        true => problem.detail,
        false => told.join("; "),
    })
}
