//! Stated groups and meters, to which static entries of the same owner refer. They are documents of
//! [`Intent`](cluster::intent::Intent).

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::flows::FlowName;
use control::flows::parts::{PartKind, PartName, PartView};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::intent::{Conditions, done, tag, was_put};
use super::problem::{NotKept, Problem};
use super::{Api, Body};
use cluster::intent::{Change, Changed, When};
use config::parts::{
    StatedGroup, StatedGroupDocument, StatedMeter, StatedMeterDocument, read, show_group,
    show_meter,
};
use config::qos::held::{Op, Put};
use config::qos::tree::{Node, Reader, is_name};
use config::qos::{Item, Refused};

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_groups))
        .routes(routes!(get_group, put_group, delete_group))
        .routes(routes!(list_meters))
        .routes(routes!(get_meter, put_meter, delete_meter))
}

/// Stated groups, by owner and name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Groups {
    pub groups: Vec<StatedGroupDocument>,
}

/// Stated meters, by owner and name.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Meters {
    pub meters: Vec<StatedMeterDocument>,
}

fn named(kind: PartKind, (owner, name): (String, String)) -> Result<PartName, Problem> {
    let is_number = name.bytes().all(|b| b.is_ascii_digit());
    if !is_name(&owner) || !is_name(&name) || is_number {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "an owner and a name are 1 to 64 letters, digits, '-', '_' and '.' each, and the name \
             is not a number",
        ));
    }
    let of = FlowName { owner, name };
    Ok(PartName { kind, of })
}

fn shown(view: &PartView) -> Value {
    match view.name.kind {
        PartKind::Group => json!(show_group(view)),
        PartKind::Meter => json!(show_meter(view)),
    }
}

impl Api {
    pub async fn parts(&self, kind: PartKind) -> Result<Vec<PartView>, Problem> {
        self.ask(move |controller| controller.parts(kind)).await
    }

    async fn part(&self, name: &PartName) -> Result<Option<PartView>, Problem> {
        let name = name.clone();
        self.ask(move |controller| controller.part(&name)).await
    }

    /// Puts or deletes groups and meters, all or none.
    pub async fn change_parts(&self, ops: Vec<Op>, when: When) -> Result<Changed, Problem> {
        Ok(self.intent.change(Change::new(ops, when)).await?)
    }

    /// Deletes these groups and meters, and skips any that another client has deleted already.
    pub async fn delete_parts(&self, names: BTreeSet<PartName>) -> Result<(), Problem> {
        for name in names {
            let item = Item::Part(name);
            let is_there = self.intent.has(&item);
            if is_there {
                self.change_parts(vec![Op::Delete(item)], When::default())
                    .await?;
            }
        }
        Ok(())
    }

    async fn get_part(&self, name: PartName) -> Result<Response, Problem> {
        // Read first: with a tag that is too old, a client's change is refused, and not made by
        // mistake.
        let revision = self.intent.revision(&Item::Part(name.clone()));
        let view = self.part(&name).await?;
        let view = view.ok_or_else(|| Problem::from(Refused::Unknown(Item::Part(name))))?;
        let tag = revision.map(|revision| [(header::ETAG, tag(revision))]);
        Ok((tag, Json(shown(&view))).into_response())
    }

    async fn put_part(&self, name: PartName, when: When, body: Node) -> Result<Response, Problem> {
        let mut reader = Reader::default();
        let Some(part) = read(&mut reader, &name, &body) else {
            return Err(Problem::of_fields(&reader.problems));
        };
        let put = Op::Put(Box::new(Put::Part(name.clone(), Box::new(part))), body);
        let changed = self.change_parts(vec![put], when).await?;
        let how = (changed.created > 0, changed.is_in_use);
        let place = format!("/v1/{}s/{}", name.kind.word(), name.of);
        let view = self.part(&name).await?;
        Ok(was_put(
            Some(changed.revision),
            how,
            place,
            view.as_ref().map(shown),
        ))
    }

    async fn delete_part(&self, name: PartName, when: When) -> Result<StatusCode, Problem> {
        let item = Item::Part(name);
        if !self.intent.has(&item) {
            return Err(Problem::from(Refused::Unknown(item)));
        }
        let changed = self.change_parts(vec![Op::Delete(item)], when).await?;
        Ok(done(changed.is_in_use))
    }
}

