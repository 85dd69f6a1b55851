//! `/stats/…`, as Ryu's `ofctl_rest` has it: every statistic is asked of the switch.

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use control::flows::OWNER_RYU;
use openflow::message::FlowModFlags;
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{Cookie, DatapathId, GroupId, MeterId, PortNo, QueueId, TableId};
use serde_json::{Map, Value, json};

use super::super::problem::{FieldError, Problem};
use super::super::{Api, json};
use super::{matching, show};

pub fn router() -> Router<Api> {
    Router::new()
        .route("/stats/switches", get(switches))
        .route("/stats/{kind}/{dpid}", any(of_switch))
        .route("/stats/{kind}/{dpid}/{first}", any(of_part))
        .route("/stats/{kind}/{dpid}/{first}/{second}", any(of_two_parts))
        .route("/stats/role", any(not_ours))
}

async fn switches(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    let views = api.switches().await?;
    let up = views.iter().filter(|view| view.connection.is_some());
    Ok(Json(up.map(|view| json!(view.dpid.0)).collect()))
}

async fn of_switch(
    State(api): State<Api>,
    Path((kind, dpid)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&api, &kind, &dpid, [None, None], request).await
}

async fn of_part(
    State(api): State<Api>,
    Path((kind, dpid, first)): Path<(String, String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&api, &kind, &dpid, [Some(&first), None], request).await
}

async fn of_two_parts(
    State(api): State<Api>,
    Path((kind, dpid, first, second)): Path<(String, String, String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&api, &kind, &dpid, [Some(&first), Some(&second)], request).await
}

/// The requests that change a switch without the controller's knowledge.
const CHANGES: [&str; 3] = ["experimenter", "role", "portdesc"];

async fn not_ours() -> Problem {
    let detail = "auster run looks after its switches' tables and its role itself; ask for queues, \
                  services and policies (/v1, or /qos as with Ryu's rest_qos)";
    Problem::new(StatusCode::NOT_IMPLEMENTED, detail)
}

async fn answer(
    api: &Api,
    kind: &str,
    dpid: &str,
    parts: [Option<&str>; 2],
    request: Request,
) -> Result<Response, Problem> {
    let is_get = request.method() == axum::http::Method::GET;
    let is_post = request.method() == axum::http::Method::POST;
    if CHANGES.contains(&kind) && !(is_get && matches!(kind, "portdesc" | "role")) {
        return Ok(not_ours().await.into_response());
    }
    let has_filter = matches!(kind, "flow" | "flowdesc" | "aggregateflow");
    let is_asking = is_get || is_post && has_filter;
    if !is_asking {
        let detail = format!("{} does nothing at /stats/{kind}", request.method());
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail));
    }
    let filter = if has_filter {
        json(request).await?
    } else {
        None
    };
    let filter = Filter::parse(filter.unwrap_or_else(|| json!({})))?;
    let (cookie, mask) = (filter.request.cookie, filter.request.cookie_mask);
    let mut request = filter.request;
    if kind != "aggregateflow" {
        // Programs for Ryu have cookies of their own, which switches do not know.
        request.cookie_mask = Cookie(0);
    }
    let body = body(kind, parts, request)?;
    let dpid = dpid_of(dpid)?;
    let bodies = api.ask_switch(dpid, body).await?;
    let mut bodies = match has_filter {
        true => as_stated(api, dpid, bodies).await?,
        false => bodies,
    };
    let is_it = |row: &FlowStats| {
        let has_cookie = (row.cookie.0 ^ cookie.0) & mask.0 == 0;
        let priority = u128::from(row.priority);
        has_cookie && filter.priority.is_none_or(|asked| asked == priority)
    };
    for body in &mut bodies {
        if let ReplyBody::Flow(rows) = body {
            rows.retain(is_it);
        }
    }
    let shown = json!({dpid.0.to_string(): show::bodies(bodies)});
    Ok(Json(shown).into_response())
}

/// Entries that programs for Ryu have set, with the priorities, cookies and flags that they stated.
async fn as_stated(
    api: &Api,
    dpid: DatapathId,
    mut bodies: Vec<ReplyBody>,
) -> Result<Vec<ReplyBody>, Problem> {
    api.ask(move |controller| {
        let rows = bodies.iter_mut().flat_map(|body| match body {
            ReplyBody::Flow(rows) => &mut rows[..],
            _ => &mut [],
        });
        for row in rows {
            let stated = controller.flow_of(dpid, row);
            if let Some((_, entry)) = stated.filter(|(name, _)| name.owner == OWNER_RYU) {
                row.priority = entry.priority;
                let (cookie, flags) = entry.stated;
                (row.cookie, row.flags) = (Cookie(cookie), FlowModFlags(flags));
            }
        }
        bodies
    })
    .await
}

