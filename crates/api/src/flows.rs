//! The flow entries of a switch, a page at a time.

use std::cmp::Reverse;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use openflow::multipart::{FlowStats, FlowStatsRequest, ReplyBody, RequestBody};
use openflow::{Instruction, TableId};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::network::dpid;
use super::problem::Problem;
use super::query::Query;

/// The greatest number of a switch's entries in an answer; a switch may have a million.
const SHOWN_MAX: usize = 10_000;
/// The most entries of a switch in which a text is searched: each must be written out for the
/// search.
const SEARCHED_MAX: usize = 100_000;
const TEXT_MAX: usize = 200;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(flow_statistics))
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FlowStatistics {
    /// The number of all entries that are asked for, on all pages.
    pub flow_count: u64,
    /// One page: by table, then the greater priority first.
    pub flows: Vec<FlowCounters>,
}

/// A flow entry, in the words of ovs-ofctl.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct FlowCounters {
    pub table: u8,
    pub priority: u16,
    #[schema(example = "udp,nw_dst=10.0.0.2,udp_dst=5060")]
    pub r#match: String,
    #[schema(example = "set_queue:1,output:2")]
    pub actions: String,
    /// Sixteen hex digits.
    pub cookie: String,
    pub packets: u64,
    pub bytes: u64,
    pub duration_s: u32,
    pub idle_timeout_s: u16,
    pub hard_timeout_s: u16,
}

/// The entries that are asked for.
struct Page {
    table: TableId,
    text: Option<String>,
    skip: usize,
    limit: usize,
}

impl Page {
    fn of(query: Option<&str>) -> Result<Page, Problem> {
        let mut query = Query::of(query);
        let table = query.read("table", |text| match text.parse::<u8>() {
            Ok(table) if TableId(table) != TableId::ALL => Ok(TableId(table)),
            _ => Err(format!("'{text}' is no number from 0 to 254")),
        });
        let text = query.read("q", |text| match text.len() <= TEXT_MAX {
            true => Ok(text.to_owned()),
            false => Err(format!("more than {TEXT_MAX} bytes")),
        });
        let skip = query.read("skip", str::parse::<usize>);
        let limit = query.read("limit", |text| match text.parse() {
            Ok(limit) if (1..=SHOWN_MAX).contains(&limit) => Ok(limit),
            _ => Err(format!("'{text}' is no number from 1 to {SHOWN_MAX}")),
        });
        query.only(&["table", "q", "skip", "limit"])?;
        Ok(Page {
            table: table.unwrap_or(TableId::ALL),
            text: text.filter(|text| !text.is_empty()),
            skip: skip.unwrap_or(0),
            limit: limit.unwrap_or(SHOWN_MAX),
        })
    }

    fn take(&self, mut rows: Vec<FlowStats>) -> FlowStatistics {
        rows.sort_by_key(|row| (row.table_id.0, Reverse(row.priority), row.cookie.0));
        let Some(text) = &self.text else {
            let shown = rows.iter().skip(self.skip).take(self.limit);
            return FlowStatistics {
                flow_count: rows.len() as u64,
                flows: shown.map(flow).collect(),
            };
        };
        let searched = rows.iter().take(SEARCHED_MAX).map(flow);
        let mut flows: Vec<FlowCounters> = searched.filter(|flow| flow.contains(text)).collect();
        let flow_count = flows.len() as u64;
        flows.drain(..self.skip.min(flows.len()));
        flows.truncate(self.limit);
        FlowStatistics { flow_count, flows }
    }
}

