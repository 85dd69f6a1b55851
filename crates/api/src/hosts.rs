//! Hosts and the paths between them, page by page.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use control::controller::{
    HostDetail, HostName, HostPage, HostQuery, HostScan, Names, PathQuery, PathView,
};
use control::timeouts::Prefix;
use control::vlan::VlanId;
use openflow::{DatapathId, MacAddr};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Api;
use super::problem::Problem;
use super::query::Query;

const PAGE: usize = 100;
pub const PAGE_MAX: usize = 1000;
/// Hexadecimal digits of a hardware address.
const DIGITS: usize = 12;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(hosts))
        .routes(routes!(host))
        .routes(routes!(paths))
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Hosts {
    /// Sorted by address.
    pub hosts: Vec<HostDocument>,
    /// All that were asked for, on this page or not.
    pub total: u64,
    /// `after` of the next page; null on the last.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HostDocument {
    #[schema(example = "02:00:00:00:00:01")]
    pub mac: String,
    /// 0 outside of all.
    pub vlan: u16,
    #[schema(example = "0000000000000001:2")]
    pub at: String,
    pub ips: Vec<String>,
    /// Whether it was heard there; otherwise only an entry says that it is there.
    pub is_heard: bool,
    /// The port that claims its address, while the host is asked.
    pub claimed_at: Option<String>,
}

/// A host, in each VLAN that knows it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct HostInVlans {
    pub mac: String,
    pub hosts: Vec<HostDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Paths {
    /// Sorted by source and destination.
    pub paths: Vec<PathDocument>,
    /// All pairs that have a path of their own, asked for or not.
    pub count: u64,
    /// `after` of the next page; null on the last.
    pub next: Option<String>,
}

/// The path of a pair of hosts, in one direction. In hybrid mode and in the fabric a pair has an
/// entry of its own at its first switch only.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PathDocument {
    pub src: String,
    pub dst: String,
    /// Whether its switches have confirmed it; null if they were not asked.
    pub is_confirmed: Option<bool>,
    pub hops: Vec<HopDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = PathHop)]
pub struct HopDocument {
    pub dpid: String,
    pub in_port: u32,
    pub out_port: u32,
}

fn document(detail: &HostDetail) -> HostDocument {
    HostDocument {
        mac: detail.host.mac.to_string(),
        vlan: detail.host.vlan.number(),
        at: detail.host.at.to_string(),
        ips: detail.host.ips.iter().map(ToString::to_string).collect(),
        is_heard: detail.is_heard,
        claimed_at: detail.claimed_at.map(|at| at.to_string()),
    }
}

fn path(view: &PathView) -> PathDocument {
    let hop = |(dpid, in_port, out_port): &(DatapathId, openflow::PortNo, openflow::PortNo)| {
        HopDocument {
            dpid: dpid.to_string(),
            in_port: in_port.0,
            out_port: out_port.0,
        }
    };
    PathDocument {
        src: view.src.to_string(),
        dst: view.dst.to_string(),
        is_confirmed: view.is_confirmed,
        hops: view.hops.iter().map(hop).collect(),
    }
}

impl Api {
    /// Looks for hosts, with other work of the controller between the steps.
    pub async fn hosts_page(&self, query: HostQuery) -> Result<HostPage, Problem> {
        let mut scan = HostScan::new(query);
        loop {
            let (looked, page) = self
                .ask_soon(move |controller| {
                    let page = controller.look_at_hosts(&mut scan);
                    (scan, page)
                })
                .await?;
            match page {
                Some(page) => return Ok(page),
                None => scan = looked,
            }
        }
    }
}

/// Some of the hosts whose place is known.
#[utoipa::path(get, path = "/v1/hosts", tag = "network", operation_id = "list_hosts",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000,
            description = "Hosts of a page; 100 without"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
        ("switch" = Option<String>, Query, description = "Only those at this switch"),
        ("vlan" = Option<u16>, Query, description = "Only those of this VLAN; 0 is none"),
        ("q" = Option<String>, Query, example = "10.0.0.0/24",
            description = "A hardware address or its beginning, an IP address or a network"),
    ),
    responses(
        (status = 200, body = Hosts),
        (status = 400),
    ))]
