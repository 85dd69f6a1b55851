//! `/v1/taps`: the packets that applications see; `tapped` has their streams.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::cluster::Cluster;
use control::tap::{
    NotSet, OTHERS, OWNERS_MAX, Places, TAPS_MAX, TAPS_PER_OWNER_MAX, Tap, TapId, TapView,
};
use openflow::text::parse_match;
use openflow::{DatapathId, Match};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::{Api, Body};
use config::qos::tree::{Node, Reader as Fields, is_name};
use config::topology::edge_port;

/// The most switches and ports that one tap names.
const PLACES_MAX: usize = 64;
const RATE_MAX: u32 = 1000;
const RATE_MAX_MAX: u64 = 100_000;
/// The beginning of a packet that a tap copies, if `bytes` is not given: the packet's headers.
const BYTES: u64 = 128;
/// The most bytes of a match.
const MATCH_MAX: usize = 1024;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(list_of_owner, delete_taps))
        .routes(routes!(get_tap, put_tap, delete_tap))
}

/// Packets that an application sees.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TapDocument {
    pub owner: String,
    pub name: String,
    /// In the words of ovs-ofctl. All packets, if it is empty.
    #[schema(example = "arp")]
    pub r#match: String,
    /// Switches and ports; everywhere, if there are none.
    #[schema(example = json!(["0000000000000001", "0000000000000002:3"]))]
    pub at: Vec<String>,
    /// Whether the packets go their way besides.
    pub copy: bool,
    /// `before` static entries, or `after` those that are before auster's own.
    #[schema(example = "before")]
    pub table: &'static str,
    /// Packets of one switch in a second.
    pub rate_max: u32,
    /// The beginning of each packet.
    pub bytes: u16,
    /// Packets for its owner.
    pub packets: u64,
    /// Packets over its rate.
    pub shed: u64,
    /// The number of switches that have it.
    pub switches: usize,
    /// Connected switches that cannot have it.
    pub unable: Vec<String>,
    pub refused: Vec<RefusedTap>,
}

/// A switch that has refused a tap.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct RefusedTap {
    pub switch: String,
    pub reason: String,
}