/// The datapath id in Ryu's forms, decimal or `0x…`, or in the form that other paths show.
pub fn dpid_of(text: &str) -> Result<DatapathId, Problem> {
    let decimal = text.bytes().all(|b| b.is_ascii_digit());
    let found = match text.parse::<u64>() {
        Ok(number) if decimal && text.len() < 16 => Ok(DatapathId(number)),
        _ => text.parse::<DatapathId>(),
    };
    found.map_err(|problem| Problem::new(StatusCode::BAD_REQUEST, problem))
}

fn body(
    kind: &str,
    parts: [Option<&str>; 2],
    flows: FlowStatsRequest,
) -> Result<RequestBody, Problem> {
    let number = |part: Option<&str>, all: u32| match part {
        None | Some("ALL") => Ok(all),
        Some(text) => {
            let found = matching::digits(text).and_then(|n| u32::try_from(n).ok());
            let found = found.or_else(|| text.parse::<PortNo>().ok().map(|port| port.0));
            found.ok_or_else(|| {
                let detail = format!("'{text}' is no number, and not ALL");
                Problem::new(StatusCode::BAD_REQUEST, detail)
            })
        }
    };
    let [first, second] = parts;
    let parts_max = match kind {
        "queue" => 2,
        "port" | "meter" | "meterconfig" | "group" | "portdesc" | "groupdesc" => 1,
        _ => 0,
    };
    let unknown = || {
        let detail = format!("there is no /stats/{kind} with so many parts");
        Problem::new(StatusCode::NOT_FOUND, detail)
    };
    if parts.iter().flatten().count() > parts_max {
        return Err(unknown());
    }
    Ok(match kind {
        "desc" => RequestBody::Desc,
        "flow" | "flowdesc" => RequestBody::Flow(flows),
        "aggregateflow" => RequestBody::Aggregate(flows),
        "table" => RequestBody::Table,
        "port" => RequestBody::PortStats(PortNo(number(first, PortNo::ANY.0)?)),
        "queue" => RequestBody::Queue {
            port: PortNo(number(first, PortNo::ANY.0)?),
            queue: QueueId(number(second, QueueId::ALL.0)?),
        },
        "meter" => RequestBody::Meter(MeterId(number(first, MeterId::ALL.0)?)),
        "meterconfig" => RequestBody::MeterConfig(MeterId(number(first, MeterId::ALL.0)?)),
        "meterfeatures" => RequestBody::MeterFeatures,
        "group" => RequestBody::Group(GroupId(number(first, GroupId::ALL.0)?)),
        "groupdesc" => RequestBody::GroupDesc(GroupId::ALL),
        "portdesc" => RequestBody::PortDesc(PortNo::ANY),
        "tablefeatures" | "groupfeatures" | "queueconfig" | "queuedesc" | "meterdesc" | "role" => {
            let detail = format!("/stats/{kind} is not told by auster");
            return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, detail));
        }
        _ => return Err(unknown()),
    })
}

/// The filter of entries. OpenFlow has no filter by priority, so the controller applies it here.
struct Filter {
    request: FlowStatsRequest,
    priority: Option<u128>,
}