async fn hosts(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Json<Hosts>, Problem> {
    let query = host_query(query.as_deref())?;
    let page = api.hosts_page(query).await?;
    let last = page.hosts.last().filter(|_| page.has_more);
    Ok(Json(Hosts {
        hosts: page.hosts.iter().map(document).collect(),
        total: page.total as u64,
        next: last.map(|last| format!("{}-{}", last.host.mac, last.host.vlan.number())),
    }))
}

fn host_query(text: Option<&str>) -> Result<HostQuery, Problem> {
    let mut query = Query::of(text);
    let read = HostQuery {
        limit: query.read("limit", limit).unwrap_or(PAGE),
        after: query.read("after", |text| {
            let (mac, vlan) = text.rsplit_once('-').ok_or("is no `next` of a page")?;
            Ok::<_, String>((mac.parse()?, vlan_of(vlan)?))
        }),
        at: query.read("switch", str::parse::<DatapathId>),
        vlan: query.read("vlan", vlan_of),
        names: query.read("q", names).unwrap_or_default(),
    };
    query.only(&["limit", "after", "switch", "vlan", "q"])?;
    Ok(read)
}

pub fn limit(text: &str) -> Result<usize, String> {
    let limit = text.parse().ok();
    let limit = limit.filter(|limit| (1..=PAGE_MAX).contains(limit));
    limit.ok_or_else(|| format!("'{text}' is not a number from 1 to {PAGE_MAX}"))
}

fn vlan_of(text: &str) -> Result<VlanId, String> {
    let number = text.parse::<u16>().ok();
    let vlan = number.and_then(|number| match number {
        0 => Some(VlanId::NONE),
        _ => VlanId::new(number),
    });
    vlan.ok_or_else(|| format!("'{text}' is not a VLAN from 1 to 4094, or 0 for none"))
}

/// The hosts that a text names: a network, an address, or the beginning of a hardware address.
fn names(text: &str) -> Result<Names, String> {
    if text.is_empty() {
        return Ok(Names::All);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Names::Network(Prefix::host(ip)));
    }
    if let Ok(network) = text.parse::<Prefix>() {
        return Ok(Names::Network(network));
    }
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-')).collect();
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    let value = u64::from_str_radix(&digits, 16).ok();
    let value = value.filter(|_| is_hex && digits.len() <= DIGITS);
    let names = value.map(|value| Names::Mac {
        value,
        digits: digits.len() as u32,
    });
    names.ok_or_else(|| {
        format!(
            "'{text}' is neither the beginning of a hardware address such as 02:00, nor an IP \
             address or a network such as 10.0.0.0/24"
        )
    })
}

/// A host: where it is, its IP addresses, and whether somebody else claims to be it.
#[utoipa::path(get, path = "/v1/hosts/{mac}", tag = "network", operation_id = "get_host",
    params(("mac" = String, Path, example = "02:00:00:00:00:01")),
    responses(
        (status = 200, body = HostInVlans),
        (status = 404),
    ))]
async fn host(
    State(api): State<Api>,
    Path(text): Path<String>,
) -> Result<Json<HostInVlans>, Problem> {
    let absent = |problem: String| Problem::new(StatusCode::NOT_FOUND, problem);
    let mac = text.parse::<MacAddr>().map_err(absent)?;
    let found = api.ask_soon(move |controller| controller.host(mac)).await?;
    if found.is_empty() {
        return Err(absent(format!("nobody knows where host {mac} is")));
    }
    Ok(Json(HostInVlans {
        mac: mac.to_string(),
        hosts: found.iter().map(document).collect(),
    }))
}

/// Some of the pairs of hosts that have a path of their own.
#[utoipa::path(get, path = "/v1/paths", tag = "network", operation_id = "list_paths",
    params(
        ("src" = Option<String>, Query, description = "Hardware or IP address of the source"),
        ("dst" = Option<String>, Query, description = "Hardware or IP address of the destination"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000,
            description = "Pairs of a page; 100 without"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses(
        (status = 200, body = Paths),
        (status = 400),
    ))]
async fn paths(State(api): State<Api>, RawQuery(query): RawQuery) -> Result<Json<Paths>, Problem> {
    let query = path_query(query.as_deref())?;
    let (views, has_more, count) = api
        .ask_soon(move |controller| {
            let (paths, has_more) = controller.paths_page(&query);
            (paths, has_more, controller.path_count())
        })
        .await?;
    let last = views.last().filter(|_| has_more);
    Ok(Json(Paths {
        paths: views.iter().map(path).collect(),
        count: count as u64,
        next: last.map(|last| format!("{}-{}", last.src, last.dst)),
    }))
}

fn path_query(text: Option<&str>) -> Result<PathQuery, Problem> {
    let mut query = Query::of(text);
    let read = PathQuery {
        src: query.read("src", host_name),
        dst: query.read("dst", host_name),
        limit: query.read("limit", limit).unwrap_or(PAGE),
        after: query.read("after", |text| {
            let (src, dst) = text.split_once('-').ok_or("is no `next` of a page")?;
            Ok::<_, String>((src.parse()?, dst.parse()?))
        }),
    };
    query.only(&["src", "dst", "limit", "after"])?;
    Ok(read)
}

fn host_name(text: &str) -> Result<HostName, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(HostName::Ip(ip));
    }
    let mac = text.parse().map(HostName::Mac);
    mac.map_err(|_| format!("'{text}' is neither a hardware address nor an IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_hosts() {
        let mac = |value, digits| Ok(Names::Mac { value, digits });
        assert_eq!(names(""), Ok(Names::All));
        assert_eq!(names("02:0"), mac(0x020, 3));
        assert_eq!(names("02:00:00:00:00:0a"), mac(0x0200_0000_000a, 12));
        let network = "10.0.0.0/24".parse().map(Names::Network);
        assert_eq!(names("10.0.0.0/24"), network);
        assert!(names("fd00::1").is_ok_and(|names| matches!(names, Names::Network(_))));
        for wrong in ["x", "02:00:00:00:00:00:0", "10.0.0.300", "+2", "/"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_that_is_wrong_with_a_question_is_said_at_once() {
        let problem = host_query(Some("limit=0&vlan=5000&switch=x&after=y&q=z&w=1")).unwrap_err();
        let fields: Vec<&str> = problem.errors.iter().map(|e| &e.detail[..5]).collect();
        assert_eq!(
            fields,
            ["limit", "after", "switc", "vlan:", "q: 'z", "w: is"]
        );
    }
}
