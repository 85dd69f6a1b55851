//! Places of switches on the map: the document of [`Intent`](cluster::intent::Intent) by which
//! browsers show the same picture.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::intent::{Conditions, tag, was_put};
use super::problem::{NotKept, Problem};
use super::qos::{delete, take};
use super::{Api, Body};
use cluster::intent::Change;
use config::layout::{Layout, read};
use config::qos::Item;
use config::qos::held::{Op, Put};

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_layout, put_layout, delete_layout))
}

/// The saved places. Without any, it is empty and has no tag.
#[utoipa::path(get, path = "/v1/layout", tag = "network", operation_id = "get_layout",
    responses((status = 200, body = Layout, headers(("etag" = String)))))]
async fn get_layout(State(api): State<Api>) -> Result<Response, Problem> {
    let (tags, layout) = match api.intent.layout()? {
        Some((revision, layout)) => (Some([(header::ETAG, tag(revision))]), layout),
        None => (None, Layout::default()),
    };
    Ok((tags, Json(layout)).into_response())
}

/// Save these places, in place of all that are saved.
#[utoipa::path(put, path = "/v1/layout", tag = "network", operation_id = "put_layout",
    params(
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    request_body = Layout,
    responses(
        (status = 200, description = "Replaced", body = Layout, headers(("etag" = String))),
        (status = 201, description = "Created", body = Layout,
            headers(("location" = String), ("etag" = String))),
        NotKept,
    ))]
async fn put_layout(
    State(api): State<Api>,
    Conditions(when): Conditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    let layout = take(&body, read)?;
    let put = Op::Put(Box::new(Put::Layout(layout.clone())), body);
    let changed = api.intent.change(Change::new(vec![put], when)).await?;
    let how = (changed.created > 0, changed.is_in_use);
    let place = "/v1/layout".to_owned();
    Ok(was_put(Some(changed.revision), how, place, Some(layout)))
}

/// Delete the saved places.
#[utoipa::path(delete, path = "/v1/layout", tag = "network", operation_id = "delete_layout",
    params(
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    responses((status = 204), (status = 404, description = "None are saved"), NotKept))]
async fn delete_layout(
    State(api): State<Api>,
    Conditions(when): Conditions,
) -> Result<StatusCode, Problem> {
    delete(&api, Item::Layout, when).await
}