/// A tap that is asked for. Everything may be left out.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the schema of a body")]
pub struct TapRequest {
    #[schema(example = "arp")]
    r#match: Option<String>,
    #[schema(example = json!(["0000000000000001", "2:3"]))]
    at: Option<Vec<String>>,
    /// True without it.
    copy: Option<bool>,
    /// `before` without it; `after` takes `copy: false`.
    #[schema(example = "after")]
    table: Option<String>,
    /// 1 to 100,000; 1,000 without it.
    rate_max: Option<u32>,
    /// 14 to 65,535. Without it 128 of a copy, and whole packets of a tap that diverts.
    bytes: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Taps {
    pub taps: Vec<TapDocument>,
}

fn show(view: &TapView) -> TapDocument {
    let Places { switches, ports } = &view.tap.at;
    let switches = switches.iter().map(ToString::to_string);
    let refused = view.refused.iter().map(|(dpid, error)| RefusedTap {
        switch: dpid.to_string(),
        reason: error.to_string(),
    });
    TapDocument {
        owner: view.id.owner.to_string(),
        name: view.id.name.to_string(),
        r#match: view.tap.matching.to_string(),
        at: switches
            .chain(ports.iter().map(ToString::to_string))
            .collect(),
        copy: view.tap.is_copy,
        table: match view.tap.is_after {
            true => "after",
            false => "before",
        },
        rate_max: view.tap.rate_max,
        bytes: view.tap.bytes,
        packets: view.packets,
        shed: view.shed,
        switches: view.switches,
        unable: view.unable.iter().map(ToString::to_string).collect(),
        refused: refused.collect(),
    }
}

/// Reads a body. The problem lists every mistake in the body.
fn read(node: &Node) -> Result<Tap, Problem> {
    let mut fields = Fields::default();
    let known = ["match", "at", "copy", "table", "rate_max", "bytes"];
    fields.only(node, "tap", &known);
    let matching = fields.parsed(node, "match", "arp", match_of);
    let mut at = Places::default();
    let places = fields.items(node, "at");
    if places.len() > PLACES_MAX
        && let Some(node) = node.get("at")
    {
        fields.wrong(&node.place, format!("at: more than {PLACES_MAX} places"));
    }
    for place in places.into_iter().take(PLACES_MAX) {
        match fields.parse(place, "at", "0000000000000001:2", &place_of) {
            Some(Place::Switch(dpid)) => drop(at.switches.insert(dpid)),
            Some(Place::Port(port)) => drop(at.ports.insert(port)),
            None => {}
        }
    }
    if let Some(node) = node.get("at")
        && at.is_everywhere()
        && fields.problems.is_empty()
    {
        let text = "at: names no place; leave it out for everywhere";
        fields.wrong(&node.place, text);
    }
    let is_copy = fields.bool(node, "copy").unwrap_or(true);
    let is_after = fields.parsed(node, "table", "after", |text| match text {
        "before" => Ok(false),
        "after" if is_copy => Err("'after' is for a tap with \"copy\": false"),
        "after" => Ok(true),
        _ => Err("it is before, or after"),
    });
    let rate_max = fields.number(node, "rate_max", 1..=RATE_MAX_MAX);
    let bytes = fields.number(node, "bytes", 14..=u16::MAX.into());
    if !fields.problems.is_empty() {
        return Err(Problem::of_fields(&fields.problems));
    }
    let rate_max = rate_max.and_then(|rate| u32::try_from(rate).ok());
    // Only the application has a diverted packet, and must forward all of it.
    let most = if is_copy { BYTES } else { u16::MAX.into() };
    Ok(Tap {
        matching: matching.unwrap_or_default(),
        at,
        is_copy,
        is_after: is_after.unwrap_or_default(),
        rate_max: rate_max.unwrap_or(RATE_MAX),
        bytes: u16::try_from(bytes.unwrap_or(most)).unwrap_or(u16::MAX),
    })
}

enum Place {
    Switch(DatapathId),
    Port(control::Location),
}

fn place_of(text: &str) -> Result<Place, String> {
    match text.contains(':') {
        true => edge_port(text).map(Place::Port),
        false => text.parse().map(Place::Switch),
    }
}

fn match_of(text: &str) -> Result<Match, String> {
    if text.len() > MATCH_MAX {
        return Err(format!("more than {MATCH_MAX} bytes"));
    }
    let matching = parse_match(text).map_err(|error| error.to_string())?;
    let other = OTHERS
        .into_iter()
        .find(|field| matching.get(*field).is_some());
    if let Some(field) = other {
        let name = field.info().text;
        return Err(format!(
            "{name} is no field of a packet; name ports in \"at\""
        ));
    }
    let is_basic =
        |field: &openflow::MatchField| matches!(field, openflow::MatchField::Basic { .. });
    if !matching.fields.iter().all(is_basic) {
        return Err("oxm=… is a field without a name here".to_owned());
    }
    const LLDP: u128 = 0x88cc;
    if matching.exact(openflow::Field::EthType) == Some(LLDP) {
        return Err("LLDP is auster's: it proves links".to_owned());
    }
    Ok(matching)
}

fn id_of(owner: &str, name: &str) -> Result<TapId, Problem> {
    for text in [owner, name] {
        if !is_name(text) {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                "an owner or a name is 1 to 64 letters, digits, '-', '_' and '.'",
            ));
        }
    }
    Ok(TapId {
        owner: owner.into(),
        name: name.into(),
    })
}

fn unknown(owner: &str, name: &str) -> Problem {
    let detail = format!("{owner} has no tap {name}");
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn not_set(why: NotSet) -> Problem {
    let detail = match why {
        NotSet::TooMany => format!("there are {TAPS_MAX} taps already"),
        NotSet::TooManyOwners => format!("{OWNERS_MAX} owners have taps already"),
        NotSet::TooManyOfOwner => format!("its owner has {TAPS_PER_OWNER_MAX} taps already"),
    };
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, detail)
}

impl Api {
    async fn taps(&self, owner: Option<String>) -> Result<Vec<TapView>, Problem> {
        self.ask(move |controller| controller.taps(owner.as_deref()))
            .await
    }
}

/// The taps of all owners.
#[utoipa::path(get, path = "/v1/taps", tag = "applications", operation_id = "list_taps",
    responses((status = 200, body = Taps)))]
async fn list(State(api): State<Api>) -> Result<Json<Taps>, Problem> {
    let taps = api.taps(None).await?.iter().map(show).collect();
    Ok(Json(Taps { taps }))
}

