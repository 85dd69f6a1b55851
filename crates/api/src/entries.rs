//! Static entries: those of an owner, one by one or many at once.
//!
//! Lasting entries are documents of [`Intent`](cluster::intent::Intent). Entries with a timeout
//! exist in the controller alone and are not stored.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use control::flows::{FlowName, FlowPage, FlowView, StaticEntry};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::hosts::limit;
use super::intent::{self, Conditions, tag, was_put};
use super::problem::{NotKept, Problem};
use super::query::Query;
use super::{Api, Body};
use cluster::intent::{Change, When};
use config::flows::{FlowDocument, StatedFlow, read, show};
use config::qos::held::{Op, Put};
use config::qos::tree::{Node, Reader, is_name};
use config::qos::{Item, Refused};

/// The most entries of one request that changes several.
const PATCH_MAX: usize = 256;
/// Entries of a page, unless the request says otherwise.
const PAGE: usize = 100;
/// Attempts at a change, while others delete the entries that it is to delete.
const ATTEMPTS_MAX: usize = 5;

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_flows))
        .routes(routes!(list_owner, patch_owner, delete_owner))
        .routes(routes!(get_flow, put_flow, delete_flow))
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Flows {
    /// Sorted by owner and name.
    pub flows: Vec<FlowDocument>,
    /// All that were asked for, on this page or not.
    pub total: u64,
    /// `after` of the next page; null on the last.
    pub next: Option<String>,
}

/// The end of a change of several entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct FlowsChanged {
    pub created: usize,
    pub replaced: usize,
    pub deleted: usize,
}

/// A name and the entry that it is to have; `None` deletes.
pub type Wish = (FlowName, Option<(StaticEntry, Node)>);

fn named(owner: &str, name: &str) -> Result<FlowName, Problem> {
    for text in [owner, name] {
        if !is_name(text) {
            return Err(Problem::new(
                StatusCode::NOT_FOUND,
                "an owner and a name are 1 to 64 letters, digits, '-', '_' and '.' each",
            ));
        }
    }
    Ok(FlowName::new(owner, name))
}

fn unknown(name: &FlowName) -> Problem {
    Problem::from(Refused::Unknown(Item::Flow(name.clone())))
}

/// Changes that were carried out.
pub struct Done {
    pub counts: FlowsChanged,
    /// The revision of the lasting entries, if there were any.
    pub revision: Option<u64>,
    pub is_in_use: bool,
}

impl Api {
    async fn flows(
        &self,
        owner: Option<String>,
        after: Option<FlowName>,
        limit: usize,
    ) -> Result<FlowPage, Problem> {
        self.ask(move |controller| controller.flows(owner.as_deref(), after.as_ref(), limit))
            .await
    }

    /// The names of an owner's entries, including those that are only kept.
    pub async fn flow_names(&self, owner: &str) -> Result<BTreeSet<FlowName>, Problem> {
        let its = owner.to_owned();
        let of_it = self
            .ask(move |controller| controller.flow_names(&its))
            .await?;
        let mut names: BTreeSet<FlowName> = of_it.into_iter().collect();
        let kept = self.intent.items(&format!("flows/{owner}/"));
        names.extend(kept.into_iter().filter_map(|item| match item {
            Item::Flow(name) => Some(name),
            _ => None,
        }));
        Ok(names)
    }

    /// Changes entries, all or none. Deleting an entry that does not exist changes nothing, even if
    /// another client deletes it meanwhile.
    pub async fn change_flows(&self, wishes: Vec<Wish>, when: When) -> Result<Done, Problem> {
        for _ in 1..ATTEMPTS_MAX {
            match self.try_change_flows(wishes.clone(), when.clone()).await {
                Err(Unchanged::Unknown(_)) => {}
                changed => return changed.map_err(Problem::from),
            }
        }
        let changed = self.try_change_flows(wishes, when).await;
        changed.map_err(Problem::from)
    }

