//! All documents set through the API, at once: to keep a copy, and to restore one. Also the tags of
//! documents, by which a client changes only the version that it has read.

use std::convert::Infallible;

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::{NotKept, Problem};
use super::{Api, json_within};
use cluster::intent::{Tags, When, imported};
use config::qos::tree::{Node, Reader};

/// The most bytes of a restored document: twenty thousand documents have less.
const IMPORT_BYTES_MAX: usize = 16 << 20;
/// The most tags of a condition; further tags are ignored.
const TAGS_MAX: usize = 64;
/// One import at a time: each may be large.
static IMPORTS: Semaphore = Semaphore::const_new(1);

pub fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(get_intent, put_intent))
}

/// The tag of a document that its store wrote in this revision.
pub fn tag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// The answer to a document that was put: the document as shown, its tag, and its location if it is
/// new.
pub fn was_put<T: Serialize>(
    revision: Option<u64>,
    (is_new, is_in_use): (bool, bool),
    place: String,
    shown: Option<T>,
) -> Response {
    let tag = revision.map(|revision| [(header::ETAG, tag(revision))]);
    let Some(shown) = shown.map(Json) else {
        // The document is kept and not in use yet, or has been deleted since.
        return (StatusCode::ACCEPTED, tag, ()).into_response();
    };
    let place = [(header::LOCATION, place)];
    match (is_in_use, is_new) {
        (false, _) => (StatusCode::ACCEPTED, tag, shown).into_response(),
        (true, false) => (StatusCode::OK, tag, shown).into_response(),
        (true, true) => (StatusCode::CREATED, tag, place, shown).into_response(),
    }
}

/// The status of an answer without a body.
pub fn done(is_in_use: bool) -> StatusCode {
    match is_in_use {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::ACCEPTED,
    }
}

/// `If-Match` and `If-None-Match` of a request.
pub struct Conditions(pub When);

impl<S: Send + Sync> FromRequestParts<S> for Conditions {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Conditions, Infallible> {
        Ok(Conditions(conditions(&parts.headers)))
    }
}

fn conditions(headers: &HeaderMap) -> When {
    When {
        is: tags(headers, &header::IF_MATCH, false),
        is_not: tags(headers, &header::IF_NONE_MATCH, true),
    }
}

/// The tags of a header that are ours. A weak tag is enough for `If-None-Match` alone.
fn tags(headers: &HeaderMap, name: &HeaderName, takes_weak: bool) -> Option<Tags> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let texts = values.filter_map(|value| value.to_str().ok());
    let texts: Vec<&str> = texts
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .collect();
    if texts == ["*"] {
        return Some(Tags::Any);
    }
    let revision = |text: &&str| {
        let strong = match takes_weak {
            true => text.strip_prefix("W/").unwrap_or(text),
            false => text,
        };
        let digits = strong.strip_prefix('"')?.strip_suffix('"')?;
        digits.parse().ok().filter(|n: &u64| tag(*n) == strong)
    };
    let revisions = texts.iter().take(TAGS_MAX).filter_map(revision).collect();
    Some(Tags::Revisions(revisions))
}

/// Everything that the API was asked for.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema alone is used")]
pub struct IntentDocument {
    /// The version of this document.
    #[schema(example = 1)]
    auster_intent: u32,
    documents: Vec<IntentEntry>,
}

/// One document.
#[derive(ToSchema)]
#[expect(dead_code, reason = "its schema alone is used")]
pub struct IntentEntry {
    /// `queues`, `services`, `policies`, `circuits`, `meters`, `groups`, `flows` or `layout`.
    #[schema(example = "services")]
    kind: String,
    #[schema(example = "voice")]
    name: String,
    /// The member of the cluster that has written it, and when.
    #[schema(required = false)]
    by: String,
    #[schema(required = false, example = "2026-11-28T06:05:04Z")]
    at: String,
    #[schema(required = false)]
    revision: u64,
    /// `in use`, `left out`, or `missing` from an etcd that was restored.
    #[schema(required = false, example = "in use")]
    state: String,
    /// The reason why it is left out.
    reason: Option<String>,
    /// The document as its own path shows it; null if it cannot be read.
    document: Option<Value>,
}

/// The number of documents that were put.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Imported {
    pub created: usize,
    pub replaced: usize,
}

/// Everything that this API was asked for, with what is not in use.
#[utoipa::path(get, path = "/v1/intent", tag = "qos", operation_id = "get_intent",
    responses((status = 200, body = IntentDocument)))]
async fn get_intent(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    Ok(Json(api.intent.document()?))
}

/// Put all of these, in place of those of the same names. All are checked before anything is
/// changed; others stay.
#[utoipa::path(put, path = "/v1/intent", tag = "qos", operation_id = "put_intent",
    request_body = IntentDocument,
    responses(
        (status = 200, body = Imported),
        (status = 409, description = "Some of it is the configuration's"),
        NotKept,
    ))]
async fn put_intent(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let Ok(one) = IMPORTS.acquire().await else {
        return Err(Problem::busy());
    };
    let body = json_within(request, IMPORT_BYTES_MAX)
        .await?
        .unwrap_or_default();
    let mut reader = Reader::default();
    let ops = imported(&mut reader, &Node::of_json(&body));
    drop(body);
    if !reader.problems.is_empty() {
        return Err(Problem::of_fields(&reader.problems));
    }
    let changed = api.intent.import(ops, one).await?;
    let imported = Imported {
        created: changed.created,
        replaced: changed.replaced,
    };
    let status = match changed.is_in_use {
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    Ok((status, Json(imported)).into_response())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn tags_are_read_as_the_standard_has_them() {
        let of = |name: HeaderName, text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(text));
            conditions(&headers)
        };
        let some = |revisions: &[u64]| Some(Tags::Revisions(revisions.to_vec()));
        assert_eq!(conditions(&HeaderMap::new()), When::default());
        assert_eq!(of(header::IF_MATCH, "*").is, Some(Tags::Any));
        assert_eq!(of(header::IF_NONE_MATCH, "*").is_not, Some(Tags::Any));
        assert_eq!(of(header::IF_MATCH, "\"5\", \"7\"").is, some(&[5, 7]));
        // A weak tag never matches there, and a tag that is not ours matches nothing.
        assert_eq!(of(header::IF_MATCH, "W/\"5\"").is, some(&[]));
        assert_eq!(of(header::IF_NONE_MATCH, "W/\"5\"").is_not, some(&[5]));
        for text in ["", "5", "\"05\"", "\"x\"", "\"-1\"", "\"5"] {
            assert_eq!(of(header::IF_MATCH, text).is, some(&[]), "{text}");
        }
    }
}