/// The taps of one owner.
#[utoipa::path(get, path = "/v1/taps/{owner}", tag = "applications",
    operation_id = "list_taps_of_owner",
    params(("owner" = String, Path, example = "lesson")),
    responses((status = 200, body = Taps)))]
async fn list_of_owner(
    State(api): State<Api>,
    Path(owner): Path<String>,
) -> Result<Json<Taps>, Problem> {
    let taps = api.taps(Some(owner)).await?.iter().map(show).collect();
    Ok(Json(Taps { taps }))
}

/// A tap, and what it has counted.
#[utoipa::path(get, path = "/v1/taps/{owner}/{name}", tag = "applications",
    operation_id = "get_tap",
    params(
        ("owner" = String, Path, example = "lesson"),
        ("name" = String, Path, example = "arp"),
    ),
    responses(
        (status = 200, body = TapDocument),
        (status = 404),
    ))]
async fn get_tap(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
) -> Result<Json<TapDocument>, Problem> {
    let all = api.taps(Some(owner.clone())).await?;
    let found = all.iter().find(|view| *view.id.name == name);
    found
        .map(|view| Json(show(view)))
        .ok_or_else(|| unknown(&owner, &name))
}

/// Have an application see packets. A tap ends with `auster run`.
///
/// Without the fabric, the first tap of a switch that copies has the switch connect anew.
#[utoipa::path(put, path = "/v1/taps/{owner}/{name}", tag = "applications",
    operation_id = "put_tap",
    params(
        ("owner" = String, Path, example = "lesson"),
        ("name" = String, Path, example = "arp"),
    ),
    request_body = TapRequest,
    responses(
        (status = 200, description = "Replaced", body = TapDocument),
        (status = 201, description = "Created", body = TapDocument),
        (status = 404, description = "Nothing can be so called"),
        (status = 429, description = "Taps change too often"),
        (status = 503, description = "Another member of the cluster serves the switches"),
        (status = 507, description = "There are too many"),
    ))]
async fn put_tap(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
    Body(body): Body,
) -> Result<Response, Problem> {
    let id = id_of(&owner, &name)?;
    let tap = read(&body)?;
    api.paces.taps.take(api.clock.now(), 1).await?;
    let (now, rings) = (api.clock.now(), api.reads.taps.clone());
    let set = api
        .ask(move |controller| {
            if let Some(problem) = standing_by(controller.cluster()) {
                return Err(problem);
            }
            let was_there = controller.set_tap(now, id.clone(), tap).map_err(not_set)?;
            // Create the ring before the tap's first packet.
            rings.begin(&id.owner);
            let mut all = controller.taps(Some(&id.owner)).into_iter();
            Ok((was_there, all.find(|view| view.id == id)))
        })
        .await?;
    let (was_there, view) = set?;
    let status = match was_there {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    Ok((status, Json(view.as_ref().map(show))).into_response())
}

/// Explains why a member of a cluster sets no tap: another member receives the switches' packets.
fn standing_by(cluster: Option<&Cluster>) -> Option<Problem> {
    let shards = cluster?.shards();
    if shards.iter().any(|shard| shard.is_held) {
        return None;
    }
    let holder = shards.iter().find_map(|shard| shard.holder.as_ref());
    let detail = holder.map_or_else(
        || "no member serves the switches; try again".to_owned(),
        |id| format!("member {id} serves the switches, and this one stands by; set the tap there"),
    );
    Some(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}

impl Api {
    /// Ends all taps of an owner. Returns how many there were.
    pub async fn remove_taps(&self, owner: &str) -> Result<usize, Problem> {
        let (now, rings, owner) = (self.clock.now(), self.reads.taps.clone(), owner.to_owned());
        self.ask(move |controller| {
            let taps = controller.taps(Some(&owner));
            for view in &taps {
                controller.remove_tap(now, &view.id);
            }
            rings.end(&owner);
            taps.len()
        })
        .await
    }
}

/// End all taps of an owner, and with them its stream.
#[utoipa::path(delete, path = "/v1/taps/{owner}", tag = "applications",
    operation_id = "delete_taps",
    params(("owner" = String, Path, example = "lesson")),
    responses(
        (status = 204),
        (status = 404, description = "Nobody can be so called"),
        (status = 429, description = "Taps change too often"),
    ))]