    async fn try_change_flows(&self, wishes: Vec<Wish>, when: When) -> Result<Done, Unchanged> {
        let is_passing = |(name, entry): &Wish| {
            let passes = entry.as_ref().is_some_and(|(entry, _)| !entry.is_lasting());
            passes && !self.intent.has(&Item::Flow(name.clone()))
        };
        if when == When::default() && wishes.iter().all(is_passing) {
            return self.put_passing(wishes).await;
        }
        let names: Vec<FlowName> = wishes.iter().map(|(name, _)| name.clone()).collect();
        let there = self
            .ask(move |controller| {
                let there = names.into_iter().filter_map(|name| {
                    let is_lasting = controller.is_lasting_flow(&name)?;
                    Some((name, is_lasting))
                });
                there.collect::<BTreeMap<FlowName, bool>>()
            })
            .await?;
        let mut counts = FlowsChanged::default();
        let (mut kept, mut passing) = (Vec::new(), Vec::new());
        for (name, entry) in wishes {
            let item = Item::Flow(name.clone());
            let has_document = self.intent.has(&item);
            let is_there = there.contains_key(&name) || has_document;
            match (&entry, is_there) {
                (Some(_), true) => counts.replaced += 1,
                (Some(_), false) => counts.created += 1,
                (None, true) => counts.deleted += 1,
                (None, false) => continue,
            }
            match entry {
                Some((entry, node)) => {
                    let is_lasting = entry.is_lasting();
                    if !is_lasting && has_document {
                        kept.push(Op::Delete(item));
                    }
                    let put = Op::Put(Box::new(Put::Flow(name, Box::new(entry))), node);
                    match is_lasting {
                        true => kept.push(put),
                        false => passing.push(put),
                    }
                }
                None if has_document => kept.push(Op::Delete(item)),
                None => passing.push(Op::Delete(item)),
            }
        }
        if !passing.is_empty() {
            if when != When::default() {
                let detail = "entries with a timeout have no tags; leave If-Match and \
                              If-None-Match out";
                let problem = Problem::new(StatusCode::PRECONDITION_FAILED, detail);
                return Err(problem.into());
            }
            // Stored entries are not undone: check first that the whole change is possible.
            let whole: Vec<Op> = kept.iter().chain(&passing).cloned().collect();
            self.held.check(&whole).await?;
        }
        let (mut revision, mut is_in_use) = (None, true);
        if !kept.is_empty() {
            let changed = self.intent.change(Change::new(kept, when)).await?;
            revision = Some(changed.revision);
            is_in_use = changed.is_in_use;
        }
        if !passing.is_empty() {
            self.held.change_flows(&passing).await?;
        }
        Ok(Done {
            counts,
            revision,
            is_in_use,
        })
    }

    /// Puts entries with a timeout, for which no document is kept, by a single question: packets
    /// wait in the application meanwhile.
    async fn put_passing(&self, wishes: Vec<Wish>) -> Result<Done, Unchanged> {
        let puts = wishes.into_iter().filter_map(|(name, entry)| {
            let (entry, node) = entry?;
            Some(Op::Put(Box::new(Put::Flow(name, Box::new(entry))), node))
        });
        let puts: Vec<Op> = puts.collect();
        let replaced = self.held.change_flows(&puts).await?;
        let counts = FlowsChanged {
            created: puts.len().saturating_sub(replaced),
            replaced,
            deleted: 0,
        };
        Ok(Done {
            counts,
            revision: None,
            is_in_use: true,
        })
    }

    async fn flow(&self, name: &FlowName) -> Result<Option<FlowView>, Problem> {
        let name = name.clone();
        self.ask(move |controller| controller.flow(&name)).await
    }
}

/// Nothing was changed.
enum Unchanged {
    /// An entry to be deleted does not exist.
    Unknown(Refused),
    Refused(Problem),
}

impl From<Problem> for Unchanged {
    fn from(problem: Problem) -> Unchanged {
        Unchanged::Refused(problem)
    }
}

impl From<Refused> for Unchanged {
    fn from(refused: Refused) -> Unchanged {
        match refused {
            Refused::Unknown(_) => Unchanged::Unknown(refused),
            refused => Unchanged::Refused(Problem::from(refused)),
        }
    }
}