/// All stated groups.
#[utoipa::path(get, path = "/v1/groups", tag = "flows", operation_id = "list_groups",
    responses((status = 200, body = Groups)))]
async fn list_groups(State(api): State<Api>) -> Result<Json<Groups>, Problem> {
    let views = api.parts(PartKind::Group).await?;
    let groups = views.iter().map(show_group).collect();
    Ok(Json(Groups { groups }))
}

/// A stated group, and what has become of it.
#[utoipa::path(get, path = "/v1/groups/{owner}/{name}", tag = "flows",
    operation_id = "get_group",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "both"),
    ),
    responses(
        (status = 200, body = StatedGroupDocument, headers(("etag" = String))),
        (status = 404),
    ))]
async fn get_group(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
) -> Result<Response, Problem> {
    api.get_part(named(PartKind::Group, path)?).await
}

/// Make a group, or replace the one that is so called. It is kept, and set again whenever it is
/// gone.
#[utoipa::path(put, path = "/v1/groups/{owner}/{name}", tag = "flows",
    operation_id = "put_group",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "both"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    request_body = StatedGroup,
    responses(
        (status = 200, description = "Replaced", body = StatedGroupDocument,
            headers(("etag" = String))),
        (status = 201, description = "Created", body = StatedGroupDocument,
            headers(("location" = String), ("etag" = String))),
        (status = 404, description = "Nothing can be so called"),
        NotKept,
    ))]
async fn put_group(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    Conditions(when): Conditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    api.put_part(named(PartKind::Group, path)?, when, body)
        .await
}

/// Delete a group that no static entry leads to.
#[utoipa::path(delete, path = "/v1/groups/{owner}/{name}", tag = "flows",
    operation_id = "delete_group",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "both"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    responses(
        (status = 204),
        (status = 404),
        (status = 422, description = "An entry leads to it"),
        NotKept,
    ))]
async fn delete_group(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    Conditions(when): Conditions,
) -> Result<StatusCode, Problem> {
    api.delete_part(named(PartKind::Group, path)?, when).await
}

/// All stated meters.
#[utoipa::path(get, path = "/v1/meters", tag = "flows", operation_id = "list_meters",
    responses((status = 200, body = Meters)))]
async fn list_meters(State(api): State<Api>) -> Result<Json<Meters>, Problem> {
    let views = api.parts(PartKind::Meter).await?;
    let meters = views.iter().map(show_meter).collect();
    Ok(Json(Meters { meters }))
}

/// A stated meter, and what has become of it.
#[utoipa::path(get, path = "/v1/meters/{owner}/{name}", tag = "flows",
    operation_id = "get_meter",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "slow"),
    ),
    responses(
        (status = 200, body = StatedMeterDocument, headers(("etag" = String))),
        (status = 404),
    ))]
async fn get_meter(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
) -> Result<Response, Problem> {
    api.get_part(named(PartKind::Meter, path)?).await
}

/// Make a meter, or replace the one that is so called. It is kept, and set again whenever it is
/// gone.
#[utoipa::path(put, path = "/v1/meters/{owner}/{name}", tag = "flows",
    operation_id = "put_meter",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "slow"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    request_body = StatedMeter,
    responses(
        (status = 200, description = "Replaced", body = StatedMeterDocument,
            headers(("etag" = String))),
        (status = 201, description = "Created", body = StatedMeterDocument,
            headers(("location" = String), ("etag" = String))),
        (status = 404, description = "Nothing can be so called"),
        NotKept,
    ))]
async fn put_meter(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    Conditions(when): Conditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    api.put_part(named(PartKind::Meter, path)?, when, body)
        .await
}

/// Delete a meter that no static entry leads to.
#[utoipa::path(delete, path = "/v1/meters/{owner}/{name}", tag = "flows",
    operation_id = "delete_meter",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "slow"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    responses(
        (status = 204),
        (status = 404),
        (status = 422, description = "An entry leads to it"),
        NotKept,
    ))]
async fn delete_meter(
    State(api): State<Api>,
    Path(path): Path<(String, String)>,
    Conditions(when): Conditions,
) -> Result<StatusCode, Problem> {
    api.delete_part(named(PartKind::Meter, path)?, when).await
}
