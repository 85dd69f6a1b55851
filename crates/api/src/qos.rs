//! Queues, services, policies and circuits: each kind has the same five requests.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::controller::Location;
use control::qos::Qos;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::intent::{Conditions, done, tag, was_put};
use super::problem::{NotKept, Problem};
use super::{Api, Body};
use cluster::intent::{Change, When};
use config::qos::held::{Op, Put};
use config::qos::show::{self, CircuitDocument, PolicyDocument, PortDocument, ServiceDocument};
use config::qos::tree::{Node, Reader, is_name};
use config::qos::{Item, read};
use config::topology::location;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_queues, post_queues))
        .routes(routes!(get_queues, put_queues, delete_queues))
        .routes(routes!(list_services, post_service))
        .routes(routes!(get_service, put_service, delete_service))
        .routes(routes!(list_policies, post_policy))
        .routes(routes!(get_policy, put_policy, delete_policy))
        .routes(routes!(list_circuits, post_circuit))
        .routes(routes!(get_circuit, put_circuit, delete_circuit))
}

/// The requested ports, by origin.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Ports {
    /// In the configuration.
    pub file: Vec<PortDocument>,
    /// Asked for by this API.
    pub api: Vec<PortDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Services {
    pub file: Vec<ServiceDocument>,
    pub api: Vec<ServiceDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Policies {
    pub file: Vec<PolicyDocument>,
    pub api: Vec<PolicyDocument>,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Circuits {
    pub file: Vec<CircuitDocument>,
    pub api: Vec<CircuitDocument>,
}

fn ports(qos: &Qos) -> Vec<PortDocument> {
    let ports = qos.ports.iter();
    ports.map(|(at, port)| show::port(*at, port)).collect()
}

/// Returns one item by name, from either layer. An item made through the API has its tag.
async fn one<T: Serialize>(
    api: &Api,
    item: Item,
    find: impl Fn(&Qos) -> Option<T>,
) -> Result<Response, Problem> {
    // Read first: with a tag that is too old, a client's change is refused, and not made by
    // mistake.
    let revision = api.intent.revision(&item);
    let layers = api.held.layers().await;
    if let Some(found) = find(&layers.file) {
        return Ok(Json(found).into_response());
    }
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("there is no {item}"));
    let found = find(&layers.api).ok_or_else(unknown)?;
    let tag = revision.map(|revision| [(header::ETAG, tag(revision))]);
    Ok((tag, Json(found)).into_response())
}

/// Reads a body.
pub fn take<T>(node: &Node, read: impl Fn(&mut Reader, &Node) -> Option<T>) -> Result<T, Problem> {
    let mut reader = Reader::default();
    let found = read(&mut reader, node);
    match found.filter(|_| reader.problems.is_empty()) {
        Some(found) => Ok(found),
        None => Err(Problem::of_fields(&reader.problems)),
    }
}

/// A name in the path, which a body need not repeat and must not contradict.
fn named(name: &str, body: Node) -> Result<Node, Problem> {
    if !is_name(name) {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "a name is 1 to 64 letters, digits, '-', '_' and '.'",
        ));
    }
    with(body, "name", name, |said| said == name)
}

fn with(
    mut body: Node,
    key: &str,
    value: &str,
    is_same: impl Fn(&str) -> bool,
) -> Result<Node, Problem> {
    let mut reader = Reader::default();
    match body.get(key) {
        None => body.insert(key, value),
        Some(node) if node.as_text().is_some_and(is_same) => {}
        Some(node) => {
            let text =
                format!("{key}: the path says '{value}'; leave it out here, or say the same");
            reader.wrong(&node.place.clone(), text);
        }
    }
    match reader.problems.is_empty() {
        true => Ok(body),
        false => Err(Problem::of_fields(&reader.problems)),
    }
}

fn at(text: &str) -> Result<Location, Problem> {
    location(text).map_err(|problem| Problem::new(StatusCode::NOT_FOUND, problem))
}

/// Puts one item, under the conditions in the headers.
async fn put<T: Serialize>(
    api: &Api,
    put: Put,
    node: Node,
    when: Asked,
    (place, shown): (String, T),
) -> Result<Response, Problem> {
    let change = Change {
        ops: vec![Op::Put(Box::new(put), node)],
        is_new: when.is_new,
        when: when.when,
    };
    let changed = api.intent.change(change).await?;
    let is_new = changed.created > 0;
    let revision = Some(changed.revision);
    Ok(was_put(
        revision,
        (is_new, changed.is_in_use),
        place,
        Some(shown),
    ))
}