impl Filter {
    fn parse(value: Value) -> Result<Filter, Problem> {
        let mut wrong = Vec::new();
        let Value::Object(fields) = value else {
            return Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "the body is no JSON object",
            ));
        };
        let mut request = FlowStatsRequest::all();
        let mut number = |key: &str, max: u128, names: &[(&str, u128)]| {
            let value = fields.get(key)?;
            let named = value.as_str().and_then(|text| {
                let text = text.to_ascii_uppercase();
                names.iter().find(|(name, _)| text.ends_with(name))
            });
            let found = match named {
                Some((_, number)) => Ok(*number),
                None => matching::integer(value),
            };
            match found.and_then(|n| (n <= max).then_some(n).ok_or(format!("{n} is too much"))) {
                Ok(number) => Some(number),
                Err(why) => {
                    wrong.push((key.to_owned(), why));
                    None
                }
            }
        };
        const U32: u128 = u32::MAX as u128;
        const U64: u128 = u64::MAX as u128;
        let ports = [
            ("ANY", U32),
            ("LOCAL", 0xffff_fffe),
            ("CONTROLLER", 0xffff_fffd),
        ];
        let table = number("table_id", 255, &[("ALL", 255), ("MAX", 254)]);
        request.table_id = table.map_or(TableId::ALL, |n| TableId(n as u8));
        let port = number("out_port", U32, &ports);
        request.out_port = port.map_or(PortNo::ANY, |n| PortNo(n as u32));
        let group = number("out_group", U32, &[("ANY", U32), ("ALL", 0xffff_fffc)]);
        request.out_group = group.map_or(GroupId::ANY, |n| GroupId(n as u32));
        request.cookie = Cookie(number("cookie", U64, &[]).unwrap_or(0) as u64);
        request.cookie_mask = Cookie(number("cookie_mask", U64, &[]).unwrap_or(0) as u64);
        // In Ryu, -1 means any.
        let is_any = fields
            .get("priority")
            .and_then(Value::as_i64)
            .is_some_and(|n| n < 0);
        let priority = match is_any {
            true => None,
            false => number("priority", 65_535, &[]),
        };
        let none = Map::new();
        let matched = match fields.get("match") {
            None => &none,
            Some(Value::Object(matched)) => matched,
            Some(_) => {
                wrong.push(("match".to_owned(), "is no JSON object".to_owned()));
                &none
            }
        };
        match matching::parse(matched) {
            Ok(found) => request.r#match = found,
            Err(fields) => {
                let below = |(key, why)| (format!("match/{key}"), why);
                wrong.extend(fields.into_iter().map(below));
            }
        }
        match wrong.is_empty() {
            true => Ok(Filter { request, priority }),
            false => Err(wrong_fields(wrong)),
        }
    }
}

/// Answers 400 for mistakes in a body, as Ryu does.
pub fn wrong_fields(wrong: matching::Wrong) -> Problem {
    let error = |(field, why): (String, String)| FieldError {
        pointer: format!("/{field}"),
        detail: format!("{} {why}", field.rsplit('/').next().unwrap_or(&field)),
    };
    let errors: Vec<FieldError> = wrong.into_iter().map(error).collect();
    let told: Vec<&str> = errors.iter().map(|error| &error.detail[..]).collect();
    Problem {
        errors: errors.clone(),
        ..Problem::new(StatusCode::BAD_REQUEST, told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use openflow::Field;

    use super::*;

    #[test]
    fn a_filter_is_read_and_all_that_is_wrong_told() {
        let filter = Filter::parse(json!({
            "table_id": "OFPTT_ALL", "out_port": 2, "cookie": "0x10", "cookie_mask": 16,
            "priority": 7, "match": {"in_port": 1}
        }));
        let Ok(Filter { request, priority }) = filter else {
            panic!("it is right");
        };
        assert_eq!(
            (request.table_id, request.out_port),
            (TableId::ALL, PortNo(2))
        );
        assert_eq!(
            (request.cookie, request.cookie_mask),
            (Cookie(16), Cookie(16))
        );
        assert_eq!(priority, Some(7));
        assert_eq!(request.r#match.exact(Field::InPort), Some(1));
        let any = Filter::parse(json!({"priority": -1})).map(|f| f.priority);
        assert_eq!(any.ok(), Some(None));
        let wrong = Filter::parse(json!({"table_id": 256, "cookie": [], "match": {"x": 1}}));
        let Err(problem) = wrong else {
            panic!("it is wrong");
        };
        let pointers: Vec<&str> = problem.errors.iter().map(|e| &e.pointer[..]).collect();
        assert_eq!(pointers, ["/table_id", "/cookie", "/match/x"]);
        assert_eq!(problem.status, 400);
    }

    #[test]
    fn parts_of_paths_are_ports_queues_and_meters() {
        let all = FlowStatsRequest::all;
        let of = |kind: &str, parts| body(kind, parts, all());
        let queue = RequestBody::Queue {
            port: PortNo::ANY,
            queue: QueueId(1),
        };
        assert_eq!(of("queue", [Some("ALL"), Some("1")]).ok(), Some(queue));
        let local = RequestBody::PortStats(PortNo::LOCAL);
        assert_eq!(of("port", [Some("LOCAL"), None]).ok(), Some(local));
        let status = |kind: &str, parts| of(kind, parts).err().map(|problem| problem.status);
        assert_eq!(status("port", [Some("x"), None]), Some(400));
        assert_eq!(status("desc", [Some("1"), None]), Some(404));
        assert_eq!(status("nothing", [None, None]), Some(404));
        assert_eq!(status("queueconfig", [None, None]), Some(501));
    }

    #[test]
    fn datapaths_are_named_as_python_and_as_open_vswitch_do() {
        for text in ["1", "0x1", "0000000000000001"] {
            assert_eq!(dpid_of(text).ok(), Some(DatapathId(1)), "{text}");
        }
        assert!(dpid_of("x").is_err_and(|problem| problem.status == 400));
    }
}