async fn delete_taps(
    State(api): State<Api>,
    Path(owner): Path<String>,
) -> Result<StatusCode, Problem> {
    id_of(&owner, "x")?;
    let count = api.taps(Some(owner.clone())).await?.len().max(1);
    api.paces.taps.take(api.clock.now(), count).await?;
    api.remove_taps(&owner).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End a tap. The stream of its owner ends with the last one.
#[utoipa::path(delete, path = "/v1/taps/{owner}/{name}", tag = "applications",
    operation_id = "delete_tap",
    params(
        ("owner" = String, Path, example = "lesson"),
        ("name" = String, Path, example = "arp"),
    ),
    responses(
        (status = 204),
        (status = 404),
        (status = 429, description = "Taps change too often"),
    ))]
async fn delete_tap(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id = id_of(&owner, &name)?;
    api.paces.taps.take(api.clock.now(), 1).await?;
    let (now, rings) = (api.clock.now(), api.reads.taps.clone());
    let asked = api
        .ask(move |controller| {
            let was_there = controller.remove_tap(now, &id);
            if !controller.has_taps(&id.owner) {
                rings.end(&id.owner);
            }
            was_there
        })
        .await?;
    match asked {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown(&owner, &name)),
    }
}

#[cfg(test)]
mod tests {
    use control::cluster::{ClusterConfig, MemberId};
    use serde_json::json;

    use super::*;

    fn read_json(body: serde_json::Value) -> Result<Tap, Vec<(String, String)>> {
        read(&Node::of_json(&body)).map_err(|problem| {
            let errors = problem.errors.into_iter();
            errors.map(|error| (error.pointer, error.detail)).collect()
        })
    }

    #[test]
    fn a_body_may_say_nothing_or_all() {
        let tap = read_json(json!({})).unwrap();
        assert!(tap.is_copy && tap.at.is_everywhere() && tap.matching == Match::any());
        assert_eq!((tap.rate_max, tap.bytes), (1000, 128));
        // An application that forwards a diverted packet needs all of it.
        let diverted = read_json(json!({"copy": false})).unwrap();
        assert_eq!(diverted.bytes, u16::MAX);
        let tap = read_json(json!({
            "match": "udp,tp_dst=67", "at": ["1", "2:3"], "copy": false, "rate_max": 5,
            "bytes": 65535, "table": "after",
        }));
        let tap = tap.unwrap();
        assert!(!tap.is_copy && tap.is_after && tap.at.has_all_of(DatapathId(1)));
        assert!(tap.at.concerns(DatapathId(2)) && !tap.at.concerns(DatapathId(3)));
        assert_eq!((tap.rate_max, tap.bytes), (5, 65535));
    }

    #[test]
    fn a_member_that_stands_by_sets_no_tap() {
        assert!(standing_by(None).is_none());
        let config = ClusterConfig {
            id: MemberId::new("a").unwrap(),
            shards: 1,
            seed: 1,
            reads: 1,
        };
        let cluster = Cluster::new(clock::Instant::START, config, None);
        let problem = standing_by(Some(&cluster)).unwrap();
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            problem.detail.starts_with("no member serves"),
            "{problem:?}"
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_by_field() {
        let wrong = read_json(json!({
            "match": "in_port=1", "at": ["x", "1:local", "1:2"], "copy": "yes", "rate_max": 0,
            "bytes": 13, "more": 1,
        }));
        let wrong = wrong.unwrap_err();
        let pointers: Vec<&str> = wrong.iter().map(|(pointer, _)| pointer.as_str()).collect();
        let expected = [
            "/more",
            "/match",
            "/at/0",
            "/at/1",
            "/copy",
            "/rate_max",
            "/bytes",
        ];
        assert_eq!(pointers, expected, "{wrong:#?}");
        let too_much = json!({"at": vec!["1:2"; PLACES_MAX + 1], "match": "dl_type=0x88cc"});
        let wrong = read_json(too_much).unwrap_err();
        let pointers: Vec<&str> = wrong.iter().map(|(pointer, _)| pointer.as_str()).collect();
        assert_eq!(pointers, ["/match", "/at"]);
        assert_eq!(read_json(json!({"at": []})).unwrap_err()[0].0, "/at");
        for body in [
            json!({"table": "after"}),
            json!({"copy": false, "table": "x"}),
        ] {
            assert_eq!(read_json(body).unwrap_err()[0].0, "/table");
        }
        assert_eq!(
            read_json(json!({"match": "tcp_dst=1"})).unwrap_err()[0].0,
            "/match"
        );
    }
}