impl From<Unchanged> for Problem {
    fn from(unchanged: Unchanged) -> Problem {
        match unchanged {
            Unchanged::Unknown(refused) => Problem::from(refused),
            Unchanged::Refused(problem) => problem,
        }
    }
}

/// The page that a request asks for: its length, and the name before it.
fn page_of(owner: Option<&str>, query: Option<&str>) -> Result<(usize, Option<FlowName>), Problem> {
    let mut query = Query::of(query);
    let limit = query.read("limit", limit).unwrap_or(PAGE);
    let after = query.read("after", |text| {
        let parts = match owner {
            Some(owner) => Some((owner, text)),
            None => text.split_once('/'),
        };
        let name = parts.and_then(|(owner, name)| named(owner, name).ok());
        name.ok_or("is no `next` of a page")
    });
    query.only(&["limit", "after"])?;
    Ok((limit, after))
}

fn shown(page: &FlowPage, owner: Option<&str>) -> Json<Flows> {
    let last = page.flows.last().filter(|_| page.has_more);
    Json(Flows {
        flows: page.flows.iter().map(show).collect(),
        total: page.total as u64,
        next: last.map(|last| match owner {
            Some(_) => last.name.name.clone(),
            None => last.name.to_string(),
        }),
    })
}

/// Static entries, by owner and name.
#[utoipa::path(get, path = "/v1/flows", tag = "flows", operation_id = "list_flows",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000,
            description = "Entries of a page; 100 without"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses(
        (status = 200, body = Flows),
        (status = 400),
    ))]
async fn list_flows(
    State(api): State<Api>,
    RawQuery(query): RawQuery,
) -> Result<Json<Flows>, Problem> {
    let (limit, after) = page_of(None, query.as_deref())?;
    let page = api.flows(None, after, limit).await?;
    Ok(shown(&page, None))
}

/// Those of one owner.
#[utoipa::path(get, path = "/v1/flows/{owner}", tag = "flows", operation_id = "list_flows_of",
    params(
        ("owner" = String, Path, example = "ann"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1000,
            description = "Entries of a page; 100 without"),
        ("after" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses(
        (status = 200, body = Flows),
        (status = 400),
        (status = 404, description = "Nobody can be so called"),
    ))]
async fn list_owner(
    State(api): State<Api>,
    Path(owner): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Flows>, Problem> {
    named(&owner, "x")?;
    let (limit, after) = page_of(Some(&owner), query.as_deref())?;
    let page = api.flows(Some(owner.clone()), after, limit).await?;
    Ok(shown(&page, Some(&owner)))
}

/// Put and delete several entries of an owner, all or none: a table of names, each with an entry,
/// or null to delete it. At most 256 at a time, and 100 in a cluster.
#[utoipa::path(patch, path = "/v1/flows/{owner}", tag = "flows", operation_id = "patch_flows",
    params(("owner" = String, Path, example = "ann")),
    request_body = BTreeMap<String, StatedFlow>,
    responses(
        (status = 200, body = FlowsChanged),
        (status = 404, description = "Nobody can be so called"),
        NotKept,
    ))]
async fn patch_owner(
    State(api): State<Api>,
    Path(owner): Path<String>,
    Body(body): Body,
) -> Result<Response, Problem> {
    named(&owner, "x")?;
    let mut reader = Reader::default();
    if !body.is_table() {
        reader.wrong(
            &body.place,
            "it must be a table of names, each with an entry or null",
        );
    }
    let count = body.entries().len();
    if count > PATCH_MAX {
        let detail = format!("{count} entries, and a request changes at most {PATCH_MAX}");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let mut wishes: Vec<Wish> = Vec::new();
    for (name, node) in body.entries() {
        let Ok(name) = named(&owner, name) else {
            let text = "a name is 1 to 64 letters, digits, '-', '_' and '.'";
            reader.wrong(&node.place, text);
            continue;
        };
        match node.is_null() {
            true => wishes.push((name, None)),
            false => {
                let entry = read(&mut reader, &name, node);
                wishes.extend(entry.map(|entry| (name, Some((entry, node.clone())))));
            }
        }
    }
    if !reader.problems.is_empty() {
        return Err(Problem::of_fields(&reader.problems));
    }
    let done = api.change_flows(wishes, When::default()).await?;
    let status = match done.is_in_use {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((status, Json(done.counts)).into_response())
}

/// Delete all entries of an owner.
#[utoipa::path(delete, path = "/v1/flows/{owner}", tag = "flows", operation_id = "delete_flows",
    params(("owner" = String, Path, example = "ann")),
    responses(
        (status = 204),
        (status = 404, description = "Nobody can be so called"),
        NotKept,
    ))]