/// The conditions of a request.
struct Asked {
    is_new: bool,
    when: When,
}

impl Asked {
    fn create() -> Asked {
        Asked {
            is_new: true,
            when: When::default(),
        }
    }

    fn when(Conditions(when): Conditions) -> Asked {
        Asked {
            is_new: false,
            when,
        }
    }
}

pub async fn delete(api: &Api, item: Item, when: When) -> Result<StatusCode, Problem> {
    let change = Change::new(vec![Op::Delete(item)], when);
    Ok(done(api.intent.change(change).await?.is_in_use))
}

/// The ports that have queues.
#[utoipa::path(get, path = "/v1/queues", tag = "qos", operation_id = "list_queues",
    responses((status = 200, body = Ports)))]
async fn list_queues(State(api): State<Api>) -> Json<Ports> {
    let layers = api.held.layers().await;
    let (file, api) = (ports(&layers.file), ports(&layers.api));
    Json(Ports { file, api })
}

/// Give a port queues that has none.
#[utoipa::path(post, path = "/v1/queues", tag = "qos", operation_id = "create_queues",
    request_body = PortDocument,
    responses(
        (status = 201, body = PortDocument, headers(("location" = String), ("etag" = String))),
        (status = 409, description = "It is there already, or the configuration's"),
        NotKept,
    ))]
async fn post_queues(State(api): State<Api>, Body(body): Body) -> Result<Response, Problem> {
    let at = take(&body, |reader, node| {
        let at = node.get("at");
        if at.is_none() {
            reader.wrong(&node.place, "at is missing: a port such as \"1:2\"");
        }
        read::port(reader, node);
        reader.parse(at?, "at", "1:2", &location)
    })?;
    set_queues(&api, at, body, Asked::create()).await
}

async fn set_queues(api: &Api, at: Location, body: Node, when: Asked) -> Result<Response, Problem> {
    let port = take(&body, read::port)?;
    let shown = (format!("/v1/queues/{at}"), show::port(at, &port));
    put(api, Put::Port(at, port), body, when, shown).await
}

/// The queues of a port.
#[utoipa::path(get, path = "/v1/queues/{port}", tag = "qos", operation_id = "get_queues",
    params(("port" = String, Path, example = "1:2")),
    responses(
        (status = 200, body = PortDocument, headers(("etag" = String))),
        (status = 404),
    ))]
async fn get_queues(State(api): State<Api>, Path(port): Path<String>) -> Result<Response, Problem> {
    let at = at(&port)?;
    let find = |qos: &Qos| qos.ports.get(&at).map(|port| show::port(at, port));
    one(&api, Item::Port(at), find).await
}

/// Give a port these queues, in place of those it has.
#[utoipa::path(put, path = "/v1/queues/{port}", tag = "qos", operation_id = "put_queues",
    params(
        ("port" = String, Path, example = "1:2"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    request_body = PortDocument,
    responses(
        (status = 200, description = "Replaced", body = PortDocument,
            headers(("etag" = String))),
        (status = 201, description = "Created", body = PortDocument,
            headers(("location" = String), ("etag" = String))),
        (status = 404, description = "No port can be so called"),
        (status = 409, description = "The configuration's"),
        NotKept,
    ))]
async fn put_queues(
    State(api): State<Api>,
    Path(port): Path<String>,
    conditions: Conditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    let at = at(&port)?;
    let body = with(body, "at", &port, |said| location(said) == Ok(at))?;
    set_queues(&api, at, body, Asked::when(conditions)).await
}

/// Take a port's queues away.
#[utoipa::path(delete, path = "/v1/queues/{port}", tag = "qos", operation_id = "delete_queues",
    params(
        ("port" = String, Path, example = "1:2"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    responses(
        (status = 204),
        (status = 404),
        (status = 409, description = "The configuration's"),
        (status = 422, description = "Something uses them"),
        NotKept,
    ))]
async fn delete_queues(
    State(api): State<Api>,
    Path(port): Path<String>,
    Conditions(when): Conditions,
) -> Result<StatusCode, Problem> {
    delete(&api, Item::Port(at(&port)?), when).await
}