impl FlowCounters {
    fn contains(&self, text: &str) -> bool {
        let parts = [&self.r#match, &self.actions, &self.cookie];
        parts.iter().any(|part| part.contains(text))
    }
}

/// Its flow entries, and what they have counted. All of them are read from the switch each time.
#[utoipa::path(get, path = "/v1/switches/{dpid}/flows", tag = "network",
    operation_id = "flow_statistics",
    params(
        ("dpid" = String, Path, example = "0000000000000001"),
        ("table" = Option<u8>, Query, description = "Only entries of this table"),
        ("q" = Option<String>, Query, description = "Only entries whose match, actions or cookie \
            contain this text, among the first 100,000"),
        ("skip" = Option<u64>, Query, description = "Entries before the page"),
        ("limit" = Option<u64>, Query, description = "The size of the page, at most 10,000"),
    ),
    responses(
        (status = 200, body = FlowStatistics),
        (status = 400, description = "A field of the question is wrong"),
        (status = 404, description = "It is not connected"),
        (status = 501, description = "The switch has none"),
        (status = 504, description = "It does not answer"),
    ))]
async fn flow_statistics(
    State(api): State<Api>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<FlowStatistics>, Problem> {
    let dpid = dpid(&text)?;
    let page = Page::of(query.as_deref())?;
    let asked = FlowStatsRequest {
        table_id: page.table,
        ..FlowStatsRequest::all()
    };
    let bodies = api.ask_switch(dpid, RequestBody::Flow(asked)).await?;
    let rows = bodies.into_iter().flat_map(|body| match body {
        ReplyBody::Flow(rows) => rows,
        _ => Vec::new(),
    });
    Ok(Json(page.take(rows.collect())))
}

fn flow(row: &FlowStats) -> FlowCounters {
    FlowCounters {
        table: row.table_id.0,
        priority: row.priority,
        r#match: row.r#match.to_string(),
        actions: actions(&row.instructions),
        cookie: format!("{:016x}", row.cookie.0),
        packets: row.packet_count,
        bytes: row.byte_count,
        duration_s: row.duration_sec,
        idle_timeout_s: row.idle_timeout,
        hard_timeout_s: row.hard_timeout,
    }
}

/// The actions as ovs-ofctl shows them: `apply_actions` as they are, other instructions by name.
fn actions(instructions: &[Instruction]) -> String {
    if instructions.is_empty() {
        return "drop".to_owned();
    }
    let texts: Vec<String> = instructions.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use openflow::{Cookie, Match};

    use super::*;

    fn row(table: u8, priority: u16) -> FlowStats {
        FlowStats {
            table_id: TableId(table),
            priority,
            cookie: Cookie(u64::from(priority)),
            r#match: Match::any(),
            duration_sec: 0,
            duration_nsec: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            flags: openflow::message::FlowModFlags::empty(),
            packet_count: 0,
            byte_count: 0,
            instructions: Vec::new(),
            importance: 0,
            stats: Vec::new(),
        }
    }

    fn page(query: &str) -> (u64, Vec<(u8, u16)>) {
        let rows = (0..10).map(|n| row(n % 2, u16::from(n))).collect();
        let page = Page::of(Some(query)).unwrap_or_else(|problem| panic!("{problem:?}"));
        let found = page.take(rows);
        let flows = found.flows.iter();
        let pairs = flows.map(|flow| (flow.table, flow.priority)).collect();
        (found.flow_count, pairs)
    }

    #[test]
    fn pages_follow_each_other_by_table_and_priority() {
        let (count, first) = page("limit=4");
        assert_eq!((count, first), (10, vec![(0, 8), (0, 6), (0, 4), (0, 2)]));
        assert_eq!(page("limit=4&skip=4").1, [(0, 0), (1, 9), (1, 7), (1, 5)]);
        assert_eq!(page("limit=4&skip=11"), (10, Vec::new()));
        assert_eq!(page("q=0007"), (1, vec![(1, 7)]));
        assert_eq!(page("q=drop&skip=9").1, [(1, 1)]);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let problem = Page::of(Some("table=255&limit=0&skip=x&page=1")).err();
        let problem = problem.unwrap_or_else(|| panic!("it is taken"));
        assert_eq!(problem.status, StatusCode::BAD_REQUEST);
        let all = ["table: ", "limit: ", "skip: ", "page: "];
        let is_said = |field: &str| problem.errors.iter().any(|e| e.detail.starts_with(field));
        assert!(all.iter().all(|field| is_said(field)), "{problem:?}");
    }
}