async fn delete_owner(
    State(api): State<Api>,
    Path(owner): Path<String>,
) -> Result<StatusCode, Problem> {
    named(&owner, "x")?;
    delete_all(&api, api.flow_names(&owner).await?).await
}

/// Deletes entries, as many at a time as one change may have.
pub async fn delete_all(api: &Api, names: BTreeSet<FlowName>) -> Result<StatusCode, Problem> {
    let names: Vec<FlowName> = names.into_iter().collect();
    let mut is_in_use = true;
    for part in names.chunks(api.intent.changes_max()) {
        let wishes = part.iter().map(|name| (name.clone(), None)).collect();
        is_in_use &= api.change_flows(wishes, When::default()).await?.is_in_use;
    }
    Ok(intent::done(is_in_use))
}

/// A static entry, and what has become of it.
#[utoipa::path(get, path = "/v1/flows/{owner}/{name}", tag = "flows", operation_id = "get_flow",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "detour"),
    ),
    responses(
        (status = 200, body = FlowDocument, headers(("etag" = String))),
        (status = 404),
    ))]
async fn get_flow(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let name = named(&owner, &name)?;
    // Read first: with a tag that is too old, a client's change is refused, and not made by
    // mistake.
    let revision = api.intent.revision(&Item::Flow(name.clone()));
    let view = api.flow(&name).await?.ok_or_else(|| unknown(&name))?;
    let tag = revision.map(|revision| [(header::ETAG, tag(revision))]);
    Ok((tag, Json(show(&view))).into_response())
}

/// Make a static entry, or replace the one that is so called. Without timeouts it is kept, and set
/// again whenever it is gone.
#[utoipa::path(put, path = "/v1/flows/{owner}/{name}", tag = "flows", operation_id = "put_flow",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "detour"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    request_body = StatedFlow,
    responses(
        (status = 200, description = "Replaced", body = FlowDocument,
            headers(("etag" = String))),
        (status = 201, description = "Created", body = FlowDocument,
            headers(("location" = String), ("etag" = String))),
        (status = 404, description = "Nothing can be so called"),
        NotKept,
    ))]
async fn put_flow(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
    Conditions(when): Conditions,
    Body(body): Body,
) -> Result<Response, Problem> {
    let name = named(&owner, &name)?;
    let mut reader = Reader::default();
    let entry = read(&mut reader, &name, &body);
    let Some(entry) = entry else {
        return Err(Problem::of_fields(&reader.problems));
    };
    let done = api
        .change_flows(vec![(name.clone(), Some((entry, body)))], when)
        .await?;
    let how = (done.counts.created > 0, done.is_in_use);
    let view = api.flow(&name).await?;
    let place = format!("/v1/flows/{name}");
    Ok(was_put(done.revision, how, place, view.as_ref().map(show)))
}

/// Delete a static entry.
#[utoipa::path(delete, path = "/v1/flows/{owner}/{name}", tag = "flows",
    operation_id = "delete_flow",
    params(
        ("owner" = String, Path, example = "ann"),
        ("name" = String, Path, example = "detour"),
        ("if-match" = Option<String>, Header),
        ("if-none-match" = Option<String>, Header),
    ),
    responses(
        (status = 204),
        (status = 404),
        NotKept,
    ))]
async fn delete_flow(
    State(api): State<Api>,
    Path((owner, name)): Path<(String, String)>,
    Conditions(when): Conditions,
) -> Result<StatusCode, Problem> {
    let name = named(&owner, &name)?;
    let done = api.change_flows(vec![(name.clone(), None)], when).await?;
    match done.counts.deleted {
        0 => Err(unknown(&name)),
        _ => Ok(intent::done(done.is_in_use)),
    }
}