/// Five requests of a kind that has names.
macro_rules! kind {
    (
        $path:literal, $item_path:literal, $all:ident, $document:ident, $list_of:ident, $read:path,
        $show:path, $item:path, $put_item:path,
        $list:ident $list_id:literal, $post:ident $post_id:literal, $get:ident $get_id:literal,
        $put:ident $put_id:literal, $delete:ident $delete_id:literal
    ) => {
        #[utoipa::path(get, path = $path, tag = "qos", operation_id = $list_id,
                    responses((status = 200, body = $all)))]
        async fn $list(State(api): State<Api>) -> Json<$all> {
            let layers = api.held.layers().await;
            let shown = |qos: &Qos| qos.$list_of.iter().map($show).collect();
            Json($all {
                file: shown(&layers.file),
                api: shown(&layers.api),
            })
        }

        /// Make one that is not there.
        #[utoipa::path(post, path = $path, tag = "qos", operation_id = $post_id,
                    request_body = $document,
                    responses(
                        (status = 201, body = $document,
                            headers(("location" = String), ("etag" = String))),
                        (status = 409, description = "It is there already, or the configuration's"),
                        NotKept,
                    ))]
        async fn $post(State(api): State<Api>, Body(body): Body) -> Result<Response, Problem> {
            let made = take(&body, $read)?;
            let shown = (format!("{}/{}", $path, made.name), $show(&made));
            put(&api, $put_item(made), body, Asked::create(), shown).await
        }

        #[utoipa::path(get, path = $item_path, tag = "qos", operation_id = $get_id,
                    params(("name" = String, Path, pattern = "^[A-Za-z0-9_.-]{1,64}$")),
                    responses(
                        (status = 200, body = $document, headers(("etag" = String))),
                        (status = 404),
                    ))]
        async fn $get(
            State(api): State<Api>,
            Path(name): Path<String>,
        ) -> Result<Response, Problem> {
            let find = |qos: &Qos| qos.$list_of.iter().find(|x| x.name == name).map($show);
            one(&api, $item(name.clone()), find).await
        }

        /// Make one, or replace the one that is so called.
        #[utoipa::path(put, path = $item_path, tag = "qos", operation_id = $put_id,
                    params(
                        ("name" = String, Path, pattern = "^[A-Za-z0-9_.-]{1,64}$"),
                        ("if-match" = Option<String>, Header),
                        ("if-none-match" = Option<String>, Header),
                    ),
                    request_body = $document,
                    responses(
                        (status = 200, description = "Replaced", body = $document,
                            headers(("etag" = String))),
                        (status = 201, description = "Created", body = $document,
                            headers(("location" = String), ("etag" = String))),
                        (status = 404, description = "Nothing can be so called"),
                        (status = 409, description = "The configuration's"),
                        NotKept,
                    ))]
        async fn $put(
            State(api): State<Api>,
            Path(name): Path<String>,
            conditions: Conditions,
            Body(body): Body,
        ) -> Result<Response, Problem> {
            let body = named(&name, body)?;
            let made = take(&body, $read)?;
            let shown = (format!("{}/{}", $path, made.name), $show(&made));
            put(&api, $put_item(made), body, Asked::when(conditions), shown).await
        }

        #[utoipa::path(delete, path = $item_path, tag = "qos", operation_id = $delete_id,
                    params(
                        ("name" = String, Path, pattern = "^[A-Za-z0-9_.-]{1,64}$"),
                        ("if-match" = Option<String>, Header),
                        ("if-none-match" = Option<String>, Header),
                    ),
                    responses(
                        (status = 204),
                        (status = 404),
                        (status = 409, description = "The configuration's"),
                        (status = 422, description = "Something uses it"),
                        NotKept,
                    ))]
        async fn $delete(
            State(api): State<Api>,
            Path(name): Path<String>,
            Conditions(when): Conditions,
        ) -> Result<StatusCode, Problem> {
            delete(&api, $item(name), when).await
        }
    };
}

kind!(
    "/v1/services", "/v1/services/{name}", Services, ServiceDocument, services, read::service,
    show::service, Item::Service, Put::Service,
    list_services "list_services", post_service "create_service", get_service "get_service",
    put_service "put_service", delete_service "delete_service"
);

kind!(
    "/v1/policies", "/v1/policies/{name}", Policies, PolicyDocument, policies, read::policy,
    show::policy, Item::Policy, Put::Policy,
    list_policies "list_policies", post_policy "create_policy", get_policy "get_policy",
    put_policy "put_policy", delete_policy "delete_policy"
);

kind!(
    "/v1/circuits", "/v1/circuits/{name}", Circuits, CircuitDocument, circuits, read::circuit,
    show::circuit, Item::Circuit, Put::Circuit,
    list_circuits "list_circuits", post_circuit "create_circuit", get_circuit "get_circuit",
    put_circuit "put_circuit", delete_circuit "delete_circuit"
);
